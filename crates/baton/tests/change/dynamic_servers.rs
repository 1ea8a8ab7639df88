//! Servers that come and go at run time: without a failed request, and kept until the file itself says something about them.

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::overrides::{Operated, chosen, shown};
use super::{assert_served, origin};
use crate::support::clients::{assert_clean, under_load};
use crate::support::until;

const REGISTERED: &str = "New server registered.\n\n";
const DELETED: &str = "Server deleted.\n\n";

/// The names of the servers with their states.
fn servers(operated: &Operated) -> Vec<String> {
    shown(&operated.proxy).0
}

#[test]
fn servers_come_and_go_under_load_without_a_failed_request() {
    let operated = Operated::start();
    let more = origin();
    let result = under_load(&operated.web.to_string(), || {
        for turn in 0..30 {
            let name = format!("app/n{}", turn % 3);
            let add = format!("add server {name} {} weight 10 maxconn 50", more.address());
            assert_eq!(operated.command(&add), REGISTERED);
            operated.set(&[&format!("enable server {name}")]);
            let before = chosen(&operated.proxy, 3);
            until("it is used", || chosen(&operated.proxy, 3) > before);
            operated.set(&[&format!("set server {name} state maint")]);
            until("it is deleted", || match operated.command(&format!("del server {name}")).as_str() {
                DELETED => true,
                other => {
                    assert_eq!(other, "Server still has connections attached to it, cannot remove it.\n\n");
                    false
                }
            });
        }
    });
    assert_clean(&result, &operated.proxy.said());
    assert_eq!(servers(&operated).len(), 3);
    assert_eq!(shown(&operated.proxy).1, Vec::<String>::new(), "nothing is left of them");
}

#[test]
fn an_added_server_stays_until_the_file_names_it() {
    let operated = Operated::start();
    let more = origin();
    let line = format!("{} weight 30", more.address());
    assert_eq!(operated.command(&format!("add server app/n1 {line}")), REGISTERED);
    assert_eq!(servers(&operated)[3], "n1 MAINT");
    operated.set(&["set server app/n1 state ready", "set weight app/n1 20"]);
    let text = operated.text.replace("weight 10", "weight 10 maxconn 9");
    let outcome = operated.proxy.change(&text);
    assert!(outcome.plan.overrides.iter().all(|one| one.ends.is_none()), "{:?}", outcome.plan.overrides);
    let kept = [
        "server app/n1 state ready (file: maint)".to_owned(),
        "server app/n1 weight 20 (file: 30)".to_owned(),
        format!("server app/n1 line {line} (file: -)"),
    ];
    assert_eq!((servers(&operated)[3].as_str(), shown(&operated.proxy).1), ("n1 no check", kept.to_vec()));
    (0..10).for_each(|_| assert_served(operated.web));
    assert!(chosen(&operated.proxy, 3) > 0);
    let state = operated.command("show servers state app");
    assert!(state.contains(&format!(" n1 {} ", more.address().ip())), "{state}");

    // The file names it.
    let named = format!("{text} server n1 {} weight 5\n", more.address());
    operated.proxy.write(&named);
    let planned = operated.proxy.plan().plan;
    assert_eq!(planned.overrides.iter().filter(|one| one.ends.is_some()).count(), 3, "{:?}", planned.overrides);
    operated.proxy.change(&named);
    assert_eq!(shown(&operated.proxy).1, Vec::<String>::new());
    assert_eq!(operated.command("get weight app/n1"), "5 (initial 5)\n\n");
}

#[test]
fn a_deleted_server_stays_deleted_until_the_file_changes_where_it_is() {
    let operated = Operated::start();
    let is = "Only servers in maintenance mode can be deleted.\n\n";
    assert_eq!(operated.command("del server app/s2"), is);
    operated.set(&["disable server app/s2", "set weight app/s2 1"]);
    assert_eq!(operated.command("del server app/s2"), DELETED);
    let deleted = vec![format!("server app/s2 line - (file: {})", operated.origin.address())];
    assert_eq!((servers(&operated).len(), shown(&operated.proxy).1), (2, deleted.clone()));
    operated.proxy.change(&operated.text.replace("weight 10", "weight 11"));
    assert_eq!((servers(&operated).len(), shown(&operated.proxy).1), (2, deleted));
    let other = origin();
    let from = format!("server s2 {}", operated.origin.address());
    operated.proxy.change(&operated.text.replace(&from, &format!("server s2 {}", other.address())));
    assert_eq!((servers(&operated).len(), shown(&operated.proxy).1), (3, Vec::new()));
    assert_eq!(servers(&operated)[1], "s2 no check", "what was set of it before is gone");
}

#[test]
fn a_process_that_takes_over_has_the_servers_that_were_added_and_deleted() {
    let operated = Operated::start();
    let more = origin();
    assert_eq!(operated.command(&format!("add server app/n1 {} weight 10 check", more.address())), REGISTERED);
    operated.set(&["enable health app/n1", "enable server app/n1", "disable server app/s1"]);
    assert_eq!(operated.command("del server app/s1"), DELETED);
    until("it is checked", || servers(&operated).contains(&"n1 UP".to_owned()));
    let before = (shown(&operated.proxy), operated.proxy.status().overrides);
    let second = operated.proxy.replace(&[]);
    assert_eq!((shown(&second), second.status().overrides), before);
    (0..6).for_each(|_| assert_served(operated.web));
    assert!(chosen(&second, 2) > 0, "the added one is used");
}

#[test]
fn a_worker_that_replaces_a_dead_one_has_them_too() {
    let operated = Operated::start_with(&["-W"]);
    let more = origin();
    assert_eq!(operated.command(&format!("add server app/n1 {} weight 10", more.address())), REGISTERED);
    operated.set(&["enable server app/n1", "disable server app/s1"]);
    assert_eq!(operated.command("del server app/s1"), DELETED);
    let before = (shown(&operated.proxy), operated.proxy.status().overrides);
    let dead = operated.proxy.status().pid;
    kill(Pid::from_raw(dead as i32), Signal::SIGKILL).expect("it is ours");
    until("another one serves", || match ask(Whom::Pid(operated.proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => status.pid != 0 && status.pid != dead,
        _ => false,
    });
    assert_eq!((shown(&operated.proxy), operated.proxy.status().overrides), before);
    (0..6).for_each(|_| assert_served(operated.web));
    assert!(chosen(&operated.proxy, 2) > 0, "the added one is used");
}

#[test]
fn a_file_that_an_added_server_does_not_fit_leaves_it_out_and_says_so() {
    let operated = Operated::start();
    let checked = operated.text.replacen("weight 10", "weight 10 check", 1);
    operated.proxy.change(&checked);
    let more = origin();
    assert_eq!(operated.command(&format!("add server app/n1 {} track s1", more.address())), REGISTERED);
    let outcome = operated.proxy.change(&operated.text);
    let told = outcome.messages.iter().find(|message| message.id == "added-server").map(|message| &*message.message);
    let expect = "server app/n1, added at run time, does not fit the configuration and is removed: unable to use app/s1 for \
        tracking as it does not have any check nor agent enabled.";
    assert_eq!((told, servers(&operated).len()), (Some(expect), 3));
    operated.proxy.change(&checked);
    assert_eq!(servers(&operated).len(), 4, "it fits again");
}

#[test]
fn hundreds_of_servers_come_one_after_the_other_and_each_is_what_it_would_be_in_the_file() {
    const ADDED: usize = 300;
    let operated = Operated::start();
    let more = origin();
    for number in 0..ADDED {
        assert_eq!(operated.command(&format!("add server app/n{number} {}", more.address())), REGISTERED);
    }
    // Name and id of each server.
    let state = |name: &str| {
        let all = operated.command("show servers state app");
        let mut lines = all.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.find(|words| words.get(3) == Some(&name)).map(|words| words[2].to_owned())
    };
    assert_eq!(servers(&operated).len(), 3 + ADDED);
    assert_eq!([state("n0"), state("n299")], ["4", "303"].map(|id| Some(id.to_owned())));
    let again = format!("add server app/n7 {}", more.address());
    assert_eq!(operated.command(&again), "Already exists a server with the same name in backend.\n\n");
    assert_eq!(operated.command("del server app/n7"), DELETED);
    assert_eq!(operated.command("add server app/other 127.0.0.1:9 foo"), "unknown keyword 'foo'.\n\n");
    assert_eq!(operated.command(&again), REGISTERED);
    assert_eq!(state("n7").as_deref(), Some("11"), "the id is free again");

    // What was set before others came stays, and one of the last takes part.
    operated.set(&["set weight app/s1 3", "disable server app/s2", "enable server app/n298"]);
    assert_eq!(operated.command(&format!("add server app/last {}", more.address())), REGISTERED);
    operated.set(&["enable server app/last"]);
    assert_eq!(operated.command("get weight app/s1"), "3 (initial 10)\n\n");
    let (now, _) = shown(&operated.proxy);
    assert_eq!((&*now[1], &*now[3 + 298 - 1], &*now[3 + 300]), ("s2 MAINT", "n298 no check", "last no check"));
    (0..40).for_each(|_| assert_served(operated.web));
    assert!(chosen(&operated.proxy, 3 + 298 - 1) > 0 && chosen(&operated.proxy, 3 + 300) > 0, "they are used");

    // A reload reads all of them again.
    operated.proxy.change(&operated.text.replacen("weight 10", "weight 11", 1));
    assert_eq!(servers(&operated).len(), 3 + ADDED + 1);
    (0..10).for_each(|_| assert_served(operated.web));
}

#[test]
fn a_server_of_the_file_that_is_deleted_and_added_at_another_address_is_there_as_long_as_the_file_says_the_same() {
    let operated = Operated::start();
    let other = origin();
    operated.set(&["disable server app/s2"]);
    assert_eq!(operated.command("del server app/s2"), DELETED);
    assert_eq!(operated.command(&format!("add server app/s2 {}", other.address())), REGISTERED);
    let (was, is) = (operated.origin.address(), other.address());
    let line = vec![format!("server app/s2 line {is} (file: {was})")];
    assert_eq!((servers(&operated).len(), shown(&operated.proxy).1), (3, line.clone()));
    operated.proxy.change(&operated.text.replacen("weight 10", "weight 11", 1));
    assert_eq!((servers(&operated).len(), shown(&operated.proxy).1), (3, line));
    let third = origin();
    let text = operated.text.replace(&format!("server s2 {was}"), &format!("server s2 {}", third.address()));
    operated.proxy.change(&text);
    assert_eq!((servers(&operated)[1].as_str(), shown(&operated.proxy).1), ("s2 no check", Vec::new()));
}
