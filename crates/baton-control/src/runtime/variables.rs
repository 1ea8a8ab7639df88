//! Commands about variables of the process (management guide, 9.3): `get var`, `set var`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use baton_config::{Environment, SystemEnvironment};
use baton_model::{AccessLevel, Model, Role};
use baton_rules::{Files, NameReference, ReferenceKind, Sample, VariableLine, VariableLineError};

use super::altering::{Altering, Staging};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;

/// `get var <name>`.
pub(super) fn get(control: &Control, call: &Call) -> CommandResponse {
    let name = call.arg(0);
    if name.is_empty() {
        return CommandResponse::error("Missing process-wide variable identifier.");
    }
    let Some(value) = control.line.registry().variables.value(name) else {
        return CommandResponse::error("Variable not found.");
    };
    let kind = match &*value {
        Sample::Bool(_) => "bool",
        Sample::Int(_) => "sint",
        Sample::Ip(IpAddr::V4(_)) => "ipv4",
        Sample::Ip(IpAddr::V6(_)) => "ipv6",
        Sample::Str(_) => "str",
        Sample::Bin(_) => "bin",
        Sample::Method(_) => "meth",
    };
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    let mut out = format!("{name}: type={kind} value=<");
    for chunk in bytes.utf8_chunks() {
        // A client's value must not look like another line of the answer.
        for char in chunk.valid().chars() {
            match char.is_control() {
                // Writing to a string cannot fail.
                true => _ = write!(out, "\\x{:02x}", u32::from(char)),
                false => out.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
    }
    out.push_str(">\n");
    CommandResponse::Data(out)
}

/// `set var <name> <expression>`, `set var <name> expr <expression>`, `set var <name> fmt <format>`.
pub(super) fn set(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let error = |text: String| Err(CommandResponse::error(text));
    if !call.is_experimental {
        return error("This command is restricted to experimental mode only.".into());
    }
    if call.level < AccessLevel::Operator {
        return error("Permission denied".into());
    }
    let (name, word) = (call.arg(0), call.arg(1));
    if name.is_empty() {
        return error("Missing process-wide variable identifier.".into());
    }
    if word.is_empty() {
        return error("Missing either 'expr', 'fmt' or expression.".into());
    }
    // What stands behind the value is ignored, as by HAProxy.
    let (is_format, value) = match (word, call.arg(2)) {
        (expression, "") => (false, expression),
        ("expr", value) => (false, value),
        ("fmt", value) => (true, value),
        (other, _) => {
            return error(format!("'set var': arg type must be either 'expr' or 'fmt' but got '{other}'."));
        }
    };
    let outside = CommandOutside::default();
    match VariableLine::command(name, is_format, value, &outside) {
        Ok(line) => match outside.named.take().iter().find_map(|reference| missing(reference, staging.line.model())) {
            Some(message) => error(format!("parsing [CLI:0]: {message}")),
            None => {
                let by = call.by.clone();
                Ok(Change::VariableSet { line, is_stopping: staging.is_stopping, by }.into())
            }
        },
        Err(VariableLineError::Scope) => {
            error(format!("'set var': cannot set variable '{name}', only scope 'proc' is permitted here."))
        }
        Err(VariableLineError::Name(fault) | VariableLineError::Value(fault)) => error(fault.to_string()),
    }
}

/// What a command's expression knows of the outside: the environment and the host's name. It reads no files.
#[derive(Default)]
struct CommandOutside {
    /// Proxies, servers and tables that it names.
    named: RefCell<Vec<NameReference>>,
}

impl Files for CommandOutside {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "commands read no files"))
    }

    fn hostname(&self) -> String {
        SystemEnvironment.hostname()
    }

    /// A frontend in which nothing is, as in HAProxy.
    fn within(&self) -> Option<(&str, Role)> {
        Some(("CLI", Role::Frontend))
    }

    fn refers(&self, reference: NameReference) {
        self.named.borrow_mut().push(reference);
    }
}

/// What is wrong with a name in an expression, as HAProxy says it.
fn missing(reference: &NameReference, model: &Model) -> Option<String> {
    let NameReference { by, proxy: name, kind, .. } = reference;
    let place = format!("in {by} in CLI expression in proxy 'CLI'.");
    let find = |fits: fn(Role) -> bool| model.proxies.iter().find(|proxy| *proxy.name == **name && fits(proxy.role));
    let lacks = |what: &str| Some(format!("unable to find {what} '{name}' referenced {place}"));
    match kind {
        ReferenceKind::Frontend if find(Role::is_frontend).is_none() => lacks("frontend"),
        ReferenceKind::Backend if find(Role::is_backend).is_none() => lacks("backend"),
        ReferenceKind::Table | ReferenceKind::TableOfKey(_) if model.tables().all(|table| *table.name != **name) => {
            lacks("table")
        }
        ReferenceKind::Server(server) => match find(Role::is_backend) {
            None => lacks("proxy"),
            Some(proxy) if proxy.servers.iter().all(|one| *one.name != **server) => {
                Some(format!("unable to find server '{server}' in proxy '{name}', referenced {place}"))
            }
            Some(_) => None,
        },
        _ => None,
    }
}
