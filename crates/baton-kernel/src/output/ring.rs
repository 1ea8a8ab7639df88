//! Buffers of log lines in memory (`ring` sections). A line always fits: it takes the place of the oldest ones, and writing it waits for
//! nobody. Who follows a ring to send its lines on is owed each of them once; lines that were overwritten before are counted as lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::losses::Losses;

/// The size of a ring that no section describes, in bytes.
const SIZE: usize = 1 << 20;
/// What a line takes besides its bytes.
const LINE_BYTES: usize = 32;

/// A ring.
#[derive(Debug)]
pub struct Ring {
    name: String,
    state: Mutex<RingState>,
    news: Notify,
}

#[derive(Debug)]
struct RingState {
    description: String,
    /// Lines that followers were owed and never got.
    lost: u64,
    lines: VecDeque<Box<[u8]>>,
    /// What they take.
    bytes: usize,
    /// What they may take.
    size: usize,
    /// The number of the first line that is kept; lines are counted from 0.
    first: u64,
    followers: Vec<FollowerState>,
    /// The number of the next follower.
    next_follower: u64,
}

#[derive(Debug)]
struct FollowerState {
    id: u64,
    /// The number of the line that it is owed next.
    next: u64,
    losses: Arc<Losses>,
}

/// Rings by name. Whoever writes to one or reads it keeps it.
static ALL: Mutex<Vec<Weak<Ring>>> = Mutex::new(Vec::new());

/// The ring of this name.
pub fn of(name: &str) -> Arc<Ring> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|ring| ring.name == name) {
        return known;
    }
    all.retain(|ring| ring.strong_count() > 0);
    let state = RingState {
        description: name.to_owned(),
        lost: 0,
        lines: VecDeque::new(),
        bytes: 0,
        size: SIZE,
        first: 0,
        followers: Vec::new(),
        next_follower: 0,
    };
    let new = Arc::new(Ring { name: name.to_owned(), state: Mutex::new(state), news: Notify::new() });
    all.push(Arc::downgrade(&new));
    new
}

/// All rings that somebody writes to or reads.
pub fn all() -> Vec<Arc<Ring>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
}

impl Ring {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a line, without its end.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        state.bytes += line.len() + LINE_BYTES;
        state.lines.push_back(line.into());
        state.shorten();
        drop(state);
        self.news.notify_waiters();
    }

    /// Says what it is for, and how many bytes its lines may take.
    pub fn describe(&self, description: &str, size: usize) {
        let mut state = self.lock();
        description.clone_into(&mut state.description);
        state.size = size;
        state.shorten();
    }

    /// Follows it from the first line that is kept; lines that are overwritten before they were [taken](RingFollower::take) are added to
    /// `losses`.
    pub fn follow(self: &Arc<Self>, losses: Arc<Losses>) -> RingFollower {
        let mut state = self.lock();
        let id = state.next_follower;
        state.next_follower += 1;
        let next = state.first;
        state.followers.push(FollowerState { id, next, losses: losses.clone() });
        RingFollower { ring: self.clone(), id, losses }
    }

    /// Reads it, from the first line that is kept or, `is_new`, from the next one that comes.
    pub fn read(self: &Arc<Self>, is_new: bool) -> RingReader {
        let state = self.lock();
        let next = if is_new { state.end() } else { state.first };
        drop(state);
        RingReader { ring: self.clone(), next }
    }

    /// What it is for, and how many lines its followers were owed and never got.
    pub fn about(&self) -> (String, u64) {
        let state = self.lock();
        (state.description.clone(), state.lost)
    }

    /// Whether every follower has taken all lines.
    pub fn is_taken(&self) -> bool {
        let state = self.lock();
        state.followers.iter().all(|follower| follower.next >= state.end())
    }

    /// Ready when a line came after the number.
    async fn news(&self, next: u64) {
        loop {
            let news = self.news.notified();
            if self.lock().end() > next {
                return;
            }
            news.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RingState {
    /// The number of the line that comes next.
    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// Drops the oldest lines until the others fit. The newest stays.
    fn shorten(&mut self) {
        while self.bytes > self.size && self.lines.len() > 1 {
            if let Some(oldest) = self.lines.pop_front() {
                self.bytes -= oldest.len() + LINE_BYTES;
                self.first += 1;
            }
            for follower in self.followers.iter_mut().filter(|follower| follower.next < self.first) {
                follower.next = self.first;
                follower.losses.add(1, None);
                self.lost += 1;
            }
        }
    }

    /// Lines from a number on, up to so many bytes, but at least one.
    fn from(&self, next: u64, bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        let skipped = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut taken = 0;
        let fits = move |line: &&[u8]| {
            let is_first = taken == 0;
            taken += line.len();
            is_first || taken <= bytes_max
        };
        self.lines.iter().skip(skipped).map(AsRef::as_ref).take_while(fits)
    }
}

/// One who sends the lines on. Dropping it ends that.
#[derive(Debug)]
pub struct RingFollower {
    ring: Arc<Ring>,
    id: u64,
    losses: Arc<Losses>,
}

impl RingFollower {
    /// The next lines, up to so many bytes, but at least one if there is any. They are owed no more.
    pub fn take(&self, bytes_max: usize, each: impl FnMut(&[u8])) {
        let mut state = self.ring.lock();
        let Some(at) = state.followers.iter().position(|follower| follower.id == self.id) else { return };
        let next = state.followers[at].next;
        let count = state.from(next, bytes_max).map(each).count();
        state.followers[at].next = next + count as u64;
    }

    /// Ready when there is something to take.
    pub async fn news(&self) {
        self.ring.news(self.next()).await;
    }

    fn next(&self) -> u64 {
        let state = self.ring.lock();
        state.followers.iter().find(|follower| follower.id == self.id).map_or(0, |follower| follower.next)
    }

    /// Where lines that it was owed and never got are counted.
    pub fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }
}

impl Drop for RingFollower {
    fn drop(&mut self) {
        self.ring.lock().followers.retain(|follower| follower.id != self.id);
    }
}

/// One who reads the lines, as long as they are there.
#[derive(Debug)]
pub struct RingReader {
    ring: Arc<Ring>,
    next: u64,
}

impl RingReader {
    /// The next lines, up to so many bytes, but at least one if there is any. Lines that were overwritten meanwhile are left out.
    pub fn next_lines(&mut self, bytes_max: usize, each: impl FnMut(&[u8])) {
        let state = self.ring.lock();
        let next = self.next.max(state.first);
        let count = state.from(next, bytes_max).map(each).count();
        self.next = next + count as u64;
    }

    /// Ready when there is something to read.
    pub async fn news(&self) {
        self.ring.news(self.next).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::losses;

    fn texts(mut take: impl FnMut(&mut dyn FnMut(&[u8]))) -> String {
        let mut out = Vec::new();
        take(&mut |line| out.push(String::from_utf8_lossy(line).into_owned()));
        out.join(" ")
    }

    #[test]
    fn the_oldest_lines_make_room_and_are_counted_for_those_who_were_owed_them() {
        let ring = of("test: full");
        ring.describe("a ring", 3 * (LINE_BYTES + 1));
        assert!(Arc::ptr_eq(&ring, &of("test: full")));
        let (fast, slow) = (ring.follow(losses::of("test: fast")), ring.follow(losses::of("test: slow")));
        let mut reader = ring.read(false);
        let mut new = ring.read(true);
        for line in ["a", "b", "c"] {
            ring.push(line.as_bytes());
            assert_eq!(texts(|each| fast.take(100, each)), line);
        }
        assert!(!ring.is_taken());
        assert_eq!(texts(|each| slow.take(1, each)), "a");
        ring.push(b"d");
        ring.push(b"e");
        assert_eq!((fast.losses().lost(), slow.losses().lost()), (0, 1), "b was overwritten");
        assert_eq!(ring.about(), ("a ring".to_owned(), 1));
        assert_eq!(texts(|each| slow.take(100, each)), "c d e");
        assert_eq!(texts(|each| fast.take(100, each)), "d e");
        assert!(ring.is_taken());
        assert_eq!(texts(|each| reader.next_lines(2, each)), "c d");
        assert_eq!(texts(|each| new.next_lines(100, each)), "c d e");
        assert_eq!(texts(|each| new.next_lines(100, each)), "");
        // One that is longer than the ring stays until the next one.
        ring.push(&[b'x'; 500]);
        assert_eq!(texts(|each| reader.next_lines(9, each)).len(), 500);
        drop((fast, slow));
        ring.push(b"f");
        assert!(ring.is_taken());
    }

    #[tokio::test]
    async fn news_are_not_missed() {
        let ring = of("test: news");
        let follower = ring.follow(losses::of("test: news"));
        ring.push(b"before");
        follower.news().await;
        follower.take(100, |_| {});
        let pusher = ring.clone();
        let (push, ()) = tokio::join!(tokio::spawn(async move { pusher.push(b"after") }), follower.news());
        push.unwrap();
        assert_eq!(texts(|each| follower.take(100, each)), "after");
    }
}
