//! Reloads of the running process: when the files are read, and who is told what became of it. What a change *does* is
//! [`ChangeLine::change`](crate::reload::ChangeLine::change).

use std::path::PathBuf;
use std::sync::Arc;

use baton_model::{Level, Model};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use super::{Control, Settings};
use crate::direct::Foresight;
use crate::encryption::Encryption;
use crate::environment::Outside;
use crate::master::Found;
use crate::protocol::{Outcome, Reply};
use crate::reload;

/// Reloads that wait for the same reading of the files.
const WAITING_MAX: usize = 64;

/// Files being read on another thread.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) loaded: JoinHandle<Found>,
    outside: Arc<Outside>,
    waiting: Vec<Waiting>,
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
        if self.drain.is_some() {
            let reason = match self.succession.successor() {
                Some(successor) => format!("process {successor} has taken over"),
                None => "a soft stop is under way".into(),
            };
            self.refuse_reload(waiting, &reason);
            return;
        }
        if self.line.listeners.is_paused() {
            self.refuse_reload(waiting, "SIGTTOU has paused the listeners, SIGTTIN resumes them");
            return;
        }
        if self.reading.is_some() || self.succession.is_giving() {
            if self.again.len() < WAITING_MAX {
                self.again.push(waiting);
            } else if let Waiting::Asker(reply) = waiting {
                drop(reply.send(Reply::Failed { reason: "too many reloads wait already".into() }));
            }
            return;
        }
        self.settings.manager.reloading();
        let settings = self.settings.clone();
        let is_kept = self.servant.is_some();
        let outside = Arc::new(if is_kept { settings.outside.recording() } else { settings.outside.view() });
        let from = outside.clone();
        let encryption = self.line.encryption();
        let direct = self.line.direct.foresight(&self.line.registry);
        let read = move || Found::new(Box::new(reload::read_all(&settings.options, &from, &encryption, &direct)));
        let loaded = tokio::task::spawn_blocking(read);
        self.reading = Some(Reading { loaded, outside, waiting: vec![waiting] });
    }

    /// The files were read: changes to them, tells everybody who waits, and reads again if that was asked for meanwhile.
    pub(super) async fn change(&mut self, found: Result<Found, JoinError>) {
        let Some(reading) = self.reading.take() else { return };
        self.line.is_somebody_ending = self.succession.has_predecessors();
        let outcome = match found {
            Ok(_) if self.drain.is_some() => Err("a soft stop is under way".to_owned()),
            Ok(_) if self.line.listeners.is_paused() => Err("SIGTTOU has paused the listeners meanwhile".to_owned()),
            Ok(found) => match self.ask_master(found).await {
                Ok(loaded) => return self.reading = Some(Reading { loaded, ..reading }),
                Err(found) => Ok(self.line.change(*found.read, &reading.outside, &self.workers).await),
            },
            Err(error) => Err(format!("the files could not be read: {error}")),
        };
        self.line.listeners.drop_granted();
        self.say_direct_commit();
        self.retire_by_master().await;
        if outcome.as_ref().is_ok_and(|outcome| outcome.accepted) {
            self.watch_certificates();
            self.keep_text(reading.outside.record()).await;
            self.report_sockets().await;
        }
        self.settings.manager.ready("");
        match &outcome {
            Ok(outcome) => self.tell(outcome),
            Err(reason) => self.messages.alert(&format!("Reload refused: {reason}.")),
        }
        let reply = match outcome {
            Ok(outcome) => Reply::Reload(outcome),
            Err(reason) => Reply::Failed { reason },
        };
        for waiting in reading.waiting {
            if let Waiting::Asker(asker) = waiting {
                // Who does not wait any more does not want to know.
                let _ = asker.send(reply.clone());
            }
        }
        self.reload_again();
    }

    /// Reads the files for those who asked while that had to wait.
    pub(crate) fn reload_again(&mut self) {
        let mut again = std::mem::take(&mut self.again).into_iter();
        again.next().into_iter().for_each(|first| self.reload(first));
        match &mut self.reading {
            Some(reading) => reading.waiting.extend(again),
            None => again.for_each(|waiting| self.reload(waiting)),
        }
    }

    /// Tells those who wait for a reload that there will be none.
    pub(crate) fn refuse_waiting(&mut self, reason: &str) {
        for waiting in std::mem::take(&mut self.again) {
            self.refuse_reload(waiting, reason);
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
        for change in &outcome.plan.changes {
            text.push('\n');
            text.push_str(&change.change);
        }
        self.messages.notice(&text);
    }
}

/// What `baton plan` asks. Files are read as the process would read them.
pub(super) fn foresee(
    settings: &Settings,
    files: Vec<PathBuf>,
    model: &Model,
    number: u64,
    encryption: &Encryption,
    foresight: &Foresight,
) -> Outcome {
    let mut options = settings.options.clone();
    if !files.is_empty() {
        options.files = files;
    }
    let certificates = |new: &Model| Ok(encryption.prepare(new, &settings.outside)?.replaced);
    reload::foresee(reload::read(&options, &settings.outside), model, number, certificates, foresight)
}
