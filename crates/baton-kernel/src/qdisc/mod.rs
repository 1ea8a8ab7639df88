//! Queueing disciplines of an interface, and the filters that choose between their lanes, by routing netlink.
//!
//! What is here: [`Traffic::qdiscs`] and [`Traffic::filters`] list what there is; [`prio`](Traffic::add_prio) has lanes, a
//! [`plug`](Traffic::add_plug) holds what comes into it until it is told otherwise, and a [`Match`] (a `u32` filter) leads
//! the beginnings of connections to a lane. Nothing is replaced: what is there already stays, and the attempt is refused.
//!
//! Numbers and structures are those of Linux' `include/uapi/linux/pkt_sched.h`, `pkt_cls.h` and `rtnetlink.h`.

mod filter;

pub use filter::{Match, TrafficFilter};

use std::fmt;
use std::io;

use nix::errno::Errno;

use crate::netlink::{self, Attributes, Protocol, Reply, Request, Socket};

/// Messages (`RTM_…QDISC`).
const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const GET_QDISC: u16 = 38;
/// Attributes of `struct tcmsg` (`TCA_…`), and of its statistics (`TCA_STATS_…`).
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATISTICS: u16 = 7;
const STATISTICS_BASIC: u16 = 1;
const STATISTICS_QUEUE: u16 = 3;
/// Bytes of `struct tcmsg`.
const TCMSG: usize = 20;
/// A message that makes something new, and never takes the place of what is there.
const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;

/// For each of the 16 priorities of a packet its lane, as the kernel's own `pfifo_fast` and `prio` have it. No packet gets into a
/// fourth lane by its priority.
const PRIORITIES: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// Which discipline, or which of its lanes: `MAJOR:minor`, 16 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// What an interface sends through (`TC_H_ROOT`).
    pub const ROOT: Handle = Handle(u32::MAX);

    /// A discipline, whose minor number is 0.
    pub const fn qdisc(major: u16) -> Handle {
        Handle((major as u32) << 16)
    }

    /// One of its lanes, from 1.
    pub const fn lane(self, lane: u16) -> Handle {
        Handle(self.0 & 0xffff_0000 | lane as u32)
    }

    /// The discipline's number. 0 for those that the kernel attached automatically.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Display for Handle {
    /// As `tc` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Handle::ROOT {
            return f.write_str("root");
        }
        write!(f, "{:x}:", self.major())?;
        if self.0 & 0xffff == 0 { Ok(()) } else { write!(f, "{:x}", self.0 & 0xffff) }
    }
}

/// A queueing discipline that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// `prio`, `plug`, `noqueue` …
    pub kind: String,
    /// Its number; major 0 for what the kernel attached automatically.
    pub handle: Handle,
    /// Whose lane it is, or the root.
    pub parent: Handle,
    /// Packets that wait in it now.
    pub waiting: u32,
    /// Packets it has let through.
    pub sent: u32,
    /// Packets it has dropped.
    pub dropped: u32,
}

impl Qdisc {
    /// Whether it is an interface's root and the kernel's own choice: then nothing is lost by putting another one there, for
    /// when that one goes, the kernel makes its choice again.
    pub fn is_default(&self) -> bool {
        self.handle.major() == 0
    }
}

/// What a plug is told (`TCQ_PLUG_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plug {
    /// Hold what comes from now on.
    Buffer,
    /// Let go what had come before the last `Buffer`.
    ReleaseOne,
    /// Let go what is there and all that comes.
    ReleaseIndefinite,
    /// Hold so many bytes at most, and drop what comes above.
    Limit(u32),
}

impl Plug {
    /// `struct tc_plug_qopt`.
    fn options(self) -> Vec<u8> {
        let (action, limit): (i32, u32) = match self {
            Plug::Buffer => (0, 0),
            Plug::ReleaseOne => (1, 0),
            Plug::ReleaseIndefinite => (2, 0),
            Plug::Limit(bytes) => (3, bytes),
        };
        [action.to_ne_bytes(), limit.to_ne_bytes()].concat()
    }
}

/// Why a change of queueing disciplines failed.
#[derive(Debug)]
pub enum QdiscError {
    /// There is no such interface here.
    NoInterface(String),
    /// The kernel has not this kind of discipline or filter, and found no module that has.
    NoModule {
        /// The module.
        module: String,
        /// What was refused.
        place: String,
    },
    /// The kernel refused something else.
    Refused {
        /// What was refused, as `tc` would have it.
        place: String,
        /// Why.
        fault: netlink::NetlinkError,
    },
}

impl QdiscError {
    /// Whether a right is missing: CAP_NET_ADMIN.
    pub fn is_no_right(&self) -> bool {
        matches!(self, QdiscError::Refused { fault, .. } if fault.is_no_right())
    }

    /// The number of the refusal, if it is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            QdiscError::Refused { fault, .. } => fault.errno(),
            QdiscError::NoInterface(_) | QdiscError::NoModule { .. } => None,
        }
    }

    /// What may help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            QdiscError::NoInterface(_) => Some("`ip link` lists the interfaces of this network namespace"),
            QdiscError::NoModule { .. } => Some("load the module, or boot a kernel that has it"),
            QdiscError::Refused { .. } if self.is_no_right() => Some(netlink::NO_RIGHT),
            QdiscError::Refused { .. } => None,
        }
    }
}

impl fmt::Display for QdiscError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QdiscError::NoInterface(name) => write!(f, "there is no interface '{name}'"),
            QdiscError::NoModule { module, place } => write!(f, "{place}: the kernel has no module {module}"),
            QdiscError::Refused { place, fault } => write!(f, "{place}: {fault}"),
        }
    }
}

impl std::error::Error for QdiscError {}

/// The disciplines and filters of one interface, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Traffic {
    socket: Socket,
    interface: String,
    index: u32,
}

impl Traffic {
    /// For an interface with a name. Takes no right to look, and CAP_NET_ADMIN to change.
    ///
    /// # Errors
    /// When there is none, or no netlink.
    pub fn of(interface: &str) -> Result<Self, QdiscError> {
        let index =
            nix::net::if_::if_nametoindex(interface).map_err(|_| QdiscError::NoInterface(interface.to_owned()))?;
        let socket = Socket::open(Protocol::Route).map_err(|error| QdiscError::Refused {
            place: format!("interface {interface}"),
            fault: netlink::NetlinkError::Socket(error),
        })?;
        Ok(Self { socket, interface: interface.to_owned(), index })
    }

    /// Its name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// All its disciplines.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn qdiscs(&mut self) -> Result<Vec<Qdisc>, QdiscError> {
        let request = Request::new(GET_QDISC, 0, &self.message(Handle(0), Handle(0), 0), &Attributes::new());
        let listed = self.socket.list(&request);
        let replies = self.judge("qdisc show", None, listed)?;
        Ok(replies.iter().filter(|reply| index(reply) == Some(self.index)).filter_map(qdisc).collect())
    }

    /// The one that it sends through.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn root(&mut self) -> Result<Option<Qdisc>, QdiscError> {
        Ok(self.qdiscs()?.into_iter().find(|qdisc| qdisc.parent == Handle::ROOT))
    }

    /// Puts a `prio` with so many lanes at the root, where only the kernel's own choice is. Packets are put into the first three by
    /// their priority, as without it; the others get what filters lead there.
    ///
    /// On a busy interface the change loses packets that are on their way at that moment; TCP sends them again.
    ///
    /// # Errors
    /// `EEXIST` when somebody has put a discipline there.
    pub fn add_prio(&mut self, handle: Handle, lanes: u16) -> Result<(), QdiscError> {
        let mut options = i32::from(lanes).to_ne_bytes().to_vec();
        options.extend(PRIORITIES);
        self.add_qdisc("prio", Handle::ROOT, handle, &options)
    }

    /// Puts a plug that holds `bytes` at most below a lane. It is closed: what comes waits until it is told to let go.
    ///
    /// # Errors
    /// `EEXIST` when there is one.
    pub fn add_plug(&mut self, lane: Handle, handle: Handle, bytes: u32) -> Result<(), QdiscError> {
        self.add_qdisc("plug", lane, handle, &Plug::Limit(bytes).options())
    }

    fn add_qdisc(&mut self, kind: &str, parent: Handle, handle: Handle, options: &[u8]) -> Result<(), QdiscError> {
        let attributes = Attributes::new().text(KIND, kind).raw(OPTIONS, options);
        let request = Request::new(NEW_QDISC, CREATE, &self.message(handle, parent, 0), &attributes);
        let done = self.socket.ask(&request);
        let place = format!("qdisc add parent {parent} handle {handle} {kind}");
        self.judge(&place, Some(&format!("sch_{kind}")), done).map(drop)
    }

    /// Tells a plug something.
    ///
    /// # Errors
    /// When it is not there.
    pub fn tell_plug(&mut self, lane: Handle, handle: Handle, what: Plug) -> Result<(), QdiscError> {
        let attributes = Attributes::new().text(KIND, "plug").raw(OPTIONS, &what.options());
        let request = Request::new(NEW_QDISC, 0, &self.message(handle, lane, 0), &attributes);
        let done = self.socket.ask(&request);
        self.judge(&format!("qdisc change parent {lane} handle {handle} plug {what:?}"), None, done).map(drop)
    }

    /// Removes the discipline with this handle from the root, with all below it and its filters; the kernel's own choice comes
    /// back. What waits in it is lost, and as with [`add_prio`](Self::add_prio) what is on its way. Gives whether it was there.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn delete_root(&mut self, handle: Handle) -> Result<bool, QdiscError> {
        let request = Request::new(DELETE_QDISC, 0, &self.message(handle, Handle::ROOT, 0), &Attributes::new());
        match self.socket.ask(&request) {
            // The root is another one, or the kernel's own.
            Err(netlink::NetlinkError::Refused { errno: Errno::ENOENT | Errno::EINVAL, .. }) => Ok(false),
            done => self.judge(&format!("qdisc del root handle {handle}"), None, done).map(|_| true),
        }
    }

    /// `struct tcmsg`.
    fn message(&self, handle: Handle, parent: Handle, information: u32) -> Vec<u8> {
        [0, self.index, handle.0, parent.0, information].map(u32::to_ne_bytes).concat()
    }

    /// Names the place of a refusal. `module` is what the kernel lacks when it says that there is no such thing.
    fn judge<T>(
        &self,
        place: &str,
        module: Option<&str>,
        done: Result<T, netlink::NetlinkError>,
    ) -> Result<T, QdiscError> {
        done.map_err(|fault| {
            let place = format!("interface {}: {place}", self.interface);
            match (fault.errno(), module) {
                (Some(Errno::ENOENT), Some(module)) => QdiscError::NoModule { module: module.to_owned(), place },
                _ => QdiscError::Refused { place, fault },
            }
        })
    }
}

/// The number at a place of `struct tcmsg`.
fn number(reply: &Reply, at: usize) -> Option<u32> {
    reply.body.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn index(reply: &Reply) -> Option<u32> {
    number(reply, 4)
}

fn qdisc(reply: &Reply) -> Option<Qdisc> {
    let attributes = reply.attributes(TCMSG);
    let statistics = attributes.find(STATISTICS).map(|found| found.nested());
    let figure = |kind, at| {
        let bytes = statistics.and_then(|all| all.find(kind))?.value.get(at..)?;
        bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    };
    Some(Qdisc {
        kind: attributes.find(KIND)?.text()?.to_owned(),
        handle: Handle(number(reply, 8)?),
        parent: Handle(number(reply, 12)?),
        // `struct gnet_stats_queue`: length, bytes, drops; `struct gnet_stats_basic`: bytes (64 bits), packets.
        waiting: figure(STATISTICS_QUEUE, 0).unwrap_or_default(),
        dropped: figure(STATISTICS_QUEUE, 8).unwrap_or_default(),
        sent: figure(STATISTICS_BASIC, 8).unwrap_or_default(),
    })
}

impl From<QdiscError> for io::Error {
    fn from(fault: QdiscError) -> io::Error {
        io::Error::other(fault.to_string())
    }
}

#[cfg(test)]
mod tests;
