//! The PROXY protocol header of a check (PROXY protocol specification, 2.1 and 2.2).

use std::net::{IpAddr, SocketAddr};

use baton_model::ProxyProtocol;

/// What is sent first. Version 1 names the check's own connection, version 2 says `LOCAL`, as HAProxy does.
pub(super) fn header(version: ProxyProtocol, ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    match version {
        ProxyProtocol::Off => Vec::new(),
        ProxyProtocol::V1 => text(ends).into_bytes(),
        ProxyProtocol::V2 => b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00".to_vec(),
    }
}

fn text(ends: Option<(SocketAddr, SocketAddr)>) -> String {
    let Some((from, to)) = ends else { return "PROXY UNKNOWN\r\n".into() };
    let family = match from.ip() {
        IpAddr::V4(_) => "TCP4",
        IpAddr::V6(_) => "TCP6",
    };
    format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
}
