//! Experiments: a server under test, a load, and something done to the server again and again.
//!
//! An [`Experiment`] is data, read from a small text ([`Experiment::parse`]); [`built_in`] has those that come with the program.
//! [`run`] does one to one server and gives a row of a [`Proof`](crate::proof::Proof). Each run has a private directory, a
//! network of its own where the rights suffice, and leaves nothing behind: no process, no rule, no file.
//!
//! It knows servers only by their commands; what a load is in words is up to the caller.

pub mod articles;
pub mod built_in;

mod end;
mod events;
mod file;
mod held;
mod network;
mod place;
mod processes;
mod renewal;
mod run;
mod variables;

use std::collections::BTreeMap;
use std::time::Duration;

pub use file::ExperimentError;
pub use network::become_root_inside;
pub use run::{Moment, Setting, own_networks, run};

/// How many certificates an experiment may have ([`Held::certificates`]), after `--scale` too.
pub const CERTIFICATES: std::ops::RangeInclusive<usize> = 2..=100_000;

/// The shortest time from one event to the next.
pub const EVERY_MIN: Duration = Duration::from_millis(1);

/// What is done to servers, and what must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Its short name, such as `hard-restart`.
    pub name: String,
    /// Its name for a heading.
    pub title: String,
    /// What is done and why, in a sentence.
    pub about: String,
    /// The time from one event to the next; `None` when nothing is done.
    pub every: Option<Duration>,
    /// How long the load runs at least; `None` leaves it to the caller.
    pub time: Option<Duration>,
    /// How many requests are made at least; `None` means that time alone counts.
    pub requests: Option<u64>,
    /// The load, in the words of `baton load`, with variables.
    pub load: String,
    /// What is held open while the events happen, and looked at afterwards; `None` when the load is all.
    pub held: Option<Held>,
    /// Which network it takes place in.
    pub network: Network,
    /// To whom it can be done, in the order in which it is.
    pub servers: Vec<Server>,
}

/// Connections that are open while the events happen, and the time until old processes are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// WebSockets at `ws://{{web}}/ws`.
    pub websockets: usize,
    /// TCP connections to `{{port2}}`, which the server forwards to `{{echo}}`; none with a server that forwards no TCP.
    pub tunnels: usize,
    /// A second load, over kept connections, in the words of `baton load`.
    pub kept: Option<String>,
    /// Time from the last event until processes are counted. The connections stay open meanwhile.
    pub wait: Duration,
    /// With how many certificates the server is started once more, to replace one of them; `None` when it is not.
    pub certificates: Option<usize>,
}

/// Which network a run takes place in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// One of its own where the rights suffice, else the machine's.
    #[default]
    Either,
    /// Only one of its own: the experiment changes rules or settings.
    Own,
    /// The machine's: the server needs it, or runs already.
    Machine,
}

/// A server under test: all of it is text with variables (`{{web}}`, see docs/prove.md).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its short name: `haproxy`, `baton`, `nginx`, or what the user calls it.
    pub name: String,
    /// Why the experiment cannot be done to it yet; everything else is then of no account.
    pub absent: Option<String>,
    /// Programs that must be installed.
    pub needs: Vec<String>,
    /// The command that succeeds where the experiment can be done; otherwise it is absent, with the reason that this says.
    pub possible: Option<String>,
    /// Files of its private directory, by name.
    pub files: BTreeMap<String, String>,
    /// The command that says the version.
    pub version: Option<String>,
    /// The command before the start, such as one that changes a setting of the network.
    pub prepare: Option<String>,
    /// The command that starts it; empty when it runs already, in the machine's network.
    pub start: String,
    /// The file with the number of its process, when it goes into the background; `None` when the command stays.
    pub pid_file: Option<String>,
    /// What an event is, in a word or two.
    pub what: String,
    /// The command that is done again and again.
    pub event: Option<String>,
    /// The command after the start, such as a setting that an operator changes at run time.
    pub operate: Option<String>,
    /// What must be as it was before the events: a name, such as `counters`, and the command that succeeds when it is.
    pub keeps: BTreeMap<String, String>,
    /// The command that succeeds once event `{{n}}` is in effect for new connections.
    pub in_effect: Option<String>,
    /// Whether it forwards TCP ([`Held::tunnels`]).
    pub tunnels: bool,
    /// The command after which its configuration serves the certificates of `{{dir}}/certs` at `{{tls}}` ([`Held::certificates`]).
    pub serve_certificates: Option<String>,
    /// The command that replaces the certificate of `site-00001.example` by `{{dir}}/renewed.pem` without an event.
    pub replace_certificate: Option<String>,
    /// The command that ends it; `None` means SIGTERM.
    pub stop: Option<String>,
    /// The command that says how many bytes something has carried, before the load and after it.
    pub meter: Option<String>,
    /// What carries them, in a few words.
    pub metered: String,
    /// What must come of it.
    pub expect: Expect,
}

/// What must come of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Whatever comes is right.
    #[default]
    Anything,
    /// No request fails.
    NoFailure,
    /// Some requests fail: an experiment which shows that this load would see it.
    Failures,
    /// At each event those in flight may fail, and nobody is refused.
    InFlight,
    /// No request fails, and what is metered carries next to nothing of the answers.
    Bypass,
}

impl Expect {
    /// All of them.
    pub const ALL: [Expect; 5] =
        [Expect::Anything, Expect::NoFailure, Expect::Failures, Expect::InFlight, Expect::Bypass];

    /// How many times as many bytes as the meter the answers have at least, where they go another way.
    const BYPASS: u64 = 10;

    /// The word in a file.
    pub fn word(self) -> &'static str {
        match self {
            Expect::Anything => "anything",
            Expect::NoFailure => "no-failure",
            Expect::Failures => "failures",
            Expect::InFlight => "in-flight",
            Expect::Bypass => "bypass",
        }
    }

    /// In words for people; empty when nothing is expected.
    pub fn text(self) -> &'static str {
        match self {
            Expect::Anything => "",
            Expect::NoFailure => "no failure",
            Expect::Failures => "failures",
            Expect::InFlight => "at most the in-flight requests, none refused",
            Expect::Bypass => "no failure, and the responses bypass the director",
        }
    }

    /// Whether what was measured is what must come; `None` when nothing is expected. `in_flight` is how many requests may
    /// be under way at a moment, `has_events` whether something was to be done.
    pub fn judge(self, measured: &crate::proof::Measured, in_flight: usize, has_events: bool) -> Option<bool> {
        let report = &measured.report;
        // A change that was refused is none, and whom it did not disturb is no evidence.
        let is_done = measured.events_failed() == 0 && (!has_events || !measured.events.is_empty());
        let is_sound = report.errors.is_empty() && report.completed > 0 && is_done;
        let refused = report.failures.get("refused").copied().unwrap_or_default();
        match self {
            Expect::Anything => None,
            Expect::NoFailure => {
                let is_kept = measured.held.as_ref().is_none_or(crate::proof::HeldResult::is_clean);
                Some(is_sound && report.failed == 0 && is_kept)
            }
            Expect::Failures => Some(is_sound && report.failed > 0),
            Expect::Bypass => {
                let bypassed = |bytes: u64| bytes.saturating_mul(Expect::BYPASS) < report.body_bytes;
                let is_bypassed = measured.meter.as_ref().is_some_and(|meter| bypassed(meter.bytes));
                Some(is_sound && report.failed == 0 && is_bypassed)
            }
            Expect::InFlight => {
                Some(is_sound && refused == 0 && report.failed <= (measured.events.len() * in_flight) as u64)
            }
        }
    }
}

impl Experiment {
    /// The server of this name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The experiment over TLS: servers whose files say `bind {{web}}` (as haproxy's) or `listen {{web}};` (as nginx') show a certificate
    /// there, and the load asks by `https` and checks it. `None` when the load does not ask `http://{{web}}`, no server has such
    /// a line, or other connections are held, which would stay plain.
    pub fn over_tls(&self) -> Option<Experiment> {
        const ADDRESSES: [(&str, &str); 2] = [
            ("bind {{web}}\n", "bind {{web}} ssl crt {{certificate}}\n"),
            (
                "listen {{web}};",
                "listen {{web}} ssl;\n        ssl_certificate {{certificate}};\n        ssl_certificate_key {{certificate}};",
            ),
        ];
        const ASKED: &str = "http://{{web}}";
        let mut secure = self.clone();
        let mut is_changed = false;
        for text in secure.servers.iter_mut().flat_map(|server| server.files.values_mut()) {
            for (plain, over_tls) in ADDRESSES {
                is_changed |= text.contains(plain);
                *text = text.replace(plain, over_tls);
            }
        }
        secure.load = secure.load.replace(ASKED, "--ca-file {{authority}} https://{{web}}");
        secure.title += ", over TLS";
        (is_changed && self.held.is_none() && self.load.contains(ASKED)).then_some(secure)
    }
}
