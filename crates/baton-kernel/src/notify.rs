//! Being told of changes in directories (inotify).
//!
//! A [`InotifyQueue`] watches directories that are open, so that it does not matter by which path they were found, nor what that
//! path leads to by now; whoever cares asks [`DirectoryIdentity::of`] now and then. A [`Notifier`] reads it. It says *that* something has
//! happened under a name, never what: the file may have changed again since.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::fstat;
use nix::unistd::fchdir;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How many times the kernel's queue is read before somebody else has a turn; each time gives some 80 events.
const READS_MAX: usize = 16;

/// The kernel's queue of changes that were not read yet; when they are too many, it reports that.
#[derive(Debug)]
pub struct InotifyQueue(Inotify);

/// What tells of changes. Lives within a tokio runtime.
#[derive(Debug)]
pub struct Notifier {
    inotify: AsyncFd<InotifyQueue>,
}

/// A watched directory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Watch(i32);

/// A change in a watched directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FileEvent {
    /// Under this name a file was written and closed, moved, made, removed, or given other rights.
    Changed(Watch, OsString),
    /// A file is being written under this name that was not there before; [`FileEvent::Changed`] follows when it is closed.
    Begun(Watch, OsString),
    /// The directory itself was removed, moved away, or is no longer reachable. Nothing more will be told of it if it is
    /// removed.
    Gone(Watch),
    /// So much happened that the kernel did not remember it: look at everything.
    Lost,
}

/// A directory, independent of its name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DirectoryIdentity {
    device: u64,
    inode: u64,
}

impl AsRawFd for InotifyQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl InotifyQueue {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the system's limit of such queues is reached (`fs.inotify.max_user_instances`), or descriptors ran out.
    pub fn new() -> io::Result<InotifyQueue> {
        Ok(InotifyQueue(Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?))
    }

    /// Notes what happens in an open directory from now on. A directory that is opened twice has one watch. May take some ten
    /// milliseconds where nobody else watches it.
    ///
    /// # Errors
    /// When it is none, or the user's limit is reached (`fs.inotify.max_user_watches`).
    pub fn watch(&self, directory: impl AsFd) -> io::Result<Watch> {
        let what = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        let watch = match self.0.add_watch(path.as_str(), what) {
            // The root directory has no /proc: `chroot`.
            Err(Errno::ENOENT) => self.watch_from_inside(directory.as_fd(), what)?,
            watch => watch?,
        };
        Ok(Watch(watch.as_raw()))
    }

    /// Watches an open directory as the working directory of a thread that has one of its own.
    fn watch_from_inside(&self, directory: BorrowedFd<'_>, what: AddWatchFlags) -> nix::Result<WatchDescriptor> {
        let watch = || {
            unshare(CloneFlags::CLONE_FS)?;
            fchdir(directory)?;
            self.0.add_watch(".", what)
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, watch).map_err(|_| Errno::EAGAIN)?;
            thread.join().unwrap_or(Err(Errno::EAGAIN))
        })
    }
}

impl Notifier {
    /// Tells what is in the queue, and what comes to it.
    ///
    /// # Errors
    /// When the runtime does not take it.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn new(queue: InotifyQueue) -> io::Result<Notifier> {
        // SAFETY: `InotifyQueue` owns an open descriptor, always gives the same one, and closes it only when it is dropped, which the
        // `AsyncFd` that owns it does after deregistering.
        let watched = unsafe { AsyncFd::register_with_interest(queue, Interest::READABLE) };
        Ok(Notifier { inotify: watched.map_err(io::Error::from)? })
    }

    /// To watch more.
    pub fn queue(&self) -> &InotifyQueue {
        self.inotify.get_ref()
    }

    /// What has happened, when something has; some hundred events at most. May be abandoned and begun again.
    ///
    /// # Errors
    /// The system's.
    pub async fn next(&self) -> io::Result<Vec<FileEvent>> {
        self.inotify.async_io(Interest::READABLE, |queue| read(&queue.0)).await
    }
}

fn read(queue: &Inotify) -> io::Result<Vec<FileEvent>> {
    let mut all = Vec::new();
    for _ in 0..READS_MAX {
        match queue.read_events() {
            Ok(events) => all.extend(events.into_iter().filter_map(happened)),
            Err(Errno::EAGAIN) if all.is_empty() => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::EAGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

fn happened(event: InotifyEvent) -> Option<FileEvent> {
    let watch = Watch(event.wd.as_raw());
    let is = |flags| event.mask.intersects(flags);
    if is(AddWatchFlags::IN_Q_OVERFLOW) {
        return Some(FileEvent::Lost);
    }
    if is(AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_UNMOUNT) {
        return Some(FileEvent::Gone(watch));
    }
    let name = event.name?;
    // What is made by a rename, a link or a symbolic link is whole already; what is opened to be written is not.
    Some(if is(AddWatchFlags::IN_CREATE) { FileEvent::Begun(watch, name) } else { FileEvent::Changed(watch, name) })
}

impl DirectoryIdentity {
    /// Of an open directory.
    ///
    /// # Errors
    /// The system's.
    pub fn of(directory: impl AsFd) -> io::Result<DirectoryIdentity> {
        let found = fstat(directory.as_fd())?;
        Ok(DirectoryIdentity { device: found.st_dev, inode: found.st_ino })
    }
}

/// The names of symbolic links in an open directory, at most `most`.
///
/// # Errors
/// When it is none, or cannot be read.
pub fn links_in(directory: BorrowedFd<'_>, most: usize) -> io::Result<Vec<OsString>> {
    // A descriptor of its own, for reading moves its position.
    let own = File::from(nix::fcntl::openat(
        directory,
        ".",
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?);
    let mut names = Vec::new();
    for entry in Dir::from_fd(own.into())?.iter() {
        let entry = entry?;
        if names.len() < most && entry.file_type() == Some(Type::Symlink) {
            names.push(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
            if names.len() >= most {
                break;
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// What happens next, as words.
    async fn told(notifier: &Notifier) -> Vec<String> {
        let all = tokio::time::timeout(Duration::from_secs(5), notifier.next()).await.expect("something").unwrap();
        let word = |happened: &FileEvent| match happened {
            FileEvent::Changed(_, name) => format!("changed {}", name.display()),
            FileEvent::Begun(_, name) => format!("begun {}", name.display()),
            FileEvent::Gone(_) => "gone".into(),
            FileEvent::Lost => "lost".into(),
        };
        all.iter().map(word).collect()
    }

    #[tokio::test]
    async fn changes_of_a_directory_are_told_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (folder.path().join("one"), folder.path().join("two"));
        fs::create_dir(&before).unwrap();
        let queue = InotifyQueue::new().unwrap();
        let open = File::open(&before).unwrap();
        let watch = queue.watch(&open).unwrap();
        fs::write(before.join("a"), "x").unwrap();
        let notifier = Notifier::new(queue).unwrap();
        assert_eq!(notifier.queue().watch(&open).unwrap(), watch);
        assert_eq!(told(&notifier).await, ["begun a", "changed a"]);
        fs::rename(before.join("a"), before.join("b")).unwrap();
        assert_eq!(told(&notifier).await, ["changed a", "changed b"]);
        std::os::unix::fs::symlink("b", before.join("c")).unwrap();
        assert_eq!(told(&notifier).await, ["begun c"]);
        assert_eq!(links_in(open.as_fd(), 10).unwrap(), ["c"]);
        assert!(links_in(open.as_fd(), 0).unwrap().is_empty());
        fs::rename(&before, &after).unwrap();
        assert_eq!(told(&notifier).await, ["gone"]);
        assert_eq!(DirectoryIdentity::of(File::open(&after).unwrap()).unwrap(), DirectoryIdentity::of(&open).unwrap());
        fs::remove_file(after.join("b")).unwrap();
        assert_eq!(told(&notifier).await, ["changed b"]);
        fs::remove_dir_all(&after).unwrap();
        drop(open);
        assert_eq!(told(&notifier).await, ["changed c", "gone"]);
    }

    #[test]
    fn what_is_no_directory_is_not_watched() {
        let file = tempfile::tempfile().unwrap();
        assert!(InotifyQueue::new().unwrap().watch(&file).is_err());
    }
}
