//! Persistence by stick tables (configuration manual, 4.2 `stick match`): which server a request's keys are bound to, and binding keys to
//! the server that has responded.

use std::sync::Arc;

use baton_model::{DataType, ServerKey};
use baton_rules::{Context, ProxyRules, SampleKey, StickRule};
use baton_tables::{Table, Tracked};

use crate::balance::{BackendState, ServerState, Slot};
use crate::core::Core;
use crate::exchange::Exchange;
use crate::progress::StickKeys;

/// Most keys that one exchange binds, as in HAProxy: rules behind them are not heeded.
const KEYS_MAX: usize = 8;

/// What `stick` rules make of a request.
#[derive(Debug, Default)]
pub struct StickChoice {
    /// The server that the first key with a usable one is bound to.
    pub server: Option<Arc<ServerState>>,
    /// What is to be bound.
    pub keys: StickKeys,
}

/// Evaluates the rules about requests. `is_placed`: something that comes before them has chosen a server already; keys are looked up all
/// the same, which keeps their entries alive. `force`: also servers that are down are usable.
pub fn request(
    rules: &ProxyRules,
    cx: &Context<'_>,
    backend: &BackendState,
    is_placed: bool,
    force: bool,
) -> StickChoice {
    let mut choice = StickChoice::default();
    for rule in rules.stick() {
        if rule.matches_requests()
            && let Some((table, key)) = key(rules, rule, cx)
            && let Some(entry) = table.find(&key.key(), cx.live.table_now())
        {
            entry.touch(cx.live.table_now());
            if !is_placed && choice.server.is_none() {
                choice.server = bound(&entry, backend).filter(|server| force || server.is_running());
            }
        }
        if rule.stores_requests() {
            keep(&mut choice.keys, 0, rules, rule, cx);
        }
    }
    choice
}

/// Whether there are rules about responses.
pub fn looks_at_responses(rules: &ProxyRules) -> bool {
    rules.stick().iter().any(StickRule::stores_responses)
}

/// Evaluates the rules about responses.
pub fn response(rules: &ProxyRules, cx: &Context<'_>, keys: &mut StickKeys) {
    let of_request = keys.len();
    for rule in rules.stick().iter().filter(|rule| rule.stores_responses()) {
        keep(keys, of_request, rules, rule, cx);
    }
}

/// Binds the keys of an exchange to the server that has responded.
pub fn bind<M>(core: &Core, exchange: &mut Exchange<'_, M>, slot: &Slot) {
    let keys = std::mem::take(&mut exchange.progress.stick_keys);
    let server = slot.config();
    if server.non_stick {
        return;
    }
    let now = core.table_now();
    for (table, key) in keys {
        // A table that is full takes no more.
        let Some(entry) = table.track(&key.as_key(), now) else { continue };
        entry.set(DataType::ServerId, 0, server.id.into(), now);
        match table.server_key() {
            ServerKey::Name => _ = entry.set_server_key(&server.name),
            ServerKey::Address => {
                if let Some(address) = server.address.inet() {
                    entry.set_server_key(&address.to_string());
                }
            }
        }
    }
}

/// Keeps the key of a rule, unless one of its table was kept since there were `from` of them: the first one of each table counts.
fn keep(keys: &mut StickKeys, from: usize, rules: &ProxyRules, rule: &StickRule, cx: &Context<'_>) {
    let is_kept = keys[from..].iter().any(|(table, _)| table.name() == rule.table());
    if keys.len() < KEYS_MAX
        && !is_kept
        && let Some((table, key)) = key(rules, rule, cx)
    {
        keys.push((table, key.into_owned()));
    }
}

/// The table of a rule, and its key for it.
fn key<'c>(rules: &'c ProxyRules, rule: &'c StickRule, cx: &'c Context<'_>) -> Option<(Arc<Table>, SampleKey<'c>)> {
    let table = cx.live.table(rule.table())?;
    let key = SampleKey::new(rules.stick_key(rule, cx)?, table.key_type())?;
    Some((table, key))
}

/// The server that a key is bound to: by its name or address, which are the same in another process or backend; else by its id.
fn bound(entry: &Tracked, backend: &BackendState) -> Option<Arc<ServerState>> {
    let id = entry.get(DataType::ServerId, 0, Default::default()).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    let by_key = entry.server_key().and_then(|key| match entry.table().server_key() {
        ServerKey::Name => backend.server(&key),
        ServerKey::Address => {
            let address = key.parse().ok()?;
            backend.find_server(id, |server| server.address.inet() == Some(address))
        }
    });
    by_key.or_else(|| if id > 0 { backend.find_server(id, |server| server.id == id) } else { None })
}
