//! Demo origins: servers that say what they saw, count, and can be asked for every shape of answer.
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes of [`pattern`], by `Content-Length` |
//! | `/chunked/N` | the same, chunked |
//! | `/delay/MS` | the JSON, after so many milliseconds |
//! | `/status/CODE` | the JSON, with this status |
//! | `/echo` | the request's body |
//! | `/ws` | WebSocket that echoes every message |
//! | anything else | JSON: name, port, request count, connection, method, path and headers as seen |
//!
//! An origin runs on a thread of its own. [`OriginKind::TcpEcho`] is a plain TCP echo instead.

mod answer;
mod http;
mod socket;
mod tcp;

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

pub use answer::pattern;

use crate::lane::{Lane, Stop, Stopper};

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
    /// What it speaks.
    pub kind: OriginKind,
    /// How long requests under way may take after a stop was asked for.
    pub grace: Duration,
}

impl OriginOptions {
    /// An HTTP origin on a free port of 127.0.0.1.
    pub fn new(name: impl Into<String>) -> OriginOptions {
        OriginOptions {
            name: name.into(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            kind: OriginKind::Http,
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
        let listener = listen(options.address)?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let (stopper, stop) = Stopper::new();
        let name = options.name.clone();
        let seen = counts.clone();
        let lane = Lane::spawn("origin", move || async move {
            let origin = Rc::new(Shared { name: options.name, port: address.port(), counts: seen });
            serve(listener, options.kind, options.grace, origin, stop).await
        })?;
        Ok(OriginHandle { name, address, counts, stopper, lane })
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Counters of an origin. Written by its thread, read by anybody.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
}

/// What an origin's connections share.
struct Shared {
    name: String,
    port: u16,
    counts: Arc<Counts>,
}

/// Counts one open connection for as long as it lives.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: &Arc<Counts>) -> Open {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Open(counts.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running origin. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct OriginHandle {
    name: String,
    address: SocketAddr,
    counts: Arc<Counts>,
    stopper: Stopper,
    lane: Lane<io::Result<()>>,
}

impl OriginHandle {
    /// The name it answers with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests whose heads were read.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Connections accepted.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Connections open at this moment.
    pub fn open(&self) -> u64 {
        self.counts.open.load(Ordering::Relaxed)
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
    listener: std::net::TcpListener,
    kind: OriginKind,
    grace: Duration,
    origin: Rc<Shared>,
    mut stop: Stop,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.asked() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn_local(converse(stream, kind, origin.clone(), stop.clone()));
            }
            // Out of descriptors or memory: the queue keeps them until there are some again.
            Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => return Err(error),
        }
    }

    // Who waits in the queue would be reset when the socket closes; they are served like the others.
    let listener = listener.into_std()?;
    for _ in 0..BACKLOG {
        let Ok((stream, _)) = listener.accept() else { break };
        stream.set_nonblocking(true)?;
        connections.spawn_local(converse(TcpStream::from_std(stream)?, kind, origin.clone(), stop.clone()));
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, ended).await;
    Ok(())
}

async fn converse(stream: TcpStream, kind: OriginKind, origin: Rc<Shared>, stop: Stop) {
    let number = origin.counts.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let _open = Open::new(&origin.counts);
    let _ = stream.set_nodelay(true);
    // An error is the client's going away; an origin has nobody to tell.
    let _ = match kind {
        OriginKind::Http => http::serve(stream, &origin, number, stop).await,
        OriginKind::TcpEcho => tcp::echo(stream, stop).await,
    };
}

/// Whether `accept` may succeed later (accept(2): a connection that is gone already, or a limit reached).
fn is_passing(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let limits =
        [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM, Errno::ECONNABORTED, Errno::EPERM, Errno::EPROTO];
    error.raw_os_error().is_some_and(|number| limits.contains(&Errno::from_raw(number)))
}
