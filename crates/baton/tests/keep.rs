//! `baton keep` with real programs: Debian's haproxy and nginx, and small ones in Python.
//!
//! Everything happens in a network namespace of its own, so that port 80 is nobody else's.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use baton_kernel::netns;
use baton_prove::{FailureKind, Load, LoadOptions, LoadResult};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use support::{program, until};
use tempfile::TempDir;

/// Runs `work` where ports are nobody else's, or says that it may not.
fn apart(work: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(work) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// A running `baton keep`; it and all that it started are killed when dropped.
struct Keep {
    folder: TempDir,
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Keep {
    /// `baton keep WORDS` in a folder with these files; `FOLDER` in words and files becomes its path.
    #[track_caller]
    fn start(words: &[&str], files: &[(&str, &str)]) -> Keep {
        let keep = Keep::begin(words, files);
        until("the program serves", || keep.said().contains("start 1 serves"));
        keep
    }

    #[track_caller]
    fn begin(words: &[&str], files: &[(&str, &str)]) -> Keep {
        Keep::begin_with(Command::new(program()), Stdio::null(), words, files)
    }

    /// The same by another program, and with something to read.
    #[track_caller]
    fn begin_with(mut command: Command, stdin: Stdio, words: &[&str], files: &[(&str, &str)]) -> Keep {
        let folder = tempfile::tempdir().expect("a folder for the test");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let filled = |text: &str| text.replace("FOLDER", folder.path().to_str().unwrap());
        for (name, text) in files {
            fs::write(folder.path().join(name), filled(text)).expect("the folder is ours");
        }
        command.arg("keep").args(words.iter().map(|word| filled(word)));
        let mut child =
            command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it was built");
        let said = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().expect("it was asked for");
        std::thread::spawn({
            let said = said.clone();
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.push_str(&line);
                    said.push('\n');
                }
            }
        });
        Keep { folder, child, said }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it lives until it is waited for");
    }

    /// The programs that it has started and that live.
    fn programs(&self) -> Vec<i32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id())).unwrap_or_default();
        children.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Waits until something has been said so many times.
    #[track_caller]
    fn says(&self, words: &str, times: usize) {
        until(words, || self.said().matches(words).count() >= times);
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// SIGTERM, and nothing is left.
    #[track_caller]
    fn stop(mut self) {
        let programs = self.programs();
        self.signal(Signal::SIGTERM);
        assert!(self.wait().success(), "{}", self.said());
        for pid in programs {
            assert!(kill(Pid::from_raw(pid), None).is_err(), "the program {pid} is left");
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        for pid in self.programs() {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

/// What is answered at an address; empty when nothing.
fn ask(mut stream: impl Read + Write) -> String {
    let mut answer = String::new();
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let _ = stream.read_to_string(&mut answer);
    answer.rsplit("\r\n").next().unwrap_or_default().trim().to_owned()
}

fn web(address: &str) -> String {
    ask(TcpStream::connect(address).expect("nobody is refused"))
}

/// Requests of ten clients, a connection each, while `work` goes on.
fn under_load(address: &str, work: impl FnOnce()) -> LoadResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let target: SocketAddr = address.parse().unwrap();
    let options = LoadOptions { keep_alive: false, concurrency: 10, ..LoadOptions::new(target) };
    let load = runtime.block_on(async { Load::start(options).unwrap() });
    work();
    runtime.block_on(load.stop())
}

#[track_caller]
fn assert_clean(result: &LoadResult, keep: &Keep) {
    assert_eq!(result.counts.failed(), 0, "{:?} {:?}\n{}", result.failures, result.errors, keep.said());
    assert!(result.counts.completed > 100, "only {} requests", result.counts.completed);
}

const HAPROXY: &str = "global\n nbthread 2\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server \
                       5s\nfrontend f\n bind \"fd@${BATON_FD_80}\"\n http-request return status 200 content-type \
                       text/plain string haproxy\n";

/// A server in Python that takes its socket as systemd's convention has it, and says who it is.
const PYTHON: &str = r#"
import os, signal, socket, sys
assert os.environ['LISTEN_PID'] == str(os.getpid())
count = int(os.environ['LISTEN_FDS'])
names = os.environ['LISTEN_FDNAMES'].split(':')
listeners = {name: socket.socket(fileno=3 + at) for at, name in enumerate(names)}
assert len(names) == count and all(int(os.environ['BATON_FD_' + name.upper()]) == listeners[name].fileno() for name in names)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
version = open(sys.argv[1]).read().strip()
if version == 'broken':
    sys.exit('the new one is broken')
if version == 'hanging':
    signal.pause()
while True:
    stream, _ = listeners['web'].accept()
    with stream:
        asked = stream.recv(1000)
        if b'crash' in asked:
            os.abort()
        stream.sendall(b'HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n' + version.encode())
"#;

const HAPROXY_WORDS: [&str; 7] = ["--listen", "127.0.0.1:80", "--", "haproxy", "-db", "-f", "FOLDER/haproxy.cfg"];
const PYTHON_WORDS: [&str; 6] = ["--listen", "web=127.0.0.1:80", "--", "python3", "FOLDER/server.py", "FOLDER/version"];

/// A `baton keep` of the server in Python, with words before its own.
fn python(words: &[&str]) -> Keep {
    Keep::start(&[words, &PYTHON_WORDS].concat(), &[("server.py", PYTHON), ("version", "one")])
}

/// Restarts it so many times, one right after the other.
#[track_caller]
fn restart(keep: &Keep, times: usize) {
    for number in 2..2 + times {
        keep.signal(Signal::SIGHUP);
        keep.says(&format!("start {number} serves; start {} drains", number - 1), 1);
    }
}

#[test]
fn haproxy_is_restarted_under_load_and_nobody_notices() {
    apart(|| {
        let keep = Keep::start(&HAPROXY_WORDS, &[("haproxy.cfg", HAPROXY)]);
        let ours = under_load("127.0.0.1:80", || restart(&keep, 15));
        assert_clean(&ours, &keep);
        until("the old ones have ended", || keep.programs().len() == 1);
        keep.stop();

        let keep = Keep::start(&HAPROXY_WORDS, &[("haproxy.cfg", HAPROXY)]);
        let mut ab = Command::new("ab");
        ab.args(["-r", "-q", "-c", "10", "-n", "20000", "http://127.0.0.1:80/"]).stderr(Stdio::null());
        let ab = ab.stdout(Stdio::piped()).spawn().expect("ab is there, see scripts/setup");
        restart(&keep, 10);
        let said = String::from_utf8(ab.wait_with_output().unwrap().stdout).unwrap();
        assert!(said.lines().any(|line| line.starts_with("Failed requests:") && line.ends_with(" 0")), "{said}");
        assert!(said.contains("Complete requests:      20000"), "{said}");
        keep.stop();
    });
}

#[test]
fn a_master_of_haproxy_says_that_it_serves() {
    apart(|| {
        let words =
            ["--ready", "notify", "--listen", "127.0.0.1:80", "--", "haproxy", "-Ws", "-f", "FOLDER/haproxy.cfg"];
        let keep = Keep::start(&words, &[("haproxy.cfg", HAPROXY)]);
        let result = under_load("127.0.0.1:80", || restart(&keep, 3));
        assert_clean(&result, &keep);
        keep.stop();
    });
}

#[test]
fn nginx_takes_the_sockets() {
    apart(|| {
        let config = "daemon off; pid FOLDER/pid; error_log FOLDER/log; worker_processes 2; events { }\nhttp { access_log \
                      off; client_body_temp_path FOLDER/b; proxy_temp_path FOLDER/p; fastcgi_temp_path FOLDER/f; \
                      uwsgi_temp_path FOLDER/u; scgi_temp_path FOLDER/s; server { listen 127.0.0.1:80; location / { \
                      return 200 nginx; } } }\n";
        let words = "--for nginx --drain-signal QUIT --listen 127.0.0.1:80 -- nginx -e FOLDER/log -c FOLDER/nginx.conf";
        let words: Vec<&str> = words.split(' ').collect();
        let keep = Keep::start(&words, &[("nginx.conf", config)]);
        assert_eq!(web("127.0.0.1:80"), "nginx");
        let result = under_load("127.0.0.1:80", || restart(&keep, 5));
        assert_clean(&result, &keep);
        // Its master is killed, and the workers would serve on for ever with nobody to tell them.
        until("the old ones have ended", || keep.programs().len() == 1);
        kill(Pid::from_raw(keep.programs()[0]), Signal::SIGKILL).unwrap();
        keep.says("start 7 serves", 1);
        assert_eq!(web("127.0.0.1:80"), "nginx");
        keep.stop();
        until("no worker is left", || TcpStream::connect("127.0.0.1:80").is_err());
    });
}

#[test]
fn the_convention_is_kept_and_the_new_one_comes_first() {
    apart(|| {
        let keep = python(&["--listen", "FOLDER/app.sock", "--listen", "[::1]:80"]);
        assert_eq!(web("127.0.0.1:80"), "one");
        fs::write(keep.path("version"), "two").unwrap();
        keep.signal(Signal::SIGHUP);
        keep.says("start 2 serves; start 1 drains", 1);
        until("only the new one answers", || keep.programs().len() == 1);
        assert_eq!(web("127.0.0.1:80"), "two");
        let socket = keep.path("app.sock");
        assert!(socket.exists());
        keep.stop();
        assert!(!socket.exists());
    });
}

#[test]
fn a_new_one_that_fails_changes_nothing() {
    apart(|| {
        let keep = python(&["--ready-within", "8s"]);
        // It lives longer than the time it has, and does not wait at a socket.
        for (version, words) in [("broken", "it ended before it served (exit status: 1)"), ("hanging", "did not serve")]
        {
            fs::write(keep.path("version"), version).unwrap();
            keep.signal(Signal::SIGHUP);
            keep.says(words, 1);
            keep.says("start 1 goes on", 1);
            assert_eq!(web("127.0.0.1:80"), "one");
        }
        until("what failed has ended", || keep.programs().len() == 1);
        fs::remove_file(keep.path("version")).unwrap();
        fs::write(keep.path("version"), "good").unwrap();
        keep.signal(Signal::SIGHUP);
        keep.says("serves; start 1 drains", 1);
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
        keep.says("no-such-program: entity not found", 1);
        let taken = TcpListener::bind("127.0.0.1:80").unwrap();
        let mut keep = Keep::begin(&["--listen", ":80", "--", "sleep", "9"], &[]);
        assert_eq!(keep.wait().code(), Some(1));
        keep.says("already in use", 1);
        drop(taken);
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
                keep.says(&format!("start {number} serves"), 1);
            }
        });
        // What was in work is lost with it; nobody is refused, and no later request fails.
        let refused = result.failures.iter().filter(|failure| failure.kind == FailureKind::Refused).count();
        assert_eq!(refused, 0, "{:?}", result.failures);
        assert!(result.counts.failed() <= 10 * 4, "{:?}", result.failures);
        keep.says("started again in", 4);
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
        keep.says("has not ended in its time and is killed", 1);
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
fn sockets_go_to_haproxy_and_to_others_that_ask() {
    apart(|| {
        let words = ["--export", "FOLDER/export", "--listen", ":81", "--listen", "FOLDER/app.sock"];
        let keep = python(&words);
        let export = keep.path("export");
        assert_eq!(export.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let list = "ok 3\n81 0.0.0.0:81\napp FOLDER/app.sock\nweb 127.0.0.1:80\n"
            .replace("FOLDER", keep.folder.path().to_str().unwrap());
        assert_eq!(question(&export, b"list\n"), list.as_bytes());

        // haproxy cannot bind the address, and does not: it takes the sockets.
        let config = "defaults\n mode http\n timeout client 5s\nfrontend f\n bind :81\n http-request return status 200 \
                      content-type text/plain string haproxy\n";
        fs::write(keep.path("x.cfg"), config).unwrap();
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-db").arg("-f").arg(keep.path("x.cfg")).arg("-x").arg(&export).stderr(Stdio::null());
        let mut haproxy = haproxy.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(web("127.0.0.1:81"), "haproxy");
        let _ = kill(Pid::from_raw(haproxy.id() as i32), Signal::SIGTERM);
        haproxy.wait().unwrap();

        let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(b'get 81\\n')\n\
                      text, fds, _, _ = socket.recv_fds(s, 65536, 253)\nassert text == b'ok 1\\n81 0.0.0.0:81\\n', text\n\
                      l = socket.socket(fileno=fds[0])\nl.setblocking(True)\nc, _ = l.accept()\nc.recv(1000)\n\
                      c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\npython')\n";
        let mut other = Command::new("python3").args(["-c", script]).arg(&export).spawn().unwrap();
        assert_eq!(web("127.0.0.1:81"), "python");
        assert!(other.wait().unwrap().success());
        assert_eq!(web("127.0.0.1:80"), "one", "and the program has them still");
        keep.stop();
        assert!(!export.exists());
    });
}

/// The answer to some bytes.
fn question(export: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(export).expect("somebody listens");
    // Who is refused early cannot write all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
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
fn it_is_a_service_of_systemd() {
    apart(|| {
        let folder = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let told = || {
            let mut bytes = [0; 1000];
            let length = manager.recv(&mut bytes).expect("something is told");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        // A socket of its own from the manager, and one that it opens itself.
        let listener = TcpListener::bind("127.0.0.1:80").unwrap();
        let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program());
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web").env("NOTIFY_SOCKET", folder.path().join("notify"));
        let words = ["--user", "65534:65534", "--listen", ":81", "--", "python3", "FOLDER/server.py", "FOLDER/version"];
        let files = [("server.py", PYTHON), ("version", "one")];
        let keep = Keep::begin_with(command, listener.as_fd().try_clone_to_owned().unwrap().into(), &words, &files);
        drop(listener);
        assert_eq!(told(), "READY=1\nSTATUS=start 1 serves");
        assert_eq!(web("127.0.0.1:80"), "one");
        let status = fs::read_to_string(format!("/proc/{}/status", keep.programs()[0])).unwrap();
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        keep.signal(Signal::SIGHUP);
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(told(), "READY=1\nSTATUS=start 2 serves");
        let mut keep = keep;
        keep.signal(Signal::SIGTERM);
        assert_eq!(told(), "STOPPING=1");
        assert!(keep.wait().success());
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
