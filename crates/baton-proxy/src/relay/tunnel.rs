//! Bytes both ways until both sides have ended: `mode tcp`, WebSocket, CONNECT.
//!
//! Each direction ends by itself. A side that is silent for too long is not heard any more: the other side reads the end of
//! the stream, as if the silent one had ended it, and may go on sending. A side that does not take what waits for it ends
//! both.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::core::{Core, Interrupt, Orders, until};
use crate::deadline::Deadline;
use crate::ended::{Ended, Phase, Side};
use crate::moving::{Activity, HELD_MAX, PumpState};
use crate::patience::Patience;
use crate::pipes::{SPLICED_MIN, Splicer};
use crate::transport::Transport;

/// Reads and writes of one direction before other connections get their turn.
const ROUNDS_PER_TURN: usize = 16;

/// One direction.
#[derive(Debug, Default)]
pub struct Pump {
    /// What was read and not written yet; none while idle.
    pub buffer: Option<Buffer>,
    /// Bytes read.
    pub moved: u64,
    /// Nothing more is read.
    ended: bool,
    /// The receiver was told the end.
    shut: bool,
    /// The last read filled its buffer: the next one gets more room, or is spliced.
    busy: bool,
    /// Leave to splice.
    splicer: Option<Splicer>,
}

/// When both sides last did something.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// The client.
    pub client: Activity,
    /// The server.
    pub server: Activity,
}

/// How a tunnel came to an end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TunnelEnd {
    /// Both directions have ended.
    Over,
    /// The connection is to leave, and nothing waits that was read, or that goes along. It can go on all the same.
    Boundary,
}

impl Course {
    /// A tunnel that begins.
    pub fn begin(now: Instant) -> Course {
        let start = Activity { read: now, written: now };
        Course { client: start, server: start }
    }
}

/// What happened in a tunnel.
enum TunnelEvent {
    Done,
    Boundary,
    /// Other limits hold from now on.
    HalfClosed,
    Failed(Ended),
}

/// Which end of a pump failed. Why does not matter: the peer is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BrokenEnd {
    Reading,
    Writing,
}

impl Pump {
    /// A direction that begins with bytes that were read before.
    pub fn new(buffer: Option<Buffer>) -> Pump {
        let moved = buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        Pump { buffer, moved, ..Pump::default() }
    }

    /// Nothing more is read: what was read before goes on, and then the end.
    pub fn ending(self) -> Pump {
        Pump { ended: true, ..self }
    }

    /// Nothing goes this way any more.
    pub fn shut(self) -> Pump {
        Pump { ended: true, shut: true, ..self }
    }

    /// Bulk data is spliced with this.
    pub fn splicing(self, splicer: Option<Splicer>) -> Pump {
        Pump { splicer, ..self }
    }

    /// One that went on elsewhere until now.
    pub fn resumed(state: PumpState) -> Pump {
        let PumpState { held, moved, ended, shut } = state;
        let buffer = (!held.is_empty()).then(|| Buffer::holding(held.len(), &[], &held));
        Pump { buffer, moved, ended, shut, ..Pump::default() }
    }

    /// Where it stands, with what waits in it. It can go on all the same: what was in a pipe is in its buffer from now on.
    ///
    /// # Errors
    /// The pipe does not give back what it holds.
    pub fn park(&mut self) -> io::Result<PumpState> {
        let mut held = self.buffer.as_ref().map(|buffer| buffer.to_vec()).unwrap_or_default();
        if let Some(splicer) = &mut self.splicer
            && splicer.held() > 0
        {
            let unloaded = splicer.unload(&mut held);
            self.buffer = Some(Buffer::holding(held.len(), &[], &held));
            unloaded?;
        }
        let Pump { moved, ended, shut, .. } = *self;
        Ok(PumpState { held, moved, ended, shut })
    }

    /// How many bytes wait in it.
    fn held(&self) -> usize {
        let piped = self.splicer.as_ref().map_or(0, Splicer::held);
        self.buffer.as_ref().map_or(0, |buffer| buffer.len()) + piped
    }

    /// Moves what can be moved. `Ready(Ok)` once the end of the stream was passed on. With `rests`, nothing more is read.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        rests: bool,
        (from, from_active): (Transport<'_>, &mut Activity),
        (to, to_active): (Transport<'_>, &mut Activity),
    ) -> Poll<Result<(), BrokenEnd>> {
        if self.shut {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            if let Some(buffer) = &mut self.buffer
                && !buffer.is_empty()
            {
                let count = ready!(to.poll_write(cx, buffer, false)).map_err(|_| BrokenEnd::Writing)?;
                buffer.consume(count);
                to_active.written = core.now();
                from_active.read = core.now();
                if buffer.is_empty() && !core.buffers.is_large(buffer) {
                    self.release(core);
                }
                continue;
            }
            if let Some(splicer) = &mut self.splicer
                && splicer.held() > 0
                && let Some(to) = to.connection()
            {
                ready!(splicer.poll_drain(cx, to)).map_err(|_| BrokenEnd::Writing)?;
                to_active.written = core.now();
                from_active.read = core.now();
                continue;
            }
            if self.ended {
                to.shutdown_write();
                self.release(core);
                self.shut = true;
                return Poll::Ready(Ok(()));
            }
            if rests {
                self.release(core);
                return Poll::Pending;
            }
            if self.busy
                && let (Some(from), Some(_)) = (from.spliceable(), to.spliceable())
                && let Some(splicer) = &mut self.splicer
                && splicer.is_ready()
            {
                match splicer.poll_fill(cx, from, usize::MAX) {
                    Poll::Ready(Ok(0)) => self.ended = true,
                    Poll::Ready(Ok(count)) => {
                        self.moved += count as u64;
                        from_active.read = core.now();
                        to_active.written = core.now();
                        self.busy = count >= SPLICED_MIN;
                    }
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => self.splicer = None,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(BrokenEnd::Reading)),
                    Poll::Pending => return Poll::Pending,
                }
                continue;
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
                    self.moved += count as u64;
                    from_active.read = core.now();
                    to_active.written = core.now();
                    self.busy = count == size;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(BrokenEnd::Reading)),
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
        self.held() > 0
    }

    fn release(&mut self, core: &Core) {
        if let Some(splicer) = &mut self.splicer {
            splicer.rest();
        }
        if let Some(buffer) = self.buffer.take() {
            core.buffers.give(buffer);
        }
    }
}

impl BrokenEnd {
    /// Who ended the tunnel by it, of a direction with these ends.
    fn ended(self, from: Side, to: Side) -> Ended {
        Ended::aborted_by(if self == BrokenEnd::Reading { from } else { to }, Phase::Data)
    }
}

/// Relays until both directions have ended, one side fails, or one does not take what it is sent; or, when the connection is to leave for
/// another process, to a byte boundary, or until it leaves with what waits. Both sockets are left open; a server that was not told the end of what the client sends is to be reset by the coming close, because what it has
/// is not all. `up` and `down` hold what was moved.
pub async fn run(
    core: &Core,
    orders: &Orders,
    deadline: &mut Deadline,
    (client, up): (Transport<'_>, &mut Pump),
    (server, down): (Transport<'_>, &mut Pump),
    patience: &Patience,
    course: &mut Course,
) -> Result<TunnelEnd, Ended> {
    let Course { client: client_active, server: server_active } = course;
    let may_leave = client.connection().is_some() && server.connection().is_some();
    // Why a direction ended that its own side did not end.
    let mut cause = None;
    let outcome = loop {
        let waits = TunnelWaits::new(patience, (up, *client_active), (down, *server_active));
        deadline.set(waits.look_at(patience, core.now()));
        let half_closed = up.shut || down.shut;
        let held = |up: &Pump, down: &Pump| up.held() + down.held();
        let may_leave = may_leave && cause.is_none();
        let event = until(core, orders, deadline, |cx| {
            let mut done = true;
            // A direction rests only while the other one holds nothing: whoever waits for that one's bytes would wait for ever.
            let leaves = may_leave && core.is_to_leave(orders);
            match up.poll(cx, core, leaves && !down.is_blocked(), (client, client_active), (server, server_active)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(failed)) => {
                    return Poll::Ready(TunnelEvent::Failed(failed.ended(Side::Client, Side::Server)));
                }
                Poll::Pending => done = false,
            }
            match down.poll(cx, core, leaves && !up.is_blocked(), (server, server_active), (client, client_active)) {
                Poll::Ready(Ok(())) => done |= patience.ends_with_server,
                Poll::Ready(Err(failed)) => {
                    return Poll::Ready(TunnelEvent::Failed(failed.ended(Side::Server, Side::Client)));
                }
                Poll::Pending => done = false,
            }
            if done {
                Poll::Ready(TunnelEvent::Done)
            } else if leaves && held(up, down) == 0
                || may_leave && core.bytes_move(orders) && held(up, down) <= HELD_MAX
            {
                Poll::Ready(TunnelEvent::Boundary)
            } else if half_closed != (up.shut || down.shut) {
                Poll::Ready(TunnelEvent::HalfClosed)
            } else {
                Poll::Pending
            }
        })
        .await;
        match event {
            Ok(TunnelEvent::Done) => break cause.map_or(Ok(()), Err),
            Ok(TunnelEvent::Boundary) => return Ok(TunnelEnd::Boundary),
            Ok(TunnelEvent::HalfClosed) => {}
            Ok(TunnelEvent::Failed(ended)) => break Err(cause.unwrap_or(ended)),
            Err(Interrupt::Abort) => break Err(Ended::aborted(Phase::Data)),
            Err(Interrupt::Timeout) => {
                // Activity only moves the instant that is due, not the timer: look again before giving up.
                let (waits, now) =
                    (TunnelWaits::new(patience, (up, *client_active), (down, *server_active)), core.now());
                let over = |due: Option<Instant>| due.is_some_and(|due| due <= now);
                let sides = [
                    (Side::Client, over(waits.client_write), over(waits.client_read), &mut *up),
                    (Side::Server, over(waits.server_write), over(waits.server_read), &mut *down),
                ];
                let mut stuck = false;
                for (side, takes_nothing, says_nothing, direction) in sides {
                    if takes_nothing || says_nothing {
                        cause.get_or_insert(Ended::timeout(side, Phase::Data));
                    }
                    stuck |= takes_nothing;
                    direction.ended |= says_nothing;
                }
                if stuck {
                    break cause.map_or(Ok(()), Err);
                }
            }
        }
    };
    if outcome.is_err() && !down.shut {
        // Before the reset that a close with unread bytes is.
        client.shutdown_write();
    }
    if outcome.is_err() && !up.shut {
        server.reset_on_close();
    }
    outcome.map(|()| TunnelEnd::Over)
}

/// What came while the server's first bytes were waited for.
pub enum FirstBytes {
    /// So many bytes are in the buffer; 0: the server's end.
    Received(usize),
    /// The client cannot send or the server cannot take any more.
    Failed(Ended),
}

/// Passes on what the client sends, and reads from the server into `buffer` without passing it on, until something came. The deadline is
/// the caller's.
pub async fn first_bytes(
    core: &Core,
    orders: &Orders,
    deadline: &mut Deadline,
    (client, up): (Transport<'_>, &mut Pump),
    (server, buffer): (Transport<'_>, &mut Buffer),
) -> Result<FirstBytes, Interrupt> {
    let mut active = [Activity { read: core.now(), written: core.now() }; 2];
    let [client_active, server_active] = &mut active;
    until(core, orders, deadline, |cx| {
        if let Poll::Ready(Err(failed)) = up.poll(cx, core, false, (client, client_active), (server, server_active)) {
            return Poll::Ready(FirstBytes::Failed(failed.ended(Side::Client, Side::Server)));
        }
        server.poll_read(cx, buffer.room()).map(|read| FirstBytes::Received(read.unwrap_or(0)))
    })
    .await
    .inspect(|first| {
        if let FirstBytes::Received(count) = first {
            buffer.filled(*count);
        }
    })
}

/// When each side must have said or taken something; `None` where it is not waited for. A side whose bytes the other one
/// does not take can say nothing meanwhile.
struct TunnelWaits {
    client_read: Option<Instant>,
    client_write: Option<Instant>,
    server_read: Option<Instant>,
    server_write: Option<Instant>,
}

impl TunnelWaits {
    fn new(patience: &Patience, (up, client): (&Pump, Activity), (down, server): (&Pump, Activity)) -> TunnelWaits {
        let says = |direction: &Pump, active: Activity, limit: Option<Duration>, independent: bool| {
            let waited_for = !direction.ended && !direction.is_blocked();
            let since = if independent { active.read } else { active.read.max(active.written) };
            limit.filter(|_| waited_for).map(|limit| since + limit)
        };
        let takes = |direction: &Pump, active: Activity, limit: Option<Duration>| {
            limit.filter(|_| direction.is_blocked()).map(|limit| active.written + limit)
        };
        let told = |direction: &Pump, fin: Option<Duration>, usual| fin.filter(|_| direction.shut).or(usual);
        let client_limit = told(down, patience.client_fin, patience.client);
        let server_limit = told(up, patience.server_fin, patience.server);
        TunnelWaits {
            client_read: says(up, client, client_limit, patience.client_independent),
            client_write: takes(down, client, patience.client),
            server_read: says(down, server, server_limit, patience.server_independent),
            server_write: takes(up, server, patience.server),
        }
    }

    /// When to look whether one of the waits is over. Who is waited for may change without notice, so that each side is
    /// looked at after its limit all the same.
    fn look_at(&self, patience: &Patience, now: Instant) -> Option<Instant> {
        let again = |limit: Option<Duration>| limit.map(|limit| now + limit);
        let waits = [self.client_read, self.client_write, self.server_read, self.server_write];
        waits.into_iter().chain([again(patience.client), again(patience.server)]).flatten().min()
    }
}
