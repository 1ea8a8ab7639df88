//! How many connections came from another process or went there, how many stay, and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sums::{ProcessSum, ProcessSums};

/// Why a connection stays with the process that hands over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StayReason {
    /// It is encrypted, and has broken off, or the other process does not take such ones.
    Tls,
    /// It speaks HTTP/2.
    Http2,
    /// Rules have left variables in its session, or settings for its first request.
    Variables,
    /// Its session tracks entries of stick tables.
    Tracked,
    /// A connection to a server is its own, because it is authenticated.
    OwnServer,
    /// Its frontend is no longer in the configuration.
    Removed,
    /// The other process has no such frontend or address.
    NoListener,
    /// The other process has no such backend or server.
    NoServer,
    /// Others wait for a slot of its server, which they would get twice.
    Queue,
    /// A request in flight waits for something that does not move, or bytes for a receiver that does not take them.
    InFlight,
    /// The other process has no room for it.
    Full,
    /// The other process does not understand its description.
    Unknown,
    /// The other process did not reply in time, or is gone.
    NoReply,
    /// There is no descriptor for it.
    Descriptors,
}

impl StayReason {
    /// All of them, with what they are called.
    pub const ALL: [(StayReason, &str); 14] = [
        (StayReason::Tls, "tls"),
        (StayReason::Http2, "http2"),
        (StayReason::Variables, "variables"),
        (StayReason::Tracked, "stick-counters"),
        (StayReason::OwnServer, "server-connection"),
        (StayReason::Removed, "frontend-removed"),
        (StayReason::NoListener, "no-listener"),
        (StayReason::NoServer, "no-server"),
        (StayReason::Queue, "queue"),
        (StayReason::InFlight, "in-flight"),
        (StayReason::Full, "full"),
        (StayReason::Unknown, "unknown"),
        (StayReason::NoReply, "no-reply"),
        (StayReason::Descriptors, "descriptors"),
    ];

    /// What it is called between processes, and in figures.
    pub fn word(self) -> &'static str {
        StayReason::ALL.iter().find(|(reason, _)| *reason == self).map_or("", |(_, word)| word)
    }

    /// The reason that is called so; what is unknown here is [`Unknown`](StayReason::Unknown).
    pub fn of_word(word: &str) -> StayReason {
        StayReason::ALL.iter().find(|(_, other)| *other == word).map_or(StayReason::Unknown, |(reason, _)| *reason)
    }
}

/// What moves, and in which direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum MoveCount {
    /// Connections of clients that came.
    ClientsIn,
    /// Those that went.
    ClientsOut,
    /// Idle connections to servers that came.
    ServersIn,
    /// Those that went.
    ServersOut,
}

impl MoveCount {
    /// Where it is counted for the processes to come, too.
    fn sum(self) -> ProcessSum {
        match self {
            MoveCount::ClientsIn => ProcessSum::MovedIn,
            MoveCount::ClientsOut => ProcessSum::MovedOut,
            MoveCount::ServersIn => ProcessSum::ServersMovedIn,
            MoveCount::ServersOut => ProcessSum::ServersMovedOut,
        }
    }
}

/// How many connections came from processes before this one, went to the one after it, or stay.
#[derive(Debug)]
pub struct MoveFigures {
    /// Of this process, at the place of [`MoveCount`].
    moved: [AtomicU64; 4],
    /// Of this process and those before it.
    sums: Arc<ProcessSums>,
    /// Of those that are open: stay, for the reason at this place of [`StayReason::ALL`].
    staying: [AtomicU64; StayReason::ALL.len()],
}

impl MoveFigures {
    /// Nothing has moved yet; what does is added to `sums` as well.
    pub(crate) fn new(sums: Arc<ProcessSums>) -> MoveFigures {
        MoveFigures { moved: Default::default(), sums, staying: Default::default() }
    }

    /// Counts so many; gives how many there were before in this process.
    pub fn count(&self, moved: MoveCount, count: usize) -> u64 {
        self.sums.add(moved.sum(), count as u64);
        self.moved[moved as usize].fetch_add(count as u64, Ordering::Relaxed)
    }

    /// How many moved in the time of this process.
    pub fn of_process(&self, moved: MoveCount) -> u64 {
        self.moved[moved as usize].load(Ordering::Relaxed)
    }

    /// How many moved in the time of this process and of those before it.
    pub fn total(&self, moved: MoveCount) -> u64 {
        self.sums.get(moved.sum())
    }

    fn staying_for(&self, reason: StayReason) -> &AtomicU64 {
        let at = StayReason::ALL.iter().position(|(other, _)| *other == reason);
        &self.staying[at.unwrap_or_default()]
    }

    /// One more connection stays.
    pub(crate) fn stays(&self, reason: StayReason) {
        self.staying_for(reason).fetch_add(1, Ordering::Relaxed);
    }

    /// One that stayed has ended.
    pub(crate) fn ended(&self, reason: StayReason) {
        self.staying_for(reason).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many stay, by reason; those of which there are any.
    pub fn staying(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count =
            |(&(_, word), count): (&(StayReason, &'static str), &AtomicU64)| (word, count.load(Ordering::Relaxed));
        StayReason::ALL.iter().zip(&self.staying).map(count).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use baton_kernel::cells::CellMemory;

    use super::*;

    #[test]
    fn every_reason_has_a_word_and_a_count_of_its_own() {
        let figures = MoveFigures::new(Arc::new(ProcessSums::new(&Arc::new(CellMemory::private()), "")));
        for (at, (reason, word)) in StayReason::ALL.into_iter().enumerate() {
            assert_eq!((reason.word(), StayReason::of_word(word)), (word, reason));
            (0..=at).for_each(|_| figures.stays(reason));
        }
        figures.ended(StayReason::Tls);
        let staying: Vec<_> = figures.staying().map(|(word, count)| (word, count as usize)).collect();
        let expected: Vec<_> = StayReason::ALL.iter().enumerate().map(|(at, (_, word))| (*word, at + 1)).collect();
        assert_eq!(staying, expected[1..]);
        assert_eq!(StayReason::of_word("later"), StayReason::Unknown);
    }

    #[test]
    fn what_moved_is_counted_for_the_processes_to_come() {
        let sums = Arc::new(ProcessSums::new(&Arc::new(CellMemory::private()), ""));
        sums.add(ProcessSum::MovedOut, 10);
        let figures = MoveFigures::new(sums);
        let all = [MoveCount::ClientsIn, MoveCount::ClientsOut, MoveCount::ServersIn, MoveCount::ServersOut];
        for (at, moved) in all.into_iter().enumerate() {
            assert_eq!(figures.count(moved, at + 1), 0);
        }
        assert_eq!(figures.count(MoveCount::ServersOut, 1), 4);
        assert_eq!(all.map(|moved| figures.of_process(moved)), [1, 2, 3, 5]);
        assert_eq!(all.map(|moved| figures.total(moved)), [1, 12, 3, 5]);
    }
}
