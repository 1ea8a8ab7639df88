//! What a change does, and whom it disturbs, in words. Pure: two models in, lines out.

use std::fmt;
use std::path::PathBuf;

use baton_model::{Bind, Change, DirectBind, Mode, Model, Proxy, Server, diff};
use serde::{Deserialize, Serialize};

/// How many replaced certificates are named one by one.
const CERTIFICATES_NAMED: usize = 20;

/// What a reload would do (or did).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One entry for each change, in the order of [`diff()`].
    pub changes: Vec<PlannedChange>,
    /// What would be done in the kernel for `mode direct`: the engine and why, then a sentence for each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
}

/// One change.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// What happens to which object.
    pub change: String,
    /// Whom it disturbs; `None` is nobody.
    pub disturbs: Option<String>,
    /// Whether it waits for the next process.
    pub next_process: bool,
}

impl Plan {
    /// The way from one model to the other.
    pub fn between(old: &Model, new: &Model) -> Plan {
        let changes = diff(old, new).changes;
        let changes = changes.iter().map(|change| explain(change, old, new)).collect();
        Plan { changes, kernel: Vec::new() }
    }

    /// The plan that starts from nothing.
    pub fn from_nothing(new: &Model) -> Plan {
        let old = Model { global: new.global.clone(), ..Model::default() };
        Plan::between(&old, new)
    }

    /// Adds certificates whose files hold others than before.
    pub fn replace_certificates(&mut self, paths: &[PathBuf]) {
        let line = |change| PlannedChange { change, disturbs: None, next_process: false };
        let named = paths.iter().take(CERTIFICATES_NAMED);
        self.changes.extend(named.map(|path| line(format!("certificate {} replaced", path.display()))));
        if let Some(more @ 1..) = paths.len().checked_sub(CERTIFICATES_NAMED) {
            self.changes.push(line(format!("{more} more certificates replaced")));
        }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kernel.len() <= 1
    }
}

impl fmt::Display for Plan {
    /// Two lines for each change: what, and whom it disturbs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(out, "{}", change.change)?;
            writeln!(out, "    disturbs: {}", change.disturbs.as_deref().unwrap_or("nobody"))?;
        }
        if let Some((engine, steps)) = self.kernel.split_first() {
            writeln!(out, "{engine}")?;
            steps.iter().try_for_each(|step| writeln!(out, "    {step}"))?;
        }
        Ok(())
    }
}

fn explain(change: &Change, old: &Model, new: &Model) -> PlannedChange {
    let next_process = matches!(change, Change::Global { live: false, .. });
    PlannedChange { change: describe(change, old, new), disturbs: disturbs(change, old, new), next_process }
}

/// The change in one line. Where a bind moves between proxies, or a proxy comes with its parts, that is said too.
fn describe(change: &Change, old: &Model, new: &Model) -> String {
    match change {
        Change::ProxyAdded(proxy) => {
            let mut parts = Vec::new();
            parts.extend(proxy.binds.iter().map(|bind| match holder(old, bind) {
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
        Change::BindAdded { bind, .. } => match holder(old, bind) {
            Some(from) => format!("{change} (open already, from {})", object(from)),
            None => change.to_string(),
        },
        Change::BindRemoved { bind, .. } => match holder(new, bind) {
            Some(to) => format!("{change} (stays open for {})", object(to)),
            None => change.to_string(),
        },
        Change::ServerAdded { server, .. } => match &server.address.address {
            Some(address) => format!("{change} ({address})"),
            None => change.to_string(),
        },
        Change::Global { .. }
        | Change::ProxyRemoved(_)
        | Change::ProxyChanged { .. }
        | Change::PlaceAdded { .. }
        | Change::PlaceRemoved { .. }
        | Change::PlaceChanged { .. }
        | Change::BindChanged { .. }
        | Change::ServerRemoved { .. }
        | Change::ServerChanged { .. } => change.to_string(),
    }
}

/// Whom a change disturbs. `None`: nobody; what is in flight ends under the settings it began with.
fn disturbs(change: &Change, old: &Model, new: &Model) -> Option<String> {
    match change {
        Change::Global { live: true, .. } => None,
        Change::Global { live: false, .. } => Some("nobody until the next process takes it up".into()),
        Change::ProxyAdded(_)
        | Change::BindAdded { .. }
        | Change::BindChanged { .. }
        | Change::PlaceAdded { .. }
        | Change::PlaceChanged { .. }
        | Change::ServerAdded { .. } => None,
        Change::PlaceRemoved { place, .. } => match places(new).any(|other| other.place == place.place) {
            true => None,
            false => Some("all connections of this address: the kernel passes their packets on no more".into()),
        },
        Change::ProxyRemoved(proxy) => proxy_removed(proxy, new),
        Change::ProxyChanged { proxy, settings } => proxy_changed(proxy, settings, old),
        Change::BindRemoved { bind, .. } => match holder(new, bind) {
            Some(_) => None,
            None => Some("new clients of this address; who reached it before is served".into()),
        },
        Change::ServerRemoved { proxy, .. } if proxy.mode == Mode::Direct => Some(
            "the server's open connections: the kernel passes their packets on no more (drain it first: 'set server … state drain')"
                .into(),
        ),
        Change::ServerRemoved { .. } => {
            Some("nobody in flight: its requests and tunnels end; its idle connections are closed".into())
        }
        Change::ServerChanged { proxy, server, settings } => server_changed(proxy, server, settings, old),
    }
}

fn proxy_removed(proxy: &Proxy, new: &Model) -> Option<String> {
    if proxy.mode == Mode::Direct {
        let kept = |place: &DirectBind| places(new).any(|other| other.place == place.place);
        let gone: Vec<String> =
            proxy.places().iter().filter(|place| !kept(place)).map(|place| place.place.to_string()).collect();
        return (!gone.is_empty())
            .then(|| format!("all connections of {}: the kernel passes their packets on no more", gone.join(", ")));
    }
    let closed: Vec<_> = proxy.binds.iter().filter(|bind| holder(new, bind).is_none()).collect();
    if proxy.role.is_frontend() {
        let new_clients = match closed.is_empty() {
            true => String::new(),
            false => {
                let list: Vec<String> = closed.iter().map(|bind| bind.place()).collect();
                format!("; new clients of {}", list.join(", "))
            }
        };
        return Some(format!("its open connections get one last response, tunnels stay{new_clients}"));
    }
    Some("nobody in flight: its requests and tunnels end; its idle connections are closed".into())
}

fn proxy_changed(proxy: &Proxy, settings: &[&'static str], old: &Model) -> Option<String> {
    let before = old.proxies.iter().find(|other| other.name == proxy.name && other.role == proxy.role)?;
    if settings.contains(&"mode") && before.mode == Mode::Direct {
        return Some("all connections of its addresses: the kernel passes their packets on no more".into());
    }
    if settings.contains(&"mode") {
        return Some("connections of the old mode: they end with their current request or tunnel".into());
    }
    if settings.contains(&"disabled") && proxy.disabled && !before.disabled {
        return proxy_removed(proxy, &Model::default());
    }
    None
}

fn server_changed(proxy: &Proxy, server: &Server, settings: &[&'static str], old: &Model) -> Option<String> {
    let was = old.proxies.iter().find(|other| other.name == proxy.name && other.role == proxy.role);
    if was.is_some_and(|was| was.mode != proxy.mode && [was.mode, proxy.mode].contains(&Mode::Direct)) {
        // Its section says it: all of its connections are of the mode that it had.
        return None;
    }
    if proxy.mode == Mode::Direct {
        let is_other = settings.contains(&"address");
        return is_other.then(|| "the server's open connections: its old address gets their packets no more".into());
    }
    let reconnects = ["address", "send-proxy", "source", "tfo", "tcp-ut"];
    let why: Vec<&str> = settings.iter().copied().filter(|setting| reconnects.contains(setting)).collect();
    if !why.is_empty() {
        return Some("nobody in flight: its requests and tunnels end; its idle connections are closed".into());
    }
    let before = old
        .proxies
        .iter()
        .find(|other| other.name == proxy.name && other.role == proxy.role)
        .and_then(|other| other.servers.iter().find(|other| other.name == server.name))?;
    if server.disabled && !before.disabled {
        return Some("nobody in flight; sessions bound to it by cookie go to another server".into());
    }
    None
}

/// What the kernel takes the packets of.
fn places(model: &Model) -> impl Iterator<Item = &DirectBind> {
    model.proxies.iter().filter(|proxy| !proxy.disabled).flat_map(|proxy| proxy.places())
}

/// The proxy that listens on the address of a bind in a model.
fn holder<'m>(model: &'m Model, bind: &Bind) -> Option<&'m Proxy> {
    let holds =
        |proxy: &&std::sync::Arc<Proxy>| !proxy.disabled && proxy.binds.iter().any(|other| other.is_same_place(bind));
    model.proxies.iter().find(holds).map(|proxy| &**proxy)
}

fn object(proxy: &Proxy) -> String {
    format!("{} {}", proxy.role.word(), proxy.name)
}

#[cfg(test)]
mod tests;
