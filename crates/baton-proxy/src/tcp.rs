//! The line of a connection in `mode tcp`: choose a backend, connect, relay, log.

use std::rc::Rc;

use baton_rules::Context;

use crate::balance::Slot;
use crate::client::{Client, Input};
use crate::core::Core;
use crate::ended::{Cause, Ended};
use crate::exchange::Exchange;
use crate::place::{self, Wish};
use crate::record;
use crate::relay::attempts::Attempts;
use crate::relay::tunnel::{self, Pump};
use crate::relay::{chosen, count, unless_cut};
use crate::route;
use crate::state::Counter;
use crate::upstream::{ConnectFailed, Opening, ServerConnection};
use crate::view::BackendView;

/// Serves a connection to its end.
pub async fn serve(core: &Rc<Core>, client: &mut Client) {
    let (mut exchange, input) = client.begin(core);
    let exchange = &mut exchange;
    let opened = open(core, exchange, input).await;
    let unserved = opened.as_ref().err().copied();
    let outcome = match opened {
        Ok((backend, connection)) => relay(core, exchange, input, &backend, connection).await,
        Err(ended) => Err(ended),
    };
    exchange.progress.leave();
    record::write(core, exchange, outcome, &[]);
    let Some(ended) = unserved else { return };
    // Nobody has read what the client has sent: closing now would reset the connection instead of ending it.
    if !exchange.progress.frontend.plan.proxy.tcp.no_linger {
        client.connection.membership.leave();
        client.drain(core, ended.cause == Cause::Proxy).await;
    }
}

/// The backend, and a connection to one of its servers.
async fn open(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    input: &mut Input,
) -> Result<(Rc<BackendView>, (ServerConnection, Slot)), Ended> {
    let backend = match route::tcp_backend(core, exchange, input).await {
        Ok(backend) => backend,
        Err(ended) => {
            if ended.cause == Cause::Proxy {
                exchange.facts.denied();
            }
            return Err(ended);
        }
    };
    exchange.progress.enter(&backend);
    let connection = connect(core, exchange, input, &backend).await?;
    Ok((backend, connection))
}

async fn relay(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    input: &mut Input,
    backend: &BackendView,
    connection: (ServerConnection, Slot),
) -> Result<(), Ended> {
    record::write_early(core, exchange, &[], 0);
    let patience = exchange.progress.frontend.patience(backend);
    let (splice_up, splice_down) = exchange.progress.frontend.splicers(core, backend);
    let mut up = Pump::new(input.take().map(|buffer| *buffer).filter(|buffer| !buffer.is_empty())).splicing(splice_up);
    let mut down = Pump::default().splicing(splice_down);
    let Exchange { connection: client, deadline, .. } = &mut *exchange;
    let ends = ((&client.stream, &mut up), (&connection.0.stream, &mut down));
    let relayed = tunnel::run(core, client.orders(), deadline, ends.0, ends.1, &patience);
    let outcome = unless_cut(&connection.1, relayed).await.unwrap_or(Err(Ended::down()));
    exchange.facts.received(up.moved);
    exchange.facts.sent(down.moved);
    if exchange.progress.frontend.plan.proxy.logging.dont_log_null && up.moved == 0 && down.moved == 0 {
        exchange.facts.silence();
    }
    exchange.progress.keep(connection.1);
    outcome
}

/// A connection to a server of the backend, with the slot that allows it.
async fn connect(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    input: &Input,
    backend: &Rc<BackendView>,
) -> Result<(ServerConnection, Slot), Ended> {
    let proxy = &backend.plan.proxy;
    let key = place::tcp_key(proxy, exchange.connection).or_else(|| route::tcp_key(core, exchange, input, backend));
    let mut wish = Wish { key, ..Wish::default() };
    let mut attempts = Attempts::new(proxy);
    loop {
        let slot = place::take(core, exchange, &mut wish).await?;
        chosen(core, exchange, backend, &slot);
        let began = core.now();
        let name = slot.encryption().filter(|encryption| encryption.wants_name()).and_then(|encryption| {
            let evaluate = |cx: &mut Context<'_>| encryption.name(cx);
            route::with_stream(core, exchange, input, Some(backend), true, evaluate)
        });
        let has_data = input.as_ref().is_some_and(|input| !input.is_empty());
        let Exchange { connection, deadline, progress, .. } = &mut *exchange;
        count(core, progress, Counter::Connects);
        let count = &|counter| count(core, progress, counter);
        let opening = Opening {
            core,
            orders: connection.orders(),
            backend: proxy,
            client: &connection.addresses,
            client_stream: &connection.stream,
            listener: connection.listener(),
            slot: &slot,
            has_data,
            count,
        };
        match opening.open(deadline, name).await {
            Ok(connection) => {
                slot.server().report(crate::balance::Observed::Connected);
                exchange.facts.connected(core.now().saturating_duration_since(began));
                return Ok((connection, slot));
            }
            Err(ConnectFailed::Final(ended)) => return Err(ended),
            Err(ConnectFailed::WrongName(ended)) => {
                slot.server().report(crate::balance::Observed::ConnectFailed);
                exchange.facts.given_up(proxy.retries);
                return Err(ended);
            }
            Err(ConnectFailed::Retry(ended)) => {
                slot.server().report(crate::balance::Observed::ConnectFailed);
                attempts.again(core, exchange, &mut wish, slot, ended).await?;
            }
        }
    }
}
