//! What a change cost besides failed requests: kept connections, sessions, processes, memory, and what the server forgot.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::proof::words::count;
use crate::proof::{Measured, Row};
use crate::report::Report;

/// What was open while the events happened, and what was left afterwards.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HeldResult {
    /// The second load, over kept connections; `None` without one.
    pub kept: Option<Report>,
    /// WebSockets; `None` when there were none.
    pub websockets: Option<HeldSessions>,
    /// TCP connections; `None` when there were none.
    pub tunnels: Option<HeldSessions>,
    /// What the server had to keep, by name, and whether it did.
    pub keeps: BTreeMap<String, bool>,
    /// Time from the beginning of a change until new connections had it; `None` when that was not measured, or took longer than a minute.
    /// JSON: microseconds, `in_effect_us`.
    #[serde(rename = "in_effect_us", serialize_with = "maybe_micros")]
    pub in_effect: Option<Duration>,
    /// What replacing one of many certificates took; `None` when that was not asked for.
    pub certificates: Option<HeldCertificates>,
    /// The server's processes before the load.
    pub before: ProcessesSeen,
    /// Its processes `waited` after the last event.
    pub after: ProcessesSeen,
    /// JSON: microseconds, `waited_us`.
    #[serde(rename = "waited_us", serialize_with = "crate::failure::micros")]
    pub waited: Duration,
}

impl HeldResult {
    /// Whether no request over a kept connection failed, no session was cut, and nothing was forgotten.
    pub fn is_clean(&self) -> bool {
        let is_whole = |sessions: &Option<HeldSessions>| sessions.as_ref().is_none_or(|sessions| sessions.cut == 0);
        self.kept.as_ref().is_none_or(|kept| kept.failed == 0)
            && is_whole(&self.websockets)
            && is_whole(&self.tunnels)
            && self.keeps.values().all(|kept| *kept)
            && self.certificates.as_ref().is_none_or(|certificates| certificates.failed.is_none())
    }
}

/// One of many certificates, replaced on a server that was started once more with them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct HeldCertificates {
    /// How many the server had loaded.
    pub count: usize,
    /// Time from the beginning of the event, with the new certificate in its file, until a handshake showed it; `None` when `failed`. JSON:
    /// microseconds, `in_effect_us`.
    #[serde(rename = "in_effect_us", serialize_with = "maybe_micros")]
    pub in_effect: Option<Duration>,
    /// Time from the server's command that needs no event until a handshake showed another new certificate; `None` without one. JSON:
    /// microseconds, `without_event_us`.
    #[serde(rename = "without_event_us", serialize_with = "maybe_micros")]
    pub without_event: Option<Duration>,
    /// Why it was not measured, in a sentence.
    pub failed: Option<String>,
}

/// Connections that were open all the time, unless they were cut.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct HeldSessions {
    /// How many there were.
    pub opened: u64,
    /// How many the server did not accept, closed, reset or left without a response.
    pub cut: u64,
}

/// Processes of a server at a moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProcessesSeen {
    /// How many.
    pub count: usize,
    /// Their memory in KiB, pages that several share counted once (`Pss` in proc(5)); `None` when the kernel does not show it.
    pub memory_kib: Option<u64>,
}

impl ProcessesSeen {
    /// Looks at these processes now.
    pub(crate) fn of(pids: impl Iterator<Item = i32>) -> ProcessesSeen {
        let memory: Vec<Option<u64>> =
            pids.map(|pid| pss(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)).collect();
        ProcessesSeen { count: memory.len(), memory_kib: memory.into_iter().sum() }
    }
}

fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

fn maybe_micros<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => crate::failure::micros(time, serializer),
        None => serializer.serialize_none(),
    }
}

/// How good a cell is, for its colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Grade {
    /// Nothing was lost.
    Good,
    /// Something was.
    Bad,
    /// Neither: a plain figure, or nothing was measured.
    Plain,
}

/// One cell of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) grade: Grade,
}

/// The server whose rows are set apart.
const OURS: &str = "baton";

/// The number of columns after the server's.
pub(super) const COLUMNS: usize = 9;

/// The heads of the columns after the server's.
pub(super) fn heads(rows: &[HeldRow<'_>]) -> [String; COLUMNS] {
    let certificates = rows.iter().find_map(|row| row.held.certificates.as_ref());
    let many = certificates.map_or_else(|| "many".to_owned(), |certificates| count(certificates.count as u64));
    [
        "failed: connection per request",
        "failed: keep-alive",
        "WebSockets cut",
        "TCP sessions cut",
        "processes, before → after",
        "their memory",
        "state lost",
        "in effect after",
        &*format!("in effect with {many} certificates"),
    ]
    .map(str::to_owned)
}

/// The cells of a row, in the order of [`heads`].
fn cells(measured: &Measured, held: &HeldResult) -> [Cell; COLUMNS] {
    let lost = |lost: u64, all: u64| Cell {
        text: format!("{} of {}", count(lost), count(all)),
        grade: if lost == 0 { Grade::Good } else { Grade::Bad },
    };
    let nothing = || Cell { text: "–".into(), grade: Grade::Plain };
    let sessions = |sessions: &Option<HeldSessions>| match sessions {
        Some(sessions) => lost(sessions.cut, sessions.opened),
        None => nothing(),
    };
    let forgotten: Vec<&str> = held.keeps.iter().filter(|(_, kept)| !**kept).map(|(name, _)| name.as_str()).collect();
    let (before, after) = (&held.before, &held.after);
    let processes = Cell {
        text: format!("{} → {}", before.count, after.count),
        grade: if after.count > before.count { Grade::Bad } else { Grade::Good },
    };
    let megabytes = |kib: u64| kib as f64 * 1.024 / 1000.0;
    let memory = before.memory_kib.zip(after.memory_kib).map_or_else(nothing, |(before, after)| Cell {
        text: format!("{:.0} → {:.0} MB", megabytes(before), megabytes(after)),
        grade: Grade::Plain,
    });
    [
        lost(measured.report.failed, measured.report.requests),
        held.kept.as_ref().map_or_else(nothing, |kept| lost(kept.failed, kept.requests)),
        sessions(&held.websockets),
        sessions(&held.tunnels),
        processes,
        memory,
        match (held.keeps.is_empty(), forgotten.is_empty()) {
            (true, _) => nothing(),
            (false, true) => Cell { text: "nothing".into(), grade: Grade::Good },
            (false, false) => Cell { text: forgotten.join(", "), grade: Grade::Bad },
        },
        held.in_effect.map_or_else(nothing, |time| Cell { text: seconds(time), grade: Grade::Plain }),
        match &held.certificates {
            Some(HeldCertificates { in_effect: Some(time), .. }) => Cell { text: seconds(*time), grade: Grade::Plain },
            Some(_) => Cell { text: "failed".into(), grade: Grade::Bad },
            None => nothing(),
        },
    ]
}

/// A time as people compare it: `12 ms`, `3.4 s`.
pub(super) fn seconds(time: Duration) -> String {
    match time.as_millis() {
        milliseconds @ 0..1000 => format!("{milliseconds} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// One line of the table.
pub(super) struct HeldRow<'a> {
    /// `haproxy 2.6.12, -Ws, SIGUSR2`: the server without what tells its rows apart, its version without Debian's part, and what was done.
    pub(super) label: String,
    pub(super) held: &'a HeldResult,
    pub(super) cells: [Cell; COLUMNS],
    /// Whether it is one of Baton's, which are set apart.
    pub(super) is_ours: bool,
}

/// The rows whose experiment looked, Baton's last.
pub(super) fn rows(rows: &[Row]) -> Vec<HeldRow<'_>> {
    let mut found: Vec<HeldRow<'_>> = rows.iter().filter_map(held_row).collect();
    found.sort_by_key(|row| row.is_ours);
    found
}

fn held_row(row: &Row) -> Option<HeldRow<'_>> {
    let measured = row.measured()?;
    let held = measured.held.as_ref()?;
    let server = row.server.split('-').next().unwrap_or_default();
    let version = row.version.split(['-', '+']).next().unwrap_or_default();
    let what = measured.events.first().map_or("", |event| &*event.what);
    let parts =
        [server, if version.is_empty() { "" } else { " " }, version, if what.is_empty() { "" } else { ", " }, what];
    Some(HeldRow { label: parts.concat(), held, cells: cells(measured, held), is_ours: server == OURS })
}
