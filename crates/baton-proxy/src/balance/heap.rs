//! Servers in order, the first one at hand.

/// A heap of servers by key that knows where each stands, so that one server's key changes in `O(log n)`. Nothing is allocated
/// once every server was in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap<K> {
    /// Nobody has a smaller key than the one at `(at - 1) / ARITY`.
    nodes: Vec<(K, u32)>,
    /// Where each server stands in `nodes`; [`ABSENT`]: it does not.
    at: Vec<u32>,
}

/// A node has so many below it: two levels of them are a cache line of small keys.
const ARITY: usize = 4;

const ABSENT: u32 = u32::MAX;

impl<K: Copy + Ord> Heap<K> {
    /// Puts a server where its key belongs, whether or not it was there. Keys of two servers are never equal.
    pub(super) fn set(&mut self, server: usize, key: K) {
        if self.at.len() <= server {
            self.at.resize(server + 1, ABSENT);
        }
        match self.at[server] {
            ABSENT => {
                self.nodes.push((key, server as u32));
                self.rise(self.nodes.len() - 1);
            }
            at => {
                let at = at as usize;
                let falls = self.nodes[at].0 < key;
                self.nodes[at].0 = key;
                if falls { self.fall(at) } else { self.rise(at) }
            }
        }
    }

    /// Takes a server out, if it is in.
    pub(super) fn remove(&mut self, server: usize) {
        let Some(at) = self.at.get_mut(server).filter(|at| **at != ABSENT) else { return };
        let at = std::mem::replace(at, ABSENT) as usize;
        self.nodes.swap_remove(at);
        if at < self.nodes.len() {
            self.rise(at);
            self.fall(at);
        }
    }

    /// All anew.
    pub(super) fn fill(&mut self, servers: impl Iterator<Item = (usize, K)>) {
        self.at.fill(ABSENT);
        self.nodes.clear();
        self.nodes.extend(servers.map(|(server, key)| (key, server as u32)));
        let longest = self.nodes.iter().map(|(_, server)| *server as usize + 1).max().unwrap_or(0);
        if self.at.len() < longest {
            self.at.resize(longest, ABSENT);
        }
        for (at, (_, server)) in self.nodes.iter().enumerate() {
            self.at[*server as usize] = at as u32;
        }
        for at in (0..self.nodes.len().div_ceil(ARITY)).rev() {
            self.fall(at);
        }
    }

    /// The first server that will do. Who is asked stands first among those not asked yet, or near to it, so that few are asked
    /// when few will not do.
    pub(super) fn first(&self, will_do: impl Fn(usize) -> bool) -> Option<(K, usize)> {
        let mut best = None;
        self.look(0, &will_do, &mut best);
        best.map(|at: usize| (self.nodes[at].0, self.nodes[at].1 as usize))
    }

    /// Looks at a node, and below it if need be, for one before `best`.
    fn look(&self, at: usize, will_do: &impl Fn(usize) -> bool, best: &mut Option<usize>) {
        let Some((key, server)) = self.nodes.get(at) else { return };
        if best.is_some_and(|best| self.nodes[best].0 < *key) {
            return;
        }
        if will_do(*server as usize) {
            *best = Some(at);
            return;
        }
        for below in at * ARITY + 1..=at * ARITY + ARITY {
            self.look(below, will_do, best);
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / ARITY;
            if self.nodes[above].0 < self.nodes[at].0 {
                break;
            }
            self.nodes.swap(above, at);
            self.stands(at);
            at = above;
        }
        self.stands(at);
    }

    fn fall(&mut self, mut at: usize) {
        loop {
            let below = at * ARITY + 1..(at * ARITY + 1 + ARITY).min(self.nodes.len());
            let Some(least) = below.min_by_key(|below| self.nodes[*below].0) else { break };
            if self.nodes[at].0 < self.nodes[least].0 {
                break;
            }
            self.nodes.swap(at, least);
            self.stands(at);
            at = least;
        }
        self.stands(at);
    }

    fn stands(&mut self, at: usize) {
        self.at[self.nodes[at].1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_sorted_map_of_which_the_first_is_at_hand() {
        let (mut heap, mut map) = (Heap::default(), BTreeMap::new());
        let mut random = 1u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for round in 0..20_000 {
            let server = next(40) as usize;
            match next(4) {
                0 => {
                    heap.remove(server);
                    map.retain(|_, other| *other != server);
                }
                1 if round % 50 == 0 => heap.fill(map.iter().map(|(key, server)| (*server, *key))),
                _ => {
                    let key = (next(100), server);
                    map.retain(|_, other| *other != server);
                    map.insert(key, server);
                    heap.set(server, key);
                }
            }
            let modulus = next(5) as usize + 1;
            let will_do = |server: usize| server.is_multiple_of(modulus);
            let expect = map.iter().find(|(_, server)| will_do(**server)).map(|(key, server)| (*key, *server));
            assert_eq!(heap.first(will_do), expect, "round {round}");
        }
    }
}
