//! Reloads of Debian's haproxy under load: without a hold some requests fail, with one none does.

use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

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

    /// Reloads while new connections to port 80 are held.
    #[track_caller]
    fn reload_held(&self, method: &str) {
        self.held(&["--to", ":80", "--method", method, "--max", "20s", "--", "sh", "-c", Self::RELOAD]);
    }

    /// `baton hold` with these words, in haproxy's folder; gives what it said.
    #[track_caller]
    fn held(&self, words: &[&str]) -> String {
        let mut command = self.0.hold(words);
        let said = self.0.at("said");
        let file = fs::File::create(&said).expect("the folder is ours");
        // A daemon would keep a pipe open.
        command.current_dir(self.0.folder.path()).stdout(Stdio::null()).stderr(file);
        let status = command.status().expect("the program was built");
        let said = fs::read_to_string(said).expect("it was made above");
        assert!(status.success(), "{said}");
        said
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
/// Rounds of `migrate`, of which one must reset nobody: on a busy machine a connection in hundreds of reloads may be (docs/hold.md).
const MIGRATE_ROUNDS: usize = 3;

/// Reloads held by a method, while others load the server; nobody fails.
#[track_caller]
fn assert_held(haproxy: &Haproxy, (method, reloads): (&str, usize), load: impl Fn() -> Vec<LoadHandle>) {
    let rounds = if method == "migrate" { MIGRATE_ROUNDS } else { 1 };
    for round in 1..=rounds {
        let loads = load();
        (0..reloads).for_each(|_| haproxy.reload_held(method));
        let results: Vec<_> = loads.into_iter().map(end).collect();
        if round == rounds || results.iter().all(|result| result.counts.failed() == 0) {
            return results.iter().for_each(|result| assert_nobody_fails(method, result));
        }
    }
}

#[test]
fn reloads_that_reset_connections_do_not_when_held() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, ":::80 v4v6");
        assert_this_load_sees_resets(&haproxy, || load(WEB));
        for held in RELOADS {
            assert_held(&haproxy, held, || [WEB, "[::1]:80"].map(load).into());
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
        for held in RELOADS {
            assert_held(&haproxy, held, || vec![neighbour.load()]);
            machine.assert_clean();
        }
    });
}

/// Requests of each run of ab. `BATON_REQUESTS=200000 cargo test -p baton --test hold ab_ -- --nocapture` is the large one.
const REQUESTS: u32 = 3000;
/// From one reload to the next, if it does not take longer.
const RELOADED_EVERY: Duration = Duration::from_millis(100);
/// The interval for `drop`, which stops clients for a second and more at each of them.
const RELOADED_EVERY_BY_DROP: Duration = Duration::from_secs(1);

/// What ab tells.
struct Told {
    failed: u32,
    reloads: u32,
    /// The lines of its table: how many per cent were served within how many milliseconds.
    table: String,
}

/// `ab -r -c 10` while something is done as often as that.
#[track_caller]
fn ab(requests: u32, every: Duration, reload: impl Fn() + Send) -> Told {
    let number = requests.to_string();
    let (is_over, over) = mpsc::channel::<()>();
    let (said, reloads) = thread::scope(|scope| {
        let reloading = scope.spawn(move || {
            let mut count = 0;
            loop {
                let begun = Instant::now();
                reload();
                count += 1;
                let left = every.saturating_sub(begun.elapsed());
                if over.recv_timeout(left) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return count;
                }
            }
        });
        let words = ["-q", "-r", "-c", "10", "-n", &number, "http://127.0.0.1:80/"];
        let output = Command::new("ab").args(words).stdin(Stdio::null()).output().expect("ab is installed");
        drop(is_over);
        (text(&output.stdout) + &text(&output.stderr), reloading.join().expect("no reload fails"))
    });
    let figure = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{said}"));
        line.trim().parse::<u32>().expect("a number")
    };
    assert_eq!(figure("Complete requests:"), requests, "{said}");
    let table =
        said.lines().filter(|line| line.trim_start().split_once('%').is_some_and(|(per, _)| per.parse::<u8>().is_ok()));
    let table = table.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ");
    Told { failed: figure("Failed requests:"), reloads, table }
}

#[test]
fn ab_sees_resets_only_where_nothing_is_held() {
    /// Runs without a hold until one sees failures ...
    const RUNS_MAX: usize = 40;
    /// ... each long enough for some ten reloads: most see dozens of failures, and few see none. Much longer ones ab gives up.
    const BARE_REQUESTS: u32 = 10_000;
    let requests = env::var("BATON_REQUESTS").map_or(REQUESTS, |text| text.parse().expect("a number"));
    alone(|machine| {
        let haproxy = Haproxy::start(machine, "127.0.0.1:80");
        let bare =
            (0..RUNS_MAX).map(|_| ab(BARE_REQUESTS, RELOADED_EVERY, || haproxy.reload())).find(|told| told.failed > 0);
        let bare = bare.expect("without a hold, a reload resets what waits in its sockets");
        println!(
            "nothing held: {} of {BARE_REQUESTS} failed, {} reloads; ms: {}",
            bare.failed, bare.reloads, bare.table
        );
        for (method, _) in RELOADS {
            let every = if method == "drop" { RELOADED_EVERY_BY_DROP } else { RELOADED_EVERY };
            let told = ab(requests, every, || haproxy.reload_held(method));
            println!("{method}: {} of {requests} failed, {} reloads; ms: {}", told.failed, told.reloads, told.table);
            assert_eq!(told.failed, 0, "{method}");
            assert!(told.reloads > 0);
            machine.assert_clean();
        }
    });
}

#[test]
fn a_server_that_was_gone_in_between_is_told() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, "127.0.0.1:80");
        let hold = |script: &str| {
            let words = ["--to", WEB, "--", "sh", "-c", script];
            let output = haproxy.held(&words);
            assert!(output.contains("method migrate"), "{output}");
            output
        };
        assert!(!hold(Haproxy::RELOAD).contains("stopped in between"));
        // A restart: the old process ends before the new one begins, which takes as long as it takes to be seen.
        let restart = "old=$(cat pid); kill -TERM $old; while kill -0 $old 2>/dev/null; do sleep 0.01; done; sleep 0.2; \
                       haproxy -D -f haproxy.cfg -p pid";
        let output = hold(restart);
        assert!(output.contains("the server stopped in between") && output.contains("--method queue"), "{output}");
        machine.assert_clean();
    });
}

#[test]
fn auto_says_what_it_chose_and_why() {
    alone(|machine| {
        let haproxy = Haproxy::start(machine, "127.0.0.1:80");
        let plan = machine.run(&["--to", ":80", "--dry-run"]);
        let plan = text(&plan.stdout);
        assert!(
            plan.starts_with("method migrate: 1 listening socket on :80 shares the address (SO_REUSEPORT"),
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
