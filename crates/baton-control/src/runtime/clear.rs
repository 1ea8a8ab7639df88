//! `clear counters [all]`: figures begin anew. Nothing that balances, checks or limits is touched.

use std::sync::atomic::{AtomicI64, Ordering};

use baton_model::AccessLevel;

use super::answer::Answer;
use super::session::Call;
use crate::control::Control;

/// The maxima, for an operator; with `all` the counters too, for an admin.
pub(super) fn counters(control: &mut Control, call: &Call) -> Answer {
    let all = call.arg(0) == "all";
    if all && call.level < AccessLevel::Admin {
        return Answer::error("Permission denied");
    }
    let line = &mut control.line;
    let Some(generation) = &line.generation else { return Answer::Done };
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
        line.checker.clear();
    }
    line.runtime.rates.clear_max();
    Answer::Done
}

/// The most becomes what there is.
fn lower(most: &AtomicI64, now: &AtomicI64) {
    most.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
}
