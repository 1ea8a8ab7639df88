//! The ring, sorted anew for each server.

use super::super::group::{Choice, Question};
use super::super::hash::avalanche;

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
    factor: u32,
}

impl Ring {
    pub(super) fn new(factor: u32) -> Ring {
        Ring { factor, ..Ring::default() }
    }

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

    /// Goes on from there.
    pub(super) fn recall(&mut self, position: u64) {
        self.last = position.checked_sub(1).and_then(|last| u32::try_from(last).ok());
    }

    /// The server nearest to a hash, full or not; with `hash-balance-factor` the first one from there on whose load is
    /// within bounds.
    pub(super) fn find(&self, hash: u32, question: &Question<'_>) -> Choice {
        let Some(start) = self.nearest(hash) else { return Choice::None };
        if self.factor == 0 {
            return Choice::Server(self.points[start].1);
        }
        let bound = Bound::new(&self.servers, self.factor, question);
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
    fn new(servers: &[usize], factor: u32, question: &Question<'_>) -> Bound {
        let loads = || servers.iter().map(|server| (*server, (question.load)(*server)));
        let (sessions, weights) = loads().fold((0, 0), |(sessions, weights), (_, load)| {
            (sessions + u64::from(load.served + load.queued), weights + u64::from(load.weight))
        });
        let slots = ((sessions + 1) * u64::from(factor)).div_ceil(100);
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
