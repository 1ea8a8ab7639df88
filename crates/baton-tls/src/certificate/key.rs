//! Private keys (RFC 5208 and 5958, RFC 5915, RFC 8017 A.1.2), read as far as it takes to say whose they are. Kept of a key is
//! what its certificate does not say; a whole one is made of both when somebody signs.

use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair};
use rustls_pki_types::PrivateKeyDer;

use super::der::{self, Der};
use super::x509::{Curve, PublicKey};

/// The envelope a private key is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyEncoding {
    /// `PRIVATE KEY`.
    Pkcs8,
    /// `RSA PRIVATE KEY`.
    Pkcs1,
    /// `EC PRIVATE KEY`.
    Sec1,
}

/// Whether a private key belongs to a public one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Match<'a> {
    /// It does. This of it is not in the public half already; [`rebuild`] makes a whole key of both.
    Yes(&'a [u8]),
    /// It does not.
    No,
    /// It cannot be read.
    Unreadable,
}

const ID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl KeyEncoding {
    /// The label of a PEM block.
    pub(crate) fn of(label: &[u8]) -> Option<KeyEncoding> {
        match label {
            b"PRIVATE KEY" => Some(KeyEncoding::Pkcs8),
            b"RSA PRIVATE KEY" => Some(KeyEncoding::Pkcs1),
            b"EC PRIVATE KEY" => Some(KeyEncoding::Sec1),
            _ => None,
        }
    }

    /// The key, as rustls takes it.
    pub(crate) fn wrap(self, der: &[u8]) -> PrivateKeyDer<'_> {
        match self {
            KeyEncoding::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
            KeyEncoding::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
            KeyEncoding::Sec1 => PrivateKeyDer::Sec1(der.into()),
        }
    }
}

/// Whether the private key in `der` belongs to `public`. Compared is what the file says of the public half; only where it
/// says nothing it is computed.
pub(crate) fn belongs<'a>(form: KeyEncoding, der: &'a [u8], public: PublicKey<'_>) -> Match<'a> {
    let verdict = match form {
        KeyEncoding::Pkcs1 => rsa(der, public),
        KeyEncoding::Sec1 => ec(der, None, (form, der), public),
        KeyEncoding::Pkcs8 => pkcs8(der, public),
    };
    match verdict {
        Some(Some(secret)) => Match::Yes(secret),
        Some(None) => Match::No,
        None => Match::Unreadable,
    }
}

/// The secret half of a key; `Some(None)`: it is another's; `None`: it cannot be read.
type PrivateHalf<'a> = Option<Option<&'a [u8]>>;

fn rsa<'a>(der: &'a [u8], public: PublicKey<'_>) -> PrivateHalf<'a> {
    let mut outside = Der::new(der);
    let mut numbers = outside.enter(der::SEQUENCE).filter(|_| outside.is_empty())?;
    if numbers.take(der::INTEGER)? != [0] {
        return None;
    }
    let (modulus, exponent) = (numbers.unsigned()?, numbers.unsigned()?);
    let secret = numbers.rest();
    // d, p, q, and what is derived of them.
    for _ in 0..6 {
        numbers.unsigned()?;
    }
    numbers.is_empty().then_some(())?;
    Some((public == PublicKey::Rsa { modulus, exponent }).then_some(secret))
}

fn pkcs8<'a>(der: &'a [u8], public: PublicKey<'_>) -> PrivateHalf<'a> {
    let mut info = Der::new(der).enter(der::SEQUENCE)?;
    if !matches!(info.take(der::INTEGER)?, [0 | 1]) {
        return None;
    }
    let mut algorithm = info.enter(der::SEQUENCE)?;
    let id = algorithm.take(der::OID)?;
    let key = info.take(der::OCTET_STRING)?;
    match id {
        ID_RSA => rsa(key, public),
        ID_EC => ec(key, Some(Curve::of(algorithm.take(der::OID)?)), (KeyEncoding::Pkcs8, der), public),
        ID_ED25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
            let secret = Der::new(key).take(der::OCTET_STRING)?;
            Some((public == PublicKey::Ed25519(pair.public_key().as_ref())).then_some(secret))
        }
        // Another kind of key, whole as far as one can tell.
        _ => Some(None),
    }
}

/// `curve` is what the envelope said of it.
fn ec<'a>(
    key: &'a [u8],
    curve: Option<Option<Curve>>,
    whole: (KeyEncoding, &[u8]),
    public: PublicKey<'_>,
) -> PrivateHalf<'a> {
    let mut fields = Der::new(key).enter(der::SEQUENCE)?;
    if fields.take(der::INTEGER)? != [1] {
        return None;
    }
    let secret = fields.take(der::OCTET_STRING)?;
    let parameters = fields.optional(der::context(0))?;
    let inside = match parameters {
        Some(parameters) => Some(Curve::of(Der::new(parameters).take(der::OID)?)),
        None => None,
    };
    let Some(curve) = curve.or(inside)? else { return Some(None) };
    let PublicKey::Ec { curve: wanted, point } = public else { return Some(None) };
    if curve != wanted {
        return Some(None);
    }
    let is_its_own = match fields.optional(der::context(1))? {
        Some(inside) => Der::new(inside).bits()? == point,
        None => ec_point(curve, whole)?.as_ref() == point,
    };
    Some(is_its_own.then_some(secret))
}

/// A whole private key of its public half and what [`belongs`] gave of it.
pub(crate) fn rebuild(public: PublicKey<'_>, secret: &[u8]) -> (KeyEncoding, Vec<u8>) {
    match public {
        PublicKey::Rsa { modulus, exponent } => {
            let numbers = [&[der::INTEGER, 1, 0][..], &unsigned(modulus), &unsigned(exponent), secret].concat();
            (KeyEncoding::Pkcs1, der::wrap(der::SEQUENCE, &numbers))
        }
        PublicKey::Ec { curve, point } => {
            let curve = der::wrap(der::context(0), &der::wrap(der::OID, curve.id()));
            let point = der::wrap(der::context(1), &der::wrap(der::BIT_STRING, &[&[0], point].concat()));
            let fields = [&[der::INTEGER, 1, 1][..], &der::wrap(der::OCTET_STRING, secret), &curve, &point].concat();
            (KeyEncoding::Sec1, der::wrap(der::SEQUENCE, &fields))
        }
        PublicKey::Ed25519(_) => {
            let algorithm = der::wrap(der::SEQUENCE, &der::wrap(der::OID, ID_ED25519));
            let key = der::wrap(der::OCTET_STRING, &der::wrap(der::OCTET_STRING, secret));
            (KeyEncoding::Pkcs8, der::wrap(der::SEQUENCE, &[&[der::INTEGER, 1, 0][..], &algorithm, &key].concat()))
        }
    }
}

/// An `INTEGER` of bytes without leading zeros.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let zero = bytes.first().is_none_or(|first| *first >= 0x80);
    der::wrap(der::INTEGER, &[if zero { &[0][..] } else { &[] }, bytes].concat())
}

/// The public point of a key that does not say it.
fn ec_point(curve: Curve, (form, der): (KeyEncoding, &[u8])) -> Option<signature::EcdsaPublicKey> {
    let algorithm: &'static EcdsaSigningAlgorithm = match curve {
        Curve::P256 => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
        Curve::P521 => &signature::ECDSA_P521_SHA512_ASN1_SIGNING,
    };
    let pair = match form {
        KeyEncoding::Pkcs8 => EcdsaKeyPair::from_pkcs8(algorithm, der),
        KeyEncoding::Sec1 | KeyEncoding::Pkcs1 => EcdsaKeyPair::from_private_key_der(algorithm, der),
    };
    Some(pair.ok()?.public_key().clone())
}
