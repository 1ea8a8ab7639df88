//! The systemd unit: systemd finds nothing wrong with it, and Baton does all of its work as that user, with those rights and under
//! that filter of system calls. Without systemd as the first process, the unit's user, capabilities and filter are made by
//! `setpriv` and `packaging/systemd/under-filter`.

mod support;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use baton_prove::{Origin, OriginOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::clients::ask;
use support::{PATIENCE, Proxy, free_address, program, until};

/// The exposure that `systemd-analyze security` may find, in tenths: 0 is none, 100 is a program of root without any limit.
const EXPOSURE_MAX: &str = "25";
/// A user without a name.
const USER: &str = "61236";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

/// Whether `program` of Debian's package is there; says so if not.
fn is_there(program: &str, package: &str) -> bool {
    let is_there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !is_there {
        eprintln!("SKIPPED: {program} is not installed (Debian's package {package})");
    }
    is_there
}

/// The unit alone, and with what mode direct takes.
const DROP_INS: [Option<&str>; 2] = [None, Some("direct.conf")];

/// `systemd-analyze` on the unit with a drop-in, with our program in the place of the installed one.
fn analyze(arguments: &[&str], drop_in: Option<&str>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("baton.service");
    let text = fs::read_to_string(packaging().join("baton.service")).unwrap();
    assert_eq!(text.matches("/usr/sbin/baton").count(), 2);
    fs::write(&unit, text.replace("/usr/sbin/baton", program().to_str().unwrap())).unwrap();
    if let Some(name) = drop_in {
        let beside = folder.path().join("baton.service.d");
        fs::create_dir(&beside).unwrap();
        fs::copy(packaging().join(name), beside.join(name)).unwrap();
    }
    Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn systemd_finds_nothing_wrong() {
    if !is_there("systemd-analyze", "systemd") {
        return;
    }
    for drop_in in DROP_INS {
        let output = analyze(&["verify", "--man=no"], drop_in);
        let said = text(&output.stderr);
        // What systemd before 253 says of the lines it does not know, and falls back to the ones before them.
        let expected = ["ignoring: notify-reload", "Unknown key 'ReloadSignal'"];
        let other: Vec<&str> = said.lines().filter(|line| !expected.iter().any(|text| line.contains(text))).collect();
        assert!(output.status.success() && other.is_empty(), "{other:#?}");
    }
}

#[test]
fn the_service_is_hardly_exposed() {
    if !is_there("systemd-analyze", "systemd") {
        return;
    }
    for drop_in in DROP_INS {
        let output = analyze(&["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX], drop_in);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        // The drop-in was read.
        let families = text(&output.stdout).contains("Service may allocate packet sockets");
        assert_eq!(families, drop_in.is_some(), "{}", text(&output.stdout));
    }
}

/// What starts a program as the unit does: its user, its only right, no new ones, and its filter, where each call that is not let
/// through ends the program. `None` when that cannot be done here, which is said.
fn as_the_unit() -> Option<Vec<String>> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to become the service's user");
        return None;
    }
    if !is_there("systemd-analyze", "systemd") || !is_there("setpriv", "util-linux") {
        return None;
    }
    if !Command::new("/usr/bin/python3").args(["-c", "import seccomp"]).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: Debian's package python3-seccomp is not installed");
        return None;
    }
    let only = "-all,+net_bind_service";
    let (under_filter, unit) = (packaging().join("under-filter"), packaging().join("baton.service"));
    let line = format!(
        "setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps {only} --ambient-caps {only} --bounding-set {only} \
         --no-new-privs {} --kill {}",
        under_filter.display(),
        unit.display()
    );
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Everything Baton does.
#[test]
fn baton_works_with_the_rights_and_calls_of_its_unit() {
    let Some(mut wrapper) = as_the_unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let notify = folder.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    fs::set_permissions(&notify, PermissionsExt::from_mode(0o777)).unwrap();
    let log = UnixDatagram::bind(folder.path().join("log")).unwrap();
    fs::set_permissions(folder.path().join("log"), PermissionsExt::from_mode(0o777)).unwrap();
    let origin = Origin::start(OriginOptions::new("o")).unwrap();
    let (tcp, late, gone) = (free_address(), free_address(), free_address());
    let base = format!(
        "global\n nbthread 2\n maxconn 1000\n cpu-map auto:1/1-2 0-1\n setcap cap_net_bind_service\n hard-stop-after 20s\n \
         log {0}/log local0\ndefaults\n log global\n option httplog\n mode http\n timeout client 5s\n timeout connect 5s\n \
         timeout server 5s\nfrontend low\n bind 127.61.23.6:618\n bind unix@{0}/web.sock mode 666\n default_backend app\n\
         backend app\n option httpchk GET /\n balance leastconn\n server o {1} check inter 100ms\n\
         backend broken\n server n localhost:9 check inter 100ms\n\
         listen tcp\n mode tcp\n option splice-auto\n bind {tcp}\n server o {1}\n",
        folder.path().display(),
        origin.address(),
    );
    let more = format!(
        "frontend late\n bind {late}\n bind {gone}\n http-request return status 200 content-type text/plain string late\n"
    );
    wrapper.splice(0..0, ["env".to_owned(), format!("NOTIFY_SOCKET={}", notify.display())]);
    let words: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let proxy = Proxy::start_under(&words, &base, &["-Ws"]);
    fs::set_permissions(proxy.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut datagram = [0; 1024];
    let count = manager.recv(&mut datagram).unwrap();
    assert!(text(&datagram[..count]).contains("READY=1"));
    for round in 0..3 {
        assert!(ask(TcpStream::connect("127.61.23.6:618").unwrap()).starts_with("HTTP/1.1 200"), "{}", proxy.said());
        assert!(ask(UnixStream::connect(folder.path().join("web.sock")).unwrap()).starts_with("HTTP/1.1 200"));
        assert!(ask(TcpStream::connect(tcp).unwrap()).starts_with("HTTP/1.1 200"));
        proxy.change(&format!("{base}{more}"));
        assert!(ask(TcpStream::connect(late).unwrap()).ends_with("late"), "{round}");
        proxy.change(&base);
        until("the removed address is closed", || TcpStream::connect(late).is_err());
    }
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(log.recv(&mut datagram).is_ok(), "it logs");
    until("a check fails", || proxy.said().contains("Server broken/n is DOWN"));
    proxy.signal(Signal::SIGUSR1);
    let (status, said) = proxy.wait();
    assert!(status.success(), "{status}: {said}");
}

/// A process and the worker it has; both are killed when dropped.
struct Master(std::process::Child);

impl Master {
    fn worker(&self) -> Option<Pid> {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok().map(Pid::from_raw)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let worker = self.worker();
        let _ = self.0.kill();
        let _ = worker.map(|worker| kill(worker, Signal::SIGKILL));
        let _ = self.0.wait();
    }
}

/// The service as it is: with a master that starts programs.
#[test]
fn a_master_replaces_its_worker_with_the_rights_and_calls_of_its_unit() {
    let Some(wrapper) = as_the_unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (file, web) = (folder.path().join("a.cfg"), free_address());
    let text = fs::read_to_string(packaging().join("../baton.cfg")).unwrap();
    fs::write(&file, text.replace("127.0.0.1:8080", &web.to_string())).unwrap();
    let mut command = Command::new(&wrapper[0]);
    command.args(&wrapper[1..]).arg(program()).arg("-Ws").arg("-f").arg(&file).stderr(Stdio::null());
    let mut master = Master(command.spawn().unwrap());
    let answers = || TcpStream::connect(web).is_ok_and(|stream| ask(stream).contains("Baton is running."));
    until("it serves", answers);
    let reload = || Command::new(program()).args(["reload", "--pid", &master.0.id().to_string()]).output().unwrap();
    let output = reload();
    assert!(output.status.success(), "{}", text_of(&output));
    let first = master.worker().expect("the master has a worker");
    kill(first, Signal::SIGKILL).unwrap();
    until("another worker", || master.worker().is_some_and(|worker| worker != first));
    assert!(answers(), "who waits in the queue is served");
    kill(Pid::from_raw(master.0.id() as i32), Signal::SIGUSR1).unwrap();
    let mut ended = None;
    until("the end of the service", || {
        ended = master.0.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

fn text_of(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}
