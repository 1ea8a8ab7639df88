//! Fetches about entries of stick tables that are tracked (configuration manual 7.3.3, `sc_conn_cnt` and its likes).

use baton_model::DataType;
use baton_tables::{Now, Tracked};

use super::{Fetch, FetchFn};
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};
use crate::stored::{StoredNumber, increment, index};

/// `sc0_NAME`, `sc1_NAME`, `sc2_NAME` with a table, and `sc_NAME` with the number of a counter in front of it.
macro_rules! rows {
    ($sc:literal $sc0:literal $sc1:literal $sc2:literal, $gives:expr, $read:expr, $doc:literal) => {
        [
            Fetch::new(&[$sc], $gives, FetchNeeds::NOTHING, |cx, args| $read(cx, number(&args[0]), &args[1]), $doc)
                .args(&[Arg::req(ArgKind::Int), Arg::opt(ArgKind::OtherTable)]),
            Fetch::new(&[$sc0], $gives, FetchNeeds::NOTHING, |cx, args| $read(cx, 0, &args[0]), $doc)
                .args(&[Arg::opt(ArgKind::OtherTable)]),
            Fetch::new(&[$sc1], $gives, FetchNeeds::NOTHING, |cx, args| $read(cx, 1, &args[0]), $doc)
                .args(&[Arg::opt(ArgKind::OtherTable)]),
            Fetch::new(&[$sc2], $gives, FetchNeeds::NOTHING, |cx, args| $read(cx, 2, &args[0]), $doc)
                .args(&[Arg::opt(ArgKind::OtherTable)]),
        ]
    };
}

/// The rows of a number that is stored by one name.
macro_rules! numbers {
    ($($sc:literal $sc0:literal $sc1:literal $sc2:literal $stored:expr, $doc:literal;)*) => {
        &[$(rows!($sc $sc0 $sc1 $sc2, Type::Int, |cx, counter, table| stored(cx, counter, table, $stored), $doc)),*]
    };
}

const fn of(data: DataType) -> StoredNumber {
    StoredNumber::of(data)
}

const NUMBERS: &[[Fetch; 4]] = numbers! {
    "sc_conn_cnt" "sc0_conn_cnt" "sc1_conn_cnt" "sc2_conn_cnt" of(DataType::ConnCnt),
        "Connections of the tracked entry.";
    "sc_conn_cur" "sc0_conn_cur" "sc1_conn_cur" "sc2_conn_cur" of(DataType::ConnCur),
        "Current connections of the tracked entry.";
    "sc_conn_rate" "sc0_conn_rate" "sc1_conn_rate" "sc2_conn_rate" of(DataType::ConnRate),
        "Connections of the tracked entry over its period.";
    "sc_sess_cnt" "sc0_sess_cnt" "sc1_sess_cnt" "sc2_sess_cnt" of(DataType::SessCnt),
        "Sessions of the tracked entry.";
    "sc_sess_rate" "sc0_sess_rate" "sc1_sess_rate" "sc2_sess_rate" of(DataType::SessRate),
        "Sessions of the tracked entry over its period.";
    "sc_http_req_cnt" "sc0_http_req_cnt" "sc1_http_req_cnt" "sc2_http_req_cnt" of(DataType::HttpReqCnt),
        "Requests of the tracked entry.";
    "sc_http_req_rate" "sc0_http_req_rate" "sc1_http_req_rate" "sc2_http_req_rate" of(DataType::HttpReqRate),
        "Requests of the tracked entry over its period.";
    "sc_http_err_cnt" "sc0_http_err_cnt" "sc1_http_err_cnt" "sc2_http_err_cnt" of(DataType::HttpErrCnt),
        "Requests of the tracked entry that failed through the client.";
    "sc_http_err_rate" "sc0_http_err_rate" "sc1_http_err_rate" "sc2_http_err_rate" of(DataType::HttpErrRate),
        "Requests of the tracked entry that failed through the client, over its period.";
    "sc_http_fail_cnt" "sc0_http_fail_cnt" "sc1_http_fail_cnt" "sc2_http_fail_cnt" of(DataType::HttpFailCnt),
        "Requests of the tracked entry that failed through the server.";
    "sc_http_fail_rate" "sc0_http_fail_rate" "sc1_http_fail_rate" "sc2_http_fail_rate" of(DataType::HttpFailRate),
        "Requests of the tracked entry that failed through the server, over its period.";
    "sc_bytes_in_rate" "sc0_bytes_in_rate" "sc1_bytes_in_rate" "sc2_bytes_in_rate" of(DataType::BytesInRate),
        "Bytes from clients of the tracked entry over its period.";
    "sc_bytes_out_rate" "sc0_bytes_out_rate" "sc1_bytes_out_rate" "sc2_bytes_out_rate" of(DataType::BytesOutRate),
        "Bytes to clients of the tracked entry over its period.";
    "sc_get_gpt0" "sc0_get_gpt0" "sc1_get_gpt0" "sc2_get_gpt0" StoredNumber::GPT0,
        "First general purpose tag of the tracked entry.";
    "sc_get_gpc0" "sc0_get_gpc0" "sc1_get_gpc0" "sc2_get_gpc0" StoredNumber::GPC0,
        "First general purpose counter of the tracked entry.";
    "sc_get_gpc1" "sc0_get_gpc1" "sc1_get_gpc1" "sc2_get_gpc1" StoredNumber::GPC1,
        "Second general purpose counter of the tracked entry.";
    "sc_gpc0_rate" "sc0_gpc0_rate" "sc1_gpc0_rate" "sc2_gpc0_rate" StoredNumber::GPC0_RATE,
        "Increments of the first general purpose counter of the tracked entry over its period.";
    "sc_gpc1_rate" "sc0_gpc1_rate" "sc1_gpc1_rate" "sc2_gpc1_rate" StoredNumber::GPC1_RATE,
        "Increments of the second general purpose counter of the tracked entry over its period.";
    "sc_glitch_cnt" "sc0_glitch_cnt" "sc1_glitch_cnt" "sc2_glitch_cnt" of(DataType::GlitchCnt),
        "Protocol errors of the tracked entry that were no failures (as in HAProxy 3.0).";
    "sc_glitch_rate" "sc0_glitch_rate" "sc1_glitch_rate" "sc2_glitch_rate" of(DataType::GlitchRate),
        "Protocol errors of the tracked entry that were no failures, over its period (as in HAProxy 3.0).";
};

const OTHERS: &[[Fetch; 4]] = &[
    rows!("sc_kbytes_in" "sc0_kbytes_in" "sc1_kbytes_in" "sc2_kbytes_in", Type::Int,
        |cx, counter, table| kilobytes(cx, counter, table, DataType::BytesInCnt),
        "Kilobytes from clients of the tracked entry."),
    rows!("sc_kbytes_out" "sc0_kbytes_out" "sc1_kbytes_out" "sc2_kbytes_out", Type::Int,
        |cx, counter, table| kilobytes(cx, counter, table, DataType::BytesOutCnt),
        "Kilobytes to clients of the tracked entry."),
    rows!("sc_inc_gpc0" "sc0_inc_gpc0" "sc1_inc_gpc0" "sc2_inc_gpc0", Type::Int,
        |cx, counter, table| incremented(cx, counter, table, (StoredNumber::GPC0, StoredNumber::GPC0_RATE)),
        "Increments the first general purpose counter of the tracked entry, and gives its value."),
    rows!("sc_inc_gpc1" "sc0_inc_gpc1" "sc1_inc_gpc1" "sc2_inc_gpc1", Type::Int,
        |cx, counter, table| incremented(cx, counter, table, (StoredNumber::GPC1, StoredNumber::GPC1_RATE)),
        "Increments the second general purpose counter of the tracked entry, and gives its value."),
    rows!("sc_clr_gpc0" "sc0_clr_gpc0" "sc1_clr_gpc0" "sc2_clr_gpc0", Type::Int,
        |cx, counter, table| cleared(cx, counter, table, StoredNumber::GPC0),
        "Clears the first general purpose counter of the tracked entry, and gives the value that it had."),
    rows!("sc_clr_gpc1" "sc0_clr_gpc1" "sc1_clr_gpc1" "sc2_clr_gpc1", Type::Int,
        |cx, counter, table| cleared(cx, counter, table, StoredNumber::GPC1),
        "Clears the second general purpose counter of the tracked entry, and gives the value that it had."),
    rows!("sc_tracked" "sc0_tracked" "sc1_tracked" "sc2_tracked", Type::Bool, is_tracked,
        "Whether the counter tracks an entry."),
    rows!("sc_trackers" "sc0_trackers" "sc1_trackers" "sc2_trackers", Type::Int,
        |cx, counter, table| of_entry(cx, counter, table, |entry, _| Some(u64::from(entry.references()))),
        "Connections and requests that track the entry now."),
];

/// Elements of arrays.
const ELEMENTS: &[Fetch] = &[
    element(
        &["sc_get_gpt"],
        |cx, args| of_element(cx, args, |entry, index, now| entry.get(DataType::Gpt, index, now)),
        "A general purpose tag of the tracked entry.",
    ),
    element(
        &["sc_get_gpc"],
        |cx, args| of_element(cx, args, |entry, index, now| entry.get(DataType::Gpc, index, now)),
        "A general purpose counter of the tracked entry.",
    ),
    element(
        &["sc_gpc_rate"],
        |cx, args| of_element(cx, args, |entry, index, now| entry.get(DataType::GpcRate, index, now)),
        "Increments of a general purpose counter of the tracked entry over its period.",
    ),
    element(
        &["sc_inc_gpc"],
        |cx, args| {
            of_element(cx, args, |entry, index, now| {
                let is_there = entry.has(DataType::Gpc) || entry.has(DataType::GpcRate);
                is_there.then(|| increment(entry, (DataType::Gpc, index), (DataType::GpcRate, index), now))
            })
        },
        "Increments a general purpose counter of the tracked entry, and gives its value.",
    ),
    element(
        &["sc_clr_gpc"],
        |cx, args| of_element(cx, args, |entry, index, now| entry.clear(DataType::Gpc, index, now)),
        "Clears a general purpose counter of the tracked entry, and gives the value that it had.",
    ),
    // HAProxy has this one alone of its kind, beside the manual.
    Fetch::new(
        &["sc1_clr_gpc"],
        Type::Int,
        FetchNeeds::NOTHING,
        |cx, args| {
            let at = index(args[0].int());
            of_entry(cx, 1, &args[1], |entry, now| entry.clear(DataType::Gpc, at, now))
        },
        "Clears a general purpose counter of the entry that counter 1 tracks, and gives the value that it had.",
    )
    .args(&[Arg::req(ArgKind::Int), Arg::opt(ArgKind::OtherTable)]),
];

pub(super) const ROWS: [&[Fetch]; 3] = [NUMBERS.as_flattened(), OTHERS.as_flattened(), ELEMENTS];

const fn element(names: &'static [&'static str], eval: FetchFn, doc: &'static str) -> Fetch {
    const ARGS: &[Arg] = &[Arg::req(ArgKind::Int), Arg::req(ArgKind::Int), Arg::opt(ArgKind::OtherTable)];
    Fetch::new(names, Type::Int, FetchNeeds::NOTHING, eval, doc).args(ARGS)
}

/// The number of a counter; one that there is not tracks nothing.
fn number(counter: &Value) -> u8 {
    index(counter.int())
}

/// What is read of the entry that a counter tracks, or of the entry with the same key in another table. `None`: it tracks nothing.
fn found<T>(cx: &Context<'_>, counter: u8, table: &Value, read: impl FnOnce(Option<&Tracked>, Now) -> T) -> Option<T> {
    let entry = cx.tracked.get(counter)?;
    let now = cx.live.table_now();
    let Some(name) = table.name() else { return Some(read(Some(entry), now)) };
    let table = cx.live.table(name)?;
    if table.is(entry.table()) {
        return Some(read(Some(entry), now));
    }
    let other = (table.key_type() == entry.table().key_type()).then(|| table.find(&entry.key().as_key(), now));
    Some(read(other.flatten().as_ref(), now))
}

/// As [`found`], a number; 0 where another table has no such entry.
fn of_entry(
    cx: &Context<'_>,
    counter: u8,
    table: &Value,
    read: impl FnOnce(&Tracked, Now) -> Option<u64>,
) -> Option<Sample<'static>> {
    let value = found(cx, counter, table, |entry, now| entry.map_or(Some(0), |entry| read(entry, now)))?;
    value.map(|value| Sample::Int(value as i64))
}

fn stored(cx: &Context<'_>, counter: u8, table: &Value, number: StoredNumber) -> Option<Sample<'static>> {
    of_entry(cx, counter, table, |entry, now| number.get(entry, now))
}

fn kilobytes(cx: &Context<'_>, counter: u8, table: &Value, data: DataType) -> Option<Sample<'static>> {
    of_entry(cx, counter, table, |entry, now| entry.get(data, 0, now).map(|bytes| bytes >> 10))
}

fn incremented(
    cx: &Context<'_>,
    counter: u8,
    table: &Value,
    (count, rate): (StoredNumber, StoredNumber),
) -> Option<Sample<'static>> {
    of_entry(cx, counter, table, |entry, now| Some(increment(entry, count.place(entry), rate.place(entry), now)))
}

fn cleared(cx: &Context<'_>, counter: u8, table: &Value, count: StoredNumber) -> Option<Sample<'static>> {
    of_entry(cx, counter, table, |entry, now| {
        let (data, index) = count.place(entry);
        entry.clear(data, index, now)
    })
}

/// As in HAProxy, another table does not change it.
fn is_tracked(cx: &Context<'_>, counter: u8, _: &Value) -> Option<Sample<'static>> {
    Some(Sample::Bool(cx.tracked.get(counter).is_some()))
}

/// What is read of an element: its index, the counter and the table are the arguments.
fn of_element(
    cx: &Context<'_>,
    args: &[Value],
    read: impl FnOnce(&Tracked, u8, Now) -> Option<u64>,
) -> Option<Sample<'static>> {
    let at = index(args[0].int());
    of_entry(cx, number(&args[1]), &args[2], |entry, now| read(entry, at, now))
}
