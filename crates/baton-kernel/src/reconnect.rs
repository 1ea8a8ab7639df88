//! TCP sockets that connect again and again, and that are watched together.
//!
//! A health check is a connection that lives for a moment. Most of what it costs is not the connection but the socket around it: to create it, to
//! set its options, to register it with the reactor, to deregister it and to close it. [`Reconnecting`] does all that once: connecting to no
//! address ends a connection by a reset and leaves the socket, with its options, for the next one. [`SocketSet`] watches such sockets for as long
//! as they exist: one call tells what happened to all of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::connect::{self, ConnectError, ConnectOptions, ConnectStep};
use crate::sockopt;

/// Events that one call fetches; what is left is fetched by the next.
const EVENTS_MAX: usize = 256;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A socket without a connection, or with one. Closing it resets its connection. Non-blocking and close-on-exec.
#[derive(Debug)]
pub struct Reconnecting {
    socket: Socket,
}

impl Reconnecting {
    /// A socket without a connection. With `delays_ack` the acknowledgement that completes a connection waits for the first bytes that are
    /// sent: a packet less, and a server never accepts a connection that is ended before.
    ///
    /// # Errors
    /// Those of the kernel, with the step that failed.
    pub fn open(is_ipv6: bool, options: &ConnectOptions, delays_ack: bool) -> Result<Reconnecting, ConnectError> {
        let at = |step| move |source| ConnectError { step, source };
        let domain = if is_ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
            .map_err(at(ConnectStep::Socket))?;
        connect::set_options(&socket, is_ipv6, options)?;
        socket.set_linger(Some(Duration::ZERO)).map_err(at(ConnectStep::Option("linger")))?;
        if delays_ack {
            // Unlike TCP_QUICKACK, a connecting socket keeps it from one connection to the next. Without it the packet is sent.
            let _ = sockopt::set_int(&socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1);
        }
        Ok(Reconnecting { socket })
    }

    /// Starts connecting. The connection is there, or has failed, when the socket is reported as writable.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), ConnectError> {
        match rustix::net::connect(&self.socket, &peer) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
            Err(error) => Err(ConnectError { step: ConnectStep::Connect, source: error.into() }),
        }
    }

    /// Ends the connection by a reset.
    ///
    /// # Errors
    /// The kernel does not do this: the socket is of no use any more.
    pub fn disconnect(&self) -> io::Result<()> {
        Ok(rustix::net::connect_unspec(&self.socket)?)
    }

    /// Reads what is there; 0 is the end of the stream.
    ///
    /// # Errors
    /// Those of the kernel; [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing is there.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.socket, room, RecvFlags::empty())?.0)
    }

    /// Sends what the socket takes of `bytes`.
    ///
    /// # Errors
    /// Those of the kernel; [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room.
    pub fn transmit(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    /// The socket, for errors and addresses.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl AsFd for Reconnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What happened to a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Readiness {
    /// Bytes, the end or an error can be read.
    pub readable: bool,
    /// There is room for bytes.
    pub writable: bool,
    /// The peer has ended its direction: no event follows that would say so again.
    pub ended: bool,
    /// The connection failed or is gone.
    pub failed: bool,
}

/// Sockets that are watched together, on the reactor of the current tokio runtime.
pub struct SocketSet {
    epoll: AsyncFd<OwnedFd>,
    events: Vec<epoll::Event>,
}

impl SocketSet {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// Descriptors or memory ran out.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn new() -> io::Result<SocketSet> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // SAFETY: `OwnedFd` owns an open descriptor, always gives the same one, and closes it only when it is dropped, which the
        // `AsyncFd` that owns it does after deregistering.
        let epoll = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(SocketSet { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches a socket until it is closed. `key` is what its events have.
    ///
    /// # Errors
    /// Memory or the user's share of watches ran out.
    pub fn add(&self, socket: &impl AsFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(self.epoll.get_ref(), socket, epoll::EventData::new_u64(key), flags)?)
    }

    /// Ready when `tell` was called for sockets to which something happened. An event that belongs to an earlier connection of a socket may
    /// be among them, as long as that has no new one.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn poll_events(&mut self, cx: &mut Context<'_>, mut tell: impl FnMut(u64, Readiness)) -> Poll<io::Result<()>> {
        let SocketSet { epoll, events } = self;
        let mut ready = ready!(epoll.poll_read_ready(cx))?;
        events.clear();
        match epoll::wait(epoll.get_ref(), spare_capacity(events), Some(&NOW)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        // A full list: others have their turn before the rest is fetched.
        if events.len() < events.capacity() {
            ready.clear_ready();
        }
        for epoll::Event { flags, data } in events.drain(..) {
            let has = |wanted: epoll::EventFlags| flags.intersects(wanted);
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            let readiness = Readiness {
                readable: has(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | gone),
                writable: has(epoll::EventFlags::OUT | gone),
                ended: has(epoll::EventFlags::RDHUP | gone),
                failed: has(gone),
            };
            tell(data.u64(), readiness);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test);
    }

    /// Waits for the first event of a socket with a connection.
    async fn event(set: &mut SocketSet, key: u64) -> Readiness {
        loop {
            let mut found = None;
            let fetched = poll_fn(|cx| {
                set.poll_events(cx, |of, readiness| {
                    if of == key {
                        found = Some(readiness);
                    }
                })
            });
            fetched.await.expect("the kernel tells");
            if let Some(readiness) = found {
                return readiness;
            }
        }
    }

    #[test]
    fn one_socket_connects_many_times_and_each_end_is_a_reset() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let peer = listener.local_addr().expect("bound");
            let mut set = SocketSet::new().expect("an epoll");
            let socket = Reconnecting::open(false, &ConnectOptions::default(), false).expect("a socket");
            set.add(&socket, 7).expect("watched");
            for _ in 0..3 {
                socket.connect(peer).expect("started");
                let found = event(&mut set, 7).await;
                assert!(found.writable && !found.failed, "{found:?}");
                let (mut accepted, _) = listener.accept().expect("a connection");
                socket.disconnect().expect("linux does");
                let error = accepted.read(&mut [0; 8]).expect_err("no orderly end");
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            }
        });
    }

    #[test]
    fn a_refused_connection_is_reported_and_its_reason_is_there() {
        run(async {
            let peer = {
                let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
                closed.local_addr().expect("bound")
            };
            let mut set = SocketSet::new().expect("an epoll");
            let socket = Reconnecting::open(false, &ConnectOptions::default(), true).expect("a socket");
            set.add(&socket, 1).expect("watched");
            socket.connect(peer).expect("started");
            assert!(event(&mut set, 1).await.failed);
            let error = socket.socket().take_error().expect("asked").expect("there is one");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn with_a_delayed_acknowledgement_nothing_is_accepted() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.set_nonblocking(true).expect("a socket takes it");
            let mut set = SocketSet::new().expect("an epoll");
            let socket = Reconnecting::open(false, &ConnectOptions::default(), true).expect("a socket");
            set.add(&socket, 1).expect("watched");
            for _ in 0..2 {
                socket.connect(listener.local_addr().expect("bound")).expect("started");
                assert!(!event(&mut set, 1).await.failed);
                socket.disconnect().expect("linux does");
            }
            let nothing = listener.accept().expect_err("no connection was completed");
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        });
    }
}
