//! A static table of servers, each as often as its weight: `static-rr`, and `hash-type map-based`.

use super::group::Choice;

/// The table, and the place that round robin has reached in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    table: Vec<usize>,
    next: usize,
}

impl Map {
    /// Lays the table again for servers and weights (in the order of the configuration).
    pub(super) fn rebuild(&mut self, servers: impl Iterator<Item = (usize, u32)>) {
        self.table.clear();
        for (server, _) in servers {
            self.table.push(server);
        }
        if self.next >= self.table.len() {
            self.next = 0;
        }
    }

    pub(super) fn inherit(&mut self, before: &Map) {
        self.next = if before.next < self.table.len() { before.next } else { 0 };
    }

    /// The server of a hash, full or not.
    pub(super) fn find(&self, hash: u32) -> Choice {
        match self.table.len() {
            0 => Choice::None,
            length => Choice::Server(self.table[hash as usize % length]),
        }
    }

    /// Round robin through the table.
    pub(super) fn next(&mut self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let length = self.table.len();
        let mut avoided = None;
        for step in 0..length {
            let at = (self.next + step) % length;
            let server = self.table[at];
            if full(server) {
                continue;
            }
            if Some(server) == avoid {
                avoided = avoided.or(Some(at));
                continue;
            }
            self.next = (at + 1) % length;
            return Choice::Server(server);
        }
        match avoided {
            Some(at) => {
                self.next = (at + 1) % length;
                Choice::Server(self.table[at])
            }
            None if length == 0 => Choice::None,
            None => Choice::Full,
        }
    }
}
