//! The socket that the figures come from: one connection for each request, with one deadline for all of the response.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_control::printable;

/// How long a response may take.
const REPLIED_WITHIN: Duration = Duration::from_secs(5);
/// The longest response.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that are read at a time.
const READ: usize = 64 * 1024;

/// Where a process listens for commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Link {
    /// A unix socket.
    Unix(PathBuf),
    /// A host with a port.
    Tcp(String),
}

impl Link {
    /// As it is named on the command line: a path, or `HOST:PORT`.
    pub fn of(text: &str) -> Link {
        let path = text.strip_prefix("unix@").unwrap_or(text);
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        match text.rsplit_once(':') {
            Some((host, port)) if !text.contains('/') && !host.is_empty() && is_port(port) => Link::Tcp(text.into()),
            _ => Link::Unix(path.into()),
        }
    }

    /// Sends a line of commands; gives all that is replied.
    ///
    /// # Errors
    /// A reason: nobody there, no permission, no reply in time, or too much of it.
    pub fn ask(&self, commands: &str) -> Result<String, String> {
        let end = Instant::now() + REPLIED_WITHIN;
        let reply = match self {
            Link::Unix(path) => UnixStream::connect(path)
                .and_then(|stream| converse(stream, commands, end, |stream, left| stream.set_read_timeout(Some(left)))),
            Link::Tcp(place) => connect(place)
                .and_then(|stream| converse(stream, commands, end, |stream, left| stream.set_read_timeout(Some(left)))),
        };
        reply.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                format!("no reply within {} s", REPLIED_WITHIN.as_secs())
            }
            io::ErrorKind::NotFound => "no such socket".into(),
            io::ErrorKind::PermissionDenied => "no permission to connect to the socket".into(),
            _ => printable::line(&error.to_string()).into_owned(),
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Unix(path) => out.write_str(&printable::line(&path.display().to_string())),
            Link::Tcp(place) => out.write_str(&printable::line(place)),
        }
    }
}

fn connect(place: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, REPLIED_WITHIN) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn converse<S: Read + Write>(
    mut stream: S,
    commands: &str,
    end: Instant,
    limit: impl Fn(&S, Duration) -> io::Result<()>,
) -> io::Result<String> {
    stream.write_all(format!("{commands}\n").as_bytes())?;
    let (mut reply, mut some) = (Vec::new(), vec![0; READ]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        limit(&stream, left)?;
        match stream.read(&mut some) {
            Ok(0) => return Ok(String::from_utf8_lossy(&reply).into_owned()),
            Ok(length) => reply.extend_from_slice(&some[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if reply.len() > BYTES_MAX {
            return Err(io::Error::other(format!("a response of more than {BYTES_MAX} bytes")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_a_host_with_a_port() {
        let check = |text: &str, expect: Link| assert_eq!(Link::of(text), expect, "{text}");
        check("/run/haproxy/admin.sock", Link::Unix("/run/haproxy/admin.sock".into()));
        check("unix@/run/s", Link::Unix("/run/s".into()));
        check("s.sock", Link::Unix("s.sock".into()));
        check("127.0.0.1:9999", Link::Tcp("127.0.0.1:9999".into()));
        check("[::1]:9999", Link::Tcp("[::1]:9999".into()));
        check("./a:1", Link::Unix("./a:1".into()));
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        assert_eq!(Link::Unix(path.clone()).ask("show info"), Err("no such socket".into()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = [0; 10];
            stream.read_exact(&mut line).unwrap();
            stream.write_all(b"reply\n").unwrap();
            line
        });
        assert_eq!(Link::Unix(path.clone()).ask("show info"), Ok("reply\n".into()));
        assert_eq!(&peer.join().unwrap(), b"show info\n");
        assert!(Link::Unix(path).ask("show info").is_err_and(|reason| reason.contains("refused")));
    }
}
