//! What outlives a process: small files in a folder under `/run`, and locks of the same names.
//!
//! A file is replaced as a whole, so that a reader never sees half of one. A lock is flock(2) on a file of its own: it ends with
//! the last process that has it open, however that ends, and so tells the living from the dead. Network namespaces have
//! folders of their own, because the same address is another one there. The folder stays open: who gives up root or the root of
//! the file system (chroot(2)) later still finds it, where it was given to him. No link in it is followed, so that its owner leads
//! nobody elsewhere.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat, major, minor};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::KernelError;

/// The variable that names another folder than the one asked for.
const RUN_VARIABLE: &str = "BATON_RUN_DIR";
/// Bytes of a file at most; ours have some hundred.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often a lock is tried again whose file was removed meanwhile.
const LOCK_TRIES: usize = 100;
/// Rights of a lock's file: whoever can open one can hold it, and so keep others waiting.
const LOCK_MODE: u32 = 0o600;
/// Rights of other files, which anybody may read.
const FILE_MODE: u32 = 0o644;
/// Holds and flips of a machine at most.
const NAMES_MAX: usize = 10_000;

/// How often a lock is looked at that is waited for with a limit.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// The kernel's name of the time since it was booted.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where something was written down: in which boot, and in which network namespace. The number by which a folder is named is
/// given to another namespace when the first one is gone; this one never is. Objects of the kernel go with their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    boot: String,
    /// `None` where the kernel does not tell (`SO_NETNS_COOKIE`, Linux 5.14).
    netns: Option<u64>,
}

impl NamespaceId {
    /// This boot, and the network namespace of this thread.
    pub fn here() -> NamespaceId {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        NamespaceId { boot, netns: crate::listen::netns_here() }
    }
}

/// The folder of this network namespace.
#[derive(Clone, Debug)]
pub struct State {
    /// `None` where there is none, and nobody wanted one.
    folder: Option<Arc<File>>,
    /// Where it was when it was opened, for messages.
    path: PathBuf,
}

/// A name that nobody else has while this lives, here and in processes that inherited it.
#[derive(Debug)]
pub struct Lock {
    file: Flock<File>,
    state: State,
    name: String,
}

impl State {
    /// Opens the folder of the calling thread's network namespace in `run` (such as `/run/baton-guard`), and makes it where it
    /// is not there. `BATON_RUN_DIR` names another folder instead of `run`. `/run/baton` is the proxy's service's: systemd gives it
    /// to the service's user, and removes it when that stops.
    ///
    /// # Errors
    /// Without the right to write there.
    pub fn open(run: &str) -> Result<State, KernelError> {
        State::open_at(&run_folder(run))
    }

    /// Opens a folder that no variable changes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_at(run: &Path) -> Result<State, KernelError> {
        let path = path_in(run)?;
        let folder = fs::create_dir_all(&path).and_then(|()| File::open(&path));
        let folder = folder.map_err(|error| fault(&path, &error))?;
        Ok(State { folder: Some(Arc::new(folder)), path })
    }

    /// The folder that [`open`](Self::open) opens, for who only looks: where it is not there, it is not made. Then there are no
    /// files in it, and nothing can be written or locked.
    ///
    /// # Errors
    /// Without the right to read there.
    pub fn look_at(run: &str) -> Result<State, KernelError> {
        let path = path_in(&run_folder(run))?;
        match File::open(&path) {
            Ok(folder) => Ok(State { folder: Some(Arc::new(folder)), path }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State { folder: None, path }),
            Err(error) => Err(fault(&path, &error)),
        }
    }

    /// Whether the folder is there.
    pub fn is_there(&self) -> bool {
        self.folder.is_some()
    }

    fn opened(&self) -> io::Result<&File> {
        self.folder.as_deref().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// The folder's path, for messages.
    pub fn folder(&self) -> &Path {
        &self.path
    }

    /// Gives the folder and the files in it to a user and a group, for a process that goes on as them.
    ///
    /// # Errors
    /// Without the right to.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), KernelError> {
        let give = |file: &File| fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        for name in self.files()? {
            // A file with another name elsewhere may be somebody else's.
            let is_ours = |file: &File| file.metadata().is_ok_and(|found| found.is_file() && found.nlink() == 1);
            match self.open_file(&name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0) {
                Ok(file) if is_ours(&file) => {
                    give(&file).map_err(|errno| fault(&self.path.join(&name), &errno.into()))?
                }
                Ok(_) | Err(_) => {}
            }
        }
        let folder = self.opened().map_err(|error| fault(&self.path, &error))?;
        give(folder).map_err(|errno| fault(&self.path, &errno.into()))
    }

    /// Names of files of a kind, such as `hold`: what follows `KIND-`, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names(&self, kind: &str) -> Result<Vec<String>, KernelError> {
        let name = |file: String| Some(file.strip_suffix(".json")?.strip_prefix(kind)?.strip_prefix('-')?.to_owned());
        let mut names: Vec<String> = self.files()?.into_iter().filter_map(name).take(NAMES_MAX).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// What a file holds; `None` when it is not there.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub fn read<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<Option<T>, KernelError> {
        let file = file_name(kind, name, "json");
        let path = self.path.join(&file);
        let read = || {
            let mut text = Vec::new();
            // The end of a pipe would wait for the other one.
            let file = self.open_file(&file, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("is not a file"));
            }
            file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map(|_| text)
        };
        match read() {
            Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
                Err(KernelError::new(path.display().to_string(), "is too long", "remove it"))
            }
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                KernelError::new(path.display().to_string(), format!("has unexpected content: {error}"), "remove it")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let fault = fault(&path, &error);
                let remedy = if fault.remedy.is_empty() { "remove it".into() } else { fault.remedy };
                Err(KernelError { remedy, ..fault })
            }
        }
    }

    /// Writes a file as a whole: who reads it sees the old or the new one.
    ///
    /// # Errors
    /// When it cannot be written; then the old one is there.
    pub fn write<T: Serialize>(&self, kind: &str, name: &str, value: &T) -> Result<(), KernelError> {
        let (file, aside) = (file_name(kind, name, "json"), file_name(kind, name, "new"));
        let path = self.path.join(&file);
        let text = serde_json::to_vec(value).map_err(|error| fault(&path, &io::Error::other(error)))?;
        let write = || {
            // Of a write that ended halfway.
            self.unlink(&aside)?;
            self.open_file(&aside, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, FILE_MODE)?.write_all(&text)?;
            Ok(renameat(self.opened()?, aside.as_str(), self.opened()?, file.as_str())?)
        };
        write().map_err(|error: io::Error| fault(&path, &error))
    }

    /// Removes a file; one that is not there is what is wanted.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, kind: &str, name: &str) -> Result<(), KernelError> {
        let file = file_name(kind, name, "json");
        let path = self.path.join(&file);
        self.unlink(&file).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOTEMPTY) => {
                let remedy =
                    format!("it was not created by Baton: check its content, and run `rm -r {}`", path.display());
                KernelError::new(path.display().to_string(), "is a directory that is not empty", remedy)
            }
            _ => fault(&path, &error),
        })
    }

    /// Removes a file and its lock's file, for a process that has only a part in the lock.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn clear(&self, kind: &str, name: &str) -> Result<(), KernelError> {
        self.remove(kind, name)?;
        // One that cannot be removed is a file of no bytes that stays.
        let _ = self.unlink(&file_name(kind, name, "lock"));
        Ok(())
    }

    /// Waits until the name is ours.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn lock(&self, kind: &str, name: &str) -> Result<Lock, KernelError> {
        self.take_lock(kind, name, FlockArg::LockExclusive).map(|lock| lock.expect("waiting ends with the lock"))
    }

    /// Waits until the name is ours, for so long at most.
    ///
    /// # Errors
    /// When its file cannot be opened; and when somebody has the name all the time: the words name the process.
    pub fn lock_within(&self, kind: &str, name: &str, longest: Duration) -> Result<Lock, KernelError> {
        let end = Instant::now() + longest;
        loop {
            if let Some(lock) = self.try_lock(kind, name)? {
                return Ok(lock);
            }
            if Instant::now() >= end {
                let path = self.path.join(file_name(kind, name, "lock"));
                let who = holder(&path).unwrap_or_else(|| "another process".to_owned());
                let waited = match longest.as_secs() {
                    0 => String::new(),
                    waited => format!(" after a wait of {waited} s"),
                };
                let reason = format!("it is still locked by {who}{waited}");
                return Err(KernelError::new(path.display().to_string(), reason, "check this process, or stop it"));
            }
            thread::sleep(LOCK_PAUSE);
        }
    }

    /// The name, if nobody has it; `None` when somebody does.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn try_lock(&self, kind: &str, name: &str) -> Result<Option<Lock>, KernelError> {
        self.take_lock(kind, name, FlockArg::LockExclusiveNonblock)
    }

    /// Waits for a part in the name: others may have one too, and nobody has it alone.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn share(&self, kind: &str, name: &str) -> Result<Lock, KernelError> {
        self.take_lock(kind, name, FlockArg::LockShared).map(|lock| lock.expect("waiting ends with the lock"))
    }

    fn take_lock(&self, kind: &str, name: &str, how: FlockArg) -> Result<Option<Lock>, KernelError> {
        let name = file_name(kind, name, "lock");
        let path = self.path.join(&name);
        let mut tries = LOCK_TRIES;
        while tries > 0 {
            let file = self.open_file(&name, OFlag::O_RDWR | OFlag::O_CREAT, LOCK_MODE);
            match Flock::lock(file.map_err(|error| fault(&path, &error))?, how) {
                // Whoever had it before may have removed the file; then others lock another one.
                Ok(file) if self.is_at(&file, &name) => return Ok(Some(Lock { file, state: self.clone(), name })),
                Ok(_) => tries -= 1,
                Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, Errno::EINTR)) => {}
                Err((_, errno)) => return Err(fault(&path, &errno.into())),
            }
        }
        Err(KernelError::new(path.display().to_string(), "is removed repeatedly", "find the program that does it"))
    }

    /// The names of all files.
    fn files(&self) -> Result<Vec<String>, KernelError> {
        let Some(folder) = self.folder.as_deref() else { return Ok(Vec::new()) };
        let list = Dir::openat(folder, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty());
        let list = list.map_err(|errno| fault(&self.path, &errno.into()))?;
        let name = |entry: nix::Result<nix::dir::Entry>| entry.ok()?.file_name().to_str().ok().map(str::to_owned);
        Ok(list.into_iter().filter_map(name).filter(|name| !name.starts_with('.')).collect())
    }

    fn open_file(&self, name: &str, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(self.opened()?, name, flags, Mode::from_bits_truncate(mode))?.into())
    }

    /// One that is not there is what is wanted.
    fn unlink(&self, name: &str) -> io::Result<()> {
        let Some(folder) = self.folder.as_deref() else { return Ok(()) };
        match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            // Somebody's mistake, and of no use when it is empty.
            Err(Errno::EISDIR) => Ok(unlinkat(folder, name, UnlinkatFlags::RemoveDir)?),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the name leads to this file.
    fn is_at(&self, file: &File, name: &str) -> bool {
        let Ok(folder) = self.opened() else { return false };
        match (file.metadata(), fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)) {
            (Ok(file), Ok(there)) => (file.dev(), file.ino()) == (there.st_dev, there.st_ino),
            _ => false,
        }
    }
}

impl Lock {
    /// The descriptor, for a process that is to keep the name too.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets go and removes the lock's file. Who waits for it gets the name.
    pub fn remove(self) {
        // One that cannot be removed is a file of no bytes that stays.
        let _ = self.state.unlink(&self.name);
    }
}

/// The folder in which those of network namespaces are.
fn run_folder(run: &str) -> PathBuf {
    std::env::var_os(RUN_VARIABLE).map_or_else(|| PathBuf::from(run), PathBuf::from)
}

/// The folder of the calling thread's network namespace.
fn path_in(run: &Path) -> Result<PathBuf, KernelError> {
    const NAMESPACE: &str = "/proc/thread-self/ns/net";
    let namespace = fs::metadata(NAMESPACE).map_err(|error| fault(Path::new(NAMESPACE), &error))?;
    Ok(run.join(namespace.ino().to_string()))
}

fn file_name(kind: &str, name: &str, end: &str) -> String {
    // Names are ours or checked by who takes them from a user; a slash would lead elsewhere all the same.
    format!("{kind}-{}.{end}", name.replace('/', "_"))
}

/// Who took the lock of a file, in words, if the kernel tells (`/proc/locks`).
fn holder(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF`; who waits for one has an arrow before it.
    let held = locks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let found =
        held.into_iter().find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&place.as_str()))?;
    let pid: u32 = found.get(4)?.parse().ok().filter(|pid| *pid > 0)?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    Some(if words.is_empty() { format!("process {pid}") } else { format!("process {pid} (`{words}`)") })
}

fn fault(path: &Path, error: &io::Error) -> KernelError {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            format!("run it as root, or set {RUN_VARIABLE} to a directory that you own")
        }
        _ => String::new(),
    };
    KernelError::new(path.display().to_string(), error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(folder.path()).unwrap();
        assert_eq!(state.read::<Vec<u8>>("hold", "7").unwrap(), None);
        state.write("hold", "7", &vec![1u8, 2]).unwrap();
        state.write("hold", "7", &vec![3u8]).unwrap();
        state.write("flip", "web", &"x").unwrap();
        let _lock = state.lock("hold", "9").unwrap();
        assert_eq!(state.read("hold", "7").unwrap(), Some(vec![3u8]));
        assert_eq!(state.names("hold").unwrap(), ["7"]);
        assert!(state.read::<String>("hold", "7").unwrap_err().to_string().contains("remove it"));
        state.remove("hold", "7").unwrap();
        state.remove("hold", "7").unwrap();
        assert!(state.names("hold").unwrap().is_empty());
    }

    #[test]
    fn a_lock_is_one_process_at_a_time_and_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(folder.path()).unwrap();
        let lock = state.try_lock("hold", "7").unwrap().expect("nobody has it");
        assert_eq!(lock.file().metadata().unwrap().mode() & 0o777, LOCK_MODE, "others could keep us waiting");
        assert!(state.try_lock("hold", "7").unwrap().is_none());
        assert!(state.try_lock("hold", "8").unwrap().is_some());
        // Duplicates of the descriptor are the same lock.
        let copy = lock.file().try_clone().unwrap();
        let waiting = std::thread::spawn({
            let state = state.clone();
            move || state.lock("hold", "7").is_ok()
        });
        lock.remove();
        drop(copy);
        assert!(waiting.join().unwrap(), "it gets a file that is there");
    }

    #[test]
    fn who_has_a_lock_too_long_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(folder.path()).unwrap();
        let lock = state.lock_within("gate", "hold", Duration::ZERO).unwrap();
        let refused = state.lock_within("gate", "hold", Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} (", std::process::id())), "{refused}");
        let waiting = std::thread::spawn({
            let state = state.clone();
            move || state.lock_within("gate", "hold", Duration::from_secs(20)).map(drop)
        });
        drop(lock);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_place_is_this_boot_and_this_namespace() {
        let here = NamespaceId::here();
        assert_eq!(here, NamespaceId::here());
        assert!(!here.boot.is_empty());
        match crate::netns::in_new(NamespaceId::here) {
            Ok(there) => assert!(there.boot == here.boot && there != here),
            Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
        }
    }

    #[test]
    fn the_folder_is_found_wherever_it_went_and_no_link_in_it_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("run")).unwrap();
        let place = state.folder().file_name().unwrap().to_owned();
        fs::rename(folder.path().join("run"), folder.path().join("elsewhere")).unwrap();
        let now = folder.path().join("elsewhere").join(place);
        state.write("hold", "7", &1u8).unwrap();
        assert_eq!(state.read("hold", "7").unwrap(), Some(1u8));
        assert_eq!(state.names("hold").unwrap(), ["7"]);

        let others = folder.path().join("others");
        fs::write(&others, "3").unwrap();
        for name in ["hold-8.new", "hold-8.json", "hold-8.lock"] {
            std::os::unix::fs::symlink(&others, now.join(name)).unwrap();
        }
        assert!(state.read::<u8>("hold", "8").is_err() && state.lock("hold", "8").is_err());
        state.write("hold", "8", &2u8).unwrap();
        assert_eq!((state.read("hold", "8").unwrap(), fs::read(&others).unwrap()), (Some(2u8), b"3".to_vec()));
        let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        state.give_to(user, group).unwrap();
        assert_eq!(fs::metadata(&others).unwrap().len(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_is_said_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(State::open_at(&file).unwrap_err().to_string().contains("file"));
        let denied = fault(Path::new("/run/baton-guard"), &ErrorKind::PermissionDenied.into());
        assert!(denied.to_string().contains("BATON_RUN_DIR"), "{denied}");
    }
}
