//! Idle connections to servers with HTTP/2 go to the new process: header tables, settings and windows are in step over there, and a takeover
//! opens none.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_control::handover::kinds::{MoveKind, MoveKinds};
use baton_control::handover::message::Message;
use baton_control::handover::record::FORMAT;

use crate::http2::marking;
use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::tunnels::replaced;
use crate::{Client, in_flight, origins, tls};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;

/// A load balancer as the server, which says the mark of each request again; by a `bind` with these words.
fn behind(inner: SocketAddr, bind: &str, servers: &[SocketAddr]) -> Proxy {
    Proxy::start(&marking(inner, servers).replace(&format!(" bind {inner}\n"), &format!(" bind {inner} {bind}\n")))
}

/// The one that is taken over: one thread, and a server with these words.
fn before(web: SocketAddr, inner: SocketAddr, words: &str) -> String {
    crate::config(web, &[inner])
        .replace(" nbthread 2\n", " nbthread 1\n")
        .replace(&format!(" {inner}\n"), &format!(" {inner} {words} pool-purge-delay 10m\n"))
}

fn ask(client: &mut Client, mark: &str) {
    let head =
        format!("GET /bytes/1000 HTTP/1.1\r\nhost: test\r\nx-mark: {mark}\r\nx-same: for ever and a day\r\n\r\n");
    client.0.write_all(head.as_bytes()).expect("it is open");
}

#[track_caller]
fn get(client: &mut Client, mark: &str) {
    ask(client, mark);
    let answer = client.answer();
    assert!(answer.starts_with("http/1.1 200") && answer.contains(&format!("\r\nx-mark: {mark}\r\n")), "{answer}");
}

#[track_caller]
fn go_with_every_takeover(bind: &str, words: &str) {
    let (_origins, servers) = origins(1);
    let (web, inner) = (free_address(), free_address());
    let server = behind(inner, bind, &servers);
    let mut now = Proxy::start(&before(web, inner, words));
    let mut client = Client::connect(web);
    let mut ended = Vec::new();
    for round in 0..TAKEOVERS {
        get(&mut client, &format!("number {} of round {round}", round % 2));
        get(&mut client, "the same");
        ended.extend(replaced(&mut now, 1));
        assert_eq!(now.status().server_connections_arrived, 1, "round {round}");
    }
    get(&mut client, "the same");
    assert_eq!(frontend_counter(&server.status(), "web", "conn_tot"), 1, "it was opened once");
    let answered = || frontend_counter(&server.status(), "web", "req_tot") == 2 * TAKEOVERS as u64 + 1;
    until("all went over it", answered);
    ended.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[test]
fn connections_go_with_every_takeover_and_stay_in_step() {
    go_with_every_takeover("proto h2", "proto h2");
}

#[test]
fn connections_over_tls_go_with_every_takeover_and_stay_in_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = tls::certificate(folder.path());
    for version in ["TLSv1.2", "TLSv1.3"] {
        let bind = format!("ssl crt {certificate} alpn h2 ssl-min-ver {version} ssl-max-ver {version}");
        go_with_every_takeover(&bind, "ssl verify none alpn h2,http/1.1");
    }
}

#[test]
fn a_connection_follows_when_the_request_on_it_is_over() {
    let (web, inner, is_over) = (free_address(), free_address(), Arc::new(AtomicBool::new(false)));
    let server = behind(inner, "proto h2", &[in_flight::origin(is_over.clone())]);
    let old = Proxy::start(&before(web, inner, "proto h2"));
    let mut client = Client::connect(web);
    client.ask("/poll");
    until("it is at the server", || server.status().backends[0].servers[0].open == 1);
    let new = old.replace(&[]);
    is_over.store(true, Ordering::Relaxed);
    assert!(client.answer().starts_with("http/1.1 200"));
    until("all has moved", || old.has_ended());
    assert_eq!((new.status().connections_arrived, new.status().server_connections_arrived), (1, 1));
    client.get("/");
    assert_eq!(frontend_counter(&server.status(), "web", "conn_tot"), 1);
    assert!(old.wait().0.success());
}

#[test]
fn a_connection_that_was_opened_by_other_settings_is_closed() {
    let (_origins, servers) = origins(1);
    let (web, inner) = (free_address(), free_address());
    let server = behind(inner, "proto h2", &servers);
    let old = Proxy::start(&before(web, inner, "proto h2"));
    let mut client = Client::connect(web);
    get(&mut client, "1");
    old.write(&before(web, inner, "proto h2 source 127.0.0.1"));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    until("it is closed", || server.status().connections == 0);
    assert_eq!(new.status().server_connections_arrived, 0);
    get(&mut client, "2");
}

#[test]
fn a_process_gets_them_only_if_it_takes_them() {
    let check = |kinds: &[MoveKind], comes: bool| {
        let (_origins, servers) = origins(1);
        let (web, inner) = (free_address(), free_address());
        let server = behind(inner, "proto h2", &servers);
        let old = Proxy::start(&before(web, inner, "proto h2"));
        let mut client = Client::connect(web);
        get(&mut client, "1");
        let mut taker = Taker::ask(old.pid());
        taker.receive_all();
        let kinds: MoveKinds = kinds.iter().copied().collect();
        taker.ready_with(FORMAT, kinds);
        if comes {
            let Message::Servers(servers) = taker.hear_no_report() else { panic!("a server comes") };
            let [record] = &servers.servers[..] else { panic!("{servers:?}") };
            assert_eq!((record.needs, record.http2.is_some(), record.requests), (kinds, true, 1));
        }
        taker.hear_offer();
        assert_eq!(taker.given.len(), usize::from(comes));
        // The old one serves on by itself.
        let given = std::mem::take(&mut taker.given);
        drop(taker);
        get(&mut client, "2");
        drop(client);
        assert!(old.wait().0.success());
        assert_eq!(server.status().connections, given.len(), "nothing is said on what was given");
        drop(given);
        until("it is closed", || server.status().connections == 0);
    };
    check(&[MoveKind::ServerPools, MoveKind::Http2Servers], true);
    check(&[MoveKind::ServerPools], false);
}
