//! A request over a plain connection, and the log lines that follow.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use crate::support::PATIENCE;

/// A client that keeps its connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// A response: status, head in lower case, body.
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).expect("the proxy listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        Client { stream: BufReader::new(stream) }
    }

    /// Sends a GET and reads the response, whose length must be said.
    pub fn get(&mut self, host: &str) -> Response {
        let request = format!("GET /small HTTP/1.1\r\nhost: {host}\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).expect("the proxy reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let count = self.stream.read_line(&mut head).expect("a response comes");
            assert!(count > 0, "closed after {head:?}");
        }
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok());
        let mut body = Vec::new();
        match length {
            Some(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body).expect("the body comes");
            }
            None => {
                self.stream.read_to_end(&mut body).expect("the body comes");
            }
        }
        Response { status, head, body }
    }
}

/// One request over a connection of its own.
pub fn get(to: SocketAddr, host: &str) -> Response {
    Client::connect(to).get(host)
}

/// Where a proxy logs to.
pub struct Log {
    socket: UdpSocket,
}

impl Log {
    pub fn new() -> Log {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Log { socket }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket has an address")
    }

    /// All lines until the one of the next request that came in by `frontend`, which is the last.
    pub fn lines(&self, frontend: &str) -> Vec<String> {
        let (mut room, mut lines) = ([0; 4096], Vec::new());
        loop {
            let count = self.socket.recv(&mut room).expect("a log line comes");
            let line = String::from_utf8_lossy(&room[..count]).into_owned();
            let is_last = line.contains(&format!(" {frontend} {frontend}/"));
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }

    /// The termination state of the next request that came in by `frontend`.
    pub fn state(&self, frontend: &str) -> String {
        let mut room = [0; 4096];
        loop {
            let count = self.socket.recv(&mut room).expect("a log line comes");
            let line = String::from_utf8_lossy(&room[..count]);
            if let Some((_, rest)) = line.split_once(&format!(" {frontend} {frontend}/")) {
                let state = rest.split(" - - ").nth(1).and_then(|rest| rest.split(' ').next());
                return state.expect("an HTTP log line").to_string();
            }
        }
    }
}
