//! Log lines that no format describes: of connections at their beginning, and of those that fail (configuration manual, 8.2.1, 8.2.5).

use std::net::SocketAddr;

use crate::connection::Connection;
use crate::core::Core;
use crate::view::FrontendView;

/// `Connect from 10.0.1.2:33312 to 10.0.3.31:8012 (www/HTTP)` (8.2.1).
pub fn connect_line(connection: &Connection, frontend: &FrontendView, out: &mut Vec<u8>) {
    let mode = match frontend.plan.proxy.mode {
        baton_model::Mode::Http => "HTTP",
        baton_model::Mode::Tcp => "TCP",
        baton_model::Mode::Direct => "DIRECT",
    };
    out.extend_from_slice(b"Connect from ");
    address(connection.source(), out);
    out.extend_from_slice(b" to ");
    address(connection.destination(), out);
    out.extend_from_slice(format!(" ({}/{mode})", frontend.plan.proxy.name).as_bytes());
}

/// `10.0.1.2:33312 [21/Nov/2026:03:42:51.123] www/1: text`: the frontend and the `bind` it came in by (8.2.5).
pub fn refusal_line(core: &Core, connection: &Connection, text: &str, out: &mut Vec<u8>) {
    client_address(connection, out);
    out.extend_from_slice(b" [");
    core.log.dates.http(core.clock.wall_at(connection.accepted), out);
    out.extend_from_slice(b"] ");
    out.extend_from_slice(connection.listener().frontend.proxy.name.as_bytes());
    out.push(b'/');
    match &connection.listener().bind.name {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => number(connection.listener().number, out),
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
}

fn address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    match address {
        Some(address) => out.extend_from_slice(format!("{}:{}", address.ip(), address.port()).as_bytes()),
        None => out.extend_from_slice(b"unix:0"),
    }
}

/// The client's address and port; of a unix socket the number of the `bind` it came in by.
fn client_address(connection: &Connection, out: &mut Vec<u8>) {
    if connection.source().is_some() {
        return address(connection.source(), out);
    }
    out.extend_from_slice(b"unix:");
    number(connection.listener().number, out);
}

fn number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
