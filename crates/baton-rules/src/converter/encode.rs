//! Converters between encodings (configuration manual 7.3.1).

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[
    Converter::new("hex", Type::Bin, Type::Str, hex, "The bytes in upper-case hexadecimal."),
    Converter::new("base64", Type::Bin, Type::Str, base64, "The bytes in Base64, padded."),
    Converter::new("b64dec", Type::Str, Type::Bin, b64dec, "The bytes decoded from padded Base64."),
    Converter::new(
        "ub64enc",
        Type::Bin,
        Type::Str,
        ub64enc,
        "The bytes in Base64 for URLs (RFC 4648 5), without padding.",
    ),
    Converter::new("ub64dec", Type::Str, Type::Bin, ub64dec, "The bytes decoded from Base64 for URLs without padding."),
    Converter::new(
        "url_dec",
        Type::Str,
        Type::Str,
        url_dec,
        "The text with %XX decoded; '+' is a space if requested or after '?'.",
    )
    .args(&[Arg::opt(ArgKind::Int)]),
    Converter::new(
        "be2dec",
        Type::Bin,
        Type::Str,
        |s, a, _| decimals(s, a, false),
        "The bytes as decimal numbers, first byte highest.",
    )
    .args(CHUNKS)
    .check(number_bytes),
    Converter::new(
        "le2dec",
        Type::Bin,
        Type::Str,
        |s, a, _| decimals(s, a, true),
        "The bytes as decimal numbers, first byte lowest.",
    )
    .args(CHUNKS)
    .check(number_bytes),
    Converter::new(
        "be2hex",
        Type::Bin,
        Type::Str,
        be2hex,
        "The bytes in hexadecimal, with a separator between chunks.",
    )
    .args(&[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Int), Arg::opt(ArgKind::Int)])
    .check(chunk_bytes),
    Converter::new("hex2i", Type::Str, Type::Int, hex2i, "The number that the text is in hexadecimal."),
    Converter::new("htonl", Type::Int, Type::Bin, htonl, "The lower 32 bits of the number as bytes, highest first."),
    Converter::new("url_enc", Type::Str, Type::Str, url_enc, "The text with all but unreserved characters as %XX.")
        .args(&[Arg::opt(ArgKind::Word(&["query"]))]),
];

const CHUNKS: &[Arg] = &[Arg::req(ArgKind::Str), Arg::req(ArgKind::Int), Arg::opt(ArgKind::Int)];

/// The longest text that is made of chunks, in bytes: HAProxy's buffer.
const CHUNKED_BYTES_MAX: usize = 16 << 10;

fn number_bytes(args: &mut [Value]) -> Result<(), RuleError> {
    match args[1].int() {
        Some(1..=8) => Ok(()),
        other => {
            Err(RuleError::new(format!("a number of {} bytes is not supported", other.unwrap_or(0)))
                .hint("1 to 8 bytes"))
        }
    }
}

/// As in HAProxy, chunks must have a size where a separator stands between them.
fn chunk_bytes(args: &mut [Value]) -> Result<(), RuleError> {
    match args[1].int().unwrap_or(0) <= 0 && !args[0].bytes().is_empty() {
        true => Err(RuleError::new("a separator needs the size of the chunks")),
        false => Ok(()),
    }
}

/// The bytes in chunks of a size (0: one chunk), each as a text, with a separator between. A last one that is short is dropped on demand.
fn chunked<'c>(
    bytes: &[u8],
    separator: &[u8],
    size: usize,
    whole_only: bool,
    write: impl Fn(&[u8], &mut Vec<u8>),
) -> Option<Sample<'c>> {
    let mut out = Vec::new();
    let size = if size == 0 { bytes.len().max(1) } else { size };
    for (place, chunk) in bytes.chunks(size).enumerate() {
        if whole_only && chunk.len() < size {
            break;
        }
        if place > 0 {
            out.extend_from_slice(separator);
        }
        write(chunk, &mut out);
        if out.len() > CHUNKED_BYTES_MAX {
            return None;
        }
    }
    Some(Sample::Str(Cow::Owned(out)))
}

fn decimals<'c>(sample: Sample<'c>, args: &'c [Value], little: bool) -> Option<Sample<'c>> {
    let size = usize::try_from(args[1].int()?).ok()?;
    let whole_only = args[2].int().unwrap_or(0) != 0;
    chunked(&sample.into_bytes(), args[0].bytes(), size, whole_only, |chunk, out| {
        let highest_first = chunk.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let lowest_first = || chunk.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let number = if little { lowest_first() } else { highest_first };
        out.extend_from_slice(number.to_string().as_bytes());
    })
}

fn be2hex<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let size = usize::try_from(args[1].int().unwrap_or(0).max(0)).ok()?;
    let whole_only = args[2].int().unwrap_or(0) != 0;
    chunked(&sample.into_bytes(), args[0].bytes(), size, whole_only, |chunk, out| {
        out.extend(chunk.iter().flat_map(|&byte| hex_pair(byte)));
    })
}

/// Bits beyond 64 are lost. Nothing for what is not hexadecimal.
fn hex2i<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let digit = |&byte: &u8| char::from(byte).to_digit(16);
    let number =
        sample.into_text().iter().try_fold(0i64, |number, byte| Some(number << 4 | i64::from(digit(byte)?)))?;
    Some(Sample::Int(number))
}

fn htonl<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::Bin(Cow::Owned((sample.into_int()? as u32).to_be_bytes().to_vec())))
}

fn hex<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut out = Vec::new();
    for &byte in sample.into_bytes().iter() {
        out.extend_from_slice(&hex_pair(byte));
    }
    Some(Sample::Str(Cow::Owned(out)))
}

pub(crate) fn hex_pair(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// The alphabet of RFC 4648 4.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// The alphabet of RFC 4648 5, safe in URLs and names of files.
const URL_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut out = digits(&sample.into_bytes(), ALPHABET);
    out.resize(out.len().next_multiple_of(4), b'=');
    Some(Sample::Str(Cow::Owned(out)))
}

fn ub64enc<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::Str(Cow::Owned(digits(&sample.into_bytes(), URL_ALPHABET))))
}

/// The digits that stand for `bytes`, six bits each, without padding.
fn digits(bytes: &[u8], alphabet: &[u8; 64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        out.extend((0..=group.len()).map(|place| alphabet[(bits >> (18 - 6 * place) & 63) as usize]));
    }
    out
}

/// Nothing for what is not Base64 with its padding.
fn b64dec<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    from_base64(&sample.into_text()).map(|bytes| Sample::Bin(Cow::Owned(bytes)))
}

/// What Base64 with its padding stands for. As in HAProxy, each group of four may be padded, and by three characters, too.
pub(crate) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.chunks(4) {
        let digits = group.iter().position(|&byte| byte == b'=').unwrap_or(4);
        if digits == 0 || group[digits..].iter().any(|&byte| byte != b'=') {
            return None;
        }
        append(&group[..digits], |byte| value_of(byte, ALPHABET), &mut out)?;
    }
    Some(out)
}

/// Nothing for what is no Base64 for URLs.
fn ub64dec<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    from_base64_url(&sample.into_text()).map(|bytes| Sample::Bin(Cow::Owned(bytes)))
}

/// What Base64 for URLs without padding stands for. As in HAProxy, a `=` in it counts as a digit of all ones.
pub(crate) fn from_base64_url(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len().div_ceil(4) * 3);
    for group in text.chunks(4) {
        append(group, |byte| value_of(if byte == b'=' { b'_' } else { byte }, URL_ALPHABET), &mut out)?;
    }
    Some(out)
}

fn value_of(digit: u8, alphabet: &[u8; 64]) -> Option<u32> {
    alphabet.iter().position(|&known| known == digit).map(|value| value as u32)
}

/// Appends the bytes that up to four digits of six bits stand for.
fn append(digits: &[u8], value: impl Fn(u8) -> Option<u32>, out: &mut Vec<u8>) -> Option<()> {
    let mut bits = 0u32;
    for &digit in digits {
        bits = bits << 6 | value(digit)?;
    }
    bits <<= 6 * (4 - digits.len());
    out.extend_from_slice(&bits.to_be_bytes()[1..digits.len()]);
    Some(())
}

/// Nothing for a `%` without two digits. A `+` is a blank in a query: everywhere with argument 1, else after a `?`.
fn url_dec<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let mut in_query = args[0].int().unwrap_or(0) != 0;
    if !text.iter().any(|byte| b"%+".contains(byte)) {
        return Some(Sample::Str(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            b'+' if in_query => b' ',
            b'?' => {
                in_query = true;
                byte
            }
            _ => byte,
        });
    }
    Some(Sample::Str(Cow::Owned(out)))
}

fn url_enc<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let text = sample.into_text();
    if text.iter().all(plain) {
        return Some(Sample::Str(text));
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for byte in text.iter() {
        if plain(byte) {
            out.push(*byte);
        } else {
            out.push(b'%');
            out.extend_from_slice(&hex_pair(*byte));
        }
    }
    Some(Sample::Str(Cow::Owned(out)))
}
