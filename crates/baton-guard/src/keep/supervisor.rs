//! Which program serves, which comes, which drain: decided from events and the time, without any I/O.
//!
//! ```text
//!            started            ready              another is ready         ended
//!  (nothing) ───────▶ coming ───────▶ serving ───────────────▶ draining ────────▶ (nothing)
//!                        │ ended, or not ready in time: killed; who serves goes on
//! ```
//!
//! A program that has ended may have left others behind that it started: they drain as if they were the program.

use std::time::{Duration, Instant};

/// The most programs that drain at the same time; a restart beyond is refused.
pub const DRAINING_MAX: usize = 16;

/// The shortest and the longest wait before a program that ended unasked is started again.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// A program that served so long before it ended is started again at once.
pub const STEADY: Duration = Duration::from_secs(10);

/// How long a program that never served may take to end after SIGTERM.
const UNREADY_END_MAX: Duration = Duration::from_secs(2);

/// One start of the program; numbers count up from 1.
pub type Number = u64;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The program is to be started anew (SIGHUP).
    Restart,
    /// Everything is to end (SIGTERM, SIGINT); the second time at once.
    Stop,
    /// The program of [`Action::Start`] could not be started.
    NotStarted(Number, String),
    /// It serves.
    Ready(Number),
    /// It was asked whether it serves, and does not, for this reason.
    NotYet(Number, String),
    /// It has ended, in these words, and nothing that it started is left.
    Ended(Number, String),
    /// It has ended, in these words; what it started and left behind was told to drain. [`Event::Ended`] follows when that is gone.
    Orphaned(Number, String),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the program.
    Start(Number),
    /// Tell it to drain: the signal that was chosen.
    Drain(Number),
    /// Tell it to end (SIGTERM): it never served.
    Terminate(Number),
    /// Kill it and all that it has started.
    Kill(Number),
    /// Tell the operator.
    Say(String),
    /// Tell the service manager: a restart has begun.
    TellReloading,
    /// Tell the service manager: somebody serves, and how we are.
    TellReady(String),
    /// Tell the service manager: a stop has begun.
    TellStopping,
    /// Leave, with this exit code.
    Leave(u8),
}

/// What does not change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a program may take until it serves.
    pub ready_within: Duration,
    /// How long one may drain before it is killed; `None`: until it is done.
    pub drain_max: Option<Duration>,
}

/// The state of everything.
#[derive(Debug)]
pub struct Supervisor {
    limits: Limits,
    last: Number,
    serving: Option<Serving>,
    coming: Option<StartingInstance>,
    draining: Vec<Draining>,
    /// A restart was asked for while one was going on.
    again: bool,
    /// When the program is started again, after it ended unasked.
    retry: Option<Instant>,
    /// How often in a row it ended soon.
    failures: u32,
    has_served: bool,
    stopping: Option<Stopping>,
    /// What the program leaves with.
    code: u8,
}

#[derive(Debug)]
struct Serving {
    number: Number,
    since: Instant,
}

#[derive(Debug)]
struct StartingInstance {
    number: Number,
    until: Instant,
    /// Why it does not serve yet, if it was asked.
    why: Option<String>,
}

#[derive(Debug)]
struct Draining {
    number: Number,
    kill_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    Draining,
    Killing,
}

impl Supervisor {
    /// Nothing runs yet.
    pub fn new(limits: Limits) -> Supervisor {
        Supervisor {
            limits,
            last: 0,
            serving: None,
            coming: None,
            draining: Vec::new(),
            again: false,
            retry: None,
            failures: 0,
            has_served: false,
            stopping: None,
            code: 0,
        }
    }

    /// The first start.
    pub fn begin(&mut self, now: Instant) -> Vec<Action> {
        vec![self.start(now)]
    }

    /// The program that has been started and does not serve yet.
    pub fn coming(&self) -> Option<Number> {
        self.coming.as_ref().map(|coming| coming.number)
    }

    /// How long the program that does not serve yet may take until it does.
    pub fn left(&self, now: Instant) -> Duration {
        self.coming.as_ref().map(|coming| coming.until.saturating_duration_since(now)).unwrap_or_default()
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn wakes(&self) -> Option<Instant> {
        let coming = self.coming.as_ref().map(|coming| coming.until);
        let draining = self.draining.iter().filter_map(|draining| draining.kill_at);
        draining.chain(coming).chain(self.retry).min()
    }

    /// What to do about an event.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Restart => self.restart(now),
            Event::Stop => self.stop(now),
            Event::NotStarted(number, why) => self.not_started(number, &why, now),
            Event::Ready(number) => self.ready(number, now),
            Event::NotYet(number, why) => {
                if let Some(coming) = self.coming.as_mut().filter(|coming| coming.number == number) {
                    coming.why = Some(why);
                }
                Vec::new()
            }
            Event::Ended(number, how) => self.ended(number, &how, false, now),
            Event::Orphaned(number, how) => self.ended(number, &how, true, now),
            Event::Tick => self.tick(now),
        }
    }

    fn start(&mut self, now: Instant) -> Action {
        self.last += 1;
        self.retry = None;
        self.coming = Some(StartingInstance { number: self.last, until: now + self.limits.ready_within, why: None });
        Action::Start(self.last)
    }

    fn restart(&mut self, now: Instant) -> Vec<Action> {
        if self.stopping.is_some() {
            return Vec::new();
        }
        if self.coming.is_some() {
            self.again = true;
            return Vec::new();
        }
        if self.draining.len() >= DRAINING_MAX {
            return vec![Action::Say(format!(
                "not restarted: {DRAINING_MAX} old instances still drain; stop them, or limit their time with --max-drain"
            ))];
        }
        vec![Action::TellReloading, self.start(now)]
    }

    fn stop(&mut self, now: Instant) -> Vec<Action> {
        let numbers = |own: &Self| -> Vec<Number> {
            let coming = own.coming.iter().map(|coming| coming.number);
            let serving = own.serving.iter().map(|serving| serving.number);
            coming.chain(serving).chain(own.draining.iter().map(|draining| draining.number)).collect()
        };
        if self.stopping.is_some() {
            self.stopping = Some(Stopping::Killing);
            return numbers(self).into_iter().map(Action::Kill).collect();
        }
        self.stopping = Some(Stopping::Draining);
        (self.retry, self.again) = (None, false);
        let mut all = vec![Action::TellStopping];
        if let Some(coming) = self.coming.take() {
            all.push(self.give_up(coming.number, now));
        }
        if let Some(serving) = self.serving.take() {
            all.push(self.drain(serving.number, now));
        }
        all.extend(self.leave());
        all
    }

    fn not_started(&mut self, number: Number, why: &str, now: Instant) -> Vec<Action> {
        if self.coming().is_none_or(|coming| coming != number) {
            return Vec::new();
        }
        self.coming = None;
        let mut all = self.failed(&format!("it could not be started: {why}"), now);
        all.extend(self.leave());
        all
    }

    fn ready(&mut self, number: Number, now: Instant) -> Vec<Action> {
        if self.coming().is_none_or(|coming| coming != number) {
            return Vec::new();
        }
        self.coming = None;
        self.has_served = true;
        let before = self.serving.replace(Serving { number, since: now });
        let mut all = vec![Action::TellReady(format!("instance {number} serves"))];
        match before {
            Some(before) => {
                all.push(Action::Say(format!("instance {number} serves; instance {} drains", before.number)));
                all.push(self.drain(before.number, now));
            }
            None => all.push(Action::Say(format!("instance {number} serves"))),
        }
        if std::mem::take(&mut self.again) {
            all.extend(self.restart(now));
        }
        all
    }

    fn ended(&mut self, number: Number, how: &str, has_left: bool, now: Instant) -> Vec<Action> {
        let mut all = Vec::new();
        let mut drains = |kill_at| self.draining.extend(has_left.then_some(Draining { number, kill_at }));
        if self.coming.as_ref().is_some_and(|coming| coming.number == number) {
            drains(Some(now + UNREADY_END_MAX));
            self.coming = None;
            all = self.failed(&format!("it ended before it served ({how})"), now);
        } else if let Some(served) = self.serving.take_if(|serving| serving.number == number) {
            drains(self.limits.drain_max.map(|max| now + max));
            // Who was about to replace it does so.
            if self.coming.is_some() {
                all.push(Action::Say(format!("instance {number} ended ({how}); the next one is starting")));
            } else {
                let is_steady = now.saturating_duration_since(served.since) >= STEADY;
                self.failures = if is_steady { 0 } else { self.failures + 1 };
                all.push(self.again_later(&format!("instance {number} ended ({how})"), now));
            }
        } else if !has_left {
            self.draining.retain(|draining| draining.number != number);
        }
        all.extend(self.leave());
        all
    }

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        let mut all = Vec::new();
        if let Some(late) = self.coming.take_if(|coming| coming.until <= now) {
            all.push(self.give_up(late.number, now));
            let why = late.why.map(|why| format!(" ({why})")).unwrap_or_default();
            all.extend(self.failed(&format!("it was not ready within {:?}{why}", self.limits.ready_within), now));
        }
        for draining in self.draining.iter_mut().filter(|draining| draining.kill_at.is_some_and(|at| at <= now)) {
            draining.kill_at = None;
            all.push(Action::Say(format!("instance {} did not stop in time and is killed", draining.number)));
            all.push(Action::Kill(draining.number));
        }
        if self.retry.is_some_and(|at| at <= now) {
            all.push(self.start(now));
        }
        all
    }

    /// A program that was to serve does not. Who serves goes on; with nobody it is tried again, but not if none ever served:
    /// then the command is wrong, and whoever gave it is told.
    fn failed(&mut self, why: &str, now: Instant) -> Vec<Action> {
        if let Some(serving) = &self.serving {
            let serving = serving.number;
            let mut all = vec![
                Action::Say(format!("not restarted: {why}; instance {serving} keeps serving")),
                Action::TellReady(format!("instance {serving} serves; the last restart failed: {why}")),
            ];
            if std::mem::take(&mut self.again) {
                all.extend(self.restart(now));
            }
            return all;
        }
        self.again = false;
        if !self.has_served {
            // What is still there of it must not be left behind.
            (self.stopping, self.code) = (Some(Stopping::Draining), 1);
            return vec![Action::Say(format!("the program does not serve: {why}"))];
        }
        self.failures += 1;
        vec![self.again_later(why, now)]
    }

    fn again_later(&mut self, why: &str, now: Instant) -> Action {
        let wait = match self.failures {
            0 => Duration::ZERO,
            failures => BACK_OFF.0.saturating_mul(1 << (failures - 1).min(16)).min(BACK_OFF.1),
        };
        self.retry = Some(now + wait);
        Action::Say(format!("{why}; restarting in {wait:?}, new connections wait"))
    }

    fn drain(&mut self, number: Number, now: Instant) -> Action {
        self.draining.push(Draining { number, kill_at: self.limits.drain_max.map(|max| now + max) });
        Action::Drain(number)
    }

    fn give_up(&mut self, number: Number, now: Instant) -> Action {
        self.draining.push(Draining { number, kill_at: Some(now + UNREADY_END_MAX) });
        Action::Terminate(number)
    }

    /// The end, once nothing runs any more.
    fn leave(&self) -> Option<Action> {
        let is_over = self.serving.is_none() && self.coming.is_none() && self.draining.is_empty();
        (self.stopping.is_some() && is_over).then_some(Action::Leave(self.code))
    }
}

#[cfg(test)]
mod tests;
