//! Tables of other programs as haproxy.cfg: files of `tests/convert`, each with what becomes of it (`.cfg`) and what is said of it
//! (`.said`). With `BATON_UPDATE=1` these are written anew.

use std::path::Path;

use baton_config::convert::{Converted, Source, convert, detect};
use baton_config::{FixedEnvironment, Options, Severity, load};

#[test]
fn files_become_sections() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("it is in the tree") {
        let path = entry.expect("it can be read").path();
        let source = match path.extension().and_then(|extension| extension.to_str()) {
            Some("ipvsadm") => Source::Ipvsadm,
            Some("keepalived") => Source::Keepalived,
            _ => continue,
        };
        seen += 1;
        let text = std::fs::read(&path).expect("it can be read");
        let name = path.file_name().expect("it has one").to_string_lossy();
        let converted = convert(&name, &text, None).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(converted.source, source, "{name}");
        let said: String = converted.remarks.iter().map(|remark| format!("{remark}\n")).collect();
        same(&path.with_extension("cfg"), &converted.config);
        same(&path.with_extension("said"), &said);
        every_remark_is_a_comment(&converted);
        is_accepted(&converted);
        // What is proposed in comments too.
        let proposed = ["#global\n", "#defaults\n", "#    "];
        let config = proposed.iter().fold(converted.config.clone(), |config, line| config.replace(line, &line[1..]));
        assert!(config.contains("\n    log global\n"), "{config}");
        is_accepted(&Converted { config, ..converted });
    }
    assert_eq!(seen, 3);
}

fn same(path: &Path, text: &str) {
    if std::env::var_os("BATON_UPDATE").is_some() {
        std::fs::write(path, text).expect("it can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(text == expected, "{} differs (BATON_UPDATE=1 writes it):\n{text}", path.display());
}

/// What is written, Baton reads without a complaint.
fn is_accepted(converted: &Converted) {
    let env = FixedEnvironment::with_file("a.cfg", converted.config.as_bytes());
    let loaded = load(&Options::file("a.cfg"), &env);
    let complaints: String = loaded
        .diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity >= Severity::Warning)
        .map(|diagnostic| diagnostic.render(1))
        .collect();
    assert!(complaints.is_empty() && loaded.model.is_some(), "{complaints}\n{}", converted.config);
}

fn every_remark_is_a_comment(converted: &Converted) {
    for remark in &converted.remarks {
        assert!(converted.config.contains(&format!("#   {remark}\n")), "{remark}\n{}", converted.config);
    }
}

#[test]
fn the_source_is_found_out() {
    let found = |text: &str| detect(text);
    assert_eq!(found("# a table\n\n-A -t 10.0.0.1:80 -s rr\n"), Some(Source::Ipvsadm));
    assert_eq!(found("ipvsadm -A -t 10.0.0.1:80\n"), Some(Source::Ipvsadm));
    assert_eq!(found("! a director\nglobal_defs\n{\n}\n"), Some(Source::Keepalived));
    assert_eq!(found("$A=1\n"), Some(Source::Keepalived));
    assert_eq!(found("listen web\n    mode http\n"), None);
    assert_eq!(found(""), None);
}

#[test]
fn a_line_that_is_not_finished_is_told_as_such() {
    let server = "real_server 10.0.0.2 80 {\n weight 1\n }";
    let first = |inside: &str| {
        let text = format!("virtual_server 10.0.0.1 80 {{\nprotocol TCP\n{inside}\n{server}\n}}\n");
        convert("a", text.as_bytes(), None).expect("the service is carried over").remarks[0].to_string()
    };
    for quote in ["\"", "'", "\"\""] {
        let said = first(quote);
        assert!(said.starts_with("line 3: `\"\"`: left out: the line is not finished"), "{said}");
    }
    for word in ["lb_algo", "protocol"] {
        refused(&format!("virtual_server 10.0.0.1 80 {{\n{word}\n{server}\n}}\n"), "is not finished");
    }
}

/// What is wrong with an input as a whole.
#[track_caller]
fn refused(text: &str, with: &str) {
    let fault = convert("a", text.as_bytes(), None).expect_err("it cannot be converted").to_string();
    assert!(fault.contains(with), "{fault}");
}

#[test]
fn what_cannot_be_converted_is_refused_with_its_line() {
    refused("listen web\n", "say --from ipvsadm or --from keepalived");
    refused("-C\n", "no virtual service (`-A`) in it can be carried over; first: line 1: `-C`");
    refused("vrrp_instance a {\n}\n", "no virtual_server in it can be carried over; first: line 1: `vrrp_instance a`");
    refused(
        "\nvirtual_server 10.0.0.1 80 {\n  delay_loop 1\n",
        "line 2: the block of `virtual_server 10.0.0.1 80` has no end",
    );
    refused("a {\n}\n}\n", "line 3: a block ends here (`}`), and none has begun");
    refused("{\n}\n", "line 1: a block begins here, and no word says of what");
    refused(&"a {\n".repeat(100), "line 17: blocks lie deeper than 16 in each other");
    refused("$A=${A}${A}x\n${A}\n", "line 2: with its parameters replaced, this line is longer than 65536 bytes");
    let many = "10.0.0.0/16 80\n10.1.0.0/16 80\n";
    let group = format!("virtual_server_group g {{\n{many}}}\nvirtual_server group g {{\n}}\n");
    refused(&group, "line 3: more than 65536 addresses, marks and real servers");
    let long = convert("a", &vec![b'-'; 9 << 20], None).expect_err("it is too long").to_string();
    assert!(long.contains("longer than 8388608 bytes"), "{long}");
}

#[test]
fn nothing_of_an_input_escapes_its_quotes() {
    let text = "virtual_server 10.0.0.1 80 {\nsnmp_name \"a b\\nlisten evil\"\nprotocol TCP\nreal_server 10.0.0.2 80 {\n\
                HTTP_GET {\nurl {\npath \"/a'\\$X\"\nregex \"\\nfrontend evil\"\n}\n}\n}\n}\n";
    let converted = convert("a\nlisten evil", text.as_bytes(), None).expect("it can be converted");
    assert!(converted.config.contains("uri \"/a'\\$X\" ver"), "{}", converted.config);
    let sections = converted.config.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty());
    assert_eq!(sections.collect::<Vec<_>>(), ["listen a_b_listen_evil"]);
}

#[test]
fn a_sorry_server_on_this_machine_is_remarked_on() {
    let text = |sorry: &str| {
        format!(
            "virtual_server 192.0.2.1 80 {{\n lb_algo rr\n lb_kind DR\n sorry_server {sorry} 80\n real_server 192.0.2.11 80 {{\n }}\n}}\n"
        )
    };
    let remarked = |sorry: &str| {
        let converted = convert("a.conf", text(sorry).as_bytes(), None).unwrap();
        converted.remarks.iter().any(|remark| remark.to_string().contains("engine xdp cannot send to"))
    };
    assert!(remarked("127.0.0.1") && !remarked("192.0.2.12"));
}
