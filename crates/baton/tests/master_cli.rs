//! The master's socket (`-S`), beside that of Debian's haproxy: the same lines to both, and the same answers but for numbers,
//! times and versions.

mod support;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::haproxy::Haproxy;
use support::{PATIENCE, Proxy, free_address, until};
use tempfile::TempDir;

fn config(web: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         frontend web\n bind {web}\n default_backend app\nbackend app\n server s1 127.0.0.1:1\n"
    )
}

/// Sends the lines at once, as `socat` does, and reads until the end.
fn say(socket: &Path, lines: &str) -> String {
    try_say(socket, lines).expect("the master listens and reads")
}

fn try_say(socket: &Path, lines: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(lines.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    // A reset after the answer is an end too.
    let _ = stream.read_to_string(&mut answer);
    Ok(answer)
}

/// Numbers of processes, times and versions are not compared; neither are blanks after them.
fn normal(answer: &str) -> String {
    let word = |word: &str| {
        let is_uptime = word.ends_with('s') && word.contains('h') && word.contains('m') && word.contains('d');
        let is_pid = word.len() > 2 && word.chars().all(|c| c.is_ascii_digit());
        match word {
            _ if is_uptime => "UPTIME".into(),
            _ if is_pid => "PID".into(),
            _ if word.starts_with("2.6.12") => "VERSION".into(),
            _ => {
                word.trim_matches(|c: char| c.is_ascii_digit()).to_owned() + if word.ends_with('>') { ">" } else { "" }
            }
        }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<String>>().join(" ");
    answer.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Debian's haproxy as a master, with a socket in its folder.
fn haproxy() -> (Haproxy, PathBuf, TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let socket = folder.path().join("master.sock");
    let arguments: [&OsStr; 3] = ["-W".as_ref(), "-S".as_ref(), socket.as_ref()];
    let haproxy = Haproxy::start_with(&config(free_address()), &socket, &arguments);
    // The master executes itself once more when its worker runs, and refuses connections for a moment.
    let version = || try_say(&socket, "@1 show version\n").unwrap_or_default();
    until("haproxy's worker answers", || version().contains("2.6"));
    (haproxy, socket, folder)
}

/// Baton as a master with a socket in its folder.
fn start(options: &str) -> (Proxy, PathBuf, TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let socket = folder.path().join("master.sock");
    let argument = format!("{}{options}", socket.display());
    let proxy = Proxy::start_with(&config(free_address()), &["-W", "-S", &argument]);
    (proxy, socket, folder)
}

#[test]
fn answers_are_haproxys() {
    let (_haproxy, theirs, _their_folder) = haproxy();
    let (_proxy, socket, _folder) = start("");
    for lines in [
        "show proc\n",
        "show version\n",
        "show cli level\n",
        "@master show cli level\n",
        "@1 show version\n",
        "@1 show version; show cli level\n",
        "@1; show version\n",
        "@1\n",
        "@!99999 show info\n",
        "@2 show info\n",
        "operator\n",
        "prompt\n",
        "prompt\nshow cli level\nuser\nshow cli level\n@master\nquit\n",
        "prompt\nexpert-mode on\nexperimental-mode on\nmcli-debug-mode on\n@1\n@\nexpert-mode off\nquit\n",
    ] {
        assert_eq!(normal(&say(&socket, lines)), normal(&say(&theirs, lines)), "{lines:?}");
    }
}

#[test]
fn a_reload_tells_what_came_of_it() {
    let (proxy, socket, _folder) = start("");
    let text = config(free_address());
    proxy.write(&text.replace("timeout client 5s", "timeout client 6s"));
    let answer = say(&socket, "reload\n");
    assert!(answer.starts_with("Success=1\n--\n"), "{answer}");
    proxy.write("this is no configuration");
    let answer = say(&socket, "reload\n");
    assert!(answer.starts_with("Success=0\n--\n") && answer.contains("test.cfg:1"), "{answer}");
    assert_eq!(say(&socket, "prompt\n"), "master[ReloadFailed]> ");
    assert!(say(&socket, "show proc\n").contains("2 [failed: 1]"));
    proxy.write(&text);
    assert!(say(&socket, "reload\n").starts_with("Success=1\n"));
    assert_eq!(say(&socket, "prompt\n"), "master> ");
}

#[test]
fn levels_hold_on_both_sides_of_the_prefix() {
    let (_proxy, socket, _folder) = start(",level,user,mode,600");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(say(&socket, "show cli level\n"), "user\n\n");
    assert_eq!(say(&socket, "reload\n"), "Permission denied\n\n");
    assert_eq!(say(&socket, "@1 show env\n"), "Permission denied\n\n");
    assert_eq!(say(&socket, "@1 show cli level\n"), "user\n\n");
}

#[test]
fn who_sets_something_by_the_master_is_known() {
    let (proxy, socket, _folder) = start("");
    assert_eq!(say(&socket, "@1 set weight app/s1 7\n"), "\n");
    let overrides = proxy.status().overrides;
    let (uid, pid) = (nix::unistd::geteuid(), std::process::id());
    assert_eq!(overrides[0].by().to_string(), format!("uid {uid} pid {pid} over unix@{}", socket.display()));
}

#[test]
fn a_worker_that_dies_is_seen() {
    let (proxy, socket, _folder) = start("");
    let pid = proxy.status().pid;
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    let is_another = || {
        let answer = say(&socket, "@1 show info\n");
        answer.contains("\nPid: ") && !answer.contains(&format!("\nPid: {pid}\n"))
    };
    until("another worker answers", is_another);
    assert!(!say(&socket, "show proc\n").contains(&format!("\n{pid} ")));
    assert!(say(&socket, &format!("@!{pid} show info\n")).starts_with("Can't find the target PID"));
}

#[test]
fn a_wrong_address_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.cfg");
    std::fs::write(&path, config(free_address())).unwrap();
    let run = |argument: &str| {
        let mut command = Command::new(support::program());
        let output = command.args(["-W", "-db", "-f"]).arg(&path).args(["-S", argument]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for argument in ["/no/such/folder/x.sock", "/tmp/x,dance"] {
        let (code, said) = run(argument);
        assert!(code == Some(1) && said.contains(&format!("-S {argument}: ")), "{code:?} {said}");
    }
}
