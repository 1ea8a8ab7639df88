//! HPACK (RFC 7541): fields to bytes and back, with a table of recent fields on either side.

mod decoder;
mod encoder;
pub mod huffman;
mod integer;
mod statics;
mod table;

pub use decoder::{BlockError, Decoder, FieldSink};
pub use encoder::{Encoder, Indexing};

/// What an entry takes in a table besides its bytes (RFC 7541 4.1).
pub const ENTRY_OVERHEAD: usize = 32;
