//! `mode tcp` in front of servers that speak TLS themselves: the name in a client's hello chooses, and nothing is decrypted.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use baton_prove::certificates::{Authority, CertificateSpec};
use support::{PATIENCE, Proxy, free_address};

/// A server of openssl that tells of each connection; ends when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(bundle: &Path, between: &Path) -> Server {
        let mut child = Command::new("openssl")
            .args(["s_server", "-www", "-accept", "127.0.0.1:0", "-cert"])
            .arg(bundle)
            .arg("-cert_chain")
            .arg(between)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed by scripts/setup");
        let said = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let address = said.filter_map(|line| line.strip_prefix("ACCEPT ")?.parse().ok()).next();
        let address = address.expect("it says where it listens");
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// curl's answer: whether a server with a certificate of that name answered.
fn reaches(at: SocketAddr, name: &str, root: &Path, more: &[&str]) -> bool {
    let run = Command::new("curl")
        .args(["--silent", "--fail", "--max-time", "20", "--connect-to"])
        .args([format!("{name}:443:{at}"), "--cacert".into(), root.to_string_lossy().into_owned()])
        .args(more)
        .arg(format!("https://{name}/"))
        .output()
        .expect("curl is installed by scripts/setup");
    run.status.success() && String::from_utf8_lossy(&run.stdout).contains("s_server")
}

struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Files {
        let files = Files {
            folder: tempfile::tempdir().expect("a folder can be made"),
            authority: Authority::new("Test").expect("keys can be made"),
        };
        std::fs::write(files.path("root.pem"), files.authority.root_pem()).expect("the folder is ours");
        std::fs::write(files.path("between.pem"), files.authority.between_pem()).expect("the folder is ours");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self, file: &str, name: &str) -> Server {
        let issued = self.authority.issue(&CertificateSpec::server([name])).expect("the name is one");
        std::fs::write(self.path(file), issued.bundle_pem()).expect("the folder is ours");
        Server::start(&self.path(file), &self.path("between.pem"))
    }
}

#[test]
fn the_name_of_the_hello_chooses_the_server() {
    let files = Files::new();
    let (a, b, acme) =
        (files.server("a", "a.example"), files.server("b", "*.b.example"), files.server("c", "a.example"));
    let at = free_address();
    let proxy = Proxy::start(&format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend tls\n bind {at}\n tcp-request inspect-delay 20s\n\
         tcp-request content accept if {{ req.ssl_hello_type 1 }}\n tcp-request content reject\n\
         use_backend acme if {{ req.ssl_alpn acme-tls/1 }}\n\
         use_backend a if {{ req.ssl_sni -i A.example }}\n use_backend %[req.ssl_sni,lower,field(-2,.)] if {{ req.ssl_sni -m end .b.example }}\n\
         backend a\n server a {}\nbackend b\n server b {}\nbackend acme\n server acme {}\n",
        a.address, b.address, acme.address
    ));
    let root = files.path("root.pem");
    let visit = |name: &str, more: &[&str]| reaches(at, name, &root, more);
    assert!(visit("a.example", &[]), "{}", proxy.said());
    assert!(visit("A.EXAMPLE", &["--tls-max", "1.2"]));
    assert!(visit("x.b.example", &[]) && visit("Y.b.example", &[]));
    assert!(!visit("c.example", &[]), "nobody has the name");
    drop(a);
    assert!(!visit("a.example", &[]), "its server is gone");
    // Nothing that can become a hello is not waited for: the 20 seconds are more than this test's patience with a socket.
    let mut stranger = TcpStream::connect(at).expect("it listens");
    stranger.set_read_timeout(Some(PATIENCE / 2)).expect("a time is set");
    stranger.write_all(b"SSH-2.0-stranger\r\n").expect("it is accepted");
    let mut answer = Vec::new();
    let _ = stranger
        .read_to_end(&mut answer)
        .map_err(|error| assert!(!matches!(error.kind(), std::io::ErrorKind::WouldBlock)));
    assert!(answer.is_empty());
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_waited_for() {
    let files = Files::new();
    let a = files.server("a", "a.example");
    let at = free_address();
    let _proxy = Proxy::start(&format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         listen tls\n bind {at}\n tcp-request inspect-delay 20s\n\
         tcp-request content accept if {{ req.ssl_sni a.example }}\n tcp-request content reject if {{ req.ssl_hello_type 1 }}\n\
         server a {}\n",
        a.address
    ));
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has both versions")
        .with_root_certificates({
            let mut roots = rustls::RootCertStore::empty();
            roots.add(files.authority.root().clone()).expect("it is a certificate");
            roots
        })
        .with_no_client_auth();
    let mut config = std::sync::Arc::new(config);
    // Records of a few bytes of the message each.
    std::sync::Arc::make_mut(&mut config).max_fragment_size = Some(40);
    let name = "a.example".try_into().expect("it is a name");
    let mut client = rustls::ClientConnection::new(config, name).expect("the settings are whole");
    let mut socket = TcpStream::connect(at).expect("it listens");
    socket.set_nodelay(true).expect("it is a socket");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory can be written");
    for byte in &hello {
        socket.write_all(&[*byte]).expect("it is accepted");
    }
    client.complete_io(&mut socket).expect("the server behind it answers the handshake");
    assert!(!client.is_handshaking());
}
