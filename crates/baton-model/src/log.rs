//! Where and how traffic is logged (configuration manual, 3.1 and 4.2 `log`, 8 "Logging").

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// A proxy's logging.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Logging {
    /// Targets, `log global` already replaced by the global ones.
    pub targets: Vec<LogTarget>,
    /// The line's format.
    pub format: LogFormat,
    /// `log-tag`; `None`: the global one.
    pub tag: Option<String>,
    /// `option dontlognull`.
    pub dont_log_null: bool,
    /// `option dontlog-normal`.
    pub dont_log_normal: bool,
    /// `option log-separate-errors`.
    pub separate_errors: bool,
    /// `option logasap`.
    pub asap: bool,
}

/// Which format lines have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// Neither option: "Connect from …" (8.2.1).
    #[default]
    Default,
    /// `option tcplog` (8.2.2).
    Tcp,
    /// `option httplog` (8.2.3).
    Http,
    /// `option httplog clf`.
    HttpClf,
    /// `option httpslog` (8.2.4).
    Https,
    /// `log-format`: the text is among the rules.
    Custom,
}

/// One `log` line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogTarget {
    /// Where to.
    pub address: LogAddress,
    /// `len`: the longest line in bytes.
    pub len: usize,
    /// `format`: `local`, `rfc3164`, `rfc5424`, `short`, `raw`, `priority`, `timed`, `iso`; empty when not written:
    /// `rfc3164` if lines name the host (`log-send-hostname`), else `local`.
    pub format: String,
    /// Facility.
    pub facility: Facility,
    /// Least severe level sent.
    pub max: Level,
    /// Most severe level used.
    pub min: Level,
    /// `sample RANGES:SIZE` as written; `None` sends all.
    pub sample: Option<String>,
}

/// Where log lines go.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LogAddress {
    /// UDP syslog.
    Udp(SocketAddr),
    /// Datagram unix socket.
    Unix(PathBuf),
    /// `stdout`.
    Stdout,
    /// `stderr`.
    Stderr,
    /// `fd@N`: a descriptor that was passed to the process when it was started.
    Fd(i32),
    /// `ring@NAME`: a buffer in memory, see [`Ring`](crate::Ring).
    Ring(Arc<str>),
}

impl fmt::Display for LogAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogAddress::Udp(address) => address.fmt(out),
            LogAddress::Unix(path) => path.display().fmt(out),
            LogAddress::Stdout => out.write_str("stdout"),
            LogAddress::Stderr => out.write_str("stderr"),
            LogAddress::Fd(number) => write!(out, "fd@{number}"),
            LogAddress::Ring(name) => write!(out, "ring@{name}"),
        }
    }
}

/// Syslog facility number, 0 (`kern`) to 23 (`local7`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Facility(pub u8);

/// Syslog level, 0 (`emerg`) to 7 (`debug`).
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
pub struct Level(pub u8);
