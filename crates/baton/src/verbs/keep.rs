//! `baton keep`: listening sockets that outlive the program that serves them. A thin end of [`baton_guard::keep`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use baton_guard::keep::{self, Dialect, Keep, Listen, Probe, Readiness, readiness};
use baton_prove::units;
use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;

/// Keep listening sockets open for a program across its restarts and crashes.
///
/// The sockets are opened once. The program gets them from descriptor 3 on, as with systemd's socket activation
/// (LISTEN_FDS), and by number in its environment: BATON_FD_80 for port 80. SIGHUP restarts the program: the new instance starts
/// first, and once it serves, the old one drains. A program that crashes is restarted; new connections
/// wait meanwhile and are not refused. SIGTERM drains and ends. More: docs/keep.md.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  baton keep --listen :80 --listen :443 -- haproxy -db -f haproxy.cfg    # with: bind \"fd@${BATON_FD_80}\"
  kill -HUP PID                                                          # restarts it without refusing a connection
  baton keep --listen :80 --for nginx --drain-signal QUIT -- nginx -g 'daemon off;'
  baton keep --listen :80 --export /run/web.sock -- ./app                # haproxy -x /run/web.sock gets the sockets too")]
pub struct KeepCommand {
    // Brackets in a comment would be a link to rustdoc.
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Address to listen on: [NAME=]ADDRESS[,OPTION…]. :80 is IPv4, [::]:80 IPv6, /run/web.sock a path, abns@web an \
                abstract name; options: backlog=N, v4v6, v6only, interface=NAME, transparent, mode=0660"
    )]
    listen: Vec<Listen>,
    /// When the program counts as serving: auto (it sent READY=1, waits for connections on a socket, or has run for 10 s) or
    /// notify (it sent READY=1)
    #[arg(long, default_value = "auto", conflicts_with_all = ["ready_after", "probe"])]
    ready: Ready,
    /// The program counts as serving after this time: 300ms, 5s, 1m; a plain number means seconds
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    ready_after: Option<Duration>,
    /// The program counts as serving once this responds: http://HOST:PORT/PATH, /PATH on the addresses above, tcp://ADDRESS:PORT, or a
    /// command of sh, with BATON_KEEP_PID. Old and new instance have the same sockets: choose what only the new one responds to
    #[arg(long, value_name = "PROBE", conflicts_with = "ready_after")]
    probe: Option<Probe>,
    /// Timeout until it serves; after it the new instance is ended, and the old one keeps serving
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time)]
    ready_within: Duration,
    /// Signal for a graceful stop of the program (haproxy: USR1, nginx: QUIT)
    #[arg(long, value_name = "SIGNAL", default_value = "USR1", value_parser = signal)]
    drain_signal: Signal,
    /// Timeout of the graceful stop, after which the program is killed [default: none]
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    max_drain: Option<Duration>,
    /// Pass the sockets to programs that request them on this unix socket, which only the same user and root may open
    #[arg(long, value_name = "SOCKET")]
    export: Option<PathBuf>,
    /// Switch to this user once the sockets are open, for the program too
    #[arg(long, value_name = "USER[:GROUP]", value_parser = account)]
    user: Option<(u32, u32, Vec<u32>)>,
    /// Also pass the sockets as this program expects them
    #[arg(long = "for", value_name = "PROGRAM")]
    dialect: Option<For>,
    /// The program, which must stay in the foreground, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ready {
    Auto,
    Notify,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum For {
    Nginx,
}

/// Keeps until told to end.
///
/// # Errors
/// A sentence, when it could not begin.
pub fn run(command: &KeepCommand) -> Result<ExitCode, String> {
    let readiness = match (&command.probe, command.ready_after, command.ready) {
        (Some(probe), ..) => Readiness::Probe(probe.clone()),
        (None, Some(time), _) => Readiness::After(time),
        (None, None, Ready::Auto) => Readiness::Auto,
        (None, None, Ready::Notify) => Readiness::Notify,
    };
    let keep = Keep {
        listen: command.listen.clone(),
        command: command.command.clone(),
        readiness,
        ready_within: command.ready_within,
        drain_signal: command.drain_signal,
        drain_max: command.max_drain,
        export: command.export.clone(),
        user: command.user.clone(),
        dialect: match command.dialect {
            Some(For::Nginx) => Dialect::Nginx,
            None => Dialect::Systemd,
        },
    };
    keep::run(&keep).map(ExitCode::from)
}

fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse().map_err(|_| "expected a signal such as USR1, QUIT or TERM".into())
}

fn account(text: &str) -> Result<(u32, u32, Vec<u32>), String> {
    readiness::account(text)
}
