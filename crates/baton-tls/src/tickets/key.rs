//! One key of session tickets.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

/// Bytes of a key's name, with which each of its tickets begins (RFC 5077 4).
pub(super) const NAME_BYTES: usize = 16;
/// Bytes that a ticket has more than what is sealed in it: name, nonce, tag.
pub(super) const OVERHEAD: usize = NAME_BYTES + NONCE_LEN + 16;
/// Bytes of a key that we make ourselves: as long as HAProxy's longer ones.
const OWN_BYTES: usize = 80;

/// A key: a name, and a secret of which the cipher's key is derived.
///
/// Tickets are sealed with AES-256-GCM-SIV (RFC 8452), whose nonces may be drawn at random on any number of machines that share
/// a key. Their content is ours alone, so that nothing but the key's form has to be HAProxy's.
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    cipher: LessSafeKey,
    bytes: Zeroizing<Vec<u8>>,
}

/// Bytes that are no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadKey {
    /// Not base64.
    #[error("unable to decode base64 key")]
    Encoding,
    /// Neither 48 bytes nor 80.
    #[error("wrong sized key")]
    Length,
    /// The cryptography failed, or the system had no random bytes.
    #[error("cannot generate a key")]
    System,
}

impl TicketKey {
    /// A new one, of random bytes.
    ///
    /// # Errors
    /// When the system has none.
    pub fn random() -> Result<TicketKey, BadKey> {
        let mut bytes = Zeroizing::new(vec![0; OWN_BYTES]);
        rand::fill(&mut bytes).map_err(|_| BadKey::System)?;
        TicketKey::of_bytes(&bytes)
    }

    /// A line of `tls-ticket-keys`: 48 or 80 bytes in base64.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_text(text: &str) -> Result<TicketKey, BadKey> {
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(text).map_err(|_| BadKey::Encoding)?);
        TicketKey::of_bytes(&bytes)
    }

    /// 48 or 80 bytes: 16 of name, the rest secret.
    ///
    /// # Errors
    /// When it is another number.
    pub fn of_bytes(bytes: &[u8]) -> Result<TicketKey, BadKey> {
        if !matches!(bytes.len(), 48 | 80) {
            return Err(BadKey::Length);
        }
        let (name, secret) = bytes.split_first_chunk().ok_or(BadKey::Length)?;
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"baton session tickets");
        let derived = salt.extract(secret);
        let info: [&[u8]; 2] = [name, b"AES-256-GCM-SIV"];
        let derived = derived.expand(&info, &AES_256_GCM_SIV).map_err(|_| BadKey::System)?;
        let cipher = LessSafeKey::new(UnboundKey::from(derived));
        Ok(TicketKey { name: *name, cipher, bytes: Zeroizing::new(bytes.to_vec()) })
    }

    /// As a line of `tls-ticket-keys`.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_STANDARD.encode(&self.bytes))
    }

    /// How many bytes it is of: keys of different lengths are not mixed.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn name(&self) -> &[u8; NAME_BYTES] {
        &self.name
    }

    /// A ticket of `plain`. `None` when the system has no random bytes.
    pub(super) fn seal(&self, mut plain: Vec<u8>, scope: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let used = Nonce::assume_unique_for_key(nonce);
        self.cipher.seal_in_place_append_tag(used, Aad::from(scope), &mut plain).ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + plain.len());
        ticket.extend(self.name);
        ticket.extend(nonce);
        ticket.append(&mut plain);
        Some(ticket)
    }

    /// What a ticket of this key holds; `None` when it is none.
    pub(super) fn open(&self, ticket: &[u8], scope: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.get(NAME_BYTES..)?.split_first_chunk::<NONCE_LEN>()?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.cipher.open_in_place(nonce, Aad::from(scope), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

impl PartialEq for TicketKey {
    fn eq(&self, other: &TicketKey) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.bytes, &other.bytes).is_ok()
    }
}

impl Eq for TicketKey {}

/// Nothing of it, so that no key is ever logged.
impl fmt::Debug for TicketKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TicketKey")
    }
}
