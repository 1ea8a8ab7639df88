//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: codes of a length are consecutive, in the order of their symbols, and follow the shorter ones. So the lengths
//! alone define it, and all tables are computed from them at compile time. Codes of up to nine bits, which nearly all text
//! consists of, are decoded by one look-up; a longer one is found by comparing with the first code of each length.

/// Bits of each symbol's code. The symbol 256, EOS, has 30, too.
static LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
];

/// The longest code.
const BITS_MAX: usize = 30;
/// The shortest code.
const BITS_MIN: usize = 5;
/// Longest code that is decoded by one look-up.
const FAST_BITS: usize = 9;

/// The codes of one length.
#[derive(Copy, Clone)]
struct Length {
    /// The first code after those of this length, left-aligned in 32 bits. (Of the longest, all are below 2^32.)
    end: u64,
    /// The first of them, right-aligned.
    first: u32,
    /// Where its symbol is in [`Tables::symbols`].
    at: u16,
}

struct Tables {
    /// The symbols by their codes.
    symbols: [u8; 256],
    lengths: [Length; BITS_MAX + 1],
    /// Symbol and length by the next bits; length 0: the code is longer.
    fast: [(u8, u8); 1 << FAST_BITS],
    /// Each symbol's code.
    codes: [u32; 256],
}

static TABLES: Tables = {
    let mut tables = Tables {
        symbols: [0; 256],
        lengths: [Length { end: 0, first: 0, at: 0 }; BITS_MAX + 1],
        fast: [(0, 0); 1 << FAST_BITS],
        codes: [0; 256],
    };
    let (mut code, mut at, mut bits) = (0u32, 0usize, 1usize);
    while bits <= BITS_MAX {
        code <<= 1;
        tables.lengths[bits].first = code;
        tables.lengths[bits].at = at as u16;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == bits {
                tables.symbols[at] = symbol as u8;
                tables.codes[symbol] = code;
                if bits <= FAST_BITS {
                    let (mut entry, last) =
                        ((code as usize) << (FAST_BITS - bits), (code as usize + 1) << (FAST_BITS - bits));
                    while entry < last {
                        tables.fast[entry] = (symbol as u8, bits as u8);
                        entry += 1;
                    }
                }
                code += 1;
                at += 1;
            }
            symbol += 1;
        }
        tables.lengths[bits].end = (code as u64) << (32 - bits);
        bits += 1;
    }
    tables
};

/// Text that is not what the encoder of RFC 7541 5.2 writes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct InvalidHuffman;

/// Appends the decoded text to `out`.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    out.reserve(input.len() * 8 / BITS_MIN + 1);
    // The next bits, left-aligned, and how many of them there are.
    let (mut bits, mut count) = (0u64, 0usize);
    let mut rest = input;
    loop {
        // Fill up to at least 32 bits, while there are some.
        if count < 32 {
            if let Some((word, after)) = rest.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
                count += 32;
                rest = after;
            } else {
                while let [byte, after @ ..] = rest {
                    bits |= u64::from(*byte) << (56 - count);
                    count += 8;
                    rest = after;
                }
            }
        }
        let (mut symbol, mut len) = TABLES.fast[(bits >> (64 - FAST_BITS)) as usize];
        if len == 0 {
            let Some(found) = long(bits) else { break };
            (symbol, len) = found;
        }
        if usize::from(len) > count {
            break;
        }
        out.push(symbol);
        bits <<= len;
        count -= usize::from(len);
    }
    // What is left is padding: the first bits of EOS, all ones, and less than a byte. EOS itself is none (RFC 7541 5.2).
    let is_padding = count < 8 && rest.is_empty() && (count == 0 || bits >> (64 - count) == (1 << count) - 1);
    if is_padding { Ok(()) } else { Err(InvalidHuffman) }
}

/// A code longer than those in the table; `None`: EOS, or bits that are left over.
#[cold]
fn long(bits: u64) -> Option<(u8, u8)> {
    let next = bits >> 32;
    for len in FAST_BITS + 1..=BITS_MAX {
        let Length { end, first, at } = TABLES.lengths[len];
        if next < end {
            let index = usize::from(at) + ((next >> (32 - len)) as u32 - first) as usize;
            return Some((TABLES.symbols[index], len as u8));
        }
    }
    None
}

/// How many bytes `text` takes when it is encoded.
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends `text`, encoded.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0usize);
    for &byte in text {
        let len = usize::from(LENGTHS[usize::from(byte)]);
        bits = bits << len | u64::from(TABLES.codes[usize::from(byte)]);
        count += len;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    while count >= 8 {
        count -= 8;
        out.push((bits >> count) as u8);
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_last_codes_are_those_of_the_appendix() {
        // RFC 7541 appendix B.
        for (symbol, code, len) in
            [(b'0', 0x0, 5), (b'a', 0x3, 5), (b'~', 0x1ffd, 13), (0, 0x1ff8, 13), (22, 0x3ffffffe, 30)]
        {
            assert_eq!((TABLES.codes[usize::from(symbol)], LENGTHS[usize::from(symbol)]), (code, len), "{symbol}");
        }
    }

    #[test]
    fn every_text_of_two_symbols_comes_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
                encode(&[first, second, first], &mut encoded);
                assert_eq!(encoded.len(), encoded_len(&[first, second, first]));
                assert_eq!(decode(&encoded, &mut decoded), Ok(()));
                assert_eq!(decoded, [first, second, first]);
            }
        }
    }

    #[test]
    fn only_short_padding_of_ones_is_padding() {
        let check = |input: &[u8], expected: Option<&[u8]>| {
            let mut out = Vec::new();
            assert_eq!(decode(input, &mut out).ok().map(|()| &out[..]), expected, "{input:x?}");
        };
        check(&[], Some(b""));
        check(&[0b0000_0111], Some(b"0"));
        check(&[0b0000_0110], None);
        check(&[0b0000_0000], None);
        check(&[0xff], None);
        check(&[0b0000_0111, 0xff], None);
        // EOS, whole and padded.
        check(&[0xff, 0xff, 0xff, 0xff], None);
        check(&[0xff, 0xff, 0xff, 0xfc], None);
        // A code that is cut off.
        check(&[0xfe], None);
    }
}
