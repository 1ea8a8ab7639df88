//! TLS on the change path of a whole process: certificates and settings of a configuration come into use by a reload, connections
//! from before go on as they are, and what cannot be used changes nothing.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use baton_prove::certificates::{Authority, CertificateSpec, Issued, KeyKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::{PATIENCE, Proxy, free_address, program, readable, until};
use tempfile::TempDir;

const HAPROXY: &str = "/usr/sbin/haproxy";

/// A folder of certificates, and who issues them.
struct World {
    authority: Authority,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder for the test");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("the folder is ours");
        World { authority: Authority::new("Test").expect("an authority can be made"), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Puts a file there at once.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let aside = self.folder.path().join(format!("{name}.new"));
        fs::write(&aside, content).and_then(|()| fs::rename(&aside, self.path(name))).expect("the folder is ours");
    }

    /// Issues a certificate and puts it there with its key.
    fn issue(&self, name: &str, host: &str) -> Issued {
        let issued = self.authority.issue(&CertificateSpec::server([host])).expect("a certificate can be issued");
        self.write(name, issued.bundle_pem());
        issued
    }

    fn client_config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.root().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites")
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// A connection whose handshake is complete, or why there is none.
    fn connect(&self, address: SocketAddr, host: &str) -> std::io::Result<Client> {
        Client::connect(address, host, self.client_config())
    }
}

/// A client that speaks TLS.
struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    fn connect(address: SocketAddr, host: &str, config: ClientConfig) -> std::io::Result<Client> {
        let name = ServerName::try_from(host.to_owned()).expect("a host's name");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut session = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Client(StreamOwned::new(session, stream)))
    }

    /// The certificate that was shown.
    fn certificate(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().expect("the handshake is complete")[0].clone().into_owned()
    }

    /// One request on the kept connection; the answer's status line.
    fn request(&mut self) -> std::io::Result<String> {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
    }
}

/// A frontend that answers by itself.
fn config(global: &str, bind: &str) -> String {
    format!(
        "global\n nbthread 2\n{global}defaults\n mode http\n timeout client 30s\n timeout connect 5s\n timeout server 5s\n\
         frontend web\n bind {bind}\n http-request return status 200\n"
    )
}

#[track_caller]
fn assert_served(client: &mut Client) {
    assert_eq!(client.request().expect("an answer"), "HTTP/1.1 200 OK");
}

#[test]
fn curl_is_answered_by_name() {
    let world = World::new();
    for host in ["a.test", "b.test", "c.test"] {
        world.issue(&format!("{host}.pem"), host);
    }
    world.write("ca.pem", world.authority.root_pem());
    world.write("list", "b.test.pem [ssl-min-ver TLSv1.3]\nc.test.pem other.test\n");
    let address = free_address();
    let global = format!(" crt-base {}\n", world.folder.path().display());
    let bind = format!("{address} ssl crt a.test.pem crt-list {}", world.path("list"));
    let _proxy = Proxy::start(&config(&global, &bind));
    let curl = |host: &str, more: &[&str]| {
        let output = Command::new("curl")
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code} %{ssl_verify_result}",
                "--cacert",
                &world.path("ca.pem"),
            ])
            .args(["--resolve", &format!("{host}:{}:{}", address.port(), address.ip())])
            .args(more)
            .arg(format!("https://{host}:{}/", address.port()))
            .output()
            .expect("curl is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl("a.test", &[]), "200 0");
    assert_eq!(curl("b.test", &[]), "200 0");
    assert!(curl("b.test", &["--tls-max", "1.2"]).starts_with("000"), "its line asks for TLSv1.3");
    assert_eq!(curl("a.test", &["--tls-max", "1.2"]), "200 0");
    // A filter takes the place of the certificate's own names.
    let shown = |host: &str| world.connect(address, host).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(shown("c.test").contains("not valid for name"), "{}", shown("c.test"));
    assert!(shown("other.test").contains("not valid for name"), "{}", shown("other.test"));
}

#[test]
fn a_reload_takes_new_certificates_and_leaves_connections_as_they_are() {
    let world = World::new();
    let old = world.issue("a.pem", "a.test");
    world.issue("b.pem", "b.test");
    let address = free_address();
    let text = config("", &format!("{address} ssl crt {} crt {}", world.path("a.pem"), world.path("b.pem")));
    let proxy = Proxy::start(&text);
    let mut kept = world.connect(address, "a.test").unwrap();
    assert_served(&mut kept);
    assert_eq!(kept.certificate(), old.chain()[0]);

    let changes = |outcome: &baton_control::protocol::Outcome| {
        outcome.plan.changes.iter().map(|change| change.change.clone()).collect::<Vec<_>>()
    };
    assert_eq!(changes(&proxy.change(&text)), [""; 0], "nothing changed");
    let new = world.issue("a.pem", "a.test");
    let replaced = [format!("certificate {} replaced", world.path("a.pem"))];
    let planned = Command::new(program()).args(["plan", "--pid", &proxy.pid().to_string()]).output().unwrap();
    assert!(String::from_utf8_lossy(&planned.stdout).contains(&replaced[0]), "{planned:?}");
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), old.chain()[0], "a plan changes nothing");
    assert_eq!(changes(&proxy.change(&text)), replaced);
    assert_eq!(changes(&proxy.change(&text)), [""; 0]);

    let mut next = world.connect(address, "a.test").unwrap();
    assert_eq!(next.certificate(), new.chain()[0]);
    assert_served(&mut next);
    assert_served(&mut kept);
    assert_eq!(kept.certificate(), old.chain()[0]);
}

#[test]
fn settings_hold_from_the_next_handshake_on() {
    let world = World::new();
    world.issue("a.pem", "a.test");
    world.write("ca.pem", world.authority.root_pem());
    let address = free_address();
    let text = |more: &str| config("", &format!("{address} ssl crt {}{more}", world.path("a.pem")));
    let with = |protocols: &[&str]| {
        let mut config = world.client_config();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Client::connect(address, "a.test", config).unwrap()
    };
    let agreed = |client: &Client| client.0.conn.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    let proxy = Proxy::start(&text(""));
    let mut kept = with(&["http/1.1"]);
    assert_eq!(agreed(&kept), None);
    assert_served(&mut kept);

    let outcome = proxy.change(&text(" alpn h2,http/1.1"));
    assert_eq!(outcome.plan.changes[0].change, format!("frontend web: TLS settings of bind {address} changed"));
    assert_eq!(agreed(&with(&["h2", "http/1.1"])).as_deref(), Some("h2"));
    assert_eq!(agreed(&with(&["http/1.1"])).as_deref(), Some("http/1.1"));
    assert_served(&mut kept);

    proxy.change(&text(&format!(" verify required ca-file {}", world.path("ca.pem"))));
    let refused = |client: std::io::Result<Client>| client.and_then(|mut client| client.request()).is_err();
    assert!(refused(world.connect(address, "a.test")), "a certificate is required");
    assert_served(&mut kept);
    let issued = world.authority.issue(&CertificateSpec::client("somebody")).unwrap();
    let mut config = world.client_config();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&issued.key()).unwrap();
    let known = rustls::sign::CertifiedKey::new(issued.chain(), key);
    config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(known));
    assert_served(&mut Client::connect(address, "a.test", config).unwrap());

    // Clear text, on the same address.
    proxy.change(&text("").replace(" ssl crt", " # ssl crt"));
    assert_served(&mut kept);
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_cannot_be_used_is_refused_with_all_reasons() {
    let world = World::new();
    let old = world.issue("a.pem", "a.test");
    let b = world.issue("b.pem", "b.test");
    fs::create_dir(world.path("empty")).unwrap();
    let address = free_address();
    let text = |more: &str| config("", &format!("{address} ssl crt {}{more}", world.path("a.pem")));
    let proxy = Proxy::start(&text(""));
    let mut kept = world.connect(address, "a.test").unwrap();
    let check = |text: &str, expect: &[&str]| {
        let reasons = proxy.change_refused(text);
        expect.iter().for_each(|expect| assert!(reasons.contains(expect), "'{expect}' is not in\n{reasons}"));
        assert_eq!(world.connect(address, "a.test").unwrap().certificate(), old.chain()[0]);
    };
    let rsa = world.authority.issue(&CertificateSpec::server(["a.test"]).with_key(KeyKind::Rsa2048)).unwrap();
    world.write("a.pem", format!("{}{}", b.chain_pem(), rsa.key_pem()));
    world.write("b.pem", &b.bundle_pem()[..300]);
    check(
        &text(&format!(" crt {} crt {}", world.path("b.pem"), world.path("none.pem"))),
        &[
            "test.cfg:9",
            "a.pem",
            "belongs to another certificate",
            "b.pem",
            "has no END line",
            "none.pem",
            "no such file",
            &address.to_string(),
        ],
    );
    world.write("a.pem", old.bundle_pem());
    check(&text("").replace("a.pem", "empty"), &["no SSL certificate"]);
    check(&text(" tls-ticket-keys /none"), &["tls-ticket-keys '/none'", "unable to load ssl tickets keys file"]);
    check(&text(" verify required ca-file /none"), &["'/none' cannot be used"]);
    check(&text(" ssl-max-ver TLSv1.0"), &["RFC 8996"]);
    // What is good is not in use either, when something else is not.
    let new = world.issue("a.pem", "a.test");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let both = format!("{}\n bind {}", world.path("a.pem"), taken.local_addr().unwrap());
    check(&text("").replace(&world.path("a.pem"), &both), &["address already in use"]);
    assert_served(&mut kept);
    proxy.change(&text(""));
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), new.chain()[0]);
}

#[test]
fn a_thousand_certificates_of_a_directory() {
    let world = World::new();
    let folder = world.folder.path().join("many");
    fs::create_dir(&folder).unwrap();
    let host = |number: u32| format!("h{number}.test");
    let put = |number: u32| {
        let issued = world.authority.issue(&CertificateSpec::server([&*host(number)])).unwrap();
        fs::write(folder.join(format!("{number}.pem")), issued.bundle_pem()).unwrap();
        issued
    };
    let mut issued: Vec<_> = (0..1000).map(put).collect();
    let address = free_address();
    let text = config("", &format!("{address} ssl crt {} strict-sni", folder.display()));
    let proxy = Proxy::start(&text);
    let shown = |number: u32| world.connect(address, &host(number)).unwrap().certificate();
    for number in [0, 1, 499, 999] {
        assert_eq!(shown(number), issued[number as usize].chain()[0]);
    }
    assert!(world.connect(address, "h1000.test").is_err(), "strict-sni");
    issued[499] = put(499);
    let more = put(1000);
    let outcome = proxy.change(&text);
    assert_eq!(outcome.plan.changes.len(), 1, "{:?}", outcome.plan);
    assert!(outcome.plan.changes[0].change.contains("499.pem replaced"), "{:?}", outcome.plan);
    assert_eq!((shown(499), shown(1000)), (issued[499].chain()[0].clone(), more.chain()[0].clone()));
    assert_eq!(shown(500), issued[500].chain()[0]);
}

/// Keys that only root may read are read before root is given up; later, what did not change needs not be read.
#[test]
fn certificates_outlive_root_and_the_cage() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to give rights up");
        return;
    }
    let world = World::new();
    let old = world.issue("a.pem", "a.test");
    let cage = tempfile::tempdir().unwrap();
    let secret = || fs::set_permissions(world.path("a.pem"), PermissionsExt::from_mode(0o600)).unwrap();
    secret();
    // A file that was written while it was read would have to be read once more.
    let changed = || fs::metadata(world.path("a.pem")).and_then(|found| found.modified()).unwrap();
    until("the file is older than a tick of the clock", || changed().elapsed().is_ok_and(|age| age.as_millis() > 100));
    let address = free_address();
    let global = format!(" uid 61234\n gid 61235\n chroot {}\n", cage.path().display());
    let text = |more: &str| config(&global, &format!("{address} ssl crt {}{more}", world.path("a.pem")));
    let proxy = Proxy::start(&text(""));
    readable(&proxy);
    fs::set_permissions(&proxy.config, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), old.chain()[0]);
    proxy.change(&text(" strict-sni"));
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), old.chain()[0]);

    let new = world.issue("a.pem", "a.test");
    secret();
    let reasons = proxy.change_refused(&text(""));
    assert!(reasons.contains("permission denied") && reasons.contains("a.pem"), "{reasons}");
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), old.chain()[0]);
    fs::set_permissions(world.path("a.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    proxy.change(&text(""));
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), new.chain()[0]);
}

/// A worker that replaces one that died works by the text that was in use, with the certificates that the files hold then.
#[test]
fn a_worker_that_dies_is_replaced_with_the_certificates_of_now() {
    let world = World::new();
    world.issue("a.pem", "a.test");
    world.issue("b.pem", "b.test");
    let address = free_address();
    let text = config("", &format!("{address} ssl crt {} crt {}", world.path("a.pem"), world.path("b.pem")));
    let proxy = Proxy::start_with(&text, &["-W"]);
    let worker = || match ask(Whom::Pid(proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => status.pid,
        _ => 0,
    };
    let before = worker();
    assert_served(&mut world.connect(address, "a.test").unwrap());
    let new = world.issue("a.pem", "a.test");
    proxy.write("this is no configuration");
    kill(Pid::from_raw(before as i32), Signal::SIGKILL).expect("the worker lives");
    until("another worker serves", || ![0, before].contains(&worker()));
    let mut client = world.connect(address, "a.test").unwrap();
    assert_eq!(client.certificate(), new.chain()[0]);
    assert_served(&mut client);

    // One that cannot be used just now takes nobody else with it.
    let before = worker();
    world.write("b.pem", "half of it");
    kill(Pid::from_raw(before as i32), Signal::SIGKILL).expect("the worker lives");
    until("another worker serves", || ![0, before].contains(&worker()));
    assert_eq!(world.connect(address, "a.test").unwrap().certificate(), new.chain()[0]);
    assert!(proxy.said().contains("b.pem"), "{}", proxy.said());
}

/// Files of certificates, judged by `-c`: the verdict is that of HAProxy.
#[test]
fn files_are_judged_as_by_haproxy() {
    if !Path::new(HAPROXY).exists() {
        eprintln!("SKIPPED: {HAPROXY} is not installed, nothing was compared");
        return;
    }
    let world = World::new();
    let a = world.issue("a.pem", "a.test");
    let rsa = world.authority.issue(&CertificateSpec::server(["r.test"]).with_key(KeyKind::Rsa2048)).unwrap();
    let bundle = a.bundle_pem();
    let files = [
        ("empty.pem", String::new()),
        ("junk.pem", "junk\n".into()),
        ("cut.pem", bundle[..bundle.len() / 3].into()),
        ("nokey.pem", a.chain_pem()),
        ("keyonly.pem", a.key_pem().into()),
        ("mismatch.pem", format!("{}{}", a.chain_pem(), rsa.key_pem())),
        ("keyfirst.pem", format!("{}{}", a.key_pem(), a.chain_pem())),
        ("split.pem", rsa.chain_pem()),
        ("split.pem.key", rsa.key_pem().into()),
        ("expired.pem", world.authority.issue(&CertificateSpec::server(["e.test"]).expired()).unwrap().bundle_pem()),
        ("multi.rsa", rsa.bundle_pem()),
        ("multi.ecdsa", bundle.clone()),
        ("ca.pem", world.authority.root_pem()),
        (
            "list",
            format!(
                "{} *.x !y.x\n{} [verify optional ca-file {}]\n",
                world.path("a.pem"),
                world.path("keyfirst.pem"),
                world.path("ca.pem")
            ),
        ),
        ("badlist", format!("{}\n{}\n", world.path("a.pem"), world.path("mismatch.pem"))),
        ("good.keys", "b".repeat(63) + "A=\n"),
        ("tickets", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n".repeat(3)),
    ];
    for (name, content) in &files {
        world.write(name, content);
    }
    for name in ["dir", "emptydir", "baddir"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    for (name, content) in [("dir/1.pem", &bundle), ("dir/2.pem", &rsa.bundle_pem()), ("baddir/1.pem", &a.chain_pem())]
    {
        fs::write(world.path(name), content).unwrap();
    }
    let cases = [
        "crt DIR/a.pem",
        "crt DIR/none.pem",
        "crt DIR/empty.pem",
        "crt DIR/junk.pem",
        "crt DIR/cut.pem",
        "crt DIR/nokey.pem",
        "crt DIR/keyonly.pem",
        "crt DIR/mismatch.pem",
        "crt DIR/keyfirst.pem",
        "crt DIR/split.pem",
        "crt DIR/expired.pem",
        "crt DIR/multi",
        "crt DIR/dir",
        "crt DIR/emptydir",
        "crt DIR/emptydir strict-sni",
        "crt DIR/baddir",
        "crt-list DIR/list",
        "crt-list DIR/badlist",
        "crt-list DIR/none",
        "crt DIR/a.pem verify required ca-file DIR/ca.pem",
        "crt DIR/a.pem verify required ca-file DIR/none",
        "crt DIR/a.pem verify required ca-file DIR/junk.pem",
        "crt DIR/a.pem verify optional ca-file DIR/ca.pem crl-file DIR/none",
        "crt DIR/a.pem verify required ca-file @system-ca",
        "crt DIR/a.pem tls-ticket-keys DIR/tickets",
        "crt DIR/a.pem tls-ticket-keys DIR/none",
        "crt DIR/a.pem tls-ticket-keys DIR/junk.pem",
        "crt DIR/a.pem tls-ticket-keys DIR/good.keys",
    ];
    let mut faults = Vec::new();
    for case in cases {
        let file = world.folder.path().join("case.cfg");
        let bind = format!("127.0.0.1:1 ssl {}", case.replace("DIR", &world.folder.path().display().to_string()));
        fs::write(&file, config("", &bind)).unwrap();
        let verdict = |program: &Path| {
            let output = Command::new(program).arg("-c").arg("-f").arg(&file).output().expect("it is installed");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (theirs, ours) = (verdict(Path::new(HAPROXY)), verdict(program()));
        if theirs.0 != ours.0 {
            faults.push(format!("{case}\n  haproxy: {:?} {}\n  baton: {:?} {}", theirs.0, theirs.1, ours.0, ours.1));
        }
        if ours.0 == Some(1) && !ours.1.contains("case.cfg:9") && !ours.1.contains("badlist:2") {
            faults.push(format!("{case}: no place in {}", ours.1));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
