//! Converters that look the sample up in a stick table: `table_conn_rate(TABLE)` and their like (configuration manual 7.3.1).

use std::sync::Arc;

use baton_model::DataType;
use baton_tables::{Now, Table, Tracked};

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::key::SampleKey;
use crate::sample::{Sample, Type};
use crate::stored::{StoredNumber, increment, index};

const TABLE: &[Arg] = &[Arg::opt(ArgKind::Table)];
const INDEX: &[Arg] = &[Arg::req(ArgKind::Int), Arg::opt(ArgKind::Table)];
const DEFAULT: &[Arg] = &[Arg::opt(ArgKind::Table), Arg::opt(ArgKind::Int)];

/// A number that is stored with the key.
macro_rules! stored {
    ($name:literal, $number:expr, $doc:literal) => {
        row($name, |sample, args, cx| found(sample, &args[0], cx, |entry, now| $number.get(entry, now)), $doc)
            .args(TABLE)
    };
}

/// A type of data that no array stands in for.
macro_rules! single {
    ($name:literal, $data:ident, $doc:literal) => {
        stored!($name, StoredNumber::of(DataType::$data), $doc)
    };
}

/// An element of an array.
macro_rules! element {
    ($name:literal, $data:ident, $doc:literal) => {
        row(
            $name,
            |sample, args, cx| {
                let at = index(args[0].int());
                found(sample, &args[1], cx, |entry, now| entry.get(DataType::$data, at, now))
            },
            $doc,
        )
        .args(INDEX)
    };
}

#[rustfmt::skip]
pub(super) const ROWS: &[Converter] = &[
    Converter::new("in_table", Type::Any, Type::Bool, |sample, args, cx| {
        let (table, key) = key(sample, &args[0], cx)?;
        Some(Sample::Bool(table.find(&key.key(), cx.live.table_now()).is_some()))
    }, "Whether a stick table has this key.").args(TABLE),
    single!("table_bytes_in_rate", BytesInRate, "Bytes of clients that a stick table has for this key, over its period."),
    single!("table_bytes_out_rate", BytesOutRate, "Bytes to clients that a stick table has for this key, over its period."),
    single!("table_conn_cnt", ConnCnt, "Connections that a stick table has for this key."),
    single!("table_conn_cur", ConnCur, "Connections of now that a stick table has for this key."),
    single!("table_conn_rate", ConnRate, "Connections that a stick table has for this key, over its period."),
    single!("table_glitch_cnt", GlitchCnt, "Protocol errors that are not failures, of this key in a stick table."),
    single!("table_glitch_rate", GlitchRate, "Protocol errors that are not failures, of this key over the table's period."),
    single!("table_http_err_cnt", HttpErrCnt, "Requests of this key that failed through the client."),
    single!("table_http_err_rate", HttpErrRate, "Requests of this key that failed through the client, over the table's period."),
    single!("table_http_fail_cnt", HttpFailCnt, "Requests of this key that failed in the server."),
    single!("table_http_fail_rate", HttpFailRate, "Requests of this key that failed in the server, over the table's period."),
    single!("table_http_req_cnt", HttpReqCnt, "Requests that a stick table has for this key."),
    single!("table_http_req_rate", HttpReqRate, "Requests that a stick table has for this key, over its period."),
    single!("table_server_id", ServerId, "The id of the server that a stick table has for this key."),
    single!("table_sess_cnt", SessCnt, "Sessions that a stick table has for this key."),
    single!("table_sess_rate", SessRate, "Sessions that a stick table has for this key, over its period."),
    stored!("table_gpt0", StoredNumber::GPT0, "The tag of this key in a stick table."),
    stored!("table_gpc0", StoredNumber::GPC0, "The first counter of this key in a stick table."),
    stored!("table_gpc1", StoredNumber::GPC1, "The second counter of this key in a stick table."),
    stored!("table_gpc0_rate", StoredNumber::GPC0_RATE, "How fast the first counter of this key is incremented."),
    stored!("table_gpc1_rate", StoredNumber::GPC1_RATE, "How fast the second counter of this key is incremented."),
    element!("table_gpt", Gpt, "A tag of this key in a stick table."),
    element!("table_gpc", Gpc, "A counter of this key in a stick table."),
    element!("table_gpc_rate", GpcRate, "How fast a counter of this key is incremented."),
    row("table_kbytes_in", |sample, args, cx| kilobytes(sample, args, cx, DataType::BytesInCnt),
        "Kilobytes of clients that a stick table has for this key.").args(TABLE),
    row("table_kbytes_out", |sample, args, cx| kilobytes(sample, args, cx, DataType::BytesOutCnt),
        "Kilobytes to clients that a stick table has for this key.").args(TABLE),
    row("table_expire", |sample, args, cx| time(sample, args, cx, |entry, now| entry.remaining(now).unwrap_or(0)),
        "Milliseconds that this key has left in a stick table; the second argument where there is no such key.")
        .args(DEFAULT),
    row("table_idle", |sample, args, cx| time(sample, args, cx, Tracked::idle),
        "Milliseconds since this key of a stick table was touched; the second argument where there is no such key.")
        .args(DEFAULT),
    row("table_trackers", |sample, args, cx| {
        // The one who looks does not count.
        found(sample, &args[0], cx, |entry, _| Some(entry.references().saturating_sub(1).into()))
    }, "How many connections and requests track this key of a stick table.").args(TABLE),
    row("table_inc_gpc", |sample, args, cx| {
        let at = index(args[0].int());
        let places = ((DataType::Gpc, at), (DataType::GpcRate, at));
        found(sample, &args[1], cx, |entry, now| Some(increment(entry, places.0, places.1, now)))
    }, "Increments a counter of this key, and gives it.").args(INDEX),
    row("table_inc_gpc0", |sample, args, cx| {
        incremented(sample, args, cx, StoredNumber::GPC0, StoredNumber::GPC0_RATE)
    }, "Increments the first counter of this key, and gives it.").args(TABLE),
    row("table_inc_gpc1", |sample, args, cx| {
        incremented(sample, args, cx, StoredNumber::GPC1, StoredNumber::GPC1_RATE)
    }, "Increments the second counter of this key, and gives it.").args(TABLE),
    row("table_clr_gpc", |sample, args, cx| {
        let at = index(args[0].int());
        found(sample, &args[1], cx, |entry, now| entry.clear(DataType::Gpc, at, now))
    }, "Clears a counter of this key, and gives what it was.").args(INDEX),
    row("table_clr_gpc0", |sample, args, cx| cleared(sample, args, cx, StoredNumber::GPC0),
        "Clears the first counter of this key, and gives what it was.").args(TABLE),
    row("table_clr_gpc1", |sample, args, cx| cleared(sample, args, cx, StoredNumber::GPC1),
        "Clears the second counter of this key, and gives what it was.").args(TABLE),
];

const fn row(
    name: &'static str,
    eval: for<'c> fn(Sample<'c>, &'c [Value], &'c Context<'_>) -> Option<Sample<'c>>,
    doc: &'static str,
) -> Converter {
    Converter::new(name, Type::Any, Type::Int, eval, doc)
}

/// The table that an argument names, and the sample as a key of it.
fn key<'c>(sample: Sample<'c>, name: &Value, cx: &Context<'_>) -> Option<(Arc<Table>, SampleKey<'c>)> {
    let table = cx.live.table(name.name()?)?;
    let key = SampleKey::new(sample, table.key_type())?;
    Some((table, key))
}

/// What is read or changed of the entry of a key; 0 where there is none.
fn found(
    sample: Sample<'_>,
    name: &Value,
    cx: &Context<'_>,
    read: impl FnOnce(&Tracked, Now) -> Option<u64>,
) -> Option<Sample<'static>> {
    let (table, key) = key(sample, name, cx)?;
    let now = cx.live.table_now();
    match table.find(&key.key(), now) {
        Some(entry) => read(&entry, now).map(|number| Sample::Int(number as i64)),
        None => Some(Sample::Int(0)),
    }
}

/// A time of the entry of a key, or the default.
fn time(
    sample: Sample<'_>,
    args: &[Value],
    cx: &Context<'_>,
    read: impl FnOnce(&Tracked, Now) -> u64,
) -> Option<Sample<'static>> {
    let (table, key) = key(sample, &args[0], cx)?;
    let now = cx.live.table_now();
    match table.find(&key.key(), now) {
        Some(entry) => Some(Sample::Int(read(&entry, now) as i64)),
        None => args[1].int().map(Sample::Int),
    }
}

fn kilobytes(sample: Sample<'_>, args: &[Value], cx: &Context<'_>, data: DataType) -> Option<Sample<'static>> {
    found(sample, &args[0], cx, |entry, now| entry.get(data, 0, now).map(|bytes| bytes >> 10))
}

fn incremented(
    sample: Sample<'_>,
    args: &[Value],
    cx: &Context<'_>,
    counter: StoredNumber,
    rate: StoredNumber,
) -> Option<Sample<'static>> {
    found(sample, &args[0], cx, |entry, now| Some(increment(entry, counter.place(entry), rate.place(entry), now)))
}

fn cleared(sample: Sample<'_>, args: &[Value], cx: &Context<'_>, counter: StoredNumber) -> Option<Sample<'static>> {
    found(sample, &args[0], cx, |entry, now| {
        let (data, index) = counter.place(entry);
        entry.clear(data, index, now)
    })
}
