//! Servers to connect to, with certificates of every kind, made for the test.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use baton_prove::certificates::{Authority, CertificateSpec};
use tempfile::TempDir;

use crate::support::{free_address, until};

/// Certificates in a folder, and servers that show them.
pub struct Servers {
    pub folder: TempDir,
    children: Vec<Child>,
    /// Takes connections and says nothing.
    _stalling: TcpListener,
    places: Vec<(&'static str, SocketAddr)>,
}

/// Servers that nginx is: what stands behind their address, and their words.
const NGINX: &[(&str, &str, &str)] = &[
    ("good", "ssl", "ssl_certificate good.pem; ssl_certificate_key good.pem;"),
    ("expired", "ssl", "ssl_certificate expired.pem; ssl_certificate_key expired.pem;"),
    ("own", "ssl", "ssl_certificate own.pem; ssl_certificate_key own.pem;"),
    ("revoked", "ssl", "ssl_certificate revoked.pem; ssl_certificate_key revoked.pem;"),
    (
        "asking",
        "ssl",
        "ssl_certificate good.pem; ssl_certificate_key good.pem; ssl_verify_client on; ssl_client_certificate ca.pem; \
         ssl_verify_depth 3; add_header x-shown $ssl_client_serial;",
    ),
    ("proxied", "ssl proxy_protocol", "ssl_certificate good.pem; ssl_certificate_key good.pem;"),
    ("plain", "", ""),
    ("two", "http2", ""),
    ("two-tls", "ssl http2", "ssl_certificate good.pem; ssl_certificate_key good.pem;"),
];

impl Servers {
    pub fn start() -> Servers {
        let folder = tempfile::tempdir().expect("a folder for the test");
        write_certificates(folder.path());
        let mut places = Vec::new();
        let mut blocks = String::new();
        let seen = "add_header x-seen '$server_protocol $request_method $host $request_uri $content_length.';";
        for (name, tls, words) in NGINX {
            let address = free_address();
            places.push((*name, address));
            blocks += &format!("server {{ listen {address} {tls}; {words} {seen} location / {{ return 200 ok; }} }}\n");
        }
        let config = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
             log_format tls '$ssl_session_reused $ssl_server_name $http_host $connection $ssl_protocol';\n\
             access_log access.log tls; keepalive_requests 1000000; client_body_temp_path body; proxy_temp_path proxy;\n\
             fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n\
             ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:one:1m; ssl_session_tickets on;\n{blocks}}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("the folder is ours");
        let mut nginx = Command::new("nginx");
        nginx.args(["-e", "error.log", "-c", "nginx.conf", "-p"]).arg(format!("{}/", folder.path().display()));
        let mut children = vec![quiet(&mut nginx, folder.path()).expect("nginx is installed by scripts/setup test")];
        let old = free_address();
        let mut s_server = Command::new("openssl");
        s_server.args(["s_server", "-www", "-quiet", "-tls1_2", "-accept"]);
        s_server.arg(old.to_string()).args(["-cert", "good.pem", "-key", "good.pem", "-cert_chain", "good.pem"]);
        children.push(quiet(&mut s_server, folder.path()).expect("openssl is installed by scripts/setup test"));
        places.push(("old", old));
        for (name, address) in &places {
            until(name, || TcpStream::connect(address).is_ok());
        }
        let stalling = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        places.push(("stalling", stalling.local_addr().expect("a bound socket has an address")));
        Servers { folder, children, _stalling: stalling, places }
    }

    pub fn at(&self, name: &str) -> SocketAddr {
        self.places.iter().find(|(other, _)| *other == name).expect("a server of that name").1
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The words of a `server` line: `$NAME` is a server's address, and files stand in the folder.
    pub fn words(&self, text: &str) -> String {
        let word = |word: &str| match word.strip_prefix('$') {
            Some(name) => self.at(name).to_string(),
            None if word.ends_with(".pem") => self.file(word).display().to_string(),
            None => word.to_string(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// Lines of nginx' log since its beginning, once there are `count`.
    pub fn served(&self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        until("nginx has logged", || {
            let mut text = String::new();
            let log = fs::File::open(self.file("access.log"));
            let _ = log.and_then(|mut log| log.read_to_string(&mut text));
            lines = text.lines().map(str::to_string).collect();
            lines.len() >= count
        });
        lines
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn quiet(command: &mut Command, folder: &Path) -> std::io::Result<Child> {
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn write_certificates(folder: &Path) {
    let (authority, stranger) = (Authority::new("one").expect("made"), Authority::new("other").expect("made"));
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("the folder is ours");
    let issue = |wanted: &CertificateSpec| authority.issue(wanted).expect("issued");
    let good = || CertificateSpec::server(["a.example", "*.b.example"]);
    let revoked = issue(&good());
    write("ca.pem", authority.root_pem());
    write("other.pem", stranger.root_pem());
    let first = issue(&good());
    write("good.pem", first.bundle_pem());
    write("expired.pem", issue(&good().expired()).bundle_pem());
    write("revoked.pem", revoked.bundle_pem());
    write("client.pem", issue(&CertificateSpec::client("baton")).bundle_pem());
    write("next-client.pem", issue(&CertificateSpec::client("next")).bundle_pem());
    write("crl.pem", authority.revoke(&[revoked.serial]).expect("a list"));
    write("crl-all.pem", authority.revoke(&[revoked.serial, first.serial]).expect("a list"));
    let own = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"])
        .args(["-subj", "/CN=own.example", "-keyout", "own.key", "-out", "own-crt.pem"])
        .current_dir(folder)
        .stderr(Stdio::null())
        .status();
    assert!(own.expect("openssl is installed by scripts/setup test").success());
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("openssl wrote it");
    write("own.pem", read("own-crt.pem") + &read("own.key"));
}
