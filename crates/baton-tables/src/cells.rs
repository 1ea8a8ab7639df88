//! How values are kept in cells that others change at the same time: halves of a cell, and rates.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::rate::Rate;

/// A half of a cell.
#[inline]
pub(crate) fn half(cell: &AtomicU64, upper: bool) -> u32 {
    of_half(cell.load(Ordering::Acquire), upper)
}

#[inline]
fn of_half(cell: u64, upper: bool) -> u32 {
    if upper { (cell >> 32) as u32 } else { cell as u32 }
}

/// Changes a half of a cell, and leaves the other one alone; gives what it was.
#[inline]
pub(crate) fn change_half(cell: &AtomicU64, upper: bool, change: impl Fn(u32) -> u32) -> u32 {
    let mut seen = cell.load(Ordering::Relaxed);
    loop {
        let old = of_half(seen, upper);
        let new = u64::from(change(old));
        let next = if upper { seen & 0xffff_ffff | new << 32 } else { seen & !0xffff_ffff | new };
        match cell.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return old,
            Err(now) => seen = now,
        }
    }
}

/// Sets a half of a cell that nobody else changes at the same time.
#[inline]
pub(crate) fn set_half(cell: &AtomicU64, upper: bool, value: u32) {
    let (seen, value) = (cell.load(Ordering::Relaxed), u64::from(value));
    let next = if upper { seen & 0xffff_ffff | value << 32 } else { seen & !0xffff_ffff | value };
    cell.store(next, Ordering::Release);
}

/// A rate in two cells: when its period began and what was counted since then; and what was counted before, with the beginning of the
/// period before which it was. Whoever counts the first event of a new period writes the second one first; until the first cell
/// follows, the second is that of a period that has not begun, and does not count.
#[derive(Clone, Copy)]
pub(crate) struct RateCells<'a> {
    now: &'a AtomicU64,
    before: &'a AtomicU64,
}

#[inline]
fn pair(start: u32, count: u32) -> u64 {
    u64::from(start) << 32 | u64::from(count)
}

impl<'a> RateCells<'a> {
    #[inline]
    pub(crate) fn new(now: &'a AtomicU64, before: &'a AtomicU64) -> RateCells<'a> {
        RateCells { now, before }
    }

    /// What it has counted.
    #[inline]
    pub(crate) fn load(self) -> Rate {
        let mut now = self.now.load(Ordering::Acquire);
        loop {
            let before = self.before.load(Ordering::Acquire);
            let again = self.now.load(Ordering::Acquire);
            if now == again {
                return of(now, before);
            }
            now = again;
        }
    }

    /// Counts events.
    #[inline]
    pub(crate) fn add(self, amount: u32, now: u32, period: u32) {
        loop {
            let before = self.before.load(Ordering::Acquire);
            let seen = self.now.load(Ordering::Acquire);
            let rate = of(seen, before);
            let turned = rate.turned(now, period);
            if turned.start != rate.start {
                let next = pair(turned.start, turned.previous);
                if self.before.compare_exchange(before, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
            }
            let next = pair(turned.start, turned.current.wrapping_add(amount));
            if self.now.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Takes out what it has counted: it goes on with 0.
    pub(crate) fn take(self) -> Rate {
        loop {
            let before = self.before.load(Ordering::Acquire);
            let now = self.now.load(Ordering::Acquire);
            let rate = of(now, before);
            let none = pair(rate.start, 0);
            if self.now.compare_exchange(now, none, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // Whoever begins a new period meanwhile has replaced it.
            if rate.previous > 0 {
                let _ = self.before.compare_exchange(before, none, Ordering::AcqRel, Ordering::Relaxed);
            }
            return rate;
        }
    }

    /// Replaces it.
    #[inline]
    pub(crate) fn set(self, rate: Rate) {
        self.before.store(pair(rate.start, rate.previous), Ordering::Release);
        self.now.store(pair(rate.start, rate.current), Ordering::Release);
    }
}

#[inline]
fn of(now: u64, before: u64) -> Rate {
    let start = (now >> 32) as u32;
    let previous = if (before >> 32) as u32 == start { before as u32 } else { 0 };
    Rate { start, current: now as u32, previous }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn halves_do_not_see_each_other() {
        let cell = AtomicU64::new(0);
        thread::scope(|threads| {
            for upper in [false, true] {
                let cell = &cell;
                threads.spawn(move || {
                    for _ in 0..100_000 {
                        change_half(cell, upper, |old| old.wrapping_add(0x8000_0001));
                    }
                });
            }
        });
        let expect = 0x8000_0001_u32.wrapping_mul(100_000);
        assert_eq!((half(&cell, false), half(&cell, true)), (expect, expect));
        set_half(&cell, true, 7);
        assert_eq!((half(&cell, false), half(&cell, true)), (expect, 7));
    }

    /// Threads whose clocks differ a little count across many periods: no event is lost or counted twice.
    #[test]
    fn a_turn_of_the_period_loses_no_event() {
        // So few that the clock of a thread that stands still in the middle is never further behind than clocks may be.
        const EVENTS: u32 = 19_000;
        const PERIOD: u32 = 1;
        let cells = [AtomicU64::new(pair(1000, 0)), AtomicU64::new(pair(1000, 0))];
        let rate = || RateCells::new(&cells[0], &cells[1]);
        let turned = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        // The total of all periods that are over, as the one who watches sees them: each must be seen, so all wait for each other.
        let clock = AtomicU64::new(1000);
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..EVENTS {
                        rate().add(1, clock.load(Ordering::Acquire) as u32, PERIOD);
                    }
                    done.fetch_add(1, Ordering::Release);
                });
            }
            threads.spawn(|| {
                while done.load(Ordering::Acquire) < 3 {
                    // All periods are full ones: each event is in the current or in the previous one of some moment.
                    let before = rate().load();
                    clock.fetch_add(u64::from(PERIOD), Ordering::AcqRel);
                    let mut seen = rate().load();
                    while seen.start == before.start && done.load(Ordering::Acquire) < 3 {
                        std::hint::spin_loop();
                        seen = rate().load();
                    }
                    // The very last event may have turned it after that look.
                    if seen.start == before.start {
                        seen = rate().load();
                    }
                    if seen.start != before.start {
                        assert_eq!(seen.start, before.start + PERIOD);
                        turned.fetch_add(u64::from(seen.previous), Ordering::Relaxed);
                    }
                }
            });
        });
        let total = turned.load(Ordering::Relaxed) + u64::from(rate().load().current);
        assert_eq!(total, u64::from(3 * EVENTS));
    }
}
