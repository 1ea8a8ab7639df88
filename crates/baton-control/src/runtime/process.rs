//! Commands about the process: its sockets, environment, messages, and what it consists of.

use std::fmt::Write as _;

use baton_model::Address;

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// `show cli sockets`.
pub(super) fn sockets(control: &Control, _: &Call) -> CommandResponse {
    let mut out = String::from("# socket lvl processes\n");
    for socket in control.line.runtime().sockets() {
        let address = match &socket.bind.address {
            // Others have no name by which one could connect.
            address @ (Address::Inet(_) | Address::Unix(_) | Address::Abstract(_)) => address.to_string(),
            Address::Fd(_) => continue,
        };
        let _ = writeln!(out, "{address} {} all", socket.level.word());
    }
    CommandResponse::Data(out)
}

/// `show backend`: the names of all proxies with servers.
pub(super) fn backends(control: &Control, _: &Call) -> CommandResponse {
    let mut out = String::from("# name\n");
    for proxy in control.line.model().proxies.iter().filter(|proxy| proxy.role.is_backend()) {
        let _ = writeln!(out, "{}", proxy.name);
    }
    CommandResponse::Data(out)
}

/// `show env [<name>]`.
pub(super) fn environment(_: &Control, call: &Call) -> CommandResponse {
    let line = |name: &str, value: &str| format!("{name}={value}\n").replace("\n\n", "\n");
    let mut variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().replace('\n', " ")));
    match call.arg(0) {
        "" => CommandResponse::Data(variables.map(|(name, value)| line(&name, &value)).collect()),
        wanted => match variables.find(|(name, _)| name == wanted) {
            Some((name, value)) => CommandResponse::Data(line(&name, &value)),
            None => CommandResponse::error("Variable not found"),
        },
    }
}

/// `show startup-logs`: what the process said before it served.
pub(super) fn startup_logs(control: &Control, _: &Call) -> CommandResponse {
    CommandResponse::info(control.messages.startup().trim_end())
}
