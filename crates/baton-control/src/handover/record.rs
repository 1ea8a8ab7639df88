//! A connection as it is described to another process.
//!
//! Fields may be added, which who does not know them ignores. What must not be ignored is a word of `needs` ([`super::kinds`]): who does not
//! know it refuses the connection, and it stays where it is. Before there were words, what must not be ignored made a new format: format 1
//! is a connection between two requests, format 2 one with a session in `mode tcp`, format 3 one with a tunnel of HTTP. Times are ages and what is left, for clocks of processes have nothing in common.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proxy::moving::{
    Activity, BegunHead, Departure, HELD_MAX, Http2Protocol, Http2Role, Http2State, IdleClient, KeptFacts, KeptHead,
    MovedTls, PumpState, StayReason, TlsRole, TunnelState, version_text,
};
use baton_tls::rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::in_flight::{Bytes, InFlightRecord};
use super::kinds::{MoveKind, MoveKinds, Takes};
use super::session_record::SessionRecord;
use super::tls_record::TlsRecord;
use crate::listeners::Place;

/// The newest format of records that this program writes, and reads; it reads all before.
pub const FORMAT: u32 = 3;
/// A connection between two requests.
const IDLE: u32 = 1;
/// A session in `mode tcp`.
const TUNNEL: u32 = 2;
/// A tunnel of HTTP: a session with the request and the response that it began with.
const HTTP_TUNNEL: u32 = 3;

/// A description without long parts has no more bytes.
const SHORT_BYTES: usize = 10_000;

/// The longest values of a PROXY header: it has no more.
const PROXY_VALUES_MAX: usize = 1 << 16;

/// The oldest that anything can be: ten years. Dates are made of ages.
const AGE_US_MAX: u64 = 10 * 366 * 24 * 3600 * 1_000_000;

/// What this program takes of connections that move.
pub fn taken() -> Takes {
    Takes { format: FORMAT, kinds: MoveKinds::taken() }
}

/// What the description of this connection needs besides its format.
pub fn needs_of(departure: &Departure) -> MoveKinds {
    let head = departure.tunnel.as_ref().and_then(|tunnel| tunnel.state.facts.head.as_ref());
    let is_long = head.is_some_and(|head| head.line.len() > KeptHead::LINE_MAX);
    let mut needs = MoveKinds::default();
    if departure.left.is_some() || is_long {
        needs.add(MoveKind::SessionState);
    }
    if departure.client.http2.is_some() {
        needs.add(MoveKind::Http2);
    }
    if departure.tunnel.as_ref().is_some_and(|tunnel| tunnel.state.request.is_some()) {
        needs.add(MoveKind::Requests);
    }
    if departure.tls().iter().any(Option::is_some) {
        needs.add(MoveKind::Tls);
    }
    if departure.tunnel.as_ref().is_some_and(|tunnel| tunnel.state.held() > 0) {
        needs.add(MoveKind::HeldBytes);
    }
    if departure.client.head.is_some() {
        needs.add(MoveKind::RequestHeads);
    }
    needs
}

/// Why a connection stays where the other process takes no such.
pub fn reason_of(departure: &Departure, takes: Takes) -> StayReason {
    let has_tls = departure.tls().iter().any(Option::is_some);
    let holds = departure.tunnel.as_ref().is_some_and(|tunnel| tunnel.state.held() > 0);
    match &departure.left {
        _ if holds && !takes.kinds.has(MoveKind::HeldBytes) => StayReason::InFlight,
        _ if has_tls && !takes.kinds.has(MoveKind::Tls) => StayReason::Tls,
        Some(left) if !takes.kinds.has(MoveKind::SessionState) => left.reason_to_stay(),
        _ => StayReason::Unknown,
    }
}

/// The format of what describes this connection.
pub fn format_of(departure: &Departure) -> u32 {
    match &departure.tunnel {
        None => IDLE,
        Some(tunnel) if tunnel.state.facts.head.is_none() => TUNNEL,
        Some(_) => HTTP_TUNNEL,
    }
}

/// A client's connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionRecord {
    /// What one has to know to serve it.
    pub format: u32,
    /// What else one has to know.
    #[serde(skip_serializing_if = "MoveKinds::is_empty")]
    pub needs: MoveKinds,
    /// The frontend that it came in by.
    pub frontend: String,
    /// The address that it was accepted on, as the configuration names it.
    pub address: String,
    /// Its `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its `namespace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The client's address, or what a PROXY header says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SocketAddr>,
    /// The address that it connected to, if `has_destination`; otherwise it is that of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<SocketAddr>,
    /// Whether `destination` holds.
    pub has_destination: bool,
    /// It began with a PROXY header.
    #[serde(skip_serializing_if = "is_false")]
    pub has_proxy_header: bool,
    /// Values of that header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_values: Option<Vec<u8>>,
    /// Since it was accepted, or its handshakes were done; microseconds.
    pub age_us: u64,
    /// How long its handshakes took.
    pub handshake_ms: u32,
    /// Requests so far.
    pub requests: u32,
    /// When the last one ended, milliseconds after the accept.
    pub rested_ms: u32,
    /// What is left until the next one must have begun, microseconds; nothing: it may take its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_us: Option<u64>,
    /// Its session, in formats 2 and 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelRecord>,
    /// What rules have left in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<SessionRecord>,
    /// TLS with the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<TlsRecord>>,
    /// What there is to know of HTTP/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Record>,
    /// The request whose head has begun to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<BegunRecord>,
}

/// A part of a request's head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BegunRecord {
    /// What has come of it.
    pub input: Bytes,
    /// Since it began, microseconds.
    pub began_us: u64,
}

impl BegunRecord {
    fn of(head: &BegunHead, now: Instant) -> BegunRecord {
        let began_us = microseconds(now.saturating_duration_since(head.began));
        BegunRecord { input: Bytes(head.input.clone()), began_us }
    }

    /// `None`: what is said of it cannot be.
    fn head(self, now: Instant) -> Option<Box<BegunHead>> {
        let BegunRecord { input: Bytes(input), began_us } = self;
        let is_possible = (1..=HELD_MAX).contains(&input.len());
        Some(Box::new(BegunHead { began: ago(now, began_us).filter(|_| is_possible)?, input }))
    }
}

/// A connection with HTTP/2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Http2Record {
    /// The state of the protocol.
    pub protocol: serde_json::Value,
    /// What was read and is not taken.
    pub input: Bytes,
}

impl Http2Record {
    /// Of a connection without an open stream.
    pub fn of(state: &Http2State) -> Http2Record {
        // Plain data. What would not be is no state, and refused.
        let protocol = serde_json::to_value(&state.protocol).unwrap_or_default();
        Http2Record { protocol, input: Bytes(state.input.clone()) }
    }

    /// The state in this role; `None`: what is said of it cannot be.
    pub fn state(self, role: Http2Role) -> Option<Box<Http2State>> {
        let protocol: Http2Protocol = serde_json::from_value(self.protocol).ok()?;
        let input = self.input.0;
        let is_possible = protocol.can_go_on(role) && input.len() <= HELD_MAX;
        is_possible.then(|| Box::new(Http2State { protocol, input }))
    }
}

/// What a description is about.
#[derive(Debug)]
pub struct Described {
    /// The connection.
    pub client: IdleClient,
    /// Its session with a server.
    pub tunnel: Option<TunnelState>,
    /// What rules have left in it.
    pub left: Option<SessionRecord>,
}

pub(super) fn is_false(value: &bool) -> bool {
    !value
}

impl ConnectionRecord {
    /// Of a connection that leaves.
    pub fn of(departure: &Departure, now: Instant) -> ConnectionRecord {
        let place = Place::of(&departure.listener.bind);
        let client = &departure.client;
        ConnectionRecord {
            format: format_of(departure),
            needs: needs_of(departure),
            frontend: client.frontend.to_string(),
            address: place.address.to_string(),
            interface: place.interface,
            namespace: place.namespace,
            source: client.source,
            destination: client.destination.flatten(),
            has_destination: client.destination.is_some(),
            has_proxy_header: client.has_proxy_header,
            proxy_values: client.proxy_values.clone(),
            age_us: microseconds(now.saturating_duration_since(client.accepted)),
            handshake_ms: client.handshake_ms,
            requests: client.requests,
            rested_ms: client.rested_ms,
            due_us: client.due.map(|due| microseconds(due.saturating_duration_since(now))),
            tunnel: departure.tunnel.as_ref().map(|tunnel| TunnelRecord {
                tls: tls_of(tunnel.tls.as_deref()),
                ..TunnelRecord::of(&tunnel.state, now)
            }),
            left: departure.left.as_deref().map(SessionRecord::of),
            tls: tls_of(departure.tls.as_deref()),
            http2: client.http2.as_deref().map(Http2Record::of),
            begun: client.head.as_deref().map(|head| BegunRecord::of(head, now)),
        }
    }

    /// Bytes of it as it travels, at most; exactly where there are parts without a bound of their own.
    pub fn bytes(&self) -> usize {
        let head = self.tunnel.as_ref().and_then(|tunnel| tunnel.facts.head.as_ref());
        let has_request = self.tunnel.as_ref().is_some_and(|tunnel| tunnel.request.is_some());
        let is_short = self.proxy_values.is_none()
            && self.left.is_none()
            && self.http2.is_none()
            && self.begun.is_none()
            && !self.needs.has(MoveKind::HeldBytes)
            && !has_request
            && head.is_none_or(|head| head.line.len() <= 1024);
        let tls = [&self.tls].into_iter().chain(self.tunnel.as_ref().map(|tunnel| &tunnel.tls));
        let tls: usize = tls.flatten().map(|tls| tls.bytes()).sum();
        if is_short { SHORT_BYTES + tls } else { counted(self) }
    }

    /// TLS with the client, and with its server, which are not described any more from now on. `shown` are certificates of ours.
    ///
    /// # Errors
    /// It describes none that could go on here.
    pub fn take_tls(&mut self, shown: &mut Vec<Arc<CertificateDer<'static>>>) -> Result<TlsOfBoth, StayReason> {
        let described = [self.tls.take(), self.tunnel.as_mut().and_then(|tunnel| tunnel.tls.take())];
        let mut moved = [None, None];
        for ((moved, role), record) in moved.iter_mut().zip([TlsRole::Server, TlsRole::Client]).zip(described) {
            if let Some(record) = record {
                *moved = Some(record.moved(role, shown).ok_or(StayReason::Unknown)?);
            }
        }
        Ok(moved)
    }

    /// Whether it was accepted there.
    pub fn is_of(&self, place: &Place) -> bool {
        self.interface == place.interface
            && self.namespace == place.namespace
            && self.address == place.address.to_string()
    }

    /// The connection that it describes, which arrives at `now`.
    ///
    /// # Errors
    /// It describes none that could be served here.
    pub fn connection(self, now: Instant) -> Result<Described, StayReason> {
        // What is described has to be needed, too.
        let is_odd = self.left.is_some() && !self.needs.has(MoveKind::SessionState)
            || self.http2.is_some() != self.needs.has(MoveKind::Http2)
            || self.begun.is_some() != self.needs.has(MoveKind::RequestHeads)
            || (self.http2.is_some() || self.begun.is_some()) && self.format != IDLE
            || self.http2.is_some() && self.begun.is_some();
        if is_odd || !taken().covers(self.format, self.needs) {
            return Err(StayReason::Unknown);
        }
        let is_long = |values: &Vec<u8>| values.len() > PROXY_VALUES_MAX;
        let tunnel = match (self.format, self.tunnel) {
            (IDLE, None) => None,
            (TUNNEL | HTTP_TUNNEL, Some(tunnel))
                if tunnel.facts.head.is_some() == (self.format == HTTP_TUNNEL)
                    && tunnel.request.is_some() == self.needs.has(MoveKind::Requests)
                    && tunnel.holds() == self.needs.has(MoveKind::HeldBytes) =>
            {
                Some(tunnel.state(now).ok_or(StayReason::Unknown)?)
            }
            _ => return Err(StayReason::Unknown),
        };
        if self.proxy_values.as_ref().is_some_and(is_long) {
            return Err(StayReason::Unknown);
        }
        let http2 = match self.http2 {
            Some(http2) => Some(http2.state(Http2Role::Server).ok_or(StayReason::Unknown)?),
            None => None,
        };
        let head = match self.begun {
            Some(begun) => Some(begun.head(now).ok_or(StayReason::Unknown)?),
            None => None,
        };
        let accepted = ago(now, self.age_us).ok_or(StayReason::Unknown)?;
        let due = self.due_us.map(|left| now + Duration::from_micros(left.min(AGE_US_MAX)));
        let client = IdleClient {
            frontend: self.frontend.into(),
            source: self.source,
            destination: self.has_destination.then_some(self.destination),
            has_proxy_header: self.has_proxy_header,
            proxy_values: self.proxy_values,
            accepted,
            handshake_ms: self.handshake_ms,
            requests: self.requests,
            rested_ms: self.rested_ms,
            due,
            http2,
            head,
        };
        Ok(Described { client, tunnel, left: self.left })
    }
}

/// TLS with the client, and with its server.
pub type TlsOfBoth = [Option<Box<MovedTls>>; 2];

fn tls_of(tls: Option<&MovedTls>) -> Option<Box<TlsRecord>> {
    tls.map(|tls| Box::new(TlsRecord::of(tls)))
}

/// Bytes of it as it travels, of which no copy is made: keys are among them.
pub(super) fn counted(record: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, record).map_or(usize::MAX, |()| count.0)
}

/// So many microseconds before `now`; `None`: that cannot be.
pub(super) fn ago(now: Instant, us: u64) -> Option<Instant> {
    now.checked_sub(Duration::from_micros(us)).filter(|_| us <= AGE_US_MAX)
}

/// A session with a server. All times are microseconds; those of its activity since it happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TunnelRecord {
    /// Its backend.
    pub backend: String,
    /// Its server.
    pub server: String,
    /// What the client sends.
    pub up: PumpRecord,
    /// What the server sends.
    pub down: PumpRecord,
    /// When the client last sent something, when it last took something, and the same of the server.
    pub active_us: [u64; 4],
    /// What its log line will have.
    pub facts: FactsRecord,
    /// The request in flight; nothing: bytes both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<InFlightRecord>>,
    /// TLS with the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<TlsRecord>>,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PumpRecord {
    /// What was read and is not written.
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub held: Bytes,
    /// Bytes so far.
    pub moved: u64,
    /// The sender has ended it.
    #[serde(skip_serializing_if = "is_false")]
    pub ended: bool,
    /// The receiver was told so.
    #[serde(skip_serializing_if = "is_false")]
    pub shut: bool,
}

/// What is known of a session for its log line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FactsRecord {
    /// Since it was accepted.
    pub started_us: u64,
    /// Since it began.
    pub began_us: u64,
    /// Whether it is the first of its connection.
    pub is_first: bool,
    /// `TR`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_us: Option<u64>,
    /// `Tw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_us: Option<u64>,
    /// `Tc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_us: Option<u64>,
    /// The address of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketAddr>,
    /// The address that it was connected from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SocketAddr>,
    /// Bytes from the client that are counted already.
    pub bytes_in: u64,
    /// Bytes to the client that are counted already.
    pub bytes_out: u64,
    /// Connection retries.
    pub retries: u32,
    /// Whether one went to another server.
    #[serde(skip_serializing_if = "is_false")]
    pub redispatched: bool,
    /// How many waited in front in the server's queue.
    pub server_queue: u64,
    /// How many waited in front in the backend's queue.
    pub backend_queue: u64,
    /// The persistence letters.
    pub cookie: [u8; 2],
    /// Its line was written already.
    #[serde(skip_serializing_if = "is_false")]
    pub logged: bool,
    /// There is nothing to log.
    #[serde(skip_serializing_if = "is_false")]
    pub silent: bool,
    /// The request and the response that it began with, in format 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadRecord>,
}

/// What is known of the messages that a tunnel of HTTP began with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadRecord {
    /// The request line, a character for each byte; empty where no log has it.
    pub line: String,
    /// `Tr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us: Option<u64>,
    /// The status that the client got.
    pub status: u16,
    /// The status of the server.
    pub server_status: u16,
    /// The version of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl HeadRecord {
    fn of(head: &KeptHead) -> HeadRecord {
        HeadRecord {
            line: head.line.iter().map(|byte| char::from(*byte)).collect(),
            response_us: head.response_time.map(microseconds),
            status: head.status,
            server_status: head.server_status,
            version: head.response_version.map(str::to_owned),
        }
    }

    fn kept(self) -> Option<KeptHead> {
        let line: Vec<u8> = self.line.chars().map(|char| u8::try_from(char).ok()).collect::<Option<_>>()?;
        // A request line has none of these, and it is printed in a line.
        let ends_lines = line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'));
        Some(KeptHead {
            line: Some(line).filter(|line| !ends_lines && line.len() <= KeptHead::LINE_BYTES_MAX)?,
            response_time: self.response_us.map(Duration::from_micros),
            status: self.status,
            server_status: self.server_status,
            response_version: self.version.as_deref().and_then(version_text),
        })
    }
}

impl TunnelRecord {
    fn of(state: &TunnelState, now: Instant) -> TunnelRecord {
        let pump = |PumpState { held, moved, ended, shut }: &PumpState| {
            let (moved, ended, shut) = (*moved, *ended, *shut);
            PumpRecord { held: Bytes(held.clone()), moved, ended, shut }
        };
        let since = |at: Instant| microseconds(now.saturating_duration_since(at));
        let [client, server] = state.active;
        let facts = &state.facts;
        TunnelRecord {
            backend: state.backend.to_string(),
            server: state.server.to_string(),
            up: pump(&state.up),
            down: pump(&state.down),
            active_us: [client.read, client.written, server.read, server.written].map(since),
            facts: FactsRecord {
                started_us: since(facts.started),
                began_us: since(facts.began),
                is_first: facts.is_first,
                request_us: facts.request_time.map(microseconds),
                queue_us: facts.queue_time.map(microseconds),
                connect_us: facts.connect_time.map(microseconds),
                server: facts.server_address,
                source: facts.source_address,
                bytes_in: facts.bytes_in,
                bytes_out: facts.bytes_out,
                retries: facts.retries,
                redispatched: facts.redispatched,
                server_queue: facts.server_queue as u64,
                backend_queue: facts.backend_queue as u64,
                cookie: facts.cookie,
                logged: facts.logged,
                silent: facts.silent,
                head: facts.head.as_ref().map(HeadRecord::of),
            },
            request: state.request.as_ref().map(|request| Box::new(InFlightRecord::of(request, now))),
            tls: None,
        }
    }

    /// Whether bytes wait in it.
    fn holds(&self) -> bool {
        !self.up.held.is_empty() || !self.down.held.is_empty()
    }

    /// The session at `now`; `None`: what is said of it cannot be.
    fn state(self, now: Instant) -> Option<TunnelState> {
        // What nobody takes any more does not wait.
        let pump = |PumpRecord { held: Bytes(held), moved, ended, shut }: PumpRecord| {
            let is_possible = held.len() <= HELD_MAX && (held.is_empty() || !shut);
            is_possible.then_some(PumpState { held, moved, ended, shut })
        };
        let ago = |us: u64| ago(now, us);
        let [client_read, client_written, server_read, server_written] = self.active_us;
        let active = |read, written| Some(Activity { read: ago(read)?, written: ago(written)? });
        let facts = self.facts;
        let head = match facts.head {
            Some(head) => Some(head.kept()?),
            None => None,
        };
        let request = match self.request {
            // A request has a line.
            Some(_) if head.is_none() => return None,
            Some(request) => Some(Box::new(request.state(now)?)),
            None => None,
        };
        // They are printed in a line.
        let letter = |letter: u8| if letter.is_ascii_graphic() { letter } else { b'-' };
        Some(TunnelState {
            backend: self.backend.into(),
            server: self.server.into(),
            up: pump(self.up)?,
            down: pump(self.down)?,
            active: [active(client_read, client_written)?, active(server_read, server_written)?],
            facts: KeptFacts {
                started: ago(facts.started_us)?,
                began: ago(facts.began_us)?,
                is_first: facts.is_first,
                request_time: facts.request_us.map(Duration::from_micros),
                queue_time: facts.queue_us.map(Duration::from_micros),
                connect_time: facts.connect_us.map(Duration::from_micros),
                server_address: facts.server,
                source_address: facts.source,
                bytes_in: facts.bytes_in,
                bytes_out: facts.bytes_out,
                retries: facts.retries,
                redispatched: facts.redispatched,
                server_queue: usize::try_from(facts.server_queue).ok()?,
                backend_queue: usize::try_from(facts.backend_queue).ok()?,
                cookie: facts.cookie.map(letter),
                logged: facts.logged,
                silent: facts.silent,
                head,
            },
            request,
        })
    }
}

pub(super) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<u32, StayReason>) {
        let record: ConnectionRecord = serde_json::from_str(text).unwrap();
        let now = Instant::now();
        assert_eq!(record.connection(now).map(|described| described.client.requests), expect, "{text}");
    }

    #[test]
    fn what_is_not_understood_stays() {
        check(r#"{"format":1,"frontend":"web","requests":3}"#, Ok(3));
        check(r#"{"format":1,"requests":3,"mood":{"good":[1]}}"#, Ok(3));
        check(r#"{"format":2,"requests":3}"#, Err(StayReason::Unknown));
        check(r#"{"format":1,"requests":3,"tunnel":{}}"#, Err(StayReason::Unknown));
        check(r#"{"format":3,"requests":3,"tunnel":{}}"#, Err(StayReason::Unknown));
        check(r#"{"format":2,"requests":3,"tunnel":{"facts":{"head":{}}}}"#, Err(StayReason::Unknown));
        check(r#"{"format":3,"requests":3,"tunnel":{"facts":{"head":{"line":"GET /\u00ff HTTP/1.1"}}}}"#, Ok(3));
        check(
            r#"{"format":3,"requests":3,"tunnel":{"facts":{"head":{"line":"GET /\u0100 HTTP/1.1"}}}}"#,
            Err(StayReason::Unknown),
        );
        check(
            r#"{"format":3,"requests":3,"tunnel":{"facts":{"head":{"line":"GET /\u000aforged"}}}}"#,
            Err(StayReason::Unknown),
        );
        check(r#"{"format":4,"requests":3}"#, Err(StayReason::Unknown));
        check(r#"{"format":1,"requests":3,"needs":[]}"#, Ok(3));
        check(r#"{"format":1,"requests":3,"needs":["later"]}"#, Err(StayReason::Unknown));
        check(r#"{"requests":3}"#, Err(StayReason::Unknown));
        let begun =
            |needs: &str, begun: &str| format!(r#"{{"format":1,"requests":3,"needs":[{needs}],"begun":{{{begun}}}}}"#);
        check(&begun(r#""request-heads""#, r#""input":"R0VU","began_us":7"#), Ok(3));
        check(&begun("", r#""input":"R0VU""#), Err(StayReason::Unknown));
        check(&begun(r#""request-heads""#, ""), Err(StayReason::Unknown));
        check(
            &begun(r#""request-heads""#, r#""input":"R0VU","began_us":18446744073709551615"#),
            Err(StayReason::Unknown),
        );
        check(r#"{"format":1,"requests":3,"needs":["request-heads"]}"#, Err(StayReason::Unknown));
        let holding = |needs: &str, up: &str| {
            format!(r#"{{"format":2,"requests":3,"needs":[{needs}],"tunnel":{{"up":{{{up}}}}}}}"#)
        };
        check(&holding(r#""held-bytes""#, r#""held":"R0VU","ended":true"#), Ok(3));
        check(&holding(r#""held-bytes""#, r#""held":"R0VU","shut":true"#), Err(StayReason::Unknown));
        check(&holding("", r#""held":"R0VU""#), Err(StayReason::Unknown));
        check(&holding(r#""held-bytes""#, ""), Err(StayReason::Unknown));
        check(r#"{"format":1,"age_us":18446744073709551615}"#, Err(StayReason::Unknown));
        check(r#"{"format":2,"tunnel":{"active_us":[0,0,0,18446744073709551615]}}"#, Err(StayReason::Unknown));
    }

    #[test]
    fn a_session_is_read_as_it_is_written() {
        let now = Instant::now();
        let text = r#"{"backend":"b","server":"s","up":{"moved":7,"ended":true,"shut":true},"down":{"held":"R0VU","moved":9},
            "active_us":[1,2,3,4],"facts":{"started_us":50,"began_us":40,"is_first":true,"request_us":1,"queue_us":0,"connect_us":3,
            "server":"192.0.2.1:80","source":"[2001:db8::1]:4711","bytes_in":5,"bytes_out":6,"retries":2,"redispatched":true,
            "server_queue":8,"backend_queue":9,"cookie":[86,10],"logged":true,"silent":true,
            "head":{"line":"GET /\u00ff HTTP/1.1","response_us":4,"status":101,"server_status":101,"version":"HTTP/1.1"}}}"#;
        let mut record: TunnelRecord = serde_json::from_str(text).unwrap();
        let state = record.clone().state(now).unwrap();
        assert_eq!(state.facts.cookie, *b"V-", "no line ends by it");
        assert_eq!(state.facts.head.as_ref().map(|head| &*head.line), Some(&b"GET /\xff HTTP/1.1"[..]));
        record.facts.cookie = *b"V-";
        assert_eq!(TunnelRecord::of(&state, now), record);
    }
}
