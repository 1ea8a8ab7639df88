//! What became of reloads, and the sums of the process that no proxy has: for metrics, and for the process that takes over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::output::losses;
use baton_proxy::{Generation, ListenerPlan, ProcessSum};

use super::{ChangeLine, Ready};
use crate::handover::memory::{Counters, Named, ProcessMemory, ProcessTotals};
use crate::handover::{self, crashed, totals};

/// Reloads so far.
#[derive(Clone, Debug)]
pub(crate) struct ReloadFigures {
    /// Those whose configuration came into use.
    pub applied: u64,
    /// The others.
    pub rejected: u64,
    /// How long all of them took, from the reading of the files on.
    pub spent: Duration,
    /// `None` before the first of this process.
    pub last: Option<LastReload>,
}

/// The last one.
#[derive(Clone, Debug)]
pub(crate) struct LastReload {
    /// Its configuration came into use.
    pub is_applied: bool,
    /// How long it took.
    pub took: Duration,
    /// When it was over, in seconds since 1970.
    pub at: u64,
}

impl ChangeLine {
    /// What became of reloads.
    pub(crate) fn reloads(&self) -> ReloadFigures {
        let sums = &self.registry.sums;
        ReloadFigures {
            applied: sums.get(ProcessSum::ReloadsApplied),
            rejected: sums.get(ProcessSum::ReloadsRejected),
            spent: Duration::from_nanos(sums.get(ProcessSum::ReloadsNs)),
            last: self.last_reload.clone(),
        }
    }

    /// A reload is over, at this time in seconds since 1970.
    pub(crate) fn note_reload(&mut self, is_applied: bool, took: Duration, at: u64) {
        let sums = &self.registry.sums;
        sums.add(if is_applied { ProcessSum::ReloadsApplied } else { ProcessSum::ReloadsRejected }, 1);
        sums.add(ProcessSum::ReloadsNs, u64::try_from(took.as_nanos()).unwrap_or_default());
        self.last_reload = Some(LastReload { is_applied, took, at });
    }

    /// The sums that no proxy has.
    pub(crate) fn totals(&self) -> ProcessTotals {
        ProcessTotals { lost_lines: totals::lost_lines(), ..totals::of_sums(|sum| self.registry.sums.get(sum)) }
    }

    /// Whether servers went up or down, checks failed or log lines were lost since this was asked last.
    pub(crate) fn take_health_news(&mut self) -> bool {
        let lost = losses::total();
        let is_lossy = std::mem::replace(&mut self.told_losses, lost) != lost;
        self.checker.take_news() || is_lossy
    }

    /// The health of servers, for a master to keep.
    pub(crate) fn health_to_bytes(&self) -> Option<Vec<u8>> {
        crashed::health_to_bytes(self.generation.as_deref()?, &self.checker, Instant::now()).ok()
    }

    /// Goes on from what is known of a worker that crashed; for the first configuration, before its commit.
    pub fn recall_crashed(&mut self, ready: &Ready, known: &ProcessMemory, now: Instant) {
        handover::state::recall(known, &ready.generation, &mut self.checker, now);
        self.recall_totals(&known.totals);
        self.counted_sockets.0.extend_from_slice(&known.sockets.0);
        self.recall_variables(&known.variables);
        self.history_before.extend_from_slice(&known.history);
    }

    /// What sockets counted.
    pub(crate) fn remember_sockets(&self) -> Named<Counters> {
        self.generation.as_deref().map(sockets).unwrap_or_default()
    }

    /// Goes on from those of a process before this one.
    pub(super) fn recall_totals(&mut self, totals: &ProcessTotals) {
        for (sum, amount) in totals::sums(totals) {
            self.registry.sums.add(sum, amount);
        }
        for (target, lost) in totals.lost_lines.iter() {
            losses::of(target).inherit(*lost);
        }
    }

    /// The sockets of the first configuration are open: they go on from what those before counted.
    pub(super) fn recall_sockets(&mut self) {
        let counted = std::mem::take(&mut self.counted_sockets);
        let Some(generation) = self.generation.as_deref().filter(|_| !counted.is_empty()) else { return };
        let counted: HashMap<&str, &Counters> =
            counted.iter().map(|(socket, counters)| (&**socket, counters)).collect();
        for plan in &generation.listeners {
            if let Some(counters) = counted.get(&*socket_name(plan)) {
                counters.add_to(&plan.state.counters);
            }
        }
    }
}

/// What sockets counted.
fn sockets(generation: &Generation) -> Named<Counters> {
    let counted = generation.listeners.iter().filter(|plan| !plan.state.counters.is_untouched());
    counted.map(|plan| (socket_name(plan), Counters::of(&plan.state.counters))).collect()
}

/// What a socket is called between processes.
fn socket_name(plan: &ListenerPlan) -> Arc<str> {
    format!("{}/{}", plan.frontend.proxy.name, plan.number).into()
}
