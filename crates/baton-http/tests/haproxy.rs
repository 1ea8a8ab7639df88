//! Replays what HAProxy 2.6.12 did (haproxy-2.6.txt, recorded from the real program) and compares.
//!
//! Each case of the file has the client's bytes, perhaps the server's and a mode (`close`: `option httpclose`,
//! `server-close`: `option http-server-close`), and what HAProxy sent up to the server and down to the client: bytes,
//! or the status of its own error page. Where Baton differs, `baton-up`, `baton-down` or `baton-end` say what it does,
//! and `why` gives the reason.

use baton_http::*;

const CASES: &str = include_str!("haproxy-2.6.txt");

/// What the server answers when a case does not say.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[derive(Default)]
struct Case {
    client: Vec<u8>,
    server: Option<Vec<u8>>,
    mode: String,
    up: String,
    down: String,
    end: String,
    differs: [Option<String>; 3],
    why: String,
}

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    up: String,
    down: String,
    end: String,
}

#[test]
fn forwards_as_haproxy_does() {
    let mut failed = Vec::new();
    let cases: Vec<Case> = CASES.split("\n\n").filter(|text| text.starts_with("client ")).map(read).collect();
    for case in &cases {
        let got = replay(case);
        let pick = |nth: usize, asked: &String| case.differs[nth].clone().unwrap_or_else(|| asked.clone());
        let expect = Outcome { up: pick(0, &case.up), down: pick(1, &case.down), end: pick(2, &case.end) };
        if got.up != expect.up {
            failed.push(format!("client {}\n  up      {}\n  haproxy {}", quote(&case.client), got.up, expect.up));
        } else if !expect.down.is_empty() && got.down != expect.down {
            let server = quote(case.server.as_deref().unwrap_or(ANSWER));
            let client = quote(&case.client);
            failed.push(format!(
                "client {client}\n  server  {server}\n  down    {}\n  haproxy {}",
                got.down, expect.down
            ));
        } else if !expect.end.is_empty() && !got.end.is_empty() && got.end != expect.end {
            failed.push(format!("client {}\n  end {} not {}", quote(&case.client), got.end, expect.end));
        }
        assert_eq!(case.differs.iter().any(Option::is_some), !case.why.is_empty(), "a difference has a reason");
    }
    assert!(cases.len() > 300, "the file has its cases: {}", cases.len());
    assert!(failed.is_empty(), "{} of {} cases differ:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

/// A proxy in miniature, with all bytes there at once.
fn replay(case: &Case) -> Outcome {
    let buf = &case.client;
    let mut request = RequestHead::new();
    let len = match request.parse(buf, &Limits::default()) {
        Ok(Parsed::Complete(len)) => len,
        Ok(Parsed::Partial) => return Outcome { up: "400".into(), ..Outcome::default() },
        Err(error) => return Outcome { up: error.request_status().to_string(), ..Outcome::default() },
    };
    let keep_client = case.mode != "close" && request.keep_alive();
    let (to, version) = (request.response_to(), request.version);
    request.for_upstream(buf, ForUpstream { keep_alive: case.mode.is_empty() });
    let mut up = Vec::new();
    request.write(buf, &mut up);
    if relay(request.framing, &buf[len..], ChunkDecoder::new(&Limits::default()), &mut up).is_none() {
        return Outcome { up: "400".into(), ..Outcome::default() };
    }

    let mut rest = case.server.as_deref().unwrap_or(ANSWER);
    let mut down = Vec::new();
    let mut response = ResponseHead::new();
    loop {
        let Ok(Parsed::Complete(len)) = response.parse(rest, to, &Limits::default()) else {
            return Outcome { up: quote(&up), down: "502".into(), ..Outcome::default() };
        };
        let keep = response.for_client(rest, ForClient { keep_alive: keep_client, version });
        response.write(rest, &mut down);
        rest = &rest[len..];
        if response.is_interim() {
            continue;
        }
        if response.framing == Framing::Tunnel {
            up.extend_from_slice(after_head(&case.client));
            down.extend_from_slice(rest);
            return Outcome { up: quote(&up), down: quote(&down), end: String::new() };
        }
        if relay(response.framing, rest, ChunkDecoder::of_server(&Limits::default()), &mut down).is_none() {
            return Outcome { up: quote(&up), down: "502".into(), ..Outcome::default() };
        }
        let end = if keep { "keep" } else { "close" };
        return Outcome { up: quote(&up), down: quote(&down), end: end.into() };
    }
}

fn after_head(client: &[u8]) -> &[u8] {
    let end = client.windows(4).position(|four| four == b"\r\n\r\n").map_or(client.len(), |at| at + 4);
    &client[end..]
}

/// Appends the body as it is forwarded. `None`: bad chunks.
fn relay(framing: Framing, mut rest: &[u8], mut chunks: ChunkDecoder, out: &mut Vec<u8>) -> Option<()> {
    match framing {
        Framing::None | Framing::Tunnel => {}
        Framing::Length(len) => out.extend_from_slice(&rest[..rest.len().min(len as usize)]),
        Framing::UntilClose => out.extend_from_slice(rest),
        Framing::Chunked => loop {
            match chunks.step(rest).ok()? {
                ChunkStep::Data { skip, len } => {
                    write_chunk_header(out, len);
                    out.extend_from_slice(&rest[skip..skip + len]);
                    out.extend_from_slice(b"\r\n");
                    rest = &rest[skip + len..];
                }
                ChunkStep::NeedMore { .. } => return Some(()),
                ChunkStep::Done { .. } => {
                    let (trailers, bytes) = chunks.trailers();
                    write_last_chunk(out, bytes, trailers);
                    return Some(());
                }
            }
        },
    }
    Some(())
}

fn read(text: &str) -> Case {
    let mut case = Case::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "client" => case.client = unquote(rest),
            "server" => case.server = Some(unquote(rest)),
            "mode" => case.mode = rest.into(),
            "up" => case.up = rest.into(),
            "down" => case.down = rest.into(),
            "end" => case.end = rest.into(),
            "baton-up" => case.differs[0] = Some(rest.into()),
            "baton-down" => case.differs[1] = Some(rest.into()),
            "baton-end" => case.differs[2] = Some(rest.into()),
            "why" => case.why = rest.into(),
            _ => assert!(line.is_empty(), "unknown line {line}"),
        }
    }
    if case.differs[0].is_some() {
        case.down.clear();
        case.end.clear();
    }
    case
}

fn quote(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' | b'"' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text + "\""
}

fn unquote(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).expect("quoted text");
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().expect("a backslash has something after it") {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let mut hex = || rest.next().and_then(|digit| (digit as char).to_digit(16)).expect("two digits");
                    (hex() * 16 + hex()) as u8
                }
                other => other,
            },
            byte => byte,
        });
    }
    bytes
}
