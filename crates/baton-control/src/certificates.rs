//! Certificates that change while a configuration is in use.
//!
//! `watcher` is told of files and says which names to look at, `batches` when; `look` reads them on a thread of its own and
//! puts what is good in use; `complaints` decides what is said of the rest, and `census` what is said of those that end soon.
//! Established connections, and every other certificate, are not touched by any of it.

mod batches;
mod census;
mod complaints;
mod look;
mod watcher;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::notify::Happened;
use baton_model::Level;
use baton_tls::store::Entry;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

pub(crate) use census::{Census, wall_seconds};
use complaints::Complaints;
use look::{Gate, Looked, Work};
pub(crate) use watcher::Upcoming;
use watcher::{Notice, Watcher};

use crate::apart::{Apart, Lost};
use crate::control::Control;
use crate::control::stuck::verdict;
use crate::environment::Progress;
use crate::protocol::{self, Reply};
use crate::runtime::ssl::Pending;

/// How often is said which certificates end soon.
const CENSUS_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Askers of `baton certs sync` that wait at once.
const WAITING_MAX: usize = 64;

/// What watches certificates, and who waits for it. Lives on the thread of the change line.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    watcher: Watcher,
    looking: Option<Looking>,
    /// Certificates that end soon being counted on another thread: it takes a walk over all, for which no change waits.
    counting: Option<JoinHandle<Census>>,
    /// Who asked for a look at everything that has not begun yet.
    waiting: Vec<oneshot::Sender<Reply>>,
    complaints: Complaints,
    /// What operators have set and not committed.
    pub(crate) pending: Pending,
    /// When to count which ones end soon; `None` before there is a configuration.
    census_at: Option<Instant>,
    /// What was said of them last, and when.
    said: Census,
    said_at: Option<Instant>,
}

/// Files being looked at on another thread.
#[derive(Debug)]
struct Looking {
    task: Apart<Option<Box<Looked>>>,
    waiting: Vec<oneshot::Sender<Reply>>,
    since: Instant,
    progress: Arc<Progress>,
    gate: Arc<Gate>,
    /// Nobody waits for it any more; until its thread ends no other look begins.
    is_given_up: bool,
}

/// What can happen to certificates by itself.
#[derive(Debug)]
pub(crate) enum Event {
    /// The kernel told of files.
    Told(io::Result<Vec<Happened>>),
    /// Files were looked at.
    Looked(Result<Option<Box<Looked>>, Lost>),
    /// Those that end soon were counted.
    Counted(Result<Census, JoinError>),
}

impl Certificates {
    /// What happens next. May be abandoned and begun again.
    pub(crate) async fn next(&mut self) -> Event {
        let looked = async {
            match &mut self.looking {
                Some(looking) => (&mut looking.task).await,
                None => pending().await,
            }
        };
        let counted = async {
            match &mut self.counting {
                Some(counting) => counting.await,
                None => pending().await,
            }
        };
        tokio::select! {
            counted = counted => Event::Counted(counted),
            looked = looked => Event::Looked(looked),
            told = self.watcher.next() => Event::Told(told),
        }
    }

    /// Whether files are being looked at on another thread. What they change must not meet a change of the configuration.
    pub(crate) fn is_looking(&self) -> bool {
        self.looking.as_ref().is_some_and(|looking| !looking.is_given_up)
    }

    /// When there is something to do without an event.
    pub(crate) fn due(&self) -> Option<Instant> {
        // The end of either is an event.
        let census = self.census_at.filter(|_| self.counting.is_none());
        let look = match &self.looking {
            Some(_) => None,
            None if !self.waiting.is_empty() => Some(Instant::now()),
            None => self.watcher.due(),
        };
        look.into_iter().chain(census).min()
    }
}

impl Control {
    /// A configuration has come into use.
    pub(crate) fn watch_certificates(&mut self) {
        let now = Instant::now();
        if let Some(upcoming) = self.line.watched.take() {
            let watcher = upcoming.listen(&self.settings.outside, now);
            let before = std::mem::replace(&mut self.certificates.watcher, watcher);
            // The kernel may take some milliseconds to close a queue.
            tokio::task::spawn_blocking(move || drop(before));
        }
        self.certificates.census_at = Some(now);
        self.tell_of_directories();
    }

    /// Something happened to certificates.
    pub(crate) fn note_certificates(&mut self, event: Event) {
        match event {
            Event::Told(told) => {
                self.certificates.watcher.told(told, &self.settings.outside, Instant::now());
                self.tell_of_directories();
            }
            Event::Looked(looked) => self.looked(looked),
            Event::Counted(counted) => self.counted(counted),
        }
    }

    /// `baton certs sync`: looks at everything, and answers when it is in use.
    pub(crate) fn sync_certificates(&mut self, reply: oneshot::Sender<Reply>) {
        // Who does not wait any more does not want to know.
        if self.is_stopping() {
            drop(reply.send(Reply::Failed { reason: "a soft stop is under way".into() }));
        } else if self.certificates.waiting.len() >= WAITING_MAX {
            drop(reply.send(Reply::Failed { reason: "too many wait already".into() }));
        } else {
            self.certificates.waiting.push(reply);
        }
    }

    /// `baton certs list`: what there is. Written down by another thread, for there may be many.
    pub(crate) fn list_certificates(&self, reply: oneshot::Sender<Reply>) {
        let store = self.line.store.clone();
        tokio::task::spawn_blocking(move || {
            let facts = |entry: &Arc<Entry>| {
                protocol::CertificateFacts::of(entry.path(), &entry.certificate(), entry.problem().as_deref())
            };
            let certificates = store.entries().iter().map(facts).collect();
            // Who does not wait any more does not want to know.
            let _ = reply.send(Reply::Certificates(Box::new(protocol::Certificates { certificates })));
        });
    }

    /// Begins to look at what it is time for, if nothing is being looked at. What has been read for a reload goes first.
    pub(crate) fn look_at_certificates(&mut self) {
        self.count_certificates();
        if self.certificates.looking.is_some() || self.drain.is_some() || self.has_read() {
            return;
        }
        let (certificates, now) = (&mut self.certificates, Instant::now());
        let outside = &self.settings.outside;
        let is_sync = !certificates.waiting.is_empty();
        if is_sync {
            certificates.watcher.all(outside, now);
        }
        let taken = match certificates.watcher.due().is_some_and(|due| due <= now) || is_sync {
            true => certificates.watcher.take(outside, now, is_sync),
            false => Vec::new(),
        };
        let directories = certificates.watcher.directories();
        let mut work: Vec<Work> = taken
            .into_iter()
            .filter_map(|(place, names)| Some(Work { directory: directories.get(place)?.clone(), names }))
            .collect();
        if is_sync {
            work.extend(look::unwatched(&self.line.model, &directories, outside));
        }
        self.tell_of_directories();
        if work.is_empty() && !is_sync {
            return;
        }
        let (store, outside, gate) = (self.line.store.clone(), self.settings.outside.view(), Arc::<Gate>::default());
        let (progress, open) = (outside.progress(), gate.clone());
        let look = move || look::look(&store, &outside, &work, is_sync, &open).map(Box::new);
        let waiting = std::mem::take(&mut self.certificates.waiting);
        match Apart::run(look) {
            Ok(task) => {
                let looking = Looking { task, waiting, since: now, progress, gate, is_given_up: false };
                self.certificates.looking = Some(looking);
            }
            Err(error) => self.refuse_look(waiting, &format!("Certificates cannot be looked at: {error}")),
        }
    }

    /// Gives up a look at files that is stuck; `awaited`: a reload waits for it to end, with this much patience. Its thread is abandoned: what it has read
    /// is not used, and no other look begins as long as it is there.
    pub(crate) fn give_up_looking(&mut self, now: Instant, awaited: Option<Duration>) {
        let Some(looking) = self.certificates.looking.as_mut().filter(|looking| !looking.is_given_up) else { return };
        let time = now.saturating_duration_since(looking.since);
        let Some(reason) = verdict(time, &looking.progress, now, awaited) else { return };
        if looking.gate.close() {
            looking.is_given_up = true;
            let waiting = std::mem::take(&mut looking.waiting);
            let text = format!("Certificates are not looked at until that ends, those in use stay: {reason}");
            self.refuse_look(waiting, &text);
        }
    }

    fn refuse_look(&mut self, waiting: Vec<oneshot::Sender<Reply>>, reason: &str) {
        let text = format!("{reason}.");
        self.messages.warning(&text);
        self.messages.log(Level(4), &text);
        for asker in waiting {
            // Who does not wait any more does not want to know.
            let _ = asker.send(Reply::Failed { reason: text.clone() });
        }
    }

    /// Begins to count which certificates end soon, when it is time for it.
    fn count_certificates(&mut self) {
        let (certificates, now) = (&mut self.certificates, Instant::now());
        if certificates.counting.is_some() || self.drain.is_some() || certificates.census_at.is_none_or(|at| at > now) {
            return;
        }
        certificates.census_at = now.checked_add(CENSUS_EVERY);
        let store = self.line.store.clone();
        certificates.counting = Some(tokio::task::spawn_blocking(move || Census::of(&store, wall_seconds())));
    }

    fn counted(&mut self, counted: Result<Census, JoinError>) {
        self.certificates.counting = None;
        match counted {
            Ok(census) => self.tell_census(&census),
            Err(error) => self.messages.alert(&format!("Certificates could not be counted: {error}")),
        }
    }

    fn looked(&mut self, looked: Result<Option<Box<Looked>>, Lost>) {
        let Some(Looking { waiting, since, .. }) = self.certificates.looking.take() else { return };
        let now = Instant::now();
        let looked = match looked {
            Ok(Some(looked)) => looked,
            // It was given up, and its files can be read again: all of them, whatever was missed.
            Ok(None) => return self.certificates.watcher.all(&self.settings.outside, now),
            Err(error) => {
                self.messages.alert(&format!("Certificates could not be looked at: {error}"));
                return;
            }
        };
        if let Some(text) = look::summary(&looked.report) {
            self.messages.notice(&text);
            self.messages.log(Level(5), &text);
        }
        let report = &looked.report;
        let good = report.added.iter().chain(&report.replaced).chain(&report.removed).chain(&looked.unchanged);
        good.for_each(|path| self.certificates.complaints.forget(path));
        let directories = self.certificates.watcher.directories();
        for problem in &report.refused {
            let place = directories.iter().position(|directory| problem.path.parent() == Some(directory));
            let name = problem.path.file_name();
            let is_awaited = waiting.is_empty() && self.certificates.complaints.waits(problem);
            if let (true, Some(place), Some(name)) = (is_awaited, place, name) {
                self.certificates.watcher.again(place, name, now);
            } else if let Some(text) = self.certificates.complaints.complain(problem, looked.serves(problem)) {
                self.messages.warning(&text);
                self.messages.log(Level(4), &text);
            }
        }
        for problem in &looked.failed {
            if let Some(text) = self.certificates.complaints.complain(problem, false) {
                self.messages.warning(&text);
                self.messages.log(Level(4), &text);
            }
        }
        if !waiting.is_empty() {
            self.certificates.census_at = Some(now);
        }
        let synced = protocol::Synced::of(&looked.report, &looked.failed, since.elapsed());
        for asker in waiting {
            // Who does not wait any more does not want to know.
            let _ = asker.send(Reply::Synced(synced.clone()));
        }
    }

    /// Says which certificates end soon: every day, and when it is not what was said last.
    fn tell_census(&mut self, census: &Census) {
        let is_new = *census != self.certificates.said;
        let is_day = self.certificates.said_at.is_none_or(|at| at.elapsed() >= CENSUS_EVERY / 2);
        if !is_new && !is_day {
            return;
        }
        for (level, text) in census.lines() {
            match level {
                Level(..=4) => self.messages.warning(&text),
                _ => self.messages.notice(&text),
            }
            self.messages.log(level, &text);
        }
        (self.certificates.said, self.certificates.said_at) = (census.clone(), Some(Instant::now()));
    }

    fn tell_of_directories(&mut self) {
        for notice in self.certificates.watcher.notices() {
            let text = match notice {
                Notice::Gone(path, error) => format!(
                    "The watched directory of certificates '{}' cannot be opened ({error}): its certificates stay in use, and it \
                     is looked for every second.",
                    path.display()
                ),
                Notice::Back(path) => format!("The watched directory of certificates '{}' is back.", path.display()),
                Notice::Untold(path, error) => format!(
                    "The system does not tell of changes in '{}' ({error}): all of it is looked at every second. See \
                     fs.inotify.max_user_watches and max_user_instances.",
                    path.display()
                ),
            };
            self.messages.warning(&text);
            self.messages.log(Level(4), &text);
        }
    }
}
