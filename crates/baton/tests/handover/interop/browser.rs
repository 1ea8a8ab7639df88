//! Chromium: requests over each suite, and the same connections once more after they have moved.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::{SUITES, certificate, certificates, only};
use crate::origins;
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::tunnels::replaced;

/// Sends bodies of 1 byte, of a record and of 2 MiB to an echo behind each address, waits until the connections have moved, and does it again.
/// Everything is done before the page has come to its end, so that its text is the result.
const PAGE: &str = r#"<!doctype html><p id="result">nothing</p><script>
const said = [];
function ask(url, body) {
    const request = new XMLHttpRequest();
    request.open("POST", url, false);
    request.send(body);
    return request.responseText;
}
function numbered(count) {
    let text = "";
    for (let at = 0; text.length < count; at++) text += String.fromCharCode(97 + at % 26) + at;
    return text.slice(0, count);
}
try {
    for (const round of [1, 2]) {
        for (const port of PORTS) {
            const right = [1, 16384, 2 << 20].filter(count => {
                const body = numbered(count);
                return ask(`https://127.0.0.1:${port}/echo`, body) === body;
            });
            said.push(`${round}:${right.length}`);
        }
        if (round === 1) ask("/moved", "");
    }
} catch (error) {
    said.push(String(error));
}
document.getElementById("result").textContent = said.join(" ");
</script>"#;

/// Serves the page, and answers the other request when the connections have moved.
fn site(listener: TcpListener, page: String, asked: Sender<()>, moved: Receiver<()>) {
    let moved = Arc::new(Mutex::new(moved));
    for stream in listener.incoming().map_while(Result::ok) {
        let (page, asked, moved) = (page.clone(), asked.clone(), moved.clone());
        std::thread::spawn(move || {
            let mut stream: TcpStream = stream;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read_exact(&mut byte).is_err() {
                    return;
                }
                head.push(byte[0]);
            }
            let is_wait = head.starts_with(b"POST /moved ");
            if is_wait {
                let _ = asked.send(());
                let _ = moved.lock().expect("one waits").recv_timeout(PATIENCE);
            }
            let body = if is_wait { "" } else { &page };
            let length = body.len();
            let response = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(response.as_bytes());
        });
    }
}

fn config(folder: &str, fronts: &[SocketAddr], server: SocketAddr) -> String {
    let mut text = "global\n nbthread 2\n maxconn 500\n log stderr format raw local0\ndefaults\n mode http\n timeout connect 5s\n \
        timeout client 60s\n timeout server 60s\n"
        .to_owned();
    for ((at, front), suite) in fronts.iter().enumerate().zip(SUITES) {
        let (crt, only) = (certificate(suite), only(suite));
        let _ = write!(
            text,
            "frontend f{at}\n log global\n log-format \"agreed %[ssl_fc_protocol] %[ssl_fc_cipher] %ST %tsc\"\n \
             bind {front} ssl crt {folder}/{crt} {only}\n \
             http-response set-header access-control-allow-origin *\n default_backend app\n"
        );
    }
    text + &format!("backend app\n server s {server}\n")
}

#[test]
fn chromium_with_every_suite() {
    let folder = certificates();
    let (_origins, servers) = origins(1);
    let fronts: Vec<SocketAddr> = SUITES.iter().map(|_| free_address()).collect();
    let mut now = Proxy::start(&config(&folder.path().display().to_string(), &fronts, servers[0]));
    let ports: Vec<u16> = fronts.iter().map(SocketAddr::port).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let page = format!("http://{}/", listener.local_addr().expect("bound"));
    let ((asked, is_asked), (moved, is_moved)) = (channel(), channel());
    let text = PAGE.replace("PORTS", &format!("{ports:?}"));
    std::thread::spawn(move || site(listener, text, asked, is_moved));
    let mut chromium = Command::new("timeout");
    chromium.args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors"]);
    chromium.arg("--disable-dev-shm-usage").arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    chromium.args(["--dump-dom", &page]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let chromium = chromium.spawn().expect("timeout is part of every Linux");
    if is_asked.recv_timeout(PATIENCE).is_err() {
        let output = chromium.wait_with_output().expect("it is our child");
        panic!("the page is not half done: {}\n{}", String::from_utf8_lossy(&output.stdout), now.said());
    }
    let count = now.status().connections;
    assert!(count >= SUITES.len(), "{count} kept ones");
    let old = replaced(&mut now, 1);
    moved.send(()).expect("it waits");
    let output = chromium.wait_with_output().expect("it is our child");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let expect = ["1:3", "2:3"].map(|each| vec![each; SUITES.len()].join(" ")).join(" ");
    assert!(shown.contains(&format!(">{expect}<")), "{shown}");
    for (version, _, name) in SUITES {
        let line = format!("agreed {version} {name} 200 --");
        until(&line, || now.said().matches(&line).count() == 3);
    }
    for old in old {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
}
