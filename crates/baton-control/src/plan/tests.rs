use baton_config::{FixedEnvironment, Options, load};

use super::*;

fn model(text: &str) -> Model {
    let text = format!("defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n mode http\n{text}\n");
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn check(old: &str, new: &str, expect: &str) {
    assert_eq!(Plan::between(&model(old), &model(new)).to_string().trim_end(), expect);
}

const OLD: &str = "frontend web\n bind 127.0.0.1:80\n default_backend app\nbackend app\n server s1 127.0.0.1:1";

#[test]
fn nothing_is_nothing() {
    check(OLD, OLD, "");
}

#[test]
fn servers_come_and_go_and_move() {
    let base = OLD.replace(" server s1 127.0.0.1:1", "");
    check(
        OLD,
        &format!("{OLD}\n server s2 127.0.0.1:2"),
        "backend app: server s2 added (127.0.0.1:2)\n    at a.cfg:11\n    impact: none",
    );
    check(
        OLD,
        &base,
        "backend app: server s1 removed\n    impact: in-flight requests and tunnels finish; idle connections to the server are closed",
    );
    check(
        OLD,
        &format!("{base} server s1 127.0.0.1:3"),
        "backend app: server s1: address changed\n    address 127.0.0.1:1 -> 127.0.0.1:3 (a.cfg:10)\n    impact: in-flight requests and tunnels finish; idle connections to the server are closed",
    );
    check(
        OLD,
        &format!("{base} server s1 127.0.0.1:1 weight 7"),
        "backend app: server s1: weight changed\n    weight 1 -> 7 (a.cfg:10)\n    impact: none",
    );
}

#[test]
fn what_the_socket_of_an_open_address_cannot_follow_is_said() {
    let says = |options: &str| {
        let new = OLD.replace("127.0.0.1:80", &format!("127.0.0.1:80 {options}"));
        Plan::between(&model(OLD), &model(&new)).to_string().contains("rejected by a reload while the address is open")
    };
    assert!(says("transparent"));
    assert!(!says("maxconn 7"));
}

#[test]
fn an_address_that_moves_to_another_frontend_stays_open() {
    let new = OLD.replace("frontend web", "frontend other");
    check(
        OLD,
        &new,
        "frontend web removed\n    impact: open connections get one last response; tunnels stay open\n\
         frontend other added: bind 127.0.0.1:80 (open already, from frontend web)\n    at a.cfg:6\n    impact: none",
    );
}

#[test]
fn a_removed_address_disturbs_new_clients_only() {
    check(
        &OLD.replace(" default", " bind 127.0.0.1:81\n default"),
        OLD,
        "frontend web: bind 127.0.0.1:81 removed\n    impact: new connections to this address are refused; earlier ones are served",
    );
}

#[test]
fn what_waits_for_the_next_process_says_so() {
    check(
        OLD,
        &format!("{OLD}\nglobal\n nbthread 2"),
        "global: nbthread unset -> 2 (takes effect with the next process)\n    at a.cfg:12\n    impact: none until the next process starts with it",
    );
}

/// Sections with a `defaults` of their own, from line 6 on.
fn sections(defaults: &str, more: &str) -> String {
    let backends: String = (1..=7).map(|number| format!("backend b{number}\n server s 127.0.0.1:1\n")).collect();
    format!(
        "defaults d\n mode http\n timeout client 1s\n timeout connect 1s\n{defaults}frontend web\n bind :80\n default_backend b1\n\
         {more}{backends}"
    )
}

#[test]
fn a_change_of_defaults_is_told_once() {
    let (old, new) = (sections(" timeout server 30s\n", ""), sections(" timeout server 1m\n", ""));
    let change = "defaults: timeout server changed in 8 sections: web, b1, b2, b3, b4, 3 more\n    timeout server 30s -> 60s \
                  (a.cfg:10)\n    impact: none";
    check(&old, &new, change);
    let plan = Plan::between(&model(&old), &model(&new));
    assert_eq!(
        (plan.changes[0].sections, plan.summary(0).to_string()),
        (8, "0 to add, 1 to change, 0 to remove".into())
    );
    // A section with a line of its own is told of that line alone.
    let own = format!("{old} timeout server 2s\n");
    let said = Plan::between(&model(&old), &model(&own)).to_string();
    assert_eq!(said, "backend b7: timeout server changed\n    timeout server 30s -> 2s (a.cfg:28)\n    impact: none\n");
    // A line that goes takes its value with it.
    let retries = sections(" timeout server 30s\n retries 1\n", "");
    let gone = Plan::between(&model(&old), &model(&retries)).to_string();
    assert!(gone.starts_with("defaults: retries changed in 8 sections: "), "{gone}");
    let back = Plan::between(&model(&retries), &model(&old)).to_string();
    assert!(back.contains("8 sections") && back.contains("    retries 1 -> 3\n"), "{back}");
    let both = Plan::between(&model(&old), &model(&format!("{new} balance leastconn\n")));
    let said: Vec<&str> = both.changes.iter().map(|change| &*change.change).collect();
    assert_eq!(said[1..], ["backend b7: balance changed"], "{both}");
    assert!(both.to_string().contains("balance roundrobin -> leastconn (a.cfg:28)"), "{both}");
}

#[test]
fn a_change_of_default_server_is_told_once() {
    let weight = |weight: u32| sections(&format!(" timeout server 1s\n default-server weight {weight}\n"), "");
    check(
        &weight(2),
        &weight(3),
        "defaults: default-server: weight changed for 7 servers of b1, b2, b3, b4, b5, 2 more\n    weight 2 -> 3 (a.cfg:11)\n    \
         impact: none",
    );
    let own = |line: &str| format!("{OLD} weight 5\nbackend b\n{line} server s1 127.0.0.1:1\n server s2 127.0.0.1:1\n");
    check(
        &own(" default-server maxconn 2\n"),
        &own(" default-server maxconn 3\n"),
        "backend b: default-server: maxconn changed for 2 servers\n    maxconn 2 -> 3 (a.cfg:12)\n    impact: none",
    );
    check(
        &own(" default-server maxconn 2\n"),
        &own(""),
        "backend b: default-server: maxconn changed for 2 servers\n    maxconn 2 -> 0\n    impact: none",
    );
}

#[test]
fn rules_are_told_line_by_line() {
    let (old, new) = (sections("", " http-request deny if TRUE\n"), sections("", " http-request allow if TRUE\n"));
    check(
        &old,
        &new,
        "frontend web: rules changed\n    - http-request deny if TRUE\n    + http-request allow if TRUE (a.cfg:13)\n    impact: none",
    );
}

#[test]
fn a_summary_counts_what_comes_changes_goes_and_waits() {
    let old = format!("{OLD}\nbackend gone\n server s 127.0.0.1:1");
    let new = format!("{OLD} weight 5\nbackend new\n server s 127.0.0.1:1\nglobal\n nbthread 2");
    let summary = |pending| Plan::between(&model(&old), &model(&new)).summary(pending).to_string();
    assert_eq!(summary(1), "1 to add, 2 to change, 1 to remove; 1 waits for a restart");
    assert_eq!(summary(2), "1 to add, 2 to change, 1 to remove; 2 wait for a restart");
}

#[test]
fn from_nothing_everything_is_added() {
    let plan = Plan::from_nothing(&model(OLD));
    assert_eq!(
        plan.to_string(),
        "frontend web added: bind 127.0.0.1:80\n    at a.cfg:6\n    impact: none\nbackend app added: server s1\n    at a.cfg:9\n    \
         impact: none\n"
    );
}

#[test]
fn another_mode_is_told_in_the_words_of_the_one_before() {
    let direct = "listen web\n mode direct\n bind 192.0.2.1:80\n server s1 192.0.2.11 weight 1";
    let http = "listen web\n mode http\n bind 192.0.2.1:80\n server s1 192.0.2.11:8080 weight 2";
    let told = Plan::between(&model(direct), &model(http)).to_string();
    assert!(
        told.contains("the kernel no longer forwards their packets") && !told.contains("requests and tunnels"),
        "{told}"
    );
    let told = Plan::between(&model(OLD), &model(&format!("global\n log stdout local0\n{OLD}"))).to_string();
    assert!(told.contains("log unset -> stdout len 1024") && !told.contains("LogTarget"), "{told}");
}

/// A section of `mode direct` with these servers.
fn direct(name: &str, servers: &str) -> String {
    format!("listen {name}\n mode direct\n bind 192.0.2.1:80\n{servers}")
}

const DIRECT: &str = " server s1 192.0.2.11\n server s2 192.0.2.12\n";

/// Whom a change of a direct section disturbs, a line each.
fn disturbed(old: &str, new: &str) -> Vec<String> {
    let plan = Plan::between(&model(old), &model(new));
    plan.changes.iter().map(|one| one.impact.clone().unwrap_or("none".into())).collect()
}

#[test]
fn the_kernel_tells_servers_by_their_addresses() {
    let old = direct("web", DIRECT);
    assert_eq!(disturbed(&old, &direct("web", &DIRECT.replace("s1", "app"))), ["none", "none"]);
    let swapped = " server s1 192.0.2.12\n server s2 192.0.2.11\n";
    assert_eq!(disturbed(&old, &direct("web", swapped)), ["none", "none"]);
    assert_eq!(disturbed(&old, &direct("www", DIRECT)), ["none", "none"]);
    let gone = disturbed(&old, &direct("web", " server s1 192.0.2.11\n"));
    assert!(gone[0].contains("no longer forwards"), "{gone:?}");
    let moved = disturbed(&old, &direct("web", &DIRECT.replace("2.12", "2.13")));
    assert!(moved[0].contains("the old address"), "{moved:?}");
    let fewer = disturbed(&old, &direct("www", " server s1 192.0.2.11\n"));
    assert_eq!(fewer[0], "open connections of servers 192.0.2.12:80: the kernel no longer forwards their packets");
}

#[test]
fn another_backend_disturbs_who_is_not_in_it() {
    let text = |used: &str| {
        format!(
            "frontend web\n mode direct\n bind 192.0.2.1:80\n default_backend {used}\n\
             backend a\n mode direct\n{DIRECT}backend b\n mode direct\n server t 192.0.2.12\n"
        )
    };
    let told = disturbed(&text("a"), &text("b"));
    assert_eq!(told, ["open connections of servers 192.0.2.11:80: the kernel no longer forwards their packets"]);
    assert_eq!(disturbed(&text("b"), &text("a")), ["none"]);
}

#[test]
fn a_server_without_a_port_is_told_without() {
    let told = Plan::between(&model(&direct("web", " server s1 192.0.2.11\n")), &model(&direct("web", DIRECT)));
    assert_eq!(told.changes[0].change, "listen web: server s2 added (192.0.2.12)");
}
