//! One direction of a connection: its key, and the number of its next record.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::{Zeroize, Zeroizing};

/// The longest secret: of SHA-384. Bytes.
const SECRET_MAX: usize = 48;
/// The longest key, in bytes.
const KEY_MAX: usize = 32;
/// What each cipher adds to the plain bytes, in bytes.
pub(crate) const TAG: usize = 16;
/// The part of a nonce that travels with a record of AES-GCM in TLS 1.2 (RFC 5288 3), in bytes.
pub(crate) const EXPLICIT_NONCE: usize = 8;
/// The part of it that does not.
const SALT: usize = NONCE_LEN - EXPLICIT_NONCE;
/// Records with data that one key of AES-GCM may seal: fewer than the 2^24.5 of RFC 8446 5.5, so that there is room for those without.
const GCM_RECORDS_MAX: u64 = 1 << 24;
/// No key seals or opens a record with a number from here on: numbers do not wrap (RFC 8446 5.3). There is room for an alert behind it.
const SEQUENCE_MAX: u64 = u64::MAX - 16;

/// The version of TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// What encrypts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cipher {
    /// AES-128-GCM, in TLS 1.3 with SHA-256.
    Aes128Gcm,
    /// AES-256-GCM, in TLS 1.3 with SHA-384.
    Aes256Gcm,
    /// ChaCha20-Poly1305, in TLS 1.3 with SHA-256.
    Chacha20Poly1305,
}

impl Cipher {
    /// The bytes of its key.
    pub fn key_len(self) -> usize {
        self.algorithm().key_len()
    }

    /// The bytes of a secret of TLS 1.3.
    pub fn secret_len(self) -> usize {
        match self {
            Cipher::Aes128Gcm | Cipher::Chacha20Poly1305 => 32,
            Cipher::Aes256Gcm => SECRET_MAX,
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::Chacha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Cipher::Aes128Gcm | Cipher::Chacha20Poly1305 => HKDF_SHA256,
            Cipher::Aes256Gcm => HKDF_SHA384,
        }
    }
}

/// Secret bytes, at most those of SHA-384. They are wiped when they are dropped, and never printed.
pub struct Secret {
    bytes: [u8; SECRET_MAX],
    len: u8,
}

impl Secret {
    /// `None`: these are too many.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        let mut secret = Secret { bytes: [0; SECRET_MAX], len: u8::try_from(bytes.len()).ok()? };
        secret.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(secret)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// HKDF-Expand-Label without a context (RFC 8446 7.1).
    fn expand(&self, cipher: Cipher, label: &str, out: &mut [u8]) -> Option<()> {
        let length = u16::try_from(out.len()).ok()?.to_be_bytes();
        let label_len = [u8::try_from("tls13 ".len() + label.len()).ok()?];
        let info = [&length[..], &label_len, b"tls13 ", label.as_bytes(), &[0]];
        Prk::new_less_safe(cipher.hkdf(), self.bytes()).expand(&info, Length(out.len())).ok()?.fill(out).ok()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

#[derive(Clone, Copy, Debug)]
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// What both ends agreed on for one direction.
#[derive(Debug)]
pub enum Keys {
    /// In TLS 1.2: the key, the nonce of the record with number 0, and the number of the next record. With AES-GCM only the first four bytes
    /// of the nonce are of the handshake; what is behind them is the sealing end's, and the number of its first record.
    Tls12(Secret, [u8; NONCE_LEN], u64),
    /// In TLS 1.3: the traffic secret, of which key and nonces are made, and the number of the next record.
    Tls13(Secret, u64),
}

/// One direction.
pub(crate) struct Direction {
    pub(crate) protocol: Protocol,
    pub(crate) cipher: Cipher,
    /// The traffic secret; in TLS 1.2 the key.
    secret: Secret,
    aead: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// The number of the next record.
    sequence: u64,
}

impl Direction {
    /// `None`: these are no keys of this cipher.
    pub(crate) fn new(cipher: Cipher, keys: Keys) -> Option<Direction> {
        match keys {
            Keys::Tls12(key, iv, sequence) => {
                let aead = LessSafeKey::new(UnboundKey::new(cipher.algorithm(), key.bytes()).ok()?);
                Some(Direction { protocol: Protocol::Tls12, cipher, secret: key, aead, iv, sequence })
            }
            Keys::Tls13(secret, sequence) => {
                if secret.bytes().len() != cipher.secret_len() {
                    return None;
                }
                let (aead, iv) = derive(cipher, &secret)?;
                Some(Direction { protocol: Protocol::Tls13, cipher, secret, aead, iv, sequence })
            }
        }
    }

    /// What it was made of, with the number of its next record. It is gone.
    pub(crate) fn into_keys(mut self) -> Keys {
        let secret = std::mem::replace(&mut self.secret, Secret { bytes: [0; SECRET_MAX], len: 0 });
        match self.protocol {
            Protocol::Tls12 => Keys::Tls12(secret, self.iv, self.sequence),
            Protocol::Tls13 => Keys::Tls13(secret, self.sequence),
        }
    }

    /// The next generation of its keys (RFC 8446 7.2), which begins with the number 0.
    pub(crate) fn update(&mut self) -> Option<()> {
        let mut next = Zeroizing::new([0; SECRET_MAX]);
        let next = &mut next[..self.cipher.secret_len()];
        self.secret.expand(self.cipher, "traffic upd", next)?;
        *self = Direction::new(self.cipher, Keys::Tls13(Secret::new(next)?, 0))?;
        Some(())
    }

    /// Whether the other direction is of the same key.
    pub(crate) fn is_same_key(&self, other: &Direction) -> bool {
        self.secret.bytes() == other.secret.bytes()
    }

    /// How many more records with data the key should seal.
    pub(crate) fn left(&self) -> u64 {
        let most = match self.cipher {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => GCM_RECORDS_MAX,
            Cipher::Chacha20Poly1305 => SEQUENCE_MAX,
        };
        most.saturating_sub(self.sequence)
    }

    /// Bytes of a nonce that travel with each record.
    pub(crate) fn explicit_len(&self) -> usize {
        match (self.protocol, self.cipher) {
            (Protocol::Tls12, Cipher::Aes128Gcm | Cipher::Aes256Gcm) => EXPLICIT_NONCE,
            (Protocol::Tls12, Cipher::Chacha20Poly1305) | (Protocol::Tls13, _) => 0,
        }
    }

    /// The number of the next record, which is used up by this. `None`: there is none left.
    fn next(&mut self) -> Option<u64> {
        let next = self.sequence;
        self.sequence = next.checked_add(1)?;
        Some(next)
    }

    /// The nonce of the record with this number (RFC 8446 5.3, RFC 7905 2).
    fn nonce(&self, sequence: u64) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, mask) in nonce[SALT..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= mask;
        }
        nonce
    }

    /// Seals `plain`, and in TLS 1.3 its type behind it: the record is `header`, then what travels of the nonce, `out`, and `end`. The latter
    /// two are as long as what they hold.
    pub(crate) fn seal(
        &mut self,
        kind: u8,
        header: [u8; 5],
        plain: &[u8],
        explicit: &mut [u8],
        out: &mut [u8],
        end: &mut [u8],
    ) -> Option<()> {
        let sequence = self.next()?;
        let nonce = self.nonce(sequence);
        explicit.copy_from_slice(&nonce[NONCE_LEN - explicit.len()..]);
        let key = &self.aead;
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self.protocol {
            Protocol::Tls13 => key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, out, &[kind], end),
            Protocol::Tls12 => {
                let aad = Aad::from(old_aad(sequence, kind, plain.len()));
                key.seal_out_of_place_scatter(nonce, aad, plain, out, &[], end)
            }
        }
        .ok()
    }

    /// Opens a record, whose payload `sealed` is: into `room` if that is long enough, or else where it lies. What comes behind the nonce, and
    /// is as long as it, is where the plain bytes are. `None`: it is not from the peer.
    pub(crate) fn open(&mut self, kind: u8, header: [u8; 5], sealed: &mut [u8], room: &mut [u8]) -> Option<Placed> {
        if self.sequence >= SEQUENCE_MAX {
            return None;
        }
        let (explicit, rest) = sealed.split_at_mut_checked(self.explicit_len())?;
        let (sealed, tag) = rest.split_at_mut_checked(rest.len().checked_sub(TAG)?)?;
        let sequence = self.sequence;
        let mut nonce = self.nonce(sequence);
        if !explicit.is_empty() {
            nonce[SALT..].copy_from_slice(explicit);
        }
        let key = &self.aead;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = old_aad(sequence, kind, sealed.len());
        let aad = match self.protocol {
            Protocol::Tls13 => Aad::from(&header[..]),
            Protocol::Tls12 => Aad::from(&aad[..]),
        };
        let count = sealed.len();
        let placed = match room.get_mut(..count) {
            Some(room) => {
                key.open_separate_gather(nonce, aad, sealed, tag, room).ok()?;
                Placed::InRoom(count)
            }
            None => {
                key.open_in_place_separate_tag(nonce, aad, tag, sealed).ok()?;
                Placed::InPlace(explicit.len(), count)
            }
        };
        self.next()?;
        Some(placed)
    }

    /// Whether the key and the nonce are these.
    pub(crate) fn has(&self, key: &[u8], iv: &[u8]) -> bool {
        let mut own = Zeroizing::new([0; KEY_MAX]);
        let own = &mut own[..self.cipher.key_len()];
        self.secret.expand(self.cipher, "key", own).is_some() && own == key && self.iv == iv
    }
}

#[cfg(test)]
impl Direction {
    pub(crate) fn key_and_nonce(&self) -> (Vec<u8>, Vec<u8>) {
        let mut key = vec![0; self.cipher.key_len()];
        self.secret.expand(self.cipher, "key", &mut key).expect("a key");
        (key, self.iv.to_vec())
    }
}

impl Drop for Direction {
    /// The key itself is wiped by aws-lc.
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

/// Where the plain bytes are.
pub(crate) enum Placed {
    /// So many at the front of the room.
    InRoom(usize),
    /// Behind so many bytes of the payload, so many.
    InPlace(usize, usize),
}

/// Key and nonce of a traffic secret (RFC 8446 7.3).
fn derive(cipher: Cipher, secret: &Secret) -> Option<(LessSafeKey, [u8; NONCE_LEN])> {
    let mut key = Zeroizing::new([0; KEY_MAX]);
    let key = &mut key[..cipher.key_len()];
    secret.expand(cipher, "key", key)?;
    let mut iv = [0; NONCE_LEN];
    secret.expand(cipher, "iv", &mut iv)?;
    Some((LessSafeKey::new(UnboundKey::new(cipher.algorithm(), key).ok()?), iv))
}

/// What is authenticated with a record of TLS 1.2 (RFC 5246 6.2.3.3).
fn old_aad(sequence: u64, kind: u8, plain: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    let [.., high, low] = plain.to_be_bytes();
    aad[8..].copy_from_slice(&[kind, 3, 3, high, low]);
    aad
}
