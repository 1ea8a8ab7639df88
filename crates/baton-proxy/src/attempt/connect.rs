//! A connection to the server of a slot: one that was kept, or a new one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Reuse, SendProxy, Server, ServerProtocol, WebSocketProtocol};
use baton_rules::SettingValues;

use crate::attempt::opening::{ConnectFailed, Opening};
use crate::balance::{Affinity, Observed, Slot};
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::http2_server::{Http2Server, ServerStream};
use crate::messages::Messages;
use crate::pool::Sharing;
use crate::progress::Progress;
use crate::proxy_protocol::Addresses;
use crate::rules;
use crate::server_connection::{ServerConnection, carried};
use crate::server_exchange::{PrivateConnection, PrivateHttp2, ServerExchange};
use crate::state::Counter;
use crate::view::BackendView;

/// Notes the server that was chosen.
pub fn chosen<M>(core: &Core, exchange: &mut Exchange<'_, M>, backend: &BackendView, slot: &Slot) {
    let server = slot.server();
    let counters = || core.upstreams.counters(server, core.now(), || backend.plan.figures.server(server.name()));
    let is_other = exchange.progress.choose(server, counters);
    // A retry is no choice, and neither is a cookie.
    if is_other && slot.affinity() != Affinity::Kept {
        count(core, &exchange.progress, Counter::Chosen);
    }
}

/// A connection for one request, or a stream of one: the client's own, one that is kept as `http-reuse` allows, or a new one, as it has to be
/// with `new`.
pub async fn lend(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    new: bool,
) -> Result<ServerExchange, ConnectFailed> {
    let is_special = exchange.settings.values().is_some_and(SettingValues::is_about_server_socket);
    let new = new || is_special;
    let protocol = websocket_protocol(&exchange.messages, slot.config());
    let sharing = if new { None } else { sharing(exchange, backend, slot) };
    let wanted = Wanted { name: name.as_deref(), new, protocol, sharing };
    let mut kept = kept(core, exchange, backend, slot, &wanted);
    if kept.is_none()
        && let Some(sharing) = sharing
        && may_be_http2(slot.config(), protocol)
    {
        // Apart, so that the memory of other requests has no room for it.
        kept = Box::pin(others(core, exchange, backend, slot, (&wanted, sharing))).await?;
    }
    let server = match kept {
        Some(server) => server,
        // Apart, too.
        None => Box::pin(new_one(core, exchange, backend, slot, name, (is_special, protocol))).await?,
    };
    exchange.progress.go_over(server.requests_before() > 0);
    exchange.progress.note_version(server.is_stream());
    Ok(server)
}

/// What is spoken with a server about a request for a WebSocket (`ws`); `None`: what is spoken anyway.
fn websocket_protocol(messages: &Messages, config: &Server) -> Option<ServerProtocol> {
    if !(messages.request.websocket && messages.request.upgrade) {
        return None;
    }
    match config.websockets {
        WebSocketProtocol::H1 => Some(ServerProtocol::H1),
        WebSocketProtocol::H2 => Some(ServerProtocol::H2),
        WebSocketProtocol::Auto => {
            let alpn = config.tls.as_ref().filter(|_| config.proto.is_none()).and_then(|tls| tls.alpn.as_ref());
            let offers_http1 = alpn.is_some_and(|names| names.iter().any(|name| name == "http/1.1"));
            offers_http1.then_some(ServerProtocol::H1)
        }
    }
}

/// What a connection has to be for a request.
struct Wanted<'a> {
    name: Option<&'a str>,
    /// None that was opened before.
    new: bool,
    /// What has to be spoken, if that is not for the server's settings to say.
    protocol: Option<ServerProtocol>,
    /// Which that others use, too.
    sharing: Option<Sharing>,
}

/// Which connections that others use, too, may be used. `None`: none.
fn sharing(exchange: &Exchange<'_>, backend: &BackendView, slot: &Slot) -> Option<Sharing> {
    if slot.config().max_reuse == Some(0) || carries(exchange, backend, slot).is_some() {
        return None;
    }
    match backend.plan.proxy.http.reuse {
        Reuse::Never => None,
        Reuse::Safe if exchange.is_first => None,
        Reuse::Safe => Some(Sharing::Session(exchange.session.address())),
        Reuse::Aggressive if exchange.is_first => Some(Sharing::Proven),
        Reuse::Aggressive | Reuse::Always => Some(Sharing::All),
    }
}

/// What a connection for the request carries of its client. Rules may have changed it since the client's last request.
fn carries(exchange: &Exchange<'_>, backend: &BackendView, slot: &Slot) -> Option<Addresses> {
    let addresses = || Addresses { source: exchange.source(), destination: exchange.destination() };
    carried(slot.config(), &backend.plan.proxy, addresses)
}

/// A connection that was kept, or a stream of one.
fn kept(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    wanted: &Wanted<'_>,
) -> Option<ServerExchange> {
    let Wanted { name, new, protocol, sharing } = *wanted;
    let own = exchange.session.take_private().and_then(|own| {
        let carried = carries(exchange, backend, slot);
        let fits = |own: &ServerConnection| {
            Arc::ptr_eq(&own.server, slot.server())
                && own.fits(slot.config(), slot.encryption())
                && own.name.as_deref() == name
                && own.client.as_deref() == carried.as_ref()
        };
        match *own {
            PrivateConnection::Http1(own) => {
                let is_wanted = !new && protocol != Some(ServerProtocol::H2) && fits(&own) && !own.stream.is_stale();
                is_wanted.then_some(ServerExchange::Http1(own))
            }
            PrivateConnection::Http2(own) if fits(&own.0.connection) && own.0.is_usable() => {
                let is_wanted = !new && protocol != Some(ServerProtocol::H1) && own.0.has_room();
                let stream = is_wanted.then(|| ServerExchange::Http2(own.0.lend()));
                exchange.session.keep_private(PrivateConnection::Http2(own));
                stream
            }
            PrivateConnection::Http2(_) => None,
        }
    });
    let server = match own {
        Some(own) => own,
        None => {
            let shared = core.upstreams.take(slot, name, sharing?, protocol)?;
            count(core, &exchange.progress, Counter::Reuses);
            shared
        }
    };
    exchange.facts.connected(Duration::ZERO);
    Some(server)
}

/// Whether HTTP/2 may be spoken over a new connection.
fn may_be_http2(config: &Server, protocol: Option<ServerProtocol>) -> bool {
    let offers = || config.tls.as_ref().is_some_and(|tls| tls.alpn.iter().flatten().any(|name| name == "h2"));
    match protocol.or(config.proto) {
        Some(protocol) => protocol == ServerProtocol::H2,
        None => offers(),
    }
}

/// A stream of a connection that another exchange is opening, once it is there. `None`: there is none, or it was in vain.
async fn others(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    (wanted, sharing): (&Wanted<'_>, Sharing),
) -> Result<Option<ServerExchange>, ConnectFailed> {
    let most = backend.http2.settings.max_concurrent_streams as usize;
    let Some(opening) = core.upstreams.expect(slot, wanted.name, sharing, most) else { return Ok(None) };
    let began = core.now();
    let Exchange { orders, deadline, .. } = &mut *exchange;
    deadline.set(backend.plan.proxy.timeouts.connect.map(|limit| began + limit));
    match until(core, orders, deadline, |cx| opening.poll_done(cx)).await {
        Ok(()) => {}
        Err(Interrupt::Timeout) => {
            return Err(ConnectFailed::Retry(Ended::new(Cause::ServerTimeout, Phase::Connect)));
        }
        Err(Interrupt::Abort) => return Err(ConnectFailed::Final(Ended::aborted(Phase::Connect))),
    }
    let kept = kept(core, exchange, backend, slot, wanted);
    if kept.is_some() {
        exchange.facts.connected(core.now().saturating_duration_since(began));
    }
    Ok(kept)
}

/// A new connection, or the first stream of one.
async fn new_one(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    (is_special, protocol): (bool, Option<ServerProtocol>),
) -> Result<ServerExchange, ConnectFailed> {
    let may_be_http2 = may_be_http2(slot.config(), protocol);
    let guard = if may_be_http2 && !is_special {
        let owner = match backend.plan.proxy.http.reuse {
            Reuse::Never | Reuse::Safe => Some(exchange.session.address()),
            Reuse::Aggressive | Reuse::Always => None,
        };
        core.upstreams.opens(slot, name.as_deref(), owner)
    } else {
        None
    };
    let connection = open(core, exchange, backend, slot, name, true, protocol).await?;
    let is_http2 = connection.is_http2();
    if may_be_http2 && protocol.is_none() {
        core.upstreams.note_version(slot.server(), is_http2);
    }
    let server = match is_http2 {
        true => ServerExchange::Http2(begin_http2(core, exchange, backend, connection, is_special)),
        false => ServerExchange::Http1(Box::new(connection)),
    };
    drop(guard);
    Ok(server)
}

/// The first stream of a new connection that speaks HTTP/2. `is_special`: no other request may use it.
fn begin_http2(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    connection: ServerConnection,
    is_special: bool,
) -> ServerStream {
    let proxy = &backend.plan.proxy;
    let is_private = is_special || !connection.is_shareable() || proxy.http.reuse == Reuse::Never;
    let terms = (is_private, proxy.timeouts.server);
    let server = Http2Server::begin(connection, &backend.http2, &backend.plan.figures, terms, core.connection_memory());
    let stream = server.lend();
    if is_special {
        server.retire();
        return stream;
    }
    core.upstreams.add_http2(&server);
    if is_private {
        exchange.session.keep_private(PrivateConnection::Http2(PrivateHttp2(server)));
    } else if proxy.http.reuse == Reuse::Safe {
        server.set_owner(exchange.session.address());
    }
    stream
}

/// A new connection. `has_data`: bytes are there to be sent over it; `protocol`: what is to be spoken over it, if not what its server's
/// settings say.
pub async fn open<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    has_data: bool,
    protocol: Option<ServerProtocol>,
) -> Result<ServerConnection, ConnectFailed> {
    let began = core.now();
    if slot.config().send_proxy.has(SendProxy::UNIQUE_ID) {
        rules::make_unique_id(core, exchange, backend);
    }
    let Exchange { connection, orders, deadline, progress, facts, settings, unique_id, .. } = exchange;
    count(core, progress, Counter::Connects);
    let count = &|counter| count(core, progress, counter);
    let (backend, client) = (&backend.plan.proxy, *connection);
    let unique_id = unique_id.made();
    let opening = Opening { core, orders, backend, client, settings, slot, has_data, protocol, unique_id, count };
    let opened = opening.open(deadline, name).await?;
    slot.server().report(Observed::Connected);
    facts.connected(core.now().saturating_duration_since(began));
    Ok(opened)
}

/// Counts at the server and at its backend.
fn count(core: &Core, progress: &Progress, counter: Counter) {
    let backend = progress.backend().map(|backend| &backend.plan.figures.counters);
    let server = progress.server_counters().map(|counters| &**counters);
    for counters in server.into_iter().chain(backend) {
        counters.add(core.number, counter, 1);
    }
}
