//! What is known of a worker that ended without a word: its counters, in memory that its master keeps, and the health of its servers
//! as the worker reported it last.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_health::Checker;
use baton_kernel::cells;
use baton_kernel::output::losses;
use baton_kernel::process::uptime;
use baton_proxy::{Counted, CountedMemory, Generation, ProcessSum, read_counted};
use serde::{Deserialize, Serialize};

use super::memory::{Counters, Counts, Named, ProcessMemory, ProcessTotals, ProxyCounts, ServerCounts, milliseconds};
use super::{state, totals};

/// The health of servers, as a worker reports it to its master.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct HealthReport {
    /// When it was so, in milliseconds of the system's uptime.
    at_ms: u64,
    /// Health, checks and outages.
    memory: ProcessMemory,
}

/// Everything about the health of `generation` that a worker after a crash goes on from.
///
/// # Errors
/// Never, in practice.
pub(crate) fn health_to_bytes(generation: &Generation, checker: &Checker, now: Instant) -> serde_json::Result<Vec<u8>> {
    let memory = state::remember_health(generation, checker, now);
    serde_json::to_vec(&HealthReport { at_ms: milliseconds(uptime()), memory })
}

/// Reads such a report; time has gone on since. Another version of the program has left nothing, if it cannot be read.
pub fn read_health(report: &[u8]) -> ProcessMemory {
    let Ok(HealthReport { at_ms, mut memory }) = serde_json::from_slice(report) else {
        return ProcessMemory::default();
    };
    memory.age(uptime().saturating_sub(Duration::from_millis(at_ms)));
    memory
}

/// Reads what was counted.
///
/// # Errors
/// The system's; or the file is none that a worker counted in.
pub fn read_counters(file: OwnedFd) -> io::Result<ProcessMemory> {
    let records = cells::read(file)?;
    let CountedMemory { objects, sums } = read_counted(&records);
    let mut servers: HashMap<Arc<str>, Named<ServerCounts>> = HashMap::new();
    let (mut counts, mut sockets) = (Counts::default(), Named::default());
    for (counted, counters) in objects {
        let counters = Counters::from(counters);
        let of_proxy = |counters| ProxyCounts { counters, ..ProxyCounts::default() };
        match counted {
            Counted::Frontend(name) => counts.frontends.0.push((name, of_proxy(counters))),
            Counted::Backend(name) => counts.backends.0.push((name, of_proxy(counters))),
            Counted::Server(backend, name) => {
                let counts = ServerCounts { counters, open: 0 };
                servers.entry(backend).or_default().0.push((name, counts));
            }
            Counted::Socket(frontend, number) => sockets.0.push((format!("{frontend}/{number}").into(), counters)),
        }
    }
    let of_servers = servers.into_iter();
    counts
        .backends
        .0
        .extend(of_servers.map(|(name, servers)| (name, ProxyCounts { servers, ..ProxyCounts::default() })));
    let sum = |wanted: ProcessSum| sums.iter().find(|(sum, _)| *sum == wanted).map_or(0, |(_, sum)| *sum);
    let lost_lines = losses::read(&records).map(|(target, lines)| (target.into(), lines)).collect();
    let totals = ProcessTotals { lost_lines, ..totals::of_sums(sum) };
    Ok(ProcessMemory { counts, sockets, totals, ..ProcessMemory::default() })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use baton_kernel::cells::CellMemory;
    use baton_proxy::{Counter, CounterBlock};

    use super::*;
    use crate::handover::memory::{BackendMemory, OutageMemory};

    #[test]
    fn counters_of_a_process_that_is_gone_are_found_by_name() {
        let memory = Arc::new(CellMemory::shared().unwrap());
        let registry = baton_proxy::Registry::counting_in(Arc::clone(&memory), 2, Instant::now());
        let counted = [
            Counted::Frontend("web".into()),
            Counted::Backend("app".into()),
            Counted::Server("app".into(), "s1".into()),
            Counted::Server("app".into(), "s2".into()),
            Counted::Socket("web".into(), 2),
        ];
        let blocks = counted.map(|of| CounterBlock::new(&memory, of, 2));
        blocks.iter().for_each(|block| block.add(0, Counter::Requests, 1));
        registry.sums.add(ProcessSum::RuntimeSessions, 4);
        let file = memory.file().unwrap().as_fd().try_clone_to_owned().unwrap();
        let known = read_counters(file).unwrap();
        let one = Counters::from(vec![(Counter::Requests, 1)]);
        let of_proxy = || ProxyCounts { counters: one.clone(), ..ProxyCounts::default() };
        assert_eq!(known.counts.frontends.0, [("web".into(), of_proxy())]);
        let servers = ["s1", "s2"].map(|name| (name.into(), ServerCounts { counters: one.clone(), open: 0 }));
        let servers = ProxyCounts { servers: servers.into_iter().collect(), ..ProxyCounts::default() };
        assert_eq!(known.counts.backends.0, [("app".into(), of_proxy()), ("app".into(), servers)]);
        assert_eq!(known.sockets.0, [("web/2".into(), one)]);
        assert_eq!(known.totals.connections, 4);
    }

    #[test]
    fn time_goes_on_while_nobody_serves() {
        let outages = Some(OutageMemory { since_ms: 5, is_down: true, ..OutageMemory::default() });
        let memory = ProcessMemory {
            backends: [("app".into(), BackendMemory { outages, ..BackendMemory::default() })].into_iter().collect(),
            quiet_ms: 7,
            ..ProcessMemory::default()
        };
        let at_ms = milliseconds(uptime().saturating_sub(Duration::from_secs(60)));
        let report = serde_json::to_vec(&HealthReport { at_ms, memory }).unwrap();
        let known = read_health(&report);
        let since = known.backends.0[0].1.outages.as_ref().unwrap().since_ms;
        assert!((60_005..90_000).contains(&since) && known.quiet_ms - 7 == since - 5, "{since}");
        assert!(read_health(b"not one of ours").is_empty());
    }
}
