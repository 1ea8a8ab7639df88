//! Versions, ciphers, curves, signatures, ALPN, names and sessions.

use baton_model::{CrtLine, CrtSource, Source, TlsOptions, TlsVersion};
use baton_prove::certificates::{CertificateSpec, KeyKind};
use baton_tls::Unwanted;
use baton_tls::rustls::NamedGroup;
use baton_tls::rustls::crypto::CryptoProvider;
use baton_tls::rustls::version::{TLS12, TLS13};

use crate::world::{End, Visitor, World, outcome, visit};

#[test]
fn without_a_word_the_versions_and_ciphers_are_those_of_openssl() {
    let world = World::new();
    let acceptor = world.acceptor(|_| {});
    let say = |versions: &[_]| {
        let client = world.visitor(Visitor { versions, ..Visitor::default() });
        outcome(visit(&acceptor, &client, "a.example"))
    };
    assert_eq!(say(&[&TLS13, &TLS12]), "TLSv1.3 TLS_AES_256_GCM_SHA384");
    assert_eq!(say(&[&TLS12]), "TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384");
}

#[test]
fn versions_are_bounded() {
    let world = World::new();
    let only12 = world.acceptor(|tls| tls.options.newest = Some(TlsVersion::Tls12));
    let only13 = world.acceptor(|tls| tls.options.oldest = Some(TlsVersion::Tls13));
    let both = world.visitor(Visitor::default());
    let old = world.visitor(Visitor { versions: &[&TLS12], ..Visitor::default() });
    assert!(outcome(visit(&only12, &both, "a.example")).starts_with("TLSv1.2 "));
    assert!(outcome(visit(&only13, &both, "a.example")).starts_with("TLSv1.3 "));
    assert!(matches!(visit(&only13, &old, "a.example"), Err(End::Client(_) | End::Server(_))));
    let neither = world.model(world.bind(|tls| {
        (tls.options.oldest, tls.options.newest) = (Some(TlsVersion::Tls13), Some(TlsVersion::Tls12));
    }));
    let problems = world.accept(&neither).unwrap_err();
    assert_eq!(problems[0].message, "no TLS version between ssl-min-ver and ssl-max-ver");
}

#[test]
fn ciphers_are_chosen_by_our_order_unless_the_clients_is_preferred() {
    let world = World::new();
    let client = world.visitor(Visitor { versions: &[&TLS12], ..Visitor::default() });
    let acceptor = |prefer: bool| {
        world.acceptor(|tls| {
            tls.options.ciphers = Some("ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE+AESGCM".into());
            tls.prefer_client_ciphers = prefer;
        })
    };
    assert_eq!(outcome(visit(&acceptor(false), &client, "a.example")), "TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305");
    assert_eq!(outcome(visit(&acceptor(true), &client, "a.example")), "TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384");
    let acceptor = world.acceptor(|tls| tls.options.ciphersuites = Some("TLS_AES_128_GCM_SHA256".into()));
    let client = world.visitor(Visitor::default());
    assert_eq!(outcome(visit(&acceptor, &client, "a.example")), "TLSv1.3 TLS_AES_128_GCM_SHA256");
}

#[test]
fn curves_and_signatures_are_those_that_are_named() {
    let world = World::new();
    world.site("rsa.pem", CertificateSpec::server(["a.example"]).with_key(KeyKind::Rsa2048));
    let only =
        |group: NamedGroup| move |provider: &mut CryptoProvider| provider.kx_groups.retain(|kx| kx.name() == group);
    let reaches = |acceptor: &baton_tls::Acceptor, group| {
        let client = world.visitor(Visitor { provider: &only(group), ..Visitor::default() });
        visit(acceptor, &client, "a.example").is_ok()
    };
    let acceptor = world.acceptor(|tls| tls.options.curves = Some("P-384:X25519".into()));
    assert!(reaches(&acceptor, NamedGroup::secp384r1) && reaches(&acceptor, NamedGroup::X25519));
    assert!(!reaches(&acceptor, NamedGroup::secp256r1));
    let signed = |sigalgs: &str| {
        let acceptor = world.acceptor(|tls| {
            tls.certificates = vec![CrtSource::Crt { path: world.path("rsa.pem"), default: false }];
            tls.options.sigalgs = Some(sigalgs.into());
        });
        visit(&acceptor, &world.visitor(Visitor::default()), "a.example")
    };
    assert!(signed("RSA-PSS+SHA256").is_ok());
    assert!(matches!(signed("ECDSA+SHA256"), Err(End::Client(_) | End::Server(_))), "no key of that kind");
}

#[test]
fn a_protocol_is_agreed_on_or_none() {
    let world = World::new();
    let acceptor =
        world.acceptor(|tls| tls.options.alpn = Some(vec!["h2".into(), "http/1.1".into(), "http/1.0".into()]));
    let agreed = |alpn: &[&str]| {
        let client = world.visitor(Visitor { alpn, ..Visitor::default() });
        let facts = visit(&acceptor, &client, "a.example").unwrap();
        facts.alpn.map(|name| String::from_utf8_lossy(&name).into_owned())
    };
    assert_eq!(agreed(&["http/1.1", "h2"]).as_deref(), Some("h2"), "by our order");
    assert_eq!(agreed(&["http/1.0", "http/1.1"]).as_deref(), Some("http/1.1"), "by our order");
    assert_eq!(agreed(&["foo"]), None, "refusing would be the other way");
    assert_eq!(agreed(&[]), None);
}

#[test]
fn lines_of_a_list_have_settings_of_their_own() {
    let world = World::new();
    world.site("b.pem", CertificateSpec::server(["b.example"]));
    let line = |crt: &str, options: TlsOptions| CrtLine { crt: world.path(crt), options, ..CrtLine::default() };
    let lines = [
        line("a.pem", TlsOptions::default()),
        line("b.pem", TlsOptions { newest: Some(TlsVersion::Tls12), ..TlsOptions::default() }),
    ];
    let acceptor = world.acceptor(|tls| {
        tls.options.alpn = Some(vec!["http/1.1".into()]);
        tls.certificates = vec![CrtSource::List { path: world.path("list"), lines: lines.into() }];
    });
    let client = world.visitor(Visitor { alpn: &["http/1.1"], ..Visitor::default() });
    let (a, b) = (visit(&acceptor, &client, "a.example").unwrap(), visit(&acceptor, &client, "b.example").unwrap());
    assert_eq!((a.version, b.version), (Some(TLS13.version), Some(TLS12.version)));
    assert!(a.alpn.is_some() && b.alpn.is_some(), "what the line does not say the bind says");
    assert_eq!(b.sni.as_deref(), Some("b.example"));
}

#[test]
fn a_name_that_nobody_has_gets_the_first_certificate_or_with_strict_sni_none() {
    let world = World::new();
    let client = world.visitor(Visitor::default());
    let lax = visit(&world.acceptor(|_| {}), &client, "x.example");
    assert!(matches!(lax, Err(End::Client(_))), "the client sees that it is another's: {lax:?}");
    let strict = world.acceptor(|tls| tls.strict_sni = true);
    assert!(matches!(visit(&strict, &client, "x.example"), Err(End::Unwanted(Unwanted::Name))));
    assert!(visit(&strict, &client, "a.example").is_ok());
    let nameless = visit(&strict, &client, "127.0.0.1");
    assert!(matches!(nameless, Err(End::Unwanted(Unwanted::Name))));
}

#[test]
fn sessions_are_resumed_by_tickets_and_by_memory_also_after_a_reload() {
    let world = World::new();
    for versions in [&[&TLS13][..], &[&TLS12]] {
        for no_tickets in [false, true] {
            let client = world.visitor(Visitor { versions, ..Visitor::default() });
            let acceptor = || world.acceptor(|tls| tls.no_tickets = no_tickets);
            let first = acceptor();
            assert!(!visit(&first, &client, "a.example").unwrap().resumed);
            assert!(visit(&first, &client, "a.example").unwrap().resumed, "{versions:?} {no_tickets}");
            assert!(visit(&acceptor(), &client, "a.example").unwrap().resumed, "{versions:?} {no_tickets}");
        }
    }
}

#[test]
fn what_cannot_be_read_or_done_is_said_with_its_place() {
    let world = World::new();
    let say = |options: TlsOptions| {
        let mut model = world.model(world.bind(|tls| tls.options = options));
        let proxy = std::sync::Arc::get_mut(&mut model.proxies[0]).unwrap();
        proxy.binds[0].source = Source { file: "t.cfg".into(), line: 7 };
        let problems = world.accept(&model).unwrap_err();
        assert!(problems.iter().all(|problem| problem.source.line == 7));
        problems[0].message.replace(&*world.folder.path().to_string_lossy(), "")
    };
    let verify = Some(baton_model::ClientVerify::Required);
    let with = |name: &str| TlsOptions { verify, ca_file: Some(world.path(name)), ..TlsOptions::default() };
    assert_eq!(say(TlsOptions { verify, ..TlsOptions::default() }), "'verify' needs a 'ca-file'");
    assert_eq!(
        say(with("none.pem")),
        "'ca-file' : '/none.pem' cannot be used: it cannot be read: no such file: use an existing file"
    );
    world.write("empty.pem", "");
    assert_eq!(
        say(with("empty.pem")),
        "'ca-file' : '/empty.pem' cannot be used: it has neither a certificate nor a revocation list: add certificates \
         or revocation lists (CRL) in PEM format"
    );
    world.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let expect = "'ca-file' : '/bad.pem' cannot be used: block 1 is not a valid certificate: check it with ";
    assert!(say(with("bad.pem")).starts_with(expect));
    let ciphers = |text: &str| TlsOptions { ciphers: Some(text.into()), ..TlsOptions::default() };
    assert!(say(ciphers("AES128-SHA")).starts_with("AES128-SHA ignored: RSA key exchange is not supported"));
}
