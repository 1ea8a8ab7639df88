//! What a change does, and which connections it affects, in words. Pure: two models in, lines out.

mod once;
mod parts;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use baton_model::diff::{FieldChange, bind_fields, server_fields};
use baton_model::{
    Address, Bind, BindKey, DirectBind, Effects, Impact, Mode, Model, ObjectChange, Place, Proxy, Role, Server, Source,
    diff,
};
use serde::{Deserialize, Serialize};

use crate::direct::lower;
use crate::overrides::{self, PlannedOverride};
use once::explain_all;
use parts::Part;
pub use parts::PlannedValue;

/// How many replaced certificates are named one by one.
const CERTIFICATES_NAMED: usize = 20;

/// What a reload would do (or did).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One entry for each change, in the order of [`diff()`].
    pub changes: Vec<PlannedChange>,
    /// What would be done in the kernel for `mode direct`: the engine, then a sentence for each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
    /// What operators set at run time: what the file ends of it, and what stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<PlannedOverride>,
}

/// One change.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// What happens to which object.
    pub change: String,
    /// Which connections it affects, and how; `None`: none.
    pub impact: Option<String>,
    /// Whether it waits for the next process.
    pub next_process: bool,
    /// Whether health checks start again, with the counters that they had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts_check: bool,
    /// Whether the object comes, changes or goes.
    #[serde(default)]
    pub action: PlannedAction,
    /// The file that says so; empty: none does, as of what is removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line from 1, or 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: u32,
    /// Old and new values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<PlannedValue>,
    /// How many sections a change of a `defaults` section reaches; 0: it is no such change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sections: u32,
    /// Whether a reload refuses it as long as the address is open, whose socket cannot follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_socket: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a change does to its object.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlannedAction {
    /// It is new.
    Add,
    /// It has other settings.
    #[default]
    Change,
    /// It is gone.
    Remove,
}

/// How many changes there are of each kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Objects that are new.
    pub add: usize,
    /// Objects with other settings.
    pub change: usize,
    /// Objects that are gone.
    pub remove: usize,
    /// Changes that wait for the next process, and those from earlier reloads.
    pub waits: usize,
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanSummary { add, change, remove, waits } = self;
        write!(out, "{add} to add, {change} to change, {remove} to remove")?;
        match waits {
            0 => Ok(()),
            1 => write!(out, "; 1 waits for a restart"),
            _ => write!(out, "; {waits} wait for a restart"),
        }
    }
}

/// A start-up setting that a reload changed: it takes effect with the next process.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PendingSetting {
    /// The keyword.
    pub setting: String,
    /// What the process was started with.
    pub from: String,
    /// What the configuration in use says.
    pub to: String,
}

impl fmt::Display for PendingSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} -> {}", self.setting, self.from, self.to)
    }
}

/// Start-up settings in which a model differs from the one that a process was started with.
pub fn pending(started: &Model, model: &Model) -> Vec<PendingSetting> {
    let only_global = |model: &Model| Model { global: model.global.clone(), ..Model::default() };
    let changes = diff(&only_global(started), &only_global(model)).changes;
    let waiting = changes.into_iter().filter_map(|change| match change {
        ObjectChange::Global { setting, from, to, effects } if effects.is_pending => {
            Some(PendingSetting { setting: setting.to_owned(), from, to })
        }
        _ => None,
    });
    waiting.collect()
}

/// The pending settings in a sentence; `None`: none is pending.
pub fn restart_pending(settings: &[PendingSetting]) -> Option<String> {
    let list: Vec<String> = settings.iter().map(ToString::to_string).collect();
    (!list.is_empty())
        .then(|| format!("Restart pending: {} (start-up settings take effect in the next process).", list.join(", ")))
}

impl Plan {
    /// The way from one model to the other.
    pub fn between(old: &Model, new: &Model) -> Plan {
        let changes = diff(old, new).changes;
        if changes.is_empty() {
            return Plan::default();
        }
        let (old, new) = (Side::new(old), Side::new(new));
        let reached = reached(new.model);
        Plan { changes: explain_all(&changes, &old, &new, &reached), ..Plan::default() }
    }

    /// The plan that starts from nothing.
    pub fn from_nothing(new: &Model) -> Plan {
        let old = Model { global: new.global.clone(), ..Model::default() };
        Plan::between(&old, new)
    }

    /// Adds certificates whose files hold others than before.
    pub fn replace_certificates(&mut self, paths: &[PathBuf]) {
        let line = |change| PlannedChange { change, ..PlannedChange::default() };
        let named = paths.iter().take(CERTIFICATES_NAMED);
        self.changes.extend(named.map(|path| line(format!("certificate {} replaced", path.display()))));
        if let Some(more @ 1..) = paths.len().checked_sub(CERTIFICATES_NAMED) {
            self.changes.push(line(format!("{more} more certificates replaced")));
        }
    }

    /// Adds maps and files of patterns that changed.
    pub fn change_patterns(&mut self, lines: Vec<String>) {
        self.changes.extend(lines.into_iter().map(|change| PlannedChange { change, ..PlannedChange::default() }));
    }

    /// The overrides that end, a line each; of very many the first.
    pub fn ended(&self) -> Vec<String> {
        let ended = self.overrides.iter().filter(|one| one.ends.is_some());
        overrides::named(ended.map(|one| format!("set at run time: {one}")))
    }

    /// How many changes there are. `pending` are the start-up settings that wait for the next process, from this reload and those before.
    pub fn summary(&self, pending: usize) -> PlanSummary {
        let count = |action: PlannedAction| self.changes.iter().filter(|change| change.action == action).count();
        let waits = self.changes.iter().filter(|change| change.next_process).count();
        PlanSummary {
            add: count(PlannedAction::Add),
            change: count(PlannedAction::Change),
            remove: count(PlannedAction::Remove),
            waits: waits.max(pending),
        }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kernel.is_empty()
    }
}

impl fmt::Display for Plan {
    /// Lines for each change: what, old and new values with their lines in the file, and its impact.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(out, "{}", change.change)?;
            let values: Vec<String> = change.values.iter().filter_map(PlannedValue::shown).collect();
            values.iter().try_for_each(|value| writeln!(out, "    {value}"))?;
            if values.is_empty() && change.line > 0 {
                writeln!(out, "    at {}:{}", change.file, change.line)?;
            }
            writeln!(out, "    impact: {}", change.impact.as_deref().unwrap_or("none"))?;
            if change.restarts_check {
                writeln!(out, "    health checks: restart and keep their counters")?;
            }
            if change.needs_socket {
                writeln!(out, "    rejected by a reload while the address is open: an open socket cannot change this")?;
            }
        }
        if let Some((engine, steps)) = self.kernel.split_first() {
            writeln!(out, "{engine}")?;
            steps.iter().try_for_each(|step| writeln!(out, "    {step}"))?;
        }
        if !self.overrides.is_empty() {
            writeln!(out, "set at run time:")?;
            self.overrides.iter().try_for_each(|one| writeln!(out, "    {one}"))?;
        }
        Ok(())
    }
}

/// A model, with what is looked up in it for each of thousands of changes.
struct Side<'m> {
    model: &'m Model,
    proxies: HashMap<(&'m str, Role), &'m Proxy>,
    /// Who listens on each address.
    holders: HashMap<BindKey<'m>, &'m Proxy>,
    /// What the kernel takes the packets of.
    places: HashSet<Place>,
    /// The places that lead to each backend of `mode direct`.
    services: HashMap<&'m str, Vec<Place>>,
}

impl<'m> Side<'m> {
    fn new(model: &'m Model) -> Side<'m> {
        let enabled = || model.proxies.iter().filter(|proxy| !proxy.disabled);
        let mut proxies = HashMap::with_capacity(model.proxies.len());
        for proxy in &model.proxies {
            proxies.entry((&*proxy.name, proxy.role)).or_insert(&**proxy);
        }
        let mut holders = HashMap::new();
        for (bind, proxy) in enabled().flat_map(|proxy| proxy.binds.iter().map(move |bind| (bind, &**proxy))) {
            holders.entry(bind.key()).or_insert(proxy);
        }
        let places = enabled().flat_map(|proxy| proxy.places()).map(|bind| bind.place).collect();
        let mut services: HashMap<&str, Vec<Place>> = HashMap::new();
        for (front, back) in lower::pairs(model) {
            services.entry(&back.name).or_default().extend(front.places().iter().map(|bind| bind.place));
        }
        Side { model, proxies, holders, places, services }
    }

    /// The proxy of that name in this model.
    fn proxy(&self, proxy: &Proxy) -> Option<&'m Proxy> {
        self.proxies.get(&(&*proxy.name, proxy.role)).copied()
    }

    /// Where the kernel sends packets for a server of a backend.
    fn destinations<'s>(
        &'s self,
        back: &Proxy,
        server: &'s Server,
    ) -> impl Iterator<Item = (Place, SocketAddr)> + use<'s> {
        let places = self.services.get(&*back.name).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(move |place| Some((*place, lower::address(server, place)?)))
    }

    /// The proxy that listens on the address of a bind.
    fn holder(&self, bind: &Bind) -> Option<&'m Proxy> {
        self.holders.get(&bind.key()).copied()
    }
}

fn explain(change: &ObjectChange, own: Vec<Part>, old: &Side<'_>, new: &Side<'_>, reached: &Reached) -> PlannedChange {
    let source = source(change, new).filter(|source| source.line > 0);
    PlannedChange {
        change: describe(change, old, new),
        impact: impact(change, old, new, reached),
        next_process: change.effects().is_pending,
        restarts_check: restarts_check(change),
        needs_socket: change.effects().needs_socket,
        action: action(change),
        file: source.map(|source| source.file.to_string()).unwrap_or_default(),
        line: source.map_or(0, |source| source.line),
        values: values(change, own, old),
        sections: 0,
    }
}

/// Whether the object of a change comes, changes or goes.
fn action(change: &ObjectChange) -> PlannedAction {
    match change {
        ObjectChange::ProxyAdded(_)
        | ObjectChange::BindAdded { .. }
        | ObjectChange::PlaceAdded { .. }
        | ObjectChange::ServerAdded { .. } => PlannedAction::Add,
        ObjectChange::ProxyRemoved(_)
        | ObjectChange::BindRemoved { .. }
        | ObjectChange::PlaceRemoved { .. }
        | ObjectChange::ServerRemoved { .. } => PlannedAction::Remove,
        ObjectChange::Global { .. }
        | ObjectChange::ProxyChanged { .. }
        | ObjectChange::BindChanged { .. }
        | ObjectChange::PlaceChanged { .. }
        | ObjectChange::ServerChanged { .. } => PlannedAction::Change,
    }
}

/// The line of the file that a change comes from. What is removed stands in none.
fn source<'c>(change: &'c ObjectChange, new: &'c Side<'_>) -> Option<&'c Source> {
    match change {
        ObjectChange::Global { setting, .. } => new.model.global.lines.find(setting).map(|(source, _)| source),
        ObjectChange::ProxyAdded(proxy) | ObjectChange::ProxyChanged { proxy, .. } => Some(&proxy.source),
        ObjectChange::BindAdded { bind, .. } | ObjectChange::BindChanged { bind, .. } => Some(&bind.source),
        ObjectChange::PlaceAdded { place, .. } | ObjectChange::PlaceChanged { place, .. } => Some(&place.source),
        ObjectChange::ServerAdded { server, .. } | ObjectChange::ServerChanged { server, .. } => Some(&server.line),
        ObjectChange::ProxyRemoved(_)
        | ObjectChange::BindRemoved { .. }
        | ObjectChange::PlaceRemoved { .. }
        | ObjectChange::ServerRemoved { .. } => None,
    }
}

/// Old and new values of a change.
fn values(change: &ObjectChange, own: Vec<Part>, old: &Side<'_>) -> Vec<PlannedValue> {
    let of = |fields: Vec<FieldChange>, source: &Source| {
        fields.iter().map(|field| PlannedValue::of(field, Some(source))).collect()
    };
    match change {
        ObjectChange::ProxyChanged { .. } => own.into_iter().map(|part| part.value).collect(),
        ObjectChange::ServerChanged { before, server, .. } => of(server_fields(before, server), &server.line),
        ObjectChange::BindChanged { proxy, bind, .. } => {
            let before =
                old.proxy(proxy).and_then(|before| before.binds.iter().find(|other| other.key() == bind.key()));
            before.map(|before| of(bind_fields(before, bind), &bind.source)).unwrap_or_default()
        }
        // The line of a global setting has both.
        ObjectChange::Global { .. }
        | ObjectChange::ProxyAdded(_)
        | ObjectChange::ProxyRemoved(_)
        | ObjectChange::BindAdded { .. }
        | ObjectChange::BindRemoved { .. }
        | ObjectChange::PlaceAdded { .. }
        | ObjectChange::PlaceRemoved { .. }
        | ObjectChange::PlaceChanged { .. }
        | ObjectChange::ServerAdded { .. }
        | ObjectChange::ServerRemoved { .. } => Vec::new(),
    }
}

/// The change in one line. Where a bind moves between proxies, or a proxy comes with its parts, that is said too.
fn describe(change: &ObjectChange, old: &Side<'_>, new: &Side<'_>) -> String {
    match change {
        ObjectChange::ProxyAdded(proxy) => {
            let mut parts = Vec::new();
            parts.extend(proxy.binds.iter().map(|bind| match old.holder(bind) {
                Some(from) => format!("bind {} (open already, from {})", bind.place(), object(from)),
                None => format!("bind {}", bind.place()),
            }));
            parts.extend(proxy.places().iter().map(|place| format!("bind {}", place.place)));
            parts.extend(proxy.servers.iter().map(|server| format!("server {}", server.name)));
            match parts.is_empty() {
                true => change.to_string(),
                false => format!("{change}: {}", parts.join(", ")),
            }
        }
        ObjectChange::BindAdded { bind, .. } => match old.holder(bind) {
            Some(from) => format!("{change} (open already, from {})", object(from)),
            None => change.to_string(),
        },
        ObjectChange::BindRemoved { bind, .. } => match new.holder(bind) {
            Some(to) => format!("{change} (stays open for {})", object(to)),
            None => change.to_string(),
        },
        ObjectChange::ServerAdded { proxy, server } => match server.address.fixed() {
            // Its port is each service's.
            Some(Address::Inet(address)) if proxy.mode == Mode::Direct && address.port() == 0 => {
                format!("{change} ({})", address.ip())
            }
            Some(address) => format!("{change} ({address})"),
            None => change.to_string(),
        },
        ObjectChange::Global { .. }
        | ObjectChange::ProxyRemoved(_)
        | ObjectChange::ProxyChanged { .. }
        | ObjectChange::PlaceAdded { .. }
        | ObjectChange::PlaceRemoved { .. }
        | ObjectChange::PlaceChanged { .. }
        | ObjectChange::BindChanged { .. }
        | ObjectChange::ServerRemoved { .. }
        | ObjectChange::ServerChanged { .. } => change.to_string(),
    }
}

/// Whether a change starts health checks again that run.
fn restarts_check(change: &ObjectChange) -> bool {
    let is_checked = |server: &Server| server.check.enabled;
    change.effects().restarts_check
        && match change {
            ObjectChange::ServerChanged { before, server, .. } => is_checked(before) && is_checked(server),
            ObjectChange::ProxyChanged { proxy, .. } => proxy.servers.iter().any(|server| is_checked(server)),
            _ => true,
        }
}

/// Which connections a change affects, by its effects; `None`: none, in-flight requests finish with the settings they began with. What
/// `mode direct` affects, and an address that moves between sections does not, only both models together can say.
fn impact(change: &ObjectChange, old: &Side<'_>, new: &Side<'_>, reached: &Reached) -> Option<String> {
    let effects = change.effects();
    if effects.is_pending {
        return Some("none until the next process starts with it".into());
    }
    match change {
        ObjectChange::PlaceRemoved { place, .. } => match new.places.contains(&place.place) {
            true => None,
            false => told(effects, "all connections of this address"),
        },
        ObjectChange::ProxyRemoved(proxy) => proxy_removed(proxy, old, new, reached),
        ObjectChange::ProxyChanged { proxy, settings, .. } => {
            proxy_changed(proxy, settings, effects, old, new, reached)
        }
        ObjectChange::BindRemoved { bind, .. } => match new.holder(bind) {
            Some(_) => None,
            None => told(effects, "this address"),
        },
        ObjectChange::ServerRemoved { proxy, server } if proxy.mode == Mode::Direct => {
            let is_lost = old.destinations(proxy, server).any(|destination| !reached.contains(&destination));
            is_lost.then(|| {
                "the server's open connections: the kernel no longer forwards their packets (drain it first: \
                 'set server … state drain')"
                    .into()
            })
        }
        ObjectChange::ServerChanged { proxy, before, .. } => server_changed(proxy, before, effects, old, reached),
        ObjectChange::Global { .. }
        | ObjectChange::ProxyAdded(_)
        | ObjectChange::BindAdded { .. }
        | ObjectChange::BindChanged { .. }
        | ObjectChange::PlaceAdded { .. }
        | ObjectChange::PlaceChanged { .. }
        | ObjectChange::ServerAdded { .. }
        | ObjectChange::ServerRemoved { .. } => told(effects, ""),
    }
}

/// An impact in words.
fn told(effects: Effects, of: &str) -> Option<String> {
    match effects.impact {
        Impact::Nobody => None,
        Impact::BoundSessions => {
            Some("in-flight requests finish; sessions bound to the server by cookie go to another one".into())
        }
        Impact::ServerConnections => {
            Some("in-flight requests and tunnels finish; idle connections to the server are closed".into())
        }
        Impact::NewClients => Some(format!("new connections to {of} are refused; earlier ones are served")),
        Impact::KernelConnections => Some(format!("{of}: the kernel no longer forwards their packets")),
        Impact::ConnectionsOfMode => {
            Some("connections of the old mode end with their current request or tunnel".into())
        }
        Impact::Section => Some("open connections get one last response; tunnels stay open".into()),
    }
}

fn proxy_removed(proxy: &Proxy, old: &Side<'_>, new: &Side<'_>, reached: &Reached) -> Option<String> {
    if proxy.mode == Mode::Direct {
        let kept = |place: &DirectBind| new.places.contains(&place.place);
        let gone: Vec<String> =
            proxy.places().iter().filter(|place| !kept(place)).map(|place| place.place.to_string()).collect();
        let all = (!gone.is_empty())
            .then(|| format!("all connections of {}: the kernel no longer forwards their packets", gone.join(", ")));
        let told: Vec<String> = all.into_iter().chain(servers_lost(proxy, old, new, reached)).collect();
        return (!told.is_empty()).then(|| told.join("; "));
    }
    let closed: Vec<_> = proxy.binds.iter().filter(|bind| new.holder(bind).is_none()).collect();
    if proxy.role.is_frontend() {
        let new_clients = match closed.is_empty() {
            true => String::new(),
            false => {
                let list: Vec<String> = closed.iter().map(|bind| bind.place()).collect();
                format!("; new connections to {} are refused", list.join(", "))
            }
        };
        let section = told(Effects { impact: Impact::Section, ..Effects::NONE }, "");
        return section.map(|section| section + &new_clients);
    }
    told(Effects::RECONNECTS, "")
}

fn proxy_changed(
    proxy: &Proxy,
    settings: &[&'static str],
    effects: Effects,
    old: &Side<'_>,
    new: &Side<'_>,
    reached: &Reached,
) -> Option<String> {
    let before = old.proxy(proxy)?;
    match effects.impact {
        Impact::Section => return proxy_removed(proxy, old, &Side::new(&Model::default()), reached),
        Impact::ConnectionsOfMode if before.mode == Mode::Direct => {
            let lost = Effects { impact: Impact::KernelConnections, ..effects };
            return told(lost, "all connections of its addresses");
        }
        Impact::Nobody
        | Impact::BoundSessions
        | Impact::ServerConnections
        | Impact::NewClients
        | Impact::KernelConnections
        | Impact::ConnectionsOfMode => {}
    }
    if proxy.mode == Mode::Direct && settings.contains(&"default_backend") {
        return servers_lost(before, old, new, reached);
    }
    told(effects, "")
}

fn server_changed(
    proxy: &Proxy,
    before: &Server,
    effects: Effects,
    old: &Side<'_>,
    reached: &Reached,
) -> Option<String> {
    let was = old.proxy(proxy);
    if was.is_some_and(|was| was.mode != proxy.mode && [was.mode, proxy.mode].contains(&Mode::Direct)) {
        // Its section says it: all of its connections are of the mode that it had.
        return None;
    }
    if proxy.mode == Mode::Direct {
        let is_lost = old.destinations(proxy, before).any(|destination| !reached.contains(&destination));
        let lost = "the server's open connections: the kernel no longer forwards their packets to the old address";
        return is_lost.then(|| lost.into());
    }
    told(effects, "")
}

/// Where the kernel sends packets of each service, which is what it tells servers by.
type Reached = HashSet<(Place, SocketAddr)>;

fn reached(model: &Model) -> Reached {
    let of = |(front, back): (&'_ Arc<Proxy>, &'_ Arc<Proxy>)| -> Vec<(Place, SocketAddr)> {
        let pairs = front.places().iter().flat_map(|bind| back.servers.iter().map(move |server| (bind.place, server)));
        pairs.filter_map(|(place, server)| Some((place, lower::address(server, &place)?))).collect()
    };
    lower::pairs(model).flat_map(of).collect()
}

/// Servers that services of a section have no more, where another section or backend has the services now.
fn servers_lost(proxy: &Proxy, old: &Side<'_>, new: &Side<'_>, reached: &Reached) -> Option<String> {
    let is_of = |(front, back): &(&Arc<Proxy>, &Arc<Proxy>)| [&front.name, &back.name].contains(&&proxy.name);
    let mut lost: Vec<String> = Vec::new();
    for (front, back) in lower::pairs(old.model).filter(is_of) {
        let stays = |bind: &&DirectBind| new.places.contains(&bind.place);
        for place in front.places().iter().filter(stays).map(|bind| bind.place) {
            let gone = back.servers.iter().filter_map(|server| lower::address(server, &place));
            let gone = gone.filter(|address| !reached.contains(&(place, *address)));
            lost.extend(gone.map(|address| address.to_string()));
        }
    }
    lost.sort();
    lost.dedup();
    (!lost.is_empty()).then(|| {
        format!("open connections of servers {}: the kernel no longer forwards their packets", lost.join(", "))
    })
}

fn object(proxy: &Proxy) -> String {
    format!("{} {}", proxy.role.word(), proxy.name)
}

#[cfg(test)]
mod tests;
