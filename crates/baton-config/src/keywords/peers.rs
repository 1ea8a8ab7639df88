//! `peers` sections: other processes with which stick tables are shared (configuration manual, 3.5 "Peers").
//!
//! What a section says of addresses, TLS and logging is read by the rows of proxies, on a draft of its own: where it listens becomes a `bind`,
//! and each other peer a server.

use std::sync::Arc;

use baton_model::{Peer, PeersSection, Proxy, Role, StickTable};
use baton_rules::nearest;

use super::bind::{self, BindDraft};
use super::{log, server, stats, table, tls};
use crate::diagnostic::Severity;
use crate::lower::{Call, Context, Draft, GlobalDraft, Kind, Prefix, late};
use crate::syntax::{Line, Section};

/// Keywords of a section.
const KEYWORDS: [&str; 11] = [
    "bind",
    "default-bind",
    "default-server",
    "disabled",
    "enabled",
    "log",
    "peer",
    "server",
    "shard",
    "shards",
    "table",
];
/// Most shards.
const SHARDS_MAX: i64 = 1000;

/// A section while it is read.
#[derive(Debug)]
pub(crate) struct PeersDraft {
    section: PeersSection,
    /// Addresses, servers and logs.
    pub draft: Draft,
    /// `default-bind`.
    default_bind: Option<BindDraft>,
    /// The first line that says where this process listens.
    listening: Option<Line>,
    /// The line of each peer, in the order of the section.
    lines: Vec<Line>,
    /// The `table` lines, in the order of the section's tables.
    table_lines: Vec<Line>,
}

/// Reads a section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name: Arc<str> = head.word(1).into();
    if name.is_empty() {
        let message = "missing name for peers section.";
        context.report.add(head.diagnostic(Severity::Alert, "missing-name", 1, message.into()));
    }
    if let Some(other) = context.peers.iter().find(|other| other.section.name == name) {
        let first = &other.draft.head;
        let message = format!(
            "peers section '{name}' has the same name as another peers section declared at {}:{}.",
            first.file, first.number
        );
        context.report.add(head.diagnostic(Severity::Alert, "duplicate-name", 1, message));
    }
    context.limit_arguments(head, 1);
    let mut proxy = Proxy::new(name.clone(), Role::Listen);
    proxy.source = head.source();
    let draft = Draft::of_backend(Kind::Listen, &proxy, head.clone());
    let section_of = PeersSection {
        name,
        disabled: false,
        local: context.local_peer().into(),
        peers: Vec::new(),
        shards: 0,
        proxy: Arc::new(proxy),
        tables: Vec::new(),
        source: head.source(),
    };
    let mut peers = PeersDraft {
        section: section_of,
        draft,
        default_bind: None,
        listening: None,
        lines: Vec::new(),
        table_lines: Vec::new(),
    };
    peers.draft.proxy.source = head.source();
    context.in_peers = true;
    for line in &section.lines {
        peers.line(line, context);
    }
    context.in_peers = false;
    context.peers.push(peers);
}

/// `localpeer NAME`, of `global`.
pub(super) fn localpeer(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let Some(name) = call.only("a name as an argument") else { return };
    match call.context.peers.is_empty() {
        true => call.context.localpeer = Some(name.into()),
        false => call.warn(0, "no-effect", "'localpeer' ignored since it is used after 'peers' section.".into()),
    }
}

impl PeersDraft {
    /// Whether it is the section of a name.
    pub fn is_named(&self, name: &str) -> bool {
        *self.section.name == *name
    }

    /// Its tables, with their lines.
    pub fn tables(&self) -> impl Iterator<Item = (&Arc<StickTable>, &Line)> {
        self.section.tables.iter().zip(&self.table_lines)
    }

    /// Its tables, to be changed.
    pub fn tables_mut(&mut self) -> impl Iterator<Item = &mut Arc<StickTable>> {
        self.section.tables.iter_mut()
    }

    fn line(&mut self, line: &Line, context: &mut Context<'_>) {
        let (prefix, first) = match (line.word(0), line.word(1)) {
            ("no", "log") => (Prefix::No, 2),
            _ => (Prefix::None, 1),
        };
        let mut call = Call::new(line, first, prefix, "peers", context);
        match line.word(first - 1) {
            "peer" | "server" => self.peer(&mut call),
            "bind" => self.bind(&mut call),
            "default-bind" => {
                // Its words stand where others have an address before them.
                call.first = 0;
                self.default_bind = bind_parameters(&mut call, "'default-bind' in section 'peers' : ");
            }
            "default-server" => {
                call.name = "default-server";
                server::default_server(&mut self.draft, &mut call);
            }
            "disabled" | "enabled" => {
                if call.at_most(0) {
                    self.section.disabled = line.word(0) == "disabled";
                }
            }
            "log" => {
                call.name = "log";
                log::log(&mut self.draft, &mut call);
                call.notice(
                    "no-effect",
                    "'log' in section 'peers' has no effect: connections of peers are not logged".into(),
                );
            }
            "shards" => {
                call.name = "shards";
                self.section.shards = call.number(0, SHARDS_MAX).unwrap_or(0) as u32;
            }
            "table" => self.table(&mut call),
            word => {
                let hint = nearest(word, KEYWORDS).map(|name| format!("did you mean '{name}'?"));
                call.error_with(0, "unknown-keyword", format!("unknown keyword '{word}' in 'peers' section"), hint);
            }
        }
    }

    /// `peer NAME ADDRESS …`, and `server NAME [ADDRESS] …`, which is the same but for where this process listens.
    fn peer(&mut self, call: &mut Call<'_, '_>) {
        let keyword = call.line.word(0).to_owned();
        let name: Arc<str> = call.arg(0).into();
        if name.is_empty() {
            call.name = "peer";
            return call.expects(0, "a name as an argument");
        }
        if let Some(at) = self.section.peers.iter().position(|peer| peer.name == name) {
            let first = &self.lines[at];
            let kind = if name == self.section.local { "local peer name" } else { "peer name" };
            let message = format!("'{keyword} {name}' : {kind} already referenced at {}:{}.", first.file, first.number);
            return call.error(1, "duplicate-name", message);
        }
        let mut peer = Peer { name: name.clone(), shard: 0 };
        let line = call.line.clone();
        if name == self.section.local {
            self.local(call, &keyword);
        } else {
            let before = self.draft.servers.len();
            call.name = "server";
            server::server(&mut self.draft, call);
            let Some(server) = self.draft.servers.get(before) else { return };
            if !server.has_port {
                let message = format!("'{keyword} {name}' : missing port specification in '{}'", call.arg(1));
                return call.error(2, "bad-address", message);
            }
            peer.shard = server.shard;
            let settings = &server.server;
            if settings.send_proxy.is_on() {
                let message = format!("'{keyword} {name}' : 'send-proxy' is not supported for peers");
                return call.error(3, "not-yet", message);
            }
            if settings.check.enabled || settings.check.track.is_some() || server.init_addr.is_some() {
                let message = format!("'server {name}' : init_addr, resolvers, check and agent are ignored for peers.");
                call.warn(0, "no-effect", message);
            }
            let server = &mut self.draft.servers[before];
            server.server.check.enabled = false;
            server.server.check.track = None;
            server.init_addr = None;
        }
        self.section.peers.push(peer);
        self.lines.push(line);
    }

    /// The line of this process itself: `peer` says where it listens.
    fn local(&mut self, call: &mut Call<'_, '_>, keyword: &str) {
        let (name, text) = (self.section.local.clone(), call.arg(1));
        if text.is_empty() {
            return;
        }
        if keyword == "server" {
            let message = format!(
                "'server {}/{name}' : unknown keyword '{text}'. Hint: no address was expected for this server.",
                self.section.name
            );
            return call.error(2, "unknown-keyword", message);
        }
        if !self.listens(call) {
            return;
        }
        // What follows is about other peers, where this one is not the local one: it is judged alone.
        let mut scratch = Draft::scratch(&self.draft);
        call.name = "server";
        server::server(&mut scratch, call);
        if scratch.servers.first().is_some_and(|server| !server.has_port) {
            return call.error(2, "bad-address", format!("'peer {name}' : missing port specification in '{text}'"));
        }
        match bind::expand(text, call) {
            Ok(addresses) => {
                let bind = self.default_bind.clone().unwrap_or_default();
                if bind.options.tls.is_some() {
                    self.draft.ssl_lines.push(call.line.clone());
                }
                self.draft.bind_lines.push(call.line.clone());
                self.draft.proxy.binds.extend(addresses.into_iter().map(|address| bind.bind(address, call)));
            }
            Err(message) => call.error(2, "bad-address", format!("'peer {name}' : {message}")),
        }
    }

    /// `bind ADDRESS …`.
    fn bind(&mut self, call: &mut Call<'_, '_>) {
        call.name = "bind";
        if !self.listens(call) {
            return;
        }
        let before = self.draft.proxy.binds.len();
        bind::bind(&mut self.draft, call);
        if self.draft.proxy.binds[before..].iter().any(|bind| bind.options.accept_proxy) {
            return call.error(
                0,
                "not-yet",
                "'bind' in section 'peers' : 'accept-proxy' is not supported for peers".into(),
            );
        }
        let Some(default) = &self.default_bind else { return };
        if call.args() > 1 {
            let message = "'bind' in section 'peers' : has its own parameters beside those of 'default-bind', which is not \
                           supported yet: write all of them on the 'bind' line";
            return call.error(2, "not-yet", message.into());
        }
        if default.options.tls.is_some() {
            self.draft.ssl_lines.push(call.line.clone());
        }
        for bind in &mut self.draft.proxy.binds[before..] {
            bind.options = default.options.clone();
        }
    }

    /// A section listens at one place.
    fn listens(&mut self, call: &mut Call<'_, '_>) -> bool {
        if let Some(first) = &self.listening {
            let message = format!(
                "One listener per \"peers\" section is authorized but another is already configured at [{}:{}].",
                first.file, first.number
            );
            call.error(0, "duplicate", message);
            return false;
        }
        self.listening = Some(call.line.clone());
        true
    }

    /// `table NAME …`.
    fn table(&mut self, call: &mut Call<'_, '_>) {
        let (name, line) = (call.arg(0), call.line.clone());
        if name.is_empty() {
            call.name = "table";
            return call.expects(0, "a name as an argument");
        }
        let name: Arc<str> = format!("{}/{name}", self.section.name).into();
        if let Some(at) = self.section.tables.iter().position(|table| table.name == name) {
            let first = &self.table_lines[at];
            let message = format!(
                "stick-table name '{name}' conflicts with table declared in peers '{}' at {}:{}.",
                self.section.name, first.file, first.number
            );
            return call.error(1, "duplicate-name", message);
        }
        call.first += 1;
        let Some(mut table) = table::read(call, name, false) else { return };
        table.peers = Some(self.section.name.clone());
        self.section.tables.push(Arc::new(table));
        self.table_lines.push(line);
    }
}

/// What stands behind the address of a `bind`.
fn bind_parameters(call: &mut Call<'_, '_>, about: &str) -> Option<BindDraft> {
    let mut bind = bind::parameters(call, about)?;
    if bind.options.accept_proxy {
        call.error(0, "not-yet", format!("{about}'accept-proxy' is not supported for peers"));
        return None;
    }
    stats::on_a_bind(&bind, call, about);
    tls::finish(&mut bind, call, about);
    Some(bind)
}

/// The sections for the model, whose addresses and servers are judged. A section without a line for this process shares nothing.
pub(crate) fn finish(drafts: Vec<PeersDraft>, context: &mut Context<'_>) -> Vec<Arc<PeersSection>> {
    let mut sections = Vec::new();
    for PeersDraft { mut section, draft, listening, .. } in drafts {
        let (name, local) = (&section.name, &section.local);
        if !section.peers.iter().any(|peer| peer.name == *local) {
            if !section.disabled {
                let message = format!("Removing incomplete section 'peers {name}' (no peer named '{local}').");
                context.report.add(late(&draft.head, Severity::Warning, "no-local-peer", 1, message));
            }
            continue;
        }
        if listening.is_none() && !section.disabled {
            let message = format!("peers '{name}': no address to listen at: other peers cannot connect to '{local}'.");
            let mut diagnostic = late(&draft.head, Severity::Warning, "no-listener", 1, message);
            diagnostic.hint = Some("add a 'bind' line, or an address to the line of the local peer".into());
            context.report.add(diagnostic);
        }
        section.proxy = draft.proxy.share();
        sections.push(Arc::new(section));
    }
    sections
}
