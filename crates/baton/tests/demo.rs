//! `baton demo`, short: nothing fails, files are applied and refused, and the exit code says so.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_short_demo_is_clean() {
    let output = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["demo", "--for", "4", "--rate", "200", "--json"])
        .output()
        .expect("the program was built");
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{said}"));
    let count = |pointer: &str| result.pointer(pointer).and_then(Value::as_u64).expect("a number of the result");

    assert!(output.status.success(), "{text}\n{said}");
    assert_eq!(result["clean"], true);
    assert_eq!((count("/failed"), count("/changes/failed")), (0, 0));
    assert!(count("/changes/applied") > 5 && count("/changes/rejected") > 0, "{text}");
    assert!(count("/keep_alive/completed") > 0 && count("/connection_per_request/completed") > 0, "{text}");
    assert_eq!((count("/websockets/alive"), count("/tunnels/alive")), (4, 4));
}
