//! The lab: a Linux of its own (Debian's `user-mode-linux`) for what the machine's kernel has not, or a test must not do to it.
//!
//! It boots in about two seconds with the machine's files as its root, so every program that is installed runs in it, and the
//! test program too: [`inside`] runs the test that calls it, [`run`] a shell script. In it one is root, no interface is up but
//! loopback, `/run`, `/dev/shm` and `$TMPDIR` are empty and vanish with it, the rest are the machine's own files, and modules
//! are loaded as the kernel or `modprobe` asks for them. There is one slow processor, and a clock of 100 ticks a second:
//! right for truth, wrong for speed.
//!
//! Its nftables knows bridges and no other family: of IPv4 and IPv6 it has `iptables-legacy` and `ip6tables-legacy`.
//!
//! It ends with the script, with its time ([`LONGEST`]), with a panic of the test, and with the test program, however that ends:
//! it is a PID namespace. Nothing stays in the machine's files but what the script wrote there.
//! It needs no root where user namespaces are allowed. What it does not do: a network to the machine.
//!
//! This file uses no other of its folder, so that tests of other crates may include it by its path.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The longest that a lab may take, from its start to its end. Far more than any test in it takes.
pub const LONGEST: Duration = Duration::from_secs(180);

/// How long a lab may take to power off after its script. The kernel of Debian's package sometimes hangs after `Power down`.
const POWER_OFF_MAX: Duration = Duration::from_secs(5);

/// How much memory a lab has. The machine gives only what is used of it.
const MEMORY: &str = "384M";

/// This variable tells a test program that it runs in the lab.
const INSIDE: &str = "BATON_LAB";

/// Variables of the environment that begin so are the lab's too: the tests' own sizes and switches.
const PASSED_ON: &str = "BATON_";

/// Where Debian's package has the kernel's modules, in a folder with the kernel's version as name.
const MODULES: &str = "/usr/lib/uml/modules";

/// Programs by the packages that have them.
const NEEDED: [(&str, &str); 6] = [
    ("linux.uml", "user-mode-linux"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("cc", "gcc"),
];

/// Kernel messages and the script's output come by the same console: the script's begins after this line ...
const BEGINS: &str = "the lab begins";
/// ... and ends with this line, after which its exit status stands.
const ENDS: &str = "the lab ends with ";

/// What a script did in the lab.
#[derive(Debug)]
pub struct Finished {
    /// Its standard output and standard error.
    pub output: String,
    /// Its exit status.
    pub status: i32,
}

/// Runs this test inside the lab. What it panics with there, it panics with here.
///
/// To be called by a `#[test]` and to be all that it does: the test program runs in the lab again, with this test alone.
#[track_caller]
pub fn inside(test: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").expect("a test runs in a thread with its name");
    let program = env::current_exe().expect("the kernel knows which program this is");
    let script = format!("exec {} --exact {} --nocapture --test-threads=1\n", quoted(&program), quoted(name));
    let Some(finished) = run(&script) else { return };
    let passed = finished.status == 0 && finished.output.contains("test result: ok. 1 passed");
    assert!(passed, "in the lab, with status {}:\n{}", finished.status, finished.output);
    print!("{}", finished.output);
}

/// Runs a shell script in the lab and waits for its end. `None`, and it is said aloud, if there is no lab on this machine.
#[track_caller]
pub fn run(script: &str) -> Option<Finished> {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder for the lab");
    prepare(&folder, script);
    let console = Running::start(&folder).console();
    let finished = finished(&console);
    Some(finished.unwrap_or_else(|| panic!("the lab did not come to the end of the script:\n{console}")))
}

/// What the script did, once the console has shown its exit status.
fn finished(console: &str) -> Option<Finished> {
    let (_, script) = console.split_once(BEGINS)?;
    let (output, rest) = script.rsplit_once(ENDS)?;
    let (status, _) = rest.split_once('\n')?;
    Some(Finished { output: output.trim_start_matches('\n').to_owned(), status: status.trim().parse().ok()? })
}

/// Why there is no lab on this machine.
fn missing() -> Option<String> {
    let places = search_path();
    let is_there = |program: &str| env::split_paths(&places).any(|place| place.join(program).exists());
    if let Some((program, package)) = NEEDED.iter().find(|(program, _)| !is_there(program)) {
        return Some(format!("no User-mode Linux here, it needs {program} (package {package})"));
    }
    let namespace = Command::new("unshare").args(namespace()).arg("true").env("PATH", &places).output();
    match namespace {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(format!("no User-mode Linux here: {}", String::from_utf8_lossy(&tried.stderr).trim())),
        Err(error) => Some(format!("no User-mode Linux here: unshare: {error}")),
    }
}

/// Users' shells often lack the folders of administrators' programs.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// With the namespace ends everything in it. Others than root need a user namespace to have one.
fn namespace() -> &'static [&'static str] {
    match nix::unistd::geteuid().is_root() {
        true => &["--pid", "--fork", "--kill-child"],
        false => &["--map-root-user", "--pid", "--fork", "--kill-child"],
    }
}

/// Puts into the folder what the kernel needs: its first program, the script, and an index of its modules.
#[track_caller]
fn prepare(folder: &TempDir, script: &str) {
    let at = |name: &str| folder.path().join(name);
    let executable = |name: &str, text: &str| {
        fs::write(at(name), text).expect("the folder is ours");
        fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).expect("the folder is ours");
    };
    let passed_on: String = env::vars()
        .filter(|(name, _)| name.starts_with(PASSED_ON) || name == "RUST_BACKTRACE")
        .map(|(name, value)| format!("export {name}={}\n", quoted(&value)))
        .collect();
    let first = include_str!("init.sh").replace("{{begins}}", BEGINS).replace("{{ends}}", ENDS);
    executable("init", &first.replace("{{folder}}", &quoted(folder.path())));
    executable("script", &format!("#!/bin/sh\nexport {INSIDE}=1\n{passed_on}{script}"));

    let version = said_by(Command::new("linux.uml").arg("--version"));
    let modules = at("lib/modules").join(&version);
    fs::create_dir_all(&modules).expect("the folder is ours");
    symlink(Path::new(MODULES).join(&version).join("kernel"), modules.join("kernel")).expect("the folder is ours");
    said_by(Command::new("depmod").arg("-b").arg(folder.path()).arg(&version));

    let source = at("registers.c");
    fs::write(&source, include_str!("registers.c")).expect("the folder is ours");
    said_by(Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(at("registers.so")).arg(&source));
}

/// Runs a program that has to succeed; gives what it says.
#[track_caller]
fn said_by(command: &mut Command) -> String {
    let done = command.env("PATH", search_path()).output();
    let done = done.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// For a shell.
fn quoted(text: impl AsRef<std::ffi::OsStr>) -> String {
    let text = text.as_ref().to_str().expect("what a test names is text");
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A lab at work; it ends when dropped.
struct Running {
    /// Not the kernel itself but `unshare`, with which the kernel ends.
    process: Child,
}

impl Running {
    #[track_caller]
    fn start(folder: &TempDir) -> Running {
        let folder: PathBuf = folder.path().to_owned();
        let init = format!("init={}", folder.join("init").display());
        let own = format!("uml_dir={}", folder.join("uml").display());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare"]).args(namespace()).arg("linux.uml");
        command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "umid=lab", &own, &init]);
        command.args([&format!("mem={MEMORY}"), "con=null", "con0=null,fd:1"]);
        command.env("PATH", search_path()).env("LD_PRELOAD", folder.join("registers.so"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Running { process: command.spawn().expect("setpriv is there, as was seen") }
    }

    /// All that comes from its console until it has powered off, or should have.
    #[track_caller]
    fn console(mut self) -> String {
        let mut console = self.process.stdout.take().expect("it is piped");
        let (sender, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = console.read(&mut piece) {
                let Ok(()) = sender.send(piece[..length].to_vec()) else { return };
            }
        });
        let mut end = Instant::now() + LONGEST;
        let mut has_finished = false;
        let mut shown = Vec::new();
        loop {
            match pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(piece) => shown.extend(piece),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if has_finished => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the lab took longer than {LONGEST:?}:\n{}", String::from_utf8_lossy(&shown))
                }
            }
            if !has_finished && finished(&String::from_utf8_lossy(&shown)).is_some() {
                has_finished = true;
                end = Instant::now() + POWER_OFF_MAX;
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
