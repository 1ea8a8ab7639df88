//! TLS with a server: what a `server … ssl` asks for, made into settings of rustls.
//!
//! A [`Connector`] is built when a configuration is prepared, shared by all cores, and gives a connection for each handshake.
//! Sessions to resume are kept in it, by the name that was asked for, so that they live as long as the settings do:
//! [`Connectors::build`] gives the one of before when nothing changed, the files' content included.

mod identity;
mod names;
mod trust;
mod verify;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{ServerTls, TlsVersion};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;

use self::trust::Trust;
use self::verify::{Expected, Verifier};
use crate::names as openssl;
use crate::store::Files;

/// The most sessions that are kept for one server, of all names together; the oldest go first.
const SESSIONS_MAX: usize = 256;

/// What a `server … ssl` needs for a connection. Shared by all cores; sessions to resume are kept in it.
pub struct Connector {
    settings: Arc<ServerTls>,
    trust: Arc<Trust>,
    identity: Option<Arc<CertifiedKey>>,
    /// Verifies the name that the server is asked for.
    named: Arc<ClientConfig>,
    /// Without such a name: verifies `verifyhost`, or none.
    nameless: Arc<ClientConfig>,
}

/// Makes connectors, and reads each file once for all of them.
pub struct Connectors<'a> {
    files: &'a dyn Files,
    trusts: HashMap<(Option<PathBuf>, Option<PathBuf>), Arc<Trust>>,
    identities: HashMap<PathBuf, Arc<CertifiedKey>>,
}

impl<'a> Connectors<'a> {
    /// Reads what is asked for from `files`.
    pub fn new(files: &'a dyn Files) -> Connectors<'a> {
        Connectors { files, trusts: HashMap::new(), identities: HashMap::new() }
    }

    /// A connector for these settings. `before` is the one that was in use under the same server's name: it stays when it says
    /// the same and its files hold the same, and the sessions in it are resumed.
    ///
    /// # Errors
    /// A file that cannot be read or used, a name that nobody knows, or settings that leave nothing to agree on.
    pub fn build(
        &mut self,
        settings: &Arc<ServerTls>,
        before: Option<&Arc<Connector>>,
    ) -> Result<Arc<Connector>, Problem> {
        let trust = self.trust(settings)?;
        let identity = settings.crt.as_ref().map(|path| self.identity(path)).transpose()?;
        if let Some(before) = before
            && *before.settings == **settings
            && *before.trust == *trust
            && is_same_identity(before.identity.as_deref(), identity.as_deref())
        {
            return Ok(Arc::clone(before));
        }
        Ok(Arc::new(Connector::new(Arc::clone(settings), trust, identity)?))
    }

    /// Reads what `ca-file` and `crl-file` name, for their faults.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn read_trust(&mut self, settings: &ServerTls) -> Result<(), Problem> {
        self.trust(settings).map(|_| ())
    }

    fn trust(&mut self, settings: &ServerTls) -> Result<Arc<Trust>, Problem> {
        let key = (settings.ca_file.clone(), settings.crl_file.clone());
        if let Some(known) = self.trusts.get(&key) {
            return Ok(Arc::clone(known));
        }
        let trust = Arc::new(Trust::read(self.files, key.0.as_deref(), key.1.as_deref())?);
        self.trusts.insert(key, Arc::clone(&trust));
        Ok(trust)
    }

    fn identity(&mut self, path: &PathBuf) -> Result<Arc<CertifiedKey>, Problem> {
        if let Some(known) = self.identities.get(path) {
            return Ok(Arc::clone(known));
        }
        let identity = Arc::new(identity::read(self.files, path)?);
        self.identities.insert(path.clone(), Arc::clone(&identity));
        Ok(identity)
    }
}

impl Connector {
    fn new(
        settings: Arc<ServerTls>,
        trust: Arc<Trust>,
        identity: Option<Arc<CertifiedKey>>,
    ) -> Result<Connector, Problem> {
        let provider = Arc::new(provider(&settings)?);
        let versions = versions(&settings)?;
        let schemes = settings
            .sigalgs
            .as_deref()
            .map(openssl::signatures)
            .transpose()
            .map_err(|fault| problem("sigalgs", &fault))?;
        let schemes = schemes.map(|named| named.found);
        let config = |expected: Expected| -> Result<Arc<ClientConfig>, Problem> {
            let trust = settings.verify.then(|| Arc::clone(&trust));
            let verifier = Verifier::new(trust, expected, schemes.clone());
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&versions)
                .map_err(|error| Problem(format!("no handshake is possible with these settings: {error}")))?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier));
            let mut config = match &identity {
                None => builder.with_no_client_auth(),
                Some(identity) => {
                    builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity))))
                }
            };
            config.resumption = resumption(&settings);
            config.alpn_protocols = protocols(settings.alpn.as_deref());
            Ok(Arc::new(config))
        };
        let named = config(Expected::Asked)?;
        let nameless = config(settings.verify_host.clone().map_or(Expected::Any, Expected::This))?;
        Ok(Connector { settings, trust, identity, named, nameless })
    }

    /// The settings it was made for.
    pub fn settings(&self) -> &Arc<ServerTls> {
        &self.settings
    }

    /// What a connection that asks for `name` (SNI) is made of; without a name, or with an empty one, none is sent and
    /// `verifyhost` is verified.
    ///
    /// # Errors
    /// When the certificate would have to be verified for a name that cannot be one.
    pub fn target(&self, name: Option<&str>) -> Result<(Arc<ClientConfig>, ServerName<'static>), rustls::Error> {
        // An address is not sent as SNI, and a connection without a name does not look at it.
        let nobody = ServerName::from(std::net::IpAddr::from([0; 4]));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok((Arc::clone(&self.nameless), nobody));
        };
        match ServerName::try_from(name) {
            Ok(name) => Ok((Arc::clone(&self.named), name.to_owned())),
            Err(_) if !self.settings.verify => Ok((Arc::clone(&self.nameless), nobody)),
            Err(_) => Err(CertificateError::NotValidForName.into()),
        }
    }

    /// The same with other protocols offered, for health checks: what they resume is their own.
    pub fn with_protocols(&self, alpn: Option<&[String]>) -> Connector {
        let other = |config: &ClientConfig| {
            let mut config = config.clone();
            config.alpn_protocols = protocols(alpn);
            config.resumption = resumption(&self.settings);
            Arc::new(config)
        };
        Connector {
            settings: Arc::clone(&self.settings),
            trust: Arc::clone(&self.trust),
            identity: self.identity.clone(),
            named: other(&self.named),
            nameless: other(&self.nameless),
        }
    }

    /// What is shown to a server that asks (`crt`).
    pub fn identity(&self) -> Option<&Arc<CertifiedKey>> {
        self.identity.as_ref()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connector").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Why something of TLS cannot be used: the file or the words at fault, the reason, and what would help.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Problem(pub String);

impl Problem {
    /// A file that cannot be read, in the words of the system.
    fn unreadable(what: &str, path: &Path, error: &io::Error) -> Problem {
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or(&text);
        Problem(format!("Couldn't open the {what} '{}' ({reason})", path.display()))
    }
}

/// A whole file.
fn read(files: &dyn Files, path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    files.read(path, &mut content)?;
    Ok(content)
}

/// Whether a handshake failed because the server's certificate does not have the name that was asked for: another attempt
/// would fail in the same way.
pub fn is_wrong_name(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

fn is_same_identity(one: Option<&CertifiedKey>, other: Option<&CertifiedKey>) -> bool {
    // The key is the one of the certificate, so that another key is another certificate.
    one.map(|identity| &identity.cert) == other.map(|identity| &identity.cert)
}

fn resumption(settings: &ServerTls) -> Resumption {
    if settings.no_reuse {
        return Resumption::disabled();
    }
    let tickets =
        if settings.no_tickets { Tls12Resumption::SessionIdOnly } else { Tls12Resumption::SessionIdOrTickets };
    Resumption::in_memory_sessions(SESSIONS_MAX).tls12_resumption(tickets)
}

fn protocols(alpn: Option<&[String]>) -> Vec<Vec<u8>> {
    alpn.unwrap_or_default().iter().map(|name| name.clone().into_bytes()).collect()
}

/// The versions from the oldest to the newest one that may be agreed on.
fn versions(settings: &ServerTls) -> Result<Vec<&'static SupportedProtocolVersion>, Problem> {
    let all = [(TlsVersion::Tls12, &version::TLS12), (TlsVersion::Tls13, &version::TLS13)];
    let wanted = |version: TlsVersion| {
        settings.oldest.is_none_or(|oldest| version >= oldest) && settings.newest.is_none_or(|newest| version <= newest)
    };
    let versions: Vec<_> = all.into_iter().filter(|(name, _)| wanted(*name)).map(|(_, version)| version).collect();
    match versions.is_empty() {
        true => Err(Problem("all SSL/TLS versions are disabled: 'ssl-min-ver' is above 'ssl-max-ver'".into())),
        false => Ok(versions),
    }
}

/// The cryptography, restricted to what `ciphers`, `ciphersuites` and `curves` name.
fn provider(settings: &ServerTls) -> Result<CryptoProvider, Problem> {
    let mut provider = aws_lc_rs::default_provider();
    let old = settings.ciphers.as_deref().map(openssl::ciphers).transpose();
    let old = old.map_err(|fault| problem("ciphers", &fault))?;
    let new = settings.ciphersuites.as_deref().map(openssl::ciphersuites).transpose();
    let new = new.map_err(|fault| problem("ciphersuites", &fault))?;
    let suites = |of: &'static SupportedProtocolVersion| {
        let default = aws_lc_rs::DEFAULT_CIPHER_SUITES.iter().copied();
        default.filter(move |suite| suite.version().version == of.version).collect::<Vec<_>>()
    };
    provider.cipher_suites = new.map_or_else(|| suites(&version::TLS13), |named| named.found);
    provider.cipher_suites.extend(old.map_or_else(|| suites(&version::TLS12), |named| named.found));
    provider.kx_groups = match settings.curves.as_deref() {
        Some(text) => openssl::curves(text).map_err(|fault| problem("curves", &fault))?.found,
        None => openssl::default_curves(),
    };
    Ok(provider)
}

fn problem(word: &str, fault: &openssl::NameFault) -> Problem {
    Problem(format!("'{word}' : {fault}"))
}
