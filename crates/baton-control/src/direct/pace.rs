//! What the keeper's thread is given, and when: pure. The kernel is made what is wanted when that changes, tried again after a failure,
//! repaired when somebody else removed something, and counted every while.
//!
//! ```text
//!                 give                         well
//!   Unassigned ─────────▶ Working ───────────────────────▶ Rested, in need of nothing ◀─────────┐
//!       ▲                  ▲  │ ▲                              │ time to count               all │ there
//!       │                  │  │ │ another one is wanted,       ▼                                 │
//!       │ nothing is       │  │ │ or time to repair          Counting ──────────────────────────▶┤
//!       │ wanted           │  │ └── Rested                     (what is to be tried again       │ something
//!       │                  │  │                                 stays so)                       ▼ is missing
//!       └── Rested         │  └─ failed ▶ Rested, to be tried again ── later ──▶ Working ◀── Rested, in need of repair
//! ```

use std::time::{Duration, Instant};

/// How often counters are read.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Every so many times it is looked whether somebody else changed what is ours; what was removed is missing when counters are read.
const REPAIR_EVERY: u32 = 10;
/// After a failure it is tried again this much later, then later and later ...
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// ... up to this.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What the thread does with work `W`, and how it went so far.
#[derive(Debug)]
pub(super) struct Pace<W> {
    assignment: Assignment<W>,
    /// The last time it failed so often in a row.
    failures: u32,
    /// When counters are read next; `None`: with the next look.
    count_at: Option<Instant>,
    counts: u32,
}

/// What the thread was given.
#[derive(Debug)]
enum Assignment<W> {
    /// Nothing.
    Unassigned,
    /// It is making the kernel so.
    Working { work: W, purpose: Purpose },
    /// It is reading counters.
    Counting {
        work: W,
        /// When the work is tried again, which failed.
        retry_at: Option<Instant>,
    },
    /// It has answered.
    Rested { work: W, need: Need },
}

/// Why it works.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Purpose {
    /// Something else is wanted, or failed before.
    #[default]
    Change,
    /// What was done before was undone by another program, and is done once more.
    Repair,
}

/// What has to follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Need {
    Nothing,
    /// Somebody else has removed what is ours.
    Repair,
    /// It failed.
    Retry {
        at: Instant,
    },
}

/// What the thread is to do now.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Order<W> {
    /// Nothing, or what it is doing.
    Nothing,
    /// Make the kernel so.
    Reconcile(W),
    /// Read the counters.
    Count,
}

impl<W> Default for Pace<W> {
    fn default() -> Pace<W> {
        Pace { assignment: Assignment::Unassigned, failures: 0, count_at: None, counts: 0 }
    }
}

impl<W> Assignment<W> {
    fn work(self) -> Option<W> {
        match self {
            Assignment::Unassigned => None,
            Assignment::Working { work, .. } | Assignment::Counting { work, .. } | Assignment::Rested { work, .. } => {
                Some(work)
            }
        }
    }

    /// Work was done. An answer that comes late is one to the work before.
    fn done(self, need: Need) -> Assignment<W> {
        self.work().map_or(Assignment::Unassigned, |work| Assignment::Rested { work, need })
    }

    /// Counters were read. Those that were asked for before the work do not end it.
    fn counted(self, is_missing: bool) -> Assignment<W> {
        match self {
            Assignment::Counting { work, retry_at } => {
                let need = match (is_missing, retry_at) {
                    (true, _) => Need::Repair,
                    (false, Some(at)) => Need::Retry { at },
                    (false, None) => Need::Nothing,
                };
                Assignment::Rested { work, need }
            }
            other @ (Assignment::Unassigned | Assignment::Working { .. } | Assignment::Rested { .. }) => other,
        }
    }

    /// An answer came that is not looked at.
    fn passed(self) -> Assignment<W> {
        match self {
            counting @ Assignment::Counting { .. } => counting.counted(false),
            Assignment::Working { work, .. } => Assignment::Rested { work, need: Need::Nothing },
            other @ (Assignment::Unassigned | Assignment::Rested { .. }) => other,
        }
    }

    fn count(self) -> Assignment<W> {
        match self {
            Assignment::Rested { work, need } => {
                let retry_at = match need {
                    Need::Retry { at } => Some(at),
                    Need::Nothing | Need::Repair => None,
                };
                Assignment::Counting { work, retry_at }
            }
            other @ (Assignment::Unassigned | Assignment::Working { .. } | Assignment::Counting { .. }) => other,
        }
    }
}

impl<W> Pace<W> {
    fn change(&mut self, transition: impl FnOnce(Assignment<W>) -> Assignment<W>) {
        self.assignment = transition(std::mem::replace(&mut self.assignment, Assignment::Unassigned));
    }

    /// Whether the thread has not answered yet.
    pub fn is_at_work(&self) -> bool {
        match &self.assignment {
            Assignment::Working { .. } | Assignment::Counting { .. } => true,
            Assignment::Unassigned | Assignment::Rested { .. } => false,
        }
    }

    /// Whether it was given anything.
    pub fn has_work(&self) -> bool {
        !matches!(self.assignment, Assignment::Unassigned)
    }

    /// Why it works, or did last.
    pub fn purpose(&self) -> Purpose {
        match self.assignment {
            Assignment::Working { purpose, .. } => purpose,
            Assignment::Unassigned | Assignment::Counting { .. } | Assignment::Rested { .. } => Purpose::Change,
        }
    }

    /// When time alone makes something happen.
    pub fn due(&self) -> Option<Instant> {
        let retry_at = match &self.assignment {
            Assignment::Working { .. } | Assignment::Counting { .. } => return None,
            Assignment::Rested { need: Need::Retry { at }, .. } => Some(*at),
            Assignment::Unassigned | Assignment::Rested { .. } => None,
        };
        self.count_at.into_iter().chain(retry_at).min()
    }

    /// Gives the thread work, whatever it is doing.
    pub fn give(&mut self, work: W, now: Instant) {
        self.assign(work, Purpose::Change, now);
    }

    fn assign(&mut self, work: W, purpose: Purpose, now: Instant) {
        self.assignment = Assignment::Working { work, purpose };
        self.count_at.get_or_insert(now + COUNT_EVERY);
    }

    /// The work was done, or some of it was not.
    pub fn done(&mut self, is_well: bool, now: Instant) {
        let need = match is_well {
            true => {
                self.failures = 0;
                Need::Nothing
            }
            false => {
                let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
                self.failures += 1;
                Need::Retry { at: now + pause }
            }
        };
        self.change(|assignment| assignment.done(need));
    }

    /// Counters were read, and something of ours is not there any more.
    pub fn counted(&mut self, is_missing: bool) {
        self.change(|assignment| assignment.counted(is_missing));
    }

    /// An answer came that nobody wants.
    pub fn let_pass(&mut self) {
        self.change(Assignment::passed);
    }

    /// Counters are read with the next look.
    pub fn count_soon(&mut self, now: Instant) {
        self.count_at = Some(now);
    }

    /// Nothing is wanted any more: true when something was there. Of no use to a thread that is at work.
    pub fn stop(&mut self) -> bool {
        let had_work = self.has_work();
        self.assignment = Assignment::Unassigned;
        self.count_at = None;
        had_work
    }

    /// There is another thread, or none.
    pub fn begin_anew(&mut self) {
        self.assignment = Assignment::Unassigned;
    }
}

impl<W: Clone + PartialEq> Pace<W> {
    /// This is wanted now.
    pub fn step(&mut self, wanted: W, now: Instant) -> Order<W> {
        let (given, need) = match &self.assignment {
            Assignment::Working { .. } | Assignment::Counting { .. } => return Order::Nothing,
            Assignment::Unassigned => (None, Need::Nothing),
            Assignment::Rested { work, need } => (Some(work), *need),
        };
        let is_retried = matches!(need, Need::Retry { at } if at <= now);
        let purpose = match self.failures {
            0 => Purpose::Repair,
            _ => Purpose::Change,
        };
        if given != Some(&wanted) || is_retried {
            self.assign(wanted.clone(), Purpose::Change, now);
            return Order::Reconcile(wanted);
        }
        if need == Need::Repair {
            self.assign(wanted.clone(), purpose, now);
            return Order::Reconcile(wanted);
        }
        if self.count_at.is_some_and(|at| at > now) {
            return Order::Nothing;
        }
        self.count_at = Some(now + COUNT_EVERY);
        self.counts = self.counts.wrapping_add(1);
        if self.counts.is_multiple_of(REPAIR_EVERY) {
            self.assign(wanted.clone(), purpose, now);
            return Order::Reconcile(wanted);
        }
        self.change(Assignment::count);
        Order::Count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At each second something happens: a letter is work that is wanted, and the others are answers. Of each step it is said what the thread
    /// is to do, and when the next look is due.
    fn check(events: &[(u64, &str)], expect: &[&str]) {
        let origin = Instant::now();
        let mut pace: Pace<char> = Pace::default();
        let mut seen = Vec::new();
        for (second, event) in events {
            let now = origin + Duration::from_secs(*second);
            let order = match *event {
                "well" => {
                    pace.done(true, now);
                    String::new()
                }
                "failed" => {
                    pace.done(false, now);
                    String::new()
                }
                "counted" => {
                    pace.counted(false);
                    String::new()
                }
                "missing" => {
                    pace.counted(true);
                    String::new()
                }
                "passed" => {
                    pace.let_pass();
                    String::new()
                }
                "stop" => format!("{} ", pace.stop()),
                wanted => match pace.step(wanted.chars().next().unwrap(), now) {
                    Order::Nothing => "- ".into(),
                    Order::Reconcile(work) => format!("{work} {:?} ", pace.purpose()),
                    Order::Count => "count ".into(),
                },
            };
            let due = pace.due().map(|due| due.saturating_duration_since(origin).as_secs().to_string());
            seen.push(format!("{order}{}", due.unwrap_or_else(|| "never".into())));
        }
        assert_eq!(seen, expect, "{events:?}");
    }

    #[test]
    fn what_is_wanted_is_given_once_and_then_counted() {
        check(
            &[(0, "a"), (0, "a"), (0, "well"), (0, "a"), (1, "a"), (1, "b"), (1, "counted"), (1, "b")],
            &["a Change never", "- never", "1", "- 1", "count never", "- never", "2", "b Change never"],
        );
    }

    #[test]
    fn a_failure_is_tried_again_later_and_later() {
        check(
            &[
                (0, "a"),
                (0, "failed"),
                (1, "a"),
                (1, "failed"),
                (2, "a"),
                (2, "counted"),
                (3, "a"),
                (3, "failed"),
                (3, "a"),
            ],
            &["a Change never", "1", "a Change never", "1", "count never", "3", "a Change never", "3", "count never"],
        );
        check(
            &[(0, "a"), (0, "failed"), (0, "b"), (0, "well"), (0, "b")],
            &["a Change never", "1", "b Change never", "1", "- 1"],
        );
    }

    #[test]
    fn what_is_missing_is_repaired_at_once() {
        check(
            &[(0, "a"), (0, "well"), (1, "a"), (1, "missing"), (1, "a"), (1, "well"), (1, "a")],
            &["a Change never", "1", "count never", "2", "a Repair never", "2", "- 2"],
        );
        // After a failure it is no repair: what was not done yet is to be done.
        check(
            &[(0, "a"), (0, "failed"), (1, "a"), (1, "failed"), (2, "a"), (2, "missing"), (2, "a")],
            &["a Change never", "1", "a Change never", "1", "count never", "3", "a Change never"],
        );
    }

    #[test]
    fn every_tenth_look_is_a_repair() {
        let mut events = vec![(0, "a"), (0, "well")];
        for second in 1..10 {
            events.extend([(second, "a"), (second, "counted")]);
        }
        events.push((10, "a"));
        let mut pace: Pace<char> = Pace::default();
        let origin = Instant::now();
        let mut last = None;
        for (second, event) in events {
            let now = origin + Duration::from_secs(second);
            match event {
                "well" => pace.done(true, now),
                "counted" => pace.counted(false),
                _ => last = Some(pace.step('a', now)),
            }
        }
        assert_eq!((last, pace.purpose()), (Some(Order::Reconcile('a')), Purpose::Repair));
    }

    #[test]
    fn an_answer_that_was_let_pass_is_no_failure() {
        check(
            &[(0, "a"), (0, "passed"), (0, "a"), (1, "a"), (1, "passed"), (1, "a")],
            &["a Change never", "1", "- 1", "count never", "2", "- 2"],
        );
    }

    #[test]
    fn answers_to_what_was_asked_before_do_not_end_what_was_given_since() {
        check(&[(0, "a"), (0, "counted"), (0, "missing"), (0, "b")], &["a Change never", "never", "never", "- never"]);
        check(&[(0, "well"), (0, "a")], &["never", "a Change never"]);
    }

    #[test]
    fn nothing_is_due_when_nothing_is_wanted() {
        check(
            &[(0, "stop"), (0, "a"), (0, "failed"), (0, "stop"), (9, "a")],
            &["false never", "a Change never", "1", "true never", "a Change never"],
        );
    }
}
