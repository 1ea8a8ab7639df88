//! What `stick` rules make of the tables that they use: the server of each key is stored.

use std::sync::Arc;

use baton_model::{DataType, Mode, Ruleset, StickTable, Stored};
use rustc_hash::FxHashSet;

use super::Draft;
use crate::keywords::peers::PeersDraft;

/// The types of data that a server is stored as.
const SERVER: [DataType; 2] = [DataType::ServerId, DataType::ServerKey];

/// Adds what `stick` rules store to the tables that they name.
pub(super) fn store_servers(drafts: &mut [Draft], peers: &mut [PeersDraft]) {
    let mut used: FxHashSet<Arc<str>> = FxHashSet::default();
    for draft in drafts.iter().filter(|draft| draft.proxy.mode != Mode::Direct) {
        for rule in draft.proxy.rules(Ruleset::Stick) {
            let named = rule.words.get(2).filter(|word| *word == "table").and_then(|_| rule.words.get(3));
            used.insert(named.map_or_else(|| draft.proxy.name.clone(), |name| name.as_str().into()));
        }
    }
    if used.is_empty() {
        return;
    }
    let of_peers = peers.iter_mut().flat_map(PeersDraft::tables_mut);
    let tables = drafts.iter_mut().filter_map(|draft| draft.proxy.table.as_mut()).chain(of_peers);
    for table in tables.filter(|table| used.contains(&table.name)) {
        SERVER.into_iter().for_each(|data| store(Arc::make_mut(table), data));
    }
}

/// Adds a type of data, which is one number or one text, at its place.
fn store(table: &mut StickTable, data: DataType) {
    if let Err(at) = table.stored.binary_search_by_key(&data.bit(), |stored| stored.data.bit()) {
        table.stored.insert(at, Stored { data, elements: 1, period: None });
    }
}
