//! `do-resolve`: names that clients send are looked up before the next rule. Compared with haproxy, and with name servers that do what none should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::name_server::{HOSTILE, Knot, Manner, Scripted};
use super::{counter, get, origin};
use crate::peers::Both;
use crate::support::{PATIENCE, Proxy, free_address, until};

/// A frontend for each way to look a name up, and how it shows what it found.
struct Addresses {
    v4: SocketAddr,
    any: SocketAddr,
    content: SocketAddr,
    proxy: SocketAddr,
    stream: SocketAddr,
}

impl Addresses {
    fn free() -> Addresses {
        let [v4, any, content, proxy, stream] = [(); 5].map(|()| free_address());
        Addresses { v4, any, content, proxy, stream }
    }

    /// `port` is that of servers at addresses that were found.
    fn config(&self, folder: &std::path::Path, name_server: SocketAddr, port: u16, times: &str) -> String {
        let Addresses { v4, any, content, proxy, stream } = self;
        format!(
            "global\n nbthread 1\n stats socket {}/admin.sock level admin\n\
             resolvers r\n nameserver n1 {name_server}\n {times}\n\
             defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             frontend v4\n bind {v4}\n http-request return status 200 if {{ path /now }}\n http-request set-var(txn.a) str(before)\n \
             http-request do-resolve(txn.a,r,ipv4) hdr(x)\n \
             http-request return status 200 content-type text/plain lf-string %[var(txn.a)]\n\
             frontend any\n bind {any}\n http-request do-resolve(txn.a,r) hdr(x),host_only\n \
             http-request return status 200 content-type text/plain lf-string a%[var(txn.a)]\n\
             frontend content\n bind {content}\n tcp-request inspect-delay 10s\n \
             tcp-request content do-resolve(sess.a,r,ipv4) hdr(x)\n \
             http-request return status 200 content-type text/plain lf-string a%[var(sess.a)]\n\
             frontend proxy\n bind {proxy}\n http-request do-resolve(txn.a,r,ipv4) hdr(host),host_only\n default_backend found\n\
             backend found\n http-request deny deny_status 503 unless {{ var(txn.a) -m found }}\n \
             http-request set-dst var(txn.a)\n http-request set-dst-port int({port})\n server clear 0.0.0.0:0\n\
             frontend stream\n mode tcp\n bind {stream}\n tcp-request inspect-delay 10s\n \
             tcp-request content do-resolve(sess.a,r,ipv4) str(a.test)\n tcp-request content set-dst var(sess.a)\n \
             tcp-request content set-dst-port int({port})\n default_backend streams\n\
             backend streams\n mode tcp\n server clear 0.0.0.0:0\n",
            folder.display()
        )
    }
}

/// Status and body of the response to a request with this host and this field.
fn ask(address: SocketAddr, host: &str, value: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {value}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it takes a request");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response, and its end");
    let text = String::from_utf8_lossy(&response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    format!("{} {body}", head.get(9..12).unwrap_or_default())
}

const TIMES: &str = "hold valid 10s\n timeout resolve 50ms\n timeout retry 50ms";

#[test]
fn rules_find_the_addresses_that_haproxy_finds() {
    let records = "a A 127.0.0.81\nb A 127.0.0.82\nb AAAA ::1\nc CNAME a\nsix AAAA ::1\n*.w A 127.0.0.83\ntxt TXT x\n_x A 127.0.0.84\n";
    let knot = Knot::start(records);
    let port = free_address().port();
    ["127.0.0.81", "127.0.0.82"]
        .iter()
        .for_each(|place| origin(format!("{place}:{port}").parse().expect("an address")));
    let (ours, theirs, at) = (Addresses::free(), Addresses::free(), knot.address);
    let _both = Both::start_each(
        |folder| ours.config(folder, at, port, TIMES),
        |folder| theirs.config(folder, at, port, TIMES),
    );
    let label = "a".repeat(63);
    let long = format!("{}w.test", "a.".repeat(120));
    let names = [
        "a.test",
        "A.TEST",
        "a.test.",
        ".a.test",
        "a..test",
        ".",
        "",
        "a test",
        "b.test",
        "c.test",
        "six.test",
        "txt.test",
        "nx.test",
        "127.0.0.1",
        "::1",
        "_x.test",
        "a.test:80",
        "x.w.test",
        &format!("{label}.w.test"),
        &format!("{label}a.w.test"),
        &long,
        "elsewhere.invalid",
    ];
    thread::scope(|scope| {
        for name in names {
            let (ours, theirs) = (&ours, &theirs);
            scope.spawn(move || {
                for (one, other) in [(ours.v4, theirs.v4), (ours.any, theirs.any), (ours.content, theirs.content)] {
                    assert_eq!(
                        ask(one, "x", name),
                        ask(other, "x", name),
                        "{name:?}, one at {one}, haproxy's at {other}"
                    );
                }
            });
        }
    });
    assert_eq!(ask(ours.v4, "x", "a.test"), "200 127.0.0.81");
    assert_eq!(ask(ours.v4, "x", "nx.test"), "200 before", "what is not found changes nothing");
    // To where the name is.
    for (host, expect) in [("a.test", "200 127.0.0.81"), ("b.test:99", "200 127.0.0.82"), ("nx.test", "503")] {
        let response = ask(ours.proxy, host, "");
        assert!(response.starts_with(expect), "{host}: {response}");
        assert_eq!(response.get(..14), ask(theirs.proxy, host, "").get(..14), "{host}");
    }
    for address in [ours.stream, theirs.stream] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        assert!(get(&mut stream).expect("a response").ends_with("127.0.0.81"), "{address}");
    }
}

#[test]
fn a_name_is_looked_up_once_for_hold_valid_and_delays_nobody_else() {
    let dns = Scripted::start();
    dns.addresses("a.test", &["127.0.0.85"]);
    let (at, folder) = (Addresses::free(), tempfile::tempdir().expect("a folder for the test"));
    let times = "hold valid 1h\n timeout resolve 50ms\n timeout retry 50ms";
    let text = at.config(folder.path(), dns.address, 1, times);
    let proxy = Proxy::start(&text);
    assert_eq!(ask(at.v4, "x", "a.test"), "200 127.0.0.85");
    dns.addresses("a.test", &["127.0.0.86"]);
    assert_eq!(ask(at.v4, "x", "a.test"), "200 127.0.0.85", "hold valid");
    assert_eq!(dns.asked(), ["a.test"]);
    // Also after a reload, which has its own hold times.
    proxy.change(&text.replace("hold valid 1h", "hold valid 2h"));
    assert_eq!(ask(at.v4, "x", "a.test"), "200 127.0.0.85");
    assert_eq!(dns.asked(), ["a.test"]);
    proxy.change(&text.replace("hold valid 1h", "hold valid 1ms"));
    assert_eq!(ask(at.v4, "x", "a.test"), "200 127.0.0.86");

    // What ends a value and what is no name: nothing is asked, nothing is set.
    let asked = dns.asked().len();
    for value in ["a\tb.test", "a\u{fc}.test", "a/b.test", "a\\b.test", "a%0d%0ab.test", "*.test", "-", "a@b", "$(x)"] {
        let response = ask(at.v4, "x", value);
        // A name of one label may be one of the network.
        assert!(response == "200 before", "{value:?}: {response}");
    }
    let new: Vec<String> = dns.asked().split_off(asked);
    assert!(new.iter().all(|name| name == "-"), "{new:?}");

    // Name servers that do what none should.
    let socket = folder.path().join("admin.sock");
    for (manner, name) in HOSTILE {
        dns.behave(manner);
        let before = counter(&socket, name);
        assert_eq!(ask(at.v4, "x", &format!("{manner:?}.test")), "200 before", "{manner:?}");
        until(&format!("{manner:?} is counted"), || counter(&socket, name) > before);
    }

    // While a name is looked up, others are served by the same thread, and a client may leave.
    dns.behave(Manner::Silent);
    proxy.change(&text.replace("retry 50ms", "retry 1h"));
    let mut waiting = TcpStream::connect(at.v4).expect("it listens");
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX: late.test\r\n\r\n").expect("it takes a request");
    until("it is asked for", || dns.asked().iter().any(|name| name == "late.test"));
    let mut other = TcpStream::connect(at.v4).expect("it listens");
    other.write_all(b"GET /now HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it takes a request");
    let mut response = String::new();
    other.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // By a reset: one that only ends its direction waits for the response.
    socket2::SockRef::from(&waiting).set_linger(Some(Duration::ZERO)).expect("it can");
    drop(waiting);
    until("it is forgotten", || !crate::peers::socat(&socket, "show sess\n").contains("fe=v4"));
}

#[test]
fn names_are_found_while_processes_change() {
    let dns = Scripted::start();
    dns.addresses("a.test", &["127.0.0.87"]);
    let (at, folder) = (Addresses::free(), tempfile::tempdir().expect("a folder for the test"));
    let text = at.config(folder.path(), dns.address, 1, "hold valid 1ms\n timeout resolve 50ms\n timeout retry 500ms");
    let proxy = Proxy::start(&text);
    let end = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while Instant::now() < end {
                        assert_eq!(ask(at.v4, "x", "a.test"), "200 127.0.0.87", "{}", proxy.said());
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        proxy.change(&text.replace("timeout client 30s", "timeout client 31s"));
        let next = proxy.replace(&[]);
        let counts: Vec<usize> = clients.into_iter().map(|client| client.join().expect("no request fails")).collect();
        assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
        drop(next);
    });
}
