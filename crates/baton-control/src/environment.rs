//! The world a configuration is read in, for a process that may have locked itself in since: after `chroot` files are
//! still found by the paths of the outside, through a descriptor of the old root directory that was opened before.
//! Host names are asked of the system as it is seen from inside.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use baton_config::{Environment, MAX_FILE_BYTES, SystemEnvironment};
use baton_model::Family;
use baton_rules::Files;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// The outside as it was at the start: its root directory, the working directory, and standard input.
#[derive(Debug)]
pub struct Outside {
    root: OwnedFd,
    /// Relative paths start here: the directory of the start, or `-C`.
    directory: PathBuf,
    /// `-f -` can be read only once.
    input: Option<Vec<u8>>,
}

impl Outside {
    /// Takes hold of the root directory. `input` is what standard input held, if a file is named `-`.
    pub fn new(directory: PathBuf, input: Option<Vec<u8>>) -> io::Result<Outside> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open("/", flags, Mode::empty())?;
        Ok(Outside { root, directory, input })
    }

    /// The directory relative paths start from.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A path as seen from the root, without the leading slash.
    fn inside(&self, path: &Path) -> PathBuf {
        let whole = self.directory.join(path);
        let relative = whole.strip_prefix("/").unwrap_or(&whole);
        if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative.to_owned() }
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        Ok(openat(&self.root, &self.inside(path), flags, Mode::empty())?.into())
    }

    fn kind(&self, path: &Path) -> Option<SFlag> {
        let found = fstatat(&self.root, &self.inside(path), AtFlags::empty()).ok()?;
        Some(SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT)
    }

    /// The number in the third column of `/etc/passwd` or `/etc/group` of the outside.
    fn number(&self, file: &str, name: &str) -> Option<u32> {
        let content = Environment::read(self, Path::new(file)).ok()?;
        let text = String::from_utf8_lossy(&content);
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    }
}

impl Environment for Outside {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new("-") {
            return self.input.clone().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        }
        let mut content = Vec::new();
        let read = self.open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
        if read as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB"));
        }
        Ok(content)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.kind(path) == Some(SFlag::S_IFDIR)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut entries = nix::dir::Dir::openat(&self.root, &self.inside(dir), flags, Mode::empty())?;
        let mut files = Vec::new();
        for entry in entries.iter() {
            let name = String::from_utf8_lossy(entry?.file_name().to_bytes()).into_owned();
            let path = dir.join(&name);
            if name.ends_with(".cfg") && !name.starts_with('.') && self.kind(&path) == Some(SFlag::S_IFREG) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn var(&self, name: &str) -> Option<String> {
        SystemEnvironment.var(name)
    }

    fn user(&self, name: &str) -> Option<u32> {
        SystemEnvironment.user(name).or_else(|| self.number("/etc/passwd", name))
    }

    fn group(&self, name: &str) -> Option<u32> {
        SystemEnvironment.group(name).or_else(|| self.number("/etc/group", name))
    }

    fn resolve(&self, host: &str, family: Family) -> io::Result<Vec<IpAddr>> {
        SystemEnvironment.resolve(host, family)
    }

    fn hostname(&self) -> String {
        SystemEnvironment.hostname()
    }

    fn is_fd_open(&self, fd: i32) -> bool {
        SystemEnvironment.is_fd_open(fd)
    }
}

impl Files for Outside {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        Environment::read(self, Path::new(path))
    }

    fn hostname(&self) -> String {
        SystemEnvironment.hostname()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_from_the_directory_of_the_start() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        for name in ["d/b.cfg", "d/a.cfg", "d/.c.cfg", "d/d.txt"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let outside = Outside::new(folder.path().to_owned(), Some(b"typed".to_vec())).unwrap();
        assert_eq!(Environment::read(&outside, Path::new("d/a.cfg")).unwrap(), b"d/a.cfg");
        assert_eq!(Environment::read(&outside, &folder.path().join("d/a.cfg")).unwrap(), b"d/a.cfg");
        assert_eq!(Environment::read(&outside, Path::new("-")).unwrap(), b"typed");
        assert_eq!(Environment::read(&outside, Path::new("x")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(
            outside.is_dir(Path::new("d")) && outside.is_dir(Path::new("/")) && !outside.is_dir(Path::new("d/a.cfg"))
        );
        let listed = outside.list(Path::new("d")).unwrap();
        assert_eq!(listed, [PathBuf::from("d/a.cfg"), PathBuf::from("d/b.cfg")]);
        assert_eq!(outside.number("/etc/passwd", "root"), Some(0));
        assert_eq!(outside.number("/etc/group", "no such group"), None);
    }
}
