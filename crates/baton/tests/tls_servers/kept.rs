//! Kept connections and resumed sessions, as nginx sees them; and what a reload changes about them.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use crate::exchange::Client;
use crate::servers::Servers;
use crate::support::{PATIENCE, Proxy, free_address};

fn configuration(place: SocketAddr, extra: &str, words: &str) -> String {
    format!(
        "global\n    nbthread 1\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n    \
         retries 0\nlisten main\n    bind {place}\n{extra}    server s {words}\n"
    )
}

/// A column of nginx' log: resumed (`r`), name asked for, host, connection, version.
fn column(lines: &[String], at: usize) -> Vec<&str> {
    lines.iter().map(|line| line.split(' ').nth(at).expect("five columns")).collect()
}

#[test]
fn ten_thousand_requests_go_over_kept_connections() {
    const REQUESTS: usize = 10_000;
    let servers = Servers::start();
    let place = free_address();
    let words = servers.words("$good ssl ca-file ca.pem sni req.hdr(host)");
    let _baton = Proxy::start(&configuration(place, "    http-reuse always\n", &words));
    let mut client = Client::connect(place);
    for _ in 0..REQUESTS {
        let response = client.get("a.example");
        assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
    }
    let served = servers.served(REQUESTS);
    assert_eq!(served.len(), REQUESTS);
    assert_eq!(column(&served, 3).into_iter().collect::<HashSet<_>>().len(), 1, "one connection");
}

#[test]
fn connections_are_kept_for_the_name_they_asked_for() {
    let servers = Servers::start();
    let place = free_address();
    let words = servers.words("$good ssl ca-file ca.pem sni req.hdr(host)");
    let _baton = Proxy::start(&configuration(place, "    http-reuse always\n", &words));
    let mut clients = [Client::connect(place), Client::connect(place), Client::connect(place)];
    let hosts = ["a.example", "x.b.example", "y.b.example"];
    for turn in 0..60 {
        let response = clients[turn % 2].get(hosts[turn * 7 % 3]);
        assert_eq!(response.status, 200);
    }
    let served = servers.served(60);
    assert_eq!(column(&served, 1), column(&served, 2), "each was asked for by its name");
    let _ = clients[2].get("c.example");
}

#[test]
fn sessions_are_resumed_unless_the_line_says_no() {
    const REQUESTS: usize = 20;
    let resumed = |more: &str| {
        let servers = Servers::start();
        let place = free_address();
        let words = servers.words("$good ssl ca-file ca.pem") + more;
        let _baton = Proxy::start(&configuration(place, "    option http-server-close\n", &words));
        let mut client = Client::connect(place);
        (0..REQUESTS).for_each(|_| assert_eq!(client.get("a.example").status, 200));
        let served = servers.served(REQUESTS);
        assert_eq!(column(&served, 3).into_iter().collect::<HashSet<_>>().len(), REQUESTS, "a connection each");
        column(&served, 0).into_iter().filter(|mark| *mark == "r").count()
    };
    assert_eq!(resumed(""), REQUESTS - 1);
    assert_eq!(resumed(" force-tlsv12"), REQUESTS - 1);
    assert_eq!(resumed(" force-tlsv12 no-tls-tickets"), REQUESTS - 1);
    assert_eq!(resumed(" no-ssl-reuse"), 0);
}

#[test]
fn a_reload_keeps_what_it_does_not_change() {
    let servers = Servers::start();
    let place = free_address();
    let with = |words: &str| configuration(place, "    http-reuse always\n", &servers.words(words));
    let usual = "$good ssl ca-file ca.pem";
    let baton = Proxy::start(&with(usual));
    let mut client = Client::connect(place);
    assert_eq!(client.get("a.example").status, 200);
    // Nothing changes: the connection stays.
    baton.change(&(with(usual) + "    timeout queue 9s\n"));
    assert_eq!(client.get("a.example").status, 200);
    // A name that the server has not: the kept connection is none for it.
    let outcome = baton.change(&with("$good ssl ca-file ca.pem verifyhost c.example"));
    assert!(format!("{outcome:?}").contains("ssl"), "{outcome:?}");
    assert_eq!(client.get("a.example").status, 503);
    let mut client = Client::connect(place);
    baton.change(&with(usual));
    assert_eq!(client.get("a.example").status, 200);
    // The words stay, the file changes.
    let trusted = fs::read(servers.file("ca.pem")).expect("it was written");
    fs::copy(servers.file("other.pem"), servers.file("ca.pem")).expect("the folder is ours");
    baton.reload();
    assert_eq!(client.get("a.example").status, 503);
    // A file that cannot be used changes nothing.
    fs::write(servers.file("ca.pem"), "nothing").expect("the folder is ours");
    let refused = baton.change_refused(&with(usual));
    assert!(refused.contains("neither a certificate nor a revocation list"), "{refused}");
    fs::write(servers.file("ca.pem"), trusted).expect("the folder is ours");
    baton.reload();
    let mut client = Client::connect(place);
    assert_eq!(client.get("a.example").status, 200);
    let served = servers.served(4);
    let connections = column(&served, 3);
    assert_eq!(connections[0], connections[1], "kept over the first reload");
    assert_eq!(connections.iter().collect::<HashSet<_>>().len(), 3);
}

#[test]
fn what_was_agreed_on_with_a_server_is_there_for_rules() {
    let servers = Servers::start();
    let place = free_address();
    let extra = "    http-response set-header x-tls %[ssl_bc],%[ssl_bc_protocol],%[ssl_bc_is_resumed]\n";
    let words = servers.words("$good ssl ca-file ca.pem");
    let _baton = Proxy::start(&configuration(place, extra, &words));
    let response = Client::connect(place).get("a.example");
    assert!(response.head.contains("x-tls: 1,tlsv1.3,0"), "{}", response.head);
}

#[test]
fn connections_in_tcp_mode_are_encrypted_too() {
    let servers = Servers::start();
    let (good, wrong) = (free_address(), free_address());
    let words = "$good ssl ca-file ca.pem";
    let listen = |name: &str, place: SocketAddr, more: &str| {
        format!("listen {name}\n    bind {place}\n    server s {}{more}\n", servers.words(words))
    };
    let text = format!(
        "defaults\n    mode tcp\n    retries 0\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n{}{}",
        listen("good", good, " sni str(a.example)"),
        listen("wrong", wrong, " sni str(c.example)")
    );
    let _baton = Proxy::start(&text);
    let mut client = Client::connect(good);
    for _ in 0..3 {
        assert_eq!(client.get("a.example").status, 200);
    }
    assert_eq!(column(&servers.served(3), 1), ["a.example"; 3]);
    let mut refused = TcpStream::connect(wrong).expect("the proxy listens");
    refused.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    assert_eq!(refused.read(&mut [0; 1]).ok(), Some(0), "closed without a byte");
}
