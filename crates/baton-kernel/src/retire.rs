//! Taking a listening socket out of service without losing anybody who reached it.
//!
//! Closing a listening socket resets every connection that waits in its queue and every handshake under way. So
//! a socket is retired in three moves, and the caller keeps accepting all the while:
//!
//! 1. [`Retiring::start`]: no new connection can begin. On TCP a packet filter drops SYNs, which a client takes
//!    for a lost packet: it repeats them, and reaches whoever listens on the address next. On a unix socket the
//!    path is removed and the receiving side shut down, which makes `connect` fail and keeps the queue.
//! 2. Accept, until [`Retiring::is_empty`]. Handshakes begun before the filter end normally.
//! 3. Drop it.
//!
//! What remains: with SYN cookies in use (a flood filled the queue of half-open connections) a handshake under
//! way leaves no trace that could be counted; a caller that saw none half-open should linger for a second
//! anyway. A unix socket has no handshake and no such gap.
//!
//! Every socket of a `SO_REUSEPORT` group has its own filter: retire all shards of an address together, or
//! first steer new connections away from a shard with [`ListenerGroup::shrink`](crate::ListenerGroup::shrink).
//! All of this acts on the *socket*: a process that shares it (a master) is affected alike.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

use crate::half_open::Handshakes;
use crate::sockopt;
use crate::{Endpoint, Listening};

/// `TCP_LISTEN` (include/net/tcp_states.h).
const STATE_LISTEN: u8 = 10;
/// Offset of the flags in a TCP header (RFC 9293, 3.1). A socket's filter sees a packet from its TCP header on.
const TCP_FLAGS: u32 = 13;
/// SYN and ACK, as bits of that byte.
const SYN_AND_ACK: u32 = 0x12;
/// SYN alone.
const SYN: u32 = 0x02;
/// "Keep the whole packet", as a filter's result.
const KEEP: u32 = u32::MAX;

/// The filter that keeps connections from starting: it drops packets with SYN and without ACK.
#[derive(Debug)]
pub struct SynFilter;

impl SynFilter {
    /// Attaches the filter to a listening TCP socket. From then on a client's SYN is lost, silently.
    ///
    /// Connections accepted later inherit the filter, which does no harm but that a stray SYN inside them is
    /// not answered; [`SynFilter::detach`] takes it off them.
    pub fn attach(listening: &impl AsFd) -> io::Result<()> {
        SockRef::from(listening).attach_filter(&syn_filter())
    }

    /// Takes the filter (any filter) off a socket. A socket without one is no error.
    pub fn detach(socket: &impl AsFd) -> io::Result<()> {
        match SockRef::from(socket).detach_filter() {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Has the kernel refuse to take the filter off for as long as the socket lives, for tests of what follows from that.
    #[doc(hidden)]
    pub fn lock(socket: &impl AsFd) -> io::Result<()> {
        sockopt::set_int(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
    }

    /// Whether a filter is attached.
    pub fn is_attached(socket: &impl AsFd) -> io::Result<bool> {
        // With room for nothing the kernel answers with the length of the program.
        Ok(sockopt::bytes_of(socket, libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut [])? > 0)
    }
}

fn syn_filter() -> [SockFilter; 5] {
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, TCP_FLAGS),
        SockFilter::new(AND, 0, 0, SYN_AND_ACK),
        SockFilter::new(IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, KEEP),
    ]
}

/// The queue of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Complete connections waiting to be accepted.
    pub waiting: u32,
    /// How many may wait.
    pub limit: u32,
}

/// How many connections wait in the queue of a listening TCP socket (`TCP_INFO`).
///
/// # Errors
/// `InvalidInput` when the socket does not listen.
pub fn accept_queue(listening: &impl AsFd) -> io::Result<AcceptQueue> {
    // The first 32 bytes of struct tcp_info (linux/tcp.h): eight single bytes, the state first, then words of
    // four: rto, ato, snd_mss, rcv_mss, unacked, sacked. On a listening socket the last two are the queue's
    // length and limit.
    let mut info = [0; 32];
    let length = sockopt::bytes_of(listening, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    if length < info.len() || info[0] != STATE_LISTEN {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening TCP socket"));
    }
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    Ok(AcceptQueue { waiting: word(24), limit: word(28) })
}

/// A listening socket that takes no new connections.
#[derive(Debug)]
pub struct Retiring {
    listening: Listening,
}

/// A socket that could not be retired, given back as it was.
#[derive(Debug)]
pub struct RetireError {
    /// Still in service.
    pub listening: Listening,
    /// The system's words.
    pub source: io::Error,
}

impl Retiring {
    /// Lets no new connection begin. A unix socket's file is removed unless it is another socket's by now.
    pub fn start(listening: Listening) -> Result<Retiring, Box<RetireError>> {
        let stopped = match listening.local() {
            Endpoint::Inet(_) => SynFilter::attach(&listening),
            Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Fd(_) => stop_unix(&listening),
        };
        match stopped {
            Ok(()) => Ok(Retiring { listening }),
            Err(source) => Err(Box::new(RetireError { listening, source })),
        }
    }

    /// A TCP socket from which somebody else who holds it keeps new connections already; given back if nobody does.
    pub fn found(listening: Listening) -> Result<Retiring, Listening> {
        match SynFilter::is_attached(&listening) {
            Ok(true) => Ok(Retiring { listening }),
            Ok(false) | Err(_) => Err(listening),
        }
    }

    /// The socket, to accept from.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// The socket as it is: whoever takes it knows whether new connections are still kept from it.
    pub fn into_listening(self) -> Listening {
        self.listening
    }

    /// Whether nothing is left: no handshake under way, nothing in the queue. Unix: ask only after `accept` has
    /// answered `None`, which is the whole truth there.
    ///
    /// # Errors
    /// When the kernel tells nothing of handshakes; then linger for some seconds instead.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.is_empty_beside(&mut Handshakes::default())
    }

    /// As [`Retiring::is_empty`], of one of many sockets that are looked at now.
    ///
    /// # Errors
    /// As [`Retiring::is_empty`].
    pub fn is_empty_beside(&self, handshakes: &mut Handshakes) -> io::Result<bool> {
        match self.listening.local() {
            // In this order: a handshake that ends in between moves into the queue, which is looked at later.
            Endpoint::Inet(_) => {
                Ok(handshakes.at(&self.listening)? == 0 && accept_queue(&self.listening)?.waiting == 0)
            }
            Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Fd(_) => Ok(true),
        }
    }

    /// Lets new connections in again, for a configuration that wants the address back. Only TCP can.
    ///
    /// # Errors
    /// Of a unix socket, which must be opened anew; and what the system says.
    pub fn let_in(&self) -> io::Result<()> {
        match self.listening.local() {
            Endpoint::Inet(_) => SynFilter::detach(&self.listening),
            Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Fd(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a unix socket that was shut down stays so"))
            }
        }
    }
}

/// The file goes first, so that clients see "no such file" and not a socket that refuses them. Then the shut
/// down: the kernel adds to the queue and looks at this flag under one lock, so what `accept` finds afterwards
/// is all there will ever be.
fn stop_unix(listening: &Listening) -> io::Result<()> {
    if let Some(file) = listening.file() {
        match file.remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    SockRef::from(listening).shutdown(Shutdown::Read)
}

#[cfg(test)]
mod tests;
