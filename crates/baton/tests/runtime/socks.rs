//! `socks4`: servers by way of a real SOCKS4 proxy (Debian's dante-server), in haproxy and in Baton.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};

use baton_prove::{Origin, OriginOptions};

use crate::peers::{Both, socat};
use crate::support::{free_address, until};
use crate::table::{cell, table};

/// A SOCKS proxy that connects to wherever it is asked to.
struct Dante(Child);

impl Dante {
    fn start(folder: &Path, port: u16) -> Dante {
        let (config, pid) = (folder.join("danted.conf"), folder.join("danted.pid"));
        let text = format!(
            "logoutput: /dev/null\ninternal: 127.0.0.1 port = {port}\nexternal: 127.0.0.1\nclientmethod: none\nsocksmethod: none\n\
             user.privileged: root\nuser.unprivileged: nobody\nclient pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}\n\
             socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 protocol: tcp }}\n"
        );
        fs::write(&config, text).expect("the folder is ours");
        let mut command = Command::new("/usr/sbin/danted");
        let child = command.arg("-f").arg(&config).arg("-p").arg(&pid).spawn().expect("dante-server is installed");
        let dante = Dante(child);
        until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        dante
    }
}

impl Drop for Dante {
    fn drop(&mut self) {
        // SIGTERM ends its children, too. It may have ended.
        let _ = Command::new("/bin/kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn status(web: &Path) -> String {
    let mut client = std::os::unix::net::UnixStream::connect(web).expect("it listens");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("text");
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn servers_by_way_of_a_socks4_proxy() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (folder, port) = (tempfile::tempdir().expect("a folder for the test"), free_address().port());
    let dante = Dante::start(folder.path(), port);
    let both = Both::start(|folder| {
        format!(
            "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\n max-spread-checks 20ms\n\
             defaults\n mode http\n timeout connect 3s\n timeout client 3s\n timeout server 3s\n retries 0\n\
             frontend f\n bind {folder}/web.sock\n default_backend b\n\
             backend b\n server s {origin} socks4 127.0.0.1:{port}\n\
             backend c\n option httpchk\n server s {origin} socks4 127.0.0.1:{port} check inter 50ms fall 1 rise 1 check-via-socks4\n",
            folder = folder.display(),
            origin = origin.address(),
        )
    });
    let check = |expect_status: &str, expect: &str| {
        let haproxy = (both.haproxy("web.sock"), both.haproxy("admin.sock"));
        for (web, admin) in [haproxy, (both.baton("web.sock"), both.baton("admin.sock"))] {
            until(expect, || cell(&table(&socat(&admin, "show stat\n")), "c", "s", "status") == expect);
            assert_eq!(status(&web), expect_status, "{}", web.display());
        }
    };
    check("HTTP/1.1 200 OK", "UP");
    drop(dante);
    check("HTTP/1.1 503 Service Unavailable", "DOWN");
}
