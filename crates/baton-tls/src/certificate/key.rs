//! Private keys (RFC 5208 and 5958, RFC 5915, RFC 8017 A.1.2), read as far as it takes to say whose they are. Their secret
//! numbers are neither looked at nor copied here.

use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair};
use rustls_pki_types::PrivateKeyDer;

use super::der::{self, Der};
use super::x509::{Curve, PublicKey};

/// The envelope a private key is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// `PRIVATE KEY`.
    Pkcs8,
    /// `RSA PRIVATE KEY`.
    Pkcs1,
    /// `EC PRIVATE KEY`.
    Sec1,
}

/// Whether a private key belongs to a public one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Match {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It cannot be read.
    Unreadable,
}

const ID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl Form {
    /// The label of a PEM block.
    pub(crate) fn of(label: &[u8]) -> Option<Form> {
        match label {
            b"PRIVATE KEY" => Some(Form::Pkcs8),
            b"RSA PRIVATE KEY" => Some(Form::Pkcs1),
            b"EC PRIVATE KEY" => Some(Form::Sec1),
            _ => None,
        }
    }

    /// The key, as rustls takes it.
    pub(crate) fn wrap(self, der: &[u8]) -> PrivateKeyDer<'_> {
        match self {
            Form::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
            Form::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
            Form::Sec1 => PrivateKeyDer::Sec1(der.into()),
        }
    }
}

/// Whether the private key in `der` belongs to `public`. Compared is what the file says of the public half; only where it
/// says nothing it is computed.
pub(crate) fn belongs(form: Form, der: &[u8], public: PublicKey<'_>) -> Match {
    let verdict = match form {
        Form::Pkcs1 => rsa(der, public),
        Form::Sec1 => ec(der, None, (form, der), public),
        Form::Pkcs8 => pkcs8(der, public),
    };
    match verdict {
        Some(true) => Match::Yes,
        Some(false) => Match::No,
        None => Match::Unreadable,
    }
}

fn rsa(der: &[u8], public: PublicKey<'_>) -> Option<bool> {
    let mut numbers = Der::new(der).enter(der::SEQUENCE)?;
    if numbers.take(der::INTEGER)? != [0] {
        return None;
    }
    let (modulus, exponent) = (numbers.unsigned()?, numbers.unsigned()?);
    // d, p, q, and what is derived of them.
    for _ in 0..6 {
        numbers.unsigned()?;
    }
    Some(public == PublicKey::Rsa { modulus, exponent })
}

fn pkcs8(der: &[u8], public: PublicKey<'_>) -> Option<bool> {
    let mut info = Der::new(der).enter(der::SEQUENCE)?;
    if !matches!(info.take(der::INTEGER)?, [0 | 1]) {
        return None;
    }
    let mut algorithm = info.enter(der::SEQUENCE)?;
    let id = algorithm.take(der::OID)?;
    let key = info.take(der::OCTET_STRING)?;
    match id {
        ID_RSA => rsa(key, public),
        ID_EC => ec(key, Some(Curve::of(algorithm.take(der::OID)?)), (Form::Pkcs8, der), public),
        ID_ED25519 => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
            Some(public == PublicKey::Ed25519(pair.public_key().as_ref()))
        }
        // Another kind of key, whole as far as one can tell.
        _ => Some(false),
    }
}

/// `curve` is what the envelope said of it.
fn ec(key: &[u8], curve: Option<Option<Curve>>, whole: (Form, &[u8]), public: PublicKey<'_>) -> Option<bool> {
    let mut fields = Der::new(key).enter(der::SEQUENCE)?;
    if fields.take(der::INTEGER)? != [1] {
        return None;
    }
    fields.take(der::OCTET_STRING)?;
    let parameters = fields.optional(der::context(0))?;
    let inside = match parameters {
        Some(parameters) => Some(Curve::of(Der::new(parameters).take(der::OID)?)),
        None => None,
    };
    let Some(curve) = curve.or(inside)? else { return Some(false) };
    let PublicKey::Ec { curve: wanted, point } = public else { return Some(false) };
    if curve != wanted {
        return Some(false);
    }
    match fields.optional(der::context(1))? {
        Some(inside) => Some(Der::new(inside).bits()? == point),
        None => Some(ec_point(curve, whole)?.as_ref() == point),
    }
}

/// The public point of a key that does not say it.
fn ec_point(curve: Curve, (form, der): (Form, &[u8])) -> Option<signature::EcdsaPublicKey> {
    let algorithm: &'static EcdsaSigningAlgorithm = match curve {
        Curve::P256 => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
        Curve::P521 => &signature::ECDSA_P521_SHA512_ASN1_SIGNING,
    };
    let pair = match form {
        Form::Pkcs8 => EcdsaKeyPair::from_pkcs8(algorithm, der),
        Form::Sec1 | Form::Pkcs1 => EcdsaKeyPair::from_private_key_der(algorithm, der),
    };
    Some(pair.ok()?.public_key().clone())
}
