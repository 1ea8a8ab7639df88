//! Reloads of the running process: when the files are read, and who is told what became of it. What a change *does* is
//! [`ChangeLine::change`](crate::reload::ChangeLine::change); a reading that does not end is `stuck`'s concern.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use baton_config::Options;
use baton_model::Level;
use tokio::sync::oneshot;

use super::Control;
use super::stuck::OVERTAKEN_AFTER;
use crate::apart::{Apart, Lost};
use crate::environment::Outside;
use crate::master::Found;
use crate::plan::restart_pending;
use crate::protocol::{Outcome, Reply};
use crate::reload;

/// Reloads that wait for the same reading of the files, and plans that wait for theirs.
const WAITING_MAX: usize = 64;

/// Files being read on another thread.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) loaded: Apart<Found>,
    pub(super) outside: Arc<Outside>,
    pub(super) since: Instant,
    purpose: Purpose,
}

/// What is read for.
#[derive(Debug)]
enum Purpose {
    /// To change to it; those who want to know the outcome.
    Reload(Vec<Waiting>),
    /// To say what a reload would do.
    Plan(Planning),
}

/// A plan that was asked for.
#[derive(Debug)]
pub(super) struct Planning {
    /// Files instead of those of the start.
    pub(super) files: Vec<PathBuf>,
    /// Who asked.
    pub(super) reply: oneshot::Sender<Reply>,
}

/// Who wants to know the outcome of a reload.
#[derive(Debug)]
pub(super) enum Waiting {
    /// SIGUSR2: the messages are the answer.
    Signal,
    /// `baton reload`.
    Asker(oneshot::Sender<Reply>),
}

impl Control {
    /// Begins to read the files, or remembers to do so again: what was asked for after a reading began may not be in it.
    pub(super) fn reload(&mut self, waiting: Waiting) {
        if let Some(reason) = self.why_no_reload() {
            self.refuse_reload(waiting, &reason);
            return;
        }
        self.put_off_plan();
        if self.reading.is_some() || self.succession.is_giving() {
            if self.again.len() < WAITING_MAX {
                self.again.push(waiting);
            } else if let Waiting::Asker(reply) = waiting {
                drop(reply.send(Reply::Failed { reason: "too many reloads wait already".into() }));
            }
            return;
        }
        self.settings.manager.reloading();
        self.read(self.settings.options.clone(), Purpose::Reload(vec![waiting]));
    }

    /// Begins to read the files of a plan, or remembers to do so when nothing else is being read.
    pub(super) fn plan(&mut self, planning: Planning) {
        if let Some(reason) = self.why_no_reload() {
            // Who does not wait any more does not want to know.
            let _ = planning.reply.send(Reply::Failed { reason: format!("A reload would be refused: {reason}.") });
            return;
        }
        if self.reading.is_some() || self.succession.is_giving() {
            if self.plans.len() < WAITING_MAX {
                self.plans.push_back(planning);
            } else {
                drop(planning.reply.send(Reply::Failed { reason: "too many plans wait already".into() }));
            }
            return;
        }
        let mut options = self.settings.options.clone();
        if !planning.files.is_empty() {
            options.files = planning.files.clone();
        }
        self.read(options, Purpose::Plan(planning));
    }

    fn read(&mut self, options: Options, purpose: Purpose) {
        let outside = Arc::new(self.settings.outside.recording());
        let from = outside.clone();
        let encryption = self.line.encryption();
        let direct = self.line.direct.foresight(&self.line.registry);
        let used = self.line.configuration();
        let is_plan = matches!(purpose, Purpose::Plan(_));
        let read = move || {
            let read = Box::new(reload::read_all(&options, &from, (&encryption, &direct), &used));
            let model = read.loaded.model.as_ref().filter(|_| is_plan);
            let foreseen = model.map(|model| direct.of(model)).unwrap_or_default();
            Found::new(read, foreseen)
        };
        match Apart::run(read) {
            Ok(loaded) => self.reading = Some(Reading { loaded, outside, since: Instant::now(), purpose }),
            Err(error) => {
                let reason = format!("the files cannot be read: {error}");
                match purpose {
                    Purpose::Reload(waiting) => {
                        self.settings.manager.ready("");
                        waiting.into_iter().for_each(|waiting| self.refuse_reload(waiting, &reason));
                    }
                    Purpose::Plan(planning) => drop(planning.reply.send(Reply::Failed { reason })),
                }
            }
        }
    }

    /// A plan whose files are being read begins again after the reload that comes.
    fn put_off_plan(&mut self) {
        if let Some(Reading { purpose: Purpose::Plan(_), .. }) = &self.reading
            && let Some(Reading { purpose: Purpose::Plan(planning), .. }) = self.reading.take()
        {
            self.plans.push_front(planning);
        }
    }

    /// Why no reload can begin now.
    fn why_no_reload(&self) -> Option<String> {
        if self.drain.is_some() {
            return Some(match self.succession.successor() {
                Some(successor) => format!("process {successor} has taken over"),
                None => "a soft stop is under way".into(),
            });
        }
        let is_paused = self.line.listeners.is_paused();
        is_paused.then(|| "SIGTTOU has paused the listeners, SIGTTIN resumes them".into())
    }

    /// The files were read: changes to them, or says what that would do.
    pub(super) async fn change(&mut self, found: Result<Found, Lost>) {
        let Some(reading) = self.reading.take() else { return };
        self.patience = OVERTAKEN_AFTER;
        self.line.is_somebody_ending = self.succession.has_predecessors();
        let is_plan = matches!(reading.purpose, Purpose::Plan(_));
        let outcome = match found {
            Ok(_) if self.drain.is_some() => Err("a soft stop is under way".to_owned()),
            Ok(_) if self.line.listeners.is_paused() => Err("SIGTTOU has paused the listeners meanwhile".to_owned()),
            Ok(found) => match self.ask_master(found).await {
                Ok(loaded) => return self.reading = Some(Reading { loaded, ..reading }),
                Err(found) if is_plan => Ok(self.line.foresee(*found.read, found.foreseen, &reading.outside).await),
                Err(found) => Ok(self.line.change(*found.read, &reading.outside, &self.workers).await),
            },
            Err(error) => Err(format!("the files could not be read: {error}")),
        };
        self.line.listeners.drop_granted();
        if !is_plan {
            self.say_direct_commit();
            self.retire_by_master().await;
        }
        if !is_plan && outcome.as_ref().is_ok_and(|outcome| outcome.accepted) {
            self.watch_certificates();
            if self.servant.is_some() {
                self.keep_text(reading.outside.record()).await;
            }
            self.keep_overrides().await;
            self.report_sockets().await;
        }
        self.conclude_reading(reading, outcome);
    }

    /// Tells everybody who waits what became of a reading, and reads again if that was asked for meanwhile.
    pub(super) fn conclude_reading(&mut self, reading: Reading, outcome: Result<Outcome, String>) {
        match reading.purpose {
            Purpose::Plan(planning) => {
                let reply = outcome.map_or_else(|reason| Reply::Failed { reason }, Reply::Plan);
                // Who does not wait any more does not want to know.
                let _ = planning.reply.send(reply);
            }
            Purpose::Reload(waiting) => self.conclude_reload(waiting, outcome),
        }
        self.reload_again();
    }

    fn conclude_reload(&mut self, waiting: Vec<Waiting>, outcome: Result<Outcome, String>) {
        self.settings.manager.ready("");
        match &outcome {
            Ok(outcome) => self.tell(outcome),
            Err(reason) => self.messages.alert(&format!("Reload refused: {reason}.")),
        }
        let reply = match outcome {
            Ok(outcome) => Reply::Reload(outcome),
            Err(reason) => Reply::Failed { reason },
        };
        for waiting in waiting {
            if let Waiting::Asker(asker) = waiting {
                // Who does not wait any more does not want to know.
                let _ = asker.send(reply.clone());
            }
        }
    }

    /// Reads the files for those who asked while that had to wait: reloads first.
    pub(crate) fn reload_again(&mut self) {
        let mut again = std::mem::take(&mut self.again).into_iter();
        again.next().into_iter().for_each(|first| self.reload(first));
        match &mut self.reading {
            Some(Reading { purpose: Purpose::Reload(waiting), .. }) => waiting.extend(again),
            Some(_) | None => again.for_each(|waiting| self.reload(waiting)),
        }
        while self.reading.is_none() && !self.succession.is_giving() {
            let Some(planning) = self.plans.pop_front() else { break };
            self.plan(planning);
        }
    }

    /// Tells those who wait for a reload that there will be none.
    pub(crate) fn refuse_waiting(&mut self, reason: &str) {
        for waiting in std::mem::take(&mut self.again) {
            self.refuse_reload(waiting, reason);
        }
        for planning in std::mem::take(&mut self.plans) {
            // Who does not wait any more does not want to know.
            let _ = planning.reply.send(Reply::Failed { reason: format!("A reload would be refused: {reason}.") });
        }
    }

    fn refuse_reload(&self, waiting: Waiting, reason: &str) {
        let text = format!("Reload refused: {reason}.");
        match waiting {
            Waiting::Signal => self.messages.warning(&text),
            // Who does not wait any more does not want to know.
            Waiting::Asker(reply) => drop(reply.send(Reply::Failed { reason: text })),
        }
    }

    /// Says what became of a reload, on standard error and in the log.
    fn tell(&self, outcome: &Outcome) {
        for message in &outcome.messages {
            self.messages.rendered(&message.rendered);
        }
        if !outcome.accepted {
            let text = format!("Reload refused, configuration {} stays in use.", outcome.generation);
            self.messages.alert(&text);
            self.messages.log(Level(1), &text);
            return;
        }
        self.messages.apply(&self.line.model);
        let mut text = match outcome.plan.changes.len() {
            0 => format!("Reload: configuration {} is in use, nothing changed.", outcome.generation),
            1 => format!("Reload: configuration {} is in use, 1 change.", outcome.generation),
            count => format!("Reload: configuration {} is in use, {count} changes.", outcome.generation),
        };
        self.messages.log(Level(5), &text);
        if let Some(pending) = restart_pending(&outcome.pending) {
            self.messages.log(Level(4), &pending);
            text.push('\n');
            text.push_str(&pending);
        }
        for change in &outcome.plan.changes {
            text.push('\n');
            text.push_str(&change.change);
        }
        for ended in outcome.plan.ended() {
            self.messages.log(Level(5), &ended);
            text.push('\n');
            text.push_str(&ended);
        }
        self.messages.notice(&text);
    }
}
