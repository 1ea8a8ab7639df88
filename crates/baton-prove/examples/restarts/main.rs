//! A proxy is replaced again and again by `PROGRAM -f FILE -sf PID` while requests pass, in blocks with and without restarts in
//! turn, so that both are measured in one run. Several programs follow each other in turn.
//!
//! `restarts [--requests N] [--restarts N] [--every MS] [--load each|kept|crowd] [--threads N] [--transfer] [--json]
//! PROGRAM [PROGRAM…]`
//!
//! With `--transfer` each one takes the sockets by HAProxy's own transfer (`-x SOCKET -sf PID`), so that HAProxy can be one of
//! them. HAProxy closes idle connections when it leaves, some of them under the next request: such failures of clients
//! that keep their connections are counted beside the others, by who was leaving.

mod processes;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use baton_prove::{
    Failure, FailureKind, Load, LoadOptions, Origin, OriginHandle, OriginOptions, Phase, Progress, Report, Request,
};
use serde_json::json;

use crate::processes::{Processes, Way};

type Failed = Box<dyn std::error::Error>;

/// Restarts in a block; a block without restarts is as long.
const BLOCK: u64 = 25;
/// The longest run.
const RUN_MAX: Duration = Duration::from_secs(1800);
/// A client whose first packet is lost sends it again after this time (RFC 6298, 2.1).
const SENT_AGAIN: Duration = Duration::from_secs(1);

/// What was asked for.
struct Asked {
    requests: u64,
    restarts: u64,
    every: Duration,
    load: String,
    threads: u32,
    way: Way,
    json: bool,
    programs: Vec<String>,
}

fn main() -> Result<(), Failed> {
    let asked = arguments(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&asked))
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Asked, Failed> {
    let mut asked = Asked {
        requests: 100_000,
        restarts: 150,
        every: Duration::from_millis(100),
        load: "each".into(),
        threads: 1,
        way: Way::Signal,
        json: false,
        programs: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--requests" => asked.requests = value()?.parse()?,
            "--restarts" => asked.restarts = value()?.parse()?,
            "--every" => asked.every = Duration::from_millis(value()?.parse()?),
            "--load" => asked.load = value()?,
            "--threads" => asked.threads = value()?.parse()?,
            "--transfer" => asked.way = Way::Transfer,
            "--json" => asked.json = true,
            _ if word.starts_with('-') => return Err(format!("unknown option {word}").into()),
            _ => asked.programs.push(word),
        }
    }
    if asked.programs.is_empty() {
        return Err("no program to restart".into());
    }
    Ok(asked)
}

/// The article's loads: a connection for each request from 10 clients, 10 clients that keep theirs, or 200 of them.
fn options(load: &str, web: SocketAddr, phase: &Phase) -> Result<LoadOptions, Failed> {
    let (keep_alive, concurrency, rate) = match load {
        "each" => (false, 10, None),
        "kept" => (true, 10, Some(1000.0)),
        "crowd" => (true, 200, Some(2000.0)),
        other => return Err(format!("no such load: {other}").into()),
    };
    let requests = vec![Request::get("/bytes/1000")];
    let options = LoadOptions { keep_alive, concurrency, threads: 1, rate, requests, ..LoadOptions::new(web) };
    Ok(LoadOptions { phase: phase.clone(), ..options })
}

async fn run(asked: &Asked) -> Result<(), Failed> {
    let origins = [Origin::start(OriginOptions::new("one"))?, Origin::start(OriginOptions::new("two"))?];
    let web = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("restarts.cfg");
    std::fs::write(&file, config(asked, web, folder.path(), &origins))?;
    let mut processes = Processes::start(asked.way.clone(), &asked.programs[0], folder.path(), &file, web)?;

    let (phase, mut progress) = (Phase::new(), Progress::stderr());
    let load = Load::start(options(&asked.load, web, &phase)?)?;
    let (began, mut in_blocks, mut pause) = (Instant::now(), 0, Duration::ZERO);
    let mut leaves = Vec::new();
    while ((leaves.len() as u64) < asked.restarts || in_blocks < asked.requests) && began.elapsed() < RUN_MAX {
        // Without restarts, as long as the block before took.
        tokio::time::sleep(pause).await;
        let (block, before) = (Instant::now(), load.progress().completed);
        let changing = phase.begin();
        for _ in 0..BLOCK {
            let due = Instant::now() + asked.every;
            let program = |number: usize| &asked.programs[number % asked.programs.len()];
            leaves.push(Leave { at: load.started().elapsed(), who: program(leaves.len()).clone() });
            processes.restart(program(leaves.len()))?;
            processes.reap()?;
            progress.show(Instant::now(), || {
                let counts = load.progress();
                let (restarts, failed) = (leaves.len(), counts.failed());
                format!("{}: {restarts} restarts, {} requests, {failed} failed", asked.load, counts.completed)
            });
            tokio::time::sleep_until(due.into()).await;
        }
        drop(changing);
        in_blocks += load.progress().completed - before;
        pause = block.elapsed();
    }
    let result = load.stop().await;
    progress.clear();
    processes.settle()?;
    let (report, by_leaver) = (Report::new(&result), by_leaver(&leaves, &result.failures));
    let late = result.latency();
    let late = late.count_between(micros(SENT_AGAIN), late.max().max(micros(SENT_AGAIN)));
    say(asked, &Outcome { leaves: &leaves, by_leaver: &by_leaver, late, report: &report });
    judge(asked, &report, &by_leaver)
}

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}

/// A process was told to leave; the one after it was started at this moment of the load.
struct Leave {
    at: Duration,
    who: String,
}

/// Failures by the program that was the last to be told to leave.
type ByLeaver = BTreeMap<String, BTreeMap<&'static str, u64>>;

fn by_leaver(leaves: &[Leave], failures: &[Failure]) -> ByLeaver {
    let mut sums = ByLeaver::new();
    for leave in leaves {
        sums.entry(leave.who.clone()).or_default();
    }
    for failure in failures {
        let before = leaves.partition_point(|leave| leave.at <= failure.at);
        let who = before.checked_sub(1).map_or("nobody", |last| &leaves[last].who);
        *sums.entry(who.to_owned()).or_default().entry(failure.kind.name()).or_default() += 1;
    }
    sums
}

/// Nothing may fail, but for what HAProxy does to clients that keep their connections.
fn judge(asked: &Asked, report: &Report, by_leaver: &ByLeaver) -> Result<(), Failed> {
    let is_haproxy = |who: &str| Path::new(who).file_name().is_some_and(|name| name == "haproxy");
    let of_haproxy: u64 = by_leaver
        .iter()
        .filter(|(who, _)| is_haproxy(who) && asked.load != "each")
        .filter_map(|(_, kinds)| kinds.get(FailureKind::ClosedOnReuse.name()))
        .sum();
    if report.failed > of_haproxy || !report.errors.is_empty() {
        let errors = report.errors.join("; ");
        return Err(format!("{} requests failed: {} {errors}", report.failed, report.kinds()).into());
    }
    Ok(())
}

/// What is told.
struct Outcome<'a> {
    leaves: &'a [Leave],
    by_leaver: &'a ByLeaver,
    /// Requests that took as long as a lost first packet.
    late: u64,
    report: &'a Report,
}

fn say(asked: &Asked, outcome: &Outcome<'_>) {
    let &Outcome { leaves, by_leaver, late, report } = outcome;
    let (restarts, every) = (leaves.len(), asked.every.as_millis());
    if asked.json {
        let all = json!({
            "load": asked.load, "programs": asked.programs, "transfer": asked.way == Way::Transfer, "restarts": restarts,
            "every_ms": every, "threads": asked.threads, "failures_by_leaver": by_leaver, "over_a_second": late,
            "report": report,
        });
        println!("{all:#}");
        return;
    }
    let pace = match asked.way {
        Way::Signal => format!("one every {every} ms"),
        Way::Transfer => format!("one every {every} ms or when the one before has taken over, by -x"),
    };
    println!("{restarts} restarts, {pace}, in blocks of {BLOCK}\n");
    println!("{}", Report::table([(asked.load.as_str(), report)]));
    if by_leaver.len() > 1 {
        for (who, kinds) in by_leaver {
            let count: u64 = kinds.values().sum();
            let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            println!("while {who} left: {count} failed {}", kinds.join(", "));
        }
    }
    if asked.load == "each" {
        // At a fixed rate, lateness counts, and a slow machine is late.
        println!("requests that took a second or longer: {late}");
    }
    if let (Some(during), Some(outside)) = (report.latency_us_during, report.latency_us_outside) {
        let ratio = |during: u64, outside: u64| during as f64 / outside.max(1) as f64;
        println!(
            "with restarts to without: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
            ratio(during.p50, outside.p50),
            ratio(during.p99, outside.p99),
            ratio(during.p999, outside.p999),
            ratio(during.max, outside.max)
        );
    }
}

fn config(asked: &Asked, web: SocketAddr, folder: &Path, origins: &[OriginHandle]) -> String {
    let socket = match asked.way {
        Way::Signal => String::new(),
        Way::Transfer => {
            let socket = Processes::stats_socket(folder);
            format!(" stats socket {} mode 600 level admin expose-fd listeners\n", socket.display())
        }
    };
    let mut text = format!(
        "global\n nbthread {}\n maxconn 1000\n{socket}defaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\n timeout http-keep-alive 5s\nfrontend web\n bind {web}\n default_backend app\nbackend app\n",
        asked.threads
    );
    for (number, origin) in origins.iter().enumerate() {
        text += &format!(" server s{number} {}\n", origin.address());
    }
    text
}
