use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use super::*;
use crate::Endpoint;
use crate::inherit;
use crate::listen::SocketIdentity;

fn sockets(count: usize) -> Vec<TcpListener> {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    std::iter::repeat_with(|| first.try_clone().unwrap()).take(count).collect()
}

/// A giver that does as `answer` says, and what became of who asked it.
fn asked(limit: usize, answer: impl FnOnce(&mut UnixStream) + Send) -> Result<Vec<Taken>, TakeError> {
    let (mut old, new) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut question = [0; QUESTION.len()];
            old.read_exact(&mut question).unwrap();
            assert_eq!(question, QUESTION);
            answer(&mut old);
        });
        let outcome = take_from(&new, limit);
        drop(new);
        outcome
    })
}

/// What remains of a talk with a giver that says these bytes, with a socket for each of `fds` messages.
#[track_caller]
fn check_malformed(said: &[&[u8]], fds: usize, expect: &str) {
    let sockets = sockets(1);
    let outcome = asked(1000, |old| {
        for (number, part) in said.iter().enumerate() {
            let fds = if (1..=fds).contains(&number) { vec![sockets[0].as_fd()] } else { Vec::new() };
            inherit::send_all(old, part, &fds).unwrap();
        }
    });
    let error = outcome.expect_err(expect).to_string();
    assert!(error.contains(expect), "{error}");
}

#[test]
fn sockets_pass_with_their_names_in_as_many_messages_as_it_takes() {
    for count in [0, 1, 251, 252, 253, 600] {
        let sockets = sockets(count);
        let names: Vec<_> = (0..count).map(|at| "n".repeat(at % 256)).collect();
        let gift = |at: usize| OfferedSocket { fd: sockets[at].as_fd(), namespace: &names[at], interface: "lo" };
        let gifts: Vec<_> = (0..count).map(gift).collect();
        let taken = asked(1000, |old| give(old, &gifts).unwrap()).unwrap();
        let identity = |fd: &dyn AsFd| SocketIdentity::of(&fd.as_fd()).unwrap().unwrap();
        assert_eq!(taken.len(), count);
        for (at, taken) in taken.iter().enumerate() {
            assert_eq!((taken.namespace.as_str(), taken.interface.as_str()), (names[at].as_str(), "lo"));
            assert_eq!(identity(&taken.fd), identity(&sockets[at]));
        }
    }
}

#[test]
fn a_stranger_is_told_from_a_giver() {
    let (one, two) = (1i32.to_ne_bytes(), 2i32.to_ne_bytes());
    check_malformed(&[], 0, "'expose-fd listeners'");
    check_malformed(&[&one[..2]], 0, "cut short");
    check_malformed(&[&(-1i32).to_ne_bytes()], 0, "negative");
    check_malformed(&[b"Unknown command: '_getsocks'"], 0, "the maximum is 1000");
    check_malformed(&[&one], 0, "it closed the connection before");
    check_malformed(&[&one, b"\0\0\0\0\0\0"], 0, "without a socket");
    check_malformed(&[&one, b"\0\0\0\0\x01\0"], 1, "zeroes were expected");
    check_malformed(&[&one, b"\0\xff"], 1, "cut short");
    check_malformed(&[&one, b"\0\x04lo"], 1, "cut short");
    check_malformed(&[&two, b"\0\0\0\0\0\0"], 1, "it closed the connection before");
}

#[test]
fn a_text_may_come_in_parts() {
    let sockets = sockets(1);
    let taken = asked(10, |old| {
        inherit::send_all(old, &1i32.to_ne_bytes(), &[]).unwrap();
        inherit::send_all(old, b"\0\x02l", &[sockets[0].as_fd()]).unwrap();
        old.write_all(b"o\0\0").unwrap();
        old.write_all(b"\0\0").unwrap();
    });
    assert_eq!(taken.unwrap()[0].interface, "lo");
}

#[test]
fn more_sockets_than_there_is_room_for_are_not_asked_for() {
    let too_many = asked(3, |old| old.write_all(&4i32.to_ne_bytes()).unwrap());
    assert!(matches!(too_many, Err(TakeError::TooMany { offered: 4, limit: 3 })), "{too_many:?}");
    let no_room = asked(usize::MAX, |old| old.write_all(&i32::MAX.to_ne_bytes()).unwrap());
    assert!(matches!(no_room, Err(TakeError::NoRoom { .. })), "{no_room:?}");
}

#[test]
fn nobody_is_waited_for_for_ever() {
    let silent = asked(10, |old| {
        old.write_all(&1i32.to_ne_bytes()).unwrap();
        // Until the successor has given up.
        assert_eq!(old.read(&mut [0]).unwrap(), 0);
    });
    assert!(matches!(&silent, Err(TakeError::Talk(_))), "{silent:?}");

    let (old, new) = UnixStream::pair().unwrap();
    let sockets = sockets(1);
    let gifts = vec![OfferedSocket { fd: sockets[0].as_fd(), namespace: "", interface: "" }; 253];
    let error = give(&old, &gifts).expect_err("no message is acknowledged");
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    drop(new);
    assert!(give(&old, &gifts).is_err(), "it is gone");
}

#[test]
fn nobody_there_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats");
    assert!(matches!(take(&Endpoint::Unix(path.clone()), 10), Err(TakeError::Connect(_))));
    let deaf = UnixListener::bind(&path).unwrap();
    drop(deaf);
    assert!(matches!(take(&Endpoint::Unix(path), 10), Err(TakeError::Connect(_))));
}
