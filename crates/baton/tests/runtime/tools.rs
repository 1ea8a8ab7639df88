//! Tools that people have for HAProxy, with Baton's socket.

use std::fs;
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

pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn start() -> (Proxy, SocketAddr, tempfile::TempDir, baton_prove::OriginHandle) {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (folder, web, tcp) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    fs::write(folder.path().join("port"), tcp.port().to_string()).unwrap();
    let text = format!(
        "global\n nbthread 1\n stats socket {}/a.sock level admin\n stats socket {tcp} level admin\n stats timeout 20s\ndefaults\n mode http\n \
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

/// What a program does that uses `haprapi`, over TCP.
const HAPRAPI: &str = r#"
import sys
from haprapi.client import HAPRapi
h = HAPRapi('127.0.0.1', int(sys.argv[1]))
print([f['value']['value'] for f in h.get_info() if f['field']['name'] in ('Name', 'Nbthread')])
print([(row['pxname'], row['svname'], row['status']) for row in h.get_stats()])
kitchen = h.parse_backend_data(h.get_backend('kitchen'))
print(kitchen.id, kitchen.name, [(s.name, s.address, s.operational_state.name, s.admin_state.name) for s in kitchen.servers])
print(h.enable_server('kitchen', 'nobody'), h.send_command('disable server kitchen/stove') == '\n')
print(h.parse_backend_data(h.get_backend('kitchen')).servers[0].admin_state.name)
print([row['bkname/svname'] for row in h.get_server_connections('kitchen')])
"#;

fn library(name: &str) -> bool {
    let has = Command::new("python3").args(["-c", &format!("import {name}")]).stderr(Stdio::null()).status();
    let is_there = has.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("SKIPPED: needs the Python module {name}, which scripts/setup test installs");
    }
    is_there
}

/// What a program prints, and its exit code.
#[track_caller]
fn printed(command: &mut Command) -> (String, Option<i32>) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (text.into_owned(), output.status.code())
}

#[test]
fn haproxyadmin_manages_it() {
    if !library("haproxyadmin") {
        return;
    }
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock");
    let said = printed(Command::new("python3").args(["-c", HAPROXYADMIN]).arg(&socket));
    let expect = "['shopfront'] ['kitchen'] ['stove', 'oven']\nOPEN True 33 True PAUSED True OPEN\nTrue MAINT\n\
                  True True 20 20\nTrue 100 True 1000 True 1001\nTotal events captured True 2.6.\nTrue MAINT\n";
    assert_eq!(said, (expect.into(), Some(0)));
}

#[test]
fn haprapi_reads_it_over_tcp() {
    if !library("haprapi") {
        return;
    }
    let (_proxy, _, folder, _origin) = start();
    let port = fs::read_to_string(folder.path().join("port")).unwrap();
    let said = printed(Command::new("python3").args(["-c", HAPRAPI, &port]));
    let expect = "['HAProxy', 1]\n[('shopfront', 'FRONTEND', 'OPEN'), ('kitchen', 'stove', 'UP'), ('kitchen', 'oven', 'DOWN'), \
                  ('kitchen', 'BACKEND', 'UP')]\n3 kitchen [('stove', '127.0.0.1', 'RUNNING', 'READY'), ('oven', '127.0.0.1', \
                  'STOPPED', 'READY')]\nTrue True\nMAINTENANCE\n['kitchen/stove', 'kitchen/oven']\n";
    assert_eq!(said, (expect.into(), Some(0)));
}

#[test]
fn haproxytool_manages_it() {
    if !library("haproxytool") {
        return;
    }
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock").display().to_string();
    let check = |arguments: &str, expect: &str| {
        let words: Vec<&str> = arguments.split(' ').collect();
        let (area, rest) = words.split_first().unwrap();
        let program = "from haproxytool import cli; cli.main()";
        let mut command = Command::new("python3");
        command.args(["-c", program, area, "-F", &socket]).args(rest);
        assert_eq!(printed(&mut command), (expect.into(), Some(0)), "{arguments}");
    };
    check("frontend -l", "shopfront\n");
    check("haproxy -w maxconn 100", "set maxconn to 100\n");
    check("haproxy -m Maxconn", "Maxconn = 100\n");
    check("server --backend=kitchen -w 7 stove", "stove backend set weight to 7 in kitchen backend\n");
    check("server -f -n stove", "stove set to drain in kitchen backend\n");
    check("server -R stove", "stove set to ready in kitchen backend\n");
    check("dump -s", "# server name, status, requests, backend\nstove,UP,5,kitchen\noven,DOWN,0,kitchen\n");
}

#[test]
fn haproxy_cli_manages_it() {
    if !library("haproxy.cmds") {
        return;
    }
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock").display().to_string();
    let scripts =
        printed(Command::new("python3").args(["-c", "import sysconfig; print(sysconfig.get_path('scripts'))"])).0;
    let program = format!("{}/haproxy-cli", scripts.trim());
    // It ends its commands with CR LF.
    let cli =
        |arguments: &[&str]| printed(Command::new("python3").args([&program, "-k", &socket, "-c"]).args(arguments)).0;
    assert_eq!(cli(&["frontends"]), "shopfront\n");
    assert_eq!(cli(&["backends"]), "kitchen\n");
    assert!(cli(&["info"]).starts_with("Name: HAProxy\n"));
    assert_eq!(cli(&["set-weight", "-b", "kitchen", "-s", "stove", "-w", "9"]), "None\n");
    assert_eq!(cli(&["get-weight", "-b", "kitchen", "-s", "stove"]), "9 (initial 1)\n\n\n");
    assert_eq!(cli(&["disable", "-b", "kitchen", "-s", "stove"]), "None\n");
    let servers = cli(&["servers", "-b", "kitchen"]);
    assert!(servers.starts_with("Name: stove Status: MAINT Weight: 9 "), "{servers}");
}

#[test]
fn the_plugin_of_nagios_finds_the_server_that_is_down() {
    let (_proxy, _, folder, _origin) = start();
    let socket = folder.path().join("a.sock");
    let check = |arguments: &[&str]| {
        let plugin = "/usr/lib/nagios/plugins/check_haproxy_stats";
        printed(Command::new(plugin).arg("-s").arg(&socket).args(arguments))
    };
    let (text, code) = check(&[]);
    let expect = "Check haproxy CRITICAL - server: kitchen:oven is DOWN (check status: connection error); |";
    assert!(code == Some(2) && text.starts_with(expect), "{code:?} {text}");
    socat(&socket, "disable server kitchen/oven\n");
    let (text, code) = check(&["-m"]);
    assert!(code == Some(0) && text.starts_with("Check haproxy OK - checked "), "{code:?} {text}");
    assert!(text.contains("kitchen-BACKEND=0;"), "{text}");
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
