//! An HTTP/2 server on a clear port, by prior knowledge, to try clients on: `serve 127.0.0.1:0 [bytes]`.
//!
//! It answers a request without a body with so many bytes (5 by default), others with their own body, and shows how a connection is driven with blocking sockets.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use baton_http2::{Config, Connection, Event, Role, Settings};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:0"))?;
    let len = arguments.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(5);
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream, len));
    }
    Ok(())
}

/// A body that is not sent yet.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    sent: usize,
    is_whole: bool,
}

fn serve(mut stream: TcpStream, len: usize) -> std::io::Result<()> {
    let settings = Settings { max_concurrent_streams: 100, enable_push: false, ..Settings::default() };
    let mut connection = Connection::new(Role::Server, Config { settings, ..Config::default() });
    let (mut out, mut bodies) = (Vec::new(), HashMap::new());
    let (mut input, mut filled) = (vec![0; 16 << 10], 0);
    connection.open(&mut out);
    loop {
        stream.write_all(&out)?;
        out.clear();
        let count = stream.read(&mut input[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let mut taken = 0;
        loop {
            let Ok(received) = connection.receive(&input[taken..filled], &mut out) else {
                return stream.write_all(&out);
            };
            taken += received.consumed;
            let Some(event) = received.event else { break };
            take(&mut connection, &mut bodies, event, len, &mut out);
        }
        input.copy_within(taken..filled, 0);
        filled -= taken;
        send(&mut connection, &mut bodies, &mut out);
    }
}

fn take(connection: &mut Connection, bodies: &mut HashMap<u32, Body>, event: Event<'_>, len: usize, out: &mut Vec<u8>) {
    match event {
        Event::Head { stream, ends } => {
            let fields = [(&b"content-type"[..], &b"text/plain"[..]), (b"server", b"baton-http2")];
            connection.send_response(stream, 200, fields.into_iter(), false, out);
            let bytes = if ends { vec![b'x'; len] } else { Vec::new() };
            bodies.insert(stream, Body { bytes, sent: 0, is_whole: ends });
        }
        Event::HeadTooLarge { stream, .. } => {
            connection.send_response(stream, 431, std::iter::empty(), true, out);
            connection.release(stream, out);
        }
        Event::Data { stream, bytes, ends } => {
            if let Some(body) = bodies.get_mut(&stream) {
                body.bytes.extend_from_slice(bytes);
                body.is_whole = ends;
            }
            connection.consumed(stream, bytes.len(), out);
        }
        Event::Trailers { stream } => {
            if let Some(body) = bodies.get_mut(&stream) {
                body.is_whole = true;
            }
        }
        Event::Reset { stream, .. } | Event::Failed { stream, .. } => {
            bodies.remove(&stream);
            connection.release(stream, out);
        }
        Event::Interim { .. } | Event::Window { .. } | Event::Settings | Event::Pong { .. } | Event::GoAway { .. } => {}
    }
}

/// Sends what windows have room for.
fn send(connection: &mut Connection, bodies: &mut HashMap<u32, Body>, out: &mut Vec<u8>) {
    bodies.retain(|&stream, body| {
        body.sent += connection.send_data(stream, &body.bytes[body.sent..], body.is_whole, out);
        let is_done = body.is_whole && body.sent == body.bytes.len() && connection.sendable(stream) == 0;
        let is_done = is_done || connection.is_reset(stream);
        if is_done {
            connection.release(stream, out);
        }
        !is_done
    });
}
