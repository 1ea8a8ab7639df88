//! Fetches from the ClientHello that is the first a client sends in `mode tcp` (configuration manual 7.3.5): the connection
//! goes on to a server that speaks TLS itself.

use std::borrow::Cow;

use baton_tls::Hello;

use super::Fetch;
use crate::args::Value;
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["req.ssl_hello_type", "req_ssl_hello_type"], Type::Int, FetchNeeds::NOTHING, hello_type,
        "1 when what the client sent is a TLS ClientHello; waits for all of it."),
    Fetch::new(&["req.ssl_ver", "req_ssl_ver"], Type::Int, FetchNeeds::NOTHING, version,
        "The version that a ClientHello names: major * 65536 + minor, 3.3 for all from TLS 1.2 on."),
    Fetch::new(&["req.ssl_sni", "req_ssl_sni"], Type::Str, FetchNeeds::NOTHING, sni,
        "The server name (SNI) in a ClientHello."),
    Fetch::new(&["req.ssl_alpn"], Type::Str, FetchNeeds::NOTHING, alpn,
        "The first protocol of ALPN in a ClientHello; ACLs try each.").each(each_alpn),
    Fetch::new(&["req.ssl_ec_ext"], Type::Bool, FetchNeeds::NOTHING, has_groups,
        "Whether a ClientHello names elliptic curves."),
    Fetch::new(&["req.ssl_st_ext"], Type::Int, FetchNeeds::NOTHING, ticket,
        "0: a ClientHello without the extension for session tickets, 1: with it, 2: with a ticket in it."),
];

/// The hello, once all of it is there.
fn hello<'c>(cx: &'c Context<'_>) -> Option<Hello<'c>> {
    match Hello::read(cx.content?.bytes) {
        Ok(hello) => hello,
        Err(baton_tls::Incomplete) => {
            cx.wait();
            None
        }
    }
}

fn hello_type<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    hello(cx).map(|_| Sample::Int(1))
}

fn version<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let version = hello(cx)?.version();
    Some(Sample::Int((i64::from(version >> 8) << 16) + i64::from(version & 0xff)))
}

fn sni<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    hello(cx)?.sni().map(owned)
}

fn alpn<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    hello(cx)?.alpn().next().map(owned)
}

fn each_alpn<'c>(cx: &'c Context<'_>, _: &'c [Value], test: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    hello(cx).is_some_and(|hello| hello.alpn().any(|name| test(owned(name))))
}

fn has_groups<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    hello(cx).map(|hello| Sample::Bool(hello.groups().is_some()))
}

fn ticket<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let hello = hello(cx)?;
    Some(Sample::Int(match hello.ticket() {
        None => 0,
        Some([]) => 1,
        Some(_) => 2,
    }))
}

/// Of a message that may have been put together from several records: it does not outlive the look at it.
fn owned<'c>(bytes: impl AsRef<[u8]>) -> Sample<'c> {
    Sample::Str(Cow::Owned(bytes.as_ref().to_vec()))
}
