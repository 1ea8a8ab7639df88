//! When a command may begin, and when its end is the end: listening sockets before and after it.
//!
//! What waits in a listening socket is reset when it is closed. So once new connections are kept away, the command has to wait
//! until handshakes under way have ended and the server has accepted them all ([`PreviousListeners::drained`]). And a reload may
//! be over for its caller before the old process has closed its sockets: the kernel would still give it a share of what is let
//! go. So the hold goes on until the old ones are gone, where there are new ones, and until somebody listens where
//! somebody did ([`PreviousListeners::replaced`]).
//!
//! It looks and waits; it changes nothing.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use baton_kernel::listeners::{self, Listener};

use super::target::{Target, Targets};
use crate::KernelError;

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The sockets that listened before the command.
#[derive(Clone, Debug)]
pub struct PreviousListeners {
    targets: Targets,
    sockets: HashSet<u64>,
    served: Vec<Target>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// How long it took.
    pub waited: Duration,
    /// What was still there when time was up: connections, sockets, or targets without a server. 0: it was waited for.
    pub left: usize,
}

impl PreviousListeners {
    /// Looks who listens at the targets.
    ///
    /// # Errors
    /// When the kernel does not tell (sock_diag).
    pub fn look(targets: &Targets) -> Result<PreviousListeners, KernelError> {
        let found = listening(targets)?;
        let served = targets.iter().filter(|target| is_served(target, &found)).copied().collect();
        let sockets = found.iter().map(|listener| listener.cookie).collect();
        Ok(PreviousListeners { targets: targets.clone(), sockets, served })
    }

    /// Whether anybody listened.
    pub fn is_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// Waits until no connection is on its way into the sockets that listen, for so long at most. New ones must be kept away
    /// already.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn drained(&self, longest: Duration) -> Result<Settled, KernelError> {
        settle(longest, || {
            // In this order: a handshake that ends in between moves into the queue, which is looked at later.
            let handshakes = half_open(&self.targets)?;
            let waiting: usize = listening(&self.targets)?.iter().map(|listener| listener.waiting as usize).sum();
            Ok(handshakes + waiting)
        })
    }

    /// Waits until every target that was served is served again and, where there are new sockets, the old ones are closed; for
    /// so long at most.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn replaced(&self, longest: Duration) -> Result<Settled, KernelError> {
        settle(longest, || Ok(self.open_ends(&listening(&self.targets)?)))
    }

    /// Whether nobody listens at a target where somebody did. Who connects there is refused.
    pub fn is_gone(&self) -> bool {
        // What cannot be seen is not told.
        listening(&self.targets).is_ok_and(|now| self.served.iter().any(|target| !is_served(target, &now)))
    }

    /// Targets without a server that had one, and old sockets beside new ones.
    fn open_ends(&self, now: &[Listener]) -> usize {
        let unserved = self.served.iter().filter(|target| !is_served(target, now)).count();
        let (old, new): (Vec<&Listener>, Vec<_>) = now.iter().partition(|found| self.sockets.contains(&found.cookie));
        // A server of several addresses may have opened one of them anew and kept another: that one has no new one beside it.
        let beside = |old: &&&Listener| new.iter().any(|new| new.local == old.local);
        unserved + old.iter().filter(beside).count()
    }
}

/// Looks again and again until nothing is left.
fn settle(longest: Duration, mut left: impl FnMut() -> Result<usize, KernelError>) -> Result<Settled, KernelError> {
    let start = Instant::now();
    loop {
        let left = left()?;
        let waited = start.elapsed();
        if left == 0 || waited >= longest {
            return Ok(Settled { waited, left });
        }
        thread::sleep(PAUSE);
    }
}

fn is_served(target: &Target, listeners: &[Listener]) -> bool {
    listeners.iter().any(|listener| target.is_served_by(listener.local))
}

/// Who listens at one of the targets.
pub(super) fn listening(targets: &Targets) -> Result<Vec<Listener>, KernelError> {
    let mut found = Vec::new();
    for port in ports(targets) {
        found.extend(listeners::listening(port).map_err(|fault| unknown(port, &fault))?);
    }
    found.retain(|listener| targets.iter().any(|target| target.is_served_by(listener.local)));
    Ok(found)
}

/// How many handshakes are under way.
fn half_open(targets: &Targets) -> Result<usize, KernelError> {
    let mut count = 0;
    for port in ports(targets) {
        let found: Vec<SocketAddr> = listeners::half_open(port).map_err(|fault| unknown(port, &fault))?;
        count += found.into_iter().filter(|local| targets.covers(*local)).count();
    }
    Ok(count)
}

fn unknown(port: u16, fault: &baton_kernel::netlink::NetlinkError) -> KernelError {
    KernelError::new(
        format!("sockets of port {port}"),
        fault.to_string(),
        "the kernel needs CONFIG_INET_TCP_DIAG (modprobe tcp_diag)",
    )
}

fn ports(targets: &Targets) -> Vec<u16> {
    let mut ports: Vec<u16> = targets.iter().map(|target| target.port).collect();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn targets(listener: &TcpListener) -> Targets {
        Targets::new(vec![listener.local_addr().unwrap().to_string().parse().unwrap()]).unwrap()
    }

    #[test]
    fn waits_until_connections_are_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = PreviousListeners::look(&targets(&listener)).unwrap();
        assert!(before.is_served());
        assert_eq!(before.drained(PATIENCE).unwrap().left, 0);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(before.drained(Duration::ZERO).unwrap().left, 1);
        let accepting = thread::spawn(move || listener.accept().map(|accepted| (listener, accepted)));
        assert_eq!(before.drained(PATIENCE).unwrap().left, 0);
        accepting.join().unwrap().unwrap();
    }

    #[test]
    fn a_server_that_keeps_its_socket_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = PreviousListeners::look(&targets(&listener)).unwrap();
        assert_eq!(before.replaced(Duration::ZERO).unwrap().left, 0);
    }

    #[test]
    fn waits_for_somebody_who_listens_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = PreviousListeners::look(&targets(&listener)).unwrap();
        assert!(!before.is_gone());
        drop(listener);
        assert!(before.is_gone());
        assert_eq!(before.replaced(Duration::ZERO).unwrap().left, 1);
        let again = thread::spawn(move || TcpListener::bind(address).unwrap());
        assert_eq!(before.replaced(PATIENCE).unwrap().left, 0);
        again.join().unwrap();
    }

    fn listener(cookie: u64, local: &str) -> Listener {
        Listener { cookie, local: local.parse().unwrap(), waiting: 0, inode: 0, user: 0 }
    }

    #[test]
    fn old_sockets_are_waited_for_only_beside_new_ones() {
        let before = PreviousListeners {
            targets: Targets::new(vec![":80".parse().unwrap()]).unwrap(),
            sockets: HashSet::from([1, 2]),
            served: vec![":80".parse().unwrap()],
        };
        let check = |now: &[Listener], expect: usize| assert_eq!(before.open_ends(now), expect, "{now:?}");
        let (old, other) = (listener(1, "10.0.0.1:80"), listener(2, "10.0.0.2:80"));
        check(&[old, other], 0);
        check(&[old, other, listener(3, "10.0.0.1:80")], 1);
        check(&[old, other, listener(3, "10.0.0.1:80"), listener(4, "10.0.0.2:80")], 2);
        check(&[listener(3, "10.0.0.1:80"), listener(4, "10.0.0.2:80")], 0);
        check(&[], 1);
    }
}
