//! Files that are none, and files that do not come: a reload that cannot read is refused, and holds up nothing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

use super::{assert_served, config, free_address, origin};
use crate::support::{Proxy, until};

/// A reload reads regular files: what names a pipe is refused with the name and the reason, wherever it is named, and the next
/// reload goes on as if nothing had been.
#[test]
fn a_pipe_is_refused_wherever_a_file_is_named() {
    let origin = origin();
    let web = free_address();
    let good = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&good);
    let folder = proxy.folder.path();
    let fifo = folder.join("pipe.pem");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    std::fs::write(folder.join("one.list"), format!("{}\n", fifo.display())).unwrap();
    let fifo = fifo.display();
    let in_front = |line: &str| good.replace(" default_backend", &format!(" {line}\n default_backend"));
    let at_bind = |words: &str| good.replace(&format!("bind {web}"), &format!("bind {web} ssl {words}"));
    let at_server = |words: &str| {
        good.replace("server s1 ", "server s0 127.0.0.1:9 ssl WORDS\n server s1 ").replace("WORDS", words)
    };
    let dir = folder.display();
    let cases = [
        in_front(&format!("acl all src -f {fifo}")),
        in_front(&format!("http-request deny if {{ path -f {fifo} }}")),
        in_front(&format!("errorfile 503 {fifo}")),
        in_front(&format!("http-request return status 200 content-type text/plain file {fifo}")),
        in_front(&format!("http-request return status 200 content-type text/plain lf-file {fifo}")),
        at_bind(&format!("crt {fifo}")),
        at_bind(&format!("crt-list {fifo}")),
        at_bind(&format!("crt-list {dir}/one.list")),
        at_bind(&format!("crt {fifo} ca-file {fifo} verify required")),
        at_bind(&format!("strict-sni tls-ticket-keys {fifo} crt {dir}/none")),
        at_server(&format!("ca-file {fifo}")),
        at_server(&format!("verify none crt {fifo}")),
    ];
    for text in cases {
        let reasons = proxy.change_refused(&text);
        let line = text.lines().find(|line| line.contains(&*dir.to_string())).unwrap_or_default();
        assert!(reasons.contains("pipe.pem"), "{line}: the file is not named: {reasons}");
        assert!(["a pipe", "not a regular file"].iter().any(|reason| reasons.contains(reason)), "{line}: {reasons}");
        assert_served(web);
    }
    // The file of the configuration itself.
    std::fs::remove_file(&proxy.config).unwrap();
    nix::unistd::mkfifo(&proxy.config, Mode::S_IRWXU).unwrap();
    let outcome = proxy.reload();
    let said: String = outcome.messages.iter().map(|message| &*message.rendered).collect();
    assert!(!outcome.accepted && said.contains("test.cfg") && said.contains("a pipe"), "{said}");
    proxy.change(&in_front("errorfile 503 /dev/null"));
    assert_served(web);
}

/// Another process holds a lease on a file: whoever opens it waits, as with a file system that does not respond. Says when
/// somebody does.
struct Leased {
    holder: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Leased {
    /// `None` where the file system has no leases.
    fn hold(path: &Path) -> Option<Leased> {
        const SCRIPT: &str = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, lambda *_: os.write(1, b'asked\\n'))\n\
            file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n\
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            os.write(1, b'held\\n')\n\
            signal.alarm(100)\n\
            while True: signal.pause()\n";
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("python3 is installed");
        let said = BufReader::new(holder.stdout.take().expect("it is piped"));
        let mut leased = Leased { holder, said };
        leased.hears("held\n").then_some(leased)
    }

    fn hears(&mut self, word: &str) -> bool {
        let mut line = String::new();
        self.said.read_line(&mut line).is_ok() && line == word
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A file that cannot be opened holds up neither a newer reload, nor a successor, nor the graceful stop.
#[test]
fn a_reload_that_waits_for_a_file_is_overtaken() {
    let origin = origin();
    let web = free_address();
    let text = |more: &str| config(&[web.to_string()], origin.address(), more);
    let proxy = Proxy::start(&text(""));
    let path = |name: &str| proxy.folder.path().join(name);
    let stuck = |name: &str| {
        let leased = Leased::hold(&path(name));
        leased.map(|leased| (leased, text(&format!(" acl all src -f {}\n", path(name).display()))))
    };
    let Some((mut first, with_first)) = stuck("first.list") else {
        eprintln!("SKIPPED: the file system of the temporary directory has no leases");
        return;
    };
    proxy.write(&with_first);
    let older = std::thread::scope(|scope| {
        let older = scope.spawn(|| proxy.reload());
        assert!(first.hears("asked\n"), "the file is opened");
        let newer = proxy.change(&text(" http-response set-header X-New yes\n"));
        assert_eq!(newer.generation, 2);
        older.join().unwrap()
    });
    let said: String = older.messages.iter().map(|message| &*message.rendered).collect();
    assert!(!older.accepted && said.contains("first.list") && said.contains("superseded"), "{said}");
    assert_served(web);

    let (mut second, with_second) = stuck("second.list").unwrap();
    proxy.write(&with_second);
    proxy.signal(Signal::SIGUSR2);
    assert!(second.hears("asked\n"));
    proxy.write(&text(""));
    let successor = proxy.replace(&[]);
    until("the old process has ended", || proxy.has_ended());
    assert_served(web);

    let (mut third, with_third) = stuck("third.list").unwrap();
    proxy.write(&with_third);
    successor.signal(Signal::SIGUSR2);
    assert!(third.hears("asked\n"));
    successor.signal(Signal::SIGUSR1);
    let (status, said) = successor.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    let (status, said) = proxy.wait();
    assert_eq!(status.code(), Some(0), "{said}");
}

/// What a shell substitutes is a pipe: read once, at the start, also where it is named twice.
#[test]
fn a_start_reads_pipes() {
    let origin = origin();
    let web = free_address();
    let text = config(&[web.to_string()], origin.address(), " http-request deny unless { src -f LIST }\n");
    let proxy = Proxy::start(&config(&[free_address().to_string()], origin.address(), ""));
    let at = proxy.folder.path();
    std::fs::write(at.join("rules.txt"), &text).unwrap();
    let script = format!(
        "exec {} -db -f <(sed \"s,LIST,$0,\" {}/rules.txt) 3< <(echo 127.0.0.1)",
        crate::support::program().display(),
        at.display()
    );
    let mut started = Command::new("timeout");
    started.args(["100", "bash", "-c", &script, "/dev/fd/3"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut started = started.spawn().unwrap();
    let is_over = |started: &mut Child| started.try_wait().unwrap().is_some();
    until("it serves", || std::net::TcpStream::connect(web).is_ok() || is_over(&mut started));
    let is_serving = started.try_wait().unwrap().is_none();
    if is_serving {
        assert_served(web);
    }
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(started.id() as i32), Signal::SIGTERM);
    let mut said = String::new();
    started.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    started.wait().unwrap();
    assert!(is_serving, "{said}");
}
