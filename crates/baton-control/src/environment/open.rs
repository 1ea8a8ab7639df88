//! Opening files of a configuration without waiting for what is none.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::{Mode, major, minor};

/// Which kinds of files are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kinds {
    /// Whatever the user names, as at a start: `-f <(generate)` is a pipe.
    All,
    /// Regular files and `/dev/null`, as at a reload: what a pipe held was read at the start.
    Regular,
}

/// Opens a file below a directory to read it whole.
///
/// # Errors
/// The system's, and `InvalidInput` for a kind that is not read.
pub(super) fn open(root: &impl AsFd, path: &Path, kinds: Kinds) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    if kinds == Kinds::All {
        return Ok(openat(root, path, flags, Mode::empty())?.into());
    }
    let file: File = match openat(root, path, flags | OFlag::O_NONBLOCK, Mode::empty()) {
        Ok(file) => file.into(),
        // Another process holds a lease on it (fcntl(2), `F_SETLEASE`), which the kernel has just asked it to give up; only regular
        // files have leases.
        Err(Errno::EWOULDBLOCK) => openat(root, path, flags, Mode::empty())?.into(),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    let kind = found.file_type();
    let is_null = kind.is_char_device() && (major(found.rdev()), minor(found.rdev())) == (1, 3);
    let what = match () {
        // A directory is refused by the reading itself, in the system's words.
        () if kind.is_file() || kind.is_dir() || is_null => None,
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_block_device() => Some("a block device"),
        () => Some("a socket"),
    };
    match what {
        Some(what) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {what}; a reload reads only regular files and /dev/null"),
        )),
        None => {
            // For regular files the flag means nothing, but for those of some file systems.
            let flags = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?);
            fcntl(&file, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK))?;
            Ok(file)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_reload_reads_regular_files_and_the_null_device() {
        let folder = tempfile::tempdir().unwrap();
        let root = File::open("/").unwrap();
        let inside = |path: &Path| path.strip_prefix("/").unwrap().to_owned();
        let read = |path: &Path, kinds| {
            let mut text = String::new();
            open(&root, &inside(path), kinds)?.take(16).read_to_string(&mut text).map(|_| text)
        };
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (path, content) in [(at("file"), "text"), (at("link"), "text"), ("/dev/null".into(), "")] {
            assert_eq!(read(&path, Kinds::Regular).unwrap(), content, "{}", path.display());
        }
        for (path, what) in [(at("fifo"), "a pipe"), ("/dev/zero".into(), "a character device")] {
            let error = read(&path, Kinds::Regular).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(what), "{error}");
        }
        for path in [at("socket"), at("nothing"), folder.path().to_owned()] {
            assert!(read(&path, Kinds::Regular).is_err(), "{}", path.display());
        }
        assert_eq!(
            read(Path::new("/dev/zero"), Kinds::All).unwrap(),
            "\0".repeat(16),
            "a start reads what it is given"
        );
    }
}
