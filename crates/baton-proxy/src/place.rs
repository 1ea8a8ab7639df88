//! A place at a server: the balancer's choice, and the wait in its queues (`timeout queue`).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use baton_http::Method;
use baton_model::{Algorithm, Proxy};

use crate::balance::{Ask, Found, Granted, Picked, ServerState, Slot, Wanted, keys};
use crate::connection::Connection;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase, Side};
use crate::exchange::Exchange;
use crate::parse;
use crate::progress::CookieDates;
use crate::work::Work;

/// What a request wants from the balancer, kept over its attempts.
#[derive(Debug, Default)]
pub struct Wish {
    /// Hash of the balance key.
    pub key: Option<u32>,
    /// The value of the persistence cookie.
    pub cookie: Option<Vec<u8>>,
    /// `use-server`.
    pub server: Option<String>,
    /// `force-persist`, `option persist`.
    pub force: bool,
    /// `ignore-persist` applied.
    pub ignore_persist: bool,
    /// The persistence cookie was there, though it named nothing.
    pub cookie_seen: bool,
    /// The dates in the persistence cookie, where `maxidle` or `maxlife` wants them.
    pub cookie_dates: Option<CookieDates>,
    /// The log's letter when these dates say that the cookie is not to be followed.
    pub cookie_expired: Option<u8>,
    /// The server that just failed.
    pub avoid: Option<Arc<ServerState>>,
    /// The server that just failed, to be tried again: a retry without redispatch.
    pub again: Option<Arc<ServerState>>,
    /// The server of the session's previous request, for `option prefer-last-server`.
    pub last: Option<Arc<ServerState>>,
    /// What became of the wish at the first attempt.
    pub found: Option<Found>,
}

/// Picks a server of the exchange's backend and waits for a slot on it.
pub async fn take(core: &Core, exchange: &mut Exchange<'_>, wish: &mut Wish) -> Result<Slot, Ended> {
    let Some(backend) = exchange.progress.backend().cloned() else {
        return Err(Ended::new(Cause::ServerAborted, Phase::Connect));
    };
    let proxy = &backend.plan.proxy;
    let began = core.now();
    let queue = proxy.timeouts.queue.or(proxy.timeouts.connect);
    loop {
        let wanted = match (&wish.again, &wish.server, &wish.cookie) {
            (Some(server), ..) => Some(Wanted::Name(server.name())),
            (None, Some(name), _) => Some(Wanted::Name(name)),
            (None, None, Some(value)) => Some(Wanted::Cookie(value)),
            (None, None, None) => None,
        };
        let ask = Ask {
            key: wish.key,
            wanted: if wish.avoid.is_some() { None } else { wanted },
            force: wish.force || wish.again.is_some(),
            avoid: wish.avoid.as_ref(),
            last: wish.last.as_ref(),
            random: core.random() as u32,
            now: core.now(),
        };
        let waiting = match backend.plan.state.pick(&ask) {
            Picked::Slot(slot) => {
                wish.found.get_or_insert(slot.found());
                exchange.facts.placed();
                return Ok(slot);
            }
            Picked::Queue(waiting) => waiting,
            Picked::Full => return Err(Ended::new(Cause::ServerAborted, Phase::Queue)),
            Picked::None => return Err(Ended::new(Cause::ServerAborted, Phase::Connect)),
        };
        exchange.facts.queued(waiting.server().is_some(), waiting.position());
        waiting.server().into_iter().for_each(|server| exchange.progress.wait_for(server));
        wish.found.get_or_insert(waiting.found());
        exchange.deadline.set(queue.map(|limit| began + limit));
        let watch = proxy.tcp.abort_on_close;
        let granted = wait(core, exchange, waiting, watch).await;
        exchange.facts.waited(core.now().saturating_duration_since(began));
        match granted {
            Ok(Some(Granted::Slot(slot))) => return Ok(slot),
            Ok(Some(Granted::Again)) => {}
            Ok(None) => return Err(Ended::aborted_by(Side::Client, Phase::Queue)),
            Err(Interrupt::Timeout) => return Err(Ended::new(Cause::ServerTimeout, Phase::Queue)),
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Queue)),
        }
    }
}

/// Waits for the slot; `Ok(None)` when the client went away first and that matters.
async fn wait(
    core: &Core,
    exchange: &mut Exchange<'_>,
    waiting: impl Future<Output = Granted>,
    watch: bool,
) -> Result<Option<Granted>, Interrupt> {
    let Exchange { connection, deadline, .. } = exchange;
    let mut waiting = pin!(waiting);
    until(core, connection.orders(), deadline, |cx| {
        if let Poll::Ready(granted) = waiting.as_mut().poll(cx) {
            return Poll::Ready(Some(granted));
        }
        if watch && connection.stream.poll_closed(cx).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// The hash of what `balance` looks at in an HTTP request; `None` when it looks at nothing or it is not there.
pub fn http_key(proxy: &Proxy, connection: &Connection, work: &Work) -> Option<u32> {
    let kind = &proxy.balance.hash;
    let buf = work.input.pinned();
    let head = &work.request;
    match &proxy.balance.algorithm {
        Algorithm::Source => connection.addresses.source.map(|source| keys::source(kind, source.ip())),
        Algorithm::Uri(what) => Some(keys::uri(kind, what, head.target(buf))),
        Algorithm::UrlParam { name, .. } => {
            let query = head.query(buf).unwrap_or_default();
            let is_there = key_is_in_body(proxy, work);
            let of_body = || is_there.then(|| keys::url_param(kind, name, parse::body_begun(work))).flatten();
            keys::url_param(kind, name, query).or_else(of_body)
        }
        Algorithm::Hdr { name, domain_only } => {
            let field = head.headers.find(buf, name.as_bytes())?;
            keys::header(kind, *domain_only, field.value)
        }
        Algorithm::RoundRobin
        | Algorithm::StaticRr
        | Algorithm::LeastConn
        | Algorithm::First
        | Algorithm::Random { .. }
        | Algorithm::RdpCookie(_)
        | Algorithm::Hash(_) => None,
    }
}

/// Whether the body is looked at, and has to be there, before a server can be chosen (`balance url_param … check_post`).
pub fn key_is_in_body(proxy: &Proxy, work: &Work) -> bool {
    matches!(proxy.balance.algorithm, Algorithm::UrlParam { check_post: Some(_), .. })
        && work.request.method == Method::Post
}

/// The balancing key of a connection in `mode tcp`.
pub fn tcp_key(proxy: &Proxy, connection: &Connection) -> Option<u32> {
    match &proxy.balance.algorithm {
        Algorithm::Source => connection.addresses.source.map(|source| keys::source(&proxy.balance.hash, source.ip())),
        _ => None,
    }
}
