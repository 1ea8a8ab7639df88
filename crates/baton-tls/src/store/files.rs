//! Where files come from. Whoever starts Baton says: a process that went into a `chroot` finds them outside of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes: no certificate comes near it.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// What tells one state of a file from another, from `fstat`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stamp {
    /// When its content changed last, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// When anything about it changed last, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Its length in bytes.
    pub size: u64,
    /// Its number in its file system.
    pub inode: u64,
    /// Its file system.
    pub device: u64,
}

/// What is found under a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    /// A regular file.
    File(Stamp),
    /// A directory.
    Directory,
    /// A pipe, a socket, a device.
    Other,
}

/// Files as the store reads them. Several threads ask at once.
pub trait Files: Sync {
    /// Replaces what is in `into` by the content of a file.
    ///
    /// # Errors
    /// When it cannot be opened or read, or is larger than [`MAX_FILE_BYTES`].
    fn read(&self, path: &Path, into: &mut Vec<u8>) -> io::Result<Stamp>;

    /// What is there, behind symbolic links.
    ///
    /// # Errors
    /// When nothing is, or it cannot be asked.
    fn find(&self, path: &Path) -> io::Result<FileKind>;

    /// What is in a directory, in any order.
    ///
    /// # Errors
    /// When it is none, or cannot be read.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>>;
}

/// A name in a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectoryEntry {
    /// Without the directory.
    pub name: OsString,
    /// Whether it is a regular file (`true`) or something else; `None`: a symbolic link, or the directory does not say.
    pub is_file: Option<bool>,
}

/// The files of the system as this process sees them.
#[derive(Clone, Debug, Default)]
pub struct SystemFiles {
    /// Relative paths start here; empty: in the working directory.
    pub directory: PathBuf,
}

impl Files for SystemFiles {
    fn read(&self, path: &Path, into: &mut Vec<u8>) -> io::Result<Stamp> {
        let path = self.directory.join(path);
        // A pipe that nobody writes to cannot even be opened.
        match fs::metadata(&path)? {
            found if found.is_file() || found.is_dir() => read_file(&File::open(path)?, into),
            _ => Err(io::Error::other("it is not a regular file")),
        }
    }

    fn find(&self, path: &Path) -> io::Result<FileKind> {
        let found = fs::metadata(self.directory.join(path))?;
        Ok(match () {
            () if found.is_dir() => FileKind::Directory,
            () if found.is_file() => FileKind::File(Stamp::of(&found)),
            () => FileKind::Other,
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let listed = |entry: fs::DirEntry| {
            let kind = entry.file_type()?;
            Ok(DirectoryEntry { name: entry.file_name(), is_file: (!kind.is_symlink()).then_some(kind.is_file()) })
        };
        fs::read_dir(self.directory.join(directory))?.map(|entry| listed(entry?)).collect()
    }
}

/// Replaces what is in `into` by the content of an open file, with as few calls as can be: its length is asked first.
///
/// # Errors
/// When it cannot be read, is no regular file, or is larger than [`MAX_FILE_BYTES`].
pub fn read_file(file: &File, into: &mut Vec<u8>) -> io::Result<Stamp> {
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    // One byte more than there should be: a read that leaves it was the whole file.
    let wanted = found.len() as usize + 1;
    if into.len() < wanted {
        into.resize(wanted, 0);
    }
    let mut reader = file;
    let mut length = 0;
    loop {
        match reader.read(&mut into[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if length as u64 == found.len() {
            break;
        }
        if length as u64 > MAX_FILE_BYTES {
            return Err(too_large());
        }
        if length == into.len() {
            into.resize(length * 2, 0);
        }
    }
    into.truncate(length);
    Ok(Stamp::of(&found))
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20))
}

impl Stamp {
    /// From what the system says of a file.
    pub fn of(found: &fs::Metadata) -> Stamp {
        Stamp {
            modified_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
            changed_ns: found.ctime() * 1_000_000_000 + found.ctime_nsec(),
            size: found.len(),
            inode: found.ino(),
            device: found.dev(),
        }
    }
}

/// The stamps of all files of a certificate, in few bytes.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    hasher: std::hash::DefaultHasher,
    newest_ns: i64,
}

/// What became of [`Stamps`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Digest {
    /// Equal when all stamps are.
    stamps: u64,
    /// A later change may leave the stamps as they are: a file had changed within the same tick of the system's clock in
    /// which it was read.
    young: bool,
}

/// Longer than a tick of the clock that the kernel stamps files by.
const TICK_NS: i64 = 50_000_000;

impl Stamps {
    pub(crate) fn new() -> Stamps {
        Stamps { hasher: std::hash::DefaultHasher::new(), newest_ns: i64::MIN }
    }

    /// Counts a file in, or its absence.
    pub(crate) fn add(&mut self, path: &Path, stamp: Option<Stamp>) {
        path.hash(&mut self.hasher);
        stamp.hash(&mut self.hasher);
        if let Some(stamp) = stamp {
            self.newest_ns = self.newest_ns.max(stamp.changed_ns);
        }
    }

    /// Counts in what else the result depends on.
    pub(crate) fn add_number(&mut self, number: u64) {
        number.hash(&mut self.hasher);
    }

    /// All of it in one number.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.hasher.finish()
    }

    /// What is kept; `now_ns` from before the first file was read.
    pub(crate) fn digest(&self, now_ns: i64) -> Digest {
        Digest { stamps: self.hasher.finish(), young: self.newest_ns > now_ns - TICK_NS }
    }
}

impl Digest {
    /// Whether the files are for certain those that were read.
    pub(crate) fn is_same(self, now: Digest) -> bool {
        self.stamps == now.stamps && !self.young
    }
}
