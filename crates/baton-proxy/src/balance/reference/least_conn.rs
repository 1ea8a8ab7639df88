//! `leastconn` on a sorted map.

use std::collections::BTreeMap;

use super::super::group::Choice;
use super::super::memory::Turns;

/// Servers ordered by load for their weight; those of the same load in the order in which they came to it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastConn {
    servers: Vec<Place>,
    order: BTreeMap<(u64, u64), usize>,
    arrivals: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    weight: u32,
    load: u32,
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
        if self.servers.len() <= server {
            self.servers.resize(server + 1, Place::default());
        }
        let place = &mut self.servers[server];
        place.load = load;
        place.weight = weight;
        self.place(server);
    }

    pub(super) fn set_load(&mut self, server: usize, load: u32) {
        let Some(place) = self.servers.get_mut(server) else { return };
        place.load = load;
        self.place(server);
    }

    /// Takes over the order of arrival.
    pub(super) fn inherit(&mut self, before: &LeastConn, old: &[Option<usize>]) {
        self.arrivals = before.arrivals;
        self.order.clear();
        for (server, place) in self.servers.iter_mut().enumerate() {
            let Some(kept) = old.get(server).copied().flatten().and_then(|old| before.servers.get(old)) else {
                self.arrivals += 1;
                place.key = (0, self.arrivals);
                if place.weight > 0 {
                    self.order.insert(place.key, server);
                }
                continue;
            };
            place.load = kept.load;
            place.key = (rank(place.load, place.weight), kept.key.1);
            if place.weight > 0 {
                self.order.insert(place.key, server);
            }
        }
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

    pub(super) fn next(&self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let mut free = self.order.values().copied().filter(|server| !full(*server));
        match free.next() {
            None if self.order.is_empty() => Choice::None,
            None => Choice::Full,
            Some(server) if Some(server) == avoid => Choice::Server(free.next().unwrap_or(server)),
            Some(server) => Choice::Server(server),
        }
    }

    fn place(&mut self, server: usize) {
        let place = &mut self.servers[server];
        self.order.remove(&place.key);
        if place.weight > 0 {
            self.arrivals += 1;
            place.key = (rank(place.load, place.weight), self.arrivals);
            self.order.insert(place.key, server);
        } else {
            place.key = (u64::MAX, 0);
        }
    }
}
