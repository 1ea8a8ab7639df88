//! What sets a variable of the process apart from rules: `set-var` and `set-var-fmt` of the file's `global` section, and the command `set var`.
//! There is no connection, so that only constants, variables and facts of the process can be used; by a command also figures of proxies, servers
//! and stick tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::action::state::SetVariable;
use crate::alone::Alone;
use crate::expr::Expr;
use crate::format::Format;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::RuleError;
use crate::process::ProcessVariables;
use crate::sample::Sample;
use crate::variable::{VariableName, VariableScope};

/// A setting of a variable of the process.
#[derive(Clone, Debug)]
pub struct VariableLine {
    variable: SetVariable,
    value: LineValue,
    /// As it is written, to see whether it changed.
    text: String,
}

#[derive(Clone, Debug)]
enum LineValue {
    Expr(Expr),
    Format(Format),
}

/// What is wrong with a setting.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum VariableLineError {
    /// The name is none.
    Name(RuleError),
    /// It is the name of another scope.
    Scope,
    /// The expression or the format.
    Value(RuleError),
}

impl VariableLine {
    /// Compiles a setting of the file: a name, maybe with conditions behind commas, and an expression or a format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(
        name: &str,
        is_format: bool,
        value: &str,
        files: &dyn Files,
    ) -> Result<VariableLine, VariableLineError> {
        VariableLine::compile_at(RulePosition::Process, name, is_format, value, files)
    }

    /// Compiles a setting by a command, which can use more.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn command(
        name: &str,
        is_format: bool,
        value: &str,
        files: &dyn Files,
    ) -> Result<VariableLine, VariableLineError> {
        VariableLine::compile_at(RulePosition::Command, name, is_format, value, files)
    }

    fn compile_at(
        position: RulePosition,
        name: &str,
        is_format: bool,
        value: &str,
        files: &dyn Files,
    ) -> Result<VariableLine, VariableLineError> {
        let variable = SetVariable::read(name).map_err(VariableLineError::Name)?;
        if variable.name().scope() != VariableScope::Process {
            return Err(VariableLineError::Scope);
        }
        let compiled = match is_format {
            false => Expr::compile(value, position, files).map(LineValue::Expr),
            true => Format::compile(value, position, files).map(LineValue::Format),
        };
        let word = if is_format { "fmt" } else { "expr" };
        let text = format!("{name} {word} {value}");
        Ok(VariableLine { variable, value: compiled.map_err(VariableLineError::Value)?, text })
    }

    /// The variable.
    pub fn name(&self) -> &VariableName {
        self.variable.name()
    }

    /// Sets the variable. Without a value it keeps its own.
    pub fn run(&self, alone: &Alone<'_>) {
        alone.evaluate(|cx| {
            let value = match &self.value {
                LineValue::Expr(expr) => expr.eval(cx).map(Sample::into_owned),
                LineValue::Format(format) => {
                    let mut text = Vec::new();
                    format.write(cx, &mut text);
                    Some(Sample::Str(text.into()))
                }
            };
            if let Some(value) = value {
                self.variable.set(value, cx);
            }
        });
    }
}

impl ProcessVariables {
    /// A file is in use whose lines these are: those of a variable are run, in their order, if one of them changed, is new or is gone. A variable
    /// without lines any more is unset. What requests and operators set of others stays.
    pub fn settle(&self, lines: &[VariableLine], alone: &Alone<'_>) {
        let mut texts: BTreeMap<&Arc<str>, String> = BTreeMap::new();
        for line in lines {
            let text = texts.entry(line.name().full()).or_default();
            text.push_str(&line.text);
            text.push('\n');
        }
        for name in self.names_of_lines() {
            if !texts.contains_key(&name)
                && self.change_lines(&name, None)
                && let Ok(name) = VariableName::parse(&name)
            {
                self.unset(&name);
            }
        }
        let changed: Vec<Arc<str>> = texts
            .into_iter()
            .filter(|(name, text)| self.change_lines(name, Some(text.clone())))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for line in lines.iter().filter(|line| changed.contains(line.name().full())) {
            line.run(alone);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::log::NoLog;
    use crate::outside::NoFiles;

    fn line(text: &str) -> VariableLine {
        let mut words = text.splitn(3, ' ');
        let (keyword, name, value) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        VariableLine::compile(name, keyword == "set-var-fmt", value, &NoFiles).expect(text)
    }

    fn settle(variables: &ProcessVariables, lines: &[&str]) {
        let lines: Vec<VariableLine> = lines.iter().map(|text| line(text)).collect();
        let now = UNIX_EPOCH + Duration::from_secs(100);
        variables.settle(&lines, &Alone { now, log: &NoLog, random: &|| 4, variables, live: None });
    }

    /// The values in order of their names.
    fn check(variables: &ProcessVariables, expect: &[(&str, &str)]) {
        let text = |value: &Sample<'_>| String::from_utf8(value.clone().into_text().into_owned()).expect("text");
        let all = variables.list();
        let set: Vec<(String, String)> =
            all.iter().filter_map(|one| Some((one.name.to_string(), text(one.value.as_deref()?)))).collect();
        let expect: Vec<(String, String)> =
            expect.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(set, expect);
    }

    #[test]
    fn lines_run_in_order_and_again_only_where_they_changed() {
        let variables = ProcessVariables::default();
        let a = VariableName::parse("proc.a").expect("a name");
        settle(
            &variables,
            &[
                "set-var proc.a int(100)",
                "set-var proc.b int(200),sub(proc.a)",
                "set-var-fmt proc.c x%[var(proc.b)]y",
                "set-var proc.d date",
            ],
        );
        check(&variables, &[("proc.a", "100"), ("proc.b", "100"), ("proc.c", "x100y"), ("proc.d", "100")]);

        variables.set(&a, Sample::Int(7));
        settle(&variables, &["set-var proc.a int(100)", "set-var proc.b int(300),sub(proc.a)"]);
        check(&variables, &[("proc.a", "7"), ("proc.b", "293")]);

        settle(
            &variables,
            &["set-var proc.a int(100)", "set-var proc.a int(101)", "set-var proc.b int(300),sub(proc.a)"],
        );
        check(&variables, &[("proc.a", "101"), ("proc.b", "293")]);

        settle(&variables, &["set-var proc.a int(99)", "set-var proc.a int(101)"]);
        check(&variables, &[("proc.a", "101")]);

        settle(&variables, &["set-var proc.a,ifnotset int(3)"]);
        check(&variables, &[("proc.a", "101")]);
        settle(&variables, &[]);
        check(&variables, &[]);
    }

    #[test]
    fn nothing_of_a_connection_can_be_used() {
        let check = |name: &str, is_format: bool, value: &str, expect: &str| {
            let fault = match VariableLine::compile(name, is_format, value, &NoFiles) {
                Err(VariableLineError::Name(fault) | VariableLineError::Value(fault)) => fault.message,
                Err(VariableLineError::Scope) => "scope".into(),
                Ok(_) => "valid".into(),
            };
            assert_eq!(fault, expect, "{name} {value}");
        };
        let lacks = |what: &str| {
            format!(
                "'{what}' cannot be used here: it needs a connection or a request, which a setting of the process does not have"
            )
        };
        check("proc.a", false, "path", &lacks("path"));
        check("proc.a", false, "src", &lacks("src"));
        check("proc.a", false, "be_conn(x)", &lacks("be_conn"));
        check("proc.a", true, "%[fc_rtt]", &lacks("fc_rtt"));
        check("txn.a", false, "int(1)", "scope");
        check("a", false, "int(1)", "invalid variable name 'a'");
        check("proc.a-b", false, "int(1)", "invalid character '-' in variable name 'proc.a-b'");
        check("proc.a", false, "nope", "unknown sample fetch 'nope'");
        for value in [
            "always_false",
            "bin(61)",
            "bool(true)",
            "date",
            "date_us",
            "env(HOME)",
            "hostname",
            "int(1),add(1)",
            "ipv4(1.2.3.4)",
            "ipv6(::1)",
            "meth(GET)",
            "nbproc",
            "proc",
            "rand",
            "str(a)",
            "thread",
            "uuid()",
            "var(proc.b)",
        ] {
            check("proc.a", false, value, "valid");
        }
    }

    #[test]
    fn a_command_can_use_what_the_process_is_in() {
        let check = |value: &str, expect: &str| {
            let fault = match VariableLine::command("proc.a", false, value, &NoFiles) {
                Err(VariableLineError::Name(fault) | VariableLineError::Value(fault)) => fault.message,
                Err(VariableLineError::Scope) => "scope".into(),
                Ok(_) => "valid".into(),
            };
            assert_eq!(fault, expect, "{value}");
        };
        for value in ["date", "be_conn(x)", "nbsrv", "srv_is_up(a/b)", "table_cnt(t)", "wait_end", "stopping"] {
            check(value, "valid");
        }
        for what in ["src", "path", "act_conn", "dst_conn", "sc0_conn_cnt", "unique-id"] {
            let expect = "cannot be used here: it needs a connection or a request, which a command does not have";
            check(what, &format!("'{what}' {expect}"));
        }
    }
}
