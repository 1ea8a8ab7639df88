//! `ring` sections: buffers of log lines, and the servers to which they are sent by TCP (configuration manual, 3.9).

use std::sync::Arc;
use std::time::Duration;

use crate::Address;

/// A buffer of log lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ring {
    /// Its name, for `log ring@NAME`.
    pub name: Arc<str>,
    /// `description`; without one, the name.
    pub description: String,
    /// `size`: what its lines take at most, in bytes.
    pub size: usize,
    /// `maxlen`: the longest line.
    pub line_len: usize,
    /// `format` of lines that have none of their own.
    pub format: Arc<str>,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
    /// `timeout server`: how long a server may take nothing.
    pub server_timeout: Option<Duration>,
    /// Where its lines are sent, each to all of them.
    pub servers: Vec<RingServer>,
}

/// A syslog server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RingServer {
    /// Its name.
    pub name: Arc<str>,
    /// Where it listens.
    pub address: Address,
    /// `log-proto`.
    pub framing: SyslogFraming,
}

/// How lines are told apart on a stream (RFC 6587 3.4).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SyslogFraming {
    /// `legacy`: each ends with a line feed.
    #[default]
    Legacy,
    /// `octet-count`: its length stands in front of each.
    OctetCount,
}

impl Ring {
    /// The ring that is there without a section.
    pub const BUILT_IN: &str = "buf0";
    /// `format` of the ring that is there without a section.
    pub const BUILT_IN_FORMAT: &str = "timed";
    /// `size` where it is not given.
    pub const SIZE: usize = 16384;
    /// The smallest `size`.
    pub const SIZE_MIN: usize = 16384;
    /// The largest `size`.
    pub const SIZE_MAX: usize = 1 << 30;

    /// One without servers.
    pub fn new(name: Arc<str>) -> Ring {
        Ring {
            description: name.to_string(),
            name,
            size: Ring::SIZE,
            line_len: Ring::SIZE,
            format: "raw".into(),
            connect_timeout: None,
            server_timeout: None,
            servers: Vec::new(),
        }
    }
}
