//! The processes of a product: how one replaces another, how long the old ones stay, and what all of them take.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::Failed;
use super::products::{Files, Product};

/// How long a process may take until it serves.
const START_MAX: Duration = Duration::from_secs(30);
/// A product that has not replaced its processes by then does not do it.
const REPLACED_MAX: Duration = Duration::from_secs(5);
/// How often processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Old processes of Baton's that are there for longer are asked why: so many of them.
const LATE: Duration = Duration::from_secs(5);
const LATE_ASKED_MAX: usize = 20;
/// Where what they say is written.
const STATUS: &str = "status.json";
/// How often memory is looked at.
const MEMORY_EVERY: Duration = Duration::from_secs(1);

/// A process that was seen.
#[derive(Default)]
struct Seen {
    /// When another process was asked to replace it.
    replaced: Option<Instant>,
    /// It was asked why it is still there.
    asked: bool,
}

/// An old process is asked why it is still there.
struct Asking {
    pid: i32,
    /// How long it had been there.
    seconds: f64,
    command: Child,
}

/// All processes of a product; killed when this is dropped.
pub struct Processes {
    product: Product,
    /// In turn, from one replacement to the next.
    programs: Vec<String>,
    files: Files,
    /// How many times a process was started or told to replace itself.
    count: usize,
    seen: BTreeMap<i32, Seen>,
    /// The command that runs.
    command: Option<Child>,
    asking: Option<Asking>,
    /// What old processes have said that stayed for long.
    late: Vec<Value>,
    /// How long it took from each command until a process served, in seconds.
    took: Vec<f64>,
    /// How long replaced processes stayed, in seconds.
    stayed: Vec<f64>,
    /// Processes that ended with an error, in words.
    bad: Vec<String>,
    most: usize,
    memory_most_kib: u64,
    memory_looked: Instant,
}

impl Processes {
    pub fn new(product: Product, programs: Vec<String>, files: Files) -> Result<Processes, Failed> {
        // Daemons become our children when who started them ends: how they end is to be seen.
        prctl::set_child_subreaper(true)?;
        Ok(Processes {
            product,
            programs,
            files,
            count: 0,
            seen: BTreeMap::new(),
            command: None,
            asking: None,
            late: Vec::new(),
            took: Vec::new(),
            stayed: Vec::new(),
            bad: Vec::new(),
            most: 0,
            memory_most_kib: 0,
            memory_looked: Instant::now(),
        })
    }

    fn program(&self) -> String {
        self.programs[self.count % self.programs.len()].clone()
    }

    /// Starts the first process, and waits until it serves.
    pub fn start(&mut self) -> Result<(), Failed> {
        match self.product {
            Product::Baton | Product::Haproxy => self.run_daemon(None)?,
            Product::NginxReload | Product::NginxBinary => {
                let mut command = Command::new(self.program());
                command.arg("-p").arg(&self.files.folder).arg("-c").arg(&self.files.config);
                self.run(command)?;
                self.until("nginx serves", START_MAX, |me| {
                    Ok(me.master().is_some_and(|pid| !children(pid).is_empty()))
                })?;
            }
            Product::Envoy => self.run_epoch()?,
        }
        self.count += 1;
        self.look();
        Ok(())
    }

    /// Replaces the processes that serve; `false` if the product refuses to.
    pub fn replace(&mut self) -> Result<bool, Failed> {
        self.look();
        let began = Instant::now();
        let permanent = (self.product == Product::NginxReload).then(|| self.master()).flatten();
        let is_old = |pid: &i32, seen: &Seen| seen.replaced.is_none() && Some(Pid::from_raw(*pid)) != permanent;
        let old: Vec<i32> = self.seen.iter().filter(|(pid, seen)| is_old(pid, seen)).map(|(pid, _)| *pid).collect();
        let is_replaced = match self.product {
            Product::Baton | Product::Haproxy => {
                let serving = self.master().ok_or("no pid file")?;
                self.run_daemon(Some(serving))?;
                true
            }
            Product::NginxReload => self.reload_nginx()?,
            Product::NginxBinary => self.replace_nginx()?,
            Product::Envoy => {
                self.run_epoch()?;
                true
            }
        };
        if is_replaced {
            self.count += 1;
            self.took.push(began.elapsed().as_secs_f64());
            for pid in old {
                match self.seen.get_mut(&pid) {
                    Some(seen) => seen.replaced = Some(began),
                    // It ended before the command did.
                    None => self.stayed.push(began.elapsed().as_secs_f64()),
                }
            }
        }
        self.look();
        Ok(is_replaced)
    }

    /// A process of Baton's that only validates the configuration.
    pub fn check(&mut self) -> Result<(), Failed> {
        let began = Instant::now();
        let mut command = Command::new(self.program());
        command.arg("-c").arg("-f").arg(&self.files.config);
        self.run(command)?;
        self.took.push(began.elapsed().as_secs_f64());
        Ok(())
    }

    /// The first process in the pid file.
    fn master(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.files.pid()).ok()?;
        text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }

    /// A command that ends when its daemon serves.
    fn run_daemon(&mut self, serving: Option<Pid>) -> Result<(), Failed> {
        let mut command = Command::new(self.program());
        command.arg("-D").arg("-f").arg(&self.files.config).arg("-p").arg(self.files.pid());
        command.env("BATON_RUN_DIR", &self.files.folder);
        if let Some(pid) = serving {
            if self.product == Product::Haproxy {
                command.arg("-x").arg(self.files.stats_socket());
            }
            command.arg("-sf").arg(pid.to_string());
        }
        self.run(command)
    }

    fn run(&mut self, mut command: Command) -> Result<(), Failed> {
        let log = self.log("command")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        self.command = Some(command.spawn().map_err(|error| format!("{program}: {error}"))?);
        let end = Instant::now() + START_MAX;
        loop {
            self.look();
            let status = self.command.as_mut().map_or(Ok(None), Child::try_wait)?;
            match status {
                Some(status) => {
                    self.command = None;
                    if status.success() {
                        return Ok(());
                    }
                    return Err(format!("{program} ended with {status}: {}", self.said("command")).into());
                }
                None if Instant::now() > end => return Err(format!("{program} does not serve").into()),
                None => sleep(LOOK_EVERY),
            }
        }
    }

    fn log(&self, name: &str) -> Result<File, Failed> {
        Ok(File::options().create(true).append(true).open(self.files.folder.join(format!("{name}.log")))?)
    }

    /// The end of what was logged.
    fn said(&self, name: &str) -> String {
        let text = fs::read_to_string(self.files.folder.join(format!("{name}.log"))).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits for something, and looks at the processes meanwhile.
    fn until(
        &mut self,
        what: &str,
        most: Duration,
        done: impl Fn(&Processes) -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        let end = Instant::now() + most;
        while !done(self)? {
            if Instant::now() > end {
                return Err(format!("{what}: not within {} s", most.as_secs()).into());
            }
            self.look();
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// New workers beside the old ones.
    fn reload_nginx(&mut self) -> Result<bool, Failed> {
        let master = self.master().ok_or("no pid file")?;
        let before = children(master);
        kill(master, Signal::SIGHUP)?;
        self.until("nginx has new workers", START_MAX, |_| {
            Ok(children(master).iter().any(|pid| !before.contains(pid)))
        })?;
        Ok(true)
    }

    /// A new master beside the old one, which ends then. While the master before that one lives, nginx ignores it.
    fn replace_nginx(&mut self) -> Result<bool, Failed> {
        let master = self.master().ok_or("no pid file")?;
        kill(master, Signal::SIGUSR2)?;
        let has_workers =
            |me: &Processes| Ok(me.master().is_some_and(|pid| pid != master && !children(pid).is_empty()));
        if self.until("nginx has a new master", REPLACED_MAX, has_workers).is_err() {
            return Ok(false);
        }
        kill(master, Signal::SIGQUIT)?;
        Ok(true)
    }

    /// Envoy's next epoch.
    fn run_epoch(&mut self) -> Result<(), Failed> {
        let name = format!("epoch{}", self.count);
        let log = self.log(&name)?;
        let mut command = Command::new(self.program());
        command.arg("-c").arg(&self.files.config).args(["--concurrency", "1", "--base-id"]);
        command.arg((std::process::id() % 10_000).to_string());
        command.args(["--restart-epoch", &self.count.to_string(), "--drain-time-s", "5"]);
        command.args(["--parent-shutdown-time-s", "10"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| format!("envoy: {error}"))?;
        let pid = Pid::from_raw(child.id().try_into()?);
        self.until("Envoy serves", START_MAX, |me| {
            if kill(pid, None).is_err() {
                return Err(format!("Envoy ended: {}", me.said(&name)).into());
            }
            let log = fs::read_to_string(me.files.folder.join(format!("{name}.log")))?;
            Ok(log.contains("starting main dispatch loop"))
        })
    }

    /// Notes which processes there are, and which have ended.
    pub fn look(&mut self) {
        let asking = self.asking.as_ref().map(|asking| &asking.command);
        let commands: Vec<i32> = self.command.iter().chain(asking).map(|child| child.id() as i32).collect();
        let found: Vec<i32> =
            family(std::process::id() as i32).into_iter().filter(|pid| !commands.contains(pid)).collect();
        let mut ended = Vec::new();
        for pid in self.seen.keys().copied().filter(|pid| !found.contains(pid)) {
            ended.push(pid);
        }
        for &pid in &found {
            match waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, 0)) => ended.push(pid),
                // Some child of a process of the product.
                Ok(WaitStatus::StillAlive) | Err(_) if !is_zombie(pid) => {
                    self.seen.entry(pid).or_default();
                }
                Ok(WaitStatus::StillAlive) | Err(_) => ended.push(pid),
                Ok(status) => {
                    self.bad.push(format!("process {pid}: {status:?}"));
                    ended.push(pid);
                }
            }
        }
        for pid in ended {
            if let Some(Seen { replaced: Some(replaced), .. }) = self.seen.remove(&pid) {
                self.stayed.push(replaced.elapsed().as_secs_f64());
            }
        }
        self.most = self.most.max(self.seen.len());
        self.ask_late();
        if self.memory_looked.elapsed() >= MEMORY_EVERY {
            self.memory_looked = Instant::now();
            self.memory_most_kib = self.memory_most_kib.max(self.memory_kib());
        }
    }

    /// Memory of all of them, pages that several share counted once.
    fn memory_kib(&self) -> u64 {
        let pss = |pid: &i32| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.seen.keys().filter_map(pss).sum()
    }

    /// Processes and memory now.
    pub fn now(&mut self) -> Value {
        self.look();
        json!({"processes": self.seen.len(), "memory_kib": self.memory_kib()})
    }

    /// Looks at the processes for so long, or until none is left that was replaced.
    pub fn watch(&mut self, time: Duration, until_alone: bool) {
        let end = Instant::now() + time;
        while Instant::now() < end && !(until_alone && self.seen.values().all(|seen| seen.replaced.is_none())) {
            self.look();
            sleep(LOOK_EVERY);
        }
    }

    /// How long the old ones stayed; those that are left count with their time so far.
    pub fn summary(&mut self) -> Value {
        self.look();
        let left: Vec<f64> = self
            .seen
            .values()
            .filter_map(|seen| seen.replaced)
            .map(|replaced| replaced.elapsed().as_secs_f64())
            .collect();
        let all = [&*self.stayed, &*left].concat();
        json!({
            "most": self.most, "memory_most_kib": self.memory_most_kib.max(self.memory_kib()), "ended": self.stayed.len(),
            "left": left.len(), "late": self.late, "old_seconds": shares(all),
            "command_seconds": shares(self.took.clone()), "ended_badly": self.bad,
        })
    }
}

impl Processes {
    /// Asks Baton's old processes that are there for long why they are: one at a time, and nobody waits for it.
    fn ask_late(&mut self) {
        if let Some(Asking { pid, seconds, mut command }) = self.asking.take() {
            if matches!(command.try_wait(), Ok(None)) {
                self.asking = Some(Asking { pid, seconds, command });
            } else {
                let said = fs::read_to_string(self.files.folder.join(STATUS)).unwrap_or_default();
                self.late.push(late(pid, seconds, &said));
            }
            return;
        }
        if self.product != Product::Baton || self.late.len() >= LATE_ASKED_MAX {
            return;
        }
        let is_late = |seen: &Seen| !seen.asked && seen.replaced.is_some_and(|replaced| replaced.elapsed() > LATE);
        let Some((&pid, seen)) = self.seen.iter_mut().find(|(_, seen)| is_late(seen)) else { return };
        seen.asked = true;
        let seconds = seen.replaced.map_or(0.0, |replaced| replaced.elapsed().as_secs_f64());
        let Ok(said) = File::create(self.files.folder.join(STATUS)) else { return };
        let mut command = Command::new(&self.programs[0]);
        command.args(["status", "--json", "--pid", &pid.to_string()]).env("BATON_RUN_DIR", &self.files.folder);
        let command = command.stdin(Stdio::null()).stdout(said).stderr(Stdio::null()).spawn();
        self.asking = command.ok().map(|command| Asking { pid, seconds, command });
    }
}

/// Median, 99th percentile and maximum.
fn shares(mut all: Vec<f64>) -> Value {
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get(((all.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    json!({"p50": at(0.5), "p99": at(0.99), "max": at(1.0)})
}

/// What a process says of itself that has been replaced so many seconds ago.
fn late(pid: i32, seconds: f64, said: &str) -> Value {
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    let in_use = |name: &str| {
        let all = said[name].as_array().into_iter().flatten();
        all.filter(|one| one["open"].as_i64() != Some(0)).cloned().collect::<Vec<Value>>()
    };
    json!({
        "pid": pid, "seconds": seconds, "connections": said["connections"], "staying": said["connections_staying"],
        "frontends": in_use("frontends"), "backends": in_use("backends"),
    })
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Masters first, which would start others.
        for _ in 0..3 {
            for pid in family(std::process::id() as i32) {
                let pid = Pid::from_raw(pid);
                // Gone already is as good.
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            }
            sleep(LOOK_EVERY);
        }
    }
}

fn is_zombie(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Children of all threads of a process.
fn children(pid: Pid) -> Vec<i32> {
    let tasks = fs::read_dir(PathBuf::from(format!("/proc/{pid}/task"))).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// All that descend from a process.
fn family(pid: i32) -> Vec<i32> {
    let mut all = children(Pid::from_raw(pid));
    let mut at = 0;
    while at < all.len() {
        all.extend(children(Pid::from_raw(all[at])));
        at += 1;
    }
    all
}
