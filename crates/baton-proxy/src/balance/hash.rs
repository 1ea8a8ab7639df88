//! The hash functions of `hash-type` (configuration manual, 4.2).

use baton_model::{Avalanche, HashFunction, HashType};

/// Hashes a key as `hash-type` says.
pub fn key(kind: &HashType, bytes: &[u8]) -> u32 {
    let hash = match kind.function {
        HashFunction::Sdbm => sdbm(bytes),
        HashFunction::Djb2 => djb2(bytes),
        HashFunction::Wt6 => wt6(bytes),
        HashFunction::Crc32 => crc32(bytes),
        HashFunction::None => number(bytes),
    };
    mix(kind, hash)
}

/// The second mixing: written as `avalanche`, and always on for consistent hashing without a function.
pub fn mix(kind: &HashType, hash: u32) -> u32 {
    match kind.avalanche {
        Avalanche::Full => avalanche(hash),
        Avalanche::Default => hash,
    }
}

/// `sdbm`: `hash * 65599 + byte`.
pub fn sdbm(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |hash, byte| hash.wrapping_mul(65599).wrapping_add(u32::from(*byte)))
}

/// `djb2`: `hash * 33 + byte` from 5381.
pub fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// `wt6`.
pub fn wt6(bytes: &[u8]) -> u32 {
    sdbm(bytes)
}

/// `crc32`: the CRC of Ethernet, gzip and PNG (ISO 3309, polynomial 0xedb88320 reflected).
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| (crc >> 8) ^ CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

/// `none`: the key is a decimal number.
pub fn number(bytes: &[u8]) -> u32 {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0u32, |number, byte| number.wrapping_mul(10).wrapping_add(u32::from(byte - b'0')))
}

/// A 4-byte full avalanche: Bob Jenkins' "half" mix of six shifts, published as public domain.
pub fn avalanche(hash: u32) -> u32 {
    let mut hash = hash;
    hash = hash.wrapping_add(0x7ed5_5d16).wrapping_add(hash << 12);
    hash = (hash ^ 0xc761_c23c) ^ (hash >> 19);
    hash = hash.wrapping_add(0x1656_67b1).wrapping_add(hash << 5);
    hash = hash.wrapping_add(0xd3a2_646c) ^ (hash << 9);
    hash = hash.wrapping_add(0xfd70_46c5).wrapping_add(hash << 3);
    (hash ^ 0xb55a_4f09) ^ (hash >> 16)
}
