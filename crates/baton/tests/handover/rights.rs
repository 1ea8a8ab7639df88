//! Who may take over, from whom sockets are taken, and that nobody's name is believed: attacks by a user of the same machine.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Command, Output};

use baton_control::handover::message::Message;

use crate::givers::{Giver, Owner};
use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, program, readable, until};
use crate::{Client, config, get, origins};

/// Starts a program as user nobody, who may read everything so that he finds the program in whatever folder it was built.
pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
];

/// Of a process that runs as nobody.
const GLOBAL_OF_NOBODY: &str = "global\n user nobody\n group nogroup\n";

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: needs root, to be another user");
    }
    is_root
}

/// `baton` with these words, as this user.
fn baton_as(uid: u32, words: &[&str]) -> Output {
    let user = format!("--reuid={uid}");
    let mut command = Command::new(AS_NOBODY[0]);
    command.arg(user).args(&AS_NOBODY[2..]).arg(program()).args(words);
    command.output().expect("util-linux is installed")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_user_of_the_configuration_may_look_and_not_take() {
    if !is_root() {
        return;
    }
    let (_origins, servers) = origins(1);
    let web = free_address();
    let plain = config(web, &servers);
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.sock");
    let with = |options: &str| {
        plain.replace("global\n", &format!("{GLOBAL_OF_NOBODY} stats socket {} mode 600 {options}\n", stats.display()))
    };
    let old = Proxy::start(&with("user nobody"));
    readable(&old);
    let pid = old.pid().to_string();
    let take = || {
        let new = Proxy::begin(&AS_NOBODY, &plain, &["-sf", &pid]);
        // What it may do it does.
        let mut is_over = false;
        until("it serves, or ends", || {
            is_over = new.has_ended();
            is_over || new.said().contains("Took over")
        });
        (new, is_over)
    };
    let (refused, is_over) = take();
    assert!(is_over, "it took over: {}", refused.said());
    let (status, said) = refused.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("user 65534 is not permitted to take its listening sockets"), "{said}");
    assert!(old.said().contains("user 65534 is not permitted to take over"), "{}", old.said());
    get(web);
    let check = |uid: u32, words: &[&str], expect: Result<&str, &str>| {
        let output = baton_as(uid, &[words, &["--pid", &pid]].concat());
        let said = text(&output);
        match expect {
            Ok(part) => assert!(output.status.success() && said.contains(part), "{words:?} as {uid}: {said}"),
            Err(part) => assert!(!output.status.success() && said.contains(part), "{words:?} as {uid}: {said}"),
        }
    };
    check(65534, &["status"], Ok("frontend web"));
    check(65534, &["certs", "list"], Ok(""));
    check(65534, &["reload"], Err("user 65534 is not permitted to reload process"));
    check(65534, &["plan"], Err("user 65534 is not permitted to plan a reload of process"));
    check(65534, &["upgrade"], Err("user 65534 is not permitted to upgrade process"));
    check(65534, &["certs", "sync"], Err("user 65534 is not permitted to reload the certificates of process"));
    check(1, &["status"], Err("user 1 is not permitted to see the status of process"));
    check(0, &["reload"], Ok("nothing changed"));
    // Consent, by the words that give the sockets to HAProxy too.
    old.change(&with("user nobody expose-fd listeners"));
    let (new, is_over) = take();
    assert!(!is_over, "{}", new.said());
    get(web);
    assert!(old.wait().0.success());
    // A PID file may be older than the process that has its PID by now; who names a PID knows whose it is.
    let file = folder.path().join("old.pid");
    std::fs::write(&file, format!("{}\n", new.pid())).expect("the folder is ours");
    let said = text(&baton_as(0, &["reload", "-p", file.to_str().expect("plain letters")]));
    assert!(said.contains(&format!("process {} belongs to user 65534", new.pid())), "{said}");
    assert!(said.contains(&format!("choose it with --pid {}", new.pid())), "{said}");
    let output = baton_as(0, &["status", "--pid", &new.pid().to_string()]);
    assert!(output.status.success() && text(&output).contains("belongs to user 65534, not to you or root"));
}

#[test]
fn sockets_of_another_users_process_are_not_taken() {
    if !is_root() {
        return;
    }
    let (_origins, servers) = origins(1);
    for (global, expect) in [
        ("global\n", "it belongs to user 65534, which is not root"),
        (GLOBAL_OF_NOBODY, "it belongs to user 65534, which opened its sockets"),
    ] {
        let (web, other) = (free_address(), free_address());
        let mut giver = Giver::start_as(Owner::Nobody, "all", web, other);
        let text = config(web, &servers).replace("global\n", global);
        let new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
        giver.meets(&new);
        until("it serves, or ends", || new.has_ended() || new.said().contains("Took over"));
        assert!(new.has_ended(), "it took over: {}", new.said());
        let (status, said) = new.wait();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(expect), "{said}");
    }
    // The runtime API of somebody else.
    let folder = tempfile::tempdir().expect("a folder");
    readable_by_all(folder.path());
    let stats = folder.path().join("stats.sock");
    let listen = format!("UNIX-LISTEN:{}", stats.display());
    let mut command = Command::new("timeout");
    let mut stranger = command.arg("60").args(AS_NOBODY).args(["socat", &listen, "-"]).spawn().expect("socat is there");
    until("he listens", || stats.exists());
    let new = Proxy::begin(&[], &config(free_address(), &servers), &["-x", stats.to_str().expect("plain letters")]);
    let (status, said) = new.wait();
    let _ = stranger.kill();
    let _ = stranger.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("it belongs to user 65534"), "{said}");
}

fn readable_by_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("the folder is ours");
}

#[test]
fn of_a_process_that_became_the_user_only_roots_sockets_are_taken() {
    if !is_root() {
        return;
    }
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    // As the release before did, which has the abstract name only.
    let mut giver = Giver::start_as(Owner::Dropped, "released", web, other);
    let mut waiting = Client::connect(web);
    waiting.ask("/");
    let text = config(web, &servers).replace("global\n", GLOBAL_OF_NOBODY);
    let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
    giver.meets(&new);
    new.serves();
    assert!(waiting.answer().starts_with("http/1.1 200"), "who waited in the socket is served");
    let expect = format!("{other} of process {} is not used: it was opened by user 65534", giver.pid());
    assert!(new.said().contains(&expect), "{}", new.said());
}

/// A process that begins only once there is a file, by which time its PID is known.
fn late(text: &str, settings: &str) -> (Proxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("while [ ! -e \"$0\" ]; do sleep 0.02; done; {settings} exec \"$@\"");
    let gate = folder.path().join("gate").display().to_string();
    (Proxy::begin(&["timeout", "60", "sh", "-c", &script, &gate], text, &[]), folder)
}

#[test]
fn a_name_that_somebody_else_took_keeps_nobody_away() {
    let (_origins, servers) = origins(1);
    for settings in ["", "BATON_RUN_DIR=/proc/nowhere"] {
        let web = free_address();
        let (proxy, folder) = late(&config(web, &servers), settings);
        // `timeout` stays, and what it starts becomes Baton.
        let mut pid = 0;
        until("the shell runs", || {
            let children = format!("/proc/{0}/task/{0}/children", proxy.pid());
            pid = std::fs::read_to_string(children).unwrap_or_default().trim().parse().unwrap_or(0);
            pid != 0
        });
        let squatter = UnixAddress::from_abstract_name(format!("baton-{pid}")).expect("a short name");
        let squatter = UnixListener::bind_addr(&squatter).expect("we are first");
        std::fs::write(folder.path().join("gate"), "").expect("the folder is ours");
        let number = pid.to_string();
        let ask = |words: &[&str]| {
            let words = [words, &["--pid", &number]].concat();
            Command::new(program()).args(words).output().expect("it was built")
        };
        until("it serves", || ask(&["status"]).status.success());
        let output = ask(&["reload"]);
        assert!(output.status.success(), "{settings}: {}", text(&output));
        let expect = format!("The abstract socket @baton-{pid} belongs to process {} of user", std::process::id());
        // What a process prints is written by a thread of its own, perhaps a moment later.
        until("it names who holds the name", || proxy.said().contains(&expect));
        let mut new = proxy.spawn_beside(&["-sf", &number]);
        new.serves();
        until("it has taken over", || new.said().contains(&format!("Took over from process {pid}")));
        get(web);
        drop(squatter);
    }
}

#[test]
fn what_a_process_says_does_not_steer_the_terminal() {
    let name = UnixAddress::from_abstract_name(format!("baton-{}", std::process::id())).expect("a short name");
    let liar = UnixListener::bind_addr(&name).expect("nobody else has our number");
    std::thread::spawn(move || {
        // Others look for heirs meanwhile, and get the same.
        for asker in liar.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let _ = BufReader::new(&asker).read_line(&mut line);
            let reason = "\\u001b]0;mine\\u0007\\u001b[2Jgone\\nReloaded.";
            let _ = (&asker)
                .write_all(format!("{{\"baton\":1,\"reply\":\"failed\",\"reason\":\"{reason}\"}}\n").as_bytes());
        }
    });
    let pid = std::process::id().to_string();
    for verb in ["status", "reload"] {
        let output = Command::new(program()).args([verb, "--pid", &pid]).output().expect("it was built");
        let said = text(&output);
        assert!(!output.status.success() && said.contains("\\u{1b}[2Jgone"), "{said:?}");
        assert!(!said.chars().any(|character| character.is_control() && character != '\n'), "{said:?}");
    }
}

#[test]
fn who_was_not_before_us_reports_nothing() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let new = old.replace(&[]);
    // Even as one whose PID the process before has.
    for pid in [old.pid(), 1] {
        let mut liar = Taker::ask(new.pid());
        liar.say(Message::Reporting { pid, version: None });
        match liar.hear() {
            Message::Abort { reason } => assert!(reason.contains("it did not take over from"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_process_in_a_root_of_its_own_reports_to_the_next_but_one() {
    if !is_root() {
        return;
    }
    let (_origins, servers) = origins(1);
    let (web, jail) = (free_address(), tempfile::tempdir().expect("a folder"));
    let global = format!("{GLOBAL_OF_NOBODY} chroot {}\n", jail.path().display());
    let first = Proxy::start(&config(web, &servers).replace("global\n", &global));
    let mut client = Client::connect(web);
    client.get("/");
    let second = first.replace(&[]);
    let third = second.replace(&[]);
    until("the second one has ended", || second.has_ended());
    client.get("/");
    until("the first one has ended", || first.has_ended());
    until("both are counted", || frontend_counter(&third.status(), "web", "req_tot") == 2);
}
