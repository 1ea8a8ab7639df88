//! A running process under a master. What it owes the master is decided in [`duties`]; here it is done.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use socket2::Socket;
use tokio::net::UnixStream;

use super::Control;
use crate::apart::Apart;
use crate::direct::Foreseen;
use crate::endpoint::{self, Desk};
use crate::environment::Outside;
use crate::handover::memory::{MemoryKind, ProcessMemory};
use crate::listeners::Granted;
use crate::overrides::{OverrideKey, OverrideRecord};
use crate::reload::{Configuration, EntryNews, Read};
use crate::servant::duties::{Duty, DutyEvent, bereft, duties};
use crate::servant::kept::overrides_to_bytes;
use crate::servant::link::{self, Heard, ToWorker};
use crate::servant::{Summoned, opening};

/// Changed entries of maps and ACLs whose telling takes no time to speak of.
const ENTRIES_AT_ONCE: usize = 64;

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
            Err(error) => return self.messages.warning(&format!("cannot notify the master: {error}")),
        }
        drop(self.line.take_untold());
        self.line.tell_entries(Instant::now());
        self.line.tell_variables(Instant::now());
        let _ = self.history.take_news();
        self.serve_master(DutyEvent::Serving { text, is_leaving: self.is_leaving() }).await;
    }

    /// Something happened that the master has to know. Without one, nothing is done.
    pub(crate) async fn serve_master(&mut self, event: DutyEvent) {
        for duty in duties(event) {
            if let Err(error) = self.do_duty(duty).await {
                return self.lose_master(&error);
            }
        }
    }

    async fn do_duty(&mut self, duty: Duty) -> io::Result<()> {
        let Some(servant) = &mut self.servant else { return Ok(()) };
        let overrides = || self.line.registry().overrides();
        match duty {
            Duty::KeepText(text) => servant.keep_text(&text).await,
            Duty::KeepTickets => match self.line.tickets().to_keep() {
                Some(keys) => servant.keep_tickets(&keys).await,
                None => Ok(()),
            },
            Duty::KeepEntry(of, set) => servant.keep_override(of, set.map(|set| *set)).await,
            Duty::KeepOverrides => match overrides_to_bytes(&overrides(), {
                let mut records = self.line.entry_records();
                records.extend(self.line.discovered_records());
                records
            }) {
                Ok(all) => servant.keep_overrides(&all).await,
                Err(_) => Ok(()),
            },
            Duty::KeepOverride(object, field) => {
                let set = overrides().get(&object, field).map(|set| OverrideRecord::of(&object, set));
                servant.keep_override(OverrideKey::of(&object, field), set).await
            }
            Duty::KeepCounters => match self.line.registry().memory().file() {
                Some(file) => servant.keep_counters(file).await,
                None => Ok(()),
            },
            Duty::KeepHealth => match self.line.health_to_bytes() {
                Some(report) => servant.keep_health(&report).await,
                None => Ok(()),
            },
            Duty::KeepPart(kind) => {
                let memory = match kind {
                    MemoryKind::Variables => {
                        ProcessMemory { variables: self.line.remember_variables(), ..ProcessMemory::default() }
                    }
                    _ => ProcessMemory { history: self.history.remember(), ..ProcessMemory::default() },
                };
                match memory.part(kind) {
                    Ok(part) => servant.keep_part(kind, &part).await,
                    Err(_) => Ok(()),
                }
            }
            Duty::KeepTables => servant.keep_tables(self.line.registry().tables.all()).await,
            Duty::ReportSockets => servant.report(self.line.listeners()).await,
            Duty::Settle => servant.settled().await,
            Duty::Retire if servant.opens() => servant.retire(&self.line.listeners().open_still()).await,
            Duty::Ready => servant.ready(&self.settings.version, &self.messages.startup()).await,
            Duty::HandOver(to) => servant.handed_over(to).await,
            Duty::Pong => servant.pong().await,
            // A right that we have is not asked for; who connected comes with a message.
            Duty::Retire | Duty::Serve | Duty::ServeOperator(..) => Ok(()),
        }
    }

    fn is_leaving(&self) -> bool {
        self.line.listeners().leaving_count() > 0
    }

    /// Takes the addresses out again that were put back for those who wait there.
    async fn finish(&mut self, configuration: Configuration, outside: &Outside) {
        let now = Instant::now();
        let ready = self.line.prepare(configuration, outside, now);
        match ready.and_then(|ready| self.line.let_in(ready).map_err(|reason| vec![reason])) {
            Ok(open) => {
                self.line.commit(open, &self.workers).await;
                self.line.retire(now);
            }
            // It was in use a moment ago.
            Err(reasons) => reasons.iter().for_each(|reason| self.messages.alert(&reason.to_string())),
        }
    }

    /// Servers went up or down, or checks failed: the master has their health, for a worker after this one.
    pub(crate) async fn report_health(&mut self) {
        let began = Instant::now();
        if self.servant.is_some() && self.health.step(self.line.take_health_news(), began) {
            self.serve_master(DutyEvent::HealthChanged).await;
            self.health.told(began, Instant::now());
        }
    }

    /// Sockets were closed: tells the master which ones to hold.
    pub(crate) async fn report_closed(&mut self) {
        self.serve_master(DutyEvent::Closed { is_leaving: self.is_leaving() }).await;
    }

    /// Another configuration is in use, read from this text.
    pub(crate) async fn report_change(&mut self, text: Option<Vec<u8>>) {
        let overrides = self.line.take_untold();
        self.serve_master(DutyEvent::Changed { text, overrides, is_leaving: self.is_leaving() }).await;
        self.report_entries().await;
        self.report_parts(true).await;
    }

    /// Keeps with the master what operators have set since the last time.
    pub(crate) async fn report_overrides(&mut self) {
        let overrides = self.line.take_untold();
        self.serve_master(DutyEvent::Overridden(overrides)).await;
        self.report_entries().await;
        self.report_parts(true).await;
    }

    /// Keeps with the master what operators and requests have changed in maps and ACLs since the last time.
    pub(crate) async fn report_entries(&mut self) {
        let began = Instant::now();
        let has_news = self.line.has_untold_entries(began);
        if !self.entries.step(has_news, began) {
            return;
        }
        let news = self.line.take_untold_entries();
        let is_long = match &news {
            EntryNews::These(entries) => entries.len() > ENTRIES_AT_ONCE,
            EntryNews::Many => true,
        };
        self.serve_master(DutyEvent::EntriesChanged(news)).await;
        // What an operator sets is told before the answer, unless there is far more to tell.
        if is_long {
            self.entries.told(began, Instant::now());
        }
    }

    /// Keeps with the master what has changed since the last time of variables of the process and of the history: at once if an operator or a
    /// file changed it.
    async fn report_parts(&mut self, is_urgent: bool) {
        if self.servant.is_none() {
            return;
        }
        let began = Instant::now();
        let has_news = self.line.take_variable_news(began);
        if self.parts.step(has_news, began) || has_news && is_urgent {
            self.serve_master(DutyEvent::PartChanged(MemoryKind::Variables)).await;
            self.parts.told(began, Instant::now());
        }
        if self.history.take_news() {
            self.serve_master(DutyEvent::PartChanged(MemoryKind::History)).await;
        }
    }

    /// Reports variables that requests have set, when it is time.
    pub(crate) async fn report_parts_in_time(&mut self) {
        let due = self.line.variables_due().into_iter().chain(self.parts.due()).min();
        if due.is_some_and(|due| due <= Instant::now()) {
            self.report_parts(false).await;
        }
    }

    /// Reports changed entries when it is time.
    pub(crate) async fn report_entries_in_time(&mut self) {
        let due = self.line.entries_due().into_iter().chain(self.entries.due()).min();
        if due.is_some_and(|due| due <= Instant::now()) {
            self.report_entries().await;
        }
    }

    /// Has the master bind what a change would open, if it has rights that we gave up: the change goes on once it has
    /// answered, which another thread waits for. `Err` when there is nothing to wait for.
    pub(crate) async fn ask_master(&mut self, mut found: Found) -> Result<Apart<Found>, Found> {
        match found.granted.take() {
            Some(Ok(granted)) => self.line.grant(granted),
            Some(Err(error)) => {
                self.messages.warning(&format!("the master did not reply to a request for new addresses: {error}"));
            }
            None => {
                let Some(servant) = self.servant.as_ref().filter(|servant| servant.opens()) else { return Err(found) };
                let model = found.read.loaded.model.as_ref();
                let missing = model.map(|model| self.line.listeners().missing(model)).unwrap_or_default();
                let Some((ours, theirs)) = (!missing.is_empty()).then(|| link::pair().ok()).flatten() else {
                    return Err(found);
                };
                if let Err(error) = servant.open(&theirs).await {
                    self.lose_master(&error);
                    return Err(found);
                }
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
            }
        }
        Err(found)
    }

    /// Does what the master says.
    pub(crate) async fn obey(&mut self, heard: io::Result<Heard<ToWorker>>, desk: &Desk) {
        let (message, fds) = match heard {
            Ok(Heard::Message(message, fds)) => (message, fds),
            Ok(Heard::Unknown) => return,
            Ok(Heard::Closed) => return self.lose_master(&io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return self.lose_master(&error),
        };
        let mut connected = fds.into_iter();
        for duty in duties(DutyEvent::Heard(message)) {
            match (duty, connected.next().map(Socket::from)) {
                (Duty::Serve, Some(socket)) if socket.set_nonblocking(true).is_ok() => {
                    if let Ok(stream) = UnixStream::from_std(socket.into()) {
                        tokio::spawn(endpoint::serve_one(stream, desk.clone()));
                    }
                }
                (Duty::ServeOperator(level, by), Some(socket)) if socket.set_nonblocking(true).is_ok() => {
                    self.line.runtime().serve(socket, level, by);
                }
                (duty, _) => {
                    if let Err(error) = self.do_duty(duty).await {
                        return self.lose_master(&error);
                    }
                }
            }
        }
    }

    /// A master that is gone or stuck is none any more; we serve on.
    fn lose_master(&mut self, error: &io::Error) {
        if self.servant.take().is_some() {
            self.messages.tell(bereft(error, std::process::id(), self.is_stopping()).into_iter().collect());
        }
    }
}
