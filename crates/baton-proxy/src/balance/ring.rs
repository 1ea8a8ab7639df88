//! `hash-type consistent` and `balance random`: servers spread over a ring of hashes.
//!
//! The ring's layout is HAProxy's, checked against 8,640 recorded choices of HAProxy 2.6.12 (`tests/choices.rs`): a server stands at
//! `avalanche(id * 4096 + n)` for `n` below sixteen times its weight, and a key goes to the nearest of these points, in
//! either direction.

use super::group::{Choice, Question};
use super::hash::avalanche;

/// Points between two ids: as many as the largest weight needs.
const POINTS_MAX: u32 = 4096;

/// The ring: points sorted by place, and the server at each.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    points: Vec<(u32, usize)>,
    /// In the order of the configuration.
    servers: Vec<usize>,
    /// The place that round robin has reached.
    last: Option<u32>,
}

impl Ring {
    /// Puts a server on the ring with as many points as its effective weight; 0 takes it off.
    pub(super) fn set_weight(&mut self, server: usize, id: u32, weight: u32) {
        self.points.retain(|(_, other)| *other != server);
        self.servers.retain(|other| *other != server);
        if weight > 0 {
            let first = id.wrapping_mul(POINTS_MAX);
            self.points.extend((0..weight.min(POINTS_MAX)).map(|n| (avalanche(first.wrapping_add(n)), server)));
            self.points.sort_unstable();
            let at = self.servers.partition_point(|other| *other < server);
            self.servers.insert(at, server);
        }
    }

    /// Takes over the place of round robin.
    pub(super) fn inherit(&mut self, before: &Ring) {
        self.last = before.last;
    }

    /// The place that round robin has reached, to be remembered: 0 is none yet.
    pub(super) fn position(&self) -> u64 {
        self.last.map_or(0, |last| u64::from(last) + 1)
    }

    /// Goes on from there.
    pub(super) fn recall(&mut self, position: u64) {
        self.last = position.checked_sub(1).and_then(|last| u32::try_from(last).ok());
    }

    /// The server nearest to a hash, full or not; with `hash-balance-factor` the first one from there on whose load is
    /// within bounds.
    pub(super) fn find(&self, hash: u32, question: &Question<'_>) -> Choice {
        let Some(start) = self.nearest(hash) else { return Choice::None };
        if question.factor == 0 {
            return Choice::Server(self.points[start].1);
        }
        let bound = Bound::new(&self.servers, question);
        match self.from(start).find(|server| bound.allows(*server)) {
            Some(server) => Choice::Server(server),
            None => Choice::Server(self.points[start].1),
        }
    }

    /// `balance random`: the least loaded of some servers drawn, or any with a free slot.
    pub(super) fn draw(&self, question: &Question<'_>, draws: u32) -> Choice {
        let mut random = question.random;
        let mut best: Option<usize> = None;
        for _ in 0..draws.clamp(1, DRAWS_MAX) {
            random = avalanche(random.wrapping_add(0x9e37_79b9));
            let server = match self.find(random, question) {
                Choice::Server(server) => server,
                none => return none,
            };
            if question.avoid == Some(server) || (question.load)(server).full {
                continue;
            }
            best = Some(best.map_or(server, |best| less_loaded(best, server, question)));
        }
        match (best, self.nearest(random)) {
            (Some(server), _) => Choice::Server(server),
            (None, None) => Choice::None,
            (None, Some(start)) => self.free(start, question),
        }
    }

    /// Round robin along the ring, for requests without a key.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let length = self.points.len();
        let start = self.last.map_or(0, |last| self.points.partition_point(|(place, _)| *place <= last));
        let mut avoided = None;
        for step in 0..length {
            let (place, server) = self.points[(start + step) % length];
            if full(server) {
                continue;
            }
            if Some(server) == avoid {
                avoided = avoided.or(Some((place, server)));
                continue;
            }
            self.last = Some(place);
            return Choice::Server(server);
        }
        match avoided {
            Some((place, server)) => {
                self.last = Some(place);
                Choice::Server(server)
            }
            None if length == 0 => Choice::None,
            None => Choice::Full,
        }
    }

    /// The first server with a free slot from a point on; one that is to be avoided only when there is no other.
    fn free(&self, start: usize, question: &Question<'_>) -> Choice {
        let is_free = |server: &usize| !(question.load)(*server).full;
        let other = self.from(start).filter(is_free).find(|server| Some(*server) != question.avoid);
        match other.or_else(|| question.avoid.filter(is_free).filter(|server| self.servers.contains(server))) {
            Some(server) => Choice::Server(server),
            None => Choice::Full,
        }
    }

    /// The servers of all points from one on, around the ring.
    fn from(&self, start: usize) -> impl Iterator<Item = usize> {
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).map(|(_, server)| *server)
    }

    /// The point nearest to a hash.
    fn nearest(&self, hash: u32) -> Option<usize> {
        let length = self.points.len();
        if length == 0 {
            return None;
        }
        let next = self.points.partition_point(|(place, _)| *place < hash) % length;
        let previous = (next + length - 1) % length;
        let behind = hash.wrapping_sub(self.points[previous].0);
        let ahead = self.points[next].0.wrapping_sub(hash);
        Some(if behind < ahead { previous } else { next })
    }
}

/// The most servers that `random(DRAWS)` draws for one request; more than that is leastconn done slowly.
const DRAWS_MAX: u32 = 1000;

fn less_loaded(one: usize, other: usize, question: &Question<'_>) -> usize {
    let (first, second) = ((question.load)(one), (question.load)(other));
    let better =
        u64::from(second.served) * u64::from(first.weight) < u64::from(first.served) * u64::from(second.weight);
    if better { other } else { one }
}

/// The load that `hash-balance-factor` allows, as HAProxy shares it out: the sessions that all servers together may have are
/// divided by weight in the order of the configuration, and what one server's division leaves is given to the next one.
/// Everyone may have one. Checked against 120 recorded series of HAProxy 2.6.12 (`tests/choices.rs`).
struct Bound {
    /// Servers in order, and whether each may have one more session.
    allowed: Vec<(usize, bool)>,
}

impl Bound {
    /// `servers` in order.
    fn new(servers: &[usize], question: &Question<'_>) -> Bound {
        let loads = || servers.iter().map(|server| (*server, (question.load)(*server)));
        let (sessions, weights) = loads().fold((0, 0), |(sessions, weights), (_, load)| {
            (sessions + u64::from(load.served + load.queued), weights + u64::from(load.weight))
        });
        let slots = ((sessions + 1) * u64::from(question.factor)).div_ceil(100);
        let weights = weights.max(1);
        let mut rest = 0;
        let allowed = loads().map(|(server, load)| {
            let share = slots * u64::from(load.weight) + rest;
            rest = share % weights;
            (server, u64::from(load.served + load.queued) < (share / weights).max(1))
        });
        Bound { allowed: allowed.collect() }
    }

    fn allows(&self, server: usize) -> bool {
        self.allowed.binary_search_by_key(&server, |(other, _)| *other).is_ok_and(|at| self.allowed[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::Load;
    use super::super::hash::sdbm;
    use super::*;

    fn ring(weights: &[u32]) -> Ring {
        let mut ring = Ring::default();
        weights.iter().enumerate().for_each(|(server, weight)| ring.set_weight(server, server as u32 + 1, weight * 16));
        ring
    }

    fn question(load: &dyn Fn(usize) -> Load, factor: u32) -> Question<'_> {
        Question { key: None, random: 7, avoid: None, factor, load }
    }

    /// The server of each key in HAProxy 2.6, for `balance url_param` with `hash-type consistent`.
    fn check(weights: &[u32], keys: &[(&str, usize)]) {
        let ring = ring(weights);
        let idle = |_: usize| Load::default();
        for (key, server) in keys {
            let found = ring.find(avalanche(sdbm(key.as_bytes())), &question(&idle, 0));
            assert_eq!(found, Choice::Server(server - 1), "{weights:?} {key}");
        }
    }

    #[test]
    fn keys_go_where_haproxy_sends_them() {
        check(
            &[1, 1],
            &[
                ("21el", 1),
                ("p42c3ap", 1),
                ("1hg6p", 2),
                ("1pm4eh4", 1),
                ("0m7a", 2),
                ("8cf82bj8", 2),
                ("ip3", 2),
                ("m69nm792", 1),
                ("eldbep", 2),
                ("i5n8", 2),
                ("jn0m2l12", 2),
                ("2hk5ai", 2),
                ("56f6k12", 2),
                ("d64g42i", 1),
                ("dcp4p", 1),
                ("l9c", 1),
                ("eajn8n", 2),
                ("db338bm62", 2),
                ("1i0hb", 1),
                ("acd31", 2),
                ("gnj", 2),
                ("ie6bkkl", 1),
                ("mmo0", 1),
                ("4351d3", 2),
                ("0in476hjn", 2),
                ("0j1ka", 1),
                ("n2kam324e", 1),
                ("44k", 2),
                ("l5l36i", 2),
                ("pa2b5ali", 1),
                ("oj23kflf", 2),
                ("8l3ij", 1),
                ("md8a257ej", 2),
                ("h49ihkf", 1),
                ("n46dd3kk", 2),
                ("ho9fck74", 2),
                ("2oih", 2),
                ("db0gk92fi", 1),
                ("94c93", 1),
                ("2enj0", 1),
            ],
        );
        check(
            &[3, 1, 2],
            &[
                ("21el", 1),
                ("p42c3ap", 1),
                ("1hg6p", 1),
                ("1pm4eh4", 1),
                ("0m7a", 2),
                ("8cf82bj8", 1),
                ("ip3", 1),
                ("m69nm792", 1),
                ("eldbep", 1),
                ("i5n8", 2),
                ("jn0m2l12", 3),
                ("2hk5ai", 2),
                ("56f6k12", 2),
                ("d64g42i", 1),
                ("dcp4p", 3),
                ("l9c", 3),
                ("eajn8n", 3),
                ("db338bm62", 1),
                ("1i0hb", 1),
                ("acd31", 1),
                ("gnj", 2),
                ("ie6bkkl", 3),
                ("mmo0", 1),
                ("4351d3", 3),
                ("0in476hjn", 2),
                ("0j1ka", 1),
                ("n2kam324e", 3),
                ("44k", 3),
                ("l5l36i", 2),
                ("pa2b5ali", 1),
                ("oj23kflf", 3),
                ("8l3ij", 1),
                ("md8a257ej", 2),
                ("h49ihkf", 3),
                ("n46dd3kk", 2),
                ("ho9fck74", 2),
                ("2oih", 3),
                ("db0gk92fi", 1),
                ("94c93", 1),
                ("2enj0", 1),
            ],
        );
    }

    #[test]
    fn without_a_key_servers_follow_the_ring() {
        let mut ring = ring(&[1, 1, 2]);
        let turn = |_| match ring.next(None, |_| false) {
            Choice::Server(server) => (server + 1).to_string(),
            Choice::Full | Choice::None => "-".into(),
        };
        assert_eq!((0..40).map(turn).collect::<String>(), "3333213131231131223133231233313321323231");
    }

    #[test]
    fn a_balance_factor_bounds_every_load() {
        let ring = ring(&[1, 1, 1, 1]);
        let mut served = [0u32; 4];
        for sessions in 1..=100u32 {
            let now = served;
            let load = |server: usize| Load { served: now[server], weight: 16, ..Load::default() };
            let Choice::Server(server) = ring.find(4711, &question(&load, 125)) else { panic!("no server") };
            served[server] += 1;
            let bound = (f64::from(sessions) / 4.0 * 1.25).ceil() as u32;
            assert!(served.iter().all(|load| *load <= bound), "{served:?}");
        }
    }

    /// Servers of held sessions with one and the same key in HAProxy 2.6 (`balance uri`, `/hold`).
    fn check_bounded(weights: &[u32], factor: u32, expect: &str) {
        let ring = ring(weights);
        let mut served = vec![0u32; weights.len()];
        let turn = |_| {
            let load = |server: usize| Load { served: served[server], weight: weights[server] * 16, ..Load::default() };
            let Choice::Server(server) = ring.find(avalanche(sdbm(b"/hold")), &question(&load, factor)) else {
                return "-".to_string();
            };
            served[server] += 1;
            (server + 1).to_string()
        };
        assert_eq!((0..expect.len()).map(turn).collect::<String>(), expect, "{weights:?} {factor}");
    }

    #[test]
    fn bounded_loads_go_where_haproxy_sends_them() {
        check_bounded(&[1, 1, 1], 150, "13313131313131313131");
        check_bounded(&[1, 2, 3], 125, "33233232332332323323");
        check_bounded(&[1, 1, 1, 1], 200, "14414141414141414141");
    }

    #[test]
    fn random_takes_free_servers_and_avoids_the_failed_one() {
        let ring = ring(&[1, 1, 1]);
        let load = |server: usize| Load { full: server != 2, weight: 16, ..Load::default() };
        assert_eq!(ring.draw(&question(&load, 0), 2), Choice::Server(2));
        let all = |_: usize| Load { full: true, ..Load::default() };
        assert_eq!(ring.draw(&question(&all, 0), 2), Choice::Full);
        let two = |server: usize| Load { full: server == 0, weight: 16, ..Load::default() };
        assert_eq!(ring.draw(&Question { avoid: Some(1), ..question(&two, 0) }, 2), Choice::Server(2));
        assert_eq!(Ring::default().draw(&question(&two, 0), 2), Choice::None);
    }

    #[test]
    fn a_server_that_leaves_moves_only_its_own_keys() {
        let (mut ring, idle) = (ring(&[1, 1, 1]), |_: usize| Load::default());
        let find = |ring: &Ring, key: u32| ring.find(avalanche(key), &question(&idle, 0));
        let before: Vec<Choice> = (0..500).map(|key| find(&ring, key)).collect();
        ring.set_weight(1, 2, 0);
        for (key, before) in before.into_iter().enumerate() {
            let after = find(&ring, key as u32);
            assert!(before == after || before == Choice::Server(1), "{key}");
        }
    }
}
