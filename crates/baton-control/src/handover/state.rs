//! Live state as [`ProcessMemory`], and back.
//!
//! Everything is looked up by name: what the other side does not have is left out. Nothing in here trusts the other process: numbers
//! are brought within bounds where they are used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_health::{Checker, Recalled, Status};
use baton_proxy::balance::{
    BackendMemory, CheckReport, HealthState, OutageMemory, ServerMemory, ServerState, Turn, Turns,
};
use baton_proxy::{BackendPlan, Generation};

use super::memory::{
    self, Counters, Counts, HEALTH_WORDS, Named, ProcessMemory, ProxyCounts, ServerCounts, milliseconds,
};

/// All there is to remember of `generation` at `now`.
pub fn remember(generation: &Generation, checker: &Checker, now: Instant) -> ProcessMemory {
    let direct = generation.model.has_direct();
    ProcessMemory { counts: counts(generation), direct, ..remember_health(generation, checker, now) }
}

/// What there is to remember of health, checks and balancers.
pub(super) fn remember_health(generation: &Generation, checker: &Checker, now: Instant) -> ProcessMemory {
    let mut state = ProcessMemory::default();
    let mut quiet_for = None;
    for plan in generation.backends.values() {
        let name = &plan.proxy.name;
        let (memory, quiet) = backend(plan, checker, &mut quiet_for, now);
        if memory != memory::BackendMemory::default() {
            state.backends.0.push((Arc::clone(name), memory));
        }
        if !quiet.is_empty() {
            state.quiet.0.push((Arc::clone(name), quiet));
        }
    }
    state.quiet_ms = quiet_for.unwrap_or_default();
    state
}

/// Goes on from there, in a generation that is not in use yet and whose checks have not begun.
pub fn recall(state: &ProcessMemory, generation: &Generation, checker: &mut Checker, now: Instant) {
    inherit(&state.counts, generation);
    let quiet_for = Duration::from_millis(state.quiet_ms);
    for (name, servers) in state.quiet.iter() {
        if let Some(plan) = generation.backends.get(name) {
            plan.state.recall_quiet(servers.split_ascii_whitespace(), quiet_for, now);
        }
    }
    for (name, memory) in state.backends.iter() {
        let Some(plan) = generation.backends.get(name) else { continue };
        for (server, kept) in memory.servers.iter() {
            let Some(check) = &kept.check else { continue };
            let recalled = Recalled {
                state: health_of(&kept.health),
                counter: check.health,
                rise: check.rise,
                fall: check.fall,
                failed: check.failed,
                due: check.due_ms.map(Duration::from_millis),
            };
            checker.recall(&plan.proxy.name, server, recalled);
        }
        plan.state.recall(remembered(memory), now);
    }
}

/// Every counter as it is now.
pub fn counts(generation: &Generation) -> Counts {
    let frontends = generation.frontends.iter().map(|plan| {
        let open_max = plan.state.open_max.load(Ordering::Relaxed);
        let figures = ProxyCounts { counters: Counters::of(&plan.state.counters), open_max, servers: Named::default() };
        (Arc::clone(&plan.proxy.name), figures)
    });
    let backends = generation.backends.values().map(|plan| {
        let server = |state: &Arc<ServerState>| {
            let counters = plan.servers.get(state.name()).map(|server| Counters::of(&server.counters));
            let figures =
                ServerCounts { counters: counters.unwrap_or_default(), open: state.served() + state.elsewhere() };
            (figures != ServerCounts::default()).then(|| (Arc::clone(state.name()), figures))
        };
        let figures = ProxyCounts {
            counters: Counters::of(&plan.figures.counters),
            open_max: plan.figures.open_max.load(Ordering::Relaxed),
            servers: plan.state.servers().iter().filter_map(server).collect(),
        };
        (Arc::clone(&plan.proxy.name), figures)
    });
    let is_something = |(_, figures): &(Arc<str>, ProxyCounts)| *figures != ProxyCounts::default();
    Counts { frontends: frontends.filter(is_something).collect(), backends: backends.filter(is_something).collect() }
}

/// What was counted between `before` and `now`; gauges and maxima as they are now.
pub fn since(before: &Counts, now: &Counts) -> Counts {
    Counts { frontends: proxies(&before.frontends, &now.frontends), backends: proxies(&before.backends, &now.backends) }
}

/// Adds counters that another process counted.
pub fn inherit(counts: &Counts, generation: &Generation) {
    if !counts.frontends.is_empty() {
        let plans: HashMap<_, _> = generation.frontends.iter().map(|plan| (&*plan.proxy.name, plan)).collect();
        for (name, figures) in counts.frontends.iter() {
            let Some(plan) = plans.get(&**name) else { continue };
            figures.counters.add_to(&plan.state.counters);
            plan.state.open_max.fetch_max(figures.open_max, Ordering::Relaxed);
        }
    }
    for (name, figures) in counts.backends.iter() {
        let Some(plan) = generation.backends.get(name) else { continue };
        figures.counters.add_to(&plan.figures.counters);
        plan.figures.open_max.fetch_max(figures.open_max, Ordering::Relaxed);
        for (name, figures) in figures.servers.iter() {
            if let Some(server) = plan.servers.get(name) {
                figures.counters.add_to(&server.counters);
            }
        }
    }
}

fn proxies(before: &Named<ProxyCounts>, now: &Named<ProxyCounts>) -> Named<ProxyCounts> {
    let before: HashMap<_, _> = before.iter().map(|(name, figures)| (&**name, figures)).collect();
    let none = ProxyCounts::default();
    let proxy = |(name, now): (&Arc<str>, &ProxyCounts)| {
        let before = before.get(&**name).copied().unwrap_or(&none);
        let was: HashMap<_, _> = before.servers.iter().map(|(name, server)| (&**name, &server.counters)).collect();
        let server = |(name, now): (&Arc<str>, &ServerCounts)| {
            let counters = was.get(&**name).map_or_else(|| now.counters.clone(), |was| now.counters.since(was));
            let figures = ServerCounts { counters, open: now.open };
            (figures != ServerCounts::default()).then(|| (Arc::clone(name), figures))
        };
        let figures = ProxyCounts {
            counters: now.counters.since(&before.counters),
            open_max: now.open_max,
            servers: now.servers.iter().filter_map(server).collect(),
        };
        let is_new = !figures.counters.is_empty() || !figures.servers.is_empty() || now.open_max != before.open_max;
        is_new.then(|| (Arc::clone(name), figures))
    };
    now.iter().filter_map(proxy).collect()
}

/// What a backend remembers, and the names of its servers of which there is nothing to say but that they have been as they are
/// for `quiet_for` (milliseconds): as long as the first such server of all.
fn backend(
    plan: &BackendPlan,
    checker: &Checker,
    quiet_for: &mut Option<u64>,
    now: Instant,
) -> (memory::BackendMemory, String) {
    let memory = plan.state.remember(now);
    let mut quiet = String::new();
    let mut servers = Named::default();
    for kept in memory.servers {
        let check = plan.servers.get(&kept.name).is_some_and(|plan| plan.server.check.enabled).then(|| {
            let due = checker.due(&plan.proxy.name, &kept.name);
            Box::new(memory::CheckMemory { due_ms: due.map(milliseconds), ..check_memory(kept.check) })
        });
        let agent = (kept.agent.rise > 0).then(|| Box::new(check_memory(kept.agent)));
        let since_ms = milliseconds(kept.since);
        let memory = memory::ServerMemory {
            health: word_of(kept.health).into(),
            since_ms,
            downs: kept.downs,
            down_ms: milliseconds(kept.down_time),
            served_max: kept.served_max,
            queued_max: kept.queued_max,
            total: kept.total,
            warming_ms: kept.warming.map(milliseconds),
            check,
            agent,
            is_held: kept.is_held,
        };
        let is_quiet = memory == memory::ServerMemory { since_ms, ..memory::ServerMemory::default() };
        if is_quiet && *quiet_for.get_or_insert(since_ms) == since_ms {
            quiet.push_str(if quiet.is_empty() { "" } else { " " });
            quiet.push_str(&kept.name);
        } else {
            servers.0.push((kept.name, memory));
        }
    }
    let (active, backups) = (turns(memory.active), turns(memory.backups));
    let outages = memory.outages.map(|kept| memory::OutageMemory {
        since_ms: milliseconds(kept.since),
        downs: kept.downs,
        down_ms: milliseconds(kept.down_time),
        is_down: !kept.is_up,
    });
    (memory::BackendMemory { waiting_max: memory.waiting_max, outages, active, backups, servers }, quiet)
}

fn remembered(memory: &memory::BackendMemory) -> BackendMemory {
    let server = |(name, kept): (&Arc<str>, &memory::ServerMemory)| ServerMemory {
        name: Arc::clone(name),
        health: health_of(&kept.health),
        is_held: kept.is_held,
        since: Duration::from_millis(kept.since_ms),
        downs: kept.downs,
        down_time: Duration::from_millis(kept.down_ms),
        served_max: kept.served_max,
        queued_max: kept.queued_max,
        total: kept.total,
        warming: kept.warming_ms.map(Duration::from_millis),
        check: kept.check.as_deref().map(report).unwrap_or_default(),
        agent: kept.agent.as_deref().map(report).unwrap_or_default(),
    };
    BackendMemory {
        waiting_max: memory.waiting_max,
        outages: memory.outages.as_ref().map(|kept| OutageMemory {
            since: Duration::from_millis(kept.since_ms),
            downs: kept.downs,
            down_time: Duration::from_millis(kept.down_ms),
            is_up: !kept.is_down,
        }),
        active: turned(&memory.active),
        backups: turned(&memory.backups),
        servers: memory.servers.iter().map(server).collect(),
    }
}

fn check_memory(report: CheckReport) -> memory::CheckMemory {
    memory::CheckMemory {
        status: report.status.into(),
        code: report.code,
        info: report.info,
        duration_us: u64::try_from(report.duration.as_micros()).unwrap_or(u64::MAX),
        health: report.health,
        rise: report.rise,
        fall: report.fall,
        failed: report.failed,
        due_ms: None,
    }
}

fn report(check: &memory::CheckMemory) -> CheckReport {
    let status = Status::of_word(&check.status);
    CheckReport {
        status: status.map_or("", Status::word),
        description: status.map_or("", Status::description),
        code: check.code,
        info: check.info.clone(),
        duration: Duration::from_micros(check.duration_us),
        health: check.health,
        rise: check.rise,
        fall: check.fall,
        failed: check.failed,
    }
}

fn turns(turns: Turns) -> memory::Turns {
    let place = |(name, turn): (Arc<str>, Turn)| {
        (name, [turn.weight, u64::from(turn.fresh), turn.due, turn.rest, turn.last, turn.placed])
    };
    memory::Turns { position: turns.position, places: turns.places.into_iter().map(place).collect() }
}

fn turned(turns: &memory::Turns) -> Turns {
    let place = |(name, place): (&Arc<str>, &[u64; 6])| {
        let [weight, fresh, due, rest, last, placed] = *place;
        (Arc::clone(name), Turn { weight, fresh: fresh > 0, due, rest, last, placed })
    };
    Turns { position: turns.position, places: turns.places.iter().map(place).collect() }
}

fn word_of(health: HealthState) -> &'static str {
    match health {
        HealthState::Up => "",
        HealthState::Stopping => HEALTH_WORDS[1],
        HealthState::Down => HEALTH_WORDS[2],
    }
}

fn health_of(word: &str) -> HealthState {
    match word {
        "down" => HealthState::Down,
        "stopping" => HealthState::Stopping,
        _ => HealthState::Up,
    }
}
