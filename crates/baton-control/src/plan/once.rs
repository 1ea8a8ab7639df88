//! Each change once: what a `defaults` section says reaches many sections, and what `default-server` says many servers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use baton_model::diff::server_fields;
use baton_model::{Effects, Mode, ObjectChange, Proxy};

use super::parts::{self, Part, PlannedValue, SECTIONS_NAMED, Shared};
use super::{PlannedChange, Reached, Side, explain, impact, restarts_check};

/// All changes, each of them once: where the first section or server has it.
pub(super) fn explain_all(
    changes: &[ObjectChange],
    old: &Side<'_>,
    new: &Side<'_>,
    reached: &Reached,
) -> Vec<PlannedChange> {
    let mut shared = Shared::default();
    let mut of_servers: HashMap<ServerDefault, Vec<&ObjectChange>> = HashMap::new();
    let mut of_sections: Vec<Vec<Part>> = Vec::with_capacity(changes.len());
    for change in changes {
        let parts = match change {
            ObjectChange::ProxyChanged { proxy, .. } => {
                old.proxy(proxy).map(|before| parts::of_proxy(before, proxy)).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        if let ObjectChange::ProxyChanged { proxy, .. } = change
            && proxy.mode != Mode::Direct
        {
            parts.iter().for_each(|part| shared.note(part, proxy));
        }
        if let Some(default) = ServerDefault::of(change, old) {
            of_servers.entry(default).or_default().push(change);
        }
        of_sections.push(parts);
    }
    let (mut planned, mut said) = (Vec::with_capacity(changes.len()), HashSet::new());
    for (change, parts) in changes.iter().zip(of_sections) {
        if let Some(default) = ServerDefault::of(change, old) {
            if let Some(servers) = of_servers.remove(&default) {
                planned.push(default.explain(&servers, old, new, reached));
            }
            continue;
        }
        let is_shared = |part: &Part| !shared.sections_of(part).is_empty() && shared.has(part);
        let (common, own): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_shared);
        for part in &common {
            if said.insert(part.value.clone()) {
                planned.push(explain_shared(part, &shared));
            }
        }
        match change {
            ObjectChange::ProxyChanged { .. } if own.is_empty() && !common.is_empty() => {}
            ObjectChange::ProxyChanged { proxy, .. } if !common.is_empty() => {
                planned.push(explain(&without(proxy, &own), own, old, new, reached));
            }
            _ => planned.push(explain(change, own, old, new, reached)),
        }
    }
    planned
}

/// A change of a `default-server` line, by what it does to each of its servers.
#[derive(Debug, Eq, Hash, PartialEq)]
struct ServerDefault {
    /// The section that has the line; `None`: a `defaults` section has.
    section: Option<String>,
    words: Vec<&'static str>,
    values: Vec<PlannedValue>,
}

impl ServerDefault {
    /// Of a change of a server whose own line is what it was; `None`: of any other change.
    fn of(change: &ObjectChange, old: &Side<'_>) -> Option<ServerDefault> {
        let ObjectChange::ServerChanged { proxy, before, server, settings, .. } = change else { return None };
        // A name may resolve to another address.
        let is_own = before.written.0 != server.written.0 || settings.contains(&"address");
        if is_own || proxy.mode == Mode::Direct {
            return None;
        }
        let line = proxy.lines.find(LINE);
        let (_, is_inherited) = line.or_else(|| old.proxy(proxy).and_then(|before| before.lines.find(LINE)))?;
        let fields = server_fields(before, server);
        let source = line.map(|(source, _)| source);
        Some(ServerDefault {
            section: (!is_inherited).then(|| super::object(proxy)),
            words: settings.clone(),
            values: fields.iter().map(|field| PlannedValue::of(field, source)).collect(),
        })
    }

    fn explain(self, servers: &[&ObjectChange], old: &Side<'_>, new: &Side<'_>, reached: &Reached) -> PlannedChange {
        let mut names: Vec<&str> = Vec::new();
        for change in servers {
            if let ObjectChange::ServerChanged { proxy, .. } = change
                && names.last() != Some(&&*proxy.name)
            {
                names.push(&proxy.name);
            }
        }
        let of = if servers.len() == 1 { "1 server".to_owned() } else { format!("{} servers", servers.len()) };
        let words = self.words.join(", ");
        let (change, sections) = match self.section {
            Some(section) => (format!("{section}: {LINE}: {words} changed for {of}"), 0),
            None => {
                let more = names.len().saturating_sub(SECTIONS_NAMED);
                let more = if more > 0 { format!(", {more} more") } else { String::new() };
                let named = names[..names.len().min(SECTIONS_NAMED)].join(", ");
                let text = format!("defaults: {LINE}: {words} changed for {of} of {named}{more}");
                (text, u32::try_from(names.len()).unwrap_or(u32::MAX))
            }
        };
        let place = self.values.first().map(|value| (value.file.clone(), value.line)).unwrap_or_default();
        PlannedChange {
            change,
            impact: servers.first().and_then(|change| impact(change, old, new, reached)),
            restarts_check: servers.iter().any(|change| restarts_check(change)),
            file: place.0,
            line: place.1,
            values: self.values,
            sections,
            ..PlannedChange::default()
        }
    }
}

/// The keyword of settings of servers.
const LINE: &str = "default-server";

/// A change of a section without what its `defaults` change.
fn without(proxy: &Arc<Proxy>, own: &[Part]) -> ObjectChange {
    let mut settings: Vec<&'static str> = Vec::new();
    let mut effects = Effects::NONE;
    for part in own {
        if !settings.contains(&part.word) {
            settings.push(part.word);
        }
        effects = effects.with(part.effects);
    }
    ObjectChange::ProxyChanged { proxy: Arc::clone(proxy), settings, effects }
}

/// A change of a `defaults` section, which affects no connection.
fn explain_shared(part: &Part, shared: &Shared<'_>) -> PlannedChange {
    let sections = shared.sections_of(part);
    let is_checked = |proxy: &&Proxy| proxy.servers.iter().any(|server| server.check.enabled);
    PlannedChange {
        change: shared.describe(part),
        restarts_check: part.effects.restarts_check && sections.iter().any(is_checked),
        file: part.value.file.clone(),
        line: part.value.line,
        values: vec![part.value.clone()],
        sections: u32::try_from(sections.len()).unwrap_or(u32::MAX),
        ..PlannedChange::default()
    }
}
