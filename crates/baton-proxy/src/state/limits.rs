//! Limits that operators set at run time in the place of the configuration's (`set maxconn`, `set rate-limit`). Read at accept, written by
//! the change path alone.

use std::sync::atomic::{AtomicU64, Ordering};

/// No value was set.
const UNSET: u64 = u64::MAX;

/// One limit.
#[derive(Debug)]
pub struct Limit {
    set: AtomicU64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { set: AtomicU64::new(UNSET) }
    }
}

impl Limit {
    /// What was set; `None`: the configuration counts.
    #[inline]
    pub fn set(&self) -> Option<u32> {
        u32::try_from(self.set.load(Ordering::Relaxed)).ok()
    }

    /// The limit in force of a number, for which the configuration has this.
    #[inline]
    pub fn or(&self, configured: u32) -> u32 {
        self.set().unwrap_or(configured)
    }

    /// The limit in force of a rate, for which the configuration has this: zero is none.
    #[inline]
    pub fn rate_or(&self, configured: Option<u32>) -> Option<u32> {
        match self.set() {
            Some(set) => (set > 0).then_some(set),
            None => configured,
        }
    }

    /// Sets it; `None`: the configuration counts.
    pub fn change(&self, value: Option<u32>) {
        self.set.store(value.map_or(UNSET, u64::from), Ordering::Relaxed);
    }
}

/// Those of the whole process.
#[derive(Debug, Default)]
pub struct ProcessLimits {
    /// `maxconn`.
    pub connections: Limit,
    /// `maxconnrate`.
    pub connection_rate: Limit,
    /// `maxsessrate`.
    pub session_rate: Limit,
    /// `maxsslrate`.
    pub tls_rate: Limit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_counts_before_the_configuration() {
        let limit = Limit::default();
        assert_eq!((limit.or(7), limit.rate_or(Some(3)), limit.rate_or(None)), (7, Some(3), None));
        limit.change(Some(0));
        assert_eq!((limit.or(7), limit.rate_or(Some(3))), (0, None));
        limit.change(Some(5));
        assert_eq!((limit.or(9), limit.rate_or(None)), (5, Some(5)));
        limit.change(None);
        assert_eq!((limit.set(), limit.or(9)), (None, 9));
    }
}
