//! The line of a connection in `mode tcp`: choose a backend, connect, relay, log.

use std::rc::Rc;

use baton_rules::Context;

use crate::accept::Client;
use crate::balance::Slot;
use crate::core::Core;
use crate::ended::{Cause, Ended};
use crate::place::{self, Wish};
use crate::record::{self, Entry};
use crate::relay::attempts::Attempts;
use crate::relay::tunnel::{self, Pump};
use crate::relay::{chosen, count, unless_cut};
use crate::route;
use crate::state::Counter;
use crate::upstream::{ConnectFailed, Opening, ServerConnection};
use crate::view::BackendView;

/// Serves a connection to its end.
pub async fn serve(core: &Rc<Core>, client: &mut Client) {
    let mut entry = record::start(core, client);
    let opened = open(core, client, &mut entry).await;
    let unserved = opened.as_ref().err().copied();
    let outcome = match opened {
        Ok((backend, connection)) => relay(core, client, &mut entry, &backend, connection).await,
        Err(ended) => Err(ended),
    };
    entry.progress.leave();
    record::write(core, client, &entry, outcome, &[]);
    let Some(ended) = unserved else { return };
    // Nobody has read what the client has sent: closing now would reset the connection instead of ending it.
    if !entry.progress.frontend.plan.proxy.tcp.no_linger {
        client.leave();
        client.drain(core, ended.cause == Cause::Proxy).await;
    }
}

/// The backend, and a connection to one of its servers.
async fn open(
    core: &Rc<Core>,
    client: &mut Client,
    entry: &mut Entry,
) -> Result<(Rc<BackendView>, (ServerConnection, Slot)), Ended> {
    let backend = match route::tcp_backend(core, client, entry).await {
        Ok(backend) => backend,
        Err(ended) => {
            if ended.cause == Cause::Proxy {
                entry.facts.denied();
            }
            return Err(ended);
        }
    };
    entry.progress.enter(&backend);
    let connection = connect(core, client, entry, &backend).await?;
    Ok((backend, connection))
}

async fn relay(
    core: &Rc<Core>,
    client: &mut Client,
    entry: &mut Entry,
    backend: &BackendView,
    connection: (ServerConnection, Slot),
) -> Result<(), Ended> {
    record::write_early(core, client, entry, &[], 0);
    let patience = entry.progress.frontend.patience(backend);
    let (splice_up, splice_down) = entry.progress.frontend.splicers(core, backend);
    let mut up = Pump::new(client.take_input().filter(|buffer| !buffer.is_empty())).splicing(splice_up);
    let mut down = Pump::default().splicing(splice_down);
    let Client { stream, deadline, registered, .. } = client;
    let ends = ((&*stream, &mut up), (&connection.0.stream, &mut down));
    let relayed = tunnel::run(core, &registered.orders, deadline, ends.0, ends.1, &patience);
    let outcome = unless_cut(&connection.1, relayed).await.unwrap_or(Err(Ended::down()));
    entry.facts.received(up.moved);
    entry.facts.sent(down.moved);
    if entry.progress.frontend.plan.proxy.logging.dont_log_null && up.moved == 0 && down.moved == 0 {
        entry.facts.silence();
    }
    entry.progress.keep(connection.1);
    outcome
}

/// A connection to a server of the backend, with the slot that allows it.
async fn connect(
    core: &Rc<Core>,
    client: &mut Client,
    entry: &mut Entry,
    backend: &Rc<BackendView>,
) -> Result<(ServerConnection, Slot), Ended> {
    let proxy = &backend.plan.proxy;
    let key = place::tcp_key(proxy, client).or_else(|| route::tcp_key(core, client, &entry.progress.frontend, backend));
    let mut wish = Wish { key, ..Wish::default() };
    let mut attempts = Attempts::new(proxy);
    loop {
        let slot = place::take(core, client, entry, &mut wish).await?;
        chosen(core, entry, backend, &slot);
        let began = core.now();
        let name = slot.encryption().filter(|encryption| encryption.wants_name()).and_then(|encryption| {
            let evaluate = |cx: &mut Context<'_>| encryption.name(cx);
            route::with_stream(core, client, &entry.progress.frontend, Some(backend), true, evaluate)
        });
        let has_data = client.input.as_ref().is_some_and(|input| !input.is_empty());
        let Client { deadline, registered, addresses, stream, listener, .. } = client;
        count(core, entry, Counter::Connects);
        let count = &|counter| count(core, entry, counter);
        let orders = &registered.orders;
        let opening = Opening {
            core,
            orders,
            backend: proxy,
            client: addresses,
            client_stream: stream,
            listener,
            slot: &slot,
            has_data,
            count,
        };
        match opening.open(deadline, name).await {
            Ok(connection) => {
                slot.server().report(crate::balance::Observed::Connected);
                entry.facts.connected(core.now().saturating_duration_since(began));
                return Ok((connection, slot));
            }
            Err(ConnectFailed::Final(ended)) => return Err(ended),
            Err(ConnectFailed::WrongName(ended)) => {
                slot.server().report(crate::balance::Observed::ConnectFailed);
                entry.facts.given_up(proxy.retries);
                return Err(ended);
            }
            Err(ConnectFailed::Retry(ended)) => {
                slot.server().report(crate::balance::Observed::ConnectFailed);
                attempts.again(core, client, entry, &mut wish, slot, ended).await?;
            }
        }
    }
}
