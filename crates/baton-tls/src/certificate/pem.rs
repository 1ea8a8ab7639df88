//! PEM (RFC 7468), as OpenSSL reads it: blocks between `-----BEGIN X-----` and `-----END X-----`, with anything between
//! them. Lines may end with CRLF or in blanks, and a block may begin with header lines (RFC 1421), as old encrypted keys do.

use memchr::{memchr, memmem};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// One block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Block<'a> {
    /// `CERTIFICATE`, `PRIVATE KEY` …
    pub(crate) label: &'a [u8],
    /// A header says that the content is encrypted.
    pub(crate) encrypted: bool,
    /// The text in base64.
    pub(crate) body: &'a [u8],
    /// Where in the text it begins.
    pub(crate) start: usize,
}

/// Why a block cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PemError {
    /// Its end never comes, or is another's.
    Unended,
    /// The text is no base64.
    Text,
}

/// The blocks of a text, in order.
#[derive(Clone, Debug)]
pub(crate) struct Blocks<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Blocks<'a> {
    /// All of `text`.
    pub(crate) fn new(text: &'a [u8]) -> Blocks<'a> {
        Blocks { text, at: 0 }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<Block<'a>, (usize, PemError)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.text.get(self.at..)?;
            let start = self.at + if rest.starts_with(BEGIN) { 0 } else { memmem::find(rest, BEGIN)? };
            let line_end = start + memchr(b'\n', &self.text[start..]).unwrap_or(self.text.len() - start);
            self.at = line_end;
            if start > 0 && self.text[start - 1] != b'\n' {
                continue;
            }
            let line = self.text[start + BEGIN.len()..line_end].trim_ascii_end();
            let Some(label) = line.strip_suffix(DASHES) else { continue };
            return Some(self.block(start, label));
        }
    }
}

impl<'a> Blocks<'a> {
    /// The block whose first line begins at `start` and ends where we are.
    fn block(&mut self, start: usize, label: &'a [u8]) -> Result<Block<'a>, (usize, PemError)> {
        let content = &self.text[self.at..];
        let unended = (start, PemError::Unended);
        let length = memmem::find(content, DASHES).ok_or(unended)?;
        let end = &content[length..];
        let rest = end.strip_prefix(END).and_then(|end| end.strip_prefix(label)).ok_or(unended)?;
        let rest = rest.strip_prefix(DASHES).ok_or(unended)?;
        self.at = self.text.len() - rest.len();
        let content = &content[..length];
        let (headers, body) = match memchr(b':', content) {
            Some(_) => split_headers(content).ok_or((start, PemError::Text))?,
            None => (&[][..], content),
        };
        let encrypted = memmem::find(headers, b"ENCRYPTED").is_some();
        Ok(Block { label, encrypted, body, start })
    }
}

/// Header lines end with an empty one.
fn split_headers(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 1;
    while at < content.len() {
        let end = at + memchr(b'\n', &content[at..])?;
        if content[at..end].trim_ascii().is_empty() {
            return Some((&content[..at], &content[end..]));
        }
        at = end + 1;
    }
    None
}

/// The line, counted from 1, of an offset in a text.
pub(crate) fn line_of(text: &[u8], offset: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text[..offset.min(text.len())]).count()
}

const BLANK: u8 = 0x40;
const PAD: u8 = 0x41;
const WRONG: u8 = 0x80;

/// What each byte of base64 stands for.
static VALUES: [u8; 256] = {
    let mut values = [WRONG; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut at = 0;
    while at < 64 {
        values[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    values[b' ' as usize] = BLANK;
    values[b'\t' as usize] = BLANK;
    values[b'\r' as usize] = BLANK;
    values[b'\n' as usize] = BLANK;
    values[b'=' as usize] = PAD;
    values
};

/// Appends what `text` stands for to `out`. On an error `out` holds something unfinished behind what it held before.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), PemError> {
    out.reserve(text.len() / 4 * 3 + 3);
    let mut rest = text;
    loop {
        // Whole groups of four, as lines are full of.
        let mut groups = rest.chunks_exact(4);
        let mut taken = 0;
        for group in groups.by_ref() {
            let [a, b, c, d] = [group[0], group[1], group[2], group[3]].map(|byte| VALUES[usize::from(byte)]);
            if (a | b | c | d) >= BLANK {
                break;
            }
            let bits = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
            let [_, x, y, z] = bits.to_be_bytes();
            out.extend_from_slice(&[x, y, z]);
            taken += 4;
        }
        rest = &rest[taken..];
        if rest.first().is_some_and(|byte| VALUES[usize::from(*byte)] == BLANK) {
            rest = rest.trim_ascii_start();
            continue;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // A group with blanks in it, or the last one.
        match group(rest, out)? {
            Some(after) => rest = after,
            None => return Ok(()),
        }
    }
}

/// One group of four that has blanks or padding in it. `None`: it was the last.
fn group<'a>(text: &'a [u8], out: &mut Vec<u8>) -> Result<Option<&'a [u8]>, PemError> {
    let (mut bits, mut count, mut pads) = (0_u32, 0, 0);
    for (at, byte) in text.iter().enumerate() {
        match VALUES[usize::from(*byte)] {
            BLANK => continue,
            PAD if count >= 2 => {
                pads += 1;
                bits <<= 6;
            }
            value if value < BLANK && pads == 0 => bits = bits << 6 | u32::from(value),
            _ => return Err(PemError::Text),
        }
        count += 1;
        if count == 4 {
            let [_, x, y, z] = bits.to_be_bytes();
            out.extend_from_slice(&[x, y, z][..3 - pads]);
            let rest = text[at + 1..].trim_ascii_start();
            let done = pads > 0 || rest.is_empty();
            return match (done, rest.is_empty()) {
                (true, true) => Ok(None),
                (true, false) => Err(PemError::Text),
                (false, _) => Ok(Some(rest)),
            };
        }
    }
    if count == 0 { Ok(None) } else { Err(PemError::Text) }
}
