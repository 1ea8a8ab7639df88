//! `balance leastconn`.

use std::sync::Arc;

use super::group::{Choice, Member};
use super::heap::Heap;
use super::memory::{Turn, Turns};

/// Servers ordered by load for their weight; those of the same load in the order in which they came to it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastConn {
    servers: Vec<LeastConnEntry>,
    /// Those that take part and are not known to be full.
    order: Heap<(u64, u64)>,
    arrivals: u64,
    /// How many have a weight.
    usable: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct LeastConnEntry {
    weight: u32,
    load: u32,
    /// It is known to have no free slot.
    full: bool,
    key: (u64, u64),
}

/// The largest effective weight: loads are compared in whole units of `SCALE / weight`, as HAProxy does, so that nearly
/// equal weights count as equal.
const SCALE: u64 = 4096;

/// How a load ranks. A busy server counts as if the next session were on it already; idle ones are equal whatever their
/// weight. Both is HAProxy's order, found by looking at it.
fn rank(load: u32, weight: u32) -> u64 {
    if load == 0 { 0 } else { (u64::from(load) + 1) * SCALE / u64::from(weight.max(1)) }
}

impl LeastConn {
    pub(super) fn set_weight(&mut self, server: usize, weight: u32, load: u32) {
        self.make_room(server);
        let place = &mut self.servers[server];
        self.usable = self.usable - usize::from(place.weight > 0) + usize::from(weight > 0);
        place.load = load;
        place.weight = weight;
        self.place(server);
    }

    pub(super) fn set_load(&mut self, server: usize, load: u32) {
        let Some(place) = self.servers.get_mut(server) else { return };
        place.load = load;
        self.place(server);
    }

    /// Whether the server is known to be full: it keeps its rank, and nobody looks at it meanwhile.
    pub(super) fn set_full(&mut self, server: usize, full: bool) {
        self.make_room(server);
        self.servers[server].full = full;
        self.stand(server);
    }

    fn make_room(&mut self, server: usize) {
        if self.servers.len() <= server {
            self.servers.resize(server + 1, LeastConnEntry::default());
        }
    }

    /// After a reload: who arrives from now on comes after those who did before.
    pub(super) fn inherit(&mut self, before: &LeastConn) {
        self.arrivals = before.arrivals;
    }

    /// After a reload: these servers, in the order of the configuration, come to the load that they have.
    pub(super) fn arrive<'a>(&mut self, members: impl Iterator<Item = (usize, &'a Member)>) {
        for (server, member) in members {
            let Some(place) = self.servers.get_mut(server) else { continue };
            place.load = member.load;
            place.key = (u64::MAX, 0);
            if place.weight > 0 {
                self.arrivals += 1;
                place.key = (rank(place.load, place.weight), self.arrivals);
            }
        }
        let standing = self.servers.iter().enumerate().filter(|(_, place)| place.weight > 0 && !place.full);
        self.order.fill(standing.map(|(server, place)| (server, place.key)));
    }

    /// The order of arrival, to be remembered.
    pub(super) fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> Turns {
        if self.servers.iter().map(|place| place.key.1).is_sorted() {
            // As they stand in the configuration: as at the start.
            return Turns::default();
        }
        let place = |(server, place): (usize, &LeastConnEntry)| {
            Some((name(server)?, Turn { weight: place.weight.into(), placed: place.key.1, ..Turn::default() }))
        };
        Turns { position: self.arrivals, places: self.servers.iter().enumerate().filter_map(place).collect() }
    }

    /// Goes on in that order, with the loads there are now.
    pub(super) fn recall(&mut self, turns: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        let mut order: Vec<(u64, usize)> = Vec::new();
        for (name, turn) in &turns.places {
            let server = index(name).filter(|server| self.servers.get(*server).is_some_and(|place| place.weight > 0));
            order.extend(server.map(|server| (turn.placed, server)));
        }
        order.sort_unstable();
        order.into_iter().for_each(|(_, server)| self.place(server));
    }

    /// The least loaded one that is not `full`; `avoid` only when there is no other.
    pub(super) fn next(&self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let best = self.order.first(|server| Some(server) != avoid && !full(server)).map(|(_, server)| server);
        let is_free =
            |server: &usize| self.servers.get(*server).is_some_and(|place| place.weight > 0) && !full(*server);
        match best.or_else(|| avoid.filter(is_free)) {
            Some(server) => Choice::Server(server),
            None if self.usable == 0 => Choice::None,
            None => Choice::Full,
        }
    }

    /// A new rank, as the last who came to it.
    fn place(&mut self, server: usize) {
        let place = &mut self.servers[server];
        if place.weight > 0 {
            self.arrivals += 1;
            place.key = (rank(place.load, place.weight), self.arrivals);
        } else {
            place.key = (u64::MAX, 0);
        }
        self.stand(server);
    }

    fn stand(&mut self, server: usize) {
        let place = &self.servers[server];
        if place.weight > 0 && !place.full {
            self.order.set(server, place.key);
        } else {
            self.order.remove(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_weights(weights: &[u32]) -> LeastConn {
        let mut core = LeastConn::default();
        weights.iter().enumerate().for_each(|(server, weight)| core.set_weight(server, weight * 16, 0));
        core
    }

    /// `count` sessions; held ones stay open, the others end before the next one starts.
    fn turns(core: &mut LeastConn, count: usize, hold: bool) -> String {
        let turn = |_| {
            let Choice::Server(server) = core.next(None, |_| false) else { return "-".to_string() };
            let load = core.servers[server].load;
            core.set_load(server, load + 1);
            if !hold {
                core.set_load(server, load);
            }
            (server + 1).to_string()
        };
        (0..count).map(turn).collect()
    }

    /// What HAProxy 2.6 did: sessions one after the other, then sessions that stay.
    fn check(weights: &[u32], single: &str, held: &str) {
        let mut core = with_weights(weights);
        assert_eq!(turns(&mut core, single.len(), false), single, "{weights:?}");
        assert_eq!(turns(&mut core, held.len(), true), held, "{weights:?} held");
    }

    #[test]
    fn the_order_is_haproxys() {
        check(&[1, 1], "1212", "12121212");
        check(&[1, 2], "1212", "122212212212");
        check(&[1, 2, 3], "123123", "1233233231233231");
        check(&[3, 2, 1], "123123", "1231211213211213");
        check(&[5, 1, 1], "123123", "1231111111123111");
        check(&[7, 3, 5, 1], "12341234", "1234131132131231");
        check(&[99, 100], "", "121212");
        check(&[10, 11], "", "122121212");
    }

    #[test]
    fn another_process_goes_on_in_the_same_order() {
        let name = |server: usize| Some(Arc::from(["a", "b", "c"][server]));
        let mut before = with_weights(&[1, 1, 1]);
        assert_eq!(turns(&mut before, 4, false), "1231");
        let mut after = with_weights(&[1, 1, 1]);
        after.recall(&before.turns(&name), &|name| ["a", "b", "c"].iter().position(|other| *other == name));
        assert_eq!(turns(&mut after, 6, false), "231231");
    }

    #[test]
    fn full_and_avoided_ones_are_passed_over() {
        let core = with_weights(&[1, 1]);
        assert_eq!(core.next(Some(0), |_| false), Choice::Server(1));
        assert_eq!(core.next(None, |server| server == 0), Choice::Server(1));
        assert_eq!(core.next(Some(1), |server| server == 0), Choice::Server(1));
        assert_eq!(core.next(None, |_| true), Choice::Full);
        assert_eq!(LeastConn::default().next(None, |_| false), Choice::None);
    }
}
