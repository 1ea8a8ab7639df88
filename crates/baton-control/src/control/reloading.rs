//! Reloads of the running process: when the files are read, and who is told what became of it. What a change *does* is
//! [`ChangeLine::change`](crate::reload::ChangeLine::change); a reading that does not end is `stuck`'s concern.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use baton_config::Severity;
use baton_model::Level;
use tokio::sync::oneshot;

use super::Control;
use super::readings::{self, Turn};
use super::service::Found;
use crate::apart::{Apart, Lost};
use crate::certificates::wall_seconds;
use crate::environment::Outside;
use crate::plan::restart_pending;
use crate::protocol::{Outcome, Reply};
use crate::reload::{self, Change, Changed};
use crate::servant::duties::DutyEvent;

/// Readings of the running process.
pub(crate) type Readings = readings::Readings<FilesTask, Waiting, Planning>;
type Reading = readings::Reading<FilesTask, Waiting, Planning>;
type Purpose = readings::Purpose<Waiting, Planning>;

/// The thread that reads.
#[derive(Debug)]
pub(crate) struct FilesTask {
    pub(crate) loaded: Apart<Found>,
    pub(crate) outside: Arc<Outside>,
}

/// A plan that was asked for.
#[derive(Debug)]
pub(crate) struct Planning {
    /// Files instead of those of the start.
    pub(crate) files: Vec<PathBuf>,
    /// Who asked.
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// Who wants to know the outcome of a reload.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// SIGUSR2: the messages are the answer.
    Signal,
    /// `baton reload`.
    Asker(oneshot::Sender<Reply>),
}

impl Control {
    /// Begins to read the files, or remembers to do so again: what was asked for after a reading began may not be in it.
    pub(crate) fn reload(&mut self, waiting: Waiting) {
        if let Some(reason) = self.why_no_reload() {
            self.refuse_reload(waiting, &reason);
            return;
        }
        match self.readings.reload(waiting, self.succession.is_giving()) {
            Turn::Read(purpose) => self.read(purpose),
            Turn::Waits | Turn::TooMany(Waiting::Signal) => {}
            Turn::TooMany(Waiting::Asker(reply)) => {
                drop(reply.send(Reply::Failed { reason: "too many reloads are waiting".into() }));
            }
        }
    }

    /// Begins to read the files of a plan, or remembers to do so when nothing else is being read.
    pub(crate) fn plan(&mut self, planning: Planning) {
        if let Some(reason) = self.why_no_reload() {
            return refuse_plan(planning, &reason);
        }
        match self.readings.plan(planning, self.succession.is_giving()) {
            Turn::Read(purpose) => self.read(purpose),
            Turn::Waits => {}
            Turn::TooMany(planning) => {
                drop(planning.reply.send(Reply::Failed { reason: "too many plans are waiting".into() }));
            }
        }
    }

    fn read(&mut self, purpose: Purpose) {
        let mut options = self.settings.options.clone();
        match &purpose {
            Purpose::Reload(_) => self.settings.manager.reloading(),
            Purpose::Plan(planning) if planning.files.is_empty() => {}
            Purpose::Plan(planning) => options.files = planning.files.clone(),
        }
        let outside = Arc::new(self.settings.outside.recording());
        let from = outside.clone();
        let encryption = self.line.encryption();
        let direct = self.line.foresight();
        let (used, overrides, discovered) =
            (self.line.configuration(), self.line.registry().overrides(), self.line.discovered());
        let is_plan = matches!(purpose, Purpose::Plan(_));
        let read = move || {
            let read =
                Box::new(reload::read_all(&options, &from, (&encryption, &direct), (&used, overrides, discovered)));
            let model = read.loaded.model.as_ref().filter(|_| is_plan);
            let foreseen = model.map(|model| direct.of(model)).unwrap_or_default();
            Found::new(read, foreseen)
        };
        match Apart::run(read) {
            Ok(loaded) => {
                let task = FilesTask { loaded, outside };
                self.readings.begin(Reading { task, since: Instant::now(), purpose });
            }
            Err(error) => {
                let reason = format!("the files : {error}");
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

    /// Why no reload can begin now.
    fn why_no_reload(&self) -> Option<String> {
        if self.drain.is_some() {
            return Some(match self.succession.successor() {
                Some(successor) => format!("process {successor} has taken over"),
                None => "a graceful stop is in progress".into(),
            });
        }
        let is_paused = self.line.listeners().is_paused();
        is_paused.then(|| "listeners are paused by SIGTTOU; SIGTTIN resumes them".into())
    }

    /// The files were read: changes to them, or says what that would do.
    pub(crate) async fn change(&mut self, found: Result<Found, Lost>) {
        let Some(reading) = self.readings.end() else { return };
        self.line.expect_end_of_others(self.succession.has_predecessors());
        let is_plan = matches!(reading.purpose, Purpose::Plan(_));
        let outcome = match found {
            Ok(_) if self.drain.is_some() => Err("a graceful stop is in progress".to_owned()),
            Ok(_) if self.line.listeners().is_paused() => Err("listeners were paused by SIGTTOU meanwhile".to_owned()),
            Ok(found) => match self.ask_master(found).await {
                Ok(loaded) => {
                    let task = FilesTask { loaded, ..reading.task };
                    return self.readings.begin(Reading { task, ..reading });
                }
                Err(found) if is_plan => {
                    Ok(self.line.foresee(*found.read, found.foreseen, &reading.task.outside).await)
                }
                Err(found) => {
                    let change = Change::Reload(found.read);
                    let outside = reading.task.outside.clone();
                    match self.take_from(change, &outside).await {
                        Changed::Reload(outcome) => Ok(*outcome),
                        Changed::Done | Changed::Discovered(_) | Changed::Version(_) | Changed::Certificates(_) => {
                            Err("it was not a reload".into())
                        }
                        Changed::Refused(reason) => Err(reason),
                    }
                }
            },
            Err(error) => Err(format!("the files could not be read: {error}")),
        };
        self.line.drop_granted();
        if !is_plan {
            self.say_direct_commit();
            self.serve_master(DutyEvent::Leaving).await;
        }
        if !is_plan && outcome.as_ref().is_ok_and(|outcome| outcome.accepted) {
            self.watch_certificates();
            let text = self.servant.is_some().then(|| reading.task.outside.record()).flatten();
            self.report_change(text).await;
        }
        self.conclude_reading(reading, outcome);
    }

    /// Tells everybody who waits what became of a reading, and reads again if that was asked for meanwhile.
    pub(crate) fn conclude_reading(&mut self, reading: Reading, outcome: Result<Outcome, String>) {
        match reading.purpose {
            Purpose::Plan(planning) => {
                let reply = outcome.map_or_else(|reason| Reply::Failed { reason }, Reply::Plan);
                // Who does not wait any more does not want to know.
                let _ = planning.reply.send(reply);
            }
            Purpose::Reload(waiting) => {
                let is_applied = outcome.as_ref().is_ok_and(|outcome| outcome.accepted);
                self.line.note_reload(is_applied, reading.since.elapsed(), wall_seconds());
                self.conclude_reload(waiting, outcome);
            }
        }
        self.reload_again();
    }

    fn conclude_reload(&mut self, waiting: Vec<Waiting>, outcome: Result<Outcome, String>) {
        self.settings.manager.ready("");
        match &outcome {
            Ok(outcome) => self.tell(outcome),
            Err(reason) => self.messages.alert(&format!("Reload rejected: {reason}.")),
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

    /// Reads the files for those who asked while that had to wait.
    pub(crate) fn reload_again(&mut self) {
        while let Some(purpose) = self.readings.next(self.succession.is_giving()) {
            match (self.why_no_reload(), purpose) {
                (None, purpose) => self.read(purpose),
                (Some(reason), Purpose::Reload(waiting)) => {
                    waiting.into_iter().for_each(|waiting| self.refuse_reload(waiting, &reason));
                }
                (Some(reason), Purpose::Plan(planning)) => refuse_plan(planning, &reason),
            }
        }
    }

    /// Tells those who wait for a reload that there will be none.
    pub(crate) fn refuse_waiting(&mut self, reason: &str) {
        let (reloads, plans) = self.readings.stop();
        reloads.into_iter().for_each(|waiting| self.refuse_reload(waiting, reason));
        plans.into_iter().for_each(|planning| refuse_plan(planning, reason));
    }

    fn refuse_reload(&self, waiting: Waiting, reason: &str) {
        let text = format!("Reload rejected: {reason}.");
        match waiting {
            Waiting::Signal => self.messages.warning(&text),
            // Who does not wait any more does not want to know.
            Waiting::Asker(reply) => drop(reply.send(Reply::Failed { reason: text })),
        }
    }

    /// Says what became of a reload, on standard error and in the log.
    fn tell(&mut self, outcome: &Outcome) {
        for message in &outcome.messages {
            self.messages.rendered(&message.rendered);
        }
        if !outcome.accepted {
            let text = format!("Reload rejected, configuration {} stays in use.", outcome.generation);
            self.messages.event(Severity::Alert, Level(1), &text);
            return;
        }
        self.messages.apply(self.line.model());
        self.rings.apply(self.line.model());
        self.losses.check(&self.messages, self.line.model());
        let mut text = match outcome.plan.changes.len() {
            0 => format!("Reload: configuration {} is in use, nothing changed.", outcome.generation),
            1 => format!("Reload: configuration {} is in use, 1 change.", outcome.generation),
            count => format!("Reload: configuration {} is in use, {count} changes.", outcome.generation),
        };
        self.messages.log(Level(5), &text);
        // Where the log is standard error, it has these lines already.
        let is_logged = self.messages.is_logged_on_stderr(Level(5));
        let mut more: Vec<String> = Vec::new();
        if let Some(pending) = restart_pending(&outcome.pending) {
            self.messages.log(Level(4), &pending);
            more.extend((!is_logged).then_some(pending));
        }
        more.extend(outcome.plan.changes.iter().map(|change| change.change.clone()));
        for ended in outcome.plan.ended() {
            self.messages.log(Level(5), &ended);
            more.extend((!is_logged).then_some(ended));
        }
        if is_logged && more.is_empty() {
            return;
        }
        if is_logged {
            text = "Changes:".into();
        }
        more.iter().for_each(|line| text.extend(["\n", line]));
        self.messages.notice(&text);
    }
}

fn refuse_plan(planning: Planning, reason: &str) {
    // Who does not wait any more does not want to know.
    let _ = planning.reply.send(Reply::Failed { reason: format!("A reload would be rejected: {reason}.") });
}
