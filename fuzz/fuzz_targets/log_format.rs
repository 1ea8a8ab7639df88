//! Any text as a log format, and any bytes as what a client sends: no panic, and no byte that ends a line.
//!
//! The first line of an input is the format, what follows is the request line and the first captured header.
#![no_main]

use std::sync::Arc;

use baton_model::{Mode, Proxy, Role, Rule, Ruleset, Source};
use baton_rules::{CaptureSide, Format, NoFiles, compile, with_bare_context};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (format, sent) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()));
    let format = String::from_utf8_lossy(format).into_owned();
    let mut proxy = Proxy::new(Arc::from("front"), Role::Listen);
    proxy.mode = Mode::Http;
    let capture = ["request", "header", "x", "len", "100"].map(str::to_owned).to_vec();
    let sets = [
        (Ruleset::LogFormat, vec![format.clone()]),
        (Ruleset::UniqueIdFormat, vec![format]),
        (Ruleset::Capture, capture),
    ];
    for (ruleset, words) in sets {
        proxy.rules.insert(ruleset, vec![Rule { ruleset, words, source: Source::default() }]);
    }
    let Ok(rules) = compile(&proxy, &NoFiles) else { return };
    with_bare_context(&rules, sent, |cx| {
        if let Some(captures) = cx.captures {
            captures.borrow_mut().set(CaptureSide::Request, 0, sent);
        }
        let formats: [Option<&Format>; 2] = [rules.log_format(), rules.unique_id_format()];
        for format in formats.into_iter().flatten() {
            let mut line = Vec::new();
            format.write(cx, &mut line);
            let ends = line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
            // Binary items are asked for.
            assert!(!ends || format.is_binary(), "{}", line.escape_ascii());
        }
    });
});
