//! `baton prove` as a whole: real servers, real restarts, and nothing left behind.

#[path = "support/lab/mod.rs"]
mod lab;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A directory that is all a proof may write to, and that must be empty afterwards but for what was asked for.
struct Proof {
    directory: TempDir,
    _turn: Turn,
}

/// Held while a proof runs: beside others, or alone, for a load that must be fast enough to meet the moment in which a server loses requests.
enum Turn {
    Beside { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

static TURNS: RwLock<()> = RwLock::new(());

/// What a proof said.
struct Said {
    code: Option<i32>,
    text: String,
    json: Value,
}

impl Proof {
    fn new() -> Proof {
        let _guard = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Proof { directory: tempfile::tempdir().expect("a directory"), _turn: Turn::Beside { _guard } }
    }

    fn alone() -> Proof {
        let _guard = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Proof { directory: tempfile::tempdir().expect("a directory"), _turn: Turn::Alone { _guard } }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let private = self.directory.path().join("tmp");
        std::fs::create_dir(&private).expect("it is not there yet");
        let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
        command.arg("prove").args(arguments).arg("--json").arg(self.directory.path().join("json"));
        command.env("TMPDIR", private);
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        self.judge(&self.command(arguments).output().expect("the program was built"))
    }

    fn judge(&self, output: &Output) -> Said {
        let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        let private = self.directory.path().join("tmp");
        let left: Vec<_> = std::fs::read_dir(&private).expect("it is there").collect();
        assert!(left.is_empty(), "files are left: {left:?}\n{text}");
        // Every process of a run works in its private directory.
        let processes: Vec<_> = working_in(&private);
        assert!(processes.is_empty(), "processes are left: {processes:?}\n{text}");
        let json = std::fs::read(self.directory.path().join("json")).unwrap_or_default();
        Said { code: output.status.code(), text, json: serde_json::from_slice(&json).unwrap_or_default() }
    }
}

impl Said {
    fn number(&self, row: usize, name: &str) -> u64 {
        let number = self.json.pointer(&format!("/rows/{row}/outcome/measured/{name}")).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("no {name} in row {row}: {}", self.text))
    }

    fn events(&self, row: usize) -> usize {
        let events = self.json.pointer(&format!("/rows/{row}/outcome/measured/events")).and_then(Value::as_array);
        events.map_or(0, Vec::len)
    }
}

fn working_in(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let works = entries.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    works.filter(|work| work.starts_with(directory)).collect()
}

#[test]
fn what_a_change_costs_besides_failed_requests_is_measured() {
    let proof = Proof::new();
    let said = proof.run(&["cost", "--server", "haproxy-sf", "--scale", "0.02"]);
    let held = |said: &Said, path: &str| {
        let value = said.json.pointer(&format!("/rows/0/outcome/measured/held/{path}"));
        value.cloned().unwrap_or_else(|| panic!("no {path}: {}", said.text))
    };
    assert_eq!(said.number(0, "held/websockets/opened"), 10, "{}", said.text);
    assert_eq!(said.number(0, "held/tunnels/cut"), 0, "{}", said.text);
    // The new process knows nothing of the maintenance, and the old ones wait for the sessions.
    assert_eq!(
        (held(&said, "keeps/settings"), held(&said, "keeps/counters")),
        (false.into(), false.into()),
        "{}",
        said.text
    );
    assert!(said.number(0, "held/after/count") > said.number(0, "held/before/count"), "{}", said.text);
    assert_eq!(said.number(0, "held/certificates/count"), 200, "{}", said.text);
    assert!(said.number(0, "held/certificates/in_effect_us") > 0, "{}", said.text);

    drop(proof);
    let proof = Proof::new();
    let said = proof.run(&["cost", "--server", "baton-reload", "--scale", "0.02"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    for sessions in ["websockets", "tunnels"] {
        assert_eq!(
            (said.number(0, &format!("held/{sessions}/opened")), said.number(0, &format!("held/{sessions}/cut"))),
            (10, 0)
        );
    }
    assert!(said.number(0, "held/kept/completed") > 0 && said.number(0, "held/kept/failed") == 0, "{}", said.text);
    assert!(["settings", "counters", "health"].iter().all(|name| held(&said, &format!("keeps/{name}")) == true));
    assert_eq!((said.number(0, "held/before/count"), said.number(0, "held/after/count")), (1, 1), "{}", said.text);
    assert!(said.number(0, "held/in_effect_us") > 0, "{}", said.text);
    assert_eq!(said.number(0, "held/certificates/count"), 200, "{}", said.text);
    for how in ["in_effect_us", "without_event_us"] {
        assert!(said.number(0, &format!("held/certificates/{how}")) > 0, "{how}: {}", said.text);
    }
    assert!(
        said.text.contains("WebSockets cut") && said.text.contains("in effect with 200 certificates"),
        "{}",
        said.text
    );
}

/// Of a server that does not serve the certificates, and of one whose reload fails once it has them.
#[test]
fn a_certificate_that_is_not_in_effect_is_a_failure_and_not_a_figure() {
    let serve = r"sed -i 's|bind {{web}}|&\n    bind {{tls}} ssl crt {{dir}}/certs|' haproxy.cfg";
    let cases = [
        ("true", "true", "the certificate of site-00002.example is not served"),
        ("test ! -e certs", serve, "the certificate was not replaced: exit status 1"),
    ];
    for (event, serve, reason) in cases {
        let proof = Proof::new();
        let text = format!(
            "title = 'T'\nevery = '200ms'\nevent = '{event}'\n[held]\nwait = '1ms'\ncertificates = 2\n\
             [server.baton]\nexpect = 'no-failure'\nserve_certificates = '''{serve}'''\n"
        );
        let said = proof.run(&[&proof.write("own.toml", &text), "--for", "1s"]);
        assert_eq!((said.code, said.number(0, "failed")), (Some(1), 0), "{}", said.text);
        assert!(said.text.contains(&format!("with 2 certificates: {reason}")), "{}", said.text);
        let measured = said.json.pointer("/rows/0/outcome/measured/held/certificates/in_effect_us");
        assert!(measured.is_some_and(Value::is_null), "{}", said.text);
    }
}

#[test]
fn what_is_held_open_is_not_measured_over_tls() {
    let said = Proof::new().run(&["cost", "--server", "baton-reload", "--tls"]);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.text.contains("absent: connections that are held open are not measured over TLS"), "{}", said.text);
}

#[test]
fn nothing_fails_when_nothing_is_done() {
    let proof = Proof::new();
    let said = proof.run(&["baseline", "--for", "1s"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    for row in 0..3 {
        assert_eq!((said.number(row, "failed"), said.events(row)), (0, 0), "{}", said.text);
        assert!(said.number(row, "completed") > 0, "{}", said.text);
    }
}

/// What `baton prove direct` says of a row: bytes of answers in a second, and the director's own bytes for each of them.
fn direct(said: &Said, server: &str) -> (f64, f64) {
    let rows = said.json["rows"].as_array().expect("rows").iter();
    let row = rows.clone().position(|row| row["server"] == server);
    let row = row.unwrap_or_else(|| panic!("{server}: {}", said.text));
    assert_eq!(said.json["rows"][row]["as_expected"], true, "{server}: {}", said.text);
    let seconds = said.json.pointer(&format!("/rows/{row}/outcome/measured/seconds")).and_then(Value::as_f64);
    let speed = said.number(row, "body_bytes") as f64 / seconds.unwrap_or(f64::MAX);
    (speed, said.number(row, "meter/bytes") as f64 / said.number(row, "body_bytes") as f64)
}

/// The kernel's IPVS needs a kernel that has it. Absolute speeds are those of links, and no subject of this test.
#[test]
fn direct_routing_gives_what_all_links_give() {
    lab::inside(|| {
        let proof = Proof::new();
        let load = "-c 12 --timeout 5m http://10.81.0.2/bytes/500000";
        let said = proof.run(&["direct", "--requests", "24", "--load", load]);
        let [(http, through), (ipvs, beside)] = ["http", "ipvs"].map(|server| direct(&said, server));
        assert!(ipvs > 3.0 * http && ipvs < 5.0 * http, "{ipvs} and {http} bytes a second: {}", said.text);
        assert!(through > 1.0 && beside < 0.1, "{through} and {beside} of the answers: {}", said.text);
    });
}

/// The engine xdp hashes: of many small downloads each server gets about as many.
#[cfg(feature = "bpf")]
#[test]
fn direct_routing_by_xdp_gives_what_most_links_give() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("SKIPPED: a BPF file system needs root");
    }
    let load = "-c 24 --timeout 1m http://10.81.0.2/bytes/40000";
    let [(http, _), (xdp, beside)] = ["http", "xdp"].map(|server| {
        let said = Proof::new().run(&["direct", "--server", server, "--requests", "96", "--load", load]);
        direct(&said, server)
    });
    assert!(xdp > 2.0 * http && xdp < 5.0 * http, "{xdp} and {http} bytes a second");
    assert!(beside < 0.1, "{beside} of the answers");
}

#[test]
fn the_same_over_tls() {
    let proof = Proof::new();
    let said = proof.run(&["baseline", "reload", "--tls", "--for", "2s"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    for row in 0..6 {
        assert!(said.number(row, "completed") > 0, "{}", said.text);
        let commands = said.json.pointer(&format!("/rows/{row}/commands")).map(Value::to_string).unwrap_or_default();
        assert!(commands.contains("https://") && commands.contains("certificate.pem"), "{commands}");
    }
}

/// Without root a user namespace gives the same network of its own, where the kernel allows it; and the machine's does.
#[test]
fn somebody_who_is_not_root_can_prove() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: becoming somebody else needs root");
        return;
    }
    for place in [&[][..], &["--machine-network"]] {
        let proof = Proof::new();
        let program = proof.directory.path().join("baton");
        std::fs::copy(env!("CARGO_BIN_EXE_baton"), &program).expect("it can be copied");
        let as_root = proof.command(&[&["reload", "--server", "baton", "--for", "2s"], place].concat());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(as_root.get_args());
        command.env("TMPDIR", proof.directory.path().join("tmp")).current_dir(proof.directory.path());
        for path in ["", "tmp"] {
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(proof.directory.path().join(path), all).expect("it is ours");
        }
        let said = proof.judge(&command.output().expect("setpriv is installed"));
        assert_eq!((said.code, said.number(0, "failed")), (Some(0), 0), "{}", said.text);
        assert!(said.events(0) > 0, "{}", said.text);
    }
}

#[test]
fn a_result_is_written_in_every_form() {
    let proof = Proof::new();
    let document = "# Title\n<!-- measured: begin -->\nstale\n<!-- measured: end -->\nThe end.\n";
    let names = ["report.html", "document.md", "picture.svg"];
    let [report, markdown, picture] = names.map(|name| proof.directory.path().join(name).display().to_string());
    proof.write("document.md", document);
    let files = ["--report", &report, "--markdown", &markdown, "--picture", &picture];
    let said = proof.run(&[&["reload", "--server", "baton", "--for", "2s"][..], &files].concat());
    assert_eq!(said.code, Some(0), "{}", said.text);

    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (report, text, picture) = (read(&report), read(&markdown), read(&picture));
    let requests = said.number(0, "requests");
    assert!(report.ends_with("</html>\n") && report.contains("Exact commands"), "{report}");
    assert!(text.starts_with("# Title\n") && text.ends_with("\nThe end.\n") && !text.contains("stale"), "{text}");
    assert!(text.contains("| reload | baton") && text.contains("✓ as expected: no failure"), "{text}");
    assert!(picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(said.json["rows"][0]["as_expected"], true);
    let grouped = picture.replace(',', "");
    assert!(grouped.contains(&format!("0 of {requests}")), "{picture}");
}

#[test]
fn a_document_without_a_place_for_figures_is_refused_before_anything_is_measured() {
    let proof = Proof::new();
    let document = proof.write("document.md", "prose only");
    let said = proof.run(&["baseline", "--markdown", &document]);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.text.contains("measured: begin") && said.json.is_null(), "{}", said.text);
    assert_eq!(std::fs::read_to_string(&document).ok().as_deref(), Some("prose only"));
}

#[test]
fn a_hard_restart_of_haproxy_loses_requests() {
    let proof = Proof::new();
    let page = proof.directory.path().join("page.html");
    let report = page.to_str().expect("it is text");
    let said = proof.run(&["hard-restart", "--server", "haproxy", "--for", "3s", "--report", report]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert!(said.number(0, "failed") > 0 && said.number(0, "failures/refused") > 0, "{}", said.text);
    assert!(said.events(0) > 0, "{}", said.text);
    assert_eq!(said.number(0, "events_failed"), 0, "{}", said.text);
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("<svg") && page.contains("haproxy -D -f haproxy.cfg -p pid"), "{page}");
}

/// The order that every report of these methods has: a restart loses most, two processes side by side lose some, and handing
/// the sockets over loses none.
#[test]
fn haproxy_loses_by_legacy_reloads_and_not_by_transfers() {
    let proof = Proof::alone();
    let all = ["hard-restart", "legacy-reload", "transfer"];
    let run = || {
        let said = proof.run(&[&all[..], &["--server", "haproxy", "--for", "4s", "-c", "100"]].concat());
        let failed = [0, 1, 2].map(|row| said.number(row, "failed"));
        (said, failed)
    };
    let mut last = run();
    // On a busy machine a few reloads may find nobody in the queue that they close: more reloads will. And a start of haproxy may take
    // longer than an event may.
    for _ in 0..4 {
        if last.0.code == Some(0) && last.1[1] > 0 {
            break;
        }
        last = run();
    }
    let (said, failed) = last;
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert!(failed[0] > failed[1] && failed[1] > 0 && failed[2] == 0, "{failed:?}: {}", said.text);
}

#[test]
fn a_reload_of_baton_loses_none() {
    let proof = Proof::new();
    let said = proof.run(&["reload", "--server", "baton", "--for", "3s"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert_eq!((said.number(0, "failed"), said.number(0, "events_failed")), (0, 0), "{}", said.text);
    assert!(said.events(0) > 0, "{}", said.text);
    assert_eq!(said.json["rows"][0]["outcome"]["measured"]["left_over"], serde_json::json!([]), "{}", said.text);
}

#[test]
fn the_example_of_the_documentation_works() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prove.md")).expect("it is there");
    let (_, example) = text.split_once("```toml\n").expect("it has an example");
    let (example, _) = example.split_once("```").expect("it ends");
    let proof = Proof::new();
    let file = proof.write("my-nginx.toml", example);
    let said = proof.run(&[&file, "--for", "3s"]);
    assert_eq!(said.json["rows"][0]["experiment"], "my-nginx", "{}", said.text);
    assert!(said.number(0, "completed") > 0 && said.events(0) > 0, "{}", said.text);
    assert_eq!(said.number(0, "events_failed"), 0, "{}", said.text);
}

#[test]
fn a_server_of_options_is_reloaded() {
    let proof = Proof::new();
    let config = proof.write(
        "own.cfg",
        "defaults\n mode http\n timeout client 5s\nfrontend own\n bind 127.0.0.1:18017\n \
         http-request return status 200 content-type text/plain string hello\n",
    );
    let start = format!("{} -D -f {config} -p own.pid", env!("CARGO_BIN_EXE_baton"));
    let own = ["--server", &start, "--pid-file", "own.pid", "--reload", "kill -USR2 $(cat own.pid)"];
    let load = ["--load", "-c 4 http://127.0.0.1:18017/", "--for", "2s"];
    let said = proof.run(&[&own[..], &load].concat());
    assert_eq!((said.code, said.number(0, "failed")), (Some(0), 0), "{}", said.text);
    assert_eq!(said.json["rows"][0]["server"], "baton", "{}", said.text);
    assert!(said.number(0, "completed") > 0 && said.events(0) > 0, "{}", said.text);
}

/// Somebody's own process, ended when this is dropped.
struct Stranger(std::process::Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_runs_already_is_reloaded_and_left_alone() {
    let proof = Proof::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let web = taken.local_addr().expect("it is bound");
    drop(taken);
    let config = proof.write(
        "own.cfg",
        &format!(
            "defaults\n mode http\n timeout client 5s\nfrontend own\n bind {web}\n \
             http-request return status 200 content-type text/plain string hello\n"
        ),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    let server =
        command.args(["-db", "-q", "-f", &config]).stderr(Stdio::null()).spawn().expect("the program was built");
    let mut server = Stranger(server);
    let (reload, load) = (format!("kill -USR2 {}", server.0.id()), format!("-c 4 http://{web}/"));
    let said = proof.run(&["--reload", &reload, "--load", &load, "--for", "2s"]);
    assert_eq!((said.code, said.number(0, "failed")), (Some(0), 0), "{}", said.text);
    assert!(said.events(0) > 0, "{}", said.text);
    assert!(server.0.try_wait().expect("it is our child").is_none(), "it was ended: {}", said.text);
}

#[test]
fn ctrl_c_ends_it_with_what_was_measured() {
    let said = interrupt(Signal::SIGINT, &["legacy-reload", "syn-drop", "--server", "haproxy", "--for", "1000s"]);
    assert!(said.number(0, "requests") > 0, "{}", said.text);
}

#[test]
fn so_does_the_end_of_the_terminal() {
    let said = interrupt(Signal::SIGHUP, &["legacy-reload", "syn-drop", "--server", "haproxy", "--for", "1000s"]);
    assert!(said.number(0, "requests") > 0, "{}", said.text);
}

/// The networks vanish with their processes: the downloads under way hear nothing more, and may take minutes.
#[test]
fn downloads_that_nobody_ends_are_cut_off() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let began = Instant::now();
    let said = interrupt(Signal::SIGTERM, &["direct", "--server", "http"]);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}: {}", began.elapsed(), said.text);
}

fn interrupt(signal: Signal, arguments: &[&str]) -> Said {
    let proof = Proof::new();
    let mut command = proof.command(arguments);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program was built");
    // The first line says that the load has begun.
    let mut said = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    while said.next().expect("it goes on").expect("it is text").contains("starting") {}
    kill(Pid::from_raw(child.id() as i32), signal).expect("it lives");
    let said = proof.judge(&child.wait_with_output().expect("it ends"));
    assert_eq!(said.json["interrupted"], true, "{}", said.text);
    assert_eq!(said.json["rows"].as_array().map(Vec::len), Some(1), "{}", said.text);
    said
}

#[test]
fn a_broken_file_is_judged_before_anything_is_started() {
    let proof = Proof::new();
    let file = proof
        .write("broken.toml", "title = 'T'\nevery = '1s'\n\n[server.own]\nstart = 'serve {{prot}}'\nevent = 'x'\n");
    let said = proof.run(&[&file]);
    assert_eq!(said.code, Some(1));
    let expect = "broken.toml, line 5: unknown variable '{{prot}}'; the variables are {{web}}";
    assert!(said.text.contains(expect), "{}", said.text);
}

#[test]
fn what_is_missing_says_so_in_the_table() {
    let proof = Proof::new();
    let file = proof.write(
        "own.toml",
        "title = 'T'\n[server.own]\nneeds = ['no-such-server']\nstart = 'no-such-server'\n\
         [server.other]\npossible = 'echo baton: not by this kernel; false'\nstart = 'false'\n",
    );
    let said = proof.run(&[&file]);
    assert_eq!(said.code, Some(1), "nothing was measured: {}", said.text);
    assert!(said.text.contains("no-such-server is not installed"), "{}", said.text);
    assert!(said.text.contains("absent: not by this kernel"), "{}", said.text);
}

#[test]
fn a_server_that_does_not_start_is_broken_with_its_words() {
    let proof = Proof::new();
    let file = proof.write(
        "own.toml",
        "title = 'T'\n[server.haproxy]\nfiles.'haproxy.cfg' = \"frontend f\\n bind {{web}}\\n no-such-word\\n\"\n",
    );
    let said = proof.run(&[&file]);
    assert_eq!(said.code, Some(1), "{}", said.text);
    assert!(said.text.contains("haproxy did not start") && said.text.contains("no-such-word"), "{}", said.text);
}

#[test]
fn an_event_that_fails_proves_nothing() {
    let proof = Proof::new();
    let file = proof.write(
        "own.toml",
        "title = 'T'\nevery = '200ms'\n[server.haproxy]\nevent = 'echo refused; false'\nexpect = 'no-failure'\n",
    );
    let said = proof.run(&[&file, "--for", "2s"]);
    assert_eq!((said.code, said.number(0, "failed")), (Some(1), 0), "{}", said.text);
    assert!(said.text.contains("refused"), "{}", said.text);
}
