//! JSON web tokens in the compact form (configuration manual 7.3.1; RFC 7515): `HEADER.PAYLOAD.SIGNATURE`.
//!
//! Beyond HAProxy 2.6, the PS algorithms are verified too; and an ES algorithm wants a key of its own curve, as RFC 7518 3.4 says.

use std::borrow::Cow;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};

use super::digest::Digest;
use super::encode::{from_base64, from_base64_url};
use super::{Converter, json};
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::outside::Files;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

const QUERY: &[Arg] = &[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Str)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "jwt_header_query",
        Type::Bin,
        Type::Any,
        |s, a, _| part(s, a, 0),
        "The header of a JSON web token, or the value at a path in it.",
    )
    .args(QUERY)
    .check(check_query),
    Converter::new(
        "jwt_payload_query",
        Type::Bin,
        Type::Any,
        |s, a, _| part(s, a, 1),
        "The payload of a JSON web token, or the value at a path in it.",
    )
    .args(QUERY)
    .check(check_query),
    Converter::new(
        "jwt_verify",
        Type::Bin,
        Type::Int,
        verify,
        "Whether the signature of a JSON web token is right: 1, 0, or below 0 for an error.",
    )
    .args(&[Arg::req(ArgKind::StrOrVariable), Arg::req(ArgKind::StrOrVariable)])
    .check(check_algorithm),
];

/// The results of `jwt_verify`.
const VERIFIED: i64 = 1;
const NOT_VERIFIED: i64 = 0;
const UNKNOWN_ALGORITHM: i64 = -1;
const INVALID_TOKEN: i64 = -3;
const UNKNOWN_KEY: i64 = -5;

fn check_query(args: &mut [Value]) -> Result<(), RuleError> {
    if args[0].is_absent() { Ok(()) } else { json::check_query(args) }
}

fn part<'c>(sample: Sample<'c>, args: &'c [Value], place: usize) -> Option<Sample<'c>> {
    let token = sample.into_bytes();
    let decoded = from_base64_url(token.split(|&byte| byte == b'.').nth(place)?)?;
    match args[0].is_absent() {
        true => Some(Sample::Str(Cow::Owned(decoded))),
        false => json::query(&decoded, args[0].bytes(), args[1].bytes() == b"int"),
    }
}

/// Header, payload and signature; without a signature an empty one.
fn parts(token: &[u8]) -> Option<[&[u8]; 3]> {
    let mut parts = token.split(|&byte| byte == b'.');
    let found = [parts.next()?, parts.next()?, parts.next().unwrap_or_default()];
    parts.next().is_none().then_some(found)
}

#[derive(Clone, Copy)]
enum Algorithm {
    None,
    Hmac(Digest),
    Rsa(&'static dyn VerificationAlgorithm),
    Ecdsa(&'static dyn VerificationAlgorithm),
}

impl Algorithm {
    fn of(name: &[u8]) -> Option<Algorithm> {
        Some(match name {
            b"none" => Algorithm::None,
            b"HS256" => Algorithm::Hmac(Digest::Sha256),
            b"HS384" => Algorithm::Hmac(Digest::Sha384),
            b"HS512" => Algorithm::Hmac(Digest::Sha512),
            b"RS256" => Algorithm::Rsa(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
            b"RS384" => Algorithm::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            b"RS512" => Algorithm::Rsa(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
            b"PS256" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            b"PS384" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            b"PS512" => Algorithm::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            b"ES256" => Algorithm::Ecdsa(&signature::ECDSA_P256_SHA256_FIXED),
            b"ES384" => Algorithm::Ecdsa(&signature::ECDSA_P384_SHA384_FIXED),
            b"ES512" => Algorithm::Ecdsa(&signature::ECDSA_P521_SHA512_FIXED),
            _ => return None,
        })
    }
}

fn check_algorithm(args: &mut [Value]) -> Result<(), RuleError> {
    match &args[0] {
        Value::Str(name) if Algorithm::of(name).is_none() => {
            let text = String::from_utf8_lossy(name).into_owned();
            let known = [
                "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
                "ES512", "none",
            ];
            Err(RuleError::new(format!("unknown JWT algorithm: {text}")).suggest(&text, known))
        }
        _ => Ok(()),
    }
}

/// The second argument of `jwt_verify`, with the public key of the file if that is what it names.
#[derive(Clone, Debug)]
pub(crate) struct JwtKey {
    text: Box<[u8]>,
    /// In DER. `None`: there is no such file, or no public key in it.
    public: Option<Box<[u8]>>,
}

/// Reads the key that a `jwt_verify` names in the file, unless the algorithm takes a secret.
pub(crate) fn read_key(args: &mut [Value], files: &dyn Files) {
    let secret = matches!(&args[0], Value::Str(name) if matches!(Algorithm::of(name), Some(Algorithm::Hmac(_) | Algorithm::None)));
    if let Value::Str(text) = &args[1] {
        let path = std::str::from_utf8(text).ok().filter(|_| !secret);
        let public = path.and_then(|path| public_key(&files.read(path).ok()?));
        args[1] = Value::JwtKey(Box::new(JwtKey { text: text.clone(), public }));
    }
}

/// The first public key of a PEM file, in DER.
fn public_key(pem: &[u8]) -> Option<Box<[u8]>> {
    let text = std::str::from_utf8(pem).ok()?;
    ["PUBLIC KEY", "RSA PUBLIC KEY"].into_iter().find_map(|label| {
        let (_, behind) = text.split_once(&format!("-----BEGIN {label}-----"))?;
        let (inner, _) = behind.split_once(&format!("-----END {label}-----"))?;
        let digits: Vec<u8> = inner.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        from_base64(&digits).map(Vec::into_boxed_slice)
    })
}

fn verify<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let variable = |arg: &'c Value| match arg {
        Value::Variable(name) => cx.variables.value(name).map(|value| value.borrowed().into_text()),
        other => Some(Cow::Borrowed(other.bytes())),
    };
    let name = variable(&args[0])?;
    let owned;
    let key = match &args[1] {
        Value::JwtKey(key) => key,
        other => {
            owned = JwtKey { text: variable(other)?.into_owned().into(), public: None };
            &owned
        }
    };
    let token = sample.into_bytes();
    let outcome = match Algorithm::of(&name) {
        Some(algorithm) => judge(&token, algorithm, key),
        None => UNKNOWN_ALGORITHM,
    };
    Some(Sample::Int(outcome))
}

fn judge(token: &[u8], algorithm: Algorithm, key: &JwtKey) -> i64 {
    let Some([header, payload, signature]) = parts(token) else { return INVALID_TOKEN };
    if let Algorithm::None = algorithm {
        return if signature.is_empty() { VERIFIED } else { NOT_VERIFIED };
    }
    let signature = match from_base64_url(signature) {
        Some(signature) if !signature.is_empty() => signature,
        _ => return INVALID_TOKEN,
    };
    let signed = &token[..header.len() + 1 + payload.len()];
    let verifies = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
        UnparsedPublicKey::new(algorithm, key).verify(signed, &signature).is_ok()
    };
    let verified = match (algorithm, &key.public) {
        (Algorithm::None, _) => true,
        (Algorithm::Hmac(digest), _) => {
            verify_slices_are_equal(&digest.authenticate(&key.text, signed), &signature).is_ok()
        }
        (_, None) => return UNKNOWN_KEY,
        // Two numbers of the same size.
        (Algorithm::Ecdsa(_), Some(_)) if !signature.len().is_multiple_of(2) => return INVALID_TOKEN,
        (Algorithm::Rsa(algorithm) | Algorithm::Ecdsa(algorithm), Some(key)) => verifies(algorithm, key),
    };
    if verified { VERIFIED } else { NOT_VERIFIED }
}
