//! The runtime API: `stats socket` and its companions (configuration manual, 3.1; management guide, 9.3).

use std::fmt;
use std::time::Duration;

use crate::Bind;

/// `stats …` of the `global` section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stats {
    /// `stats socket` lines, one for each address.
    pub sockets: Vec<StatsSocket>,
    /// `stats timeout`: the longest a session may be silent, or leave its answer unread.
    pub timeout: Duration,
    /// `stats maxconn`: sessions at once, over all sockets.
    pub maxconn: u32,
}

impl Default for Stats {
    fn default() -> Self {
        Stats { sockets: Vec::new(), timeout: Duration::from_secs(10), maxconn: 10 }
    }
}

/// One address of a `stats socket` line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatsSocket {
    /// Where it listens, and how.
    pub bind: Bind,
    /// `level`: what its sessions may do.
    pub level: AccessLevel,
    /// `severity-output`: what stands in front of messages.
    pub severity: SeverityOutput,
    /// `expose-fd listeners`: a new process may take the listening sockets by it.
    pub exposes_listeners: bool,
}

impl fmt::Display for StatsSocket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} level {}", self.bind.address, self.level.word())?;
        let socket = &self.bind.options.socket;
        if let Some(mode) = socket.mode {
            write!(out, " mode {mode:o}")?;
        }
        if let Some(uid) = socket.uid {
            write!(out, " uid {uid}")?;
        }
        if let Some(gid) = socket.gid {
            write!(out, " gid {gid}")?;
        }
        if let Some(maxconn) = self.bind.options.maxconn {
            write!(out, " maxconn {maxconn}")?;
        }
        if self.severity != SeverityOutput::None {
            write!(out, " severity-output {}", self.severity.word())?;
        }
        if self.exposes_listeners {
            out.write_str(" expose-fd listeners")?;
        }
        Ok(())
    }
}

/// What a session of the runtime API may do; each level includes those before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum AccessLevel {
    /// Reads what is not sensitive.
    User,
    /// Reads everything, and changes what does no harm.
    #[default]
    Operator,
    /// May do everything.
    Admin,
}

impl AccessLevel {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            AccessLevel::User => "user",
            AccessLevel::Operator => "operator",
            AccessLevel::Admin => "admin",
        }
    }
}

/// Whether a message of the runtime API begins with its severity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SeverityOutput {
    /// No.
    #[default]
    None,
    /// As a number: `[3]: `.
    Number,
    /// As a word: `[err]: `.
    Word,
}

impl SeverityOutput {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            SeverityOutput::None => "none",
            SeverityOutput::Number => "number",
            SeverityOutput::Word => "string",
        }
    }

    /// The value of a word.
    pub fn of(word: &str) -> Option<SeverityOutput> {
        match word {
            "none" => Some(SeverityOutput::None),
            "number" => Some(SeverityOutput::Number),
            "string" => Some(SeverityOutput::Word),
            _ => None,
        }
    }
}
