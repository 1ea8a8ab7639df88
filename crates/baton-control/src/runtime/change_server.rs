//! Commands that change servers until the file changes the same field: `set server`, `set weight`, `set maxconn server`,
//! `enable server`, `disable server`, `enable agent`, `disable agent`. HAProxy's words and answers (management guide, 9.3).

mod agent;
mod place;

use std::sync::Arc;

use baton_config::is_dynamic;
use baton_model::{AdminState, Setting};
use baton_proxy::balance::{HealthState, ServerState};

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
        "addr" => place::address(call, server),
        "check-addr" => place::check_address(call, server),
        "check-port" => place::check_port(call, server),
        "health" => health(call, server),
        "agent" => agent::force(call, server),
        "agent-addr" => agent::address(call, server),
        "agent-port" => agent::port(call, server),
        "agent-send" => agent::send(call, server),
        "fqdn" => place::host(call, server),
        "ssl" => encryption(call, server),
        _ => Err(CommandResponse::error(
            "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | agent-send | check-addr | check-port | \
             fqdn | health | ssl | state | weight",
        )),
    }
}

/// `set server <backend>/<server> ssl on|off`. Health checks stay as they are.
fn encryption(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    let config = server.config();
    if is_dynamic(&config) {
        return Err(CommandResponse::error("'set server <srv> ssl' not supported on dynamic servers"));
    }
    if config.any_tls().is_none() {
        let text = "'set server <srv> ssl' cannot be set.  default-server should define ssl settings";
        return Err(CommandResponse::error(text));
    }
    let value = match call.arg(2) {
        "on" => Setting::Tls(true),
        "off" => Setting::Tls(false),
        _ => return Err(CommandResponse::error("'set server <srv> ssl' expects 'on' or 'off'.")),
    };
    let said = CommandResponse::notice("server ssl setting updated.");
    Ok(Altering::new(Change::Override { server, value, by: call.by.clone() }, said))
}

/// `set server <backend>/<server> health up|stopping|down`.
fn health(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    if server.config().check.track.is_some() {
        return Err(CommandResponse::error("cannot change health on a tracking server."));
    }
    let health = match call.arg(2) {
        "up" => HealthState::Up,
        "stopping" => HealthState::Stopping,
        "down" => HealthState::Down,
        _ => {
            let text = "'set server <srv> health' expects 'up', 'stopping', or 'down'.";
            return Err(CommandResponse::error(text));
        }
    };
    Ok(Change::HealthForced(server, health).into())
}

/// `enable agent <backend>/<server>`.
pub(super) fn enable_agent(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    agent::switch(call, server, true)
}

/// `disable agent <backend>/<server>`.
pub(super) fn disable_agent(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    agent::switch(call, server, false)
}

/// `set maxconn server <backend>/<server> <maxconn>`.
pub(super) fn set_maxconn(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let server = find(staging.line, call.arg(0))?;
    let text = call.arg(1);
    if text.is_empty() {
        return Err(CommandResponse::error("Require <maxconn>."));
    }
    match text.parse() {
        Ok(limit) => Ok(Change::Override { server, value: Setting::Maxconn(limit), by: call.by.clone() }.into()),
        Err(_) if text.starts_with(|first: char| first.is_ascii_digit()) => {
            Err(CommandResponse::error("Trailing garbage in maxconn string"))
        }
        Err(_) => Err(CommandResponse::error("maxconn string empty or preceded by garbage")),
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
        // As in HAProxy, who leaves it is not drained any more.
        State::Maint => AdminState { maintenance: true, drain: false },
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
    line.model().backend(&name).is_some_and(|proxy| proxy.has_static_weights())
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
