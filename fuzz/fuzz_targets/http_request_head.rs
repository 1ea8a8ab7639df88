//! Any bytes as a request head: no panic, the same result in two pieces, and what we forward is a head that says the
//! same again.
#![no_main]

use baton_http::{ForUpstream, Limits, Parsed, RequestHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&split, buf)) = input.split_first() else { return };
    let limits = Limits::default();
    let mut whole = RequestHead::new();
    let result = whole.parse(buf, &limits);

    let mut pieces = RequestHead::new();
    let split = buf.len() * split as usize / 255;
    let first = pieces.parse(&buf[..split], &limits);
    let second = if first == Ok(Parsed::Partial) { pieces.parse(buf, &limits) } else { first };
    assert_eq!(second, result);

    let Ok(Parsed::Complete(len)) = result else { return };
    assert!(len <= buf.len());
    assert_eq!((pieces.framing, pieces.must_close), (whole.framing, whole.must_close));
    let _ = (whole.path(buf), whole.query(buf), whole.authority(buf), whole.host(buf));
    let (framing, method) = (whole.framing, whole.method);
    whole.for_upstream(buf, ForUpstream { keep_alive: true });
    let mut out = Vec::new();
    whole.write(buf, &mut out);

    let mut again = RequestHead::new();
    let wide = Limits { head_bytes: 1 << 20, headers: 1000, ..Limits::default() };
    assert_eq!(again.parse(&out, &wide), Ok(Parsed::Complete(out.len())), "{}", out.escape_ascii());
    assert_eq!((again.framing, again.method), (framing, method));
    let mut twice = Vec::new();
    again.write(&out, &mut twice);
    assert_eq!(twice.escape_ascii().to_string(), out.escape_ascii().to_string());
});
