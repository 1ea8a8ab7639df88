//! `openssl s_client`: names, certificates of clients, sessions, renegotiation.

use baton_prove::certificates::{Authority, CertificateSpec, KeyKind};

use crate::support::{Proxy, free_address};
use crate::tool::{Said, Tool};
use crate::world::{World, usual};

const REQUEST: &str = "GET /bytes/7 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// Connects with these words, asks once and reads until the other side closes.
#[track_caller]
pub fn ask(world: &World, words: &[&str]) -> Said {
    let mut tool = Tool::new("openssl", &["s_client", "-ign_eof", "-connect", &world.web.to_string()]);
    tool.word("-CAfile").word(world.at("ca.pem")).words(words).input(REQUEST).run()
}

/// Whether a handshake came to be and the request was answered.
pub fn answered(said: &Said) -> bool {
    said.out.contains("HTTP/1.1 200 ")
}

/// The certificate shown for this name; `None` when the handshake was refused.
#[track_caller]
fn shown(world: &World, name: Option<&str>) -> Option<String> {
    let words = name.map_or(vec!["-noservername"], |name| vec!["-servername", name]);
    let said = ask(world, &words);
    let subject = said.out.lines().find_map(|line| line.strip_prefix("subject=CN = "));
    assert_eq!(subject.is_some(), answered(&said), "{said:?}");
    subject.map(str::to_owned)
}

#[test]
fn the_certificate_follows_the_name() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem crt FOLDER/b.pem");
    let check = |name: Option<&str>, expect: &str| assert_eq!(shown(&world, name).as_deref(), Some(expect), "{name:?}");
    check(Some("a.example"), "a.example");
    check(Some("WWW.A.example"), "a.example");
    check(Some("b.example"), "b.example");
    check(Some("x.b.example"), "b.example");
    // Neither has it: the first one.
    check(Some("x.y.b.example"), "a.example");
    check(Some("c.example"), "a.example");
    check(None, "a.example");
}

#[test]
fn strict_sni_shows_nothing_to_those_who_ask_for_somebody_else() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem crt FOLDER/b.pem strict-sni");
    assert_eq!(shown(&world, Some("b.example")).as_deref(), Some("b.example"));
    assert_eq!(shown(&world, Some("c.example")), None);
    assert_eq!(shown(&world, None), None);
}

#[test]
fn the_chain_is_sent_whole() {
    let mut world = usual();
    let said = ask(&world, &["-servername", "a.example", "-verify_return_error", "-verify_hostname", "a.example"]);
    said.says(&["Verification: OK", "Verified peername: a.example", " 1 s:CN = Test\n", "HTTP/1.1 200 "]);
    world.serves();
}

#[test]
fn a_root_in_the_file_is_sent_unless_it_is_to_be_skipped() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let authority = Authority::new("Test").expect("an authority");
    let issued = authority.issue(&CertificateSpec::server(["a.example"])).expect("a certificate");
    let crt = folder.path().join("rooted.pem");
    std::fs::write(&crt, issued.bundle_pem() + &authority.root_pem()).expect("the folder is ours");
    let web = free_address();
    let config = |global: &str| {
        format!(
            "global\n {global}\ndefaults\n mode http\n timeout client 30s\nfrontend web\n bind {web} ssl crt {}\n \
             http-request return status 200\n",
            crt.display()
        )
    };
    let sent = || {
        let said = Tool::new("openssl", &["s_client", "-showcerts", "-connect", &web.to_string()]).input(REQUEST).run();
        said.out.lines().filter(|line| line.contains(" s:")).count()
    };
    // With it HAProxy 2.6 sends the certificate and who issued it, without it the root as well.
    let proxy = Proxy::start(&config("ssl-skip-self-issued-ca"));
    assert_eq!(sent(), 2);
    for (global, expect) in [("", 3), ("ssl-skip-self-issued-ca", 2)] {
        proxy.change(&config(global));
        assert_eq!(sent(), expect, "{global:?}");
    }
}

#[test]
fn clients_have_to_show_who_they_are() {
    let verify = "crt FOLDER/a.pem ca-file FOLDER/clients.pem verify";
    for (how, without) in [("required", false), ("optional", true)] {
        let world = World::start(KeyKind::P256, &format!("{verify} {how}"));
        let stranger = Authority::new("Stranger").expect("an authority").issue(&CertificateSpec::client("nobody"));
        world.write("stranger.pem", &stranger.expect("a certificate").bundle_pem());
        world.write("expired.pem", &world.issue(&CertificateSpec::client("late").expired()).bundle_pem());
        for version in ["-tls1_2", "-tls1_3"] {
            let with = |file: &str| {
                let file = world.at(file).display().to_string();
                answered(&ask(&world, &[version, "-cert", &file, "-cert_chain", &file]))
            };
            let seen =
                (with("client.pem"), with("stranger.pem"), with("expired.pem"), answered(&ask(&world, &[version])));
            assert_eq!(seen, (true, false, false, without), "{how} {version}");
        }
    }
}

#[test]
fn nobody_is_asked_for_a_certificate_without_verify() {
    let world = usual();
    ask(&world, &["-tls1_2"]).says(&["No client certificate CA names sent", "HTTP/1.1 200 "]);
}

#[test]
fn sessions_are_resumed() {
    let world = usual();
    let resumed = |words: &[&str]| {
        let session = world.at("session").display().to_string();
        let first = ask(&world, &[words, &["-sess_out", &session]].concat());
        let again = ask(&world, &[words, &["-sess_in", &session]].concat());
        assert!(answered(&first) && answered(&again), "{words:?}: {first:?}\n{again:?}");
        assert!(first.out.contains("\nNew, TLSv1."), "{first:?}");
        again.out.contains("\nReused, TLSv1.")
    };
    assert!(resumed(&["-tls1_2"]), "by a ticket");
    assert!(resumed(&["-tls1_2", "-no_ticket"]), "by the server's memory");
    assert!(resumed(&["-tls1_3"]), "by a ticket of TLS 1.3");
}

#[test]
fn without_tickets_none_is_sent() {
    let world = World::start(KeyKind::P256, "crt FOLDER/a.pem no-tls-tickets");
    let said = ask(&world, &["-tls1_2"]);
    assert!(answered(&said) && !said.out.contains("TLS session ticket"), "{said:?}");
}

#[test]
fn renegotiation_is_refused() {
    let mut world = usual();
    let mut tool = Tool::new("openssl", &["s_client", "-connect", &world.web.to_string(), "-tls1_2"]);
    let said = tool.input("R\nQ\n").run().all();
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    world.serves();
}
