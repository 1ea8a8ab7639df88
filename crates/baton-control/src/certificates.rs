//! Certificates that change while a configuration is in use.
//!
//! `watcher` is told of files and says which names to look at, `batches` when; `look` reads them on a thread of its own, and what is
//! good goes down the change path; `complaints` decides what is said of the rest, and `census` what is said of those that end soon.
//! Established connections, and every other certificate, are not touched by any of it.

mod batches;
mod census;
mod complaints;
mod look;
mod pending;
mod watcher;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::notify::FileEvent;
use baton_model::Model;
use baton_tls::store::{Entry, Report, StoreView};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

pub(crate) use census::{Census, Ending, wall_seconds};
use complaints::Complaints;
pub(crate) use look::Found;
use look::{CertificateFindings, Work};
pub(crate) use pending::{Pending, PendingAuthorities};
pub(crate) use watcher::Upcoming;
use watcher::{Notice, Watcher};

use crate::apart::{Apart, Lost};
use crate::environment::stuck::verdict;
use crate::environment::{Outside, Progress};
use crate::messages::Said;
use crate::protocol::{self, Reply};

/// How often is said which certificates end soon.
const CENSUS_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Askers of `baton certs sync` that wait at once.
const WAITING_MAX: usize = 64;

/// What watches certificates, and who waits for it. Lives on the thread of the change path.
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
    task: Apart<Box<Found>>,
    waiting: Vec<oneshot::Sender<Reply>>,
    since: Instant,
    progress: Arc<Progress>,
    /// Nobody waits for it any more; until its thread ends no other look begins.
    is_given_up: bool,
}

/// What can happen to certificates by itself.
#[derive(Debug)]
pub(crate) enum CertificateEvent {
    /// The kernel told of files.
    Told(io::Result<Vec<FileEvent>>),
    /// Files were looked at.
    Looked(Result<Box<Found>, Lost>),
    /// Those that end soon were counted.
    Counted(Result<Census, JoinError>),
}

impl Certificates {
    /// What happens next. May be abandoned and begun again.
    pub(crate) async fn next(&mut self) -> CertificateEvent {
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
            counted = counted => CertificateEvent::Counted(counted),
            looked = looked => CertificateEvent::Looked(looked),
            told = self.watcher.next() => CertificateEvent::Told(told),
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

/// What a look at files needs to know of the process.
pub(crate) struct InUse<'a> {
    /// What was asked.
    pub model: &'a Model,
    /// The certificates in use.
    pub store: StoreView,
    /// Where files are found.
    pub outside: &'a Outside,
}

/// Each event and the time lead to what is to be said; files are read by threads of their own.
impl Certificates {
    /// A configuration has come into use, and this is watched for it.
    pub(crate) fn watch(&mut self, upcoming: Option<Upcoming>, outside: &Outside, now: Instant) -> Vec<Said> {
        if let Some(upcoming) = upcoming {
            let watcher = upcoming.listen(outside, now);
            let before = std::mem::replace(&mut self.watcher, watcher);
            // The kernel may take some milliseconds to close a queue.
            tokio::task::spawn_blocking(move || drop(before));
        }
        self.census_at = Some(now);
        self.of_directories()
    }

    /// Something happened.
    pub(crate) fn step(&mut self, event: CertificateEvent, outside: &Outside, now: Instant) -> Vec<Said> {
        match event {
            CertificateEvent::Told(told) => {
                self.watcher.told(told, outside, now);
                self.of_directories()
            }
            CertificateEvent::Looked(looked) => self.looked_in_vain(looked.err(), outside, now),
            CertificateEvent::Counted(counted) => self.counted(counted, now),
        }
    }

    /// `baton certs sync`: looks at everything, and answers when it is in use.
    pub(crate) fn sync(&mut self, reply: oneshot::Sender<Reply>, is_stopping: bool) {
        // Who does not wait any more does not want to know.
        if is_stopping {
            drop(reply.send(Reply::Failed { reason: "a graceful stop is in progress".into() }));
        } else if self.waiting.len() >= WAITING_MAX {
            drop(reply.send(Reply::Failed { reason: "too many requests are waiting".into() }));
        } else {
            self.waiting.push(reply);
        }
    }

    /// `baton certs list`: what there is. Written down by another thread, for there may be many.
    pub(crate) fn list(store: StoreView, reply: oneshot::Sender<Reply>) {
        tokio::task::spawn_blocking(move || {
            let facts = |entry: &Arc<Entry>| {
                protocol::CertificateFacts::of(entry.path(), &entry.certificate(), entry.problem().as_deref())
            };
            let certificates = store.entries().iter().map(facts).collect();
            // Who does not wait any more does not want to know.
            let _ = reply.send(Reply::Certificates(Box::new(protocol::Certificates { certificates })));
        });
    }

    /// Begins to look at what it is time for, if nothing is being looked at. `is_held`: what has been read for a reload goes first.
    pub(crate) fn look(&mut self, in_use: &InUse<'_>, is_held: bool, now: Instant) -> Vec<Said> {
        self.count(&in_use.store, now);
        if self.looking.is_some() || is_held {
            return Vec::new();
        }
        let outside = in_use.outside;
        let is_sync = !self.waiting.is_empty();
        if is_sync {
            self.watcher.all(outside, now);
        }
        let taken = match self.watcher.due().is_some_and(|due| due <= now) || is_sync {
            true => self.watcher.take(outside, now, is_sync),
            false => Vec::new(),
        };
        let directories = self.watcher.directories();
        let mut work: Vec<Work> = taken
            .into_iter()
            .filter_map(|(place, names)| Some(Work { directory: directories.get(place)?.clone(), names }))
            .collect();
        if is_sync {
            work.extend(look::unwatched(in_use.model, &directories, outside));
        }
        let mut said = self.of_directories();
        if work.is_empty() && !is_sync {
            return said;
        }
        let (store, outside) = (in_use.store.clone(), outside.view());
        let progress = outside.progress();
        let look = move || Box::new(look::look(&store, &outside, &work, is_sync));
        let waiting = std::mem::take(&mut self.waiting);
        match Apart::run(look) {
            Ok(task) => {
                let looking = Looking { task, waiting, since: now, progress, is_given_up: false };
                self.looking = Some(looking);
            }
            Err(error) => said.push(refuse_look(waiting, &format!("Certificates cannot be checked: {error}"))),
        }
        said
    }

    /// Gives up a look at files that is stuck; `awaited`: a reload waits for it to end, with this much patience. Its thread is abandoned: what it has read
    /// is not used, and no other look begins as long as it is there.
    pub(crate) fn give_up(&mut self, now: Instant, awaited: Option<Duration>) -> Vec<Said> {
        let is_under_way = |looking: &&mut Looking| !looking.is_given_up && !looking.task.is_finished();
        let Some(looking) = self.looking.as_mut().filter(is_under_way) else { return Vec::new() };
        let time = now.saturating_duration_since(looking.since);
        let Some(reason) = verdict(time, &looking.progress, now, awaited) else { return Vec::new() };
        looking.is_given_up = true;
        let waiting = std::mem::take(&mut looking.waiting);
        let text = format!("Certificates are not checked until this ends; those in use stay in use: {reason}");
        vec![refuse_look(waiting, &text)]
    }

    /// Begins to count which certificates end soon, when it is time for it.
    fn count(&mut self, store: &StoreView, now: Instant) {
        if self.counting.is_some() || self.census_at.is_none_or(|at| at > now) {
            return;
        }
        self.census_at = now.checked_add(CENSUS_EVERY);
        let store = store.clone();
        self.counting = Some(tokio::task::spawn_blocking(move || Census::of(&store, wall_seconds())));
    }

    fn counted(&mut self, counted: Result<Census, JoinError>, now: Instant) -> Vec<Said> {
        self.counting = None;
        match counted {
            Ok(census) => self.of_census(&census, now),
            Err(error) => vec![Said::Alert(format!("Certificates could not be counted: {error}"))],
        }
    }

    /// A look has ended that has found nothing, or that was given up before.
    fn looked_in_vain(&mut self, lost: Option<Lost>, outside: &Outside, now: Instant) -> Vec<Said> {
        self.looking = None;
        match lost {
            Some(error) => vec![Said::Alert(format!("Certificates could not be checked: {error}"))],
            // Its files can be read again: all of them, whatever was missed.
            None => {
                self.watcher.all(outside, now);
                Vec::new()
            }
        }
    }

    /// What a look has found is in use.
    pub(crate) fn looked(&mut self, looked: &CertificateFindings, report: &Report, now: Instant) -> Vec<Said> {
        let Some(Looking { waiting, since, .. }) = self.looking.take() else { return Vec::new() };
        let mut said: Vec<Said> = look::summary(report).map(Said::News).into_iter().collect();
        let good = report.added.iter().chain(&report.replaced).chain(&report.removed).chain(&looked.unchanged);
        good.for_each(|path| self.complaints.forget(path));
        let directories = self.watcher.directories();
        for problem in &report.refused {
            let place = directories.iter().position(|directory| problem.path.parent() == Some(directory));
            let name = problem.path.file_name();
            let is_awaited = waiting.is_empty() && self.complaints.waits(problem);
            if let (true, Some(place), Some(name)) = (is_awaited, place, name) {
                self.watcher.again(place, name, now);
            } else {
                said.extend(self.complaints.complain(problem, looked.serves(problem)).map(Said::Trouble));
            }
        }
        for problem in &looked.failed {
            said.extend(self.complaints.complain(problem, false).map(Said::Trouble));
        }
        if !waiting.is_empty() {
            self.census_at = Some(now);
        }
        let synced = protocol::Synced::of(report, &looked.failed, since.elapsed());
        for asker in waiting {
            // Who does not wait any more does not want to know.
            let _ = asker.send(Reply::Synced(synced.clone()));
        }
        said
    }

    /// Which certificates end soon: every day, and when it is not what was said last.
    fn of_census(&mut self, census: &Census, now: Instant) -> Vec<Said> {
        let is_new = *census != self.said;
        let is_day = self.said_at.is_none_or(|at| now.saturating_duration_since(at) >= CENSUS_EVERY / 2);
        if !is_new && !is_day {
            return Vec::new();
        }
        (self.said, self.said_at) = (census.clone(), Some(now));
        census.lines().into_iter().map(|(level, text)| Said::At(level, text)).collect()
    }

    fn of_directories(&mut self) -> Vec<Said> {
        let say = |notice: Notice| {
            let text = match notice {
                Notice::Gone(path, error) => format!(
                    "The watched certificate directory '{}' cannot be opened ({error}): its certificates stay in use, and \
                     opening it is retried every second.",
                    path.display()
                ),
                Notice::Back(path) => format!("The watched certificate directory '{}' is back.", path.display()),
                Notice::Untold(path, error) => format!(
                    "inotify is not available for '{}' ({error}): the directory is scanned every second. See \
                     fs.inotify.max_user_watches and max_user_instances.",
                    path.display()
                ),
            };
            Said::Trouble(text)
        };
        self.watcher.notices().into_iter().map(say).collect()
    }
}

/// Nothing is looked at: those who wait learn it, and it is said.
fn refuse_look(waiting: Vec<oneshot::Sender<Reply>>, reason: &str) -> Said {
    let text = format!("{reason}.");
    for asker in waiting {
        // Who does not wait any more does not want to know.
        let _ = asker.send(Reply::Failed { reason: text.clone() });
    }
    Said::Trouble(text)
}
