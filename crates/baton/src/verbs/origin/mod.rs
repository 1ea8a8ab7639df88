//! `baton origin`: demo origins until Ctrl-C, and what they counted.
//!
//! A thin end of [`baton_prove::Origin`]: [`place`] is what the command line says of where, the rest is here.

mod place;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use baton_kernel::process::limits::OpenFiles;
use baton_prove::origin::{Counts, FREEZE_MAX, FaultRate, Faults, InjectedFault, OriginKind};
use baton_prove::{Origin, OriginHandle, OriginOptions, Target, units};
use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use crate::interrupt::Interrupt;
use place::OriginAddress;

/// Run test servers that report each request, return any kind of response and inject failures.
///
/// Each responds with its name, port, request count and the received headers as JSON; the paths /bytes/N, /chunked/N,
/// /delay/200ms, /status/503, /echo, /ws and /fail/NAME select another response. On start each prints its name and address;
/// on Ctrl-C or SIGTERM it stops gracefully and prints its counters. SIGUSR1 freezes all of them for a while.
/// All paths and failures: docs/origin.md.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  baton origin 8001 8002 --name app
  baton origin left=8001 right=8002 /run/app.sock
  baton origin 8001 --fail reset=1%,half-body=1/1000
  baton origin --tcp 7000
  curl 'http://127.0.0.1:8001/bytes/1000?delay=200ms'")]
pub struct OriginCommand {
    /// Address of each origin, with an optional name: a port (0: any free one), HOST:PORT, or the path of a unix socket
    #[arg(value_name = "[NAME=]ADDRESS", default_value = "0")]
    places: Vec<OriginAddress>,
    /// Name in the responses; with several origins a number is appended
    #[arg(long, default_value = "origin", value_parser = place::name)]
    name: String,
    /// Local address of origins that are given as a port only
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// TCP echo server instead of HTTP
    #[arg(long, conflicts_with = "fail")]
    tcp: bool,
    /// Make this share of all requests fail, evenly spread: reset=1%, half-body=1/1000 (repeatable)
    #[arg(long, value_name = "NAME=RATE", value_delimiter = ',')]
    fail: Vec<FaultRate>,
    /// Duration of a freeze (200ms, 1.5s)
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = freeze_time)]
    freeze: Duration,
    /// Freeze all origins at this interval (5s), not only on SIGUSR1
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    freeze_every: Option<Duration>,
    /// End after this time: seconds, or with a unit (90s, 2m, 1h)
    #[arg(long = "for", value_name = "TIME", value_parser = units::time)]
    time: Option<Duration>,
    /// Print addresses and counters as JSON, one line each
    #[arg(long)]
    json: bool,
}

/// Runs the origins until they are told to end.
///
/// # Errors
/// A sentence, when an origin could not begin or could go on no longer.
pub fn run(command: &OriginCommand) -> Result<ExitCode, String> {
    // Each connection is a descriptor, and nobody else has to live with this process's limit.
    if let Ok(limit) = OpenFiles::now() {
        let _ = OpenFiles::raise(limit.hard);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(serve(command)).map(|()| ExitCode::SUCCESS)
}

async fn serve(command: &OriginCommand) -> Result<(), String> {
    let plain = |error: io::Error| error.to_string();
    let mut end = Interrupt::listen().map_err(plain)?;
    let mut freeze = signal(SignalKind::user_defined1()).map_err(plain)?;
    let origins = start(command)?;
    let kind = if command.tcp { OriginKind::TcpEcho } else { OriginKind::Http };
    for origin in &origins {
        say(&started(origin, kind, command.json));
    }

    let mut time = std::pin::pin!(sleep(command.time.unwrap_or(Duration::MAX)));
    let mut turns = command.freeze_every.map(|every| {
        let mut turns = interval_at(tokio::time::Instant::now() + every, every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns
    });
    loop {
        let turn = async {
            match &mut turns {
                Some(turns) => drop(turns.tick().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = end.next() => break,
            () = &mut time => break,
            _ = freeze.recv() => {}
            () = turn => {}
        }
        origins.iter().for_each(|origin| origin.freeze(command.freeze));
        let _ = writeln!(io::stderr(), "baton: frozen for {:?}", command.freeze);
    }

    let results: Vec<(String, Arc<Counts>)> =
        origins.iter().map(|origin| (origin.name().to_owned(), origin.counts())).collect();
    let stopped = async {
        let mut outcome = Ok(());
        for origin in origins {
            let name = origin.name().to_owned();
            outcome = outcome.and(origin.stop().await.map_err(|error| format!("origin {name}: {error}")));
        }
        outcome
    };
    tokio::select! {
        outcome = stopped => {
            results.iter().for_each(|(name, counts)| say(&counted(name, counts, command.json)));
            outcome
        }
        () = end.next() => Err("interrupted".into()),
    }
}

fn start(command: &OriginCommand) -> Result<Vec<OriginHandle>, String> {
    let faults = if command.fail.is_empty() { Faults::None } else { Faults::Rates(command.fail.clone()) };
    let mut origins: Vec<OriginHandle> = Vec::with_capacity(command.places.len());
    for (index, place) in command.places.iter().enumerate() {
        let name = match (&place.name, command.places.len()) {
            (Some(name), _) => name.clone(),
            (None, 1) => command.name.clone(),
            (None, _) => format!("{}{}", command.name, index + 1),
        };
        let options = OriginOptions {
            kind: if command.tcp { OriginKind::TcpEcho } else { OriginKind::Http },
            faults: faults.clone(),
            ..OriginOptions::new(name)
        };
        let options = place.apply(command.bind, options)?;
        origins.push(Origin::start(options).map_err(|error| format!("cannot listen on {place}: {error}"))?);
    }
    Ok(origins)
}

/// Who does not read the lines still has the origins.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush());
}

/// The line for an origin that listens: `NAME URL`.
fn started(origin: &OriginHandle, kind: OriginKind, json: bool) -> String {
    let speaks = match kind {
        OriginKind::Http => "http",
        OriginKind::TcpEcho => "tcp",
    };
    let (url, port) = match origin.target() {
        Target::Unix(path) => (format!("unix:{}", path.display()), None),
        _ => (format!("{speaks}://{}", origin.address()), Some(origin.address().port())),
    };
    if json {
        return json!({ "name": origin.name(), "speaks": speaks, "url": url, "port": port, "pid": std::process::id() })
            .to_string();
    }
    format!("{} {url}", origin.name())
}

/// The line for what an origin counted.
fn counted(name: &str, counts: &Counts, json: bool) -> String {
    let committed: Vec<(InjectedFault, u64)> = InjectedFault::ALL
        .into_iter()
        .map(|fault| (fault, counts.committed(fault).total()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let (requests, connections, frozen) = (counts.requests(), counts.connections(), counts.freezes().len());
    if json {
        let committed: serde_json::Map<String, serde_json::Value> =
            committed.iter().map(|(fault, count)| (fault.name().to_owned(), (*count).into())).collect();
        return json!({ "name": name, "requests": requests, "connections": connections, "failures": committed, "freezes": frozen })
            .to_string();
    }
    let mut line = format!("{name}: {requests} requests on {connections} connections");
    if !committed.is_empty() {
        let committed: Vec<String> = committed.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
        line.push_str(&format!("; failed on purpose: {}", committed.join(", ")));
    }
    if frozen > 0 {
        line.push_str(&format!("; freezes: {frozen}"));
    }
    line
}

fn freeze_time(text: &str) -> Result<Duration, String> {
    units::time(text).and_then(|time| match time <= FREEZE_MAX {
        true => Ok(time),
        false => Err(format!("at most {} s", FREEZE_MAX.as_secs())),
    })
}
