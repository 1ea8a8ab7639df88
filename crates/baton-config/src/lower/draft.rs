//! What a section has said so far. A draft begins as a copy of its defaults.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use baton_model::{
    Address, CrtLine, ErrorPage, Global, HeaderCases, LogFormat, LogTarget, Mode, NetAddress, Proxy, Resolution, Role,
    Server, ServerTarget, SocketMode, Source,
};
use baton_rules::suggestion;
use rustc_hash::FxHashMap;

use super::{Context, MAX_OBJECTS, name_of};
use crate::diagnostic::Severity;
use crate::keywords::check::CheckDraft;
use crate::keywords::direct::DirectDraft;
use crate::keywords::server::tls::TlsWords;
use crate::keywords::{Sections, server};
use crate::own::Own;
use crate::syntax::{Line, Section};

/// The `global` sections so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalDraft {
    pub model: Global,
    /// The line of each keyword.
    pub lines: BTreeMap<&'static str, Line>,
    /// `unix-bind`: put before the path of every unix socket to listen on, and its owner and mode where a line has none.
    pub unix_prefix: String,
    pub unix_socket: SocketMode,
    /// `external-check`.
    pub permits_external_checks: bool,
    /// `insecure-fork-wanted`.
    pub wants_forks: bool,
    /// `h1-case-adjust`, `h1-case-adjust-file`.
    pub header_cases: Arc<HeaderCases>,
}

/// Which kind of section a draft is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub(crate) enum Kind {
    Defaults,
    Frontend,
    Backend,
    Listen,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Defaults => "defaults",
            Kind::Frontend => "frontend",
            Kind::Backend => "backend",
            Kind::Listen => "listen",
        }
    }

    /// The word for a section of this kind in most messages.
    pub fn label(self) -> &'static str {
        if self == Kind::Listen { "proxy" } else { self.word() }
    }

    pub fn role(self) -> Role {
        match self {
            Kind::Defaults | Kind::Listen => Role::Listen,
            Kind::Frontend => Role::Frontend,
            Kind::Backend => Role::Backend,
        }
    }
}

/// One `log` line of a proxy.
#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    /// `log global`.
    Global,
    Target(LogTarget),
}

/// One line about the response for an error.
#[derive(Clone, Debug)]
pub(crate) enum ErrorSetting {
    /// `errorfile`, `errorloc`, `http-error`; `None`: `http-error … default-errorfiles`, which takes back what was said before.
    Page(u16, Option<ErrorPage>),
    /// `errorfiles` and `http-error … errorfiles`; no status: all that the section has.
    Files { section: String, statuses: Vec<u16>, line: Line },
}

/// A server and what only its reading needs.
#[derive(Clone, Debug)]
pub(crate) struct ServerDraft {
    pub server: Own<Server>,
    /// The line it stands in; `None` for a `default-server`.
    pub line: Option<Line>,
    /// `resolvers` and its companions.
    pub resolution: Option<Resolution>,
    /// `init-addr`; `None` is `last,libc`.
    pub init_addr: Option<Vec<InitAddr>>,
    /// `id` as written.
    pub id: Option<u32>,
    /// The port is given, though relative.
    pub has_port: bool,
    /// `shard`, of a peer.
    pub shard: u32,
    /// What is said about TLS.
    pub tls: Own<TlsWords>,
    /// `proto`.
    pub proto: Option<&'static str>,
    /// `check-proto`.
    pub check_proto: Option<&'static str>,
    /// It comes by `add server`, which accepts fewer words.
    pub is_dynamic: bool,
}

/// One method of `init-addr`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InitAddr {
    Last,
    Libc,
    None,
    Ip(IpAddr),
}

impl ServerDraft {
    pub fn new() -> ServerDraft {
        ServerDraft {
            server: Own::new(Server::new("", 0, None)),
            line: None,
            resolution: None,
            init_addr: None,
            id: None,
            has_port: false,
            shard: 0,
            tls: Own::new(TlsWords::default()),
            proto: None,
            check_proto: None,
            is_dynamic: false,
        }
    }
}

/// The last line of each keyword of a section, of which there are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLines(Vec<(&'static str, Line)>);

impl LastLines {
    pub fn get(&self, keyword: &str) -> Option<&Line> {
        self.0.iter().find(|(other, _)| *other == keyword).map(|(_, line)| line)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Line)> {
        self.0.iter().map(|(keyword, line)| (*keyword, line))
    }

    /// Where each keyword stands.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, Source)> {
        self.iter().map(|(keyword, line)| (keyword, line.source()))
    }

    /// These and others, which come later.
    fn with(&self, later: &LastLines) -> LastLines {
        let mut all = self.clone();
        later.iter().for_each(|(keyword, line)| all.note(keyword, line));
        all
    }

    pub fn note(&mut self, keyword: &'static str, line: &Line) {
        match self.0.iter_mut().find(|(other, _)| *other == keyword) {
            Some((_, last)) => *last = line.clone(),
            None => self.0.push((keyword, line.clone())),
        }
    }
}

/// A proxy section so far.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub kind: Kind,
    pub proxy: Own<Proxy>,
    pub head: Line,
    /// Whether the section's name is fit for use; without it the section is only judged.
    pub valid: bool,
    /// Whether a `from` names this `defaults` section.
    pub referenced: bool,
    /// The line of each keyword in this section.
    pub lines: LastLines,
    /// Options in force that only `mode http` has, with their lines and the sections they mean something in.
    pub http_only: BTreeMap<&'static str, (Line, Sections)>,
    pub default_server: ServerDraft,
    pub servers: Vec<ServerDraft>,
    pub logs: Vec<LogEntry>,
    pub format: Option<LogFormat>,
    /// Responses for errors, in the order of their lines.
    pub errors: Vec<ErrorSetting>,
    /// `option httpclose`, `http-server-close`.
    pub close: bool,
    pub server_close: bool,
    /// The section has a `stats` line of its own: nothing of its page comes from a `defaults` section.
    pub has_own_stats: bool,
    /// How servers are checked.
    pub check: CheckDraft,
    /// `cookie … dynamic`.
    pub cookie_dynamic: bool,
    /// `dynamic-cookie-key`.
    pub dynamic_cookie_key: Option<String>,
    /// `option transparent`.
    pub transparent: bool,
    /// `option h1-case-adjust-bogus-client`.
    pub adjusts_client: bool,
    /// `option h1-case-adjust-bogus-server`.
    pub adjusts_server: bool,
    /// `id` as written.
    pub id: Option<u32>,
    /// `bind` lines with `ssl`.
    pub ssl_lines: Vec<Line>,
    /// `ssl-f-use` lines.
    pub uses: Vec<CrtLine>,
    /// `bind` lines.
    pub bind_lines: Vec<Line>,
    /// What only `mode direct` has.
    pub direct: DirectDraft,
    /// The lines of the `defaults` sections it begins with, by keyword.
    pub inherited: Arc<LastLines>,
    /// Where those stand, for the model.
    pub inherited_lines: Arc<[(&'static str, Source)]>,
}

impl Draft {
    fn new(kind: Kind, head: Line) -> Draft {
        let mut proxy = Proxy::new(Arc::from(""), kind.role());
        proxy.mode = Mode::Tcp;
        Draft {
            kind,
            proxy: Own::new(proxy),
            head,
            valid: true,
            referenced: false,
            lines: LastLines::default(),
            http_only: BTreeMap::new(),
            default_server: ServerDraft::new(),
            servers: Vec::new(),
            logs: Vec::new(),
            format: None,
            errors: Vec::new(),
            close: false,
            server_close: false,
            has_own_stats: false,
            check: CheckDraft::default(),
            cookie_dynamic: false,
            dynamic_cookie_key: None,
            transparent: false,
            adjusts_client: false,
            adjusts_server: false,
            id: None,
            ssl_lines: Vec::new(),
            uses: Vec::new(),
            bind_lines: Vec::new(),
            direct: DirectDraft::default(),
            inherited: Arc::default(),
            inherited_lines: Arc::default(),
        }
    }

    /// A draft for one more server of a backend that is in use.
    pub fn of_backend(kind: Kind, backend: &Proxy, head: Line) -> Draft {
        let mut draft = Draft::new(kind, head);
        draft.proxy.name = backend.name.clone();
        draft.proxy.mode = backend.mode;
        draft
    }

    /// A draft to judge arguments on that have no effect in this section.
    pub fn scratch(of: &Draft) -> Draft {
        let mut scratch = Draft::new(of.kind, of.head.clone());
        scratch.proxy.name = of.proxy.name.clone();
        scratch.proxy.mode = of.proxy.mode;
        scratch
    }
}

/// All drafts, and where to find one. Thousands of sections ask for each other's names.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    /// In the order of the files, `defaults` sections left out.
    proxies: Vec<Draft>,
    /// The first one of each name.
    frontends: FxHashMap<Arc<str>, usize>,
    backends: FxHashMap<Arc<str>, usize>,
    /// `defaults` sections, which may share names, in the order of the files.
    defaults: Vec<Draft>,
}

impl Drafts {
    /// With room for the drafts of so many sections, which are large to move.
    pub fn for_sections(count: usize) -> Drafts {
        Drafts { proxies: Vec::with_capacity(count.min(MAX_OBJECTS)), ..Drafts::default() }
    }

    pub fn push(&mut self, mut draft: Draft) {
        let (index, role) = (self.proxies.len(), draft.kind.role());
        if draft.kind == Kind::Defaults {
            draft.inherited = Arc::new(draft.inherited.with(&draft.lines));
            draft.inherited_lines = draft.inherited.sources().collect();
            return self.defaults.push(draft);
        }
        if role.is_frontend() {
            self.frontends.entry(draft.proxy.name.clone()).or_insert(index);
        }
        if role.is_backend() {
            self.backends.entry(draft.proxy.name.clone()).or_insert(index);
        }
        self.proxies.push(draft);
    }

    pub fn into_proxies(self) -> Vec<Draft> {
        self.proxies
    }

    /// The first section that would answer to this name as one of this kind does.
    fn namesake(&self, kind: Kind, name: &str) -> Option<&Draft> {
        let front = kind.role().is_frontend().then(|| self.frontends.get(name)).flatten();
        let back = kind.role().is_backend().then(|| self.backends.get(name)).flatten();
        front.into_iter().chain(back).min().map(|&index| &self.proxies[index])
    }

    /// A copy of a `defaults` section to begin with.
    fn copy(&mut self, index: usize) -> Draft {
        // Its lines are its own.
        let lines = std::mem::take(&mut self.defaults[index].lines);
        let copy = self.defaults[index].clone();
        self.defaults[index].lines = lines;
        copy
    }
}

/// The draft of a section whose head was read: named, checked, with its defaults applied.
pub(crate) fn begin(section: &Section, drafts: &mut Drafts, context: &mut Context<'_>) -> Option<Draft> {
    let head = &section.head;
    let kind = match head.word(0) {
        "defaults" => Kind::Defaults,
        "frontend" => Kind::Frontend,
        "backend" => Kind::Backend,
        "listen" => Kind::Listen,
        _ => return None,
    };
    let mut valid = true;
    let mut fault = |context: &mut Context<'_>, id, word, message| {
        context.report.add(head.diagnostic(Severity::Alert, id, word, message));
        valid = false;
    };
    let (name, from) = match (head.word(1), kind) {
        ("from", Kind::Defaults) if head.words.len() > 2 => (Arc::from(""), 1),
        _ => (name_of(head), 2),
    };
    if name.is_empty() && kind != Kind::Defaults {
        fault(context, "missing-name", 1, format!("'{}' expects an <id> argument", kind.word()));
    }
    if let Some(odd) = name.chars().find(|char| !is_name(*char)) {
        let message = format!("character '{odd}' is not permitted in '{}' name '{name}'.", kind.word());
        fault(context, "bad-name", 1, message);
    }
    if kind != Kind::Defaults
        && let Some(other) = drafts.namesake(kind, &name)
        && !name.is_empty()
    {
        let message = format!(
            "{} '{name}' has the same name as {} '{name}' declared at {}:{}.",
            kind.label(),
            other.kind.label(),
            other.head.file,
            other.head.number
        );
        fault(context, "duplicate-name", 1, message);
    }
    let mut base = None;
    match head.word(from) {
        "" => {
            base = drafts.defaults.len().checked_sub(1).filter(|_| kind != Kind::Defaults);
            if let Some(index) = base
                && drafts.defaults[index].referenced
            {
                let other = &drafts.defaults[index];
                let message = format!(
                    "defaults section '{}' (declared at {}:{}) is explicitly referenced by another proxy and \
                     implicitly used here.",
                    other.proxy.name, other.head.file, other.head.number
                );
                let mut diagnostic = head.diagnostic(Severity::Warning, "implicit-defaults", 0, message);
                diagnostic.hint = Some(format!("write '{} {name} from {}'", kind.word(), other.proxy.name));
                context.report.add(diagnostic);
            }
        }
        "from" => {
            let wanted = head.word(from + 1);
            let is_wanted = |index: &usize| &*drafts.defaults[*index].proxy.name == wanted;
            let found: Vec<usize> = (0..drafts.defaults.len()).filter(is_wanted).collect();
            match found[..] {
                _ if wanted.is_empty() => {
                    fault(
                        context,
                        "missing-argument",
                        from + 1,
                        "'from' expects the name of a defaults section.".into(),
                    );
                }
                [] => {
                    let message = format!("defaults section '{wanted}' not found for {} '{name}'.", kind.word());
                    let mut diagnostic = head.diagnostic(Severity::Alert, "unknown-defaults", from + 1, message);
                    let known = drafts.defaults.iter().map(|draft| &*draft.proxy.name);
                    diagnostic.hint = suggestion(wanted, known);
                    context.report.add(diagnostic);
                }
                [index] => base = Some(index),
                [first, second, ..] => {
                    let place = |index: usize| {
                        let head = &drafts.defaults[index].head;
                        format!("{}:{}", head.file, head.number)
                    };
                    let message = format!(
                        "ambiguous defaults section name '{wanted}' referenced by {} '{name}' exists at least at {} \
                         and {}.",
                        kind.word(),
                        place(first),
                        place(second)
                    );
                    fault(context, "ambiguous-defaults", from + 1, message);
                }
            }
            if let Some(index) = base {
                drafts.defaults[index].referenced = true;
            }
            if head.words.len() > from + 2 {
                let odd = head.word(from + 2);
                let message = format!("'{}' cannot handle unexpected argument '{odd}'.", kind.word());
                fault(context, "extra-argument", from + 2, message);
            }
        }
        other => {
            let message = format!("'{}' cannot handle unexpected argument '{other}'.", kind.word());
            let mut diagnostic = head.diagnostic(Severity::Alert, "extra-argument", from, message);
            if other.contains(':') {
                diagnostic.hint = Some("please use the 'bind' keyword for listening addresses".into());
            }
            context.report.add(diagnostic);
        }
    }
    let mut draft = match base {
        Some(index) => drafts.copy(index),
        None => Draft::new(kind, head.clone()),
    };
    draft.kind = kind;
    draft.proxy.role = kind.role();
    draft.proxy.name = name;
    draft.proxy.source = head.source();
    draft.head = head.clone();
    draft.valid = valid;
    draft.referenced = false;
    draft.has_own_stats = false;
    draft.check.begin();
    Some(draft)
}

/// Characters a proxy's or server's name may have.
pub(crate) fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | ':' | '-')
}

/// Keeps the tables honest: every section kind the reader begins is in the list.
#[cfg(test)]
#[test]
fn drafts_are_begun_for_all_sections_that_work() {
    let done = crate::keywords::SECTIONS.iter().filter(|kind| kind.status == crate::keywords::Status::Done).count();
    // `global`, `crt-store`, `http-errors`, `mailers`, `peers`, `resolvers`, `ring` and `userlist` are read otherwise.
    assert_eq!(done, 12);
}

/// Resolves a server's host by its `init-addr` methods. `Err` is a name that nobody knows, and so is `Ok(Some(_))`, where the
/// server may start in maintenance.
pub(crate) fn resolve_server(draft: &mut ServerDraft, context: &mut Context<'_>) -> Result<Option<String>, String> {
    let NetAddress::Name(name, family) = draft.server.address.host.clone() else { return Ok(None) };
    // SRV records give the host, and only at run time.
    let methods = draft.init_addr.clone().unwrap_or_else(|| vec![InitAddr::Last, InitAddr::Libc]);
    if draft.server.resolution.as_ref().is_some_and(|resolution| resolution.service.is_some()) {
        draft.server.starts_at_last = methods.contains(&InitAddr::Last);
        return Ok(None);
    }
    let port = draft.server.address.port();
    let is_only = methods.len() == 1;
    for method in methods {
        let found = match method {
            // A state file is read when the process starts.
            InitAddr::Last => {
                draft.server.starts_at_last = true;
                None
            }
            InitAddr::Libc => context.resolve(&name, family),
            InitAddr::Ip(ip) => Some(ip),
            InitAddr::None => return Ok((!is_only).then_some(name)),
        };
        if let Some(ip) = found {
            draft.server.address.target = ServerTarget::Fixed(Address::Inet((ip, port).into()));
            return Ok(None);
        }
    }
    let may_wait = context.options.ignore_unresolved || draft.server.resolution.is_some();
    if may_wait { Ok(Some(name)) } else { Err(name) }
}

/// Words of a `server` line the reader knows, for guesses.
pub(crate) fn server_words() -> impl Iterator<Item = &'static str> {
    server::all().map(|row| row.name)
}
