//! Times and whole numbers as people write them, on a command line or in a file.

use std::time::Duration;

/// The longest time that can be written.
pub const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A time: `20`, `1.5s`, `200ms`, `50us`, `2m`, `1h`. A number alone is seconds.
///
/// # Errors
/// What is wrong with it.
pub fn time(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be us, ms, s, m or h".into()),
    };
    let number: f64 = number.parse().map_err(|_| "expected a number with a unit such as ms, s or m".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(Duration::ZERO) => Err("it must be longer than 0".into()),
        Ok(time) if time <= TIME_MAX => Ok(time),
        _ => Err("at most 30 days".into()),
    }
}

/// A number above 0, also as `10k` or `2M`.
///
/// # Errors
/// What is wrong with it.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a whole number, such as 500, 10k or 1M".to_owned())?;
    match number.checked_mul(factor) {
        Some(0) => Err("it must be at least 1".into()),
        Some(number) => Ok(number),
        None => Err("it is too large".into()),
    }
}

/// So many a second, also as `0.5` or `10k`.
///
/// # Errors
/// What is wrong with it.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number * factor),
        _ => Err("expected a number above 0, such as 0.5, 1000 or 10k".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let check = |text: &str, expect: Result<u64, &str>| {
            assert_eq!(time(text), expect.map(Duration::from_micros).map_err(str::to_owned), "{text}");
        };
        check("20", Ok(20_000_000));
        check("1.5s", Ok(1_500_000));
        check("200ms", Ok(200_000));
        check("50us", Ok(50));
        check("2m", Ok(120_000_000));
        check("720h", Ok(2_592_000_000_000));
        check("721h", Err("at most 30 days"));
        check("-5", Err("at most 30 days"));
        check("0", Err("it must be longer than 0"));
        check("5d", Err("the unit must be us, ms, s, m or h"));
        check("NaN", Err("the unit must be us, ms, s, m or h"));
        check("s", Err("expected a number with a unit such as ms, s or m"));
    }

    #[test]
    fn counts_may_be_short() {
        let check = |text: &str, expect: Result<u64, &str>| {
            assert_eq!(count(text), expect.map_err(str::to_owned), "{text}");
        };
        check("1", Ok(1));
        check("10k", Ok(10_000));
        check("2M", Ok(2_000_000));
        check("0", Err("it must be at least 1"));
        check("0k", Err("it must be at least 1"));
        check("18446744073709551615k", Err("it is too large"));
        check("1.5", Err("expected a whole number, such as 500, 10k or 1M"));
        check("-1", Err("expected a whole number, such as 500, 10k or 1M"));
        check("é", Err("expected a whole number, such as 500, 10k or 1M"));
    }

    #[test]
    fn rates_may_be_short_and_broken() {
        assert_eq!([rate("0.5"), rate("1000"), rate("1.5k"), rate("2M")], [0.5, 1e3, 1.5e3, 2e6].map(Ok));
        for wrong in ["0", "-1", "NaN", "inf", "k", "", "1/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
