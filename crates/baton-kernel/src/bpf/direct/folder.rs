//! The folder of the pinned objects, held open: a process that gave up root and its file system can still look into it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode as Rights, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, unlinkat};

use crate::Fault;

/// Files that a folder may have; ours has a dozen, and one for each interface.
const FILES_MAX: usize = 10_000;

/// A folder, and the one it is in.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    parent: OwnedFd,
    own: OwnedFd,
}

impl Folder {
    /// Opens it; `None` where it is not there.
    pub(super) fn find(path: &Path) -> Result<Option<Folder>, Fault> {
        let folder = |path: &Path| open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Rights::empty());
        let parent = path.parent().unwrap_or(Path::new("/"));
        let opened = folder(parent).and_then(|parent| Ok((parent, folder(path)?)));
        match opened {
            Ok((parent, own)) => Ok(Some(Folder { path: path.to_owned(), parent, own })),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(fault(path, error)),
        }
    }

    /// Opens it, and makes it where it is not there.
    pub(super) fn make(path: &Path) -> Result<Folder, Fault> {
        fs::create_dir_all(path).map_err(|error| Fault::io(path.display().to_string(), &error))?;
        Folder::find(path)?.ok_or_else(|| fault(path, Errno::ENOENT))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its files.
    pub(super) fn names(&self) -> Result<Vec<String>, Fault> {
        let listed = Dir::openat(&self.own, ".", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Rights::empty());
        let mut listed = listed.map_err(|error| fault(&self.path, error))?;
        let names =
            listed.iter().take(FILES_MAX).filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    /// Whether it is not in the file system any more, though open.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.own).is_ok_and(|own| own.st_nlink == 0)
    }

    /// Removes a file; it is no error when it is not there.
    pub(super) fn unpin(&self, name: &str) -> Result<(), Fault> {
        match unlinkat(&self.own, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(fault(&self.path.join(name), error)),
        }
    }

    /// Removes it, which must be empty.
    pub(super) fn remove(&self) -> Result<(), Fault> {
        let Some(name) = self.path.file_name() else { return Ok(()) };
        match unlinkat(&self.parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            // Its parent is root's. Without files it is nothing to anybody.
            Err(Errno::EACCES | Errno::EPERM) => Ok(()),
            Err(error) => Err(fault(&self.path, error)),
        }
    }

    /// Gives it and all in it to a user and a group.
    pub(super) fn give_to(&self, user: u32, group: u32) -> Result<(), Fault> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        for name in self.names()? {
            fchownat(&self.own, name.as_str(), user, group, AtFlags::empty())
                .map_err(|error| fault(&self.path.join(&name), error))?;
        }
        fchown(&self.own, user, group).map_err(|error| fault(&self.path, error))
    }
}

fn fault(path: &Path, error: Errno) -> Fault {
    Fault::io(path.display().to_string(), &io::Error::from(error))
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}
