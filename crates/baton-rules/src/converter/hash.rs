//! Hashing converters (configuration manual 7.3.1). With a non-zero argument the result is avalanched.
//!
//! The functions are also the ones of `hash-type`; the values equal HAProxy 2.6's (see the tests).

use twox_hash::{XxHash3_64, XxHash32, XxHash64};

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::sample::{Sample, Type};

const AVALANCHE: &[Arg] = &[Arg::opt(ArgKind::Int)];

const SEED: &[Arg] = &[Arg::opt(ArgKind::Int)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new("crc32", Type::Bin, Type::Int, |s, a, _| hash(s, a, crc32), "CRC32 as in Ethernet and gzip.")
        .args(AVALANCHE),
    Converter::new("crc32c", Type::Bin, Type::Int, |s, a, _| hash(s, a, crc32c), "CRC32C (Castagnoli).")
        .args(AVALANCHE),
    Converter::new("djb2", Type::Bin, Type::Int, |s, a, _| hash(s, a, djb2), "DJB2.").args(AVALANCHE),
    Converter::new("sdbm", Type::Bin, Type::Int, |s, a, _| hash(s, a, sdbm), "SDBM.").args(AVALANCHE),
    Converter::new(
        "xxh32",
        Type::Bin,
        Type::Int,
        |s, a, _| seeded(s, a, |seed, b| XxHash32::oneshot(seed as u32, b).into()),
        "XXH32, with a seed.",
    )
    .args(SEED),
    Converter::new(
        "xxh64",
        Type::Bin,
        Type::Int,
        |s, a, _| seeded(s, a, XxHash64::oneshot),
        "XXH64 as a signed number, with a seed.",
    )
    .args(SEED),
    Converter::new(
        "xxh3",
        Type::Bin,
        Type::Int,
        |s, a, _| seeded(s, a, XxHash3_64::oneshot_with_seed),
        "XXH3 of 64 bits as a signed number, with a seed.",
    )
    .args(SEED),
];

fn hash<'c>(sample: Sample<'c>, args: &'c [Value], with: fn(&[u8]) -> u32) -> Option<Sample<'c>> {
    let mut value = with(&sample.into_bytes());
    if args[0].int().unwrap_or(0) != 0 {
        value = avalanche(value);
    }
    Some(Sample::Int(value.into()))
}

fn seeded<'c>(sample: Sample<'c>, args: &[Value], with: fn(u64, &[u8]) -> u64) -> Option<Sample<'c>> {
    Some(Sample::Int(with(args[0].int().unwrap_or(0) as u64, &sample.into_bytes()) as i64))
}

/// The reflected CRC with polynomial `poly`, bit by bit: rules hash short texts.
fn crc(bytes: &[u8], poly: u32) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ poly } else { crc >> 1 })
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    crc(bytes, 0xedb8_8320)
}

/// CRC32C, which is also the checksum of PROXY headers.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc(bytes, 0x82f6_3b78)
}

/// Bernstein's hash with exclusive or absent: `hash * 33 + byte` from 5381.
fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

/// `byte + hash * 65599`.
pub(crate) fn sdbm(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |hash, &byte| hash.wrapping_mul(65599).wrapping_add(byte.into()))
}

/// Spreads the bits of a hash: Bob Jenkins' avalanche of a 32-bit integer, then a multiplication by the prime 0xc0000001.
pub(crate) fn avalanche(hash: u32) -> u32 {
    let mut a = hash;
    a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    a = a ^ 0xc761_c23c ^ (a >> 19);
    a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    a = a ^ 0xb55a_4f09 ^ (a >> 16);
    a.wrapping_mul(0xc000_0001)
}
