//! `balance first`: the first server by `id` that has a free slot.

use super::group::Choice;

/// Servers in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct First(Vec<(u32, usize)>);

impl First {
    pub(super) fn rebuild(&mut self, servers: impl Iterator<Item = (u32, usize)>) {
        self.0.clear();
        self.0.extend(servers);
        self.0.sort_unstable();
    }

    pub(super) fn next(&self, full: impl Fn(usize) -> bool) -> Choice {
        match self.0.iter().find(|(_, server)| !full(*server)) {
            Some(&(_, server)) => Choice::Server(server),
            None if self.0.is_empty() => Choice::None,
            None => Choice::Full,
        }
    }
}
