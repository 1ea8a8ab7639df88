//! Accepting connections, as many as the frontend and the process may have.

mod connection;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_kernel::watch::{self, SharedSocket};
use socket2::{SockAddr, SockRef, Socket};
use tokio::io::unix::AsyncFd;

use crate::client::Client;
use crate::connection::Membership;
use crate::core::Core;
use crate::generation::{Generation, ListenerPlan};
use crate::http1::{self, Kept, Line};
use crate::http2;
use crate::moving::Arrival;
use crate::state::{Counter, ListenerId};
use crate::supervise;
use crate::tcp;
use crate::view::{FrontendSlot, TlsLimits};

/// Pause after the system refused us a descriptor.
const PAUSE_WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(50);
/// Pause before a socket that could not be watched is tried again.
const PAUSE_WITHOUT_WATCH: Duration = Duration::from_millis(100);
/// How often a full frontend looks for room, besides being told.
const PAUSE_WHEN_FULL: Duration = Duration::from_millis(100);

/// What accepts for one core.
#[derive(Debug)]
pub struct Acceptors {
    line: Rc<Line>,
    list: RefCell<HashMap<ListenerId, Acceptor>>,
}

impl Acceptors {
    /// None yet.
    pub fn new(line: Rc<Line>) -> Acceptors {
        Acceptors { line, list: RefCell::default() }
    }

    /// Connections accepted from now on are served as `generation`, which the core has applied, says.
    pub fn apply(&self, generation: &Generation) {
        let mut list = self.list.borrow_mut();
        for plan in &generation.listeners {
            let Some(slot) = self.line.core.frontend(&plan.frontend.proxy.name) else { continue };
            match list.get(&plan.id) {
                Some(acceptor) => acceptor.lead(plan.clone(), slot),
                None => {
                    list.insert(plan.id, Acceptor::start(&self.line, plan.clone(), slot));
                }
            }
        }
    }

    /// Stops accepting on a listener and drops its sockets.
    pub fn close(&self, id: ListenerId) {
        if let Some(acceptor) = self.list.borrow_mut().remove(&id) {
            acceptor.stop();
        }
    }

    /// Stops accepting on one socket of a listener; the others go on.
    pub fn leave(&self, id: ListenerId, place: usize) {
        if let Some(acceptor) = self.list.borrow().get(&id) {
            acceptor.leave(place);
        }
    }

    /// Serves a connection that was served elsewhere until now. One whose frontend has gone meanwhile is closed.
    pub fn adopt(&self, mut arrival: Arrival) {
        let line = self.line.clone();
        let Some(slot) = line.core.frontend(&arrival.listener.frontend.proxy.name) else { return };
        let tunnel = arrival.tunnel.take();
        let http2 = arrival.client.http2.take();
        let mut client = Box::new(Client::arrive(&line.core, arrival, slot));
        if let Some(state) = http2 {
            let tasks = line.streams.clone();
            return drop(tokio::task::spawn_local(http2::resume(tasks, client, state)));
        }
        match tunnel {
            None => drop(tokio::task::spawn_local(Kept::resume(line, client))),
            Some(tunnel) if tunnel.state.request.is_some() => {
                tokio::task::spawn_local(async move { Box::pin(http1::resume(line, client, *tunnel)).await });
            }
            Some(tunnel) => {
                tokio::task::spawn_local(async move { Box::pin(tcp::resume(&line.core, &mut client, *tunnel)).await });
            }
        }
    }

    /// Stops accepting.
    pub fn stop(&self) {
        self.list.borrow_mut().drain().for_each(|(_, acceptor)| acceptor.stop());
    }
}

/// What accepts on one listener for one core.
#[derive(Debug)]
struct Acceptor {
    target: Rc<RefCell<Target>>,
    /// One for each socket that is this core's to serve, with the socket's place among those of the listener.
    tasks: Vec<(usize, tokio::task::JoinHandle<()>)>,
}

/// Where accepted connections go now.
#[derive(Clone, Debug)]
struct Target {
    plan: Arc<ListenerPlan>,
    slot: Rc<FrontendSlot>,
}

impl Acceptor {
    /// Starts accepting on this core's sockets of the listener.
    fn start(line: &Rc<Line>, plan: Arc<ListenerPlan>, slot: Rc<FrontendSlot>) -> Acceptor {
        // None are left of an address that was dropped in this moment.
        let sockets = plan.shards.upgrade().unwrap_or_else(|| Vec::new().into());
        let target = Rc::new(RefCell::new(Target { plan, slot }));
        let tasks = sockets_of(line.core.number, line.core.registry.cores(), sockets.len())
            .filter_map(|at| Some((at, SharedSocket::at(&sockets, at)?)))
            .map(|(at, socket)| {
                let (line, target) = (line.clone(), target.clone());
                let accept = move || accept_all(line.clone(), socket.clone(), target.clone());
                (at, tokio::task::spawn_local(supervise::for_ever(accept)))
            })
            .collect();
        Acceptor { target, tasks }
    }

    /// Connections accepted from now on go to this frontend, with the options of this `bind`.
    fn lead(&self, plan: Arc<ListenerPlan>, slot: Rc<FrontendSlot>) {
        *self.target.borrow_mut() = Target { plan, slot };
    }

    /// Stops accepting and lets go of the sockets.
    fn stop(&self) {
        self.tasks.iter().for_each(|(_, task)| task.abort());
    }

    /// Stops accepting on one socket of the listener, which another process serves.
    fn leave(&self, place: usize) {
        self.tasks.iter().filter(|(at, _)| *at == place).for_each(|(_, task)| task.abort());
    }
}

/// Which of `sockets` sockets are served by core `core` of `cores`: every socket has a core and every core a socket,
/// whichever there are more of. Adopted sockets may be as many as the cores of the process they come from.
fn sockets_of(core: usize, cores: usize, sockets: usize) -> impl Iterator<Item = usize> {
    let (first, step) = match sockets > cores {
        true => (core, cores.max(1)),
        false => (core % sockets.max(1), sockets.max(1)),
    };
    (first..sockets).step_by(step)
}

async fn accept_all(line: Rc<Line>, socket: SharedSocket, target: Rc<RefCell<Target>>) {
    let core = &line.core;
    let listening = watched(core, socket, &target).await;
    let mut failing = false;
    loop {
        wait_for_room(core, &target).await;
        let Ok(mut ready) = listening.readable().await else { return };
        let most = target.borrow().slot.view().accepts_per_turn;
        let mut is_queue_empty = false;
        for _ in 0..most {
            let now = target.borrow().clone();
            if !has_room(core, &now) {
                break;
            }
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            match SockRef::from(listening.get_ref()).accept4(flags) {
                Ok((socket, peer)) => {
                    failing = false;
                    supervise::may_panic("accept");
                    admit(&line, &now, socket, &peer);
                }
                Err(error) => match error.raw_os_error() {
                    // A unix socket that was shut down has no error, and stays ready for ever.
                    Some(libc::EAGAIN) if ready.ready().is_read_closed() => return,
                    Some(libc::EAGAIN) => {
                        ready.clear_ready();
                        is_queue_empty = true;
                        break;
                    }
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO) => {}
                    // The change path shut the socket down: the order to close follows.
                    Some(libc::EINVAL) => return,
                    _ => {
                        // Said once until it is over.
                        if !std::mem::replace(&mut failing, true) {
                            core.log.trouble(&format!("accept on {}: {error}", now.plan.bind.address));
                        }
                        tokio::time::sleep(PAUSE_WITHOUT_DESCRIPTORS).await;
                        break;
                    }
                },
            }
        }
        // Waiting for the next client lets the others run as well.
        if !is_queue_empty {
            tokio::task::yield_now().await;
        }
    }
}

/// The socket, watched. Where that fails it is tried until it succeeds, since nobody else may accept on this socket; who
/// connects meanwhile waits in its queue.
async fn watched(core: &Core, socket: SharedSocket, target: &RefCell<Target>) -> AsyncFd<SharedSocket> {
    let listener = || format!("listener {}: core {}", target.borrow().plan.bind.address, core.number);
    let mut failed = false;
    loop {
        match watch::listening(socket.clone()) {
            Ok(listening) => {
                if failed {
                    core.log.trouble(&format!("{} serves it now", listener()));
                }
                return listening;
            }
            Err(error) if !failed => {
                failed = true;
                core.log.trouble(&format!("{} cannot register a socket with epoll, retrying: {error}", listener()));
            }
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE_WITHOUT_WATCH).await;
    }
}

/// What waits in the kernel's queue is neither lost nor refused: it is accepted when there is room.
async fn wait_for_room(core: &Rc<Core>, target: &Rc<RefCell<Target>>) {
    loop {
        let now = target.borrow().clone();
        if has_room(core, &now) {
            return;
        }
        let state = now.slot.view().plan.state.clone();
        let freed = state.freed.notified();
        if has_room(core, &now) {
            return;
        }
        let _ = tokio::time::timeout(PAUSE_WHEN_FULL, freed).await;
    }
}

/// Whether one more connection may be accepted: by the `bind`, the frontend, its rate, and the process, which may limit those
/// with TLS further. What is over a limit waits in the kernel's queue.
fn has_room(core: &Core, target: &Target) -> bool {
    let view = target.slot.view();
    let proxy = &view.plan.proxy;
    let limits = &core.registry.limits;
    let limit = view.plan.state.maxconn.or(proxy.maxconn.unwrap_or(view.maxconn_global));
    let global = limits.connections.or(view.maxconn_global);
    let second = || core.registry.second(core.now());
    let own = target.plan.bind.options.maxconn;
    own.is_none_or(|most| target.plan.state.open.load(Ordering::Relaxed) < i64::from(most))
        && proxy.rate_limit.is_none_or(|most| view.plan.state.rate.count(second()) < u64::from(most))
        && limits
            .connection_rate
            .rate_or(view.rate_global)
            .is_none_or(|most| core.registry.rate.count(second()) < u64::from(most))
        && limits
            .session_rate
            .rate_or(view.session_rate_global)
            .is_none_or(|most| core.registry.session_rate.count(second()) < u64::from(most))
        && view.plan.state.open.load(Ordering::Relaxed) < i64::from(limit)
        && core.registry.open.load(Ordering::Relaxed) < i64::from(global)
        && (target.plan.tls.is_none() || has_room_for_tls(core, view.tls_limits))
}

fn has_room_for_tls(core: &Core, limits: TlsLimits) -> bool {
    let TlsLimits { open, rate } = limits;
    let figures = &core.registry.tls;
    open.is_none_or(|most| figures.open.load(Ordering::Relaxed) < i64::from(most))
        && core
            .registry
            .limits
            .tls_rate
            .rate_or(rate)
            .is_none_or(|most| figures.rate.count(core.registry.second(core.now())) < u64::from(most))
}

fn admit(line: &Rc<Line>, target: &Target, socket: Socket, peer: &SockAddr) {
    let view = target.slot.view();
    let (core, state) = (&line.core, &view.plan.state);
    if view.plan.proxy.tcp.socket_stats {
        target.plan.state.counters.add(core.number, Counter::Connections, 1);
    }
    if view.plan.proxy.rate_limit.is_some() {
        state.rate.add(core.registry.second(core.now()));
    }
    let limits = &core.registry.limits;
    if limits.connection_rate.rate_or(view.rate_global).is_some() {
        core.registry.rate.add(core.registry.second(core.now()));
    }
    if limits.session_rate.rate_or(view.session_rate_global).is_some() {
        core.registry.session_rate.add(core.registry.second(core.now()));
    }
    state.counters.add(core.number, Counter::Connections, 1);
    if target.plan.tls.is_some() && limits.tls_rate.rate_or(view.tls_limits.rate).is_some() {
        core.registry.tls.rate.add(core.registry.second(core.now()));
    }
    let membership = Membership::enter(core, &target.plan, state);
    match Client::new(socket, peer, membership, target.slot.clone()) {
        Ok(client) => {
            tokio::task::spawn_local(connection::serve(line.clone(), Box::new(client)));
        }
        Err(error) => {
            core.log.trouble(&format!("connection on {}: {error}", target.plan.bind.address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_a_core_and_every_core_a_socket() {
        let check = |cores: usize, sockets: usize, expect: &[&[usize]]| {
            let found: Vec<Vec<usize>> = (0..cores).map(|core| sockets_of(core, cores, sockets).collect()).collect();
            assert_eq!(found, expect, "{cores} cores, {sockets} sockets");
        };
        check(2, 2, &[&[0], &[1]]);
        check(3, 1, &[&[0], &[0], &[0]]);
        check(3, 2, &[&[0], &[1], &[0]]);
        check(2, 5, &[&[0, 2, 4], &[1, 3]]);
        check(1, 3, &[&[0, 1, 2]]);
        check(1, 0, &[&[]]);
    }
}
