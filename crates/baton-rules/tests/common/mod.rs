//! One helper for all tests: rules as text and a request as bytes give one line of text.
#![allow(dead_code, reason = "each test file uses a part")]

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use baton_http::{Limits, Method, Parsed, RequestHead, RequestMut, ResponseHead, ResponseMut, ResponseTo};
use baton_model::{DataKind, DataType, KeyType, Mode, Proxy, Role, Rule, Ruleset, Source, StickTable, Stored};
use baton_rules::{
    BackendFigure, Body, ConnectionFigure, Context, Endpoint, Expr, Figure, Files, Listener, LiveState,
    ProcessVariables, ProxyName, ProxyRules, Redirect, Request, Response, ResponseSource, RuleCursor, RuleDiagnostic,
    RulePosition, RuleResponse, RuleSettings, ServerFigure, Side, TcpContent, TcpFigure, TrackedCounters,
    TrackedScopes, VariableScopes, Variables, Verdict, compile,
};
use baton_tables::{Now, Table};

/// The request most tests use.
pub const GET: &str = "GET /a/b?x=1&y=2;z=3&x=4 HTTP/1.1\r\nHost: ex.com:80\r\nX-A: one, two\r\nX-A: three\r\n\
     X-Q: \"a,b\", c\r\nX-E: \r\nX-Ip: 10.0.0.1, 10.0.0.2\r\nX-I: [::1]:80\r\nX-P: 1.2.3.4:80\r\nX-N: 12abc\r\n\
     Cookie: a=1; b=2\r\nCookie: a=3\r\nUser-Agent: m (a, b)\r\n\r\n";
/// A response.
pub const OK: &str = "HTTP/1.1 200 OK\r\nX-One: a, b\r\nx-two: v\r\nX-One: c\r\nContent-Length: 2\r\n\r\nhi";

/// Files by name.
#[derive(Default)]
pub struct Memory(pub HashMap<&'static str, &'static str>);

impl Files for Memory {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.get(path).map(|text| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn environment(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/root".to_owned())
    }

    fn table(&self, name: &str) -> Option<Arc<StickTable>> {
        TABLES.get(name).map(|table| Arc::new(table.settings()))
    }

    fn hostname(&self) -> String {
        "vm".to_owned()
    }
}

pub fn files() -> Memory {
    Memory(HashMap::from([
        ("paths", "# a comment\n/a/b\n\n/c\n"),
        ("nets", "10.0.0.0/8\n"),
        ("page", "line 1\nline 2\n"),
    ]))
}

/// Splits a line as the configuration does: blanks, quotes, backslashes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (char, quote) {
            (' ', None) => words.extend(word.take()),
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (_, Some(open)) if char == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// A proxy with these lines; several are separated by line feeds or ` ; `.
pub fn proxy(role: Role, lines: &str) -> Proxy {
    let mut proxy = Proxy::new("px", role);
    proxy.mode = Mode::Http;
    proxy.id = 7;
    for (number, line) in lines.split('\n').flat_map(|line| line.split(" ; ")).enumerate() {
        let mut words = words(line.trim());
        if words.is_empty() {
            continue;
        }
        let keyword = words.remove(0);
        let second = words.first().cloned().unwrap_or_default();
        let (ruleset, drop) = match (keyword.as_str(), second.as_str()) {
            ("acl", _) => (Ruleset::Acl, 0),
            ("http-request", _) => (Ruleset::HttpRequest, 0),
            ("http-response", _) => (Ruleset::HttpResponse, 0),
            ("http-after-response", _) => (Ruleset::HttpAfterResponse, 0),
            ("tcp-request", "connection") => (Ruleset::TcpConnection, 1),
            ("tcp-request", "session") => (Ruleset::TcpSession, 1),
            ("tcp-request", "content") => (Ruleset::TcpContent, 1),
            ("tcp-request", _) => (Ruleset::TcpContent, 0),
            ("use_backend", _) => (Ruleset::UseBackend, 0),
            ("use-server", _) => (Ruleset::UseServer, 0),
            ("redirect", _) => (Ruleset::Redirect, 0),
            ("http-error", _) => (Ruleset::HttpError, 0),
            ("monitor", _) => (Ruleset::MonitorFail, 1),
            ("force-persist", _) => (Ruleset::ForcePersist, 0),
            ("ignore-persist", _) => (Ruleset::IgnorePersist, 0),
            ("stick", _) => (Ruleset::Stick, 0),
            ("option", "forwarded") => (Ruleset::Forwarded, 1),
            ("stats", "admin") => (Ruleset::StatsAdmin, 1),
            ("stats", "http-request") => (Ruleset::StatsRequest, 1),
            _ => panic!("a test's keyword: {keyword}"),
        };
        words.drain(..drop);
        let source = Source { file: "t.cfg".into(), line: number as u32 + 1 };
        proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words, source });
    }
    proxy
}

/// Calls `with` with a context around the request and, if given, the response.
pub fn with_context<T>(request: &str, response: Option<&str>, with: impl FnOnce(&mut Context<'_>) -> T) -> T {
    with_bytes(request.as_bytes(), response, None, None, with)
}

/// Calls `with` with a context around these messages, and bytes that came in `mode tcp` from the client and from the server.
pub fn with_bytes<T>(
    buf: &[u8],
    response: Option<&str>,
    content: Option<TcpContent<'_>>,
    answer: Option<&[u8]>,
    with: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let limits = Limits::default();
    let mut head = RequestHead::new();
    let parsed = head.parse(buf, &limits).expect("a test's request is valid");
    let Parsed::Complete(length) = parsed else { panic!("a test's request is complete") };
    let mut response_head = ResponseHead::new();
    let to = ResponseTo { method: Method::Get, upgrade: false, websocket: false };
    let response_buf = response.unwrap_or_default().as_bytes();
    if response.is_some() {
        response_head.parse(response_buf, to, &limits).expect("a test's response is valid");
    }
    let random = Cell::new(0x8000_0000u32);
    let random = || random.replace(random.get().wrapping_add(1));
    let process = ProcessVariables::default();
    let (mut session, mut exchange) = (Variables::new(), Variables::new());
    let changed_destination = Cell::new(None);
    let (mut tracked_by_session, mut tracked_by_exchange) = (TrackedCounters::default(), TrackedCounters::default());
    let mut cx = Context {
        now: UNIX_EPOCH + Duration::from_millis(1_795_234_040_719),
        client: Some("192.0.2.7:1234".parse().expect("an address")),
        destination: &|| changed_destination.get().or_else(|| "[2001:db8::1]:80".parse().ok()),
        changed_destination: &changed_destination,
        client_tls: None,
        server_tls: None,
        frontend: ProxyName { name: "fe", id: 3 },
        backend: Some(ProxyName { name: "be", id: 4 }),
        server: Some("s1"),
        listener: Listener { name: Some("public"), id: 2 },
        live: &FakeState,
        content,
        answer,
        last_chance: false,
        undecided: Cell::new(false),
        no_retry: false,
        failed_rewrites: 0,
        first_request: true,
        request: Some(Request {
            head: RequestMut::new(&mut head, buf),
            body: Body::Plain(&buf[length..]),
            complete: true,
        }),
        response: response.map(|_| {
            let body = &response_buf[response_head.received_len()..];
            Response { head: ResponseMut::new(&mut response_head, response_buf), body: Body::Plain(body) }
        }),
        variables: VariableScopes::new(&process, &mut session, Some(&mut exchange)),
        tracked: TrackedScopes::new(&mut tracked_by_session, Some(&mut tracked_by_exchange)),
        own_status: None,
        settings: &mut RuleSettings::default(),
        log_level: None,
        last_rule: None,
        line: None,
        response_version: None,
        captures: None,
        unique_id: None,
        log: &baton_rules::NoLog,
        matches_hash: &baton_rules::passwords::matches,
        random: &random,
        scratch: &mut Vec::new(),
    };
    with(&mut cx)
}

/// Stick tables of that process: `ips` and `px` have addresses as keys, `names` text.
static TABLES: LazyLock<HashMap<&str, Arc<Table>>> = LazyLock::new(|| {
    let stored = |data: DataType| {
        let period = matches!(data.kind(), DataKind::Rate | DataKind::ArrayOfRates).then(|| Duration::from_secs(10));
        let elements = if matches!(data.kind(), DataKind::Array | DataKind::ArrayOfRates) { 2 } else { 1 };
        Stored { data, elements, period }
    };
    let table = |name: &'static str, key, data: &[DataType]| {
        let mut settings = StickTable::new(name, key, 100);
        settings.expire = Some(Duration::from_secs(60));
        settings.stored = data.iter().copied().map(stored).collect();
        (name, Table::new(&settings).expect("there is memory"))
    };
    use DataType::*;
    let singles: Vec<DataType> =
        DataType::ALL.into_iter().filter(|data| !matches!(data, Gpt | Gpc | GpcRate)).collect();
    HashMap::from([
        table("ips", KeyType::Ip, &singles),
        table("px", KeyType::Ip, &[Gpc0]),
        table("names", KeyType::String { length: 20 }, &[Gpt, Gpc, GpcRate]),
    ])
});

/// A process with a backend `be` of two servers; everything else is not there.
struct FakeState;

impl LiveState for FakeState {
    fn figure(&self, figure: Figure<'_>) -> Option<i64> {
        match figure {
            Figure::Backend("be" | "px", BackendFigure::UsableServers) => Some(3),
            Figure::Backend("be", BackendFigure::Queued) => Some(7),
            Figure::Server("be", "s1", ServerFigure::IsUp) => Some(1),
            Figure::Tcp(Side::Client, TcpFigure::Rtt) => Some(2500),
            Figure::Connection(_, ConnectionFigure::Error) => Some(0),
            _ => None,
        }
    }

    fn address(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        (endpoint == Endpoint::ClientSource).then(|| SocketAddr::from(([192, 0, 2, 8], 99)))
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback()
    }

    fn proxy_header_value(&self, kind: u8) -> Option<&[u8]> {
        (kind == 2).then_some(b"host")
    }

    fn default_backend(&self) -> Option<&str> {
        Some("be")
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        TABLES.get(name).cloned()
    }

    fn table_now(&self) -> Now {
        Now::from_millis(1_000_000)
    }
}

/// A stick table of that process.
pub fn table(name: &str) -> Arc<Table> {
    TABLES[name].clone()
}

pub fn rules(lines: &str) -> ProxyRules {
    compile(&proxy(Role::Listen, lines), &files()).unwrap_or_else(|problems| panic!("{lines}: {problems:?}"))
}

/// What the request rules decide; for `Continue` the head that is forwarded.
pub fn request(lines: &str, bytes: &str) -> String {
    let rules = rules(lines);
    with_context(bytes, None, |cx| {
        let verdict = rules.http_request(cx, &mut RuleCursor::default());
        match verdict {
            Verdict::Continue | Verdict::Allow => match rules.redirect(cx) {
                Some(redirect) => show(Verdict::Redirect(redirect)),
                None => {
                    let request = cx.request.as_ref().expect("there is a request");
                    let mut out = Vec::new();
                    request.head.view().write(&mut out);
                    String::from_utf8_lossy(&out).into_owned()
                }
            },
            other => show(other),
        }
    })
}

/// What the response rules decide; for `Continue` the head that is forwarded.
pub fn response(lines: &str, request_bytes: &str, bytes: &str) -> String {
    let rules = rules(lines);
    with_context(request_bytes, Some(bytes), |cx| {
        rules.http_request(cx, &mut RuleCursor::default());
        let mut verdict = rules.http_response(cx, &mut RuleCursor::default());
        if verdict == Verdict::Continue {
            verdict = rules.http_after_response(cx);
        }
        match verdict {
            Verdict::Continue | Verdict::Allow => {
                let response = cx.response.as_ref().expect("there is a response");
                let mut out = Vec::new();
                response.head.view().write(&mut out);
                String::from_utf8_lossy(&out).into_owned()
            }
            other => show(other),
        }
    })
}

/// A verdict as text; own answers with their bytes.
pub fn show(verdict: Verdict) -> String {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let content = |response: RuleResponse| match response.source {
        ResponseSource::ErrorPage => response.status.to_string(),
        ResponseSource::File(content) => text(content.to_vec()),
        ResponseSource::Composed(reply) => {
            let mut out = Vec::new();
            reply.write_head(false, &mut out);
            out.extend_from_slice(&reply.body);
            text(out)
        }
    };
    let denial = |word: &str, response: RuleResponse| format!("{word} {}", content(response));
    match verdict {
        Verdict::Continue => "continue".to_owned(),
        Verdict::Allow => "allow".to_owned(),
        Verdict::Reject => "reject".to_owned(),
        Verdict::Close => "close".to_owned(),
        Verdict::SilentDrop(ttl) => format!("silent-drop {ttl:?}"),
        Verdict::SwitchMode => "switch-mode".to_owned(),
        Verdict::Wait(_) => "wait".to_owned(),
        Verdict::Failed => "failed".to_owned(),
        Verdict::Invalid => "invalid".to_owned(),
        Verdict::Deny(it) => denial("deny", it),
        Verdict::Tarpit(it) => denial("tarpit", it),
        Verdict::Return(it) => content(it),
        Verdict::Auth(realm) => format!("auth {realm:?}"),
        Verdict::UseService(service) => format!("use-service {}", service.word()),
        Verdict::Redirect(it) => {
            let it: Redirect = it;
            let mut out = Vec::new();
            it.write_head(false, &mut out);
            text(out)
        }
    }
}

/// An expression's value as text, or `none`.
pub fn eval(text: &str, bytes: &str) -> String {
    let place = if text.starts_with("res.") || text.starts_with("status") || text.starts_with("shdr") {
        RulePosition::Response
    } else {
        RulePosition::BackendRequest
    };
    let expr = Expr::compile(text, place, &files()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    with_context(bytes, Some(OK), |cx| match expr.eval(cx) {
        Some(sample) => String::from_utf8_lossy(&sample.into_text()).into_owned(),
        None => "none".to_owned(),
    })
}

/// The problems of rules, each as `SET:WORD: message (hint)`.
pub fn problems(role: Role, lines: &str) -> String {
    match compile(&proxy(role, lines), &files()) {
        Ok(_) => "none".to_owned(),
        Err(problems) => problems.iter().map(show_problem).collect::<Vec<_>>().join("\n"),
    }
}

pub fn show_problem(problem: &RuleDiagnostic) -> String {
    let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}@{}: {}{hint}", problem.source.line, problem.word, problem.message)
}
