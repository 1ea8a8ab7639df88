//! What one run leaves: sections of text lines, ready to compare.

use std::path::Path;

use crate::case::Case;
use crate::http;
use crate::http2;
use crate::normal::{self, Normal};
use crate::origin;
use crate::places::Places;
use crate::world::{End, Past, State};

/// Longest line printed and compared as it is; of a longer one its start, length and hash.
const LINE_MAX: usize = 400;

/// The comparable result of a run.
#[derive(Debug)]
pub struct Record {
    /// Title and lines.
    pub sections: Vec<(String, Vec<String>)>,
    faults: Vec<String>,
}

impl Record {
    pub fn new(case: &Case, state: &State, places: &Places, folder: &Path, end: Option<String>) -> Record {
        let mut ports = places.ports();
        for (name, indexes) in &state.clients {
            ports.extend(indexes.iter().map(|index| (state.links[*index].port, format!("{name}.port"))));
        }
        let normal = Normal::new(ports, folder);
        let mut record = Record { sections: Vec::new(), faults: Vec::new() };
        record.clients(case, state, &normal);
        record.origins(case, state, &normal);
        if !case.has("no-logs") {
            record.logs(case, state, &normal);
        }
        if case.has("notes") {
            record.notes(state, &normal);
        }
        if !state.faults.is_empty() {
            record.faults.extend(state.faults.iter().cloned());
            let lines = state.faults.iter().map(|fault| format!("gave up waiting: {fault}")).collect();
            record.sections.push(("script".to_string(), lines));
        }
        if let Some(end) = end {
            record.faults.push(end.clone());
            record.sections.push(("program".to_string(), end.lines().map(str::to_string).collect()));
        }
        record
    }

    fn clients(&mut self, case: &Case, state: &State, normal: &Normal) {
        for (name, indexes) in &state.clients {
            for (number, past) in indexes.iter().map(|index| &state.links[*index]).enumerate() {
                let again = if number == 0 { String::new() } else { format!(", connection {}", number + 1) };
                if past.is_http2 {
                    let shown = http2::lines(&past.received, false);
                    let mut lines: Vec<String> = shown.iter().map(|shown| line(&normal.bytes(shown))).collect();
                    if !case.has("loose-ends") {
                        lines.push(format!("({})", ending(past)));
                    }
                    self.add(format!("client {name}{again}"), lines, past);
                    continue;
                }
                let bytes = match case.has("raw") {
                    true => past.received.clone(),
                    false => http::join_responses(&past.received, &past.methods),
                };
                let bytes = if case.has("tables") { normal::entries(&bytes) } else { bytes };
                let bytes = if case.has("h2-counters") { normal::http2_counters(&bytes) } else { bytes };
                let mut lines = match case.has("own-bytes") {
                    true => lines(&bytes),
                    false => lines(&normal.bytes(&bytes)),
                };
                lines.splice(0..0, past.tls.iter().map(|line| format!("(TLS: {line})")));
                if !case.has("loose-ends") {
                    lines.push(format!("({})", ending(past)));
                }
                self.add(format!("client {name}{again}"), lines, past);
            }
        }
    }

    fn origins(&mut self, case: &Case, state: &State, normal: &Normal) {
        for (name, indexes) in &state.origins {
            let mut connections = Vec::new();
            for past in indexes.iter().map(|index| &state.links[*index]) {
                let checked = past.received.is_empty() || origin::is_any_check(&past.received);
                if case.has("checked") && checked {
                    continue;
                }
                let mut lines = match past.is_http2 {
                    true => http2_requests(case, past, normal),
                    false if case.has("raw") => proxy_line(&past.received, normal),
                    false => proxy_line(&http::join_requests(&past.received), normal),
                };
                if case.has("upstream-ends") {
                    lines.push(format!("({})", ending(past)));
                }
                connections.push((lines, past));
            }
            if case.has("unordered") {
                connections.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            for (number, (lines, past)) in connections.into_iter().enumerate() {
                self.add(format!("origin {name}, connection {}", number + 1), lines, past);
            }
        }
    }

    /// Log lines, those of one client together: between clients the order says nothing.
    fn logs(&mut self, case: &Case, state: &State, normal: &Normal) {
        let mut lines: Vec<String> = state.logs.iter().map(|line| normal.log(line, !case.has("no-counters"))).collect();
        lines.sort_by_key(|line| line.split(' ').nth(1).unwrap_or_default().to_string());
        self.sections.push(("log".to_string(), lines));
    }

    /// What was logged about servers and backends, without the durations.
    fn notes(&mut self, state: &State, normal: &Normal) {
        let about = |note: &&String| {
            ["Server ", "has no server available", "Health check"].iter().any(|word| note.contains(word))
        };
        let lines = state.notes.iter().filter(about).map(|note| normal.log(note.as_bytes(), true));
        let without_durations = lines.map(|line| match line.split_once("check duration: ") {
            Some((start, rest)) => {
                format!("{start}check duration: N{}", rest.trim_start_matches(|digit: char| digit.is_ascii_digit()))
            }
            None => line,
        });
        // The session that found the fault may be counted or gone already.
        let without_sessions = without_durations.map(|line| match line.split_once(" sessions active") {
            Some((start, rest)) => {
                format!(
                    "{} N sessions active{rest}",
                    start.trim_end_matches(|digit: char| digit.is_ascii_digit()).trim_end()
                )
            }
            None => line,
        });
        self.sections.push(("notes".to_string(), without_sessions.collect()));
    }

    fn add(&mut self, title: String, mut lines: Vec<String>, past: &Past) {
        for fault in &past.faults {
            self.faults.push(format!("{title}: {fault}"));
            lines.push(format!("({fault})"));
        }
        self.sections.push((title, lines));
    }

    /// What is wrong with the case itself, judged by the reference's record.
    pub fn fault(&self, case: &Case) -> Option<String> {
        if let Some(fault) = self.faults.first() {
            return Some(fault.clone());
        }
        let text = self.text();
        case.shows
            .iter()
            .find(|shown| !text.contains(shown.as_str()))
            .map(|shown| format!("`{shown}` is not to be found"))
    }

    /// The whole record as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (title, lines) in &self.sections {
            text.push_str(&format!("[{title}]\n"));
            for line in lines {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }
}

fn ending(past: &Past) -> &'static str {
    match past.end {
        Some(End::Refused) => "refused",
        _ if past.closed_by_us => "open to the end",
        Some(End::Fin) => "ended by FIN",
        Some(End::Rst) => "ended by RST",
        None => "open",
    }
}

/// What an origin received by HTTP/2.
fn http2_requests(case: &Case, past: &Past, normal: &Normal) -> Vec<String> {
    let start = http::proxy_header(&past.received).unwrap_or(0);
    let mut all = proxy_line(&past.received[..start], normal);
    let shown = http2::lines(http2::after_preface(&past.received), !case.has("raw"));
    let is_leave = |shown: &[u8]| shown == b"GOAWAY NO_ERROR" && !case.has("upstream-ends");
    all.extend(shown.iter().filter(|shown| !is_leave(shown)).map(|shown| line(&normal.bytes(shown))));
    all
}

/// The lines of upstream bytes; a binary PROXY header is spelled out first.
fn proxy_line(bytes: &[u8], normal: &Normal) -> Vec<String> {
    let Some(size) = http::proxy_header(bytes).filter(|size| *size > 0 && bytes.starts_with(http::SIGNATURE)) else {
        return lines(&normal.bytes(bytes));
    };
    let (header, rest) = bytes.split_at(size);
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]).to_string();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = match header[13] {
        0x11 | 0x12 if size >= 28 => format!(
            "PROXY v2 {:02x} {:02x} {:?} -> {:?} {} -> {} {}",
            header[12],
            header[13],
            &header[16..20],
            &header[20..24],
            port(24),
            port(26),
            hex(&header[28..])
        ),
        _ => format!("PROXY v2 {:02x} {:02x} {}", header[12], header[13], hex(&header[16..])),
    };
    let mut all = lines(&normal.bytes(text.as_bytes()));
    all.extend(lines(&normal.bytes(rest)));
    all
}

/// Bytes as lines with escapes; each ends after its `\n`.
fn lines(bytes: &[u8]) -> Vec<String> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|bytes| without_dates(line(bytes))).collect()
}

/// The dates that `maxidle` and `maxlife` put behind a bar into a cookie, named.
fn without_dates(line: String) -> String {
    if !line.to_ascii_lowercase().starts_with("set-cookie:") {
        return line;
    }
    let (value, rest) = line.split_once(';').map_or((&*line, ""), |(value, rest)| (value, rest));
    let mut parts = value.split('|');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        text.push_str(if part.len() == 5 { "|DATE" } else { "|" });
    }
    format!("{text}{}{rest}", if rest.is_empty() { "" } else { ";" })
}

fn line(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(LINE_MAX) {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    if bytes.len() > LINE_MAX {
        // FNV-1a: the rest counts too, only it is not printed.
        let hash = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        text.push_str(&format!(" .. {} bytes, hash {hash:016x}", bytes.len()));
    }
    text
}
