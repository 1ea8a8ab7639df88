//! `show errors [<proxy>] [request|response]`: the last malformed request of each frontend and response of each backend, in HAProxy's form,
//! without what is about its own inside.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use baton_model::Proxy;
use baton_proxy::{BackendPlan, Capture};

use super::stat::leading_number;
use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// Bytes on one line.
const LINE: usize = 64;

/// `show errors`.
pub(super) fn show(control: &Control, call: &Call) -> Begun {
    let words = call.args();
    let kind = words.iter().map(String::as_str).find(|word| matches!(*word, "request" | "response"));
    let wanted =
        words.first().map(String::as_str).filter(|word| !matches!(*word, "request" | "response")).unwrap_or("");
    let proxies = &control.line.model().proxies;
    let named = proxies.iter().find(|proxy| *proxy.name == *wanted).map(|proxy| i64::from(proxy.id));
    let id = match named.or_else(|| leading_number(wanted)) {
        Some(id) => id,
        None if wanted.is_empty() => -1,
        None => return Err(CommandResponse::error("No such proxy.")),
    };
    let mut captures = VecDeque::new();
    // Of a response, also by the frontend that its client came in by.
    let is_wanted = |of: u32| id < 0 || i64::from(of) == id;
    for proxy in proxies {
        let Some(generation) = control.line.generation() else { break };
        let request = generation.frontend(&proxy.name).and_then(|plan| plan.state.malformed.get());
        if let Some(capture) = request.filter(|_| kind != Some("response") && is_wanted(proxy.id)) {
            captures.push_back((Arc::clone(proxy), None, capture));
        }
        let plan = generation.backends.get(&proxy.name);
        let response = plan.and_then(|plan| Some((plan, plan.figures.malformed.get()?)));
        let is_about = |capture: &Capture| is_wanted(proxy.id) || is_wanted(capture.frontend.1);
        if let Some((plan, capture)) = response.filter(|(_, capture)| kind != Some("request") && is_about(capture)) {
            captures.push_back((Arc::clone(proxy), Some(Arc::clone(plan)), capture));
        }
    }
    let now = jiff::Zoned::now().strftime("%d/%b/%Y:%H:%M:%S%.3f");
    let total = control.line.registry().captures.total();
    let head = Some(format!("Total events captured on [{now}] : {total}\n"));
    Ok(Box::new(CaptureListing { head, captures }))
}

/// A proxy, the backend's plan if it is a response, and what was captured.
type Captured = (Arc<Proxy>, Option<Arc<BackendPlan>>, Arc<Capture>);

struct CaptureListing {
    head: Option<String>,
    captures: VecDeque<Captured>,
}

impl Pieces for CaptureListing {
    fn next(&mut self, _: &Control) -> Option<String> {
        self.head.take().or_else(|| self.captures.pop_front().map(|captured| text(&captured)))
    }
}

fn text((proxy, plan, capture): &Captured) -> String {
    let at = jiff::Timestamp::try_from(capture.at).unwrap_or_default().to_zoned(jiff::tz::TimeZone::system());
    let at = at.strftime("%d/%b/%Y:%H:%M:%S%.3f");
    let source = capture.source.map_or_else(|| "unix".into(), |source| format!("{}:{}", source.ip(), source.port()));
    // A line with a blank instead of an empty one, which would end the response.
    let mut out = String::from(" \n");
    let Capture { number, frontend: (frontend, frontend_id), .. } = &**capture;
    // Writing to a string cannot fail.
    let _ = match plan {
        None => writeln!(
            out,
            "[{at}] frontend {} (#{}): invalid request\n  backend <NONE> (#-1), server <NONE> (#-1), event #{number}, src {source}",
            proxy.name, proxy.id,
        ),
        Some(plan) => {
            let name = capture.server.as_deref().unwrap_or("<NONE>");
            let id = plan.servers.get(name).map_or(-1, |server| i64::from(server.server.id));
            writeln!(
                out,
                "[{at}] backend {} (#{}): invalid response\n  frontend {frontend} (#{frontend_id}), server {name} (#{id}), event \
                 #{number}, src {source}",
                proxy.name, proxy.id,
            )
        }
    };
    let _ = writeln!(out, "  len {}, error at position {}\n  ", capture.len, capture.position);
    dump(&mut out, &capture.bytes);
    out
}

/// The bytes, a line of the message on a line, and no line too long; what is cut goes on behind a `+`.
fn dump(out: &mut String, bytes: &[u8]) {
    let mut at = 0;
    let mut is_cut = false;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let count = end.min(LINE);
        let _ = write!(out, "  {at:05}{} ", if is_cut { '+' } else { ' ' });
        rest[..count].iter().for_each(|byte| escape(out, *byte));
        out.push('\n');
        is_cut = count < end;
        at += count;
    }
}

fn escape(out: &mut String, byte: u8) {
    match byte {
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x1b => out.push_str("\\e"),
        b'\\' => out.push_str("\\\\"),
        byte if byte.is_ascii_graphic() || byte == b' ' => out.push(char::from(byte)),
        byte => drop(write!(out, "\\x{byte:02X}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_haproxy_shows_them() {
        let mut out = String::new();
        dump(&mut out, b"GET\x01\xff\t\"\\ / HTTP/1.1\r\n\r\n");
        assert_eq!(out, "  00000  GET\\x01\\xFF\\t\"\\\\ / HTTP/1.1\\r\\n\n  00021  \\r\\n\n");
        out.clear();
        dump(&mut out, &[b'x'; 70]);
        assert_eq!(out, format!("  00000  {}\n  00064+ xxxxxx\n", "x".repeat(64)));
    }
}
