//! A certificate as sample fetches tell of it, in OpenSSL's words: serial number, names, dates, algorithms. It is read anew
//! when somebody asks, and nothing in it is judged.

use std::fmt::Write as _;

use super::der::{self, Der, Element};
use super::describe::{dotted, short_name};
use super::outline::Outline;

/// A certificate in its bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    version: u8,
    serial: &'a [u8],
    algorithm: &'a [u8],
    issuer: DistinguishedName<'a>,
    not_before: Element<'a>,
    not_after: Element<'a>,
    subject: DistinguishedName<'a>,
    key_algorithm: &'a [u8],
}

/// The name of a subject or an issuer (RFC 5280 4.1.2.4).
#[derive(Clone, Copy, Debug)]
pub struct DistinguishedName<'a> {
    /// Its sets of attributes.
    sets: Der<'a>,
}

impl<'a> View<'a> {
    /// Reads a certificate in DER; `None` when it is none.
    pub fn read(der: &'a [u8]) -> Option<View<'a>> {
        let Outline { version, serial, issuer, mut validity, subject, key_info, algorithm, .. } = Outline::read(der)?;
        let version = version.unwrap_or(1);
        let name = |name: Element<'a>| DistinguishedName { sets: Der::new(name.content) };
        let (issuer, subject) = (name(issuer), name(subject));
        let (not_before, not_after) = (validity.any()?, validity.any()?);
        let algorithm = Der::new(algorithm).take(der::OID)?;
        let key_algorithm = Der::new(key_info.content).enter(der::SEQUENCE)?.take(der::OID)?;
        Some(View { version, serial, algorithm, issuer, not_before, not_after, subject, key_algorithm })
    }

    /// The version of the format: 1 or 3.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The serial number, without the zero that tells that it is not negative.
    pub fn serial(&self) -> &'a [u8] {
        match self.serial {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        }
    }

    /// Whose it is.
    pub fn subject(&self) -> DistinguishedName<'a> {
        self.subject
    }

    /// Who vouches for it.
    pub fn issuer(&self) -> DistinguishedName<'a> {
        self.issuer
    }

    /// The first second of its validity: `YYMMDDhhmmssZ`, for every century.
    pub fn not_before(&self) -> &'a [u8] {
        short_date(self.not_before)
    }

    /// The last one.
    pub fn not_after(&self) -> &'a [u8] {
        short_date(self.not_after)
    }

    /// How it is signed: `RSA-SHA256`.
    pub fn signature_algorithm(&self) -> &'static str {
        algorithm_name(self.algorithm)
    }

    /// The kind of its key: `rsaEncryption`.
    pub fn key_algorithm(&self) -> &'static str {
        algorithm_name(self.key_algorithm)
    }
}

fn short_date(time: Element<'_>) -> &[u8] {
    match time.tag {
        der::GENERALIZED_TIME => time.content.get(2..).unwrap_or_default(),
        _ => time.content,
    }
}

/// OpenSSL's short name of an algorithm.
fn algorithm_name(id: &[u8]) -> &'static str {
    const PKCS1: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    const ECDSA_SHA2: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
    match id.split_last() {
        Some((last, rest)) if rest == PKCS1 => match last {
            1 => "rsaEncryption",
            4 => "RSA-MD5",
            5 => "RSA-SHA1",
            10 => "RSASSA-PSS",
            11 => "RSA-SHA256",
            12 => "RSA-SHA384",
            13 => "RSA-SHA512",
            14 => "RSA-SHA224",
            _ => "UNDEF",
        },
        Some((last, rest)) if rest == ECDSA_SHA2 => match last {
            1 => "ecdsa-with-SHA224",
            2 => "ecdsa-with-SHA256",
            3 => "ecdsa-with-SHA384",
            4 => "ecdsa-with-SHA512",
            _ => "UNDEF",
        },
        _ => match id {
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => "ecdsa-with-SHA1",
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1] => "id-ecPublicKey",
            [0x2b, 0x65, 0x70] => "ED25519",
            [0x2b, 0x65, 0x71] => "ED448",
            _ => "UNDEF",
        },
    }
}

impl<'a> DistinguishedName<'a> {
    /// The attributes in order: short name or dotted identifier, tag of the value, its bytes, and whether it stands in one
    /// set with the one before.
    fn attributes(self) -> impl Iterator<Item = (String, u8, &'a [u8], bool)> {
        let mut sets = self.sets;
        let mut set = Der::new(&[]);
        std::iter::from_fn(move || {
            let joined = !set.is_empty();
            while set.is_empty() {
                set = sets.enter(der::SET)?;
            }
            let mut pair = set.enter(der::SEQUENCE)?;
            let (id, value) = (pair.take(der::OID)?, pair.any()?);
            let name = short_name(id).map_or_else(|| dotted(id), str::to_owned);
            Some((name, value.tag, value.content, joined))
        })
    }

    /// All of it in one line: `/C=FR/O=Example/CN=Anna`. The bytes of values stand as they are.
    pub fn one_line(self) -> Vec<u8> {
        let mut line = Vec::new();
        for (name, _, value, _) in self.attributes() {
            line.push(b'/');
            line.extend_from_slice(name.as_bytes());
            line.push(b'=');
            line.extend_from_slice(value);
        }
        line
    }

    /// The value of an attribute, `CN` or any other short name in any case: the first one is 1, the last one -1.
    pub fn entry(self, name: &str, occurrence: i64) -> Option<&'a [u8]> {
        let mut named = self.attributes().filter(|(other, ..)| other.eq_ignore_ascii_case(name)).map(|it| it.2);
        match usize::try_from(occurrence) {
            Ok(0) => None,
            Ok(nth) => named.nth(nth - 1),
            Err(_) => {
                let all: Vec<&[u8]> = named.collect();
                let back = usize::try_from(occurrence.unsigned_abs()).ok()?;
                all.len().checked_sub(back).map(|at| all[at])
            }
        }
    }

    /// All of it as RFC 2253 has it: `CN=Anna,O=Example,C=FR`.
    pub fn rfc2253(self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (name, tag, value, joined) in self.attributes() {
            let part = format!("{name}={}", escaped(&utf8(tag, value)));
            match parts.last_mut().filter(|_| joined) {
                Some(last) => {
                    last.insert(0, '+');
                    last.insert_str(0, &part);
                }
                None => parts.push(part),
            }
        }
        parts.reverse();
        parts.join(",")
    }
}

/// The text of a value in UTF-8.
fn utf8(tag: u8, value: &[u8]) -> Vec<u8> {
    match tag {
        der::BMP_STRING => {
            let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>().into()
        }
        der::UTF8_STRING => value.to_vec(),
        // The others are Latin-1 to OpenSSL.
        _ => value.iter().copied().map(char::from).collect::<String>().into(),
    }
}

/// With a backslash before what means something (RFC 2253 2.4), other bytes than ASCII in hexadecimal.
fn escaped(text: &[u8]) -> String {
    let mut out = String::new();
    for (at, &byte) in text.iter().enumerate() {
        let edge = (at == 0 && matches!(byte, b' ' | b'#')) || (at + 1 == text.len() && byte == b' ');
        let _ = match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => write!(out, "\\{}", char::from(byte)),
            b' '..=b'~' if edge => write!(out, "\\{}", char::from(byte)),
            b' '..=b'~' => write!(out, "{}", char::from(byte)),
            _ => write!(out, "\\{byte:02X}"),
        };
    }
    out
}

/// SHA-1 over a certificate: its name among people, and no security.
pub fn sha1(der: &[u8]) -> [u8; 20] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, der);
    digest.as_ref().try_into().unwrap_or_default()
}
