//! One thread of the load: its connections, its share of the requests, and when to stop.

use std::{
    cell::{Cell, RefCell},
    io,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use tokio::task::{JoinSet, spawn_local, yield_now};

use super::{
    LoadOptions,
    connection::{Connection, Scratch, await_close},
    http2::{SharedConnections, StreamPlace},
    pace::Pace,
    request::Prepared,
    stats::{LoadCounters, LoadResult},
};
use crate::{
    failure::{Failure, FailureKind, RequestFailure},
    lane::Stop,
    stream::{ServerEndpoint, Stream},
};

/// The most connections of one thread that wait for the server's close beside their places; more are closed at once.
const LEAVING_MAX: usize = 1024;

/// What one thread of a load works from.
pub(super) struct Driver {
    pub(super) options: LoadOptions,
    pub(super) prepared: Arc<[Prepared]>,
    pub(super) live: Arc<LoadCounters>,
    pub(super) stop: Stop,
    /// Asked for when requests under way are not waited for any longer.
    pub(super) cut: Stop,
    pub(super) started: Instant,
    /// This thread's number, from 0.
    pub(super) index: usize,
    pub(super) threads: usize,
}

/// What the connections of one thread share.
struct ThreadShared {
    driver: Driver,
    /// Requests that may still be begun.
    left: Cell<u64>,
    /// When no request may be begun any more.
    until: Option<Instant>,
    stopping: Cell<bool>,
    /// Connections that wait for the server's close beside their places.
    leaving: Cell<usize>,
    pace: Option<Pace>,
    scratch: Rc<RefCell<Scratch>>,
    result: RefCell<LoadResult>,
    /// The connections of HTTP/2, each of which some places share.
    shared_connections: Vec<Rc<SharedConnections>>,
    /// The request of each connection that is under way: its start, and its place in the list.
    under_way: Vec<Cell<Option<(Instant, usize)>>>,
}

impl Driver {
    /// Runs this thread's share to its end.
    ///
    /// # Errors
    /// When the open model's timer cannot be made or breaks.
    pub(super) async fn run(self) -> io::Result<LoadResult> {
        // Those of a connection stay on one thread.
        let streams = self.options.streams.unwrap_or(1);
        let connections = share((self.options.concurrency / streams) as u64, self.index, self.threads) * streams as u64;
        let left = self.options.count.map_or(u64::MAX, |count| share(count, self.index, self.threads));
        let pace = match self.options.rate {
            Some(rate) => {
                let between = 1.0 / rate;
                let first = self.started + Duration::from_secs_f64(between * self.index as f64);
                Some(Pace::new(first, between * self.threads as f64)?)
            }
            None => None,
        };
        let shared = Rc::new(ThreadShared {
            left: Cell::new(left),
            until: self.options.duration.map(|duration| self.started + duration),
            stopping: Cell::new(false),
            leaving: Cell::new(0),
            pace,
            scratch: Rc::new(RefCell::new(Scratch::new(self.prepared.len()))),
            result: RefCell::new(LoadResult::empty(self.started)),
            shared_connections: (0..connections / streams as u64)
                .map(|index| Rc::new(SharedConnections::new(self.options.servers.len(), self.source(index as usize))))
                .collect(),
            under_way: (0..connections).map(|_| Cell::new(None)).collect(),
            driver: self,
        });

        let mut connections: JoinSet<()> = (0..connections).fold(JoinSet::new(), |mut set, index| {
            set.spawn_local(ask_on(shared.clone(), index as usize));
            set
        });
        let ended = async { while connections.join_next().await.is_some() {} };
        let mut stop = shared.driver.stop.clone();
        let mut cut = shared.driver.cut.clone();
        let paced = async {
            match &shared.pace {
                Some(pace) => pace.run().await,
                None => std::future::pending().await,
            }
        };
        let stopped = async {
            stop.asked().await;
            shared.end_now();
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = ended => {}
            () = stopped => {}
            () = cut.asked() => {
                connections.shutdown().await;
                shared.fail_under_way();
            }
            broken = paced => {
                shared.end_now();
                broken?;
            }
        }
        Ok(shared.close())
    }
}

impl Driver {
    /// The address that this thread's connection of this index connects from.
    fn source(&self, index: usize) -> Option<IpAddr> {
        let place = index * self.threads + self.index;
        self.options.sources.get(place % self.options.sources.len().max(1)).copied()
    }
}

/// The part of `whole` that falls to thread `index` of `threads`.
fn share(whole: u64, index: usize, threads: usize) -> u64 {
    let (index, threads) = (index as u64, threads as u64);
    whole / threads + u64::from(index < whole % threads)
}

/// One connection's loop: next start, request, record.
async fn ask_on(shared: Rc<ThreadShared>, index: usize) {
    let driver = &shared.driver;
    let options = &driver.options;
    let mut now = Instant::now();
    let place = index * driver.threads + driver.index;
    let connection = match options.streams {
        None => {
            let source = driver.source(index);
            Place::Http1(Connection::new(now, options.servers.len(), source, shared.scratch.clone()))
        }
        Some(streams) => Place::Http2(StreamPlace::new(shared.shared_connections[index / streams].clone())),
    };
    let mut counted = Counted { shared: shared.clone(), connection };
    let connection = &mut counted.connection;
    // Connections begin at different places of the list.
    let mut entry = place;
    while let Some(start) = shared.next_start(now).await {
        entry = if entry + 1 < driver.prepared.len() { entry + 1 } else { (entry + 1) % driver.prepared.len() };
        let begun = if shared.pace.is_some() { Instant::now() } else { start };
        driver.live.begin();
        let request = &driver.prepared[entry];
        let server = &options.servers[request.server];
        shared.under_way[index].set(Some((start, entry)));
        let answer = connection.ask(server, request, options, begun).await;
        shared.under_way[index].set(None);
        match answer {
            Ok(ended) => {
                shared.complete(start, ended);
                now = ended;
                if let Some(stream) = connection.take_used_up() {
                    shared.leave(stream).await;
                    // Closing takes time that belongs to no request.
                    now = Instant::now();
                }
            }
            Err(ended) => {
                shared.fail(start, entry, connection.answers(), ended);
                rest(options.rest_after_failure).await;
                now = Instant::now();
            }
        }
    }
}

/// A place for one request at a time.
enum Place {
    /// With a connection of its own.
    Http1(Connection),
    /// A stream of one that it shares.
    Http2(StreamPlace),
}

impl Place {
    async fn ask(
        &mut self,
        server: &ServerEndpoint,
        request: &Prepared,
        options: &LoadOptions,
        now: Instant,
    ) -> Result<Instant, RequestFailure> {
        match self {
            Place::Http1(connection) => {
                connection.ask(server, request, &options.timeouts, now, options.keep_alive).await
            }
            Place::Http2(stream) => stream.ask(server, request, &options.timeouts, now).await,
        }
    }

    fn answers(&self) -> u64 {
        match self {
            Place::Http1(connection) => connection.answers(),
            Place::Http2(stream) => stream.answers(),
        }
    }

    fn take_used_up(&mut self) -> Option<Stream> {
        match self {
            Place::Http1(connection) => connection.take_used_up(),
            Place::Http2(_) => None,
        }
    }
}

/// A place whose counts go into the result at its end, also when it is cut off.
struct Counted {
    shared: Rc<ThreadShared>,
    connection: Place,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut result = self.shared.result.borrow_mut();
        let (established, resumed, closed_idle, resent) = match &self.connection {
            Place::Http1(connection) => (connection.established, connection.resumed, connection.closed_idle, 0),
            Place::Http2(stream) => stream.shared().take_counts(),
        };
        result.connections += established;
        result.resumed += resumed;
        result.closed_idle += closed_idle;
        result.resent += resent;
        result.body_bytes += match &self.connection {
            Place::Http1(connection) => connection.body_bytes,
            Place::Http2(stream) => stream.body_bytes(),
        };
    }
}

async fn rest(time: Duration) {
    if time.is_zero() {
        // A refused connection needs no waiting at all: without this the thread would never come to anything else.
        yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

impl ThreadShared {
    /// When the next request starts by plan, not before it is time to; `None` when there is none.
    async fn next_start(&self, now: Instant) -> Option<Instant> {
        if self.stopping.get() || self.left.get() == 0 {
            return None;
        }
        let Some(pace) = &self.pace else {
            if self.until.is_some_and(|until| now >= until) {
                return None;
            }
            self.left.set(self.left.get() - 1);
            return Some(now);
        };
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        self.left.set(self.left.get() - 1);
        let start = pace.take();
        if self.until.is_some_and(|until| start >= until) {
            return None;
        }
        pace.wait(start).await;
        (!self.stopping.get()).then_some(start)
    }

    /// Waits until the server has closed. In the open model nobody waits for that: the next request may be due already, and a
    /// place that waits would make it late for no fault of the server's.
    async fn leave(self: &Rc<ThreadShared>, stream: Stream) {
        if self.pace.is_none() {
            await_close(stream).await;
        } else if self.leaving.get() < LEAVING_MAX {
            self.leaving.set(self.leaving.get() + 1);
            let shared = self.clone();
            spawn_local(async move {
                await_close(stream).await;
                shared.leaving.set(shared.leaving.get() - 1);
            });
        }
    }

    fn complete(&self, start: Instant, ended: Instant) {
        self.driver.live.complete();
        let during = self.driver.options.phase.overlapped(start);
        self.result.borrow_mut().complete(start, ended.saturating_duration_since(start), during);
    }

    fn fail(&self, start: Instant, request: usize, reused: u64, ended: RequestFailure) {
        self.driver.live.fail(ended.kind);
        let began = self.driver.started;
        self.result.borrow_mut().fail(Failure {
            at: began.elapsed(),
            begun: start.saturating_duration_since(began),
            kind: ended.kind,
            request,
            reused,
            errno: ended.errno,
            status: ended.status,
            reason: ended.reason,
        });
    }

    /// Counts those that were cut off: nobody had answered them in the time that there was.
    fn fail_under_way(&self) {
        for (start, request) in self.under_way.iter().filter_map(Cell::take) {
            self.fail(start, request, 0, RequestFailure::new(FailureKind::TimeoutWhole));
        }
    }

    /// Begins no more requests.
    fn end_now(&self) {
        self.stopping.set(true);
        if let Some(pace) = &self.pace {
            pace.wake_all();
        }
    }

    fn close(&self) -> LoadResult {
        let mut result = self.result.replace(LoadResult::empty(self.driver.started));
        let now = Instant::now();
        result.elapsed = now - self.driver.started;
        self.driver.live.add_to(&mut result.counts);
        if let (Some(pace), Some(until), false) = (&self.pace, self.until, self.stopping.get()) {
            result.unsent = pace.untaken(until.min(now)).min(self.left.get());
        }
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) {
            let spent = [usage.user_time(), usage.system_time()];
            result.cpu = spent
                .iter()
                .map(|part| Duration::from_micros(part.tv_sec() as u64 * 1_000_000 + part.tv_usec() as u64))
                .sum();
        }
        result
    }
}
