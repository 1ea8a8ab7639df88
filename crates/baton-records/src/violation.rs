//! Violations of a peer after the handshake, and the alert that each leads to.

use std::fmt;

/// Why a connection is over before its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Violation {
    /// The record was changed on its way, or was made with other keys.
    BadRecord,
    /// The record is longer than any may be.
    Overflow,
    /// The record names a version that was not agreed on.
    Version,
    /// Content that may not come here, or at this moment.
    Unexpected,
    /// Content that is not what its type says.
    Malformed,
    /// A value that has no meaning.
    Illegal,
    /// More than one could need of what costs us and moves nothing.
    Flood,
    /// All sequence numbers of a key were used.
    Exhausted,
    /// The peer sent this alert.
    Told(u8),
}

impl Violation {
    /// The alert that the peer gets (RFC 8446 6.2); `None`: it knows.
    pub fn alert(self) -> Option<u8> {
        match self {
            Violation::Unexpected | Violation::Flood => Some(10),
            Violation::BadRecord => Some(20),
            Violation::Overflow => Some(22),
            Violation::Illegal => Some(47),
            Violation::Malformed => Some(50),
            Violation::Version => Some(70),
            Violation::Exhausted => Some(80),
            Violation::Told(_) => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Violation::BadRecord => "cannot decrypt a TLS record of the peer",
            Violation::Overflow => "TLS record too long",
            Violation::Version => "TLS record of another version",
            Violation::Unexpected => "unexpected TLS message",
            Violation::Malformed => "malformed TLS message",
            Violation::Illegal => "illegal value in a TLS message",
            Violation::Flood => "too many TLS messages without data",
            Violation::Exhausted => "TLS sequence numbers are used up",
            Violation::Told(alert) => return write!(out, "TLS alert {alert} received"),
        };
        out.write_str(text)
    }
}

impl std::error::Error for Violation {}
