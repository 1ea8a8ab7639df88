//! The pid file: opened while we still may, written when there is something to say, and put back when it comes to nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is read of a file's old content. Longer ones are no pid files, and end up cut off.
const CONTENT_MAX: u64 = 4096;

/// An open pid file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
    before: Vec<u8>,
    written: bool,
}

impl PidFile {
    /// Opens or creates the file (mode 0644 less the umask), before `chroot` and before rights are given up. What
    /// it holds stays until [`PidFile::write`].
    pub fn open(path: &Path) -> io::Result<PidFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path)?;
        let mut before = Vec::new();
        if file.metadata()?.is_file() {
            (&file).take(CONTENT_MAX).read_to_end(&mut before)?;
        }
        Ok(PidFile { path: path.to_owned(), file, before, written: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content: one process id a line. Unless [`PidFile::keep`] follows, the old content comes back when this
    /// is dropped.
    ///
    /// # Errors
    /// The old content stays, as far as the system lets us: it is overwritten in one go and cut off afterwards, so that a
    /// full disk finds the room it already has.
    pub fn write(&mut self, pids: &[i32]) -> io::Result<()> {
        let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        self.written = true;
        replace(&self.file, text.as_bytes(), self.before.len())
    }

    /// What was written holds from now on.
    pub fn keep(mut self) {
        self.written = false;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.written {
            // We are at the end of a failure already, which is what is told.
            let _ = replace(&self.file, &self.before, self.before.len());
        }
    }
}

/// Nobody who reads at the same time sees a mixture: the rest of an old content is overwritten with empty lines.
fn replace(file: &File, text: &[u8], old: usize) -> io::Result<()> {
    let mut padded = text.to_vec();
    padded.resize(text.len().max(old), b'\n');
    file.write_all_at(&padded, 0)?;
    if file.metadata()?.is_file() {
        file.set_len(text.len() as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_is_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pid");
        std::fs::write(&path, "99999999\nold\n").unwrap();
        let mut file = PidFile::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "99999999\nold\n", "opening changes nothing");
        file.write(&[12, 345]).unwrap();
        file.write(&[7]).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "7\n");
        file.keep();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
        assert!(PidFile::open(&folder.path().join("no/such/x.pid")).is_err());
    }

    #[test]
    fn what_comes_to_nothing_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pid");
        for old in ["12\n", "123456\n7\n", ""] {
            std::fs::write(&path, old).unwrap();
            let mut file = PidFile::open(&path).unwrap();
            file.write(&[345]).unwrap();
            drop(file);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), old);
        }
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut file = PidFile::open(Path::new("/dev/full")).unwrap();
        assert_eq!(file.write(&[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        PidFile::open(Path::new("/dev/null")).unwrap().write(&[1]).unwrap();
    }
}
