//! `http-check` and `tcp-check` lines and the options that say how servers are checked (configuration manual, 4.2).

mod expect;
mod protocol;
mod step;

use baton_model::{CheckProtocol, CheckStep, CheckText, CheckType, ExternalCheck, HttpCheckSend};

use super::rows::row;
use super::{BACK, DEFAULTS, Keyword, Sections};
use crate::lower::{Call, Draft};

const BE: Sections = DEFAULTS | BACK;

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("option httpchk", BE, "[[METHOD] URI [VERSION]]", httpchk, "HTTP health checks."),
    row("option external-check", BE, "", external_check, "Health checks by a program, see 'external-check command'."),
    row("external-check command", BE, "PROGRAM", command, "The program of 'option external-check'."),
    row("external-check path", BE, "PATH", command_path, "PATH of that program."),
    row(
        "option grpc-check",
        BE,
        "[service NAME]",
        protocol::grpc,
        "Health checks by the health protocol of gRPC, of Baton: SERVING is up.",
    ),
    row("option ldap-check", BE, "", protocol::ldap, "Health checks by LDAPv3: an anonymous bind."),
    row(
        "option mysql-check",
        BE,
        "[user NAME [post-41|pre-41]]",
        protocol::mysql,
        "Health checks by MySQL's protocol: its greeting, and with a user a log-in.",
    ),
    row("option pgsql-check", BE, "user NAME", protocol::pgsql, "Health checks by PostgreSQL's protocol."),
    row("option redis-check", BE, "", protocol::redis, "Health checks by Redis' protocol: PING."),
    row("option smtpchk", BE, "[HELLO DOMAIN]", protocol::smtp, "Health checks by SMTP: HELO or EHLO, and QUIT."),
    row("option spop-check", BE, "", protocol::spop, "Health checks of agents of SPOE, in 'mode tcp'."),
    row("option ssl-hello-chk", BE, "", protocol::ssl_hello, "Health checks by a hello of SSL 3.0."),
    row("option tcp-check", BE, "", tcp_check, "Health checks by 'tcp-check' lines."),
    row("http-check comment", BE, "TEXT", step::comment, "Comment on the next step of a health check."),
    row(
        "http-check connect",
        BE,
        "[default] [port P] [addr A] [ssl] [sni S] [alpn L] [proto h1|h2] [send-proxy] [linger] [comment C]",
        step::connect,
        "Opens a connection of a health check.",
    ),
    row(
        "http-check disable-on-404",
        BE,
        "",
        disable_on_404,
        "A 404 response takes a server out of load balancing but keeps its persistent clients.",
    ),
    row(
        "http-check expect",
        BE,
        "[min-recv N] [comment C] [ok-status S] [error-status S] [tout-status S] [on-success F] [on-error F] \
         [status-code E] [!] KIND PATTERN",
        expect::expect,
        "Expected response.",
    ),
    row(
        "http-check send",
        BE,
        "[meth M] [uri U|uri-lf F] [ver V] [hdr N F]… [body B|body-lf F] [comment C]",
        step::http_send,
        "The request of a health check.",
    ),
    row("http-check send-state", BE, "", send_state, "Health checks tell a server how it is seen, in a header."),
    row(
        "http-check set-var*",
        BE,
        "(NAME[,CONDITION…]) EXPRESSION|FORMAT",
        step::set_var,
        "Variable of a health check.",
    ),
    row("http-check unset-var*", BE, "(NAME)", step::unset_var, "Forgets a variable of a health check."),
    row("tcp-check comment", BE, "TEXT", step::comment, "Comment on the next step of a health check."),
    row(
        "tcp-check connect",
        BE,
        "[default] [port P] [addr A] [ssl] [sni S] [alpn L] [send-proxy] [linger] [comment C]",
        step::connect,
        "Opens a connection of a health check.",
    ),
    row(
        "tcp-check expect",
        BE,
        "[min-recv N] [comment C] [ok-status S] [error-status S] [tout-status S] [on-success F] [on-error F] \
         [status-code E] [!] KIND PATTERN",
        expect::expect,
        "What a server has to send.",
    ),
    row("tcp-check send", BE, "TEXT [comment C]", step::send, "Sends a text."),
    row("tcp-check send-binary", BE, "DIGITS [comment C]", step::send, "Sends bytes, in hexadecimal digits."),
    row("tcp-check send-binary-lf", BE, "FORMAT [comment C]", step::send, "Sends bytes whose digits a format gives."),
    row("tcp-check send-lf", BE, "FORMAT [comment C]", step::send, "Sends what a format gives."),
    row(
        "tcp-check set-var*",
        BE,
        "(NAME[,CONDITION…]) EXPRESSION|FORMAT",
        step::set_var,
        "Variable of a health check.",
    ),
    row("tcp-check unset-var*", BE, "(NAME)", step::unset_var, "Forgets a variable of a health check."),
];

/// What `check-proto` may name for such checks: what they speak without the word comes first.
pub(crate) fn protos(kind: &CheckType) -> &'static [&'static str] {
    match kind {
        CheckType::Http(_) => &["h1", "h2"],
        CheckType::Protocol(CheckProtocol::Grpc { .. }) => &["h2"],
        CheckType::Connect | CheckType::Tcp(_) | CheckType::Protocol(_) | CheckType::External(_) => &["none"],
    }
}

/// What a section has said about checks so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckDraft {
    pub kind: CheckKind,
    pub http: StepsDraft,
    pub tcp: StepsDraft,
    /// The request of `option httpchk`.
    pub request: Option<HttpCheckSend>,
    /// `external-check command` and `external-check path`.
    pub command: Option<String>,
    pub path: Option<String>,
}

/// The option that describes a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum CheckKind {
    #[default]
    None,
    Http,
    Tcp,
    Protocol(CheckProtocol),
    External,
}

/// Lines of `http-check` or of `tcp-check`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepsDraft {
    pub steps: Vec<CheckStep>,
    /// They are of this section, not of its `defaults`.
    pub is_own: bool,
}

impl CheckDraft {
    /// A section begins with those of its `defaults`: steps hold as long as it has none of its own, and only with their option.
    pub fn begin(&mut self) {
        if self.kind != CheckKind::Http {
            (self.http.steps, self.request) = (Vec::new(), None);
        }
        if self.kind != CheckKind::Tcp {
            self.tcp.steps = Vec::new();
        }
        (self.http.is_own, self.tcp.is_own) = (false, false);
    }

    /// The lines that one more is added to.
    fn own(&mut self, is_http: bool) -> &mut Vec<CheckStep> {
        if is_http && !self.http.is_own {
            self.request = None;
        }
        let draft = if is_http { &mut self.http } else { &mut self.tcp };
        if !draft.is_own {
            *draft = StepsDraft { steps: Vec::new(), is_own: true };
        }
        &mut draft.steps
    }

    /// What it all amounts to.
    pub fn kind(&self) -> CheckType {
        match &self.kind {
            CheckKind::None => CheckType::Connect,
            CheckKind::Tcp => CheckType::Tcp(self.tcp.steps.clone()),
            CheckKind::Protocol(protocol) => CheckType::Protocol(protocol.clone()),
            CheckKind::External => CheckType::External(ExternalCheck {
                command: self.command.clone().unwrap_or_default(),
                path: self.path.clone(),
            }),
            CheckKind::Http => {
                let mut steps = self.http.steps.clone();
                let connects = steps.iter().any(|step| matches!(step, CheckStep::Connect(_)));
                if !steps.iter().any(|step| matches!(step, CheckStep::Send(_))) {
                    // The request of the option comes first, or over the connection that is asked for.
                    let is_later = |step: &CheckStep| matches!(step, CheckStep::Expect(_) | CheckStep::Comment(_));
                    let at = steps.iter().position(is_later).filter(|_| !connects).unwrap_or(steps.len());
                    steps.insert(at, CheckStep::Send(self.request.clone().unwrap_or_default()));
                }
                CheckType::Http(steps)
            }
        }
    }
}

/// Whether a line of a check is one of HTTP.
fn is_http(call: &Call<'_, '_>) -> bool {
    call.name.starts_with("http-check")
}

fn disable_on_404(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.check.disable_on_404 |= call.at_most(0);
}

fn send_state(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.check.send_state |= call.at_most(0);
}

fn tcp_check(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.check.kind = CheckKind::Tcp;
    }
}

fn external_check(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.check.kind = CheckKind::External;
    }
}

fn command(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(command) = call.only("a program as an argument") {
        draft.check.command = Some(command.into());
    }
}

fn command_path(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(path) = call.only("a list of directories as an argument") {
        draft.check.path = Some(path.into());
    }
}

/// `option httpchk`, `… URI`, `… METHOD URI`, `… METHOD URI VERSION`, with headers behind the version as in old files.
fn httpchk(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if !call.at_most(3) {
        return;
    }
    let mut request = HttpCheckSend::default();
    match call.args() {
        0 => {}
        1 => request.uri = CheckText::Plain(call.arg(0).into()),
        _ => {
            request.method = call.arg(0).into();
            request.uri = CheckText::Plain(call.arg(1).into());
        }
    }
    let mut lines = call.arg(2).split("\r\n");
    if let Some(version) = lines.next().filter(|version| !version.is_empty()) {
        request.version = version.into();
    }
    let extra: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let body: Vec<&str> = lines.collect();
    for line in &extra {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        request.old_headers.push((name.trim().into(), value.trim().into()));
    }
    if !body.is_empty() {
        request.body = Some(CheckText::Plain(body.join("\r\n")));
    }
    if call.arg(2).contains("\r\n") {
        let message = "'option httpchk' : hiding headers or body at the end of the version string is deprecated. \
                       Please, consider to use 'http-check send' directive instead.";
        call.warn(call.first + 2, "deprecated", message.into());
    }
    draft.check.kind = CheckKind::Http;
    // The first request was written before.
    if let Some(CheckStep::Send(first)) =
        draft.check.own(true).iter_mut().find(|step| matches!(step, CheckStep::Send(_)))
    {
        (first.method, first.uri, first.version) =
            (request.method.clone(), request.uri.clone(), request.version.clone());
    }
    draft.check.request = Some(request);
}
