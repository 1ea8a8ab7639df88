//! `hash-type consistent` and `balance random`: servers spread over a ring of hashes.

use super::group::{Choice, Question};
use super::hash::avalanche;

/// The ring: points sorted by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    points: Vec<(u32, usize)>,
    last: u32,
}

impl Ring {
    /// Puts a server on the ring with as many points as its effective weight; 0 takes it off.
    pub(super) fn set_weight(&mut self, server: usize, id: u32, weight: u32) {
        self.points.retain(|(_, other)| *other != server);
        self.points.extend((0..weight).map(|number| (avalanche(id.wrapping_mul(4096).wrapping_add(number)), server)));
        self.points.sort_unstable();
    }

    pub(super) fn inherit(&mut self, before: &Ring) {
        self.last = before.last;
    }

    pub(super) fn find(&self, hash: u32, _question: &Question<'_>) -> Choice {
        match self.at(hash) {
            Some((_, server)) => Choice::Server(server),
            None => Choice::None,
        }
    }

    pub(super) fn draw(&self, question: &Question<'_>, draws: u32) -> Choice {
        let mut random = question.random;
        let mut best: Option<usize> = None;
        let mut seen_full = false;
        for _ in 0..draws.max(1) {
            random = avalanche(random.wrapping_add(0x9e37_79b9));
            let Some((_, server)) = self.at(random) else { return Choice::None };
            let load = (question.load)(server);
            if load.full {
                seen_full = true;
                continue;
            }
            let better = best.is_none_or(|best| {
                let other = (question.load)(best);
                u64::from(load.served) * u64::from(other.weight) < u64::from(other.served) * u64::from(load.weight)
            });
            if better {
                best = Some(server);
            }
        }
        match best {
            Some(server) => Choice::Server(server),
            None if seen_full => self.free_after(random, question),
            None => Choice::None,
        }
    }

    /// Round robin along the ring, for requests without a key.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        if self.points.is_empty() {
            return Choice::None;
        }
        let start = self.points.partition_point(|(place, _)| *place <= self.last);
        let (before, after) = self.points.split_at(start);
        let mut avoided = None;
        for &(place, server) in after.iter().chain(before) {
            if full(server) {
                continue;
            }
            if Some(server) == avoid {
                avoided = avoided.or(Some((place, server)));
                continue;
            }
            self.last = place;
            return Choice::Server(server);
        }
        match avoided {
            Some((place, server)) => {
                self.last = place;
                Choice::Server(server)
            }
            None => Choice::Full,
        }
    }

    fn free_after(&self, hash: u32, question: &Question<'_>) -> Choice {
        let start = self.points.partition_point(|(place, _)| *place < hash);
        let (before, after) = self.points.split_at(start);
        match after.iter().chain(before).find(|(_, server)| !(question.load)(*server).full) {
            Some(&(_, server)) => Choice::Server(server),
            None => Choice::Full,
        }
    }

    fn at(&self, hash: u32) -> Option<(u32, usize)> {
        let start = self.points.partition_point(|(place, _)| *place < hash);
        self.points.get(start).or_else(|| self.points.first()).copied()
    }
}
