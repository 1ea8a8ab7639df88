//! `balance first`: the first server by `id` that has a free slot.

use super::group::Choice;
use super::heap::Heap;

/// Servers in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct First {
    /// Those that take part and are not known to be full.
    free: Heap<(u32, u32)>,
    /// Of every server its `id`, whether it takes part, and whether it is known to be full.
    servers: Vec<Place>,
    /// How many take part.
    usable: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    id: u32,
    usable: bool,
    full: bool,
}

impl First {
    /// Whether the server takes part.
    pub(super) fn set_usable(&mut self, server: usize, id: u32, usable: bool) {
        self.make_room(server);
        let place = &mut self.servers[server];
        self.usable = self.usable - usize::from(place.usable) + usize::from(usable);
        (place.id, place.usable) = (id, usable);
        self.stand(server);
    }

    /// Whether the server is known to be full: nobody looks at it meanwhile.
    pub(super) fn set_full(&mut self, server: usize, full: bool) {
        self.make_room(server);
        self.servers[server].full = full;
        self.stand(server);
    }

    /// The first free one; another than the one to avoid if there is one.
    pub(super) fn next(&self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let best = self.free.first(|server| Some(server) != avoid && !full(server)).map(|(_, server)| server);
        let is_free = |server: &usize| self.servers.get(*server).is_some_and(|place| place.usable) && !full(*server);
        match best.or_else(|| avoid.filter(is_free)) {
            Some(server) => Choice::Server(server),
            None if self.usable == 0 => Choice::None,
            None => Choice::Full,
        }
    }

    fn make_room(&mut self, server: usize) {
        if self.servers.len() <= server {
            self.servers.resize(server + 1, Place::default());
        }
    }

    fn stand(&mut self, server: usize) {
        let place = self.servers[server];
        if place.usable && !place.full {
            self.free.set(server, (place.id, server as u32));
        } else {
            self.free.remove(server);
        }
    }
}
