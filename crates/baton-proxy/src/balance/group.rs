//! The servers of a backend as its algorithm sees them: active ones, and backups for when there is no active one.

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

/// What is fixed for a server between two reloads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Member {
    /// `id`.
    pub(super) id: u32,
    /// `backup`.
    pub(super) backup: bool,
    /// Effective weight in [`WEIGHT_SCALE`]ths; 0: not usable now.
    pub(super) weight: u32,
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
    /// Usable active servers, usable backups.
    usable: (usize, usize),
    /// The first usable backup.
    first_backup: Option<usize>,
}

impl Group {
    pub(super) fn new(balance: &Balance, all_backups: bool, members: Vec<Member>) -> Group {
        let mut group = Group {
            balance: balance.clone(),
            all_backups,
            members,
            active: Core::new(balance),
            backups: Core::new(balance),
            usable: (0, 0),
            first_backup: None,
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
        if self.balance.algorithm == group.balance.algorithm && self.balance.hash == group.balance.hash {
            group.active.inherit(&self.active, old);
            group.backups.inherit(&self.backups, old);
        }
        group
    }

    /// Where the algorithm stands among active servers and among backups, to be remembered.
    pub(super) fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> (Turns, Turns) {
        (self.active.turns(name), self.backups.turns(name))
    }

    /// Goes on from there.
    pub(super) fn recall(&mut self, active: &Turns, backups: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
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
        self.usable
    }

    /// Whether new sessions are balanced to `server` now.
    pub(super) fn takes_part(&self, server: usize) -> bool {
        let Some(member) = self.members.get(server) else { return false };
        member.weight > 0
            && (!member.backup || self.usable.0 == 0 && (self.all_backups || self.first_backup == Some(server)))
    }

    /// The effective weight changed; 0 is not usable.
    pub(super) fn set_weight(&mut self, server: usize, weight: u32, load: u32) {
        let before = self.members[server].weight;
        if before == weight {
            return;
        }
        self.members[server].weight = weight;
        let core = if self.members[server].backup { &mut self.backups } else { &mut self.active };
        core.set_weight(server, before, weight, load, &self.members);
        self.count();
    }

    /// Slots or queue of a server changed.
    pub(super) fn set_load(&mut self, server: usize, load: u32) {
        let core = if self.members[server].backup { &mut self.backups } else { &mut self.active };
        if let Core::LeastConn(core) = core {
            core.set_load(server, load);
        }
    }

    /// Chooses.
    pub(super) fn choose(&mut self, question: &Question<'_>) -> Choice {
        if self.usable.0 > 0 {
            return self.active.choose(&self.balance.algorithm, question);
        }
        match self.first_backup {
            None => Choice::None,
            Some(_) if self.all_backups => self.backups.choose(&self.balance.algorithm, question),
            Some(server) => Choice::Server(server),
        }
    }

    fn fill(&mut self) {
        self.active.fill(&self.members, false);
        self.backups.fill(&self.members, true);
        self.count();
    }

    fn count(&mut self) {
        let usable = |backup| self.members.iter().filter(|member| member.weight > 0 && member.backup == backup).count();
        self.usable = (usable(false), usable(true));
        self.first_backup = self.members.iter().position(|member| member.weight > 0 && member.backup);
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
            Core::First(core) => core.rebuild(usable.map(|(server, member)| (member.id, server))),
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
            (Core::LeastConn(core), Core::LeastConn(before)) => core.inherit(before, old),
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

    fn set_weight(&mut self, server: usize, before: u32, weight: u32, load: u32, members: &[Member]) {
        match self {
            Core::RoundRobin(core) => core.set_weight(server, weight),
            Core::LeastConn(core) => core.set_weight(server, weight, load),
            Core::Ring(core) => core.set_weight(server, members[server].id, weight),
            Core::First(_) | Core::Map(_) => {
                // Static: only going up or down counts, a weight that changes meanwhile does not.
                if (before == 0) != (weight == 0) {
                    self.fill(members, members[server].backup);
                }
            }
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
