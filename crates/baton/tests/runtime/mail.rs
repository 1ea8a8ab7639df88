//! `email-alert`: what haproxy and Baton mail about the same servers to a real mail server has to be equal, and what they do when one breaks off.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::peers::{Both, socat};
use crate::support::{free_address, until};

/// A mail server that writes what it gets into a file.
struct MailServer {
    child: Child,
    port: u16,
    file: PathBuf,
}

impl MailServer {
    fn start(folder: &Path, name: &str) -> MailServer {
        let (port, file) = (free_address().port(), folder.join(name));
        let out = File::create(&file).expect("the folder is ours");
        let mut server = Command::new("/usr/bin/python3");
        // A mail comes with the envelope of its sender.
        server.args(["-u", "-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}")]);
        server.args(["-c", "aiosmtpd.handlers.Debugging", "stdout"]).stdout(out);
        let child = server.spawn().expect("python3-aiosmtpd is installed");
        let server = MailServer { child, port, file };
        until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    /// The mails so far, without what differs between two runs, in order.
    fn mails(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).expect("it is there");
        let mails = text.split("---------- MESSAGE FOLLOWS ----------").skip(1);
        let kept = |line: &&str| !line.starts_with("Date: ") && !line.starts_with("X-Peer: ");
        let one = |mail: &str| {
            let mail = mail.split("------------ END MESSAGE ------------").next().unwrap_or_default();
            let lines: Vec<&str> = mail.lines().filter(kept).collect();
            let text = lines.join("\n");
            let mut parts = text.split("check duration: ");
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| text + part.split_once("ms").map_or(part, |(_, rest)| rest))
        };
        let mut mails: Vec<String> = mails.map(one).collect();
        mails.sort();
        mails
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(folder: &Path, mail: u16, gone: u16) -> String {
    let backend = |name: &str, words: &str, server: &str| {
        format!(
            "backend {name}\n email-alert mailers m\n email-alert from from@example.com\n email-alert to to@example.com\n \
             email-alert myhostname {name}.example\n{words} server s {server}\n"
        )
    };
    format!(
        "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\n max-spread-checks 20ms\n\
         mailers m\n mailer one 127.0.0.1:{mail}\n timeout mail 9s\n\
         defaults\n mode http\n timeout connect 3s\n timeout client 3s\n timeout server 3s\n\
         frontend f\n bind {folder}/front.sock\n default_backend usual\n{}{}{}{}{}",
        backend("usual", "", &format!("127.0.0.1:{gone} check inter 60s fall 1")),
        backend(
            "results",
            " option log-health-checks\n email-alert level info\n",
            &format!("127.0.0.1:{gone} check inter 60s fall 1")
        ),
        backend("few", " email-alert level emerg\n", &format!("127.0.0.1:{gone} check inter 60s fall 1")),
        backend("notice", " email-alert level notice\n", &format!("127.0.0.1:{mail}")),
        backend("tracks", " email-alert level info\n", "127.0.0.1:9 track usual/s"),
        folder = folder.display(),
    )
}

#[test]
fn mails_are_those_of_haproxy() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let [theirs, ours] = ["haproxy", "baton"].map(|name| MailServer::start(folder.path(), name));
    // Nobody listens there, and nobody else gets it.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound").port();
    let both = Both::start_each(|folder| config(folder, ours.port, gone), |folder| config(folder, theirs.port, gone));
    // Usual, results twice, and who tracks; then these.
    until("checks are mailed", || theirs.mails().len() == 4 && ours.mails().len() == 4);
    for command in ["state drain", "state ready", "state maint", "state ready", "health down"] {
        for socket in [both.haproxy("admin.sock"), both.baton("admin.sock")] {
            assert_eq!(socat(&socket, format!("set server notice/s {command}\n")), "\n");
        }
    }
    // Who tracks a server is mailed about too.
    for command in ["health up", "state drain", "state ready", "state maint", "state ready"] {
        for socket in [both.haproxy("admin.sock"), both.baton("admin.sock")] {
            assert_eq!(socat(&socket, format!("set server usual/s {command}\n")), "\n");
        }
    }
    until("commands are mailed", || theirs.mails().len() >= 8 && ours.mails().len() >= theirs.mails().len());
    assert_eq!(ours.mails(), theirs.mails());
}

/// What a mail server does instead of its response of that number, of which the greeting is 0.
#[derive(Clone, Copy, Debug)]
enum Break {
    Close(usize),
    Refuse(usize),
    Silent(usize),
}

/// The responses to what a mail consists of.
const RESPONSES: [&str; 7] = ["220 x", "250-x\r\n250 y", "250 x", "250-x\r\n250-y\r\n250 z", "354 x", "250 x", "221 x"];

/// A mail server that breaks off the dialogue of each connection in another way; then none. What it was sent, by connection.
struct Breaking {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Breaking {
    fn start(breaks: Vec<Break>) -> Breaking {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (port, seen) = (listener.local_addr().expect("it is bound").port(), Arc::new(Mutex::new(Vec::new())));
        let all = Arc::clone(&seen);
        // It ends with the test's process.
        thread::spawn(move || {
            let mut breaks = breaks.into_iter();
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = talk(&stream, breaks.next());
                drop(stream);
                all.lock().expect("nobody panics with it").push(seen);
            }
        });
        Breaking { port, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

/// A dialogue; gives the commands, and `-` where the other side left.
fn talk(mut stream: &TcpStream, how: Option<Break>) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut commands = String::new();
    for (at, response) in RESPONSES.iter().enumerate() {
        // A mail ends with a dot.
        let line = match at {
            0 => Some(String::new()),
            5 => lines.find(|line| line == "."),
            _ => lines.next(),
        };
        let Some(line) = line else { return commands + "-" };
        commands += line.split([' ', ':']).next().unwrap_or_default();
        commands += " ";
        let response = match how {
            Some(Break::Close(step)) if step == at => return commands,
            Some(Break::Silent(step)) if step == at => {
                let _ = lines.next();
                return commands + "-";
            }
            Some(Break::Refuse(step)) if step == at => "554 x",
            Some(_) | None => response,
        };
        if stream.write_all(format!("{response}\r\n").as_bytes()).is_err() {
            return commands + "-";
        }
    }
    commands
}

#[test]
fn mail_servers_that_break_off_get_each_mail_once_as_from_haproxy() {
    let breaks = || -> Vec<Break> {
        let each = (0..RESPONSES.len()).flat_map(|step| [Break::Close(step), Break::Refuse(step)]);
        each.chain([0, 3, 5, 6].map(Break::Silent)).collect()
    };
    let [theirs, ours] = [(); 2].map(|()| Breaking::start(breaks()));
    let text = |folder: &Path, mail: u16| {
        format!(
            "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\nmailers m\n mailer one 127.0.0.1:{mail}\n timeout mail 2s\n\
             defaults\n mode http\n timeout connect 3s\n timeout client 3s\n timeout server 3s\n\
             listen notice\n bind {folder}/front.sock\n email-alert mailers m\n email-alert from f@x\n email-alert to t@x\n \
             email-alert level notice\n server s 127.0.0.1:9\n",
            folder = folder.display(),
        )
    };
    let both = Both::start_each(|folder| text(folder, ours.port), |folder| text(folder, theirs.port));
    for (at, how) in breaks().into_iter().map(Some).chain([None]).enumerate() {
        for command in ["state drain", "state ready"] {
            for socket in [both.haproxy("admin.sock"), both.baton("admin.sock")] {
                assert_eq!(socat(&socket, format!("set server notice/s {command}\n")), "\n");
            }
        }
        until(&format!("{how:?}"), || theirs.seen().len() == at + 1 && ours.seen().len() == at + 1);
        assert_eq!(ours.seen()[at], theirs.seen()[at], "{how:?}");
    }
}

#[test]
fn a_mail_server_that_is_away_is_reported() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound").port();
    let proxy = crate::support::Proxy::start(&config(folder.path(), gone, gone));
    until("losses are reported", || {
        let said = proxy.said();
        said.contains("email alerts were not delivered") && said.contains("mailer one (127.0.0.1:")
    });
}
