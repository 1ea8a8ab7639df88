//! Random lives of backends: requests, changes and reloads in any order. In tests each choice is compared with that of a
//! [`reference`](super::reference); here it is looked, too, that names, cookies and what is counted beside are as they should be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_model::{Address, AdminState, Algorithm, EffectiveServer, Proxy, Role, Server, UriHash};
use baton_rules::QueuePriority;

use super::entry::Entry;
use super::inner::Wakers;
use super::replacement::{Effective, Encryptions, Replacement};
use super::server::GONE;
use super::*;
use crate::upstream::ServerTlsContext;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }
}

/// One backend's life.
struct Life {
    random: Random,
    state: Arc<BackendState>,
    now: Instant,
    slots: Vec<Slot>,
    waiting: Vec<QueueWait>,
}

fn proxy(random: &mut Random, algorithm: &Algorithm, names: u32) -> Proxy {
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.balance.algorithm = algorithm.clone();
    proxy.balance.hash.consistent = names.is_multiple_of(2);
    proxy.balance.factor = random.of(&[0, 0, 110, 150]);
    proxy.tcp.all_backups = random.below(2) == 0;
    proxy.tcp.persist = random.below(4) == 0;
    proxy.tcp.prefer_last_server = random.below(4) == 0;
    proxy.fullconn = random.of(&[None, Some(8)]);
    let (narrow, heavy) = (random.below(3) > 0, names < 5);
    for id in 1..=names {
        if random.below(5) > 0 {
            let at = random.below(proxy.servers.len() as u32 + 1) as usize;
            proxy.servers.insert(at, Arc::new(server_of(random, id, narrow, heavy)));
        }
    }
    proxy
}

fn server_of(random: &mut Random, id: u32, narrow: bool, heavy: bool) -> Server {
    let mut server = Server::new(format!("s{id}"), id, Address::Inet(([127, 0, 0, 1], 80).into()));
    server.weight = random.of(if heavy { &[0, 1, 1, 2, 3, 10, 100, 256] } else { &[0, 1, 1, 1, 2, 3, 4] });
    server.maxconn = if narrow { random.of(&[0, 1, 1, 2, 4]) } else { 0 };
    server.minconn = random.of(&[0, 0, 0, 1]);
    server.maxqueue = random.of(&[0, 2]);
    server.slowstart = random.of(&[None, None, None, Some(Duration::from_secs(3))]);
    server.cookie = random.of(&[None, Some(id), Some(id / 2)]).map(|value| format!("c{value}"));
    server.backup = random.below(5) == 0;
    server.disabled = random.below(8) == 0;
    server
}

/// Has a backend with these servers, and those that stay as they are: what operators set holds.
pub(super) fn edit(state: &Arc<BackendState>, proxy: &Proxy, now: Instant) {
    change(state, proxy, now, BackendState::replace);
}

/// Adds the last server of this configuration, which has one server more than the one in use.
pub(super) fn add(state: &Arc<BackendState>, proxy: &Proxy, now: Instant) {
    change(state, proxy, now, BackendState::add);
}

/// Takes this server out, which the configuration does not have any more, and the one in use has.
pub(super) fn remove(state: &Arc<BackendState>, proxy: &Proxy, server: &ServerState, now: Instant) {
    change(state, proxy, now, |state, proxy, effective, encryption, now| {
        state.remove(proxy, server, effective, encryption, now);
    });
}

fn change(
    state: &Arc<BackendState>,
    proxy: &Proxy,
    now: Instant,
    change: impl Fn(&Arc<BackendState>, &Arc<Proxy>, Effective<'_>, Encryptions<'_>, Instant),
) {
    let effective = |server: &Server| match state.server(&server.name) {
        Some(known) => {
            let Admin { maintenance, drain, .. } = known.admin();
            EffectiveServer { weight: known.weight(), admin: AdminState { maintenance, drain } }
        }
        None => EffectiveServer::of(server),
    };
    change(state, &Arc::new(proxy.clone()), &effective, &|_| None, now);
}

impl Life {
    fn new(seed: u64, algorithm: &Algorithm, names: u32) -> Life {
        let mut random = Random(seed);
        let now = Instant::now();
        let state = BackendState::new(&Arc::new(proxy(&mut random, algorithm, names)), now);
        Life { random, state, now, slots: Vec::new(), waiting: Vec::new() }
    }

    fn step(&mut self, algorithm: &Algorithm, names: u32) {
        let name = format!("s{}", self.random.below(names + 5));
        let server = self.state.server(&name);
        match self.random.below(40) {
            0..20 => self.request(server.as_ref()),
            20..26 if !self.slots.is_empty() => {
                let at = self.random.below(self.slots.len() as u32) as usize;
                drop(self.slots.swap_remove(at));
            }
            26..29 if !self.waiting.is_empty() => {
                let at = self.random.below(self.waiting.len() as u32) as usize;
                drop(self.waiting.swap_remove(at));
            }
            29 => self.now += Duration::from_millis(self.random.below(900).into()),
            30 => {
                let proxy = Arc::new(proxy(&mut self.random, algorithm, names));
                self.state.reconfigure(&proxy, self.now);
            }
            31 if self.random.below(4) == 0 => {
                let proxy = Arc::clone(&self.state.lock().proxy);
                let mut other = (*proxy).clone();
                if let Some(server) = other.servers.first_mut() {
                    Arc::make_mut(server).weight = self.random.below(if names < 5 { 257 } else { 6 });
                }
                self.state.reconfigure(&Arc::new(other), self.now);
            }
            32 if self.random.below(3) == 0 => self.edit(server.as_ref(), names),
            change => {
                if let Some(server) = server {
                    self.change(change, &server, names < 5);
                }
            }
        }
        self.check();
    }

    /// One server more, in maintenance, or one less.
    fn edit(&mut self, server: Option<&Arc<ServerState>>, names: u32) {
        let mut other = Proxy::clone(&self.state.lock().proxy);
        match server.filter(|_| self.random.below(2) == 0) {
            Some(server) => {
                server.set_admin(Admin { maintenance: true, ..server.admin() }, self.now);
                other.servers.retain(|other| other.name != *server.name());
                if self.random.below(2) == 0 {
                    return remove(&self.state, &other, server, self.now);
                }
            }
            None => {
                let id = names + 1 + self.random.below(4);
                let mut server = server_of(&mut self.random, id, false, names < 5);
                server.disabled = true;
                if other.servers.iter().all(|other| other.name != server.name) {
                    other.servers.push(Arc::new(server));
                    if self.random.below(2) == 0 {
                        return add(&self.state, &other, self.now);
                    }
                }
            }
        }
        edit(&self.state, &other, self.now);
    }

    fn request(&mut self, server: Option<&Arc<ServerState>>) {
        let cookie = format!("c{}", self.random.below(9)).into_bytes();
        let name = server.map(|server| server.name().to_string());
        let wanted = match (self.random.below(6), &name) {
            (0, _) => Some(WantedServer::Cookie(&cookie)),
            (1, Some(name)) => Some(WantedServer::Name(name)),
            _ => None,
        };
        let ask = PickCriteria {
            key: (self.random.below(3) > 0).then(|| hash::avalanche(self.random.below(1 << 20))),
            wanted,
            force: self.random.below(9) == 0,
            avoid: server.filter(|_| self.random.below(5) == 0),
            last: server.filter(|_| self.random.below(5) == 0),
            random: self.random.below(u32::MAX),
            priority: QueuePriority {
                class: self.random.below(3) as i16 - 1,
                offset_ms: self.random.below(2000) as i32 - 1000,
            },
            now: self.now,
        };
        let expected = self.expected(&ask);
        match self.state.pick(&ask) {
            Picked::Slot(slot) => {
                assert_eq!(expected.as_deref().filter(|_| slot.affinity() == Affinity::Kept), {
                    (slot.affinity() == Affinity::Kept).then(|| &**slot.server().name())
                });
                self.slots.push(slot);
            }
            Picked::Queue(waiting) => self.waiting.push(waiting),
            Picked::Full | Picked::None => {}
        }
    }

    /// The wanted server, looked for one by one.
    fn expected(&self, ask: &PickCriteria<'_>) -> Option<String> {
        let inner = self.state.lock();
        let has = |entry: &&Entry| match ask.wanted {
            Some(WantedServer::Cookie(value)) => entry.cookie.as_ref().is_some_and(|cookie| cookie.as_bytes() == value),
            Some(WantedServer::Name(name)) => &**entry.state.name() == name,
            None => false,
        };
        let may = |entry: &&Entry| {
            !ask.avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, &entry.state))
                && (ask.force || inner.settings.persist || entry.state.is_running())
        };
        let is_there = |entry: &&Entry| entry.state.index.load(Ordering::Relaxed) != GONE;
        inner.entries.iter().filter(is_there).filter(has).find(may).map(|entry| entry.state.name().to_string())
    }

    fn change(&mut self, change: u32, server: &Arc<ServerState>, heavy: bool) {
        let health = self.random.of(&[HealthState::Up, HealthState::Up, HealthState::Down, HealthState::Stopping]);
        let weight = self.random.of(if heavy { &[0, 1, 2, 50, 100, 256] } else { &[0, 1, 2, 5] });
        let (maintenance, drain) = (self.random.below(4) == 0, self.random.below(4) == 0);
        match change {
            31..34 => _ = server.set_health(health, self.now),
            34..36 => _ = server.set_admin(Admin { maintenance, drain, ..server.admin() }, self.now),
            36..38 => server.set_weight(weight, self.now),
            38 => server.set_elsewhere(self.random.below(3)),
            _ => {}
        }
    }

    /// What is counted beside is what there is.
    fn check(&self) {
        let inner = self.state.lock();
        let members = inner.group.members();
        assert_eq!(members.len(), inner.entries.len());
        for (index, entry) in inner.entries.iter().enumerate() {
            let member = members[index];
            if inner.directory.servers[index].is_none() {
                assert_eq!((member.weight, entry.sessions()), (0, 0), "{:?}", entry.state);
                assert_eq!(entry.state.index.load(Ordering::Relaxed), GONE);
                continue;
            }
            assert_eq!((member.load, member.full), (entry.sessions(), entry.is_full()), "{:?}", entry.state);
            assert_eq!(entry.state.index.load(Ordering::Relaxed), index);
            assert_eq!(entry.state.queued() as usize, entry.queue.len());
            assert_eq!(member.weight > 0, entry.state.is_usable(), "{:?}", entry.state);
        }
        assert_eq!(inner.queued as usize, inner.entries.iter().map(|entry| entry.queue.len()).sum::<usize>());
        assert_eq!(self.state.queued() as usize, inner.queued as usize + inner.queue.len());
        let usable = |backup| members.iter().filter(|member| member.weight > 0 && member.backup == backup).count();
        assert_eq!(inner.group.usable(), (usable(false), usable(true)));
    }
}

/// Lives of backends of up to so many servers.
fn check(algorithm: &Algorithm) {
    for seed in 0..60 {
        let names = [2, 3, 7, 12, 30][seed as usize % 5];
        println!("seed {seed}");
        let mut life = Life::new(seed, algorithm, names);
        (0..300).for_each(|_| life.step(algorithm, names));
    }
}

#[test]
fn round_robin_chooses_as_ever() {
    check(&Algorithm::RoundRobin);
}

#[test]
fn static_round_robin_chooses_as_ever() {
    check(&Algorithm::StaticRr);
}

#[test]
fn least_conn_chooses_as_ever() {
    check(&Algorithm::LeastConn);
}

#[test]
fn first_chooses_as_ever() {
    check(&Algorithm::First);
}

#[test]
fn hashes_choose_as_ever() {
    check(&Algorithm::Uri(UriHash::default()));
}

#[test]
fn random_chooses_as_ever() {
    check(&Algorithm::Random { draws: 2 });
}

#[test]
fn what_changes_while_a_configuration_is_built_counts() {
    for (algorithm, names) in [(Algorithm::RoundRobin, 7), (Algorithm::StaticRr, 7), (Algorithm::Source, 12)] {
        for seed in 0..30 {
            let mut life = Life::new(seed, &algorithm, names);
            (0..30).for_each(|_| life.step(&algorithm, names));
            let mut proxy = Proxy::clone(&life.state.lock().proxy);
            proxy.tcp.all_backups ^= true;
            let proxy = Arc::new(proxy);
            let all = (&EffectiveServer::of as Effective<'_>, &|_: &str| None as Option<Arc<ServerTlsContext>>);
            let seen = life.state.lock().in_use();
            let mut next = Replacement::build(&Arc::downgrade(&life.state), &proxy, seen, (all.0, &all.1), life.now);
            // Requests, and changes of state, but no other reload.
            for _ in 0..20 {
                let name = format!("s{}", life.random.below(names + 1));
                let server = life.state.server(&name);
                match (life.random.below(2), server) {
                    (1, Some(server)) => {
                        let change = 31 + life.random.below(8);
                        life.change(change, &server, false);
                    }
                    (_, server) => life.request(server.as_ref()),
                }
            }
            let mut wakers = Wakers::default();
            assert!(life.state.swap(&mut next, &mut wakers, life.now).0);
            wakers.wake();
            life.check();
            let mut late =
                Replacement::build(&Arc::downgrade(&life.state), &proxy, next.seen, (all.0, &all.1), life.now);
            assert!(!life.state.swap(&mut late, &mut Wakers::default(), life.now).0, "it was built for other servers");
        }
    }
}

#[test]
fn a_choice_beside_a_change_finds_a_usable_server() {
    let mut proxy = Proxy::new("app", Role::Backend);
    for (algorithm, consistent) in [(Algorithm::Source, false), (Algorithm::Source, true)] {
        proxy.balance.algorithm = algorithm;
        proxy.balance.hash.consistent = consistent;
        let server = |id: u32| Arc::new(Server::new(format!("s{id}"), id, Address::Inet(([127, 0, 0, 1], 80).into())));
        proxy.servers = (1..=20).map(server).collect();
        let now = Instant::now();
        let state = BackendState::new(&Arc::new(proxy.clone()), now);
        let mut other = proxy.clone();
        other.servers.truncate(15);
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                for round in 0..200u32 {
                    let servers = state.servers();
                    let server = &servers[round as usize * 7 % servers.len()];
                    server.set_health(HealthState::Down, now);
                    server.set_weight(round % 100 + 1, now);
                    server.set_health(HealthState::Up, now);
                    // All but one are down, and come up again.
                    if round % 50 == 0 {
                        servers[1..].iter().for_each(|server| _ = server.set_health(HealthState::Down, now));
                        servers[1..].iter().for_each(|server| _ = server.set_health(HealthState::Up, now));
                    }
                    state.reconfigure(&Arc::new(if round % 2 == 0 { other.clone() } else { proxy.clone() }), now);
                }
            });
            let mut random = Random(7);
            while !change.is_finished() {
                let ask = PickCriteria { key: Some(random.below(u32::MAX)), ..PickCriteria::new(now) };
                assert!(matches!(state.pick(&ask), Picked::Slot(_)));
            }
        });
    }
}
