//! The listening socket of an origin.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::{BACKLOG, OriginOptions, peer::Listener};
use crate::stream::Target;

/// A socket that listens, not yet served.
pub(super) struct Bound {
    socket: Socket,
    at: ListenAddress,
}

enum ListenAddress {
    Tcp(SocketAddr),
    Unix(Node),
}

impl Bound {
    pub(super) fn new(options: &OriginOptions) -> io::Result<Bound> {
        let (socket, at) = match &options.unix {
            None => {
                let address = options.address;
                let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
                socket.set_reuse_address(true)?;
                socket.bind(&address.into())?;
                let bound = socket.local_addr()?.as_socket();
                (socket, ListenAddress::Tcp(bound.unwrap_or(address)))
            }
            Some(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                let address = SockAddr::unix(path)?;
                match socket.bind(&address) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                        fs::remove_file(path)?;
                        socket.bind(&address)?;
                    }
                    bound => bound?,
                }
                (socket, ListenAddress::Unix(Node::new(path)?))
            }
        };
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG)?;
        Ok(Bound { socket, at })
    }

    pub(super) fn target(&self) -> Target {
        match &self.at {
            ListenAddress::Tcp(address) => Target::Tcp(*address),
            ListenAddress::Unix(node) => Target::Unix(node.path.clone()),
        }
    }

    /// For the calling thread's runtime; a unix socket's path exists as long as the second value.
    pub(super) fn listen(self) -> io::Result<(Listener, Option<Node>)> {
        Ok(match self.at {
            ListenAddress::Tcp(_) => (Listener::Tcp(TcpListener::from_std(self.socket.into())?), None),
            ListenAddress::Unix(node) => (Listener::Unix(UnixListener::from_std(self.socket.into())?), Some(node)),
        })
    }
}

/// Whether a socket is there on which nobody listens.
fn is_abandoned(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The path of a unix socket, removed with this value if it is still the same one.
pub(super) struct Node {
    path: PathBuf,
    inode: (u64, u64),
}

impl Node {
    fn new(path: &Path) -> io::Result<Node> {
        Ok(Node { inode: inode(path)?, path: path.to_owned() })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
