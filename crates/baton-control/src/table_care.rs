//! Stick tables and time: entries that have expired are removed when they have, a few at a time, and what other processes held is forgotten
//! that have ended. Without tables nothing is done, and no timer is set.

use std::time::{Duration, Instant};

use baton_proxy::Registry;

/// Entries of each table that are looked at in one turn of the event loop.
const STEP: usize = 512;
/// The least time between two looks for expired entries.
const LEAST: Duration = Duration::from_millis(20);
/// The most, as entries may have been created meanwhile.
const MOST: Duration = Duration::from_secs(10);
/// How often other processes are looked after.
const OTHERS_EVERY: Duration = Duration::from_secs(1);
/// Turns for one command, which must not show what has expired.
const COMMAND_TURNS: usize = 256;

/// When to look next.
#[derive(Debug, Default)]
pub(crate) struct TableCare {
    due: Option<Instant>,
    others_due: Option<Instant>,
}

impl TableCare {
    /// When there is something to do.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Does what is due.
    pub fn step(&mut self, registry: &Registry, now: Instant) {
        if registry.tables.is_empty() {
            *self = TableCare::default();
            return;
        }
        if self.due.is_some_and(|due| due > now) {
            return;
        }
        let at = registry.timeline.at(now);
        let next = registry.tables.sweep(STEP, at);
        let wait = next.map(|next| Duration::from_millis(next.as_millis().saturating_sub(at.as_millis())));
        let wait = match wait {
            Some(Duration::ZERO) => Duration::ZERO,
            Some(wait) => wait.clamp(LEAST, MOST),
            None => MOST,
        };
        if self.others_due.is_none_or(|due| due <= now) {
            let has_others = registry.tables.look_after_processes();
            self.others_due = Some(now + if has_others { OTHERS_EVERY } else { MOST });
        }
        self.due = self.others_due.into_iter().chain([now + wait]).min();
    }

    /// A command is to see tables: without what has expired by now.
    pub fn before_command(registry: &Registry, now: Instant) {
        let at = registry.timeline.at(now);
        for _ in 0..COMMAND_TURNS {
            if registry.tables.sweep(STEP, at).is_none_or(|next| next > at) {
                return;
            }
        }
    }
}
