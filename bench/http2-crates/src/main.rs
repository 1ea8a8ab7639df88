//! CPU time of HTTP/2 without sockets: field blocks, and whole requests of a server's side, of several crates in turn.

use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use baton_http::Span;
use baton_http2::hpack::{Decoder, Encoder, FieldSink};
use baton_http2::{Config, Connection, Event, RequestPseudo, Role, Settings, write_window_update};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Requests of a run.
const REQUESTS: usize = 100_000;
/// Requests that arrive together.
const TOGETHER: usize = 32;
const ROUNDS: usize = 7;

/// A browser's request; one value differs each time.
const REQUEST: [(&str, &str); 12] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "www.example.com"),
    (":path", "/static/app/main.4f2a.js?v=0000"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-US,en;q=0.9,de;q=0.8"),
    ("referer", "https://www.example.com/index.html"),
    ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark"),
    ("sec-fetch-mode", "no-cors"),
    ("cache-control", "no-cache"),
];
const RESPONSE: [(&str, &str); 6] = [
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "100"),
    ("server", "example"),
    ("date", "Fri, 27 Nov 2026 14:00:00 GMT"),
    ("cache-control", "max-age=3600"),
    ("etag", "\"5f3c-0123456789\""),
];
const BODY: [u8; 100] = [b'x'; 100];

fn main() {
    let blocks = blocks();
    let input = input();
    type Run<'a> = (&'static str, Box<dyn FnMut() + 'a>);
    let mut runs: Vec<Run> = vec![
        ("decode a request's block: baton-http2", Box::new(|| decode_ours(&blocks))),
        ("decode a request's block: fluke-hpack", Box::new(|| decode_fluke(&blocks))),
        ("decode a request's block: hpack-patched", Box::new(|| decode_patched(&blocks))),
        ("decode a request's block: httlib-hpack", Box::new(|| decode_httlib(&blocks))),
        ("encode a response's block: baton-http2", Box::new(encode_ours)),
        ("encode a response's block: fluke-hpack", Box::new(encode_fluke)),
        ("encode a response's block: httlib-hpack", Box::new(encode_httlib)),
        ("a whole request and response: baton-http2", Box::new(|| serve_ours(&input))),
        ("a whole request and response: h2", Box::new(|| serve_h2(&input))),
    ];
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in runs.iter_mut().zip(&mut times) {
            let before = cpu();
            run();
            times.push((cpu() - before) * 1e9 / REQUESTS as f64);
        }
    }
    for ((name, _), times) in runs.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:45} {:7.0} ns", times[times.len() / 2]);
    }
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What differs between requests.
fn path(number: usize) -> String {
    format!("/static/app/main.4f2a.js?v={:04}", number % 10_000)
}

/// The blocks of many requests of one connection.
fn blocks() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let block = |number| {
        let (path, mut out) = (path(number), Vec::new());
        for (name, value) in REQUEST {
            let value = if name == ":path" { &path } else { value };
            encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out
    };
    (0..REQUESTS).map(block).collect()
}

struct Count(usize);

impl FieldSink for Count {
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool {
        self.0 += name.of(arena).len() + value.of(arena).len();
        true
    }
}

fn decode_ours(blocks: &[Vec<u8>]) {
    let (mut decoder, mut arena, mut count) = (Decoder::new(), Vec::new(), Count(0));
    for block in blocks {
        arena.clear();
        decoder.decode(block, 1 << 16, &mut arena, &mut count).expect("a block");
    }
    black_box(count.0);
}

fn decode_fluke(blocks: &[Vec<u8>]) {
    let (mut decoder, mut count) = (fluke_hpack::Decoder::new(), 0);
    for block in blocks {
        decoder.decode_with_cb(block, |name, value| count += name.len() + value.len()).expect("a block");
    }
    black_box(count);
}

fn decode_patched(blocks: &[Vec<u8>]) {
    let (mut decoder, mut count) = (hpack_patched::Decoder::new(), 0);
    for block in blocks {
        decoder.decode_with_cb(block, |name, value| count += name.len() + value.len()).expect("a block");
    }
    black_box(count);
}

fn decode_httlib(blocks: &[Vec<u8>]) {
    let (mut decoder, mut count) = (httlib_hpack::Decoder::default(), 0);
    for block in blocks {
        let (mut block, mut fields) = (block.clone(), Vec::new());
        decoder.decode(&mut block, &mut fields).expect("a block");
        count += fields.iter().map(|(name, value, _)| name.len() + value.len()).sum::<usize>();
    }
    black_box(count);
}

fn encode_ours() {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    for _ in 0..REQUESTS {
        out.clear();
        for (name, value) in RESPONSE {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        black_box(out.len());
    }
}

fn encode_fluke() {
    let (mut encoder, mut out) = (fluke_hpack::Encoder::new(), Vec::new());
    for _ in 0..REQUESTS {
        out.clear();
        let fields = RESPONSE.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        encoder.encode_into(fields, &mut out).expect("it has room");
        black_box(out.len());
    }
}

fn encode_httlib() {
    let (mut encoder, mut out) = (httlib_hpack::Encoder::default(), Vec::new());
    for _ in 0..REQUESTS {
        out.clear();
        for (name, value) in RESPONSE {
            // By index where there is one, else added: 0x2 is its flag for an incremental index, 0x4 and 0x8 for Huffman codes.
            let field = (name.as_bytes().to_vec(), value.as_bytes().to_vec(), 0x2 | 0x10);
            encoder.encode(field, &mut out).expect("it has room");
        }
        black_box(out.len());
    }
}

/// What a client sends for all requests, with windows that never end.
fn input() -> Vec<u8> {
    let mut client = Connection::new(Role::Client, Config::default());
    let mut out = Vec::new();
    client.open(&mut out);
    write_window_update(0, (1 << 31) - 1 - Config::default().connection_window, &mut out);
    for number in 0..REQUESTS {
        let path = path(number);
        let pseudo = RequestPseudo {
            method: b"GET",
            scheme: b"https",
            authority: b"www.example.com",
            path: path.as_bytes(),
            protocol: None,
        };
        let fields = REQUEST[4..].iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let stream = client.send_request(pseudo, fields, true, &mut out).expect("a stream");
        client.release(stream, &mut Vec::new());
    }
    out
}

fn piece_len(input: &[u8]) -> usize {
    input.len() / REQUESTS * TOGETHER
}

fn serve_ours(input: &[u8]) {
    let settings = Settings { enable_push: false, ..Settings::default() };
    let mut server = Connection::new(Role::Server, Config { settings, ..Config::default() });
    let (mut out, mut count, mut end, mut at) = (Vec::new(), 0, 0, 0);
    server.open(&mut out);
    while end < input.len() {
        end = (end + piece_len(input)).min(input.len());
        loop {
            let received = server.receive(&input[at..end], &mut out).expect("requests");
            at += received.consumed;
            match received.event {
                Some(Event::Head { stream, .. }) => {
                    count += server.head().pairs().map(|(name, value)| name.len() + value.len()).sum::<usize>();
                    let fields = RESPONSE.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                    server.send_response(stream, 200, fields, false, &mut out);
                    server.send_data(stream, &BODY, true, &mut out);
                    server.release(stream, &mut out);
                }
                Some(_) => {}
                None => break,
            }
        }
        black_box(out.len());
        out.clear();
    }
    black_box(count);
}

/// A connection whose peer has sent all there is, and takes everything.
struct Memory<'i> {
    input: &'i [u8],
    piece: usize,
    is_asked: bool,
}

impl AsyncRead for Memory<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        // Between two pieces there is nothing, as on a socket.
        self.is_asked = !self.is_asked;
        if !self.is_asked {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (piece, rest) = self.input.split_at(self.piece.min(buf.remaining()).min(self.input.len()));
        buf.put_slice(piece);
        self.input = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(black_box(bytes).len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn serve_h2(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let memory = Memory { input, piece: piece_len(input), is_asked: false };
        let mut server = h2::server::handshake(memory).await.expect("a preface");
        let (mut count, body) = (0, bytes::Bytes::from_static(&BODY));
        let values =
            RESPONSE.map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        while let Some(Ok((request, mut respond))) = server.accept().await {
            count += request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
            let mut response = http::Response::new(());
            for (name, value) in &values {
                response.headers_mut().insert(name, value.clone());
            }
            let mut stream = respond.send_response(response, false).expect("an open stream");
            stream.send_data(body.clone(), true).expect("an open stream");
        }
        black_box(count);
    });
}
