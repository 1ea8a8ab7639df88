//! The processes of one run: commands by the shell, what they leave behind, and the end of all of them.
//!
//! Servers like to go into the background, where a process group or a parent's death does not reach them. So this process
//! takes in their orphans (`PR_SET_CHILD_SUBREAPER`): every process that a command ever started stays a descendant, can be
//! listed, and can be ended. A child belongs to the run when it is in another session than ours, or in a group that the run
//! made; other children of this process are left alone.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getsid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Where Debian keeps servers and network tools; a user's `PATH` often lacks it.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";
/// How much of what a command says is kept, in bytes.
const SAID_MAX: u64 = 4096;
/// How often processes are looked at while they end.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often those that are being killed are looked at, at most: a second.
const KILL_LOOKS_MAX: usize = 100;

/// The processes of one run. Dropping it kills what is left of them.
#[derive(Debug)]
pub(crate) struct Processes {
    directory: PathBuf,
    /// The groups that were made here, one for each command.
    groups: BTreeSet<i32>,
    /// Commands that stay: servers in the foreground.
    foreground: Vec<(Child, PathBuf)>,
    /// Names of files for what commands say.
    said: usize,
    /// Of two runs in one process, each would take the other's background processes for its own.
    _only: MutexGuard<'static, ()>,
}

/// Held by the run that is under way in this process.
static ONLY: Mutex<()> = Mutex::new(());

/// A command that has ended, or that was ended because it took too long.
#[derive(Debug)]
pub(crate) struct CommandResult {
    /// How long it took.
    pub(crate) took: Duration,
    /// Why it did not succeed, with the first line that it printed; `None` when it did.
    pub(crate) fault: Option<String>,
    /// What it printed, the beginning.
    pub(crate) said: String,
}

/// A process that is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) pid: i32,
    pub(crate) name: String,
    parent: i32,
    group: i32,
    session: i32,
    is_dead: bool,
}

impl Processes {
    /// Nothing yet; commands will run in this directory. Waits for the end of another run in this process.
    ///
    /// # Errors
    /// When the kernel does not let this process take in orphans.
    pub(crate) fn new(directory: &Path) -> io::Result<Processes> {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        nix::sys::prctl::set_child_subreaper(true)?;
        let directory = directory.to_owned();
        Ok(Processes { directory, groups: BTreeSet::new(), foreground: Vec::new(), said: 0, _only: only })
    }

    /// Runs a command to its end, `limit` at most.
    pub(crate) async fn run(&mut self, text: &str, limit: Duration) -> CommandResult {
        let began = Instant::now();
        let (mut child, said) = match self.spawn(text) {
            Ok(started) => started,
            Err(error) => {
                let fault = Some(format!("cannot be run: {error}"));
                return CommandResult { took: began.elapsed(), fault, said: String::new() };
            }
        };
        let group = child.id();
        let ended = timeout(limit, self.wait_for(&mut child)).await;
        if ended.is_err() {
            // The shell and whatever it waits for.
            self.signal_group(group, Signal::SIGKILL);
            let _ = child.wait().await;
        }
        let took = began.elapsed();
        self.reap();
        let said = beginning(&said);
        let words = telling_line(&said).to_owned();
        let fault = match ended {
            Ok(Ok(status)) if status.success() => None,
            Ok(Ok(status)) => Some(format!("{}: {words}", told(status))),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("took longer than {} s: {words}", limit.as_secs_f64())),
        };
        CommandResult { took, fault, said }
    }

    /// Waits for a command, and takes leave of its orphans meanwhile.
    async fn wait_for(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let mut children = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                biased;
                status = child.wait() => return status,
                _ = children.recv() => self.reap(),
            }
        }
    }

    /// Starts a command that stays.
    pub(crate) fn stay(&mut self, text: &str) -> io::Result<()> {
        let started = self.spawn(text)?;
        self.foreground.push(started);
        Ok(())
    }

    /// How a command that should stay has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.foreground.iter_mut().find_map(|(child, said)| {
            let status = child.try_wait().ok().flatten()?;
            Some(format!("{}: {}", told(status), telling_line(&beginning(said))))
        })
    }

    fn spawn(&mut self, text: &str) -> io::Result<(Child, PathBuf)> {
        // A background process would hold a pipe open for ever; a file it may keep.
        self.said += 1;
        let path = self.directory.join(format!("said-{}", self.said));
        let file = File::create(&path)?;
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(text)
            .current_dir(&self.directory)
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        self.groups.extend(child.id().map(|id| id as i32));
        Ok((child, path))
    }

    /// Takes leave of processes that have ended and have no other parent any more: who waits for the end of its daemon by
    /// `kill -0` would wait for ever.
    pub(crate) fn reap(&self) {
        for left in self.all().into_iter().filter(|left| left.is_dead) {
            self.bury(&left);
        }
    }

    fn bury(&self, dead: &Left) {
        // The shells themselves are waited for by who started them.
        if dead.parent == std::process::id() as i32 && !self.groups.contains(&dead.pid) {
            let _ = waitpid(Pid::from_raw(dead.pid), Some(WaitPidFlag::WNOHANG));
        }
    }

    /// The processes that are still there, the youngest last. Those that stay on purpose are among them.
    pub(crate) fn alive(&self) -> Vec<Left> {
        self.all().into_iter().filter(|left| !left.is_dead).collect()
    }

    /// Waits until no process is left, `limit` at most; gives those that are.
    pub(crate) async fn wait(&mut self, limit: Duration) -> Vec<Left> {
        let until = Instant::now() + limit;
        loop {
            self.reap();
            for (child, _) in &mut self.foreground {
                let _ = child.try_wait();
            }
            let alive = self.alive();
            if alive.is_empty() || Instant::now() > until {
                return alive;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Ends all of them in order, by SIGTERM; their time is up to [`Processes::wait`].
    pub(crate) fn terminate(&self) {
        for left in self.alive() {
            let _ = kill(Pid::from_raw(left.pid), Signal::SIGTERM);
        }
    }

    /// Ends all of them at once, and waits until they are gone.
    pub(crate) fn kill(&mut self) {
        for _ in 0..KILL_LOOKS_MAX {
            let all = self.all();
            // Those of the foreground are buried by their handles.
            for (child, _) in &mut self.foreground {
                let _ = child.try_wait();
            }
            if all.iter().all(|left| left.is_dead && self.groups.contains(&left.pid)) {
                return;
            }
            for left in all {
                match left.is_dead {
                    true => self.bury(&left),
                    false => drop(kill(Pid::from_raw(left.pid), Signal::SIGKILL)),
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends the process of this number in order, if it is one of the run.
    pub(crate) fn terminate_one(&self, pid: i32) {
        if self.alive().iter().any(|left| left.pid == pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    fn signal_group(&self, group: Option<u32>, signal: Signal) {
        if let Some(group) = group {
            let _ = nix::sys::signal::killpg(Pid::from_raw(group as i32), signal);
        }
    }

    /// Every descendant that belongs to the run, dead ones too.
    fn all(&self) -> Vec<Left> {
        let us = std::process::id() as i32;
        let our_session = getsid(None).map_or(0, Pid::as_raw);
        let all: HashMap<i32, Left> = listed().map(|left| (left.pid, left)).collect();
        let mut found: Vec<Left> = all
            .values()
            .filter(|left| left.session != our_session || self.groups.contains(&left.group))
            .filter(|left| {
                // From parent to parent; a chain is as long as processes are nested, and /proc may change while it is read.
                let mut at = *left;
                (0..all.len()).any(|_| match all.get(&at.parent) {
                    _ if at.parent == us => true,
                    Some(parent) => {
                        at = parent;
                        false
                    }
                    None => false,
                })
            })
            .cloned()
            .collect();
        found.sort_by_key(|left| left.pid);
        found
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where commands are looked for.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(SBIN);
    path
}

/// All processes there are.
fn listed() -> impl Iterator<Item = Left> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    })
}

/// Reads `/proc/PID/stat` (proc(5)): the name in brackets may contain anything.
fn parse(pid: i32, stat: &str) -> Option<Left> {
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Left {
        pid,
        name,
        parent: number()?,
        group: number()?,
        session: number()?,
        is_dead: matches!(state, "Z" | "X"),
    })
}

fn beginning(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(SAID_MAX).read_to_end(&mut bytes);
    }
    let _ = std::fs::remove_file(path);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Words by which programs mark the line that says what is wrong, haproxy's and nginx' first.
const MARKS: [&str; 4] = ["[ALERT]", "[emerg]", "rror", "annot"];

/// The line that says most: the first with a mark, else the first one.
fn telling_line(said: &str) -> &str {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked = lines().find(|line| MARKS.iter().any(|mark| line.contains(mark)));
    marked.or_else(|| lines().next()).unwrap_or("no output")
}

fn told(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn run<T>(test: impl AsyncFnOnce(Processes, &Path) -> T) -> T {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let processes = Processes::new(directory.path()).expect("orphans are taken in");
            test(processes, directory.path()).await
        })
    }

    #[test]
    fn a_command_says_how_it_ended() {
        run(async |mut processes, _| {
            assert_eq!(processes.run("true", LONG).await.fault, None);
            let fault = processes.run("echo; echo no such thing >&2; exit 3", LONG).await.fault;
            assert_eq!(fault.as_deref(), Some("exit status 3: no such thing"));
            let fault = processes.run("kill -9 $$", LONG).await.fault;
            assert_eq!(fault.as_deref(), Some("ended by signal 9: no output"));
            let fault = processes.run("sleep 1000", Duration::from_millis(50)).await.fault;
            assert_eq!(fault.as_deref(), Some("took longer than 0.05 s: no output"));
            assert_eq!(processes.alive(), []);
        });
    }

    /// A daemon is in a session of its own, and its parent is gone.
    const DAEMON: &str = "setsid sh -c 'echo $$ >pid; exec sleep 1000' & while ! [ -s pid ]; do sleep 0.01; done";

    #[test]
    fn what_went_into_the_background_is_found_and_ended() {
        run(async |mut processes, directory| {
            assert_eq!(processes.run(DAEMON, LONG).await.fault, None);
            let pid: i32 = std::fs::read_to_string(directory.join("pid")).expect("written").trim().parse().expect("it");
            let alive = processes.alive();
            assert!(alive.iter().any(|left| left.pid == pid && left.name == "sleep"), "{alive:?}");
            assert_eq!(processes.wait(Duration::ZERO).await.len(), alive.len());
            processes.terminate();
            assert_eq!(processes.wait(LONG).await, []);
        });
    }

    #[test]
    fn a_daemon_that_ended_can_be_waited_for_by_a_command() {
        run(async |mut processes, _| {
            assert_eq!(processes.run(DAEMON, LONG).await.fault, None);
            let stop = "p=$(cat pid); kill $p; while kill -0 $p 2>/dev/null; do sleep 0.01; done";
            assert_eq!(processes.run(stop, LONG).await.fault, None);
        });
    }

    #[test]
    fn nothing_outlives_the_run() {
        let pid = run(async |mut processes, directory| {
            processes.stay("trap '' TERM; sleep 1000; true").expect("it starts");
            assert_eq!(processes.run(DAEMON, LONG).await.fault, None);
            std::fs::read_to_string(directory.join("pid")).expect("it was written")
        });
        assert!(!Path::new("/proc").join(pid.trim()).exists());
    }

    #[test]
    fn a_name_may_have_anything_in_it() {
        let left = parse(7, "7 (a) b (c) S 1 2 3 0 -1").expect("it is one");
        assert_eq!((left.name.as_str(), left.parent, left.group, left.session), ("a) b (c", 1, 2, 3));
        assert!(!left.is_dead && parse(7, "7 (a) Z 1 2 3").is_some_and(|left| left.is_dead));
        assert_eq!(parse(7, ""), None);
    }
}
