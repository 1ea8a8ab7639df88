//! The servers of a backend as its algorithm sees them: active ones, and backups for when there is no active one.

use std::collections::BTreeSet;
use std::sync::Arc;

use baton_model::{Algorithm, Balance};

use super::first::First;
use super::layout::{Layout, LayoutOrder, LayoutOrders, Layouts};
use super::least_conn::LeastConn;
use super::map::Map;
use super::memory::Turns;
use super::ring::Ring;
use super::round_robin::RoundRobin;

/// A weight of 1 in the algorithms: slow start moves in these steps.
pub(super) const WEIGHT_SCALE: u32 = 16;

/// What an algorithm wants to know of a server at the moment of choice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ServerLoad {
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
    /// The weight it has when it is usable and warm.
    pub(super) nominal: u32,
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
    pub(super) load: &'a dyn Fn(usize) -> ServerLoad,
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
#[derive(Debug)]
enum AlgorithmState {
    RoundRobin(RoundRobin),
    LeastConn(LeastConn),
    First(First),
    Map(Map),
    Ring(Ring),
}

/// All servers of a backend.
#[derive(Debug)]
pub(super) struct Group {
    balance: Balance,
    all_backups: bool,
    members: Vec<Member>,
    active: AlgorithmState,
    backups: AlgorithmState,
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
        let (active, backups) =
            (AlgorithmState::new(balance, members.len()), AlgorithmState::new(balance, members.len()));
        let mut group = Group {
            #[cfg(test)]
            reference: super::reference::Group::new(balance, all_backups, members.clone()),
            balance: balance.clone(),
            all_backups,
            members,
            active,
            backups,
            usable: 0,
            usable_backups: BTreeSet::new(),
        };
        group.fill();
        group
    }

    /// Goes on, with other servers, where the group of another configuration is: `old[i]` is where member `i` stood there. Loads and
    /// positions are kept.
    pub(super) fn inherit(&mut self, before: &Group, old: &[Option<usize>]) {
        for (server, at) in old.iter().enumerate() {
            let Some(kept) = at.and_then(|at| before.members.get(at)) else { continue };
            if kept.load > 0 || kept.full {
                let (load, full) = (kept.load, kept.full);
                self.update(server, Member { load, full, ..self.members[server] });
            }
        }
        #[cfg(test)]
        self.reference.inherit(&before.reference, old, &self.members);
        if before.balance.algorithm == self.balance.algorithm && before.balance.hash == self.balance.hash {
            self.active.inherit(&before.active, old);
            self.backups.inherit(&before.backups, old);
        }
        for (core, backup) in [(&mut self.active, false), (&mut self.backups, true)] {
            if let AlgorithmState::LeastConn(core) = core {
                core.arrive(self.members.iter().enumerate().filter(|(_, member)| member.backup == backup));
            }
        }
    }

    /// One more server, behind all others, which takes no part yet.
    pub(super) fn append(&mut self, member: Member) {
        #[cfg(test)]
        self.reference.append(member);
        let server = self.members.len();
        self.members.push(member);
        [&mut self.active, &mut self.backups].into_iter().for_each(AlgorithmState::append);
        let core = if member.backup { &mut self.backups } else { &mut self.active };
        core.update(server, Member::default(), member);
    }

    /// Lays at once what there is to lay, unless it was laid before.
    pub(super) fn lay(&mut self, before: &Layouts) {
        if let Some(orders) = self.orders() {
            self.take(orders.lay(before));
        }
    }

    /// What is laid now.
    pub(super) fn layouts(&self) -> Layouts {
        Layouts([&self.active, &self.backups].map(AlgorithmState::layout))
    }

    /// Whether something has to be laid. Until it is, choices may not be in order, but they go to usable servers.
    pub(super) fn is_stale(&self) -> bool {
        self.active.is_stale() || self.backups.is_stale()
    }

    /// What has to be laid.
    pub(super) fn orders(&self) -> Option<LayoutOrders> {
        let order =
            |core: &AlgorithmState, backup| core.is_stale().then(|| core.order(&self.members, backup)).flatten();
        let orders = [order(&self.active, false), order(&self.backups, true)];
        orders.iter().any(Option::is_some).then_some(LayoutOrders(orders))
    }

    /// Goes on with what was laid, and returns what was in use, to be dropped when the lock is released.
    pub(super) fn take(&mut self, Layouts([active, backups]): Layouts) -> Layouts {
        let active = active.and_then(|layout| self.active.take(layout, &self.members, false));
        let backups = backups.and_then(|layout| self.backups.take(layout, &self.members, true));
        Layouts([active, backups])
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

    /// The effective weight, or the nominal one, may have changed; 0 is not usable.
    pub(super) fn set_weight(&mut self, server: usize, weight: u32, nominal: u32, load: u32) {
        let before = self.members[server];
        if (before.weight, before.nominal) == (weight, nominal) {
            return;
        }
        #[cfg(test)]
        self.reference.set_weight(server, weight, load);
        match (before.weight > 0, weight > 0, before.backup) {
            (false, true, true) => _ = self.usable_backups.insert(server),
            (true, false, true) => _ = self.usable_backups.remove(&server),
            (false, true, false) => self.usable += 1,
            (true, false, false) => self.usable -= 1,
            (true, true, _) | (false, false, _) => {}
        }
        self.update(server, Member { weight, nominal, load, ..before });
    }

    /// Slots or queue of a server changed.
    pub(super) fn set_load(&mut self, server: usize, load: u32) {
        #[cfg(test)]
        self.reference.set_load(server, load);
        let core = if self.members[server].backup { &self.backups } else { &self.active };
        if let AlgorithmState::RoundRobin(_) | AlgorithmState::First(_) = core {
            // They go by turns and places: nothing but the count changes.
            self.members[server].load = load;
            return;
        }
        self.update(server, Member { load, ..self.members[server] }).set_load(server, load);
    }

    /// Whether a server certainly has no free slot. One that is not said to be full may be nevertheless.
    pub(super) fn set_full(&mut self, server: usize, full: bool) {
        if self.members[server].full != full {
            self.update(server, Member { full, ..self.members[server] });
        }
    }

    fn update(&mut self, server: usize, after: Member) -> &mut AlgorithmState {
        let before = std::mem::replace(&mut self.members[server], after);
        let core = if after.backup { &mut self.backups } else { &mut self.active };
        core.update(server, before, after);
        core
    }

    /// Chooses.
    pub(super) fn choose(&mut self, question: &Question<'_>) -> Choice {
        let choice = self.chosen(question);
        #[cfg(test)]
        if !self.is_stale() {
            assert_eq!(choice, self.reference.choose(question), "{:?} of {:?}", self.balance, self.members);
        }
        choice
    }

    fn chosen(&mut self, question: &Question<'_>) -> Choice {
        let (core, backup) = match self.first_backup() {
            _ if self.usable > 0 => (&mut self.active, false),
            None => return Choice::None,
            Some(_) if self.all_backups => (&mut self.backups, true),
            Some(server) => return Choice::Server(server),
        };
        match core.choose(&self.balance.algorithm, question, &self.members) {
            // Nobody of those who are usable now was laid yet.
            Choice::None => {
                let usable = |member: &Member| member.backup == backup && member.weight > 0;
                self.members.iter().position(usable).map_or(Choice::None, Choice::Server)
            }
            choice => choice,
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
        for (server, member) in self.members.iter().enumerate() {
            let core = if member.backup { &mut self.backups } else { &mut self.active };
            core.update(server, Member::default(), *member);
            match (member.weight > 0, member.backup) {
                (true, true) => _ = self.usable_backups.insert(server),
                (true, false) => self.usable += 1,
                (false, _) => {}
            }
        }
    }
}

impl AlgorithmState {
    /// For so many servers, of which none takes part yet.
    fn new(balance: &Balance, servers: usize) -> AlgorithmState {
        match balance.algorithm {
            Algorithm::RoundRobin => AlgorithmState::RoundRobin(RoundRobin::default()),
            Algorithm::LeastConn => AlgorithmState::LeastConn(LeastConn::default()),
            Algorithm::First => AlgorithmState::First(First::default()),
            Algorithm::StaticRr => AlgorithmState::Map(Map::new(servers)),
            Algorithm::Random { .. } => AlgorithmState::Ring(Ring::new(servers, balance.factor)),
            Algorithm::Source
            | Algorithm::Uri(_)
            | Algorithm::UrlParam { .. }
            | Algorithm::Hdr { .. }
            | Algorithm::RdpCookie(_)
            | Algorithm::Hash(_) => match balance.hash.consistent {
                true => AlgorithmState::Ring(Ring::new(servers, balance.factor)),
                false => AlgorithmState::Map(Map::new(servers)),
            },
        }
    }

    /// There is one more server.
    fn append(&mut self) {
        match self {
            AlgorithmState::Ring(core) => core.append(),
            // They make room when a server takes part.
            AlgorithmState::RoundRobin(_)
            | AlgorithmState::LeastConn(_)
            | AlgorithmState::First(_)
            | AlgorithmState::Map(_) => {}
        }
    }

    fn inherit(&mut self, before: &AlgorithmState, old: &[Option<usize>]) {
        match (self, before) {
            (AlgorithmState::RoundRobin(core), AlgorithmState::RoundRobin(before)) => core.inherit(before, old),
            (AlgorithmState::LeastConn(core), AlgorithmState::LeastConn(before)) => core.inherit(before),
            (AlgorithmState::Map(core), AlgorithmState::Map(before)) => core.inherit(before),
            (AlgorithmState::Ring(core), AlgorithmState::Ring(before)) => core.inherit(before),
            _ => {}
        }
    }

    fn is_stale(&self) -> bool {
        match self {
            AlgorithmState::Map(core) => core.wants().is_some(),
            AlgorithmState::Ring(core) => core.is_stale(),
            AlgorithmState::RoundRobin(_) | AlgorithmState::LeastConn(_) | AlgorithmState::First(_) => false,
        }
    }

    fn order(&self, members: &[Member], backup: bool) -> Option<LayoutOrder> {
        match self {
            AlgorithmState::Map(core) => {
                let weight = |member: &Member| if member.backup == backup { member.weight } else { 0 };
                core.wants()
                    .map(|edition| LayoutOrder::Table { edition, weights: members.iter().map(weight).collect() })
            }
            AlgorithmState::Ring(core) => {
                Some(LayoutOrder::Circle(core.wants(members, |member| member.backup == backup)))
            }
            AlgorithmState::RoundRobin(_) | AlgorithmState::LeastConn(_) | AlgorithmState::First(_) => None,
        }
    }

    fn layout(&self) -> Option<Layout> {
        match self {
            AlgorithmState::Map(core) => Some(Layout::Table { edition: 0, table: Arc::clone(core.table()) }),
            AlgorithmState::Ring(core) => Some(Layout::Circle(Arc::clone(core.circle()))),
            AlgorithmState::RoundRobin(_) | AlgorithmState::LeastConn(_) | AlgorithmState::First(_) => None,
        }
    }

    fn take(&mut self, layout: Layout, members: &[Member], backup: bool) -> Option<Layout> {
        match (self, layout) {
            (AlgorithmState::Map(core), Layout::Table { edition, table }) => {
                Some(Layout::Table { edition, table: core.take(table, edition) })
            }
            (AlgorithmState::Ring(core), Layout::Circle(circle)) => {
                Some(Layout::Circle(core.take(circle, members, |member| member.backup == backup)))
            }
            (_, layout) => Some(layout),
        }
    }

    fn turns(&self, name: &dyn Fn(usize) -> Option<Arc<str>>) -> Turns {
        match self {
            AlgorithmState::RoundRobin(core) => core.turns(name),
            AlgorithmState::LeastConn(core) => core.turns(name),
            AlgorithmState::Map(core) => Turns { position: core.position(), places: Vec::new() },
            AlgorithmState::Ring(core) => Turns { position: core.position(), places: Vec::new() },
            AlgorithmState::First(_) => Turns::default(),
        }
    }

    fn recall(&mut self, turns: &Turns, index: &dyn Fn(&str) -> Option<usize>) {
        match self {
            AlgorithmState::RoundRobin(core) => core.recall(turns, index),
            AlgorithmState::LeastConn(core) => core.recall(turns, index),
            AlgorithmState::Map(core) => core.recall(turns.position),
            AlgorithmState::Ring(core) => core.recall(turns.position),
            AlgorithmState::First(_) => {}
        }
    }

    /// A server is another one than before: its weight, its load, or whether it is full.
    fn update(&mut self, server: usize, before: Member, after: Member) {
        let Member { id, weight, load, full, .. } = after;
        let (weighs, fills) = (weight != before.weight, full != before.full);
        match self {
            AlgorithmState::RoundRobin(core) => {
                if weighs {
                    core.set_weight(server, weight);
                }
                if fills {
                    core.set_full(server, full);
                }
            }
            AlgorithmState::LeastConn(core) => {
                if weighs {
                    core.set_weight(server, weight, load);
                }
                if fills {
                    core.set_full(server, full);
                }
            }
            AlgorithmState::First(core) if weighs || fills => core.update(server, id, weight > 0, full),
            AlgorithmState::First(_) => {}
            AlgorithmState::Map(core) => core.update(server, before, after),
            AlgorithmState::Ring(core) => core.update(server, before, after),
        }
    }

    /// Slots or queue of a server changed, if only to what they were: it comes after others of that load.
    fn set_load(&mut self, server: usize, load: u32) {
        if let AlgorithmState::LeastConn(core) = self {
            core.set_load(server, load);
        }
    }

    fn choose(&mut self, algorithm: &Algorithm, question: &Question<'_>, members: &[Member]) -> Choice {
        let full = |server| (question.load)(server).full;
        match self {
            AlgorithmState::RoundRobin(core) => core.next(question.avoid, full),
            AlgorithmState::LeastConn(core) => core.next(question.avoid, full),
            AlgorithmState::First(core) => core.next(question.avoid, full),
            AlgorithmState::Map(core) => match question.key {
                Some(key) => core.find(key, members),
                None => core.next(question.avoid, full),
            },
            AlgorithmState::Ring(core) => match (algorithm, question.key) {
                (Algorithm::Random { draws }, _) => core.draw(question, *draws, members),
                (_, Some(key)) => core.find(key, members),
                (_, None) => core.next(question.avoid, full, members),
            },
        }
    }
}
