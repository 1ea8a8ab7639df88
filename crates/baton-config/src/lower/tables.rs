//! The stick tables of a configuration: names that they share with nothing else, and the names in their lines.

use std::sync::Arc;

use baton_model::StickTable;
use baton_rules::suggestion;
use rustc_hash::FxHashMap;

use super::judge::late;
use super::{Context, Draft};
use crate::diagnostic::Severity;
use crate::syntax::Line;

/// Tables by name.
pub(crate) type TableIndex = FxHashMap<Arc<str>, Arc<StickTable>>;

/// Makes the tables of the sections known to the rules that are compiled next.
pub(super) fn collect(drafts: &[Draft], context: &mut Context<'_>) {
    let mut declared: FxHashMap<&str, (&Draft, &Line)> = FxHashMap::default();
    for draft in drafts {
        let (Some(table), Some(line)) = (&draft.proxy.table, draft.lines.get("stick-table")) else { continue };
        if let Some((other, first)) = declared.insert(&table.name, (draft, line)) {
            let message = format!(
                "stick-table name '{}' conflicts with table declared in {} '{}' at {}:{}.",
                table.name,
                other.kind.word(),
                other.proxy.name,
                first.file,
                first.number
            );
            context.report.add(line.diagnostic(Severity::Alert, "duplicate-name", 0, message));
        }
        context.tables.insert(table.name.clone(), table.clone());
    }
    let mut of_peers = Vec::new();
    for section in &context.peers {
        for (table, line) in section.tables() {
            context.tables.insert(table.name.clone(), table.clone());
            if let Some(other) = &table.write_to {
                of_peers.push((line.clone(), other.clone(), table.clone()));
            }
        }
    }
    for (line, name, table) in of_peers {
        write_to(&line, &name, Some(&table), context);
    }
    for (draft, line) in declared.into_values() {
        let table = draft.proxy.table.as_deref();
        let section = table.and_then(|table| table.peers.as_deref());
        if let Some(section) = section.filter(|section| !context.peers.iter().any(|other| other.is_named(section))) {
            let message = format!("Proxy '{}': unable to find sync peers '{section}'.", draft.proxy.name);
            context.report.add(late(line, Severity::Alert, "unknown-name", word(line, "peers"), message));
        }
        if let Some(name) = table.and_then(|table| table.write_to.as_deref()) {
            write_to(line, name, table, context);
        }
    }
}

/// `write-to` names another table with the same keys.
fn write_to(line: &Line, name: &str, own: Option<&StickTable>, context: &mut Context<'_>) {
    let found = context.tables.get(name);
    let fault = match (found, own) {
        (None, _) => format!("stick-table: unable to find table '{name}' of 'write-to'."),
        (Some(other), Some(own)) if other.name == own.name => {
            format!("stick-table: 'write-to' of table '{name}' names the table itself.")
        }
        (Some(other), Some(own)) if other.key != own.key => format!(
            "stick-table: 'write-to' needs a table of type '{}', which '{name}' of type '{}' is not.",
            own.key, other.key
        ),
        _ => return,
    };
    let mut diagnostic = late(line, Severity::Alert, "unknown-name", word(line, "write-to"), fault);
    if found.is_none() {
        diagnostic.hint = suggestion(name, context.tables.keys().map(|name| &**name));
    }
    context.report.add(diagnostic);
}

/// The place of what follows a word.
fn word(line: &Line, name: &str) -> usize {
    line.texts().position(|word| word == name).map_or(0, |at| at + 1)
}
