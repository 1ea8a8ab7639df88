//! `baton hold --method plug` as a whole, in a kernel that has the discipline (`support/lab`): what clients of Debian's haproxy feel
//! when it is reloaded, and what is left when something is killed or refused.

mod support;

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{lab, program, until};
use tempfile::TempDir;

/// Requests of one run of ab, unless `BATON_REQUESTS` says otherwise.
const REQUESTS: u32 = 1500;
/// Messages to the kernel of one process at most: more than any of them sends.
const CALLS_MAX: usize = 200;
/// Runs of ab without anything held, until one sees failures.
const RUNS_MAX: usize = 10;

/// A folder for the state of runs and the files of a server.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().expect("a folder for the test"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn hold(&self, words: &str) -> Command {
        let mut command = Command::new(program());
        command.arg("hold").args(words.split(' ')).env("BATON_RUN_DIR", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Its exit code and all that it said.
    fn run(&self, words: &str) -> (Option<i32>, String) {
        all(self.hold(words).output().expect("the program was built"))
    }

    /// Runs it, which must succeed.
    #[track_caller]
    fn done(&self, words: &str) -> String {
        let (code, said) = self.run(words);
        assert_eq!(code, Some(0), "{words}: {said}");
        said
    }

    /// A run that holds while its command sleeps; killed when dropped.
    fn held(&self, words: &str) -> Held {
        let begun = self.at("begun");
        let mut command = self.hold(words);
        command.args(["--", "sh", "-c", &format!("echo >{}; exec sleep 60", begun.display())]);
        let held = Held(command.spawn().expect("the program was built"));
        until("the command begins", || begun.exists());
        fs::remove_file(begun).expect("the folder is ours");
        held
    }
}

struct Held(Child);

impl Held {
    /// The guardian and the command.
    fn children(&self) -> Vec<i32> {
        let pid = self.0.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it lives");
        children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all(output: Output) -> (Option<i32>, String) {
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), said)
}

#[track_caller]
fn said(words: &str) -> String {
    let mut split = words.split(' ');
    let done =
        Command::new(split.next().expect("a word")).args(split).output().expect("installed by scripts/setup test");
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Disciplines, filters and rules, as their owner sees them; counters and dates stand apart.
fn rules() -> Vec<String> {
    ["tc qdisc show", "tc filter show dev lo", "nft list ruleset", "iptables-legacy-save", "ip6tables-legacy-save"]
        .map(|words| said(words).lines().filter(|line| !line.starts_with(['#', ':'])).collect::<Vec<_>>().join("\n"))
        .into()
}

fn dials(to: SocketAddr) -> std::thread::JoinHandle<TcpStream> {
    std::thread::spawn(move || TcpStream::connect(to).expect("somebody listens"))
}

/// Debian's haproxy in the background, with its number in a file; ended when dropped.
struct Server<'a> {
    machine: &'a Machine,
    address: SocketAddr,
}

impl Server<'_> {
    fn start(machine: &Machine) -> Server<'_> {
        let address = support::free_address();
        let config = format!(
            "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\nfrontend f\n bind {address}\n \
             http-request return status 200 content-type text/plain string hello\n"
        );
        fs::write(machine.at("haproxy.cfg"), config).expect("the folder is ours");
        let server = Server { machine, address };
        let started = Command::new("sh").args(["-c", &server.command("")]).status().expect("every system has a shell");
        assert!(started.success());
        server
    }

    fn command(&self, more: &str) -> String {
        let at = |name| self.machine.at(name).display().to_string();
        format!("haproxy -D -f {} -p {} {more}", at("haproxy.cfg"), at("pid"))
    }

    /// What a reload is in the articles: a new process beside the old one.
    fn reload(&self) -> String {
        self.command(&format!("-sf $(cat {})", self.machine.at("pid").display()))
    }

    /// Runs ab while something is done again and again.
    #[track_caller]
    fn under_load(&self, again: impl Fn() + Sync) -> Told {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let events = scope.spawn(|| {
                let mut events = 0;
                while !is_over.load(Ordering::Relaxed) {
                    again();
                    events += 1;
                }
                events
            });
            // It ends with its events whatever happens to it.
            let end = Ends(&is_over);
            let ab = said(&format!("ab -q -r -c 10 -n {} http://{}/", requests(), self.address));
            drop(end);
            let figure = |name: &str| {
                let line = ab.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{ab}"));
                line.split_whitespace().next().and_then(|word| word.parse::<u32>().ok()).expect("a number")
            };
            assert_eq!(figure("Complete requests:"), requests());
            let table = ab
                .lines()
                .filter(|line| line.trim_start().split_once('%').is_some_and(|(per, _)| per.parse::<u8>().is_ok()));
            let table =
                table.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ");
            Told { failed: figure("Failed requests:"), events: events.join().expect("no event panics"), table }
        })
    }
}

/// Says that it is over when dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What ab told of a run.
struct Told {
    failed: u32,
    /// How often something was done meanwhile.
    events: u32,
    /// How many per cent of the requests were served within how many milliseconds.
    table: String,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} failed, {} reloads; ms: {}", self.failed, requests(), self.events, self.table)
    }
}

fn requests() -> u32 {
    std::env::var("BATON_REQUESTS").map_or(REQUESTS, |text| text.parse().expect("a number"))
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let pids = fs::read_to_string(self.machine.at("pid")).unwrap_or_default();
        pids.split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(|pid| {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        });
    }
}

#[test]
fn no_request_fails_while_haproxy_reloads() {
    lab::inside(|| {
        let machine = Machine::new();
        let server = Server::start(&machine);
        said("iptables-legacy -t mangle -A OUTPUT -p tcp --syn -j MARK --set-mark 1");
        let before = rules();

        let reload = || assert!(Command::new("sh").args(["-c", &server.reload()]).status().expect("a shell").success());
        let bare = (0..RUNS_MAX).map(|_| server.under_load(reload)).find(|told| told.failed > 0);
        println!("nothing held: {}", bare.expect("without holding, a reload resets what waits in its sockets"));
        println!(
            "no reloads: {}",
            server.under_load(|| std::thread::park_timeout(std::time::Duration::from_millis(100)))
        );

        let to = server.address;
        let times = Mutex::new(Vec::new());
        let held_reload = || {
            let words = format!("--json --to {to} --method plug --max 20s --");
            let done =
                machine.hold(&words).args(["sh", "-c", &server.reload()]).output().expect("the program was built");
            let (code, said) = all(done);
            assert_eq!(code, Some(0), "{said}");
            let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
            let report: serde_json::Value = serde_json::from_str(line).expect("one line of JSON");
            let time = report["held_ms"].as_f64().expect("a number");
            times.lock().unwrap_or_else(PoisonError::into_inner).push(time);
        };
        // How long holds took, in their median and at most; then it is forgotten.
        let held_for = || {
            let mut all = std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner));
            all.sort_by(f64::total_cmp);
            format!("held for {:.0} ms in the median, {:.0} ms at most", all[all.len() / 2], all[all.len() - 1])
        };
        // The lane of each run, and one that stands.
        let holds_under_load = |lane: &str| {
            // On a busy machine the requests may be over before the second reload.
            let mut reloads = 0;
            for _ in 0..RUNS_MAX {
                let told = server.under_load(held_reload);
                println!("{lane}: {told}; {}", held_for());
                assert_eq!(told.failed, 0);
                reloads += told.events;
                if reloads > 1 {
                    return;
                }
            }
            panic!("{lane}: only {reloads} reloads in {RUNS_MAX} runs");
        };
        holds_under_load("a lane for each run");
        assert_eq!(rules(), before);
        machine.done(&format!("setup --to {to}"));
        let standing = rules();
        holds_under_load("a lane that stands");
        assert_eq!(rules(), standing);
        machine.done("teardown");
        assert_eq!(rules(), before);
    });
}

#[test]
fn nothing_stays_held_whoever_is_killed() {
    lab::inside(|| {
        let machine = Machine::new();
        let listener = TcpListener::bind("[::]:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let places = ["127.0.0.1", "::1"].map(|ip| SocketAddr::new(ip.parse().expect("an address"), port));
        let before = rules();
        let words = format!("--to :{port} --method plug --max 20s");

        // Baton itself: the guardian lets go.
        let mut held = machine.held(&words);
        let dialling = places.map(dials);
        until("both wait", || machine.done("status").contains("held"));
        assert!(dialling.iter().all(|dialling| !dialling.is_finished()));
        held.0.kill().expect("our child");
        dialling.into_iter().for_each(|dialling| drop(dialling.join().expect("it connects")));
        until("nothing is left", || rules() == before);
        drop(held);

        // Both at once: status says so, and `release` undoes it.
        let mut held = machine.held(&words);
        let children = held.children();
        let signal_children = |signal| {
            for pid in &children {
                let _ = kill(Pid::from_raw(*pid), signal);
            }
        };
        // The guardian may do nothing between the two.
        signal_children(Signal::SIGSTOP);
        held.0.kill().expect("our child");
        signal_children(Signal::SIGKILL);
        drop(held);
        let dialling = places.map(dials);
        until("it is left", || machine.run("status").0 == Some(1));
        assert!(dialling.iter().all(|dialling| !dialling.is_finished()));
        assert!(machine.done("release").contains("released"));
        dialling.into_iter().for_each(|dialling| drop(dialling.join().expect("it connects")));
        assert_eq!(rules(), before);

        // The deadline.
        let began = std::time::Instant::now();
        let held = machine.held(&words.replace("20s", "1s"));
        drop(dials(places[0]).join());
        until("nothing is left", || rules() == before);
        assert!(began.elapsed() < support::PATIENCE, "the command would take longer");
        drop(held);

        // One lane stands through it.
        assert!(machine.done(&format!("setup --to :{port}")).contains("lo: plug set up"));
        assert!(machine.done(&format!("setup --to :{port}")).contains("already set up"));
        let standing = rules();
        assert!(machine.done("status").contains("lane    on lo"));
        let mut held = machine.held(&words);
        let dialling = places.map(dials);
        held.0.kill().expect("our child");
        dialling.into_iter().for_each(|dialling| drop(dialling.join().expect("it connects")));
        until("the guardian has ended", || machine.done("status").starts_with("lane"));
        assert_eq!(rules(), standing);
        drop(held);
        assert!(machine.done("teardown").contains("the plug is removed"));
        assert!(machine.done("teardown").contains("no plug is set up"));
        assert_eq!(rules(), before);
    });
}

#[test]
fn what_is_not_possible_is_said_and_the_command_not_run() {
    lab::inside(|| {
        let machine = Machine::new();
        let made = machine.at("made");
        let words = |path: &Path| format!("--to 127.0.0.1:80 --method plug -- touch {}", path.display());
        let plan = machine.done("--to 127.0.0.1:80 --to [::1]:80 --method plug --dry-run");
        let steps = ["prio ba71:", "plug ba7f:", "SYNs to 127.0.0.1:80", "SYNs to [::1]:80", "baton hold release"];
        assert!(steps.iter().all(|step| plan.contains(step)), "{plan}");

        said("tc qdisc add dev lo root handle 1: prio bands 4");
        let before = rules();
        let (code, refused) = machine.run(&words(&made));
        assert!(code == Some(125) && refused.contains("'prio 1:'"), "{refused}");
        assert!(machine.run("setup --to :80").0 != Some(0));
        assert_eq!(rules(), before);
        said("tc qdisc del dev lo root");

        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]).arg(program());
        command.arg("hold").args(words(&made).split(' ')).env("BATON_RUN_DIR", machine.0.path());
        let (code, refused) = all(command.output().expect("setpriv is installed"));
        assert!(code == Some(125) && refused.contains("CAP_NET_ADMIN"), "{code:?} {refused}");
        assert!(!made.exists(), "the command was not run");
        assert_eq!(machine.run(&words(&made)).0, Some(0));
        assert!(made.exists());
    });
}

#[test]
fn what_the_kernel_refuses_in_the_middle_leaves_nothing() {
    lab::inside(|| {
        let machine = Machine::new();
        said("iptables-legacy -t mangle -A OUTPUT -p tcp --syn -j MARK --set-mark 1");
        let before = rules();
        let log = machine.at("log");
        let (mut refused, mut ran) = (0, 0);
        for number in 1.. {
            assert!(number < CALLS_MAX, "there is no end");
            // Of each process, so many messages to the kernel are sent as they are, and the next one is refused.
            let mut command = Command::new("strace");
            command.args([
                "-f",
                "-qq",
                "-e",
                "trace=sendto",
                "-e",
                &format!("inject=sendto:error=EPERM:when={number}"),
            ]);
            command.arg("-o").arg(&log).arg(program()).env("BATON_RUN_DIR", machine.0.path());
            command.args("hold --to :80 --method plug --max 20s -- echo it was run".split(' '));
            let (code, told) = all(command.output().expect("strace is installed"));
            assert_eq!(rules(), before, "message {number}: {told}");
            match (code, told.contains("it was run")) {
                (Some(125), false) => refused += 1,
                (Some(0), true) => ran += 1,
                other => panic!("message {number}: {other:?} {told}"),
            }
            assert_eq!(machine.run("status").0, Some(0), "message {number}: {told}");
            if !fs::read_to_string(&log).expect("strace wrote it").contains("INJECTED") {
                break;
            }
        }
        assert!(refused > 1 && ran > 0, "{refused} refused, {ran} run");
        println!("{refused} refused, {ran} run");
    });
}

#[test]
fn the_experiment_holds_by_a_plug() {
    lab::inside(|| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let figures = folder.path().join("figures.json");
        let mut command = Command::new(program());
        command.args(["prove", "syn-plug", "--for", "5s", "--every", "1s", "--load", "-c 2 http://{{web}}/bytes/100"]);
        let mut child =
            command.arg("--json").arg(&figures).stdout(Stdio::piped()).spawn().expect("the program was built");
        let mut table = String::new();
        child.stdout.take().expect("it is piped").read_to_string(&mut table).expect("text");
        assert!(child.wait().expect("our child").success(), "{table}");
        let figures = fs::read_to_string(figures).expect("they were written");
        assert!(table.contains("syn-plug") && !table.contains("absent"), "{table}\n{figures}");
    });
}
