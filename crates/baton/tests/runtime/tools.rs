//! Tools that people have for HAProxy, with Baton's socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use baton_prove::{Origin, OriginOptions};

use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::table::{cell, table};

pub struct Ended(pub Child);

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
    let wanted = ["baton", "shopfront", "FRONTEND", "kitchen", "stove", "oven", "BACKEND"];
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

/// What a program does that uses `haproxyadmin`, the library that many scripts are written with.
const HAPROXYADMIN: &str = r#"
import sys
from haproxyadmin import haproxy
h = haproxy.HAProxy(socket_file=sys.argv[1])
web, kitchen = h.frontend('shopfront'), h.backend('kitchen')
print([f.name for f in h.frontends()], [b.name for b in h.backends()], [s.name for s in kitchen.servers()])
print(web.status, web.setmaxconn(33), web.maxconn, web.disable(), web.status, web.enable(), web.status)
stove = kitchen.server('stove')
print(stove.setstate(haproxy.STATE_DISABLE if hasattr(haproxy, 'STATE_DISABLE') else 'disable'), stove.status)
print(stove.setstate('enable'), stove.setweight(20), stove.weight, stove.get_weight() if hasattr(stove, 'get_weight') else 20)
print(h.setmaxconn(100), h.maxconn, h.setratelimitconn(1000), h.ratelimitconn, h.setratelimitsess(1001), h.ratelimitsess)
print(h.errors()[0][1][0][:21], h.clearcounters(all=True), h.command('show version')[0][1][0][:4])
oven = kitchen.server('oven')
print(oven.setstate('disable'), oven.status)
"#;

#[test]
fn haproxyadmin_manages_it() {
    let has = Command::new("python3").args(["-c", "import haproxyadmin"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: needs 'pip install haproxyadmin'");
        return;
    }
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock");
    let output =
        Command::new("python3").args(["-c", HAPROXYADMIN]).arg(&socket).output().expect("python3 is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let expect = "['shopfront'] ['kitchen'] ['stove', 'oven']\nOPEN True 33 True PAUSED True OPEN\nTrue MAINT\n\
                  True True 20 20\nTrue 100 True 1000 True 1001\nTotal events captured True 2.6.\nTrue MAINT\n";
    assert_eq!(said, expect);
}

#[test]
fn scripts_of_the_manual_work_by_socat() {
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock");
    // As a shell has them, with socat's own end of lines and of input.
    let run = |script: &str| {
        let script = script.replace("/var/run/haproxy.sock", &socket.display().to_string());
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let status = "echo \"show info;show stat\" | socat stdio unix-connect:/var/run/haproxy.sock | grep -c \
                  \"^Name: HAProxy\\|^kitchen,BACKEND\"";
    assert_eq!(run(status), "2\n");
    let pid = "echo 'show info' | socat /var/run/haproxy.sock - | grep -c ^Pid";
    assert_eq!(run(pid), "1\n");
    let drain = "echo \"set server kitchen/stove state drain; set weight kitchen/oven 50%\" | socat /var/run/haproxy.sock stdio";
    assert_eq!(run(drain), "\n\n");
    let cut = "echo 'show stat' | socat stdio /var/run/haproxy.sock | cut -d, -f1,2,18 | grep stove";
    assert_eq!(run(cut), "kitchen,stove,DRAIN\n");
    let all =
        "echo 'show servers state kitchen' | socat stdio /var/run/haproxy.sock | awk 'NR > 2 && NF {print $4, $7}'";
    assert_eq!(run(all), "stove 8\noven 0\n");
    let typed = "echo 'show info typed' | socat stdio /var/run/haproxy.sock | grep -c '^15.Maxconn.1:CLP:u32:'";
    assert_eq!(run(typed), "1\n");
    let several =
        "printf 'prompt\\nset timeout cli 10s\\nshow cli level\\nquit\\n' | socat stdio /var/run/haproxy.sock";
    assert_eq!(run(several), "\n> \n> admin\n\n> ");
}
