//! The words of TLS: what they become in the model, and what is said about them.

use std::path::PathBuf;

use baton_config::{FixedEnvironment, Options, Severity, load};
use baton_model::{BindTls, CrtSource, Model};

const LIST: &str = "a.pem !*\n# comment\nb.pem [alpn http/1.1 ssl-min-ver TLSv1.3 ca-file x.pem] *.b.test !c.b.test\n";

fn environment(text: &str) -> FixedEnvironment {
    let mut env = FixedEnvironment::with_file("a.cfg", text);
    env.files.insert(PathBuf::from("list"), LIST.into());
    env.files.insert(PathBuf::from("bad-list"), "a.pem [alpn]\nb.pem [foo x] c\n".into());
    env.files.insert(PathBuf::from("empty-list"), "# nothing\n".into());
    env.files.insert(PathBuf::from("h2-list"), "a.pem [alpn h3]\nb.pem [alpn h3]\n".into());
    env
}

fn model(text: &str) -> Model {
    let loaded = load(&Options::file("a.cfg"), &environment(text));
    let faults: Vec<String> = loaded.of(Severity::Alert).map(|alert| alert.render(1)).collect();
    loaded.model.unwrap_or_else(|| panic!("{text} is refused:\n{}", faults.join("")))
}

/// What a `bind` line makes of its words, behind the given `global` lines.
fn bind(global: &str, words: &str) -> BindTls {
    let model = model(&format!("global\n{global}\nfrontend f\n bind :443 {words}\n"));
    let tls = model.proxies[0].binds[0].options.tls.clone().unwrap_or_else(|| panic!("{words} is no TLS"));
    (*tls).clone()
}

/// Everything that is said of a severity.
fn said(text: &str, severity: Severity) -> String {
    let loaded = load(&Options::file("a.cfg"), &environment(text));
    loaded.of(severity).map(|diagnostic| diagnostic.summary() + "\n").collect()
}

/// What is said about the words of a `bind` line.
fn check(words: &str, severity: Severity, expect: &str) {
    let text = said(&format!("frontend f\n bind :443 {words}\n"), severity);
    assert!(text.contains(expect), "{words}: '{expect}' is not in\n{text}");
}

/// Files in order: path, and what else a line of a list says.
fn certificates(tls: &BindTls) -> Vec<String> {
    let mut out = Vec::new();
    for source in &tls.certificates {
        match source {
            CrtSource::Crt { path, default } => {
                out.push(format!("{}{}", path.display(), if *default { " *" } else { "" }))
            }
            CrtSource::List { path, lines } => out.extend(lines.iter().map(|line| {
                format!("{}:{} {} {}", path.display(), line.source.line, line.crt.display(), line.filters.join(" "))
            })),
            CrtSource::Line(line) => out.push(format!("{} by line {}", line.crt.display(), line.source.line)),
        }
    }
    out
}

#[test]
fn certificates_come_in_order_and_with_their_base() {
    let tls = bind("crt-base /crt\nca-base /ca", "ssl crt a.pem crt /b.pem default-crt c.pem crt-list list");
    let expect =
        ["/crt/a.pem", "/b.pem", "/crt/c.pem *", "list:1 /crt/a.pem !*", "list:3 /crt/b.pem *.b.test !c.b.test"];
    assert_eq!(certificates(&tls), expect);
    let CrtSource::List { lines, .. } = &tls.certificates[3] else { panic!("the list comes last") };
    assert_eq!(lines[1].options.ca_file, Some(PathBuf::from("/ca/x.pem")));
}

#[test]
fn lines_begin_with_the_settings_of_global() {
    let global = "ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256\nssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets";
    let tls = bind(global, "ssl crt a ssl-max-ver TLSv1.2");
    assert_eq!(tls.options.ciphersuites.as_deref(), Some("TLS_AES_128_GCM_SHA256"));
    assert!(tls.options.oldest == tls.options.newest && tls.options.newest.is_some() && tls.no_tickets);
    let own = bind(global, "ssl crt a ciphersuites TLS_AES_256_GCM_SHA384 strict-sni watch");
    assert_eq!(own.options.ciphersuites.as_deref(), Some("TLS_AES_256_GCM_SHA384"));
    assert!(own.strict_sni && own.watch);
}

#[test]
fn without_ssl_nothing_is_encrypted() {
    let text = "frontend f\n bind :443 crt a.pem\n";
    assert!(model(text).proxies[0].binds[0].options.tls.is_none());
    assert!(said(text, Severity::Notice).contains("'crt' has no effect: 'ssl' is missing"));
}

#[test]
fn what_does_not_fit_is_said() {
    check(
        "ssl",
        Severity::Alert,
        "Proxy 'f': no SSL certificate specified (use 'crt') for bind '0.0.0.0:443' at [a.cfg:2]",
    );
    check("ssl crt-list empty-list", Severity::Alert, "no SSL certificate specified");
    check("ssl strict-sni", Severity::Warning, "ssl connections will fail");
    check("ssl crt a verify required", Severity::Alert, "verify is enabled but no CA file specified");
    check("ssl crt a no-tlsv12 no-tlsv13", Severity::Alert, "all SSL/TLS versions are disabled");
    check("ssl crt a no-tlsv12 ssl-min-ver TLSv1.2", Severity::Warning, "are ignored beside");
    check("ssl crt a force-tlsv11", Severity::Alert, "RFC 8996");
    check("ssl crt a ssl-min-ver TLSv1.0", Severity::Warning, "'ssl-min-ver TLSv1.0' is raised to TLSv1.2");
    check("ssl crt a ssl-max-ver TLSv1.1", Severity::Alert, "RFC 8996");
    check("ssl crt a generate-certificates", Severity::Alert, "is not supported yet");
    let http = said("frontend f\n mode http\n bind :443 ssl crt a alpn h3,h2,http/1.1\n", Severity::Warning);
    assert!(http.contains("'h3' of 'alpn' is not offered") && !http.contains("'h2' of"), "{http}");
    // In `mode tcp` the server may speak it.
    assert!(!said("frontend f\n bind :443 ssl crt a alpn h3\n", Severity::Warning).contains("h3"));
    check("ssl crt a allow-0rtt", Severity::Notice, "early data");
    check("ssl crt @none/a", Severity::Alert, "'@none/a' is not in any 'crt-store' section");
}

#[test]
fn faults_of_a_list_are_told_with_its_own_lines() {
    let text = said("frontend f\n bind :443 ssl crt-list bad-list\n", Severity::Alert);
    assert!(text.contains("parsing [bad-list:1] : 'alpn' : missing"), "{text}");
    assert!(text.contains("parsing [bad-list:2] : unknown ssl keyword 'foo'"), "{text}");
    // What many lines have in common is said once.
    assert_eq!(
        said("frontend f\n mode http\n bind :443 ssl crt-list h2-list\n", Severity::Warning).matches("'h3'").count(),
        1
    );
}

#[test]
fn stores_name_the_parts_of_certificates() {
    let text = "crt-store web\n crt-base /c\n key-base /k\n load crt a.pem key a.key alias one\n load crt b.pem\n\
                frontend f\n bind :443,:444 ssl crt @web/one crt @web/b.pem\n bind :80\n ssl-f-use crt c.pem key c.key\n";
    let model = model(text);
    let loads: Vec<String> = model
        .crt_stores
        .iter()
        .flat_map(|store| store.loads.iter().map(|load| format!("{}: {load:?}", store.name)))
        .collect();
    assert!(loads[0].contains("web: ") && loads[0].contains("/c/a.pem") && loads[0].contains("/k/a.key"), "{loads:?}");
    assert!(loads[2].starts_with(": ") && loads[2].contains("c.key"), "{loads:?}");
    for bind in &model.proxies[0].binds[..2] {
        let tls = bind.options.tls.as_ref().expect("TLS");
        assert_eq!(certificates(tls), ["@web/one", "@web/b.pem", "c.pem by line 9"]);
    }
    assert!(model.proxies[0].binds[2].options.tls.is_none());
}

#[test]
fn faults_of_stores_are_said() {
    let check = |text: &str, expect: &str| {
        let said = said(&format!("{text}\nfrontend f\n bind :1\n"), Severity::Alert);
        assert!(said.contains(expect), "{text}: {said}");
    };
    check("crt-store a\n load key x", "'load' expects a certificate");
    check("crt-store a\n laod crt x", "did you mean 'load' maybe ?");
    check("crt-store a\n load crt x kye y", "did you mean 'key' maybe ?");
    check("crt-store a\ncrt-store a", "duplicate crt-store 'a'");
    check("crt-store a\n crt-base", "'crt-base' expects a directory path");
}
