//! The command line next to Debian's haproxy: the same exit codes, the same words where scripts look for them.

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Proxy, free_address, program, until};

const GOOD: &str = "defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
    frontend web\n bind 127.0.0.1:18999\n default_backend app\nbackend app\n server s1 127.0.0.1:9\n";
const HAPROXY: &str = "/usr/sbin/haproxy";

/// The files the command lines below name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.cfg", GOOD);
    write("warn.cfg", &GOOD.replace(" timeout client 5s\n", ""));
    write("bad.cfg", &GOOD.replace("mode http", "moode http"));
    write("empty.cfg", "\n");
    write("nouser.cfg", &format!("global\n user nobody-of-this-name\n{GOOD}"));
    write("noaddr.cfg", &GOOD.replace("127.0.0.1:18999", "203.0.113.9:18999"));
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    let (head, tail) = GOOD.split_at(GOOD.find("backend app\n server").unwrap());
    write("parts/1.cfg", head);
    write("parts/2.cfg", tail);
    folder
}

fn run(program: &Path, folder: &Path, line: &str) -> Output {
    let command = Command::new(program).args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null()).output();
    command.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The severities said, in order, without the introduction.
fn severities(output: &Output) -> Vec<String> {
    let said = text(&output.stderr);
    let lines = said.lines().filter(|line| !line.contains("version is") && !line.contains("path to executable"));
    let mut words: Vec<String> =
        lines.filter_map(|line| line.strip_prefix('[')?.split(']').next().map(str::to_owned)).collect();
    words.dedup();
    words
}

/// Runs both programs; exit code and standard output must be the same, and the kinds of messages.
fn check_same(lines: &[&str]) {
    if !Path::new(HAPROXY).exists() {
        eprintln!("SKIPPED: {HAPROXY} is not installed, nothing to compare with");
        return;
    }
    let folder = folder();
    for line in lines {
        let (theirs, ours) = (run(Path::new(HAPROXY), folder.path(), line), run(program(), folder.path(), line));
        assert_eq!(ours.status.code(), theirs.status.code(), "{line}: {}", text(&ours.stderr));
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{line}");
        assert_eq!(severities(&ours), severities(&theirs), "{line}: {}", text(&ours.stderr));
    }
}

#[test]
fn checking_is_the_same() {
    check_same(&[
        "-c -f good.cfg",
        "-c -V -f good.cfg",
        "-c -q -f good.cfg",
        "-c -- good.cfg",
        "-c -f parts",
        "-c -f parts/1.cfg -f parts/2.cfg",
        "-C parts -c -f 1.cfg -- 2.cfg",
        "-f good.cfg -c -sf",
        "-c -dM -dS -de -dp -dG -dr -dV -dC -dD -dW -dK -dR -dZ -dl -dt -f good.cfg",
        "-c -n 100 -N 10 -m 100 -L me -f good.cfg",
        "-c -n x -f good.cfg",
        "-c -D -W -f good.cfg",
        "-c -f warn.cfg",
        "-c -q -f warn.cfg",
        "-c -dW -f warn.cfg",
        "-c -f bad.cfg",
        "-c -q -f bad.cfg",
        "-c -f missing.cfg",
        "-c -f good.cfg -f missing.cfg",
        "-c -f empty.cfg",
        "-c -f nouser.cfg",
        "-C /no/such/folder -c -f good.cfg",
    ]);
}

/// A check without the lines that Baton lacks something for: what it prints, and that nothing serves so.
#[test]
fn lines_are_left_out_of_a_check() {
    let folder = folder();
    let wide = GOOD.replace(" mode http\n", " mode http\n compression algo gzip\n");
    std::fs::write(folder.path().join("wide.cfg"), format!("global\n lua-load x.lua\n{wide}")).unwrap();
    for (line, code, printed, said) in [
        ("-c -f wide.cfg", 1, "", "2 lines use 2 features that Baton does not have: compression (1), lua (1)"),
        ("-c -f wide.cfg --leave-out lua", 1, "", "[wide.cfg:2] : left out: keyword 'lua-load' is not supported yet"),
        (
            "-c -f wide.cfg --leave-out lua,compression",
            0,
            "Configuration file is valid without the lines that were left out\n",
            "left out in this check, which a start would refuse: compression (1), lua (1)",
        ),
        ("-c -q -f wide.cfg --leave-out lua,compression", 0, "", ""),
        ("-c -f good.cfg --leave-out lua", 0, "Configuration file is valid\n", ""),
        ("-db -f wide.cfg --leave-out lua,compression", 1, "", "--leave-out is for checks: it needs -c."),
        ("-c -f wide.cfg --leave-out moon", 1, "", "unknown feature 'moon'. The features that Baton lacks are: "),
    ] {
        let output = run(program(), folder.path(), line);
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), out.as_str()), (Some(code), printed), "{line}: {errors}");
        assert!(errors.contains(said), "{line}: {errors}");
    }
}

#[test]
fn conditions_are_the_same() {
    check_same(&[
        "-cc streq(a,a)",
        "-cc streq(a,b)",
        "-cc bla(",
        "-cc version_atleast(2.6)",
        "-cc version_atleast(2.7)",
        "-cc feature(EPOLL)",
        "-cc defined(HOME)&&!defined(NO_SUCH_VARIABLE)",
    ]);
}

#[test]
fn starts_that_fail_are_the_same() {
    check_same(&[
        "-db -f bad.cfg",
        "-f empty.cfg",
        "-db -f noaddr.cfg",
        "-D -f noaddr.cfg",
        "-D -f good.cfg -p /no/such/x",
    ]);
}

#[test]
fn wrong_command_lines_show_the_usage() {
    let folder = folder();
    for line in ["", "-f", "-h", "-Z", "-c good.cfg"] {
        let output = run(program(), folder.path(), line);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(said.contains("Usage : baton [-f <cfgfile|cfgdir>]*"), "{line}: {said}");
        assert!(out.starts_with("Baton version ") || out.is_empty(), "{line}: {out}");
    }
}

#[test]
fn process_numbers_are_read_as_haproxy_reads_them() {
    for (line, expect) in [
        ("-f good.cfg -c -sf abc", "-sf option: some bytes unconsumed in PID list {abc}"),
        ("-f good.cfg -c -st 1 2x", "-st option: some bytes unconsumed in PID list {x}"),
    ] {
        let output = run(program(), folder().path(), line);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(expect), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn versions_keep_their_shape() {
    let folder = folder();
    let short = text(&run(program(), folder.path(), "-v").stdout);
    let words: Vec<&str> = short.split_whitespace().collect();
    assert_eq!(words[1], "version");
    assert!(words[2].split('.').all(|part| part.parse::<u32>().is_ok()), "{short}");
    assert_eq!(short.lines().count(), 4);
    let long = text(&run(program(), folder.path(), "-vv").stdout);
    assert!(long.starts_with(&short) && long.contains("\nFeature list : "), "{long}");
    let bpf = if cfg!(feature = "bpf") { "\nBuilt with BPF programs" } else { "`make build` (cargo feature bpf)" };
    assert!(long.contains(bpf), "{long}");
}

#[test]
fn it_is_the_same_when_called_haproxy() {
    let folder = folder();
    let link = folder.path().join("haproxy");
    std::os::unix::fs::symlink(program(), &link).unwrap();
    let output = run(&link, folder.path(), "-c -f bad.cfg");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(" : haproxy version is "), "{}", text(&output.stderr));
}

#[test]
fn verbs_have_help_with_an_example() {
    let folder = folder();
    for verb in ["reload", "plan", "status", "origin"] {
        let output = run(program(), folder.path(), &format!("{verb} --help"));
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(&format!("Example:\n  baton {verb}")), "{verb}");
    }
    assert!(text(&run(program(), folder.path(), "help").stdout).contains("reload"));
    assert_eq!(run(program(), folder.path(), "dance").status.code(), Some(1));
}

/// The golden plans of `tests/plans`: `old.cfg` and `new.cfg` of a folder, and what is said of the way between them.
/// `UPDATE_GOLDEN=1` writes them.
#[test]
fn plans_are_as_written_down() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut count = 0;
    for entry in std::fs::read_dir(&plans).unwrap() {
        let folder = entry.unwrap().path();
        let output = run(program(), &folder, "plan --from old.cfg -f new.cfg");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let golden = folder.join("plan.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &said).unwrap();
        }
        assert_eq!(said, std::fs::read_to_string(&golden).unwrap_or_default(), "{}", folder.display());
        count += 1;
    }
    assert!(count >= 2, "the plans are there");
}

#[test]
fn plans_ask_the_running_process() {
    let web = free_address();
    let text_of = |weight: u32| {
        GOOD.replace("127.0.0.1:18999", &web.to_string()).replace(":9\n", &format!(":9 weight {weight}\n"))
    };
    let proxy = Proxy::start(&text_of(1));
    let new = proxy.folder.path().join("new.cfg");
    std::fs::write(&new, text_of(2)).unwrap();
    let ask = |more: &str| run(program(), proxy.folder.path(), &format!("plan -f new.cfg --pid {}{more}", proxy.pid()));
    let plan = || text(&ask("").stdout);
    let values = format!("    weight 1 -> 2 ({}:10)\n", new.display());
    let summary = "0 to add, 1 to change, 0 to remove\n";
    assert_eq!(plan(), format!("backend app: server s1: weight changed\n{values}    impact: none\n{summary}"));
    assert_eq!([ask(""), ask(" --detailed-exitcode")].map(|output| output.status.code()), [Some(0), Some(2)]);
    let json: serde_json::Value = serde_json::from_str(&text(&ask(" --json").stdout)).expect("JSON");
    let value = &json["plan"]["changes"][0]["values"][0];
    assert_eq!(
        (&value["keyword"], &value["from"], &value["to"], &value["line"]),
        (&"weight".into(), &"1".into(), &"2".into(), &10.into())
    );
    assert_eq!((&json["summary"]["change"], &json["plan"]["changes"][0]["action"]), (&1.into(), &"change".into()));
    proxy.write(&text_of(2));
    let reload = run(program(), proxy.folder.path(), &format!("reload --pid {}", proxy.pid()));
    assert_eq!(text(&reload.stdout), "backend app: server s1: weight changed\nConfiguration 2 is in use: 1 change.\n");
    assert_eq!(plan(), "no changes\n");
    assert_eq!(ask(" --detailed-exitcode").status.code(), Some(0));
    std::fs::write(&new, "junk").unwrap();
    assert_eq!(ask(" --detailed-exitcode").status.code(), Some(1));
    proxy.write("junk");
    let reload = run(program(), proxy.folder.path(), &format!("reload --pid {}", proxy.pid()));
    assert_eq!(reload.status.code(), Some(1));
    assert!(text(&reload.stderr).contains("configuration 2 stays in use"), "{}", text(&reload.stderr));
}

/// Without a process to ask: in a network namespace of its own there is none.
#[test]
fn what_a_start_would_refuse_a_plan_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (address, taken)).unwrap();
    let plan = |config: &str, from: &str| {
        std::fs::write(folder.path().join("new.cfg"), config).unwrap();
        let output = run(program(), folder.path(), &format!("plan {from} -f new.cfg"));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let second = |address: &str| format!("{GOOD}frontend second\n bind {address}\n default_backend app\n");
    std::fs::write(folder.path().join("old.cfg"), GOOD).unwrap();
    let (code, said) = plan(&second("127.0.0.1:18999"), "--from old.cfg");
    assert!(code == Some(1) && said.contains("127.0.0.1:18999 is already used by frontend"), "{said}");
    let (code, said) = plan(&second(&taken.0.to_string()), "--from old.cfg");
    assert!(code == Some(0) && said.contains("frontend second added"), "other files are compared only: {said}");

    // Every process that runs is one to ask, and other tests have some.
    let isolated = folder.path().join("run");
    let held = |address: &str| {
        std::fs::write(folder.path().join("new.cfg"), second(address)).unwrap();
        let script = format!(
            "ip link set lo up; socat -u TCP-LISTEN:19001,bind=127.0.0.1,fork STDOUT & \
             until grep -qi :4A39 /proc/net/tcp; do sleep 0.01; done; {} plan -f new.cfg; code=$?; kill $!; exit $code",
            program().display()
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]).current_dir(folder.path()).env("BATON_RUN_DIR", &isolated);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: only root makes a network namespace");
        return;
    }
    let (code, said) = held("127.0.0.1:19001");
    assert!(code == Some(1) && said.contains("127.0.0.1:19001 is used by another program"), "{said}");
    assert_eq!(held("127.0.0.1:19002").0, Some(0));
}

#[test]
fn the_parent_of_a_daemon_ends_when_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let (web, pid_file) = (free_address(), folder.path().join("baton.pid"));
    std::fs::write(folder.path().join("a.cfg"), GOOD.replace("127.0.0.1:18999", &web.to_string())).unwrap();
    let output = run(program(), folder.path(), &format!("-D -f a.cfg -p {}", pid_file.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(std::net::TcpStream::connect(web).is_ok(), "it serves already");
    let pid = Pid::from_raw(std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap());
    let reload = run(program(), folder.path(), "reload -p baton.pid --json");
    assert!(text(&reload.stdout).contains(r#""accepted":true"#), "{}", text(&reload.stdout));
    kill(pid, Signal::SIGTERM).unwrap();
    until("the daemon ends", || kill(pid, None).is_err());
}

/// As root: binds before it gives up its rights, reloads from files outside of its root directory, and says why it cannot bind
/// a low port later.
#[test]
fn rights_are_given_up_and_reloads_still_work() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to give rights up");
        return;
    }
    let (web, other) = (free_address(), free_address());
    let cage = tempfile::tempdir().unwrap();
    let base = format!("global\n user nobody\n group nogroup\n chroot {}\n", cage.path().display());
    let text_of = |binds: &str| base.clone() + &GOOD.replace(" bind 127.0.0.1:18999\n", binds);
    let proxy = Proxy::start(&text_of(&format!(" bind {web}\n")));
    std::fs::set_permissions(proxy.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
    let used = proxy.status();
    assert!(used.descriptors > 5 && used.resident_bytes > 1 << 20, "without /proc in its root: {used:?}");
    proxy.change(&text_of(&format!(" bind {web}\n bind {other}\n")));
    proxy.change(&text_of(&format!(" bind {web}\n")));
    until("the removed address is closed", || std::net::TcpStream::connect(other).is_err());
    let reasons = proxy.change_refused(&text_of(&format!(" bind {web}\n bind 127.0.0.1:81\n")));
    assert!(reasons.contains("port 81 is privileged") && reasons.contains("setcap cap_net_bind_service"), "{reasons}");
}

#[test]
fn help_groups_the_commands_and_describes_keywords() {
    let folder = tempfile::tempdir().unwrap();
    let say = |line: &str| run(program(), folder.path(), line);
    let help = text(&say("--help").stdout);
    let groups = ["\nServe:", "\nOperate:", "\nProve (", "\nOther servers:", "\nDirect routing:"];
    let places: Vec<Option<usize>> = groups.iter().map(|group| help.find(group)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{help}");
    assert_eq!(text(&say("help").stdout), help);
    let usage = say("-h");
    let listed = text(&usage.stderr);
    assert_eq!(usage.status.code(), Some(1), "as haproxy -h");
    assert!(listed.contains("-sf PID...") && listed.contains("  real-server  Set up"), "{listed}");
    let keyword = say("help timeout client");
    assert!(text(&keyword.stdout).starts_with("timeout client TIME\n"), "{}", text(&keyword.stdout));
    assert!(text(&say("help reload").stdout).contains("Usage: baton reload [OPTIONS]"));
    let unknown = say("help blance");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("did you mean 'balance'?"), "{}", text(&unknown.stderr));
}

#[test]
fn a_start_reports_once_where_it_serves_and_how_to_go_on() {
    let web = free_address();
    let good = GOOD.replace("127.0.0.1:18999", &web.to_string());
    let proxy = Proxy::start(&good);
    let serving = format!("Serving on {web}. To apply changed files: `baton reload --pid {}` or SIGUSR2", proxy.pid());
    until("it is reported", || proxy.said().contains(&serving));
    drop(proxy);
    let quiet = Proxy::start_with(&good, &["-q"]);
    quiet.reload();
    assert_eq!(quiet.said(), "");
    drop(quiet);
    // A log on standard error has the events, so that no message beside it says the same again.
    let logged = Proxy::start(&format!("global\n log stderr format raw local0\n{good}"));
    logged.change(&format!("global\n log stderr format raw local0\n{}", good.replace(":9\n", ":9 weight 7\n")));
    until("the reload is reported", || logged.said().contains("weight changed"));
    for event in ["Serving on ", "Reload: configuration 2 is in use, 1 change."] {
        assert_eq!(logged.said().matches(event).count(), 1, "{}", logged.said());
    }
    assert!(logged.said().contains("\nReload: configuration 2"), "as the log's format has it: {}", logged.said());
}

#[test]
fn of_several_processes_one_is_chosen_from_a_table() {
    let addresses = [free_address(), free_address()];
    let proxies = addresses.map(|web| Proxy::start(&GOOD.replace("127.0.0.1:18999", &web.to_string())));
    let output = run(program(), proxies[0].folder.path(), "status");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.starts_with("baton: several processes run; choose one with --pid PID or --pid-file FILE:\n"),
        "{said}"
    );
    for (proxy, web) in proxies.iter().zip(addresses) {
        let row = said.lines().find(|line| line.split_whitespace().next() == Some(&proxy.pid().to_string()));
        let row = row.unwrap_or_else(|| panic!("{} is missing: {said}", proxy.pid()));
        let expect = ["serving".to_owned(), web.to_string(), proxy.config.display().to_string()];
        assert!(expect.iter().all(|cell| row.contains(cell.as_str())), "{row}");
    }
}

#[test]
fn the_command_that_upgrade_prints_replaces_a_process_without_a_master() {
    let web = free_address();
    let proxy = Proxy::start_with(&GOOD.replace("127.0.0.1:18999", &web.to_string()), &["-L", "it's me"]);
    let output = run(program(), proxy.folder.path(), &format!("upgrade --pid {}", proxy.pid()));
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("has no master (-W)"), "{said}");
    let command = said.lines().last().unwrap_or_default().trim();
    assert!(command.contains(&format!(" -sf {} -db -f ", proxy.pid())), "{command}");
    let successor = Command::new("sh").args(["-c", &format!("exec {command}")]).stderr(Stdio::null()).spawn();
    let mut successor = successor.expect("there is a shell");
    assert!(proxy.wait().0.success(), "it has handed over");
    assert!(std::net::TcpStream::connect(web).is_ok(), "the successor serves");
    successor.kill().and_then(|()| successor.wait()).expect("it runs");
}
