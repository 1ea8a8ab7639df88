//! Certificates of clients: who is accepted, and what is said of them.

use baton_model::{BindTls, ClientVerify, IgnoredErrors};
use baton_prove::certificates::{Authority, Issued, Wanted};
use baton_tls::Verification;
use baton_tls::authorities::Authority as Content;
use baton_tls::rustls::version::{TLS12, TLS13};

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
    let good = world.client(Wanted::client("Anna"));
    assert_eq!(check(&world, Some(&good), |_| {}), NOTHING);
    assert_eq!(check(&world, None, |_| {}), Err("NoCertificatesPresented".into()));
    assert_eq!(check(&world, None, |tls| tls.options.verify = Some(ClientVerify::Optional)), NOTHING);
}

#[test]
fn strangers_and_certificates_out_of_time_are_refused_unless_that_is_ignored() {
    let world = World::new();
    let stranger = Authority::new("Other").unwrap().issue(&Wanted::client("Eve")).unwrap();
    let expired = world.client(Wanted::client("Anna").expired());
    let early = world.client(Wanted::client("Anna").not_yet());
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
    let (good, bad) = (world.client(Wanted::client("Anna")), world.client(Wanted::client("Bert")));
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
    let good = world.client(Wanted::client("Anna"));
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
fn other_authorities_hold_for_the_next_client_and_sessions_of_before_are_over() {
    let world = World::new();
    let other = Authority::new("Other").unwrap();
    let acceptor = world.acceptor(|tls| {
        tls.options.verify = Some(ClientVerify::Required);
        tls.options.ca_file = Some(world.path("root.pem"));
    });
    let (anna, eve) = (world.client(Wanted::client("Anna")), other.issue(&Wanted::client("Eve")).unwrap());
    let config = |issued| world.visitor(Visitor { certificate: Some(issued), ..Visitor::default() });
    let (anna, eve) = (config(&anna), config(&eve));
    assert!(!visit(&acceptor, &anna, "a.example").unwrap().resumed);
    let again = visit(&acceptor, &anna, "a.example").unwrap();
    assert!(again.resumed && again.peer.len() == 2, "who it is stays known");
    assert!(visit(&acceptor, &eve, "a.example").is_err());
    let file = world.acceptors.authorities().find(&world.path("root.pem")).unwrap();
    file.replace(Content::read(other.root_pem().as_bytes()).unwrap());
    assert!(visit(&acceptor, &eve, "a.example").is_ok());
    assert!(visit(&acceptor, &anna, "a.example").is_err(), "a session from before is no way in");
}
