//! `email-alert`: what haproxy and Baton mail about the same servers to a real mail server has to be equal.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

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
        backend("tracks", " email-alert level notice\n", "127.0.0.1:9 track usual/s"),
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
    until("commands are mailed", || theirs.mails().len() == 6 && ours.mails().len() >= 6);
    assert_eq!(ours.mails(), theirs.mails());
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
