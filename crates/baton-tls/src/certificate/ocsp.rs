//! OCSP responses (RFC 6960 4.2) that are stapled to handshakes: what they say, of which certificate, and until when. Signatures
//! are checked by the clients, who rely on them.

use std::fmt;
use std::ops::Deref;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;

use super::Certificate;
use super::der::{self, Der};
use super::describe::{hex, one_line, time};
use super::revocation::algorithm;
use super::x509::{X509, time as read_time};

/// Seconds that clocks may differ: a response is taken so long after its end and before its beginning, and is stapled until so
/// long before its end. HAProxy's.
const SKEW_S: i64 = 300;

/// What an OCSP response says of one certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OcspResponse {
    /// Which certificate it is about, as DER (`CertID`).
    pub id: Vec<u8>,
    /// `sha1`.
    pub hash: String,
    /// Hash of the issuer's name.
    pub issuer_name: Vec<u8>,
    /// Hash of the issuer's key.
    pub issuer_key: Vec<u8>,
    /// The certificate's serial number, as in it.
    pub serial: Vec<u8>,
    /// `good`, `revoked` or `unknown`.
    pub status: &'static str,
    /// Since when it is revoked.
    pub revoked_at: Option<String>,
    /// Why, if it says so: a number of RFC 5280 5.3.1.
    pub reason: Option<u8>,
    /// Who says it: `/O=Example/CN=Root`, or the hash of a key.
    pub responder: String,
    /// When it was made: `Nov 21 13:34:10 2026 GMT`.
    pub produced_at: String,
    /// Since when it is so.
    pub this_update: String,
    /// `this_update` in seconds since 1970.
    pub since: i64,
    /// Until when it may be relied on.
    pub next_update: Option<String>,
    /// `next_update` in seconds since 1970.
    pub until: Option<i64>,
}

/// Why an OCSP response is not stapled; in HAProxy's words, without a full stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OcspError {
    /// It is none.
    Form,
    /// The responder says that it has no answer.
    NotSuccessful,
    /// It is about so many certificates instead of one.
    Several(usize),
    /// The responder does not know the certificate.
    Unknown,
    /// It does not say until when it may be relied on.
    NoEnd,
    /// It is out of date, or of the future.
    Dates,
    /// It is of another certificate; or names it by another hash than SHA-1.
    Foreign,
}

/// A response in DER, and until when it is stapled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Staple {
    der: Box<[u8]>,
    /// Seconds since 1970.
    until: i64,
}

impl OcspResponse {
    /// Reads a successful response in DER about one certificate.
    ///
    /// # Errors
    /// [`OcspError::Form`], [`OcspError::NotSuccessful`] or [`OcspError::Several`].
    pub fn read(bytes: &[u8]) -> Result<OcspResponse, OcspError> {
        let mut outside = Der::new(bytes);
        let response = outside.enter(der::SEQUENCE).filter(|_| outside.is_empty());
        let mut response = response.ok_or(OcspError::Form)?;
        match response.take(der::ENUMERATED).ok_or(OcspError::Form)? {
            [0] => Self::read_answer(response).unwrap_or(Err(OcspError::Form)),
            _ => Err(OcspError::NotSuccessful),
        }
    }

    /// `None`: it has no such form.
    fn read_answer(mut response: Der<'_>) -> Option<Result<OcspResponse, OcspError>> {
        let mut typed = response.enter(der::context(0))?.enter(der::SEQUENCE)?;
        typed.take(der::OID)?;
        let mut data = Der::new(typed.take(der::OCTET_STRING)?).enter(der::SEQUENCE)?.enter(der::SEQUENCE)?;
        data.optional(der::context(0))?;
        let by = data.any()?;
        let responder = match by.tag {
            tag if tag == der::context(1) => one_line(by.content),
            tag if tag == der::context(2) => hex(Der::new(by.content).take(der::OCTET_STRING)?),
            _ => return None,
        };
        let produced_at = time(read_time(&mut data)?);
        let mut all = data.enter(der::SEQUENCE)?;
        let mut single = all.enter(der::SEQUENCE)?;
        let mut number = 1;
        while all.enter(der::SEQUENCE).is_some() {
            number += 1;
        }
        if number > 1 {
            return Some(Err(OcspError::Several(number)));
        }
        let id = single.element(der::SEQUENCE)?;
        let mut parts = Der::new(id.content);
        let hash = algorithm(parts.enter(der::SEQUENCE)?.take(der::OID)?);
        let (issuer_name, issuer_key) = (parts.take(der::OCTET_STRING)?, parts.take(der::OCTET_STRING)?);
        let serial = parts.take(der::INTEGER)?;
        let said = single.any()?;
        let mut details = Der::new(said.content);
        let (status, revoked_at, reason) = match said.tag & 0x1f {
            0 => ("good", None, None),
            1 => {
                let at = time(read_time(&mut details)?);
                let reason = details.optional(der::context(0))?;
                let reason = reason.and_then(|reason| Der::new(reason).take(der::ENUMERATED)?.first().copied());
                ("revoked", Some(at), reason)
            }
            _ => ("unknown", None, None),
        };
        let since = read_time(&mut single)?;
        let next = single.optional(der::context(0))?;
        let until = next.and_then(|next| read_time(&mut Der::new(next)));
        Some(Ok(OcspResponse {
            id: id.whole.to_vec(),
            hash,
            issuer_name: issuer_name.to_vec(),
            issuer_key: issuer_key.to_vec(),
            serial: serial.to_vec(),
            status,
            revoked_at,
            reason,
            responder,
            produced_at,
            this_update: time(since),
            since,
            next_update: until.map(time),
            until,
        }))
    }

    /// Whether it may be stapled at this time, in seconds since 1970. That a certificate is revoked may be said of it.
    ///
    /// # Errors
    /// [`OcspError::Unknown`], [`OcspError::NoEnd`] or [`OcspError::Dates`].
    pub fn check(&self, now: i64) -> Result<(), OcspError> {
        if self.status == "unknown" {
            return Err(OcspError::Unknown);
        }
        let until = self.until.ok_or(OcspError::NoEnd)?;
        let is_now = self.since <= now.saturating_add(SKEW_S) && until >= now.saturating_sub(SKEW_S);
        if is_now && self.since <= until { Ok(()) } else { Err(OcspError::Dates) }
    }

    /// Whether it is about this certificate: the serial number, and the issuer's name and key, by SHA-1.
    pub fn is_about(&self, certificate: &Certificate) -> bool {
        let read = certificate.x509();
        let Some(issuer) = certificate.issuer_der().and_then(X509::read) else { return false };
        let Some(key) = key_bits(issuer.key_info) else { return false };
        let sha1 = |bytes: &[u8]| digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
        self.hash == "sha1"
            && read.serial == self.serial
            && sha1(read.issuer).as_ref() == self.issuer_name
            && sha1(key).as_ref() == self.issuer_key
    }
}

/// The key itself of a `SubjectPublicKeyInfo`.
fn key_bits(info: &[u8]) -> Option<&[u8]> {
    let mut info = Der::new(info).enter(der::SEQUENCE)?;
    info.take(der::SEQUENCE)?;
    info.bits()
}

impl Staple {
    pub(super) fn new(der: Vec<u8>) -> Staple {
        let end = OcspResponse::read(&der).ok().and_then(|response| response.until);
        Staple { der: der.into(), until: end.map_or(i64::MAX, |end| end.saturating_sub(SKEW_S)) }
    }

    /// Whether clients may still rely on it.
    pub(super) fn is_fresh(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).is_ok_and(|now| now <= self.until)
    }
}

impl Deref for Staple {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.der
    }
}

impl fmt::Display for OcspError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OcspError::Form => out.write_str("Unable to parse OCSP response"),
            OcspError::NotSuccessful => out.write_str("OCSP response status not successful"),
            OcspError::Several(number) => {
                write!(out, "OCSP response ignored because contains multiple single responses ({number})")
            }
            OcspError::Unknown => out.write_str("OCSP single response: certificate status is unknown"),
            OcspError::NoEnd => out.write_str("OCSP single response: missing nextupdate"),
            OcspError::Dates => out.write_str("OCSP single response: no longer valid"),
            OcspError::Foreign => {
                out.write_str("OCSP single response: Certificate ID does not match certificate and issuer")
            }
        }
    }
}

impl std::error::Error for OcspError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_response_is_none() {
        for (bytes, fault) in [
            (&b""[..], OcspError::Form),
            (b"\x30\x03\x0a\x01\x00", OcspError::Form),
            (b"\x30\x03\x0a\x01\x06", OcspError::NotSuccessful),
            (b"junk", OcspError::Form),
        ] {
            assert_eq!(OcspResponse::read(bytes), Err(fault));
        }
    }

    #[test]
    fn a_response_holds_from_its_beginning_to_its_end_and_a_little_more() {
        let response = OcspResponse { status: "good", since: 1000, until: Some(9000), ..OcspResponse::default() };
        for (now, expected) in
            [(699, Err(OcspError::Dates)), (700, Ok(())), (1000, Ok(())), (9300, Ok(())), (9301, Err(OcspError::Dates))]
        {
            assert_eq!(response.check(now), expected, "{now}");
        }
        let backwards = OcspResponse { until: Some(999), ..response.clone() };
        assert_eq!(backwards.check(1000), Err(OcspError::Dates));
        assert_eq!(OcspResponse { until: None, ..response.clone() }.check(1000), Err(OcspError::NoEnd));
        assert_eq!(OcspResponse { status: "unknown", ..response.clone() }.check(1000), Err(OcspError::Unknown));
        assert_eq!(OcspResponse { status: "revoked", ..response }.check(1000), Ok(()));
    }
}
