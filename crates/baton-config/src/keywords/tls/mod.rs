//! The words of TLS with clients: `bind … ssl` (configuration manual, 5.1), `crt-list` files, `crt-store` sections,
//! `ssl-f-use`, and what `global` says for all of them (3.1, 3.2). Files of certificates are not opened here.

mod bind;
pub(crate) mod crt_list;
mod crt_store;
mod global;
mod ignored;
mod judge;
mod options;

use std::path::{Path, PathBuf};

use baton_model::{CrtStore, GlobalTls, TlsOptions};

use crate::lower::DefaultPath;

pub(super) use bind::{ROWS as BIND_ROWS, TlsDraft, finish, missing};
pub(crate) use crt_store::section as crt_store;
pub(super) use crt_store::use_in_frontend;
pub(super) use global::ROWS as GLOBAL_ROWS;
pub(crate) use judge::{certificates, references};
pub(super) use options::{RAISED, is_too_old};

/// What the lines so far say for those below them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    /// `crt-base`, `ca-base`, `key-base`.
    pub bases: BaseDirectories,
    /// `ssl-default-bind-ciphers` and its relatives.
    pub options: TlsOptions,
    /// `ssl-default-bind-options no-tlsv12`, `no-tlsv13`.
    pub without: DisabledVersions,
    /// `ssl-default-bind-options no-tls-tickets`.
    pub no_tickets: bool,
    /// `ssl-default-bind-options prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `crt-store` sections, and what `ssl-f-use` lines load.
    pub stores: Vec<CrtStore>,
}

/// Versions that are left out: `no-tlsv12` and `no-tlsv13`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DisabledVersions {
    pub tls12: bool,
    pub tls13: bool,
}

/// Where relative names of certificates start.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseDirectories {
    pub crt: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl BaseDirectories {
    /// Those in use, for a line that comes by the runtime API.
    pub fn of(global: &GlobalTls) -> BaseDirectories {
        BaseDirectories { crt: global.crt_base.clone(), ca: global.ca_base.clone(), key: None }
    }
}

/// How a file's name becomes a path: the bases, and `default-path`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePaths<'a> {
    pub bases: &'a BaseDirectories,
    pub base: &'a DefaultPath,
    /// The configuration file that names it.
    pub config: &'a str,
}

impl FilePaths<'_> {
    /// A certificate's; `@STORE/ALIAS` is none.
    pub fn crt(&self, name: &str) -> PathBuf {
        self.path(self.bases.crt.as_deref(), name)
    }

    /// That of authorities or revocations; `@system-ca` is none.
    pub fn ca(&self, name: &str) -> PathBuf {
        self.path(self.bases.ca.as_deref(), name)
    }

    fn path(&self, base: Option<&Path>, name: &str) -> PathBuf {
        match base {
            _ if name.starts_with('@') => name.into(),
            Some(base) => self.base.path(self.config, base.join(name)),
            None => self.base.path(self.config, name),
        }
    }
}

/// What is reported about an argument that is accepted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ParameterNote {
    Nothing,
    Notice(String),
    Warning(String),
}

/// An argument that is rejected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ParameterError {
    pub message: String,
    pub hint: Option<String>,
}

impl ParameterError {
    pub fn new(message: impl Into<String>) -> ParameterError {
        ParameterError { message: message.into(), hint: None }
    }
}
