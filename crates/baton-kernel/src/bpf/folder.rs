//! A folder of pinned objects in a BPF file system, held open.
//!
//! The file system may let everybody make folders: unless it is mounted with `mode=700`, its root is like that of /tmp. So nothing is
//! looked up twice by its path. The way to a folder is `FILE SYSTEM/KIND/NAME`; KIND must belong to root or to this process's user and be
//! writable by nobody else, and no step of the way may be a symbolic link. What is in it is reached by the open folder alone, and
//! links there are not followed. So NAME is whose it is because its maker gave it to somebody ([`Folder::give_to`]); that user can end what
//! is pinned there, and reach nothing else by it.
//!
//! A process that gave up root and its file system can still look into what it holds open.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{FileStat, Mode as Rights, SFlag, fstat, fstatat, mkdirat};
use nix::sys::statfs::fstatfs;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchdir, fchown, fchownat, getegid, geteuid, unlinkat};

use super::{MAGIC, MOUNT, syscall};
use crate::KernelError;

/// Files that a folder may have; ours has a dozen, and one for each interface.
const FILES_MAX: usize = 10_000;
/// How folders are made.
const RIGHTS: Rights = Rights::from_bits_truncate(0o755);
/// Group and others may write.
const OTHERS_WRITE: u32 = 0o022;
/// How a step of the way is opened: no link is followed.
const STEP: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A folder, and the one it is in.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    parent: OwnedFd,
    own: OwnedFd,
}

impl Folder {
    /// Opens it; `None` where it is not there.
    ///
    /// # Errors
    /// When somebody else could have put things there, and what helps.
    pub(super) fn find(path: &Path) -> Result<Option<Folder>, KernelError> {
        Folder::reach(path, false)
    }

    /// Opens it, and makes it where it is not there.
    ///
    /// # Errors
    /// As [`find`](Self::find), and without the right to.
    pub(super) fn make(path: &Path) -> Result<Folder, KernelError> {
        Folder::reach(path, true)?.ok_or_else(|| fault(path, Errno::ENOENT))
    }

    fn reach(path: &Path, is_made: bool) -> Result<Option<Folder>, KernelError> {
        let (Some(kind), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(fault(path, Errno::EINVAL));
        };
        let (Some(root), Some(kind_name)) = (kind.parent(), kind.file_name()) else {
            return Err(fault(path, Errno::EINVAL));
        };
        let Some(file_system) = there(root, open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Rights::empty()))? else {
            return Ok(None);
        };
        let Some(parent) = step(&file_system, Path::new(kind_name), kind, is_made)? else { return Ok(None) };
        let stat = fstat(&parent).map_err(|error| fault(kind, error))?;
        if stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
            return Err(somebodys(kind, root, &stat));
        }
        writable(kind, &stat)?;
        let Some(own) = step(&parent, Path::new(name), path, is_made)? else { return Ok(None) };
        writable(path, &fstat(&own).map_err(|error| fault(path, error))?)?;
        let found = fstatfs(&own).map_err(|error| fault(path, error))?;
        if is_made && found.filesystem_type() != MAGIC {
            return Err(KernelError::new(path.display().to_string(), "it is not in a BPF file system", MOUNT));
        }
        Ok(Some(Folder { path: path.to_owned(), parent, own }))
    }

    /// A second handle of the folder.
    pub(super) fn again(&self) -> Result<Folder, KernelError> {
        let clone =
            |open: &OwnedFd| open.try_clone().map_err(|error| KernelError::io(self.path.display().to_string(), &error));
        Ok(Folder { path: self.path.clone(), parent: clone(&self.parent)?, own: clone(&self.own)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its files.
    pub(super) fn names(&self) -> Result<Vec<String>, KernelError> {
        let listed = Dir::openat(&self.own, ".", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Rights::empty());
        let mut listed = listed.map_err(|error| fault(&self.path, error))?;
        let names =
            listed.iter().take(FILES_MAX).filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    /// Whether a file is there.
    pub(super) fn has(&self, name: &str) -> bool {
        fstatat(&self.own, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether it is not in the file system any more, though open.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.own).is_ok_and(|own| own.st_nlink == 0)
    }

    /// The way to a new file, for as long as this is open and where there is a /proc: to be used where only a path can be given.
    pub(super) fn way(&self, name: &str) -> PathBuf {
        within(self.own.as_fd()).join(name)
    }

    /// The way to a file that is there, without a link being followed, for as long as what is given is open.
    ///
    /// # Errors
    /// When it is not there, or is no pinned object.
    pub(super) fn way_to(&self, name: &str) -> io::Result<HeldPath> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(&self.own, name, flags, Rights::empty())?;
        if SFlag::from_bits_truncate(fstat(&opened)?.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(io::Error::other("it is not a pinned object, but a link or a directory"));
        }
        Ok(HeldPath(opened))
    }

    /// Opens what is pinned under a name.
    ///
    /// # Errors
    /// When it is not there, or is no pinned object; without the right.
    pub(super) fn object(&self, name: &str) -> io::Result<OwnedFd> {
        let way = self.way_to(name)?;
        match syscall::pinned(&way.path()) {
            // In a jail without /proc; there, it is this process's own folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => match syscall::pinned_in(self.own.as_fd(), name) {
                Err(error) if is_unknown(&error) => self.standing_in(|| syscall::pinned(Path::new(name))),
                opened => opened,
            },
            opened => opened,
        }
    }

    /// Pins an object under a name that is not there.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub(super) fn pin(&self, object: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        match syscall::pin_in(object, self.own.as_fd(), name) {
            Err(error) if is_unknown(&error) => match syscall::pin(object, &self.way(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.standing_in(|| syscall::pin(object, Path::new(name)))
                }
                done => done,
            },
            done => done,
        }
    }

    /// Does something while standing in the folder, for kernels before Linux 6.5 in a jail without /proc, where no path leads there. A
    /// thread of its own stands there, since where one stands all of a process's threads do.
    fn standing_in<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let stand = || {
            unshare(CloneFlags::CLONE_FS)?;
            fchdir(&self.own)?;
            work()
        };
        thread::scope(|scope| {
            let standing = thread::Builder::new().name("baton/pin".into()).spawn_scoped(scope, stand)?;
            standing.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    }

    /// Removes a file; it is no error when it is not there.
    pub(super) fn unpin(&self, name: &str) -> Result<(), KernelError> {
        match unlinkat(&self.own, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(fault(&self.path.join(name), error)),
        }
    }

    /// Removes it, which must be empty.
    pub(super) fn remove(&self) -> Result<(), KernelError> {
        let Some(name) = self.path.file_name() else { return Ok(()) };
        match unlinkat(&self.parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            // Its parent is root's. Without files it is nothing to anybody.
            Err(Errno::EACCES | Errno::EPERM) => Ok(()),
            Err(error) => Err(fault(&self.path, error)),
        }
    }

    /// Takes it from whom it was given to, so that nobody puts anything there any more.
    pub(super) fn claim(&self) -> Result<(), KernelError> {
        let (user, group) = (geteuid(), getegid());
        match fstat(&self.own) {
            Ok(stat) if stat.st_uid == user.as_raw() => Ok(()),
            _ => fchown(&self.own, Some(user), Some(group)).map_err(|error| fault(&self.path, error)),
        }
    }

    /// Gives it and these files in it to a user and a group. Links are not followed.
    pub(super) fn give_to<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        user: u32,
        group: u32,
    ) -> Result<(), KernelError> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        for name in names {
            fchownat(&self.own, name, user, group, AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(|error| fault(&self.path.join(name), error))?;
        }
        fchown(&self.own, user, group).map_err(|error| fault(&self.path, error))
    }
}

/// A file that is held, for what takes a path.
#[derive(Debug)]
pub(super) struct HeldPath(OwnedFd);

impl HeldPath {
    /// Leads to it as long as this is there.
    pub(super) fn path(&self) -> PathBuf {
        within(self.0.as_fd())
    }
}

/// Whether a kernel does not know `BPF_F_PATH_FD` (Linux 6.5).
fn is_unknown(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

fn within(descriptor: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string())
}

/// One step of the way.
fn step(from: &OwnedFd, name: &Path, path: &Path, is_made: bool) -> Result<Option<OwnedFd>, KernelError> {
    if is_made {
        match mkdirat(from, name, RIGHTS) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(fault(path, error)),
        }
    }
    match openat(from, name, STEP, Rights::empty()) {
        Err(Errno::ELOOP | Errno::ENOTDIR) => {
            let remedy = format!("find out who created it, and remove it (rm {})", path.display());
            Err(KernelError::new(path.display().to_string(), "it is a link or a file, not a directory", remedy))
        }
        opened => there(path, opened),
    }
}

fn there(path: &Path, opened: nix::Result<OwnedFd>) -> Result<Option<OwnedFd>, KernelError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(fault(path, error)),
    }
}

fn somebodys(path: &Path, root: &Path, stat: &FileStat) -> KernelError {
    KernelError::new(
        path.display().to_string(),
        format!("it belongs to user {}, who can change its content", stat.st_uid),
        format!(
            "if this user does not need it, remove it (rm -r {}), and forbid other users to create directories there (chmod \
             700 {})",
            path.display(),
            root.display()
        ),
    )
}

fn writable(path: &Path, stat: &FileStat) -> Result<(), KernelError> {
    if stat.st_mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(KernelError::new(
        path.display().to_string(),
        format!("it is writable for others than its owner (mode {:o})", stat.st_mode & 0o7777),
        format!("check its content, and remove the permission (chmod go-w {})", path.display()),
    ))
}

fn fault(path: &Path, error: Errno) -> KernelError {
    KernelError::io(path.display().to_string(), &io::Error::from(error))
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

#[cfg(test)]
mod tests;
