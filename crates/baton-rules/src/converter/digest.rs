//! Message digests and what is built on them (configuration manual 7.3.1).

use std::borrow::Cow;

use aws_lc_rs::{aead, constant_time, digest as lc};
use sha3::Digest as _;
use shake::ExtendableOutput;

use super::Converter;
use super::encode::from_base64;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};
use crate::variable::VariableName;

pub(super) const ROWS: &[Converter] = &[
    Converter::new("sha1", Type::Bin, Type::Bin, |s, _, _| whole(s, Digest::Sha1), "The SHA-1 digest."),
    Converter::new("sha2", Type::Bin, Type::Bin, digest, "The SHA-2 digest, of 256 bits or of 224, 384 or 512.")
        .args(&[Arg::opt(ArgKind::Int)])
        .check(sha2_bits),
    Converter::new(
        "digest",
        Type::Bin,
        Type::Bin,
        digest,
        "The digest of that name: sha256, sha3-512, blake2b512, md5.",
    )
    .args(&[Arg::req(ArgKind::Str)])
    .check(|args| name(&mut args[0], "digest")),
    Converter::new("hmac", Type::Bin, Type::Bin, hmac, "The HMAC with a key in Base64, or in a variable.")
        .args(&[Arg::req(ArgKind::Str), Arg::req(ArgKind::StrOrVariable)])
        .check(|args| {
            name(&mut args[0], "hmac")?;
            secret(&mut args[1], "the key")
        }),
    Converter::new("secure_memcmp", Type::Bin, Type::Bool, secure_memcmp, "Whether a variable has the same bytes.")
        .args(&[Arg::req(ArgKind::Variable)]),
    Converter::new("aes_gcm_dec", Type::Bin, Type::Bin, aes_gcm_dec, "The bytes decrypted with AES-GCM.")
        .args(&[
            Arg::req(ArgKind::Int),
            Arg::req(ArgKind::StrOrVariable),
            Arg::req(ArgKind::StrOrVariable),
            Arg::req(ArgKind::StrOrVariable),
        ])
        .check(|args| {
            key_bits(&args[0])?;
            secret(&mut args[1], "the nonce")?;
            secret(&mut args[2], "the key")?;
            secret(&mut args[3], "the AEAD tag")
        }),
    Converter::new(
        "aes_gcm_enc",
        Type::Bin,
        Type::Bin,
        aes_gcm_enc,
        "The bytes encrypted with AES-GCM; the tag goes to a variable.",
    )
    .args(&[
        Arg::req(ArgKind::Int),
        Arg::req(ArgKind::StrOrVariable),
        Arg::req(ArgKind::StrOrVariable),
        Arg::req(ArgKind::Variable),
    ])
    .check(|args| {
        key_bits(&args[0])?;
        secret(&mut args[1], "the nonce")?;
        secret(&mut args[2], "the key")
    }),
];

/// A digest that is supported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Digest {
    Md5,
    Md5Sha1,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha512_256,
    Sha3_256,
    Sha3_384,
    Sha3_512,
    Sha512_224,
    Sha3_224,
    Shake128,
    Shake256,
    Blake2b512,
    Blake2s256,
    Ripemd160,
    Sm3,
}

impl Digest {
    /// By OpenSSL's names, which do not distinguish cases.
    fn of(name: &str) -> Option<Digest> {
        Some(match &*name.to_ascii_lowercase() {
            "md5" | "ssl3-md5" | "rsa-md5" | "md5withrsaencryption" => Digest::Md5,
            "md5-sha1" => Digest::Md5Sha1,
            "sha1" | "sha-1" | "ssl3-sha1" | "rsa-sha1" | "rsa-sha1-2" | "sha1withrsaencryption" => Digest::Sha1,
            "sha224" | "sha-224" | "sha2-224" | "rsa-sha224" | "sha224withrsaencryption" => Digest::Sha224,
            "sha256" | "sha-256" | "sha2-256" | "rsa-sha256" | "sha256withrsaencryption" => Digest::Sha256,
            "sha384" | "sha-384" | "sha2-384" | "rsa-sha384" | "sha384withrsaencryption" => Digest::Sha384,
            "sha512" | "sha-512" | "sha2-512" | "rsa-sha512" | "sha512withrsaencryption" => Digest::Sha512,
            "sha512-224" | "sha-512/224" | "sha2-512/224" | "rsa-sha512/224" | "sha512-224withrsaencryption" => {
                Digest::Sha512_224
            }
            "sha512-256" | "sha-512/256" | "sha2-512/256" | "rsa-sha512/256" | "sha512-256withrsaencryption" => {
                Digest::Sha512_256
            }
            "sha3-224" | "rsa-sha3-224" | "id-rsassa-pkcs1-v1_5-with-sha3-224" => Digest::Sha3_224,
            "sha3-256" | "rsa-sha3-256" | "id-rsassa-pkcs1-v1_5-with-sha3-256" => Digest::Sha3_256,
            "sha3-384" | "rsa-sha3-384" | "id-rsassa-pkcs1-v1_5-with-sha3-384" => Digest::Sha3_384,
            "sha3-512" | "rsa-sha3-512" | "id-rsassa-pkcs1-v1_5-with-sha3-512" => Digest::Sha3_512,
            "shake128" | "shake-128" => Digest::Shake128,
            "shake256" | "shake-256" => Digest::Shake256,
            "blake2b512" | "blake2b-512" => Digest::Blake2b512,
            "blake2s256" | "blake2s-256" => Digest::Blake2s256,
            "ripemd" | "ripemd160" | "ripemd-160" | "rmd160" | "rsa-ripemd160" | "ripemd160withrsa" => {
                Digest::Ripemd160
            }
            "sm3" | "rsa-sm3" | "sm3withrsaencryption" => Digest::Sm3,
            _ => return None,
        })
    }

    pub fn compute(self, bytes: &[u8]) -> Vec<u8> {
        let with = |algorithm| lc::digest(algorithm, bytes).as_ref().to_vec();
        match self {
            Digest::Md5 => md5::compute(bytes).to_vec(),
            Digest::Md5Sha1 => [Digest::Md5.compute(bytes), Digest::Sha1.compute(bytes)].concat(),
            Digest::Sha1 => with(&lc::SHA1_FOR_LEGACY_USE_ONLY),
            Digest::Sha224 => with(&lc::SHA224),
            Digest::Sha256 => with(&lc::SHA256),
            Digest::Sha384 => with(&lc::SHA384),
            Digest::Sha512 => with(&lc::SHA512),
            Digest::Sha512_256 => with(&lc::SHA512_256),
            Digest::Sha3_256 => with(&lc::SHA3_256),
            Digest::Sha3_384 => with(&lc::SHA3_384),
            Digest::Sha3_512 => with(&lc::SHA3_512),
            Digest::Sha512_224 => sha2::Sha512_224::digest(bytes).to_vec(),
            Digest::Sha3_224 => sha3::Sha3_224::digest(bytes).to_vec(),
            // As long as OpenSSL makes them.
            Digest::Shake128 => extended(shake::Shake128::default(), bytes, 16),
            Digest::Shake256 => extended(shake::Shake256::default(), bytes, 32),
            Digest::Blake2b512 => blake2::Blake2b512::digest(bytes).to_vec(),
            Digest::Blake2s256 => blake2::Blake2s256::digest(bytes).to_vec(),
            Digest::Ripemd160 => ripemd::Ripemd160::digest(bytes).to_vec(),
            Digest::Sm3 => sm3::Sm3::digest(bytes).to_vec(),
        }
    }

    /// Whether HMAC can use it: of a digest without a length of its own OpenSSL makes none.
    fn has_hmac(self) -> bool {
        !matches!(self, Digest::Shake128 | Digest::Shake256)
    }

    /// The size of a block, to which HMAC fills the key (RFC 2104).
    fn block_bytes(self) -> usize {
        match self {
            Digest::Md5 | Digest::Md5Sha1 | Digest::Sha1 | Digest::Sha224 | Digest::Sha256 => 64,
            Digest::Blake2s256 | Digest::Ripemd160 | Digest::Sm3 => 64,
            Digest::Sha384 | Digest::Sha512 | Digest::Sha512_256 | Digest::Sha512_224 | Digest::Blake2b512 => 128,
            Digest::Shake128 => 168,
            Digest::Sha3_224 => 144,
            Digest::Shake256 => 136,
            Digest::Sha3_256 => 136,
            Digest::Sha3_384 => 104,
            Digest::Sha3_512 => 72,
        }
    }

    /// The HMAC of RFC 2104.
    pub fn authenticate(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let mut block = vec![0; self.block_bytes()];
        match key.len() > block.len() {
            true => {
                let short = self.compute(key);
                block[..short.len()].copy_from_slice(&short);
            }
            false => block[..key.len()].copy_from_slice(key),
        }
        let keyed = |pad: u8, text: &[u8]| {
            let mut bytes: Vec<u8> = block.iter().map(|byte| byte ^ pad).collect();
            bytes.extend_from_slice(text);
            self.compute(&bytes)
        };
        keyed(0x5c, &keyed(0x36, message))
    }
}

fn extended(mut digest: impl ExtendableOutput, bytes: &[u8], length: usize) -> Vec<u8> {
    digest.update(bytes);
    let mut out = vec![0; length];
    digest.finalize_xof_into(&mut out);
    out
}

fn name(arg: &mut Value, converter: &str) -> Result<(), RuleError> {
    let text = String::from_utf8_lossy(arg.bytes()).into_owned();
    let Some(digest) = Digest::of(&text) else {
        let known = [
            "md5",
            "sha1",
            "sha224",
            "sha256",
            "sha384",
            "sha512",
            "sha512-224",
            "sha512-256",
            "sha3-224",
            "sha3-256",
            "sha3-384",
            "sha3-512",
            "shake128",
            "shake256",
            "blake2b512",
            "blake2s256",
            "ripemd160",
            "sm3",
        ];
        return Err(RuleError::new(format!("converter '{converter}' does not know the digest '{text}'"))
            .hint(format!("supported are {}", known.join(", ")))
            .suggest(&text, known));
    };
    *arg = Value::Digest(digest);
    Ok(())
}

fn sha2_bits(args: &mut [Value]) -> Result<(), RuleError> {
    args[0] = Value::Digest(match args[0].int() {
        None | Some(256) => Digest::Sha256,
        Some(224) => Digest::Sha224,
        Some(384) => Digest::Sha384,
        Some(512) => Digest::Sha512,
        Some(other) => {
            return Err(RuleError::new(format!("unsupported number of bits: {other}")).hint("224, 256, 384 or 512"));
        }
    });
    Ok(())
}

/// A secret: Base64 in the file, decoded now, or a variable with Base64 that is decoded at run time.
fn secret(arg: &mut Value, what: &str) -> Result<(), RuleError> {
    if matches!(arg, Value::Variable(_)) {
        return Ok(());
    }
    let decoded = from_base64(arg.bytes())
        .ok_or_else(|| RuleError::new(format!("{what} needs to be Base64, or the name of a variable")))?;
    *arg = Value::Str(decoded.into());
    Ok(())
}

fn revealed<'c>(arg: &'c Value, cx: &'c Context<'_>) -> Option<Cow<'c, [u8]>> {
    match arg {
        Value::Variable(name) => from_base64(&text_of(name, cx)?).map(Cow::Owned),
        other => Some(Cow::Borrowed(other.bytes())),
    }
}

fn text_of<'c>(name: &VariableName, cx: &'c Context<'_>) -> Option<Cow<'c, [u8]>> {
    Some(cx.variables.value(name)?.borrowed().into_text())
}

fn whole(sample: Sample<'_>, digest: Digest) -> Option<Sample<'_>> {
    Some(Sample::Bin(Cow::Owned(digest.compute(&sample.into_bytes()))))
}

fn digest<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Digest(digest) = args[0] else { return None };
    whole(sample, digest)
}

fn hmac<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Digest(digest) = args[0] else { return None };
    if !digest.has_hmac() {
        return None;
    }
    let key = revealed(&args[1], cx)?;
    Some(Sample::Bin(Cow::Owned(digest.authenticate(&key, &sample.into_bytes()))))
}

/// In constant time for texts of the same length.
fn secure_memcmp<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Variable(name) = &args[0] else { return None };
    let other = cx.variables.value(name)?.borrowed().into_bytes();
    Some(Sample::Bool(constant_time::verify_slices_are_equal(&sample.into_bytes(), &other).is_ok()))
}

fn key_bits(arg: &Value) -> Result<(), RuleError> {
    match arg.int() {
        Some(128 | 192 | 256) => Ok(()),
        _ => Err(RuleError::new("the key size must be 128, 192 or 256 bits")),
    }
}

/// The cipher and the nonce; nothing when the key or the nonce has not the size that it needs.
fn cipher(args: &[Value], cx: &Context<'_>) -> Option<(aead::LessSafeKey, aead::Nonce)> {
    let algorithm = match args[0].int()? {
        128 => &aead::AES_128_GCM,
        192 => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    let nonce = aead::Nonce::try_assume_unique_for_key(&revealed(&args[1], cx)?).ok()?;
    let key = aead::UnboundKey::new(algorithm, &revealed(&args[2], cx)?).ok()?;
    Some((aead::LessSafeKey::new(key), nonce))
}

fn aes_gcm_dec<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let (key, nonce) = cipher(args, cx)?;
    let tag = revealed(&args[3], cx)?;
    let mut bytes = sample.into_bytes().into_owned();
    if tag.len() != key.algorithm().tag_len() {
        return None;
    }
    bytes.extend_from_slice(&tag);
    let length = key.open_in_place(nonce, aead::Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(Sample::Bin(Cow::Owned(bytes)))
}

fn aes_gcm_enc<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Variable(tag_name) = &args[3] else { return None };
    let (key, nonce) = cipher(args, cx)?;
    let mut bytes = sample.into_bytes().into_owned();
    let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::empty(), &mut bytes).ok()?;
    cx.variables.set_later(tag_name, Some(Sample::Bin(Cow::Owned(tag.as_ref().to_vec()))));
    Some(Sample::Bin(Cow::Owned(bytes)))
}
