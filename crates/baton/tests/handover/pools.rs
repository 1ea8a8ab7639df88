//! Idle connections to servers go to the new process: a takeover opens none, and none is used that was opened by other settings.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_control::handover::kinds::{MoveKind, MoveKinds};
use baton_control::handover::message::Message;
use baton_control::handover::record::FORMAT;
use baton_prove::OriginHandle;

use crate::peers::Taker;
use crate::support::{Proxy, free_address, until};
use crate::tunnels::replaced;
use crate::{Client, config, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Clients that ask all the time.
const CLIENTS: usize = 8;

/// One thread, so that what is idle is there for every request.
fn one_thread(web: SocketAddr, servers: &[SocketAddr]) -> String {
    config(web, servers).replace(" nbthread 2\n", " nbthread 1\n")
}

/// An old process with one idle connection to its server, and the client that it was opened for.
fn kept() -> (OriginHandle, SocketAddr, Proxy, Client) {
    let (mut origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&one_thread(web, &servers));
    let mut client = Client::connect(web);
    client.get("/");
    (origins.remove(0), web, old, client)
}

#[test]
fn a_takeover_under_load_opens_no_connection_to_a_server() {
    let (origins, servers) = origins(1);
    let web = free_address();
    let mut now = Proxy::start(&one_thread(web, &servers));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = (0..CLIENTS).map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(web);
            while !is_over.load(Ordering::Relaxed) {
                client.get("/");
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    until("all have asked", || origins[0].requests() > 2000);
    let before = replaced(&mut now, TAKEOVERS);
    let (status, requests) = (now.status(), origins[0].requests());
    until("they go on", || origins[0].requests() > requests + 1000);
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    // As many as there were requests at once, since the first process began.
    assert!(origins[0].connections() <= CLIENTS as u64, "{}", origins[0].connections());
    assert!(status.server_connections_arrived > 0, "they came");
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
}

#[test]
fn a_connection_goes_with_what_it_has_carried() {
    let (origins, servers) = origins(1);
    let web = free_address();
    let mut now = Proxy::start(&(one_thread(web, &servers).trim_end().to_owned() + " max-reuse 3\n"));
    let mut client = Client::connect(web);
    // The first process has the file.
    let mut before = Vec::new();
    for count in 1..=9_u64 {
        client.get("/");
        // Four requests go over each.
        assert_eq!(origins[0].connections(), count.div_ceil(4), "{count}");
        before.extend(replaced(&mut now, usize::from(count.is_multiple_of(2))));
    }
}

#[test]
fn the_page_shows_what_has_moved() {
    let (_origins, servers) = origins(1);
    let (web, page) = (free_address(), free_address());
    let text = one_thread(web, &servers) + &format!("listen page\n bind {page}\n stats enable\n stats uri /\n");
    let old = Proxy::start(&text);
    let mut client = Client::connect(web);
    client.get("/");
    let new = old.replace(&[]);
    until("both have moved", || {
        let status = new.status();
        (status.connections_arrived, status.server_connections_arrived) == (1, 1)
    });
    let mut events = Client::connect(page);
    events.ask("/;events");
    let mut shown = String::new();
    while !shown.contains("\"moved\":") {
        let mut some = [0; 4096];
        let count = events.0.read(&mut some).expect("it goes on");
        assert!(count > 0, "{shown}");
        shown += &String::from_utf8_lossy(&some[..count]);
    }
    let moved = shown.split("\"moved\":").nth(1).unwrap_or_default();
    assert!(moved.starts_with("{\"arrived\":1,\"departed\":0,\"servers_arrived\":1,"), "{moved}");
}

#[test]
fn a_connection_that_was_opened_by_other_settings_is_closed() {
    let (origin, web, old, mut client) = kept();
    old.write(&(one_thread(web, &[origin.address()]).trim_end().to_owned() + " source 127.0.0.1\n"));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    until("it is closed", || origin.open() == 0);
    assert_eq!(new.status().server_connections_arrived, 0);
    client.get("/");
    assert_eq!(origin.connections(), 2);
}

#[test]
fn the_new_process_has_the_connection_alone_and_takes_it_along_when_it_dies() {
    let (origin, _, old, _client) = kept();
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    let pools: MoveKinds = [MoveKind::ServerPools].into_iter().collect();
    taker.ready_with(FORMAT, pools);
    let Message::Servers(servers) = taker.hear_no_report() else { panic!("servers come before clients") };
    let [record] = &servers.servers[..] else { panic!("{servers:?}") };
    assert_eq!((&*record.backend, &*record.server, record.requests), ("app", "s0", 1));
    until("it is counted", || old.status().server_connections_departed == 1);
    let mut stream = TcpStream::from(taker.given.remove(0));
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is open");
    let mut response = [0; 12];
    stream.read_exact(&mut response).expect("a response");
    assert_eq!(&response, b"HTTP/1.1 200");
    assert_eq!((origin.connections(), origin.open()), (1, 1));
    drop((stream, taker));
    until("nobody has it any more", || origin.open() == 0);
}

#[test]
fn a_process_that_does_not_take_them_gets_none() {
    let (origin, _, old, mut client) = kept();
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    taker.hear_offer();
    drop(taker);
    client.get("/");
    assert_eq!(origin.connections(), 1, "the old process has it still");
    assert!(old.wait().0.success());
}
