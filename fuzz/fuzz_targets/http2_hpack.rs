//! Any bytes as field blocks of a connection: no panic, bounded memory, and what was decoded comes back when it is encoded and decoded again.
#![no_main]

use baton_http::Span;
use baton_http2::hpack::{Decoder, Encoder, FieldSink, huffman};
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Fields(Vec<(Vec<u8>, Vec<u8>)>);

impl FieldSink for Fields {
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool {
        self.0.push((name.of(arena).to_vec(), value.of(arena).to_vec()));
        self.0.len() < 100
    }
}

/// Decoded bytes of a block.
const BYTES_MAX: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let (mut decoder, mut encoder, mut again) = (Decoder::new(), Encoder::new(), Decoder::new());
    // The first byte of each block is its length.
    let mut rest = input;
    while let Some((&len, bytes)) = rest.split_first() {
        let (block, after) = bytes.split_at(bytes.len().min(usize::from(len)));
        rest = after;
        let (mut arena, mut fields) = (Vec::new(), Fields::default());
        let decoded = decoder.decode(block, BYTES_MAX, &mut arena, &mut fields);
        assert!(decoder.table_size() <= 4096 && arena.len() <= BYTES_MAX + (1 << 10));
        if decoded.is_err() {
            return;
        }
        let (mut block, mut arena, mut same) = (Vec::new(), Vec::new(), Fields::default());
        if len & 1 == 1 {
            encoder.set_limit(u32::from(len) * 40);
        }
        encoder.begin(&mut block);
        for (name, value) in &fields.0 {
            encoder.field(name, value, &mut block);
        }
        again.decode(&block, 4 * BYTES_MAX, &mut arena, &mut same).expect("our own block");
        let lower = fields.0.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        assert!(lower.eq(same.0));
        assert_eq!(encoder.table_size(), again.table_size());
        let (mut text, mut code) = (Vec::new(), Vec::new());
        if huffman::decode(&block, &mut text).is_ok() {
            huffman::encode(&text, &mut code);
            assert_eq!(code, block);
        }
    }
});
