//! Expressions of health checks: what `http-check` and `tcp-check` lines send, expect and remember. A check is no request: it knows a
//! backend, a server, what that has sent, and variables of its own.

use std::cell::Cell;
use std::time::SystemTime;

use baton_http::{ResponseHead, ResponseMut};

use crate::body::Body;
use crate::context::{Context, Listener, ProxyName, Response};
use crate::expr::Expr;
use crate::format::Format;
use crate::live::LiveState;
use crate::log::NoLog;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::RuleError;
use crate::process::ProcessVariables;
use crate::sample::Sample;
use crate::settings::RuleSettings;
use crate::tracking::{TrackedCounters, TrackedScopes};
use crate::variable::{SetCondition, VariableName, VariableScope, VariableScopes, Variables};

/// A value that a check computes.
#[derive(Clone, Debug)]
pub enum CheckValue {
    /// An expression.
    Expr(Expr),
    /// A format.
    Format(Format),
}

/// `set-var(NAME[,CONDITION…])` and `set-var-fmt(…)` of a check.
#[derive(Clone, Debug)]
pub struct CheckAssignment {
    name: VariableName,
    conditions: Box<[SetCondition]>,
    value: CheckValue,
}

/// The variables of one check.
#[derive(Debug, Default)]
pub struct CheckVariables {
    session: Variables,
    check: Variables,
}

/// What a check knows.
pub struct CheckFacts<'a> {
    /// The time.
    pub now: SystemTime,
    /// The backend.
    pub backend: ProxyName<'a>,
    /// The server.
    pub server: &'a str,
    /// Knows backend, server and the connection of the check as they are now.
    pub live: &'a dyn LiveState,
    /// What the server has sent, of a check by `tcp-check` lines.
    pub received: Option<&'a [u8]>,
    /// The head of its response with the bytes that it was parsed from, and the body, of a check by `http-check` lines.
    pub response: Option<(&'a mut ResponseHead, &'a [u8], &'a [u8])>,
    /// Variables of the process.
    pub process: &'a ProcessVariables,
    /// Gives a random number at each call.
    pub random: &'a dyn Fn() -> u32,
}

/// Compiles an expression of a check.
///
/// # Errors
/// It is malformed, or asks for what a check does not have.
pub fn check_expression(text: &str, files: &dyn Files) -> Result<Expr, RuleError> {
    no_tables(text)?;
    Expr::compile(text, RulePosition::Check, files)
}

/// Stick tables are not looked up by checks.
fn no_tables(text: &str) -> Result<(), RuleError> {
    match text.contains("table_") {
        true => Err(RuleError::new("stick tables cannot be used in health checks")),
        false => Ok(()),
    }
}

/// Compiles a format of a check: what is sent, or a description. It may have several lines, its values may not.
///
/// # Errors
/// It is malformed, or asks for what a check does not have.
pub fn check_format(text: &str, files: &dyn Files) -> Result<Format, RuleError> {
    let mut expressions = text.match_indices("%[").map(|(at, _)| &text[at..]);
    expressions.try_for_each(|expression| no_tables(expression.split(']').next().unwrap_or_default()))?;
    Format::compile_lines(text, RulePosition::Check, files)
}

impl CheckAssignment {
    /// Compiles what stands in the parentheses, and the value.
    ///
    /// # Errors
    /// The name or a condition is not known, or the scope is not one of a check.
    pub fn compile(argument: &str, value: CheckValue) -> Result<CheckAssignment, RuleError> {
        let mut parts = argument.split(',');
        let name = check_variable(parts.next().unwrap_or_default())?;
        let condition = |text: &str| {
            SetCondition::of(text)
                .ok_or_else(|| RuleError::unknown("condition", text, &[], SetCondition::NAMES.into_iter()))
        };
        Ok(CheckAssignment { name, conditions: parts.map(condition).collect::<Result<_, _>>()?, value })
    }

    /// Sets the variable, if its conditions hold and there is a value.
    pub fn run(&self, cx: &mut Context<'_>) {
        let value = match &self.value {
            CheckValue::Expr(expr) => expr.eval(cx).map(Sample::into_owned),
            CheckValue::Format(format) => {
                let mut text = Vec::new();
                format.write(cx, &mut text);
                Some(Sample::Str(text.into()))
            }
        };
        let Some(value) = value else { return };
        let known = cx.variables.value(&self.name);
        if self.conditions.iter().all(|condition| condition.holds(&self.name, known, &value)) {
            cx.variables.set(&self.name, value);
        }
    }
}

/// A variable that a check may set.
///
/// # Errors
/// It has no valid name, or another scope.
pub fn check_variable(text: &str) -> Result<VariableName, RuleError> {
    let name = VariableName::parse(text)?;
    match name.scope() {
        VariableScope::Transaction | VariableScope::Request | VariableScope::Response => {
            let fault = RuleError::new(format!("variable '{text}' is one of a request, which a check does not have"));
            Err(fault.hint("write check.NAME, sess.NAME or proc.NAME"))
        }
        _ => Ok(name),
    }
}

impl CheckVariables {
    /// Evaluates with these variables and what is known.
    pub fn with<T>(&mut self, facts: CheckFacts<'_>, evaluate: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let CheckFacts { now, backend, server, live, received, response, process, random } = facts;
        let response = response
            .map(|(head, bytes, body)| Response { head: ResponseMut::new(head, bytes), body: Body::Plain(body) });
        let mut tracked = TrackedCounters::default();
        let mut cx = Context {
            now,
            client: None,
            destination: &|| None,
            changed_destination: &Cell::new(None),
            client_tls: None,
            server_tls: None,
            frontend: ProxyName::default(),
            backend: Some(backend),
            server: Some(server),
            listener: Listener::default(),
            live,
            content: None,
            answer: received,
            last_chance: true,
            undecided: Cell::new(false),
            no_retry: false,
            failed_rewrites: 0,
            first_request: true,
            request: None,
            response,
            variables: VariableScopes::of_check(process, &mut self.session, &mut self.check),
            own_status: None,
            settings: &mut RuleSettings::default(),
            line: None,
            response_version: None,
            captures: None,
            unique_id: None,
            log: &NoLog,
            log_level: None,
            matches_hash: &|_, _| false,
            last_rule: None,
            tracked: TrackedScopes::new(&mut tracked, None),
            random,
            scratch: &mut Vec::new(),
        };
        evaluate(&mut cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::alone::NoState;
    use crate::outside::NoFiles;

    /// The text of a format after assignments as `ARGUMENT=EXPRESSION`, with these bytes received.
    fn check(assignments: &[&str], format: &str, expect: &str) {
        let mut variables = CheckVariables::default();
        let mut evaluate = |run: &mut dyn FnMut(&mut Context<'_>)| {
            let backend = ProxyName { name: "back", id: 3 };
            let facts = CheckFacts {
                now: UNIX_EPOCH,
                backend,
                server: "s1",
                live: &NoState,
                received: Some(b"+OK\r\n"),
                response: None,
                process: &ProcessVariables::default(),
                random: &|| 4,
            };
            variables.with(facts, run);
        };
        for assignment in assignments {
            let (argument, text) = assignment.split_once('=').expect("an assignment");
            let value = CheckValue::Expr(check_expression(text, &NoFiles).expect("an expression"));
            let assignment = CheckAssignment::compile(argument, value).expect("an assignment");
            evaluate(&mut |cx| assignment.run(cx));
        }
        let format = check_format(format, &NoFiles).expect("a format");
        let mut text = Vec::new();
        evaluate(&mut |cx| format.write(cx, &mut text));
        assert_eq!(String::from_utf8_lossy(&text), expect);
    }

    #[test]
    fn a_check_has_variables_of_its_own() {
        check(&["check.a=int(7)", "sess.b=var(check.a),add(1)"], "%[var(check.a)] %[var(sess.b)]", "7 8");
        check(&["check.a=int(1)", "check.a,ifnotexists=int(2)"], "%[var(check.a)]", "1");
        check(&[], "<%[var(check.a)]>", "<>");
    }

    #[test]
    fn a_check_knows_backend_server_and_what_was_received() {
        check(&[], "%[be_name]/%[srv_name] %[be_id] %b %s", "back/s1 3 back s1");
        check(&[], "%[res.payload(0,3)]", "+OK");
        check(&[], "%[src]%[res.hdr(x)]", "");
    }

    #[test]
    fn a_value_does_not_end_a_line() {
        check(&[], "%[res.payload(0,0)]\r\n", "+OK%0D%0A\r\n");
        check(&[], "%[str(a%00b),url_dec]", "a%00b");
    }

    #[test]
    fn what_a_check_does_not_have() {
        let error = |text: &str| check_expression(text, &NoFiles).unwrap_err().to_string();
        let expect = "'req.hdr' cannot be used here: it needs the request's head, which a health check does not have";
        assert_eq!(error("req.hdr(x)"), expect);
        assert!(error("str(a),map(/no/such/map)").contains("/no/such/map"), "{}", error("str(a),map(/no/such/map)"));
        assert!(check_variable("txn.a").is_err() && check_variable("check.a").is_ok());
    }
}
