//! Peers that mean no good. Whatever they send, they are closed, others go on, and nothing panics.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use baton_prove::certificates::KeyKind;
use socket2::SockRef;

use crate::rustls_client::{Secure, hello, socket};
use crate::world::{World, usual};

/// Mutations of a valid hello, unless BATON_MUTATIONS says how many.
const MUTATIONS: u64 = 10_000;
/// The most bytes that a server answers to a hello with which nothing comes to be.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// A record of this type with these bytes.
fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a record is short");
    [&[kind, 3, 3][..], &length.to_be_bytes(), bytes].concat()
}

/// Sends bytes; gives what came until the other side closed. That it does not fails the test.
#[track_caller]
fn closed_after(world: &World, bytes: &[u8]) -> Vec<u8> {
    let mut socket = socket(world);
    // It may be closed already before all is written.
    let _ = socket.write_all(bytes);
    ended(&mut socket)
}

/// What comes until the other side closes.
#[track_caller]
fn ended(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = [0; 16_384];
    loop {
        match socket.read(&mut some) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("not closed: {error}, after {} bytes", all.len()),
        }
        assert!(all.len() < ANSWER_BYTES_MAX, "an answer without end");
    }
}

#[test]
fn what_is_no_hello_is_closed() {
    let mut world = usual();
    let mut other = Secure::new(&world, None);
    other.get(10);
    let hello = hello(&world);
    let body = &hello[5..];
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = hello.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("plain HTTP", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec()),
        ("another protocol", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n".to_vec()),
        ("zeros", vec![0; 100]),
        ("ones", vec![255; 100]),
        // 28 bytes follow: version 0.2, three ciphers, no session, 16 bytes of challenge.
        (
            "a hello of SSL 2.0",
            [&[0x80, 0x22, 1, 0, 2, 0, 9, 0, 0, 0, 16][..], &[1, 0, 0x80, 7, 0, 0xc0, 3, 0, 0x80], &[7; 16]].concat(),
        ),
        ("a hello of SSL 3.0", with(1, &[3, 0, hello[3], hello[4], hello[5], hello[6], hello[7], hello[8], 3, 0])),
        ("a record too long", [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 70_000]].concat()),
        ("a record of an unknown type", record(99, body)),
        ("application data first", record(23, b"GET / HTTP/1.1\r\n\r\n")),
        ("a change of cipher first", record(20, &[1])),
        ("an alert first", record(ALERT, &[2, 40])),
        ("a close_notify first", record(ALERT, &[1, 0])),
        ("an empty record", record(HANDSHAKE, &[])),
        ("another message first", record(HANDSHAKE, &[&[20, 0, 0, 32][..], &[0; 32]].concat())),
        ("the hello of a server", record(HANDSHAKE, &[&[2][..], &body[1..]].concat())),
        (
            "a message of 16 MiB",
            [record(HANDSHAKE, &[1, 0xff, 0xff, 0xff]), record(HANDSHAKE, &[0; 16_000]).repeat(20)].concat(),
        ),
        ("a hello twice", [hello.clone(), hello.clone()].concat()),
        ("a hello and an answer to nothing", [hello.clone(), record(23, &[0; 64])].concat()),
        ("nothing but empty records", record(HANDSHAKE, &[]).repeat(5_000)),
        ("nothing but warnings", record(ALERT, &[1, 90]).repeat(5_000)),
        ("no cipher", with(5 + 4 + 2 + 32 + 1 + 32, &[0, 0])),
    ];
    for (what, bytes) in cases {
        // Some wait for more: that there is none is told by closing our side.
        let mut socket = socket(&world);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let answer = ended(&mut socket);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{what}: {:?}", String::from_utf8_lossy(&answer));
    }
    other.get(10);
    world.serves();
}

#[test]
fn what_is_no_hello_is_closed_without_waiting_for_more() {
    let mut world = usual();
    closed_after(&world, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    closed_after(&world, &[&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 70_000]].concat());
    closed_after(&world, &record(23, &[0; 64]));
    world.serves();
}

#[test]
fn a_hello_comes_in_any_pieces() {
    let mut world = usual();
    let hello = hello(&world);
    // Byte by byte.
    let mut socket = socket(&world);
    for byte in &hello {
        socket.write_all(&[*byte]).expect("it waits for more");
    }
    let mut kind = [0];
    socket.read_exact(&mut kind).expect("an answer");
    assert_eq!(kind, [HANDSHAKE]);
    // Each byte in a record of its own: that may be refused, but must be answered.
    let records: Vec<u8> = hello[5..].iter().flat_map(|byte| record(HANDSHAKE, &[*byte])).collect();
    let mut socket = crate::rustls_client::socket(&world);
    socket.write_all(&records).expect("it is open");
    socket.read_exact(&mut kind).expect("an answer");
    assert!([HANDSHAKE, ALERT].contains(&kind[0]), "{kind:?}");
    // The smallest records that a client of today makes.
    let mut small = Secure::new(&world, Some(32));
    small.get(1000);
    small.get(100_000);
    world.serves();
}

#[test]
fn a_handshake_that_never_ends_is_ended() {
    let mut world = World::start_with(KeyKind::P256, "crt FOLDER/a.pem", "", "timeout client 300ms");
    let hello = hello(&world);
    let silent = [&[][..], &hello[..1], &hello[..5], &hello[..60], &hello[..], &hello[..hello.len() - 1]];
    let mut sockets: Vec<TcpStream> = silent
        .map(|bytes| {
            let mut socket = socket(&world);
            socket.write_all(bytes).expect("it is open");
            socket
        })
        .into();
    world.serves();
    for socket in &mut sockets {
        ended(socket);
    }
    world.serves();
}

#[test]
fn bytes_that_were_changed_on_the_way_are_noticed() {
    let mut world = usual();
    let mut secure = Secure::new(&world, None);
    secure.get(10);
    secure.below().write_all(&record(23, &[7; 100])).expect("it is open");
    let answer = ended(secure.below());
    assert!(answer.is_empty() || [ALERT, 23].contains(&answer[0]), "{answer:?}");
    world.serves();
}

#[test]
fn those_who_leave_in_the_middle_leave_nothing() {
    let mut world = usual();
    let hello = hello(&world);
    for length in (0..hello.len()).step_by(7).chain([hello.len()]) {
        let mut socket = socket(&world);
        socket.write_all(&hello[..length]).expect("it is open");
        if length % 2 == 0 {
            SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
        }
    }
    world.serves();
}

/// A small generator of numbers: the same seed gives the same run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// A hello with a few faults: bytes changed, parts left out or repeated, lengths that are wrong.
fn mutated(hello: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    for _ in 0..1 + numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            0 => bytes[at] = numbers.below(256) as u8,
            1 => bytes[at] ^= 1 << numbers.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)],
            3 => {
                let end = (at + 1 + numbers.below(16)).min(bytes.len());
                bytes.drain(at.max(1)..end.max(1));
            }
            4 => {
                let end = (at + 1 + numbers.below(16)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => bytes.truncate(at.max(1)),
        }
        // The outer lengths are often right, so that what lies within is looked at.
        if numbers.below(3) > 0 && bytes.len() > 9 {
            let length = bytes.len() - 5;
            bytes[3..5].copy_from_slice(&(length as u16).to_be_bytes());
            bytes[6..9].copy_from_slice(&((length - 4) as u32).to_be_bytes()[1..]);
        }
    }
    bytes
}

#[test]
fn thousands_of_hellos_with_faults() {
    let mut world = usual();
    let hello = hello(&world);
    let mut other = Secure::new(&world, None);
    let times = std::env::var("BATON_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(MUTATIONS);
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let (world, hello) = (&world, &hello);
            scope.spawn(move || {
                for number in (lane..times).step_by(4) {
                    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
                    let bytes = mutated(hello, &mut numbers);
                    let mut socket = socket(world);
                    let _ = socket.write_all(&bytes);
                    let _ = socket.shutdown(Shutdown::Write);
                    let answer = ended(&mut socket);
                    let answered = answer.first().is_none_or(|kind| [HANDSHAKE, ALERT, 20].contains(kind));
                    assert!(answered, "mutation {number}: {answer:?}");
                }
            });
        }
    });
    other.get(10);
    world.serves();
}
