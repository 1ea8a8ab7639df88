//! Certificates of clients: who is accepted, and what is said of them.

use baton_model::{BindTls, ClientVerify, IgnoredErrors, TlsOptions};
use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use baton_tls::authorities::Authority as Content;
use baton_tls::rustls::pki_types::pem::PemObject;
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use baton_tls::rustls::version::{TLS12, TLS13};
use baton_tls::store::SystemFiles;
use baton_tls::{Verification, View};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::world::{End, Visitor, World, visit};

/// Whether a client with this certificate is accepted, and what was wrong with it.
fn check(world: &World, issued: Option<&Issued>, change: impl Fn(&mut BindTls)) -> Result<Verification, String> {
    let acceptor = world.acceptor(|tls| {
        tls.options.verify = Some(ClientVerify::Required);
        tls.options.ca_file = Some(world.path("root.pem"));
        change(tls);
    });
    let mut results = [&[&TLS13][..], &[&TLS12]].map(|versions| {
        let client = world.visitor(Visitor { versions, certificate: issued, ..Visitor::default() });
        match visit(&acceptor, &client, "a.example") {
            Ok(facts) => {
                assert_eq!(facts.peer.first(), issued.map(|issued| &issued.certificate));
                Ok(facts.verification)
            }
            Err(End::Server(error)) => Err(format!("{error:?}")),
            Err(other) => panic!("{other:?}"),
        }
    });
    let [new, old] = &mut results;
    assert_eq!(new.is_ok(), old.is_ok(), "both versions judge alike");
    std::mem::replace(new, Ok(Verification::default()))
}

const NOTHING: Result<Verification, String> = Ok(Verification { result: 0, error: 0, ca_error: 0, ca_depth: 0 });

/// Ignores these errors of the client's own certificate.
fn ignoring(tls: &mut BindTls, codes: &[u32]) {
    tls.options.crt_ignore_err = IgnoredErrors::These(codes.to_vec());
}

#[test]
fn a_client_is_asked_and_may_have_to_answer() {
    let world = World::new();
    let good = world.client(CertificateSpec::client("Anna"));
    assert_eq!(check(&world, Some(&good), |_| {}), NOTHING);
    assert_eq!(check(&world, None, |_| {}), Err("NoCertificatesPresented".into()));
    assert_eq!(check(&world, None, |tls| tls.options.verify = Some(ClientVerify::Optional)), NOTHING);
}

#[test]
fn strangers_and_certificates_out_of_time_are_refused_unless_that_is_ignored() {
    let world = World::new();
    let stranger = Authority::new("Other").unwrap().issue(&CertificateSpec::client("Eve")).unwrap();
    let expired = world.client(CertificateSpec::client("Anna").expired());
    let early = world.client(CertificateSpec::client("Anna").not_yet());
    for issued in [&stranger, &expired, &early] {
        assert!(check(&world, Some(issued), |_| {}).is_err());
        let optional = |tls: &mut BindTls| tls.options.verify = Some(ClientVerify::Optional);
        assert!(check(&world, Some(issued), optional).is_err(), "optional is not whatever");
    }
    let found = |error: u32| Ok(Verification { result: error, error, ..Verification::default() });
    assert_eq!(check(&world, Some(&expired), |tls| ignoring(tls, &[10])), found(10));
    assert_eq!(check(&world, Some(&early), |tls| ignoring(tls, &[10, 9])), found(9));
    assert!(check(&world, Some(&early), |tls| ignoring(tls, &[10])).is_err());
    // Nobody here knows who signed the authority between: an error above the client's own certificate.
    let between = Verification { result: 20, error: 0, ca_error: 20, ca_depth: 1 };
    assert!(check(&world, Some(&stranger), |tls| ignoring(tls, &[20])).is_err());
    let above = |tls: &mut BindTls| tls.options.ca_ignore_err = IgnoredErrors::All;
    assert_eq!(check(&world, Some(&stranger), above), Ok(between));
}

#[test]
fn revoked_certificates_are_refused() {
    let world = World::new();
    let (good, bad) = (world.client(CertificateSpec::client("Anna")), world.client(CertificateSpec::client("Bert")));
    world.write("crl.pem", world.authority.revoke(&[bad.serial]).unwrap());
    let lists = |tls: &mut BindTls| tls.options.crl_file = Some(world.path("crl.pem"));
    assert_eq!(check(&world, Some(&good), lists), NOTHING);
    assert!(check(&world, Some(&bad), lists).unwrap_err().contains("Revoked"));
    let ignored = |tls: &mut BindTls| {
        lists(tls);
        ignoring(tls, &[23]);
    };
    assert_eq!(check(&world, Some(&bad), ignored).unwrap().error, 23);
    // A list for every authority is asked for.
    world.write("crl.pem", Authority::new("Other").unwrap().revoke(&[]).unwrap());
    assert!(check(&world, Some(&good), lists).is_err());
}

#[test]
fn chains_end_at_a_certificate_that_signs_itself() {
    let world = World::new();
    let good = world.client(CertificateSpec::client("Anna"));
    let between = |tls: &mut BindTls| tls.options.ca_file = Some(world.path("between.pem"));
    assert!(check(&world, Some(&good), between).is_err(), "it is only a link");
    let both = |tls: &mut BindTls| {
        between(tls);
        tls.options.ca_verify_file = Some(world.path("root.pem"));
    };
    assert_eq!(check(&world, Some(&good), both), NOTHING);
    std::fs::create_dir(world.path("folder")).unwrap();
    world.write("folder/a.pem", world.authority.root_pem());
    world.write("folder/.b.pem", "nobody reads this");
    world.write("folder/c.txt", "nor this");
    assert_eq!(check(&world, Some(&good), |tls| tls.options.ca_file = Some(world.path("folder"))), NOTHING);
}

#[test]
fn of_an_authority_that_was_made_anew_one_certificate_has_to_be_in_its_time() {
    let world = World::new();
    let key = KeyPair::generate().unwrap();
    let root = |from: i32, until: i32| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        params
    };
    let (over, holds) = (root(1990, 2000), root(2000, 4000));
    let [over_pem, holds_pem] = [&over, &holds].map(|params| params.self_signed(&key).unwrap().pem());
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["anna".to_owned()]).unwrap();
    let chain = vec![leaf.signed_by(&own, &Issuer::from_params(&holds, &key)).unwrap().der().clone()];
    let check = |content: String| {
        world.write("ca.pem", content);
        let acceptor = world.acceptor(|tls| {
            tls.options.verify = Some(ClientVerify::Required);
            tls.options.ca_file = Some(world.path("ca.pem"));
        });
        let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
        visit(&acceptor, &world.visitor_with(Visitor::default(), chain.clone(), key), "a.example").is_ok()
    };
    assert!(!check(over_pem.clone()));
    assert!(check(holds_pem.clone()));
    assert!(check(over_pem.clone() + &holds_pem) && check(holds_pem + &over_pem));
}

#[test]
fn other_authorities_hold_for_the_next_client_and_sessions_of_before_are_over() {
    let world = World::new();
    let other = Authority::new("Other").unwrap();
    let acceptor = world.acceptor(|tls| {
        tls.options.verify = Some(ClientVerify::Required);
        tls.options.ca_file = Some(world.path("root.pem"));
    });
    let (anna, eve) =
        (world.client(CertificateSpec::client("Anna")), other.issue(&CertificateSpec::client("Eve")).unwrap());
    let config = |issued| world.visitor(Visitor { certificate: Some(issued), ..Visitor::default() });
    let (anna, eve) = (config(&anna), config(&eve));
    assert!(!visit(&acceptor, &anna, "a.example").unwrap().resumed);
    let again = visit(&acceptor, &anna, "a.example").unwrap();
    assert!(again.resumed && again.peer.len() == 2, "who it is stays known");
    assert!(visit(&acceptor, &eve, "a.example").is_err());
    let others = Content::read(other.root_pem().as_bytes()).unwrap();
    world.acceptors.authorities().insert(&world.path("root.pem"), others);
    assert!(visit(&acceptor, &eve, "a.example").is_ok());
    assert!(visit(&acceptor, &anna, "a.example").is_err(), "a session from before is no way in");
}

#[test]
fn authorities_that_are_replaced_while_a_configuration_is_read_stay() {
    let world = World::new();
    let [read, newer] = ["Read", "Newer"].map(|name| Authority::new(name).unwrap().root_pem());
    let files = SystemFiles::default();
    let authorities = world.acceptors.authorities();
    let path = world.path("ca.pem");
    world.write("ca.pem", world.authority.root_pem());
    authorities.commit(authorities.prepare([path.as_path()], &files).unwrap());
    world.write("ca.pem", &read);
    let upcoming = authorities.prepare([path.as_path()], &files).unwrap();
    let brought = Content::read(newer.as_bytes()).unwrap();
    let certificates = brought.certificates.clone();
    let file = authorities.insert(&path, brought);
    authorities.commit(upcoming);
    assert_eq!(file.content().certificates, certificates);
}

#[test]
fn sessions_are_resumed_only_where_clients_are_verified_alike() {
    let world = World::new();
    let anna = world.client(CertificateSpec::client("Anna"));
    world.write("both.pem", world.authority.root_pem() + &world.authority.revoke(&[]).unwrap());
    for versions in [&[&TLS13][..], &[&TLS12]] {
        for no_tickets in [false, true] {
            let bind = |verify, change: &dyn Fn(&mut TlsOptions)| {
                world.acceptor(|tls| {
                    tls.no_tickets = no_tickets;
                    tls.options.verify = Some(verify);
                    tls.options.ca_file = Some(world.path("root.pem"));
                    change(&mut tls.options);
                })
            };
            let required = bind(ClientVerify::Required, &|_| ());
            for verify in [ClientVerify::None, ClientVerify::Optional] {
                let stranger = world.visitor(Visitor { versions, ..Visitor::default() });
                let others = bind(verify, &|_| ());
                assert!(visit(&others, &stranger, "a.example").is_ok());
                assert!(visit(&required, &stranger, "a.example").is_err(), "{verify:?} {versions:?} {no_tickets}");
            }
            let known = world.visitor(Visitor { versions, certificate: Some(&anna), ..Visitor::default() });
            let links = bind(ClientVerify::Required, &|options| options.ca_verify_file = Some(world.path("both.pem")));
            let lists = bind(ClientVerify::Required, &|options| options.crl_file = Some(world.path("both.pem")));
            assert!(!visit(&links, &known, "a.example").unwrap().resumed);
            assert!(!visit(&lists, &known, "a.example").unwrap().resumed, "now lists are asked: {versions:?}");
            let kinds = |options: &mut TlsOptions| options.client_sigalgs = Some("ecdsa_secp256r1_sha256".into());
            assert!(!visit(&bind(ClientVerify::Required, &kinds), &known, "a.example").unwrap().resumed);
        }
    }
}

/// A certificate as openssl makes it when it is told of no extensions.
fn version_1(world: &World, subject: &str, more: &[&str]) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let folder = world.folder.path();
    let openssl = |args: &[&str]| {
        let run = std::process::Command::new("openssl").args(args).current_dir(folder).output();
        let run = run.expect("openssl is installed by scripts/setup");
        assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    };
    if !world.path("old-ca.pem").exists() {
        let usual = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/O=Old/CN=Old CA"];
        openssl(&[&usual[..], &["-keyout", "old-ca.key", "-out", "old-ca.pem"]].concat());
    }
    openssl(&["req", "-newkey", "rsa:2048", "-nodes", "-keyout", "v1.key", "-out", "v1.csr", "-subj", subject]);
    let sign = ["x509", "-req", "-in", "v1.csr", "-CA", "old-ca.pem", "-CAkey", "old-ca.key", "-out", "v1.pem"];
    openssl(&[&sign[..], more].concat());
    let read = |name: &str| std::fs::read(world.path(name)).unwrap();
    let chain = CertificateDer::pem_slice_iter(&read("v1.pem")).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(View::read(&chain[0]).unwrap().version(), 1);
    (chain, PrivateKeyDer::from_pem_slice(&read("v1.key")).unwrap())
}

#[test]
fn certificates_of_version_1_are_judged_as_well() {
    let world = World::new();
    let good = version_1(&world, "/CN=Anna", &["-days", "9"]);
    let expired = version_1(&world, "/CN=Anna", &["-days", "-1"]);
    let mut bent = (good.0.clone(), good.1.clone_key());
    let end = bent.0[0].len() - 1;
    let mut bytes = bent.0[0].to_vec();
    bytes[end] ^= 1;
    bent.0[0] = bytes.into();
    let reaches = |(chain, key): &(Vec<_>, PrivateKeyDer<'static>), versions, change: &dyn Fn(&mut BindTls)| {
        let acceptor = world.acceptor(|tls| {
            tls.options.verify = Some(ClientVerify::Required);
            tls.options.ca_file = Some(world.path("old-ca.pem"));
            change(tls);
        });
        let client = world.visitor_with(Visitor { versions, ..Visitor::default() }, chain.clone(), key.clone_key());
        visit(&acceptor, &client, "a.example").map(|facts| facts.verification)
    };
    for versions in [&[&TLS13][..], &[&TLS12]] {
        assert_eq!(reaches(&good, versions, &|_| {}).unwrap(), Verification::default());
        assert!(reaches(&expired, versions, &|_| {}).is_err() && reaches(&bent, versions, &|_| {}).is_err());
        assert_eq!(reaches(&expired, versions, &|tls| ignoring(tls, &[10])).unwrap().error, 10);
        assert_eq!(reaches(&bent, versions, &|tls| ignoring(tls, &[7])).unwrap().error, 7);
        let elsewhere = |tls: &mut BindTls| tls.options.ca_file = Some(world.path("root.pem"));
        assert!(reaches(&good, versions, &elsewhere).is_err());
        // Nobody said whether it is revoked.
        world.write("crl.pem", world.authority.revoke(&[]).unwrap());
        let lists = |tls: &mut BindTls| tls.options.crl_file = Some(world.path("crl.pem"));
        assert!(reaches(&good, versions, &lists).is_err());
        // A key of somebody else's proves nothing.
        assert!(reaches(&(good.0.clone(), expired.1.clone_key()), versions, &|_| {}).is_err());
    }
}
