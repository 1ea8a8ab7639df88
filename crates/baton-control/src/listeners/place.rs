//! Where a configuration listens, and for whom.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use baton_model::{Address, Bind, BindOptions, Model, Proxy, StatsSocket};
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
}

impl Owner {
    /// As messages name it.
    pub(super) fn object(&self) -> String {
        match self {
            Owner::Frontend(proxy) => format!("{} {}", proxy.role.word(), proxy.name),
            Owner::Stats(_) => "stats socket".into(),
        }
    }

    pub(super) fn is_stats(&self) -> bool {
        matches!(self, Owner::Stats(_))
    }

    pub(super) fn frontend(&self) -> Option<&Proxy> {
        match self {
            Owner::Frontend(proxy) => Some(proxy),
            Owner::Stats(_) => None,
        }
    }
}

/// Every bind of the frontends that take part, and the sockets of the runtime API.
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
    binds.chain(stats).collect()
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
                let reason = format!("{place} is already the address of {other}: each address has one frontend");
                refused.push(refuse(&owner, &bind, reason));
            }
            None => drop(seen.insert(place, owner)),
        }
    }
    refused
}

impl Place {
    /// Whether both would be reached by some same destination. Two names are taken for two namespaces: who gives one two
    /// names is told that the address is in use.
    pub(super) fn overlaps(&self, other: &Place) -> bool {
        self.namespace == other.namespace && overlap(&self.address, &other.address)
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
