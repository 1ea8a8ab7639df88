//! Fetches from a connection that is encrypted by ourselves (configuration manual 7.3.4): `ssl_fc_*` and `ssl_bc_*` of the
//! handshake, `ssl_c_*`, `ssl_f_*` and `ssl_s_*` of the certificates of the client, our own and the server's.
//!
//! Where there is no such connection, and where it has no such certificate, there is no sample.

use std::borrow::Cow;
use std::fmt::Write as _;

use baton_tls::{Captured, DistinguishedName, Facts, View, names};

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

/// `(<filter_option>)`: 1 leaves out values that mean nothing (RFC 8701).
const FILTER: &[Arg] = &[Arg::opt(ArgKind::Word(&["0", "1"]))];

/// `(<entry>,<occurrence>,<format>)`.
const NAME: &[Arg] = &[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Int), Arg::opt(ArgKind::Word(&["rfc2253"]))];

/// The client's side.
fn fc<'c>(cx: &'c Context<'_>) -> Option<&'c Facts> {
    cx.client_tls
}

/// The server's side.
fn bc<'c>(cx: &'c Context<'_>) -> Option<&'c Facts> {
    cx.server_tls
}

fn text<'c>(value: impl Into<String>) -> Sample<'c> {
    Sample::Str(Cow::Owned(value.into().into_bytes()))
}

fn bytes<'c>(value: &'c [u8]) -> Sample<'c> {
    Sample::Bin(Cow::Borrowed(value))
}

/// A row of a side: its name in the manual, and what it gives of the facts.
macro_rules! side {
    ($name:literal, $kind:ident, $side:ident, $of:expr, $doc:literal) => {
        Fetch::new(
            &[$name],
            Type::$kind,
            FetchNeeds::NOTHING,
            |cx, _| {
                let of: for<'c> fn(&'c Facts) -> Option<Sample<'c>> = $of;
                $side(cx).and_then(of)
            },
            $doc,
        )
    };
}

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["ssl_fc"], Type::Bool, FetchNeeds::NOTHING, |cx, _| Some(Sample::Bool(fc(cx).is_some())),
        "Whether the client's connection uses TLS."),
    side!("ssl_fc_protocol", Str, fc, protocol, "The version of TLS with the client: TLSv1.3."),
    side!("ssl_fc_cipher", Str, fc, cipher, "The cipher suite with the client, as OpenSSL calls it."),
    side!("ssl_fc_alg_keysize", Int, fc, key_bits, "How many bits the key of the client's cipher has."),
    side!("ssl_fc_use_keysize", Int, fc, key_bits, "How many bits of the key of the client's cipher are used."),
    side!("ssl_fc_alpn", Str, fc, alpn, "The ALPN protocol negotiated with the client."),
    side!("ssl_fc_npn", Str, fc, |_| None, "Empty: NPN is obsolete."),
    side!("ssl_fc_sni", Str, fc, |facts| facts.sni.as_deref().map(|name| Sample::str(name.as_bytes())),
        "The server name (SNI) that the client sent."),
    // These two say false also of a connection that is not encrypted, as HAProxy does.
    Fetch::new(&["ssl_fc_has_sni"], Type::Bool, FetchNeeds::NOTHING,
        |cx, _| Some(Sample::Bool(fc(cx).is_some_and(|facts| facts.sni.is_some()))),
        "Whether the client sent a server name (SNI)."),
    Fetch::new(&["ssl_fc_is_resumed"], Type::Bool, FetchNeeds::NOTHING,
        |cx, _| Some(Sample::Bool(fc(cx).is_some_and(|facts| facts.resumed))),
        "Whether the client's session was resumed."),
    side!("ssl_fc_has_crt", Bool, fc, |facts| Some(Sample::Bool(!facts.peer.is_empty() && !facts.resumed)),
        "Whether the client presented a certificate on this connection; ssl_c_used includes resumed sessions."),
    side!("ssl_fc_has_early", Bool, fc, |_| Some(Sample::Bool(false)), "False: early data (0-RTT) is not accepted."),
    side!("ssl_fc_err", Int, fc, |_| Some(Sample::Int(0)), "0: rules run after a handshake without errors."),
    side!("ssl_fc_err_str", Str, fc, |_| None, "Empty: rules run after a handshake without errors."),
    side!("ssl_fc_protocol_hello_id", Int, fc, |facts| Some(Sample::Int(captured(facts)?.version.into())),
        "The version in the ClientHello, as a number; needs tune.ssl.capture-buffer-size."),
    Fetch::new(&["ssl_fc_cipherlist_bin"], Type::Bin, FetchNeeds::NOTHING, |cx, args| list(cx, args, |it| &it.ciphers),
        "The client's list of ciphers; needs tune.ssl.capture-buffer-size.").args(FILTER),
    Fetch::new(&["ssl_fc_cipherlist_hex"], Type::Str, FetchNeeds::NOTHING, cipher_list_hex,
        "The client's list of ciphers in hexadecimal digits; needs tune.ssl.capture-buffer-size.").args(FILTER),
    Fetch::new(&["ssl_fc_cipherlist_str"], Type::Str, FetchNeeds::NOTHING, cipher_list_text,
        "The names of the client's ciphers; needs tune.ssl.capture-buffer-size.").args(FILTER),
    side!("ssl_fc_cipherlist_xxh", Int, fc, |facts| Some(Sample::Int(captured(facts)?.ciphers_hash.cast_signed())),
        "The XXH64 of the client's list of ciphers; needs tune.ssl.capture-buffer-size."),
    Fetch::new(&["ssl_fc_extlist_bin"], Type::Bin, FetchNeeds::NOTHING, |cx, args| list(cx, args, |it| &it.extensions),
        "The numbers of the extensions in the ClientHello; needs tune.ssl.capture-buffer-size.").args(FILTER),
    Fetch::new(&["ssl_fc_eclist_bin"], Type::Bin, FetchNeeds::NOTHING, |cx, args| list(cx, args, |it| &it.groups),
        "The client's curves; needs tune.ssl.capture-buffer-size.").args(FILTER),
    side!("ssl_fc_ecformats_bin", Bin, fc,
        |facts| captured(facts).map(|it| &*it.point_formats).filter(|list| !list.is_empty()).map(bytes),
        "The client's elliptic curve point formats; needs tune.ssl.capture-buffer-size."),

    Fetch::new(&["ssl_bc"], Type::Bool, FetchNeeds::NOTHING, |cx, _| Some(Sample::Bool(bc(cx).is_some())),
        "Whether the server's connection uses TLS."),
    side!("ssl_bc_protocol", Str, bc, protocol, "The version of TLS with the server."),
    side!("ssl_bc_cipher", Str, bc, cipher, "The cipher suite with the server, as OpenSSL calls it."),
    side!("ssl_bc_alg_keysize", Int, bc, key_bits, "How many bits the key of the server's cipher has."),
    side!("ssl_bc_use_keysize", Int, bc, key_bits, "How many bits of the key of the server's cipher are used."),
    side!("ssl_bc_alpn", Str, bc, alpn, "The ALPN protocol negotiated with the server."),
    side!("ssl_bc_npn", Str, bc, |_| None, "Empty: NPN is obsolete."),
    side!("ssl_bc_is_resumed", Bool, bc, resumed, "Whether the session with the server was resumed."),
    side!("ssl_bc_err", Int, bc, |_| Some(Sample::Int(0)), "0: rules run after a handshake without errors."),
    side!("ssl_bc_err_str", Str, bc, |_| None, "Empty: rules run after a handshake without errors."),

    side!("ssl_c_used", Bool, fc, |facts| Some(Sample::Bool(!facts.peer.is_empty())),
        "Whether the client presented a certificate, on this connection or when the session began."),
    side!("ssl_c_verify", Int, fc, |facts| Some(Sample::Int(facts.verification.result.into())),
        "Result of verifying the client's certificate, by OpenSSL's numbers; 0: valid."),
    side!("ssl_c_err", Int, fc, |facts| Some(Sample::Int(facts.verification.error.into())),
        "The first error of the client's certificate, by OpenSSL's numbers; 0: none."),
    side!("ssl_c_ca_err", Int, fc, |facts| Some(Sample::Int(facts.verification.ca_error.into())),
        "The first error above the client's certificate, by OpenSSL's numbers; 0: none."),
    side!("ssl_c_ca_err_depth", Int, fc, |facts| Some(Sample::Int(facts.verification.ca_depth.into())),
        "At which depth ssl_c_ca_err was; 0: no error."),
    side!("ssl_c_chain_der", Bin, fc, |facts| chain(facts, 1), "The chain that the client sent after its certificate, in DER."),
    side!("ssl_s_chain_der", Bin, bc, |facts| chain(facts, 0), "All certificates that the server sent, in DER."),
    side!("ssl_c_der", Bin, fc, |facts| peer(facts).map(bytes), "The client's certificate in DER."),
    side!("ssl_f_der", Bin, fc, |facts| ours(facts).map(bytes), "The certificate presented to the client, in DER."),
    side!("ssl_s_der", Bin, bc, |facts| peer(facts).map(bytes), "The server's certificate in DER."),
    side!("ssl_c_sha1", Bin, fc, |facts| peer(facts).map(sha1), "SHA-1 of the client's certificate."),
    side!("ssl_f_sha1", Bin, fc, |facts| ours(facts).map(sha1), "SHA-1 of the certificate presented to the client."),
    side!("ssl_s_sha1", Bin, bc, |facts| peer(facts).map(sha1), "SHA-1 of the server's certificate."),
    side!("ssl_c_serial", Bin, fc, |facts| peer(facts).and_then(serial), "The serial number of the client's certificate."),
    side!("ssl_f_serial", Bin, fc, |facts| ours(facts).and_then(serial),
        "The serial number of the certificate presented to the client."),
    side!("ssl_s_serial", Bin, bc, |facts| peer(facts).and_then(serial), "The serial number of the server's certificate."),
    side!("ssl_c_version", Int, fc, |facts| peer(facts).and_then(version), "The version of the client's certificate."),
    side!("ssl_f_version", Int, fc, |facts| ours(facts).and_then(version),
        "The version of the certificate presented to the client."),
    side!("ssl_s_version", Int, bc, |facts| peer(facts).and_then(version), "The version of the server's certificate."),
    side!("ssl_c_sig_alg", Str, fc, |facts| peer(facts).and_then(signed_by), "Signature algorithm of the client's certificate."),
    side!("ssl_f_sig_alg", Str, fc, |facts| ours(facts).and_then(signed_by),
        "Signature algorithm of the certificate presented to the client."),
    side!("ssl_s_sig_alg", Str, bc, |facts| peer(facts).and_then(signed_by), "Signature algorithm of the server's certificate."),
    side!("ssl_c_key_alg", Str, fc, |facts| peer(facts).and_then(key_kind), "The type of the client's key."),
    side!("ssl_f_key_alg", Str, fc, |facts| ours(facts).and_then(key_kind),
        "The key type of the certificate presented to the client."),
    side!("ssl_s_key_alg", Str, bc, |facts| peer(facts).and_then(key_kind), "The type of the server's key."),
    side!("ssl_c_notbefore", Str, fc, |facts| peer(facts).and_then(not_before),
        "Start of validity of the client's certificate: YYMMDDhhmmssZ."),
    side!("ssl_f_notbefore", Str, fc, |facts| ours(facts).and_then(not_before),
        "Start of validity of the certificate presented to the client: YYMMDDhhmmssZ."),
    side!("ssl_s_notbefore", Str, bc, |facts| peer(facts).and_then(not_before),
        "Start of validity of the server's certificate: YYMMDDhhmmssZ."),
    side!("ssl_c_notafter", Str, fc, |facts| peer(facts).and_then(not_after),
        "End of validity of the client's certificate: YYMMDDhhmmssZ."),
    side!("ssl_f_notafter", Str, fc, |facts| ours(facts).and_then(not_after),
        "End of validity of the certificate presented to the client: YYMMDDhhmmssZ."),
    side!("ssl_s_notafter", Str, bc, |facts| peer(facts).and_then(not_after),
        "End of validity of the server's certificate: YYMMDDhhmmssZ."),
    Fetch::new(&["ssl_c_s_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(peer(fc(cx)?)?, View::subject, args),
        "Subject of the client's certificate, the whole name or an entry such as CN.").args(NAME),
    Fetch::new(&["ssl_c_i_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(peer(fc(cx)?)?, View::issuer, args),
        "Issuer of the client's certificate, the whole name or an entry.").args(NAME),
    Fetch::new(&["ssl_f_s_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(ours(fc(cx)?)?, View::subject, args),
        "Subject of the certificate presented to the client, the whole name or an entry.").args(NAME),
    Fetch::new(&["ssl_f_i_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(ours(fc(cx)?)?, View::issuer, args),
        "Issuer of the certificate presented to the client, the whole name or an entry.").args(NAME),
    Fetch::new(&["ssl_s_s_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(peer(bc(cx)?)?, View::subject, args),
        "Subject of the server's certificate, the whole name or an entry.").args(NAME),
    Fetch::new(&["ssl_s_i_dn"], Type::Str, FetchNeeds::NOTHING, |cx, args| dn(peer(bc(cx)?)?, View::issuer, args),
        "Issuer of the server's certificate, the whole name or an entry.").args(NAME),
];

fn protocol(facts: &Facts) -> Option<Sample<'_>> {
    Some(Sample::str(names::version_name(facts.version?).as_bytes()))
}

fn cipher(facts: &Facts) -> Option<Sample<'_>> {
    Some(Sample::str(names::cipher_name(facts.suite?.suite())?.as_bytes()))
}

fn key_bits(facts: &Facts) -> Option<Sample<'_>> {
    Some(Sample::Int(names::cipher_key_bits(facts.suite?.suite())?.into()))
}

fn alpn(facts: &Facts) -> Option<Sample<'_>> {
    facts.alpn.as_deref().map(Sample::str)
}

fn resumed(facts: &Facts) -> Option<Sample<'_>> {
    Some(Sample::Bool(facts.resumed))
}

fn captured(facts: &Facts) -> Option<&Captured> {
    facts.captured.as_deref()
}

/// A list of the client's hello.
fn list<'c>(cx: &'c Context<'_>, args: &[Value], of: fn(&Captured) -> &[u8]) -> Option<Sample<'c>> {
    let list = of(captured(fc(cx)?)?);
    (!list.is_empty()).then(|| match args.first().map(Value::bytes) {
        Some(b"1") => Sample::Bin(Cow::Owned(numbers(list, true).flat_map(u16::to_be_bytes).collect())),
        _ => bytes(list),
    })
}

/// The numbers of a list; without those that a client sends to see whether others pass over them, if wanted.
fn numbers(list: &[u8], meaning: bool) -> impl Iterator<Item = u16> {
    let all = list.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    all.filter(move |number| !(meaning && number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff))
}

fn cipher_list_hex<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let Some(Sample::Bin(list)) = list(cx, args, |it| &it.ciphers) else { return None };
    Some(text(list.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02X}");
        digits
    })))
}

fn cipher_list_text<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let Some(Sample::Bin(list)) = list(cx, args, |it| &it.ciphers) else { return None };
    let name = |code: u16| match code {
        0x00ff => "TLS_EMPTY_RENEGOTIATION_INFO_SCSV".to_owned(),
        0x5600 => "TLS_FALLBACK_SCSV".to_owned(),
        code => names::any_cipher_name(code).map_or_else(|| format!("UNKNOWN({code:04x})"), str::to_owned),
    };
    Some(text(numbers(&list, false).map(name).collect::<Vec<_>>().join(",")))
}

/// The peer's certificate.
fn peer(facts: &Facts) -> Option<&[u8]> {
    facts.peer.first().map(|der| &**der)
}

/// The certificate that we showed.
fn ours(facts: &Facts) -> Option<&[u8]> {
    facts.ours.as_ref()?.der().map(|der| &**der)
}

fn chain(facts: &Facts, from: usize) -> Option<Sample<'_>> {
    let all = facts.peer.get(from..).filter(|all| !all.is_empty())?;
    Some(Sample::Bin(Cow::Owned(all.iter().flat_map(|der| der.iter().copied()).collect())))
}

fn sha1(der: &[u8]) -> Sample<'_> {
    Sample::Bin(Cow::Owned(baton_tls::sha1(der).to_vec()))
}

fn serial(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| bytes(view.serial()))
}

fn version(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| Sample::Int(view.version().into()))
}

fn signed_by(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| Sample::str(view.signature_algorithm().as_bytes()))
}

fn key_kind(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| Sample::str(view.key_algorithm().as_bytes()))
}

fn not_before(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| Sample::str(view.not_before()))
}

fn not_after(der: &[u8]) -> Option<Sample<'_>> {
    View::read(der).map(|view| Sample::str(view.not_after()))
}

/// A name, or an entry of it.
fn dn<'c>(der: &'c [u8], of: fn(&View<'c>) -> DistinguishedName<'c>, args: &[Value]) -> Option<Sample<'c>> {
    let name = of(&View::read(der)?);
    let [entry, occurrence, format] = args else { return None };
    match entry.bytes() {
        b"" if !format.is_absent() => Some(text(name.rfc2253())),
        b"" => Some(Sample::Str(Cow::Owned(name.one_line()))),
        entry => name.entry(std::str::from_utf8(entry).ok()?, occurrence.int().unwrap_or(1)).map(Sample::str),
    }
}
