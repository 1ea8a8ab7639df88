//! Properties of the parsers that hold for any input, likely and unlikely.

use baton_http::*;
use proptest::collection::vec;
use proptest::prelude::*;

const REQUEST_LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "\r\nPOST http://a:80/x?y HTTP/1.1\n",
    "CONNECT a:443 HTTP/1.1\r\n",
    "PUT * HTTP/1.0\r\n",
    "X\t/ HTTP/1.1\r\n",
];

const STATUS_LINES: &[&str] =
    &["HTTP/1.1 200 OK\r\n", "\nHTTP/1.0 304\r\n", "HTTP/1.1 101 S\r\n", "HTTP/1.1 103  E\n", "HTTP/1.1 204 \r\n"];

/// Pieces of the rest of a head, harmless ones first.
const FIELDS: &[&str] = &[
    "Host: a\r\n",
    "Connection: close, x\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: x\r\n",
    "TE: a, trailers\r\n",
    "X: a\r\n b\r\n\tc\r\n",
    "Y:\n",
    "Y:  \r\n \r\n",
    " z \r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5, 5\r\n",
    "Expect: 100-continue\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: a:80\r\n",
    "Upgrade: websocket\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Bad : x\r\n",
    "Z: \u{e9}\0\r\n",
    "\r",
    ":",
];

const CHUNKS: &[&str] = &[
    "5\r\nhello\r\n",
    "A;x=y\r\n0123456789\r\n",
    "01 \r\nx\r\n",
    "0\r\n\r\n",
    "0\r\nX: a\r\n b\r\nHost: a\r\n\r\n",
    "0\r\nX: y\n\n",
    "0\r\nBad\r\n\r\n",
    "ffffffffffffff\r\n",
    "5\nhello\n",
    "\r\n",
];

/// One of `starts`, pieces of `pieces`, `end`, and seldom noise in between.
fn message(starts: &'static [&str], pieces: &'static [&str], end: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let harmless = prop::sample::select(&pieces[..pieces.len() * 3 / 5]);
    let piece = prop_oneof![
        30 => harmless.prop_map(|piece| piece.as_bytes().to_vec()),
        4 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..8),
    ];
    (prop::sample::select(starts), vec(piece, 0..9)).prop_map(move |(start, pieces)| {
        let mut message = start.as_bytes().to_vec();
        message.extend(pieces.concat());
        message.extend_from_slice(end.as_bytes());
        message.extend_from_slice(b"GET next");
        message
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (prop_oneof![1usize..200, Just(1000)], prop_oneof![1usize..12, Just(101)])
        .prop_map(|(head_bytes, headers)| Limits { head_bytes, headers, ..Limits::default() })
}

/// The whole result as text: what was found and everything a caller can see.
fn request(buf: &[u8], cuts: impl Iterator<Item = usize>, limits: &Limits) -> String {
    let mut head = RequestHead::new();
    let mut result = Ok(Parsed::Partial);
    for cut in cuts.chain([buf.len()]) {
        result = head.parse(&buf[..cut], limits);
        if result != Ok(Parsed::Partial) {
            break;
        }
    }
    let mut out = format!("{result:?} ");
    if let Ok(Parsed::Complete(_)) = result {
        out += &format!("{:?} {:?} {} {:?} ", head.framing, head.connection, head.must_close, head.response_to());
        let mut bytes = Vec::new();
        head.write(buf, &mut bytes);
        out += &bytes.escape_ascii().to_string();
    }
    out
}

fn response(buf: &[u8], cuts: impl Iterator<Item = usize>, to: ResponseTo, limits: &Limits) -> String {
    let mut head = ResponseHead::new();
    let mut result = Ok(Parsed::Partial);
    for cut in cuts.chain([buf.len()]) {
        result = head.parse(&buf[..cut], to, limits);
        if result != Ok(Parsed::Partial) {
            break;
        }
    }
    let mut out = format!("{result:?} ");
    if let Ok(Parsed::Complete(_)) = result {
        out += &format!("{:?} {:?} {} ", head.framing, head.connection, head.must_close);
        let mut bytes = Vec::new();
        head.write(buf, &mut bytes);
        out += &bytes.escape_ascii().to_string();
    }
    out
}

/// Data and trailers of a chunked body cut into pieces of `step` bytes, and how it ended.
fn chunks(body: &[u8], step: usize, mut decoder: ChunkDecoder) -> String {
    let (mut at, mut data, mut end) = (0, Vec::new(), String::from("unfinished"));
    'pieces: for until in (0..body.len()).map(|start| start + step).map(|until| until.min(body.len())) {
        while at < until {
            match decoder.step(&body[at..until]) {
                Ok(ChunkStep::Data { skip, len }) => {
                    data.extend_from_slice(&body[at + skip..at + skip + len]);
                    at += skip + len;
                }
                Ok(ChunkStep::NeedMore { consumed }) => at += consumed,
                Ok(ChunkStep::Done { consumed }) => {
                    let (trailers, bytes) = decoder.trailers();
                    let mut out = Vec::new();
                    write_last_chunk(&mut out, bytes, trailers);
                    end = format!("done at {} {}", at + consumed, out.escape_ascii());
                    break 'pieces;
                }
                Err(error) => {
                    end = format!("{:?}", error.kind);
                    break 'pieces;
                }
            }
        }
    }
    format!("{} {end}", data.escape_ascii())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_cut_anywhere_is_the_same(buf in message(REQUEST_LINES, FIELDS, "\r\n"), limits in limits()) {
        let whole = request(&buf, 0..0, &limits);
        prop_assert_eq!(&request(&buf, 0..buf.len(), &limits), &whole, "byte by byte");
        for cut in 0..buf.len() {
            prop_assert_eq!(&request(&buf, cut..cut + 1, &limits), &whole, "cut at {}", cut);
        }
    }

    #[test]
    fn a_response_cut_anywhere_is_the_same(
        buf in message(STATUS_LINES, FIELDS, "\r\n"), limits in limits(), upgrade: bool, method in prop::sample::select(&[Method::Get, Method::Head, Method::Connect][..]),
    ) {
        let to = ResponseTo { method, upgrade, websocket: false };
        let whole = response(&buf, 0..0, to, &limits);
        prop_assert_eq!(&response(&buf, 0..buf.len(), to, &limits), &whole, "byte by byte");
        for cut in 0..buf.len() {
            prop_assert_eq!(&response(&buf, cut..cut + 1, to, &limits), &whole, "cut at {}", cut);
        }
    }

    #[test]
    fn chunks_cut_anywhere_are_the_same(body in message(&[""], CHUNKS, "0\r\n\r\n"), limits in limits()) {
        for decoder in [ChunkDecoder::new(&limits), ChunkDecoder::of_server(&limits)] {
            let whole = chunks(&body, usize::MAX >> 1, decoder.clone());
            for step in 1..=body.len() {
                prop_assert_eq!(&chunks(&body, step, decoder.clone()), &whole, "pieces of {}", step);
            }
        }
    }

    #[test]
    fn a_written_head_parses_to_the_same(buf in message(REQUEST_LINES, FIELDS, "\r\n")) {
        let wide = Limits { head_bytes: 1 << 20, headers: 1000, ..Limits::default() };
        let mut head = RequestHead::new();
        if let Ok(Parsed::Complete(_)) = head.parse(&buf, &wide) {
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            head.write(&buf, &mut once);
            let mut again = RequestHead::new();
            prop_assert_eq!(again.parse(&once, &wide), Ok(Parsed::Complete(once.len())));
            prop_assert_eq!(again.framing, head.framing);
            again.write(&once, &mut twice);
            prop_assert_eq!(once.escape_ascii().to_string(), twice.escape_ascii().to_string());
        }
    }

    #[test]
    fn written_chunks_decode_to_the_same(pieces in vec(vec(any::<u8>(), 1..40), 0..5)) {
        let mut body = Vec::new();
        for piece in &pieces {
            write_chunk_header(&mut body, piece.len());
            body.extend_from_slice(piece);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(LAST_CHUNK);
        let expect = format!("{} done at {} 0\\r\\n\\r\\n", pieces.concat().escape_ascii(), body.len());
        prop_assert_eq!(chunks(&body, 7, ChunkDecoder::default()), expect);
    }
}
