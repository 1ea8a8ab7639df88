//! What two processes say in a handover, as typed messages with a version.
//!
//! A version is a promise for ever: fields may be added to it (who does not know one ignores it, who misses one takes its
//! default), messages may be added where the other side may ignore them, and everything else is a new version. The taker says
//! which versions it speaks, the giver chooses. Sizes are bounded where they are read. Samples of each version are kept in
//! `tests/handover/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The versions this program speaks, the best one first.
pub const VERSIONS: &[u32] = &[1];

/// The most listening sockets that are handed over.
pub const SOCKETS_MAX: u32 = 8192;

/// The most descriptors in one message. The kernel's limit is 253; fewer are in flight at once this way.
pub const SOCKETS_PER_MESSAGE: usize = 128;

/// Counters by name, see `baton_proxy::Counter::NAMED`; those that are zero are left out.
pub type Counters = BTreeMap<String, u64>;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Message {
    /// Taker: I want to take over.
    Hello(Hello),
    /// Giver: this is what there is.
    Welcome(Welcome),
    /// Giver: not now, or not at all.
    Refused(Refused),
    /// Taker: there is room, send it.
    Send,
    /// Giver: some sockets, with their descriptors.
    Sockets(Sockets),
    /// Taker: all sockets have arrived.
    Received,
    /// Giver: what it remembers.
    State(Box<State>),
    /// Taker: I serve.
    Ready(Ready),
    /// Giver: I do not accept any more.
    Released(Released),
    /// Either: I end this, and say why. What was before goes on.
    Abort {
        /// A sentence.
        reason: String,
    },
    /// A giver that is still ending, to the successor of its successor: reports come here from now on.
    Reporting {
        /// Who reports.
        pid: u32,
    },
    /// Giver: what was counted since the last time.
    Report(Report),
    /// Taker, in its turn a giver by now: report to this process instead.
    Moved {
        /// Its number.
        to: u32,
    },
    /// What this program does not know.
    #[serde(other)]
    Unknown,
}

/// [`Message::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// The versions the taker speaks.
    pub versions: Vec<u32>,
    /// Its number.
    pub pid: u32,
    /// Its program's version, for messages to humans.
    pub program: String,
    /// Only if the giver took over, in however many steps, from this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
}

/// [`Message::Welcome`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Welcome {
    /// The version to speak.
    pub version: u32,
    /// The giver's number.
    pub pid: u32,
    /// Its program's version.
    pub program: String,
    /// How many descriptors will come.
    pub sockets: u32,
    /// About how many bytes the state has.
    pub state_bytes: u64,
    /// Processes that the giver took over from, the oldest first.
    pub lineage: Vec<u32>,
}

/// [`Message::Refused`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// What kind of refusal.
    pub kind: RefusedKind,
    /// A sentence.
    pub reason: String,
    /// Who serves instead, if another process has taken over already.
    pub successor: Option<u32>,
}

/// Whether to ask again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedKind {
    /// A handover or a reload is under way: ask again in a moment.
    Busy,
    /// It is ending; its successor may be asked.
    Stopping,
    /// No version in common, or something else that time does not change.
    #[default]
    #[serde(other)]
    Never,
}

/// [`Message::Sockets`]: one descriptor comes with each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sockets {
    /// What they are, in the order of the descriptors.
    pub sockets: Vec<Socket>,
}

/// A listening socket, where the kernel does not say it all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Socket {
    /// The address as the giver's configuration names it, for messages to humans.
    pub address: String,
    /// The number of an inherited descriptor (`fd@N`).
    pub number: Option<i32>,
}

/// [`Message::State`]: by name of proxy and server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// All counters so far.
    pub counts: Counts,
    /// What backends remember besides.
    pub backends: BTreeMap<String, BackendMemory>,
}

/// Figures of traffic: all of them in a state, the difference in a report. Gauges and maxima are always as they are now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Frontends.
    pub frontends: BTreeMap<String, ProxyCounts>,
    /// Backends.
    pub backends: BTreeMap<String, ProxyCounts>,
}

/// Figures of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyCounts {
    /// Counters.
    pub counters: Counters,
    /// The most sessions at once.
    pub open_max: i64,
    /// A backend's servers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, ServerCounts>,
}

/// Figures of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerCounts {
    /// Counters.
    pub counters: Counters,
    /// Sessions on it now.
    pub open: u32,
}

/// What a backend remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendMemory {
    /// The most that ever waited in its own queue.
    pub waiting_max: u32,
    /// Where its algorithm stands among the active servers, and among the backups.
    pub active: Turns,
    /// See `active`.
    pub backups: Turns,
    /// Its servers.
    pub servers: BTreeMap<String, ServerMemory>,
}

/// Where an algorithm stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Turns {
    /// Its position.
    pub position: u64,
    /// Servers in its row: weight, whether it never had a turn (0 or 1), due, rest, last, placed.
    pub places: BTreeMap<String, [u64; 6]>,
}

/// What is remembered of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerMemory {
    /// `up`, `stopping` or `down`; anything else is up.
    pub health: String,
    /// For how long, milliseconds.
    pub since_ms: u64,
    /// How often it went down.
    pub downs: u64,
    /// How long it was down before the current outage, milliseconds.
    pub down_ms: u64,
    /// The most sessions at once.
    pub served_max: u32,
    /// The most ever in its queue.
    pub queued_max: u32,
    /// Sessions ever.
    pub total: u64,
    /// For how long its slow start has been going on, milliseconds.
    pub warming_ms: Option<u64>,
    /// Its check, if there was one.
    pub check: Option<CheckMemory>,
}

/// What is remembered of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckMemory {
    /// HAProxy's short word of the last result; empty: none yet.
    pub status: String,
    /// Status code of an HTTP check.
    pub code: Option<u16>,
    /// What else there was to say.
    pub info: String,
    /// How long it took, microseconds.
    pub duration_us: u64,
    /// The health counter, with `rise` and `fall` that it counts by.
    pub health: u32,
    /// See `health`.
    pub rise: u32,
    /// See `health`.
    pub fall: u32,
    /// Checks that failed.
    pub failed: u64,
    /// When the next one is due, milliseconds from now.
    pub due_ms: Option<u64>,
}

/// [`Message::Ready`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// The taker's number, which is another one than in `hello` if it became a daemon since.
    pub pid: u32,
    /// Which sockets the taker uses: places in the order in which they came, from 0.
    pub taken: Vec<u32>,
    /// How the giver shall end.
    pub stop: Stop,
}

/// How the giver ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// `-st`: at once.
    Now,
    /// `-sf`: when its connections have ended, as after SIGUSR1.
    #[default]
    #[serde(other)]
    Soft,
}

/// [`Message::Released`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Released {
    /// Client connections that stay until they end.
    pub connections: u64,
}

/// [`Message::Report`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What was counted since the state or the last report.
    pub counts: Counts,
    /// Client connections left.
    pub connections: u64,
    /// Whether it is the last one.
    pub last: bool,
}
