//! Session tickets (RFC 5077, RFC 8446 4.6.1): a client keeps its session, sealed with a key that only we know, and resumes it
//! without a signature of ours, also after a reload, with another process, or on another machine that has the keys.
//!
//! [`TicketKey`] seals and opens; [`TicketKeys`] is a ring of a few of them that can be replaced while it is in use;
//! [`Ticketer`] is what rustls asks, for one kind of connection; [`TicketVault`] is all rings of a process. Nothing in here
//! reads a file or a clock of its own: texts and times come in.

mod key;
mod ring;
mod vault;

pub use key::{BadKey, TicketKey};
pub use ring::{RING_KEYS, SavedTicketKey, TicketFileError, TicketKeys, read_file};
pub use vault::{TicketVault, UpcomingTickets};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

use crate::resumable;

/// The longest life of a ticket that may be promised (RFC 8446 4.6.1): a week.
pub const LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The longest session that is sealed, in bytes: one with a client's certificates. A ticket has to fit into a message, and comes
/// back with every hello.
const SESSION_MAX: usize = 16 * 1024;

/// Seals and opens the tickets of one kind of connection.
pub struct Ticketer {
    keys: Arc<TicketKeys>,
    scope: Box<[u8]>,
    lifetime: u32,
    clock: Arc<dyn TimeProvider>,
}

impl Ticketer {
    /// Tickets with these keys that live for `lifetime` (`tune.ssl.lifetime`), by `clock`.
    ///
    /// `scope` is what a session may be resumed within: who asks a client for a certificate, or checks it otherwise than
    /// somebody else with the same keys, must have a scope of its own, for a resumed session is not checked again. It has to be
    /// the same in every process and on every machine that shall resume a session.
    pub fn new(keys: Arc<TicketKeys>, scope: &[u8], lifetime: Duration, clock: Arc<dyn TimeProvider>) -> Ticketer {
        let lifetime = u32::try_from(lifetime.min(LIFETIME_MAX).as_secs()).unwrap_or(u32::MAX);
        Ticketer { keys, scope: scope.into(), lifetime, clock }
    }

    fn now(&self) -> Option<u64> {
        self.clock.current_time().map(|time| time.as_secs())
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ticketer").field("keys", &self.keys).field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        if session.len() > SESSION_MAX {
            return None;
        }
        let mut plain = Vec::with_capacity(session.len() + 8 + key::OVERHEAD);
        plain.extend(self.now()?.to_be_bytes());
        plain.extend(session);
        self.keys.load().sealing().seal(plain, &self.scope)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.keys.load().of_name(ticket.get(..key::NAME_BYTES)?)?.open(ticket, &self.scope)?;
        let made = u64::from_be_bytes(plain.get(..8)?.try_into().ok()?);
        let now = self.now()?;
        // A clock of another machine may be a little ahead of ours.
        let is_young = now.saturating_sub(made) <= u64::from(self.lifetime);
        let session = plain.split_off(8);
        // Without a scope no client shows a certificate.
        (is_young && (self.scope.is_empty() || resumable::holds(&session, now))).then_some(session)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustls_pki_types::UnixTime;

    use super::*;

    /// A clock that stands still until it is moved.
    #[derive(Debug, Default)]
    struct Hands(AtomicU64);

    impl TimeProvider for Hands {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
        }
    }

    fn ticketer(keys: &Arc<TicketKeys>, scope: &str, clock: &Arc<Hands>) -> Ticketer {
        Ticketer::new(keys.clone(), scope.as_bytes(), Duration::from_secs(300), clock.clone())
    }

    #[test]
    fn what_was_sealed_is_opened_until_it_is_too_old_and_only_within_its_scope() {
        let (keys, clock) = (Arc::new(TicketKeys::own(0).unwrap()), Arc::new(Hands::default()));
        let (ours, others) = (ticketer(&keys, "", &clock), ticketer(&keys, "verify required", &clock));
        let ticket = ours.encrypt(b"session").unwrap();
        assert_ne!(ticket, ours.encrypt(b"session").unwrap(), "no two tickets are the same");
        assert_eq!(ours.decrypt(&ticket).unwrap(), b"session");
        assert_eq!(others.decrypt(&ticket), None);
        clock.0.store(300, Ordering::Relaxed);
        assert_eq!(ours.decrypt(&ticket).unwrap(), b"session");
        clock.0.store(301, Ordering::Relaxed);
        assert_eq!(ours.decrypt(&ticket), None);
        assert_eq!(ours.lifetime(), 300);
    }

    #[test]
    fn a_ticket_does_not_outlive_a_certificate_in_it() {
        let (keys, clock) = (Arc::new(TicketKeys::own(0).unwrap()), Arc::new(Hands::default()));
        let ticketer = ticketer(&keys, "verify required", &clock);
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let shown = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let session = resumable::tests::session(None, &[shown.der()]);
        let end = 978_307_200;
        clock.0.store(end - 1, Ordering::Relaxed);
        let ticket = ticketer.encrypt(&session).unwrap();
        assert_eq!(ticketer.decrypt(&ticket), Some(session));
        clock.0.store(end + 1, Ordering::Relaxed);
        assert_eq!(ticketer.decrypt(&ticket), None);
    }

    #[test]
    fn whatever_a_client_sends_is_no_ticket_but_ours() {
        let (keys, clock) = (Arc::new(TicketKeys::own(0).unwrap()), Arc::new(Hands::default()));
        let ticketer = ticketer(&keys, "", &clock);
        let ticket = ticketer.encrypt(b"session").unwrap();
        for end in 0..ticket.len() {
            assert_eq!(ticketer.decrypt(&ticket[..end]), None);
        }
        for at in 0..ticket.len() {
            let mut bent = ticket.clone();
            bent[at] ^= 1;
            assert_eq!(ticketer.decrypt(&bent), None);
        }
        assert!(ticketer.encrypt(&[0; SESSION_MAX]).is_some() && ticketer.encrypt(&[0; SESSION_MAX + 1]).is_none());
        assert_eq!(ticketer.encrypt(b"").and_then(|ticket| ticketer.decrypt(&ticket)).unwrap(), b"");
    }

    #[test]
    fn keys_are_used_for_as_long_as_tickets_of_theirs_may_live() {
        let (keys, clock) = (Arc::new(TicketKeys::own(0).unwrap()), Arc::new(Hands::default()));
        let ticketer = ticketer(&keys, "", &clock);
        let first = ticketer.encrypt(b"first").unwrap();
        let due = keys.due().unwrap();
        assert!(!keys.rotate(due - 1) && keys.rotate(due) && !keys.rotate(due));
        assert_ne!(first[..16], ticketer.encrypt(b"second").unwrap()[..16], "another key");
        assert_eq!(ticketer.decrypt(&first).unwrap(), b"first");
        for _ in 1..RING_KEYS {
            assert!(keys.rotate(keys.due().unwrap()));
        }
        assert_eq!(ticketer.decrypt(&first), None, "its key is gone");
    }

    #[test]
    fn keys_of_a_file_are_used_as_haproxy_does() {
        let key = |byte: u8| TicketKey::of_bytes(&[byte; 48]).unwrap();
        let keys = Arc::new(TicketKeys::of_file([1, 2, 3, 4].map(|byte| Arc::new(key(byte))).to_vec()));
        let clock = Arc::new(Hands::default());
        let ticketer = ticketer(&keys, "", &clock);
        let ticket = ticketer.encrypt(b"x").unwrap();
        assert_eq!(ticket[..16], [3; 16], "the last but one seals");
        assert_eq!((keys.due(), keys.rotate(u64::MAX)), (None, false), "they are whose file it is to rotate");
        keys.push(key(5)).unwrap();
        assert_eq!(ticketer.encrypt(b"x").unwrap()[..16], [4; 16]);
        assert!(ticketer.decrypt(&ticket).is_some());
        keys.push(key(6)).unwrap();
        assert!(ticketer.decrypt(&ticket).is_none(), "three open");
        assert!(keys.push(TicketKey::of_bytes(&[7; 80]).unwrap()).is_err(), "another length");
        assert_eq!(keys.shown().len(), RING_KEYS);
    }
}
