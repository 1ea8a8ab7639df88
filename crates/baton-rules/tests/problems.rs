//! What is said about wrong rules: every problem at once, each with its word, and a hint where there is one.

mod common;

use baton_model::Role;
use baton_rules::{NoFiles, compile};
use common::{problems, proxy, rules, show_problem};

#[track_caller]
fn check(lines: &str, expected: &str) {
    assert_eq!(problems(Role::Frontend, lines), expected, "{lines}");
}

#[test]
fn unknown_words_name_the_nearest_known_one() {
    check("http-request nope", "1@0: unknown http-request action 'nope'");
    check("http-request set-heade a b", "1@0: unknown http-request action 'set-heade' (did you mean 'set-header'?)");
    check("http-request deny iff TRUE", "1@1: unexpected argument 'iff' (did you mean 'if'?)");
    check("http-request deny if { pth_beg /x }", "1@3: unknown sample fetch 'pth_beg' (did you mean 'path_beg'?)");
    check("http-request deny if TREU", "1@2: no ACL 'TREU' is declared above this line (did you mean 'TRUE'?)");
    check(
        "acl is_api path_beg /api ; http-request deny if is_apy",
        "2@2: no ACL 'is_apy' is declared above this line (did you mean 'is_api'?)",
    );
    check(
        "http-request deny if path",
        "1@2: no ACL 'path' is declared above this line (write { path … } to test the sample fetch)",
    );
    check("http-request deny if { path -m bge /x }", "1@5: unknown matching method 'bge' (did you mean 'beg'?)");
    check("http-request set-header X %[uuid(1)]", "1@2: UUID version 1 is not supported (use 4)");
    check("http-request set-header X %zz", "1@2: unknown log-format variable '%zz' (write '%%' for a percent sign)");
}

#[test]
fn an_acl_is_known_from_its_first_line_on() {
    check(
        "http-request deny if a ; acl a path /x",
        "1@2: the ACL 'a' is declared below this line, in line 2 (declare an ACL before the rules that use it)",
    );
    check("acl a path /y ; http-request deny if a ; acl a path /x", "none");
}

#[test]
fn known_to_haproxy_but_not_here_yet() {
    check("http-request cache-use c", "1@0: the http-request action 'cache-use' is not supported yet");
    check("acl a res.comp", "1@1: the sample fetch 'res.comp' is not supported yet");
}

#[test]
fn all_at_once_in_the_order_of_the_sets() {
    check(
        "http-request deny if x ; acl a nope ; http-response set-header X ; use_backend",
        "2@1: unknown sample fetch 'nope'\n1@2: no ACL 'x' is declared above this line\n3@2: the header's value is missing\n\
         4@0: the name of a backend is missing",
    );
}

#[test]
fn conditions() {
    check("http-request deny if {", "1@3: a closing '}' is missing (put spaces around the braces)");
    check("http-request deny if { path /a", "1@5: a closing '}' is missing (put spaces around the braces)");
    check("http-request deny if { }", "1@3: a sample fetch is missing");
    check("http-request deny if !", "1@3: an ACL is missing after '!'");
    check(
        "http-request deny if { path -z x }",
        "1@4: '-z' is not an ACL flag (write '--' before a pattern that begins with '-')",
    );
    check("http-request deny if { path -m }", "1@5: '-m' needs a matching method");
    check("monitor fail", "1@0: a condition is missing (add 'if' or 'unless' with a condition)");
    check("force-persist", "1@0: a condition is missing (add 'if' or 'unless' with a condition)");
}

#[test]
fn patterns() {
    let numbers = "(use a number, a range such as 1:5, or eq, ge, gt, le or lt before a number)";
    check("http-request deny if { hdr_cnt(x) a }", &format!("1@4: 'a' is not a number {numbers}"));
    check("http-request deny if { hdr(x) -m int a }", &format!("1@6: 'a' is not a number {numbers}"));
    check("http-request deny if { src 1.2.3.4/33 }", "1@4: '1.2.3.4/33' is not a valid IPv4 or IPv6 address");
    check("http-request deny if { src zz }", "1@4: 'zz' is not a valid IPv4 or IPv6 address");
    check("http-request deny if { path '' }", "1@4: empty pattern (use '-m len 0' to match an empty text)");
    check(
        "http-request deny if { req.hdr_beg(x) a }",
        "1@3: unknown sample fetch 'req.hdr_beg' (write 'req.hdr' with '-m beg')",
    );
    check(
        "http-request deny if { var(txn.a) x }",
        "1@3: 'var(txn.a)' needs a matching method (add one, such as '-m str')",
    );
    check("http-request deny if { path_reg ( }", "1@4: the regular expression '(' is invalid: unclosed group");
    check(
        "http-request deny if { path_reg (?=a) }",
        "1@4: the regular expression '(?=a)' is invalid: look-around, including look-ahead and look-behind, is not supported",
    );
    check(
        "http-request deny if { path_reg (((a{100}){100}){100}){100} }",
        "1@4: the regular expression '(((a{100}){100}){100}){100}' is invalid: it is too complex",
    );
    check("http-request deny if { path -f /none }", "1@5: failed to open pattern file </none>: entity not found");
    check("acl a src -f paths", "1@3: '/a/b' is not a valid IPv4 or IPv6 address at line 2 of file 'paths'");
}

#[test]
fn acl_names() {
    check("acl a,b path /x", "1@0: ',' is not allowed in an ACL name (use letters, digits, '_', '-', '.' and ':')");
    check("acl or path /x", "1@0: 'or' is a keyword of conditions and cannot be the name of an ACL");
    check("acl a", "1@1: a sample fetch is missing");
    check("acl", "1@0: an ACL's name is missing");
}

#[test]
fn actions() {
    check("http-request", "1@0: 'http-request' needs an action");
    check("http-request set-header X", "1@2: the header's value is missing");
    check("http-request set-header X ''", "1@2: the header's value is missing");
    check("http-request set-header 'a b' c", "1@1: ' ' is not allowed in a header name");
    check(
        "http-request set-header X a b",
        "1@3: unexpected argument 'b' (expected 'if' or 'unless' with a condition, or the end of the line)",
    );
    check("http-request set-header X %[path", "1@2: a closing ']' is missing after '%[path'");
    check("http-request set-header X %", "1@2: a name or '[' is missing after '%' (write '%%' for a percent sign)");
    check(
        "http-request deny deny_status 299",
        "1@2: there is no standard page for status 299 (give 'content-type' and 'string', or 'status' instead of 'deny_status')",
    );
    check("http-request deny deny_status", "1@2: a status is missing");
    check("http-request return status 600", "1@2: '600' is not a status from 200 to 599");
    check(
        "http-request return string xx",
        "1@2: a content type must be defined when non-empty payload is configured (add 'content-type text/plain')",
    );
    check(
        "http-request redirect",
        "1@1: the redirect target is missing (add 'location', 'prefix' or 'scheme' with a value)",
    );
    check(
        "http-request redirect location /x code 304",
        "1@4: '304' is not a redirect status (use 301, 302, 303, 307 or 308)",
    );
    check("redirect locatio /x", "1@0: unknown redirect argument 'locatio' (did you mean 'location'?)");
    check("http-response redirect prefix /x", "1@2: a response can only be redirected with 'location'");
    check("http-response tarpit", "1@0: 'http-response' has no action 'tarpit'");
    check("http-request del-header x -m dom", "1@3: unknown matching method 'dom'");
    check("http-request set-log-level loud", "1@1: unknown log level 'loud'");
    check("tcp-request inspect-delay zz", "1@1: unknown time unit 'zz' (use us, ms, s, m, h or d)");
    check(
        "tcp-request content accept foo",
        "1@1: unexpected argument 'foo' (expected 'if' or 'unless' with a condition, or the end of the line)",
    );
    check("http-request allow(x)", "1@0: 'allow' takes no argument in parentheses");
}

#[test]
fn variables() {
    let hint = "(write proc.NAME, sess.NAME, txn.NAME, req.NAME or res.NAME)";
    check("http-request set-var(a) path", &format!("1@0: invalid variable name 'a' {hint}"));
    check("http-request set-var(txn.) path", &format!("1@0: invalid variable name 'txn.' {hint}"));
    check(
        "http-request set-var(txn.a-b) path",
        "1@0: invalid character '-' in variable name 'txn.a-b' (use letters, digits, '_' and '.')",
    );
    check("http-request set-var path", "1@0: the variable's name is missing (write it in parentheses: (txn.name))");
}

#[test]
fn places() {
    check(
        "http-response set-header X %[path]",
        "1@2: 'path' cannot be used here: it needs the request's head, which a response rule does not have",
    );
    check(
        "use_backend %[be_name]",
        "1@0: 'be_name' cannot be used here: it needs the backend, which a frontend's request rule does not have",
    );
    assert_eq!(problems(Role::Backend, "http-request set-header X %[be_name]"), "none");
}

#[test]
fn warnings_do_not_stop() {
    #[track_caller]
    fn check(lines: &str, expected: &str) {
        let warnings: Vec<String> = rules(lines).warnings.iter().map(show_problem).collect();
        assert_eq!(warnings.join("\n"), expected, "{lines}");
    }
    let found = "(use '-m found' to test that there is a value)";
    check("http-request deny if { path }", &format!("1@3: 'path' has no pattern and never matches {found}"));
    check("acl a hdr(x)", &format!("1@1: this has no pattern and never matches {found}"));
    check(
        "http-response deny if { path /x }",
        "1@3: this never matches: 'path' needs the request's head, which a response rule does not have",
    );
    check(
        "acl a res.hdr(x) y ; http-request deny if a",
        "2@2: this never matches: 'res.hdr' needs the response's head, which a backend's request rule does not have",
    );
    check(
        "tcp-request connection reject if { path /x }",
        "1@3: this never matches: 'path' needs the request's head, which a connection rule does not have",
    );
    check("http-request deny if", "1@1: no condition after 'if'");
    let never = "2@0: this rule is never reached: the rule before it always ends the evaluation";
    check("http-request deny ; http-request allow", never);
    check("http-request redirect location /x ; http-request deny", never);
    check("http-request deny if TRUE ; http-request set-header a b ; http-request allow", "");
    check("http-request deny if { ssl_fc } { src 10.0.0.0/8 }", "");
}

#[test]
fn without_files_there_are_none() {
    let problems = compile(&proxy(Role::Listen, "acl a path -f x"), &NoFiles).expect_err("there is no file");
    assert_eq!(show_problem(&problems[0]), "1@3: failed to open pattern file <x>: entity not found");
}
