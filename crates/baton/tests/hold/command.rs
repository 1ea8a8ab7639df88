//! What a command gets and gives, who is held meanwhile, and two runs at once.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::machine::{WEB, alone, is_open, migrate_setting, ours, text};
use crate::support::until;

#[test]
fn input_output_and_exit_code_are_the_commands() {
    alone(|machine| {
        for method in ["drop", "migrate"] {
            let words = ["--to", WEB, "--method", method, "--quiet", "--", "sh", "-c", "cat; echo wrong >&2; exit 7"];
            let mut child = machine.hold(&words).stdin(Stdio::piped()).spawn().expect("the program was built");
            child.stdin.take().expect("asked for").write_all(b"in and out").expect("it reads");
            let output = child.wait_with_output().expect("it is our child");
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "in and out"));
            assert_eq!(text(&output.stderr), "wrong\n", "--quiet says nothing more");
            machine.assert_clean();
        }
        let output = machine.run(&["--to", WEB, "--method", "drop", "--", "true"]);
        let said = text(&output.stderr);
        assert!(
            said.contains("method drop, as requested") && said.contains("0 SYNs to 127.0.0.1:80 dropped"),
            "{said}"
        );
        let output = machine.run(&["--to", WEB, "--method", "drop", "--json", "--", "true"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
        assert_eq!(
            (json["method"].as_str(), json["ended_by"].as_str(), json["exit"].as_u64()),
            (Some("drop"), Some("command"), Some(0))
        );
    });
}

#[test]
fn a_command_that_is_not_there_or_ends_by_a_signal_has_its_usual_code() {
    alone(|machine| {
        let check = |command: &[&str], expect: i32| {
            let output = machine.run(&[&["--to", WEB, "--method", "drop", "--"], command].concat());
            assert_eq!(output.status.code(), Some(expect), "{command:?}: {}", text(&output.stderr));
            machine.assert_clean();
        };
        check(&["no-such-command-anywhere"], 127);
        check(&["/etc/passwd"], 126);
        check(&["false"], 1);
        check(&["sh", "-c", "kill -KILL $$"], 137);
        let wrong = machine.run(&["--to", "nowhere", "--", "true"]);
        assert_eq!(wrong.status.code(), Some(125));
        assert!(text(&wrong.stderr).contains("the port is missing"), "{}", text(&wrong.stderr));
    });
}

#[test]
fn signals_are_passed_on_and_then_traffic_flows() {
    alone(|machine| {
        for (signal, trap) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT"), (Signal::SIGUSR1, "USR1")] {
            let script = format!("trap 'echo {trap}; exit 3' {trap}; BEGUN; while :; do sleep 0.01; done");
            let mut running = machine.start(&["--to", WEB, "--method", "drop", "--max", "60s"], &script);
            assert!(!ours().is_empty());
            let mut out = running.0.stdout.take().expect("asked for");
            running.signal(signal);
            let (code, said) = running.wait();
            let mut heard = String::new();
            out.read_to_string(&mut heard).expect("text");
            assert_eq!((code, heard.trim()), (3, trap), "{said}");
            machine.assert_clean();
        }
    });
}

#[test]
fn new_connections_wait_and_established_ones_do_not() {
    alone(|machine| {
        let server = TcpListener::bind(WEB).expect("nobody else is here");
        let mut client = TcpStream::connect(WEB).expect("somebody listens");
        let (mut served, _) = server.accept().expect("it is there");
        let running =
            machine.start(&["--to", ":80", "--to", "[::1]:81", "--method", "drop", "--max", "60s"], "exec sleep 60");
        client.write_all(b"still here").expect("it is connected");
        let mut heard = [0; 10];
        served.read_exact(&mut heard).expect("nobody touched it");
        assert!(!is_open(), "new ones are held");
        let six = TcpListener::bind("[::1]:81").expect("nobody else is here");
        let dial = |at: &str| TcpStream::connect_timeout(&at.parse().expect("an address"), Duration::from_millis(300));
        assert!(dial("[::1]:81").is_err());
        let other = TcpListener::bind("[::1]:82").expect("nobody else is here");
        assert!(dial("[::1]:82").is_ok(), "of others nothing is held");
        drop((six, other));
        running.signal(Signal::SIGTERM);
        let (_, said) = running.wait();
        assert!(is_open(), "{said}");
        assert!(said.contains("SYNs to :80, [::1]:81 dropped"), "{said}");
    });
}

#[test]
fn two_runs_exclude_each_other_by_address() {
    alone(|machine| {
        let first = machine.start(&["--to", WEB, "--method", "drop", "--max", "60s"], "exec sleep 60");
        let second = machine.run(&["--to", ":80", "--method", "drop", "--", "echo", "ran"]);
        let said = text(&second.stderr);
        assert_eq!((second.status.code(), text(&second.stdout).as_str()), (Some(125), ""), "{said}");
        assert!(
            said.contains(&format!("process {} holds 127.0.0.1:80", first.pid())) && said.contains("--wait"),
            "{said}"
        );
        let status = text(&machine.run(&["status"]).stdout);
        assert!(status.contains("held    127.0.0.1:80 (drop"), "{status}");
        let other = machine.run(&["--to", "127.0.0.2:80", "--to", ":81", "--method", "drop", "--", "true"]);
        assert!(other.status.success(), "{}", text(&other.stderr));

        let waiting = machine.hold(&["--to", WEB, "--method", "drop", "--wait", "--", "echo", "ran"]).spawn();
        let waiting = waiting.expect("the program was built");
        first.signal(Signal::SIGTERM);
        first.wait();
        let waited = waiting.wait_with_output().expect("it is our child");
        assert_eq!(
            (waited.status.code(), text(&waited.stdout).as_str()),
            (Some(0), "ran\n"),
            "{}",
            text(&waited.stderr)
        );
        machine.assert_clean();
    });
}

#[test]
fn the_last_of_several_runs_puts_the_setting_back() {
    alone(|machine| {
        for value in ["0", "1"] {
            fs::write("/proc/sys/net/ipv4/tcp_migrate_req", value).expect("it is our namespace");
            let first = machine.start(&["--to", ":80", "--method", "migrate", "--max", "60s"], "exec sleep 60");
            let second = machine.start(&["--to", ":81", "--method", "migrate", "--max", "60s"], "exec sleep 60");
            first.signal(Signal::SIGTERM);
            first.wait();
            assert_eq!(migrate_setting(), "1", "the second one needs it");
            second.signal(Signal::SIGTERM);
            second.wait();
            assert_eq!(migrate_setting(), value);
            machine.assert_clean();
        }
    });
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    alone(|machine| {
        for (method, expect) in
            [("drop", "table inet baton-hold-"), ("migrate", "net.ipv4.tcp_migrate_req = 1 (now 0)")]
        {
            let output = machine.run(&["--to", WEB, "--method", method, "--dry-run"]);
            let plan = text(&output.stdout);
            assert!(output.status.success() && plan.contains(expect) && plan.contains("after it:"), "{plan}");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_hold_may_go_on_after_the_command() {
    alone(|machine| {
        let hold = |linger: &[&str]| {
            let words = [&["--to", WEB, "--method", "drop", "--json"], linger, &["--", "true"]].concat();
            let output = machine.run(&words);
            let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
            assert_eq!((output.status.code(), json["ended_by"].as_str()), (Some(0), Some("command")), "{json}");
            json["held_ms"].as_f64().expect("a number")
        };
        assert!(hold(&["--linger", "300ms"]) >= 300.0);
        // Never longer than the deadline.
        assert!(hold(&["--linger", "1h", "--max", "200ms"]) < 3_600_000.0);
        machine.assert_clean();
    });
}

#[test]
fn a_signal_or_a_kill_ends_that_too() {
    alone(|machine| {
        let words = ["--to", WEB, "--method", "drop", "--max", "60s", "--linger", "60s", "--json"];
        let running = machine.start(&words, "true");
        let command_is_gone = || {
            let children =
                fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.pid())).unwrap_or_default();
            children.split_ascii_whitespace().count() == 1
        };
        until("only the guardian is left", command_is_gone);
        running.signal(Signal::SIGTERM);
        let (code, said) = running.wait();
        let json: serde_json::Value = serde_json::from_str(&said).expect("one line of JSON");
        assert_eq!(code, 0, "the command's");
        assert!(json["held_ms"].as_f64().expect("a number") < 60_000.0, "{json}");
        machine.assert_clean();

        let running = machine.start(&words, "true");
        running.signal(Signal::SIGKILL);
        until("the guardian lets go", || ours().is_empty());
        drop(running);
        until("its file is gone", || machine.run(&["status"]).status.success());
        machine.assert_clean();
    });
}

#[test]
fn words_that_nobody_reads_change_nothing() {
    alone(|machine| {
        let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("it is always there");
        let mut hold = machine.hold(&["--to", WEB, "--method", "drop", "--", "sh", "-c", "echo it was run; exit 7"]);
        let output = hold.stderr(full()).output().expect("the program was built");
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "it was run\n"));
        let status = machine.hold(&["status"]).stdout(full()).status().expect("the program was built");
        assert_eq!(status.code(), Some(0));
        machine.assert_clean();
    });
}
