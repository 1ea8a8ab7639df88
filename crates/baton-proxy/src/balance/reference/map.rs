//! The static table, laid place by place.

use super::super::group::{Choice, WEIGHT_SCALE};

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
