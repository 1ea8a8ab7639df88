//! The handshake of WebSockets, where one side speaks HTTP/1 and the other HTTP/2, which has none (RFC 8441 5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// What a server adds to a client's key (RFC 6455 1.3).
const ADDED: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What answers a client's key.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(ADDED).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
