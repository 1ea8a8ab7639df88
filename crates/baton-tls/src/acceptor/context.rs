//! A configuration of rustls for each different set of settings that connections of a `bind` have: what its `crt-list` lines
//! say otherwise lies over what the `bind` itself says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{ClientVerify, IgnoredErrors, TlsOptions, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ServerConfig, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite, version};
use rustls_pki_types::SubjectPublicKeyInfoDer;

use super::{BindSettings, kinds};
use crate::authorities::{Authority, AuthorityFile};
use crate::hello::Hello;
use crate::names;
use crate::store::Index;
use crate::tickets::Ticketer;
use crate::verify::{ClientVerifier, Trust};

/// What rustls adds to `max_fragment_size` beside the plain text: a record's header. Bytes.
const RECORD_HEADER: usize = 5;
/// Plain text of a record (RFC 8446 5.1) at the most, and what rustls takes at the least. Bytes.
const RECORD: std::ops::RangeInclusive<usize> = 64..=1 << 14;
/// `TLS_FALLBACK_SCSV` (RFC 7507 2), a sign among the cipher suites.
const FALLBACK: u16 = 0x5600;
/// TLS 1.3 in `supported_versions` (RFC 8446 4.2.1).
const TLS13: u16 = 0x0304;
/// Tickets for a client of TLS 1.3: as many as OpenSSL gives.
const TICKETS: usize = 2;

/// One of the configurations.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Arc<ServerConfig>,
    /// For clients of which no protocol fits: they get none, as from HAProxy, where rustls would refuse them.
    pub(super) without_alpn: Option<Arc<ServerConfig>>,
    pub(super) verifier: Option<Arc<ClientVerifier>>,
    /// It speaks TLS 1.3.
    tls13: bool,
    /// What the verifier was made of.
    sources: Sources,
}

impl Context {
    /// Whether a file of authorities has got another content.
    pub(super) fn is_stale(&self) -> bool {
        self.sources.iter().any(|source| source.file.edition() != source.edition)
    }

    /// Whether somebody between us and the client could have made it offer less than both speak (RFC 7507 3): the client says
    /// that it was turned away before, and offers no TLS 1.3, which is spoken here.
    pub(super) fn is_downgrade(&self, hello: &Hello<'_>) -> bool {
        self.tls13
            && super::codes(hello.ciphers()).any(|suite| suite == FALLBACK)
            && !hello.versions().any(|version| version == TLS13)
    }

    /// For connections with these settings.
    ///
    /// # Errors
    /// When there is nothing both could agree on, or a file was not read.
    pub(super) fn build(common: &BindSettings, index: &Arc<Index>, options: &TlsOptions) -> Result<Context, String> {
        let fault = |fault: names::NameError| fault.to_string();
        let oldest = options.oldest.unwrap_or(TlsVersion::Tls12);
        let newest = options.newest.unwrap_or(TlsVersion::Tls13);
        let mut suites: Vec<SupportedCipherSuite> = Vec::new();
        let mut versions = Vec::new();
        if newest == TlsVersion::Tls13 {
            let wanted = options.ciphersuites.as_deref().map(names::ciphersuites).transpose().map_err(fault)?;
            suites.extend(wanted.map_or_else(names::default_ciphersuites, |named| named.found));
            versions.push(&version::TLS13);
        }
        if oldest == TlsVersion::Tls12 {
            let wanted = options.ciphers.as_deref().map(names::ciphers).transpose().map_err(fault)?;
            suites.extend(wanted.map_or_else(names::default_ciphers, |named| named.found));
            versions.push(&version::TLS12);
        }
        if versions.is_empty() {
            return Err("no TLS version between ssl-min-ver and ssl-max-ver".into());
        }
        let curves = options.curves.as_deref().map(names::curves).transpose().map_err(fault)?;
        let provider = CryptoProvider {
            cipher_suites: suites,
            kx_groups: curves.map_or_else(names::default_curves, |named| named.found),
            ..rustls::crypto::aws_lc_rs::default_provider()
        };
        let algorithms = provider.signature_verification_algorithms;
        let schemes = options.sigalgs.as_deref().map(names::signatures).transpose().map_err(fault)?;
        let resolver = Resolver {
            index: index.clone(),
            schemes: schemes.map(|named| named.found),
            ecdsa: has_ecdsa(&provider.cipher_suites),
            tls13: newest == TlsVersion::Tls13,
        };
        let (trust, sources) = trust(common, options)?;
        let scope = scope(options, &sources);
        let verifier = trust.map(|trust| Arc::new(ClientVerifier::new(trust, algorithms)));
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.ignore_client_order = !common.bind.prefer_client_ciphers;
        config.max_fragment_size = common
            .max_record
            .filter(|most| *most > 0)
            .map(|most| (most as usize).clamp(*RECORD.start(), *RECORD.end()) + RECORD_HEADER);
        config.send_tls13_tickets = TICKETS;
        crate::agreed::release_server_keys(&mut config);
        config.session_storage = common.sessions.scoped(&scope);
        if !common.bind.no_tickets {
            let lifetime = Duration::from_secs(common.lifetime_s.into());
            let clock = Arc::new(DefaultTimeProvider);
            config.ticketer = Arc::new(Ticketer::new(common.tickets.clone(), &scope, lifetime, clock));
        }
        let protocols = options.alpn.iter().flatten().filter(|name| common.speaks(name));
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        let without_alpn = (!config.alpn_protocols.is_empty()).then(|| {
            let mut config = config.clone();
            config.alpn_protocols.clear();
            Arc::new(config)
        });
        Ok(Context { config: Arc::new(config), without_alpn, verifier, tls13: newest == TlsVersion::Tls13, sources })
    }
}

/// Files of authorities, and what was in them.
type Sources = Vec<Source>;

#[derive(Debug)]
struct Source {
    file: Arc<AuthorityFile>,
    edition: u64,
    content: Arc<Authority>,
}

/// Whom to trust, and what that was read from; `None`: clients are not asked.
fn trust(common: &BindSettings, options: &TlsOptions) -> Result<(Option<Trust>, Sources), String> {
    let mandatory = match options.verify.unwrap_or_default() {
        ClientVerify::None => return Ok((None, Vec::new())),
        ClientVerify::Optional => false,
        ClientVerify::Required => true,
    };
    let mut sources = Vec::new();
    let mut read = |path: &Option<std::path::PathBuf>| {
        let Some(path) = path else { return Ok(None) };
        let file = common.authority(path).ok_or_else(|| format!("'{}' was not read", path.display()))?;
        // Before the content: one that comes in between has a higher number.
        let edition = file.edition();
        let content = file.content();
        sources.push(Source { file, edition, content: content.clone() });
        Ok::<_, String>(Some(content))
    };
    let (named, unnamed, lists) = (read(&options.ca_file)?, read(&options.ca_verify_file)?, read(&options.crl_file)?);
    if named.is_none() && unnamed.is_none() {
        return Err("'verify' needs a 'ca-file'".into());
    }
    let schemes = options.client_sigalgs.as_deref().map(names::signatures).transpose();
    let trust = Trust {
        mandatory,
        named,
        unnamed,
        lists,
        ca_ignored: options.ca_ignore_err.clone(),
        crt_ignored: options.crt_ignore_err.clone(),
        names_nobody: options.no_ca_names,
        schemes: schemes.map_err(|fault| fault.to_string())?.map(|named| named.found),
    };
    Ok((Some(trust), sources))
}

/// What sessions may be resumed within: a client that was verified otherwise is another one. It is equal in every process.
fn scope(options: &TlsOptions, sources: &Sources) -> Vec<u8> {
    let verify = options.verify.unwrap_or_default();
    if verify == ClientVerify::None {
        return Vec::new();
    }
    let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let mut add = |bytes: &[u8]| {
        digest.update(&bytes.len().to_be_bytes());
        digest.update(bytes);
    };
    add(format!("{verify:?}").as_bytes());
    // A file's content means something else behind another keyword: only a `crl-file` has every authority need a list.
    for named in [&options.ca_file, &options.ca_verify_file, &options.crl_file] {
        add(&[u8::from(named.is_some())]);
    }
    add(options.client_sigalgs.as_deref().unwrap_or_default().as_bytes());
    for Source { content, .. } in sources {
        add(b"certificates");
        content.certificates.iter().for_each(|der| add(der));
        add(b"lists");
        content.lists.iter().for_each(|der| add(der));
    }
    for ignored in [&options.ca_ignore_err, &options.crt_ignore_err] {
        match ignored {
            IgnoredErrors::None => add(b"none"),
            IgnoredErrors::All => add(b"all"),
            IgnoredErrors::These(codes) => {
                add(b"these");
                codes.iter().for_each(|code| add(&code.to_be_bytes()));
            }
        }
    }
    digest.finish().as_ref().to_vec()
}

/// Whether clients of TLS 1.2 could use a certificate with ECDSA.
pub(super) fn has_ecdsa(suites: &[SupportedCipherSuite]) -> bool {
    suites.iter().any(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => {
            let common = &suite.common;
            names::cipher_name(common.suite).is_some_and(|name| name.starts_with("ECDHE-ECDSA-"))
        }
        SupportedCipherSuite::Tls13(_) => false,
    })
}

/// Finds the certificate for a client, as [`Acceptor::choose`](super::Acceptor::choose) does.
struct Resolver {
    index: Arc<Index>,
    /// `sigalgs`; `None`: all.
    schemes: Option<Vec<SignatureScheme>>,
    ecdsa: bool,
    tls13: bool,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, client: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let suites = client.cipher_suites().iter().map(|suite| u16::from(*suite));
        let client_kinds = kinds(client.signature_schemes().iter().copied(), suites, self.tls13, self.ecdsa);
        let signer = self.index.find(client.server_name(), client_kinds)?.signer().ok()?;
        let Some(schemes) = &self.schemes else { return Some(signer) };
        let key = Narrowed { key: signer.key.clone(), schemes: schemes.clone() };
        Some(Arc::new(CertifiedKey { key: Arc::new(key), ..CertifiedKey::clone(&signer) }))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Resolver").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// A key that signs by some algorithms only (`sigalgs`).
#[derive(Debug)]
struct Narrowed {
    key: Arc<dyn SigningKey>,
    schemes: Vec<SignatureScheme>,
}

impl SigningKey for Narrowed {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let both = |scheme: &&SignatureScheme| offered.contains(scheme);
        let offered: Vec<SignatureScheme> = self.schemes.iter().filter(both).copied().collect();
        self.key.choose_scheme(&offered)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}
