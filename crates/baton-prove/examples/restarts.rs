//! A proxy is replaced again and again by `PROGRAM -f FILE -sf PID` while requests pass, in blocks with and without restarts in
//! turn, so that both are measured in one run. Several programs follow each other in turn.
//!
//! `restarts [--requests N] [--restarts N] [--every MS] [--load each|kept|crowd] [--json] PROGRAM [PROGRAM…]`

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baton_prove::{Load, LoadOptions, Origin, OriginHandle, OriginOptions, Phase, Report, Request};

type Failed = Box<dyn std::error::Error>;

/// Restarts in a block; a block without restarts is as long.
const BLOCK: u64 = 25;
/// How long the first process may take to listen, and the old ones to end after the load.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest run.
const RUN_MAX: Duration = Duration::from_secs(1800);

/// What was asked for.
struct Asked {
    requests: u64,
    restarts: u64,
    every: Duration,
    load: String,
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
    std::fs::write(&file, config(web, &origins))?;
    let mut processes = Processes { all: vec![start(&asked.programs[0], &file, None)?] };
    listens(web)?;

    let phase = Phase::new();
    let load = Load::start(options(&asked.load, web, &phase)?)?;
    let (began, mut restarts, mut in_blocks, mut pause) = (Instant::now(), 0, 0, Duration::ZERO);
    while (restarts < asked.restarts || in_blocks < asked.requests) && began.elapsed() < RUN_MAX {
        // Without restarts, as long as the block before took.
        tokio::time::sleep(pause).await;
        let (block, before) = (Instant::now(), load.progress().completed);
        let changing = phase.begin();
        for _ in 0..BLOCK {
            let due = Instant::now() + asked.every;
            restarts += 1;
            let program = &asked.programs[restarts as usize % asked.programs.len()];
            let last = processes.all.last().map(Child::id);
            processes.all.push(start(program, &file, last)?);
            processes.reap(false)?;
            tokio::time::sleep_until(due.into()).await;
        }
        drop(changing);
        in_blocks += load.progress().completed - before;
        pause = block.elapsed();
    }
    let report = Report::new(&load.stop().await);
    processes.reap(true)?;
    say(asked, restarts, &report);
    if !report.is_clean() {
        return Err(format!("{} requests failed: {}", report.failed, report.kinds()).into());
    }
    Ok(())
}

fn say(asked: &Asked, restarts: u64, report: &Report) {
    if asked.json {
        println!("{}", report.to_json());
        return;
    }
    println!("{restarts} restarts, one every {} ms, in blocks of {BLOCK}\n", asked.every.as_millis());
    println!("{}", Report::table([(asked.load.as_str(), report)]));
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

fn config(web: SocketAddr, origins: &[OriginHandle]) -> String {
    let mut text = format!(
        "global\n nbthread 1\n maxconn 1000\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\n timeout http-keep-alive 5s\nfrontend web\n bind {web}\n default_backend app\nbackend app\n"
    );
    for (number, origin) in origins.iter().enumerate() {
        text += &format!(" server s{number} {}\n", origin.address());
    }
    text
}

/// Everything that was started; killed when this is dropped.
struct Processes {
    all: Vec<Child>,
}

impl Processes {
    /// Forgets those that have ended, well; the last one serves. At the end all others must be gone.
    fn reap(&mut self, is_end: bool) -> Result<(), Failed> {
        let last = self.all.pop();
        let end = Instant::now() + PATIENCE;
        loop {
            let mut left = Vec::new();
            for mut child in self.all.drain(..) {
                match child.try_wait()? {
                    None => left.push(child),
                    Some(status) if status.success() => {}
                    Some(status) => return Err(format!("process {} ended with {status}", child.id()).into()),
                }
            }
            self.all = left;
            if !is_end || self.all.is_empty() {
                break;
            }
            if Instant::now() > end {
                return Err(format!("{} old processes are left over", self.all.len()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.all.extend(last);
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.all {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::io::stdout().flush();
    }
}

fn start(program: &str, file: &Path, after: Option<u32>) -> Result<Child, Failed> {
    let mut command = Command::new(program);
    command.arg("-db").arg("-q").arg("-f").arg(file).stdin(Stdio::null());
    if let Some(pid) = after {
        command.arg("-sf").arg(pid.to_string());
    }
    command.spawn().map_err(|error| format!("{program}: {error}").into())
}

fn listens(web: SocketAddr) -> Result<(), Failed> {
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(web).is_err() {
        if Instant::now() > end {
            return Err("the first process does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
