//! A core's own view of a generation: plain pointers instead of shared ones, so that a request counts no reference that
//! another core counts too.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use baton_http::Limits;
use baton_http2::{Config, FRAME_SIZE_MAX, FRAME_SIZE_MIN, Settings};
use baton_model::Global;
use baton_rules::SettingValues;

use crate::generation::{BackendPlan, FrontendPlan, Generation};
use crate::log::{LogWriter, Sinks};
use crate::patience::Patience;
use crate::pipes::{Pipes, Splicer};
use crate::state::ByName;

/// Connections that a socket accepts before other work gets its turn, unless `tune.maxaccept` says otherwise.
const ACCEPTS_PER_TURN: u32 = 64;

/// A frontend as connections see it over their whole life: the view behind it changes, the slot stays.
#[derive(Debug)]
pub struct FrontendSlot {
    view: RefCell<Rc<FrontendView>>,
    removed: Cell<bool>,
}

impl FrontendSlot {
    /// A slot with its first view.
    pub fn new(view: Rc<FrontendView>) -> FrontendSlot {
        FrontendSlot { view: RefCell::new(view), removed: Cell::new(false) }
    }

    /// The view to serve the next request by.
    pub fn view(&self) -> Rc<FrontendView> {
        self.view.borrow().clone()
    }

    /// A new generation has this frontend too.
    pub fn replace(&self, view: Rc<FrontendView>) {
        *self.view.borrow_mut() = view;
    }

    /// A new generation does not have it: its connections get one more response, by the last view.
    pub fn remove(&self) {
        self.removed.set(true);
    }

    /// Whether the frontend is gone from the configuration.
    pub fn is_removed(&self) -> bool {
        self.removed.get()
    }
}

/// A frontend of a generation, on one core.
#[derive(Debug)]
pub struct FrontendView {
    /// What the change path prepared.
    pub plan: Arc<FrontendPlan>,
    /// All backends it may lead to.
    pub backends: Rc<BackendViews>,
    /// `default_backend`.
    pub default_backend: Option<Rc<BackendView>>,
    /// Bounds of a head.
    pub limits: Limits,
    /// The longest part of a request line that is logged.
    pub logged_line_len: usize,
    /// Where it logs.
    pub sinks: Rc<Sinks>,
    /// The process's connection limit.
    pub maxconn_global: u32,
    /// Connections that the process accepts in a second (`maxconnrate`).
    pub rate_global: Option<u32>,
    /// Sessions that begin in a second (`maxsessrate`).
    pub session_rate_global: Option<u32>,
    /// Connections that a socket accepts before other work gets its turn (`tune.maxaccept`).
    pub accepts_per_turn: u32,
    /// The process's limits of TLS with clients.
    pub tls_limits: TlsLimits,
    /// What HTTP/2 clients are told, and may cost.
    pub http2: Rc<Config>,
}

/// How many connections with TLS the process accepts.
#[derive(Clone, Copy, Debug)]
pub struct TlsLimits {
    /// `maxsslconn`.
    pub open: Option<u32>,
    /// `maxsslrate`.
    pub rate: Option<u32>,
}

/// A backend of a generation, on one core.
#[derive(Debug)]
pub struct BackendView {
    /// What the change path prepared.
    pub plan: Arc<BackendPlan>,
    /// What HTTP/2 servers are told, and may cost.
    pub http2: Rc<Config>,
    /// Bounds of a response's head.
    pub limits: Limits,
    /// Whether its server that was asked last speaks HTTP/2: the next request is composed for that.
    pub speaks_http2: Cell<bool>,
}

/// The backends of a generation, on one core. Each view is made when a request first goes there, so that a core takes up a generation
/// of thousands of backends as fast as one of a few.
#[derive(Debug)]
pub struct BackendViews {
    plans: Arc<ByName<Arc<BackendPlan>>>,
    http2: Rc<Config>,
    limits: Limits,
    made: RefCell<ByName<Rc<BackendView>>>,
}

impl BackendViews {
    /// Of these plans.
    pub fn new(plans: Arc<ByName<Arc<BackendPlan>>>, global: &Global) -> BackendViews {
        let limits = Limits { head_bytes: global.bufsize, ..head_limits(global) };
        BackendViews {
            plans,
            http2: Rc::new(http2_config(global, limits, Side::Servers)),
            limits,
            made: RefCell::default(),
        }
    }

    /// The backend of that name.
    pub fn get(&self, name: &str) -> Option<Rc<BackendView>> {
        if let Some(view) = self.made.borrow().get(name) {
            return Some(view.clone());
        }
        let (name, plan) = self.plans.get_key_value(name)?;
        let view = Rc::new(BackendView {
            plan: plan.clone(),
            http2: self.http2.clone(),
            limits: self.limits,
            speaks_http2: Cell::new(false),
        });
        self.made.borrow_mut().insert(name.clone(), view.clone());
        Some(view)
    }
}

impl FrontendView {
    /// Whether the backend is the other side of this `listen` section. A `frontend` and a `backend` may have the same name.
    pub fn is_listen_of(&self, backend: &BackendView) -> bool {
        let (own, other) = (&self.plan.proxy, &backend.plan.proxy);
        own.role.is_backend() && own.name == other.name
    }

    /// The views of all frontends of `generation`, by name.
    pub fn all(log: &LogWriter, generation: &Arc<Generation>) -> ByName<Rc<FrontendView>> {
        let global = &generation.model.global;
        let limits = head_limits(global);
        let http2 = Rc::new(http2_config(global, limits, Side::Clients));
        let backends = Rc::new(BackendViews::new(generation.backends.clone(), global));
        let view = |plan: &Arc<FrontendPlan>| {
            let default = plan.default_backend.as_ref().and_then(|backend| backends.get(&backend.proxy.name));
            Rc::new(FrontendView {
                plan: plan.clone(),
                backends: backends.clone(),
                default_backend: default,
                limits: Limits { relaxed: plan.proxy.http.accept_invalid_request, ..limits },
                logged_line_len: global.logged_line_len,
                sinks: log.sinks(&plan.proxy.logging),
                maxconn_global: generation.maxconn,
                rate_global: global.maxconnrate,
                session_rate_global: global.maxsessrate,
                accepts_per_turn: global.maxaccept.unwrap_or(ACCEPTS_PER_TURN),
                tls_limits: TlsLimits { open: global.maxsslconn, rate: global.maxsslrate },
                http2: http2.clone(),
            })
        };
        generation.frontends.iter().map(|plan| (plan.proxy.name.clone(), view(plan))).collect()
    }

    /// Leave to splice requests to `backend`, and its responses, as the configuration says.
    pub fn splicers(&self, pipes: &Rc<Pipes>, backend: &BackendView) -> (Option<Splicer>, Option<Splicer>) {
        let (ours, theirs) = (&self.plan.proxy.tcp, &backend.plan.proxy.tcp);
        let auto = ours.splice_auto || theirs.splice_auto;
        let leave = |asked: bool| (auto || asked).then(|| Splicer::new(pipes));
        (leave(ours.splice_request || theirs.splice_request), leave(ours.splice_response || theirs.splice_response))
    }

    /// The limits of a tunnel to `backend`, unless rules have `set` others.
    pub fn patience(&self, backend: &BackendView, set: Option<&SettingValues>) -> Patience {
        Patience::new(&self.plan.proxy, &backend.plan.proxy, set)
    }
}

/// Streams whose servers do not take what their clients send hold up no other one before they hold this many windows.
const STALLED_STREAMS: u32 = 16;
/// A server's connection has windows for so many streams at least, if it may have as many.
const STREAMS_USUAL_MAX: u32 = 256;

/// Bounds of heads, as HTTP/1 has them.
fn head_limits(global: &Global) -> Limits {
    Limits {
        head_bytes: global.bufsize.saturating_sub(global.maxrewrite),
        headers: global.maxhdr,
        relaxed: false,
        http10_payload: global.http10_payload,
    }
}

/// Whose connections HTTP/2 is spoken on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Clients,
    Servers,
}

/// `tune.h2.*`, and heads as long as those of HTTP/1.
fn http2_config(global: &Global, limits: Limits, side: Side) -> Config {
    let tuning = &global.http2;
    let of_servers = |own: Option<u32>, all: u32| own.filter(|_| side == Side::Servers).unwrap_or(all);
    let window = of_servers(tuning.server_initial_window_size, tuning.initial_window_size);
    let streams = of_servers(tuning.server_max_concurrent_streams, tuning.max_concurrent_streams);
    // A client is not to hold up others whose responses come over the same connection.
    let stalled = match side {
        Side::Clients => STALLED_STREAMS,
        Side::Servers => streams.clamp(1, STREAMS_USUAL_MAX),
    };
    let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
    let fields = u32::try_from(limits.headers).unwrap_or(u32::MAX);
    let usual = Settings::default();
    let settings = Settings {
        header_table_size: tuning.header_table_size,
        enable_push: false,
        max_concurrent_streams: match streams {
            0 => u32::MAX,
            most => most,
        },
        initial_window_size: window,
        max_frame_size: frame_size(global),
        enable_connect_protocol: !tuning.no_websockets,
        ..usual
    };
    Config {
        settings,
        connection_window: window.saturating_mul(stalled).clamp(65_535, i32::MAX as u32),
        // Each field counts for 32 bytes more; cookies may come in crumbs, which are one field of what is forwarded.
        head_bytes_max: head_bytes.saturating_add(64 * fields),
        head_fields_max: 2 * fields,
        block_bytes_max: head_bytes.saturating_mul(2),
        glitches_max: match side {
            Side::Clients => tuning.glitches_max,
            Side::Servers => tuning.server_glitches_max,
        },
        ..Config::default()
    }
}

/// `tune.h2.max-frame-size`: a buffer, or what is given, within what the protocol allows.
fn frame_size(global: &Global) -> u32 {
    let buffer = u32::try_from(global.bufsize).unwrap_or(u32::MAX).clamp(FRAME_SIZE_MIN, FRAME_SIZE_MAX);
    global.http2.max_frame_size.map_or(buffer, |most| most.min(buffer))
}
