//! Certificates made on the fly: for tests, the demo and measurements.
//!
//! An [`Authority`] is a root and an authority between it and the certificates it issues, so that every chain shown has two
//! parts, as chains on the web have. It issues thousands a second, because a few keys serve for all of them: what is measured or
//! tested depends on how many certificates there are, not on how many keys. One certificate and the next one never have the same
//! key, so that a certificate which is shown with another one's key is noticed.
//!
//! For nothing that matters: keys lie in memory and in files as they are.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Keys of each kind that all certificates of an authority share, in turn.
pub const KEYS_OF_A_KIND: u64 = 4;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest life of a public certificate from 2029 on.
const LIFE: Duration = Duration::from_secs(47 * 24 * 60 * 60);

/// How long the authorities are valid.
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The kind of a key.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum KeyKind {
    /// ECDSA on the curve P-256.
    #[default]
    P256,
    /// ECDSA on the curve P-384.
    P384,
    /// RSA of 2,048 bits. The first certificates take long: such keys are found by trying.
    Rsa2048,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    fn generate(self) -> io::Result<KeyPair> {
        KeyPair::generate_for(match self {
            KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            KeyKind::Rsa2048 => &rcgen::PKCS_RSA_SHA256,
            KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        })
        .map_err(failed)
    }
}

/// What a certificate says; [`CertificateSpec::server`] and [`CertificateSpec::client`] give the usual.
#[derive(Clone, Debug)]
pub struct CertificateSpec {
    /// The subject's common name; `None` leaves the subject empty.
    pub common_name: Option<String>,
    /// Alternative names: host names, also with `*.`, and addresses.
    pub names: Vec<String>,
    /// The kind of its key.
    pub kind: KeyKind,
    /// Valid from then on.
    pub from: SystemTime,
    /// … and until then.
    pub until: SystemTime,
    /// For clients instead of servers.
    pub client: bool,
}

impl CertificateSpec {
    /// For a server with these names, the first of which is the common name too; valid from yesterday on for 47 days.
    pub fn server<'a>(names: impl IntoIterator<Item = &'a str>) -> CertificateSpec {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let yesterday = SystemTime::now() - DAY;
        CertificateSpec {
            common_name: names.first().cloned(),
            names,
            kind: KeyKind::P256,
            from: yesterday,
            until: yesterday + LIFE,
            client: false,
        }
    }

    /// For a client of this name, which is no alternative name.
    pub fn client(name: &str) -> CertificateSpec {
        CertificateSpec { common_name: Some(name.to_owned()), client: true, ..CertificateSpec::server([]) }
    }

    /// With a key of this kind.
    pub fn with_key(self, kind: KeyKind) -> CertificateSpec {
        CertificateSpec { kind, ..self }
    }

    /// Valid until yesterday.
    pub fn expired(self) -> CertificateSpec {
        let yesterday = SystemTime::now() - DAY;
        CertificateSpec { from: yesterday - LIFE, until: yesterday, ..self }
    }

    /// Valid from tomorrow on.
    pub fn not_yet(self) -> CertificateSpec {
        let tomorrow = SystemTime::now() + DAY;
        CertificateSpec { from: tomorrow, until: tomorrow + LIFE, ..self }
    }
}

/// Issues certificates.
#[derive(Debug)]
pub struct Authority {
    root: CertifiedIssuer<'static, KeyPair>,
    between: CertifiedIssuer<'static, KeyPair>,
    keys: Mutex<BTreeMap<(KeyKind, u64), Arc<Key>>>,
    /// The next certificate's.
    serial: AtomicU64,
}

impl Authority {
    /// An authority of this name, with keys of its own.
    ///
    /// # Errors
    /// When a key cannot be made.
    pub fn new(name: &str) -> io::Result<Authority> {
        let authority = |name: String| {
            let mut params = lasting(SystemTime::now() - DAY, SystemTime::now() + AUTHORITY_LIFE)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.use_authority_key_identifier_extension = true;
            Ok::<_, io::Error>(params)
        };
        let root = CertifiedIssuer::self_signed(authority(format!("{name} root"))?, KeyKind::P256.generate()?);
        let root = root.map_err(failed)?;
        let between = CertifiedIssuer::signed_by(authority(name.to_owned())?, KeyKind::P256.generate()?, &root);
        let between = between.map_err(failed)?;
        Ok(Authority { root, between, keys: Mutex::default(), serial: AtomicU64::new(1) })
    }

    /// The root's certificate, which those who check have to trust, as PEM.
    pub fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// The certificate of the authority between, as PEM.
    pub fn between_pem(&self) -> String {
        self.between.pem()
    }

    /// The key of the authority between (PKCS #8), to sign what [`Authority`] does not make: OCSP responses.
    pub fn between_key_pem(&self) -> String {
        self.between.key().serialize_pem()
    }

    /// The root's certificate.
    pub fn root(&self) -> &CertificateDer<'static> {
        self.root.der()
    }

    /// Issues a certificate. Its serial number is one higher than the last one's.
    ///
    /// # Errors
    /// For names that cannot stand in a certificate.
    pub fn issue(&self, wanted: &CertificateSpec) -> io::Result<Issued> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let key = self.key(wanted.kind, serial % KEYS_OF_A_KIND)?;
        let mut params = lasting(wanted.from, wanted.until)?;
        params.subject_alt_names = CertificateParams::new(wanted.names.clone()).map_err(failed)?.subject_alt_names;
        if let Some(name) = &wanted.common_name {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match wanted.client {
            true => ExtendedKeyUsagePurpose::ClientAuth,
            false => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let certificate = params.signed_by(&key.pair, &self.between).map_err(failed)?;
        Ok(Issued {
            serial,
            certificate_pem: certificate.pem(),
            certificate: certificate.into(),
            between_pem: self.between.pem(),
            between: self.between.der().clone(),
            key,
        })
    }

    /// A list of revoked certificates, by their serial numbers, as PEM: the one of the authority between, which issued them,
    /// and an empty one of the root.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn revoke(&self, serials: &[u64]) -> io::Result<String> {
        let list = |issuer: &CertifiedIssuer<'static, KeyPair>, serials: &[u64]| {
            let dates = lasting(SystemTime::now() - DAY, SystemTime::now() + LIFE)?;
            let revoked = serials.iter().map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(*serial),
                revocation_time: dates.not_before,
                reason_code: None,
                invalidity_date: None,
            });
            let params = CertificateRevocationListParams {
                this_update: dates.not_before,
                next_update: dates.not_after,
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: revoked.collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            params.signed_by(issuer).and_then(|list| list.pem()).map_err(failed)
        };
        Ok(list(&self.between, serials)? + &list(&self.root, &[])?)
    }

    fn key(&self, kind: KeyKind, number: u64) -> io::Result<Arc<Key>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.get(&(kind, number)) {
            return Ok(key.clone());
        }
        let pair = kind.generate()?;
        let key = Arc::new(Key { pem: pair.serialize_pem(), pair });
        keys.insert((kind, number), key.clone());
        Ok(key)
    }
}

/// A key and its text, which many certificates share.
#[derive(Debug)]
struct Key {
    pair: KeyPair,
    pem: String,
}

/// A certificate with its key and its chain.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its serial number, by which an authority's certificates are told apart.
    pub serial: u64,
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    certificate_pem: String,
    between: CertificateDer<'static>,
    between_pem: String,
    key: Arc<Key>,
}

impl Issued {
    /// The certificate, the one of its authority, and the key: what `crt` names.
    pub fn bundle_pem(&self) -> String {
        [&*self.certificate_pem, &self.between_pem, &self.key.pem].concat()
    }

    /// The certificate and the one of its authority.
    pub fn chain_pem(&self) -> String {
        [&*self.certificate_pem, &*self.between_pem].concat()
    }

    /// The certificate alone.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The key (PKCS #8).
    pub fn key_pem(&self) -> &str {
        &self.key.pem
    }

    /// The certificate and the one of its authority.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone(), self.between.clone()]
    }

    /// The key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.pair.serialized_der().to_vec()).into()
    }
}

/// The name of a site, by its number from 1: `site-00001.example`.
pub fn site(number: usize) -> String {
    format!("site-{number:05}.example")
}

/// The certificate of a site: for its name and those below it.
pub fn site_spec(number: usize) -> CertificateSpec {
    let name = site(number);
    CertificateSpec::server([&*name, &format!("*.{name}")])
}

/// Issues certificates for the sites of these numbers, in as many threads as there are processors, and writes each with its chain and its key to
/// a file of this folder: `site-00001.example.pem`.
///
/// # Errors
/// When a certificate cannot be issued or written.
pub fn write_sites(authority: &Authority, kind: KeyKind, folder: &Path, numbers: &[usize]) -> io::Result<()> {
    let write = |number: &usize| {
        let issued = authority.issue(&site_spec(*number).with_key(kind))?;
        fs::write(folder.join(format!("{}.pem", site(*number))), issued.bundle_pem())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = numbers.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let workers: Vec<_> =
            numbers.chunks(share).map(|numbers| scope.spawn(|| numbers.iter().try_for_each(write))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, io::Result<()>>| {
            worker.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))
        };
        workers.into_iter().try_for_each(join)
    })
}

/// What says nothing but from when and until when.
fn lasting(from: SystemTime, until: SystemTime) -> io::Result<CertificateParams> {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other);
    let (from, until) = (since(from)?, since(until)?);
    let epoch = date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + from;
    params.not_after = epoch + until;
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params)
}

fn failed(error: rcgen::Error) -> io::Error {
    io::Error::other(format!("cannot create a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use rustls::{RootCertStore, client::WebPkiServerVerifier, crypto::aws_lc_rs, pki_types::UnixTime};

    use super::*;

    /// Whether a client takes it for `name` now.
    fn accepted(authority: &Authority, issued: &Issued, name: &str) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.root().clone()).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().expect("a verifier");
        let (name, chain) = (name.to_owned().try_into().expect("a name"), issued.chain());
        use rustls::client::danger::ServerCertVerifier;
        let verdict = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now());
        verdict.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_issued_is_accepted_and_what_is_not_is_not() {
        let authority = Authority::new("Test").expect("an authority");
        let other = Authority::new("Test").expect("an authority");
        for kind in [KeyKind::P256, KeyKind::P384, KeyKind::Rsa2048, KeyKind::Ed25519] {
            let issued =
                authority.issue(&CertificateSpec::server(["a.example", "*.b.example", "127.0.0.1"]).with_key(kind));
            let issued = issued.expect("issued");
            for name in ["a.example", "x.b.example", "127.0.0.1"] {
                assert_eq!(accepted(&authority, &issued, name), Ok(()), "{kind:?}");
            }
            assert!(accepted(&authority, &issued, "c.example").is_err());
            assert!(accepted(&other, &issued, "a.example").is_err());
            let signer = aws_lc_rs::sign::any_supported_type(&issued.key()).expect("a key");
            rustls::sign::CertifiedKey::new(issued.chain(), signer).keys_match().expect("the key of the certificate");
        }
        let expired = authority.issue(&CertificateSpec::server(["a.example"]).expired()).expect("issued");
        assert!(accepted(&authority, &expired, "a.example").is_err_and(|error| error.contains("expired")));
        let early = authority.issue(&CertificateSpec::server(["a.example"]).not_yet()).expect("issued");
        assert!(accepted(&authority, &early, "a.example").is_err_and(|error| error.contains("not valid yet")));
    }

    #[test]
    fn one_and_the_next_have_different_keys_and_numbers() {
        let authority = Authority::new("Test").expect("an authority");
        let issue = || authority.issue(&CertificateSpec::client("someone")).expect("issued");
        let (one, next) = (issue(), issue());
        assert_ne!(one.key_pem(), next.key_pem());
        assert_eq!(one.serial + 1, next.serial);
        assert!(authority.revoke(&[one.serial]).is_ok_and(|list| list.matches("BEGIN X509 CRL").count() == 2));
    }
}
