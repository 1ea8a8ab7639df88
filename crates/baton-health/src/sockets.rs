//! The sockets of checks that pass from one check to the next.
//!
//! A check over TCP as traffic has it (no source address of its own, no orderly end) takes a socket that another check has given back, connects,
//! and gives it back by ending the connection. So a check costs two calls of the kernel besides its bytes, and no registration with the reactor. Who
//! cannot have one opens a socket of its own.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use baton_kernel::connect::{ConnectError, ConnectOptions, ConnectStep};
use baton_kernel::reconnect::{Readiness, Reconnecting, SocketSet};
use baton_proxy::supervise;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

/// Sockets that are kept while no check uses them.
const IDLE_MAX: usize = 1024;

/// A connection of a check.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Both ends of a connection: ours, theirs.
type Pair = (SocketAddr, SocketAddr);

/// The sockets of a process' checks. Dropping it closes them.
pub(crate) struct Sockets {
    store: Rc<Store>,
    driver: AbortHandle,
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What checks and the task that wakes them share.
struct Store {
    set: RefCell<SocketSet>,
    /// By key; `None`: closed, the key is free.
    all: RefCell<Vec<Option<Rc<Held>>>>,
    /// Keys that are free.
    free: RefCell<Vec<usize>>,
    /// Given back last: used first.
    idle: RefCell<Vec<Rc<Held>>>,
    /// Given back, with a connection that is to be ended.
    ending: RefCell<Vec<Rc<Held>>>,
    /// Of the task that ends them.
    driver: RefCell<Option<Waker>>,
}

/// What a socket can be used for: it keeps its options.
#[derive(Debug, PartialEq)]
struct Kind {
    is_ipv6: bool,
    delays_ack: bool,
    options: ConnectOptions,
}

/// A socket, and what is known of it since it connected last.
#[derive(Debug)]
struct Held {
    key: usize,
    kind: Kind,
    socket: Reconnecting,
    is_used: Cell<bool>,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer sends no more: what is left is read without another event.
    ended: Cell<bool>,
    failed: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Sockets {
    /// No socket yet; a task of the current `LocalSet` wakes who waits for one.
    ///
    /// # Errors
    /// Descriptors or memory ran out.
    pub(crate) fn new() -> io::Result<Sockets> {
        let store = Rc::new(Store {
            set: RefCell::new(SocketSet::new()?),
            all: RefCell::default(),
            free: RefCell::default(),
            idle: RefCell::default(),
            ending: RefCell::default(),
            driver: RefCell::default(),
        });
        let driven = Rc::clone(&store);
        let drive = move || {
            let store = Rc::clone(&driven);
            async move {
                // An error is one of memory: the next event is another attempt.
                while store.wake().await.is_ok() {}
            }
        };
        let driver = tokio::task::spawn_local(supervise::for_ever(drive)).abort_handle();
        Ok(Sockets { store, driver })
    }

    /// Starts connecting to `peer` by a socket with these options.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn connect(
        &self,
        peer: SocketAddr,
        options: &ConnectOptions,
        delays_ack: bool,
    ) -> Result<CheckSocket, ConnectError> {
        let is_ipv6 = peer.is_ipv6();
        // One that was used before and fails is no reason: another one is tried.
        if let Some(held) = self.store.take(is_ipv6, options, delays_ack) {
            let socket = CheckSocket { store: Rc::clone(&self.store), held };
            if socket.held.start(peer).is_ok() {
                return Ok(socket);
            }
            socket.held.failed.set(true);
        }
        let kind = Kind { is_ipv6, delays_ack, options: options.clone() };
        let socket = CheckSocket { held: self.store.open(kind)?, store: Rc::clone(&self.store) };
        socket.held.start(peer).inspect_err(|_| socket.held.failed.set(true))?;
        Ok(socket)
    }

    /// Sockets that are open.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.store.all.borrow().iter().flatten().count()
    }
}

impl Store {
    /// Ends the connections that are of no more use, and wakes those to whose sockets something happened.
    async fn wake(&self) -> io::Result<()> {
        poll_fn(|cx| {
            self.end_all();
            self.driver.borrow_mut().get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
            let all = self.all.borrow();
            self.set.borrow_mut().poll_events(cx, |key, readiness| {
                if let Some(Some(held)) = usize::try_from(key).ok().and_then(|key| all.get(key)) {
                    held.happen(readiness);
                }
            })
        })
        .await
    }

    fn take(&self, is_ipv6: bool, options: &ConnectOptions, delays_ack: bool) -> Option<Rc<Held>> {
        let mut idle = self.idle.borrow_mut();
        let is_fitting = |held: &Rc<Held>| {
            let Kind { is_ipv6: six, delays_ack: delays, options: own } = &held.kind;
            *six == is_ipv6 && *delays == delays_ack && own == options
        };
        let at = idle.iter().rposition(is_fitting)?;
        Some(idle.swap_remove(at))
    }

    fn open(&self, kind: Kind) -> Result<Rc<Held>, ConnectError> {
        let socket = Reconnecting::open(kind.is_ipv6, &kind.options, kind.delays_ack)?;
        let mut all = self.all.borrow_mut();
        let key = self.free.borrow_mut().pop().unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        let watched = self.set.borrow().add(&socket, key as u64);
        if let Err(source) = watched {
            self.free.borrow_mut().push(key);
            return Err(ConnectError { step: ConnectStep::Socket, source });
        }
        let held = Rc::new(Held {
            key,
            kind,
            socket,
            is_used: Cell::new(false),
            readable: Cell::new(false),
            writable: Cell::new(false),
            ended: Cell::new(false),
            failed: Cell::new(false),
            waiting: RefCell::default(),
        });
        all[key] = Some(Rc::clone(&held));
        Ok(held)
    }

    /// A check has no use for it any more.
    fn give_back(&self, held: &Rc<Held>) {
        held.is_used.set(false);
        held.waiting.take();
        if held.failed.get() {
            return self.close(held);
        }
        let mut ending = self.ending.borrow_mut();
        // The task that ends connections has its turn after the checks that are ready now: their packets leave in a row, which wakes another CPU
        // that receives them once.
        if ending.is_empty()
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
        ending.push(Rc::clone(held));
    }

    /// Ends the connections of sockets that were given back.
    fn end_all(&self) {
        for held in self.ending.borrow_mut().drain(..) {
            let has_room = self.idle.borrow().len() < IDLE_MAX;
            match has_room && held.socket.disconnect().is_ok() {
                true => self.idle.borrow_mut().push(held),
                false => self.close(&held),
            }
        }
    }

    fn close(&self, held: &Rc<Held>) {
        if let Some(place) = self.all.borrow_mut().get_mut(held.key) {
            *place = None;
            self.free.borrow_mut().push(held.key);
        }
    }
}

impl Held {
    /// What was known is about an earlier connection.
    fn start(&self, peer: SocketAddr) -> Result<(), ConnectError> {
        for known in [&self.readable, &self.writable, &self.ended, &self.failed] {
            known.set(false);
        }
        self.is_used.set(true);
        self.socket.connect(peer)
    }

    fn happen(&self, readiness: Readiness) {
        if !self.is_used.get() {
            return;
        }
        let Readiness { readable, writable, ended, failed } = readiness;
        for (known, news) in
            [(&self.readable, readable), (&self.writable, writable), (&self.ended, ended), (&self.failed, failed)]
        {
            known.set(known.get() || news);
        }
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    /// To be woken by the next event.
    fn wait(&self, cx: &mut Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        match &mut *waiting {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waiting = Some(cx.waker().clone()),
        }
    }
}

/// A connection of a check. Dropping it resets the connection and gives the socket back.
pub(crate) struct CheckSocket {
    store: Rc<Store>,
    held: Rc<Held>,
}

impl CheckSocket {
    /// Waits until the connection is there.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        let held = &self.held;
        poll_fn(|cx| match (held.failed.get(), held.writable.get()) {
            (true, _) => Poll::Ready(Err(match held.socket.socket().take_error() {
                Ok(Some(error)) | Err(error) => error,
                Ok(None) => io::ErrorKind::ConnectionReset.into(),
            })),
            (false, true) => Poll::Ready(Ok(())),
            (false, false) => {
                held.wait(cx);
                Poll::Pending
            }
        })
        .await
    }

    /// Both ends.
    pub(crate) fn ends(&self) -> Option<Pair> {
        let socket = self.held.socket.socket();
        let ours = socket.local_addr().ok()?.as_socket()?;
        Some((ours, socket.peer_addr().ok()?.as_socket()?))
    }
}

impl Drop for CheckSocket {
    fn drop(&mut self) {
        self.store.give_back(&self.held);
    }
}

impl AsyncRead for CheckSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let held = &self.held;
        loop {
            if !held.readable.get() {
                held.wait(cx);
                return Poll::Pending;
            }
            let wanted = room.remaining();
            match held.socket.receive(room.initialize_unfilled()) {
                Ok(count) => {
                    // All of it was read; but an end that was reported already is not reported again.
                    held.readable.set(count == wanted || held.ended.get());
                    room.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => held.readable.set(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for CheckSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let held = &self.held;
        loop {
            if !held.writable.get() {
                held.wait(cx);
                return Poll::Pending;
            }
            match held.socket.transmit(bytes) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => held.writable.set(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends our direction.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.held.socket.socket().shutdown(std::net::Shutdown::Write))
    }
}
