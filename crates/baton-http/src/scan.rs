//! Finding the lines of a head, across calls: each byte is searched once, however few arrive at a time.

use memchr::memchr2;

use crate::error::{HeadError, HeadErrorKind};
use crate::headers::Headers;
use crate::name::Name;
use crate::span::{Span, Text};

/// How large a head may be.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Limits {
    /// Most bytes of a head, start line and final empty line included. HAProxy: `tune.bufsize` - `tune.maxrewrite`.
    pub head_bytes: usize,
    /// A head with this many fields or more is refused. HAProxy: `tune.http.maxhdr`, which counts the end of the
    /// head, so that 100 fields pass with the default of 101.
    pub headers: usize,
    /// HAProxy's `option accept-invalid-http-request` and `-response`: bytes beyond ASCII in a target, and field names of
    /// any visible characters, pass.
    pub relaxed: bool,
    /// HAProxy's `h1-accept-payload-with-any-method`: a request of HTTP/1.0 with GET, HEAD or DELETE may have a body.
    pub http10_payload: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes: 16384 - 1024, headers: 101, relaxed: false, http10_payload: false }
    }
}

impl Limits {
    #[inline]
    fn bytes(&self) -> usize {
        self.head_bytes.min(u32::MAX as usize)
    }
}

/// What `parse` found.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Parsed {
    /// The head is complete; it takes that many bytes of the buffer, leading empty lines included.
    Complete(usize),
    /// The head is not complete: call again with the same bytes and more after them.
    Partial,
}

/// What part of a head comes next.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub(crate) enum Phase {
    /// The start line, perhaps after empty lines.
    #[default]
    Start,
    /// Field lines.
    Fields,
    /// Nothing: the head is complete or was refused.
    Done,
}

/// Where the search for the end of a head stands.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub(crate) struct Scan {
    pub phase: Phase,
    /// Start of the first line that was not taken yet.
    pub line: usize,
    /// Bytes before this one hold no end of that line.
    searched: usize,
}

/// A line without its end, as a range of the buffer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Line {
    pub start: usize,
    pub end: usize,
}

impl Scan {
    /// A scan of field lines that begins at byte `at`, for trailers.
    pub fn fields_at(at: usize) -> Scan {
        Scan { phase: Phase::Fields, line: at, searched: at }
    }

    /// Takes the next line: ended by CRLF, or by LF alone as HAProxy and RFC 9112 2.2 allow. `None`: not complete.
    #[inline]
    pub fn next_line(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<Line>, HeadError> {
        let limit = limits.bytes();
        let Some(found) = memchr2(b'\r', b'\n', buf.get(self.searched..).unwrap_or(&[])) else {
            return self.wait(buf, buf.len(), limit);
        };
        let end = self.searched + found;
        if end >= limit {
            return HeadError::new(HeadErrorKind::TooLong, limit);
        }
        let next = if buf[end] == b'\n' {
            end + 1
        } else {
            if end + 1 >= limit {
                // Whatever the next byte is, and also while it is not there: a head cut in pieces ends the same way.
                return HeadError::new(HeadErrorKind::TooLong, limit);
            }
            match buf.get(end + 1) {
                Some(b'\n') => end + 2,
                Some(_) => return HeadError::new(HeadErrorKind::BareCr, end),
                None => return self.wait(buf, end, limit),
            }
        };
        let line = Line { start: self.line, end };
        self.line = next;
        self.searched = next;
        Ok(Some(line))
    }

    fn wait(&mut self, buf: &[u8], searched: usize, limit: usize) -> Result<Option<Line>, HeadError> {
        if buf.len() >= limit {
            return HeadError::new(HeadErrorKind::TooLong, limit);
        }
        self.searched = self.searched.max(searched);
        Ok(None)
    }

    /// Takes field lines into `headers` until the empty line. True: the fields are complete.
    pub fn fields(&mut self, buf: &[u8], headers: &mut Headers, limits: &Limits) -> Result<bool, HeadError> {
        let limit = limits.bytes();
        loop {
            // Only a line of which no byte was looked at yet, with room for its end within the limit.
            if self.searched == self.line
                && headers.slots() + 1 < limits.headers
                && let Some(field) = known_field(buf, self.line)
                && field.next <= limit
            {
                headers.push(field.id, Text::Read(field.name), Text::Read(field.value));
                self.line = field.next;
                self.searched = field.next;
                continue;
            }
            let Some(line) = self.next_line(buf, limits)? else { return Ok(false) };
            if line.start == line.end {
                self.phase = Phase::Done;
                return Ok(true);
            }
            field(buf, line, headers, limits)?;
        }
    }
}

/// Takes one field line, or a continuation of the field before (obs-fold, RFC 9112 5.2).
#[inline]
fn field(buf: &[u8], line: Line, headers: &mut Headers, limits: &Limits) -> Result<(), HeadError> {
    let bytes = &buf[line.start..line.end];
    let mut name_len = token_len(bytes);
    if limits.relaxed {
        name_len += bytes[name_len..].iter().position(|&byte| byte == b':' || byte <= b' ').unwrap_or(0);
    }
    if bytes.get(name_len) != Some(&b':') || name_len == 0 {
        if is_blank(bytes[0]) && headers.unfold(buf, line.end) {
            return Ok(());
        }
        return HeadError::new(HeadErrorKind::HeaderName, line.start + name_len);
    }
    if headers.slots() + 1 >= limits.headers {
        return HeadError::new(HeadErrorKind::TooManyHeaders, line.start);
    }
    let mut start = name_len + 1;
    while start < bytes.len() && is_blank(bytes[start]) {
        start += 1;
    }
    let mut end = bytes.len();
    while end > start && is_blank(bytes[end - 1]) {
        end -= 1;
    }
    let name = Text::Read(Span::new(line.start, line.start + name_len));
    let value = Text::Read(Span::new(line.start + start, line.start + end));
    headers.push(Name::of(&bytes[..name_len]), name, value);
    Ok(())
}

/// What nearly all field lines are: see [`known_field`].
struct KnownField {
    id: Name,
    name: Span,
    value: Span,
    /// Where the next line begins.
    next: usize,
}

/// The field line at `at` if it is complete, has a known name, one space before the value and none after it, and ends in
/// CRLF. Anything else is for [`field`] to judge: this is a short cut, not another grammar.
#[inline]
fn known_field(buf: &[u8], at: usize) -> Option<KnownField> {
    let bytes = buf.get(at..)?;
    let colon = known_colon(bytes)?;
    // A known name is a token.
    let id = Name::of(&bytes[..colon]);
    let start = colon + 2;
    if id == Name::Other || bytes.get(colon + 1) != Some(&b' ') {
        return None;
    }
    let end = start + memchr2(b'\r', b'\n', bytes.get(start..)?)?;
    let [first, ..] = bytes[start..end] else { return None };
    if is_blank(first) || is_blank(bytes[end - 1]) || bytes.get(end..end + 2) != Some(b"\r\n") {
        return None;
    }
    Some(KnownField { id, name: Span::new(at, at + colon), value: Span::new(at + start, at + end), next: at + end + 2 })
}

/// Where the first colon is, if it is among the first bytes, as many as the longest known name needs.
#[inline]
fn known_colon(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().take(Name::TEXT_MAX / 8 + 1).enumerate() {
        let other = u64::from_le_bytes(*word) ^ (ONES * b':' as u64);
        // The lowest bit set is that of the first byte that is zero (a borrow can only mark bytes after it).
        let zero = other.wrapping_sub(ONES) & !other & (ONES * 0x80);
        if zero != 0 {
            return Some(at * 8 + (zero.trailing_zeros() / 8) as usize);
        }
    }
    if words.len() > Name::TEXT_MAX / 8 {
        return None;
    }
    rest.iter().position(|&byte| byte == b':').map(|found| words.len() * 8 + found)
}

#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// `bytes` without blanks at either end.
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// How many bytes at the start of `bytes` may stand in a token (RFC 9110 5.6.2).
#[inline]
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !TOKEN[byte as usize]).unwrap_or(bytes.len())
}

/// The bytes of a token: letters, digits and a few marks.
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of texts around the lengths at which the search changes its step.
    #[test]
    fn searching_by_words_finds_what_searching_by_bytes_finds() {
        for length in 0..40 {
            for at in 0..length {
                for byte in 0..=255u8 {
                    for fill in [b'a', 0x0f, 0x80, b':' ^ 1, b'\t', 0xff] {
                        let mut text = vec![fill; length];
                        text[at] = byte;
                        let colon = text.iter().position(|&byte| byte == b':');
                        if colon.is_none_or(|colon| colon <= Name::TEXT_MAX) {
                            assert_eq!(known_colon(&text), colon, "{text:?}");
                        }
                    }
                }
            }
        }
    }
}
