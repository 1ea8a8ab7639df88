//! The inputs: every byte at every place where framing is decided, in both directions, and combinations of lengths. Nothing is left to
//! chance, so that a failure is found again by its bytes.

/// A request that is not to be seen by anybody, and that eats what comes after it.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: s\r\nX-Eat: ";
/// A request that is not to be seen either, whose body is the beginning of the next one.
const SWALLOWING: &str = "GET /smuggled HTTP/1.1\r\nHost: s\r\nContent-Length: 40\r\n\r\nx";
/// A response for somebody else.
const FORGED: &str = "HTTP/1.1 200 OK\r\nX-Origin: /forged\r\nContent-Length: 1\r\n\r\n!";

/// Puts each byte at each place that `^` marks, one at a time; and where a byte of framing follows, also in its place.
fn each_byte(template: &str, replace: bool, out: &mut Vec<Vec<u8>>) {
    let parts: Vec<&[u8]> = template.split('^').map(str::as_bytes).collect();
    for at in 1..parts.len() {
        let (before, after) = (parts[..at].concat(), parts[at..].concat());
        for byte in 0..=255u8 {
            out.push([&before[..], &[byte], &after[..]].concat());
            if replace && matches!(after.first(), Some(b':' | b'\r' | b'\n' | b' ')) {
                out.push([&before[..], &[byte], &after[1..]].concat());
            }
        }
    }
}

/// What clients send.
pub fn requests() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let len = SMUGGLED.len();
    each_byte(
        &format!(
            "^PO^ST^ ^/attack^ ^HT^TP/1.1^\r^\n^Host: a\r\n^Content^-Length^:^ ^{}^{}^\r^\n^\r^\n^{SMUGGLED}",
            len / 10,
            len % 10
        ),
        false,
        &mut out,
    );
    each_byte(
        &format!(
            "POST /attack HTTP/1.1\r\nHost: a\r\n^Transfer-Enc^oding^:^ ^chun^ked^\r^\n^\r^\n^{:x}^\r^\n^{SMUGGLED}^\r^\n^0^\r^\n^\r^\n^",
            len
        ),
        false,
        &mut out,
    );
    each_byte(
        "POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2^;^a=^b^\r\nok\r\n0\r\n^X-T^:^ ^v^\r^\n\r\n",
        false,
        &mut out,
    );
    each_byte(
        &format!(
            "POST /attack HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding^:^ chunked^\r\n\r\n0\r\n\r\n{SMUGGLED}"
        ),
        true,
        &mut out,
    );
    lengths(&mut out);
    chunks(&mut out);
    targets(&mut out);
    out
}

/// Two length fields in all combinations and orders, in two versions.
fn lengths(out: &mut Vec<Vec<u8>>) {
    const LENGTHS: &[&str] = &[
        "5",
        "05",
        "+5",
        "-5",
        "5 ",
        "5\t",
        "0x5",
        "5,5",
        "5, 5",
        "5, 6",
        "5;",
        "5 5",
        "",
        "5.0",
        "1e1",
        "5\x0b",
        "\u{a0}5",
        "18446744073709551621",
        "9223372036854775813",
        "0",
        "44",
    ];
    const CODINGS: &[&str] = &[
        "chunked",
        "CHUNKED",
        "chunked,",
        ",chunked",
        "chunked, chunked",
        "identity",
        "identity, chunked",
        "gzip, chunked",
        "chunked, gzip",
        "xchunked",
        "chunkedx",
        "chunk ed",
        "\"chunked\"",
        "chunked;q=1",
        "\x0bchunked",
        "chunked\x0c",
        "\tchunked\t",
        "",
        "chunked\u{a0}",
        "\u{ff}chunked",
    ];
    const NAMES: &[&str] = &[
        "Transfer-Encoding",
        "Transfer-Encoding ",
        " Transfer-Encoding",
        "transfer_encoding",
        "Transfer\tEncoding",
        "Transfer-Encoding\x0b",
        "X: y\nTransfer-Encoding",
        "X: y\rTransfer-Encoding",
        "X: y\r\n Transfer-Encoding",
        "Transfer-Encodinq",
        "\u{ff}Transfer-Encoding",
    ];
    let body = format!("0\r\n\r\n{SMUGGLED}");
    let mut add = |fields: &str| {
        for version in ["1.1", "1.0"] {
            out.push(format!("POST /attack HTTP/{version}\r\nHost: a\r\n{fields}\r\n{body}").into_bytes());
        }
    };
    for first in LENGTHS {
        for second in CODINGS {
            add(&format!("Content-Length: {first}\r\nTransfer-Encoding: {second}\r\n"));
        }
        for second in LENGTHS {
            add(&format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"));
        }
    }
    for coding in CODINGS {
        for name in NAMES {
            add(&format!("{name}: {coding}\r\nContent-Length: 5\r\n"));
        }
        add(&format!("Transfer-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n"));
        add(&format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: {coding}\r\n"));
        add(&format!("Connection: Transfer-Encoding\r\nTransfer-Encoding: {coding}\r\n"));
    }
    for named in LENGTHS {
        add(&format!("Connection: Content-Length\r\nContent-Length: {named}\r\n"));
    }
    // One chunk, whose first line is as long as the other length says.
    let body = format!("{:x}\r\n{SWALLOWING}\r\n0\r\n\r\n", SWALLOWING.len());
    for coding in CODINGS {
        for name in NAMES {
            for fields in [
                format!("{name}: {coding}\r\nContent-Length: 4\r\n"),
                format!("Content-Length: 4\r\n{name}: {coding}\r\n"),
            ] {
                out.push(format!("POST /attack HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").into_bytes());
            }
        }
    }
}

/// First lines of chunks, and what stands between a chunk's data and the next one.
fn chunks(out: &mut Vec<Vec<u8>>) {
    const SIZES: &[&str] = &[
        "2\r\n",
        "02\r\n",
        "+2\r\n",
        "-2\r\n",
        "0x2\r\n",
        "2 \r\n",
        " 2\r\n",
        "\t2\r\n",
        "2\n",
        "2\r",
        "2;\r\n",
        "2;a\n",
        "2;a\rb\r\n",
        "2;a=\"\r\n\"\r\n",
        "2,\r\n",
        "2_\r\n",
        "\r\n",
        "10000000000000002\r\n",
        "fffffffffffffffe\r\n",
        "2\0\r\n",
        "2;\0\r\n",
        "2\r\r\n",
        "2\n\r\n",
        "2\u{b2}\r\n",
        "g\r\n",
    ];
    const ENDS: &[&str] = &["\r\n", "\n", "\r", "", "\r\r\n", "\n\n", "x\r\n", " \r\n", "\r\n\r\n", "\0\r\n"];
    const LASTS: &[&str] = &[
        "0\r\n\r\n",
        "0\n\n",
        "0\r\n\n",
        "00\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0;a\r\n\r\n",
        "0\r\nContent-Length: 9\r\n\r\n",
    ];
    for size in SIZES {
        for end in ENDS {
            for last in LASTS {
                out.push(format!("POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{size}ok{end}{last}{SMUGGLED}").into_bytes());
            }
        }
    }
}

/// Methods, targets, versions and hosts with a body.
fn targets(out: &mut Vec<Vec<u8>>) {
    const LINES: &[&str] = &[
        "POST /attack HTTP/1.1",
        "GET /attack HTTP/1.1",
        "HEAD /attack HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT a:80 HTTP/1.1",
        "DELETE /attack HTTP/1.0",
        "POST http://a/attack HTTP/1.1",
        "POST http://b?@a/ HTTP/1.1",
        "POST http://u@a/ HTTP/1.1",
        "POST http://a HTTP/1.1",
        "POST /attack HTTP/1.2",
        "POST /attack HTTP/2.0",
        "POST /attack",
        "POST  /attack  HTTP/1.1",
        "POST\t/attack\tHTTP/1.1",
        "PRI * HTTP/2.0",
        "post /attack HTTP/1.1",
        "POST /attack HTTP/1.1 ",
        "\r\n\r\nPOST /attack HTTP/1.1",
        "\nPOST /attack HTTP/1.1",
    ];
    const FIELDS: &[&str] =
        &["Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 0", "Content-Length: 44", "X: y"];
    const MORE: &[&str] = &[
        "X: y",
        "Host: b",
        "Connection: Content-Length, Host",
        "Connection: Upgrade\r\nUpgrade: h2c",
        "Connection: Upgrade\r\nUpgrade: websocket",
        "TE: chunked",
        "Connection: close",
        "Content-Length : 5",
    ];
    for line in LINES {
        for field in FIELDS {
            for more in MORE {
                out.push(format!("{line}\r\nHost: a\r\n{field}\r\n{more}\r\n\r\n0\r\n\r\n{SMUGGLED}").into_bytes());
            }
        }
    }
}

/// What servers answer.
pub fn responses() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let len = FORGED.len();
    each_byte(
        &format!("^HTTP/1.1^ ^200^ ^OK^\r^\n^Content-Length^:^ ^{}^{}^\r^\n^\r^\n{FORGED}", len / 10, len % 10),
        false,
        &mut out,
    );
    each_byte(
        &format!(
            "HTTP/1.1 200 OK\r\n^Transfer-Encoding^:^ ^chunked^\r\n\r\n^{:x}^\r\n^{FORGED}^\r\n^0^\r\n^\r^\n",
            len
        ),
        false,
        &mut out,
    );
    let fields = [
        "Content-Length: 5",
        "Content-Length: 05",
        "Content-Length: +5",
        "Content-Length: 5, 6",
        "Content-Length: ",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: gzip, chunked",
        "X: y",
    ];
    for status in
        ["200 OK", "204 No", "304 No", "100 Continue", "101 Switch", "103 Hints", "99 Low", "1000 High", "404 No"]
    {
        for version in ["1.1", "1.0"] {
            for first in fields {
                for second in fields {
                    out.push(
                        format!("HTTP/{version} {status}\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\n{FORGED}").into_bytes(),
                    );
                }
            }
        }
    }
    out
}
