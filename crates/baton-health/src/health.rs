//! The state of a check: counts of good and bad results, what they make of the server, and when to look again.
//!
//! ```text
//!            fall bad in a row                      404 under disable-on-404
//!      Up ───────────────────────▶ Down       Up ◀────────────────────────▶ Stopping
//!         ◀───────────────────────                        good
//!            rise good in a row
//! ```

use std::time::Duration;

use baton_model::{CheckSettings, InitState, OnError};
use baton_proxy::balance::HealthState;

/// What one check says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Good.
    Passed,
    /// Good, but the server wants no new sessions (`disable-on-404`).
    Conditional,
    /// Bad.
    Failed,
}

/// HAProxy's health counter: below `rise` is down, and `rise + fall - 1` is the most.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Health {
    rise: u32,
    fall: u32,
    inter: Duration,
    fastinter: Duration,
    downinter: Duration,
    counter: u32,
    stopping: bool,
}

impl Health {
    /// The state before the first check (`init-state`).
    pub fn new(settings: &CheckSettings) -> Health {
        let mut health = Health {
            rise: 1,
            fall: 1,
            inter: Duration::ZERO,
            fastinter: Duration::ZERO,
            downinter: Duration::ZERO,
            counter: 0,
            stopping: false,
        };
        health.set(settings);
        health.counter = match settings.init_state {
            InitState::Up => health.rise,
            InitState::FullyUp => health.most(),
            InitState::Down => health.rise - 1,
            InitState::FullyDown => 0,
        };
        health
    }

    /// Continues the state under other settings (a reload).
    pub fn with_settings(mut self, settings: &CheckSettings) -> Health {
        let state = self.state();
        let full = self.counter == self.most();
        self.set(settings);
        self.counter = match state {
            HealthState::Down => self.counter.min(self.rise - 1),
            HealthState::Up | HealthState::Stopping if full => self.most(),
            HealthState::Up | HealthState::Stopping => self.counter.clamp(self.rise, self.most()),
        };
        self
    }

    /// The state another process reached: its counter, by its `rise` and `fall`.
    pub fn recalled(settings: &CheckSettings, state: HealthState, counter: u32, rise: u32, fall: u32) -> Health {
        let mut health = Health::new(settings);
        (health.rise, health.fall) = (rise.max(1), fall.max(1));
        health.counter = match state {
            HealthState::Down => counter.min(health.rise - 1),
            HealthState::Up | HealthState::Stopping => counter.clamp(health.rise, health.most()),
        };
        health.stopping = state == HealthState::Stopping;
        health.with_settings(settings)
    }

    /// A result; returns the state it leads to.
    pub fn step(&mut self, verdict: Verdict) -> HealthState {
        match verdict {
            Verdict::Passed => {
                self.rise();
                self.stopping = false;
            }
            Verdict::Conditional => {
                // A server that is down is not brought up by a conditional result.
                if self.counter >= self.rise {
                    self.rise();
                    self.stopping = true;
                }
            }
            Verdict::Failed => self.sink(),
        }
        self.state()
    }

    /// Somebody else changed the server's state (an operator, the end of maintenance): go on from there. A server that was
    /// brought up falls at the first failure.
    pub fn adopt(&mut self, state: HealthState) {
        match (self.state(), state) {
            (HealthState::Down, HealthState::Up | HealthState::Stopping) => self.counter = self.rise,
            (HealthState::Up | HealthState::Stopping, HealthState::Down) => self.counter = 0,
            (HealthState::Down, HealthState::Down)
            | (HealthState::Up | HealthState::Stopping, HealthState::Up | HealthState::Stopping) => {}
        }
        self.stopping = state == HealthState::Stopping;
    }

    /// `error-limit` observed errors in a row; the next check is due after [`fastinter`](Self::fastinter).
    pub fn on_error(&mut self, what: OnError) -> HealthState {
        match what {
            OnError::FastInter => {}
            OnError::FailCheck => self.sink(),
            OnError::SuddenDeath => {
                if self.counter > self.rise {
                    self.counter = self.rise + 1;
                    self.sink();
                }
            }
            OnError::MarkDown => {
                self.counter = self.counter.min(self.rise);
                self.sink();
            }
        }
        self.state()
    }

    /// The state now.
    pub fn state(&self) -> HealthState {
        match (self.counter >= self.rise, self.stopping) {
            (false, _) => HealthState::Down,
            (true, false) => HealthState::Up,
            (true, true) => HealthState::Stopping,
        }
    }

    /// The pause before the next check.
    pub fn pause(&self) -> Duration {
        match self.counter {
            0 => self.downinter,
            counter if counter == self.most() => self.inter,
            _ => self.fastinter,
        }
    }

    /// The pause while the state is in transition.
    pub fn fastinter(&self) -> Duration {
        self.fastinter
    }

    /// The counter, 0 to `rise + fall - 1`.
    pub fn counter(&self) -> u32 {
        self.counter
    }

    /// `rise` and `fall` in force.
    pub fn limits(&self) -> (u32, u32) {
        (self.rise, self.fall)
    }

    /// HAProxy's words: `3/3 UP`, `1/3 UP`, `0/2 DOWN`.
    pub fn words(&self) -> String {
        match self.counter.checked_sub(self.rise) {
            Some(above) => format!("{}/{} UP", above + 1, self.fall),
            None => format!("{}/{} DOWN", self.counter, self.rise),
        }
    }

    /// HAProxy's words for a server: `UP`, `UP 1/3` while that may change, `NOLB 2/3`, `DOWN 1/2`.
    pub fn sent_words(&self) -> String {
        let word = if self.stopping { "NOLB" } else { "UP" };
        match self.counter.checked_sub(self.rise) {
            Some(_) if self.counter == self.most() => word.into(),
            Some(above) => format!("{word} {}/{}", above + 1, self.fall),
            None if self.counter == 0 => "DOWN".into(),
            None => format!("DOWN {}/{}", self.counter, self.rise),
        }
    }

    fn set(&mut self, settings: &CheckSettings) {
        self.rise = settings.rise.max(1);
        self.fall = settings.fall.max(1);
        self.inter = settings.inter;
        self.fastinter = settings.fastinter.unwrap_or(settings.inter);
        self.downinter = settings.downinter.unwrap_or(settings.inter);
    }

    fn most(&self) -> u32 {
        self.rise.saturating_add(self.fall) - 1
    }

    fn rise(&mut self) {
        self.counter = self.counter.saturating_add(1);
        if self.counter >= self.rise {
            self.counter = self.most();
        }
    }

    fn sink(&mut self) {
        self.counter = if self.counter > self.rise { self.counter - 1 } else { 0 };
        if self.counter < self.rise {
            self.stopping = false;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An interval for each state, in seconds: 10, 1 and 5.
    pub(crate) fn settings() -> CheckSettings {
        CheckSettings {
            inter: Duration::from_secs(10),
            fastinter: Some(Duration::from_secs(1)),
            downinter: Some(Duration::from_secs(5)),
            ..CheckSettings::default()
        }
    }

    /// Results as letters (`+` good, `-` bad, `4` conditional), and after each the words and the pause in seconds.
    fn check(init: InitState, results: &str, expect: &str) {
        let mut health = Health::new(&CheckSettings { init_state: init, ..settings() });
        let mut seen = vec![format!("{} {}", health.words(), health.pause().as_secs())];
        for result in results.chars() {
            let state = health.step(match result {
                '+' => Verdict::Passed,
                '4' => Verdict::Conditional,
                _ => Verdict::Failed,
            });
            let stopping = if state == HealthState::Stopping { " stopping" } else { "" };
            seen.push(format!("{} {}{stopping}", health.words(), health.pause().as_secs()));
        }
        assert_eq!(seen.join(", "), expect, "{init:?} {results}");
    }

    #[test]
    fn rise_and_fall() {
        check(InitState::Up, "+---++", "1/3 UP 1, 3/3 UP 10, 2/3 UP 1, 1/3 UP 1, 0/2 DOWN 5, 1/2 DOWN 1, 3/3 UP 10");
        check(InitState::Up, "-+-++", "1/3 UP 1, 0/2 DOWN 5, 1/2 DOWN 1, 0/2 DOWN 5, 1/2 DOWN 1, 3/3 UP 10");
        check(InitState::FullyUp, "--+", "3/3 UP 10, 2/3 UP 1, 1/3 UP 1, 3/3 UP 10");
        check(InitState::Down, "+", "1/2 DOWN 1, 3/3 UP 10");
        check(InitState::FullyDown, "++", "0/2 DOWN 5, 1/2 DOWN 1, 3/3 UP 10");
    }

    #[test]
    fn not_found_means_stopping_and_only_while_up() {
        check(InitState::Up, "44+", "1/3 UP 1, 3/3 UP 10 stopping, 3/3 UP 10 stopping, 3/3 UP 10");
        check(InitState::FullyDown, "4", "0/2 DOWN 5, 0/2 DOWN 5");
        check(
            InitState::Up,
            "4---4",
            "1/3 UP 1, 3/3 UP 10 stopping, 2/3 UP 1 stopping, 1/3 UP 1 stopping, 0/2 DOWN 5, 0/2 DOWN 5",
        );
    }

    #[test]
    fn observed_errors_act_as_told() {
        let check = |what, expect: &str| {
            let mut health = Health::new(&CheckSettings { init_state: InitState::FullyUp, ..settings() });
            health.on_error(what);
            assert_eq!(health.words(), expect, "{what:?}");
        };
        check(OnError::FastInter, "3/3 UP");
        check(OnError::FailCheck, "2/3 UP");
        check(OnError::SuddenDeath, "1/3 UP");
        check(OnError::MarkDown, "0/2 DOWN");
    }

    #[test]
    fn what_an_operator_says_is_adopted() {
        let mut health = Health::new(&settings());
        health.step(Verdict::Failed);
        health.adopt(HealthState::Up);
        assert_eq!(health.words(), "1/3 UP");
        health.adopt(HealthState::Up);
        health.step(Verdict::Passed);
        health.adopt(HealthState::Stopping);
        assert_eq!((health.words(), health.state()), ("3/3 UP".into(), HealthState::Stopping));
        health.adopt(HealthState::Down);
        assert_eq!(health.words(), "0/2 DOWN");
    }

    #[test]
    fn another_process_goes_on_with_the_state() {
        let check = |state, counter, rise, fall, expect: &str| {
            let health = Health::recalled(&settings(), state, counter, rise, fall);
            assert_eq!((health.words(), health.state()), (expect.into(), state));
        };
        check(HealthState::Down, 1, 2, 3, "1/2 DOWN");
        check(HealthState::Up, 2, 2, 3, "1/3 UP");
        check(HealthState::Up, 9, 2, 3, "3/3 UP");
        check(HealthState::Stopping, 4, 2, 3, "3/3 UP");
        check(HealthState::Down, 7, 9, u32::MAX, "1/2 DOWN");
        check(HealthState::Up, 0, 0, 0, "3/3 UP");
    }

    #[test]
    fn a_reload_keeps_the_state() {
        let check = |results: &[Verdict], rise, fall, expect: &str| {
            let mut health = Health::new(&settings());
            results.iter().for_each(|verdict| {
                health.step(*verdict);
            });
            let health = health.with_settings(&CheckSettings { rise, fall, ..settings() });
            assert_eq!(health.words(), expect);
        };
        check(&[Verdict::Passed], 5, 7, "7/7 UP");
        check(&[Verdict::Passed, Verdict::Failed], 2, 9, "2/9 UP");
        check(&[Verdict::Passed, Verdict::Failed], 2, 1, "1/1 UP");
        check(&[Verdict::Failed, Verdict::Passed], 1, 3, "0/1 DOWN");
        check(&[Verdict::Failed], 4, 3, "0/4 DOWN");
    }
}
