//! Requests for services of Baton's own, such as the statistics page, on their way from a core to the thread of the change path, which
//! knows all live state, and the responses on their way back.
//!
//! A response that is long, or goes on as things happen, comes in pieces, each of which its core asks for when the piece before it is with
//! the client. What has to be remembered between two pieces travels with them, as a [`Cursor`]: nothing is kept for a client that reads
//! slowly, and nothing is left of one that goes away. A request whose client does not use a service has no part in any of this.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use baton_http::Method;
use baton_model::{Service, StatsPage};
use tokio::sync::{mpsc, oneshot};

/// Calls that wait for the change path's thread; further cores wait themselves.
const CALLS_MAX: usize = 64;

/// Where cores leave requests, and the change path's thread takes them.
#[derive(Debug)]
pub struct ServiceDesk {
    sender: mpsc::Sender<ServiceCall>,
    calls: Mutex<Option<mpsc::Receiver<ServiceCall>>>,
}

/// What a core asks of a service.
#[derive(Debug)]
pub enum ServiceCall {
    /// A request, and the way back.
    Begin(Box<ServiceRequest>, oneshot::Sender<ServiceResponse>),
    /// The next piece of a response.
    Go(Cursor, oneshot::Sender<Piece>),
}

/// A request that Baton answers itself.
#[derive(Debug)]
pub struct ServiceRequest {
    /// By which service.
    pub service: ServiceKind,
    /// Its method.
    pub method: Method,
    /// The path and the query of its target.
    pub target: Vec<u8>,
    /// Fields of its head that services look at ([`FIELDS`]), names in lower case.
    pub fields: Vec<(&'static str, Vec<u8>)>,
    /// Its body, as far as it fits into a buffer.
    pub body: Vec<u8>,
    /// All of the body is there.
    pub is_whole: bool,
    /// The section that the service belongs to.
    pub proxy: Arc<str>,
    /// From where it came; `None`: by a UNIX socket.
    pub client: Option<SocketAddr>,
}

/// Which service, with what the configuration and the rules say of this request.
#[derive(Clone, Debug)]
pub enum ServiceKind {
    /// The statistics page.
    Statistics {
        /// The settings it was asked by.
        page: Arc<StatsPage>,
        /// `stats admin` applies: servers may be changed.
        is_admin: bool,
        /// Who it is, by `stats auth` or what was sent otherwise.
        user: Option<String>,
    },
    /// What `http-request use-service` names.
    Named(Service),
}

/// Fields of a request's head that services look at.
pub const FIELDS: [&str; 6] = ["accept", "cookie", "host", "origin", "referer", "sec-fetch-site"];

/// A response of a service.
#[derive(Debug)]
pub struct ServiceResponse {
    /// Its status.
    pub status: u16,
    /// The type of its body.
    pub content_type: String,
    /// Other fields of its head, in this order. Those that frame the body are added, and that it is not to be cached.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: ServiceBody,
}

/// The body of a response.
#[derive(Debug)]
pub enum ServiceBody {
    /// All of it.
    Whole(Vec<u8>),
    /// It comes in pieces; this asks for the first.
    Pieces(Cursor),
}

/// A part of a body.
#[derive(Debug, Default)]
pub struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Asks for what follows; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// Where a response goes on: only the service knows what is in it.
pub struct Cursor(pub Box<dyn Any + Send>);

impl fmt::Debug for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Cursor")
    }
}

impl ServiceKind {
    /// What stands in the log line in the place of a server.
    pub fn log_name(&self) -> &'static str {
        match self {
            ServiceKind::Statistics { .. } => "<STATS>",
            ServiceKind::Named(Service::PrometheusExporter) => "<PROMEX>",
        }
    }
}

impl ServiceRequest {
    /// Whether it sends something.
    pub fn is_post(&self) -> bool {
        self.method == Method::Post
    }

    /// The value of one of the [`FIELDS`].
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| &value[..])
    }
}

impl ServiceResponse {
    /// One with a whole body.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> ServiceResponse {
        let (content_type, body) = (content_type.into(), ServiceBody::Whole(body.into()));
        ServiceResponse { status, content_type, fields: Vec::new(), body }
    }

    /// With another status.
    #[must_use]
    pub fn status(self, status: u16) -> ServiceResponse {
        ServiceResponse { status, ..self }
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> ServiceResponse {
        self.fields.push((name, value.into()));
        self
    }

    /// With a body that comes in pieces.
    #[must_use]
    pub fn in_pieces(self, cursor: Box<dyn Any + Send>) -> ServiceResponse {
        ServiceResponse { body: ServiceBody::Pieces(Cursor(cursor)), ..self }
    }
}

impl Default for ServiceDesk {
    fn default() -> Self {
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        ServiceDesk { sender, calls: Mutex::new(Some(calls)) }
    }
}

impl ServiceDesk {
    /// The calls, for the one who answers them: once.
    pub fn take_calls(&self) -> Option<mpsc::Receiver<ServiceCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves a call; false when nobody answers any more.
    pub async fn call(&self, call: ServiceCall) -> bool {
        self.sender.send(call).await.is_ok()
    }
}
