//! A connection to the server of a slot: one that was kept, or a new one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Reuse, SendProxy};
use baton_rules::SettingValues;

use crate::attempt::opening::{ConnectFailed, Opening};
use crate::balance::{Affinity, Observed, Slot};
use crate::core::Core;
use crate::exchange::Exchange;
use crate::pool::{ServerConnection, carried};
use crate::progress::Progress;
use crate::proxy_protocol::Addresses;
use crate::rules;
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

/// A connection for one request: the client's own, an idle one as `http-reuse` allows, or a new one, as it has to be with `new`.
pub async fn lend<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    new: bool,
) -> Result<ServerConnection, ConnectFailed> {
    let new = new || exchange.settings.values().is_some_and(SettingValues::is_about_server_socket);
    let kept = kept(core, exchange, backend, slot, name.as_deref(), new);
    let connection = match kept {
        Some(connection) => connection,
        None => open(core, exchange, backend, slot, name, true).await?,
    };
    exchange.progress.go_over(connection.requests > 0);
    Ok(connection)
}

/// A connection that was kept.
fn kept<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<&str>,
    new: bool,
) -> Option<ServerConnection> {
    // Rules may have changed the addresses since the client's last request.
    let addresses = || Addresses { source: exchange.source(), destination: exchange.destination() };
    let carried = carried(slot.config(), &backend.plan.proxy, addresses);
    let fits = |own: &ServerConnection| {
        Arc::ptr_eq(&own.server, slot.server())
            && own.fits(slot.config(), slot.encryption())
            && own.name.as_deref() == name
            && own.client.as_deref() == carried.as_ref()
            && !own.stream.is_stale()
    };
    let own = exchange.session.take_private().filter(|own| !new && fits(own)).map(|own| *own);
    let shareable = carried.is_none() && slot.config().max_reuse != Some(0);
    let shared = || match backend.plan.proxy.http.reuse {
        _ if new || !shareable => None,
        Reuse::Never => None,
        Reuse::Safe if exchange.is_first => None,
        Reuse::Aggressive if exchange.is_first => core.upstreams.take(slot, name, true),
        Reuse::Safe | Reuse::Aggressive | Reuse::Always => core.upstreams.take(slot, name, false),
    };
    let connection = match own {
        Some(own) => own,
        None => {
            let shared = shared()?;
            count(core, &exchange.progress, Counter::Reuses);
            shared
        }
    };
    exchange.facts.connected(Duration::ZERO);
    Some(connection)
}

/// A new connection. `has_data`: bytes are there to be sent over it.
pub async fn open<M>(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    slot: &Slot,
    name: Option<Box<str>>,
    has_data: bool,
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
    let opening = Opening { core, orders, backend, client, settings, slot, has_data, unique_id, count };
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
