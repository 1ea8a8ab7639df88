//! Whatever alters live state goes through the change path. The compiler holds it where a type can: certificates, authorities and keys of
//! tickets are shown by views that can change nothing, and commands get the change path to look at only. What is left are objects that
//! whoever looks at can change, because requests and health checks change them too: here, files name the calls that do so.

use std::fs;
use std::path::Path;

/// Calls that alter what was asked, overridden or counted, and where they may stand besides `reload.rs` and the files below it.
const CALLS: [(&str, &[&str]); 7] = [
    (".change_overrides(", &[]),
    (".set_weight(", &[]),
    (".set_admin(", &[]),
    (".clear_longest(", &[]),
    (".counters.clear(", &[]),
    (".reconfigure(", &[]),
    // What servers serve for a process before us is observed, and told by it.
    (".set_elsewhere(", &["control/succeeding.rs"]),
];

#[test]
fn live_state_is_altered_by_the_change_line_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("the sources").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&src).expect("it is in there").to_string_lossy().into_owned();
            if name.starts_with("reload") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            let named = CALLS.iter().filter(|(call, places)| text.contains(call) && !places.contains(&&*name));
            wrong.extend(named.map(|(call, _)| format!("{name}: {call}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
