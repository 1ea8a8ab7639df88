//! An address that was not in service: opened, or taken from who gave us its sockets; put into service, and withdrawn.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use baton_kernel::group::PreparedGroup;
use baton_kernel::listen::ListenReason;
use baton_kernel::retire::SynFilter;
use baton_kernel::{ListenOptions, ListenerGroup, Listening};
use baton_model::{Address, Bind};
use baton_proxy::ListenerId;

use super::bound::BoundGroup;
use super::granted::Denied;
use super::inherited::{Given, Known};
use super::lent::Elsewhere;
use super::place::{OwnerKind, Place, Taken};
use super::{Listener, Listeners, options};

/// Sockets that are not in service yet.
#[derive(Debug)]
pub(super) enum New {
    /// Given to us, and reached by clients all the time.
    Adopted(Vec<Given>),
    /// As the kernel's room prepares them.
    Prepared(Box<PreparedGroup>),
    /// Without the right to attach a filter, or bound for us.
    Bound(BoundGroup),
}

impl Listeners {
    /// Puts the sockets of an address into service.
    pub(super) fn serve(
        &mut self,
        place: &Place,
        new: New,
        options: ListenOptions,
        kind: OwnerKind,
    ) -> Result<(), String> {
        let (group, given) = match new {
            New::Prepared(group) => (group.publish().map_err(|error| error.to_string())?, Vec::new()),
            New::Bound(group) => (group.publish()?, Vec::new()),
            New::Adopted(given) => self.adopt(given, &options)?,
        };
        let shards = match duplicate(&group) {
            Ok(shards) => shards,
            Err(error) => {
                self.inherited.put_back(Given::again(group, given));
                return Err(error.to_string());
            }
        };
        self.id_last += 1;
        let id = ListenerId(self.id_last);
        let listener = Listener {
            id,
            group,
            shards,
            options,
            given,
            elsewhere: Elsewhere::Nobody,
            pause: None,
            is_disabled: false,
            kind,
        };
        self.open.insert(place.clone(), listener);
        Ok(())
    }

    /// Makes a group of given sockets and gives them the options of their `bind`.
    fn adopt(&mut self, given: Vec<Given>, options: &ListenOptions) -> Result<(ListenerGroup, Vec<Known>), String> {
        let (listening, known) = given.into_iter().map(Given::into_parts).unzip();
        let mut group = ListenerGroup::adopt(listening, options).ok_or("no socket was passed")?;
        for shard in group.shards().iter().filter(|shard| shard.local().inet().is_some()) {
            // Who had it before us may have died while it was taking it out of service.
            let _ = SynFilter::detach(shard);
        }
        match group.apply(options) {
            Ok(()) => Ok((group, known)),
            Err(error) => {
                self.inherited.put_back(Given::again(group, known));
                Err(error.to_string())
            }
        }
    }

    /// Undoes [`Listeners::serve`].
    pub(super) fn withdraw(&mut self, place: &Place) {
        let Some(Listener { group, given, .. }) = self.open.remove(place) else { return };
        match group.shards().first().and_then(Listening::file) {
            Some(file) if given.is_empty() => drop(file.remove()),
            Some(_) | None => {}
        }
        // Sockets that we opened are closed by this.
        self.inherited.put_back(Given::again(group, given));
    }

    /// Opens a new address, or takes the sockets of it that were given to us. Alone if it can; beside a socket of ours that
    /// covers it (such as `*:80` and `127.0.0.1:80`) the kernel lets the more precise one take precedence; `taken` are ours.
    pub(super) fn open_new(&mut self, bind: &Bind, options: &ListenOptions, taken: &Taken) -> Result<New, String> {
        let given = self.inherited.take(bind, options);
        if !given.is_empty() {
            return Ok(New::Adopted(given));
        }
        let is_denied = match self.granted.take(&Place::of(bind), options) {
            Some(Ok(group)) => return Ok(New::Bound(group)),
            Some(Err(Denied::Refused(reason))) => return Err(reason),
            Some(Err(Denied::NotNamed)) => true,
            None => false,
        };
        let endpoint = options::endpoint(&bind.address);
        let shards = self.shards(bind);
        let place = Place::of(bind);
        let overlaps = taken.overlaps(&place) || self.inherited.overlaps(bind, options);
        let options = ListenOptions { exclusive: options.exclusive && !overlaps, ..options.clone() };
        let error = match ListenerGroup::prepare(&endpoint, &options, shards) {
            Ok(group) => return Ok(New::Prepared(Box::new(group))),
            Err(error) => error,
        };
        let bound = match (&error.reason, &bind.address) {
            (ListenReason::Option("SO_ATTACH_FILTER"), Address::Inet(address)) => {
                BoundGroup::bind(*address, &options, shards)
            }
            // Not listening before it is to be reached, it takes no connection from who listens there.
            (ListenReason::InUse, Address::Inet(address)) if self.is_beside => {
                BoundGroup::bind(*address, &ListenOptions { exclusive: false, ..options }, shards)
            }
            _ => Err(Box::new(error)),
        };
        bound.map(New::Bound).map_err(|error| {
            self.in_use.extend((error.reason == ListenReason::InUse).then(|| place.clone()));
            match error.reason {
                _ if is_denied => format!("{error}; it is not in the configuration that the master has read"),
                ListenReason::PrivilegedPort(_) => format!(
                    "{error}; if the process has dropped privileges: bind it at the start, keep the right with 'setcap \
                     cap_net_bind_service', or use a master (-W) started as root"
                ),
                _ => error.to_string(),
            }
        })
    }

    /// How many sockets an address has.
    pub(super) fn shards(&self, bind: &Bind) -> usize {
        match bind.address {
            Address::Inet(_) => bind.options.shards.map_or(self.cores, |shards| (shards as usize).clamp(1, self.cores)),
            Address::Unix(_) | Address::Abstract(_) | Address::Fd(_) => 1,
        }
    }
}

/// A second descriptor of each socket, for the cores. The first one is owned by the state that the address is in here (in service, on its way
/// out, lent, given back), and is closed by leaving that state at the moment that this decides: one of a socket that another process serves
/// by now at once. The cores share the second one, for as long as one of them accepts. `capacity` counts both.
fn duplicate(group: &ListenerGroup) -> io::Result<Arc<[OwnedFd]>> {
    group.shards().iter().map(|shard| shard.as_fd().try_clone_to_owned()).collect()
}
