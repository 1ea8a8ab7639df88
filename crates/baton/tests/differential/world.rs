//! What happens in one run: connections with what came in on them, requests counted, gates opened, log lines received. One lock and
//! one condition variable, so that any step can wait for any event.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::script::Step;

/// Longest wait for anything; reaching it is recorded and is a fault of the case or of the program under test.
pub const WAIT_MAX: Duration = Duration::from_secs(8);

/// Longest wait once the program is gone: its connections have ended, only our own threads must notice.
const AFTERMATH_MAX: Duration = Duration::from_secs(1);

/// Bytes kept per connection.
const RECEIVED_MAX: usize = 4 << 20;

/// How the peer ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Fin,
    Rst,
    /// The connection was never made.
    Refused,
}

/// One connection's past, as the harness sees it.
#[derive(Debug, Default)]
pub struct Past {
    pub received: Vec<u8>,
    pub end: Option<End>,
    /// How far the script has waited.
    pub seen: usize,
    /// Methods of the requests that were sent here, to know what the responses look like.
    pub methods: Vec<String>,
    /// Final responses waited for.
    pub answered: usize,
    /// We ended it, so how the peer ends it says nothing.
    pub closed_by_us: bool,
    /// Our port.
    pub port: u16,
    /// Waits that were given up.
    pub faults: Vec<String>,
    /// What became of TLS, if it was spoken.
    pub tls: Vec<String>,
    hearing: bool,
    /// It speaks HTTP/2.
    pub is_http2: bool,
    /// Streams of the requests that an origin has taken from it.
    pub requests: Vec<u32>,
    /// The one of these that is answered.
    pub current: u32,
}

/// Everything of one run.
#[derive(Debug, Default)]
pub struct State {
    /// Client connections by name.
    pub clients: BTreeMap<String, Vec<usize>>,
    /// Origin connections in accept order.
    pub origins: BTreeMap<String, Vec<usize>>,
    pub links: Vec<Past>,
    /// Requests that each origin has had.
    pub requests: BTreeMap<String, usize>,
    pub gates: BTreeSet<String>,
    /// Log lines about connections and requests.
    pub logs: Vec<Vec<u8>>,
    /// Log lines about the program itself and its servers; they are waited for, not compared.
    pub notes: Vec<String>,
    /// Waits that were given up and belong to no connection.
    pub faults: Vec<String>,
    /// Since when the program is gone; what it sent is still to be read, nothing more will come.
    pub over: Option<Instant>,
    /// Our ports of the connections that tell each origin that no more will come.
    pub last_ports: Vec<u16>,
}

/// The shared state of a run.
#[derive(Debug, Default)]
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection that a script acts on.
#[derive(Debug, Clone)]
pub struct Link {
    world: Arc<World>,
    pub index: usize,
    /// `None` once we have closed it. The reader holds the socket too, and lets go of it when it has come to an end.
    socket: Arc<Mutex<Option<Arc<Socket>>>>,
}

impl World {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Changes the state and wakes everybody.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` gives something, at most `WAIT_MAX`, and not for ever when the run is over.
    pub fn wait<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let until = Instant::now() + WAIT_MAX;
        let mut state = self.lock();
        loop {
            if let Some(result) = ready(&mut state) {
                return Some(result);
            }
            let until = state.over.map_or(until, |over| until.min(over + AFTERMATH_MAX));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|broken| broken.into_inner()).0;
        }
    }

    /// The steps that need no connection; says what was given up.
    pub fn await_event(&self, step: &Step) -> Option<String> {
        let (met, what) = match step {
            Step::Pause(time) => {
                thread::sleep(*time);
                return None;
            }
            Step::Open(gate) => {
                self.change(|state| _ = state.gates.insert(gate.clone()));
                return None;
            }
            Step::AwaitGate(gate) => {
                (self.wait(|state| state.gates.contains(gate).then_some(())), format!("gate {gate}"))
            }
            Step::AwaitLogs(count) => {
                (self.wait(|state| (state.logs.len() >= *count).then_some(())), format!("{count} log lines"))
            }
            Step::AwaitNote(text) => (
                self.wait(|state| state.notes.iter().any(|note| note.contains(text)).then_some(())),
                format!("the note `{text}`"),
            ),
            Step::AwaitRequests { origin, count } => (
                self.wait(|state| (state.requests.get(origin).copied().unwrap_or(0) >= *count).then_some(())),
                format!("request {count} at {origin}"),
            ),
            _ => return Some("this step needs a connection".to_string()),
        };
        met.is_none().then(|| format!("for {what}"))
    }

    /// Adds a connection; `owner` says whose it is.
    pub fn adopt(self: &Arc<Self>, socket: Socket, port: u16, owner: impl FnOnce(&mut State, usize)) -> Link {
        let index = self.change(|state| {
            state.links.push(Past { port, ..Past::default() });
            let index = state.links.len() - 1;
            owner(state, index);
            index
        });
        Link { world: self.clone(), index, socket: Arc::new(Mutex::new(Some(Arc::new(socket)))) }
    }
}

impl Link {
    /// Starts to read, once.
    pub fn hear(&self) {
        let fresh = self.world.change(|state| !std::mem::replace(&mut state.links[self.index].hearing, true));
        if let Some(socket) = self.socket().filter(|_| fresh) {
            let link = self.clone();
            thread::spawn(move || link.read_all(&socket));
        }
    }

    fn socket(&self) -> Option<Arc<Socket>> {
        self.socket.lock().unwrap_or_else(|broken| broken.into_inner()).clone()
    }

    fn read_all(&self, socket: &Socket) {
        let mut buffer = vec![0; 65536];
        let end = loop {
            match (&*socket).read(&mut buffer) {
                Ok(0) => break End::Fin,
                Ok(size) => self.world.change(|state| {
                    let received = &mut state.links[self.index].received;
                    let room = RECEIVED_MAX - received.len();
                    received.extend_from_slice(&buffer[..size.min(room)]);
                }),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break End::Rst,
            }
        };
        self.world.change(|state| {
            let past = &mut state.links[self.index];
            past.end.get_or_insert(end);
        });
    }

    /// Sends; an error shows as the end of the connection.
    pub fn send(&self, bytes: &[u8]) {
        if let Some(socket) = self.socket() {
            let _ = (&*socket).write_all(bytes);
        }
    }

    /// Ends our direction.
    pub fn shutdown(&self) {
        if let Some(socket) = self.socket() {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    /// Closes; the shutdown also wakes the reader, which holds the socket as well.
    pub fn close(&self) {
        self.end(Shutdown::Both);
    }

    /// Ends the connection by RST: what a close without lingering sends.
    pub fn reset(&self) {
        if let Some(socket) = self.socket() {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
        self.end(Shutdown::Read);
    }

    fn end(&self, how: Shutdown) {
        self.world.change(|state| {
            let past = &mut state.links[self.index];
            past.closed_by_us |= past.end.is_none();
        });
        let socket = self.socket.lock().unwrap_or_else(|broken| broken.into_inner()).take();
        if let Some(socket) = socket {
            let _ = socket.shutdown(how);
            // The reader wakes and lets go; only then does our drop close the socket.
            while Arc::strong_count(&socket) > 1 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits on this connection's past; a wait that is given up is noted there with `what`.
    pub fn wait<T>(&self, what: &str, mut ready: impl FnMut(&mut Past) -> Option<T>) -> Option<T> {
        let result = self.world.wait(|state| ready(&mut state.links[self.index]));
        if result.is_none() {
            self.fault(what);
        }
        result
    }

    /// Notes what became of TLS.
    pub fn note_tls(&self, what: String) {
        self.world.change(|state| state.links[self.index].tls.push(what));
    }

    pub fn fault(&self, what: &str) {
        self.world.change(|state| state.links[self.index].faults.push(format!("gave up waiting: {what}")));
    }

    pub fn world(&self) -> &Arc<World> {
        &self.world
    }
}
