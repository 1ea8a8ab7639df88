//! What a handover keeps, and what becomes of the old process's connections.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;

use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::{Client, config, get, origins};

#[test]
fn an_idle_connection_that_stays_gets_one_more_answer_that_closes_it() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers).replace("global\n", "global\n tune.handover off\n"));
    let (mut idle, mut quiet) = (Client::connect(web), Client::connect(web));
    idle.get("/");
    quiet.get("/");
    let new = old.replace(&[]);
    assert!(old.status().stopping);
    let answer = idle.get("/");
    assert!(answer.contains("connection: close"), "{answer}");
    idle.closed();
    assert!(!Client::connect(web).get("/").contains("connection: close"), "the new process keeps connections");
    assert_eq!(old.status().connections, 1, "the quiet one is not closed under a request that may be on its way");
    drop(quiet);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    assert!(said.contains(&format!("Process {} has taken over.", new.pid())), "{said}");
    until("all are counted", || frontend_counter(&new.status(), "web", "req_tot") == 4);
}

#[test]
fn requests_in_flight_end_where_they_began_and_count_for_maxconn() {
    let (origins, servers) = origins(1);
    let web = free_address();
    let text = config(web, &servers)
        .replace(&format!("server s0 {}", servers[0]), &format!("server s0 {} maxconn 1", servers[0]));
    let old = Proxy::start(&text);
    let mut slow = Client::connect(web);
    slow.ask("/delay/1500");
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    let new = old.replace(&[]);
    let mut second = Client::connect(web);
    second.ask("/");
    until("the second is accepted", || new.status().connections == 1);
    assert_eq!(new.status().backends[0].servers[0].open, 0, "the slot is in use in the old process");
    assert!(slow.answer().starts_with("http/1.1 200"));
    assert!(second.answer().starts_with("http/1.1 200"));
    drop((slow, second));
    assert!(old.wait().0.success());
    until("all are counted", || frontend_counter(&new.status(), "web", "req_tot") == 2);
    drop(origins);
}

#[test]
fn the_end_at_once_cuts_requests_off() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let old = Proxy::start(&config(web, &servers));
    let mut slow = Client::connect(web);
    slow.ask("/delay/600000");
    until("it is at the server", || old.status().backends[0].open == 1);
    let mut new = old.spawn_beside(&["-st", &old.pid().to_string()]);
    assert!(old.wait().0.success());
    new.serves();
    get(web);
}

#[test]
fn the_drain_has_the_limit_that_was_configured() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    // A request that moves is not cut off.
    let limited = "global\n hard-stop-after 300ms\n tune.handover off\n";
    let text = config(web, &servers).replace("global\n", limited);
    let old = Proxy::start(&text);
    let mut slow = Client::connect(web);
    slow.ask("/delay/600000");
    until("it is at the server", || old.status().backends[0].open == 1);
    let _new = old.replace(&[]);
    let (status, said) = old.wait();
    assert!(status.success() && said.contains("soft-stop running for too long"), "{said}");
}

#[test]
fn addresses_come_and_go_with_a_handover() {
    let (_origins, servers) = origins(1);
    let (kept, gone, fresh, stats) = (free_address(), free_address(), free_address(), free_address());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.sock");
    let with = |other: std::net::SocketAddr| {
        config(kept, &servers).replace("global\n", &format!("global\n stats socket {stats}\n")).replace(
            "default_backend",
            &format!("bind {other}\n bind unix@{}\n bind abns@baton-test-{other}\n default_backend", path.display()),
        )
    };
    let old =
        Proxy::start(&with(gone).replace(&format!("abns@baton-test-{gone}"), &format!("abns@baton-test-{fresh}")));
    get(gone);
    old.write(&with(fresh));
    let inode = |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("it is there"));
    let before = inode(&path);
    let new = old.replace(&[]);
    get(kept);
    get(fresh);
    let mut runtime = std::net::TcpStream::connect(stats).expect("the runtime API is an address like any other");
    runtime.write_all(b"show info\n").expect("it listens");
    let mut info = String::new();
    std::io::Read::read_to_string(&mut runtime, &mut info).expect("it answers");
    assert!(info.contains(&format!("Pid: {}", new.pid())), "{info}");
    assert_eq!(inode(&path), before, "the same socket");
    UnixStream::connect(&path).and_then(|mut stream| stream.write_all(b"x")).expect("the unix socket is served");
    assert!(old.wait().0.success());
    get(kept);
    assert!(std::net::TcpStream::connect(gone).is_err(), "nothing listens there any more");
    assert_eq!(new.status().listeners.len(), 5, "{:?}", new.status().listeners);
    assert!(path.exists());
}

#[test]
fn more_and_fewer_threads_than_before() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let with = |threads: u32| config(web, &servers).replace("nbthread 2", &format!("nbthread {threads}"));
    let first = Proxy::start(&with(1));
    let mut all = vec![];
    for threads in [4, 1, 3] {
        first.write(&with(threads));
        let next = all.last().unwrap_or(&first).replace(&[]);
        all.push(next);
        (0..8).for_each(|_| drop(get(web)));
    }
    let now = all.pop().expect("three were started");
    for old in all {
        assert!(old.wait().0.success());
    }
    until("all are counted", || frontend_counter(&now.status(), "web", "req_tot") == 24);
}

#[test]
fn a_server_that_is_down_stays_down() {
    let (origins, mut servers) = origins(1);
    let dead = free_address();
    servers.push(dead);
    let web = free_address();
    let text = config(web, &servers)
        .replace(&format!("server s1 {dead}"), &format!("server s1 {dead} check inter 200ms fall 1 rise 2"));
    let old = Proxy::start(&text);
    until("it is down", || old.status().backends[0].servers[1].status == "DOWN");
    old.write(&text.replace("inter 200ms", "inter 60s"));
    let new = old.replace(&[]);
    for _ in 0..10 {
        assert_eq!(new.status().backends[0].servers[1].status, "DOWN");
        get(web);
    }
    assert!(!new.said().contains("is DOWN"), "no news: {}", new.said());
    drop(origins);
}

#[test]
fn the_pid_file_names_who_serves() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("baton.pid");
    let name = file.to_str().expect("plain letters");
    let old = Proxy::start_with(&config(web, &servers), &["-p", name]);
    assert_eq!(fs::read_to_string(&file).expect("written"), format!("{}\n", old.pid()));
    let new = old.replace(&["-p", name]);
    until("the file is written", || fs::read_to_string(&file).expect("it is there") == format!("{}\n", new.pid()));
}

#[test]
fn several_at_once_follow_each_other() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let first = Proxy::start(&config(web, &servers));
    let pid = first.pid().to_string();
    let all: Vec<Proxy> = (0..3).map(|_| first.spawn_beside(&["-sf", &pid])).collect();
    assert!(first.wait().0.success());
    until("one is left", || {
        get(web);
        all.iter().filter(|process| process.has_ended()).count() == 2
    });
    for process in all {
        if process.has_ended() {
            let (status, said) = process.wait();
            assert!(status.success(), "{said}");
        } else {
            until("it prints that it took over", || process.said().contains("Took over from process"));
            process.signal(Signal::SIGUSR1);
            assert!(process.wait().0.success());
        }
    }
}

#[test]
fn each_may_follow_one_that_has_only_begun_to_start() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let mut all = vec![Proxy::start(&config(web, &servers))];
    for _ in 0..10 {
        let last = all.last().expect("the first one");
        let pid = last.pid().to_string();
        all.push(all[0].spawn_beside(&["-sf", &pid]));
    }
    let mut last = all.pop().expect("the tenth");
    last.serves();
    get(web);
    for process in all {
        let (status, said) = process.wait();
        assert!(status.success(), "{said}");
    }
    get(web);
}

#[test]
fn there_need_not_be_anybody() {
    let (_origins, servers) = origins(1);
    let web = free_address();
    let mut ended = std::process::Command::new("true").spawn().expect("a process");
    ended.wait().expect("it ends");
    let stranger = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let mut stranger = Ended(stranger);
    let pids = [ended.id().to_string(), stranger.0.id().to_string()];
    let proxy = Proxy::start_with(&config(web, &servers), &["-sf", &pids[0], &pids[1]]);
    get(web);
    until("it is said", || proxy.said().contains("not a load balancer: not stopped"));
    assert!(stranger.0.try_wait().expect("ours").is_none(), "a process of somebody else is left alone");
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn daemons_without_rights_in_a_root_of_their_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to have rights to give up");
        return;
    }
    let (_origins, servers) = origins(1);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder"));
    let at = |name: &str| folder.path().join(name).to_str().expect("plain letters").to_owned();
    let (file, pid_file, socket) = (at("test.cfg"), at("baton.pid"), at("web.sock"));
    fs::create_dir(at("jail")).expect("the folder is ours");
    let text = config(web, &servers)
        .replace("global\n", &format!("global\n daemon\n user nobody\n group nogroup\n chroot {}\n", at("jail")))
        .replace("default_backend", &format!("bind {socket}\n default_backend"));
    fs::write(&file, text).expect("the folder is ours");
    let pid = || fs::read_to_string(&pid_file).unwrap_or_default().trim().to_owned();
    let start = |more: &[&str]| {
        let mut command = std::process::Command::new(crate::support::program());
        let mut started = Ended(command.args(["-f", &file, "-p", &pid_file]).args(more).spawn().expect("it was built"));
        let mut ended = None;
        until("the started process ends", || {
            ended = started.0.try_wait().expect("it is our child");
            ended.is_some()
        });
        assert!(ended.is_some_and(|status| status.success()), "it serves");
    };
    let last = Daemon(pid_file.clone());
    start(&[]);
    let first = pid();
    start(&["-sf", &first]);
    let second = pid();
    assert_ne!(first, second);
    get(web);
    UnixStream::connect(&socket).expect("the unix socket is served");
    drop(last);
    until("nobody listens", || std::net::TcpStream::connect(web).is_err());
}

/// Who is named by a pid file; ends with this.
struct Daemon(String);

impl Drop for Daemon {
    fn drop(&mut self) {
        for pid in fs::read_to_string(&self.0).unwrap_or_default().lines().filter_map(|line| line.parse().ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

#[test]
fn an_address_that_was_just_removed_is_there_for_who_takes_over() {
    let (_origins, servers) = origins(1);
    let (web, other) = (free_address(), free_address());
    let without = config(web, &servers);
    let with = format!("{without}frontend other\n bind {other}\n default_backend app\n");
    let first = Proxy::start(&with);
    // By a reload: the process that has just removed it gives it away.
    first.change(&without);
    first.write(&with);
    let second = first.replace(&[]);
    get(other);
    // By a process in between that does not want it, beside one that is ending still.
    first.write(&without);
    let mut third = first.spawn_beside(&["-sf", &second.pid().to_string()]);
    third.serves();
    first.write(&with);
    let mut fourth = first.spawn_beside(&["-sf", &third.pid().to_string()]);
    fourth.serves();
    get(other);
    get(web);
}
