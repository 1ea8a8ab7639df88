//! Log formats: what is compiled, and what is written. That the values equal HAProxy's is compared with it
//! (`crates/baton/tests/differential/cases/47-log-formats.case`).

mod common;

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_model::{Mode, Role, Ruleset};
use baton_rules::{
    CaptureSide, Captures, Context, DateSpelling, ExchangeCourse, Fact, LogSource, ProxyRules, RuleCursor,
    RuleDiagnostic, Tag, UniqueId, compile,
};
use common::{GET, OK, files, proxy, with_context};

/// A log that knows a few facts.
struct Known;

impl LogSource for Known {
    fn fact(&self, tag: Tag) -> Fact {
        match tag {
            Tag::BytesRead => Fact::Begun(17),
            Tag::Status => Fact::Number(-1),
            Tag::TerminationState | Tag::TerminationStateCookie => Fact::Letters(*b"CDNI"),
            Tag::RequestCounter | Tag::Pid => Fact::Number(26),
            Tag::ServerIp | Tag::ServerPort => Fact::Address(Some("[::1]:80".parse().expect("an address"))),
            Tag::Timestamp | Tag::Milliseconds | Tag::Date | Tag::GmtDate | Tag::LocalDate => {
                Fact::Time(UNIX_EPOCH + Duration::from_millis(255_007))
            }
            _ => Fact::Absent,
        }
    }

    fn date(&self, _: SystemTime, spelling: DateSpelling, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{spelling:?}").as_bytes());
    }

    fn write_line(&self, _: &Context<'_>) {}

    fn course(&self) -> ExchangeCourse {
        ExchangeCourse::default()
    }

    fn debug_line(&self, _: &str, _: &[u8]) {}
}

/// Kept for the rest of the test: a context is lent what it looks at.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn compiled(set: Ruleset, text: &str, mode: Mode, more: &str) -> Result<ProxyRules, Vec<RuleDiagnostic>> {
    let mut proxy = proxy(Role::Listen, more);
    proxy.mode = mode;
    let source = baton_model::Source { file: "t.cfg".into(), line: 100 };
    proxy.rules.insert(set, vec![baton_model::Rule { ruleset: set, words: vec![text.into()], source }]);
    compile(&proxy, &files())
}

/// The line of the usual request, with captures and a unique ID.
fn line(text: &str) -> String {
    let rules =
        compiled(Ruleset::LogFormat, text, Mode::Http, "http-request capture path len 99").expect("it is valid");
    let unique = leaked(compiled(Ruleset::UniqueIdFormat, "%HM-%{+X}rt", Mode::Http, "").expect("it is valid"));
    with_context(GET, None, |cx| {
        let captures = leaked(RefCell::new(Captures::default()));
        rules.begin_captures(&mut captures.borrow_mut());
        captures.borrow_mut().set(CaptureSide::Request, 0, b"a\"b|c\r\nd\0\xff");
        cx.captures = Some(captures);
        let id = leaked(UniqueId::default());
        cx.unique_id = Some((id, unique.unique_id_format()));
        cx.log = &Known;
        let mut out = Vec::new();
        rules.log_format().expect("it is there").write(cx, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    })
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(line(text), expect, "{text}");
}

#[track_caller]
fn check_refused(text: &str, mode: Mode, expect: &str) {
    let problems = compiled(Ruleset::LogFormat, text, mode, "").err().unwrap_or_default();
    let shown = problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
    assert_eq!(shown, expect, "{text}");
}

#[test]
fn a_line_has_the_values_of_tags() {
    check("%B %ST %ts %tsc %rt %sp", "+17 -1 CD CDNI 26 80");
    check("%{+X}o%rt %pid %Ts %ms %cp %ci", "001A 001A 00FF 007 04D2 C0000207");
    check("%t %T %Tl", "Milliseconds Gmt Local");
    check("%si|%bi|%{+Q}bi|%H|%{+Q}H", "::1|-|\"\"|vm|\"vm\"");
    check("%f %ft %b %s %HM %HV", "fe fe be s1 GET HTTP/1.1");
    check("%ID %[unique-id] %{+Q}ID", "GET-001A GET-001A \"GET-001A\"");
    check("100%% %[int(7)]", "100% 7");
}

#[test]
fn blanks_are_merged_and_empty_values_have_a_dash() {
    check("  a   b  ", "a b ");
    check("%hs  x %CC", "x -");
    check("%[var(txn.no)]|%{+Q}[var(txn.no)]|%HQ", "-|\"\"|?x=1&y=2;z=3&x=4");
}

#[test]
fn nothing_ends_a_line() {
    check("%hr|%[capture.req.hdr(0)]", "{a#22b#7Cc#0D#0Ad#00#FF}|a\"b|c#0D#0Ad#00\u{fffd}");
    check("%{+E}[str(a\\]b)]%{+Q,+E}[capture.req.hdr(0)]", "a\\\\\\]b\"a\\\"b|c#0D#0Ad#00\u{fffd}\"");
    check("%[str(a%0ab%0d%00c),url_dec]", "a#0Ab#0D#00c");
    check("%[str(a%0ab%00c),url_dec]|%{+json}[str(a%0ab),url_dec]", "a#0Ab#00c|\"a\\nb\"");
}

#[test]
fn named_items_make_an_object() {
    check("%{+json}o left out %(bytes)B %(st:str)ST %rt", "{\"bytes\": 17, \"st\": \"-1\"}");
    check(
        "%{+json}o %(q)HQ %(no)[var(txn.no)] %(b:bool)[int(3)] %(t)[bool(false)] %(n:sint)[str(12)] %[str(x)]",
        "{\"q\": \"?x=1&y=2;z=3&x=4\", \"no\": null, \"b\": true, \"t\": false, \"n\": 12}",
    );
    check(
        "%{+json}o %(ts)tsc %(ip)ci %(hr)hr",
        "{\"ts\": \"CDNI\", \"ip\": \"192.0.2.7\", \"hr\": \"{a#22b#7Cc#0D#0Ad#00#FF}\"}",
    );
    check("%{+cbor}o %(a)rt %(b)[str(x)]", "BF6161181A61626178FF");
}

#[test]
fn what_a_line_cannot_have_is_refused() {
    check_refused("%r", Mode::Tcp, "format variable 'r' is reserved for HTTP mode");
    check_refused("%hr %ST %b", Mode::Tcp, "");
    check_refused(
        "%[req.hdr(host)]",
        Mode::Http,
        "'req.hdr' cannot be used here: it needs the request's head, which a log line does not have",
    );
    check_refused(
        "%[res.hdr(x)]",
        Mode::Http,
        "'res.hdr' cannot be used here: it needs the response's head, which a log line does not have",
    );
    check_refused("%[status] %[method] %[capture.res.ver]", Mode::Http, "");
    check_refused("%(a b)r", Mode::Http, "' ' is not allowed in the item name 'a b'");
    check_refused("%(a:int)r", Mode::Http, "unknown item type 'int'");
    check_refused("%{+Z}r", Mode::Http, "unknown flag '+Z' in '%{+Z}'");
    check_refused("a\nb", Mode::Http, "a format must be a single line");
    check_refused("%", Mode::Http, "a name or '[' is missing after '%'");
}

#[test]
fn a_unique_id_that_asks_for_itself_has_none() {
    let rules = leaked(compiled(Ruleset::UniqueIdFormat, "a%ID-%[unique-id]b", Mode::Http, "").expect("it is valid"));
    with_context(GET, Some(OK), |cx| {
        let id = leaked(UniqueId::default());
        cx.unique_id = Some((id, rules.unique_id_format()));
        assert_eq!(cx.unique_id(), Some(&b"a-b"[..]));
        assert_eq!(id.made(), Some(&b"a-b"[..]));
    });
}

#[test]
fn slots_have_the_order_of_the_file() {
    let lines = "http-request capture path len 1 ; \
                 tcp-request content capture method len 2 ; http-request capture str(xyz) id 1 if TRUE";
    let rules = common::rules(lines);
    with_context(GET, Some(OK), |cx| {
        let captures = leaked(RefCell::new(Captures::default()));
        rules.begin_captures(&mut captures.borrow_mut());
        cx.captures = Some(captures);
        rules.http_request(cx, &mut RuleCursor::default());
        let captures = captures.borrow();
        let all = |side| captures.all(side).map(|it| it.map(<[u8]>::to_vec)).collect::<Vec<_>>();
        assert_eq!(all(CaptureSide::Request), [Some(b"/".to_vec()), Some(b"xy".to_vec())]);
        assert!(all(CaptureSide::Response).is_empty());
    });
}

#[test]
fn only_log_lines_are_binary() {
    let text = "%{+bin,+cbor}o %(a)[url_param(a),url_dec]";
    check("%{+bin,+cbor}o %(a)[str(b)]", "\u{fffd}aaab\u{fffd}");
    let refused = |set, text: &str| {
        let problems = compiled(set, text, Mode::Http, "").err().unwrap_or_default();
        problems.first().map(|problem| problem.message.clone()).unwrap_or_default()
    };
    let expect = "'+bin' is for log lines: other values may not have any byte";
    assert_eq!(refused(Ruleset::UniqueIdFormat, text), expect);
    for rule in
        ["set-header x", "set-uri", "set-path", "return status 200 hdr x", "set-var-fmt(txn.x)", "capture-nothing"]
    {
        let mut proxy = proxy(Role::Listen, "");
        let source = baton_model::Source { file: "t.cfg".into(), line: 100 };
        let words = rule.split(' ').map(str::to_owned).chain([text.to_owned()]).collect();
        proxy
            .rules
            .insert(Ruleset::HttpRequest, vec![baton_model::Rule { ruleset: Ruleset::HttpRequest, words, source }]);
        let problems = compile(&proxy, &files()).err().unwrap_or_default();
        let shown = problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
        match rule {
            "capture-nothing" => assert_ne!(shown, expect),
            _ => assert_eq!(shown, expect, "{rule}"),
        }
    }
}
