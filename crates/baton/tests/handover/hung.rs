//! A process is stopped while connections move, on either side, or a third one takes over meanwhile: each connection is served by one process,
//! and none is lost while its process lives.

use std::io::Write;
use std::net::SocketAddr;

use nix::sys::signal::Signal;

use crate::givers::Giver;
use crate::support::{Proxy, free_address, until};
use crate::{Client, config, get, origins};

/// A rule waits for bodies.
fn waiting(web: SocketAddr, servers: &[SocketAddr]) -> String {
    config(web, servers)
        .replace(" default_backend", " http-request wait-for-body time 60s if METH_POST\n default_backend")
}

/// A client for whose body a rule waits, so that its connection cannot move.
fn begun(web: SocketAddr) -> Client {
    let mut client = Client::connect(web);
    client.0.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na").expect("it is open");
    client
}

/// Its request ends.
#[track_caller]
fn ended(client: &mut Client) {
    client.0.write_all(b"b").expect("it is open");
    let answer = client.answer();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
}

#[test]
fn a_stopped_new_process_gets_no_connection_and_they_are_served_on() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&waiting(web, &servers));
    let mut clients = [begun(web), begun(web)];
    until("both are known", || old.status().connections == 2);
    let new = old.replace(&[]);
    new.signal(Signal::SIGSTOP);
    clients.iter_mut().for_each(ended);
    for client in &mut clients {
        assert!(client.get("/").contains("connection: close"), "the old process has it still");
    }
    new.signal(Signal::SIGCONT);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    get(web);
    assert_eq!(new.status().connections_arrived, 0);
}

#[test]
fn a_stopped_old_process_keeps_its_connections_until_it_goes_on() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&waiting(web, &servers));
    let mut slow = begun(web);
    until("it is known", || old.status().connections == 1);
    let new = old.replace(&[]);
    old.signal(Signal::SIGSTOP);
    (0..10).for_each(|_| _ = get(web));
    assert_eq!(new.status().connections_arrived, 0);
    old.signal(Signal::SIGCONT);
    ended(&mut slow);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    slow.get("/");
    assert_eq!(new.status().connections_arrived, 1);
}

#[test]
fn an_old_process_that_does_not_give_holds_nobody_up() {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let mut giver = Giver::start("moving-silent", web, other);
    let client = Client::connect(web);
    let text = config(web, &servers).replace("default_backend", &format!("bind {other}\n default_backend"));
    let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    new.serves();
    (0..10).for_each(|_| _ = get(other));
    drop(giver);
    client.closed();
    until("nothing is left of it", || new.status().connections == 0);
    assert_eq!(new.status().connections_arrived, 0);
}

#[test]
fn what_the_second_process_has_not_got_goes_to_the_third() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let first = Proxy::start(&waiting(web, &servers));
    let mut slow = begun(web);
    until("it is known", || first.status().connections == 1);
    let second = first.replace(&[]);
    let third = second.replace(&[]);
    let (status, said) = second.wait();
    assert!(status.success(), "{said}");
    ended(&mut slow);
    let (status, said) = first.wait();
    assert!(status.success(), "{said}");
    assert!(!slow.get("/").contains("connection: close"));
    assert_eq!(third.status().connections_arrived, 1);
}
