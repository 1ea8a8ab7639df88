//! CONNECT and CONNACK, the first packets of MQTT 3.1, 3.1.1 and 5.0 (configuration manual 7.3.1).

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[
    Converter::new("mqtt_is_valid", Type::Bin, Type::Bool, is_valid, "Whether the bytes are a valid MQTT packet."),
    Converter::new(
        "mqtt_field_value",
        Type::Bin,
        Type::Str,
        field_value,
        "The value of a field of a CONNECT or CONNACK packet of MQTT.",
    )
    .args(&[Arg::req(ArgKind::Str), Arg::req(ArgKind::Str)])
    .check(check),
];

const CONNECT: i64 = 1;
const CONNACK: i64 = 2;

/// Fields that have a name. Properties are known by their numbers.
const NAMES: [(&str, i64); 10] = [
    ("flags", -1),
    ("protocol_name", -2),
    ("protocol_version", -3),
    ("client_identifier", -4),
    ("will_topic", -5),
    ("will_payload", -6),
    ("username", -7),
    ("password", -8),
    ("keepalive", -9),
    ("reason_code", -10),
];

/// The properties that can be asked for, by the kind of packet.
const OF_CONNECT: [i64; 14] = [17, 33, 39, 34, 25, 23, 21, 22, 24, 1, 2, 3, 8, 9];
const OF_CONNACK: [i64; 16] = [17, 33, 36, 37, 39, 18, 34, 31, 40, 41, 42, 19, 26, 28, 21, 22];
/// Properties that are numbers.
const NUMBERS: [i64; 15] = [1, 2, 17, 19, 23, 24, 25, 33, 34, 36, 37, 39, 40, 41, 42];
/// The highest reason of a CONNACK.
const REASON_MAX: u64 = 0x9f;

/// Properties of the will.
const OF_WILL: [i64; 6] = [24, 1, 2, 3, 8, 9];
const USER_PROPERTY: u8 = 38;

fn check(args: &mut [Value]) -> Result<(), RuleError> {
    let text = |arg: &Value| String::from_utf8_lossy(arg.bytes()).into_owned();
    let (packet, field) = (text(&args[0]), text(&args[1]));
    let kind = match &*packet.to_ascii_lowercase() {
        "connect" | "1" => CONNECT,
        "connack" | "2" => CONNACK,
        _ => {
            let fault = RuleError::new(format!("fields of the MQTT packet '{packet}' cannot be read"));
            return Err(fault.hint("connect or connack").suggest(&packet, ["connect", "connack"]));
        }
    };
    let of_kind: &[i64] = if kind == CONNECT { &[-1, -2, -3, -4, -5, -6, -7, -8, -9] } else { &[-1, -3, -10] };
    let properties: &[i64] = if kind == CONNECT { &OF_CONNECT } else { &OF_CONNACK };
    let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&field)).map(|(_, id)| *id);
    let id = match named {
        Some(id) => of_kind.contains(&id).then_some(id),
        None => field.parse().ok().filter(|id| properties.contains(id)),
    };
    let id = id.ok_or_else(|| {
        let known = NAMES.iter().filter(|(_, id)| of_kind.contains(id)).map(|(name, _)| *name);
        RuleError::new(format!("an MQTT packet '{packet}' has no field '{field}'"))
            .hint("a name, or the number of a property of MQTT 5.0")
            .suggest(&field, known)
    })?;
    args[0] = Value::Int(kind);
    args[1] = Value::Int(id);
    Ok(())
}

/// A value in a packet.
enum Content<'p> {
    Number(u64),
    Bytes(&'p [u8]),
}

/// Reads the fields of a packet one after the other.
struct Reader<'p> {
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    fn take(&mut self, size: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, size: usize) -> Option<u64> {
        Some(self.take(size)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..4 {
            let byte = self.number(1)?;
            value |= (byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Bytes behind their length.
    fn string(&mut self) -> Option<&'p [u8]> {
        let size = self.number(2)?;
        self.take(size as usize)
    }

    /// A list of properties behind its length; each at most once, but for user properties. Gives a bit for each that is not empty.
    fn properties(&mut self, known: &[i64], found: &mut dyn FnMut(i64, Content<'p>)) -> Option<u64> {
        let size = self.varint()?;
        let mut list = Reader { rest: self.take(size as usize)? };
        let (mut seen, mut with_value) = (0u64, 0u64);
        while let Some((&id, rest)) = list.rest.split_first() {
            list.rest = rest;
            if id == USER_PROPERTY {
                list.string()?;
                list.string()?;
                continue;
            }
            if !known.contains(&i64::from(id)) || seen & 1 << id != 0 {
                return None;
            }
            seen |= 1 << id;
            let content = match id {
                1 | 23 | 25 | 36 | 37 | 40 | 41 | 42 => Content::Number(list.number(1)?),
                19 | 33 | 34 => Content::Number(list.number(2)?),
                2 | 17 | 24 | 39 => Content::Number(list.number(4)?),
                _ => Content::Bytes(list.string()?),
            };
            if !matches!(content, Content::Bytes([])) {
                with_value |= 1 << id;
            }
            match (id, &content) {
                (1 | 23 | 25 | 36 | 37 | 40 | 41 | 42, Content::Number(2..)) => return None,
                _ => found(id.into(), content),
            }
        }
        Some(with_value)
    }
}

/// The kind of a packet. Each field is given to `found`; nothing when the packet is not valid.
fn parse<'p>(bytes: &'p [u8], found: &mut dyn FnMut(i64, Content<'p>)) -> Option<i64> {
    let mut reader = Reader { rest: bytes };
    let kind = reader.number(1)?;
    let size = reader.varint()?;
    // What stands behind the packet is not looked at.
    let mut reader = Reader { rest: reader.take(usize::try_from(size).ok()?)? };
    match kind {
        0x10 => connect(&mut reader, found).map(|()| CONNECT),
        0x20 => connack(&mut reader, found).map(|()| CONNACK),
        _ => None,
    }
}

fn connect<'p>(reader: &mut Reader<'p>, found: &mut dyn FnMut(i64, Content<'p>)) -> Option<()> {
    let name = reader.string()?;
    found(-2, Content::Bytes(name));
    let version = reader.number(1)?;
    found(-3, Content::Number(version));
    let named = name.eq_ignore_ascii_case(b"MQIsdp") || name.eq_ignore_ascii_case(b"MQTT");
    if !named || !matches!(version, 3..=5) {
        return None;
    }
    let flags = reader.number(1)?;
    found(-1, Content::Number(flags));
    let (will, will_qos_or_retain) = (flags & 4 != 0, flags & 0x38 != 0);
    let (user, password) = (flags & 128 != 0, flags & 64 != 0);
    if flags & 1 != 0 || (!will && will_qos_or_retain) {
        return None;
    }
    found(-9, Content::Number(reader.number(2)?));
    if version == 5 {
        let seen = reader.properties(&[17, 33, 39, 34, 25, 23, 21, 22], found)?;
        // Authentication data needs a method.
        if seen & (1 << 22) != 0 && seen & (1 << 21) == 0 {
            return None;
        }
    }
    found(-4, Content::Bytes(reader.string()?));
    if will {
        if version == 5 {
            reader.properties(&OF_WILL, found)?;
        }
        found(-5, Content::Bytes(reader.string()?));
        found(-6, Content::Bytes(reader.string()?));
    }
    if user {
        found(-7, Content::Bytes(reader.string()?));
    }
    if password {
        found(-8, Content::Bytes(reader.string()?));
    }
    reader.rest.is_empty().then_some(())
}

fn connack<'p>(reader: &mut Reader<'p>, found: &mut dyn FnMut(i64, Content<'p>)) -> Option<()> {
    let flags = reader.number(1)?;
    found(-1, Content::Number(flags));
    if flags & 0xfe != 0 {
        return None;
    }
    let reason = reader.number(1)?;
    found(-10, Content::Number(reason));
    if reason > REASON_MAX {
        return None;
    }
    if !reader.rest.is_empty() {
        found(-3, Content::Number(5));
        reader.properties(&OF_CONNACK, found)?;
    } else {
        found(-3, Content::Number(4));
    }
    reader.rest.is_empty().then_some(())
}

fn is_valid<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let bytes = sample.into_bytes();
    let is_known = bytes.len() < 2 || matches!(bytes[0], 0x10 | 0x20);
    (!is_known || is_whole(&bytes)).then(|| Sample::Bool(parse(&bytes, &mut |_, _| {}).is_some()))
}

/// Whether no more bytes are needed to judge the packet.
fn is_whole(bytes: &[u8]) -> bool {
    let mut reader = Reader { rest: bytes };
    let whole = reader.take(1).and_then(|_| reader.varint()).map(|size| size <= reader.rest.len() as u64);
    // A length of more than four bytes is wrong, however many follow.
    whole.unwrap_or(bytes.len() > 4)
}

fn field_value<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let (kind, wanted) = (args[0].int()?, args[1].int()?);
    let bytes = sample.into_bytes();
    let (mut value, mut is_5, mut has_will) = (None, false, false);
    let parsed = parse(&bytes, &mut |id, content| {
        is_5 |= id == -3 && matches!(content, Content::Number(5));
        has_will |= id == -5;
        if id == wanted {
            value = Some(match content {
                Content::Number(number) => number.to_string().into_bytes(),
                Content::Bytes(bytes) => bytes.to_vec(),
            });
        }
    });
    if parsed != Some(kind) {
        return None;
    }
    // Numbers that a packet of 5.0 does not have are 0.
    let value = match value {
        None if is_5 && NUMBERS.contains(&wanted) && (has_will || !OF_WILL.contains(&wanted)) => b"0".to_vec(),
        value => value.filter(|value| !value.is_empty())?,
    };
    Some(Sample::Str(Cow::Owned(value)))
}
