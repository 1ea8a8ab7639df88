//! Random commands, valid and invalid, from many connections while clients are served: no request fails, every response is whole, and
//! nothing panics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use baton_prove::{Origin, OriginOptions};

use crate::peers::socat;
use crate::support::clients::{assert_clean, under_load};
use crate::support::{PATIENCE, Proxy, free_address};

/// Connections at a time.
const PEERS: usize = 50;
/// Commands in all.
const COMMANDS: usize = 10_000;

/// What commands are made of: `{n}` is replaced by a number, or by something that is none.
const FIRST: &[&str] = &[
    "show stat",
    "show stat typed",
    "show stat json",
    "show info",
    "show info typed",
    "show sess",
    "show sess all",
    "show servers state",
    "show servers conn",
    "show errors",
    "show fd",
    "show activity",
    "show threads",
    "show pools",
    "show map",
    "show table",
    "show schema json",
    "show cli sockets",
    "show env",
    "show version",
    "get weight app/s1",
    "set weight app/s1 {n}",
    "set server app/s1 weight {n}",
    "set server app/s2 state drain",
    "set server app/s2 state ready",
    "set server app/s2 health up",
    "set server app/s1 check-port 1",
    "set server app/s1 addr 127.0.0.1",
    "set server app/{n} addr {n} port {n}",
    "set server app/s5 ssl on",
    "set server app/s5 ssl off",
    "set server app/s5 ssl {n}",
    "set server app/s1 ssl on",
    "set server app/s1 agent up",
    "set server app/s1 agent {n}",
    "set server app/s1 agent-addr 127.0.0.{n}",
    "set server app/s1 agent-send {n}",
    "enable agent app/s1",
    "disable agent app/s{n}",
    "set server app/s{n} fqdn localhost",
    "set server app/s{n} fqdn {n}.invalid",
    "set server app/s2 check-addr 127.0.0.{n} port {n}",
    "show table visitors",
    "show table visitors key 192.0.2.{n}",
    "show table visitors data.gpc0 gt {n}",
    "show table {n}",
    "set table visitors key 192.0.2.{n} data.gpc0 {n}",
    "set table visitors key {n} data.gpc0 {n}",
    "clear table visitors key 192.0.2.{n}",
    "clear table visitors data.gpc0 lt {n}",
    "clear table visitors",
    "show peers",
    "show peers dict {n}",
    "show resolvers",
    "show stat domain resolvers",
    "show overrides",
    "show profiling",
    "show events",
    "show startup-logs",
    "show ssl providers",
    "get var proc.seen",
    "get var proc.{n}",
    "set var proc.seen int({n})",
    "set var proc.x{n} expr nbsrv(app)",
    "set var proc.x fmt %[be_conn(app)]-{n}",
    "set var proc.{n} {n} {n}",
    "set maxconn server app/s1 {n}00",
    "set maxconn frontend web {n}000",
    "set maxconn global 0",
    "set rate-limit connections global 0",
    "disable server app/s3",
    "enable server app/s3",
    "disable health app/s1",
    "enable health app/s1",
    "disable frontend other",
    "enable frontend other",
    "add server app/n{n} 127.0.0.1:9 weight {n}",
    "del server app/n{n}",
    "set server agt/a agent up",
    "set server agt/a agent down",
    "set server agt/a agent {n}",
    "set server agt/a agent-port {n}",
    "set server agt/a agent-addr 127.0.0.{n} port {n}",
    "set server agt/a agent-send {n}",
    "disable agent agt/a",
    "enable agent agt/a",
    "shutdown session 0x{n}",
    "shutdown sessions server app/s3",
    "clear counters",
    "wait {n}",
    "help {n}",
    "show sess 0x{n}",
    "foo {n}",
    "set {n}",
    "show {n} {n}",
    "set server app/s1 {n} {n}",
    "\\ {n} {n}",
    "set ssl cert {n}",
    "commit ssl cert {n}",
    "show ssl cert",
];

/// Numbers that a seed decides (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn command(&mut self) -> String {
        let mut command = FIRST[self.below(FIRST.len())].to_owned();
        while command.contains("{n}") {
            let word = match self.below(6) {
                0 => "x".repeat(self.below(300)),
                1 => "-1".into(),
                _ => (1 + self.below(9)).to_string(),
            };
            command = command.replacen("{n}", &word, 1);
        }
        command
    }
}

/// A session with a prompt: commands one after the other, each with a response that ends with the prompt.
fn converse(socket: &Path, mut random: Random, count: usize) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = |command: &str| {
        stream.write_all(format!("{command}\n").as_bytes()).expect("it reads");
        let mut text = Vec::new();
        let mut room = [0; 65536];
        while !text.ends_with(b"\n> ") {
            let count = stream.read(&mut room).expect("a response");
            assert!(count > 0, "{command:?}: the end after {:?}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&room[..count]);
        }
        text.truncate(text.len() - 2);
        String::from_utf8(text).expect("text")
    };
    assert_eq!(answer("prompt"), "\n");
    assert_eq!(answer("experimental-mode on"), "\n");
    for _ in 0..count {
        let command = random.command();
        let text = answer(&command);
        assert!(text.ends_with('\n'), "{command:?}: {text:?}");
        match command.as_str() {
            // A table is whole: as many cells on each line as columns.
            "show stat" => {
                let cells = |line: &str| line.split(',').count();
                let mut lines = text.lines().filter(|line| !line.is_empty());
                let columns = lines.next().map(cells);
                assert!(lines.all(|line| Some(cells(line)) == columns), "{text}");
            }
            "show stat json" | "show schema json" => {
                let json: Result<serde_json::Value, _> = serde_json::from_str(text.trim_end());
                assert!(json.is_ok(), "{command}: {text}");
            }
            "show info" => assert!(text.starts_with("Name: HAProxy\n") && text.contains("\nUptime_sec: "), "{text}"),
            "show table visitors" => {
                let (heading, entries) = text.split_once('\n').expect("a heading");
                assert!(heading.starts_with("# table: visitors, type: ip, size:100, used:"), "{text}");
                let is_whole =
                    |line: &str| line.starts_with("0x") && line.contains(" gpc0=") && line.contains(" http_req_rate(");
                assert!(entries.lines().all(|line| line.is_empty() || is_whole(line)), "{text}");
            }
            "show version" => assert!(text.starts_with("2.6."), "{text}"),
            _ => {}
        }
    }
}

#[test]
fn random_commands_from_many_connections_disturb_nobody() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (folder, web, other) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    let socket = folder.path().join("a.sock");
    let text = format!(
        "global\n nbthread 2\n stats timeout 30s\n stats maxconn 100\n stats socket {} level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n http-request track-sc0 src table visitors\n default_backend app\nfrontend other\n bind {other}\n default_backend app\n\
         backend app\n server s1 {o} check inter 1h weight 10\n server s2 {o} weight 10\n server s3 {o} weight 0\n server s4 {o}\n \
         server s5 {o} weight 0 ssl verify none\n\
         backend visitors\n stick-table type ip size 100 expire 1m store gpc0,http_req_rate(10s)\n\
         backend agt\n server a 127.0.0.1:9 agent-check agent-port 9 agent-inter 1s\n",
        socket.display(),
        o = origin.address(),
    );
    let proxy = Proxy::start(&text);
    let seed = 0x5eed_0000_u64;
    let result = under_load(&web.to_string(), || {
        std::thread::scope(|scope| {
            for peer in 0..PEERS {
                let socket = &socket;
                scope.spawn(move || converse(socket, Random(seed + peer as u64 + 1), COMMANDS / PEERS));
            }
        });
    });
    assert_clean(&result, &proxy.said());
    assert_eq!(proxy.status().panics, 0, "{}", proxy.said());
    assert!(socat(&socket, "show version\n").starts_with("2.6."));
}
