//! TLS as it was asked for (configuration manual, 5.1 `ssl`, `crt`, `crt-list`; 5.2 `ssl`, `verify`): names of files and
//! words, no content of either. What they stand for is found when a configuration is prepared.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Source;

/// A version of the protocol that Baton speaks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// `bind … ssl` with everything that belongs to it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BindTls {
    /// What a line of a `crt-list` can say otherwise.
    pub options: TlsOptions,
    /// `crt`, `crt-list`, `default-crt` and `ssl-f-use`, in order: the first certificate of the first one is the default.
    pub certificates: Vec<CrtSource>,
    /// `strict-sni`: no certificate for a name that none has.
    pub strict_sni: bool,
    /// `no-tls-tickets`: resumption by the server's memory only.
    pub no_tickets: bool,
    /// `tls-ticket-keys`.
    pub ticket_keys: Option<PathBuf>,
    /// `prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `watch`, Baton's own: directories named by `crt` are watched, and what changes in them is used at once.
    pub watch: bool,
}

/// Where certificates come from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "an address has a handful of them")]
pub enum CrtSource {
    /// `crt PATH`, a file or a directory, or `@STORE/ALIAS` of a `crt-store`.
    Crt {
        /// With `crt-base` applied.
        path: PathBuf,
        /// `default-crt`: used for names that no certificate has.
        default: bool,
    },
    /// `crt-list PATH`.
    List {
        /// As written: what the runtime commands name it by.
        path: PathBuf,
        /// Its lines.
        lines: Arc<[CrtLine]>,
    },
    /// `ssl-f-use`.
    Line(CrtLine),
}

/// A line of a `crt-list`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CrtLine {
    /// The certificate's file, with `crt-base` applied.
    pub crt: PathBuf,
    /// What stands in brackets.
    pub options: TlsOptions,
    /// SNI filters: `name`, `*.name`, `!name`; none: the certificate's own names.
    pub filters: Vec<String>,
    /// Where it stands.
    pub source: Source,
}

/// Settings of a connection with a client that may differ from certificate to certificate. `None` and empty: not said here.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsOptions {
    /// `alpn`, in order of preference; `Some` of none: `no-alpn`.
    pub alpn: Option<Vec<String>>,
    /// `ssl-min-ver` and what means the same (`no-tlsv12`, `force-tlsv13`).
    pub oldest: Option<TlsVersion>,
    /// `ssl-max-ver`.
    pub newest: Option<TlsVersion>,
    /// `ciphers`: OpenSSL's names for TLS 1.2.
    pub ciphers: Option<String>,
    /// `ciphersuites`: OpenSSL's names for TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `curves`, `ecdhe`: OpenSSL's names.
    pub curves: Option<String>,
    /// `sigalgs`: OpenSSL's names.
    pub sigalgs: Option<String>,
    /// `client-sigalgs`: OpenSSL's names.
    pub client_sigalgs: Option<String>,
    /// `verify`.
    pub verify: Option<ClientVerify>,
    /// `ca-file`, with `ca-base` applied; `@system-ca` stays as it is.
    pub ca_file: Option<PathBuf>,
    /// `ca-verify-file`: also trusted, but not named to the client.
    pub ca_verify_file: Option<PathBuf>,
    /// `crl-file`.
    pub crl_file: Option<PathBuf>,
    /// `ca-ignore-err`: faults above the client's own certificate that do not end the handshake.
    pub ca_ignore_err: IgnoredErrors,
    /// `crt-ignore-err`: faults of the client's own certificate that do not end it.
    pub crt_ignore_err: IgnoredErrors,
    /// `no-ca-names`: clients are not told whose certificates are accepted.
    pub no_ca_names: bool,
    /// `allow-0rtt`.
    pub allow_0rtt: bool,
}

/// Faults of a chain of certificates, by OpenSSL's numbers (X509_V_ERR_…).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum IgnoredErrors {
    /// None.
    #[default]
    None,
    /// `all`.
    All,
    /// These.
    These(Vec<u32>),
}

/// `bind … verify`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientVerify {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// They may show one, which must be good then.
    Optional,
    /// They must.
    Required,
}

/// `server … ssl` with everything that belongs to it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerTls {
    /// `verify required` (with `ca-file`); false is `verify none`.
    pub verify: bool,
    /// `verifyhost`: the name that the server's certificate must have.
    pub verify_host: Option<String>,
    /// `sni`: an expression, as words.
    pub sni: Option<String>,
    /// `ca-file`, with `ca-base` applied; `@system-ca`.
    pub ca_file: Option<PathBuf>,
    /// `crl-file`.
    pub crl_file: Option<PathBuf>,
    /// `crt`: what we show a server that asks.
    pub crt: Option<PathBuf>,
    /// `alpn`.
    pub alpn: Option<Vec<String>>,
    /// `ssl-min-ver`.
    pub oldest: Option<TlsVersion>,
    /// `ssl-max-ver`.
    pub newest: Option<TlsVersion>,
    /// `ciphers`.
    pub ciphers: Option<String>,
    /// `ciphersuites`.
    pub ciphersuites: Option<String>,
    /// `curves`.
    pub curves: Option<String>,
    /// `sigalgs`.
    pub sigalgs: Option<String>,
    /// `no-ssl-reuse`: no session is resumed.
    pub no_reuse: bool,
    /// `no-tls-tickets`.
    pub no_tickets: bool,
}

/// A `crt-store` section (HAProxy 3.0).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CrtStore {
    /// Its name; empty for the one without.
    pub name: String,
    /// Its `load` lines.
    pub loads: Vec<CrtLoad>,
}

/// `load` in a `crt-store`: where the parts of one certificate are. Paths have `crt-base` and `key-base` applied.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CrtLoad {
    /// `crt`.
    pub crt: PathBuf,
    /// `key`.
    pub key: Option<PathBuf>,
    /// `ocsp`.
    pub ocsp: Option<PathBuf>,
    /// `issuer`.
    pub issuer: Option<PathBuf>,
    /// `sctl`.
    pub sctl: Option<PathBuf>,
    /// `alias`: referred to as `@STORE/ALIAS`.
    pub alias: Option<String>,
    /// Where it stands.
    pub source: Source,
}

/// What the `global` section says about TLS and no line of a proxy repeats.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GlobalTls {
    /// `crt-base`, for what the runtime API names; paths in the model have it applied.
    pub crt_base: Option<PathBuf>,
    /// `ca-base`, in the same way.
    pub ca_base: Option<PathBuf>,
    /// `ssl-load-extra-files`, `ssl-load-extra-del-ext`.
    pub extra: ExtraFiles,
    /// `issuers-chain-path`.
    pub issuers_chain_path: Option<PathBuf>,
    /// `ssl-server-verify none`: servers without `verify` are not verified.
    pub server_verify_none: bool,
    /// `ssl-default-server-*`.
    pub server_defaults: ServerTlsDefaults,
    /// `ssl-skip-self-issued-ca`.
    pub skip_self_issued_ca: bool,
    /// `tune.ssl.cachesize`: sessions in memory; `None`: 20,000.
    pub cache_size: Option<u32>,
    /// `tune.ssl.lifetime` in seconds; `None`: 300.
    pub lifetime_s: Option<u32>,
    /// `tune.ssl.maxrecord` in bytes of plain text; `None`: the protocol's 16,384.
    pub max_record: Option<u32>,
    /// `tune.ssl.capture-buffer-size` in bytes; 0: nothing of a client's hello is kept.
    pub capture_buffer: u32,
}

/// What servers without a word of their own get (`ssl-default-server-ciphers` and its like).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerTlsDefaults {
    /// `ssl-default-server-ciphers`.
    pub ciphers: Option<String>,
    /// `ssl-default-server-ciphersuites`.
    pub ciphersuites: Option<String>,
    /// `ssl-default-server-curves`.
    pub curves: Option<String>,
    /// `ssl-default-server-sigalgs`.
    pub sigalgs: Option<String>,
    /// `ssl-default-server-options … ssl-min-ver`.
    pub oldest: Option<TlsVersion>,
    /// `ssl-default-server-options … ssl-max-ver`.
    pub newest: Option<TlsVersion>,
    /// `ssl-default-server-options … no-tls-tickets`.
    pub no_tickets: bool,
}

/// Files beside a certificate's that are read with it (`ssl-load-extra-files`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExtraFiles {
    /// `.rsa`, `.ecdsa`, `.dsa`: several kinds of key under one name.
    pub bundle: bool,
    /// `.sctl`.
    pub sctl: bool,
    /// `.ocsp`.
    pub ocsp: bool,
    /// `.issuer`.
    pub issuer: bool,
    /// `.key`.
    pub key: bool,
    /// `ssl-load-extra-del-ext`: the extension of the certificate is replaced instead of extended.
    pub replace_extension: bool,
}

impl Default for ExtraFiles {
    fn default() -> Self {
        ExtraFiles { bundle: true, sctl: true, ocsp: true, issuer: true, key: true, replace_extension: false }
    }
}
