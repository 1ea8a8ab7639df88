//! The modules of this crate stand in an order: each uses those below it only.

use std::fs;
use std::path::Path;

/// From what accepts connections down to what uses no other module.
const ORDER: [&str; 43] = [
    "workers",
    "accept",
    "request",
    "tcp",
    "attempt",
    "relay",
    "route",
    "respond",
    "record",
    "rules",
    "handshake",
    "parse",
    "wish",
    "client",
    "exchange",
    "connection",
    "session",
    "progress",
    "core",
    "pool",
    "view",
    "generation",
    "state",
    "work",
    "balance",
    "flow",
    "upstream",
    "pipes",
    "stream",
    "log",
    "buffer",
    "facts",
    "times",
    "clock",
    "supervise",
    "runner",
    "spare",
    "ended",
    "deadline",
    "proxy_protocol",
    "patience",
    "body",
    "lib",
];

/// What is kept by name, and the generation that keeps it, still know each other.
const NOT_YET: [(&str, &str); 1] = [("state", "generation")];

#[test]
fn each_module_uses_those_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&src).expect("the sources") {
        let path = entry.expect("the sources").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let Some(at) = ORDER.iter().position(|module| *module == name) else {
            wrong.push(format!("{name} has no place in the order"));
            continue;
        };
        for used in used(&path) {
            let below = ORDER[at..].contains(&used.as_str());
            if !below && !NOT_YET.contains(&(&name, &used)) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The modules that a file, or all files of a folder, name by `crate::`.
fn used(path: &Path) -> Vec<String> {
    if path.is_dir() {
        let files = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("a folder").path());
        return files.flat_map(|file| used(&file)).collect();
    }
    let text = fs::read_to_string(path).expect("a source file");
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = code.flat_map(|line| line.split("crate::").skip(1).map(str::to_owned).collect::<Vec<_>>());
    let word = |rest: String| rest.split(|char: char| !char.is_alphanumeric() && char != '_').next().map(str::to_owned);
    named.filter_map(word).filter(|name| name.starts_with(char::is_lowercase)).collect()
}
