//! Dates of log lines, computed once a second.

use std::cell::RefCell;
use std::time::SystemTime;

use baton_rules::DateSpelling;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The local time of a second, in the spellings of log lines.
#[derive(Clone, Debug, Default)]
struct Second {
    unix: i64,
    /// `21/Nov/2026:03:42:51`
    http: String,
    /// `21/Nov/2026:02:42:51`, in universal time.
    gmt: String,
    /// `Nov 21 03:42:51`
    syslog: String,
    /// `2026-11-21T03:42:51`
    iso: String,
    /// `+00:00`
    offset: String,
    /// `+0000`
    clf_offset: String,
}

/// Spells instants; keeps the last second used by each caller's core.
#[derive(Debug)]
pub struct Dates {
    zone: TimeZone,
    last: RefCell<Second>,
}

impl Default for Dates {
    fn default() -> Self {
        Dates { zone: TimeZone::system(), last: RefCell::new(Second { unix: i64::MIN, ..Second::default() }) }
    }
}

impl Dates {
    /// A date as formats want it.
    pub fn write(&self, time: SystemTime, spelling: DateSpelling, out: &mut Vec<u8>) {
        match spelling {
            DateSpelling::Milliseconds => self.http(time, out),
            DateSpelling::Gmt => self.gmt(time, out),
            DateSpelling::Local => self.clf(time, out),
        }
    }

    /// `21/Nov/2026:03:42:51.123`
    pub fn http(&self, time: SystemTime, out: &mut Vec<u8>) {
        let millis = self.at(time, |second| out.extend_from_slice(second.http.as_bytes()));
        push_millis(millis, out);
    }

    /// `21/Nov/2026:03:42:51 +0000`, in universal time.
    pub fn gmt(&self, time: SystemTime, out: &mut Vec<u8>) {
        self.at(time, |second| {
            out.extend_from_slice(second.gmt.as_bytes());
            out.extend_from_slice(b" +0000");
        });
    }

    /// `21/Nov/2026:03:42:51 +0000`, the common log format's.
    pub fn clf(&self, time: SystemTime, out: &mut Vec<u8>) {
        self.at(time, |second| {
            out.extend_from_slice(second.http.as_bytes());
            out.push(b' ');
            out.extend_from_slice(second.clf_offset.as_bytes());
        });
    }

    /// `Nov 21 03:42:51` (RFC 3164 4.1.2).
    pub fn syslog(&self, time: SystemTime, out: &mut Vec<u8>) {
        self.at(time, |second| out.extend_from_slice(second.syslog.as_bytes()));
    }

    /// `2026-11-21T03:42:51.123456+00:00` (RFC 5424 6.2.3).
    pub fn iso(&self, time: SystemTime, out: &mut Vec<u8>) {
        let micros = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
        self.at(time, |second| {
            out.extend_from_slice(format!("{}.{micros:06}{}", second.iso, second.offset).as_bytes());
        });
    }

    /// Calls `write` with the spelled second; gives the milliseconds after it.
    fn at(&self, time: SystemTime, write: impl FnOnce(&Second)) -> u32 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix = i64::try_from(since.as_secs()).unwrap_or(0);
        let mut last = self.last.borrow_mut();
        if last.unix != unix {
            *last = self.spell(unix);
        }
        write(&last);
        since.subsec_millis()
    }

    fn spell(&self, unix: i64) -> Second {
        let time = Timestamp::from_second(unix).unwrap_or(Timestamp::UNIX_EPOCH);
        let (utc, local) = (time.to_zoned(TimeZone::UTC), time.to_zoned(self.zone.clone()));
        let show = |format: &str| local.strftime(format).to_string();
        Second {
            unix,
            http: show("%d/%b/%Y:%H:%M:%S"),
            gmt: utc.strftime("%d/%b/%Y:%H:%M:%S").to_string(),
            syslog: show("%b %e %H:%M:%S"),
            iso: show("%Y-%m-%dT%H:%M:%S"),
            offset: show("%:z"),
            clf_offset: show("%z"),
        }
    }
}

fn push_millis(millis: u32, out: &mut Vec<u8>) {
    let digit = |value: u32| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[b'.', digit(millis / 100), digit(millis / 10), digit(millis)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_day_below_ten_is_padded_as_each_format_wants() {
        let dates = Dates { zone: TimeZone::UTC, ..Dates::default() };
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_668_800_007);
        let show = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).expect("dates are ASCII")
        };
        assert_eq!(show(&|out| dates.http(time, out)), "05/Mar/2026:00:00:00.007");
        assert_eq!(show(&|out| dates.syslog(time, out)), "Mar  5 00:00:00");
        assert_eq!(show(&|out| dates.clf(time, out)), "05/Mar/2026:00:00:00 +0000");
        assert_eq!(show(&|out| dates.iso(time, out)), "2026-03-05T00:00:00.007000+00:00");
    }
}
