//! `show sess`, `shutdown session` and `wait`: sessions of real clients, of thousands of them, and a reader that takes its time.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_prove::{Origin, OriginHandle, OriginOptions};
use tempfile::TempDir;

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};

/// Sessions of the large test; as many as fit, up to 10,000, with this variable.
const MANY: &str = "BATON_TEST_SESSIONS";

struct Served {
    folder: TempDir,
    proxy: Proxy,
    web: SocketAddr,
    tcp: SocketAddr,
    _origin: OriginHandle,
}

impl Served {
    fn start(global: &str) -> Served {
        let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
        let (folder, web, tcp) = (tempfile::tempdir().unwrap(), free_address(), free_address());
        let text = format!(
            "global\n nbthread 2\n{global} stats timeout 20s\n stats socket {}/a.sock level admin\n\
             defaults\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             frontend web\n mode http\n bind {web}\n default_backend app\nbackend app\n mode http\n server s1 {o}\n server s2 {o}\n\
             listen through\n mode tcp\n bind {tcp}\n server t1 {o}\n",
            folder.path().display(),
            o = origin.address(),
        );
        Served { proxy: Proxy::start(&text), folder, web, tcp, _origin: origin }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("a.sock")
    }

    fn sessions(&self) -> Vec<String> {
        let text = socat(&self.socket(), "show sess\n");
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A field of a line of `show sess`.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

fn id(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

#[test]
fn a_session_is_listed_with_where_it_is_and_can_be_ended() {
    let served = Served::start("");
    let mut through = connect(served.tcp);
    let idle = connect(served.web);
    let of = |stream: &TcpStream| {
        let source = stream.local_addr().unwrap().to_string();
        let mut found = None;
        until("it is listed", || {
            found = served.sessions().into_iter().find(|line| field(line, "src") == source);
            found.is_some()
        });
        found.expect("it was found")
    };
    until("it is on a server", || field(&of(&through), "srv") == "t1");
    let line = of(&through);
    assert_eq!(
        ["proto", "fe", "be", "srv", "state"].map(|name| field(&line, name)),
        ["tcpv4", "through", "through", "t1", "busy"]
    );
    let waiting = of(&idle);
    let shown = ["fe", "be", "srv", "state", "req"].map(|name| field(&waiting, name));
    assert_eq!(shown, ["web", "<NONE>", "<none>", "idle", "0"]);
    assert_eq!(id(&of(&through)), id(&line), "its id stays");
    assert_ne!(id(&line), id(&waiting));

    let details = socat(&served.socket(), format!("show sess {}\n", id(&line)));
    for wanted in ["  frontend=through (id=", "  backend=through (id=", "  server=t1 (id=1)\n", "state=busy"] {
        assert!(details.contains(wanted), "{wanted}: {details}");
    }
    assert!(details.starts_with(&format!("{}: [", id(&line))), "{details}");
    let all = socat(&served.socket(), "show sess all\n");
    assert_eq!(all.matches("\n  frontend=").count(), 2, "{all}");
    assert_eq!(socat(&served.socket(), "show sess older 1h\n"), "\n");
    assert_eq!(socat(&served.socket(), "show sess older 0\n").lines().count(), 3);

    let end = format!("shutdown session {}\n", id(&line));
    assert_eq!(socat(&served.socket(), &end), "\n");
    assert_eq!(through.read(&mut [0; 16]).unwrap_or(0), 0, "it is ended");
    until("it is gone", || socat(&served.socket(), &end) == "No such session (use 'show sess').\n\n");
    assert_eq!(socat(&served.socket(), format!("show sess {}\n", id(&line))), "Session not found.\n\n");
    assert_eq!(served.sessions().len(), 1, "the other one goes on");
    drop(idle);
}

#[test]
fn the_sessions_of_one_server_are_ended_and_no_others() {
    let served = Served::start("");
    // Requests that their server never answers, on both servers of the backend.
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = slow.local_addr().map(|address| (slow, address)).unwrap();
    let set = format!("set server app/s1 addr 127.0.0.1 port {}\n", slow.1.port());
    assert!(socat(&served.socket(), set).contains("port changed from"));
    let mut waiting: Vec<TcpStream> = (0..4).map(|_| connect(served.web)).collect();
    for stream in &mut waiting {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    let on = |server: &str| served.sessions().iter().filter(|line| field(line, "srv") == server).count();
    until("half of them wait for the server that is silent", || on("s1") == 2);
    let other = connect(served.tcp);
    until("another server has a session", || on("t1") == 1);
    assert_eq!(socat(&served.socket(), "shutdown sessions server app/s1\n"), "\n");
    until("they are ended", || on("s1") == 0);
    assert_eq!(on("t1"), 1);
    drop(other);

    // Where a server was moved to is an override like others.
    let shown = socat(&served.socket(), "show overrides\n");
    let moved = format!("server app/s1 addr 127.0.0.1:{} (file: ", slow.1.port());
    assert!(shown.starts_with(&moved), "{shown}");
    assert_eq!(
        socat(&served.socket(), "set maxconn server app/s2 9;set server app/s1 check-port 80\n"),
        "\nhealth checks are not enabled on this server\n\n"
    );
    let saved = socat(&served.socket(), "save overrides\n");
    assert!(
        saved.contains(&format!("    server s1 127.0.0.1:{}\n", slow.1.port())) && saved.contains(" maxconn 9\n"),
        "{saved}"
    );
    assert_eq!(socat(&served.socket(), "clear overrides\n"), "\n");
    let mut client = connect(served.web);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(client.read(&mut [0; 64]).unwrap() > 0, "the server of the file responds");
}

#[test]
fn waiting_ends_when_a_server_can_be_deleted() {
    let served = Served::start("");
    let socket = served.socket();
    assert_eq!(socat(&socket, "wait 1ms\n"), "\n");
    assert_eq!(socat(&socket, "wait\n"), "Expects a duration in milliseconds.\n\n");
    assert_eq!(socat(&socket, "wait 1 srv-removable through/x\n"), "No such server.\n\n");
    let refused = "Only servers in maintenance mode can be deleted.\n\n";
    assert_eq!(socat(&socket, "wait 1 srv-removable through/t1\n"), refused);
    let client = connect(served.tcp);
    until("it is on the server", || served.sessions().iter().any(|line| field(line, "srv") == "t1"));
    assert_eq!(socat(&socket, "disable server through/t1\n"), "\n");
    assert_eq!(socat(&socket, "wait 1ms srv-removable through/t1\n"), "Wait delay expired.\n\n");
    let both = "shutdown sessions server through/t1;wait 20s srv-removable through/t1;del server through/t1\n";
    assert_eq!(socat(&socket, both), "\nDone.\n\nServer deleted.\n\n");
    drop(client);
}

#[test]
fn a_closed_frontend_takes_nobody_and_opens_again() {
    let served = Served::start("");
    let is_open = || TcpStream::connect_timeout(&served.tcp, Duration::from_millis(200)).is_ok();
    let kept = connect(served.tcp);
    assert_eq!(socat(&served.socket(), "disable frontend through\n"), "\n");
    until("nobody is let in", || !is_open());
    assert!(served.sessions().iter().any(|line| field(line, "fe") == "through"), "those inside go on");
    let text = std::fs::read_to_string(&served.proxy.config).unwrap();
    served.proxy.change(&text.replace("nbthread 2\n", "nbthread 2\n description x\n"));
    assert!(!is_open(), "a reload opens nothing that an operator has closed");
    assert_eq!(socat(&served.socket(), "enable frontend through\n"), "\n");
    assert!(is_open());
    assert_eq!(socat(&served.socket(), "shutdown frontend through\n"), "\n");
    until("it is shut", || !is_open());
    let again = "Frontend was previously shut down, cannot enable.\n\n";
    assert_eq!(socat(&served.socket(), "enable frontend through\n"), again);
    served.proxy.change(&text);
    assert!(is_open(), "a reload opens it again");
    drop(kept);
}

#[test]
fn limits_hold_at_once_and_until_the_file_has_another_one() {
    let served = Served::start(" maxconn 100\n");
    assert_eq!(socat(&served.socket(), "set maxconn frontend through 1\n"), "\n");
    let first = connect(served.tcp);
    let count = || served.sessions().iter().filter(|line| field(line, "fe") == "through").count();
    until("the first is inside", || count() == 1);
    let second = connect(served.tcp);
    let text = std::fs::read_to_string(&served.proxy.config).unwrap();
    served.proxy.change(&text.replace("nbthread 2\n", "nbthread 2\n description x\n"));
    assert_eq!(count(), 1, "the other one waits in the kernel's queue");
    served.proxy.change(&text.replace("mode tcp\n", "mode tcp\n maxconn 50\n"));
    until("the file has another limit", || count() == 2);
    assert_eq!(socat(&served.socket(), "set maxconn global 2\n"), "\n");
    assert!(socat(&served.socket(), "show info\n").contains("\nMaxconn: 2\nHard_maxconn: 100\n"));
    let third = connect(served.tcp);
    assert_eq!(count(), 2);
    assert_eq!(socat(&served.socket(), "set maxconn global 0;set rate-limit sessions global 50\n"), "\n\n");
    until("there is room again", || count() == 3);
    assert!(socat(&served.socket(), "show info\n").contains("\nSessRateLimit: 50\n"));
    drop((first, second, third));
}

#[test]
fn malformed_messages_are_kept_as_by_haproxy() {
    let bad = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = bad.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in bad.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 x20 OK\r\n\r\nbody");
        }
    });
    let webs = [free_address(), free_address()];
    let text = |folder: &Path, web: SocketAddr| {
        format!(
            "global\n nbthread 1\n stats socket {}/admin.sock level admin\ndefaults\n mode http\n timeout connect 5s\n \
             timeout client 5s\n timeout server 5s\n retries 0\nfrontend web\n bind {web}\n default_backend app\nbackend app\n \
             server s2 {server}\n",
            folder.display()
        )
    };
    let both = Both::start_each(|folder| text(folder, webs[0]), |folder| text(folder, webs[1]));
    for web in webs {
        for request in [&b"GET\x01\xff\t\"\\ / HTTP/1.1\r\n\r\n"[..], b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut stream = connect(web);
            stream.write_all(request).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    // Times and ports are each one's own, and the inside of HAProxy's parser.
    let normal = |text: String| -> Vec<String> {
        let line = |line: &str| {
            let line = line.split(", src ").next().unwrap_or_default();
            let line = match line.split_once("] ") {
                Some((_, rest)) if line.starts_with('[') => rest,
                _ => line,
            };
            line.split("captured on").next().unwrap_or_default().replace("wraps at 16336, ", "")
        };
        let is_inside = |line: &&str| line.starts_with("  H1 ") || line.starts_with("  buffer starts");
        text.lines().filter(|line| !is_inside(line)).map(line).collect()
    };
    for filter in ["", " web", " app response", " web response", " app request", " 2", " -1 request"] {
        let ask = |socket: &Path| normal(socat(socket, format!("show errors{filter}\n")));
        assert_eq!(ask(&both.baton("admin.sock")), ask(&both.haproxy("admin.sock")), "{filter}");
    }
}

#[test]
fn a_slow_reader_of_many_sessions_holds_up_nobody() {
    // Two descriptors for each here, and one in the process.
    let room = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).map_or(1024, |limit| limit.1);
    let wanted = std::env::var(MANY).ok().and_then(|text| text.parse().ok()).unwrap_or(1500u64);
    let count = wanted.min(room / 2 - 200) as usize;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, room, room).unwrap();
    let served = Served::start(&format!(" maxconn {}\n", count + 100));
    let clients: Vec<TcpStream> = (0..count).map(|_| connect(served.web)).collect();
    until("all are inside", || served.proxy.status().connections as usize >= count);

    let mut lazy = UnixStream::connect(served.socket()).unwrap();
    lazy.set_read_timeout(Some(PATIENCE)).unwrap();
    lazy.write_all(b"show sess all;show sess all;show sess all\n").unwrap();
    let mut ids: HashSet<String> = HashSet::new();
    let begun = Instant::now();
    for _ in 0..20 {
        // Nobody waits for it: neither operators nor clients.
        assert!(socat(&served.socket(), "show version\n").starts_with("2.6."));
        let mut other = connect(served.web);
        other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
    assert!(begun.elapsed() < PATIENCE);
    // Everybody who is there all the time is listed once.
    let listed = served.sessions();
    for line in &listed {
        assert!(ids.insert(id(line).to_owned()), "twice: {line}");
    }
    let sources: HashSet<&str> = listed.iter().map(|line| field(line, "src")).collect();
    let missing = clients.iter().filter(|stream| !sources.contains(&*stream.local_addr().unwrap().to_string())).count();
    assert_eq!(missing, 0);
    let mut text = String::new();
    lazy.read_to_string(&mut text).expect("the lazy one gets all of it");
    assert!(text.matches("\n  frontend=web").count() >= 3 * count, "{}", text.len());
}
