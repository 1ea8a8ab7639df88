//! The PROXY protocol header of a check (PROXY protocol specification, 2.1 and 2.2).

use std::net::SocketAddr;

use baton_model::{ProxyProtocol, SendProxy};
use baton_proxy::{Addresses, Introduction, write_header};

/// What is sent first, written as for traffic. Version 1 names the check's own connection, version 2 says `LOCAL`, as HAProxy does.
pub(crate) fn header(wanted: SendProxy, ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let named = ends.filter(|_| wanted.version() == ProxyProtocol::V1);
    let (source, destination) = named.unzip();
    let introduction = Introduction { addresses: Addresses { source, destination }, ..Introduction::default() };
    let mut header = Vec::new();
    write_header(wanted, &introduction, &mut header);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_names_the_connection_and_version_two_itself() {
        let check = |wanted, ends: Option<(&str, &str)>, expect: &[u8]| {
            let ends = ends.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
            assert_eq!(header(wanted, ends), expect);
        };
        let (four, six) = (Some(("127.0.0.1:9", "127.0.0.2:80")), Some(("[::1]:9", "[::2]:80")));
        check(SendProxy::OFF, four, b"");
        check(SendProxy::V1, four, b"PROXY TCP4 127.0.0.1 127.0.0.2 9 80\r\n");
        check(SendProxy::V1, six, b"PROXY TCP6 ::1 ::2 9 80\r\n");
        check(SendProxy::V1, None, b"PROXY UNKNOWN\r\n");
        check(SendProxy::V2, four, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
        // Nobody came by TLS.
        let options = SendProxy::V2 | SendProxy::CERT_CN | SendProxy::UNIQUE_ID;
        check(options, four, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\x08\x20\0\x05\0\0\0\0\0");
    }
}
