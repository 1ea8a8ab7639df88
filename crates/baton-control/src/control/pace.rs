//! When a master is told of what may change often: at once, unless telling it takes too much of the thread's time. Pure.

use std::time::Instant;

/// A telling is followed by a pause of so many times as long.
const PAUSE: u32 = 20;

/// Changes that are to be told, many of them together if they come faster than they can be told.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    has_news: bool,
    /// When the pause ends.
    next: Option<Instant>,
}

impl Pace {
    /// Whether to tell now; `news`: something changed since the last call.
    pub fn step(&mut self, news: bool, now: Instant) -> bool {
        self.has_news |= news;
        let is_due = self.has_news && self.next.is_none_or(|next| next <= now);
        self.has_news &= !is_due;
        is_due
    }

    /// It was told, which took from `began` to `ended`.
    pub fn told(&mut self, began: Instant, ended: Instant) {
        self.next = Some(ended + ended.saturating_duration_since(began) * PAUSE);
    }

    /// When what has changed is to be told, if it was not.
    pub fn due(&self) -> Option<Instant> {
        self.next.filter(|_| self.has_news)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn changes_are_told_at_once_and_many_together_if_telling_takes_long() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!pace.step(false, at(0)) && pace.step(true, at(10)) && pace.due().is_none());
        pace.told(at(10), at(15));
        let end = 15 + 5 * u64::from(PAUSE);
        assert!(!pace.step(true, at(20)) && !pace.step(true, at(end - 1)));
        assert_eq!(pace.due(), Some(at(end)));
        assert!(pace.step(false, at(end)) && !pace.step(false, at(end + 1)) && pace.due().is_none());
        assert!(pace.step(true, at(end + 2)));
    }
}
