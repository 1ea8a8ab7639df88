use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::connect::{self, ConnectOptions, Started};
use crate::testing::{LOOPBACKS, address, endpoint, listener, wait_readable, wait_writable};
use crate::{ListenOptions, listen};

/// A connection attempt that is not waited for.
fn attempt(to: &Endpoint) -> OwnedFd {
    connect::start(to, &ConnectOptions::default()).unwrap().into_fd()
}

/// A client's SYN-ACK is dropped on its way, so that its handshake stays half open.
fn drop_everything(client: &impl AsFd) {
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    SockRef::from(client).attach_filter(&[SockFilter::new(ret, 0, 0, 0)]).unwrap();
}

/// A handshake whose last ACK is still to come.
fn half_open_client(to: std::net::SocketAddr) -> socket2::Socket {
    let client = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None).unwrap();
    client.set_nonblocking(true).unwrap();
    drop_everything(&client);
    let error = client.connect(&to.into()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
    client
}

/// The client's byte reaches the accepted connection and comes back.
fn echo(mut client: TcpStream, accepted: OwnedFd) {
    let mut server = TcpStream::from(accepted);
    server.set_nonblocking(false).unwrap();
    client.write_all(b"x").unwrap();
    let mut byte = [0; 1];
    server.read_exact(&mut byte).unwrap();
    server.write_all(&byte).unwrap();
    client.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
}

#[test]
fn the_queue_is_counted() {
    for text in LOOPBACKS {
        let listening = listener(text);
        assert_eq!(accept_queue(&listening).unwrap().waiting, 0);
        let clients: Vec<_> = (0..7).map(|_| TcpStream::connect(address(&listening)).unwrap()).collect();
        assert_eq!(accept_queue(&listening).unwrap().waiting, 7);
        listening.accept().unwrap().unwrap();
        assert_eq!(accept_queue(&listening).unwrap().waiting, 6);
        assert_eq!(accept_queue(&clients[0]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_retired_listener_serves_who_came_before_and_ignores_who_comes_after() {
    for text in LOOPBACKS {
        let listening = listener(text);
        let at = listening.local().clone();
        let before: Vec<_> = (0..50).map(|_| TcpStream::connect(address(&listening)).unwrap()).collect();
        let retiring = Retiring::start(listening).unwrap();
        assert!(SynFilter::is_attached(retiring.listening()).unwrap());
        let late = attempt(&at);
        assert!(!connect::finished(&late).unwrap(), "no answer: neither established nor reset");
        assert!(!retiring.is_empty().unwrap(), "fifty wait");
        for client in before {
            let (accepted, from) = retiring.listening().accept().unwrap().expect("nobody is lost");
            assert_eq!(from, Some(client.local_addr().unwrap()), "in the order of arrival");
            echo(client, accepted);
        }
        assert!(retiring.is_empty().unwrap() && retiring.listening().accept().unwrap().is_none());
        assert!(!connect::finished(&late).unwrap(), "still no answer");

        // The late client repeats its SYN (after a second) and reaches whoever listens there next.
        drop(retiring);
        let next = listen::open(&at, &ListenOptions::default()).expect("the address is free at once");
        wait_writable(&late);
        assert!(connect::finished(&late).unwrap(), "served by the next listener");
        assert!(next.accept().unwrap().is_some());
    }
}

#[test]
fn a_handshake_under_way_ends_normally_behind_the_filter() {
    for text in LOOPBACKS {
        let listening = listener(text);
        let at = address(&listening);
        let client = half_open_client(at);
        assert_eq!(crate::half_open::count(&listening).unwrap(), 1);
        let retiring = Retiring::start(listening).unwrap();
        assert!(retiring.listening().accept().unwrap().is_none());
        assert!(!retiring.is_empty().unwrap(), "one is under way");
        SynFilter::detach(&client).unwrap();
        wait_readable(retiring.listening()); // the SYN-ACK is repeated after a second
        let (accepted, _) = retiring.listening().accept().unwrap().unwrap();
        assert!(SynFilter::is_attached(&accepted).unwrap(), "born behind the filter");
        SynFilter::detach(&accepted).unwrap();
        SynFilter::detach(&accepted).expect("twice is no error");
        assert!(!SynFilter::is_attached(&accepted).unwrap());
        client.set_nonblocking(false).unwrap();
        echo(client.into(), accepted);
        assert!(retiring.is_empty().unwrap());
    }
}

#[test]
fn a_retired_listener_can_resume() {
    for text in LOOPBACKS {
        let retiring = Retiring::start(listener(text)).unwrap();
        let waiting = attempt(retiring.listening().local());
        assert!(!connect::finished(&waiting).unwrap());
        retiring.let_in().unwrap();
        let listening = retiring.into_listening();
        TcpStream::connect(address(&listening)).unwrap();
        wait_writable(&waiting);
        assert!(connect::finished(&waiting).unwrap(), "its repeated SYN is heard");
    }
}

#[test]
fn closing_without_retiring_resets_whoever_waits() {
    // What this module is for: without it the client below is lost.
    let listening = listener("127.0.0.1:0");
    let mut client = TcpStream::connect(address(&listening)).unwrap();
    drop(listening);
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_unix_socket_keeps_its_queue_and_refuses_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let name = Endpoint::Abstract(format!("baton-retire-{}", std::process::id()).into_bytes());
    for at in [Endpoint::Unix(path.clone()), name] {
        let listening = listen::open(&at, &ListenOptions::default()).unwrap();
        let clients: Vec<_> = (0..20).map(|_| attempt(&at)).collect();
        let retiring = Retiring::start(listening).unwrap();
        assert!(connect::start(&at, &ConnectOptions::default()).is_err(), "nobody new");
        for client in clients {
            let (accepted, _) = retiring.listening().accept().unwrap().expect("nobody is lost");
            let mut server = UnixStream::from(accepted);
            server.write_all(b"x").unwrap();
            assert_eq!(UnixStream::from(client).read(&mut [0; 1]).unwrap(), 1);
        }
        assert!(retiring.listening().accept().unwrap().is_none() && retiring.is_empty().unwrap());
        assert!(retiring.let_in().is_err());
    }
    assert!(!path.exists());
}

#[test]
fn retiring_a_replaced_unix_socket_leaves_the_new_ones_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = Endpoint::Unix(folder.path().join("x.sock"));
    let old = listen::open(&at, &ListenOptions::default()).unwrap();
    let new = listen::open(&at, &ListenOptions::default()).unwrap();
    drop(Retiring::start(old).unwrap());
    assert!(matches!(connect::start(&at, &ConnectOptions::default()).unwrap(), Started::Connected(_)));
    assert!(new.accept().unwrap().is_some());
}

#[test]
fn no_unix_client_is_lost_however_the_race_goes() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let path = folder.path().join(format!("{round}.sock"));
        let listening = listen::open(&Endpoint::Unix(path.clone()), &ListenOptions::default()).unwrap();
        let (connected, accepted) = std::thread::scope(|scope| {
            let client = scope.spawn(|| std::iter::from_fn(|| UnixStream::connect(&path).ok()).count());
            wait_readable(&listening);
            let retiring = Retiring::start(listening).unwrap();
            let accepted = std::iter::from_fn(|| retiring.listening().accept().unwrap()).count();
            (client.join().unwrap(), accepted)
        });
        assert_eq!(connected, accepted);
    }
}

#[test]
fn a_syn_flood_of_retired_attempts_leaves_no_half_open_ones() {
    let retiring = Retiring::start(listener("127.0.0.1:0")).unwrap();
    let at = endpoint(&address(retiring.listening()).to_string());
    let _clients: Vec<_> = (0..100).map(|_| attempt(&at)).collect();
    assert!(retiring.is_empty().unwrap());
}

#[test]
fn all_shards_of_an_address_retire_together() {
    let at = endpoint("[::1]:0");
    let group = crate::ListenerGroup::open(&at, &ListenOptions::default(), 3).unwrap();
    let local = group.local().clone();
    let before: Vec<_> = (0..60).map(|_| TcpStream::connect(local.inet().unwrap()).unwrap()).collect();
    let retiring: Vec<_> = group.into_shards().into_iter().map(|shard| Retiring::start(shard).unwrap()).collect();
    let late: Vec<_> = (0..30).map(|_| attempt(&local)).collect();
    let mut accepted = Vec::new();
    for shard in &retiring {
        assert!(!shard.is_empty().unwrap());
        accepted.extend(std::iter::from_fn(|| shard.listening().accept().unwrap()));
        assert!(shard.is_empty().unwrap());
    }
    assert_eq!(accepted.len(), before.len());
    drop(retiring);
    assert!(late.iter().all(|fd| !connect::finished(fd).unwrap()), "neither established nor reset");
    // Whoever was accepted lives on, whichever shard it came from, and ends cleanly.
    drop(accepted);
    for mut client in before {
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "an end, no reset");
    }
}
