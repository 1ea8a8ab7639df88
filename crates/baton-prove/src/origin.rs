//! Demo origins: servers that say what they saw, count, can be asked for every shape of answer, and fail on purpose.
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes of [`pattern`], by `Content-Length` |
//! | `/chunked/N` | the same, chunked |
//! | `/delay/TIME` | the JSON, after this time: `200ms`, `1.5s` |
//! | `/status/CODE` | the JSON, with this status |
//! | `/fail/NAME` | the JSON, with this failure ([`InjectedFault`]) |
//! | `/echo` | the request's body |
//! | `/ws` | WebSocket that echoes every message |
//! | anything else | JSON: name, port, request count, connection, method, path and headers as seen |
//!
//! `?delay=TIME` and `?fail=NAME` go with every path. Requests that do not ask for it fail as [`OriginOptions::faults`] says,
//! and [`OriginHandle::freeze`] stops the whole origin for a while. Everything is counted.
//!
//! An origin runs on a thread of its own. [`OriginKind::TcpEcho`] is a plain TCP echo instead.

mod answer;
mod count;
mod fault;
mod freeze;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod hostile;
mod http;
mod http2;
mod listen;
mod peer;
mod reply;
mod socket;
mod tcp;

use std::{cell::RefCell, io, net::SocketAddr, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};

pub use count::{Committed, Counts};
pub use fault::{DRIP_EVERY, FaultRate, Faults, InjectedFault};
pub use freeze::{FREEZE_MAX, FREEZES_KEPT_MAX, Freeze};
pub use reply::pattern;

use crate::{
    lane::{Stop, Stopper, WorkerThread},
    origin::{count::Open, fault::Dealer, listen::Bound, peer::OriginStream},
    stream::Target,
};

/// The most connections that wait for `accept`.
const BACKLOG: i32 = 4096;

/// What the origin speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginKind {
    /// HTTP/1.0 and 1.1, with the paths of the module's head.
    Http,
    /// Every byte is sent back, until the client closes its side.
    TcpEcho,
}

/// What an origin is to be.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// The name it answers with.
    pub name: String,
    /// Where it listens; port 0 lets the system choose.
    pub address: SocketAddr,
    /// A unix socket to listen on instead of the address. One that a dead process left there is replaced; it is removed at the end.
    pub unix: Option<PathBuf>,
    /// What it speaks.
    pub kind: OriginKind,
    /// Which requests fail on purpose, besides those that ask for it. Of no effect on a TCP echo.
    pub faults: Faults,
    /// How long requests under way may take after a stop was asked for.
    pub grace: Duration,
}

impl OriginOptions {
    /// An HTTP origin on a free port of 127.0.0.1.
    pub fn new(name: impl Into<String>) -> OriginOptions {
        OriginOptions {
            name: name.into(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            unix: None,
            kind: OriginKind::Http,
            faults: Faults::None,
            grace: Duration::from_secs(5),
        }
    }
}

/// Starts origins.
#[derive(Debug)]
pub struct Origin;

impl Origin {
    /// Binds, and serves on a thread of its own from then on.
    ///
    /// # Errors
    /// What binding says (such as an address in use), or what making the thread says.
    pub fn start(options: OriginOptions) -> io::Result<OriginHandle> {
        let bound = Bound::new(&options)?;
        let target = bound.target();
        let address = match &target {
            Target::Tcp(address) => *address,
            _ => options.address,
        };
        let port = options.unix.is_none().then(|| address.port());
        let counts = Arc::new(Counts::default());
        let (stopper, stop) = Stopper::new();
        let (freezer, freezes) = mpsc::unbounded_channel();
        let name = options.name.clone();
        let seen = counts.clone();
        let lane = WorkerThread::spawn("origin", move || async move {
            let dealer = RefCell::new(Dealer::new(options.faults));
            let origin = Rc::new(OriginShared { name: options.name, port, counts: seen, dealer });
            serve(bound, options.kind, options.grace, origin, freezes, stop).await
        })?;
        Ok(OriginHandle { name, address, target, counts, freezer, stopper, lane })
    }
}

/// What an origin's connections share.
struct OriginShared {
    name: String,
    /// `None` for a unix socket.
    port: Option<u16>,
    counts: Arc<Counts>,
    dealer: RefCell<Dealer>,
}

impl OriginShared {
    /// Which failure the request gets: the one it asks for, or the next one that is due. `can` says whether its answer can fail so.
    fn fault(
        &self,
        asked: Option<InjectedFault>,
        reused: bool,
        can: impl Fn(InjectedFault) -> bool,
    ) -> Option<InjectedFault> {
        let dealt = self.dealer.borrow_mut().deal(|fault| asked.is_none() && can(fault));
        let fault = asked.filter(|fault| can(*fault)).or(dealt)?;
        self.counts.commit(fault, reused);
        Some(fault)
    }
}

/// A running origin. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct OriginHandle {
    name: String,
    address: SocketAddr,
    target: Target,
    counts: Arc<Counts>,
    freezer: mpsc::UnboundedSender<Duration>,
    stopper: Stopper,
    lane: WorkerThread<io::Result<()>>,
}

impl OriginHandle {
    /// The name it answers with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens on TCP; on a unix socket what the options said, without meaning (see [`OriginHandle::target`]).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens.
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// Requests whose heads were read.
    pub fn requests(&self) -> u64 {
        self.counts.requests()
    }

    /// Connections accepted.
    pub fn connections(&self) -> u64 {
        self.counts.connections()
    }

    /// Connections open at this moment.
    pub fn open(&self) -> u64 {
        self.counts.open()
    }

    /// How many times it failed in this way on purpose.
    pub fn committed(&self, fault: InjectedFault) -> Committed {
        self.counts.committed(fault)
    }

    /// All its counters, to be read also when it has ended.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Stops the whole origin for `time`, at most [`FREEZE_MAX`]: nothing is read, answered or accepted, as if it were not
    /// scheduled; the kernel goes on queueing for it. Returns at once; several follow each other. Who connects afterwards is
    /// accepted when it is over.
    pub fn freeze(&self, time: Duration) {
        // An error says that the origin has ended.
        let _ = self.freezer.send(time.min(FREEZE_MAX));
    }

    /// The freezes that are over, the first [`FREEZES_KEPT_MAX`].
    pub fn freezes(&self) -> Vec<Freeze> {
        self.counts.freezes()
    }

    /// Stops: no accepting, idle connections closed, WebSockets told, requests under way answered with `Connection: close`.
    /// What is not done after the grace is cut off.
    ///
    /// # Errors
    /// When accepting had failed for good before (such as a listening socket that broke).
    pub async fn stop(self) -> io::Result<()> {
        self.stopper.stop();
        self.lane.join().await
    }
}

async fn serve(
    bound: Bound,
    kind: OriginKind,
    grace: Duration,
    origin: Rc<OriginShared>,
    mut freezes: mpsc::UnboundedReceiver<Duration>,
    mut stop: Stop,
) -> io::Result<()> {
    let (listener, _path) = bound.listen()?;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.asked() => break,
            // Before accepting: who connects after a freeze was asked for waits until it is over.
            Some(time) = freezes.recv() => {
                origin.counts.froze(Freeze::now(time));
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(peer) => {
                connections.spawn_local(converse(peer, kind, origin.clone(), stop.clone()));
            }
            // Out of descriptors or memory: the queue keeps them until there are some again.
            Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => return Err(error),
        }
    }

    for peer in listener.close(BACKLOG as usize)? {
        connections.spawn_local(converse(peer, kind, origin.clone(), stop.clone()));
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, ended).await;
    Ok(())
}

async fn converse(peer: OriginStream, kind: OriginKind, origin: Rc<OriginShared>, stop: Stop) {
    let (number, _open) = Open::new(&origin.counts);
    peer.prepare();
    // An error is the client's going away; an origin has nobody to tell.
    let _ = match kind {
        OriginKind::Http => http::serve(peer, &origin, number, stop).await,
        OriginKind::TcpEcho => tcp::echo(peer, stop).await,
    };
}

/// Whether `accept` may succeed later (accept(2): a connection that is gone already, or a limit reached).
fn is_passing(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let limits =
        [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM, Errno::ECONNABORTED, Errno::EPERM, Errno::EPROTO];
    error.raw_os_error().is_some_and(|number| limits.contains(&Errno::from_raw(number)))
}
