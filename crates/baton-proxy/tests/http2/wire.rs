//! One end of a connection with HTTP/2, over a socket that blocks: what server and client of these tests have in common.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use baton_http2::{Config, Connection, Event, Role};

/// Text of what came.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The fields of the head that came last, `name:value` each.
pub fn fields(protocol: &Connection) -> Vec<String> {
    protocol.head().pairs().map(|(name, value)| format!("{}:{}", text(name), text(value))).collect()
}

/// A socket, and the protocol on it.
pub struct Wire {
    pub socket: TcpStream,
    pub protocol: Connection,
    input: Vec<u8>,
    /// What is sent by the next [`flush`](Self::flush).
    pub out: Vec<u8>,
    /// Bytes of bodies are taken as they come, and windows opened again.
    pub takes_bodies: bool,
}

impl Wire {
    /// Begins a connection.
    pub fn open(socket: TcpStream, role: Role, config: Config) -> Wire {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let (mut protocol, mut out) = (Connection::new(role, config), Vec::new());
        protocol.open(&mut out);
        let mut wire = Wire { socket, protocol, input: Vec::new(), out, takes_bodies: true };
        wire.flush();
        wire
    }

    pub fn flush(&mut self) {
        // A peer that has closed is found when it is read.
        let _ = self.socket.write_all(&self.out);
        self.out.clear();
    }

    /// Reads once, and gives what came to `note`, with the protocol and what it wants to send. False: the proxy closed.
    pub fn receive(&mut self, mut note: impl FnMut(&mut Connection, &mut Vec<u8>, Event<'_>)) -> bool {
        let mut piece = [0; 16384];
        let count = match self.socket.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing in time: {error}"),
        };
        self.input.extend_from_slice(&piece[..count]);
        let mut taken = 0;
        loop {
            let received = self.protocol.receive(&self.input[taken..], &mut self.out).expect("the proxy speaks HTTP/2");
            taken += received.consumed;
            let Some(event) = received.event else { break };
            if let Event::Failed { stream, violation } = event {
                panic!("stream {stream}: {violation}");
            }
            let body = match event {
                Event::Data { stream, bytes, .. } => Some((stream, bytes.len())),
                _ => None,
            };
            note(&mut self.protocol, &mut self.out, event);
            if let Some((stream, len)) = body.filter(|_| self.takes_bodies) {
                self.protocol.consumed(stream, len, &mut self.out);
            }
        }
        self.input.drain(..taken);
        self.flush();
        count > 0
    }
}
