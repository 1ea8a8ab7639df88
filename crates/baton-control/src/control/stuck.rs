//! When readings under way are looked at, and given up ([`verdict`]).

use std::time::{Duration, Instant};

use super::Control;
use crate::environment::stuck::{OVERTAKEN_AFTER, verdict};

/// How often readings under way are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Control {
    /// When readings under way are looked at again.
    pub(crate) fn look_at_readings(&self) -> Option<Instant> {
        let is_any = self.readings.under_way().is_some() || self.certificates.is_looking();
        is_any.then(|| Instant::now() + LOOK_EVERY)
    }

    /// Gives up readings that do not come forward.
    pub(crate) fn step_readings(&mut self) {
        let now = Instant::now();
        let is_awaited = self.readings.is_awaited();
        self.give_up_reading(now, is_awaited);
        let awaited = (self.readings.under_way().is_some() || is_awaited).then_some(OVERTAKEN_AFTER);
        let said = self.certificates.give_up(now, awaited);
        self.messages.tell(said);
    }

    /// Gives up the reading of a reload if it is stuck; `is_awaited`: somebody waits for it to end. True when there is none (any more).
    pub(crate) fn give_up_reading(&mut self, now: Instant, is_awaited: bool) -> bool {
        let Some(reading) = self.readings.under_way() else { return true };
        if reading.task.loaded.is_finished() {
            return false;
        }
        let awaited = self.readings.patience(is_awaited);
        let time = now.saturating_duration_since(reading.since);
        let Some(reason) = verdict(time, &reading.task.outside.progress(), now, awaited) else { return false };
        if let Some(reading) = self.readings.give_up() {
            let outcome = self.line.give_up(&reason);
            self.conclude_reading(reading, Ok(outcome));
        }
        self.readings.under_way().is_none()
    }
}
