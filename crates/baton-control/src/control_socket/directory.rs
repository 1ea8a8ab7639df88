//! Directories of socket files: which there are, making them, and whether what lies in them can be believed.
//!
//! | who starts Baton | directory, the first that can be had |
//! |---|---|
//! | root | `/run/baton-control` (0755), `$RUNTIME_DIRECTORY/control`, `/tmp/baton-0` (0700) |
//! | others | `$RUNTIME_DIRECTORY/control`, `$XDG_RUNTIME_DIR/baton`, `/run/user/UID/baton`, `/tmp/baton-UID` (0700) |
//!
//! `$BATON_RUN_DIR/control` takes the place of all of them. `/run/baton` is not root's: systemd gives it to the service's user, and
//! removes it when the service stops; that user's processes are in `/run/baton/control`.
//!
//! A directory is used when it is one (no symbolic link), belongs to this user, and nobody else may write there. It stays open while
//! it is used, so that nothing can be put in its place.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::find;

/// Root's.
const ROOTS: &str = "/run/baton-control";
/// The packaged service's.
const SERVICES: &str = "/run/baton/control";
/// The variable that names another one.
const RUN_VARIABLE: &str = "BATON_RUN_DIR";
/// How socket files end.
const SUFFIX: &str = ".sock";
/// How they end until somebody listens.
const FRESH: &str = ".new";
/// Rights of a directory that others look into, and of one that they do not.
const OPEN: u32 = 0o755;
/// Rights of a directory that others do not look into.
const CLOSED: u32 = 0o700;
/// Rights of a socket file: everybody may connect, and is told whether that helps.
const SOCKET_MODE: Mode = Mode::from_bits_truncate(0o666);
/// Who else must not write to a directory.
const OTHERS_WRITE: u32 = 0o022;
/// Files of a directory that are looked at.
const FILES_MAX: usize = 4096;

/// A directory whose files can be believed.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    opened: File,
    /// Whose it is, and so whose the processes in it are, or root's.
    pub owner: u32,
}

/// A socket file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// PID of the process, in its own PID namespace.
    pub pid: u32,
    /// The kernel's number of its network namespace; 0 where the kernel has none.
    pub netns: u64,
}

/// A directory that may be there.
struct Candidate {
    path: PathBuf,
    mode: u32,
}

/// The directories for this process's own socket, the best one first; each is made when it is looked at.
pub fn own() -> impl Iterator<Item = Directory> {
    let uid = geteuid().as_raw();
    candidates(uid).into_iter().filter_map(move |candidate| candidate.make(uid).ok())
}

/// The directories in which processes are looked for that this user believes: his own, root's, and for root the service's.
pub fn all() -> Vec<Directory> {
    let uid = geteuid().as_raw();
    let mut paths: Vec<PathBuf> = candidates(uid).into_iter().map(|candidate| candidate.path).collect();
    if std::env::var_os(RUN_VARIABLE).is_none() {
        paths.extend([ROOTS, SERVICES].map(PathBuf::from));
    }
    paths.dedup();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        if seen.contains(&path) {
            continue;
        }
        if let Ok(directory) = Directory::open(&path) {
            // Who may make a directory right under /run was let to by root.
            let is_services = uid == 0 && path == Path::new(SERVICES);
            if directory.owner == uid || directory.owner == 0 || is_services {
                found.push(directory);
            }
        }
        seen.push(path);
    }
    found
}

fn candidates(uid: u32) -> Vec<Candidate> {
    let outer = if uid == 0 { OPEN } else { CLOSED };
    if let Some(named) = std::env::var_os(RUN_VARIABLE).filter(|named| !named.is_empty()) {
        return vec![Candidate { path: Path::new(&named).join("control"), mode: outer }];
    }
    let variable = |name: &str, child: &str| {
        let value = std::env::var_os(name).unwrap_or_default();
        // systemd separates several by colons.
        let first = value.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
        let path = Path::new(OsStr::from_bytes(first));
        path.is_absolute().then(|| Candidate { path: path.join(child), mode: outer })
    };
    let mut all = Vec::new();
    if uid == 0 {
        all.push(Candidate { path: ROOTS.into(), mode: OPEN });
    }
    all.extend(variable("RUNTIME_DIRECTORY", "control"));
    if uid != 0 {
        all.extend(variable("XDG_RUNTIME_DIR", "baton"));
        all.push(Candidate { path: format!("/run/user/{uid}/baton").into(), mode: CLOSED });
    }
    all.push(Candidate { path: format!("/tmp/baton-{uid}").into(), mode: CLOSED });
    all
}

impl Candidate {
    /// Opens it, and makes it where it is not there.
    fn make(&self, uid: u32) -> io::Result<Directory> {
        let is_new = match DirBuilder::new().mode(CLOSED).create(&self.path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let directory = Directory::open(&self.path)?;
        if directory.owner != uid {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        if is_new {
            directory.opened.set_permissions(fs::Permissions::from_mode(self.mode))?;
        }
        Ok(directory)
    }
}

impl Directory {
    /// Opens one that nobody but its owner may write to.
    ///
    /// # Errors
    /// `PermissionDenied` when others may, and the system's, also for a symbolic link.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        let found = opened.metadata()?;
        match found.mode() & OTHERS_WRITE {
            0 => Ok(Directory { path: path.to_owned(), opened, owner: found.uid() }),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// The socket files in it.
    pub fn entries(&self) -> Vec<Entry> {
        let Ok(files) = fs::read_dir(self.place()) else { return Vec::new() };
        let name = |file: io::Result<fs::DirEntry>| file.ok()?.file_name().into_string().ok();
        files.take(FILES_MAX).filter_map(name).filter_map(Entry::named).collect()
    }

    /// How a file in it is reached: through the directory that is open, whatever is at its path by now.
    pub fn at(&self, name: &str) -> PathBuf {
        self.place().join(name)
    }

    fn place(&self) -> PathBuf {
        let opened = PathBuf::from(format!("/proc/self/fd/{}", self.opened.as_raw_fd()));
        // Without /proc by its name.
        if opened.exists() { opened } else { self.path.clone() }
    }

    /// Listens in it: the file has its name only once somebody listens there, so that one where nobody does is a dead one.
    pub(super) fn listen(&self, name: &str) -> io::Result<(UnixListener, PathBuf)> {
        let (fresh, name) = (format!("{name}{FRESH}"), format!("{name}{SUFFIX}"));
        let listener = UnixListener::bind_addr(&SocketAddr::from_pathname(self.at(&fresh))?)?;
        let set = || {
            listener.set_nonblocking(true)?;
            fchmodat(&self.opened, fresh.as_str(), SOCKET_MODE, FchmodatFlags::FollowSymlink)?;
            renameat(&self.opened, fresh.as_str(), &self.opened, name.as_str())?;
            Ok::<_, io::Error>(())
        };
        if let Err(error) = set() {
            let _ = unlinkat(&self.opened, fresh.as_str(), UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        Ok((listener, self.path.join(name)))
    }

    /// Removes the files of processes that are gone.
    pub(super) fn sweep(&self) {
        for entry in self.entries() {
            if find::is_dead(&self.at(&entry.name)) {
                let _ = unlinkat(&self.opened, entry.name.as_str(), UnlinkatFlags::NoRemoveDir);
            }
        }
    }
}

impl Entry {
    /// `PID-NETNS-ID.sock`.
    fn named(name: String) -> Option<Entry> {
        let mut parts = name.strip_suffix(SUFFIX)?.splitn(3, '-');
        let (pid, netns) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next()?;
        Some(Entry { name, pid, netns })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_say_which_process_it_is() {
        let check = |name: &str, expect: Option<(u32, u64)>| {
            assert_eq!(Entry::named(name.into()).map(|entry| (entry.pid, entry.netns)), expect, "{name}");
        };
        check("12-7-00ff.sock", Some((12, 7)));
        check("12-7-00ff.new", None);
        check("12-7.sock", None);
        check("-1-7-x.sock", None);
        check("x.sock", None);
    }

    #[test]
    fn a_directory_of_others_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let uid = geteuid().as_raw();
        let make = |name: &str| Candidate { path: folder.path().join(name), mode: OPEN }.make(uid);
        let good = make("good").unwrap();
        assert_eq!(good.opened.metadata().unwrap().mode() & 0o777, OPEN);
        assert!(make("good").is_ok(), "it is there already");
        symlink(folder.path().join("good"), folder.path().join("link")).unwrap();
        assert!(make("link").is_err(), "a symbolic link");
        fs::create_dir(folder.path().join("wide")).unwrap();
        fs::set_permissions(folder.path().join("wide"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make("wide").is_err(), "others may write");
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(make("file").is_err(), "no directory");
        assert!(make("deep/er").is_err(), "its parent is not made");
        if uid == 0 {
            std::os::unix::fs::chown(folder.path().join("good"), Some(65534), None).unwrap();
            assert!(make("good").is_err(), "somebody else's");
        }
    }

    #[test]
    fn dead_sockets_are_swept_and_living_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let (dead, _) = directory.listen("7-0-dead").unwrap();
        let (alive, path) = directory.listen("8-0-alive").unwrap();
        assert_eq!(path, folder.path().join("8-0-alive.sock"));
        drop(dead);
        fs::write(folder.path().join("9-0-file.sock"), "somebody's").unwrap();
        directory.sweep();
        let mut left: Vec<u32> = directory.entries().into_iter().map(|entry| entry.pid).collect();
        left.sort_unstable();
        assert_eq!(left, [8], "a file that is no socket is of no use either");
        drop(alive);
    }
}
