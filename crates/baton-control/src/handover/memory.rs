//! What is remembered of a process, for whoever comes after it: another process that takes over, or the next worker of a master
//! that lost one.
//!
//! There is one type for all of it, [`ProcessMemory`], and one name for each of its parts, [`MemoryKind`]. A part travels as pieces of
//! bounded size, which [`ProcessMemory::into_pieces`] makes and [`ProcessMemory::join`] puts together again, so that no process ever
//! needs all of it as one text. How pieces travel between processes is decided in [`super::wire`]; a master keeps the pieces of a part
//! as a memory file.
//!
//! What a process with thousands of servers remembers is written sparsely: a figure, a server or a proxy that is as in a
//! process that has just begun is left out, and reads as that.

use std::borrow::Cow;
use std::fmt;
use std::iter;
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use baton_health::Status;
use baton_rules::Sample;
use baton_tls::tickets::SavedTicketKey;
use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

pub use super::named::{Counters, Named};
use crate::overrides::OverrideRecord;
use crate::overrides::entries::{bytes, escaped};
use crate::protocol::ChangeRecord;

/// A piece is closed when it has as many bytes. It may have more by one entry, which is one of at most `SERVERS_PER_ENTRY` servers.
pub const PIECE_BYTES: usize = 64 * 1024;

/// Servers of a proxy in one entry of a piece. What is remembered of a check has the text of a peer in it, which may be as long as a
/// response's head; so many of those are less than a frame may have.
const SERVERS_PER_ENTRY: usize = 8;

/// Bytes of names of servers in one entry.
const NAMES_BYTES: usize = 8 * 1024;

/// Words for [`ServerMemory::health`]. Nothing is said of a server that is up.
pub const HEALTH_WORDS: [&str; 3] = ["up", "stopping", "down"];

/// A part of what is remembered. Its word is what it is called between processes, for ever.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemoryKind {
    /// Counters of frontends.
    Frontends,
    /// Counters of backends and their servers.
    Backends,
    /// Health, checks, and where balancers stand.
    Health,
    /// Servers of which there is nothing to remember.
    Quiet,
    /// Counters of sockets.
    Sockets,
    /// What operators set at run time.
    Overrides,
    /// Keys of session tickets.
    TicketKeys,
    /// Variables of the process.
    Variables,
    /// The last changes, in words.
    History,
}

impl MemoryKind {
    /// All of them.
    pub(super) const ALL: [(MemoryKind, &str); 9] = [
        (MemoryKind::Frontends, "frontends"),
        (MemoryKind::Backends, "backends"),
        (MemoryKind::Health, "health"),
        (MemoryKind::Quiet, "quiet"),
        (MemoryKind::Sockets, "socket-counters"),
        (MemoryKind::Overrides, "overrides"),
        (MemoryKind::TicketKeys, "ticket-keys"),
        (MemoryKind::Variables, "variables"),
        (MemoryKind::History, "history"),
    ];

    /// What it is called.
    pub fn word(self) -> &'static str {
        MemoryKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The part of that name; `None` when it is unknown here.
    pub fn of_word(word: &str) -> Option<MemoryKind> {
        MemoryKind::ALL.iter().find(|(_, other)| *other == word).map(|(kind, _)| *kind)
    }
}

/// What is remembered of a process, by name of proxy and server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
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
    /// Counters of sockets with `option socket-stats`, by frontend and number.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub sockets: Named<Counters>,
    /// What operators set at run time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideRecord>,
    /// Keys of session tickets, the oldest first: clients resume their sessions with the taker. Those of files are not among
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<TicketKey>,
    /// Variables of the process, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariableMemory>,
    /// The last changes, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ChangeRecord>,
    /// Sums that no proxy has.
    #[serde(skip_serializing_if = "is_default")]
    pub totals: ProcessTotals,
    /// It has services in the kernel (`mode direct`), which go when the taker asks for none.
    #[serde(skip_serializing_if = "is_default")]
    pub direct: bool,
}

impl ProcessMemory {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == ProcessMemory::default()
    }

    /// So much time has gone on since it was so.
    pub fn age(&mut self, time: Duration) {
        let time = milliseconds(time);
        let later = |ms: &mut u64| *ms = ms.saturating_add(time);
        later(&mut self.quiet_ms);
        for (_, backend) in &mut self.backends.0 {
            backend.outages.iter_mut().for_each(|outages| later(&mut outages.since_ms));
            for (_, server) in &mut backend.servers.0 {
                later(&mut server.since_ms);
                server.warming_ms.iter_mut().for_each(later);
                let due = server.check.iter_mut().filter_map(|check| check.due_ms.as_mut());
                due.for_each(|ms| *ms = ms.saturating_sub(time));
            }
        }
    }

    /// Adds what is remembered of a worker that crashed: its counters, or the health of its servers.
    pub fn join_crashed(&mut self, known: ProcessMemory) {
        self.join_rest(known);
    }

    /// Takes the parts out, in pieces. What stays is small.
    pub fn into_pieces(&mut self) -> impl Iterator<Item = serde_json::Result<(MemoryKind, Vec<u8>)>> + Send + use<> {
        let counts = take(&mut self.counts);
        let split =
            |(name, figures): (Arc<str>, ProxyCounts)| figures.split().map(move |piece| (Arc::clone(&name), piece));
        let health =
            |(name, memory): (Arc<str>, BackendMemory)| memory.split().map(move |piece| (Arc::clone(&name), piece));
        let quiet =
            |(name, servers): (Arc<str>, String)| split_names(servers).map(move |some| (Arc::clone(&name), some));
        Packed::map(MemoryKind::Frontends, counts.frontends.0.into_iter().flat_map(split))
            .chain(Packed::map(MemoryKind::Backends, counts.backends.0.into_iter().flat_map(split)))
            .chain(Packed::map(MemoryKind::Health, take(&mut self.backends).0.into_iter().flat_map(health)))
            .chain(Packed::map(MemoryKind::Quiet, take(&mut self.quiet).0.into_iter().flat_map(quiet)))
            .chain(Packed::map(MemoryKind::Sockets, take(&mut self.sockets).0.into_iter()))
            .chain(Packed::list(MemoryKind::Overrides, take(&mut self.overrides).into_iter()))
            .chain(Packed::list(MemoryKind::TicketKeys, take(&mut self.tickets).into_iter()))
            .chain(Packed::list(MemoryKind::Variables, take(&mut self.variables).into_iter()))
            .chain(Packed::list(MemoryKind::History, take(&mut self.history).into_iter()))
    }

    /// A part as one piece, however long that is: for a memory file.
    ///
    /// # Errors
    /// Never, in practice.
    pub fn part(&self, kind: MemoryKind) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        let piece = match kind {
            MemoryKind::Frontends => serde_json::to_vec(&self.counts.frontends),
            MemoryKind::Backends => serde_json::to_vec(&self.counts.backends),
            MemoryKind::Health => serde_json::to_vec(&self.backends),
            MemoryKind::Quiet => serde_json::to_vec(&self.quiet),
            MemoryKind::Sockets => serde_json::to_vec(&self.sockets),
            MemoryKind::Overrides => serde_json::to_vec(&self.overrides),
            MemoryKind::TicketKeys => serde_json::to_vec(&self.tickets),
            MemoryKind::Variables => serde_json::to_vec(&self.variables),
            MemoryKind::History => serde_json::to_vec(&self.history),
        };
        piece.map(Zeroizing::new)
    }

    /// Adds a piece of a part.
    ///
    /// # Errors
    /// It is malformed. Nothing was added then.
    pub fn join(&mut self, kind: MemoryKind, piece: &[u8]) -> serde_json::Result<()> {
        match kind {
            MemoryKind::Frontends => join_named(&mut self.counts.frontends, read(piece)?, ProxyCounts::join),
            MemoryKind::Backends => join_named(&mut self.counts.backends, read(piece)?, ProxyCounts::join),
            MemoryKind::Health => join_named(&mut self.backends, read(piece)?, BackendMemory::join),
            MemoryKind::Quiet => join_named(&mut self.quiet, read(piece)?, join_names),
            // One of a name is all of it.
            MemoryKind::Sockets => join_named(&mut self.sockets, read(piece)?, |counters, more| *counters = more),
            MemoryKind::Overrides => self.overrides.append(&mut read(piece)?),
            MemoryKind::TicketKeys => self.tickets.append(&mut read(piece)?),
            MemoryKind::Variables => self.variables.append(&mut read(piece)?),
            MemoryKind::History => self.history.append(&mut read(piece)?),
        }
        Ok(())
    }

    /// Adds what was remembered beside the parts, and parts that were not taken apart.
    pub(super) fn join_rest(&mut self, rest: ProcessMemory) {
        let ProcessMemory {
            counts,
            backends,
            quiet,
            quiet_ms,
            sockets,
            mut overrides,
            mut tickets,
            mut variables,
            mut history,
            totals,
            direct,
        } = rest;
        join_named(&mut self.sockets, sockets, |counters, more| *counters = more);
        self.counts.append(counts);
        join_named(&mut self.backends, backends, BackendMemory::join);
        join_named(&mut self.quiet, quiet, join_names);
        self.quiet_ms = self.quiet_ms.max(quiet_ms);
        self.overrides.append(&mut overrides);
        self.tickets.append(&mut tickets);
        self.variables.append(&mut variables);
        self.history.append(&mut history);
        self.totals.add(totals);
        self.direct |= direct;
    }
}

/// A variable of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableMemory {
    /// Its name with its scope.
    pub name: String,
    /// HAProxy's word for the type of its value; empty: it is not set.
    pub kind: String,
    /// The value; of a text, bytes that are no UTF-8 as `\\xHH`.
    pub value: String,
    /// The lines of the file that were applied last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lines: String,
}

impl VariableMemory {
    /// Of a variable with this value.
    pub(crate) fn of(name: &str, value: Option<&Sample<'_>>) -> VariableMemory {
        let (kind, value) = match value {
            None => ("", String::new()),
            Some(Sample::Bool(value)) => ("bool", u8::from(*value).to_string()),
            Some(Sample::Int(value)) => ("sint", value.to_string()),
            Some(Sample::Ip(value)) => ("ip", value.to_string()),
            Some(Sample::Str(text)) => ("str", escaped(text)),
            Some(Sample::Bin(text)) => ("bin", escaped(text)),
            Some(Sample::Method(text)) => ("meth", escaped(text)),
        };
        VariableMemory { name: name.into(), kind: kind.into(), value, lines: String::new() }
    }

    /// Its value, `None` inside: it is not set. `None`: it is of a kind that is unknown here, or malformed.
    pub(crate) fn sample(&self) -> Option<Option<Sample<'static>>> {
        let text = || bytes(&self.value).into();
        Some(match &*self.kind {
            "" => None,
            "bool" => Some(Sample::Bool(self.value == "1")),
            "sint" => Some(Sample::Int(self.value.parse().ok()?)),
            "ip" => Some(Sample::Ip(self.value.parse::<IpAddr>().ok()?)),
            "str" => Some(Sample::Str(text())),
            "bin" => Some(Sample::Bin(text())),
            "meth" => Some(Sample::Method(text())),
            _ => return None,
        })
    }
}

/// Sums of a process that no proxy has, and that never go back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTotals {
    /// Connections of frontends that were removed, and sessions of the runtime API.
    pub connections: u64,
    /// Requests of frontends that were removed.
    pub requests: u64,
    /// Bytes to clients of frontends that were removed.
    pub bytes_out: u64,
    /// TLS handshakes with clients.
    pub tls_handshakes: u64,
    /// Bytes that went through pipes.
    pub spliced: u64,
    /// Reloads whose configuration came into use.
    pub reloads_applied: u64,
    /// The others.
    pub reloads_rejected: u64,
    /// How long all of them took, nanoseconds.
    pub reloads_ns: u64,
    /// Clients' connections that came from processes before.
    pub moved_in: u64,
    /// Those that went to the next one.
    pub moved_out: u64,
    /// Idle connections to servers that came from processes before.
    pub servers_moved_in: u64,
    /// Those that went to the next one.
    pub servers_moved_out: u64,
    /// Lost lines, by log target.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub lost_lines: Named<u64>,
}

impl ProcessTotals {
    fn add(&mut self, mut more: ProcessTotals) {
        for (sum, more) in [
            (&mut self.connections, more.connections),
            (&mut self.requests, more.requests),
            (&mut self.bytes_out, more.bytes_out),
            (&mut self.tls_handshakes, more.tls_handshakes),
            (&mut self.spliced, more.spliced),
            (&mut self.reloads_applied, more.reloads_applied),
            (&mut self.reloads_rejected, more.reloads_rejected),
            (&mut self.reloads_ns, more.reloads_ns),
            (&mut self.moved_in, more.moved_in),
            (&mut self.moved_out, more.moved_out),
            (&mut self.servers_moved_in, more.servers_moved_in),
            (&mut self.servers_moved_out, more.servers_moved_out),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.lost_lines.0.append(&mut more.lost_lines.0);
    }
}

/// A piece, read at once, which is faster than word by word.
fn read<T: DeserializeOwned>(piece: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(str::from_utf8(piece).map_err(Error::custom)?)
}

/// Adds things by name; one of the name that was added last is more of that one.
fn join_named<T>(all: &mut Named<T>, more: Named<T>, join: impl Fn(&mut T, T)) {
    for (name, thing) in more.0 {
        match all.0.last_mut() {
            Some((last, one)) if *last == name => join(one, thing),
            Some(_) | None => all.0.push((name, thing)),
        }
    }
}

fn join_names(names: &mut String, more: String) {
    names.push(' ');
    names.push_str(&more);
}

/// Names with spaces between them, some at a time.
fn split_names(names: String) -> impl Iterator<Item = String> {
    let mut from = Some(0);
    iter::from_fn(move || {
        let start = from?;
        let left = &names[start..];
        let space = left.bytes().enumerate().skip(NAMES_BYTES).find(|(_, byte)| *byte == b' ').map(|(at, _)| at);
        from = space.map(|space| start + space + 1);
        Some(left[..space.unwrap_or(left.len())].to_owned())
    })
}

/// The next few things by name.
fn some<T>(things: &mut vec::IntoIter<(Arc<str>, T)>) -> Named<T> {
    things.take(SERVERS_PER_ENTRY).collect()
}

/// Entries, packed into pieces.
struct Packed<I, W> {
    kind: MemoryKind,
    entries: I,
    /// Writes an entry down.
    write: W,
    /// What is around the entries.
    brackets: [u8; 2],
}

impl<T: Serialize, I: Iterator<Item = (Arc<str>, T)>>
    Packed<I, fn(&mut Vec<u8>, &(Arc<str>, T)) -> serde_json::Result<()>>
{
    fn map(kind: MemoryKind, entries: I) -> Self {
        Packed {
            kind,
            entries,
            write: |piece, (name, thing)| {
                serde_json::to_writer(&mut *piece, &**name)?;
                piece.push(b':');
                serde_json::to_writer(piece, thing)
            },
            brackets: *b"{}",
        }
    }
}

impl<T: Serialize, I: Iterator<Item = T>> Packed<I, fn(&mut Vec<u8>, &T) -> serde_json::Result<()>> {
    fn list(kind: MemoryKind, entries: I) -> Self {
        Packed { kind, entries, write: |piece, thing| serde_json::to_writer(piece, thing), brackets: *b"[]" }
    }
}

impl<I: Iterator, W: Fn(&mut Vec<u8>, &I::Item) -> serde_json::Result<()>> Iterator for Packed<I, W> {
    type Item = serde_json::Result<(MemoryKind, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let [open, close] = self.brackets;
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES
            && let Some(entry) = self.entries.next()
        {
            piece.push(if piece.is_empty() { open } else { b',' });
            if let Err(error) = (self.write)(&mut piece, &entry) {
                return Some(Err(error));
            }
        }
        if piece.is_empty() {
            return None;
        }
        piece.push(close);
        Some(Ok((self.kind, piece)))
    }
}

/// A key of session tickets. Neither logged nor kept: its text is wiped when it is dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketKey(pub SavedTicketKey);

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
        Ok(TicketKey(SavedTicketKey { key: key.into_owned().into(), since: since_s }))
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

impl Counts {
    /// Adds pieces that belong behind these.
    fn append(&mut self, more: Counts) {
        join_named(&mut self.frontends, more.frontends, ProxyCounts::join);
        join_named(&mut self.backends, more.backends, ProxyCounts::join);
    }
}

/// Figures of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyCounts {
    /// Counters.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// Peak of sessions.
    #[serde(skip_serializing_if = "is_default")]
    pub open_max: i64,
    /// A backend's servers.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub servers: Named<ServerCounts>,
}

impl ProxyCounts {
    /// The proxy's own figures come with the first few servers.
    fn split(self) -> impl Iterator<Item = ProxyCounts> {
        let ProxyCounts { counters, open_max, servers } = self;
        let mut servers = servers.0.into_iter();
        let mut own = Some(ProxyCounts { counters, open_max, servers: Named::default() });
        iter::from_fn(move || {
            let (own, servers) = (own.take(), some(&mut servers));
            (own.is_some() || !servers.is_empty()).then(|| ProxyCounts { servers, ..own.unwrap_or_default() })
        })
    }

    fn join(&mut self, more: ProxyCounts) {
        self.servers.0.extend(more.servers.0);
    }
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
    /// When it had no usable server.
    #[serde(skip_serializing_if = "is_default")]
    pub outages: Option<OutageMemory>,
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

impl BackendMemory {
    /// The backend's own figures come with the first few servers.
    fn split(self) -> impl Iterator<Item = BackendMemory> {
        let BackendMemory { waiting_max, outages, active, backups, servers } = self;
        let (mut first, mut second, mut servers) =
            (active.places.0.into_iter(), backups.places.0.into_iter(), servers.0.into_iter());
        let of = |position| Turns { position, places: Named::default() };
        let (active, backups) = (of(active.position), of(backups.position));
        let mut own = Some(BackendMemory { waiting_max, outages, active, backups, servers: Named::default() });
        iter::from_fn(move || {
            let is_first = own.is_some();
            let mut piece = own.take().unwrap_or_default();
            (piece.active.places, piece.backups.places) = (some(&mut first), some(&mut second));
            piece.servers = some(&mut servers);
            (is_first || piece != BackendMemory::default()).then_some(piece)
        })
    }

    fn join(&mut self, more: BackendMemory) {
        self.active.places.0.extend(more.active.places.0);
        self.backups.places.0.extend(more.backups.places.0);
        self.servers.0.extend(more.servers.0);
    }
}

/// When a backend had no usable server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutageMemory {
    /// For how long it has been up or down, milliseconds.
    pub since_ms: u64,
    /// How often it went down.
    pub downs: u64,
    /// How long it was down before the current outage, milliseconds.
    pub down_ms: u64,
    /// It is down.
    pub is_down: bool,
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
    /// Peak of sessions.
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
    /// Its agent, if it was asked.
    #[serde(skip_serializing_if = "is_default")]
    pub agent: Option<Box<CheckMemory>>,
    /// Its agent keeps it down.
    #[serde(skip_serializing_if = "is_default")]
    pub is_held: bool,
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

/// Whole milliseconds, as times stand in here.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a field is as in a process that has just begun, and left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> ProcessMemory {
        let name = |number: usize| -> Arc<str> { format!("s{number}").into() };
        let counts = |number| ServerCounts { open: number as u32 + 1, ..ServerCounts::default() };
        let server = |number| ServerMemory { downs: number as u64 + 1, ..ServerMemory::default() };
        let places: Named<[u64; 6]> = (0..1000).map(|number| (name(number), [number as u64; 6])).collect();
        let app = BackendMemory {
            waiting_max: 3,
            outages: Some(OutageMemory { downs: 2, ..OutageMemory::default() }),
            active: Turns { position: 7, places },
            backups: Turns::default(),
            servers: (0..2000).map(|number| (name(number), server(number))).collect(),
        };
        let own = ProxyCounts { open_max: 5, ..ProxyCounts::default() };
        let servers = (0..3000).map(|number| (name(number), counts(number))).collect();
        let set = |number: usize| OverrideRecord { server: format!("s{number}"), ..OverrideRecord::default() };
        ProcessMemory {
            counts: Counts {
                frontends: [("web".into(), own.clone())].into_iter().collect(),
                backends: [("one".into(), own.clone()), ("app".into(), ProxyCounts { servers, ..own })]
                    .into_iter()
                    .collect(),
            },
            backends: [
                ("app".into(), app),
                ("one".into(), BackendMemory { waiting_max: 1, ..BackendMemory::default() }),
            ]
            .into_iter()
            .collect(),
            quiet: [("q".into(), vec!["srv"; 20_000].join(" ")), ("r".into(), "s".into())].into_iter().collect(),
            overrides: (0..1000).map(set).collect(),
            tickets: vec![TicketKey(SavedTicketKey { key: "AAEC".to_owned().into(), since: 7 })],
            variables: vec![VariableMemory { name: "proc.a".into(), ..VariableMemory::default() }],
            history: vec![ChangeRecord { at_s: 7, what: "reload".into(), ..ChangeRecord::default() }],
            sockets: (0..100).map(|number| (name(number), counts(number).counters)).collect(),
            totals: ProcessTotals::default(),
            quiet_ms: 9,
            direct: true,
        }
    }

    #[test]
    fn what_was_taken_apart_is_put_together_again() {
        let whole = large();
        let (mut left, mut joined) = (whole.clone(), ProcessMemory::default());
        let pieces: Vec<_> = left.into_pieces().map(Result::unwrap).collect();
        assert!(pieces.iter().all(|(_, piece)| piece.len() < 2 * PIECE_BYTES) && pieces.len() > 8, "{}", pieces.len());
        for (kind, _) in MemoryKind::ALL {
            assert!(pieces.iter().any(|(other, _)| *other == kind), "{kind:?}");
        }
        assert_eq!(left, ProcessMemory { quiet_ms: 9, direct: true, ..ProcessMemory::default() });
        for (kind, piece) in pieces {
            assert_eq!(MemoryKind::of_word(kind.word()), Some(kind));
            joined.join(kind, &piece).unwrap();
        }
        joined.join_rest(left);
        assert_eq!(joined, whole);
        assert_eq!(ProcessMemory::default().into_pieces().count(), 0);
        let mut joined = ProcessMemory { quiet_ms: 9, direct: true, ..ProcessMemory::default() };
        for (kind, _) in MemoryKind::ALL {
            joined.join(kind, &whole.part(kind).unwrap()).unwrap();
        }
        assert_eq!(joined, whole);
    }

    #[test]
    fn a_malformed_piece_adds_nothing() {
        let check = |kind, piece: &[u8]| {
            let mut memory = ProcessMemory::default();
            assert!(memory.join(kind, piece).is_err());
            assert!(memory.is_empty());
        };
        check(MemoryKind::Frontends, b"[]");
        check(MemoryKind::Backends, br#"{"a":{},"b":7}"#);
        check(MemoryKind::Health, br#"{"a":{"servers":{"s":{"downs":-1}}}}"#);
        check(MemoryKind::Quiet, br#"{"a":"b"} "#.split_at(8).0);
        check(MemoryKind::Sockets, br#"{"a":7}"#);
        check(MemoryKind::Overrides, b"[{}");
        check(MemoryKind::TicketKeys, b"\"\xff\"");
        check(MemoryKind::Variables, b"{}");
        check(MemoryKind::History, br#"[{"at_s":-1}]"#);
    }
}
