//! Where a body ends, and what its bytes are: by length, chunked, or until the connection closes.

use super::{Framing, HEAD_MAX, Malformed};

/// A body being read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// So many bytes are missing.
    Length(u64),
    /// Somewhere in a chunked body.
    Chunked(Chunked),
    /// Ends when the connection does.
    UntilClose,
}

/// The place in a chunked body (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunked {
    /// In the digits of a size line; `digits` of them were read.
    Size { size: u64, digits: u8 },
    /// In the rest of a size line, after the digits (extensions are skipped).
    Extension { size: u64, skipped: u32 },
    /// After the CR of a size line.
    SizeEnd { size: u64 },
    /// In a chunk's data.
    Data { left: u64 },
    /// Before the CR after a chunk's data.
    DataCr,
    /// Before the LF after a chunk's data.
    DataLf,
    /// At the start of, or in, a line of the trailer section. `length` counts the line's bytes, `total` the section's.
    Trailer { length: u32, total: u32 },
    /// After the CR of a trailer line of that length.
    TrailerLf { length: u32, total: u32 },
    /// The last byte was read.
    Done,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunked::Size { size: 0, digits: 0 }),
            Framing::UntilClose => Body::UntilClose,
        }
    }

    /// Whether the last byte was read. A body until close never says so.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Body::Length(0) | Body::Chunked(Chunked::Done))
    }

    /// Reads what belongs to the body from the start of `input`, hands its data to `data`, and gives the number of bytes used.
    pub(crate) fn read(&mut self, input: &[u8], data: &mut impl FnMut(&[u8])) -> Result<usize, Malformed> {
        match self {
            Body::Length(left) => {
                let now = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= now as u64;
                if now > 0 {
                    data(&input[..now]);
                }
                Ok(now)
            }
            Body::UntilClose => {
                data(input);
                Ok(input.len())
            }
            Body::Chunked(place) => place.read(input, data),
        }
    }
}

impl Chunked {
    fn read(&mut self, input: &[u8], data: &mut impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < input.len() {
            if let Chunked::Data { left } = *self {
                let now = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                data(&input[at..at + now]);
                at += now;
                let left = left - now as u64;
                *self = if left == 0 { Chunked::DataCr } else { Chunked::Data { left } };
                continue;
            }
            if *self == Chunked::Done {
                break;
            }
            *self = self.step(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// The place after `byte`, which is not chunk data.
    fn step(self, byte: u8) -> Result<Chunked, Malformed> {
        Ok(match (self, byte) {
            (Chunked::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits are more than any body has, and cannot overflow.
                if digits == 15 {
                    return Err(Malformed);
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                Chunked::Size { size: size * 16 + digit, digits: digits + 1 }
            }
            (Chunked::Size { digits: 0, .. }, _) => return Err(Malformed),
            (Chunked::Size { size, .. } | Chunked::Extension { size, .. }, b'\r') => Chunked::SizeEnd { size },
            (Chunked::Size { size, .. }, b';' | b' ' | b'\t') => Chunked::Extension { size, skipped: 1 },
            (Chunked::Extension { size, skipped }, _) if byte != b'\n' && (skipped as usize) < HEAD_MAX => {
                Chunked::Extension { size, skipped: skipped + 1 }
            }
            (Chunked::SizeEnd { size: 0 }, b'\n') => Chunked::Trailer { length: 0, total: 0 },
            (Chunked::SizeEnd { size }, b'\n') => Chunked::Data { left: size },
            (Chunked::DataCr, b'\r') => Chunked::DataLf,
            (Chunked::DataLf, b'\n') => Chunked::Size { size: 0, digits: 0 },
            (Chunked::Trailer { length, total }, b'\r') => Chunked::TrailerLf { length, total },
            (Chunked::Trailer { length, total }, _) if byte != b'\n' && (total as usize) < HEAD_MAX => {
                Chunked::Trailer { length: length + 1, total: total + 1 }
            }
            (Chunked::TrailerLf { length: 0, .. }, b'\n') => Chunked::Done,
            (Chunked::TrailerLf { total, .. }, b'\n') => Chunked::Trailer { length: 0, total: total + 1 },
            _ => return Err(Malformed),
        })
    }
}
