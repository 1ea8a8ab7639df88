//! The pid file: made while we still may, put in its place when there is something to write, and undone when it comes to nothing.
//!
//! It is written beside its place and renamed into it, so that nobody who may write to the directory, or to what stands there, has us
//! write somewhere else: a symbolic link of somebody else is replaced, and a file with another name (a hard link) keeps its content.
//! From then on it is written through its descriptor, which needs no rights any more. Devices and pipes, such as `/dev/null`, are written
//! to as they are; a symbolic link that only its owner (root, or us) could have made is followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// What is read of a file's old content. Longer ones are no pid files, and end up cut off.
const CONTENT_MAX: u64 = 4096;
/// Names that are tried for the file beside; those of processes of the same number that were killed are in the way.
const NAMES_MAX: u32 = 100;
/// Symbolic links that are followed, one after the other.
const LINKS_MAX: usize = 8;

/// An open pid file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
    /// What was there; `None`: nothing.
    before: Option<Vec<u8>>,
    stage: Stage,
    written: bool,
}

/// Where the file is.
#[derive(Debug)]
enum Stage {
    /// Beside its place.
    Aside { folder: OwnedFd, name: OsString, aside: OsString },
    /// In its place, put there by us.
    Renamed { folder: OwnedFd, name: OsString },
    /// What is there is written to as it is.
    AsItIs,
}

impl PidFile {
    /// Makes the file beside its place (mode 0644 less the umask), before `chroot` and before rights are given up. What is there
    /// stays until [`PidFile::write`].
    ///
    /// # Errors
    /// When it cannot be made, or what is there cannot be a pid file.
    pub fn open(path: &Path) -> io::Result<PidFile> {
        let mut target = path.to_owned();
        for _ in 0..LINKS_MAX {
            let found = match fs::symlink_metadata(&target) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return PidFile::beside(path, &target, false),
                Err(error) => return Err(error),
            };
            let kind = found.file_type();
            if kind.is_symlink() && is_trusted(&target, &found)? {
                if fs::metadata(&target).is_ok_and(|behind| is_written_as_it_is(&behind)) {
                    return PidFile::as_it_is(path, open(&target, as_it_is(), Mode::empty())?);
                }
                let to = fs::read_link(&target)?;
                target = target.parent().unwrap_or(Path::new("")).join(to);
                continue;
            }
            if is_written_as_it_is(&found) {
                return PidFile::as_it_is(path, open(&target, as_it_is() | OFlag::O_NOFOLLOW, Mode::empty())?);
            }
            if kind.is_dir() {
                return Err(Errno::EISDIR.into());
            }
            return PidFile::beside(path, &target, kind.is_file());
        }
        Err(Errno::ELOOP.into())
    }

    fn as_it_is(path: &Path, fd: OwnedFd) -> io::Result<PidFile> {
        let file = File::from(fd);
        let before = is_written_as_it_is(&file.metadata()?).then(Vec::new);
        let before = before.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(PidFile { path: path.to_owned(), file, before: Some(before), stage: Stage::AsItIs, written: false })
    }

    fn beside(path: &Path, target: &Path, is_there: bool) -> io::Result<PidFile> {
        let name = target.file_name().ok_or(Errno::EISDIR)?.to_owned();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = openat(AT_FDCWD, parent, flags, Mode::empty())?;
        let in_place = || openat(&folder, &*name, OFlag::O_RDWR | careful(), Mode::empty()).map(File::from);
        let (aside, file) = match create_aside(&folder, &name) {
            Ok(created) => created,
            // A file that was made for a user who may not write to the directory.
            Err(Errno::EACCES) if is_there && !geteuid().is_root() => {
                let file = in_place()?;
                if !is_ours_alone(&file.metadata()?) {
                    return Err(Errno::EACCES.into());
                }
                let before = Some(content(&file)?);
                return Ok(PidFile { path: path.to_owned(), file, before, stage: Stage::AsItIs, written: false });
            }
            Err(error) => return Err(error.into()),
        };
        let stage = Stage::Aside { folder: folder.try_clone()?, name: name.clone(), aside };
        let mut made = PidFile { path: path.to_owned(), file, before: None, stage, written: false };
        if is_there {
            let flags = OFlag::O_RDONLY | careful();
            let old = File::from(openat(&folder, &*name, flags, Mode::empty())?);
            made.before = Some(content(&old)?);
        }
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content: one process id a line. Unless [`PidFile::keep`] follows, the old content comes back when this
    /// is dropped.
    ///
    /// # Errors
    /// The old content stays, as far as the system lets us: the first time the file is renamed over it when it is complete; later
    /// it is overwritten in one go and cut off afterwards, so that a full disk finds the room it already has.
    pub fn write(&mut self, pids: &[i32]) -> io::Result<()> {
        let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        if let Stage::Aside { folder, name, aside } = &self.stage {
            replace(&self.file, text.as_bytes())?;
            renameat(folder, &**aside, folder, &**name)?;
            let stage = Stage::Renamed { folder: folder.try_clone()?, name: name.clone() };
            self.stage = stage;
            self.written = true;
            return Ok(());
        }
        self.written = true;
        replace(&self.file, text.as_bytes())
    }

    /// What was written holds from now on.
    pub fn keep(mut self) {
        self.written = false;
    }

    /// Whether our file is still in its place.
    fn is_in_place(&self, folder: &OwnedFd, name: &OsStr) -> bool {
        let there = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        match (self.file.metadata(), there) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.st_dev, there.st_ino),
            _ => false,
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // We are at the end of a failure already, which is what is told.
        match &self.stage {
            Stage::Aside { folder, aside, .. } => drop(unlinkat(folder, &**aside, UnlinkatFlags::NoRemoveDir)),
            Stage::Renamed { .. } | Stage::AsItIs if !self.written => {}
            Stage::Renamed { folder, name } if self.before.is_none() => {
                // Without the right to remove it any more, it names nobody.
                let _ = replace(&self.file, b"");
                if self.is_in_place(folder, name) {
                    let _ = unlinkat(folder, &**name, UnlinkatFlags::NoRemoveDir);
                }
            }
            Stage::Renamed { .. } | Stage::AsItIs => {
                let _ = replace(&self.file, self.before.as_deref().unwrap_or_default());
            }
        }
    }
}

/// Not followed, not waited for, and not our terminal.
fn careful() -> OFlag {
    OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
}

fn as_it_is() -> OFlag {
    OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
}

/// What no other file could stand in for.
fn is_written_as_it_is(found: &Metadata) -> bool {
    let kind = found.file_type();
    kind.is_char_device() || kind.is_fifo()
}

/// Whether only root or we could have put a symbolic link there: it is ours, and so is the directory, in which nobody else may write
/// or nobody may replace what is another's.
fn is_trusted(link: &Path, found: &Metadata) -> io::Result<bool> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let parent = link.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::metadata(parent)?;
    let is_ours = |found: &Metadata| found.uid() == 0 || found.uid() == geteuid().as_raw();
    let is_closed = folder.mode() & OTHERS_WRITE == 0 || folder.mode() & STICKY != 0;
    Ok(is_ours(found) && is_ours(&folder) && is_closed)
}

/// A regular file that has no other name.
fn is_ours_alone(found: &Metadata) -> bool {
    found.is_file() && found.nlink() == 1
}

/// A new file beside a name.
fn create_aside(folder: &OwnedFd, name: &OsStr) -> Result<(OsString, File), Errno> {
    let mut last = Errno::EEXIST;
    for number in 0..NAMES_MAX {
        let mut aside = OsString::from(".");
        aside.push(name);
        aside.push(format!(".{}-{number}", std::process::id()));
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | careful();
        match openat(folder, &*aside, flags, Mode::from_bits_truncate(0o644)) {
            Ok(file) => return Ok((aside, file.into())),
            Err(Errno::EEXIST) => {}
            Err(error) => {
                last = error;
                break;
            }
        }
    }
    Err(last)
}

fn content(file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(CONTENT_MAX).read_to_end(&mut content)?;
    }
    Ok(content)
}

/// Nobody who reads at the same time sees a mixture: the rest of an old content is overwritten with empty lines.
fn replace(file: &File, text: &[u8]) -> io::Result<()> {
    let found = file.metadata()?;
    if !found.is_file() {
        let mut file = file;
        return if text.is_empty() { Ok(()) } else { io::Write::write_all(&mut file, text) };
    }
    let old = usize::try_from(found.len()).unwrap_or(usize::MAX).min(CONTENT_MAX as usize);
    let mut padded = text.to_vec();
    padded.resize(text.len().max(old), b'\n');
    file.write_all_at(&padded, 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests;
