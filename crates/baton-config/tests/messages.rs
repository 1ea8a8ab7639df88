//! What is said about a fault, and which words are marked: each case is a text and the whole rendering.

use baton_config::missing::MissingFeature;
use baton_config::{FixedEnvironment, Options, load};

/// All diagnostics, rendered, without the constant parts of their heads.
fn shown(text: &str, options: &Options) -> String {
    let loaded = load(options, &FixedEnvironment::with_file("a.cfg", text));
    let all: String = loaded.diagnostics.iter().map(|diagnostic| diagnostic.render(1)).collect();
    ["[ALERT]", "[WARNING]", "[NOTICE]", "[DIAG]"]
        .into_iter()
        .fold(all, |all, label| all.replace(&format!("{label:<10} (1) : config :"), label))
}

fn check(text: &str, expect: &str) {
    assert_eq!(shown(text, &Options::file("a.cfg")), expect, "{text}");
}

#[test]
fn an_unknown_keyword_names_the_nearest() {
    check(
        "backend b\n    blance roundrobin\n",
        "[ALERT] parsing [a.cfg:2] : unknown keyword 'blance' in 'backend' section; did you mean 'balance' maybe ?\n   \
         |     blance roundrobin\n   |     ^^^^^^\n",
    );
    check(
        "backend b\n nbthread 4\n",
        "[ALERT] parsing [a.cfg:2] : unknown keyword 'nbthread' in 'backend' section\n   |  nbthread 4\n   |  ^^^^^^^^\n   \
         | help: 'nbthread' belongs in the 'global' section\n",
    );
    check(
        "backend b\n option httplg\n",
        "[ALERT] parsing [a.cfg:2] : unknown option 'httplg'; did you mean 'httplog' maybe ?\n   |  option httplg\n   \
         |         ^^^^^^\n",
    );
    check(
        "backend b\n timeout sever 3s\n",
        "[ALERT] parsing [a.cfg:2] : 'timeout' only supports 'check', 'client', 'client-fin', 'connect', \
         'http-keep-alive', 'http-request', 'queue', 'server', 'server-fin', 'tarpit', 'tunnel' (got 'sever')\n   |  \
         timeout sever 3s\n   |          ^^^^^\n   | help: did you mean 'timeout server'?\n",
    );
    check(
        "backend b\n server s 127.0.0.1:1 chek\n",
        "[ALERT] parsing [a.cfg:2] : 'server b/s' : unknown keyword 'chek'; did you mean 'check' maybe ?\n   |  server s \
         127.0.0.1:1 chek\n   |                       ^^^^\n",
    );
}

#[test]
fn what_haproxy_knows_and_baton_does_not_is_said_so() {
    let transparent = |line: u32| {
        format!(
            "[ALERT] parsing [a.cfg:{line}] : backend 'b' : 'option transparent' is not supported yet\n   |  option \
             transparent\n   |  ^^^^^^\n   | help: 'server any *' connects to the client's original destination\n"
        )
    };
    let timeouts = "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    check("backend b\n option transparent\n", &transparent(2));
    check("defaults\n option transparent\nbackend b\n", &transparent(2));
    check("defaults\n option transparent\nbackend b\n no option transparent\n", "");
    check(
        &format!("{timeouts}backend b\n server s 127.0.0.1:1 tfo\n"),
        "[WARNING] parsing [a.cfg:6] : 'server b/s' : server has tfo activated, the backend should be configured with at least \
         'conn-failure', 'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on \
         failure.\n   |  server s 127.0.0.1:1 tfo\n   |  ^^^^^^\n",
    );
    let retry = "retry-on conn-failure empty-response response-timeout";
    check(&format!("{timeouts}backend b\n {retry}\n server s 127.0.0.1:1 tfo\n"), "");
}

/// Several lines that are refused for what Baton lacks, and what the last line says of them.
#[test]
fn missing_features_are_summed_up() {
    let text = "global\n lua-load a.lua\nbackend b\n mode http\n compression algo gzip\n filter compression\n \
                http-request cache-use c if { res.cache_hit }\n http-request set-header a %[lua.a]\n \
                http-request use-service lua.b\n http-request set-header a %[ssl_fc_session_key]\n server s \
                127.0.0.1:1 namespace n\n server t 127.0.0.1:1 proto fcgi\n http-response cache-store c\n balance foo\n";
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    let of = |line| {
        loaded
            .diagnostics
            .iter()
            .filter(|found| found.line == line)
            .map(|found| (found.id, found.feature.map(|feature| feature.name)))
            .collect::<Vec<_>>()
    };
    let missing = |name| ("not-yet", Some(name));
    assert_eq!(of(2), [missing("lua")]);
    assert_eq!(of(7), [missing("caches")]);
    assert_eq!(of(11), [missing("connection-options")]);
    assert_eq!(of(14), [("bad-value", None)]);
    let last = loaded.diagnostics.last().expect("there are errors");
    assert_eq!(
        last.message,
        "10 lines use 6 features that Baton does not have: lua (3), caches (2), compression (2), connection-options (1), \
         fastcgi (1), tls-secrets (1)"
    );
    for found in loaded.diagnostics.iter().filter(|found| found.feature.is_some()) {
        assert!(found.hint.is_some(), "no remedy: {found:?}");
    }
}

/// What is found without the lines of some features: what depends on them, and what they hid.
#[test]
fn lines_are_left_out_of_a_check() {
    let text = "global\n lua-load a.lua\ncache p\n total-max-size 4\nfrontend f\n mode http\n timeout client 1s\n bind :1\n \
                compression algo gzip\n acl a res.cache_hit\n http-request set-header a %[lua.a]\n default_backend b\n\
                backend b\n mode http\n timeout server 1s\n timeout connect 1s\n http-request cache-use p\n server s 127.0.0.1:1\n";
    let check = |text: &str, features: &str, expect: &str, is_valid: bool| {
        let leave_out = MissingFeature::list(features).expect("features");
        let options = Options { leave_out, ..Options::file("a.cfg") };
        let loaded = load(&options, &FixedEnvironment::with_file("a.cfg", text));
        assert_eq!(
            (loaded.model.is_some(), loaded.is_partial),
            (is_valid, true),
            "{features}: {:?}",
            loaded.diagnostics
        );
        let left_out = loaded.diagnostics.iter().filter(|found| found.id == "left-out");
        let (places, others): (Vec<_>, Vec<_>) = left_out.partition(|found| found.line > 0);
        let lines: Vec<String> = places.iter().map(|found| found.line.to_string()).collect();
        assert_eq!(others.len(), 1, "{others:?}");
        assert_eq!(format!("{}: {}", lines.join(" "), others[0].message), expect);
    };
    let said = "left out in this check, which a start would refuse";
    check(text, "lua", &format!("2 11: {said}: lua (2)"), false);
    check(
        text,
        "compression,caches,lua",
        &format!("2 3 9 10 11 17: {said}: caches (3), lua (2), compression (1)"),
        true,
    );
    // The rule that asks for it is wrong without the ACL.
    let text = text.replace(" default_backend", " http-request deny if a\n default_backend");
    check(
        &text,
        "compression,caches,lua",
        &format!("2 3 9 10 11 18: {said}: caches (3), lua (2), compression (1)"),
        false,
    );
}

#[test]
fn rings_are_named_and_described() {
    check(
        "ring r\n backing-file /var/log/ring\n",
        "[ALERT] parsing [a.cfg:2] : 'backing-file' is not supported: a ring is kept in memory; to keep its lines, send them \
         to a 'server'\n   |  backing-file /var/log/ring\n   |  ^^^^^^^^^^^^\n",
    );
    check(
        "ring r\n sizes 10000\n",
        "[ALERT] parsing [a.cfg:2] : unknown statement 'sizes'; did you mean 'size' maybe ?\n   |  sizes 10000\n   |  ^^^^^\n",
    );
    check(
        "ring r\n server s 127.0.0.1:99 check\n",
        "[ALERT] parsing [a.cfg:2] : 'server r/s' : 'check' is not supported for a server of a ring: only 'log-proto' is\n   \
         |  server s 127.0.0.1:99 check\n   |                        ^^^^^\n",
    );
    check(
        "global\n log ring@tin local0\nring tiny\n",
        "[WARNING] parsing [a.cfg:2] : there is no section 'ring tin': lines are kept in memory alone, for 'show events \
         tin'\n   |  log ring@tin local0\n   |      ^^^^^^^^\n   | help: did you mean 'tiny'?\n",
    );
}

#[test]
fn all_faults_are_told_in_the_order_of_the_lines() {
    let text =
        "frontend f\n bind :x\n timeout client 1x\n default_backend nosuch\nbackend b\n balance foo\n description \"\n";
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    let places: Vec<String> = loaded.diagnostics.iter().map(|d| format!("{} {}", d.line, d.id)).collect();
    assert_eq!(places, ["2 bad-value", "3 bad-time", "6 bad-value", "7 unmatched-quote", "4 unknown-backend"]);
}

#[test]
fn a_fault_of_a_rule_is_marked_at_its_word() {
    let text = "frontend f\n mode http\n http-request deny if nosuch\n";
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    let fault = loaded.diagnostics.first().expect("there is a fault");
    assert!(fault.summary().starts_with("parsing [a.cfg:3] : 'http-request' : "), "{}", fault.summary());
    assert_eq!((fault.id, fault.columns.clone()), ("bad-rule", Some(22..28)));
}

#[test]
fn a_fault_in_defaults_is_told_once() {
    let text = "defaults d\n mode http\n http-request nosuch\nfrontend f from d\nfrontend g from d\n";
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    assert_eq!(loaded.diagnostics.len(), 1, "{:?}", loaded.diagnostics);
}

#[test]
fn what_is_taken_without_being_the_same_is_warned_of() {
    check(
        "backend b\n hash-type consistent wt6\n",
        "[WARNING] parsing [a.cfg:2] : the 'wt6' function has no public description: another function replaces it, \
         which chooses other servers than HAProxy. Use 'sdbm', 'djb2' or 'crc32' for the same choice\n   |  hash-type \
         consistent wt6\n   |                       ^^^\n",
    );
    check(
        "frontend f\n timeout client 5s\n bind :80 mss -100\n",
        "[WARNING] parsing [a.cfg:3] : 'bind :80' in section 'frontend' : 'mss' : a negative 'mss' has no effect on \
         Linux, in HAProxy neither: use the positive value to advertise\n   |  bind :80 mss -100\n   |               \
         ^^^^\n",
    );
}

#[test]
fn messages_of_the_file_itself() {
    check(".notice \"a b\"\n.diag x\n", "[NOTICE] parsing [a.cfg:1] : 'a b'.\n");
    let options = Options { diag: true, ..Options::file("a.cfg") };
    assert_eq!(shown(".diag x\n", &options), "[DIAG] parsing [a.cfg:1] : 'x'.\n");
}

#[test]
fn variables_can_be_set_and_removed() {
    let text = "global\n setenv A 1\n setenv B 2\n resetenv A\n.notice \"${A-gone} ${B-gone} ${HOME-gone}\"\n";
    let mut env = FixedEnvironment::with_file("a.cfg", text);
    env.vars.insert("HOME".into(), "/root".into());
    let loaded = load(&Options::file("a.cfg"), &env);
    assert_eq!(loaded.diagnostics[0].message, "'1 gone gone'.");
}

/// A byte that is no UTF-8 is shown as a character of three bytes, before which and behind which the marks are right.
#[test]
fn marks_are_right_in_a_line_that_is_not_utf8() {
    let shown = |line: &[u8]| {
        let mut env = FixedEnvironment::with_file("a.cfg", "");
        env.files.insert("a.cfg".into(), [b"backend b\n ", line, b"\n"].concat());
        let loaded = load(&Options::file("a.cfg"), &env);
        let rendered = loaded.diagnostics.first().expect("there is an error").render(1);
        rendered.lines().skip(1).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(shown(b"mode htp # \xff"), "   |  mode htp # \u{fffd}\n   |       ^^^\n   | help: did you mean 'http'?");
    assert_eq!(shown(b"server a\xff\xfeb x"), "   |  server a\u{fffd}\u{fffd}b x\n   |         ^^^^");
    assert_eq!(shown(b"mode \"a\xff\" \"b"), "   |  mode \"a\u{fffd}\" \"b\n   |       ^^^^");
}

#[test]
fn warnings_can_be_errors() {
    let text = "backend b\n maxconn 3\n";
    assert!(load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text)).model.is_some());
    let options = Options { zero_warning: true, ..Options::file("a.cfg") };
    assert!(load(&options, &FixedEnvironment::with_file("a.cfg", text)).model.is_none());
    let text = format!("global\n zero-warning\n{text}");
    assert!(load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text)).model.is_none());
}

/// The first fault of each line.
#[test]
fn faults_of_stick_tables() {
    #[track_caller]
    fn check(words: &str, expect: &str) {
        let text = format!(
            "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\nbackend b\n stick-table {words}\nbackend other\n \
             stick-table type ip size 5\n"
        );
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text.as_str()));
        let first = loaded.diagnostics.first().map(|found| found.message.clone());
        assert_eq!(first.as_deref().unwrap_or("none"), expect, "{words}");
    }
    check("", "stick-table: missing size.");
    check("size 10", "stick-table: missing type.");
    check("type ip size 0", "stick-table: missing size.");
    check("type foo", "stick-table: unknown type 'foo'.");
    check("type ip len 4 size 10", "stick-table: unknown argument 'len'.");
    check("type string len 0 size 10", "stick-table: 'len' expects a number from 1 to 4096, found '0'.");
    check("type ip size 10x", "stick-table: unexpected character 'x' in argument of 'size'.");
    check("type ip size 9g", "stick-table: unexpected character 'g' in argument of 'size'.");
    check("type ip size 10 expire", "stick-table: missing argument after 'expire'.");
    check("type ip size 10 expire 2y", "stick-table: unexpected character 'y' in argument of 'expire'.");
    check(
        "type ip size 10 expire 25d",
        "stick-table: timer overflow in argument <25d> to <expire>, maximum value is 2147483647 ms (~24.8 days).",
    );
    check("type ip size 10 store foo", "stick-table: unknown store option 'foo'.");
    check("type ip size 10 store gpc0, gpc1", "stick-table: unknown store option ''.");
    check("type ip size 10 store gpc0(1)", "stick-table: unexpected argument to store option 'gpc0'.");
    check("type ip size 10 store conn_rate", "stick-table: missing argument to store option 'conn_rate'.");
    check("type ip size 10 store conn_rate(x)", "stick-table: error when processing store option 'conn_rate'.");
    check(
        "type ip size 10 store conn_rate(0)",
        "stick-table: the period of store option 'conn_rate' must be longer than 0.",
    );
    check("type ip size 10 store gpc_rate(2)", "stick-table: missing argument to store option 'gpc_rate'.");
    check(
        "type ip size 10 store gpc(101)",
        "stick-table: array size is out of allowed range (1-100) for store option 'gpc'.",
    );
    check(
        "type ip size 10 store gpc(2),gpc1",
        "stick-table: simultaneous usage of 'gpc' and 'gpc[0/1]' in a same table is not permitted as 'gpc' overrides 'gpc[0/1]'.",
    );
    check("type ip size 10 store gpc0,gpc0", "stick-table: store option 'gpc0' already enabled, ignored.");
    for factor in ["0", "1025", "x"] {
        check(
            &format!("type ip size 10 brates-factor {factor}"),
            &format!("stick-table: 'brates-factor' expects a number from 1 to 1024, found '{factor}'."),
        );
    }
    check("type ip size 10 srvkey foo", "stick-table : unknown server key type 'foo'.");
    check("type ip size 10 peers p", "Proxy 'b': unable to find sync peers 'p'.");
    check("type ip size 10 write-to none", "stick-table: unable to find table 'none' of 'write-to'.");
    check(
        "type ipv6 size 10 write-to other",
        "stick-table: 'write-to' needs a table of type 'ipv6', which 'other' of type 'ip' is not.",
    );
    check(
        "type ip size 10\n stick-table type ip size 9",
        "stick-table name 'b' conflicts with table declared in backend 'b' at a.cfg:6.",
    );
}
