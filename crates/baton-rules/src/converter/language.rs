//! The language that a client prefers (configuration manual 7.3.1; RFC 9110 12.5.4).

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[Converter::new(
    "language",
    Type::Str,
    Type::Str,
    language,
    "The one of these languages that an Accept-Language value prefers, or a default.",
)
.args(&[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)])];

fn language<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let accepted = sample.into_text();
    let mut best: Option<(u32, &'c [u8])> = None;
    for entry in accepted.split(|&byte| byte == b',') {
        let mut parts = entry.split(|&byte| byte == b';');
        let wanted = parts.next().unwrap_or_default().trim_ascii();
        let weight = parts.next().and_then(quality).map_or(1000, weight);
        // What has a blank in it is no language.
        if wanted.iter().any(u8::is_ascii_whitespace) {
            continue;
        }
        if weight == 0 || best.is_some_and(|(known, _)| known >= weight) {
            continue;
        }
        if let Some(found) = find(args[0].bytes(), wanted) {
            best = Some((weight, found));
        }
    }
    match (best, &args[1]) {
        (Some((_, found)), _) => Some(Sample::str(found)),
        (None, Value::Str(default)) => Some(Sample::str(default)),
        (None, _) => None,
    }
}

/// What a parameter `q=` says.
fn quality(parameter: &[u8]) -> Option<&[u8]> {
    parameter.trim_ascii().strip_prefix(b"q")?.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii_start)
}

/// The first of `list` that is `wanted`, with its variant or without.
fn find<'c>(list: &'c [u8], wanted: &[u8]) -> Option<&'c [u8]> {
    let base = wanted.split(|&byte| byte == b'-').next().unwrap_or_default();
    let names = list.split(|&byte| byte == b';').filter(|name| !name.is_empty());
    names.into_iter().find(|name| *name == wanted || *name == base)
}

/// A weight in thousandths; 1000 for what is none.
fn weight(text: &[u8]) -> u32 {
    let Some((&first @ (b'0' | b'1'), rest)) = text.split_first() else { return 1000 };
    let whole = u32::from(first - b'0') * 1000;
    let Some(digits) = rest.strip_prefix(b".") else { return whole };
    let digits = digits.iter().take(3).take_while(|byte| byte.is_ascii_digit());
    digits.zip([100, 10, 1]).fold(whole, |sum, (digit, unit)| sum + u32::from(digit - b'0') * unit)
}
