//! Servers that operators add and delete, and whose health checks they start and stop. The model in use is what the files say with these
//! on top ([`put_in_force`]); a command changes it for one backend.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use baton_config::{DynamicServers, Environment, ServerIds, is_checked_by, is_dynamic, takes_dynamic_servers};
use baton_health::ChangedBackend;
use baton_model::{
    Author, Discovered, Field, Mode, Model, Object, Override, Overrides, Proxy, Ruleset, Server, Setting,
};
use baton_proxy::balance::ServerState;
use baton_proxy::{Command, Generation, PreparedServers, ServerTlsContext, Workers};
use baton_rules::Files;
use baton_tls::Connectors;

use super::{ChangeLine, changed_backends, discovering};
use crate::environment::Outside;
use crate::tickets::wall_seconds;

/// The most overrides of a process that servers may be added and deleted by.
const OVERRIDES_MAX: usize = 200_000;

/// Makes of a model, as files have it, what is in force: with the addresses that DNS has given, with the servers that were added, without those that were deleted, and with the
/// health checks that were started and stopped. Gives what cannot be: a server that does not fit what the files say now. It is tried
/// again with the next files.
pub(super) fn put_in_force(
    model: &mut Model,
    (overrides, discovered): (&Overrides, &Discovered),
    env: &dyn Environment,
) -> Vec<String> {
    let mut problems = Vec::new();
    // What is set holds by what the files say, whatever is put into the model before.
    let files = model.proxies.clone();
    put_names(model, overrides);
    for backend in discovered.backends() {
        let place = model.proxies.iter().position(|proxy| proxy.role.is_backend() && proxy.name == *backend);
        if let Some(place) = place {
            discovering::put(Arc::make_mut(&mut model.proxies[place]), discovered);
        }
    }
    for (backend, sets) in overrides.of_lines() {
        let place = model.proxies.iter().position(|proxy| proxy.role.is_backend() && proxy.name == *backend);
        let Some(place) = place else { continue };
        let asked = Arc::clone(&model.proxies[place]);
        let named: HashMap<&str, &Arc<Server>> =
            files[place].servers.iter().map(|server| (&*server.name, server)).collect();
        let holds = |name: &str, set: &Override| {
            let server = named.get(name).map(|server| &***server);
            let field = set.value.field();
            field == Field::Health || set.file == Setting::of(field, server)
        };
        let sets: Vec<_> = sets.into_iter().filter(|(name, set)| holds(name, set)).collect();
        let mut proxy = Proxy::clone(&asked);
        let without: Vec<&Arc<str>> =
            sets.iter().filter(|(_, set)| set.value.field() == Field::Line).map(|(name, _)| *name).collect();
        if !without.is_empty() {
            let without: std::collections::HashSet<&str> = without.iter().map(|name| &***name).collect();
            proxy.servers.retain(|server| !without.contains(&*server.name));
        }
        let mut added = Vec::new();
        let mut ids = ServerIds::of(&proxy);
        let mut reader = DynamicServers::new(model, &proxy, env, &mut ids);
        for (name, set) in &sets {
            let Setting::Line(Some(line)) = &set.value else { continue };
            match reader.read(name, line) {
                Ok(mut server) => {
                    server.begin_unasked();
                    added.push(Arc::new(server));
                }
                Err(reason) => problems.push(format!(
                    "server {backend}/{name}, added at run time, does not fit the configuration and is removed: {reason}"
                )),
            }
        }
        proxy.servers.extend(added);
        let mut changed: HashMap<&str, Vec<&Setting>> = HashMap::new();
        for (name, set) in sets.iter().filter(|(_, set)| set.value.field() != Field::Line) {
            changed.entry(&***name).or_default().push(&set.value);
        }
        for server in proxy.servers.iter_mut().filter(|_| !changed.is_empty()) {
            if let Some(settings) = changed.get(&*server.name) {
                let server = Arc::make_mut(server);
                settings.iter().for_each(|setting| setting.put(server));
            }
        }
        model.proxies[place] = Arc::new(proxy);
    }
    problems
}

/// Gives servers the names that operators set: what name servers say is about those.
fn put_names(model: &mut Model, overrides: &Overrides) {
    for (object, set) in overrides.iter() {
        let (Object::Server { backend, server }, Setting::Fqdn(_)) = (object, &set.value) else { continue };
        let place = model.proxies.iter().position(|proxy| proxy.role.is_backend() && proxy.name == *backend);
        let Some(place) = place else { continue };
        let Some(at) = model.proxies[place].servers.iter().position(|other| other.name == *server) else { continue };
        if set.file == Setting::of(Field::Fqdn, Some(&model.proxies[place].servers[at])) {
            set.value.put(Arc::make_mut(&mut Arc::make_mut(&mut model.proxies[place]).servers[at]));
        }
    }
}

/// Whether overrides make another model of what files say.
pub(super) fn changes_lines(overrides: &Overrides) -> bool {
    !overrides.is_empty() && !overrides.of_lines().is_empty()
}

/// Whether two sets of overrides make the same model.
pub(super) fn are_lines_same(one: &Overrides, other: &Overrides) -> bool {
    one.of_lines() == other.of_lines()
}

impl ChangeLine {
    /// Adds a server to a backend, in maintenance and without checks.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn add_server(
        &mut self,
        (backend, name): (&Arc<str>, &Arc<str>),
        line: &str,
        by: Author,
        outside: &Outside,
        workers: &Workers,
    ) -> Result<(), String> {
        let proxy = self.backend(backend)?;
        if !takes_dynamic_servers(&proxy) {
            return Err("Backend must use a dynamic load balancing to support dynamic servers.".into());
        }
        let used = self.generation.clone().ok_or("No such backend.")?;
        if used.backends.get(backend).is_some_and(|plan| plan.servers.get(name).is_some()) {
            return Err("Already exists a server with the same name in backend.".into());
        }
        if self.registry.overrides().len() >= OVERRIDES_MAX {
            return Err(format!("The maximum of {OVERRIDES_MAX} settings at run time is reached."));
        }
        // What was counted is counted again after a server that cannot be.
        let mut ids = self.server_ids.take(&proxy);
        let mut server = DynamicServers::new(&self.model, &proxy, outside, &mut ids).read(name, line)?;
        let connectors = Connectors::of_files_in_use(self.acceptors.authorities(), &self.store);
        let encryption = ServerTlsContext::prepare(&server, connectors, outside as &dyn Files, None)?;
        server.begin_unasked();
        let server = Arc::new(server);
        let mut next = Proxy::clone(&proxy);
        next.servers.push(Arc::clone(&server));
        let next = Arc::new(next);
        let object = Object::server(backend, name);
        // A server that is not in use is none of the files, or was deleted, which has what they say of it.
        let deleted = self.registry.overrides().get(&object, Field::Line).map(|set| set.file.clone());
        let file = deleted.unwrap_or(Setting::Line(None));
        let set = Override { value: Setting::Line(Some(line.into())), file, by, at_s: wall_seconds() };
        self.registry.change_overrides(|overrides| overrides.set(object.clone(), set));
        self.untold.push((object, Field::Line));
        let model = self.model_with(&next);
        let generation = used.with_server(Arc::clone(&model), &next, encryption);
        let generation = self.put_in_use(model, generation, &used, workers).await;
        if let Some(plan) = generation.backends.get(backend) {
            let backend = ChangedBackend { proxy: Arc::clone(&next), state: Arc::clone(&plan.state) };
            self.checker.add(backend, &server, |name| self.registry.backend_state(name));
        }
        self.server_ids.keep(next, ids);
        Ok(())
    }

    /// Deletes a server, of the files or added, that is in maintenance and has nothing in work.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn delete_server(
        &mut self,
        server: &Arc<ServerState>,
        by: Author,
        workers: &Workers,
    ) -> Result<(), String> {
        let backend = server.backend().ok_or("No such backend.")?;
        let (backend, name) = (backend.name(), server.name());
        let proxy = self.backend(backend)?;
        if self.checker.is_tracked(backend, name) || is_pointed_to(&self.model, &proxy, name) {
            let text = "This server cannot be removed at runtime due to other configuration elements pointing to it.";
            return Err(text.into());
        }
        if !server.admin().in_maintenance() {
            return Err("Only servers in maintenance mode can be deleted.".into());
        }
        if server.served() > 0 || server.elsewhere() > 0 || server.queued() > 0 {
            return Err("Server still has connections attached to it, cannot remove it.".into());
        }
        let mut ids = self.server_ids.take(&proxy);
        let mut next = Proxy::clone(&proxy);
        // By what is the same object: none of the others is looked at.
        let config = server.config();
        let same = next.servers.iter().position(|server| Arc::ptr_eq(server, &config));
        let place = same.or_else(|| next.servers.iter().position(|server| server.name == *name));
        ids.give_back(&next.servers.remove(place.ok_or("No such server.")?));
        let next = Arc::new(next);
        let object = Object::server(backend, name);
        let file = self.line_as_asked(&object, &config);
        let set = Override { value: Setting::Line(None), file, by, at_s: wall_seconds() };
        let mut changed = self.registry.change_overrides(|overrides| {
            let had = overrides.remove(&object);
            overrides.set(object.clone(), set);
            had
        });
        changed.push(Field::Line);
        self.untold.extend(changed.into_iter().map(|field| (object.clone(), field)));
        let used = self.generation.clone().ok_or("No such backend.")?;
        let model = self.model_with(&next);
        let generation = used.without_server(Arc::clone(&model), &next, server);
        let generation = self.put_in_use(model, generation, &used, workers).await;
        if let Some(plan) = generation.backends.get(backend) {
            let backend = ChangedBackend { proxy: Arc::clone(&next), state: Arc::clone(&plan.state) };
            self.checker.remove(backend, name);
        }
        self.server_ids.keep(next, ids);
        Ok(())
    }

    /// Starts or stops the health checks of a server.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn set_health_checks(
        &mut self,
        server: &Arc<ServerState>,
        is_checked: bool,
        by: Author,
        outside: &Outside,
        workers: &Workers,
    ) -> Result<(), String> {
        let backend = server.backend().ok_or("No such backend.")?;
        let (backend, name) = (backend.name(), server.name());
        let proxy = self.backend(backend)?;
        let object = Object::server(backend, name);
        let line = self.registry.overrides().get(&object, Field::Line).map(|set| set.value.clone());
        let asked = self.as_asked(backend, name, Field::Health, by);
        let is_configured = match line {
            Some(Setting::Line(Some(line))) => is_checked_by(&self.model, &proxy, name, &line, outside),
            Some(_) | None => asked.file == Setting::Health(true),
        };
        if is_checked && !is_configured {
            return Err("Health check was not configured on this server, cannot enable.".into());
        }
        if server.config().check.enabled == is_checked {
            return Ok(());
        }
        self.put_setting(&proxy, name, Override { value: Setting::Health(is_checked), ..asked }, workers).await;
        Ok(())
    }

    /// Changes something of a server's line.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn set_of_line(
        &mut self,
        server: &Arc<ServerState>,
        value: Setting,
        by: Author,
        workers: &Workers,
    ) -> Result<(), String> {
        let backend = server.backend().ok_or("No such backend.")?;
        let (backend, name) = (backend.name(), server.name());
        let proxy = self.backend(backend)?;
        let asked = self.as_asked(backend, name, value.field(), by);
        if let Setting::Fqdn(Some(host)) = &value {
            self.rename(server, host);
        }
        let is_place = matches!(value, Setting::Fqdn(_) | Setting::Address(_));
        self.put_setting(&proxy, name, Override { value, ..asked }, workers).await;
        if is_place {
            self.settle_names(Instant::now());
        }
        Ok(())
    }

    /// A server has another host from now on, and its address until name servers give another one, also in processes after this one.
    fn rename(&mut self, server: &ServerState, host: &Arc<str>) {
        let Some(backend) = server.backend() else { return };
        let (backend, config) = (backend.name(), server.config());
        let object = Object::server(backend, server.name());
        // An address that an operator set ends with that.
        let cleared = self.registry.change_overrides(|overrides| overrides.clear(Some(&object), Some(Field::Address)));
        self.untold.extend(cleared);
        if let Some(resolution) = &config.resolution {
            let address = config.address.inet().map(|inet| inet.ip());
            self.discover_as(backend, server.name(), (&resolution.resolvers, host), address);
        }
    }

    /// Has a server's line as an override says, from now on.
    async fn put_setting(&mut self, proxy: &Proxy, name: &Arc<str>, set: Override, workers: &Workers) {
        let mut next = Proxy::clone(proxy);
        for server in next.servers.iter_mut().filter(|server| server.name == *name) {
            set.value.put(Arc::make_mut(server));
        }
        let (object, field) = (Object::server(&proxy.name, name), set.value.field());
        self.registry.change_overrides(|overrides| overrides.set(object.clone(), set));
        self.untold.push((object, field));
        self.replace_servers(&Arc::new(next), workers).await;
    }

    fn backend(&self, name: &str) -> Result<Arc<Proxy>, String> {
        let proxy = self.model.backend(name).ok_or("No such backend.")?;
        if proxy.mode == Mode::Direct {
            return Err(
                "Servers of 'mode direct' cannot be changed at run time: change the configuration and reload.".into()
            );
        }
        if proxy.disabled {
            return Err("The backend is disabled in the configuration.".into());
        }
        Ok(Arc::clone(proxy))
    }

    /// What the files say of a server's line, of one that is in use: they do not name it if it was added, and it may have been moved.
    fn line_as_asked(&self, object: &Object, server: &Server) -> Setting {
        let overrides = self.registry.overrides();
        if let Some(set) = overrides.get(object, Field::Line) {
            return set.file.clone();
        }
        if let Some(Setting::Address(address)) = overrides.get(object, Field::Address).map(|set| &set.file) {
            return Setting::Line(address.clone());
        }
        let written = object
            .backend()
            .and_then(|backend| self.asked.backend(backend))
            .and_then(|proxy| proxy.servers.iter().find(|other| server.named_by_operator && other.name == server.name));
        Setting::of(Field::Line, Some(written.map_or(server, |written| written)))
    }

    /// A field of a server as the files have it. They check no server that they do not name.
    fn as_asked(&self, backend: &str, name: &str, field: Field, by: Author) -> Override {
        let servers = self.asked.backend(backend).map(|proxy| &proxy.servers);
        let server = servers.and_then(|servers| servers.iter().find(|server| &*server.name == name));
        let used =
            self.model.backend(backend).and_then(|proxy| proxy.servers.iter().find(|server| &*server.name == name));
        let server = server.filter(|_| field == Field::Line || !used.is_some_and(|used| is_dynamic(used)));
        let file = Setting::of(field, server.map(|server| &**server));
        Override { value: file.clone(), file, by, at_s: wall_seconds() }
    }

    /// Puts a backend with other servers in use, of which none is new. It cannot fail.
    pub(super) async fn replace_servers(&mut self, next: &Arc<Proxy>, workers: &Workers) {
        self.replace_prepared(next, PreparedServers::default(), workers).await;
    }

    /// Puts a backend with other servers in use; `prepared` has TLS with those that are new or encrypt in another way than before. It cannot
    /// fail.
    pub(super) async fn replace_prepared(&mut self, next: &Arc<Proxy>, prepared: PreparedServers, workers: &Workers) {
        let Some(used) = self.generation.clone() else { return };
        let model = self.model_with(next);
        let generation = used.with_prepared(Arc::clone(&model), next, &prepared);
        let generation = self.put_in_use(model, generation, &used, workers).await;
        let (changed, gone) = changed_backends(&self.model, &generation, Some(&used));
        self.checker.apply(&self.model, |name| self.registry.backend_state(name), changed, gone);
    }

    /// The model in use with another proxy in the place of that of its name.
    fn model_with(&self, proxy: &Arc<Proxy>) -> Arc<Model> {
        let mut model = Model::clone(&self.model);
        for place in &mut model.proxies {
            if place.role == proxy.role && place.name == proxy.name {
                *place = Arc::clone(proxy);
            }
        }
        Arc::new(model)
    }

    /// Commits a generation that was made of the one in use. Health checks are told then.
    async fn put_in_use(
        &mut self,
        model: Arc<Model>,
        generation: Generation,
        used: &Generation,
        workers: &Workers,
    ) -> Arc<Generation> {
        let generation = generation.commit(Some(used), &self.registry, Instant::now());
        workers.command(Command::Apply(Arc::clone(&generation))).await;
        (self.model, self.generation) = (model, Some(Arc::clone(&generation)));
        self.tidy.later();
        generation
    }
}

/// The numeric ids of the servers of those backends whose servers have come and gone since the last reload. They are counted once, and not
/// for each server that comes.
#[derive(Debug, Default)]
pub(super) struct CountedIds(HashMap<Arc<str>, (Arc<Proxy>, ServerIds)>);

impl CountedIds {
    /// Those of this backend, for who changes its servers.
    fn take(&mut self, backend: &Arc<Proxy>) -> ServerIds {
        match self.0.remove(&backend.name) {
            Some((of, ids)) if Arc::ptr_eq(&of, backend) => ids,
            Some(_) | None => ServerIds::of(backend),
        }
    }

    /// Keeps them for a backend that is in use now.
    fn keep(&mut self, backend: Arc<Proxy>, ids: ServerIds) {
        self.0.insert(Arc::clone(&backend.name), (backend, ids));
    }

    /// Another configuration is in use.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// Whether a rule names a server: `use-server`, a sample fetch or an action about `backend/server`.
pub(super) fn is_pointed_to(model: &Model, backend: &Proxy, name: &str) -> bool {
    let full = format!("{}/{name}", backend.name);
    let is_used = backend.rules(Ruleset::UseServer).iter().any(|rule| rule.words.first().is_some_and(|to| to == name));
    let mut words = model.proxies.iter().flat_map(|proxy| proxy.rules.values().flatten()).flat_map(|rule| &rule.words);
    is_used || words.any(|word| names(word, &full))
}

/// Whether a name stands in a word, and not as a part of another name.
fn names(word: &str, name: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"._:-/".contains(byte));
    word.match_indices(name).any(|(at, _)| {
        let bytes = word.as_bytes();
        !is_part(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_part(bytes.get(at + name.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_name_is_not_part_of_another_one() {
        let check = |word: &str, expect| assert_eq!(names(word, "b/s1"), expect, "{word}");
        check("srv_is_up(b/s1)", true);
        check("b/s1", true);
        check("srv_is_up(b/s10)", false);
        check("srv_is_up(ab/s1)", false);
        check("%[srv_conn(b/s10)] %[srv_conn(b/s1)]", true);
    }
}
