//! Servers whose addresses come from name servers at run time, by a whole process. Compared with haproxy where both have a result.

mod hostile;
mod moving;
mod name_server;
mod renaming;
mod resolving;
mod secure;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::name_server::{HOSTILE, Knot, Manner, Scripted};
use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};

fn config(folder: &Path, web: SocketAddr, name_server: SocketAddr, backends: &str) -> String {
    format!(
        "global\n nbthread 1\n stats timeout 20s\n stats socket {}/admin.sock level admin\n\
         resolvers r\n nameserver n1 {name_server}\n hold nx 300ms\n hold other 300ms\n hold refused 300ms\n \
         hold timeout 300ms\n hold obsolete 300ms\n timeout resolve 100ms\n timeout retry 100ms\n accepted_payload_size 8192\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n default_backend app\n{backends}",
        folder.display()
    )
}

/// Name, address, states, weights, host, port and SRV name of every server.
fn servers(socket: &Path) -> Vec<String> {
    let text = socat(socket, "show servers state\n");
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(' ').collect();
        [1, 3, 4, 5, 6, 7, 8, 17, 18, 19].map(|at| columns.get(at).copied().unwrap_or_default()).join(" ")
    };
    text.lines().skip(2).filter(|line| !line.is_empty()).map(row).collect()
}

/// Those of templates without their names, in an order of their own: which record is for which server is nobody's promise. What is left of a record
/// in a server that has none is not shown.
fn of_templates(rows: &[String]) -> Vec<String> {
    let mut rows: Vec<String> = rows
        .iter()
        .filter(|row| is_of_templates(row))
        .map(|row| row.split(' ').skip(2).collect::<Vec<_>>())
        .map(|row| if row[0] == "-" { "-".to_owned() } else { row.join(" ") })
        .collect();
    rows.sort();
    rows
}

fn is_of_templates(row: &str) -> bool {
    ["srv ", "plain ", "many "].iter().any(|name| row.starts_with(name))
}

fn others(rows: &[String]) -> Vec<String> {
    rows.iter().filter(|row| !is_of_templates(row)).cloned().collect()
}

fn statistics(socket: &Path) -> Vec<String> {
    let text = socat(socket, "show stat -1 4 -1\n");
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        [0, 1, 17, 73].map(|at| columns.get(at).copied().unwrap_or_default()).join(" ")
    };
    text.lines().map(row).filter(|row| !is_of_templates(row)).collect()
}

const BACKENDS: &str = "backend app\n\
     default-server resolvers r init-addr none resolve-prefer ipv4\n \
     server a a.test:80\n server six six.test:80\n server both both.test:80 resolve-prefer ipv6\n server cn cn.test:81\n \
     server nx nx.test:80\n server net net.test:80 resolve-net 127.1.0.0/16\n\
     backend many\n server-template m 4 many.test:80 resolvers r init-addr none resolve-prefer ipv4\n\
     backend same\n server-template d 2 a.test:80 resolvers r init-addr none resolve-prefer ipv4 resolve-opts allow-dup-ip\n\
     backend srv\n server-template s 4 _app._tcp.test resolvers r init-addr none resolve-prefer ipv4\n\
     backend plain\n server-template p 3 _app._tcp.test resolvers r init-addr none resolve-opts ignore-weight weight 7\n";

/// The zone at each step, and how haproxy and Baton have the servers in the end.
const STEPS: [&str; 6] = [
    "a A 127.0.0.11\nsix AAAA ::1\nboth A 127.0.0.12\nboth AAAA ::1\ncn CNAME a\nnet A 127.0.0.13\nnet A 127.1.0.13\n\
     many A 127.0.0.21\nmany A 127.0.0.22\n_app._tcp SRV 1 10 8001 t1\n_app._tcp SRV 1 300 8002 t2\nt1 A 127.0.0.31\nt2 A 127.0.0.32",
    // Other addresses, one more service, and one with another weight.
    "a A 127.0.0.14\nsix AAAA ::1\nboth A 127.0.0.12\ncn CNAME both\nnet A 127.0.0.13\nnx A 127.0.0.15\n\
     many A 127.0.0.22\nmany A 127.0.0.23\nmany A 127.0.0.24\n_app._tcp SRV 1 600 8001 t1\n_app._tcp SRV 1 300 8002 t2\n\
     _app._tcp SRV 1 0 8003 t3\nt1 A 127.0.0.31\nt2 A 127.0.0.33\nt3 A 127.0.0.34",
    // Records go.
    "six A 127.0.0.16\nboth AAAA ::1\nmany A 127.0.0.24\n_app._tcp SRV 1 300 8002 t2\nt2 A 127.0.0.33",
    // Nothing is left.
    "other A 127.0.0.1",
    // They come back.
    "a A 127.0.0.11\nsix AAAA ::1\nboth AAAA ::1\ncn CNAME a\nnet A 127.0.0.13\nmany A 127.0.0.21\nmany A 127.0.0.22\n\
     _app._tcp SRV 1 10 8001 t1\nt1 A 127.0.0.31",
    // A host of a service without an address, and another port of one.
    "a A 127.0.0.11\n_app._tcp SRV 1 10 8009 t1\n_app._tcp SRV 1 10 8002 t2\nt1 A 127.0.0.31",
];

#[test]
fn servers_have_what_haproxy_gives_them() {
    let mut knot = Knot::start(STEPS[0]);
    let (ours, theirs) = (free_address(), free_address());
    let address = knot.address;
    let both = Both::start_each(
        |folder| config(folder, ours, address, BACKENDS),
        |folder| config(folder, theirs, address, BACKENDS),
    );
    let (baton, haproxy) = (both.baton("admin.sock"), both.haproxy("admin.sock"));
    let settle = |step: &str, is_so: &dyn Fn(&[String]) -> bool| {
        let end = Instant::now() + PATIENCE;
        loop {
            let (one, other) = (servers(&baton), servers(&haproxy));
            let is_same = others(&one) == others(&other) && of_templates(&one) == of_templates(&other);
            if is_same && is_so(&one) && statistics(&baton) == statistics(&haproxy) {
                return;
            }
            let differ = |one: &[String], other: &[String]| -> Vec<String> {
                one.iter().filter(|row| !other.contains(row)).cloned().collect()
            };
            assert!(
                Instant::now() < end,
                "step {step}: Baton has\n{:#?}\nhaproxy has\n{:#?}\n{:#?}\n{:#?}",
                differ(&one, &other),
                differ(&other, &one),
                differ(&statistics(&baton), &statistics(&haproxy)),
                differ(&statistics(&haproxy), &statistics(&baton)),
            );
            thread::sleep(Duration::from_millis(50));
        }
    };
    let has = |row: &'static str| move |rows: &[String]| rows.iter().any(|one| one.starts_with(row));
    settle("0", &|rows| {
        has("app a 127.0.0.11 2 0 1 1 a.test 80")(rows)
            && of_templates(rows).iter().filter(|row| *row != "-").count() == 6
    });
    for (step, row) in [
        (1, "app nx 127.0.0.15"),
        (2, "app a - 0 32"),
        (3, "app six - 0 32"),
        (4, "app a 127.0.0.11"),
        (5, "app net - 0 32"),
    ] {
        knot.change(STEPS[step]);
        settle(&step.to_string(), &has(row));
    }
    knot.stop();
    settle("stopped", &has("app a - 0 32"));
    knot.serve();
    settle("back", &has("app a 127.0.0.11"));
}

/// The value of a counter of the only name server.
fn counter(socket: &Path, name: &str) -> u64 {
    let text = socat(socket, "show resolvers r\n");
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{name}:")));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)).and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[test]
fn a_hostile_name_server_changes_nothing() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.41"]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = "backend app\n server s1 app.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let text = config(folder.path(), web, dns.address, backend);
    let text = text.replace("obsolete 300ms", "obsolete 0").replace("300ms", "1h");
    let proxy = Proxy::start(&text);
    let socket = folder.path().join("admin.sock");
    let has = |address: &str| servers(&socket)[0].starts_with(&format!("app s1 {address} "));
    until("it has its address", || has("127.0.0.41"));
    for (manner, name) in HOSTILE {
        let before = counter(&socket, name);
        dns.behave(manner);
        until(&format!("{manner:?} is counted"), || counter(&socket, name) > before + 3);
        assert!(has("127.0.0.41"), "{manner:?}: {:?}", servers(&socket));
        dns.behave(Manner::Good);
        let valid = counter(&socket, "valid");
        until("it is good again", || counter(&socket, "valid") > valid + 1);
    }
    dns.addresses("app.test", &["127.0.0.42"]);
    until("a good response counts", || has("127.0.0.42"));
    until("it is logged", || proxy.said().contains("changed its IP from 127.0.0.41 to 127.0.0.42 by r/n1."));
    assert!(!proxy.said().contains("127.66.66.66"), "{}", proxy.said());
    let said = proxy.said();
    assert!(said.contains("app/s1 changed its IP from (none) to 127.0.0.41 by r/n1."), "{said}");
}

#[test]
fn five_hundred_services_come_by_tcp_when_they_do_not_fit() {
    let dns = Scripted::start();
    let list = |from: u16| (from..from + 500).map(|n| (10, 1000 + n, format!("h{}.test", n % 40))).collect::<Vec<_>>();
    (0..40).for_each(|n| dns.addresses(&format!("h{n}.test"), &[&format!("127.0.1.{n}")]));
    dns.services("_app._tcp.test", list(0));
    dns.behave(Manner::Truncated);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = "backend app\n server-template s 500 _app._tcp.test resolvers r init-addr none resolve-prefer ipv4\n";
    let proxy = Proxy::start(
        &config(folder.path(), web, dns.address, backend).replace("300ms", "10s").replace("obsolete 10s", "obsolete 0"),
    );
    let socket = folder.path().join("admin.sock");
    let with_address = || servers(&socket).iter().filter(|row| row.contains(" 127.0.1.")).count();
    until("all have an address", || with_address() == 500);
    assert!(counter(&socket, "truncated") > 0);
    let before = servers(&socket);
    dns.services("_app._tcp.test", list(100));
    let other = || servers(&socket).iter().zip(&before).filter(|(now, before)| now != before).count();
    until("a hundred are others", || other() == 100 && with_address() == 500);
    // By a name server that is asked by TCP alone.
    proxy.change(&config(folder.path(), web, dns.address, backend).replace("nameserver n1 ", "nameserver t1 tcp@"));
    dns.services("_app._tcp.test", list(100).into_iter().take(3).collect());
    until("three are left", || with_address() == 3);
}

#[test]
fn five_hundred_services_by_tcp_are_the_servers_that_haproxy_has() {
    let services = |from: usize, weight: usize| {
        let one = |n: usize| format!("_app._tcp SRV 1 {weight} {} h{}", 1000 + n, n % 40);
        let hosts = (0..40).map(|n| format!("h{n} A 127.0.1.{n}"));
        (from..from + 500).map(one).chain(hosts).collect::<Vec<_>>().join("\n")
    };
    let knot = Knot::start(&services(0, 10));
    let (ours, theirs, address) = (free_address(), free_address(), knot.address);
    let backend = "backend app\n server-template s 500 _app._tcp.test resolvers r init-addr none resolve-prefer ipv4\n";
    let text = |folder: &Path, web| {
        let text = config(folder, web, address, backend)
            .replace("nameserver n1 ", "nameserver n1 tcp@")
            .replace("8192", "65535");
        text.replace("timeout retry 100ms", "timeout retry 5s")
            .replace(&format!("tcp@{address}"), &format!("tcp@{address} source 127.0.0.1 maxconn 2"))
    };
    let both = Both::start_each(|folder| text(folder, ours), |folder| text(folder, theirs));
    let places = |socket: &Path| {
        let row = |row: &String| row.split(' ').skip(2).collect::<Vec<_>>().join(" ");
        let mut rows: Vec<String> = servers(socket).iter().map(row).collect();
        rows.sort();
        rows
    };
    let settle = |what: &str, is_so: &dyn Fn(&[String]) -> bool| {
        until(what, || {
            let rows = places(&both.baton("admin.sock"));
            is_so(&rows) && rows == places(&both.haproxy("admin.sock"))
        });
    };
    settle("all are there", &|rows| rows.iter().all(|row| row.starts_with("127.0.1.")));
    knot.change(&services(100, 600));
    let is_new = |row: &String| row.starts_with("127.0.1.") && row.contains(" 64 3 1 ");
    settle("a hundred are others, and all weights", &|rows| rows.iter().all(is_new));
}

/// An origin at an address, which says that address.
fn origin(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("an address of the loopback network");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    let body = address.ip().to_string();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A response on a kept connection.
fn get(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        response.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&response);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Ok(text.into_owned());
            }
        }
    }
}

#[test]
fn no_request_fails_while_names_change_all_the_time() {
    let dns = Scripted::start();
    let port = free_address().port();
    let places = ["127.0.0.51", "127.0.0.52", "127.0.0.53"];
    places.iter().for_each(|place| origin(format!("{place}:{port}").parse().expect("an address")));
    dns.addresses("app.test", &places[..2]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend =
        format!("backend app\n server-template s 3 app.test:{port} resolvers r init-addr none resolve-prefer ipv4\n");
    let text = config(folder.path(), web, dns.address, &backend)
        .replace("100ms", "20ms")
        .replace("obsolete 300ms", "obsolete 0");
    let proxy = Proxy::start(&text);
    let socket = folder.path().join("admin.sock");
    until("two have an address", || servers(&socket).iter().filter(|row| row.contains(" 127.0.0.5")).count() == 2);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                let (mut count, mut seen) = (0, std::collections::BTreeSet::new());
                let mut stream = TcpStream::connect(web).expect("it listens");
                while !is_over.load(Ordering::Relaxed) {
                    let response = get(&mut stream).expect("a response");
                    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                    seen.insert(response.rsplit("\r\n").next().unwrap_or_default().to_owned());
                    count += 1;
                }
                (count, seen)
            })
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(4);
    let mut round = 0;
    while Instant::now() < end && clients.iter().all(|client| !client.is_finished()) {
        round += 1;
        let some: Vec<&str> = (0..1 + round % 2).map(|at| places[(round + at) % 3]).collect();
        let updates = counter(&socket, "valid");
        dns.addresses("app.test", &some);
        until("it was asked again", || counter(&socket, "valid") > updates + 1);
    }
    is_over.store(true, Ordering::Relaxed);
    let results: Vec<_> =
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| panic!("{}", proxy.said()))).collect();
    let count: usize = results.iter().map(|(count, _)| count).sum();
    let seen: std::collections::BTreeSet<_> = results.into_iter().flat_map(|(_, seen)| seen).collect();
    assert!(count > 100 && round > 5 && seen.len() == 3, "{count} requests, {round} changes, {seen:?}");
}

#[test]
fn addresses_outlive_reloads_takeovers_and_crashes() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.61"]);
    dns.addresses("t.test", &["127.0.0.62"]);
    dns.services("_app._tcp.test", vec![(300, 8001, "t.test".to_owned())]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backends = "backend app\n server a app.test:80 resolvers r init-addr none resolve-prefer ipv4\n \
                    server-template s 2 _app._tcp.test resolvers r init-addr none resolve-prefer ipv4\n";
    let text = config(folder.path(), web, dns.address, backends).replace("300ms", "1h");
    let mut proxy = Proxy::begin(&[], &text, &["-W"]);
    proxy.serves();
    let socket = folder.path().join("admin.sock");
    let expect = [
        "app a 127.0.0.61 2 0 1 1 app.test 80 -",
        "app s1 127.0.0.62 2 64 2 1 t.test 8001 _app._tcp.test",
        "app s2 - 0 32 1 1 - 0 _app._tcp.test",
    ];
    until("they have addresses", || servers(&socket) == expect);
    dns.behave(Manner::Silent);
    proxy.change(&text.replace("timeout client 30s", "timeout client 31s"));
    assert_eq!(servers(&socket), expect, "after a reload");
    // The worker dies, and the next one begins with what the last one knew.
    let worker = || {
        let text = socat(&socket, "show info\n");
        let line = text.lines().find_map(|line| line.strip_prefix("Pid: "));
        line.and_then(|pid| pid.parse::<i32>().ok())
    };
    let first = worker().expect("a worker");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("it runs");
    until("there is another worker", || worker().is_some_and(|pid| pid != first));
    assert_eq!(servers(&socket), expect, "after a crash");
    // A line that asks for another name forgets what was known.
    proxy.change(&text.replace("app.test:80", "other.test:80"));
    assert_eq!(servers(&socket)[0], "app a - 0 32 1 1 other.test 80 -");
    assert_eq!(servers(&socket)[1..], expect[1..]);
}

#[test]
fn another_process_begins_with_the_addresses_of_the_one_before() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.71"]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = "backend app\n server a app.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let proxy = Proxy::start(&config(folder.path(), web, dns.address, backend).replace("300ms", "1h"));
    let socket = folder.path().join("admin.sock");
    let has = || servers(&socket).first().is_some_and(|row| row.starts_with("app a 127.0.0.71 2 0"));
    until("it has its address", has);
    dns.behave(Manner::Silent);
    let next = proxy.replace(&[]);
    until("the next one has it", has);
    assert!(!next.said().contains("changed its IP"), "{}", next.said());
}
