//! Samples: what a fetch gives and a converter changes, and the casts between their types.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

/// The types of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Type {
    /// Any: known only when evaluated.
    Any,
    /// A boolean.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An IPv4 or IPv6 address.
    Ip,
    /// Text.
    Str,
    /// Bytes that may hold anything, NUL included.
    Bin,
    /// An HTTP method.
    Method,
}

impl Type {
    /// The manual's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Type::Any => "any",
            Type::Bool => "boolean",
            Type::Int => "integer",
            Type::Ip => "ip",
            Type::Str => "string",
            Type::Bin => "binary",
            Type::Method => "method",
        }
    }

    /// Whether a sample of this type may be used where `to` is wanted (configuration manual 7.3, table of casts).
    pub fn casts_to(self, to: Type) -> bool {
        use Type::*;
        match (self, to) {
            (Any, _) | (_, Any) => true,
            (Bool, Ip) | (Ip, Bool) => false,
            (Bool | Int | Ip, Method) => false,
            (Bin | Method, Bool | Int | Ip) => false,
            (Bool | Int | Ip | Str | Bin | Method, _) => true,
        }
    }
}

/// A value taken from a connection or a message. Text borrows from the message where it can.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Sample<'a> {
    /// [`Type::Bool`].
    Bool(bool),
    /// [`Type::Int`].
    Int(i64),
    /// [`Type::Ip`].
    Ip(IpAddr),
    /// [`Type::Str`].
    Str(Cow<'a, [u8]>),
    /// [`Type::Bin`].
    Bin(Cow<'a, [u8]>),
    /// [`Type::Method`].
    Method(Cow<'a, [u8]>),
}

impl<'a> Sample<'a> {
    /// A text that borrows.
    pub fn str(bytes: &'a [u8]) -> Sample<'a> {
        Sample::Str(Cow::Borrowed(bytes))
    }

    /// Its type.
    pub fn kind(&self) -> Type {
        match self {
            Sample::Bool(_) => Type::Bool,
            Sample::Int(_) => Type::Int,
            Sample::Ip(_) => Type::Ip,
            Sample::Str(_) => Type::Str,
            Sample::Bin(_) => Type::Bin,
            Sample::Method(_) => Type::Method,
        }
    }

    /// How many bytes it holds that are not borrowed.
    pub(crate) fn added_bytes(&self) -> usize {
        match self {
            Sample::Str(Cow::Owned(bytes)) | Sample::Bin(Cow::Owned(bytes)) | Sample::Method(Cow::Owned(bytes)) => {
                bytes.len()
            }
            _ => 0,
        }
    }

    /// Copies what the sample borrows.
    pub fn into_owned(self) -> Sample<'static> {
        let own = |bytes: Cow<'a, [u8]>| Cow::Owned(bytes.into_owned());
        match self {
            Sample::Bool(value) => Sample::Bool(value),
            Sample::Int(value) => Sample::Int(value),
            Sample::Ip(value) => Sample::Ip(value),
            Sample::Str(bytes) => Sample::Str(own(bytes)),
            Sample::Bin(bytes) => Sample::Bin(own(bytes)),
            Sample::Method(bytes) => Sample::Method(own(bytes)),
        }
    }

    /// A copy that borrows from this one.
    pub fn borrowed(&self) -> Sample<'_> {
        match self {
            Sample::Bool(value) => Sample::Bool(*value),
            Sample::Int(value) => Sample::Int(*value),
            Sample::Ip(value) => Sample::Ip(*value),
            Sample::Str(bytes) => Sample::Str(Cow::Borrowed(bytes)),
            Sample::Bin(bytes) => Sample::Bin(Cow::Borrowed(bytes)),
            Sample::Method(bytes) => Sample::Method(Cow::Borrowed(bytes)),
        }
    }

    /// As text: numbers in decimal, booleans as `0` and `1`, binary up to its first NUL as HAProxy does.
    pub fn into_text(self) -> Cow<'a, [u8]> {
        match self {
            Sample::Str(bytes) | Sample::Method(bytes) => bytes,
            Sample::Bin(bytes) => match memchr::memchr(0, &bytes) {
                None => bytes,
                Some(end) => cut(bytes, 0, end),
            },
            Sample::Bool(value) => Cow::Borrowed(if value { b"1" } else { b"0" }),
            other => {
                let mut out = Vec::new();
                other.write(&mut out);
                Cow::Owned(out)
            }
        }
    }

    /// As bytes: binary in full, integers as 8 bytes and addresses as 4 or 16 in network order.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        match self {
            Sample::Str(bytes) | Sample::Bin(bytes) | Sample::Method(bytes) => bytes,
            Sample::Bool(value) => Cow::Owned(i64::from(value).to_be_bytes().to_vec()),
            Sample::Int(value) => Cow::Owned(value.to_be_bytes().to_vec()),
            Sample::Ip(IpAddr::V4(address)) => Cow::Owned(address.octets().to_vec()),
            Sample::Ip(IpAddr::V6(address)) => Cow::Owned(address.octets().to_vec()),
        }
    }

    /// Appends the text of the sample.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Sample::Bool(value) => out.push(b'0' + u8::from(*value)),
            Sample::Int(value) => write_decimal(*value, out),
            Sample::Ip(IpAddr::V4(value)) => write_ipv4(*value, out),
            Sample::Ip(value) => match embedded_ipv4(*value) {
                Some(embedded) => _ = write!(out, "::{embedded}"),
                None => _ = write!(out, "{value}"),
            },
            Sample::Str(bytes) | Sample::Method(bytes) => out.extend_from_slice(bytes),
            Sample::Bin(bytes) => out.extend_from_slice(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]),
        }
    }

    /// As an integer. Text gives its leading number, 0 if there is none, nothing if it is empty.
    pub fn into_int(self) -> Option<i64> {
        match self {
            Sample::Bool(value) => Some(i64::from(value)),
            Sample::Int(value) => Some(value),
            Sample::Ip(IpAddr::V4(address)) => Some(i64::from(u32::from(address))),
            Sample::Ip(IpAddr::V6(_)) => None,
            Sample::Str(bytes) => leading_int(&bytes),
            Sample::Bin(_) | Sample::Method(_) => None,
        }
    }

    /// As a boolean: a number that is not 0.
    pub fn into_bool(self) -> Option<bool> {
        match self {
            Sample::Bool(value) => Some(value),
            Sample::Ip(_) => None,
            other => other.into_int().map(|value| value != 0),
        }
    }

    /// As an address.
    pub fn into_ip(self) -> Option<IpAddr> {
        match self {
            Sample::Ip(address) => Some(address),
            Sample::Int(value) => Some(IpAddr::V4(Ipv4Addr::from(value as u32))),
            Sample::Str(bytes) => address(&bytes),
            Sample::Bool(_) | Sample::Bin(_) | Sample::Method(_) => None,
        }
    }

    /// The sample as `to`.
    pub fn cast(self, to: Type) -> Option<Sample<'a>> {
        if self.kind() == to {
            return Some(self);
        }
        match to {
            Type::Any => Some(self),
            Type::Bool => self.into_bool().map(Sample::Bool),
            Type::Int => self.into_int().map(Sample::Int),
            Type::Ip => self.into_ip().map(Sample::Ip),
            Type::Str => Some(Sample::Str(self.into_text())),
            Type::Bin => Some(Sample::Bin(self.into_bytes())),
            Type::Method => Some(Sample::Method(self.into_text())),
        }
    }
}

/// The part `start..end` of `bytes`, borrowed if it was; the range is clamped.
pub(crate) fn cut(bytes: Cow<'_, [u8]>, start: usize, end: usize) -> Cow<'_, [u8]> {
    let end = end.min(bytes.len());
    let start = start.min(end);
    match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[start..end]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(end);
            bytes.drain(..start);
            Cow::Owned(bytes)
        }
    }
}

/// The IPv4 address in an IPv6 one of `::/96`, which inet_ntop(3) writes as such.
fn embedded_ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(address) if (1 << 16..1 << 32).contains(&u128::from(address)) => {
            Some(Ipv4Addr::from(u128::from(address) as u32))
        }
        _ => None,
    }
}

/// The address that `bytes` are. As in HAProxy, an IPv4 address may have zeros in front of its numbers and anything but a point behind.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    leading_ipv4(bytes).map(IpAddr::V4).or_else(|| std::str::from_utf8(bytes).ok()?.parse().ok())
}

/// The IPv4 address at the start of `bytes`.
pub(crate) fn leading_ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut rest = bytes;
    for (place, octet) in octets.iter_mut().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, behind) = rest.split_at(end);
        let significant = &digits[digits.iter().take_while(|&&digit| digit == b'0').count()..];
        *octet = match (digits, significant) {
            ([], _) => return None,
            (_, []) => 0,
            (_, significant) => std::str::from_utf8(significant).ok()?.parse().ok()?,
        };
        rest = behind;
    }
    (rest.first() != Some(&b'.')).then(|| Ipv4Addr::from(octets))
}

/// The number at the start of `bytes`, as HAProxy reads one: digits after a sign, saturating; 0 without digits.
pub(crate) fn leading_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [] => return None,
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut value: i64 = 0;
    for &byte in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let digit = i64::from(byte - b'0');
        let next = value
            .checked_mul(10)
            .and_then(|value| if negative { value.checked_sub(digit) } else { value.checked_add(digit) });
        value = match next {
            Some(next) => next,
            None => return Some(if negative { i64::MIN } else { i64::MAX }),
        };
    }
    Some(value)
}

/// Appends a number in decimal digits. Rules and log lines do it for each request: by the library it costs three times as much.
pub(crate) fn write_decimal(value: i64, out: &mut Vec<u8>) {
    if let 0..10 = value {
        return out.push(b'0' + value as u8);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends an address as `192.0.2.1`.
pub(crate) fn write_ipv4(address: Ipv4Addr, out: &mut Vec<u8>) {
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        write_decimal(octet.into(), out);
    }
}
