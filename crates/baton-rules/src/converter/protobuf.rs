//! Fields of protocol buffers, and of the messages of gRPC (configuration manual 7.3.1).

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

const FIELD: &[Arg] = &[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "protobuf",
        Type::Bin,
        Type::Bin,
        protobuf,
        "The field of a protocol buffers message, 3.1: in field 3.",
    )
    .args(FIELD)
    .gives(given)
    .check(check),
    Converter::new("ungrpc", Type::Bin, Type::Bin, ungrpc, "The field of the first gRPC message that has it.")
        .args(FIELD)
        .gives(given)
        .check(check),
];

/// How deep fields can be asked for.
const DEPTH_MAX: usize = 64;

/// A field by its numbers, and how it is read.
#[derive(Clone, Debug)]
pub(crate) struct FieldPath {
    numbers: Box<[u32]>,
    kind: Option<Kind>,
}

/// The types of a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Varint,
    Zigzag,
    Fixed64,
    Double,
    Fixed32,
    Signed32,
    Float,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"int32" | b"int64" | b"uint32" | b"uint64" | b"bool" | b"enum" => Kind::Varint,
            b"sint32" | b"sint64" => Kind::Zigzag,
            b"fixed64" | b"sfixed64" => Kind::Fixed64,
            b"double" => Kind::Double,
            b"fixed32" => Kind::Fixed32,
            b"sfixed32" => Kind::Signed32,
            b"float" => Kind::Float,
            _ => return None,
        })
    }

    fn wire(self) -> Wire {
        match self {
            Kind::Varint | Kind::Zigzag => Wire::Varint,
            Kind::Fixed64 | Kind::Double => Wire::Eight,
            Kind::Fixed32 | Kind::Signed32 | Kind::Float => Wire::Four,
        }
    }

    /// The number that the bytes of a field are.
    fn read(self, bytes: &[u8]) -> Option<i64> {
        Some(match self {
            Kind::Varint | Kind::Zigzag if bytes.is_empty() => 0,
            Kind::Varint => varint(bytes)?.0 as i64,
            Kind::Zigzag => {
                let value = varint(bytes)?.0;
                (value >> 1) as i64 ^ -((value & 1) as i64)
            }
            Kind::Fixed64 => i64::from_le_bytes(bytes.try_into().ok()?),
            Kind::Double => whole(f64::from_le_bytes(bytes.try_into().ok()?)),
            Kind::Fixed32 => u32::from_le_bytes(bytes.try_into().ok()?).into(),
            Kind::Signed32 => i32::from_le_bytes(bytes.try_into().ok()?).into(),
            Kind::Float => {
                let value = f32::from_le_bytes(bytes.try_into().ok()?);
                i64::from(signed(value.into()) as u32)
            }
        })
    }
}

/// A real number as HAProxy's processors convert it to an unsigned integer of 64 bits, bit for bit.
fn whole(value: f64) -> i64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if value >= HALF { signed(value - HALF) ^ i64::MIN } else { signed(value) }
}

fn signed(value: f64) -> i64 {
    if value.is_nan() || value >= 9_223_372_036_854_775_808.0 { i64::MIN } else { value as i64 }
}

/// How a field is encoded.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Wire {
    Varint,
    Eight,
    Length,
    Four,
}

fn check(args: &mut [Value]) -> Result<(), RuleError> {
    let text = String::from_utf8_lossy(args[0].bytes()).into_owned();
    let numbers: Result<Box<[u32]>, _> = text.split('.').map(str::parse).collect();
    let numbers = numbers.ok().filter(|numbers| numbers.len() <= DEPTH_MAX).ok_or_else(|| {
        RuleError::new(format!("'{text}' is not the number of a field")).hint("write a number such as 3, or 3.1")
    })?;
    let kind = match args[1].bytes() {
        b"" => None,
        name => Some(Kind::of(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            let known = [
                "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum", "fixed64", "sfixed64",
                "double", "fixed32", "sfixed32", "float",
            ];
            RuleError::new(format!("wrong protocol buffers type '{name}'"))
                .hint("leave the type out for a text, bytes or a message")
                .suggest(&name, known)
        })?),
    };
    args[0] = Value::FieldPath(Box::new(FieldPath { numbers, kind }));
    Ok(())
}

fn given(args: &[Value]) -> Type {
    match &args[0] {
        Value::FieldPath(path) if path.kind.is_some() => Type::Int,
        _ => Type::Bin,
    }
}

fn protobuf<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::FieldPath(path) = &args[0] else { return None };
    value(&sample.into_bytes(), path).found()
}

/// As in HAProxy, whether a message is compressed is not looked at.
fn ungrpc<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::FieldPath(path) = &args[0] else { return None };
    let bytes = sample.into_bytes();
    let mut rest = &bytes[..];
    loop {
        let (header, behind) = rest.split_at_checked(5)?;
        let length = u32::from_be_bytes(header[1..].try_into().ok()?);
        let (message, behind) = behind.split_at_checked(length as usize)?;
        match value(message, path) {
            Search::Absent => rest = behind,
            search => return search.found(),
        }
    }
}

/// What came of a search.
enum Search<T> {
    Found(T),
    Absent,
    /// The message is malformed, or the field is encoded in another way.
    Failed,
}

impl<T> Search<T> {
    fn found(self) -> Option<T> {
        if let Search::Found(found) = self { Some(found) } else { None }
    }
}

fn value(message: &[u8], path: &FieldPath) -> Search<Sample<'static>> {
    let Some((last, outer)) = path.numbers.split_last() else { return Search::Absent };
    let mut message = message;
    for number in outer {
        match field(message, *number, Some(Wire::Length)) {
            Search::Found((start, end)) => message = &message[start..end],
            Search::Absent => return Search::Absent,
            Search::Failed => return Search::Failed,
        }
    }
    match field(message, *last, path.kind.map(Kind::wire)) {
        Search::Found((start, end)) => {
            let bytes = &message[start..end];
            match path.kind {
                Some(kind) => kind.read(bytes).map_or(Search::Failed, |number| Search::Found(Sample::Int(number))),
                None => Search::Found(Sample::Bin(Cow::Owned(bytes.to_vec()))),
            }
        }
        Search::Absent => Search::Absent,
        Search::Failed => Search::Failed,
    }
}

/// Where the bytes of the first field of that number are; it fails when the field is encoded in another way than `wanted`.
fn field(message: &[u8], number: u32, wanted: Option<Wire>) -> Search<(usize, usize)> {
    let mut at = 0;
    while at < message.len() {
        let Some((key, wire, start, end)) = field_at(message, at) else { return Search::Failed };
        if key == u64::from(number) {
            return match wanted.is_none_or(|wanted| wanted == wire) {
                true => Search::Found((start, end)),
                false => Search::Failed,
            };
        }
        at = end;
    }
    Search::Absent
}

/// The number of the field at a place, how it is encoded, and where its bytes are.
fn field_at(message: &[u8], at: usize) -> Option<(u64, Wire, usize, usize)> {
    let (key, length) = varint(&message[at..])?;
    let mut start = at + length;
    let (wire, size) = match key & 7 {
        0 if start == message.len() => (Wire::Varint, 0),
        0 => (Wire::Varint, varint(&message[start..])?.1),
        1 => (Wire::Eight, 8),
        2 if start == message.len() => (Wire::Length, 0),
        2 => {
            let (size, length) = varint(&message[start..])?;
            start += length;
            (Wire::Length, usize::try_from(size).ok()?)
        }
        5 => (Wire::Four, 4),
        _ => return None,
    };
    let end = start.checked_add(size).filter(|end| *end <= message.len())?;
    Some((key >> 3, wire, start, end))
}

/// A number in groups of seven bits, and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * place as u32);
        if byte < 0x80 {
            return Some((value, place + 1));
        }
    }
    None
}
