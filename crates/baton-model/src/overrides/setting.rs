//! Fields that can be overridden, and their values: as text, as the files have them, and in a server's line.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{AdminState, EffectiveServer, Field, NO_LINE, Object, Setting};
use crate::{Address, AgentSettings, Family, Global, Model, NetAddress, Proxy, Server, ServerAddress};

/// The largest `weight`.
const WEIGHT_MAX: u32 = 256;

impl Field {
    /// All of them.
    pub const ALL: [Field; 18] = [
        Field::State,
        Field::Weight,
        Field::Line,
        Field::Health,
        Field::Maxconn,
        Field::Address,
        Field::Fqdn,
        Field::CheckAddress,
        Field::CheckPort,
        Field::Agent,
        Field::AgentAddress,
        Field::AgentPort,
        Field::AgentSend,
        Field::Tls,
        Field::ConnectionRate,
        Field::SessionRate,
        Field::TlsRate,
        Field::Service,
    ];

    /// Whether it makes another line of a server, and so another model; the others are states of the server.
    pub fn is_of_line(self) -> bool {
        !matches!(
            self,
            Field::State | Field::Weight | Field::ConnectionRate | Field::SessionRate | Field::TlsRate | Field::Service
        )
    }

    /// Its name, in messages and between processes.
    pub fn word(self) -> &'static str {
        match self {
            Field::State => "state",
            Field::Weight => "weight",
            Field::Line => "line",
            Field::Health => "health",
            Field::Maxconn => "maxconn",
            Field::Address => "addr",
            Field::Fqdn => "fqdn",
            Field::CheckAddress => "check-addr",
            Field::CheckPort => "check-port",
            Field::Agent => "agent",
            Field::AgentAddress => "agent-addr",
            Field::AgentPort => "agent-port",
            Field::AgentSend => "agent-send",
            Field::Tls => "ssl",
            Field::ConnectionRate => "maxconnrate",
            Field::SessionRate => "maxsessrate",
            Field::TlsRate => "maxsslrate",
            Field::Service => "service",
        }
    }

    /// The field of a name.
    pub fn of_word(word: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.word() == word)
    }
}

impl Setting {
    /// What the file says of a server, of none if it is not there.
    pub fn of(field: Field, server: Option<&Server>) -> Setting {
        let file = server.map(EffectiveServer::of).unwrap_or_default();
        match field {
            Field::State => Setting::State(file.admin),
            Field::Weight => Setting::Weight(server.map_or(0, |server| server.weight)),
            Field::Line => Setting::Line(server.map(|server| server.address.to_string().into())),
            Field::Health => Setting::Health(server.is_some_and(|server| server.check.enabled)),
            Field::Maxconn => Setting::Maxconn(server.map_or(0, |server| server.maxconn)),
            Field::Address => Setting::Address(server.map(|server| server.address.to_string().into())),
            Field::Fqdn => Setting::Fqdn(server.and_then(host).map(Arc::from)),
            Field::CheckAddress => Setting::CheckAddress(match server.and_then(|server| server.check.addr.as_ref()) {
                Some(Address::Inet(address)) => Some(address.ip()),
                Some(Address::Unix(_) | Address::Abstract(_) | Address::Fd(_)) | None => None,
            }),
            Field::CheckPort => Setting::CheckPort(server.and_then(|server| server.check.port)),
            Field::Agent => Setting::Agent(server.is_some_and(Server::has_running_agent)),
            Field::AgentAddress => Setting::AgentAddress(server.and_then(|server| server.agent()?.addr)),
            Field::AgentPort => Setting::AgentPort(server.and_then(|server| server.agent()?.port)),
            Field::AgentSend => {
                let send = server.and_then(|server| Some(Arc::clone(&server.agent()?.send)));
                Setting::AgentSend(send.unwrap_or_default())
            }
            Field::Tls => Setting::Tls(server.is_some_and(|server| server.tls.is_some())),
            // No server has these.
            Field::ConnectionRate => Setting::ConnectionRate(0),
            Field::SessionRate => Setting::SessionRate(0),
            Field::TlsRate => Setting::TlsRate(0),
            Field::Service => Setting::Service(true),
        }
    }

    /// What the file says of a frontend; `None`: it has no such field.
    pub fn of_frontend(field: Field, frontend: &Proxy) -> Option<Setting> {
        match field {
            Field::Maxconn => Some(Setting::Maxconn(frontend.maxconn.unwrap_or_default())),
            // One that is disabled there is not in use.
            Field::Service => Some(Setting::Service(true)),
            _ => None,
        }
    }

    /// What the file says of the process; `None`: it has no such field.
    pub fn of_process(field: Field, global: &Global) -> Option<Setting> {
        match field {
            Field::Maxconn => Some(Setting::Maxconn(global.maxconn.unwrap_or_default())),
            Field::ConnectionRate => Some(Setting::ConnectionRate(global.maxconnrate.unwrap_or_default())),
            Field::SessionRate => Some(Setting::SessionRate(global.maxsessrate.unwrap_or_default())),
            Field::TlsRate => Some(Setting::TlsRate(global.maxsslrate.unwrap_or_default())),
            _ => None,
        }
    }

    /// What files say of a field of a frontend or the process; `None`: they have no such object or field. Of servers, see [`Setting::of`].
    pub(super) fn of_object(field: Field, object: &Object, model: &Model) -> Option<Setting> {
        match object {
            Object::Process => Setting::of_process(field, &model.global),
            Object::Frontend { frontend } => Setting::of_frontend(field, model.frontend(frontend)?),
            Object::Server { .. } => None,
        }
    }

    /// The number of a limit.
    pub fn limit(&self) -> Option<u32> {
        match self {
            Setting::Maxconn(limit)
            | Setting::ConnectionRate(limit)
            | Setting::SessionRate(limit)
            | Setting::TlsRate(limit) => Some(*limit),
            _ => None,
        }
    }

    /// Has a server's line as this says. Its state and weight, and whether there is one, are no part of that.
    pub fn put(&self, server: &mut Server) {
        match self {
            Setting::State(_) | Setting::Weight(_) | Setting::Line(_) => {}
            // No server has these.
            Setting::ConnectionRate(_) | Setting::SessionRate(_) | Setting::TlsRate(_) | Setting::Service(_) => {}
            Setting::Health(is_checked) => server.check.enabled = *is_checked,
            Setting::Maxconn(limit) => server.maxconn = *limit,
            Setting::Address(address) => {
                if let Some(address) = address.as_deref().and_then(|text| text.parse().ok()) {
                    server.address = ServerAddress::literal(Some(Address::Inet(address)));
                }
            }
            Setting::Fqdn(name) => {
                // The address stays what it is until name servers give another one.
                if let Some(name) = name {
                    let family = match &server.address.host {
                        NetAddress::Name(_, family) => *family,
                        NetAddress::Literal => Family::Any,
                    };
                    server.address.host = NetAddress::Name(name.to_string(), family);
                    server.named_by_operator = true;
                }
            }
            Setting::CheckAddress(address) => {
                server.check.addr = address.map(|address| Address::Inet(SocketAddr::new(address, 0)));
            }
            Setting::CheckPort(port) => server.check.port = *port,
            Setting::Agent(_) | Setting::AgentAddress(_) | Setting::AgentPort(_) | Setting::AgentSend(_) => {
                if let Some(agent) = server.agent.as_mut().filter(|agent| agent.is_configured) {
                    self.put_agent(Arc::make_mut(agent));
                }
            }
            Setting::Tls(true) if server.tls.is_none() => {
                server.tls = server.tls_ready.take().or_else(|| server.check.tls.clone());
            }
            Setting::Tls(true) => {}
            // Checks stay as they are.
            Setting::Tls(false) => server.tls_ready = server.tls.take().or_else(|| server.tls_ready.take()),
        }
    }

    fn put_agent(&self, agent: &mut AgentSettings) {
        match self {
            Setting::Agent(enabled) => agent.enabled = *enabled,
            Setting::AgentAddress(address) => agent.addr = *address,
            Setting::AgentPort(port) => agent.port = *port,
            Setting::AgentSend(text) => agent.send = Arc::clone(text),
            _ => {}
        }
    }

    /// Which field it is.
    pub fn field(&self) -> Field {
        match self {
            Setting::State(_) => Field::State,
            Setting::Weight(_) => Field::Weight,
            Setting::Line(_) => Field::Line,
            Setting::Health(_) => Field::Health,
            Setting::Maxconn(_) => Field::Maxconn,
            Setting::Address(_) => Field::Address,
            Setting::Fqdn(_) => Field::Fqdn,
            Setting::CheckAddress(_) => Field::CheckAddress,
            Setting::CheckPort(_) => Field::CheckPort,
            Setting::Agent(_) => Field::Agent,
            Setting::AgentAddress(_) => Field::AgentAddress,
            Setting::AgentPort(_) => Field::AgentPort,
            Setting::AgentSend(_) => Field::AgentSend,
            Setting::Tls(_) => Field::Tls,
            Setting::ConnectionRate(_) => Field::ConnectionRate,
            Setting::SessionRate(_) => Field::SessionRate,
            Setting::TlsRate(_) => Field::TlsRate,
            Setting::Service(_) => Field::Service,
        }
    }

    /// The value of a field from its text, as [`fmt::Display`] writes it.
    pub fn parse(field: Field, text: &str) -> Option<Setting> {
        match field {
            Field::State => AdminState::ALL.into_iter().find(|state| state.word() == text).map(Setting::State),
            Field::Weight => text.parse().ok().filter(|weight| *weight <= WEIGHT_MAX).map(Setting::Weight),
            Field::Line => Some(Setting::Line((text != NO_LINE).then(|| text.into()))),
            Field::Health => switch(text).map(Setting::Health),
            Field::Service => switch(text).map(Setting::Service),
            Field::Tls => switch(text).map(Setting::Tls),
            Field::Agent => switch(text).map(Setting::Agent),
            Field::AgentAddress if text == NO_LINE => Some(Setting::AgentAddress(None)),
            Field::AgentAddress => text.parse().ok().map(|address| Setting::AgentAddress(Some(address))),
            Field::AgentPort if text == NO_LINE => Some(Setting::AgentPort(None)),
            Field::AgentPort => text.parse().ok().map(|port| Setting::AgentPort(Some(port))),
            Field::AgentSend => unescaped(text).map(|text| Setting::AgentSend(text.into())),
            Field::ConnectionRate => text.parse().ok().map(Setting::ConnectionRate),
            Field::SessionRate => text.parse().ok().map(Setting::SessionRate),
            Field::TlsRate => text.parse().ok().map(Setting::TlsRate),
            Field::Maxconn => text.parse().ok().map(Setting::Maxconn),
            Field::Address => Some(Setting::Address((text != NO_LINE).then(|| text.into()))),
            Field::Fqdn => Some(Setting::Fqdn((text != NO_LINE).then(|| text.into()))),
            Field::CheckAddress if text == NO_LINE => Some(Setting::CheckAddress(None)),
            Field::CheckAddress => text.parse().ok().map(|address| Setting::CheckAddress(Some(address))),
            Field::CheckPort if text == NO_LINE => Some(Setting::CheckPort(None)),
            Field::CheckPort => text.parse().ok().map(|port| Setting::CheckPort(Some(port))),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::State(state) => out.write_str(state.word()),
            Setting::Weight(weight) => write!(out, "{weight}"),
            Setting::Line(line) => out.write_str(line.as_deref().unwrap_or(NO_LINE)),
            Setting::Health(true) | Setting::Service(true) | Setting::Tls(true) | Setting::Agent(true) => {
                out.write_str("enabled")
            }
            Setting::Health(false) | Setting::Service(false) | Setting::Tls(false) | Setting::Agent(false) => {
                out.write_str("disabled")
            }
            Setting::Maxconn(limit)
            | Setting::ConnectionRate(limit)
            | Setting::SessionRate(limit)
            | Setting::TlsRate(limit) => write!(out, "{limit}"),
            Setting::Address(text) | Setting::Fqdn(text) => out.write_str(text.as_deref().unwrap_or(NO_LINE)),
            Setting::CheckAddress(Some(address)) | Setting::AgentAddress(Some(address)) => write!(out, "{address}"),
            Setting::CheckPort(Some(port)) | Setting::AgentPort(Some(port)) => write!(out, "{port}"),
            Setting::CheckAddress(None)
            | Setting::CheckPort(None)
            | Setting::AgentAddress(None)
            | Setting::AgentPort(None) => out.write_str(NO_LINE),
            Setting::AgentSend(text) => out.write_str(&escaped(text)),
        }
    }
}

/// A text in one line: what ends a line or cannot be seen is written with a backslash.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str(r"\\"),
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            control if control.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(control))),
            character => out.push(character),
        }
    }
    out
}

/// What [`escaped`] wrote.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => out.push(match rest.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                'x' => {
                    char::from(u8::from_str_radix(&[rest.next()?, rest.next()?].iter().collect::<String>(), 16).ok()?)
                }
                _ => return None,
            }),
            character => out.push(character),
        }
    }
    Some(out)
}

/// The name of a server's host as the file has it; `None`: it has none, or one of SRV records.
fn host(server: &Server) -> Option<&str> {
    let is_service = server.resolution.as_ref().is_some_and(|resolution| resolution.service.is_some());
    match &server.address.host {
        NetAddress::Name(name, _) => Some(&**name).filter(|_| !is_service),
        NetAddress::Literal => None,
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "enabled" => Some(true),
        "disabled" => Some(false),
        _ => None,
    }
}
