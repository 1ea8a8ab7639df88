//! `option forwarded`, `option forwardfor` and `option originalto`: the client's and our own address for the server.

use std::net::{IpAddr, SocketAddr};

use baton_http::RequestMut;
use baton_model::{ForwardedFor, HttpOptions};

use crate::exchange::Exchange;

/// Adds the headers that the frontend or the backend asks for. The backend's settings win over the frontend's.
pub fn add(exchange: &mut Exchange<'_>, frontend: &HttpOptions, backend: &HttpOptions) {
    let forwarded = backend.forwarded_for.as_ref().or(frontend.forwarded_for.as_ref());
    let original = backend.original_to.as_ref().or(frontend.original_to.as_ref());
    if let Some(option) = forwarded {
        add_one(option, exchange.source(), &mut exchange.messages.request_mut());
    }
    if let Some(option) = original {
        add_one(option, exchange.destination(), &mut exchange.messages.request_mut());
    }
}

/// Adds the field that `option forwarded` made.
pub fn add_field(exchange: &mut Exchange<'_>, value: &[u8]) {
    if !value.is_empty() {
        exchange.messages.request_mut().fields().add(b"forwarded", value);
    }
}

fn add_one(option: &ForwardedFor, address: Option<SocketAddr>, request: &mut RequestMut<'_>) {
    let Some(ip) = address.map(|address| address.ip()) else { return };
    let name = option.header.as_bytes();
    if option.except.is_some_and(|(network, bits)| contains(network, bits, ip))
        || (option.if_none && request.view().fields().find(name).is_some())
    {
        return;
    }
    let mut text = [0; 48];
    let mut rest = &mut text[..];
    // An address in text is at most 45 bytes long.
    let _ = std::io::Write::write_fmt(&mut rest, format_args!("{ip}"));
    let left = rest.len();
    request.fields().add(name, &text[..text.len() - left]);
}

/// Whether `ip` is in the network.
fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    fn common(a: u128, b: u128, width: u32, bits: u8) -> bool {
        let shift = width - u32::from(bits).min(width);
        shift >= 128 || (a ^ b) >> shift == 0
    }
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => common(u32::from(network).into(), u32::from(ip).into(), 32, bits),
        (IpAddr::V6(network), IpAddr::V6(ip)) => common(network.into(), ip.into(), 128, bits),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(network: &str, bits: u8, ip: &str, expect: bool) {
        let parse = |text: &str| text.parse::<IpAddr>().expect("a test's address");
        assert_eq!(contains(parse(network), bits, parse(ip)), expect, "{ip} in {network}/{bits}");
    }

    #[test]
    fn networks() {
        check("127.0.0.0", 8, "127.9.9.9", true);
        check("127.0.0.0", 8, "128.0.0.0", false);
        check("10.1.2.3", 32, "10.1.2.3", true);
        check("10.1.2.3", 32, "10.1.2.2", false);
        check("0.0.0.0", 0, "1.2.3.4", true);
        check("2001:db8::", 32, "2001:db8:1::1", true);
        check("::", 0, "2001:db8:1::1", true);
        check("::", 0, "1.2.3.4", false);
    }
}
