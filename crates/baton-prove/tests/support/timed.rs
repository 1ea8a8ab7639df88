//! A server that freezes, and writes down by the load's own clock when it read, answered and stood still.
//!
//! What it writes down bounds every latency from both sides, whatever else the machine does meanwhile. So a test can be exact
//! without asserting a time.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use baton_prove::LoadResult;

use super::say;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// How long a freeze waits for those who are to be frozen. Far more than it ever takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request as the server saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its head had come whole.
    pub read: Instant,
    /// Just before the answer went out.
    pub answered: Instant,
    /// Just after it.
    pub sent: Instant,
}

/// A time in which nothing was answered.
#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    pub began: Instant,
    pub ended: Instant,
}

/// At which requests the server freezes.
#[derive(Clone, Debug)]
pub struct Freezes {
    /// The numbers of the requests, from 0 over all connections in the order of their answers, before whose answers it freezes.
    pub before: Vec<usize>,
    /// For how long.
    pub time: Duration,
    /// How many requests must have come (that one included) before the time begins to count.
    pub with: usize,
}

/// The server. It lives as long as the test.
pub struct Timed {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    freezes: Freezes,
    line: Mutex<Line>,
    moved: Condvar,
}

/// Requests are answered one after the other in the order in which they came: who is first can freeze all behind him, and
/// nobody passes.
#[derive(Default)]
struct Line {
    /// Requests that were read.
    came: usize,
    seen: Vec<Seen>,
    frozen: Vec<Freeze>,
}

impl Timed {
    pub fn start(freezes: Freezes) -> Timed {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State { freezes, line: Mutex::default(), moved: Condvar::new() });
        let shared = state.clone();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (stream, state) = (stream.expect("a connection"), shared.clone());
                thread::spawn(move || state.serve(connection, stream));
            }
        });
        Timed { address, state }
    }

    /// All requests, in the order of their answers.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.line().seen.clone()
    }

    pub fn frozen(&self) -> Vec<Freeze> {
        self.state.line().frozen.clone()
    }
}

impl State {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what only others can bring about.
    fn wait(&self, line: MutexGuard<'_, Line>, is_early: impl FnMut(&mut Line) -> bool) {
        let waited = self.moved.wait_timeout_while(line, PATIENCE, is_early);
        assert!(waited.is_ok_and(|(_, late)| !late.timed_out()), "nobody came");
    }

    fn serve(&self, connection: usize, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        while let Some(closes) = read_head(&mut stream) {
            let read = Instant::now();
            let mut line = self.line();
            let place = line.came;
            line.came += 1;
            self.moved.notify_all();
            self.wait(line, |line| line.seen.len() < place);

            let frozen = self.freezes.before.contains(&place).then(|| self.freeze(place));
            // Written down before anybody can look, and nobody is next before it is out.
            let mut line = self.line();
            line.frozen.extend(frozen);
            let answered = Instant::now();
            say(&mut stream, ANSWER);
            line.seen.push(Seen { connection, read, answered, sent: Instant::now() });
            self.moved.notify_all();
            drop(line);
            if closes {
                return;
            }
        }
    }

    fn freeze(&self, place: usize) -> Freeze {
        let began = Instant::now();
        self.wait(self.line(), |line| line.came - place < self.freezes.with);
        thread::sleep(self.freezes.time);
        Freeze { began, ended: Instant::now() }
    }
}

/// Reads one head; says whether it asks for a close. `None` when the client has gone.
fn read_head(stream: &mut TcpStream) -> Option<bool> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&buffer[..length]);
    }
    Some(head.windows(5).any(|part| part.eq_ignore_ascii_case(b"close")))
}

/// Tries `attempt` until the machine lets the server keep its times, as the server's own clock says (`None`: it did not).
pub fn in_time<T>(attempt: impl Fn() -> Option<T>) -> T {
    (0..50)
        .find_map(|_| attempt())
        .expect("a server thread that runs within a quarter of a second, once in fifty times")
}

/// How many of the load's requests took longer than about `time`, and the latency from which on a request counts as such: the
/// histogram keeps three digits.
pub fn slower(result: &LoadResult, time: Duration) -> (usize, Duration) {
    let latency = result.latency();
    let edge = latency.highest_equivalent(time.as_micros() as u64) + 1;
    let count = if latency.max() < edge { 0 } else { latency.count_between(edge, latency.max()) };
    (count as usize, Duration::from_micros(edge))
}
