//! Bytes both ways until both sides have ended: `mode tcp`, WebSocket, CONNECT.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use baton_model::Timeouts;

use crate::buffer::Buffer;
use crate::core::{Core, Interrupt, Session, until};
use crate::deadline::Deadline;
use crate::ended::{Ended, Phase, Side};
use crate::stream::Stream;

/// Reads and writes of one direction before other connections get their turn.
const ROUNDS_PER_TURN: usize = 16;

/// The inactivity limits of a tunnel.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// On the client's side.
    pub client: Option<Duration>,
    /// On the server's side.
    pub server: Option<Duration>,
    /// On the client's side once one direction has ended.
    pub client_fin: Option<Duration>,
    /// On the server's side once one direction has ended.
    pub server_fin: Option<Duration>,
}

impl Patience {
    /// What the frontend's and backend's timeouts say. `timeout tunnel` replaces both sides' when it is set.
    pub fn new(frontend: &Timeouts, backend: &Timeouts) -> Patience {
        Patience {
            client: backend.tunnel.or(frontend.client),
            server: backend.tunnel.or(backend.server),
            client_fin: frontend.client_fin,
            server_fin: backend.server_fin,
        }
    }
}

/// One direction.
#[derive(Debug, Default)]
pub struct Pump {
    /// What was read and not written yet; none while idle.
    pub buffer: Option<Buffer>,
    /// Bytes written.
    pub moved: u64,
    ended: bool,
    shut: bool,
    /// The last read filled its buffer: the next one gets more room.
    busy: bool,
}

/// What happened in a tunnel.
enum Step {
    Done,
    /// Other limits hold from now on.
    HalfClosed,
    Failed(Ended),
}

/// Which end of a pump failed.
enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

impl Pump {
    /// A direction that begins with bytes that were read before.
    pub fn new(buffer: Option<Buffer>) -> Pump {
        Pump { buffer, ..Pump::default() }
    }

    /// Moves what can be moved. `Ready(Ok)` once the end of the stream was passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        (from, from_active): (&Stream, &mut Instant),
        (to, to_active): (&Stream, &mut Instant),
    ) -> Poll<Result<(), Failed>> {
        if self.shut {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            if let Some(buffer) = &mut self.buffer
                && !buffer.is_empty()
            {
                let count = ready!(to.poll_write(cx, buffer)).map_err(Failed::Writing)?;
                buffer.consume(count);
                self.moved += count as u64;
                *to_active = core.now();
                *from_active = core.now();
                if self.busy && buffer.is_empty() && !core.buffers.is_large(buffer) {
                    self.release(core);
                }
                continue;
            }
            if self.ended {
                to.shutdown_write();
                self.release(core);
                self.shut = true;
                return Poll::Ready(Ok(()));
            }
            let busy = self.busy;
            let take = || if busy { core.buffers.take_large() } else { core.buffers.take() };
            let buffer = self.buffer.get_or_insert_with(take);
            let room = buffer.room();
            let size = room.len();
            match from.poll_read(cx, room) {
                Poll::Ready(Ok(0)) => self.ended = true,
                Poll::Ready(Ok(count)) => {
                    buffer.filled(count);
                    *from_active = core.now();
                    self.busy = count == size;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failed::Reading(error))),
                Poll::Pending => {
                    self.release(core);
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether bytes wait for the receiver to take them: the sender is not waited for then.
    fn is_blocked(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| !buffer.is_empty())
    }

    fn release(&mut self, core: &Core) {
        if let Some(buffer) = self.buffer.take() {
            core.buffers.give(buffer);
        }
    }
}

/// Relays until both directions have ended, one side fails or the patience ends. Both sockets are left open; `up` and
/// `down` hold what was moved.
pub async fn run(
    core: &Core,
    session: &Session,
    deadline: &mut Deadline,
    (client, up): (&Stream, &mut Pump),
    (server, down): (&Stream, &mut Pump),
    patience: &Patience,
) -> Result<(), Ended> {
    let mut client_active = core.now();
    let mut server_active = core.now();
    loop {
        let limits = limits(patience, up.shut || down.shut, client_active, server_active);
        deadline.set(look_at(limits, stuck(up, down), core.now()));
        let half_closed = up.shut || down.shut;
        let outcome = until(core, session, deadline, |cx| {
            let mut done = true;
            match up.poll(cx, core, (client, &mut client_active), (server, &mut server_active)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Failed::Reading(error))) => {
                    return Poll::Ready(Step::Failed(ended(Side::Client, error)));
                }
                Poll::Ready(Err(Failed::Writing(error))) => {
                    return Poll::Ready(Step::Failed(ended(Side::Server, error)));
                }
                Poll::Pending => done = false,
            }
            match down.poll(cx, core, (server, &mut server_active), (client, &mut client_active)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Failed::Reading(error))) => {
                    return Poll::Ready(Step::Failed(ended(Side::Server, error)));
                }
                Poll::Ready(Err(Failed::Writing(error))) => {
                    return Poll::Ready(Step::Failed(ended(Side::Client, error)));
                }
                Poll::Pending => done = false,
            }
            if done {
                Poll::Ready(Step::Done)
            } else if half_closed != (up.shut || down.shut) {
                Poll::Ready(Step::HalfClosed)
            } else {
                Poll::Pending
            }
        })
        .await;
        match outcome {
            Ok(Step::Done) => return Ok(()),
            Ok(Step::HalfClosed) => {}
            Ok(Step::Failed(ended)) => return Err(ended),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                // Activity only moves the instant that is due, not the timer: look again before giving up.
                let (client, server) = self::limits(patience, up.shut || down.shut, client_active, server_active);
                let stuck = stuck(up, down);
                let passed = |limit: Limit| limit.is_some_and(|(since, limit)| since + limit <= core.now());
                if passed(client) && stuck != Some(Side::Server) {
                    return Err(Ended::timeout(Side::Client, Phase::Data));
                }
                if passed(server) && stuck != Some(Side::Client) {
                    return Err(Ended::timeout(Side::Server, Phase::Data));
                }
            }
        }
    }
}

/// Since when a side is silent, and how long it may be.
type Limit = Option<(Instant, Duration)>;

fn limits(patience: &Patience, half_closed: bool, client_active: Instant, server_active: Instant) -> (Limit, Limit) {
    let pick = |fin: Option<Duration>, usual| if half_closed { fin.or(usual) } else { usual };
    let client = pick(patience.client_fin, patience.client).map(|limit| (client_active, limit));
    let server = pick(patience.server_fin, patience.server).map(|limit| (server_active, limit));
    (client, server)
}

/// The one side that does not take what the other sent. The other one can do nothing meanwhile, so that its silence does not
/// count.
fn stuck(up: &Pump, down: &Pump) -> Option<Side> {
    match (down.is_blocked(), up.is_blocked()) {
        (true, false) => Some(Side::Client),
        (false, true) => Some(Side::Server),
        (true, true) | (false, false) => None,
    }
}

/// When to look whether the patience is over. Who is stuck may change without notice, so that a side whose silence does not
/// count is looked at after its limit all the same.
fn look_at((client, server): (Limit, Limit), stuck: Option<Side>, now: Instant) -> Option<Instant> {
    let client = client.map(|(since, limit)| if stuck == Some(Side::Server) { now } else { since } + limit);
    let server = server.map(|(since, limit)| if stuck == Some(Side::Client) { now } else { since } + limit);
    match (client, server) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn ended(side: Side, _error: io::Error) -> Ended {
    Ended::aborted_by(side, Phase::Data)
}
