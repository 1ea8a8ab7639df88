//! The program is replaced under load: worker and master become what is on disk, with the same process id and the same
//! sockets; a program that does not get ready changes nothing.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Outcome, Reply, Request};
use baton_prove::load::LoadHandle;
use baton_prove::{Load, LoadOptions, Origin, OriginHandle, OriginOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Proxy, free_address, frontend_counter, until};
use tempfile::TempDir;

/// Upgrades of the test under load.
const UPGRADES: u32 = 5;

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("o1")).expect("loopback has a free port")
}

fn config(web: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "global\n nbthread 2\n maxconn 500\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\nfrontend web\n bind {web}\n default_backend app\nbackend app\n server s1 {origin}\n"
    )
}

/// A copy of the program that can be replaced, and a master that runs it.
struct Replaceable {
    proxy: Proxy,
    program: PathBuf,
    _folder: TempDir,
}

impl Replaceable {
    fn start(text: &str) -> Replaceable {
        Replaceable::start_with(&[], text)
    }

    fn start_with(wrapper: &[&str], text: &str) -> Replaceable {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let program = folder.path().join("baton");
        std::fs::copy(support::program(), &program).expect("there is room for a copy");
        // The first argument names the program itself, in whose place the copy is run.
        let script = format!("shift; exec {} \"$@\"", program.display());
        let wrapper = [wrapper, &["sh", "-c", &script, "sh"]].concat();
        let proxy = Proxy::start_under(&wrapper, text, &["-W"]);
        Replaceable { proxy, program, _folder: folder }
    }

    /// Puts another file in the program's place, at once as a package manager does.
    fn replace(&self, by: &Path) {
        let aside = self.program.with_extension("new");
        std::fs::copy(by, &aside).expect("there is room for a copy");
        std::fs::rename(&aside, &self.program).expect("the folder is ours");
    }

    fn ask(&self, request: Request) -> Outcome {
        match ask(Whom::Pid(self.proxy.pid()), request) {
            Ok(Reply::Reload(outcome)) => outcome,
            other => panic!("{other:?}\n{}", self.proxy.said()),
        }
    }

    /// Waits until the master runs the file that is on disk, and the worker too.
    #[track_caller]
    fn until_replaced(&self) {
        let inode = |path: &Path| std::fs::metadata(path).map(|found| found.ino()).ok();
        let wanted = inode(&self.program);
        let runs = |pid: u32| inode(Path::new(&format!("/proc/{pid}/exe"))) == wanted;
        until("the master is the new program", || runs(self.proxy.pid()));
        // Asked through the master: it goes on answering.
        until("the worker is the new program", || runs(self.proxy.status().pid));
    }
}

/// The program with another version in it: a copy in which the same number of letters says something else.
fn other_version(path: &Path) -> String {
    let ours = env!("CARGO_PKG_VERSION").as_bytes();
    let mut theirs = ours.to_vec();
    let last = theirs.last_mut().expect("a version has letters");
    *last = if *last == b'9' { b'8' } else { b'9' };
    let mut program = std::fs::read(support::program()).expect("it was built");
    // Names of crates may have the same number in them: they are never looked at.
    let found: Vec<usize> = memchr::memmem::find_iter(&program, ours).collect();
    found.into_iter().for_each(|at| program[at..at + ours.len()].copy_from_slice(&theirs));
    std::fs::write(path, program).expect("there is room for a copy");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let theirs = String::from_utf8(theirs).expect("digits and letters");
    let said = Command::new(path).arg("-v").output().expect("it is a program").stdout;
    assert!(String::from_utf8_lossy(&said).contains(&theirs), "{}", String::from_utf8_lossy(&said));
    theirs
}

fn load(target: SocketAddr, keep_alive: bool) -> LoadHandle {
    let options = LoadOptions { keep_alive, concurrency: 8, threads: 1, rate: Some(200.0), ..LoadOptions::new(target) };
    Load::start(options).expect("the options are right")
}

fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn upgrades_are_not_felt() {
    let origin = origin();
    let web = free_address();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let socket = folder.path().join("baton.sock");
    let stats = format!("global\n stats socket {} level admin\n", socket.display());
    let running = Replaceable::start(&config(web, origin.address()).replace("global\n", &stats));
    let loads = [load(web, false), load(web, true)];
    let mut open = 0;
    let mut stream = UnixStream::connect(&socket).expect("it is listened on");
    stream.write_all(b"set weight app/s1 7\n").expect("it reads");
    stream.read_to_end(&mut Vec::new()).expect("it replies");
    let overrides = running.proxy.status().overrides;
    assert_eq!(overrides[0].to_string(), "server app/s1 weight 7 (file: 1)");
    // Another version, back to this one, and so on.
    let other = folder.path().join("other");
    let theirs = other_version(&other);
    for number in 0..UPGRADES {
        let (program, version) = match number % 2 {
            0 => (other.as_path(), theirs.as_str()),
            _ => (support::program(), env!("CARGO_PKG_VERSION")),
        };
        running.replace(program);
        // A reload finds the new file by itself; an upgrade does not look.
        let request = if number % 2 == 0 { Request::Reload } else { Request::Upgrade };
        let outcome = running.ask(request);
        assert!(outcome.accepted, "{:?}", outcome.messages);
        running.until_replaced();
        let status = running.proxy.status();
        assert_eq!((status.version.as_str(), &status.overrides), (version, &overrides));
        if number == 0 {
            until("the first worker has left", || children(running.proxy.pid()).len() == 1);
            open = descriptors(running.proxy.pid());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let mut completed = 0;
    for (what, load) in ["a connection for each request", "keep-alive"].into_iter().zip(loads) {
        let result = load.stop().await;
        assert_eq!(result.counts.failed(), 0, "{what}: {:?} {:?}", result.failures, result.errors);
        assert!(result.counts.completed > 200, "{what}: only {} requests", result.counts.completed);
        completed += result.counts.completed;
    }
    until("the workers before have left", || children(running.proxy.pid()).len() == 1);
    until("every request was counted once", || {
        frontend_counter(&running.proxy.status(), "web", "req_tot") == completed
    });
    until("no descriptor is left over", || descriptors(running.proxy.pid()) <= open);

    // The new master does all that the first one did.
    let pid = running.proxy.status().pid;
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    until("another worker serves", || {
        let reply = ask(Whom::Pid(running.proxy.pid()), Request::Status);
        matches!(reply, Ok(Reply::Status(status)) if status.pid != pid)
    });
    assert_eq!(running.proxy.status().overrides, overrides);
    running.proxy.signal(Signal::SIGTERM);
    let Replaceable { proxy, _folder, .. } = running;
    assert_eq!(proxy.wait().0.code(), Some(0));
}

#[test]
fn a_program_that_does_not_get_ready_changes_nothing() {
    let origin = origin();
    let web = free_address();
    let running = Replaceable::start(&config(web, origin.address()));
    let before = running.proxy.status().pid;
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let no_program = folder.path().join("no program");
    std::fs::write(&no_program, "text").unwrap();
    for file in [&broken, &no_program] {
        running.replace(file);
        assert!(!running.ask(Request::Reload).accepted);
        let outcome = running.ask(Request::Upgrade);
        let said = outcome.messages.iter().map(|message| &*message.rendered).collect::<String>();
        assert!(!outcome.accepted && said.contains("the new program ended with exit code"), "{said}");
        assert!(!said.contains("Loading success"), "what an earlier worker said is no reason: {said}");
    }
    // A configuration that is wrong is no fault of the program.
    running.replace(support::program());
    let text = config(web, origin.address());
    running.proxy.write(&text.replace("timeout connect", "timeout conect"));
    let outcome = running.ask(Request::Upgrade);
    let last = outcome.messages.last().map(|message| message.message.clone()).unwrap_or_default();
    let place = format!("[{}:", running.proxy.config.display());
    assert!(!outcome.accepted && last.contains(&place) && last.contains("conect"), "{last}");
    running.proxy.write(&text);
    running.replace(&broken);
    let mut stream = TcpStream::connect(web).unwrap();
    let mut answer = String::new();
    write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!((running.proxy.status().pid, children(running.proxy.pid()).len()), (before, 1));
    // A crash does not need the file on disk.
    kill(Pid::from_raw(before as i32), Signal::SIGKILL).unwrap();
    until("another worker serves", || {
        let reply = ask(Whom::Pid(running.proxy.pid()), Request::Status);
        matches!(reply, Ok(Reply::Status(status)) if status.pid != before)
    });
    running.replace(support::program());
    assert!(running.ask(Request::Reload).accepted);
    running.until_replaced();
}

#[tokio::test]
async fn a_program_that_hangs_before_it_is_ready_is_given_up_in_time() {
    let origin = origin();
    let web = free_address();
    // Long enough for a real one on a busy machine.
    let running = Replaceable::start_with(&["env", "BATON_READY_WITHIN=4s"], &config(web, origin.address()));
    let before = running.proxy.status().pid;
    let loads = [load(web, false), load(web, true)];
    let folder = tempfile::tempdir().unwrap();
    let hanging = folder.path().join("hanging");
    std::fs::write(&hanging, "#!/bin/sh\nkill -STOP $$\n").unwrap();
    std::fs::set_permissions(&hanging, std::fs::Permissions::from_mode(0o755)).unwrap();
    running.replace(&hanging);
    let pid = running.proxy.pid();
    let outcome = tokio::task::spawn_blocking(move || ask(Whom::Pid(pid), Request::Reload));
    let is_stopped = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    until("the new one hangs", || children(pid).iter().any(is_stopped));
    assert_eq!(running.proxy.status().pid, before, "the one before serves and answers meanwhile");
    match outcome.await {
        Ok(Ok(Reply::Reload(outcome))) => assert!(!outcome.accepted, "{:?}", outcome.messages),
        other => panic!("{other:?}"),
    }
    for word in ["was not ready in time, killing it", "keeps serving"] {
        until("it says so", || running.proxy.said().contains(word));
    }
    assert_eq!(children(pid), [before], "it is gone");
    for load in loads {
        let result = load.stop().await;
        assert_eq!(result.counts.failed(), 0, "{:?} {:?}", result.failures, result.errors);
        assert!(result.counts.completed > 100, "only {} requests", result.counts.completed);
    }
    running.replace(support::program());
    assert!(running.ask(Request::Reload).accepted);
    running.until_replaced();
}

#[test]
fn a_process_without_a_master_says_how_it_is_replaced() {
    let origin = origin();
    let proxy = Proxy::start(&config(free_address(), origin.address()));
    match ask(Whom::Pid(proxy.pid()), Request::Upgrade) {
        Ok(Reply::Failed { reason }) => assert!(reason.contains("-sf"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_master_can_be_taken_over_from() {
    let origin = origin();
    let web = free_address();
    let text = config(web, origin.address());
    let first = Proxy::start_with(&text, &["-W"]);
    let load = load(web, false);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let pid = first.pid().to_string();
    let second = Proxy::start_with(&text, &["-W", "-sf", &pid]);
    assert_eq!(first.wait().0.code(), Some(0), "the master ends with its worker");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let third = Proxy::start_with(&text, &["-sf", &second.pid().to_string()]);
    assert_eq!(second.wait().0.code(), Some(0));
    let result = load.stop().await;
    assert_eq!(result.counts.failed(), 0, "{:?} {:?}", result.failures, result.errors);
    assert!(result.counts.completed > 100);
    drop(third);
}
