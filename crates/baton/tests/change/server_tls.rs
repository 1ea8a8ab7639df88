//! `set server B/S ssl on|off`: an override like the others, that new connections follow.

use std::fs;

use baton_prove::certificates::{Authority, CertificateSpec};

use super::overrides::Operated;
use super::{connect, exchange};
use crate::support::free_address;

/// A process with an address that speaks TLS and one that does not, which are servers of its own backends.
struct Encrypted {
    operated: Operated,
    text: String,
}

impl Encrypted {
    fn start() -> Encrypted {
        let operated = Operated::start();
        let issued =
            Authority::new("Test").and_then(|authority| authority.issue(&CertificateSpec::server(["localhost"])));
        let pem = operated.folder.path().join("site.pem");
        fs::write(&pem, issued.expect("a certificate can be made").bundle_pem()).expect("the folder is ours");
        let (tls, plain) = (free_address(), free_address());
        let text = operated.text.replace(
            "\nfrontend web",
            &format!(
                "\nfrontend tls\n bind {tls} ssl crt {}\n http-request return status 200 content-type text/plain string =tls=\n\
                 frontend plain\n bind {plain}\n http-request return status 200 content-type text/plain string =plain=\nfrontend web",
                pem.display()
            ),
        );
        let text = text.replace(
            " default_backend app\n",
            " use_backend on if { path /on }\n use_backend off if { path /off }\n default_backend app\n",
        );
        let text = format!(
            "{text}backend on\n server s {tls} ssl verify none\nbackend off\n default-server ssl verify none\n server s {plain} no-ssl\n"
        );
        operated.proxy.change(&text);
        Encrypted { operated, text }
    }

    /// What answers there: `tls`, `plain`, or a status.
    fn answer(&self, target: &str) -> String {
        let answer = exchange(&mut connect(self.operated.web), target, "close").expect("an answer");
        let status = || answer.split(' ').nth(1).unwrap_or_default();
        answer.split('=').nth_back(1).filter(|_| answer.contains(" 200 ")).unwrap_or_else(status).to_owned()
    }

    #[track_caller]
    fn set(&self, server: &str, word: &str) {
        let reply = self.operated.command(&format!("set server {server} ssl {word}"));
        assert_eq!(reply, "server ssl setting updated.\n\n", "{server} {word}");
    }
}

#[test]
fn tls_with_a_server_is_switched_at_run_time_until_the_file_says_otherwise() {
    let all = Encrypted::start();
    let both = || [all.answer("/on"), all.answer("/off")];
    assert_eq!(both(), ["tls", "plain"]);
    // An address that speaks TLS answers what is no handshake with an alert, one that does not with no handshake.
    all.set("on/s", "off");
    all.set("off/s", "on");
    assert_eq!(both(), ["502", "503"]);
    let shown = all.operated.command("show overrides");
    assert!(shown.contains("server on/s ssl disabled (file: enabled)"), "{shown}");
    let saved = all.operated.command("save overrides");
    assert!(saved.contains("verify none no-ssl") && saved.lines().any(|line| line.ends_with(" ssl")), "{saved}");

    let proxy = &all.operated.proxy;
    proxy.change(&all.text.replace("timeout client 30s", "timeout client 31s"));
    assert_eq!(both(), ["502", "503"], "a reload keeps it");
    let _second = proxy.replace(&[]);
    assert_eq!(both(), ["502", "503"], "so does a process that takes over");
    assert_eq!(all.operated.command("clear overrides on/s ssl"), "\n");
    all.set("off/s", "off");
    assert_eq!(both(), ["tls", "plain"]);
    assert_eq!(all.operated.command("show overrides"), "\n");
}
