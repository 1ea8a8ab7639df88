//! `roundrobin` that looks at every server.

use super::super::group::{Choice, WEIGHT_SCALE};
use super::super::memory::Turns;

/// The largest weight in the row.
const WEIGHT_MAX: u64 = 256 * WEIGHT_SCALE as u64;

/// Servers by index; those without a weight take no part.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    places: Vec<Place>,
    total: u64,
    /// The row's position: choices made.
    position: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    weight: u64,
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
        if self.places.len() <= server {
            self.places.resize(server + 1, Place { fresh: true, ..Place::default() });
        }
        let weight = u64::from(weight);
        let before = self.places[server].weight;
        self.total = self.total - before + weight;
        let place = &mut self.places[server];
        place.weight = weight;
        if weight == 0 || (place.fresh && self.position == 0) {
            return;
        }
        // Coming (back) it waits for a whole turn; with another weight its running turn gets the new length.
        let from = if before == 0 || place.fresh { self.position } else { place.last };
        *place = Place {
            fresh: false,
            due: (from + self.total / weight).max(self.position),
            rest: 0,
            last: from,
            placed: self.position,
            weight,
        };
    }

    /// After a reload: `old[i]` is where server `i` was before. Who was there keeps its turn, a new one waits for its own.
    pub(super) fn inherit(&mut self, before: &RoundRobin, old: &[Option<usize>]) {
        self.take_over(before, old);
        // A heavier weight counts at once: nobody waits longer than for a whole turn of it.
        for place in self.places.iter_mut().filter(|place| place.weight > 0 && !place.fresh) {
            place.due = place.due.min(self.position + self.total / place.weight + 1);
        }
    }

    fn take_over(&mut self, before: &RoundRobin, old: &[Option<usize>]) {
        self.position = before.position;
        for (server, place) in self.places.iter_mut().enumerate() {
            let kept = old.get(server).copied().flatten().and_then(|old| before.places.get(old));
            match kept.filter(|kept| kept.weight > 0) {
                Some(kept) if kept.weight == place.weight => *place = *kept,
                Some(kept) => {
                    *place = Place { weight: place.weight, rest: 0, ..*kept };
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
            before.places.push(Place {
                weight,
                fresh: turn.fresh,
                due: turn.due.min(turns.position + WEIGHT_MAX),
                rest: turn.rest.min(weight.saturating_sub(1)),
                last: turn.last.min(turns.position),
                placed: turn.placed.min(turns.position),
            });
        }
        self.take_over(&before, &old);
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
        Choice::Server(server)
    }

    fn best(&self, avoid: Option<usize>, full: &impl Fn(usize) -> bool) -> Option<usize> {
        let mut first: Option<(Rank, usize)> = None;
        let mut avoided = false;
        for (server, place) in self.places.iter().enumerate() {
            if place.weight == 0 {
                continue;
            }
            if Some(server) == avoid {
                avoided = !full(server);
                continue;
            }
            // Asking whether it is full costs more than comparing, so that comes last.
            let rank = self.rank(place);
            if first.is_none_or(|(best, _)| rank < best) && !full(server) {
                first = Some((rank, server));
            }
        }
        first.map(|(_, server)| server).or(avoid.filter(|_| avoided))
    }

    /// Who is due comes first, then who stands aside, then who is not due yet.
    fn rank(&self, place: &Place) -> Rank {
        if place.fresh {
            return (1, 0, -(place.weight as i64), 0);
        }
        let early = u8::from(place.due > self.position) * 2;
        (early, place.due, place.rest as i64 - place.weight as i64, place.placed)
    }
}

/// Smaller is earlier.
type Rank = (u8, u64, i64, u64);
