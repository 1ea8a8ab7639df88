//! The dates in the value of a cookie with `maxidle` or `maxlife` (configuration manual, 4.2 `cookie`): `id|last|first`.
//!
//! HAProxy writes a date as five base64 digits that count steps of four seconds since 1970, so that cookies stay valid
//! when one takes the other's place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::progress::CookieDates;

/// The digits, from 0 to 63.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
/// Digits of a date.
const LEN: usize = 5;
/// Seconds in a step.
const STEP: u64 = 4;
/// How far in the future a date may be: clocks differ.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// A date in steps, rounded up.
pub fn in_steps(date: SystemTime) -> u32 {
    let seconds = date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    u32::try_from(seconds.div_ceil(STEP)).unwrap_or(u32::MAX)
}

/// Appends a date.
pub fn encode(date: u32, out: &mut String) {
    for digit in (0..LEN as u32).rev() {
        out.push(char::from(DIGITS[(date >> (6 * digit)) as usize & 63]));
    }
}

/// Reads a date. `None` when it is none, or 0.
pub fn decode(text: &[u8]) -> Option<u32> {
    let text: &[u8; LEN] = text.try_into().ok()?;
    let mut date = 0u32;
    for byte in text {
        let digit = DIGITS.iter().position(|digit| digit == byte)?;
        date = date << 6 | digit as u32;
    }
    Some(date).filter(|date| *date > 0)
}

impl CookieDates {
    /// The log's letter when the cookie is too old to be followed: `O` by `maxlife`, `E` by `maxidle`.
    pub fn expired(&self, max_idle: Option<Duration>, max_life: Option<Duration>, today: u32) -> Option<u8> {
        let outside = |date: Option<u32>, limit: Option<Duration>| match (date, limit) {
            (Some(date), Some(limit)) => {
                let steps = |time: Duration| u32::try_from(time.as_secs() / STEP).unwrap_or(u32::MAX);
                date < today.saturating_sub(steps(limit)) || date > today.saturating_add(steps(AHEAD_MAX))
            }
            _ => false,
        };
        match (outside(self.first, max_life), outside(self.last, max_idle)) {
            (true, _) => Some(b'O'),
            (false, true) => Some(b'E'),
            (false, false) => None,
        }
    }

    /// Whether the client is to get the cookie with today's date.
    pub fn is_due(&self, max_idle: Option<Duration>, max_life: Option<Duration>, today: u32) -> bool {
        let last_is_old = self.last.map_or(max_idle.is_some(), |last| last < today);
        last_is_old || (max_life.is_some() && self.first.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_haproxys() {
        let mut text = String::new();
        encode(1_795_238_437_u32.div_ceil(4), &mut text);
        assert_eq!(text, "awEqK");
        assert_eq!(decode(b"awEqK"), Some(1_795_238_440 / 4));
        for none in ["", "AAAAA", "awEq", "awEqKA", "aw*qK"] {
            assert_eq!(decode(none.as_bytes()), None, "{none}");
        }
    }

    /// Dates and limits in seconds, dates before `TODAY`.
    fn check(idle: Option<u64>, life: Option<u64>, last: Option<i64>, first: Option<i64>, expect: &str) {
        const TODAY: u32 = 1_000_000;
        let (max_idle, max_life) = (idle.map(Duration::from_secs), life.map(Duration::from_secs));
        let date = |ago: i64| u32::try_from(i64::from(TODAY) - ago / 4).expect("a date since 1970");
        let dates = CookieDates { last: last.map(date), first: first.map(date) };
        let letter = match dates.expired(max_idle, max_life, TODAY) {
            Some(letter) => char::from(letter),
            None if dates.is_due(max_idle, max_life, TODAY) => 'U',
            None => 'N',
        };
        assert_eq!(letter.to_string(), expect, "{idle:?} {life:?} {last:?} {first:?}");
    }

    #[test]
    fn old_cookies_are_refreshed_and_older_ones_ignored() {
        check(Some(3600), None, Some(0), None, "N");
        check(Some(3600), None, Some(4), None, "U");
        check(Some(3600), None, Some(3600), None, "U");
        check(Some(3600), None, Some(3620), None, "E");
        check(Some(3600), None, Some(-20 * 3600), None, "N");
        check(Some(3600), None, Some(-25 * 3600), None, "E");
        check(Some(3600), None, None, None, "U");
        check(None, Some(3600), None, Some(3590), "N");
        check(None, Some(3600), None, Some(3620), "O");
        check(None, Some(3600), Some(8), Some(8), "U");
        check(None, Some(3600), Some(0), None, "U");
        check(Some(600), Some(3600), Some(660), Some(700), "E");
        check(Some(600), Some(3600), Some(660), Some(3700), "O");
        check(Some(600), Some(3600), None, Some(50), "U");
    }
}
