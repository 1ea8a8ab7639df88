//! OCSP responses, made by `openssl ocsp`, as files and by commands: what is answered and what clients are shown, as from
//! Debian's haproxy.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use tempfile::TempDir;

use crate::peers::{Both, socat};
use crate::support::{free_address, until};

/// A responder with certificates to answer about: `a` and `b`.
struct Responder {
    folder: TempDir,
    a: Issued,
    b: Issued,
}

/// What the responder is to say of a certificate.
enum Said {
    Good,
    Revoked,
    /// Nothing is known of it.
    Unknown,
}

impl Responder {
    fn new() -> Responder {
        let authority = Authority::new("Test").expect("a key can be made");
        let [a, b] =
            ["a.example", "b.example"].map(|name| authority.issue(&CertificateSpec::server([name])).expect("it is"));
        let folder = tempfile::tempdir().expect("a folder for the test");
        let files = [
            ("ca.pem", authority.between_pem()),
            ("ca.key", authority.between_key_pem()),
            ("a.pem", a.certificate_pem().to_owned()),
            ("b.pem", b.certificate_pem().to_owned()),
        ];
        for (name, content) in files {
            fs::write(folder.path().join(name), content).expect("the folder is ours");
        }
        Responder { folder, a, b }
    }

    /// Its answer to a question with `asked`, and `words` for the one who signs.
    fn answer(&self, asked: &str, said: Said, words: &str) -> Vec<u8> {
        let line = |issued: &Issued| match said {
            Said::Good => format!("V\t401231235959Z\t\t{0:02X}\tunknown\t/CN={0}\n", issued.serial),
            Said::Revoked => {
                format!("R\t401231235959Z\t251001000000Z,keyCompromise\t{0:02X}\tunknown\t/CN={0}\n", issued.serial)
            }
            Said::Unknown => String::new(),
        };
        fs::write(self.folder.path().join("index"), line(&self.a) + &line(&self.b)).expect("the folder is ours");
        self.run(&format!("ocsp -no_nonce -reqout question {asked}"));
        let signer = "-index index -rsigner ca.pem -rkey ca.key -CA ca.pem";
        self.run(&format!("ocsp {signer} -reqin question -respout answer {words}"));
        fs::read(self.folder.path().join("answer")).expect("it was written")
    }

    fn run(&self, line: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(line.split_whitespace()).current_dir(self.folder.path()).output();
        let output = output.expect("openssl is installed by scripts/setup test");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A week's, about `a`.
    fn good(&self) -> Vec<u8> {
        self.answer("-issuer ca.pem -cert a.pem", Said::Good, "-ndays 7")
    }

    /// About `a`, with an end this many seconds from now.
    fn until(&self, seconds: u64) -> Vec<u8> {
        let end = Command::new("date").args(["-u", &format!("-d+{seconds} seconds"), "+%Y%m%d%H%M%SZ"]).output();
        let end = end.expect("every system has it").stdout;
        let mut answer = self.good();
        let at = places(&answer)[2];
        answer[at + 2..at + 17].copy_from_slice(end.trim_ascii());
        answer
    }

    /// Every kind of answer, with a word for it.
    fn answers(&self) -> Vec<(&'static str, Vec<u8>)> {
        let about_a = |said, words| self.answer("-issuer ca.pem -cert a.pem", said, words);
        let about = |asked| self.answer(asked, Said::Good, "-ndays 7");
        // Its end comes last of the dates; nobody looks at the signature but clients.
        let date = |which: usize, year: &[u8]| {
            let mut answer = self.good();
            for at in &places(&answer)[which..3] {
                answer[at + 2..at + 6].copy_from_slice(year);
            }
            answer
        };
        vec![
            ("revoked", about_a(Said::Revoked, "-ndays 7")),
            ("by the hash of a key", about_a(Said::Good, "-ndays 7 -resp_key_id")),
            ("unknown", about_a(Said::Unknown, "-ndays 7")),
            ("without an end", about_a(Said::Good, "")),
            ("near its end", about_a(Said::Good, "-nmin 4")),
            ("not so near its end", about_a(Said::Good, "-nmin 20")),
            ("out of date", date(0, b"2020")),
            ("of the future", date(1, b"2090")),
            ("ends before it begins", date(2, b"2020")),
            ("of another certificate", about("-issuer ca.pem -cert b.pem")),
            ("by SHA-256", about("-sha256 -issuer ca.pem -cert a.pem")),
            ("about two", about("-issuer ca.pem -cert a.pem -cert b.pem")),
            ("no answer", b"\x30\x03\x0a\x01\x03".to_vec()),
            ("junk", b"junk".to_vec()),
            ("empty", Vec::new()),
        ]
    }
}

/// Where an answer has dates: when it was made, from when on it is good, and until when.
fn places(answer: &[u8]) -> Vec<usize> {
    (0..answer.len() - 16).filter(|at| answer[*at..].starts_with(b"\x18\x0f20")).collect()
}

/// A configuration in which `a` has an OCSP response.
fn config(responder: &Responder, folder: &Path, web: SocketAddr, response: &[u8]) -> String {
    let place = folder.display();
    for (name, content) in [("a.pem", responder.a.bundle_pem()), ("b.pem", responder.b.bundle_pem())] {
        fs::write(folder.join(name), content).expect("the folder is ours");
    }
    fs::write(folder.join("a.pem.ocsp"), response).expect("the folder is ours");
    format!(
        "global\n stats timeout 20s\n stats socket {place}/admin.sock level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web} ssl crt {place}/a.pem crt {place}/b.pem\n"
    )
}

/// What a client is told of the certificate's status, with this protocol.
fn stapled(web: SocketAddr, protocol: &str) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &web.to_string(), "-servername", "a.example", "-status", protocol])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl is installed by scripts/setup test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("-----BEGIN CERTIFICATE-----"), "{text}");
    let words = ["OCSP response:", "Cert Status:", "Revocation Reason:", "This Update:", "Next Update:"];
    let is_told = |line: &&str| words.iter().any(|word| line.trim_start().starts_with(word));
    text.lines().filter(is_told).map(|line| line.trim().to_owned() + "\n").collect()
}

/// Both programs, their addresses for clients, and what differed until now.
struct Comparison {
    both: Both,
    web: [SocketAddr; 2],
    differences: String,
}

impl Comparison {
    fn start(responder: &Responder, response: &[u8]) -> Comparison {
        let web = [(); 2].map(|()| free_address());
        let both = Both::start_each(
            |folder| config(responder, folder, web[0], response),
            |folder| config(responder, folder, web[1], response),
        );
        Comparison { both, web, differences: String::new() }
    }

    fn compare(&mut self, what: &str, ours: &str, theirs: &str) {
        if ours != theirs {
            let _ = writeln!(self.differences, "> {what}\n--- haproxy\n{theirs}\n--- Baton\n{ours}");
        }
    }

    /// Asks both the same; gives haproxy's answer.
    fn ask(&mut self, what: &str, command: &str) -> String {
        // `<DIR>` is the program's folder; a response may have any letters, but none of these brackets.
        let ask = |socket: &Path| {
            let place = socket.parent().expect("it is in a folder").display().to_string();
            let text = socat(socket, command.replace("<DIR>", &place)).replace(&place, "DIR");
            // What follows, a signature and who made it, only haproxy prints.
            let end = text.find("Signature Algorithm:").unwrap_or(text.len());
            text[..end].trim_end().to_owned()
        };
        let (ours, theirs) = (ask(&self.both.baton("admin.sock")), ask(&self.both.haproxy("admin.sock")));
        self.compare(what, &ours, &theirs);
        theirs
    }

    /// Gives what clients of haproxy are told.
    fn client(&mut self, what: &str) -> String {
        let mut told = String::new();
        for protocol in ["-tls1_2", "-tls1_3"] {
            let (ours, theirs) = (stapled(self.web[0], protocol), stapled(self.web[1], protocol));
            self.compare(&format!("{what} {protocol}"), &ours, &theirs);
            told = theirs;
        }
        told
    }

    fn set(&mut self, what: &str, response: &[u8]) -> String {
        let command = format!("set ssl ocsp-response <<\n{}\n\n", STANDARD.encode(response));
        let answer = self.ask(&format!("set: {what}"), &command);
        self.client(what);
        answer
    }

    #[track_caller]
    fn end(self) {
        assert!(self.differences.is_empty(), "{}", self.differences);
    }
}

#[test]
fn responses_are_set_and_shown_as_by_haproxy() {
    let responder = Responder::new();
    let good = responder.good();
    let mut comparison = Comparison::start(&responder, &good);
    let told = comparison.client("as it was started");
    assert!(told.contains("Cert Status: good"), "{told}");
    let list = comparison.ask("the list", "show ssl ocsp-response\n");
    let id = list.lines().find_map(|line| line.split_once("key : ")).expect("there is one").1.to_owned();
    comparison.ask("one", &format!("show ssl ocsp-response {id}\n"));
    comparison.ask("one by its file", "show ssl cert <DIR>/a.pem.ocsp\n");
    let other = format!("{}7f", &id[..id.len() - 2]);
    comparison.ask("none", &format!("show ssl ocsp-response {other}\n"));
    // Without a payload it is another command; what has no file beside it haproxy does not take.
    let apart = ["empty", "of another certificate"];
    for (what, answer) in responder.answers().into_iter().filter(|(what, _)| !apart.contains(what)) {
        let said = comparison.set("what is good", &good);
        assert_eq!(said, "OCSP Response updated!");
        comparison.set(what, &answer);
        comparison.ask(&format!("show: {what}"), &format!("show ssl ocsp-response {id}\n"));
    }
    comparison.set("what is revoked", &responder.answers()[0].1);
    assert!(comparison.client("what is revoked").contains("Revocation Reason: keyCompromise"));
    comparison.ask("nothing", "set ssl ocsp-response\n");
    comparison.ask("no base64", "set ssl ocsp-response !!!\n");
    comparison.ask("in one line", &format!("set ssl ocsp-response {}\n", STANDARD.encode(&good)));
    let of_b = responder.answer("-issuer ca.pem -cert b.pem", Said::Good, "-ndays 7");
    let set = format!("set ssl ocsp-response {}\n", STANDARD.encode(of_b));
    let socket = comparison.both.baton("admin.sock");
    assert_eq!(socat(&socket, set).trim_end(), "OCSP Response updated!", "Baton takes it for every certificate");
    assert_eq!(socat(&socket, "show ssl ocsp-response\n").matches("Certificate ID key").count(), 2);
    comparison.end();
}

#[test]
fn files_are_taken_or_left_as_by_haproxy() {
    let responder = Responder::new();
    for (what, answer) in responder.answers() {
        let mut comparison = Comparison::start(&responder, &answer);
        comparison.client(what);
        // It can be set later, whatever the file was.
        let good = responder.good();
        assert_eq!(comparison.set("what is good", &good), "OCSP Response updated!");
        comparison.end();
    }
}

/// Seconds before its end from which on a response is not stapled any more.
const MARGIN_S: u64 = 300;

#[test]
fn a_response_that_grows_old_while_it_is_served_is_stapled_no_more_as_by_haproxy() {
    let responder = Responder::new();
    let mut comparison = Comparison::start(&responder, &responder.good());
    let list = comparison.ask("the list", "show ssl ocsp-response\n");
    let id = list.lines().find_map(|line| line.split_once("key : ")).expect("there is one").1.to_owned();
    let web = comparison.web;
    let is_told = |web| stapled(web, "-tls1_3").contains("Cert Status: good");
    // How long is enough depends on the machine.
    let old = [3, 9, 27].into_iter().find_map(|seconds| {
        let young = responder.until(MARGIN_S + seconds);
        let command = format!("set ssl ocsp-response <<\n{}\n\n", STANDARD.encode(&young));
        assert_eq!(comparison.ask("while it is good", &command), "OCSP Response updated!");
        (is_told(web[0]) && is_told(web[1])).then_some(young)
    });
    let old = old.expect("it was stapled as long as it was good");
    until("both let go of it", || !is_told(web[0]) && !is_told(web[1]));
    comparison.client("old");
    comparison.ask("show: old", &format!("show ssl ocsp-response {id}\n"));
    comparison.ask("the list: old", "show ssl ocsp-response\n");
    // By the clock it is still good, so it is taken, and not stapled.
    comparison.set("old", &old);
    comparison.ask("show: old again", &format!("show ssl ocsp-response {id}\n"));
    comparison.set("new", &responder.good());
    assert!(comparison.client("new").contains("Cert Status: good"));
    comparison.end();
}
