//! What a message on the wire is, by the letter of RFC 9112 and by a parser of this test's own: it shares nothing with Baton's, and
//! it takes one spelling only. Two programs cannot read in two ways what passes here.

/// How long the body of a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Body {
    Length(usize),
    Chunked,
    UntilClose,
}

/// A message that was read whole.
#[derive(Debug, Eq, PartialEq)]
pub struct Message {
    /// The three parts of the start line.
    pub start: [String; 3],
    /// Names in lower case and values.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
    /// How many bytes it takes.
    pub len: usize,
}

/// What is at the beginning of some bytes.
#[derive(Debug)]
pub enum Found {
    Message(Message),
    /// The beginning of a message.
    Partial,
    /// Something that is open to interpretation: why, and, for a request with two lengths, the message as a careless server reads it.
    Bad(String, Option<Message>),
}

impl Message {
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }
}

/// Reads a request.
pub fn request(bytes: &[u8]) -> Found {
    message(bytes, |start, lengths| {
        let [method, target, version] = start else { return Err("a request line has three parts".into()) };
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err("the method is no token".into());
        }
        if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the target has bytes of no target".into());
        }
        check_version(version, lengths)?;
        Ok(lengths.unwrap_or(Body::Length(0)))
    })
}

/// Reads a response to GET. `closed`: no more bytes will come.
pub fn response(bytes: &[u8], closed: bool) -> Found {
    let found = message(bytes, |start, lengths| {
        let [version, status, _] = start else { return Err("a status line has three parts".into()) };
        check_version(version, None)?;
        match status.as_bytes() {
            [b'1', _, _] | b"204" | b"304" => Ok(Body::Length(0)),
            [b'2'..=b'9', b, c] if b.is_ascii_digit() && c.is_ascii_digit() => Ok(lengths.unwrap_or(Body::UntilClose)),
            _ => Err("the status has not three digits".into()),
        }
    });
    match found {
        Found::Message(message) if message.len == usize::MAX => match closed {
            true => Found::Message(Message { len: bytes.len(), ..message }),
            false => Found::Partial,
        },
        found => found,
    }
}

fn check_version(version: &str, lengths: Option<Body>) -> Result<(), String> {
    match (version, lengths) {
        ("HTTP/1.1", _) | ("HTTP/1.0", None | Some(Body::Length(_))) => Ok(()),
        ("HTTP/1.0", _) => Err("chunks in HTTP/1.0".into()),
        _ => Err(format!("the version is {version:?}")),
    }
}

/// `judge` gets the parts of the start line, and what the length fields say.
fn message(bytes: &[u8], judge: impl Fn(&[String], Option<Body>) -> Result<Body, String>) -> Found {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        // What is there already must not be wrong either, but for a line that is being written.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        return match lines(&bytes[..whole]) {
            Ok(_) => Found::Partial,
            Err(why) => Found::Bad(why, None),
        };
    };
    let head = match lines(&bytes[..end + 2]) {
        Ok(head) => head,
        Err(why) => return Found::Bad(why, None),
    };
    let [first, rest @ ..] = &head[..] else { return Found::Bad("there is no start line".into(), None) };
    let start: Vec<String> = String::from_utf8_lossy(first).splitn(3, ' ').map(str::to_owned).collect();
    let fields = match rest.iter().map(|line| field(line)).collect::<Result<Vec<_>, _>>() {
        Ok(fields) => fields,
        Err(why) => return Found::Bad(why, None),
    };
    let (lengths, two) = match lengths(&fields) {
        Ok(lengths) => lengths,
        Err(why) => return Found::Bad(why, None),
    };
    let body = match judge(&start, lengths) {
        Ok(body) => body,
        Err(why) => return Found::Bad(why, None),
    };
    let at = end + 4;
    let (body, len) = match read_body(&bytes[at..], body) {
        Ok(Some((body, len))) => (body, len.saturating_add(at)),
        Ok(None) => return Found::Partial,
        Err(why) => return Found::Bad(why, None),
    };
    let [a, b, c] = &start[..] else { return Found::Bad("the start line has not three parts".into(), None) };
    let start = [a.clone(), b.clone(), c.clone()];
    let message = Message { start, fields, body, len };
    if two { Found::Bad("two lengths".into(), Some(message)) } else { Found::Message(message) }
}

/// Lines that end in CRLF, and have neither of the two elsewhere, nor NUL.
fn lines(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(end) = find(rest, b"\r\n") else { return Err("a line does not end in CRLF".into()) };
        if rest[..end].iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err("CR, LF or NUL within a line".into());
        }
        found.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    Ok(found)
}

fn field(line: &[u8]) -> Result<(String, Vec<u8>), String> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a field without a colon")?;
    if colon == 0 || !line[..colon].iter().copied().all(is_token) {
        return Err("the name of a field is no token".into());
    }
    let value = &line[colon + 1..];
    // One blank, and none at the end: what else is a blank, programs do not agree on.
    let value = value.strip_prefix(b" ").ok_or("no blank after the colon")?;
    if matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
        return Err("blanks around a value".into());
    }
    Ok((String::from_utf8_lossy(&line[..colon]).to_ascii_lowercase(), value.to_vec()))
}

/// What the length fields say, and whether there are both. A careless server goes by `Content-Length`.
fn lengths(fields: &[(String, Vec<u8>)]) -> Result<(Option<Body>, bool), String> {
    let of =
        |name: &str| fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &value[..]).collect::<Vec<_>>();
    let length = match of("content-length")[..] {
        [] => None,
        [digits] if !digits.is_empty() && digits.len() < 16 && digits.iter().all(u8::is_ascii_digit) => {
            let digits = String::from_utf8_lossy(digits);
            Some(Body::Length(digits.parse().map_err(|_| "a length that is too long")?))
        }
        [_] => return Err("Content-Length is not a plain number".into()),
        _ => return Err("several Content-Length".into()),
    };
    let coding = match of("transfer-encoding")[..] {
        [] => None,
        [value] if value.eq_ignore_ascii_case(b"chunked") => Some(Body::Chunked),
        [_] => return Err("Transfer-Encoding is not just chunked".into()),
        _ => return Err("several Transfer-Encoding".into()),
    };
    if of("host").len() > 1 {
        return Err("several Host".into());
    }
    Ok((length.or(coding), length.is_some() && coding.is_some()))
}

/// The body, and how many bytes it takes; `usize::MAX`: all that will come.
fn read_body(bytes: &[u8], body: Body) -> Result<Option<(Vec<u8>, usize)>, String> {
    match body {
        Body::UntilClose => Ok(Some((bytes.to_vec(), usize::MAX))),
        Body::Length(len) => Ok(bytes.get(..len).map(|body| (body.to_vec(), len))),
        Body::Chunked => {
            let (mut out, mut at) = (Vec::new(), 0);
            loop {
                let Some(end) = find(&bytes[at..], b"\r\n") else {
                    // A size that is being written.
                    let rest = bytes[at..].strip_suffix(b"\r").unwrap_or(&bytes[at..]);
                    return if rest.len() < 16 && rest.iter().all(u8::is_ascii_hexdigit) {
                        Ok(None)
                    } else {
                        Err("a bad chunk".into())
                    };
                };
                let digits = &bytes[at..at + end];
                if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err("the size of a chunk is not hexadecimal".into());
                }
                let size =
                    usize::from_str_radix(&String::from_utf8_lossy(digits), 16).map_err(|error| error.to_string())?;
                at += end + 2;
                if size == 0 {
                    break;
                }
                let Some(data) = bytes.get(at..at + size + 2) else { return Ok(None) };
                out.extend_from_slice(data.strip_suffix(b"\r\n").ok_or("a chunk does not end in CRLF")?);
                at += size + 2;
            }
            if bytes[at..].starts_with(b"\r\n") {
                return Ok(Some((out, at + 2)));
            }
            let Some(end) = find(&bytes[at..], b"\r\n\r\n") else { return Ok(None) };
            for line in lines(&bytes[at..at + end + 2])? {
                field(line)?;
            }
            Ok(Some((out, at + end + 4)))
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The judge must be able to say no.
#[test]
fn the_judge_takes_one_spelling_only() {
    let good = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok";
    assert!(
        matches!(request(good.as_bytes()), Found::Message(Message { len: 49, .. })),
        "{:?}",
        request(good.as_bytes())
    );
    for (from, to) in [
        ("host: a", "host:a"),
        ("host: a", "host : a"),
        ("host: a", "host: a "),
        ("host: a\r\n", "host: a\n"),
        ("host: a", "host: a\r\nhost: b"),
        ("length: 2", "length: +2"),
        ("length: 2", "length: 2, 2"),
        ("length: 2", "length: 2\r\ncontent-length: 2"),
        ("length: 2", "length: 2\r\ntransfer-encoding: chunked"),
        ("content-length: 2", "transfer-encoding: x, chunked"),
        ("POST / ", "POST /a b "),
        ("HTTP/1.1", "HTTP/1.2"),
        ("host: a", "host: a\r\n b"),
        ("host: a", "host: a\0"),
    ] {
        assert!(matches!(request(good.replace(from, to).as_bytes()), Found::Bad(..)), "{to:?}");
    }
    let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert!(matches!(request(chunks.as_bytes()), Found::Message(_)));
    for (from, to) in [
        ("2\r\nok", "2;a\r\nok"),
        ("2\r\nok", "2\nok"),
        ("ok\r\n", "okk\r\n"),
        ("0\r\n", "0\r\nx : y\r\n"),
        ("1.1", "1.0"),
    ] {
        assert!(matches!(request(chunks.replacen(from, to, 1).as_bytes()), Found::Bad(..)), "{to:?}");
    }
    assert!(matches!(request(b"GET / HTTP/1.1\r\nx"), Found::Partial));
    assert!(matches!(response(b"HTTP/1.1 200 OK\r\n\r\nabc", true), Found::Message(Message { len: 22, .. })));
    assert!(matches!(response(b"HTTP/1.1 20 OK\r\n\r\n", true), Found::Bad(..)));
}
