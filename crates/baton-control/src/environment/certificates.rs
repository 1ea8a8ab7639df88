//! Certificates are read from the outside too, always as they are now: keys are no part of the text that is kept for another
//! process.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use baton_tls::store::{DirectoryEntry, FileKind, Files, Stamp, read_file};
use nix::dir::{Dir, Type};

use super::Outside;

impl Files for Outside {
    fn read(&self, path: &Path, into: &mut Vec<u8>) -> io::Result<Stamp> {
        let _call = self.progress.file(path);
        read_file(&self.open_certificate(path)?, into)
    }

    fn find(&self, path: &Path) -> io::Result<FileKind> {
        self.find_now(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let _call = self.progress.file(directory);
        let mut entries = Dir::from_fd(self.open_directory(directory)?)?;
        let mut listed = Vec::new();
        for entry in entries.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            let is_file = match entry.file_type() {
                Some(Type::File) => Some(true),
                Some(Type::Symlink) | None => None,
                Some(_) => Some(false),
            };
            listed.push(DirectoryEntry { name, is_file });
        }
        Ok(listed)
    }
}
