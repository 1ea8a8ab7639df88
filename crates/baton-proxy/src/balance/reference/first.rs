//! `first` that looks at every server.

use super::super::group::Choice;

/// Servers in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct First(Vec<(u32, usize)>);

impl First {
    pub(super) fn rebuild(&mut self, servers: impl Iterator<Item = (u32, usize)>) {
        self.0.clear();
        self.0.extend(servers);
        self.0.sort_unstable();
    }

    /// The first free one; another than the one to avoid if there is one.
    pub(super) fn next(&self, avoid: Option<usize>, full: impl Fn(usize) -> bool) -> Choice {
        let mut free = self.0.iter().map(|(_, server)| *server).filter(|server| !full(*server));
        match free.next() {
            Some(server) if Some(server) == avoid => Choice::Server(free.next().unwrap_or(server)),
            Some(server) => Choice::Server(server),
            None if self.0.is_empty() => Choice::None,
            None => Choice::Full,
        }
    }
}
