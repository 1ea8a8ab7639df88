//! The words of TLS with servers: what they become in the model, and what is said about them.

use baton_config::{FixedEnvironment, Options, Severity, load};
use baton_model::{CheckConnect, CheckStep, CheckType, Server, ServerTls, TlsVersion};
use baton_prove::certificates::{Authority, CertificateSpec};
use tempfile::TempDir;

/// Files that a configuration may name.
fn files() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let authority = Authority::new("one").expect("made");
    let own = authority.issue(&CertificateSpec::client("baton")).expect("issued");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("the folder is ours");
    write("ca.pem", &authority.root_pem());
    write("own.pem", &own.bundle_pem());
    write("keyless.pem", &own.chain_pem());
    write("key.pem", own.key_pem());
    folder
}

/// The diagnostics of `global` lines and a backend's, and its server.
fn read(folder: &TempDir, global: &str, lines: &str) -> (String, Option<Server>) {
    let base = folder.path().display();
    let text = format!(
        "global\nca-base {base}\ncrt-base {base}\n{global}\nbackend b\ntimeout connect 1s\ntimeout server 1s\n{lines}\n"
    );
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text.as_str()));
    let said = loaded.diagnostics.iter().filter(|diagnostic| diagnostic.severity != Severity::Notice);
    let said = said.map(|diagnostic| diagnostic.summary() + "\n").collect();
    (said, loaded.model.map(|model| (*model.proxies[0].servers[0]).clone()))
}

fn server(global: &str, words: &str) -> Server {
    let (said, server) = read(&files(), global, &format!("server s 10.0.0.1:443 {words}"));
    server.unwrap_or_else(|| panic!("{words}: {said}"))
}

fn tls(global: &str, words: &str) -> ServerTls {
    let server = server(global, words);
    (**server.any_tls().unwrap_or_else(|| panic!("{words} is no TLS"))).clone()
}

#[test]
fn words_become_settings() {
    let made = tls("", "ssl ca-file ca.pem crt own.pem verifyhost a sni req.hdr(host) alpn h2,http/1.1 no-ssl-reuse");
    assert!(made.verify && made.no_reuse && !made.no_tickets);
    assert!(made.ca_file.is_some_and(|path| path.ends_with("ca.pem") && path.is_absolute()));
    assert!(made.crt.is_some_and(|path| path.ends_with("own.pem") && path.is_absolute()));
    assert_eq!((made.verify_host.as_deref(), made.sni.as_deref()), (Some("a"), Some("req.hdr(host)")));
    assert_eq!(made.alpn, Some(vec!["h2".to_string(), "http/1.1".into()]));
    assert!(!tls("", "ssl verify none").verify);
    assert!(!tls("ssl-server-verify none", "ssl").verify);
    assert!(tls("ssl-server-verify none", "ssl verify required ca-file ca.pem").verify);
    assert_eq!(tls("", "ssl verify none verifyhost a no-verifyhost").verify_host, None);
    assert!(server("", "verify none ssl no-ssl").any_tls().is_none());
}

#[test]
fn versions_are_a_range() {
    use TlsVersion::{Tls12, Tls13};
    let check = |global: &str, words: &str, expect| {
        let made = tls(global, &format!("ssl verify none {words}"));
        assert_eq!((made.oldest, made.newest), expect, "{global} {words}");
    };
    check("", "", (None, None));
    check("", "ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.3", (Some(Tls12), Some(Tls13)));
    check("", "force-tlsv13", (Some(Tls13), Some(Tls13)));
    check("", "no-sslv3 no-tlsv10 no-tlsv11", (None, None));
    check("", "no-tlsv12", (Some(Tls13), None));
    check("", "no-tlsv13", (None, Some(Tls12)));
    check("ssl-default-server-options ssl-min-ver TLSv1.3", "", (Some(Tls13), None));
    check("ssl-default-server-options ssl-min-ver TLSv1.3", "ssl-min-ver TLSv1.2", (Some(Tls12), None));
    check("ssl-default-server-options no-tlsv13", "", (None, Some(Tls12)));
}

#[test]
fn global_words_are_for_servers_that_say_nothing() {
    let global = "ssl-default-server-ciphers ECDHE+AESGCM\nssl-default-server-ciphersuites TLS_AES_128_GCM_SHA256\n\
                  ssl-default-server-curves P-256\nssl-default-server-sigalgs ecdsa_secp256r1_sha256\n\
                  ssl-default-server-options no-tls-tickets";
    let made = tls(global, "ssl verify none");
    assert_eq!(made.ciphers.as_deref(), Some("ECDHE+AESGCM"));
    assert_eq!(made.ciphersuites.as_deref(), Some("TLS_AES_128_GCM_SHA256"));
    assert_eq!((made.curves.as_deref(), made.sigalgs.as_deref()), (Some("P-256"), Some("ecdsa_secp256r1_sha256")));
    assert!(made.no_tickets);
    let own = tls(global, "ssl verify none curves X25519 tls-tickets");
    assert_eq!((own.curves.as_deref(), own.no_tickets), (Some("X25519"), false));
}

#[test]
fn checks_are_encrypted_where_traffic_is() {
    let check = |words: &str, expect: bool| {
        let server = server("", &format!("verify none check {words}"));
        assert_eq!(server.check.ssl, expect, "{words}");
        assert_eq!(server.any_tls().is_some(), words.contains("ssl"), "{words}");
    };
    check("", false);
    check("ssl", true);
    check("ssl port 80", false);
    check("ssl addr 10.0.0.2", false);
    check("ssl port 80 check-ssl", true);
    check("ssl no-check-ssl", false);
    check("check-ssl", true);
    let server = server("", "verify none check check-ssl check-sni a check-alpn x,http/1.1");
    assert!(server.tls.is_none() && server.check.tls.is_some());
    assert_eq!((server.check.sni.as_deref(), server.check.alpn.map(|names| names.len())), (Some("a"), Some(2)));
}

#[test]
fn a_step_of_a_check_may_be_encrypted_by_itself() {
    let lines = "option httpchk\nhttp-check connect port 443 ssl sni a alpn http/1.1\nhttp-check send\n\
                 server s 10.0.0.1:80 check verify none";
    let text = format!("backend b\nmode http\n{lines}\n");
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text.as_str()));
    let model = loaded.model.expect("good");
    let CheckType::Http(steps) = &model.proxies[0].check.kind else { panic!("it speaks HTTP") };
    let [CheckStep::Connect(CheckConnect { ssl: true, sni: Some(name), alpn: Some(alpn), .. }), ..] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!((name.as_str(), alpn.len()), ("a", 1));
    assert!(model.proxies[0].servers[0].check.tls.is_some());
}

#[test]
fn faults_are_told_as_haproxy_tells_them() {
    let folder = files();
    let check = |words: &str, expect: &str| {
        let (said, _) = read(&folder, "", &format!("server s 10.0.0.1:443 {words}"));
        assert!(if expect.is_empty() { said.is_empty() } else { said.contains(expect) }, "{words}: {said}");
    };
    check("ssl", "verify is enabled by default but no CA file specified. If you're running on a LAN");
    check("check-ssl", "verify is enabled by default but no CA file specified.");
    check("ssl verify required", "verify is enabled but no CA file specified.");
    check("verify required", "");
    check("ssl verify optional", "'verify' : unknown verify method 'optional', only 'none' and 'required' are");
    check("ssl verify", "'server b/s' : 'verify' : missing verify method.");
    check("ssl verify none verifyhost", "'verifyhost' : missing hostname to verify against.");
    check("ssl ca-file none.pem", "cannot be used: it cannot be read: no such file: use an existing file.");
    check("ssl ca-file none.pem", "'server b/s' : 'ca-file' : '");
    check("ca-file none.pem", "'ca-file' : '");
    check("ssl ca-file key.pem", "it has neither a certificate nor a revocation list: add ");
    check("ssl ca-file ca.pem crl-file none.pem", "'crl-file' : '");
    check("ssl ca-file ca.pem crl-file ca.pem", "");
    check("ssl ca-file ca.pem crt own.pem", "");
    check("ssl verify none crt none.pem", "");
    check("crt none.pem", "");
    check("ssl verify none sni", "'sni' : missing sni expression.");
    check("ssl verify none sni foo", "error detected while parsing sni expression : unknown sample fetch 'foo'");
    check("ssl verify none sni res.hdr(x)", "error detected while parsing sni expression : ");
    check("ssl verify none sni ssl_fc_sni", "");
    check("ssl verify none alpn ,", "'alpn' : missing the comma-delimited ALPN protocol suite.");
    check("ssl verify none ciphers FOO", "'ciphers' : unknown cipher 'FOO'");
    check("ssl verify none ciphersuites FOO", "'ciphersuites' : unknown TLS 1.3 cipher suite");
    check("ssl verify none ssl-min-ver foo", "'foo' : unknown ssl/tls version.");
    check("ssl verify none ssl-min-ver TLSv1.1", "'ssl-min-ver TLSv1.1' is raised to TLSv1.2");
    check("ssl verify none ssl-max-ver TLSv1.1", "'TLSv1.1' : only TLS 1.2 and 1.3 are supported");
    check("ssl verify none force-tlsv10", "'force-tlsv10' : only TLS 1.2 and 1.3 are supported");
    check("ssl verify none no-tlsv12 no-tlsv13", "backend 'b': all SSL/TLS versions are disabled for server 's'.");
    check("ssl verify none ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.2", "all SSL/TLS versions are disabled");
    check("ssl verify none no-tlsv10 ssl-min-ver TLSv1.2", "no-sslv3/no-tlsv1x are ignored for this server.");
    check("check-sni", "'check-sni' : missing SNI.");
    check("ssl verify none npn x allow-0rtt", "");
    let global = |line: &str, expect: &str| {
        let (said, _) = read(&folder, line, "server s 10.0.0.1:443 ssl verify none");
        assert!(said.contains(expect), "{line}: {said}");
    };
    global("ssl-server-verify maybe", "'ssl-server-verify' expects 'none' or 'required' as argument.");
    global("ssl-default-server-options foo", "unknown option 'foo' on global statement 'ssl-default-server-options'.");
    global("ssl-default-server-options ssl-min-ver", "'ssl-min-ver' : missing the ssl/tls version on global");
    global("ssl-default-server-options ssl-min-ver TLSv1.0", "'ssl-min-ver TLSv1.0' is raised to TLSv1.2");
    global("ssl-default-server-ciphers", "global statement 'ssl-default-server-ciphers' expects a cipher suite");
    global("ssl-default-server-ciphers FOO", "'ciphers' : unknown cipher 'FOO'");
}

#[test]
fn a_check_by_http2_that_names_no_host_is_noticed() {
    let check = |lines: &str, expect: bool| {
        let text = format!("backend b\n mode http\n timeout connect 1s\n timeout server 1s\n{lines}\n");
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text.as_str()));
        let said: String = loaded.of(Severity::Notice).map(|notice| notice.render(1)).collect();
        let is_said = said.contains("server 'b/s' speaks HTTP/2 and names no host")
            && said.contains("http-check send hdr host NAME");
        assert_eq!(is_said, expect, "{lines}\n{said}");
    };
    let server = " server s 127.0.0.1:80 proto h2";
    check(&format!(" option httpchk\n{server} check"), true);
    check(" option httpchk\n server s 127.0.0.1:80 check check-proto h2", true);
    check(&format!(" option httpchk\n http-check send meth GET hdr Host a.example\n{server} check"), false);
    check(&format!(" option httpchk GET / HTTP/1.1\\r\\nHost:\\ a\n{server} check"), false);
    check(&format!(" option httpchk\n{server}"), false);
    check(&format!(" option httpchk\n{server} check check-proto h1"), false);
    check(&format!(" option grpc-check\n{server} check"), false);
    check(&format!("{server} check"), false);
}
