//! The run itself: sessions first, then the requests, one live line meanwhile, and an end by number, time or Ctrl-C.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, Instant};

use baton_prove::load::LoadProgress;
use baton_prove::{FailureKind, Load, LoadHandle, LoadResult, Progress, Sessions, SessionsHandle, SessionsResult};
use tokio::time::{MissedTickBehavior, interval};

use super::plan::Plan;
use crate::interrupt::Interrupt;

/// How often it is looked whether the load has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Over how many looks the rate on the live line is taken: a second.
const RATE_LOOKS: usize = 50;

/// How it ended.
pub enum LoadEnd {
    /// With results, also after a first Ctrl-C.
    Measured(Box<LoadMeasurement>),
    /// At once, because of a second one; what was counted until the first.
    AtOnce(LoadProgress),
}

/// Everything that was measured.
pub struct LoadMeasurement {
    /// `None` when no URL is asked requests, or the user interrupted before the first one.
    pub load: Option<LoadResult>,
    /// In the order of [`Plan::sessions`].
    pub sessions: Vec<SessionsResult>,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// Runs the plan to its end.
///
/// # Errors
/// A sentence, when it cannot begin.
pub async fn watch<W: Write>(plan: &Plan, progress: &mut Progress<W>) -> Result<LoadEnd, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut interrupt = Interrupt::listen().map_err(told)?;
    let sessions = plan
        .sessions
        .iter()
        .map(|(url, options)| Sessions::start(options.clone()).map_err(|error| format!("{url}: {error}")));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let ready = async {
        for group in &sessions {
            group.ready().await;
        }
    };
    let mut interrupted = tokio::select! {
        () = ready => false,
        () = interrupt.next() => true,
    };

    let load = plan.load.clone().filter(|_| !interrupted).map(Load::start).transpose().map_err(told)?;
    let mut view = LoadView { plan, load, sessions, began: Instant::now(), looks: VecDeque::new() };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !interrupted && !view.is_finished() {
        tokio::select! {
            () = interrupt.next() => interrupted = true,
            _ = looks.tick() => view.look(progress),
        }
    }

    if interrupted {
        progress.note("Ending after the in-flight requests. Ctrl-C again ends immediately.");
    }
    let counts = view.counts();
    tokio::select! {
        (load, sessions) = view.end() => Ok(LoadEnd::Measured(Box::new(LoadMeasurement { load, sessions, interrupted }))),
        () = interrupt.next() => Ok(LoadEnd::AtOnce(counts)),
    }
}

/// What runs, and the live line about it.
struct LoadView<'a> {
    plan: &'a Plan,
    load: Option<LoadHandle>,
    sessions: Vec<SessionsHandle>,
    began: Instant,
    /// Requests completed at the last looks, the oldest first.
    looks: VecDeque<(Instant, u64)>,
}

impl LoadView<'_> {
    /// Without requests it ends with its time, or with the last session.
    fn is_finished(&self) -> bool {
        match &self.load {
            Some(load) => load.is_finished(),
            None => self.began.elapsed() >= self.plan.time || self.sessions.iter().all(|group| group.alive() == 0),
        }
    }

    fn counts(&self) -> LoadProgress {
        self.load.as_ref().map(LoadHandle::progress).unwrap_or_default()
    }

    fn look<W: Write>(&mut self, progress: &mut Progress<W>) {
        let now = Instant::now();
        let counts = self.counts();
        self.looks.push_back((now, counts.completed));
        if self.looks.len() > RATE_LOOKS {
            self.looks.pop_front();
        }
        // The first look has nothing to compare with.
        if self.looks.len() > 1 {
            progress.show(now, || self.line(now - self.began, &counts));
        }
    }

    fn line(&self, at: Duration, counts: &LoadProgress) -> String {
        let mut line = format!("+{:.1}s", at.as_secs_f64());
        if let Some(options) = &self.plan.load {
            let done = options.count.map(|count| counts.requests as f64 / count as f64);
            let passed = options.duration.map(|time| at.as_secs_f64() / time.as_secs_f64());
            let part = done.unwrap_or(0.0).max(passed.unwrap_or(0.0)).min(1.0);
            // Writing into a string does not fail.
            let _ = write!(line, "  {:.0} requests/s, {:.0} %, {}", self.rate(), part * 100.0, failed(counts));
            let waiting = counts.requests.saturating_sub(counts.completed + counts.failed());
            if part >= 1.0 && waiting > 0 {
                let _ = write!(line, ", waiting for {waiting} responses");
            }
        }
        if !self.sessions.is_empty() {
            let sum = |of: fn(&SessionsHandle) -> u64| self.sessions.iter().map(of).sum::<u64>();
            let alive = sum(SessionsHandle::alive);
            let (lost, messages) = (sum(SessionsHandle::lost), sum(SessionsHandle::messages));
            let _ = write!(line, "  {alive} sessions alive, {lost} lost, {messages} messages");
        }
        line
    }

    /// Requests completed a second over the last looks.
    fn rate(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.looks.front(), self.looks.back()) else { return 0.0 };
        let seconds = (*to - *from).as_secs_f64();
        if seconds > 0.0 { (after - before) as f64 / seconds } else { 0.0 }
    }

    /// The requests first: sessions are held open to the end of the load.
    async fn end(self) -> (Option<LoadResult>, Vec<SessionsResult>) {
        let load = match self.load {
            Some(load) => Some(load.stop().await),
            None => None,
        };
        let mut sessions = Vec::new();
        for group in self.sessions {
            sessions.push(group.stop().await);
        }
        (load, sessions)
    }
}

/// How many failed, and of which kinds.
fn failed(counts: &LoadProgress) -> String {
    let kinds = FailureKind::ALL.into_iter().filter(|kind| counts.count(*kind) > 0);
    let kinds: Vec<String> = kinds.map(|kind| format!("{} {}", kind.name(), counts.count(kind))).collect();
    match kinds.is_empty() {
        true => "0 failed".into(),
        false => format!("{} failed: {}", counts.failed(), kinds.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_on_the_live_line() {
        let mut counts = LoadProgress::default();
        assert_eq!(failed(&counts), "0 failed");
        counts.failures[FailureKind::Refused.index()] = 3;
        counts.failures[FailureKind::WrongBody.index()] = 1;
        assert_eq!(failed(&counts), "4 failed: refused 3, wrong_body 1");
    }
}
