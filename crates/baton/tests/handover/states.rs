//! What rules have left in a session goes with it: variables, captures, counters of stick tables. Each connection is a current one of its
//! entry once, however often it moves.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use baton_control::handover::record::FORMAT;

use crate::peers::Taker;
use crate::support::{Proxy, free_address, until};
use crate::tunnels::{echo, exchange, replaced};
use crate::upgrades::{WEBSOCKET, open, upgrading};
use crate::{Client, get, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 3;
/// Clients of each kind.
const CLIENTS: usize = 20;

/// Frontends whose rules leave something; one more shows what the table counts.
struct Fronts {
    /// Kept connections and WebSockets.
    web: SocketAddr,
    /// Sessions in `mode tcp`.
    tcp: SocketAddr,
    probe: SocketAddr,
}

impl Fronts {
    fn new() -> Fronts {
        Fronts { web: free_address(), tcp: free_address(), probe: free_address() }
    }

    fn config(&self, http: SocketAddr, stream: SocketAddr) -> String {
        let Fronts { web, tcp, probe } = self;
        format!(
            "global\n nbthread 2\n maxconn 2000\n log stderr len 16000 format raw local0\ndefaults\n mode http\n log global\n \
             timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             frontend web\n bind {web}\n option dontlog-normal\n tcp-request connection track-sc0 src table counts\n \
             tcp-request connection set-var(sess.ip) src\n \
             http-request set-var(sess.n) var(sess.n),add(1) if {{ var(sess.n) -m found }}\n \
             http-request set-var(sess.n) int(1) if !{{ var(sess.n) -m found }}\n \
             http-response set-header x-known %[var(sess.n)],%[var(sess.ip)],%[sc0_conn_cur]\n \
             use_backend upgrades if {{ path /ws }}\n default_backend app\n\
             frontend sockets\n bind {tcp} name both\n unique-id-format id-%{{+X}}o%ci\n unique-id-header x-id\n \
             capture request header host len 10\n capture response header upgrade len 20\n \
             http-request track-sc1 src table counts\n http-request set-var(txn.text) str(\"a b\")\n \
             http-request set-var(txn.number) int(-7)\n http-request set-var(txn.bytes) bin(00ff0a)\n \
             http-request set-var(txn.method) method\n http-request set-var(sess.on) bool(true)\n \
             http-request set-log-level warning\n http-request allow\n \
             log-format \"sockets %hr %hs %ID %[var(txn.text)] %[var(txn.number)] %[var(txn.bytes),hex] %[var(txn.method)] \
             %[var(sess.on)] %[last_rule_line] %[sc1_conn_cnt(counts)] %HU %ts\"\n default_backend upgrades\n\
             frontend probe\n bind {probe}\n \
             http-request return status 200 content-type text/plain lf-string \"current %[src,table_conn_cur(counts)].\"\n\
             backend counts\n stick-table type ip size 100 expire 1h store conn_cur,conn_cnt\n\
             backend app\n server s0 {http}\nbackend upgrades\n server s0 {stream}\n \
             http-request set-timeout tunnel 800ms if {{ path /short }}\n"
        )
    }

    /// How many current connections the table counts.
    fn current(&self) -> usize {
        let response = get(self.probe);
        let (_, rest) = response.split_once("current ").expect("what was asked for");
        rest.trim_end_matches('.').parse().expect("a number")
    }
}

#[test]
fn variables_and_counters_of_sessions_go_with_every_takeover() {
    let (_origins, servers) = origins(1);
    let fronts = Fronts::new();
    let mut now = Proxy::start(&fronts.config(servers[0], upgrading()));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(fronts.web)).collect();
    clients.iter_mut().for_each(|client| drop(client.get("/")));
    let mut sockets: Vec<TcpStream> = (0..CLIENTS).map(|_| open(fronts.web, WEBSOCKET)).collect();
    let mut others: Vec<TcpStream> = (0..CLIENTS).map(|_| open(fronts.tcp, WEBSOCKET)).collect();
    let before = replaced(&mut now, TAKEOVERS);
    let all = 3 * CLIENTS;
    until("each is counted once", || fronts.current() == all);
    for client in &mut clients {
        let response = client.get("/");
        assert!(response.contains(&format!("x-known: 2,127.0.0.1,{all}\r\n")), "{response}");
    }
    sockets.iter_mut().chain(&mut others).for_each(|stream| _ = exchange(stream, 1));
    assert_eq!(now.status().connections_staying, Default::default());
    // Some end after they have moved, and the others move once more.
    clients.truncate(CLIENTS / 2);
    sockets.truncate(CLIENTS / 2);
    others.truncate(CLIENTS / 2);
    until("those that have ended are not counted", || fronts.current() == all / 2);
    let last = replaced(&mut now, 1);
    until("each is counted once", || fronts.current() == all / 2);
    drop((clients, sockets, others));
    until("none is left", || fronts.current() == 0);
    for old in before.into_iter().chain(last) {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
    assert_eq!(fronts.current(), 0, "those that have ended took nothing with them");
}

#[test]
fn the_line_has_what_rules_had_captured_and_set() {
    let fronts = Fronts::new();
    let mut now = Proxy::start(&fronts.config(echo(), upgrading()));
    // Its request line is longer than any that older processes take.
    let long = WEBSOCKET.replace("/ws", &format!("/{}", "w".repeat(6000)));
    let lines = |proxy: &Proxy| -> Vec<String> {
        proxy.said().lines().filter(|line| line.contains("sockets {x}")).map(str::to_owned).collect()
    };
    let mut stream = open(fronts.tcp, &long);
    exchange(&mut stream, 1);
    drop(stream);
    until("it is logged", || lines(&now).len() == 1);
    let expect = lines(&now).pop().expect("a line");
    let known = ["{websocket}", " id-", " a b -7 00FF0A GET 1 ", " /wwww"];
    assert!(known.iter().all(|part| expect.contains(part)), "{expect}");
    let mut stream = open(fronts.tcp, &long);
    // The first one has the file.
    let mut before = replaced(&mut now, 2);
    exchange(&mut stream, 1);
    drop(stream);
    until("it is logged", || lines(&now).len() == 1);
    // It was the second one that was tracked.
    assert_eq!(lines(&now).pop().expect("a line"), expect.replace(" 1 /www", " 2 /www"));
    // A timeout that a rule has set holds in the process that goes on.
    let mut short = open(fronts.tcp, &WEBSOCKET.replace("/ws", "/short"));
    before.extend(replaced(&mut now, 1));
    assert_eq!(short.read(&mut [0; 10]).expect("an end long before that of the configuration"), 0);
}

#[test]
fn a_process_that_knows_nothing_of_this_gets_no_such_connection() {
    let (_origins, servers) = origins(1);
    let fronts = Fronts::new();
    let text = fronts.config(servers[0], upgrading()).replace("tcp-request connection track-sc0 src table counts", "");
    let old = Proxy::start(&text);
    let mut client = Client::connect(fronts.web);
    client.get("/");
    let mut socket = open(fronts.tcp, WEBSOCKET);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    let expect = [("stick-counters".to_owned(), 1), ("variables".to_owned(), 1)].into();
    until("it is said", || old.status().connections_staying == expect);
    assert!(client.get("/").contains("connection: close"));
    exchange(&mut socket, 1);
    drop((socket, taker));
    assert!(old.wait().0.success());
}

#[test]
fn a_session_that_comes_back_is_as_it_was() {
    let fronts = Fronts::new();
    let text = fronts.config(echo(), upgrading());
    let old = Proxy::start(&text);
    // The new configuration has no such server.
    old.write(&text.replace("backend upgrades\n server s0 ", "backend upgrades\n server s1 "));
    let mut socket = open(fronts.tcp, WEBSOCKET);
    exchange(&mut socket, 1);
    let new = old.replace(&[]);
    until("it is said", || new.status().connections_staying == [("no-server".to_owned(), 1)].into());
    until("it is counted once", || fronts.current() == 1);
    exchange(&mut socket, 2);
    drop(socket);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    let line = said.lines().find(|line| line.contains("sockets {x}")).expect("it is logged here");
    assert!(line.contains(" a b -7 00FF0A GET 1 "), "{line}");
    until("none is left", || fronts.current() == 0);
}
