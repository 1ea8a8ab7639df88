//! Accepting sessions of the runtime API, as many as there may be. Whoever comes beyond that waits in the kernel's queue.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use baton_kernel::output;
use baton_kernel::watch::{self, SharedSocket};
use baton_model::{AccessLevel, Address, Author, Bind, BindOptions, SeverityOutput, Source, StatsSocket};
use baton_proxy::{ProcessSum, supervise};
use socket2::{SockRef, Socket};
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use super::connection::Connection;
use super::{Shared, session};
use crate::listeners::OpenStats;

/// Pause after the system refused us a descriptor.
const PAUSE_WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(100);

/// A socket that is served; dropping it ends that.
#[derive(Debug)]
pub(super) struct Listening {
    target: Rc<Target>,
    /// One for each socket of the address: one that was taken over may have several.
    tasks: Vec<AbortHandle>,
}

/// What sessions of a socket begin with.
#[derive(Debug)]
struct Target {
    socket: RefCell<StatsSocket>,
    /// Sessions of this socket now.
    open: Cell<u32>,
}

impl Listening {
    /// Begins to accept.
    pub fn start(shared: &Rc<Shared>, open: &OpenStats) -> Listening {
        let target = Rc::new(Target { socket: RefCell::new(open.socket.clone()), open: Cell::new(0) });
        let mut listening = Listening { target, tasks: Vec::new() };
        for shard in (0..open.shards.len()).filter_map(|at| SharedSocket::at(&open.shards, at)) {
            let (shared, target) = (shared.clone(), listening.target.clone());
            let accept = move || accept(shard.clone(), shared.clone(), target.clone());
            let task = tokio::task::spawn_local(supervise::for_ever(accept));
            listening.tasks.push(task.abort_handle());
        }
        listening
    }

    /// Sessions that begin from now on have these settings.
    pub fn lead(&self, socket: StatsSocket) {
        self.target.socket.replace(socket);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// A session of its own, of a socket that is none of ours.
pub(super) fn serve_alone(shared: &Rc<Shared>, socket: Socket, level: AccessLevel, by: Option<Author>) {
    let bind = Bind {
        address: Address::Abstract("master".into()),
        name: None,
        id: None,
        options: BindOptions::default(),
        source: Source::default(),
    };
    let begin = StatsSocket { bind, level, severity: SeverityOutput::None, exposes_listeners: false };
    let target = Rc::new(Target { socket: RefCell::new(begin.clone()), open: Cell::new(0) });
    if let Ok(connection) = Connection::new(socket) {
        let by = by.unwrap_or_else(|| connection.author(&begin.bind.address));
        tokio::task::spawn_local(session::serve(connection, begin, by, SessionSlot::take(shared, &target)));
    }
}

/// The socket, watched. Where that fails it is tried until it succeeds: who connects meanwhile waits in its queue.
async fn watched(socket: SharedSocket, target: &Target) -> AsyncFd<SharedSocket> {
    let mut is_told = false;
    loop {
        match watch::listening(socket.clone()) {
            Ok(listening) => return listening,
            Err(error) if !std::mem::replace(&mut is_told, true) => output::print_error(&format!(
                "[ALERT]    ({}) : stats socket {}: cannot register it with epoll, retrying: {error}\n",
                std::process::id(),
                target.socket.borrow().bind.address
            )),
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE_WITHOUT_DESCRIPTORS).await;
    }
}

async fn accept(socket: SharedSocket, shared: Rc<Shared>, target: Rc<Target>) {
    let fd = watched(socket, &target).await;
    loop {
        while !has_room(&shared, &target) {
            shared.freed.notified().await;
        }
        let Ok(mut ready) = fd.readable().await else { return };
        let flags = nix::libc::SOCK_NONBLOCK | nix::libc::SOCK_CLOEXEC;
        match SockRef::from(fd.get_ref()).accept4(flags) {
            Ok((socket, _)) => {
                let place = SessionSlot::take(&shared, &target);
                let begin = target.socket.borrow().clone();
                if let Ok(connection) = Connection::new(socket) {
                    let by = connection.author(&begin.bind.address);
                    tokio::task::spawn_local(session::serve(connection, begin, by, place));
                }
            }
            Err(error) => match error.raw_os_error() {
                // A unix socket that was shut down has no error, and stays ready for ever.
                Some(nix::libc::EAGAIN) if ready.ready().is_read_closed() => return,
                Some(nix::libc::EAGAIN) => ready.clear_ready(),
                Some(nix::libc::ECONNABORTED | nix::libc::EINTR | nix::libc::EPROTO) => {}
                // It was shut down: the order to close follows.
                Some(nix::libc::EINVAL) => return,
                _ => tokio::time::sleep(PAUSE_WITHOUT_DESCRIPTORS).await,
            },
        }
        tokio::task::yield_now().await;
    }
}

fn has_room(shared: &Shared, target: &Target) -> bool {
    let own = target.socket.borrow().bind.options.maxconn;
    shared.open.get() < shared.settings.borrow().maxconn && own.is_none_or(|most| target.open.get() < most)
}

/// A session's place among all.
#[derive(Debug)]
pub(super) struct SessionSlot {
    pub shared: Rc<Shared>,
    target: Rc<Target>,
}

impl SessionSlot {
    fn take(shared: &Rc<Shared>, target: &Rc<Target>) -> SessionSlot {
        shared.open.set(shared.open.get() + 1);
        shared.sums.add(ProcessSum::RuntimeSessions, 1);
        target.open.set(target.open.get() + 1);
        SessionSlot { shared: shared.clone(), target: target.clone() }
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.shared.open.set(self.shared.open.get() - 1);
        self.target.open.set(self.target.open.get() - 1);
        self.shared.freed.notify_waiters();
    }
}
