//! Entries of stick tables that a session or an exchange tracks (configuration manual 4.2, `track-sc0`).

use baton_model::DataType;
use baton_tables::{Now, Tracked};

/// What is counted in tracked entries: a number, and how fast it grows.
pub type Counted = (DataType, DataType);

/// Sessions: connections that the rules about connections and sessions accepted.
pub const SESSIONS: Counted = (DataType::SessCnt, DataType::SessRate);
/// Requests.
pub const REQUESTS: Counted = (DataType::HttpReqCnt, DataType::HttpReqRate);
/// Requests that failed through the client.
pub const ERRORS: Counted = (DataType::HttpErrCnt, DataType::HttpErrRate);
/// Requests that failed through the server.
pub const FAILURES: Counted = (DataType::HttpFailCnt, DataType::HttpFailRate);
/// Breaches of the protocol by the client.
pub const GLITCHES: Counted = (DataType::GlitchCnt, DataType::GlitchRate);
/// Bytes of clients.
pub const BYTES_IN: Counted = (DataType::BytesInCnt, DataType::BytesInRate);
/// Bytes to clients.
pub const BYTES_OUT: Counted = (DataType::BytesOutCnt, DataType::BytesOutRate);

/// What a server's response with this status counts as besides a request.
pub fn of_status(status: u16) -> Option<Counted> {
    match status {
        400..=499 => Some(ERRORS),
        501 | 505 => None,
        500..=599 => Some(FAILURES),
        _ => None,
    }
}

/// The entries that a session or an exchange tracks, by counter. None costs nothing.
#[derive(Debug, Default)]
pub struct TrackedCounters(Option<Box<Slots>>);

#[derive(Debug, Default)]
struct Slots(Vec<Option<Current>>);

/// An entry in which its connection or request is counted as a current one, until it is dropped.
#[derive(Debug)]
struct Current(Tracked);

impl Drop for Current {
    fn drop(&mut self) {
        self.0.subtract(DataType::ConnCur, 0, 1);
    }
}

/// What tracks nothing is equal; an entry is equal to none.
impl PartialEq for TrackedCounters {
    fn eq(&self, other: &TrackedCounters) -> bool {
        self.is_empty() && other.is_empty()
    }
}

impl TrackedCounters {
    /// Whether nothing is tracked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|slots| slots.0.is_empty())
    }

    /// The entry of a counter.
    pub fn get(&self, counter: u8) -> Option<&Tracked> {
        let slot = self.0.as_ref()?.0.get(usize::from(counter))?;
        slot.as_ref().map(|current| &current.0)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Tracked> {
        self.0.iter().flat_map(|slots| &slots.0).flatten().map(|current| &current.0)
    }

    /// All entries, with their counters.
    pub fn by_counter(&self) -> impl Iterator<Item = (u8, &Tracked)> {
        let slots = self.0.iter().flat_map(|slots| &slots.0);
        (0..=u8::MAX).zip(slots).filter_map(|(counter, slot)| Some((counter, &slot.as_ref()?.0)))
    }

    /// Goes on tracking an entry that another process tracks for the same connection or request: it is a current one here, too, but no
    /// other one.
    pub fn resume(&mut self, counter: u8, entry: Tracked, now: Now) {
        entry.add(DataType::ConnCur, 0, 1, now);
        self.set(counter, entry);
    }

    /// Ends all tracking, and keeps the memory for the next exchange.
    #[inline]
    pub fn clear(&mut self) {
        if let Some(slots) = &mut self.0 {
            slots.0.clear();
        }
    }

    /// Ends all tracking: the life of the entries begins anew. The memory is kept for the next exchange.
    pub fn release(&mut self, now: Now) {
        self.entries().for_each(|entry| entry.touch(now));
        self.clear();
    }

    /// Counts in all entries, as far as they store it.
    pub fn count(&self, what: Counted, amount: u64, now: Now) {
        self.entries().for_each(|entry| count(entry, what, amount, now));
    }

    fn set(&mut self, counter: u8, entry: Tracked) {
        let Slots(slots) = &mut **self.0.get_or_insert_default();
        let at = usize::from(counter);
        if slots.len() <= at {
            slots.resize_with(at + 1, || None);
        }
        slots[at] = Some(Current(entry));
    }
}

/// The entries that an evaluation sees: those of the session, and of the exchange.
#[derive(Debug)]
pub struct TrackedScopes<'a> {
    session: &'a mut TrackedCounters,
    /// `None` before there is an exchange.
    exchange: Option<&'a mut TrackedCounters>,
}

impl<'a> TrackedScopes<'a> {
    /// What a session tracks, and an exchange if there is one.
    pub fn new(session: &'a mut TrackedCounters, exchange: Option<&'a mut TrackedCounters>) -> TrackedScopes<'a> {
        TrackedScopes { session, exchange }
    }

    /// The entry of a counter.
    pub(crate) fn get(&self, counter: u8) -> Option<&Tracked> {
        let exchange = self.exchange.as_ref().and_then(|exchange| exchange.get(counter));
        exchange.or_else(|| self.session.get(counter))
    }

    /// Tracks an entry from now on, which counts one more connection: for the exchange, or for the session before there is one.
    pub(crate) fn track(&mut self, counter: u8, entry: Tracked, now: Now) {
        count(&entry, (DataType::ConnCnt, DataType::ConnRate), 1, now);
        entry.add(DataType::ConnCur, 0, 1, now);
        match &mut self.exchange {
            Some(exchange) => exchange.set(counter, entry),
            None => self.session.set(counter, entry),
        }
    }
}

/// Counts in an entry, as far as it stores it.
pub(crate) fn count(entry: &Tracked, (number, rate): Counted, amount: u64, now: Now) {
    let is_counted = entry.add(number, 0, amount, now);
    let is_measured = entry.add(rate, 0, amount, now);
    if is_counted || is_measured {
        entry.touch(now);
    }
}
