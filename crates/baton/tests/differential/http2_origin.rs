//! Origins that speak HTTP/2: like the clients of `http2.rs`, they send any frames, and what comes is shown as lines.
//!
//! ```text
//! --- h2-response [ORIGIN] [head]     what the origin answers to its next request, on any connection; the last one is repeated. `head`: as soon as
//!                                     the head of the request is there. Without lines: the default answer
//! head end | :status: 200 | x-a: 1    HEADERS on the request's stream
//! split end 10 | :status: 200         the same in pieces of ten bytes
//! data end TEXT                       DATA
//! rst 8                               RST_STREAM with this code
//! goaway 1 0                          GOAWAY: the last stream, the code
//! frame 0 1 - TEXT                    type, flags, stream (`-`: the request's), payload
//! --- h2-origin [ORIGIN]              what the origin does on its next connection; the last one serves all later connections, too
//! request [head]                      waits for the next request, or for its head
//! on 1                                what follows is about the first request of this connection
//! reply                               the next `h2-response`, or the default answer
//! serve                               request and reply, as long as requests come; it is what origins do without `h2-origin`
//! ```
//!
//! The other steps of `script.rs` work as well. A connection begins with SETTINGS and their acknowledgement, when the program's have come.
//! GOAWAY without an error, by which the program takes leave, is shown with `upstream-ends` only; and whether a host came as `:authority` or
//! as `host` with `raw` only.

use baton_http2::{FrameHeader, FrameType, flag, write_settings, write_settings_ack};

use crate::http2;
use crate::origin::Origin;
use crate::script::{self, Step};
use crate::world::Link;

/// Stands for the stream of the request that is answered.
const CURRENT: u32 = 0x7fff_fffe;

/// What an origin answers to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// It waits for the whole request.
    pub waits: bool,
    /// Empty: the default answer.
    pub steps: Vec<Step>,
}

/// The steps of a section.
pub fn steps(body: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for line in body.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        step(line.trim(), &mut steps).map_err(|fault| format!("`{line}`: {fault}"))?;
    }
    let mut joined: Vec<Step> = Vec::new();
    for step in steps {
        match (joined.last_mut(), step) {
            (Some(Step::SendFrames(before)), Step::SendFrames(bytes)) => before.extend(bytes),
            (_, step) => joined.push(step),
        }
    }
    Ok(joined)
}

fn step(line: &str, steps: &mut Vec<Step>) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok()).ok_or("a number is missing");
    let mut bytes = Vec::new();
    match words.first().copied().unwrap_or_default() {
        "request" => steps.push(Step::TakeRequest { whole: words.get(1) != Some(&"head") }),
        "on" => steps.push(Step::OnRequest(number(1)? as usize)),
        "serve" => steps.push(Step::Serve),
        "rst" => {
            http2::frame(FrameType::RstStream as u8, 0, CURRENT, &number(1)?.to_be_bytes(), &mut bytes);
        }
        "goaway" => {
            let payload = [number(1)?.to_be_bytes(), number(2)?.to_be_bytes()].concat();
            http2::frame(FrameType::GoAway as u8, 0, 0, &payload, &mut bytes);
        }
        verb @ ("head" | "split" | "data") => {
            let rest = line.strip_prefix(verb).unwrap_or_default();
            bytes = sent(&format!("{verb} {CURRENT}{rest}"))?;
        }
        "frame" => bytes = sent(&line.replacen(" - ", &format!(" {CURRENT} "), 1))?,
        _ => steps.extend(script::steps(line)?),
    }
    if !bytes.is_empty() {
        steps.push(Step::SendFrames(bytes));
    }
    Ok(())
}

/// The bytes of a line that clients have as well.
fn sent(line: &str) -> Result<Vec<u8>, String> {
    match &http2::steps(line)?[..] {
        [Step::Send(bytes)] => Ok(bytes.clone()),
        _ => Err("a frame is expected".to_string()),
    }
}

/// Waits for the program's SETTINGS, and sends ours.
pub fn greet(link: &Link) {
    link.world().change(|state| state.links[link.index].is_http2 = true);
    let is_settings = |(header, _): (FrameHeader, &[u8])| header.kind == FrameType::Settings as u8;
    let came = link.wait("for SETTINGS", |past| {
        (past.end.is_some() || http2::frames(http2::after_preface(&past.received)).any(is_settings)).then_some(())
    });
    if came.is_some() {
        let mut bytes = Vec::new();
        write_settings(std::iter::empty(), &mut bytes);
        write_settings_ack(&mut bytes);
        link.send(&bytes);
    }
}

/// Waits for the next request; false at the end of the connection.
pub fn take(link: &Link, whole: bool) -> bool {
    let taken = link.world().wait(|state| {
        let past = &mut state.links[link.index];
        let received = http2::after_preface(&past.received);
        let last = past.requests.last().copied().unwrap_or(0);
        let is_next =
            |(header, _): &(FrameHeader, &[u8])| header.kind == FrameType::Headers as u8 && header.stream > last;
        let next = http2::frames(received).find(is_next).map(|(header, _)| header.stream);
        let next = next.filter(|stream| !whole || http2::has_ended(received, *stream));
        match next {
            Some(stream) => {
                past.requests.push(stream);
                past.current = stream;
                Some(true)
            }
            None => past.end.map(|_| false),
        }
    });
    taken == Some(true)
}

/// Sends frames, those without a stream of their own on the stream of the request.
pub fn send(link: &Link, bytes: &[u8]) {
    let stream = link.world().lock().links[link.index].current;
    let mut out = Vec::new();
    for (mut header, payload) in http2::frames(bytes) {
        if header.stream == CURRENT {
            header.stream = stream;
        }
        http2::frame(header.kind, header.flags, header.stream, payload, &mut out);
    }
    link.send(&out);
}

/// The answer that says what was asked for, and by whom it was answered.
pub fn default_answer(link: &Link, origin: &str) {
    let (received, stream) = {
        let state = link.world().lock();
        let past = &state.links[link.index];
        (past.received.clone(), past.current)
    };
    let (method, path) = http2::asked_for(http2::after_preface(&received), stream);
    let body = format!("{origin} {method} {path}\n");
    let length = body.len().to_string();
    let mut block = Vec::new();
    for (name, value) in [(":status", "200"), ("x-origin", origin), ("content-length", &length)] {
        http2::field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let (mut bytes, is_head) = (Vec::new(), method == "HEAD");
    let end = if is_head { flag::END_STREAM } else { 0 };
    http2::frame(FrameType::Headers as u8, end | flag::END_HEADERS, stream, &block, &mut bytes);
    if !is_head {
        http2::frame(FrameType::Data as u8, flag::END_STREAM, stream, body.as_bytes(), &mut bytes);
    }
    link.send(&bytes);
}

impl Origin {
    /// Serves requests as they come, until the connection ends.
    pub fn serve_http2(&self, link: &Link) {
        loop {
            let next = self.world.lock().requests.get(&self.name).copied().unwrap_or(0);
            if !self.take_http2(link, self.answer(next).is_none_or(|answer| answer.waits)) {
                return;
            }
            self.reply_http2(link);
        }
    }

    /// Waits for a request and counts it; false without one.
    pub fn take_http2(&self, link: &Link, whole: bool) -> bool {
        let is_there = take(link, whole);
        if is_there {
            self.world.change(|state| *state.requests.entry(self.name.clone()).or_default() += 1);
        }
        is_there
    }

    /// Answers the latest request.
    pub fn reply_http2(&self, link: &Link) {
        let number = self.world.lock().requests.get(&self.name).copied().unwrap_or(1).max(1);
        match self.answer(number - 1) {
            Some(answer) if !answer.steps.is_empty() => answer.steps.iter().for_each(|step| self.step(link, step)),
            _ => default_answer(link, &self.name),
        }
    }

    fn answer(&self, number: usize) -> Option<&Answer> {
        self.answers.get(number).or(self.answers.last())
    }
}
