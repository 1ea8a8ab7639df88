//! What two processes say in a handover, as typed messages with a version.
//!
//! A version is a promise for ever: fields may be added to it (who does not know one ignores it, who misses one takes its
//! default), messages may be added where the other side may ignore them, and everything else is a new version. The taker says
//! which versions it speaks, the giver chooses. Sizes are bounded where they are read. Samples of each version are kept in
//! `tests/handover/`.
//!
//! What a process with thousands of servers remembers is written sparsely: a figure, a server or a proxy that is as in a
//! process that has just begun is left out, and reads as that by the rule above.

use std::borrow::Cow;
use std::fmt;

use baton_tls::tickets::Kept;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use super::named::{Counters, Named};
use crate::health::Status;
use crate::overrides::OverrideRecord;
use crate::printable;

/// The versions this program speaks, the best one first.
pub const VERSIONS: &[u32] = &[1];

/// The most listening sockets that are handed over.
pub const SOCKETS_MAX: u32 = 8192;

/// The most descriptors in one message. The kernel's limit is 253; fewer are in flight at once this way.
pub const SOCKETS_PER_MESSAGE: usize = 128;

/// Words for [`ServerMemory::health`]. Nothing is said of a server that is up.
pub const HEALTH_WORDS: [&str; 3] = ["up", "stopping", "down"];

/// A message. Its first field, `say`, is its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    Unknown,
}

impl<'de> Deserialize<'de> for Message {
    /// Reads the name and then the message straight into its type, where a derived reader would first keep every field of a
    /// state with thousands of servers as values of any type.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Message;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Message, A::Error> {
        let first: Option<Cow<'de, str>> = fields.next_key()?;
        if first.as_deref() == Some("say") {
            let say: Cow<'de, str> = fields.next_value()?;
            return Message::named(&say, MapAccessDeserializer::new(fields));
        }
        // Another order is as good, and nothing we ever wrote.
        let mut rest = serde_json::Map::new();
        if let Some(first) = first {
            rest.insert(first.into_owned(), fields.next_value()?);
        }
        while let Some((key, value)) = fields.next_entry::<String, serde_json::Value>()? {
            rest.insert(key, value);
        }
        let say = rest.remove("say").ok_or_else(|| A::Error::missing_field("say"))?;
        let say = say.as_str().ok_or_else(|| A::Error::custom("`say` is not text"))?;
        Message::named(say, serde_json::Value::Object(rest).into_deserializer()).map_err(A::Error::custom)
    }
}

impl Message {
    /// Escapes what may be shown to a human: it is another process's.
    pub(super) fn escape(&mut self) {
        let escape = |text: &mut String| {
            if let Cow::Owned(escaped) = printable::line(text) {
                *text = escaped;
            }
        };
        match self {
            Message::Hello(hello) => escape(&mut hello.program),
            Message::Welcome(welcome) => escape(&mut welcome.program),
            Message::Refused(refused) => escape(&mut refused.reason),
            Message::Abort { reason } => escape(reason),
            Message::Sockets(sockets) => sockets.sockets.iter_mut().for_each(|socket| {
                escape(&mut socket.address);
                socket.namespace.iter_mut().for_each(escape);
            }),
            Message::Send
            | Message::Received
            | Message::State(_)
            | Message::Ready(_)
            | Message::Released(_)
            | Message::Reporting { .. }
            | Message::Report(_)
            | Message::Moved { .. }
            | Message::Unknown => {}
        }
    }

    /// The message of that name, of the fields that are left.
    fn named<'de, D: Deserializer<'de>>(say: &str, fields: D) -> Result<Message, D::Error> {
        /// Reads over the fields of a message that has none.
        fn bare<'de, D: Deserializer<'de>>(fields: D, message: Message) -> Result<Message, D::Error> {
            IgnoredAny::deserialize(fields).map(|_| message)
        }
        #[derive(Deserialize)]
        struct Abort {
            reason: String,
        }
        #[derive(Deserialize)]
        struct Reporting {
            pid: u32,
        }
        #[derive(Deserialize)]
        struct Moved {
            to: u32,
        }
        match say {
            "hello" => Hello::deserialize(fields).map(Message::Hello),
            "welcome" => Welcome::deserialize(fields).map(Message::Welcome),
            "refused" => Refused::deserialize(fields).map(Message::Refused),
            "send" => bare(fields, Message::Send),
            "sockets" => Sockets::deserialize(fields).map(Message::Sockets),
            "received" => bare(fields, Message::Received),
            "state" => State::deserialize(fields).map(|state| Message::State(Box::new(state))),
            "ready" => Ready::deserialize(fields).map(Message::Ready),
            "released" => Released::deserialize(fields).map(Message::Released),
            "abort" => Abort::deserialize(fields).map(|Abort { reason }| Message::Abort { reason }),
            "reporting" => Reporting::deserialize(fields).map(|Reporting { pid }| Message::Reporting { pid }),
            "report" => Report::deserialize(fields).map(Message::Report),
            "moved" => Moved::deserialize(fields).map(|Moved { to }| Message::Moved { to }),
            _ => bare(fields, Message::Unknown),
        }
    }
}

/// A word, which is hardly ever one that is unknown here.
fn known_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    struct Word;

    impl Visitor<'_> for Word {
        type Value = Cow<'static, str>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a word")
        }

        fn visit_str<E: Error>(self, word: &str) -> Result<Cow<'static, str>, E> {
            let known = HEALTH_WORDS.into_iter().find(|known| *known == word);
            let known = known.or_else(|| Status::of_word(word).map(Status::word));
            Ok(known.map_or_else(|| Cow::Owned(word.to_owned()), Cow::Borrowed))
        }
    }

    deserializer.deserialize_str(Word)
}

/// Whether a field is as in a process that has just begun, and left out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
    /// The giver's name for its network namespace, if it is not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
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
    pub backends: Named<BackendMemory>,
    /// Servers of which there is nothing to remember but that they have been as they are for `quiet_ms`: by backend, their
    /// names with spaces between them.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub quiet: Named<String>,
    /// For how long, milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub quiet_ms: u64,
    /// What operators set at run time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideRecord>,
    /// Keys of session tickets, the oldest first: clients resume their sessions with the taker. Those of files are not among
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<TicketKey>,
    /// It has services in the kernel (`mode direct`), which go when the taker asks for none.
    #[serde(skip_serializing_if = "is_default")]
    pub direct: bool,
}

/// A key of session tickets. Neither logged nor kept: its text is wiped when it is dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketKey(pub Kept);

/// [`TicketKey`] as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WrittenKey<'a> {
    /// In base64.
    key: Cow<'a, str>,
    /// Since when it seals, in seconds since 1970.
    since_s: u64,
}

impl Serialize for TicketKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenKey { key: Cow::Borrowed(&self.0.key), since_s: self.0.since }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TicketKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TicketKey, D::Error> {
        let WrittenKey { key, since_s } = WrittenKey::deserialize(deserializer)?;
        Ok(TicketKey(Kept { key: key.into_owned().into(), since: since_s }))
    }
}

/// Figures of traffic: all of them in a state, the difference in a report. Gauges and maxima are always as they are now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Frontends.
    pub frontends: Named<ProxyCounts>,
    /// Backends.
    pub backends: Named<ProxyCounts>,
}

/// Figures of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyCounts {
    /// Counters.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// The most sessions at once.
    #[serde(skip_serializing_if = "is_default")]
    pub open_max: i64,
    /// A backend's servers.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub servers: Named<ServerCounts>,
}

/// Figures of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerCounts {
    /// Counters.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// Sessions on it now.
    #[serde(skip_serializing_if = "is_default")]
    pub open: u32,
}

/// What a backend remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendMemory {
    /// The most that ever waited in its own queue.
    #[serde(skip_serializing_if = "is_default")]
    pub waiting_max: u32,
    /// Where its algorithm stands among the active servers, and among the backups.
    #[serde(skip_serializing_if = "is_default")]
    pub active: Turns,
    /// Where its algorithm stands among the backups.
    #[serde(skip_serializing_if = "is_default")]
    pub backups: Turns,
    /// Its servers.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub servers: Named<ServerMemory>,
}

/// Where an algorithm stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Turns {
    /// Its position.
    pub position: u64,
    /// Servers in its row: weight, whether it never had a turn (0 or 1), due, rest, last, placed.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub places: Named<[u64; 6]>,
}

/// What is remembered of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerMemory {
    /// `stopping` or `down`; anything else, and nothing, is up.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "known_word")]
    pub health: Cow<'static, str>,
    /// For how long, milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub since_ms: u64,
    /// How often it went down.
    #[serde(skip_serializing_if = "is_default")]
    pub downs: u64,
    /// How long it was down before the current outage, milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub down_ms: u64,
    /// The most sessions at once.
    #[serde(skip_serializing_if = "is_default")]
    pub served_max: u32,
    /// The most ever in its queue.
    #[serde(skip_serializing_if = "is_default")]
    pub queued_max: u32,
    /// Sessions ever.
    #[serde(skip_serializing_if = "is_default")]
    pub total: u64,
    /// For how long its slow start has been going on, milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub warming_ms: Option<u64>,
    /// Its check, if there was one.
    #[serde(skip_serializing_if = "is_default")]
    pub check: Option<Box<CheckMemory>>,
}

/// What is remembered of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckMemory {
    /// HAProxy's short word of the last result; empty: none yet.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "known_word")]
    pub status: Cow<'static, str>,
    /// Status code of an HTTP check.
    #[serde(skip_serializing_if = "is_default")]
    pub code: Option<u16>,
    /// What else there was to say.
    #[serde(skip_serializing_if = "is_default")]
    pub info: String,
    /// How long it took, microseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub duration_us: u64,
    /// The health counter, with `rise` and `fall` that it counts by.
    #[serde(skip_serializing_if = "is_default")]
    pub health: u32,
    /// `rise`, by which `health` counts.
    #[serde(skip_serializing_if = "is_default")]
    pub rise: u32,
    /// `fall`, by which `health` counts.
    #[serde(skip_serializing_if = "is_default")]
    pub fall: u32,
    /// Checks that failed.
    #[serde(skip_serializing_if = "is_default")]
    pub failed: u64,
    /// When the next one is due, milliseconds from now.
    #[serde(skip_serializing_if = "is_default")]
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
