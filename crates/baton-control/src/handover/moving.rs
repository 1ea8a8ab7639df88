//! Established connections go to the process that has taken over, a batch at a time.
//!
//! ```text
//!   old process                                        new process
//!   takes connections off its cores
//!   connections (what they are)   ─────────────▶ looks for their frontends, and for room
//!                                 ◀───────────── take (those that stay, and why)
//!   give (descriptors)            ─────────────▶ serves them
//!   closes its own descriptors
//! ```
//!
//! A connection is the old process's until the last byte of `give` is with the kernel, and the new one's from then on: descriptors travel
//! with that message alone. Without `take` in time the old process withdraws its offer and serves them on.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proxy::balance::Slot;
use baton_proxy::moving::{
    Arrival, Departure, IdleClient, IdleServer, MoveCount, MoveFigures, MovedTunnel, SessionState, StayReason,
    TunnelState,
};
use baton_proxy::{Departures, Leaver, ListenerPlan, Seat};

use super::channel::{ANSWER_WITHIN, Broken, Channel};
use super::kinds::Takes;
use super::message::{Connections, Give, IdleServers, Message, Staying, Take};
use super::record::{self, ConnectionRecord, TlsOfBoth};
use super::server_record::ServerRecord;

/// How long the new process may take for `take`: the connections of a batch are not served meanwhile.
pub const TAKE_WITHIN: Duration = Duration::from_secs(2);

/// The most connections in a batch: at most two descriptors each are in flight at a time.
pub const CONNECTIONS_PER_MESSAGE: usize = 100;

/// The most bytes of descriptions in a batch: it is one frame.
const OFFER_BYTES_MAX: usize = 3 << 20;
/// No more connections join a batch that holds so many bytes of theirs already.
const HELD_PER_MESSAGE: usize = 1 << 20;

/// The old process's side: what leaves its cores, and where it stands.
#[derive(Debug)]
pub struct Leaving {
    departures: Departures,
    figures: Arc<MoveFigures>,
    /// What the process takes to which they go.
    takes: Takes,
    /// The last batch.
    batch: u32,
    offered: Option<Batch>,
    /// They did not fit into a batch.
    waiting: VecDeque<Departure>,
}

/// What may happen on the way to another process.
#[derive(Debug)]
pub enum LeavingEvent {
    /// A client's connection leaves.
    Client(Departure),
    /// An idle connection to a server leaves.
    Server(IdleServer),
    /// The reply to an offer is late.
    Late,
}

#[derive(Debug)]
struct Batch {
    connections: Vec<Departure>,
    /// When they were offered.
    began: Instant,
    /// When the other process must have replied.
    end: Instant,
}

impl Leaving {
    /// Connections leave by these, for a process that takes these.
    pub fn new(departures: Departures, figures: Arc<MoveFigures>, takes: Takes) -> Leaving {
        Leaving { departures, figures, takes, batch: 0, offered: None, waiting: VecDeque::new() }
    }

    /// What comes next. While an offer waits for its reply, no client leaves. May be abandoned and begun again.
    pub async fn next(&mut self) -> LeavingEvent {
        let end = self.offered.as_ref().map(|batch| batch.end);
        if end.is_none()
            && let Some(departure) = self.waiting.pop_front()
        {
            return LeavingEvent::Client(departure);
        }
        let late = async {
            match end {
                Some(end) => tokio::time::sleep_until(end.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(leaver) = self.departures.next(end.is_none()) => match leaver {
                Leaver::Client(departure) => LeavingEvent::Client(departure),
                Leaver::Server(server) => LeavingEvent::Server(server),
            },
            () = late => LeavingEvent::Late,
            else => std::future::pending().await,
        }
    }

    /// Gives this idle connection to a server, and those that leave with it, if they are taken.
    ///
    /// # Errors
    /// The conversation is over.
    pub async fn give_servers(&mut self, channel: &mut Channel, first: IdleServer) -> Result<(), Broken> {
        let (now, mut next, mut bytes) = (Instant::now(), Some(first), 0);
        let (mut servers, mut sockets) = (Vec::new(), Vec::new());
        while let Some(idle) = next {
            let record = ServerRecord::of(&idle, now);
            let length = record.bytes();
            if record.needs.is_within(self.takes.kinds) && length <= OFFER_BYTES_MAX - HELD_PER_MESSAGE {
                bytes += length;
                servers.push(record);
                sockets.push(idle.socket);
            }
            let is_full = servers.len() >= CONNECTIONS_PER_MESSAGE || bytes >= HELD_PER_MESSAGE;
            next = if is_full { None } else { self.departures.try_next_server() };
        }
        if servers.is_empty() {
            return Ok(());
        }
        let count = servers.len();
        let fds: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
        channel.send(Message::Servers(IdleServers { servers }), &fds, ANSWER_WITHIN).await?;
        self.figures.count(MoveCount::ServersOut, count);
        Ok(())
    }

    /// Offers this connection, and those that leave with it.
    ///
    /// # Errors
    /// The conversation is over.
    pub async fn offer(&mut self, channel: &mut Channel, first: Departure) -> Result<(), Broken> {
        let mut held = first.held();
        let mut connections = vec![first];
        while connections.len() < CONNECTIONS_PER_MESSAGE
            && held < HELD_PER_MESSAGE
            && let Some(next) = self.waiting.pop_front().or_else(|| self.departures.try_next())
        {
            held += next.held();
            connections.push(next);
        }
        self.send_offer(channel, connections).await
    }

    async fn send_offer(&mut self, channel: &mut Channel, connections: Vec<Departure>) -> Result<(), Broken> {
        let now = Instant::now();
        let (mut offered, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
        for departure in connections {
            if !self.takes.covers(record::format_of(&departure), record::needs_of(&departure)) {
                let reason = record::reason_of(&departure, self.takes);
                self.departures.give_back(departure, reason);
                continue;
            }
            let record = ConnectionRecord::of(&departure, now);
            let length = record.bytes();
            if length > OFFER_BYTES_MAX {
                self.departures.give_back(departure, StayReason::Variables);
            } else if bytes + length > OFFER_BYTES_MAX {
                self.waiting.push_back(departure);
            } else {
                bytes += length;
                offered.push(departure);
                records.push(record);
            }
        }
        if offered.is_empty() {
            return Ok(());
        }
        self.batch = self.batch.wrapping_add(1);
        self.offered = Some(Batch { connections: offered, began: now, end: now + TAKE_WITHIN });
        let offer = Connections { batch: self.batch, connections: records };
        channel.send(Message::Connections(offer), &[], ANSWER_WITHIN).await
    }

    /// The other process says which it takes: it gets those. The others go back.
    ///
    /// # Errors
    /// The conversation is over, and whatever was to go is ours still.
    pub async fn taken(&mut self, channel: &mut Channel, take: Take) -> Result<(), Broken> {
        // One that comes too late is about connections that are served again.
        if take.batch != self.batch {
            return Ok(());
        }
        let Some(batch) = self.offered.take() else { return Ok(()) };
        self.departures.took(batch.began.elapsed());
        let mut going = Vec::with_capacity(batch.connections.len());
        for (at, departure) in (0..).zip(batch.connections) {
            match take.staying.iter().find(|staying| staying.at == at) {
                Some(Staying { reason, .. }) => self.departures.give_back(departure, StayReason::of_word(reason)),
                None => going.push(departure),
            }
        }
        if going.is_empty() {
            return Ok(());
        }
        let fds: Vec<_> = going.iter().flat_map(sockets).collect();
        let give = Give { batch: take.batch, descriptors: fds.len() as u32 };
        // Sent is sent: all of it is with the kernel, or the other process never gets the whole message, and so none of them.
        match channel.send(Message::Give(give), &fds, ANSWER_WITHIN).await {
            Ok(()) => {
                self.figures.count(MoveCount::ClientsOut, going.len());
                Ok(())
            }
            Err(error) => {
                self.give_back(going, StayReason::NoReply);
                Err(error)
            }
        }
    }

    /// The other process did not reply in time: nothing goes there any more.
    ///
    /// # Errors
    /// The conversation is over.
    pub async fn withdraw(&mut self, channel: &mut Channel) -> Result<(), Broken> {
        let batch = self.batch;
        self.stay(StayReason::NoReply);
        channel.send(Message::Withdraw { batch }, &[], ANSWER_WITHIN).await
    }

    /// Another process serves now, which takes these: what was offered to the one before is offered to it.
    ///
    /// # Errors
    /// The conversation is over.
    pub async fn goes_to(&mut self, channel: &mut Channel, takes: Takes) -> Result<(), Broken> {
        self.takes = self.takes.common(takes);
        match self.offered.take() {
            Some(batch) => self.send_offer(channel, batch.connections).await,
            None => Ok(()),
        }
    }

    /// Nothing goes any more.
    fn stay(&mut self, reason: StayReason) {
        self.takes = Takes::NONE;
        if let Some(batch) = self.offered.take() {
            self.give_back(batch.connections, reason);
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.give_back(waiting.into(), reason);
    }

    fn give_back(&self, connections: Vec<Departure>, reason: StayReason) {
        connections.into_iter().for_each(|departure| self.departures.give_back(departure, reason));
    }
}

/// The client's socket, and the server's if it has one.
fn sockets(departure: &Departure) -> impl Iterator<Item = BorrowedFd<'_>> {
    let server = departure.tunnel.as_ref().map(|tunnel| tunnel.socket.as_fd());
    [departure.socket.as_fd()].into_iter().chain(server)
}

impl Drop for Leaving {
    /// What was not given is served on.
    fn drop(&mut self) {
        self.stay(StayReason::NoReply);
    }
}

/// The new process's side: a connection that it takes, with its place.
#[derive(Debug)]
pub struct Expected {
    /// What it is.
    pub client: IdleClient,
    /// The listener that it will belong to.
    pub listener: Arc<ListenerPlan>,
    /// Its place.
    pub seat: Seat,
    /// Its session with a server, and its place there.
    pub tunnel: Option<(TunnelState, Slot)>,
    /// What rules have left in it.
    pub left: Option<Box<SessionState>>,
    /// TLS on both sides.
    pub tls: TlsOfBoth,
    /// Where it is counted.
    pub figures: Arc<MoveFigures>,
}

/// What the change path decides of each connection of an offer. `None`: this process does not serve any more either.
pub type Verdicts = Option<Vec<Result<Expected, StayReason>>>;

impl Expected {
    /// How many descriptors come with it.
    fn descriptors(&self) -> usize {
        1 + usize::from(self.tunnel.is_some())
    }

    /// It is here, as the next of these; `None` when they are too few.
    fn arrives(self, sockets: &mut impl Iterator<Item = OwnedFd>) -> Option<()> {
        let Expected { client, listener, seat, tunnel, left, tls: [tls, server_tls], figures } = self;
        let socket = sockets.next()?;
        let tunnel = match tunnel {
            Some((state, slot)) => {
                Some(Box::new(MovedTunnel { state, socket: sockets.next()?, tls: server_tls, slot }))
            }
            None => None,
        };
        figures.count(MoveCount::ClientsIn, 1);
        seat.door.let_in(Arrival { client, socket, tls, listener, stays: None, counted: seat.counted, tunnel, left });
        Some(())
    }
}

/// Connections that are to come from one process.
#[derive(Debug, Default)]
pub struct Coming {
    batch: u32,
    expected: Vec<Expected>,
}

impl Coming {
    /// What to say to an offer, after which those that are not refused are expected; those of an offer before are not any more.
    pub fn expect(&mut self, batch: u32, verdicts: Vec<Result<Expected, StayReason>>) -> Take {
        self.batch = batch;
        self.expected.clear();
        let mut staying = Vec::new();
        for (at, verdict) in (0..).zip(verdicts) {
            match verdict {
                Ok(expected) => self.expected.push(expected),
                Err(reason) => staying.push(Staying { at, reason: reason.word().into() }),
            }
        }
        Take { batch, staying }
    }

    /// They do not come.
    pub fn withdraw(&mut self, batch: u32) {
        if batch == self.batch {
            self.expected.clear();
        }
    }

    /// They are here, and ours. Descriptors of others are closed.
    pub fn arrive(&mut self, channel: &mut Channel, give: &Give) -> Result<(), Broken> {
        let fds = channel.take_fds(give.descriptors as usize)?;
        let expected: usize = self.expected.iter().map(Expected::descriptors).sum();
        if give.batch != self.batch || fds.len() != expected {
            let text = format!("{} descriptors of connections received instead of {expected}", fds.len());
            return Err(Broken::Malformed(text));
        }
        let mut fds = fds.into_iter();
        for expected in self.expected.drain(..) {
            if expected.arrives(&mut fds).is_none() {
                break;
            }
        }
        Ok(())
    }
}
