//! Values that try to become more than a value: CR, LF, NUL, tabs and 8-bit characters out of headers, paths, parameters and cookies, in each
//! action and field that takes an expression. What the server, the client and the log get must never be split, whatever haproxy does.
//!
//! The actions are those of baton-rules' rows: a row that is not in `ACTIONS`, or a rule set of it without a line, is an error.

use std::fmt::Write;

use baton_config::keywords::{self, Status};

use crate::record::Record;

/// How an action or field is tried.
enum Probe {
    /// These lines, of which at least one is for each of its rule sets; `VALUE` is the format of the hostile value, `EXPR` its expression.
    Lines(&'static [&'static str]),
    /// It takes no expression.
    None,
}

use Probe::{Lines, None as Nothing};

const ACTIONS: &[(&str, Probe)] = &[
    ("accept", Nothing),
    ("sc-add-gpc", Nothing),
    ("sc-inc-gpc", Nothing),
    ("sc-inc-gpc0", Nothing),
    ("sc-inc-gpc1", Nothing),
    ("sc-set-gpt", Nothing),
    ("sc-set-gpt0", Nothing),
    ("track-sc", Nothing),
    ("track-sc0", Nothing),
    ("track-sc1", Nothing),
    ("track-sc2", Nothing),
    (
        "add-acl",
        Lines(&[
            "http-request add-acl(${DIR}/list) VALUE",
            "http-response add-acl(${DIR}/list) VALUE",
            "http-after-response add-acl(${DIR}/list) VALUE",
            "tcp-request connection add-acl(${DIR}/list) %[src]",
            "tcp-request session add-acl(${DIR}/list) %[src]",
            "tcp-request content add-acl(${DIR}/list) %[req.hdr(v),b64dec]",
            "tcp-response content add-acl(${DIR}/list) VALUE",
        ]),
    ),
    (
        "add-header",
        Lines(&[
            "http-request add-header x-evil VALUE",
            "http-response add-header x-evil VALUE",
            "http-after-response add-header x-evil VALUE",
        ]),
    ),
    ("allow", Nothing),
    ("auth", Nothing),
    (
        "capture",
        Lines(&[
            "declare capture response len 200",
            "tcp-request content capture req.hdr(v),b64dec len 200",
            "http-request capture EXPR len 200",
            "http-response capture EXPR id 0",
            "http-after-response capture EXPR id 0",
        ]),
    ),
    ("close", Nothing),
    (
        "del-acl",
        Lines(&[
            "http-request del-acl(${DIR}/list) VALUE",
            "http-response del-acl(${DIR}/list) VALUE",
            "http-after-response del-acl(${DIR}/list) VALUE",
            "tcp-request connection del-acl(${DIR}/list) %[src]",
            "tcp-request session del-acl(${DIR}/list) %[src]",
            "tcp-request content del-acl(${DIR}/list) %[req.hdr(v),b64dec]",
            "tcp-response content del-acl(${DIR}/list) VALUE",
        ]),
    ),
    ("del-header", Nothing),
    (
        "del-map",
        Lines(&[
            "http-request del-map(${DIR}/map) VALUE",
            "http-response del-map(${DIR}/map) VALUE",
            "http-after-response del-map(${DIR}/map) VALUE",
            "tcp-request connection del-map(${DIR}/map) %[src]",
            "tcp-request session del-map(${DIR}/map) %[src]",
            "tcp-request content del-map(${DIR}/map) %[req.hdr(v),b64dec]",
            "tcp-response content del-map(${DIR}/map) VALUE",
        ]),
    ),
    (
        "deny",
        Lines(&[
            "http-request deny content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE",
            "http-request deny content-type text/plain lf-file ${DIR}/evil.lf",
            "http-response deny content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE",
            "stats http-request deny",
        ]),
    ),
    ("disable-l7-retry", Nothing),
    ("do-log", Nothing),
    ("early-hint", Lines(&["http-request early-hint x-evil VALUE"])),
    ("expect-netscaler-cip", Nothing),
    ("expect-proxy", Nothing),
    ("normalize-uri", Nothing),
    // Its expression is a name, of which nothing but letters, digits, `-`, `_` and dots is sent: `runtime`'s tests of discovery try the others.
    ("do-resolve", Nothing),
    ("pause", Nothing),
    (
        "redirect",
        Lines(&[
            "http-request redirect location VALUE",
            "http-request redirect location /a?b=VALUE code 301 set-cookie a=b",
            "http-request redirect prefix VALUE",
            "http-request redirect scheme VALUE",
            "http-response redirect location VALUE",
        ]),
    ),
    ("reject", Nothing),
    (
        "replace-header",
        Lines(&[
            "http-request replace-header x-own (.*) \\1-VALUE",
            "http-request replace-header x-own (.*) a\\\\x0d\\\\x0aInjected:\\ yes",
            "http-response replace-header x-origin (.*) \\1-VALUE",
            "http-after-response replace-header x-origin (.*) \\1-VALUE",
        ]),
    ),
    ("replace-path", Lines(&["http-request replace-path (.*) /p\\1VALUE"])),
    ("replace-pathq", Lines(&["http-request replace-pathq (.*) /p\\1VALUE"])),
    ("replace-uri", Lines(&["http-request replace-uri (.*) /p\\1VALUE"])),
    (
        "replace-value",
        Lines(&[
            "http-request replace-value x-own (.*) \\1-VALUE",
            "http-response replace-value x-origin (.*) \\1-VALUE",
            "http-after-response replace-value x-origin (.*) \\1-VALUE",
        ]),
    ),
    (
        "return",
        Lines(&[
            "http-request return content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE",
            "http-request return content-type text/plain lf-file ${DIR}/evil.lf",
            "http-response return content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE",
        ]),
    ),
    (
        "sc-add-gpc",
        Lines(&[
            "http-request sc-add-gpc(0,0) EXPR",
            "http-response sc-add-gpc(0,0) EXPR",
            "tcp-request connection sc-add-gpc(0,0) src",
            "tcp-request session sc-add-gpc(0,0) src",
            "tcp-request content sc-add-gpc(0,0) src",
            "tcp-response content sc-add-gpc(0,0) EXPR",
        ]),
    ),
    ("sc-inc-gpc", Nothing),
    ("sc-inc-gpc0", Nothing),
    ("sc-inc-gpc1", Nothing),
    (
        "sc-set-gpt",
        Lines(&[
            "http-request sc-set-gpt(0,0) EXPR",
            "http-response sc-set-gpt(0,0) EXPR",
            "tcp-request connection sc-set-gpt(0,0) src",
            "tcp-request session sc-set-gpt(0,0) src",
            "tcp-request content sc-set-gpt(0,0) src",
            "tcp-response content sc-set-gpt(0,0) EXPR",
        ]),
    ),
    (
        "sc-set-gpt0",
        Lines(&[
            "http-request sc-set-gpt0(0) EXPR",
            "http-response sc-set-gpt0(0) EXPR",
            "tcp-request connection sc-set-gpt0(0) src",
            "tcp-request session sc-set-gpt0(0) src",
            "tcp-request content sc-set-gpt0(0) src",
            "tcp-response content sc-set-gpt0(0) EXPR",
        ]),
    ),
    ("set-bc-mark", Nothing),
    ("set-bc-tos", Nothing),
    (
        "set-dst",
        Lines(&[
            "http-request set-dst EXPR",
            "tcp-request connection set-dst src",
            "tcp-request content set-dst EXPR",
            "tcp-request session set-dst src",
        ]),
    ),
    (
        "set-dst-port",
        Lines(&[
            "http-request set-dst-port EXPR",
            "tcp-request connection set-dst-port int(4000)",
            "tcp-request content set-dst-port EXPR",
            "tcp-request session set-dst-port int(4000)",
        ]),
    ),
    ("set-fc-mark", Nothing),
    ("set-fc-tos", Nothing),
    (
        "set-header",
        Lines(&[
            "http-request set-header x-evil VALUE",
            "http-request set-header x-evil \"a VALUE b\"",
            "http-request set-header host VALUE",
            "http-request set-header cookie VALUE",
            "http-request set-header connection VALUE",
            "http-response set-header x-evil VALUE",
            "http-response set-header set-cookie VALUE",
            "http-response set-header location VALUE",
            "http-after-response set-header x-evil VALUE",
        ]),
    ),
    ("set-log-level", Nothing),
    (
        "set-map",
        Lines(&[
            "http-request set-map(${DIR}/map) VALUE VALUE",
            "http-response set-map(${DIR}/map) VALUE VALUE",
            "http-after-response set-map(${DIR}/map) VALUE VALUE",
            "tcp-request connection set-map(${DIR}/map) %[src] %[src]",
            "tcp-request session set-map(${DIR}/map) %[src] %[src]",
            "tcp-request content set-map(${DIR}/map) %[req.hdr(v),b64dec] %[req.hdr(v),b64dec]",
            "tcp-response content set-map(${DIR}/map) VALUE VALUE",
        ]),
    ),
    ("set-mark", Nothing),
    ("set-method", Lines(&["http-request set-method VALUE", "http-request set-method PUTVALUE"])),
    ("set-nice", Nothing),
    ("set-path", Lines(&["http-request set-path VALUE", "http-request set-path /aVALUE"])),
    ("set-pathq", Lines(&["http-request set-pathq VALUE", "http-request set-pathq /a?VALUE"])),
    (
        "set-priority-class",
        Lines(&["http-request set-priority-class EXPR", "tcp-request content set-priority-class EXPR"]),
    ),
    (
        "set-priority-offset",
        Lines(&["http-request set-priority-offset EXPR", "tcp-request content set-priority-offset EXPR"]),
    ),
    ("set-query", Lines(&["http-request set-query VALUE", "http-request set-query a=VALUE"])),
    ("set-retries", Nothing),
    (
        "set-src",
        Lines(&[
            "http-request set-src EXPR",
            "tcp-request connection set-src src",
            "tcp-request content set-src EXPR",
            "tcp-request session set-src src",
        ]),
    ),
    (
        "set-src-port",
        Lines(&[
            "http-request set-src-port EXPR",
            "tcp-request connection set-src-port int(4000)",
            "tcp-request content set-src-port EXPR",
            "tcp-request session set-src-port int(4000)",
        ]),
    ),
    ("set-status", Nothing),
    ("set-timeout", Nothing),
    ("set-tos", Nothing),
    (
        "set-uri",
        Lines(&["http-request set-uri VALUE", "http-request set-uri /aVALUE", "http-request set-uri http://VALUE/a"]),
    ),
    (
        "set-var",
        Lines(&[
            "http-request set-var(txn.shown) EXPR",
            "http-response set-var(txn.shown) EXPR",
            "http-after-response set-var(txn.shown) EXPR",
            "tcp-request connection set-var(sess.a) src",
            "tcp-request session set-var(sess.b) src",
            "tcp-request content set-var(txn.c) req.hdr(v),b64dec",
            "tcp-response content set-var(txn.d) EXPR",
        ]),
    ),
    (
        "set-var-fmt",
        Lines(&[
            "http-request set-var-fmt(txn.shown) \"a VALUE\"",
            "http-response set-var-fmt(txn.shown) \"a VALUE\"",
            "http-after-response set-var-fmt(txn.shown) \"a VALUE\"",
            "tcp-request connection set-var-fmt(sess.a) %[src]",
            "tcp-request session set-var-fmt(sess.b) %[src]",
            "tcp-request content set-var-fmt(txn.c) %[req.hdr(v),b64dec]",
            "tcp-response content set-var-fmt(txn.d) VALUE",
        ]),
    ),
    ("silent-drop", Nothing),
    ("strict-mode", Nothing),
    ("switch-mode", Nothing),
    ("tarpit", Lines(&["http-request tarpit content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE"])),
    (
        "track-sc",
        Lines(&[
            "http-request track-sc0 EXPR table keys",
            "http-response track-sc1 EXPR table keys",
            "tcp-request connection track-sc2 src table keys",
            "tcp-request session track-sc2 src table keys",
            "tcp-request content track-sc2 req.hdr(v),b64dec table keys",
        ]),
    ),
    ("unset-var", Nothing),
    ("use-service", Nothing),
    ("wait-for-body", Nothing),
    ("wait-for-handshake", Nothing),
];

/// Fields besides actions: lines of the frontend, and of the backend.
const FIELDS: &[(&str, &[&str], &[&str])] = &[
    ("use_backend", &["use_backend VALUE if { path_beg /1/ }"], &[]),
    ("use-server", &[], &["use-server VALUE if { path_beg /1/ }"]),
    ("balance-hash", &[], &["balance hash EXPR"]),
    (
        "http-error",
        &[
            "http-error status 403 content-type text/plain lf-string \"VALUE\" hdr x-evil VALUE",
            "http-request deny if { path_beg /1/ }",
        ],
        &[],
    ),
    ("capture-header", &["capture request header v len 200", "capture request header x-raw len 200"], &[]),
    ("capture-cookie", &["capture cookie v len 60"], &[]),
    (
        "log-format",
        &["log-format \"%ST VALUE|%{+Q}[var(txn.evil)]|%{+E}[var(txn.evil)]|%{+X}[var(txn.evil)]|%r|%HU\""],
        &[],
    ),
    ("log-format-sd", &["log-format-sd \"[a@1 b=\\\"VALUE\\\"]\""], &[]),
    ("unique-id", &["unique-id-format %[req.hdr(v),b64dec]", "unique-id-header x-unique"], &[]),
    ("server-sni", &[], &["server tls ${O1} ssl verify none sni EXPR", "use-server tls if { path_beg /1/ }"]),
];

/// What makes the value, of each request that has it, and the number of the line that is tried.
const BEFORE: &str = "    http-request set-var(txn.evil) path,url_dec
    http-request set-var(txn.evil) req.hdr(v),b64dec if { req.hdr(v) -m found }
    http-request set-var(txn.evil) req.hdr(x-raw) if { req.hdr(x-raw) -m found }
    http-request set-var(txn.evil) url_param(v),url_dec if { url_param(v) -m found }
    http-request set-var(txn.evil) req.cook(v),url_dec if { req.cook(v) -m found }
    http-request set-var(txn.n) path,field(2,/)
";

/// What shows a variable that an action has set.
const AFTER: &str = "    http-response set-header x-shown %[var(txn.shown)] if { var(txn.shown) -m found }
    http-response set-header x-c %[var(txn.c)] if { var(txn.c) -m found }
    http-after-response set-header x-late %[var(txn.shown)] if { var(txn.shown) -m found }
";

/// The requests for a line: the value in Base64 is a header, a whole request, and a row of odd bytes.
const REQUESTS: [&str; 7] = [
    "/N/a | V: eA0KSW5qZWN0ZWQ6IHllcw0KWDogeQ==",
    "/N/a | V: eA0KDQpHRVQgL3NtdWdnbGVkIEhUVFAvMS4xDQpIb3N0OiBzDQoNCg==",
    "/N/a | V: YQBiCWOA/xtbMzFtf2QKZQ0=",
    "/N/x%0d%0aInjected:%20yes%0d%0a%00%09%ff",
    "/N/a?v=x%0aInjected:%20yes%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1",
    "/N/a | Cookie: v=x%0d%0aInjected:%20yes%00",
    "/N/a | X-Raw: a\\tb\\xff\\x80c",
];

/// The cases; an error names a row of baton-rules that is not tried.
pub fn texts() -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for row in baton_rules::keywords().filter(|row| row.kind == "action") {
        let Some((_, probe)) = ACTIONS.iter().find(|(name, _)| *name == row.name) else {
            return Err(format!(
                "injection.rs: the action '{}' is not in ACTIONS: is nothing split by its expressions?",
                row.name
            ));
        };
        let Lines(lines) = probe else { continue };
        let lines: Vec<&str> = lines.iter().copied().filter(|line| is_read(line)).collect();
        for set in row.rule_sets().filter(|set| is_read(set)) {
            if !lines.iter().any(|line| line.starts_with(&format!("{set} "))) {
                return Err(format!("injection.rs: '{}' has no line for '{set}'", row.name));
            }
        }
        texts.push(case(row.name, &lines, &[]));
    }
    texts.extend(FIELDS.iter().map(|(name, front, back)| case(name, front, back)));
    Ok(texts)
}

/// Whether the keyword of a line can be used: rules of `tcp-response content` have rows and come later.
fn is_read(line: &str) -> bool {
    let is_its = |name: &str| line == name || line.starts_with(&format!("{name} "));
    keywords::proxy_keywords().any(|row| is_its(row.name) && row.status == Status::Done)
}

/// One case. Each line of HTTP rules is for the requests that name its number.
fn case(name: &str, front: &[&str], back: &[&str]) -> String {
    let fill = |line: &str| line.replace("VALUE", "%[var(txn.evil)]").replace("EXPR", "var(txn.evil)");
    let is_tcp = |line: &str| line.starts_with("tcp-");
    let mut text = format!(
        "\n=== injection-{name}\nwith: injection no-counters unordered\n--- cfg\nfrontend f\n    bind ${{L1}}\n    timeout tarpit 20\n"
    );
    for line in front.iter().filter(|line| line.starts_with("tcp-request")) {
        let _ = writeln!(text, "    {}", fill(line));
    }
    text.push_str(BEFORE);
    let mut count = 1;
    for line in front.iter().filter(|line| !is_tcp(line)) {
        let is_plain = !["http-", "redirect", "use_backend"].iter().any(|start| line.starts_with(start));
        match is_plain || line.starts_with("http-error") || line.contains(" if ") {
            true => _ = writeln!(text, "    {}", fill(line)),
            false => {
                let _ = writeln!(text, "    {} if {{ var(txn.n) -m str {count} }}", fill(line));
                count += 1;
            }
        }
    }
    text.push_str(AFTER);
    text.push_str("    default_backend b\nbackend b\n    retries 0\n    option http-server-close\n");
    for line in back.iter().chain(front.iter().filter(|line| line.starts_with("tcp-response"))) {
        let _ = writeln!(text, "    {}", fill(line));
    }
    text.push_str("    server s1 ${O1}\nbackend keys\n    stick-table type string size 100 store gpt(2),gpc(2)\n--- file evil.lf\nvalue: %[var(txn.evil)].\n--- file list\nnothing\n--- file map\nnothing nothing\n--- gets\n");
    for number in 1..count.max(2) {
        for request in REQUESTS {
            let _ = writeln!(text, "{} | X-Own: own", request.replacen("/N/", &format!("/{number}/"), 1));
        }
    }
    text
}

/// What in a record shows that a value became more than that.
pub fn split(record: &Record) -> Option<String> {
    for (title, lines) in &record.sections {
        // A client hello: the value is in a field of it that has a length.
        if lines.first().is_some_and(|line| line.starts_with("\\x16\\x03")) {
            continue;
        }
        let is_message = title.starts_with("client") || title.starts_with("origin");
        for line in lines {
            let lower = line.to_ascii_lowercase();
            let begins = lower.starts_with("injected:") || lower.starts_with("get /smuggled");
            if is_message && (begins || line.contains("\\x00")) {
                return Some(format!("[{title}] {line}"));
            }
            if title == "log" && line.chars().any(char::is_control) {
                return Some(format!("[{title}] {line:?}"));
            }
        }
        let heads = lines.iter().filter(|line| line.starts_with("HTTP/1.") && !line.starts_with("HTTP/1.1 1")).count();
        if title.starts_with("client") && heads > 1 {
            return Some(format!("[{title}] has {heads} responses:\n{}", lines.join("\n")));
        }
    }
    None
}
