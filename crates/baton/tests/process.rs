//! The process and the system: rights, limits, processors, the pid file and the background, next to Debian's haproxy where
//! both do the same.
//!
//! As root: most of it is about giving rights up. Without, the tests say so.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{PATIENCE, Proxy, free_address, program, until};

const HAPROXY: &str = "/usr/sbin/haproxy";
/// A user without a name and without processes.
const NOBODY: &str = "61234";

/// A configuration with these lines in `global`.
fn config(global: &str, address: &str) -> String {
    format!(
        "global\n{global}\ndefaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         frontend web\n bind {address}\n http-request return status 200\n"
    )
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: needs root to give rights up");
    }
    is_root
}

/// How a start went.
#[derive(Debug, PartialEq)]
struct Start {
    /// The exit code, or that it serves: in the foreground, or as a daemon whose parent ended with 0.
    outcome: Result<(), i32>,
    /// The first alert or warning, as far as both programs say the same: up to the first period, numbers of processes and
    /// the program's name left out.
    said: String,
    /// Whether there is a pid file that names a living process.
    pid_file: bool,
}

/// Starts `program -f FILE ARGUMENTS` under `wrapper`, waits until it serves or ends, and ends it.
fn start(program: &Path, wrapper: &str, global: &str, arguments: &str) -> Start {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let address = free_address();
    fs::write(at("a.cfg"), config(global, &address.to_string())).unwrap();
    let mut words = wrapper.split_whitespace().chain([program.to_str().unwrap(), "-f", "a.cfg"]);
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .args(arguments.split_whitespace())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(at("said")).unwrap())
        .spawn()
        .unwrap();
    let in_background = arguments.contains("-D") || global.contains("daemon") && !arguments.contains("-db");
    let end = Instant::now() + PATIENCE;
    let outcome = loop {
        if let Some(status) = child.try_wait().unwrap() {
            match status.code() {
                Some(0) if in_background => break Ok(()),
                code => break Err(code.unwrap_or(-1)),
            }
        }
        if !in_background && is_answered(address) {
            break Ok(());
        }
        assert!(Instant::now() < end, "neither serves nor ends: {global}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let written = fs::read_to_string(at("x.pid")).unwrap_or_default();
    let daemon: Option<i32> = written.trim().parse().ok();
    let is_alive = daemon.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_ok());
    let _ = child.kill();
    let _ = child.wait();
    if let Some(pid) = daemon.filter(|_| is_alive) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let said = fs::read_to_string(at("said")).unwrap();
    let said = said.lines().find(|line| line.starts_with("[ALERT]") || line.starts_with("[WARNING]"));
    let said = said.map(|line| line.split_once(") : ").map_or(line, |(_, text)| text).replace("/usr/sbin/", ""));
    let said = said.map(|text| text.split(['.', ',']).take(2).collect::<Vec<_>>().join("."));
    Start { outcome, said: said.unwrap_or_default(), pid_file: is_alive }
}

/// Whether somebody serves at the address: a process that will yet fail to start may listen already.
fn is_answered(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        stream.read_exact(&mut [0])
    };
    ask().is_ok()
}

/// Both programs, as root or as somebody else: outcome, first words and the pid file are the same.
#[test]
fn rights_limits_and_pid_files_are_the_same() {
    if !is_root() {
        return;
    }
    if !Path::new(HAPROXY).exists() {
        eprintln!("SKIPPED: {HAPROXY} is not installed, nothing to compare with");
        return;
    }
    let root = "env";
    let nobody = &*format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    let grouped = &*format!("setpriv --reuid {NOBODY} --regid {NOBODY} --groups 1,2");
    let limited = &*format!("prlimit --nofile=1024:4096 {nobody}");
    let cases = [
        (root, "", "-db"),
        (root, "uid 61234", "-db"),
        (root, "gid 61234", "-db"),
        (root, "uid 61234\n gid 61234\n chroot /var", "-db"),
        (root, "uid 0\n gid 0", "-db"),
        (root, "chroot /no/such/folder", "-db"),
        (root, "set-dumpable", "-db"),
        (root, "insecure-setuid-wanted", "-db"),
        (root, "cpu-map auto:1/1-2 0-1\n nbthread 2", "-db"),
        (root, "daemon", "-p x.pid"),
        (root, "daemon\n uid 61234", "-p x.pid"),
        (root, "daemon\n pidfile x.pid", ""),
        (root, "pidfile x.pid", "-D"),
        (root, "", "-D -p /no/such/folder/x.pid"),
        (limited, "ulimit-n 30000", "-db"),
        (limited, "maxconn 5000", "-D -p x.pid"),
        (limited, "maxconn 5000\n no strict-limits", "-db"),
        (root, "maxconn 1000\n ulimit-n 2000", "-db"),
        (root, "fd-hard-limit 2000", "-db"),
        ("prlimit --nofile=1024:1024", "maxconn 100", "-db"),
        ("prlimit --nofile=150:150", "", "-db"),
        (nobody, "", "-db"),
        (nobody, "", "-D -p x.pid"),
        (nobody, "uid 61234\n gid 61234", "-db"),
        (nobody, "uid 0\n gid 0", "-db"),
        (nobody, "uid 1", "-db"),
        (nobody, "gid 1", "-db"),
        (nobody, "chroot /var", "-db"),
        (grouped, "", "-db"),
        (grouped, "gid 61234", "-db"),
    ];
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let ours = folder.path().join("haproxy");
    fs::copy(program(), &ours).unwrap();
    for (wrapper, global, arguments) in cases {
        let theirs = start(Path::new(HAPROXY), wrapper, global, arguments);
        let mut ours = start(&ours, wrapper, global, arguments);
        ours.said = ours.said.replace(folder.path().to_str().unwrap(), "");
        // Numbers differ where each counts its own descriptors.
        let words = |text: &str| text.chars().filter(|char| !char.is_ascii_digit()).collect::<String>();
        assert_eq!(words(&ours.said), words(&theirs.said), "{wrapper} {global} {arguments}");
        assert_eq!((ours.outcome, ours.pid_file), (theirs.outcome, theirs.pid_file), "{wrapper} {global} {arguments}");
    }
}

/// What a reason says beyond HAProxy's words, and starts that HAProxy would wrongly report as successful: the started process
/// ends with 1, nothing serves, and an old pid file keeps its content.
#[test]
fn a_daemon_that_cannot_serve_says_so_and_leaves_the_pid_file() {
    if !is_root() {
        return;
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // `chroot` to where we can not, and rights that nobody has, fail after the fork; threads fail even later.
    let nobody = &*format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    // The limit counts all threads of a user: this one has no others, whatever the other tests do meanwhile.
    let few_threads = "setpriv --reuid 61239 --regid 61239 --clear-groups prlimit --nproc=4";
    // Not even one for its messages, beside the process and the one that started it.
    let no_thread = "setpriv --reuid 61240 --regid 61240 --clear-groups prlimit --nproc=2";
    let cases: [(&str, &str, &str, &str, &str); 9] = [
        ("env", "", &taken, "x.pid", "Address already in use"),
        ("env", "chroot /no/such/folder", "", "x.pid", "Cannot chroot(/no/such/folder). No such file or directory"),
        ("env", "", "", "/dev/full", "Cannot write pidfile /dev/full: No space left on device"),
        ("env", "", "", "/proc/x.pid", "Cannot create pidfile /proc/x.pid: No such file or directory"),
        (nobody, "uid 1", "", "x.pid", "Cannot set uid 1. Operation not permitted: start as root, or"),
        (nobody, "", "", "/x.pid", "Cannot create pidfile /x.pid: Permission denied"),
        (few_threads, "nbthread 16", "", "x.pid", "cannot start 16 threads: Resource temporarily unavailable"),
        (no_thread, "nbthread 16", "", "x.pid", "cannot start 16 threads: Resource temporarily unavailable"),
        ("env", "maxconn 100\n user no-such-user", "", "x.pid", "cannot find user id for 'no-such-user'"),
    ];
    for (wrapper, global, address, pid_file, reason) in cases {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let address = if address.is_empty() { free_address().to_string() } else { address.into() };
        fs::write(folder.path().join("a.cfg"), config(global, &address)).unwrap();
        let old = folder.path().join("x.pid");
        fs::write(&old, "1234567\n").unwrap();
        fs::set_permissions(&old, PermissionsExt::from_mode(0o666)).unwrap();
        let output = run(wrapper, &["-D", "-f", "a.cfg", "-p", pid_file], folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{reason}: {said}");
        // The thread of its first messages may still be there when it forks, and then there is no room for that either.
        let has_no_room = wrapper == no_thread && said.contains("Cannot fork: Resource temporarily unavailable");
        assert!((said.contains(reason) || has_no_room) && said.contains("[ALERT]"), "{reason}: {said}");
        assert_eq!(fs::read_to_string(&old).unwrap(), "1234567\n", "{reason}: the pid file is as it was");
        assert!(address == taken || std::net::TcpStream::connect(&address).is_err(), "{reason}: nothing serves");
    }
}

fn run(wrapper: &str, arguments: &[&str], folder: &Path) -> Output {
    let mut words = wrapper.split_whitespace().chain([program().to_str().unwrap()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

/// The lines of `/proc/PID/status` that begin with a word.
fn status_of(pid: u32, word: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':'));
    line.unwrap_or_default().trim().replace('\t', " ")
}

/// User, groups and capabilities as the kernel sees them, in every thread; and a kept right is of use.
#[test]
fn what_is_given_up_is_gone_and_what_is_kept_is_of_use() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let web = free_address().to_string();
    let base = format!(" nbthread 2\n uid {NOBODY}\n gid 61235\n chroot {}\n", folder.path().display());
    let proxy = Proxy::start(&config(&base, &web));
    let pid = proxy.pid();
    assert_eq!(status_of(pid, "Uid"), [NOBODY; 4].join(" "));
    assert_eq!(status_of(pid, "Gid"), ["61235"; 4].join(" "));
    assert_eq!(status_of(pid, "Groups"), "61235");
    assert_eq!((&*status_of(pid, "CapEff"), &*status_of(pid, "CapPrm")), (&*"0".repeat(16), &*"0".repeat(16)));
    assert_eq!(status_of(pid, "NoNewPrivs"), "1");
    assert_eq!(fs::read_link(format!("/proc/{pid}/root")).unwrap(), folder.path());
    drop(proxy);

    let kept = format!("{base} setcap cap_net_bind_service,cap_net_raw\n insecure-setuid-wanted\n set-dumpable\n");
    let proxy = Proxy::start(&config(&kept, &web));
    for task in fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap() {
        let thread = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        assert_eq!(status_of(thread, "CapEff"), format!("{:016x}", 1 << 10 | 1 << 13), "of every thread");
        assert_eq!(status_of(thread, "CapPrm"), status_of(thread, "CapEff"));
    }
    assert_eq!(status_of(proxy.pid(), "NoNewPrivs"), "0");
    // Dumpable again: /proc/PID belongs to the user then, and not to root.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}/stat", proxy.pid())).unwrap());
    assert_eq!(owner.to_string(), NOBODY);
    assert!(!proxy.said().contains("[WARNING]"), "{}", proxy.said());
    fs::set_permissions(proxy.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    proxy.change(&config(&kept, &format!("{web}\n bind 127.61.23.4:617")));
    assert!(std::net::TcpStream::connect("127.61.23.4:617").is_ok(), "a low port, bound without root");
}

/// A right that is asked for and not there is a warning; everything else of a start without rights is silent.
#[test]
fn a_start_without_rights_warns_of_nothing_but_what_is_missing() {
    if !is_root() {
        return;
    }
    for (global, warning) in [("", None), ("setcap cap_net_raw", Some("cannot keep cap_net_raw"))] {
        let nobody = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
        let said = start(program(), &nobody, global, "-db").said;
        assert_eq!(warning.is_some(), !said.is_empty(), "{said}");
        assert!(said.contains(warning.unwrap_or_default()), "{said}");
    }
}

/// Each core's thread runs where `cpu-map` says, the others where the process may.
#[test]
fn threads_run_on_the_processors_they_are_mapped_to() {
    let usable = baton_kernel::process::cpus::usable().unwrap();
    let (first, last) = (usable[0], usable[usable.len() - 1]);
    let any = status_of(std::process::id(), "Cpus_allowed_list");
    let one = |cpu: usize| cpu.to_string();
    let cases = [
        (String::new(), vec![any.clone(), any.clone()]),
        (format!("cpu-map 1 {first}"), vec![one(first), one(first)]),
        (format!("cpu-map 1/1 {last}"), vec![one(last), any.clone()]),
        (format!("cpu-map 1/odd {last}\n cpu-map 1/even {first}"), vec![one(last), one(first), one(last)]),
        (format!("cpu-map 1/all {last}\n cpu-map 1/2 {first}"), vec![one(last), one(first), one(last)]),
        (format!("cpu-map 2/1 {first}"), vec![any.clone(), any.clone()]),
        ("cpu-map 1/1 1023".to_string(), vec![any.clone(), any.clone()]),
        (
            "cpu-map auto:1/1-4 0-3".to_string(),
            (0..4).map(|cpu| if usable.contains(&cpu) { one(cpu) } else { any.clone() }).collect(),
        ),
    ];
    for (map, expect) in cases {
        let global = format!(" nbthread {}\n {map}\n", expect.len());
        let proxy = Proxy::start(&config(&global, &free_address().to_string()));
        let mut seen = vec![String::new(); expect.len()];
        for task in fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap() {
            let thread: u32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
            let name = status_of(thread, "Name");
            match name.strip_prefix("baton/").and_then(|core| core.parse::<usize>().ok()) {
                Some(core) => seen[core - 1] = status_of(thread, "Cpus_allowed_list"),
                None => assert_eq!(status_of(thread, "Cpus_allowed_list"), any, "{map}: {name} is no core"),
            }
        }
        assert_eq!(seen, expect, "{map}");
        let warned = || proxy.said().contains("cpu-map: none of the CPUs of thread 1");
        if map.contains("1023") {
            until("a warning about processors that are not there", warned);
        } else {
            assert!(!warned(), "{}", proxy.said());
        }
    }
}

/// `maxconn` from the limits, close to HAProxy's, with the reasoning in `-vv` and `show info`.
#[test]
fn connections_are_computed_from_the_limits() {
    let output = run("prlimit --nofile=1024:4096", &["-vv"], Path::new("/"));
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("maxconn")).unwrap_or_default();
    assert!(line.contains(" everything else fit into 4096, the system's hard limit"), "{text}");
    if !Path::new(HAPROXY).exists() {
        eprintln!("SKIPPED: {HAPROXY} is not installed, nothing to compare with");
        return;
    }
    for global in ["nbthread 2", "nbthread 2\n fd-hard-limit 3000", "nbthread 2\n maxconn 1234"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let text = config(&format!(" {global}\n stats socket {}\n", socket.display()), &free_address().to_string());
        let proxy = Proxy::start(&text);
        let ours = proxy.status().maxconn;
        let reason = info(&socket, "Maxconn_reason");
        assert!(reason.starts_with(&format!("{ours} connections")), "{reason}");
        assert_eq!(info(&socket, "Maxconn"), ours.to_string());
        let theirs = maxconn_of_haproxy(global);
        // Unasked, Baton keeps a ninth for idle connections to servers, and some more for itself.
        let least = theirs - theirs / 9 - 64;
        assert!(ours <= theirs && ours >= least, "{global}: {ours} and {theirs}");
        assert!(!global.contains("maxconn") || ours == theirs, "what is asked for counts: {ours}");
    }
}

/// The most connections of clients that a thread accepted between two waits for events. Those of operators come by unix sockets.
fn accepted_at_once(trace: &str) -> usize {
    let mut now: std::collections::BTreeMap<&str, usize> = Default::default();
    let mut most = 0;
    for line in trace.lines() {
        let (thread, call) = line.trim_start().split_once(' ').unwrap_or_default();
        let count = now.entry(thread).or_default();
        if call.contains("epoll_") {
            *count = 0;
        } else if call.contains("accept4") && call.contains("AF_INET") && !call.contains(" = -1 ") {
            *count += 1;
            most = most.max(*count);
        }
    }
    most
}

#[test]
fn as_many_connections_are_accepted_in_a_row_as_maxaccept_says() {
    const CLIENTS: usize = 100;
    // Sockets of which the process gets the queue when there are all clients in it.
    let sockets: [TcpListener; 4] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    for socket in &sockets {
        fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let words = ["strace", "-D", "-f", "-qq", "-o", &trace, "-e", "trace=accept4,epoll_wait,epoll_pwait"];
    let config = |limit: &str, bind: &str| config(&format!(" nbthread 1\n {limit}"), bind);
    let proxy = Proxy::start_under(&words, &config("", &free_address().to_string()), &[]);
    let limits = [("", 64), ("tune.maxaccept 3", 3), ("tune.maxaccept -1", CLIENTS), ("tune.maxaccept 1", 1)];
    for (socket, (limit, expect)) in sockets.iter().zip(limits) {
        let address = socket.local_addr().unwrap();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let before = fs::read_to_string(&trace).unwrap().len();
        proxy.change(&config(limit, &format!("fd@{}", socket.as_raw_fd())));
        for client in &mut clients {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert_ne!(client.read(&mut [0; 100]).unwrap(), 0, "it is served");
        }
        // What was answered was accepted, and written down.
        let text = fs::read_to_string(&trace).unwrap();
        assert_eq!(accepted_at_once(&text[before..]), expect, "{limit:?}");
    }
}

/// `Maxconn` of `show info`.
fn maxconn_of_haproxy(global: &str) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    let file = folder.path().join("a.cfg");
    let global = format!(" {global}\n stats socket {}\n", socket.display());
    fs::write(&file, config(&global, &free_address().to_string())).unwrap();
    let mut haproxy = Command::new(HAPROXY);
    let mut child = haproxy.arg("-db").arg("-f").arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("haproxy answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let maxconn = info(&socket, "Maxconn");
    let _ = child.kill();
    let _ = child.wait();
    maxconn.parse().unwrap()
}

/// A line of `show info`.
fn info(socket: &Path, name: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let mut said = String::new();
    stream.write_all(b"show info\n").and_then(|()| stream.read_to_string(&mut said)).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).to_owned()
}

/// A request whose head is not complete holds what it was read into, and little more.
#[test]
fn connections_over_maxconnrate_wait_for_the_next_second() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let address = free_address();
    let global = format!(" maxconnrate 5\n stats socket {} level admin", socket.display());
    let _proxy = Proxy::start(&config(&global, &address.to_string()));
    assert_eq!(info(&socket, "ConnRateLimit"), "5");
    let begin = Instant::now();
    let answered = (0..16).filter(|_| is_answered(address)).count();
    assert_eq!(answered, 16, "none is refused");
    // Five of each second: the last one came in the fourth, at least two whole seconds after the first.
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn an_unfinished_head_takes_little_more_than_its_buffer() {
    const CLIENTS: u64 = 600;
    /// `tune.bufsize` is 16 KiB; the rest is for the connection, its task and the allocator.
    const EACH_MAX: u64 = 34 * 1024;
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(14_000));
    let address = free_address();
    let proxy = Proxy::start(&format!(
        "global\n    nbthread 1\ndefaults\n    mode http\n    timeout client 30s\nlisten l\n    bind {address}\n    \
         http-request return status 200\n"
    ));
    let peak = || -> u64 {
        let line = status_of(proxy.pid(), "VmHWM");
        line.split_whitespace().find_map(|word| word.parse().ok()).expect("a number of KiB")
    };
    // What the first requests take once.
    let mut first = TcpStream::connect(address).expect("it listens");
    first.write_all(format!("{head}\r\n\r\n").as_bytes()).expect("sent");
    read_head(&mut first);
    let before = peak();
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = TcpStream::connect(address).expect("it listens");
            client.write_all(head.as_bytes()).expect("sent");
            client
        })
        .collect();
    // Each is served, so each was read, nearly all before the first was finished.
    for client in clients.iter_mut().rev() {
        client.write_all(b"\r\n\r\n").expect("sent");
        read_head(client);
    }
    let each = (peak() - before) * 1024 / CLIENTS;
    assert!(each >= head.len() as u64 / 2, "most of them were there at once: {each} bytes each");
    assert!(each <= EACH_MAX, "{each} bytes each");
}

fn read_head(client: &mut TcpStream) {
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).expect("a response");
        head.push(byte[0]);
    }
}
