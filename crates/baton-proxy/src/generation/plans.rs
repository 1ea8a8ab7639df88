//! How the plans of frontends and backends are made: anew, or from those of the generation before as far as nothing changed.

use std::sync::Arc;
use std::time::Instant;

use baton_model::diff::is_changed;
use baton_model::{Mode, Model, Proxy, Server};
use baton_rules::{Files, ProxyRules};
use baton_tls::{Connector, Connectors};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::{BackendPlan, FrontendPlan, PreparedServers, Refused};
use crate::state::{Counter, Registry, ServerPlan, ServerPlans};
use crate::upstream::ServerTlsContext;

impl FrontendPlan {
    /// How many requests it counted; a connection of `mode tcp` is one. The kernel's, of `mode direct`, did not come here.
    pub fn requests(&self) -> u64 {
        match self.proxy.mode {
            Mode::Http => self.state.counters.total(Counter::Requests),
            Mode::Tcp => self.state.counters.total(Counter::Sessions),
            Mode::Direct => 0,
        }
    }

    /// Whether it would be the same again.
    pub(super) fn is_of(
        &self,
        proxy: &Arc<Proxy>,
        rules: &Arc<ProxyRules>,
        backend: Option<&Arc<BackendPlan>>,
    ) -> bool {
        Arc::ptr_eq(&self.proxy, proxy)
            && Arc::ptr_eq(&self.rules, rules)
            && self.default_backend.as_ref().map(Arc::as_ptr) == backend.map(Arc::as_ptr)
    }
}

impl BackendPlan {
    pub(super) fn prepare(
        proxy: &Arc<Proxy>,
        rules: Arc<ProxyRules>,
        fullconn: u32,
        registry: &Registry,
        now: Instant,
    ) -> BackendPlan {
        let (state, figures) = registry.backend(proxy, now);
        let plan = |server: &Arc<Server>| {
            let counters = figures.server(&server.name);
            Arc::new(ServerPlan { server: server.clone(), counters, encryption: None })
        };
        let servers = Arc::new(proxy.servers.iter().map(plan).collect());
        BackendPlan { proxy: proxy.clone(), rules, state, figures, servers, fullconn }
    }
}

impl BackendPlan {
    /// The plan in use once more, for the same proxy and rules; another one when files of TLS with its servers changed.
    pub(super) fn again(
        self: &Arc<Self>,
        connectors: Connectors<'_>,
        files: &dyn Files,
        refused: &mut Vec<Refused>,
    ) -> Arc<BackendPlan> {
        let BackendPlan { proxy, rules, state, figures, servers, fullconn } = &**self;
        if !self.speaks_tls() {
            return Arc::clone(self);
        }
        let mut plan = BackendPlan {
            proxy: proxy.clone(),
            rules: rules.clone(),
            state: state.clone(),
            figures: figures.clone(),
            servers: servers.clone(),
            fullconn: *fullconn,
        };
        plan.encrypt(connectors, files, refused);
        if plan.encrypts_as(self) { Arc::clone(self) } else { Arc::new(plan) }
    }

    /// This one with other servers, of which those that are the same objects have the plans that they had.
    pub(super) fn with_servers(&self, proxy: &Arc<Proxy>, prepared: &PreparedServers) -> BackendPlan {
        let plan = |server: &Arc<Server>| {
            let used = self.servers.get(&server.name);
            let encryption = |used: Option<&Arc<ServerPlan>>| match prepared.get(&server.name) {
                Some(encryption) => encryption.clone(),
                None => used
                    .filter(|used| used.server.any_tls() == server.any_tls())
                    .and_then(|used| used.encryption.clone()),
            };
            match used.filter(|used| Arc::ptr_eq(&used.server, server)) {
                Some(used) => Arc::clone(used),
                None => Arc::new(ServerPlan {
                    server: Arc::clone(server),
                    counters: self.figures.server(&server.name),
                    encryption: encryption(used),
                }),
            }
        };
        self.of_servers(proxy, proxy.servers.iter().map(plan).collect())
    }

    /// This one with one server more, the last one of `proxy`.
    pub(super) fn with_server(&self, proxy: &Arc<Proxy>, encryption: Option<Arc<ServerTlsContext>>) -> BackendPlan {
        let plan = |server: &Arc<Server>| {
            let (server, counters) = (Arc::clone(server), self.figures.server(&server.name));
            Arc::new(ServerPlan { server, counters, encryption })
        };
        let servers = match proxy.servers.last().map(plan) {
            Some(plan) => self.servers.with(plan),
            None => ServerPlans::clone(&self.servers),
        };
        self.of_servers(proxy, servers)
    }

    pub(super) fn of_servers(&self, proxy: &Arc<Proxy>, servers: ServerPlans) -> BackendPlan {
        BackendPlan {
            proxy: Arc::clone(proxy),
            rules: Arc::clone(&self.rules),
            state: Arc::clone(&self.state),
            figures: Arc::clone(&self.figures),
            servers: Arc::new(servers),
            fullconn: self.fullconn,
        }
    }

    /// Whether the balancer has nothing to learn from the other plan: the proxy says the same (its number may be another one).
    pub(super) fn balances_as(&self, other: &BackendPlan) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
            && self.fullconn == other.fullconn
            && !is_changed(&self.proxy, &other.proxy)
            && self.proxy.servers.iter().zip(&other.proxy.servers).all(|(one, other)| Arc::ptr_eq(one, other))
            && self.encrypts_as(other)
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.proxy.servers.iter().any(|server| server.any_tls().is_some())
    }

    /// Whether TLS with the servers of both, which are the same servers, goes by the same files.
    pub(super) fn encrypts_as(&self, other: &BackendPlan) -> bool {
        fn connector(plan: &ServerPlan) -> Option<*const Connector> {
            plan.encryption.as_ref().map(|encryption| Arc::as_ptr(&encryption.connector))
        }
        let is_same = |plan: &Arc<ServerPlan>| {
            other.servers.get(&plan.server.name).is_some_and(|other| connector(other) == connector(plan))
        };
        !self.speaks_tls() && !other.speaks_tls() || self.servers.values().all(is_same)
    }

    /// Gets ready for TLS with its servers.
    pub(super) fn encrypt(&mut self, connectors: Connectors<'_>, files: &dyn Files, refused: &mut Vec<Refused>) {
        if !self.speaks_tls() {
            return;
        }
        let encrypted = |plan: &Arc<ServerPlan>| {
            let server = &plan.server;
            if server.any_tls().is_none() {
                return Arc::clone(plan);
            }
            let before = self.state.server(&server.name).and_then(|state| state.encryption());
            match ServerTlsContext::prepare(server, connectors, files, before.as_deref()) {
                Ok(encryption) => {
                    let (server, counters) = (server.clone(), plan.counters.clone());
                    Arc::new(ServerPlan { server, counters, encryption })
                }
                Err(reason) => {
                    refused.push(Refused {
                        object: format!("server {}/{}", self.proxy.name, server.name),
                        reason,
                        source: server.line.clone(),
                    });
                    Arc::clone(plan)
                }
            }
        };
        self.servers = Arc::new(self.servers.values().map(encrypted).collect());
    }
}

/// `fullconn` of a backend, or its share of the `maxconn` of its frontends.
pub(super) fn fullconn(proxy: &Proxy, sums: &FxHashMap<&str, u64>) -> u32 {
    proxy.fullconn.unwrap_or_else(|| {
        let sum = sums.get(&*proxy.name).copied().unwrap_or_default();
        u32::try_from(sum.div_ceil(10)).unwrap_or(u32::MAX).max(1)
    })
}

/// By backend, the sum of the `maxconn` of all frontends that may lead to it; a tenth of that is its `fullconn` when it does not
/// say (configuration manual, `fullconn`).
pub(super) fn default_fullconns(model: &Model, global: u32) -> FxHashMap<&str, u64> {
    use baton_model::Ruleset::UseBackend;
    let mut sums = FxHashMap::with_capacity_and_hasher(model.proxies.len(), FxBuildHasher);
    for proxy in model.proxies.iter().filter(|proxy| proxy.role.is_frontend()) {
        let own = proxy.role.is_backend().then_some(&*proxy.name);
        let by_rule = proxy.rules(UseBackend).iter().filter_map(|rule| rule.words.first().map(String::as_str));
        let leads_to: FxHashSet<&str> =
            proxy.default_backend.as_deref().into_iter().chain(own).chain(by_rule).collect();
        for backend in leads_to {
            *sums.entry(backend).or_default() += u64::from(proxy.maxconn.unwrap_or(global));
        }
    }
    sums
}
