//! Sessions that clients may resume by what we remember of them (`tune.ssl.cachesize`, `tune.ssl.lifetime`): for clients
//! that take no tickets, and for binds that give none.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::StoresServerSessions;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use crate::resumable;

/// Room for sessions unless `tune.ssl.cachesize` says otherwise, in blocks of `BLOCK` bytes.
pub const SESSIONS: u32 = 20_000;
/// Seconds that a session lives unless `tune.ssl.lifetime` says otherwise.
pub const LIFETIME_S: u32 = 300;

/// Locks that the sessions are spread over, so that cores seldom wait for each other.
const SHARDS: usize = 16;
/// What `tune.ssl.cachesize` counts in (configuration manual): about a session in which no client showed a certificate. Bytes.
const BLOCK: usize = 200;
/// The longest session that is remembered, in bytes: one with a client's certificates.
const SESSION_MAX: usize = 16 * 1024;

/// The sessions of a process, over all of its configurations. Memory is taken as they come.
pub struct Sessions {
    shards: [Mutex<Shard>; SHARDS],
    /// How many blocks there may be in all.
    size: AtomicU32,
    lifetime_s: AtomicU32,
    clock: Arc<dyn TimeProvider>,
    lookups: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Shard {
    by_id: HashMap<Arc<[u8]>, StoredSession>,
    /// The oldest first; some of them may be gone, or be there twice.
    order: VecDeque<Arc<[u8]>>,
    /// Of the sessions in it.
    blocks: usize,
}

impl Shard {
    fn remove(&mut self, key: &[u8]) -> Option<StoredSession> {
        let session = self.by_id.remove(key)?;
        self.blocks -= session.blocks();
        Some(session)
    }
}

struct StoredSession {
    /// Seconds since 1970.
    until: u64,
    value: Vec<u8>,
}

impl StoredSession {
    fn blocks(&self) -> usize {
        blocks(&self.value)
    }
}

fn blocks(value: &[u8]) -> usize {
    value.len().div_ceil(BLOCK).max(1)
}

impl Default for Sessions {
    fn default() -> Self {
        Sessions::with_clock(Arc::new(DefaultTimeProvider))
    }
}

impl Sessions {
    fn with_clock(clock: Arc<dyn TimeProvider>) -> Sessions {
        Sessions {
            shards: Default::default(),
            size: AtomicU32::new(SESSIONS),
            lifetime_s: AtomicU32::new(LIFETIME_S),
            clock,
            lookups: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// How many blocks of `BLOCK` bytes sessions may take, and how many seconds each lives, from now on.
    pub fn limit(&self, size: u32, lifetime_s: u32) {
        self.size.store(size, Ordering::Relaxed);
        self.lifetime_s.store(lifetime_s, Ordering::Relaxed);
    }

    /// How many sessions are remembered.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).by_id.len()).sum()
    }

    /// How often a session was looked for, and how often there was none.
    pub fn lookups(&self) -> (u64, u64) {
        (self.lookups.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    fn looked_up<T>(&self, found: Option<T>) -> Option<T> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if found.is_none() {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn now(&self) -> u64 {
        self.clock.current_time().map_or(0, |time| time.as_secs())
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        // Ids of sessions are random: any byte of theirs is as good as a hash.
        let at = usize::from(key.last().copied().unwrap_or_default()) % SHARDS;
        lock(&self.shards[at])
    }

    fn put(&self, key: Arc<[u8]>, value: Vec<u8>) -> bool {
        let most = (self.size.load(Ordering::Relaxed) as usize).div_ceil(SHARDS);
        let wanted = blocks(&value);
        if wanted > most || value.len() > SESSION_MAX {
            return false;
        }
        let until = self.now() + u64::from(self.lifetime_s.load(Ordering::Relaxed));
        let mut shard = self.shard(&key);
        shard.remove(&key);
        while shard.order.len() >= most || shard.blocks + wanted > most {
            let Some(oldest) = shard.order.pop_front() else { break };
            shard.remove(&oldest);
        }
        shard.blocks += wanted;
        shard.by_id.insert(key.clone(), StoredSession { until, value });
        shard.order.push_back(key);
        true
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Sessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sessions").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// The sessions of those who check clients alike: what was resumed is not checked again.
#[derive(Debug)]
pub(crate) struct ScopedSessions {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) scope: Box<[u8]>,
}

impl ScopedSessions {
    fn key(&self, id: &[u8]) -> Arc<[u8]> {
        [&self.scope, id].concat().into()
    }

    /// Whether it may be resumed. Without a scope no client shows a certificate.
    fn holds(&self, session: &StoredSession, now: u64) -> bool {
        now <= session.until && (self.scope.is_empty() || resumable::holds(&session.value, now))
    }
}

impl StoresServerSessions for ScopedSessions {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(self.key(&id), value)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(id);
        let now = self.sessions.now();
        let shard = self.sessions.shard(&key);
        let found =
            shard.by_id.get(&key).filter(|session| self.holds(session, now)).map(|session| session.value.clone());
        drop(shard);
        self.sessions.looked_up(found)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(id);
        let now = self.sessions.now();
        let session = self.sessions.shard(&key).remove(&key);
        let found = session.filter(|session| self.holds(session, now)).map(|session| session.value);
        self.sessions.looked_up(found)
    }

    fn can_cache(&self) -> bool {
        self.sessions.size.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use rustls_pki_types::UnixTime;

    use super::*;

    /// A clock that stands still until it is moved.
    #[derive(Debug, Default)]
    struct Hands(AtomicU64);

    impl TimeProvider for Hands {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
        }
    }

    fn scoped(sessions: &Arc<Sessions>, scope: &[u8]) -> ScopedSessions {
        ScopedSessions { sessions: sessions.clone(), scope: scope.into() }
    }

    #[test]
    fn sessions_live_for_their_time_within_their_scope() {
        let clock = Arc::new(Hands::default());
        let sessions = Arc::new(Sessions::with_clock(clock.clone()));
        let (ours, others) = (scoped(&sessions, b""), scoped(&sessions, b"verify"));
        assert!(ours.can_cache() && ours.put(b"id".to_vec(), b"session".to_vec()));
        assert_eq!((ours.get(b"id"), others.get(b"id")), (Some(b"session".to_vec()), None));
        clock.0.store(u64::from(LIFETIME_S), Ordering::Relaxed);
        assert!(ours.get(b"id").is_some());
        clock.0.store(u64::from(LIFETIME_S) + 1, Ordering::Relaxed);
        assert_eq!((ours.get(b"id"), ours.take(b"id"), sessions.count()), (None, None, 0));
        assert_eq!(sessions.lookups(), (5, 3));
    }

    #[test]
    fn what_is_taken_is_gone_and_the_oldest_makes_room() {
        let sessions = Arc::new(Sessions::with_clock(Arc::new(Hands::default())));
        sessions.limit(64, 60);
        let ours = scoped(&sessions, b"");
        for id in 0..1000_u32 {
            assert!(ours.put(id.to_be_bytes().to_vec(), vec![1]));
        }
        assert_eq!(sessions.count(), 64);
        assert!(ours.get(&999_u32.to_be_bytes()).is_some() && ours.get(&0_u32.to_be_bytes()).is_none());
        assert!(ours.take(&999_u32.to_be_bytes()).is_some() && ours.take(&999_u32.to_be_bytes()).is_none());
        assert!(!ours.put(b"long".to_vec(), vec![0; SESSION_MAX + 1]));
        sessions.limit(16 * 10, 60);
        let session = |length: usize| vec![0; length];
        for id in 0..1000_u32 {
            assert!(ours.put(id.to_be_bytes().to_vec(), session(3 * BLOCK)));
        }
        assert_eq!(sessions.count(), 16 * 3, "of three blocks each, in ten");
        assert!(ours.put(b"0".to_vec(), session(10 * BLOCK)) && !ours.put(b"0".to_vec(), session(10 * BLOCK + 1)));
        for _ in 0..100 {
            assert!(ours.put(b"0".to_vec(), session(BLOCK)) && ours.take(b"0").is_some());
        }
        assert_eq!(sessions.count(), 15 * 3, "nothing is left of what was taken");
        sessions.limit(0, 60);
        assert!(!ours.can_cache() && !ours.put(b"id".to_vec(), vec![1]));
    }
}
