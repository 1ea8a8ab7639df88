//! A static table of servers, each as often as its weight: `static-rr`, and `hash-type map-based`.
//!
//! The table's order is HAProxy's, checked against 38,400 recorded choices of HAProxy 2.6.12 under `static-rr` with 160 sets of
//! weights and 8,640 under `hash-type map-based` (`tests/choices.rs`): each place goes to the server that collected the most
//! credit, where each server is credited its weight per place and a place costs the total; credit is compared in whole
//! totals only, and the first server of the configuration wins a tie.
//!
//! The table depends on all weights together. So it is laid anew beside the one in use when a server goes up or down, without the
//! backend's lock; until it is there, places of a server that went down are passed over.

use std::sync::Arc;

use super::bits::Bits;
use super::group::{Choice, Member, WEIGHT_SCALE};
use super::positions::Positions;

/// The table, and the place that round robin has reached in it.
#[derive(Debug, Default)]
pub(super) struct Map {
    table: Arc<Table>,
    next: usize,
    /// Usable servers that are not known to be full.
    free: Bits,
    usable: usize,
    /// Counted up whenever a server goes up or down; and for which edition the table was laid.
    edition: u64,
    laid_for: u64,
}

/// A table that does not change any more.
#[derive(Debug, Default)]
pub(super) struct Table {
    owners: Vec<u32>,
    places: Positions,
    /// What it was laid for: a weight for each server, 0 for one that takes no part.
    weights: Vec<u32>,
}

impl Table {
    /// Lays a table for these weights, in [`WEIGHT_SCALE`]ths, in the order of the configuration.
    pub(super) fn lay(weights: Vec<u32>) -> Table {
        let owners = order(weights.iter().map(|weight| u64::from(weight.div_ceil(WEIGHT_SCALE))).collect());
        let places = Positions::new(weights.len(), owners.iter().copied());
        Table { owners, places, weights }
    }

    /// Whether it was laid for these weights.
    pub(super) fn is_for(&self, weights: &[u32]) -> bool {
        self.weights == weights
    }
}

/// Who owns each place. Credit in whole totals is the number of places a server earned so far less those it got; it earns
/// its `n`-th when `n` totals of credit have come together, and the place goes to the first of those who have the most.
fn order(mut weights: Vec<u64>) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |divisor, weight| common_divisor(divisor, *weight)).max(1);
    weights.iter_mut().for_each(|weight| *weight /= divisor);
    let total: u64 = weights.iter().sum();
    // Who earns a place at which step, steps counted from 0.
    let earned = |server: usize| {
        let weight = weights[server];
        (1..=weight).map(move |number| ((number * total).div_ceil(weight) - 1) as usize)
    };
    let mut begin = vec![0u32; total as usize + 1];
    (0..weights.len()).flat_map(earned).for_each(|step| begin[step + 1] += 1);
    for step in 0..total as usize {
        begin[step + 1] += begin[step];
    }
    let mut earners = vec![0u32; total as usize];
    let mut next = begin.clone();
    for server in 0..weights.len() {
        for step in earned(server) {
            earners[next[step] as usize] = server as u32;
            next[step] += 1;
        }
    }
    // Servers by places earned and not got, and one more: whoever got one too early is at 0.
    let mut levels = vec![Bits::with_room(weights.len()); 2];
    let mut level = vec![1; weights.len()];
    weights.iter().enumerate().filter(|(_, weight)| **weight > 0).for_each(|(server, _)| levels[1].set(server, true));
    let mut owners = Vec::with_capacity(total as usize);
    for step in 0..total as usize {
        for server in &earners[begin[step] as usize..begin[step + 1] as usize] {
            let server = *server as usize;
            levels[level[server]].set(server, false);
            level[server] += 1;
            if levels.len() == level[server] {
                levels.push(Bits::with_room(weights.len()));
            }
            levels[level[server]].set(server, true);
        }
        // All credit together is one total, so that somebody is at 1 or above.
        let Some((most, server)) = (1..levels.len()).rev().find_map(|most| Some((most, levels[most].first()?))) else {
            break;
        };
        levels[most].set(server, false);
        levels[most - 1].set(server, true);
        level[server] = most - 1;
        owners.push(server as u32);
    }
    owners
}

impl Map {
    /// For so many servers, of which none takes part yet.
    pub(super) fn new(servers: usize) -> Map {
        Map { free: Bits::with_room(servers), ..Map::default() }
    }

    /// A server is another one than `before`. Only going up or down counts, a weight that changes meanwhile does not.
    pub(super) fn update(&mut self, server: usize, before: Member, after: Member) {
        let (was_usable, is_usable) = (before.weight > 0, after.weight > 0);
        if (was_usable, before.full) == (is_usable, after.full) {
            return;
        }
        if was_usable != is_usable {
            self.edition += 1;
            self.usable = self.usable - usize::from(was_usable) + usize::from(is_usable);
        }
        self.free.set(server, is_usable && !after.full);
    }

    /// The edition that a table has to be laid for; `None`: it is there.
    pub(super) fn wants(&self) -> Option<u64> {
        (self.laid_for != self.edition).then_some(self.edition)
    }

    /// The table in use.
    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Goes on with this table, and gives the former one back.
    pub(super) fn take(&mut self, table: Arc<Table>, edition: u64) -> Arc<Table> {
        self.laid_for = edition;
        if self.next >= table.owners.len() {
            self.next = 0;
        }
        std::mem::replace(&mut self.table, table)
    }

    /// Takes over the place of round robin.
    pub(super) fn inherit(&mut self, before: &Map) {
        self.recall(before.position());
    }

    /// The place that round robin has reached, to be remembered.
    pub(super) fn position(&self) -> u64 {
        self.next as u64
    }

    /// Goes on from there; in a table that became shorter, from the start.
    pub(super) fn recall(&mut self, position: u64) {
        self.next = usize::try_from(position).ok().filter(|next| *next < self.table.owners.len()).unwrap_or(0);
    }

    /// The server of a hash, full or not.
    pub(super) fn find(&self, hash: u32, members: &[Member]) -> Choice {
        let owners = &self.table.owners;
        let start = hash as usize % owners.len().max(1);
        let usable = |server: &&u32| members[**server as usize].weight > 0;
        match owners[start..].iter().chain(&owners[..start]).find(usable) {
            Some(server) => Choice::Server(*server as usize),
            None => Choice::None,
        }
    }

    /// Round robin through the table.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let Table { owners, places, .. } = &*self.table;
        let owner = |at: usize| owners[at] as usize;
        let other = |at: usize| Some(owner(at)) != avoid && !full(owner(at));
        let avoided = || avoid.filter(|server| self.free.contains(*server) && !full(*server));
        let at = places.next_of(&self.free, self.next, owner, other);
        match at.or_else(|| places.next(avoided()?, self.next, |_| true)) {
            Some(at) => {
                self.next = (at + 1) % owners.len();
                Choice::Server(owners[at] as usize)
            }
            None if self.usable == 0 => Choice::None,
            None => Choice::Full,
        }
    }
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_weights(weights: &[u32]) -> Map {
        let weights: Vec<u32> = weights.iter().map(|weight| weight * WEIGHT_SCALE).collect();
        let mut map = Map::new(weights.len());
        for (server, weight) in weights.iter().enumerate() {
            map.update(server, Member::default(), Member { weight: *weight, ..Member::default() });
        }
        let edition = map.wants().unwrap_or_default();
        map.take(Arc::new(Table::lay(weights)), edition);
        map
    }

    /// The order in which HAProxy 2.6 served requests under `balance static-rr`.
    fn check(weights: &[u32], expect: &str) {
        let mut map = with_weights(weights);
        let turn = |_| match map.next(None, |_| false) {
            Choice::Server(server) => (server + 1).to_string(),
            Choice::Full | Choice::None => "-".into(),
        };
        assert_eq!((0..expect.len()).map(turn).collect::<String>(), expect, "{weights:?}");
    }

    #[test]
    fn the_order_is_haproxys() {
        check(&[1, 1, 1], "123123123123123123123123123123123123123123123123123123123123");
        check(&[1, 2], "122122122122122122122122122122122122122122122122122122122122");
        check(&[2, 1], "112112112112112112112112112112112112112112112112112112112112");
        check(&[1, 2, 3], "132323132323132323132323132323132323132323132323132323132323");
        check(&[5, 1, 1], "111211311121131112113111211311121131112113111211311121131112");
        check(&[3, 3, 2], "121321231213212312132123121321231213212312132123121321231213");
        check(&[7, 3, 5, 1], "121312313121313412131231312131341213123131213134121312313121");
        check(&[1, 3, 3, 7, 2], "124342453424344512434245342434451243424534243445124342453424");
        check(&[256, 255, 254], "121321321321321321321321321321321321321321321321321321321321");
        check(&[1, 10, 100], "133333333323333333332333333333233333333323333333332333333333");
        check(&[26, 3, 7, 3], "111213111311411231111311341111211311314111213111311411231111");
    }

    #[test]
    fn a_hash_is_a_place_in_the_table() {
        assert_eq!(Map::default().find(7, &[]), Choice::None);
        let map = with_weights(&[3, 1, 2]);
        let mut members = [Member { weight: WEIGHT_SCALE, ..Member::default() }; 3];
        let found = |members: &[Member]| (0..7).map(|hash| map.find(hash, members)).collect::<Vec<_>>();
        assert_eq!(found(&members), [0, 0, 2, 0, 1, 2, 0].map(Choice::Server));
        // It went down, and there is no other table yet.
        members[2].weight = 0;
        assert_eq!(found(&members), [0, 0, 0, 0, 1, 0, 0].map(Choice::Server));
    }
}
