//! With the real programs, in a network namespace of the test.

use std::process::Command;

use baton_kernel::netns;

use super::*;

/// Runs `work` in a namespace of its own for each family and variant that is installed.
fn everywhere(work: impl Fn(&Iptables) + Send + Sync) {
    for family in [Family::Ipv4, Family::Ipv6] {
        for variant in [Variant::Nft, Variant::Legacy] {
            let inside =
                || work(&Iptables::with_variant(family, variant).expect("scripts/setup test installs iptables"));
            if let Err(error) = netns::in_new(inside) {
                eprintln!("SKIPPED: no right to a network namespace ({error})");
            }
        }
    }
}

/// A firewall somebody wrote.
fn firewall(iptables: &Iptables) {
    let rules = "*mangle\n:INPUT ACCEPT [0:0]\n:MINE - [0:0]\n-A INPUT -p tcp -m comment --comment \"keep -j this\" -j MINE\n\
                 -A MINE -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n";
    iptables.restore("mangle", rules).expect("the rules are right");
}

/// Without the lines that say when and the counters.
fn rules(iptables: &Iptables) -> String {
    let text = iptables.save().expect("it may be read");
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" [").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn hold(chain: &Chain) -> Vec<Change> {
    vec![
        Change::Empty(chain.clone()),
        Change::Append(
            chain.clone(),
            "-p tcp -m tcp --dport 80 --syn -j NFQUEUE --queue-num 7 --queue-bypass".to_owned(),
        ),
        Change::Hook { from: "INPUT", matching: "-p tcp".to_owned(), to: chain.clone(), place: JumpPosition::Last },
    ]
}

#[test]
fn what_was_there_is_there_afterwards() {
    everywhere(|iptables| {
        firewall(iptables);
        let before = rules(iptables);
        let chain = Chain::new("HOLD-1").unwrap();
        iptables.apply("mangle", &hold(&chain)).unwrap();
        let with = rules(iptables);
        assert!(with.contains("-A INPUT -p tcp -j BATON-HOLD-1"), "{with}");
        assert!(with.contains("-j NFQUEUE --queue-num 7 --queue-bypass"), "{with}");
        // Twice is no harm but for a second jump, and all jumps go.
        iptables.apply("mangle", &hold(&chain)).unwrap();
        assert_eq!(iptables.ours("HOLD-").unwrap(), std::slice::from_ref(&chain));
        iptables.remove(&chain).unwrap();
        assert_eq!(rules(iptables), before);
        iptables.remove(&chain).unwrap();
        assert_eq!(rules(iptables), before);
        assert_eq!(iptables.ours("").unwrap(), []);
    });
}

#[test]
fn changes_are_made_whole_or_not_at_all() {
    everywhere(|iptables| {
        firewall(iptables);
        let before = rules(iptables);
        let chain = Chain::new("FLIP-web").unwrap();
        let mut changes = hold(&chain);
        changes.push(Change::Append(chain.clone(), "-j NOBODY-KNOWS-THIS".to_owned()));
        let error = iptables.apply("mangle", &changes).unwrap_err().to_string();
        assert!(error.starts_with("changing the table mangle: ") && error.contains("NOBODY-KNOWS-THIS"), "{error}");
        assert_eq!(rules(iptables), before);
        let error = iptables.apply("mangle", &[Change::Append(chain, "-j ACCEPT\n-F".to_owned())]).unwrap_err();
        assert!(matches!(error, Error::Rule(_)), "{error}");
    });
}

#[test]
fn jumps_and_rules_go_one_by_one_too() {
    everywhere(|iptables| {
        firewall(iptables);
        let chain = Chain::new("FLIP-web").unwrap();
        let one = || "-p tcp -m tcp --dport 81 -j ACCEPT".to_owned();
        let two = || "-p tcp -m tcp --dport 82 -j ACCEPT".to_owned();
        let to = || chain.clone();
        let hook = Change::Hook { from: "INPUT", matching: String::new(), to: to(), place: JumpPosition::First };
        iptables.apply("mangle", &[Change::Empty(to()), Change::Append(to(), one()), hook]).unwrap();
        let text = rules(iptables);
        assert!(text.find("-j BATON-FLIP-web") < text.find("keep -j this"), "{text}");
        iptables.apply("mangle", &[Change::Insert(to(), two()), Change::Delete(to(), one())]).unwrap();
        let text = rules(iptables);
        assert!(text.contains("--dport 82") && !text.contains("--dport 81"), "{text}");
        let unhook = Change::Unhook { from: "INPUT", matching: String::new(), to: to() };
        iptables.apply("mangle", &[unhook, Change::Empty(to())]).unwrap();
        assert!(!rules(iptables).contains("-j BATON"));
        iptables.remove(&chain).unwrap();
    });
}

#[test]
fn finds_the_variant_that_the_host_lives_with() {
    for variant in [Variant::Nft, Variant::Legacy] {
        let inside = || {
            let with = Iptables::with_variant(Family::Ipv4, variant).expect("scripts/setup test installs iptables");
            firewall(&with);
            assert_eq!(Iptables::find(Family::Ipv4).unwrap().variant(), variant);
        };
        if let Err(error) = netns::in_new(inside) {
            eprintln!("SKIPPED: no right to a network namespace ({error})");
        }
    }
}

#[test]
fn looking_makes_no_tables() {
    let inside = || {
        let found = Iptables::find(Family::Ipv4).unwrap();
        assert_eq!(found.ours("").unwrap(), []);
        found.remove(&Chain::new("HOLD-1").unwrap()).unwrap();
        let ruleset =
            Command::new("nft").args(["list", "ruleset"]).output().expect("scripts/setup test installs nftables");
        assert_eq!(String::from_utf8_lossy(&ruleset.stdout), "");
        assert_eq!(fs::read_to_string(Family::Ipv4.legacy_tables()).unwrap_or_default(), "");
    };
    if let Err(error) = netns::in_new(inside) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

#[test]
fn names_are_judged() {
    assert_eq!(Chain::new("HOLD-16000").unwrap().name(), "BATON-HOLD-16000");
    for wrong in ["", "a b", "a\nb", "-j ACCEPT\"", &"x".repeat(23)] {
        assert!(matches!(Chain::new(wrong), Err(Error::Name(_))), "{wrong}");
    }
}

#[test]
fn says_what_to_do() {
    for (said, remedy) in [
        ("Could not fetch rule set generation id: Permission denied (you must be root)", "CAP_NET_ADMIN"),
        ("Another app is currently holding the xtables lock", "try again"),
        ("RULE_APPEND failed (No such file or directory): rule in chain INPUT", "module"),
    ] {
        assert!(super::remedy(said).is_some_and(|text| text.contains(remedy)), "{said}");
    }
    assert_eq!(super::remedy("something else"), None);
}
