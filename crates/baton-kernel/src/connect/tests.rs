use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use super::*;
use crate::testing::{LOOPBACKS, endpoint, wait_writable};

fn options() -> ConnectOptions {
    ConnectOptions::default()
}

/// Connects, waiting if need be.
fn connect(peer: &Endpoint, options: &ConnectOptions) -> TcpStream {
    let fd = match start(peer, options).unwrap() {
        Started::Connected(fd) => fd,
        Started::Pending(fd) => {
            wait_writable(&fd);
            assert!(finished(&fd).unwrap());
            fd
        }
    };
    TcpStream::from(fd)
}

#[test]
fn connections_have_the_options_asked_for() {
    for text in LOOPBACKS {
        let listener = TcpListener::bind(text).unwrap();
        let keepalive = Keepalive { idle: Some(Duration::from_secs(33)), ..Keepalive::default() };
        let wish = ConnectOptions {
            nodelay: true,
            keepalive: Some(keepalive),
            user_timeout: Some(Duration::from_millis(1500)),
            mss: Some(800),
            interface: Some("lo".into()),
            fast_open: true,
            ..options()
        };
        let stream = connect(&listener.local_addr().unwrap().into(), &wish);
        let socket = SockRef::from(&stream);
        assert!(socket.nonblocking().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(33));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1500)));
        assert!(socket.tcp_mss().unwrap() <= 800);
        let mut fast_open = [0; 4];
        sockopt::bytes_of(&stream, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &mut fast_open).unwrap();
        assert_eq!(i32::from_ne_bytes(fast_open), 1);
        assert_eq!(socket.device().unwrap(), Some(b"lo".to_vec()));
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    }
}

#[test]
fn a_closed_port_refuses() {
    for text in LOOPBACKS {
        let listener = TcpListener::bind(text).unwrap();
        let at = Endpoint::from(listener.local_addr().unwrap());
        drop(listener);
        let kind = match start(&at, &options()) {
            Ok(started) => {
                let fd = started.into_fd();
                wait_writable(&fd);
                finished(&fd).unwrap_err().kind()
            }
            Err(error) => {
                assert!(!error.is_ours());
                error.source.kind()
            }
        };
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn the_source_address_is_ours_to_choose() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::from(listener.local_addr().unwrap());
    let wish = ConnectOptions { source: Some("127.0.0.5:0".parse().unwrap()), ..options() };
    let _stream = connect(&at, &wish);
    assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.5");

    // One source port serves connections to several servers, which it could not without NO_PORT.
    let free = TcpListener::bind("127.0.0.5:0").unwrap().local_addr().unwrap();
    let wish = ConnectOptions { source: Some(free), ..options() };
    let _one = connect(&at, &wish);
    assert_eq!(listener.accept().unwrap().1, free);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let _two = connect(&Endpoint::from(other.local_addr().unwrap()), &wish);
    assert_eq!(other.accept().unwrap().1, free);
}

#[test]
fn faults_of_ours_are_told_from_the_servers() {
    fn check(peer: &str, options: &ConnectOptions, expect: ConnectStep, ours: bool) {
        let error = start(&endpoint(peer), options).unwrap_err();
        assert_eq!((error.step, error.is_ours()), (expect, ours), "{error}");
        assert!(error.to_string().contains(&error.source.to_string()));
    }
    let foreign = ConnectOptions { source: Some("192.0.2.1:0".parse().unwrap()), ..options() };
    check("127.0.0.1:9", &foreign, ConnectStep::Source, true);
    let nowhere = ConnectOptions { interface: Some("no-such-if".into()), ..options() };
    check("127.0.0.1:9", &nowhere, ConnectStep::Option("interface"), true);
    let error = start(&Endpoint::Fd(0), &options()).unwrap_err();
    assert_eq!((error.step, error.source.kind()), (ConnectStep::Connect, io::ErrorKind::InvalidInput));
}

#[test]
fn a_foreign_source_and_a_mark_need_rights_and_work_with_them() {
    let result = crate::netns::in_new(|| {
        let foreign = ConnectOptions {
            source: Some("192.0.2.1:0".parse().unwrap()),
            transparent: true,
            mark: Some(7),
            ..options()
        };
        let stream = start(&endpoint("127.0.0.1:9"), &foreign).unwrap().into_fd();
        let local = Endpoint::local_of(&stream).unwrap().unwrap().inet().unwrap();
        assert_eq!(local.ip().to_string(), "192.0.2.1");
        assert_eq!(SockRef::from(&stream).mark().unwrap(), 7);
        let unreachable = start(&endpoint("203.0.113.1:9"), &options()).unwrap_err();
        assert_eq!(unreachable.source.kind(), io::ErrorKind::NetworkUnreachable);
        assert!(!unreachable.is_ours());
    });
    if let Err(error) = result {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

#[test]
fn unix_peers_connect_at_once_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let at = Endpoint::Unix(path.clone());
    assert_eq!(start(&at, &options()).unwrap_err().source.kind(), io::ErrorKind::NotFound);
    let listener = UnixListener::bind(&path).unwrap();
    SockRef::from(&listener).listen(1).unwrap();
    let mut held = Vec::new();
    let full = loop {
        match start(&at, &options()) {
            Ok(started) => {
                assert!(matches!(started, Started::Connected(_)));
                let fd = started.into_fd();
                assert!(finished(&fd).unwrap());
                held.push(fd);
            }
            Err(error) => break error,
        }
        assert!(held.len() < 100, "a queue of one must fill");
    };
    assert_eq!(full.source.kind(), io::ErrorKind::WouldBlock);
    drop(listener);
    assert_eq!(start(&at, &options()).unwrap_err().source.kind(), io::ErrorKind::ConnectionRefused);
}
