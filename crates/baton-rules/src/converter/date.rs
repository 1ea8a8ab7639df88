//! Dates as text (configuration manual 7.3.1): for HTTP, and by the formats of strftime(3) in the C locale.
//!
//! As in HAProxy, 55 bits of a date count, and years have as many digits as they need.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::sample::{Sample, Type};

const FORMAT: &[Arg] = &[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Int)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "http_date",
        Type::Int,
        Type::Str,
        http_date,
        "The date for a header field, after an offset in s, ms or us.",
    )
    .args(&[Arg::opt(ArgKind::Int), Arg::opt(ArgKind::Word(&["s", "ms", "us"]))]),
    Converter::new(
        "utime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1, false),
        "The date by a format of strftime(3), UTC.",
    )
    .args(FORMAT),
    Converter::new(
        "ltime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1, true),
        "The date by a format of strftime(3), local time.",
    )
    .args(FORMAT),
    Converter::new(
        "ms_utime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1_000, false),
        "utime of milliseconds; %N is the fraction.",
    )
    .args(FORMAT),
    Converter::new(
        "ms_ltime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1_000, true),
        "ltime of milliseconds; %N is the fraction.",
    )
    .args(FORMAT),
    Converter::new(
        "us_utime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1_000_000, false),
        "utime of microseconds; %N is the fraction.",
    )
    .args(FORMAT),
    Converter::new(
        "us_ltime",
        Type::Int,
        Type::Str,
        |s, a, _| formatted(s, a, 1_000_000, true),
        "ltime of microseconds; %N is the fraction.",
    )
    .args(FORMAT),
];

/// The bits of a date that count.
const DATE_BITS: i64 = (1 << 55) - 1;

/// The longest text that a format gives, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

const DAY: i64 = 86_400;

/// The days of 400 years, after which the calendar repeats.
const CYCLE_DAYS: i64 = 146_097;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A date and time of day.
struct Civil {
    year: i64,
    /// From 1.
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// From Sunday, 0.
    weekday: i64,
    /// From 0.
    day_of_year: i64,
}

impl Civil {
    /// `seconds` since 1970, without a time zone (Howard Hinnant's algorithm for days).
    fn of(seconds: i64) -> Civil {
        let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(CYCLE_DAYS), shifted.rem_euclid(CYCLE_DAYS));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * from_march + 2) / 153;
        let day = from_march - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][(month - 1) as usize];
        Civil {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: before + day - 1 + i64::from(leap && month > 2),
        }
    }

    /// The week of the year, counted from the first day that is `first` (0: Sunday).
    fn week(&self, first: i64) -> i64 {
        (self.day_of_year + 7 - (self.weekday - first).rem_euclid(7)) / 7
    }

    /// The year and week of ISO 8601.
    fn iso_week(&self) -> (i64, i64) {
        let days_in = |year: i64| 365 + i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        // The Thursday of this week says to which year it belongs.
        let thursday = self.day_of_year + 3 - (self.weekday + 6) % 7;
        match thursday {
            ..0 => (self.year - 1, (thursday + days_in(self.year - 1)) / 7 + 1),
            day if day >= days_in(self.year) => (self.year + 1, (day - days_in(self.year)) / 7 + 1),
            day => (self.year, day / 7 + 1),
        }
    }
}

fn http_date<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let value = sample.into_int()?.wrapping_add(args[0].int().unwrap_or(0));
    // As in HAProxy, the fraction has no zeros in front.
    let (seconds, fraction) = match args[1].bytes() {
        b"ms" => (value / 1_000, format!(".{}", value % 1_000)),
        b"us" => (value / 1_000_000, format!(".{}", value % 1_000_000)),
        _ => (value, String::new()),
    };
    let date = Civil::of(seconds & DATE_BITS);
    let text = format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02}{fraction} GMT",
        &WEEKDAYS[date.weekday as usize][..3],
        date.day,
        &MONTHS[(date.month - 1) as usize][..3],
        date.year,
        date.hour,
        date.minute,
        date.second,
    );
    Some(Sample::Str(Cow::Owned(text.into_bytes())))
}

fn formatted<'c>(sample: Sample<'c>, args: &'c [Value], unit: i64, local: bool) -> Option<Sample<'c>> {
    let value = (sample.into_int()? & DATE_BITS).wrapping_add(args[1].int().unwrap_or(0));
    let (seconds, fraction) = (value.div_euclid(unit), value.rem_euclid(unit));
    let zone = if local { Zone::local(seconds) } else { Zone { offset: 0, name: "GMT".into() } };
    let moment = Moment { seconds, date: Civil::of(seconds + zone.offset), zone, fraction, unit };
    let mut out = Vec::new();
    moment.format(args[0].bytes(), &mut out);
    (out.len() <= TEXT_BYTES_MAX).then_some(Sample::Str(Cow::Owned(out)))
}

/// A time zone at a moment.
struct Zone {
    /// Seconds east of Greenwich.
    offset: i64,
    name: String,
}

impl Zone {
    fn local(seconds: i64) -> Zone {
        // Far away years are taken for the ones of the same place in the calendar's cycle.
        const YEAR_2400: i64 = 13_569_465_600;
        let cycle = CYCLE_DAYS * DAY;
        let near = if seconds < YEAR_2400 { seconds } else { YEAR_2400 - cycle + (seconds - YEAR_2400) % cycle };
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        let Ok(moment) = Timestamp::from_second(near) else { return Zone { offset: 0, name: "UTC".into() } };
        let info = zone.to_offset_info(moment);
        Zone { offset: info.offset().seconds().into(), name: info.abbreviation().to_owned() }
    }
}

struct Moment {
    seconds: i64,
    date: Civil,
    zone: Zone,
    fraction: i64,
    unit: i64,
}

/// What stands between `%` and the letter.
#[derive(Clone, Copy, Default)]
struct Flags {
    /// `_`, `0` or `-`.
    pad: Option<u8>,
    upper: bool,
    swap: bool,
    width: usize,
}

impl Moment {
    fn format(&self, format: &[u8], out: &mut Vec<u8>) {
        let mut rest = format;
        while let Some(at) = memchr::memchr(b'%', rest) {
            out.extend_from_slice(&rest[..at]);
            let mut behind = &rest[at + 1..];
            let mut flags = Flags::default();
            while let [flag @ (b'_' | b'-' | b'0' | b'^' | b'#'), more @ ..] = behind {
                match flag {
                    b'^' => flags.upper = true,
                    b'#' => flags.swap = true,
                    pad => flags.pad = Some(*pad),
                }
                behind = more;
            }
            while let [digit @ b'0'..=b'9', more @ ..] = behind {
                flags.width = (flags.width * 10 + usize::from(digit - b'0')).min(TEXT_BYTES_MAX);
                behind = more;
            }
            if let [b'E' | b'O', more @ ..] = behind {
                behind = more;
            }
            let known = behind.first().is_some_and(|&letter| self.one(letter, flags, out));
            if !known {
                let end = rest.len() - behind.len() + usize::from(!behind.is_empty());
                out.extend_from_slice(&rest[at..end]);
            }
            rest = behind.get(1..).unwrap_or_default();
            if out.len() > TEXT_BYTES_MAX {
                return;
            }
        }
        out.extend_from_slice(rest);
    }

    /// One conversion; false when there is none of that letter.
    fn one(&self, letter: u8, flags: Flags, out: &mut Vec<u8>) -> bool {
        let date = &self.date;
        let twelve = (date.hour + 11) % 12 + 1;
        let weekday = WEEKDAYS[date.weekday as usize];
        let month = MONTHS[(date.month - 1) as usize];
        let half = if date.hour < 12 { "AM" } else { "PM" };
        let mut number = |value: i64, digits: usize, pad: u8| padded(&value.to_string(), digits, flags, pad, out);
        match letter {
            b'd' => number(date.day, 2, b'0'),
            b'e' => number(date.day, 2, b'_'),
            b'H' => number(date.hour, 2, b'0'),
            b'I' => number(twelve, 2, b'0'),
            b'k' => number(date.hour, 2, b'_'),
            b'l' => number(twelve, 2, b'_'),
            b'j' => number(date.day_of_year + 1, 3, b'0'),
            b'm' => number(date.month, 2, b'0'),
            b'M' => number(date.minute, 2, b'0'),
            b'S' => number(date.second, 2, b'0'),
            b's' => number(self.seconds, 1, b'_'),
            b'u' => number((date.weekday + 6) % 7 + 1, 1, b'0'),
            b'w' => number(date.weekday, 1, b'0'),
            b'U' => number(date.week(0), 2, b'0'),
            b'W' => number(date.week(1), 2, b'0'),
            b'V' => number(date.iso_week().1, 2, b'0'),
            b'g' => number(date.iso_week().0.rem_euclid(100), 2, b'0'),
            b'G' => number(date.iso_week().0, 1, b'0'),
            b'C' => number(date.year.div_euclid(100), 1, b'0'),
            b'y' => number(date.year.rem_euclid(100), 2, b'0'),
            b'Y' => number(date.year, 1, b'0'),
            b'N' if self.unit > 1 => {
                let digits = if self.unit == 1_000 { 3 } else { 6 };
                number(self.fraction, digits, b'0');
            }
            b'a' => text(&weekday[..3], flags, out),
            b'A' => text(weekday, flags, out),
            b'b' | b'h' => text(&month[..3], flags, out),
            b'B' => text(month, flags, out),
            b'p' if flags.swap => text(&half.to_lowercase(), Flags { swap: false, ..flags }, out),
            b'p' => text(half, flags, out),
            b'P' => text(&half.to_lowercase(), Flags { upper: false, swap: false, ..flags }, out),
            b'Z' if flags.swap => text(&self.zone.name.to_lowercase(), Flags { swap: false, ..flags }, out),
            b'Z' => text(&self.zone.name, flags, out),
            b'z' => {
                let (sign, minutes) = (if self.zone.offset < 0 { '-' } else { '+' }, self.zone.offset.abs() / 60);
                let digits = format!("{:02}{:02}", minutes / 60, minutes % 60);
                text(&format!("{sign}{digits}"), Flags { swap: false, ..flags }, out);
            }
            b'n' => text("\n", flags, out),
            b't' => text("\t", flags, out),
            b'%' => text("%", flags, out),
            b'c' => self.several(b"%a %b %e %H:%M:%S %Y", flags, out),
            b'D' | b'x' => self.several(b"%m/%d/%y", flags, out),
            b'F' => self.several(b"%Y-%m-%d", flags, out),
            b'r' => self.several(b"%I:%M:%S %p", flags, out),
            b'R' => self.several(b"%H:%M", flags, out),
            b'T' | b'X' => self.several(b"%H:%M:%S", flags, out),
            _ => return false,
        }
        true
    }

    fn several(&self, format: &[u8], flags: Flags, out: &mut Vec<u8>) {
        let mut inner = Vec::new();
        self.format(format, &mut inner);
        text(&String::from_utf8_lossy(&inner), flags, out);
    }
}

fn padded(number: &str, digits: usize, flags: Flags, pad: u8, out: &mut Vec<u8>) {
    let (wanted, fill) = match flags.pad.unwrap_or(pad) {
        b'-' => (flags.width, b' '),
        b'_' => (flags.width.max(digits), b' '),
        _ => (flags.width.max(digits), b'0'),
    };
    out.resize(out.len() + wanted.saturating_sub(number.len()), fill);
    out.extend_from_slice(number.as_bytes());
}

fn text(text: &str, flags: Flags, out: &mut Vec<u8>) {
    let fill = if flags.pad == Some(b'0') { b'0' } else { b' ' };
    out.resize(out.len() + flags.width.saturating_sub(text.len()), fill);
    match flags.upper || flags.swap {
        true => out.extend_from_slice(text.to_uppercase().as_bytes()),
        false => out.extend_from_slice(text.as_bytes()),
    }
}
