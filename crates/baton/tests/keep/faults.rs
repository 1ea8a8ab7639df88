//! Programs that fail, hang, crash or leave something behind; and what is asked for and cannot be.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use baton_prove::FailureKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{Keep, apart, python, question};
use crate::support::clients::{under_load, web};
use crate::support::{program, until};

#[test]
fn a_new_one_that_fails_changes_nothing() {
    apart(|| {
        let keep = python(&["--ready-within", "8s"]);
        // It lives longer than the time it has, and does not wait at a socket.
        for (version, words) in [("broken", "it ended before it served (exit status: 1)"), ("hanging", "was not ready")]
        {
            fs::write(keep.path("version"), version).unwrap();
            keep.signal(Signal::SIGHUP);
            keep.says(words, 1);
            keep.says("instance 1 keeps serving", 1);
            assert_eq!(web("127.0.0.1:80"), "one");
        }
        until("what failed has ended", || keep.programs().len() == 1);
        fs::remove_file(keep.path("version")).unwrap();
        fs::write(keep.path("version"), "good").unwrap();
        keep.signal(Signal::SIGHUP);
        keep.says("serves; instance 1 drains", 1);
        keep.stop();
    });
}

#[test]
fn a_program_that_never_serves_is_told_at_once() {
    apart(|| {
        let mut keep = Keep::begin(&["--listen", ":80", "--", "sh", "-c", "exit 3"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("ended before it served (exit status: 3)", 1);
        let mut keep = Keep::begin(&["--listen", ":80", "--", "no-such-program"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("no-such-program: no such program in PATH", 1);
        let mut keep = Keep::begin(&["--listen", ":80", "--", "FOLDER/nothing"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("nothing: no such file", 1);
        let taken = TcpListener::bind("127.0.0.1:80").unwrap();
        let mut keep = Keep::begin(&["--listen", ":80", "--", "sleep", "9"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("already in use", 1);
        drop(taken);
        let mut keep = Keep::begin(&["--listen", ":80", "--listen", ":80", "--", "sleep", "9"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("is given twice", 1);
        // Its socket takes connections, and nobody answers.
        let words = ["--listen", ":80", "--probe", "/health", "--ready-within", "700ms", "--", "sleep", "60"];
        let mut keep = Keep::begin(&words, &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says(
            "was not ready within 700ms (instance 1 (http://127.0.0.1:80/health) does not respond as expected",
            1,
        );
        for probe in ["http://[bad", "http://127.0.0.1:99999/", "ftp://x"] {
            let mut keep = Keep::begin(&["--listen", ":80", "--probe", probe, "--", "sleep", "60"], &[]);
            assert!(!keep.wait().success());
            keep.says(probe, 1);
        }
    });
}

#[test]
fn who_connects_while_it_is_down_waits() {
    apart(|| {
        let keep = python(&[]);
        let result = under_load("127.0.0.1:80", || {
            for number in 2..6 {
                let pid = Pid::from_raw(keep.programs()[0]);
                kill(pid, Signal::SIGKILL).unwrap();
                keep.says(&format!("instance {number} serves"), 1);
            }
        });
        // What was in work is lost with it; nobody is refused, and no later request fails.
        let refused = result.failures.iter().filter(|failure| failure.kind == FailureKind::Refused).count();
        assert_eq!(refused, 0, "{:?}", result.failures);
        assert!(result.counts.failed() <= 10 * 4, "{:?}", result.failures);
        keep.says("restarting in", 4);
        keep.stop();
    });
}

#[test]
fn a_stop_drains_and_kills_what_does_not_end() {
    apart(|| {
        let script = "trap '' USR1; echo x > FOLDER/up; while :; do sleep 0.05; done";
        let words = ["--listen", ":80", "--ready-after", "50ms", "--max-drain", "200ms", "--", "sh", "-c", script];
        let mut keep = Keep::start(&words, &[]);
        keep.signal(Signal::SIGTERM);
        assert!(keep.wait().success());
        keep.says("did not stop in time and is killed", 1);
        assert!(TcpStream::connect("127.0.0.1:80").is_err(), "the sockets are closed");
    });
}

#[test]
fn killed_it_leaves_the_program_serving() {
    apart(|| {
        let mut keep = python(&["--export", "FOLDER/export"]);
        let programs = keep.programs();
        keep.signal(Signal::SIGKILL);
        keep.wait();
        assert_eq!(web("127.0.0.1:80"), "one");
        // The address is its own until it ends; then the next one starts, whatever file was left.
        for pid in programs {
            kill(Pid::from_raw(pid), Signal::SIGUSR1).unwrap();
        }
        until("it has ended", || TcpStream::connect("127.0.0.1:80").is_err());
        let again = python(&["--export", keep.path("export").to_str().unwrap()]);
        assert_eq!(web("127.0.0.1:80"), "one");
        again.stop();
        assert!(!keep.path("export").exists());
    });
}

#[test]
fn nobody_can_hold_up_the_export() {
    apart(|| {
        let keep = python(&["--export", "FOLDER/export"]);
        let export = keep.path("export");
        let descriptors = || fs::read_dir(format!("/proc/{}/fd", keep.pid())).unwrap().count();
        let before = descriptors();
        for wrong in [
            &b"\n"[..],
            b"get nothing\n",
            b"list now\n",
            b"\xff\xfe\n",
            b"get a b\n",
            b"GET / HTTP/1.1\r\n",
            &[b'x'; 5000],
        ] {
            let answer = question(&export, wrong);
            assert!(answer.starts_with(b"error ") || wrong.len() > 4000, "{wrong:?}: {answer:?}");
        }
        assert!(question(&export, b"\xff\xfe\n").starts_with(b"error the request is not UTF-8 text"));
        // More than are answered at a time, who say nothing, or half of something; and such as never read.
        let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&export).unwrap()).collect();
        for (mut stream, text) in silent.iter().zip([&b"ge"[..], b"_getsocks\n", b"get\n", b""].iter().cycle()) {
            let _ = stream.write_all(text);
        }
        assert!(question(&export, b"list\n").starts_with(b"ok 1\n"), "who asks is answered in the end");
        drop(silent);
        until("nothing is left of them", || descriptors() <= before);
        assert_eq!(web("127.0.0.1:80"), "one");
        keep.stop();
    });
}

#[test]
fn the_path_of_another_ones_socket_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (theirs, free) = (folder.path().join("web.sock"), folder.path().join("free.sock"));
    let _server = UnixListener::bind(&theirs).expect("the folder is ours");
    let check = |listen: &Path, export: &Path| {
        let mut keep = Command::new(program());
        keep.arg("keep").arg("--listen").arg(listen).arg("--export").arg(export).args(["--", "true"]);
        let output = keep.stdin(Stdio::null()).output().expect("the program was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("another process listens there"), "{said}");
        UnixStream::connect(&theirs).expect("it is theirs as before");
    };
    check(&theirs, &free);
    check(&free, &theirs);
}

#[test]
fn what_a_program_left_behind_is_killed_in_its_time() {
    // It ends when it is told to, and has a child that does not.
    let script =
        "(trap '' USR1; exec sleep 300) & echo $! >>FOLDER/children; trap 'exit 0' USR1; while :; do sleep 0.05; done";
    apart(|| {
        let words = ["--listen", ":80", "--ready-after", "50ms", "--max-drain", "300ms", "--", "sh", "-c", script];
        let mut keep = Keep::start(&words, &[]);
        let children = || {
            let pids = fs::read_to_string(keep.path("children")).expect("it was written");
            pids.split_ascii_whitespace().map(|pid| Pid::from_raw(pid.parse().expect("a number"))).collect::<Vec<_>>()
        };
        let is_alive = |pid: Pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
        };
        keep.signal(Signal::SIGHUP);
        keep.says("instance 2 serves; instance 1 drains", 1);
        keep.says("instance 1 did not stop in time and is killed", 1);
        until("the child of the first one is gone", || !is_alive(children()[0]));
        assert!(is_alive(children()[1]), "that is the second one's");
        // At the end, too, nothing is left, and until then the end is waited for.
        let second = children()[1];
        keep.signal(Signal::SIGTERM);
        assert!(keep.wait().success());
        assert!(!is_alive(second));
        keep.says("instance 2 did not stop in time and is killed", 1);
    });
    apart(|| {
        // Without a time for it, a second signal ends it.
        let words = ["--listen", ":80", "--ready-after", "50ms", "--", "sh", "-c", script];
        let mut keep = Keep::start(&words, &[]);
        let leader = keep.programs();
        keep.signal(Signal::SIGTERM);
        until("the program has ended", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", leader[0])).unwrap_or_default();
            stat.contains(") Z")
        });
        assert!(keep.is_running(), "it waits for what is left");
        keep.signal(Signal::SIGTERM);
        assert!(keep.wait().success());
    });
}

#[test]
fn a_limit_of_descriptors_that_is_too_low_is_told_with_its_remedy() {
    apart(|| {
        let mut told = 0;
        for limit in (6..64).step_by(3) {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]).arg(program());
            let words = ["--listen", "127.0.0.1:80", "--ready-after", "50ms", "--", "sleep", "300"];
            let mut keep = Keep::begin_with(command, Stdio::null(), &words, &[]);
            until("it serves or says why not", || keep.said().contains("serves") || !keep.is_running());
            if keep.is_running() {
                keep.stop();
                break;
            }
            assert!(!keep.wait().success());
            keep.says("ulimit -n", 1);
            told += 1;
        }
        assert!(told > 0, "none of the limits was too low");
    });
}
