//! DER (ITU-T X.690), as far as certificates and keys of RFC 5280, RFC 5208, RFC 5915 and RFC 8017 use it: a cursor over
//! bytes that gives one element after the other. It allocates nothing and refuses what DER forbids or what is out of use here:
//! indefinite lengths, lengths that are not the shortest, tags above 30.

/// `BOOLEAN`.
pub(crate) const BOOLEAN: u8 = 0x01;
/// `INTEGER`.
pub(crate) const INTEGER: u8 = 0x02;
/// `BIT STRING`.
pub(crate) const BIT_STRING: u8 = 0x03;
/// `OCTET STRING`.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// `OBJECT IDENTIFIER`.
pub(crate) const OID: u8 = 0x06;
/// `ENUMERATED`.
pub(crate) const ENUMERATED: u8 = 0x0a;
/// `SEQUENCE`.
pub(crate) const SEQUENCE: u8 = 0x30;
/// `SET`.
pub(crate) const SET: u8 = 0x31;
/// `UTF8String`.
pub(crate) const UTF8_STRING: u8 = 0x0c;
/// `BMPString`.
pub(crate) const BMP_STRING: u8 = 0x1e;
/// `UniversalString`.
pub(crate) const UNIVERSAL_STRING: u8 = 0x1c;
/// `UTCTime`.
pub(crate) const UTC_TIME: u8 = 0x17;
/// `GeneralizedTime`.
pub(crate) const GENERALIZED_TIME: u8 = 0x18;

/// The tag `[n]` of a constructed element.
pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// An element of a tag and what is in it, which is shorter than 16 MiB.
pub(crate) fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (content.len() as u32).to_be_bytes();
    let mut element = vec![tag];
    match content.len() {
        0..=0x7f => element.push(low),
        0x80..=0xff => element.extend([0x81, low]),
        0x100..=0xffff => element.extend([0x82, middle, low]),
        _ => element.extend([0x83, high, middle, low]),
    }
    element.extend(content);
    element
}

/// Bytes of which elements are taken from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a> {
    rest: &'a [u8],
}

/// One element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// Class, form and number, as the first byte says them.
    pub(crate) tag: u8,
    /// The content.
    pub(crate) content: &'a [u8],
    /// Tag, length and content.
    pub(crate) whole: &'a [u8],
}

impl<'a> Der<'a> {
    /// Everything in `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Der<'a> {
        Der { rest: bytes }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    /// What is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The tag of what comes next.
    pub(crate) fn peek(self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next element; `None` at the end, and where this is no DER.
    pub(crate) fn any(&mut self) -> Option<Element<'a>> {
        let bytes = self.rest;
        let (&tag, &first) = (bytes.first()?, bytes.get(1)?);
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (head, length) = match first {
            0..=0x7f => (2, usize::from(first)),
            0x81 => (3, usize::from(*bytes.get(2)?)),
            0x82 => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
            0x83 => (5, u32::from_be_bytes([0, *bytes.get(2)?, *bytes.get(3)?, *bytes.get(4)?]) as usize),
            _ => return None,
        };
        let shortest = match head {
            2 => true,
            3 => length >= 0x80,
            4 => length >= 0x100,
            _ => length >= 0x1_0000,
        };
        if !shortest {
            return None;
        }
        let content = bytes.get(head..head + length)?;
        let (whole, rest) = bytes.split_at(head + length);
        self.rest = rest;
        Some(Element { tag, content, whole })
    }

    /// The next element, which must be a `tag`.
    pub(crate) fn element(&mut self, tag: u8) -> Option<Element<'a>> {
        let mut ahead = *self;
        let element = ahead.any().filter(|element| element.tag == tag)?;
        *self = ahead;
        Some(element)
    }

    /// The content of the next element, which must be a `tag`.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element(tag).map(|element| element.content)
    }

    /// What is inside the next element, which must be a `tag`.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Der<'a>> {
        self.take(tag).map(Der::new)
    }

    /// The next element if it is a `tag`: `Ok(None)` leaves another in its place.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.peek() == Some(tag) { self.take(tag).map(Some) } else { Some(None) }
    }

    /// The next element, which must be an `INTEGER` of zero or more: its bytes without a leading zero.
    pub(crate) fn unsigned(&mut self) -> Option<&'a [u8]> {
        match self.take(INTEGER)? {
            [] => None,
            [0] => Some(&[]),
            [0, rest @ ..] if rest[0] >= 0x80 => Some(rest),
            [0, ..] => None,
            [first, ..] if *first >= 0x80 => None,
            all => Some(all),
        }
    }

    /// The next element, which must be a `BIT STRING` of whole bytes.
    pub(crate) fn bits(&mut self) -> Option<&'a [u8]> {
        match self.take(BIT_STRING)? {
            [0, bytes @ ..] => Some(bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_one_after_the_other() {
        let bytes = [0x30, 6, 0x02, 1, 5, 0x04, 1, 9, 0x05, 0];
        let mut der = Der::new(&bytes);
        let mut inner = der.enter(SEQUENCE).unwrap();
        assert_eq!(inner.optional(OID), Some(None));
        assert_eq!((inner.unsigned(), inner.take(INTEGER)), (Some(&[5][..]), None));
        assert_eq!((inner.take(OCTET_STRING), inner.is_empty()), (Some(&[9][..]), true));
        assert_eq!(der.any().map(|element| (element.tag, element.whole.len())), Some((5, 2)));
        assert!(der.any().is_none() && der.is_empty());
    }

    #[test]
    fn what_is_no_der_is_refused() {
        for bytes in [
            &[0x30][..],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 0x7f],
            &[0x30, 0x82, 0, 0x80],
            &[0x30, 0x83, 0, 1, 0],
            &[0x30, 0x84, 0, 0, 0, 0],
            &[0x1f, 0x01, 0],
        ] {
            assert!(Der::new(bytes).any().is_none(), "{bytes:x?}");
        }
    }

    #[test]
    fn numbers_are_the_shortest_and_not_negative() {
        let number = |bytes: &'static [u8]| Der::new(bytes).unsigned();
        assert_eq!(number(&[2, 1, 0]), Some(&[][..]));
        assert_eq!(number(&[2, 2, 0, 0x80]), Some(&[0x80][..]));
        assert_eq!(number(&[2, 2, 0, 0x7f]), None);
        assert_eq!(number(&[2, 1, 0x80]), None);
        assert_eq!(number(&[2, 0]), None);
    }
}
