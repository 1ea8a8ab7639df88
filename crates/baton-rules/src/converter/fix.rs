//! Messages of FIX, Financial Information eXchange (configuration manual 7.3.1): `TAG=VALUE`, each with a byte of 1 behind.

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type, cut};

pub(super) const ROWS: &[Converter] = &[
    Converter::new("fix_is_valid", Type::Bin, Type::Bool, is_valid, "Whether the bytes are a valid FIX message."),
    Converter::new("fix_tag_value", Type::Bin, Type::Bin, tag_value, "The value of a tag of a FIX message.")
        .args(&[Arg::req(ArgKind::Str)])
        .check(tag),
];

const END: u8 = 1;
const VERSIONS: [&[u8]; 6] = [b"FIX.4.0", b"FIX.4.1", b"FIX.4.2", b"FIX.4.3", b"FIX.4.4", b"FIXT.1.1"];
/// `8=FIX.4.4|9=5|35=A|10=180|`
const MESSAGE_BYTES_MIN: usize = 26;
const BEGIN_STRING: i64 = 8;
const BODY_LENGTH: i64 = 9;
const CHECK_SUM: i64 = 10;
const MESSAGE_TYPE: i64 = 35;

fn tag(args: &mut [Value]) -> Result<(), RuleError> {
    let text = String::from_utf8_lossy(args[0].bytes()).into_owned();
    let names = [
        ("BeginString", BEGIN_STRING),
        ("BodyLength", BODY_LENGTH),
        ("CheckSum", CHECK_SUM),
        ("MsgType", MESSAGE_TYPE),
        ("SenderCompID", 49),
        ("TargetCompID", 56),
    ];
    let named = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)).map(|(_, tag)| *tag);
    let tag = named.or_else(|| text.parse().ok().filter(|tag| *tag > 0));
    let tag = tag.ok_or_else(|| {
        RuleError::new(format!("unknown FIX tag name '{text}'"))
            .hint("write the number of a tag")
            .suggest(&text, names.map(|(name, _)| name))
    })?;
    args[0] = Value::Int(tag);
    Ok(())
}

/// A field at the start of the bytes.
enum Field {
    /// Its tag, where its value starts and where the next field starts.
    Whole {
        tag: i64,
        value: usize,
        next: usize,
    },
    /// More bytes could make it one.
    Cut,
    Invalid,
}

fn field(bytes: &[u8]) -> Field {
    let Some(digits) = memchr::memchr(b'=', bytes) else { return Field::Cut };
    let Some(length) = memchr::memchr(END, &bytes[digits + 1..]) else { return Field::Cut };
    match tag_number(&bytes[..digits]) {
        None => Field::Invalid,
        Some(tag) => Field::Whole { tag, value: digits + 1, next: digits + 2 + length },
    }
}

/// A tag is a number of 32 bits that is not 0, without a sign.
fn tag_number(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    text.parse::<u32>().ok().filter(|tag| *tag > 0).map(i64::from)
}

fn tag_value<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let bytes = sample.into_bytes();
    let wanted = args[0].int()?;
    let mut at = 0;
    loop {
        let Field::Whole { tag, value, next } = field(&bytes[at..]) else { return None };
        if tag == wanted {
            let value = cut(bytes, at + value, at + next - 1);
            return (!value.is_empty()).then_some(Sample::Bin(value));
        }
        at += next;
    }
}

/// Nothing when more bytes could make a valid message of it.
fn is_valid<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    judge(&sample.into_bytes()).map(Sample::Bool)
}

fn judge(bytes: &[u8]) -> Option<bool> {
    if bytes.len() < MESSAGE_BYTES_MIN {
        return None;
    }
    let mut at = 0;
    let mut body = (0, 0);
    for (place, expected) in [BEGIN_STRING, BODY_LENGTH, MESSAGE_TYPE].into_iter().enumerate() {
        let (tag, value, next) = match field(&bytes[at..]) {
            Field::Whole { tag, value, next } => (tag, value, next),
            Field::Cut => return None,
            Field::Invalid => return Some(false),
        };
        if tag != expected {
            return Some(false);
        }
        let text: Cow<'_, [u8]> = Cow::Borrowed(&bytes[at + value..at + next - 1]);
        if place == 0 && !VERSIONS.contains(&&text[..]) {
            return Some(false);
        }
        if place == 1 {
            let length: usize = match std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()) {
                Some(length) => length,
                None => return Some(false),
            };
            body = (at + next, length);
        }
        at += next;
    }
    let end = body.0.checked_add(body.1)?;
    if end > bytes.len() {
        return None;
    }
    // The checksum is the last field, wherever it is.
    loop {
        let (tag, value, next) = match field(&bytes[at..]) {
            Field::Whole { tag, value, next } => (tag, value, next),
            Field::Cut => return None,
            Field::Invalid => return Some(false),
        };
        if tag == CHECK_SUM {
            let sum = bytes[..at].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            return Some(at == end && bytes[at + value..at + next - 1] == *format!("{sum:03}").as_bytes());
        }
        at += next;
    }
}
