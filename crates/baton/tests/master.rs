//! A master and its worker as whole processes: a worker that dies takes nobody's place in a queue with it, a reload starts
//! no process, and the end leaves nothing behind.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request, Status};
use baton_prove::load::LoadHandle;
use baton_prove::{FailureKind, Load, LoadOptions, Origin, OriginHandle, OriginOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{PATIENCE, Proxy, free_address, until};

/// Kills of the test under load.
const KILLS: u64 = 20;
/// Connections of each load.
const CONCURRENCY: usize = 8;

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("o1")).expect("loopback has a free port")
}

fn config(web: SocketAddr, origin: SocketAddr, more: &str) -> String {
    format!(
        "global\n nbthread 2\n maxconn 500\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\nfrontend web\n bind {web}\n{more} default_backend app\nbackend app\n server s1 {origin}\n"
    )
}

/// How the worker is; `None` while there is none.
fn worker(proxy: &Proxy) -> Option<Status> {
    match ask(Whom::Pid(proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => Some(*status),
        _ => None,
    }
}

/// Waits for a worker that is not this one.
#[track_caller]
fn next_worker(proxy: &Proxy, before: u32) -> u32 {
    let mut next = 0;
    until("another worker serves", || {
        next = worker(proxy).map_or(0, |status| status.pid);
        next != 0 && next != before
    });
    next
}

fn kill_worker(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("the worker lives");
}

/// The state letter of a process and its parent; `None` when it is gone.
fn process(pid: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Children of a process, zombies included.
fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|pid| process(*pid).is_some_and(|(_, its)| its == parent)).collect()
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn get(address: SocketAddr) -> String {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
    write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it is written");
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn load(target: SocketAddr, keep_alive: bool) -> LoadHandle {
    let rate = Some(200.0);
    let options = LoadOptions { keep_alive, concurrency: CONCURRENCY, threads: 1, rate, ..LoadOptions::new(target) };
    Load::start(options).expect("the options are right")
}

#[tokio::test]
async fn a_worker_that_is_killed_is_replaced_and_nobody_is_refused() {
    let origin = origin();
    let web = free_address();
    let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
    let mut pid = worker(&proxy).expect("it serves").pid;
    assert_ne!(pid, proxy.pid());
    // One kill before counting: then everything that stays open is open.
    // The first one is taken for a stack overflow that did not happen, and lets the second one kill.
    kill_worker(pid, Signal::SIGSEGV);
    until("the worker dies", || kill(Pid::from_raw(pid as i32), Signal::SIGSEGV).is_err());
    pid = next_worker(&proxy, pid);
    let open = descriptors(proxy.pid());

    let loads = [load(web, false), load(web, true)];
    for _ in 0..KILLS {
        // Lets requests through in between, and the worker settle.
        tokio::time::sleep(Duration::from_millis(600)).await;
        kill_worker(pid, Signal::SIGKILL);
        pid = next_worker(&proxy, pid);
    }
    for (what, load) in ["a connection for each request", "keep-alive"].into_iter().zip(loads) {
        let result = load.stop().await;
        let counts = &result.counts;
        assert_eq!(counts.count(FailureKind::Refused), 0, "{what}: {:?}", result.errors);
        assert!(counts.failed() <= KILLS * CONCURRENCY as u64, "{what}: {:?}", result.failures);
        assert!(counts.completed > 500, "{what}: only {} requests", counts.completed);
        let others = [FailureKind::TimeoutConnect, FailureKind::WrongBody, FailureKind::WrongStatus];
        assert!(others.iter().all(|kind| counts.count(*kind) == 0), "{what}: {:?}", result.failures);
    }
    assert_eq!(children(proxy.pid()), [pid], "no zombie, no second worker");
    assert_eq!(descriptors(proxy.pid()), open, "no descriptor is left over");
    let threads = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
    let mut threads: Vec<String> =
        threads.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect();
    threads.retain(|name| !name.starts_with("baton/output"));
    assert_eq!(threads.len(), 1, "the master has one thread besides those that write its output: {threads:?}");
    assert!(proxy.said().contains("exited with code 139 (Segmentation fault)"), "{}", proxy.said());
}

/// How many of those who have connected get an answer.
fn served(waiting: Vec<TcpStream>) -> usize {
    std::thread::scope(|scope| {
        let ask = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = String::new();
            let _ = write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            let _ = stream.read_to_string(&mut answer);
            answer.contains(" 200 ")
        };
        let asking: Vec<_> = waiting.into_iter().map(|stream| scope.spawn(move || ask(stream))).collect();
        asking.into_iter().map(|asked| asked.join()).filter(|served| matches!(served, Ok(true))).count()
    })
}

#[test]
fn who_waits_in_the_queue_is_served_by_the_next_worker() {
    let origin = origin();
    let web = free_address();
    // One connection at a time: the others wait in the kernel's queues.
    let proxy = Proxy::start_with(&config(web, origin.address(), " maxconn 1\n backlog 100\n"), &["-W"]);
    let pid = worker(&proxy).expect("it serves").pid;
    let _first = TcpStream::connect(web).unwrap();
    until("the first is accepted", || worker(&proxy).is_some_and(|status| status.connections == 1));
    let waiting: Vec<_> = (0..20).map(|_| TcpStream::connect(web).unwrap()).collect();
    kill_worker(pid, Signal::SIGKILL);
    assert_eq!(served(waiting), 20, "none was reset");
}

#[test]
fn who_waits_at_an_address_that_is_being_removed_is_served_by_the_next_worker() {
    let origin = origin();
    // An address that its frontend loses, one that goes with its frontend and backend, and both as another user.
    for (is_alone, user) in [(false, ""), (true, ""), (true, "nbthread 2\n user nobody")] {
        if !user.is_empty() && !nix::unistd::geteuid().is_root() {
            eprintln!("SKIPPED: another user, for we have no right to become one");
            continue;
        }
        let (web, gone) = (free_address(), free_address());
        let after =
            config(web, origin.address(), "").replace("nbthread 2", if user.is_empty() { "nbthread 2" } else { user });
        // One connection at a time: the others wait in the kernel's queues.
        let bind = format!(" bind {gone} maxconn 1 backlog 100\n");
        let before = match is_alone {
            false => after.replace(" default_backend", &format!("{bind} default_backend")),
            true => format!(
                "{after}frontend old\n{bind} default_backend olds\nbackend olds\n server s1 {}\n",
                origin.address()
            ),
        };
        let proxy = Proxy::start_with(&before, &["-W"]);
        support::readable(&proxy);
        let pid = worker(&proxy).expect("it serves").pid;
        let _first = TcpStream::connect(gone).unwrap();
        until("the first is accepted", || worker(&proxy).is_some_and(|status| status.connections == 1));
        let waiting: Vec<_> = (0..20).map(|_| TcpStream::connect(gone).unwrap()).collect();
        proxy.change(&after);
        kill_worker(pid, Signal::SIGKILL);
        assert_eq!(served(waiting), 20, "none was reset {is_alone} {user}");
        next_worker(&proxy, pid);
        assert!(get(web).contains(" 200 "));
        until("the address is closed", || {
            let connected = TcpStream::connect_timeout(&gone, Duration::from_millis(100));
            connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        });
    }
}

#[test]
fn a_unix_socket_and_the_right_to_be_nobody_outlive_a_crash() {
    use std::os::unix::fs::MetadataExt;
    let origin = origin();
    let web = free_address();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let binds = format!(" bind {} mode 666\n", path.display());
    let mut text = config(web, origin.address(), &binds);
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        text = text.replace("nbthread 2", "nbthread 2\n user nobody");
    } else {
        eprintln!("SKIPPED: another user, for we have no right to become one");
    }
    let proxy = Proxy::start_with(&text, &["-W"]);
    let mut pid = worker(&proxy).unwrap().pid;
    let file = std::fs::metadata(&path).unwrap().ino();
    for _ in 0..3 {
        kill_worker(pid, Signal::SIGKILL);
        pid = next_worker(&proxy, pid);
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), file, "the same socket");
        if is_root {
            assert_ne!(std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(), 0, "rights were given up");
        }
        let mut again = std::os::unix::net::UnixStream::connect(&path).unwrap();
        again.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(again, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        again.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

#[test]
fn stick_tables_outlive_a_crash_and_what_the_dead_worker_held_does_not() {
    let origin = origin();
    let web = free_address();
    let more = " tcp-request connection track-sc0 src table seen\n http-request return status 200 content-type text/plain \
                lf-string %[sc0_http_req_cnt(seen)]/%[sc0_conn_cur(seen)]/%[sc0_trackers(seen)]\n";
    let text = config(web, origin.address(), more)
        + "backend seen\n stick-table type ip size 1k expire 10m store http_req_cnt,conn_cur\n";
    let proxy = Proxy::start_with(&text, &["-W"]);
    let mut pid = worker(&proxy).expect("it serves").pid;
    let ask = || get(web).rsplit("\r\n\r\n").next().unwrap_or_default().to_owned();
    assert_eq!(ask(), "1/1/1");
    for kill in 0..3 {
        let held: Vec<_> = (0..3).map(|_| TcpStream::connect(web).unwrap()).collect();
        until("they are accepted", || worker(&proxy).is_some_and(|status| status.connections == 3));
        assert_eq!(ask(), format!("{}/4/4", 2 * kill + 2));
        kill_worker(pid, Signal::SIGKILL);
        pid = next_worker(&proxy, pid);
        drop(held);
        assert_eq!(ask(), format!("{}/1/1", 2 * kill + 3));
    }
    // A table that a reload adds is kept as well; one that it removes is forgotten.
    proxy.change(&text.replace("seen", "other"));
    assert_eq!(ask(), "1/1/1");
    kill_worker(pid, Signal::SIGKILL);
    next_worker(&proxy, pid);
    assert_eq!(ask(), "2/1/1");
}

#[test]
fn a_reload_is_done_by_the_living_worker() {
    let origin = origin();
    let (web, other) = (free_address(), free_address());
    let text = config(web, origin.address(), "");
    let proxy = Proxy::start_with(&text, &["-W"]);
    let pid = worker(&proxy).unwrap().pid;
    let before = descriptors(proxy.pid());
    let both = text.replace(" default_backend", &format!(" bind {other}\n default_backend"));
    proxy.change(&both);
    assert!(get(other).contains(" 200 "));
    until("the new sockets are held", || descriptors(proxy.pid()) == before + 2);
    assert!(proxy.change_refused("this is no configuration").contains("test.cfg:1"));
    proxy.write(&text);
    for signal in [Signal::SIGUSR2, Signal::SIGHUP] {
        proxy.signal(signal);
    }
    until("the removed ones are not", || descriptors(proxy.pid()) == before);
    assert!(TcpStream::connect(other).is_err());
    let status = worker(&proxy).unwrap();
    assert_eq!((status.pid, status.refused), (pid, 1), "the same process");
}

#[test]
fn a_crash_is_no_reload() {
    let origin = origin();
    let (web, other) = (free_address(), free_address());
    let header = |value: &str| format!(" http-response set-header X-Text {value}\n");
    let proxy = Proxy::start_with(&config(web, origin.address(), &header("one")), &["-W"]);
    proxy.change(&config(web, origin.address(), &header("two")));
    let mut pid = worker(&proxy).unwrap().pid;
    for text in ["this is no configuration", &config(other, origin.address(), &header("three"))] {
        proxy.write(text);
        kill_worker(pid, Signal::SIGKILL);
        pid = next_worker(&proxy, pid);
        assert!(get(web).to_ascii_lowercase().contains("x-text: two\r\n"), "the text that was in use");
    }
    assert!(proxy.reload().accepted);
    assert!(get(other).to_ascii_lowercase().contains("x-text: three\r\n"));
}

#[test]
fn a_crash_keeps_what_operators_have_set() {
    let (web, origin, folder) = (free_address(), origin(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("baton.sock");
    let text = config(web, origin.address(), "")
        .replace("global\n", &format!("global\n stats socket {} level admin\n", socket.display()));
    let text = format!("{text} server s2 {} weight 10\n", origin.address());
    let proxy = Proxy::start_with(&text, &["-W"]);
    let set = |command: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it is listened on");
        writeln!(stream, "{command}").expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it replies");
        assert_eq!(reply, "\n", "{command}");
    };
    let mut pid = worker(&proxy).unwrap().pid;
    let mut crash = |expect: &[&str]| {
        let before = worker(&proxy).unwrap().overrides;
        kill_worker(pid, Signal::SIGKILL);
        pid = next_worker(&proxy, pid);
        let status = worker(&proxy).unwrap();
        assert_eq!(status.overrides, before, "with who set it, and when");
        assert_eq!(status.overrides.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        status.backends[0].servers.iter().map(|server| server.status.clone()).collect::<Vec<_>>()
    };
    let (maint, weight) = ("server app/s1 state maint (file: ready)", "server app/s2 weight 3 (file: 10)");
    // Dead in the moment after the reply.
    set("set server app/s1 state maint");
    set("set weight app/s2 3");
    assert_eq!(crash(&[maint, weight]), ["MAINT", "no check"]);
    assert!(get(web).contains(" 200 "));
    set("set server app/s1 state ready");
    assert_eq!(crash(&[weight]), ["no check", "no check"]);
    set("disable server app/s1");
    // What a reload ended does not come back.
    proxy.change(&text.replace("weight 10", "weight 20"));
    assert_eq!(crash(&[maint]), ["MAINT", "no check"]);
    assert_eq!(crash(&[maint]), ["MAINT", "no check"], "the new worker told it too");
    // Nor what an operator dropped in the moment before.
    set("set weight app/s2 3");
    set("clear overrides app/s2");
    assert_eq!(crash(&[maint]), ["MAINT", "no check"]);
    // More at once than is told one by one.
    let many = |number: u32| format!(" server m{number} {} weight 10\n", origin.address());
    let more: String = text.clone() + &(0..100).map(many).collect::<String>();
    proxy.change(&more);
    (0..100).for_each(|number| set(&format!("set weight app/m{number} 1")));
    proxy.change(&text);
    crash(&[maint]);
}

#[test]
fn a_crash_loop_backs_off_and_a_reload_ends_it() {
    let origin = origin();
    let web = free_address();
    let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
    let pid = worker(&proxy).unwrap().pid;
    // Each new worker is killed as soon as it is seen, before it settles.
    let end = std::time::Instant::now() + PATIENCE;
    kill_worker(pid, Signal::SIGKILL);
    while !proxy.said().contains("workers crashed in a row; the next one starts in") {
        assert!(std::time::Instant::now() < end, "{}", proxy.said());
        for pid in children(proxy.pid()) {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        std::thread::yield_now();
    }
    let _waits_meanwhile = TcpStream::connect(web).expect("nobody is refused");
    proxy.signal(Signal::SIGUSR2);
    next_worker(&proxy, pid);
    assert!(get(web).contains(" 200 "));
}

#[test]
fn signals_that_pause_a_worker_do_not_stop_the_master() {
    let (web, origin) = (free_address(), origin());
    let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for signal in [Signal::SIGTTOU, Signal::SIGTTIN] {
        // The default would be to stop, but only where a terminal's session is.
        assert!(ignored & (1 << (signal as u64 - 1)) != 0, "{signal}: {ignored:x}");
        proxy.signal(signal);
    }
    proxy.change(&config(web, origin.address(), " maxconn 9\n"));
    assert!(get(web).contains(" 200 "));
}

#[test]
fn a_start_that_fails_is_the_masters_failure() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = |text: &str, ready_within: &str| {
        let path = folder.path().join("test.cfg");
        std::fs::write(&path, text).unwrap();
        let mut command = std::process::Command::new(support::program());
        command.env("BATON_READY_WITHIN", ready_within).args(["-W", "-db", "-f"]).arg(&path);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let address = taken.local_addr().unwrap();
    let (code, said) = run(&config(address, address, ""), "");
    assert!(code == Some(1) && said.contains("address already in use"), "{code:?} {said}");
    let (code, said) = run("global\n nonsense\n", "");
    assert!(code == Some(1) && said.matches("nonsense").count() > 0 && !said.contains("forked"), "{code:?} {said}");
    for time in ["soon", "0", "2h", "1s2"] {
        let (code, said) = run(&config(free_address(), address, ""), time);
        assert!(
            code == Some(1) && said.contains(&format!("BATON_READY_WITHIN={time}: expected a time from")),
            "{code:?} {said}"
        );
    }
}

#[test]
fn a_master_that_is_killed_leaves_a_worker_that_serves() {
    let origin = origin();
    let web = free_address();
    let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
    let pid = worker(&proxy).unwrap().pid;
    proxy.signal(Signal::SIGKILL);
    until("the master is gone", || process(proxy.pid()).is_none_or(|(state, _)| state == 'Z'));
    assert!(get(web).contains(" 200 "));
    // It can be asked and stopped by its own number.
    let status = match ask(Whom::Pid(pid), Request::Status) {
        Ok(Reply::Status(status)) => *status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status.pid, pid);
    // A new master takes over from it.
    let waiting = TcpStream::connect(web).unwrap();
    let next = Proxy::start_with(&config(web, origin.address(), ""), &["-W", "-sf", &pid.to_string()]);
    assert_ne!(worker(&next).unwrap().pid, pid);
    assert!(get(web).contains(" 200 "));
    drop(waiting);
    until("the worker ends", || process(pid).is_none_or(|(state, _)| state == 'Z'));
}

#[test]
fn signals_end_master_and_worker_with_haproxys_exit_codes() {
    let origin = origin();
    for (signal, code) in [(Signal::SIGTERM, 0), (Signal::SIGINT, 130), (Signal::SIGUSR1, 0)] {
        let web = free_address();
        let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
        let pid = worker(&proxy).unwrap().pid;
        proxy.signal(signal);
        let (status, said) = proxy.wait();
        assert_eq!(status.code(), Some(code), "{signal}: {said}");
        assert!(said.contains(&format!("All workers exited. Exiting... ({code})")), "{said}");
        assert!(process(pid).is_none(), "the worker has been waited for");
        assert!(TcpStream::connect(web).is_err());
    }
}

#[test]
fn a_soft_stop_waits_for_what_is_under_way() {
    let origin = origin();
    let web = free_address();
    let proxy = Proxy::start_with(&config(web, origin.address(), ""), &["-W"]);
    let mut slow = TcpStream::connect(web).unwrap();
    write!(slow, "GET /delay/1000 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    until("the request is under way", || origin.requests() == 1);
    proxy.signal(Signal::SIGUSR1);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!(proxy.wait().0.code(), Some(0));
}

#[test]
fn systemd_is_told() {
    let origin = origin();
    let web = free_address();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut text = [0; 1000];
        let length = systemd.recv(&mut text).expect("it is told");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let until_told = |expect: &str| {
        let mut text = next();
        while !text.contains(expect) {
            text = next();
        }
        text
    };
    let text = config(web, origin.address(), "");
    let socket = format!("NOTIFY_SOCKET={}", path.display());
    let proxy = Proxy::start_under(&["env", &socket, "WATCHDOG_USEC=200000"], &text, &["-Ws"]);
    let pid = worker(&proxy).unwrap().pid;
    let first = next();
    let expect = format!("READY=1\nMAINPID={}\nSTATUS=Serving with worker {pid}.", proxy.pid());
    assert_eq!(first, expect, "READY=1 comes first");
    until_told("WATCHDOG=1");

    proxy.signal(Signal::SIGUSR2);
    assert!(until_told("RELOADING=1").contains("\nMONOTONIC_USEC="));
    until_told("READY=1");
    proxy.write("this is no configuration");
    proxy.signal(Signal::SIGUSR2);
    until_told("RELOADING=1");
    assert!(until_told("READY=1").contains("the last reload was rejected"));

    kill_worker(pid, Signal::SIGSTOP);
    // What was answered before, and nothing from then on.
    let is_silent = || {
        systemd.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        systemd.recv(&mut [0; 1000]).is_err()
    };
    until("the watchdog is fed no more", is_silent);
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    kill_worker(pid, Signal::SIGKILL);
    let next = until_told("Serving with worker");
    assert!(next.contains("crashed workers: 1") && !next.contains(&pid.to_string()), "{next}");
    until_told("WATCHDOG=1");
    proxy.signal(Signal::SIGTERM);
    until_told("STOPPING=1");
}
