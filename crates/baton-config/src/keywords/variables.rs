//! Keywords of the `global` section about variables: those of the process, and how much memory variables may take.

use baton_rules::{RuleError, VariableLine, VariableLineError};

use super::Keyword;
use super::global::row;
use crate::lower::{Call, GlobalDraft, RuleFiles};

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("set-var", "proc.NAME EXPRESSION", set_var, "Sets a variable of the process to an expression's value."),
    row("set-var-fmt", "proc.NAME FORMAT", set_var_fmt, "Sets a variable of the process to a format's text."),
    row(
        "tune.vars.check-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.check, call),
        "Most bytes of variables of a health check.",
    ),
    row(
        "tune.vars.global-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.global, call),
        "Most bytes of all variables of the process.",
    ),
    row(
        "tune.vars.proc-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.process, call),
        "Most bytes of variables of the process, those of its sessions included.",
    ),
    row(
        "tune.vars.reqres-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.message, call),
        "Most bytes of variables of a request or response.",
    ),
    row(
        "tune.vars.sess-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.session, call),
        "Most bytes of variables of a session, those of its transaction included.",
    ),
    row(
        "tune.vars.txn-max-size",
        "BYTES",
        |global, call| limit(&mut global.model.variable_limits.transaction, call),
        "Most bytes of variables of a transaction, those of its request and response included.",
    ),
];

/// `tune.vars.*-max-size BYTES`; 0, or nothing as in HAProxy, is no limit.
fn limit(limit: &mut Option<usize>, call: &mut Call<'_, '_>) {
    let text = call.arg(0);
    match if text.is_empty() { Ok(0) } else { text.parse::<usize>() } {
        Ok(bytes) if call.at_most(1) => *limit = Some(bytes).filter(|bytes| *bytes > 0),
        Ok(_) => {}
        Err(_) => call.wrong(0, format!("{}: '{text}' is an invalid size", call.name)),
    }
}

fn set_var(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let mut value = call.arg(1).to_owned();
    let mut words = 2;
    // An expression goes on in the next word after a comma.
    while value.ends_with(',') && words < call.args() {
        value.push_str(call.arg(words));
        words += 1;
    }
    set(global, call, false, &value, words, "a sample expression");
}

fn set_var_fmt(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    set(global, call, true, call.arg(1), 2, "a format string");
}

fn set(global: &mut GlobalDraft, call: &mut Call<'_, '_>, is_format: bool, value: &str, words: usize, expected: &str) {
    let name = call.arg(0);
    if name.is_empty() || value.is_empty() {
        let message = format!("'{}' requires a process-wide variable name ('proc.<name>') and {expected}.", call.name);
        return call.error(call.first, "missing-argument", message);
    }
    let compiled = VariableLine::compile(name, is_format, value, &RuleFiles::new(call.context, call.line.file.clone()));
    let mut refuse = |at: usize, RuleError { message, hint }| {
        call.error_with(call.first + at, "bad-variable", format!("'{}': {message}", call.name), hint);
    };
    match compiled {
        Ok(line) => {
            if call.args() > words {
                // HAProxy ignores it, too.
                let message = format!("'{}': '{}' and what follows is ignored.", call.name, call.arg(words));
                call.warn(call.first + words, "extra-argument", message);
            }
            global.model.variables.push((line.name().full().to_string(), value.to_owned()));
            call.context.compiled.set_variable(line);
        }
        Err(VariableLineError::Name(fault)) => refuse(0, fault),
        Err(VariableLineError::Value(fault)) => refuse(1, fault),
        Err(VariableLineError::Scope) => refuse(
            0,
            RuleError::new(format!(
                "cannot set variable '{name}', only scope 'proc' is permitted in the global section"
            )),
        ),
    }
}
