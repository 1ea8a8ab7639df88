//! Sessions stay open and are checked byte for byte; each way of losing one is noticed as what it is.

mod support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use baton_prove::{
    Origin, OriginOptions, SessionOptions, Sessions, SessionsHandle, SessionsResult,
    origin::OriginKind,
    sessions::{LossKind, SessionKind},
    websocket::accept_key,
};
use socket2::{Domain, Socket, Type};
use support::{hold, read_head, reset, run, say, server};

fn websocket() -> SessionKind {
    SessionKind::WebSocket { path: "/ws".to_owned() }
}

/// Waits until the group has exchanged so many messages or lost a session.
async fn until(sessions: &SessionsHandle, messages: u64) {
    while sessions.messages() < messages && sessions.lost() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn sessions_live_as_long_as_the_origin_does() {
    run(async {
        let http = Origin::start(OriginOptions::new("http")).expect("started");
        let echo = OriginOptions { kind: OriginKind::TcpEcho, ..OriginOptions::new("echo") };
        let echo = Origin::start(echo).expect("started");
        for (kind, address) in [(websocket(), http.address()), (SessionKind::Tunnel, echo.address())] {
            for message_bytes in [1, 64, 70_000, 1024 * 1024] {
                let interval = Some(Duration::from_millis(2));
                let options =
                    SessionOptions { count: 5, interval, message_bytes, ..SessionOptions::new(address, kind.clone()) };
                let idle = SessionOptions { interval: None, ..options.clone() };
                let (talking, idle) =
                    (Sessions::start(options).expect("started"), Sessions::start(idle).expect("started"));
                talking.ready().await;
                idle.ready().await;
                assert_eq!((talking.alive(), idle.alive()), (5, 5));
                until(&talking, 20).await;
                assert_eq!(idle.messages(), 0, "idle sessions are silent");

                let talked = talking.stop().await;
                assert_eq!((talked.sessions, talked.opened, talked.alive), (5, 5, 5), "{:?}", talked.losses);
                assert!(talked.messages >= 25, "{}", talked.messages);
                let idled = idle.stop().await;
                assert_eq!((idled.alive, idled.messages), (5, 5), "{:?}", idled.losses);
            }
        }
        assert_eq!((http.requests(), http.connections(), echo.connections()), (40, 40, 40));
        http.stop().await.expect("stopped");
        echo.stop().await.expect("stopped");
    });
}

#[test]
fn sessions_notice_that_the_origin_stops() {
    run(async {
        for (kind, speaks) in [(OriginKind::Http, websocket()), (OriginKind::TcpEcho, SessionKind::Tunnel)] {
            let origin = Origin::start(OriginOptions { kind, ..OriginOptions::new("a") }).expect("started");
            let options = SessionOptions { count: 3, interval: None, ..SessionOptions::new(origin.address(), speaks) };
            let sessions = Sessions::start(options).expect("started");
            sessions.ready().await;
            origin.stop().await.expect("stopped");
            while sessions.lost() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let result = sessions.stop().await;
            assert_eq!((result.opened, result.alive, result.losses.len()), (3, 0, 3));
            assert_eq!((result.is_clean(), result.kinds().as_str()), (false, "closed 3"));
            assert!(result.losses.iter().all(|loss| loss.kind == LossKind::Closed && loss.messages == 0));
        }
    });
}

/// Two sessions, one after the other, with a server of this script: both are lost as `kind`.
fn check(kind: LossKind, speaks: SessionKind, interval: Option<u64>, script: impl Fn(&mut TcpStream) + Send + 'static) {
    let address = server(move |_, stream| script(stream));
    for _ in 0..2 {
        let result = lost(address, &speaks, interval);
        let loss = &result.losses[0];
        assert_eq!((loss.kind, loss.session, result.alive), (kind, 0, 0), "{result:?}");
    }
}

fn lost(address: SocketAddr, speaks: &SessionKind, interval: Option<u64>) -> SessionsResult {
    run(async {
        let options = SessionOptions {
            interval: interval.map(Duration::from_millis),
            timeout: Duration::from_millis(300),
            ..SessionOptions::new(address, speaks.clone())
        };
        let sessions = Sessions::start(options).expect("started");
        // An idle session has to notice by itself.
        until(&sessions, u64::MAX).await;
        sessions.stop().await
    })
}

/// Echoes `messages` of 64 bytes, checking nothing.
fn echo(stream: &mut TcpStream, messages: usize) {
    for _ in 0..messages {
        let mut message = [0; 64];
        if stream.read_exact(&mut message).is_ok() {
            say(stream, message);
        }
    }
}

#[test]
fn a_lost_tunnel_says_why() {
    let talks = Some(1);
    check(LossKind::Closed, SessionKind::Tunnel, talks, |stream| echo(stream, 3));
    check(LossKind::Closed, SessionKind::Tunnel, None, |_| {});
    check(LossKind::Reset, SessionKind::Tunnel, None, |stream| reset(stream));
    check(LossKind::Timeout, SessionKind::Tunnel, talks, hold);
    check(LossKind::WrongEcho, SessionKind::Tunnel, None, |stream| {
        say(stream, "hello?");
        hold(stream);
    });
    // One bit, one byte lost, one byte doubled: each after a right message.
    let lose = |message: &mut Vec<u8>| {
        message.remove(7);
    };
    let wrong: [fn(&mut Vec<u8>); 3] = [|message| message[63] ^= 1, lose, |message| message.insert(7, message[7])];
    for spoil in wrong {
        check(LossKind::WrongEcho, SessionKind::Tunnel, talks, move |stream| {
            echo(stream, 1);
            let mut message = vec![0; 64];
            if stream.read_exact(&mut message).is_ok() {
                spoil(&mut message);
                say(stream, message);
            }
            hold(stream);
        });
    }
}

#[test]
fn a_message_of_another_session_is_a_wrong_echo() {
    // The second connection is answered with what the first one sent.
    let first = std::sync::Mutex::new(Vec::new());
    let address = server(move |_, stream| {
        let mut message = [0; 64];
        stream.read_exact(&mut message).expect("a message");
        let mut first = first.lock().expect("one thread");
        first.extend_from_slice(&message);
        say(stream, &first[..64]);
        hold(stream);
    });
    let result = run(async {
        // The script serves one connection at a time: the second session is served when the first one has ended.
        let options = SessionOptions { count: 2, interval: None, ..SessionOptions::new(address, SessionKind::Tunnel) };
        let sessions = Sessions::start(options).expect("started");
        sessions.ready().await;
        sessions.stop().await
    });
    assert_eq!((result.alive, result.losses.len()), (1, 1), "{result:?}");
    assert_eq!(result.losses[0].kind, LossKind::WrongEcho);
}

#[test]
fn refused_sessions_are_lost() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket().expect("an internet address");
    let result = lost(address, &SessionKind::Tunnel, None);
    assert_eq!((result.opened, result.losses[0].kind), (0, LossKind::Refused));
}

/// Accepts a WebSocket by hand.
fn upgrade(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
    let accept = accept_key(key.as_bytes());
    say(stream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nconnection: upgrade\r\n");
    say(stream, format!("Sec-WebSocket-Accept: {accept}\r\n\r\n"));
}

/// Reads one masked frame of 64 bytes and gives its payload.
fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = [0; 2 + 4 + 64];
    stream.read_exact(&mut frame).ok()?;
    assert_eq!(frame[..2], [0x82, 0x80 | 64], "one whole masked binary frame");
    Some(frame[6..].iter().zip(frame[2..6].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
}

#[test]
fn a_lost_websocket_says_why() {
    let talks = Some(1);
    check(LossKind::Handshake, websocket(), None, |stream| {
        read_head(stream);
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    check(LossKind::Handshake, websocket(), None, |stream| {
        read_head(stream);
        say(
            stream,
            "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
        );
    });
    check(LossKind::Malformed, websocket(), None, |stream| {
        read_head(stream);
        say(stream, "what?\r\n");
    });
    check(LossKind::Timeout, websocket(), None, hold);
    check(LossKind::Closed, websocket(), None, upgrade);
    check(LossKind::Reset, websocket(), None, |stream| {
        upgrade(stream);
        reset(stream);
    });
    check(LossKind::Closed, websocket(), None, |stream| {
        upgrade(stream);
        say(stream, [0x88, 2, 3, 0xe9]);
        hold(stream);
    });
    for bad in [&[0x82, 0x80, 0, 0, 0, 0][..], &[0x83, 0], &[0x80, 0], &[0x02, 1, b'a', 0x82, 1, b'b']] {
        check(LossKind::Malformed, websocket(), None, move |stream| {
            upgrade(stream);
            say(stream, bad);
            hold(stream);
        });
    }
    check(LossKind::WrongEcho, websocket(), talks, |stream| {
        upgrade(stream);
        if let Some(mut payload) = read_frame(stream) {
            payload[10] ^= 0x80;
            say(stream, [&[0x82, 64], &payload[..]].concat());
        }
        hold(stream);
    });
    check(LossKind::Timeout, websocket(), talks, |stream| {
        upgrade(stream);
        hold(stream);
    });
}

#[test]
fn pings_are_answered_and_messages_may_come_in_parts() {
    let has_answered = Arc::new(AtomicBool::new(false));
    let answered = has_answered.clone();
    let address = server(move |_, stream| {
        upgrade(stream);
        say(stream, [0x89, 2, b'h', b'i']);
        let mut pong = [0; 2 + 4 + 2];
        stream.read_exact(&mut pong).expect("a pong");
        assert_eq!(pong[..2], [0x8a, 0x82]);
        assert_eq!([pong[6] ^ pong[2], pong[7] ^ pong[3]], *b"hi");
        answered.store(true, Ordering::Release);
        // A pong nobody asked for is allowed, and so are an empty first part and a ping between parts.
        say(stream, [0x8a, 0, 0x8a, 1, b'x']);
        let payload = read_frame(stream).expect("a message");
        let parts: [&[u8]; 6] = [&[0x02, 0], &[0x00, 60], &payload[..60], &[0x89, 0], &[0x80, 4], &payload[60..]];
        for part in parts {
            let _ = stream.write_all(part);
        }
        hold(stream);
    });
    run(async {
        let options = SessionOptions { interval: None, ..SessionOptions::new(address, websocket()) };
        let sessions = Sessions::start(options).expect("started");
        sessions.ready().await;
        // The only message is sent when it is stopped: not before the ping came.
        while !has_answered.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let result = sessions.stop().await;
        assert_eq!((result.alive, result.messages), (1, 1), "{:?}", result.losses);
    });
}
