//! `show sess`: what cores say of their connections, a page of one core at a time. Asked by the operator's session itself, between two
//! writes: neither the control thread nor a core is held longer than a page takes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proxy::core::{ConnectionId, ServerMark, SessionDescription};
use baton_proxy::{BackendPlan, SessionReader};

use super::answer::CommandResponse;

/// Places of a core that are looked at for one page: about 50 us of its time.
const PAGE: usize = 256;

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SessionFilter {
    /// One line of each.
    Every,
    /// Those that are older than this.
    Older(Duration),
    /// All that is known of each.
    Detailed,
    /// All that is known of this one.
    One(ConnectionId),
}

/// A list that is in the making.
#[derive(Debug)]
pub(crate) struct SessionListing {
    reader: SessionReader,
    filter: SessionFilter,
    core: usize,
    from: usize,
    is_found: bool,
    is_over: bool,
    names: Names,
}

impl SessionListing {
    /// Of all cores.
    pub(crate) fn new(reader: SessionReader, filter: SessionFilter) -> SessionListing {
        let names = Names::default();
        SessionListing { reader, filter, core: 0, from: 0, is_found: false, is_over: false, names }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        if let SessionFilter::One(id) = self.filter {
            if std::mem::replace(&mut self.is_over, true) {
                return None;
            }
            let found = self.reader.one(id).await?;
            self.is_found = true;
            let mut out = String::new();
            self.names.details(&mut out, &found, Instant::now());
            return Some(out);
        }
        while self.core < self.reader.cores() {
            let Some(page) = self.reader.page(self.core, self.from, PAGE).await else {
                (self.core, self.from) = (self.core + 1, 0);
                continue;
            };
            (self.core, self.from) = page.next.map_or((self.core + 1, 0), |next| (self.core, next));
            let now = Instant::now();
            let mut out = String::new();
            for session in &page.sessions {
                match self.filter {
                    SessionFilter::Older(age) if age_of(session, now) < age => {}
                    SessionFilter::Every | SessionFilter::Older(_) => self.names.line(&mut out, session, now),
                    SessionFilter::Detailed | SessionFilter::One(_) => self.names.details(&mut out, session, now),
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
        }
        None
    }

    /// What stands behind the last piece.
    pub(crate) fn end(&self) -> CommandResponse {
        match self.filter {
            SessionFilter::One(_) if !self.is_found => CommandResponse::error("Session not found."),
            _ => CommandResponse::Data(String::new()),
        }
    }
}

/// The names of servers by their marks, for the backends that were met.
#[derive(Debug, Default)]
struct Names(HashMap<usize, HashMap<ServerMark, Arc<str>>>);

impl Names {
    fn server(&mut self, session: &SessionDescription) -> Option<Arc<str>> {
        let plan = session.backend.as_ref()?;
        let names = self.0.entry(Arc::as_ptr(plan) as usize).or_insert_with(|| names(plan));
        names.get(&session.server?).cloned()
    }

    /// As HAProxy's, without what is about its own inside.
    fn line(&mut self, out: &mut String, session: &SessionDescription, now: Instant) {
        let server = self.server(session);
        let SessionDescription { id, fd, requests, .. } = session;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{id}: proto={} src={} fe={} be={} srv={} age={}s state={} req={requests} fd={fd}",
            protocol(session),
            source(session),
            session.frontend.proxy.name,
            session.backend.as_ref().map_or("<NONE>", |plan| &plan.proxy.name),
            server.as_deref().unwrap_or("<none>"),
            age_of(session, now).as_secs(),
            if session.began.is_some() { "busy" } else { "idle" },
        );
    }

    fn details(&mut self, out: &mut String, session: &SessionDescription, now: Instant) {
        let server = self.server(session);
        let SessionDescription { id, fd, requests, frontend, backend, since, began, .. } = session;
        let accepted = jiff::Zoned::now().saturating_sub(now.saturating_duration_since(*since));
        let _ = writeln!(
            out,
            "{id}: [{}] proto={} source={}",
            accepted.strftime("%d/%b/%Y:%H:%M:%S%.1f"),
            protocol(session),
            source(session),
        );
        let _ = writeln!(
            out,
            "  state={} requests={requests} age={}s connected={}s fd={fd}",
            if began.is_some() { "busy" } else { "idle" },
            age_of(session, now).as_secs(),
            now.saturating_duration_since(*since).as_secs(),
        );
        let proxy = &frontend.proxy;
        let _ = writeln!(out, "  frontend={} (id={} mode={})", proxy.name, proxy.id, proxy.mode.word());
        let _ = match backend.as_ref().map(|plan| &plan.proxy) {
            Some(proxy) => writeln!(out, "  backend={} (id={} mode={})", proxy.name, proxy.id, proxy.mode.word()),
            None => writeln!(out, "  backend=<NONE> (id=-1 mode=-)"),
        };
        let id = server.as_ref().and_then(|name| Some(backend.as_ref()?.servers.get(name)?.server.id));
        let _ = match server.zip(id) {
            Some((name, id)) => writeln!(out, "  server={name} (id={id})"),
            None => writeln!(out, "  server=<NONE> (id=-1)"),
        };
    }
}

fn names(plan: &Arc<BackendPlan>) -> HashMap<ServerMark, Arc<str>> {
    let servers = plan.state.servers();
    servers.iter().map(|server| (ServerMark::of(server), Arc::clone(server.name()))).collect()
}

/// Since when the request in work, or the connection without one, has been there.
fn age_of(session: &SessionDescription, now: Instant) -> Duration {
    now.saturating_duration_since(session.began.unwrap_or(session.since))
}

fn protocol(session: &SessionDescription) -> &'static str {
    match session.source {
        Some(address) if address.is_ipv4() => "tcpv4",
        Some(_) => "tcpv6",
        None => "unix_stream",
    }
}

fn source(session: &SessionDescription) -> String {
    match session.source {
        Some(address) => format!("{}:{}", address.ip(), address.port()),
        None => "unix".into(),
    }
}
