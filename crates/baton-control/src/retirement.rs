//! When the sockets of an address that is no longer wanted may be closed. Pure: the caller looks and closes.
//!
//! New connections have been kept away already (see `baton_kernel::retire`); what reached the sockets before is still
//! being accepted by the cores. Closing too early resets it, so an address is closed only after it has been seen empty
//! for a while: with SYN cookies in use, a handshake under way leaves no trace that could be counted.

use std::time::{Duration, Instant};

/// How long an address must have been empty without interruption.
pub const LINGER: Duration = Duration::from_secs(1);

/// How long to linger where the kernel does not tell what is under way.
pub const LINGER_BLIND: Duration = Duration::from_secs(4);

/// The longest an address is kept for peers that never finish their handshake; the kernel gives them up by then.
pub const LIMIT: Duration = Duration::from_secs(70);

/// How often to look.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen at the sockets of an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueObservation {
    /// Nothing waits, nothing is half open.
    Empty,
    /// Somebody waits to be accepted, or is in the middle of a handshake.
    Busy,
    /// The kernel does not tell.
    Unknown,
}

/// What to do with the address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RetireStep {
    /// Look again at this instant.
    Look(Instant),
    /// Close its sockets.
    Close,
}

/// One address on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Retirement {
    since: Instant,
    /// Whether new connections are kept away. Without the right to do so, waiting for a quiet second could last for ever.
    is_sealed: bool,
    /// Since when it has been empty; `None` while it is not.
    empty_since: Option<Instant>,
}

impl Retirement {
    /// An address that takes no new connections from `now` on; or, not sealed, still does.
    pub fn start(now: Instant, is_sealed: bool) -> Retirement {
        Retirement { since: now, is_sealed, empty_since: None }
    }

    /// What to do at `now`, having seen this.
    pub fn step(&mut self, now: Instant, seen: QueueObservation) -> RetireStep {
        match seen {
            QueueObservation::Empty => self.empty_since = self.empty_since.or(Some(now)),
            QueueObservation::Busy => self.empty_since = None,
            QueueObservation::Unknown => {}
        }
        let is_empty_long = self.empty_since.is_some_and(|since| now >= since + LINGER);
        let is_blind_long = seen == QueueObservation::Unknown && now >= self.since + LINGER_BLIND;
        let is_empty_now = !self.is_sealed && seen == QueueObservation::Empty && now >= self.since + LINGER;
        if is_empty_long || is_empty_now || is_blind_long || now >= self.since + LIMIT {
            return RetireStep::Close;
        }
        RetireStep::Look(now + LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at the given milliseconds and sees `e`mpty, `b`usy or `u`nknown; expects to close at the last look only.
    fn check(is_sealed: bool, looks: &[(u64, char)], closes: bool) {
        let start = Instant::now();
        let mut retirement = Retirement::start(start, is_sealed);
        for (at, (ms, seen)) in looks.iter().enumerate() {
            let seen = match seen {
                'e' => QueueObservation::Empty,
                'b' => QueueObservation::Busy,
                _ => QueueObservation::Unknown,
            };
            let step = retirement.step(start + Duration::from_millis(*ms), seen);
            let expect = closes && at + 1 == looks.len();
            assert_eq!(step == RetireStep::Close, expect, "look {at} of {looks:?}");
        }
    }

    #[test]
    fn an_empty_address_is_closed_after_lingering() {
        check(true, &[(0, 'e'), (999, 'e'), (1000, 'e')], true);
    }

    #[test]
    fn lingering_starts_again_after_somebody_came() {
        check(true, &[(0, 'e'), (900, 'b'), (1000, 'e'), (1900, 'e'), (2000, 'e')], true);
        check(true, &[(0, 'b'), (5000, 'b'), (69_000, 'b')], false);
    }

    #[test]
    fn without_a_seal_the_first_empty_look_after_a_while_is_taken() {
        check(false, &[(0, 'e'), (999, 'e'), (1500, 'b'), (1600, 'e')], true);
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        check(true, &[(0, 'b'), (69_999, 'b'), (70_000, 'b')], true);
    }

    #[test]
    fn a_blind_kernel_means_a_longer_wait() {
        check(true, &[(0, 'u'), (3999, 'u'), (4000, 'u')], true);
        check(true, &[(0, 'e'), (500, 'u'), (1000, 'u')], true);
    }
}
