//! Any bytes as a chunked body: no panic, the same data however it is cut, and what we write decodes to the same.
#![no_main]

use baton_http::{ChunkDecoder, ChunkErrorKind, ChunkStep, Limits, write_chunk_header, write_last_chunk};
use libfuzzer_sys::fuzz_target;

type Body = (Vec<u8>, Result<Option<usize>, ChunkErrorKind>);

/// The data, and how it ended: refused, unfinished, or done after that many bytes.
fn decode(input: &[u8], piece: usize, decoder: &mut ChunkDecoder) -> Body {
    let mut data = Vec::new();
    let mut at = 0;
    for end in (0..input.len()).step_by(piece).map(|start| (start + piece).min(input.len())) {
        while at < end {
            match decoder.step(&input[at..end]) {
                Ok(ChunkStep::Data { skip, len }) => {
                    assert!(len > 0);
                    data.extend_from_slice(&input[at + skip..at + skip + len]);
                    at += skip + len;
                }
                Ok(ChunkStep::NeedMore { consumed }) => {
                    assert_eq!(consumed, end - at);
                    at = end;
                }
                Ok(ChunkStep::Done { consumed }) => return (data, Ok(Some(at + consumed))),
                Err(error) => return (data, Err(error.kind)),
            }
        }
    }
    (data, Ok(None))
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, body)) = input.split_first() else { return };
    let of = if piece < 128 { ChunkDecoder::new } else { ChunkDecoder::of_server };
    let mut decoder = of(&Limits::default());
    let whole = decode(body, usize::MAX >> 1, &mut decoder);
    let mut other = of(&Limits::default());
    let pieces = decode(body, piece as usize + 1, &mut other);
    assert_eq!(whole, pieces);
    other.clear();
    assert_eq!(decode(body, usize::MAX >> 1, &mut other), whole, "a cleared decoder is a new one");
    if !matches!(whole.1, Ok(Some(_))) {
        return;
    }
    let mut out = Vec::new();
    if !whole.0.is_empty() {
        write_chunk_header(&mut out, whole.0.len());
        out.extend_from_slice(&whole.0);
        out.extend_from_slice(b"\r\n");
    }
    let (trailers, bytes) = decoder.trailers();
    write_last_chunk(&mut out, bytes, trailers);
    let len = out.len();
    let wide = Limits { head_bytes: 1 << 20, headers: 1000, ..Limits::default() };
    let again = decode(&out, usize::MAX >> 1, &mut ChunkDecoder::new(&wide));
    assert_eq!(again, (whole.0, Ok(Some(len))));
});
