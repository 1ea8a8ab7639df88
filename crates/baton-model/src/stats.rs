//! The runtime API: `stats socket` and its companions (configuration manual, 3.1; management guide, 9.3), and the statistics page of a
//! proxy (configuration manual, 4.2 `stats …`).

use std::fmt;
use std::time::Duration;

use crate::Bind;

/// `stats …` of a proxy: the page with the statistics, which the proxy itself responds with. Its rules are in the proxy's rule sets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatsPage {
    /// `stats uri`: what the request's target begins with.
    pub uri: String,
    /// `stats realm`; `None` is [`StatsPage::REALM`].
    pub realm: Option<String>,
    /// `stats auth`: users and passwords; without any, everybody may see it.
    pub users: Vec<StatsUser>,
    /// `stats scope`: the proxies that it shows, `.` for its own; without any, all.
    pub scopes: Vec<String>,
    /// `stats refresh`.
    pub refresh: Option<Duration>,
    /// `stats hide-version`.
    pub hides_version: bool,
    /// `stats show-legends`: numeric ids, addresses and cookies are shown to everybody.
    pub shows_legends: bool,
    /// `stats show-modules`: counters of TLS are shown.
    pub shows_modules: bool,
    /// `stats show-node`.
    pub node: Option<ShownText>,
    /// `stats show-desc`.
    pub description: Option<ShownText>,
}

/// A user of the statistics page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StatsUser {
    /// The name.
    pub name: String,
    /// The password, as it is sent.
    pub password: String,
}

/// A text on the statistics page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ShownText {
    /// What the `global` section says.
    Global,
    /// This.
    Own(String),
}

impl StatsPage {
    /// `stats uri` where it is not given.
    pub const URI: &str = "/haproxy?stats";
    /// `stats realm` where it is not given.
    pub const REALM: &str = "HAProxy Statistics";
}

impl Default for StatsPage {
    fn default() -> Self {
        StatsPage {
            uri: StatsPage::URI.into(),
            realm: None,
            users: Vec::new(),
            scopes: Vec::new(),
            refresh: None,
            hides_version: false,
            shows_legends: false,
            shows_modules: false,
            node: None,
            description: None,
        }
    }
}

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
