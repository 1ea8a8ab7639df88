//! Integers with a prefix of some bits (RFC 7541 5.1).

/// The largest value that any field has a use for: four bytes of continuation.
const VALUE_MAX: u32 = 1 << 28;

/// Reads an integer whose first byte, of which the lowest `bits` bits count, is the first of `input`. `None`: cut off, or too large.
#[inline]
pub(super) fn read(input: &mut &[u8], bits: u32) -> Option<u32> {
    let (&first, mut rest) = input.split_first()?;
    let mask = (1u32 << bits) - 1;
    let mut value = u32::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            // Five bytes would be more than any size here; zeros in front of nothing are cut off as well.
            if shift > 21 {
                return None;
            }
            value += u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    (value < VALUE_MAX).then_some(value)
}

/// Appends an integer after the bits `pattern` of its first byte.
#[inline]
pub(super) fn write(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_appendix() {
        // RFC 7541 C.1.
        for (value, bits, bytes) in [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])] {
            let mut out = Vec::new();
            write(value, bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &out[..], bits), Some(value as u32));
        }
    }

    #[test]
    fn every_prefix_and_edge_comes_back_and_nothing_is_too_long() {
        for bits in 4..=8 {
            for value in [0, 14, 15, 16, 30, 31, 126, 127, 128, 254, 255, 256, 16_384, (1 << 28) - 1] {
                let mut out = Vec::new();
                write(value, bits, 0, &mut out);
                let mut rest = &out[..];
                assert_eq!(read(&mut rest, bits), Some(value as u32), "{bits} {value}");
                assert!(rest.is_empty());
                for end in 0..out.len() {
                    assert_eq!(read(&mut &out[..end], bits), None);
                }
            }
            assert_eq!(read(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f][..], bits), None);
            assert_eq!(read(&mut &[0xff, 0x80, 0x80, 0x80, 0x80, 0x00][..], bits), None);
        }
    }
}
