//! Connections with HTTP/2 go to the new process when no stream is open: header tables, settings and windows are in step over there. One that is
//! not free in time is told GOAWAY, and its streams end where they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_control::handover::record::FORMAT;
use baton_http2::{Config, Connection, Event, RequestPseudo, Role};
use baton_prove::{Load, LoadOptions, Request};

use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::tls::{self, Secure};
use crate::tunnels::{connect, replaced};
use crate::{config, in_flight, origins};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Connections of the load.
const CONNECTIONS: usize = 20;

/// A client.
pub struct Client<S = TcpStream> {
    stream: S,
    protocol: Connection,
    input: Vec<u8>,
    out: Vec<u8>,
}

impl Client {
    /// Without TLS.
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(connect(address))
    }
}

impl<S: Read + Write> Client<S> {
    fn over(stream: S) -> Client<S> {
        let mut client = Client {
            stream,
            protocol: Connection::new(Role::Client, Config::default()),
            input: Vec::new(),
            out: Vec::new(),
        };
        client.protocol.open(&mut client.out);
        client
    }

    /// Asks, with fields that the header tables take; what is to be sent waits.
    pub fn ask(&mut self, mark: &str) -> u32 {
        let pseudo =
            RequestPseudo { method: b"GET", scheme: b"http", authority: b"test", path: b"/bytes/1000", protocol: None };
        let fields = [(&b"x-mark"[..], mark.as_bytes()), (b"x-same", b"for ever and a day")];
        self.protocol.send_request(pseudo, fields.into_iter(), true, &mut self.out).expect("streams are left")
    }

    fn send(&mut self, bytes: usize) {
        let sent: Vec<u8> = self.out.drain(..bytes.min(self.out.len())).collect();
        self.stream.write_all(&sent).expect("it is open");
    }

    /// The response has come, with this mark.
    #[track_caller]
    pub fn answered(&mut self, stream: u32, mark: &str) {
        self.send(usize::MAX);
        let mut bytes = 0;
        loop {
            let received = self.protocol.receive(&self.input, &mut self.out).expect("the protocol is kept to");
            let mut is_over = false;
            match received.event {
                Some(Event::Head { stream: of, ends: false }) => {
                    let head = self.protocol.head();
                    let marks = head.pairs().filter(|(name, _)| *name == b"x-mark").map(|(_, value)| value);
                    assert_eq!((of, head.status()), (stream, 200));
                    assert_eq!(marks.collect::<Vec<_>>(), [mark.as_bytes()]);
                }
                Some(Event::Data { stream: of, bytes: data, ends }) => {
                    assert_eq!(of, stream);
                    bytes += data.len();
                    is_over = ends;
                }
                Some(Event::Settings | Event::Window { .. }) | None => {}
                Some(other) => panic!("{other:?}"),
            }
            let (consumed, has_more) = (received.consumed, received.event.is_some());
            self.input.drain(..consumed);
            if is_over {
                break;
            }
            if !has_more {
                let mut some = [0; 4096];
                let count = self.stream.read(&mut some).expect("it goes on");
                assert!(count > 0, "closed");
                self.input.extend_from_slice(&some[..count]);
            }
        }
        assert_eq!(bytes, 1000);
        self.protocol.consumed(stream, bytes, &mut self.out);
        self.protocol.release(stream, &mut self.out);
        self.send(usize::MAX);
    }
}

pub fn marking(web: SocketAddr, servers: &[SocketAddr]) -> String {
    config(web, servers).replace(
        " default_backend",
        " http-request set-var(txn.mark) req.hdr(x-mark)\n http-response set-header x-mark %[var(txn.mark)]\n default_backend",
    )
}

#[test]
fn connections_go_with_every_takeover_and_stay_in_step() {
    stay_in_step(" bind ADDRESS\n", Client::connect);
}

#[test]
fn connections_over_tls_go_with_every_takeover_and_stay_in_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let bind = format!(" bind ADDRESS ssl crt {} alpn h2\n", tls::certificate(folder.path()));
    let mut versions = tls::VERSIONS.into_iter().cycle();
    stay_in_step(&bind, |web| {
        let mut secure = Secure::connect_for(web, versions.next().expect("it goes round"), &["h2"]);
        secure.update_key();
        Client::over(secure.0)
    });
}

fn stay_in_step<S: Read + Write>(bind: &str, mut connect: impl FnMut(SocketAddr) -> Client<S>) {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let text = marking(web, &servers).replace(&format!(" bind {web}\n"), &bind.replace("ADDRESS", &web.to_string()));
    let mut now = Proxy::start(&text);
    let mut clients: Vec<Client<S>> = (0..4).map(|_| connect(web)).collect();
    let mut before = Vec::new();
    for round in 0..TAKEOVERS {
        let mark = |at: usize| format!("number {} of round {round}", at % 2);
        // The last one sends a part of its request before each takeover.
        let (last, others) = clients.split_last_mut().expect("four");
        for (at, client) in others.iter_mut().enumerate() {
            let stream = client.ask(&mark(at));
            client.answered(stream, &mark(at));
        }
        let stream = last.ask(&mark(9));
        let half = last.out.len() - 10;
        last.send(half);
        until("all are there", || now.status().connections == 4);
        before.extend(replaced(&mut now, 1));
        last.answered(stream, &mark(9));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let stream = client.ask("the end");
        assert!(stream as usize > 2 * TAKEOVERS, "{at}: the same connection");
        client.answered(stream, "the end");
    }
    let requests = 4 * (TAKEOVERS as u64 + 1);
    until("all are counted", || frontend_counter(&now.status(), "web", "req_tot") == requests);
    assert_eq!(frontend_counter(&now.status(), "web", "conn_tot"), 4, "each was counted once");
    assert_eq!(now.status().connections_arrived, 4);
    before.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[tokio::test]
async fn third_party_clients_do_not_notice() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let mut now = Proxy::start(&config(web, &servers));
    let requests = vec![Request::get("/a"), Request::get("/bytes/20000"), Request::post("/echo", "x".repeat(3000))];
    let options = LoadOptions {
        streams: Some(1),
        concurrency: CONNECTIONS,
        threads: 1,
        rate: Some(300.0),
        requests,
        ..LoadOptions::new(web)
    };
    let load = Load::start(options).expect("the options are right");
    until("all are there", || now.status().connections == CONNECTIONS);
    let before = replaced(&mut now, TAKEOVERS);
    let counted = || frontend_counter(&now.status(), "web", "req_tot");
    until("they go on", || counted() > 100 + CONNECTIONS as u64);
    let result = load.stop().await;
    assert_eq!(result.counts.failed(), 0, "{:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 100, "only {}", result.counts.completed);
    assert_eq!(frontend_counter(&now.status(), "web", "conn_tot"), CONNECTIONS as u64, "no connection was replaced");
    before.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[test]
fn a_stream_that_takes_long_ends_where_it_is_and_its_client_is_told() {
    let (web, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text = config(web, &[in_flight::origin(is_over.clone())]);
    let old = Proxy::start(&text.replace("global\n", "global\n tune.handover.patience 0\n"));
    let url = format!("http://{web}/poll");
    let curl = ["--http2-prior-knowledge", "-s", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", &url];
    let curl = Command::new("curl").args(curl).stdout(Stdio::piped()).spawn().expect("curl is installed");
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    let new = old.replace(&[]);
    until("it is said", || new.status().connections_staying == [("in-flight".to_owned(), 1)].into());
    is_over.store(true, Ordering::Relaxed);
    let said = curl.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "200 2");
    assert!(old.wait().0.success());
    assert_eq!(new.status().connections_arrived, 0);
}

#[test]
fn a_process_of_a_version_without_them_gets_none() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&marking(web, &servers));
    let mut client = Client::connect(web);
    let stream = client.ask("1");
    client.answered(stream, "1");
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    let mut told = Vec::new();
    client.stream.read_to_end(&mut told).expect("it is told GOAWAY, and closed");
    let (status, said) = old.wait();
    assert!(status.success() && taker.given.is_empty(), "{said}");
}
