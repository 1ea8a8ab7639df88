//! `hash-type consistent` and `balance random`: servers spread over a ring of hashes.
//!
//! The ring's layout is HAProxy's, found by asking it for thousands of keys: a server stands at
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
            self.servers.push(server);
        }
    }

    /// Takes over the place of round robin.
    pub(super) fn inherit(&mut self, before: &Ring) {
        self.last = before.last;
    }

    /// The server nearest to a hash, full or not; with `hash-balance-factor` the first one from there on whose load is
    /// within bounds.
    pub(super) fn find(&self, hash: u32, question: &Question<'_>) -> Choice {
        let Some(start) = self.nearest(hash) else { return Choice::None };
        if question.factor == 0 {
            return Choice::Server(self.points[start].1);
        }
        let bound = Bound::new(&self.servers, question);
        match self.from(start).find(|server| bound.allows(*server, question)) {
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

/// The load that `hash-balance-factor` allows.
struct Bound {
    sessions: u64,
    weights: u64,
}

impl Bound {
    fn new(servers: &[usize], question: &Question<'_>) -> Bound {
        let loads = servers.iter().map(|server| (question.load)(*server));
        let (sessions, weights) = loads.fold((0, 0), |(sessions, weights), load| {
            (sessions + u64::from(load.served + load.queued), weights + u64::from(load.weight))
        });
        Bound { sessions: sessions + 1, weights: weights.max(1) }
    }

    /// Whether one more session keeps the server within `factor` percent of its share of all sessions, rounded up.
    fn allows(&self, server: usize, question: &Question<'_>) -> bool {
        let load = (question.load)(server);
        let share = self.sessions * u64::from(load.weight) * u64::from(question.factor);
        u64::from(load.served + load.queued) < share.div_ceil(self.weights * 100)
    }
}
