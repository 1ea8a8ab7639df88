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
    ("http/two", "$two check-proto h2", "L7OK"),
    ("http/two-as-traffic", "$two proto h2", "L7OK"),
    ("http/two-elsewhere", "$plain proto h2 addr $two", "L7OK"),
    ("http/two-as-http1", "$two", "L7RSP"),
    ("http/one-as-two", "$plain check-proto h2", "SOCKERR"),
    ("http/one-of-two", "$plain proto h2 check-proto h1", "L7OK"),
    ("http/two-by-alpn", "$two-tls ssl ca-file ca.pem check-alpn h2", "L7OK"),
    ("http/two-preferred", "$two-tls ssl ca-file ca.pem check-alpn h2,http/1.1", "L7OK"),
    ("http/two-not-offered", "$two-tls ssl ca-file ca.pem alpn h2 check-alpn http/1.1", "L7OK"),
    ("http/two-for-checks-only", "$two-tls check-ssl ca-file ca.pem check-alpn h2", "L7OK"),
    ("http/two-is-not-there", "$good ssl ca-file ca.pem check-alpn h2,http/1.1", "L7OK"),
    ("tcp/two", "$two proto h2", "L4OK"),
    ("content/two", "$two proto h2", "L7OK"),
    ("hostless/two", "$two proto h2", "L7STS"),
    ("status/two", "$two proto h2", "L7STS"),
    ("sent/two", "$two proto h2", "L7OK"),
    ("steps/two", "$plain", "L7OK"),
    ("offer/two", "$two-tls ca-file ca.pem", "L7OK"),
    ("usual/two", "$two proto h2", "L7OK"),
    ("unusual/two", "$two proto h2", "L7RSP"),
    ("default/ssl", "$good ssl ca-file ca.pem", "L7OK"),
    ("connect/plain", "$good ca-file ca.pem", "L7OK"),
];

const BACKENDS: &[(&str, &str)] = &[
    ("tcp", ""),
    ("http", "    option httpchk\n    http-check send meth GET uri / hdr Host a.example\n"),
    ("hostless", "    option httpchk GET /\n"),
    ("content", "    option httpchk GET / HTTP/1.1\\r\\nHost:\\ a.example\n    http-check expect string ok\n"),
    (
        "status",
        "    option httpchk\n    http-check send meth GET uri / hdr Host a.example\n    http-check expect status 204\n",
    ),
    (
        "sent",
        "    option httpchk\n    http-check send meth POST uri /?a hdr Host x.example body some\n    http-check send-state\n    \
         http-check expect hdr name x-seen value \"HTTP/2.0 POST x.example /?a 4.\"\n",
    ),
    (
        "steps",
        "    option httpchk GET /\n    http-check connect proto h1\n    http-check send meth GET uri / hdr Host a.example\n    http-check expect status 200\n    \
         http-check connect proto h2 addr $two\n    http-check send meth GET uri / hdr Host a.example\n    http-check expect status 200\n",
    ),
    (
        "offer",
        "    option httpchk GET /\n    http-check connect ssl sni a.example alpn h2\n    http-check send meth GET uri / hdr Host a.example\n",
    ),
    (
        "usual",
        "    option httpchk GET /\n    http-check connect default\n    http-check send meth GET uri / hdr Host a.example\n",
    ),
    (
        "unusual",
        "    option httpchk GET /\n    http-check connect\n    http-check send meth GET uri / hdr Host a.example\n",
    ),
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
        text += &format!("backend {backend}\n{}", lines.replace("$two", &servers.at("two").to_string()));
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
