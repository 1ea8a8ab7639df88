//! A proxy's rules, compiled; and what evaluating them decides.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use baton_http::FieldsView;
use baton_model::{Mode, Proxy, Role, Rule as Line, Ruleset, Service, Source, UserList};

use crate::acl::{Acl, Criterion};
use crate::action::{self, Action, RedirectRule, RedirectValue, ResponseRule, Rule, RuleArguments, sets};
use crate::capture::{CaptureSide, CaptureSlots, Captures, SlotLines};
use crate::compiled::Recorder;
use crate::condition::{Condition, Surroundings};
use crate::context::{Context, RuleLine};
use crate::expr::Expr;
use crate::fetch::auth;
use crate::format::{Format, FormatUse};
use crate::forwarded::Forwarded;
use crate::outside::{Files, NameReference};
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleDiagnostic, RuleError};
use crate::reply::{Redirect, RuleResponse};
use crate::sample::Sample;
use crate::stick::StickRule;
use crate::units;
use crate::wait::{RuleCursor, RuleWait};

/// The rules of one proxy. Sets without rules are empty lists and cost one test of a length.
#[derive(Clone, Debug, Default)]
pub struct ProxyRules {
    /// What is not wrong but probably not meant, in the order of the rule sets.
    pub warnings: Vec<RuleDiagnostic>,
    /// The proxies and servers that expressions name, each with its line; the caller knows which there are.
    pub references: Vec<(Source, NameReference)>,
    /// `tcp-request inspect-delay`: how long content rules may wait for data.
    pub inspect_delay: Option<Duration>,
    /// `tcp-response inspect-delay`, likewise.
    pub response_inspect_delay: Option<Duration>,
    /// A digest of all that they were compiled from: words, and what those had read.
    pub(crate) compiled_from: u64,
    /// The lists of users that conditions ask for and that have hashes of passwords.
    hashed_users: Vec<Arc<UserList>>,
    acls: Arc<Vec<Acl>>,
    http_request: Vec<Rule>,
    http_response: Vec<Rule>,
    http_after_response: Vec<Rule>,
    tcp_connection: Vec<Rule>,
    tcp_session: Vec<Rule>,
    tcp_content: Vec<Rule>,
    tcp_response: Vec<Rule>,
    use_backend: Vec<(Format, Option<Condition>)>,
    use_server: Vec<(Format, Option<Condition>)>,
    redirect: Vec<(RedirectRule, Option<Condition>)>,
    http_error: Vec<ResponseRule>,
    monitor_fail: Vec<Condition>,
    force_persist: Vec<Condition>,
    ignore_persist: Vec<Condition>,
    stick: Vec<StickRule>,
    stats_request: Vec<Rule>,
    stats_admin: Vec<Condition>,
    balance_key: Option<Expr>,
    captures: CaptureSlots,
    log_format: Option<Format>,
    log_format_sd: Option<Format>,
    error_log_format: Option<Format>,
    unique_id_format: Option<Format>,
    forwarded: Option<Forwarded>,
    names_source_address: bool,
}

/// What a rule set decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No rule decided: go on.
    Continue,
    /// `allow`, `accept`: go on, the rest of the set was skipped.
    Allow,
    /// Answer this error.
    Deny(RuleResponse),
    /// Answer this error after `timeout tarpit`.
    Tarpit(RuleResponse),
    /// Answer this redirection.
    Redirect(Redirect),
    /// Answer this.
    Return(RuleResponse),
    /// Ask for a user and a password, of this realm if it is given.
    Auth(Option<Arc<str>>),
    /// Give the request to this service.
    UseService(Service),
    /// Close without an answer.
    Reject,
    /// Close the server's connection; the response is what is there of it.
    Close,
    /// Forget the client's connection without telling the client; with a TTL by a reset that gets as far as that.
    SilentDrop(Option<u8>),
    /// Go on in `mode http`.
    SwitchMode,
    /// The request is malformed for `normalize-uri … strict`: answer 400.
    Invalid,
    /// A rewrite failed, and `strict-mode` is on: answer 500. What the rule was to change must not go on unchanged.
    Failed,
    /// Evaluate again, from where the cursor is, when this has come.
    Wait(RuleWait),
}

/// Whether there is anything to compile in a proxy: of one without rules the result is [`ProxyRules::default`].
pub fn has_rules(proxy: &Proxy) -> bool {
    !proxy.rules.is_empty() || proxy.balance.algorithm.expression().is_some()
}

/// Compiles all rules of a proxy and gives all problems at once, in the order of the rule sets.
pub fn compile(proxy: &Proxy, files: &dyn Files) -> Result<ProxyRules, Vec<RuleDiagnostic>> {
    let recorder = Recorder::new(proxy, files);
    let (rules, problems, warnings) = (ProxyRules::default(), Vec::new(), Vec::new());
    let slots = SlotLines::of(proxy);
    let mut compiler = Compiler { proxy, files: &recorder, slots, rules, problems, warnings };
    compiler.run();
    recorder.settle_own();
    let Compiler { rules, problems, .. } = compiler;
    match problems.is_empty() {
        true => Ok(ProxyRules {
            names_source_address: names_source_address(proxy),
            compiled_from: recorder.digest(),
            hashed_users: recorder.hashed_users(),
            ..rules
        }),
        false => Err(problems),
    }
}

/// Whether a text of a proxy's rules has `%bi` or `%bp`: asking the system for the address costs a call.
fn names_source_address(proxy: &Proxy) -> bool {
    let tags = ["%bi", "%bp", "}bi", "}bp", ")bi", ")bp"];
    proxy.rules.values().flatten().flat_map(|rule| &rule.words).any(|word| tags.iter().any(|tag| word.contains(tag)))
}

struct Compiler<'a> {
    proxy: &'a Proxy,
    files: &'a Recorder<'a>,
    slots: SlotLines,
    rules: ProxyRules,
    problems: Vec<RuleDiagnostic>,
    warnings: Vec<LocatedError>,
}

impl Compiler<'_> {
    fn run(&mut self) {
        let request = match self.proxy.role.is_backend() {
            true => RulePosition::BackendRequest,
            false => RulePosition::FrontendRequest,
        };
        let mut acls = Vec::new();
        self.each(Ruleset::Acl, |it, line| it.acl(line, &mut acls));
        self.rules.acls = Arc::new(acls);
        self.files.know_acls(&self.rules.acls);
        self.each(Ruleset::Capture, |it, line| it.slots.judge(line));
        self.rules.captures = self.slots.slots();
        self.actions(Ruleset::TcpConnection, RulePosition::Connection, sets::CONNECTION, "tcp-request connection");
        self.actions(Ruleset::TcpSession, RulePosition::Connection, sets::SESSION, "tcp-request session");
        self.actions(Ruleset::TcpContent, request, sets::CONTENT, "tcp-request content");
        self.actions(Ruleset::HttpRequest, request, sets::REQUEST, "http-request");
        self.actions(Ruleset::StatsRequest, request, sets::STATS, "stats http-request");
        self.actions(Ruleset::TcpResponse, RulePosition::Response, sets::TCP_RESPONSE, "tcp-response content");
        self.actions(Ruleset::HttpResponse, RulePosition::Response, sets::RESPONSE, "http-response");
        self.actions(Ruleset::HttpAfterResponse, RulePosition::Response, sets::AFTER, "http-after-response");
        self.each(Ruleset::Redirect, |it, line| it.redirect(line, request));
        self.each(Ruleset::UseBackend, |it, line| {
            let named = it.named(line, "a backend", request)?;
            it.rules.use_backend.push(named);
            Ok(())
        });
        self.each(Ruleset::UseServer, |it, line| {
            let named = it.named(line, "a server", request)?;
            it.rules.use_server.push(named);
            Ok(())
        });
        self.each(Ruleset::HttpError, Self::http_error);
        if let Some(text) = self.proxy.balance.algorithm.expression() {
            // A fault in it is the reader's to report: the line is none of a rule set.
            self.rules.balance_key = Expr::compile(&text, RulePosition::BackendRequest, self.files).ok();
        }
        self.each(Ruleset::Stick, |it, line| {
            let proxy = &it.proxy.name;
            let rule = StickRule::compile(&line.words, proxy, &mut it.around(line, request))?;
            it.rules.stick.push(rule);
            Ok(())
        });
        for set in [Ruleset::MonitorFail, Ruleset::ForcePersist, Ruleset::IgnorePersist, Ruleset::StatsAdmin] {
            self.each(set, |it, line| it.bare_condition(set, line, request));
        }
        self.formats(request);
        self.each(Ruleset::Forwarded, |it, line| {
            it.rules.forwarded = Some(Forwarded::compile(&line.words, it.files)?);
            Ok(())
        });
    }

    /// The formats of log lines and of unique IDs.
    fn formats(&mut self, request: RulePosition) {
        let http = self.proxy.mode == Mode::Http;
        let line = (RulePosition::Log, FormatUse::Line { http });
        self.format(Ruleset::LogFormat, line, |rules| &mut rules.log_format);
        self.format(Ruleset::LogFormatSd, line, |rules| &mut rules.log_format_sd);
        self.format(Ruleset::ErrorLogFormat, line, |rules| &mut rules.error_log_format);
        let unique = (request, FormatUse::UniqueId);
        self.format(Ruleset::UniqueIdFormat, unique, |rules| &mut rules.unique_id_format);
    }

    fn format(
        &mut self,
        set: Ruleset,
        (place, use_): (RulePosition, FormatUse),
        field: fn(&mut ProxyRules) -> &mut Option<Format>,
    ) {
        self.each(set, |it, line| {
            let text = line.words.first().map_or("", String::as_str);
            let format = Format::compile_for(text, place, use_, it.files);
            *field(&mut it.rules) = Some(format.map_err(|fault| fault.at(0))?);
            Ok(())
        });
    }

    /// Compiles each rule of a set and keeps its problems and warnings with their place.
    fn each(&mut self, set: Ruleset, mut one: impl FnMut(&mut Self, &Line) -> Result<(), LocatedError>) {
        let proxy = self.proxy;
        for rule in proxy.rules(set) {
            if let Some(references) = self.files.pattern_references() {
                references.at(&rule.source);
            }
            let locate = |located: LocatedError| RuleDiagnostic {
                ruleset: set,
                source: rule.source.clone(),
                word: located.word.min(rule.words.len()),
                message: located.fault.message,
                hint: located.fault.hint,
            };
            if let Err(located) = one(self, rule) {
                self.problems.push(locate(located));
            }
            self.rules.warnings.extend(self.warnings.drain(..).map(locate));
            let references = self.files.references().into_iter();
            self.rules.references.extend(references.map(|reference| (rule.source.clone(), reference)));
        }
    }

    fn around<'s>(&'s mut self, line: &'s Line, place: RulePosition) -> Surroundings<'s> {
        Surroundings {
            acls: &self.rules.acls,
            source: &line.source,
            place,
            files: self.files,
            slots: &self.slots,
            warnings: &mut self.warnings,
        }
    }

    fn acl(&mut self, line: &Line, acls: &mut Vec<Acl>) -> Result<(), LocatedError> {
        let words = &line.words;
        let Some(name) = words.first() else {
            return Err(RuleError::new("an ACL's name is missing").at(0));
        };
        if let Some(char) = name.chars().find(|char| !(char.is_ascii_alphanumeric() || "_-.:".contains(*char))) {
            return Err(RuleError::new(format!("'{char}' is not allowed in an ACL name"))
                .hint("use letters, digits, '_', '-', '.' and ':'")
                .at(0));
        }
        if matches!(name.as_str(), "or" | "if" | "unless") {
            return Err(RuleError::new(format!(
                "'{name}' is a keyword of conditions and cannot be the name of an ACL"
            ))
            .at(0));
        }
        let criterion = Criterion::compile(&words[1..], self.files)
            .map_err(|located| LocatedError { word: located.word + 1, ..located })?;
        if !criterion.has_patterns() {
            let fault = RuleError::new("this has no pattern and never matches");
            self.warnings.push(fault.hint("use '-m found' to test that there is a value").at(1));
        }
        match acls.iter_mut().find(|acl| *acl.name == **name) {
            Some(acl) => acl.criteria.push(criterion),
            None => {
                acls.push(Acl { name: name.as_str().into(), source: line.source.clone(), criteria: vec![criterion] })
            }
        }
        Ok(())
    }

    fn actions(&mut self, set: Ruleset, place: RulePosition, bit: u8, keyword: &str) {
        self.each(set, |it, line| {
            let words = &line.words;
            if words.first().is_some_and(|word| word == "inspect-delay") {
                match set {
                    Ruleset::TcpContent => it.rules.inspect_delay = Some(inspect_delay(words)?),
                    Ruleset::TcpResponse => it.rules.response_inspect_delay = Some(inspect_delay(words)?),
                    _ => return Err(RuleError::new(format!("'{keyword}' has no action 'inspect-delay'")).at(0)),
                }
                return Ok(());
            }
            let mut around = it.around(line, place);
            let rule = Rule::compile(words, bit, keyword, &mut around)?;
            if matches!(rule.action, Action::SwitchMode) && it.proxy.role == Role::Backend {
                return Err(RuleError::new("'switch-mode' can be used in a frontend only").at(0));
            }
            let list = match set {
                Ruleset::HttpRequest => &mut it.rules.http_request,
                Ruleset::StatsRequest => &mut it.rules.stats_request,
                Ruleset::HttpResponse => &mut it.rules.http_response,
                Ruleset::HttpAfterResponse => &mut it.rules.http_after_response,
                Ruleset::TcpConnection => &mut it.rules.tcp_connection,
                Ruleset::TcpSession => &mut it.rules.tcp_session,
                Ruleset::TcpContent => &mut it.rules.tcp_content,
                _ => &mut it.rules.tcp_response,
            };
            if list.last().is_some_and(Rule::is_final) {
                it.warnings.push(
                    RuleError::new(
                        "this rule is never reached: the rule before it always ends the \
                                                 evaluation",
                    )
                    .at(0),
                );
            }
            list.push(rule);
            Ok(())
        });
    }

    fn redirect(&mut self, line: &Line, place: RulePosition) -> Result<(), LocatedError> {
        let words = &line.words;
        let mut around = self.around(line, place);
        let mut input = RuleArguments { words, at: 0, set: sets::REQUEST, argument: None, around: &mut around };
        let rule = RedirectRule::parse(&mut input, RedirectValue::Plain)?;
        let at = input.at;
        let condition = Condition::compile(words, at, &mut around)?;
        self.rules.redirect.push((rule, condition));
        Ok(())
    }

    fn http_error(&mut self, line: &Line) -> Result<(), LocatedError> {
        let words = &line.words;
        let mut around = self.around(line, RulePosition::ErrorPage);
        let mut input = RuleArguments { words, at: 0, set: sets::REQUEST, argument: None, around: &mut around };
        let rule = action::http_error(&mut input)?;
        self.rules.http_error.push(rule);
        Ok(())
    }

    fn named(
        &mut self,
        line: &Line,
        what: &str,
        place: RulePosition,
    ) -> Result<(Format, Option<Condition>), LocatedError> {
        let words = &line.words;
        let mut around = self.around(line, place);
        let name = words.first().ok_or_else(|| RuleError::new(format!("the name of {what} is missing")).at(0))?;
        let format = Format::compile(name, place, around.files).map_err(|fault| fault.at(0))?;
        Ok((format, Condition::compile(words, 1, &mut around)?))
    }

    fn bare_condition(&mut self, set: Ruleset, line: &Line, place: RulePosition) -> Result<(), LocatedError> {
        let words = &line.words;
        let mut around = self.around(line, place);
        let condition = Condition::compile(words, 0, &mut around)?.ok_or_else(|| {
            RuleError::new("a condition is missing").hint("add 'if' or 'unless' with a condition").at(0)
        })?;
        match set {
            Ruleset::MonitorFail => self.rules.monitor_fail.push(condition),
            Ruleset::ForcePersist => self.rules.force_persist.push(condition),
            Ruleset::StatsAdmin => self.rules.stats_admin.push(condition),
            _ => self.rules.ignore_persist.push(condition),
        }
        Ok(())
    }
}

/// The longest wait for data.
fn inspect_delay(words: &[String]) -> Result<Duration, LocatedError> {
    let text = words.get(1).ok_or_else(|| RuleError::new("the delay is missing").at(1))?;
    match words.get(2) {
        Some(word) => Err(RuleError::new(format!("unexpected argument '{word}'")).at(2)),
        None => units::time(text).map_err(|fault| fault.at(1)),
    }
}

impl ProxyRules {
    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.http_request.is_empty()
            && self.http_response.is_empty()
            && self.http_after_response.is_empty()
            && self.tcp_connection.is_empty()
            && self.tcp_session.is_empty()
            && self.tcp_content.is_empty()
            && self.tcp_response.is_empty()
            && self.use_backend.is_empty()
            && self.use_server.is_empty()
            && self.redirect.is_empty()
            && self.http_error.is_empty()
            && self.monitor_fail.is_empty()
            && self.force_persist.is_empty()
            && self.ignore_persist.is_empty()
            && self.stick.is_empty()
            && self.stats_request.is_empty()
            && self.stats_admin.is_empty()
            && self.captures.is_empty()
            && self.log_format.is_none()
            && self.log_format_sd.is_none()
            && self.error_log_format.is_none()
            && self.unique_id_format.is_none()
            && self.forwarded.is_none()
    }

    /// Whether a set has rules, so that a caller need not even build a [`Context`].
    pub fn has(&self, set: Ruleset) -> bool {
        !match set {
            Ruleset::Acl => self.acls.is_empty(),
            Ruleset::HttpRequest => self.http_request.is_empty(),
            Ruleset::HttpResponse => self.http_response.is_empty(),
            Ruleset::HttpAfterResponse => self.http_after_response.is_empty(),
            Ruleset::TcpConnection => self.tcp_connection.is_empty(),
            Ruleset::TcpSession => self.tcp_session.is_empty(),
            Ruleset::TcpContent => self.tcp_content.is_empty(),
            Ruleset::TcpResponse => self.tcp_response.is_empty(),
            Ruleset::UseBackend => self.use_backend.is_empty(),
            Ruleset::UseServer => self.use_server.is_empty(),
            Ruleset::Redirect => self.redirect.is_empty(),
            Ruleset::HttpError => self.http_error.is_empty(),
            Ruleset::MonitorFail => self.monitor_fail.is_empty(),
            Ruleset::ForcePersist => self.force_persist.is_empty(),
            Ruleset::IgnorePersist => self.ignore_persist.is_empty(),
            Ruleset::Stick => self.stick.is_empty(),
            Ruleset::StatsRequest => self.stats_request.is_empty(),
            Ruleset::StatsAdmin => self.stats_admin.is_empty(),
            Ruleset::Capture => self.captures.is_empty(),
            Ruleset::LogFormat => self.log_format.is_none(),
            Ruleset::LogFormatSd => self.log_format_sd.is_none(),
            Ruleset::ErrorLogFormat => self.error_log_format.is_none(),
            Ruleset::UniqueIdFormat => self.unique_id_format.is_none(),
            Ruleset::Forwarded => self.forwarded.is_none(),
        }
    }

    /// Whether an expression asks for a rate, which is measured only where it is.
    pub fn asks_for_rates(&self) -> bool {
        self.references.iter().any(|(_, reference)| reference.asks_for_rate)
    }

    /// Whether conditions may ask for the comparison of a password with a hash, which takes long.
    #[inline]
    pub fn asks_for_hashes(&self) -> bool {
        !self.hashed_users.is_empty()
    }

    /// The hashes that conditions will ask to compare the request's password with: to be compared beforehand, where that delays nobody else.
    pub fn hashes_to_compare(&self, cx: &Context<'_>) -> Vec<(Arc<str>, Vec<u8>)> {
        auth::hashes_to_compare(cx, &self.hashed_users)
    }

    /// Whether there are rules between a request's head and the choice of a backend: `tcp-request content`, `http-request`,
    /// `redirect`.
    #[inline]
    pub fn judge_requests(&self) -> bool {
        !(self.tcp_content.is_empty() && self.http_request.is_empty() && self.redirect.is_empty())
    }

    /// Whether there are rules about responses: `http-response`, `http-after-response`.
    #[inline]
    pub fn judge_responses(&self) -> bool {
        !(self.http_response.is_empty() && self.http_after_response.is_empty())
    }

    /// `http-request` rules.
    pub fn http_request(&self, cx: &mut Context<'_>, at: &mut RuleCursor) -> Verdict {
        self.run(&self.http_request, cx, at)
    }

    /// `http-response` rules. `req.` variables end before them.
    pub fn http_response(&self, cx: &mut Context<'_>, at: &mut RuleCursor) -> Verdict {
        if at.next == 0 {
            cx.variables.end_request();
        }
        self.run(&self.http_response, cx, at)
    }

    /// `http-after-response` rules: for every answer, also for our own. Only `Continue`, `Allow` and `Failed` come out.
    pub fn http_after_response(&self, cx: &mut Context<'_>) -> Verdict {
        self.run(&self.http_after_response, cx, &mut RuleCursor::default())
    }

    /// The response of the last `http-error` rule for a status, which may look at a request.
    pub fn http_error(&self, status: u16, cx: &mut Context<'_>) -> Option<RuleResponse> {
        self.http_error.iter().rev().find(|rule| rule.status() == status).map(|rule| rule.make(cx))
    }

    /// `tcp-request connection` rules: `Continue`, `Allow` or `Reject`.
    pub fn tcp_connection(&self, cx: &mut Context<'_>) -> Verdict {
        self.run(&self.tcp_connection, cx, &mut RuleCursor::default())
    }

    /// `tcp-request session` rules: `Continue`, `Allow` or `Reject`.
    pub fn tcp_session(&self, cx: &mut Context<'_>) -> Verdict {
        self.run(&self.tcp_session, cx, &mut RuleCursor::default())
    }

    /// `tcp-request content` rules: `Continue`, `Allow`, `Reject` or `Wait`. As in HAProxy, all of them are evaluated again when
    /// there is more data; after another wait they go on from `at`.
    pub fn tcp_content(&self, cx: &mut Context<'_>, at: &mut RuleCursor) -> Verdict {
        self.inspect(&self.tcp_content, cx, at)
    }

    /// `tcp-response content` rules: `Continue`, `Allow`, `Reject` or `Wait`, likewise.
    pub fn tcp_response(&self, cx: &mut Context<'_>) -> Verdict {
        self.inspect(&self.tcp_response, cx, &mut RuleCursor::default())
    }

    /// The first `redirect` rule that applies. They come after the `http-request` rules.
    pub fn redirect(&self, cx: &Context<'_>) -> Option<Redirect> {
        self.redirect.iter().filter(|(_, condition)| self.applies(condition, cx)).find_map(|(rule, _)| rule.make(cx))
    }

    /// The name from the first `use_backend` rule that applies. A computed name that no backend has means
    /// `default_backend`, as in HAProxy 2.6.
    pub fn backend<'c>(&'c self, cx: &Context<'_>) -> Option<Cow<'c, str>> {
        self.use_backend.iter().find(|(_, condition)| self.applies(condition, cx)).map(|(name, _)| text(name, cx))
    }

    /// The name from the first `use-server` rule that applies and whose server `usable` accepts.
    pub fn server<'c>(&'c self, cx: &Context<'_>, usable: &mut dyn FnMut(&str) -> bool) -> Option<Cow<'c, str>> {
        self.use_server
            .iter()
            .filter(|(_, condition)| self.applies(condition, cx))
            .map(|(name, _)| text(name, cx))
            .find(|name| usable(name))
    }

    /// `stick` rules, in the order of the file.
    pub fn stick(&self) -> &[StickRule] {
        &self.stick
    }

    /// The key of one of them, if its condition holds and there is one.
    pub fn stick_key<'c>(&'c self, rule: &'c StickRule, cx: &'c Context<'_>) -> Option<Sample<'c>> {
        rule.key(&self.acls, cx)
    }

    /// `stats http-request` rules: `Continue`, `Allow`, `Deny` or `Auth`.
    pub fn stats_request(&self, cx: &mut Context<'_>) -> Verdict {
        self.run(&self.stats_request, cx, &mut RuleCursor::default())
    }

    /// Whether `stats admin` applies: who sees the statistics page may change servers by it.
    pub fn stats_admin(&self, cx: &Context<'_>) -> bool {
        self.stats_admin.iter().any(|condition| self.matches(condition, cx))
    }

    /// Whether `monitor fail` applies: the answer to `monitor-uri` is then 503.
    pub fn monitor_fail(&self, cx: &Context<'_>) -> bool {
        self.monitor_fail.iter().any(|condition| self.matches(condition, cx))
    }

    /// Whether persistence holds even for a server that is down.
    pub fn force_persist(&self, cx: &Context<'_>) -> bool {
        self.force_persist.iter().any(|condition| self.matches(condition, cx))
    }

    /// Whether the request's persistence cookie is ignored.
    pub fn ignore_persist(&self, cx: &Context<'_>) -> bool {
        self.ignore_persist.iter().any(|condition| self.matches(condition, cx))
    }

    /// Whether `balance hash` has an expression.
    pub fn has_balance_key(&self) -> bool {
        self.balance_key.is_some()
    }

    /// Gives `with` what `balance hash` hashes; `None` when there is no such sample.
    pub fn balance_key<T>(&self, cx: &Context<'_>, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        Some(with(&self.balance_key.as_ref()?.eval(cx)?.into_bytes()))
    }

    /// Whether parts of messages are captured.
    #[inline]
    pub fn has_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Captures from the fields of a message, before rules change them. The request begins.
    pub fn capture(&self, side: CaptureSide, fields: FieldsView<'_>, captures: &mut Captures) {
        self.captures.fill(side, fields, captures);
    }

    /// Captures the cookie of a message, behind its rules.
    pub fn capture_cookie(&self, side: CaptureSide, fields: FieldsView<'_>, captures: &mut Captures) {
        self.captures.fill_cookie(side, fields, captures);
    }

    /// Makes the slots of a connection in `mode tcp`, which rules fill.
    pub fn begin_captures(&self, captures: &mut Captures) {
        captures.begin(&self.captures);
    }

    /// `log-format`.
    pub fn log_format(&self) -> Option<&Format> {
        self.log_format.as_ref()
    }

    /// `log-format-sd`.
    pub fn log_format_sd(&self) -> Option<&Format> {
        self.log_format_sd.as_ref()
    }

    /// `error-log-format`.
    pub fn error_log_format(&self) -> Option<&Format> {
        self.error_log_format.as_ref()
    }

    /// `unique-id-format`.
    pub fn unique_id_format(&self) -> Option<&Format> {
        self.unique_id_format.as_ref()
    }

    /// The value of the header field Forwarded for a request (`option forwarded`); empty if there is nothing to say.
    pub fn forwarded(&self, cx: &Context<'_>) -> Vec<u8> {
        self.forwarded.as_ref().map(|option| option.value(cx)).unwrap_or_default()
    }

    /// Whether log lines or rules have the address that servers are connected from.
    #[inline]
    pub fn names_source_address(&self) -> bool {
        self.names_source_address
    }

    /// Whether a condition of this proxy holds.
    pub fn matches(&self, condition: &Condition, cx: &Context<'_>) -> bool {
        condition.holds(&self.acls, cx)
    }

    /// Compiles a condition (`if …` or `unless …`) against this proxy's ACLs, for keywords other crates own.
    pub fn condition(
        &self,
        words: &[String],
        place: RulePosition,
        files: &dyn Files,
    ) -> Result<Option<Condition>, RuleError> {
        let mut warnings = Vec::new();
        let source = Source { line: u32::MAX, ..Source::default() };
        let slots = SlotLines::default();
        let mut around =
            Surroundings { acls: &self.acls, source: &source, place, files, slots: &slots, warnings: &mut warnings };
        Condition::compile(words, 0, &mut around).map_err(|located| located.fault)
    }

    fn applies(&self, condition: &Option<Condition>, cx: &Context<'_>) -> bool {
        condition.as_ref().is_none_or(|condition| self.matches(condition, cx))
    }

    fn run(&self, rules: &[Rule], cx: &mut Context<'_>, at: &mut RuleCursor) -> Verdict {
        for (index, Rule { action, condition, line }) in rules.iter().enumerate().skip(at.next) {
            if !self.applies(condition, cx) {
                continue;
            }
            match action {
                Action::Strict(strict) => at.is_strict = *strict,
                Action::Hint(_) => {
                    let (fields, count) = hints(&rules[index..], cx);
                    at.next = index + count;
                    return Verdict::Wait(RuleWait::Hints(fields));
                }
                _ => match action.run(cx) {
                    Verdict::Continue => {}
                    Verdict::Failed if !at.is_strict => {}
                    verdict => {
                        at.next = index + 1;
                        line.note(&verdict, cx);
                        return verdict;
                    }
                },
            }
        }
        at.next = rules.len();
        Verdict::Continue
    }

    /// Evaluates rules about data that may not be there yet.
    fn inspect(&self, rules: &[Rule], cx: &mut Context<'_>, at: &mut RuleCursor) -> Verdict {
        for (index, Rule { action, condition, line }) in rules.iter().enumerate().skip(at.next) {
            let holds = condition.as_ref().map_or(Some(true), |condition| condition.decides(&self.acls, cx));
            match holds {
                None => {
                    at.next = 0;
                    return Verdict::Wait(RuleWait::Data);
                }
                Some(false) => {}
                Some(true) => match action.run(cx) {
                    Verdict::Continue => {}
                    verdict => {
                        at.next = index + 1;
                        line.note(&verdict, cx);
                        return verdict;
                    }
                },
            }
        }
        Verdict::Continue
    }
}

impl RuleLine {
    /// Notes the rule as the last one if it ended its set.
    fn note(self, verdict: &Verdict, cx: &mut Context<'_>) {
        if !matches!(verdict, Verdict::Wait(_)) {
            cx.last_rule = Some(self);
        }
    }
}

/// The fields of one 103 response: of the first rule, and of those that follow it without a condition. And how many rules that are.
fn hints(rules: &[Rule], cx: &mut Context<'_>) -> (Vec<u8>, usize) {
    let (mut fields, mut count) = (Vec::new(), 0);
    for rule in rules {
        match &rule.action {
            Action::Hint(hint) if count == 0 || rule.condition.is_none() => hint.write(cx, &mut fields),
            _ => break,
        }
        count += 1;
    }
    (fields, count)
}

fn text<'c>(format: &'c Format, cx: &Context<'_>) -> Cow<'c, str> {
    match format.constant() {
        Some(constant) => String::from_utf8_lossy(constant),
        None => {
            let mut out = Vec::new();
            format.write(cx, &mut out);
            Cow::Owned(String::from_utf8_lossy(&out).into_owned())
        }
    }
}
