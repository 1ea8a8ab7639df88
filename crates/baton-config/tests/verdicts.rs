//! Small configurations through `haproxy -c` and through [`baton_config::load`]: both must agree on the exit status
//! and on the line of the first error. `verdicts/*.txt` holds the cases, `verdicts/differences.txt` those where Baton answers
//! otherwise on purpose, with the reason. Without HAProxy the comparison is skipped, aloud.

#[path = "verdicts/effects.rs"]
mod effects;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use baton_config::{Options, Severity, SystemEnvironment, load};

const HAPROXY: &str = "/usr/sbin/haproxy";

/// What `-c` says: the exit status, and the first alert's line where it names one.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Verdict {
    status: i32,
    line: Option<u32>,
}

impl Verdict {
    /// HAProxy names no line for some faults that Baton can place.
    fn agrees(&self, other: &Verdict) -> bool {
        self.status == other.status && (self.line.is_none() || other.line.is_none() || self.line == other.line)
    }
}

/// A case: where it comes from (`backend: balance foo`) and the whole configuration.
struct Case {
    name: String,
    text: String,
}

/// Templates by file name; `@` stands for the case's line.
const TEMPLATES: &[(&str, &str, &str)] = &[
    (
        "global",
        include_str!("verdicts/global.txt"),
        "global\n@\nlisten l\n    bind 127.0.0.1:1\n    timeout client 1s\n",
    ),
    ("defaults", include_str!("verdicts/defaults.txt"), "defaults\n@\nlisten l\n    bind 127.0.0.1:1\n"),
    (
        "frontend",
        include_str!("verdicts/frontend.txt"),
        "defaults\n    mode http\nfrontend f\n    bind 127.0.0.1:1\n@\nbackend b\n    server s 127.0.0.1:1\n",
    ),
    (
        "backend",
        include_str!("verdicts/backend.txt"),
        "defaults\n    mode http\nfrontend f\n    bind 127.0.0.1:1\nbackend b\n@\n    server s1 127.0.0.1:1\n",
    ),
    ("bind", include_str!("verdicts/bind.txt"), "listen l\n    bind 127.0.0.1:1\n    bind @\n"),
    (
        "server",
        include_str!("verdicts/server.txt"),
        "listen l\n    bind 127.0.0.1:1\n    server s1 127.0.0.1:1 check\n    server s @\n",
    ),
    (
        "ring",
        include_str!("verdicts/ring.txt"),
        "ring r\n    timeout connect 1s\n    timeout server 1s\n@\nlisten l\n    bind 127.0.0.1:1\n",
    ),
    (
        "resolvers",
        include_str!("verdicts/resolvers.txt"),
        "resolvers r\n    nameserver n 127.0.0.1:53\n@\nlisten l\n    bind 127.0.0.1:1\n",
    ),
    (
        "do_resolve",
        include_str!("verdicts/do_resolve.txt"),
        "resolvers r\n    nameserver n 127.0.0.1:53\ndefaults\n    mode http\nlisten l\n    bind 127.0.0.1:1\n@\n",
    ),
    ("words", include_str!("verdicts/words.txt"), "listen l\n    bind 127.0.0.1:1\n@\n"),
    ("tls_bind", include_str!("verdicts/tls_bind.txt"), "listen l\n    bind 127.0.0.1:1\n    bind @\n"),
    (
        "tls_global",
        include_str!("verdicts/tls_global.txt"),
        "global\n@\nlisten l\n    bind 127.0.0.1:1\n    bind 127.0.0.1:2 ssl crt DIR/a.pem\n",
    ),
];

/// Lines of a `crt-list`, each in a file of its own.
const CRT_LISTS: &str = include_str!("verdicts/crt_list.txt");

/// A directory with certificates: `a.pem` and `b.pem` with their keys, `ca.pem` without. In the texts of cases it is `DIR`.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in ["a", "b", "ca"] {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let params = rcgen::CertificateParams::new(vec![format!("{name}.test")]).expect("a name is given");
        let certificate = params.self_signed(&key).expect("a certificate can be made");
        let key = if name == "ca" { String::new() } else { key.serialize_pem() };
        let content = format!("{}{key}", certificate.pem());
        std::fs::write(dir.path().join(name).with_extension("pem"), content).expect("a file can be written");
    }
    dir
}

fn cases(dir: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, lines, template) in TEMPLATES {
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            cases.push(Case { name: format!("{name}: {line}"), text: in_dir(&template.replace('@', line), dir) });
        }
    }
    for (index, line) in CRT_LISTS.lines().enumerate() {
        let list = dir.join(format!("list-{index}"));
        std::fs::write(&list, format!("{}\n", in_dir(line, dir))).expect("a file can be written");
        let text = format!("listen l\n    bind 127.0.0.1:1\n    bind 127.0.0.1:2 ssl crt-list {}\n", list.display());
        cases.push(Case { name: format!("crt_list: {line}"), text });
    }
    for text in include_str!("verdicts/whole.txt").split("----\n") {
        let (name, text) = text.split_once('\n').unwrap_or((text, ""));
        cases.push(Case { name: format!("whole: {}", name.trim_start_matches("# ")), text: text.into() });
    }
    cases
}

fn in_dir(text: &str, dir: &Path) -> String {
    text.replace("DIR", &dir.display().to_string())
}

/// Names of cases that differ on purpose, with the reason.
fn differences() -> BTreeMap<String, String> {
    let mut list = BTreeMap::new();
    let mut reason = String::new();
    for line in include_str!("verdicts/differences.txt").lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(text) => reason = text.into(),
            None => {
                list.insert(line.to_string(), reason.clone());
            }
        }
    }
    list
}

fn ours(file: &Path) -> (Verdict, String) {
    let loaded = load(&Options::file(file), &SystemEnvironment);
    let alert = loaded.of(Severity::Alert).next();
    let status = match alert {
        Some(_) => 1,
        None if !loaded.has_listener() => 2,
        None => 0,
    };
    // HAProxy blames the line that names a `crt-list`.
    let here = |alert: &&baton_config::Diagnostic| *alert.file == *file.to_string_lossy();
    let line = alert.filter(here).map(|alert| alert.line).filter(|line| *line > 0);
    (Verdict { status, line }, alert.map(|alert| alert.summary()).unwrap_or_default())
}

fn theirs(file: &Path) -> (Verdict, String) {
    let output = Command::new(HAPROXY).arg("-c").arg("-f").arg(file).output().expect("haproxy runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = text.lines().find(|line| line.starts_with("[ALERT]")).unwrap_or_default().to_string();
    let line = first.split(&format!("[{}:", file.display())).nth(1).and_then(|rest| {
        let (number, _) = rest.split_once(']')?;
        number.parse().ok()
    });
    (Verdict { status: output.status.code().unwrap_or(-1), line }, first)
}

#[test]
fn haproxy_and_baton_give_the_same_verdict() {
    if !Path::new(HAPROXY).exists() {
        eprintln!("SKIPPED: {HAPROXY} is not installed, nothing was compared");
        return;
    }
    let dir = directory();
    let cases = cases(dir.path());
    let differences = differences();
    let faults = Mutex::new(Vec::new());
    let next = Mutex::new(0);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (cases, differences, faults, next) = (&cases, &differences, &faults, &next);
            let file = dir.path().join(format!("{worker}.cfg"));
            scope.spawn(move || {
                loop {
                    let index = {
                        let mut next = next.lock().expect("no panic while it is held");
                        *next += 1;
                        *next - 1
                    };
                    let Some(case) = cases.get(index) else { return };
                    std::fs::write(&file, &case.text).expect("a file can be written");
                    let ((ours, our_words), (theirs, their_words)) = (ours(&file), theirs(&file));
                    let listed = differences.contains_key(&case.name);
                    let fault = match (ours.agrees(&theirs), listed) {
                        (true, false) | (false, true) => continue,
                        (true, true) => format!("{}\n    is listed as a difference, but both agree", case.name),
                        (false, false) => format!(
                            "{}\n    haproxy: {theirs:?} {their_words}\n    baton:   {ours:?} {our_words}",
                            case.name
                        ),
                    };
                    faults.lock().expect("no panic while it is held").push(fault);
                }
            });
        }
    });
    let mut faults = faults.into_inner().expect("no panic while it was held");
    faults.sort();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    for (name, reason) in &differences {
        assert!(cases.iter().any(|case| case.name == *name), "no case is called {name}");
        assert!(!reason.is_empty(), "{name} has no reason");
    }
    eprintln!("{} configurations compared, {} differ on purpose", cases.len(), differences.len());
}
