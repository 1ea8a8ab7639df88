//! What changes a whole process: forking, giving up rights, the limit of open files. Runs without the test
//! harness, whose threads forbid forking; each scenario runs in a child that is judged by its exit code.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use baton_kernel::inherit::{self, ReceiveError};
use baton_kernel::notify::InotifyQueue;
use baton_kernel::process::capabilities;
use baton_kernel::process::daemon::{Daemonized, Nowhere, daemonize};
use baton_kernel::process::over_exec;
use baton_kernel::process::privileges::{Credentials, change_root, drop_to};
use baton_kernel::process::{self, forbid_new_rights, ignore_sigpipe, procfs, usage};
use baton_kernel::retire::Retiring;
use baton_kernel::{Endpoint, ListenOptions, ListenerGroup, listen};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Exit code of a scenario that went as it should, chosen so that nothing else gives it.
const AS_IT_SHOULD: i32 = 42;

fn main() {
    if let Some(number) = std::env::var("TAKE").ok().and_then(|number| number.parse().ok()) {
        std::process::exit(taken_once(number));
    }
    check("a child that exits early", 7, || 7);
    check("a child that exits with 0 before it is ready", 1, || 0);
    check("a child that is killed", 128 + 9, || {
        let _ = nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL);
        0
    });
    check("a session of its own", AS_IT_SHOULD, || {
        let own = nix::unistd::getsid(None).unwrap();
        if own == nix::unistd::getpid() { AS_IT_SHOULD } else { 0 }
    });
    check("what is given up leaves no descriptor", AS_IT_SHOULD, no_leaks);
    check("lost descriptors are noticed and closed", AS_IT_SHOULD, truncated);
    check("a descriptor kept over exec is taken once", AS_IT_SHOULD, || {
        let file = over_exec::memory_file("test", b"from before").unwrap();
        let number = over_exec::keep(&file).unwrap();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.env("TAKE", number.to_string()).status().ok().and_then(|status| status.code()).unwrap_or(0)
    });
    check("a write to nobody is no signal", AS_IT_SHOULD, || {
        ignore_sigpipe().unwrap();
        let (us, them) = UnixStream::pair().unwrap();
        drop(them);
        let error = std::io::Write::write(&mut &us, b"x").unwrap_err();
        if error.kind() == std::io::ErrorKind::BrokenPipe { AS_IT_SHOULD } else { 0 }
    });
    ready_is_reported();
    if nix::unistd::Uid::effective().is_root() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        check("rights are given up for good", AS_IT_SHOULD, || rights(folder.path()));
        check("one right is kept", AS_IT_SHOULD, one_right);
        check("another root directory hides nothing of the process", AS_IT_SHOULD, || {
            jailed(folder.path(), outside.path())
        });
    } else {
        eprintln!("SKIPPED: giving up rights, for we have none");
    }
    std::thread::scope(|scope| {
        let (tell, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || wait.recv());
        let error = daemonize().expect_err("two threads cannot fork");
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        drop(tell);
    });
    println!("all scenarios went as they should");
}

/// Runs `scenario` in a daemon that never says it is ready, and compares the exit code the parent learns.
fn check(name: &str, expect: i32, scenario: impl FnOnce() -> i32) {
    match daemonize().unwrap() {
        Daemonized::Child(_ready) => std::process::exit(scenario()),
        Daemonized::Parent(waiting) => {
            assert!(waiting.child() > 0);
            assert_eq!(waiting.wait(), expect, "{name}");
            println!("{name} ... ok");
        }
    }
}

/// In the program that was executed.
fn taken_once(number: i32) -> i32 {
    let own = File::open("/dev/null").unwrap();
    let content = over_exec::take(number).and_then(|fd| over_exec::read_whole(fd, 100));
    // What this program opened itself, and what was taken, is somebody's.
    let is_taken_again = [number, own.as_fd().as_raw_fd()].into_iter().any(|number| over_exec::take(number).is_ok());
    let is_right = content.is_ok_and(|content| content == b"from before") && !is_taken_again;
    if is_right { AS_IT_SHOULD } else { 0 }
}

fn ready_is_reported() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    match daemonize().unwrap() {
        Daemonized::Child(ready) => {
            drop(ours);
            ready.ready(true).unwrap();
            Nowhere::open().unwrap().replace_terminal().unwrap();
            // Lives on after the parent has gone its way, until this socket closes.
            let _ = std::io::Read::read(&mut &theirs, &mut [0; 1]);
            std::process::exit(9);
        }
        Daemonized::Parent(waiting) => {
            let child = nix::unistd::Pid::from_raw(waiting.child());
            assert_eq!(waiting.wait(), 0);
            assert_eq!(nix::sys::signal::kill(child, None), Ok(()), "the daemon lives");
            drop((ours, theirs));
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 9));
            println!("a daemon that is ready ... ok");
        }
    }
}

/// Failures, prepared sockets that are dropped, and whole lives of sockets: all descriptors come back.
fn no_leaks() -> i32 {
    let options = ListenOptions::default();
    let folder = tempfile::tempdir().unwrap();
    let unix = Endpoint::Unix(folder.path().join("x.sock"));
    let inet = |text: &str| Endpoint::Inet(text.parse().unwrap());
    let taken = listen::open(&inet("127.0.0.1:0"), &options).unwrap();
    let before = usage::open_descriptors().unwrap();
    for _ in 0..20 {
        assert!(listen::open(taken.local(), &options).is_err());
        assert!(listen::open(&inet("192.0.2.1:0"), &options).is_err());
        assert!(listen::open(&Endpoint::Fd(0), &options).is_err());
        assert!(ListenerGroup::open(taken.local(), &options, 4).is_err());
        drop(listen::prepare(&unix, &options).unwrap());
        drop(ListenerGroup::prepare(&inet("[::1]:0"), &options, 4).unwrap());
        let retiring = Retiring::start(listen::open(&inet("127.0.0.1:0"), &options).unwrap()).unwrap();
        assert!(retiring.is_empty().unwrap());
        drop(Retiring::start(listen::open(&unix, &options).unwrap()).unwrap());
    }
    assert_eq!(usage::open_descriptors().unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nor a file");
    std::fs::remove_dir(folder.path()).unwrap();
    AS_IT_SHOULD
}

/// With room for two descriptors only, five arrive: an error, and none of them stays open.
fn truncated() -> i32 {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let file = File::open("/dev/null").unwrap();
    inherit::send(&sender, b"five", &[file.as_fd(); 5]).unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    let mut filling: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    filling.truncate(filling.len() - 2);
    let closed = match inherit::receive(&receiver, &mut [0; 16]) {
        Err(ReceiveError::Truncated { closed }) => closed,
        other => panic!("{other:?}"),
    };
    assert_eq!(closed, 2);
    let free: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert_eq!(free.len(), 2, "what arrived was closed");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    AS_IT_SHOULD
}

fn rights(root: &Path) -> i32 {
    assert!(change_root(Path::new("/no/such/folder")).is_err());
    change_root(root).unwrap();
    assert!(!Path::new("/proc/self").exists(), "the old root is out of sight");
    let identity =
        Credentials { uid: Some(65_534), gid: Some(65_533), groups: Some(vec![65_533, 65_532]), capabilities: None };
    drop_to(&identity).unwrap();
    assert!(nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_err());
    assert_eq!(nix::unistd::getuid().as_raw(), 65_534);
    assert_eq!(nix::unistd::getegid().as_raw(), 65_533);
    assert_eq!(nix::unistd::getgroups().unwrap().len(), 2);
    let error = drop_to(&Credentials { uid: Some(0), ..Credentials::default() }).unwrap_err();
    assert_eq!(error.step, "setuid");
    AS_IT_SHOULD
}

/// What a process knows of itself, and what it watches, after `chroot` to a directory without `/proc`.
fn jailed(cage: &Path, outside: &Path) -> i32 {
    let watched = File::open(outside).unwrap();
    let name = process::hostname();
    let before = usage::open_descriptors().unwrap();
    change_root(cage).unwrap();
    assert!(!Path::new("/proc").exists());
    InotifyQueue::new().unwrap().watch(&watched).unwrap();
    assert_eq!(std::env::current_dir().unwrap(), Path::new("/"), "only the thread that watched was elsewhere");
    drop_to(&Credentials { uid: Some(65_534), gid: Some(65_534), groups: None, capabilities: None }).unwrap();
    assert!(usage::resident_bytes().unwrap() > 100_000);
    assert_eq!(usage::open_descriptors().unwrap(), before + 1, "that of /proc");
    let (one, other) = UnixStream::pair().unwrap();
    assert_eq!(usage::open_descriptors().unwrap(), before + 3);
    assert!(procfs::exists(&format!("self/fd/{}", one.as_raw_fd())) && !procfs::exists("self/fd/1000000"));
    drop((one, other));
    assert_eq!((process::hostname(), name.is_empty()), (name, false));
    AS_IT_SHOULD
}

/// Another user, who may still bind a low port, and nothing else of what root may.
fn one_right() -> i32 {
    let kept = capabilities::named("cap_net_bind_service").unwrap();
    let lost = capabilities::named("CAP_NET_RAW").unwrap();
    assert_eq!(capabilities::named("cap_nonsense"), None);
    let namespace = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
    namespace.expect("root may have a network of its own");
    let identity = Credentials { uid: Some(65_534), gid: None, groups: None, capabilities: Some(vec![kept]) };
    drop_to(&identity).unwrap();
    assert_eq!(nix::unistd::getuid().as_raw(), 65_534);
    assert_eq!(capabilities::missing(&[kept, lost]).unwrap(), vec![lost]);
    // The new network's loopback is down, but its wildcard address can be bound.
    let bound = std::net::TcpListener::bind("0.0.0.0:80");
    assert!(bound.is_ok(), "{bound:?}");
    forbid_new_rights().unwrap();
    assert!(nix::sys::prctl::get_no_new_privs().unwrap());
    capabilities::reduce_to(&[lost]).unwrap();
    assert_eq!(capabilities::missing(&[kept, lost]).unwrap(), vec![kept, lost]);
    assert!(std::net::TcpListener::bind("0.0.0.0:81").is_err());
    AS_IT_SHOULD
}
