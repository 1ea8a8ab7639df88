//! Numbers with a unit in rules: times and sizes (configuration manual 2.5).

use std::time::Duration;

use crate::problem::RuleError;

/// A number of milliseconds, or of another unit that follows it.
pub(crate) fn time(text: &str) -> Result<Duration, RuleError> {
    let (digits, unit) = number_and_unit(text);
    let unit_us: u64 = match unit {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        unit => return Err(RuleError::new(format!("unknown time unit '{unit}'")).hint("use us, ms, s, m, h or d")),
    };
    let us = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_us));
    us.map(Duration::from_micros).ok_or_else(|| RuleError::new(format!("invalid time '{text}'")))
}

/// A number of bytes, or of kilobytes, megabytes or gigabytes.
pub(crate) fn size(text: &str) -> Result<u64, RuleError> {
    let (digits, unit) = number_and_unit(text);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        unit => return Err(RuleError::new(format!("unknown size unit '{unit}'")).hint("use k, m or g, or no unit")),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.ok_or_else(|| RuleError::new(format!("invalid size '{text}'")))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let check = |text: &str, ms: Option<u64>, bytes: Option<u64>| {
            assert_eq!((time(text).ok(), size(text).ok()), (ms.map(Duration::from_millis), bytes), "{text}");
        };
        check("5", Some(5), Some(5));
        check("5s", Some(5_000), None);
        check("1m", Some(60_000), Some(1 << 20));
        check("2k", None, Some(2048));
        check("1d", Some(86_400_000), None);
        for invalid in ["", "x", "-1", "1x", "99999999999999999999", "9223372036854775807g", "1 "] {
            check(invalid, None, None);
        }
    }
}
