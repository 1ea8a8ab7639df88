//! `balance first`: the first server by `id` that has a free slot.

use super::group::Choice;
use super::heap::Heap;

/// Servers in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct First {
    /// Those that take part and are not known to be full.
    free: Heap<(u32, u32)>,
    /// Of every server whether it takes part.
    servers: Vec<bool>,
    /// How many take part.
    usable: usize,
}

impl First {
    /// Whether the server takes part, and whether it is known to be full: nobody looks at it as long as it is.
    pub(super) fn update(&mut self, server: usize, id: u32, usable: bool, full: bool) {
        if self.servers.len() <= server {
            self.servers.resize(server + 1, false);
        }
        let was_usable = std::mem::replace(&mut self.servers[server], usable);
        self.usable = self.usable - usize::from(was_usable) + usize::from(usable);
        match usable && !full {
            true => self.free.set(server, (id, server as u32)),
            false => self.free.remove(server),
        }
    }

    /// The first free one; another than the one to avoid if there is one.
    pub(super) fn next(&self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let best = self.free.first(|server| Some(server) != avoid && !full(server)).map(|(_, server)| server);
        let is_free = |server: &usize| self.servers.get(*server).is_some_and(|usable| *usable) && !full(*server);
        match best.or_else(|| avoid.filter(is_free)) {
            Some(server) => Choice::Server(server),
            None if self.usable == 0 => Choice::None,
            None => Choice::Full,
        }
    }
}
