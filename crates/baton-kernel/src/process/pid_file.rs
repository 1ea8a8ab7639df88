//! The pid file: opened while we still may, written when there is something to say.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An open pid file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Opens or creates the file (mode 0644 less the umask), before `chroot` and before rights are given up. What
    /// it holds stays until [`PidFile::write`].
    pub fn open(path: &Path) -> io::Result<PidFile> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
        Ok(PidFile { path: path.to_owned(), file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content: one process id a line.
    pub fn write(&mut self, pids: &[i32]) -> io::Result<()> {
        let text: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
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
        assert!(PidFile::open(&folder.path().join("no/such/x.pid")).is_err());
    }
}
