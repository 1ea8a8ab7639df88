//! What the objects of a process have counted, and what was measured of it in the last second.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_kernel::process::usage;
use baton_proxy::times::TIMES;
use baton_proxy::{Counter, CounterBlock, Generation, ProcessSum, Registry};

use super::rates::{Counted, Memory, Rates};

/// What names an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum ObjectKey {
    Process,
    /// TLS with clients, of the whole process.
    Tls,
    /// TLS with servers, of the whole process.
    ServerTls,
    /// Processor time.
    Processor,
    Frontend(Arc<str>),
    Backend(Arc<str>),
    Server(Arc<str>, Arc<str>),
}

/// A frontend's sessions are its connections.
pub(crate) fn of_frontend(counters: &CounterBlock) -> Counted {
    Counted {
        sessions: counters.total(Counter::Connections),
        requests: counters.total(Counter::Requests),
        bytes: counters.total(Counter::BytesOut),
        sums: [0; TIMES],
    }
}

/// All frontends together.
pub(crate) fn of_process(generation: &Generation) -> Counted {
    let frontends = generation.frontends.iter().map(|plan| of_frontend(&plan.state.counters));
    frontends.fold(Counted::default(), |sum, one| Counted {
        sessions: sum.sessions + one.sessions,
        requests: sum.requests + one.requests,
        bytes: sum.bytes + one.bytes,
        sums: sum.sums,
    })
}

/// Handshakes with clients: those begun as sessions, full ones as requests, those that took a session up again as bytes.
pub(crate) fn of_tls(registry: &Registry) -> Counted {
    let [requests, bytes] = [&registry.tls.full, &registry.tls.resumed].map(|total| total.load(Ordering::Relaxed));
    let sessions = registry.sums.get(ProcessSum::TlsHandshakes);
    Counted { sessions, requests, bytes, ..Counted::default() }
}

/// Full handshakes with servers, as requests.
pub(crate) fn of_server_tls(generation: &Generation) -> Counted {
    let full = |counters: &CounterBlock| {
        counters.total(Counter::TlsSessions).saturating_sub(counters.total(Counter::TlsResumed))
    };
    let requests = generation.backends.values().map(|plan| full(&plan.figures.counters)).sum();
    Counted { requests, ..Counted::default() }
}

/// Processor time in milliseconds, as sessions.
pub(crate) fn of_processor() -> Counted {
    let used = usage::processor_time().unwrap_or_default();
    Counted { sessions: u64::try_from(used.as_millis()).unwrap_or(u64::MAX), ..Counted::default() }
}

/// Backends and servers.
pub(crate) fn of_backend(counters: &CounterBlock) -> Counted {
    let sessions = counters.total(Counter::Sessions);
    Counted { sessions, sums: counters.times().sums, ..Counted::default() }
}

/// Everything that is measured and has counted anything: of thousands of servers many never do, and a server counts nothing that its
/// backend does not.
pub(crate) fn all(generation: &Generation, registry: &Registry) -> impl Iterator<Item = (ObjectKey, Counted)> {
    let frontends = generation
        .frontends
        .iter()
        .map(|plan| (ObjectKey::Frontend(plan.proxy.name.clone()), of_frontend(&plan.state.counters)));
    let in_use = generation.backends.values().filter(|plan| !plan.figures.counters.is_untouched());
    let backends = in_use.flat_map(|plan| {
        let name = &plan.proxy.name;
        let counted = plan.servers.values().filter(|plan| !plan.counters.is_untouched());
        let servers =
            counted.map(|plan| (ObjectKey::Server(name.clone(), plan.server.name.clone()), of_backend(&plan.counters)));
        servers.chain([(ObjectKey::Backend(name.clone()), of_backend(&plan.figures.counters))])
    });
    frontends.chain(backends).chain([
        (ObjectKey::Process, of_process(generation)),
        (ObjectKey::Tls, of_tls(registry)),
        (ObjectKey::ServerTls, of_server_tls(generation)),
        (ObjectKey::Processor, of_processor()),
    ])
}

/// An object at this moment.
pub(crate) struct ObjectSample {
    pub memory: Memory,
    pub counted: Counted,
    since: Duration,
    now: Instant,
}

impl ObjectSample {
    /// Looks it up.
    pub fn of(rates: &Rates<ObjectKey>, key: &ObjectKey, counted: Counted, now: Instant) -> ObjectSample {
        ObjectSample { memory: rates.of(key), counted, since: rates.since(now), now }
    }

    /// Sessions in the last second, and the most.
    pub fn sessions(&self) -> (u64, u64) {
        let (rate, max) = self.sessions_exact();
        (rate.round() as u64, max)
    }

    /// Sessions in the last second, with the fraction, and the most.
    pub fn sessions_exact(&self) -> (f64, u64) {
        let (meter, total) = (&self.memory.sessions, self.counted.sessions);
        (meter.rate(total, self.since), meter.max(total))
    }

    /// Requests in the last second, and the most.
    pub fn requests(&self) -> (u64, u64) {
        let (rate, max) = self.requests_exact();
        (rate.round() as u64, max)
    }

    /// Requests in the last second, with the fraction, and the most.
    pub fn requests_exact(&self) -> (f64, u64) {
        let (meter, total) = (&self.memory.requests, self.counted.requests);
        (meter.rate(total, self.since), meter.max(total))
    }

    /// Bytes to clients in the last second.
    pub fn bytes(&self) -> f64 {
        self.memory.bytes.rate(self.counted.bytes, self.since)
    }

    /// Average times, milliseconds.
    pub fn averages(&self) -> [u32; TIMES] {
        self.memory.averages.until(self.counted.sessions, self.counted.sums).values()
    }

    /// Seconds since the last session; -1 when there was none.
    pub fn last_session(&self) -> i32 {
        match self.memory.last_session_until(&self.counted, self.now) {
            None => -1,
            Some(at) => i32::try_from(self.now.saturating_duration_since(at).as_secs()).unwrap_or(i32::MAX),
        }
    }
}
