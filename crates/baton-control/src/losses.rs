//! When lost log lines are reported: when a target is missing at the start or after a reload, at the first loss of a target, and then at
//! most once a minute. Pure but for the counts, which all threads add to.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::Severity;
use baton_kernel::output::losses::{self, Losses};
use baton_kernel::panics;
use baton_model::{Level, LogAddress, Model};
use baton_proxy::log_target_is_there;

use crate::messages::Messages;

/// How often a target's losses are reported at most.
const EVERY: Duration = Duration::from_secs(60);
/// `alert`.
const ALERT: Level = Level(1);
/// `crit`.
const CRITICAL: Level = Level(2);

/// What was reported.
#[derive(Debug, Default)]
pub struct LossReports {
    targets: Vec<Reported>,
    panics: u64,
}

/// A target with losses that were reported.
#[derive(Debug)]
struct Reported {
    losses: Arc<Losses>,
    lost: u64,
    /// Not again before this; `None`: nothing was lost in the minute after the last report.
    next: Option<Instant>,
}

/// Lines of one target that were lost since the last report.
#[derive(Debug, Eq, PartialEq)]
struct Report {
    target: String,
    text: String,
}

impl LossReports {
    /// When to look again without being woken.
    pub fn due(&self) -> Option<Instant> {
        self.targets.iter().filter_map(|reported| reported.next).min()
    }

    /// Reports lost log lines to standard error and to the other global log targets; and panics, which were reported to
    /// standard error when they happened.
    pub fn report(&mut self, messages: &Messages) {
        for Report { target, text } in self.step(Instant::now(), losses::all()) {
            messages.event_except(Severity::Alert, ALERT, &target, &text);
        }
        let panics = panics::count();
        if panics > std::mem::replace(&mut self.panics, panics) {
            let text = format!("{panics} internal errors since the start: see standard error, and please report them.");
            messages.log(CRITICAL, &text);
        }
    }

    /// Reports targets of a configuration that just came into use and that are not there. Of those that take datagrams from afar nothing
    /// is known before a line was sent.
    pub fn check(&mut self, messages: &Messages, model: &Model) {
        let of_proxies = model.proxies.iter().flat_map(|proxy| &proxy.logging.targets);
        let targets = model.global.log.iter().chain(of_proxies);
        let addresses: HashSet<&LogAddress> = targets.map(|target| &target.address).collect();
        for address in addresses {
            let Err(error) = log_target_is_there(address) else { continue };
            if let Some(Report { target, text }) =
                self.missing(Instant::now(), losses::of(&address.to_string()), &error)
            {
                messages.event_except(Severity::Alert, ALERT, &target, &text);
            }
        }
    }

    /// What is to be reported of a target that is not there at `now`.
    fn missing(&mut self, now: Instant, losses: Arc<Losses>, error: &io::Error) -> Option<Report> {
        let next = Some(now + EVERY);
        let lost = losses.lost();
        match self.targets.iter_mut().find(|reported| Arc::ptr_eq(&reported.losses, &losses)) {
            Some(reported) if reported.next.is_some_and(|next| now < next) => return None,
            Some(reported) => (reported.lost, reported.next) = (lost, next),
            None => self.targets.push(Reported { losses: losses.clone(), lost, next }),
        }
        losses.wake_by_next(false);
        let text = unavailable(&losses, &losses::describe(error));
        Some(Report { target: losses.name().to_owned(), text })
    }

    /// What is to be reported at `now`.
    fn step(&mut self, now: Instant, all: Vec<Arc<Losses>>) -> Vec<Report> {
        self.targets.retain(|reported| all.iter().any(|losses| Arc::ptr_eq(losses, &reported.losses)));
        all.into_iter().filter_map(|losses| self.look(now, losses)).collect()
    }

    fn look(&mut self, now: Instant, losses: Arc<Losses>) -> Option<Report> {
        let known = self.targets.iter_mut().find(|reported| Arc::ptr_eq(&reported.losses, &losses));
        if known.as_ref().and_then(|reported| reported.next).is_some_and(|next| now < next) {
            return None;
        }
        // From here on a loss wakes us, so none is overlooked that comes after the look.
        losses.wake_by_next(true);
        let (lost, inherited) = (losses.lost(), losses.inherited());
        let before = known.as_ref().map_or(inherited, |reported| reported.lost);
        let text = match (losses.take_missing(), lost > before) {
            (_, true) => Some(sentence(&losses, lost, before)),
            (Some(reason), false) => Some(unavailable(&losses, &reason)),
            (None, false) => None,
        };
        let next = text.is_some().then_some(now + EVERY);
        losses.wake_by_next(next.is_none());
        let report = text.map(|text| Report { target: losses.name().to_owned(), text });
        match known {
            Some(reported) => (reported.lost, reported.next) = (lost, next),
            None if next.is_some() => self.targets.push(Reported { losses, lost, next }),
            None => {}
        }
        report
    }
}

fn unavailable(losses: &Losses, reason: &str) -> String {
    format!("Log target '{}': not available ({reason}), lines to it may be lost until it is.", losses.name())
}

fn sentence(losses: &Losses, lost: u64, before: u64) -> String {
    let new = lost - before;
    let lines = if new == 1 { "line" } else { "lines" };
    let total = if before == 0 { String::new() } else { format!(", {lost} since the start") };
    format!("Log target '{}': {new} {lines} lost ({}){total}.", losses.name(), losses.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_reported_at_once_and_then_a_sum_each_minute() {
        let mine = losses::of("test: reports");
        let other = losses::of("test: reports without losses");
        let mut reports = LossReports::default();
        let start = Instant::now();
        let mut check = |lost: u64, seconds: u64, expect: &str, due: Option<u64>| {
            mine.add(lost, Some(&std::io::Error::from_raw_os_error(nix::libc::ENOENT)));
            let now = start + Duration::from_secs(seconds);
            let texts: Vec<_> =
                reports.step(now, vec![mine.clone(), other.clone()]).into_iter().map(|report| report.text).collect();
            assert_eq!(texts.join(" "), expect);
            assert_eq!(reports.due().map(|due| due.duration_since(start).as_secs()), due);
        };
        let first = "Log target 'test: reports': 1 line lost (No such file or directory).";
        check(1, 0, first, Some(60));
        check(3, 1, "", Some(60));
        check(0, 59, "", Some(60));
        let second = "Log target 'test: reports': 5 lines lost (No such file or directory), 6 since the start.";
        check(2, 60, second, Some(120));
        check(0, 120, "", None);
        let third = "Log target 'test: reports': 1 line lost (No such file or directory), 7 since the start.";
        check(1, 300, third, Some(360));
    }

    #[test]
    fn a_target_that_is_missing_is_reported_before_and_with_its_losses_once_a_minute() {
        let mine = losses::of("test: missing");
        let mut reports = LossReports::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let error = || io::Error::from_raw_os_error(nix::libc::ENOENT);
        let text = "Log target 'test: missing': not available (No such file or directory), lines to it may be lost until it is.";
        let missing = |reports: &mut LossReports, seconds| {
            reports.missing(at(seconds), mine.clone(), &error()).map(|report| report.text)
        };
        assert_eq!(missing(&mut reports, 0).as_deref(), Some(text));
        assert_eq!(missing(&mut reports, 1), None, "a reload in the same minute");
        mine.add(2, Some(&error()));
        assert_eq!(reports.step(at(2), vec![mine.clone()]), []);
        let report = reports.step(at(60), vec![mine.clone()]).remove(0);
        assert_eq!(report.text, "Log target 'test: missing': 2 lines lost (No such file or directory).");
        assert_eq!(missing(&mut reports, 61), None);
        assert_eq!(missing(&mut reports, 120).as_deref(), Some(text));
    }
}
