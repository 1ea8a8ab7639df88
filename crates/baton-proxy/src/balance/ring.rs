//! `hash-type consistent` and `balance random`: servers spread over a ring of hashes.
//!
//! The ring's layout is HAProxy's, checked against 8,640 recorded choices of HAProxy 2.6.12 (`tests/choices.rs`): a server stands at
//! `avalanche(id * 4096 + n)` for `n` below sixteen times its weight, and a key goes to the nearest of these points, in
//! either direction.
//!
//! Points are laid and sorted once, beside the ring in use and without the backend's lock, as many for each server as its weight
//! wants when it is up and warm. How many of them count now is its effective weight: a server that goes up or down, or warms up,
//! moves no point. Points are laid anew when a server wants more than it has, or when most of them have no server any more.

use std::sync::Arc;

use super::bits::Bits;
use super::group::{Choice, Member, Question};
use super::hash::avalanche;
use super::positions::Positions;
use super::shares::Shares;

/// Points between two ids: as many as the largest weight needs.
const POINTS_MAX: u32 = 4096;

/// The ring, and the place that round robin has reached.
#[derive(Debug, Default)]
pub(super) struct Ring {
    circle: Arc<Circle>,
    last: Option<u32>,
    /// Usable servers that are not known to be full.
    free: Bits,
    usable: usize,
    /// The points that all servers want when they are up and warm, and those of them that usable ones want.
    wanted: u64,
    wanted_now: u64,
    /// How many servers have a larger weight than points.
    short: usize,
    /// What servers may carry, with `hash-balance-factor`.
    shares: Option<Shares>,
}

/// Points that do not change any more.
#[derive(Debug, Default)]
pub(super) struct Circle {
    /// Sorted.
    points: Vec<Point>,
    /// For places that begin with the same bits, the first point from there on.
    begins: Vec<u32>,
    /// How many bits follow these.
    shift: u32,
    places: Positions,
    /// What was laid for each server.
    laid: Vec<Points>,
}

/// The points of a server: its `id`, and how many.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Points {
    id: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Point {
    place: u32,
    server: u32,
    /// Which of the server's points it is.
    number: u32,
}

impl Circle {
    /// Lays the points of these servers, in the order of the configuration.
    pub(super) fn lay(laid: Vec<Points>) -> Circle {
        let mut points = Vec::with_capacity(laid.iter().map(|points| points.count as usize).sum());
        for (server, Points { id, count }) in (0..).zip(&laid) {
            let first = id.wrapping_mul(POINTS_MAX);
            points.extend((0..*count).map(|number| Point {
                place: avalanche(first.wrapping_add(number)),
                server,
                number,
            }));
        }
        points.sort_unstable();
        let bits = points.len().checked_ilog2().unwrap_or(0);
        let shift = u32::BITS - bits;
        let mut at = 0;
        let begins = (0..1u64 << bits).map(|begin| {
            while points.get(at).is_some_and(|point| u64::from(point.place) < begin << shift) {
                at += 1;
            }
            at as u32
        });
        let begins = begins.collect();
        let places = Positions::new(laid.len(), points.iter().map(|point| point.server));
        Circle { points, begins, shift, places, laid }
    }

    /// Whether it was laid for these.
    pub(super) fn is_for(&self, points: &[Points]) -> bool {
        self.laid == points
    }

    /// The first point from a place on; the number of points when there is none.
    fn from(&self, place: u32) -> usize {
        let begin = self.begins.get((u64::from(place) >> self.shift) as usize).map_or(0, |begin| *begin as usize);
        let behind = self.points[begin..].iter().take_while(|point| point.place < place);
        begin + behind.count()
    }

    /// All points from one on, around.
    fn around(&self, start: usize) -> impl DoubleEndedIterator<Item = &Point> {
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before)
    }
}

impl Point {
    /// Whether it counts at the server's weight.
    fn counts(&self, members: &[Member]) -> bool {
        self.number < members[self.server as usize].weight
    }
}

/// How many points a server wants when it is up and warm.
fn wants(member: Member) -> u32 {
    member.weight.max(member.nominal).min(POINTS_MAX)
}

impl Ring {
    /// For so many servers, of which none takes part yet; `factor` is that of `hash-balance-factor`.
    pub(super) fn new(servers: usize, factor: u32) -> Ring {
        let shares = (factor > 0).then(|| Shares::new(servers, factor));
        Ring { free: Bits::with_room(servers), shares, ..Ring::default() }
    }

    /// There is one more server, behind all others.
    pub(super) fn append(&mut self) {
        self.shares.iter_mut().for_each(Shares::append);
    }

    /// A server is another one than `before`.
    pub(super) fn update(&mut self, server: usize, before: Member, after: Member) {
        if let Some(shares) = &mut self.shares {
            shares.update(server, before, after);
        }
        if (before.weight, before.nominal, before.full) == (after.weight, after.nominal, after.full) {
            return;
        }
        let (was_usable, is_usable) = (before.weight > 0, after.weight > 0);
        self.usable = self.usable - usize::from(was_usable) + usize::from(is_usable);
        self.free.set(server, is_usable && !after.full);
        self.wanted = self.wanted - u64::from(wants(before)) + u64::from(wants(after));
        let now = |member: Member| if member.weight > 0 { u64::from(wants(member)) } else { 0 };
        self.wanted_now = self.wanted_now - now(before) + now(after);
        self.short =
            self.short - usize::from(self.is_short(server, before)) + usize::from(self.is_short(server, after));
    }

    fn is_short(&self, server: usize, member: Member) -> bool {
        member.weight.min(POINTS_MAX) > self.circle.laid.get(server).map_or(0, |points| points.count)
    }

    /// Whether servers that are down have points: they do as long as there are not more of these than of others.
    fn keeps_all(&self) -> bool {
        self.wanted_now == 0 || self.wanted <= 2 * self.wanted_now
    }

    /// Whether points have to be laid anew.
    pub(super) fn is_stale(&self) -> bool {
        let wanted = if self.keeps_all() { self.wanted } else { self.wanted_now };
        self.short > 0 || self.circle.points.len() as u64 > 2 * wanted
    }

    /// What would have to be laid for these servers; of `others`, nothing.
    pub(super) fn wants(&self, members: &[Member], is_own: impl Fn(&Member) -> bool) -> Vec<Points> {
        let keeps_all = self.keeps_all();
        let points = members.iter().map(|member| {
            let takes_part = is_own(member) && (keeps_all || member.weight > 0);
            Points { id: member.id, count: if takes_part { wants(*member) } else { 0 } }
        });
        points.collect()
    }

    /// The points in use.
    pub(super) fn circle(&self) -> &Arc<Circle> {
        &self.circle
    }

    /// Goes on with these points, and gives the former ones back.
    pub(super) fn take(
        &mut self,
        circle: Arc<Circle>,
        members: &[Member],
        is_own: impl Fn(&Member) -> bool,
    ) -> Arc<Circle> {
        let before = std::mem::replace(&mut self.circle, circle);
        let all = members.iter().enumerate().filter(|(_, member)| is_own(member));
        self.short = all.filter(|(server, member)| self.is_short(*server, **member)).count();
        before
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
    pub(super) fn find(&self, hash: u32, members: &[Member]) -> Choice {
        let Some(start) = self.nearest(hash, members) else { return Choice::None };
        let nearest = self.circle.points[start].server as usize;
        let Some(shares) = &self.shares else { return Choice::Server(nearest) };
        let mut servers = self.circle.around(start).filter(|point| point.counts(members));
        let within = servers.find(|point| shares.allows(point.server as usize, members));
        Choice::Server(within.map_or(nearest, |point| point.server as usize))
    }

    /// `balance random`: the least loaded of some servers drawn, or any with a free slot.
    pub(super) fn draw(&self, question: &Question<'_>, draws: u32, members: &[Member]) -> Choice {
        if self.usable > 0 && self.free.len() == 0 {
            return Choice::Full;
        }
        let mut random = question.random;
        let mut best: Option<usize> = None;
        for _ in 0..draws.clamp(1, DRAWS_MAX) {
            random = avalanche(random.wrapping_add(0x9e37_79b9));
            let server = match self.find(random, members) {
                Choice::Server(server) => server,
                none => return none,
            };
            if question.avoid == Some(server) || (question.load)(server).full {
                continue;
            }
            best = Some(best.map_or(server, |best| less_loaded(best, server, question)));
        }
        match (best, self.nearest(random, members)) {
            (Some(server), _) => Choice::Server(server),
            (None, None) => Choice::None,
            (None, Some(start)) => {
                match self.free_from(start, question.avoid, |server| (question.load)(server).full, members) {
                    Some(at) => Choice::Server(self.circle.points[at].server as usize),
                    None => Choice::Full,
                }
            }
        }
    }

    /// Round robin along the ring, for requests without a key.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool, members: &[Member]) -> Choice {
        let start = self.last.map_or(0, |last| last.checked_add(1).map_or(0, |place| self.circle.from(place)));
        match self.free_from(start, avoid, full, members) {
            Some(at) => {
                self.last = Some(self.circle.points[at].place);
                Choice::Server(self.circle.points[at].server as usize)
            }
            None if self.usable == 0 => Choice::None,
            None => Choice::Full,
        }
    }

    /// The first point of a server with a free slot from one on; of the one to avoid only when there is no other.
    fn free_from(
        &self,
        start: usize,
        avoid: Option<usize>,
        full: impl Fn(usize) -> bool,
        members: &[Member],
    ) -> Option<usize> {
        let Circle { points, places, .. } = &*self.circle;
        let server = |at: usize| points[at].server as usize;
        let counts = |at: usize| points[at].counts(members);
        let other = |at: usize| counts(at) && Some(server(at)) != avoid && !full(server(at));
        let avoided = || avoid.filter(|server| self.free.contains(*server) && !full(*server));
        let at = places.next_of(&self.free, start, server, other);
        at.or_else(|| places.next(avoided()?, start, counts))
    }

    /// The point nearest to a hash.
    fn nearest(&self, hash: u32, members: &[Member]) -> Option<usize> {
        let length = self.circle.points.len();
        let start = self.circle.from(hash);
        let counts = |point: &&Point| point.counts(members);
        let next = self.circle.around(start).position(|point| point.counts(members))?;
        let previous = self.circle.around(start).rev().take_while(|point| !counts(point)).count() + 1;
        let (next, previous) = ((start + next) % length, (start + length - previous) % length);
        let behind = hash.wrapping_sub(self.circle.points[previous].place);
        let ahead = self.circle.points[next].place.wrapping_sub(hash);
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

#[cfg(test)]
mod tests {
    use super::super::group::ServerLoad;
    use super::super::hash::sdbm;
    use super::*;

    /// Servers of these weights, and a ring for them.
    fn ring(weights: &[u32], factor: u32) -> (Ring, Vec<Member>) {
        let member = |(id, weight): (u32, &u32)| {
            let weight = weight * 16;
            Member { id, weight, nominal: weight, ..Member::default() }
        };
        let members: Vec<Member> = (1..).zip(weights).map(member).collect();
        let mut ring = Ring::new(members.len(), factor);
        members.iter().enumerate().for_each(|(server, member)| ring.update(server, Member::default(), *member));
        lay(&mut ring, &members);
        (ring, members)
    }

    fn lay(ring: &mut Ring, members: &[Member]) {
        let circle = Circle::lay(ring.wants(members, |_| true));
        ring.take(Arc::new(circle), members, |_| true);
    }

    fn change(ring: &mut Ring, members: &mut [Member], server: usize, change: impl FnOnce(&mut Member)) {
        let before = members[server];
        change(&mut members[server]);
        ring.update(server, before, members[server]);
    }

    fn question(load: &dyn Fn(usize) -> ServerLoad) -> Question<'_> {
        Question { key: None, random: 7, avoid: None, load }
    }

    /// The server of each key in HAProxy 2.6, for `balance url_param` with `hash-type consistent`.
    fn check(weights: &[u32], keys: &[(&str, usize)]) {
        let (ring, members) = ring(weights, 0);
        for (key, server) in keys {
            let found = ring.find(avalanche(sdbm(key.as_bytes())), &members);
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
        let (mut ring, members) = ring(&[1, 1, 2], 0);
        let turn = |_| match ring.next(None, |_| false, &members) {
            Choice::Server(server) => (server + 1).to_string(),
            Choice::Full | Choice::None => "-".into(),
        };
        assert_eq!((0..40).map(turn).collect::<String>(), "3333213131231131223133231233313321323231");
    }

    #[test]
    fn a_balance_factor_bounds_every_load() {
        let (mut ring, mut members) = ring(&[1, 1, 1, 1], 125);
        for sessions in 1..=100u32 {
            let Choice::Server(server) = ring.find(4711, &members) else { panic!("no server") };
            change(&mut ring, &mut members, server, |member| member.load += 1);
            let bound = (f64::from(sessions) / 4.0 * 1.25).ceil() as u32;
            assert!(members.iter().all(|member| member.load <= bound), "{members:?}");
        }
    }

    /// Servers of held sessions with one and the same key in HAProxy 2.6 (`balance uri`, `/hold`).
    fn check_bounded(weights: &[u32], factor: u32, expect: &str) {
        let (mut ring, mut members) = ring(weights, factor);
        let turn = |_| {
            let Choice::Server(server) = ring.find(avalanche(sdbm(b"/hold")), &members) else {
                return "-".to_string();
            };
            change(&mut ring, &mut members, server, |member| member.load += 1);
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
        let (ring, members) = ring(&[1, 1, 1], 0);
        let load = |server: usize| ServerLoad { full: server != 2, weight: 16, ..ServerLoad::default() };
        assert_eq!(ring.draw(&question(&load), 2, &members), Choice::Server(2));
        let all = |_: usize| ServerLoad { full: true, ..ServerLoad::default() };
        assert_eq!(ring.draw(&question(&all), 2, &members), Choice::Full);
        let two = |server: usize| ServerLoad { full: server == 0, weight: 16, ..ServerLoad::default() };
        assert_eq!(ring.draw(&Question { avoid: Some(1), ..question(&two) }, 2, &members), Choice::Server(2));
        assert_eq!(Ring::default().draw(&question(&two), 2, &[]), Choice::None);
    }

    #[test]
    fn a_server_that_leaves_moves_only_its_own_keys() {
        let (mut ring, mut members) = ring(&[1, 1, 1], 0);
        let find = |ring: &Ring, members: &[Member], key: u32| ring.find(avalanche(key), members);
        let before: Vec<Choice> = (0..500).map(|key| find(&ring, &members, key)).collect();
        change(&mut ring, &mut members, 1, |member| member.weight = 0);
        assert!(!ring.is_stale(), "its points stay");
        for (key, before) in (0..).zip(&before) {
            let after = find(&ring, &members, key);
            assert!(*before == after || *before == Choice::Server(1), "{key}");
        }
        change(&mut ring, &mut members, 1, |member| member.weight = 16);
        assert!((0..).zip(before).all(|(key, before)| find(&ring, &members, key) == before));
    }

    #[test]
    fn points_are_laid_anew_when_they_are_too_few_or_most_of_them_nobodys() {
        let (mut ring, mut members) = ring(&[1, 2, 3, 4], 0);
        change(&mut ring, &mut members, 0, |member| (member.weight, member.nominal) = (80, 80));
        assert!(ring.is_stale(), "too few");
        assert_eq!(ring.find(4711, &members), Choice::Server(2));
        lay(&mut ring, &members);
        assert!(!ring.is_stale() && ring.circle.points.len() == 14 * 16);
        for server in 1..4 {
            change(&mut ring, &mut members, server, |member| member.weight = 0);
        }
        assert!(ring.is_stale(), "too many");
        assert_eq!(ring.find(4711, &members), Choice::Server(0));
        lay(&mut ring, &members);
        assert!(!ring.is_stale() && ring.circle.points.len() == 5 * 16);
        change(&mut ring, &mut members, 0, |member| member.weight = 0);
        assert!(!ring.is_stale(), "nobody is there");
        assert_eq!(ring.find(4711, &members), Choice::None);
        change(&mut ring, &mut members, 3, |member| member.weight = 64);
        assert!(ring.is_stale());
    }
}
