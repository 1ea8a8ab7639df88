//! Which reading of the files is under way, and what waits for it or after it: pure, so generic over the thread that reads (`T`) and over
//! who wants to know of a reload (`R`) and of a plan (`P`).
//!
//! ```text
//!          asked                     read
//!   Idle ────────▶ Reading ─────────────────────▶ the next one that waits: reloads first, all of them at once, then plan by plan
//!                   │ ▲  │
//!                   │ │  └ stuck: given up, and the next one is given more time
//!                   │ └─── a plan is asked for: it waits
//!                   └───── a reload is asked for: it waits for a reading of its own, since files may have changed; a plan that is being
//!                          read is put off until after it
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::environment::stuck::{CALL_WITHIN, OVERTAKEN_AFTER};

/// Reloads that wait for the same reading of the files, and plans that wait for theirs.
const WAITING_MAX: usize = 64;

/// All of them.
#[derive(Debug)]
pub(crate) struct Readings<T, R, P> {
    under_way: Option<Reading<T, R, P>>,
    /// A reload was asked for after the files of the current one had begun to be read, or while somebody takes over.
    again: Vec<R>,
    /// Plans that were asked for while something else was being read.
    plans: VecDeque<P>,
    /// How long a reading may wait for one file when somebody waits for it.
    patience: Duration,
}

/// Files being read on another thread.
#[derive(Debug)]
pub(crate) struct Reading<T, R, P> {
    pub task: T,
    pub since: Instant,
    pub purpose: Purpose<R, P>,
}

/// What is read for.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Purpose<R, P> {
    /// To change to it; those who want to know the outcome.
    Reload(Vec<R>),
    /// To say what a reload would do.
    Plan(P),
}

/// What becomes of a question.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Turn<R, P, A> {
    /// The files are read for it now.
    Read(Purpose<R, P>),
    /// It waits.
    Waits,
    /// Too many wait already.
    TooMany(A),
}

impl<T, R, P> Default for Readings<T, R, P> {
    fn default() -> Readings<T, R, P> {
        Readings { under_way: None, again: Vec::new(), plans: VecDeque::new(), patience: OVERTAKEN_AFTER }
    }
}

impl<T, R, P> Readings<T, R, P> {
    /// The reading under way.
    pub fn under_way(&self) -> Option<&Reading<T, R, P>> {
        self.under_way.as_ref()
    }

    /// The thread that reads.
    pub fn task(&mut self) -> Option<&mut T> {
        self.under_way.as_mut().map(|reading| &mut reading.task)
    }

    /// Whether anybody waits for a reading after the one under way.
    pub fn is_awaited(&self) -> bool {
        !self.again.is_empty() || !self.plans.is_empty()
    }

    /// A reload is asked for. `is_held`: nothing can be read at this moment.
    pub fn reload(&mut self, asker: R, is_held: bool) -> Turn<R, P, R> {
        if let Some(Reading { purpose: Purpose::Plan(_), .. }) = &self.under_way
            && let Some(Reading { purpose: Purpose::Plan(plan), .. }) = self.under_way.take()
        {
            self.plans.push_front(plan);
        }
        if self.under_way.is_none() && !is_held {
            return Turn::Read(Purpose::Reload(vec![asker]));
        }
        if self.again.len() >= WAITING_MAX {
            return Turn::TooMany(asker);
        }
        self.again.push(asker);
        Turn::Waits
    }

    /// A plan is asked for.
    pub fn plan(&mut self, plan: P, is_held: bool) -> Turn<R, P, P> {
        if self.under_way.is_none() && !is_held {
            return Turn::Read(Purpose::Plan(plan));
        }
        if self.plans.len() >= WAITING_MAX {
            return Turn::TooMany(plan);
        }
        self.plans.push_back(plan);
        Turn::Waits
    }

    /// The files are being read.
    pub fn begin(&mut self, reading: Reading<T, R, P>) {
        self.under_way = Some(reading);
    }

    /// The files were read.
    pub fn end(&mut self) -> Option<Reading<T, R, P>> {
        self.patience = OVERTAKEN_AFTER;
        self.under_way.take()
    }

    /// How long the reading may wait for one file; `None` when nobody waits for it. `is_awaited`: somebody does.
    pub fn patience(&self, is_awaited: bool) -> Option<Duration> {
        is_awaited.then_some(self.patience)
    }

    /// The reading is stuck. The next one has more time, so that reloads that keep coming do not overtake each other for ever.
    pub fn give_up(&mut self) -> Option<Reading<T, R, P>> {
        self.patience = (self.patience * 2).min(CALL_WITHIN);
        self.under_way.take()
    }

    /// What to read now for those who wait.
    pub fn next(&mut self, is_held: bool) -> Option<Purpose<R, P>> {
        if self.under_way.is_some() || is_held {
            return None;
        }
        match self.again.is_empty() {
            false => Some(Purpose::Reload(std::mem::take(&mut self.again))),
            true => self.plans.pop_front().map(Purpose::Plan),
        }
    }

    /// Nothing will be read any more: those who wait.
    pub fn stop(&mut self) -> (Vec<R>, VecDeque<P>) {
        (std::mem::take(&mut self.again), std::mem::take(&mut self.plans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Letters = Readings<(), char, char>;

    fn begin(readings: &mut Letters, purpose: Purpose<char, char>) {
        readings.begin(Reading { task: (), since: Instant::now(), purpose });
    }

    /// Small letters ask for reloads, large ones for plans, `.` says that the files were read. Gives what is read, in order: of reloads
    /// together those who asked.
    fn check(events: &str, expect: &str) {
        let mut readings = Letters::default();
        let mut read = Vec::new();
        for event in events.chars() {
            let purpose = match event {
                '.' => {
                    assert!(readings.end().is_some(), "{events}");
                    readings.next(false)
                }
                plan if plan.is_uppercase() => match readings.plan(plan, false) {
                    Turn::Read(purpose) => Some(purpose),
                    Turn::Waits | Turn::TooMany(_) => None,
                },
                reload => match readings.reload(reload, false) {
                    Turn::Read(purpose) => Some(purpose),
                    Turn::Waits | Turn::TooMany(_) => None,
                },
            };
            if let Some(purpose) = purpose {
                read.push(match &purpose {
                    Purpose::Reload(askers) => askers.iter().collect::<String>(),
                    Purpose::Plan(plan) => plan.to_string(),
                });
                begin(&mut readings, purpose);
            }
        }
        assert_eq!(read.join(" "), expect, "{events}");
    }

    #[test]
    fn reloads_that_come_meanwhile_are_one_more_reading() {
        check("a.b", "a b");
        check("abc.", "a bc");
        check("ab.c.", "a b c");
    }

    #[test]
    fn plans_wait_for_reloads_and_for_each_other() {
        check("PQ.", "P Q");
        check("aPb..", "a b P");
        check("PQa...", "P a P Q");
    }

    #[test]
    fn what_is_held_waits_and_is_bounded() {
        let mut readings = Letters::default();
        assert_eq!((readings.reload('a', true), readings.plan('P', true)), (Turn::Waits, Turn::Waits));
        assert!(readings.is_awaited() && readings.next(true).is_none());
        for _ in 1..WAITING_MAX {
            assert_eq!((readings.reload('b', true), readings.plan('Q', true)), (Turn::Waits, Turn::Waits));
        }
        assert_eq!((readings.reload('c', true), readings.plan('R', true)), (Turn::TooMany('c'), Turn::TooMany('R')));
        let Some(Purpose::Reload(askers)) = readings.next(false) else { panic!() };
        assert_eq!(askers.len(), WAITING_MAX);
        assert_eq!(readings.stop().1.len(), WAITING_MAX);
        assert!(!readings.is_awaited());
    }

    #[test]
    fn patience_grows_with_each_reading_that_is_stuck() {
        let mut readings = Letters::default();
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(readings.patience(true).unwrap().as_secs());
            begin(&mut readings, Purpose::Plan('P'));
            assert!(readings.give_up().is_some());
        }
        assert_eq!(seen, [2, 4, 8, 16, 32, 60, 60]);
        begin(&mut readings, Purpose::Plan('P'));
        readings.end();
        assert_eq!((readings.patience(true), readings.patience(false)), (Some(OVERTAKEN_AFTER), None));
    }
}
