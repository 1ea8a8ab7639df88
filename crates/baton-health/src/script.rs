//! The steps of a check, compiled once for all servers of a backend.

use baton_http::{Method, ResponseTo};
use baton_model::{Address, CheckConnect, CheckData, CheckExpect, CheckPort, CheckStep, CheckText, HttpCheckSend};
use baton_rules::{
    CheckAssignment, CheckValue, Expr, Files, Format, RuleError, VariableName, check_expression, check_format,
    check_variable,
};

use crate::expect::Expect;
use crate::matching::{Judge, RawMatch, from_hex};
use crate::report::Status;

/// What a check does, without what differs between servers.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) kind: ScriptKind,
    pub(crate) steps: Vec<Step>,
    /// `http-check disable-on-404`.
    pub(crate) disable_on_404: bool,
    /// `http-check send-state`.
    pub(crate) sends_state: bool,
    /// Expressions are, or may be, a part of it: they may ask for anything that is known of a check.
    pub(crate) evaluates: bool,
}

/// By which option a check was described: descriptions of results depend on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScriptKind {
    /// None.
    Connect,
    /// `option httpchk`.
    Http,
    /// `option tcp-check`.
    Tcp,
    /// One of a protocol.
    Protocol,
}

/// One step.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its place in the file, from 1; `None`: it is not there.
    pub(crate) number: Option<usize>,
    pub(crate) comment: Option<Box<str>>,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Connect(Connect),
    Send(Bytes),
    Request(Box<Request>),
    Expect(Box<Expectation>),
    Set(Box<CheckAssignment>),
    Unset(VariableName),
    /// It could not be compiled, for this reason.
    Broken(String),
}

impl Action {
    fn evaluates(&self) -> bool {
        let is_format = |format: &Option<Format>| format.as_ref().is_some_and(|format| format.constant().is_none());
        match self {
            Action::Connect(connect) => matches!(connect.port, Some(Port::Expression(_))),
            Action::Send(bytes) => bytes.evaluates(),
            Action::Request(request) => {
                let Request { uri, fields, body, .. } = &**request;
                uri.evaluates()
                    || fields.iter().any(|(_, value)| value.evaluates())
                    || body.as_ref().is_some_and(Bytes::evaluates)
            }
            Action::Expect(expectation) => {
                let Expectation { matching, on_success, on_error, code, .. } = &**expectation;
                let matches_by_format = match matching {
                    Matching::Http(expect) => expect.evaluates(),
                    Matching::Raw(RawMatch::TextFormat(_) | RawMatch::BinaryFormat(_)) => true,
                    Matching::Raw(_) | Matching::Protocol(_) | Matching::Grpc => false,
                };
                matches_by_format || is_format(on_success) || is_format(on_error) || code.is_some()
            }
            Action::Set(_) => true,
            Action::Unset(_) | Action::Broken(_) => false,
        }
    }
}

impl Bytes {
    fn evaluates(&self) -> bool {
        match self {
            Bytes::Plain(_) => false,
            Bytes::Format(format) | Bytes::HexFormat(format) => format.constant().is_none(),
        }
    }
}

/// A connection. What it takes from the server's line is in the plan, by this index.
#[derive(Debug)]
pub(crate) struct Connect {
    pub(crate) index: usize,
    pub(crate) settings: CheckConnect,
    pub(crate) port: Option<Port>,
    /// The server speaks first.
    pub(crate) listens_first: bool,
}

#[derive(Debug)]
pub(crate) enum Port {
    Number(u16),
    Expression(Expr),
}

/// What is sent.
#[derive(Debug)]
pub(crate) enum Bytes {
    Plain(Vec<u8>),
    Format(Format),
    /// A format that gives hexadecimal digits.
    HexFormat(Format),
}

/// A request of HTTP.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) uri: Bytes,
    pub(crate) version: String,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, Bytes)>,
    pub(crate) body: Option<Bytes>,
    pub(crate) to: ResponseTo,
}

/// What has to come.
#[derive(Debug)]
pub(crate) struct Expectation {
    pub(crate) matching: Matching,
    pub(crate) negated: bool,
    pub(crate) min_recv: Option<usize>,
    pub(crate) ok: Status,
    /// `None`: as the kind of the expectation has it.
    pub(crate) error: Option<Status>,
    pub(crate) timeout: Status,
    pub(crate) on_success: Option<Format>,
    pub(crate) on_error: Option<Format>,
    pub(crate) code: Option<Expr>,
    /// Of protocols: the description of a failure, from what has come.
    pub(crate) describe: Option<fn(&[u8]) -> String>,
    /// Of protocols: `describe` describes success, too.
    pub(crate) describes_success: bool,
    /// Of protocols: the description of success.
    pub(crate) success: Option<&'static str>,
    /// Of protocols: the code, from what has come.
    pub(crate) count: Option<Count>,
    /// No step follows that does more than set variables: its words describe the result of the check.
    pub(crate) is_last: bool,
}

/// The code that is in what has come.
pub(crate) type Count = fn(&[u8]) -> Option<i64>;

#[derive(Debug)]
pub(crate) enum Matching {
    Http(Expect),
    Raw(RawMatch),
    Protocol(Judge),
    /// The health protocol of gRPC.
    Grpc,
}

impl Script {
    /// The steps of lines of that kind. What cannot be compiled is a step that fails, with the reason: the reader of the file has refused it.
    pub(crate) fn of_lines(kind: ScriptKind, lines: &[CheckStep], files: &dyn Files) -> Script {
        Script::of_steps(kind, compiled(kind, lines, files))
    }

    /// These steps.
    pub(crate) fn of_steps(kind: ScriptKind, mut steps: Vec<Step>) -> Script {
        mark_last(&mut steps);
        mark_listening(&mut steps);
        let evaluates = steps.iter().any(|step| step.action.evaluates());
        Script { kind, steps, disable_on_404: false, sends_state: false, evaluates }
    }

    /// The connections in order.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &CheckConnect> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::Connect(connect) => Some(&connect.settings),
            _ => None,
        })
    }

    /// Whether nothing is done but to connect.
    pub(crate) fn only_connects(&self) -> bool {
        let speaks = |action: &Action| matches!(action, Action::Send(_) | Action::Request(_) | Action::Expect(_));
        !self.steps.iter().any(|step| speaks(&step.action))
    }
}

fn mark_last(steps: &mut [Step]) {
    let speaks = |step: &&mut Step| !matches!(step.action, Action::Set(_) | Action::Unset(_));
    if let Some(Step { action: Action::Expect(expectation), .. }) = steps.iter_mut().rev().find(speaks) {
        expectation.is_last = true;
    }
}

/// Which connections begin with bytes of the server.
fn mark_listening(steps: &mut [Step]) {
    let mut is_next = false;
    for step in steps.iter_mut().rev() {
        match &mut step.action {
            Action::Connect(connect) => connect.listens_first = std::mem::take(&mut is_next),
            Action::Expect(_) => is_next = true,
            Action::Send(_) | Action::Request(_) => is_next = false,
            Action::Set(_) | Action::Unset(_) | Action::Broken(_) => {}
        }
    }
}

impl Step {
    /// A connection as the server's line says.
    pub(crate) fn connect() -> Step {
        let settings = CheckConnect { default: true, ..CheckConnect::default() };
        let connect = Connect { index: 0, settings, port: None, listens_first: false };
        Step { number: None, comment: None, action: Action::Connect(connect) }
    }
}

/// The steps of lines, with those that are implied.
fn compiled(kind: ScriptKind, lines: &[CheckStep], files: &dyn Files) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut comment = None;
    let mut connections = 0;
    let connects = lines.iter().any(|line| matches!(line, CheckStep::Connect(_)));
    if !connects {
        steps.push(Step::connect());
        connections = 1;
    }
    for (at, line) in lines.iter().enumerate() {
        let own = match line {
            CheckStep::Comment(text) => {
                comment = Some(text);
                continue;
            }
            CheckStep::Connect(connect) => &connect.comment,
            CheckStep::Send(send) => &send.comment,
            CheckStep::SendData(data) => &data.comment,
            CheckStep::Expect(expect) => &expect.comment,
            CheckStep::SetVariable { .. } | CheckStep::UnsetVariable(_) => &None,
        };
        let own = own.as_ref().or(comment.take()).map(|text| Box::from(text.as_str()));
        // A request of HTTP is what an expectation is about.
        if let (ScriptKind::Http, CheckStep::Expect(_)) = (kind, line)
            && !awaits_response(&steps)
        {
            steps.push(Step { number: None, comment: None, action: request(&HttpCheckSend::default(), files) });
        }
        let action = match line {
            CheckStep::Comment(_) => continue,
            CheckStep::Connect(connect) => {
                connections += 1;
                connect_action(connect, connections - 1, files)
            }
            CheckStep::Send(send) => request(send, files),
            CheckStep::SendData(data) => send_action(data, files),
            CheckStep::Expect(expect) => expect_action(kind, expect, files),
            CheckStep::SetVariable { target, value } => set_action(target, value, files),
            CheckStep::UnsetVariable(name) => match check_variable(name) {
                Ok(name) => Action::Unset(name),
                Err(error) => Action::Broken(error.to_string()),
            },
        };
        steps.push(Step { number: Some(at + 1), comment: own, action });
    }
    if kind == ScriptKind::Http {
        if !steps.iter().any(|step| matches!(step.action, Action::Request(_) | Action::Broken(_))) {
            steps.push(Step { number: None, comment: None, action: request(&HttpCheckSend::default(), files) });
        }
        let last = steps.iter().rev().find(|step| !matches!(step.action, Action::Set(_) | Action::Unset(_)));
        if last.is_some_and(|step| matches!(step.action, Action::Request(_))) {
            let action = Action::Expect(Box::new(Expectation::new(Matching::Http(Expect::usual()))));
            steps.push(Step { number: None, comment: None, action });
        }
    }
    steps
}

/// Whether a request was sent over the connection that is open after these steps.
fn awaits_response(steps: &[Step]) -> bool {
    let since = steps.iter().rev().take_while(|step| !matches!(step.action, Action::Connect(_)));
    since.into_iter().any(|step| matches!(step.action, Action::Request(_) | Action::Broken(_)))
}

fn connect_action(connect: &CheckConnect, index: usize, files: &dyn Files) -> Action {
    let port = match &connect.port {
        None => None,
        Some(CheckPort::Number(port)) => Some(Port::Number(*port)),
        Some(CheckPort::Expression(text)) => match check_expression(text, files) {
            Ok(expr) => Some(Port::Expression(expr)),
            Err(error) => return Action::Broken(error.to_string()),
        },
    };
    Action::Connect(Connect { index, settings: connect.clone(), port, listens_first: false })
}

impl Connect {
    /// How descriptions of failures call it.
    pub(crate) fn words(&self) -> String {
        match self.port {
            Some(Port::Number(port)) => format!("connect port {port}"),
            Some(Port::Expression(_)) | None => "connect".into(),
        }
    }

    /// `addr`.
    pub(crate) fn address(&self) -> Option<&Address> {
        self.settings.addr.as_ref()
    }
}

fn set_action(target: &str, value: &CheckText, files: &dyn Files) -> Action {
    let value = match value {
        CheckText::Plain(text) => check_expression(text, files).map(CheckValue::Expr),
        CheckText::Format(text) => check_format(text, files).map(CheckValue::Format),
    };
    match value.and_then(|value| CheckAssignment::compile(target, value)) {
        Ok(assignment) => Action::Set(Box::new(assignment)),
        Err(error) => Action::Broken(error.to_string()),
    }
}

fn send_action(data: &CheckData, files: &dyn Files) -> Action {
    let bytes = match (&data.text, data.is_binary) {
        (CheckText::Plain(text), false) => Ok(Bytes::Plain(text.as_bytes().to_vec())),
        (CheckText::Plain(text), true) => from_hex(text.as_bytes()).map(Bytes::Plain).ok_or("not hexadecimal".into()),
        (CheckText::Format(text), false) => check_format(text, files).map(Bytes::Format).map_err(|e| e.to_string()),
        (CheckText::Format(text), true) => check_format(text, files).map(Bytes::HexFormat).map_err(|e| e.to_string()),
    };
    bytes.map_or_else(Action::Broken, Action::Send)
}

fn request(send: &HttpCheckSend, files: &dyn Files) -> Action {
    match Request::compile(send, files) {
        Ok(request) => Action::Request(Box::new(request)),
        Err(error) => Action::Broken(error.to_string()),
    }
}

impl Request {
    fn compile(send: &HttpCheckSend, files: &dyn Files) -> Result<Request, RuleError> {
        let text = |text: &CheckText| match text {
            CheckText::Plain(text) => Ok(Bytes::Plain(text.as_bytes().to_vec())),
            CheckText::Format(text) => check_format(text, files).map(Bytes::Format),
        };
        let plain = |(name, value): &(String, String)| (name.to_ascii_lowercase(), Bytes::Plain(value.clone().into()));
        let mut fields: Vec<_> = send.old_headers.iter().map(plain).collect();
        for (name, value) in &send.headers {
            fields.push((name.to_ascii_lowercase(), Bytes::Format(check_format(value, files)?)));
        }
        // The framing is ours to write.
        fields.retain(|(name, _)| !["content-length", "transfer-encoding"].contains(&name.as_str()));
        Ok(Request {
            method: send.method.clone(),
            uri: text(&send.uri)?,
            version: send.version.clone(),
            fields,
            body: send.body.as_ref().map(text).transpose()?,
            to: ResponseTo { method: Method::of(send.method.as_bytes()), ..ResponseTo::default() },
        })
    }
}

fn expect_action(kind: ScriptKind, expect: &CheckExpect, files: &dyn Files) -> Action {
    match Expectation::compile(kind, expect, files) {
        Ok(expectation) => Action::Expect(Box::new(expectation)),
        Err(error) => Action::Broken(error),
    }
}

impl Expectation {
    /// One that fails and succeeds as is usual.
    pub(crate) fn new(matching: Matching) -> Expectation {
        Expectation {
            matching,
            negated: false,
            min_recv: None,
            ok: Status::L7Ok,
            error: None,
            timeout: Status::L7Timeout,
            on_success: None,
            on_error: None,
            code: None,
            describe: None,
            describes_success: false,
            success: None,
            count: None,
            is_last: false,
        }
    }

    fn compile(kind: ScriptKind, expect: &CheckExpect, files: &dyn Files) -> Result<Expectation, String> {
        let CheckExpect { negated, kind: what, pattern, .. } = expect;
        let matching = match kind {
            ScriptKind::Http => Matching::Http(Expect::compile(*negated, what, pattern, files)?),
            ScriptKind::Connect | ScriptKind::Tcp | ScriptKind::Protocol => {
                Matching::Raw(RawMatch::compile(what, pattern, files)?)
            }
        };
        let status = |word: &Option<String>| word.as_deref().and_then(Status::of_word);
        let format = |text: &Option<String>| match text {
            Some(text) => check_format(text, files).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        };
        let code = expect.status_code.as_deref().map(|text| check_expression(text, files)).transpose();
        Ok(Expectation {
            negated: *negated,
            min_recv: expect.min_recv.map(|bytes| bytes as usize),
            ok: status(&expect.ok_status).unwrap_or(Status::L7Ok),
            error: status(&expect.error_status),
            timeout: status(&expect.timeout_status).unwrap_or(Status::L7Timeout),
            on_success: format(&expect.on_success)?,
            on_error: format(&expect.on_error)?,
            code: code.map_err(|error| error.to_string())?,
            ..Expectation::new(matching)
        })
    }
}

#[cfg(test)]
mod tests {
    use baton_rules::NoFiles;

    use super::*;

    /// Steps as words: `c`, `s`, `r`, `e`, `v`, with their number; `*`: its words describe the result.
    fn check(kind: ScriptKind, lines: &[CheckStep], expect: &str) {
        let mut steps = compiled(kind, lines, &NoFiles);
        mark_last(&mut steps);
        let word = |step: &Step| {
            let letter = match &step.action {
                Action::Connect(connect) => format!("c{}", connect.index),
                Action::Send(_) => "s".into(),
                Action::Request(_) => "r".into(),
                Action::Expect(expectation) => if expectation.is_last { "e*" } else { "e" }.into(),
                Action::Set(_) | Action::Unset(_) => "v".into(),
                Action::Broken(reason) => format!("broken: {reason}"),
            };
            let number = step.number.map_or("-".into(), |number| number.to_string());
            format!("{number}{letter}{}", step.comment.as_deref().unwrap_or_default())
        };
        assert_eq!(steps.iter().map(word).collect::<Vec<_>>().join(" "), expect);
    }

    fn expect(kind: &str, word: &str) -> CheckStep {
        CheckStep::Expect(CheckExpect { kind: kind.into(), pattern: vec![word.into()], ..CheckExpect::default() })
    }

    #[test]
    fn what_is_implied_is_added() {
        let send = || CheckStep::Send(HttpCheckSend::default());
        let connect = || CheckStep::Connect(CheckConnect::default());
        check(ScriptKind::Http, &[], "-c0 -r -e*");
        check(ScriptKind::Http, &[send()], "-c0 1r -e*");
        check(ScriptKind::Http, &[expect("status", "200")], "-c0 -r 1e*");
        check(ScriptKind::Http, &[send(), expect("status", "200"), expect("string", "x")], "-c0 1r 2e 3e*");
        check(
            ScriptKind::Http,
            &[connect(), send(), expect("status", "200"), connect(), send()],
            "1c0 2r 3e 4c1 5r -e*",
        );
        check(ScriptKind::Tcp, &[], "-c0");
        check(ScriptKind::Tcp, &[expect("string", "a")], "-c0 1e*");
        check(ScriptKind::Tcp, &[CheckStep::Comment("x".into()), expect("string", "a")], "-c0 2e*x");
        let set = CheckStep::SetVariable { target: "check.a".into(), value: CheckText::Plain("int(1)".into()) };
        check(ScriptKind::Tcp, &[set.clone(), connect(), expect("string", "a"), set], "1v 2c0 3e* 4v");
        check(
            ScriptKind::Tcp,
            &[expect("rstring", "(")],
            "-c0 1broken: '(': regex parse error:\n    (\n    ^\nerror: unclosed group",
        );
    }
}
