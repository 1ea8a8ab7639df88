//! Who waits, in which order, and since when. No I/O: packets come and go by their numbers.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton_kernel::nfqueue::Syn;

use crate::hold::method::Delay;

/// Delays that are kept for their median; of more, only the longest counts.
const DELAYS_MAX: usize = 1 << 20;

/// Both ends of a connection that is to be.
type ConnectionAddresses = (SocketAddr, SocketAddr);

/// The packets that wait for the end of the command.
#[derive(Debug)]
pub(super) struct HeldPackets {
    /// So many at most.
    limit: usize,
    /// By their numbers, which rise.
    waiting: BTreeMap<u32, Waiting>,
    clients: HashMap<ConnectionAddresses, u32>,
    tally: Tally,
}

#[derive(Debug)]
struct Waiting {
    ends: ConnectionAddresses,
    sequence: u32,
    since: Instant,
}

/// What became of packets so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// How long each connection waited that was let go.
    pub delays: Vec<Duration>,
    /// Of all of them.
    pub longest: Duration,
    /// Connections let go.
    pub released: u64,
    /// Connections that passed because so many waited already.
    pub over_limit: u64,
    /// Packets that were sent again while the first one waited, and dropped.
    pub repeated: u64,
}

/// What to do with a packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It waits.
    Wait,
    /// It passes at once.
    Pass,
    /// It is dropped: the same one waits already.
    Drop,
    /// It waits, and this older one of the same client, which has given that one up, is dropped.
    Replace(u32),
}

impl HeldPackets {
    pub fn new(limit: usize) -> HeldPackets {
        HeldPackets { limit, waiting: BTreeMap::new(), clients: HashMap::new(), tally: Tally::default() }
    }

    /// A packet has come; `None` for one that is not the first of a connection.
    pub fn arrive(&mut self, id: u32, syn: Option<Syn>, now: Instant) -> Arrival {
        let Some(syn) = syn else { return Arrival::Pass };
        let ends = (syn.from, syn.to);
        let arrival = match self.clients.get(&ends).and_then(|id| Some((*id, self.waiting.get(id)?))) {
            Some((_, older)) if older.sequence == syn.sequence => {
                self.tally.repeated += 1;
                return Arrival::Drop;
            }
            Some((older, _)) => {
                self.waiting.remove(&older);
                Arrival::Replace(older)
            }
            None if self.waiting.len() >= self.limit => {
                self.tally.over_limit += 1;
                return Arrival::Pass;
            }
            None => Arrival::Wait,
        };
        self.clients.insert(ends, id);
        self.waiting.insert(id, Waiting { ends, sequence: syn.sequence, since: now });
        arrival
    }

    /// So many of those who came first leave; the number of the last of them.
    pub fn release(&mut self, most: usize, now: Instant) -> Option<u32> {
        let mut last = None;
        for _ in 0..most {
            let Some((id, gone)) = self.waiting.pop_first() else { break };
            self.clients.remove(&gone.ends);
            let delay = now.saturating_duration_since(gone.since);
            self.tally.released += 1;
            self.tally.longest = self.tally.longest.max(delay);
            if self.tally.delays.len() < DELAYS_MAX {
                self.tally.delays.push(delay);
            }
            last = Some(id);
        }
        last
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn tally(self) -> Tally {
        self.tally
    }
}

impl Tally {
    /// What waiting added; `None` if nobody waited.
    pub fn delay(&mut self) -> Option<Delay> {
        self.delays.sort_unstable();
        let median = *self.delays.get(self.delays.len().checked_sub(1)? / 2)?;
        Some(Delay { median: Some(median), longest: self.longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(port: u16, sequence: u32) -> Option<Syn> {
        Some(Syn { from: SocketAddr::from(([10, 0, 0, 1], port)), to: "10.0.0.2:80".parse().unwrap(), sequence })
    }

    #[test]
    fn they_leave_in_the_order_in_which_they_came() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut room = HeldPackets::new(10);
        for (id, port) in [(1, 1), (2, 2), (5, 3)] {
            assert_eq!(room.arrive(id, syn(port, 0), at(u64::from(id))), Arrival::Wait);
        }
        assert_eq!(room.release(2, at(10)), Some(2));
        assert!(!room.is_empty());
        assert_eq!(room.release(2, at(10)), Some(5));
        assert_eq!(room.release(2, at(10)), None);
        assert!(room.is_empty());
        let mut tally = room.tally();
        let ms = Duration::from_millis;
        assert_eq!(tally.delays, [ms(9), ms(8), ms(5)]);
        assert_eq!(tally.delay(), Some(Delay { median: Some(ms(8)), longest: ms(9) }));
        assert_eq!(Tally::default().delay(), None);
    }

    #[test]
    fn the_same_packet_waits_once() {
        let now = Instant::now();
        let mut room = HeldPackets::new(10);
        assert_eq!(room.arrive(1, syn(1, 7), now), Arrival::Wait);
        assert_eq!(room.arrive(2, syn(1, 7), now), Arrival::Drop);
        assert_eq!(room.arrive(3, syn(1, 8), now), Arrival::Replace(1));
        assert_eq!(room.arrive(4, syn(1, 8), now), Arrival::Drop);
        assert_eq!(room.release(10, now), Some(3));
        assert_eq!(room.arrive(5, syn(1, 8), now), Arrival::Wait);
        let tally = room.tally();
        assert_eq!((tally.released, tally.repeated), (1, 2));
    }

    #[test]
    fn above_the_limit_they_pass() {
        let now = Instant::now();
        let mut room = HeldPackets::new(1);
        assert_eq!(room.arrive(1, syn(1, 0), now), Arrival::Wait);
        assert_eq!(room.arrive(2, syn(2, 0), now), Arrival::Pass);
        assert_eq!(room.arrive(3, syn(1, 9), now), Arrival::Replace(1));
        assert_eq!(room.arrive(4, None, now), Arrival::Pass);
        assert_eq!(room.release(1, now), Some(3));
        assert_eq!(room.tally().over_limit, 1);
    }
}
