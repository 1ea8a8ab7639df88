//! `baton demo`: a proxy under load whose configuration changes twice a second, and proof that nobody felt it.
//!
//! [`scene`] is what the proxy is to be, [`changes`] the table of what is changed, [`director`] who changes it; [`stage`] is
//! everything around, [`watch`] the live view, [`result`] the judgement. The proxy is [`proxy`], a process of its own that
//! is changed by what everybody has: its file and what `baton reload` asks.

mod certificates;
mod changes;
mod director;
mod probe;
mod proxy;
mod result;
mod scene;
mod stage;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use baton_kernel::output::{self, LineWriter, WriteMode};
use baton_prove::{Progress, units};
use clap::Args;

use crate::interrupt::Interrupt;
use certificates::Certificates;
use proxy::{DemoFiles, Proxy};
use result::DemoMeasurement;
use scene::{DemoAddresses, DemoState};
use stage::{Origins, start_proxy};

/// Run a proxy under load, change it twice a second, and count failures.
///
/// Starts two origins and a proxy, on loopback addresses only. The load: requests on keep-alive connections,
/// requests with a new connection each, requests over TLS, and open WebSockets and TCP tunnels. Meanwhile servers, frontends,
/// addresses, rules, limits and the certificate change; some new files are invalid and must be rejected. The exit code is 0 if nothing
/// failed, otherwise 1. Ctrl-C ends it early and prints the results.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  baton demo\n  baton demo --for 2m --rate 3000\n  baton demo --json | jq .clean")]
pub struct Demo {
    /// Duration of the load: seconds, or with a unit (90s, 2m, 1h)
    #[arg(long = "for", value_name = "SECONDS", default_value = "20", value_parser = duration)]
    time: Duration,
    /// Requests per second; a fifth of them (at most 300) use a new connection each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    rate: u32,
    /// Leave the proxy and the origins running until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
}

/// How long the demo's threads may take to end after everything else did.
const END_MAX: Duration = Duration::from_secs(1);

/// Plays the demo.
///
/// # Errors
/// A sentence, when it could not begin, or was interrupted a second time.
pub fn run(command: &Demo) -> Result<ExitCode, String> {
    // The demonstration goes on when its terminal is held (Ctrl-S).
    output::set_mode(WriteMode::Queue);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let played = runtime.block_on(play(command));
    runtime.shutdown_timeout(END_MAX);
    played.map(|clean| if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where lines for people go: standard output, or nowhere with `--json`.
type DemoOutput = Progress<Box<dyn Write + Send>>;

fn voice(json: bool) -> DemoOutput {
    match json {
        true => Progress::new(Box::new(io::sink()), false),
        false => Progress::new(Box::new(LineWriter::stdout()), io::stdout().is_terminal()),
    }
}

async fn play(command: &Demo) -> Result<bool, String> {
    let plain = |error: io::Error| error.to_string();
    let mut interrupt = Interrupt::listen().map_err(plain)?;
    let directory = tempfile::Builder::new().prefix("baton-demo-").tempdir().map_err(plain)?;
    let origins = Origins::start().map_err(|error| format!("cannot start the origins: {error}"))?;
    let certificates = Certificates::new().map_err(|error| format!("cannot make certificates: {error}"))?;
    let (mut proxy, places) = start_proxy(&origins, &certificates, &directory).await?;
    let mut voice = voice(command.json);
    voice.note(introduction(&places, &proxy.files()));

    let measured = watch::watch(command, &mut proxy, &places, certificates, &mut interrupt, &mut voice).await?;
    voice.clear();
    say(&measured, command.json);
    if command.keep && !measured.interrupted && measured.errors.is_empty() {
        voice.note(hints(&places, &proxy.files()));
        keep(&mut proxy, &mut interrupt).await?;
    }
    tokio::select! {
        () = async { proxy.stop().await; origins.stop().await } => Ok(measured.clean),
        () = interrupt.next() => Err("interrupted".into()),
    }
}

fn say(measured: &DemoMeasurement, json: bool) {
    let text = match json {
        true => serde_json::to_string_pretty(measured).unwrap_or_default(),
        false => format!("\n{measured}"),
    };
    // Who does not read the result still gets the exit code.
    output::print(&format!("{text}\n"));
}

async fn keep(proxy: &mut Proxy, interrupt: &mut Interrupt) -> Result<(), String> {
    tokio::select! {
        text = proxy.died() => Err(text),
        () = interrupt.next() => Ok(()),
    }
}

fn introduction(places: &DemoAddresses, files: &DemoFiles) -> String {
    format!("First configuration of the proxy, {}:\n\n{}", files.cfg.display(), DemoState::default().to_cfg(places))
}

fn hints(places: &DemoAddresses, files: &DemoFiles) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "baton".into());
    let (cfg, pid) = (files.cfg.display(), files.pid_file.display());
    let DemoAddresses { web, secure, certificates, .. } = places;
    let authority = certificates.with_file_name("authority.pem");
    format!(
        "\nThe proxy and its origins run until Ctrl-C. Try:\n  \
         curl http://{web}/\n  \
         curl http://{web}/bytes/100\n  \
         curl -d 'what comes back' http://{web}/echo\n  \
         curl --cacert {} --connect-to ::{secure} https://demo.example/\n  \
         ${{EDITOR:-vi}} {cfg}\n  \
         {program} plan -p {pid}\n  \
         {program} reload -p {pid}\n  \
         {program} status -p {pid}",
        authority.display()
    )
}

/// The longest demo.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A time of at least one second: `20`, `0.5m`, `90s`.
fn duration(text: &str) -> Result<Duration, String> {
    let time = units::time(text)?;
    match (Duration::from_secs(1)..=TIME_MAX).contains(&time) {
        true => Ok(time),
        false => Err("between 1s and 24h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_lasts_between_a_second_and_a_day() {
        let check = |text: &str, expect: Result<u64, &str>| {
            assert_eq!(duration(text), expect.map(Duration::from_secs).map_err(str::to_owned), "{text}");
        };
        check("20", Ok(20));
        check("60s", Ok(60));
        check("1.5m", Ok(90));
        check("24h", Ok(86_400));
        check("0.5", Err("between 1s and 24h"));
        check("25h", Err("between 1s and 24h"));
        check("5d", Err("the unit must be us, ms, s, m or h"));
    }
}
