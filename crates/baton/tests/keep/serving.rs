//! Programs that are started, restarted under load, and given the sockets.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{HAPROXY, HAPROXY_WORDS, Keep, PYTHON, apart, python, question, restart};
use crate::support::clients::{assert_clean, under_load, web};
use crate::support::{self, program, until};

#[test]
fn haproxy_is_restarted_under_load_and_nobody_notices() {
    apart(|| {
        let keep = Keep::start(&HAPROXY_WORDS, &[("haproxy.cfg", HAPROXY)]);
        let ours = under_load("127.0.0.1:80", || restart(&keep, 15));
        assert_clean(&ours, &keep.said());
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
        assert_clean(&result, &keep.said());
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
        assert_clean(&result, &keep.said());
        // Its master is killed, and the workers would serve on for ever with nobody to tell them.
        until("the old ones have ended", || keep.programs().len() == 1);
        kill(Pid::from_raw(keep.programs()[0]), Signal::SIGKILL).unwrap();
        keep.says("instance 7 serves", 1);
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
        keep.says("instance 2 serves; instance 1 drains", 1);
        until("only the new one answers", || keep.programs().len() == 1);
        assert_eq!(web("127.0.0.1:80"), "two");
        let socket = keep.path("app.sock");
        assert!(socket.exists());
        keep.stop();
        assert!(!socket.exists());
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
        assert_eq!(told(), "READY=1\nSTATUS=instance 1 serves");
        assert_eq!(web("127.0.0.1:80"), "one");
        let status = fs::read_to_string(format!("/proc/{}/status", keep.programs()[0])).unwrap();
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        keep.signal(Signal::SIGHUP);
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(told(), "READY=1\nSTATUS=instance 2 serves");
        let mut keep = keep;
        keep.signal(Signal::SIGTERM);
        assert_eq!(told(), "STOPPING=1");
        assert!(keep.wait().success());
    });
}

#[test]
fn a_probe_says_that_it_serves() {
    apart(|| {
        // By a command that asks the new one, whose health is a file of its number.
        let words = [
            "--listen",
            "127.0.0.1:80",
            "--probe",
            "test -e FOLDER/healthy-$BATON_KEEP_INSTANCE",
            "--ready-within",
            "20s",
        ];
        let words = [&words[..], &["--", "sleep", "300"]].concat();
        let keep = Keep::begin(&words, &[]);
        keep.says("not yet: instance 1 is not ready", 1);
        fs::write(keep.path("healthy-1"), "").unwrap();
        keep.says("instance 1 serves", 1);
        keep.signal(Signal::SIGHUP);
        keep.says("not yet: instance 2 is not ready", 1);
        assert_eq!(keep.programs().len(), 2, "the first one goes on");
        fs::write(keep.path("healthy-2"), "").unwrap();
        keep.says("instance 2 serves; instance 1 drains", 1);
        keep.stop();

        let probes = ["http://127.0.0.1:80/", "/", "tcp://127.0.0.1:80"];
        for probe in probes {
            let keep = python(&["--probe", probe]);
            assert_eq!(web("127.0.0.1:80"), "one");
            keep.stop();
        }
        let mut keep = Keep::begin(&["--listen", "FOLDER/x.sock", "--probe", "/health", "--", "sleep", "9"], &[]);
        assert!(!keep.wait().success());
        keep.says("there is no TCP address", 1);
    });
}
