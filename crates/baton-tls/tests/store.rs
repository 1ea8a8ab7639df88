//! The store with real files: what is found under a name, what is refused, what a change costs.

mod support;

use std::path::Path;

use support::{World, issue};

#[test]
fn a_directory_is_found_by_name_and_its_first_file_is_the_default() {
    let world = World::new();
    world.site("b.pem", &["b.example", "*.w.example"]);
    world.site("a.pem", &["A.example"]);
    world.write(".hidden", "nothing");
    world.write("a.pem.ocsp", "");
    let index = world.load(vec![world.crt("")]);
    for (name, file, by_default) in [
        (Some("a.example"), "a.pem", false),
        (Some("B.EXAMPLE"), "b.pem", false),
        (Some("x.w.example"), "b.pem", false),
        (Some("y.x.w.example"), "a.pem", true),
        (Some("w.example"), "a.pem", true),
        (None, "a.pem", true),
    ] {
        assert_eq!(world.found(&index, name), (file.to_owned(), by_default), "{name:?}");
    }
    assert!(world.store.entry(Path::new("/nowhere")).is_none());
    assert_eq!(world.store.figures().certificates, 2);
}

#[test]
fn every_fault_is_told_at_once_and_nothing_is_in_use() {
    let world = World::new();
    world.site("good.pem", &["a.example"]);
    world.write("empty.pem", "");
    world.write("keyless.pem", issue(&["b.example"]).0);
    world.write("other.pem", issue(&["c.example"]).0 + &issue(&["d.example"]).1);
    let sources = ["good.pem", "empty.pem", "keyless.pem", "other.pem", "missing.pem"];
    let problems = world.prepare(sources.map(|name| world.crt(name)).to_vec()).unwrap_err();
    let said: Vec<_> = problems.iter().map(|problem| problem.fault.to_string()).collect();
    let expected = [
        "is empty",
        "has no private key",
        "its private key belongs to another certificate",
        "cannot be read: no such file",
    ];
    assert_eq!(said, expected);
    assert!(world.store.entries().is_empty());
}
