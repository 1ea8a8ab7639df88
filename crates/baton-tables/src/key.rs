//! Keys of entries: what callers look for, and what tables give back.

use std::net::{Ipv4Addr, Ipv6Addr};

use baton_model::KeyType;

/// A key to look for. A table takes it as its type wants it: longer ones are cut, shorter ones of a fixed length are padded with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a>(KeyBytes<'a>);

#[derive(Clone, Copy, Debug)]
enum KeyBytes<'a> {
    Short([u8; 16], u8),
    Borrowed(&'a [u8]),
}

impl Key<'static> {
    /// Of an IPv4 address.
    pub fn from_ip(address: Ipv4Addr) -> Key<'static> {
        Key::short(&address.octets())
    }

    /// Of an IPv6 address.
    pub fn from_ipv6(address: Ipv6Addr) -> Key<'static> {
        Key::short(&address.octets())
    }

    /// Of an integer.
    pub fn from_integer(number: u32) -> Key<'static> {
        Key::short(&number.to_be_bytes())
    }

    fn short(from: &[u8]) -> Key<'static> {
        let mut bytes = [0; 16];
        bytes[..from.len()].copy_from_slice(from);
        Key(KeyBytes::Short(bytes, from.len() as u8))
    }
}

impl<'a> Key<'a> {
    /// Of text, which ends at a NUL byte.
    pub fn from_string(text: &'a [u8]) -> Key<'a> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Key(KeyBytes::Borrowed(&text[..end]))
    }

    /// Of bytes.
    pub fn from_binary(bytes: &'a [u8]) -> Key<'a> {
        Key(KeyBytes::Borrowed(bytes))
    }

    /// As it was made: addresses and integers in network order.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            KeyBytes::Short(bytes, length) => &bytes[..usize::from(*length)],
            KeyBytes::Borrowed(bytes) => bytes,
        }
    }
}

/// The key of an entry.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum OwnedKey {
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// An integer.
    Integer(u32),
    /// Text, without NUL bytes.
    String(Box<[u8]>),
    /// Bytes, as many as the table's keys have.
    Binary(Box<[u8]>),
}

impl OwnedKey {
    /// To look for it, in this table or another one.
    pub fn as_key(&self) -> Key<'_> {
        match self {
            OwnedKey::Ip(address) => Key::from_ip(*address),
            OwnedKey::Ipv6(address) => Key::from_ipv6(*address),
            OwnedKey::Integer(number) => Key::from_integer(*number),
            OwnedKey::String(text) => Key::from_string(text),
            OwnedKey::Binary(bytes) => Key::from_binary(bytes),
        }
    }

    /// Of the bytes that a table keeps, which are padded with zeros.
    pub(crate) fn of(key_type: KeyType, bytes: &[u8]) -> OwnedKey {
        let four = || bytes.first_chunk().copied().unwrap_or_default();
        match key_type {
            KeyType::Ip => OwnedKey::Ip(Ipv4Addr::from(four())),
            KeyType::Integer => OwnedKey::Integer(u32::from_be_bytes(four())),
            KeyType::Ipv6 => OwnedKey::Ipv6(Ipv6Addr::from(bytes.first_chunk::<16>().copied().unwrap_or_default())),
            KeyType::String { .. } => OwnedKey::String(Key::from_string(bytes).bytes().into()),
            KeyType::Binary { .. } => OwnedKey::Binary(bytes.into()),
        }
    }
}
