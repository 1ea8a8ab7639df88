//! What DNS says of servers, on the change path. It is observed: it makes another model of what the files say, below what operators set, it stays
//! over reloads and in processes after this one, and it ends with the line that asks for it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use baton_dns::{Cause, LossReason, ServerChange};
use baton_health::Event;
use baton_health::text::DnsNews;
use baton_model::{Discovered, DiscoveredServer, Proxy, Server};
use baton_proxy::Workers;
use baton_proxy::balance::{Admin, ServerState};

use super::ChangeLine;
use crate::discovery::NameResolver;
use crate::overrides::OverrideRecord;
use crate::overrides::discovered::record;

/// A server that DNS has changed.
pub(crate) struct DiscoveredChange {
    /// What changed.
    pub change: ServerChange,
    /// Which server.
    pub server: Arc<ServerState>,
    /// As it was.
    pub before: Admin,
    /// What is to be logged of another state, also of those who track it.
    pub events: Vec<Event>,
}

/// Why a server lost its address.
fn lost(change: &ServerChange) -> &'static str {
    match &change.cause {
        Cause::Lost(reason) => reason.text(),
        Cause::Response(_) | Cause::Cache | Cause::Additional => LossReason::NoAddress.text(),
    }
}

/// Servers as DNS has them.
pub(super) fn put(proxy: &mut Proxy, discovered: &Discovered) {
    let Some(known) = discovered.of(&proxy.name) else { return };
    for server in &mut proxy.servers {
        if let Some(one) = known.get(&server.name).filter(|one| one.is_of(server)) {
            one.put(Arc::make_mut(server));
        }
    }
}

impl ChangeLine {
    /// Name servers that are asked.
    pub(crate) fn names(&self) -> &NameResolver {
        &self.names
    }

    /// As [`ChangeLine::names`], to go on.
    pub(crate) fn names_mut(&mut self) -> &mut NameResolver {
        &mut self.names
    }

    /// Has servers as DNS says from now on. It cannot fail.
    pub(super) async fn discover(&mut self, changes: Vec<ServerChange>, workers: &Workers) -> Vec<DiscoveredChange> {
        let mut by_backend: BTreeMap<Arc<str>, Vec<ServerChange>> = BTreeMap::new();
        for change in changes {
            let ServerChange { backend, server, after, .. } = &change;
            let one = DiscoveredServer {
                resolvers: Arc::clone(&change.resolvers),
                name: Arc::clone(&change.name),
                address: after.address,
                service: after.service.clone(),
                weight: after.weight,
            };
            Arc::make_mut(&mut self.discovered).set(Arc::clone(backend), Arc::clone(server), one);
            by_backend.entry(Arc::clone(backend)).or_default().push(change);
        }
        let mut done = Vec::new();
        for (backend, changes) in by_backend {
            let Some(proxy) = self.model.backend(&backend).cloned() else { continue };
            self.discover_in(&proxy, changes, &mut done, workers).await;
        }
        done
    }

    async fn discover_in(
        &mut self,
        proxy: &Proxy,
        changes: Vec<ServerChange>,
        done: &mut Vec<DiscoveredChange>,
        workers: &Workers,
    ) {
        let now = Instant::now();
        let Some(state) = self.registry.backend_state(&proxy.name) else { return };
        let mut next = proxy.clone();
        put(&mut next, &self.discovered);
        let mut changed = Vec::new();
        for change in changes {
            let Some(server) = state.server(&change.server) else { continue };
            let before = server.admin();
            // No request goes to an address that is not there any more.
            let is_gone = next.servers.iter().any(|one| one.name == change.server && is_lost(one));
            let mut one = DiscoveredChange { change, server, before, events: Vec::new() };
            if is_gone && !before.unresolved {
                one.events = self.set_unresolved(&one.server, true, Some(DnsNews::Lost(lost(&one.change))), now);
            }
            changed.push(one);
        }
        self.replace_servers(&Arc::new(next), workers).await;
        for one in &mut changed {
            if one.server.admin().unresolved && !is_lost(&one.server.config()) {
                let config = one.server.config();
                let host = config.found_host().unwrap_or_default();
                one.events = self.set_unresolved(&one.server, false, Some(DnsNews::Found(host)), now);
            }
        }
        done.extend(changed);
    }

    /// What is known of a server under another name: the address that it has. The master is to be told.
    pub(super) fn discover_as(
        &mut self,
        backend: &Arc<str>,
        server: &Arc<str>,
        (resolvers, name): (&Arc<str>, &Arc<str>),
        address: Option<IpAddr>,
    ) {
        let (resolvers, name) = (Arc::clone(resolvers), Arc::clone(name));
        let one = DiscoveredServer { resolvers, name, address, service: None, weight: None };
        Arc::make_mut(&mut self.discovered).set(Arc::clone(backend), Arc::clone(server), one);
        self.untold_discovered.push((Arc::clone(backend), Arc::clone(server)));
    }

    /// Servers of which something else is known than the master was told, since the last time.
    pub(crate) fn take_untold_discovered(&mut self) -> Vec<(Arc<str>, Arc<str>)> {
        std::mem::take(&mut self.untold_discovered)
    }

    /// Gives what is to be logged.
    fn set_unresolved(
        &self,
        server: &ServerState,
        unresolved: bool,
        dns: Option<DnsNews<'_>>,
        now: Instant,
    ) -> Vec<Event> {
        self.move_admin(server, Admin { unresolved, ..server.admin() }, dns, now)
    }

    /// Another configuration is in use: its names are looked up, and what is known of others is forgotten.
    pub(super) fn settle_names(&mut self, now: Instant) {
        if self.model.resolvers.is_empty() && self.discovered.is_empty() {
            return self.names.apply(&self.model, &self.discovered, now);
        }
        // As the files have them, and with the hosts that operators set.
        let models = [Arc::clone(&self.asked), Arc::clone(&self.model)];
        let stays = |backend: &str, server: &str, one: &DiscoveredServer| {
            models.iter().any(|model| {
                let proxy = model.backend(backend);
                let server = proxy.and_then(|proxy| proxy.servers.iter().find(|other| &*other.name == server));
                server.is_some_and(|server| one.is_of(server))
            })
        };
        Arc::make_mut(&mut self.discovered).retain(stays);
        self.names.apply(&self.model, &self.discovered, now);
        // A line may have an address now that DNS did not give.
        let Some(generation) = self.generation.clone() else { return };
        for proxy in self.model.proxies.iter().filter(|proxy| proxy.role.is_backend()) {
            let Some(plan) = generation.backends.get(&proxy.name) else { continue };
            for server in proxy.servers.iter().filter(|server| server.looked_up().is_some() && !is_lost(server)) {
                if let Some(state) = plan.state.server(&server.name).filter(|state| state.admin().unresolved) {
                    // The reload says what it changes.
                    self.set_unresolved(&state, false, None, now);
                }
            }
        }
    }

    /// What another process knows of servers, for the first configuration.
    pub(super) fn expect_discovered(&mut self, kept: &[OverrideRecord]) {
        for (backend, server, one) in kept.iter().filter_map(crate::overrides::discovered::read) {
            Arc::make_mut(&mut self.discovered).set(backend, server, one);
        }
    }

    /// All that DNS says of servers, for other processes and the master.
    pub(crate) fn discovered_records(&self) -> Vec<OverrideRecord> {
        self.discovered.iter().map(|(backend, server, one)| record(backend, server, one)).collect()
    }

    /// What DNS says of a server, for the master.
    pub(crate) fn discovered_record(&self, backend: &str, server: &str) -> Option<OverrideRecord> {
        self.discovered.get(backend, server).map(|one| record(backend, server, one))
    }
}

fn is_lost(server: &Server) -> bool {
    server.address.is_unresolved()
}
