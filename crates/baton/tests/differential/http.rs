//! As much HTTP/1 as the harness needs to know when a message is complete, and to join chunks before comparing. Lenient: what it
//! cannot read it leaves as it stands. It is deliberately not Baton's own parser.

/// Where a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// More must come.
    Incomplete,
    /// The end of the connection ends it.
    UntilClose,
    /// This many bytes.
    Complete(usize),
}

/// How a message's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

/// Bytes of a PROXY protocol header at the start of `bytes`; zero without one, `None` when it is not complete.
pub fn proxy_header(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(SIGNATURE) {
        let length = bytes.get(14..16)?;
        let total = 16 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        return (bytes.len() >= total).then_some(total);
    }
    if bytes.starts_with(b"PROXY ") {
        return find(bytes, b"\r\n").map(|at| at + 2);
    }
    Some(0)
}

/// First bytes of a PROXY protocol version 2 header.
pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of the head at the start of `bytes`, the empty line included.
pub fn head(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] if bytes[..at].ends_with(b"\r") => Some(at + 3),
        _ => None,
    })
}

/// Where the request at the start of `bytes` ends.
pub fn request(bytes: &[u8]) -> Extent {
    match head(bytes) {
        None => Extent::Incomplete,
        Some(head) => extent(bytes, head, request_body(&bytes[..head])),
    }
}

/// Where the response to `method` at the start of `bytes` ends, and whether it is an interim one.
pub fn response(bytes: &[u8], method: &str) -> (Extent, bool) {
    let Some(head) = head(bytes) else { return (Extent::Incomplete, false) };
    let body = response_body(&bytes[..head], method);
    let status = status(&bytes[..head]);
    (extent(bytes, head, body), (100..200).contains(&status) && status != 101)
}

/// Methods of the requests that `bytes` begins with.
pub fn methods(bytes: &[u8]) -> Vec<String> {
    let mut methods = Vec::new();
    let mut rest = bytes;
    while let Some(line) = first_line(rest) {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let (Some(method), true) = (words.next(), line.contains(" HTTP/")) else { break };
        methods.push(method.to_string());
        match request(rest) {
            Extent::Complete(size) if size > 0 => rest = &rest[size..],
            _ => break,
        }
    }
    methods
}

/// Whether the connection is to be closed after the last complete response in `bytes`.
pub fn closes(bytes: &[u8], methods: &[String]) -> bool {
    let mut rest = bytes;
    let mut closes = false;
    let mut methods = methods.iter();
    let mut method = methods.next();
    while let Some(head) = head(rest) {
        let (extent, interim) = response(rest, method.map_or("GET", String::as_str));
        let persistent = if rest.starts_with(b"HTTP/1.0") {
            has_value(&rest[..head], "connection", "keep-alive")
        } else {
            !has_value(&rest[..head], "connection", "close")
        };
        closes = !persistent;
        if !interim {
            method = methods.next();
        }
        match extent {
            Extent::Complete(size) => rest = &rest[size..],
            Extent::UntilClose => return true,
            Extent::Incomplete => return closes,
        }
    }
    closes
}

/// Whether the connection of this request is to be closed after the answer.
pub fn asks_to_close(head: &[u8]) -> bool {
    let old = first_line(head).is_some_and(|line| line.ends_with(b"HTTP/1.0"));
    has_value(head, "connection", "close") || old && !has_value(head, "connection", "keep-alive")
}

/// The requests in `bytes`, chunked bodies joined and marked.
pub fn join_requests(bytes: &[u8]) -> Vec<u8> {
    let start = proxy_header(bytes).unwrap_or(0);
    let mut out = bytes[..start].to_vec();
    join(&bytes[start..], &mut out, |head, _| (request_body(head), true));
    out
}

/// The responses in `bytes`, chunked bodies joined and marked.
pub fn join_responses(bytes: &[u8], methods: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    join(bytes, &mut out, |head, answered| {
        let method = methods.get(answered).map_or("GET", String::as_str);
        let status = status(head);
        (response_body(head, method), !(100..200).contains(&status))
    });
    out
}

/// Copies messages; `body_of` says how one is delimited and whether it counts as an answer.
fn join(mut rest: &[u8], out: &mut Vec<u8>, body_of: impl Fn(&[u8], usize) -> (Body, bool)) {
    let mut answered = 0;
    while let Some(head) = head(rest) {
        let (body, counts) = body_of(&rest[..head], answered);
        answered += usize::from(counts);
        out.extend_from_slice(&rest[..head]);
        rest = &rest[head..];
        match body {
            Body::None => {}
            Body::Length(length) => {
                let length = length.min(rest.len());
                out.extend_from_slice(&rest[..length]);
                rest = &rest[length..];
            }
            Body::UntilClose => break,
            Body::Chunked => {
                let chunks = chunks(rest);
                if chunks.broken {
                    break;
                }
                out.extend_from_slice(if chunks.end.is_some() { b"[chunked: " } else { b"[chunked and cut short: " });
                out.extend_from_slice(&chunks.data);
                out.extend_from_slice(b"]");
                out.extend_from_slice(chunks.trailers);
                rest = &rest[chunks.end.unwrap_or(rest.len())..];
            }
        }
    }
    out.extend_from_slice(rest);
}

fn extent(bytes: &[u8], head: usize, body: Body) -> Extent {
    match body {
        Body::None => Extent::Complete(head),
        Body::Length(length) if bytes.len() - head >= length => Extent::Complete(head + length),
        Body::Length(_) => Extent::Incomplete,
        Body::UntilClose => Extent::UntilClose,
        Body::Chunked => match chunks(&bytes[head..]) {
            Chunks { broken: true, .. } => Extent::UntilClose,
            Chunks { end: Some(end), .. } => Extent::Complete(head + end),
            _ => Extent::Incomplete,
        },
    }
}

fn request_body(head: &[u8]) -> Body {
    if has_value(head, "transfer-encoding", "chunked") {
        Body::Chunked
    } else {
        length(head).map_or(Body::None, Body::Length)
    }
}

fn response_body(head: &[u8], method: &str) -> Body {
    let status = status(head);
    let tunnel = method == "CONNECT" && (200..300).contains(&status);
    if method == "HEAD" || tunnel || (100..200).contains(&status) || status == 204 || status == 304 {
        Body::None
    } else if has_value(head, "transfer-encoding", "chunked") {
        Body::Chunked
    } else {
        length(head).map_or(Body::UntilClose, Body::Length)
    }
}

/// What a chunked body at the start of `bytes` holds.
struct Chunks<'a> {
    data: Vec<u8>,
    trailers: &'a [u8],
    /// Bytes of the whole body, when it is complete.
    end: Option<usize>,
    broken: bool,
}

fn chunks(bytes: &[u8]) -> Chunks<'_> {
    let mut chunks = Chunks { data: Vec::new(), trailers: &[], end: None, broken: false };
    let mut at = 0;
    while let Some(line) = find(&bytes[at..], b"\n") {
        let text = String::from_utf8_lossy(&bytes[at..at + line]);
        let digits: String = text.trim().chars().take_while(char::is_ascii_hexdigit).collect();
        let Ok(size) = usize::from_str_radix(&digits, 16) else {
            chunks.broken = true;
            return chunks;
        };
        at += line + 1;
        if size == 0 {
            // Trailers are lines up to an empty one.
            let start = at;
            while let Some(line) = find(&bytes[at..], b"\n") {
                let empty = bytes[at..at + line].trim_ascii().is_empty();
                at += line + 1;
                if empty {
                    chunks.trailers = &bytes[start..at];
                    chunks.end = Some(at);
                    break;
                }
            }
            return chunks;
        }
        let here = size.min(bytes.len() - at);
        chunks.data.extend_from_slice(&bytes[at..at + here]);
        at += here;
        match find(&bytes[at..], b"\n") {
            Some(line) if line <= 1 => at += line + 1,
            Some(_) => {
                chunks.broken = true;
                return chunks;
            }
            None => return chunks,
        }
    }
    chunks
}

fn status(head: &[u8]) -> u16 {
    let line = String::from_utf8_lossy(first_line(head).unwrap_or_default()).into_owned();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn length(head: &[u8]) -> Option<usize> {
    values(head, "content-length").first().and_then(|value| value.parse().ok())
}

fn has_value(head: &[u8], name: &str, wanted: &str) -> bool {
    values(head, name).iter().any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted)))
}

fn values(head: &[u8], name: &str) -> Vec<String> {
    String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_string())
        .collect()
}

fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = find(bytes, b"\n")?;
    Some(bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]))
}

/// Where `needle` first stands.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, needle)
}
