//! Commands that change servers until the file changes the same field: `set server`, `set weight`,
//! `enable server`, `disable server`. HAProxy's words and answers (management guide, 9.3).

use std::sync::Arc;

use baton_model::{AdminState, Algorithm, Mode, Setting};
use baton_proxy::balance::ServerState;

use super::altering::{Altering, Staging};
use super::servers::find;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine};

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
pub(super) fn set(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    match call.arg(1) {
        "state" => match call.arg(2) {
            "ready" => Ok(state(server, State::Ready, call)),
            "drain" => Ok(state(server, State::Drain, call)),
            "maint" => Ok(state(server, State::Maint, call)),
            _ => Err(CommandResponse::error("'set server <srv> state' expects 'ready', 'drain' and 'maint'.")),
        },
        "weight" => weight(staging.line, call, server, call.arg(2)),
        word @ ("addr" | "agent" | "agent-addr" | "agent-port" | "agent-send" | "check-addr" | "check-port"
        | "fqdn" | "health" | "ssl") => {
            let text = format!("'set server <srv> {word}' is not supported yet: change the configuration and reload.");
            Err(CommandResponse::error(text))
        }
        _ => Err(CommandResponse::error("usage: set server <backend>/<server> state | weight")),
    }
}

/// `set weight <backend>/<server> <weight>[%]`.
pub(super) fn set_weight(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    weight(staging.line, call, server, call.arg(1))
}

/// `enable server <backend>/<server>`: out of maintenance.
pub(super) fn enable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    let admin = AdminState { maintenance: false, ..admin(&server) };
    Ok(Change::Override { server, value: Setting::State(admin), by: call.by.clone() }.into())
}

/// `disable server <backend>/<server>`: into maintenance.
pub(super) fn disable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    Ok(state(find(staging.line, call.arg(0))?, State::Maint, call))
}

fn state(server: Arc<ServerState>, wanted: State, call: &Call) -> Altering {
    let admin = match wanted {
        State::Ready => AdminState { maintenance: false, drain: false },
        State::Drain => AdminState { maintenance: false, drain: true },
        State::Maint => AdminState { maintenance: true, ..admin(&server) },
    };
    Change::Override { server, value: Setting::State(admin), by: call.by.clone() }.into()
}

/// What the file and operators say of it.
fn admin(server: &ServerState) -> AdminState {
    let admin = server.admin();
    AdminState { maintenance: admin.maintenance, drain: admin.drain }
}

fn weight(line: &ChangeLine, call: &Call, server: Arc<ServerState>, text: &str) -> Result<Altering, CommandResponse> {
    let words = call.arg(0);
    let initial = server.config().weight;
    let is_static = words.split_once('/').is_some_and(|(backend, _)| is_static(line, backend, &server));
    match parse(text, initial) {
        Err(message) => Err(CommandResponse::error(message)),
        Ok(weight) if is_static && weight != 0 && weight != initial => Err(CommandResponse::error(
            "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.",
        )),
        Ok(weight) => Ok(Change::Override { server, value: Setting::Weight(weight), by: call.by.clone() }.into()),
    }
}

/// Whether weights of a backend stay what they are.
fn is_static(line: &ChangeLine, backend: &str, server: &ServerState) -> bool {
    let name = server.backend().map_or_else(|| backend.into(), |backend| backend.name().clone());
    let Some(proxy) = line.model().backend(&name) else { return false };
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
