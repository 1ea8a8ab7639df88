//! Where a running process is reached: a unix socket in a run directory, and an abstract one beside it.
//!
//! The socket file is the first way: nobody but root and the directory's owner can put one there, so that its name can be believed. The
//! abstract name `@baton-PID` is the second way, for clients that do not see the directory (another mount namespace, a
//! `chroot`) and for releases that know nothing else. An abstract name has no owner: a client believes it only when the kernel
//! says that the process of that PID listens there ([`find`]).
//!
//! Both are opened while the process still has the rights it was started with, so that its clients see the user who started it,
//! whatever `user` it becomes afterwards.

pub mod directory;
pub mod find;
mod peer;

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use baton_kernel::listen::netns_here;

pub use directory::Directory;
pub use peer::Peer;

/// Bytes of the random id of a process.
const ID_BYTES: usize = 8;
/// Where they come from.
const RANDOM: &str = "/dev/urandom";
/// How the names of abstract sockets begin; the PID follows.
pub(crate) const ABSTRACT: &str = "baton-";

/// The sockets by which this process is reached.
#[derive(Debug)]
pub struct ControlSocket {
    /// Random, and different for each process that ever has this PID.
    pub id: String,
    /// What there is to tell about how it was opened.
    pub notices: Vec<String>,
    by_path: Option<(UnixListener, SocketFile)>,
    by_name: Option<UnixListener>,
}

/// A socket's file. Removed with it, where this process still can; a later start removes what is left.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    made_by: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.made_by == std::process::id() {
            // After `chroot` or as another user it stays; nobody listens there then.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ControlSocket {
    /// Listens, by this process's PID.
    ///
    /// # Errors
    /// When there is neither a directory for a socket file nor an abstract name to be had.
    pub fn open() -> io::Result<ControlSocket> {
        let id = random_id()?;
        let mut socket = ControlSocket { id, notices: Vec::new(), by_path: None, by_name: None };
        socket.open_file();
        match socket.open_name() {
            Ok(listener) => socket.by_name = Some(listener),
            Err(error) if socket.by_path.is_none() => return Err(error),
            Err(error) => socket.notices.push(format!("No abstract control socket: {error}.")),
        }
        Ok(socket)
    }

    /// Of a master that was another program until now, with the descriptors it kept.
    pub fn resumed(by_name: Option<UnixListener>, by_path: Option<(UnixListener, PathBuf)>) -> ControlSocket {
        let made_by = std::process::id();
        let by_path = by_path.map(|(listener, path)| (listener, SocketFile { path, made_by }));
        ControlSocket { id: random_id().unwrap_or_default(), notices: Vec::new(), by_path, by_name }
    }

    /// Second descriptors of what is listened at.
    ///
    /// # Errors
    /// When there is no descriptor to spare.
    pub fn listeners(&self) -> io::Result<Vec<UnixListener>> {
        let by_path = self.by_path.as_ref().map(|(listener, _)| listener);
        by_path.into_iter().chain(&self.by_name).map(UnixListener::try_clone).collect()
    }

    /// The abstract socket.
    pub fn by_name(&self) -> Option<&UnixListener> {
        self.by_name.as_ref()
    }

    /// The socket in a directory, and its file.
    pub fn by_path(&self) -> Option<(&UnixListener, &Path)> {
        self.by_path.as_ref().map(|(listener, file)| (listener, file.path.as_path()))
    }

    /// Removes the socket file; clients use the abstract name from now on.
    pub fn remove_file(&mut self) {
        self.by_path = None;
    }

    /// Whether there is a socket file.
    pub fn has_file(&self) -> bool {
        self.by_path.is_some()
    }

    /// Listens in the first directory that is ours, or can be made.
    pub fn open_file(&mut self) {
        let name = format!("{}-{}-{}", std::process::id(), netns_here().unwrap_or_default(), self.id);
        for directory in directory::own() {
            directory.sweep();
            if let Ok((listener, path)) = directory.listen(&name) {
                self.by_path = Some((listener, SocketFile { path, made_by: std::process::id() }));
                return;
            }
        }
    }

    /// Listens at `@baton-PID`; where somebody else has that name, at one that cannot be foreseen.
    fn open_name(&mut self) -> io::Result<UnixListener> {
        let usual = format!("{ABSTRACT}{}", std::process::id());
        let error = match bind_abstract(&usual) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::AddrInUse {
            let holder = match find::holder(&usual) {
                Some(Peer { pid: Some(pid), uid }) => format!("process {pid} of user {uid}"),
                Some(Peer { pid: None, uid }) => format!("a process of another PID namespace, of user {uid}"),
                None => "another process".into(),
            };
            self.notices
                .push(format!("The abstract socket @{usual} belongs to {holder}; this process uses another name."));
        }
        bind_abstract(&format!("{usual}-{}", self.id))
    }
}

/// Removes the files of processes that are gone from our directories.
pub fn sweep() {
    directory::own().for_each(|directory| directory.sweep());
}

fn bind_abstract(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn random_id() -> io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; ID_BYTES];
    fs::File::open(RANDOM)?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
