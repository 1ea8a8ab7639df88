//! `show overrides`, `save overrides` and `clear overrides`: what operators set is listed, written as lines of the file, and dropped.

use super::assert_served;
use super::overrides::{Operated, shown};
use crate::support::clients::{assert_clean, under_load};
use crate::support::until;

/// Another address at which the origin responds as well.
fn line(operated: &Operated) -> String {
    operated.origin.address().to_string()
}

#[test]
fn overrides_are_shown_as_text_and_json() {
    let operated = Operated::start();
    assert_eq!(operated.command("show overrides"), "\n");
    operated.set(&["set server app/s1 state maint", "set weight app/s2 3"]);
    let text = operated.command("show overrides");
    let own = std::process::id();
    let expect =
        format!("server app/s1 state maint (file: ready) by uid {} pid {own} over unix@", nix::unistd::geteuid());
    assert!(text.starts_with(&expect) && text.lines().count() == 3, "{text}");
    let json: serde_json::Value = serde_json::from_str(operated.command("show overrides json").trim()).expect("JSON");
    let one = &json[1];
    let fields = ["server", "field", "value", "file"].map(|name| one[name].as_str().unwrap_or_default().to_owned());
    assert_eq!(fields, ["s2", "weight", "3", "10"]);
    assert!(one["at_s"].as_u64().is_some_and(|at| at > 1_700_000_000) && one["pid"] == own, "{one}");
}

#[test]
fn saved_lines_in_the_file_say_what_is_in_force() {
    let operated = Operated::start();
    let added = format!("add server app/n1 {} weight 5", line(&operated));
    assert_eq!(operated.command(&added), "New server registered.\n\n");
    operated.set(&["set server app/s1 state maint", "set weight app/s2 3", "set server app/n1 state ready"]);
    operated.set(&["disable server app/s3"]);
    assert_eq!(operated.command("del server app/s3"), "Server deleted.\n\n");
    let before = shown(&operated.proxy).0;
    let saved = operated.command("save overrides");
    assert!(saved.contains("# server s3 is deleted: remove its line"), "{saved}");

    // The lines as they are, in the place of those of the file.
    let lines: String =
        saved.lines().filter(|line| line.trim().starts_with("server ")).map(|line| format!("{line}\n")).collect();
    let head = operated.text.split(" server s1").next().expect("it begins with that");
    let outcome = operated.proxy.change(&format!("{head}{lines}"));
    assert!(outcome.plan.overrides.iter().all(|one| one.ends.is_some()), "{:?}", outcome.plan.overrides);
    let mut after = shown(&operated.proxy).0;
    after.sort();
    let mut before = before;
    before.sort();
    assert_eq!((after, shown(&operated.proxy).1), (before, Vec::new()));
    assert_eq!(operated.command("get weight app/s2"), "3 (initial 3)\n\n");
    assert_served(operated.web);
}

#[test]
fn a_fragment_is_written_to_a_file_that_is_new_or_an_earlier_one() {
    let operated = Operated::start();
    operated.set(&["set weight app/s2 3"]);
    let path = operated.folder.path().join("saved.cfg");
    let save = format!("save overrides {}", path.display());
    for _ in 0..2 {
        assert_eq!(operated.command(&save), format!("1 overrides written to {}.\n\n", path.display()));
    }
    let text = std::fs::read_to_string(&path).expect("it was written");
    assert!(text.contains("server s2") && text.contains("weight 3"), "{text}");
    let config = format!("save overrides {}", operated.proxy.config.display());
    let refused = operated.command(&config);
    assert!(refused.contains("was not written by 'save overrides'"), "{refused}");
    assert_eq!(std::fs::read_to_string(&operated.proxy.config).unwrap(), operated.text);
    assert_eq!(operated.command("save overrides saved.cfg"), "'save overrides' expects an absolute path.\n\n");
}

#[test]
fn cleared_overrides_give_way_to_the_file_without_a_failed_request() {
    let operated = Operated::start();
    let result = under_load(&operated.web.to_string(), || {
        for _ in 0..5 {
            operated.set(&[
                "set server app/s1 state maint",
                "set weight app/s1 3",
                "set weight app/s2 3",
                "disable server app/s3",
            ]);
            until("it is deleted", || operated.command("del server app/s3") == "Server deleted.\n\n");
            let added = operated.command(&format!("add server app/n1 {} weight 5", line(&operated)));
            assert_eq!(added, "New server registered.\n\n");
            operated.set(&["enable server app/n1", "clear overrides app/s1 weight"]);
            assert_eq!(operated.command("get weight app/s1"), "10 (initial 10)\n\n");
            assert_eq!(shown(&operated.proxy).0[0], "s1 MAINT", "its state is still set");
            operated.set(&["clear overrides app/s1"]);
            assert_eq!(shown(&operated.proxy).0[0], "s1 no check");
            operated.set(&["clear overrides"]);
            let states = ["s1 no check", "s2 no check", "s3 no check"].map(String::from).to_vec();
            assert_eq!(shown(&operated.proxy), (states, Vec::new()));
        }
    });
    assert_clean(&result, &operated.proxy.said());
    assert_eq!(operated.command("clear overrides app/s1"), "No such override.\n\n");
    let unknown = operated.command("clear overrides app/s1 colour");
    assert!(unknown.starts_with("Unknown field 'colour'; the fields are: state, weight, "), "{unknown}");
    assert_eq!(operated.command("clear overrides app"), "No such override.\n\n");
    let required = "Require 'backend/server', a frontend, or 'global'.\n\n";
    assert_eq!(operated.command("clear overrides app/"), required);
    let told = operated.proxy.said();
    assert!(told.contains("Server app/s1 is UP/READY (leaving forced maintenance)."), "{told}");
}

#[test]
fn what_was_cleared_is_not_set_in_the_next_process() {
    let operated = Operated::start();
    operated.set(&["set server app/s1 state maint", "set weight app/s2 3", "clear overrides app/s1"]);
    let next = operated.proxy.replace(&[]);
    assert_eq!(shown(&next).1, ["server app/s2 weight 3 (file: 10)"]);
    assert_eq!(shown(&next).0[0], "s1 no check");
}

#[test]
fn who_may_not_change_servers_may_not_clear_either() {
    let operated = Operated::start();
    operated.set(&["set weight app/s2 3"]);
    for command in ["clear overrides", "save overrides", "save overrides /tmp/x"] {
        let refused = operated.command(&format!("operator; {command}"));
        assert!(refused.contains("Permission denied"), "{command}: {refused}");
    }
    assert!(operated.command("operator; show overrides").contains("app/s2 weight 3"));
    assert!(operated.command("user; show overrides").contains("Permission denied"));
}
