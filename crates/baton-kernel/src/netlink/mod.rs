//! Netlink, the kernel's own language for queueing disciplines, filters, queues and links: one blocking socket that asks and
//! waits for the answer, and batches that are applied whole or not at all.
//!
//! Here are sockets, framing and errors (RFC 3549; Linux' `netlink(7)`, `include/uapi/linux/netlink.h` and `netfilter/nfnetlink.h` for
//! the numbers). What the messages mean is in the modules beside this one.

mod attributes;
mod events;
mod generic;
mod message;

pub use attributes::{Attribute, Attributes, Reader};
pub use generic::Generic;
pub(crate) use generic::attributes as generic_attributes;
pub(crate) use message::UNNAMED;
pub use message::{Reply, Request};

use std::fmt;
use std::io;
use std::time::Duration;

use netlink_sys::SocketAddr;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use message::{ReplyKind, answers};

/// How long one answer may take. The kernel has answered when `send` returns; more than this is a fault of the kernel.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that wait to be read at most: a batch of thousands of messages is acknowledged message by message.
const RECEIVE_BYTES: usize = 4 << 20;
/// Bytes of one read: the kernel fills at most half of it with parts of a list.
const DATAGRAM_BYTES: usize = 64 << 10;
/// How often a list that changed while it was read is asked for again.
const LIST_TRIES: usize = 8;
/// Events kept that came before the answer to a question.
const UNASKED_MAX: usize = 4096;
/// First and last message of a batch (`NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`).
const BATCH: (u16, u16) = (0x10, 0x11);

/// Which part of the kernel a socket speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes, queueing disciplines (`NETLINK_ROUTE`).
    Route,
    /// nftables, ipset, queues (`NETLINK_NETFILTER`).
    Netfilter,
    /// Sockets and their states (`NETLINK_SOCK_DIAG`).
    SockDiag,
    /// Families that have a name and no number of their own (`NETLINK_GENERIC`); see [`Generic`].
    Generic,
}

impl Protocol {
    fn number(self) -> isize {
        use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG};
        match self {
            Self::Route => NETLINK_ROUTE,
            Self::Netfilter => NETLINK_NETFILTER,
            Self::SockDiag => NETLINK_SOCK_DIAG,
            Self::Generic => NETLINK_GENERIC,
        }
    }
}

/// What to do where the right to change or see the network's rules is missing.
pub const NO_RIGHT: &str = "it needs CAP_NET_ADMIN in this network namespace: run as root, or grant the capability";

/// Why a request to the kernel failed.
#[derive(Debug)]
pub enum NetlinkError {
    /// It refused a message, and nothing of its batch was done.
    Refused {
        /// Which message of the batch, from 0.
        message: usize,
        /// The reason's number.
        errno: Errno,
        /// The reason in the kernel's words, where it has any (`NLMSGERR_ATTR_MSG`).
        said: Option<String>,
    },
    /// The socket failed, or the answer makes no sense.
    Socket(io::Error),
}

impl NetlinkError {
    /// The number of the refusal, if it is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Socket(_) => None,
        }
    }

    /// Whether a right is missing: nearly always CAP_NET_ADMIN in the user namespace that owns the network namespace.
    pub fn is_no_right(&self) -> bool {
        match self {
            Self::Refused { errno, .. } => matches!(errno, Errno::EPERM | Errno::EACCES),
            Self::Socket(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { errno, said: Some(said), .. } => write!(f, "the kernel refused: {} ({said})", errno.desc()),
            Self::Refused { errno, said: None, .. } => write!(f, "the kernel refused: {}", errno.desc()),
            Self::Socket(error) => write!(f, "netlink: {error}"),
        }
    }
}

impl std::error::Error for NetlinkError {}

impl From<io::Error> for NetlinkError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// A socket that asks one thing at a time, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    socket: netlink_sys::Socket,
    /// The number of the last message sent.
    sequence: u32,
    /// Messages nobody asked for that came before an answer; see [`Socket::events`].
    unasked: Vec<Reply>,
}

impl Socket {
    /// Opens one. It takes no right; what is asked may.
    ///
    /// # Errors
    /// Of the system, such as a kernel without this protocol.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol.number())?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Both only improve what is told of errors; old kernels have neither.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        // Without the right to more, the kernel's limit is what one gets.
        let _ = socket.set_rx_buf_sz(RECEIVE_BYTES);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::milliseconds(PATIENCE.as_millis() as i64))?;
        Ok(Self { socket, sequence: 0, unasked: Vec::new() })
    }

    /// Sends one message, waits until it is done, and gives what was answered.
    ///
    /// # Errors
    /// The kernel's refusal, or a fault of the socket.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<Reply>, NetlinkError> {
        let number = self.next();
        self.send(&request.framed(libc::NLM_F_ACK as u16, number))?;
        self.answers(&[number], number)
    }

    /// Asks for a list (`NLM_F_DUMP`), again when it changed while it was read.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); `EINTR` for a list that never stood still.
    pub fn list(&mut self, request: &Request) -> Result<Vec<Reply>, NetlinkError> {
        for _ in 0..LIST_TRIES {
            let number = self.next();
            self.send(&request.framed(libc::NLM_F_DUMP as u16, number))?;
            match self.answers(&[number], number) {
                Err(NetlinkError::Refused { errno: Errno::EINTR, .. }) => {}
                answered => return answered,
            }
        }
        Err(NetlinkError::Refused { message: 0, errno: Errno::EINTR, said: None })
    }

    /// Sends messages to one part of netfilter (`subsystem`: `NFNL_SUBSYS_…`) as one transaction: all are done, or none is.
    ///
    /// # Errors
    /// The first refusal, which says which message it was; then nothing was done.
    pub fn transact(&mut self, subsystem: u16, requests: &[Request]) -> Result<Vec<Reply>, NetlinkError> {
        let frame = |kind| {
            let mut fixed = [0, 0, 0, 0];
            fixed[2..].copy_from_slice(&subsystem.to_be_bytes());
            Request::new(kind, 0, &fixed, &Attributes::new())
        };
        let first = self.next();
        let mut bytes = frame(BATCH.0).framed(0, first);
        let mut numbers = Vec::with_capacity(requests.len());
        for request in requests {
            numbers.push(self.next());
            bytes.extend(request.framed(libc::NLM_F_ACK as u16, self.sequence));
        }
        let last = self.next();
        bytes.extend(frame(BATCH.1).framed(0, last));
        self.send(&bytes)?;
        self.answers(&numbers, first)
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(bytes, 0)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::Error::other("a message was sent in part")) }
    }

    /// Reads until each message of `numbers` was answered, or the one that stands for all of them (`whole`) was refused.
    fn answers(&mut self, numbers: &[u32], whole: u32) -> Result<Vec<Reply>, NetlinkError> {
        let mut replies = Vec::new();
        let mut refused: Option<NetlinkError> = None;
        let mut open = numbers.len();
        while open > 0 {
            let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
            let (_, from) = self.socket.recv_from(&mut datagram, 0)?;
            if from.port_number() != 0 {
                continue; // another process, not the kernel
            }
            for answer in answers(&datagram)? {
                let (number, answer) = answer?;
                let message = numbers.iter().position(|known| *known == number);
                if message.is_none() && number != whole {
                    // An event has no number.
                    if let (ReplyKind::Reply(reply), 0) = (answer, number)
                        && self.unasked.len() < UNASKED_MAX
                    {
                        self.unasked.push(reply);
                    }
                    continue; // of a request that was given up
                }
                match answer {
                    ReplyKind::Reply(reply) => replies.push(reply),
                    ReplyKind::Done => open -= usize::from(message.is_some()),
                    ReplyKind::Refused(errno, said) => {
                        refused.get_or_insert(NetlinkError::Refused { message: message.unwrap_or(0), errno, said });
                        open = if message.is_some() { open - 1 } else { 0 };
                    }
                }
            }
        }
        refused.map_or(Ok(replies), Err)
    }
}

#[cfg(test)]
mod tests;
