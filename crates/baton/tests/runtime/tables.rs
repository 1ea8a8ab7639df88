//! Stick tables of a whole process: answers that come in many pieces, and clients that stay with their servers whatever is reloaded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, free_address, until};

const DEFAULTS: &str = "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n";

fn global(folder: &Path) -> String {
    format!("global\n stats socket {}/admin.sock level admin\n{DEFAULTS}", folder.display())
}

/// The lines of a table's entries.
fn entries(socket: &Path, command: &str) -> Vec<String> {
    let shown = socat(socket, format!("{command}\n"));
    shown.lines().filter(|line| line.starts_with("0x")).map(str::to_owned).collect()
}

fn used(socket: &Path) -> String {
    let shown = socat(socket, "show table\n");
    shown.split("used:").nth(1).unwrap_or_default().trim().to_owned()
}

/// The body of a response.
#[track_caller]
fn body(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_long_table_is_shown_and_cleared_in_pieces() {
    const COUNT: usize = 5000;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admin.sock");
    let text = format!(
        "{}listen web\n bind {}\n stick-table type string len 12 size 10k expire 1h store gpc0\n",
        global(folder.path()),
        free_address()
    );
    let _proxy = Proxy::start(&text);
    let mut commands = String::from("prompt\n");
    for number in 0..COUNT {
        let _ = writeln!(commands, "set table web key k{number} data.gpc0 {}", number % 10);
    }
    commands.push_str("quit\n");
    socat(&socket, commands);
    let all = entries(&socket, "show table web");
    let keys: BTreeSet<&str> = all.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!((all.len(), keys.len(), used(&socket)), (COUNT, COUNT, COUNT.to_string()));
    assert!(keys.contains("key=k4321"));
    let some = entries(&socket, "show table web data.gpc0 eq 3");
    assert_eq!((some.len(), some.iter().all(|line| line.ends_with(" gpc0=3"))), (COUNT / 10, true));
    // One that does not read its response holds up nobody, and gets what was there all the time.
    let mut slow = UnixStream::connect(&socket).expect("it listens");
    slow.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    slow.write_all(b"show table web\n").expect("sent");
    assert!(socat(&socket, "show version\n").starts_with("2.6."));
    assert_eq!(socat(&socket, "set table web key meanwhile data.gpc0 5; clear table web key k17\n"), "\n\n");
    let mut shown = String::new();
    slow.read_to_string(&mut shown).expect("the rest of the response");
    let shown: BTreeSet<&str> = shown.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(keys.iter().all(|key| *key == "key=k17" || shown.contains(key)), "{} keys", shown.len());
    assert_eq!(socat(&socket, "set table web key k17 data.gpc0 7; clear table web key meanwhile\n"), "\n\n");
    assert_eq!(socat(&socket, "clear table web data.gpc0 lt 5\n"), "\n");
    assert_eq!((entries(&socket, "show table web data.gpc0 lt 5").len(), used(&socket)), (0, (COUNT / 2).to_string()));
    assert_eq!(socat(&socket, "clear table web\n"), "\n");
    assert_eq!((entries(&socket, "show table web").len(), used(&socket)), (0, "0".to_owned()));
}

#[test]
fn clients_stay_with_their_servers_over_reloads() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admin.sock");
    let address = free_address();
    let config = |size: &str, servers: &[&str]| {
        let mut text = global(folder.path());
        let _ =
            write!(text, "listen web\n bind {address}\n stick-table type ip size {size} expire 1h\n stick on src\n");
        for name in servers {
            let _ = writeln!(text, " server {name} {}/{name}.sock", folder.path().display());
        }
        for name in ["a", "b", "c"] {
            let _ = write!(
                text,
                "listen {name}\n bind {}/{name}.sock\n http-request return status 200 content-type text/plain string {name}\n",
                folder.path().display()
            );
        }
        text
    };
    let ask = || body(address);
    let proxy = Proxy::start(&config("100", &["a", "b", "c"]));
    assert_eq!(socat(&socket, "set table web key 127.0.0.1 data.server_id 2\n"), "\n");
    assert_eq!([ask(), ask()], ["b", "b"]);
    // The name counts, not the place.
    proxy.change(&config("100", &["c", "a", "b"]));
    assert_eq!([ask(), ask()], ["b", "b"]);
    proxy.change(&config("500", &["b", "a", "c"]));
    assert_eq!([ask(), ask()], ["b", "b"]);
    // Without its server the client gets another one, and stays there.
    proxy.change(&config("500", &["a", "c"]));
    let other = ask();
    assert!(other == "a" || other == "c", "{other}");
    assert_eq!([ask(), ask()], [other.as_str(), other.as_str()]);
    proxy.change(&config("500", &["a", "b", "c"]));
    assert_eq!([ask(), ask()], [other.as_str(), other.as_str()]);
    let shown = entries(&socket, "show table web");
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].contains(" key=127.0.0.1 use=0 "), "{shown:?}");
    assert!(shown[0].ends_with(&format!(" server_key={other}")), "{shown:?}");
}

#[test]
fn breaches_of_the_protocol_and_blocks_of_bytes_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, address) = (folder.path().join("admin.sock"), free_address());
    let text = format!(
        "{}frontend web\n bind {address}\n tcp-request connection track-sc0 str(all) table seen\n http-request return status 200\nbackend \
         seen\n stick-table type string size 10 brates-factor 1024 store http_err_cnt,bytes_in_rate(1h),glitch_cnt,glitch_rate(1h)\n",
        global(folder.path())
    );
    let _proxy = Proxy::start(&text);
    let shows = |values: &str| {
        until(values, || entries(&socket, "show table seen").first().is_some_and(|line| line.ends_with(values)));
    };
    body(address);
    // Some 50 bytes are one block.
    shows(" http_err_cnt=0 bytes_in_rate(3600000)=1024 glitch_cnt=0 glitch_rate(3600000)=0");
    assert_eq!(entries(&socket, "show table seen data.bytes_in_rate eq 1024").len(), 1);
    for malformed in ["GET\r\n\r\n", "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"] {
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        stream.write_all(malformed.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    until("both are counted", || {
        entries(&socket, "show table seen data.glitch_cnt eq 2 data.glitch_rate eq 2 data.http_err_cnt eq 2").len() == 1
    });
}
