//! Files of `/proc`, also for a process that changed its root directory: [`change_root`](super::privileges::change_root) keeps a
//! descriptor of `/proc` first, and everything here goes through it from then on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};

/// `/proc` of the root directory before; empty as long as that is still the root.
static KEPT: OnceLock<OwnedFd> = OnceLock::new();

/// Keeps `/proc` open, before the root directory changes. Where there is no `/proc` there is nothing to keep.
pub(super) fn keep() {
    if let Ok(proc) = nix::fcntl::open("/proc", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
        let _ = KEPT.set(proc);
    }
}

/// The text of a file: `self/statm`.
///
/// # Errors
/// When it does not exist or may not be read.
pub fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::from(open(path, OFlag::O_RDONLY)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Where a link leads.
pub(super) fn link(path: &str) -> io::Result<OsString> {
    Ok(match KEPT.get() {
        Some(proc) => readlinkat(proc.as_fd(), path)?,
        None => readlinkat(AT_FDCWD, format!("/proc/{path}").as_str())?,
    })
}

/// The names in a directory, `.` and `..` aside.
pub(super) fn names(path: &str) -> io::Result<Vec<String>> {
    let mut dir = Dir::from_fd(open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)?;
    let name = |entry: nix::dir::Entry| entry.file_name().to_str().map(str::to_owned).ok();
    Ok(dir.iter().flatten().filter_map(name).filter(|name| !matches!(name.as_str(), "." | "..")).collect())
}

/// Whether there is such a file or link, wherever a link leads.
pub fn exists(path: &str) -> bool {
    open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW).is_ok()
}

/// What the kernel says of a file or directory itself.
pub(super) fn stat(path: &str) -> io::Result<FileStat> {
    Ok(fstat(open(path, OFlag::O_PATH)?)?)
}

/// How many entries a directory has, `.` and `..` aside.
pub(crate) fn count(path: &str) -> io::Result<usize> {
    let mut dir = Dir::from_fd(open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)?;
    let named = |entry: &nix::dir::Entry| !matches!(entry.file_name().to_bytes(), b"." | b"..");
    Ok(dir.iter().flatten().filter(named).count())
}

fn open(path: &str, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC;
    Ok(match KEPT.get() {
        Some(proc) => openat(proc.as_fd(), path, flags, Mode::empty())?,
        None => openat(AT_FDCWD, format!("/proc/{path}").as_str(), flags, Mode::empty())?,
    })
}
