//! How values are written in a format: quoted, escaped, as JSON or as CBOR; and what no value may contain.

use std::borrow::Cow;
use std::io::Write;

use crate::converter::hex_pair;

/// What the flags of an item say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Flags {
    /// `Q`: text in quotes.
    pub quote: bool,
    /// `X`: addresses, ports and counters in hexadecimal digits.
    pub hex: bool,
    /// `E`: a backslash before `"`, `\` and `]`.
    pub escape: bool,
    /// `bin`: binary values, and CBOR, as they are.
    pub binary: bool,
    /// `json` or `cbor`.
    pub encoding: Option<Encoding>,
}

/// The encodings of whole lines and of single items.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Encoding {
    Json,
    Cbor,
}

/// Which bytes of a text are written as `#XX`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Charset {
    /// As it is: controls apart, which end lines.
    Plain,
    /// A request line or a part of one.
    Line,
    /// A captured header, between braces and bars.
    Capture,
}

impl Charset {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    const fn encodes(self, byte: u8) -> bool {
        match self {
            Charset::Plain => byte.is_ascii_control() && byte != b'\t',
            Charset::Line => matches!(byte, b'"' | b'#' | 0..=31 | 127..=255),
            Charset::Capture => matches!(byte, b'"' | b'#' | b'{' | b'|' | b'}' | 0..=31 | 127..=255),
        }
    }
}

/// By byte, as bits: the charsets that encode it, and whether it is escaped.
const SPECIAL: [u8; 256] = {
    let charsets = [Charset::Plain, Charset::Line, Charset::Capture];
    let mut bits = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut at = 0;
        while at < charsets.len() {
            if charsets[at].encodes(byte as u8) {
                bits[byte] |= charsets[at].bit();
            }
            at += 1;
        }
        if matches!(byte as u8, b'"' | b'\\' | b']') {
            bits[byte] |= ESCAPED;
        }
        byte += 1;
    }
    bits
};
const ESCAPED: u8 = 1 << 7;

/// Appends a text. Where nothing has to be replaced it is one copy.
pub(super) fn text(bytes: &[u8], charset: Charset, escape: bool, out: &mut Vec<u8>) {
    let bits = charset.bit() | if escape { ESCAPED } else { 0 };
    let is_special = |byte: u8| SPECIAL[usize::from(byte)] & bits != 0;
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        if charset.encodes(byte) {
            out.push(b'#');
            out.extend_from_slice(&hex_pair(byte));
        } else {
            out.extend_from_slice(&[b'\\', byte]);
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// A value of an encoded line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Text(Cow<'a, [u8]>),
    Bytes(Cow<'a, [u8]>),
}

impl Item<'_> {
    /// Appends it in JSON (RFC 8259). Bytes that are no UTF-8 become U+FFFD.
    pub fn json(&self, out: &mut Vec<u8>) {
        let _ = match self {
            Item::Null => write!(out, "null"),
            Item::Bool(value) => write!(out, "{value}"),
            Item::Int(value) => write!(out, "{value}"),
            Item::Text(bytes) | Item::Bytes(bytes) => {
                json_text(bytes, out);
                return;
            }
        };
    }

    /// Appends it in CBOR (RFC 8949).
    pub fn cbor(&self, out: &mut Vec<u8>) {
        match self {
            Item::Null => out.push(0xf6),
            Item::Bool(value) => out.push(0xf4 + u8::from(*value)),
            Item::Int(value) if *value >= 0 => cbor_head(0, *value as u64, out),
            Item::Int(value) => cbor_head(1, !*value as u64, out),
            Item::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                cbor_head(3, text.len() as u64, out);
                out.extend_from_slice(text.as_bytes());
            }
            Item::Bytes(bytes) => {
                cbor_head(2, bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// Appends a text between quotes, as JSON has it.
pub(super) fn json_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            control if control.is_control() => _ = write!(out, "\\u{:04x}", u32::from(control)),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends the head of a data item: its major type and a number.
fn cbor_head(major: u8, number: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Writes the bytes from `start` on in hexadecimal digits.
pub(super) fn to_hex(out: &mut Vec<u8>, start: usize) {
    let raw = out.split_off(start);
    raw.iter().for_each(|byte| out.extend_from_slice(&hex_pair(*byte)));
}

/// Replaces control characters but tabs from `start` on by `%XX`.
pub(super) fn encode_controls(out: &mut Vec<u8>, start: usize) {
    let control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if !out[start..].iter().any(control) {
        return;
    }
    let raw = out.split_off(start);
    for byte in raw {
        if control(&byte) {
            out.push(b'%');
            out.extend_from_slice(&hex_pair(byte));
        } else {
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(item: Item<'_>, json: &str, cbor: &[u8]) {
        let (mut as_json, mut as_cbor) = (Vec::new(), Vec::new());
        item.json(&mut as_json);
        item.cbor(&mut as_cbor);
        assert_eq!((String::from_utf8_lossy(&as_json).as_ref(), &as_cbor[..]), (json, cbor));
    }

    #[test]
    fn items_are_valid_json_and_cbor() {
        let text = |bytes: &'static [u8]| Item::Text(bytes.into());
        check(Item::Null, "null", &[0xf6]);
        check(Item::Bool(true), "true", &[0xf5]);
        check(Item::Int(23), "23", &[0x17]);
        check(Item::Int(-1), "-1", &[0x20]);
        check(Item::Int(500), "500", &[0x19, 0x01, 0xf4]);
        check(Item::Int(i64::MIN), "-9223372036854775808", &[0x3b, 0x7f, 255, 255, 255, 255, 255, 255, 255]);
        check(text(b"a\"\\\n\x01\x7f"), "\"a\\\"\\\\\\n\\u0001\\u007f\"", b"\x66a\"\\\n\x01\x7f");
        check(text(b"\xff"), "\"\u{fffd}\"", b"\x63\xef\xbf\xbd");
        check(Item::Bytes(b"\x00\x01".as_slice().into()), "\"\\u0000\\u0001\"", &[0x42, 0, 1]);
    }
}
