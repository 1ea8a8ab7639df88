//! Any bytes as a configuration file: no panic, the same answer twice, and a model exactly when nothing is wrong.
#![no_main]

use baton_config::{FixedEnvironment, Options, Severity, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut env = FixedEnvironment::with_file("a.cfg", input);
    env.vars.insert("LIST".into(), "a b c".into());
    let loaded = load(&Options::file("a.cfg"), &env);
    assert_eq!(loaded.model.is_none(), loaded.of(Severity::Alert).next().is_some());
    for diagnostic in &loaded.diagnostics {
        assert!(!diagnostic.render(1).is_empty());
    }
    let again = load(&Options::file("a.cfg"), &env);
    assert_eq!(again.diagnostics, loaded.diagnostics);
    if let (Some(one), Some(two)) = (&loaded.model, &again.model) {
        assert!(baton_model::diff(one, two).is_empty());
    }
});
