//! What operators are shown of a client's connection (`show sess`). Written by the connection's task with plain stores, read by the same
//! core between two turns. A connection that waits for its next request notes neither a backend nor a server, so that it keeps no older
//! configuration in memory. Every connection has these notes for its whole life, so they are small: times are [`Moment`]s of four bytes.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ConnectionId;
use crate::balance::ServerState;
use crate::generation::{BackendPlan, FrontendPlan};
use crate::view::{BackendView, FrontendSlot};

/// Bits of a connection's id that are its place and its core; its serial number is in front of them.
const KEY_BITS: u32 = 22;
const CORE_BITS: u32 = 10;

/// What is known of a connection.
#[derive(Default)]
pub struct SessionNotes {
    slot: Cell<Option<Rc<FrontendSlot>>>,
    backend: Cell<Option<Rc<BackendView>>>,
    server: Cell<Option<ServerMark>>,
    source: Cell<Option<SocketAddr>>,
    /// When it was accepted.
    since: Cell<Option<Moment>>,
    /// When the request in work began.
    began: Cell<Option<Moment>>,
    requests: Cell<u32>,
    fd: Cell<i32>,
}

/// Tenths of a second since the process began, from 1: enough for thirteen years.
#[derive(Clone, Copy, Debug)]
pub struct Moment(NonZeroU32);

impl Moment {
    /// What time it is in a process that began at `started`.
    pub fn at(now: Instant, started: Instant) -> Moment {
        let since = now.saturating_duration_since(started);
        let tenths = since.as_secs().saturating_mul(10).saturating_add(u64::from(since.subsec_millis() / 100));
        Moment(u32::try_from(tenths).ok().and_then(|tenths| NonZeroU32::new(tenths + 1)).unwrap_or(NonZeroU32::MAX))
    }

    fn instant(self, started: Instant) -> Instant {
        started + Duration::from_millis(u64::from(self.0.get() - 1) * 100)
    }
}

/// Which server a session is on: the address of its state, which stays where it is as long as a session has a slot there. It is compared,
/// and nothing else.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ServerMark(NonZeroUsize);

/// A session as operators see it.
#[derive(Clone, Debug)]
pub struct SessionDescription {
    /// By what it is named in commands.
    pub id: ConnectionId,
    /// The frontend that it came in by, as it is now.
    pub frontend: Arc<FrontendPlan>,
    /// The backend of the request in work.
    pub backend: Option<Arc<BackendPlan>>,
    /// The server of the request in work.
    pub server: Option<ServerMark>,
    /// The client; `None` on unix sockets.
    pub source: Option<SocketAddr>,
    /// When it was accepted.
    pub since: Instant,
    /// When the request in work began; `None`: none is.
    pub began: Option<Instant>,
    /// Requests so far, with the one in work.
    pub requests: u32,
    /// The descriptor of its socket.
    pub fd: i32,
}

/// Some sessions of a core.
#[derive(Clone, Debug, Default)]
pub struct SessionPage {
    /// They.
    pub sessions: Vec<SessionDescription>,
    /// How many places were looked at.
    pub looked_at: usize,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<usize>,
}

impl ServerMark {
    /// Of a server.
    pub fn of(server: &Arc<ServerState>) -> ServerMark {
        ServerMark(NonZeroUsize::new(Arc::as_ptr(server) as usize).unwrap_or(NonZeroUsize::MAX))
    }
}

impl SessionNotes {
    /// The connection was accepted.
    pub fn accepted(&self, fd: i32, source: Option<SocketAddr>, now: Moment) {
        self.fd.set(fd);
        self.source.set(source);
        self.since.set(Some(now));
    }

    /// An exchange is one of several of the connection with these notes.
    pub fn is_stream_of(&self, connection: &SessionNotes) {
        self.fd.set(connection.fd.get());
        self.source.set(connection.source.get());
        self.since.set(connection.since.get());
        self.slot.set(peek(&connection.slot));
    }

    /// Another address than that of the socket is the client's.
    pub fn comes_from(&self, source: Option<SocketAddr>) {
        self.source.set(source);
    }

    /// The client's address; `None` on unix sockets.
    pub fn source(&self) -> Option<SocketAddr> {
        self.source.get()
    }

    /// Its session belongs to this frontend.
    pub fn enters(&self, slot: &Rc<FrontendSlot>) {
        self.slot.set(Some(Rc::clone(slot)));
    }

    /// A request began.
    pub fn begins(&self, requests: u32, now: Moment) {
        self.requests.set(requests);
        self.began.set(Some(now));
    }

    /// The request goes to this backend.
    pub fn goes_to(&self, backend: &Rc<BackendView>) {
        self.backend.set(Some(Rc::clone(backend)));
    }

    /// The request has a slot at this server.
    pub fn is_at(&self, server: &Arc<ServerState>) {
        self.server.set(Some(ServerMark::of(server)));
    }

    /// No request is in work.
    pub fn rests(&self) {
        self.began.set(None);
        self.server.set(None);
        self.backend.take();
    }

    pub(super) fn is_on(&self, server: ServerMark) -> bool {
        self.server.get() == Some(server)
    }

    /// What there is to show, in a process that began at `started`; `None` in the moment before it has a session.
    pub(super) fn describe(&self, id: ConnectionId, started: Instant) -> Option<SessionDescription> {
        let (frontend, backend) = (peek(&self.slot), peek(&self.backend));
        Some(SessionDescription {
            id,
            frontend: Arc::clone(&frontend?.view().plan),
            backend: backend.map(|backend| Arc::clone(&backend.plan)),
            server: self.server.get(),
            source: self.source.get(),
            since: self.since.get()?.instant(started),
            began: self.began.get().map(|began| began.instant(started)),
            requests: self.requests.get(),
            fd: self.fd.get(),
        })
    }
}

/// What is in a cell, which keeps it.
fn peek<T>(cell: &Cell<Option<Rc<T>>>) -> Option<Rc<T>> {
    let value = cell.take();
    cell.set(value.clone());
    value
}

impl fmt::Debug for SessionNotes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionNotes").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ConnectionId {
    /// The core whose connection it is.
    pub fn core(self) -> usize {
        self.core
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = ((self.core as u64) << KEY_BITS | self.key as u64) & ((1 << (CORE_BITS + KEY_BITS)) - 1);
        write!(out, "{:#x}", u64::from(self.serial) << (CORE_BITS + KEY_BITS) | place)
    }
}

/// It is no such number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoConnectionId;

impl FromStr for ConnectionId {
    type Err = NoConnectionId;

    fn from_str(text: &str) -> Result<ConnectionId, NoConnectionId> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = u64::from_str_radix(digits, 16).map_err(|_| NoConnectionId)?;
        let part = |bits: u32, shift: u32| usize::try_from(number >> shift & ((1 << bits) - 1));
        Ok(ConnectionId {
            core: part(CORE_BITS, KEY_BITS).map_err(|_| NoConnectionId)?,
            key: part(KEY_BITS, 0).map_err(|_| NoConnectionId)?,
            serial: u32::try_from(number >> (CORE_BITS + KEY_BITS)).map_err(|_| NoConnectionId)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_tenths_of_a_second_and_notes_are_small() {
        let started = Instant::now();
        for ms in [0, 99, 100, 12_345_678] {
            let now = started + Duration::from_millis(ms);
            let noted = Moment::at(now, started).instant(started);
            assert_eq!(noted, started + Duration::from_millis(ms / 100 * 100));
        }
        assert!(size_of::<SessionNotes>() <= 72, "{}", size_of::<SessionNotes>());
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        for (core, key, serial) in [(0, 0, 1), (1, 77, 3), (1023, (1 << 22) - 1, u32::MAX)] {
            let id = ConnectionId { core, key, serial };
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "0x", "x", "0x1ffffffffffffffff", "-1"] {
            assert_eq!(text.parse::<ConnectionId>(), Err(NoConnectionId), "{text}");
        }
    }
}
