//! What became of reloads, and the sums of the process that no proxy has: for metrics, and for the process that takes over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baton_kernel::output::losses;
use baton_proxy::{Generation, ListenerPlan};

use super::ChangeLine;
use crate::handover::memory::{Counters, Named, ProcessTotals};

/// Reloads so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadFigures {
    /// Those whose configuration came into use.
    pub applied: u64,
    /// The others.
    pub rejected: u64,
    /// How long all of them took, from the reading of the files on.
    pub spent: Duration,
    /// `None` before the first.
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

impl ReloadFigures {
    fn add(&mut self, is_applied: bool, took: Duration, at: u64) {
        match is_applied {
            true => self.applied += 1,
            false => self.rejected += 1,
        }
        self.spent += took;
        self.last = Some(LastReload { is_applied, took, at });
    }
}

impl ChangeLine {
    /// What became of reloads.
    pub(crate) fn reloads(&self) -> &ReloadFigures {
        &self.reloads
    }

    /// A reload is over, at this time in seconds since 1970.
    pub(crate) fn note_reload(&mut self, is_applied: bool, took: Duration, at: u64) {
        self.reloads.add(is_applied, took, at);
    }

    /// The sums that no proxy has.
    pub(crate) fn totals(&self) -> ProcessTotals {
        let (removed, sessions) = (&self.registry.removed, self.runtime.sessions().1);
        let lossy = losses::all().into_iter().filter(|losses| losses.lost() > 0);
        ProcessTotals {
            connections: removed.connections.load(Ordering::Relaxed) + sessions,
            requests: removed.requests.load(Ordering::Relaxed),
            bytes_out: removed.bytes_out.load(Ordering::Relaxed),
            tls_handshakes: self.registry.tls.total.load(Ordering::Relaxed),
            reloads_applied: self.reloads.applied,
            reloads_rejected: self.reloads.rejected,
            reloads_ns: u64::try_from(self.reloads.spent.as_nanos()).unwrap_or(u64::MAX),
            lost_lines: lossy.map(|losses| (losses.name().into(), losses.lost())).collect(),
        }
    }

    /// What sockets counted.
    pub(crate) fn remember_sockets(&self) -> Named<Counters> {
        self.generation.as_deref().map(sockets).unwrap_or_default()
    }

    /// Goes on from those of a process before this one.
    pub(super) fn recall_totals(&mut self, totals: &ProcessTotals) {
        let removed = &self.registry.removed;
        removed.connections.fetch_add(totals.connections, Ordering::Relaxed);
        removed.requests.fetch_add(totals.requests, Ordering::Relaxed);
        removed.bytes_out.fetch_add(totals.bytes_out, Ordering::Relaxed);
        self.registry.tls.total.fetch_add(totals.tls_handshakes, Ordering::Relaxed);
        self.reloads.applied = self.reloads.applied.saturating_add(totals.reloads_applied);
        self.reloads.rejected = self.reloads.rejected.saturating_add(totals.reloads_rejected);
        self.reloads.spent = self.reloads.spent.saturating_add(Duration::from_nanos(totals.reloads_ns));
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
