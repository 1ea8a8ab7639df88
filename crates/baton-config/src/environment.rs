//! Everything a configuration asks of the world it is read in: files, variables, users, names. A trait, so that a test or a
//! fuzz target can stand in for the system.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use baton_model::Family;
use baton_tls::store::{Files, SystemFiles};

/// Largest configuration or error file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The world as a configuration sees it.
pub trait Environment {
    /// The content of a file; `-` is standard input. At most [`MAX_FILE_BYTES`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Whether the path is a directory.
    fn is_dir(&self, path: &Path) -> bool;
    /// The files of a directory given to `-f`: regular `*.cfg` files without a leading dot, in lexical order.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// An environment variable; one that is not UTF-8 counts as missing.
    fn var(&self, name: &str) -> Option<String>;
    /// The numeric id of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The numeric id of a group.
    fn group(&self, name: &str) -> Option<u32>;
    /// The addresses of a host name in the order of the resolver, restricted to a family.
    fn resolve(&self, host: &str, family: Family) -> io::Result<Vec<IpAddr>>;
    /// The machine's name.
    fn hostname(&self) -> String;
    /// Whether a descriptor is open in this process (`fd@`).
    fn is_fd_open(&self, fd: i32) -> bool;
    /// Called after every 64 lines of a reading (about 0.1 ms): a thread that reads in the background may yield its CPU here.
    fn pause(&self) {}
    /// The files of certificates and keys.
    fn tls_files(&self) -> &dyn Files {
        static SYSTEM: LazyLock<SystemFiles> = LazyLock::new(SystemFiles::default);
        &*SYSTEM
    }
}

/// Lines between two [`Environment::pause`]: about 0.1 ms of work.
pub(crate) const LINES_PER_PAUSE: u32 = 64;
/// Proxies between two [`Environment::pause`]: about 0.1 ms of work.
pub(crate) const PROXIES_PER_PAUSE: usize = 16;

/// Why a file cannot be had, as the system's library says it.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".into(),
        _ => error.to_string(),
    }
}

/// The real world.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let mut content = Vec::new();
        let read = if path == Path::new("-") {
            io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?
        } else {
            std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?
        };
        if read as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB"));
        }
        Ok(content)
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.ends_with(".cfg") && !name.starts_with('.') && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn var(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        std::env::var(name).ok()
    }

    fn user(&self, name: &str) -> Option<u32> {
        nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    }

    fn group(&self, name: &str) -> Option<u32> {
        nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    }

    fn resolve(&self, host: &str, family: Family) -> io::Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        for address in (host, 0).to_socket_addrs()? {
            let ip = address.ip();
            let fits = match family {
                Family::Any => true,
                Family::V4 => ip.is_ipv4(),
                Family::V6 => ip.is_ipv6(),
            };
            if fits && !found.contains(&ip) {
                found.push(ip);
            }
        }
        Ok(found)
    }

    fn hostname(&self) -> String {
        nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
    }

    fn is_fd_open(&self, fd: i32) -> bool {
        fd >= 0 && Path::new(&format!("/proc/self/fd/{fd}")).symlink_metadata().is_ok()
    }
}

/// A world of maps, for tests: nothing of the machine shows through.
#[derive(Clone, Debug, Default)]
pub struct FixedEnvironment {
    /// Files by path. A path that is the parent of others is a directory.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Environment variables.
    pub vars: BTreeMap<String, String>,
    /// Users.
    pub users: BTreeMap<String, u32>,
    /// Groups.
    pub groups: BTreeMap<String, u32>,
    /// Host names.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Open descriptors.
    pub fds: Vec<i32>,
}

impl FixedEnvironment {
    /// A world with one file, `localhost`, and the user and group `root`.
    pub fn with_file(path: &str, content: impl Into<Vec<u8>>) -> FixedEnvironment {
        FixedEnvironment {
            files: BTreeMap::from([(path.into(), content.into())]),
            users: BTreeMap::from([("root".into(), 0)]),
            groups: BTreeMap::from([("root".into(), 0)]),
            hosts: BTreeMap::from([("localhost".into(), vec![IpAddr::from([127, 0, 0, 1])])]),
            ..FixedEnvironment::default()
        }
    }
}

impl Environment for FixedEnvironment {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.files.keys().any(|file| file.parent() == Some(path) && !path.as_os_str().is_empty())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let is_cfg = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "cfg");
        Ok(self.files.keys().filter(|file| file.parent() == Some(dir)).filter(is_cfg).cloned().collect())
    }

    fn var(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }

    fn resolve(&self, host: &str, family: Family) -> io::Result<Vec<IpAddr>> {
        let all = self.hosts.get(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(all
            .iter()
            .copied()
            .filter(|ip| match family {
                Family::Any => true,
                Family::V4 => ip.is_ipv4(),
                Family::V6 => ip.is_ipv6(),
            })
            .collect())
    }

    fn hostname(&self) -> String {
        "host".into()
    }

    fn is_fd_open(&self, fd: i32) -> bool {
        self.fds.contains(&fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_gives_its_cfg_files_in_order() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["b.cfg", "a.cfg", ".hidden.cfg", "c.txt"] {
            std::fs::write(dir.path().join(name), "").expect("a file can be written");
        }
        std::fs::create_dir(dir.path().join("d.cfg")).expect("a directory can be made");
        let env = SystemEnvironment;
        assert!(env.is_dir(dir.path()));
        let files = env.list(dir.path()).expect("the directory is there");
        assert_eq!(files, [dir.path().join("a.cfg"), dir.path().join("b.cfg")]);
    }

    #[test]
    fn the_system_knows_root_and_standard_input() {
        let env = SystemEnvironment;
        assert_eq!((env.user("root"), env.group("root"), env.user("no such user")), (Some(0), Some(0), None));
        assert!(env.is_fd_open(1) && !env.is_fd_open(-1) && !env.is_fd_open(1_000_000));
        assert_eq!(env.var("NO=SUCH"), None);
        assert!(!env.hostname().is_empty());
    }

    /// Counts the pauses of a reading.
    struct Paced(FixedEnvironment, std::cell::Cell<u32>);

    impl Environment for Paced {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            self.0.read(path)
        }
        fn is_dir(&self, path: &Path) -> bool {
            self.0.is_dir(path)
        }
        fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
            self.0.list(dir)
        }
        fn var(&self, name: &str) -> Option<String> {
            self.0.var(name)
        }
        fn user(&self, name: &str) -> Option<u32> {
            self.0.user(name)
        }
        fn group(&self, name: &str) -> Option<u32> {
            self.0.group(name)
        }
        fn resolve(&self, host: &str, family: Family) -> io::Result<Vec<IpAddr>> {
            self.0.resolve(host, family)
        }
        fn hostname(&self) -> String {
            self.0.hostname()
        }
        fn is_fd_open(&self, fd: i32) -> bool {
            self.0.is_fd_open(fd)
        }
        fn pause(&self) {
            self.1.set(self.1.get() + 1);
        }
    }

    #[test]
    fn a_long_reading_pauses_again_and_again() {
        let pauses = |backends: u32| {
            let head = "defaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n";
            let backend =
                |number| format!("backend b{number}\n server s 127.0.0.1:80\n balance roundrobin\n retries 2\n");
            let text = head.to_owned() + &(0..backends).map(backend).collect::<String>();
            let env = Paced(FixedEnvironment::with_file("a.cfg", text), std::cell::Cell::new(0));
            let options = crate::Options { files: vec!["a.cfg".into()], ..crate::Options::default() };
            assert!(crate::load(&options, &env).model.is_some());
            env.1.get()
        };
        assert_eq!(pauses(4), 0);
        // 4,004 lines when they are read, three quarters of them when they get their meaning, 1,000 proxies when they are judged and
        // again when they are freed, and 1,000 sections when those are freed.
        let proxies = 1000 / PROXIES_PER_PAUSE as u32;
        let expected = 4004 / LINES_PER_PAUSE + 4004 / LINES_PER_PAUSE * 3 / 4 + 3 * proxies;
        assert!(pauses(1000).abs_diff(expected) < 30, "{} instead of about {expected}", pauses(1000));
    }

    #[test]
    fn literal_addresses_resolve_within_their_family() {
        let resolve = |family| SystemEnvironment.resolve("127.0.0.1", family).unwrap_or_default();
        assert_eq!(resolve(Family::Any), [IpAddr::from([127, 0, 0, 1])]);
        assert!(resolve(Family::V6).is_empty());
    }
}
