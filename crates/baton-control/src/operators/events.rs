//! `show events`: the places where log lines go that can be looked at, and the lines of a ring.

use std::fmt::Write as _;

use baton_kernel::output::losses;
use baton_kernel::output::ring;
use baton_model::{AccessLevel, Ring};

use super::answer::CommandResponse;
use super::session::{Call, Following, Session};

/// `show events [<ring>] [-w] [-n]`.
pub(crate) fn show(session: &mut Session, call: &Call) -> CommandResponse {
    let [name, options @ ..] = call.args() else { return CommandResponse::Data(list()) };
    if session.level < AccessLevel::Operator {
        return CommandResponse::error("Permission denied");
    }
    let ring = ring::all().into_iter().find(|ring| ring.name() == name);
    let is_stream = STREAMS.iter().any(|(stream, _)| stream == name);
    if ring.is_none() && !is_stream && name != Ring::BUILT_IN {
        return CommandResponse::error("No such event sink");
    }
    let (mut waits, mut is_new) = (false, false);
    for option in options {
        match option.as_str() {
            "-w" => waits = true,
            "-n" => is_new = true,
            "-wn" | "-nw" => (waits, is_new) = (true, true),
            _ => return CommandResponse::error("unknown option"),
        }
    }
    if is_stream {
        return CommandResponse::info("Nothing to report for this sink");
    }
    // Nobody writes to the built-in one yet, but somebody may.
    let ring = ring.unwrap_or_else(|| ring::of(name));
    session.following = Some(Following { reader: ring.read(is_new), waits });
    CommandResponse::Done
}

/// The streams, and what they are.
const STREAMS: [(&str, &str); 2] = [("stdout", "standard output (fd#1)"), ("stderr", "standard output (fd#2)")];

fn list() -> String {
    let mut out = String::from("Supported events sinks are listed below. Add -w(wait), -n(new). Any key to stop\n");
    let mut line = |name: &str, kind: &str, dropped: u64, description: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "    {name:<10} : type={kind}, {dropped} dropped, {description}");
    };
    for (name, description) in STREAMS {
        line(name, "fd", losses::of(name).lost(), description);
    }
    let mut rings = ring::all();
    rings.sort_by(|one, other| {
        (one.name() != Ring::BUILT_IN, one.name()).cmp(&(other.name() != Ring::BUILT_IN, other.name()))
    });
    if rings.first().is_none_or(|ring| ring.name() != Ring::BUILT_IN) {
        line(Ring::BUILT_IN, "buffer", 0, BUILT_IN);
    }
    for ring in rings {
        let (description, lost) = ring.about();
        let description = if ring.name() == Ring::BUILT_IN { BUILT_IN } else { &description };
        line(ring.name(), "buffer", lost, description);
    }
    out
}

/// What the built-in ring is.
const BUILT_IN: &str = "in-memory ring buffer";
