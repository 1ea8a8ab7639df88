//! The parts of a certificate (RFC 5280 4.1), in the order in which they stand in it. Whatever is read of a certificate is read of these,
//! so that no two readers find different parts in the same bytes; what is in a part is its reader's business.

use super::der::{self, Der, Element};

/// The parts of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline<'a> {
    /// All that is signed, as one element.
    pub(crate) signed: &'a [u8],
    /// The version of the format; `None` where it is not said, as in version 1.
    pub(crate) version: Option<u8>,
    /// The serial number, with its sign.
    pub(crate) serial: &'a [u8],
    /// How it is signed, as what is signed says it.
    pub(crate) algorithm_within: &'a [u8],
    /// The issuer's name.
    pub(crate) issuer: Element<'a>,
    /// Two times.
    pub(crate) validity: Der<'a>,
    /// The subject's name.
    pub(crate) subject: Element<'a>,
    /// The `SubjectPublicKeyInfo`.
    pub(crate) key_info: Element<'a>,
    /// Unique identifiers and extensions.
    pub(crate) rest: Der<'a>,
    /// How it is signed.
    pub(crate) algorithm: &'a [u8],
    /// The signature.
    pub(crate) signature: &'a [u8],
}

impl<'a> Outline<'a> {
    /// Reads a certificate in DER; `None` when it is none, or has bytes after it.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Outline<'a>> {
        let mut outside = Der::new(bytes);
        let mut whole = outside.enter(der::SEQUENCE)?;
        let signed = whole.element(der::SEQUENCE)?;
        let (algorithm, signature) = (whole.take(der::SEQUENCE)?, whole.bits()?);
        if !(whole.is_empty() && outside.is_empty()) {
            return None;
        }
        let mut inside = Der::new(signed.content);
        let version = match inside.optional(der::context(0))? {
            None => None,
            Some([der::INTEGER, 1, version @ 0..=2]) => Some(version + 1),
            Some(_) => return None,
        };
        let (serial, algorithm_within) = (inside.take(der::INTEGER)?, inside.take(der::SEQUENCE)?);
        let (issuer, validity) = (inside.element(der::SEQUENCE)?, inside.enter(der::SEQUENCE)?);
        let (subject, key_info) = (inside.element(der::SEQUENCE)?, inside.element(der::SEQUENCE)?);
        let (signed, rest) = (signed.whole, inside);
        Some(Outline {
            signed,
            version,
            serial,
            algorithm_within,
            issuer,
            validity,
            subject,
            key_info,
            rest,
            algorithm,
            signature,
        })
    }
}
