//! `baton status` says whether all is well, by its exit code too.

use std::process::Command;

use super::overrides::Operated;
use super::{config, connect, exchange, free_address, origin};
use crate::support::{Proxy, program, until};

/// Exit code, standard output.
fn status(pid: u32, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program());
    let output = command.args(["status", "--pid", &pid.to_string()]).args(more).output().expect("it was built");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn rates_are_measured_for_who_asks_for_them() {
    let (origin, web) = (origin(), free_address());
    // There is nobody else who could ask: no socket, page or exporter.
    let proxy = Proxy::start(&config(&[web.to_string()], origin.address(), ""));
    until("requests of the last second are counted", || {
        exchange(&mut connect(web), "/", "close").expect("an answer");
        let status = proxy.status();
        [&status.frontends[0], &status.backends[0]].iter().all(|figures| figures.rate.is_some_and(|rate| rate > 0))
    });
    let other = Proxy::start(&config(&[free_address().to_string()], origin.address(), ""));
    let (_, text) = status(other.pid(), &[]);
    assert!(text.contains("frontend web OPEN") && text.contains(" sessions, 0/s, "), "{text}");
}

#[test]
fn the_exit_code_says_whether_something_is_wrong() {
    let (origin, web, nobody) = (origin(), free_address(), free_address());
    let good = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&good);
    let pid = proxy.pid();
    let (code, text) = status(pid, &[]);
    assert_eq!((code, text.lines().next()), (Some(0), Some("OK")), "{text}");
    assert_eq!(status(pid, &["--quiet"]), (Some(0), String::new()));

    let degraded = format!("{good} server s2 {nobody} check inter 50ms fall 1\n");
    proxy.change(&degraded);
    until("it is down", || status(pid, &[]).0 == Some(1));
    let (_, text) = status(pid, &["--quiet"]);
    assert!(text.starts_with("DEGRADED: server app/s2 is down for ") && text.contains("Connection refused"), "{text}");

    proxy.change(
        &degraded.replace(
            &format!("server s1 {}", origin.address()),
            &format!("server s1 {nobody} check inter 50ms fall 1"),
        ),
    );
    until("all is down", || status(pid, &[]).0 == Some(2));
    let (_, json) = status(pid, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["health"], &json["problems"][0]["health"]), (&"down".into(), &"down".into()), "{json}");
    assert!(
        json["backends"][0]["servers"][0]["reason"].as_str().is_some_and(|reason| reason.contains("refused")),
        "{json}"
    );
    assert!(json["backends"][0]["since_s"].is_u64(), "{json}");

    proxy.change(&good);
    until("all is well", || status(pid, &[]).0 == Some(0));
    proxy.change_refused("nonsense\n");
    let (code, text) = status(pid, &["--quiet"]);
    assert!(code == Some(1) && text.contains("the last reload was rejected: "), "{text}");
    proxy.change(&good.replace("nbthread 2", "nbthread 1"));
    let (code, text) = status(pid, &["--quiet"]);
    assert!(code == Some(1) && text.starts_with("DEGRADED: Restart pending: nbthread 2 -> 1"), "{text}");
    proxy.change(&good);
    assert_eq!(status(pid, &["--quiet"]), (Some(0), String::new()));

    proxy.signal(nix::sys::signal::Signal::SIGKILL);
    until("it is gone", || proxy.has_ended());
    assert_eq!(status(pid, &[]).0, Some(3));
}

#[test]
fn connections_of_a_frontend_that_is_gone_are_counted_until_they_end() {
    let (origin, web, other) = (origin(), free_address(), free_address());
    let with = format!(
        "{}frontend second\n bind {other}\n default_backend app\n",
        config(&[web.to_string()], origin.address(), "")
    );
    let proxy = Proxy::start(&with);
    let mut kept = connect(other);
    exchange(&mut kept, "/", "keep-alive").expect("a response");
    assert_eq!(proxy.status().connections_leaving, 0);
    // A request that the origin does not finish keeps it.
    use std::io::Write;
    write!(kept, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nab").expect("it is open");
    until("the request is in progress", || proxy.status().backends[0].servers[0].open == 1);
    proxy.change(&config(&[web.to_string()], origin.address(), ""));
    until("it is counted", || proxy.status().connections_leaving == 1);
    write!(kept, "cde").expect("it is open");
    until("it is over", || proxy.status().connections_leaving == 0);
}

#[test]
fn reasons_and_operators_are_named() {
    let operated = Operated::start();
    operated.set(&["set server app/s1 state maint", "set server app/s2 state drain"]);
    let (code, text) = status(operated.proxy.pid(), &[]);
    let own = std::process::id();
    let by = format!("(set by uid {} pid {own} over unix@", nix::unistd::geteuid());
    assert!(code == Some(0), "what an operator wants is no problem: {text}");
    let line = |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("server s1 MAINT").contains(&by) && line("server s2 DRAIN").contains(&by), "{text}");
    until("rates are measured", || operated.proxy.status().backends[0].rate.is_some());
}

#[test]
fn figures_are_true_for_a_process_with_another_user_and_root_directory() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: only root becomes another user");
        return;
    }
    let (origin, web) = (origin(), free_address());
    let cage = tempfile::tempdir().expect("a folder for the test");
    std::fs::set_permissions(cage.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let rights = format!("global\n uid 61234\n gid 61235\n chroot {}\n", cage.path().display());
    let proxy = Proxy::start(&config(&[web.to_string()], origin.address(), "").replace("global\n", &rights));
    exchange(&mut connect(web), "/", "close").expect("a response");
    let pid = proxy.pid();
    // Connections of the request before may be open in one count and closed in the next: at rest both agree.
    until("both count the same descriptors", || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("root sees it").count() as u64;
        // Asking takes one more: the connection that asks.
        (open..=open + 1).contains(&proxy.status().descriptors)
    });
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    let pages: u64 = pages.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    let status = proxy.status();
    let (seen, told) = (pages * 4096, status.resident_bytes);
    assert!(told > seen / 2 && told < seen * 2, "{told} of {seen}");
    assert_eq!(crate::support::frontend_counter(&status, "web", "req_tot"), 1);
}
