//! Looking at files without reading them, as they are now.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use baton_tls::store::{Found, Stamp};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

use super::Outside;

impl Outside {
    /// What stands under a name, behind symbolic links, as the store of certificates wants to know it.
    pub(super) fn find_now(&self, path: &Path) -> io::Result<Found> {
        let found = fstatat(&self.root, &self.inside(path), AtFlags::empty())?;
        Ok(match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => Found::Directory,
            SFlag::S_IFREG => Found::File(Stamp {
                modified_ns: nanoseconds(found.st_mtime, found.st_mtime_nsec),
                changed_ns: nanoseconds(found.st_ctime, found.st_ctime_nsec),
                size: u64::try_from(found.st_size).unwrap_or_default(),
                inode: found.st_ino,
                device: found.st_dev,
            }),
            _ => Found::Other,
        })
    }

    /// An open directory.
    pub(crate) fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.root, &self.inside(path), flags, Mode::empty())?)
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
