//! One server's check: what its events do to it, and when it is due. Pure: [`Check::step`] takes what happened and the time, and gives
//! what is to be done; [`Checker`](crate::Checker) dials, logs and changes the server.
//!
//! ```text
//!              due
//!   Waiting ──────────────────────────────▶ Probing
//!    │   ▲  ◀───────────────────────────────  judged: the next one is due after `inter`, `fastinter` or `downinter`
//!    └───┘
//!     due in maintenance: not probed; error-limit: judged at once, and due after `fastinter`
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{CheckSettings, Observe};
use baton_proxy::balance::{CheckReport, HealthState, Observed};

use crate::health::{Health, Verdict};
use crate::text::{self, LogChecks};
use crate::{Report, Status};

/// Backend and server.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// What happens to a check.
#[derive(Debug)]
pub(crate) enum CheckEvent {
    /// It is time for the next one.
    Due {
        /// The server is not to be asked.
        in_maintenance: bool,
    },
    /// The server was asked.
    Probed {
        /// What came of it.
        report: Report,
        /// The state of the server by then, which others change too.
        server: HealthState,
    },
    /// Traffic reported `error-limit` errors in a row.
    ErrorLimit {
        /// The last one.
        last: Observed,
        /// The state of the server by then.
        server: HealthState,
    },
    /// Whoever asked the server has not come to an end: the check goes on as if it had not been asked.
    Interrupted,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum CheckEffect {
    /// Ask the server; then [`CheckEvent::Probed`].
    Probe,
    /// `option log-health-checks` wants this line, which begins with the server.
    Log(String),
    /// Statistics show this from now on.
    Publish(CheckReport),
    /// The server's state changes.
    Change {
        /// To this.
        state: HealthState,
        /// By this.
        report: Report,
    },
}

/// A delay that is made up for by the next check.
const HARDLY_LATE: Duration = Duration::from_millis(20);

/// The check of a server.
#[derive(Debug)]
pub(crate) struct Check {
    settings: CheckSettings,
    log_checks: LogChecks,
    /// `spread-checks`, in percent.
    spread: u32,
    health: Health,
    /// Checks that failed while the server was not down.
    failed: u64,
    /// Result and counter that were logged last.
    logged: Option<(Status, Option<u16>, u32)>,
    random: Random,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// For the next check.
    Waiting { due: Instant },
    /// The server has been asked since then.
    Probing { since: Instant },
}

impl Check {
    /// A check that is due now.
    pub fn new(
        key: &Key,
        settings: CheckSettings,
        log_checks: LogChecks,
        spread: u32,
        health: Health,
        now: Instant,
    ) -> Check {
        let random = Random::new(key);
        let stage = Stage::Waiting { due: now };
        Check { settings, log_checks, spread, health, failed: 0, logged: None, random, stage }
    }

    /// Goes on with what another process counted.
    pub fn with_failed(self, failed: u64) -> Check {
        Check { failed, ..self }
    }

    /// Goes on where the check was under other settings.
    pub fn after(self, before: &Check) -> Check {
        let health = before.health.clone().with_settings(&self.settings);
        Check { health, failed: before.failed, logged: before.logged, ..self }
    }

    /// When the next one is due.
    pub fn due(&self) -> Instant {
        match self.stage {
            Stage::Waiting { due } => due,
            Stage::Probing { since } => since,
        }
    }

    /// The first one is due then.
    pub fn start_at(&mut self, due: Instant) {
        self.stage = Stage::Waiting { due };
    }

    /// What the server's line says.
    pub fn settings(&self) -> &CheckSettings {
        &self.settings
    }

    /// The state as `http-check send-state` says it.
    pub fn sent_state(&self) -> String {
        self.health.sent_words()
    }

    /// The state that results have led to.
    pub fn state(&self) -> HealthState {
        self.health.state()
    }

    /// Errors of traffic in a row that count; 0 without `observe`.
    pub fn observed_limit(&self) -> u32 {
        match self.settings.observe {
            Observe::None => 0,
            Observe::Layer4 | Observe::Layer7 => self.settings.error_limit.max(1),
        }
    }

    /// Failed checks are counted from zero.
    pub fn clear(&mut self) {
        self.failed = 0;
    }

    /// Something happened at `now`.
    pub fn step(&mut self, event: CheckEvent, now: Instant) -> Vec<CheckEffect> {
        match event {
            CheckEvent::Due { in_maintenance: false } => {
                // One that begins hardly late keeps its rhythm: delays do not add up.
                let since = match self.stage {
                    Stage::Waiting { due } if now.saturating_duration_since(due) <= HARDLY_LATE => due.min(now),
                    Stage::Waiting { .. } | Stage::Probing { .. } => now,
                };
                self.stage = Stage::Probing { since };
                vec![CheckEffect::Probe]
            }
            CheckEvent::Due { in_maintenance: true } => {
                self.wait_since(now, now);
                Vec::new()
            }
            CheckEvent::Probed { report, server } => {
                let effects = self.judge(report, server);
                let since = match self.stage {
                    Stage::Probing { since } => since,
                    Stage::Waiting { .. } => now,
                };
                self.wait_since(since, now);
                effects
            }
            CheckEvent::ErrorLimit { last, server } => {
                let effects = self.count_errors(last, server);
                if let Stage::Waiting { due } = &mut self.stage {
                    *due = (*due).min(now + self.health.fastinter());
                }
                effects
            }
            CheckEvent::Interrupted => {
                if let Stage::Probing { since } = self.stage {
                    self.wait_since(since, now);
                }
                Vec::new()
            }
        }
    }

    /// The pause counts from the beginning of a check; one that took longer is followed by the next at once.
    fn wait_since(&mut self, since: Instant, now: Instant) {
        let pause = self.random.spread(self.health.pause(), self.spread);
        self.stage = Stage::Waiting { due: (since + pause).max(now) };
    }

    fn judge(&mut self, report: Report, server: HealthState) -> Vec<CheckEffect> {
        let verdict = report.status.verdict();
        self.health.adopt(server);
        let state = self.health.step(verdict);
        // As HAProxy counts: what fails when it is down already is no news.
        if verdict == Verdict::Failed && server != HealthState::Down {
            self.failed += 1;
        }
        let mut effects = Vec::new();
        let now = Some((report.status, report.code, self.health.counter()));
        if self.log_checks == LogChecks::On && std::mem::replace(&mut self.logged, now) != now {
            effects.push(CheckEffect::Log(text::check_result(&report, &self.health.words())));
        }
        self.settle(report, state, server, &mut effects);
        effects
    }

    fn count_errors(&mut self, last: Observed, server: HealthState) -> Vec<CheckEffect> {
        self.health.adopt(server);
        let state = self.health.on_error(self.settings.on_error);
        let last = match last {
            Observed::AnswerFailed => "Invalid http response (headers)",
            Observed::BadStatus => "Wrong http response",
            Observed::Connected | Observed::ConnectFailed | Observed::Answered => "L4 unsuccessful connection",
        };
        let errors = self.observed_limit();
        let info = format!("Detected {errors} consecutive errors, last one was: {last}");
        let mut effects = Vec::new();
        self.settle(Report::new(Status::Analyze).info(info), state, server, &mut effects);
        effects
    }

    /// A result is published, and what it means for the server.
    fn settle(&self, report: Report, state: HealthState, server: HealthState, effects: &mut Vec<CheckEffect>) {
        effects.push(CheckEffect::Publish(report.for_statistics(&self.health, self.failed)));
        if state != server {
            effects.push(CheckEffect::Change { state, report });
        }
    }
}

/// A small generator for `spread-checks`; nothing secret depends on it.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(key: &Key) -> Random {
        let seed = key.0.bytes().chain(key.1.bytes());
        Random(
            seed.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)) | 1,
        )
    }

    /// A pause up to `percent` shorter or longer.
    pub(crate) fn spread(&mut self, pause: Duration, percent: u32) -> Duration {
        let percent = percent.min(50);
        if percent == 0 {
            return pause;
        }
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let share = f64::from((self.0 >> 32) as u32) / f64::from(u32::MAX) * 2.0 - 1.0;
        pause.mul_f64(1.0 + share * f64::from(percent) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use baton_model::OnError;

    use super::*;
    use crate::health::tests::settings;

    const START_MS: u64 = 1_000;

    fn check_of(settings: CheckSettings) -> Check {
        let health = Health::new(&settings);
        Check::new(&("app".into(), "s1".into()), settings, LogChecks::Off, 0, health, Instant::now())
    }

    /// Events as words with the millisecond they come at: `due`, `maint`, `ok`, `bad`, `errors`, `gone`. After each the effects, and when the
    /// next check is due.
    fn check(mut check: Check, events: &[(u64, &str)], expect: &[&str]) {
        let origin = Instant::now();
        check.start_at(origin + Duration::from_millis(START_MS));
        let mut server = HealthState::Up;
        let mut seen = Vec::new();
        for (ms, event) in events {
            let event = match *event {
                "due" => CheckEvent::Due { in_maintenance: false },
                "maint" => CheckEvent::Due { in_maintenance: true },
                "ok" => CheckEvent::Probed { report: Report::new(Status::L4Ok), server },
                "bad" => CheckEvent::Probed { report: Report::new(Status::L4Connection), server },
                "errors" => CheckEvent::ErrorLimit { last: Observed::ConnectFailed, server },
                _ => CheckEvent::Interrupted,
            };
            let effects = check.step(event, origin + Duration::from_millis(*ms));
            let words: Vec<String> = effects
                .iter()
                .map(|effect| match effect {
                    CheckEffect::Probe => "probe".into(),
                    CheckEffect::Log(line) => line.clone(),
                    CheckEffect::Publish(report) => format!("{} failed {}", report.status, report.failed),
                    CheckEffect::Change { state, .. } => {
                        server = *state;
                        format!("{state:?}")
                    }
                })
                .collect();
            let due = check.due().duration_since(origin).as_millis();
            seen.push(format!("{} @{due}", words.join(", ")));
        }
        assert_eq!(seen, expect);
    }

    #[test]
    fn a_pause_counts_from_the_beginning_of_a_check() {
        check(
            check_of(settings()),
            &[(1_000, "due"), (1_300, "ok"), (11_000, "due"), (23_000, "ok")],
            &["probe @1000", "L4OK failed 0 @11000", "probe @11000", "L4OK failed 0 @23000"],
        );
    }

    #[test]
    fn fall_and_rise_change_the_server_and_the_pace() {
        check(
            check_of(settings()),
            &[
                (1_000, "due"),
                (1_100, "bad"),
                (6_000, "due"),
                (6_100, "bad"),
                (11_000, "due"),
                (11_100, "ok"),
                (12_000, "due"),
                (12_100, "ok"),
            ],
            &[
                "probe @1000",
                "L4CON failed 1, Down @6000",
                "probe @6000",
                "L4CON failed 1 @11000",
                "probe @11000",
                "L4OK failed 1 @12000",
                "probe @12000",
                "L4OK failed 1, Up @22000",
            ],
        );
    }

    #[test]
    fn a_server_in_maintenance_is_not_asked() {
        check(check_of(settings()), &[(1_000, "maint"), (2_000, "due")], &[" @2000", "probe @2000"]);
    }

    #[test]
    fn errors_of_traffic_bring_the_next_check_forward() {
        let observed =
            CheckSettings { observe: Observe::Layer4, error_limit: 3, on_error: OnError::MarkDown, ..settings() };
        check(
            check_of(observed.clone()),
            &[(1_000, "due"), (1_100, "ok"), (2_000, "errors"), (2_100, "errors")],
            &["probe @1000", "L4OK failed 0 @11000", "HANA failed 0, Down @3000", "HANA failed 0 @3000"],
        );
        let watched = CheckSettings { on_error: OnError::FastInter, ..observed };
        check(check_of(watched), &[(500, "errors"), (600, "errors")], &["HANA failed 0 @1000", "HANA failed 0 @1000"]);
    }

    #[test]
    fn a_check_whose_probe_was_cut_off_goes_on() {
        check(check_of(settings()), &[(1_000, "due"), (1_500, "gone")], &["probe @1000", " @2000"]);
        check(check_of(settings()), &[(500, "gone")], &[" @1000"]);
    }

    #[test]
    fn a_result_is_logged_when_it_is_another_one() {
        let health = Health::new(&settings());
        let logging = Check::new(&("app".into(), "s1".into()), settings(), LogChecks::On, 0, health, Instant::now());
        let line = "succeeded, reason: Layer4 check passed, status: 3/3 UP.";
        check(
            logging,
            &[(1_000, "ok"), (1_100, "ok")],
            &[&format!("{line}, L4OK failed 0 @11000"), "L4OK failed 0 @11100"],
        );
    }

    #[test]
    fn pauses_are_spread_within_their_share() {
        let mut random = Random::new(&("app".into(), "s1".into()));
        let pauses: Vec<_> = (0..100).map(|_| random.spread(Duration::from_secs(10), 20).as_millis()).collect();
        assert!(pauses.iter().all(|pause| (8_000..=12_000).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause < 9_000) && pauses.iter().any(|pause| *pause > 11_000), "{pauses:?}");
    }
}
