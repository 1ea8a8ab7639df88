//! `ring` sections: log lines on their way to syslog servers over TCP, and `show events`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};

fn config(folder: &Path, web: SocketAddr, ring: &str) -> String {
    format!(
        "global\n nbthread 2\n stats socket {}/admin.sock level admin\n stats socket {}/user.sock level user\n stats timeout 20s\n\
         ring syslog\n description \"The log host\"\n{ring}\
         defaults\n mode http\n log ring@syslog local0\n option httplog\n timeout connect 5s\n timeout client 30s\n timeout server 5s\n\
         frontend web\n bind {web}\n http-request return status 200\n",
        folder.display(),
        folder.display()
    )
}

fn ask(web: SocketAddr, path: &str) {
    let url = format!("http://{web}{path}");
    let out = Command::new("curl").args(["-s", "-f", "-m", "20", &url]).output().expect("curl");
    assert!(out.status.success(), "{url}: {out:?}");
}

fn accept(listener: &TcpListener) -> BufReader<TcpStream> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

/// A line with its length in front.
fn counted_line(stream: &mut impl BufRead) -> String {
    let mut length = Vec::new();
    stream.read_until(b' ', &mut length).unwrap();
    let length: usize = String::from_utf8(length).unwrap().trim().parse().expect("a length");
    let mut line = vec![0; length];
    stream.read_exact(&mut line).unwrap();
    String::from_utf8(line).unwrap()
}

#[test]
fn lines_go_to_every_server_and_over_a_new_connection_when_one_ends() {
    let [counted, plain] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let place = |listener: &TcpListener| listener.local_addr().unwrap();
    let (folder, web) = (tempfile::tempdir().unwrap(), free_address());
    let ring = format!(
        " format rfc5424\n maxlen 250\n size 65536\n server a {} log-proto octet-count\n server b {}\n",
        place(&counted),
        place(&plain)
    );
    let proxy = Proxy::start(&config(folder.path(), web, &ring));
    let (mut first, mut second) = (accept(&counted), accept(&plain));
    ask(web, "/one");
    let long = format!("/{}", "x".repeat(200));
    ask(web, &long);
    let (one, cut) = (counted_line(&mut first), counted_line(&mut first));
    assert!(
        one.starts_with("<134>1 2") && one.contains(" haproxy ") && one.ends_with("\"GET /one HTTP/1.1\""),
        "{one}"
    );
    assert_eq!(cut.len(), 250, "{cut}");
    assert_eq!((line(&mut second), line(&mut second)), (format!("{one}\n"), format!("{cut}\n")));

    // The server is restarted: what comes meanwhile is sent later.
    drop(first);
    ask(web, "/two");
    assert!(line(&mut second).contains("/two"), "nobody waits for the other one");
    let mut again = accept(&counted);
    assert!(counted_line(&mut again).contains("/two"));

    // A reload that changes something else keeps the connections, and a graceful stop sends what is there.
    proxy.change(&config(folder.path(), web, &ring).replace("client 30s", "client 31s"));
    ask(web, "/three");
    assert!(counted_line(&mut again).contains("/three") && line(&mut second).contains("/three"));
    proxy.signal(Signal::SIGUSR1);
    let mut rest = String::new();
    second.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("Proxy web stopped"), "{rest}");
    assert!(proxy.wait().0.success());
}

#[test]
fn what_a_server_never_got_is_counted_and_costs_no_request() {
    const REQUESTS: usize = 60;
    let (folder, web, away) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    let proxy = Proxy::start(&config(folder.path(), web, &format!(" server a {away}\n")));
    let missing = "[ALERT]    (";
    until("the alert that the server is not there", || {
        proxy.said().contains(missing)
            && proxy.said().contains("Log target 'ring@syslog/a': not available (Connection refused)")
    });
    let path = format!("/{}", "y".repeat(700));
    (0..REQUESTS).for_each(|_| ask(web, &path));
    let lost = || {
        let status = proxy.status();
        status.log_targets.iter().find(|one| one.target == "ring@syslog/a").map_or(0, |one| one.lost as usize)
    };
    assert!((10..REQUESTS).contains(&lost()), "{}", lost());
    let socket = folder.path().join("admin.sock");
    assert!(
        socat(&socket, "show events\n")
            .contains(&format!("syslog     : type=buffer, {} dropped, The log host\n", lost()))
    );
    assert!(socat(&socket, "show info\n").contains(&format!("\nDroppedLogs: {}\n", lost())));
    // The server comes: it gets what is left, the oldest first.
    let server = TcpListener::bind(away).unwrap();
    let mut stream = accept(&server);
    for number in 0..REQUESTS - lost() {
        assert!(line(&mut stream).contains(&path), "line {number}");
    }
    ask(web, "/now");
    assert!(line(&mut stream).contains("/now"));
}

#[test]
fn show_events_is_haproxys() {
    let places = [(); 2].map(|()| free_address());
    let text = |web| move |folder: &Path| config(folder, web, " format raw\n");
    let both = Both::start_each(text(places[0]), text(places[1]));
    places.iter().for_each(|web| ask(*web, "/here"));
    let [baton, haproxy] = [both.baton("admin.sock"), both.haproxy("admin.sock")];
    for command in
        ["show events", "show events nope", "show events syslog -x", "show events syslog -n", "show events stdout"]
    {
        let say = |socket: &Path| socat(socket, format!("{command}\n")).trim_end().to_owned();
        // HAProxy ends some of its messages with one end of line, and others with two.
        assert_eq!(say(&baton), say(&haproxy), "{command}");
    }
    for socket in [&baton, &haproxy] {
        let shown = socat(socket, "show events syslog\n");
        assert!(shown.contains(" web web/<NOSRV> ") && shown.ends_with("\"GET /here HTTP/1.1\"\n\n"), "{shown}");
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }
    let [baton_user, haproxy_user] = [both.baton("user.sock"), both.haproxy("user.sock")];
    for command in ["show events", "show events syslog"] {
        assert_eq!(
            socat(&baton_user, format!("{command}\n")),
            socat(&haproxy_user, format!("{command}\n")),
            "{command}"
        );
    }
    // New lines as they come, until something is typed.
    for (socket, web) in [(&baton, places[0]), (&haproxy, places[1])] {
        let mut session = UnixStream::connect(socket).unwrap();
        session.set_read_timeout(Some(PATIENCE)).unwrap();
        session.write_all(b"show events syslog -w\n").unwrap();
        let mut lines = BufReader::new(session.try_clone().unwrap());
        assert!(line(&mut lines).contains("/here"));
        ask(web, "/later");
        assert!(line(&mut lines).contains("/later"));
        if socket == &haproxy {
            // It does not end by what is typed, against its manual.
            continue;
        }
        session.write_all(b"\n").unwrap();
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.trim(), "");
    }
}

#[test]
fn what_the_converter_debug_shows_is_in_its_ring() {
    let (folder, web) = (tempfile::tempdir().unwrap(), free_address());
    let rules = "acl is_two path /two\n http-request set-header x %[path,debug(path)]\n\
                 http-request set-header x %[req.hdr(evil),b64dec,debug(evil,syslog)]\n\
                 http-request set-header x %[str(seen),when(acl,is_two),debug(second)]\n http-request return status 200";
    let config =
        config(folder.path(), web, " format short\n maxlen 50\n").replace("http-request return status 200", rules);
    let config = config.replace(" log ring@syslog local0\n", " no log\n");
    let _proxy = Proxy::start(&config);
    let url = format!("http://{web}");
    let evil = "YQ0KPDA+YgBj".to_owned() + &"eHh4".repeat(30);
    let asked = Command::new("curl").args(["-s", "-f", "-H", &format!("evil: {evil}"), &format!("{url}/one")]).output();
    assert!(asked.expect("curl").status.success());
    ask(web, "/two");
    let socket = folder.path().join("admin.sock");
    let built_in = socat(&socket, "show events buf0\n");
    let mut lines = built_in.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    let mut line = || lines.next().expect("a line");
    let (date, text) = line();
    assert!(date.starts_with("<0>20") && text == "[debug] path: type=str </one>", "{built_in}");
    assert_eq!(line().1, "[debug] path: type=str </two>");
    assert_eq!(line().1, "[debug] second: type=str <seen>");
    // One line, whatever the bytes are, and no longer than the ring's lines.
    let ring = socat(&socket, "show events syslog\n");
    assert_eq!(ring.trim_end(), format!("<0>[debug] evil: type=bin <a..<0>b.c{}", "x".repeat(50 - 36)));
    assert_eq!(ring.trim_end().len(), 50);
}
