//! Lists of revoked certificates as openssl makes them: of version 1 where it is told of no extensions, and with a signature that
//! is none. What is expected is what haproxy says of the same files.

use std::path::Path;
use std::process::Command;

use baton_model::{BindTls, ClientVerify, IgnoredErrors};
use baton_tls::Verification;
use baton_tls::rustls::pki_types::pem::PemObject;
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use baton_tls::rustls::version::TLS12;

use crate::world::{End, Visitor, World, visit};

const CONFIG: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ndefault_md = sha256\ndefault_crl_days = 9\n";

fn openssl(folder: &Path, words: &str) {
    let run = Command::new("openssl").args(words.split(' ')).current_dir(folder).output();
    let run = run.expect("openssl is installed by scripts/setup");
    assert!(run.status.success(), "{words}: {}", String::from_utf8_lossy(&run.stderr));
}

/// An authority `ca`, two clients of it, and lists on which one of these is.
fn make(world: &World) {
    let run = |words: &str| openssl(world.folder.path(), words);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    run(&format!("req -x509 {key} -days 9 -subj /CN=Lists -keyout ca.key -out ca.pem"));
    world.write("extensions", "extendedKeyUsage = clientAuth\n");
    world.write("index.txt", "");
    world.write("v1.cnf", CONFIG);
    world.write("v2.cnf", format!("{CONFIG}crlnumber = number\n"));
    world.write("number", "01\n");
    for name in ["good", "bad"] {
        run(&format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        let usual = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile extensions";
        run(&format!("x509 -req -in {name}.csr {usual} -out {name}.pem"));
    }
    run("ca -config v1.cnf -keyfile ca.key -cert ca.pem -revoke bad.pem");
    for version in ["v1", "v2"] {
        run(&format!("ca -config {version}.cnf -keyfile ca.key -cert ca.pem -gencrl -out {version}.pem"));
        run(&format!("crl -in {version}.pem -outform DER -out {version}.der"));
        let mut der = std::fs::read(world.path(&format!("{version}.der"))).unwrap();
        *der.last_mut().unwrap() ^= 1;
        world.write("bent.der", der);
        run(&format!("crl -inform DER -in bent.der -out {version}-bent.pem"));
    }
}

#[test]
fn lists_of_both_versions_count_if_their_issuer_signed_them() {
    let world = World::new();
    make(&world);
    let reaches = |name: &str, list: &str, change: &dyn Fn(&mut BindTls)| {
        let acceptor = world.acceptor(|tls| {
            tls.options.verify = Some(ClientVerify::Required);
            tls.options.ca_file = Some(world.path("ca.pem"));
            tls.options.crl_file = Some(world.path(list));
            change(tls);
        });
        let read = |ending: &str| std::fs::read(world.path(&format!("{name}.{ending}"))).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&read("pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&read("key")).unwrap();
        let client = world.visitor_with(Visitor { versions: &[&TLS12], ..Visitor::default() }, chain, key);
        match visit(&acceptor, &client, "a.example") {
            Ok(facts) => Ok(facts.verification),
            Err(End::Server(error)) => Err(format!("{error:?}")),
            Err(other) => panic!("{other:?}"),
        }
    };
    world.write("both.pem", ["v1.pem", "v2.pem"].map(|name| std::fs::read(world.path(name)).unwrap()).concat());
    for list in ["v1.pem", "v2.pem", "both.pem"] {
        assert_eq!(reaches("good", list, &|_| {}), Ok(Verification::default()), "{list}");
        assert!(reaches("bad", list, &|_| {}).unwrap_err().contains("Revoked"), "{list}");
        let ignored = |tls: &mut BindTls| tls.options.crt_ignore_err = IgnoredErrors::These(vec![23]);
        assert_eq!(reaches("bad", list, &ignored).unwrap().error, 23, "{list}");
    }
    for list in ["v1-bent.pem", "v2-bent.pem"] {
        assert!(reaches("good", list, &|_| {}).unwrap_err().contains("BadSignature"), "{list}");
        let these = || IgnoredErrors::These(vec![8]);
        assert!(reaches("good", list, &|tls| tls.options.crt_ignore_err = these()).is_err(), "{list}");
        let both = |tls: &mut BindTls| {
            tls.options.crt_ignore_err = these();
            tls.options.ca_ignore_err = these();
        };
        let found = Verification { result: 8, error: 8, ca_error: 8, ca_depth: 1 };
        assert_eq!(reaches("good", list, &both), Ok(found), "{list}");
    }
    // A file without a list asks for one all the same.
    assert!(reaches("good", "ca.pem", &|_| {}).unwrap_err().contains("UnknownRevocationStatus"));
}
