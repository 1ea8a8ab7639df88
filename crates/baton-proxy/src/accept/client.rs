//! A client's connection, from accept to close.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_rules::{LogLevel, Variables};
use baton_tls::Facts;
use socket2::{SockAddr, Socket};

use crate::accept::proxy_protocol::{self, Header, Malformed};
use crate::buffer::Buffer;
use crate::core::{Core, Interrupt, Registered, until};
use crate::deadline::Deadline;
use crate::generation::ListenerPlan;
use crate::state::FrontendState;
use crate::stream::Stream;
use crate::upstream::ServerConnection;
use crate::view::{FrontendSlot, FrontendView};

/// The longest we wait for a client to close, once all is said.
const LINGER_MAX: Duration = Duration::from_secs(2);
/// A client that speaks first has done so by then.
const TIME_TO_SPEAK: Duration = Duration::from_millis(50);
/// Bytes of it that we are willing to throw away meanwhile.
const LINGER_BYTES: usize = 1 << 20;

/// Who talks to whom; `None` on unix sockets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// The client's address, or what a PROXY header says it is.
    pub source: Option<SocketAddr>,
    /// The address the client connected to.
    pub destination: Option<SocketAddr>,
}

/// What rules said about one request; the next one begins with a new value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transaction {
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// `disable-l7-retry` applied.
    pub no_retry: bool,
}

/// An accepted connection.
#[derive(Debug)]
pub struct Client {
    /// The socket.
    pub stream: Stream,
    /// Who talks to whom.
    pub addresses: Addresses,
    /// The frontend it came in by.
    pub slot: Rc<FrontendSlot>,
    /// The listener, for its options.
    pub listener: Arc<ListenerPlan>,
    /// Bytes read but not used, while no request is in work; seldom there, so in a place of its own.
    pub input: Option<Box<Buffer>>,
    /// When the current wait ends.
    pub deadline: Deadline,
    /// Its place among the core's connections.
    pub registered: Registered,
    /// When it was accepted.
    pub accepted: Instant,
    /// Requests so far.
    pub requests: u32,
    /// A server connection that only this client may use.
    pub private: Option<Box<ServerConnection>>,
    /// The server of the previous request.
    pub last_server: Option<Arc<crate::balance::ServerState>>,
    /// Variables of the rules.
    pub variables: Variables,
    /// What rules said about the request in work.
    pub transaction: Transaction,
    left: bool,
    state: Arc<FrontendState>,
}

impl Client {
    /// Takes over an accepted socket. The frontend's and the process's gauges were counted up before; dropping the client
    /// counts them down, and so must the caller if this fails.
    pub fn new(
        core: &Rc<Core>,
        socket: Socket,
        peer: &SockAddr,
        listener: &Arc<ListenerPlan>,
        slot: Rc<FrontendSlot>,
    ) -> io::Result<Client> {
        let view = slot.view();
        let mut addresses = Addresses { source: peer.as_socket(), destination: None };
        if addresses.source.is_some() {
            addresses.destination = socket.local_addr().ok().and_then(|local| local.as_socket());
        }
        if view.plan.proxy.tcp.no_linger {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        if view.plan.proxy.tcp.client_keepalive {
            socket.set_keepalive(true)?;
        }
        let stream = Stream::new(socket)?;
        Ok(Client {
            stream,
            addresses,
            slot,
            listener: listener.clone(),
            input: None,
            deadline: Deadline::default(),
            registered: core.enter(),
            accepted: core.now(),
            requests: 0,
            private: None,
            last_server: None,
            variables: Variables::default(),
            transaction: Transaction::default(),
            left: false,
            state: view.plan.state.clone(),
        })
    }

    /// The request in work is over: what was said about it holds for no other.
    pub fn end_transaction(&mut self) {
        self.transaction = Transaction::default();
        self.variables.end_transaction();
    }

    /// The configuration to go by now.
    pub fn view(&self) -> Rc<FrontendView> {
        self.slot.view()
    }

    /// What was agreed on with the client; `None` without TLS.
    pub fn tls(&self) -> Option<&Facts> {
        self.stream.facts()
    }

    /// The bytes that were read but not used.
    pub fn take_input(&mut self) -> Option<Buffer> {
        self.input.take().map(|buffer| *buffer)
    }

    /// Keeps bytes for whoever reads next.
    pub fn keep_input(&mut self, buffer: Buffer) {
        self.input = Some(Box::new(buffer));
    }

    /// Reads the PROXY header that `accept-proxy` requires, within `timeout client`. Bytes that are
    /// none end the connection by a reset; the caller logs the fault.
    pub async fn accept_proxy(&mut self, core: &Core) -> Result<(), Malformed> {
        let mut buffer = self.take_input().unwrap_or_else(|| core.buffers.take());
        let outcome = self.read_proxy_header(core, &mut buffer).await;
        self.keep_input(buffer);
        if outcome.is_err() && self.input.as_ref().is_some_and(|input| !input.is_empty()) {
            self.stream.reset_on_close();
        }
        outcome
    }

    async fn read_proxy_header(&mut self, core: &Core, buffer: &mut Buffer) -> Result<(), Malformed> {
        let limit = self.view().plan.proxy.timeouts.client;
        self.deadline.set(limit.map(|limit| self.accepted + limit));
        loop {
            if !buffer.is_empty() {
                match proxy_protocol::parse(buffer)? {
                    Header::Partial if buffer.is_full() => return Err(Malformed::Truncated),
                    Header::Partial => {}
                    Header::Complete { len, addresses } => {
                        buffer.consume(len);
                        if let Some(addresses) = addresses {
                            self.addresses = addresses;
                        }
                        return Ok(());
                    }
                }
            }
            let stream = &self.stream;
            let read =
                until(core, &self.registered.orders, &mut self.deadline, |cx| stream.poll_read(cx, buffer.room()))
                    .await;
            match read {
                Ok(Ok(count)) if count > 0 => buffer.filled(count),
                Ok(_) | Err(Interrupt::Abort) if buffer.is_empty() => return Err(Malformed::Closed),
                Ok(_) | Err(Interrupt::Abort) => return Err(Malformed::Truncated),
                Err(Interrupt::Timeout) => return Err(Malformed::Late),
            }
        }
    }

    /// Gives the read buffer back when there is nothing in it.
    pub fn rest(&mut self, core: &Core) {
        if let Some(buffer) = self.input.take_if(|buffer| buffer.is_empty()) {
            core.buffers.give(*buffer);
        }
    }

    /// Ends our direction and reads what still comes, for a moment: closing with unread bytes would reset the connection
    /// and the client might lose the response that is on its way.
    pub async fn linger(&mut self, core: &Core) {
        // Nobody else's place is worth it: then only what came already is read.
        self.read_to_end(core, if self.is_full(core) { Duration::ZERO } else { LINGER_MAX }, false).await;
    }

    /// Ends our direction and reads what came already, so that closing is no reset. A client that had no time to speak is
    /// waited for, unless it is refused: its first bytes may be on their way.
    pub async fn drain(&mut self, core: &Core, is_refused: bool) {
        let has_spoken = self.input.as_ref().is_some_and(|input| !input.is_empty());
        let had_time = core.now().saturating_duration_since(self.accepted) >= TIME_TO_SPEAK;
        let waits = !has_spoken && !had_time && !is_refused && !self.is_full(core);
        self.read_to_end(core, if waits { LINGER_MAX } else { Duration::ZERO }, true).await;
    }

    fn is_full(&self, core: &Core) -> bool {
        core.registry.open.load(Ordering::Relaxed) >= i64::from(self.view().maxconn_global)
    }

    /// Waits for the client's end as long as `patience` lasts, or only for its first bytes.
    async fn read_to_end(&mut self, core: &Core, patience: Duration, first_only: bool) {
        self.stream.shutdown_write();
        self.deadline.set(Some(core.now() + patience));
        let mut buffer = core.buffers.take();
        let mut left = LINGER_BYTES;
        while left > 0 {
            buffer.clear();
            let stream = &self.stream;
            let read =
                until(core, &self.registered.orders, &mut self.deadline, |cx| stream.poll_read(cx, buffer.room()))
                    .await;
            match read {
                Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
                _ => break,
            }
            if first_only {
                self.deadline.set(Some(core.now()));
            }
        }
        core.buffers.give(buffer);
    }

    /// Not counted among the frontend's open connections any more: the last response is sent, what follows is politeness.
    /// The process counts it as long as it has a descriptor.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            leave(&self.state, &self.listener);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
        self.registered.core.registry.open.fetch_sub(1, Ordering::Relaxed);
        leave_tls(&self.registered.core, &self.listener);
        self.state.freed.notify_waiters();
        if let Some(buffer) = self.take_input() {
            self.registered.core.buffers.give(buffer);
        }
    }
}

/// A connection at an address with TLS is gone, whether or not the handshake was completed.
pub(super) fn leave_tls(core: &Core, listener: &ListenerPlan) {
    if listener.tls.is_some() {
        core.registry.tls.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of the frontend is gone.
pub(super) fn leave(state: &FrontendState, listener: &ListenerPlan) {
    listener.state.open.fetch_sub(1, Ordering::Relaxed);
    state.open.fetch_sub(1, Ordering::Relaxed);
    state.freed.notify_waiters();
}
