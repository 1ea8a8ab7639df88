//! Any bytes as a peer's frames, towards both roles: no panic, the same events and the same answers however they are cut, and what is answered is
//! frames.
#![no_main]

use baton_http2::{Config, Connection, Event, FrameHeader, PREFACE, RequestPseudo, Role};
use libfuzzer_sys::fuzz_target;

/// SETTINGS, and the acknowledgement of ours.
const GREETING: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

fn begin(role: Role) -> (Connection, Vec<u8>) {
    let mut connection = Connection::new(role, Config { resets_max: 5, control_frames_max: 50, ..Config::default() });
    let mut out = Vec::new();
    connection.open(&mut out);
    if role == Role::Client {
        out.drain(..PREFACE.len());
        for method in [&b"GET"[..], b"POST", b"HEAD"] {
            let pseudo = RequestPseudo { method, scheme: b"https", authority: b"a", path: b"/", protocol: None };
            let _ = connection.send_request(pseudo, [(&b"x"[..], &b"y"[..])].into_iter(), method != b"POST", &mut out);
        }
    }
    (connection, out)
}

/// What happened, with bodies as one.
fn run(role: Role, input: &[u8], piece: usize) -> (String, Vec<u8>) {
    let (mut connection, mut out) = begin(role);
    let (mut log, mut waiting) = (String::new(), Vec::new());
    for part in input.chunks(piece) {
        waiting.extend_from_slice(part);
        let mut taken = 0;
        loop {
            let received = match connection.receive(&waiting[taken..], &mut out) {
                Ok(received) => received,
                Err(violation) => return (format!("{log}!{violation:?}"), out),
            };
            taken += received.consumed;
            match received.event {
                None => break,
                Some(Event::Data { bytes, ends, .. }) => {
                    log += &bytes.escape_ascii().to_string();
                    log += if ends { "." } else { "" };
                }
                Some(event) => {
                    let head = connection.head();
                    log += &format!("\n{event:?} {}", head.arena().escape_ascii());
                    if let Event::Head { stream, ends } = event {
                        let (mut request, limits) = (baton_http::RequestHead::new(), baton_http::Limits::default());
                        let mut room = vec![0; limits.head_bytes + 1024];
                        let key = head.protocol().map(|_| &b"dGhlIHNhbXBsZSBub25jZQ=="[..]);
                        if role == Role::Server && head.to_request(&mut room, &mut request, key, &limits).is_ok() {
                            let mut text = Vec::new();
                            request.write(&room, &mut text);
                            let mut again = baton_http::RequestHead::new();
                            let wide = baton_http::Limits {
                                head_bytes: 1 << 20,
                                headers: 1000,
                                ..baton_http::Limits::default()
                            };
                            let parsed = again.parse(&text, &wide);
                            assert_eq!(parsed, Ok(baton_http::Parsed::Complete(text.len())), "{}", text.escape_ascii());
                        }
                        if role == Role::Server && ends {
                            connection.send_response(stream, 200, std::iter::empty(), true, &mut out);
                            connection.release(stream, &mut out);
                        }
                    }
                }
            }
        }
        waiting.drain(..taken);
        assert!(waiting.len() < 26);
    }
    (log, out)
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let preface: &[u8] = if role == Role::Server { PREFACE } else { b"" };
    let input = [preface, &GREETING, input].concat();
    let whole = run(role, &input, input.len());
    let cut = run(role, &input, usize::from(choice >> 1) + 1);
    assert_eq!(cut, whole);
    let mut rest = &whole.1[..];
    while !rest.is_empty() {
        let header = FrameHeader::parse(rest).expect("a frame");
        rest = rest.get(9 + header.len as usize..).expect("a whole frame");
    }
});
