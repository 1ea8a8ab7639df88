//! Fetches from what was captured, and the unique ID (configuration manual 7.3.6).

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::capture::CaptureSide;
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

const INDEX: &[Arg] = &[Arg::req(ArgKind::Int)];

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(
        &["capture.req.hdr"],
        Type::Str,
        FetchNeeds::REQUEST,
        |cx, args| captured(cx, args, CaptureSide::Request),
        "What was captured in a slot of the request.",
    )
    .args(INDEX),
    Fetch::new(
        &["capture.res.hdr"],
        Type::Str,
        FetchNeeds::RESPONSE_KEPT,
        |cx, args| captured(cx, args, CaptureSide::Response),
        "What was captured in a slot of the response.",
    )
    .args(INDEX),
    Fetch::new(
        &["capture.res.ver"],
        Type::Str,
        FetchNeeds::RESPONSE_KEPT,
        |cx, _| cx.response_version.map(|version| Sample::str(version.as_bytes())),
        "The version of the server's response, such as HTTP/1.1.",
    ),
    Fetch::new(
        &["unique-id"],
        Type::Str,
        FetchNeeds::NOTHING,
        |cx, _| cx.unique_id().map(Sample::str),
        "The exchange's unique ID, see unique-id-format.",
    ),
];

fn captured<'c>(cx: &'c Context<'_>, args: &'c [Value], side: CaptureSide) -> Option<Sample<'c>> {
    let index = usize::try_from(args.first()?.int()?).ok()?;
    let captures = cx.captures?.borrow();
    Some(Sample::Str(captures.get(side, index)?.to_vec().into()))
}
