//! `balance roundrobin`.

use super::group::Choice;

#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    servers: Vec<Place>,
    now: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    weight: u32,
    due: u64,
}

const LAP: u64 = 1 << 32;

impl RoundRobin {
    pub(super) fn set_weight(&mut self, server: usize, weight: u32) {
        if self.servers.len() <= server {
            self.servers.resize(server + 1, Place::default());
        }
        let place = &mut self.servers[server];
        if place.weight == 0 && weight > 0 {
            place.due = self.now.max(place.due);
        }
        place.weight = weight;
    }

    pub(super) fn inherit(&mut self, before: &RoundRobin, old: &[Option<usize>]) {
        self.now = before.now;
        for (place, old) in self.servers.iter_mut().zip(old) {
            place.due = old.and_then(|old| before.servers.get(old)).map_or(before.now, |old| old.due);
        }
    }

    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let usable = || self.servers.iter().enumerate().filter(|(_, place)| place.weight > 0);
        let best = usable()
            .filter(|(server, _)| !full(*server))
            .min_by_key(|(server, place)| (Some(*server) == avoid, place.due));
        let Some((server, place)) = best else {
            return if usable().next().is_none() { Choice::None } else { Choice::Full };
        };
        self.now = place.due;
        let place = &mut self.servers[server];
        place.due += LAP / u64::from(place.weight);
        Choice::Server(server)
    }
}
