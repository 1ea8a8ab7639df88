//! From the first request to the last one: starts the traffic and the changes, shows both live, and measures.

use std::time::{Duration, Instant};

use baton_prove::load::LoadProgress;
use baton_prove::report::Latency;
use baton_prove::{FailureKind, LoadResult, Phase, Report};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::certificates::Certificates;
use super::director::{BEAT, CompletedStep, Director, Verdict};
use super::proxy::Proxy;
use super::result::{Changes, DemoMeasurement, DemoProcess, KeptConnections, stamp};
use super::scene::{DemoAddresses, DemoState};
use super::stage::{SESSIONS, Traffic};
use super::{Demo, DemoOutput};
use crate::interrupt::Interrupt;

/// How often the counters are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Over how many looks the rate on the live line is taken: a second.
const RATE_LOOKS: usize = 10;
/// The shortest time between two lines about failed requests.
const FAILURES_EVERY: Duration = Duration::from_secs(1);
/// Changes made and not yet told.
const MADE_MAX: usize = 16;

/// Percentiles over the loads without TLS; `$part` is one of their histograms, whose type has no name in this crate.
macro_rules! merged {
    ($one:expr, $other:expr, $part:ident) => {{
        let mut all = $one.$part.clone();
        all.add(&$other.$part).expect("all histograms of loads have the same bounds");
        Latency::new(&all)
    }};
}

/// Plays until the time is over, the user interrupts, or the proxy is gone; gives everything that was measured.
///
/// # Errors
/// A sentence, when the load could not be started, or when the user interrupts the ending, too.
pub async fn watch(
    command: &Demo,
    proxy: &mut Proxy,
    places: &DemoAddresses,
    certificates: Certificates,
    interrupt: &mut Interrupt,
    voice: &mut DemoOutput,
) -> Result<DemoMeasurement, String> {
    let phase = Phase::new();
    let tls = Certificates::tls(places).map_err(|error| error.to_string())?;
    let traffic = Traffic::start(places, tls, command.rate, &phase).await.map_err(|error| error.to_string())?;
    let began = Instant::now();
    let files = proxy.files();
    let before = files.status().await;
    let (tell, mut made) = mpsc::channel(MADE_MAX);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let director = Director { files: files.clone(), places: places.clone(), scene: DemoState::default(), phase, began };
    let replacing = tokio::spawn(certificates.replace(places.clone(), stopped.clone()));
    tokio::spawn(director.direct(tell, stopped));

    let mut view = DemoView::new(traffic, voice, began);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut errors, mut interrupted) = (Vec::new(), false);
    loop {
        tokio::select! {
            () = sleep_until((began + command.time).into()) => break,
            () = interrupt.next() => {
                interrupted = true;
                break;
            }
            died = proxy.died() => {
                errors.push(died);
                break;
            }
            Some(made) = made.recv() => view.tell(&made),
            _ = looks.tick() => view.look(),
        }
    }

    let ended = async {
        // A change under way is finished, and what follows it is measured for as long as any other change.
        stop.send_replace(true);
        while let Some(made) = made.recv().await {
            view.tell(&made);
        }
        if errors.is_empty() {
            tokio::time::sleep(BEAT / 2).await;
        }
        let after = files.status().await;
        // It gives up by itself after a while.
        let certificate = replacing.await.unwrap_or_default();
        let (traffic, changes) = view.end();
        let (keep_alive, per_request, secure, websockets, tunnels) = tokio::join!(
            traffic.keep_alive.stop(),
            traffic.per_request.stop(),
            traffic.secure.stop(),
            traffic.websockets.stop(),
            traffic.tunnels.stop(),
        );
        if errors.is_empty() {
            errors.extend([&before, &after].into_iter().filter_map(|status| status.as_ref().err().cloned()));
        }
        DemoMeasurement {
            clean: false,
            interrupted,
            seconds: keep_alive.elapsed.as_secs_f64(),
            requests: [&keep_alive, &per_request, &secure].iter().map(|load| load.counts.requests).sum(),
            failed: [&keep_alive, &per_request, &secure].iter().map(|load| load.counts.failed()).sum(),
            keep_alive_connections: kept(&keep_alive, after.is_ok()),
            latency_us_during: merged!(keep_alive, per_request, during),
            latency_us_outside: merged!(keep_alive, per_request, outside),
            keep_alive: Report::new(&keep_alive),
            connection_per_request: Report::new(&per_request),
            tls: Report::new(&secure),
            certificate,
            websockets,
            tunnels,
            changes,
            proxy_before: before.as_ref().ok().map(DemoProcess::from),
            proxy_after: after.as_ref().ok().map(DemoProcess::from),
            errors,
        }
        .judge()
    };
    tokio::select! {
        measured = ended => Ok(measured),
        () = interrupt.next() => Err("interrupted".into()),
    }
}

/// `alive` says whether the proxy is there: the load sees a close only when it uses the connection next.
fn kept(load: &LoadResult, alive: bool) -> KeptConnections {
    // A failed request has ended its connection, if it had one, unless its answer was whole; more than were opened cannot have
    // been lost.
    let whole = [FailureKind::WrongLength, FailureKind::WrongBody, FailureKind::WrongStatus];
    let whole: u64 = whole.map(|kind| load.counts.count(kind)).iter().sum();
    let lost = load.closed_idle + load.counts.failed() - whole;
    KeptConnections {
        opened: load.connections,
        survived: if alive { load.connections.saturating_sub(lost) } else { 0 },
    }
}

/// The live view: counters, changes, and failures in their place.
struct DemoView<'a> {
    traffic: Traffic,
    voice: &'a mut DemoOutput,
    began: Instant,
    changes: Changes,
    /// Requests done at the last looks, the oldest first.
    done: std::collections::VecDeque<(Instant, u64)>,
    /// Failures by kind that were told.
    told: LoadProgress,
    told_at: Option<Instant>,
    /// Sessions lost that were told.
    lost: u64,
}

impl<'a> DemoView<'a> {
    fn new(traffic: Traffic, voice: &'a mut DemoOutput, began: Instant) -> DemoView<'a> {
        let (changes, done, told) = Default::default();
        DemoView { traffic, voice, began, changes, done, told, told_at: None, lost: 0 }
    }

    fn tell(&mut self, made: &CompletedStep) {
        self.changes.add(made);
        let verdict = match made.verdict {
            Verdict::Applied => "",
            Verdict::Rejected => "rejected, as expected: ",
            Verdict::Failed => "FAILED: ",
        };
        self.voice.note(format!("{}  {verdict}{}", stamp(made.at), made.text));
    }

    fn look(&mut self) {
        let now = Instant::now();
        let sum = self.sum();
        if self.told_at.is_none_or(|at| now - at >= FAILURES_EVERY) {
            self.tell_failures(&sum);
        }
        self.tell_lost();
        self.done.push_back((now, sum.completed));
        if self.done.len() > RATE_LOOKS {
            self.done.pop_front();
        }
        if self.done.len() < 2 {
            return;
        }
        let line = line(now - self.began, self.rate(), sum.failed(), &self.changes, self.alive());
        self.voice.show(now, || line);
    }

    /// Tells what was not told yet; gives back the traffic, and the changes.
    fn end(mut self) -> (Traffic, Changes) {
        self.tell_failures(&self.sum());
        self.tell_lost();
        (self.traffic, self.changes)
    }

    fn sum(&self) -> LoadProgress {
        let mut sum = self.traffic.keep_alive.progress();
        for other in [self.traffic.per_request.progress(), self.traffic.secure.progress()] {
            sum.requests += other.requests;
            sum.completed += other.completed;
            sum.failures.iter_mut().zip(other.failures).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    fn alive(&self) -> u64 {
        self.traffic.websockets.alive() + self.traffic.tunnels.alive()
    }

    /// Requests a second over the last looks.
    fn rate(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.done.front(), self.done.back()) else { return 0.0 };
        let seconds = (*to - *from).as_secs_f64();
        if seconds > 0.0 { (after - before) as f64 / seconds } else { 0.0 }
    }

    fn tell_failures(&mut self, sum: &LoadProgress) {
        let new = failures(&self.told, sum);
        if !new.is_empty() {
            self.voice.note(format!("{}  FAILED requests: {new}", stamp(self.began.elapsed())));
            (self.told, self.told_at) = (*sum, Some(Instant::now()));
        }
    }

    fn tell_lost(&mut self) {
        let lost = self.traffic.websockets.lost() + self.traffic.tunnels.lost();
        if lost > self.lost {
            let text = format!("{}  FAILED: {} held open lost", stamp(self.began.elapsed()), lost - self.lost);
            self.voice.note(text);
            self.lost = lost;
        }
    }
}

/// The failures that came since `told`, by kind; empty without any.
fn failures(told: &LoadProgress, sum: &LoadProgress) -> String {
    let new = |kind: FailureKind| match sum.count(kind) - told.count(kind) {
        0 => None,
        count => Some(format!("{} {count}", kind.name())),
    };
    FailureKind::ALL.into_iter().filter_map(new).collect::<Vec<_>>().join(", ")
}

fn line(at: Duration, rate: f64, failed: u64, changes: &Changes, alive: u64) -> String {
    format!(
        "{}  {rate:.0} requests/s, {failed} failed | {} changes, {} rejected, {} wrong | {alive} of {} tunnels alive",
        stamp(at),
        changes.applied,
        changes.rejected,
        changes.failed,
        2 * SESSIONS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_failures_are_told_by_kind() {
        let mut told = LoadProgress::default();
        let mut sum = told;
        assert_eq!(failures(&told, &sum), "");
        sum.failures[FailureKind::Refused.index()] = 3;
        sum.failures[FailureKind::WrongBody.index()] = 1;
        told.failures[FailureKind::Refused.index()] = 1;
        assert_eq!(failures(&told, &sum), "refused 2, wrong_body 1");
    }

    #[test]
    fn the_live_line_fits_a_terminal() {
        let line = line(Duration::from_secs(86_400), 99_999.0, 99, &Changes::default(), 8);
        assert_eq!(
            line,
            "+86400.0s  99999 requests/s, 99 failed | 0 changes, 0 rejected, 0 wrong | 8 of 8 tunnels alive"
        );
        assert!(line.len() <= 100);
    }
}
