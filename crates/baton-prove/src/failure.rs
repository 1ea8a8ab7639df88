//! What a failure of a request can be, and what is kept of each one.
//!
//! A kind says what a user of the server would have felt. Kinds are disjoint and every failed request has exactly one.

use std::{io, time::Duration};

use nix::errno::Errno;
use serde::{Serialize, Serializer};

/// The way in which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// Nobody listened: the connection was refused.
    Refused,
    /// There was a connection, and TLS did not come to be: an alert, a certificate that is not accepted, a close or a reset
    /// during the handshake, or bytes that are not TLS. So does a server end it that refuses the client's certificate.
    TlsHandshake,
    /// A fresh connection was reset or closed before the first byte of the answer.
    ResetBeforeFirstByte,
    /// The answer began, and the connection was reset or closed before its end.
    Truncated,
    /// A connection that had carried an answer before was closed by the server just as the next request went out
    /// (the race that RFC 9112 section 9.5 describes). A close that the client sees before it sends is no failure.
    ClosedOnReuse,
    /// The connection was not established in time, TLS included.
    TimeoutConnect,
    /// The first byte of the answer did not come in time.
    TimeoutFirstByte,
    /// The whole answer did not come in time.
    TimeoutWhole,
    /// A whole answer, but its body has another length than expected.
    WrongLength,
    /// A whole answer with a body of the right length, but of other bytes than expected.
    WrongBody,
    /// A whole answer with an unexpected status.
    WrongStatus,
    /// The answer is not HTTP/1, or bytes follow its end.
    Malformed,
    /// Anything else; mostly a limit of the client's own machine, such as no free port. The error number says which.
    Other,
}

impl FailureKind {
    /// All kinds, in the order in which reports print them.
    pub const ALL: [FailureKind; 13] = [
        FailureKind::Refused,
        FailureKind::TlsHandshake,
        FailureKind::ResetBeforeFirstByte,
        FailureKind::Truncated,
        FailureKind::ClosedOnReuse,
        FailureKind::TimeoutConnect,
        FailureKind::TimeoutFirstByte,
        FailureKind::TimeoutWhole,
        FailureKind::WrongLength,
        FailureKind::WrongBody,
        FailureKind::WrongStatus,
        FailureKind::Malformed,
        FailureKind::Other,
    ];

    /// The name used in JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Refused => "refused",
            FailureKind::TlsHandshake => "tls_handshake",
            FailureKind::ResetBeforeFirstByte => "reset_before_first_byte",
            FailureKind::Truncated => "truncated",
            FailureKind::ClosedOnReuse => "closed_on_reuse",
            FailureKind::TimeoutConnect => "timeout_connect",
            FailureKind::TimeoutFirstByte => "timeout_first_byte",
            FailureKind::TimeoutWhole => "timeout_whole",
            FailureKind::WrongLength => "wrong_length",
            FailureKind::WrongBody => "wrong_body",
            FailureKind::WrongStatus => "wrong_status",
            FailureKind::Malformed => "malformed",
            FailureKind::Other => "other",
        }
    }

    /// The kind's place in [`FailureKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl Serialize for FailureKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One failed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// When it failed, counted from the start of the load (`LoadResult::started`). JSON: microseconds, `at_us`.
    #[serde(rename = "at_us", serialize_with = "micros")]
    pub at: Duration,
    /// When the request had started, on the same clock. JSON: microseconds, `begun_us`.
    #[serde(rename = "begun_us", serialize_with = "micros")]
    pub begun: Duration,
    /// What happened.
    pub kind: FailureKind,
    /// Which of the request list's entries it was.
    pub request: usize,
    /// How many answers the connection had carried before; 0 for a fresh one, and when no connection came to be.
    pub reused: u64,
    /// The operating system's error number, where one was behind it.
    pub errno: Option<i32>,
    /// The status of the answer, where there was one.
    pub status: Option<u16>,
    /// More in words, where the kind does not say all: what TLS said, and which limit of the client's own machine was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
}

/// The most bytes of a failure's reason.
const REASON_MAX: usize = 200;

/// Why a request ended badly: the kind and what is known besides. What the exchange returns; the caller adds the instants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestFailure {
    pub(crate) kind: FailureKind,
    pub(crate) errno: Option<i32>,
    pub(crate) status: Option<u16>,
    pub(crate) reason: Option<Box<str>>,
}

impl RequestFailure {
    pub(crate) fn new(kind: FailureKind) -> RequestFailure {
        RequestFailure { kind, errno: None, status: None, reason: None }
    }

    pub(crate) fn io(kind: FailureKind, error: &io::Error) -> RequestFailure {
        RequestFailure { errno: error.raw_os_error(), ..RequestFailure::new(kind) }
    }

    /// Adds a reason.
    pub(crate) fn because(self, reason: impl Into<String>) -> RequestFailure {
        let mut reason: String = reason.into();
        let end = (0..=REASON_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
        RequestFailure { reason: Some(reason.into()), ..self }
    }

    /// TLS did not come to be.
    pub(crate) fn tls(error: &io::Error) -> RequestFailure {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "closed during the TLS handshake".to_owned(),
            io::ErrorKind::ConnectionReset => "reset during the TLS handshake".to_owned(),
            _ => error.to_string(),
        };
        RequestFailure::io(FailureKind::TlsHandshake, error).because(reason)
    }

    /// The kind of a failed `connect`.
    pub(crate) fn connect(error: &io::Error) -> RequestFailure {
        let kind = match error.kind() {
            // A unix socket whose path is gone is as refused as one on which nobody listens.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => FailureKind::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => FailureKind::ResetBeforeFirstByte,
            io::ErrorKind::TimedOut => FailureKind::TimeoutConnect,
            _ => FailureKind::Other,
        };
        let ended = RequestFailure::io(kind, error);
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EADDRNOTAVAIL) => ended.because(NO_PORT),
            Some(Errno::EMFILE) => ended.because(NO_DESCRIPTOR),
            _ if kind == FailureKind::Other => ended.because(error.to_string()),
            _ => ended,
        }
    }
}

/// What to do about `EADDRNOTAVAIL`.
const NO_PORT: &str = "no free local port towards this server: all are in use or in TIME_WAIT; keep connections open, lower \
    the rate, connect from several addresses, or widen net.ipv4.ip_local_port_range";

/// What to do about `EMFILE`.
const NO_DESCRIPTOR: &str = "no free file descriptor: use fewer connections or raise the limit (ulimit -n)";

/// Serializes a duration as whole microseconds.
pub(crate) fn micros<S: Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(at.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_place_in_the_list() {
        for (place, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), place, "{}", kind.name());
        }
    }

    #[test]
    fn limits_of_the_own_machine_say_what_to_do() {
        for (errno, word) in [(Errno::EADDRNOTAVAIL, "ip_local_port_range"), (Errno::EMFILE, "ulimit")] {
            let ended = RequestFailure::connect(&io::Error::from(errno));
            assert_eq!((ended.kind, ended.errno), (FailureKind::Other, Some(errno as i32)));
            let reason = ended.reason.expect("one");
            assert!(reason.contains(word) && reason.len() <= REASON_MAX, "{reason}");
        }
        let long = RequestFailure::new(FailureKind::Other).because("\u{e9}".repeat(REASON_MAX));
        assert_eq!(long.reason.map(|reason| reason.len()), Some(REASON_MAX));
    }
}
