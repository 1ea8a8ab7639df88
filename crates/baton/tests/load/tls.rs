//! TLS against a real nginx: who is trusted, which versions and names are offered, and what a failed handshake is counted as.

use std::path::Path;
use std::process::Command;

use super::nginx::Nginx;
use super::{Said, file, load_json};

/// What nginx says of the connection.
const SAYS: &str = r#"ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate FOLDER/server.pem; ssl_certificate_key FOLDER/server.key;
    ssl_client_certificate FOLDER/authority.pem; ssl_verify_client optional;
    location /says { return 200 "$ssl_protocol|$ssl_server_name|$ssl_client_verify|$http_host"; }
    location /resumed { return 200 "$ssl_session_reused"; }"#;

/// Makes an authority, and with it a server's certificate for `www.example` and 127.0.0.1, and a client's.
pub fn certificates(folder: &Path) {
    let openssl = |line: &str| {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(folder).output().expect("see scripts/setup");
        assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
    openssl(&format!("req -x509 {key} -keyout authority.key -out authority.pem -subj /CN=authority"));
    file(folder, "server.ext", "subjectAltName=DNS:www.example,IP:127.0.0.1\n");
    file(folder, "client.ext", "extendedKeyUsage=clientAuth\n");
    for name in ["server", "client"] {
        let key = key.strip_suffix(" -days 30").expect("it ends so");
        openssl(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 30 -extfile {name}.ext -out {name}.pem"
        ));
    }
    let own = ["client.pem", "client.key"].map(|name| std::fs::read(folder.join(name)).expect("made just above"));
    file(folder, "own.pem", own.concat());
}

fn nginx() -> Nginx {
    Nginx::with("ssl", SAYS, certificates)
}

/// Asks three times with these options.
fn ask(nginx: &Nginx, options: &str, path: &str) -> Said {
    load_json(&format!("-n 3 {options} https://{}{path}", nginx.address))
}

#[test]
fn the_server_sees_version_name_and_certificate() {
    let nginx = nginx();
    let at = nginx.folder.path().display();
    let trusting = format!("--ca-file {at}/authority.pem");
    let check = |options: &str, expect: String| {
        let right = file(nginx.folder.path(), "right", expect);
        let said = ask(&nginx, &format!("{options} --expect-body {right}"), "/says");
        assert_eq!(said.counts(), (Some(0), 3, 3, 0), "{options}: {said:?}");
    };
    let address = nginx.address;
    // An address is no name for SNI.
    check(&trusting, format!("TLSv1.3||NONE|{address}"));
    check("--insecure -f TLS1.2", format!("TLSv1.2||NONE|{address}"));
    check(&format!("{trusting} --sni www.example"), format!("TLSv1.3|www.example|NONE|{address}"));
    check(&format!("{trusting} --sni www.example --host a.b -f TLS1.3"), "TLSv1.3|www.example|NONE|a.b".into());
    check(&format!("{trusting} -E {at}/own.pem"), format!("TLSv1.3||SUCCESS|{address}"));
    check("--insecure -I", format!("TLSv1.3||NONE|{address}"));
}

#[test]
fn a_handshake_that_fails_is_a_kind_of_its_own() {
    let nginx = nginx();
    let at = nginx.folder.path().display();
    let check = |options: &str, reason: &str| {
        let said = ask(&nginx, options, "/says");
        let result = said.json();
        assert_eq!((said.counts(), &result["failures"]["tls_handshake"]), ((Some(1), 3, 0, 3), &3.into()), "{said:?}");
        let told = result["first_failures"][0]["reason"].as_str().unwrap_or_default().to_lowercase();
        assert!(told.contains(reason), "{options}: {told}");
    };
    check("", "issuer");
    check(&format!("--ca-file {at}/client.pem"), "certificate");
    check(&format!("--ca-file {at}/authority.pem --sni other.example"), "name");
    let plain = Nginx::start("");
    let said = load_json(&format!("-n 2 --insecure https://{}/", plain.address));
    assert_eq!(said.json()["failures"]["tls_handshake"], 2, "{said:?}");
}

#[test]
fn sessions_are_resumed_unless_asked_otherwise() {
    let nginx = nginx();
    let resumed = |options: &str| {
        let said = ask(&nginx, &format!("--insecure {options}"), "/resumed");
        assert_eq!(said.counts(), (Some(0), 3, 3, 0), "{said:?}");
        said.json()["resumed"].as_u64()
    };
    assert_eq!((resumed("-l -f TLS1.2"), resumed("--full-handshakes")), (Some(2), Some(0)));
}
