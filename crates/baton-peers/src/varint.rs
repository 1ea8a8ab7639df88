//! Integers of variable length, as peers encode them.
//!
//! Below 240 an integer is one byte. Otherwise the first byte has the low 4 bits under `0xf0`, each further one 7 bits under `0x80`, and a byte
//! below 128 ends it. What remains after a byte is reduced by what the marker bits are worth, so that the additions of the decoder keep them.

/// The longest encoding of 64 bits.
pub const BYTES_MAX: usize = 10;

/// Appends an integer.
pub fn write(out: &mut Vec<u8>, value: u64) {
    if value < 240 {
        return out.push(value as u8);
    }
    out.push(value as u8 | 0xf0);
    let mut rest = (value - 240) >> 4;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest = (rest - 128) >> 7;
    }
    out.push(rest as u8);
}

/// How an attempt to read an integer ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Varint {
    /// The integer, and the number of its bytes.
    Whole(u64, usize),
    /// It goes on after the end of the bytes.
    Cut,
    /// It is longer than any of 64 bits.
    TooLong,
}

/// Reads the integer at the start of some bytes. Sums wrap, as those of HAProxy do.
pub fn read(bytes: &[u8]) -> Varint {
    let Some(first) = bytes.first() else { return Varint::Cut };
    let mut value = u64::from(*first);
    if value < 240 {
        return Varint::Whole(value, 1);
    }
    for (at, byte) in bytes.iter().enumerate().take(BYTES_MAX).skip(1) {
        value = value.wrapping_add(u64::from(*byte) << (4 + 7 * (at - 1)));
        if *byte < 128 {
            return Varint::Whole(value, at + 1);
        }
    }
    if bytes.len() >= BYTES_MAX { Varint::TooLong } else { Varint::Cut }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, value);
        out
    }

    #[test]
    fn integers_are_written_as_haproxy_writes_them() {
        let check = |value: u64, expect: &[u8]| {
            assert_eq!(written(value), expect, "{value}");
            assert_eq!(read(expect), Varint::Whole(value, expect.len()), "{value}");
        };
        check(0, &[0]);
        check(239, &[0xef]);
        check(240, &[0xf0, 0]);
        check(1000, &[0xf8, 0x2f]);
        check(2287, &[0xff, 0x7f]);
        check(2288, &[0xf0, 0x80, 0]);
        check(4660, &[0xf4, 0x94, 1]);
        check(10_000, &[0xf0, 0xe2, 3]);
        check(264_431, &[0xff, 0xff, 0x7f]);
        check(264_432, &[0xf0, 0x80, 0x80, 0]);
        check(600_000, &[0xf0, 0xed, 0xa3, 1]);
        check(33_818_864, &[0xf0, 0x80, 0x80, 0x80, 0]);
        check(4_294_967_295, &[0xff, 0xf0, 0xfe, 0xfe, 0x7e]);
        check(4_328_786_159, &[0xff, 0xff, 0xff, 0xff, 0x7f]);
        check(4_328_786_160, &[0xf0, 0x80, 0x80, 0x80, 0x80, 0]);
        check(u64::MAX, &[0xff, 0xf0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0x0e]);
    }

    #[test]
    fn an_integer_ends() {
        assert_eq!(read(&[]), Varint::Cut);
        assert_eq!(read(&[0xf0, 0x80]), Varint::Cut);
        assert_eq!(read(&[0xff; 9]), Varint::Cut);
        assert_eq!(read(&[0xff; 10]), Varint::TooLong);
        assert_eq!(read(&[0xff; 11]), Varint::TooLong);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value: u64, shift in 0_u32..64, more: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = written(value);
            let length = bytes.len();
            for end in 0..length {
                prop_assert_eq!(read(&bytes[..end]), Varint::Cut);
            }
            bytes.extend(more);
            prop_assert_eq!(read(&bytes), Varint::Whole(value, length));
        }
    }
}
