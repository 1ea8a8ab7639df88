//! The store with real files: what is found under a name, what is refused, what a change costs.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use baton_model::{CrtLoad, CrtSource, CrtStore, ExtraFiles};
use baton_tls::store::{MAX_FILE_BYTES, SystemFiles};
use baton_tls::{OcspResponse, Verifies};
use support::{World, issue};

#[test]
fn a_directory_is_found_by_name_and_its_first_file_is_the_default() {
    let world = World::new();
    world.site("b.pem", &["b.example", "*.w.example"]);
    world.site("a.pem", &["A.example"]);
    world.write(".hidden", "nothing");
    world.write("a.pem.issuer", "");
    let index = world.load(vec![world.crt("")]);
    for (name, file, by_default) in [
        (Some("a.example"), "a.pem", false),
        (Some("B.EXAMPLE"), "b.pem", false),
        (Some("x.w.example"), "b.pem", false),
        (Some("y.x.w.example"), "a.pem", true),
        (Some("w.example"), "a.pem", true),
        (None, "a.pem", true),
    ] {
        assert_eq!(world.found(&index, name), (file.to_owned(), by_default), "{name:?}");
    }
    assert!(world.store.entry(Path::new("/nowhere")).is_none());
    assert_eq!(world.store.figures().certificates, 2);
}

#[test]
fn every_fault_is_told_at_once_and_nothing_is_in_use() {
    let world = World::new();
    world.site("good.pem", &["a.example"]);
    world.write("empty.pem", "");
    world.write("keyless.pem", issue(&["b.example"]).0);
    world.write("other.pem", issue(&["c.example"]).0 + &issue(&["d.example"]).1);
    let sources = ["good.pem", "empty.pem", "keyless.pem", "other.pem", "missing.pem"];
    let problems = world.prepare(sources.map(|name| world.crt(name)).to_vec()).unwrap_err();
    let said: Vec<_> = problems.iter().map(|problem| problem.fault.to_string()).collect();
    let expected = [
        "is empty",
        "has no private key",
        "its private key belongs to another certificate",
        "cannot be read: no such file",
    ];
    assert_eq!(said, expected);
    assert!(world.store.entries().is_empty());
}

/// A folder with authorities of openssl's making, and a certificate `leaf.pem` that `int.crt` issued.
fn authorities(world: &World) {
    world.write("ca.ext", "basicConstraints=CA:TRUE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n");
    world.write("leaf.ext", "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n");
    let run = |line: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(line.split(' ')).current_dir(world.folder.path()).output();
        let output = output.expect("openssl is installed by scripts/setup");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    run(&format!("req -x509 {key} -keyout root.key -out root.crt -subj /CN=root -days 30"));
    for (name, subject, issuer, extensions) in
        [("int", "int", "root", "ca"), ("int2", "int", "root", "ca"), ("leaf", "leaf.t", "int", "leaf")]
    {
        run(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={subject}"));
        run(&format!(
            "x509 -req -in {name}.csr -CA {issuer}.crt -CAkey {issuer}.key -CAcreateserial -out {name}.crt -extfile {extensions}.ext"
        ));
    }
    world.write("leaf.pem", text(world, "leaf.crt") + &text(world, "leaf.key"));
}

/// That the certificate of the leaf is good, by its authority.
fn ocsp_response(world: &World) -> Vec<u8> {
    let run = |line: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(line.split(' ')).current_dir(world.folder.path()).output();
        let output = output.expect("openssl is installed by scripts/setup");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let serial = run("x509 -in leaf.crt -noout -serial");
    let serial = serial.trim().trim_start_matches("serial=");
    world.write("index", format!("V\t401231235959Z\t\t{serial}\tunknown\t/CN=leaf.t\n"));
    run("ocsp -no_nonce -issuer int.crt -cert leaf.crt -reqout question");
    run("ocsp -index index -rsigner int.crt -rkey int.key -CA int.crt -reqin question -respout answer -ndays 7");
    std::fs::read(world.path("answer")).unwrap()
}

fn text(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.path(name)).unwrap()
}

#[test]
fn chains_are_completed_by_the_issuer_and_its_key() {
    let world = World::new();
    authorities(&world);
    let (int, other, root) = (text(&world, "int.crt"), text(&world, "int2.crt"), text(&world, "root.crt"));
    // What HAProxy 2.6 does with each of these.
    let cases: [(&[(&str, String)], usize); 7] = [
        (&[("a", int.clone())], 1),
        (&[("a", int.clone() + &root)], 2),
        (&[("a", other.clone())], 0),
        (&[("a", other), ("b", int.clone())], 1),
        (&[("a", "junk".to_owned()), (".b.key", int.clone())], 1),
        (&[("a", root.clone() + &int)], 0),
        (&[], 0),
    ];
    for (at, (files, expected)) in cases.iter().enumerate() {
        let directory = format!("chains{at}");
        std::fs::create_dir(world.path(&directory)).unwrap();
        for (name, content) in *files {
            world.write(&format!("{directory}/{name}"), content);
        }
        let path = world.path(&directory);
        let prepared =
            world.prepare_with(vec![world.crt("leaf.pem")], |wanted| wanted.issuers_chain_path = Some(&path));
        let prepared = prepared.unwrap();
        let chain = prepared.certificate(&world.path("leaf.pem")).unwrap().chain().len();
        assert_eq!((chain, prepared.notes().len()), (*expected, usize::from(at == 4)), "{files:?}");
        prepared.commit();
    }
}

#[test]
fn a_response_of_ocsp_is_stapled_from_the_next_handshake_on() {
    let world = World::new();
    authorities(&world);
    let der = ocsp_response(&world);
    let names = ["leaf.crt", "int.crt", "leaf.key"];
    world.write("leaf.pem", names.map(|name| text(&world, name)).concat());
    let index = world.load(vec![world.crt("leaf.pem")]);
    let choice = index.find(None, Verifies::ALL).unwrap();
    assert!(choice.signer().unwrap().ocsp.is_none());
    world.store.staple(&OcspResponse::read(&der).unwrap(), &der);
    assert_eq!(choice.signer().unwrap().ocsp.as_deref(), Some(&der[..]));
}

#[test]
fn parts_come_from_files_beside() {
    let world = World::new();
    authorities(&world);
    let good = &ocsp_response(&world)[..];
    let timestamps = b"\x00\x05\x00\x03abc";
    let int = text(&world, "int.crt");
    // Suffix and content of each file, and what comes of it: stapled, timestamps, notes; or the fault.
    type Outcome = Result<(bool, bool, usize), &'static str>;
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let cases: [(Files<'_>, Outcome); 9] = [
        (&[("ocsp", good), ("issuer", int.as_bytes())], Ok((true, false, 0))),
        (&[("ocsp", b"junk"), ("issuer", int.as_bytes())], Ok((false, false, 1))),
        (&[("ocsp", b""), ("issuer", int.as_bytes())], Ok((false, false, 1))),
        (&[("ocsp", good)], Err("has an OCSP response (.ocsp), but no known issuer")),
        (&[("issuer", b"junk")], Ok((false, false, 0))),
        (&[("sctl", timestamps)], Ok((false, true, 0))),
        (&[("sctl", b"junk")], Err("its list of signed certificate timestamps (.sctl) cannot be read")),
        (&[("sctl", b"")], Err("its list of signed certificate timestamps (.sctl) cannot be read")),
        (&[("key", b"junk")], Ok((false, false, 0))),
    ];
    for (files, expected) in cases {
        for (suffix, content) in files {
            world.write(&format!("leaf.pem.{suffix}"), content);
        }
        let got = world.prepare(vec![world.crt("leaf.pem")]).map(|prepared| {
            let certificate = prepared.certificate(&world.path("leaf.pem")).unwrap();
            (certificate.ocsp().is_some(), certificate.timestamps().is_some(), prepared.notes().len())
        });
        let got = got.map_err(|problems| problems[0].fault.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{files:?}");
        for (suffix, _) in files {
            std::fs::remove_file(world.path(&format!("leaf.pem.{suffix}"))).unwrap();
        }
    }
    world.write("split.crt", text(&world, "leaf.crt"));
    world.write("split.key", text(&world, "leaf.key"));
    assert!(world.prepare(vec![world.crt("split.crt")]).is_err());
    let extra = ExtraFiles { replace_extension: true, ..ExtraFiles::default() };
    assert!(world.prepare_with(vec![world.crt("split.crt")], |wanted| wanted.extra = extra).is_ok());
    let extra = ExtraFiles { key: false, ..extra };
    assert!(world.prepare_with(vec![world.crt("split.crt")], |wanted| wanted.extra = extra).is_err());
}

#[test]
fn crt_stores_say_where_the_parts_are() {
    let world = World::new();
    authorities(&world);
    let load = |alias: Option<&str>, key: &str| CrtLoad {
        crt: world.path("leaf.crt"),
        key: Some(world.path(key)),
        alias: alias.map(str::to_owned),
        ..CrtLoad::default()
    };
    let store = |name: &str, loads| Arc::new(CrtStore { name: name.to_owned(), loads });
    let stores = [
        store("web", vec![load(Some("site"), "leaf.key"), load(None, "leaf.key")]),
        store("", vec![load(None, "leaf.key")]),
        store("bad", vec![load(Some("site"), "int.key"), load(Some("gone"), "nowhere.key")]),
    ];
    let prepare = |name: &str| {
        let path = if name.starts_with('@') { PathBuf::from(name) } else { world.path(name) };
        let source = CrtSource::Crt { path, default: false };
        let prepared = world.prepare_with(vec![source], |wanted| wanted.stores = &stores);
        prepared.map(drop).map_err(|problems| problems[0].fault.to_string())
    };
    for name in ["@web/site", "@web/leaf.crt", "leaf.crt", "@/leaf.crt"] {
        assert_eq!(prepare(name), Ok(()), "{name}");
    }
    assert_eq!(prepare("@web/other"), Err("is not loaded by any crt-store".to_owned()));
    assert_eq!(prepare("@bad/site"), Err("its private key belongs to another certificate".to_owned()));
    let path = world.path("nowhere.key");
    assert_eq!(prepare("@bad/gone"), Err(format!("its file {} cannot be read: no such file", path.display())));
}

#[test]
fn files_that_are_wrong_are_told_apart() {
    let world = World::new();
    authorities(&world);
    let run = |line: &str| {
        let mut command = Command::new("openssl");
        assert!(
            command.args(line.split(' ')).current_dir(world.folder.path()).output().unwrap().status.success(),
            "{line}"
        );
        text(&world, "out")
    };
    let (leaf, key, int) = (text(&world, "leaf.crt"), text(&world, "leaf.key"), text(&world, "int.crt"));
    let made = |kind: &str| {
        let made = run(&format!("req -x509 -newkey {kind} -nodes -keyout kept -out out -subj /CN=k -days 30"));
        made + &text(&world, "kept")
    };
    let rsa = made("rsa:2048");
    world.write("rsa.pem", &rsa);
    let traditional = run("rsa -in rsa.pem -traditional -out out");
    let encrypted = run("pkey -in leaf.key -aes128 -passout pass:x -out out");
    let encrypted_before = run("ec -in leaf.key -aes128 -passout pass:x -out out");
    let without_point = run("ec -in leaf.key -no_public -out out");
    let sec1 = run("ec -in leaf.key -out out");
    let rsa_certificate = rsa.split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned() + "\n";
    let shifted = |text: &str| text.replace("-----BEGIN CERT", " -----BEGIN CERT");
    let cases: Vec<(&str, Vec<u8>, Result<(), &str>)> = vec![
        ("key first", (key.clone() + &leaf).into(), Ok(())),
        ("chain", (leaf.clone() + &key + &int).into(), Ok(())),
        ("CRLF", (leaf.clone() + &key).replace('\n', "\r\n").into(), Ok(())),
        ("blanks at the ends of lines", (leaf.clone() + &key).replace('\n', " \n").into(), Ok(())),
        ("text between", format!("# mine\n{leaf}and\n{key}").into(), Ok(())),
        ("two keys, the first is right", (leaf.clone() + &key + &text(&world, "int.key")).into(), Ok(())),
        ("no end of line", (key.clone() + leaf.trim_end()).into(), Ok(())),
        ("PKCS #1", (rsa_certificate.clone() + &traditional).into(), Ok(())),
        ("SEC 1", (leaf.clone() + &sec1).into(), Ok(())),
        ("no public point", (leaf.clone() + &without_point).into(), Ok(())),
        (
            "DH",
            (leaf.clone() + "-----BEGIN DH PARAMETERS-----\nMAA=\n-----END DH PARAMETERS-----\n" + &key).into(),
            Ok(()),
        ),
        ("P-521", made("ec -pkeyopt ec_paramgen_curve:P-521").into(), Ok(())),
        ("empty", b"\n \n".to_vec(), Err("is empty")),
        ("binary", (0..=255).cycle().take(5000).collect(), Err("holds no certificate")),
        ("key alone", key.clone().into(), Err("holds no certificate")),
        ("not at the start of a line", (shifted(&leaf) + &key).into(), Err("holds no certificate")),
        ("cut", leaf[..300].into(), Err("the block that begins on line 1 has no END line")),
        ("key cut", (leaf.clone() + &key[..100]).into(), Err("the block that begins on line 11 has no END line")),
        (
            "no base64",
            leaf.replacen("MII", "M!I", 1).into(),
            Err("the block that begins on line 1 is not valid base64"),
        ),
        (
            "no certificate in it",
            (leaf.replacen("MII", "MIJ", 1) + &key).into(),
            Err("its certificate cannot be read: it is not X.509 in DER"),
        ),
        (
            "broken chain",
            (leaf.clone() + &key + &int.replacen("MII", "MIJ", 1)).into(),
            Err("certificate 2 in it cannot be read: it is not X.509 in DER"),
        ),
        (
            "another's key",
            (leaf.clone() + &text(&world, "int2.key")).into(),
            Err("its private key belongs to another certificate"),
        ),
        ("another kind of key", (rsa_certificate + &key).into(), Err("its private key belongs to another certificate")),
        (
            "order",
            (int.clone() + &leaf + &key).into(),
            Err("its private key belongs to certificate 2 in it, not to the first one"),
        ),
        (
            "two keys, the second is right",
            (leaf.clone() + &text(&world, "int.key") + &key).into(),
            Err("its private key belongs to another certificate"),
        ),
        ("encrypted", (leaf.clone() + &encrypted).into(), Err("its private key is encrypted with a passphrase")),
        (
            "encrypted as before",
            (leaf.clone() + &encrypted_before).into(),
            Err("its private key is encrypted with a passphrase"),
        ),
        ("broken key", (leaf.clone() + &key.replacen("MIG", "MIH", 1)).into(), Err("its private key cannot be read")),
        ("small RSA", made("rsa:1024").into(), Err("its RSA key has 1024 bits")),
        ("Ed448", made("ed448").into(), Err("its type of public key is not supported")),
        ("RSA-PSS", made("rsa-pss").into(), Err("its type of public key is not supported")),
        ("endless chain", (key.clone() + &leaf.repeat(40)).into(), Err("holds more than 32 certificates")),
        ("large", vec![b'\n'; (MAX_FILE_BYTES + 1) as usize], Err("cannot be read: it is larger than 16 MiB")),
    ];
    for (name, content, expected) in cases {
        world.write("case.pem", content);
        let got = world.prepare(vec![world.crt("case.pem")]).map(drop);
        let got = got.map_err(|problems| problems[0].fault.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{name}");
    }
}

#[test]
fn a_name_may_have_many_certificates_and_lose_them() {
    let world = World::new();
    for number in 0..200 {
        world.site(&format!("{number:03}.pem"), &["same.example", &format!("{number}.example")]);
    }
    let index = world.load(vec![world.crt("")]);
    assert_eq!(world.found(&index, Some("same.example")).0, "000.pem");
    std::fs::remove_file(world.path("000.pem")).unwrap();
    let index = world.load(vec![world.crt("")]);
    for number in (2..200).rev() {
        std::fs::remove_file(world.path(&format!("{number:03}.pem"))).unwrap();
    }
    let mut change = world.store.transaction();
    change.refresh_directory(&world.path(""), None, &SystemFiles::default()).unwrap();
    assert_eq!(world.store.commit(change).removed.len(), 198);
    assert_eq!((world.found(&index, Some("same.example")).0, index.len()), ("001.pem".to_owned(), 1));
    assert_eq!(world.found(&index, Some("7.example")), ("001.pem".to_owned(), true));
}
