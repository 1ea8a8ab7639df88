//! One process takes over from another: under load, in every order of events, and with either side failing at every step.

mod faults;
mod fine;
mod formats;
mod givers;
mod gone;
mod heads;
mod http2;
mod http2_servers;
mod hung;
mod in_flight;
mod interop;
mod layers;
mod limits;
mod load;
mod messages;
mod moving;
mod peers;
mod pools;
mod rights;
mod sessions;
mod states;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod tunnels;
mod upgrades;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use baton_prove::{Origin, OriginHandle, OriginOptions};
use support::PATIENCE;

/// A frontend and its backend.
fn config(web: SocketAddr, servers: &[SocketAddr]) -> String {
    let mut text = format!(
        "global\n nbthread 2\n maxconn 2000\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\n timeout http-keep-alive 5s\nfrontend web\n bind {web}\n default_backend app\n\
         backend app\n balance roundrobin\n"
    );
    for (number, server) in servers.iter().enumerate() {
        text += &format!(" server s{number} {server}\n");
    }
    text
}

fn origins(count: usize) -> (Vec<OriginHandle>, Vec<SocketAddr>) {
    let start = |number| Origin::start(OriginOptions::new(format!("o{number}"))).expect("loopback has a free port");
    let origins: Vec<OriginHandle> = (0..count).map(start).collect();
    let addresses = origins.iter().map(OriginHandle::address).collect();
    (origins, addresses)
}

/// A client's connection.
struct Client(TcpStream);

impl Client {
    #[track_caller]
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the address is listened on");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client(stream)
    }

    #[track_caller]
    fn ask(&mut self, path: &str) {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).expect("it is open");
    }

    /// The head and the body of the answer.
    #[track_caller]
    fn answer(&mut self) -> String {
        let mut all = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&all).to_ascii_lowercase();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.expect("our origins say it").parse::<usize>().expect("a number") {
                    return text;
                }
            }
            let mut some = [0; 4096];
            let count = self.0.read(&mut some).expect("an answer in time");
            assert!(count > 0, "closed after {text:?}");
            all.extend_from_slice(&some[..count]);
        }
    }

    /// Asks and is answered well.
    #[track_caller]
    fn get(&mut self, path: &str) -> String {
        self.ask(path);
        let answer = self.answer();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        answer
    }

    /// Waits for the end of the connection.
    #[track_caller]
    fn closed(mut self) {
        let rest = self.0.read(&mut [0; 100]).expect("an end in time");
        assert_eq!(rest, 0, "closed in order, with nothing left to read");
    }
}

/// One request on a connection of its own.
#[track_caller]
fn get(address: SocketAddr) -> String {
    Client::connect(address).get("/")
}
