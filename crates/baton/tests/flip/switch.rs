//! New connections go to one of the two, from one moment to the next, and those that are open stay.

use std::fs;
use std::net::TcpStream;

use super::machine::*;

/// Flips under load at least; a busy machine makes few of them in the time of one load.
const FLIPS: usize = 10;

/// Flips again and again while `ab` asks with ten connections at a time.
fn under_load(method: &str) {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init(&format!("--method {method}"));
        let mut long = connect(FRONT);
        assert_eq!(ask(&mut long), "blue");
        let (mut flips, mut asked) = (0, 0);
        while flips < FLIPS {
            asked += while_asked(|| {
                let to = if flips % 2 == 0 { "green" } else { "blue" };
                machine.does(&format!("to {to}"));
                assert_eq!(who(FRONT), to);
                assert_eq!(ask(&mut long), "blue", "a connection stays where it is");
                flips += 1;
            });
        }
        println!("{method}: {flips} flips, {asked} requests, none failed");
        drop(long);
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn nobody_fails_while_nft_flips() {
    under_load("nft");
}

#[test]
fn nobody_fails_while_ipset_flips() {
    under_load("ipset");
}

/// Only the kernel's part of a flip, thousands of times in a second: a connection that looks in between is not refused.
#[test]
fn nobody_falls_between_two_ipsets() {
    const SWAPS: usize = 5_000;
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("--method ipset");
        let swaps = machine.run.path().join("swaps");
        fs::write(&swaps, "swap baton-web-blue baton-web-green\n".repeat(SWAPS)).expect("the folder is ours");
        let restore = format!("ipset restore < {}", swaps.display());
        while_asked(|| drop(shell(&restore)));
        machine.does("to blue");
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn nobody_fails_while_iptables_flips() {
    under_load("iptables");
}

#[test]
fn both_families_and_every_address_are_flipped_at_once() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", "*:8000,:::8000 v6only"), haproxy("green", "*:8001,:::8001 v6only")];
            machine.does(&format!("init --listen :80 --blue :8000 --green :8001 --method {method}"));
            assert_eq!(localnet(), "0", "nothing listens at the loopback alone");
            for to in ["green", "blue"] {
                machine.does(&format!("to {to} --check /"));
                assert_eq!([who(FRONT), who("[::1]:80")], [to, to], "{method}");
            }
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn clients_from_elsewhere_are_flipped_too() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        let elsewhere = Elsewhere::new();
        let curl = "curl -sS --retry 20 --retry-all-errors --retry-delay 0 -m 5";
        for method in METHODS {
            machine.init(&format!("--method {method}"));
            for to in ["green", "blue"] {
                machine.does(&format!("to {to}"));
                assert!(elsewhere.run(&format!("{curl} http://10.9.0.1/")).starts_with(to), "{method}");
            }
            assert_eq!(localnet(), "1");
            machine.does("remove");
            machine.is_as_before();
        }
    });
}

#[test]
fn setting_up_again_changes_nothing_and_mends_what_a_firewall_flushed() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        machine.does("to green");
        let made = rules();
        assert!(machine.init("").contains("set up already, and green is active"));
        assert_eq!(rules(), made);
        machine.does("status");
        shell("nft delete table inet baton-flip-web");
        let said = machine.refuses("status");
        assert!(said.contains("it is missing in the kernel"), "{said}");
        machine.init("");
        assert_eq!(rules(), made, "green is active still");
        shell("nft flush map inet baton-flip-web active4");
        assert!(machine.refuses("status").contains("leads to neither"));
        assert!(machine.does("to blue").contains("set up again"));
        assert_eq!(who(FRONT), "blue");
        // Another setting under the same name, and another method, which would hide the first.
        let moved = format!("init --listen 127.0.0.1:81 --blue {BLUE} --green {GREEN}");
        assert!(machine.refuses(&format!("{moved} --method ipset")).contains("set up with method nft"));
        machine.does(&moved);
        assert_eq!(who("127.0.0.1:81"), "blue");
        assert!(TcpStream::connect(FRONT).is_err());
        // A file that was lost: the kernel is the truth, and can be cleaned.
        shell(&format!("find {} -name 'flip-*.json' -delete", machine.run.path().display()));
        assert!(machine.refuses("status").contains("in the kernel without a file"));
        machine.does("remove");
        machine.is_as_before();
        machine.does("remove");
    });
}

#[test]
fn the_loopback_is_open_only_as_long_as_one_needs_it() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        for method in METHODS {
            // Other addresses, which need it no more.
            machine.init(&format!("--method {method}"));
            assert_eq!(localnet(), "1");
            machine.does(&format!("init --listen :80 --blue :8000 --green :8001 --method {method} --force"));
            assert_eq!(localnet(), "0", "{method}");
            machine.init("");
            assert_eq!(localnet(), "1");
            // Whichever of two goes last closes it.
            machine.does(&format!("init --name other --listen :81 --blue {BLUE} --green {GREEN} --method {method}"));
            machine.does("remove");
            assert_eq!(localnet(), "1", "{method}");
            machine.does("remove --name other");
            machine.is_as_before();
            // What the user has switched on stays so.
            shell(&format!("echo 1 > {LOCALNET}"));
            machine.init(&format!("--method {method}"));
            machine.does("remove");
            assert_eq!(localnet(), "1", "{method}");
            shell(&format!("echo 0 > {LOCALNET}"));
            machine.is_as_before();
        }
    });
}

#[test]
fn an_instance_that_does_not_answer_gets_nobody() {
    in_network(|machine| {
        let said = machine.refuses(&format!("init --listen :80 --blue {BLUE} --green {GREEN}"));
        assert!(said.contains("does not respond"), "{said}");
        machine.is_as_before();
        let _green = haproxy("green", GREEN);
        assert!(machine.init("").contains("go to green"), "it is the one that answers");
        let said = machine.refuses("to blue");
        assert!(said.contains("blue (127.0.0.1:8000) does not respond") && said.contains("--force"), "{said}");
        let _blue = haproxy("blue", BLUE);
        assert!(machine.refuses("to blue --check /none").contains("status 404"));
        assert!(machine.refuses("to blue --check 'exit 3'").contains("exit status: 3"));
        assert_eq!(who(FRONT), "green");
        machine.does("to blue --check 'test $BATON_FLIP_COLOUR-$BATON_FLIP_ADDRESS = blue-127.0.0.1:8000'");
        machine.does(&format!("to green --check http://{GREEN}/"));
        machine.does("to blue --check /none --force");
        assert_eq!(who(FRONT), "blue");
        machine.does("remove");
        machine.is_as_before();
    });
}
