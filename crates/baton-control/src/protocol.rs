//! What `baton reload`, `plan` and `status` say to a running process and what it answers: one line of JSON each way over a
//! unix socket of the process (see [`control_socket`](crate::control_socket)).

pub mod line;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_config::{Diagnostic, Severity};
use baton_tls::store::{CertificateProblem, Report};
use baton_tls::{Certificate, KeyKind};
use serde::{Deserialize, Serialize};

use crate::overrides::OverrideRecord;
use crate::plan::{PendingSetting, Plan};

/// Version of the language; another one is answered with [`Reply::Failed`].
pub const VERSION: u32 = 1;

/// The longest request in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest reply in bytes a client reads.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A line: the version and what is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`VERSION`] of the speaker.
    pub baton: u32,
    /// What is said.
    #[serde(flatten)]
    pub body: T,
}

impl<T> Envelope<T> {
    /// In this version.
    pub fn new(body: T) -> Envelope<T> {
        Envelope { baton: VERSION, body }
    }
}

/// What may be asked.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Read the files again and change to them; answered when that is done.
    Reload,
    /// Say what a reload would do with these files; nothing is changed.
    Plan {
        /// Files or directories, absolute. Empty: those the process was started with.
        files: Vec<PathBuf>,
    },
    /// Say how things are.
    Status,
    /// Let the asker take over. After the answer both speak as [`handover`](crate::handover) says.
    Handover,
    /// Look at all files of certificates again, and say so when what is in them is in use.
    SyncCertificates,
    /// Say which certificates there are.
    Certificates,
    /// Serve by the program that is on disk now; a master answers when that is so, or is not.
    Upgrade,
}

impl Request {
    /// What it does, in front of "process 7".
    pub fn action(&self) -> &'static str {
        match self {
            Request::Reload => "reload",
            Request::Plan { .. } => "plan a reload of",
            Request::Status => "see the status of",
            Request::Handover => "take over from",
            Request::SyncCertificates => "reload the certificates of",
            Request::Certificates => "list the certificates of",
            Request::Upgrade => "upgrade",
        }
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Reload`].
    Reload(Outcome),
    /// To [`Request::Plan`].
    Plan(Outcome),
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::SyncCertificates`].
    Synced(Synced),
    /// To [`Request::Certificates`].
    Certificates(Box<Certificates>),
    /// To [`Request::Handover`]: go on.
    Handover,
    /// The request could not be understood, or not now.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What became of a reload, or would.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the configuration is (would be) in use. If not, the one before is, untouched.
    pub accepted: bool,
    /// The number of the configuration in use: 1 is the one of the start.
    pub generation: u64,
    /// What changed.
    pub plan: Plan,
    /// What there was to say about the files.
    pub messages: Vec<Message>,
    /// Start-up settings of the configuration that wait for the next process, from this reload and from those before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingSetting>,
}

impl Outcome {
    /// Whether anything takes effect only with the next process.
    pub fn waits(&self) -> bool {
        self.plan.changes.iter().any(|change| change.next_process)
    }
}

/// A diagnostic or a reason to refuse.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `alert`, `warning`, `notice` or `diag`.
    pub severity: String,
    /// Its kind, stable for scripts: `unknown-keyword`, `refused` …
    pub id: String,
    /// The file; empty when none is to blame.
    pub file: String,
    /// The line from 1, or 0.
    pub line: u32,
    /// What is wrong.
    pub message: String,
    /// As it is printed, with the words underlined.
    pub rendered: String,
}

impl Message {
    /// A diagnostic of the reader.
    pub fn of(diagnostic: &Diagnostic, pid: u32) -> Message {
        Message {
            severity: diagnostic.severity.word().to_ascii_lowercase(),
            id: diagnostic.id.into(),
            file: diagnostic.file.to_string(),
            line: diagnostic.line,
            message: diagnostic.message.clone(),
            rendered: diagnostic.render(pid),
        }
    }

    /// An address, a rule or a right that cannot be had.
    pub fn refused(refused: &baton_proxy::Refused, pid: u32) -> Message {
        let label = format!("[{}]", Severity::Alert.word());
        let place = match refused.source.line {
            0 => String::new(),
            _ => format!("[{}] ", refused.source),
        };
        let text = format!("{place}{}: {}", refused.object, refused.reason);
        Message {
            severity: "alert".into(),
            id: "refused".into(),
            file: refused.source.file.to_string(),
            line: refused.source.line,
            message: format!("{}: {}", refused.object, refused.reason),
            rendered: format!("{label:<10} ({pid}) : {text}\n"),
        }
    }

    /// What is wrong, after its place.
    pub fn place_and_text(&self) -> String {
        match self.line {
            0 => self.message.clone(),
            line => format!("{}:{line}: {}", self.file, self.message),
        }
    }

    /// A message about no place in a file.
    pub fn plain(severity: Severity, id: &str, text: &str, pid: u32) -> Message {
        let label = format!("[{}]", severity.word());
        Message {
            severity: severity.word().to_ascii_lowercase(),
            id: id.into(),
            file: String::new(),
            line: 0,
            message: text.into(),
            rendered: format!("{label:<10} ({pid}) : {text}\n"),
        }
    }
}

/// How things are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Process id.
    pub pid: u32,
    /// Random, made at the start: tells this process from every other one that had or will have its PID.
    #[serde(default)]
    pub id: String,
    /// Baton's version.
    pub version: String,
    /// Number of the configuration in use.
    pub generation: u64,
    /// Reloads that were refused.
    pub refused: u64,
    /// Whether a graceful stop is in progress.
    pub stopping: bool,
    /// Since the start, milliseconds.
    pub uptime_ms: u64,
    /// Threads that carry traffic.
    pub cores: usize,
    /// Client connections open now.
    pub connections: usize,
    /// Limit of client connections.
    pub maxconn: u32,
    /// Open descriptors.
    pub descriptors: u64,
    /// Memory in RAM, bytes.
    pub resident_bytes: u64,
    /// The files, as they were named at the start.
    pub files: Vec<PathBuf>,
    /// Listening addresses and the number of sockets of each.
    pub listeners: Vec<(String, usize)>,
    /// Addresses that were removed and are not closed yet.
    pub listeners_leaving: usize,
    /// Frontends in the order of the files.
    pub frontends: Vec<Figures>,
    /// Backends in the order of the files.
    pub backends: Vec<Figures>,
    /// Certificates.
    #[serde(default)]
    pub certificates: Expiring,
    /// Start-up settings of the configuration in use that wait for the next process.
    #[serde(default)]
    pub pending: Vec<PendingSetting>,
    /// What operators set at run time.
    #[serde(default)]
    pub overrides: Vec<OverrideRecord>,
    /// Targets of logs and messages to which lines were lost.
    #[serde(default)]
    pub log_targets: Vec<LossyTarget>,
    /// Internal errors (panics) since the start.
    #[serde(default)]
    pub panics: u64,
    /// Why the last reload was rejected; `None`: it was not, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refused: Option<String>,
    /// Connections of frontends that are no longer in the configuration: each ends with its request or tunnel.
    #[serde(default)]
    pub connections_leaving: usize,
    /// Sockets of the runtime API that can be connected to; those of a high level first.
    #[serde(default)]
    pub stats_sockets: Vec<String>,
    /// Sessions that processes before this one still have with servers.
    #[serde(default)]
    pub sessions_elsewhere: u64,
    /// Connections of clients that came from the process before this one.
    #[serde(default)]
    pub connections_arrived: u64,
    /// Connections of clients that went to the process after this one.
    #[serde(default)]
    pub connections_departed: u64,
    /// Idle connections to servers that came from the process before this one.
    #[serde(default)]
    pub server_connections_arrived: u64,
    /// Idle connections to servers that went to the process after this one.
    #[serde(default)]
    pub server_connections_departed: u64,
    /// Connections of clients that stay with this process or those before it, though another one took over; by reason.
    #[serde(default)]
    pub connections_staying: BTreeMap<String, u64>,
    /// The last changes, the newest first.
    #[serde(default)]
    pub changes: Vec<ChangeRecord>,
}

/// A change that was made, or refused.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeRecord {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// What.
    pub what: String,
    /// By whom.
    pub by: String,
    /// It was refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_refused: bool,
}

impl ChangeRecord {
    /// When it was made.
    pub fn at(&self) -> jiff::Timestamp {
        i64::try_from(self.at_s).ok().and_then(|at| jiff::Timestamp::from_second(at).ok()).unwrap_or_default()
    }
}

/// A target of logs and messages to which lines were lost.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LossyTarget {
    /// Its address as in the configuration.
    pub target: String,
    /// Lines lost since the start.
    pub lost: u64,
    /// Why the last one was lost.
    pub reason: String,
}

/// What became of a look at the files of certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Synced {
    /// Certificates that are new, by their paths.
    pub added: Vec<PathBuf>,
    /// Certificates in place of which there is another now.
    pub replaced: Vec<PathBuf>,
    /// Certificates that are gone.
    pub removed: Vec<PathBuf>,
    /// What could not be used.
    pub refused: Vec<RefusedCertificate>,
    /// How long it took, microseconds.
    pub duration_us: u64,
}

/// A certificate that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedCertificate {
    /// Its path.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl RefusedCertificate {
    /// As the store says it.
    pub fn of(problem: &CertificateProblem) -> RefusedCertificate {
        let remedy = problem.remedy().to_owned();
        RefusedCertificate { path: problem.path.clone(), reason: problem.to_string(), remedy }
    }
}

impl Synced {
    /// Of what the store did; `failed` are directories that could not be read.
    pub(crate) fn of(report: &Report, failed: &[Arc<CertificateProblem>], took: Duration) -> Synced {
        let refused = report.refused.iter().chain(failed).map(|problem| RefusedCertificate::of(problem));
        Synced {
            added: report.added.clone(),
            replaced: report.replaced.clone(),
            removed: report.removed.clone(),
            refused: refused.collect(),
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// All certificates of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificates {
    /// By path.
    pub certificates: Vec<CertificateFacts>,
}

/// What there is to know of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateFacts {
    /// Its path, or `@STORE/ALIAS`.
    pub path: PathBuf,
    /// The names it is good for.
    pub names: Vec<String>,
    /// `RSA2048`, `EC256`, `ED25519`.
    pub key: String,
    /// From when it is valid, in seconds since 1970.
    pub not_before: i64,
    /// Until when.
    pub not_after: i64,
    /// Why a newer state of its files is not in use.
    pub problem: Option<RefusedCertificate>,
}

impl CertificateFacts {
    /// Of a certificate under a name.
    pub fn of(path: &Path, certificate: &Certificate, problem: Option<&CertificateProblem>) -> CertificateFacts {
        let (not_before, not_after) = certificate.validity();
        let mut names: Vec<String> = Vec::new();
        for name in certificate.names() {
            let name = String::from_utf8_lossy(name).into_owned();
            // The common name is hardly ever a name of its own.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        CertificateFacts {
            path: path.to_owned(),
            names,
            key: key_word(certificate.kind()),
            not_before,
            not_after,
            problem: problem.map(RefusedCertificate::of),
        }
    }
}

/// A kind of key as OpenSSL's users know it.
fn key_word(kind: KeyKind) -> String {
    match kind {
        KeyKind::Rsa(bits) => format!("RSA{bits}"),
        KeyKind::EcdsaP256 => "EC256".into(),
        KeyKind::EcdsaP384 => "EC384".into(),
        KeyKind::EcdsaP521 => "EC521".into(),
        KeyKind::Ed25519 => "ED25519".into(),
    }
}

/// Certificates by how long they are good for; each is counted once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expiring {
    /// All.
    pub all: usize,
    /// Not valid now.
    pub expired: usize,
    /// For 7 days at most.
    pub within_7_days: usize,
    /// For 30 days at most.
    pub within_30_days: usize,
}

/// One object's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Its name.
    pub name: String,
    /// `OPEN`, `UP`, `DOWN`, `MAINT`, `DRAIN`, `NOLB`, `no check`.
    pub status: String,
    /// Sessions now (`scur`).
    pub open: i64,
    /// The most at once (`smax`).
    pub open_max: i64,
    /// Counters by the names of HAProxy's CSV columns; those that are zero are left out.
    pub counters: BTreeMap<String, u64>,
    /// Why it is not up; empty: it is, or nothing is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long its status has been this one, in seconds; of backends and servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_s: Option<u64>,
    /// Requests that wait for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queued: u32,
    /// Sessions in the last second; `None`: it is not measured without a `stats socket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// A backend's servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Figures>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: Request, expect: &str) {
        let line = serde_json::to_string(&Envelope::new(request.clone())).unwrap();
        assert_eq!(line, expect);
        let back: Envelope<Request> = serde_json::from_str(&line).unwrap();
        assert_eq!(back.body, request);
    }

    #[test]
    fn requests_are_these_lines_for_ever() {
        check(Request::Reload, r#"{"baton":1,"request":"reload"}"#);
        check(Request::Status, r#"{"baton":1,"request":"status"}"#);
        check(Request::Upgrade, r#"{"baton":1,"request":"upgrade"}"#);
        check(Request::Handover, r#"{"baton":1,"request":"handover"}"#);
        check(Request::Plan { files: vec!["/a".into()] }, r#"{"baton":1,"request":"plan","files":["/a"]}"#);
    }
}
