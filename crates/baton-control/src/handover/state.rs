//! Live state as a message, and back.
//!
//! Everything is looked up by name: what the other side does not have is left out. Nothing in here trusts the message: numbers
//! are brought within bounds where they are used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_proxy::balance::{BackendMemory, CheckReport, HealthState, ServerMemory, Turn, Turns};
use baton_proxy::{BackendPlan, Counter, CounterBlock, Generation};

use super::message::{self, Counters, Counts, ProxyCounts, ServerCounts, State};
use crate::health::{Checker, Recalled, Status};

/// All there is to remember of `generation` at `now`.
pub fn remember(generation: &Generation, checker: &Checker, now: Instant) -> State {
    let backends = generation.backends.values().map(|plan| (plan.proxy.name.to_string(), backend(plan, checker, now)));
    State { counts: counts(generation), backends: backends.collect() }
}

/// Goes on from there, in a generation that is not in use yet and whose checks have not begun.
pub fn recall(state: &State, generation: &Generation, checker: &mut Checker, now: Instant) {
    inherit(&state.counts, generation);
    for (name, memory) in &state.backends {
        let Some(plan) = generation.backends.get(name.as_str()) else { continue };
        plan.state.recall(&remembered(memory), now);
        for (server, kept) in &memory.servers {
            let Some(check) = &kept.check else { continue };
            let recalled = Recalled {
                state: health_of(&kept.health),
                counter: check.health,
                rise: check.rise,
                fall: check.fall,
                failed: check.failed,
                due: check.due_ms.map(Duration::from_millis),
            };
            checker.recall(name, server, recalled);
        }
    }
}

/// Every counter as it is now.
pub fn counts(generation: &Generation) -> Counts {
    let frontends = generation.frontends.iter().map(|plan| {
        let open_max = plan.state.open_max.load(Ordering::Relaxed);
        let figures = ProxyCounts { counters: counters(&plan.state.counters), open_max, servers: BTreeMap::new() };
        (plan.proxy.name.to_string(), figures)
    });
    let backends = generation.backends.values().map(|plan| {
        let open = |name: &Arc<str>| plan.state.server(name).map_or(0, |state| state.served() + state.elsewhere());
        let server = |(name, server): (&Arc<str>, &Arc<baton_proxy::ServerPlan>)| {
            (name.to_string(), ServerCounts { counters: counters(&server.counters), open: open(name) })
        };
        let figures = ProxyCounts {
            counters: counters(&plan.figures.counters),
            open_max: plan.figures.open_max.load(Ordering::Relaxed),
            servers: plan.servers.iter().map(server).collect(),
        };
        (plan.proxy.name.to_string(), figures)
    });
    Counts { frontends: frontends.collect(), backends: backends.collect() }
}

/// What was counted between `before` and `now`; gauges and maxima as they are now.
pub fn since(before: &Counts, now: &Counts) -> Counts {
    Counts { frontends: proxies(&before.frontends, &now.frontends), backends: proxies(&before.backends, &now.backends) }
}

/// Adds counters that another process counted.
pub fn inherit(counts: &Counts, generation: &Generation) {
    for plan in &generation.frontends {
        let Some(figures) = counts.frontends.get(&*plan.proxy.name) else { continue };
        add(&plan.state.counters, &figures.counters);
        plan.state.open_max.fetch_max(figures.open_max, Ordering::Relaxed);
    }
    for plan in generation.backends.values() {
        let Some(figures) = counts.backends.get(&*plan.proxy.name) else { continue };
        add(&plan.figures.counters, &figures.counters);
        plan.figures.open_max.fetch_max(figures.open_max, Ordering::Relaxed);
        for (name, server) in &plan.servers {
            if let Some(figures) = figures.servers.get(&**name) {
                add(&server.counters, &figures.counters);
            }
        }
    }
}

fn proxies(
    before: &BTreeMap<String, ProxyCounts>,
    now: &BTreeMap<String, ProxyCounts>,
) -> BTreeMap<String, ProxyCounts> {
    let none = ProxyCounts::default();
    let proxy = |(name, now): (&String, &ProxyCounts)| {
        let before = before.get(name).unwrap_or(&none);
        let server = |(name, now): (&String, &ServerCounts)| {
            let before = before.servers.get(name).map(|server| &server.counters);
            (name.clone(), ServerCounts { counters: difference(before, &now.counters), open: now.open })
        };
        let figures = ProxyCounts {
            counters: difference(Some(&before.counters), &now.counters),
            open_max: now.open_max,
            servers: now.servers.iter().map(server).collect(),
        };
        (name.clone(), figures)
    };
    now.iter().map(proxy).collect()
}

fn difference(before: Option<&Counters>, now: &Counters) -> Counters {
    let before = |name: &str| before.and_then(|before| before.get(name)).copied().unwrap_or_default();
    let grown = now.iter().map(|(name, now)| (name.clone(), now.wrapping_sub(before(name))));
    grown.filter(|(_, grown)| *grown > 0).collect()
}

fn counters(block: &CounterBlock) -> Counters {
    let total = |(counter, name): &(Counter, &str)| ((*name).to_owned(), block.total(*counter));
    Counter::NAMED.iter().map(total).filter(|(_, total)| *total > 0).collect()
}

fn add(block: &CounterBlock, counters: &Counters) {
    for (counter, name) in &Counter::NAMED {
        if let Some(amount) = counters.get(*name) {
            block.inherit(*counter, *amount);
        }
    }
}

fn backend(plan: &BackendPlan, checker: &Checker, now: Instant) -> message::BackendMemory {
    let memory = plan.state.remember(now);
    let server = |kept: ServerMemory| {
        let check = plan.servers.get(&kept.name).is_some_and(|plan| plan.server.check.enabled).then(|| {
            let due = checker.due(&plan.proxy.name, &kept.name);
            message::CheckMemory {
                status: kept.check.status.into(),
                code: kept.check.code,
                info: kept.check.info,
                duration_us: u64::try_from(kept.check.duration.as_micros()).unwrap_or(u64::MAX),
                health: kept.check.health,
                rise: kept.check.rise,
                fall: kept.check.fall,
                failed: kept.check.failed,
                due_ms: due.map(milliseconds),
            }
        });
        let memory = message::ServerMemory {
            health: word_of(kept.health).into(),
            since_ms: milliseconds(kept.since),
            downs: kept.downs,
            down_ms: milliseconds(kept.down_time),
            served_max: kept.served_max,
            queued_max: kept.queued_max,
            total: kept.total,
            warming_ms: kept.warming.map(milliseconds),
            check,
        };
        (kept.name.to_string(), memory)
    };
    message::BackendMemory {
        waiting_max: memory.waiting_max,
        active: turns(memory.active),
        backups: turns(memory.backups),
        servers: memory.servers.into_iter().map(server).collect(),
    }
}

fn remembered(memory: &message::BackendMemory) -> BackendMemory {
    let server = |(name, kept): (&String, &message::ServerMemory)| {
        let check = kept.check.clone().unwrap_or_default();
        let status = Status::of_word(&check.status);
        ServerMemory {
            name: name.as_str().into(),
            health: health_of(&kept.health),
            since: Duration::from_millis(kept.since_ms),
            downs: kept.downs,
            down_time: Duration::from_millis(kept.down_ms),
            served_max: kept.served_max,
            queued_max: kept.queued_max,
            total: kept.total,
            warming: kept.warming_ms.map(Duration::from_millis),
            check: CheckReport {
                status: status.map_or("", Status::word),
                description: status.map_or("", Status::description),
                code: check.code,
                info: check.info,
                duration: Duration::from_micros(check.duration_us),
                health: check.health,
                rise: check.rise,
                fall: check.fall,
                failed: check.failed,
            },
        }
    };
    BackendMemory {
        waiting_max: memory.waiting_max,
        active: turned(&memory.active),
        backups: turned(&memory.backups),
        servers: memory.servers.iter().map(server).collect(),
    }
}

fn turns(turns: Turns) -> message::Turns {
    let place = |(name, turn): (Arc<str>, Turn)| {
        (name.to_string(), [turn.weight, u64::from(turn.fresh), turn.due, turn.rest, turn.last, turn.placed])
    };
    message::Turns { position: turns.position, places: turns.places.into_iter().map(place).collect() }
}

fn turned(turns: &message::Turns) -> Turns {
    let place = |(name, place): (&String, &[u64; 6])| {
        let [weight, fresh, due, rest, last, placed] = *place;
        (Arc::from(name.as_str()), Turn { weight, fresh: fresh > 0, due, rest, last, placed })
    };
    Turns { position: turns.position, places: turns.places.iter().map(place).collect() }
}

fn word_of(health: HealthState) -> &'static str {
    match health {
        HealthState::Up => "up",
        HealthState::Stopping => "stopping",
        HealthState::Down => "down",
    }
}

fn health_of(word: &str) -> HealthState {
    match word {
        "down" => HealthState::Down,
        "stopping" => HealthState::Stopping,
        _ => HealthState::Up,
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
