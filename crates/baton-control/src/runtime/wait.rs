//! `wait <delay> [srv-removable <backend>/<server>]`, as in HAProxy 3.x: for some time, or until a server can be deleted.

use std::time::{Duration, Instant};

use baton_config::values::{self, Unit};

use super::servers::find;
use crate::control::Control;
use crate::operators::answer::CommandResponse;
use crate::operators::{Call, Given, Rest};

/// How often the condition is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The longest wait: a session that waits takes one of `stats maxconn` places.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

const USAGE: &str = "Usage: wait {-h|<duration>} [condition [args...]]\n\
    - '-h' displays this help\n\
    - <duration> is the maximum wait time, optionally suffixed with a unit: us, ms, s, m, h, d; it defaults to milliseconds\n\
    - the condition is optional:\n  \
      - srv-removable <backend>/<server> : this server can be deleted by 'del server'";

/// When a wait ends.
struct Until(Instant);

pub(super) fn wait(control: &Control, call: &Call, rest: Option<Rest>) -> Given {
    match step(control, call, rest) {
        Ok(given) => given,
        Err(answer) => Given::Whole(answer),
    }
}

fn step(control: &Control, call: &Call, rest: Option<Rest>) -> Result<Given, CommandResponse> {
    if call.arg(0) == "-h" || call.arg(1) == "-h" {
        return Err(CommandResponse::info(USAGE));
    }
    let now = Instant::now();
    let end = match rest.and_then(|rest| rest.downcast::<Until>().ok()) {
        Some(until) => until.0,
        None => match values::time(call.arg(0), Unit::Ms) {
            Ok((time, "")) => now + time.min(LONGEST),
            _ => return Err(CommandResponse::error("Expects a duration in milliseconds.")),
        },
    };
    let left = end.saturating_duration_since(now);
    let later = |time: Duration| Ok(Given::Later(time.min(left), Box::new(Until(end))));
    match call.arg(1) {
        "" if left.is_zero() => Ok(Given::Whole(CommandResponse::Done)),
        "" => later(left),
        "srv-removable" => {
            let server = find(&control.line, call.arg(2))?;
            if !server.admin().in_maintenance() {
                return Err(CommandResponse::error("Only servers in maintenance mode can be deleted."));
            }
            match server.served() + server.elsewhere() + server.queued() {
                0 => Err(CommandResponse::info("Done.")),
                _ if left.is_zero() => Err(CommandResponse::error("Wait delay expired.")),
                _ => later(LOOK),
            }
        }
        _ => Err(CommandResponse::error("Unknown condition; 'wait -h' lists them.")),
    }
}
