//! The TLS of Go and Java as clients and as servers, and of a browser as client, in every version and with every suite: their connections
//! go to the new process in the middle, with half a record on its way in each direction.

mod browser;
mod updates;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use baton_prove::certificates::{Authority, CertificateSpec, KeyKind};
use tempfile::TempDir;

use crate::support::{Proxy, free_address, until};
use crate::tunnels::replaced;

/// Version, suite by its registered name, and by the one of OpenSSL: all that are offered.
const SUITES: [(&str, &str, &str); 9] = [
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ("TLSv1.2", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ("TLSv1.3", "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLSv1.3", "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
];

/// Connections of each client: one that moves, one by which sessions can be resumed on both sides, and one by which they are.
const CONNECTIONS: usize = 3;

/// The certificate with whose key this suite is used.
fn certificate((_, suite, _): (&str, &str, &str)) -> &'static str {
    if suite.contains("_RSA_") { "rsa.pem" } else { "ec.pem" }
}

/// The words of a line by which only this suite can be agreed on.
fn only((version, _, name): (&str, &str, &str)) -> String {
    let keyword = if version == "TLSv1.3" { "ciphersuites" } else { "ciphers" };
    format!("ssl-min-ver {version} ssl-max-ver {version} {keyword} {name}")
}

/// Certificates for `a.example` and 127.0.0.1: `ca.pem`, `ec.pem` and `rsa.pem`.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Test").expect("an authority");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("the folder is ours");
    write("ca.pem", authority.root_pem());
    for (name, kind) in [("ec.pem", KeyKind::P256), ("rsa.pem", KeyKind::Rsa2048)] {
        let spec = CertificateSpec::server(["a.example", "127.0.0.1"]).with_key(kind);
        write(name, authority.issue(&spec).expect("a certificate").bundle_pem());
    }
    folder
}

/// A program that is told what to do by lines, and tells by lines what has happened. It ends with this.
struct Peer {
    child: Child,
    input: ChildStdin,
    said: Arc<Mutex<Vec<String>>>,
    errors: PathBuf,
}

impl Peer {
    fn start(command: &mut Command, folder: &Path) -> Peer {
        let errors = folder.join(format!("errors-{}", command.get_program().to_string_lossy().replace('/', "-")));
        let errors_file = std::fs::File::create(&errors).expect("the folder is ours");
        command.arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors_file);
        let mut child = command.spawn().expect("it is installed by scripts/setup test");
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn({
            let said = said.clone();
            move || {
                for line in output.lines().map_while(Result::ok) {
                    said.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
        });
        let input = child.stdin.take().expect("it is piped");
        Peer { child, input, said, errors }
    }

    /// A program of Go, which is built in the folder; what was built for it before is used again.
    fn go(folder: &Path) -> Peer {
        let program = folder.join("peer");
        std::fs::write(folder.join("peer.go"), include_str!("peer.go")).expect("the folder is ours");
        let built = Command::new("go").args(["build", "-o", "peer", "peer.go"]).current_dir(folder).output();
        let built = built.expect("Go is installed by scripts/setup test");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Peer::start(&mut Command::new(program), folder)
    }

    fn java(folder: &Path) -> Peer {
        let source = folder.join("Peer.java");
        std::fs::write(&source, include_str!("Peer.java")).expect("the folder is ours");
        let mut java = Command::new("java");
        // Its machine takes half of a machine's memory otherwise. An end of a connection that was not said is an error, and each new key is
        // told on standard error.
        java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dcom.sun.net.ssl.requireCloseNotify=true"]);
        java.arg("-Djavax.net.debug=ssl:handshake").arg(source);
        Peer::start(&mut java, folder)
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).expect("it reads");
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often it has said what begins with this; nothing has failed.
    #[track_caller]
    fn count(&self, start: &str) -> usize {
        let said = self.said();
        if let Some(failed) = said.iter().find(|line| line.starts_with("failed")) {
            panic!("{failed}");
        }
        said.iter().filter(|line| line.starts_with(start)).count()
    }

    /// Where its servers listen, in turn.
    #[track_caller]
    fn ports(&self, count: usize) -> Vec<String> {
        until("its servers listen", || self.count("port ") == count);
        let mut ports = BTreeMap::new();
        for line in self.said() {
            if let ["port", id, port] = line.split(' ').collect::<Vec<_>>()[..] {
                ports.insert(id.parse::<usize>().expect("a number"), port.to_owned());
            }
        }
        ports.into_values().collect()
    }

    /// What it wrote to standard error.
    fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let failed = self.said().into_iter().filter(|line| line.starts_with("failed"));
            println!("{}:\n{}", self.errors.display(), failed.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// For each suite Baton between a client and a server that know this one alone.
fn config(folder: &Path, fronts: &[SocketAddr], ports: &[String]) -> String {
    let folder = folder.display();
    let mut text = "global\n nbthread 2\n maxconn 2000\n log stderr format raw local0\ndefaults\n mode tcp\n log global\n \
        timeout connect 5s\n timeout client 60s\n timeout server 60s\n log-format \"agreed %[ssl_fc_protocol] %[ssl_fc_cipher] \
        %[ssl_fc_is_resumed] %ts\"\n"
        .to_owned();
    for ((at, front), (port, suite)) in fronts.iter().enumerate().zip(ports.iter().zip(SUITES.iter().cycle())) {
        let (crt, only) = (certificate(*suite), only(*suite));
        text += &format!(
            "listen l{at}\n bind {front} ssl crt {folder}/{crt} {only}\n \
             server s 127.0.0.1:{port} ssl verify required ca-file {folder}/ca.pem verifyhost a.example sni str(a.example) {only}\n"
        );
    }
    text
}

#[test]
fn go_and_java_with_every_suite_on_both_sides() {
    let folder = certificates();
    // Java takes longer to start.
    let mut java = Peer::java(folder.path());
    let mut go = Peer::go(folder.path());
    let count = SUITES.len();
    for peer in [&mut java, &mut go] {
        for (at, (version, suite, _)) in SUITES.into_iter().enumerate() {
            peer.tell(&format!("serve {at} {version} {suite}"));
        }
    }
    // Clients of Go have servers of Java, and the other way round.
    let ports = [java.ports(count), go.ports(count)].concat();
    let fronts: Vec<SocketAddr> = (0..2 * count).map(|_| free_address()).collect();
    let mut now = Proxy::start(&config(folder.path(), &fronts, &ports));
    for (peer, fronts) in [(&mut go, &fronts[..count]), (&mut java, &fronts[count..])] {
        for ((at, front), (version, suite, _)) in fronts.iter().enumerate().zip(SUITES) {
            peer.tell(&format!("connect c{at} {} {version} {suite}", front.port()));
        }
    }
    // Each has sent megabytes, and half of a record: clients and servers.
    until("all are in the middle of a record", || [&go, &java].iter().all(|peer| peer.count("half ") == 2 * count));
    let old = replaced(&mut now, 1);
    assert_eq!(now.status().connections_staying, Default::default());
    go.tell("go");
    java.tell("go");
    until("all have come to their end", || [&go, &java].iter().all(|peer| peer.count("done ") == count));
    until("servers too", || [&go, &java].iter().all(|peer| peer.count("ended ") == CONNECTIONS * count));
    until("each is logged", || now.said().matches("agreed ").count() == CONNECTIONS * 2 * count);
    let said = now.said();
    for (at, (version, _, name)) in SUITES.into_iter().enumerate() {
        let agreed = |resumed: u8| said.matches(&format!("agreed {version} {name} {resumed} --")).count();
        assert_eq!((agreed(0), agreed(1)), (2, 2 * (CONNECTIONS - 1)), "{version} {name}:\n{said}");
        for peer in [&go, &java] {
            assert!(peer.count(&format!("ended {at}, resumed")) >= 1, "{version} {name}: {:?}", peer.said());
        }
    }
    // Java has begun and asked for new keys, with which all of this was read.
    let errors = java.errors();
    for text in ["Produced KeyUpdate post-handshake message", "Consuming KeyUpdate post-handshake message"] {
        let count = errors.matches(text).count();
        assert!(count >= 2 * 3 * 8, "{text}: {count} times, for each client and server of TLS 1.3 and 4 MiB");
    }
    for old in old {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
    }
}
