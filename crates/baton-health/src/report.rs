//! What one check found, in HAProxy's words (management guide, 9.1 `check_status`).

use std::time::Duration;

use baton_proxy::balance::CheckReport;

use crate::health::{Health, Verdict};

/// How a check ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// The connection opened, and that is enough.
    L4Ok,
    /// No connection in time.
    L4Timeout,
    /// No connection.
    L4Connection,
    /// TLS was agreed on, and that is enough.
    L6Ok,
    /// No handshake in time.
    L6Timeout,
    /// No handshake.
    L6Response,
    /// The answer is right.
    L7Ok,
    /// 404 under `disable-on-404`.
    L7Conditional,
    /// No answer in time.
    L7Timeout,
    /// Not an answer, or not the right content.
    L7Response,
    /// A wrong status or header.
    L7Status,
    /// The connection failed after it was there.
    SocketError,
    /// The program of an external check says so.
    ProgramOk,
    /// The program failed, or says that the server does.
    ProgramError,
    /// The program took too long.
    ProgramTimeout,
    /// Errors of traffic (`observe`).
    Analyze,
    /// An agent answered, and did not say whether the server is up.
    Checked,
}

/// The longest description of a result, in bytes.
const INFO_BYTES_MAX: usize = 127;

impl Status {
    /// The short word of statistics.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    /// The long words of logs.
    pub fn description(self) -> &'static str {
        self.words().1
    }

    /// The status of a short word.
    pub fn of_word(word: &str) -> Option<Status> {
        const ALL: [Status; 17] = [
            Status::L4Ok,
            Status::L4Timeout,
            Status::L4Connection,
            Status::L6Ok,
            Status::L6Timeout,
            Status::L6Response,
            Status::L7Ok,
            Status::L7Conditional,
            Status::L7Timeout,
            Status::L7Response,
            Status::L7Status,
            Status::SocketError,
            Status::ProgramOk,
            Status::ProgramError,
            Status::ProgramTimeout,
            Status::Analyze,
            Status::Checked,
        ];
        ALL.into_iter().find(|status| status.word() == word)
    }

    /// What it means for the server.
    pub fn verdict(self) -> Verdict {
        match self {
            Status::L4Ok | Status::L6Ok | Status::L7Ok | Status::ProgramOk | Status::Checked => Verdict::Passed,
            Status::L7Conditional => Verdict::Conditional,
            Status::L4Timeout
            | Status::L4Connection
            | Status::L6Timeout
            | Status::L6Response
            | Status::L7Timeout
            | Status::L7Response
            | Status::L7Status
            | Status::SocketError
            | Status::ProgramError
            | Status::ProgramTimeout
            | Status::Analyze => Verdict::Failed,
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Status::L4Ok => ("L4OK", "Layer4 check passed"),
            Status::L4Timeout => ("L4TOUT", "Layer4 timeout"),
            Status::L4Connection => ("L4CON", "Layer4 connection problem"),
            Status::L6Ok => ("L6OK", "Layer6 check passed"),
            Status::L6Timeout => ("L6TOUT", "Layer6 timeout"),
            Status::L6Response => ("L6RSP", "Layer6 invalid response"),
            Status::L7Ok => ("L7OK", "Layer7 check passed"),
            Status::L7Conditional => ("L7OKC", "Layer7 check conditionally passed"),
            Status::L7Timeout => ("L7TOUT", "Layer7 timeout"),
            Status::L7Response => ("L7RSP", "Layer7 invalid response"),
            Status::L7Status => ("L7STS", "Layer7 wrong status"),
            Status::SocketError => ("SOCKERR", "Socket error"),
            Status::ProgramOk => ("PROCOK", "External check passed"),
            Status::ProgramError => ("PROCERR", "External check error"),
            Status::ProgramTimeout => ("PROCTOUT", "External check timeout"),
            Status::Analyze => ("HANA", "Health analyze"),
            Status::Checked => ("CHECKED", "No status change"),
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// How it ended.
    pub status: Status,
    /// The status code of a response.
    pub code: Option<u16>,
    /// What else there is to say; empty when nothing.
    pub info: String,
    /// `info` is for the log only.
    pub is_only_logged: bool,
    /// How long it took; `None` for what is no check of ours.
    pub duration: Option<Duration>,
}

impl Report {
    /// A result without code and words; the duration is filled in by the probe.
    pub fn new(status: Status) -> Report {
        Report { status, code: None, info: String::new(), is_only_logged: false, duration: None }
    }

    /// Adds a description.
    pub fn info(mut self, info: impl Into<String>) -> Report {
        self.info = info.into();
        // A reader of statistics takes a line for a server.
        if self.info.contains(char::is_control) {
            self.info = self.info.replace(char::is_control, " ");
        }
        let end = (0..=INFO_BYTES_MAX.min(self.info.len())).rev().find(|at| self.info.is_char_boundary(*at));
        self.info.truncate(end.unwrap_or(0));
        self
    }

    /// `reason: …, code: …, info: "…", check duration: …ms`.
    pub fn reason(&self) -> String {
        let mut text = format!("reason: {}", self.status.description());
        if let Some(code) = self.code {
            text += &format!(", code: {code}");
        }
        if !self.info.is_empty() {
            text += &format!(", info: \"{}\"", escaped(&self.info));
        }
        if let Some(duration) = self.duration {
            text += &format!(", check duration: {}ms", duration.as_millis());
        }
        text
    }

    /// What statistics keep of it.
    pub(crate) fn for_statistics(&self, health: &Health, failed: u64) -> CheckReport {
        let (rise, fall) = health.limits();
        CheckReport { health: health.counter(), rise, fall, ..self.statistics(failed) }
    }

    /// As [`Report::for_statistics`], without the counter of results.
    pub(crate) fn statistics(&self, failed: u64) -> CheckReport {
        CheckReport {
            status: self.status.word(),
            description: self.status.description(),
            code: self.code,
            info: if self.is_only_logged { String::new() } else { self.info.clone() },
            duration: self.duration.unwrap_or_default(),
            failed,
            ..CheckReport::default()
        }
    }
}

/// What could end a line or the quotes is written as `<XX>`, as HAProxy does.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | ..0x20 | 0x7f.. => out.push_str(&format!("<{byte:02X}>")),
            _ => out.push(char::from(byte)),
        }
    }
    out
}
