//! `set server … addr|fqdn|check-addr|check-port`: where a server is, and where it is checked. HAProxy's words and answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use baton_dns::DomainName;
use baton_model::Setting;
use baton_proxy::balance::ServerState;

use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;
use crate::runtime::altering::Altering;

const BY: &str = "by 'stats socket command'";
const NO_CHECK: &str = "health checks are not enabled on this server";

/// `addr <ip> [port <port>]`.
pub(super) fn address(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    let word = call.arg(2);
    if word.is_empty() {
        return Err(CommandResponse::error("set server <b>/<s> addr requires an address and optionally a port."));
    }
    let Ok(ip) = word.parse::<IpAddr>() else {
        return Err(CommandResponse::error(format!("Invalid addr '{word}' {BY}")));
    };
    let config = server.config();
    let before = config.address.inet();
    let port = (call.arg(3) == "port").then(|| call.arg(4));
    let (ip_said, is_other_ip) = match before {
        Some(before) if before.ip() == ip => ("no need to change the addr".to_owned(), false),
        Some(before) => (format!("IP changed from '{}' to '{ip}'", before.ip()), true),
        None => (format!("IP changed from '(none)' to '{ip}'"), true),
    };
    // HAProxy changes the address although the port is invalid; here nothing changes.
    let nothing = if is_other_ip { "no change" } else { "no need to change the addr" };
    let port_before = config.address.port();
    let (port_said, new_port) = match port {
        None => (String::new(), port_before),
        // `+1` is a shift of the client's port, which is no number here.
        Some(text) => match text.parse::<u16>().ok().filter(|_| !text.starts_with('+')) {
            Some(new) if new == port_before && config.address.port_offset.is_none() => {
                (", no need to change the port".to_owned(), new)
            }
            Some(new) => (format!(", port changed from '{port_before}' to '{new}'"), new),
            None if text.starts_with(['+', '-']) && text.parse::<i32>().is_ok() => {
                return Err(CommandResponse::error(format!("{nothing}, can't change <port> to port map {BY}")));
            }
            None => {
                let text = format!("{nothing}, problem converting port '{text}' to an int {BY}");
                return Err(CommandResponse::error(text));
            }
        },
    };
    let said = CommandResponse::info(format!("{ip_said}{port_said} {BY}"));
    let is_other_port = port.is_some() && (new_port != port_before || config.address.port_offset.is_some());
    if !is_other_ip && !is_other_port {
        return Err(said);
    }
    if config.address.port_offset.is_some() && port.is_none() {
        let text = "The port of this server depends on the client's: name a new one as well.";
        return Err(CommandResponse::error(text));
    }
    let value = Setting::Address(Some(SocketAddr::new(ip, new_port).to_string().into()));
    Ok(Altering::new(Change::Override { server, value, by: call.by.clone() }, said))
}

/// `fqdn <name>`: the name that name servers are asked for from now on.
pub(super) fn host(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    let name = call.arg(2);
    if name.is_empty() {
        return Err(CommandResponse::error("set server <b>/<s> fqdn requires a FQDN."));
    }
    let config = server.config();
    let Some(resolution) = &config.resolution else {
        return Err(CommandResponse::error("set server <b>/<s> fqdn failed because no resolution is configured."));
    };
    if resolution.service.is_some() {
        return Err(CommandResponse::error("set server <b>/<s> fqdn failed because SRV resolution is configured."));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(CommandResponse::warning(format!("invalid fqdn '{name}' {BY}")));
    }
    let whose = || Some(format!("{}/{}", server.backend()?.name(), server.name()));
    let whose = whose().unwrap_or_default();
    if DomainName::parse(name).is_none() {
        return Err(CommandResponse::warning(format!("could not update {whose} FQDN {BY}")));
    }
    let before = config.found_host();
    if before == Some(name) {
        // As HAProxy spells it.
        return Err(CommandResponse::warning(format!("no need to change the FDQN {BY}")));
    }
    let before = before.unwrap_or("(null)");
    let said = CommandResponse::warning(format!("{whose} changed its FQDN from {before} to {name} {BY}"));
    let value = Setting::Fqdn(Some(name.into()));
    Ok(Altering::new(Change::Override { server, value, by: call.by.clone() }, said))
}

/// `check-addr <ip> [port <port>]`.
pub(super) fn check_address(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    let word = call.arg(2);
    if word.is_empty() {
        return Err(CommandResponse::error("set server <b>/<s> check-addr requires an address and optionally a port."));
    }
    if !server.config().check.enabled {
        return Err(CommandResponse::error(NO_CHECK));
    }
    let Ok(ip) = word.parse::<IpAddr>() else {
        return Err(CommandResponse::error(format!("invalid addr '{word}'")));
    };
    let port = match call.arg(3) {
        "port" => Some(port(call.arg(4))?),
        _ => None,
    };
    let set = |value| Change::Override { server: Arc::clone(&server), value, by: call.by.clone() };
    let altering = Altering::from(set(Setting::CheckAddress(Some(ip))));
    Ok(match port {
        Some(port) => altering.and(set(Setting::CheckPort(port))),
        None => altering,
    })
}

/// `check-port <port>`; zero is that of the server.
pub(super) fn check_port(call: &Call, server: Arc<ServerState>) -> Result<Altering, CommandResponse> {
    if call.arg(2).is_empty() {
        return Err(CommandResponse::error("set server <b>/<s> check-port requires a port."));
    }
    if !server.config().check.enabled {
        return Err(CommandResponse::error(NO_CHECK));
    }
    let value = Setting::CheckPort(port(call.arg(2))?);
    Ok(Change::Override { server, value, by: call.by.clone() }.into())
}

pub(super) fn port(word: &str) -> Result<Option<u16>, CommandResponse> {
    match word.parse::<i64>().map(u16::try_from) {
        Ok(Ok(port)) => Ok((port > 0).then_some(port)),
        Ok(Err(_)) => Err(CommandResponse::error("provided port is invalid")),
        Err(_) => Err(CommandResponse::error("provided port is not an integer")),
    }
}
