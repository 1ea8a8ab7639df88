//! What a core works by: one configuration, prepared so completely that using it cannot fail.
//!
//! The change path builds a [`Generation`] beside the one in use ([`Generation::prepare`] may fail and leaves no trace),
//! commits it with [`Generation::commit`], and hands it to every core. State is not in here but in the
//! [`Registry`], which is why nothing is lost between two generations.

mod plans;
mod rules;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use baton_kernel::process::priority;
use baton_model::{Bind, BindKey, EffectiveServer, Model, Proxy, Server, StickTable};
use baton_rules::{CompiledRules, Files, ProxyRules};
use baton_tables::PreparedTables;
use baton_tls::{Acceptor, Connectors};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::balance::{BackendState, ServerState};
use crate::state::{
    BackendFigures, ByName, Counter, CounterBlock, FrontendState, ListenerId, ListenerState, Registry, ServerPlans,
};
use crate::sums::ProcessSum;
use crate::upstream::ServerTlsContext;

use self::plans::{default_fullconns, fullconn};
use self::rules::{RuleSources, compile};

/// After so many backends (less than 1 ms) `prepare` yields its CPU to a core that is ready to run.
const BACKENDS_PER_SLICE: usize = 512;

/// TLS with servers, by name, of those that were prepared; `None`: neither their traffic nor their checks are encrypted.
pub type PreparedServers = FxHashMap<Arc<str>, Option<Arc<ServerTlsContext>>>;

/// One configuration, ready for use.
#[derive(Debug)]
pub struct Generation {
    /// 1 for the first, then counted up.
    pub number: u64,
    /// What was asked.
    pub model: Arc<Model>,
    /// Connections of the whole process: the global `maxconn`, or what the descriptors allow.
    pub maxconn: u32,
    /// Idle server connections of the whole process: what its descriptors allow besides two for each client.
    pub idle_max: u32,
    /// Frontends that take part (not `disabled`).
    pub frontends: Vec<Arc<FrontendPlan>>,
    /// Where in that list each is.
    named: ByName<usize>,
    /// Backends by name, `disabled` ones left out.
    pub backends: Arc<ByName<Arc<BackendPlan>>>,
    /// Listening sockets and the frontend each leads to.
    pub listeners: Vec<Arc<ListenerPlan>>,
    /// Whether rules ask for rates, which are measured only then.
    pub measures: bool,
    /// Stick tables, until the commit; `None`: they are those in use.
    tables: Option<PreparedTables>,
    /// Backends whose balancer the commit gave new settings: those that differ from the generation before.
    pub reconfigured: usize,
    /// The backend that has a server more than in the generation before, from which nothing else differs.
    pub added_to: Option<Arc<str>>,
    /// The server that is not there any more, from which generation nothing else differs.
    pub removed: Option<Arc<ServerState>>,
}

/// A frontend of a generation.
#[derive(Debug)]
pub struct FrontendPlan {
    /// What was asked.
    pub proxy: Arc<Proxy>,
    /// Its compiled rules.
    pub rules: Arc<ProxyRules>,
    /// Its counters.
    pub state: Arc<FrontendState>,
    /// `default_backend`, or itself for a `listen` section.
    pub default_backend: Option<Arc<BackendPlan>>,
}

/// A backend of a generation.
#[derive(Debug)]
pub struct BackendPlan {
    /// What was asked.
    pub proxy: Arc<Proxy>,
    /// Its compiled rules.
    pub rules: Arc<ProxyRules>,
    /// Balancing state, queue and health.
    pub state: Arc<BackendState>,
    /// Traffic figures.
    pub figures: Arc<BackendFigures>,
    /// Servers by name. Shared with the registry, which keeps their counters.
    pub servers: Arc<ServerPlans>,
    /// The model's `fullconn`, or a tenth of the sum of its frontends' `maxconn`.
    pub fullconn: u32,
}

/// Open sockets of one address.
#[derive(Debug)]
pub struct ListenerPlan {
    /// The socket group's identity: kept while the address stays open.
    pub id: ListenerId,
    /// The `bind` it comes from.
    pub bind: Bind,
    /// The `bind`'s `id`, or its place among those of its frontend, from 1.
    pub number: u64,
    /// The frontend it leads to.
    pub frontend: Arc<FrontendPlan>,
    /// TLS for its clients; `None`: they speak plainly.
    pub tls: Option<Arc<Acceptor>>,
    /// Its figures, with the connections that are open (`maxconn` of the `bind`).
    pub state: Arc<ListenerState>,
    /// Sockets, each served by at least one core, and each core serving at least one. With fewer sockets than cores
    /// several cores accept on the same. Not held open by the plan, for every connection that came by the address holds the
    /// plan: when the change path drops the address, nobody keeps it.
    pub shards: Weak<[OwnedFd]>,
}

impl ListenerPlan {
    /// Whether the address is gone: it was removed, and its queue was emptied.
    pub fn is_closed(&self) -> bool {
        self.shards.strong_count() == 0
    }
}

/// Why a generation cannot be used; the one in use goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// The object at fault, such as `frontend web`.
    pub object: String,
    /// What is wrong and what would help.
    pub reason: String,
    /// Where it was written.
    pub source: baton_model::Source,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{}] {}: {}", self.source, self.object, self.reason)
    }
}

/// Sockets for one `bind` of a frontend, as the change path opened or kept them.
#[derive(Debug)]
pub struct OpenListener {
    /// Identity; the same as before for an address that stays.
    pub id: ListenerId,
    /// Name of the frontend.
    pub frontend: Arc<str>,
    /// The `bind`.
    pub bind: Bind,
    /// Its sockets.
    pub shards: Arc<[OwnedFd]>,
    /// TLS for its clients.
    pub tls: Option<Arc<Acceptor>>,
}

impl Generation {
    /// Builds the plans that differ from those in use, `before`; the others are the same ones. `maxconn` is the process's limit,
    /// `rules` are compiled (those that are not, of a model that was put together of several texts, are compiled here), `files` reads
    /// for them and `connectors` have what was read for TLS with servers. Nothing that is in use is touched; every reason to refuse is
    /// reported at once.
    pub fn prepare(
        before: Option<&Generation>,
        (model, rules): (Arc<Model>, &CompiledRules),
        maxconn: u32,
        registry: &Registry,
        (files, connectors): (&dyn Files, Connectors<'_>),
        now: Instant,
    ) -> Result<Generation, Vec<Refused>> {
        let mut refused = Vec::new();
        let outside = RuleSources { model: &model, files };
        let fullconns = default_fullconns(&model, maxconn);
        let mut backends = ByName::with_capacity_and_hasher(model.proxies.len(), FxBuildHasher);
        let backends_asked = model.proxies.iter().filter(|proxy| proxy.role.is_backend() && !proxy.disabled);
        for (count, proxy) in backends_asked.enumerate() {
            if count % BACKENDS_PER_SLICE == BACKENDS_PER_SLICE - 1 {
                priority::yield_cpu();
            }
            if let Some(rules) = rules.of(proxy).or_else(|| compile(proxy, &outside, &mut refused)) {
                let used = before.and_then(|before| before.backends.get(&proxy.name));
                let used = used.filter(|plan| Arc::ptr_eq(&plan.proxy, proxy) && Arc::ptr_eq(&plan.rules, &rules));
                let fullconn = fullconn(proxy, &fullconns);
                let plan = match used.filter(|plan| plan.fullconn == fullconn) {
                    Some(used) => used.again(connectors, files, &mut refused),
                    None => {
                        let mut plan = BackendPlan::prepare(proxy, rules, fullconn, registry, now);
                        plan.encrypt(connectors, files, &mut refused);
                        Arc::new(plan)
                    }
                };
                backends.insert(proxy.name.clone(), plan);
            }
        }
        let mut frontends = Vec::new();
        for proxy in model.proxies.iter().filter(|proxy| proxy.role.is_frontend() && !proxy.disabled) {
            if let Some(rules) = rules.of(proxy).or_else(|| compile(proxy, &outside, &mut refused)) {
                let own = proxy.role.is_backend().then(|| &*proxy.name);
                let default_backend =
                    proxy.default_backend.as_deref().or(own).and_then(|name| backends.get(name)).cloned();
                let used = before.and_then(|before| before.frontend(&proxy.name));
                frontends.push(match used.filter(|plan| plan.is_of(proxy, &rules, default_backend.as_ref())) {
                    Some(used) => used.clone(),
                    None => {
                        let state = registry.frontend(&proxy.name);
                        Arc::new(FrontendPlan { proxy: proxy.clone(), rules, state, default_backend })
                    }
                });
            }
        }
        let wanted: Vec<StickTable> = model.tables().map(|table| StickTable::clone(table)).collect();
        let tables = match registry.tables.prepare(&wanted) {
            Ok(tables) => Some(tables),
            Err(error) => {
                let source = wanted.iter().find(|table| table.name == error.table).map(|table| table.source.clone());
                let (object, source) = (format!("stick-table {}", error.table), source.unwrap_or_default());
                refused.push(Refused { object, reason: error.reason, source });
                None
            }
        };
        if !refused.is_empty() {
            return Err(refused);
        }
        let named = frontends.iter().enumerate().map(|(at, plan)| (plan.proxy.name.clone(), at)).collect();
        let rules = frontends.iter().map(|plan| &plan.rules).chain(backends.values().map(|plan| &plan.rules));
        let measures = rules.into_iter().any(|rules| rules.asks_for_rates());
        // The caller lowers it to what it can afford.
        let idle_max = u32::MAX;
        Ok(Generation {
            number: before.map_or(0, |before| before.number) + 1,
            model,
            maxconn,
            idle_max,
            frontends,
            named,
            backends: Arc::new(backends),
            listeners: Vec::new(),
            measures,
            tables,
            reconfigured: 0,
            added_to: None,
            removed: None,
        })
    }

    /// This one with other servers of one backend, for which `proxy` stands in `model`; nothing else differs, and none of them is new.
    pub fn with_servers(&self, model: Arc<Model>, proxy: &Arc<Proxy>) -> Generation {
        self.with_prepared(model, proxy, &PreparedServers::default())
    }

    /// As [`Generation::with_servers`]; `prepared` has TLS with those servers that are new or encrypt in another way than before.
    pub fn with_prepared(&self, model: Arc<Model>, proxy: &Arc<Proxy>, prepared: &PreparedServers) -> Generation {
        self.with_backend(model, proxy, |used| used.with_servers(proxy, prepared))
    }

    /// This one with one server more, the last one of `proxy`, which stands in `model` for its backend; nothing else differs. `encryption`
    /// is TLS with that server. What it costs does not depend on how many servers the backend has.
    pub fn with_server(
        &self,
        model: Arc<Model>,
        proxy: &Arc<Proxy>,
        encryption: Option<Arc<ServerTlsContext>>,
    ) -> Generation {
        let next = self.with_backend(model, proxy, |used| used.with_server(proxy, encryption));
        Generation { added_to: Some(Arc::clone(&proxy.name)), ..next }
    }

    /// This one without one server, which `proxy`, which stands in `model` for its backend, does not have any more; nothing else differs. What
    /// it costs does not depend on how many servers the backend has.
    pub fn without_server(&self, model: Arc<Model>, proxy: &Arc<Proxy>, server: &Arc<ServerState>) -> Generation {
        let next = self.with_backend(model, proxy, |used| used.of_servers(proxy, used.servers.without(server.name())));
        Generation { removed: Some(Arc::clone(server)), ..next }
    }

    fn with_backend(
        &self,
        model: Arc<Model>,
        proxy: &Arc<Proxy>,
        change: impl FnOnce(&BackendPlan) -> BackendPlan,
    ) -> Generation {
        let used = self.backends.get(&proxy.name);
        let mut backends = ByName::clone(&self.backends);
        let plan = used.map(|used| Arc::new(change(used)));
        if let Some(plan) = &plan {
            backends.insert(proxy.name.clone(), Arc::clone(plan));
        }
        let leads_there = |frontend: &FrontendPlan| {
            frontend.default_backend.as_ref().map(Arc::as_ptr) == used.map(Arc::as_ptr) && used.is_some()
        };
        let again = |frontend: &Arc<FrontendPlan>| {
            let is_itself = frontend.proxy.role == proxy.role && frontend.proxy.name == proxy.name;
            if !is_itself && !leads_there(frontend) {
                return Arc::clone(frontend);
            }
            Arc::new(FrontendPlan {
                proxy: if is_itself { Arc::clone(proxy) } else { Arc::clone(&frontend.proxy) },
                rules: Arc::clone(&frontend.rules),
                state: Arc::clone(&frontend.state),
                default_backend: match leads_there(frontend) {
                    true => plan.clone(),
                    false => frontend.default_backend.clone(),
                },
            })
        };
        let frontends: Vec<Arc<FrontendPlan>> = self.frontends.iter().map(again).collect();
        let listener = |listener: &Arc<ListenerPlan>| {
            let at = self.named.get(&listener.frontend.proxy.name).copied();
            let frontend = at.and_then(|at| frontends.get(at)).filter(|plan| !Arc::ptr_eq(plan, &listener.frontend));
            match frontend {
                None => Arc::clone(listener),
                Some(frontend) => Arc::new(ListenerPlan {
                    id: listener.id,
                    bind: listener.bind.clone(),
                    number: listener.number,
                    frontend: Arc::clone(frontend),
                    tls: listener.tls.clone(),
                    state: Arc::clone(&listener.state),
                    shards: Weak::clone(&listener.shards),
                }),
            }
        };
        Generation {
            number: self.number,
            model,
            maxconn: self.maxconn,
            idle_max: self.idle_max,
            listeners: self.listeners.iter().map(listener).collect(),
            frontends,
            named: self.named.clone(),
            backends: Arc::new(backends),
            measures: self.measures,
            tables: None,
            reconfigured: 0,
            added_to: None,
            removed: None,
        }
    }

    /// Whether a backend is what it was: its plan is the same one.
    pub fn has_same_backend(&self, before: Option<&Generation>, name: &str) -> bool {
        let used = before.and_then(|before| before.backends.get(name));
        used.zip(self.backends.get(name)).is_some_and(|(used, plan)| Arc::ptr_eq(used, plan))
    }

    /// The frontend of that name.
    pub fn frontend(&self, name: &str) -> Option<&Arc<FrontendPlan>> {
        self.frontends.get(*self.named.get(name)?)
    }

    /// Takes the open sockets of its frontends, those of one frontend one after the other.
    pub fn listen(&mut self, open: Vec<OpenListener>, registry: &Registry) {
        let mut numbers: FxHashMap<BindKey<'_>, u64> = FxHashMap::default();
        let mut numbered: Option<&Arc<FrontendPlan>> = None;
        let mut listeners = Vec::with_capacity(open.len());
        for OpenListener { id, frontend, bind, shards, tls } in open {
            let Some(frontend) = self.frontend(&frontend) else { continue };
            if !numbered.is_some_and(|before| Arc::ptr_eq(before, frontend)) {
                numbered = Some(frontend);
                numbers.clear();
                for (bind, number) in frontend.proxy.binds.iter().zip(1..) {
                    numbers.entry(bind.key()).or_insert(number);
                }
            }
            let number = bind.id.map(u64::from).or(numbers.get(&bind.key()).copied()).unwrap_or_default();
            let state = registry.listener(id, &frontend.proxy.name, number);
            let frontend = frontend.clone();
            let shards = Arc::downgrade(&shards);
            listeners.push(Arc::new(ListenerPlan { id, bind, number, frontend, tls, state, shards }));
        }
        self.listeners = listeners;
    }

    /// What is lost of stick tables whose layout or size it changes, for messages.
    pub fn table_losses(&self) -> &[String] {
        self.tables.as_ref().map_or(&[], PreparedTables::losses)
    }

    /// Makes it the one in use in the place of the one `before`: registers its state, and gives backends that stay, and are not what
    /// they were, their new settings. Cannot fail.
    pub fn commit(mut self, before: Option<&Generation>, registry: &Registry, now: Instant) -> Arc<Generation> {
        if let Some(name) = self.added_to.clone() {
            return self.commit_server(&name, registry, now);
        }
        if let Some(server) = self.removed.clone() {
            return self.commit_removal(&server, registry, now);
        }
        if let Some(tables) = self.tables.take() {
            registry.tables.commit(tables);
        }
        let removed = before.iter().flat_map(|before| &before.frontends);
        for plan in removed.filter(|plan| self.frontend(&plan.proxy.name).is_none()) {
            registry.sums.add(ProcessSum::Connections, plan.state.counters.total(Counter::Connections));
            registry.sums.add(ProcessSum::Requests, plan.requests());
            registry.sums.add(ProcessSum::BytesOut, plan.state.counters.total(Counter::BytesOut));
        }
        registry.keep(
            self.listeners.iter().map(|plan| plan.id),
            self.frontends.iter().map(|plan| &plan.state),
            self.backends.values().map(|plan| (&plan.state, &plan.figures)),
        );
        priority::yield_cpu();
        let overrides = registry.overrides();
        let overridden = overrides.backends();
        for (count, plan) in self.backends.values().enumerate() {
            if count % BACKENDS_PER_SLICE == BACKENDS_PER_SLICE - 1 {
                priority::yield_cpu();
            }
            let used = before.and_then(|before| before.backends.get(&plan.proxy.name));
            if used.is_some_and(|used| Arc::ptr_eq(used, plan)) {
                continue;
            }
            if used.is_some_and(|used| used.balances_as(plan)) {
                plan.figures.keep(&plan.servers);
                continue;
            }
            self.reconfigured += 1;
            let is_overridden = overridden.contains(&plan.proxy.name);
            let effective = |server: &Server| match is_overridden {
                true => overrides.server(&plan.proxy.name, server),
                false => EffectiveServer::of(server),
            };
            let encryption = |name: &str| plan.servers.get(name)?.encryption.clone();
            plan.state.replace(&plan.proxy, &effective, &encryption, now);
            plan.state.set_fullconn(plan.fullconn);
            plan.figures.keep(&plan.servers);
        }
        if self.measures {
            let now_ms = registry.millisecond(now);
            self.each_measured(|counters, totals| counters.rates.begin(totals, now_ms));
        }
        Arc::new(self)
    }

    /// A second is over: measures what rules ask for.
    pub fn measure(&self, registry: &Registry, now: Instant) {
        let now_ms = registry.millisecond(now);
        self.each_measured(|counters, totals| counters.rates.measure(totals, now_ms));
    }

    /// Frontends, backends and servers with the sessions and requests that were begun there.
    fn each_measured(&self, mut each: impl FnMut(&CounterBlock, [u64; 2])) {
        for FrontendPlan { state, .. } in self.frontends.iter().map(|plan| &**plan) {
            let counters = &state.counters;
            each(counters, [counters.grown(Counter::Connections), counters.grown(Counter::Requests)]);
        }
        for plan in self.backends.values() {
            each(&plan.figures.counters, [plan.figures.begun(), 0]);
            for server in plan.state.servers() {
                if let Some(plan) = plan.servers.get(server.name()) {
                    each(&plan.counters, [server.total(), 0]);
                }
            }
        }
    }

    /// As [`Generation::commit`], of one that differs by a server more of that backend. Names and all other plans are what they were.
    fn commit_server(mut self, backend: &str, registry: &Registry, now: Instant) -> Arc<Generation> {
        if let Some(plan) = self.backends.get(backend) {
            self.reconfigured = 1;
            let overrides = registry.overrides();
            let effective = |server: &Server| overrides.server(&plan.proxy.name, server);
            let encryption = |name: &str| plan.servers.get(name)?.encryption.clone();
            plan.state.add(&plan.proxy, &effective, &encryption, now);
            plan.figures.keep(&plan.servers);
        }
        Arc::new(self)
    }
}

impl Generation {
    /// As [`Generation::commit`], of one that differs by this server less. Names and all other plans are what they were.
    fn commit_removal(mut self, server: &ServerState, registry: &Registry, now: Instant) -> Arc<Generation> {
        let backend = server.backend();
        if let Some(plan) = backend.and_then(|backend| self.backends.get(backend.name())) {
            self.reconfigured = 1;
            let overrides = registry.overrides();
            let effective = |server: &Server| overrides.server(&plan.proxy.name, server);
            let encryption = |name: &str| plan.servers.get(name)?.encryption.clone();
            plan.state.remove(&plan.proxy, server, &effective, &encryption, now);
            plan.figures.keep(&plan.servers);
        }
        Arc::new(self)
    }
}
