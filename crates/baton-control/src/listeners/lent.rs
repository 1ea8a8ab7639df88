//! Addresses of which another program has the first socket: HAProxy takes one socket for each address, we have several.
//!
//! What is done to a socket that two processes hold is done to both of them. So the first socket is only let go of. The
//! others are ours alone; the kernel is told to choose the first one from now on, those who reached the others before are
//! accepted, and then they are closed and the kernel may choose as it likes again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use baton_kernel::holders::{Holders, Inode};
use baton_kernel::surplus::Surplus;
use baton_kernel::{ListenerGroup, Listening, transfer};

use super::leaving::Leaving;
use super::place::Place;
use super::{Known, Listener, Listeners};
use crate::retirement::QueueObservation;

/// How long a program that was given a socket is believed to serve it without being looked for. What is done to a socket
/// of which we wrongly believe that nobody else holds it ends the other program's service; the other way round only who
/// waits in its queue is lost.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// Who has the sockets of an address besides us.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Elsewhere {
    /// Nobody.
    #[default]
    Nobody,
    /// Another process serves all of them.
    All,
    /// Another program was given the first one; whether it kept it has to be looked at.
    First {
        /// When it was given.
        since: Instant,
        /// Whether processes that hold it can be seen from here.
        is_visible: bool,
    },
}

/// One socket of an address, for a program that has one for each.
#[derive(Debug)]
pub struct Gift {
    /// Where it listens, as the configuration names it.
    pub place: Place,
    /// A descriptor of its first socket.
    pub fd: OwnedFd,
}

impl Gift {
    /// In the form in which it is sent.
    pub fn to_give(&self) -> transfer::OfferedSocket<'_> {
        let Place { interface, namespace, .. } = &self.place;
        transfer::OfferedSocket {
            fd: self.fd.as_fd(),
            namespace: namespace.as_deref().unwrap_or_default(),
            interface: interface.as_deref().unwrap_or_default(),
        }
    }
}

impl Listeners {
    /// The first socket of every address in service, in order: for HAProxy, which takes one for each address. Those that
    /// another program has begun to serve a moment ago are among them: who takes over from it may ask us still.
    ///
    /// # Errors
    /// At the limit of open files.
    pub fn gifts(&self) -> io::Result<Vec<Gift>> {
        let gift = |offer: super::Offer<'_>| {
            let fd = offer.sockets[0].try_clone()?.into_fd();
            Ok(Gift { place: offer.place.clone(), fd })
        };
        self.offers().into_iter().chain(self.retiring.iter().filter_map(Leaving::first_of_others)).map(gift).collect()
    }

    /// Says that another program was given the first sockets of these addresses at `now`. When they are retired, those that
    /// it still holds are left to it. A program in another PID namespace is not `visible`, and believed to hold them.
    pub fn lent(&mut self, places: &[Place], is_visible: bool, now: Instant) {
        for (_, listener) in self.open.iter_mut().filter(|(place, _)| places.contains(place)) {
            listener.elsewhere = Elsewhere::First { since: now, is_visible };
        }
    }
}

impl Listener {
    fn inode(&self) -> Option<Inode> {
        self.group.shards().first().and_then(|socket| Inode::of(socket).ok())
    }
}

/// Finds out what became of sockets that were lent: who does not hold them any more will not serve them. Where that cannot
/// be told, whoever asked for them is believed to.
pub(super) fn settle<'a>(listeners: impl Iterator<Item = &'a mut Listener>, now: Instant) {
    let is_doubtful = |listener: &&mut Listener| match listener.elsewhere {
        Elsewhere::First { since, is_visible } => is_visible && now >= since + BELIEVED_FOR,
        Elsewhere::Nobody | Elsewhere::All => false,
    };
    let mut lent: Vec<_> = listeners.filter(is_doubtful).collect();
    if lent.is_empty() {
        return;
    }
    let inodes: Vec<_> = lent.iter().filter_map(|listener| listener.inode()).collect();
    let holders = Holders::look(&inodes);
    for listener in &mut lent {
        if listener.inode().is_some_and(|inode| holders.holds(inode) == Some(false)) {
            listener.elsewhere = Elsewhere::Nobody;
        }
    }
}

/// An address on its way out of which another program serves the first socket.
#[derive(Debug)]
pub(super) struct Lent {
    group: ListenerGroup,
    surplus: Surplus,
}

impl Lent {
    /// Has the kernel choose the first socket from now on.
    ///
    /// # Errors
    /// The sockets but the first, when the kernel does not do so, or when it is not known which socket is its first.
    pub(super) fn start(mut group: ListenerGroup, given: &[Known]) -> Result<Lent, Vec<Listening>> {
        let is_in_order = group.shards().len() == 1 || given.iter().all(|known| known.is_in_order);
        match is_in_order.then(|| group.shrink(1)) {
            Some(Ok(surplus)) => Ok(Lent { group, surplus: Surplus::new(surplus) }),
            Some(Err(_)) | None => Err(group.into_shards().split_off(1)),
        }
    }

    /// The socket that the other program serves.
    pub(super) fn first(&self) -> &[Listening] {
        self.group.shards()
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_alone(&self) -> bool {
        self.surplus.sockets().is_empty()
    }

    /// What is left of those who reached the other sockets.
    pub(super) fn see(&mut self) -> QueueObservation {
        match self.surplus.is_empty() {
            Ok(true) => QueueObservation::Empty,
            Ok(false) => QueueObservation::Busy,
            Err(_) => QueueObservation::Unknown,
        }
    }

    /// Closes the other sockets. The first one lives on with whoever has it.
    pub(super) fn close(self) {
        self.surplus.close();
        // Fails when the kernel does not know how, which it did before.
        let _ = self.group.settle();
    }
}

#[cfg(test)]
mod tests {
    use baton_model::{Address, Bind, BindOptions, Model, Proxy, Role, Source};
    use baton_proxy::ListenerId;
    use socket2::SockRef;
    use std::net::{SocketAddr, TcpStream};
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A process that is just being started by another test would hold our sockets for a moment.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Another process that holds a socket until it is dropped.
    struct Holder(Child);

    impl Holder {
        fn of(fd: OwnedFd) -> Holder {
            let mut command = Command::new("cat");
            Holder(command.stdin(Stdio::piped()).stdout(fd).spawn().expect("every system has it"))
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Listeners with one address of three sockets, given away as to HAProxy.
    fn lent() -> (Listeners, ListenerId, SocketAddr, std::sync::Arc<[OwnedFd]>, OwnedFd) {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut proxy = Proxy::new("f", Role::Frontend);
        let (options, source) = (BindOptions::default(), Source::default());
        proxy.binds.push(Bind { address: Address::Inet(address), name: None, id: None, options, source });
        let mut listeners = Listeners::new(3);
        let prepared = listeners.prepare(&Model { proxies: vec![proxy.into()], ..Model::default() }).unwrap();
        let open = listeners.publish(prepared).unwrap().frontends.pop().unwrap();
        let gift = listeners.gifts().unwrap().pop().unwrap();
        listeners.lent(&[gift.place], true, Instant::now());
        (listeners, open.id, address, open.shards, gift.fd)
    }

    fn accept_all(socket: &impl std::os::fd::AsFd) -> usize {
        std::iter::from_fn(|| SockRef::from(socket).accept().ok()).count()
    }

    fn connect(address: SocketAddr) -> Vec<TcpStream> {
        (0..60).map(|_| TcpStream::connect(address).unwrap()).collect()
    }

    #[test]
    fn new_clients_reach_the_other_program_and_who_came_before_is_served() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut listeners, id, address, shards, theirs) = lent();
        let _before = connect(address);
        let _holder = Holder::of(theirs.try_clone().unwrap());
        let now = Instant::now() + BELIEVED_FOR;
        listeners.retire_all(now);
        assert_eq!(listeners.left_to_others(), [(id, 0)]);
        assert_eq!(listeners.left_to_others(), [], "said once");
        assert_eq!(listeners.look(now), [], "some wait in our sockets");
        let early = accept_all(&theirs);
        let ours: usize = shards.iter().skip(1).map(accept_all).sum();
        assert!(ours > 10 && early + ours == 60, "{early} + {ours}");

        let _after = connect(address);
        assert_eq!(accept_all(&theirs), 60, "all that are new");
        assert_eq!(listeners.look(now), []);
        assert_eq!(listeners.look(now + Duration::from_secs(1)), [id]);
        listeners.closed(id);
        let _later = connect(address);
        assert_eq!(accept_all(&theirs), 60, "the only one left, although our descriptors are still open");
        drop(shards);
    }

    #[test]
    fn what_the_other_program_did_not_keep_is_retired_as_always() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut listeners, id, address, shards, theirs) = lent();
        let waiting = TcpStream::connect(address).unwrap();
        drop(theirs);
        // Long after it was given: until then it is believed to be held.
        let now = Instant::now() + BELIEVED_FOR;
        listeners.retire_all(now);
        assert_eq!(listeners.left_to_others(), []);
        assert_eq!(listeners.look(now + Duration::from_secs(5)), [], "somebody waits");
        drop(waiting);
        assert_eq!(shards.iter().map(accept_all).sum::<usize>(), 1);
        assert_eq!(listeners.look(now + Duration::from_secs(6)), []);
        assert_eq!(listeners.look(now + Duration::from_secs(7)), [id]);
    }

    #[test]
    fn who_was_given_a_socket_just_now_is_believed_to_serve_it() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut listeners, id, _, _shards, theirs) = lent();
        drop(theirs);
        listeners.retire_all(Instant::now());
        assert_eq!(listeners.left_to_others(), [(id, 0)], "it may be in other hands for a moment");
    }
}
