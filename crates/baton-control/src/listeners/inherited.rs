//! Listening sockets that somebody gave us: an older process of ours, HAProxy, a master, or a service manager.
//!
//! They wait in a pool until a configuration asks for their address. Each is known by what the kernel says of it, not
//! by what the giver says, but for two things that the kernel cannot tell: a descriptor number it had (`fd@N`) and the
//! name of its network namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use baton_kernel::listen::{ListenError, SocketIdentity, netns_here, v6only_default};
use baton_kernel::namespace::{self, Facts, Unreachable};
use baton_kernel::{Endpoint, ListenOptions, ListenerGroup, Listening};
use baton_model::{Address, Bind};

use super::{options, overlap};

/// The most sockets a pool holds, as many as a handover can name. The limit of open files is lower, and what it has no room for does not
/// arrive. A giver that sends more is told; the others stay its own.
pub const INHERITED_MAX: usize = 1 << 19;

/// A pool of listening sockets, in the order in which they were given. Looking for those of an address costs what there is at it.
#[derive(Debug, Default)]
pub struct Inherited {
    /// By the order of their arrival.
    sockets: BTreeMap<u64, Given>,
    arrived: u64,
    /// By the kernel's number.
    by_cookie: HashMap<u64, u64>,
    /// By each of their [`Trait`]s.
    by_trait: HashMap<Trait, BTreeSet<u64>>,
    is_order_unknown: bool,
}

/// What some `bind` may ask for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Trait {
    /// It listens there.
    Local(Endpoint),
    /// It had this number as a descriptor.
    Number(i32),
    /// It is a TCP socket of this port.
    Port(u16),
}

impl Trait {
    fn all_of(known: &Known) -> impl Iterator<Item = Trait> {
        let local = Trait::Local(known.identity.local.clone());
        let port = known.identity.local.inet().map(|local| Trait::Port(local.port()));
        [Some(local), port, known.number.map(Trait::Number)].into_iter().flatten()
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Given {
    listening: Listening,
    known: Known,
}

/// What is known of a given socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What the kernel says.
    pub identity: SocketIdentity,
    /// The giver's name for its network namespace; `None` is the giver's own, and ours if the kernel agrees.
    pub namespace: Option<String>,
    /// Its number as a descriptor that the giver had inherited (`fd@N`).
    pub number: Option<i32>,
    /// Whether sockets of one address came in the order in which they were opened, which is the kernel's order.
    pub is_in_order: bool,
}

/// A descriptor that is of no use here.
#[derive(Debug)]
pub enum Unusable {
    /// It is no stream socket that listens or could.
    NoListener(Box<ListenError>),
    /// The kernel does not say what it is.
    Unknown(io::Error),
    /// There are [`INHERITED_MAX`] already.
    TooMany,
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NoListener(error) => write!(out, "{}", error.reason),
            Unusable::Unknown(error) => write!(out, "the kernel does not report its type: {error}"),
            Unusable::TooMany => write!(out, "the maximum of {INHERITED_MAX} is reached"),
        }
    }
}

impl std::error::Error for Unusable {}

impl fmt::Display for Known {
    /// `127.0.0.1:80`, with what else tells it from others.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.identity.local)?;
        if let Some(interface) = &self.identity.interface {
            write!(out, " interface {interface}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(out, " namespace {namespace}")?;
        }
        if let Some(number) = self.number {
            write!(out, " (fd@{number})")?;
        }
        Ok(())
    }
}

impl Inherited {
    /// A pool for the sockets of another program: they come in some order.
    pub fn of_strangers() -> Inherited {
        Inherited { is_order_unknown: true, ..Inherited::default() }
    }

    /// Takes a listening socket into the pool. It is made non-blocking; nothing else about it changes. A second
    /// descriptor of a socket that is there already is closed.
    ///
    /// # Errors
    /// [`Unusable`] has the reason; the descriptor is closed then, which does nothing to a socket that the giver still holds.
    pub fn add(&mut self, fd: OwnedFd) -> Result<(), Unusable> {
        self.add_known(fd, None, None)
    }

    /// Takes a listening socket with what only the giver knows: the name of the network namespace, and the number as a descriptor
    /// (`fd@N`).
    ///
    /// # Errors
    /// As [`Inherited::add`].
    pub fn add_known(&mut self, fd: OwnedFd, namespace: Option<String>, number: Option<i32>) -> Result<(), Unusable> {
        if self.sockets.len() >= INHERITED_MAX {
            return Err(Unusable::TooMany);
        }
        let listening = Listening::adopt(fd).map_err(|error| Unusable::NoListener(Box::new(error)))?;
        let identity = SocketIdentity::of(&listening).map_err(Unusable::Unknown)?;
        let identity = identity.ok_or_else(|| Unusable::Unknown(io::ErrorKind::Unsupported.into()))?;
        if !self.by_cookie.contains_key(&identity.socket) {
            self.push(Given {
                listening,
                known: Known { identity, namespace, number, is_in_order: !self.is_order_unknown },
            });
        }
        Ok(())
    }

    fn push(&mut self, given: Given) {
        let at = self.arrived;
        self.arrived += 1;
        self.by_cookie.insert(given.known.identity.socket, at);
        for of in Trait::all_of(&given.known) {
            self.by_trait.entry(of).or_default().insert(at);
        }
        self.sockets.insert(at, given);
    }

    fn remove(&mut self, at: u64) -> Option<Given> {
        let given = self.sockets.remove(&at)?;
        self.by_cookie.remove(&given.known.identity.socket);
        for of in Trait::all_of(&given.known) {
            if let Some(there) = self.by_trait.get_mut(&of) {
                there.remove(&at);
                if there.is_empty() {
                    self.by_trait.remove(&of);
                }
            }
        }
        Some(given)
    }

    /// Sockets that may be what is wanted, in order.
    fn near(&self, of: &Trait) -> impl Iterator<Item = (u64, &Given)> {
        let there = self.by_trait.get(of).into_iter().flatten();
        there.filter_map(|at| Some((*at, self.sockets.get(at)?)))
    }

    /// Takes all sockets of another pool. Of what is in both, what is known is put together.
    pub fn extend(&mut self, other: Inherited) {
        for given in other.sockets.into_values() {
            let own = self.by_cookie.get(&given.known.identity.socket);
            match own.and_then(|at| Some((*at, self.sockets.get_mut(at)?))) {
                Some((at, own)) => {
                    own.known.is_in_order |= given.known.is_in_order;
                    own.known.namespace = own.known.namespace.take().or(given.known.namespace);
                    own.known.number = own.known.number.or(given.known.number);
                    if let Some(number) = own.known.number {
                        self.by_trait.entry(Trait::Number(number)).or_default().insert(at);
                    }
                }
                None => self.push(given),
            }
        }
    }

    /// The descriptors alone, in order.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        self.sockets.into_values().map(|given| given.listening.into_fd()).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// What is in the pool, in order.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        self.sockets.values().map(|given| &given.known)
    }

    /// Takes out all sockets that are what the `bind` asks for.
    pub(super) fn take(&mut self, bind: &Bind, options: &ListenOptions) -> Vec<Given> {
        if self.sockets.is_empty() {
            return Vec::new();
        }
        let wanted = SocketRequirements::of(bind, options);
        let there: Vec<u64> =
            self.near(&wanted.nearest()).filter(|(_, given)| wanted.is(&given.known)).map(|(at, _)| at).collect();
        there.into_iter().filter_map(|at| self.remove(at)).collect()
    }

    /// Whether there is a socket that is what the `bind` asks for.
    pub(super) fn has(&self, bind: &Bind, options: &ListenOptions) -> bool {
        let wanted = SocketRequirements::of(bind, options);
        self.near(&wanted.nearest()).any(|(_, given)| wanted.is(&given.known))
    }

    /// Puts sockets into the pool that were taken out and are not needed after all.
    pub(super) fn put_back(&mut self, sockets: Vec<Given>) {
        sockets.into_iter().for_each(|given| self.push(given));
    }

    /// Whether a socket of the pool would be reached by some destination that the `bind` is reached by too.
    pub(super) fn overlaps(&self, bind: &Bind, options: &ListenOptions) -> bool {
        let Address::Inet(address) = &bind.address else { return false };
        let port = Trait::Port(address.port());
        let mut there = self.near(&port).map(|(_, given)| &given.known).peekable();
        if there.peek().is_none() {
            return false;
        }
        let wanted = SocketRequirements::of(bind, options);
        let mut there = there.filter(|known| wanted.is_there(known));
        there
            .any(|known| known.identity.local.inet().is_some_and(|local| overlap(&Address::Inet(local), &bind.address)))
    }
}

impl Given {
    /// The socket, and what is known of it.
    pub(super) fn into_parts(self) -> (Listening, Known) {
        (self.listening, self.known)
    }

    /// The way back, for sockets that were in a group; none for a group of sockets that were not given.
    pub(super) fn again(group: ListenerGroup, known: Vec<Known>) -> Vec<Given> {
        group.into_shards().into_iter().zip(known).map(|(listening, known)| Given { listening, known }).collect()
    }
}

/// What a socket must be to serve a `bind`.
struct SocketRequirements<'a> {
    endpoint: Endpoint,
    interface: Option<&'a str>,
    v6only: Option<bool>,
    namespace: Option<&'a str>,
    /// What the kernel says of that namespace.
    facts: Result<Facts, Unreachable>,
}

impl SocketRequirements<'_> {
    fn of<'a>(bind: &Bind, options: &'a ListenOptions) -> SocketRequirements<'a> {
        let namespace = options.namespace.as_deref();
        let facts = namespace::facts(namespace);
        SocketRequirements {
            endpoint: options::endpoint(&bind.address),
            interface: options.interface.as_deref(),
            v6only: options.v6only.or_else(|| facts.as_ref().map_or_else(|_| v6only_default(), |facts| facts.v6only)),
            namespace,
            facts,
        }
    }

    /// What all sockets have that it may mean.
    fn nearest(&self) -> Trait {
        match &self.endpoint {
            Endpoint::Fd(number) => Trait::Number(*number),
            local => Trait::Local(local.clone()),
        }
    }

    fn is(&self, known: &Known) -> bool {
        let identity = &known.identity;
        if let Endpoint::Fd(number) = self.endpoint {
            return known.number == Some(number);
        }
        // A path leads to the same socket from every network namespace.
        let is_there = matches!(self.endpoint, Endpoint::Unix(_)) || self.is_there(known);
        identity.local == self.endpoint
            && is_there
            && identity.interface.as_deref() == self.interface
            && identity.v6only.is_none_or(|only| Some(only) == self.v6only)
            && self.is_reachable(known)
    }

    /// Whether a socket is in the network namespace that is meant. The kernel tells; without the right to ask it of a name,
    /// the giver's word is taken, for a socket that is not in ours.
    fn is_there(&self, known: &Known) -> bool {
        let netns = known.identity.netns;
        match (&self.facts, self.namespace) {
            (Ok(facts), None) => netns == facts.netns && (netns.is_some() || known.namespace.is_none()),
            (Ok(facts), Some(_)) => netns.is_some() && netns == facts.netns,
            (Err(Unreachable::NoRight(_)), Some(name)) => {
                netns.is_some() && netns != netns_here() && known.namespace.as_deref() == Some(name)
            }
            (Err(_), _) => false,
        }
    }

    /// A unix socket whose file has gone, or is something else by now, cannot be reached by its path any more.
    fn is_reachable(&self, _known: &Known) -> bool {
        match &self.endpoint {
            Endpoint::Unix(path) => {
                use std::os::unix::fs::FileTypeExt;
                std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            }
            Endpoint::Inet(_) | Endpoint::Abstract(_) | Endpoint::Fd(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
