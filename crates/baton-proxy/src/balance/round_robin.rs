//! `balance roundrobin`: turns according to weights that may change at any time.
//!
//! The order is HAProxy's, found by looking at it. Every server is due at a position of an endless row; a choice goes to
//! the one due first, and its next place is the total weight divided by its own further on, the remainders of the
//! division adding up. Who did not have a turn yet stands aside, heavier ones first, and comes in when nobody is due.
//!
//! The row is a heap, so that a choice looks at the first of it; servers known to be full are not in it.

use std::sync::Arc;

use super::group::{Choice, WEIGHT_SCALE};
use super::heap::Heap;
use super::memory::{Turn, Turns};

/// The largest weight in the row.
const WEIGHT_MAX: u64 = 256 * WEIGHT_SCALE as u64;

/// Servers by index; those without a weight take no part.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    places: Vec<RoundRobinEntry>,
    total: u64,
    /// The row's position: choices made.
    position: u64,
    /// Who had a turn, by when the next one is due; of those due together, by remainder, and by who was placed earlier.
    row: Heap<(u64, i64, u64, u32)>,
    /// Who had none yet: heavier ones first.
    aside: Heap<(i64, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RoundRobinEntry {
    weight: u64,
    /// It is known to have no free slot.
    full: bool,
    /// Never chosen since the start: stands aside.
    fresh: bool,
    /// Position of the next turn, and the remainder of the divisions that led there (below `weight`).
    due: u64,
    rest: u64,
    /// Position of the last turn as it was due.
    last: u64,
    /// When it was placed: of two that are due together with the same rank, the one placed earlier comes first.
    placed: u64,
}

impl RoundRobin {
    /// A new weight; 0 takes the server out.
    pub(super) fn set_weight(&mut self, server: usize, weight: u32) {
        self.make_room(server);
        let weight = u64::from(weight);
        let before = self.places[server].weight;
        self.total = self.total - before + weight;
        let place = &mut self.places[server];
        place.weight = weight;
        if weight > 0 && (!place.fresh || self.position > 0) {
            // Coming (back) it waits for a whole turn; with another weight its running turn gets the new length.
            let from = if before == 0 || place.fresh { self.position } else { place.last };
            *place = RoundRobinEntry {
                fresh: false,
                due: (from + self.total / weight).max(self.position),
                rest: 0,
                last: from,
                placed: self.position,
                ..*place
            };
        }
        self.stand(server);
    }

    /// Whether the server is known to be full: it keeps its place, and nobody looks at it meanwhile.
    pub(super) fn set_full(&mut self, server: usize, full: bool) {
        self.make_room(server);
        self.places[server].full = full;
        self.stand(server);
    }

    fn make_room(&mut self, server: usize) {
        if self.places.len() <= server {
            self.places.resize(server + 1, RoundRobinEntry { fresh: true, ..RoundRobinEntry::default() });
        }
    }

    /// Puts a server where its place says.
    fn stand(&mut self, server: usize) {
        let place = &self.places[server];
        let stands = place.weight > 0 && !place.full;
        if stands && place.fresh {
            self.aside.set(server, (-(place.weight as i64), server as u32));
        } else {
            self.aside.remove(server);
        }
        if stands && !place.fresh {
            self.row.set(server, place.key(server));
        } else {
            self.row.remove(server);
        }
    }

    fn stand_all(&mut self) {
        let standing = |fresh| {
            let all = self.places.iter().enumerate();
            all.filter(move |(_, place)| place.weight > 0 && !place.full && place.fresh == fresh)
        };
        self.row.fill(standing(false).map(|(server, place)| (server, place.key(server))));
        self.aside.fill(standing(true).map(|(server, place)| (server, (-(place.weight as i64), server as u32))));
    }

    /// After a reload: `old[i]` is where server `i` was before. Who was there keeps its turn, a new one waits for its own.
    pub(super) fn inherit(&mut self, before: &RoundRobin, old: &[Option<usize>]) {
        self.take_over(before, old);
        // A heavier weight counts at once: nobody waits longer than for a whole turn of it.
        for place in self.places.iter_mut().filter(|place| place.weight > 0 && !place.fresh) {
            place.due = place.due.min(self.position + self.total / place.weight + 1);
        }
        self.stand_all();
    }

    fn take_over(&mut self, before: &RoundRobin, old: &[Option<usize>]) {
        self.position = before.position;
        for (server, place) in self.places.iter_mut().enumerate() {
            let kept = old.get(server).copied().flatten().and_then(|old| before.places.get(old));
            match kept.filter(|kept| kept.weight > 0) {
                Some(kept) => {
                    let rest = if kept.weight == place.weight { kept.rest } else { 0 };
                    *place = RoundRobinEntry { weight: place.weight, full: place.full, rest, ..*kept };
                }
                None if before.position > 0 && place.weight > 0 => {
                    place.fresh = false;
                    place.last = before.position;
                    place.due = before.position + self.total / place.weight;
                    place.placed = before.position;
                }
                None => {}
            }
        }
    }

    /// Everybody's place, to be remembered.
    pub(super) fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> Turns {
        if self.position == 0 {
            return Turns::default();
        }
        let turn = |(server, place): (usize, &RoundRobinEntry)| {
            let RoundRobinEntry { weight, fresh, due, rest, last, placed, .. } = *place;
            Some((name(server)?, Turn { weight, fresh, due, rest, last, placed }))
        };
        Turns { position: self.position, places: self.places.iter().enumerate().filter_map(turn).collect() }
    }

    /// Goes on from there: as after a reload. Places that cannot be (another version may have another idea of them) are
    /// brought within bounds.
    pub(super) fn recall(&mut self, turns: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        /// Positions beyond it are no count of choices.
        const POSITION_MAX: u64 = 1 << 62;
        if turns.position > POSITION_MAX {
            return;
        }
        let mut before = RoundRobin { position: turns.position, ..RoundRobin::default() };
        let mut old = vec![None; self.places.len()];
        for (name, turn) in &turns.places {
            let Some(server) = index(name).filter(|server| *server < old.len()) else { continue };
            let weight = turn.weight.min(WEIGHT_MAX);
            old[server] = Some(before.places.len());
            before.places.push(RoundRobinEntry {
                weight,
                full: false,
                fresh: turn.fresh,
                due: turn.due.min(turns.position + WEIGHT_MAX),
                rest: turn.rest.min(weight.saturating_sub(1)),
                last: turn.last.min(turns.position),
                placed: turn.placed.min(turns.position),
            });
        }
        self.take_over(&before, &old);
        self.stand_all();
    }

    /// The next one that is not `full`; `avoid` only when there is no other.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let Some(server) = self.best(avoid, &full) else {
            return if self.total == 0 { Choice::None } else { Choice::Full };
        };
        let (position, total) = (self.position, self.total);
        let place = &mut self.places[server];
        if place.fresh {
            (place.fresh, place.due, place.rest) = (false, position, 0);
        }
        let step = total / place.weight;
        // Turns that were missed for more than one round (it was full) are lost.
        place.last = if place.due + 2 * step + 2 < position { position } else { place.due };
        place.due = place.last + step;
        place.rest += total % place.weight;
        if place.rest >= place.weight {
            place.rest -= place.weight;
            place.due += 1;
        }
        place.placed = position + 1;
        self.position += 1;
        self.stand(server);
        Choice::Server(server)
    }

    /// Who is due comes first, then who stands aside, then who is not due yet.
    fn best(&self, avoid: Option<usize>, full: &impl Fn(usize) -> bool) -> Option<usize> {
        let will_do = |server: usize| Some(server) != avoid && !full(server);
        let due = self.row.first(will_do);
        let is_due = due.is_some_and(|((due, ..), _)| due <= self.position);
        let fresh = || self.aside.first(will_do).map(|(_, server)| server);
        let row = due.map(|(_, server)| server);
        let best = if is_due { row } else { fresh().or(row) };
        best.or(avoid.filter(|server| self.places.get(*server).is_some_and(|place| place.weight > 0) && !full(*server)))
    }
}

impl RoundRobinEntry {
    /// Smaller is earlier.
    fn key(&self, server: usize) -> (u64, i64, u64, u32) {
        (self.due, self.rest as i64 - self.weight as i64, self.placed, server as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_weights(weights: &[u32]) -> RoundRobin {
        let mut rows = RoundRobin::default();
        weights.iter().enumerate().for_each(|(server, weight)| rows.set_weight(server, weight * 16));
        rows
    }

    fn turns(rows: &mut RoundRobin, count: usize, full: impl Fn(usize) -> bool) -> String {
        let turn = |_| match rows.next(None, &full) {
            Choice::Server(server) => (server + 1).to_string(),
            Choice::Full => "f".into(),
            Choice::None => "-".into(),
        };
        (0..count).map(turn).collect()
    }

    /// The order in which HAProxy 2.6 served requests that came one after the other.
    fn check(weights: &[u32], expect: &str) {
        assert_eq!(turns(&mut with_weights(weights), expect.len(), |_| false), expect, "{weights:?}");
    }

    #[test]
    fn the_order_is_haproxys() {
        check(&[1, 1, 1], "123123123123123123123123123123123123123123123123123123123123");
        check(&[1, 2], "221221221221221221221221221221221221221221221221221221221221");
        check(&[2, 1], "112112112112112112112112112112112112112112112112112112112112");
        check(&[1, 2, 3], "323132323132323132323132323132323132323132323132323132323132");
        check(&[5, 1, 1], "111211311121131112113111211311121131112113111211311121131112");
        check(&[3, 3, 2], "121231213212312132123121321231213212312132123121321231213212");
        check(&[7, 3, 5, 1], "131231132131412313123113213141231312311321314123131231132131");
        check(&[1, 3, 3, 7, 2], "424345243414254342434524341425434243452434142543424345243414");
        check(&[256, 255, 254], "121321321321321321321321321321321321321321321321321321321321");
        check(&[1, 10, 100], "333333333323333333331323333333333233333333332333333333323333");
        check(&[26, 3, 7, 3], "113112113114113111231111341113112113114113112113114113111231");
    }

    #[test]
    fn weights_are_kept_in_the_long_run() {
        let mut rows = with_weights(&[3, 200, 17, 80]);
        let all = turns(&mut rows, 3000, |_| false);
        let count = |server| all.matches(server).count();
        assert_eq!([count("1"), count("2"), count("3"), count("4")], [30, 2000, 170, 800]);
    }

    #[test]
    fn full_servers_lose_their_turns() {
        let mut rows = with_weights(&[1, 1, 1]);
        assert_eq!(turns(&mut rows, 4, |server| server == 0), "2323");
        assert_eq!(turns(&mut rows, 2, |_| true), "ff");
        let again = turns(&mut rows, 9, |_| false);
        assert!(!again.contains("111"), "{again}");
    }

    #[test]
    fn one_that_failed_is_avoided_unless_it_is_alone() {
        let mut rows = with_weights(&[1, 1]);
        assert_eq!(rows.next(Some(0), |_| false), Choice::Server(1));
        assert_eq!(rows.next(Some(0), |server| server == 1), Choice::Server(0));
        assert_eq!(rows.next(Some(0), |_| true), Choice::Full);
    }

    #[test]
    fn a_server_comes_goes_and_changes() {
        let mut rows = with_weights(&[1, 1, 1]);
        assert_eq!(turns(&mut rows, 4, |_| false), "1231");
        rows.set_weight(1, 0);
        assert_eq!(turns(&mut rows, 4, |_| false), "3131");
        rows.set_weight(1, 16);
        let mixed = turns(&mut rows, 6, |_| false);
        assert_eq!(mixed.matches('2').count(), 2, "{mixed}");
        rows.set_weight(0, 0);
        rows.set_weight(1, 0);
        rows.set_weight(2, 0);
        assert_eq!(turns(&mut rows, 1, |_| false), "-");
    }

    #[test]
    fn a_heavier_server_gets_its_new_place_at_once() {
        let mut rows = with_weights(&[1, 1, 1, 1, 1]);
        turns(&mut rows, 35, |_| false);
        rows.set_weight(4, 32);
        assert_eq!(turns(&mut rows, 12, |_| false), "125345125345");
    }

    #[test]
    fn another_process_goes_on_with_the_turns() {
        let names = ["a", "b", "c"];
        let name = |server: usize| names.get(server).map(|name| Arc::from(*name));
        for (weights, until) in [([1, 1, 1], 4), ([1, 2, 3], 7), ([5, 1, 1], 3)] {
            let mut before = with_weights(&weights);
            turns(&mut before, until, |_| false);
            let mut after = with_weights(&weights);
            after.recall(&before.turns(&name), &|name| names.iter().position(|other| *other == name));
            assert_eq!(turns(&mut after, 24, |_| false), turns(&mut before, 24, |_| false), "{weights:?}");
        }
    }

    #[test]
    fn a_reload_keeps_the_turns() {
        let mut before = with_weights(&[1, 1, 1]);
        assert_eq!(turns(&mut before, 4, |_| false), "1231");
        // The first is gone, a new one stands in front.
        let mut after = with_weights(&[1, 1, 1]);
        after.inherit(&before, &[None, Some(1), Some(2)]);
        assert_eq!(turns(&mut after, 6, |_| false), "231231");
    }
}
