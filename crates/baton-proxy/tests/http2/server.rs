//! A server of HTTP/2 for tests: each frame that it sends is written down by the test.

use std::net::TcpListener;

use baton_http2::{Config, Connection, ErrorCode, Event, Role, write_go_away};

use crate::wire::{Wire, fields, text};

/// A connection of the proxy's.
pub struct ServerPeer {
    pub wire: Wire,
    news: Vec<String>,
}

impl ServerPeer {
    /// The next connection of the proxy's.
    pub fn accept(listening: &TcpListener, config: Config) -> ServerPeer {
        let (socket, _) = listening.accept().expect("the proxy connects");
        ServerPeer { wire: Wire::open(socket, Role::Server, config), news: Vec::new() }
    }

    pub fn respond(&mut self, stream: u32, status: u16, fields: &[(&str, &str)], ends: bool) {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        self.wire.protocol.send_response(stream, status, fields, ends, &mut self.wire.out);
        self.wire.flush();
    }

    /// Sends what windows have room for: how many bytes.
    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) -> usize {
        let sent = self.wire.protocol.send_data(stream, bytes, ends, &mut self.wire.out);
        self.wire.flush();
        sent
    }

    pub fn trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        self.wire.protocol.send_trailers(stream, fields, &mut self.wire.out);
        self.wire.flush();
    }

    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.wire.protocol.reset(stream, code, &mut self.wire.out);
        self.wire.protocol.release(stream, &mut self.wire.out);
        self.wire.flush();
    }

    /// Says that streams behind this one are not processed, and nothing else.
    pub fn go_away(&mut self, last: u32) {
        write_go_away(last, ErrorCode::NO_ERROR, "", &mut self.wire.out);
        self.wire.flush();
    }

    /// The next thing that came: `1 GET https x / field:value`, `1 "bytes"`, `1 end`, `1 reset CANCEL`, `closed`.
    pub fn next(&mut self) -> String {
        while self.news.is_empty() {
            let ServerPeer { wire, news } = self;
            if !wire.receive(|protocol, out, event| note(protocol, out, event, news)) {
                news.push("closed".into());
            }
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
}

/// Writes down what came.
fn note(protocol: &mut Connection, out: &mut Vec<u8>, event: Event<'_>, news: &mut Vec<String>) {
    let head = protocol.head();
    let fields: String = fields(protocol).iter().map(|field| format!(" {field}")).collect();
    match event {
        Event::Head { stream, ends } => {
            let parts = [head.method(), head.scheme(), head.own_authority(), head.path()].map(text).join(" ");
            let protocol = head.protocol().map_or(String::new(), |protocol| format!(" :protocol:{}", text(protocol)));
            news.push(format!("{stream} {parts}{protocol}{fields}"));
            if ends {
                news.push(format!("{stream} end"));
            }
        }
        Event::Data { stream, bytes, ends } => {
            if !bytes.is_empty() {
                news.push(format!("{stream} {:?}", text(bytes)));
            }
            if ends {
                news.push(format!("{stream} end"));
            }
        }
        Event::Trailers { stream } => news.push(format!("{stream} end{fields}")),
        Event::Reset { stream, code } => {
            news.push(format!("{stream} reset {}", code.name()));
            protocol.release(stream, out);
        }
        Event::Failed { .. }
        | Event::GoAway { .. }
        | Event::Interim { .. }
        | Event::HeadTooLarge { .. }
        | Event::Window { .. }
        | Event::Settings
        | Event::Pong { .. } => {}
    }
}
