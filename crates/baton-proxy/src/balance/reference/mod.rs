//! How choices are made in the simplest way: each looks at every server, each change lays everything anew. In tests each
//! [`Group`](super::group::Group) has one of these beside it, which has to choose as it does.

mod first;
mod least_conn;
mod map;
mod ring;
mod round_robin;

use baton_model::{Algorithm, Balance};

use self::first::First;
use self::least_conn::LeastConn;
use self::map::Map;
use self::ring::Ring;
use self::round_robin::RoundRobin;
use super::group::{Choice, Member, Question};
use super::memory::Turns;

/// Which algorithm family, with its state.
#[derive(Clone, Debug)]
enum ReferenceState {
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
    active: ReferenceState,
    backups: ReferenceState,
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
            active: ReferenceState::new(balance),
            backups: ReferenceState::new(balance),
            usable: (0, 0),
            first_backup: None,
        };
        group.fill();
        group
    }

    /// After a reload: `old[i]` is where the new member `i` stood before. Positions are kept.
    pub(super) fn inherit(&mut self, before: &Group, old: &[Option<usize>], members: &[Member]) {
        if before.balance.algorithm == self.balance.algorithm && before.balance.hash == self.balance.hash {
            self.active.inherit(&before.active, old);
            self.backups.inherit(&before.backups, old);
        }
        members.iter().enumerate().for_each(|(server, member)| self.set_load(server, member.load));
    }

    /// One more server, which takes no part yet.
    pub(super) fn append(&mut self, member: Member) {
        self.members.push(member);
    }

    /// Goes on from there.
    pub(super) fn recall(&mut self, active: &Turns, backups: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        self.active.recall(active, index);
        self.backups.recall(backups, index);
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
        if let ReferenceState::LeastConn(core) = core {
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

impl ReferenceState {
    fn new(balance: &Balance) -> ReferenceState {
        match balance.algorithm {
            Algorithm::RoundRobin => ReferenceState::RoundRobin(RoundRobin::default()),
            Algorithm::LeastConn => ReferenceState::LeastConn(LeastConn::default()),
            Algorithm::First => ReferenceState::First(First::default()),
            Algorithm::StaticRr => ReferenceState::Map(Map::default()),
            Algorithm::Random { .. } => ReferenceState::Ring(Ring::new(balance.factor)),
            Algorithm::Source
            | Algorithm::Uri(_)
            | Algorithm::UrlParam { .. }
            | Algorithm::Hdr { .. }
            | Algorithm::RdpCookie(_)
            | Algorithm::Hash(_) => match balance.hash.consistent {
                true => ReferenceState::Ring(Ring::new(balance.factor)),
                false => ReferenceState::Map(Map::default()),
            },
        }
    }

    fn fill(&mut self, members: &[Member], backup: bool) {
        let usable = members.iter().enumerate().filter(|(_, member)| member.backup == backup && member.weight > 0);
        match self {
            ReferenceState::RoundRobin(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.weight);
                }
            }
            ReferenceState::LeastConn(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.weight, 0);
                }
            }
            ReferenceState::First(core) => core.rebuild(usable.map(|(server, member)| (member.id, server))),
            ReferenceState::Map(core) => core.rebuild(usable.map(|(server, member)| (server, member.weight))),
            ReferenceState::Ring(core) => {
                for (server, member) in usable {
                    core.set_weight(server, member.id, member.weight);
                }
            }
        }
    }

    fn inherit(&mut self, before: &ReferenceState, old: &[Option<usize>]) {
        match (self, before) {
            (ReferenceState::RoundRobin(core), ReferenceState::RoundRobin(before)) => core.inherit(before, old),
            (ReferenceState::LeastConn(core), ReferenceState::LeastConn(before)) => core.inherit(before, old),
            (ReferenceState::Map(core), ReferenceState::Map(before)) => core.inherit(before),
            (ReferenceState::Ring(core), ReferenceState::Ring(before)) => core.inherit(before),
            _ => {}
        }
    }

    fn recall(&mut self, turns: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        match self {
            ReferenceState::RoundRobin(core) => core.recall(turns, index),
            ReferenceState::LeastConn(core) => core.recall(turns, index),
            ReferenceState::Map(core) => core.recall(turns.position),
            ReferenceState::Ring(core) => core.recall(turns.position),
            ReferenceState::First(_) => {}
        }
    }

    fn set_weight(&mut self, server: usize, before: u32, weight: u32, load: u32, members: &[Member]) {
        match self {
            ReferenceState::RoundRobin(core) => core.set_weight(server, weight),
            ReferenceState::LeastConn(core) => core.set_weight(server, weight, load),
            ReferenceState::Ring(core) => core.set_weight(server, members[server].id, weight),
            ReferenceState::First(_) | ReferenceState::Map(_) => {
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
            ReferenceState::RoundRobin(core) => core.next(question.avoid, full),
            ReferenceState::LeastConn(core) => core.next(question.avoid, full),
            ReferenceState::First(core) => core.next(question.avoid, full),
            ReferenceState::Map(core) => match question.key {
                Some(key) => core.find(key),
                None => core.next(question.avoid, full),
            },
            ReferenceState::Ring(core) => match (algorithm, question.key) {
                (Algorithm::Random { draws }, _) => core.draw(question, *draws),
                (_, Some(key)) => core.find(key, question),
                (_, None) => core.next(question.avoid, full),
            },
        }
    }
}
