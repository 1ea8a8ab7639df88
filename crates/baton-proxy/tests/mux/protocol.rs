//! A protocol for tests that carries several exchanges at a time on one connection, and its client.
//!
//! A frame is a stream's number (4 bytes), a letter, the payload's length (2 bytes), and the payload. `H` is a head: of a request
//! `METHOD target`, of a response the status, then a line for each field; `h` is one without a body. `D` are bytes of a body, `E` is its
//! end, with a line for each trailer, and `R` gives a stream up.

use std::io::{Read, Write};
use std::net::TcpStream;

use baton_proxy::{Frame, HeadWriter, MalformedFrame, Multiplexer, MuxCodec, PairsOf};

/// Bytes before a payload.
const HEADER: usize = 7;

#[derive(Debug)]
pub struct Lines;

#[derive(Debug)]
struct LinesCodec;

impl Multiplexer for Lines {
    fn begin(&self) -> Box<dyn MuxCodec> {
        Box::new(LinesCodec)
    }
}

impl MuxCodec for LinesCodec {
    fn receive<'i>(
        &mut self,
        input: &'i [u8],
        head: &mut HeadWriter,
        _: &mut Vec<u8>,
    ) -> Result<Option<(usize, Frame<'i>)>, MalformedFrame> {
        let Some((stream, kind, bytes)) = read_frame(input) else { return Ok(None) };
        let frame = match kind {
            b'H' | b'h' => {
                let mut lines = lines(bytes);
                let first = lines.next().unwrap_or_default();
                let (method, target) = split(first, b' ');
                head.request(method, target);
                lines.for_each(|line| {
                    let (name, value) = split(line, b':');
                    head.field(name, value);
                });
                Frame::Head { stream, ends: kind == b'h' }
            }
            b'D' => Frame::Data { stream, bytes },
            b'E' => {
                lines(bytes).for_each(|line| {
                    let (name, value) = split(line, b':');
                    head.trailer(name, value);
                });
                Frame::End { stream }
            }
            b'R' => Frame::Reset { stream },
            b'N' => Frame::Other,
            _ => return Err(MalformedFrame),
        };
        Ok(Some((HEADER + bytes.len(), frame)))
    }

    fn head(&mut self, stream: u32, status: u16, fields: PairsOf<'_>, out: &mut Vec<u8>) {
        let mut text = status.to_string().into_bytes();
        text.push(b'\n');
        write_lines(fields, &mut text);
        write_frame(stream, b'H', &text, out);
    }

    fn data(&mut self, stream: u32, bytes: &[u8], out: &mut Vec<u8>) {
        bytes.chunks(1 << 14).for_each(|piece| write_frame(stream, b'D', piece, out));
    }

    fn end(&mut self, stream: u32, trailers: PairsOf<'_>, out: &mut Vec<u8>) {
        let mut text = Vec::new();
        write_lines(trailers, &mut text);
        write_frame(stream, b'E', &text, out);
    }

    fn reset(&mut self, stream: u32, out: &mut Vec<u8>) {
        write_frame(stream, b'R', &[], out);
    }
}

fn read_frame(input: &[u8]) -> Option<(u32, u8, &[u8])> {
    let (header, rest) = input.split_at_checked(HEADER)?;
    let stream = u32::from_be_bytes(header[..4].try_into().ok()?);
    let len = u16::from_be_bytes(header[5..].try_into().ok()?);
    Some((stream, header[4], rest.get(..usize::from(len))?))
}

fn write_frame(stream: u32, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&u16::try_from(payload.len()).expect("short").to_be_bytes());
    out.extend_from_slice(payload);
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn split(line: &[u8], at: u8) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| *byte == at).unwrap_or(line.len());
    (&line[..end], line.get(end + 1..).unwrap_or_default())
}

fn write_lines(fields: PairsOf<'_>, text: &mut Vec<u8>) {
    for (name, value) in fields {
        text.extend_from_slice(&name.to_ascii_lowercase());
        text.push(b':');
        text.extend_from_slice(value);
        text.push(b'\n');
    }
}

/// The other end of a connection.
pub struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    pub fn new(stream: TcpStream) -> Peer {
        Peer { stream, received: Vec::new() }
    }

    /// Sends frames together.
    pub fn send(&mut self, frames: &[(u32, char, &str)]) {
        let mut bytes = Vec::new();
        for (stream, kind, payload) in frames {
            write_frame(*stream, *kind as u8, payload.as_bytes(), &mut bytes);
        }
        self.stream.write_all(&bytes).expect("the proxy reads");
    }

    /// Sends the frames again and again until they are not taken any more. False: there is no end.
    pub fn send_until_held(&mut self, frames: &[(u32, char, &str)]) -> bool {
        const ENOUGH: usize = 32 << 20;
        let mut bytes = Vec::new();
        for (stream, kind, payload) in frames {
            write_frame(*stream, *kind as u8, payload.as_bytes(), &mut bytes);
        }
        self.stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).expect("a timeout");
        let mut sent = 0;
        while sent < ENOUGH {
            match self.stream.write(&bytes) {
                Ok(count) => sent += count,
                Err(_) => return true,
            }
        }
        false
    }

    /// The next frame: its stream, its letter and its payload. `None`: the proxy closed.
    pub fn frame(&mut self) -> Option<(u32, char, String)> {
        loop {
            if let Some((stream, kind, payload)) = read_frame(&self.received) {
                let frame = (stream, kind as char, String::from_utf8_lossy(payload).into_owned());
                self.received.drain(..HEADER + frame.2.len());
                return Some(frame);
            }
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).expect("a frame in time");
            if count == 0 {
                return None;
            }
            self.received.extend_from_slice(&piece[..count]);
        }
    }

    /// The next response: its stream and all its frames, those of a body as one. No other may come between.
    pub fn response(&mut self) -> (u32, String) {
        let (of, mut text) = (None, String::new());
        let mut of: Option<u32> = of;
        loop {
            let (stream, kind, payload) = self.frame().expect("the proxy goes on");
            assert_eq!(*of.get_or_insert(stream), stream, "{payload}");
            match kind {
                'D' if text.ends_with('|') => text += &payload,
                'D' => text += &format!("|{payload}"),
                _ => text += &format!("{kind}{}", payload.replace('\n', " ")),
            }
            if matches!(kind, 'E' | 'R') {
                return (stream, text);
            }
        }
    }
}
