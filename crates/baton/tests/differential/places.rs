//! The places of a case: addresses that the harness chooses anew for each run and puts where `${NAME}` stands.
//!
//! A listening address is *reserved*: the harness keeps a socket bound to it with SO_REUSEPORT that never listens, so nobody
//! else can be given the port while the program under test, which sets the option as well, can bind it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Connections that try to fill the queue of a listening socket; one or two suffice.
const FILLERS: usize = 4;

/// Where a client connects, or a server of the configuration lives.
#[derive(Debug, Clone)]
pub enum Place {
    Inet(SocketAddr),
    Unix(PathBuf),
}

/// All places of one run, and the sockets that hold them.
#[derive(Debug)]
pub struct Places {
    pub by_name: BTreeMap<String, Place>,
    /// Listening sockets of the origins.
    pub origins: BTreeMap<String, Socket>,
    folder: PathBuf,
    log: SocketAddr,
    /// Reservations and fillers: only held.
    _held: Vec<Socket>,
}

impl Places {
    /// Finds the places that `text` names and takes them.
    pub fn take(text: &str, folder: &Path, log: SocketAddr) -> io::Result<Places> {
        let mut by_name = BTreeMap::new();
        let mut origins = BTreeMap::new();
        let mut held = Vec::new();
        for name in names(text) {
            let place = match name.as_bytes()[0] {
                b'L' | b'D' => {
                    let socket = bound(true)?;
                    let place = address(&socket)?;
                    held.push(socket);
                    place
                }
                b'O' => {
                    let socket = bound(false)?;
                    socket.listen(128)?;
                    let place = address(&socket)?;
                    origins.insert(name.clone(), socket);
                    place
                }
                b'F' => {
                    let socket = bound(false)?;
                    socket.listen(0)?;
                    let place = address(&socket)?;
                    let target = socket.local_addr()?;
                    held.push(socket);
                    for _ in 0..FILLERS {
                        let filler = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
                        filler.set_nonblocking(true)?;
                        // In progress or established: either way it takes its place in the queue or stands before it.
                        let _ = filler.connect(&target);
                        held.push(filler);
                    }
                    place
                }
                _ => Place::Unix(folder.join(format!("{name}.sock"))),
            };
            by_name.insert(name, place);
        }
        Ok(Places { by_name, origins, folder: folder.to_path_buf(), log, _held: held })
    }

    /// `text` with every place written out.
    pub fn fill(&self, text: &str) -> String {
        let mut text =
            text.replace("${DIR}", &self.folder.display().to_string()).replace("${LOG}", &self.log.to_string());
        for (name, place) in &self.by_name {
            text = text.replace(&format!("${{{name}}}"), &place.to_string());
            if let Place::Inet(address) = place {
                text = text.replace(&format!("${{{name}.port}}"), &address.port().to_string());
            }
        }
        text
    }

    /// Port numbers and the names to print in their stead.
    pub fn ports(&self) -> Vec<(u16, String)> {
        self.by_name
            .iter()
            .filter_map(|(name, place)| match place {
                Place::Inet(address) => Some((address.port(), format!("{name}.port"))),
                Place::Unix(_) => None,
            })
            .collect()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Inet(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The names in `${..}` that are places, each once.
fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split("${")
        .skip(1)
        .filter_map(|rest| rest.split(['}', '.']).next())
        .filter(|name| crate::script::is_place(name))
        .map(str::to_string)
        .collect();
    names.sort();
    names.dedup();
    names
}

fn bound(shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // A reservation is for every address: the configuration may listen on any.
    let host = if shared { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    socket.bind(&SockAddr::from(SocketAddrV4::new(host, 0)))?;
    // Only now, so that the port cannot be one that is shared already.
    socket.set_reuse_address(shared)?;
    socket.set_reuse_port(shared)?;
    Ok(socket)
}

fn address(socket: &Socket) -> io::Result<Place> {
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    Ok(Place::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}
