//! `balance leastconn`.

use std::collections::BTreeMap;

use super::group::Choice;

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

/// Loads are compared as `load * SCALE / weight`; more than the largest weight, so that no difference gets lost.
const SCALE: u64 = 1 << 20;

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
            let load = u64::from(place.load) * SCALE / u64::from(place.weight.max(1));
            place.key = (load, kept.key.1);
            if place.weight > 0 {
                self.order.insert(place.key, server);
            }
        }
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
            place.key = (u64::from(place.load) * SCALE / u64::from(place.weight), self.arrivals);
            self.order.insert(place.key, server);
        } else {
            place.key = (u64::MAX, 0);
        }
    }
}
