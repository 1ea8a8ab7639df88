//! Fetches from the connection (configuration manual 7.3.3 and 7.3.4).

use std::net::SocketAddr;

use super::Fetch;
use crate::args::Value;
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["src"], Type::Ip, FetchNeeds::NOTHING, |cx, _| ip(cx.client), "The client's address."),
    Fetch::new(&["src_port"], Type::Int, FetchNeeds::NOTHING, |cx, _| port(cx.client), "The client's port."),
    Fetch::new(
        &["dst"],
        Type::Ip,
        FetchNeeds::NOTHING,
        |cx, _| ip((cx.destination)()),
        "The destination address of the client's connection.",
    ),
    Fetch::new(
        &["dst_port"],
        Type::Int,
        FetchNeeds::NOTHING,
        |cx, _| port((cx.destination)()),
        "The destination port of the client's connection.",
    ),
    Fetch::new(&["fe_name"], Type::Str, FetchNeeds::NOTHING, fe_name, "The frontend's name."),
    Fetch::new(&["fe_id"], Type::Int, FetchNeeds::NOTHING, fe_id, "The frontend's id."),
    Fetch::new(&["so_id"], Type::Int, FetchNeeds::NOTHING, so_id, "The id of the listening socket."),
    Fetch::new(&["so_name"], Type::Str, FetchNeeds::NOTHING, so_name, "The name of the listening socket."),
];

fn ip<'c>(address: Option<SocketAddr>) -> Option<Sample<'c>> {
    address.map(|address| Sample::Ip(address.ip()))
}

fn port<'c>(address: Option<SocketAddr>) -> Option<Sample<'c>> {
    address.map(|address| Sample::Int(address.port().into()))
}

fn fe_name<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::str(cx.frontend.name.as_bytes()))
}

fn fe_id<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(cx.frontend.id.into()))
}

fn so_id<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(i64::try_from(cx.listener.id).unwrap_or(i64::MAX)))
}

fn so_name<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.listener.name.map(|name| Sample::str(name.as_bytes()))
}
