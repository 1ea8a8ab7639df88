//! Handshakes with servers of every kind, in memory: what a connector accepts, what it refuses, what it resumes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{ServerTls, TlsVersion};
use baton_prove::certificates::{Authority, Issued, Wanted};
use baton_tls::rustls::client::ClientConnection;
use baton_tls::rustls::crypto::aws_lc_rs;
use baton_tls::rustls::server::{ServerConnection, WebPkiClientVerifier};
use baton_tls::rustls::{self, HandshakeKind, RootCertStore, ServerConfig, version};
use baton_tls::store::{Files, Found, Listed, Stamp};
use baton_tls::{Connector, Connectors, Problem, is_wrong_name};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;

/// Files in memory.
#[derive(Default)]
struct Memory(HashMap<PathBuf, String>);

impl Memory {
    fn of<const N: usize>(files: [(&str, String); N]) -> Memory {
        Memory(files.into_iter().map(|(path, content)| (path.into(), content)).collect())
    }
}

const STAMP: Stamp = Stamp { modified_ns: 0, changed_ns: 0, size: 0, inode: 0, device: 0 };

impl Files for Memory {
    fn read(&self, path: &Path, into: &mut Vec<u8>) -> io::Result<Stamp> {
        into.clear();
        into.extend_from_slice(self.0.get(path).ok_or(io::ErrorKind::NotFound)?.as_bytes());
        Ok(STAMP)
    }

    fn find(&self, path: &Path) -> io::Result<Found> {
        match (self.0.contains_key(path), path == Path::new("dir")) {
            (true, _) => Ok(Found::File(STAMP)),
            (_, true) => Ok(Found::Directory),
            (false, false) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Listed>> {
        let inside = self.0.keys().filter(|path| path.parent() == Some(directory));
        let name = |path: &PathBuf| path.file_name().map(|name| Listed { name: name.into(), is_file: Some(true) });
        Ok(inside.filter_map(name).collect())
    }
}

fn verified() -> ServerTls {
    ServerTls { verify: true, ca_file: Some("ca".into()), ..ServerTls::default() }
}

fn connector(files: &Memory, settings: ServerTls) -> Result<Arc<Connector>, Problem> {
    Connectors::new(files).build(&Arc::new(settings), None)
}

fn builder(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
}

/// A server that shows `issued`.
fn server(issued: &Issued, versions: &[&'static rustls::SupportedProtocolVersion]) -> ServerConfig {
    let builder = builder(versions).with_no_client_auth();
    builder.with_single_cert(issued.chain(), issued.key()).expect("a key that fits")
}

const ALL: &[&rustls::SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

/// Bytes back and forth until both sides have nothing more to say.
fn shake(client: &mut ClientConnection, config: &Arc<ServerConfig>) -> Result<ServerConnection, rustls::Error> {
    let mut server = ServerConnection::new(config.clone()).expect("a server");
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut up).expect("memory");
        }
        let mut rest = &up[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory");
            server.process_new_packets()?;
        }
        while server.wants_write() {
            server.write_tls(&mut down).expect("memory");
        }
        let mut rest = &down[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            client.process_new_packets()?;
        }
        if up.is_empty() && down.is_empty() {
            return Ok(server);
        }
    }
}

fn connection(connector: &Connector, name: Option<&str>) -> Result<ClientConnection, rustls::Error> {
    let (config, name) = connector.target(name)?;
    ClientConnection::new(config, name)
}

/// `ok`, or what the client says.
fn outcome(connector: &Connector, name: Option<&str>, config: ServerConfig) -> String {
    let told = |error: rustls::Error| {
        let wrong = if is_wrong_name(&error) { "wrong name: " } else { "" };
        format!("{wrong}{error}")
    };
    let mut client = match connection(connector, name) {
        Ok(client) => client,
        Err(error) => return told(error),
    };
    match shake(&mut client, &Arc::new(config)) {
        Ok(_) => "ok".into(),
        Err(error) => told(error),
    }
}

#[test]
fn an_authority_has_to_be_in_its_time_itself() {
    let key = KeyPair::generate().expect("a key");
    let root = |from: i32, until: i32| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(until, 1, 1));
        params
    };
    let pem = |params: &CertificateParams| params.self_signed(&key).expect("a root").pem();
    let (over, holds) = (root(1990, 2000), root(2000, 4000));
    let files = Memory::of([
        ("over", pem(&over)),
        ("holds", pem(&holds)),
        ("both", pem(&over) + &pem(&holds)),
        ("other way", pem(&holds) + &pem(&over)),
    ]);
    let own = KeyPair::generate().expect("a key");
    let issuer = Issuer::from_params(&holds, &key);
    let leaf = CertificateParams::new(["a.example".to_owned()]).expect("a name").signed_by(&own, &issuer);
    let chain = vec![leaf.expect("issued").der().clone()];
    for (file, expect) in [("over", "xpired"), ("holds", "ok"), ("both", "ok"), ("other way", "ok")] {
        let connector =
            connector(&files, ServerTls { ca_file: Some(file.into()), ..verified() }).expect("good settings");
        let own = PrivateKeyDer::try_from(own.serialize_der()).expect("a key");
        let server = builder(ALL).with_no_client_auth().with_single_cert(chain.clone(), own).expect("a key that fits");
        let found = outcome(&connector, Some("a.example"), server);
        assert!(if expect == "ok" { found == "ok" } else { found.contains(expect) }, "{file}: {found}");
    }
}

#[test]
fn certificates_are_verified_as_asked() {
    let (authority, stranger) = (Authority::new("one").expect("made"), Authority::new("other").expect("made"));
    let good = authority.issue(&Wanted::server(["a.example", "*.b.example"])).expect("issued");
    let taken_back = authority.issue(&Wanted::server(["a.example"])).expect("issued");
    let files = Memory::of([
        ("ca", authority.root_pem()),
        ("other", stranger.root_pem()),
        ("both", stranger.root_pem() + &authority.root_pem()),
        ("between", authority.between_pem()),
        ("/etc/ssl/certs/ca-certificates.crt", authority.root_pem()),
        ("dir/a.pem", stranger.root_pem()),
        ("dir/b.crt", authority.root_pem()),
        ("dir/.hidden.pem", "no certificate".into()),
        ("dir/readme", "no certificate".into()),
        ("crl", authority.revoke(&[taken_back.serial]).expect("a list")),
        ("crl-other", stranger.revoke(&[]).expect("a list")),
    ]);
    let check = |settings: ServerTls, name: Option<&str>, issued: &Issued, expect: &str| {
        let text = format!("{settings:?} {name:?}");
        let connector = connector(&files, settings).expect("good settings");
        for versions in [&ALL[..1], &ALL[1..]] {
            let found = outcome(&connector, name, server(issued, versions));
            assert!(
                if expect == "ok" { found == "ok" } else { found.contains(expect) },
                "{text}: {found}, not {expect}"
            );
        }
    };
    let ca = |path: &str| ServerTls { ca_file: Some(path.into()), ..verified() };
    let host = |name: &str| ServerTls { verify_host: Some(name.into()), ..verified() };
    check(verified(), None, &good, "ok");
    check(verified(), Some(""), &good, "ok");
    check(verified(), Some("a.example"), &good, "ok");
    check(verified(), Some("A.EXAMPLE"), &good, "ok");
    check(verified(), Some("x.b.example"), &good, "ok");
    check(verified(), Some("b.example"), &good, "wrong name");
    check(verified(), Some("c.example"), &good, "wrong name");
    check(verified(), Some("::"), &good, "wrong name");
    check(verified(), Some("0.0.0.0"), &good, "wrong name");
    check(verified(), Some("a.example:443"), &good, "wrong name");
    check(host("a.example"), None, &good, "ok");
    check(host("c.example"), None, &good, "wrong name");
    check(host("c.example"), Some("a.example"), &good, "ok");
    check(host("a.example"), Some("c.example"), &good, "wrong name");
    check(ca("other"), None, &good, "UnknownIssuer");
    check(ca("both"), None, &good, "ok");
    check(ca("between"), None, &good, "UnknownIssuer");
    check(ca("dir"), None, &good, "ok");
    check(ca("@system-ca"), None, &good, "ok");
    let late = authority.issue(&Wanted::server(["a.example"]).expired()).expect("issued");
    check(verified(), None, &late, "xpired");
    let early = authority.issue(&Wanted::server(["a.example"]).not_yet()).expect("issued");
    check(verified(), None, &early, "NotValidYet");
    let client = authority.issue(&Wanted::client("a.example")).expect("issued");
    check(verified(), None, &client, "InvalidPurpose");
    let none = ServerTls::default;
    check(none(), Some("c.example"), &good, "ok");
    check(none(), Some("not a name!"), &good, "ok");
    check(none(), None, &late, "ok");
    let listed = |path: &str| ServerTls { crl_file: Some(path.into()), ..verified() };
    check(listed("crl"), None, &good, "ok");
    check(listed("crl"), None, &taken_back, "Revoked");
    check(listed("crl-other"), None, &good, "UnknownRevocationStatus");
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_when_named() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(["a.example".to_string()]).expect("names");
    let own = params.self_signed(&key).expect("signed");
    let other = Authority::new("other").expect("made");
    let files = Memory::of([("ca", own.pem()), ("other", other.root_pem())]);
    let config = || {
        let key = key.serialize_der().try_into().expect("a key");
        builder(ALL).with_no_client_auth().with_single_cert(vec![own.der().clone()], key).expect("a key that fits")
    };
    let check = |settings: ServerTls, name, expect: &str| {
        let found = outcome(&connector(&files, settings).expect("good"), name, config());
        assert!(found.contains(expect), "{name:?}: {found}");
    };
    check(verified(), None, "ok");
    check(verified(), Some("a.example"), "ok");
    check(verified(), Some("b.example"), "wrong name");
    check(ServerTls { ca_file: Some("other".into()), ..verified() }, None, "certificate");
}

#[test]
fn settings_restrict_what_is_agreed_on() {
    let authority = Authority::new("one").expect("made");
    let good = authority.issue(&Wanted::server(["a.example"])).expect("issued");
    let files = Memory::of([("ca", authority.root_pem())]);
    let agreed = |settings: ServerTls, alpn: &[&str]| {
        let connector = connector(&files, settings).expect("good");
        let mut config = server(&good, ALL);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = connection(&connector, Some("a.example")).expect("a client");
        let server = shake(&mut client, &Arc::new(config)).map_err(|error| error.to_string())?;
        assert_eq!(server.server_name(), Some("a.example"));
        let suite = client.negotiated_cipher_suite().expect("agreed").suite();
        let group = client.negotiated_key_exchange_group().expect("agreed").name();
        let alpn = client.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok::<_, String>(format!("{suite:?} {group:?} {}", alpn.unwrap_or_default()))
    };
    let words = |text: &str| Some(text.to_string());
    let found = agreed(ServerTls { ciphersuites: words("TLS_CHACHA20_POLY1305_SHA256"), ..verified() }, &[]);
    assert_eq!(found.as_deref(), Ok("TLS13_CHACHA20_POLY1305_SHA256 X25519 "));
    let old = ServerTls { newest: Some(TlsVersion::Tls12), curves: words("P-384"), ..verified() };
    let found = agreed(ServerTls { ciphers: words("ECDHE-ECDSA-AES128-GCM-SHA256"), ..old }, &[]);
    assert_eq!(found.as_deref(), Ok("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 secp384r1 "));
    let asks = ServerTls { alpn: Some(vec!["http/1.1".into(), "x".into()]), ..verified() };
    assert!(agreed(asks.clone(), &["x"]).expect("agreed").ends_with(" x"));
    assert!(agreed(asks.clone(), &[]).expect("agreed").ends_with(' '));
    assert!(agreed(asks, &["h2"]).is_err());
    let signed = ServerTls { sigalgs: words("ed25519"), ..verified() };
    assert!(agreed(signed, &[]).is_err());
}

#[test]
fn sessions_are_resumed_by_name_and_only_where_wanted() {
    let authority = Authority::new("one").expect("made");
    let good = authority.issue(&Wanted::server(["a.example", "b.example"])).expect("issued");
    let files = Memory::of([("ca", authority.root_pem())]);
    let kinds = |settings: ServerTls, versions, names: &[Option<&str>]| -> Vec<bool> {
        let connector = connector(&files, settings).expect("good");
        let mut config = server(&good, versions);
        config.ticketer = aws_lc_rs::Ticketer::new().expect("keys");
        let config = Arc::new(config);
        let resumed = |name: &Option<&str>| {
            let mut client = connection(&connector, *name).expect("a client");
            shake(&mut client, &config).expect("good");
            client.handshake_kind() == Some(HandshakeKind::Resumed)
        };
        names.iter().map(resumed).collect()
    };
    let names = [Some("a.example"), Some("a.example"), Some("b.example"), None, None, Some("a.example")];
    for versions in [&ALL[..1], &ALL[1..]] {
        assert_eq!(kinds(verified(), versions, &names), [false, true, false, false, true, true]);
        assert_eq!(kinds(ServerTls { no_reuse: true, ..verified() }, versions, &names), [false; 6]);
    }
}

#[test]
fn a_server_that_asks_is_shown_who_we_are() {
    let authority = Authority::new("one").expect("made");
    let good = authority.issue(&Wanted::server(["a.example"])).expect("issued");
    let own = authority.issue(&Wanted::client("baton")).expect("issued");
    let files = Memory::of([
        ("ca", authority.root_pem()),
        ("own", own.bundle_pem()),
        ("split", own.chain_pem()),
        ("split.key", own.key_pem().into()),
    ]);
    let mut roots = RootCertStore::empty();
    roots.add(authority.root().clone()).expect("a root");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
    let config = || {
        let builder = builder(ALL).with_client_cert_verifier(verifier.clone());
        builder.with_single_cert(good.chain(), good.key()).expect("a key that fits")
    };
    let with = |path: &str| ServerTls { crt: Some(path.into()), ..verified() };
    assert_eq!(outcome(&connector(&files, with("own")).expect("good"), None, config()), "ok");
    assert_eq!(outcome(&connector(&files, with("split")).expect("good"), None, config()), "ok");
    assert_ne!(outcome(&connector(&files, verified()).expect("good"), None, config()), "ok");
}

#[test]
fn faults_name_the_file() {
    let authority = Authority::new("one").expect("made");
    let issue = |name| authority.issue(&Wanted::client(name)).expect("issued");
    let (own, other) = (issue("a"), issue("b"));
    let files = Memory::of([
        ("ca", authority.root_pem()),
        ("empty", String::new()),
        ("torn", authority.root_pem().replacen("MII", "M!I", 1)),
        ("keyless", own.chain_pem()),
        ("mixed", own.chain_pem() + other.key_pem()),
    ]);
    let check = |settings: ServerTls, expect: &str| {
        let fault = connector(&files, settings).expect_err(expect).to_string();
        assert!(fault.contains(expect), "{fault}");
    };
    let ca = |path: &str| ServerTls { ca_file: Some(path.into()), ..verified() };
    check(ca("none"), "Couldn't open the ca-file 'none'");
    check(ca("empty"), "'empty' (no certificate found)");
    check(ca("torn"), "certificate 1 of the ca-file 'torn' cannot be used");
    check(ServerTls { crl_file: Some("ca".into()), ..verified() }, "'ca' (no crl found)");
    let crt = |path: &str| ServerTls { crt: Some(path.into()), ..verified() };
    check(crt("none"), "Couldn't open the certificate 'none'");
    check(crt("keyless"), "no private key found in 'keyless' nor in 'keyless.key'");
    check(crt("mixed"), "the private key is not the one of the certificate");
    check(crt("empty"), "no certificate found in 'empty'");
    let words = |text: &str| Some(text.to_string());
    check(ServerTls { ciphers: words("FOO"), ..verified() }, "'ciphers'");
    check(ServerTls { curves: words("FOO"), ..verified() }, "'curves'");
    let none = ServerTls { oldest: Some(TlsVersion::Tls13), newest: Some(TlsVersion::Tls12), ..verified() };
    check(none, "all SSL/TLS versions are disabled");
}

#[test]
fn a_connector_stays_as_long_as_nothing_changes() {
    let authority = Authority::new("one").expect("made");
    let mut files = Memory::of([("ca", authority.root_pem())]);
    let settings = Arc::new(verified());
    let first = Connectors::new(&files).build(&settings, None).expect("good");
    let same = Connectors::new(&files).build(&Arc::new(verified()), Some(&first)).expect("good");
    assert!(Arc::ptr_eq(&first, &same));
    let other = Arc::new(ServerTls { verify_host: Some("a".into()), ..verified() });
    assert!(!Arc::ptr_eq(&first, &Connectors::new(&files).build(&other, Some(&first)).expect("good")));
    files.0.insert("ca".into(), Authority::new("next").expect("made").root_pem());
    assert!(!Arc::ptr_eq(&first, &Connectors::new(&files).build(&settings, Some(&first)).expect("good")));
}
