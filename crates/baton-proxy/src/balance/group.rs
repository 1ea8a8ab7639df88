//! The servers of a backend as its algorithm sees them: active ones, and backups for when there is no active one.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_model::{Algorithm, Balance};

use super::first::First;
use super::least_conn::LeastConn;
use super::map::Map;
use super::memory::Turns;
use super::ring::Ring;
use super::round_robin::RoundRobin;

/// A weight of 1 in the algorithms: slow start moves in these steps.
pub(super) const WEIGHT_SCALE: u32 = 16;

/// What an algorithm wants to know of a server at the moment of choice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Load {
    /// Slots in use.
    pub(super) served: u32,
    /// Requests in its own queue.
    pub(super) queued: u32,
    /// No slot is free, or others wait for one.
    pub(super) full: bool,
    /// Effective weight, in [`WEIGHT_SCALE`]ths.
    pub(super) weight: u32,
}

/// A server as the algorithms know it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Member {
    /// `id`.
    pub(super) id: u32,
    /// `backup`.
    pub(super) backup: bool,
    /// Effective weight in [`WEIGHT_SCALE`]ths; 0: not usable now.
    pub(super) weight: u32,
    /// Slots in use, and requests in its own queue.
    pub(super) load: u32,
    /// It has no free slot, whatever `minconn` and slow start make of its `maxconn`.
    pub(super) full: bool,
}

/// The question as the algorithms see it.
pub(super) struct Question<'a> {
    pub(super) key: Option<u32>,
    pub(super) random: u32,
    pub(super) avoid: Option<usize>,
    /// Percent of the average load a server may have (`hash-balance-factor`); 0: no limit.
    pub(super) factor: u32,
    pub(super) load: &'a dyn Fn(usize) -> Load,
}

/// An algorithm's choice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    /// This server; algorithms that hash may choose a full one.
    Server(usize),
    /// All are full.
    Full,
    /// There is no server.
    None,
}

/// Which algorithm family, with its state.
#[derive(Clone, Debug)]
enum Core {
    RoundRobin(RoundRobin),
    LeastConn(LeastConn),
    First(First),
    Map(Map),
    Ring(Ring),
}

/// All servers of a backend.
#[derive(Clone, Debug)]
pub(super) struct Group {
    balance: Balance,
    all_backups: bool,
    members: Vec<Member>,
    active: Core,
    backups: Core,
    /// How many active servers are usable.
    usable: usize,
    /// Usable backups.
    usable_backups: BTreeSet<usize>,
    /// What has to choose as this one does.
    #[cfg(test)]
    reference: super::reference::Group,
}

impl Group {
    pub(super) fn new(balance: &Balance, all_backups: bool, members: Vec<Member>) -> Group {
        let mut group = Group {
            #[cfg(test)]
            reference: super::reference::Group::new(balance, all_backups, members.clone()),
            balance: balance.clone(),
            all_backups,
            members,
            active: Core::new(balance),
            backups: Core::new(balance),
            usable: 0,
            usable_backups: BTreeSet::new(),
        };
        group.fill();
        group
    }

    /// The same for another configuration: `old[i]` is where the new member `i` stood before. Positions are kept.
    pub(super) fn rebuilt(
        &self,
        balance: &Balance,
        all_backups: bool,
        members: Vec<Member>,
        old: &[Option<usize>],
    ) -> Group {
        let mut group = Group::new(balance, all_backups, members);
        #[cfg(test)]
        group.reference.inherit(&self.reference, old);
        if self.balance.algorithm == group.balance.algorithm && self.balance.hash == group.balance.hash {
            group.active.inherit(&self.active, old);
            group.backups.inherit(&self.backups, old);
        }
        group.active.take_in(&group.members, false);
        group.backups.take_in(&group.members, true);
        group
    }

    /// Where the algorithm stands among active servers and among backups, to be remembered.
    pub(super) fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> (Turns, Turns) {
        (self.active.turns(name), self.backups.turns(name))
    }

    /// Goes on from there.
    pub(super) fn recall(&mut self, active: &Turns, backups: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        #[cfg(test)]
        self.reference.recall(active, backups, index);
        self.active.recall(active, index);
        self.backups.recall(backups, index);
    }

    /// Whether a request keeps to "its" server even when that one is full.
    pub(super) fn is_hashing(&self) -> bool {
        !matches!(
            self.balance.algorithm,
            Algorithm::RoundRobin
                | Algorithm::StaticRr
                | Algorithm::LeastConn
                | Algorithm::First
                | Algorithm::Random { .. }
        )
    }

    /// Usable servers: active, backup.
    pub(super) fn usable(&self) -> (usize, usize) {
        (self.usable, self.usable_backups.len())
    }

    /// Whether new sessions are balanced to `server` now.
    pub(super) fn takes_part(&self, server: usize) -> bool {
        let Some(member) = self.members.get(server) else { return false };
        member.weight > 0
            && (!member.backup || self.usable == 0 && (self.all_backups || self.first_backup() == Some(server)))
    }

    /// The effective weight changed; 0 is not usable.
    pub(super) fn set_weight(&mut self, server: usize, weight: u32, load: u32) {
        let member = &mut self.members[server];
        let before = member.weight;
        if before == weight {
            return;
        }
        #[cfg(test)]
        self.reference.set_weight(server, weight, load);
        (member.weight, member.load) = (weight, load);
        let (is_usable, backup) = (weight > 0, member.backup);
        match (before > 0, backup) {
            (was_usable, false) => self.usable = self.usable - usize::from(was_usable) + usize::from(is_usable),
            (true, true) if !is_usable => _ = self.usable_backups.remove(&server),
            (false, true) => _ = self.usable_backups.insert(server),
            (true, true) => {}
        }
        let core = if backup { &mut self.backups } else { &mut self.active };
        core.set_weight(server, before, &self.members);
    }

    /// Slots or queue of a server changed.
    pub(super) fn set_load(&mut self, server: usize, load: u32) {
        let member = &mut self.members[server];
        member.load = load;
        #[cfg(test)]
        self.reference.set_load(server, load);
        let core = if member.backup { &mut self.backups } else { &mut self.active };
        if let Core::LeastConn(core) = core {
            core.set_load(server, load);
        }
    }

    /// Whether a server certainly has no free slot. One that is not said to be full may be nevertheless.
    pub(super) fn set_full(&mut self, server: usize, full: bool) {
        let member = &mut self.members[server];
        if member.full == full {
            return;
        }
        member.full = full;
        let core = if member.backup { &mut self.backups } else { &mut self.active };
        core.set_full(server, full);
    }

    /// Chooses.
    pub(super) fn choose(&mut self, question: &Question<'_>) -> Choice {
        let choice = self.chosen(question);
        #[cfg(test)]
        assert_eq!(choice, self.reference.choose(question), "{:?} of {:?}", self.balance, self.members);
        choice
    }

    fn chosen(&mut self, question: &Question<'_>) -> Choice {
        if self.usable > 0 {
            return self.active.choose(&self.balance.algorithm, question);
        }
        match self.first_backup() {
            None => Choice::None,
            Some(_) if self.all_backups => self.backups.choose(&self.balance.algorithm, question),
            Some(server) => Choice::Server(server),
        }
    }

    /// What is kept of every server is what there is to say of it.
    #[cfg(test)]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    fn first_backup(&self) -> Option<usize> {
        self.usable_backups.first().copied()
    }

    fn fill(&mut self) {
        self.active.fill(&self.members, false);
        self.backups.fill(&self.members, true);
        for (server, member) in self.members.iter().enumerate().filter(|(_, member)| member.weight > 0) {
            match member.backup {
                true => _ = self.usable_backups.insert(server),
                false => self.usable += 1,
            }
        }
    }
}

impl Core {
    fn new(balance: &Balance) -> Core {
        match balance.algorithm {
            Algorithm::RoundRobin => Core::RoundRobin(RoundRobin::default()),
            Algorithm::LeastConn => Core::LeastConn(LeastConn::default()),
            Algorithm::First => Core::First(First::default()),
            Algorithm::StaticRr => Core::Map(Map::default()),
            Algorithm::Random { .. } => Core::Ring(Ring::default()),
            Algorithm::Source
            | Algorithm::Uri(_)
            | Algorithm::UrlParam { .. }
            | Algorithm::Hdr { .. }
            | Algorithm::RdpCookie(_)
            | Algorithm::Hash(_) => match balance.hash.consistent {
                true => Core::Ring(Ring::default()),
                false => Core::Map(Map::default()),
            },
        }
    }

    fn fill(&mut self, members: &[Member], backup: bool) {
        let usable = members.iter().enumerate().filter(|(_, member)| member.backup == backup && member.weight > 0);
        match self {
            Core::RoundRobin(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.weight);
                }
            }
            Core::LeastConn(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.weight, 0);
                }
            }
            Core::First(core) => {
                for (server, member) in usable {
                    core.set_usable(server, member.id, true);
                }
            }
            Core::Map(core) => core.rebuild(usable.map(|(server, member)| (server, member.weight))),
            Core::Ring(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.id, member.weight);
                }
            }
        }
    }

    fn inherit(&mut self, before: &Core, old: &[Option<usize>]) {
        match (self, before) {
            (Core::RoundRobin(core), Core::RoundRobin(before)) => core.inherit(before, old),
            (Core::LeastConn(core), Core::LeastConn(before)) => core.inherit(before),
            (Core::Map(core), Core::Map(before)) => core.inherit(before),
            (Core::Ring(core), Core::Ring(before)) => core.inherit(before),
            _ => {}
        }
    }

    fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> Turns {
        match self {
            Core::RoundRobin(core) => core.turns(name),
            Core::LeastConn(core) => core.turns(name),
            Core::Map(core) => Turns { position: core.position(), places: Vec::new() },
            Core::Ring(core) => Turns { position: core.position(), places: Vec::new() },
            Core::First(_) => Turns::default(),
        }
    }

    fn recall(&mut self, turns: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        match self {
            Core::RoundRobin(core) => core.recall(turns, index),
            Core::LeastConn(core) => core.recall(turns, index),
            Core::Map(core) => core.recall(turns.position),
            Core::Ring(core) => core.recall(turns.position),
            Core::First(_) => {}
        }
    }

    /// After a reload: loads, and who is full.
    fn take_in(&mut self, members: &[Member], backup: bool) {
        for (server, member) in members.iter().enumerate().filter(|(_, member)| member.backup == backup) {
            if let Core::LeastConn(core) = self {
                core.set_load(server, member.load);
            }
            if member.full {
                self.set_full(server, true);
            }
        }
    }

    /// A server's weight is another one than `before`.
    fn set_weight(&mut self, server: usize, before: u32, members: &[Member]) {
        let Member { id, backup, weight, load, .. } = members[server];
        match self {
            Core::RoundRobin(core) => core.set_weight(server, weight),
            Core::LeastConn(core) => core.set_weight(server, weight, load),
            Core::First(core) => core.set_usable(server, id, weight > 0),
            Core::Ring(core) => core.set_weight(server, id, weight),
            Core::Map(_) => {
                // Static: only going up or down counts, a weight that changes meanwhile does not.
                if (before == 0) != (weight == 0) {
                    self.fill(members, backup);
                }
            }
        }
    }

    fn set_full(&mut self, server: usize, full: bool) {
        match self {
            Core::RoundRobin(core) => core.set_full(server, full),
            Core::LeastConn(core) => core.set_full(server, full),
            Core::First(core) => core.set_full(server, full),
            Core::Map(_) | Core::Ring(_) => {}
        }
    }

    fn choose(&mut self, algorithm: &Algorithm, question: &Question<'_>) -> Choice {
        let full = |server| (question.load)(server).full;
        match self {
            Core::RoundRobin(core) => core.next(question.avoid, full),
            Core::LeastConn(core) => core.next(question.avoid, full),
            Core::First(core) => core.next(question.avoid, full),
            Core::Map(core) => match question.key {
                Some(key) => core.find(key),
                None => core.next(question.avoid, full),
            },
            Core::Ring(core) => match (algorithm, question.key) {
                (Algorithm::Random { draws }, _) => core.draw(question, *draws),
                (_, Some(key)) => core.find(key, question),
                (_, None) => core.next(question.avoid, full),
            },
        }
    }
}
