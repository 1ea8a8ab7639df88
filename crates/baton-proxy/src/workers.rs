//! The cores as the change path sees them: threads that take commands.

mod doors;

pub use self::doors::{CoreDoor, Departures, Leaver, Once, Seat};

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use baton_kernel::process::{cpus, priority};
use baton_model::CpuMap;
use rustc_hash::FxHashSet;
use tokio::sync::{mpsc, oneshot};

use crate::accept::Acceptors;
use crate::clock::Clock;
use crate::core::{ConnectionId, Core, Order, ServerMark, SessionDescription, SessionPage};
use crate::generation::Generation;
use crate::http1::Line;
use crate::moving::{Arrival, Mover, ServerArrival};
use crate::state::{ListenerId, Registry};
use crate::supervise::{self, AGAIN, Panicked};

/// How often a stopping core looks whether its last connection is gone.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// Turns of tasks after which a core looks for news of its sockets, although there is more to do: under a millisecond. The usual number, 61, is
/// passed several times where connections carry many streams, by a system call each.
const EVENT_INTERVAL: u32 = 256;

/// What the change path tells every core. Commands are obeyed in order, between two turns of a core's loop.
#[derive(Clone, Debug)]
pub enum Command {
    /// Work by this generation from the next request on; accept on its listeners. A listener that is not in it goes on
    /// accepting for its last frontend until it is closed by `Close`.
    Apply(Arc<Generation>),
    /// Drop the sockets of a listener: its queue is empty.
    Close(ListenerId),
    /// A listener that was closed listens again: the next `Apply` accepts on it.
    Reopen(ListenerId),
    /// Accept no more on the socket at this place among those of a listener: another process does.
    Leave(ListenerId, usize),
    /// Soft stop: no keep-alive after the next response; idle connections end within `spread`, or at their own timeout.
    Drain {
        /// `close-spread-time`; `None` leaves idle connections to their timeouts.
        spread: Option<Duration>,
    },
    /// Another process has taken over: connections leave for it by this as soon as they can.
    Move(Mover),
    /// A connection comes from elsewhere, or back; for one core.
    Adopt(Once<Arrival>),
    /// An idle connection to a server comes from another process; for one core.
    AdoptServer(Once<ServerArrival>),
    /// Report that the event loop got to this.
    Measure(Arc<LoopLatency>),
    /// An order to one connection; obeyed by the core whose it is.
    Order(ConnectionId, Order),
    /// End the sessions that are on this server now.
    EndSessions(ServerMark),
    /// Describe connections from this place on, at most so many; for one core.
    Describe {
        /// The first place.
        from: usize,
        /// How many places are looked at.
        most: usize,
        /// Takes the page; a reader that left does not want it any more.
        reply: mpsc::UnboundedSender<SessionPage>,
    },
    /// Describe this connection, if it is there.
    DescribeOne(ConnectionId, mpsc::UnboundedSender<Option<SessionDescription>>),
    /// End everything at once.
    Abort,
}

type Commands = mpsc::UnboundedReceiver<(Command, oneshot::Sender<()>)>;

/// Asks cores what connections they have. It alters nothing, and keeps no core from its end.
#[derive(Clone, Debug)]
pub struct SessionReader {
    cores: Vec<mpsc::WeakUnboundedSender<(Command, oneshot::Sender<()>)>>,
}

impl SessionReader {
    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The connections of a core from this place on, at most so many; `None`: there is no such core (any more).
    pub async fn page(&self, core: usize, from: usize, most: usize) -> Option<SessionPage> {
        let (reply, mut page) = mpsc::unbounded_channel();
        self.tell(core, Command::Describe { from, most, reply })?;
        page.recv().await
    }

    /// The connection of this id.
    pub async fn one(&self, id: ConnectionId) -> Option<SessionDescription> {
        let (reply, mut found) = mpsc::unbounded_channel();
        self.tell(id.core(), Command::DescribeOne(id, reply))?;
        found.recv().await?
    }

    fn tell(&self, core: usize, command: Command) -> Option<()> {
        self.cores.get(core)?.upgrade()?.send((command, oneshot::channel().0)).ok()
    }
}

/// All cores.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    commands: mpsc::UnboundedSender<(Command, oneshot::Sender<()>)>,
    open: Arc<AtomicUsize>,
    latency: Arc<LoopLatency>,
    thread: JoinHandle<()>,
}

/// How long the event loop of a core takes to get to a command.
#[derive(Debug, Default)]
pub struct LoopLatency(Mutex<Measurement>);

/// The measurements since somebody looked.
#[derive(Clone, Copy, Debug, Default)]
struct Measurement {
    /// When the command was sent that the core has not got to.
    sent: Option<Instant>,
    /// The longest that it took since somebody looked.
    longest: Duration,
}

impl LoopLatency {
    fn lock(&self) -> MutexGuard<'_, Measurement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to measure; false when the core has not got to the command before.
    fn begin(&self, now: Instant) -> bool {
        let mut measurement = self.lock();
        let begins = measurement.sent.is_none();
        if begins {
            measurement.sent = Some(now);
        }
        begins
    }

    /// The core got to it.
    fn end(&self, now: Instant) {
        let mut measurement = self.lock();
        if let Some(sent) = measurement.sent.take() {
            measurement.longest = measurement.longest.max(now.saturating_duration_since(sent));
        }
    }

    /// The longest one since this was asked last, or the one in progress once that takes longer.
    fn take(&self, now: Instant) -> Duration {
        let mut measurement = self.lock();
        let so_far = measurement.sent.map_or(Duration::ZERO, |sent| now.saturating_duration_since(sent));
        std::mem::take(&mut measurement.longest).max(so_far)
    }
}

impl Workers {
    /// Starts `count` threads named `baton/1` …, each with its own runtime, on the processors that `cpu_map` names for it;
    /// they wait for the first `Apply`.
    ///
    /// # Errors
    /// A thread or its event loop cannot be had; those that were started end again.
    pub fn start(count: usize, registry: Arc<Registry>, bufsize: usize, cpu_map: &CpuMap) -> io::Result<Workers> {
        let threads = (0..count).map(|number| {
            let cpus = cpu_map.get(&(number as u32 + 1)).into_iter().flatten();
            Worker::start(number, registry.clone(), bufsize, cpus.map(|&cpu| cpu as usize).collect())
        });
        Ok(Workers { threads: threads.collect::<io::Result<_>>()? })
    }

    /// Tells all cores and returns once each has obeyed.
    pub async fn command(&self, command: Command) {
        let mut answers = Vec::with_capacity(self.threads.len());
        for worker in &self.threads {
            let (done, answer) = oneshot::channel();
            if worker.commands.send((command.clone(), done)).is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            // A core that ended meanwhile has nothing left to obey.
            let _ = answer.await;
        }
    }

    /// Client connections (any mode) open on each core.
    pub fn open_by_core(&self) -> Vec<usize> {
        self.threads.iter().map(|worker| worker.open.load(Ordering::Relaxed)).collect()
    }

    /// What asks cores for their connections.
    pub fn sessions(&self) -> SessionReader {
        SessionReader { cores: self.threads.iter().map(|worker| worker.commands.downgrade()).collect() }
    }

    /// Client connections (any mode) open on all cores.
    pub fn open_connections(&self) -> usize {
        self.threads.iter().map(|worker| worker.open.load(Ordering::Relaxed)).sum()
    }

    /// Begins to measure how long the event loops take to get to a command.
    pub fn measure(&self, now: Instant) {
        for worker in self.threads.iter().filter(|worker| worker.latency.begin(now)) {
            // Nobody waits for the end, and a core that ended meanwhile has no event loop.
            let _ = worker.commands.send((Command::Measure(worker.latency.clone()), oneshot::channel().0));
        }
    }

    /// The longest that it took each event loop since this was asked last.
    pub fn latencies(&self, now: Instant) -> Vec<Duration> {
        self.threads.iter().map(|worker| worker.latency.take(now)).collect()
    }

    /// Waits for all threads to end after `Abort`, or after `Drain` once the last connection is closed.
    pub fn join(&mut self) {
        for worker in self.threads.drain(..) {
            drop(worker.commands);
            let _ = worker.thread.join();
        }
    }
}

impl Worker {
    fn start(number: usize, registry: Arc<Registry>, bufsize: usize, cpus: Vec<usize>) -> io::Result<Worker> {
        let (sender, commands) = mpsc::unbounded_channel();
        let open = Arc::new(AtomicUsize::new(0));
        let shared = open.clone();
        let (report, reported) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("baton/{}", number + 1)).spawn(move || {
            if !cpus.is_empty() {
                // A wish: when it may use none of them, the thread runs everywhere, as HAProxy's do.
                let _ = cpus::bind_thread_to(&cpus);
            }
            // Shorter than that of the thread which starts it, so that requests do not wait for that one.
            let _ = priority::use_default_slice();
            run(number, registry, shared, bufsize, commands, &report);
        })?;
        reported.recv().map_err(|_| io::Error::other("a thread ended at once"))??;
        Ok(Worker { commands: sender, open, latency: Arc::default(), thread })
    }
}

/// The life of a core's thread; `report` hears first whether it could begin. A core that panics is made anew and goes on as
/// it was told last: its connections end, but those who wait in the queues of its sockets are served.
fn run(
    number: usize,
    registry: Arc<Registry>,
    open: Arc<AtomicUsize>,
    bufsize: usize,
    mut commands: Commands,
    report: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    let mut told = CoreOrders::default();
    let mut report = Some(report);
    loop {
        let life = || live(number, &registry, &open, bufsize, &mut commands, &mut told, &mut report);
        match supervise::caught(life) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                // Who started us waits for it. Later it is tried again: descriptors ran out.
                if let Some(report) = report.take() {
                    return drop(report.send(Err(error)));
                }
            }
            Err(Panicked) => {}
        }
        std::thread::sleep(AGAIN);
    }
}

/// One core, from its runtime to its end.
fn live(
    number: usize,
    registry: &Arc<Registry>,
    open: &Arc<AtomicUsize>,
    bufsize: usize,
    commands: &mut Commands,
    told: &mut CoreOrders,
    report: &mut Option<&std::sync::mpsc::SyncSender<io::Result<()>>>,
) -> io::Result<()> {
    // The hook runs on this thread, but its type must be `Send`: the clock is found through a thread local.
    thread_local! {
        static CLOCK: Rc<Clock> = Rc::new(Clock::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .on_thread_unpark(|| CLOCK.with(|clock| clock.refresh()))
        .build_local(tokio::runtime::LocalOptions::default())?;
    if let Some(report) = report.take() {
        let _ = report.send(Ok(()));
    }
    let core = Rc::new(Core::new(number, registry.clone(), CLOCK.with(Rc::clone), open.clone(), bufsize));
    runtime.block_on(obey(core, open, commands, told));
    Ok(())
}

/// What a core was told, for one that takes its place.
#[derive(Debug, Default)]
struct CoreOrders {
    generation: Option<Arc<Generation>>,
    /// Listeners that are not accepted on any more, or not on one of their sockets.
    closed: Vec<(ListenerId, Option<usize>)>,
    /// A soft stop is under way.
    drain: Option<Command>,
    /// Connections leave.
    mover: Option<Mover>,
}

impl CoreOrders {
    fn note(&mut self, command: &Command) {
        match command {
            Command::Apply(generation) => {
                if !self.closed.is_empty() {
                    let open: FxHashSet<ListenerId> = generation.listeners.iter().map(|plan| plan.id).collect();
                    self.closed.retain(|(id, _)| open.contains(id));
                }
                self.generation = Some(generation.clone());
            }
            Command::Close(id) => self.closed.push((*id, None)),
            Command::Reopen(id) => self.closed.retain(|(closed, _)| closed != id),
            Command::Leave(id, place) => self.closed.push((*id, Some(*place))),
            Command::Drain { .. } => self.drain = Some(command.clone()),
            Command::Move(mover) => self.mover = Some(mover.clone()),
            Command::Measure(_)
            | Command::Adopt(_)
            | Command::AdoptServer(_)
            | Command::Order(..)
            | Command::EndSessions(_)
            | Command::Describe { .. }
            | Command::DescribeOne(..)
            | Command::Abort => {}
        }
    }

    /// Brings a new core to where the one before was.
    fn repeat(&self, core: &Rc<Core>, acceptors: &Acceptors) {
        self.generation.iter().for_each(|generation| apply(core, acceptors, generation));
        for (id, place) in &self.closed {
            match place {
                None => acceptors.close(*id),
                Some(place) => acceptors.leave(*id, *place),
            }
        }
        if let Some(mover) = &self.mover {
            core.begin_moving(mover.clone());
        }
        if let Some(Command::Drain { spread }) = self.drain {
            core.drain(spread);
        }
    }
}

/// Works by `generation` from the next request, and the next connection, on.
fn apply(core: &Core, acceptors: &Acceptors, generation: &Arc<Generation>) {
    core.apply(generation);
    acceptors.apply(generation);
}

/// Obeys until told to abort, or until the channel is closed and the last connection of a soft stop is gone.
async fn obey(core: Rc<Core>, open: &AtomicUsize, commands: &mut Commands, told: &mut CoreOrders) {
    let acceptors = Acceptors::new(Line::start(core.clone()));
    told.repeat(&core, &acceptors);
    while let Some((command, done)) = commands.recv().await {
        told.note(&command);
        supervise::may_panic("command");
        match command {
            Command::Apply(generation) => apply(&core, &acceptors, &generation),
            Command::Close(id) => {
                acceptors.close(id);
                core.end_http2_of_removed();
            }
            // What accepted before has ended, if it is there.
            Command::Reopen(id) => acceptors.close(id),
            Command::Leave(id, place) => acceptors.leave(id, place),
            Command::Drain { spread } => core.drain(spread),
            Command::Move(mover) => core.begin_moving(mover),
            Command::Adopt(adoption) => adoption.take().into_iter().for_each(|arrival| acceptors.adopt(arrival)),
            Command::AdoptServer(arrival) => arrival.take().into_iter().for_each(|arrival| core.adopt_server(arrival)),
            Command::Measure(latency) => {
                core.clock.refresh();
                latency.end(core.clock.now());
            }
            Command::Order(connection, order) => drop(core.order(connection, order)),
            Command::EndSessions(server) => drop(core.end_sessions_of(server)),
            Command::Describe { from, most, reply } => drop(reply.send(core.describe(from, most))),
            Command::DescribeOne(id, reply) => drop(reply.send(core.describe_one(id))),
            Command::Abort => {
                acceptors.stop();
                core.abort();
                let _ = done.send(());
                // One turn, so that the connections' tasks see the order and write their log lines.
                tokio::task::yield_now().await;
                return;
            }
        }
        let _ = done.send(());
    }
    while core.draining.get() && open.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_latency_since_it_was_asked_is_reported_once() {
        let latency = LoopLatency::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let took = Duration::from_millis;
        assert!(latency.begin(at(0)) && !latency.begin(at(1)), "one command at a time");
        latency.end(at(5));
        assert!(latency.begin(at(10)));
        latency.end(at(12));
        assert_eq!((latency.take(at(20)), latency.take(at(21))), (took(5), took(0)));
        assert!(latency.begin(at(30)));
        assert_eq!(latency.take(at(37)), took(7), "the one in progress");
        latency.end(at(40));
        assert_eq!(latency.take(at(41)), took(10));
    }
}
