//! Comma-separated values of a field (RFC 9110 5.6.1), with quoted strings respected.

use crate::scan::trim;

/// The comma-separated values in `line`, blanks around them removed. A comma inside a quoted string separates nothing;
/// an unclosed quote runs to the end. Empty values count, so an empty line has one empty value: as HAProxy's `hdr_cnt`.
pub fn values(line: &[u8]) -> Values<'_> {
    Values { rest: Some(line) }
}

/// Iterator of [`values`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Values<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.rest.take()?;
        let (value, rest) = match next_comma(line) {
            Some(comma) => (&line[..comma], Some(&line[comma + 1..])),
            None => (line, None),
        };
        self.rest = rest;
        Some(trim(value))
    }
}

pub(crate) fn next_comma(line: &[u8]) -> Option<usize> {
    // Most lines have one value.
    let first = memchr::memchr(b',', line)?;
    if memchr::memchr(b'"', &line[..first]).is_none() {
        return Some(first);
    }
    let mut quoted = false;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b',' if !quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}
