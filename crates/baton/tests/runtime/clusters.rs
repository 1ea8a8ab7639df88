//! Peers whose own circumstances change: arrays that traffic counts on both sides, another address after a reload or a takeover, a worker that
//! is killed, shards over TLS, and commands about peers that nobody reads.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use baton_prove::certificates::{Authority, CertificateSpec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sharing::{Place, TABLES, near, ports};
use crate::support::haproxy::Haproxy;
use crate::support::{PATIENCE, Proxy, until};

/// Requests of a client, each on its own connection.
#[track_caller]
fn requests(port: u16, paths: &[&str]) {
    for path in paths {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

/// Waits until a table is the same on both sides, with so many entries.
#[track_caller]
fn same(one: &Place, other: &Place, name: &str, count: usize) {
    until("the tables are equal", || {
        let (one, other) = (one.table(name), other.table(name));
        one.len() == count && one.keys().eq(other.keys()) && one.iter().all(|(key, values)| near(values, &other[key]))
    });
}

#[test]
fn arrays_that_traffic_counts_are_shared_with_haproxy() {
    let [a, b, web] = ports();
    let places = [Place::of([a, b, web]), Place::of([a, b, ports()[0]])];
    let rules = " http-request track-sc0 path,length table mp/number\n http-request sc-inc-gpc(1,0)\n http-request sc-inc-gpc(0,0) if { path_sub \
                 x }\n http-request sc-set-gpt(2,0) 9 if { path_sub x }\n http-request return status 200\n";
    let text = |place: &Place| place.text().replace(" http-request return status 200\n", rules);
    let name = |name: &'static str| ["-L", name].map(std::ffi::OsStr::new);
    let haproxy = Haproxy::start_with(&text(&places[1]), &places[1].socket(), &name("B"));
    let baton = Proxy::start_with(&text(&places[0]), &["-L", "A"]);
    until("a session", || places[0].is_connected() && places[1].is_connected());
    requests(places[0].ports[2], &["/1", "/1", "/22", "/22x"]);
    same(&places[0], &places[1], "mp/number", 3);
    // Other keys than those of the first: what both count at the same time has no right value.
    requests(places[1].ports[2], &["/4444", "/333x", "/55555x", "/55555x"]);
    same(&places[0], &places[1], "mp/number", 5);
    let numbers = places[0].table("mp/number");
    assert!(numbers["4"].starts_with("gpt0=0 gpt1=0 gpt2=9 gpc0=1 gpc1=1 "), "{numbers:?}");
    assert!(numbers["2"].starts_with("gpt0=0 gpt1=0 gpt2=0 gpc0=0 gpc1=2 "), "{numbers:?}");
    assert!(numbers["5"].starts_with("gpt0=0 gpt1=0 gpt2=9 gpc0=1 gpc1=2 "), "{numbers:?}");
    // Whoever is killed learns them from the other one.
    drop(haproxy);
    let haproxy = Haproxy::start_with(&text(&places[1]), &places[1].socket(), &name("B"));
    same(&places[0], &places[1], "mp/number", 5);
    baton.signal(Signal::SIGKILL);
    drop(baton);
    let baton = Proxy::start_with(&text(&places[0]), &["-L", "A"]);
    same(&places[0], &places[1], "mp/number", 5);
    drop((haproxy, baton));
}

fn set(place: &Place, number: u32) {
    place.types([format!("set table mp/ip key 10.0.0.{number} data.gpc0 {number}")]);
}

/// The peers' address is another one after a reload and after a takeover, and a master's worker is killed: links come back, and nothing is lost.
#[test]
fn links_come_back_after_another_address_a_takeover_and_a_crash() {
    let [a, b, web] = ports();
    let other = Place::of([a, b, ports()[0]]);
    let haproxy = other.haproxy("B");
    let mut place = Place::of([a, b, web]);
    let proxy = Proxy::start_with(&place.text(), &["-W", "-L", "A"]);
    until("a session", || place.is_connected());
    set(&place, 1);
    set(&other, 2);
    same(&place, &other, "mp/ip", 2);
    // A worker is killed.
    let worker = || match ask(Whom::Pid(proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => Some(status.pid),
        _ => None,
    };
    let before = worker().expect("it serves");
    kill(Pid::from_raw(before as i32), Signal::SIGKILL).expect("it lives");
    until("another worker serves", || worker().is_some_and(|pid| pid != before));
    assert_eq!(place.table("mp/ip").len(), 2, "the table is the master's");
    until("a session", || place.is_connected());
    set(&place, 3);
    set(&other, 4);
    same(&place, &other, "mp/ip", 4);
    // Another address, by a reload.
    let first = place.ports[0];
    place.ports[0] = ports()[0];
    proxy.change(&place.text());
    until("the old address is closed", || TcpStream::connect(("127.0.0.1", first)).is_err());
    assert!(TcpStream::connect(("127.0.0.1", place.ports[0])).is_ok());
    until("a session", || place.is_connected());
    set(&place, 5);
    set(&other, 6);
    same(&place, &other, "mp/ip", 6);
    // And another one, by a process that takes over.
    let next = Place::of([ports()[0], b, web]);
    let pid = proxy.pid().to_string();
    let second = Proxy::start_with(&next.text(), &["-L", "A", "-sf", &pid]);
    until("the process before has ended", || proxy.has_ended());
    until("a session", || next.is_connected());
    set(&next, 7);
    set(&other, 8);
    same(&next, &other, "mp/ip", 8);
    drop((second, haproxy));
}

#[test]
fn shards_are_spread_over_tls() {
    let names = ["A", "B", "C"];
    let listening = ports();
    let authority = Authority::new("Test").expect("an authority can be made");
    let issued = authority.issue(&CertificateSpec::server(["127.0.0.1"])).expect("a certificate");
    let places = [(); 3].map(|()| Place::of(ports()));
    let text = |folder: &Path, local: usize| {
        fs::write(folder.join("crt.pem"), issued.bundle_pem()).expect("the folder is ours");
        fs::write(folder.join("ca.pem"), authority.root_pem()).expect("the folder is ours");
        let dir = folder.display();
        let peers: String = (0..3)
            .map(|at| match at == local {
                true => format!(" server {}\n", names[at]),
                false => format!(" server {} 127.0.0.1:{} shard {at}\n", names[at], listening[at]),
            })
            .collect();
        format!(
            "global\n stats socket {dir}/s level admin\npeers mp\n shards 2\n bind 127.0.0.1:{} ssl crt {dir}/crt.pem\n default-server ssl \
             ca-file {dir}/ca.pem verify required\n{peers}{TABLES}frontend f\n mode http\n timeout client 5s\n bind 127.0.0.1:{}\n",
            listening[local], places[local].ports[2]
        )
    };
    let nodes: Vec<Proxy> =
        (0..3).map(|at| Proxy::start_with(&text(places[at].folder.path(), at), &["-L", names[at]])).collect();
    until("sessions", || places[0].peers().matches("last_status=ESTA").count() == 2);
    places[0].types((1..41).map(|number| format!("set table mp/ip key 10.0.0.{number} data.gpc0 {number}")));
    until("all are spread", || places[1].table("mp/ip").len() + places[2].table("mp/ip").len() == 40);
    let [all, one, two] = [0, 1, 2].map(|at| places[at].table("mp/ip"));
    assert!(!one.is_empty() && !two.is_empty());
    assert!(all.keys().all(|key| one.contains_key(key) != two.contains_key(key)), "{one:?} {two:?}");
    drop(nodes);
}

/// Readers that ask for the peers again and again and read nothing delay neither the peers nor other readers.
#[test]
fn commands_about_peers_that_nobody_reads_delay_nothing() {
    let [a, b, web] = ports();
    let (one, other) = (Place::of([a, b, web]), Place::of([a, b, ports()[0]]));
    let nodes = (one.baton("A"), other.baton("B"));
    until("a session", || one.is_connected());
    let lazy: Vec<UnixStream> = (0..8)
        .map(|_| {
            let stream = UnixStream::connect(one.socket()).expect("it listens");
            stream.set_nonblocking(true).expect("a socket");
            let commands = "show peers;show peers dict;".repeat(100) + "show peers\n";
            for _ in 0..50 {
                // It need not take all of them.
                if (&stream).write(commands.as_bytes()).is_err() {
                    break;
                }
            }
            stream
        })
        .collect();
    for number in 1..6 {
        set(&one, number);
        set(&other, 100 + number);
        same(&one, &other, "mp/ip", 2 * number as usize);
        assert!(one.peers().contains("id=B(remote,active)"));
    }
    drop((lazy, nodes));
}
