//! Watches the directories of `bind … crt DIRECTORY watch`, and says which names in them to look at.
//!
//! Watching [begins](Upcoming::begin) before the files of a configuration are read, and is listened to when it is in use: so
//! what changed in the meantime is told like everything else, and nothing has to be compared.
//!
//! The kernel tells of files; what it does not tell of is looked for [every second](LOOK_EVERY), at a cost that does not grow
//! with the number of certificates: whether the directory's path leads to another directory by now (removed and made again,
//! or a symbolic link that was changed), and whether what symbolic links in it lead to is another file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_kernel::notify::{self, DirectoryIdentity, FileEvent, InotifyQueue, Notifier, Watch};
use baton_model::{CrtSource, Model};

use super::batches::{Batches, LONGEST, Names};
use crate::environment::{FileState, LinkKind, Outside};

/// How often to look for what the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Symbolic links in a directory that are followed; the others are looked at when their own names change.
const LINKS_MAX: usize = 65_536;
/// Symbolic links that are looked at each time, by turns.
const LINKS_AT_ONCE: usize = 512;

/// Watches directories. Lives on the thread of the change path.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// `None` while nothing is watched, and where the system gives none.
    notifier: Option<Notifier>,
    places: Vec<WatchedDirectory>,
    batches: Batches,
    look_at: Instant,
    /// What there is to say to a human.
    notices: Vec<Notice>,
}

/// A watched directory.
#[derive(Debug)]
struct WatchedDirectory {
    path: PathBuf,
    /// What it leads to; `None`: nothing at the moment.
    found: Option<DirectoryWatch>,
    links: BTreeMap<OsString, Option<FileState>>,
    /// The link that was looked at last.
    turn: OsString,
}

#[derive(Debug)]
struct DirectoryWatch {
    identity: DirectoryIdentity,
    /// `None`: the kernel does not tell of it, all of it is looked at every second.
    watch: Option<Watch>,
}

/// Something to say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Notice {
    /// The directory is gone.
    Gone(PathBuf, String),
    /// It is back.
    Back(PathBuf),
    /// The kernel does not tell of it.
    Untold(PathBuf, String),
}

impl Default for Watcher {
    fn default() -> Watcher {
        Watcher {
            notifier: None,
            places: Vec::new(),
            batches: Batches::default(),
            look_at: Instant::now(),
            notices: Vec::new(),
        }
    }
}

/// What is watched for a configuration that is not in use yet. The kernel remembers what happens.
#[derive(Debug, Default)]
pub(crate) struct Upcoming {
    watcher: Watcher,
    queue: Option<InotifyQueue>,
}

impl Upcoming {
    /// Watches the directories of a configuration of which no certificate was read yet. May take some ten milliseconds, so it
    /// belongs on a thread of its own.
    pub(crate) fn begin(model: &Model, outside: &Outside, now: Instant) -> Upcoming {
        let places: Vec<WatchedDirectory> = directories(model, outside)
            .into_iter()
            .map(|path| WatchedDirectory { path, found: None, links: BTreeMap::new(), turn: OsString::new() })
            .collect();
        if places.is_empty() {
            return Upcoming::default();
        }
        let mut watcher = Watcher { places, look_at: now + LOOK_EVERY, ..Watcher::default() };
        let queue = match InotifyQueue::new() {
            Ok(queue) => Some(queue),
            Err(error) => {
                let path = watcher.places[0].path.clone();
                watcher.notices.push(Notice::Untold(path, error.to_string()));
                None
            }
        };
        (0..watcher.places.len()).for_each(|place| watcher.find(place, queue.as_ref(), outside));
        Upcoming { watcher, queue }
    }

    /// The configuration is in use: what has happened since, and what happens from now on, is looked at. Within a tokio
    /// runtime.
    pub(crate) fn listen(self, outside: &Outside, now: Instant) -> Watcher {
        let Upcoming { mut watcher, queue } = self;
        match queue.map(Notifier::new) {
            Some(Ok(notifier)) => watcher.notifier = Some(notifier),
            Some(Err(error)) => watcher.told(Err(error), outside, now),
            None => {}
        }
        for place in 0..watcher.places.len() {
            if watcher.is_untold(place) {
                watcher.batches.all(place, now);
            }
        }
        watcher
    }
}

impl Watcher {
    /// Whether anything is watched.
    pub(crate) fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// The directories, by number.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.path.clone()).collect()
    }

    /// Waits until the kernel tells something. May be abandoned and begun again.
    pub(crate) async fn next(&self) -> io::Result<Vec<FileEvent>> {
        match &self.notifier {
            Some(notifier) => notifier.next().await,
            None => pending().await,
        }
    }

    /// Notes what the kernel told.
    pub(crate) fn told(&mut self, told: io::Result<Vec<FileEvent>>, outside: &Outside, now: Instant) {
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                // What is left is looking every second.
                self.notifier = None;
                for place in &mut self.places {
                    if let Some(found) = &mut place.found {
                        found.watch = None;
                    }
                }
                let path = self.places.first().map(|place| place.path.clone()).unwrap_or_default();
                self.notices.push(Notice::Untold(path, error.to_string()));
                return;
            }
        };
        for happened in told {
            match happened {
                FileEvent::Changed(watch, name) => self.named(watch, name, false, outside, now),
                FileEvent::Begun(watch, name) => self.named(watch, name, true, outside, now),
                FileEvent::Gone(watch) => {
                    self.of(watch).into_iter().for_each(|place| self.look_at_place(place, outside, now));
                }
                FileEvent::Lost => (0..self.places.len()).for_each(|place| self.batches.all(place, now)),
            }
        }
    }

    /// A name was told of; `is_begun`: it is new, and may be written still.
    fn named(&mut self, watch: Watch, name: OsString, is_begun: bool, outside: &Outside, now: Instant) {
        for place in self.of(watch) {
            let path = self.places[place].path.join(&name);
            match outside.link_kind(&path) {
                // As Kubernetes does: all files of the directory lead through this link.
                LinkKind::LinkToDirectory => self.batches.all(place, now),
                LinkKind::Link => {
                    self.follow(place, &name, outside);
                    self.batches.changed(place, name.clone(), now);
                }
                LinkKind::Directory => {}
                LinkKind::File { is_linked: false } if is_begun => self.batches.later(place, name.clone(), now),
                LinkKind::File { .. } | LinkKind::Nothing => self.batches.changed(place, name.clone(), now),
            }
        }
    }

    /// Looks at a name once more: it was refused.
    pub(crate) fn again(&mut self, place: usize, name: &OsStr, now: Instant) {
        if place < self.places.len() {
            self.batches.later(place, name.to_owned(), now);
        }
    }

    /// Looks at everything, now.
    pub(crate) fn all(&mut self, outside: &Outside, now: Instant) {
        for place in 0..self.places.len() {
            self.look_at_place(place, outside, now);
            self.batches.all(place, now);
        }
    }

    /// When there is something to do without an event.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.is_idle()).then(|| self.batches.due().map_or(self.look_at, |due| due.min(self.look_at)))
    }

    /// What to look at now, by number of the directory; with `at_once` also what could wait a little.
    pub(super) fn take(&mut self, outside: &Outside, now: Instant, at_once: bool) -> Vec<(usize, Names)> {
        if !self.is_idle() && now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            for place in 0..self.places.len() {
                self.look_at_place(place, outside, now);
                self.look_at_links(place, outside, now);
            }
        }
        // Of a directory that is not there nothing is looked at: nothing is removed with it.
        let mut taken = self.batches.take(if at_once { now + LONGEST } else { now });
        taken.retain(|(place, _)| self.places[*place].found.is_some());
        taken
    }

    /// What there is to say since the last time.
    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Directories with this watch: the same one may be known by several paths.
    fn of(&self, watch: Watch) -> Vec<usize> {
        let has = |place: &WatchedDirectory| place.found.as_ref().is_some_and(|found| found.watch == Some(watch));
        (0..self.places.len()).filter(|place| has(&self.places[*place])).collect()
    }

    /// Whether the path leads to where it led before.
    fn look_at_place(&mut self, place: usize, outside: &Outside, now: Instant) {
        let before = self.places[place].found.as_ref().map(|found| found.identity);
        let found = outside.open_directory(&self.places[place].path);
        let identity = found.as_ref().ok().and_then(|open| DirectoryIdentity::of(open).ok());
        if identity == before {
            if self.is_untold(place) {
                self.batches.all(place, now);
            }
            return;
        }
        match found {
            Ok(_) => {
                let notifier = self.notifier.take();
                self.find(place, notifier.as_ref().map(Notifier::queue), outside);
                self.notifier = notifier;
                self.batches.all(place, now);
                if before.is_none() {
                    self.notices.push(Notice::Back(self.places[place].path.clone()));
                }
            }
            Err(error) => {
                self.places[place].found = None;
                self.notices.push(Notice::Gone(self.places[place].path.clone(), error.to_string()));
            }
        }
    }

    /// Whether the kernel does not tell of a directory that is there.
    fn is_untold(&self, place: usize) -> bool {
        self.places[place].found.as_ref().is_some_and(|found| found.watch.is_none())
    }

    /// Watches what the path leads to now.
    fn find(&mut self, place: usize, queue: Option<&InotifyQueue>, outside: &Outside) {
        let path = self.places[place].path.clone();
        let open = match outside.open_directory(&path) {
            Ok(open) => open,
            Err(error) => return self.notices.push(Notice::Gone(path, error.to_string())),
        };
        let watch = match queue.map(|queue| queue.watch(&open)) {
            Some(Ok(watch)) => Some(watch),
            Some(Err(error)) => {
                self.notices.push(Notice::Untold(path, error.to_string()));
                None
            }
            None => None,
        };
        let links = notify::links_in(open.as_fd(), LINKS_MAX).unwrap_or_default();
        let place = &mut self.places[place];
        place.found = DirectoryIdentity::of(&open).ok().map(|identity| DirectoryWatch { identity, watch });
        let seen = |name: OsString| {
            let seen = outside.seen(&place.path.join(&name));
            (name, seen)
        };
        place.links = links.into_iter().map(seen).collect();
    }

    /// A link is new, or leads elsewhere.
    fn follow(&mut self, place: usize, name: &OsStr, outside: &Outside) {
        let place = &mut self.places[place];
        let seen = outside.seen(&place.path.join(name));
        if place.links.contains_key(name) || place.links.len() < LINKS_MAX {
            place.links.insert(name.to_owned(), seen);
        }
    }

    /// Whether links lead to other files, or to changed ones.
    fn look_at_links(&mut self, number: usize, outside: &Outside, now: Instant) {
        let place = &mut self.places[number];
        let after = place.links.range::<OsStr, _>((Bound::Excluded(&*place.turn), Bound::Unbounded));
        let from_the_start = place.links.range::<OsStr, _>((Bound::Unbounded, Bound::Included(&*place.turn)));
        let some: Vec<OsString> =
            after.chain(from_the_start).map(|(name, _)| name.clone()).take(LINKS_AT_ONCE).collect();
        place.turn = some.last().cloned().unwrap_or_default();
        for name in some {
            let seen = outside.seen(&place.path.join(&name));
            if place.links.get(&name) == Some(&seen) {
                continue;
            }
            self.batches.changed(number, name.clone(), now);
            match seen {
                Some(_) => drop(place.links.insert(name, seen)),
                None => drop(place.links.remove(&name)),
            }
        }
    }
}

/// The directories that a configuration has watched, each once, in its order.
fn directories(model: &Model, outside: &Outside) -> Vec<PathBuf> {
    let binds = model.with_peers().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.binds);
    let watching = binds.filter_map(|bind| bind.options.tls.as_ref()).filter(|tls| tls.watch);
    let mut all: Vec<PathBuf> = Vec::new();
    for source in watching.flat_map(|tls| &tls.certificates) {
        if let CrtSource::Crt { path, .. } = source
            && !all.contains(path)
            && !path.as_os_str().as_encoded_bytes().starts_with(b"@")
            && !outside.is_file(path)
        {
            all.push(path.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests;
