//! The new process fails, in every way: the old one serves on with all its sockets, and the next attempt succeeds.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;

use baton_control::ask::{self, Whom};
use baton_control::handover::message::{Hello, Message, RefusedKind};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::Signal;

use crate::peers::Taker;
use crate::support::{PATIENCE, Proxy, free_address, frontend_counter, program, until};
use crate::{Client, config, get, origins};

/// The old process is as it was: same sockets, same descriptors, and a handover succeeds.
#[track_caller]
fn check(what: &str, fail: impl FnOnce(&Proxy)) {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    get(web);
    until("the connection is closed", || old.status().connections == 0);
    let before = old.status();
    fail(&old);
    get(web);
    until("it is as before", || {
        let now = old.status();
        let is_same = (now.stopping, &now.listeners, now.listeners_leaving) == (false, &before.listeners, 0);
        assert!(is_same, "{what}: {now:?}");
        now.descriptors <= before.descriptors && now.connections == 0
    });
    let new = old.replace(&[]);
    get(web);
    let (status, said) = old.wait();
    assert!(status.success(), "{what}: {said}");
    until("all are counted", || frontend_counter(&new.status(), "web", "req_tot") == 3);
}

#[test]
fn killed_before_it_said_anything() {
    check("connected", |old| drop(Taker::connect(old.pid())));
    check("half a line", |old| drop(Taker::connect(old.pid()).write_all(b"{\"baton\":1,\"as")));
    check("asked", |old| drop(Taker::ask(old.pid())));
}

#[test]
fn killed_before_it_has_the_sockets() {
    check("hello", |old| drop(Taker::ask(old.pid()).hello()));
    check("send", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.hello();
        taker.say(Message::Send);
        assert!(matches!(taker.hear(), Message::Sockets(_)));
    });
}

#[test]
fn killed_after_the_sockets_and_before_ready() {
    check("received", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.hello();
        taker.say(Message::Send);
        taker.hear();
        taker.say(Message::Received);
    });
    check("state", |old| Taker::ask(old.pid()).receive_all());
}

#[test]
fn a_new_process_that_gives_up_says_why() {
    check("abort", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.receive_all();
        taker.say(Message::Abort { reason: "no room at all".into() });
        until("it was heard", || old.said().contains("did not take over: no room at all. This process keeps serving."));
    });
}

#[test]
fn a_new_process_that_talks_nonsense_is_left() {
    check("nonsense", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.hello();
        taker.say(Message::Released(Default::default()));
        let Message::Abort { reason } = taker.hear() else { panic!("not ended") };
        assert!(reason.contains("unexpected: released"), "{reason}");
    });
    check("ready too early", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.say(Message::Ready(Default::default()));
        let Message::Abort { reason } = taker.hear() else { panic!("not ended") };
        assert!(reason.contains("unexpected first message ready"), "{reason}");
    });
}

#[test]
fn versions_are_agreed_on() {
    check("unknown version", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.say(Message::Hello(Hello { versions: vec![7, 8], ..Hello::default() }));
        let Message::Refused(refused) = taker.hear() else { panic!("not refused") };
        assert_eq!(refused.kind, RefusedKind::Never);
        assert!(refused.reason.contains("supports versions [2, 1] of the handover, not [7, 8]"), "{}", refused.reason);
    });
    check("a newer program", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.say(Message::Hello(Hello { versions: vec![7, 1], ..Hello::default() }));
        let Message::Welcome(welcome) = taker.hear() else { panic!("not welcome") };
        assert_eq!((welcome.version, welcome.pid, welcome.sockets), (1, old.pid(), 2));
    });
    check("every version has it all", |old| {
        let remembered = [1, 2].map(|version| {
            let memory = Taker::ask(old.pid()).receive_all_in(&[version]);
            until("it goes on", || old.said().matches("did not take over: ").count() == version as usize);
            memory
        });
        let names = remembered.each_ref().map(|memory| {
            let counts = &memory.counts;
            (counts.frontends.clone(), counts.backends.clone(), memory.quiet.clone(), memory.backends.iter().count())
        });
        assert_eq!(names[0], names[1]);
        assert_eq!(names[0].0.iter().count(), 1, "{names:?}");
    });
}

#[test]
fn what_a_newer_program_says_besides_is_skipped_and_reported() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.say(Message::Unknown);
    taker.ready();
    drop(taker);
    until("it says so", || old.said().contains(" sent the unknown message 'unknown' (frames: 1): ignored."));
    assert!(old.wait().0.success());
}

#[test]
fn frames_that_do_not_follow_each_other_are_no_handover() {
    check("reordered", |old| {
        let mut taker = Taker::ask(old.pid());
        taker.hello();
        taker.say(Message::Send);
        assert!(matches!(taker.hear(), Message::Sockets(_)));
        taker.loses_count();
        // What the process says next has a number that is not expected any more.
        taker.say(Message::Received);
        let text = "received frame 0 (received), expected frame 1. This process keeps serving.";
        until("it is said", || old.said().contains(text));
    });
}

#[test]
fn killed_after_ready_is_the_end_of_the_service_and_not_of_the_open_connections() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut kept = Client::connect(web);
    kept.get("/");
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready();
    drop(taker);
    until("nobody listens any more", || std::net::TcpStream::connect(web).is_err());
    let _again = Proxy::start(&config(web, &servers));
    get(web);
    assert!(kept.get("/").contains("connection: close"), "the old process still has this one");
    assert!(old.wait().0.success());
}

#[test]
fn one_interface_of_an_address_may_go() {
    let (_origins, servers) = origins(1);
    let (web, gone) = (free_address(), free_address());
    let wildcard = format!("0.0.0.0:{}", gone.port());
    let with = |binds: &str| config(web, &servers).replace("default_backend", &format!("{binds}\n default_backend"));
    let both = with(&format!("bind {wildcard} interface lo\n bind {wildcard}"));
    let old = Proxy::start(&both);
    old.write(&with(&format!("bind {wildcard} interface lo")));
    let mut kept = Client::connect(gone);
    kept.get("/");
    let new = old.replace(&[]);
    (0..20).for_each(|_| drop(get(gone)));
    assert_eq!(new.status().listeners.len(), 2, "{:?}", new.status().listeners);
    kept.get("/");
    assert!(old.wait().0.success());
    get(gone);
}

#[test]
fn a_second_one_waits_for_the_first_one() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut slow = Taker::ask(old.pid());
    slow.receive_all();
    let mut refused = Taker::ask(old.pid());
    let Message::Refused(reason) = refused.hello() else { panic!("two at once") };
    assert_eq!(reason.kind, RefusedKind::Busy);
    assert!(reason.reason.contains("is taking over from it"), "{}", reason.reason);
    let mut second = old.spawn_beside(&["-sf", &old.pid().to_string()]);
    get(web);
    assert!(!old.status().stopping);
    drop(slow);
    second.serves();
    until("it has taken over", || old.has_ended());
    get(web);
}

#[test]
fn who_asks_the_old_one_again_is_sent_on() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    // Its connections stay, so that it is there to be asked.
    let old = Proxy::start(&config(web, &servers).replace("global\n", "global\n tune.handover off\n"));
    let mut kept = Client::connect(web);
    kept.get("/");
    let new = old.replace(&[]);
    // A script that read the pid file a moment too early.
    let mut third = old.spawn_beside(&["-sf", &old.pid().to_string()]);
    third.serves();
    assert!(new.wait().0.success());
    until("the third one says that it took over", || third.said().contains("Took over from process"));
    get(web);
    assert!(kept.get("/").contains("connection: close"));
    assert!(old.wait().0.success());
    until("the first one reports to the third", || frontend_counter(&third.status(), "web", "req_tot") == 3);
}

/// A session of the runtime API that stays open.
struct Operator(UnixStream);

impl Operator {
    fn say(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("it is read");
    }

    /// What comes up to the next prompt.
    fn hear(&mut self) -> String {
        let mut reply = Vec::new();
        while !reply.ends_with(b"\n> ") {
            let mut byte = [0];
            assert_eq!(self.0.read(&mut byte).expect("a reply in time"), 1, "{}", String::from_utf8_lossy(&reply));
            reply.push(byte[0]);
        }
        String::from_utf8(reply).expect("text")
    }
}

#[test]
fn what_operators_set_waits_until_it_is_clear_who_serves() {
    let (_origins, servers) = origins(1);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder"));
    let socket = folder.path().join("baton.sock");
    let stats = format!("global\n stats socket {} level admin\n", socket.display());
    let old = Proxy::start(&config(web, &servers).replace("global\n", &stats));
    let operator = || {
        let stream = UnixStream::connect(&socket).expect("it is listened on");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
        let mut operator = Operator(stream);
        operator.say("prompt");
        operator.hear();
        operator
    };
    let (mut operator, mut others) = (operator(), [operator(), operator(), operator()]);
    let set = |old: &Proxy| old.status().overrides.iter().map(ToString::to_string).collect::<Vec<_>>();

    let mut fails = Taker::ask(old.pid());
    fails.receive_all();
    operator.say("set weight app/s0 7");
    assert!(get(web).contains("200") && set(&old).is_empty(), "the state that was handed over does not have it");
    drop(fails);
    assert_eq!(operator.hear(), "\n> ", "the one that asked is gone");
    assert_eq!(set(&old), ["server app/s0 weight 7 (file: 1)"]);

    let mut serves = Taker::ask(old.pid());
    serves.receive_all();
    operator.say("set server app/s0 state maint");
    // Certificates, keys and counters are changed by whoever serves, as servers are.
    let commands = ["commit ssl cert a.pem", "set ssl tls-key 0 a", "clear counters all"];
    others.iter_mut().zip(commands).for_each(|(other, command)| other.say(command));
    assert_eq!(set(&old).len(), 1);
    serves.ready();
    let replied = format!("Process {} has taken over: run the command there.\n\n> ", std::process::id());
    assert_eq!(operator.hear(), replied);
    others.iter_mut().for_each(|other| assert_eq!(other.hear(), replied));
}

#[test]
fn signals_wait_until_it_is_clear_who_serves() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut slow = Taker::ask(old.pid());
    slow.receive_all();
    let reload = ask::send(Whom::Pid(old.pid()), Request::Reload).expect("it listens");
    old.signal(Signal::SIGUSR1);
    get(web);
    assert!(!old.status().stopping);
    drop(slow);
    until("the soft stop begins", || old.has_ended() || old.status().stopping);
    match reload.reply() {
        Ok(Reply::Failed { reason }) => assert!(reason.contains("graceful stop"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(old.wait().0.success());
}

#[test]
fn a_reload_waits_too() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    for is_taken in [false, true] {
        let mut slow = Taker::ask(old.pid());
        slow.receive_all();
        let reload = ask::send(Whom::Pid(old.pid()), Request::Reload).expect("it listens");
        old.signal(Signal::SIGUSR2);
        get(web);
        let generation = old.status().generation;
        assert_eq!(generation == 1, !is_taken, "{generation}");
        if is_taken {
            slow.ready();
        }
        drop(slow);
        match (is_taken, reload.reply()) {
            (false, Ok(Reply::Reload(outcome))) => assert!(outcome.accepted),
            (true, Ok(Reply::Failed { reason })) => assert!(reason.contains("has taken over"), "{reason}"),
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// Runs the program as a script would, from within a shell; gives its exit code and what it said.
fn fails(script: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(script).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

fn command(old: &Proxy, more: &str) -> String {
    format!("exec {} -f {} -sf {} {more}", program().display(), old.config.display(), old.pid())
}

#[test]
fn the_limit_of_open_files_is_looked_at_first() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let small = config(web, &servers).replace("maxconn 2000", "maxconn 10");
    let mut addresses = BTreeSet::new();
    until("50 free ports", || {
        addresses.extend(Some(free_address()).filter(|address| *address != web));
        addresses.len() == 50
    });
    let binds: String = addresses.iter().map(|address| format!("bind {address}\n ")).collect();
    let old = Proxy::start(&small.replace("default_backend", &format!("{binds}default_backend")));
    old.write(&small);
    let said = fails(&format!("ulimit -n 150; {}", command(&old, "-db")));
    assert!(said.contains("102 listening sockets need") && said.contains("raise the limit of open files"), "{said}");
    assert!(said.contains("It keeps serving"), "{said}");
    assert_eq!(old.status().listeners.len(), 51);
    get(web);
    let new = old.replace(&[]);
    get(web);
    assert_eq!(new.status().listeners.len(), 1);
}

#[test]
fn a_pid_file_that_cannot_be_written_is_no_handover() {
    check("no folder", |old| {
        let said = fails(&command(old, "-D -p /proc/no/such/folder/x.pid"));
        assert!(said.contains("Cannot create pidfile"), "{said}");
    });
    check("read-only", |old| {
        let said = fails(&command(old, "-D -p /proc/version"));
        assert!(said.contains("pid file") || said.contains("pidfile"), "{said}");
    });
    check("disk full", |old| {
        let said = fails(&command(old, "-D -p /dev/full"));
        assert!(said.contains("Cannot write pidfile /dev/full: No space left on device"), "{said}");
    });
}

#[test]
fn a_port_of_somebody_else_is_no_handover() {
    check("port taken", |old| {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let before = fs::read_to_string(&old.config).expect("ours");
        let address = taken.local_addr().expect("bound");
        old.write(&before.replace("default_backend", &format!("bind {address}\n default_backend")));
        let said = fails(&command(old, "-db"));
        assert!(said.contains("cannot listen on") || said.contains("in use"), "{said}");
        old.write(&before);
    });
}

#[test]
fn a_broken_configuration_does_not_even_ask() {
    check("broken", |old| {
        let before = fs::read_to_string(&old.config).expect("ours");
        old.write(&before.replace("balance", "blance"));
        let said = fails(&command(old, "-db"));
        assert!(said.contains("did you mean 'balance'"), "{said}");
        assert!(!old.said().contains("takes over"), "{}", old.said());
        old.write(&before);
    });
}

#[test]
fn a_master_takes_over_and_its_worker_serves() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    get(web);
    let master = old.replace(&["-W"]);
    get(web);
    assert!(old.wait().0.success());
    until("all are counted", || frontend_counter(&master.status(), "web", "req_tot") == 2);
    let worker = master.status().pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker as i32), Signal::SIGKILL).expect("it lives");
    until("another worker serves", || {
        let status = ask::ask(Whom::Pid(master.pid()), Request::Status);
        matches!(status, Ok(Reply::Status(status)) if status.pid != worker)
    });
    get(web);
}
