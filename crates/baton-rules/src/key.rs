//! Keys of stick tables, made of samples.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use baton_model::KeyType;
use baton_tables::{Key, OwnedKey};

use crate::sample::{Sample, leading_ipv4};

/// A sample as a key of a stick table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SampleKey<'s> {
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// An integer.
    Integer(u32),
    /// Text.
    String(Cow<'s, [u8]>),
    /// Bytes.
    Binary(Cow<'s, [u8]>),
}

impl<'s> SampleKey<'s> {
    /// A key of that type. `None`: the sample makes none, as a text that is no address.
    pub fn new(sample: Sample<'s>, kind: KeyType) -> Option<SampleKey<'s>> {
        Some(match kind {
            KeyType::Ip => SampleKey::Ip(ip(sample)?),
            KeyType::Ipv6 => SampleKey::Ipv6(ipv6(sample)?),
            // Of those that are longer, the lower 32 bits count, as in HAProxy.
            KeyType::Integer => SampleKey::Integer(sample.into_int()? as u32),
            KeyType::String { .. } => SampleKey::String(sample.into_text()),
            KeyType::Binary { .. } => SampleKey::Binary(sample.into_bytes()),
        })
    }

    /// To look for it.
    pub fn key(&self) -> Key<'_> {
        match self {
            SampleKey::Ip(address) => Key::from_ip(*address),
            SampleKey::Ipv6(address) => Key::from_ipv6(*address),
            SampleKey::Integer(number) => Key::from_integer(*number),
            SampleKey::String(text) => Key::from_string(text),
            SampleKey::Binary(bytes) => Key::from_binary(bytes),
        }
    }

    /// To keep it.
    pub fn into_owned(self) -> OwnedKey {
        match self {
            SampleKey::Ip(address) => OwnedKey::Ip(address),
            SampleKey::Ipv6(address) => OwnedKey::Ipv6(address),
            SampleKey::Integer(number) => OwnedKey::Integer(number),
            SampleKey::String(text) => OwnedKey::String(text.into()),
            SampleKey::Binary(bytes) => OwnedKey::Binary(bytes.into()),
        }
    }
}

/// An IPv4 address, also one that is written as an IPv6 one (`::ffff:192.0.2.1`).
fn ip(sample: Sample<'_>) -> Option<Ipv4Addr> {
    match sample {
        Sample::Ip(IpAddr::V6(address)) => address.to_ipv4_mapped(),
        Sample::Str(text) => leading_ipv4(&text),
        other => match other.into_ip()? {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        },
    }
}

/// An IPv6 address. An IPv4 one, unless it is text, is written as such.
fn ipv6(sample: Sample<'_>) -> Option<Ipv6Addr> {
    match sample {
        Sample::Str(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
        other => Some(match other.into_ip()? {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sample: Sample<'_>, kind: KeyType, expected: &str) {
        let key = SampleKey::new(sample.clone(), kind).map(|key| format!("{:?}", key.into_owned()));
        assert_eq!(key.as_deref().unwrap_or("none"), expected, "{sample:?}");
    }

    /// As Debian's haproxy showed them in its tables.
    #[test]
    fn samples_are_keys_as_in_haproxy() {
        let address = |text: &str| Sample::Ip(text.parse().expect("an address"));
        let text = |text: &'static str| Sample::str(text.as_bytes());
        check(address("1.2.3.4"), KeyType::Ip, "Ip(1.2.3.4)");
        check(address("::ffff:1.2.3.5"), KeyType::Ip, "Ip(1.2.3.5)");
        check(address("::1.2.3.6"), KeyType::Ip, "none");
        check(address("2002:102:307::"), KeyType::Ip, "none");
        check(text("1.2.3.4"), KeyType::Ip, "Ip(1.2.3.4)");
        check(text("1.2.3.4/24"), KeyType::Ip, "Ip(1.2.3.4)");
        check(text("::ffff:1.2.3.5"), KeyType::Ip, "none");
        check(text("abc"), KeyType::Ip, "none");
        check(Sample::Bool(true), KeyType::Ip, "none");
        check(address("1.2.3.4"), KeyType::Ipv6, "Ipv6(::ffff:1.2.3.4)");
        check(text("1.2.3.4"), KeyType::Ipv6, "none");
        check(text("::1"), KeyType::Ipv6, "Ipv6(::1)");
        check(text("-5"), KeyType::Integer, "Integer(4294967291)");
        check(text("4294967297"), KeyType::Integer, "Integer(1)");
        check(text("1a"), KeyType::Integer, "Integer(1)");
        check(text("abc"), KeyType::Integer, "Integer(0)");
        check(Sample::Int(33444), KeyType::String { length: 31 }, "String([51, 51, 52, 52, 52])");
        check(text(""), KeyType::String { length: 31 }, "String([])");
        check(text("ab"), KeyType::Binary { length: 4 }, "Binary([97, 98])");
    }
}
