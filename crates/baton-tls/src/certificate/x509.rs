//! A certificate (RFC 5280 4.1) read as far as a choice among many needs it: names, validity, the public key. Nothing is
//! copied and no signature is checked; what the rest of it says, and whether anybody should trust it, is the client's business.

use super::der::{self, Der, Element};
use super::outline::Outline;

/// What was read of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct X509<'a> {
    /// The serial number, with its sign.
    pub(crate) serial: &'a [u8],
    /// The issuer's name, as one element.
    pub(crate) issuer: &'a [u8],
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    /// Seconds since 1970; the certificate holds in this one still.
    pub(crate) not_after: i64,
    /// The subject's name, as one element.
    pub(crate) subject: &'a [u8],
    /// The whole `SubjectPublicKeyInfo`.
    pub(crate) key_info: &'a [u8],
    /// The extensions, one after the other.
    extensions: &'a [u8],
    /// What is inside the extension `subjectAltName`.
    alternatives: Option<&'a [u8]>,
}

/// A public key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PublicKey<'a> {
    /// RSA (RFC 3279 2.3.1): both numbers without leading zeros.
    Rsa { modulus: &'a [u8], exponent: &'a [u8] },
    /// Elliptic curves (RFC 5480 2).
    Ec { curve: Curve, point: &'a [u8] },
    /// RFC 8410.
    Ed25519(&'a [u8]),
}

/// A curve that certificates are signed with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

const ID_SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const ID_SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 0x0e];
const ID_AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const ID_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ID_BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const ID_EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const ID_SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const ID_CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const ID_COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const ID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ID_P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

impl<'a> X509<'a> {
    /// Reads a certificate; `None` when it is none, or has bytes after it.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<X509<'a>> {
        let Outline { version, serial, issuer, mut validity, subject, key_info, mut rest, .. } = Outline::read(bytes)?;
        let serial = Some(serial).filter(|serial| !serial.is_empty())?;
        let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
        // Unique identifiers: out of use since 1996, but allowed.
        rest.optional(0x81)?;
        rest.optional(0x82)?;
        let extensions = match rest.optional(der::context(3))? {
            None => &[][..],
            Some(_) if version != Some(3) => return None,
            Some(extensions) => {
                let mut outside = Der::new(extensions);
                outside.take(der::SEQUENCE).filter(|_| outside.is_empty())?
            }
        };
        let alternatives = alternatives(extensions)?;
        if !(validity.is_empty() && rest.is_empty()) {
            return None;
        }
        let (issuer, subject, key_info) = (issuer.whole, subject.whole, key_info.whole);
        let read = X509 { serial, issuer, not_before, not_after, subject, key_info, extensions, alternatives };
        read.check_names()?;
        Some(read)
    }

    /// The names of hosts that it is for: those of `subjectAltName`, then the common names of the subject, as written.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        self.alternative_names().chain(self.common_names())
    }

    /// What is inside `subjectAltName`; empty without it.
    pub(crate) fn alternatives(&self) -> &'a [u8] {
        self.alternatives.unwrap_or_default()
    }

    /// The IP addresses of `subjectAltName`: 4 bytes each, or 16.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut names = Der::new(self.alternatives());
        std::iter::from_fn(move || {
            // iPAddress is [7] OCTET STRING, in place of the string's own tag.
            std::iter::from_fn(|| names.any()).find(|name| name.tag == 0x87).map(|name| name.content)
        })
    }

    /// The DNS names of `subjectAltName`.
    fn alternative_names(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut names = Der::new(self.alternatives());
        std::iter::from_fn(move || {
            // dNSName is [2] IA5String, in place of the string's own tag.
            let is_host = |name: &Element<'_>| name.tag == 0x82 && name.content.is_ascii();
            std::iter::from_fn(|| names.any()).find(is_host).map(|name| name.content)
        })
    }

    /// The common names in the subject, but for those of two or four bytes a character: no host is called so.
    fn common_names(&self) -> impl Iterator<Item = &'a [u8]> {
        let is_host = |id: &[u8], tag| id == ID_COMMON_NAME && ![der::BMP_STRING, der::UNIVERSAL_STRING].contains(&tag);
        attributes(self.subject).filter(move |(id, tag, _)| is_host(id, *tag)).map(|(_, _, value)| value)
    }

    /// The public key; `None` when it is of a kind that Baton has no use for.
    pub(crate) fn key(&self) -> Option<PublicKey<'a>> {
        let mut info = Der::new(self.key_info).enter(der::SEQUENCE)?;
        let algorithm = info.take(der::SEQUENCE)?;
        let key = info.bits().filter(|_| info.is_empty())?;
        let mut algorithm = Der::new(algorithm);
        match algorithm.take(der::OID)? {
            ID_RSA => {
                let mut numbers = Der::new(key).enter(der::SEQUENCE)?;
                let (modulus, exponent) = (numbers.unsigned()?, numbers.unsigned()?);
                numbers.is_empty().then_some(PublicKey::Rsa { modulus, exponent })
            }
            ID_EC => Some(PublicKey::Ec { curve: Curve::of(algorithm.take(der::OID)?)?, point: key }),
            ID_ED25519 => Some(PublicKey::Ed25519(key)),
            _ => None,
        }
    }

    /// The content of an extension.
    fn extension(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut list = Der::new(self.extensions);
        while let Some(mut extension) = list.enter(der::SEQUENCE) {
            if extension.take(der::OID)? == wanted {
                extension.optional(der::BOOLEAN)?;
                return extension.take(der::OCTET_STRING);
            }
        }
        None
    }

    /// What its own key is called (RFC 5280 4.2.1.2).
    pub(crate) fn subject_key_id(&self) -> Option<&'a [u8]> {
        Der::new(self.extension(ID_SUBJECT_KEY)?).take(der::OCTET_STRING)
    }

    /// What its issuer's key is called (RFC 5280 4.2.1.1).
    pub(crate) fn authority_key_id(&self) -> Option<&'a [u8]> {
        // keyIdentifier is [0] in place of the string's own tag.
        Der::new(self.extension(ID_AUTHORITY_KEY)?).enter(der::SEQUENCE)?.take(0x80)
    }

    /// The first bits of `keyUsage` (RFC 5280 4.2.1.3), `digitalSignature` the highest; `None` without it.
    pub(crate) fn key_usage(&self) -> Option<u8> {
        let bits = Der::new(self.extension(ID_KEY_USAGE)?).take(der::BIT_STRING)?;
        Some(bits.get(1).copied().unwrap_or_default())
    }

    /// Whether its key may sign messages or agree on keys, as a client's has to.
    pub(crate) fn may_sign_messages(&self) -> bool {
        const DIGITAL_SIGNATURE: u8 = 0x80;
        const KEY_AGREEMENT: u8 = 0x08;
        self.key_usage().is_none_or(|usage| usage & (DIGITAL_SIGNATURE | KEY_AGREEMENT) != 0)
    }

    /// Whether keys may be sent to it under its key, as to a server of old.
    pub(crate) fn may_take_keys(&self) -> bool {
        const KEY_ENCIPHERMENT: u8 = 0x20;
        self.key_usage().is_none_or(|usage| usage & KEY_ENCIPHERMENT != 0)
    }

    /// Whether it is a root: it has issued itself, as far as it says so.
    pub(crate) fn is_self_issued(&self) -> bool {
        let keys = self.authority_key_id().zip(self.subject_key_id());
        self.subject == self.issuer && keys.is_none_or(|(issuer, own)| issuer == own) && self.may_sign_certificates()
    }

    /// Whether its key may sign certificates.
    pub(crate) fn may_sign_certificates(&self) -> bool {
        const KEY_CERT_SIGN: u8 = 0x04;
        self.key_usage().is_none_or(|usage| usage & KEY_CERT_SIGN != 0)
    }

    /// Whether it is an authority's: `basicConstraints` says so (RFC 5280 4.2.1.9) or, without them, `keyUsage`, or that it
    /// signs itself and is too old to say anything.
    pub(crate) fn is_authority(&self) -> bool {
        let says = match self.extension(ID_BASIC_CONSTRAINTS).map(Der::new) {
            Some(mut constraints) => {
                let flag = constraints.enter(der::SEQUENCE).and_then(|mut inside| inside.take(der::BOOLEAN));
                flag.is_some_and(|flag| flag != [0])
            }
            None => self.key_usage().is_some() || self.extensions.is_empty() && self.subject == self.issuer,
        };
        says && self.may_sign_certificates()
    }

    /// How many authorities may stand between it and the last certificate (`pathLenConstraint`).
    pub(crate) fn path_length(&self) -> Option<u32> {
        let mut constraints = Der::new(self.extension(ID_BASIC_CONSTRAINTS)?).enter(der::SEQUENCE)?;
        constraints.optional(der::BOOLEAN)?;
        let number = constraints.unsigned()?;
        Some(number.iter().fold(0_u32, |sum, byte| sum.saturating_mul(256).saturating_add(u32::from(*byte))))
    }

    /// Whether `extendedKeyUsage` names clients; `None` without it.
    pub(crate) fn is_for_clients(&self) -> Option<bool> {
        self.is_for(ID_CLIENT_AUTH)
    }

    /// Whether `extendedKeyUsage` names servers; `None` without it.
    pub(crate) fn is_for_servers(&self) -> Option<bool> {
        self.is_for(ID_SERVER_AUTH)
    }

    fn is_for(&self, wanted: &[u8]) -> Option<bool> {
        let mut purposes = Der::new(self.extension(ID_EXTENDED_KEY_USAGE)?).enter(der::SEQUENCE)?;
        Some(std::iter::from_fn(|| purposes.take(der::OID)).any(|purpose| purpose == wanted))
    }

    /// Whether what [`X509::names`] walks over is whole.
    fn check_names(&self) -> Option<()> {
        let mut names = Der::new(self.alternatives());
        while !names.is_empty() {
            // The kinds of GeneralName, RFC 5280 4.2.1.6.
            matches!(names.any()?.tag, 0xa0 | 0x81 | 0x82 | 0xa3 | 0xa4 | 0xa5 | 0x86 | 0x87 | 0x88).then_some(())?;
        }
        for name in [self.issuer, self.subject] {
            let mut sets = Der::new(name).enter(der::SEQUENCE)?;
            while !sets.is_empty() {
                let mut set = sets.enter(der::SET)?;
                while !set.is_empty() {
                    let mut pair = set.enter(der::SEQUENCE)?;
                    pair.take(der::OID)?;
                    pair.any()?;
                    if !pair.is_empty() {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}

impl Curve {
    /// By its object identifier.
    pub(crate) fn of(id: &[u8]) -> Option<Curve> {
        match id {
            ID_P256 => Some(Curve::P256),
            ID_P384 => Some(Curve::P384),
            ID_P521 => Some(Curve::P521),
            _ => None,
        }
    }

    /// Its object identifier.
    pub(crate) fn id(self) -> &'static [u8] {
        match self {
            Curve::P256 => ID_P256,
            Curve::P384 => ID_P384,
            Curve::P521 => ID_P521,
        }
    }
}

/// The attributes of a name that was checked: identifier, tag and content of the value.
pub(crate) fn attributes(name: &[u8]) -> impl Iterator<Item = (&[u8], u8, &[u8])> {
    let mut sets = Der::new(name).enter(der::SEQUENCE).unwrap_or(Der::new(&[]));
    let mut set = Der::new(&[]);
    std::iter::from_fn(move || {
        while set.is_empty() {
            set = sets.enter(der::SET)?;
        }
        let mut pair = set.enter(der::SEQUENCE)?;
        let (id, value) = (pair.take(der::OID)?, pair.any()?);
        Some((id, value.tag, value.content))
    })
}

/// The content of `subjectAltName` among extensions; `Some(None)` when there is none.
fn alternatives(extensions: &[u8]) -> Option<Option<&[u8]>> {
    let mut list = Der::new(extensions);
    let mut found = None;
    while !list.is_empty() {
        let mut extension = list.enter(der::SEQUENCE)?;
        let id = extension.take(der::OID)?;
        extension.optional(der::BOOLEAN)?;
        let value = extension.take(der::OCTET_STRING)?;
        if !extension.is_empty() {
            return None;
        }
        if id == ID_SUBJECT_ALT_NAME {
            let mut value = Der::new(value);
            let names = value.take(der::SEQUENCE)?;
            if found.is_some() || !value.is_empty() {
                return None;
            }
            found = Some(names);
        }
    }
    Some(found)
}

/// A time (RFC 5280 4.1.2.5): seconds since 1970. Both forms end with `Z` and have seconds.
pub(crate) fn time(der: &mut Der<'_>) -> Option<i64> {
    let element = der.any()?;
    let (year, rest) = match (element.tag, element.content.len()) {
        (der::UTC_TIME, 13) => {
            let year = digits(&element.content[..2])?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &element.content[2..])
        }
        (der::GENERALIZED_TIME, 15) => (digits(&element.content[..4])?, &element.content[4..]),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| digits(&rest[at..at + 2]));
    let (month, day, hour, minute, second) = (month?, day?, hour?, minute?, second?);
    let wrong = !(1..=12).contains(&month) || day < 1 || day > days_in(year, month);
    if rest[10] != b'Z' || wrong || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let past = year - 1;
    let leaps = past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400);
    let this_year = BEFORE[month as usize - 1] + i64::from(month > 2 && is_leap(year));
    past * 365 + leaps + this_year + day - 1 - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let read = |tag: u8, text: &str| {
            let bytes = [&[tag, text.len() as u8], text.as_bytes()].concat();
            time(&mut Der::new(&bytes))
        };
        assert_eq!(read(der::UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(read(der::UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(read(der::UTC_TIME, "500101000000Z"), Some(-631_152_000));
        assert_eq!(read(der::UTC_TIME, "240229120000Z"), Some(1_709_208_000));
        assert_eq!(read(der::GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        assert_eq!(read(der::GENERALIZED_TIME, "20000229000000Z"), Some(951_782_400));
        for (tag, text) in [
            (der::UTC_TIME, "230229120000Z"),
            (der::UTC_TIME, "241301000000Z"),
            (der::UTC_TIME, "240101240000Z"),
            (der::UTC_TIME, "2401010000Z"),
            (der::UTC_TIME, "240101000000+"),
            (der::GENERALIZED_TIME, "19000229000000Z"),
            (der::INTEGER, "240101000000Z"),
        ] {
            assert_eq!(read(tag, text), None, "{text}");
        }
    }
}
