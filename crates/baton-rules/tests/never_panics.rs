//! Whatever an operator writes and a client sends, nothing panics.

mod common;

use baton_model::{Role, Rule, Ruleset, Source};
use baton_rules::{Expr, Format, RuleCursor, RulePosition, compile, keywords};
use common::{GET, OK, files, proxy, with_context};
use proptest::prelude::*;

const SETS: [Ruleset; 23] = [
    Ruleset::Acl,
    Ruleset::HttpRequest,
    Ruleset::HttpResponse,
    Ruleset::HttpAfterResponse,
    Ruleset::TcpConnection,
    Ruleset::TcpSession,
    Ruleset::TcpContent,
    Ruleset::TcpResponse,
    Ruleset::UseBackend,
    Ruleset::UseServer,
    Ruleset::Redirect,
    Ruleset::MonitorFail,
    Ruleset::ForcePersist,
    Ruleset::IgnorePersist,
    Ruleset::Stick,
    Ruleset::StatsRequest,
    Ruleset::StatsAdmin,
    Ruleset::Capture,
    Ruleset::LogFormat,
    Ruleset::LogFormatSd,
    Ruleset::ErrorLogFormat,
    Ruleset::UniqueIdFormat,
    Ruleset::Forwarded,
];

/// A word: a known one, a piece of syntax, or anything.
fn word() -> impl Strategy<Value = String> {
    let known: Vec<String> = keywords().map(|keyword| keyword.name.to_owned()).collect();
    let syntax = [
        "if",
        "unless",
        "or",
        "!",
        "{",
        "}",
        "{ }",
        "-m",
        "-f",
        "-i",
        "--",
        "beg",
        "reg",
        "int",
        "ip",
        "bool",
        "TRUE",
        "paths",
        "page",
        "eq",
        "lt",
        "1:5",
        ":",
        "-",
        "1.2.3.4/8",
        "::1",
        "%[path]",
        "%[hdr(a,-1),lower]",
        "%{+Q}o",
        "%[",
        "%{",
        "%",
        "status",
        "string",
        "lf-string",
        "hdr",
        "content-type",
        "deny_status",
        "404",
        "set-var(txn.a)",
        "unset-var(req.a)",
        "location",
        "prefix",
        "scheme",
        "code",
        "301",
        "(.*)",
        "\\1\\9\\",
        "",
        "hdr(x)",
        "var(txn.a)",
        "req.body",
        "a",
        "/a",
    ];
    prop_oneof![
        prop::sample::select(known),
        prop::sample::select(syntax.to_vec()).prop_map(str::to_owned),
        "\\PC{0,12}",
        "[a-z_.]{1,8}(\\([a-z0-9,\"'\\\\]{0,8}\\)){0,1}(,[a-z0-9]{1,6}){0,2}",
    ]
}

/// A converter chain with arguments from a small stock, so that many are valid.
fn chain() -> impl Strategy<Value = String> {
    let fetches = [
        "path",
        "url",
        "hdr(x-a)",
        "hdr(x-a,-2)",
        "req.body",
        "src",
        "method",
        "int(-7)",
        "str(a:b/c?d=%41+)",
        "bin(00ff)",
        "rand(-5)",
        "date(9223372036854775807,us)",
        "cook",
        "url_param",
        "query",
        "base",
        "req.hdr_names",
    ];
    let converters: Vec<String> =
        keywords().filter(|keyword| keyword.kind == "converter").map(|it| it.name.to_owned()).collect();
    let args = [
        "",
        "()",
        "(1)",
        "(0)",
        "(-1)",
        "(2,/)",
        "(-3,/,0)",
        "(1,/:?,-9223372036854775808)",
        "(a,b)",
        "(24)",
        "(x*,y,g)",
        "(9223372036854775807)",
        "(-9223372036854775808)",
        "(\"\",\"\")",
        "(txn.a)",
    ];
    let step = (prop::sample::select(converters), prop::sample::select(args.to_vec()))
        .prop_map(|(name, args)| format!(",{name}{args}"));
    (prop::sample::select(fetches.to_vec()), prop::collection::vec(step, 0..4))
        .prop_map(|(fetch, steps)| fetch.to_owned() + &steps.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiling_random_words_and_running_what_compiles(
        rules in prop::collection::vec((0..SETS.len(), prop::collection::vec(word(), 0..8)), 1..4),
    ) {
        let mut px = proxy(Role::Listen, "");
        let mut lengths = Vec::new();
        for (set, words) in rules {
            lengths.push(words.len());
            let ruleset = SETS[set];
            px.rules.entry(ruleset).or_default().push(Rule { ruleset, words, source: Source::default() });
        }
        let longest = lengths.into_iter().max().unwrap_or(0);
        match compile(&px, &files()) {
            Err(problems) => prop_assert!(!problems.is_empty() && problems.iter().all(|problem| problem.word <= longest)),
            Ok(rules) => with_context(GET, Some(OK), |cx| {
                rules.tcp_connection(cx);
                rules.tcp_content(cx, &mut RuleCursor::default());
                rules.http_request(cx, &mut RuleCursor::default());
                rules.redirect(cx);
                rules.backend(cx);
                rules.server(cx, &mut |_| false);
                rules.http_response(cx, &mut RuleCursor::default());
                rules.http_after_response(cx);
                rules.tcp_response(cx);
                rules.monitor_fail(cx);
            }),
        }
    }

    #[test]
    fn expressions_on_random_requests(text in chain(), path in "[ -~]{0,20}", value in "[ -~]{0,30}") {
        let path: String = path.chars().filter(|char| !"\"<> \\^`{|}#".contains(*char)).collect();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: h\r\nX-A: {value}\r\nCookie: {value}\r\n\r\n");
        if let Ok(expr) = Expr::compile(&text, RulePosition::BackendRequest, &files()) {
            with_context(&request, None, |cx| {
                let _ = expr.eval(cx).map(|sample| sample.into_text().len());
            });
        }
    }

    #[test]
    fn random_formats(text in "(%|\\{|\\}|\\[|\\]|\\(|\\)|\\+|Q|o|,|path|ci|\"|'|\\\\|\\PC){0,12}") {
        if let Ok(format) = Format::compile(&text, RulePosition::FrontendRequest, &files()) {
            with_context(GET, None, |cx| format.write(cx, &mut Vec::new()));
        }
    }
}
