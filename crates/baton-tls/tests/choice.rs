//! The choice among certificates, next to the real HAProxy's: both load the same files and lists, and are asked for the same
//! names by clients that can verify different kinds of key.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use baton_model::CrtSource;
use baton_prove::stream::AnyServer;
use baton_tls::rustls::crypto::aws_lc_rs;
use baton_tls::rustls::{ClientConfig, ClientConnection, SignatureScheme};
use baton_tls::{Index, Verifies};
use rustls_pki_types::{CertificateDer, ServerName};
use support::World;

const RSA: &[SignatureScheme] = &[SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256];
const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const ED25519: &[SignatureScheme] = &[SignatureScheme::ED25519];
const ALL: &[SignatureScheme] = &[
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// A HAProxy that ends with the test.
struct Haproxy {
    child: Child,
    port: u16,
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Haproxy {
    /// Serves `bind 127.0.0.1:PORT ssl WORDS` in the world's folder.
    fn start(world: &World, words: &str) -> Haproxy {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
             frontend f\n bind 127.0.0.1:{port} ssl {words}\n http-request return status 200\n"
        );
        world.write("haproxy.cfg", config);
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f", "haproxy.cfg"]).current_dir(world.folder.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut haproxy = Haproxy { child: child.expect("haproxy is installed by scripts/setup"), port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return haproxy;
            }
            assert!(haproxy.child.try_wait().unwrap().is_none(), "haproxy ended: {words}");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("haproxy does not listen");
    }

    /// The certificate it shows; `None`: the handshake fails.
    fn ask(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<CertificateDer<'static>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(AnyServer::with_a_key_for(schemes))
            .with_no_client_auth();
        config.enable_sni = name.is_some();
        let server = ServerName::try_from(name.unwrap_or("unasked.example").to_owned()).unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), server).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).ok()?;
        }
        // A server of TLS 1.3 may refuse after the client is content.
        tls.writer().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        tls.complete_io(&mut socket).ok()?;
        let _ = tls.reader().read(&mut [0; 64]);
        Some(tls.peer_certificates()?.first()?.clone())
    }
}

/// What we would show; `None`: the handshake would fail.
fn ours(index: &Index, name: Option<&str>, schemes: &[SignatureScheme], strict: bool) -> Option<Vec<u8>> {
    let client = Verifies::of(schemes);
    let found = index.find(name, client).filter(|found| !(strict && found.by_default))?;
    let signs = found.signer().unwrap().key.choose_scheme(schemes).is_some();
    signs.then(|| found.certificate.der().to_vec())
}

fn world() -> World {
    let world = World::new();
    for (file, kind, names) in [
        ("a.pem", &rcgen::PKCS_ECDSA_P256_SHA256, &["a.t", "x.t"][..]),
        ("b.pem", &rcgen::PKCS_ECDSA_P256_SHA256, &["b.t", "x.t", "*.w.t"]),
        ("wild.pem", &rcgen::PKCS_ECDSA_P256_SHA256, &["*.w.t", "w.t", "*.x.t"]),
        ("upper.pem", &rcgen::PKCS_ECDSA_P256_SHA256, &["MiXed.T"]),
        ("r.pem", &rcgen::PKCS_RSA_SHA256, &["dual.t", "*.dw.t"]),
        ("e.pem", &rcgen::PKCS_ECDSA_P256_SHA256, &["dual.t", "*.dw.t"]),
        ("p384.pem", &rcgen::PKCS_ECDSA_P384_SHA384, &["dual.t"]),
        ("ed.pem", &rcgen::PKCS_ED25519, &["dual.t", "ed.t"]),
        ("site.pem.rsa", &rcgen::PKCS_RSA_SHA256, &["site.t"]),
        ("site.pem.ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256, &["site.t"]),
    ] {
        let (certificate, key) = support::issue_with(kind, Some(&format!("cn.{file}.t")), names);
        world.write(file, certificate + &key);
    }
    std::fs::create_dir_all(world.path("dir/sub.pem")).unwrap();
    for (from, to) in [
        ("b.pem", "2.pem"),
        ("a.pem", "10.pem"),
        ("wild.pem", ".hidden.pem"),
        ("e.pem", "z"),
        ("upper.pem", "x.issuer"),
    ] {
        std::fs::copy(world.path(from), world.path("dir").join(to)).unwrap();
    }
    world
}

const NAMES: &[&str] = &[
    "a.t",
    "A.T",
    "x.t",
    "b.t",
    "cn.a.pem.t",
    "cn.b.pem.t",
    "foo.w.t",
    "foo.foo.w.t",
    "w.t",
    "sec.w.t",
    "mixed.t",
    "dual.t",
    "q.dw.t",
    "ed.t",
    "site.t",
    "q.t",
    "Q.T",
    "foo.q.t",
    "nobody.t",
];

#[test]
fn the_choice_is_haproxys() {
    let world = world();
    // Words of `crt`, then lines of a list, then `strict-sni`.
    let cases: &[(&[&str], &str, bool)] = &[
        (&["a.pem", "b.pem", "upper.pem"], "", false),
        (&["a.pem", "b.pem"], "", true),
        (&["r.pem", "e.pem"], "", false),
        (&["e.pem", "r.pem"], "", true),
        (&["ed.pem", "r.pem", "e.pem"], "", false),
        (&["r.pem", "ed.pem"], "", true),
        (&["site.pem"], "", false),
        (&["dir"], "", false),
        (&["r.pem", "a.pem", "b.pem"], "", true),
        (&[], "a.pem\nr.pem q.dw.t\ne.pem *.dw.t", false),
        (&[], "a.pem\ne.pem q.dw.t\nr.pem *.dw.t", false),
        (&[], "a.pem\nr.pem q.dw.t\ne.pem *.dw.t !q.dw.t", false),
        (&[], "a.pem\nwild.pem *.w.t !sec.w.t", false),
        (&[], "a.pem\nwild.pem *.w.t !sec.w.t\nb.pem *.w.t", false),
        (&[], "a.pem\nb.pem *.w.t\nwild.pem *.w.t !sec.w.t", false),
        (&[], "b.pem\na.pem !x.t", false),
        (&[], "a.pem !*\nb.pem", false),
        (&[], "a.pem !*\nwild.pem *.w.t !sec.w.t", true),
        (&[], "a.pem\nwild.pem sec.w.t !*.w.t\nb.pem *.w.t", false),
        (&[], "a.pem\nwild.pem !sec.w.t\nb.pem *.w.t", false),
        (&[], "a.pem\nb.pem q.t !q.t *.w.t !*.w.t", false),
        (&[], "a.pem\nb.pem *", false),
        (&[], "a.pem\nb.pem *", true),
        (&[], "a.pem\nb.pem q.t\nwild.pem q.t", false),
        (&[], "a.pem\nb.pem a.t", false),
        (&[], "b.pem a.t\na.pem", false),
        (&[], "a.pem q.t\na.pem b.t", false),
        (&["b.pem"], "a.pem", false),
        (&[], "a.pem\nb.pem Q.t *.W.T", false),
        (&[], "a.pem\nb.pem f*.q.t *q.t", false),
        (&[], "a.pem\nsite.pem q.t", false),
    ];
    let mut wrong = Vec::new();
    for (crts, list, strict) in cases {
        world.write("list", format!("{list}\n"));
        let lines = list.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let lines: Vec<_> = lines.collect();
        let lines: Vec<(&str, &[&str])> = lines.iter().map(|words| (words[0], &words[1..])).collect();
        let mut sources: Vec<CrtSource> = crts.iter().map(|name| world.crt(name)).collect();
        let mut words: Vec<String> = crts.iter().map(|name| format!("crt {name}")).collect();
        if !lines.is_empty() {
            sources.push(world.list("list", &lines));
            words.push("crt-list list".to_owned());
        }
        if *strict {
            words.push("strict-sni".to_owned());
        }
        let index = world.load(sources);
        let haproxy = Haproxy::start(&world, &words.join(" "));
        for (kinds, schemes) in [("all", ALL), ("rsa", RSA), ("ecdsa", ECDSA), ("ed25519", ED25519)] {
            for name in NAMES.iter().copied().map(Some).chain([None]) {
                let theirs = haproxy.ask(name, schemes).map(|shown| shown.to_vec());
                let ours = ours(&index, name, schemes, *strict);
                if theirs != ours {
                    let file = |der: Option<Vec<u8>>| {
                        let entries = world.store.entries();
                        let entry = entries.iter().find(|entry| Some(entry.certificate().der()) == der.as_deref());
                        entry.map(|entry| entry.path().file_name().unwrap().to_owned())
                    };
                    let (ours, theirs) = (file(ours), file(theirs));
                    wrong.push(format!("{words:?} {list:?} {name:?} {kinds}: ours {ours:?}, HAProxy's {theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_two_curves_the_one_that_the_client_verifies_is_taken() {
    // HAProxy takes the first, and fails.
    let world = world();
    let index = world.load(vec![world.crt("p384.pem"), world.crt("e.pem")]);
    let found = |schemes| world.found_by(&index, Some("dual.t"), Verifies::of(schemes)).0;
    assert_eq!((found(ECDSA), found(ALL)), ("e.pem".to_owned(), "p384.pem".to_owned()));
}
