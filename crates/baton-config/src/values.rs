//! Times, sizes and numbers (configuration manual, 2.5).

use std::time::Duration;

/// The longest time that can be written, as in HAProxy: a signed 32-bit number of milliseconds.
pub const MAX_TIME: Duration = Duration::from_millis(i32::MAX as u64);

/// A text that is no time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TimeError {
    /// A character that does not belong there.
    Character(char),
    /// Longer than [`MAX_TIME`].
    Overflow,
    /// No digits.
    Empty,
}

/// Units of a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Milliseconds, the usual default.
    Ms,
    /// Seconds.
    Seconds,
}

/// A time with an optional unit. Microseconds are rounded up to the next millisecond, the precision of all timeouts.
/// The second value is what follows the unit, which HAProxy 2.6 only warns about.
pub fn time(text: &str, default: Unit) -> Result<(Duration, &str), TimeError> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    if digits == 0 {
        return Err(text.chars().next().map_or(TimeError::Empty, TimeError::Character));
    }
    let (number, unit) = text.split_at(digits);
    // A number of more digits than u64 holds overflows any unit.
    let number: u64 = number.parse().map_err(|_| TimeError::Overflow)?;
    let units: [(&str, u64); 6] =
        [("us", 1), ("ms", 1000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];
    let (us, rest) = match units.iter().find_map(|(name, us)| unit.strip_prefix(name).map(|rest| (*us, rest))) {
        Some(found) => found,
        None if unit.is_empty() && default == Unit::Ms => (1000, ""),
        None if unit.is_empty() => (1_000_000, ""),
        None => return Err(TimeError::Character(unit.chars().next().unwrap_or_default())),
    };
    let total = number.checked_mul(us).ok_or(TimeError::Overflow)?.div_ceil(1000);
    let value = Duration::from_millis(total);
    if value > MAX_TIME { Err(TimeError::Overflow) } else { Ok((value, rest)) }
}

/// A size in bytes with an optional `k`, `m` or `g`. `None` when it is none or too large.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match &text[digits..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let shown = match time(text, Unit::Ms) {
            Ok((value, "")) => format!("{}ms", value.as_millis()),
            Ok((value, rest)) => format!("{}ms and '{rest}'", value.as_millis()),
            Err(fault) => format!("{fault:?}"),
        };
        assert_eq!(shown, expect, "{text}");
    }

    #[test]
    fn times() {
        check("5", "5ms");
        check("5s", "5000ms");
        check("1us", "1ms");
        check("2001us", "3ms");
        check("24d", "2073600000ms");
        check("25d", "Overflow");
        check("99999999999999999999999999", "Overflow");
        check("2s2", "2000ms and '2'");
        check("5x", "Character('x')");
        check("-1", "Character('-')");
        check("us", "Character('u')");
        check("", "Empty");
        assert_eq!(time("5", Unit::Seconds), Ok((Duration::from_secs(5), "")));
    }

    #[test]
    fn sizes() {
        assert_eq!(size("16k"), Some(16384));
        assert_eq!(size("3"), Some(3));
        assert_eq!(size("1g"), Some(1 << 30));
        assert_eq!(size("x"), None);
        assert_eq!(size("1t"), None);
        assert_eq!(size("99999999999999999999"), None);
    }
}
