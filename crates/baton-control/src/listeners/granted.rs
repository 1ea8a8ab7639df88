//! New TCP addresses that another process binds for us, because it has rights that we gave up: our master.
//!
//! [`Listeners::missing`] says what a change will open; [`Named`] is the other process's part, which binds only what the
//! configuration *it* read names; [`Listeners::grant`] takes the sockets, for the next [`Listeners::prepare`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use baton_kernel::listen::SocketIdentity;
use baton_kernel::{ListenOptions, namespace};
use baton_model::{Address, Bind, Model};
use serde::{Deserialize, Serialize};

use super::bound::BoundGroup;
use super::leaving::Leaving;
use super::place::{Owner, Place, Taken, overlap, wanted};
use super::{Listeners, options};

/// Sockets of one address that may be asked for; there are no more threads.
pub const SOCKETS_MAX: usize = 128;

/// A TCP address that is not open yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnopenedAddress {
    /// Where to listen.
    pub address: SocketAddr,
    /// `interface`.
    #[serde(default)]
    pub interface: Option<String>,
    /// `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `transparent`.
    #[serde(default)]
    pub transparent: bool,
    /// `v4v6`, `v6only`.
    #[serde(default)]
    pub v6only: Option<bool>,
    /// How many sockets that share it, 1 to [`SOCKETS_MAX`].
    pub sockets: usize,
}

/// Why an address was not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The configuration that the other process read does not name it: perhaps the file was changed in between.
    NotNamed,
    /// The system refused, in words.
    Refused(String),
}

/// What became of addresses that were asked for.
pub type Granted = Vec<(UnopenedAddress, Result<Vec<OwnedFd>, Denied>)>;

/// What became of addresses, by place.
#[derive(Debug, Default)]
pub(super) struct Grants(HashMap<Place, Result<Vec<OwnedFd>, Denied>>);

impl Grants {
    /// What became of an address; `None` when it was not asked for.
    pub(super) fn take(&mut self, place: &Place, options: &ListenOptions) -> Option<Result<BoundGroup, Denied>> {
        Some(self.0.remove(place)?.map(|sockets| BoundGroup::of(sockets, options.clone())))
    }
}

impl Listeners {
    /// The TCP addresses of a model for which sockets would be opened.
    pub fn missing(&self, model: &Model) -> Vec<UnopenedAddress> {
        let missing = |(owner, bind): &(Owner, Bind)| {
            let Address::Inet(address) = bind.address else { return None };
            let place = Place::of(bind);
            let of_model = options::of(model, owner.frontend(), bind);
            let comes_back = |leaving: &Leaving| leaving.can_resume(owner.kind(), &of_model);
            if self.open.contains_key(&place) || self.retiring.at(&place).is_some_and(comes_back) {
                return None;
            }
            let ListenOptions { interface, namespace, transparent, v6only, .. } = of_model;
            let sockets = self.shards(bind).min(SOCKETS_MAX);
            Some(UnopenedAddress { address, interface, namespace, transparent, v6only, sockets })
        };
        wanted(model).iter().filter_map(missing).collect()
    }

    /// Takes sockets that another process bound. What the next [`Listeners::prepare`] does not use, [`Listeners::drop_granted`]
    /// closes: nobody could reach it yet.
    pub fn grant(&mut self, granted: Granted) {
        let by_place = granted.into_iter().map(|(wanted, outcome)| {
            let UnopenedAddress { address, interface, namespace, .. } = wanted;
            (Place { address: Address::Inet(address), interface, namespace }, outcome)
        });
        self.granted.0.extend(by_place);
    }

    /// Closes what [`Listeners::grant`] brought and nobody used.
    pub fn drop_granted(&mut self) {
        self.granted = Grants::default();
    }
}

/// The addresses that a model names, to bind some of them.
#[derive(Debug)]
pub struct Named<'m> {
    model: &'m Model,
    all: HashMap<Place, Vec<(Owner, Bind)>>,
    taken: Taken,
    /// Addresses of sockets that are held already: they may overlap those that are bound.
    held: &'m [SocketIdentity],
}

impl<'m> Named<'m> {
    /// Those of this model.
    pub fn new(model: &'m Model, held: &'m [SocketIdentity]) -> Named<'m> {
        let (mut all, mut taken): (HashMap<Place, Vec<_>>, _) = (HashMap::new(), Taken::default());
        for (owner, bind) in wanted(model) {
            let place = Place::of(&bind);
            taken.add(&place);
            all.entry(place).or_default().push((owner, bind));
        }
        Named { model, all, taken, held }
    }

    /// Binds what was asked for, if the model names precisely that. Sockets that are held, and other addresses of the model, may
    /// overlap it; whoever else has the address keeps it for itself.
    ///
    /// # Errors
    /// [`Denied`] has the reason; nothing stays bound.
    pub fn bind(&self, asked: &UnopenedAddress) -> Result<Vec<OwnedFd>, Denied> {
        let place = Place {
            address: Address::Inet(asked.address),
            interface: asked.interface.clone(),
            namespace: asked.namespace.clone(),
        };
        let is_meant =
            |bind: &Bind| bind.options.transparent == asked.transparent && bind.options.v6only == asked.v6only;
        let mut there = self.all.get(&place).into_iter().flatten();
        let (owner, bind) = there.find(|(_, bind)| is_meant(bind)).ok_or(Denied::NotNamed)?;
        let netns = namespace::facts(asked.namespace.as_deref()).ok().and_then(|facts| facts.netns);
        let held = self.held.iter().filter(|held| held.netns == netns).filter_map(|held| held.local.inet());
        let overlaps =
            self.taken.overlaps_another(&place) || held.map(Address::Inet).any(|other| overlap(&other, &bind.address));
        let options = options::of(self.model, owner.frontend(), bind);
        let options = ListenOptions { exclusive: options.exclusive && !overlaps, ..options };
        let group = BoundGroup::bind(asked.address, &options, asked.sockets.clamp(1, SOCKETS_MAX));
        group.map(BoundGroup::into_fds).map_err(|error| Denied::Refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use baton_model::{BindOptions, Proxy, Role, Source};

    use super::*;

    fn model(addresses: &[SocketAddr]) -> Model {
        let mut proxy = Proxy::new("f", Role::Frontend);
        proxy.binds = addresses
            .iter()
            .map(|address| Bind {
                address: Address::Inet(*address),
                name: None,
                id: None,
                options: BindOptions::default(),
                source: Source::default(),
            })
            .collect();
        Model { proxies: vec![proxy.into()], ..Model::default() }
    }

    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn only_what_the_configuration_names_is_bound() {
        let (one, other) = (free(), free());
        let model = model(&[one]);
        let mut asked = Listeners::new(2).missing(&model).pop().unwrap();
        assert_eq!((asked.address, asked.sockets), (one, 2));
        asked.address = other;
        assert_eq!(Named::new(&model, &[]).bind(&asked).unwrap_err(), Denied::NotNamed);
        asked.address = one;
        asked.transparent = true;
        assert_eq!(Named::new(&model, &[]).bind(&asked).unwrap_err(), Denied::NotNamed, "not so");
        asked.transparent = false;
        asked.sockets = usize::MAX;
        assert_eq!(Named::new(&model, &[]).bind(&asked).unwrap().len(), SOCKETS_MAX);
        let taken = TcpListener::bind(one).unwrap();
        match Named::new(&model, &[]).bind(&asked) {
            Err(Denied::Refused(reason)) => assert!(reason.contains("already in use"), "{reason}"),
            other => panic!("{other:?}"),
        }
        drop(taken);
    }

    #[test]
    fn a_granted_socket_is_used_once_clients_may_come() {
        let address = free();
        let (before, after) = (model(&[free()]), model(&[address]));
        let mut listeners = Listeners::new(2);
        let prepared = listeners.prepare(&before).unwrap();
        listeners.publish(prepared).unwrap();
        let asked = listeners.missing(&after);
        let granted: Granted = asked
            .into_iter()
            .map(|asked| {
                let outcome = Named::new(&after, &[]).bind(&asked);
                (asked, outcome)
            })
            .collect();
        listeners.grant(granted);
        let prepared = listeners.prepare(&after).unwrap();
        assert!(TcpStream::connect(address).is_err(), "not yet");
        let open = listeners.publish(prepared).unwrap().frontends.pop().unwrap();
        assert_eq!(open.shards.len(), 2);
        TcpStream::connect(address).unwrap();
        assert_eq!(listeners.missing(&after), []);
        listeners.retire(&after, Instant::now());
        assert_eq!(listeners.missing(&before), [], "it comes back as it was");
    }

    #[test]
    fn a_refusal_is_the_reason() {
        let address = free();
        let model = model(&[address]);
        let mut listeners = Listeners::new(1);
        let mut grant = |denied: Denied| {
            let asked = listeners.missing(&model).pop().unwrap();
            listeners.grant(vec![(asked, Err(denied))]);
            listeners.prepare(&model).map(|prepared| listeners.give_up(prepared))
        };
        let reasons = grant(Denied::Refused("no such luck".into())).unwrap_err();
        assert_eq!(reasons[0].reason, "no such luck");
        // Without rights it could not; with them it can.
        grant(Denied::NotNamed).unwrap();
    }
}
