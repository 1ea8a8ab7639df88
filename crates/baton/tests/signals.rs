//! Signals that come as early as they can: before a process listens to them, they wait; none ends it by its default action.

mod support;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use support::{PATIENCE, free_address, program};

/// How often each signal is sent in each mode.
const ROUNDS: usize = 12;

fn config() -> String {
    format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         frontend web\n bind {}\n http-request return status 200\n",
        free_address()
    )
}

/// Whether the process would not do by default what this signal does: it makes it wait, ignores it, or listens to it.
fn is_ready_for(pid: i32, signal: Signal) -> bool {
    is_in(pid, signal, &["SigBlk", "SigIgn", "SigCgt"])
}

/// Whether a signal is in one of the process's sets.
fn is_in(pid: i32, signal: Signal, sets: &[&str]) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let (name, mask) = line.split_once(':')?;
        sets.contains(&name).then(|| u64::from_str_radix(mask.trim(), 16).ok()).flatten()
    });
    masks.fold(0, |all, mask| all | mask) & 1 << (signal as i32 - 1) != 0
}

/// Turns until it is so, without a pause: the moment counts.
#[track_caller]
fn at_once<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// A process that is killed when dropped.
struct Started(Child);

impl Started {
    fn new(folder: &Path, arguments: &[&str]) -> Started {
        Started::by(Command::new(program()), folder, arguments)
    }

    /// By another program. It is a group of processes of its own.
    fn by(mut command: Command, folder: &Path, arguments: &[&str]) -> Started {
        fs::write(folder.join("a.cfg"), config()).expect("the folder is ours");
        let said = fs::File::create(folder.join("said")).expect("the folder is ours");
        command.args(["-f", "a.cfg"]).args(arguments).current_dir(folder).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn();
        Started(child.expect("the program was built"))
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// The numbers of its children.
    fn children(&self) -> Vec<i32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        at_once("the end of the process", || {
            std::thread::sleep(Duration::from_millis(1));
            self.0.try_wait().expect("it is our child")
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let children = self.children();
        let _ = self.0.kill();
        for pid in children {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

fn send(pid: i32, signal: Signal) {
    // One that has ended is found out by its exit.
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Sends each signal early, then SIGUSR1 if it is another one: the process ends by its own decision.
fn early(arguments: &[&str]) {
    let rounds = |signal: Signal| {
        for round in 0..ROUNDS {
            let folder = tempfile::tempdir().expect("a folder for the test");
            let mut process = Started::new(folder.path(), arguments);
            let pid = process.pid();
            at_once("the process begins", || is_ready_for(pid, signal).then_some(()));
            send(pid, signal);
            if signal != Signal::SIGUSR1 {
                send(pid, Signal::SIGUSR1);
            }
            let status = process.ended();
            assert_eq!((status.signal(), status.code()), (None, Some(0)), "{signal} in round {round} of {arguments:?}");
        }
    };
    // A soft stop takes a second, mostly of waiting.
    std::thread::scope(|scope| {
        for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGHUP, Signal::SIGTTOU] {
            scope.spawn(move || rounds(signal));
        }
    });
}

#[test]
fn early_signals_wait_for_a_process_in_the_foreground() {
    early(&["-db"]);
}

#[test]
fn early_signals_wait_for_a_master() {
    early(&["-W", "-db"]);
}

/// Sends a signal that ends at once, at moments from the first on: the process ends by it or with `code`, and nothing that it
/// has started is left.
fn ended_early(arguments: &[&str], signal: Signal, code: Option<i32>) {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut process = Started::new(folder.path(), arguments);
        let pid = process.pid();
        let is_time = || match round % 3 {
            0 => is_ready_for(pid, Signal::SIGUSR1),
            1 => is_in(pid, Signal::SIGUSR1, &["SigCgt"]),
            // Threads, or a worker.
            _ => {
                !process.children().is_empty()
                    || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|all| all.count() > 1)
            }
        };
        at_once("the moment comes", || is_time().then_some(()));
        send(pid, signal);
        let status = process.ended();
        let is_right = status.signal() == Some(signal as i32) || status.code().is_some_and(|found| Some(found) == code);
        assert!(is_right, "{signal} in round {round} of {arguments:?}: {status}");
        let is_empty = || (killpg(Pid::from_raw(pid), None) == Err(Errno::ESRCH)).then_some(());
        at_once("nothing is left", is_empty);
    }
}

#[test]
fn what_ends_at_once_ends_a_process_that_has_just_begun() {
    std::thread::scope(|scope| {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            scope.spawn(move || ended_early(&["-db"], signal, None));
        }
    });
}

#[test]
fn what_ends_at_once_ends_a_master_that_has_just_begun_and_its_worker() {
    std::thread::scope(|scope| {
        scope.spawn(|| ended_early(&["-W", "-db"], Signal::SIGTERM, Some(0)));
        scope.spawn(|| ended_early(&["-W", "-db"], Signal::SIGINT, Some(130)));
    });
}

#[test]
fn what_ends_at_once_waits_for_the_first_process_of_a_container() {
    let may = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no right to a user namespace");
        return;
    }
    for (round, signal) in [Signal::SIGTERM, Signal::SIGINT].into_iter().cycle().take(ROUNDS / 2).enumerate() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]).arg(program());
        let mut process = Started::by(command, folder.path(), &["-db"]);
        let first = at_once("it begins", || process.children().first().copied());
        let is_begun = || fs::read_link(format!("/proc/{first}/exe")).is_ok_and(|path| path == program());
        // The kernel forgets what such a process neither holds back nor listens to.
        at_once("it is ready", || (is_begun() && is_ready_for(first, signal)).then_some(()));
        send(first, signal);
        let status = process.ended();
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal} in round {round}");
    }
}

#[test]
fn signals_wait_for_a_worker_that_has_just_begun() {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let master = Started::new(folder.path(), &["-W", "-db"]);
        let path = format!("/proc/{0}/task/{0}/children", master.pid());
        let children = || fs::read_to_string(&path).unwrap_or_default();
        let worker = at_once("a worker begins", || children().split_ascii_whitespace().next()?.parse::<i32>().ok());
        // Before exec as well as after: the master gives it the signals that wait.
        send(worker, Signal::SIGUSR1);
        let end = at_once("the end of the worker", || {
            std::thread::sleep(Duration::from_millis(1));
            let said = fs::read_to_string(folder.path().join("said")).unwrap_or_default();
            said.lines().find(|line| line.contains(&format!("({worker}) exited with code "))).map(str::to_owned)
        });
        assert!(end.contains("exited with code 0 "), "round {round}: {end}");
    }
}

#[test]
fn a_daemon_that_is_stopped_as_soon_as_it_has_a_number_has_served() {
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut parent = Started::new(folder.path(), &["-D", "-p", "x.pid"]);
        let file = folder.path().join("x.pid");
        let daemon =
            at_once("the pid file", || fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse::<i32>().ok());
        send(daemon, Signal::SIGUSR1);
        let status = parent.ended();
        assert_eq!((status.signal(), status.code()), (None, Some(0)), "round {round}");
    }
}
