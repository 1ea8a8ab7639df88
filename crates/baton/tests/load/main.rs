//! `baton load` as a whole process, against real servers that count by themselves: nginx, haproxy, and what `ab` says of the same;
//! and against `baton origin`, which fails on purpose and counts how often.

mod command;
mod failures;
mod http;
mod interrupt;
mod nginx;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Everything that one load said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn new(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes text");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The result of `--json`.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The exit code, and the counts of requests, completed and failed ones, of `--json`.
    #[track_caller]
    fn counts(&self) -> (Option<i32>, u64, u64, u64) {
        let result = self.json();
        let count = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {result}"));
        (self.code, count("requests"), count("completed"), count("failed"))
    }
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n{}\n{}", self.code, self.out, self.err)
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.arg("load").args(arguments);
    command
}

/// Runs `baton load` with these arguments.
#[track_caller]
fn load(arguments: &[&str]) -> Said {
    Said::new(command(arguments).output().expect("the program was built"))
}

/// Runs `baton load --json` without progress; `line` is split at spaces.
#[track_caller]
fn load_json(line: &str) -> Said {
    let words: Vec<&str> = ["--json", "-q"].into_iter().chain(line.split_whitespace()).collect();
    load(&words)
}

/// A file with these bytes, and its name.
fn file(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("the folder is ours");
    path.display().to_string()
}
