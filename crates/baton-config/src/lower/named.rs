//! Names of proxies and servers that rules, their expressions and `default_backend` say: they must be there, and fit.

use baton_model::{KeyType, Mode, Ring, Ruleset};
use baton_rules::{NameReference, ReferenceKind, Type, suggestion};
use rustc_hash::FxHashSet;

use super::direct;
use super::judge::{SectionIndex, key, late};
use super::{Context, Draft, Kind, TableIndex};
use crate::diagnostic::Severity;
use crate::keywords::resolvers;
use crate::keywords::ring::Rings;
use crate::syntax::Line;

/// `default_backend` and `use_backend` name a backend of the same mode.
pub(super) fn backends_exist(draft: &Draft, heads: &SectionIndex<'_>, known: &[&str], context: &mut Context<'_>) {
    if !draft.proxy.role.is_frontend() {
        return;
    }
    let mut wanted: Vec<(&str, &'static str, Line, usize)> = Vec::new();
    if let Some(name) = &draft.proxy.default_backend {
        let line = draft.lines.get("default_backend").unwrap_or(&draft.head).clone();
        wanted.push((name, "default_backend", line, 1));
    }
    for rule in draft.proxy.rules(Ruleset::UseBackend) {
        let name = rule.words.first().map(String::as_str).unwrap_or_default();
        let found = context.rule_lines.get(&key(&rule.source));
        // A name that is a log format is only known when a request comes.
        if let Some((line, first)) = found
            && !name.contains("%[")
        {
            wanted.push((name, "use_backend", line.clone(), *first));
        }
    }
    for (name, keyword, line, word) in wanted {
        if context.report.is_full() {
            return;
        }
        let found = [Kind::Backend, Kind::Listen].iter().find_map(|kind| heads.get(&(name, *kind)));
        match found {
            None => {
                let message = format!("Proxy '{}': unable to find required {keyword}: '{name}'.", draft.proxy.name);
                let mut diagnostic = late(&line, Severity::Alert, "unknown-backend", word, message);
                diagnostic.hint = match heads.contains_key(&(name, Kind::Frontend)) {
                    true => Some(format!("'{name}' is a frontend; a backend is needed here")),
                    false => suggestion(name, known.iter().copied()),
                };
                context.report.add(diagnostic);
            }
            Some(backend) if backend.proxy.name == draft.proxy.name && backend.kind == draft.kind => {
                let message = format!("Proxy '{name}': loop detected for {keyword}: '{name}'.");
                context.report.add(late(&line, Severity::Alert, "backend-loop", word, message));
            }
            Some(backend) if direct::is_mixed(draft, backend) => {
                let message = direct::mixed(draft, backend);
                context.report.add(late(&line, Severity::Alert, "mode-mismatch", word, message));
            }
            Some(backend) if draft.proxy.mode == Mode::Http && backend.proxy.mode == Mode::Tcp => {
                let what =
                    if keyword == "default_backend" { "as its default backend" } else { "in a 'use_backend' rule" };
                let message = format!(
                    "http {} '{}' ({}:{}) tries to use incompatible tcp {} '{name}' ({}:{}) {what} (see 'mode').",
                    draft.kind.label(),
                    draft.proxy.name,
                    draft.head.file,
                    draft.head.number,
                    backend.kind.label(),
                    backend.head.file,
                    backend.head.number
                );
                context.report.add(late(&line, Severity::Alert, "mode-mismatch", word, message));
            }
            Some(_) => {}
        }
    }
}

/// `use-server` names a server of its own backend.
pub(super) fn servers_exist(draft: &Draft, context: &mut Context<'_>) {
    let rules = draft.proxy.rules(Ruleset::UseServer);
    if rules.is_empty() {
        return;
    }
    let servers: FxHashSet<&str> = draft.servers.iter().map(|server| &*server.server.name).collect();
    for rule in rules {
        let name = rule.words.first().map(String::as_str).unwrap_or_default();
        if name.contains("%[") || servers.contains(name) {
            continue;
        }
        let Some((line, first)) = context.rule_lines.get(&key(&rule.source)) else {
            continue;
        };
        let message = format!(
            "{} '{}' : unable to find server '{name}' referenced in a 'use-server' rule.",
            draft.kind.label(),
            draft.proxy.name
        );
        let mut diagnostic = late(line, Severity::Alert, "unknown-server", *first, message);
        diagnostic.hint = suggestion(name, draft.servers.iter().map(|server| &*server.server.name));
        context.report.add(diagnostic);
    }
}

/// Proxies and servers that expressions name, such as `be_conn(name)`.
pub(super) fn references_exist(draft: &Draft, heads: &SectionIndex<'_>, context: &mut Context<'_>) {
    let Some(rules) = context.compiled.of(&draft.proxy) else { return };
    for (source, reference) in &rules.references {
        let wrong = match reference.kind {
            ReferenceKind::Resolvers => missing_resolvers(reference, &draft.proxy.name, context),
            ReferenceKind::Ring => missing_ring(reference, &context.rings),
            _ => missing(reference, draft, heads, &context.tables),
        };
        let Some((message, hint)) = wrong else { continue };
        let place = key(source);
        let Some((line, first)) = context.rule_lines.get(&place) else { continue };
        // A rule of a `defaults` section is compiled in every proxy that inherits it, its error is reported once.
        if context.told.insert((place, message.clone())) {
            let mut diagnostic = late(line, Severity::Alert, "unknown-name", *first, message);
            diagnostic.hint = hint;
            context.report.add(diagnostic);
        }
    }
}

/// What is wrong with a name, and which one may be meant.
fn missing(
    reference: &NameReference,
    draft: &Draft,
    heads: &SectionIndex<'_>,
    tables: &TableIndex,
) -> Option<(String, Option<String>)> {
    let NameReference { by, proxy, kind, .. } = reference;
    let own = &draft.proxy.name;
    let (kinds, what) = match kind {
        ReferenceKind::Table | ReferenceKind::TableOfKey(_) => return missing_table(reference, own, heads, tables),
        // They are no names of proxies.
        ReferenceKind::Resolvers | ReferenceKind::Ring => return None,
        ReferenceKind::Frontend => ([Kind::Listen, Kind::Frontend], "frontend"),
        ReferenceKind::Backend => ([Kind::Listen, Kind::Backend], "backend"),
        ReferenceKind::Server(_) => ([Kind::Listen, Kind::Backend], "proxy"),
    };
    let Some(found) = kinds.iter().find_map(|kind| heads.get(&(&**proxy, *kind))) else {
        let known = heads.iter().filter(|((_, kind), _)| kinds.contains(kind)).map(|((name, _), _)| *name);
        let message = format!("unable to find {what} '{proxy}' referenced in {by} in proxy '{own}'.");
        return Some((message, suggestion(proxy, known)));
    };
    let ReferenceKind::Server(server) = kind else { return None };
    let mut names = found.servers.iter().map(|server| &*server.server.name);
    if names.any(|name| name == server.as_str()) {
        return None;
    }
    let message = format!("unable to find server '{server}' in proxy '{proxy}', referenced in {by} in proxy '{own}'.");
    Some((message, suggestion(server, found.servers.iter().map(|server| &*server.server.name))))
}

/// As [`missing`], of a section of name servers.
fn missing_resolvers(
    reference: &NameReference,
    own: &str,
    context: &mut Context<'_>,
) -> Option<(String, Option<String>)> {
    let NameReference { by, proxy: name, .. } = reference;
    if resolvers::exists(name, context) {
        return None;
    }
    let message = format!("Proxy '{own}': Can't find resolvers section '{name}' for {by}.");
    Some((message, suggestion(name, context.resolvers.iter().map(|section| &*section.name))))
}

/// As [`missing`], of a ring.
fn missing_ring(reference: &NameReference, rings: &Rings) -> Option<(String, Option<String>)> {
    let NameReference { by, proxy: name, .. } = reference;
    let built_in = ["stdout", "stderr", Ring::BUILT_IN];
    match rings.names().any(|known| known == name) {
        true => None,
        false => Some((
            format!("No such sink '{name}' in {by}."),
            suggestion(name, rings.names().chain(built_in)).or_else(|| Some(format!("add a section 'ring {name}'"))),
        )),
    }
}

/// As [`missing`], of a stick table.
fn missing_table(
    reference: &NameReference,
    own: &str,
    heads: &SectionIndex<'_>,
    tables: &TableIndex,
) -> Option<(String, Option<String>)> {
    let NameReference { by, proxy, kind, .. } = reference;
    let Some(table) = tables.get(&**proxy) else {
        let message = match kind {
            ReferenceKind::TableOfKey(_) => format!("Proxy '{own}': unable to find stick-table '{proxy}'."),
            _ => format!("unable to find table '{proxy}' referenced in {by} in proxy '{own}'."),
        };
        let hint = match heads.keys().any(|(name, _)| name == proxy) {
            true => Some(format!("'{proxy}' has no 'stick-table'")),
            false => suggestion(proxy, tables.keys().map(|name| &**name)),
        };
        return Some((message, hint));
    };
    let ReferenceKind::TableOfKey(gives) = kind else { return None };
    if gives.casts_to(type_of(table.key)) {
        return None;
    }
    let message = format!("Proxy '{own}': type of fetch not usable with type of stick-table '{proxy}'.");
    Some((message, Some(format!("it gives type {}, and keys are of type {}", gives.word(), table.key.word()))))
}

/// The type of a table's keys.
fn type_of(key: KeyType) -> Type {
    match key {
        KeyType::Ip | KeyType::Ipv6 => Type::Ip,
        KeyType::Integer => Type::Int,
        KeyType::String { .. } => Type::Str,
        KeyType::Binary { .. } => Type::Bin,
    }
}
