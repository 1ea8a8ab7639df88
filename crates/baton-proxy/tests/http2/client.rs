//! A client of HTTP/2 for tests: the protocol's other side, over a socket that blocks.

use std::collections::VecDeque;
use std::io::Read;
use std::net::TcpStream;

use baton_http2::{Config, Connection, ErrorCode, Event, RequestPseudo, Role};

use crate::wire::{Wire, fields, text};

/// The other end of a connection.
pub struct Peer {
    pub wire: Wire,
    news: VecDeque<News>,
    /// GOAWAY frames: the last stream of each.
    pub last_streams: Vec<u32>,
}

/// What came on a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct News {
    pub stream: u32,
    /// `H` a head, `D` bytes, `E` the end with trailers, `R` a reset.
    pub kind: char,
    pub text: String,
}

impl Peer {
    /// Begins a connection.
    pub fn new(socket: TcpStream) -> Peer {
        Peer::with(socket, Config::default())
    }

    /// Begins a connection with settings of its own.
    pub fn with(socket: TcpStream, config: Config) -> Peer {
        let wire = Wire::open(socket, Role::Client, config);
        Peer { wire, news: VecDeque::new(), last_streams: Vec::new() }
    }

    /// Sends a request: `METHOD path`, then a line for each field. Its stream.
    pub fn request(&mut self, head: &str, ends: bool) -> u32 {
        let mut lines = head.lines();
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).expect("a request");
        let mut pseudo = RequestPseudo {
            method: method.as_bytes(),
            scheme: b"http",
            authority: b"x",
            path: path.as_bytes(),
            protocol: None,
        };
        match method {
            "CONNECT" => pseudo = RequestPseudo { scheme: b"", path: b"", authority: path.as_bytes(), ..pseudo },
            "WEBSOCKET" => pseudo = RequestPseudo { method: b"CONNECT", protocol: Some(b"websocket"), ..pseudo },
            _ => {}
        }
        let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let stream = self.wire.protocol.send_request(pseudo, fields, ends, &mut self.wire.out).expect("a stream");
        self.wire.flush();
        stream
    }

    /// Sends a body's bytes, all of them, as windows open.
    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        let mut sent = 0;
        loop {
            sent += self.wire.protocol.send_data(stream, &bytes[sent..], ends, &mut self.wire.out);
            self.wire.flush();
            if sent == bytes.len() {
                return;
            }
            assert!(self.receive(), "the proxy goes on");
        }
    }

    /// How many bytes may be sent on a stream right now.
    pub fn sendable(&self, stream: u32) -> usize {
        self.wire.protocol.sendable(stream)
    }

    pub fn trailers(&mut self, stream: u32, name: &str, value: &str) {
        let field = (name.as_bytes(), value.as_bytes());
        self.wire.protocol.send_trailers(stream, std::iter::once(field), &mut self.wire.out);
        self.wire.flush();
    }

    pub fn reset(&mut self, stream: u32) {
        self.wire.protocol.reset(stream, ErrorCode::CANCEL, &mut self.wire.out);
        self.wire.flush();
    }

    /// The body's bytes of a stream were taken.
    pub fn take(&mut self, stream: u32, bytes: usize) {
        self.wire.protocol.consumed(stream, bytes, &mut self.wire.out);
        self.wire.flush();
    }

    /// Reads once. False: the proxy closed.
    fn receive(&mut self) -> bool {
        let Peer { wire, news, last_streams } = self;
        wire.receive(|protocol, _, event| match event {
            Event::GoAway { last, .. } => last_streams.push(last),
            event => note(protocol, event, news),
        })
    }

    /// What came next. `None`: the proxy closed.
    pub fn next(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            if !self.receive() {
                return None;
            }
        }
    }

    /// The next response, or the rest of one: its stream and all that came, bytes of a body as one. No other may come between.
    pub fn response(&mut self) -> (u32, String) {
        let (mut of, mut text): (Option<u32>, String) = (None, String::new());
        loop {
            let News { stream, kind, text: more } = self.next().expect("the proxy goes on");
            assert_eq!(*of.get_or_insert(stream), stream, "{text} {more}");
            match kind {
                'D' if text.contains('|') => text += &more,
                'D' => text += &format!("|{more}"),
                _ => text += &format!("{kind}{more}"),
            }
            if matches!(kind, 'E' | 'R') {
                return (stream, text);
            }
        }
    }
}

/// Notes what came.
fn note(protocol: &Connection, event: Event<'_>, news: &mut VecDeque<News>) {
    let mut note = |stream, kind, text: String| news.push_back(News { stream, kind, text });
    let head = || format!("{} {}", protocol.head().status(), fields(protocol).join(" "));
    match event {
        Event::Head { stream, ends } => {
            note(stream, 'H', head());
            if ends {
                note(stream, 'E', String::new());
            }
        }
        Event::Interim { stream } => note(stream, 'H', head()),
        Event::Data { stream, bytes, ends } => {
            if !bytes.is_empty() {
                note(stream, 'D', text(bytes));
            }
            if ends {
                note(stream, 'E', String::new());
            }
        }
        Event::Trailers { stream } => note(stream, 'E', fields(protocol).join(" ")),
        Event::Reset { stream, code } => note(stream, 'R', code.name().into()),
        Event::Failed { .. }
        | Event::GoAway { .. }
        | Event::HeadTooLarge { .. }
        | Event::Window { .. }
        | Event::Settings
        | Event::Pong { .. } => {}
    }
}

/// A frame as it is on the wire.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// HEADERS with these fields as they are, whatever the protocol says about them; END_STREAM if it `ends`.
pub fn raw_head(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal that is not indexed, with a new name.
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a short one");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(1, if ends { 5 } else { 4 }, stream, &block)
}

/// The next frame from a socket: kind, flags, stream and payload. `None`: the end.
pub fn read_frame(socket: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut header = [0; 9];
    socket.read_exact(&mut header).ok()?;
    let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let mut payload = vec![0; len as usize];
    socket.read_exact(&mut payload).ok()?;
    Some((header[3], header[4], u32::from_be_bytes(header[5..].try_into().ok()?), payload))
}
