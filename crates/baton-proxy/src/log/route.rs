//! The way of a core to one log target. A line that cannot go out at once is counted and lost, never waited for.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::output::losses::{self, Losses};
use baton_kernel::output::ring::{self, Ring};
use baton_kernel::output::{self, Output};
use baton_model::LogAddress;
use rustix::io::Errno;

/// How long after a socket could not be had it is tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// A log target's address, with what sends to it.
#[derive(Debug)]
pub(super) struct LogRoute {
    address: LogAddress,
    losses: Arc<Losses>,
    carrier: RefCell<Carrier>,
    /// Not before this is another carrier tried for.
    again: Cell<Option<Instant>>,
}

#[derive(Debug)]
enum Carrier {
    Udp(UdpTarget),
    Unix(UnixDatagram),
    Stream(Arc<Output>),
    Ring(Arc<Ring>),
    /// The system refused it.
    Refused(io::Error),
}

impl LogRoute {
    /// A way to this address. The socket is opened here, while there are descriptors.
    pub(super) fn new(address: &LogAddress) -> LogRoute {
        let carrier = Carrier::open(address);
        let losses = match &carrier {
            Carrier::Stream(output) => output.losses().clone(),
            Carrier::Udp(_) | Carrier::Unix(_) | Carrier::Ring(_) | Carrier::Refused(_) => {
                losses::of(&address.to_string())
            }
        };
        LogRoute { address: address.clone(), losses, carrier: RefCell::new(carrier), again: Cell::new(None) }
    }

    /// Whether its losses are counted under this name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.losses.name() == name
    }

    /// Sends a line, or counts it as lost.
    pub(super) fn send(&self, line: &[u8], now: Instant) {
        let mut carrier = self.carrier.borrow_mut();
        if matches!(*carrier, Carrier::Refused(_)) && self.again.get().is_none_or(|again| now >= again) {
            self.again.set(Some(now + OPEN_AGAIN));
            *carrier = Carrier::open(&self.address);
        }
        let sent = match (&mut *carrier, &self.address) {
            (Carrier::Udp(socket), _) => socket.send(line),
            // The path is looked up for each line: a syslog daemon that comes back is found.
            (Carrier::Unix(socket), LogAddress::Unix(path)) => socket.send_to(line, path).map(drop),
            (Carrier::Stream(output), _) => return output.write(line),
            (Carrier::Ring(ring), _) => return ring.push(line.strip_suffix(b"\n").unwrap_or(line)),
            (Carrier::Refused(error), _) => return self.losses.add(1, Some(error)),
            (Carrier::Unix(_), _) => Ok(()),
        };
        if let Err(error) = sent {
            self.losses.add(1, Some(&error));
        }
    }
}

/// Whether a log target takes lines, as far as that can be known without sending one.
///
/// # Errors
/// Why not.
pub fn log_target_is_there(address: &LogAddress) -> io::Result<()> {
    match (Carrier::open(address), address) {
        (Carrier::Refused(error), _) => Err(error),
        (Carrier::Unix(socket), LogAddress::Unix(path)) => socket.connect(path),
        (Carrier::Udp(_) | Carrier::Unix(_) | Carrier::Stream(_) | Carrier::Ring(_), _) => Ok(()),
    }
}

impl Carrier {
    fn open(address: &LogAddress) -> Carrier {
        let opened = match address {
            LogAddress::Udp(to) => UdpTarget::open(*to).map(Carrier::Udp),
            LogAddress::Unix(_) => unix_socket().map(Carrier::Unix),
            LogAddress::Stdout => Ok(Carrier::Stream(output::stdout().clone())),
            LogAddress::Stderr => Ok(Carrier::Stream(output::stderr().clone())),
            LogAddress::Fd(number) => output::descriptor(*number).map(Carrier::Stream),
            LogAddress::Ring(name) => Ok(Carrier::Ring(ring::of(name))),
        };
        opened.unwrap_or_else(Carrier::Refused)
    }
}

/// The receiver of datagrams, and the socket that sends them.
///
/// The socket is connected: the kernel looks up the route once and not for each line, which saves a tenth of the cost of sending it. But then our own
/// address is chosen once, too. When the machine has lost it, sending fails, and the lines go by a socket without a connection from then on.
#[derive(Debug)]
struct UdpTarget {
    to: SocketAddr,
    socket: UdpSocket,
    is_connected: bool,
}

impl UdpTarget {
    fn open(to: SocketAddr) -> io::Result<UdpTarget> {
        let socket = udp_socket(to.is_ipv6())?;
        let is_connected = socket.connect(to).is_ok();
        Ok(UdpTarget { to, socket, is_connected })
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        match self.send_once(line) {
            // Its queue is full, or the line is too long: another attempt would fail, too.
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    || error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) =>
            {
                Err(error)
            }
            // An earlier datagram's ICMP error is reported here; the line itself was not sent then.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.send_once(line),
            Err(_) if self.is_connected => {
                (self.socket, self.is_connected) = (udp_socket(self.to.is_ipv6())?, false);
                self.send_once(line)
            }
            Err(_) => self.send_once(line),
            Ok(()) => Ok(()),
        }
    }

    fn send_once(&self, line: &[u8]) -> io::Result<()> {
        let sent = match self.is_connected {
            true => self.socket.send(line),
            false => self.socket.send_to(line, self.to),
        };
        sent.map(drop)
    }
}

fn udp_socket(v6: bool) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unix_socket() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need some instant")]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_that_comes_later_gets_the_lines_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let way = LogRoute::new(&LogAddress::Unix(path.clone()));
        let now = Instant::now();
        way.send(b"early\n", now);
        let reason = |count: u64, reason: &str| assert_eq!((way.losses.lost(), &*way.losses.reason()), (count, reason));
        reason(1, "No such file or directory");
        for turn in 0..2 {
            let collector = UnixDatagram::bind(&path).unwrap();
            way.send(b"line\n", now);
            let mut line = [0; 20];
            let length = collector.recv(&mut line).unwrap();
            assert_eq!(&line[..length], b"line\n");
            drop(collector);
            way.send(b"late\n", now);
            reason(2 + turn, "Connection refused");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn it_is_known_at_once_whether_a_unix_socket_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let address = LogAddress::Unix(path.clone());
        let reason = || log_target_is_there(&address).err().and_then(|error| error.raw_os_error());
        assert_eq!(reason(), Some(libc::ENOENT));
        let collector = UnixDatagram::bind(&path).unwrap();
        assert_eq!(reason(), None);
        drop(collector);
        assert_eq!(reason(), Some(libc::ECONNREFUSED));
        assert!(log_target_is_there(&LogAddress::Fd(12345)).is_err());
        assert!(log_target_is_there(&LogAddress::Stdout).is_ok());
    }

    #[test]
    fn lines_arrive_when_nobody_listened_before_and_when_the_own_address_is_lost() {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let way = LogRoute::new(&LogAddress::Udp(address));
        let now = Instant::now();
        way.send(b"nobody there\n", now);
        let collector = UdpSocket::bind(address).unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut line = [0; 20];
        let mut read = || collector.recv(&mut line).map(|length| line[..length].to_vec()).unwrap();
        way.send(b"refused before\n", now);
        assert_eq!(read(), b"refused before\n");
        // What a lost address does to it: a connected socket that cannot reach the receiver.
        let Carrier::Udp(target) = &mut *way.carrier.borrow_mut() else { panic!("by UDP") };
        assert!(target.is_connected);
        target.socket = UdpSocket::bind("[::1]:0").unwrap();
        target.send(b"by another socket\n").unwrap();
        assert_eq!(read(), b"by another socket\n");
        assert!(!target.is_connected);
        target.send(b"and on\n").unwrap();
        assert_eq!(read(), b"and on\n");
        assert_eq!(way.losses.lost(), 0);
    }

    #[test]
    fn a_socket_that_was_refused_is_tried_again_once_a_second() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let way = LogRoute::new(&LogAddress::Udp(collector.local_addr().unwrap()));
        let refuse = || *way.carrier.borrow_mut() = Carrier::Refused(io::Error::from_raw_os_error(libc::EMFILE));
        let start = Instant::now();
        refuse();
        way.send(b"first\n", start);
        assert_eq!(way.losses.lost(), 0, "the first attempt is made at once");
        refuse();
        way.send(b"second\n", start + Duration::from_millis(999));
        assert_eq!((way.losses.lost(), &*way.losses.reason()), (1, "Too many open files"));
        way.send(b"third\n", start + OPEN_AGAIN);
        let mut line = [0; 20];
        let mut read = || collector.recv(&mut line).map(|length| line[..length].to_vec()).unwrap();
        assert_eq!([read(), read()], [b"first\n".to_vec(), b"third\n".to_vec()]);
        assert_eq!(way.losses.lost(), 1);
    }
}
