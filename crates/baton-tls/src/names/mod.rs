//! OpenSSL's names for what a handshake is made of, as configurations write them and logs show them (configuration manual 5.1
//! `ciphers`, `ciphersuites`, `curves`, `sigalgs`).
//!
//! Each function takes the text of one keyword and gives what rustls has of it, in the order of preference, with a note for
//! what was left out. Of curves and signature algorithms a word that OpenSSL does not know either is an error, as it is for OpenSSL; of
//! cipher suites it is ignored, as by OpenSSL, and noted. A text of which nothing is left is an error.

mod absent;
mod ciphers;
mod curves;
mod signatures;

use std::fmt;

use rustls::{CipherSuite, ProtocolVersion};

pub use ciphers::{ciphers, ciphersuites, default_ciphers, default_ciphersuites};
pub use curves::{curves, default_curves};
pub use signatures::signatures;

/// What a list of names stands for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NameList<T> {
    /// What was found, the preferred one first; never empty.
    pub found: Vec<T>,
    /// What was asked for and is left out, and why; a sentence each, starting in lower case and without a full stop.
    pub notes: Vec<String>,
}

/// A list of names that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameError {
    /// What is wrong, starting in lower case and without a full stop.
    pub message: String,
    /// What to write instead, where we can tell.
    pub hint: Option<String>,
}

impl NameError {
    fn new(message: impl Into<String>) -> NameError {
        NameError { message: message.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> NameError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, " ({hint})"))
    }
}

impl std::error::Error for NameError {}

/// A cipher suite as OpenSSL calls it, for `%sslc` and `ssl_fc_cipher`; `None` for one that Baton does not speak.
pub fn cipher_name(suite: CipherSuite) -> Option<&'static str> {
    ciphers::of(suite).map(|row| row.name)
}

/// How many bits the key of a cipher suite has, for `ssl_fc_use_keysize`; `None` for one that Baton does not speak.
pub fn cipher_key_bits(suite: CipherSuite) -> Option<u16> {
    ciphers::of(suite).map(|row| row.bits)
}

/// Any cipher suite as OpenSSL calls it, for `ssl_fc_cipherlist_str`; `None` where OpenSSL has no name either.
pub fn any_cipher_name(suite: u16) -> Option<&'static str> {
    ciphers::any(suite)
}

/// A version as OpenSSL calls it, for `%sslv` and `ssl_fc_protocol`: `TLSv1.3`.
pub fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        ProtocolVersion::TLSv1_1 => "TLSv1.1",
        ProtocolVersion::TLSv1_0 => "TLSv1",
        ProtocolVersion::SSLv3 => "SSLv3",
        _ => "unknown",
    }
}

/// The parts of a list; empty ones are passed over, as OpenSSL does.
fn parts<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = &'a str> {
    text.split(separators).filter(|part| !part.is_empty())
}

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
