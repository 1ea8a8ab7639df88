//! `option smtpchk`: a greeting, and `QUIT` (RFC 5321, 4.2).

use super::{expect_regex, first_line};
use crate::report::Status;
use crate::script::{Action, Bytes, Expectation};

/// The least that a reply has: a code, and what follows it.
const REPLY_BYTES_MIN: usize = 4;

pub(super) fn actions(hello: &str) -> Vec<Action> {
    let expect = |expectation| Action::Expect(Box::new(expectation));
    let say = |line: &str| Action::Send(Bytes::Plain(format!("{line}\r\n").into_bytes()));
    vec![
        expect(Expectation {
            min_recv: Some(REPLY_BYTES_MIN),
            error: Some(Status::L7Response),
            describe: Some(first_line),
            ..expect_regex("^[0-9]{3}[ \\r]")
        }),
        reply(Some(REPLY_BYTES_MIN), "^2[0-9]{2}[ \\r]"),
        say(hello),
        // It may have several lines: the last one has a blank behind its code.
        reply(None, "^(2[0-9]{2}-[^\\r]*\\r\\n)*2[0-9]{2}[ \\r]"),
        say("QUIT"),
        reply(Some(REPLY_BYTES_MIN), "^2[0-9]{2}[- \\r]"),
    ]
}

/// A positive reply; its code and its first line describe the result.
fn reply(min_recv: Option<usize>, pattern: &str) -> Action {
    Action::Expect(Box::new(Expectation {
        min_recv,
        error: Some(Status::L7Status),
        describe: Some(|bytes| first_line(bytes.get(4..).unwrap_or_default()).trim_start_matches(' ').to_owned()),
        describes_success: true,
        count: Some(|bytes| std::str::from_utf8(bytes.get(..3)?).ok()?.parse().ok()),
        ..expect_regex(pattern)
    }))
}
