//! Servers whose name did not resolve, and servers whose address is the client's destination: what is shown of them, what
//! becomes of requests, and that no connection comes back to the process that opened it. Compared with HAProxy's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};

/// Servers that have no address, each in a backend of its own that is chosen by path.
const NOWHERE: &[(&str, &str)] = &[
    ("none", "nothing.invalid:80 init-addr none"),
    ("checked", "nothing.invalid:81 init-addr none check inter 50ms"),
    ("failed", "nothing.invalid:82"),
    ("redir", "nothing.invalid:84 redir http://elsewhere.example"),
    ("cookie", "nothing.invalid:85 cookie c send-proxy source 127.0.0.7"),
];
/// Servers whose address is a matter of the client.
const CLIENTS: &[(&str, &str)] = &[
    ("star", "*"),
    ("zero", "0.0.0.0"),
    ("port", "0.0.0.0:8080"),
    ("plus", "*:+2"),
    ("minus", "127.0.0.1:-2"),
    ("six", "[::]:8080"),
    ("own", "127.0.0.1"),
];

fn config(folder: &Path, web: SocketAddr) -> String {
    let mut text = format!(
        "global\n nbthread 1\n stats timeout 20s\n stats socket {}/admin.sock level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n retries 0\n\
         frontend web\n bind {web}\n",
        folder.display()
    );
    for (name, _) in NOWHERE {
        text += &format!(" use_backend {name} if {{ path /{name} }}\n");
    }
    for (name, server) in NOWHERE.iter().chain(CLIENTS) {
        text += &format!("backend {name}\n cookie SRV insert\n server s {server}\n");
    }
    text
}

/// Name, address, operational and administrative state, name to resolve and port of every server.
fn servers(socket: &Path) -> Vec<String> {
    let text = socat(socket, "show servers state\n");
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(' ').collect();
        [1, 4, 5, 6, 17, 18].map(|at| columns.get(at).copied().unwrap_or_default()).join(" ")
    };
    text.lines().skip(2).map(row).collect()
}

/// Status and address of every server in the statistics.
fn statistics(socket: &Path) -> Vec<String> {
    let text = socat(socket, "show stat -1 4 -1\n");
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        [0, 17, 73].map(|at| columns.get(at).copied().unwrap_or_default()).join(" ")
    };
    text.lines().map(row).collect()
}

/// The status of the response to a request of its own connection.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: test\r\nCookie: SRV=c\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_server_that_did_not_resolve_is_never_connected_to() {
    let (ours, theirs) = (free_address(), free_address());
    let both = Both::start_with(&["-dr"], |folder| config(folder, ours), |folder| config(folder, theirs));
    let (baton, haproxy) = (both.baton("admin.sock"), both.haproxy("admin.sock"));
    let compare = |when: &str| {
        assert_eq!(servers(&baton), servers(&haproxy), "show servers state, {when}");
        assert_eq!(statistics(&baton), statistics(&haproxy), "show stat, {when}");
        for (name, _) in NOWHERE {
            assert_eq!((get(ours, name), get(theirs, name)), ("503".into(), "503".into()), "{name}, {when}");
        }
    };
    compare("at start");
    for command in ["enable server", "set server"] {
        for (name, _) in NOWHERE {
            let state = if command == "set server" { " state ready" } else { "" };
            let line = format!("{command} {name}/s{state}\n");
            assert_eq!(socat(&baton, &line), socat(&haproxy, &line), "{line}");
        }
        compare(command);
    }
    for (name, _) in NOWHERE {
        socat(&baton, format!("disable server {name}/s\n"));
        socat(&haproxy, format!("disable server {name}/s\n"));
    }
    compare("disable server");
}

/// A proxy whose server is its own listening address serves everybody else all the same.
#[test]
fn a_connection_to_the_clients_destination_does_not_come_back() {
    let (web, tcp) = (free_address(), free_address());
    let folder = tempfile::tempdir().expect("a folder for the test");
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\n stats socket {}/admin.sock level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n retries 0\n\
         listen web\n bind {web}\n server s *\n\
         listen tcp\n mode tcp\n bind {tcp}\n server s 0.0.0.0:{}\n",
        folder.path().display(),
        tcp.port(),
    ));
    assert_eq!(get(web, ""), "503");
    let mut stream = TcpStream::connect(tcp).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.write_all(b"hello").expect("sent");
    assert_eq!(stream.read(&mut [0; 16]).expect("an orderly end"), 0);
    let sessions = |name: &str| {
        let text = socat(&folder.path().join("admin.sock"), format!("show stat {name} 1 -1\n"));
        text.lines().nth(1).and_then(|line| line.split(',').nth(7)).map(str::to_owned)
    };
    assert_eq!((sessions("web"), sessions("tcp")), (Some("1".into()), Some("1".into())), "one connection each");
    until("the reason is reported", || {
        let said = proxy.said();
        said.contains("Server web/s: not connected: ") && said.contains(&format!("destination {web} is an address"))
    });
}
