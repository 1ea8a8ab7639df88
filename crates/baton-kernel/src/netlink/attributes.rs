//! Attributes: a kind, a length and a value, one inside another.

use netlink_packet_core::{NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator};

/// What attributes are aligned to.
const ALIGNMENT: usize = 4;
/// The longest value an attribute can have.
const VALUE_MAX: usize = u16::MAX as usize - NLA_HEADER_SIZE;

/// Attributes of a message that is being made, in the order in which they are added.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value as it is.
    ///
    /// # Panics
    /// For one of 64 KiB, which no attribute can hold: what this crate sends is made by itself and is short.
    #[must_use]
    pub fn raw(mut self, kind: u16, value: &[u8]) -> Self {
        assert!(value.len() <= VALUE_MAX, "an attribute of {} bytes", value.len());
        self.0.extend_from_slice(&((NLA_HEADER_SIZE + value.len()) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// A text that ends with a zero.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.raw(kind, &bytes)
    }

    /// A number of one byte.
    #[must_use]
    pub fn u8(self, kind: u16, value: u8) -> Self {
        self.raw(kind, &[value])
    }

    /// A number in this machine's order.
    #[must_use]
    pub fn u16(self, kind: u16, value: u16) -> Self {
        self.raw(kind, &value.to_ne_bytes())
    }

    /// A number in this machine's order, as routing netlink wants.
    #[must_use]
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.raw(kind, &value.to_ne_bytes())
    }

    /// A number in the network's order, as netfilter wants.
    #[must_use]
    pub fn u16_be(self, kind: u16, value: u16) -> Self {
        self.raw(kind, &value.to_be_bytes())
    }

    /// A number in the network's order, as netfilter wants.
    #[must_use]
    pub fn u32_be(self, kind: u16, value: u32) -> Self {
        self.raw(kind, &value.to_be_bytes())
    }

    /// A number in the network's order, as netfilter wants.
    #[must_use]
    pub fn u64_be(self, kind: u16, value: u64) -> Self {
        self.raw(kind, &value.to_be_bytes())
    }

    /// Attributes in an attribute.
    #[must_use]
    pub fn nest(self, kind: u16, inner: &Attributes) -> Self {
        self.raw(kind | NLA_F_NESTED, &inner.0)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Attributes of a message that came. What is broken ends the list: the kernel sends none of it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

/// One attribute that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its kind, without flags.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The attributes in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Attribute<'a>> {
        NlasIterator::new(self.0).map_while(Result::ok).map(|found| {
            let (kind, length) = (found.kind(), found.value_length());
            Attribute { kind, value: &found.into_inner()[NLA_HEADER_SIZE..][..length] }
        })
    }

    /// The first of a kind.
    pub fn find(self, kind: u16) -> Option<Attribute<'a>> {
        self.iter().find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Attribute<'a> {
    /// The attributes inside.
    pub fn nested(self) -> Reader<'a> {
        Reader::new(self.value)
    }

    /// A text, without the zero at its end.
    pub fn text(self) -> Option<&'a str> {
        let text = self.value.strip_suffix(&[0]).unwrap_or(self.value);
        std::str::from_utf8(text).ok()
    }

    /// A number of one byte.
    pub fn u8(self) -> Option<u8> {
        self.value.first().copied()
    }

    /// A number in this machine's order.
    pub fn u16(self) -> Option<u16> {
        self.value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
    }

    /// A number in the network's order.
    pub fn u16_be(self) -> Option<u16> {
        self.value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// A number in this machine's order.
    pub fn u64(self) -> Option<u64> {
        self.value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// A number in this machine's order.
    pub fn u32(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// A number in the network's order.
    pub fn u32_be(self) -> Option<u32> {
        self.value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// A number in the network's order.
    pub fn u64_be(self) -> Option<u64> {
        self.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }
}
