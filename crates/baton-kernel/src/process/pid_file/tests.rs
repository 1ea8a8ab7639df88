use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A directory, its names and what is read under each.
struct PidDirectory(tempfile::TempDir);

impl PidDirectory {
    fn new() -> PidDirectory {
        PidDirectory(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(self.0.path()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

fn written(path: &Path, pids: &[i32]) {
    let mut file = PidFile::open(path).unwrap();
    file.write(pids).unwrap();
    file.keep();
}

#[test]
fn the_last_write_is_the_content() {
    let folder = PidDirectory::new();
    let path = folder.write("x.pid", "99999999\nold\n");
    let mut file = PidFile::open(&path).unwrap();
    assert_eq!(folder.read("x.pid"), "99999999\nold\n", "opening changes nothing");
    file.write(&[12, 345]).unwrap();
    assert_eq!(folder.read("x.pid"), "12\n345\n");
    file.write(&[7]).unwrap();
    assert_eq!(folder.read("x.pid"), "7\n");
    file.keep();
    assert_eq!((folder.read("x.pid"), folder.names()), ("7\n".into(), vec!["x.pid".into()]));
    assert!(PidFile::open(&folder.at("no/such/x.pid")).is_err());
    assert!(PidFile::open(folder.0.path()).is_err(), "a directory");
}

#[test]
fn what_comes_to_nothing_leaves_the_old_content() {
    let folder = PidDirectory::new();
    for old in ["12\n", "123456\n7\n", ""] {
        let mut file = PidFile::open(&folder.write("x.pid", old)).unwrap();
        file.write(&[345]).unwrap();
        file.write(&[6]).unwrap();
        drop(file);
        assert_eq!((folder.read("x.pid"), folder.names()), (old.into(), vec!["x.pid".into()]));
    }
    drop(PidFile::open(&folder.at("y.pid")).unwrap());
    let mut file = PidFile::open(&folder.at("y.pid")).unwrap();
    file.write(&[345]).unwrap();
    drop(file);
    assert_eq!(folder.names(), ["x.pid"], "nothing was there before");
}

#[test]
fn other_names_of_a_file_keep_its_content() {
    let folder = PidDirectory::new();
    let precious = folder.write("precious", "precious");
    fs::hard_link(&precious, folder.at("x.pid")).unwrap();
    written(&folder.at("x.pid"), &[7]);
    assert_eq!((folder.read("precious"), folder.read("x.pid")), ("precious".into(), "7\n".into()));
}

#[test]
fn a_link_is_followed_where_nobody_else_could_have_made_it() {
    let folder = PidDirectory::new();
    let precious = folder.write("precious", "precious");
    symlink(&precious, folder.at("x.pid")).unwrap();
    fs::set_permissions(folder.0.path(), PermissionsExt::from_mode(0o777)).unwrap();
    written(&folder.at("x.pid"), &[7]);
    assert_eq!((folder.read("precious"), folder.read("x.pid")), ("precious".into(), "7\n".into()));
    assert!(fs::symlink_metadata(folder.at("x.pid")).unwrap().is_file(), "it stands in the link's place");

    fs::set_permissions(folder.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("precious", folder.at("y.pid")).unwrap();
    written(&folder.at("y.pid"), &[8]);
    assert_eq!(folder.read("precious"), "8\n");
    assert!(fs::symlink_metadata(folder.at("y.pid")).unwrap().is_symlink());
    symlink("loop.pid", folder.at("loop.pid")).unwrap();
    assert!(PidFile::open(&folder.at("loop.pid")).is_err());

    if geteuid().is_root() {
        // A link of somebody else, where he cannot replace ours but can make his.
        fs::set_permissions(folder.0.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        symlink(&precious, folder.at("z.pid")).unwrap();
        std::os::unix::fs::lchown(folder.at("z.pid"), Some(61234), Some(61234)).unwrap();
        written(&folder.at("z.pid"), &[9]);
        assert_eq!((folder.read("precious"), folder.read("z.pid")), ("8\n".into(), "9\n".into()));
    } else {
        eprintln!("SKIPPED: needs root to make a link of somebody else");
    }
}

#[test]
fn what_stands_beside_is_not_written_to() {
    let folder = PidDirectory::new();
    let precious = folder.write("precious", "precious");
    let aside = format!(".x.pid.{}-0", std::process::id());
    symlink(&precious, folder.at(&aside)).unwrap();
    written(&folder.at("x.pid"), &[7]);
    assert_eq!((folder.read("precious"), folder.read("x.pid")), ("precious".into(), "7\n".into()));
}

#[test]
fn devices_and_pipes_are_written_to_as_they_are() {
    let mut full = PidFile::open(Path::new("/dev/full")).unwrap();
    assert_eq!(full.write(&[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    PidFile::open(Path::new("/dev/null")).unwrap().write(&[1]).unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device(), "it is there still");

    let folder = PidDirectory::new();
    let path = folder.at("x.pid");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert!(PidFile::open(&path).is_err(), "nobody reads: it is not waited for");
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    written(&path, &[12]);
    let mut text = [0; 3];
    reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"12\n");
    // As `/dev/stdout` is.
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    written(Path::new(&format!("/proc/self/fd/{number}")), &[34]);
    reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"34\n");
}
