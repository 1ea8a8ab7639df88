//! `clear counters [all]`: figures begin anew. Nothing that balances, checks or limits is touched.

use std::sync::atomic::{AtomicI64, Ordering};

use baton_proxy::ProcessSum;

use super::ChangeLine;

impl ChangeLine {
    /// Forgets the maxima; with `all` the counters too.
    pub(super) fn clear_counters(&mut self, all: bool) {
        let Some(generation) = &self.generation else { return };
        for plan in &generation.frontends {
            lower(&plan.state.open_max, &plan.state.open);
            if all {
                plan.state.counters.clear();
            }
        }
        for plan in &generation.listeners {
            lower(&plan.state.open_max, &plan.state.open);
            if all {
                plan.state.counters.clear();
            }
        }
        for plan in generation.backends.values() {
            lower(&plan.figures.open_max, &plan.figures.open);
            plan.state.clear(all);
            for counters in plan.servers.values().map(|server| &*server.counters).chain([&plan.figures.counters]) {
                match all {
                    true => counters.clear(),
                    false => counters.clear_longest(),
                }
            }
        }
        if all {
            for sum in [ProcessSum::Connections, ProcessSum::Requests, ProcessSum::BytesOut] {
                self.registry.sums.clear(sum);
            }
            self.checker.clear();
        }
        self.runtime.rates.clear_max();
    }
}

/// The most becomes what there is.
fn lower(most: &AtomicI64, now: &AtomicI64) {
    most.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
}
