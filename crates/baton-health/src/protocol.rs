//! Checks of protocols that have an option of their own: what is sent, and how the responses are judged. They are steps like those of
//! `tcp-check` lines. What results are called was found by asking HAProxy 2.6.

pub(crate) mod grpc;
mod ldap;
mod mysql;
mod smtp;
mod spop;
mod tls;

use baton_model::{CheckConnect, CheckProtocol, ServerProtocol};
use regex::bytes::RegexBuilder;

use crate::matching::{Judge, RawMatch};
use crate::report::Status;
use crate::script::{Action, Bytes, Connect, Expectation, Matching, Step};

/// The steps of a protocol's check.
pub(crate) fn steps(protocol: &CheckProtocol) -> Vec<Step> {
    let actions = match protocol {
        CheckProtocol::Grpc { service } => {
            let expect = Expectation::new(Matching::Grpc);
            vec![Action::Request(Box::new(grpc::call(service))), Action::Expect(Box::new(expect))]
        }
        CheckProtocol::Ldap => vec![send(ldap::BIND), judged(ldap::judge)],
        CheckProtocol::MySql { user: None, .. } => vec![judged(mysql::judge_greeting)],
        CheckProtocol::MySql { user: Some(user), is_before_41 } => vec![
            Action::Send(Bytes::Plain(mysql::log_in(user, *is_before_41))),
            judged(mysql::judge_greeting),
            judged(mysql::judge_log_in),
        ],
        CheckProtocol::PostgreSql { user } => postgresql(user),
        CheckProtocol::Redis => {
            let expect = Expectation {
                error: Some(Status::L7Status),
                describe: Some(first_line),
                success: Some("Redis server is ok"),
                ..Expectation::new(Matching::Raw(RawMatch::Text("+PONG\r\n".into())))
            };
            vec![send(b"*1\r\n$4\r\nPING\r\n"), Action::Expect(Box::new(expect))]
        }
        CheckProtocol::Smtp { hello } => smtp::actions(hello),
        CheckProtocol::Spop => vec![Action::Send(Bytes::Plain(spop::hello())), judged(spop::judge)],
        CheckProtocol::SslHello => {
            let expect = Expectation {
                min_recv: Some(5),
                ok: Status::L6Ok,
                error: Some(Status::L6Response),
                timeout: Status::L6Timeout,
                // Nothing is said of what came.
                describe: Some(|_| String::new()),
                ..expect_regex("^[\\x15\\x16]")
            };
            vec![Action::Send(Bytes::Plain(tls::client_hello())), Action::Expect(Box::new(expect))]
        }
    };
    let mut settings = CheckConnect { default: true, ..CheckConnect::default() };
    if let CheckProtocol::Grpc { .. } = protocol {
        (settings.proto, settings.alpn) = (Some(ServerProtocol::H2), Some(vec!["h2".into()]));
    }
    let connect = Action::Connect(Connect { index: 0, settings, port: None, listens_first: false });
    // HAProxy numbers the connection where its own sequence has it.
    let first = match protocol {
        CheckProtocol::MySql { .. } | CheckProtocol::PostgreSql { .. } | CheckProtocol::Smtp { .. } => 1,
        CheckProtocol::Grpc { .. }
        | CheckProtocol::Ldap
        | CheckProtocol::Redis
        | CheckProtocol::Spop
        | CheckProtocol::SslHello => 0,
    };
    let numbered = |(at, action)| Step { number: Some(first + at).filter(|number| *number > 0), comment: None, action };
    std::iter::once(connect).chain(actions).enumerate().map(numbered).collect()
}

/// All protocols judge these bytes, and describe them.
pub(crate) fn judge_all(bytes: &[u8]) {
    let protocols = [
        CheckProtocol::Ldap,
        CheckProtocol::MySql { user: Some("a".into()), is_before_41: false },
        CheckProtocol::PostgreSql { user: "a".into() },
        CheckProtocol::Redis,
        CheckProtocol::Smtp { hello: "HELO a".into() },
        CheckProtocol::Spop,
        CheckProtocol::SslHello,
    ];
    for step in protocols.iter().flat_map(steps) {
        let Action::Expect(expectation) = &step.action else { continue };
        for is_over in [false, true] {
            let (negated, min_recv) = (expectation.negated, expectation.min_recv);
            match &expectation.matching {
                Matching::Protocol(judge) => drop(judge(bytes, is_over)),
                Matching::Raw(pattern) => {
                    drop(pattern.judge(negated, min_recv, bytes, is_over, &mut |_| Vec::new()));
                }
                Matching::Http(_) | Matching::Grpc => {}
            }
        }
        let _ = expectation.describe.map(|describe| describe(bytes));
        let _ = expectation.count.map(|count| count(bytes));
    }
    grpc::judge_bytes(bytes);
}

fn send(bytes: &[u8]) -> Action {
    Action::Send(Bytes::Plain(bytes.to_vec()))
}

fn judged(judge: Judge) -> Action {
    Action::Expect(Box::new(Expectation::new(Matching::Protocol(judge))))
}

fn expect_regex(pattern: &str) -> Expectation {
    let regex = RegexBuilder::new(pattern).unicode(false).build().expect("the patterns of protocols are valid");
    Expectation::new(Matching::Raw(RawMatch::Regex(regex)))
}

/// The startup message; any request for authentication shows that the server is well.
fn postgresql(user: &str) -> Vec<Action> {
    const VERSION_3: u32 = 3 << 16;
    let mut message = VERSION_3.to_be_bytes().to_vec();
    message.extend_from_slice(b"user\0");
    message.extend_from_slice(user.as_bytes());
    message.extend_from_slice(b"\0\0");
    let length = u32::try_from(message.len() + 4).unwrap_or(u32::MAX);
    let startup = [&length.to_be_bytes()[..], &message].concat();
    let no_error = Expectation {
        negated: true,
        min_recv: Some(5),
        error: Some(Status::L7Response),
        // The first field, behind type and length: the severity.
        describe: Some(|bytes| text(bytes.get(6..).unwrap_or_default())),
        ..expect_regex("^E")
    };
    let authentication = Expectation {
        min_recv: Some(9),
        error: Some(Status::L7Status),
        describe: Some(|_| "PostgreSQL unknown error".into()),
        success: Some("PostgreSQL server is ok"),
        ..expect_regex("(?s)^R\\x00\\x00\\x00.\\x00\\x00\\x00[\\x00\\x02-\\x07\\x09\\x0a]")
    };
    let expect = |expectation| Action::Expect(Box::new(expectation));
    vec![Action::Send(Bytes::Plain(startup)), expect(no_error), expect(authentication)]
}

/// Bytes as text, up to a NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The first line of what has come.
fn first_line(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    text(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::Finding;

    /// A judge's verdict on bytes when more may come, and when nothing follows.
    pub(super) fn check(judge: Judge, bytes: &[u8], results: [&str; 2]) {
        let seen = [false, true].map(|is_over| match judge(bytes, is_over) {
            Finding::Passed(info) => format!("ok {info}"),
            Finding::Pending => "pending".into(),
            Finding::Failed(status, code, info) => format!("{} {code} {info}", status.word()),
        });
        assert_eq!(seen, results, "{bytes:?}");
    }

    /// No prefix of a response, and none with a byte changed, makes a judge panic, and a prefix is never well.
    pub(super) fn check_prefixes(judge: Judge, bytes: &[u8]) {
        for end in 0..bytes.len() {
            assert_eq!(judge(&bytes[..end], false), Finding::Pending, "{end} bytes");
            assert!(!matches!(judge(&bytes[..end], true), Finding::Passed(_)), "{end} bytes");
            for byte in [0, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.to_vec();
                changed[end] = byte;
                let _ = (judge(&changed, false), judge(&changed, true));
            }
        }
    }

    #[test]
    fn a_startup_message_names_the_user() {
        let actions = postgresql("bob");
        let Action::Send(Bytes::Plain(bytes)) = &actions[0] else { panic!("something is sent first") };
        assert_eq!(bytes, b"\0\0\0\x12\0\x03\0\0user\0bob\0\0");
    }

    #[test]
    fn texts_end_where_lines_do() {
        assert_eq!(
            (first_line(b"-ERR no\r\nx"), first_line(b"a\0b"), text(b"a\r\0b")),
            ("-ERR no".into(), "a".into(), "a\r".into())
        );
    }
}
