//! The program under test with certificates, an origin behind it, and what every test asks of it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use baton_prove::certificates::{Authority, CertificateSpec, Issued, KeyKind};
use baton_prove::{Origin, OriginHandle, OriginOptions};
use tempfile::TempDir;

use crate::support::{free_address, until};
use crate::tool::Tool;

/// A running program. Ended when dropped.
pub struct World {
    pub folder: TempDir,
    pub authority: Authority,
    /// Where it listens with TLS.
    pub web: SocketAddr,
    origin: OriginHandle,
    child: Option<Child>,
}

/// The program under test.
pub fn program() -> PathBuf {
    std::env::var_os("BATON_BIN").map_or_else(|| crate::support::program().to_owned(), PathBuf::from)
}

/// Whether it is Baton, which offers less than others by default.
pub fn is_baton() -> bool {
    program().file_name().is_some_and(|name| name == "baton")
}

/// A first certificate for `a.example` and `127.0.0.1`, shown by `bind … ssl crt`.
pub fn usual() -> World {
    World::start(KeyKind::P256, "crt FOLDER/a.pem")
}

impl World {
    /// Starts with `bind ADDRESS ssl` and these words, in which `FOLDER` stands for the folder. In it are `a.pem` for
    /// `a.example`, `www.a.example`, `127.0.0.1`, `b.pem` for `b.example` and `*.b.example`, `clients.pem` with the authority of
    /// clients, and `client.pem` for one.
    #[track_caller]
    pub fn start(kind: KeyKind, words: &str) -> World {
        World::start_with(kind, words, "", "")
    }

    /// Starts it with lines for `global` and for the frontend.
    #[track_caller]
    pub fn start_with(kind: KeyKind, words: &str, global: &str, frontend: &str) -> World {
        let world = World {
            folder: tempfile::tempdir().expect("a folder for the test"),
            authority: Authority::new("Test").expect("an authority"),
            web: free_address(),
            origin: Origin::start(OriginOptions::new("o")).expect("loopback has a free port"),
            child: None,
        };
        world.write("ca.pem", &world.authority.root_pem());
        world.write("clients.pem", &(world.authority.root_pem() + &world.authority.between_pem()));
        let server = |names: &[&str]| world.issue(&CertificateSpec::server(names.iter().copied()).with_key(kind));
        world.write("a.pem", &server(&["a.example", "www.a.example", "127.0.0.1"]).bundle_pem());
        world.write("b.pem", &server(&["b.example", "*.b.example"]).bundle_pem());
        world.write("client.pem", &world.issue(&CertificateSpec::client("someone")).bundle_pem());
        let (web, origin) = (world.web, world.origin.address());
        let folder = world.folder.path().display().to_string();
        let text = format!(
            "global\n nbthread 2\n maxconn 1000\n stats socket FOLDER/socket level admin\n {global}\ndefaults\n mode http\n \
             timeout connect 5s\n timeout client 30s\n timeout server 30s\nfrontend web\n bind {web} ssl {words}\n {frontend}\n \
             default_backend app\nbackend app\n server s {origin}\n"
        );
        world.write("test.cfg", &text.replace("FOLDER", &folder));
        world.run()
    }

    #[track_caller]
    fn run(mut self) -> World {
        let said = fs::File::create(self.at("said")).expect("the folder is ours");
        let child = Command::new(program())
            .args(["-db", "-f"])
            .arg(self.at("test.cfg"))
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a file"))
            .stderr(said)
            .spawn()
            .expect("the program is there");
        let child = self.child.insert(child);
        let socket = self.folder.path().join("socket");
        let said = self.folder.path().join("said");
        until("the program serves", || {
            if let Some(status) = child.try_wait().expect("it is our child") {
                panic!("it ended with {status}:\n{}", fs::read_to_string(&said).unwrap_or_default());
            }
            UnixStream::connect(&socket).is_ok() && TcpStream::connect(self.web).is_ok()
        });
        self
    }

    #[track_caller]
    pub fn issue(&self, wanted: &CertificateSpec) -> Issued {
        self.authority.issue(wanted).expect("a certificate")
    }

    pub fn at(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Writes a file of the folder.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.at(file), text).expect("the folder is ours");
    }

    /// A URL with the server's name, for clients that are told where the name is.
    pub fn url(&self, name: &str, path: &str) -> String {
        format!("https://{name}:{}{path}", self.web.port())
    }

    /// curl, which trusts the authority and knows where `name` is, with more words.
    pub fn curl(&self, name: &str, path: &str, words: &[&str]) -> Tool {
        let place = format!("{name}:{}:127.0.0.1", self.web.port());
        let mut tool = Tool::new("curl", &["--silent", "--show-error", "--max-time", "20", "--resolve", &place]);
        tool.word("--cacert").word(self.at("ca.pem")).words(words).word(self.url(name, path));
        tool
    }

    /// It lives, said nothing of a panic, and serves a client that checks everything.
    #[track_caller]
    pub fn serves(&mut self) {
        let child = self.child.as_mut().expect("it was started");
        let status = child.try_wait().expect("it is our child");
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        assert!(status.is_none() && !said.contains("panicked"), "{status:?}:\n{said}");
        let said = self.curl("a.example", "/bytes/10", &[]).run();
        assert_eq!((said.code, said.out.len()), (Some(0), 10), "{said:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
