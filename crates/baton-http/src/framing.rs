//! How long a body is (RFC 9112 6): `Content-Length` and `Transfer-Encoding`, judged as strictly as HAProxy 2.6 does.

use crate::error::{HeadError, HeadErrorKind};
use crate::headers::Headers;
use crate::name::Name;
use crate::scan::{is_blank, trim};

/// How the end of a message is known.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// That many bytes follow. Zero for an explicit `Content-Length: 0`.
    Length(u64),
    /// Chunks follow ([`ChunkDecoder`](crate::ChunkDecoder)).
    Chunked,
    /// The body ends with the connection (responses only).
    UntilClose,
    /// The connection becomes a tunnel: status 101, or 2xx to CONNECT (responses only).
    Tunnel,
}

impl Framing {
    /// Whether no body bytes follow the head.
    pub fn is_empty(self) -> bool {
        matches!(self, Framing::None | Framing::Length(0))
    }
}

/// What the length fields of a head say together.
#[derive(Default, Debug)]
pub(crate) struct Lengths {
    length: Option<u64>,
    /// The field that brought the first transfer coding.
    coding_at: Option<usize>,
    chunked: bool,
    unknown: bool,
}

impl Lengths {
    /// Takes the `Content-Length` at `index`. Equal repetitions, as a list or as more fields, become one value.
    pub fn content_length(&mut self, headers: &mut Headers, buf: &[u8], index: usize) -> Result<(), HeadError> {
        let Some((_, text)) = headers.slot(index) else {
            return Ok(());
        };
        let line = headers.text(buf, text);
        if self.length.is_none()
            && let Some(length) = number(line)
        {
            // No list, as nearly always.
            self.length = Some(length);
            return Ok(());
        }
        let list_end = memchr::memrchr(b',', line);
        let mut length = self.length;
        for part in line.split(|&byte| byte == b',') {
            match (number(trim(part)), length) {
                (Some(new), None) => length = Some(new),
                (Some(new), Some(old)) if new == old => {}
                _ => return HeadError::new(HeadErrorKind::ContentLength, headers.offset(index)),
            }
        }
        if self.length.is_some() {
            headers.remove_at(index);
        } else if let Some(comma) = list_end {
            let blanks = line[comma + 1..].iter().take_while(|&&byte| is_blank(byte)).count();
            headers.set_value(index, text.slice(comma + 1 + blanks, usize::MAX));
        }
        self.length = length;
        Ok(())
    }

    /// Takes the `Transfer-Encoding` at `index`: nothing may follow `chunked`, but for empty list elements, which are
    /// dropped from what we forward.
    pub fn transfer_encoding(&mut self, headers: &mut Headers, buf: &[u8], index: usize) -> Result<(), HeadError> {
        let Some((_, text)) = headers.slot(index) else {
            return Ok(());
        };
        self.coding_at.get_or_insert(index);
        let line = headers.text(buf, text);
        let first_chunked = self.chunked;
        let mut empty_after = 0;
        for coding in crate::values::values(line) {
            empty_after += (self.chunked && coding.is_empty()) as usize;
            if self.chunked && (!coding.is_empty() || empty_after > 1) {
                return HeadError::new(HeadErrorKind::TransferEncoding, headers.offset(index));
            } else if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked = true;
            } else if !self.chunked && !line.is_empty() {
                self.unknown = true;
            }
        }
        if first_chunked || line.is_empty() {
            headers.remove_at(index);
        } else if self.chunked && line.len() > b"chunked".len() {
            headers.set_value(index, text.slice(0, b"chunked".len()));
        }
        Ok(())
    }

    /// The framing the fields ask for. With `chunked`, `Content-Length` is removed (RFC 9112 6.3); true says so.
    pub fn finish(self, headers: &mut Headers) -> Result<(Option<Framing>, bool), HeadError> {
        if let Some(index) = self.coding_at {
            if !self.chunked {
                return HeadError::new(HeadErrorKind::TransferEncoding, headers.offset(index));
            }
            if self.unknown {
                return HeadError::new(HeadErrorKind::UnknownCoding, headers.offset(index));
            }
            let conflict = self.length.is_some() && headers.remove_known(Name::ContentLength) > 0;
            return Ok((Some(Framing::Chunked), conflict));
        }
        Ok((self.length.map(Framing::Length), false))
    }
}

/// A decimal number below 2^63, of digits only.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        if value > i64::MAX as u64 {
            return None;
        }
    }
    Some(value)
}
