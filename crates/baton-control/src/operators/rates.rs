//! Events in the last second, and averages over the last requests, from counters that only grow. Pure: the caller reads the
//! counters once a second ([`Rates::tick`]) and whenever somebody asks.
//!
//! So requests pay nothing for being measured, and nothing is measured while there is no `stats socket`, statistics page or exporter, and nobody has
//! asked lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use baton_proxy::times::TIMES;

/// How often the counters are read.
pub const TICK: Duration = Duration::from_secs(1);

/// Requests an average is made of, as in HAProxy.
const WINDOW: u64 = 1024;

/// What a counter did in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meter {
    /// The counter at the last tick.
    total: u64,
    /// Events a second between the two last ticks.
    before: f64,
    max: u64,
}

impl Meter {
    /// A second, or however long, is over.
    fn tick(&mut self, total: u64, elapsed: Duration) {
        // A counter that became smaller was cleared.
        let events = total.checked_sub(self.total).unwrap_or(total);
        self.before = events as f64 / elapsed.as_secs_f64().max(0.001);
        self.max = self.max.max(self.before.round() as u64);
        self.total = total;
    }

    /// Events a second between the two last ticks.
    pub fn last(&self) -> f64 {
        self.before
    }

    /// Events in the last second, `since` the last tick: what was counted, and the part of the second before that.
    pub fn rate(&self, total: u64, since: Duration) -> f64 {
        let events = total.checked_sub(self.total).unwrap_or(total);
        let rest = 1.0 - since.as_secs_f64().min(1.0);
        events as f64 + self.before * rest
    }

    /// The most in a second.
    pub fn max(&self, total: u64) -> u64 {
        self.max.max(total.checked_sub(self.total).unwrap_or(total))
    }
}

/// Averages of times over the last `WINDOW` requests, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Averages {
    requests: u64,
    sums: [u64; TIMES],
    seen: u64,
    values: [f64; TIMES],
}

impl Averages {
    /// With all requests until now, of which these are the number and the sums of their times.
    pub fn until(mut self, requests: u64, sums: [u64; TIMES]) -> Averages {
        let new = requests.checked_sub(self.requests).unwrap_or(requests);
        if new > 0 {
            self.seen = (self.seen + new).min(WINDOW);
            let weight = (new as f64 / self.seen as f64).min(1.0);
            for (value, (sum, before)) in self.values.iter_mut().zip(sums.into_iter().zip(self.sums)) {
                // Sums are not cleared with the counters.
                let mean = sum.wrapping_sub(before) as f64 / new as f64;
                *value += (mean - *value) * weight;
            }
        }
        (self.requests, self.sums) = (requests, sums);
        self
    }

    /// Whole milliseconds.
    pub fn values(&self) -> [u32; TIMES] {
        self.values.map(|value| value.round() as u32)
    }
}

/// What is remembered of an object. What it does not count stays zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Sessions; connections of a frontend.
    pub sessions: Meter,
    /// Requests.
    pub requests: Meter,
    /// Bytes to clients.
    pub bytes: Meter,
    /// Times.
    pub averages: Averages,
    /// When the last session was seen to have been.
    pub last_session: Option<Instant>,
}

/// What an object has counted until now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Sessions; connections of a frontend.
    pub sessions: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes to clients.
    pub bytes: u64,
    /// Sums of times.
    pub sums: [u64; TIMES],
}

/// All objects, by what names them.
#[derive(Debug)]
pub struct Rates<ObjectKey> {
    at: Instant,
    objects: HashMap<ObjectKey, Memory>,
}

impl<ObjectKey: Eq + Hash> Rates<ObjectKey> {
    /// Nothing yet.
    pub fn new(now: Instant) -> Rates<ObjectKey> {
        Rates { at: now, objects: HashMap::new() }
    }

    /// When the next tick is due; the first one at once.
    pub fn due(&self) -> Instant {
        if self.objects.is_empty() { self.at } else { self.at + TICK }
    }

    /// Since the last tick.
    pub fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    /// Reads the counters of all objects that have counted anything. Those that are not among them are forgotten.
    pub fn tick(&mut self, now: Instant, all: impl Iterator<Item = (ObjectKey, Counted)>) {
        let elapsed = self.since(now);
        let is_first = self.objects.is_empty();
        let mut before = std::mem::take(&mut self.objects);
        self.objects.reserve(before.len());
        for (key, counted) in all {
            let memory = match before.remove(&key) {
                // Whatever it counted before anybody looked was not in the last second.
                None if is_first => Memory::first(&counted, now),
                // One that is not known had counted nothing.
                known => known.unwrap_or_default().tick(&counted, elapsed, now),
            };
            self.objects.insert(key, memory);
        }
        self.at = now;
    }

    /// What is remembered of an object.
    pub fn of(&self, key: &ObjectKey) -> Memory {
        self.objects.get(key).copied().unwrap_or_default()
    }

    /// Everything that is remembered.
    pub fn all(&self) -> impl Iterator<Item = (&ObjectKey, &Memory)> {
        self.objects.iter()
    }

    /// Forgets the maxima.
    pub fn clear_max(&mut self) {
        for memory in self.objects.values_mut() {
            (memory.sessions.max, memory.requests.max, memory.bytes.max) = (0, 0, 0);
        }
    }
}

impl Memory {
    fn first(counted: &Counted, now: Instant) -> Memory {
        let meter = |total| Meter { total, ..Meter::default() };
        Memory {
            sessions: meter(counted.sessions),
            requests: meter(counted.requests),
            bytes: meter(counted.bytes),
            averages: Averages::default().until(counted.sessions, counted.sums),
            last_session: (counted.sessions > 0).then_some(now),
        }
    }

    fn tick(mut self, counted: &Counted, elapsed: Duration, now: Instant) -> Memory {
        self.last_session = self.last_session_until(counted, now);
        self.sessions.tick(counted.sessions, elapsed);
        self.requests.tick(counted.requests, elapsed);
        self.bytes.tick(counted.bytes, elapsed);
        self.averages = self.averages.until(counted.sessions, counted.sums);
        self
    }

    /// When the last session was, to a second.
    pub fn last_session_until(&self, counted: &Counted, now: Instant) -> Option<Instant> {
        if counted.sessions == self.sessions.total { self.last_session } else { Some(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_second() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut rates = Rates::new(start);
        let mut tick = |at: u64, sessions: u64| {
            let counted = Counted { sessions, ..Counted::default() };
            rates.tick(start + ms(at), [("web", counted)].into_iter());
            rates.of(&"web").sessions
        };
        assert_eq!(tick(1000, 50).rate(50, ms(0)), 0.0, "what came before anybody looked");
        let meter = tick(2000, 60);
        assert_eq!(
            (meter.rate(60, ms(0)), meter.rate(60, ms(500)), meter.rate(70, ms(900)).round()),
            (10.0, 5.0, 11.0)
        );
        assert_eq!((meter.max(60), meter.max(90)), (10, 30));
        assert_eq!(tick(6000, 100).rate(100, ms(0)), 10.0, "a late tick is a long second");
        assert_eq!(tick(7000, 4).rate(4, ms(0)), 4.0, "the counter was cleared");
    }

    #[test]
    fn an_object_counts_from_zero_when_it_is_seen_first_after_others() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let counted = |sessions| Counted { sessions, ..Counted::default() };
        let mut rates = Rates::new(start);
        rates.tick(at(1), [("web", counted(7))].into_iter());
        rates.tick(at(2), [("web", counted(7)), ("app", counted(3))].into_iter());
        let rate = |name| rates.of(&name).sessions.rate(rates.of(&name).sessions.total, Duration::ZERO);
        assert_eq!((rate("web"), rate("app"), rates.of(&"app").last_session), (0.0, 3.0, Some(at(2))));
    }

    #[test]
    fn averages_forget_slowly() {
        let check = |steps: &[(u64, u64)], expect: u32| {
            let (mut averages, mut requests, mut sum) = (Averages::default(), 0, 0);
            for (new, ms) in steps {
                requests += new;
                sum += new * ms;
                averages = averages.until(requests, [sum; TIMES]);
            }
            assert_eq!(averages.values(), [expect; TIMES], "{steps:?}");
        };
        check(&[], 0);
        check(&[(1, 10)], 10);
        check(&[(1, 10), (1, 20)], 15);
        check(&[(1024, 10), (1024, 20)], 20);
        check(&[(1024, 10), (512, 20)], 15);
        check(&[(1, 10), (0, 0)], 10);
    }

    #[test]
    fn the_last_session_is_known_to_a_second() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let counted = |sessions| Counted { sessions, ..Counted::default() };
        let mut rates = Rates::new(start);
        for (second, sessions) in [(1, 0), (2, 0), (3, 5), (4, 5)] {
            rates.tick(at(second), [("app", counted(sessions))].into_iter());
        }
        assert_eq!(rates.of(&"app").last_session_until(&counted(5), at(5)), Some(at(3)));
        assert_eq!(rates.of(&"app").last_session_until(&counted(6), at(5)), Some(at(5)));
        assert_eq!(rates.of(&"other").last_session, None);
    }
}
