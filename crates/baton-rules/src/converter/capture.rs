//! Converters that capture what they are given (configuration manual 7.3.1).

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::capture::CaptureSide;
use crate::context::Context;
use crate::sample::{Sample, Type};

const INDEX: &[Arg] = &[Arg::req(ArgKind::Int)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "capture-req",
        Type::Str,
        Type::Str,
        |sample, args, cx| capture(sample, args, cx, CaptureSide::Request),
        "The text unchanged; it is captured in a slot of the request.",
    )
    .args(INDEX),
    Converter::new(
        "capture-res",
        Type::Str,
        Type::Str,
        |sample, args, cx| capture(sample, args, cx, CaptureSide::Response),
        "The text unchanged; it is captured in a slot of the response.",
    )
    .args(INDEX),
];

fn capture<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>, side: CaptureSide) -> Option<Sample<'c>> {
    let index = usize::try_from(args.first()?.int()?).ok()?;
    let text = sample.into_text();
    // One that is read at this moment is not written.
    if let Some(mut captures) = cx.captures.and_then(|captures| captures.try_borrow_mut().ok()) {
        captures.set(side, index, &text);
    }
    Some(Sample::Str(text))
}
