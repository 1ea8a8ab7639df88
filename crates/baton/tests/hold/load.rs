//! Reloads of Debian's haproxy under load: without a hold some requests fail, with one none does.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use baton_kernel::namespace;
use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, LoadResult, Request, Target};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{Machine, WEB, alone, text};
use crate::support::until;

/// Debian's haproxy in the background; its last process is ended when this is dropped.
struct Haproxy<'a>(&'a Machine);

impl Haproxy<'_> {
    /// Starts it where `bind` says.
    fn start<'a>(machine: &'a Machine, bind: &str) -> Haproxy<'a> {
        let text = format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 10s\n timeout server 10s\n\
             frontend f\n bind {bind}\n http-request return status 200 content-type text/plain string served\n"
        );
        fs::write(machine.at("haproxy.cfg"), text).expect("the folder is ours");
        let haproxy = Haproxy(machine);
        assert!(haproxy.command("haproxy -D -f haproxy.cfg -p pid").status().expect("a shell").success());
        haproxy
    }

    /// The reload that loses connections.
    const RELOAD: &'static str = "haproxy -D -f haproxy.cfg -p pid -sf $(cat pid)";

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.0.folder.path()).env("BATON_RUN_DIR", self.0.folder.path());
        // A daemon would keep a pipe open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    #[track_caller]
    fn reload(&self) {
        assert!(self.command(Self::RELOAD).status().expect("a shell").success());
    }

    /// The same while new connections to port 80 are held.
    #[track_caller]
    fn reload_held(&self, method: &str) {
        let words = ["--to", ":80", "--method", method, "--max", "20s", "--", "sh", "-c", Self::RELOAD];
        let mut command = self.0.hold(&words);
        let said = self.0.at("said");
        let file = fs::File::create(&said).expect("the folder is ours");
        command.current_dir(self.0.folder.path()).stdout(Stdio::null()).stderr(file);
        let status = command.status().expect("the program was built");
        assert!(status.success(), "{}", fs::read_to_string(said).unwrap_or_default());
    }
}

impl Drop for Haproxy<'_> {
    fn drop(&mut self) {
        let pids = fs::read_to_string(self.0.at("pid")).unwrap_or_default();
        for pid in pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Ten clients without a pause, with a connection for each request, as `ab -c 10`.
fn load(to: &str) -> LoadHandle {
    let target = Target::Tcp(to.parse().expect("an address"));
    let options = LoadOptions {
        keep_alive: false,
        concurrency: 10,
        requests: vec![Request::get("/")],
        ..LoadOptions::new(target)
    };
    Load::start(options).expect("the options are right")
}

fn end(load: LoadHandle) -> LoadResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(load.stop())
}

/// Reloads under load until a failure is seen: without that, a test without failures proves nothing.
#[track_caller]
fn assert_this_load_sees_resets(haproxy: &Haproxy, start: impl Fn() -> LoadHandle) {
    /// Rounds of ten reloads.
    const ROUNDS_MAX: usize = 30;
    for _ in 0..ROUNDS_MAX {
        let load = start();
        (0..10).for_each(|_| haproxy.reload());
        if end(load).counts.failed() > 0 {
            return;
        }
    }
    panic!("no request failed in {ROUNDS_MAX} rounds of reloads without a hold");
}

#[track_caller]
fn assert_nobody_fails(what: &str, result: &LoadResult) {
    assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 20, "{what}: only {} requests", result.counts.completed);
}

/// By method, how often haproxy is reloaded; clients of `drop` stand still for a second at each one.
const RELOADS: [(&str, usize); 3] = [("migrate", 20), ("queue", 20), ("drop", 3)];

#[test]
fn reloads_that_reset_connections_do_not_when_held() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, ":::80 v4v6");
        assert_this_load_sees_resets(&haproxy, || load(WEB));
        for (method, reloads) in RELOADS {
            let loads = [WEB, "[::1]:80"].map(load);
            (0..reloads).for_each(|_| haproxy.reload_held(method));
            for load in loads {
                assert_nobody_fails(method, &end(load));
            }
            machine.assert_clean();
        }
    });
}

/// A network namespace with a name and a line to ours; both go with the test.
struct Neighbour(String);

impl Neighbour {
    /// We are 10.9.0.1 there.
    fn new() -> Neighbour {
        let neighbour = Neighbour(format!("baton-hold-{}", std::process::id()));
        let name = neighbour.0.as_str();
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add to-them type veth peer name to-us netns {name}"),
            "ip address add 10.9.0.1/24 dev to-them".to_owned(),
            "ip link set to-them up".to_owned(),
            format!("ip -n {name} address add 10.9.0.2/24 dev to-us"),
            format!("ip -n {name} link set to-us up"),
            format!("ip -n {name} link set lo up"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                Command::new(words[0]).args(&words[1..]).status().expect("iproute2 is installed").success(),
                "{line}"
            );
        }
        neighbour
    }

    fn load(&self) -> LoadHandle {
        namespace::inside(Some(&self.0), || load("10.9.0.1:80")).expect("it is there")
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn clients_of_another_machine_are_held_too() {
    alone(|machine| {
        let neighbour = Neighbour::new();
        let haproxy = Haproxy::start(machine, "10.9.0.1:80");
        assert_this_load_sees_resets(&haproxy, || neighbour.load());
        for (method, reloads) in RELOADS {
            let load = neighbour.load();
            (0..reloads).for_each(|_| haproxy.reload_held(method));
            assert_nobody_fails(method, &end(load));
            machine.assert_clean();
        }
    });
}

#[test]
fn auto_says_what_it_chose_and_why() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, "127.0.0.1:80");
        let plan = machine.run(&["--to", ":80", "--dry-run"]);
        let plan = text(&plan.stdout);
        assert!(
            plan.starts_with("method migrate: 1 listening socket at :80 shares the address (SO_REUSEPORT"),
            "{plan}"
        );
        drop(haproxy);
        until("it is gone", || TcpStream::connect(WEB).is_err());
        let _server = TcpListener::bind(WEB).expect("nobody else is here");
        let plan = machine.run(&["--to", ":80", "--dry-run"]);
        let plan = text(&plan.stdout);
        assert!(
            !plan.starts_with("method migrate") && plan.contains("does not share its address (no SO_REUSEPORT)"),
            "{plan}"
        );
    });
}
