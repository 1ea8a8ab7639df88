//! An address on its way out: no new connections, and who reached it before is still accepted.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::half_open::Handshakes;
use baton_kernel::retire::{Retiring, SynFilter, accept_queue};
use baton_kernel::{ListenOptions, ListenerGroup, Listening};
use baton_model::Address;
use baton_proxy::ListenerId;
use socket2::SockRef;

use super::lent::{Elsewhere, Lent};
use super::paused::Pause;
use super::place::OwnerKind;
use super::{Known, Listener, Place};
use crate::retirement::{LOOK_EVERY, QueueObservation, RetireStep, Retirement};

/// How long the sockets that another program serves by now are held, to be given to one that was started right after it
/// and still asks us: the signal that tells us to leave and the question may come in any order. Not longer: what nobody
/// accepts from must not look open when the other program closes it.
const GIVES_ON_FOR: Duration = Duration::from_millis(500);

/// An address that takes no new connections.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) place: Place,
    pub(super) id: ListenerId,
    sockets: Vec<Retiring>,
    /// Sockets from which we have no right to keep new connections (see [`bound`](super::bound)): their queues hold one at a time, and
    /// they are closed in a moment in which they are empty.
    open_still: Vec<Listening>,
    shards: Arc<[OwnedFd]>,
    options: ListenOptions,
    given: Vec<Known>,
    /// Who has the sockets too and serves them: nothing may be done to those but closing our descriptors.
    elsewhere: Elsewhere,
    /// With [`Elsewhere::First`].
    lent: Option<Lent>,
    is_told: bool,
    /// A process that is about to take over has the sockets too.
    is_offered: bool,
    kind: OwnerKind,
    since: Instant,
    retirement: Retirement,
}

impl Leaving {
    /// Keeps new clients from the sockets of an address that was in service.
    pub(super) fn start(mut listener: Listener, place: Place, now: Instant) -> Leaving {
        if listener.pause == Some(Pause::Silent) {
            // Nobody waits in sockets that do not listen, and whoever listens there now has its own.
            listener.elsewhere = Elsewhere::All;
        }
        let (mut sockets, mut open_still, mut lent) = (Vec::new(), Vec::new(), None);
        let ours = match listener.elsewhere {
            // An inherited socket is not ours to silence: whoever passed it on still holds it, so nothing is lost with it.
            _ if matches!(place.address, Address::Fd(_)) => Vec::new(),
            Elsewhere::Nobody => listener.group.into_shards(),
            Elsewhere::All => Vec::new(),
            Elsewhere::First { .. } => match Lent::start(listener.group, &listener.given) {
                Ok(started) => {
                    lent = Some(started);
                    Vec::new()
                }
                // Clients of the others come again a second later.
                Err(others) => others,
            },
        };
        for listening in ours {
            match keep_out(listening) {
                Ok(retiring) => sockets.push(retiring),
                Err(listening) => open_still.push(listening),
            }
        }
        let Listener { id, shards, options, given, elsewhere, kind, .. } = listener;
        let retirement = Retirement::start(now, open_still.is_empty());
        Leaving {
            place,
            id,
            sockets,
            open_still,
            shards,
            options,
            given,
            elsewhere,
            kind,
            lent,
            is_told: false,
            is_offered: false,
            since: now,
            retirement,
        }
    }

    /// Its sockets.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Retiring::listening).chain(&self.open_still).map(AsFd::as_fd)
    }

    /// Those of its TCP sockets that new clients still reach, by the kernel's numbers.
    pub(super) fn open_still(&self) -> impl Iterator<Item = u64> {
        let is_inet = matches!(self.place.address, Address::Inet(_));
        let sockets = self.open_still.iter().filter(move |_| is_inet);
        sockets.filter_map(|socket| SockRef::from(socket).cookie().ok())
    }

    /// Looks whether another process that has the sockets and the right has kept new connections from them meanwhile.
    fn look_for_filter(&mut self, now: Instant) {
        if self.open_still.is_empty() || !matches!(self.place.address, Address::Inet(_)) {
            return;
        }
        for listening in std::mem::take(&mut self.open_still) {
            match Retiring::found(listening) {
                Ok(retiring) => {
                    // Handshakes under way find room again.
                    let _ = retiring.listening().relisten(self.options.backlog);
                    self.sockets.push(retiring);
                }
                Err(listening) => self.open_still.push(listening),
            }
        }
        if self.open_still.is_empty() {
            self.retirement = Retirement::start(now, true);
        }
    }

    /// Whether the address can come back into service with these options.
    pub(super) fn can_resume(&self, kind: OwnerKind, options: &ListenOptions) -> bool {
        self.is_whole() && *options == self.options && kind == self.kind
    }

    /// Whether all of its sockets are ours, and of a kind that can come back into service.
    pub(super) fn is_whole(&self) -> bool {
        let is_whole = self.sockets.len() + self.open_still.len() == self.shards.len();
        matches!(self.place.address, Address::Inet(_)) && is_whole
    }

    /// Its sockets for a process that takes over, if they could come back into service; they are not closed before it is decided who
    /// has them.
    pub(super) fn offer(&mut self) -> Option<Arc<[OwnedFd]>> {
        self.is_offered = self.is_whole() && self.elsewhere == Elsewhere::Nobody;
        self.is_offered.then(|| self.shards.clone())
    }

    /// The other process serves it now: nothing is done to the sockets but closing our descriptors.
    pub(super) fn hand_over(&mut self) {
        (self.elsewhere, self.is_offered) = (Elsewhere::All, false);
        self.sockets.clear();
        self.open_still.clear();
    }

    /// The other process does not want it, though it may have begun to put it into service.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.is_offered) {
            for socket in &self.sockets {
                // Without the right to, those who come until it is closed are served.
                let _ = SynFilter::attach(socket.listening());
            }
        }
    }

    /// Lets new clients in again, as the first step back into service. The cores accept from it all the time, so [`Leaving::keep_out`]
    /// can take it back without loss.
    ///
    /// # Errors
    /// What the system says; then nobody is let in who was not before.
    pub(super) fn let_in(&mut self) -> Result<(), String> {
        let lengthen = |socket: &Listening| socket.relisten(self.options.backlog);
        let outcome = self.sockets.iter().try_for_each(Retiring::let_in);
        let outcome = outcome.and_then(|()| self.open_still.iter().try_for_each(lengthen));
        outcome.map_err(|error| {
            self.keep_out();
            format!("{}: {error}", self.place)
        })
    }

    /// Undoes [`Leaving::let_in`]: who came meanwhile is served.
    pub(super) fn keep_out(&mut self) {
        let sockets = std::mem::take(&mut self.sockets).into_iter().map(Retiring::into_listening);
        for listening in sockets.chain(std::mem::take(&mut self.open_still)).collect::<Vec<_>>() {
            match keep_out(listening) {
                Ok(retiring) => self.sockets.push(retiring),
                Err(listening) => self.open_still.push(listening),
            }
        }
    }

    /// Back in service, with who waits in its queues. New clients are [let in](Leaving::let_in) already.
    pub(super) fn back(self) -> Option<Listener> {
        let sockets = self.sockets.into_iter().map(Retiring::into_listening).chain(self.open_still).collect();
        let group = ListenerGroup::adopt(sockets, &self.options)?;
        let Leaving { id, shards, options, given, kind, .. } = self;
        Some(Listener {
            id,
            group,
            shards,
            options,
            given,
            elsewhere: Elsewhere::Nobody,
            pause: None,
            is_disabled: false,
            kind,
        })
    }

    /// What to do at `now`.
    pub(super) fn step(&mut self, now: Instant, handshakes: &mut Handshakes) -> RetireStep {
        if self.is_offered {
            return RetireStep::Look(now + LOOK_EVERY);
        }
        self.look_for_filter(now);
        let is_nothing_ours = match &self.lent {
            Some(lent) if lent.is_alone() && now < self.since + GIVES_ON_FOR => {
                return RetireStep::Look(self.since + GIVES_ON_FOR);
            }
            Some(lent) => lent.is_alone(),
            None => self.elsewhere == Elsewhere::All,
        };
        match is_nothing_ours {
            true => RetireStep::Close,
            false => {
                let seen = self.see(handshakes);
                self.retirement.step(now, seen)
            }
        }
    }

    /// The first socket, where another program serves it.
    pub(super) fn first_of_others(&self) -> Option<super::Offer<'_>> {
        let place = &self.place;
        self.lent.as_ref().map(|lent| super::Offer { place, sockets: lent.first(), shards: &self.shards })
    }

    /// Whether it is to be said, once, that nobody here accepts from the first socket any more.
    pub(super) fn leaves_first(&mut self) -> bool {
        let is_told = std::mem::replace(&mut self.is_told, true);
        matches!(self.elsewhere, Elsewhere::First { .. }) && !is_told
    }

    /// What is left of those who came before.
    fn see(&mut self, handshakes: &mut Handshakes) -> QueueObservation {
        if let Some(lent) = &mut self.lent {
            return lent.see();
        }
        let mut seen = QueueObservation::Empty;
        for socket in &self.open_still {
            match accept_queue(socket) {
                Ok(queue) if queue.waiting == 0 => {}
                Ok(_) => return QueueObservation::Busy,
                Err(_) => seen = QueueObservation::Unknown,
            }
        }
        for socket in &self.sockets {
            match socket.is_empty_beside(handshakes) {
                Ok(true) => {}
                Ok(false) => return QueueObservation::Busy,
                Err(_) => seen = QueueObservation::Unknown,
            }
        }
        seen
    }

    /// Ends sockets new connections could not be kept from, right after they were seen empty.
    pub(super) fn stop_open_still(&self) {
        for socket in &self.open_still {
            // Fails on a socket that does not listen any more, which is what is wanted.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
    }

    /// Frees the address even if a connection that came by it still holds on to its descriptors.
    pub(super) fn close(self) {
        if let Some(lent) = self.lent {
            lent.close();
            return;
        }
        let of_others = match self.elsewhere {
            _ if matches!(self.place.address, Address::Fd(_)) => self.shards.len(),
            Elsewhere::Nobody => 0,
            Elsewhere::First { .. } => 1,
            Elsewhere::All => self.shards.len(),
        };
        for shard in self.shards.iter().skip(of_others) {
            // Fails on a socket that does not listen any more, which is what is wanted.
            let _ = SockRef::from(shard).shutdown(Shutdown::Both);
        }
    }
}

/// Keeps new clients from a socket; without the right to, as many as possible.
fn keep_out(listening: Listening) -> Result<Retiring, Listening> {
    // Somebody before us may have done it.
    let retiring = Retiring::start(listening).or_else(|error| Retiring::found(error.listening));
    retiring.inspect_err(|listening| {
        // A failure leaves the queue as long as it was.
        let _ = listening.relisten(0);
    })
}
