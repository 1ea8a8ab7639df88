//! Any bytes as a `crt-list`, as a whole file and line by line as it comes by the runtime API: no panic, the same answer twice,
//! faults within their lines, and what a file's lines say is what each line says.
#![no_main]

use baton_config::{FixedEnvironment, Options, Severity, crt_list_line, load};
use baton_model::{GlobalTls, Source};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut env = FixedEnvironment::with_file("a.cfg", "frontend f\n mode http\n bind :443 ssl crt-list list\n");
    env.files.insert("list".into(), input.to_vec());
    let loaded = load(&Options::file("a.cfg"), &env);
    assert_eq!(loaded.model.is_none(), loaded.of(Severity::Alert).next().is_some());
    for diagnostic in &loaded.diagnostics {
        assert!(!diagnostic.render(1).is_empty());
    }
    assert_eq!(load(&Options::file("a.cfg"), &env).diagnostics, loaded.diagnostics);
    let Ok(text) = std::str::from_utf8(input) else { return };
    for line in text.lines() {
        match crt_list_line(line, Source::default(), &GlobalTls::default()) {
            Ok(Some(read)) => assert!(!read.line.crt.as_os_str().is_empty()),
            Ok(None) => {}
            Err(fault) => assert!(fault.at.start <= fault.at.end && fault.at.end <= line.len() + 1, "{fault:?}"),
        }
    }
});
