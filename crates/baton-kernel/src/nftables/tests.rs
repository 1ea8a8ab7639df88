//! What was made, as the `nft` program sees it, in a network namespace of each test's own.

use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;

use super::*;
use crate::netlink::{Protocol, Socket};
use crate::testing::in_network;

/// What `nft` says of the namespace.
fn ruleset() -> String {
    let output =
        Command::new("nft").args(["-n", "list", "ruleset"]).output().expect("the package nftables is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn nft(text: &str) {
    let status = Command::new("nft").arg(text).status().expect("the package nftables is installed");
    assert!(status.success(), "nft {text}");
}

fn chain(name: &str, kind: Kind, hook: Hook, priority: i32) -> Chain {
    Chain { name: name.into(), kind, hook, priority }
}

/// A transaction that makes a table with one chain of each kind.
fn table() -> (Table, Transaction) {
    let table = Table::inet("baton_test");
    let transaction = Transaction::new()
        .table(&table)
        .chain(&table, &chain("in", Kind::Filter, Hook::Input, priority::FILTER))
        .chain(&table, &chain("nat", Kind::Nat, Hook::Prerouting, priority::DSTNAT));
    (table, transaction)
}

/// How `nft` shows a rule of the chain `in`.
fn shown(rule: &Rule) -> String {
    let (table, transaction) = table();
    in_network(|| {
        let sets =
            [Set::new("ports", DataType::Port), Set::new("v4", DataType::Ipv4), Set::new("v6port", DataType::Ipv6Port)];
        let transaction = sets.iter().fold(transaction, |transaction, set| transaction.set(&table, set));
        transaction.rule(&table, "in", rule).commit().unwrap();
        let all = ruleset();
        let lines = all.lines().skip_while(|line| !line.contains("type filter")).skip(1);
        lines.take_while(|line| !line.contains('}')).map(str::trim).collect::<Vec<_>>().join("; ")
    })
}

#[test]
fn rules_are_what_they_say() {
    let cases = [
        (Rule::new().tcp().destination_port(80).verdict(Verdict::Drop), "tcp dport 80 drop"),
        (Rule::new().tcp().source_port(7).verdict(Verdict::Return), "tcp sport 7 return"),
        (Rule::new().tcp().opens_connection().counted(), "tcp flags 0x2 / 0x1,0x2,0x4,0x10 counter packets 0 bytes 0"),
        (Rule::new().destination("10.1.2.3".parse().unwrap()).mark(5), "ip daddr 10.1.2.3 meta mark set 0x00000005"),
        (Rule::new().source("10.1.2.3".parse().unwrap()).verdict(Verdict::Drop), "ip saddr 10.1.2.3 drop"),
        (Rule::new().source("fd00::1".parse().unwrap()).verdict(Verdict::Drop), "ip6 saddr fd00::1 drop"),
        (Rule::new().destination("fd00::1".parse().unwrap()).verdict(Verdict::Drop), "ip6 daddr fd00::1 drop"),
        (
            Rule::new().destination_net("127.0.0.0".parse().unwrap(), 8).counted(),
            "ip daddr 127.0.0.0/8 counter packets 0 bytes 0",
        ),
        (Rule::new().source_net("127.0.0.0".parse().unwrap(), 8).verdict(Verdict::Drop), "ip saddr 127.0.0.0/8 drop"),
        (Rule::new().destination_net("fe80::".parse().unwrap(), 10).verdict(Verdict::Drop), "ip6 daddr fe80::/10 drop"),
        (Rule::new().incoming("eth0").marked(7).verdict(Verdict::Drop), "iifname \"eth0\" meta mark 0x00000007 drop"),
        (Rule::new().not_incoming("lo").verdict(Verdict::Drop), "iifname != \"lo\" drop"),
        (Rule::new().not_outgoing("lo").verdict(Verdict::Drop), "oifname != \"lo\" drop"),
        (
            Rule::new().family(Family::Ipv6).destination_is_local().verdict(Verdict::Drop),
            "meta nfproto 10 fib daddr type 2 drop",
        ),
        (Rule::new().tcp().destination_port_in("ports").verdict(Verdict::Drop), "tcp dport @ports drop"),
        (
            Rule::new().tcp().destination_and_port_in(Family::Ipv6, "v6port").verdict(Verdict::Drop),
            "ip6 daddr . tcp dport @v6port drop",
        ),
        (Rule::new().verdict(Verdict::Drop).comment("of baton"), "drop comment \"of baton\""),
    ];
    for (rule, expected) in cases {
        assert_eq!(shown(&rule), expected, "{rule:?}");
    }
}

#[test]
fn a_map_sends_connections_elsewhere_and_is_read_back() {
    in_network(|| {
        let (table, transaction) = table();
        let v4: std::net::SocketAddr = "127.0.0.1:8000".parse().unwrap();
        let v6: std::net::SocketAddr = "[fd00::1]:8001".parse().unwrap();
        transaction
            .set(&table, &Set::map("v4", DataType::Port, DataType::Ipv4Port))
            .set(&table, &Set::map("v6", DataType::Port, DataType::Ipv6Port))
            .set(&table, &Set::map("here", DataType::Port, DataType::Port))
            .elements(&table, "v4", &[Element::port(80).to(v4)])
            .elements(&table, "v6", &[Element::port(80).to(v6)])
            .elements(&table, "here", &[Element::port(80).to_port(8000)])
            .rule(&table, "nat", &Rule::new().family(Family::Ipv4).tcp().dnat_by_port(Family::Ipv4, "v4"))
            .rule(&table, "nat", &Rule::new().family(Family::Ipv6).tcp().dnat_by_port(Family::Ipv6, "v6"))
            .rule(&table, "nat", &Rule::new().tcp().redirect_by_port("here"))
            .commit()
            .unwrap();
        let shown = ruleset();
        for expected in [
            "elements = { 80 : 127.0.0.1 . 8000 }",
            "elements = { 80 : fd00::1 . 8001 }",
            "elements = { 80 : 8000 }",
            "dnat ip to tcp dport map @v4",
            "dnat ip6 to tcp dport map @v6",
            "redirect to :tcp dport map @here",
        ] {
            assert!(shown.contains(expected), "{expected} is not in {shown}");
        }
        let mut nftables = Nftables::open().unwrap();
        let read = |nftables: &mut Nftables, map: &str| nftables.elements(&table, map).unwrap().unwrap();
        assert_eq!(read(&mut nftables, "v4"), [Element::port(80).to(v4)]);
        assert_eq!(read(&mut nftables, "v4")[0].gives(), Some(v4));
        assert_eq!(read(&mut nftables, "v6")[0].gives(), Some(v6));
        assert_eq!(read(&mut nftables, "here"), [Element::port(80).to_port(8000)]);
        assert_eq!(nftables.rules(&table).unwrap(), [("nat".to_owned(), 3)]);
        // Another value for the same key, at one moment.
        let other = "127.0.0.1:8001".parse().unwrap();
        Transaction::new()
            .flush_set(&table, "v4")
            .elements(&table, "v4", &[Element::port(80).to(other)])
            .commit()
            .unwrap();
        assert_eq!(read(&mut nftables, "v4")[0].gives(), Some(other));
        assert_eq!(nftables.elements(&table, "none").unwrap(), None);
        assert_eq!(nftables.elements(&Table::inet("none"), "v4").unwrap(), None);
    });
}

#[test]
fn an_element_may_end_by_itself() {
    in_network(|| {
        let (table, transaction) = table();
        let lasts = Duration::from_secs(100);
        let address = "10.0.0.1:80".parse().unwrap();
        transaction
            .set(&table, &Set::new("held", DataType::Ipv4Port).with_timeouts())
            .elements(&table, "held", &[Element::socket_address(address).lasting(lasts)])
            .commit()
            .unwrap();
        let elements = Nftables::open().unwrap().elements(&table, "held").unwrap().unwrap();
        assert_eq!(elements[0].as_socket_address(), Some(address));
        assert_eq!(elements[0].timeout, Some(lasts));
        assert!(elements[0].expires.unwrap() <= lasts);
        assert!(ruleset().contains("10.0.0.1 . 80 timeout 100s"), "{}", ruleset());
    });
}

#[test]
fn what_is_refused_is_named_and_nothing_is_half_done() {
    in_network(|| {
        let (table, transaction) = table();
        let refusal = transaction
            .rule(&table, "in", &Rule::new().tcp().verdict(Verdict::Drop))
            .rule(&table, "in", &Rule::new().tcp().destination_port_in("missing"))
            .commit()
            .unwrap_err();
        assert_eq!(refusal.errno(), Some(Errno::ENOENT), "{refusal}");
        let text = refusal.to_string();
        assert!(text.contains("rule 2 of chain `in` in table inet baton_test"), "{text}");
        assert_eq!(ruleset(), "");
        let refusal = Transaction::new().flush_chain(&table, "in").commit().unwrap_err();
        assert_eq!(refusal.errno(), Some(Errno::ENOENT), "{refusal}");
    });
}

#[test]
fn the_queue_statement_is_shown_or_refused_by_name() {
    in_network(|| {
        let (table, transaction) = table();
        let rule = Rule::new().tcp().destination_port(80).opens_connection().queue_or_bypass(7);
        match transaction.rule(&table, "in", &rule).commit() {
            Ok(()) => assert!(ruleset().contains("queue flags bypass to 7"), "{}", ruleset()),
            Err(refusal) => {
                assert_eq!(refusal.errno(), Some(Errno::ENOENT), "{refusal}");
                assert!(refusal.to_string().contains("`queue` statement"), "{refusal}");
                assert_eq!(ruleset(), "");
            }
        }
    });
}

#[test]
fn a_table_is_made_again_and_deleted_again_and_others_stay() {
    in_network(|| {
        nft("add table inet firewall { chain input { type filter hook input priority 0; tcp dport 22 accept; }; }");
        let before = ruleset();
        let (table, transaction) = table();
        assert_eq!(Nftables::open().unwrap().tables("baton").unwrap(), []);
        transaction.commit().unwrap();
        transaction.commit().unwrap();
        let refusal = Transaction::new().new_table(&table).commit().unwrap_err();
        assert_eq!(refusal.errno(), Some(Errno::EEXIST), "{refusal}");
        let mut nftables = Nftables::open().unwrap();
        assert_eq!(nftables.tables("baton").unwrap(), std::slice::from_ref(&table));
        assert!(nftables.has(&table).unwrap());
        for _ in 0..2 {
            Transaction::new().delete_table(&table).commit().unwrap();
            assert_eq!(ruleset(), before);
        }
        assert!(!nftables.has(&table).unwrap());
    });
}

#[test]
fn many_elements_take_several_messages() {
    in_network(|| {
        let (table, transaction) = table();
        let ports: Vec<Element> = (1..=5000).map(Element::port).collect();
        let transaction = transaction.set(&table, &Set::new("ports", DataType::Port)).elements(&table, "ports", &ports);
        transaction.commit().unwrap();
        let mut nftables = Nftables::open().unwrap();
        let count = |nftables: &mut Nftables| nftables.elements(&table, "ports").unwrap().unwrap().len();
        assert_eq!(count(&mut nftables), ports.len());
        Transaction::new().remove(&table, "ports", &ports[1..]).commit().unwrap();
        assert_eq!(count(&mut nftables), 1);
    });
}

#[test]
fn without_the_right_the_capability_is_named() {
    in_network(|| {
        // Of this thread alone, which ends with the test.
        caps::clear(None, caps::CapSet::Effective).unwrap();
        let refusal = Transaction::new().table(&Table::inet("baton_test")).commit().unwrap_err();
        assert!(refusal.to_string().contains("CAP_NET_ADMIN"), "{refusal}");
    });
}

#[test]
fn the_target_of_iptables_queues_where_there_is_no_statement() {
    in_network(|| {
        let (table, transaction) = table();
        let rule = Rule::new().tcp().destination_port(80).opens_connection().xtables_queue_or_bypass(7);
        transaction.rule(&table, "in", &rule).commit().unwrap();
        // The words depend on whether nft was built to translate them.
        assert!(
            ["queue num 7 bypass", "xt target \"NFQUEUE\""].iter().any(|words| ruleset().contains(words)),
            "{}",
            ruleset()
        );
    });
}

#[test]
fn rules_for_arp_are_what_they_say() {
    let vip = "192.0.2.7".parse().unwrap();
    let own = "192.0.2.1".parse().unwrap();
    let rules = [
        Rule::new().arp(ArpOperation::Request).arp_target(vip).verdict(Verdict::Drop),
        Rule::new().arp(ArpOperation::Reply).arp_sender(vip).verdict(Verdict::Drop),
        Rule::new().arp_sender(vip).outgoing("eth0").set_arp_sender(own).verdict(Verdict::Accept),
    ];
    let words = [
        "arp operation request arp daddr ip 192.0.2.7 drop",
        "arp operation reply arp saddr ip 192.0.2.7 drop",
        "arp saddr ip 192.0.2.7 oifname \"eth0\" arp saddr ip set 192.0.2.1 accept",
    ];
    in_network(|| {
        let table = Table::arp("baton_test");
        let transaction = Transaction::new()
            .table(&table)
            .chain(&table, &chain("in", Kind::Filter, Hook::Input, priority::FILTER))
            .chain(&table, &chain("out", Kind::Filter, Hook::Output, priority::FILTER));
        let transaction = rules.iter().fold(transaction, |transaction, rule| transaction.rule(&table, "out", rule));
        transaction.commit().unwrap();
        let all = ruleset();
        assert!(all.contains("type filter hook input") && all.contains("type filter hook output"), "{all}");
        // With -n operations are numbers.
        let all = all.replace("operation 1 ", "operation request ").replace("operation 2 ", "operation reply ");
        for words in words {
            assert!(all.contains(words), "{words}: {all}");
        }
        assert!(Nftables::open().unwrap().has(&table).unwrap());
        Transaction::new().delete_table(&table).commit().unwrap();
        assert!(ruleset().is_empty());
    });
}

#[test]
fn a_passing_table_goes_with_its_socket_and_nobody_else_changes_it() {
    in_network(|| {
        let passing = Table::inet("baton_passing");
        let made = Transaction::new().passing_table(&passing);
        let mut socket = Socket::open(Protocol::Netfilter).unwrap();
        made.commit_by(&mut socket).unwrap();
        assert!(Nftables::open().unwrap().has(&passing).unwrap());
        let refused = Transaction::new().delete_table(&passing).commit().unwrap_err();
        assert_eq!(refused.errno(), Some(Errno::EPERM), "{refused}");
        drop(socket);
        assert!(!Nftables::open().unwrap().has(&passing).unwrap());
        let mut socket = Socket::open(Protocol::Netfilter).unwrap();
        made.commit_by(&mut socket).unwrap();
    });
}
