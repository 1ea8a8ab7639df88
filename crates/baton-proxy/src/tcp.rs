//! The line of a connection in `mode tcp`: choose a backend, connect, relay, log.

mod inspect;

use std::rc::Rc;

use baton_model::Ruleset;
use socket2::Socket;

use crate::attempt::{Attempts, Opened};
use crate::balance::Slot;
use crate::buffer::Buffer;
use crate::client::{Client, Input};
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::moving::{MovedTunnel, RequestState};
use crate::record;
use crate::relay::movable::{self, Relayed};
use crate::relay::tunnel::{Course, Pump};
use crate::route;
use crate::server_connection::ServerConnection;
use crate::stream::Stream;
use crate::tcp::inspect::Inspected;
use crate::transport::Transport;
use crate::view::BackendView;

/// How far a connection was served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Served {
    /// It is over.
    ToItsEnd,
    /// It goes on in `mode http`, with what was read of it.
    IsHttp,
}

/// Serves a connection to its end, or until it is to be served as HTTP.
pub async fn serve(core: &Rc<Core>, client: &mut Client) -> Served {
    let (origin, input) = client.origin();
    let read = input.take();
    let mut exchange = Exchange::begin(core, origin, read);
    let opened = match open(core, &mut exchange).await {
        Ok(Some(opened)) => Ok(opened),
        Ok(None) => {
            let Exchange {
                messages: read, session, tracked, variables, unique_id, log_level, last_rule, settings, ..
            } = exchange;
            let captures = exchange.captures.into_inner();
            let left =
                RequestState { tracked, variables, captures, unique_id, log_level, last_rule, settings, began: None };
            session.hand_on(left);
            *input = read;
            return Served::IsHttp;
        }
        Err(ended) => Err(ended),
    };
    let mut unserved = opened.as_ref().err().copied();
    let outcome = match opened {
        Ok((backend, connection)) => relay(core, &mut exchange, &backend, connection).await,
        Err(ended) => Err(ended),
    };
    let outcome = match outcome {
        Ok(Relayed::Left) => return Served::ToItsEnd,
        Ok(Relayed::ToItsEnd) => Ok(()),
        Err(ended) => Err(ended),
    };
    // Rules about the response may refuse it before a byte of it was passed on.
    unserved = unserved.or(outcome.err().filter(|ended| ended.cause == Cause::Proxy));
    exchange.progress.leave();
    record::write(core, &mut exchange, outcome);
    exchange.untrack(core);
    let Some(ended) = unserved else { return Served::ToItsEnd };
    let Exchange { messages: read, progress, .. } = exchange;
    *input = read;
    // Nobody has read what the client has sent: closing now would reset the connection instead of ending it.
    if !progress.frontend.plan.proxy.tcp.no_linger {
        client.connection.membership.leave();
        client.session.untrack();
        client.drain(core, ended.cause == Cause::Proxy).await;
    }
    Served::ToItsEnd
}

/// Goes on with a session that was served elsewhere until now: one in `mode tcp`, or a tunnel that began with a request.
pub async fn resume(core: &Rc<Core>, client: &mut Client, tunnel: MovedTunnel) {
    let MovedTunnel { state, socket, tls, slot } = tunnel;
    let mut exchange: Exchange<'_, Input> = Exchange::begin(core, client.origin().0, None);
    if let Some(left) = exchange.session.take_handed_on() {
        exchange.take_over(*left);
    }
    let Some(backend) = exchange.resume_at(core, (&state.backend, &slot), state.facts) else { return };
    let (splice_up, splice_down) = exchange.progress.frontend.splicers(&core.pipes, &backend);
    let pumps = (Pump::resumed(state.up).splicing(splice_up), Pump::resumed(state.down).splicing(splice_down));
    let [client, server] = state.active;
    let course = Course { client, server };
    let stream = Stream::resumed(Socket::from(socket), tls.as_deref(), &core.records);
    let server = (Transport::Connection(&stream), slot);
    let outcome = match movable::pass(core, &mut exchange, &backend, server, pumps, course).await {
        Ok(Relayed::Left) => return,
        Ok(Relayed::ToItsEnd) => Ok(()),
        Err(ended) => Err(ended),
    };
    exchange.progress.leave();
    record::write(core, &mut exchange, outcome);
    exchange.untrack(core);
}

/// The backend, and a connection to one of its servers. `None`: the connection is to be served as HTTP.
async fn open(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, Input>,
) -> Result<Option<(Rc<BackendView>, (ServerConnection, Slot))>, Ended> {
    let backend = match route::tcp_backend(core, exchange).await {
        Ok(Some(backend)) => backend,
        Ok(None) => return Ok(None),
        Err(ended) => {
            if ended.cause == Cause::Proxy {
                exchange.facts.denied();
            }
            return Err(ended);
        }
    };
    exchange.progress.enter(&backend);
    exchange.orders.notes.goes_to(&backend);
    let preference = route::stream_preference(core, exchange, &backend);
    match Attempts::new(&backend, preference, &exchange.settings).open(core, exchange).await? {
        Opened::Server(slot, connection) => {
            exchange.orders.notes.is_at(slot.server());
            Ok(Some((backend, (connection, slot))))
        }
        // Only requests are.
        Opened::Answered(_) => Err(Ended::new(Cause::Internal, Phase::Connect)),
    }
}

async fn relay(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, Input>,
    backend: &BackendView,
    connection: (ServerConnection, Slot),
) -> Result<Relayed, Ended> {
    record::write_early(core, exchange, 0);
    let (splice_up, splice_down) = exchange.progress.frontend.splicers(&core.pipes, backend);
    let mut up = Pump::new(exchange.messages.take().map(|buffer| *buffer).filter(|buffer| !buffer.is_empty()))
        .splicing(splice_up);
    let (mut first, mut is_closed) = (None, false);
    if backend.plan.rules.has(Ruleset::TcpResponse) {
        let judged = Box::pin(inspect::response(core, exchange, backend, &connection.0.stream, &mut up)).await;
        match judged {
            Ok(Inspected::Accepted(held)) => first = held,
            Ok(Inspected::Closed(held)) => {
                first = held;
                is_closed = true;
            }
            Err(ended) => {
                exchange.facts.received(up.moved);
                exchange.progress.keep(connection.1);
                return Err(ended);
            }
        }
    }
    let answer = first.as_deref().unwrap_or_default();
    route::stick_stream(core, exchange, backend, &connection.1, (&connection.0.stream, answer));
    let mut down = Pump::new(first.filter(|first: &Buffer| !first.is_empty())).splicing(splice_down);
    if is_closed {
        (up, down) = (up.shut(), down.ending());
    }
    let server = (Transport::Connection(&connection.0.stream), connection.1);
    movable::pass(core, exchange, backend, server, (up, down), Course::begin(core.now())).await
}
