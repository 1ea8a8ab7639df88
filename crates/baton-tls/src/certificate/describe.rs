//! A certificate for people: read from its bytes when somebody asks, in the words of HAProxy's `show ssl cert`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use aws_lc_rs::digest;

use super::der::{self, Der};
use super::x509::{X509, attributes};
use super::{Certificate, KeyKind};

/// What is known about a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Description {
    /// The serial number in hexadecimal digits.
    pub serial: String,
    /// The first second of its validity: `Nov 21 13:34:10 2026 GMT`.
    pub not_before: String,
    /// The last one.
    pub not_after: String,
    /// `subjectAltName`: `DNS:a.example, IP Address:192.0.2.1`; empty: it has none.
    pub alternative_names: String,
    /// `RSA2048`, `EC256`, `ED25519`.
    pub algorithm: String,
    /// SHA-1 over the whole certificate, in hexadecimal digits.
    pub sha1: String,
    /// SHA-256 over the whole certificate, in hexadecimal digits.
    pub sha256: String,
    /// `/C=DE/O=Example/CN=a.example`.
    pub subject: String,
    /// The issuer, in the form of `subject`.
    pub issuer: String,
    /// Subject and issuer of each certificate that is sent behind it.
    pub chain: Vec<(String, String)>,
}

impl Description {
    /// What a certificate in DER says; `None` when it is none.
    pub fn of(der: &[u8]) -> Option<Description> {
        let read = X509::read(der)?;
        Some(Description {
            serial: hex(read.serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(read.serial)),
            not_before: time(read.not_before),
            not_after: time(read.not_after),
            alternative_names: alternative_names(&read),
            algorithm: read.key().map(|key| algorithm(KeyKind::of(key))).unwrap_or_default(),
            sha1: hex(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der).as_ref()),
            sha256: hex(digest::digest(&digest::SHA256, der).as_ref()),
            subject: one_line(read.subject),
            issuer: one_line(read.issuer),
            chain: Vec::new(),
        })
    }
}

impl Certificate {
    /// What it says. Costs some tens of microseconds.
    pub fn describe(&self) -> Description {
        let described = Description::of(self.der());
        let mut described = described.unwrap_or_else(|| unreachable!("it was read when it was made"));
        described.chain = chain_of(self.chain());
        described
    }
}

/// Subject and issuer of each.
pub(super) fn chain_of(chain: &[Arc<[u8]>]) -> Vec<(String, String)> {
    let chain = chain.iter().filter_map(|der| X509::read(der));
    chain.map(|read| (one_line(read.subject), one_line(read.issuer))).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn algorithm(kind: KeyKind) -> String {
    match kind {
        KeyKind::Rsa(bits) => format!("RSA{bits}"),
        KeyKind::EcdsaP256 => "EC256".to_owned(),
        KeyKind::EcdsaP384 => "EC384".to_owned(),
        KeyKind::EcdsaP521 => "EC521".to_owned(),
        KeyKind::Ed25519 => "ED25519".to_owned(),
    }
}

/// `Nov  1 13:34:10 2026 GMT`.
pub(super) fn time(seconds: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Days are counted from the first of March of year 0, so that a leap day is a year's last.
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + month / 10, (month + 2) % 12);
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{} {day:2} {hour:02}:{minute:02}:{second:02} {year} GMT", MONTHS[month as usize])
}

/// As OpenSSL prints the extension.
fn alternative_names(read: &X509<'_>) -> String {
    let mut names = Der::new(read.alternatives());
    let mut text = String::new();
    while let Some(name) = names.any() {
        let content = || printable(name.content);
        let name = match name.tag {
            0x81 => format!("email:{}", content()),
            0x82 => format!("DNS:{}", content()),
            0x86 => format!("URI:{}", content()),
            0x87 => match name.content.len() {
                4 => format!("IP Address:{}", Ipv4Addr::from(<[u8; 4]>::try_from(name.content).unwrap_or_default())),
                16 => {
                    let groups = name.content.chunks_exact(2);
                    let groups: Vec<_> = groups.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
                    format!(
                        "IP Address:{}",
                        groups.iter().map(|group| format!("{group:X}")).collect::<Vec<_>>().join(":")
                    )
                }
                _ => "IP Address:<invalid>".to_owned(),
            },
            0xa4 => format!("DirName:{}", one_line(name.content)),
            0x88 => format!("Registered ID:{}", dotted(name.content)),
            _ => "othername:<unsupported>".to_owned(),
        };
        if !text.is_empty() {
            text += ", ";
        }
        text += &name;
    }
    text
}

/// A name in one line: `/C=DE/CN=a.example`.
pub(super) fn one_line(name: &[u8]) -> String {
    attributes(name).fold(String::new(), |mut text, (id, tag, value)| {
        let value = if tag == der::BMP_STRING {
            let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        } else {
            printable(value)
        };
        let _ = match short_name(id) {
            Some(known) => write!(text, "/{known}={value}"),
            None => write!(text, "/{}={value}", dotted(id)),
        };
        text
    })
}

/// Bytes that are no printable ASCII as `\xNN`, so that a line stays a line.
fn printable(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = match byte {
            b' '..=b'~' => write!(text, "{}", char::from(*byte)),
            _ => write!(text, "\\x{byte:02X}"),
        };
        text
    })
}

/// The abbreviation of an attribute (RFC 4514 3, and OpenSSL's).
pub(super) fn short_name(id: &[u8]) -> Option<&'static str> {
    Some(match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "street",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 15] => "businessCategory",
        [0x55, 4, 17] => "postalCode",
        [0x55, 4, 42] => "GN",
        [0x55, 4, 43] => "initials",
        [0x55, 4, 46] => "dnQualifier",
        [0x55, 4, 97] => "organizationIdentifier",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        _ => return None,
    })
}

/// An object identifier in digits.
pub(super) fn dotted(id: &[u8]) -> String {
    let mut arcs = Vec::new();
    let mut arc = 0_u128;
    for byte in id {
        arc = arc.wrapping_mul(128) + u128::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            arcs.push(arc);
            arc = 0;
        }
    }
    let Some(both) = arcs.first().copied() else { return String::new() };
    let first = (both / 40).min(2);
    let rest = arcs[1..].iter().fold(String::new(), |text, arc| format!("{text}.{arc}"));
    format!("{first}.{}{rest}", both - first * 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openssl_does() {
        assert_eq!(time(0), "Jan  1 00:00:00 1970 GMT");
        assert_eq!(time(951_782_400), "Feb 29 00:00:00 2000 GMT");
        assert_eq!(time(253_402_300_799), "Dec 31 23:59:59 9999 GMT");
        assert_eq!(time(1_795_268_050), "Nov 21 13:34:10 2026 GMT");
        assert_eq!(time(-1), "Dec 31 23:59:59 1969 GMT");
    }

    #[test]
    fn identifiers_are_dotted() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]), "1.2.840.113549");
        assert_eq!(dotted(&[0x88, 0x37, 0x03]), "2.999.3");
    }
}
