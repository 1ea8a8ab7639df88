//! Lists of revoked certificates (RFC 5280 5) and OCSP responses (RFC 6960 4.2) for people and for runtime commands: what they
//! say, not whether it is true. Signatures are checked by those who rely on them.

use aws_lc_rs::digest;

use super::Certificate;
use super::der::{self, Der};
use super::describe::{dotted, hex, one_line, time};
use super::x509::time as read_time;

/// Revoked certificates that a description lists; the others are counted.
const REVOKED_LISTED_MAX: usize = 10_000;

/// What a list of revoked certificates says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RevocationList {
    /// 1 or 2.
    pub version: u8,
    /// `ecdsa-with-SHA256`.
    pub algorithm: String,
    /// `/O=Example/CN=Root`.
    pub issuer: String,
    /// When it was made: `Nov 21 13:34:10 2026 GMT`.
    pub last_update: String,
    /// When there will be another one, if it says so.
    pub next_update: Option<String>,
    /// Serial numbers in hexadecimal digits, and since when each is revoked; some thousands at most.
    pub revoked: Vec<(String, String)>,
}

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
    /// Who says it: `/O=Example/CN=Root`, or the hash of a key.
    pub responder: String,
    /// When it was made: `Nov 21 13:34:10 2026 GMT`.
    pub produced_at: String,
    /// Since when it is so.
    pub this_update: String,
    /// Until when it may be relied on.
    pub next_update: Option<String>,
    /// The same, in seconds since 1970.
    pub until: Option<i64>,
}

impl RevocationList {
    /// Reads a list in DER; `None` when it is none.
    pub fn read(bytes: &[u8]) -> Option<RevocationList> {
        let mut whole = Der::new(bytes).enter(der::SEQUENCE)?;
        let mut list = whole.enter(der::SEQUENCE)?;
        let version = list.optional(der::INTEGER)?.and_then(|version| version.first().copied()).map_or(1, |v| v + 1);
        let algorithm = algorithm(list.enter(der::SEQUENCE)?.take(der::OID)?);
        let issuer = one_line(list.element(der::SEQUENCE)?.whole);
        let last_update = time(read_time(&mut list)?);
        let has_next = matches!(list.peek(), Some(der::UTC_TIME | der::GENERALIZED_TIME));
        let next_update = if has_next { Some(time(read_time(&mut list)?)) } else { None };
        let mut revoked = Vec::new();
        let mut entries = Der::new(list.optional(der::SEQUENCE)?.unwrap_or_default());
        while let Some(mut entry) = entries.enter(der::SEQUENCE) {
            if revoked.len() < REVOKED_LISTED_MAX {
                revoked.push((hex(unsigned(entry.take(der::INTEGER)?)), time(read_time(&mut entry)?)));
            }
        }
        Some(RevocationList { version, algorithm, issuer, last_update, next_update, revoked })
    }
}

impl OcspResponse {
    /// Reads a successful response in DER about one certificate; `None` when it is none.
    pub fn read(bytes: &[u8]) -> Option<OcspResponse> {
        let mut outside = Der::new(bytes);
        let mut response = outside.enter(der::SEQUENCE).filter(|_| outside.is_empty())?;
        (response.take(der::ENUMERATED)? == [0]).then_some(())?;
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
        let mut single = data.enter(der::SEQUENCE)?.enter(der::SEQUENCE)?;
        let id = single.element(der::SEQUENCE)?;
        let mut parts = Der::new(id.content);
        let hash = algorithm(parts.enter(der::SEQUENCE)?.take(der::OID)?);
        let (issuer_name, issuer_key) = (parts.take(der::OCTET_STRING)?, parts.take(der::OCTET_STRING)?);
        let serial = parts.take(der::INTEGER)?;
        let status = match single.any()?.tag & 0x1f {
            0 => "good",
            1 => "revoked",
            _ => "unknown",
        };
        let this_update = time(read_time(&mut single)?);
        let next = single.optional(der::context(0))?;
        let until = next.and_then(|next| read_time(&mut Der::new(next)));
        Some(OcspResponse {
            id: id.whole.to_vec(),
            hash,
            issuer_name: issuer_name.to_vec(),
            issuer_key: issuer_key.to_vec(),
            serial: serial.to_vec(),
            status,
            responder,
            produced_at,
            this_update,
            next_update: until.map(time),
            until,
        })
    }

    /// Whether it is about this certificate: the serial number, and the issuer's name.
    pub fn is_about(&self, certificate: &Certificate) -> bool {
        let read = certificate.x509();
        let algorithm = match self.issuer_name.len() {
            20 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            32 => &digest::SHA256,
            _ => return false,
        };
        read.serial == self.serial && digest::digest(algorithm, read.issuer).as_ref() == self.issuer_name
    }
}

/// A number without the zero that keeps it from being negative.
fn unsigned(number: &[u8]) -> &[u8] {
    number.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(number)
}

/// OpenSSL's name of a signature or hash.
fn algorithm(id: &[u8]) -> String {
    let known = match id {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5] => "sha1WithRSAEncryption",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11] => "sha256WithRSAEncryption",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] => "sha384WithRSAEncryption",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] => "sha512WithRSAEncryption",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10] => "rsassaPss",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => "ecdsa-with-SHA256",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => "ecdsa-with-SHA384",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => "ecdsa-with-SHA512",
        [0x2b, 0x65, 0x70] => "ED25519",
        [0x2b, 0x0e, 3, 2, 0x1a] => "sha1",
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => "sha256",
        _ => return dotted(id),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams};

    use super::*;

    #[test]
    fn lists_are_described() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Root");
        let issuer = Issuer::new(params, &key);
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 11, 1),
            next_update: rcgen::date_time_ymd(2026, 12, 24),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: vec![0xab, 1].into(),
                revocation_time: rcgen::date_time_ymd(2026, 10, 9),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).unwrap();
        let read = RevocationList::read(list.der()).unwrap();
        assert_eq!((read.version, &*read.algorithm), (2, "ecdsa-with-SHA256"));
        assert!(read.issuer.ends_with("CN=Root"), "{}", read.issuer);
        assert_eq!(read.last_update, "Nov  1 00:00:00 2026 GMT");
        assert_eq!(read.next_update.as_deref(), Some("Dec 24 00:00:00 2026 GMT"));
        assert_eq!(read.revoked, [("AB01".to_owned(), "Oct  9 00:00:00 2026 GMT".to_owned())]);
        for end in 0..list.der().len() {
            assert_eq!(RevocationList::read(&list.der()[..end]), None);
        }
    }

    #[test]
    fn what_is_no_response_is_none() {
        for bytes in [&b""[..], b"\x30\x03\x0a\x01\x00", b"\x30\x03\x0a\x01\x06", b"junk"] {
            assert_eq!(OcspResponse::read(bytes), None);
        }
    }
}
