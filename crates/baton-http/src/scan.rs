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
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes: 16384 - 1024, headers: 101, relaxed: false }
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
#[derive(Copy, Clone, Default, Debug)]
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
        while let Some(line) = self.next_line(buf, limits)? {
            if line.start == line.end {
                self.phase = Phase::Done;
                return Ok(true);
            }
            field(buf, line, headers, limits)?;
        }
        Ok(false)
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
