//! Fetches from stick tables by the client's address: `src_conn_rate(TABLE)` and their like, and how full a table is (configuration
//! manual 7.3.2 and 7.3.3).

use std::sync::Arc;

use baton_model::DataType;
use baton_tables::{Now, Table, Tracked};

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::key::SampleKey;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};
use crate::stored::{StoredNumber, increment, index};

const TABLE: &[Arg] = &[Arg::opt(ArgKind::Table)];
const INDEX: &[Arg] = &[Arg::req(ArgKind::Int), Arg::opt(ArgKind::Table)];

/// A number that is stored with the client's address.
macro_rules! stored {
    ($name:literal, $number:expr, $doc:literal) => {
        row(&[$name], |cx, args| found(cx, args, |entry, now| $number.get(entry, now)), $doc).args(TABLE)
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
            &[$name],
            |cx, args| {
                let at = index(args[0].int());
                found(cx, &args[1..], |entry, now| entry.get(DataType::$data, at, now))
            },
            $doc,
        )
        .args(INDEX)
    };
}

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    single!("src_bytes_in_rate", BytesInRate, "Bytes of clients with this address over the table's period."),
    single!("src_bytes_out_rate", BytesOutRate, "Bytes to clients with this address over the table's period."),
    single!("src_conn_cnt", ConnCnt, "Connections of this address."),
    single!("src_conn_cur", ConnCur, "Connections of this address now."),
    single!("src_conn_rate", ConnRate, "Connections of this address over the table's period."),
    single!("src_glitch_cnt", GlitchCnt, "Protocol errors of this address that are not failures."),
    single!("src_glitch_rate", GlitchRate, "Protocol errors of this address that are not failures, over the table's period."),
    single!("src_http_err_cnt", HttpErrCnt, "Failed requests of this address, through the client's fault."),
    single!("src_http_err_rate", HttpErrRate, "Failed requests of this address, over the table's period."),
    single!("src_http_fail_cnt", HttpFailCnt, "Requests of this address that failed in the server."),
    single!("src_http_fail_rate", HttpFailRate, "Requests of this address that failed in the server, over the table's period."),
    single!("src_http_req_cnt", HttpReqCnt, "Requests of this address."),
    single!("src_http_req_rate", HttpReqRate, "Requests of this address over the table's period."),
    single!("src_sess_cnt", SessCnt, "Connections of this address that were accepted as sessions."),
    single!("src_sess_rate", SessRate, "Connections of this address that were accepted as sessions, over the table's period."),
    stored!("src_get_gpt0", StoredNumber::GPT0, "The tag of this address."),
    stored!("src_get_gpc0", StoredNumber::GPC0, "The first counter of this address."),
    stored!("src_get_gpc1", StoredNumber::GPC1, "The second counter of this address."),
    stored!("src_gpc0_rate", StoredNumber::GPC0_RATE, "How fast the first counter of this address is incremented."),
    stored!("src_gpc1_rate", StoredNumber::GPC1_RATE, "How fast the second counter of this address is incremented."),
    element!("src_get_gpt", Gpt, "A tag of this address."),
    element!("src_get_gpc", Gpc, "A counter of this address."),
    element!("src_gpc_rate", GpcRate, "How fast a counter of this address is incremented."),
    row(&["src_kbytes_in"], |cx, args| kilobytes(cx, args, DataType::BytesInCnt),
        "Kilobytes of clients with this address.").args(TABLE),
    row(&["src_kbytes_out"], |cx, args| kilobytes(cx, args, DataType::BytesOutCnt),
        "Kilobytes to clients with this address.").args(TABLE),
    row(&["src_inc_gpc0"], |cx, args| incremented(cx, args, StoredNumber::GPC0, StoredNumber::GPC0_RATE),
        "Increments the first counter of this address, and gives it.").args(TABLE),
    row(&["src_inc_gpc1"], |cx, args| incremented(cx, args, StoredNumber::GPC1, StoredNumber::GPC1_RATE),
        "Increments the second counter of this address, and gives it.").args(TABLE),
    row(&["src_inc_gpc"], |cx, args| {
        let at = index(args[0].int());
        made(cx, &args[1..], |entry, now| Some(increment(entry, (DataType::Gpc, at), (DataType::GpcRate, at), now)))
    }, "Increments a counter of this address, and gives it.").args(INDEX),
    row(&["src_clr_gpc0"], |cx, args| cleared(cx, args, StoredNumber::GPC0),
        "Clears the first counter of this address, and gives what it was.").args(TABLE),
    row(&["src_clr_gpc1"], |cx, args| cleared(cx, args, StoredNumber::GPC1),
        "Clears the second counter of this address, and gives what it was.").args(TABLE),
    row(&["src_clr_gpc"], |cx, args| {
        let at = index(args[0].int());
        made(cx, &args[1..], |entry, now| entry.clear(DataType::Gpc, at, now))
    }, "Clears a counter of this address, and gives what it was.").args(INDEX),
    row(&["src_updt_conn_cnt"], |cx, args| made(cx, args, |entry, now| {
        entry.add(DataType::ConnCnt, 0, 1, now);
        entry.get(DataType::ConnCnt, 0, now)
    }), "Counts one more connection of this address, and gives how many they are.").args(TABLE),
    row(&["table_avl"], |cx, args| {
        let table = table(cx, args)?;
        Some(integer(table.size().saturating_sub(table.used())))
    }, "How many entries a stick table has room for.").args(TABLE),
    row(&["table_cnt"], |cx, args| Some(integer(table(cx, args)?.used())),
        "How many entries a stick table has.").args(TABLE),
];

const fn row(
    names: &'static [&'static str],
    eval: for<'c> fn(&'c Context<'_>, &'c [Value]) -> Option<Sample<'c>>,
    doc: &'static str,
) -> Fetch {
    Fetch::new(names, Type::Int, FetchNeeds::NOTHING, eval, doc)
}

/// The table that the first argument names.
fn table(cx: &Context<'_>, args: &[Value]) -> Option<Arc<Table>> {
    cx.live.table(args[0].name()?)
}

fn integer(number: u64) -> Sample<'static> {
    Sample::Int(number as i64)
}

/// The client's address as a key of the table.
fn source(cx: &Context<'_>, table: &Table) -> Option<SampleKey<'static>> {
    SampleKey::new(Sample::Ip(cx.client?.ip()), table.key_type())
}

/// What is read of the entry of the client's address; 0 where it has none.
fn found(cx: &Context<'_>, args: &[Value], read: impl FnOnce(&Tracked, Now) -> Option<u64>) -> Option<Sample<'static>> {
    let table = table(cx, args)?;
    let (key, now) = (source(cx, &table)?, cx.live.table_now());
    match table.find(&key.key(), now) {
        Some(entry) => read(&entry, now).map(integer),
        None => Some(Sample::Int(0)),
    }
}

/// What comes of a change of the entry of the client's address, which is created if it has none.
fn made(
    cx: &Context<'_>,
    args: &[Value],
    change: impl FnOnce(&Tracked, Now) -> Option<u64>,
) -> Option<Sample<'static>> {
    let table = table(cx, args)?;
    let (key, now) = (source(cx, &table)?, cx.live.table_now());
    match table.track(&key.key(), now) {
        Some(entry) => change(&entry, now).map(integer),
        None => Some(Sample::Int(0)),
    }
}

fn incremented(cx: &Context<'_>, args: &[Value], counter: StoredNumber, rate: StoredNumber) -> Option<Sample<'static>> {
    made(cx, args, |entry, now| Some(increment(entry, counter.place(entry), rate.place(entry), now)))
}

fn cleared(cx: &Context<'_>, args: &[Value], counter: StoredNumber) -> Option<Sample<'static>> {
    made(cx, args, |entry, now| {
        let (data, index) = counter.place(entry);
        entry.clear(data, index, now)
    })
}

fn kilobytes(cx: &Context<'_>, args: &[Value], data: DataType) -> Option<Sample<'static>> {
    found(cx, args, |entry, now| entry.get(data, 0, now).map(|bytes| bytes >> 10))
}
