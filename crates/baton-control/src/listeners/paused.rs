//! Not listening for a while: a program that cannot share our addresses asks for them (SIGTTOU), tries to listen there
//! itself, and tells us either to end or to go on (SIGTTIN; management manual, 4).
//!
//! A socket that stops listening resets who waits in it. So new connections are kept away first, those who came before are
//! accepted, and then it stops. From then on the system refuses clients, until the other program or we listen again:
//! that is why only those programs ask that cannot do otherwise. Sockets stay bound, ours, and in their order.

use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use baton_kernel::half_open::Handshakes;
use baton_kernel::retire::{SynFilter, accept_queue};
use baton_model::{Address, Proxy};
use baton_proxy::ListenerId;
use socket2::SockRef;

use super::leaving::Leaving;
use super::lent::{self, Elsewhere};
use super::place::OwnerKind;
use super::{Listener, Listeners, Place};

/// How long to wait until nobody is left in the queues. HAProxy tries for two seconds.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How often to look.
pub const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How far the pause of an address has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pause {
    /// It listens still; new connections are kept away if the kernel lets us.
    Emptying { since: Instant },
    /// It does not listen.
    Silent,
}

impl Listeners {
    /// Begins to pause the TCP addresses of frontends; nothing happens to those that are paused already, and to those of
    /// which another program was given a socket: it has no need, and would lose its own service with ours. False when
    /// there is nothing new to pause.
    pub fn pause(&mut self, now: Instant) -> bool {
        let mut is_new = false;
        lent::settle(self.open.values_mut(), now);
        for (place, listener) in &mut self.open {
            let is_ours = matches!(place.address, Address::Inet(_)) && listener.elsewhere == Elsewhere::Nobody;
            if is_ours && listener.kind == OwnerKind::Frontend && listener.pause.is_none() {
                listener.pause = Some(Pause::Emptying { since: now });
                is_new = true;
                for socket in listener.group.shards() {
                    // Without the right to, clients go on coming until the moment in which it stops listening.
                    let _ = SynFilter::attach(socket);
                }
            }
        }
        is_new
    }

    /// Stops listening at addresses that are to pause and have nobody left. The cores shall close those in the answer.
    pub fn fall_silent(&mut self, now: Instant) -> Vec<ListenerId> {
        let (mut silent, mut handshakes) = (Vec::new(), Handshakes::default());
        for listener in self.open.values_mut() {
            let Some(Pause::Emptying { since }) = listener.pause else { continue };
            if listener.is_empty(&mut handshakes) || now >= since + WAIT_MAX {
                for socket in listener.group.shards() {
                    // Fails on a socket that does not listen any more, which is what is wanted.
                    let _ = SockRef::from(socket).shutdown(Shutdown::Both);
                    let _ = SynFilter::detach(socket);
                }
                listener.pause = Some(Pause::Silent);
                silent.push(listener.id);
            }
        }
        silent
    }

    /// Whether any address is paused, or about to be.
    pub fn is_paused(&self) -> bool {
        self.open.values().any(|listener| listener.pause.is_some() && !listener.is_disabled)
    }

    /// Whether [`Listeners::fall_silent`] has something to look at.
    pub fn is_falling_silent(&self) -> bool {
        self.open.values().any(|listener| matches!(listener.pause, Some(Pause::Emptying { .. })))
    }

    /// Listens again at all paused addresses. The cores shall accept again, by the generation in use.
    ///
    /// # Errors
    /// The addresses at which somebody else listens by now, with the system's words; they stay paused.
    pub fn unpause(&mut self) -> Result<(), Vec<String>> {
        let mut refused = Vec::new();
        for (place, listener) in self.open.iter_mut().filter(|(_, listener)| !listener.is_disabled) {
            if let Err(error) = listener.unpause() {
                refused.push(format!("{place}: {error}"));
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    /// Begins to pause the TCP addresses of one frontend until [`Listeners::enable`]. False: there is none that can be.
    pub fn disable(&mut self, frontend: &Proxy, now: Instant) -> bool {
        let mut is_any = false;
        lent::settle(self.open.values_mut(), now);
        for bind in &frontend.binds {
            let Some(listener) = self.open.get_mut(&Place::of(bind)) else { continue };
            if !matches!(bind.address, Address::Inet(_)) || listener.elsewhere != Elsewhere::Nobody {
                continue;
            }
            is_any = true;
            if listener.pause.is_none() {
                listener.pause = Some(Pause::Emptying { since: now });
                for socket in listener.group.shards() {
                    // Without the right to, clients go on coming until the moment in which it stops listening.
                    let _ = SynFilter::attach(socket);
                }
            }
            listener.is_disabled = true;
        }
        is_any
    }

    /// Listens again at the addresses of a frontend that was disabled: those on which the cores shall accept again, by the generation in
    /// use, and those at which somebody else listens by now, which stay disabled.
    pub fn enable(&mut self, frontend: &Proxy) -> (Vec<ListenerId>, Vec<String>) {
        let (mut open, mut refused) = (Vec::new(), Vec::new());
        for place in frontend.binds.iter().map(Place::of) {
            let Some(listener) = self.open.get_mut(&place).filter(|listener| listener.is_disabled) else { continue };
            match listener.unpause() {
                Ok(()) => {
                    listener.is_disabled = false;
                    open.push(listener.id);
                }
                Err(error) => refused.push(format!("{place}: {error}")),
            }
        }
        (open, refused)
    }

    /// Keeps new clients from the addresses of one frontend, which are closed once they are empty.
    pub fn shut_down(&mut self, frontend: &Proxy, now: Instant) {
        lent::settle(self.open.values_mut(), now);
        for place in frontend.binds.iter().map(Place::of) {
            if let Some(listener) = self.open.remove(&place) {
                self.retiring.add(Leaving::start(listener, place, now));
            }
        }
    }
}

impl Listener {
    /// Whether nobody waits to be accepted or is in the middle of a handshake.
    fn is_empty(&self, handshakes: &mut Handshakes) -> bool {
        let handshakes = self.group.shards().first().map_or(Ok(0), |socket| handshakes.at(socket));
        // In this order: a handshake that ends in between moves into a queue, which is looked at later.
        handshakes.is_ok_and(|count| count == 0)
            && self.group.shards().iter().all(|socket| accept_queue(socket).is_ok_and(|queue| queue.waiting == 0))
    }

    fn unpause(&mut self) -> io::Result<()> {
        match self.pause {
            None => {}
            Some(Pause::Emptying { .. }) => {
                for socket in self.group.shards() {
                    SynFilter::detach(socket)?;
                }
            }
            Some(Pause::Silent) => {
                for socket in self.group.shards() {
                    socket.relisten(self.options.backlog)?;
                }
            }
        }
        self.pause = None;
        Ok(())
    }
}
