//! All names of a configuration: who needs which, what is to be sent now, and what follows for servers and for rules that wait for an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{
    Discovered, DiscoveredServer, DiscoveredService, Family, Mode, Model, NameServer, Resolution, Resolvers, Server,
};

use crate::assign::{self, Cause, Known, Seat, Seated, ServerChange, Why};
use crate::counters::NameServerCounters;
use crate::lookup::{LEAST_PAUSE, Lookup, LookupKey, Step, View};
use crate::message::{Outcome, Query};
use crate::name::DomainName;

/// Queries that share a socket, and so a source port.
const QUERIES_PER_SOCKET: usize = 32;
/// Names of a section that rules asked for and that are remembered.
const ASKED_NAMES_MAX: usize = 16_384;
/// Rules that wait for the same name.
const TICKETS_MAX: usize = 4096;
/// How long a name that rules asked for is remembered at least.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The names of a configuration.
#[derive(Debug, Default)]
pub struct Discovery {
    sections: Vec<Section>,
    /// By backend.
    backends: BTreeMap<Arc<str>, Backend>,
    /// Backends whose servers have to be looked at.
    dirty: BTreeSet<Arc<str>>,
    /// Answers to rules.
    found: Vec<Found>,
}

/// Which query a response is to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryKey {
    section: Arc<str>,
    lookup: LookupKey,
    round: u64,
}

/// Queries to a name server.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The name server.
    pub server: NameServer,
    /// The longest response by UDP that is accepted.
    pub payload: u16,
    /// Until when responses are waited for.
    pub until: Instant,
    /// The queries.
    pub queries: Vec<(QueryKey, Query)>,
}

/// What became of a query.
#[derive(Debug)]
pub struct Heard {
    /// Which.
    pub key: QueryKey,
    /// The name server.
    pub server: Arc<str>,
    /// What it is.
    pub report: Report,
}

/// An event of a query.
#[derive(Debug, Eq, PartialEq)]
pub enum Report {
    /// A response.
    Response(Outcome),
    /// A response that does not fit into a datagram: it is asked for by TCP.
    Truncated,
    /// Bytes that are no response to it.
    Unrelated,
    /// A message of an id that is not waited for: it comes too late, or somebody guesses.
    Unexpected,
    /// It could not be sent.
    NotSent,
}

/// An address for a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Found {
    /// Who asked.
    pub ticket: u64,
    /// The address, if the name has one.
    pub address: Option<IpAddr>,
}

#[derive(Debug)]
struct Section {
    settings: Arc<Resolvers>,
    counters: Vec<NameServerCounters>,
    names: BTreeMap<LookupKey, Entry>,
    /// When a name is due next; `None`: nothing is.
    due: Option<Instant>,
}

/// A name, and who needs it.
#[derive(Debug)]
struct Entry {
    lookup: Lookup,
    backends: BTreeSet<Arc<str>>,
    tickets: Vec<u64>,
    /// When a rule asked for it last.
    asked: Option<Instant>,
    /// Which address the next rule gets.
    turn: usize,
}

#[derive(Debug, Default)]
struct Backend {
    subjects: Vec<Subject>,
    /// Hosts of services that are looked up.
    hosts: BTreeSet<(Arc<str>, LookupKey)>,
}

/// A server that is looked up.
#[derive(Clone, Debug)]
struct Subject {
    server: Arc<str>,
    resolution: Arc<Resolution>,
    name: DomainName,
    port: u16,
    known: Known,
}

impl Subject {
    /// `None`: its name is none that can be looked up.
    fn of(server: &Server, known: Option<&DiscoveredServer>) -> Option<Subject> {
        let (resolution, name) = server.looked_up()?;
        let is_service = resolution.service.is_some();
        let known = match known.filter(|known| known.is_of(server)) {
            Some(known) => Known { address: known.address, service: known.service.clone(), weight: known.weight },
            None => Known { address: server.address.inet().map(|inet| inet.ip()), ..Known::default() },
        };
        Some(Subject {
            server: Arc::clone(&server.name),
            resolution: Arc::clone(resolution),
            name: DomainName::parse(name)?,
            port: if is_service { 0 } else { server.address.port() },
            known,
        })
    }

    fn key(&self) -> LookupKey {
        match self.resolution.service {
            Some(_) => LookupKey::Services(self.name.clone()),
            None => LookupKey::Addresses { name: self.name.clone(), prefers_v6: self.prefers_v6() },
        }
    }

    fn prefers_v6(&self) -> bool {
        self.resolution.prefer != Family::V4
    }
}

impl Entry {
    fn new(key: LookupKey, now: Instant) -> Entry {
        Entry { lookup: Lookup::new(key, now), backends: BTreeSet::new(), tickets: Vec::new(), asked: None, turn: 0 }
    }

    fn is_needed(&self) -> bool {
        !self.backends.is_empty() || !self.tickets.is_empty()
    }

    /// The address for a rule, in turn.
    fn address(&mut self, settings: &Resolvers, now: Instant) -> Option<IpAddr> {
        let View::Addresses(found) = self.lookup.view(&settings.hold, now) else { return None };
        // Those of the preferred family come first.
        let family = found.first()?.is_ipv6();
        let count = found.iter().take_while(|address| address.is_ipv6() == family).count();
        self.turn = self.turn.wrapping_add(1);
        found.get(self.turn % count).copied()
    }
}

impl Discovery {
    /// Takes up a configuration, as it is in force. Names that it has as before go on; `discovered` is what servers have.
    pub fn apply(&mut self, model: &Model, discovered: &Discovered, now: Instant) {
        let mut before = std::mem::take(&mut self.sections);
        for settings in &model.resolvers {
            let at = before.iter().position(|section| section.settings.name == settings.name);
            self.sections.push(match at {
                Some(at) => before.swap_remove(at).with(settings, now),
                None => Section::new(Arc::clone(settings)),
            });
        }
        for section in &mut self.sections {
            section.names.values_mut().for_each(|entry| entry.backends.clear());
        }
        let mut old = std::mem::take(&mut self.backends);
        let proxies = model
            .proxies
            .iter()
            .filter(|proxy| proxy.role.is_backend() && !proxy.disabled && proxy.mode != Mode::Direct);
        for proxy in proxies {
            let known = discovered.of(&proxy.name);
            let subject = |server: &Arc<Server>| Subject::of(server, known.and_then(|known| known.get(&server.name)));
            let subjects: Vec<Subject> = proxy.servers.iter().filter_map(subject).collect();
            if subjects.is_empty() {
                continue;
            }
            let name = Arc::clone(&proxy.name);
            for subject in &subjects {
                self.need(&subject.resolution.resolvers, subject.key(), &name, now);
            }
            let hosts = old.remove(&name).map(|old| old.hosts).unwrap_or_default();
            for (section, key) in &hosts {
                self.need(section, key.clone(), &name, now);
            }
            self.dirty.insert(Arc::clone(&name));
            self.backends.insert(name, Backend { subjects, hosts });
        }
        for section in &mut self.sections {
            section.forget();
            section.due = Some(now);
        }
    }

    /// When something is to be done next; `None`: nothing, unless something is heard.
    pub fn due(&self) -> Option<Instant> {
        self.sections.iter().filter_map(|section| section.due).min()
    }

    /// What is to be sent now. `random` gives ids.
    pub fn step(&mut self, now: Instant, random: &mut dyn FnMut() -> u16) -> Vec<Ask> {
        let mut asks = Vec::new();
        for section in &mut self.sections {
            if section.due.is_some_and(|due| due <= now) {
                section.step(now, random, &mut asks, &mut self.dirty, &mut self.found);
            }
        }
        asks
    }

    /// Takes what was heard of a query.
    pub fn hear(&mut self, heard: Heard, now: Instant) {
        let Heard { key: QueryKey { section, lookup, round }, server, report } = heard;
        let Some(section) = self.sections.iter_mut().find(|other| other.settings.name == section) else { return };
        let Some(at) = section.settings.servers.iter().position(|other| other.name == server) else { return };
        let counters = &mut section.counters[at];
        let outcome = match report {
            Report::Truncated => {
                counters.truncated += 1;
                return;
            }
            Report::Unrelated => {
                counters.invalid += 1;
                return;
            }
            Report::Unexpected => {
                counters.outdated += 1;
                return;
            }
            Report::NotSent => {
                counters.send_errors += 1;
                None
            }
            Report::Response(outcome) => Some(outcome),
        };
        let Some(entry) = section.names.get_mut(&lookup) else {
            counters.outdated += u64::from(outcome.is_some());
            return;
        };
        match entry.lookup.hear((round, at), outcome, &section.settings, counters, now) {
            None => {}
            Some(Step::Ended { is_news }) => {
                entry.ended(is_news, &section.settings, now, &mut self.dirty, &mut self.found);
                section.due = Some(now);
            }
            // Steps alone ask.
            Some(Step::Ask { .. }) => section.due = Some(now),
            Some(Step::Wait(until)) => section.due = Some(section.due.map_or(until, |due| due.min(until))),
        }
    }

    /// What servers have from now on: those that have something else than before.
    pub fn changes(&mut self, now: Instant) -> Vec<ServerChange> {
        let mut changes = Vec::new();
        for name in std::mem::take(&mut self.dirty) {
            let Some(mut backend) = self.backends.remove(&name) else { continue };
            self.seat(&name, &mut backend, &mut changes, now);
            self.backends.insert(name, backend);
        }
        changes
    }

    /// Addresses for rules.
    pub fn found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    /// A rule asks for an address of a name; [`Discovery::found`] has it some time.
    pub fn resolve(&mut self, section: &str, name: &str, prefers_v6: bool, ticket: u64, now: Instant) {
        let none = Found { ticket, address: None };
        let section = self.sections.iter_mut().find(|other| &*other.settings.name == section);
        let section = section.filter(|section| !section.settings.servers.is_empty());
        let (Some(section), Some(name)) = (section, DomainName::parse(name)) else { return self.found.push(none) };
        let key = LookupKey::Addresses { name, prefers_v6 };
        if !section.names.contains_key(&key) && section.names.len() >= ASKED_NAMES_MAX {
            section.counters.iter_mut().for_each(|counters| counters.send_errors += 1);
            return self.found.push(none);
        }
        let settings = Arc::clone(&section.settings);
        let entry = section.names.entry(key.clone()).or_insert_with(|| Entry::new(key, now));
        entry.asked = Some(now);
        if entry.lookup.is_fresh(&settings.hold, now) {
            let address = entry.address(&settings, now);
            return self.found.push(Found { ticket, address });
        }
        if entry.tickets.len() >= TICKETS_MAX {
            return self.found.push(none);
        }
        entry.tickets.push(ticket);
        entry.lookup.hurry(now);
        section.due = Some(now);
    }

    /// A check could not connect to a server, which may have moved: its name is looked up again, unless the last response is young enough for a
    /// rule, too.
    pub fn unreachable(&mut self, backend: &str, server: &str, now: Instant) {
        let Some(subject) = self
            .backends
            .get(backend)
            .and_then(|backend| backend.subjects.iter().find(|subject| &*subject.server == server))
        else {
            return;
        };
        let section = self.sections.iter_mut().find(|other| other.settings.name == subject.resolution.resolvers);
        let Some(section) = section else { return };
        // The address of a service may come from its host.
        let host = subject.known.service.as_ref().and_then(|service| host_key(service, subject.prefers_v6()));
        let key = host.filter(|key| section.names.contains_key(key)).unwrap_or_else(|| subject.key());
        let Some(entry) = section.names.get_mut(&key) else { return };
        if entry.lookup.refresh(&section.settings.hold, now) {
            section.due = Some(now);
        }
    }

    /// The sections in the order of the files, with their name servers and what is counted of them.
    pub fn sections(&self) -> impl Iterator<Item = (&Arc<Resolvers>, &[NameServerCounters])> {
        self.sections.iter().map(|section| (&section.settings, &section.counters[..]))
    }

    fn need(&mut self, section: &str, key: LookupKey, backend: &Arc<str>, now: Instant) {
        if let Some(section) = self.sections.iter_mut().find(|other| &*other.settings.name == section) {
            let entry = section.names.entry(key.clone()).or_insert_with(|| Entry::new(key, now));
            if entry.backends.insert(Arc::clone(backend)) && !entry.lookup.is_asking() {
                section.due = Some(now);
            }
        }
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| &*section.settings.name == name)
    }

    /// Gives what is known to the servers of a backend.
    fn seat(&mut self, name: &Arc<str>, backend: &mut Backend, changes: &mut Vec<ServerChange>, now: Instant) {
        let mut groups: BTreeMap<(Arc<str>, LookupKey, u16), Vec<usize>> = BTreeMap::new();
        for (at, subject) in backend.subjects.iter().enumerate() {
            let key = (Arc::clone(&subject.resolution.resolvers), subject.key(), subject.port);
            groups.entry(key).or_default().push(at);
        }
        let mut hosts = BTreeSet::new();
        for ((section, key, _), members) in groups {
            let Some(found) = self.section(&section) else { continue };
            let Some(entry) = found.names.get(&key) else { continue };
            let seat = |at: &usize| {
                let subject = &backend.subjects[*at];
                Seat { resolution: &subject.resolution, prefers_v6: subject.prefers_v6(), known: subject.known.clone() }
            };
            let seats: Vec<Seat<'_>> = members.iter().map(seat).collect();
            let view = entry.lookup.view(&found.settings.hold, now);
            let seated = match key {
                LookupKey::Addresses { .. } => assign::addresses(&seats, &view),
                LookupKey::Services(_) => {
                    assign::services(&seats, &view, |host, seat| found.host(host, seat.prefers_v6, now))
                }
            };
            let mut source = entry.lookup.source();
            for (at, seated) in members.into_iter().zip(seated) {
                let subject = &mut backend.subjects[at];
                let after = seated.as_ref().map_or(&subject.known, |(known, _)| known).clone();
                let host = unseen_host(&after, &view).and_then(|host| host_key(host, subject.prefers_v6()));
                hosts.extend(host.map(|key| (Arc::clone(&section), key)));
                let source = match &after.service {
                    Some(service) => found.source_of(&service.host, subject.prefers_v6()),
                    None => source.take(),
                };
                if let Some(change) = take(subject, name, seated, source.map(|at| (found, at))) {
                    changes.push(change);
                }
            }
        }
        self.count_updates(changes, name);
        let gone: Vec<_> = backend.hosts.difference(&hosts).cloned().collect();
        for (section, key) in gone {
            let section = self.sections.iter_mut().find(|other| other.settings.name == section);
            if let Some(entry) = section.and_then(|section| section.names.get_mut(&key)) {
                entry.backends.remove(name);
            }
        }
        for (section, key) in &hosts {
            self.need(section, key.clone(), name, now);
        }
        backend.hosts = hosts;
        self.sections.iter_mut().for_each(Section::forget);
    }

    fn count_updates(&mut self, changes: &[ServerChange], backend: &Arc<str>) {
        for change in changes.iter().filter(|change| change.backend == *backend) {
            let Cause::Response(server) = &change.cause else { continue };
            let Some(section) = self.sections.iter_mut().find(|other| other.settings.name == change.resolvers) else {
                continue;
            };
            if let Some(at) = section.settings.servers.iter().position(|other| other.name == *server) {
                section.counters[at].updates += 1;
            }
        }
    }
}

/// The host of a service whose addresses no additional record has.
fn unseen_host<'k>(known: &'k Known, view: &View<'_>) -> Option<&'k DiscoveredService> {
    let View::Services(found) = view else { return None };
    let service = known.service.as_ref()?;
    let is_seen = found.iter().any(|(other, _, addresses)| *other == service && !addresses.is_empty());
    (!is_seen).then_some(service)
}

fn host_key(service: &DiscoveredService, prefers_v6: bool) -> Option<LookupKey> {
    Some(LookupKey::Addresses { name: DomainName::parse(&service.host)?, prefers_v6 })
}

/// Has a server as it is seated, and says what changed.
fn take(
    subject: &mut Subject,
    backend: &Arc<str>,
    seated: Seated,
    source: Option<(&Section, usize)>,
) -> Option<ServerChange> {
    let (after, why) = seated?;
    let before = std::mem::replace(&mut subject.known, after.clone());
    let cause = match (why, source) {
        (Why::Lost(reason), _) => Cause::Lost(reason),
        (Why::Additional, _) => Cause::Additional,
        (Why::Looked, Some((section, at))) => match section.settings.servers.get(at) {
            Some(server) => Cause::Response(Arc::clone(&server.name)),
            None => Cause::Cache,
        },
        (Why::Looked, None) => Cause::Cache,
    };
    Some(ServerChange {
        backend: Arc::clone(backend),
        server: Arc::clone(&subject.server),
        resolvers: Arc::clone(&subject.resolution.resolvers),
        name: subject.resolution.service.clone().unwrap_or_else(|| Arc::clone(subject.name.shared())),
        before,
        after,
        cause,
    })
}

impl Section {
    fn new(settings: Arc<Resolvers>) -> Section {
        let counters = vec![NameServerCounters::default(); settings.servers.len()];
        Section { settings, counters, names: BTreeMap::new(), due: None }
    }

    /// It with other settings. Name servers keep what was counted; where they are others, what is under way begins anew.
    fn with(mut self, settings: &Arc<Resolvers>, now: Instant) -> Section {
        if self.settings.servers != settings.servers {
            let old = self.settings.servers.iter().zip(&self.counters);
            let counted = |server: &NameServer| {
                old.clone().find(|(other, _)| other.name == server.name).map(|(_, counters)| *counters)
            };
            self.counters = settings.servers.iter().map(|server| counted(server).unwrap_or_default()).collect();
            self.names.values_mut().for_each(|entry| entry.lookup.restart(now));
        }
        self.settings = Arc::clone(settings);
        self
    }

    /// Drops names that neither a server nor a rule needs.
    fn forget(&mut self) {
        self.names.retain(|_, entry| entry.is_needed() || entry.asked.is_some());
    }

    fn step(
        &mut self,
        now: Instant,
        random: &mut dyn FnMut() -> u16,
        asks: &mut Vec<Ask>,
        dirty: &mut BTreeSet<Arc<str>>,
        found: &mut Vec<Found>,
    ) {
        let settings = Arc::clone(&self.settings);
        let remembered = settings.hold.valid.max(settings.hold.obsolete).max(REMEMBERED);
        let mut due: Option<Instant> = None;
        let mut queries: Vec<(QueryKey, DomainName, crate::message::RecordType)> = Vec::new();
        self.names.retain(|key, entry| {
            if !entry.is_needed() {
                let until = entry.asked.map_or(now, |asked| asked + remembered);
                due = Some(due.map_or(until, |due| due.min(until)));
                return until > now;
            }
            if settings.servers.is_empty() {
                return true;
            }
            let until = loop {
                match entry.lookup.step(&settings, &mut self.counters, now) {
                    Step::Wait(until) if until > now => break until,
                    // A step follows at once.
                    Step::Wait(_) => {}
                    Step::Ended { is_news } => entry.ended(is_news, &settings, now, dirty, found),
                    Step::Ask { kind, round } => {
                        let key = QueryKey { section: Arc::clone(&settings.name), lookup: key.clone(), round };
                        queries.push((key, entry.lookup.name().clone(), kind));
                    }
                }
            };
            due = Some(due.map_or(until, |due| due.min(until)));
            true
        });
        self.due = due;
        for (at, server) in settings.servers.iter().enumerate() {
            self.counters[at].sent += queries.len() as u64;
            for some in queries.chunks(QUERIES_PER_SOCKET) {
                let query = |(key, name, kind): &(QueryKey, DomainName, _)| {
                    (key.clone(), Query { id: random(), name: name.clone(), kind: *kind })
                };
                let queries = some.iter().map(query).collect();
                let until = now + settings.retry.max(LEAST_PAUSE);
                asks.push(Ask { server: server.clone(), payload: settings.payload, until, queries });
            }
        }
    }

    /// What is known of a host of a service.
    fn host(&self, host: &str, prefers_v6: bool, now: Instant) -> View<'_> {
        let Some(name) = DomainName::parse(host) else { return View::Unknown };
        let entry = self.names.get(&LookupKey::Addresses { name, prefers_v6 });
        entry.map_or(View::Unknown, |entry| entry.lookup.view(&self.settings.hold, now))
    }

    fn source_of(&self, host: &str, prefers_v6: bool) -> Option<usize> {
        let name = DomainName::parse(host)?;
        self.names.get(&LookupKey::Addresses { name, prefers_v6 })?.lookup.source()
    }
}

impl Entry {
    /// A look-up ended: servers and rules that need it.
    fn ended(
        &mut self,
        is_news: bool,
        settings: &Resolvers,
        now: Instant,
        dirty: &mut BTreeSet<Arc<str>>,
        found: &mut Vec<Found>,
    ) {
        if is_news {
            dirty.extend(self.backends.iter().cloned());
        }
        for ticket in std::mem::take(&mut self.tickets) {
            let address = self.address(settings, now);
            found.push(Found { ticket, address });
        }
    }
}
