//! What packages contain besides the program: completions as shells use them, man pages, and the container image.

mod support;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::program;

/// Whether `program` of Debian's package is there; says so if not.
fn is_there(program: &str, package: &str) -> bool {
    let is_there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed (Debian's package {package})");
    }
    is_there
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A directory with the completions of a shell under the name of its package, and the file.
fn completions(shell: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    let output = Command::new(program()).args(["generate", "completions", shell]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    fs::write(&file, output.stdout).unwrap();
    (folder, file)
}

/// `PATH` with the program under test as `baton`.
fn path_with(folder: &Path) -> OsString {
    std::os::unix::fs::symlink(program(), folder.join("baton")).unwrap();
    let mut path = folder.as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    path
}

/// What each line on the left is completed to: all of the words, and none of those after the bar.
const COMPLETED: [(&str, &str); 10] = [
    ("baton rel", "reload |status"),
    ("baton certs s", "show sync |status --pid"),
    ("baton reload --p", "--pid |--json"),
    ("baton status --", "--json --pid |--rate"),
    ("baton load --r", "--rate |--pid"),
    ("baton -s", "-sf -st |-x"),
    ("baton -W", "-W -Ws |-f"),
    ("baton -d", "-d -db -dW |-q"),
    // HAProxy's options of several letters are words of their own.
    ("baton -cc 1 -", "-f -c -cc |--pid reload"),
    ("baton -Ws -", "-f -D -sf |--pid reload"),
];

/// What fish completes besides: any number of PIDs, commands only as the first word, and files only where HAProxy's command line has them.
const COMPLETED_BY_FISH: [(&str, &str); 7] = [
    ("baton ", "reload generate |-f baton.fish"),
    ("baton -sf 12 13 -", "-f -D -Ws |--pid reload"),
    ("baton -cc ", "|reload baton.fish -f"),
    ("baton -Ws ", "|reload baton.fish"),
    ("baton -f x ", "|reload baton.fish"),
    ("baton -f ", "baton.fish |reload"),
    ("baton -f x -- ", "baton.fish |reload"),
];

/// Compares what `complete` gives for a line with what it is to give.
fn check_completions(lines: &[(&str, &str)], complete: impl Fn(&str) -> Vec<String>) {
    for (line, expected) in lines {
        let words = complete(line);
        let (all, none) = expected.split_once('|').unwrap();
        let has = |word: &str| words.iter().any(|found| found == word);
        assert!(all.split_whitespace().all(has), "{line}: {words:?}");
        assert!(!none.split_whitespace().any(has), "{line}: {words:?}");
    }
}

#[test]
fn bash_completes() {
    let (_folder, file) = completions("bash", "baton");
    check_completions(&COMPLETED, |line| {
        let script = "source $1; read -ra COMP_WORDS <<<\"$2\"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE=$2; \
                      COMP_POINT=${#2}; function=$(complete -p baton | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); \
                      $function baton \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let output = Command::new("bash").args(["--norc", "-c", script, "bash"]).arg(&file).arg(line).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {}", text(&output));
        text(&output).lines().map(str::to_owned).collect()
    });
}

#[test]
fn fish_completes() {
    if !is_there("fish", "fish") {
        return;
    }
    let (folder, file) = completions("fish", "baton.fish");
    let path = path_with(folder.path());
    check_completions(&[&COMPLETED[..], &COMPLETED_BY_FISH].concat(), |line| {
        let script = "source $argv[1]; complete --do-complete $argv[2]";
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", script]).arg(&file).arg(line);
        fish.current_dir(folder.path()).env("PATH", &path).env("HOME", folder.path());
        let output = fish.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {}", text(&output));
        text(&output).lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    });
}

/// Zsh completes only at its prompt: one in a terminal of its own, which lists the matches.
#[test]
fn zsh_completes() {
    if !is_there("zsh", "zsh") {
        return;
    }
    let (folder, _file) = completions("zsh", "_baton");
    let path = path_with(folder.path());
    // What is added to the matches is printed between marks, in the place of the list on the screen. Nothing is typed before the line
    // editor reads: the terminal itself would take the key that clears the line. A long list is shown without a question.
    let setup = format!(
        "PROMPT= RPROMPT=; LISTMAX=100000; unsetopt zle_bracketed_paste; fpath=({} $fpath); autoload -U compinit; compinit -u -D\n\
         compadd() {{ if [[ ${{@[(I)-[OAD]]}} -gt 0 ]]; then builtin compadd \"$@\"; return; fi; \
         builtin compadd -A hits \"$@\"; print -rl -- \"HIT:\"${{^hits}} >>$MATCHES; builtin compadd \"$@\" }}\n\
         zle-line-init() {{ print READY >>$MATCHES }}\nzle -N zle-line-init\n",
        folder.path().display()
    );
    fs::write(folder.path().join("setup.zsh"), setup).unwrap();
    check_completions(&COMPLETED, |line| {
        let matches = folder.path().join("matches");
        let _ = fs::remove_file(&matches);
        let script = "zmodload zsh/zpty; zpty terminal 'zsh -f -i'; zpty -w terminal \"source $1/setup.zsh\"; \
                      until grep -q READY $MATCHES 2>/dev/null; do sleep 0.02; done; zpty -w -n terminal \"$2\"$'\\t'; \
                      zpty -w -n terminal $'\\025print DONE >>$MATCHES\\n'; \
                      until grep -q DONE $MATCHES; do sleep 0.02; done; zpty -d terminal";
        let mut zsh = Command::new("timeout");
        zsh.args(["30", "zsh", "-f", "-c", script, "zsh"]).arg(folder.path()).arg(line).env("MATCHES", &matches);
        let output = zsh.env("PATH", &path).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output));
        let found = fs::read_to_string(&matches).unwrap();
        found.lines().filter_map(|line| line.strip_prefix("HIT:")).map(str::to_owned).collect()
    });
}

/// The pages of the manual: one for the program, and one for each verb of `baton --help`.
#[test]
fn every_verb_has_a_man_page_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(program()).args(["generate", "manual"]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    for page in ["baton.8", "baton-reload.8", "baton-certs.8", "baton-certs-list.8", "baton-flip-to.8", "baton-load.8"]
    {
        assert!(folder.path().join(page).exists(), "{page}");
    }
    let program_page = fs::read_to_string(folder.path().join("baton.8")).unwrap();
    if !is_there("man", "man-db") {
        return;
    }
    let mut count = 0;
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut man = Command::new("man");
        man.args(["--warnings=w", "--encoding=UTF-8", "--local-file"]).arg(&page);
        let output = man.env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output));
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("NAME") && shown.contains(&name), "{name}: {shown}");
        // Verbs of verbs are listed on their verb's page.
        if name.matches('-').count() == 1 || name == "baton-real-server" {
            assert!(program_page.contains(&name.replace('-', "\\-")), "{name} is not in baton(8)");
        }
        count += 1;
    }
    assert!(count > 20, "{count} pages");
}

/// `packaging/container/check-image` says what it does.
#[test]
fn the_image_serves_as_pid_1() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root for the namespaces of a container");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/container/check-image");
    let output = Command::new(script).arg(program()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let _ = std::io::stderr().write_all(&output.stdout);
}
