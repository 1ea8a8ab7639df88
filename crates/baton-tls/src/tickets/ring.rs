//! A ring of keys: one seals, all open.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use zeroize::Zeroizing;

use super::key::{BadKey, TicketKey};

/// How many keys a ring has at most, as HAProxy (TLS_TICKETS_NO).
pub const RING_KEYS: usize = 3;

/// How long a key of our own seals.
const SEALS_FOR: Duration = Duration::from_secs(6 * 3600);

/// Keys that can be replaced at any time, by whoever holds them, for all connections at once.
#[derive(Debug)]
pub struct TicketKeys {
    ring: ArcSwap<Ring>,
    /// Held by whoever changes the ring.
    changing: Mutex<()>,
    /// Keys of our own, and not those of a file.
    is_own: bool,
}

/// What the ring is at one moment: the oldest key first, never empty.
#[derive(Debug)]
pub(super) struct Ring {
    keys: Vec<Timed>,
    is_own: bool,
}

#[derive(Clone, Debug)]
struct Timed {
    key: Arc<TicketKey>,
    /// Since when it seals, in seconds since 1970; 0 of a file.
    since: u64,
}

/// A key of our own on its way to another process.
#[derive(Clone, Eq, PartialEq)]
pub struct SavedTicketKey {
    /// As [`TicketKey::to_text`] has it.
    pub key: Zeroizing<String>,
    /// Since when it seals, in seconds since 1970.
    pub since: u64,
}

/// Without the key, so that it is never logged.
impl fmt::Debug for SavedTicketKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Kept").field("since", &self.since).finish_non_exhaustive()
    }
}

/// What is wrong with a file of `tls-ticket-keys`, in HAProxy's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TicketFileError {
    /// A line is no key.
    #[error("{fault} on line {line}")]
    Line {
        /// From 1.
        line: usize,
        /// Why.
        fault: BadKey,
    },
    /// Fewer keys than [`RING_KEYS`].
    #[error("please supply at least {RING_KEYS} keys in the tls-tickets-file")]
    Few,
    /// It cannot be read.
    #[error("unable to load ssl tickets keys file")]
    Unreadable,
}

/// Reads a file of `tls-ticket-keys`: a key on each line, all of the length of the first. The last [`RING_KEYS`] of them.
///
/// # Errors
/// The first fault.
pub fn read_file(text: &[u8]) -> Result<Vec<Arc<TicketKey>>, TicketFileError> {
    let text = std::str::from_utf8(text).map_err(|_| TicketFileError::Line { line: 1, fault: BadKey::Encoding })?;
    let mut keys: Vec<Arc<TicketKey>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |fault| TicketFileError::Line { line: number + 1, fault };
        let key = TicketKey::of_text(line.trim_end_matches('\r')).map_err(wrong)?;
        if keys.first().is_some_and(|first| first.length() != key.length()) {
            return Err(wrong(BadKey::Length));
        }
        if keys.len() == RING_KEYS {
            keys.remove(0);
        }
        keys.push(Arc::new(key));
    }
    if keys.len() < RING_KEYS { Err(TicketFileError::Few) } else { Ok(keys) }
}

impl TicketKeys {
    /// A new key of our own, which seals from `now` on (seconds since 1970).
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn own(now: u64) -> Result<TicketKeys, BadKey> {
        let key = Timed { key: Arc::new(TicketKey::random()?), since: now };
        Ok(TicketKeys::of(vec![key], true))
    }

    /// The keys of a file (see [`read_file`]).
    pub fn of_file(keys: Vec<Arc<TicketKey>>) -> TicketKeys {
        TicketKeys::of(as_of_file(keys), false)
    }

    fn of(keys: Vec<Timed>, is_own: bool) -> TicketKeys {
        let ring = ArcSwap::from_pointee(Ring { keys, is_own });
        TicketKeys { ring, changing: Mutex::default(), is_own }
    }

    pub(super) fn load(&self) -> Guard<Arc<Ring>> {
        self.ring.load()
    }

    /// When [`TicketKeys::rotate`] has to be called, in seconds since 1970; `None`: never, they are those of a file.
    pub fn due(&self) -> Option<u64> {
        let ring = self.load();
        ring.keys.last().filter(|_| self.is_own).map(|newest| newest.since.saturating_add(SEALS_FOR.as_secs()))
    }

    /// Has a new key seal from `now` on, if it is time for one; says whether it was. Those before go on opening.
    pub fn rotate(&self, now: u64) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.due().is_none_or(|due| now < due) {
            return false;
        }
        // Without random bytes the old key serves on.
        let Ok(key) = TicketKey::random() else { return false };
        self.append(Timed { key: Arc::new(key), since: now });
        true
    }

    /// `set ssl tls-key`: one more key, the oldest one goes.
    ///
    /// # Errors
    /// When it is not as long as the others.
    pub fn push(&self, key: TicketKey) -> Result<(), BadKey> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.load().keys.iter().any(|other| other.key.length() != key.length()) {
            return Err(BadKey::Length);
        }
        self.append(Timed { key: Arc::new(key), since: 0 });
        Ok(())
    }

    /// The keys of a file that was read again.
    pub fn replace(&self, keys: Vec<Arc<TicketKey>>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.ring.store(Arc::new(Ring { keys: as_of_file(keys), is_own: false }));
    }

    /// All keys, the oldest first: for another process.
    pub fn keep(&self) -> Vec<SavedTicketKey> {
        self.load().keys.iter().map(|timed| SavedTicketKey { key: timed.key.to_text(), since: timed.since }).collect()
    }

    /// Goes on with the keys of another process, at `now`. What is none is passed over; its newest key seals from now on, if it
    /// is not too old for that, and our own opens still.
    pub fn recall(&self, kept: &[SavedTicketKey], now: u64) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let timed = |kept: &SavedTicketKey| {
            let key = Arc::new(TicketKey::of_text(&kept.key).ok()?);
            // A time that is yet to come would put the next key off.
            Some(Timed { key, since: kept.since.min(now) })
        };
        let mut theirs: Vec<Timed> = kept.iter().filter_map(timed).collect();
        if theirs.is_empty() {
            return;
        }
        // Ours is older than theirs for this purpose: nobody has a ticket of it yet, or hardly anybody.
        let mut ours = self.load().keys.clone();
        ours.retain(|ours| theirs.iter().all(|theirs| theirs.key != ours.key));
        theirs.splice(0..0, ours);
        self.store(theirs);
    }

    /// What `show tls-keys ID` lists, the oldest first.
    pub fn shown(&self) -> Vec<Zeroizing<String>> {
        self.load().keys.iter().map(|timed| timed.key.to_text()).collect()
    }

    fn append(&self, key: Timed) {
        let mut keys = self.load().keys.clone();
        keys.push(key);
        self.store(keys);
    }

    fn store(&self, mut keys: Vec<Timed>) {
        let surplus = keys.len().saturating_sub(RING_KEYS);
        keys.drain(..surplus);
        self.ring.store(Arc::new(Ring { keys, is_own: self.is_own }));
    }
}

impl Ring {
    /// The key that seals: our newest, or the last but one of a file, whose last one other machines may not have yet.
    pub(super) fn sealing(&self) -> &TicketKey {
        let at = self.keys.len() - if self.is_own || self.keys.len() == 1 { 1 } else { 2 };
        &self.keys[at].key
    }

    pub(super) fn of_name(&self, name: &[u8]) -> Option<&TicketKey> {
        // The newest first: two keys of a file may have the same name.
        self.keys.iter().rev().map(|timed| &*timed.key).find(|key| key.name() == name)
    }
}

fn as_of_file(keys: Vec<Arc<TicketKey>>) -> Vec<Timed> {
    let surplus = keys.len().saturating_sub(RING_KEYS);
    keys.into_iter().skip(surplus).map(|key| Timed { key, since: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn files_are_judged_as_haproxy_judges_them() {
        let line = |byte: u8, length: usize| BASE64_STANDARD.encode(vec![byte; length]) + "\n";
        let (short, long) = (line(1, 48), line(2, 80));
        let check = |text: String, expect: &str| {
            let fault = read_file(text.as_bytes()).map(|keys| keys.len().to_string());
            assert_eq!(fault.unwrap_or_else(|fault| fault.to_string()), expect, "{text}");
        };
        check(long.repeat(3), "3");
        check(short.repeat(7), "3");
        check(long.repeat(3).trim_end().into(), "3");
        check(long.repeat(3).replace('\n', "\r\n"), "3");
        check(long.repeat(2), "please supply at least 3 keys in the tls-tickets-file");
        check(String::new(), "please supply at least 3 keys in the tls-tickets-file");
        check(format!("{long}{long}{short}"), "wrong sized key on line 3");
        check(line(1, 50).repeat(3), "wrong sized key on line 1");
        check(format!("{long}\n{long}{long}"), "wrong sized key on line 2");
        check("hello\n".into(), "unable to decode base64 key on line 1");
    }

    #[test]
    fn another_process_goes_on_with_the_keys() {
        let (giver, taker) = (TicketKeys::own(1_000).unwrap(), TicketKeys::own(9_000).unwrap());
        let kept = giver.keep();
        taker.recall(&kept, 9_000);
        assert_eq!(taker.load().sealing(), giver.load().sealing());
        assert_eq!(taker.due(), giver.due(), "a key does not seal longer by being handed on");
        assert_eq!(taker.shown().len(), 2);
        taker.recall(&kept, 9_000);
        assert_eq!(taker.shown().len(), 2, "it has them already");
        let from_the_future = vec![SavedTicketKey { since: u64::MAX, ..kept[0].clone() }];
        let third = TicketKeys::own(9_000).unwrap();
        third.recall(&from_the_future, 9_000);
        assert_eq!(third.due(), Some(9_000 + SEALS_FOR.as_secs()));
        let before = third.shown();
        third.recall(&[SavedTicketKey { key: Zeroizing::new("x".into()), since: 1 }], 9_000);
        third.recall(&[], 9_000);
        assert_eq!(third.shown(), before);
    }

    #[test]
    fn no_key_is_shown_by_debug() {
        let keys = TicketKeys::own(0).unwrap();
        let text = keys.shown()[0].clone();
        assert!(!format!("{keys:?}").contains(&text[..16]));
        assert!(!format!("{:?}", keys.keep()).contains(&text[..16]));
    }
}
