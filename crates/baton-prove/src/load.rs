//! The load client: asks, checks every answer, never stops at an error, never retries silently.
//!
//! Closed loop (each connection asks again as soon as it was answered) or open model (requests start at a fixed rate, whatever
//! the server does, and latency counts from the intended start, so a stalled server cannot hide by delaying the client).
//!
//! With a connection for each request the server is let to close first, for a second: who closes first keeps the port in
//! TIME_WAIT. In the open model that happens beside the requests, so that it makes none of them late.
//!
//! Runs on threads of its own; [`Load::start`] works in and outside of any runtime.

mod connection;
mod deadline;
mod driver;
mod http2;
mod pace;
mod request;
mod series;
mod stats;

use std::{
    fmt, io,
    net::{IpAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

pub use request::{BodyCheck, Request, StatusCheck};
pub use series::{SLOT, SLOTS_MAX, Series, Slot};
pub use stats::{LoadProgress, LoadResult};

use crate::{
    failure::FailureKind,
    lane::{Stopper, WorkerThread},
    load::{
        driver::Driver,
        request::{Prepared, Scheme},
        stats::LoadCounters,
    },
    phase::Phase,
    stream::{ServerEndpoint, Target},
};

/// The most connections of one load.
pub const CONCURRENCY_MAX: usize = 65_536;

/// The most threads of one load.
pub const THREADS_MAX: usize = 256;

/// The most servers of one load.
pub const SERVERS_MAX: usize = 1024;

/// The most addresses to connect from.
pub const SOURCES_MAX: usize = 1024;

/// The most failures whose details one load keeps; more are counted by kind only.
pub const FAILURES_KEPT_MAX: usize = 100_000;

/// What to ask, of whom, and how hard.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The servers that requests go to, each request to the one whose place it names. Never empty.
    pub servers: Vec<ServerEndpoint>,
    /// What is asked over and over, in turn. Never empty.
    pub requests: Vec<Request>,
    /// Keep connections open between requests; otherwise each request has a connection of its own.
    pub keep_alive: bool,
    /// HTTP/2, with so many requests at a time on each connection, which are kept open whatever `keep_alive` says. `None`: HTTP/1.
    /// `concurrency` is a multiple of it.
    pub streams: Option<usize>,
    /// How many requests may be under way at the same time (over all threads). Each place has one connection to each server
    /// that its requests go to.
    pub concurrency: usize,
    /// How many threads drive them.
    pub threads: usize,
    /// Requests a second, started on time whatever the server does (open model); `None` means closed loop.
    /// `concurrency` bounds how many are under way: what is late because of it has its lateness in its latency.
    pub rate: Option<f64>,
    /// End after so many requests; `None` means no such end.
    pub count: Option<u64>,
    /// Start no request after this time; `None` means no such end. Without both, the load runs until told to stop.
    pub duration: Option<Duration>,
    /// The machine's own addresses to connect from, in turn over `concurrency`; none means that the kernel chooses. Each
    /// address has ports of its own towards a server, so that several allow more connections.
    pub sources: Vec<IpAddr>,
    /// When to give a request up.
    pub timeouts: Timeouts,
    /// How long a connection rests after a failure, so that a server which refuses is not drowned in connections.
    /// It delays only what this connection would do next (in the open model that lateness counts).
    pub rest_after_failure: Duration,
    /// The flag that sorts latencies into "during a change" and "outside".
    pub phase: Phase,
}

/// When to give a request up. Each counts from the moment in which the request goes out, connecting included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection to be established, TLS included.
    pub connect: Duration,
    /// For the first byte of the answer.
    pub first_byte: Duration,
    /// For the whole answer.
    pub whole: Duration,
}

impl Default for Timeouts {
    /// Longer than any stall worth measuring: 10 s, 30 s and 60 s.
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            whole: Duration::from_secs(60),
        }
    }
}

impl LoadOptions {
    /// `GET /` over one keep-alive connection, closed loop, until told to stop; change the fields from there.
    pub fn new(server: impl Into<ServerEndpoint>) -> LoadOptions {
        LoadOptions {
            servers: vec![server.into()],
            requests: vec![Request::get("/")],
            keep_alive: true,
            streams: None,
            concurrency: 1,
            threads: 1,
            rate: None,
            count: None,
            duration: None,
            sources: Vec::new(),
            timeouts: Timeouts::default(),
            rest_after_failure: Duration::from_millis(1),
            phase: Phase::new(),
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        if self.requests.is_empty() {
            return Err("there is no request to send");
        }
        if self.servers.is_empty() || self.servers.len() > SERVERS_MAX {
            return Err("the number of servers must be between 1 and 1024");
        }
        if self.requests.iter().any(|request| request.server >= self.servers.len()) {
            return Err("a request names an unknown server");
        }
        if self.sources.len() > SOURCES_MAX {
            return Err("the number of addresses to connect from must be at most 1024");
        }
        let foreign = |target: &Target, source: &IpAddr| match target {
            Target::Tcp(address) => address.is_ipv4() != source.is_ipv4(),
            Target::Unix(_) => true,
        };
        if self.servers.iter().any(|server| self.sources.iter().any(|source| foreign(&server.target, source))) {
            return Err(
                "a server cannot be reached from one of the addresses to connect from: IPv4, IPv6 and unix differ",
            );
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            return Err("the number of connections must be between 1 and 65536");
        }
        if self.streams.is_some_and(|streams| streams == 0 || !self.concurrency.is_multiple_of(streams)) {
            return Err("the number of streams must be at least 1, and divide the number of requests at a time");
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return Err("the number of threads must be between 1 and 256");
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || !(0.001..=1e8).contains(&rate)) {
            return Err("the rate must be between 0.001 and 100000000 requests per second");
        }
        Ok(())
    }
}

/// Starts loads.
#[derive(Debug)]
pub struct Load;

impl Load {
    /// Starts the load on threads of its own.
    ///
    /// # Errors
    /// `InvalidInput` for options that cannot be meant (the text says which); otherwise what making a thread, its runtime or
    /// its timer says. A server that is not there is not an error here: its requests fail and are counted.
    pub fn start(options: LoadOptions) -> io::Result<LoadHandle> {
        let invalid = |text: &'static str| io::Error::new(io::ErrorKind::InvalidInput, text);
        options.validate().map_err(invalid)?;
        for source in &options.sources {
            UdpSocket::bind((*source, 0))
                .map_err(|error| io::Error::new(error.kind(), format!("cannot connect from {source}: {error}")))?;
        }
        let hosts: Vec<String> = options.servers.iter().map(ServerEndpoint::host).collect();
        let prepared: Result<Vec<Prepared>, &'static str> = options
            .requests
            .iter()
            .enumerate()
            .map(|(place, request)| {
                let is_secure = options.servers[request.server].tls.is_some();
                let scheme = options.streams.map(|_| if is_secure { Scheme::Https } else { Scheme::Http });
                request.prepare(place, &hosts[request.server], options.keep_alive, scheme)
            })
            .collect();
        let prepared: Arc<[Prepared]> = prepared.map_err(invalid)?.into();

        let threads = options.threads.min(options.concurrency / options.streams.unwrap_or(1));
        let (stopper, stop) = Stopper::new();
        let (cutter, cut) = Stopper::new();
        let started = Instant::now();
        let mut lanes = Vec::with_capacity(threads);
        for index in 0..threads {
            let live = Arc::new(LoadCounters::default());
            let driver = Driver {
                options: options.clone(),
                prepared: prepared.clone(),
                live: live.clone(),
                stop: stop.clone(),
                cut: cut.clone(),
                started,
                index,
                threads,
            };
            let lane = WorkerThread::spawn("load", move || driver.run())?;
            lanes.push((lane, live));
        }
        Ok(LoadHandle { lanes, stopper, cutter: Arc::new(cutter), started })
    }
}

/// A load under way. Dropping it ends the load without a result.
#[derive(Debug)]
pub struct LoadHandle {
    lanes: Vec<(WorkerThread<io::Result<LoadResult>>, Arc<LoadCounters>)>,
    stopper: Stopper,
    cutter: Arc<Stopper>,
    started: Instant,
}

impl LoadHandle {
    /// When the load started; instants of failures count from here.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// What was counted until now.
    pub fn progress(&self) -> LoadProgress {
        let mut sum = LoadProgress::default();
        for (_, live) in &self.lanes {
            live.add_to(&mut sum);
        }
        sum
    }

    /// Whether the load has reached its count or duration.
    pub fn is_finished(&self) -> bool {
        self.lanes.iter().all(|(lane, _)| lane.is_finished())
    }

    /// Starts no more requests, lets those under way end (or time out), and gives the result.
    pub async fn stop(self) -> LoadResult {
        self.stopper.stop();
        self.wait().await
    }

    /// Cuts off what is under way, by its [`Stopper::stop`]; such requests count as timed out. For who knows that no answer will come
    /// any more, however long requests may take.
    pub(crate) fn cutter(&self) -> Arc<Stopper> {
        self.cutter.clone()
    }

    /// Waits until the load ends by its count or duration, and gives the result. A load without both ends only when it is stopped.
    pub async fn wait(self) -> LoadResult {
        let mut sum = LoadResult::empty(self.started);
        for (lane, _) in self.lanes {
            match lane.join().await {
                Ok(result) => sum.merge(result),
                Err(error) => sum.errors.push(error.to_string()),
            }
        }
        sum.close();
        drop(self.stopper);
        sum
    }
}

impl fmt::Display for LoadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests, {} failed", self.requests, self.failed())?;
        for kind in FailureKind::ALL {
            let count = self.failures[kind.index()];
            if count > 0 {
                write!(f, ", {} {count}", kind.name())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_nobody_answers_can_be_cut_off_and_counts_as_failed() {
        // The kernel takes the connections, and nobody says anything on them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = silent.local_addr().expect("it is bound");
        let timeouts = Timeouts {
            connect: Duration::from_secs(600),
            first_byte: Duration::from_secs(600),
            whole: Duration::from_secs(600),
        };
        let load = Load::start(LoadOptions { concurrency: 3, timeouts, ..LoadOptions::new(address) }).expect("started");
        let asking: Vec<_> = (0..3).map(|_| silent.accept().expect("a connection").0).collect();
        for mut stream in &asking {
            stream.read_exact(&mut [0]).expect("a request");
        }
        load.cutter().stop();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let result = runtime.block_on(load.stop());
        drop(asking);
        assert_eq!((result.counts.requests, result.counts.failed(), result.failures.len()), (3, 3, 3));
        assert_eq!(result.connections, 3);
    }
}
