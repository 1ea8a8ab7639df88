//! Any contents, in records of a peer that has the keys, and any bytes behind them, towards both roles and in both versions: no panic, the same
//! outcome however they are cut and after a move, and what is answered is records that the peer can open.
#![no_main]

use baton_records::{Cipher, Content, Keys, Layer, Opened, Protocol, Role, Secret, Violation};
use libfuzzer_sys::fuzz_target;

fn keys(protocol: Protocol, seed: u8) -> Keys {
    let secret = |length| Secret::new(&vec![seed; length]).expect("a secret");
    match protocol {
        Protocol::Tls12 => Keys::Tls12(secret(Cipher::Aes128Gcm.key_len()), [seed; 12], 1),
        Protocol::Tls13 => Keys::Tls13(secret(Cipher::Aes128Gcm.secret_len()), 0),
    }
}

fn end(role: Role, protocol: Protocol) -> Layer {
    let (own, other) = if role == Role::Client { (1, 2) } else { (2, 1) };
    let (sealing, opening) = (keys(protocol, own), keys(protocol, other));
    Layer::new(role, Cipher::Aes128Gcm, sealing, opening, 100).expect("an end")
}

/// What was read, and how it ended.
fn run(role: Role, protocol: Protocol, input: &[u8], piece: usize, moves: bool) -> (Vec<u8>, Option<Violation>) {
    let peer_role = if role == Role::Client { Role::Server } else { Role::Client };
    let (mut layer, mut peer) = (end(role, protocol), end(peer_role, protocol));
    let (mut log, mut waiting, mut room) = (Vec::new(), Vec::new(), [0; 40]);
    for part in input.chunks(piece) {
        waiting.extend_from_slice(part);
        let mut at = 0;
        loop {
            let mut tickets = Vec::new();
            let opened = layer.open(&mut waiting[at..], &mut room, &mut |ticket| {
                tickets.extend_from_slice(ticket);
                true
            });
            log.extend(tickets);
            match opened {
                Err(violation) => {
                    let mut out = [0; 100];
                    let count = layer.seal_refusal(violation, &mut out).expect("an alert");
                    let told = peer.open(&mut out[..count], &mut [], &mut |_| true);
                    match violation.alert() {
                        Some(alert) => assert_eq!(told, Err(Violation::Told(alert))),
                        None => assert_eq!(told, Ok(None)),
                    }
                    return (log, Some(violation));
                }
                Ok(None) => break,
                Ok(Some(Opened { used, content })) => {
                    match content {
                        Content::InRoom(count) => log.extend_from_slice(&room[..count]),
                        Content::InPlace(range) => log.extend_from_slice(&waiting[at..][range]),
                        Content::Control => log.push(b'.'),
                        Content::End => return (log, None),
                    }
                    at += used;
                }
            }
            if layer.owes() {
                let mut out = vec![0; layer.sealed_len(3)];
                let mut rest = layer.seal(b"end", &mut out).expect("room");
                let mut front = 0;
                while let Some(opened) = peer.open(&mut out[front..rest], &mut [], &mut |_| true).expect("records") {
                    front += opened.used;
                }
                rest -= front;
                assert_eq!(rest, 0);
            }
            if moves {
                layer = Layer::from_bytes(&layer.into_bytes()).expect("a layer");
            }
        }
        waiting.drain(..at);
    }
    (log, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else { return };
    let _: Option<Layer> = Layer::from_bytes(input);
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let protocol = if choice & 2 == 0 { Protocol::Tls13 } else { Protocol::Tls12 };
    // Contents, each with its type and its length; a length that is too long: these bytes as they are.
    let mut peer = end(if role == Role::Client { Role::Server } else { Role::Client }, protocol);
    let (mut records, mut rest) = (Vec::new(), input);
    while let [kind, length, behind @ ..] = rest {
        let Some((plain, behind)) = behind.split_at_checked(usize::from(*length)) else { break };
        records.extend(peer.seal_any(*kind, plain).expect("numbers"));
        if matches!((protocol, kind, plain), (Protocol::Tls13, 22, [.., 24, 0, 0, 1, 0 | 1])) {
            peer.update_sealing_key();
        }
        rest = behind;
    }
    records.extend_from_slice(rest);
    if records.is_empty() {
        return;
    }
    let whole = run(role, protocol, &records, records.len(), false);
    assert_eq!(run(role, protocol, &records, usize::from(choice >> 2) + 1, true), whole);
});
