//! A client's first message, read without answering it (RFC 8446 4.1.2, RFC 5246 7.4.1.2, RFC 6066 3).
//!
//! It judges nothing beyond the shape of the message: whether it is acceptable, rustls says. What stands in one record is
//! read where it is; what was split over several is put together first.

use std::borrow::Cow;
use std::ops::Range;

use rustls::SignatureScheme;

/// The longest ClientHello that is read, in bytes: what rustls takes.
pub const HELLO_MAX: usize = 0xffff;

/// Bytes that announce a record: type, version, length.
const RECORD_HEADER: usize = 5;
/// Bytes that announce a handshake message: type, length.
const MESSAGE_HEADER: usize = 4;
/// The longest content of a record without encryption (RFC 8446 5.1), in bytes.
const RECORD_MAX: usize = 1 << 14;

/// Extensions that are looked at, by their numbers.
mod extension {
    pub(super) const SERVER_NAME: u16 = 0;
    pub(super) const GROUPS: u16 = 10;
    pub(super) const POINT_FORMATS: u16 = 11;
    pub(super) const SIGNATURES: u16 = 13;
    pub(super) const ALPN: u16 = 16;
    pub(super) const SESSION_TICKET: u16 = 35;
    pub(super) const VERSIONS: u16 = 43;
}

/// What a ClientHello says, as far as a choice may depend on it.
#[derive(Clone, Debug, Default)]
pub struct Hello<'a> {
    /// The message behind its header.
    body: Cow<'a, [u8]>,
    record_version: u16,
    session_id: Range<usize>,
    ciphers: Range<usize>,
    extensions: Range<usize>,
    sni: Option<Range<usize>>,
    groups: Option<Range<usize>>,
    point_formats: Option<Range<usize>>,
    signatures: Option<Range<usize>>,
    alpn: Option<Range<usize>>,
    ticket: Option<Range<usize>>,
    versions: Option<Range<usize>>,
}

/// More bytes are needed before a hello can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Incomplete;

impl<'a> Hello<'a> {
    /// Reads the records at the start of what a client sent. `Ok(None)`: this is no ClientHello, or one that cannot be read.
    ///
    /// # Errors
    /// When its end has not come yet.
    pub fn read(records: &'a [u8]) -> Result<Option<Hello<'a>>, Incomplete> {
        let Some(first) = Record::read(records)? else { return Ok(None) };
        let Some(whole) = wanted(first.content) else { return Ok(None) };
        let body = match first.content.get(MESSAGE_HEADER..whole) {
            Some(body) => Cow::Borrowed(body),
            None => match gather(records)? {
                Some(body) => Cow::Owned(body),
                None => return Ok(None),
            },
        };
        Ok(Hello { body, record_version: first.version, ..Hello::default() }.parsed())
    }

    fn parsed(mut self) -> Option<Hello<'a>> {
        let mut at = Cursor { bytes: &self.body, range: 0..self.body.len() };
        at.take(2 + 32)?;
        let session_id = at.list8()?;
        let ciphers = at.list16()?;
        let _compression = at.list8()?;
        // Hellos without any extension end here (RFC 5246 7.4.1.2).
        let extensions = if at.range.is_empty() { 0..0 } else { at.list16()? };
        let mut found = ExtensionRanges::default();
        let mut each = Cursor { bytes: &self.body, range: extensions.clone() };
        while !each.range.is_empty() {
            let number = each.number16()?;
            let content = each.list16()?;
            found.take(&self.body, number, content);
        }
        let ExtensionRanges { sni, groups, point_formats, signatures, alpn, ticket, versions } = found;
        (self.sni, self.groups, self.point_formats) = (sni, groups, point_formats);
        (self.signatures, self.alpn, self.ticket, self.versions) = (signatures, alpn, ticket, versions);
        (self.session_id, self.ciphers, self.extensions) = (session_id, ciphers, extensions);
        Some(self)
    }

    /// The name in `server_name`, as it was sent; `None` when there is none or it is no text.
    pub fn sni(&self) -> Option<&str> {
        std::str::from_utf8(self.list(&self.sni)?).ok()
    }

    /// The version that the first record names (`3.1` is 0x0301).
    pub fn record_version(&self) -> u16 {
        self.record_version
    }

    /// The version of the message: 0x0303 also where newer ones are offered by [`Hello::versions`].
    pub fn version(&self) -> u16 {
        self.body.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    /// The versions of `supported_versions`; none where there is no such extension.
    pub fn versions(&self) -> impl Iterator<Item = u16> {
        numbers(self.list(&self.versions).unwrap_or_default())
    }

    /// The session that is to be resumed, or bytes that mean nothing (RFC 8446 D.4).
    pub fn session_id(&self) -> &[u8] {
        &self.body[self.session_id.clone()]
    }

    /// The list of cipher suites, two bytes each.
    pub fn ciphers(&self) -> &[u8] {
        &self.body[self.ciphers.clone()]
    }

    /// The numbers of all extensions, in the order they were sent.
    pub fn extensions(&self) -> impl Iterator<Item = u16> {
        let mut each = Cursor { bytes: &self.body, range: self.extensions.clone() };
        std::iter::from_fn(move || {
            let number = each.number16()?;
            each.list16()?;
            Some(number)
        })
    }

    /// The groups for the key exchange, two bytes each; `None` where there is no such extension.
    pub fn groups(&self) -> Option<&[u8]> {
        self.list(&self.groups)
    }

    /// The formats of points on curves, a byte each; `None` where there is no such extension.
    pub fn point_formats(&self) -> Option<&[u8]> {
        self.list(&self.point_formats)
    }

    /// The signature algorithms that the client verifies.
    pub fn signatures(&self) -> impl Iterator<Item = SignatureScheme> {
        numbers(self.list(&self.signatures).unwrap_or_default()).map(SignatureScheme::from)
    }

    /// The protocols of ALPN, in the client's order.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        let mut each = Cursor { bytes: &self.body, range: self.alpn.clone().unwrap_or_default() };
        std::iter::from_fn(move || each.list8().map(|name| &self.body[name]))
    }

    /// The session ticket of RFC 5077: empty where the client could take one, `None` where there is no such extension.
    pub fn ticket(&self) -> Option<&[u8]> {
        self.list(&self.ticket)
    }

    /// All of the message behind its header.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    fn list(&self, range: &Option<Range<usize>>) -> Option<&[u8]> {
        self.body.get(range.clone()?)
    }
}

/// Where extensions are; of one that comes twice, which nobody may send, the first.
#[derive(Default)]
struct ExtensionRanges {
    sni: Option<Range<usize>>,
    groups: Option<Range<usize>>,
    point_formats: Option<Range<usize>>,
    signatures: Option<Range<usize>>,
    alpn: Option<Range<usize>>,
    ticket: Option<Range<usize>>,
    versions: Option<Range<usize>>,
}

impl ExtensionRanges {
    /// Keeps where the content of an extension's list is. One that is not as it should be counts as not sent.
    fn take(&mut self, bytes: &[u8], number: u16, content: Range<usize>) {
        let mut inside = Cursor { bytes, range: content.clone() };
        let (place, list) = match number {
            extension::SERVER_NAME => (&mut self.sni, inside.list16().and_then(|names| host_name(bytes, names))),
            extension::GROUPS => (&mut self.groups, inside.list16()),
            extension::POINT_FORMATS => (&mut self.point_formats, inside.list8()),
            extension::SIGNATURES => (&mut self.signatures, inside.list16()),
            extension::ALPN => (&mut self.alpn, inside.list16()),
            extension::SESSION_TICKET => (&mut self.ticket, Some(content)),
            extension::VERSIONS => (&mut self.versions, inside.list8()),
            _ => return,
        };
        if place.is_none() {
            *place = list;
        }
    }
}

/// The first name of type `host_name` (RFC 6066 3).
fn host_name(bytes: &[u8], names: Range<usize>) -> Option<Range<usize>> {
    let mut each = Cursor { bytes, range: names };
    loop {
        let kind = each.take(1)?;
        let name = each.list16()?;
        if bytes[kind.start] == 0 {
            return (!name.is_empty()).then_some(name);
        }
    }
}

/// Two bytes each; half a number at the end is nothing.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// A record of the handshake, as far as it is there.
struct Record<'a> {
    version: u16,
    content: &'a [u8],
    /// All of the content is there.
    complete: bool,
}

impl<'a> Record<'a> {
    /// The one at the start. `Ok(None)`: this is none of a handshake.
    fn read(bytes: &'a [u8]) -> Result<Option<Record<'a>>, Incomplete> {
        const HANDSHAKE: u8 = 22;
        if bytes.first().is_some_and(|&kind| kind != HANDSHAKE) || bytes.get(1).is_some_and(|&major| major != 3) {
            return Ok(None);
        }
        let Some((&[_, major, minor, high, low], rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
            return Err(Incomplete);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > RECORD_MAX {
            return Ok(None);
        }
        let there = length.min(rest.len());
        Ok(Some(Record {
            version: u16::from_be_bytes([major, minor]),
            content: &rest[..there],
            complete: there == length,
        }))
    }
}

/// How many bytes are needed of the message whose start is given: all of it, or its header if that is not there yet. `None`:
/// it is no ClientHello, or too long.
fn wanted(start: &[u8]) -> Option<usize> {
    const CLIENT_HELLO: u8 = 1;
    match *start {
        [kind, ..] if kind != CLIENT_HELLO => None,
        [_, high, middle, low, ..] => {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            (length <= HELLO_MAX).then_some(MESSAGE_HEADER + length)
        }
        _ => Some(MESSAGE_HEADER),
    }
}

/// A message that is split over records, without its header.
fn gather(records: &[u8]) -> Result<Option<Vec<u8>>, Incomplete> {
    let mut message = Vec::new();
    let mut rest = records;
    loop {
        let Some(whole) = wanted(&message) else { return Ok(None) };
        if message.len() >= whole {
            message.truncate(whole);
            return Ok(Some(message.split_off(MESSAGE_HEADER)));
        }
        let Some(record) = Record::read(rest)? else { return Ok(None) };
        message.extend_from_slice(record.content);
        if !record.complete && wanted(&message).is_some_and(|whole| message.len() < whole) {
            return Err(Incomplete);
        }
        rest = &rest[RECORD_HEADER + record.content.len()..];
    }
}

/// Bytes of which parts are taken from the front; each part is told by where it is.
struct Cursor<'a> {
    bytes: &'a [u8],
    range: Range<usize>,
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Option<Range<usize>> {
        let part = self.range.start..self.range.start.checked_add(count)?;
        (part.end <= self.range.end).then(|| {
            self.range.start = part.end;
            part
        })
    }

    fn number16(&mut self) -> Option<u16> {
        let at = self.take(2)?.start;
        Some(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// What is behind a length of one byte.
    fn list8(&mut self) -> Option<Range<usize>> {
        let at = self.take(1)?.start;
        self.take(self.bytes[at].into())
    }

    /// What is behind a length of two bytes.
    fn list16(&mut self) -> Option<Range<usize>> {
        let length = self.number16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests;
