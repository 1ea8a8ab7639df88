//! What happened to every kind of connection, counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::lane::Damage;

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// HTTP/1, kept between requests.
    Kept,
    Http2,
    WebSocket,
    Tunnel,
    Download,
    Upload,
    Events,
    /// A response that the server begins late.
    Poll,
}

impl Kind {
    pub const ALL: [(Kind, &'static str); 8] = [
        (Kind::Kept, "kept"),
        (Kind::Http2, "http2"),
        (Kind::WebSocket, "websockets"),
        (Kind::Tunnel, "tunnels"),
        (Kind::Download, "downloads"),
        (Kind::Upload, "uploads"),
        (Kind::Events, "events"),
        (Kind::Poll, "polls"),
    ];
}

/// Why a connection came to its end before the experiment did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// Between two requests, or announced by `Connection: close` or GOAWAY. Only connections of requests can end so.
    Closed,
    /// A request without its whole response, a session or a transfer in the middle.
    Broken,
    /// Bytes were not those that were sent.
    Damaged(Damage),
}

impl From<std::io::Error> for Cut {
    fn from(_: std::io::Error) -> Cut {
        Cut::Broken
    }
}

impl From<Damage> for Cut {
    fn from(damage: Damage) -> Cut {
        Cut::Damaged(damage)
    }
}

/// Counts of one kind.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
    closed: AtomicU64,
    broken: AtomicU64,
    lost: AtomicU64,
    doubled: AtomicU64,
    changed: AtomicU64,
    exchanges: AtomicU64,
    bytes: AtomicU64,
    key_updates: AtomicU64,
}

/// All counts, and how long round trips took.
pub struct Book {
    kinds: [Counts; Kind::ALL.len()],
    /// Whether processes are replaced just now.
    moving: AtomicBool,
    /// Whether round trips are measured already.
    measures: AtomicBool,
    /// In microseconds, without replacements and with them.
    times: Mutex<[Histogram<u64>; 2]>,
    /// Those with replacements, by how long ago the last one began when the round trip did.
    times_after: Mutex<Vec<Histogram<u64>>>,
    /// When the last replacement began, in microseconds since `began`.
    replaced_us: AtomicU64,
    /// The first connections that were cut, in words.
    notes: Mutex<Vec<String>>,
    began: Instant,
}

/// Round trips that take longer count as this long.
const TIME_MAX_US: u64 = 60_000_000;
/// Round trips are told apart by how long after the beginning of a replacement they began: by steps of this, and the rest.
const AFTER_STEP: Duration = Duration::from_millis(25);
const AFTER_STEPS: usize = 20;
/// Connections that were cut, or did not come to be, that are described.
const NOTES_MAX: usize = 20;

impl Book {
    pub fn new() -> Book {
        Book {
            kinds: Default::default(),
            moving: AtomicBool::new(false),
            measures: AtomicBool::new(false),
            times: Mutex::new([histogram(), histogram()]),
            times_after: Mutex::new((0..=AFTER_STEPS).map(|_| histogram()).collect()),
            replaced_us: AtomicU64::new(0),
            notes: Mutex::default(),
            began: Instant::now(),
        }
    }

    fn of(&self, kind: Kind) -> &Counts {
        &self.kinds[kind as usize]
    }

    /// One of those that are asked for is there for the first time.
    pub fn connected(&self, kind: Kind) {
        self.of(kind).connections.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have been there.
    pub fn connections(&self) -> u64 {
        self.kinds.iter().map(|counts| counts.connections.load(Ordering::Relaxed)).sum()
    }

    /// A connection did not come to be.
    pub fn refused(&self, kind: Kind, error: &std::io::Error, at: usize) {
        self.of(kind).refused.fetch_add(1, Ordering::Relaxed);
        self.note(kind, at, error);
    }

    fn note(&self, kind: Kind, at: usize, what: &dyn std::fmt::Debug) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MAX {
            notes.push(format!("{:.1} s: {kind:?} {at}: {what:?}", self.began.elapsed().as_secs_f64()));
        }
    }

    /// A client ended its session as it wanted to.
    pub fn left(&self, kind: Kind) {
        self.of(kind).left.fetch_add(1, Ordering::Relaxed);
    }

    pub fn cut(&self, kind: Kind, cut: Cut, at: usize) {
        let counts = self.of(kind);
        let count = match cut {
            Cut::Closed => &counts.closed,
            Cut::Broken => &counts.broken,
            Cut::Damaged(Damage::Lost) => &counts.lost,
            Cut::Damaged(Damage::Doubled) => &counts.doubled,
            Cut::Damaged(Damage::Changed) => &counts.changed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.note(kind, at, &cut);
    }

    /// So many messages or requests went well, with so many bytes.
    pub fn exchanged(&self, kind: Kind, count: u64, bytes: u64) {
        self.of(kind).exchanges.fetch_add(count, Ordering::Relaxed);
        self.of(kind).bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn keys_updated(&self, kind: Kind) {
        self.of(kind).key_updates.fetch_add(1, Ordering::Relaxed);
    }

    /// All requests and messages that went well.
    pub fn exchanges(&self) -> u64 {
        self.kinds.iter().map(|counts| counts.exchanges.load(Ordering::Relaxed)).sum()
    }

    /// How many times clients have updated their keys.
    pub fn key_updates(&self) -> u64 {
        self.kinds.iter().map(|counts| counts.key_updates.load(Ordering::Relaxed)).sum()
    }

    /// The first connections that were cut or did not come to be, in words.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The beginning of a round trip; give it to [`Book::ended`].
    pub fn begin(&self) -> (Instant, bool) {
        (Instant::now(), self.moving.load(Ordering::Relaxed))
    }

    /// A round trip counts among those with replacements if there were some at its beginning or its end.
    pub fn ended(&self, (began, was_moving): (Instant, bool)) {
        if !self.measures.load(Ordering::Relaxed) {
            return;
        }
        let is_moving = was_moving || self.moving.load(Ordering::Relaxed);
        let took = micros(began.elapsed());
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times[usize::from(is_moving)].saturating_record(took);
        drop(times);
        if is_moving {
            let replaced = Duration::from_micros(self.replaced_us.load(Ordering::Relaxed));
            let after = began.saturating_duration_since(self.began + replaced);
            let step = (after.as_nanos() / AFTER_STEP.as_nanos()).min(AFTER_STEPS as u128) as usize;
            let mut times = self.times_after.lock().unwrap_or_else(PoisonError::into_inner);
            times[step].saturating_record(took);
        }
    }

    /// A process is about to be replaced.
    pub fn replaces(&self) {
        self.replaced_us.store(micros(self.began.elapsed()), Ordering::Relaxed);
    }

    pub fn measure(&self) {
        self.measures.store(true, Ordering::Relaxed);
    }

    pub fn set_moving(&self, moving: bool) {
        self.moving.store(moving, Ordering::Relaxed);
    }

    /// All of it.
    pub fn to_json(&self) -> Value {
        let kinds = Kind::ALL.iter().map(|(kind, name)| {
            let counts = self.of(*kind);
            let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = json!({
                "connections": value(&counts.connections), "refused": value(&counts.refused), "left": value(&counts.left),
                "closed": value(&counts.closed), "broken": value(&counts.broken), "lost": value(&counts.lost),
                "doubled": value(&counts.doubled), "changed": value(&counts.changed),
                "exchanges": value(&counts.exchanges), "bytes": value(&counts.bytes),
                "key_updates": value(&counts.key_updates),
            });
            ((*name).to_owned(), counts)
        });
        let kinds: Value = kinds.collect::<serde_json::Map<_, _>>().into();
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |times: &Histogram<u64>| {
            let at = |share: f64| times.value_at_quantile(share);
            json!({"count": times.len(), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": times.max()})
        };
        let after = self.times_after.lock().unwrap_or_else(PoisonError::into_inner);
        let after = after.iter().enumerate().map(|(at, times)| {
            let mut step = of(times);
            step["from_ms"] = json!(at as u128 * AFTER_STEP.as_millis());
            step
        });
        let after: Vec<Value> = after.collect();
        json!({
            "kinds": kinds, "round_trip_us": {"quiet": of(&times[0]), "moving": of(&times[1]), "after_replacing": after},
            "first_cuts": self.notes(),
        })
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 3).unwrap_or_else(|_| unreachable!("bounds and digits are fine"))
}

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}
