//! Commands that change servers until the file changes the same field: `set server`, `set weight`,
//! `enable server`, `disable server`. HAProxy's words and answers (management guide, 9.3).

use std::sync::Arc;
use std::time::Instant;

use baton_model::{AdminState, Algorithm, Author, Level, Mode, Setting};
use baton_proxy::balance::{ServerState, Transition};

use super::answer::Answer;
use super::servers::find;
use super::session::Call;
use crate::control::Control;

/// The highest weight of a server.
const WEIGHT_MAX: u32 = 256;

/// What an operator wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Drain,
    Maint,
}

/// `set server <backend>/<server> state|weight …`.
pub(super) fn set(control: &mut Control, call: &Call) -> Answer {
    let server = match find(control, call.arg(0)) {
        Ok(server) => server,
        Err(answer) => return answer,
    };
    match call.arg(1) {
        "state" => match call.arg(2) {
            "ready" => state(control, &server, State::Ready, call),
            "drain" => state(control, &server, State::Drain, call),
            "maint" => state(control, &server, State::Maint, call),
            _ => Answer::error("'set server <srv> state' expects 'ready', 'drain' and 'maint'."),
        },
        "weight" => weight(control, call, &server, call.arg(2)),
        word @ ("addr" | "agent" | "agent-addr" | "agent-port" | "agent-send" | "check-addr" | "check-port"
        | "fqdn" | "health" | "ssl") => {
            Answer::error(format!("'set server <srv> {word}' is not done yet: change the configuration and reload."))
        }
        _ => Answer::error("usage: set server <backend>/<server> state | weight"),
    }
}

/// `set weight <backend>/<server> <weight>[%]`.
pub(super) fn set_weight(control: &mut Control, call: &Call) -> Answer {
    match find(control, call.arg(0)) {
        Ok(server) => weight(control, call, &server, call.arg(1)),
        Err(answer) => answer,
    }
}

/// `enable server <backend>/<server>`: out of maintenance.
pub(super) fn enable(control: &mut Control, call: &Call) -> Answer {
    match find(control, call.arg(0)) {
        Ok(server) => {
            let admin = AdminState { maintenance: false, ..admin(&server) };
            change(control, &server, admin, &call.by);
            Answer::Done
        }
        Err(answer) => answer,
    }
}

/// `disable server <backend>/<server>`: into maintenance.
pub(super) fn disable(control: &mut Control, call: &Call) -> Answer {
    match find(control, call.arg(0)) {
        Ok(server) => state(control, &server, State::Maint, call),
        Err(answer) => answer,
    }
}

fn state(control: &mut Control, server: &Arc<ServerState>, wanted: State, call: &Call) -> Answer {
    let admin = match wanted {
        State::Ready => AdminState { maintenance: false, drain: false },
        State::Drain => AdminState { maintenance: false, drain: true },
        State::Maint => AdminState { maintenance: true, ..admin(server) },
    };
    change(control, server, admin, &call.by);
    Answer::Done
}

/// What the file and operators say of it.
fn admin(server: &ServerState) -> AdminState {
    let admin = server.admin();
    AdminState { maintenance: admin.maintenance, drain: admin.drain }
}

/// Changes it, with those who track it, and says so.
fn change(control: &mut Control, server: &Arc<ServerState>, admin: AdminState, by: &Author) {
    let before = server.admin();
    let changed = control.line.override_server(server, Setting::State(admin), by.clone(), Instant::now());
    let (Some(left), admin) = (changed, server.admin()) else { return };
    let Some(backend) = server.backend() else { return };
    let place = format!("Server {}/{}", backend.name(), server.name());
    let text = match (before.in_maintenance(), admin.in_maintenance()) {
        (false, true) => format!("{place} is going DOWN for maintenance. {}", rest(&left)),
        (true, false) if admin.is_draining() => format!("{place} is UP/DRAIN (leaving forced maintenance)."),
        (true, false) => format!("{place} is UP/READY (leaving forced maintenance)."),
        (true, true) => return,
        (false, false) if admin.is_draining() => format!("{place} enters drain state. {}", rest(&left)),
        (false, false) => format!("{place} is UP (leaving forced drain)."),
    };
    control.messages.warning(&text);
    control.messages.log_for(backend.name(), Level(5), &text);
}

/// What is left without the server.
fn rest(left: &Transition) -> String {
    let Transition { active, backups, sessions, requeued, remaining } = left;
    format!(
        "{active} active and {backups} backup servers left. {sessions} sessions active, {requeued} requeued, {remaining} \
         remaining in queue."
    )
}

fn weight(control: &mut Control, call: &Call, server: &Arc<ServerState>, text: &str) -> Answer {
    let words = call.arg(0);
    let initial = server.config().weight;
    let is_static = words.split_once('/').is_some_and(|(backend, _)| is_static(control, backend, server));
    match parse(text, initial) {
        Err(message) => Answer::error(message),
        Ok(weight) if is_static && weight != 0 && weight != initial => {
            Answer::error("Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.")
        }
        Ok(weight) => {
            control.line.override_server(server, Setting::Weight(weight), call.by.clone(), Instant::now());
            Answer::Done
        }
    }
}

/// Whether weights of a backend stay what they are.
fn is_static(control: &Control, backend: &str, server: &ServerState) -> bool {
    let name = server.backend().map_or_else(|| backend.into(), |backend| backend.name().clone());
    let Some(proxy) = control.line.model.backend(&name) else { return false };
    let is_hash = matches!(
        proxy.balance.algorithm,
        Algorithm::Source | Algorithm::Uri(_) | Algorithm::UrlParam { .. } | Algorithm::Hdr { .. } | Algorithm::Hash(_)
    );
    proxy.mode != Mode::Direct
        && (proxy.balance.algorithm == Algorithm::StaticRr || is_hash && !proxy.balance.hash.consistent)
}

/// A weight, or a share of the configured one.
fn parse(text: &str, initial: u32) -> Result<u32, &'static str> {
    if text.is_empty() {
        return Err("Require <weight> or <weight%>.");
    }
    let (digits, is_share) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
    let number = match digits.parse::<i64>() {
        Ok(number) => number,
        Err(_) if digits.starts_with(|first: char| first.is_ascii_digit()) => {
            return Err("Trailing garbage in weight string");
        }
        Err(_) => return Err("Empty weight string empty or preceded by garbage"),
    };
    match (is_share, u32::try_from(number)) {
        (true, Ok(percent)) => {
            Ok(u32::try_from(u64::from(initial) * u64::from(percent) / 100).unwrap_or(WEIGHT_MAX).min(WEIGHT_MAX))
        }
        (true, Err(_)) => Err("Relative weight must be positive."),
        (false, Ok(weight @ 0..=WEIGHT_MAX)) => Ok(weight),
        (false, _) => Err("Absolute weight can only be between 0 and 256 inclusive."),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn weights_are_read_as_haproxy_does() {
        assert_eq!(parse("5", 10), Ok(5));
        assert_eq!(parse("50%", 10), Ok(5));
        assert_eq!(parse("200%", 10), Ok(20));
        assert_eq!(parse("9999%", 10), Ok(256));
        assert_eq!(parse("", 10), Err("Require <weight> or <weight%>."));
        assert_eq!(parse("x", 10), Err("Empty weight string empty or preceded by garbage"));
        assert_eq!(parse("5x", 10), Err("Trailing garbage in weight string"));
        for out in ["257", "-1", "99999999999"] {
            assert_eq!(parse(out, 10), Err("Absolute weight can only be between 0 and 256 inclusive."), "{out}");
        }
    }
}
