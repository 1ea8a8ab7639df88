//! Every cipher suite of both versions, with OpenSSL and GnuTLS at the other end, on either side of Baton; and keys that change in between.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use baton_prove::certificates::{Authority, CertificateSpec};

use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::world::{World, usual};

/// What OpenSSL calls the suites of TLS 1.2, and GnuTLS their ciphers.
const OLD: [(&str, &str); 3] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "AES-128-GCM"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "AES-256-GCM"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "CHACHA20-POLY1305"),
];
/// Suites of TLS 1.3, by both.
const NEW: [(&str, &str); 3] = [
    ("TLS_AES_128_GCM_SHA256", "AES-128-GCM"),
    ("TLS_AES_256_GCM_SHA384", "AES-256-GCM"),
    ("TLS_CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
];

fn openssl_words(suite: &'static str) -> [&'static str; 3] {
    if suite.starts_with("TLS_") { ["-tls1_3", "-ciphersuites", suite] } else { ["-tls1_2", "-cipher", suite] }
}

fn gnutls_priority(suite: &str, cipher: &str) -> String {
    let version = if suite.starts_with("TLS_") { "TLS1.3" } else { "TLS1.2" };
    format!("NORMAL:-VERS-ALL:+VERS-{version}:-CIPHER-ALL:+{cipher}")
}

fn suites() -> impl Iterator<Item = (&'static str, &'static str)> {
    OLD.into_iter().chain(NEW)
}

/// A program that is talked to. It ends with this.
struct Program {
    child: Child,
    input: ChildStdin,
    said: Arc<Mutex<String>>,
}

impl Program {
    fn start(name: &str, words: &[&str]) -> Program {
        let mut command = Command::new(name);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|_| panic!("{name} is not installed, see scripts/setup"));
        let said: Arc<Mutex<String>> = Arc::default();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
            child.stderr.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
        ];
        for mut output in outputs.into_iter().flatten() {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(count @ 1..) = output.read(&mut some) {
                    let text = String::from_utf8_lossy(&some[..count]);
                    said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                }
            });
        }
        let input = child.stdin.take().expect("it is piped");
        Program { child, input, said }
    }

    fn types(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).and_then(|()| self.input.flush()).expect("it reads");
    }

    /// Waits until it has said something so often.
    #[track_caller]
    fn says(&self, text: &str, times: usize) {
        until(&format!("{text:?}, {times} times"), || {
            self.said.lock().unwrap_or_else(PoisonError::into_inner).matches(text).count() >= times
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = said.lines().filter(|line| line.len() < 200).collect::<Vec<_>>();
            println!("it said: {}", lines.join("\n"));
        }
    }
}

const REQUEST: &str = "GET /bytes/70000 HTTP/1.1\r\nHost: a.example\r\n\r\n";

fn client(world: &World, name: &str, words: &[&str]) -> Program {
    let (ca, port) = (world.at("ca.pem").display().to_string(), world.web.port().to_string());
    let own: &[&str] = match name {
        "openssl" => &["s_client", "-CAfile", &ca, "-connect", &format!("127.0.0.1:{port}")],
        _ => &["--x509cafile", &ca, "--inline-commands", "-p", &port],
    };
    let own = [own, words, if name == "openssl" { &[] } else { &["127.0.0.1"] }].concat();
    Program::start(name, &own)
}

#[test]
fn clients_in_every_suite_with_keys_that_change() {
    let world = usual();
    for (suite, cipher) in suites() {
        let is_new = suite.starts_with("TLS_");
        let mut openssl = client(&world, "openssl", &openssl_words(suite));
        openssl.types(REQUEST);
        openssl.says("HTTP/1.1 200 ", 1);
        openssl.says(suite, 1);
        if is_new {
            // Each command is a line that is read alone: one asks for our next key, too.
            for (at, command) in ["K\n", "k\n", "K\n"].into_iter().enumerate() {
                openssl.types(command);
                openssl.says("KEYUPDATE\n", at + 1);
                openssl.types(REQUEST);
                openssl.says("HTTP/1.1 200 ", at + 2);
            }
        }
        let mut gnutls = client(&world, "gnutls-cli", &["--priority", &gnutls_priority(suite, cipher)]);
        gnutls.says("Handshake was completed", 1);
        gnutls.types(REQUEST);
        gnutls.says("HTTP/1.1 200 ", 1);
        if is_new {
            for round in 1..3 {
                gnutls.types("^rekey^\n");
                gnutls.says("Rekey was completed", round);
                gnutls.types(REQUEST);
                gnutls.says("HTTP/1.1 200 ", round + 1);
            }
        }
    }
}

/// A line through Baton to a server, and what the server makes of it.
#[track_caller]
fn check(front: SocketAddr, line: &str, expect: &str) {
    let mut stream = TcpStream::connect(front).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for _ in 0..3 {
        stream.write_all(line.as_bytes()).expect("it is open");
        let mut reply = vec![0; expect.len()];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&reply), expect);
    }
}

#[test]
fn servers_in_every_suite() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Test").expect("an authority");
    let issued = authority.issue(&CertificateSpec::server(["a.example"])).expect("a certificate");
    let pem = folder.path().join("a.pem").display().to_string();
    std::fs::write(&pem, issued.bundle_pem()).expect("the folder is ours");
    let mut text = "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n".to_owned();
    let mut servers = Vec::new();
    for (at, (suite, cipher)) in suites().enumerate() {
        let places = [free_address(), free_address()].map(|address| address.port().to_string());
        let version = openssl_words(suite);
        let openssl =
            [&["s_server", "-quiet", "-rev", "-accept", &places[0], "-cert", &pem, "-key", &pem], &version[..]];
        let priority = gnutls_priority(suite, cipher);
        let gnutls =
            ["--echo", "-p", &places[1], "--x509certfile", &pem, "--x509keyfile", &pem, "--priority", &priority];
        let programs = [Program::start("openssl", &openssl.concat()), Program::start("gnutls-serv", &gnutls)];
        let fronts = [free_address(), free_address()];
        for (nth, (front, place)) in fronts.iter().zip(&places).enumerate() {
            text += &format!("listen l{at}-{nth}\n bind {front}\n server s 127.0.0.1:{place} ssl verify none\n");
        }
        servers.push((programs, places, fronts));
    }
    let _proxy = Proxy::start(&text);
    for (_programs, places, [openssl, gnutls]) in &servers {
        for place in places {
            until("it listens", || TcpStream::connect(format!("127.0.0.1:{place}")).is_ok());
        }
        check(*openssl, "0123456789\n", "9876543210\n");
        check(*gnutls, "0123456789\n", "0123456789\n");
    }
}
