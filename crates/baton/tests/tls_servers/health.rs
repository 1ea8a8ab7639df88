//! Health checks of servers that speak TLS, or should, next to haproxy's.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::servers::Servers;
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, until};

/// Server, words, and the check's status in the end.
const CASES: &[(&str, &str, &str)] = &[
    ("tcp/ssl", "$good ssl verify none", "L6OK"),
    ("tcp/verified", "$good ssl ca-file ca.pem", "L6OK"),
    ("tcp/unknown-ca", "$good ssl ca-file other.pem", "L6RSP"),
    ("tcp/expired", "$expired ssl ca-file ca.pem", "L6RSP"),
    ("tcp/host", "$good ssl ca-file ca.pem verifyhost c.example", "L6RSP"),
    ("tcp/sni-is-no-check-sni", "$good ssl ca-file ca.pem sni str(c.example)", "L6OK"),
    ("tcp/check-sni", "$good ssl ca-file ca.pem check-sni a.example", "L6OK"),
    ("tcp/wrong-check-sni", "$good ssl ca-file ca.pem check-sni c.example", "L6RSP"),
    ("tcp/plain", "$plain ssl verify none", "L6RSP"),
    ("tcp/stalling", "$stalling ssl verify none", "L6TOUT"),
    ("tcp/proxied", "$proxied ssl ca-file ca.pem send-proxy", "L6OK"),
    ("tcp/unproxied", "$proxied ssl ca-file ca.pem", "L6RSP"),
    ("tcp/off", "$good ssl verify none no-check-ssl", "L4OK"),
    ("tcp/checks-only", "$good verify none check-ssl", "L6OK"),
    ("tcp/checks-only-plain", "$plain verify none check-ssl", "L6RSP"),
    ("http/ssl", "$good ssl ca-file ca.pem", "L7OK"),
    ("http/unknown-ca", "$good ssl ca-file other.pem", "L6RSP"),
    ("http/old", "$old ssl ca-file ca.pem", "L7OK"),
    ("http/alpn", "$good ssl ca-file ca.pem check-alpn http/1.1", "L7OK"),
    ("default/ssl", "$good ssl ca-file ca.pem", "L7OK"),
    ("connect/plain", "$good ca-file ca.pem", "L7OK"),
];

const BACKENDS: &[(&str, &str)] = &[
    ("tcp", ""),
    ("http", "    option httpchk GET /\n"),
    ("default", "    option httpchk GET /\n    http-check connect default\n"),
    ("connect", "    option httpchk GET /\n    http-check connect ssl sni a.example alpn http/1.1\n"),
];

fn configuration(servers: &Servers, stats: &Path) -> String {
    let mut text = format!(
        "global\n    stats socket {}\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n\
         frontend unused\n    bind {}/unused.sock\n",
        stats.display(),
        servers.folder.path().display()
    );
    for (backend, lines) in BACKENDS {
        text += &format!("backend {backend}\n{lines}");
        for (name, words, _) in CASES {
            let Some(server) = name.strip_prefix(&format!("{backend}/")) else { continue };
            text += &format!("    server {server} {} check inter 500ms\n", servers.words(words));
        }
    }
    text
}

/// `check_status` of every server.
fn statuses(socket: &Path) -> BTreeMap<String, String> {
    let mut text = String::new();
    let mut stream = UnixStream::connect(socket).expect("the runtime API listens");
    stream.write_all(b"show stat\n").expect("it reads");
    stream.read_to_string(&mut text).expect("it answers");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a head").trim_start_matches("# ").split(',').collect();
    let at = |name: &str| names.iter().position(|other| *other == name).expect("a column");
    let (proxy, server, status) = (at("pxname"), at("svname"), at("check_status"));
    let rows = lines.map(|line| line.split(',').collect::<Vec<_>>()).filter(|row| row.len() > status);
    // A star stands before the last result while the next check runs.
    rows.map(|row| (format!("{}/{}", row[proxy], row[server]), row[status].trim_start_matches("* ").into())).collect()
}

#[test]
fn checks_find_what_haproxys_find() {
    let servers = Servers::start();
    let expected: BTreeMap<String, String> =
        CASES.iter().map(|(name, _, status)| (name.to_string(), status.to_string())).collect();
    let compare = |socket: &Path, who: &str| {
        let mut found = BTreeMap::new();
        let known = |name: &String| expected.contains_key(name);
        let settled = || {
            found = statuses(socket).into_iter().filter(|(name, _)| known(name)).collect();
            found.values().all(|status: &String| !status.is_empty() && status != "INI")
        };
        until(who, settled);
        assert_eq!(found, expected, "{who}");
    };
    let socket = servers.file("baton.sock");
    let baton = Proxy::start(&configuration(&servers, &socket));
    compare(&socket, "baton");
    drop(baton);
    let socket = servers.file("haproxy.sock");
    let _haproxy = Haproxy::start(&configuration(&servers, &socket), &socket);
    compare(&socket, "haproxy");
}
