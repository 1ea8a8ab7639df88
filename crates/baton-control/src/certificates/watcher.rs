//! Watches the directories of `bind … crt DIRECTORY watch`, and says which names in them to look at.
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

use baton_kernel::notify::{self, Happened, Identity, Notifier, Watch};
use baton_model::{CrtSource, Model};

use super::batches::{Batches, LONGEST, Names};
use crate::environment::{LinkKind, Outside, Seen};

/// How often to look for what the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Symbolic links in a directory that are followed; the others are looked at when their own names change.
const LINKS_MAX: usize = 65_536;
/// Symbolic links that are looked at each time, by turns.
const LINKS_AT_ONCE: usize = 512;

/// Watches directories. Lives on the thread of the change line.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// `None` while nothing is watched, and where the system gives none.
    notifier: Option<Notifier>,
    places: Vec<Place>,
    batches: Batches,
    look_at: Instant,
    /// What there is to say to a human.
    notices: Vec<Notice>,
}

/// A watched directory.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// What it leads to; `None`: nothing at the moment.
    found: Option<Found>,
    links: BTreeMap<OsString, Option<Seen>>,
    /// The link that was looked at last.
    turn: OsString,
}

#[derive(Debug)]
struct Found {
    identity: Identity,
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

impl Watcher {
    /// Watches the directories of a configuration that was just read, and no others. What happened between the reading and
    /// now is looked for.
    pub(crate) fn apply(&mut self, model: &Model, outside: &Outside, now: Instant) {
        let wanted = directories(model, outside);
        if wanted.is_empty() {
            let notices = std::mem::take(&mut self.notices);
            *self = Watcher { notices, ..Watcher::default() };
            return;
        }
        if self.places.iter().map(|place| &place.path).eq(&wanted) {
            (0..self.places.len()).for_each(|place| self.batches.all(place, now));
            return;
        }
        self.batches.clear();
        // Watches of directories that are not wanted any more end with the old queue.
        self.notifier = None;
        self.places = wanted
            .into_iter()
            .map(|path| Place { path, found: None, links: BTreeMap::new(), turn: OsString::new() })
            .collect();
        match Notifier::new() {
            Ok(notifier) => self.notifier = Some(notifier),
            Err(error) => {
                let path = self.places[0].path.clone();
                self.notices.push(Notice::Untold(path, error.to_string()));
            }
        }
        for place in 0..self.places.len() {
            self.find(place, outside);
            self.batches.all(place, now);
        }
        self.look_at = now + LOOK_EVERY;
    }

    /// Whether anything is watched.
    pub(crate) fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// The directories, by number.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.path.clone()).collect()
    }

    /// Waits until the kernel tells something. May be abandoned and begun again.
    pub(crate) async fn next(&self) -> io::Result<Vec<Happened>> {
        match &self.notifier {
            Some(notifier) => notifier.next().await,
            None => pending().await,
        }
    }

    /// Notes what the kernel told.
    pub(crate) fn told(&mut self, told: io::Result<Vec<Happened>>, outside: &Outside, now: Instant) {
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
                Happened::Changed(watch, name) => self.named(watch, name, false, outside, now),
                Happened::Begun(watch, name) => self.named(watch, name, true, outside, now),
                Happened::Gone(watch) => {
                    self.of(watch).into_iter().for_each(|place| self.look_at_place(place, outside, now));
                }
                Happened::Lost => (0..self.places.len()).for_each(|place| self.batches.all(place, now)),
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
    pub(crate) fn take(&mut self, outside: &Outside, now: Instant, at_once: bool) -> Vec<(usize, Names)> {
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
        let has = |place: &Place| place.found.as_ref().is_some_and(|found| found.watch == Some(watch));
        (0..self.places.len()).filter(|place| has(&self.places[*place])).collect()
    }

    /// Whether the path leads to where it led before.
    fn look_at_place(&mut self, place: usize, outside: &Outside, now: Instant) {
        let before = self.places[place].found.as_ref().map(|found| found.identity);
        let found = outside.open_directory(&self.places[place].path);
        let identity = found.as_ref().ok().and_then(|open| Identity::of(open).ok());
        if identity == before {
            let is_untold = self.places[place].found.as_ref().is_some_and(|found| found.watch.is_none());
            if is_untold {
                self.batches.all(place, now);
            }
            return;
        }
        match found {
            Ok(_) => {
                self.find(place, outside);
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

    /// Watches what the path leads to now.
    fn find(&mut self, place: usize, outside: &Outside) {
        let path = self.places[place].path.clone();
        let open = match outside.open_directory(&path) {
            Ok(open) => open,
            Err(error) => return self.notices.push(Notice::Gone(path, error.to_string())),
        };
        let watch = match self.notifier.as_ref().map(|notifier| notifier.watch(&open)) {
            Some(Ok(watch)) => Some(watch),
            Some(Err(error)) => {
                self.notices.push(Notice::Untold(path, error.to_string()));
                None
            }
            None => None,
        };
        let links = notify::links_in(open.as_fd(), LINKS_MAX).unwrap_or_default();
        let place = &mut self.places[place];
        place.found = Identity::of(&open).ok().map(|identity| Found { identity, watch });
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
    let binds = model.proxies.iter().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.binds);
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
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    use baton_model::{Address, Bind, BindOptions, BindTls, Proxy, Role, Source};

    use super::*;

    /// A model that watches these directories.
    fn watching(paths: &[&Path]) -> Model {
        let source = |path: &&Path| CrtSource::Crt { path: path.to_path_buf(), default: false };
        let tls = BindTls { certificates: paths.iter().map(source).collect(), watch: true, ..BindTls::default() };
        let options = BindOptions { tls: Some(Arc::new(tls)), ..BindOptions::default() };
        let (address, source) = (Address::Fd(3), Source::default());
        let bind = Bind { address, name: None, id: None, options, source };
        let proxy = Proxy { binds: vec![bind], ..Proxy::new("web", Role::Frontend) };
        Model { proxies: vec![Arc::new(proxy)], ..Model::default() }
    }

    struct Desk {
        folder: tempfile::TempDir,
        outside: Outside,
        watcher: Watcher,
    }

    impl Desk {
        /// Watches `certs`, and has looked at all of it once.
        fn new(make: impl Fn(&Path)) -> Desk {
            let folder = tempfile::tempdir().unwrap();
            make(folder.path());
            let outside = Outside::new(folder.path().to_owned(), None).unwrap();
            let mut watcher = Watcher::default();
            watcher.apply(&watching(&[Path::new("certs")]), &outside, Instant::now());
            let due = watcher.due().unwrap();
            assert_eq!(watcher.take(&outside, due, false), [(0, Names::All)]);
            Desk { folder, outside, watcher }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// What is to be looked at after the kernel has told something.
        async fn told(&mut self) -> Vec<(usize, Names)> {
            let told = tokio::time::timeout(Duration::from_secs(5), self.watcher.next()).await.expect("an event");
            self.watcher.told(told, &self.outside, Instant::now());
            self.take(Duration::from_millis(300))
        }

        /// The same, after so much time and no event.
        fn take(&mut self, after: Duration) -> Vec<(usize, Names)> {
            self.watcher.take(&self.outside, Instant::now() + after, false)
        }
    }

    fn these(names: &[&str]) -> Vec<(usize, Names)> {
        vec![(0, Names::These(names.iter().map(OsString::from).collect::<BTreeSet<_>>()))]
    }

    fn plain(folder: &Path) {
        fs::create_dir(folder.join("certs")).unwrap();
    }

    #[tokio::test]
    async fn files_are_looked_at_when_they_are_whole() {
        let mut desk = Desk::new(plain);
        let mut file = fs::File::create(desk.path("certs/a.pem")).unwrap();
        assert_eq!(desk.told().await, [], "it is being written");
        std::io::Write::write_all(&mut file, b"x").unwrap();
        drop(file);
        assert_eq!(desk.told().await, these(&["a.pem"]));
        fs::rename(desk.path("certs/a.pem"), desk.path("certs/b.pem")).unwrap();
        assert_eq!(desk.told().await, these(&["a.pem", "b.pem"]));
        fs::hard_link(desk.path("certs/b.pem"), desk.path("certs/c.pem")).unwrap();
        assert_eq!(desk.told().await, these(&["c.pem"]));
        fs::remove_file(desk.path("certs/c.pem")).unwrap();
        assert_eq!(desk.told().await, these(&["c.pem"]));
        fs::create_dir(desk.path("certs/sub")).unwrap();
        assert_eq!(desk.told().await, []);
    }

    #[tokio::test]
    async fn what_links_lead_to_is_looked_at_every_second() {
        let mut desk = Desk::new(|folder| {
            plain(folder);
            fs::write(folder.join("one.pem"), "1").unwrap();
            symlink("../one.pem", folder.join("certs/a.pem")).unwrap();
        });
        assert_eq!(desk.take(LOOK_EVERY * 2), []);
        fs::write(desk.path("one.pem"), "another").unwrap();
        desk.take(LOOK_EVERY * 4);
        assert_eq!(desk.take(LOOK_EVERY * 5), these(&["a.pem"]));
        fs::write(desk.path("two.pem"), "2").unwrap();
        symlink("../two.pem", desk.path("certs/new")).unwrap();
        assert_eq!(desk.told().await, these(&["new"]), "a link is whole at once");
        fs::rename(desk.path("certs/new"), desk.path("certs/a.pem")).unwrap();
        assert_eq!(desk.told().await, these(&["a.pem", "new"]));
    }

    #[tokio::test]
    async fn a_link_to_a_directory_that_is_changed_is_everything() {
        let mut desk = Desk::new(|folder| {
            plain(folder);
            fs::create_dir(folder.join("certs/..1")).unwrap();
            fs::write(folder.join("certs/..1/a.pem"), "1").unwrap();
            symlink("..1", folder.join("certs/..data")).unwrap();
            symlink("..data/a.pem", folder.join("certs/a.pem")).unwrap();
        });
        fs::create_dir(desk.path("certs/..2")).unwrap();
        assert_eq!(desk.told().await, []);
        symlink("..2", desk.path("certs/..data_tmp")).unwrap();
        fs::rename(desk.path("certs/..data_tmp"), desk.path("certs/..data")).unwrap();
        assert_eq!(desk.told().await, [(0, Names::All)]);
    }

    #[tokio::test]
    async fn a_directory_that_is_gone_takes_nothing_with_it() {
        let mut desk = Desk::new(|folder| {
            plain(folder);
            fs::write(folder.join("certs/a.pem"), "1").unwrap();
        });
        fs::rename(desk.path("certs"), desk.path("away")).unwrap();
        assert_eq!(desk.told().await, []);
        let path = PathBuf::from("certs");
        assert!(matches!(&desk.watcher.notices()[..], [Notice::Gone(gone, _)] if *gone == path));
        assert_eq!(desk.take(LOOK_EVERY * 2), []);
        assert_eq!(desk.watcher.notices(), [], "it is said once");
        fs::create_dir(desk.path("certs")).unwrap();
        desk.take(LOOK_EVERY * 4);
        assert_eq!(desk.watcher.notices(), [Notice::Back(path)]);
        assert_eq!(desk.take(LOOK_EVERY * 5), [(0, Names::All)]);
        fs::write(desk.path("certs/b.pem"), "1").unwrap();
        assert_eq!(desk.told().await, these(&["b.pem"]), "the new one is watched");
    }

    #[tokio::test]
    async fn a_directory_behind_a_link_may_be_exchanged() {
        let mut desk = Desk::new(|folder| {
            fs::create_dir(folder.join("one")).unwrap();
            fs::create_dir(folder.join("two")).unwrap();
            symlink("one", folder.join("certs")).unwrap();
        });
        symlink("two", desk.path("new")).unwrap();
        fs::rename(desk.path("new"), desk.path("certs")).unwrap();
        desk.take(LOOK_EVERY * 2);
        assert_eq!(desk.take(LOOK_EVERY * 3), [(0, Names::All)]);
        fs::write(desk.path("two/a.pem"), "1").unwrap();
        assert_eq!(desk.told().await, these(&["a.pem"]));
    }
}
