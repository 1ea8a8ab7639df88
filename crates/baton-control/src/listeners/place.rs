//! Where a configuration listens, and for whom.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use baton_model::{Address, Bind, BindOptions, Model, PeersSection, Proxy, StatsSocket};
use baton_proxy::Refused;

/// What makes a listening address another one: an address may be listened on by several interfaces, and in several network
/// namespaces.
#[derive(Clone, Debug, Eq, PartialEq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// As the configuration names it.
    pub address: Address,
    /// `interface`.
    pub interface: Option<String>,
    /// `namespace`.
    pub namespace: Option<String>,
}

impl Place {
    /// Where a `bind` line listens.
    pub fn of(bind: &Bind) -> Place {
        let BindOptions { interface, namespace, .. } = &bind.options;
        Place { address: bind.address.clone(), interface: interface.clone(), namespace: namespace.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.address)?;
        if let Some(interface) = &self.interface {
            write!(out, " interface {interface}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(out, " namespace {namespace}")?;
        }
        Ok(())
    }
}

/// Whose an address is.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A frontend's.
    Frontend(Arc<Proxy>),
    /// The runtime API's.
    Stats(Box<StatsSocket>),
    /// That of a `peers` section.
    Peers(Arc<PeersSection>),
}

/// What kind of owner an address has. It keeps it as long as it is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OwnerKind {
    Frontend,
    Stats,
    Peers,
}

impl OwnerKind {
    /// As messages name it.
    pub(super) fn text(self) -> &'static str {
        match self {
            OwnerKind::Frontend => "a frontend",
            OwnerKind::Stats => "the runtime API",
            OwnerKind::Peers => "a peers section",
        }
    }
}

impl Owner {
    /// As messages name it.
    pub(super) fn object(&self) -> String {
        match self {
            Owner::Frontend(proxy) => format!("{} {}", proxy.role.word(), proxy.name),
            Owner::Stats(_) => "stats socket".into(),
            Owner::Peers(section) => format!("peers {}", section.name),
        }
    }

    pub(super) fn kind(&self) -> OwnerKind {
        match self {
            Owner::Frontend(_) => OwnerKind::Frontend,
            Owner::Stats(_) => OwnerKind::Stats,
            Owner::Peers(_) => OwnerKind::Peers,
        }
    }

    pub(super) fn frontend(&self) -> Option<&Proxy> {
        match self {
            Owner::Frontend(proxy) => Some(proxy),
            Owner::Stats(_) | Owner::Peers(_) => None,
        }
    }
}

/// Every bind of the frontends that take part, the sockets of the runtime API, and where `peers` sections listen.
pub(super) fn wanted(model: &Model) -> Vec<(Owner, Bind)> {
    let enabled = model.proxies.iter().filter(|proxy| proxy.role.is_frontend() && !proxy.disabled);
    let binds = enabled
        .flat_map(|proxy| without_repeats(&proxy.binds).map(|bind| (Owner::Frontend(proxy.clone()), bind.clone())));
    let stats = model.global.stats.sockets.iter().map(|socket| {
        let mut bind = socket.bind.clone();
        // Its sessions are served by one thread.
        bind.options.shards = Some(1);
        (Owner::Stats(Box::new(socket.clone())), bind)
    });
    let enabled = model.peers.iter().filter(|section| !section.disabled);
    let peers = enabled.flat_map(|section| section.proxy.binds.iter().map(move |bind| (section, bind)));
    let peers = peers.map(|(section, bind)| {
        let mut bind = bind.clone();
        // One thread serves it.
        bind.options.shards = Some(1);
        (Owner::Peers(section.clone()), bind)
    });
    binds.chain(stats).chain(peers).collect()
}

/// `bind :80,:80` is one address: more sockets of it would change nothing. One with other options stays, and is refused.
fn without_repeats(binds: &[Bind]) -> impl Iterator<Item = &Bind> {
    let mut seen: HashMap<Place, &BindOptions> = HashMap::new();
    binds.iter().filter(move |bind| match seen.entry(Place::of(bind)) {
        Entry::Occupied(first) => *first.get() != &bind.options,
        Entry::Vacant(place) => {
            place.insert(&bind.options);
            true
        }
    })
}

/// Addresses that are named by more than one frontend, or with different options: each refuses a start and a reload.
pub fn named_twice(model: &Model) -> Vec<Refused> {
    let mut seen: HashMap<Place, Owner> = HashMap::new();
    let mut refused = Vec::new();
    for (owner, bind) in wanted(model) {
        let place = Place::of(&bind);
        match seen.get(&place) {
            Some(other) => {
                let other = other.object();
                let reason = format!("{place} is already used by {other}: an address can belong to one frontend only");
                refused.push(refuse(&owner, &bind, reason));
            }
            None => drop(seen.insert(place, owner)),
        }
    }
    refused
}

/// Addresses that another one may overlap; asking costs the same however many there are. Two names are taken for two namespaces: who
/// gives one two names is told that the address is in use.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// How often each IP address is there, by network namespace and port. Only TCP addresses overlap.
    ports: HashMap<(Option<String>, u16), HashMap<IpAddr, usize>>,
}

impl Taken {
    /// One more.
    pub(super) fn add(&mut self, place: &Place) {
        if let Address::Inet(address) = &place.address {
            let port = (place.namespace.clone(), address.port());
            *self.ports.entry(port).or_default().entry(address.ip().to_canonical()).or_default() += 1;
        }
    }

    /// Whether one of them and `place` would be reached by some same destination.
    pub(super) fn overlaps(&self, place: &Place) -> bool {
        self.overlapping(place) > 0
    }

    /// Whether an address other than this one, which is one of them, overlaps it.
    pub(super) fn overlaps_another(&self, place: &Place) -> bool {
        self.overlapping(place) > 1
    }

    fn overlapping(&self, place: &Place) -> usize {
        let Address::Inet(address) = &place.address else { return 0 };
        let Some(ips) = self.ports.get(&(place.namespace.clone(), address.port())) else { return 0 };
        let ip = address.ip().to_canonical();
        if ip.is_unspecified() {
            return ips.values().sum();
        }
        // The unspecified addresses overlap with all others.
        let all = [ip, Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        all.iter().filter_map(|ip| ips.get(ip)).sum()
    }
}

/// Whether both would be reached by some same destination, in one network namespace.
pub(super) fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Inet(one), Address::Inet(other)) => {
            let (one_ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
            one.port() == other.port() && (one_ip == other_ip || one_ip.is_unspecified() || other_ip.is_unspecified())
        }
        _ => false,
    }
}

pub(super) fn refuse(owner: &Owner, bind: &Bind, reason: String) -> Refused {
    Refused { object: owner.object(), reason, source: bind.source.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_overlaps_itself_and_the_unspecified_one() {
        let place = |address: &str, interface: Option<&str>| Place {
            address: Address::Inet(address.parse().unwrap()),
            interface: interface.map(str::to_owned),
            namespace: None,
        };
        let check = |own: &str, others: &[&str], expect: (bool, bool)| {
            let own = place(own, None);
            let mut taken = Taken::default();
            others.iter().for_each(|other| taken.add(&place(other, Some("lo"))));
            let overlaps = taken.overlaps(&own);
            taken.add(&own);
            let elsewhere = Place { namespace: Some("blue".into()), ..own.clone() };
            assert!(!taken.overlaps(&elsewhere));
            assert_eq!((overlaps, taken.overlaps_another(&own)), expect, "{own} beside {others:?}");
        };
        check("127.0.0.1:80", &[], (false, false));
        check("127.0.0.1:80", &["127.0.0.1:81", "127.0.0.2:80"], (false, false));
        check("127.0.0.1:80", &["127.0.0.1:80"], (true, true));
        check("127.0.0.1:80", &["[::ffff:127.0.0.1]:80"], (true, true));
        check("127.0.0.1:80", &["0.0.0.0:80"], (true, true));
        check("127.0.0.1:80", &["[::]:80"], (true, true));
        check("0.0.0.0:80", &["127.0.0.1:80"], (true, true));
        check("[::]:80", &["0.0.0.0:80"], (true, true));
    }
}
