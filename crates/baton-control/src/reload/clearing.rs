//! Overrides that an operator drops: what the files say applies again, of these objects alone. Servers that come back are prepared first,
//! which may fail and leaves no trace; the rest cannot fail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use baton_model::{Field, Model, Object, Overrides, Proxy, Setting};
use baton_proxy::{PreparedServers, ServerTlsContext, Workers};
use baton_rules::Files;
use baton_tls::Connectors;

use super::ChangeLine;
use super::servers::{is_pointed_to, put_in_force};
use crate::environment::Outside;

impl ChangeLine {
    /// Drops overrides. Servers that are in another state by it are logged.
    ///
    /// # Errors
    /// There is no such override, or a server cannot come back or go; nothing is changed.
    pub(super) async fn clear_overrides(
        &mut self,
        object: Option<&Object>,
        field: Option<Field>,
        outside: &Outside,
        workers: &Workers,
    ) -> Result<(), String> {
        let used = self.registry.overrides();
        let mut next = Overrides::clone(&used);
        let cleared = next.clear(object, field);
        if cleared.is_empty() && object.is_some() {
            return Err("No such override.".into());
        }
        self.keep_addresses(&cleared, &used);
        let backends = self.other_backends(&cleared, &next, outside)?;
        let mut prepared = Vec::new();
        for proxy in backends {
            let servers = self.prepare_servers(&proxy, outside)?;
            prepared.push((proxy, servers));
        }
        self.registry.change_overrides(|overrides| *overrides = next);
        for (proxy, servers) in prepared {
            self.replace_prepared(&proxy, servers, workers).await;
        }
        if cleared.iter().any(|(_, field)| matches!(field, Field::Fqdn | Field::Address)) {
            self.settle_names(Instant::now());
        }
        self.settle_servers(&cleared, Instant::now());
        self.settle_limits();
        self.open_cleared(&cleared, workers).await;
        self.untold.extend(cleared);
        Ok(())
    }

    /// Servers that get the name of the file again have their addresses until name servers give others.
    fn keep_addresses(&mut self, cleared: &[(Object, Field)], used: &Overrides) {
        for (object, field) in cleared.iter().filter(|(_, field)| *field == Field::Fqdn) {
            let Object::Server { backend, server } = object else { continue };
            let Some(Setting::Fqdn(Some(name))) = used.get(object, *field).map(|set| &set.file) else { continue };
            let proxy = self.model.backend(backend);
            let config = proxy.and_then(|proxy| proxy.servers.iter().find(|other| other.name == *server));
            let Some((resolution, address)) =
                config.and_then(|config| Some((config.resolution.clone()?, config.address.inet()?.ip())))
            else {
                continue;
            };
            self.discover_as(backend, server, (&resolution.resolvers, name), Some(address));
        }
    }

    /// The backends that have other servers, or other health checks, without these overrides.
    fn other_backends(
        &self,
        cleared: &[(Object, Field)],
        next: &Overrides,
        outside: &Outside,
    ) -> Result<Vec<Arc<Proxy>>, String> {
        let is_line = |(_, field): &&(Object, Field)| field.is_of_line();
        if !cleared.iter().any(|one| is_line(&one)) {
            return Ok(Vec::new());
        }
        let mut model = Model::clone(&self.asked);
        // What does not fit is known since the files were read.
        put_in_force(&mut model, (next, &self.discovered), outside);
        model.share(&self.model, || {});
        let mut changed: Vec<Arc<Proxy>> = Vec::new();
        for backend in cleared.iter().filter(is_line).filter_map(|(object, _)| object.backend()) {
            let (Some(proxy), Some(used)) = (model.backend(backend), self.model.backend(backend)) else { continue };
            if Arc::ptr_eq(proxy, used) || changed.iter().any(|other| other.name == proxy.name) {
                continue;
            }
            let stays = |name: &str| proxy.servers.iter().any(|server| &*server.name == name);
            let gone = used.servers.iter().map(|server| &server.name).filter(|name| !stays(name));
            for name in gone {
                if self.checker.is_tracked(&used.name, name) || is_pointed_to(&self.model, used, name) {
                    return Err(format!(
                        "Server {backend}/{name} cannot be removed at runtime due to other configuration elements pointing to it."
                    ));
                }
            }
            changed.push(Arc::clone(proxy));
        }
        Ok(changed)
    }

    /// TLS with the servers of a backend that are not in use as they are there.
    fn prepare_servers(&self, proxy: &Proxy, outside: &Outside) -> Result<PreparedServers, String> {
        let used = self.model.backend(&proxy.name);
        let used: HashMap<&str, _> =
            used.iter().flat_map(|used| &used.servers).map(|server| (&*server.name, server)).collect();
        let mut prepared = PreparedServers::default();
        for server in &proxy.servers {
            let is_same = used.get(&*server.name).is_some_and(|used| used.any_tls() == server.any_tls());
            if !is_same {
                let connectors = Connectors::of_files_in_use(self.acceptors.authorities(), &self.store);
                let context = ServerTlsContext::prepare(server, connectors, outside as &dyn Files, None)
                    .map_err(|reason| format!("Server {}/{}: {reason}", proxy.name, server.name))?;
                prepared.insert(Arc::clone(&server.name), context);
            }
        }
        Ok(prepared)
    }

    /// Has servers as is in force of them now.
    fn settle_servers(&self, cleared: &[(Object, Field)], now: Instant) {
        let Some(generation) = self.generation.as_deref() else { return };
        let overrides = self.registry.overrides();
        let mut last = None;
        for (object, _) in cleared {
            if last == Some(object) {
                continue;
            }
            last = Some(object);
            let Object::Server { backend, server } = object else { continue };
            let plan = generation.backends.get(backend);
            let Some(server) = plan.and_then(|plan| plan.state.server(server)) else { continue };
            let config = server.config();
            let effective = overrides.server(backend, &config);
            server.set_weight(effective.weight, now);
            self.set_admin(&server, server.admin_with(&config, effective), now);
        }
    }
}
