//! `set server … agent|agent-addr|agent-port|agent-send`, `enable agent`, `disable agent`. HAProxy's words and answers.

use std::net::IpAddr;
use std::sync::Arc;

use baton_model::Setting;
use baton_proxy::balance::ServerState;

use super::place;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;
use crate::runtime::altering::Altering;

const NO_AGENT: &str = "agent checks are not enabled on this server.";
/// As HAProxy has it for where the agent is.
const NO_AGENT_THERE: &str = "agent checks are not enabled on this server";

/// `agent up|down`.
pub(super) fn force(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    if !server.config().has_running_agent() {
        return Err(CommandResponse::error(NO_AGENT));
    }
    match call.arg(2) {
        "up" => Ok(Change::AgentForced { server, is_up: true }.into()),
        "down" => Ok(Change::AgentForced { server, is_up: false }.into()),
        _ => Err(CommandResponse::error("'set server <srv> agent' expects 'up' or 'down'.")),
    }
}

/// `agent-addr <ip> [port <port>]`.
pub(super) fn address(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    let word = call.arg(2);
    if word.is_empty() {
        let text = "set server <b>/<s> agent-addr requires an address and optionally a port.";
        return Err(CommandResponse::error(text));
    }
    if !server.config().has_running_agent() {
        return Err(CommandResponse::error(NO_AGENT_THERE));
    }
    let Ok(ip) = word.parse::<IpAddr>() else {
        return Err(CommandResponse::error(format!("invalid addr '{word}'")));
    };
    let port = match call.arg(3) {
        "port" => Some(place::port(call.arg(4))?),
        _ => None,
    };
    let altering = set(call, &server, Setting::AgentAddress(Some(ip)));
    Ok(match port {
        Some(port) => altering.and(change(call, server, Setting::AgentPort(port))),
        None => altering,
    })
}

/// `agent-port <port>`.
pub(super) fn port(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    if call.arg(2).is_empty() {
        return Err(CommandResponse::error("set server <b>/<s> agent-port requires a port."));
    }
    if !server.config().has_running_agent() {
        return Err(CommandResponse::error(NO_AGENT_THERE));
    }
    Ok(set(call, &server, Setting::AgentPort(place::port(call.arg(2))?)))
}

/// `agent-send <text>`.
pub(super) fn send(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    if !server.config().has_running_agent() {
        return Err(CommandResponse::error(NO_AGENT));
    }
    Ok(set(call, &server, Setting::AgentSend(call.arg(2).into())))
}

/// `enable agent`, `disable agent`.
pub(super) fn switch(call: &Call, server: Arc<ServerState>, is_enabled: bool) -> Result<Altering, CommandResponse> {
    let config = server.config();
    match (config.agent(), is_enabled) {
        (None, true) => Err(CommandResponse::error("Agent was not configured on this server, cannot enable.")),
        (None, false) => Err(CommandResponse::Done),
        (Some(agent), _) if agent.enabled == is_enabled => Err(CommandResponse::Done),
        (Some(_), _) => Ok(set(call, &server, Setting::Agent(is_enabled))),
    }
}

fn set(call: &Call, server: &Arc<ServerState>, value: Setting) -> Altering {
    change(call, Arc::clone(server), value).into()
}

fn change(call: &Call, server: Arc<ServerState>, value: Setting) -> Change {
    Change::Override { server, value, by: call.by.clone() }
}
