//! Commands about variables of the process (management guide, 9.3): `get var`, `set var`.

use std::fmt::Write as _;
use std::net::IpAddr;

use baton_model::AccessLevel;
use baton_rules::{NoFiles, Sample, VariableLine, VariableLineError};

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
pub(super) fn set(_: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
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
    match VariableLine::compile(name, is_format, value, &NoFiles) {
        Ok(line) => Ok(Change::VariableSet(line, call.by.clone()).into()),
        Err(VariableLineError::Scope) => {
            error(format!("'set var': cannot set variable '{name}', only scope 'proc' is permitted here."))
        }
        Err(VariableLineError::Name(fault) | VariableLineError::Value(fault)) => error(fault.to_string()),
    }
}
