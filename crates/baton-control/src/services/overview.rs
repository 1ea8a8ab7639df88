//! What is true of the whole process, for the statistics page.

use std::time::Instant;

use baton_kernel::output::losses;
use baton_kernel::panics;
use baton_model::StatsPage;
use baton_proxy::moving::MoveCount;
use serde_json::{Value as Json, json};

use super::statistics::shown;
use crate::certificates::{Ending, wall_seconds};
use crate::control::Control;
use crate::operators::figures::{self, ObjectKey, ObjectSample};
use crate::protocol::ChangeRecord;

/// Certificates that are named.
const CERTIFICATES_MAX: usize = 20;
/// A certificate is named when it ends within so many days.
const SOON_DAYS: i64 = 30;
/// Log targets that are named.
const TARGETS_MAX: usize = 10;

/// The process as a page shows it. A page that is limited to some proxies (`stats scope`) shows nothing of the others.
pub(super) fn process(control: &Control, page: &StatsPage, is_admin: bool) -> Json {
    let line = &control.line;
    let global = &line.model().global;
    let mut process = json!({
        "admin": is_admin,
        "generation": line.number(),
        "node": shown(page.node.as_ref(), global.node.as_deref()),
        "description": shown(page.description.as_ref(), global.description.as_deref()),
        "started": wall_seconds().saturating_sub(line.registry().started.elapsed().as_secs()),
    });
    if !page.hides_version {
        process["version"] = control.settings.version.clone().into();
    }
    if !page.scopes.is_empty() {
        return process;
    }
    process["pid"] = std::process::id().into();
    process["connections"] = control.workers.open_connections().into();
    process["earlier"] = control.history.earlier_connections().into();
    let older = control.succession.predecessors();
    process["older"] = older.map(|(pid, connections)| json!({ "pid": pid, "connections": connections })).collect();
    process["staying"] = control.staying().into_iter().map(|(reason, count)| (reason, Json::from(count))).collect();
    let moves = &line.registry().moves;
    process["moved"] = json!({
        "arrived": moves.of_process(MoveCount::ClientsIn),
        "departed": moves.of_process(MoveCount::ClientsOut),
        "servers_arrived": moves.of_process(MoveCount::ServersIn),
        "servers_departed": moves.of_process(MoveCount::ServersOut),
    });
    process["refused"] = line.refused().into();
    process["panics"] = panics::count().into();
    process["leaving"] = line.listeners().leaving_count().into();
    process["pending"] = line.pending().iter().map(ToString::to_string).collect();
    if let Some(generation) = line.generation() {
        process["maxconn"] = generation.maxconn.into();
        let counted = figures::of_process(generation);
        let sample = ObjectSample::of(&line.runtime().rates, &ObjectKey::Process, counted, Instant::now());
        process["rate"] = sample.sessions().0.into();
        process["req_rate"] = sample.requests().0.into();
    }
    let lossy = losses::all().into_iter().filter(|losses| losses.lost() > 0).take(TARGETS_MAX);
    process["lost"] = lossy.map(|one| json!({ "target": one.name(), "lines": one.lost() })).collect();
    process
}

/// The last changes. Who made one in particular is for those who were asked who they are.
pub(super) fn changes(control: &Control, is_known: bool) -> Json {
    let change = |change: &ChangeRecord| {
        let by = if is_known { &*change.by } else { change.by.split(" (").next().unwrap_or_default() };
        json!({ "at": change.at_s, "what": change.what, "by": by, "refused": change.is_refused })
    };
    control.history.changes().map(change).collect()
}

/// Certificates that are not valid, or not for long.
pub(super) fn certificates(control: &Control) -> Json {
    let ending = Ending::within(&control.line.store(), wall_seconds(), SOON_DAYS);
    let named = ending.iter().take(CERTIFICATES_MAX);
    let list: Vec<Json> =
        named.map(|one| json!({ "name": one.name, "until": one.until_s, "valid": one.is_valid })).collect();
    json!({ "list": list, "more": ending.len().saturating_sub(CERTIFICATES_MAX) })
}
