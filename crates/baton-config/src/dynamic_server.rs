//! `add server` of the runtime API: the words behind the name, read by the table of `server` lines. Which of these words are accepted is
//! HAProxy's list (management guide, 9.3 "add server"); `default-server` does not count, and names are not resolved.

use std::sync::Arc;

use baton_model::{Mode, Model, NO_LINE, Proxy, Role, Server};
use rustc_hash::FxHashMap;

use crate::diagnostic::Severity;
use crate::environment::Environment;
use crate::keywords::check;
use crate::keywords::server::{self, tls};
use crate::keywords::tls::BaseDirectories;
use crate::lower::{Call, Context, Draft, InitAddr, Kind, Prefix, ServerDraft, judge_server};
use crate::syntax::Line;
use crate::{Options, words};

/// What stands in place of a file where a server that was added says where it comes from.
const ADDED: &str = "add server";

/// The words that are accepted, as far as Baton knows them.
const ACCEPTED: &[&str] = &[
    "addr",
    "agent-addr",
    "agent-check",
    "agent-inter",
    "agent-port",
    "agent-send",
    "allow-0rtt",
    "alpn",
    "backup",
    "ca-file",
    "check",
    "check-alpn",
    "check-proto",
    "check-send-proxy",
    "check-sni",
    "check-ssl",
    "check-via-socks4",
    "ciphers",
    "ciphersuites",
    "crl-file",
    "crt",
    "disabled",
    "downinter",
    "enabled",
    "error-limit",
    "fall",
    "fastinter",
    "force-sslv3",
    "force-tlsv10",
    "force-tlsv11",
    "force-tlsv12",
    "force-tlsv13",
    "id",
    "inter",
    "maxconn",
    "maxqueue",
    "minconn",
    "no-backup",
    "no-send-proxy",
    "no-send-proxy-v2",
    "no-send-proxy-v2-ssl",
    "no-send-proxy-v2-ssl-cn",
    "no-ssl-reuse",
    "no-sslv3",
    "no-tfo",
    "no-tls-tickets",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "npn",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "proto",
    "proxy-v2-options",
    "rise",
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2-ssl",
    "send-proxy-v2-ssl-cn",
    "slowstart",
    "sni",
    "source",
    "ssl",
    "ssl-max-ver",
    "ssl-min-ver",
    "tfo",
    "tls-tickets",
    "track",
    "usesrc",
    "verify",
    "verifyhost",
    "weight",
    "ws",
];

/// Whether a word may stand in `add server`.
pub(crate) fn is_accepted(word: &str) -> bool {
    ACCEPTED.binary_search(&word).is_ok()
}

/// Whether a server was made by [`DynamicServers`].
pub fn is_dynamic(server: &Server) -> bool {
    &*server.line.file == ADDED
}

/// Whether a backend takes servers at run time: its algorithm is a dynamic one.
pub fn takes_dynamic_servers(backend: &Proxy) -> bool {
    use baton_model::Algorithm::{Hash, Hdr, Source, StaticRr, Uri, UrlParam};
    let is_hash = matches!(backend.balance.algorithm, Source | Uri(_) | UrlParam { .. } | Hdr { .. } | Hash(_));
    backend.balance.algorithm != StaticRr && (!is_hash || backend.balance.hash.consistent)
}

/// Words as they are written in a configuration, so that they are read as the same words again.
pub fn quoted<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let is_plain =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\#".contains(&byte));
    let one = |word: &'w str| match word {
        word if is_plain(word) => word.into(),
        word if word.contains(char::is_control) => escaped(word),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A word with characters that end a line or cannot be seen: a backslash stands for whatever is not plain.
fn escaped(word: &str) -> String {
    let one = |byte: u8| match byte {
        b'\n' => r"\n".to_owned(),
        b'\r' => r"\r".to_owned(),
        b'\t' => r"\t".to_owned(),
        plain if plain.is_ascii_alphanumeric() || b"-_.:/,=".contains(&plain) => char::from(plain).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    word.bytes().map(one).collect()
}

/// The numeric ids of a backend's servers. They stay right over servers that come and go, so that nobody has to count them again.
#[derive(Debug)]
pub struct ServerIds {
    /// Who has each of them.
    owners: FxHashMap<u32, Arc<str>>,
    /// Ids below this one are taken.
    next: u32,
}

impl ServerIds {
    /// Of the servers that a backend has.
    pub fn of(backend: &Proxy) -> ServerIds {
        let id = |server: &Arc<Server>| (server.id, Arc::clone(&server.name));
        ServerIds { owners: backend.servers.iter().map(id).collect(), next: 1 }
    }

    /// The number that a server asks for, or the next free one.
    fn free(&mut self, wanted: Option<u32>) -> Result<u32, String> {
        if let Some(id) = wanted {
            let other = self.owners.get(&id);
            let taken = other.map(|name| format!("'id' : custom id {id} already used by server '{name}'."));
            return taken.map_or(Ok(id), Err);
        }
        while self.owners.contains_key(&self.next) {
            self.next += 1;
        }
        Ok(self.next)
    }

    /// A server has come.
    fn take(&mut self, server: &Server) {
        self.owners.insert(server.id, Arc::clone(&server.name));
    }

    /// A server is gone.
    pub fn give_back(&mut self, server: &Server) {
        // Of two lines with the same name both may be gone.
        if self.owners.get(&server.id).is_some_and(|name| *name == server.name) {
            self.owners.remove(&server.id);
            self.next = self.next.min(server.id).max(1);
        }
    }
}

/// Reads servers that are added to a backend, one after the other.
pub struct DynamicServers<'m> {
    model: &'m Model,
    backend: &'m Proxy,
    env: &'m dyn Environment,
    ids: &'m mut ServerIds,
}

impl<'m> DynamicServers<'m> {
    /// For a backend with the servers that it has, whose ids are these.
    pub fn new(
        model: &'m Model,
        backend: &'m Proxy,
        env: &'m dyn Environment,
        ids: &'m mut ServerIds,
    ) -> DynamicServers<'m> {
        DynamicServers { model, backend, env, ids }
    }

    /// A server by what `add server` says behind its name, as [`quoted`] writes it. It begins in maintenance, and what `check` asks for
    /// is not done until it is enabled.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence. No id is taken then.
    pub fn read(&mut self, name: &str, text: &str) -> Result<Server, String> {
        let draft = read(self.model, self.backend, name, text, self.env)?;
        track(self.model, self.backend, &draft.server)?;
        let id = self.ids.free(draft.id)?;
        let mut server = Server::clone(&draft.server);
        (server.id, server.disabled) = (id, true);
        self.ids.take(&server);
        Ok(server)
    }
}

/// Whether a server of that backend that reads so asks for health checks.
pub fn is_checked_by(model: &Model, backend: &Proxy, name: &str, text: &str, env: &dyn Environment) -> bool {
    read(model, backend, name, text, env).is_ok_and(|draft| draft.server.check.enabled)
}

fn read(model: &Model, backend: &Proxy, name: &str, text: &str, env: &dyn Environment) -> Result<ServerDraft, String> {
    let line = Line::cut(Arc::from(ADDED), format!("server {name} {text}"))?;
    let options = Options::default();
    let variables = Default::default();
    let mut context = Context::new(env, &options, &variables);
    context.tls.bases = BaseDirectories::of(&model.global.tls);
    let kind = if backend.role == Role::Listen { Kind::Listen } else { Kind::Backend };
    let mut draft = Draft::of_backend(kind, backend, line.clone());
    draft.default_server.is_dynamic = true;
    draft.default_server.init_addr = Some(vec![InitAddr::None]);
    server::server(&mut draft, &mut Call::new(&line, 1, Prefix::None, "server", &mut context));
    let server = draft.servers.pop().map(|mut server| {
        let mut around = tls::Surroundings {
            global: &model.global.tls,
            backend: &backend.name,
            http: backend.mode == Mode::Http,
            check_protos: check::protos(&backend.check.kind),
            steps: backend.check.kind.steps(),
            // What they hold is known to who has read them.
            files: &mut tls::JudgedFiles::unread(),
            last: None,
        };
        judge_server(&mut server, kind.label(), &mut around, &mut context);
        server
    });
    let about = format!("'server {}/{name}' : ", backend.name);
    let alert = context.report.sorted(&[]).into_iter().find(|found| found.severity == Severity::Alert);
    if let Some(alert) = alert {
        let message = alert.message.strip_prefix(&about).map(str::to_owned).unwrap_or(alert.message);
        let near = alert.hint.as_deref().and_then(|hint| hint.strip_prefix("did you mean ")?.strip_suffix('?'));
        return Err(match near {
            // As HAProxy asks.
            Some(near) if message.starts_with("unknown keyword") => {
                format!("{}; did you mean {near} maybe ?", message.trim_end_matches('.'))
            }
            _ => message,
        });
    }
    server.filter(|_| text != NO_LINE).ok_or_else(|| format!("invalid address: '{text}'"))
}

/// `track`: what is tracked is there, is checked itself, and is in the configuration.
fn track(model: &Model, backend: &Proxy, server: &Server) -> Result<(), String> {
    let Some(track) = &server.check.track else { return Ok(()) };
    let (proxy, name) = track.split_once('/').unwrap_or((&backend.name, track));
    let found = if proxy == &*backend.name { Some(backend) } else { model.backend(proxy).map(|proxy| &**proxy) };
    let Some(found) = found else { return Err(format!("unable to find required proxy '{proxy}' for tracking.")) };
    let Some(tracked) = found.servers.iter().find(|server| &*server.name == name) else {
        return Err(format!("unable to find required server '{name}' for tracking."));
    };
    let what = format!("unable to use {proxy}/{name} for tracking as it");
    match tracked {
        tracked if is_dynamic(tracked) => Err(format!("{what} is a dynamic server.")),
        tracked if tracked.check.enabled || tracked.agent().is_some() || tracked.check.track.is_some() => Ok(()),
        _ => Err(format!("{what} does not have any check nor agent enabled.")),
    }
}

impl Line {
    /// A line of its own, with its words.
    pub(crate) fn cut(file: Arc<str>, text: String) -> Result<Line, String> {
        let cut = words::split(text.as_bytes(), &|_| None).map_err(|fault| fault.message)?;
        let mut line = Line::alone(file, 0, &text);
        line.words = cut.into();
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FixedEnvironment, load};

    const CONFIG: &str = "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n\
        frontend f\n bind 127.0.0.1:80\n default_backend b\n\
        backend b\n default-server weight 7\n server s1 127.0.0.1:1\n server s2 127.0.0.1:2 check\n";

    fn read(text: &str) -> Result<Server, String> {
        let env = FixedEnvironment::with_file("a.cfg", CONFIG);
        let loaded = load(&Options::file("a.cfg"), &env);
        let model = loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let backend = model.backend("b").unwrap().clone();
        DynamicServers::new(&model, &backend, &env, &mut ServerIds::of(&backend)).read("n1", text)
    }

    #[test]
    fn an_id_that_was_given_back_is_the_next_one() {
        let env = FixedEnvironment::with_file("a.cfg", CONFIG);
        let model = load(&Options::file("a.cfg"), &env).model.unwrap();
        let backend = model.backend("b").unwrap();
        let mut ids = ServerIds::of(backend);
        let read = |ids: &mut ServerIds, name: &str, text: &str| {
            DynamicServers::new(&model, backend, &env, ids).read(name, text)
        };
        let added: Vec<Server> = ["n1", "n2"].map(|name| read(&mut ids, name, "127.0.0.1:9").unwrap()).into();
        assert_eq!([added[0].id, added[1].id], [3, 4]);
        assert!(read(&mut ids, "n3", "127.0.0.1:9 foo").is_err(), "it takes none");
        ids.give_back(&added[0]);
        // Not its own.
        ids.give_back(&Server { id: 4, ..added[0].clone() });
        let next = |ids: &mut ServerIds| read(ids, "n4", "127.0.0.1:9").unwrap().id;
        assert_eq!([next(&mut ids), next(&mut ids)], [3, 5]);
        let taken = "'id' : custom id 4 already used by server 'n2'.";
        assert_eq!(read(&mut ids, "n5", "127.0.0.1:9 id 4").map(|_| ()), Err(taken.into()));
    }

    #[test]
    fn the_list_is_in_order_and_names_words_of_the_table() {
        assert!(ACCEPTED.is_sorted());
        let rows: Vec<&str> = crate::keywords::server_parameters().map(|(name, ..)| name).collect();
        let unknown: Vec<&&str> = ACCEPTED.iter().filter(|word| !rows.contains(word)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn a_server_is_read_without_default_server_and_begins_in_maintenance() {
        let server = read("127.0.0.1:9 check inter 100 maxconn 3").unwrap();
        assert_eq!((server.weight, server.maxconn, server.id, server.disabled), (1, 3, 3, true));
        assert!(server.check.enabled && is_dynamic(&server));
        assert!(read("nowhere.invalid:80").unwrap().address.is_unresolved());
        assert_eq!(read("127.0.0.1:9 id 50").unwrap().id, 50);
        assert_eq!(read("127.0.0.1:9 track s2").unwrap().check.track.as_deref(), Some("s2"));
    }

    #[test]
    fn what_is_refused_is_said_as_haproxy_does() {
        let check = |text: &str, expect: &str| assert_eq!(read(text).map(|_| ()), Err(expect.to_owned()), "{text}");
        check("-", "invalid address: '-'");
        check("", "'server' expects <name> and <addr>[:<port>] as arguments.");
        check("127.0.0.1:2 cookie a", "'cookie' option is not accepted for dynamic server");
        check("127.0.0.1:2 init-addr last", "'init-addr' option is not accepted for dynamic server");
        check("127.0.0.1:2 foo", "unknown keyword 'foo'.");
        check("127.0.0.1:2 chekc", "unknown keyword 'chekc'; did you mean 'check' maybe ?");
        check("127.0.0.1:2 id 1", "'id' : custom id 1 already used by server 's1'.");
        check("127.0.0.1:2 track no", "unable to find required server 'no' for tracking.");
        check("127.0.0.1:2 track no/no", "unable to find required proxy 'no' for tracking.");
        check(
            "127.0.0.1:2 track s1",
            "unable to use b/s1 for tracking as it does not have any check nor agent enabled.",
        );
        check("127.0.0.1:2 check track s2", "unable to enable checks and tracking at the same time!");
    }

    #[test]
    fn words_are_read_again_as_they_were() {
        let words = ["127.0.0.1:1", "sni", "str(a b)", "it's", "", "a#b", r"c\d"];
        let line = Line::cut("f".into(), format!("server n {}", quoted(words))).unwrap();
        assert_eq!(line.texts().skip(2).collect::<Vec<_>>(), words);
    }
}
