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

struct WatcherDriver {
    folder: tempfile::TempDir,
    outside: Outside,
    watcher: Watcher,
}

impl WatcherDriver {
    /// Watches `certs`.
    fn new(make: impl Fn(&Path)) -> WatcherDriver {
        WatcherDriver::meanwhile(make, |_| ())
    }

    /// Watches `certs`; something happens before it is listened to.
    fn meanwhile(make: impl Fn(&Path), then: impl Fn(&Path)) -> WatcherDriver {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path());
        let outside = Outside::new(folder.path().to_owned(), None).unwrap();
        let upcoming = Upcoming::begin(&watching(&[Path::new("certs")]), &outside, Instant::now());
        then(folder.path());
        let mut watcher = upcoming.listen(&outside, Instant::now());
        assert_eq!(watcher.take(&outside, Instant::now(), true), [], "nothing has to be compared");
        WatcherDriver { folder, outside, watcher }
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

    /// What is to be read after so much time and no event.
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
    let mut desk = WatcherDriver::new(plain);
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
async fn what_happens_while_files_are_read_is_told() {
    let make = |folder: &Path| {
        plain(folder);
        fs::write(folder.join("one.pem"), "1").unwrap();
        symlink("../one.pem", folder.join("certs/link.pem")).unwrap();
    };
    let mut desk = WatcherDriver::meanwhile(make, |folder| {
        fs::write(folder.join("certs/a.pem"), "1").unwrap();
        fs::write(folder.join("one.pem"), "another").unwrap();
    });
    assert_eq!(desk.told().await, these(&["a.pem"]));
    desk.take(LOOK_EVERY * 2);
    assert_eq!(desk.take(LOOK_EVERY * 3), these(&["link.pem"]));
    // Another directory under the same name is another one, and all of it is looked at.
    let mut desk = WatcherDriver::meanwhile(plain, |folder| {
        fs::rename(folder.join("certs"), folder.join("away")).unwrap();
        plain(folder);
    });
    assert_eq!(desk.told().await, [(0, Names::All)]);
}

#[tokio::test]
async fn what_links_lead_to_is_looked_at_every_second() {
    let mut desk = WatcherDriver::new(|folder| {
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
    let mut desk = WatcherDriver::new(|folder| {
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
    let mut desk = WatcherDriver::new(|folder| {
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
    let mut desk = WatcherDriver::new(|folder| {
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
