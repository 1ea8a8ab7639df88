//! Established connections go to the new process, and nobody notices; or they stay, and it is said why.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_control::handover::message::{Message, Staying, Take};
use baton_control::handover::record::{ConnectionRecord, FORMAT};

use crate::givers::Giver;
use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::tunnels::replaced;
use crate::{Client, config, get, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 6;
/// Kept connections, half of which are used all the time.
const KEPT: usize = 200;

#[test]
fn kept_connections_go_with_every_takeover_and_none_is_closed() {
    let (_origins, servers) = origins(2);
    let web = free_address();
    let mut now = Proxy::start(&config(web, &servers));
    let mut idle: Vec<Client> = (0..KEPT / 2).map(|_| Client::connect(web)).collect();
    idle.iter_mut().for_each(|client| drop(client.get("/")));
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = (0..4).map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let mut clients: Vec<Client> = (0..KEPT / 8).map(|_| Client::connect(web)).collect();
            let mut requests = 0;
            while !is_over.load(Ordering::Relaxed) {
                for client in &mut clients {
                    let answer = client.get("/");
                    assert!(!answer.contains("connection: close"), "{answer}");
                    requests += 1;
                }
            }
            (clients, requests)
        })
    });
    let busy: Vec<_> = busy.collect();
    until("all are there", || now.status().connections == KEPT);
    // The first one has the file.
    let before = replaced(&mut now, TAKEOVERS);
    assert_eq!(now.status().connections_staying, Default::default());
    is_over.store(true, Ordering::Relaxed);
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
    let mut requests = KEPT as u64 / 2;
    let mut clients = idle;
    for thread in busy {
        let (some, count) = thread.join().expect("no client was cut off");
        clients.extend(some);
        requests += count;
    }
    until("the last requests are counted", || frontend_counter(&now.status(), "web", "req_tot") == requests);
    let status = now.status();
    assert_eq!((status.connections, status.connections_arrived), (KEPT, KEPT as u64), "all of them");
    assert_eq!(frontend_counter(&status, "web", "conn_tot"), KEPT as u64, "each was counted once");
    clients.iter_mut().for_each(|client| drop(client.get("/")));
}

#[test]
fn what_is_known_of_a_connection_goes_with_it() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let text = config(web, &servers).replace(
        &format!("bind {web}"),
        &format!(
            "bind {web} accept-proxy\n http-response set-header x-known %[src]:%[src_port],%[dst]:%[dst_port],%[fc_rcvd_proxy]"
        ),
    );
    let old = Proxy::start(&text);
    let mut client = Client::connect(web);
    client.0.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 80\r\n").expect("it is open");
    let known = "x-known: 192.0.2.7:4711,198.51.100.9:80,1\r\n";
    assert!(client.get("/").contains(known));
    // A request that has begun to come goes on over there.
    let mut slow = Client::connect(web);
    slow.0.write_all(b"PROXY TCP4 192.0.2.8 198.51.100.9 4712 80\r\nGET / HTTP/1.1\r\nho").expect("it is open");
    until("both are known", || old.status().connections == 2);
    let new = old.replace(&[]);
    until("both have gone", || new.status().connections_arrived == 2);
    slow.0.write_all(b"st: x\r\n\r\n").expect("it is open");
    assert!(slow.answer().contains("x-known: 192.0.2.8:4712,198.51.100.9:80,1\r\n"));
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    assert!(client.get("/").contains(known));
    slow.get("/");
}

#[test]
fn what_cannot_move_stays_and_it_is_said_why() {
    let (_origins, servers) = origins(1);
    let (web, tracks, gone) = (free_address(), free_address(), free_address());
    let front = |name: &str, address: SocketAddr, rule: &str| {
        format!("frontend {name}\n bind {address}\n {rule}\n default_backend app\n")
    };
    // The new configuration has no such table.
    let table = "backend table\n stick-table type ip size 100 store conn_cur\n";
    let tracking = front("tracks", tracks, "tcp-request connection track-sc0 src table table");
    let text = config(web, &servers);
    let old = Proxy::start(&(text.clone() + table + &tracking + &front("gone", gone, "")));
    old.write(&(text + &front("tracks", tracks, "")));
    let mut clients = [web, tracks, gone].map(Client::connect);
    clients.iter_mut().for_each(|client| drop(client.get("/")));
    let new = old.replace(&[]);
    let expected = [("no-listener", 1), ("stick-counters", 1)];
    let expected = expected.map(|(reason, count)| (reason.to_owned(), count)).into();
    until("it is said", || new.status().connections_staying == expected);
    assert_eq!((old.status().connections_departed, new.status().connections_arrived), (1, 1));
    let [mut moved, rest @ ..] = clients;
    assert!(!moved.get("/").contains("connection: close"));
    for mut client in rest {
        assert!(client.get("/").contains("connection: close"));
    }
    assert!(old.wait().0.success());
    until("nothing stays", || new.status().connections_staying.is_empty());
}

#[test]
fn none_moves_where_either_configuration_says_so() {
    for (before, after) in [("off", "on"), ("on", "off")] {
        let (_origins, servers) = origins(1);
        let web = free_address();
        let with = |word: &str| config(web, &servers).replace("global\n", &format!("global\n tune.handover {word}\n"));
        let old = Proxy::start(&with(before));
        let mut client = Client::connect(web);
        client.get("/");
        old.write(&with(after));
        let new = old.replace(&[]);
        assert!(client.get("/").contains("connection: close"), "{before} and {after}");
        assert!(old.wait().0.success());
        assert_eq!(new.status().connections_arrived, 0);
    }
}

/// An old process with two kept connections, and one that takes over as far as that it is ready for connections.
fn offered() -> (Vec<baton_prove::OriginHandle>, Proxy, Taker, [Client; 2], u32) {
    let (origins, servers) = origins(1);
    let web = free_address();
    let text = config(web, &servers).replace(" nbthread 2\n", " nbthread 1\n");
    let old = Proxy::start(&text);
    let mut clients = [Client::connect(web), Client::connect(web)];
    clients.iter_mut().for_each(|client| drop(client.get("/")));
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    let offer = taker.hear_offer();
    let sources: Vec<_> = offer.connections.iter().map(|record| record.source).collect();
    assert_eq!(sources, clients.each_ref().map(|client| client.0.local_addr().ok()), "in the order of their places");
    (origins, old, taker, clients, offer.batch)
}

#[test]
fn the_new_process_is_killed_after_an_offer_and_nothing_is_lost() {
    let (_origins, old, taker, mut clients, _) = offered();
    drop(taker);
    for client in &mut clients {
        assert!(client.get("/").contains("connection: close"), "the old process has it still");
    }
    assert!(old.wait().0.success());
}

#[test]
fn the_new_process_is_killed_after_it_took_some_and_only_those_are_lost() {
    let (_origins, old, mut taker, [lost, mut kept], batch) = offered();
    taker.say(Message::Take(Take { batch, staying: vec![Staying { at: 1, reason: "full".into() }] }));
    until("it is given", || old.status().connections_departed == 1);
    assert_eq!(old.status().connections_staying, [("full".to_owned(), 1)].into());
    drop(taker);
    lost.closed();
    assert!(kept.get("/").contains("connection: close"), "the old process has it still");
    assert!(old.wait().0.success());
}

#[test]
fn a_connection_that_was_given_is_served_by_the_new_process_alone() {
    let (_origins, old, mut taker, [mut first, second], batch) = offered();
    taker.say(Message::Take(Take { batch, staying: Vec::new() }));
    assert!(matches!(taker.hear_no_report(), Message::Give(give) if give.descriptors == 2));
    drop(second);
    first.ask("/of-the-new-one");
    let mut socket = std::net::TcpStream::from(taker.given.remove(0));
    socket.set_nonblocking(false).expect("a socket");
    let mut request = [0; 64];
    let count = socket.read(&mut request).expect("the request");
    assert!(request[..count].starts_with(b"GET /of-the-new-one "), "nobody else read it");
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew").expect("it is open");
    assert!(first.answer().ends_with("new"));
    let (status, said) = old.wait();
    assert!(status.success(), "it has ended by now: {said}");
}

#[test]
fn a_new_process_that_hangs_gets_no_connection() {
    let (_origins, old, mut taker, mut clients, batch) = offered();
    // It does not reply, and the clients want something: they wait for as long as an offer holds.
    clients.iter_mut().for_each(|client| client.ask("/"));
    assert_eq!(taker.hear_no_report(), Message::Withdraw { batch });
    // It is too late.
    taker.say(Message::Take(Take { batch, staying: Vec::new() }));
    for client in &mut clients {
        assert!(client.answer().contains("connection: close"), "the old process has it still");
    }
    assert!(old.wait().0.success());
    assert!(taker.given.is_empty());
}

/// What the old process says of the one client it has, and what it hears.
pub fn offer(web: SocketAddr, format: u32, frontend: &str) -> ConnectionRecord {
    ConnectionRecord { format, frontend: frontend.into(), address: web.to_string(), ..ConnectionRecord::default() }
}

/// Plays an old process that fails at a step. Who answers the client then?
#[track_caller]
fn check_giver(step: &str, expect: Option<&str>) {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let mut giver = Giver::start(step, web, other);
    let mut client = Client::connect(web);
    let text = config(web, &servers).replace("default_backend", &format!("bind {other}\n default_backend"));
    let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    new.serves();
    match expect {
        Some(text) => {
            client.ask("/");
            let answer = client.answer();
            assert!(answer.starts_with("http/1.1 200") && answer.contains(text), "{step}: {answer}");
        }
        None => client.closed(),
    }
    get(other);
    until("it is alone", || new.status().connections_staying.is_empty());
    let arrived = u64::from(step == "moving-given");
    assert_eq!(new.status().connections_arrived, arrived, "{step}");
}

#[test]
fn the_old_process_fails_and_no_connection_is_served_twice() {
    check_giver("moving-offered", None);
    check_giver("moving-taken", None);
    check_giver("moving-given", Some("\"connection\":1"));
    check_giver("moving-withdrawn", Some("the giver"));
    check_giver("moving-refused", Some("the giver"));
}
