//! One end of a connection with HTTP/2, over a socket that blocks: what server and client of these tests have in common.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use baton_http2::{Config, Connection, Event, Role};

/// A socket, and the protocol on it.
pub struct Wire {
    pub socket: TcpStream,
    pub protocol: Connection,
    input: Vec<u8>,
    /// What is sent by the next [`flush`](Self::flush).
    pub out: Vec<u8>,
}

impl Wire {
    /// Begins a connection.
    pub fn open(socket: TcpStream, role: Role, config: Config) -> Wire {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let (mut protocol, mut out) = (Connection::new(role, config), Vec::new());
        protocol.open(&mut out);
        let mut wire = Wire { socket, protocol, input: Vec::new(), out };
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
            note(&mut self.protocol, &mut self.out, event);
        }
        self.input.drain(..taken);
        self.flush();
        count > 0
    }
}
