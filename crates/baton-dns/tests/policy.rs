//! What follows from responses over time, by a clock that is turned by hand: retries, hold times, services that come and go, and hostile responses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_dns::message::Service;
use baton_dns::{
    Cause, Discovery, DomainName, Heard, LossReason, NameServerCounters, Outcome, RecordType, Report, ServerChange,
};
use baton_model::{
    Discovered, DiscoveredServer, Family, Model, NameServer, NetAddress, Proxy, Resolution, Resolvers, Role, Server,
    ServerTarget, Source,
};

/// Name servers that respond at once with what stands in a table, or do not.
struct World {
    discovery: Discovery,
    begun: Instant,
    now: Instant,
    /// By name server, name and type.
    answers: HashMap<(&'static str, &'static str, RecordType), Outcome>,
    changes: Vec<(u128, ServerChange)>,
    asked: Vec<(u128, String)>,
    found: Vec<(u64, String)>,
}

fn settings(change: impl FnOnce(&mut Resolvers)) -> Resolvers {
    let mut settings = Resolvers::new("r".into(), Source::default());
    let server = |name: &str, host: u8| NameServer::new(name, ([192, 0, 2, host], 53).into());
    settings.servers = vec![server("n1", 1), server("n2", 2)];
    change(&mut settings);
    settings
}

fn server(name: &str, host: &str, resolution: Resolution) -> Arc<Server> {
    let mut server = Server::new(name, 1, None);
    server.address.host = NetAddress::Name(host.into(), Family::Any);
    server.address.target = ServerTarget::Unresolved { port: if host.starts_with('_') { 0 } else { 80 } };
    let service = host.starts_with('_').then(|| Arc::from(host));
    server.resolution = Some(Arc::new(Resolution { service, prefer: Family::V4, ..resolution }));
    Arc::new(server)
}

fn model(settings: Resolvers, servers: Vec<Arc<Server>>) -> Model {
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.servers = servers;
    Model { proxies: vec![Arc::new(proxy)], resolvers: vec![Arc::new(settings)], ..Model::default() }
}

impl World {
    fn new(settings: Resolvers, hosts: &[&str]) -> World {
        let servers = hosts.iter().enumerate();
        let servers = servers.map(|(at, host)| server(&format!("s{}", at + 1), host, Resolution::new("r"))).collect();
        let now = Instant::now();
        let mut discovery = Discovery::default();
        discovery.apply(&model(settings, servers), &Discovered::default(), now);
        World {
            discovery,
            begun: now,
            now,
            answers: HashMap::new(),
            changes: Vec::new(),
            asked: Vec::new(),
            found: Vec::new(),
        }
    }

    fn ms(&self) -> u128 {
        (self.now - self.begun).as_millis()
    }

    fn say(&mut self, name: &'static str, kind: RecordType, outcome: Outcome) {
        for server in ["n1", "n2"] {
            self.answers.insert((server, name, kind), outcome.clone());
        }
    }

    fn addresses(&mut self, name: &'static str, list: &str) {
        self.say(name, RecordType::A, addresses(list));
        self.say(name, RecordType::Aaaa, Outcome::Empty);
    }

    /// Nobody responds about a name.
    fn silence(&mut self, name: &'static str) {
        self.answers.retain(|(_, other, _), _| *other != name);
    }

    fn nx(&mut self, name: &'static str) {
        self.say(name, RecordType::A, Outcome::Nx);
        self.say(name, RecordType::Aaaa, Outcome::Nx);
    }

    /// Lets time pass.
    fn run(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            let mut id = 0;
            let asks = self.discovery.step(self.now, &mut || {
                id += 1;
                id
            });
            let is_quiet = asks.is_empty();
            for ask in asks {
                for (key, query) in ask.queries {
                    if &*ask.server.name == "n1" {
                        self.asked.push((self.ms(), format!("{} {}", query.name, query.kind)));
                    }
                    let known = self.answers.iter().find(|((server, name, kind), _)| {
                        **server == *ask.server.name && *name == query.name.as_str() && *kind == query.kind
                    });
                    if let Some((_, outcome)) = known {
                        let report = Report::Response(outcome.clone());
                        self.discovery.hear(Heard { key, server: ask.server.name.clone(), report }, self.now);
                    }
                }
            }
            let at = self.ms();
            self.changes.extend(self.discovery.changes(self.now).into_iter().map(|change| (at, change)));
            let found = self.discovery.found().into_iter();
            self.found.extend(
                found.map(|found| (found.ticket, found.address.map_or("-".into(), |address| address.to_string()))),
            );
            match self.discovery.due() {
                Some(due) if due <= self.now && !is_quiet => {}
                Some(due) if due <= end => {
                    self.now = due.max(self.now + Duration::from_millis(u64::from(is_quiet && due <= self.now)))
                }
                Some(_) | None => break,
            }
        }
        self.now = end;
    }

    /// The changes so far as text, which are forgotten.
    fn changes(&mut self) -> Vec<String> {
        let text = |(at, change): (u128, ServerChange)| {
            let shown =
                |address: Option<std::net::IpAddr>| address.map_or("-".to_owned(), |address| address.to_string());
            let cause = match &change.cause {
                Cause::Response(server) => format!("{server}"),
                Cause::Cache => "cache".into(),
                Cause::Additional => "additional".into(),
                Cause::Lost(reason) => reason.text().into(),
            };
            format!(
                "{at} {} {} -> {} ({cause})",
                change.server,
                shown(change.before.address),
                shown(change.after.address)
            )
        };
        std::mem::take(&mut self.changes).into_iter().map(text).collect()
    }

    fn counters(&self) -> [NameServerCounters; 2] {
        let (_, counters) = self.discovery.sections().next().expect("a section");
        [counters[0], counters[1]]
    }
}

fn addresses(list: &str) -> Outcome {
    Outcome::Addresses(list.split(' ').map(|text| text.parse().expect("an address")).collect())
}

fn services(list: &str) -> Outcome {
    let one = |text: &str| {
        let (place, address) = text.split_once('=').expect("an address");
        let (host, port) = place.split_once(':').expect("a port");
        Service {
            host: DomainName::parse(host).expect("a name"),
            port: port.parse().expect("a port"),
            weight: 1,
            addresses: address.parse().into_iter().collect(),
        }
    };
    Outcome::Services(list.split(' ').map(one).collect())
}

#[test]
fn the_first_valid_response_counts_and_the_other_one_is_outdated() {
    let mut world = World::new(settings(|_| {}), &["app.test"]);
    world.addresses("app.test", "10.0.0.1");
    world.run(10);
    assert_eq!(world.changes(), ["0 s1 - -> 10.0.0.1 (n1)"]);
    let [one, other] = world.counters();
    assert_eq!((one.sent, one.valid, one.updates, one.outdated), (1, 1, 1, 0));
    assert_eq!((other.sent, other.valid, other.updates, other.outdated), (1, 0, 0, 1));
    world.run(3000);
    assert_eq!(world.changes(), [""; 0]);
    assert_eq!(world.counters()[0].sent, 4, "once a second");
}

#[test]
fn an_error_of_one_name_server_does_not_count_when_another_one_knows() {
    let mut world = World::new(settings(|_| {}), &["app.test"]);
    world.addresses("app.test", "10.0.0.1");
    world.answers.insert(("n1", "app.test", RecordType::A), Outcome::Refused);
    world.run(10);
    assert_eq!(world.changes(), ["0 s1 - -> 10.0.0.1 (n2)"]);
    assert_eq!(world.counters()[0].refused, 1);
}

#[test]
fn the_other_family_is_asked_when_the_preferred_one_has_nothing() {
    let mut world = World::new(settings(|_| {}), &["six.test"]);
    world.say("six.test", RecordType::A, Outcome::Empty);
    world.say("six.test", RecordType::Aaaa, addresses("::1"));
    world.run(10);
    assert_eq!(world.changes(), ["0 s1 - -> ::1 (n1)"]);
    assert_eq!(world.asked, [(0, "six.test A".to_owned()), (0, "six.test AAAA".to_owned())]);
    // IPv4 comes: it is preferred from then on.
    world.addresses("six.test", "10.0.0.1");
    world.run(1000);
    assert_eq!(world.changes(), ["1000 s1 ::1 -> 10.0.0.1 (n1)"]);
}

#[test]
fn without_responses_a_query_is_repeated_and_hold_timeout_counts_from_the_last_valid_one() {
    let change = |settings: &mut Resolvers| {
        settings.hold.timeout = Duration::from_secs(5);
        settings.retry = Duration::from_millis(200);
    };
    let mut world = World::new(settings(change), &["app.test"]);
    world.addresses("app.test", "10.0.0.1");
    world.run(10);
    world.changes();
    world.asked.clear();
    world.silence("app.test");
    world.run(4990);
    assert_eq!(world.changes(), [""; 0], "nothing yet");
    let asked: Vec<u128> = world.asked.iter().map(|(at, _)| *at).collect();
    assert_eq!(asked[..7], [1000, 1200, 1400, 2600, 2800, 3000, 4200]);
    world.run(3000);
    // The first look-up that ended after the hold time was over.
    assert_eq!(world.changes(), ["6400 s1 10.0.0.1 -> - (DNS timeout status)"]);
    assert!(world.counters()[0].timeouts >= 9);
    world.addresses("app.test", "10.0.0.1");
    world.run(2000);
    assert_eq!(world.changes(), ["9000 s1 - -> 10.0.0.1 (n1)"]);
}

#[test]
fn each_error_has_its_hold_time() {
    let check = |outcome: Option<Outcome>, hold: fn(&mut Resolvers), expect: &str| {
        let mut world = World::new(settings(hold), &["app.test"]);
        world.addresses("app.test", "10.0.0.1");
        world.run(10);
        world.silence("app.test");
        if let Some(outcome) = outcome {
            world.say("app.test", RecordType::A, outcome.clone());
            world.say("app.test", RecordType::Aaaa, outcome);
        }
        world.changes();
        world.run(20_000);
        assert_eq!(world.changes(), [expect]);
    };
    check(Some(Outcome::Nx), |r| r.hold.nx = Duration::ZERO, "1000 s1 10.0.0.1 -> - (DNS NX status)");
    check(Some(Outcome::Nx), |r| r.hold.nx = Duration::from_secs(10), "10000 s1 10.0.0.1 -> - (DNS NX status)");
    // Attempts of three seconds, and a second between look-ups.
    let refused = |r: &mut Resolvers| r.hold.refused = Duration::ZERO;
    check(Some(Outcome::Refused), refused, "3000 s1 10.0.0.1 -> - (DNS refused status)");
    for outcome in
        [Outcome::Other, Outcome::Empty, Outcome::CnameError, Outcome::Invalid, Outcome::TooBig, Outcome::Truncated]
    {
        let other = |r: &mut Resolvers| r.hold.other = Duration::ZERO;
        check(Some(outcome), other, "3000 s1 10.0.0.1 -> - (unspecified DNS error)");
    }
    check(None, |r| r.hold.timeout = Duration::ZERO, "4000 s1 10.0.0.1 -> - (DNS timeout status)");
}

#[test]
fn what_was_resolved_at_the_start_stays_until_a_hold_time_is_over() {
    let mut one = Server::clone(&server("s1", "app.test", Resolution::new("r")));
    one.address.target = ServerTarget::Fixed(baton_model::Address::Inet(([10, 0, 0, 9], 80).into()));
    let mut world = World::new(settings(|_| {}), &[]);
    let begun = world.now;
    let change = |settings: &mut Resolvers| settings.hold.nx = Duration::from_secs(3);
    world.discovery.apply(&model(settings(change), vec![Arc::new(one)]), &Discovered::default(), begun);
    world.nx("app.test");
    world.run(2900);
    assert_eq!(world.changes(), [""; 0]);
    world.run(1000);
    assert_eq!(world.changes(), ["3000 s1 10.0.0.9 -> - (DNS NX status)"]);
}

#[test]
fn an_address_that_is_gone_is_obsolete_after_its_hold_time() {
    let change = |settings: &mut Resolvers| settings.hold.obsolete = Duration::from_secs(2);
    let mut world = World::new(settings(change), &["m.test", "m.test", "m.test"]);
    world.addresses("m.test", "10.0.0.1 10.0.0.2");
    world.run(10);
    assert_eq!(world.changes(), ["0 s1 - -> 10.0.0.1 (n1)", "0 s2 - -> 10.0.0.2 (cache)"]);
    world.addresses("m.test", "10.0.0.3 10.0.0.2");
    world.run(1000);
    assert_eq!(world.changes(), ["1000 s3 - -> 10.0.0.3 (cache)"]);
    world.run(3000);
    assert_eq!(world.changes(), ["2000 s1 10.0.0.1 -> - (No IP for server )"]);
    // A name that flaps within the hold time moves nobody.
    for round in 0..10 {
        world.addresses("m.test", if round % 2 == 0 { "10.0.0.2" } else { "10.0.0.3 10.0.0.2" });
        world.run(1000);
    }
    assert_eq!(world.changes(), [""; 0]);
}

#[test]
fn services_fill_servers_and_hosts_without_addresses_are_looked_up() {
    let mut world = World::new(settings(|_| {}), &["_s._tcp.test", "_s._tcp.test", "_s._tcp.test"]);
    world.say("_s._tcp.test", RecordType::Srv, services("a.test:81=10.0.0.1 b.test:82=-"));
    world.addresses("b.test", "10.0.0.2");
    world.run(10);
    assert_eq!(world.changes(), ["0 s1 - -> 10.0.0.1 (additional)", "0 s2 - -> - (cache)", "0 s2 - -> 10.0.0.2 (n1)"]);
    // The host of a service moves, and the service goes.
    world.addresses("b.test", "10.0.0.3");
    world.run(1000);
    assert_eq!(world.changes(), ["1000 s2 10.0.0.2 -> 10.0.0.3 (n1)"]);
    world.say("_s._tcp.test", RecordType::Srv, services("a.test:81=10.0.0.1"));
    world.run(1000);
    assert_eq!(world.changes(), ["2000 s2 10.0.0.3 -> - (entry removed from SRV record)"]);
    world.asked.clear();
    world.run(2000);
    assert!(world.asked.iter().all(|(_, what)| what == "_s._tcp.test SRV"), "b.test is asked for no more");
}

#[test]
fn five_hundred_services_come_and_go() {
    let hosts = vec!["_s._tcp.test"; 500];
    let mut world = World::new(settings(|_| {}), &hosts);
    let list = |from: u32| {
        (from..from + 500)
            .map(|n| format!("h{n}.test:80=10.0.{}.{}", n / 250, n % 250 + 1))
            .collect::<Vec<_>>()
            .join(" ")
    };
    world.say("_s._tcp.test", RecordType::Srv, services(&list(0)));
    world.run(10);
    assert_eq!(world.changes().len(), 500);
    // A hundred are replaced, the others stay where they are.
    world.say("_s._tcp.test", RecordType::Srv, services(&list(100)));
    world.run(1000);
    let changes = world.changes();
    assert_eq!(changes.len(), 100);
    assert!(changes.iter().all(|change| change.ends_with("(additional)")));
}

#[test]
fn late_and_foreign_responses_change_nothing() {
    let mut world = World::new(settings(|_| {}), &["app.test"]);
    let mut id = 0;
    let asks = world.discovery.step(world.now, &mut || {
        id += 1;
        id
    });
    let (key, _) = asks[0].queries[0].clone();
    let hear = |world: &mut World, server: &str, report| {
        let now = world.now;
        world.discovery.hear(Heard { key: key.clone(), server: server.into(), report }, now);
        world.discovery.changes(now).len()
    };
    assert_eq!(hear(&mut world, "n1", Report::Unrelated), 0);
    assert_eq!(hear(&mut world, "n3", Report::Response(addresses("10.6.6.6"))), 0);
    world.now += Duration::from_secs(5);
    let now = world.now;
    // Time is over, and another round is under way.
    world.discovery.step(now, &mut || 7);
    assert_eq!(hear(&mut world, "n1", Report::Response(addresses("10.6.6.6"))), 0, "it comes late");
    let [one, _] = world.counters();
    assert_eq!((one.invalid, one.outdated, one.timeouts), (1, 1, 1));
}

#[test]
fn names_go_on_over_a_reload() {
    let mut world = World::new(settings(|_| {}), &["app.test"]);
    world.addresses("app.test", "10.0.0.1");
    world.run(500);
    world.changes();
    let mut known = Discovered::default();
    let one = DiscoveredServer {
        resolvers: "r".into(),
        name: "app.test".into(),
        address: Some([10, 0, 0, 1].into()),
        service: None,
        weight: None,
    };
    known.set("app".into(), "s1".into(), one);
    let again = model(
        settings(|_| {}),
        vec![server("s1", "app.test", Resolution::new("r")), server("s2", "b.test", Resolution::new("r"))],
    );
    let now = world.now;
    world.discovery.apply(&again, &known, now);
    world.addresses("b.test", "10.0.0.2");
    world.asked.clear();
    world.run(100);
    assert_eq!(world.changes(), ["500 s2 - -> 10.0.0.2 (n1)"]);
    assert_eq!(world.asked, [(500, "b.test A".to_owned())], "the other one has its time");
    assert_eq!(world.counters()[0].valid, 2, "counted on");
}

#[test]
fn rules_get_addresses_in_turn_and_names_are_not_asked_again_too_soon() {
    let mut world = World::new(settings(|r| r.hold.valid = Duration::from_secs(3)), &[]);
    world.addresses("app.test", "10.0.0.1 10.0.0.2");
    world.nx("no.test");
    let mut ticket = 0;
    let mut resolve = |world: &mut World, section: &str, name: &str| {
        ticket += 1;
        let now = world.now;
        world.discovery.resolve(section, name, false, ticket, now);
        world.run(1);
        let found = std::mem::take(&mut world.found);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, ticket);
        found[0].1.clone()
    };
    let mut both = [resolve(&mut world, "r", "app.test"), resolve(&mut world, "r", "App.Test.")];
    both.sort();
    assert_eq!(both, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(world.counters()[0].sent, 1);
    for odd in ["", "a b", "10.0.0.1:80", "a\r\nb"] {
        assert_eq!(resolve(&mut world, "r", odd), "-", "{odd:?}");
    }
    assert_eq!(resolve(&mut world, "other", "app.test"), "-");
    assert_eq!(resolve(&mut world, "r", "no.test"), "-");
    let sent = world.counters()[0].sent;
    assert_eq!(resolve(&mut world, "r", "no.test"), "-");
    assert_eq!(world.counters()[0].sent, sent, "what failed is remembered for a moment");
    world.run(4000);
    assert_eq!(world.discovery.due(), None, "nobody asks for them any more");
    world.addresses("app.test", "10.0.0.3");
    assert_eq!(resolve(&mut world, "r", "app.test"), "10.0.0.3");
}

#[test]
fn a_server_that_a_check_does_not_reach_is_looked_up_again() {
    let settings = settings(|r| (r.hold.valid, r.resolve) = (Duration::from_secs(2), Duration::from_secs(60)));
    let mut world = World::new(settings, &["app.test", "_app._tcp.test"]);
    world.addresses("app.test", "10.0.0.1");
    world.say("_app._tcp.test", RecordType::Srv, services("h.test:80="));
    world.addresses("h.test", "10.0.0.9");
    let asked = |world: &mut World, server: &str| {
        world.asked.clear();
        let now = world.now;
        world.discovery.unreachable("app", server, now);
        world.run(100);
        world.asked.iter().map(|(_, query)| query.clone()).collect::<Vec<_>>().join(", ")
    };
    world.run(1000);
    assert_eq!(asked(&mut world, "s1"), "", "the last response is young enough");
    world.run(1000);
    assert_eq!(asked(&mut world, "s1"), "app.test A");
    assert_eq!(asked(&mut world, "s1"), "");
    assert_eq!(asked(&mut world, "s2"), "h.test A", "the host of a service");
    assert_eq!((asked(&mut world, "s3"), asked(&mut world, "s4")), (String::new(), String::new()), "nobody knows it");
    // It moves, and is found at once.
    world.run(2000);
    world.addresses("app.test", "10.0.0.2");
    world.changes();
    assert_eq!(asked(&mut world, "s1"), "app.test A");
    assert_eq!(world.changes(), ["4600 s1 10.0.0.1 -> 10.0.0.2 (n1)"]);
    // Nobody responds: what is tried again has its time.
    world.run(2000);
    world.silence("app.test");
    world.asked.clear();
    for _ in 0..30 {
        let now = world.now;
        world.discovery.unreachable("app", "s1", now);
        world.run(100);
    }
    assert_eq!(world.asked.len(), 3, "{:?}", world.asked);
}

#[test]
fn a_section_without_name_servers_has_nothing_to_do() {
    let mut world = World::new(settings(|r| r.servers.clear()), &["app.test"]);
    world.run(10_000);
    assert_eq!((world.discovery.due(), world.changes().len()), (None, 0));
    assert_eq!(LossReason::NoAddress.text(), "No IP for server ");
}
