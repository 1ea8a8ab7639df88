//! A static table of servers, each as often as its weight: `static-rr`, and `hash-type map-based`.
//!
//! The table's order is HAProxy's, checked against 38,400 recorded choices of HAProxy 2.6.12 under `static-rr` with 160 sets of
//! weights and 8,640 under `hash-type map-based` (`tests/choices.rs`): each place goes to the server that collected the most
//! credit, where each server is credited its weight per place and a place costs the total; credit is compared in whole
//! totals only, and the first server of the configuration wins a tie.

use super::group::{Choice, WEIGHT_SCALE};

/// The table, and the place that round robin has reached in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    table: Vec<usize>,
    next: usize,
}

impl Map {
    /// Lays the table again for servers and weights (in the order of the configuration).
    pub(super) fn rebuild(&mut self, servers: impl Iterator<Item = (usize, u32)>) {
        let mut servers: Vec<(usize, i64, i64)> =
            servers.map(|(server, weight)| (server, i64::from(weight.div_ceil(WEIGHT_SCALE)), 0)).collect();
        let divisor = servers.iter().fold(0, |divisor, (_, weight, _)| common_divisor(divisor, *weight)).max(1);
        servers.iter_mut().for_each(|(_, weight, _)| *weight /= divisor);
        let total: i64 = servers.iter().map(|(_, weight, _)| weight).sum();
        self.table.clear();
        for _ in 0..total {
            let mut best: Option<(i64, usize)> = None;
            for (place, (_, weight, credit)) in servers.iter_mut().enumerate() {
                *credit += *weight;
                let rank = credit.div_euclid(total);
                if best.is_none_or(|(most, _)| rank > most) {
                    best = Some((rank, place));
                }
            }
            if let Some((_, place)) = best {
                servers[place].2 -= total;
                self.table.push(servers[place].0);
            }
        }
        if self.next >= self.table.len() {
            self.next = 0;
        }
    }

    pub(super) fn inherit(&mut self, before: &Map) {
        self.next = if before.next < self.table.len() { before.next } else { 0 };
    }

    /// The place that round robin has reached, to be remembered.
    pub(super) fn position(&self) -> u64 {
        self.next as u64
    }

    /// Goes on from there; in a table that became shorter, from the start.
    pub(super) fn recall(&mut self, position: u64) {
        self.next = usize::try_from(position).ok().filter(|next| *next < self.table.len()).unwrap_or(0);
    }

    /// The server of a hash, full or not.
    pub(super) fn find(&self, hash: u32) -> Choice {
        match self.table.len() {
            0 => Choice::None,
            length => Choice::Server(self.table[hash as usize % length]),
        }
    }

    /// Round robin through the table.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let length = self.table.len();
        let mut avoided = None;
        for step in 0..length {
            let at = (self.next + step) % length;
            let server = self.table[at];
            if full(server) {
                continue;
            }
            if Some(server) == avoid {
                avoided = avoided.or(Some(at));
                continue;
            }
            self.next = (at + 1) % length;
            return Choice::Server(server);
        }
        match avoided {
            Some(at) => {
                self.next = (at + 1) % length;
                Choice::Server(self.table[at])
            }
            None if length == 0 => Choice::None,
            None => Choice::Full,
        }
    }
}

fn common_divisor(one: i64, other: i64) -> i64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which HAProxy 2.6 served requests under `balance static-rr`.
    fn check(weights: &[u32], expect: &str) {
        let mut map = Map::default();
        map.rebuild(weights.iter().map(|weight| weight * WEIGHT_SCALE).enumerate());
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
        let mut map = Map::default();
        assert_eq!(map.find(7), Choice::None);
        map.rebuild([(0, 48), (1, 16), (2, 32)].into_iter());
        let found: Vec<Choice> = (0..7).map(|hash| map.find(hash)).collect();
        assert_eq!(found, [0, 0, 2, 0, 1, 2, 0].map(Choice::Server));
    }
}
