//! The world a configuration is read in, for a process that may have locked itself in since: after `chroot` files are
//! still found by the paths of the outside, through a descriptor of the old root directory that was opened before.
//! Host names are asked of the system as it is seen from inside.
//!
//! What is read can be recorded, and another process can read the record instead of the files: a worker that replaces a
//! crashed one works by the text that was in use. What a view has recorded it gives again without looking at the file: what is judged
//! and what is put in use are the same text, and only the thread that reads waits for a file system.

mod certificates;
mod look;
mod open;
mod progress;
pub(crate) mod stuck;
mod text;

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use baton_config::{Environment, MAX_FILE_BYTES, SystemEnvironment};
use baton_kernel::process::{priority, procfs};
use baton_model::Family;
use baton_rules::Files;
pub(crate) use look::{FileState, LinkKind};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat};
use open::Kinds;
pub(crate) use progress::{Call, Progress};
use text::{QueryKey, Text};

/// The outside as it was at the start: its root directory, the working directory, and standard input.
#[derive(Debug)]
pub struct Outside {
    root: Arc<OwnedFd>,
    /// Relative paths start here: the directory of the start, or `-C`.
    directory: PathBuf,
    /// `-f -` can be read only once.
    input: Option<Vec<u8>>,
    /// What was read, to be kept for another process.
    record: Option<Mutex<Text>>,
    /// What another process read, which counts instead of the files of now.
    recalled: Option<Text>,
    /// Descriptors of any number may still come, from a process before us.
    expects_descriptors: bool,
    /// Which kinds of files are read.
    kinds: Kinds,
    /// What is being read through this view.
    progress: Arc<Progress>,
}

impl Outside {
    /// Takes hold of the root directory. `input` is what standard input held, if a file is named `-`.
    pub fn new(directory: PathBuf, input: Option<Vec<u8>>) -> io::Result<Outside> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open("/", flags, Mode::empty())?;
        Ok(Outside {
            root: Arc::new(root),
            directory,
            input,
            record: None,
            recalled: None,
            expects_descriptors: false,
            kinds: Kinds::All,
            progress: Arc::default(),
        })
    }

    /// A view of its own that records what is read through it.
    pub fn recording(&self) -> Outside {
        Outside { record: Some(Mutex::default()), ..self.view() }
    }

    /// A view of its own: it records nothing and has its own progress.
    pub fn view(&self) -> Outside {
        let (root, directory, input) = (self.root.clone(), self.directory.clone(), self.input.clone());
        let (expects_descriptors, kinds) = (self.expects_descriptors, self.kinds);
        let progress = Arc::default();
        Outside { root, directory, input, record: None, recalled: None, expects_descriptors, kinds, progress }
    }

    /// A view for a process that serves: of files that a change names, regular ones (and `/dev/null`) are read, and nothing is
    /// waited for that somebody may write to some day.
    pub fn regular_only(self) -> Outside {
        Outside { kinds: Kinds::Regular, ..self }
    }

    /// What is being read through this view.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// A view in which `fd@N` may name a socket that another process will pass on. Whether it did is found out
    /// when the address is opened.
    pub fn expecting_descriptors(self) -> Outside {
        Outside { expects_descriptors: true, ..self }
    }

    /// Whether the text that another process read counts instead of the files of now ([`Outside::recalling`]).
    pub fn recalls(&self) -> bool {
        self.recalled.is_some()
    }

    /// What was read since [`Outside::recording`]; `None` in other views.
    pub fn record(&self) -> Option<Vec<u8>> {
        let record = self.record.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(record.to_bytes())
    }

    /// A view as another process had it: what it read is read again, whatever the files hold now. Files it did not
    /// read are those of now.
    ///
    /// # Errors
    /// When this is no record.
    pub fn recalling(&self, record: &[u8]) -> io::Result<Outside> {
        let recalled = Text::from_bytes(record).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Outside { recalled: Some(recalled), ..self.view() })
    }

    /// What is known from the record, or else is found out now and put into it.
    fn known<T>(
        &self,
        key: QueryKey,
        found: impl FnOnce() -> io::Result<T>,
        read: impl FnOnce(&[u8]) -> T,
        write: impl FnOnce(&T) -> Vec<u8>,
    ) -> io::Result<T> {
        if let Some(known) = self.recalled.as_ref().and_then(|recalled| recalled.entries.get(&key)) {
            return Ok(read(known));
        }
        if let Some(record) = &self.record {
            let record = record.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = record.entries.get(&key) {
                return Ok(read(known));
            }
        }
        let found = found()?;
        if let Some(record) = &self.record {
            record.lock().unwrap_or_else(PoisonError::into_inner).entries.insert(key, write(&found));
        }
        Ok(found)
    }

    /// What standard input held, if it was read.
    pub fn into_input(self) -> Option<Vec<u8>> {
        self.input
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

    fn kind(&self, path: &Path) -> Option<SFlag> {
        let _call = self.progress.file(path);
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
    fn pause(&self) {
        priority::yield_cpu();
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new("-") {
            return self.input.clone().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        }
        self.known(QueryKey::file(&self.inside(path)), || self.read_now(path), <[u8]>::to_vec, Vec::clone)
    }

    fn is_dir(&self, path: &Path) -> bool {
        let found = || Ok(self.kind(path) == Some(SFlag::S_IFDIR));
        let is_dir = self.known(
            QueryKey::directory(&self.inside(path)),
            found,
            |known| known == b"d",
            |is| is.then_some(b'd').into_iter().collect(),
        );
        is_dir.unwrap_or(false)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let path = |name: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
        let read = |known: &[u8]| known.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(path).collect();
        let write = |paths: &Vec<PathBuf>| {
            paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect()
        };
        self.known(QueryKey::list(&self.inside(dir)), || self.list_now(dir), read, write)
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
        let read = |known: &[u8]| {
            let words = std::str::from_utf8(known).unwrap_or_default().split(' ');
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let write =
            |found: &Vec<IpAddr>| found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ").into_bytes();
        let found = || {
            let _call = self.progress.host(host);
            SystemEnvironment.resolve(host, family)
        };
        self.known(QueryKey::host(host, family), found, read, write)
    }

    fn hostname(&self) -> String {
        SystemEnvironment.hostname()
    }

    fn is_fd_open(&self, fd: i32) -> bool {
        self.expects_descriptors || (fd >= 0 && procfs::exists(&format!("self/fd/{fd}")))
    }

    fn tls_files(&self) -> &dyn baton_tls::store::Files {
        self
    }
}

impl Outside {
    fn read_now(&self, path: &Path) -> io::Result<Vec<u8>> {
        let _call = self.progress.file(path);
        let mut content = Vec::new();
        let file = open::open(&self.root, &self.inside(path), self.kinds)?;
        let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
        if read as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB"));
        }
        Ok(content)
    }

    fn list_now(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let _call = self.progress.file(dir);
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
    fn what_was_read_is_read_again_whatever_the_files_hold() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
        write("a.cfg", "one");
        let outside = Outside::new(folder.path().to_owned(), None).unwrap();
        let recording = outside.recording();
        let read = |outside: &Outside, name: &str| Environment::read(outside, Path::new(name)).ok();
        assert_eq!(read(&recording, "a.cfg"), Some(b"one".to_vec()));
        assert!(recording.is_dir(Path::new(".")) && !recording.is_dir(Path::new("a.cfg")));
        assert_eq!(recording.list(Path::new(".")).unwrap(), [PathBuf::from("./a.cfg")]);
        let here = Environment::resolve(&recording, "127.0.0.1", Family::Any).unwrap();

        write("a.cfg", "two");
        write("b.cfg", "three");
        let recalling = outside.recalling(&recording.record().unwrap()).unwrap();
        assert_eq!(read(&recalling, "a.cfg"), Some(b"one".to_vec()));
        assert_eq!(read(&recalling, "b.cfg"), Some(b"three".to_vec()), "it was not asked for before");
        assert!(recalling.is_dir(Path::new(".")) && !recalling.is_dir(Path::new("a.cfg")));
        assert_eq!(recalling.list(Path::new(".")).unwrap(), [PathBuf::from("./a.cfg")]);
        assert_eq!(Environment::resolve(&recalling, "127.0.0.1", Family::Any).unwrap(), here);
        assert_eq!(read(&outside, "a.cfg"), Some(b"two".to_vec()));
        assert_eq!(read(&recording, "a.cfg"), Some(b"one".to_vec()), "what was judged is what is put in use");
        assert!(outside.recalling(b"something else").is_err());
    }

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
