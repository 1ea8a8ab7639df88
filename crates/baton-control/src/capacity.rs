//! How many clients the process takes at once, how many open files that needs, and the reasoning.
//!
//! Pure arithmetic over the configuration and the limits of the system, with HAProxy's order of who decides: what is asked
//! for counts, and otherwise as many as the open files suffice for. It changes no limit.

use std::fmt;

use baton_kernel::process::limits::OpenFiles;
use baton_model::Model;

/// Descriptors of one client connection: the client's and the server's.
const PER_CONNECTION: u64 = 2;
/// Descriptors of a core: its event loop and what wakes it, its log sockets.
const PER_CORE: u64 = 5;
/// Descriptors of a listening socket: one with the change path, and one with a core.
const PER_SOCKET: u64 = 2;
/// Descriptors of a peer: a connection of each direction, and one that waits for its first lines.
const PER_PEER: usize = 3;
/// Descriptors of a pipe for splicing.
const PER_PIPE: u64 = 2;
/// Descriptors kept back for the process itself: standard streams, signals, files being read, questions by `baton reload` and
/// its like, and connections that cores accept at the same moment.
const OWN: u64 = 64;
/// The fewest connections that are worth a start, as in HAProxy.
const MAXCONN_MIN: u32 = 100;

/// How many connections the process has at once, and why that many.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capacity {
    /// Client connections of the whole process, each with one connection to a server.
    pub maxconn: u32,
    /// Idle connections to servers besides: from what is left, as many as there may be clients.
    pub idle: u32,
    /// Open files that this needs, without the idle connections (`Maxsock` of HAProxy's `show info`).
    pub descriptors: u64,
    /// The limit of open files to ask the system for.
    pub wanted: u64,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Kept back: for listening sockets, cores, checks, pipes and the process itself.
    pub reserved: u64,
}

/// What the number of connections comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecidedBy {
    /// `maxconn` or `-n`.
    Maxconn,
    /// `ulimit-n`.
    UlimitN,
    /// `fd-hard-limit`.
    FdHardLimit,
    /// The system's hard limit of open files.
    HardLimit,
    /// `maxconn` was more than what the system gives suffices for.
    Given(u64),
}

impl Capacity {
    /// For a configuration served by `cores` threads, when the system gives up to its hard limit.
    pub fn of(model: &Model, cores: usize, system: OpenFiles) -> Capacity {
        let global = &model.global;
        let reserved = reserved(model, cores);
        if let Some(maxconn) = global.maxconn {
            let idle = u64::from(maxconn);
            let descriptors = reserved + PER_CONNECTION * u64::from(maxconn);
            let wanted = global.ulimit_n.unwrap_or(descriptors + idle);
            return Capacity { maxconn, idle: maxconn, descriptors, wanted, decided_by: DecidedBy::Maxconn, reserved };
        }
        let ceiling = global.process.fd_hard_limit.filter(|&limit| limit < system.hard);
        let (decided_by, limit) = match (global.ulimit_n, ceiling) {
            (Some(limit), _) => (DecidedBy::UlimitN, limit),
            (None, Some(limit)) => (DecidedBy::FdHardLimit, limit),
            (None, None) => (DecidedBy::HardLimit, system.hard),
        };
        // A ninth is kept for idle connections: one for every four clients.
        let affordable = affordable(limit, reserved);
        let maxconn = (affordable - affordable / 9).max(MAXCONN_MIN);
        let descriptors = reserved + PER_CONNECTION * u64::from(maxconn);
        let idle = idle(limit, descriptors, maxconn);
        Capacity { maxconn, idle, descriptors, wanted: limit, decided_by, reserved }
    }

    /// The capacity under the limit of open files at this moment.
    pub fn now(model: &Model, cores: usize) -> Capacity {
        // Without an answer, what POSIX has every process begin with.
        Capacity::of(model, cores, OpenFiles::now().unwrap_or(OpenFiles { soft: 1024, hard: 1024 }))
    }

    /// What becomes of it when the system gives `given` descriptors: never more connections than they suffice for, so that
    /// neither accepting nor connecting fails for want of one.
    pub fn within(self, given: u64) -> Capacity {
        let affordable = affordable(given, self.reserved).max(1);
        let maxconn = self.maxconn.min(affordable);
        let descriptors = self.reserved + PER_CONNECTION * u64::from(maxconn);
        let idle = self.idle.min(idle(given, descriptors, maxconn));
        let decided_by = if maxconn < self.maxconn { DecidedBy::Given(given) } else { self.decided_by };
        Capacity { maxconn, idle, descriptors, decided_by, ..self }
    }
}

/// Descriptors kept back from connections.
fn reserved(model: &Model, cores: usize) -> u64 {
    let proxies = || model.with_peers().filter(|proxy| !proxy.disabled);
    let binds: usize = proxies().map(|proxy| proxy.binds.len()).sum();
    let stats = &model.global.stats;
    let operators =
        PER_SOCKET * stats.sockets.len() as u64 + if stats.sockets.is_empty() { 0 } else { u64::from(stats.maxconn) };
    let checks = proxies().flat_map(|proxy| &proxy.servers).filter(|server| server.check.enabled).count();
    let peers: usize = model.peers.iter().map(|section| PER_PEER * section.peers.len()).sum();
    let pipes = PER_PIPE * u64::from(model.pipes_max());
    OWN + PER_CORE * cores as u64 + PER_SOCKET * (binds * cores) as u64 + operators + (checks + peers) as u64 + pipes
}

/// Connections that a number of descriptors suffices for.
fn affordable(limit: u64, reserved: u64) -> u32 {
    u32::try_from(limit.saturating_sub(reserved) / PER_CONNECTION).unwrap_or(u32::MAX)
}

/// Idle connections that fit beside the others.
fn idle(limit: u64, descriptors: u64, maxconn: u32) -> u32 {
    u32::try_from(limit.saturating_sub(descriptors)).unwrap_or(u32::MAX).min(maxconn)
}

/// The reasoning, as a sentence without its full stop, for `-vv` and for operators.
impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capacity { maxconn, idle, descriptors, wanted, decided_by, reserved } = self;
        let (limit, origin) = match decided_by {
            DecidedBy::Maxconn => {
                return write!(
                    f,
                    "{maxconn} connections as set by 'maxconn': {PER_CONNECTION} descriptors each and {reserved} for \
                     everything else, {descriptors} in total"
                );
            }
            DecidedBy::Given(given) => (given, "the system's limit, less than 'maxconn' needs"),
            DecidedBy::UlimitN => (wanted, "set by 'ulimit-n'"),
            DecidedBy::FdHardLimit => (wanted, "set by 'fd-hard-limit'"),
            DecidedBy::HardLimit => (wanted, "the system's hard limit"),
        };
        write!(
            f,
            "{maxconn} connections: {PER_CONNECTION} descriptors each, {idle} for idle server connections and {reserved} for \
             everything else fit into {limit}, {origin}"
        )
    }
}

#[cfg(test)]
mod tests {
    use baton_model::Global;

    use super::*;

    /// Two cores, nothing to listen on: 74 descriptors are kept back.
    fn of(system: (u64, u64), set: impl FnOnce(&mut Global)) -> Capacity {
        let mut model = Model::default();
        set(&mut model.global);
        Capacity::of(&model, 2, OpenFiles { soft: system.0, hard: system.1 })
    }

    #[track_caller]
    fn check(system: (u64, u64), set: impl FnOnce(&mut Global), expect: (u32, u32, u64)) {
        let capacity = of(system, set);
        assert_eq!((capacity.maxconn, capacity.idle, capacity.wanted), expect, "{capacity}");
    }

    #[test]
    fn what_is_asked_for_decides_and_otherwise_the_open_files() {
        check((1024, 18_074), |_| {}, (8000, 2000, 18_074));
        check((1024, 20_000), |global| global.maxconn = Some(1000), (1000, 1000, 3074));
        check((1024, 20_000), |global| global.maxconn = Some(30_000), (30_000, 30_000, 90_074));
        check((1024, 20_000), |global| global.ulimit_n = Some(1874), (800, 200, 1874));
        check((1024, 20_000), |global| global.process.fd_hard_limit = Some(1874), (800, 200, 1874));
        check((1024, 1874), |global| global.process.fd_hard_limit = Some(5000), (800, 200, 1874));
        check((64, 64), |_| {}, (100, 0, 64));
    }

    #[test]
    fn connections_never_need_more_descriptors_than_there_are() {
        let check = |asked, given, expect: (u32, u32)| {
            let capacity = of((1024, 4096), |global| global.maxconn = asked).within(given);
            assert_eq!((capacity.maxconn, capacity.idle), expect, "{capacity}");
            assert!(capacity.descriptors + u64::from(capacity.idle) <= given.max(76));
        };
        check(Some(1000), 3074, (1000, 1000));
        check(Some(1000), 100_000, (1000, 1000));
        check(Some(1000), 2174, (1000, 100));
        check(Some(1000), 2074, (1000, 0));
        check(Some(1000), 574, (250, 0));
        check(Some(1000), 0, (1, 0));
        check(None, 4096, (1788, 446));
        check(None, 274, (100, 0));
    }

    #[test]
    fn the_sentence_names_who_decided() {
        let text = of((1024, 20_000), |_| {}).to_string();
        assert!(text.ends_with("fit into 20000, the system's hard limit"), "{text}");
        let asked = of((1024, 20_000), |global| global.maxconn = Some(1000));
        assert!(asked.to_string().starts_with("1000 connections as set by 'maxconn'"), "{asked}");
        let lowered = asked.within(574).to_string();
        assert!(
            lowered.starts_with("250 connections: ") && lowered.contains("into 574, the system's limit"),
            "{lowered}"
        );
    }
}
