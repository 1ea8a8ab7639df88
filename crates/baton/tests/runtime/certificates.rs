//! Commands about certificates: what is typed and what comes back, as from Debian's haproxy, and what clients see of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use baton_prove::certificates::{Authority, CertificateSpec, Issued};

use crate::peers::{Both, socat};
use crate::support::{Proxy, free_address};

/// Certificates that both programs have.
struct Desk {
    authority: Authority,
    files: Vec<(&'static str, String)>,
}

impl Desk {
    fn new() -> Desk {
        let authority = Authority::new("Test").expect("a key can be made");
        let issue =
            |names: &[&str]| authority.issue(&CertificateSpec::server(names.iter().copied())).expect("it can be made");
        let [a, a2, b, n] =
            [&["a.example", "*.a.example"][..], &["a.example"], &["b.example"], &["new.example"]].map(issue);
        let keys: String = ["Qd5Q", "zJx8", "Lk3v"].map(|start| format!("{start}{}\n", "A".repeat(60))).concat();
        let files = vec![
            ("a.pem", a.bundle_pem()),
            ("a2.pem", a2.bundle_pem()),
            ("a2.crt", a2.chain_pem()),
            ("a2.key", a2.key_pem().to_owned()),
            ("b.pem", b.bundle_pem()),
            ("b.key", b.key_pem().to_owned()),
            ("n.pem", n.bundle_pem()),
            ("ca.pem", authority.root_pem()),
            ("two.pem", authority.root_pem() + &authority.between_pem()),
            ("crl.pem", authority.revoke(&[]).expect("a list")),
            ("crl2.pem", authority.revoke(&[b.serial]).expect("a list")),
            ("dir/c.pem", issue(&["c.example"]).bundle_pem()),
            ("junk", "junk\n".into()),
            ("keys", keys),
            ("newkey", format!("Zz{}", "B".repeat(62))),
            ("line", "<DIR>/b.pem [alpn http/1.1 verify none] c1.example c2.example\n".into()),
        ];
        Desk { authority, files }
    }

    /// A configuration, and its files.
    fn config(&self, folder: &Path) -> String {
        let place = folder.display();
        fs::create_dir(folder.join("dir")).expect("the folder is ours");
        for (name, content) in &self.files {
            fs::write(folder.join(name), content).expect("the folder is ours");
        }
        let list = format!(
            "{place}/a.pem [alpn http/1.1 ssl-min-ver TLSv1.2] a.example !x.a.example\n# nothing\n{place}/b.pem\n\
             {place}/b.pem b2.example\n"
        );
        fs::write(folder.join("list"), list).expect("the folder is ours");
        let [one, two] = [(); 2].map(|()| free_address());
        format!(
            "global\n nbthread 1\n stats timeout 20s\n stats socket {place}/admin.sock level admin\n\
             stats socket {place}/operator.sock level operator\n tune.bufsize 32768\n\
             defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             frontend web\n bind {one} ssl crt-list {place}/list tls-ticket-keys {place}/keys\n\
             bind {two} ssl crt {place}/a.pem crt {place}/dir verify optional ca-file {place}/ca.pem crl-file {place}/crl.pem\n"
        )
    }

    /// A command for a program whose folder this is: `DIR` is the folder, and what stands behind `<<` a file's
    /// content, in which `<DIR>` is the folder.
    fn command(&self, folder: &Path, line: &str) -> String {
        let place = folder.display().to_string();
        match line.split_once(" <<") {
            None => line.replace("DIR", &place) + "\n",
            Some((command, name)) => {
                let content = self.files.iter().find(|(file, _)| *file == name).expect("a file of the test");
                // A key may have any letters, but none of these brackets.
                let content = content.1.replace("<DIR>", &place);
                format!("{} <<\n{}\n\n", command.replace("DIR", &place), content.trim_end())
            }
        }
    }
}

/// Blanks within lists of options, places of files, and what is each program's own are not compared.
fn normal(text: &str, folder: &Path) -> String {
    let text = text.replace(&folder.display().to_string(), "DIR");
    let line = |line: &str| {
        let line = line
            .split(|letter: char| letter.is_whitespace() || letter.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        // The file of the configuration is elsewhere.
        match line.rsplit_once(':') {
            Some((_, number)) if line.starts_with("- ") => format!("- bind on line {number}"),
            _ => line,
        }
    };
    let system = |line: &&str| !line.starts_with("@system-ca");
    text.trim_end().lines().filter(system).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn conversations_about_certificates_are_those_of_haproxy() {
    let desk = Desk::new();
    let both = Both::start(|folder| desk.config(folder));
    let (ours, theirs) = (both.baton("x"), both.haproxy("x"));
    let (ours, theirs) = (ours.parent().expect("a folder"), theirs.parent().expect("a folder"));
    let mut differences = String::new();
    for line in include_str!("certificates.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (socket, line) = match line.strip_prefix("operator: ") {
            Some(line) => ("operator.sock", line),
            None => ("admin.sock", line),
        };
        let found = socat(&both.baton(socket), desk.command(ours, line));
        let expected = socat(&both.haproxy(socket), desk.command(theirs, line));
        let (found, expected) = (normal(&found, ours), normal(&expected, theirs));
        if found != expected {
            differences.push_str(&format!("> {line}\n--- haproxy\n{expected}\n--- Baton\n{found}\n"));
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// The certificate that a client is shown, without its first and last line.
fn shown(address: std::net::SocketAddr, name: &str) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string(), "-servername", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl is installed by scripts/setup test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let body = text.split_once("-----BEGIN CERTIFICATE-----").and_then(|(_, rest)| rest.split_once("-----END"));
    body.map(|(body, _)| body.split_whitespace().collect()).unwrap_or_default()
}

fn body(issued: &Issued) -> String {
    let pem = issued.certificate_pem();
    pem.lines().filter(|line| !line.starts_with("-----")).collect()
}

#[test]
fn what_is_committed_is_shown_to_clients_and_a_reload_reads_the_files() {
    let desk = Desk::new();
    let folder = tempfile::tempdir().unwrap();
    let config = desk.config(folder.path());
    let web = config.split("bind ").nth(1).and_then(|bind| bind.split(' ').next()).unwrap().parse().unwrap();
    let proxy = Proxy::start(&config);
    let socket = folder.path().join("admin.sock");
    let issue = |name: &str| desk.authority.issue(&CertificateSpec::server([name])).unwrap();
    let ask = |command: String| socat(&socket, command);
    let place = folder.path().display().to_string();

    let other = issue("a.example");
    let before = shown(web, "a.example");
    let set = ask(format!("set ssl cert {place}/a.pem <<\n{}\n\n", other.bundle_pem().trim_end()));
    assert_eq!(set.trim_end(), format!("Transaction created for certificate {place}/a.pem!"));
    assert_eq!(shown(web, "a.example"), before, "nothing is committed");
    assert!(ask(format!("commit ssl cert {place}/a.pem\n")).contains("Success!"));
    assert_eq!(shown(web, "a.example"), body(&other));
    let dumped = ask(format!("dump ssl cert {place}/a.pem\n"));
    assert!(dumped.contains("PRIVATE KEY") && dumped.contains("BEGIN CERTIFICATE"));

    let new = issue("new.example");
    assert!(ask("new ssl cert n.pem\n".into()).contains("New empty"));
    ask(format!("set ssl cert n.pem <<\n{}\n\n", new.bundle_pem().trim_end()));
    ask("commit ssl cert n.pem\n".into());
    assert_ne!(shown(web, "new.example"), body(&new), "it is in no list");
    assert!(ask(format!("add ssl crt-list {place}/list n.pem\n")).contains("Success!"));
    assert_eq!(shown(web, "new.example"), body(&new));
    assert!(ask(format!("del ssl crt-list {place}/list n.pem\n")).contains("deleted"));
    assert_eq!(shown(web, "new.example"), body(&other), "the default again");

    assert!(proxy.reload().accepted);
    assert_eq!(shown(web, "a.example"), before, "the files win");
}
