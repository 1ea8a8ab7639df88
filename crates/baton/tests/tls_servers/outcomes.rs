//! What becomes of a request for each kind of server and settings.

use std::net::SocketAddr;
use std::time::Duration;

use crate::exchange::{Log, get};
use crate::servers::Servers;
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, free_address};

/// Name, `server` words, and what a client and the log are told.
const CASES: &[(&str, &str, &str)] = &[
    ("verified", "$good ssl verify required ca-file ca.pem", "200 ----"),
    ("by-default", "$good ssl ca-file ca.pem", "200 ----"),
    ("unverified", "$good ssl verify none", "200 ----"),
    ("host", "$good ssl ca-file ca.pem verifyhost a.example", "200 ----"),
    ("wrong-host", "$good ssl ca-file ca.pem verifyhost c.example", "503 SC--"),
    ("sni", "$good ssl ca-file ca.pem sni str(a.example)", "200 ----"),
    ("sni-wildcard", "$good ssl ca-file ca.pem sni str(x.b.example)", "200 ----"),
    ("wrong-sni", "$good ssl ca-file ca.pem sni str(c.example)", "503 SC--"),
    ("sni-wins", "$good ssl ca-file ca.pem sni str(c.example) verifyhost a.example", "503 SC--"),
    ("sni-of-host", "$good ssl ca-file ca.pem sni req.hdr(host)", "200 ----"),
    ("no-sni", "$good ssl ca-file ca.pem sni req.hdr(x-none) verifyhost a.example", "200 ----"),
    ("unknown-ca", "$good ssl ca-file other.pem", "503 SC--"),
    ("expired", "$expired ssl ca-file ca.pem", "503 SC--"),
    ("expired-unverified", "$expired ssl verify none", "200 ----"),
    ("own", "$own ssl ca-file ca.pem", "503 SC--"),
    ("own-known", "$own ssl ca-file own-crt.pem", "200 ----"),
    ("own-name", "$own ssl ca-file own-crt.pem verifyhost own.example", "200 ----"),
    ("revoked", "$revoked ssl ca-file ca.pem crl-file crl.pem", "503 SC--"),
    ("not-revoked", "$good ssl ca-file ca.pem crl-file crl.pem", "200 ----"),
    ("unasked", "$revoked ssl ca-file ca.pem", "200 ----"),
    ("asked-in-vain", "$asking ssl ca-file ca.pem", "400 ----"),
    ("asked", "$asking ssl ca-file ca.pem crt client.pem", "200 ----"),
    ("proxied", "$proxied ssl ca-file ca.pem send-proxy", "200 ----"),
    ("proxied-2", "$proxied ssl ca-file ca.pem send-proxy-v2 sni str(a.example)", "200 ----"),
    ("unproxied", "$proxied ssl ca-file ca.pem", "503 SC--"),
    ("plain", "$plain ssl verify none", "503 SC--"),
    ("plain-to-tls", "$good", "400 ----"),
    ("stalling", "$stalling ssl verify none", "503 sC--"),
    ("old", "$old ssl ca-file ca.pem", "200 ----"),
    ("old-forced", "$old ssl ca-file ca.pem force-tlsv12", "200 ----"),
    ("too-old", "$old ssl ca-file ca.pem ssl-min-ver TLSv1.3", "503 SC--"),
    ("alpn", "$good ssl ca-file ca.pem alpn http/1.1", "200 ----"),
    ("suites", "$good ssl ca-file ca.pem ciphersuites TLS_CHACHA20_POLY1305_SHA256", "200 ----"),
    ("ciphers", "$old ssl ca-file ca.pem ciphers ECDHE-ECDSA-AES256-GCM-SHA384", "200 ----"),
    ("turned-off", "$plain ssl verify none no-ssl", "200 ----"),
];

fn configuration(servers: &Servers, log: &Log, stats: &str) -> (String, Vec<SocketAddr>) {
    let mut text = format!(
        "global\n    log {} local0\n    stats socket {stats}\ndefaults\n    mode http\n    log global\n    option httplog\n    \
         retries 0\n    timeout connect 2s\n    timeout client 30s\n    timeout server 30s\n",
        log.address()
    );
    let mut places = Vec::new();
    for (name, words, _) in CASES {
        let place = free_address();
        text += &format!("listen {name}\n    bind {place}\n    server s {}\n", servers.words(words));
        places.push(place);
    }
    (text, places)
}

/// What each case leads to.
fn outcomes(log: &Log, places: &[SocketAddr]) -> Vec<String> {
    let outcome = |((name, ..), place): (&(&str, &str, &str), &SocketAddr)| {
        let status = get(*place, "a.example").status;
        format!("{name}: {status} {}", log.state(name))
    };
    CASES.iter().zip(places).map(outcome).collect()
}

#[test]
fn clients_and_the_log_are_told_what_haproxy_tells_them() {
    let servers = Servers::start();
    let expected: Vec<String> = CASES.iter().map(|(name, _, expect)| format!("{name}: {expect}")).collect();
    let log = Log::new();
    let (text, places) = configuration(&servers, &log, &servers.file("baton.sock").display().to_string());
    let _baton = Proxy::start(&text);
    assert_eq!(outcomes(&log, &places), expected, "baton");
    let log = Log::new();
    let socket = servers.file("haproxy.sock");
    let (text, places) = configuration(&servers, &log, &socket.display().to_string());
    let _haproxy = Haproxy::start(&text, &socket);
    assert_eq!(outcomes(&log, &places), expected, "haproxy");
}

#[test]
fn failed_handshakes_are_tried_again_and_elsewhere() {
    let servers = Servers::start();
    let log = Log::new();
    let place = free_address();
    let text = format!(
        "defaults\n    mode http\n    log {} local0\n    option httplog\n    timeout connect 5s\n    timeout client 30s\n    \
         timeout server 30s\nlisten main\n    bind {place}\n    balance first\n    option redispatch 1\n    server bad {}\n    \
         server good {}\n",
        log.address(),
        servers.words("$expired ssl ca-file ca.pem"),
        servers.words("$good ssl ca-file ca.pem"),
    );
    let _baton = Proxy::start(&text);
    let response = get(place, "a.example");
    assert_eq!((response.status, log.state("main").as_str()), (200, "----"));
}

#[test]
fn a_stalling_server_costs_the_connect_timeout_and_no_more() {
    let servers = Servers::start();
    let place = free_address();
    let text = format!(
        "defaults\n    mode http\n    retries 1\n    timeout connect 100ms\n    timeout client 1h\n    timeout server 1h\n\
         listen main\n    bind {place}\n    server s {}\n",
        servers.words("$stalling ssl verify none"),
    );
    let _baton = Proxy::start(&text);
    let began = std::time::Instant::now();
    assert_eq!(get(place, "a.example").status, 503);
    assert!(began.elapsed() >= Duration::from_millis(200), "both attempts had their time");
}

#[test]
fn why_there_is_no_handshake_is_told_once() {
    const TOLD: &[(&str, &str, &str)] = &[
        ("good", "$good ssl ca-file ca.pem", ""),
        (
            "expired",
            "$expired ssl ca-file ca.pem",
            "its certificate was rejected: it has expired (error 10, depth 0): renew it.",
        ),
        (
            "name",
            "$good ssl ca-file ca.pem verifyhost c.example",
            "its certificate does not match the name: use a name of the certificate in ",
        ),
        ("unknown", "$good ssl ca-file other.pem", "a CA of its chain was rejected: "),
        (
            "own",
            "$own ssl ca-file ca.pem",
            "its certificate was rejected: it is self-signed and not in ca-file (error 18, ",
        ),
        (
            "revoked",
            "$revoked ssl ca-file ca.pem crl-file crl.pem",
            "its certificate was rejected: it was revoked (error 23, ",
        ),
        ("plain", "$plain ssl verify none", "it did not respond with TLS: check whether it uses TLS on this port"),
        ("stalling", "$stalling ssl verify none", "no completed handshake within 'timeout connect': check whether"),
        (
            "old",
            "$old ssl ca-file ca.pem ssl-min-ver TLSv1.3",
            "it rejected the handshake with the alert ProtocolVersion: compare ",
        ),
    ];
    let servers = Servers::start();
    let log = Log::new();
    let socket = servers.file("stats.sock");
    let mut text = format!(
        "global\n    log {} local0\n    stats socket {}\ndefaults\n    mode http\n    log global\n    option httplog\n    \
         retries 0\n    timeout connect 300ms\n    timeout client 30s\n    timeout server 30s\n",
        log.address(),
        socket.display()
    );
    let places: Vec<SocketAddr> = TOLD.iter().map(|_| free_address()).collect();
    for ((name, words, _), place) in TOLD.iter().zip(&places) {
        text += &format!("listen {name}\n    bind {place}\n    server s {}\n", servers.words(words));
    }
    let _baton = Proxy::start(&text);
    for ((name, _, expect), place) in TOLD.iter().zip(&places) {
        let _ = get(*place, "a.example");
        let lines = log.lines(name);
        let told: Vec<&String> = lines.iter().filter(|line| line.contains("TLS handshake failed")).collect();
        match (&told[..], expect.is_empty()) {
            ([], true) => {}
            ([line], false) => {
                let expect = format!(" Server {name}/s: TLS handshake failed: {expect}");
                assert!(line.contains(&expect), "{line}, not {expect}");
            }
            _ => panic!("{name}: {lines:?}"),
        }
        let _ = get(*place, "a.example");
        let again = log.lines(name);
        assert_eq!(again.len(), 1, "it is known: {again:?}");
    }
    let stat = crate::live::ask(&socket, "show stat");
    let column = |line: &str, name: &str| {
        let head = stat.lines().next().expect("a head");
        let at = head.split(',').position(|other| other == name).expect("a column");
        line.split(',').nth(at).map(str::to_string)
    };
    for (name, _, expect) in TOLD {
        for row in ["s", "BACKEND"] {
            let line = stat.lines().find(|line| line.starts_with(&format!("{name},{row},"))).expect("a line");
            let failed = if expect.is_empty() { "0" } else { "2" };
            assert_eq!(column(line, "ssl_failed_handshake").as_deref(), Some(failed), "{line}");
            assert_eq!(column(line, "ssl_sess").is_some_and(|count| count != "0"), expect.is_empty(), "{line}");
        }
    }
}
