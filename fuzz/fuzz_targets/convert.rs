//! Any bytes as a dump of ipvsadm or a keepalived.conf: no panic, the same answer twice, an output that Baton reads without a
//! complaint, and nothing left out that is not a comment in it.
#![no_main]

use baton_config::convert::{MAX_CONVERT_BYTES, Source, convert};
use baton_config::{FixedEnvironment, Options, Severity, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    assert!(input.len() < MAX_CONVERT_BYTES);
    for source in [Source::Ipvsadm, Source::Keepalived] {
        let outcome = convert("input", input, Some(source));
        assert_eq!(convert("input", input, Some(source)), outcome);
        let converted = match outcome {
            Ok(converted) => converted,
            Err(fault) => {
                assert!(!fault.to_string().is_empty());
                continue;
            }
        };
        assert!(converted.sections > 0);
        for remark in &converted.remarks {
            let line = format!("\n#   {remark}\n");
            assert!(converted.config.contains(&line), "{line}{}", converted.config);
        }
        let env = FixedEnvironment::with_file("a.cfg", converted.config.as_bytes());
        let loaded = load(&Options::file("a.cfg"), &env);
        let complaint = loaded.diagnostics.iter().find(|diagnostic| diagnostic.severity >= Severity::Warning);
        assert!(complaint.is_none(), "{}{}", complaint.map_or_else(String::new, |it| it.render(1)), converted.config);
        assert_eq!(loaded.model.map(|model| model.proxies.len()), Some(converted.sections), "{}", converted.config);
    }
});
