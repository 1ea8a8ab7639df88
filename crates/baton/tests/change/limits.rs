//! Limits and closed frontends are overrides as well: they are listed and saved, outlive a reload, a crash and a takeover, and end with the file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Proxy, free_address, until};

fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

#[test]
fn limits_and_closed_frontends_outlive_processes_and_end_with_the_file() {
    let (folder, web, other) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    let socket = folder.path().join("admin.sock");
    let text = format!(
        "global\n maxconn 100\n stats socket {} level admin\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n \
         timeout server 5s\nfrontend web\n maxconn 10\n bind {web}\n http-request return status 200\n\
         frontend other\n bind {other}\n http-request return status 200\n",
        socket.display()
    );
    let proxy = Proxy::start_with(&text, &["-W"]);
    let command = |line: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        writeln!(stream, "{line}").expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it replies");
        reply
    };
    let commands = [
        "set maxconn frontend web 3",
        "set maxconn global 50",
        "set rate-limit connections global 70",
        "set rate-limit sessions global 80",
        "set rate-limit ssl-sessions global 90",
        "disable frontend other",
    ];
    commands.iter().for_each(|line| assert_eq!(command(line), "\n", "{line}"));
    let set = |command: &dyn Fn(&str) -> String| -> Vec<String> {
        let shown = command("show overrides");
        let lines = shown.lines().filter(|line| !line.is_empty());
        lines.map(|line| line.split(" by ").next().unwrap_or_default().to_owned()).collect()
    };
    let all = [
        "global maxconn 50 (file: 100)",
        "global maxconnrate 70 (file: 0)",
        "global maxsessrate 80 (file: 0)",
        "global maxsslrate 90 (file: 0)",
        "frontend other service disabled (file: enabled)",
        "frontend web maxconn 3 (file: 10)",
    ];
    let check = |what: &str, expect: &[&str]| {
        let mut found = set(&command);
        found.sort();
        let mut expect = expect.to_vec();
        expect.sort_unstable();
        assert_eq!(found, expect, "{what}");
        assert!(command("show info").contains("\nConnRateLimit: 70\n"), "{what}");
        assert!(command("show info").contains("\nMaxconn: 50\n"), "{what}");
        assert_eq!(is_open(other), expect.iter().all(|line| !line.contains("service")), "{what}");
        assert!(is_open(web), "{what}");
    };
    check("as they were set", &all);
    proxy.change(&text.replace("global\n", "global\n description x\n"));
    check("after a reload", &all);

    let pid = |proxy: &Proxy| match ask(Whom::Pid(proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => status.pid,
        _ => 0,
    };
    let before = pid(&proxy);
    kill(Pid::from_raw(before as i32), Signal::SIGKILL).expect("the worker lives");
    until("another worker serves", || ![0, before].contains(&pid(&proxy)) && UnixStream::connect(&socket).is_ok());
    check("after a crash", &all);

    let next = proxy.replace(&[]);
    until("the processes before have ended", || pid(&proxy) == 0);
    check("after a takeover", &all);

    let saved = command("save overrides");
    for lines in [
        "\nglobal\n",
        "    maxconn 50\n",
        "\nfrontend web\n",
        "    maxconn 3\n",
        "    maxsessrate 80\n",
        "    disabled\n",
    ] {
        assert!(saved.contains(lines), "{lines}: {saved}");
    }
    let outcome = next.change(&text.replace("maxconn 10\n", "maxconn 11\n"));
    let ends: Vec<_> = outcome.plan.overrides.iter().filter(|one| one.ends.is_some()).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    check("after a reload that has another limit", &all[..5]);
    assert_eq!(command("clear overrides other"), "\n");
    check("after one was cleared", &all[..4]);
    next.change(&text.replace("global\n", "global\n maxsessrate 80\n"));
    assert!(!set(&command).iter().any(|line| line.contains("maxsessrate")), "the file says it now");
    assert_eq!(command("clear overrides"), "\n");
    let info = command("show info");
    assert!(info.contains("\nMaxconn: 100\n") && info.contains("\nSessRateLimit: 80\n"), "{info}");
}
