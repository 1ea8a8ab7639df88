//! Whoever reads a process's output, or does not: service goes on, and what is lost is counted and reported.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use baton_control::protocol::{LossyTarget, Status};
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

use crate::peers::socat;
use crate::support::clients::ask;
use crate::support::{PATIENCE, Proxy, free_address, program, until};

/// One frontend on one core, with these lines in `global` and in it.
fn config(global: &str, address: SocketAddr, lines: &str) -> String {
    format!(
        "global\n nbthread 1\n{global}\ndefaults\n mode http\n timeout client 30s\n timeout connect 5s\n timeout server 5s\n\
         option httplog\nfrontend web\n bind {address}\n{lines}\n http-request return status 204\n"
    )
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends requests of this path one after another on one connection; all must be answered.
#[track_caller]
fn ask_often(address: SocketAddr, path: &str, count: usize) {
    let mut stream = BufReader::new(connect(address));
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    for number in 0..count {
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap_or(0) > 0, "request {number} of {count} is not answered");
        }
    }
}

/// A pipe by name, open for reading before anybody writes.
fn fifo(path: &Path) -> File {
    nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
}

/// Arguments of a shell that becomes Baton with this redirection.
fn redirected(redirection: &str) -> [String; 4] {
    ["sh".into(), "-c".into(), format!("exec \"$@\" {redirection}"), "sh".into()]
}

fn start(redirection: &str, text: &str) -> Proxy {
    let wrapper = redirected(redirection);
    Proxy::start_under(&wrapper.each_ref().map(String::as_str), text, &[])
}

fn lost(status: &Status, target: &str) -> Option<LossyTarget> {
    status.log_targets.iter().find(|one| one.target == target).cloned()
}

#[test]
fn a_pipe_nobody_reads_costs_log_lines_and_no_request() {
    const REQUESTS: usize = 2500;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let unread = fifo(Path::new(&at("fifo")));
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = free_address();
    let global = format!(" stats socket {}\n log {} local0", at("admin"), collector.local_addr().unwrap());
    let proxy = start(&format!("> {}", at("fifo")), &config(&global, address, " log stdout format raw local0"));

    ask_often(address, &format!("/{}", "x".repeat(800)), REQUESTS);
    let text = "Log target 'stdout': ";
    until("the report of the first loss", || proxy.said().contains(text));
    let mut line = [0; 1024];
    until("the report on the other target, too", || {
        let length = collector.recv(&mut line).unwrap();
        String::from_utf8_lossy(&line[..length]).contains(text)
    });
    assert_eq!(proxy.said().matches(text).count(), 1, "{}", proxy.said());
    let lossy = lost(&proxy.status(), "stdout").unwrap();
    assert_eq!(lossy.reason, "the reader is too slow");
    assert!((1..REQUESTS as u64).contains(&lossy.lost), "{}", lossy.lost);
    // The line of the last request may be lost between two questions.
    until("show info has what status has", || {
        let info = socat(Path::new(&at("admin")), "show info\n");
        let lost = lost(&proxy.status(), "stdout").unwrap().lost;
        info.contains(&format!("\nDroppedLogs: {lost}\n"))
    });
    let lost = lost(&proxy.status(), "stdout").unwrap().lost as usize;

    // The reader comes back: what was kept is whole, and from here on nothing is lost.
    let mut lines = reader(unread);
    for number in 0..REQUESTS - lost {
        let line = lines();
        assert!(line.starts_with("127.0.0.1:") && line.ends_with("xx HTTP/1.1\"\n"), "line {number}: {line}");
    }
    ask_often(address, "/last", 1);
    proxy.signal(Signal::SIGUSR1);
    assert!(lines().ends_with("\"GET /last HTTP/1.1\"\n"), "what is queued at a soft stop is written");
    let (ended, said) = proxy.wait();
    assert!(ended.success(), "{said}");
}

/// Lines of a pipe.
fn reader(pipe: File) -> impl FnMut() -> String {
    let mut pipe = BufReader::new(pipe);
    move || {
        let mut line = Vec::new();
        until("a line", || match pipe.read_until(b'\n', &mut line) {
            Ok(_) => line.ends_with(b"\n"),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        });
        String::from_utf8(line).unwrap()
    }
}

#[test]
fn standard_error_without_a_reader_ends_no_accepting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    let reader = fifo(&path);
    let address = free_address();
    let proxy = start(&format!("2> {}", path.display()), &config("", address, ""));
    ask(connect(address));
    drop(reader);
    let limit = |descriptors: &str| {
        let arguments = [format!("--pid={}", proxy.pid()), format!("--nofile={descriptors}:")];
        assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
    };
    let open = || fs::read_dir(format!("/proc/{}/fd", proxy.pid())).unwrap().count();
    until("the loss of the message that accepting fails", || {
        // None is left for the next connection, which waits in the queue meanwhile.
        limit(&open().to_string());
        let waiting = connect(address);
        std::thread::sleep(Duration::from_millis(10));
        limit("1024");
        ask(waiting);
        lost(&proxy.status(), "stderr").is_some_and(|lossy| lossy.reason == "Broken pipe")
    });
    ask(connect(address));
    assert_eq!(proxy.status().panics, 0);
}

#[test]
fn a_log_socket_that_is_missing_is_reported_and_used_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let address = free_address();
    let lines = format!(" log {} format raw local0\n log fd@99 format raw local0", path.display());
    let proxy = Proxy::start(&config("", address, &lines));
    ask_often(address, "/early", 5);
    let target = format!("Log target '{}': ", path.display());
    until("the report", || proxy.said().contains(&target) && proxy.said().contains("Log target 'fd@99': "));
    let reason = |target: &str| lost(&proxy.status(), target).map(|lossy| (lossy.lost, lossy.reason));
    let missed = Some((5, "No such file or directory".into()));
    until("the last line of those before", || reason(&path.display().to_string()) == missed);
    for turn in 0..2 {
        let collector = UnixDatagram::bind(&path).unwrap();
        collector.set_read_timeout(Some(PATIENCE)).unwrap();
        ask_often(address, "/there", 1);
        let mut line = [0; 1024];
        let length = collector.recv(&mut line).unwrap();
        let line = String::from_utf8_lossy(&line[..length]);
        assert!(line.contains("\"GET /there HTTP/1.1\""), "turn {turn}: {line}");
        // As a syslog daemon that is restarted.
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(reason(&path.display().to_string()), missed);
    // The collector has a line before the same line is tried at the next target.
    let refused = Some((7, "Bad file number".into()));
    until("the last line at the descriptor", || reason("fd@99") == refused);
    assert_eq!(proxy.said().matches(&target).count(), 1, "at most once a minute:\n{}", proxy.said());
}

#[test]
fn a_descriptor_that_was_passed_is_logged_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let address = free_address();
    let lines = " log fd@5 len 80 format raw local0";
    let proxy = start(&format!("5>> {}", path.display()), &config("", address, lines));
    ask_often(address, &format!("/{}", "y".repeat(200)), 1);
    proxy.signal(Signal::SIGUSR1);
    proxy.wait();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("Proxy web stopped"), "{text}");
    assert!(lines[0].len() == 79, "cut at its 'len', with the end of the line: {text}");
}

#[test]
fn what_panics_ends_and_service_goes_on() {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED: a build without the places that panic for tests");
        return;
    }
    let address = free_address();
    let origin = free_address();
    // The second connection, the third request at a backend, and the first command after the one that starts.
    let wrapper = ["env", "BATON_TEST_PANICS=accept:2,request:3,command:2"];
    let text = |lines: &str| {
        format!(
            "{} use_backend b\nbackend b\n{lines}",
            config("", address, "").replace(" http-request return status 204\n", "")
        )
    };
    let page = " http-request return status 204\n";
    let refused = format!(" server s {origin}\n retries 0\n");
    let proxy = Proxy::start_under(&wrapper, &text(&refused), &[]);
    let answer = |expect: &str| {
        let mut stream = connect(address);
        // A connection whose task panicked is reset or closed.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(
            if expect.is_empty() { answer.is_empty() } else { answer.starts_with(expect) },
            "{answer:?}\n{}",
            proxy.said()
        );
    };
    answer("HTTP/1.1 503");
    answer("");
    answer("HTTP/1.1 503");
    answer("");
    answer("HTTP/1.1 503");
    until("the end of all connections", || proxy.status().connections == 0);
    let status = proxy.status();
    assert_eq!((status.panics, status.frontends[0].open, status.backends[0].open), (2, 0, 0));
    proxy.change(&text(&(refused + page)));
    answer("HTTP/1.1 204");
    assert_eq!(proxy.status().panics, 3);
    assert_eq!(proxy.said().matches("internal error in thread baton/1 at ").count(), 3, "{}", proxy.said());
}

#[test]
fn a_verb_whose_reader_is_gone_is_no_failure() {
    let address = free_address();
    let proxy = Proxy::start(&config("", address, ""));
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    let pid = proxy.pid().to_string();
    for arguments in [&["status", "--pid", &pid][..], &["-vv"], &["certs", "list", "--pid", &pid], &["prove", "list"]] {
        let writer = writer.try_clone().unwrap();
        let output = Command::new(program()).args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked") && !said.contains("internal error"), "{arguments:?}: {said}");
    }
}
