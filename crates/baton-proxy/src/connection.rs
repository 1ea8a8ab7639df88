//! The first of the three lives on the request path: a client's connection. What is about one request only is no part of it, so
//! that several could be in work at once. It has no `Drop` of its own: it can be taken apart and put together again.

use std::cell::{Cell, OnceCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_tls::Facts;
use socket2::{SockAddr, Socket};

use crate::core::{Core, Orders, Registered};
use crate::generation::ListenerPlan;
use crate::proxy_protocol::{Addresses, HeaderValues};
use crate::state::{FrontendState, enter};
use crate::stream::Stream;
use crate::view::FrontendView;

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket, or TLS over it.
    pub stream: Stream,
    /// The address that the client connected to, once somebody asked for it.
    pub destination: OnceCell<Option<SocketAddr>>,
    /// It began with a PROXY header.
    pub has_proxy_header: bool,
    /// The values with types in that header, if there are any.
    pub proxy_values: Option<Box<HeaderValues>>,
    /// When it was accepted, or its TLS handshake was done.
    pub accepted: Instant,
    /// HTTP/2 is spoken.
    pub is_http2: bool,
    /// How long its handshakes took: TLS, and a PROXY header.
    pub handshake_ms: u32,
    /// Its place among the open ones.
    pub membership: Membership,
}

impl Connection {
    /// Takes over an accepted socket.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn new(socket: Socket, peer: &SockAddr, view: &FrontendView, membership: Membership) -> io::Result<Connection> {
        if view.plan.proxy.tcp.no_linger {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        if view.plan.proxy.tcp.client_keepalive {
            socket.set_keepalive(true)?;
        }
        let accepted = membership.registered.core.now();
        Ok(Connection::assemble(Stream::accepted(socket), peer.as_socket(), OnceCell::new(), accepted, membership))
    }

    /// Puts the parts of a connection together: those of an accepted socket, or of a connection that was taken apart elsewhere.
    pub fn assemble(
        stream: Stream,
        source: Option<SocketAddr>,
        destination: OnceCell<Option<SocketAddr>>,
        accepted: Instant,
        membership: Membership,
    ) -> Connection {
        let Registered { core, orders, .. } = &membership.registered;
        orders.notes.accepted(stream.socket().as_raw_fd(), source, core.moment(accepted));
        let (has_proxy_header, proxy_values, is_http2, handshake_ms) = (false, None, false, 0);
        Connection { stream, destination, has_proxy_header, proxy_values, accepted, is_http2, handshake_ms, membership }
    }

    /// A handshake is over: what follows is timed from here.
    pub fn begin_again(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.accepted).as_millis();
        self.handshake_ms = self.handshake_ms.saturating_add(u32::try_from(took).unwrap_or(u32::MAX));
        self.accepted = now;
    }

    /// The client's address, or what a PROXY header says it is; `None` on unix sockets.
    pub fn source(&self) -> Option<SocketAddr> {
        self.orders().notes.source()
    }

    /// The address that the client connected to, or what a PROXY header says it is; `None` on unix sockets. The kernel is asked
    /// when somebody asks for the first time: most requests need it for nothing.
    pub fn destination(&self) -> Option<SocketAddr> {
        let ask = || self.stream.socket().local_addr().ok().and_then(|local| local.as_socket());
        *self.destination.get_or_init(|| self.source().and_then(|_| ask()))
    }

    /// Who talks to whom.
    pub fn addresses(&self) -> Addresses {
        Addresses { source: self.source(), destination: self.destination() }
    }

    /// Who talks to whom, as a PROXY header says.
    pub fn speak_for(&mut self, addresses: Addresses) {
        self.orders().notes.comes_from(addresses.source);
        self.destination = OnceCell::from(addresses.destination);
    }

    /// The listener that accepted it.
    pub fn listener(&self) -> &Arc<ListenerPlan> {
        &self.membership.listener
    }

    /// What the core tells it.
    pub fn orders(&self) -> &Orders {
        &self.membership.registered.orders
    }

    /// What was agreed on with the client; `None` without TLS.
    pub fn tls(&self) -> Option<&Facts> {
        self.stream.facts()
    }
}

/// A connection among those of its core, and in the counts of open ones: the process's, its frontend's, its listener's, and that of
/// TLS. Counted from its first moment until it is dropped.
#[derive(Debug)]
pub struct Membership {
    /// Its place among those of its core, which knows it by that.
    pub registered: Registered,
    listener: Arc<ListenerPlan>,
    frontend: Arc<FrontendState>,
    left: Cell<bool>,
}

impl Membership {
    /// One more connection of the listener and its frontend.
    pub fn enter(core: &Rc<Core>, listener: &Arc<ListenerPlan>, frontend: &Arc<FrontendState>) -> Membership {
        core.registry.open.fetch_add(1, Ordering::Relaxed);
        enter(&frontend.open, &frontend.open_max);
        enter(&listener.state.open, &listener.state.open_max);
        if listener.tls.is_some() {
            core.registry.tls.open.fetch_add(1, Ordering::Relaxed);
        }
        let (listener, frontend) = (listener.clone(), frontend.clone());
        let registered = core.enter();
        Membership { registered, listener, frontend, left: Cell::new(false) }
    }

    /// The listener that accepted it.
    pub fn listener(&self) -> &Arc<ListenerPlan> {
        &self.listener
    }

    /// Not counted among the frontend's open connections any more: the last response is sent, what follows is politeness.
    /// The process counts it as long as it has a descriptor.
    pub fn leave(&self) {
        if !self.left.replace(true) {
            self.listener.state.open.fetch_sub(1, Ordering::Relaxed);
            self.frontend.open.fetch_sub(1, Ordering::Relaxed);
            self.frontend.freed.notify_waiters();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
        let registry = &self.registered.core.registry;
        registry.open.fetch_sub(1, Ordering::Relaxed);
        if self.listener.tls.is_some() {
            registry.tls.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.frontend.freed.notify_waiters();
    }
}
