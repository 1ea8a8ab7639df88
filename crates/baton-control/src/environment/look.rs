//! Looking at files without reading them, as they are now.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use baton_tls::store::{FileKind, Stamp};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

use super::Outside;
use super::open::{self, Kinds};

/// What stands under a name, before symbolic links are followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkKind {
    /// Nothing that can be looked at.
    Nothing,
    /// A file.
    File {
        /// It has several names: it was not made under this one.
        is_linked: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link to a directory.
    LinkToDirectory,
    /// A symbolic link to something else, or to nothing.
    Link,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Outside {
    fn look(&self, path: &Path, flags: AtFlags) -> Result<FileStat, Errno> {
        let _call = self.progress.file(path);
        fstatat(&self.root, &self.inside(path), flags)
    }

    /// What stands under a name.
    pub(crate) fn link_kind(&self, path: &Path) -> LinkKind {
        let Ok(found) = self.look(path, AtFlags::AT_SYMLINK_NOFOLLOW) else { return LinkKind::Nothing };
        match kind(&found) {
            SFlag::S_IFDIR => LinkKind::Directory,
            SFlag::S_IFLNK if self.kind(path) == Some(SFlag::S_IFDIR) => LinkKind::LinkToDirectory,
            SFlag::S_IFLNK => LinkKind::Link,
            _ => LinkKind::File { is_linked: found.st_nlink > 1 },
        }
    }

    /// The state of a file, behind symbolic links; `None`: there is none.
    pub(crate) fn seen(&self, path: &Path) -> Option<FileState> {
        let found = self.look(path, AtFlags::empty()).ok()?;
        Some(FileState {
            device: found.st_dev,
            inode: found.st_ino,
            size: found.st_size,
            modified: (found.st_mtime, found.st_mtime_nsec),
            changed: (found.st_ctime, found.st_ctime_nsec),
        })
    }

    /// What stands under a name, behind symbolic links, as the store of certificates wants to know it.
    pub(super) fn find_now(&self, path: &Path) -> io::Result<FileKind> {
        let found = self.look(path, AtFlags::empty())?;
        Ok(match kind(&found) {
            SFlag::S_IFDIR => FileKind::Directory,
            SFlag::S_IFREG => FileKind::File(Stamp {
                modified_ns: nanoseconds(found.st_mtime, found.st_mtime_nsec),
                changed_ns: nanoseconds(found.st_ctime, found.st_ctime_nsec),
                size: u64::try_from(found.st_size).unwrap_or_default(),
                inode: found.st_ino,
                device: found.st_dev,
            }),
            _ => FileKind::Other,
        })
    }

    /// Whether a path leads to something that is no directory.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.kind(path).is_some_and(|kind| kind != SFlag::S_IFDIR)
    }

    /// A file of certificates or keys: pipes never were any.
    pub(super) fn open_certificate(&self, path: &Path) -> io::Result<File> {
        open::open(&self.root, &self.inside(path), Kinds::Regular)
    }

    /// A directory, to be watched.
    pub(crate) fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let _call = self.progress.file(path);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.root, &self.inside(path), flags, Mode::empty())?)
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}
