//! Clients that speak HTTP/2, bytes as they want them: what a section `h2` says becomes frames whose fields are never compressed and not checked,
//! so that anything can be sent; and what comes back becomes lines.
//!
//! ```text
//! --- h2 [CONNECTION] [LISTENER] [tls ..]     connects, and greets; a second such section goes on with the connection
//! get 1 /path | name: value                   a request without a body on stream 1, and waits for the end of the response
//! head 1 open | :method: POST | name: value   these fields as they stand, in one HEADERS; `end`: nothing follows
//! split 1 end 10 | :method: GET               the same in pieces of ten bytes, the others in CONTINUATION frames
//! data 1 end TEXT                             DATA
//! frame 8 0 1 \0\0\0\x01                      type, flags, stream, payload
//! began 1 / done 1                            waits for the head of a response, for its end (or that of the stream or connection)
//! --- h2-each [LISTENER]                      a line is a client of its own with one request:
//! NAME [bare] [method=POST] [body=TEXT] | name: value     `bare`: no other fields than these
//! ```
//!
//! Frames that follow each other are sent at once. The other steps of `script.rs` work as well. SETTINGS, PING and WINDOW_UPDATE frames of the program, the pieces in which bodies come and the
//! order between streams are not compared.

use std::collections::{BTreeMap, BTreeSet};

use baton_http::Span;
use baton_http2::hpack::{Decoder, FieldSink};
use baton_http2::{
    ErrorCode, FRAME_HEADER_LEN, FrameHeader, FrameType, PREFACE, flag, write_ping, write_settings, write_settings_ack,
};

use crate::http;
use crate::script::{self, Step};

/// The payload of our PING.
const PING: [u8; 8] = *b"in order";

/// What a client begins with: it takes the program's SETTINGS as read.
pub fn greeting() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    write_settings(std::iter::empty(), &mut bytes);
    write_settings_ack(&mut bytes);
    bytes
}

/// The steps of a section `h2`.
pub fn steps(body: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for line in body.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        step(line, &mut steps).map_err(|fault| format!("`{line}`: {fault}"))?;
    }
    let mut joined: Vec<Step> = Vec::new();
    for step in steps {
        match (joined.last_mut(), step) {
            (Some(Step::Send(before)), Step::Send(bytes)) => before.extend(bytes),
            (_, step) => joined.push(step),
        }
    }
    Ok(joined)
}

/// The clients of a section `h2-each`: a name and its steps.
pub fn each(body: &str) -> Result<Vec<(String, Vec<Step>)>, String> {
    let lines = body.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| one(line).map_err(|fault| format!("`{line}`: {fault}"))).collect()
}

fn one(line: &str) -> Result<(String, Vec<Step>), String> {
    let (words, fields) = halves(line);
    let mut words = words.split_whitespace();
    let name = words.next().ok_or("a name is missing")?.to_string();
    let (mut block, mut sent) = (Vec::new(), None);
    let (mut method, mut is_bare) = ("GET", false);
    for word in words {
        match word.split_once('=') {
            Some(("method", value)) => method = value,
            Some(("body", text)) => sent = Some(script::bytes(text)?),
            _ if word == "bare" => is_bare = true,
            _ => return Err(format!("what is `{word}`?")),
        }
    }
    if !is_bare {
        request(method, "/", &mut block);
    }
    encode(fields, &mut block)?;
    let mut bytes = Vec::new();
    let end = if sent.is_none() { flag::END_STREAM } else { 0 };
    frame(FrameType::Headers as u8, end | flag::END_HEADERS, 1, &block, &mut bytes);
    if let Some(sent) = sent {
        frame(FrameType::Data as u8, flag::END_STREAM, 1, &sent, &mut bytes);
    }
    write_ping(PING, false, &mut bytes);
    Ok((name, vec![Step::Send(bytes), Step::StreamDone(1), Step::Ponged]))
}

fn step(line: &str, steps: &mut Vec<Step>) -> Result<(), String> {
    let (start, fields) = halves(line);
    let words: Vec<&str> = start.split_whitespace().collect();
    let stream = || words.get(1).and_then(|word| word.parse::<u32>().ok()).ok_or("a stream is missing");
    let end = || match words.get(2) {
        Some(&"end") => Ok(flag::END_STREAM),
        Some(&"open") => Ok(0),
        _ => Err("`end` or `open`?"),
    };
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok()).ok_or("a number is missing");
    let rest = |words: usize| script::bytes(line.splitn(words + 1, ' ').nth(words).unwrap_or_default());
    let (mut bytes, mut block) = (Vec::new(), Vec::new());
    match words.first().copied().unwrap_or_default() {
        "get" => {
            request("GET", words.get(2).ok_or("a path is missing")?, &mut block);
            encode(fields, &mut block)?;
            frame(FrameType::Headers as u8, flag::END_STREAM | flag::END_HEADERS, stream()?, &block, &mut bytes);
            steps.extend([Step::Send(bytes), Step::StreamDone(stream()?)]);
            return Ok(());
        }
        "head" => {
            encode(fields, &mut block)?;
            frame(FrameType::Headers as u8, end()? | flag::END_HEADERS, stream()?, &block, &mut bytes);
        }
        "split" => {
            encode(fields, &mut block)?;
            let pieces: Vec<&[u8]> = block.chunks(number(3)?.max(1) as usize).collect();
            for (at, piece) in pieces.iter().enumerate() {
                let (kind, flags) = if at == 0 { (FrameType::Headers, end()?) } else { (FrameType::Continuation, 0) };
                let is_last = if at + 1 == pieces.len() { flag::END_HEADERS } else { 0 };
                frame(kind as u8, flags | is_last, stream()?, piece, &mut bytes);
            }
        }
        "data" => frame(FrameType::Data as u8, end()?, stream()?, &rest(3)?, &mut bytes),
        "frame" => frame(number(1)? as u8, number(2)? as u8, number(3)?, &rest(4)?, &mut bytes),
        "began" => steps.push(Step::StreamBegan(stream()?)),
        "done" => steps.push(Step::StreamDone(stream()?)),
        _ => steps.extend(script::steps(line)?),
    }
    if !bytes.is_empty() {
        steps.push(Step::Send(bytes));
    }
    Ok(())
}

/// A line up to its fields, and these.
fn halves(line: &str) -> (&str, &str) {
    line.split_once(" | ").unwrap_or((line, ""))
}

fn request(method: &str, path: &str, block: &mut Vec<u8>) {
    for (name, value) in [(":method", method), (":scheme", "http"), (":path", path), (":authority", "example.com")] {
        field(name.as_bytes(), value.as_bytes(), block);
    }
}

fn encode(fields: &str, block: &mut Vec<u8>) -> Result<(), String> {
    for text in fields.split(" | ").filter(|text| !text.is_empty()) {
        let (name, value) = text
            .split_once(": ")
            .or_else(|| text.strip_suffix(':').map(|name| (name, "")))
            .ok_or("a value is missing")?;
        field(&script::bytes(name)?, &script::bytes(value)?, block);
    }
    Ok(())
}

/// A literal field without indexing (RFC 7541 6.2.2).
pub fn field(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    block.push(0);
    for text in [name, value] {
        let mut len = text.len();
        if len < 127 {
            block.push(len as u8);
        } else {
            block.push(127);
            len -= 127;
            while len >= 128 {
                block.push(len as u8 | 128);
                len >>= 7;
            }
            block.push(len as u8);
        }
        block.extend_from_slice(text);
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHeader { len: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// What came behind a client's preface.
pub fn after_preface(received: &[u8]) -> &[u8] {
    let start = http::proxy_header(received).unwrap_or(0);
    received[start..].strip_prefix(PREFACE.as_slice()).unwrap_or_default()
}

/// The method and path of the request on a stream.
pub fn asked_for(received: &[u8], stream: u32) -> (String, String) {
    let (mut decoder, mut block, mut found) = (Decoder::new(), Vec::new(), Fields::default());
    for (header, payload) in frames(received) {
        if matches!(FrameType::of(header.kind), Some(FrameType::Headers | FrameType::Continuation)) {
            block.extend_from_slice(payload);
            if header.has(flag::END_HEADERS) {
                let mut fields = Fields::default();
                let _ = decoder.decode(&std::mem::take(&mut block), 1 << 20, &mut Vec::new(), &mut fields);
                if header.stream == stream && found.pseudo.is_empty() {
                    found = fields;
                }
            }
        }
    }
    let of = |name: &str| {
        let start = format!(" | {name}: ");
        let value = found.pseudo.iter().find_map(|field| field.strip_prefix(start.as_bytes()));
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    (of(":method"), of(":path"))
}

/// The whole frames that came.
pub fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (FrameHeader, &[u8])> {
    std::iter::from_fn(move || {
        let header = FrameHeader::parse(bytes)?;
        let payload = bytes.get(FRAME_HEADER_LEN..FRAME_HEADER_LEN + header.len as usize)?;
        bytes = &bytes[FRAME_HEADER_LEN + payload.len()..];
        Some((header, payload))
    })
}

/// Whether the head of a response came, or the stream ended.
pub fn has_begun(received: &[u8], stream: u32) -> bool {
    let is_head = |header: &FrameHeader| header.stream == stream && header.kind == FrameType::Headers as u8;
    frames(received).any(|(header, _)| is_head(&header)) || has_ended(received, stream)
}

/// Whether the program ended the stream.
pub fn has_ended(received: &[u8], stream: u32) -> bool {
    let ends = [FrameType::Data as u8, FrameType::Headers as u8];
    frames(received).filter(|(header, _)| header.stream == stream).any(|(header, _)| {
        header.kind == FrameType::RstStream as u8 || ends.contains(&header.kind) && header.has(flag::END_STREAM)
    })
}

/// Whether the program answered our PING.
pub fn has_ponged(received: &[u8]) -> bool {
    frames(received)
        .any(|(header, payload)| header.kind == FrameType::Ping as u8 && header.has(flag::ACK) && payload == PING)
}

/// What the program sent on one stream.
#[derive(Default)]
struct Shown {
    lines: Vec<Vec<u8>>,
    /// Of the body, since the last line.
    body: Vec<u8>,
}

impl Shown {
    fn add(&mut self, line: Vec<u8>) {
        if !self.body.is_empty() {
            let body = [b"body ", &std::mem::take(&mut self.body)[..]].concat();
            self.lines.push(body);
        }
        self.lines.push(line);
    }
}

/// The fields of a head.
#[derive(Default)]
struct Fields {
    status: Vec<u8>,
    /// Their order says nothing.
    pseudo: BTreeSet<Vec<u8>>,
    others: Vec<u8>,
}

impl FieldSink for Fields {
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool {
        let (name, value) = (name.of(arena), value.of(arena));
        let field = [b" | ", name, b": ", value].concat();
        match name {
            b":status" => self.status.extend_from_slice(value),
            [b':', ..] => _ = self.pseudo.insert(field),
            _ => self.others.extend(field),
        }
        true
    }
}

impl Fields {
    /// One line; with `host` as `:authority` where a request has no such, if these are to be the same.
    fn line(mut self, same_hosts: bool) -> Vec<u8> {
        const HOST: &[u8] = b" | host: ";
        let has_authority = self.pseudo.iter().any(|field| field.starts_with(b" | :authority: "));
        if let Some(start) = http::find(&self.others, HOST).filter(|_| same_hosts && !has_authority) {
            let end = http::find(&self.others[start + 1..], b" | ").map_or(self.others.len(), |at| start + 1 + at);
            let host: Vec<u8> = self.others.drain(start..end).skip(HOST.len()).collect();
            self.pseudo.insert([b" | :authority: ", &host[..]].concat());
        }
        let pseudo: Vec<u8> = self.pseudo.into_iter().flatten().collect();
        [self.status, pseudo, self.others].concat()
    }
}

/// What came, as lines: by stream, then what is about the connection.
pub fn lines(received: &[u8], same_hosts: bool) -> Vec<Vec<u8>> {
    let mut decoder = Decoder::new();
    let (mut streams, mut block) = (BTreeMap::<u32, Shown>::new(), Vec::new());
    let mut about = Vec::new();
    for (header, payload) in frames(received) {
        let code = |at: usize| {
            let code = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
            ErrorCode(code).name()
        };
        match FrameType::of(header.kind) {
            Some(FrameType::Settings | FrameType::Ping | FrameType::WindowUpdate) => {}
            Some(FrameType::GoAway) => about.push(format!("GOAWAY {}", code(4)).into_bytes()),
            Some(FrameType::RstStream) => {
                streams.entry(header.stream).or_default().add(format!("RST_STREAM {}", code(0)).into_bytes());
            }
            Some(FrameType::Data) => {
                let shown = streams.entry(header.stream).or_default();
                shown.body.extend_from_slice(payload);
                if header.has(flag::END_STREAM) {
                    shown.add(b"end".to_vec());
                }
            }
            Some(FrameType::Headers | FrameType::Continuation) => {
                block.extend_from_slice(payload);
                let shown = streams.entry(header.stream).or_default();
                if header.has(flag::END_HEADERS) {
                    let mut fields = Fields::default();
                    let decoded = decoder.decode(&std::mem::take(&mut block), 1 << 20, &mut Vec::new(), &mut fields);
                    shown.add(if decoded.is_ok() {
                        fields.line(same_hosts)
                    } else {
                        b"a block that cannot be decoded".to_vec()
                    });
                }
                if header.has(flag::END_STREAM) {
                    shown.add(b"end".to_vec());
                }
            }
            _ => about.push(format!("{header:?}").into_bytes()),
        }
    }
    let mut lines = Vec::new();
    for (stream, mut shown) in streams {
        if !shown.body.is_empty() {
            shown.add(b"(no end)".to_vec());
        }
        lines.extend(shown.lines.into_iter().map(|line| [format!("{stream}: ").as_bytes(), &line].concat()));
    }
    lines.extend(about);
    lines
}
