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
        assert!(said.starts_with("line 3: `\"\"`: not read: incomplete line"), "{said}");
    }
    for (word, missing) in [("lb_algo", "its scheduler is missing"), ("protocol", "its protocol is missing")] {
        refused(&format!("virtual_server 10.0.0.1 80 {{\n{word}\n{server}\n}}\n"), missing);
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
    refused("listen web\n", "use --from ipvsadm or --from keepalived");
    refused("-C\n", "no virtual service (`-A`) in it can be converted; first reason: line 1: `-C`");
    refused(
        "vrrp_instance a {\n}\n",
        "no virtual_server in it can be converted; first reason: line 1: `vrrp_instance a`",
    );
    refused(
        "\nvirtual_server 10.0.0.1 80 {\n  delay_loop 1\n",
        "line 2: the block of `virtual_server 10.0.0.1 80` is not closed",
    );
    refused("a {\n}\n}\n", "line 3: a block is closed here (`}`) but none is open");
    refused("{\n}\n", "line 1: a block begins here without a keyword");
    refused(&"a {\n".repeat(100), "line 17: blocks are nested deeper than 16 levels");
    refused("$A=${A}${A}x\n${A}\n", "line 2: with parameters replaced, this line is longer than 65536 bytes");
    let many = "10.0.0.0/16 80\n10.1.0.0/16 80\n";
    let group = format!("virtual_server_group g {{\n{many}}}\nvirtual_server group g {{\n}}\n");
    refused(&group, "line 3: more than 65536 addresses, marks and real servers");
    let long = convert("a", &vec![b'-'; 9 << 20], None).expect_err("it is too long").to_string();
    assert!(long.contains("larger than 8388608 bytes"), "{long}");
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

/// What the remarks are about, line by line.
fn reported(converted: &Converted) -> std::collections::BTreeSet<u32> {
    converted.remarks.iter().map(|remark| remark.line).collect()
}

/// The sections without their comments, which name lines of the input.
fn sections(converted: &Converted) -> String {
    converted
        .config
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn input(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert").join(name);
    std::fs::read_to_string(path).expect("it is in the tree")
}

/// A line that can be taken out without a difference was not used; then it has to be reported.
#[test]
fn every_line_is_used_or_reported() {
    // What is keepalived's default, or Baton's way anyway; of a mark, TCP too.
    let says_nothing = |line: &str| {
        let line = line.trim();
        line.is_empty()
            || line.starts_with(['#', '!'])
            || ["inhibit_on_failure", "weight 1", "lvs_method NAT", "protocol TCP"].contains(&line)
    };
    for (name, tail) in [("web.keepalived", ""), ("edges.ipvsadm", ""), ("table.ipvsadm", "")] {
        let text = input(name) + tail;
        let whole = convert(name, text.as_bytes(), None).expect("it can be converted");
        let told = reported(&whole);
        // A block that is left out is reported at its first line.
        let mut left_out_depth = None;
        let mut depth = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let (before, opens, closes) = (depth, line.matches('{').count(), line.matches('}').count());
            let is_parameter = line.contains("${");
            depth = (depth + opens).saturating_sub(closes);
            if left_out_depth.is_some_and(|from| before > from) {
                continue;
            }
            left_out_depth = None;
            if told.contains(&number) {
                left_out_depth = Some(before).filter(|_| depth > before);
                continue;
            }
            // Brackets hold the file together.
            if says_nothing(line) || opens != closes && !is_parameter || line.trim() == "}" {
                continue;
            }
            let without: String = (1..)
                .zip(text.lines())
                .map(|(other, line)| if other == number { "\n".into() } else { format!("{line}\n") })
                .collect();
            let same = convert(name, without.as_bytes(), None)
                .is_ok_and(|found| sections(&found) == sections(&whole) && found.remarks == whole.remarks);
            assert!(!same, "{name}: line {number} is neither used nor reported: {line}");
        }
    }
}

/// A word too many, a line twice and an option twice are reported with their lines, wherever they stand.
#[test]
fn what_nobody_reads_is_reported() {
    for name in ["web.keepalived", "edges.ipvsadm", "table.ipvsadm"] {
        let text = input(name);
        let lines: Vec<&str> = text.lines().collect();
        let told = reported(&convert(name, text.as_bytes(), None).expect("it can be converted"));
        let mut under = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let number = at as u32 + 1;
            let trimmed = line.trim();
            let is_covered = under.iter().any(|head: &u32| told.contains(head)) || told.contains(&number);
            if trimmed.ends_with('{') {
                under.push(number);
            }
            if trimmed.starts_with('}') {
                under.pop();
            }
            let may_continue =
                trimmed.is_empty() || trimmed.starts_with(['#', '!', '$', '}']) || trimmed.contains(['{', '}']);
            // A rest of an expression belongs to it, and so does that of a program's line.
            if is_covered || may_continue || trimmed.starts_with("regex") {
                continue;
            }
            let mut changed = lines.clone();
            let longer = format!("{line} zzz9");
            changed[at] = &longer;
            match convert(name, changed.join("\n").as_bytes(), None) {
                Ok(found) => assert!(reported(&found).contains(&number), "{name}: line {number}: {longer}"),
                Err(fault) => assert_eq!(fault.line, number, "{fault}"),
            }
        }
    }
}

#[test]
fn what_is_not_understood_is_told_from_what_is_left_out() {
    let unread = |inside: &str| {
        let text = format!(
            "virtual_server 10.0.0.1 80 {{\nprotocol TCP\n{inside}\nreal_server 10.0.0.2 80 {{\nweight 2\n}}\n}}\n"
        );
        let converted = convert("a", text.as_bytes(), None).expect("the service is carried over");
        let unread = converted.remarks.iter().filter(|remark| remark.is_unread());
        unread.map(|remark| remark.line).collect::<Vec<_>>()
    };
    assert_eq!(unread("quorum 2"), [0_u32; 0]);
    assert_eq!(unread("quorrum 2"), [3]);
    assert_eq!(unread("delay_loop 6 7"), [3]);
    assert_eq!(unread("delay_loop 6\ndelay_loop 7"), [3]);
    assert_eq!(unread("lb_algo rr\nlvs_sched rr"), [3]);
    assert_eq!(unread("delay_loop 6 {\nweight 3\n}"), [3]);
    assert_eq!(unread("include more.conf"), [3]);
    let service = |options: &str| {
        let text = format!("-A -t 10.0.0.1:80 -s rr {options}\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -g\n");
        let converted = convert("a", text.as_bytes(), None).expect("the service is carried over");
        converted.remarks.iter().map(|remark| remark.to_string()).collect::<String>()
    };
    for (options, what) in
        [("-w 3", "`-w`"), ("-s wlc", "`-s`"), ("-M 24", "`-M`"), ("-6", "`-6`"), ("--tun-port 5", "`--tun-port`")]
    {
        assert!(service(options).contains(what), "{options}: {}", service(options));
    }
}
