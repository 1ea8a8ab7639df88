//! The commands of README.md and of docs/ as they stand there: each is run on a fresh machine, or a comment says why not.
//!
//! Each document has a machine of its own (`machine`), on which its blocks are run one after the other, as by a reader who follows it
//! from the first line to the last. What a block's comments mean is said in `blocks.rs`. A document that changes needs no change here.

mod blocks;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blocks::{Action, Step};

/// The comment in documents whose machine has systemd as its first process.
const SYSTEMD: &str = "<!-- machine: systemd -->";

/// The exit status of a machine that cannot be made.
const NO_RIGHT: i32 = 77;

/// How many of the last lines that a command has printed are shown when it fails.
const SHOWN_LINES: usize = 50;

/// A test for each document.
macro_rules! documents {
    ($($name:ident: $path:literal,)*) => {
        $(
            #[test]
            fn $name() {
                follow($path);
            }
        )*
        const DOCUMENTS: &[&str] = &[$($path),*];
    };
}

documents! {
    architecture: "ARCHITECTURE.md",
    changelog: "CHANGELOG.md",
    contributing: "CONTRIBUTING.md",
    readme: "README.md",
    security: "SECURITY.md",
    command_line: "docs/command-line.md",
    configuration: "docs/configuration.md",
    container: "docs/container.md",
    convert: "docs/convert.md",
    direct: "docs/direct.md",
    discovery: "docs/discovery.md",
    flip: "docs/flip.md",
    glossary: "docs/glossary.md",
    handover: "docs/handover.md",
    hold: "docs/hold.md",
    http1: "docs/http1.md",
    http2: "docs/http2.md",
    keep: "docs/keep.md",
    load: "docs/load.md",
    master: "docs/master.md",
    metrics: "docs/metrics.md",
    migrate: "docs/migrate.md",
    missing: "docs/missing.md",
    operate: "docs/operate.md",
    origin: "docs/origin.md",
    peers: "docs/peers.md",
    performance: "docs/performance.md",
    proof: "docs/proof.md",
    prove: "docs/prove.md",
    real_server: "docs/real-server.md",
    records: "docs/records.md",
    reload: "docs/reload.md",
    runtime: "docs/runtime.md",
    statistics: "docs/statistics.md",
    testing: "docs/testing.md",
    tls: "docs/tls.md",
}

#[test]
fn no_document_is_left_out() {
    let names = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is part of the repository");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"));
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")).collect::<BTreeSet<_>>()
    };
    let there: BTreeSet<_> = names("").into_iter().chain(names("docs/")).collect();
    assert_eq!(there, DOCUMENTS.iter().map(|&name| name.to_owned()).collect());
}

/// Does what a document says.
#[track_caller]
fn follow(document: &str) {
    let text = fs::read_to_string(root().join(document)).expect("the document is part of the repository");
    let steps = blocks::steps(&text).unwrap_or_else(|errors| panic!("{document}:\n{}", errors.join("\n")));
    let first = if text.contains(SYSTEMD) { "systemd" } else { "script" };
    if let Err(wrong) = run(&steps, first) {
        panic!("{document}, {wrong}");
    }
}

/// Runs the steps on a fresh machine; an error names the line and has what was printed. `false` when it may not make a machine,
/// which it says.
fn run(steps: &[Step], first: &str) -> Result<bool, String> {
    if steps.is_empty() {
        return Ok(true);
    }
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("SKIPPED: needs root to make a machine");
        return Ok(false);
    }
    if first == "systemd" && !Path::new("/lib/systemd/systemd").exists() {
        eprintln!("SKIPPED: systemd is not installed");
        return Ok(false);
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    let functions = root().join("crates/baton/tests/documents/functions.sh");
    fs::copy(functions, folder.path().join("functions.sh")).expect("the folder is ours");
    fs::write(folder.path().join("script"), script(steps, folder.path())).expect("the folder is ours");
    let machine = root().join("crates/baton/tests/documents/machine");
    let output = Command::new(machine)
        .arg(folder.path())
        .arg(env!("CARGO_BIN_EXE_baton"))
        .arg(first)
        .stdin(Stdio::null())
        .output()
        .expect("every Debian has bash");
    let read = |name: String| fs::read(folder.path().join(name)).unwrap_or_default();
    let printed = |index: usize| String::from_utf8_lossy(&read(format!("{index}.out"))).into_owned();
    let status = read("status".to_owned());
    if status.is_empty() && output.status.code() == Some(NO_RIGHT) {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr).trim());
        return Ok(false);
    }
    if status != b"0\n" {
        let at: usize = String::from_utf8_lossy(&read("at".to_owned())).trim().parse().unwrap_or(0);
        let own = String::from_utf8_lossy(&output.stderr);
        let status = String::from_utf8_lossy(&status);
        // A machine that was killed has none.
        let ended =
            if status.is_empty() { output.status.to_string() } else { format!("exit status: {}", status.trim()) };
        return Err(format!("line {}: {ended}\n{own}{}", steps[at].line, tail(&printed(at))));
    }
    for (index, step) in steps.iter().enumerate() {
        let Action::Expect { text } = &step.action else { continue };
        let printed = printed(last_run(steps, index));
        let missing = blocks::missing(text, &printed);
        if !missing.is_empty() {
            let (missing, printed) = (missing.join("\n"), tail(&printed));
            return Err(format!("line {}: not printed:\n{missing}\n--- printed:\n{printed}", step.line));
        }
    }
    Ok(true)
}

/// The commands whose output a step is about.
fn last_run(steps: &[Step], index: usize) -> usize {
    let runs = |step: &Step| matches!(step.action, Action::Run { .. } | Action::Start { .. } | Action::Stop { .. });
    steps[..index].iter().rposition(runs).unwrap_or(index)
}

/// What the machine's first process does. What a step needs lies in files of its number, and its output gets there.
fn script(steps: &[Step], folder: &Path) -> String {
    // A command in the background that is killed before it is executed is still this shell, with its trap.
    let mut script = String::from(
        "set -e\nended() {\n    [ $BASHPID = $$ ] || return 0\n    echo $1 >/documents/status\n    [ $$ = 1 ] || systemctl poweroff -ff\n}\n\
         trap 'ended $?' EXIT\n. /documents/functions.sh\ncd /usr/src/baton\n",
    );
    let file = |name: String, text: &str| fs::write(folder.join(name), text).expect("the folder is ours");
    for (index, step) in steps.iter().enumerate() {
        let _ = writeln!(script, "echo {index} >/documents/at");
        let here = format!("/documents/{index}");
        // The shell goes on with what a block has exported and where it went.
        let added = match &step.action {
            Action::Run { commands, status: 0 } => {
                file(format!("{index}.sh"), commands);
                writeln!(script, ". {here}.sh >{here}.out 2>&1")
            }
            Action::Run { commands, status } => {
                file(format!("{index}.sh"), commands);
                writeln!(script, "status=0\nbash -e {here}.sh >{here}.out 2>&1 || status=$?\n[ $status = {status} ]")
            }
            Action::Start { commands, ready } => {
                file(format!("{index}.sh"), commands);
                file(format!("{index}.ready"), ready);
                // Each look is short; `timeout` ends them all.
                writeln!(
                    script,
                    ". {here}.sh >{here}.out 2>&1 &\nstarted=$!\n\
                     until . {here}.ready >/dev/null 2>&1; do kill -0 $started; sleep 0.02; done"
                )
            }
            Action::Stop { command } => {
                file(format!("{index}.sh"), &format!("exec {command}\n"));
                writeln!(
                    script,
                    "bash {here}.sh >{here}.out 2>&1 &\nstarted=$!\n\
                     until [ -s {here}.out ]; do kill -0 $started; sleep 0.02; done\nkill $started\nwait $started"
                )
            }
            Action::Write { path, text } => {
                file(index.to_string(), text);
                writeln!(script, "mkdir -p \"$(dirname {path})\"\ncp {here} {path}")
            }
            Action::Check { config } => {
                file(index.to_string(), config);
                // 2 is a configuration without errors that listens nowhere: a part of one.
                writeln!(script, "/usr/sbin/baton -c -f {here} >{here}.out 2>&1 || [ $? = 2 ]")
            }
            Action::Expect { .. } => Ok(()),
        };
        added.expect("a string has room");
    }
    script
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn check_fails(document: &str, expected: &str) {
    let steps = blocks::steps(document).expect("a document without errors");
    match run(&steps, "script") {
        Err(wrong) => assert!(wrong.contains(expected), "{wrong}"),
        Ok(was_run) => assert!(!was_run, "{document}: it passed"),
    }
}

#[test]
fn what_a_document_gets_wrong_fails() {
    check_fails("Do:\n\n```sh\ntrue\necho about this; (exit 7)\ntrue\n```\n", "line 3: exit status: 7\nabout this");
    check_fails("<!-- exit: 7 -->\n```sh\ntrue\n```\n", "line 2: exit status: 1");
    check_fails("```console\n$ echo 3 of them\n4 of these\n```\n", "line 3: not printed:\n4 of these");
    check_fails("<!-- ready: false -->\n```sh\ntrue\n```\n", "line 2: exit status: 1");
    check_fails("```haproxy\nfrontend f\n  blance\n```\n", "line 1: exit status: 1");
}

#[test]
fn a_document_is_followed_in_one_shell() {
    let document = "```sh\nexport PLACE=here\nmkdir new && cd new\n```\n\n<!-- file: x/y -->\n```text\nhello\n```\n\n\
        ```console\n$ echo $PLACE; cat x/y\nhere\nhello\n$ baton -v | head -n 1\nBaton …\n```\n\n\
        <!-- ready: test -e served -->\n```sh\ntouch served; sleep infinity\n```\n";
    let steps = blocks::steps(document).expect("a document without errors");
    if let Err(wrong) = run(&steps, "script") {
        panic!("{wrong}");
    }
}
