//! One experiment, done to one server: from the empty place to what was measured, and back to nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{interval, sleep};

use super::end::end;
use super::events::{Events, QUIET};
use super::held::{OpenConnections, until_in_effect};
use super::place::{RunEnvironment, missing};
use super::processes::{Processes, search_path};
use super::renewal::{CERTIFICATES_MAX, Renewal};
use super::{CERTIFICATES, Expect, Experiment, Network, Server, network};
use crate::load::{LoadProgress, Timeouts};
use crate::proof::{HeldCertificates, Measured, Meter, Outcome, Row};
use crate::{Load, LoadOptions, Phase};

/// How long a load runs at least when nobody says a shorter time and something is done to the server.
const TIME: Duration = Duration::from_secs(5);
/// How many times as long a run may take that expects failures and has seen none.
const PATIENCE: u32 = 4;
/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(30);
/// How long processes may take to end after they were told to, before they are told of as left over and killed.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long it may take to find out whether an experiment can be done here.
const POSSIBLE_MAX: Duration = Duration::from_secs(20);
/// How long the version may take to be said.
const VERSION_MAX: Duration = Duration::from_secs(10);
/// How long a meter may take.
const METER_MAX: Duration = Duration::from_secs(10);
/// How often the load is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How experiments are run; the same for all of them.
pub struct Setting<'a> {
    /// The program of Baton, for experiments done to it.
    pub baton: PathBuf,
    /// The time from one event to the next, instead of the experiment's own.
    pub every: Option<Duration>,
    /// How long the load runs at least, instead of the experiment's own time.
    pub time: Option<Duration>,
    /// How many requests are made at least, instead of the experiment's own number.
    pub requests: Option<u64>,
    /// How many connections ask, instead of the load's own number.
    pub concurrency: Option<usize>,
    /// How many times as large the experiment's own time and number are made.
    pub scale: f64,
    /// Whether there are networks of one's own ([`own_networks`]).
    pub own_network: bool,
    /// Understands the words of a load.
    pub load: &'a (dyn Fn(&str) -> Result<LoadOptions, String> + Sync),
}

/// How a run is going.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Since the load began; `None` before it.
    pub at: Option<Duration>,
    /// How long the load runs at least.
    pub time: Duration,
    /// How many requests it makes at least.
    pub requests: u64,
    /// What was counted.
    pub load: LoadProgress,
    /// Events done.
    pub events: usize,
}

/// Whether this process may make networks of its own.
pub fn own_networks() -> bool {
    std::thread::spawn(network::enter).join().is_ok_and(|entered| entered.is_ok())
}

/// Runs an experiment on a server. Blocks until it is over; `stop` ends it earlier, with what was measured until then.
/// `tell` hears of its progress, on another thread.
pub fn run(
    experiment: &Experiment,
    server: &Server,
    setting: &Setting<'_>,
    stop: watch::Receiver<bool>,
    tell: &(dyn Fn(Moment) + Sync),
) -> Row {
    let mut row = Row {
        experiment: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        server: server.name.clone(),
        version: String::new(),
        commands: Vec::new(),
        outcome: Outcome::Absent(String::new()),
        articles: Vec::new(),
        group: None,
        expected: server.expect.text().to_owned(),
        as_expected: None,
    };
    if let Some(reason) = absent(experiment, server, setting) {
        row.outcome = Outcome::Absent(reason);
        return row;
    }
    let run = ActiveRun { experiment, server, setting, stop, tell };
    // A thread of its own, for a network belongs to a thread.
    let outcome = std::thread::scope(|scope| scope.spawn(|| run.play(&mut row)).join());
    let panicked = Err(NotMeasured::Broken("the run itself failed, which is a bug in this program".to_owned()));
    match outcome.unwrap_or(panicked) {
        Ok((measured, in_flight)) => {
            row.as_expected = server.expect.judge(&measured, in_flight, has_events(experiment, server));
            row.outcome = Outcome::Measured(Box::new(measured));
        }
        Err(NotMeasured::Absent(reason)) => row.outcome = Outcome::Absent(reason),
        Err(NotMeasured::Broken(reason)) => row.outcome = Outcome::Broken(reason),
    }
    row
}

/// What this machine or this program lacks.
fn absent(experiment: &Experiment, server: &Server, setting: &Setting<'_>) -> Option<String> {
    if let Some(reason) = &server.absent {
        return Some(reason.clone());
    }
    if let Some(program) = missing(&server.needs, &search_path()) {
        return Some(format!("{program} is not installed"));
    }
    if experiment.network == Network::Own && !setting.own_network {
        return Some(
            "it changes the network and needs its own network namespace, which is not permitted (try as root)".into(),
        );
    }
    None
}

/// Why nothing was measured.
enum NotMeasured {
    /// It cannot be done here.
    Absent(String),
    /// It should have been done.
    Broken(String),
}

impl From<String> for NotMeasured {
    fn from(reason: String) -> NotMeasured {
        NotMeasured::Broken(reason)
    }
}

struct ActiveRun<'a> {
    experiment: &'a Experiment,
    server: &'a Server,
    setting: &'a Setting<'a>,
    stop: watch::Receiver<bool>,
    tell: &'a (dyn Fn(Moment) + Sync),
}

impl ActiveRun<'_> {
    fn play(mut self, row: &mut Row) -> Result<(Measured, usize), NotMeasured> {
        if self.setting.own_network && self.experiment.network != Network::Machine {
            network::enter().map_err(|error| format!("cannot create a network namespace: {error}"))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        runtime.block_on(self.whole(row))
    }

    async fn whole(&mut self, row: &mut Row) -> Result<(Measured, usize), NotMeasured> {
        (self.tell)(Moment::default());
        let place = RunEnvironment::new(self.server, &self.setting.baton)?;
        // After the place, so that they end before its directory vanishes.
        let mut processes = Processes::new(place.directory()).map_err(|error| error.to_string())?;
        if let Some(version) = &self.server.version {
            let ran = self.before(processes.run(&place.fill(version), VERSION_MAX)).await?;
            row.version = number(&ran.said).to_owned();
        }
        if let Some(possible) = &self.server.possible {
            let ran = self.before(processes.run(&place.fill(possible), POSSIBLE_MAX)).await?;
            ran.fault.map_or(Ok(()), |_| Err(NotMeasured::Absent(reason(&ran.said))))?;
        }
        let words = place.fill(&self.experiment.load);
        let load = self.load(&words)?;
        let every = self.setting.every.or(self.experiment.every);
        row.commands = place.commands(every, self.server, &words);
        self.start(&place, &mut processes, &load, START_MAX).await?;
        if let Some(operate) = &self.server.operate {
            let ran = self.before(processes.run(&place.fill(operate), START_MAX)).await?;
            ran.fault.map_or(Ok(()), |fault| Err(format!("the operator's command failed: {fault}")))?;
        }
        let in_flight = load.concurrency;
        let measured = self.measure(&place, &mut processes, load).await;
        processes.kill();
        // Of two runs in one process each would take the other's processes for its own.
        drop(processes);
        place.leave().await;
        let mut measured = measured?;
        if let Some(held) = &mut measured.held {
            held.certificates = self.with_certificates(row).await;
        }
        Ok((measured, in_flight))
    }

    /// Starts the server once more, in a place of its own, with as many certificates as the experiment asks for, and measures how long it takes
    /// to replace one; `None` when it asks for none, or the end is asked for.
    async fn with_certificates(&mut self, row: &mut Row) -> Option<HeldCertificates> {
        let (experiment, server) = (self.experiment, self.server);
        let (count, serve) = (experiment.held.as_ref()?.certificates?, server.serve_certificates.as_ref()?);
        let scaled = (count as f64 * self.setting.scale).ceil() as usize;
        let count = scaled.clamp(*CERTIFICATES.start(), *CERTIFICATES.end());
        if *self.stop.borrow() {
            return None;
        }
        (self.tell)(Moment::default());
        match self.renew(count, serve, row).await {
            Ok(measured) => measured,
            Err(_) if *self.stop.borrow() => None,
            Err(reason) => Some(HeldCertificates { count, failed: Some(reason), ..HeldCertificates::default() }),
        }
    }

    async fn renew(&mut self, count: usize, serve: &str, row: &mut Row) -> Result<Option<HeldCertificates>, String> {
        let place = RunEnvironment::new(self.server, &self.setting.baton)?;
        let mut processes = Processes::new(place.directory()).map_err(|error| error.to_string())?;
        let Some(renewal) = Renewal::prepare(count, self.server, &place)? else { return Ok(None) };
        let (serve, start) = (place.fill(serve), place.fill(&self.server.start));
        let head =
            format!("# once more, in {}, with {count} certificates in its folder certs", place.directory().display());
        row.commands.extend([format!("{head}:\n{serve}"), start]);
        row.commands.extend(renewal.commands());
        let ran = self.before(processes.run(&serve, CERTIFICATES_MAX)).await?;
        ran.fault.map_or(Ok(()), |fault| Err(format!("the certificates were not configured: {fault}")))?;
        let load = self.load(&place.fill(&self.experiment.load))?;
        self.start(&place, &mut processes, &load, CERTIFICATES_MAX).await?;
        let measured = self.before(renewal.measure(&mut processes)).await??;
        processes.kill();
        drop(processes);
        place.leave().await;
        Ok(Some(measured))
    }

    /// Does what comes before the load, unless the end is asked for; what runs is then ended with the run.
    async fn before<T>(&mut self, work: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            done = work => Ok(done),
            () = stopped(&mut self.stop) => Err("interrupted before the load started".into()),
        }
    }

    fn load(&self, words: &str) -> Result<LoadOptions, String> {
        let mut load = (self.setting.load)(words).map_err(|reason| format!("the load '{words}': {reason}"))?;
        if let Some(concurrency) = self.setting.concurrency {
            load.concurrency = concurrency;
        }
        Ok(load)
    }

    /// Starts the server and waits until it answers a request of the load.
    async fn start(
        &mut self,
        place: &RunEnvironment,
        processes: &mut Processes,
        load: &LoadOptions,
        limit: Duration,
    ) -> Result<(), String> {
        if let Some(prepare) = &self.server.prepare {
            let ran = self.before(processes.run(&place.fill(prepare), START_MAX)).await?;
            ran.fault.map_or(Ok(()), |fault| Err(format!("the command before the start failed: {fault}")))?;
        }
        let start = place.fill(&self.server.start);
        match self.server.pid_file {
            _ if start.is_empty() => {}
            Some(_) => {
                let ran = self.before(processes.run(&start, limit)).await?;
                ran.fault.map_or(Ok(()), |fault| Err(format!("{} did not start: {fault}", self.server.name)))?;
            }
            None => processes.stay(&start).map_err(|error| format!("{} did not start: {error}", self.server.name))?,
        }
        let until = Instant::now() + limit;
        loop {
            let answered = self.before(answers(load)).await??;
            if answered {
                return Ok(());
            }
            if let Some(words) = processes.ended() {
                return Err(format!("{} ended before it was ready: {words}", self.server.name));
            }
            if Instant::now() > until {
                return Err(format!("{} was not ready within {} s", self.server.name, limit.as_secs()));
            }
            self.before(sleep(LOOK_EVERY)).await?;
        }
    }

    async fn measure(
        &mut self,
        place: &RunEnvironment,
        processes: &mut Processes,
        load: LoadOptions,
    ) -> Result<Measured, String> {
        let scale = self.setting.scale;
        let own_requests =
            self.experiment.requests.or(load.count).map(|requests| (requests as f64 * scale).ceil() as u64);
        let requests = self.setting.requests.or(own_requests).unwrap_or(0);
        // The words of a load have a time of their own when they say none; a number of requests takes its place.
        let time_of_load = load.duration.filter(|_| self.experiment.requests.is_none());
        let own_time = self.experiment.time.or(time_of_load);
        // However small the scale: without events nothing is proved.
        let least = if has_events(self.experiment, self.server) || requests == 0 {
            own_time.map_or(TIME, |time| time.min(TIME))
        } else {
            Duration::ZERO
        };
        let scaled = own_time.unwrap_or_default().mul_f64(scale).max(least);
        let time = self.setting.time.unwrap_or(scaled);
        let phase = Phase::new();
        // Where their number alone counts, no more are begun: who is cut off in the middle of an answer would count as failed.
        let count = (time.is_zero() && requests > 0).then_some(requests);
        let options = LoadOptions { phase: phase.clone(), count, duration: None, ..load };
        let before = self.meter(place, processes).await?;
        let mut held = self.open_held(place, processes).await?;
        let handle = Load::start(options).map_err(|error| format!("the load: {error}"))?;
        let mut events = Events {
            command: place.fill(self.server.event.as_deref().unwrap_or_default()),
            what: self.server.what.clone(),
            every: self.setting.every.or(self.experiment.every).unwrap_or_default(),
            quiet: QUIET.min(time / 5),
            began: handle.started(),
            phase,
            done: Vec::new(),
        };
        let done = watch::Sender::new(0);
        let moment = || Moment {
            at: Some(handle.started().elapsed()),
            time,
            requests,
            load: handle.progress(),
            events: *done.borrow(),
        };
        // Who expects failures and has seen none has shown nothing yet.
        let patience = if self.server.expect == Expect::Failures { time * PATIENCE } else { time };
        let is_over = |moment: &Moment| {
            let is_shown = moment.load.failed() > 0 || moment.at >= Some(patience);
            let is_whole = if count.is_some() { handle.is_finished() } else { moment.load.requests >= requests };
            moment.at >= Some(time) && is_whole && is_shown
        };
        let over = watch::Sender::new(false);
        let watched = async {
            let mut looks = interval(LOOK_EVERY);
            loop {
                looks.tick().await;
                let moment = moment();
                (self.tell)(moment);
                if is_over(&moment) {
                    over.send_replace(true);
                    return;
                }
            }
        };
        let has_events = has_events(self.experiment, self.server);
        let eventful = async {
            if has_events {
                events.go_on(processes, &done, over.subscribe()).await;
            }
        };
        let open_more = async {
            match &mut held {
                Some(open) => open.open_more(time / 5).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ((), ()) = async { tokio::join!(watched, eventful) } => {}
            error = open_more => return Err(error),
            () = stopped(&mut self.stop) => {}
        }
        let in_effect = match held {
            Some(_) => until_in_effect(events.done.len() + 1, self.server, place, processes).await,
            None => None,
        };
        // Who is still there after the end is killed, and what is metered with it.
        let after = self.meter(place, processes).await?;
        // A server that is killed ends its in-flight requests; one whose processes are still to be counted is not.
        let is_counted = held.is_some();
        let kill = || {
            if !is_counted {
                processes.kill()
            }
        };
        let result = end(handle, kill).await;
        let held = match held {
            Some(open) => {
                let wait = self.experiment.held.as_ref().map_or(Duration::ZERO, |held| held.wait.mul_f64(scale));
                let conclude = open.conclude(wait, self.server, place, processes, in_effect);
                Some(self.before(conclude).await?)
            }
            None => None,
        };
        let meter = before
            .zip(after)
            .map(|(before, after)| Meter { what: self.server.metered.clone(), bytes: after.saturating_sub(before) });
        let left_over = self.stop_server(place, processes).await;
        Ok(Measured { held, ..Measured::new(result, events.done, meter, left_over) })
    }

    /// Opens what the experiment holds while the events happen.
    async fn open_held(
        &mut self,
        place: &RunEnvironment,
        processes: &Processes,
    ) -> Result<Option<OpenConnections>, String> {
        let Some(held) = &self.experiment.held else { return Ok(None) };
        let kept = held.kept.as_ref().map(|words| self.load(&place.fill(words))).transpose()?;
        let open = OpenConnections::open(held, self.server, place, processes, kept);
        self.before(open).await?.map(Some)
    }

    /// How many bytes the meter has counted; `None` without one.
    async fn meter(&self, place: &RunEnvironment, processes: &mut Processes) -> Result<Option<u64>, String> {
        let Some(meter) = &self.server.meter else { return Ok(None) };
        let ran = processes.run(&place.fill(meter), METER_MAX).await;
        ran.fault.map_or(Ok(()), |fault| Err(format!("the meter: {fault}")))?;
        match ran.said.trim() {
            "" => Err("the meter printed nothing; what it measures may be gone".into()),
            said => said.parse().map(Some).map_err(|_| format!("the meter printed '{said}', not a number")),
        }
    }

    /// Ends the server as it should be ended, and tells what stayed.
    async fn stop_server(&self, place: &RunEnvironment, processes: &mut Processes) -> Vec<String> {
        match &self.server.stop {
            Some(stop) => drop(processes.run(&place.fill(stop), STOP_MAX).await),
            None => match self.server.pid_file.as_ref().and_then(|file| pid(&place.directory().join(place.fill(file))))
            {
                Some(pid) => processes.terminate_one(pid),
                None => processes.terminate(),
            },
        }
        let left = processes.wait(STOP_MAX).await;
        let told =
            |name: &str, pid| format!("{name} (process {pid}) had not ended {} s after the end", STOP_MAX.as_secs());
        left.iter().map(|left| told(&left.name, left.pid)).collect()
    }
}

/// Whether something is done to the server.
fn has_events(experiment: &Experiment, server: &Server) -> bool {
    experiment.every.is_some() && server.event.is_some()
}

/// Whether a request of the load is answered as it should be.
async fn answers(load: &LoadOptions) -> Result<bool, String> {
    let short = Timeouts { connect: TRY_MAX, first_byte: TRY_MAX, whole: TRY_MAX };
    let once = LoadOptions {
        concurrency: 1,
        threads: 1,
        rate: None,
        count: Some(1),
        duration: None,
        timeouts: short,
        ..load.clone()
    };
    let result = Load::start(once).map_err(|error| format!("the load: {error}"))?.wait().await;
    Ok(result.counts.completed == 1)
}

/// Why something is not possible, in the last line of what was said about it.
fn reason(said: &str) -> String {
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it is not possible here");
    last.trim().trim_start_matches("baton: ").to_owned()
}

/// The version in what a server says of itself: the first word, or part behind a slash, that begins with a digit.
fn number(said: &str) -> &str {
    let words = said.split(|letter: char| letter.is_whitespace() || letter == '/');
    words.into_iter().find(|word| word.starts_with(|letter: char| letter.is_ascii_digit())).unwrap_or_default()
}

/// The number that a server has written of itself.
fn pid(file: &Path) -> Option<i32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// How long the first request may take.
const TRY_MAX: Duration = Duration::from_secs(5);

/// Returns when the end is asked for.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_version_is_found() {
        assert_eq!(number("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"), "2.6.12-1+deb12u4");
        assert_eq!(number("nginx version: nginx/1.22.1\n"), "1.22.1");
        assert_eq!(number("what?"), "");
    }
}
