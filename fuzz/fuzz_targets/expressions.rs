//! Any expression on any request, and on the same bytes as the start of a connection in `mode tcp`: no panic. The input is the
//! expression, a NUL, and the bytes.
#![no_main]

#[path = "../../crates/baton-rules/tests/common/mod.rs"]
mod common;

use baton_http::{Limits, Parsed, RequestHead};
use baton_rules::{Expr, Format, RulePosition, TcpContent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == 0) else { return };
    let (Ok(text), bytes) = (std::str::from_utf8(&input[..end]), &input[end + 1..]) else { return };
    let files = common::files();
    for place in [RulePosition::BackendRequest, RulePosition::Response] {
        let (expr, format) = (Expr::compile(text, place, &files), Format::compile(text, place, &files));
        let evaluate = |cx: &mut baton_rules::Context<'_>| {
            if let Ok(expr) = &expr {
                expr.eval(cx).map(|sample| sample.into_text().len());
            }
            if let Ok(format) = &format {
                format.write(cx, &mut Vec::new());
            }
        };
        let is_request = matches!(RequestHead::new().parse(bytes, &Limits::default()), Ok(Parsed::Complete(_)));
        if is_request {
            common::with_bytes(bytes, Some(common::OK), None, None, evaluate);
        }
        let content = TcpContent { bytes, may_become_http: false };
        common::with_bytes(common::GET.as_bytes(), None, Some(content), Some(bytes), evaluate);
    }
});
