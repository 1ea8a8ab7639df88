//! The load that `hash-balance-factor` allows.

use super::group::Member;

/// What servers may carry, as HAProxy shares it out: the sessions that all servers together may have are divided by weight in the
/// order of the configuration, and what one server's division leaves is given to the next one. Everyone may have one. Checked
/// against 120 recorded series of HAProxy 2.6.12 (`tests/choices.rs`).
///
/// What all servers up to one get together is the whole times their weights, divided: so a server's share follows from the sum of the
/// weights before it, which a Fenwick tree keeps.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// At `n`, counted from 1, the weights of as many servers up to `n` as its lowest bit says.
    tree: Vec<u64>,
    weights: u64,
    /// Sessions and requests queued on usable servers.
    sessions: u64,
    /// Percent of the average.
    factor: u64,
}

impl Shares {
    pub(super) fn new(servers: usize, factor: u32) -> Shares {
        Shares { tree: vec![0; servers + 1], weights: 0, sessions: 0, factor: factor.into() }
    }

    /// There is one more server, behind all others.
    pub(super) fn append(&mut self) {
        let at = self.tree.len();
        // Without a weight of its own, the sum of those that this place stands for.
        let (all, before) = (self.before(at - 1), self.before(at & (at - 1)));
        self.tree.push(all - before);
    }

    /// A server is another one than `before`.
    pub(super) fn update(&mut self, server: usize, before: Member, after: Member) {
        let sessions = |member: Member| if member.weight > 0 { u64::from(member.load) } else { 0 };
        self.sessions = self.sessions - sessions(before) + sessions(after);
        let (before, after) = (u64::from(before.weight), u64::from(after.weight));
        if before == after {
            return;
        }
        self.weights = self.weights - before + after;
        let mut at = server + 1;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = *sum - before + after;
            at += at & at.wrapping_neg();
        }
    }

    /// Whether a server may have one more session.
    pub(super) fn allows(&self, server: usize, members: &[Member]) -> bool {
        let Member { weight, load, .. } = members[server];
        let slots = ((self.sessions + 1) * self.factor).div_ceil(100);
        let weights = self.weights.max(1);
        let before = self.before(server);
        let share = slots * (before + u64::from(weight)) / weights - slots * before / weights;
        u64::from(load) < share.max(1)
    }

    /// The weights of all servers before one.
    fn before(&self, server: usize) -> u64 {
        let (mut at, mut sum) = (server, 0);
        while at > 0 {
            sum += self.tree[at];
            at &= at - 1;
        }
        sum
    }
}
