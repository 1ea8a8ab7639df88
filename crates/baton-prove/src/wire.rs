//! HTTP/1 as a client and an origin of an experiment need it: heads and framing over byte slices (RFC 9112).
//!
//! Strict on purpose. A proxy under test must not send what RFC 9112 forbids, so whatever is not clearly right is
//! [`Malformed`]. No I/O and no clock.

mod body;

use memchr::memchr;

pub(crate) use body::Body;

/// The most bytes a head, a chunk's size line or a trailer section may have.
pub(crate) const HEAD_MAX: usize = 32 * 1024;

/// The peer sent something that is not HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// How the end of a body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; 0 also when there can be no body.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Until the server closes.
    UntilClose,
}

/// What the client has to know of an answer's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// Whether the connection may carry another request afterwards.
    pub(crate) keep: bool,
}

/// What the origin has to know of a request's head. Borrowed from the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    /// 0 or 1.
    pub(crate) minor: u8,
    /// The header lines, to be walked with [`Headers`].
    pub(crate) headers: Headers<'a>,
    pub(crate) framing: Framing,
    pub(crate) keep: bool,
    /// `Expect: 100-continue`.
    pub(crate) expects_continue: bool,
}

/// Reads the head of an answer from the start of `bytes`. `None` says that more bytes are needed; otherwise the head and its length.
/// `bodyless` is true after a HEAD request.
pub(crate) fn response(bytes: &[u8], bodyless: bool) -> Result<Option<(ResponseHead, usize)>, Malformed> {
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    // "HTTP/1.1 200 OK": the reason may be absent, the space before it may not (RFC 9112 section 4); common servers and
    // HAProxy forget it, so it is not asked for.
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ (b'0' | b'1'), b' ', a, b, c, rest @ ..] = line else {
        return Err(Malformed);
    };
    if !(rest.is_empty() || rest[0] == b' ') || !(a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit()) {
        return Err(Malformed);
    }
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    if status < 100 {
        return Err(Malformed);
    }

    let Some((facts, used)) = facts(bytes, after)? else { return Ok(None) };
    let bodyless = bodyless || status < 200 || status == 204 || status == 304;
    let framing = match (facts.chunked, facts.length) {
        _ if bodyless => Framing::Length(0),
        (true, _) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    let keep = facts.keep(*minor) && framing != Framing::UntilClose;
    Ok(Some((ResponseHead { status, framing, keep }, used)))
}

/// The head that was read last. Most answers of a server begin with the same bytes as the one before, at least within a second;
/// the same bytes mean the same.
#[derive(Debug, Default)]
pub(crate) struct LastHead {
    bytes: Vec<u8>,
    known: Option<(ResponseHead, bool)>,
}

impl LastHead {
    /// What [`response`] gives.
    pub(crate) fn response(
        &mut self,
        bytes: &[u8],
        bodyless: bool,
    ) -> Result<Option<(ResponseHead, usize)>, Malformed> {
        if let Some((head, was_bodyless)) = self.known
            && was_bodyless == bodyless
            && bytes.starts_with(&self.bytes)
        {
            return Ok(Some((head, self.bytes.len())));
        }
        let read = response(bytes, bodyless)?;
        if let Some((head, used)) = read {
            self.bytes.clear();
            self.bytes.extend_from_slice(&bytes[..used]);
            self.known = Some((head, bodyless));
        }
        Ok(read)
    }
}

/// Reads the head of a request from the start of `bytes`. `None` says that more bytes are needed; otherwise the head and its length.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(RequestHead<'_>, usize)>, Malformed> {
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Malformed);
    };
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ (b'0' | b'1')] = version else { return Err(Malformed) };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) || target.is_empty() {
        return Err(Malformed);
    }

    let Some((facts, used)) = facts(bytes, after)? else { return Ok(None) };
    let framing = match (facts.chunked, facts.length) {
        (true, _) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    let head = RequestHead {
        method,
        target,
        minor: minor - b'0',
        headers: Headers { rest: &bytes[after..used] },
        framing,
        keep: facts.keep(*minor),
        expects_continue: facts.expects_continue,
    };
    Ok(Some((head, used)))
}

/// What header lines say about the message itself.
#[derive(Default)]
struct Facts {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Facts {
    fn keep(&self, minor: u8) -> bool {
        !self.close && (minor == b'1' || self.keep_alive)
    }
}

/// Walks the header lines at `bytes[at..]`; gives what they say and where the head ends.
fn facts(bytes: &[u8], mut at: usize) -> Result<Option<(Facts, usize)>, Malformed> {
    let mut facts = Facts::default();
    loop {
        let Some((line, length)) = line(&bytes[at..])? else {
            return if bytes.len() >= HEAD_MAX { Err(Malformed) } else { Ok(None) };
        };
        at += length;
        if line.is_empty() {
            if facts.chunked && facts.length.is_some() {
                // RFC 9112 section 6.1: a sender must not send both.
                return Err(Malformed);
            }
            return Ok(Some((facts, at)));
        }
        let (name, value) = field(line)?;
        // The length decides cheaply whether a name can be one of the few that matter.
        match name.len() {
            6 if name.eq_ignore_ascii_case(b"expect") => {
                facts.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    facts.close |= word.eq_ignore_ascii_case(b"close");
                    facts.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or(Malformed)?;
                if facts.length.is_some_and(|before| before != length) {
                    return Err(Malformed);
                }
                facts.length = Some(length);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                // Nobody here asks for another coding with `TE`, so none may be used.
                if facts.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed);
                }
                facts.chunked = true;
            }
            _ => {}
        }
    }
}

/// The header lines of a head that was read whole; gives names and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (line, length) = line(self.rest).ok()??;
        self.rest = &self.rest[length..];
        field(line).ok()
    }
}

impl<'a> Headers<'a> {
    /// The first value of the header `name` (any case).
    pub(crate) fn value_of(&self, name: &str) -> Option<&'a [u8]> {
        self.clone().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

/// The header lines of an answer whose head, `head`, was read whole.
pub(crate) fn headers(head: &[u8]) -> Headers<'_> {
    let start = memchr(b'\n', head).map_or(head.len(), |end| end + 1);
    Headers { rest: &head[start..] }
}

/// The first line of `bytes` without its CRLF, and its length with it. A bare LF is malformed.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    match memchr(b'\n', bytes) {
        None if bytes.len() >= HEAD_MAX => Err(Malformed),
        None => Ok(None),
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some((&bytes[..end - 1], end + 1))),
        Some(_) => Err(Malformed),
    }
}

/// Splits a header line into name and trimmed value.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let colon = memchr(b':', line).ok_or(Malformed)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // An empty name, a space before the colon and a folded line (RFC 9112 section 5.2) all fail here.
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(Malformed);
    }
    Ok((name, value.trim_ascii()))
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// A look-up for each byte, because every byte of every header's name is asked about.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the answer in `text` whole and byte by byte; both must give the same, in the words of `expect`.
    fn check(text: &str, expect: &str) {
        let whole = read(&[text.as_bytes()]);
        assert_eq!(whole, expect, "{text:?}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expect, "byte by byte: {text:?}");
    }

    fn read(pieces: &[&[u8]]) -> String {
        let (mut buffer, mut body, mut seen, mut head) = (Vec::new(), None, Vec::new(), None);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            if head.is_none() {
                match response(&buffer, false) {
                    Err(Malformed) => return "malformed head".to_owned(),
                    Ok(None) => continue,
                    Ok(Some((read, used))) => {
                        buffer.drain(..used);
                        body = Some(Body::new(read.framing));
                        head = Some(read);
                    }
                }
            }
            let body = body.as_mut().expect("set with the head");
            match body.read(&buffer, &mut |data| seen.extend_from_slice(data)) {
                Err(Malformed) => return "malformed body".to_owned(),
                Ok(used) => drop(buffer.drain(..used)),
            }
        }
        let Some(head) = head else { return "more".to_owned() };
        let end = if body.is_some_and(|body| body.is_done()) { "done" } else { "open" };
        let keep = if head.keep { "keep" } else { "close" };
        format!("{} {keep} {:?} {end} left {}", head.status, String::from_utf8_lossy(&seen), buffer.len())
    }

    #[test]
    fn answers_are_read_by_their_framing() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", r#"200 keep "abc" done left 0"#);
        check("HTTP/1.1 200\r\ncontent-length:3\r\n\r\nabcd", r#"200 keep "abc" done left 1"#);
        check("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nab", r#"200 close "ab" open left 0"#);
        check("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", r#"200 keep "" done left 0"#);
        check("HTTP/1.1 200 OK\r\nConnection: a, CLOSE\r\nContent-Length: 0\r\n\r\n", r#"200 close "" done left 0"#);
        check("HTTP/1.1 200 OK\r\n\r\nabc", r#"200 close "abc" open left 0"#);
        check("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", r#"304 keep "" done left 0"#);
        check("HTTP/1.1 200 OK\r\nContent-Le", "more");
    }

    #[test]
    fn chunked_answers_end_where_they_say() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{head}3\r\nabc\r\n0\r\n\r\n"), r#"200 keep "abc" done left 0"#);
        check(
            &format!("{head}A;x=\"1\"\r\n0123456789\r\n1\r\n!\r\n000\r\nT: 1\r\n\r\nX"),
            r#"200 keep "0123456789!" done left 1"#,
        );
        check(&format!("{head}3\r\nabc\r\n0\r\n"), r#"200 keep "abc" open left 0"#);
        check(&format!("{head}3\r\nabcd\r\n0\r\n\r\n"), "malformed body");
        check(&format!("{head}\r\nabc"), "malformed body");
        check(&format!("{head}-3\r\nabc"), "malformed body");
        check(&format!("{head}3\nabc"), "malformed body");
        check(&format!("{head}1234567890abcdef\r\n"), "malformed body");
    }

    #[test]
    fn what_is_not_http_is_malformed() {
        check("SSH-2.0-x\r\n", "malformed head");
        check("HTTP/2.0 200 OK\r\n\r\n", "malformed head");
        check("HTTP/1.1 2000 OK\r\n\r\n", "malformed head");
        check("HTTP/1.1 099 OK\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\n\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "malformed head");
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "malformed head");
    }

    #[test]
    fn a_head_without_end_is_malformed_at_its_bound() {
        let endless = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"A: b\r\n".repeat(HEAD_MAX)].concat();
        assert_eq!(response(&endless[..HEAD_MAX - 1], false), Ok(None));
        assert_eq!(response(&endless[..HEAD_MAX], false), Err(Malformed));
        assert_eq!(response(&[b'H'; HEAD_MAX], false), Err(Malformed));
    }

    #[test]
    fn the_same_bytes_are_read_the_same() {
        let mut last = LastHead::default();
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r",
            "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 404 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok",
        ] {
            for bodyless in [false, true, false] {
                assert_eq!(last.response(text.as_bytes(), bodyless), response(text.as_bytes(), bodyless), "{text:?}");
            }
        }
    }

    #[test]
    fn requests_are_read() {
        let text = b"POST /echo?x HTTP/1.1\r\nHost: a\r\nX: 1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi";
        let (head, used) = request(text).expect("well formed").expect("whole");
        assert_eq!((head.method, head.target, head.minor), (&b"POST"[..], &b"/echo?x"[..], 1));
        assert_eq!((head.framing, head.keep, head.expects_continue), (Framing::Length(2), true, true));
        assert_eq!(&text[used..], b"hi");
        assert_eq!(head.headers.value_of("x"), Some(&b"1"[..]));
        assert_eq!(head.headers.count(), 4);
        for bad in ["GET /\r\n\r\n", "GET / HTTP/1.2\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n", "G@T / HTTP/1.1\r\n\r\n"] {
            assert_eq!(request(bad.as_bytes()), Err(Malformed), "{bad:?}");
        }
    }

    proptest::proptest! {
        /// Whatever a peer sends: no panic, and the same reading however it is cut.
        #[test]
        fn any_bytes_are_read_the_same_in_parts(
            head in proptest::sample::select(vec![
                "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                "HTTP/1.0 200\r\nTransfer-Encoding: chunked\r\n\r\n",
            ]),
            rest in "([0-9a-f;:A ]{0,3}(\r\n|\r|\n|\t|\u{e9})?){0,12}",
        ) {
            let text = format!("{head}{rest}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            proptest::prop_assert_eq!(read(&[text.as_bytes()]), read(&bytes));
            let _ = request(text.as_bytes());
        }
    }
}
