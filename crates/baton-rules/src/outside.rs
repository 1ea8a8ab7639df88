//! What compiling needs from outside: files of patterns, the environment, the host's name.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use baton_model::{Global, HttpErrors, Role, StickTable, UserList};

use crate::acl::Acl;
use crate::reference::References;
use crate::sample::Type;

/// Where patterns and names come from. The rules themselves open nothing.
pub trait Files {
    /// The content of a file named by `-f` or `file`.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The content of a file of patterns or of a map, which is no part of the rules: it may change without them.
    fn read_patterns(&self, path: &str) -> io::Result<Vec<u8>> {
        self.read(path)
    }

    /// The pattern references of the configuration that is compiled; `None`: of the one proxy alone.
    fn pattern_references(&self) -> Option<&References> {
        None
    }

    /// A variable of the environment, for `env(NAME)`.
    fn environment(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// The `userlist` section of that name, for `http_auth(NAME)`.
    fn users(&self, list: &str) -> Option<Arc<UserList>> {
        let _ = list;
        None
    }

    /// The `http-errors` section of that name, for `errorfiles NAME`.
    fn http_errors(&self, section: &str) -> Option<Arc<HttpErrors>> {
        let _ = section;
        None
    }

    /// The stick table of that name, for `track-sc0 src table NAME`.
    fn table(&self, name: &str) -> Option<Arc<StickTable>> {
        let _ = name;
        None
    }

    /// The ACLs of the proxy, as far as they are compiled, for `when(acl,NAME)`.
    fn acls(&self) -> KnownAcls {
        KnownAcls::default()
    }

    /// How many entries of stick tables a session or a request can track.
    fn stick_counters(&self) -> u8 {
        Global::STICK_COUNTERS
    }

    /// How long a response from a file may be.
    fn buffer(&self) -> BufferLimits {
        BufferLimits::default()
    }

    /// The proxy that the rules stand in: what `be_conn` without a name means.
    fn within(&self) -> Option<(&str, Role)> {
        None
    }

    /// An expression names this proxy or server. Whether it exists is known when the whole configuration is.
    fn refers(&self, reference: NameReference) {
        let _ = reference;
    }

    /// The first IPv4 address of a host, for patterns of addresses that name one.
    fn resolve(&self, host: &str) -> Option<Ipv4Addr> {
        let _ = host;
        None
    }

    /// The host's name, for `hostname` and `%H`.
    fn hostname(&self) -> String {
        String::new()
    }
}

/// The ACLs of a proxy.
#[derive(Clone, Debug, Default)]
pub struct KnownAcls(pub(crate) Arc<Vec<Acl>>);

/// `tune.bufsize` and `tune.maxrewrite`: responses of HAProxy's own fit into a buffer, with room for headers that rules add.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferLimits {
    /// `tune.bufsize`.
    pub bytes: usize,
    /// `tune.maxrewrite`.
    pub reserve: usize,
}

impl Default for BufferLimits {
    fn default() -> BufferLimits {
        BufferLimits { bytes: 16_384, reserve: 1024 }
    }
}

/// A proxy, a server, a stick table or a section of name servers that a rule or an expression names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameReference {
    /// What names it, as messages call it: `arg 1 of sample fetch keyword 'be_conn'`.
    pub by: String,
    /// The frontend, backend, table or section.
    pub proxy: String,
    /// What the name must be.
    pub kind: ReferenceKind,
    /// A rate of it is wanted, which must be measured.
    pub asks_for_rate: bool,
}

/// What a name stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReferenceKind {
    /// A frontend.
    Frontend,
    /// A backend.
    Backend,
    /// The server of that name in a backend.
    Server(String),
    /// A stick table: of a proxy of that name, or of a `peers` section.
    Table,
    /// The stick table of that name, whose keys can be made of values of this type.
    TableOfKey(Type),
    /// A `resolvers` section.
    Resolvers,
    /// A ring. It is no proxy's.
    Ring,
}

/// No files at all: each is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The outside of a health check's expressions: the host's name and the environment, and no files.
#[derive(Clone, Debug, Default)]
pub struct CheckFiles {
    /// The host's name.
    pub hostname: String,
}

impl Files for CheckFiles {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "health checks read no files"))
    }

    fn hostname(&self) -> String {
        self.hostname.clone()
    }
}
