//! Listening sockets that come from elsewhere: from Debian's haproxy by `-x`, from a service manager by `LISTEN_FDS`.
//!
//! Everything happens in a network namespace of its own, so that ports and abstract names are nobody else's.

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use baton_control::ask::Whom;
use baton_control::protocol::{Reply, Request};
use baton_kernel::netns;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::clients::body;
use support::haproxy::Haproxy;
use support::{Proxy, program, until};

const DEFAULTS: &str = "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n";

/// As both programs name it: filled up with zeroes.
fn abstract_name(name: &str) -> SocketAddr {
    let mut padded = [0; 107];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    SocketAddr::from_abstract_name(padded).expect("it fits")
}

/// Runs `work` where ports are nobody else's, or says that it may not.
fn apart(work: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(work) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

#[test]
fn every_kind_of_socket_is_taken_from_haproxy() {
    apart(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let at = |name: &str| folder.path().join(name);
        let (stats, web) = (at("stats.sock"), at("web.sock"));
        let binds = format!(
            " bind 127.0.0.1:80\n bind :::80 v6only\n bind 127.0.0.2:80 interface lo\n bind {}\n bind abns@web\n",
            web.display()
        );
        let frontend = |who: &str| {
            format!(
                "{DEFAULTS}frontend f\n{binds} http-request return status 200 content-type text/plain string {who}\n"
            )
        };
        let global = format!("global\n stats socket {} expose-fd listeners level admin\n", stats.display());
        let haproxy = Haproxy::start(&(global + &frontend("haproxy")), &stats);
        let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
        let before = inode(&web);

        let stats = stats.display().to_string();
        let baton = Proxy::start_with(&frontend("baton"), &["-x", "/nowhere", "-x", &stats]);
        let left = format!("Inherited sockets that the configuration does not use: {stats}.");
        until("it says what it left", || baton.said().contains(&left));
        haproxy.stop();
        assert_eq!(inode(&web), before, "it is still the same file");
        for address in ["127.0.0.1:80", "[::1]:80", "127.0.0.2:80"] {
            assert_eq!(body(TcpStream::connect(address).expect("somebody listens")), "baton", "{address}");
        }
        assert_eq!(body(UnixStream::connect(&web).expect("somebody listens")), "baton");
        assert_eq!(body(UnixStream::connect_addr(&abstract_name("web")).expect("somebody listens")), "baton");
    });
}

#[test]
fn hundreds_of_sockets_are_taken_whatever_the_number_of_threads() {
    apart(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let stats = folder.path().join("stats.sock");
        // Two sockets for each of 200 ports.
        let frontend = |who: &str, shards: &str| {
            format!(
                "{DEFAULTS}frontend f\n bind 127.0.0.1:2000-2199 {shards}\n http-request return status 200 content-type \
                 text/plain string {who}\n"
            )
        };
        let global = format!("global\n nbthread 2\n stats socket {} expose-fd listeners\n", stats.display());
        let haproxy = Haproxy::start(&(global + &frontend("haproxy", "shards 2")), &stats);
        let text = format!("global\n nbthread 1\n{}", frontend("baton", ""));
        let _baton = Proxy::start_with(&text, &["-x", &stats.display().to_string()]);
        haproxy.stop();
        for port in 2000..2200 {
            // So many that each of the two sockets gets some.
            for _ in 0..3 {
                assert_eq!(body(TcpStream::connect(("127.0.0.1", port)).expect("somebody listens")), "baton", "{port}");
            }
        }
    });
}

#[test]
fn who_gives_no_sockets_ends_the_start_and_is_not_disturbed() {
    apart(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let at = |name: &str| folder.path().join(name);
        let (stats, ours) = (at("stats.sock"), at("baton.cfg"));
        let frontend = |who: &str| {
            format!(
                "{DEFAULTS}frontend f\n bind 127.0.0.1:80\n http-request return status 200 content-type text/plain \
                 string {who}\n"
            )
        };
        let global = format!("global\n stats socket {}\n", stats.display());
        fs::write(&ours, frontend("baton")).expect("the folder is ours");
        let haproxy = Haproxy::start(&(global + &frontend("haproxy")), &stats);
        let check = |socket: &str, expect: &str| {
            let mut command = Command::new(program());
            let output = command.arg("-db").arg("-f").arg(&ours).args(["-x", socket]).output().expect("it was built");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(
                said.contains("Failed to get the sockets from the old process!") && said.contains(expect),
                "{said}"
            );
        };
        check(&stats.display().to_string(), "needs 'expose-fd listeners'");
        check("/nowhere", "cannot connect: ");
        check("sockpair@5", "expected a path, 'unix@' or 'abns@'");
        assert_eq!(body(TcpStream::connect("127.0.0.1:80").expect("it serves")), "haproxy");
        drop(haproxy);
        // As in HAProxy, this asks nobody.
        let _baton = Proxy::start_with(&frontend("baton"), &["-x", "/dev/null"]);
        assert_eq!(body(TcpStream::connect("127.0.0.1:80").expect("it serves")), "baton");
    });
}

/// A process with these sockets as descriptors 3, 4, …, as a service manager passes them.
struct Activated(Child);

impl Activated {
    fn start(config: &Path, sockets: &[&TcpListener]) -> Activated {
        let mut pass = String::new();
        for (number, socket) in (3..).zip(sockets) {
            fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
            // First out of the way: the place of one may be the number of another.
            pass += &format!("os.dup2({}, {number} + 100); ", socket.as_raw_fd());
        }
        for number in 3..3 + sockets.len() {
            pass += &format!("os.dup2({number} + 100, {number}); ");
        }
        let script = format!(
            "import os, sys; {pass}os.environ['LISTEN_PID'] = str(os.getpid()); \
             os.environ['LISTEN_FDS'] = '{}'; os.execv(sys.argv[1], sys.argv[1:])",
            sockets.len()
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]).arg(program()).arg("-db").arg("-f").arg(config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Activated(command.spawn().expect("python3 is installed"))
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        // The worker of a master would live on without it.
        let worker = worker(self.0.id());
        let _ = self.0.kill();
        let _ = worker.map(|worker| kill(Pid::from_raw(worker), Signal::SIGKILL));
        let _ = self.0.wait();
    }
}

#[test]
fn sockets_of_a_service_manager_are_taken_by_address_and_by_number() {
    let (by_address, by_number, unasked) = (
        TcpListener::bind("127.0.0.1:0").expect("a free port"),
        TcpListener::bind("127.0.0.1:0").expect("a free port"),
        TcpListener::bind("127.0.0.1:0").expect("a free port"),
    );
    let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
    // It waits from before the start.
    let early = TcpStream::connect(address(&by_address)).expect("it listens");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let config = folder.path().join("baton.cfg");
    let text = format!(
        "{DEFAULTS}frontend f\n bind {}\n bind fd@4\n http-request return status 200 content-type text/plain string baton\n",
        address(&by_address)
    );
    fs::write(&config, text).expect("the folder is ours");
    let mut baton = Activated::start(&config, &[&by_address, &by_number, &unasked]);
    assert_eq!(body(early), "baton");
    for listener in [&by_address, &by_number] {
        assert_eq!(body(TcpStream::connect(address(listener)).expect("it listens")), "baton");
    }
    drop(TcpStream::connect(address(&unasked)).expect("it is still the manager's"));

    // A successor that nobody passed descriptors to has them from the process before it, by number too.
    let pid = baton.0.id().to_string();
    let mut command = Command::new(program());
    command.arg("-db").arg("-f").arg(&config).args(["-sf", &pid]);
    let successor = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    let _successor = Activated(successor.expect("it was built"));
    until("the first one has ended", || baton.0.try_wait().expect("it is our child").is_some());
    for listener in [&by_address, &by_number] {
        assert_eq!(body(TcpStream::connect(address(listener)).expect("it listens")), "baton");
    }
}

/// The process that a master has, if it has one.
fn worker(master: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_number_of_a_descriptor_outlives_takeover_and_crash() {
    let by_number = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = by_number.local_addr().expect("it is bound");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let config = folder.path().join("baton.cfg");
    let text = |who: &str| {
        format!(
            "{DEFAULTS}frontend f\n bind fd@3\n http-request return status 200 content-type text/plain string {who}\n"
        )
    };
    fs::write(&config, text("one")).expect("the folder is ours");
    let first = Activated::start(&config, &[&by_number]);
    drop(by_number);
    assert_eq!(body(TcpStream::connect(address).expect("it listens")), "one");

    // Nobody passed descriptors to the master: it has them from the process before.
    let mut command = Command::new(program());
    command.arg("-W").arg("-db").arg("-f").arg(&config).args(["-sf", &first.0.id().to_string()]);
    let master = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    let mut master = Activated(master.expect("it was built"));
    let pid = master.0.id();
    let ask_status = || baton_control::ask::ask(Whom::Pid(pid), Request::Status);
    let mut before = first.0.id();
    for _ in 0..2 {
        until("another worker serves", || matches!(ask_status(), Ok(Reply::Status(status)) if status.pid != before));
        assert_eq!(body(TcpStream::connect(address).expect("it listens")), "one");
        let Some(killed) = worker(pid) else { panic!("a master has a worker") };
        before = killed as u32;
        kill(Pid::from_raw(killed), Signal::SIGKILL).expect("the worker lives");
    }
    // And a reload after that.
    until("another worker serves", || matches!(ask_status(), Ok(Reply::Status(status)) if status.pid != before));
    fs::write(&config, text("two")).expect("the folder is ours");
    match baton_control::ask::ask(Whom::Pid(pid), Request::Reload) {
        Ok(Reply::Reload(outcome)) => assert!(outcome.accepted, "{:?}", outcome.messages),
        other => panic!("{other:?}"),
    }
    assert_eq!(body(TcpStream::connect(address).expect("it listens")), "two");
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).expect("the master lives");
    until("it has ended", || master.0.try_wait().expect("it is our child").is_some());
}
