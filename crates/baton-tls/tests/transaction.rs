//! Changes of single certificates while others serve.

mod support;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_model::CrtLine;
use baton_tls::store::{Refused, SystemFiles};
use baton_tls::{Certificate, Store, Verifies};
use support::{World, issue};

fn files() -> SystemFiles {
    SystemFiles::default()
}

fn names(names: &[&str]) -> Option<Vec<OsString>> {
    Some(names.iter().map(OsString::from).collect())
}

#[test]
fn a_certificate_is_replaced_with_its_names() {
    let world = World::new();
    world.site("a.pem", &["a.example"]);
    world.site("b.pem", &["b.example", "both.example"]);
    let index = world.load(vec![world.crt("a.pem"), world.crt("b.pem")]);
    let old = world.store.entry(&world.path("b.pem")).unwrap().certificate();
    world.site("b.pem", &["new.example", "both.example"]);

    let mut change = world.store.transaction();
    assert!(change.refresh(&world.path("b.pem"), &files()).unwrap());
    assert_eq!(world.found(&index, Some("b.example")), ("b.pem".to_owned(), false), "not before the commit");
    let report = world.store.commit(change);
    assert_eq!(report.replaced, [world.path("b.pem")]);
    for (name, file, by_default) in
        [("b.example", "a.pem", true), ("new.example", "b.pem", false), ("both.example", "b.pem", false)]
    {
        assert_eq!(world.found(&index, Some(name)), (file.to_owned(), by_default), "{name}");
    }
    assert_ne!(old.der(), world.store.entry(&world.path("b.pem")).unwrap().certificate().der());

    let mut again = world.store.transaction();
    assert!(!again.refresh(&world.path("b.pem"), &files()).unwrap());
    assert!(world.store.commit(again).replaced.is_empty());
}

#[test]
fn what_is_replaced_while_a_configuration_is_read_stays() {
    let world = World::new();
    world.site("a.pem", &["a.example"]);
    world.site("b.pem", &["b.example"]);
    let sources = || vec![world.crt("a.pem"), world.crt("b.pem")];
    world.load(sources());
    world.site("b.pem", &["read.example"]);
    let reading = world.prepare(sources()).unwrap();
    world.site("a.pem", &["newer.example"]);
    let mut change = world.store.transaction();
    assert!(change.refresh(&world.path("a.pem"), &files()).unwrap());
    world.store.commit(change);
    let index = reading.indexes().remove(0);
    reading.commit();
    for (name, file, by_default) in
        [("newer.example", "a.pem", false), ("read.example", "b.pem", false), ("a.example", "a.pem", true)]
    {
        assert_eq!(world.found(&index, Some(name)), (file.to_owned(), by_default), "{name}");
    }
    let entry = world.store.entry(&world.path("a.pem")).unwrap();
    assert!(entry.is_from_files(), "its stamp belongs to what is in use");
    let index = world.load(sources());
    assert_eq!(world.found(&index, Some("newer.example")), ("a.pem".to_owned(), false));
}

#[test]
fn what_comes_and_goes_while_a_configuration_is_read_goes_over() {
    let world = World::new();
    world.site("0.pem", &["default.example"]);
    world.site("gone.pem", &["gone.example"]);
    let sources = || vec![world.crt("")];
    let _live = world.load(sources());
    let sync = || {
        let mut change = world.store.transaction();
        change.refresh_directory(&world.path(""), None, &files()).unwrap();
        world.store.commit(change)
    };
    let check = |what: &str, index: &baton_tls::store::Index, expected: &[(&str, &str)]| {
        for (name, file) in expected {
            assert_eq!(world.found(index, Some(name)).0, *file, "{name} {what}");
        }
        assert_eq!(index.len(), world.store.entries().len(), "{what}");
    };

    // Read before it happened.
    let reading = world.prepare(sources()).unwrap();
    world.site("new.pem", &["new.example"]);
    std::fs::remove_file(world.path("gone.pem")).unwrap();
    let report = sync();
    assert_eq!((report.added, report.removed), (vec![world.path("new.pem")], vec![world.path("gone.pem")]));
    let index = reading.indexes().remove(0);
    reading.commit();
    check("before", &index, &[("new.example", "new.pem"), ("gone.example", "0.pem"), ("default.example", "0.pem")]);
    assert!(sync().added.is_empty(), "it is in use");

    // Read while it happened: the same file was found twice, and changed between.
    world.site("late.pem", &["first.example"]);
    let reading = world.prepare(sources()).unwrap();
    world.site("late.pem", &["second.example"]);
    assert_eq!(sync().added, [world.path("late.pem")]);
    let index = reading.indexes().remove(0);
    reading.commit();
    check("while", &index, &[("second.example", "late.pem"), ("first.example", "0.pem"), ("new.example", "new.pem")]);
    std::fs::remove_file(world.path("late.pem")).unwrap();
    assert_eq!(sync().removed, [world.path("late.pem")]);
    check("after", &index, &[("second.example", "0.pem")]);

    // What came and left is not there; the default of what was read stays.
    let reading = world.prepare(sources()).unwrap();
    world.site("brief.pem", &["brief.example"]);
    sync();
    std::fs::remove_file(world.path("brief.pem")).unwrap();
    sync();
    let index = reading.indexes().remove(0);
    reading.commit();
    check("brief", &index, &[("brief.example", "0.pem"), ("new.example", "new.pem")]);
    assert!(world.store.entry(&world.path("brief.pem")).is_none());

    // A configuration without the directory does not get what came to it.
    let reading = world.prepare(vec![world.crt("0.pem")]).unwrap();
    world.site("more.pem", &["more.example"]);
    sync();
    let index = reading.indexes().remove(0);
    reading.commit();
    check("other", &index, &[("more.example", "0.pem")]);
}

#[test]
fn a_broken_file_is_refused_alone_and_told_until_it_is_right() {
    let world = World::new();
    world.site("a.pem", &["a.example"]);
    world.site("b.pem", &["b.example"]);
    let index = world.load(vec![world.crt("")]);
    world.site("a.pem", &["a2.example"]);
    world.write("b.pem", issue(&["b2.example"]).0 + &issue(&["c.example"]).1);
    world.write("c.pem", "half");

    let mut change = world.store.transaction();
    change.refresh_directory(&world.path(""), None, &files()).unwrap();
    let report = world.store.commit(change);
    assert_eq!(report.replaced, [world.path("a.pem")]);
    assert_eq!(
        report.refused.iter().map(|problem| &*problem.path).collect::<Vec<_>>(),
        [world.path("b.pem"), world.path("c.pem")]
    );
    assert_eq!(world.found(&index, Some("a2.example")), ("a.pem".to_owned(), false));
    assert_eq!(world.found(&index, Some("b.example")), ("b.pem".to_owned(), false), "the old one serves on");
    let entry = world.store.entry(&world.path("b.pem")).unwrap();
    assert_eq!(entry.problem().unwrap().fault.to_string(), "its private key belongs to another certificate");

    world.site("b.pem", &["b3.example"]);
    let mut change = world.store.transaction();
    change.refresh_directory(&world.path(""), names(&["b.pem"]).as_deref(), &files()).unwrap();
    assert_eq!(world.store.commit(change).replaced, [world.path("b.pem")]);
    assert!(entry.problem().is_none());
}

#[test]
fn files_come_to_and_leave_a_directory() {
    let world = World::new();
    world.site("b.pem", &["b.example", "two.example"]);
    world.site("c.pem", &["c.example"]);
    let index = world.load(vec![world.crt("")]);
    world.site("a.pem", &["a.example", "two.example"]);
    let refresh = |names: Option<Vec<OsString>>| {
        let mut change = world.store.transaction();
        change.refresh_directory(&world.path(""), names.as_deref(), &files()).unwrap();
        world.store.commit(change)
    };
    assert_eq!(refresh(names(&["a.pem", ".b.pem.swp", "nothing.ocsp"])).added, [world.path("a.pem")]);
    let expected = |name: &str, file: &str| assert_eq!(world.found(&index, Some(name)).0, file, "{name}");
    expected("a.example", "a.pem");
    expected("two.example", "a.pem");
    expected("nobody.example", "a.pem");

    // Its key comes in a file of its own.
    let (certificate, key) = issue(&["d.example"]);
    world.write("d.pem", certificate);
    assert_eq!(refresh(names(&["d.pem"])).refused.len(), 1);
    world.write("d.pem.key", key);
    assert_eq!(refresh(names(&["d.pem.key"])).added, [world.path("d.pem")]);
    expected("d.example", "d.pem");

    for file in ["a.pem", "c.pem", "d.pem"] {
        std::fs::remove_file(world.path(file)).unwrap();
    }
    let report = refresh(None);
    assert_eq!(report.removed, [world.path("c.pem"), world.path("d.pem")]);
    assert_eq!(report.refused.iter().map(|problem| &*problem.path).collect::<Vec<_>>(), [world.path("a.pem")]);
    expected("c.example", "a.pem");
    expected("b.example", "b.pem");
    assert!(world.store.entry(&world.path("c.pem")).is_none());
    assert_eq!((index.len(), world.store.lists()), (2, vec![(world.path(""), true)]));
    let entry = world.store.entry(&world.path("a.pem")).unwrap();
    assert!(entry.problem().is_some() && world.store.is_used(&entry) && world.store.defaults(&entry).len() == 1);

    std::fs::remove_dir_all(world.folder.path()).unwrap();
    let mut change = world.store.transaction();
    assert!(change.refresh_directory(&world.path(""), None, &files()).is_err());
    assert_eq!(index.len(), 2);
}

#[test]
fn lists_get_lines_and_lose_them() {
    let world = World::new();
    for name in ["a", "b"] {
        world.site(&format!("{name}.pem"), &[&format!("{name}.example")]);
    }
    let index = world.load(vec![world.list("list", &[("a.pem", &[]), ("b.pem", &["b.example"])])]);
    let list = world.path("list");
    let judged: Certificate = {
        world.site("new.pem", &["new.example"]);
        world.store.judge(&world.path("new.pem"), &files()).unwrap()
    };
    let line = |file: &str, filters: &[&str]| CrtLine {
        crt: world.path(file),
        filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
        ..CrtLine::default()
    };
    let mut change = world.store.transaction();
    assert_eq!(change.add(&list, &line("new.pem", &[])), Err(Refused::NoCertificate(world.path("new.pem"))));
    assert_eq!(change.add(Path::new("x"), &line("a.pem", &[])), Err(Refused::NoList("x".into())));
    change.set(&world.path("new.pem"), judged);
    change.add(&list, &line("new.pem", &["*.new.example", "!x.new.example"])).unwrap();
    assert_eq!(world.store.commit(change).added, [world.path("new.pem")]);
    assert_eq!(world.found(&index, Some("y.new.example")), ("new.pem".to_owned(), false));
    assert_eq!(world.found(&index, Some("x.new.example")), ("a.pem".to_owned(), true));
    let lines = index.lines(&list);
    let files: Vec<_> = lines.iter().map(|line| line.entry.path().file_name().unwrap()).collect();
    assert_eq!((files, lines[0].is_default), (["a.pem", "b.pem", "new.pem"].map(std::ffi::OsStr::new).to_vec(), true));

    let mut change = world.store.transaction();
    assert_eq!(change.remove(&world.path("new.pem")), Err(Refused::InUse(world.path("new.pem"))));
    assert_eq!(change.del(&list, &world.path("a.pem"), None), Err(Refused::Default(world.path("a.pem"))));
    assert_eq!(change.del(&list, &world.path("b.pem"), Some(7)), Err(Refused::NotInList(world.path("b.pem"))));
    change.del(&list, &world.path("new.pem"), Some(lines[2].number)).unwrap();
    world.store.commit(change);
    assert_eq!(world.found(&index, Some("y.new.example")), ("a.pem".to_owned(), true));
    drop(lines);
    let mut change = world.store.transaction();
    change.remove(&world.path("new.pem")).unwrap();
    world.store.commit(change);
    assert_eq!(world.store.entries().len(), 2);
}

#[test]
fn a_reload_takes_what_the_files_say_and_reads_only_what_changed() {
    let world = World::new();
    world.site("a.pem", &["a.example"]);
    world.site("b.pem", &["b.example"]);
    world.load(vec![world.crt("")]);
    let of = |name: &str| world.store.entry(&world.path(name)).unwrap().certificate();
    let (a, b) = (of("a.pem"), of("b.pem"));
    let mut change = world.store.transaction();
    world.site("else.pem", &["else.example"]);
    change.set(&world.path("a.pem"), world.store.judge(&world.path("else.pem"), &files()).unwrap());
    world.store.commit(change);
    std::fs::remove_file(world.path("else.pem")).unwrap();
    assert!(!world.store.entry(&world.path("a.pem")).unwrap().is_from_files());
    // Written within the same tick of the clock, with the same length: told from the old one all the same.
    let old = std::fs::metadata(world.path("b.pem")).unwrap();
    loop {
        world.site("b.pem", &["c.example"]);
        if std::fs::metadata(world.path("b.pem")).unwrap().len() == old.len() {
            break;
        }
    }
    std::fs::File::options()
        .write(true)
        .open(world.path("b.pem"))
        .unwrap()
        .set_modified(old.modified().unwrap())
        .unwrap();
    let index = world.load(vec![world.crt("")]);
    assert_eq!(world.found(&index, Some("c.example")), ("b.pem".to_owned(), false));
    assert_eq!(a.der(), of("a.pem").der());
    assert_ne!(b.der(), of("b.pem").der());
    let again = Arc::clone(&of("b.pem"));
    world.load(vec![world.crt("")]);
    assert_eq!(again.der(), of("b.pem").der());
}

#[test]
fn a_certificate_is_described_in_the_words_of_openssl() {
    let world = World::new();
    world.site("a.pem", &["a.example", "*.a.example", "192.0.2.1", "2001:db8::1"]);
    world.load(vec![world.crt("a.pem")]);
    let said = world.store.entry(&world.path("a.pem")).unwrap().certificate().describe();
    let openssl = |args: &[&str]| {
        let path = world.path("a.pem");
        let mut command = std::process::Command::new("openssl");
        let output = command.arg("x509").arg("-in").arg(path).arg("-noout").args(args).output();
        String::from_utf8(output.expect("openssl is installed by scripts/setup").stdout).unwrap()
    };
    assert_eq!(openssl(&["-serial"]).trim(), format!("serial={}", said.serial));
    assert_eq!(openssl(&["-startdate"]).trim(), format!("notBefore={}", said.not_before));
    assert_eq!(openssl(&["-enddate"]).trim(), format!("notAfter={}", said.not_after));
    assert_eq!(openssl(&["-fingerprint", "-sha1"]).trim().replace(':', ""), format!("sha1 Fingerprint={}", said.sha1));
    let names = openssl(&["-ext", "subjectAltName"]);
    assert_eq!(names.lines().nth(1).unwrap().trim(), said.alternative_names);
    assert_eq!((said.algorithm.as_str(), said.chain.len()), ("EC256", 0));
}

#[test]
fn signers_are_kept_for_those_that_are_asked_for() {
    let world = World { store: Store::with_signers(2), ..World::new() };
    for name in ["a", "b", "c"] {
        world.site(&format!("{name}.pem"), &[&format!("{name}.example")]);
    }
    let index = world.load(vec![world.crt("")]);
    let signer = |name: &str| index.find(Some(name), Verifies::ALL).unwrap().signer().unwrap();
    let a = signer("a.example");
    assert!(Arc::ptr_eq(&a, &signer("a.example")));
    signer("b.example");
    assert_eq!(world.store.figures().signers, 2);
    // The third takes the place of the one that was asked for once.
    signer("c.example");
    assert!(Arc::ptr_eq(&a, &signer("a.example")));
    assert_eq!(world.store.figures().signers, 2);
}

#[test]
fn whoever_asks_during_changes_gets_something_whole() {
    let world = World::new();
    for number in 0..4 {
        world.site(&format!("{number}.pem"), &["a.example", &format!("{number}.example")]);
    }
    let index = world.load(vec![world.list("list", &[("0.pem", &["default.example"]), ("1.pem", &[])])]);
    let name = world.path("1.pem");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = || {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) || asked == 0 {
                let found = index.find(Some("a.example"), Verifies::ALL).unwrap();
                assert!(!found.by_default, "one of them has the name at any time");
                assert_eq!(*found.signer().unwrap().cert[0], *found.certificate.der());
                asked += 1;
            }
        };
        let askers = [scope.spawn(asking), scope.spawn(asking)];
        for round in 0..300 {
            let from = world.path(&format!("{}.pem", 1 + round % 3));
            let mut change = world.store.transaction();
            change.set(&name, world.store.judge(&from, &files()).unwrap());
            world.store.commit(change);
        }
        done.store(true, Ordering::Relaxed);
        for asker in askers {
            asker.join().unwrap();
        }
    });
}
