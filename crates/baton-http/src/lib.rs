//! HTTP/1 on byte slices: heads, framing, chunks, limits.
