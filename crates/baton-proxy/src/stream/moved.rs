//! TLS of a connection as data, on its way to another process or back.

use std::fmt;

use baton_records::{Layer, Role};
use baton_tls::Facts;
use zeroize::Zeroizing;

/// Who has this can read and write the connection, as soon as it has its socket; whom it was taken from cannot any more.
pub struct MovedTls {
    layer: Zeroizing<Vec<u8>>,
    /// Bytes on their way through it.
    pub bytes: MovedBytes,
    /// What was agreed on.
    pub facts: Facts,
}

/// Bytes on their way through TLS, and whether there may be more.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct MovedBytes {
    /// Received, and encrypted still: the start of a record, or records that nobody has read.
    pub received: Vec<u8>,
    /// Decrypted, and not read.
    pub plain: Vec<u8>,
    /// Encrypted, and not sent to its end.
    pub unsent: Vec<u8>,
    /// Bytes of a writer's that are in there, which it begins its next write with.
    pub promised: usize,
    /// The peer has said all.
    pub read_ended: bool,
    /// We have.
    pub write_ended: bool,
}

impl MovedBytes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.received.len() + self.plain.len() + self.unsent.len()
    }
}

impl MovedTls {
    /// The most bytes of each kind: more than the memory for records ever holds.
    pub const BYTES_MAX: usize = 128 * 1024;

    /// Of a record layer as bytes, which is this end of the connection. `None`: they are none, or there are too many bytes on their way.
    pub fn new(role: Role, layer: Zeroizing<Vec<u8>>, bytes: MovedBytes, facts: Facts) -> Option<MovedTls> {
        let is_layer = Layer::from_bytes(&layer).is_some_and(|layer| layer.role() == role);
        let pieces = [&bytes.received, &bytes.plain, &bytes.unsent];
        let are_few = pieces.iter().all(|piece| piece.len() <= MovedTls::BYTES_MAX);
        let are_there = bytes.promised <= MovedTls::BYTES_MAX;
        (is_layer && are_few && are_there).then_some(MovedTls { layer, bytes, facts })
    }

    /// The record layer as bytes, keys among them.
    pub fn layer(&self) -> &[u8] {
        &self.layer
    }
}

impl fmt::Debug for MovedTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MovedTls")
    }
}
