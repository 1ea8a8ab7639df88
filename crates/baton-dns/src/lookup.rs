//! One name, looked up again and again: rounds of queries to all name servers of a section, retries, and what still counts of earlier
//! responses.
//!
//! ```text
//!            due                  a valid response
//!   Ready ────────▶ Asking ───────────────────────────▶ Ready, after `timeout resolve`
//!     ▲               │ all failed, or time is over
//!     ├───────────────┤ the other family, at once and once an attempt
//!     ├───────────────┤ another attempt, after `timeout retry`, up to `resolve_retries`
//!     └───────────────┘ a failure, after `timeout resolve`
//! ```

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use baton_model::{DiscoveredService, HoldTimes, Resolvers};

use crate::counters::NameServerCounters;
use crate::message::{Outcome, RecordType, Service};
use crate::name::DomainName;

/// Addresses of a name, and services of one, that are remembered.
const FOUND_MAX: usize = 8192;

/// What is looked up.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum LookupKey {
    /// Addresses, those of a family first.
    Addresses {
        /// Of this host.
        name: DomainName,
        /// Whether IPv6 is asked for first.
        prefers_v6: bool,
    },
    /// Services.
    Services(DomainName),
}

/// Why a look-up failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The name does not exist.
    Nx,
    /// The name servers refuse.
    Refused,
    /// They do not respond.
    Timeout,
    /// They have nothing of the type, or report or are an error.
    Other,
}

/// A name's state.
#[derive(Debug)]
pub struct Lookup {
    key: LookupKey,
    phase: Phase,
    /// Counted up with each round of queries, so that a response to an earlier one is told apart.
    round: u64,
    /// The last valid response, or the begin.
    valid: Instant,
    /// Whether there was a valid response.
    was_valid: bool,
    /// How the last look-up ended; `None` before the first.
    last: Option<Result<(), Failure>>,
    addresses: Vec<Seen<IpAddr>>,
    services: Vec<SeenService>,
    /// The name server of the response that was used last.
    source: Option<usize>,
}

#[derive(Debug)]
enum Phase {
    Ready(Ready),
    Asking(Asking),
}

/// What is asked next.
#[derive(Clone, Copy, Debug)]
struct Ready {
    at: Instant,
    kind: RecordType,
    is_fallback: bool,
    /// Which attempt it is, from 1.
    attempt: u32,
}

/// A round of queries.
#[derive(Debug)]
struct Asking {
    kind: RecordType,
    is_fallback: bool,
    /// Which attempt it is, from 1.
    attempt: u32,
    until: Instant,
    /// Name servers that did not respond yet.
    waiting: Vec<usize>,
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
struct Seen<T> {
    what: T,
    at: Instant,
}

#[derive(Debug)]
struct SeenService {
    service: DiscoveredService,
    weight: u32,
    /// Of the newest response that has it.
    addresses: Vec<IpAddr>,
    at: Instant,
}

/// What a name's state means for those who need it.
#[derive(Debug, PartialEq)]
pub enum View<'l> {
    /// Nothing is known yet: what there was before stays.
    Unknown,
    /// There are these.
    Addresses(Vec<IpAddr>),
    /// There are these, with weight and addresses.
    Services(Vec<(&'l DiscoveredService, u32, &'l [IpAddr])>),
    /// It failed for longer than it may.
    Failed(Failure),
}

/// What is to be done now.
#[derive(Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing before that time.
    Wait(Instant),
    /// All name servers are to be asked, in this round.
    Ask {
        /// The type.
        kind: RecordType,
        /// The round.
        round: u64,
    },
    /// A look-up ended. `is_news`: by it something else may be known than before.
    Ended {
        /// Whether servers have to be looked at.
        is_news: bool,
    },
}

impl Lookup {
    /// A name that was not looked up yet.
    pub fn new(key: LookupKey, now: Instant) -> Lookup {
        Lookup {
            phase: Phase::Ready(first(&key, now)),
            key,
            round: 0,
            valid: now,
            was_valid: false,
            last: None,
            addresses: Vec::new(),
            services: Vec::new(),
            source: None,
        }
    }

    /// The name.
    pub fn name(&self) -> &DomainName {
        match &self.key {
            LookupKey::Addresses { name, .. } | LookupKey::Services(name) => name,
        }
    }

    /// The name server whose response was used last.
    pub fn source(&self) -> Option<usize> {
        self.source
    }

    /// Whether a look-up is under way.
    pub fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_))
    }

    /// Whether what is known is good enough for a rule: a valid response of the last `hold valid`, or a failure after which nothing is asked
    /// yet, so that not each of a thousand requests asks again.
    pub fn is_fresh(&self, hold: &HoldTimes, now: Instant) -> bool {
        match (&self.last, &self.phase) {
            (Some(Ok(())), _) => now.saturating_duration_since(self.valid) < hold.valid,
            (Some(Err(_)), Phase::Ready(ready)) => ready.at > now,
            (Some(Err(_)), Phase::Asking(_)) | (None, _) => false,
        }
    }

    /// Looks it up as soon as possible, unless that is under way.
    pub fn hurry(&mut self, now: Instant) {
        if let Phase::Ready(ready) = &mut self.phase {
            ready.at = now.min(ready.at);
        }
    }

    /// Looks it up now, unless the last valid response is younger than `hold valid`, or a look-up is under way or failed a moment ago. Gives whether
    /// it does.
    pub fn refresh(&mut self, hold: &HoldTimes, now: Instant) -> bool {
        if self.is_fresh(hold, now) {
            return false;
        }
        match &mut self.phase {
            Phase::Ready(ready) if ready.attempt == 1 && !ready.is_fallback => {
                ready.at = now.min(ready.at);
                true
            }
            Phase::Ready(_) | Phase::Asking(_) => false,
        }
    }

    /// Name servers are others: what is under way begins anew.
    pub fn restart(&mut self, now: Instant) {
        self.phase = Phase::Ready(first(&self.key, now));
        self.source = None;
        self.round += 1;
    }

    /// The next thing to do. To be called until it says to wait.
    pub fn step(&mut self, settings: &Resolvers, counters: &mut [NameServerCounters], now: Instant) -> Step {
        match &mut self.phase {
            Phase::Ready(ready) if ready.at > now => Step::Wait(ready.at),
            Phase::Ready(ready) => {
                let Ready { kind, is_fallback, attempt, .. } = *ready;
                self.round += 1;
                let waiting = (0..settings.servers.len()).collect();
                let until = now + settings.retry.max(LEAST_PAUSE);
                self.phase = Phase::Asking(Asking { kind, is_fallback, attempt, until, waiting, failure: None });
                Step::Ask { kind, round: self.round }
            }
            Phase::Asking(asking) if asking.until > now => Step::Wait(asking.until),
            Phase::Asking(asking) => {
                for server in std::mem::take(&mut asking.waiting) {
                    counters[server].timeouts += 1;
                    asking.failure = Some(asking.failure.unwrap_or(Failure::Timeout));
                }
                let failure = asking.failure.unwrap_or(Failure::Timeout);
                self.fail(failure, settings, now).unwrap_or(Step::Wait(now))
            }
        }
    }

    /// A response of a name server; `outcome` is `None` when it could not be asked. Gives what follows from it: the end of the look-up, or that there
    /// is a step at that time. `None`: nothing, or the response is of an earlier round.
    pub fn hear(
        &mut self,
        (round, server): (u64, usize),
        outcome: Option<Outcome>,
        settings: &Resolvers,
        counters: &mut NameServerCounters,
        now: Instant,
    ) -> Option<Step> {
        let is_current = round == self.round;
        let asking = match &mut self.phase {
            Phase::Asking(asking) if is_current && asking.waiting.contains(&server) => asking,
            Phase::Asking(_) | Phase::Ready(_) => {
                counters.outdated += u64::from(outcome.is_some());
                return None;
            }
        };
        let failure = match outcome {
            Some(Outcome::Addresses(addresses)) => {
                counters.valid += 1;
                self.source = Some(server);
                let is_news = self.take_addresses(addresses, settings.hold.obsolete, now);
                return Some(self.end(Ok(()), is_news, settings, now));
            }
            Some(Outcome::Services(services)) => {
                counters.valid += 1;
                self.source = Some(server);
                let is_news = self.take_services(services, settings.hold.obsolete, now);
                return Some(self.end(Ok(()), is_news, settings, now));
            }
            Some(failed) => counters.count(&failed),
            // It is counted by who sends.
            None => Failure::Timeout,
        };
        asking.waiting.retain(|other| *other != server);
        asking.failure = Some(failure);
        match asking.waiting.is_empty() {
            false => None,
            true => self.fail(failure, settings, now).or_else(|| Some(Step::Wait(self.ready_at(now)))),
        }
    }

    /// What it means now.
    pub fn view(&self, hold: &HoldTimes, now: Instant) -> View<'_> {
        match self.last {
            None => View::Unknown,
            Some(Err(failure)) if now.saturating_duration_since(self.valid) >= hold.of(failure) => {
                View::Failed(failure)
            }
            Some(Err(_)) if !self.was_valid => View::Unknown,
            Some(_) => match self.key {
                LookupKey::Addresses { prefers_v6, .. } => {
                    let mut all: Vec<IpAddr> = self.addresses.iter().map(|seen| seen.what).collect();
                    all.sort_by_key(|address| address.is_ipv6() != prefers_v6);
                    View::Addresses(all)
                }
                LookupKey::Services(_) => View::Services(
                    self.services.iter().map(|seen| (&seen.service, seen.weight, &seen.addresses[..])).collect(),
                ),
            },
        }
    }

    fn ready_at(&self, now: Instant) -> Instant {
        match &self.phase {
            Phase::Ready(ready) => ready.at,
            Phase::Asking(_) => now,
        }
    }

    /// All name servers failed. `None`: something is asked again.
    fn fail(&mut self, failure: Failure, settings: &Resolvers, now: Instant) -> Option<Step> {
        let Phase::Asking(asking) = &self.phase else { return None };
        let Asking { kind, is_fallback, attempt, until, .. } = *asking;
        let other = match kind {
            RecordType::A => Some(RecordType::Aaaa),
            RecordType::Aaaa => Some(RecordType::A),
            RecordType::Srv => None,
        };
        // A name that does not exist has no addresses of the other family; but name servers are known that say so of a type alone.
        if let Some(kind) = other.filter(|_| !is_fallback && failure != Failure::Timeout) {
            self.phase = Phase::Ready(Ready { at: now, kind, is_fallback: true, attempt });
            return None;
        }
        if failure == Failure::Nx || attempt >= settings.retries.max(1) {
            return Some(self.end(Err(failure), true, settings, now));
        }
        // What refused a moment ago refuses again: the next attempt has its time.
        self.phase = Phase::Ready(Ready { attempt: attempt + 1, ..first(&self.key, until.max(now)) });
        None
    }

    fn end(&mut self, outcome: Result<(), Failure>, is_news: bool, settings: &Resolvers, now: Instant) -> Step {
        let is_news = is_news || self.last != Some(outcome);
        if outcome.is_ok() {
            (self.valid, self.was_valid) = (now, true);
        }
        self.last = Some(outcome);
        self.phase = Phase::Ready(first(&self.key, now + settings.resolve.max(LEAST_PAUSE)));
        // Responses of this round come too late from now on.
        self.round += 1;
        Step::Ended { is_news }
    }

    fn take_addresses(&mut self, addresses: Vec<IpAddr>, obsolete: Duration, now: Instant) -> bool {
        let mut next: Vec<Seen<IpAddr>> =
            addresses.into_iter().take(FOUND_MAX).map(|what| Seen { what, at: now }).collect();
        let before: HashSet<IpAddr> = self.addresses.iter().map(|seen| seen.what).collect();
        let known: HashSet<IpAddr> = next.iter().map(|seen| seen.what).collect();
        next.extend(
            std::mem::take(&mut self.addresses)
                .into_iter()
                .filter(|seen| now.saturating_duration_since(seen.at) < obsolete && !known.contains(&seen.what)),
        );
        next.truncate(FOUND_MAX);
        let is_same = before.len() == next.len() && next.iter().all(|seen| before.contains(&seen.what));
        self.addresses = next;
        !is_same
    }

    fn take_services(&mut self, services: Vec<Service>, obsolete: Duration, now: Instant) -> bool {
        let mut next: Vec<SeenService> = services
            .into_iter()
            .take(FOUND_MAX)
            .map(|service| SeenService {
                service: DiscoveredService { host: service.host.shared().clone(), port: service.port },
                weight: service.weight,
                addresses: service.addresses,
                at: now,
            })
            .collect();
        let before = said(&self.services);
        let known: HashSet<DiscoveredService> = next.iter().map(|seen| seen.service.clone()).collect();
        next.extend(
            std::mem::take(&mut self.services)
                .into_iter()
                .filter(|seen| now.saturating_duration_since(seen.at) < obsolete && !known.contains(&seen.service)),
        );
        next.truncate(FOUND_MAX);
        let is_same = before == said(&next);
        self.services = next;
        !is_same
    }
}

/// What is asked first of a name.
fn first(key: &LookupKey, at: Instant) -> Ready {
    let kind = match key {
        LookupKey::Addresses { prefers_v6: true, .. } => RecordType::Aaaa,
        LookupKey::Addresses { prefers_v6: false, .. } => RecordType::A,
        LookupKey::Services(_) => RecordType::Srv,
    };
    Ready { at, kind, is_fallback: false, attempt: 1 }
}

/// What services say, whatever their order.
fn said(services: &[SeenService]) -> Vec<(DiscoveredService, u32, Vec<IpAddr>)> {
    let one = |seen: &SeenService| {
        let mut addresses = seen.addresses.clone();
        addresses.sort_unstable();
        (seen.service.clone(), seen.weight, addresses)
    };
    let mut all: Vec<_> = services.iter().map(one).collect();
    all.sort_unstable();
    all
}

/// Between two look-ups of a name, also with `timeout resolve 0`.
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(10);

impl NameServerCounters {
    /// Counts a response that gives nothing.
    fn count(&mut self, outcome: &Outcome) -> Failure {
        let (counter, failure) = match outcome {
            Outcome::Nx => (&mut self.nx, Failure::Nx),
            Outcome::Refused => (&mut self.refused, Failure::Refused),
            Outcome::Empty => (&mut self.empty, Failure::Other),
            Outcome::CnameError => (&mut self.cname_errors, Failure::Other),
            Outcome::Truncated => (&mut self.truncated, Failure::Other),
            Outcome::TooBig => (&mut self.too_big, Failure::Other),
            Outcome::Invalid => (&mut self.invalid, Failure::Other),
            Outcome::Addresses(_) | Outcome::Services(_) | Outcome::Other => (&mut self.other, Failure::Other),
        };
        *counter += 1;
        failure
    }
}

/// `hold` for a failure.
trait HoldOf {
    fn of(&self, failure: Failure) -> Duration;
}

impl HoldOf for HoldTimes {
    fn of(&self, failure: Failure) -> Duration {
        match failure {
            Failure::Nx => self.nx,
            Failure::Refused => self.refused,
            Failure::Timeout => self.timeout,
            Failure::Other => self.other,
        }
    }
}
