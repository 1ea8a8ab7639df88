//! `option spop-check`: the hello of an agent (the SPOE specification, 3.2.4 and 3.2.5).

use super::text;
use crate::matching::Finding;

const HAPROXY_HELLO: u8 = 1;
const AGENT_HELLO: u8 = 101;
const AGENT_DISCONNECT: u8 = 102;
/// A frame that is not one of several.
const WHOLE: u32 = 1;
/// The largest frame that we take.
const FRAME_BYTES_MAX: u64 = 16_380;
/// The smallest bound that an agent may set.
const FRAME_BYTES_MIN: u64 = 256;
const VERSION: &str = "2.0";

const BOOL_TRUE: u8 = 0x11;
const UINT32: u8 = 3;
const STRING: u8 = 8;

/// The frame of a hello that is a health check.
pub(super) fn hello() -> Vec<u8> {
    let mut frame = vec![HAPROXY_HELLO];
    frame.extend_from_slice(&WHOLE.to_be_bytes());
    // Stream and frame 0.
    frame.extend_from_slice(&[0, 0]);
    let string = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    frame.extend_from_slice(&[&string("supported-versions")[..], &[STRING], &string(VERSION)].concat());
    frame.extend_from_slice(&[&string("max-frame-size")[..], &[UINT32]].concat());
    write_number(FRAME_BYTES_MAX, &mut frame);
    frame.extend_from_slice(&[&string("capabilities")[..], &[STRING], &string("")].concat());
    frame.extend_from_slice(&[&string("healthcheck")[..], &[BOOL_TRUE]].concat());
    [&u32::try_from(frame.len()).unwrap_or(0).to_be_bytes()[..], &frame].concat()
}

pub(super) fn judge(bytes: &[u8], is_over: bool) -> Finding {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Finding::incomplete(is_over) };
    let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize) else { return Finding::incomplete(is_over) };
    match agent_hello(frame) {
        Ok(()) => Finding::Passed("SPOA server is ok".into()),
        Err(reason) => Finding::malformed(reason),
    }
}

const INVALID: &str = "invalid frame received";

fn agent_hello(frame: &[u8]) -> Result<(), &'static str> {
    let mut reader = Reader(frame);
    let kind = reader.byte()?;
    if !matches!(kind, AGENT_HELLO | AGENT_DISCONNECT) {
        return Err(INVALID);
    }
    let flags = reader.take(4)?;
    if flags != WHOLE.to_be_bytes() {
        return Err("fragmentation not supported");
    }
    if reader.take(2)? != [0, 0] {
        return Err(INVALID);
    }
    let (mut version, mut frame_size) = (None, None);
    while !reader.0.is_empty() {
        let name = reader.string()?;
        let kind = reader.byte()?;
        match (name, kind & 0x0f) {
            (b"version", STRING) => version = Some(text(reader.string()?)),
            (b"version", _) => return Err(INVALID),
            (b"max-frame-size", 2..=5) => frame_size = Some(reader.number()?),
            (b"max-frame-size", _) => return Err(INVALID),
            (_, kind) => reader.skip(kind)?,
        }
    }
    let version = version.ok_or("version value not found")?;
    if version.trim() != VERSION {
        return Err("unsupported version");
    }
    let frame_size = frame_size.ok_or("max-frame-size value not found")?;
    if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&frame_size) {
        return Err("max-frame-size too big or too small");
    }
    if kind == AGENT_DISCONNECT { Err("normal") } else { Ok(()) }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(INVALID)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|taken| taken[0])
    }

    /// A number of variable length.
    fn number(&mut self) -> Result<u64, &'static str> {
        let first = self.byte()?;
        let mut number = u64::from(first);
        if first < 240 {
            return Ok(number);
        }
        let mut shift = 4;
        loop {
            let byte = self.byte()?;
            number = number.wrapping_add(u64::from(byte).checked_shl(shift).ok_or(INVALID)?);
            shift += 7;
            if byte < 128 {
                return Ok(number);
            }
        }
    }

    fn string(&mut self) -> Result<&'b [u8], &'static str> {
        let length = self.number()?;
        self.take(usize::try_from(length).map_err(|_| INVALID)?)
    }

    /// Passes over a value of that type.
    fn skip(&mut self, kind: u8) -> Result<(), &'static str> {
        match kind {
            // Nothing, and a flag, which is in the type's byte.
            0 | 1 => {}
            2..=5 => drop(self.number()?),
            6 => drop(self.take(4)?),
            7 => drop(self.take(16)?),
            8 | 9 => drop(self.string()?),
            _ => return Err(INVALID),
        }
        Ok(())
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    if number < 240 {
        return out.push(number as u8);
    }
    out.push(number as u8 | 240);
    let mut rest = (number - 240) >> 4;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest = (rest - 128) >> 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_prefixes};
    use super::*;

    fn frame(kind: u8, items: &[&[u8]]) -> Vec<u8> {
        let frame = [&[kind, 0, 0, 0, 1, 0, 0], &items.concat()[..]].concat();
        [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
    }

    const TWO: &[u8] = b"\x07version\x08\x032.0";
    const SIZE: &[u8] = b"\x0emax-frame-size\x03\xfc\xf0\x06";

    #[test]
    fn an_agent_says_its_version_and_the_size_of_frames() {
        let both = |bytes: &[u8], expect: &str| check(judge, bytes, [expect, expect]);
        let fine = frame(101, &[TWO, SIZE, b"\x0ccapabilities\x08\0"]);
        both(&fine, "ok SPOA server is ok");
        both(&frame(101, &[TWO]), "L7RSP 0 max-frame-size value not found");
        both(&frame(101, &[b"\x07version\x08\x031.0", SIZE]), "L7RSP 0 unsupported version");
        both(&frame(101, &[TWO, b"\x0emax-frame-size\x03\x10"]), "L7RSP 0 max-frame-size too big or too small");
        both(&frame(102, &[b"\x0bstatus-code\x03\x05"]), "L7RSP 0 version value not found");
        both(&frame(103, &[]), "L7RSP 0 invalid frame received");
        check_prefixes(judge, &fine);
    }

    #[test]
    fn the_hello_says_that_it_is_a_check() {
        let expect = b"\0\0\0\x4e\x01\0\0\0\x01\0\0\x12supported-versions\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\
            \x0ccapabilities\x08\0\x0bhealthcheck\x11";
        assert_eq!(hello(), expect);
    }

    #[test]
    fn numbers_are_read_as_written() {
        for number in [0, 239, 240, 2287, 2288, 16_380, 264_431, u64::from(u32::MAX)] {
            let mut bytes = Vec::new();
            write_number(number, &mut bytes);
            assert_eq!(Reader(&bytes).number(), Ok(number));
        }
        assert_eq!(Reader(&[255; 12]).number(), Err(INVALID));
    }
}
