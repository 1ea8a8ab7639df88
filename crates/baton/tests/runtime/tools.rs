//! Tools that people have for HAProxy, with Baton's socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use baton_prove::{Origin, OriginOptions};

use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::table::{cell, table};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn start() -> (Proxy, SocketAddr, tempfile::TempDir, baton_prove::OriginHandle) {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (folder, web) = (tempfile::tempdir().unwrap(), free_address());
    let text = format!(
        "global\n nbthread 1\n stats socket {}/a.sock level admin\n stats timeout 20s\ndefaults\n mode http\n \
         timeout connect 5s\n timeout client 5s\n timeout server 5s\nfrontend shopfront\n bind {web}\n default_backend kitchen\n\
         backend kitchen\n server stove {} check inter 50ms\n server oven 127.0.0.1:9 check inter 50ms fall 1\n",
        folder.path().display(),
        origin.address(),
    );
    let proxy = Proxy::start(&text);
    let socket = folder.path().join("a.sock");
    until("checks have found the server that is not there", || {
        cell(&table(&socat(&socket, "show stat\n")), "kitchen", "oven", "status") == "DOWN"
    });
    for _ in 0..5 {
        assert!(get(web, "/").is_some_and(|answer| answer.contains(" 200 ")));
    }
    (proxy, web, folder, origin)
}

#[test]
fn the_prometheus_exporter_reads_every_line() {
    let (_proxy, _, folder, _origin) = start();
    let address = free_address();
    let _exporter = Ended(
        Command::new("prometheus-haproxy-exporter")
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--haproxy.scrape-uri=unix:{}/a.sock", folder.path().display()))
            .stderr(Stdio::null())
            .spawn()
            .expect("the exporter is installed by scripts/setup test"),
    );
    let mut metrics = String::new();
    until("the exporter has read the figures", || {
        metrics = get(address, "/metrics").unwrap_or_default();
        metrics.contains("haproxy_server_up{backend=\"kitchen\",server=\"oven\"} 0")
    });
    for line in [
        "haproxy_up 1",
        "haproxy_exporter_csv_parse_failures_total 0",
        "haproxy_server_up{backend=\"kitchen\",server=\"stove\"} 1",
        "haproxy_frontend_http_responses_total{code=\"2xx\",frontend=\"shopfront\"} 5",
        "haproxy_frontend_sessions_total{frontend=\"shopfront\"} 5",
        "haproxy_backend_up{backend=\"kitchen\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not among:\n{metrics}");
    }
    assert!(metrics.contains("haproxy_version_info"), "{metrics}");
}

#[test]
fn hatop_shows_the_proxies() {
    let (_proxy, _, folder, _origin) = start();
    // `script` makes a terminal for it, and what it draws comes through a pipe.
    let hatop = format!("stty rows 50 cols 200; exec hatop -s {}/a.sock", folder.path().display());
    let mut child = Command::new("script")
        .env("TERM", "xterm")
        .args(["-qec", &hatop, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("script and hatop are installed by scripts/setup test");
    let mut stdout = child.stdout.take().expect("it is piped");
    let child = Ended(child);
    let mut screen = Vec::new();
    let mut room = [0; 4096];
    let wanted = ["Baton", "shopfront", "FRONTEND", "kitchen", "stove", "oven", "BACKEND"];
    let has_all = |screen: &[u8]| {
        let text = String::from_utf8_lossy(screen);
        wanted.iter().all(|word| text.contains(word))
    };
    while !has_all(&screen) {
        match stdout.read(&mut room) {
            Ok(length) if length > 0 && screen.len() < 1 << 20 => screen.extend_from_slice(&room[..length]),
            _ => panic!("hatop ended or never showed it all:\n{}", String::from_utf8_lossy(&screen)),
        }
    }
    drop(child);
}
