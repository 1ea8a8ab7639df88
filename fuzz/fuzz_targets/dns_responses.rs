//! Any bytes of a name server: no panic, no response without the id and the question of a query, no address of another name, and no more of
//! anything than bytes can say. What is understood goes through the look-up that asked for it, twice, as from two name servers.
#![no_main]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_dns::{Discovery, DomainName, Heard, Outcome, Query, RecordType, Report};
use baton_model::{
    Discovered, Family, Mode, Model, NameServer, NetAddress, Proxy, Resolution, Resolvers, Role, Server, ServerTarget,
    Source,
};
use libfuzzer_sys::fuzz_target;

/// The least bytes of a record of an address, and of one of a service, with a compressed owner.
const ADDRESS_BYTES: usize = 16;
const SERVICE_BYTES: usize = 19;

fn query(kind: RecordType, id: u16) -> Query {
    let name = if kind == RecordType::Srv { "_app._tcp.test" } else { "app.test" };
    Query { id, name: DomainName::parse(name).expect("a name"), kind }
}

/// What a message says is bounded by its length.
fn judge(query: &Query, bytes: &[u8]) -> Option<Outcome> {
    let outcome = query.read(bytes).ok()?;
    assert_eq!(bytes[..2], query.id.to_be_bytes());
    match &outcome {
        Outcome::Addresses(all) => {
            assert!(!all.is_empty() && all.len() * ADDRESS_BYTES <= bytes.len());
            let is_v4 = query.kind == RecordType::A;
            assert!(all.iter().all(|address: &IpAddr| address.is_ipv4() == is_v4 && query.kind != RecordType::Srv));
        }
        Outcome::Services(all) => {
            assert!(!all.is_empty() && all.len() * SERVICE_BYTES <= bytes.len() && query.kind == RecordType::Srv);
            assert!(
                all.iter()
                    .all(|service| service.weight <= 256 && service.addresses.len() * ADDRESS_BYTES <= bytes.len())
            );
        }
        _ => {}
    }
    Some(outcome)
}

/// A backend with two servers of each kind.
fn model() -> Model {
    let mut resolvers = Resolvers::new("r".into(), Source::default());
    resolvers.servers = ["n1", "n2"].map(|name| NameServer::new(name, ([127, 0, 0, 1], 53).into())).to_vec();
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.mode = Mode::Http;
    for id in 1..5 {
        let mut server = Server::new(format!("s{id}"), id, None);
        let service: Option<Arc<str>> = (id % 2 == 0).then(|| "_app._tcp.test".into());
        server.address.host = NetAddress::Name("app.test".into(), Family::Any);
        server.address.target = ServerTarget::Unresolved { port: 80 };
        server.resolution = Some(Arc::new(Resolution { service, prefer: Family::V4, ..Resolution::new("r") }));
        proxy.servers.push(Arc::new(server));
    }
    Model { proxies: vec![Arc::new(proxy)], resolvers: vec![Arc::new(resolvers)], ..Model::default() }
}

fuzz_target!(|bytes: &[u8]| {
    let id = bytes.get(..2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
    let kinds = [RecordType::A, RecordType::Aaaa, RecordType::Srv];
    for kind in kinds {
        assert_eq!(judge(&query(kind, id ^ 1), bytes), None, "another id");
        judge(&query(kind, id), bytes);
    }
    let now = Instant::now();
    let mut discovery = Discovery::default();
    discovery.apply(&model(), &Discovered::default(), now);
    for round in 0..3 {
        let now = now + Duration::from_secs(round);
        for ask in discovery.step(now, &mut || id) {
            for (key, query) in ask.queries {
                let report = judge(&query, bytes).map_or(Report::Unrelated, Report::Response);
                discovery.hear(Heard { key, server: ask.server.name.clone(), report }, now);
            }
        }
        for change in discovery.changes(now) {
            assert!(change.after.weight.is_none_or(|weight| weight <= 256) && change.before != change.after);
        }
    }
});
