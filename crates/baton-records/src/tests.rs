//! Two ends against each other, in both versions and with every cipher; and one against a peer that breaks the protocol.

use proptest::prelude::*;

use crate::*;

const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];
const PROTOCOLS: [Protocol; 2] = [Protocol::Tls12, Protocol::Tls13];

fn keys(protocol: Protocol, cipher: Cipher, seed: u8, sequence: u64) -> Keys {
    match protocol {
        Protocol::Tls12 => Keys::Tls12(Secret::new(&vec![seed; cipher.key_len()]).unwrap(), [seed; 12], sequence),
        Protocol::Tls13 => Keys::Tls13(Secret::new(&vec![seed; cipher.secret_len()]).unwrap(), sequence),
    }
}

/// A client and a server whose next records have this number.
fn ends_at(protocol: Protocol, cipher: Cipher, sequence: u64) -> [Layer; 2] {
    let key = |seed| keys(protocol, cipher, seed, sequence);
    let client = Layer::new(Role::Client, cipher, key(1), key(2), PLAIN_MAX).unwrap();
    [client, Layer::new(Role::Server, cipher, key(2), key(1), PLAIN_MAX).unwrap()]
}

fn each(test: impl Fn([Layer; 2], &str)) {
    for protocol in PROTOCOLS {
        for cipher in CIPHERS {
            test(ends_at(protocol, cipher, 0), &format!("{protocol:?} {cipher:?}"));
        }
    }
}

fn seal(layer: &mut Layer, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; layer.sealed_len(plain.len())];
    let count = layer.seal(plain, &mut out).expect("room and numbers");
    out.truncate(count);
    out
}

/// One record of any content. TLS 1.3 has the type inside.
fn any(layer: &mut Layer, kind: u8, plain: &[u8]) -> Vec<u8> {
    layer.seal_any(kind, plain).expect("numbers")
}

fn open_all(layer: &mut Layer, mut records: Vec<u8>, room: usize) -> Result<(Vec<u8>, bool), Violation> {
    let (mut got, mut ended, mut room) = (Vec::new(), false, vec![0; room]);
    let mut at = 0;
    while let Some(Opened { used, content }) = layer.open(&mut records[at..], &mut room, &mut |_| true)? {
        match content {
            Content::InRoom(count) => got.extend(&room[..count]),
            Content::InPlace(range) => got.extend(&records[at..][range]),
            Content::Control => {}
            Content::End => ended = true,
        }
        at += used;
    }
    assert_eq!(at, records.len(), "all of it");
    Ok((got, ended))
}

#[test]
fn what_is_sealed_is_opened() {
    each(|[mut client, mut server], name| {
        let long: Vec<u8> = (0..70_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        for plain in [&b"x"[..], b"request", &long[..PLAIN_MAX], &long[..PLAIN_MAX + 1], &long] {
            for room in [0, 100, PLAIN_MAX, PLAIN_MAX + 1] {
                let records = seal(&mut client, plain);
                assert_eq!(open_all(&mut server, records, room).unwrap().0, plain, "{name} {room}");
                let records = seal(&mut server, plain);
                assert_eq!(open_all(&mut client, records, room).unwrap().0, plain, "{name} {room}");
            }
        }
        let mut out = vec![0; client.sealed_len(0)];
        let count = client.seal_end(&mut out).unwrap();
        out.truncate(count);
        assert_eq!(open_all(&mut server, out, 0), Ok((Vec::new(), true)), "{name}");
    });
}

#[test]
fn no_record_is_opened_twice_out_of_order_or_changed() {
    for (protocol, cipher) in PROTOCOLS.into_iter().flat_map(|protocol| CIPHERS.map(|cipher| (protocol, cipher))) {
        let [mut client, _] = ends_at(protocol, cipher, 0);
        let records = [seal(&mut client, b"first"), seal(&mut client, b"second")];
        let open = |records: Vec<u8>| {
            let [_, mut server] = ends_at(protocol, cipher, 0);
            open_all(&mut server, records, 0)
        };
        let order = |order: [usize; 2]| open(order.iter().flat_map(|at| records[*at].clone()).collect());
        assert_eq!(order([0, 1]), Ok((b"firstsecond".to_vec(), false)));
        assert_eq!(order([0, 0]), Err(Violation::BadRecord));
        assert_eq!(order([1, 0]), Err(Violation::BadRecord));
        for at in 5..records[0].len() {
            let mut bent = records[0].clone();
            bent[at] ^= 1;
            assert_eq!(open(bent), Err(Violation::BadRecord), "{protocol:?} {cipher:?} {at}");
        }
    }
}

#[test]
fn keys_are_updated_when_they_are_asked_for_and_when_they_are_worn() {
    for cipher in CIPHERS {
        let [mut client, mut server] = ends_at(Protocol::Tls13, cipher, 0);
        for asked in [0, 1, 1] {
            // The client's KeyUpdate, with its own next key behind it.
            let update = any(&mut client, 22, &[24, 0, 0, 1, asked]);
            client.update_sealing_key();
            assert_eq!(open_all(&mut server, update, 0), Ok((Vec::new(), false)));
            assert_eq!(server.owes(), asked == 1);
            let response = seal(&mut server, b"behind it");
            assert!(!server.owes());
            assert_eq!(open_all(&mut client, response, 0).unwrap().0, b"behind it");
            let request = seal(&mut client, b"with the next key");
            assert_eq!(open_all(&mut server, request, 0).unwrap().0, b"with the next key");
        }
    }
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let [mut client, mut server] = ends_at(Protocol::Tls13, cipher, (1 << 24) - 1);
        let records = seal(&mut client, &[7; 3 * PLAIN_MAX]);
        assert_eq!(open_all(&mut server, records, 0).unwrap().0, [7; 3 * PLAIN_MAX], "a KeyUpdate is between them");
        assert!(!server.owes(), "nothing is asked in return");
        // TLS 1.2 has no other key.
        let [mut client, mut server] = ends_at(Protocol::Tls12, cipher, (1 << 24) - 1);
        let mut out = vec![0; client.sealed_len(PLAIN_MAX + 1)];
        let records = seal(&mut client, b"the last");
        assert_eq!(open_all(&mut server, records, 0).unwrap().0, b"the last");
        assert_eq!((client.left(), client.seal(b"one more", &mut out)), (0, Err(Exhausted)));
        let count = client.seal_end(&mut out).expect("the end may be said");
        assert_eq!(open_all(&mut server, out[..count].to_vec(), 0), Ok((Vec::new(), true)));
    }
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        // Two records are left within a write of three: it uses no number, so that the end can be said behind one that fits.
        let [mut client, mut server] = ends_at(Protocol::Tls12, cipher, (1 << 24) - 2);
        let mut out = vec![0; client.sealed_len(3 * PLAIN_MAX)];
        assert_eq!(client.left(), 2 * PLAIN_MAX as u64);
        assert_eq!(client.seal(&[7; 2 * PLAIN_MAX + 1], &mut out), Err(Exhausted));
        let records = seal(&mut client, &[7; 2 * PLAIN_MAX]);
        assert_eq!(open_all(&mut server, records, 0).unwrap().0, [7; 2 * PLAIN_MAX]);
        let count = client.seal_end(&mut out).expect("the end may be said");
        assert_eq!(open_all(&mut server, out[..count].to_vec(), 0), Ok((Vec::new(), true)));
        let [client, _] = ends_at(Protocol::Tls12, cipher, 1 << 30);
        assert_eq!(client.left(), 0, "of a program with another limit");
    }
    for cipher in CIPHERS {
        let [mut client, mut server] = ends_at(Protocol::Tls12, cipher, u64::MAX - 16);
        assert_eq!(client.seal(b"x", &mut [0; 1000]), Err(Exhausted), "numbers do not wrap");
        let record = any(&mut client, 23, b"x");
        assert_eq!(open_all(&mut server, record, 0), Err(Violation::BadRecord));
    }
}

#[test]
fn messages_come_in_pieces_and_several_at_a_time() {
    for cipher in CIPHERS {
        let [mut client, mut server] = ends_at(Protocol::Tls13, cipher, 0);
        let ticket = |body: &[u8]| [&[4, 0, 0, body.len() as u8], body].concat();
        let all = [ticket(b"one"), ticket(b""), ticket(b"three"), vec![24, 0, 0, 1, 0]].concat();
        for piece in 1..=all.len() {
            let records: Vec<Vec<u8>> = all.chunks(piece).map(|piece| any(&mut server, 22, piece)).collect();
            server.update_sealing_key();
            let mut tickets = Vec::new();
            for mut record in records {
                let opened = client.open(&mut record, &mut [], &mut |ticket| {
                    tickets.push(ticket.to_vec());
                    true
                });
                assert_eq!(opened.unwrap().unwrap().content, Content::Control);
            }
            assert_eq!(tickets, [&b"one"[..], b"", b"three"], "{piece}");
            let records = seal(&mut server, b"data");
            assert_eq!(open_all(&mut client, records, 0).unwrap().0, b"data");
        }
    }
}

/// A client that sends these contents: what a server says to it, and the alert.
fn violation(protocol: Protocol, records: &[(u8, &[u8])], expect: Option<(Violation, Option<u8>)>) {
    check(Role::Server, protocol, records, expect);
}

fn check(role: Role, protocol: Protocol, records: &[(u8, &[u8])], expect: Option<(Violation, Option<u8>)>) {
    for cipher in CIPHERS {
        let [client, server] = ends_at(protocol, cipher, 0);
        let (mut peer, mut layer) = if role == Role::Server { (client, server) } else { (server, client) };
        let outcome = records.iter().try_for_each(|(kind, plain)| {
            let record = any(&mut peer, *kind, plain);
            open_all(&mut layer, record, 0).map(drop)
        });
        let expected = expect.map(|(violation, _)| violation);
        assert_eq!(outcome.err(), expected, "{role:?} {protocol:?} {records:?}");
        if let Some((violation, alert)) = expect {
            assert_eq!(violation.alert(), alert);
            let mut out = [0; 100];
            let count = layer.seal_refusal(violation, &mut out).unwrap();
            let told = open_all(&mut peer, out[..count].to_vec(), 0);
            assert_eq!(told, alert.map_or(Ok((Vec::new(), false)), |alert| Err(Violation::Told(alert))));
        }
    }
}

#[test]
fn what_a_peer_may_not_do_ends_the_connection() {
    use Violation::{Flood, Illegal, Malformed, Overflow, Told, Unexpected};
    let unexpected = Some((Unexpected, Some(10)));
    let update: (u8, &[u8]) = (22, &[24, 0, 0, 1, 0]);
    let new = |records: &[(u8, &[u8])], expect| violation(Protocol::Tls13, records, expect);
    let old = |records: &[(u8, &[u8])], expect| violation(Protocol::Tls12, records, expect);
    new(&[(20, &[1])], unexpected);
    new(&[(0, b"")], unexpected);
    new(&[(22, b"")], unexpected);
    new(&[(22, &[1, 0, 0, 0])], unexpected);
    new(&[(22, &[4, 0, 0, 0])], unexpected);
    new(&[(22, &[24, 0])], None);
    new(&[(22, &[24, 0]), (23, b"between")], unexpected);
    new(&[(22, &[24, 0]), (21, &[1, 0])], unexpected);
    new(&[(22, &[24, 0, 0, 1, 0, 24])], unexpected);
    new(&[(22, &[24, 0, 0, 1, 2])], Some((Illegal, Some(47))));
    new(&[(22, &[24, 0, 0, 2, 0, 0])], Some((Malformed, Some(50))));
    new(&[(22, &[24, 1, 0, 0])], Some((Malformed, Some(50))));
    new(&[(21, &[1])], Some((Malformed, Some(50))));
    new(&[(21, &[1, 90])], None);
    new(&[(21, &[1, 90][..]); 5], Some((Flood, Some(10))));
    new(&[(21, &[1, 100])], Some((Told(100), None)));
    new(&[(21, &[2, 48])], Some((Told(48), None)));
    new(&[(21, &[3, 0])], Some((Illegal, Some(47))));
    new(&[(23, &b""[..]); 32], None);
    new(&[(23, &b""[..]); 33], Some((Flood, Some(10))));
    new(&[(23, &[1; PLAIN_MAX + 1])], Some((Overflow, Some(22))));
    old(&[(23, &[1; PLAIN_MAX + 1])], Some((Overflow, Some(22))));
    old(&[(23, &b""[..]); 33], Some((Flood, Some(10))));
    old(&[(22, &[1, 0, 0, 0])], None);
    old(&[(22, &[1, 0, 0, 0][..]); 2], Some((Flood, Some(10))));
    old(&[(22, &[0, 0, 0, 0])], unexpected);
    old(&[update], unexpected);
    old(&[(21, &[1, 100][..]); 4], None);
    old(&[(21, &[1, 100][..]); 5], Some((Flood, Some(10))));
    check(Role::Client, Protocol::Tls12, &[(22, &[0, 0, 0, 0])], None);
    check(Role::Client, Protocol::Tls12, &[(22, &[1, 0, 0, 0])], unexpected);
    check(Role::Client, Protocol::Tls13, &[(22, &[4, 0, 0, 0])], None);
    check(Role::Client, Protocol::Tls13, &[(22, &[1, 0, 0, 0])], unexpected);
}

#[test]
fn what_is_no_record_of_the_connection_is_refused_by_its_header() {
    let judged = |protocol, header: [u8; 5]| {
        let [mut client, _] = ends_at(protocol, Cipher::Aes128Gcm, 0);
        client.open(&mut header.to_vec(), &mut [], &mut |_| true)
    };
    for protocol in PROTOCOLS {
        assert_eq!(judged(protocol, *b"GET /"), Err(Violation::Unexpected));
        assert_eq!(judged(protocol, [20, 3, 3, 0, 1]), Err(Violation::Unexpected));
        assert_eq!(judged(protocol, [23, 3, 3, 0xff, 0]), Err(Violation::Overflow));
        assert_eq!(judged(protocol, [23, 3, 3, 0, 0]), Err(Violation::BadRecord));
    }
    for version in [[2, 0], [3, 1], [9, 9]] {
        let header = [23, version[0], version[1], 1, 0];
        assert_eq!(judged(Protocol::Tls13, header), Ok(None), "it means nothing");
        assert_eq!(judged(Protocol::Tls12, header), Err(Violation::Version));
    }
    assert_eq!(judged(Protocol::Tls13, [21, 3, 3, 0, 2]), Err(Violation::Unexpected));
}

#[test]
fn floods_of_key_updates_end_and_data_between_them_is_none() {
    let [mut client, mut server] = ends_at(Protocol::Tls13, Cipher::Aes128Gcm, 0);
    let update = |client: &mut Layer, server: &mut Layer| {
        let record = any(client, 22, &[24, 0, 0, 1, 1]);
        client.update_sealing_key();
        open_all(server, record, 0).map(drop)
    };
    for _ in 0..100 {
        assert_eq!(update(&mut client, &mut server), Ok(()));
        let data = seal(&mut client, b"x");
        open_all(&mut server, data, 0).unwrap();
    }
    for _ in 0..4096 {
        assert_eq!(update(&mut client, &mut server), Ok(()));
    }
    assert_eq!(update(&mut client, &mut server), Err(Violation::Flood));
}

#[test]
fn padding_of_tls_1_3_is_taken_off() {
    let [mut client, mut server] = ends_at(Protocol::Tls13, Cipher::Chacha20Poly1305, 0);
    // The type inside is the last byte that is not zero.
    let record = any(&mut client, 0, &[b'x', 23, 0, 0, 0]);
    assert_eq!(open_all(&mut server, record, 100).unwrap().0, b"x");
}

/// A layer as bytes and back.
fn moved(layer: Layer) -> Layer {
    let bytes = layer.into_bytes();
    for end in 0..bytes.len() {
        assert!(Layer::from_bytes(&bytes[..end]).is_none(), "{end}");
    }
    assert!(Layer::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
    let other = [&[bytes[0] + 1], &bytes[1..]].concat();
    assert!(Layer::from_bytes(&other).is_none(), "another version");
    Layer::from_bytes(&bytes).expect("a layer")
}

#[test]
fn a_layer_goes_on_where_its_bytes_were_taken() {
    each(|[mut client, mut server], name| {
        for round in 0..5 {
            let up = seal(&mut client, b"up");
            server = moved(server);
            assert_eq!(open_all(&mut server, up, 0).unwrap().0, b"up", "{name} {round}");
            let down = seal(&mut server, b"down");
            client = moved(client);
            assert_eq!(open_all(&mut client, down, 0).unwrap().0, b"down", "{name} {round}");
            if client.protocol() == Protocol::Tls13 {
                // A KeyUpdate in two pieces, with a move between them, and what it asks for behind another one.
                let first = any(&mut client, 22, &[24, 0, 0]);
                let second = any(&mut client, 22, &[1, 1]);
                client.update_sealing_key();
                open_all(&mut server, first, 0).unwrap();
                server = moved(server);
                open_all(&mut server, second, 0).unwrap();
                server = moved(server);
                assert!(server.owes());
            }
        }
        assert_eq!(server.role(), Role::Server);
    });
    // What is limited stays limited.
    let [mut client, mut server] = ends_at(Protocol::Tls12, Cipher::Aes128Gcm, 0);
    for _ in 0..4 {
        let warning = any(&mut client, 21, &[1, 100]);
        open_all(&mut server, warning, 0).unwrap();
        server = moved(server);
    }
    let warning = any(&mut client, 21, &[1, 100]);
    assert_eq!(open_all(&mut server, warning, 0), Err(Violation::Flood));
}

#[test]
fn bytes_that_no_layer_gives_are_refused() {
    let check = |protocol: Protocol, change: &dyn Fn(&mut Vec<u8>), expect: bool| {
        let [_, server] = ends_at(protocol, Cipher::Aes128Gcm, 0);
        let mut bytes = server.into_bytes().to_vec();
        change(&mut bytes);
        assert_eq!(Layer::from_bytes(&bytes).is_some(), expect, "{protocol:?} {bytes:?}");
    };
    let set = |at: usize, value: u8| move |bytes: &mut Vec<u8>| bytes[at] = value;
    let hold = |bytes: &mut Vec<u8>, message: &[u8]| {
        let end = bytes.len();
        bytes[end - 1] = message.len() as u8;
        bytes.extend(message);
    };
    for protocol in PROTOCOLS {
        check(protocol, &|_| {}, true);
        // Role, protocol, cipher, plain bytes of a record.
        for at in [1, 2, 3] {
            check(protocol, &set(at, 9), false);
        }
        check(protocol, &set(4, 0x41), false);
        // What is owed and what was seen.
        check(protocol, &set(6, 1), protocol == Protocol::Tls13);
        check(protocol, &set(6, 2), protocol == Protocol::Tls12);
        check(protocol, &set(6, 3), false);
        for (at, most) in [(7, 32), (9, 4), (10, 1)] {
            check(protocol, &set(at, most), true);
            check(protocol, &set(at, most + 1), false);
        }
        // The keys of both directions are the same.
        let same = |bytes: &mut Vec<u8>| {
            let middle = 11 + (bytes.len() - 15) / 2;
            let first = bytes[11..middle].to_vec();
            bytes[middle..middle + first.len()].copy_from_slice(&first);
        };
        check(protocol, &same, false);
        // The start of a message.
        let (may, may_not) = if protocol == Protocol::Tls13 { (24, 4) } else { (1, 0) };
        check(protocol, &|bytes| hold(bytes, &[24, 0, 0]), true);
        for (message, expect) in [
            ([may, 0, 0, 2, 0], true),
            ([may, 0, 0, 1, 0], false),
            ([may_not, 0, 0, 2, 0], false),
            ([may, 1, 0, 0, 0], false),
        ] {
            check(protocol, &|bytes| hold(bytes, &message), expect);
        }
    }
}

#[test]
fn secrets_that_were_updated_meanwhile_are_found_by_their_keys() {
    for cipher in CIPHERS {
        let secrets = || [1, 2].map(|seed| Secret::new(&vec![seed; cipher.secret_len()]).unwrap());
        let [mut client, mut server] = ends_at(Protocol::Tls13, cipher, 0);
        for updates in 0..3 {
            let (sealed, opened) = (client.sealing_key(), client.opening_key());
            let places = [(&sealed.0[..], &sealed.1[..], updates), (&opened.0[..], &opened.1[..], updates)];
            let mut found =
                Layer::of_secrets(Role::Client, cipher, secrets(), places, PLAIN_MAX).expect("they are found");
            assert_eq!(seal(&mut found, b"x").len(), b"x".len() + 22);
            for end in [&mut client, &mut server] {
                end.update_sealing_key();
            }
        }
        let places = [(&[9; 32][..cipher.key_len()], &[9; 12][..], 0); 2];
        assert!(Layer::of_secrets(Role::Client, cipher, secrets(), places, PLAIN_MAX).is_none());
    }
}

#[test]
fn nothing_prints_a_key() {
    let [client, _] = ends_at(Protocol::Tls12, Cipher::Aes128Gcm, 0);
    assert_eq!(format!("{client:?}"), "Layer");
    let key = keys(Protocol::Tls13, Cipher::Aes128Gcm, 77, 0);
    assert!(!format!("{key:?}").contains("77"));
}

#[test]
fn the_longest_record_is_as_long_as_it_says() {
    each(|[mut client, mut server], name| {
        let record = any(&mut client, 23, &[1; PLAIN_MAX]);
        assert!(record.len() <= RECORD_MAX, "{name}");
        assert_eq!(open_all(&mut server, record, PLAIN_MAX + 1).unwrap().0.len(), PLAIN_MAX);
    });
}

proptest! {
    /// Whatever comes, cut however: no panic, and the same outcome.
    #[test]
    fn any_bytes_are_refused_the_same_however_they_are_cut(input in prop::collection::vec(any_byte(), 0..200), cut in 0_usize..200) {
        for protocol in PROTOCOLS {
            let run = |first: usize| {
                let [_, mut server] = ends_at(protocol, Cipher::Aes128Gcm, 0);
                let mut part = input[..first.min(input.len())].to_vec();
                let before = server.open(&mut part, &mut [], &mut |_| true);
                let mut all = input.clone();
                before.and_then(|_| server.open(&mut all, &mut [], &mut |_| true))
            };
            prop_assert_eq!(run(cut).is_err(), run(input.len()).is_err());
        }
    }
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(23_u8), Just(3), Just(0), Just(20), any_u8()]
}

fn any_u8() -> impl Strategy<Value = u8> {
    (0..=u8::MAX).prop_map(|byte| byte)
}
