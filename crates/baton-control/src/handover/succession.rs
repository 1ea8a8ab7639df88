//! Where a process stands between those before it and the one after it: pure, so generic over where its reports go (`R`) and over what
//! tells a process before it whom to report to instead (`M`). Events come in, effects go out; the running process obeys them in that
//! order (`control/succeeding.rs`).
//!
//! ```text
//!            offered               ready
//!   Serving ─────────▶ Giving ───────────────▶ Given: reports, while the last connections end
//!      ▲                │ ▲ │
//!      │                │ └─┴── a soft stop is asked for: it waits
//!      └──── failed ────┘ ... until now
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::giver::Heir;
use super::memory::Counts;
use super::message::{Hello, Ready, Refused, RefusedKind, Report, Stop};
use super::wire::{VERSIONS, WireVersion};
use super::{report, state};
use crate::listeners::Place;
use crate::messages::Said;

/// Events of conversations that wait for the change path; further ones wait themselves.
pub const EVENTS_MAX: usize = 64;
/// Processes before us that are remembered by their PIDs.
pub const LINEAGE_MAX: usize = 64;

/// Where the process stands between those before it and the one after it.
#[derive(Debug)]
pub(crate) struct Succession<R, M> {
    stage: Stage<R>,
    /// Whom we took over from.
    lineage: Lineage,
    /// Processes before us that still report.
    predecessors: BTreeMap<u32, Predecessor<M>>,
}

/// PIDs of the processes from which this one took over, the oldest first. There are none until it has.
#[derive(Clone, Debug, Default)]
pub struct Lineage(Arc<OnceLock<Vec<u32>>>);

impl Lineage {
    pub(crate) fn pids(&self) -> &[u32] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    /// Whether it took over from that process, directly or through others.
    pub fn has(&self, pid: u32) -> bool {
        self.pids().contains(&pid)
    }
}

#[derive(Debug)]
enum Stage<R> {
    /// No process takes over.
    Serving,
    /// A process is taking over and does not serve yet.
    Giving(Giving),
    /// A process has taken over.
    Given(Given<R>),
}

#[derive(Debug)]
struct Giving {
    pid: u32,
    /// Where each socket that was sent listens.
    places: Vec<Place>,
    /// What was counted when the state was written down.
    counts: Counts,
    /// SIGUSR1 came meanwhile: what it asks for is done when it is clear who serves.
    is_stop_wanted: bool,
}

#[derive(Debug)]
struct Given<R> {
    /// Who serves now.
    to: Heir,
    /// `None` after the last report.
    reports: Option<R>,
    /// What was reported until now.
    reported: Counts,
    /// Client connections, as they were reported last.
    connections: Option<u64>,
    /// Those that do not move, as they were reported last.
    staying: BTreeMap<String, u64>,
    /// When to report next.
    next: Instant,
    /// `-st`: connections are not waited for.
    is_cut: bool,
}

/// A process before this one.
#[derive(Debug)]
struct Predecessor<M> {
    /// Sessions it holds, by backend and server.
    open: HashMap<ServerName, u32>,
    /// Client connections it still serves; `None` until it reports them.
    connections: Option<u64>,
    /// Those of them that do not move, by reason.
    staying: BTreeMap<String, u64>,
    /// Tells it whom to report to instead.
    moved: Option<M>,
}

impl<M> Default for Predecessor<M> {
    fn default() -> Predecessor<M> {
        Predecessor { open: HashMap::new(), connections: None, staying: BTreeMap::new(), moved: None }
    }
}

/// Backend and server.
type ServerName = (Arc<str>, Arc<str>);

/// What the running process does.
#[derive(Debug, PartialEq)]
pub(crate) enum SuccessionEffect<M> {
    /// Logs this.
    Log(Said),
    /// Goes on with the sockets that it offered.
    TakeSocketsBack,
    /// Begins the soft stop that waited.
    SoftStop,
    /// Reads the files for those who waited.
    ReadAgain,
    /// Leaves the kernel's services to the other process.
    RestDirect,
    /// All sockets of this address are the other process's.
    HandOver(Place),
    /// Keeps the other sockets that it offered.
    KeepOffered,
    /// Stops accepting; open connections end.
    Drain,
    /// Tells a process before this one whom to report to instead.
    Redirect(M, Heir),
    /// Tells the master which process has taken over.
    TellMaster(u32),
    /// Tells those who wait for a reading of the files that there will be none.
    RefuseWaiting(String),
    /// Processes before this one hold so many sessions on this server.
    CountElsewhere { backend: Arc<str>, server: Arc<str>, open: u32 },
}

impl<R, M> Default for Succession<R, M> {
    fn default() -> Succession<R, M> {
        Succession { stage: Stage::Serving, lineage: Lineage::default(), predecessors: BTreeMap::new() }
    }
}

/// Questions.
impl<R, M> Succession<R, M> {
    /// Whether a process is taking over at this moment: nothing may change until it is clear who serves.
    pub fn is_giving(&self) -> bool {
        matches!(self.stage, Stage::Giving(_))
    }

    /// Whether this process serves, and no other one takes over or has.
    pub fn is_undisputed(&self) -> bool {
        matches!(self.stage, Stage::Serving)
    }

    /// Who has taken over.
    pub fn successor(&self) -> Option<u32> {
        match &self.stage {
            Stage::Given(given) => Some(given.to.pid),
            Stage::Serving | Stage::Giving(_) => None,
        }
    }

    /// Whom we took over from.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Whether processes before us have not ended yet.
    pub fn has_predecessors(&self) -> bool {
        !self.predecessors.is_empty()
    }

    /// Whether connections are not waited for.
    pub fn is_cut(&self) -> bool {
        matches!(&self.stage, Stage::Given(given) if given.is_cut)
    }

    /// Whether to report what was counted.
    pub fn is_due(&self, now: Instant) -> bool {
        matches!(&self.stage, Stage::Given(given) if given.reports.is_some() && given.next <= now)
    }
}

/// As the old process.
impl<R, M> Succession<R, M> {
    /// A process of this user wants to take over: the version to speak. `may_take`: the user may have listening sockets.
    ///
    /// # Errors
    /// Why it may not, or not now.
    pub fn judge(&self, uid: u32, may_take: bool, hello: &Hello, is_stopping: bool) -> Result<WireVersion, Refused> {
        let refuse = |kind, reason: String| Err(Refused { kind, reason, successor: None });
        if !may_take {
            let reason = format!(
                "user {uid} is not permitted to take its listening sockets; permitted are root, the user that started it, and \
                 the `user` of a `stats socket` with `expose-fd listeners` in its configuration"
            );
            return refuse(RefusedKind::Never, reason);
        }
        let Some(version) = WireVersion::common(&hello.versions) else {
            let reason = format!("it supports versions {VERSIONS:?} of the handover, not {:?}", hello.versions);
            return refuse(RefusedKind::Never, reason);
        };
        if let Some(after) = hello.after.filter(|after| !self.lineage.has(*after)) {
            return refuse(RefusedKind::Never, format!("it did not take over from process {after}"));
        }
        match &self.stage {
            Stage::Given(given) => {
                let reason = format!("process {} has taken over already", given.to.pid);
                Err(Refused { kind: RefusedKind::Stopping, reason, successor: Some(given.to.pid) })
            }
            Stage::Serving | Stage::Giving(_) if is_stopping => refuse(RefusedKind::Stopping, "it is stopping".into()),
            Stage::Giving(giving) => {
                refuse(RefusedKind::Busy, format!("process {} is taking over from it", giving.pid))
            }
            Stage::Serving => Ok(version),
        }
    }

    /// Sockets and state are offered to a process that may take over. `places`: where each of the sockets listens.
    pub fn offer(&mut self, pid: u32, places: Vec<Place>, counts: Counts) {
        self.stage = Stage::Giving(Giving { pid, places, counts, is_stop_wanted: false });
    }

    /// The process left before it got the offer.
    pub fn withdraw(&mut self) -> Vec<SuccessionEffect<M>> {
        match std::mem::replace(&mut self.stage, Stage::Serving) {
            Stage::Giving(_) => vec![SuccessionEffect::TakeSocketsBack],
            other @ (Stage::Serving | Stage::Given(_)) => {
                self.stage = other;
                Vec::new()
            }
        }
    }

    /// A soft stop is asked for: true when it has to wait.
    pub fn defer_stop(&mut self) -> bool {
        match &mut self.stage {
            Stage::Giving(giving) => {
                giving.is_stop_wanted = true;
                true
            }
            Stage::Serving | Stage::Given(_) => false,
        }
    }

    /// The process that was taking over failed: everything is as before, and what had to wait is done now.
    pub fn failed(&mut self, reason: &str) -> Vec<SuccessionEffect<M>> {
        let Some(giving) = self.end_giving() else { return Vec::new() };
        let text = format!("Process {} did not take over: {reason}. This process keeps serving.", giving.pid);
        let stop = giving.is_stop_wanted.then_some(SuccessionEffect::SoftStop);
        let mut effects = vec![SuccessionEffect::Log(Said::Trouble(text)), SuccessionEffect::TakeSocketsBack];
        effects.extend(stop);
        effects.push(SuccessionEffect::ReadAgain);
        effects
    }

    /// The process that was taking over serves. Nothing follows where none was.
    pub fn ready(&mut self, ready: &Ready, version: WireVersion, reports: R, now: Instant) -> Vec<SuccessionEffect<M>> {
        let Some(giving) = self.end_giving() else { return Vec::new() };
        let pid = ready.pid;
        let to = Heir { pid, version, takes: ready.takes() };
        self.stage = Stage::Given(Given {
            to,
            reports: Some(reports),
            reported: giving.counts,
            connections: None,
            staying: BTreeMap::new(),
            next: now,
            is_cut: ready.stop == Stop::Now,
        });
        let mut effects = vec![SuccessionEffect::RestDirect];
        let taken = taken_whole(&giving.places, &ready.taken);
        effects.extend(taken.into_iter().cloned().map(SuccessionEffect::HandOver));
        effects.extend([SuccessionEffect::KeepOffered, SuccessionEffect::Drain]);
        let moved = self.predecessors.values_mut().filter_map(|predecessor| predecessor.moved.take());
        effects.extend(moved.map(|moved| SuccessionEffect::Redirect(moved, to)));
        effects.extend([
            SuccessionEffect::Log(Said::News(format!("Process {pid} has taken over."))),
            SuccessionEffect::TellMaster(pid),
            SuccessionEffect::RefuseWaiting(format!("process {pid} has taken over")),
        ]);
        effects
    }

    fn end_giving(&mut self) -> Option<Giving> {
        match std::mem::replace(&mut self.stage, Stage::Serving) {
            Stage::Giving(giving) => Some(giving),
            other @ (Stage::Serving | Stage::Given(_)) => {
                self.stage = other;
                None
            }
        }
    }

    /// So much has been counted by now, and so many client connections are open: what is to be reported of it, if it is new.
    pub fn report(
        &mut self,
        counts: Counts,
        connections: u64,
        staying: BTreeMap<String, u64>,
        now: Instant,
    ) -> Option<(&R, Report)> {
        let Stage::Given(given) = &mut self.stage else { return None };
        given.next = now + report::EVERY;
        if counts == given.reported && Some(connections) == given.connections && staying == given.staying {
            return None;
        }
        given.staying.clone_from(&staying);
        let report = Report { counts: state::since(&given.reported, &counts), connections, staying, last: false };
        (given.reported, given.connections) = (counts, Some(connections));
        given.reports.as_ref().map(|reports| (reports, report))
    }

    /// The last connection has ended, and so much was counted: the last report.
    pub fn report_last(&mut self, counts: &Counts) -> Option<(R, Report)> {
        let Stage::Given(given) = &mut self.stage else { return None };
        let counts = state::since(&given.reported, counts);
        let report = Report { counts, last: true, ..Report::default() };
        given.reports.take().map(|reports| (reports, report))
    }
}

/// As the new process.
impl<R, M> Succession<R, M> {
    /// It took over from these, of whom those that were asked for their sockets are last.
    pub fn took_over(&self, mut lineage: Vec<u32>) {
        let older = lineage.len().saturating_sub(LINEAGE_MAX);
        // A process takes over once in its life, before it serves.
        let _ = self.lineage.0.set(lineage.split_off(older));
    }

    /// A process that it took over from reports from now on. `moved` tells it whom to report to instead.
    pub fn expect_reports(&mut self, from: u32, moved: M) {
        let moved = Some(moved);
        self.predecessors.insert(from, Predecessor { moved, ..Predecessor::default() });
    }

    /// A process connects that was sent on by the one which it reported to. `is_older`: it was there before we were; a PID is given to
    /// another process some day. `None` when it is none before us.
    pub fn joined(&mut self, from: u32, is_older: bool, moved: M) -> Option<Vec<SuccessionEffect<M>>> {
        if !is_older || !self.lineage.has(from) {
            return None;
        }
        let (moved, effects) = match &self.stage {
            // On to the next one.
            Stage::Given(given) => (None, vec![SuccessionEffect::Redirect(moved, given.to)]),
            Stage::Serving | Stage::Giving(_) => (Some(moved), Vec::new()),
        };
        self.predecessors.insert(from, Predecessor { moved, ..Predecessor::default() });
        Some(effects)
    }

    /// A process before us still serves so many client connections, of which those do not move.
    pub fn still_serves(&mut self, from: u32, connections: u64, staying: BTreeMap<String, u64>) {
        if let Some(predecessor) = self.predecessors.get_mut(&from) {
            (predecessor.connections, predecessor.staying) = (Some(connections), staying);
        }
    }

    /// Processes before us that have not ended, with the client connections they serve, as far as they reported them.
    pub fn predecessors(&self) -> impl Iterator<Item = (u32, Option<u64>)> {
        self.predecessors.iter().map(|(pid, predecessor)| (*pid, predecessor.connections))
    }

    /// Client connections of processes before us that do not move, by reason.
    pub fn staying_elsewhere(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (reason, count) in self.predecessors.values().flat_map(|predecessor| &predecessor.staying) {
            *sum.entry(reason.clone()).or_default() += count;
        }
        sum
    }

    /// A process before us reports what it holds; how many sessions all of them hold on each server that this is about.
    pub fn reported(&mut self, from: u32, counts: &Counts) -> Vec<SuccessionEffect<M>> {
        let mut open = HashMap::new();
        for (backend, figures) in counts.backends.iter() {
            for (server, figures) in figures.servers.iter().filter(|(_, figures)| figures.open > 0) {
                open.insert((backend.clone(), server.clone()), figures.open);
            }
        }
        self.hold(from, open)
    }

    /// A process before us has ended, or reports elsewhere by now.
    pub fn left(&mut self, from: u32) -> Vec<SuccessionEffect<M>> {
        let effects = self.hold(from, HashMap::new());
        self.predecessors.remove(&from);
        effects
    }

    fn hold(&mut self, from: u32, open: HashMap<ServerName, u32>) -> Vec<SuccessionEffect<M>> {
        let Some(predecessor) = self.predecessors.get_mut(&from) else { return Vec::new() };
        let before = std::mem::replace(&mut predecessor.open, open.clone());
        let names: HashSet<ServerName> = before.into_keys().chain(open.into_keys()).collect();
        let sum = |name: ServerName| {
            let all = self.predecessors.values().filter_map(|one| one.open.get(&name));
            let open = all.fold(0_u32, |sum, open| sum.saturating_add(*open));
            SuccessionEffect::CountElsewhere { backend: name.0, server: name.1, open }
        };
        names.into_iter().map(sum).collect()
    }
}

/// Places all of whose sockets are taken. `places` has that of each socket, `taken` numbers of sockets from 0.
fn taken_whole<'p>(places: &'p [Place], taken: &[u32]) -> HashSet<&'p Place> {
    let taken: HashSet<u32> = taken.iter().copied().collect();
    let left: HashSet<&Place> =
        (0..).zip(places).filter(|(number, _)| !taken.contains(number)).map(|(_, place)| place).collect();
    places.iter().filter(|place| !left.contains(place)).collect()
}

#[cfg(test)]
mod tests;
