//! Name servers that are asked over TLS: a haproxy in front of knot speaks it, and haproxy and Baton find servers by it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::name_server::Knot;
use super::{config, counter, servers};
use crate::peers::Both;
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, free_address, until};

/// A certificate of `dns.test`, that signs itself, and its key, in one file.
fn certificate(folder: &Path) -> PathBuf {
    let (file, key) = (folder.join("dns.pem"), folder.join("key.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=dns.test", "-addext", "subjectAltName=DNS:dns.test"]);
    command.arg("-keyout").arg(&key).arg("-out").arg(&file);
    let output = command.output().expect("openssl is installed by scripts/setup test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let both =
        std::fs::read_to_string(&file).expect("it was made") + &std::fs::read_to_string(&key).expect("so was it");
    std::fs::write(&file, both).expect("the folder is ours");
    file
}

#[test]
fn servers_are_found_over_tls_as_by_haproxy() {
    let knot = Knot::start("a A 127.0.0.11\n_app._tcp SRV 1 10 8001 t1\nt1 A 127.0.0.31");
    let (tls, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let (pem, front) = (certificate(folder.path()), folder.path().join("front.sock"));
    // It takes nobody who asks for another name, or speaks another protocol.
    let _tls = Haproxy::start(
        &format!(
            "global\n stats socket {socket}\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             listen dns\n bind {tls} ssl crt {pem} strict-sni alpn dot\n tcp-request inspect-delay 5s\n \
             tcp-request content reject unless {{ ssl_fc_alpn dot }}\n server knot {knot}\n",
            socket = front.display(),
            pem = pem.display(),
            knot = knot.address,
        ),
        &front,
    );
    let words = format!(
        "ssl verify required ca-file {} verifyhost dns.test sni str(dns.test) alpn dot maxconn 2",
        pem.display()
    );
    let backends = "backend app\n server a a.test:80 resolvers r init-addr none resolve-prefer ipv4\n\
         backend srv\n server-template s 2 _app._tcp.test resolvers r init-addr none resolve-prefer ipv4\n";
    let text = |folder: &Path, web| {
        let text = config(folder, web, tls, backends).replace("timeout retry 100ms", "timeout retry 2s");
        text.replace(&format!("nameserver n1 {tls}"), &format!("nameserver n1 tcp@{tls} {words}"))
    };
    let (ours, theirs) = (free_address(), free_address());
    let both = Both::start_each(|folder| text(folder, ours), |folder| text(folder, theirs));
    let rows = |socket: &Path| {
        let mut rows: Vec<String> =
            servers(socket).iter().map(|row| row.split(' ').skip(2).collect::<Vec<_>>().join(" ")).collect();
        rows.sort();
        rows
    };
    let settle = |what: &str, row: &str| {
        until(what, || {
            let ours = rows(&both.baton("admin.sock"));
            ours.iter().any(|one| one.starts_with(row)) && ours == rows(&both.haproxy("admin.sock"))
        });
    };
    settle("the first addresses", "127.0.0.31 2");
    knot.change("a A 127.0.0.12\n_app._tcp SRV 1 10 8002 t1\nt1 A 127.0.0.32");
    settle("the next ones", "127.0.0.32 2");
    settle("of both", "127.0.0.12 2");
}

#[test]
fn a_name_server_that_cannot_be_trusted_is_not_believed() {
    let knot = Knot::start("a A 127.0.0.11");
    let (tls, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let (pem, front) = (certificate(folder.path()), folder.path().join("front.sock"));
    let _tls = Haproxy::start(
        &format!(
            "global\n stats socket {socket}\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             listen dns\n bind {tls} ssl crt {pem}\n server knot {knot}\n",
            socket = front.display(),
            pem = pem.display(),
            knot = knot.address,
        ),
        &front,
    );
    let backend = "backend app\n server a a.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let plain = config(folder.path(), free_address(), tls, backend).replace("timeout retry 100ms", "timeout retry 1s");
    let with =
        |words: &str| plain.replace(&format!("nameserver n1 {tls}"), &format!("nameserver n1 tcp@{tls} {words}"));
    let trusting = format!("ssl verify required ca-file {}", pem.display());
    let proxy = Proxy::start(&with(&format!("{trusting} verifyhost other.test")));
    let socket = folder.path().join("admin.sock");
    until("it is asked", || counter(&socket, "snd_error") > 1);
    assert!(servers(&socket)[0].starts_with("app a - "), "{:?}", servers(&socket));
    // Without TLS, where it is expected, nothing is said at all.
    assert!(proxy.change(&with("")).accepted);
    let sent = counter(&socket, "sent");
    until("it is asked again", || counter(&socket, "sent") > sent + 1);
    assert!(servers(&socket)[0].starts_with("app a - "), "{:?}", servers(&socket));
    // A reload puts it right; one that names a file that is not there changes nothing.
    let right = with(&trusting);
    assert!(proxy.change(&right).accepted);
    until("it is believed", || servers(&socket)[0].starts_with("app a 127.0.0.11 "));
    let gone = right.replace("dns.pem", "gone.pem");
    let reasons = proxy.change_refused(&gone);
    assert!(reasons.contains("gone.pem") && reasons.contains("n1"), "{reasons}");
    let valid = counter(&socket, "valid");
    until("it goes on", || counter(&socket, "valid") > valid);
}
