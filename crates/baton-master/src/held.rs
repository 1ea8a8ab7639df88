//! The listening sockets a master holds, so that their queues outlive a worker. It never accepts from them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use baton_control::listeners::INHERITED_MAX;
use baton_kernel::listen::SocketIdentity;
use baton_kernel::retire::{SynFilter, accept_queue};
use socket2::SockRef;

use crate::supervisor::WorkerId;

/// Duplicates of a worker's listening sockets, in the order in which they came, which is the kernel's order within a
/// `SO_REUSEPORT` group.
#[derive(Debug, Default)]
pub struct Held {
    /// By the order of their arrival.
    sockets: BTreeMap<u64, One>,
    arrived: u64,
    /// By the kernel's number.
    by_cookie: HashMap<u64, u64>,
}

#[derive(Debug)]
struct One {
    cookie: u64,
    fd: OwnedFd,
    /// Who had it held last; `None` for what came from elsewhere.
    holder: Option<WorkerId>,
    /// By which a configuration names it (`fd@N`), if one does.
    number: Option<i32>,
}

impl Held {
    /// Holds a socket for a worker; gives the kernel's number of one that was not held yet. Another descriptor of one that was
    /// is closed.
    ///
    /// # Errors
    /// When it is no socket, or there are [`INHERITED_MAX`] already.
    pub fn hold(&mut self, fd: OwnedFd, holder: Option<WorkerId>) -> io::Result<Option<u64>> {
        let cookie = SockRef::from(&fd).cookie()?;
        if let Some(held) = self.find_mut(cookie) {
            held.holder = holder;
            return Ok(None);
        }
        if self.sockets.len() >= INHERITED_MAX {
            return Err(io::Error::other(format!("the maximum of {INHERITED_MAX} is reached")));
        }
        self.sockets.insert(self.arrived, One { cookie, fd, holder, number: None });
        self.by_cookie.insert(cookie, self.arrived);
        self.arrived += 1;
        Ok(Some(cookie))
    }

    fn find(&self, cookie: u64) -> Option<&One> {
        self.sockets.get(self.by_cookie.get(&cookie)?)
    }

    fn find_mut(&mut self, cookie: u64) -> Option<&mut One> {
        self.sockets.get_mut(self.by_cookie.get(&cookie)?)
    }

    /// Remembers by which number a configuration names a socket that is held.
    ///
    /// # Errors
    /// When it is no socket.
    pub fn number(&mut self, fd: &impl AsFd, number: i32) -> io::Result<()> {
        let cookie = SockRef::from(fd).cookie()?;
        if let Some(held) = self.find_mut(cookie) {
            held.number = Some(number);
        }
        Ok(())
    }

    /// Those that have a number, with it.
    pub fn numbered(&self) -> impl Iterator<Item = (i32, BorrowedFd<'_>)> {
        self.sockets.values().filter_map(|held| Some((held.number?, held.fd.as_fd())))
    }

    /// Lets go of sockets, by the kernel's numbers, unless another worker that is alive has them too; gives those of which
    /// that is true.
    pub fn release(&mut self, cookies: &[u64], by: WorkerId, is_alive: impl Fn(WorkerId) -> bool) -> Vec<u64> {
        let is_anothers = |held: &One| held.holder.is_some_and(|holder| holder != by && is_alive(holder));
        let mut meant: Vec<(u64, u64)> =
            cookies.iter().filter_map(|cookie| Some((*self.by_cookie.get(cookie)?, *cookie))).collect();
        meant.retain(|(at, _)| self.sockets.get(at).is_some_and(|held| !is_anothers(held)));
        meant.sort_unstable();
        meant.dedup();
        for (at, cookie) in &meant {
            self.sockets.remove(at);
            self.by_cookie.remove(cookie);
        }
        meant.into_iter().map(|(_, cookie)| cookie).collect()
    }

    /// Keeps new connections from listening TCP sockets that this worker was the last to have held. What became of it the
    /// worker sees at the sockets.
    pub fn retire(&self, cookies: &[u64], by: WorkerId) {
        let held = cookies.iter().filter_map(|cookie| self.find(*cookie));
        for held in held.filter(|held| held.holder == Some(by)) {
            if accept_queue(&held.fd).is_ok() {
                // Without the right, it is as if there were no master.
                let _ = SynFilter::attach(&held.fd);
            }
        }
    }

    /// Where the sockets listen.
    pub fn identities(&self) -> Vec<SocketIdentity> {
        self.sockets.values().filter_map(|held| SocketIdentity::of(&held.fd).ok()?).collect()
    }

    /// Lets go of what a worker that is gone was the last to have held, for nobody accepts from it; gives the kernel's numbers.
    pub fn forget(&mut self, worker: WorkerId) -> Vec<u64> {
        let meant: Vec<u64> =
            self.sockets.values().filter(|held| held.holder == Some(worker)).map(|held| held.cookie).collect();
        self.release(&meant, worker, |_| false)
    }

    /// Lets go of all; gives the kernel's numbers.
    pub fn clear(&mut self) -> Vec<u64> {
        let cookies = self.cookies();
        *self = Held::default();
        cookies
    }

    /// The kernel's numbers of all, in order.
    pub fn cookies(&self) -> Vec<u64> {
        self.sockets.values().map(|held| held.cookie).collect()
    }

    /// A socket by the kernel's number.
    pub fn get(&self, cookie: u64) -> Option<BorrowedFd<'_>> {
        self.find(cookie).map(|held| held.fd.as_fd())
    }

    /// All, in order.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.values().map(|held| held.fd.as_fd()).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_queue_outlives_the_one_who_opened_it() {
        let mut held = Held::default();
        let opened = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = opened.local_addr().unwrap();
        let cookie = SockRef::from(&opened).cookie().unwrap();
        let (one, other) = (WorkerId(1), WorkerId(2));
        held.hold(opened.try_clone().unwrap().into(), Some(one)).unwrap();
        held.hold(opened.try_clone().unwrap().into(), Some(other)).unwrap();
        assert_eq!(held.len(), 1, "one socket, however many descriptors");
        held.number(&opened, 7).unwrap();
        assert_eq!(held.numbered().map(|(number, _)| number).collect::<Vec<_>>(), [7]);
        let waiting = TcpStream::connect(address).unwrap();
        drop(opened);
        let again = TcpListener::from(held.fds()[0].try_clone_to_owned().unwrap());
        assert_eq!(again.accept().unwrap().1, waiting.local_addr().unwrap());
        drop(again);
        held.retire(&[cookie], one);
        assert!(!SynFilter::is_attached(&held.fds()[0]).unwrap(), "it is the other's by now");
        assert_eq!(held.identities()[0].local, baton_kernel::Endpoint::Inet(address));
        assert_eq!(held.identities().len(), 1);
        assert!(held.release(&[cookie], one, |_| true).is_empty());
        assert!(!held.is_empty() && held.get(cookie).is_some(), "the other has it too");
        assert_eq!(held.release(&[cookie], one, |_| false), [cookie]);
        assert!(held.is_empty() && TcpStream::connect(address).is_err());
        assert!(held.hold(std::fs::File::open("/dev/null").unwrap().into(), None).is_err());
    }
}
