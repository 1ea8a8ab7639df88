//! Sessions held open, alone and beside requests: through haproxy and nginx, and lost when the server goes.

use std::net::SocketAddr;

use baton_prove::origin::OriginKind;
use baton_prove::{Origin, OriginHandle, OriginOptions};

use super::interrupt::Running;
use super::nginx::Nginx;
use super::support::free_address;
use super::support::haproxy::Haproxy;
use super::{Said, load, load_json};

/// A real haproxy before an HTTP origin (also for WebSockets) and a TCP echo.
struct Proxied {
    http: SocketAddr,
    tcp: SocketAddr,
    _haproxy: Haproxy,
    _origins: [OriginHandle; 2],
}

impl Proxied {
    fn start() -> Proxied {
        let origin = |kind| Origin::start(OriginOptions { kind, ..OriginOptions::new("o") }).expect("a free port");
        let origins = [origin(OriginKind::Http), origin(OriginKind::TcpEcho)];
        let folder = tempfile::tempdir().expect("a folder for the test");
        let socket = folder.path().join("stats");
        let (http, tcp) = (free_address(), free_address());
        let config = format!(
            "global\n stats socket {}\n\
             defaults\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n timeout tunnel 1h\n\
             listen web\n mode http\n bind {http}\n server o {}\n\
             listen raw\n mode tcp\n bind {tcp}\n server o {}\n",
            socket.display(),
            origins[0].address(),
            origins[1].address()
        );
        Proxied { http, tcp, _haproxy: Haproxy::start(&config, &socket), _origins: origins }
    }

    fn urls(&self) -> String {
        format!("ws://{0}/ws tcp://{1} http://{0}/bytes/100", self.http, self.tcp)
    }
}

/// Of each group: asked for, alive, whether messages came back.
fn groups(said: &Said) -> Vec<(u64, u64, bool)> {
    let result = said.json();
    let groups = result["sessions"].as_array().expect("a list").iter();
    let count =
        |group: &serde_json::Value, name: &str| group[name].as_u64().unwrap_or_else(|| panic!("{name}: {group}"));
    groups.map(|group| (count(group, "sessions"), count(group, "alive"), count(group, "messages") > 0)).collect()
}

#[test]
fn sessions_live_beside_requests() {
    let proxied = Proxied::start();
    let urls = proxied.urls();
    let said =
        load_json(&format!("-n 300 --rate 1000 -c 4 -k --sessions 3 --interval 5ms --message-bytes 5000 {urls}"));
    assert_eq!(said.counts(), (Some(0), 300, 300, 0), "{said:?}");
    assert_eq!(groups(&said), [(3, 3, true); 2], "{said:?}");
    assert_eq!(said.json()["sessions"][1]["url"], format!("tcp://{}", proxied.tcp));
}

#[test]
fn sessions_alone_end_with_the_time() {
    let proxied = Proxied::start();
    let url = format!("tcp://{}", proxied.tcp);
    let said = load_json(&format!("-t 300ms --sessions 2 --interval never {url}"));
    assert_eq!((said.counts(), groups(&said)), ((Some(0), 0, 0, 0), vec![(2, 2, true)]), "{said:?}");
    let said = load(&["-q", "-t", "200ms", &url]);
    assert!(said.code == Some(0) && said.out.contains("Nothing failed.") && !said.out.contains("requests"), "{said:?}");
}

#[test]
fn a_lost_session_is_a_failure() {
    let proxied = Proxied::start();
    // The path is no WebSocket's.
    let said = load_json(&format!("-n 10 ws://{0}/bytes/1 http://{0}/bytes/1", proxied.http));
    assert_eq!((said.counts(), groups(&said)), ((Some(1), 10, 10, 0), vec![(1, 0, false)]), "{said:?}");
    assert_eq!(said.json()["sessions"][0]["losses"][0]["kind"], "handshake");

    let url = format!("tcp://{}", proxied.tcp);
    let mut running = Running::start(&["-t", "1h", "--interval", "10ms", &url]);
    // It has shown its first line: the session is open.
    drop(proxied);
    let (code, out) = running.end();
    assert!(code == Some(1) && out.contains("SOMETHING FAILED") && out.contains("session 0: "), "{out}");
}

#[test]
fn websockets_through_tls() {
    let origin = Origin::start(OriginOptions::new("o")).expect("loopback has a free port");
    let proxied = format!(
        "ssl_certificate FOLDER/server.pem; ssl_certificate_key FOLDER/server.key;\n\
         location / {{ proxy_pass http://{}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection Upgrade; }}",
        origin.address()
    );
    let guard = "set $given $http_authorization$http_cookie; if ($given != \"Basic YTpiA=1\") { return 403; }";
    let nginx = Nginx::with("ssl", &format!("{guard}\n{proxied}"), super::tls::certificates);
    let authority = nginx.folder.path().join("authority.pem").display().to_string();
    let url = format!("wss://{}/ws", nginx.address);
    let said = load_json(&format!("-t 300ms --ca-file {authority} --sessions 2 --interval 10ms -A a:b -C A=1 {url}"));
    assert_eq!((said.code, groups(&said)), (Some(0), vec![(2, 2, true)]), "{said:?}");
    let said = load_json(&format!("-t 300ms --ca-file {authority} {url}"));
    assert_eq!((said.code, groups(&said)), (Some(1), vec![(1, 0, false)]), "forbidden: {said:?}");
    let said = load_json(&format!("-t 300ms -A a:b -C A=1 {url}"));
    assert_eq!((said.code, groups(&said)), (Some(1), vec![(1, 0, false)]), "not trusted: {said:?}");
}
