//! A process that did not run for a while does not blame servers for that: a response that is later than `timeout check` by the clock counts, as long as the
//! server had its time while the process ran.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, until};
use crate::table::{cell, table};

/// `timeout check`.
const CHECK: Duration = Duration::from_secs(1);

/// A server that leaves it to the test when it responds; gives each request's connection.
fn server() -> (u16, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let (send, requests) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let count = stream.read(&mut [0; 1024]).unwrap_or(0);
            if count > 0 && send.send(stream).is_err() {
                return;
            }
        }
    });
    (port, requests)
}

/// The state of a process, a letter (proc(5)).
fn state(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, after) = stat.rsplit_once(") ").expect("the name ends");
    after.chars().take(1).collect()
}

#[test]
fn a_process_that_stood_still_does_not_blame_its_servers() {
    let (port, requests) = server();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let admin = folder.path().join("admin.sock");
    let proxy = Proxy::start(&format!(
        "global\n stats socket {admin} level admin\n\
         defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n timeout check {check}ms\n\
         frontend f\n bind {folder}/front.sock\n default_backend b\n\
         backend b\n option httpchk\n server s1 127.0.0.1:{port} check inter 100ms fall 1\n",
        admin = admin.display(),
        folder = folder.path().display(),
        check = CHECK.as_millis(),
    ));
    let figures = || {
        let stats = table(&socat(&admin, "show stat\n"));
        ["status", "check_status", "chkfail", "chkdown"].map(|name| cell(&stats, "b", "s1", name).to_owned())
    };
    let next = || requests.recv_timeout(PATIENCE).expect("a check comes");
    let respond = |mut stream: TcpStream| stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("it waits for this");
    respond(next());
    until("the first check is done", || figures()[1] == "L7OK");
    let pid = proxy.pid();
    let signal = |signal| kill(Pid::from_raw(pid.try_into().expect("a number")), signal).expect("it runs");
    for _ in 0..2 {
        let asked = next();
        signal(Signal::SIGSTOP);
        until("it stands still", || state(pid) == "T");
        // Not to wait for anything: the time itself is what is tested.
        thread::sleep(CHECK + CHECK / 4);
        signal(Signal::SIGCONT);
        until("it runs again", || state(pid) != "T");
        thread::sleep(CHECK / 8);
        respond(asked);
        // That one is judged when the next one comes.
        let next = next();
        assert_eq!(figures(), ["UP", "L7OK", "0", "0"]);
        respond(next);
    }
    // A server that says nothing while the process runs is down.
    let mut kept = Vec::new();
    until("silence counts", || {
        kept.extend(requests.try_iter());
        figures() == ["DOWN", "L7TOUT", "1", "1"]
    });
}
