//! Peers that mean no good, and who may connect at all.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, free_address, until};

struct Place {
    folder: TempDir,
    _proxy: Proxy,
}

impl Place {
    fn start(global: &str, more: &str) -> Place {
        let (folder, web) = (tempfile::tempdir().unwrap(), free_address());
        let socket = folder.path().join("a.sock");
        let text = format!(
            "global\n nbthread 1\n{global} stats socket {} level admin {more}\ndefaults\n mode http\n timeout connect 5s\n \
             timeout client 5s\n timeout server 5s\nfrontend web\n bind {web}\n default_backend app\nbackend app\n{}",
            socket.display(),
            (0..2000).map(|number| format!(" server s{number} 127.0.0.1:9\n")).collect::<String>(),
        );
        Place { folder, _proxy: Proxy::start(&text) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("a.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// What comes until the other side closes.
fn rest(mut stream: &UnixStream) -> String {
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn assert_answers(socket: &Path) {
    assert!(socat(socket, "show version\n").starts_with("2.6."));
}

#[test]
fn whatever_is_sent_ends_in_an_answer_or_in_the_end() {
    let place = Place::start("", "");
    let check = |input: &[u8], expect: &str| {
        let stream = place.connect();
        // The other side may have heard enough.
        let _ = (&stream).write_all(input);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let answer = rest(&stream);
        assert!(answer.starts_with(expect), "{:?}: {answer:?}", String::from_utf8_lossy(&input[..input.len().min(60)]));
        assert_answers(&place.socket());
    };
    check(b"", "");
    check(b"show ver", "");
    check(&[b'a'; 1 << 20], "");
    check(&[&[b';'; 16000][..], b"\n"].concat(), "Too many commands on a line");
    check(&[b'\n'; 300], "Unknown command");
    check(&[0; 4000], "");
    check(b"show \0version\n", "Unknown command");
    check(b"\xff\xfe\x80 \xc3(\n", "Unknown command");
    check(b"\\\n", "Unknown command");
    check(b"show version <<\n", "");
    check(&[b"show version <<\n".as_slice(), &b"payload\n".repeat(10_000)].concat(), "");
    check(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "Unknown command");
    let words: Vec<u8> = b"show version ".iter().copied().chain(b"x ".repeat(5000)).chain([b'\n']).collect();
    check(&words, "2.6.");
    let random: Vec<u8> = (0..15_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    check(&random, "");
}

#[test]
fn a_peer_that_does_not_read_holds_up_nobody_and_is_left() {
    let place = Place::start(" stats timeout 500ms\n", "");
    let lazy = place.connect();
    (&lazy).write_all(b"show stat;show stat;show stat\n").unwrap();
    assert_answers(&place.socket());
    let silent = place.connect();
    assert_eq!(rest(&silent), "", "silence ends after the timeout");
    // Its answers are megabytes; it was left with what the kernel had room for.
    let seen = rest(&lazy);
    assert!(seen.len() < 1_500_000 && seen.starts_with("# pxname"), "{}", seen.len());
}

#[test]
fn sessions_have_a_bound_and_wait_for_their_turn() {
    for (global, more) in [(" stats maxconn 2\n", ""), ("", "maxconn 2")] {
        let place = Place::start(global, more);
        let prompt = |mut stream: &UnixStream| {
            stream.write_all(b"prompt\n").unwrap();
            let mut answer = [0; 3];
            stream.read_exact(&mut answer).map(|()| answer)
        };
        let two = [place.connect(), place.connect()];
        for stream in &two {
            assert_eq!(prompt(stream).unwrap(), *b"\n> ");
        }
        let third = place.connect();
        (&third).write_all(b"show version\n").unwrap();
        third.set_nonblocking(true).unwrap();
        assert!((&third).read(&mut [0]).is_err(), "nobody speaks to it yet");
        third.set_nonblocking(false).unwrap();
        drop(two);
        assert!(rest(&third).starts_with("2.6."), "its turn came");
    }
}

#[test]
fn the_socket_has_the_owner_and_mode_it_was_given() {
    let check = |more: &str, mode: u32, owner: (u32, u32)| {
        let place = Place::start("", more);
        let file = std::fs::metadata(place.socket()).unwrap();
        assert_eq!((file.permissions().mode() & 0o777, (file.uid(), file.gid())), (mode, owner), "{more}");
    };
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    check("mode 600", 0o600, (uid, gid));
    check("mode 640", 0o640, (uid, gid));
    match uid {
        0 => {
            check("mode 660 uid 65534 gid 12", 0o660, (65534, 12));
            check("mode 600 user nobody", 0o600, (65534, gid));
        }
        _ => eprintln!("SKIPPED: giving a socket to another user needs root"),
    }
}

#[test]
fn a_soft_stop_closes_the_socket_and_waits_for_no_operator() {
    let place = Place::start("", "");
    let mut operator = place.connect();
    operator.write_all(b"prompt\n").unwrap();
    operator.read_exact(&mut [0; 3]).unwrap();
    place._proxy.signal(nix::sys::signal::Signal::SIGUSR1);
    until("the process ends", || rest(&operator).is_empty());
    until("the socket is gone", || UnixStream::connect(place.socket()).is_err());
}
