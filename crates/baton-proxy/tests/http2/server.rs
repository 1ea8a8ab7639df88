//! A server of HTTP/2 for tests: each frame that it sends is written down by the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use baton_http2::{Config, Connection, ErrorCode, Event, Role, write_go_away};

/// A connection of the proxy's.
pub struct ServerPeer {
    pub socket: TcpStream,
    pub protocol: Connection,
    input: Vec<u8>,
    out: Vec<u8>,
    news: Vec<String>,
    /// Windows are opened as bodies come.
    pub takes_bodies: bool,
}

impl ServerPeer {
    /// The next connection of the proxy's.
    pub fn accept(listening: &TcpListener, config: Config) -> ServerPeer {
        let (socket, _) = listening.accept().expect("the proxy connects");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let (mut protocol, mut out) = (Connection::new(Role::Server, config), Vec::new());
        protocol.open(&mut out);
        let mut peer = ServerPeer { socket, protocol, input: Vec::new(), out, news: Vec::new(), takes_bodies: true };
        peer.flush();
        peer
    }

    pub fn respond(&mut self, stream: u32, status: u16, fields: &[(&str, &str)], ends: bool) {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        self.protocol.send_response(stream, status, fields, ends, &mut self.out);
        self.flush();
    }

    /// Sends what windows have room for: how many bytes.
    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) -> usize {
        let sent = self.protocol.send_data(stream, bytes, ends, &mut self.out);
        self.flush();
        sent
    }

    pub fn trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        self.protocol.send_trailers(stream, fields, &mut self.out);
        self.flush();
    }

    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.protocol.reset(stream, code, &mut self.out);
        self.protocol.release(stream, &mut self.out);
        self.flush();
    }

    /// Says that streams behind this one are not processed, and nothing else.
    pub fn go_away(&mut self, last: u32) {
        write_go_away(last, ErrorCode::NO_ERROR, "", &mut self.out);
        self.flush();
    }

    /// The next thing that came: `1 GET https x / field:value`, `1 "bytes"`, `1 end`, `1 reset CANCEL`, `closed`.
    pub fn next(&mut self) -> String {
        while self.news.is_empty() {
            self.receive();
        }
        self.news.remove(0)
    }

    /// All that comes until this.
    pub fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|seen| seen != last) {
            assert!(seen.last().is_none_or(|seen| seen != "closed"), "{seen:?}");
            seen.push(self.next());
        }
        seen
    }

    fn flush(&mut self) {
        // One that has closed is found when it is read.
        let _ = self.socket.write_all(&self.out);
        self.out.clear();
    }

    fn receive(&mut self) {
        let mut piece = [0; 16384];
        let count = match self.socket.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing in time: {error}"),
        };
        if count == 0 {
            return self.news.push("closed".into());
        }
        self.input.extend_from_slice(&piece[..count]);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        loop {
            let received = self.protocol.receive(rest, &mut self.out).expect("the proxy speaks HTTP/2");
            rest = &rest[received.consumed..];
            let Some(event) = received.event else { break };
            self.note(event);
        }
        self.input = rest.to_vec();
        self.flush();
    }

    fn note(&mut self, event: Event<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let head = self.protocol.head();
        let fields: String = head.pairs().map(|(name, value)| format!(" {}:{}", text(name), text(value))).collect();
        match event {
            Event::Head { stream, ends } => {
                let parts = [head.method(), head.scheme(), head.own_authority(), head.path()].map(text).join(" ");
                let protocol =
                    head.protocol().map_or(String::new(), |protocol| format!(" :protocol:{}", text(protocol)));
                self.news.push(format!("{stream} {parts}{protocol}{fields}"));
                if ends {
                    self.news.push(format!("{stream} end"));
                }
            }
            Event::Data { stream, bytes, ends } => {
                if !bytes.is_empty() {
                    self.news.push(format!("{stream} {:?}", text(bytes)));
                }
                if ends {
                    self.news.push(format!("{stream} end"));
                }
                if self.takes_bodies {
                    self.protocol.consumed(stream, bytes.len(), &mut self.out);
                }
            }
            Event::Trailers { stream } => self.news.push(format!("{stream} end{fields}")),
            Event::Reset { stream, code } => {
                self.news.push(format!("{stream} reset {}", code.name()));
                self.protocol.release(stream, &mut self.out);
            }
            Event::Failed { stream, violation } => panic!("stream {stream}: {violation}"),
            Event::GoAway { .. }
            | Event::Interim { .. }
            | Event::HeadTooLarge { .. }
            | Event::Window { .. }
            | Event::Settings
            | Event::Pong { .. } => {}
        }
    }
}
