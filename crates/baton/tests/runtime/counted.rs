//! What traffic leaves in stick tables, beside Debian's haproxy: the same requests, connections and bytes, and then the same `show table`, for
//! all types of keys and of data that HAProxy 2.6 has.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, until};

/// All types of data but bytes, which HAProxy 2.6 counts in its own form of an HTTP message.
const STORE: &str = "server_id,gpt0,gpc0,gpc0_rate(1h),conn_cnt,conn_rate(1h),conn_cur,sess_cnt,sess_rate(1h),http_req_cnt,http_req_rate(1h),\
                     http_err_cnt,http_err_rate(1h),http_fail_cnt,http_fail_rate(1h),gpc1,gpc1_rate(1h),server_key";
const TABLES: [&str; 9] = ["texts", "conns", "v4", "v6", "numbers", "blocks", "bytes", "app", "forever"];

fn config(folder: &Path) -> String {
    let folder = folder.display();
    let mut text = format!(
        "global\n stats socket {folder}/admin.sock level admin\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout \
         server 5s\nfrontend web\n bind {folder}/web.sock\n tcp-request connection track-sc1 str(all) table conns\n http-request track-sc0 \
         path table texts\n http-request track-sc2 req.hdr(number) table numbers\n http-request sc-inc-gpc0(0)\n http-request \
         sc-set-gpt0(0) 7 if {{ path /tag }}\n http-request sc-inc-gpc1(1)\n http-request sc-inc-gpc(1,2)\n http-request sc-inc-gpc(2,2) if \
         {{ path /tag }}\n http-request sc-set-gpt(2,2) 9\n http-request deny if {{ path /deny }}\n default_backend app\nbackend app\n \
         stick-table type string len 20 size 100 expire 1h store server_id,server_key,http_req_cnt\n stick on req.hdr(user)\n server \
         one {folder}/inner.sock\nlisten four\n bind {folder}/four.sock\n http-request track-sc0 req.hdr(address) table v4\n server one \
         {folder}/inner.sock\nlisten six\n bind {folder}/six.sock\n http-request track-sc0 req.hdr(address) table v6\n http-request track-sc1 path table blocks\n http-request \
         track-sc2 path table forever\n server one {folder}/inner.sock\nfrontend inner\n bind {folder}/inner.sock\n http-request return \
         status 404 if {{ path /404 }}\n http-request return status 500 if {{ path /500 }}\n http-request return status 503 if {{ path /503 \
         }}\n http-request return status 200 content-type text/plain string hello\nlisten raw\n mode tcp\n bind {folder}/raw.sock\n \
         tcp-request inspect-delay 5s\n tcp-request content track-sc0 req.payload(0,2) table bytes if {{ req.len gt 1 }}\n tcp-request \
         content accept if {{ req.len gt 1 }}\n server one {folder}/origin.sock\n"
    );
    let tables = [
        format!("texts\n stick-table type string len 12 size 100 expire 1h store {STORE}"),
        format!("conns\n stick-table type string size 100 expire 1h store {STORE}"),
        "v4\n stick-table type ip size 100 expire 1h store http_req_cnt,http_err_cnt,conn_cnt".into(),
        "v6\n stick-table type ipv6 size 100 expire 2h store http_req_cnt".into(),
        "numbers\n stick-table type integer size 100 expire 1h store gpt(3),gpc(3),gpc_rate(3,1h)".into(),
        "blocks\n stick-table type binary len 6 size 100 expire 1h store conn_cnt".into(),
        "bytes\n stick-table type string len 4 size 100 expire 1h store bytes_in_cnt,bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h),conn_cnt"
            .into(),
        "forever\n stick-table type string len 30 size 3 store http_req_cnt".into(),
        "short\n stick-table type string len 30 size 100 expire 400 store http_req_cnt".into(),
    ];
    for table in &tables {
        let _ = writeln!(text, "backend {table}");
    }
    text
}

/// Sends bytes, and nothing behind them if that is their `end`, and reads what comes until the end.
#[track_caller]
fn sends(socket: &Path, bytes: &[u8], end: Option<Shutdown>) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    // A proxy may have heard enough.
    let _ = stream.write_all(bytes);
    let _ = end.map(|end| stream.shutdown(end));
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A server that reads a request until its end and then answers with as many bytes as its second byte says thousands.
fn origin(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("the folder is ours");
    // It ends with the program of the test.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            let count = bytes.get(1).map_or(0, |byte| usize::from(byte.saturating_sub(b'0')) * 1000);
            let _ = stream.write_all(&vec![b'x'; count]);
        }
    });
}

/// Entries of a table by key, without addresses of memory; of what is left of their lives, whether it is most of an hour, or of two.
fn table(socket: &Path, name: &str) -> BTreeMap<String, String> {
    after(socket, "", name)
}

/// Entries of a table by key, behind other commands.
fn after(socket: &Path, commands: &str, name: &str) -> BTreeMap<String, String> {
    let said = socat(socket, format!("{commands}show table {name}\n"));
    let expiry = |word: &str| match word.strip_prefix("exp=").and_then(|ms| ms.parse::<u64>().ok()) {
        Some(3_400_000..=3_600_000) => "an hour".to_owned(),
        Some(7_000_000..=7_200_000) => "two hours".to_owned(),
        Some(other) => format!("exp={other}"),
        None => word.to_owned(),
    };
    let line = |line: &str| {
        let (key, rest) = line.split_once(": key=")?.1.split_once(' ')?;
        Some((key.to_owned(), rest.split(' ').map(expiry).collect::<Vec<_>>().join(" ")))
    };
    said.lines().filter_map(line).collect()
}

#[test]
fn the_same_traffic_leaves_the_same_tables() {
    let both = Both::start(config);
    let sockets = |name: &str| [both.baton(name), both.haproxy(name)];
    sockets("origin.sock").iter().for_each(|socket| origin(socket));
    let get =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
    for socket in &sockets("web.sock") {
        for (path, fields) in [
            ("/a", "number: 5\r\nuser: anna\r\n"),
            ("/a", "number: 5\r\n"),
            ("/tag", "number: 5\r\nuser: bert\r\n"),
            ("/404", "number: 4294967297\r\n"),
            ("/500", "number: x\r\nuser: anna\r\n"),
            ("/503", ""),
            ("/deny", "user: carl\r\n"),
            ("/a-path-that-is-longer", "number: -2\r\n"),
            ("/a-path-that-is-as-long", "user: a=b c\r\n"),
        ] {
            sends(socket, get(path, fields).as_bytes(), None);
        }
        // Several requests of one connection, one that is none, and a connection without any.
        let more = get("/b", "").replace("close", "keep-alive");
        sends(socket, [more.as_str(), &more, &get("/b", "")].concat().as_bytes(), None);
        sends(socket, b"GET\r\n\r\n", None);
        sends(socket, b"POST /post HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n", None);
    }
    for socket in &sockets("four.sock") {
        for (path, address) in
            [("/1", "192.0.2.7"), ("/404", "192.0.2.7"), ("/500", "192.0.2.8"), ("/2", "2001:db8::1"), ("/3", "none")]
        {
            sends(socket, get(path, &format!("address: {address}\r\n")).as_bytes(), None);
        }
    }
    for socket in &sockets("six.sock") {
        for (path, address) in [("/1", "2001:db8::1"), ("/1", "192.0.2.9"), ("/22222222", "::1"), ("/3", "none")] {
            sends(socket, get(path, &format!("address: {address}\r\n")).as_bytes(), None);
        }
    }
    for socket in &sockets("raw.sock") {
        for request in ["a1", "a3 and more", "b0", "a2"] {
            sends(socket, request.as_bytes(), Some(Shutdown::Write));
        }
        sends(socket, &[b'c'; 40_000], Some(Shutdown::Write));
    }
    // Whoever is connected is counted as such.
    let open = sockets("web.sock").map(|socket| UnixStream::connect(socket).expect("it listens"));
    let [baton, haproxy] = sockets("admin.sock");
    let end = Instant::now() + PATIENCE;
    for name in TABLES {
        loop {
            let (ours, theirs) = (table(&baton, name), table(&haproxy, name));
            let is_done = ours == theirs && (name != "conns" || ours["all"].contains("conn_cur=1"));
            if is_done || Instant::now() > end {
                assert_eq!(ours, theirs, "table {name}");
                assert!(is_done && !ours.is_empty(), "table {name}: {ours:?}");
                break;
            }
        }
    }
    drop(open);
    for socket in [&baton, &haproxy] {
        until("nobody is connected", || table(socket, "conns")["all"].contains("conn_cur=0"));
    }
}

/// Entries expire after the same time, and those that are set anew live on.
#[test]
fn entries_expire_as_in_haproxy() {
    let both = Both::start(config);
    let sockets = [both.baton("admin.sock"), both.haproxy("admin.sock")];
    for socket in &sockets {
        socat(socket, "set table short key a data.http_req_cnt 1; set table short key b data.http_req_cnt 2\n");
        let first = Instant::now();
        let mut last = first;
        until("only what is refreshed is left", || {
            last = Instant::now();
            let left = after(socket, "set table short key b data.http_req_cnt 2;", "short");
            left.keys().eq(["b"])
        });
        assert!(last.duration_since(first).as_millis() >= 300, "it expired early");
        until("all have expired", || table(socket, "short").is_empty());
        assert!(last.elapsed().as_millis() >= 300, "it expired early");
    }
    // A full table makes room by its oldest entries.
    for name in ["one", "two", "three", "four", "five"] {
        sockets
            .iter()
            .for_each(|socket| drop(socat(socket, format!("set table forever key {name} data.http_req_cnt 1\n"))));
    }
    let [ours, theirs] = sockets.each_ref().map(|socket| table(socket, "forever"));
    assert_eq!(ours, theirs);
}
