//! A layer as bytes.
//!
//! ```text
//! version │ role │ protocol │ cipher │ record length (2) │ owed │ seen (4) │ sealing │ opening │ length (4), start of a message
//! a direction: length, secret or key │ nonce (12, TLS 1.2 alone) │ number of the next record (8)
//! ```
//!
//! Numbers are big-endian. Bytes of another version are refused, and so are bytes that no layer gives ([`Layer::is_possible`]).

use zeroize::Zeroizing;

use crate::direction::{Cipher, Direction, Keys, Protocol, Secret};
use crate::layer::{Layer, Owed, PLAIN_MAX, Role, Seen};

/// Of what is written here.
const VERSION: u8 = 1;
/// More than all of it takes, but for a part of a message.
const USUAL: usize = 192;

impl Layer {
    /// All of its state, which is none of this process's any more. It contains keys: who has it can read and write the connection.
    pub fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        let Layer { role, sealing, opening, record_len, message, owed, seen } = self;
        // The memory never moves: what was wiped is all of it.
        let mut out = Zeroizing::new(Vec::with_capacity(USUAL + message.len()));
        let protocol = sealing.protocol;
        out.extend([VERSION, role_code(role), protocol_code(protocol), cipher_code(sealing.cipher)]);
        out.extend(record_len.to_be_bytes());
        out.push(u8::from(owed.key_update) | u8::from(owed.no_renegotiation) << 1);
        // More KeyUpdates are not remembered.
        let updates = seen.updates.min(u8::MAX.into()) as u8;
        out.extend([seen.empty, updates, seen.warnings, seen.renegotiations]);
        for direction in [sealing, opening] {
            write(direction, &mut out);
        }
        out.extend((message.len() as u32).to_be_bytes());
        out.extend(&message);
        out
    }

    /// A layer of bytes that [`into_bytes`](Self::into_bytes) gave. `None`: they are none of these.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layer> {
        let mut rest = bytes;
        let [version, role, protocol, cipher, high, low, owed, empty, updates, warnings, renegotiations] =
            *take::<11>(&mut rest)?;
        let (role, protocol, cipher) = (role_of(role)?, protocol_of(protocol)?, cipher_of(cipher)?);
        let record_len = usize::from(u16::from_be_bytes([high, low]));
        if version != VERSION || !(1..=PLAIN_MAX).contains(&record_len) || owed > 3 {
            return None;
        }
        let sealing = read(protocol, &mut rest)?;
        let opening = read(protocol, &mut rest)?;
        let length = u32::from_be_bytes(*take::<4>(&mut rest)?);
        if rest.len() != usize::try_from(length).ok()? {
            return None;
        }
        let mut layer = Layer::new(role, cipher, sealing, opening, record_len)?;
        layer.owed = Owed { key_update: owed & 1 != 0, no_renegotiation: owed & 2 != 0 };
        layer.seen = Seen { empty, updates: updates.into(), warnings, renegotiations };
        layer.message = rest.to_vec();
        layer.is_possible().then_some(layer)
    }
}

fn write(direction: Direction, out: &mut Vec<u8>) {
    let (secret, iv, sequence) = match direction.into_keys() {
        Keys::Tls12(secret, iv, sequence) => (secret, Some(iv), sequence),
        Keys::Tls13(secret, sequence) => (secret, None, sequence),
    };
    out.push(secret.bytes().len() as u8);
    out.extend(secret.bytes());
    out.extend(iv.iter().flatten());
    out.extend(sequence.to_be_bytes());
}

fn read(protocol: Protocol, rest: &mut &[u8]) -> Option<Keys> {
    let length = take::<1>(rest)?[0];
    let (secret, behind) = rest.split_at_checked(length.into())?;
    *rest = behind;
    let secret = Secret::new(secret)?;
    let iv = match protocol {
        Protocol::Tls12 => Some(*take::<12>(rest)?),
        Protocol::Tls13 => None,
    };
    let sequence = u64::from_be_bytes(*take::<8>(rest)?);
    Some(match iv {
        Some(iv) => Keys::Tls12(secret, iv, sequence),
        None => Keys::Tls13(secret, sequence),
    })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(taken)
}

fn role_code(role: Role) -> u8 {
    match role {
        Role::Client => 0,
        Role::Server => 1,
    }
}

fn role_of(code: u8) -> Option<Role> {
    [Role::Client, Role::Server].into_iter().find(|role| role_code(*role) == code)
}

fn protocol_code(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tls12 => 2,
        Protocol::Tls13 => 3,
    }
}

fn protocol_of(code: u8) -> Option<Protocol> {
    [Protocol::Tls12, Protocol::Tls13].into_iter().find(|protocol| protocol_code(*protocol) == code)
}

fn cipher_code(cipher: Cipher) -> u8 {
    match cipher {
        Cipher::Aes128Gcm => 1,
        Cipher::Aes256Gcm => 2,
        Cipher::Chacha20Poly1305 => 3,
    }
}

fn cipher_of(code: u8) -> Option<Cipher> {
    let all = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];
    all.into_iter().find(|cipher| cipher_code(*cipher) == code)
}
