//! Lists of revoked certificates (RFC 5280 5) for people and for runtime commands: what they say, not whether it is true.
//! Signatures are checked by those who rely on them.

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

/// A number without the zero that keeps it from being negative.
fn unsigned(number: &[u8]) -> &[u8] {
    number.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(number)
}

/// OpenSSL's name of a signature or hash.
pub(super) fn algorithm(id: &[u8]) -> String {
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
}
