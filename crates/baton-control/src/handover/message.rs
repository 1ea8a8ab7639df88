//! What two processes say in a handover, as typed messages with a version.
//!
//! A version is a promise for ever: fields may be added to it (who does not know one ignores it, who misses one takes its
//! default), messages may be added where the other side may ignore them, and everything else is a new version. The taker says
//! which versions it speaks, the giver chooses. Sizes are bounded where they are read. Samples of each version are kept in
//! `tests/handover/`. How they travel differs between versions ([`super::wire`]); what is said does not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::kinds::{MoveKinds, Takes};
use super::memory::{Counts, ProcessMemory};
use super::record::ConnectionRecord;
use super::server_record::ServerRecord;
use crate::listeners::INHERITED_MAX;
use crate::printable;

/// The most listening sockets that are handed over. The limit of open files is far lower, and says so; numbers of as many sockets fit
/// in one frame.
pub const SOCKETS_MAX: u32 = INHERITED_MAX as u32;

/// The most descriptors in one message. The kernel's limit is 253; fewer are in flight at once this way.
pub const SOCKETS_PER_MESSAGE: usize = 128;

/// The most stick tables that are handed over.
pub const TABLES_MAX: usize = 4096;

/// Names of messages.
pub(super) const NAMES: [&str; 19] = [
    "hello",
    "welcome",
    "refused",
    "send",
    "sockets",
    "received",
    "tables",
    "state",
    "ready",
    "released",
    "abort",
    "reporting",
    "report",
    "moved",
    "connections",
    "take",
    "give",
    "withdraw",
    "servers",
];

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
    /// Giver: some stick tables, with the descriptors of their memory.
    Tables(TableNames),
    /// Giver: what it remembers.
    State(Box<ProcessMemory>),
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
        /// The version that is spoken from here on; nothing: 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
    },
    /// Giver: what was counted since the last time.
    Report(Report),
    /// Taker, in its turn a giver by now: report to this process instead.
    Moved {
        /// Its number.
        to: u32,
        /// The version that it speaks; nothing: 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        /// The format of descriptions of connections that it takes; 0: none.
        #[serde(skip_serializing_if = "is_zero")]
        moving: u32,
        /// What else they may need.
        #[serde(skip_serializing_if = "MoveKinds::is_empty")]
        kinds: MoveKinds,
    },
    /// Giver: these connections of clients may go to the taker.
    Connections(Connections),
    /// Taker: it takes them, but for some.
    Take(Take),
    /// Giver: they are the taker's, with their descriptors.
    Give(Give),
    /// Giver: it serves them on, for no reply came in time.
    Withdraw {
        /// Which of its offers.
        batch: u32,
    },
    /// Giver: idle connections to servers, with their descriptors. There is no reply: those that are not wanted are closed.
    Servers(IdleServers),
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
            | Message::Tables(_)
            | Message::State(_)
            | Message::Ready(_)
            | Message::Released(_)
            | Message::Reporting { .. }
            | Message::Report(_)
            | Message::Moved { .. }
            | Message::Connections(_)
            | Message::Take(_)
            | Message::Give(_)
            | Message::Withdraw { .. }
            | Message::Servers(_)
            | Message::Unknown => {}
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Hello(_) => "hello",
            Message::Welcome(_) => "welcome",
            Message::Refused(_) => "refused",
            Message::Send => "send",
            Message::Sockets(_) => "sockets",
            Message::Received => "received",
            Message::Tables(_) => "tables",
            Message::State(_) => "state",
            Message::Ready(_) => "ready",
            Message::Released(_) => "released",
            Message::Abort { .. } => "abort",
            Message::Reporting { .. } => "reporting",
            Message::Report(_) => "report",
            Message::Moved { .. } => "moved",
            Message::Connections(_) => "connections",
            Message::Take(_) => "take",
            Message::Give(_) => "give",
            Message::Withdraw { .. } => "withdraw",
            Message::Servers(_) => "servers",
            Message::Unknown => "unknown",
        }
    }

    /// How many descriptors come with it.
    pub(super) fn descriptors(&self) -> usize {
        match self {
            Message::Sockets(sockets) => sockets.sockets.len(),
            Message::Tables(tables) => tables.tables.len(),
            Message::Give(give) => give.descriptors as usize,
            Message::Servers(servers) => servers.servers.len(),
            _ => 0,
        }
    }

    /// The message of that name; `None` when it is unknown here.
    pub(super) fn read(name: &str, fields: &str) -> serde_json::Result<Option<Message>> {
        if !NAMES.contains(&name) {
            return Ok(None);
        }
        let mut reader = serde_json::Deserializer::from_str(fields);
        let message = Message::named(name, &mut reader)?;
        reader.end()?;
        Ok(Some(message))
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
            version: Option<u32>,
        }
        #[derive(Deserialize)]
        struct Moved {
            to: u32,
            version: Option<u32>,
            #[serde(default)]
            moving: u32,
            #[serde(default)]
            kinds: MoveKinds,
        }
        #[derive(Deserialize)]
        struct Withdraw {
            batch: u32,
        }
        match say {
            "hello" => Hello::deserialize(fields).map(Message::Hello),
            "welcome" => Welcome::deserialize(fields).map(Message::Welcome),
            "refused" => Refused::deserialize(fields).map(Message::Refused),
            "send" => bare(fields, Message::Send),
            "sockets" => Sockets::deserialize(fields).map(Message::Sockets),
            "received" => bare(fields, Message::Received),
            "tables" => TableNames::deserialize(fields).map(Message::Tables),
            "state" => ProcessMemory::deserialize(fields).map(|state| Message::State(Box::new(state))),
            "ready" => Ready::deserialize(fields).map(Message::Ready),
            "released" => Released::deserialize(fields).map(Message::Released),
            "abort" => Abort::deserialize(fields).map(|Abort { reason }| Message::Abort { reason }),
            "reporting" => {
                Reporting::deserialize(fields).map(|Reporting { pid, version }| Message::Reporting { pid, version })
            }
            "report" => Report::deserialize(fields).map(Message::Report),
            "moved" => {
                let Moved { to, version, moving, kinds } = Moved::deserialize(fields)?;
                Ok(Message::Moved { to, version, moving, kinds })
            }
            "connections" => Connections::deserialize(fields).map(Message::Connections),
            "take" => Take::deserialize(fields).map(Message::Take),
            "give" => Give::deserialize(fields).map(Message::Give),
            "withdraw" => Withdraw::deserialize(fields).map(|Withdraw { batch }| Message::Withdraw { batch }),
            "servers" => IdleServers::deserialize(fields).map(Message::Servers),
            _ => bare(fields, Message::Unknown),
        }
    }
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
    /// How many bytes the state has in version 1; 0 in later ones, where it comes in frames.
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

/// [`Message::Tables`]: one descriptor comes with each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableNames {
    /// Their names, in the order of the descriptors.
    pub tables: Vec<String>,
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
    /// The format of descriptions of connections that it takes; 0: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub moving: u32,
    /// What else they may need.
    #[serde(skip_serializing_if = "MoveKinds::is_empty")]
    pub kinds: MoveKinds,
}

impl Ready {
    /// What it takes of connections that move.
    pub fn takes(&self) -> Takes {
        Takes { format: self.moving, kinds: self.kinds }
    }
}

/// [`Message::Connections`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// The number of the offer.
    pub batch: u32,
    /// What they are.
    pub connections: Vec<ConnectionRecord>,
}

/// [`Message::Take`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Take {
    /// Which offer.
    pub batch: u32,
    /// Those that are not taken.
    pub staying: Vec<Staying>,
}

/// A connection of an offer that is not taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Staying {
    /// Its place in the offer, from 0.
    pub at: u32,
    /// A word.
    pub reason: String,
}

/// [`Message::Give`]: one descriptor comes with each connection that is taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Give {
    /// Of which offer.
    pub batch: u32,
    /// How many.
    pub descriptors: u32,
}

/// [`Message::Servers`]: one descriptor comes with each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleServers {
    /// What they are, in the order of the descriptors.
    pub servers: Vec<ServerRecord>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
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
    /// Those of them that do not move, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub staying: BTreeMap<String, u64>,
    /// Whether it is the last one.
    pub last: bool,
}
