//! TLS with the clients of a `bind`: what each of them is answered with.
//!
//! ```text
//! hello ──▶ (certificate by name and kinds of key) ──▶ (settings of its crt-list line) ──▶ configuration of rustls
//! ```
//!
//! [`Acceptors`] makes one [`Acceptor`] for each `bind … ssl` of a configuration. What they share outlives configurations:
//! certificates, ticket keys, remembered sessions, authorities.

mod context;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use baton_model::{BindProtocol, BindTls, Mode, Model, Source, TlsOptions, TlsVersion};
use rustls::server::StoresServerSessions;
use rustls::sign::CertifiedKey;
use rustls::{CommonState, ServerConfig, SignatureScheme};

use crate::authorities::{Authorities, AuthorityFile, UpcomingAuthorities};
use crate::sessions::{LIFETIME_S, SESSIONS, ScopedSessions, Sessions};
use crate::store::{Choice, Files, Index};
use crate::tickets::TicketKeys;
use crate::verify::ClientVerifier;
use crate::{Captured, Facts, Hello, Verifies};

use context::Context;

/// What a `bind … ssl` answers its clients with. Shared by all cores, and asked once for each connection.
#[derive(Debug)]
pub struct Acceptor {
    answers: ConfigSource,
}

#[derive(Debug)]
enum ConfigSource {
    /// [`Acceptor::always`].
    Always(Arc<ServerConfig>),
    Chosen(Box<Choosing>),
}

#[derive(Debug)]
struct Choosing {
    index: Arc<Index>,
    common: BindSettings,
    /// By the numbers of [`Index::contexts`].
    contexts: ArcSwap<Vec<Arc<Context>>>,
    /// One at a time makes them anew.
    making: Mutex<()>,
    /// The `bind` itself has suites of TLS 1.2 with ECDSA, and TLS 1.3.
    ecdsa: bool,
    tls13: bool,
}

/// What all contexts of a `bind` have in common.
#[derive(Debug)]
struct BindSettings {
    bind: Arc<BindTls>,
    /// What is spoken is HTTP: protocols of ALPN that we do not speak are not offered.
    http: bool,
    /// HTTP/2 is one that we speak: not with `proto h1`.
    http2: bool,
    tickets: Arc<TicketKeys>,
    sessions: SharedSessions,
    authorities: Arc<Authorities>,
    /// Those of the configuration that this is made for, before it is in use.
    upcoming: Vec<Arc<AuthorityFile>>,
    max_record: Option<u32>,
    lifetime_s: u32,
    /// Bytes of a hello that are kept for `ssl_fc_cipherlist_…`.
    capture: usize,
}

#[derive(Clone, Debug)]
struct SharedSessions(Arc<Sessions>);

impl SharedSessions {
    fn scoped(&self, scope: &[u8]) -> Arc<dyn StoresServerSessions> {
        Arc::new(ScopedSessions { sessions: self.0.clone(), scope: scope.into() })
    }
}

impl BindSettings {
    fn authority(&self, path: &Path) -> Option<Arc<AuthorityFile>> {
        let upcoming = self.upcoming.iter().find(|file| file.path() == path);
        upcoming.cloned().or_else(|| self.authorities.find(path))
    }

    /// Whether what a protocol of ALPN stands for is spoken behind the handshake: in `mode tcp` that is the server's business.
    fn speaks(&self, protocol: &str) -> bool {
        !self.http || self.http2 && protocol == "h2" || protocol.starts_with("http/1.")
    }
}

/// The settings chosen for one client's hello.
#[derive(Clone, Debug)]
pub struct ChosenConfig {
    /// For the connection.
    pub config: Arc<ServerConfig>,
    /// The certificate that will be shown, for the log and for `ssl_f_*`; `None` where only the handshake can tell.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// What of the hello fetches may read after the handshake.
    said: HelloFacts,
    verifier: Option<Arc<ClientVerifier>>,
}

/// What is kept of a hello.
#[derive(Clone, Debug, Default)]
struct HelloFacts {
    sni: Option<Box<str>>,
    /// Its lists (`tune.ssl.capture-buffer-size`).
    captured: Option<Box<Captured>>,
}

impl ChosenConfig {
    /// What a connection with this configuration knows once its handshake is complete.
    pub fn facts(self, connection: &CommonState) -> Facts {
        let mut facts = Facts::of(connection, None, self.certificate);
        facts.sni = self.said.sni;
        facts.captured = self.said.captured;
        if let Some(verifier) = self.verifier.filter(|verifier| verifier.ignores()) {
            facts.verification = verifier.verification(&facts.peer, rustls_pki_types::UnixTime::now());
        }
        facts
    }
}

/// Why a client gets no handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unwanted {
    /// `strict-sni`: no certificate has the name, or there is none at all. The alert is unrecognized_name (RFC 6066 3).
    Name,
    /// It says that it fell back to an older version than both of us speak. The alert is inappropriate_fallback (RFC 7507 3).
    Fallback,
}

impl Acceptor {
    /// One configuration for whatever a client says.
    pub fn always(mut config: Arc<ServerConfig>) -> Acceptor {
        crate::agreed::release_server_keys(Arc::make_mut(&mut config));
        Acceptor { answers: ConfigSource::Always(config) }
    }

    fn new(index: Arc<Index>, common: BindSettings) -> Result<Acceptor, String> {
        let mut contexts = Vec::new();
        for options in index.contexts() {
            contexts.push(Arc::new(Context::build(&common, &index, &overlaid(&common.bind.options, &options))?));
        }
        let own = contexts.first().map(|context| context.config.crypto_provider().cipher_suites.clone());
        let choosing = Choosing {
            ecdsa: own.is_some_and(|suites| context::has_ecdsa(&suites)),
            tls13: common.bind.options.newest.is_none_or(|newest| newest == TlsVersion::Tls13),
            index,
            common,
            contexts: ArcSwap::from_pointee(contexts),
            making: Mutex::default(),
        };
        Ok(Acceptor { answers: ConfigSource::Chosen(Box::new(choosing)) })
    }

    /// What to answer `hello` with.
    ///
    /// # Errors
    /// When the client is to be refused.
    pub fn choose(&self, hello: &Hello<'_>) -> Result<ChosenConfig, Unwanted> {
        let sni = hello.sni();
        match &self.answers {
            ConfigSource::Always(config) => {
                let said = HelloFacts { sni: sni.map(Box::from), captured: None };
                Ok(ChosenConfig { config: config.clone(), certificate: None, said, verifier: None })
            }
            ConfigSource::Chosen(choosing) => choosing.choose(hello, sni),
        }
    }

    /// Whether connections with these settings of a `crt-list` line could be answered.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, options: &TlsOptions) -> Result<(), String> {
        match &self.answers {
            ConfigSource::Always(_) => Ok(()),
            ConfigSource::Chosen(choosing) => choosing.build(options).map(drop),
        }
    }
}

impl Choosing {
    fn choose(&self, hello: &Hello<'_>, sni: Option<&str>) -> Result<ChosenConfig, Unwanted> {
        let client = kinds(hello.signatures(), codes(hello.ciphers()), self.tls13, self.ecdsa);
        let found = self.index.find(sni, client).ok_or(Unwanted::Name)?;
        if found.by_default && self.common.bind.strict_sni {
            return Err(Unwanted::Name);
        }
        let context = self.context(&found).ok_or(Unwanted::Name)?;
        if context.is_downgrade(hello) {
            return Err(Unwanted::Fallback);
        }
        let config = match &context.without_alpn {
            Some(without) if !fits(hello, &context.config.alpn_protocols) => without,
            _ => &context.config,
        };
        let capture = self.common.capture;
        let captured = (capture > 0).then(|| Box::new(Captured::of(hello, capture)));
        Ok(ChosenConfig {
            config: config.clone(),
            certificate: found.signer().ok(),
            said: HelloFacts { sni: sni.map(Box::from), captured },
            verifier: context.verifier.clone(),
        })
    }

    fn context(&self, found: &Choice) -> Option<Arc<Context>> {
        let at = found.context as usize;
        match self.contexts.load().get(at) {
            Some(context) if !context.is_stale() => Some(context.clone()),
            _ => self.made(at),
        }
    }

    /// A context that is not there yet, or whose authorities have changed.
    #[cold]
    fn made(&self, at: usize) -> Option<Arc<Context>> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.contexts.load_full();
        let mut contexts = Vec::new();
        for (nth, options) in self.index.contexts().iter().enumerate() {
            contexts.push(match before.get(nth) {
                Some(context) if !context.is_stale() => context.clone(),
                // Whoever brought the settings has seen to it that this works: `Acceptor::judge`.
                _ => Arc::new(self.build(options).ok()?),
            });
        }
        let context = contexts.get(at).cloned();
        self.contexts.store(Arc::new(contexts));
        context
    }

    fn build(&self, options: &TlsOptions) -> Result<Context, String> {
        Context::build(&self.common, &self.index, &overlaid(&self.common.bind.options, options))
    }
}

/// Kinds of key that a client could take.
fn kinds(
    schemes: impl Iterator<Item = SignatureScheme>,
    mut suites: impl Iterator<Item = u16>,
    tls13: bool,
    ecdsa: bool,
) -> Verifies {
    const SCHEMES_MAX: usize = 64;
    let mut list = [SignatureScheme::Unknown(0); SCHEMES_MAX];
    let mut count = 0;
    for (place, scheme) in list.iter_mut().zip(schemes) {
        *place = scheme;
        count += 1;
    }
    let verifies = Verifies::of(&list[..count]);
    let is_usable = |suite: u16| match suite {
        0x1301..=0x1303 => tls13,
        0xc02b | 0xc02c | 0xcca9 => ecdsa,
        _ => false,
    };
    if suites.any(is_usable) { verifies } else { verifies.only_rsa() }
}

fn codes(list: &[u8]) -> impl Iterator<Item = u16> {
    list.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Whether a client that wants a protocol can have one.
fn fits(hello: &Hello<'_>, ours: &[Vec<u8>]) -> bool {
    let mut wanted = hello.alpn().peekable();
    wanted.peek().is_none() || wanted.any(|name| ours.iter().any(|ours| ours == name))
}

/// What a `bind` says, and over it what a line of a `crt-list` says.
fn overlaid(bind: &TlsOptions, line: &TlsOptions) -> TlsOptions {
    use baton_model::IgnoredErrors;
    let ignored = |line: &IgnoredErrors, bind: &IgnoredErrors| match line {
        IgnoredErrors::None => bind.clone(),
        IgnoredErrors::All | IgnoredErrors::These(_) => line.clone(),
    };
    TlsOptions {
        alpn: line.alpn.clone().or_else(|| bind.alpn.clone()),
        oldest: line.oldest.or(bind.oldest),
        newest: line.newest.or(bind.newest),
        ciphers: line.ciphers.clone().or_else(|| bind.ciphers.clone()),
        ciphersuites: line.ciphersuites.clone().or_else(|| bind.ciphersuites.clone()),
        curves: line.curves.clone().or_else(|| bind.curves.clone()),
        sigalgs: line.sigalgs.clone().or_else(|| bind.sigalgs.clone()),
        client_sigalgs: line.client_sigalgs.clone().or_else(|| bind.client_sigalgs.clone()),
        verify: line.verify.or(bind.verify),
        ca_file: line.ca_file.clone().or_else(|| bind.ca_file.clone()),
        ca_verify_file: line.ca_verify_file.clone().or_else(|| bind.ca_verify_file.clone()),
        crl_file: line.crl_file.clone().or_else(|| bind.crl_file.clone()),
        ca_ignore_err: ignored(&line.ca_ignore_err, &bind.ca_ignore_err),
        crt_ignore_err: ignored(&line.crt_ignore_err, &bind.crt_ignore_err),
        no_ca_names: line.no_ca_names || bind.no_ca_names,
        allow_0rtt: line.allow_0rtt || bind.allow_0rtt,
    }
}

/// What makes the acceptors of one configuration after the other. One for a process.
#[derive(Debug, Default)]
pub struct Acceptors {
    authorities: Arc<Authorities>,
    sessions: Arc<Sessions>,
}

/// The acceptors of a configuration that may come into use.
#[derive(Debug)]
pub struct PreparedAcceptors {
    acceptors: Vec<Arc<Acceptor>>,
    authorities: UpcomingAuthorities,
    cache: (u32, u32),
}

/// A `bind` that cannot be answered for, or a file of authorities, of a `bind` or a server, that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcceptorProblem {
    /// The line of the `bind` or the server.
    pub source: Source,
    /// What is wrong, starting in lower case and without a full stop.
    pub message: String,
}

impl Acceptors {
    /// The files of authorities in use: `ca-file`, `ca-verify-file`, `crl-file`, of `bind` lines and of servers.
    pub fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// The sessions that are remembered.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Makes an acceptor for each `bind … ssl` of a model, in the order of its proxies and their binds, which is that of
    /// `indexes` ([`Prepared::indexes`](crate::store::Prepared::indexes)). `tickets` gives the keys of a `bind`. Files of
    /// authorities are read here, also those of servers; nothing is in use before [`Acceptors::commit`].
    ///
    /// # Errors
    /// All that cannot be used.
    pub fn prepare(
        &self,
        model: &Model,
        indexes: &[Arc<Index>],
        tickets: &dyn Fn(&BindTls) -> Arc<TicketKeys>,
        files: &dyn Files,
    ) -> Result<PreparedAcceptors, Vec<AcceptorProblem>> {
        let binds = || {
            let binds = model.with_peers().flat_map(|proxy| proxy.binds.iter().map(move |bind| (proxy, bind)));
            binds.filter_map(|(proxy, bind)| Some((proxy, &bind.options, &bind.source, bind.options.tls.as_ref()?)))
        };
        let mut problems = Vec::new();
        let wanted = binds().zip(indexes).flat_map(|((.., source, tls), index)| {
            let lines = index.contexts();
            lines.into_iter().flat_map(move |line| named_files(&overlaid(&tls.options, &line), source))
        });
        let servers = model.with_name_servers().filter_map(|server| Some((server.any_tls()?, &server.line)));
        let of_servers = servers.flat_map(|(tls, source)| {
            let named = [("ca-file", &tls.ca_file), ("crl-file", &tls.crl_file)];
            named.into_iter().filter_map(move |(word, path)| Some((path.clone()?, word, source.clone())))
        });
        let wanted: Vec<_> = wanted.chain(of_servers).collect();
        let authorities = match self.authorities.prepare(wanted.iter().map(|(path, ..)| path.as_path()), files) {
            Ok(authorities) => authorities,
            Err(faults) => {
                return Err(faults
                    .into_iter()
                    .map(|(path, fault)| {
                        let first = wanted.iter().find(|(other, ..)| *other == path);
                        let (word, source) =
                            first.map_or_else(Default::default, |(_, word, source)| (*word, source.clone()));
                        AcceptorProblem { source, message: fault.about(word, &path) }
                    })
                    .collect());
            }
        };
        let global = &model.global.tls;
        let mut acceptors = Vec::new();
        for ((proxy, options, source, bind), index) in binds().zip(indexes) {
            let upcoming = wanted.iter().filter_map(|(path, ..)| authorities.find(path).cloned()).collect();
            let common = BindSettings {
                http: proxy.mode == Mode::Http,
                http2: options.proto != Some(BindProtocol::H1),
                tickets: tickets(bind),
                sessions: SharedSessions(self.sessions.clone()),
                authorities: self.authorities.clone(),
                upcoming,
                max_record: global.max_record,
                lifetime_s: global.lifetime_s.unwrap_or(LIFETIME_S),
                capture: global.capture_buffer as usize,
                bind: bind.clone(),
            };
            match Acceptor::new(index.clone(), common) {
                Ok(acceptor) => acceptors.push(Arc::new(acceptor)),
                Err(message) => problems.push(AcceptorProblem { source: source.clone(), message }),
            }
        }
        let cache = (global.cache_size.unwrap_or(SESSIONS), global.lifetime_s.unwrap_or(LIFETIME_S));
        if problems.is_empty() { Ok(PreparedAcceptors { acceptors, authorities, cache }) } else { Err(problems) }
    }

    /// Puts a configuration's files in use; it cannot fail.
    pub fn commit(&self, prepared: PreparedAcceptors) {
        let (size, lifetime_s) = prepared.cache;
        self.sessions.limit(size, lifetime_s);
        self.authorities.commit(prepared.authorities);
    }
}

impl PreparedAcceptors {
    /// One for each `bind … ssl`, in the order of the model's proxies and their binds.
    pub fn acceptors(&self) -> &[Arc<Acceptor>] {
        &self.acceptors
    }

    /// The files of authorities, those of servers among them.
    pub fn authorities(&self) -> &UpcomingAuthorities {
        &self.authorities
    }
}

/// Files of authorities that settings name, if clients are checked at all.
fn named_files(options: &TlsOptions, source: &Source) -> Vec<(PathBuf, &'static str, Source)> {
    if options.verify.unwrap_or_default() == baton_model::ClientVerify::None {
        return Vec::new();
    }
    let named =
        [("ca-file", &options.ca_file), ("ca-verify-file", &options.ca_verify_file), ("crl-file", &options.crl_file)];
    named.into_iter().filter_map(|(word, path)| Some((path.clone()?, word, source.clone()))).collect()
}
