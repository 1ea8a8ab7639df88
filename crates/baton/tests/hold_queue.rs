//! `baton hold --method queue` as a whole: who waits, in which order, and what becomes of them when somebody is killed.
//!
//! What all methods have in common is in `hold.rs`. Each test has a network namespace and a folder of state of its own; one runs in
//! the lab, whose kernel has no nftables for IP, so that rules go by the programs of iptables.

mod support;

use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use baton_kernel::netns;
use baton_kernel::nfqueue::open_queues;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{lab, program, until};
use tempfile::TempDir;

/// Runs a test on a machine of its own, if there is the right to.
fn alone(test: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(test) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// A hold under way around a command that sleeps; killed when dropped, with its command.
struct Hold {
    child: Child,
    folder: TempDir,
}

impl Hold {
    /// Holds what these words say, and waits until it does.
    #[track_caller]
    fn start(words: &[&str]) -> Hold {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let script = format!("echo $$ >{0}/new; mv {0}/new {0}/begun; exec sleep 60", folder.path().display());
        let mut command = Command::new(program());
        command.arg("hold").args(words).args(["--method", "queue", "--max", "60s", "--", "sh", "-c", &script]);
        command.env("BATON_RUN_DIR", folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let hold = Hold { child: command.spawn().expect("the program was built"), folder };
        until("the command begins", || hold.folder.path().join("begun").exists());
        hold
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// The process that has the queue.
    fn guardian(&self) -> Pid {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap_or_default();
        let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        let is_guardian =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("guardian"));
        Pid::from_raw(pids.into_iter().find(is_guardian).expect("it has a guardian"))
    }

    /// Ends the command, and says what `baton hold` said.
    fn end(mut self) -> String {
        kill(self.pid(), Signal::SIGTERM).expect("our child lives until it is waited for");
        self.child.wait().expect("it is our child");
        let mut said = String::new();
        let _ = self.child.stderr.take().expect("it is piped").read_to_string(&mut said);
        said
    }

    #[track_caller]
    fn baton(&self, word: &str) -> String {
        let output = Command::new(program()).args(["hold", word]).env("BATON_RUN_DIR", self.folder.path()).output();
        String::from_utf8_lossy(&output.expect("the program was built").stdout).into_owned()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let command = fs::read_to_string(self.folder.path().join("begun")).unwrap_or_default();
        if let Ok(pid) = command.trim().parse() {
            // It may have ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Connects, and says how long that took.
fn client(to: SocketAddr) -> JoinHandle<io::Result<(TcpStream, Duration)>> {
    thread::spawn(move || {
        let start = Instant::now();
        Ok((TcpStream::connect(to)?, start.elapsed()))
    })
}

/// Packets that wait in all queues.
fn waiting() -> u32 {
    open_queues().unwrap_or_default().iter().map(|queue| queue.waiting).sum()
}

/// SYNs that were sent again in this network namespace.
fn sent_again() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("every kernel has it");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (rows.next().unwrap_or_default().split(' '), rows.next().unwrap_or_default().split(' '));
    let found = names.zip(values).find(|(name, _)| *name == "RetransSegs").expect("it counts them");
    found.1.parse().expect("a number")
}

#[track_caller]
fn listener(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).expect("nobody else is here");
    let local = listener.local_addr().expect("it is bound");
    (listener, local)
}

/// Holds while some clients come one after the other, and ends it: they get through in their order.
fn in_order(address: &str) {
    let (listener, local) = listener(address);
    let hold = Hold::start(&["--to", &local.to_string()]);
    let clients: Vec<_> = (1..=5)
        .map(|number| {
            let client = client(local);
            until("it waits", || waiting() == number);
            client
        })
        .collect();
    let said = hold.end();
    let came: Vec<_> = (0..5).map(|_| listener.accept().expect("they were let go").1).collect();
    let went = clients.into_iter().map(|client| client.join().expect("no panic").expect("it got through").0);
    assert_eq!(came, went.map(|stream| stream.local_addr().expect("it is bound")).collect::<Vec<_>>());
    assert!(said.contains('5') && said.contains("queue"), "{said}");
    assert_eq!(open_queues().expect("NFQUEUE is there"), []);
}

#[test]
fn clients_of_both_families_get_through_in_their_order() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        alone(|| in_order(address));
    }
}

#[test]
fn without_nftables_rules_go_by_iptables() {
    lab::inside(|| {
        let mine = ["-t", "mangle", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"];
        let legacy = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().expect("the package iptables is installed");
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        legacy("iptables-legacy", &mine);
        legacy("ip6tables-legacy", &mine);
        // As `iptables-save` prints them, but for its comments and the counters of chains.
        let rules = || {
            let all = legacy("iptables-legacy-save", &[]) + &legacy("ip6tables-legacy-save", &[]);
            let lines = all.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.split(" [").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
        };
        let before = rules();
        in_order("127.0.0.1:0");
        in_order("[::1]:0");
        let (_listener, local) = listener("127.0.0.1:0");
        let hold = Hold::start(&["--to", &local.to_string()]);
        let during = rules();
        assert!(during.contains("-A INPUT -p tcp -j BATON-HOLD-") && during.contains("--queue-bypass"), "{during}");
        hold.end();
        assert_eq!(rules(), before);

        // The programs of the second family refuse: what the first one took is gone again, and the command is not run.
        let folder = tempfile::tempdir().expect("a folder for the test");
        symlink("/bin/false", folder.path().join("ip6tables-legacy-restore")).expect("the folder is ours");
        let mut command = Command::new(program());
        command.args(["hold", "--to", &format!(":{}", local.port()), "--method", "queue", "--", "echo", "it was run"]);
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.path().display()));
        let refused = command.env("BATON_RUN_DIR", folder.path()).output().expect("the program was built");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(125), 0), "{said}");
        assert!(said.contains("ip6tables-legacy-restore"), "{said}");
        assert_eq!(rules(), before, "{said}");
    });
}

#[test]
fn killed_by_9_nobody_who_waits_is_lost() {
    alone(|| {
        let (_listener, local) = listener("127.0.0.1:0");
        let hold = Hold::start(&["--to", &local.to_string()]);
        let clients = [client(local), client(local)];
        until("they wait", || waiting() == 2);
        kill(hold.pid(), Signal::SIGKILL).expect("it lives");
        for client in clients {
            client.join().expect("no panic").expect("it got through");
        }
        assert_eq!(sent_again(), 0, "the guardian let them go, they did not have to come again");
        until("nothing is left", || hold.baton("status").starts_with("No active holds"));
    });
}

#[test]
fn without_the_owner_of_the_queue_the_kernel_lets_connections_pass() {
    alone(|| {
        let (_listener, local) = listener("127.0.0.1:0");
        let hold = Hold::start(&["--to", &local.to_string()]);
        let waits = client(local);
        until("it waits", || waiting() == 1);
        let guardian = hold.guardian();
        for (pid, signal) in [(hold.pid(), Signal::SIGSTOP), (guardian, Signal::SIGKILL), (hold.pid(), Signal::SIGKILL)]
        {
            kill(pid, signal).expect("it lives");
        }
        until("the queue is closed", || open_queues().expect("NFQUEUE is there").is_empty());
        client(local).join().expect("no panic").expect("rules alone hold nobody");
        // What it had is dropped with it, and the client comes again.
        let (_stream, took) = waits.join().expect("no panic").expect("it got through");
        assert!(sent_again() > 0 && took > Duration::from_millis(500), "{took:?}");
        assert!(hold.baton("release").contains("released"));
        assert!(hold.baton("status").starts_with("No active holds"));
    });
}

#[test]
fn above_the_limit_clients_pass() {
    alone(|| {
        let (_listener, local) = listener("127.0.0.1:0");
        let hold = Hold::start(&["--to", &local.to_string(), "--limit", "2"]);
        let held = [client(local), client(local)];
        until("they wait", || waiting() == 2);
        for _ in 0..3 {
            client(local).join().expect("no panic").expect("it passes");
        }
        hold.end();
        for client in held {
            client.join().expect("no panic").expect("it was let go");
        }
        assert_eq!(sent_again(), 0);
    });
}

#[test]
fn only_what_comes_in_by_the_interface_waits() {
    alone(|| {
        let (_listener, local) = listener("127.0.0.1:0");
        for line in ["link add out0 type veth peer name out1", "link set out0 up"] {
            assert!(Command::new("ip").args(line.split(' ')).status().expect("iproute2 is installed").success());
        }
        let elsewhere = Hold::start(&["--to", &local.to_string(), "--interface", "out0"]);
        client(local).join().expect("no panic").expect("it comes in by lo");
        elsewhere.end();
        let here = Hold::start(&["--to", &local.to_string(), "--interface", "out0", "--interface", "lo"]);
        let client = client(local);
        until("it waits", || waiting() == 1);
        here.end();
        client.join().expect("no panic").expect("it was let go");
    });
}
