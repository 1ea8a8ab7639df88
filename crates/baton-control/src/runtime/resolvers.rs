//! `show resolvers`: name servers, and what is counted of them.

use std::fmt::Write as _;

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// `show resolvers [<section>]`.
pub(super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let wanted = call.arg(0);
    let mut out = String::new();
    let mut is_any = wanted.is_empty();
    for (section, counters) in control.line.names().sections() {
        if !wanted.is_empty() && *section.name != *wanted {
            continue;
        }
        is_any = true;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Resolvers section {}", section.name);
        for (server, counters) in section.servers.iter().zip(counters) {
            let _ = writeln!(out, " nameserver {}:", server.name);
            for (name, count) in counters.named() {
                let _ = writeln!(out, "  {:<13}{count}", format!("{name}:"));
            }
        }
    }
    match is_any {
        true if out.is_empty() => CommandResponse::Done,
        true => CommandResponse::Data(out),
        false => CommandResponse::error("Can't find that resolvers section"),
    }
}
