//! Any bytes as a response head: no panic, the same result in two pieces, and what we send is a head that says the same
//! again.
#![no_main]

use baton_http::{ForClient, Limits, Method, Parsed, ResponseHead, ResponseTo, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [split, flags, buf @ ..] = input else { return };
    let method = [Method::Get, Method::Head, Method::Connect, Method::Post][(flags & 3) as usize];
    let to = ResponseTo { method, upgrade: flags & 4 != 0, websocket: flags & 8 != 0 };
    let limits = Limits::default();
    let mut whole = ResponseHead::new();
    let result = whole.parse(buf, to, &limits);

    let mut pieces = ResponseHead::new();
    let split = buf.len() * *split as usize / 255;
    let first = pieces.parse(&buf[..split], to, &limits);
    let second = if first == Ok(Parsed::Partial) { pieces.parse(buf, to, &limits) } else { first };
    assert_eq!(second, result);

    let Ok(Parsed::Complete(len)) = result else { return };
    assert!(len <= buf.len());
    let (framing, status) = (whole.framing, whole.status);
    let version = if flags & 16 != 0 { Version::Http10 } else { Version::Http11 };
    whole.for_client(buf, ForClient { keep_alive: flags & 32 != 0, version });
    let mut out = Vec::new();
    whole.write(buf, &mut out);

    let mut again = ResponseHead::new();
    let wide = Limits { head_bytes: 1 << 20, headers: 1000, ..Limits::default() };
    assert_eq!(again.parse(&out, to, &wide), Ok(Parsed::Complete(out.len())), "{}", out.escape_ascii());
    assert_eq!((again.framing, again.status), (framing, status));
    let mut twice = Vec::new();
    again.write(&out, &mut twice);
    assert_eq!(twice.escape_ascii().to_string(), out.escape_ascii().to_string());
});
