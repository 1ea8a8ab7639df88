//! Files of servers that get another content by the runtime API, next to haproxy.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::exchange::{Client, get};
use crate::servers::Servers;
use crate::support::haproxy::Haproxy;
use crate::support::{PATIENCE, Proxy, free_address};

/// What a program answers to a command.
pub fn ask(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream.write_all(format!("{command}\n").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes");
    answer
}

/// Gives a file of `servers` the content of another one, and says what was answered.
fn put(servers: &Servers, socket: &Path, kind: &str, name: &str, other: &str) -> String {
    let path = servers.file(name).display().to_string();
    let content = fs::read_to_string(servers.file(other)).expect("it was written");
    let set = ask(socket, &format!("set ssl {kind} {path} <<\n{}\n", content.trim_end()));
    let commit = ask(socket, &format!("commit ssl {kind} {path}"));
    (set + &commit).replace(&path, name)
}

fn configuration(servers: &Servers, place: SocketAddr, socket: &Path) -> String {
    format!(
        "global\n    nbthread 1\n    stats socket {} level admin\ndefaults\n    mode http\n    option http-server-close\n    \
         timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n    retries 0\nlisten main\n    bind {place}\n    \
         http-after-response set-header x-resumed %[ssl_bc_is_resumed]\n    server s {}\n",
        socket.display(),
        servers.words("$asking ssl ca-file ca.pem crl-file crl.pem crt client.pem")
    )
}

/// Status, who was shown to the server, and whether the session was resumed.
fn outcome(place: SocketAddr) -> String {
    let response = get(place, "a.example");
    if response.status == 503 {
        return "503".into();
    }
    let header =
        |name: &str| response.head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_string();
    format!("{} {} {}", response.status, header("x-shown: "), header("x-resumed: "))
}

#[test]
fn another_content_is_used_by_the_next_handshake() {
    let servers = Servers::start();
    let conversation = |socket: &Path, place: SocketAddr| {
        let mut said = Vec::new();
        let mut first = String::new();
        // Tickets may come behind the first responses.
        while !first.ends_with(" 1") {
            first = outcome(place);
        }
        said.push(first);
        for (kind, name, other) in [
            ("cert", "client.pem", "next-client.pem"),
            ("crl-file", "crl.pem", "crl-all.pem"),
            ("crl-file", "crl.pem", "crl.pem"),
            ("ca-file", "ca.pem", "other.pem"),
            ("ca-file", "ca.pem", "ca.pem"),
        ] {
            said.push(put(&servers, socket, kind, name, other));
            said.push(outcome(place));
        }
        let delete = format!("del ssl ca-file {}", servers.file("ca.pem").display());
        said.push(ask(socket, &delete).replace(&servers.file("ca.pem").display().to_string(), "ca.pem"));
        said
    };
    let (socket, place) = (servers.file("baton.sock"), free_address());
    let _baton = Proxy::start(&configuration(&servers, place, &socket));
    let ours = conversation(&socket, place);
    let (socket, place) = (servers.file("haproxy.sock"), free_address());
    let _haproxy = Haproxy::start(&configuration(&servers, place, &socket), &socket);
    let theirs = conversation(&socket, place);
    let trimmed = |said: &[String]| said.iter().map(|said| said.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(trimmed(&ours), trimmed(&theirs));
    let statuses: Vec<&str> = ours.iter().filter(|said| said.starts_with(['2', '5'])).map(|said| &said[..3]).collect();
    assert_eq!(statuses, ["200", "200", "503", "200", "503", "200"]);
}

#[test]
fn connections_are_not_kept_beyond_what_is_trusted() {
    let servers = Servers::start();
    let (socket, place) = (servers.file("baton.sock"), free_address());
    let text = configuration(&servers, place, &socket).replace("option http-server-close", "http-reuse always");
    let _baton = Proxy::start(&text);
    let mut client = Client::connect(place);
    let mut shown =
        || client.get("a.example").head.lines().find(|line| line.starts_with("x-shown")).map(str::to_string);
    let (first, again) = (shown(), shown());
    assert!(first.is_some() && first == again);
    put(&servers, &socket, "cert", "client.pem", "next-client.pem");
    let next = shown();
    assert!(next.is_some() && next != first);
    put(&servers, &socket, "ca-file", "ca.pem", "other.pem");
    assert_eq!(shown(), None, "there is no server to be trusted");
}
