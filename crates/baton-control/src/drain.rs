//! The soft stop (SIGUSR1): `grace`, then no new connections, then the wait for the last one, at most
//! `hard-stop-after` (configuration manual, 3.1). Pure: the caller closes, tells the cores and sets the timer.

use std::time::{Duration, Instant};

use baton_model::Global;

/// How often to look whether the last connection has gone, at first ...
const LOOK_FIRST: Duration = Duration::from_millis(20);
/// ... and in the end: a process that waits for hours for one connection does not wake others' cores for it.
const LOOK_LATE: Duration = Duration::from_secs(1);
/// In between, it is noticed this part of the time too late that the last one is gone.
const LATE_BY: u32 = 20;

/// A soft stop under way.
#[derive(Clone, Debug)]
pub struct Drain {
    stage: Stage,
    /// Counts from the end of the grace time, as in HAProxy.
    hard_stop_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Goes on serving until then.
    Grace { until: Instant },
    /// No new connections since then.
    Draining { since: Instant },
}

/// What is left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Left {
    /// Client connections.
    pub connections: usize,
    /// Listening addresses whose queue is not known to be empty yet.
    pub listeners: usize,
}

/// What to do in a soft stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DrainStep {
    /// Ask again at this instant.
    Wait(Instant),
    /// Retire all listeners and tell the cores to drain; then ask again.
    StopListening,
    /// Nobody is left.
    Done,
    /// The time is up: cut off who is left.
    HardStop,
}

impl Drain {
    /// A soft stop with the settings of `global`.
    pub fn start(global: &Global, now: Instant) -> Drain {
        let until = now + global.grace.unwrap_or_default();
        Drain { stage: Stage::Grace { until }, hard_stop_after: global.hard_stop_after }
    }

    /// A graceful stop without `grace`, for a process that does not listen any more: another one serves already.
    pub fn draining(global: &Global, now: Instant) -> Drain {
        Drain { stage: Stage::Draining { since: now }, hard_stop_after: global.hard_stop_after }
    }

    /// What to do at `now`.
    pub fn step(&mut self, now: Instant, left: Left) -> DrainStep {
        match self.stage {
            Stage::Grace { until } if now < until => DrainStep::Wait(until),
            Stage::Grace { .. } => {
                self.stage = Stage::Draining { since: now };
                DrainStep::StopListening
            }
            Stage::Draining { .. } if left == (Left { connections: 0, listeners: 0 }) => DrainStep::Done,
            Stage::Draining { since } => {
                let next = now + (now.saturating_duration_since(since) / LATE_BY).clamp(LOOK_FIRST, LOOK_LATE);
                match self.hard_stop_after.map(|after| since + after) {
                    Some(end) if now >= end => DrainStep::HardStop,
                    Some(end) => DrainStep::Wait(end.min(next)),
                    None => DrainStep::Wait(next),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps at milliseconds with (connections, listeners) left; the outcome as a word each.
    fn check(grace: Option<u64>, hard: Option<u64>, steps: &[(u64, usize, usize)], expect: &str) {
        let start = Instant::now();
        let global = Global {
            grace: grace.map(Duration::from_millis),
            hard_stop_after: hard.map(Duration::from_millis),
            ..Global::default()
        };
        let mut drain = Drain::start(&global, start);
        let mut words = Vec::new();
        for (ms, connections, listeners) in steps {
            let left = Left { connections: *connections, listeners: *listeners };
            words.push(match drain.step(start + Duration::from_millis(*ms), left) {
                DrainStep::Wait(until) => format!("until {}", until.duration_since(start).as_millis()),
                DrainStep::StopListening => "stop".into(),
                DrainStep::Done => "done".into(),
                DrainStep::HardStop => "cut".into(),
            });
        }
        assert_eq!(words.join(", "), expect);
    }

    #[test]
    fn without_settings_it_waits_for_the_last_one() {
        check(None, None, &[(0, 2, 1), (0, 2, 1), (500, 0, 1), (600, 0, 0)], "stop, until 20, until 525, done");
    }

    #[test]
    fn it_looks_less_often_the_longer_it_waits() {
        check(
            None,
            None,
            &[(0, 1, 0), (10, 1, 0), (4000, 1, 0), (90_000, 1, 0)],
            "stop, until 30, until 4200, until 91000",
        );
    }

    #[test]
    fn grace_goes_on_serving_even_when_idle() {
        check(Some(100), None, &[(0, 0, 1), (99, 0, 1), (100, 0, 1), (101, 0, 0)], "until 100, until 100, stop, done");
    }

    #[test]
    fn the_hard_stop_counts_from_the_end_of_grace() {
        check(Some(100), Some(50), &[(100, 1, 0), (145, 1, 0), (150, 1, 0)], "stop, until 150, cut");
        check(None, Some(50), &[(0, 1, 0), (60, 0, 0)], "stop, done");
    }
}
