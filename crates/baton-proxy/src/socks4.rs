//! The SOCKS4 protocol, the client's side of a connection that is opened through a proxy: its request, and the response to it.

use std::net::SocketAddrV4;

/// A response has as many bytes, and nothing of the connection behind it is among them.
pub const SOCKS4_RESPONSE_BYTES: usize = 8;

const VERSION: u8 = 4;
const CONNECT: u8 = 1;
const GRANTED: u8 = 90;
/// The name that HAProxy gives to the proxy, which may have rules for it.
const USER: &[u8] = b"HAProxy\0";

/// Asks for a connection to a server.
pub fn socks4_request(server: SocketAddrV4) -> Vec<u8> {
    let mut request = vec![VERSION, CONNECT];
    request.extend_from_slice(&server.port().to_be_bytes());
    request.extend_from_slice(&server.ip().octets());
    request.extend_from_slice(USER);
    request
}

/// Whether there is a connection to the server.
pub fn socks4_granted(response: [u8; SOCKS4_RESPONSE_BYTES]) -> bool {
    // The version of a response is zero; as in HAProxy, only the code counts.
    response[1] == GRANTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_response() {
        let server = SocketAddrV4::new([192, 0, 2, 7].into(), 81);
        assert_eq!(socks4_request(server), b"\x04\x01\x00Q\xc0\x00\x02\x07HAProxy\x00");
        assert!(socks4_granted(*b"\0Z\0\0\0\0\0\0") && !socks4_granted(*b"\0[\0\0\0\0\0\0"));
    }
}
