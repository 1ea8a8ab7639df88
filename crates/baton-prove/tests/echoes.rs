//! Many sessions at once to a server that echoes wrongly in every way: each loss is counted as what it was, and nobody else is
//! lost. Plain and over TLS, tunnels and WebSockets.

mod support;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use baton_prove::{
    ServerEndpoint, SessionOptions, Sessions, SessionsResult,
    sessions::{LossKind, SessionKind},
    websocket::accept_key,
};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use support::{certificates::Certificates, hold, reset, run, say, server};

/// Bytes of a message.
const MESSAGE: usize = 64;

/// Sessions of each deed.
const EACH: usize = 4;

/// Messages that come back right before the deed.
const RIGHT: usize = 2;

/// What the server does to a session, and what that is to be counted as (`None`: the session lives).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Nothing,
    FlipByte,
    DropByte,
    DoubleByte,
    Unasked,
    Close,
    Reset,
    CloseWithin,
    ResetWithin,
    Late,
    /// A WebSocket's: a close frame.
    CloseFrame,
    /// A WebSocket's: a frame as only clients send it.
    MaskedFrame,
    /// A WebSocket's: text, where binary was sent.
    Text,
}

const DEEDS: [(Deed, Option<LossKind>); 13] = [
    (Deed::Nothing, None),
    (Deed::FlipByte, Some(LossKind::WrongEcho)),
    (Deed::DropByte, Some(LossKind::WrongEcho)),
    (Deed::DoubleByte, Some(LossKind::WrongEcho)),
    (Deed::Unasked, Some(LossKind::WrongEcho)),
    (Deed::Close, Some(LossKind::Closed)),
    (Deed::Reset, Some(LossKind::Reset)),
    (Deed::CloseWithin, Some(LossKind::Truncated)),
    (Deed::ResetWithin, Some(LossKind::Truncated)),
    (Deed::Late, Some(LossKind::Timeout)),
    (Deed::CloseFrame, Some(LossKind::Closed)),
    (Deed::MaskedFrame, Some(LossKind::Malformed)),
    (Deed::Text, Some(LossKind::WrongEcho)),
];

/// Those that plain bytes can show come first.
const PLAIN: usize = 10;

/// How a message goes over the wire.
trait Speech: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Speech for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Speech for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

/// Serves each connection on a thread of its own; connection k gets deed k.
fn faulty(is_websocket: bool, tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let deeds = if is_websocket { &DEEDS[..] } else { &DEEDS[..PLAIN] };
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (deed, mut stream, tls) = (deeds[number % deeds.len()].0, stream.expect("a connection"), tls.clone());
            // An error is the client's going away, which is judged there.
            thread::spawn(move || match tls {
                None => echo(&mut stream, is_websocket, deed),
                Some(config) => {
                    let connection = ServerConnection::new(config).expect("a good configuration");
                    let mut stream = StreamOwned::new(connection, stream);
                    let done = echo(&mut stream, is_websocket, deed);
                    // With and without saying so: a session is closed either way.
                    let is_reset = matches!(deed, Deed::Reset | Deed::ResetWithin);
                    if !is_reset && number / deeds.len() % 2 == 0 {
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                    done
                }
            });
        }
    });
    address
}

fn echo(stream: &mut impl Speech, is_websocket: bool, deed: Deed) -> io::Result<()> {
    if is_websocket {
        upgrade(stream)?;
    }
    for _ in 0..RIGHT {
        let message = receive(stream, is_websocket)?;
        stream.write_all(&frame(is_websocket, 0x82, &message))?;
    }
    let mut message = receive(stream, is_websocket)?;
    let right = frame(is_websocket, 0x82, &message);
    let wrong = match deed {
        Deed::Nothing => {
            stream.write_all(&right)?;
            return serve_on(stream, is_websocket);
        }
        Deed::FlipByte => {
            message[MESSAGE / 2] ^= 1;
            frame(is_websocket, 0x82, &message)
        }
        Deed::DropByte => {
            message.remove(7);
            frame(is_websocket, 0x82, &message)
        }
        Deed::DoubleByte => {
            message.insert(7, message[7]);
            frame(is_websocket, 0x82, &message)
        }
        Deed::Unasked => [&right[..], &frame(is_websocket, 0x82, b"?")].concat(),
        Deed::Close | Deed::Late => Vec::new(),
        Deed::Reset => {
            reset(stream.socket());
            return Ok(());
        }
        Deed::CloseWithin => right[..right.len() / 2].to_vec(),
        Deed::ResetWithin => {
            stream.write_all(&right[..right.len() / 2])?;
            reset(stream.socket());
            return Ok(());
        }
        Deed::CloseFrame => vec![0x88, 2, 3, 0xe8],
        Deed::MaskedFrame => [&[0x82, 0x80 | MESSAGE as u8, 0, 0, 0, 0], &message[..]].concat(),
        Deed::Text => frame(is_websocket, 0x81, &message),
    };
    stream.write_all(&wrong)?;
    if !matches!(deed, Deed::Close | Deed::CloseWithin) {
        // Not closed before the client has judged.
        while stream.read(&mut [0; 1024])? > 0 {}
    }
    Ok(())
}

/// Echoes rightly to the end.
fn serve_on(stream: &mut impl Speech, is_websocket: bool) -> io::Result<()> {
    loop {
        let message = receive(stream, is_websocket)?;
        stream.write_all(&frame(is_websocket, 0x82, &message))?;
    }
}

/// A message as the server sends it.
fn frame(is_websocket: bool, first: u8, payload: &[u8]) -> Vec<u8> {
    match is_websocket {
        true => [&[first, payload.len() as u8], payload].concat(),
        false => payload.to_vec(),
    }
}

/// The next message; an error when the client closes instead.
fn receive(stream: &mut impl Speech, is_websocket: bool) -> io::Result<Vec<u8>> {
    let mut head = [0; 6];
    if is_websocket {
        stream.read_exact(&mut head)?;
        if head[0] != 0x82 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut message = vec![0; MESSAGE];
    stream.read_exact(&mut message)?;
    message.iter_mut().zip(head[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok(message)
}

fn upgrade(stream: &mut impl Speech) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap_or_default();
    let accept = accept_key(key.as_bytes());
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept";
    stream.write_all(format!("{answer}: {accept}\r\n\r\n").as_bytes())
}

fn check(is_websocket: bool, server: ServerEndpoint) {
    let deeds = if is_websocket { &DEEDS[..] } else { &DEEDS[..PLAIN] };
    let kind = match is_websocket {
        true => SessionKind::WebSocket { path: "/ws".to_owned() },
        false => SessionKind::Tunnel,
    };
    let options = SessionOptions {
        count: deeds.len() * EACH,
        message_bytes: MESSAGE,
        interval: Some(Duration::from_millis(5)),
        // Long enough for an echo on any machine; the late ones wait side by side.
        timeout: Duration::from_secs(3),
        ..SessionOptions::new(server, kind)
    };
    let lost = (deeds.len() - 1) * EACH;
    let result = run(async {
        let sessions = Sessions::start(options).expect("started");
        sessions.ready().await;
        while (sessions.lost() as usize) < lost {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sessions.stop().await
    });
    assert_eq!((result.opened as usize, result.alive as usize), (deeds.len() * EACH, EACH), "{:?}", result.losses);
    let mut expected = BTreeMap::new();
    for kind in deeds.iter().filter_map(|(_, kind)| *kind) {
        *expected.entry(kind).or_insert(0) += EACH;
    }
    assert_eq!(counts(&result), expected);
    // An unasked message may come with the right one, which then was no right echo, or after it.
    let right = |messages| (RIGHT as u64..=RIGHT as u64 + 1).contains(&messages);
    assert!(result.losses.iter().all(|loss| right(loss.messages)), "{:?}", result.losses);
}

fn counts(result: &SessionsResult) -> BTreeMap<LossKind, usize> {
    let mut counts = BTreeMap::new();
    for loss in &result.losses {
        *counts.entry(loss.kind).or_insert(0) += 1;
    }
    counts
}

#[test]
fn every_wrong_echo_is_counted_as_what_it_was() {
    for is_websocket in [false, true] {
        check(is_websocket, faulty(is_websocket, None).into());
    }
}

#[test]
fn the_same_over_tls() {
    let certificates = Certificates::new();
    let tls = certificates.options().build().expect("good options");
    for is_websocket in [false, true] {
        let address = faulty(is_websocket, Some(certificates.server()));
        check(is_websocket, ServerEndpoint { tls: Some(tls.clone()), ..address.into() });
    }
}

#[test]
fn large_messages_come_back_whole_over_tls() {
    let certificates = Certificates::new();
    let config = certificates.server();
    // Echoes what it has read before it reads on: both directions are full at the same time.
    let address = server(move |_, stream| {
        let connection = ServerConnection::new(config.clone()).expect("a good configuration");
        let mut stream = StreamOwned::new(connection, stream);
        let mut buffer = vec![0; 8000];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
    });
    let tls = certificates.options().build().expect("good options");
    let server = ServerEndpoint { tls: Some(tls), ..address.into() };
    let options = SessionOptions {
        message_bytes: 1024 * 1024,
        interval: Some(Duration::from_millis(1)),
        ..SessionOptions::new(server, SessionKind::Tunnel)
    };
    let result = run(async {
        let sessions = Sessions::start(options).expect("started");
        while sessions.messages() < 3 && sessions.lost() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sessions.stop().await
    });
    assert!(result.is_clean() && result.messages >= 4, "{result:?}");
}

#[test]
fn tls_that_does_not_come_to_be_loses_the_session() {
    let certificates = Certificates::new();
    // A fatal alert, handshake_failure (RFC 8446 section 6.2).
    let address = server(|_, stream| {
        let _ = stream.read(&mut [0; 4096]);
        say(stream, [21, 3, 3, 0, 2, 2, 40]);
        hold(stream);
    });
    let tls = certificates.options().build().expect("good options");
    let server = ServerEndpoint { tls: Some(tls), ..address.into() };
    let options = SessionOptions { count: 3, ..SessionOptions::new(server, SessionKind::Tunnel) };
    let result = run(async { Sessions::start(options).expect("started").stop().await });
    assert_eq!((result.opened, result.kinds().as_str()), (0, "tls_handshake 3"));
}
