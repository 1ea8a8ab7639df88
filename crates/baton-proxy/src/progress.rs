//! How far an exchange has come: whose it is by now. What the stages of the request path, rules and the log go by.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_model::{ConnectionMode, Proxy};
use baton_tables::{OwnedKey, Table};

use crate::balance::{ServerState, Slot};
use crate::ended::Ended;
use crate::server_exchange::BegunRequest;
use crate::state::{Counter, CounterBlock, enter};
use crate::view::{BackendView, FrontendView};

/// The frontend, backend and server of an exchange, as far as they are chosen.
#[derive(Debug)]
pub struct Progress {
    /// The frontend as it was when the request began.
    pub frontend: Rc<FrontendView>,
    backend: Option<Inside>,
    server: Option<Arc<ServerState>>,
    server_counters: Option<Arc<CounterBlock>>,
    slot: Option<Slot>,
    reused: bool,
    /// HTTP/2 is spoken with the server.
    speaks_http2: Option<bool>,
    /// Where the request was begun last.
    begun: Option<BegunRequest>,
    early_end: Option<Ended>,
    /// What became of the client's persistence cookie.
    pub persistence: Persistence,
    replacement: Option<Vec<u8>>,
    /// Keys of stick tables that are to be bound to its server.
    pub stick_keys: StickKeys,
}

/// Keys of stick tables that are to be bound to the server of an exchange, once it has responded.
pub type StickKeys = Vec<(Arc<Table>, OwnedKey)>;

/// What the response's cookie depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Persistence {
    /// The server was chosen by the client's cookie, a rule or a stick table, not by balancing.
    pub is_wanted: bool,
    /// `ignore-persist` applied: no cookie is given.
    pub is_ignored: bool,
    /// The dates in the client's cookie, when it was followed.
    pub dates: Option<CookieDates>,
}

/// The dates in a persistence cookie, in steps of four seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CookieDates {
    /// When it was last sent to the client.
    pub last: Option<u32>,
    /// When it was first sent.
    pub first: Option<u32>,
}

/// A session of a backend, counted until it leaves, or ends in whatever way.
#[derive(Debug)]
struct Inside {
    backend: Rc<BackendView>,
    is_counted: bool,
    /// It was counted as a request of the backend when it came there.
    is_request_counted: bool,
}

impl Inside {
    fn enter(backend: &Rc<BackendView>) -> Inside {
        let figures = &backend.plan.figures;
        enter(&figures.open, &figures.open_max);
        Inside { backend: backend.clone(), is_counted: true, is_request_counted: false }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.backend.plan.figures.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Progress {
    /// A request that came in by this frontend.
    #[inline(always)]
    pub fn new(frontend: Rc<FrontendView>) -> Progress {
        Progress {
            frontend,
            backend: None,
            server: None,
            server_counters: None,
            slot: None,
            reused: false,
            speaks_http2: None,
            begun: None,
            early_end: None,
            persistence: Persistence::default(),
            replacement: None,
            stick_keys: StickKeys::new(),
        }
    }

    /// The backend was chosen: this is one of its sessions from now on.
    pub fn enter(&mut self, backend: &Rc<BackendView>) {
        self.backend = Some(Inside::enter(backend));
    }

    /// Counts a request of the backend, on behalf of a core.
    pub fn count_request(&mut self, core: usize) {
        if let Some(inside) = &mut self.backend {
            inside.is_request_counted = true;
            inside.backend.plan.figures.counters.add(core, Counter::Requests, 1);
        }
    }

    /// The backend has counted it as a request, in another process.
    pub fn note_counted_request(&mut self) {
        if let Some(inside) = &mut self.backend {
            inside.is_request_counted = true;
        }
    }

    /// Whether the backend has counted it as a request already.
    pub fn is_request_counted(&self) -> bool {
        self.backend.as_ref().is_some_and(|inside| inside.is_request_counted)
    }

    /// It is none of the backend's sessions any more. The log still names the backend.
    pub fn leave(&mut self) {
        if let Some(inside) = &mut self.backend {
            inside.leave();
        }
    }

    /// The backend that was chosen.
    pub fn backend(&self) -> Option<&Rc<BackendView>> {
        self.backend.as_ref().map(|inside| &inside.backend)
    }

    /// The proxy that is at work: the backend's, once it is chosen.
    pub fn proxy(&self) -> &Arc<Proxy> {
        self.backend().map_or(&self.frontend.plan.proxy, |backend| &backend.plan.proxy)
    }

    /// Whether a log line or a rule has the address that the server was connected from.
    pub fn names_source_address(&self) -> bool {
        self.frontend.plan.rules.names_source_address()
            || self.backend().is_some_and(|backend| backend.plan.rules.names_source_address())
    }

    /// The stricter of what frontend and backend say about connections between requests.
    pub fn connection_mode(&self) -> ConnectionMode {
        let frontend = self.frontend.plan.proxy.http.connection;
        let backend = self.backend().map_or(ConnectionMode::KeepAlive, |backend| backend.plan.proxy.http.connection);
        match (frontend, backend) {
            (ConnectionMode::Close, _) | (_, ConnectionMode::Close) => ConnectionMode::Close,
            (ConnectionMode::ServerClose, _) | (_, ConnectionMode::ServerClose) => ConnectionMode::ServerClose,
            (ConnectionMode::KeepAlive, ConnectionMode::KeepAlive) => ConnectionMode::KeepAlive,
        }
    }

    /// The server that was chosen last, or whose queue the request waits in.
    pub fn server(&self) -> Option<&Arc<ServerState>> {
        self.server.as_ref()
    }

    /// The counters of the server that was chosen.
    pub fn server_counters(&self) -> Option<&Arc<CounterBlock>> {
        self.server_counters.as_ref()
    }

    /// Waits in this server's queue.
    pub fn wait_for(&mut self, server: &Arc<ServerState>) {
        self.server = Some(server.clone());
    }

    /// A server was chosen. Its counters are asked for unless they are known. Whether it is another one than before.
    pub fn choose(&mut self, server: &Arc<ServerState>, counters: impl FnOnce() -> Arc<CounterBlock>) -> bool {
        let is_known = self.server.as_ref().is_some_and(|known| Arc::ptr_eq(known, server));
        if !is_known || self.server_counters.is_none() {
            self.server_counters = Some(counters());
            self.server = Some(server.clone());
        }
        !is_known
    }

    /// Keeps the place at the server, which is given up only after the log line is written.
    pub fn keep(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }

    /// Whether it still holds its place at the server.
    pub fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// The request goes over a connection, which carried another one before or did not.
    pub fn go_over(&mut self, is_reused: bool) {
        self.reused = is_reused;
    }

    /// HTTP/2 is spoken over the connection, or is not.
    pub fn note_version(&mut self, is_http2: bool) {
        self.speaks_http2 = Some(is_http2);
    }

    /// The request has begun here.
    pub fn begins_at(&mut self, begun: Option<BegunRequest>) {
        self.begun = begun;
    }

    /// Where it was begun last; `None`: it was not.
    pub fn begun(&self) -> Option<&BegunRequest> {
        self.begun.as_ref()
    }

    /// It ends before its time, and the client gets a response that says so.
    pub fn ends_early(&mut self, ended: Ended) {
        self.early_end = Some(ended);
    }

    /// How it ended before its time.
    pub fn early_end(&self) -> Option<Ended> {
        self.early_end
    }

    /// Whether HTTP/2 is spoken with the server; `None` before there was a connection to one.
    pub fn speaks_http2(&self) -> Option<bool> {
        self.speaks_http2
    }

    /// Whether the request went over a connection that had carried another one.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// What a response rule gives the client instead of the server's response.
    pub fn replace_response(&mut self, page: Option<Vec<u8>>) {
        self.replacement = page;
    }

    /// The response of a response rule, once.
    pub fn take_replacement(&mut self) -> Option<Vec<u8>> {
        self.replacement.take()
    }
}
