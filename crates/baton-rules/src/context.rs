//! What rules are evaluated against: one request or response, and the connection it came by.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use baton_http::{RequestMut, ResponseMut};
use baton_model::Source;
use baton_tls::Facts;

use crate::body::Body;
use crate::capture::Captures;
use crate::format::Format;
use crate::live::LiveState;
use crate::log::{LogSource, UniqueId};
use crate::settings::RuleSettings;
use crate::tracking::TrackedScopes;
use crate::variable::VariableScopes;

/// Everything an evaluation may look at, and the two heads and the variables it may change.
///
/// Build one for each evaluation from what the connection holds; it borrows all of it and allocates nothing.
pub struct Context<'a> {
    /// The time, read by the caller.
    pub now: SystemTime,
    /// The client's address, after the PROXY protocol; `None` for a unix socket.
    pub client: Option<SocketAddr>,
    /// The address the client connected to; `None` for a unix socket.
    pub destination: &'a dyn Fn() -> Option<SocketAddr>,
    /// Another one, which `destination` gives as soon as it is set.
    pub changed_destination: &'a Cell<Option<SocketAddr>>,
    /// What was agreed on with the client; `None`: the client side is not encrypted.
    pub client_tls: Option<&'a Facts>,
    /// What was agreed on with the server; `None`: there is no connection yet, or it is not encrypted.
    pub server_tls: Option<&'a Facts>,
    /// The frontend.
    pub frontend: ProxyName<'a>,
    /// The backend; `None` before it is chosen.
    pub backend: Option<ProxyName<'a>>,
    /// The server; `None` before it is chosen.
    pub server: Option<&'a str>,
    /// The `bind` it came in by.
    pub listener: Listener<'a>,
    /// Knows proxies, servers and connections as they are now.
    pub live: &'a dyn LiveState,
    /// What the client sent so far, in `mode tcp`.
    pub content: Option<TcpContent<'a>>,
    /// What the server sent so far, in `mode tcp`.
    pub answer: Option<&'a [u8]>,
    /// No more data is waited for (`tcp-request inspect-delay`): fetches answer from what is there.
    pub last_chance: bool,
    /// Whether a fetch would know more with more data.
    pub undecided: Cell<bool>,
    /// `disable-l7-retry` applied; read it after the evaluation.
    pub no_retry: bool,
    /// How many rewrites failed; read it after the evaluation.
    pub failed_rewrites: u32,
    /// Whether this is the connection's first request.
    pub first_request: bool,
    /// The request; `None` in TCP mode and in connection rules.
    pub request: Option<Request<'a>>,
    /// The response; `None` until its head is there.
    pub response: Option<Response<'a>>,
    /// The variables of the session and of the exchange.
    pub variables: VariableScopes<'a>,
    /// The entries of stick tables that the session and the exchange track.
    pub tracked: TrackedScopes<'a>,
    /// The status of the response of our own that is being composed: `%ST` has it where there is no response yet.
    pub own_status: Option<u16>,
    /// What is set besides; in rules about a request that of the request.
    pub settings: &'a mut RuleSettings,
    /// The request line as received, where it is kept for the log: what is left of the request when the response is sent.
    pub line: Option<&'a [u8]>,
    /// The version of the server's response, such as `HTTP/1.1`, once it is there.
    pub response_version: Option<&'static str>,
    /// What is captured of the exchange; `None` before there is one.
    pub captures: Option<&'a RefCell<Captures>>,
    /// The unique ID of the exchange, and the format that it is made by.
    pub unique_id: Option<(&'a UniqueId, Option<&'a Format>)>,
    /// What the log knows of the exchange.
    pub log: &'a dyn LogSource,
    /// What `set-log-level` asked for; read it after the evaluation.
    pub log_level: Option<LogLevel>,
    /// Whether a password matches a hash of crypt(5): the caller may know it already, since some take long to compute.
    pub matches_hash: &'a dyn Fn(&str, &[u8]) -> bool,
    /// The last rule that ended a rule set; read it after the evaluation.
    pub last_rule: Option<RuleLine>,
    /// Gives a random number at each call.
    pub random: &'a dyn Fn() -> u32,
    /// Working memory: keep one per core, its content does not matter.
    pub scratch: &'a mut Vec<u8>,
}

/// Where a rule stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleLine {
    /// The file. Names of files are kept for the life of the process: there are few.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
}

impl RuleLine {
    /// Where a rule was written.
    pub(crate) fn of(source: &Source) -> RuleLine {
        RuleLine::at(&source.file, source.line)
    }

    /// A line of a file, of this process or of another one.
    pub fn at(file: &str, line: u32) -> RuleLine {
        static FILES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match files.get(file) {
            Some(known) => known,
            None => {
                let new: &'static str = Box::leak(Box::from(file));
                files.insert(new);
                new
            }
        };
        RuleLine { file, line }
    }
}

/// `set-log-level`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogLevel {
    /// No line at all.
    Silent,
    /// This syslog level, from 0 (`emerg`) to 7 (`debug`).
    Level(u8),
}

/// A proxy as fetches name it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProxyName<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its `id`.
    pub id: u32,
}

/// A `bind` as fetches name it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Listener<'a> {
    /// Its `name`.
    pub name: Option<&'a str>,
    /// Its `id`, or its place among those of the frontend, from 1.
    pub id: u64,
}

/// The start of a connection in `mode tcp`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TcpContent<'a> {
    /// The bytes that are there.
    pub bytes: &'a [u8],
    /// Whether more of them could make an HTTP request of it.
    pub may_become_http: bool,
}

impl Context<'_> {
    /// The request line as received, taken apart again: it is wanted rarely.
    pub(crate) fn received(&self) -> Option<RequestLine<'_>> {
        match (&self.request, self.line) {
            (Some(request), _) => Some(request.received()),
            (None, line) => line.map(RequestLine::of),
        }
    }

    /// Notes that more data could change an answer. False when no more is waited for.
    pub(crate) fn wait(&self) -> bool {
        let more = !self.last_chance
            && match (&self.content, &self.answer, &self.request) {
                (Some(_), _, _) | (_, Some(_), _) => true,
                (None, None, Some(request)) => !request.complete,
                (None, None, None) => false,
            };
        if more {
            self.undecided.set(true);
        }
        more
    }
}

/// A request.
pub struct Request<'a> {
    /// The head; actions change it.
    pub head: RequestMut<'a>,
    /// What is there of the body.
    pub body: Body<'a>,
    /// Whether no more of the body will come before the rules decide.
    pub complete: bool,
}

/// A response.
pub struct Response<'a> {
    /// The head; actions change it.
    pub head: ResponseMut<'a>,
    /// What is there of the body.
    pub body: Body<'a>,
}

/// The request line as it was received: what rules changed does not show in `%r` and its parts, as in HAProxy 2.6.
#[derive(Clone, Copy)]
pub(crate) struct RequestLine<'c> {
    pub whole: &'c [u8],
    pub method: &'c [u8],
    pub target: &'c [u8],
    pub version: &'c [u8],
}

/// The path and query of a target as received, without a scheme and an authority.
pub(crate) fn path_and_query(target: &[u8]) -> &[u8] {
    match memchr::memmem::find(target, b"://") {
        Some(at) if !target.starts_with(b"/") => {
            memchr::memchr(b'/', &target[at + 3..]).map_or(b"/", |slash| &target[at + 3 + slash..])
        }
        _ => target,
    }
}

impl Request<'_> {
    /// The request line as received.
    fn received(&self) -> RequestLine<'_> {
        let line = self.head.view().received();
        RequestLine::of(&line[..memchr::memchr(b'\n', line).unwrap_or(line.len())])
    }
}

impl<'c> RequestLine<'c> {
    fn of(line: &'c [u8]) -> RequestLine<'c> {
        let whole = line.trim_ascii();
        let mut rest = whole;
        let mut word = || loop {
            let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
            let word = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            if !word.is_empty() || rest.is_empty() {
                return word;
            }
        };
        RequestLine { whole, method: word(), target: word(), version: word() }
    }
}
