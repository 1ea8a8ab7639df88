//! What `baton reload`, `plan` and `status` say to a running process and what it answers: one line of JSON each way over a
//! unix socket in the abstract namespace that is named after the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use baton_config::{Diagnostic, Severity};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Version of the language; another one is answered with [`Reply::Failed`].
pub const VERSION: u32 = 1;

/// The longest request in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest reply in bytes a client reads.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The name of a process's socket, without the leading zero byte.
pub fn socket_name(pid: u32) -> String {
    format!("baton-{pid}")
}

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
#[serde(tag = "ask", rename_all = "kebab-case")]
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
    /// Serve by the program that is on disk now; a master answers when that is so, or is not.
    Upgrade,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Reload`].
    Reload(Outcome),
    /// To [`Request::Plan`].
    Plan(Outcome),
    /// To [`Request::Status`].
    Status(Box<Status>),
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
    /// Baton's version.
    pub version: String,
    /// Number of the configuration in use.
    pub generation: u64,
    /// Reloads that were refused.
    pub refused: u64,
    /// Whether a soft stop is under way.
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
    /// A backend's servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Figures>,
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
        check(Request::Reload, r#"{"baton":1,"ask":"reload"}"#);
        check(Request::Status, r#"{"baton":1,"ask":"status"}"#);
        check(Request::Upgrade, r#"{"baton":1,"ask":"upgrade"}"#);
        check(Request::Handover, r#"{"baton":1,"ask":"handover"}"#);
        check(Request::Plan { files: vec!["/a".into()] }, r#"{"baton":1,"ask":"plan","files":["/a"]}"#);
    }
}
