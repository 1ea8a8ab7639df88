//! What changes between two models, as a value: `plan` prints it, `reload` applies it. What follows from the change of a field besides
//! its own setting stands in one table, by which fields are compared too (`effects`).

mod effects;
mod words;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use self::effects::{BIND, BIND_OPTIONS, Differences};
use crate::{Bind, BindTls, DirectBind, Model, Proxy, Role, Server};

pub use self::effects::{
    Effects, FieldChange, Impact, bind_fields, connection_terms, needs_socket, proxy_fields, reconnects,
    restarts_check, server_fields,
};

/// The difference between the model in use and the one asked for; empty when both say the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeSet {
    /// Changes in a fixed order: global, then removed, added and changed proxies with their parts.
    pub changes: Vec<ObjectChange>,
}

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
    /// A setting of the `global` section, with its old and new value as text.
    Global {
        /// The keyword.
        setting: &'static str,
        /// Old value.
        from: String,
        /// New value.
        to: String,
        /// What follows.
        effects: Effects,
    },
    /// A proxy that was not there.
    ProxyAdded(Arc<Proxy>),
    /// A proxy that is gone.
    ProxyRemoved(Arc<Proxy>),
    /// Settings of a proxy: the keywords' families that differ, such as `timeout` or `rules`.
    ProxyChanged {
        /// The new proxy.
        proxy: Arc<Proxy>,
        /// What differs.
        settings: Vec<&'static str>,
        /// What follows.
        effects: Effects,
    },
    /// A listening address that was not there.
    BindAdded {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address.
        bind: Bind,
    },
    /// A listening address that is gone.
    BindRemoved {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address.
        bind: Bind,
    },
    /// Options of a listening address.
    BindChanged {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address, with its new options.
        bind: Bind,
        /// What differs: `certificates`, `TLS settings`, `TLS` (which is turned on or off); empty: something else.
        settings: Vec<&'static str>,
        /// What follows.
        effects: Effects,
    },
    /// A virtual address or mark of `mode direct` that was not there.
    PlaceAdded {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place.
        place: DirectBind,
    },
    /// A virtual address or mark of `mode direct` that is gone, and with it what the kernel knows of its connections.
    PlaceRemoved {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place.
        place: DirectBind,
    },
    /// Options of a virtual address or mark of `mode direct`.
    PlaceChanged {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place, with its new options.
        place: DirectBind,
    },
    /// A server that was not there.
    ServerAdded {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server.
        server: Arc<Server>,
    },
    /// A server that is gone: requests in flight end, nothing new goes there.
    ServerRemoved {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server.
        server: Arc<Server>,
    },
    /// Settings of a server.
    ServerChanged {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server as it was.
        before: Arc<Server>,
        /// The new server.
        server: Arc<Server>,
        /// What differs.
        settings: Vec<&'static str>,
        /// What follows.
        effects: Effects,
    },
}

impl ObjectChange {
    /// What follows from it besides what it says.
    pub fn effects(&self) -> Effects {
        match self {
            ObjectChange::Global { effects, .. }
            | ObjectChange::ProxyChanged { effects, .. }
            | ObjectChange::BindChanged { effects, .. }
            | ObjectChange::ServerChanged { effects, .. } => *effects,
            ObjectChange::BindRemoved { .. } => Effects { impact: Impact::NewClients, ..Effects::NONE },
            ObjectChange::ProxyRemoved(_) => Effects { impact: Impact::Section, ..Effects::NONE },
            ObjectChange::PlaceRemoved { .. } => Effects { impact: Impact::KernelConnections, ..Effects::NONE },
            ObjectChange::ServerRemoved { .. } => Effects::RECONNECTS,
            ObjectChange::ProxyAdded(_)
            | ObjectChange::BindAdded { .. }
            | ObjectChange::PlaceAdded { .. }
            | ObjectChange::PlaceChanged { .. }
            | ObjectChange::ServerAdded { .. } => Effects::NONE,
        }
    }
}

impl ChangeSet {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Compares two models object by object, by name.
pub fn diff(old: &Model, new: &Model) -> ChangeSet {
    let mut changes = Vec::new();
    let Model { global: _, proxies: _, crt_stores, rings, peers, resolvers, userlists, mailers } = new;
    effects::compare_globals(&old.global, &new.global, &mut |setting, from, to, effects| {
        changes.push(ObjectChange::Global { setting, from, to, effects });
    });
    if old.crt_stores != *crt_stores {
        let loads = |model: &Model| {
            let count: usize = model.crt_stores.iter().map(|store| store.loads.len()).sum();
            format!("of {count} certificates")
        };
        changes.push(ObjectChange::Global {
            setting: "crt-store",
            from: loads(old),
            to: loads(new),
            effects: Effects::NONE,
        });
    }
    if old.rings != *rings {
        let names = |model: &Model| {
            let names: Vec<&str> = model.rings.iter().map(|ring| &*ring.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        changes.push(ObjectChange::Global {
            setting: "ring",
            from: names(old),
            to: names(new),
            effects: Effects::NONE,
        });
    }
    if old.peers != *peers {
        let names = |model: &Model| {
            let names: Vec<&str> = model.peers.iter().map(|section| &*section.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        let (from, to) = (names(old), names(new));
        let to = if from == to { format!("{to} (changed)") } else { to };
        changes.push(ObjectChange::Global { setting: "peers", from, to, effects: Effects::NONE });
    }
    if old.resolvers != *resolvers {
        let names = |model: &Model| {
            let names: Vec<&str> = model.resolvers.iter().map(|section| &*section.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        changes.push(ObjectChange::Global {
            setting: "resolvers",
            from: names(old),
            to: names(new),
            effects: Effects::NONE,
        });
    }
    if old.mailers != *mailers {
        let names = |model: &Model| {
            let names: Vec<&str> = model.mailers.iter().map(|section| &*section.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(" ") }
        };
        let (from, to) = (names(old), names(new));
        let to = if from == to { format!("{to} (changed)") } else { to };
        changes.push(ObjectChange::Global { setting: "mailers", from, to, effects: Effects::NONE });
    }
    if old.userlists != *userlists {
        let users = |model: &Model| {
            let count: usize = model.userlists.iter().map(|list| list.users.len()).sum();
            format!("of {count} users")
        };
        changes.push(ObjectChange::Global {
            setting: "userlist",
            from: users(old),
            to: users(new),
            effects: Effects::NONE,
        });
    }
    // A frontend that becomes a `listen` is another object.
    fn key(proxy: &Arc<Proxy>) -> (&str, Role) {
        (&proxy.name, proxy.role)
    }
    let (before, after) = (by(&old.proxies, key), by(&new.proxies, key));
    for proxy in old.proxies.iter().filter(|proxy| !after.contains_key(&key(proxy))) {
        changes.push(ObjectChange::ProxyRemoved(proxy.clone()));
    }
    for proxy in &new.proxies {
        match before.get(&key(proxy)) {
            None => changes.push(ObjectChange::ProxyAdded(proxy.clone())),
            Some(before) if Arc::ptr_eq(before, proxy) => {}
            Some(before) => diff_proxy(before, proxy, &mut changes),
        }
    }
    ChangeSet { changes }
}

/// Whether a proxy of the same name and role differs from what it was, its parts included.
pub fn is_changed(old: &Arc<Proxy>, new: &Arc<Proxy>) -> bool {
    let mut changes = Vec::new();
    if !Arc::ptr_eq(old, new) {
        diff_proxy(old, new, &mut changes);
    }
    !changes.is_empty()
}

/// Objects by what makes each of them the same one in another model; of several, the first.
fn by<'m, T, K: Eq + Hash>(objects: &'m [T], key: impl Fn(&'m T) -> K) -> HashMap<K, &'m T> {
    let mut all = HashMap::with_capacity(objects.len());
    for object in objects {
        all.entry(key(object)).or_insert(object);
    }
    all
}

fn diff_proxy(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<ObjectChange>) {
    let Differences { words: settings, effects, .. } = effects::compare_proxies(old, new);
    if !settings.is_empty() {
        changes.push(ObjectChange::ProxyChanged { proxy: new.clone(), settings, effects });
    }
    diff_binds(old, new, changes);
    diff_places(old, new, changes);
    diff_servers(old, new, changes);
}

fn diff_binds(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<ObjectChange>) {
    if old.binds == new.binds {
        return;
    }
    let (before, after) = (by(&old.binds, Bind::key), by(&new.binds, Bind::key));
    for bind in old.binds.iter().filter(|bind| !after.contains_key(&bind.key())) {
        changes.push(ObjectChange::BindRemoved { proxy: old.clone(), bind: bind.clone() });
    }
    for bind in &new.binds {
        match before.get(&bind.key()) {
            None => changes.push(ObjectChange::BindAdded { proxy: new.clone(), bind: bind.clone() }),
            Some(before) if *before != bind => {
                let Differences { words: settings, effects, .. } = compare_binds(before, bind);
                changes.push(ObjectChange::BindChanged { proxy: new.clone(), bind: bind.clone(), settings, effects });
            }
            Some(_) => {}
        }
    }
}

fn diff_servers(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<ObjectChange>) {
    fn name(server: &Arc<Server>) -> &str {
        &server.name
    }
    if old.servers == new.servers {
        return;
    }
    let (before, after) = (by(&old.servers, name), by(&new.servers, name));
    for server in old.servers.iter().filter(|server| !after.contains_key(name(server))) {
        changes.push(ObjectChange::ServerRemoved { proxy: old.clone(), server: server.clone() });
    }
    for server in &new.servers {
        match before.get(name(server)) {
            None => changes.push(ObjectChange::ServerAdded { proxy: new.clone(), server: server.clone() }),
            Some(before) => {
                let Differences { words: settings, effects, .. } = effects::compare_servers(new, before, server);
                if !settings.is_empty() {
                    let (proxy, before, server) = (new.clone(), Arc::clone(before), server.clone());
                    changes.push(ObjectChange::ServerChanged { proxy, before, server, settings, effects });
                }
            }
        }
    }
}

/// Places of `mode direct`, which are what they are by address or mark.
fn diff_places(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<ObjectChange>) {
    let (before, after) = (by(old.places(), |bind| bind.place), by(new.places(), |bind| bind.place));
    for place in old.places().iter().filter(|bind| !after.contains_key(&bind.place)) {
        changes.push(ObjectChange::PlaceRemoved { proxy: old.clone(), place: place.clone() });
    }
    for place in new.places() {
        match before.get(&place.place) {
            None => changes.push(ObjectChange::PlaceAdded { proxy: new.clone(), place: place.clone() }),
            Some(before) if *before != place => {
                changes.push(ObjectChange::PlaceChanged { proxy: new.clone(), place: place.clone() });
            }
            Some(_) => {}
        }
    }
}

/// What differs in an address. Only TLS is named; a change of anything else has no name.
fn compare_binds(old: &Bind, new: &Bind) -> Differences {
    let mut found = Differences::default();
    let mut names: Vec<&'static str> = Vec::new();
    match (&old.options.tls, &new.options.tls) {
        (Some(before), Some(after)) if before != after => {
            if before.certificates != after.certificates {
                names.push("certificates");
            }
            if (BindTls { certificates: after.certificates.clone(), ..(**before).clone() }) != **after {
                names.push("TLS settings");
            }
        }
        (Some(_), None) | (None, Some(_)) => names.push("TLS"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    found.look(BIND, old, new);
    found.look(BIND_OPTIONS, &old.options, &new.options);
    if !names.is_empty() && found.words.iter().any(|word| *word != "ssl") {
        names.push("options");
    }
    Differences { words: names, ..found }
}

impl fmt::Display for ObjectChange {
    /// One line, object first: `backend app: server s2 added (127.0.0.1:9001)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = |proxy: &Proxy| format!("{} {}", proxy.role.word(), proxy.name);
        match self {
            ObjectChange::Global { setting, from, to, effects } => {
                let when = if effects.is_pending { " (takes effect with the next process)" } else { "" };
                write!(out, "global: {setting} {from} -> {to}{when}")
            }
            ObjectChange::ProxyAdded(proxy) => write!(out, "{} added", object(proxy)),
            ObjectChange::ProxyRemoved(proxy) => write!(out, "{} removed", object(proxy)),
            ObjectChange::ProxyChanged { proxy, settings, .. } => {
                write!(out, "{}: {} changed", object(proxy), settings.join(", "))
            }
            ObjectChange::BindAdded { proxy, bind } => write!(out, "{}: bind {} added", object(proxy), bind.place()),
            ObjectChange::BindRemoved { proxy, bind } => {
                write!(out, "{}: bind {} removed", object(proxy), bind.place())
            }
            ObjectChange::BindChanged { proxy, bind, settings, .. } if settings.is_empty() => {
                write!(out, "{}: bind {} changed", object(proxy), bind.place())
            }
            ObjectChange::BindChanged { proxy, bind, settings, .. } => {
                write!(out, "{}: {} of bind {} changed", object(proxy), settings.join(" and "), bind.place())
            }
            ObjectChange::PlaceAdded { proxy, place } => write!(out, "{}: bind {} added", object(proxy), place.place),
            ObjectChange::PlaceRemoved { proxy, place } => {
                write!(out, "{}: bind {} removed", object(proxy), place.place)
            }
            ObjectChange::PlaceChanged { proxy, place } => {
                write!(out, "{}: bind {} changed", object(proxy), place.place)
            }
            ObjectChange::ServerAdded { proxy, server } => {
                write!(out, "{}: server {} added", object(proxy), server.name)
            }
            ObjectChange::ServerRemoved { proxy, server } => {
                write!(out, "{}: server {} removed", object(proxy), server.name)
            }
            ObjectChange::ServerChanged { proxy, server, settings, .. } => {
                write!(out, "{}: server {}: {} changed", object(proxy), server.name, settings.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
