//! Record layers of TLS that an old process describes: at the limit of their key, of another connection, and impossible ones.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_prove::OriginHandle;
use baton_records::{Cipher, Content, Keys, Layer, Opened, PLAIN_MAX, Protocol, RECORD_MAX, Role, Secret, Violation};

use crate::givers::Giver;
use crate::support::{Proxy, free_address, until};
use crate::tls::certificate;
use crate::tunnels::{connect, replaced};
use crate::{config, get, origins};

const CIPHER: Cipher = Cipher::Aes128Gcm;
/// Records with data that a key of it seals.
const RECORDS_MAX: u64 = 1 << 24;

fn keys(protocol: Protocol, seed: u8, sequence: u64) -> Keys {
    match protocol {
        Protocol::Tls12 => Keys::Tls12(Secret::new(&[seed; 16]).expect("short"), [seed; 12], sequence),
        Protocol::Tls13 => Keys::Tls13(Secret::new(&[seed; 32]).expect("short"), sequence),
    }
}

/// An end that seals with one key and opens with another, each with the number of its next record.
fn layer(protocol: Protocol, role: Role, sealing: (u8, u64), opening: (u8, u64)) -> Layer {
    let [sealing, opening] = [sealing, opening].map(|(seed, sequence)| keys(protocol, seed, sequence));
    Layer::new(role, CIPHER, sealing, opening, PLAIN_MAX).expect("keys of it")
}

/// Baton with a connection of a client, of whose TLS an old process said that it is this.
struct Told {
    new: Proxy,
    client: TcpStream,
    /// Without TLS.
    other: std::net::SocketAddr,
    _giver: Giver,
    _origins: Vec<OriginHandle>,
    _folder: tempfile::TempDir,
}

impl Told {
    fn start(protocol: Protocol, layer: &[u8]) -> Told {
        let folder = tempfile::tempdir().expect("a folder");
        let pem = certificate(folder.path());
        let (origins, servers) = origins(1);
        let (web, other) = (free_address(), free_address());
        let (version, suite) = if protocol == Protocol::Tls12 { (0x0303, 0xc02b) } else { (0x0304, 0x1301) };
        let layer = STANDARD.encode(layer);
        let tls = format!(r#"{{"layer":"{layer}","version":{version},"suite":{suite}}}"#);
        let mut giver = Giver::start(&format!("moving-tls-{tls}"), web, other);
        let client = connect(web);
        let more = format!(" ssl crt {pem}\n bind {other}\n default_backend");
        let text = config(web, &servers).replace("\n default_backend", &more);
        let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
        giver.meets(&new);
        new.serves();
        Told { new, client, other, _giver: giver, _origins: origins, _folder: folder }
    }

    fn of(layer: Layer) -> Told {
        let told = Told::start(layer.protocol(), &layer.into_bytes());
        until("it is there", || told.new.status().connections_arrived == 1);
        told
    }

    /// Sends records of the client.
    fn ask(&mut self, end: &mut Layer, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        let mut out = vec![0; end.sealed_len(request.len())];
        let count = end.seal(request.as_bytes(), &mut out).expect("numbers");
        self.client.write_all(&out[..count]).expect("it is open");
    }

    /// What comes from Baton until there is so much of it, or the end.
    fn hear(&mut self, end: &mut Layer, wanted: usize) -> Heard {
        let mut heard = Heard::default();
        let (mut held, mut some) = (Vec::new(), vec![0; RECORD_MAX]);
        while heard.bytes.len() < wanted && !heard.ended && heard.violation.is_none() {
            let count = self.client.read(&mut some).expect("it goes on, or ends in order");
            if count == 0 {
                break;
            }
            held.extend_from_slice(&some[..count]);
            loop {
                match end.open(&mut held, &mut [], &mut |_| true) {
                    Ok(None) => break,
                    Ok(Some(Opened { used, content })) => {
                        match content {
                            Content::InPlace(range) => {
                                heard.bytes.extend_from_slice(&held[range]);
                                heard.records += 1;
                            }
                            Content::InRoom(_) => {}
                            Content::Control => heard.others += 1,
                            Content::End => heard.ended = true,
                        }
                        held.drain(..used);
                    }
                    Err(violation) => {
                        heard.violation = Some(violation);
                        break;
                    }
                }
            }
        }
        heard
    }

    /// The connection is over, and nothing else is.
    fn assert_ended(mut self) {
        // More of the same may be there.
        self.client.read_to_end(&mut Vec::new()).expect("an end in order");
        until("it has ended", || self.new.status().connections == 0);
        get(self.other);
        assert!(!self.new.said().contains("panicked"), "{}", self.new.said());
    }
}

#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// Records with data.
    records: u64,
    /// Records with anything else.
    others: u64,
    ended: bool,
    violation: Option<Violation>,
}

#[test]
fn a_key_of_tls_1_2_seals_what_it_may_and_the_end() {
    for (left, whole) in [(1, 0), (3, 2), (0, 0)] {
        let sealed = RECORDS_MAX - left;
        let mut told = Told::of(layer(Protocol::Tls12, Role::Server, (1, sealed), (2, 5)));
        let mut end = layer(Protocol::Tls12, Role::Client, (2, 5), (1, sealed));
        told.ask(&mut end, "/bytes/2000000");
        let heard = told.hear(&mut end, usize::MAX);
        assert_eq!((heard.records, heard.ended, heard.violation), (left, true, None), "in the middle of a response");
        assert!(heard.bytes.len() >= whole * PLAIN_MAX, "{}", heard.bytes.len());
        assert!(left == 0 || heard.bytes.starts_with(b"HTTP/1.1 200 "));
        told.assert_ended();
    }
}

#[test]
fn a_key_of_tls_1_3_that_has_sealed_enough_is_followed_by_the_next() {
    let sealed = RECORDS_MAX - 3;
    let mut told = Told::of(layer(Protocol::Tls13, Role::Server, (1, sealed), (2, 5)));
    let mut end = layer(Protocol::Tls13, Role::Client, (2, 5), (1, sealed));
    for moves in [0, 1] {
        let old = replaced(&mut told.new, moves);
        told.ask(&mut end, "/bytes/200000");
        let heard = told.hear(&mut end, 200_000);
        assert!(heard.bytes.starts_with(b"HTTP/1.1 200 ") && !heard.ended);
        assert_eq!((heard.violation, heard.others), (None, 1 - moves as u64), "one KeyUpdate");
        drop(old);
    }
}

#[test]
fn layers_that_are_of_another_connection_end_it_and_nothing_else() {
    for protocol in [Protocol::Tls12, Protocol::Tls13] {
        // Baton opens with another key, or with another number: what the client says is not from it.
        for (key, number) in [(3, 5), (2, 4), (2, 6)] {
            let mut told = Told::of(layer(protocol, Role::Server, (1, 7), (key, number)));
            let mut end = layer(protocol, Role::Client, (2, 5), (1, 7));
            told.ask(&mut end, "/");
            let heard = told.hear(&mut end, 1);
            assert_eq!((heard.bytes.len(), heard.violation), (0, Some(Violation::Told(20))), "bad_record_mac");
            told.assert_ended();
        }
        // Baton seals with another key, or with another number: its client finds out.
        for (key, number) in [(3, 7), (1, 6), (1, 8)] {
            let mut told = Told::of(layer(protocol, Role::Server, (key, number), (2, 5)));
            let mut end = layer(protocol, Role::Client, (2, 5), (1, 7));
            told.ask(&mut end, "/");
            let heard = told.hear(&mut end, 1);
            assert_eq!((heard.bytes.len(), heard.violation), (0, Some(Violation::BadRecord)));
            told.client.shutdown(Shutdown::Write).expect("it is open");
            told.assert_ended();
        }
    }
}

#[test]
fn impossible_layers_stay_where_they_are() {
    let check = |protocol, layer: &[u8]| {
        let mut told = Told::start(protocol, layer);
        told.client.write_all(b"to whoever has it").expect("it is open");
        let mut text = String::new();
        told.client.read_to_string(&mut text).expect("the giver has it still");
        assert!(text.ends_with("the giver"), "{text}");
        assert_eq!(told.new.status().connections_arrived, 0);
        get(told.other);
    };
    let server = |protocol| layer(protocol, Role::Server, (1, 7), (2, 5));
    // The other end.
    check(Protocol::Tls13, &layer(Protocol::Tls13, Role::Client, (1, 7), (2, 5)).into_bytes());
    // A KeyUpdate is owed, which TLS 1.2 does not have: the next record would be one of TLS 1.3.
    let mut bytes = server(Protocol::Tls12).into_bytes();
    bytes[6] = 1;
    check(Protocol::Tls12, &bytes);
    // The key of one direction is that of the other.
    let mut bytes = server(Protocol::Tls13).into_bytes();
    let (first, second) = bytes[11..].split_at_mut(41);
    second[..33].copy_from_slice(&first[..33]);
    check(Protocol::Tls13, &bytes);
}
