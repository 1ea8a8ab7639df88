//! Lines, prompts, levels: what is typed and what comes back, character by character as from HAProxy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::peers::{Both, socat, socat_at};
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, free_address, until};

/// A process with a socket of each level and nothing to do.
fn config(folder: &Path) -> String {
    let (folder, web) = (folder.display(), free_address());
    format!(
        "global\n nbthread 2\n stats timeout 20s\n stats socket {folder}/admin.sock mode 600 level admin\n \
         stats socket {folder}/operator.sock level operator severity-output number\n \
         stats socket {folder}/user.sock level user severity-output string\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n default_backend app\n\
         backend app\n server a 127.0.0.1:9 weight 10\n server b 127.0.0.1:9\n"
    )
}

/// Versions differ, and of lists of commands only the beginning is compared: which commands there are, and which of them look
/// like what was typed, is each program's own.
fn normal(text: &str) -> String {
    let line = |line: &str| match line.split_once("Unknown command") {
        Some((before, _)) => format!("{before}Unknown command"),
        None if line.contains("2.6.12-") => "VERSION".into(),
        None if line.starts_with("unix@") => line.rsplit_once('/').map_or("", |(_, name)| name).into(),
        None => line.to_owned(),
    };
    text.lines().filter(|line| !line.starts_with("  ")).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn conversations_are_those_of_haproxy() {
    let both = Both::start(config);
    let check = |socket: &str, input: &str| {
        let (found, expected) = (socat(&both.baton(socket), input), socat(&both.haproxy(socket), input));
        assert_eq!(normal(&found), normal(&expected), "{socket}: {input:?}");
    };
    for input in [
        "show version\n",
        "  show \t version  \r\n",
        "show version;show version\n",
        "show version; ;show version\n",
        "show version\nshow version\n",
        "show version",
        "\n",
        "foo bar\n",
        "show\n",
        "SHOW version\n",
        r"show version \; foo",
        "help\n",
        "help show\n",
        "quit\n",
        "quit;show version\n",
        "prompt\n",
        "prompt\nshow version\nquit\nshow version\n",
        "prompt\nshow version;show version\nprompt\nshow version\n",
        "prompt;show version\n",
        "prompt\nprompt;show version\n",
        "prompt\n\nquit\n",
        "show version <<\nsome\npayload\n\n",
        "prompt\nshow version <<\nsome\npayload\n\nquit\n",
        "show version <<\nno end\n",
        "show version<<\nfoo\n\n",
        "@1 show version\n",
        "show cli level;operator;show cli level;user;show cli level;operator;show cli level\n",
        "set severity-output number;show cli level;set severity-output string;show cli level\n",
        "set severity-output\n",
        "set severity-output foo\n",
        "set timeout cli 3s;set timeout cli 0;set timeout cli x;set timeout cli;set timeout\n",
        "expert-mode;expert-mode on;expert-mode;expert-mode off;expert-mode;expert-mode foo;expert-mode\n",
        "experimental-mode;experimental-mode on;experimental-mode;user;experimental-mode\n",
        "show stat nope 1 1\n",
        "show stat domain foo\n",
        "show stat -1 4 99\n",
        "_getsocks\n",
        "show cli sockets;show backend\n",
        "show env HOME;show env NO_SUCH_NAME\n",
        "show errors nope;clear;show startup-logs\n",
        "get weight app/a;get weight app/#2;get weight #3/b;get weight app;get weight;get weight app/zz;get weight x/a\n",
        "show servers state nope;show servers conn nope\n",
        "set weight app/a 5;get weight app/a;set weight app/#1 50%;get weight app/a;set weight app/a 2570%;get weight app/a\n",
        "set weight app/a 257;set weight app/a -1;set weight app/a;set weight app;set weight;set weight app/zz 1;get weight app/a\n",
        "set server app/a weight 100%;get weight app/a;set server app/a weight;set server app/a weight 300\n",
        "set server app/a state;set server app/a state foo;set server zz/a state maint;set server app/zz state maint\n",
        "set server app;set server;set server app/#2 state drain;set server app/b state maint;set server app/b state ready\n",
        "disable server app/b;enable server app/b;disable server app;disable server;enable server zz/b;enable server\n",
    ] {
        for socket in ["admin.sock", "operator.sock", "user.sock"] {
            check(socket, input);
        }
    }
}

/// Servers that come and go: what is refused, and in which words.
#[test]
fn servers_are_added_and_deleted_in_the_words_of_haproxy() {
    let both = Both::start(|folder| {
        let backend = |name: &str, balance: &str| {
            format!(
                "backend {name}\n balance {balance}\n server s1 127.0.0.1:9\n server s2 127.0.0.1:9 check inter 1h\n"
            )
        };
        let backends =
            [("rr", "roundrobin"), ("fix", "static-rr"), ("map", "source"), ("rnd", "random"), ("first", "first")];
        let backends: String = backends.iter().map(|(name, balance)| backend(name, balance)).collect();
        let ring = backend("ring", "source\n hash-type consistent")
            + "backend use\n use-server s1 if { path /x }\n server s1 127.0.0.1:9\n";
        config(folder) + &backends + &ring
    });
    let commands = [
        "add server",
        "add server rr",
        "add server rr/",
        "add server /x",
        "add server no/x 127.0.0.1:2",
        "add server rr/s1 127.0.0.1:2",
        "add server rr/n1",
        "add server rr/n1 127.0.0.1:2",
        "add server rr/n1 127.0.0.1:2",
        "add server fix/n1 127.0.0.1:2",
        "add server map/n1 127.0.0.1:2",
        "add server ring/n1 127.0.0.1:2",
        "add server rnd/n1 127.0.0.1:2",
        "add server first/n1 127.0.0.1:2",
        "add server rr/n2 127.0.0.1:2 cookie a",
        "add server rr/n2 127.0.0.1:2 redir http://x",
        "add server rr/n2 127.0.0.1:2 init-addr last",
        "add server rr/n2 127.0.0.1:2 tcp-ut 10",
        "add server rr/n2 127.0.0.1:2 max-reuse 10",
        "add server rr/n2 127.0.0.1:2 stick",
        "add server rr/n2 127.0.0.1:2 id 50",
        "add server rr/n3 127.0.0.1:2 track n1",
        "add server rr/n3 127.0.0.1:2 track no",
        "add server rr/n3 127.0.0.1:2 track no/no",
        "add server rr/n3 127.0.0.1:2 track s1",
        "add server rr/n3 127.0.0.1:2 check track s2",
        "add server rr/n3 127.0.0.1:2 track s2",
        "add server rr/n@ 127.0.0.1:2",
        "add server rr/n4 127.0.0.1:2 check",
        "add server rr/n5 127.0.0.1:2 backup weight 7 maxconn 4 minconn 2 maxqueue 5 slowstart 5s",
        "add server rr/n6 127.0.0.1:2 ssl verify none sni str(x)",
        "add server rr/n7 nowhere.invalid:80",
        "enable health",
        "enable health rr",
        "enable health no/x",
        "enable health rr/zz",
        "enable health rr/n1",
        "enable health rr/n4",
        "disable health rr/n4",
        "disable health rr/s2",
        "enable health rr/s2",
        "get weight rr/n5",
        "enable server rr/n1",
        "del server rr/n1",
        "disable server rr/n1",
        "del server rr/n1",
        "del server rr/n1",
        "del server",
        "del server rr",
        "del server no/x",
        "del server rr/s1",
        "disable server rr/s2",
        "del server rr/s2",
        "disable server use/s1",
        "del server use/s1",
        "disable server rr/s1",
        "del server rr/s1",
        "del server rr/n3",
        "del server rr/n4",
        "del server rr/n6",
    ];
    let mut different = Vec::new();
    for command in commands {
        let input = format!("{command}\n");
        let said = [both.baton("admin.sock"), both.haproxy("admin.sock")].map(|socket| normal(&socat(&socket, &input)));
        if said[0].trim_end() != said[1].trim_end() {
            different.push((command, said));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    let id = |text: String| -> Vec<String> {
        let rows = text.lines().filter(|line| line.contains(" rr ")).map(|line| line.split(' ').skip(2).take(4));
        rows.map(|columns| columns.collect::<Vec<_>>().join(" ")).collect()
    };
    let state = "show servers state rr\n";
    assert_eq!(id(socat(&both.baton("admin.sock"), state)), id(socat(&both.haproxy("admin.sock"), state)));
    for command in ["add server rr/x 127.0.0.1:2", "del server rr/n5", "enable health rr/n5"] {
        let input = format!("{command}\n");
        let (found, expected) = (socat(&both.baton("user.sock"), &input), socat(&both.haproxy("user.sock"), &input));
        assert_eq!(normal(&found), normal(&expected), "{command}");
    }
}

#[test]
fn sockets_of_every_family_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (inet, name) = (free_address(), format!("baton-test-{}", std::process::id()));
    let text =
        config(folder.path()) + &format!("global\n stats socket ipv4@{inet} level user\n stats socket abns@{name}\n");
    let proxy = Proxy::start(&text);
    for address in [format!("TCP:{inet}"), format!("ABSTRACT-CONNECT:{name},unix-tightsocklen=0")] {
        let answer = socat_at(&address, "show info\n");
        assert!(answer.contains(&format!("Pid: {}\n", proxy.pid())), "{address}: {answer}");
    }
}

#[test]
fn haproxy_takes_the_sockets_by_a_socket_that_exposes_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = config(folder.path()).replace("level operator", "level operator expose-fd listeners");
    let proxy = Proxy::start(&text);
    assert_eq!(socat(&folder.path().join("admin.sock"), "_getsocks\n"), "", "it does not expose them");
    // Debian's program binds nothing itself: it would say that the address is in use, by a process that shares it with nobody.
    let socket = folder.path().join("operator.sock");
    let taker = Haproxy::start_with(&text, &folder.path().join("user.sock"), &["-x".as_ref(), socket.as_ref()]);
    let name = |answer: String| answer.lines().find_map(|line| line.strip_prefix("Name: ").map(str::to_owned));
    until("haproxy answers", || {
        name(socat(&folder.path().join("user.sock"), "show info\n")).as_deref() == Some("HAProxy")
    });
    drop((taker, proxy));
}

#[test]
fn a_reload_changes_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let first = config(folder.path());
    let (old, new) = (folder.path().join("user.sock"), folder.path().join("new.sock"));
    let proxy = Proxy::start(&first);
    let outcome = proxy.change(&first.replace("user.sock level user", "new.sock level admin"));
    assert!(outcome.plan.changes.iter().any(|change| change.change.contains("stats socket")), "{:?}", outcome.plan);
    assert_eq!(socat(&new, "show cli level\n"), "[info]: admin\n\n");
    assert!(!old.exists(), "the path of a removed socket is gone");
    proxy.change(&first.replace("mode 600 level admin", "mode 600 level operator"));
    assert_eq!(socat(&folder.path().join("admin.sock"), "show cli level\n"), "operator\n\n");
    let taken = proxy.change_refused(&first.replace("stats socket", "stats socket 203.0.113.9:7\n stats socket"));
    assert!(taken.contains("stats socket: cannot listen on"), "{taken}");
    assert_eq!(
        socat(&folder.path().join("admin.sock"), "show cli level\n"),
        "operator\n\n",
        "a refusal changes nothing"
    );
}

#[test]
fn reloads_lose_no_question() {
    let (folder, inet) = (tempfile::tempdir().unwrap(), free_address());
    let text = config(folder.path()) + &format!("global\n stats socket {inet}\n stats maxconn 50\n");
    let proxy = Proxy::start(&text);
    let other = text
        .replace("mode 600 level admin", "mode 660 level operator backlog 20")
        .replace("user.sock level user", "other.sock level user")
        .replace("stats maxconn 50", "stats maxconn 40");
    let is_over = AtomicBool::new(false);
    let path = folder.path().join("admin.sock");
    let asked = std::thread::scope(|scope| {
        let unix = scope.spawn(|| ask(&is_over, || question(UnixStream::connect(&path)?)));
        let tcp = scope.spawn(|| ask(&is_over, || question(TcpStream::connect(inet)?)));
        for number in 0..40 {
            proxy.change(if number % 2 == 0 { &other } else { &text });
        }
        is_over.store(true, Ordering::Relaxed);
        (unix.join().expect("no question was lost"), tcp.join().expect("no question was lost"))
    });
    assert!(asked.0 > 0 && asked.1 > 0, "{asked:?}");
    assert_eq!(proxy.status().generation, 41);
}

/// Asks until told to stop; how often that was.
fn ask(is_over: &AtomicBool, question: impl Fn() -> std::io::Result<String>) -> u32 {
    let mut asked = 0;
    while !is_over.load(Ordering::Relaxed) {
        let answer = question().expect("an answer");
        assert!(answer.starts_with("2.6.") && answer.ends_with("\n\n"), "{answer:?}");
        asked += 1;
    }
    asked
}

fn question(mut stream: impl Read + Write) -> std::io::Result<String> {
    stream.write_all(b"show version\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
