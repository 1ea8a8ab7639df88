//! Listening addresses: open as long as the configuration names them, whatever frontend they serve, and whether they are a
//! frontend's or the runtime API's.
//!
//! A change goes through here in three moves, as everywhere on the change path: [`Listeners::prepare`] opens what is new
//! so that nobody can reach it yet and refuses what cannot be; [`Listeners::publish`] lets clients in;
//! [`Listeners::retire`] keeps new clients from what is gone, which [`Listeners::look`] closes once it is empty.
//!
//! Sockets that somebody gave us ([`Listeners::inherit`]) are taken instead of opened: clients reach them all the time.

mod bound;
mod departures;
mod granted;
mod inherited;
mod leaving;
mod lent;
mod opening;
mod options;
mod paused;
mod place;
#[cfg(test)]
pub(crate) mod tests;
mod unfinished;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use baton_kernel::half_open::Handshakes;
use baton_kernel::{Endpoint, ListenOptions, ListenerGroup, Listening};
use baton_model::diff::needs_socket;
use baton_model::{Address, Bind, BindOptions, Model, StatsSocket};
use baton_proxy::generation::OpenListener;
use baton_proxy::{ListenerId, Refused};

use self::departures::Departures;
use self::granted::Grants;
use self::leaving::Leaving;
use self::lent::Elsewhere;
use self::opening::New;
use self::paused::Pause;
use self::place::{Owner, OwnerKind, Taken, overlap, refuse, wanted};
use crate::retirement::RetireStep;

pub use self::granted::{Denied, Granted, Named, SOCKETS_MAX, UnopenedAddress};
pub use self::inherited::{INHERITED_MAX, Inherited, Known, Unusable};
pub use self::lent::Gift;
pub use self::paused::LOOK_EVERY as PAUSE_LOOK_EVERY;
pub use self::place::{Place, named_twice};
pub use self::unfinished::with_unfinished;

/// All listening addresses of the process.
#[derive(Debug)]
pub struct Listeners {
    open: HashMap<Place, Listener>,
    /// What the configuration that was published last asks of its addresses.
    asked: HashMap<Place, BindOptions>,
    retiring: Departures,
    /// Given to us, and asked for by no configuration yet.
    inherited: Inherited,
    /// Bound for us by our master, for the change that is under way.
    granted: Grants,
    id_last: u64,
    /// Sockets of a TCP address without `shards`: one for each core.
    cores: usize,
    /// Whether addresses are shared with others who let us, instead of being ours alone.
    is_beside: bool,
    /// Addresses that the last prepare could not have because another socket listens there.
    in_use: Vec<Place>,
}

/// An address in service.
#[derive(Debug)]
struct Listener {
    id: ListenerId,
    group: ListenerGroup,
    /// The sockets of the group, as the cores share them.
    shards: Arc<[OwnedFd]>,
    options: ListenOptions,
    /// What is known of the sockets if they were given to us; empty if we opened them.
    given: Vec<Known>,
    /// Who has the sockets too by now.
    elsewhere: Elsewhere,
    /// Whether and how far it is paused.
    pause: Option<Pause>,
    /// It is paused because an operator has disabled its frontend: nobody else resumes it.
    is_disabled: bool,
    /// Whose it is.
    kind: OwnerKind,
}

/// An address in service and its sockets, to be given to another process.
#[derive(Debug)]
pub struct Offer<'a> {
    /// Where it listens, as the configuration names it.
    pub place: &'a Place,
    /// Its sockets, in the order in which they were opened.
    pub sockets: &'a [Listening],
    /// The sockets, shared: they stay open as long as this is held.
    pub shards: &'a Arc<[OwnedFd]>,
}

/// What a configuration needs, ready to be used. Given back to [`Listeners::give_up`], it leaves no trace.
#[derive(Debug)]
pub struct PreparedListeners {
    /// Every address of the model, in order.
    wanted: Vec<(Owner, Bind)>,
    new: Vec<(Place, New, ListenOptions)>,
    /// Options the kept sockets had before.
    before: Vec<(Place, ListenOptions)>,
}

/// Open addresses of a configuration, by whom they lead to.
#[derive(Debug, Default)]
pub struct Published {
    /// Those of frontends, for the cores.
    pub frontends: Vec<OpenListener>,
    /// Those of the runtime API.
    pub stats: Vec<OpenStats>,
    /// Those of `peers` sections.
    pub peers: Vec<OpenPeers>,
}

/// An open address of a `peers` section.
#[derive(Debug)]
pub struct OpenPeers {
    /// Identity; the same as before for an address that stays.
    pub id: ListenerId,
    /// The section.
    pub section: Arc<str>,
    /// What was asked.
    pub bind: Bind,
    /// Its socket.
    pub shards: Arc<[OwnedFd]>,
}

/// An open `stats socket`.
#[derive(Debug)]
pub struct OpenStats {
    /// Identity; the same as before for an address that stays.
    pub id: ListenerId,
    /// What was asked.
    pub socket: StatsSocket,
    /// Its socket.
    pub shards: Arc<[OwnedFd]>,
}

impl Listeners {
    /// No address yet, for a process of `cores` cores.
    pub fn new(cores: usize) -> Listeners {
        Listeners {
            open: HashMap::new(),
            asked: HashMap::new(),
            retiring: Departures::default(),
            inherited: Inherited::default(),
            granted: Grants::default(),
            id_last: 0,
            cores: cores.max(1),
            is_beside: false,
            in_use: Vec::new(),
        }
    }

    /// Opens addresses beside processes of the same user that listen there with `SO_REUSEPORT`, instead of refusing them:
    /// for a successor of a process that will end once we serve.
    pub fn beside_others(&mut self, is_beside: bool) {
        self.is_beside = is_beside;
    }

    /// The addresses that the last [`Listeners::prepare`] refused because another socket listens there.
    pub fn in_use(&self) -> &[Place] {
        &self.in_use
    }

    /// Takes listening sockets that somebody gave us. The next [`Listeners::prepare`] takes those its model asks for,
    /// with all who wait in their queues.
    pub fn inherit(&mut self, inherited: Inherited) {
        self.inherited.extend(inherited);
    }

    /// Given sockets that no configuration has asked for until now. They are not accepted from, so whoever gave them
    /// goes on to, or is told that they are not wanted; then [`Listeners::drop_left`].
    pub fn left(&self) -> &Inherited {
        &self.inherited
    }

    /// Closes what [`Listeners::left`] shows. Nothing is lost as long as the giver still has them.
    pub fn drop_left(&mut self) {
        self.inherited = Inherited::default();
    }

    /// Opens what the model needs and is not open, unreachable still; gives new options to what stays.
    ///
    /// # Errors
    /// Every address that cannot be had; everything is as before then.
    pub fn prepare(&mut self, model: &Model) -> Result<PreparedListeners, Vec<Refused>> {
        self.in_use.clear();
        let mut refused = Vec::new();
        let mut prepared = PreparedListeners { wanted: wanted(model), new: Vec::new(), before: Vec::new() };
        let mut seen: HashMap<Place, &Owner> = HashMap::new();
        let mut taken: Option<Taken> = None;
        for (owner, bind) in &prepared.wanted {
            let place = Place::of(bind);
            if let Some(other) = seen.insert(place.clone(), owner) {
                let other = other.object();
                let reason = format!("{place} is already used by {other}: an address can belong to one frontend only");
                refused.push(refuse(owner, bind, reason));
                continue;
            }
            let options = options::of(model, owner.frontend(), bind);
            let outcome = match (self.open.get_mut(&place), self.retiring.at(&place)) {
                (Some(listener), _) if listener.kind != owner.kind() => Err(format!(
                    "{} cannot move between {} and {}: remove the address with one reload and add it with the next",
                    bind.address,
                    listener.kind.text(),
                    owner.kind().text(),
                )),
                (Some(listener), _) => {
                    match self.asked.get(&place).and_then(|asked| needs_socket(asked, &bind.options)) {
                        Some(word) => Err(format!(
                            "'{word}' of an open address cannot change: remove the address with one reload and add it with the next"
                        )),
                        None => listener.change(&options).map(|before| {
                            prepared.before.extend(before.map(|before| (place.clone(), before)));
                        }),
                    }
                }
                // It is put back into service when the change is committed.
                (None, Some(leaving)) if leaving.can_resume(owner.kind(), &options) => Ok(()),
                (None, _) => {
                    let taken = taken.get_or_insert_with(|| self.taken());
                    self.open_new(bind, &options, taken).map(|group| {
                        taken.add(&place);
                        prepared.new.push((place.clone(), group, options.clone()));
                    })
                }
            };
            refused.extend(outcome.err().map(|reason| refuse(owner, bind, reason)));
        }
        if refused.is_empty() {
            return Ok(prepared);
        }
        self.give_up(prepared);
        Err(refused)
    }

    /// Undoes [`Listeners::prepare`].
    pub fn give_up(&mut self, prepared: PreparedListeners) {
        for (place, before) in prepared.before {
            if let Some(listener) = self.open.get_mut(&place) {
                // These were in force a moment ago.
                let _ = listener.change(&before);
            }
        }
        for (_, new, _) in prepared.new {
            if let New::Adopted(given) = new {
                self.inherited.put_back(given);
            }
        }
    }

    /// Lets clients in to what is new and gives all addresses of the configuration.
    ///
    /// # Errors
    /// Practically never (a directory removed in this very moment): the kernel's words. Everything is as before then: addresses on their
    /// way out, which cores accept from all the time, are on it again, and new ones are closed, of which no configuration in use knows.
    pub fn publish(&mut self, prepared: PreparedListeners) -> Result<Published, Refused> {
        let PreparedListeners { wanted, new, before } = prepared;
        let new_places: HashSet<&Place> = new.iter().map(|(place, ..)| place).collect();
        let is_leaving = |place: &Place| !self.open.contains_key(place) && !new_places.contains(place);
        let mut seen = HashSet::new();
        let resumed = wanted.iter().map(|(owner, bind)| (Place::of(bind), owner, bind));
        let resumed: Vec<_> = resumed.filter(|(place, ..)| is_leaving(place) && seen.insert(place.clone())).collect();
        let mut let_in: Vec<Place> = Vec::new();
        let mut outcome = Ok(());
        for (place, owner, bind) in resumed {
            match self.let_in(&place) {
                Ok(()) => let_in.push(place),
                Err(reason) => {
                    outcome = Err(refuse(owner, bind, reason));
                    break;
                }
            }
        }
        let kinds: HashMap<Place, OwnerKind> =
            wanted.iter().map(|(owner, bind)| (Place::of(bind), owner.kind())).collect();
        let mut opened = Vec::new();
        let mut new = new.into_iter();
        while outcome.is_ok()
            && let Some((place, group, options)) = new.next()
        {
            let kind = kinds.get(&place).copied().unwrap_or(OwnerKind::Frontend);
            match self.serve(&place, group, options, kind) {
                Ok(()) => opened.push(place),
                Err(reason) => {
                    let (object, source) = (format!("bind {place}"), baton_model::Source::default());
                    outcome = Err(Refused { object, reason, source });
                }
            }
        }
        if let Err(refused) = outcome {
            let rest = new.collect();
            opened.into_iter().for_each(|place| self.withdraw(&place));
            for place in &let_in {
                self.retiring.at_mut(place).into_iter().for_each(Leaving::keep_out);
            }
            self.give_up(PreparedListeners { wanted, new: rest, before });
            return Err(refused);
        }
        // Nothing from here on can fail.
        for place in let_in {
            let listener = self.retiring.take_at(&place).and_then(Leaving::back);
            self.open.extend(listener.map(|listener| (place, listener)));
        }
        let mut published = Published::default();
        self.asked = wanted.iter().map(|(_, bind)| (Place::of(bind), bind.options.clone())).collect();
        for (owner, bind) in wanted {
            let place = Place::of(&bind);
            let Some(listener) = self.open.get(&place) else { continue };
            let (id, shards) = (listener.id, listener.shards.clone());
            match owner {
                Owner::Frontend(proxy) => {
                    published.frontends.push(OpenListener {
                        id,
                        frontend: proxy.name.clone(),
                        bind,
                        shards,
                        tls: None,
                    });
                }
                Owner::Peers(section) => {
                    published.peers.push(OpenPeers { id, section: section.name.clone(), bind, shards })
                }
                Owner::Stats(socket) => published.stats.push(OpenStats { id, socket: *socket, shards }),
            }
        }
        Ok(published)
    }

    /// Keeps new clients from every address the model does not have. Who reached one before is still accepted.
    pub fn retire(&mut self, model: &Model, now: Instant) {
        let wanted: HashSet<Place> = wanted(model).iter().map(|(_, bind)| Place::of(bind)).collect();
        let gone: HashSet<Place> = self.open.keys().filter(|place| !wanted.contains(place)).cloned().collect();
        lent::settle(self.open.iter_mut().filter(|(place, _)| gone.contains(place)).map(|(_, listener)| listener), now);
        for place in gone {
            if let Some(listener) = self.open.remove(&place) {
                self.retiring.add(Leaving::start(listener, place, now));
            }
        }
    }

    /// What is in service, for another process to take, in order.
    pub fn offers(&self) -> Vec<Offer<'_>> {
        let mut offers = Vec::with_capacity(self.open.len());
        for (place, listener) in &self.open {
            offers.push(Offer { place, sockets: listener.group.shards(), shards: &listener.shards });
        }
        offers.sort_by_key(|offer| offer.place);
        offers
    }

    /// What is on its way out and could come back into service: a process that takes over may want it again. It stays as it is until
    /// [`Listeners::handed_over`] or [`Listeners::keep_offered`].
    pub fn offer_again(&mut self) -> Vec<(Place, Arc<[OwnedFd]>)> {
        let mut offers: Vec<(Place, Arc<[OwnedFd]>)> = Vec::new();
        let mut offered: HashSet<Place> = HashSet::new();
        for leaving in self.retiring.iter_mut() {
            let is_there = self.open.contains_key(&leaving.place) || offered.contains(&leaving.place);
            if !is_there && let Some(shards) = leaving.offer() {
                offered.insert(leaving.place.clone());
                offers.push((leaving.place.clone(), shards));
            }
        }
        offers
    }

    /// What was offered again and nobody took goes on its way out.
    pub fn keep_offered(&mut self) {
        self.retiring.iter_mut().for_each(Leaving::take_back);
    }

    /// Every socket that is not closed yet, those on their way out too; of an address in the order of opening.
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        let open = self.open.values().flat_map(|listener| listener.group.shards()).map(AsFd::as_fd);
        open.chain(self.retiring.iter().flat_map(Leaving::sockets)).collect()
    }

    /// Sockets in service that a configuration names by the number of a descriptor (`fd@N`), with that number.
    pub fn numbered(&self) -> impl Iterator<Item = (i32, BorrowedFd<'_>)> {
        self.open.iter().filter_map(|(place, listener)| match place.address {
            Address::Fd(number) => Some((number, listener.group.shards().first()?.as_fd())),
            Address::Inet(_) | Address::Unix(_) | Address::Abstract(_) => None,
        })
    }

    /// The kernel's numbers of TCP sockets on their way out from which we have no right to keep new clients.
    pub fn open_still(&self) -> Vec<u64> {
        self.retiring.iter().flat_map(Leaving::open_still).collect()
    }

    /// Gives every socket in service its options again: another process that has it too may have changed them.
    pub fn apply_again(&mut self) {
        for listener in self.open.values_mut() {
            // These were in force a moment ago.
            let _ = listener.group.apply(&listener.options.clone());
        }
        self.keep_offered();
    }

    /// Says whether another process serves all sockets of an address by now, or does not after all. Sockets that it
    /// serves are not taken out of service when the address is retired: they are the other's too, and so are all who
    /// wait in them. They are only closed here, at once those of an address that is on its way out. An address that is neither is
    /// no error.
    pub fn handed_over(&mut self, place: &Place, is_handed_over: bool) {
        match (self.open.get_mut(place), self.retiring.at_mut(place)) {
            (Some(listener), _) => {
                listener.elsewhere = if is_handed_over { Elsewhere::All } else { Elsewhere::Nobody };
            }
            (None, Some(leaving)) if is_handed_over => leaving.hand_over(),
            (None, _) => {}
        }
    }

    /// Keeps new clients from every address: a soft stop.
    pub fn retire_all(&mut self, now: Instant) {
        self.retire(&Model::default(), now);
    }

    /// Looks at the addresses on their way out. Those in the answer are empty: the cores shall close them, then
    /// [`Listeners::closed`].
    pub fn look(&mut self, now: Instant) -> Vec<ListenerId> {
        let mut handshakes = Handshakes::default();
        let empty = |leaving: &mut Leaving| {
            let is_over = leaving.step(now, &mut handshakes) == RetireStep::Close;
            if is_over {
                leaving.stop_open_still();
            }
            is_over.then_some(leaving.id)
        };
        self.retiring.iter_mut().filter_map(empty).collect()
    }

    /// Sockets that other programs serve from now on, each with its place among those of its address: the cores shall not
    /// accept from them any more.
    pub fn left_to_others(&mut self) -> Vec<(ListenerId, usize)> {
        let leaving = self.retiring.iter_mut().filter_map(|leaving| leaving.leaves_first().then_some(leaving.id));
        leaving.map(|id| (id, 0)).collect()
    }

    /// The cores have closed it.
    pub fn closed(&mut self, id: ListenerId) {
        if let Some(leaving) = self.retiring.take(id) {
            leaving.close();
        }
    }

    /// Addresses on their way out.
    pub fn leaving_count(&self) -> usize {
        self.retiring.len()
    }

    /// Addresses in service with the number of their sockets, in order.
    pub fn addresses(&self) -> Vec<(String, usize)> {
        let mut all: Vec<_> = self
            .open
            .values()
            .map(|listener| (listener.group.local().to_string(), listener.group.shards().len()))
            .collect();
        all.sort();
        all
    }

    /// Addresses of ours, those on their way out too.
    fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        self.open.keys().chain(self.retiring.iter().map(|leaving| &leaving.place)).for_each(|place| taken.add(place));
        taken
    }

    /// Lets new clients in to an address on its way out.
    fn let_in(&mut self, place: &Place) -> Result<(), String> {
        let leaving = self.retiring.at_mut(place).ok_or_else(|| format!("{place} was closed in the meantime"))?;
        leaving.let_in()
    }
}

impl Listener {
    /// Gives the sockets new options, all of which they can follow; the old ones when there was something to do.
    fn change(&mut self, options: &ListenOptions) -> Result<Option<ListenOptions>, String> {
        if *options == self.options {
            return Ok(None);
        }
        if let Err(error) = self.group.apply(options) {
            // These were in force a moment ago.
            let _ = self.group.apply(&self.options);
            return Err(error.to_string());
        }
        Ok(Some(std::mem::replace(&mut self.options, options.clone())))
    }
}

/// The kernel's form of an address, for messages elsewhere.
pub fn endpoint(address: &Address) -> Endpoint {
    options::endpoint(address)
}
