//! Handshakes with servers of every kind, in memory: what a connector accepts, what it refuses, what it resumes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{ServerTls, Source, TlsVersion};
use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use baton_tls::authorities::{Authorities, Authority as Content};
use baton_tls::rustls::client::ClientConnection;
use baton_tls::rustls::crypto::aws_lc_rs;
use baton_tls::rustls::server::{ServerConnection, WebPkiClientVerifier};
use baton_tls::rustls::{self, HandshakeKind, RootCertStore, ServerConfig, version};
use baton_tls::store::{self, DirectoryEntry, FileKind, Files, Stamp, Store};
use baton_tls::{Connector, Connectors, Refusal, Target, is_wrong_name, judge_words};
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

    fn find(&self, path: &Path) -> io::Result<FileKind> {
        match (self.0.contains_key(path), path == Path::new("dir")) {
            (true, _) => Ok(FileKind::File(STAMP)),
            (_, true) => Ok(FileKind::Directory),
            (false, false) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let inside = self.0.keys().filter(|path| path.parent() == Some(directory));
        let name =
            |path: &PathBuf| path.file_name().map(|name| DirectoryEntry { name: name.into(), is_file: Some(true) });
        Ok(inside.filter_map(name).collect())
    }
}

fn verified() -> ServerTls {
    ServerTls { verify: true, ca_file: Some("ca".into()), ..ServerTls::default() }
}

/// What outlives configurations.
struct Process {
    store: Arc<Store>,
    authorities: Authorities,
}

impl Process {
    fn new() -> Process {
        Process { store: Store::new(), authorities: Authorities::default() }
    }

    /// A configuration with one server, in use.
    fn change(
        &self,
        files: &Memory,
        settings: &Arc<ServerTls>,
        before: Option<&Arc<Connector>>,
    ) -> Result<Arc<Connector>, String> {
        judge_words(settings).map_err(|problem| problem.to_string())?;
        let source = Source::default();
        let others = settings.crt.as_deref().map(|path| (path, &source)).into_iter().collect();
        let extra = baton_model::ExtraFiles::default();
        let wanted = store::Wanted { others, extra, ..store::Wanted::default() };
        let certificates = self.store.prepare(&wanted, files);
        let certificates = certificates.map_err(|problems| format!("{}: {}", problems[0], problems[0].remedy()))?;
        let paths = settings.ca_file.iter().chain(&settings.crl_file).map(PathBuf::as_path);
        let upcoming = self.authorities.prepare(paths, files);
        let upcoming = upcoming.map_err(|faults| faults[0].1.about("ca-file", &faults[0].0))?;
        let made = Connectors::new(&upcoming, &certificates).build(settings, before);
        let made = made.map_err(|problem| problem.to_string())?;
        certificates.commit();
        self.authorities.commit(upcoming);
        Ok(made)
    }
}

fn connector(files: &Memory, settings: ServerTls) -> Result<Arc<Connector>, String> {
    Process::new().change(files, &Arc::new(settings), None)
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
    let Target { config, name, .. } = connector.target(name)?;
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
    let good = authority.issue(&CertificateSpec::server(["a.example", "*.b.example"])).expect("issued");
    let taken_back = authority.issue(&CertificateSpec::server(["a.example"])).expect("issued");
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
    let late = authority.issue(&CertificateSpec::server(["a.example"]).expired()).expect("issued");
    check(verified(), None, &late, "xpired");
    let early = authority.issue(&CertificateSpec::server(["a.example"]).not_yet()).expect("issued");
    check(verified(), None, &early, "not valid yet");
    let client = authority.issue(&CertificateSpec::client("a.example")).expect("issued");
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
    let good = authority.issue(&CertificateSpec::server(["a.example"])).expect("issued");
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
    let good = authority.issue(&CertificateSpec::server(["a.example", "b.example"])).expect("issued");
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
    let good = authority.issue(&CertificateSpec::server(["a.example"])).expect("issued");
    let own = authority.issue(&CertificateSpec::client("baton")).expect("issued");
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
    let issue = |name| authority.issue(&CertificateSpec::client(name)).expect("issued");
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
    check(ca("none"), "'ca-file' : 'none' cannot be used: it cannot be read: no such file: use an existing file");
    check(ca("empty"), "'empty' cannot be used: it has neither a certificate nor a revocation list: add");
    check(ca("torn"), "'torn' cannot be used: it is not valid PEM");
    let crt = |path: &str| ServerTls { crt: Some(path.into()), ..verified() };
    check(crt("none"), "certificate 'none' cannot be read: ");
    check(crt("keyless"), "certificate 'keyless' has no private key: append the private key");
    check(crt("mixed"), "certificate 'mixed': its private key belongs to another certificate: use the key");
    check(crt("empty"), "certificate 'empty' is empty: add");
    let words = |text: &str| Some(text.to_string());
    check(ServerTls { ciphers: words("FOO"), ..verified() }, "'ciphers'");
    check(ServerTls { curves: words("FOO"), ..verified() }, "'curves'");
    let none = ServerTls { oldest: Some(TlsVersion::Tls13), newest: Some(TlsVersion::Tls12), ..verified() };
    check(none, "all SSL/TLS versions are disabled");
}

#[test]
fn a_connector_stays_as_long_as_its_words_do() {
    let authority = Authority::new("one").expect("made");
    let files = Memory::of([("ca", authority.root_pem()), ("other", authority.root_pem())]);
    let (process, settings) = (Process::new(), Arc::new(verified()));
    let first = process.change(&files, &settings, None).expect("good");
    let same = process.change(&files, &Arc::new(verified()), Some(&first)).expect("good");
    assert!(Arc::ptr_eq(&first, &same));
    for other in [
        ServerTls { verify_host: Some("a".into()), ..verified() },
        ServerTls { ca_file: Some("other".into()), ..verified() },
        ServerTls { crl_file: Some("ca".into()), ..verified() },
    ] {
        assert!(!Arc::ptr_eq(&first, &process.change(&files, &Arc::new(other), Some(&first)).expect("good")));
    }
}

#[test]
fn another_content_of_a_file_is_used_by_the_next_handshake() {
    let (one, other) = (Authority::new("one").expect("made"), Authority::new("other").expect("made"));
    let good = one.issue(&CertificateSpec::server(["a.example"])).expect("issued");
    let (own, next) = (
        one.issue(&CertificateSpec::client("a")).expect("issued"),
        one.issue(&CertificateSpec::client("b")).expect("issued"),
    );
    let mut files =
        Memory::of([("ca", one.root_pem()), ("crl", one.revoke(&[]).expect("a list")), ("own", own.bundle_pem())]);
    let settings = Arc::new(ServerTls { crl_file: Some("crl".into()), crt: Some("own".into()), ..verified() });
    let mut config = server(&good, ALL);
    config.ticketer = aws_lc_rs::Ticketer::new().expect("keys");
    let config = Arc::new(config);
    let ask = |connector: &Connector| {
        let mut client = connection(connector, Some("a.example")).expect("a client");
        shake(&mut client, &config).map(|_| client.handshake_kind())
    };
    let (full, resumed) = (Ok(Some(HandshakeKind::Full)), Ok(Some(HandshakeKind::Resumed)));
    let process = Process::new();
    let connector = process.change(&files, &settings, None).expect("good");
    let shown = |connector: &Connector| connector.target(None).expect("one").identity.expect("shown").cert[0].clone();
    assert_eq!((ask(&connector), ask(&connector)), (full.clone(), resumed.clone()));
    // By the runtime API.
    let mut editions = vec![connector.edition()];
    let mut set = |path: &str, pem: String| {
        process.authorities.insert(Path::new(path), Content::read(pem.as_bytes()).expect("good"));
        editions.push(connector.edition());
    };
    set("crl", one.revoke(&[good.serial]).expect("a list"));
    let error = ask(&connector).expect_err("revoked");
    assert_eq!(Refusal::take(&error), Some(Refusal { depth: 0, code: 23 }));
    assert_eq!(Refusal::take(&error), None, "it is told once");
    set("crl", files.0[Path::new("crl")].clone());
    assert_eq!((ask(&connector), ask(&connector)), (full.clone(), resumed.clone()));
    set("ca", other.root_pem());
    assert!(ask(&connector).is_err());
    set("ca", one.root_pem());
    assert_eq!((ask(&connector), ask(&connector)), (full.clone(), resumed.clone()));
    files.0.insert("own".into(), next.bundle_pem());
    let mut transaction = process.store.transaction();
    assert_eq!(transaction.refresh(Path::new("own"), &files).map_err(|problem| problem.to_string()), Ok(true));
    assert_eq!(shown(&connector), own.chain()[0], "it is not in use before the commit");
    process.store.commit(transaction);
    assert_eq!(shown(&connector), next.chain()[0]);
    assert_eq!((ask(&connector), ask(&connector)), (full.clone(), resumed.clone()));
    // By a reload, which keeps what is said.
    let same = process.change(&files, &settings, Some(&connector)).expect("good");
    assert!(Arc::ptr_eq(&same, &connector));
    assert_eq!(ask(&connector), resumed, "nothing changed");
    files.0.insert("ca".into(), other.root_pem());
    let same = process.change(&files, &settings, Some(&connector)).expect("good");
    assert!(Arc::ptr_eq(&same, &connector) && ask(&connector).is_err());
    editions.push(connector.edition());
    assert!(editions.is_sorted_by(|one, next| one < next), "{editions:?}");
}

#[test]
fn terms_are_the_same_where_all_is_the_same() {
    let (one, other) = (Authority::new("one").expect("made"), Authority::new("other").expect("made"));
    let own = ["a", "b"].map(|name| one.issue(&CertificateSpec::client(name)).expect("issued").bundle_pem());
    let [empty, list] = [&[][..], &[7]].map(|serials| one.revoke(serials).expect("a list"));
    let both = one.root_pem() + &other.root_pem();
    let files = |ca: &str, crl: &str, own: &str| {
        Memory::of([("ca", ca.to_owned()), ("crl", crl.to_owned()), ("own", own.to_owned())])
    };
    let usual = || ServerTls { crl_file: Some("crl".into()), crt: Some("own".into()), ..verified() };
    let terms = |files: &Memory, settings: ServerTls| {
        let connector = connector(files, settings).expect("good settings");
        connector.terms().expect("its files are good").1
    };
    let same = files(&one.root_pem(), &empty, &own[0]);
    let known = terms(&same, usual());
    assert_eq!(terms(&same, usual()), known, "in another process");
    assert_eq!(known.len(), 64);
    for (case, files) in [
        ("ca-file", files(&both, &empty, &own[0])),
        ("crl-file", files(&one.root_pem(), &list, &own[0])),
        ("crt", files(&one.root_pem(), &empty, &own[1])),
    ] {
        assert_ne!(terms(&files, usual()), known, "{case}");
    }
    for settings in [
        ServerTls { verify: false, ..usual() },
        ServerTls { verify_host: Some("a".into()), ..usual() },
        ServerTls { sni: Some("str(a)".into()), ..usual() },
        ServerTls { crl_file: None, ..usual() },
        ServerTls { crt: None, ..usual() },
        ServerTls { alpn: Some(vec!["http/1.1".into()]), ..usual() },
        ServerTls { oldest: Some(TlsVersion::Tls13), ..usual() },
        ServerTls { ciphersuites: Some("TLS_AES_128_GCM_SHA256".into()), ..usual() },
        ServerTls { curves: Some("P-256".into()), ..usual() },
    ] {
        assert_ne!(terms(&same, settings.clone()), known, "{settings:?}");
    }
    // What an operator brings is another thing from the next handshake on.
    let process = Process::new();
    let connector = process.change(&same, &Arc::new(usual()), None).expect("good");
    let before = connector.terms().expect("good");
    process.authorities.insert(Path::new("ca"), Content::read(both.as_bytes()).expect("good"));
    let after = connector.terms().expect("good");
    assert_eq!(&*before.1, &*known);
    assert!(after.0 > before.0 && after.1 != before.1);
}
