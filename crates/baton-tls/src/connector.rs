//! TLS with a server: what a `server … ssl` asks for, made into settings of rustls.
//!
//! A [`Connector`] is built when a configuration is prepared, shared by all cores, and gives a [`Target`] for each handshake. The
//! files it was made of are those that all of the process share ([`authorities`](crate::authorities), [`store`](crate::store)):
//! when one of them gets another content, the next handshake makes what it needs anew. Sessions to resume are kept by the name
//! that was asked for and live as long as settings and files stay, also over reloads: [`Connectors::build`] gives the one of
//! before when nothing else is said.

mod failure;
mod names;
mod terms;
mod verify;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use baton_model::{ServerTls, TlsVersion};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, SignatureScheme, SupportedProtocolVersion, version};
use rustls_pki_types::ServerName;

pub use self::failure::Failure;
use self::verify::{Expected, Verifier};
use crate::Certificate;
use crate::authorities::{Authorities, Authority, AuthorityFile, UpcomingAuthorities};
use crate::names as openssl;
use crate::store::{self, Entry};
use crate::verify::{Judge, Purpose};

/// The most sessions that are kept for one server, of all names together; the oldest go first.
const SESSIONS_MAX: usize = 256;

/// What a `server … ssl` needs for its connections. Shared by all cores.
pub struct Connector {
    words: ConnectorSettings,
    files: SharedFiles,
    made: ArcSwap<ClientConfigs>,
    /// One at a time makes it anew.
    making: Mutex<()>,
}

/// What a connection is made of.
#[derive(Clone, Debug)]
pub struct Target {
    /// For the connection.
    pub config: Arc<ClientConfig>,
    /// For the connection.
    pub name: ServerName<'static>,
    /// What is shown to a server that asks (`crt`).
    pub identity: Option<Arc<CertifiedKey>>,
    /// The state of the files that it is made of: see [`Connector::edition`].
    pub edition: u64,
}

/// What a line says, as rustls wants it.
#[derive(Clone)]
struct ConnectorSettings {
    settings: Arc<ServerTls>,
    alpn: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
    versions: Arc<[&'static SupportedProtocolVersion]>,
    /// `sigalgs`; `None`: all.
    schemes: Option<Vec<SignatureScheme>>,
}

/// Files that a line names, shared with all who name them.
#[derive(Clone, Debug, Default)]
struct SharedFiles {
    authorities: Option<Arc<AuthorityFile>>,
    lists: Option<Arc<AuthorityFile>>,
    identity: Option<Arc<Entry>>,
}

/// What was made of words and one state of the files.
struct ClientConfigs {
    edition: u64,
    identity: Option<Arc<CertifiedKey>>,
    /// Verifies the name that the server is asked for.
    named: Arc<ClientConfig>,
    /// Without such a name: verifies `verifyhost`, or none.
    nameless: Arc<ClientConfig>,
    /// By what the server is verified: `ca-file` and `crl-file`.
    verified_by: [Option<Arc<Authority>>; 2],
    /// [`Connector::terms`] of it, once somebody has asked.
    terms: OnceLock<Arc<str>>,
}

/// Makes connectors for a configuration whose files were read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connectors<'a> {
    files: ConnectorFiles<'a>,
}

/// Where the files of servers come from.
#[derive(Clone, Copy, Debug, Default)]
enum ConnectorFiles<'a> {
    #[default]
    None,
    /// They were read for a configuration.
    Read(&'a UpcomingAuthorities, &'a store::Prepared),
    /// They are in use.
    InUse(&'a Authorities, &'a store::Store),
}

impl ConnectorFiles<'_> {
    fn authority(&self, path: &Path) -> Option<Arc<AuthorityFile>> {
        match self {
            ConnectorFiles::None => None,
            ConnectorFiles::Read(authorities, _) => authorities.find(path).cloned(),
            ConnectorFiles::InUse(authorities, _) => authorities.find(path),
        }
    }

    fn identity(&self, path: &Path) -> Option<(Arc<Entry>, Arc<Certificate>)> {
        match self {
            ConnectorFiles::None => None,
            ConnectorFiles::Read(_, store) => Some((store.entry(path)?.clone(), store.certificate(path)?)),
            ConnectorFiles::InUse(_, store) => {
                let entry = store.entry(path)?;
                let certificate = entry.certificate();
                Some((entry, certificate))
            }
        }
    }
}

impl<'a> Connectors<'a> {
    /// With the files that were read for all servers and clients together. By default nothing was read: for servers that name
    /// no file.
    pub fn new(authorities: &'a UpcomingAuthorities, certificates: &'a store::Prepared) -> Connectors<'a> {
        Connectors { files: ConnectorFiles::Read(authorities, certificates) }
    }

    /// With the files that are in use, for a server that comes between two configurations: none is read for it.
    pub fn of_files_in_use(authorities: &'a Authorities, certificates: &'a store::Store) -> Connectors<'a> {
        Connectors { files: ConnectorFiles::InUse(authorities, certificates) }
    }

    /// A connector for these settings. `before` is the one that was in use under the same server's name: it stays when it says
    /// the same and has the same files, and the sessions in it are resumed as long as these hold the same.
    ///
    /// # Errors
    /// A file that was not read or cannot be used, a name that nobody knows, or settings that leave nothing to agree on.
    pub fn build(
        &self,
        settings: &Arc<ServerTls>,
        before: Option<&Arc<Connector>>,
    ) -> Result<Arc<Connector>, ConnectorError> {
        let files = self.files(settings)?;
        if let Some(before) = before
            && *before.words.settings == **settings
            && before.files.are(&files)
        {
            return Ok(Arc::clone(before));
        }
        Ok(Arc::new(Connector::new(ConnectorSettings::read(settings)?, files)?))
    }

    fn files(&self, settings: &ServerTls) -> Result<SharedFiles, ConnectorError> {
        let authority = |word: &str, path: &Option<std::path::PathBuf>| match path {
            None => Ok(None),
            Some(path) => match self.files.authority(path) {
                Some(file) => Ok(Some(file)),
                None => Err(ConnectorError(format!("'{word}' : '{}' was not read", path.display()))),
            },
        };
        let (authorities, lists) =
            (authority("ca-file", &settings.ca_file)?, authority("crl-file", &settings.crl_file)?);
        let identity = match &settings.crt {
            None => None,
            Some(path) => {
                let (entry, certificate) = self
                    .files
                    .identity(path)
                    .ok_or_else(|| ConnectorError(format!("'crt' : '{}' was not read", path.display())))?;
                let judged = certificate.check_signer();
                judged.map_err(|fault| {
                    ConnectorError(format!("'crt' : certificate '{}': {fault}: {}", path.display(), fault.remedy()))
                })?;
                Some(entry)
            }
        };
        Ok(SharedFiles { authorities, lists, identity })
    }
}

/// Whether the words of a server make sense together, whatever its files hold.
///
/// # Errors
/// A name that nobody knows, or settings that leave nothing to agree on.
pub fn judge_words(settings: &Arc<ServerTls>) -> Result<(), ConnectorError> {
    Connector::new(ConnectorSettings::read(settings)?, SharedFiles::default()).map(drop)
}

impl Connector {
    fn new(words: ConnectorSettings, files: SharedFiles) -> Result<Connector, ConnectorError> {
        let made = ArcSwap::from_pointee(words.make(&files)?);
        Ok(Connector { words, files, made, making: Mutex::default() })
    }

    /// The settings it was made for.
    pub fn settings(&self) -> &Arc<ServerTls> {
        &self.words.settings
    }

    /// The state of the files: a connection that was made of another one is not what would be made now.
    pub fn edition(&self) -> u64 {
        self.files.edition()
    }

    /// What a connection that asks for `name` (SNI) is made of; without a name, or with an empty one, none is sent and
    /// `verifyhost` is verified.
    ///
    /// # Errors
    /// When the certificate would have to be verified for a name that cannot be one.
    pub fn target(&self, name: Option<&str>) -> Result<Target, rustls::Error> {
        let made = self.made.load();
        match made.edition == self.files.edition() {
            true => made.target(name, &self.words.settings),
            false => self.made_anew()?.target(name, &self.words.settings),
        }
    }

    /// What is made of the files' newest state.
    #[cold]
    fn made_anew(&self) -> Result<Arc<ClientConfigs>, rustls::Error> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.made.load_full();
        if made.edition == self.files.edition() {
            return Ok(made);
        }
        let made = Arc::new(self.words.make(&self.files).map_err(|problem| rustls::Error::General(problem.0))?);
        self.made.store(Arc::clone(&made));
        Ok(made)
    }

    /// A connector that offers other protocols, for health checks: it resumes only its own sessions.
    pub fn with_protocols(&self, alpn: Option<&[String]>) -> Connector {
        let made = self.made.load();
        let other = |config: &ClientConfig| {
            let mut config = config.clone();
            config.alpn_protocols = protocols(alpn);
            config.resumption = resumption(&self.words.settings);
            Arc::new(config)
        };
        let made = ClientConfigs {
            edition: made.edition,
            identity: made.identity.clone(),
            named: other(&made.named),
            nameless: other(&made.nameless),
            verified_by: made.verified_by.clone(),
            terms: OnceLock::new(),
        };
        Connector {
            words: ConnectorSettings { alpn: protocols(alpn), ..self.words.clone() },
            files: self.files.clone(),
            made: ArcSwap::from_pointee(made),
            making: Mutex::default(),
        }
    }
}

impl ClientConfigs {
    fn target(&self, name: Option<&str>, settings: &ServerTls) -> Result<Target, rustls::Error> {
        // An address is not sent as SNI, and a connection without a name does not look at it.
        let nobody = ServerName::from(std::net::IpAddr::from([0; 4]));
        let target = |config: &Arc<ClientConfig>, name| Target {
            config: Arc::clone(config),
            name,
            identity: self.identity.clone(),
            edition: self.edition,
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(target(&self.nameless, nobody)) };
        match ServerName::try_from(name) {
            Ok(name) => Ok(target(&self.named, name.to_owned())),
            Err(_) if !settings.verify => Ok(target(&self.nameless, nobody)),
            Err(_) => Err(CertificateError::NotValidForName.into()),
        }
    }
}

impl SharedFiles {
    /// Every file's edition only grows, and so does their sum.
    fn edition(&self) -> u64 {
        let of = |file: &Option<Arc<AuthorityFile>>| file.as_ref().map_or(0, |file| file.edition());
        of(&self.authorities) + of(&self.lists) + self.identity.as_ref().map_or(0, |entry| entry.edition())
    }

    /// Whether both are the same places.
    fn are(&self, other: &SharedFiles) -> bool {
        fn is<T>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
            match (one, other) {
                (None, None) => true,
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        is(&self.authorities, &other.authorities)
            && is(&self.lists, &other.lists)
            && is(&self.identity, &other.identity)
    }
}

impl ConnectorSettings {
    fn read(settings: &Arc<ServerTls>) -> Result<ConnectorSettings, ConnectorError> {
        let schemes = settings.sigalgs.as_deref().map(openssl::signatures).transpose();
        let schemes = schemes.map_err(|fault| problem("sigalgs", &fault))?;
        Ok(ConnectorSettings {
            settings: Arc::clone(settings),
            alpn: protocols(settings.alpn.as_deref()),
            provider: Arc::new(provider(settings)?),
            versions: versions(settings)?.into(),
            schemes: schemes.map(|named| named.found),
        })
    }

    fn make(&self, files: &SharedFiles) -> Result<ClientConfigs, ConnectorError> {
        // Before their content: one that comes in between has a higher number.
        let edition = files.edition();
        let algorithms = self.provider.signature_verification_algorithms;
        let verified_by = if self.settings.verify { files.contents() } else { [None, None] };
        let judge = self.settings.verify.then(|| {
            let [authorities, lists] = verified_by.clone();
            Arc::new(Judge::new(Purpose::Server, authorities, lists, algorithms))
        });
        let identity = files.identity.as_ref().map(|entry| entry.certificate().make_signer().map(Arc::new));
        let identity =
            identity.transpose().map_err(|fault| ConnectorError(format!("'crt' : {fault}: {}", fault.remedy())))?;
        let named = self.config(Expected::Asked, &judge, &identity)?;
        let host = self.settings.verify_host.clone();
        let nameless = self.config(host.map_or(Expected::Any, Expected::This), &judge, &identity)?;
        Ok(ClientConfigs { edition, identity, named, nameless, verified_by, terms: OnceLock::new() })
    }

    fn config(
        &self,
        expected: Expected,
        judge: &Option<Arc<Judge>>,
        identity: &Option<Arc<CertifiedKey>>,
    ) -> Result<Arc<ClientConfig>, ConnectorError> {
        let algorithms = self.provider.signature_verification_algorithms;
        let verifier = Verifier::new(judge.clone(), expected, algorithms, self.schemes.clone());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions)
            .map_err(|error| ConnectorError(format!("these settings allow no handshake: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity)))),
        };
        config.resumption = resumption(&self.settings);
        config.alpn_protocols.clone_from(&self.alpn);
        crate::agreed::release_client_keys(&mut config);
        Ok(Arc::new(config))
    }
}

impl SharedFiles {
    /// What those hold by which servers are verified.
    fn contents(&self) -> [Option<Arc<Authority>>; 2] {
        [&self.authorities, &self.lists].map(|file| file.as_ref().map(|file| file.content()))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connector").field("settings", &self.words.settings).finish_non_exhaustive()
    }
}

/// Why something of TLS cannot be used: the words at fault, the reason, and what would help.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectorError(pub String);

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
fn versions(settings: &ServerTls) -> Result<Vec<&'static SupportedProtocolVersion>, ConnectorError> {
    let all = [(TlsVersion::Tls12, &version::TLS12), (TlsVersion::Tls13, &version::TLS13)];
    let wanted = |version: TlsVersion| {
        settings.oldest.is_none_or(|oldest| version >= oldest) && settings.newest.is_none_or(|newest| version <= newest)
    };
    let versions: Vec<_> = all.into_iter().filter(|(name, _)| wanted(*name)).map(|(_, version)| version).collect();
    match versions.is_empty() {
        true => Err(ConnectorError("all SSL/TLS versions are disabled: 'ssl-min-ver' is above 'ssl-max-ver'".into())),
        false => Ok(versions),
    }
}

/// The cryptography, restricted to what `ciphers`, `ciphersuites` and `curves` name.
fn provider(settings: &ServerTls) -> Result<CryptoProvider, ConnectorError> {
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

fn problem(word: &str, fault: &openssl::NameError) -> ConnectorError {
    ConnectorError(format!("'{word}' : {fault}"))
}
