//! A running process under a master: what it tells, and what it does for it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use baton_model::{AccessLevel, Author};
use socket2::Socket;
use tokio::net::UnixStream;

use super::link::{self, Heard, ToWorker};
use super::{Summoned, opening};
use crate::apart::Apart;
use crate::control::Control;
use crate::direct::Foreseen;
use crate::endpoint::{self, Desk};
use crate::environment::Outside;
use crate::listeners::Granted;
use crate::overrides::{self, OverrideKey, OverrideRecord};
use crate::reload::{Configuration, Read};

/// Overrides that are told one by one; of more, all are told at once.
const TOLD_ONE_BY_ONE: usize = 64;

/// What a process under a master begins with.
#[derive(Debug)]
pub struct Begun {
    /// The line to the master.
    pub summoned: Summoned,
    /// The text that was read, for the master to keep; `None` when it has that already.
    pub text: Option<Vec<u8>>,
    /// What to change to at once, and where its files are: the first configuration had
    /// [more addresses](crate::listeners::with_unfinished).
    pub then: Option<(Configuration, Outside)>,
}

/// Files that were read, and sockets for what they name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) read: Box<Read>,
    /// What the master bound, or why it did not answer; `None` until it was asked.
    granted: Option<io::Result<Granted>>,
    /// What would be done in the kernel; for a plan.
    pub(crate) foreseen: Foreseen,
}

impl Found {
    /// What was read.
    pub(crate) fn new(read: Box<Read>, foreseen: Foreseen) -> Found {
        Found { read, granted: None, foreseen }
    }
}

impl Control {
    /// We serve: the master learns which sockets to hold, which text is in use, and that it may go on.
    pub(crate) async fn begin_service(&mut self) {
        let Some(Begun { summoned, text, then }) = self.begun.take() else { return };
        if let Some((configuration, outside)) = then {
            self.finish(configuration, &outside).await;
        }
        match summoned.serve() {
            Ok(servant) => self.servant = Some(servant),
            Err(error) => return self.messages.warning(&format!("the master is not told how we are: {error}")),
        }
        self.keep_text(text).await;
        self.keep_tickets().await;
        self.keep_all_overrides().await;
        self.report_sockets().await;
        let said = self.messages.startup();
        let version = self.settings.version.clone();
        if let Some(servant) = &self.servant {
            let told = servant.ready(&version, &said).await;
            self.look_at_master(told);
        }
    }

    /// Takes the addresses out again that were put back for those who wait there.
    async fn finish(&mut self, configuration: Configuration, outside: &Outside) {
        let now = Instant::now();
        let outcome = match self.line.prepare(configuration, outside, now) {
            Ok(ready) => self.line.commit(ready, &self.workers).await.map_err(|reason| vec![reason]),
            Err(reasons) => Err(reasons),
        };
        match outcome {
            Ok(()) => {
                self.line.retire(now);
                self.retire_by_master().await;
            }
            // It was in use a moment ago.
            Err(reasons) => reasons.iter().for_each(|reason| self.messages.alert(&reason.to_string())),
        }
    }

    /// Tells the master that another process has taken over: it must not replace us.
    pub(crate) async fn tell_master_of(&mut self, successor: u32) {
        if let Some(servant) = &self.servant {
            let told = servant.handed_over(successor).await;
            self.look_at_master(told);
        }
    }

    /// Tells the master which sockets to hold and which ones are closed.
    pub(crate) async fn report_sockets(&mut self) {
        if let Some(servant) = &mut self.servant {
            let mut told = servant.report(&self.line.listeners).await;
            if told.is_ok() && self.line.listeners.leaving_count() == 0 {
                told = servant.settled().await;
            }
            self.look_at_master(told);
        }
    }

    /// Has the master bind what a change would open, if it has rights that we gave up: the change goes on once it has
    /// answered, which another thread waits for. `Err` when there is nothing to wait for.
    pub(crate) async fn ask_master(&mut self, mut found: Found) -> Result<Apart<Found>, Found> {
        match found.granted.take() {
            Some(Ok(granted)) => self.line.listeners.grant(granted),
            Some(Err(error)) => {
                self.messages.warning(&format!("the master was asked for new addresses and did not answer: {error}"));
            }
            None => {
                let Some(servant) = self.servant.as_ref().filter(|servant| servant.opens()) else { return Err(found) };
                let model = found.read.loaded.model.as_ref();
                let missing = model.map(|model| self.line.listeners.missing(model)).unwrap_or_default();
                let Some((ours, theirs)) = (!missing.is_empty()).then(|| link::pair().ok()).flatten() else {
                    return Err(found);
                };
                let told = servant.open(&theirs).await;
                if told.is_ok() {
                    let kept = Arc::new(Mutex::new(Some(found)));
                    let take = |kept: &Mutex<Option<Found>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let taken = kept.clone();
                    let asked = Apart::run(move || {
                        let mut found = take(&taken).expect("it was put there, and only this thread takes it");
                        found.granted = Some(opening::ask(&ours, missing));
                        found
                    });
                    match asked {
                        Ok(asked) => return Ok(asked),
                        // No thread was begun.
                        Err(_) => found = take(&kept).expect("nobody took it"),
                    }
                } else {
                    self.look_at_master(told);
                }
            }
        }
        Err(found)
    }

    /// Has the master keep new clients from addresses on their way out, where we have no right to.
    pub(crate) async fn retire_by_master(&mut self) {
        let Some(servant) = self.servant.as_ref().filter(|servant| servant.opens()) else { return };
        let sockets = self.line.listeners.open_still();
        let told = servant.retire(&sockets).await;
        self.look_at_master(told);
    }

    /// Keeps the text that is in use with the master.
    pub(crate) async fn keep_text(&mut self, text: Option<Vec<u8>>) {
        if let (Some(servant), Some(text)) = (&self.servant, text) {
            let told = servant.keep_text(&text).await;
            self.look_at_master(told);
        }
    }

    /// Keeps the keys of session tickets with the master.
    pub(crate) async fn keep_tickets(&mut self) {
        if let (Some(servant), Some(keys)) = (&self.servant, self.tickets_to_keep()) {
            let told = servant.keep_tickets(&keys).await;
            self.look_at_master(told);
        }
    }

    /// Keeps what operators have set with the master.
    async fn keep_all_overrides(&mut self) {
        self.line.untold.clear();
        if let (Some(servant), Ok(all)) = (&self.servant, overrides::to_bytes(&self.line.registry.overrides())) {
            let told = servant.keep_overrides(&all).await;
            self.look_at_master(told);
        }
    }

    /// Keeps with the master what operators have set since the last time, and what a file has ended.
    pub(crate) async fn keep_overrides(&mut self) {
        if self.line.untold.len() > TOLD_ONE_BY_ONE {
            return self.keep_all_overrides().await;
        }
        let all = self.line.registry.overrides();
        for (object, field) in std::mem::take(&mut self.line.untold) {
            let Some(servant) = &self.servant else { return };
            let set = all.get(&object, field).map(|set| OverrideRecord::of(&object, set));
            let told = servant.keep_override(OverrideKey::of(&object, field), set).await;
            self.look_at_master(told);
        }
    }

    /// Does what the master says.
    pub(crate) async fn obey(&mut self, heard: io::Result<Heard<ToWorker>>, desk: &Desk) {
        let (message, fds) = match heard {
            Ok(Heard::Message(message, fds)) => (message, fds),
            Ok(Heard::Unknown) => return,
            Ok(Heard::Closed) => return self.look_at_master(Err(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return self.look_at_master(Err(error)),
        };
        let stream = |fds: Vec<OwnedFd>| {
            let stream = StdStream::from(fds.into_iter().next()?);
            stream.set_nonblocking(true).ok()?;
            UnixStream::from_std(stream).ok()
        };
        match message {
            ToWorker::Serve => {
                if let Some(stream) = stream(fds) {
                    tokio::spawn(endpoint::serve_one(stream, desk.clone()));
                }
            }
            ToWorker::Ping => {
                if let Some(servant) = &self.servant {
                    let told = servant.pong().await;
                    self.look_at_master(told);
                }
            }
            ToWorker::Session { level, uid, pid, socket: name } => {
                let by = (!name.is_empty()).then_some(Author { uid, pid, socket: name });
                // A level that we do not know gets nobody to speak with.
                if let (Some(fd), Some(level)) = (fds.into_iter().next(), level_of(&level)) {
                    let socket = Socket::from(fd);
                    if socket.set_nonblocking(true).is_ok() {
                        self.line.runtime.serve(socket, level, by);
                    }
                }
            }
            // What belongs to a start only.
            ToWorker::Sockets
            | ToWorker::Number { .. }
            | ToWorker::Input
            | ToWorker::Text
            | ToWorker::Earlier
            | ToWorker::Tickets
            | ToWorker::Overrides
            | ToWorker::Begin(_) => {}
        }
    }

    /// A master that is gone or stuck is none any more; we serve on.
    fn look_at_master(&mut self, told: io::Result<()>) {
        if let Err(error) = told
            && self.servant.take().is_some()
            && !self.is_stopping()
        {
            self.messages.alert(&format!(
                "The master is gone ({error}); process {} serves on. Replace it by `-sf {}` or end it by a signal.",
                std::process::id(),
                std::process::id()
            ));
        }
    }
}

fn level_of(word: &str) -> Option<AccessLevel> {
    [AccessLevel::User, AccessLevel::Operator, AccessLevel::Admin].into_iter().find(|level| level.word() == word)
}
