//! The model itself and its proxies (configuration manual, 4 "Proxies").

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    Balance, Bind, Check, Cookie, CrtStore, Direct, DirectBind, EmailAlert, Global, HttpOptions, KeywordLines, Logging,
    Mailers, PeersSection, Resolvers, RetryOn, Ring, Rule, Ruleset, Server, Source, StatsPage, StickTable, TcpOptions,
    Timeouts, UserList,
};

/// Everything that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The `global` section.
    pub global: Global,
    /// All proxies in the order of the files. Names are unique among frontends and among backends; a `listen` section is
    /// one proxy with both roles.
    pub proxies: Vec<Arc<Proxy>>,
    /// `crt-store` sections.
    pub crt_stores: Vec<Arc<CrtStore>>,
    /// `ring` sections.
    pub rings: Vec<Arc<Ring>>,
    /// `peers` sections. Names are unique.
    pub peers: Vec<Arc<PeersSection>>,
    /// `resolvers` sections. Names are unique.
    pub resolvers: Vec<Arc<Resolvers>>,
    /// `mailers` sections that a proxy names.
    pub mailers: Vec<Arc<Mailers>>,
    /// `userlist` sections. Names are unique.
    pub userlists: Vec<Arc<UserList>>,
}

/// Pipes for splicing where `maxpipes` is not set, at most: beyond that the kernel gives small ones to a process without
/// privileges (`fs.pipe-user-pages-soft`).
pub const PIPES_USUAL: u32 = 256;

impl Model {
    /// The proxy with a frontend's role of that name.
    pub fn frontend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.proxies.iter().find(|proxy| proxy.role.is_frontend() && &*proxy.name == name)
    }

    /// Whether anything of it takes packets in the kernel.
    pub fn has_direct(&self) -> bool {
        self.proxies.iter().any(|proxy| !proxy.disabled && !proxy.places().is_empty())
    }

    /// Whether anything would take connections or packets. A frontend without an address takes none.
    pub fn has_listener(&self) -> bool {
        self.has_direct() || self.proxies.iter().any(|proxy| !proxy.disabled && !proxy.binds.is_empty())
    }

    /// The stick tables of all proxies, and of `peers` sections.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<StickTable>> {
        let of_peers = self.peers.iter().flat_map(|section| &section.tables);
        self.proxies.iter().filter_map(|proxy| proxy.table.as_ref()).chain(of_peers)
    }

    /// All proxies, and behind them the addresses and servers of `peers` sections: what has sockets and TLS.
    pub fn with_peers(&self) -> impl Iterator<Item = &Arc<Proxy>> {
        self.proxies.iter().chain(self.peers.iter().map(|section| &section.proxy))
    }

    /// All servers that connections with TLS may be opened to: those of backends, peers and name servers.
    pub fn with_name_servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        let name_servers = self.resolvers.iter().flat_map(|section| &section.servers);
        let of_proxies = self.with_peers().flat_map(|proxy| &proxy.servers);
        of_proxies.chain(name_servers.filter_map(|server| server.tls.as_ref()))
    }

    /// The proxy with a backend's role of that name.
    pub fn backend(&self, name: &str) -> Option<&Arc<Proxy>> {
        self.proxies.iter().find(|proxy| proxy.role.is_backend() && &*proxy.name == name)
    }

    /// The file that has the states of a backend's servers, if there is one.
    pub fn state_file(&self, backend: &Proxy) -> Option<PathBuf> {
        let name: &Path = match backend.state_file {
            StateFile::None => return None,
            StateFile::Global => self.global.server_state_file.as_deref()?,
            StateFile::Local => Path::new(backend.state_file_name.as_deref().unwrap_or(&backend.name)),
        };
        let base = self.global.server_state_base.as_deref();
        Some(base.map_or_else(|| name.to_owned(), |base| base.join(name)))
    }

    /// How many pipes splicing may use: `maxpipes`, else a quarter of `maxconn` up to [`PIPES_USUAL`]; none where nothing
    /// asks for splicing.
    pub fn pipes_max(&self) -> u32 {
        let asks = |proxy: &&Arc<Proxy>| {
            let tcp = &proxy.tcp;
            !proxy.disabled && (tcp.splice_auto || tcp.splice_request || tcp.splice_response)
        };
        if self.global.nosplice || self.proxies.iter().find(asks).is_none() {
            return 0;
        }
        let usual = || self.global.maxconn.map_or(PIPES_USUAL, |maxconn| (maxconn / 4).clamp(1, PIPES_USUAL));
        self.global.maxpipes.unwrap_or_else(usual)
    }
}

/// A `frontend`, `backend` or `listen` section with its defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Its name.
    pub name: Arc<str>,
    /// `id`: given, or the next free number from 2 in order, as HAProxy does.
    pub id: u32,
    /// Which kind of section.
    pub role: Role,
    /// `mode`.
    pub mode: Mode,
    /// `disabled`: reads but takes no part.
    pub disabled: bool,
    /// `bind` lines, expanded.
    pub binds: Vec<Bind>,
    /// `maxconn` of a frontend; `None` takes the global limit.
    pub maxconn: Option<u32>,
    /// `backlog` of a frontend.
    pub backlog: Option<u32>,
    /// `rate-limit sessions`: connections a second.
    pub rate_limit: Option<u32>,
    /// `default_backend`.
    pub default_backend: Option<String>,
    /// Rules by set, in order.
    pub rules: BTreeMap<Ruleset, Vec<Rule>>,
    /// `timeout …`.
    pub timeouts: Timeouts,
    /// HTTP behaviour.
    pub http: HttpOptions,
    /// Behaviour of both modes.
    pub tcp: TcpOptions,
    /// Logging.
    pub logging: Logging,
    /// `balance` and `hash-type`.
    pub balance: Balance,
    /// `email-alert`: mail about its servers.
    pub email_alert: Option<Arc<EmailAlert>>,
    /// `cookie`.
    pub cookie: Option<Cookie>,
    /// `server` lines, templates expanded.
    pub servers: Vec<Arc<Server>>,
    /// `retries`.
    pub retries: u32,
    /// `retry-on`.
    pub retry_on: RetryOn,
    /// `fullconn`; `None`: a tenth of the sum of the `maxconn` of the frontends that lead here.
    pub fullconn: Option<u32>,
    /// `option httpchk`, `http-check`.
    pub check: Check,
    /// `source` of the backend, where the server has none.
    pub source_address: Option<crate::SourceAddress>,
    /// `stats …`: the statistics page; `None` without one, and outside of `mode http`. Its rules are among the rules.
    pub stats: Option<Arc<StatsPage>>,
    /// `stick-table`.
    pub table: Option<Arc<StickTable>>,
    /// `description`.
    pub description: Option<String>,
    /// What `mode direct` has; `None` in the other modes.
    pub direct: Option<Arc<Direct>>,
    /// `load-server-state-from-file`.
    pub state_file: StateFile,
    /// `server-state-file-name`; `None`: the backend's name.
    pub state_file_name: Option<String>,
    /// The section's line.
    pub source: Source,
    /// The lines of its keywords.
    pub lines: KeywordLines,
}

/// Which file has the states of a backend's servers at the end of an earlier process (`load-server-state-from-file`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StateFile {
    /// None.
    #[default]
    None,
    /// `server-state-file`.
    Global,
    /// A file of its own.
    Local,
}

impl Proxy {
    /// Whether weights of its servers stay what they are, apart from none at all: so it is with algorithms that lay out their servers once.
    pub fn has_static_weights(&self) -> bool {
        use crate::Algorithm::{Hash, Hdr, Source, StaticRr, Uri, UrlParam};
        let is_hash = matches!(self.balance.algorithm, Source | Uri(_) | UrlParam { .. } | Hdr { .. } | Hash(_));
        self.mode != Mode::Direct && (self.balance.algorithm == StaticRr || is_hash && !self.balance.hash.consistent)
    }

    /// A proxy with HAProxy's defaults and nothing else.
    pub fn new(name: impl Into<Arc<str>>, role: Role) -> Proxy {
        Proxy {
            name: name.into(),
            id: 0,
            role,
            mode: Mode::default(),
            disabled: false,
            binds: Vec::new(),
            maxconn: None,
            backlog: None,
            rate_limit: None,
            default_backend: None,
            rules: BTreeMap::new(),
            timeouts: Timeouts::default(),
            http: HttpOptions::default(),
            tcp: TcpOptions::default(),
            logging: Logging::default(),
            balance: Balance::default(),
            email_alert: None,
            cookie: None,
            servers: Vec::new(),
            retries: 3,
            retry_on: RetryOn::default(),
            fullconn: None,
            check: Check::default(),
            source_address: None,
            stats: None,
            table: None,
            description: None,
            direct: None,
            state_file: StateFile::None,
            state_file_name: None,
            source: Source::default(),
            lines: KeywordLines::default(),
        }
    }

    /// The virtual addresses and marks of `mode direct`.
    pub fn places(&self) -> &[DirectBind] {
        self.direct.as_ref().map_or(&[], |direct| &direct.places)
    }

    /// The rules of one set, in order.
    pub fn rules(&self, set: Ruleset) -> &[Rule] {
        self.rules.get(&set).map_or(&[], Vec::as_slice)
    }
}

/// Which kind of section a proxy is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Role {
    /// `frontend`.
    Frontend,
    /// `backend`.
    Backend,
    /// `listen`: both.
    Listen,
}

impl Mode {
    /// As in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Tcp => "tcp",
            Mode::Http => "http",
            Mode::Direct => "direct",
        }
    }
}

impl Role {
    /// Whether it accepts connections.
    pub fn is_frontend(self) -> bool {
        matches!(self, Role::Frontend | Role::Listen)
    }

    /// Whether it has servers.
    pub fn is_backend(self) -> bool {
        matches!(self, Role::Backend | Role::Listen)
    }

    /// The section's keyword.
    pub fn word(self) -> &'static str {
        match self {
            Role::Frontend => "frontend",
            Role::Backend => "backend",
            Role::Listen => "listen",
        }
    }
}

/// `mode`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Bytes are relayed as they are.
    #[default]
    Tcp,
    /// HTTP is parsed and judged.
    Http,
    /// The kernel passes packets on, and servers answer clients by themselves.
    Direct,
}
