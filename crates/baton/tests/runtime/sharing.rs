//! Stick tables that are shared with Debian's haproxy by `peers` sections: in both directions, all types, over restarts, takeovers and
//! reloads; and peers that mean no good.
//!
//! `BATON_PEERS_ENTRIES=100000` makes the large ones larger.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_prove::certificates::{Authority, CertificateSpec};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::peers::socat;
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, until};

/// Entries of the tests in which their number matters, unless said otherwise.
const ENTRIES: usize = 2000;
/// Commands that are typed in one session.
const TYPED: usize = 5000;

fn entries() -> usize {
    std::env::var("BATON_PEERS_ENTRIES").ok().and_then(|count| count.parse().ok()).unwrap_or(ENTRIES)
}

/// Every type of key and of data that HAProxy 2.6 has.
pub const TABLES: &str = " table ip type ip size 200k expire 10m store server_id,gpt0,gpc0,gpc0_rate(100s),conn_cnt,conn_rate(100s),conn_cur,\
                      sess_cnt,sess_rate(100s)\n table six type ipv6 size 1k expire 10m store http_req_cnt,http_req_rate(100s),\
                      http_err_cnt,http_err_rate(100s),http_fail_cnt,http_fail_rate(100s)\n table text type string len 40 size 1k \
                      expire 10m store bytes_in_cnt,bytes_in_rate(100s),bytes_out_cnt,bytes_out_rate(100s),gpc1,gpc1_rate(100s)\n \
                      table number type integer size 1k expire 10m store gpt(3),gpc(2),gpc_rate(2,100s)\n table bytes type binary len \
                      4 size 1k store gpc0\n";

/// Two addresses at which nobody listens.
pub fn ports() -> [u16; 3] {
    let open = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    open.map(|listener| listener.local_addr().expect("bound").port())
}

/// The configuration that both nodes have; each has its own socket.
fn text(folder: &Path, [a, b, web]: [u16; 3]) -> String {
    format!(
        "global\n stats socket {}/s level admin\npeers mp\n peer A 127.0.0.1:{a}\n peer B 127.0.0.1:{b}\n{TABLES}frontend f\n mode http\n \
         timeout client 5s\n bind 127.0.0.1:{web}\n stick-table type string len 20 size 1k expire 10m store server_id,server_key,gpc0 peers \
         mp\n http-request return status 200\n",
        folder.display()
    )
}

/// A folder for a socket, and ports for a pair of nodes.
pub struct Place {
    pub folder: TempDir,
    pub ports: [u16; 3],
}

impl Place {
    pub fn of(ports: [u16; 3]) -> Place {
        Place { folder: tempfile::tempdir().expect("a folder for the test"), ports }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    pub fn text(&self) -> String {
        text(self.folder.path(), self.ports)
    }

    pub fn baton(&self, name: &str) -> Proxy {
        Proxy::start_with(&self.text(), &["-L", name])
    }

    pub fn haproxy(&self, name: &str) -> Haproxy {
        Haproxy::start_with(&self.text(), &self.socket(), &[OsStr::new("-L"), OsStr::new(name)])
    }

    /// Types commands.
    pub fn types(&self, commands: impl IntoIterator<Item = String>) {
        let commands: Vec<String> = commands.into_iter().collect();
        for some in commands.chunks(TYPED) {
            let said = socat(&self.socket(), format!("prompt\n{}\nquit\n", some.join("\n")));
            let odd = said.lines().find(|line| !matches!(line.trim_matches(['>', ' ']), ""));
            assert_eq!(odd, None, "after one of {:?}", some.first());
        }
    }

    /// Entries of a table: what is stored by key, without addresses of memory and what passes with time.
    pub fn table(&self, name: &str) -> BTreeMap<String, String> {
        let said = socat(&self.socket(), format!("show table {name}\n"));
        let line = |line: &str| {
            let words = line.split_once(": ")?.1;
            let (key, rest) = words.strip_prefix("key=")?.split_once(' ')?;
            let kept = rest.split(' ').filter(|word| !word.starts_with("use=") && !word.starts_with("exp="));
            Some((key.to_owned(), kept.collect::<Vec<_>>().join(" ")))
        };
        said.lines().filter_map(line).collect()
    }

    pub fn peers(&self) -> String {
        socat(&self.socket(), "show peers\n")
    }

    pub fn is_connected(&self) -> bool {
        self.peers().contains("state=EST")
    }
}

const NAMES: [&str; 6] = ["mp/ip", "mp/six", "mp/text", "mp/number", "mp/bytes", "f"];

/// Waits until both have the same in all tables, and as many as that in the first one.
#[track_caller]
fn equal(one: &Place, other: &Place, count: usize) {
    until("the tables are equal", || {
        one.table("mp/ip").len() == count
            && NAMES.iter().all(|name| {
                let (one, other) = (one.table(name), other.table(name));
                // Rates pass in the meantime.
                one.keys().eq(other.keys()) && one.iter().all(|(key, values)| near(values, &other[key]))
            })
    });
}

/// Whether values are the same, rates nearly so.
pub fn near(one: &str, other: &str) -> bool {
    let mut pairs = one.split(' ').zip(other.split(' '));
    one.split(' ').count() == other.split(' ').count()
        && pairs.all(|(one, other)| match (one.split_once("00)="), other.split_once("00)=")) {
            (Some((name, one)), Some((other_name, other))) => {
                let number = |text: &str| text.parse::<i64>().unwrap_or(-1000);
                name == other_name && (number(one) - number(other)).abs() <= 3
            }
            (None, None) => one == other,
            _ => false,
        })
}

fn of_all_types(salt: usize) -> Vec<String> {
    vec![
        format!(
            "set table mp/ip key 10.0.0.{salt} data.server_id 3 data.gpt0 {salt} data.gpc0 7 data.gpc0_rate 40 data.conn_cnt 4000000000 \
             data.conn_rate 5 data.sess_cnt 6 data.sess_rate 7"
        ),
        format!(
            "set table mp/six key 2001:db8::{salt} data.http_req_cnt 1 data.http_req_rate {salt} data.http_err_cnt 2 data.http_err_rate 3 \
             data.http_fail_cnt 4 data.http_fail_rate 5"
        ),
        format!(
            "set table mp/text key some-{salt} data.bytes_in_cnt 123456789012 data.bytes_in_rate 99 data.bytes_out_cnt {salt} \
             data.bytes_out_rate 20 data.gpc1 240 data.gpc1_rate 2288"
        ),
        format!("set table mp/number key {salt}000000 data.gpt0 1 data.gpc0 {salt}"),
        format!("set table f key path-{salt} data.server_id 9 data.gpc0 {salt}"),
    ]
}

#[test]
fn tables_are_shared_with_haproxy_in_both_directions() {
    let ports = ports();
    let [a, b] = [Place::of([ports[0], ports[1], ports[2]]), Place::of([ports[0], ports[1], self::ports()[0]])];
    let haproxy = b.haproxy("B");
    // It was there before: what it has is learned.
    b.types(
        (0..entries()).map(|at| {
            format!("set table mp/ip key 10.{}.{}.{} data.gpc0 {at}", 1 + at / 65536, at / 256 % 256, at % 256)
        }),
    );
    let baton = a.baton("A");
    until("a session", || a.is_connected() && b.is_connected());
    equal(&a, &b, entries());
    // What changes on either side reaches the other.
    for salt in 1..6 {
        let (from, commands) = if salt % 2 == 0 { (&a, of_all_types(salt)) } else { (&b, of_all_types(salt)) };
        // Arrays cannot be set by HAProxy 2.6.
        from.types(commands.into_iter().filter(|command| !command.contains("mp/number")));
    }
    equal(&a, &b, entries() + 5);
    assert_eq!(a.table("mp/text").len(), 5);
    // When both connected at the same time, both connections end after what they taught, and one of the two connects again.
    until("a session", || a.is_connected() && b.is_connected());
    let shown = a.peers();
    for part in [
        "id=mp disabled=0",
        "id=B(remote,active)",
        "last_status=ESTA",
        "id=A(local,inactive)",
        "id=mp/text",
        "shared tables:",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(socat(&a.socket(), "show peers nope\n").contains("No such peers"));
    assert!(socat(&a.socket(), "show info\n").contains("\nConnectedPeers: 1\n"));

    // haproxy is killed: the next one learns all from Baton, and what changed meanwhile.
    drop(haproxy);
    a.types(of_all_types(7).into_iter().filter(|command| !command.contains("mp/number")));
    let haproxy = b.haproxy("B");
    equal(&a, &b, entries() + 6);
    // And Baton.
    baton.signal(Signal::SIGKILL);
    drop(baton);
    b.types(of_all_types(8).into_iter().filter(|command| !command.contains("mp/number")));
    let baton = a.baton("A");
    equal(&a, &b, entries() + 7);
    // A reload that leaves the section alone leaves its links alone; one that changes it does not lose what is learned.
    let count = |shown: &str| shown.matches("new_conn=1").count() + shown.matches("new_conn=2").count();
    let before = count(&a.peers());
    baton.change(&a.text().replace("timeout client 5s", "timeout client 6s"));
    assert_eq!(count(&a.peers()), before);
    baton.change(
        &a.text().replace("table bytes type binary len 4 size 1k", "table bytes type binary len 4 size 2k expire 1h"),
    );
    a.types(of_all_types(9).into_iter().filter(|command| !command.contains("mp/number")));
    equal(&a, &b, entries() + 8);
    drop((haproxy, baton));
}

#[test]
fn tables_go_on_over_a_takeover_from_haproxy_and_back() {
    let ports = ports();
    let place = Place::of(ports);
    let next = Place { folder: tempfile::tempdir().expect("a folder for the test"), ports };
    let haproxy = place.haproxy("A");
    place.types(
        (0..entries()).map(|at| {
            format!("set table mp/ip key 10.{}.{}.{} data.gpc0 {at}", 1 + at / 65536, at / 256 % 256, at % 256)
        }),
    );
    place.types(of_all_types(1).into_iter().filter(|command| !command.contains("mp/number")));
    // One that is younger than that teaches nobody.
    std::thread::sleep(Duration::from_secs(6));
    let expect: Vec<_> = NAMES.map(|name| place.table(name)).into();
    let pid = haproxy.pid().to_string();
    let baton = Proxy::start_with(&next.text(), &["-L", "A", "-sf", &pid]);
    until("Baton has learned", || {
        NAMES.iter().zip(&expect).all(|(name, expect)| {
            let table = next.table(name);
            table.len() == expect.len()
                && table.iter().all(|(key, values)| expect.get(key).is_some_and(|expect| near(values, expect)))
        })
    });
    // And back: it needs to know that it has all.
    let last = Place { folder: tempfile::tempdir().expect("a folder for the test"), ports };
    let pid = baton.pid().to_string();
    let again = Haproxy::start_with(&last.text(), &last.socket(), &["-L", "A", "-sf", &pid].map(OsStr::new));
    until("haproxy has learned", || {
        NAMES.iter().zip(&expect).all(|(name, expect)| last.table(name).keys().eq(expect.keys()))
    });
    until("Baton has ended", || baton.has_ended());
    drop((haproxy, again));
}

#[test]
fn peers_speak_tls() {
    let [a, b, web] = ports();
    let authority = Authority::new("Test").expect("an authority can be made");
    let issued = authority.issue(&CertificateSpec::server(["127.0.0.1"])).expect("a certificate");
    let client = authority.issue(&CertificateSpec::client("a peer")).expect("a certificate");
    let place = || Place { folder: tempfile::tempdir().expect("a folder for the test"), ports: [a, b, web] };
    let (one, other) = (place(), place());
    let text = |place: &Place, local: &str, port: u16, remote: &str, there: u16| {
        let folder = place.folder.path();
        fs::write(folder.join("crt.pem"), issued.bundle_pem()).expect("the folder is ours");
        fs::write(folder.join("client.pem"), client.bundle_pem()).expect("the folder is ours");
        fs::write(folder.join("ca.pem"), authority.root_pem()).expect("the folder is ours");
        let (web, folder) = (self::ports()[0], folder.display());
        format!(
            "global\n stats socket {folder}/s level admin\npeers mp\n bind 127.0.0.1:{port} ssl crt {folder}/crt.pem ca-file {folder}/ca.pem \
             verify required\n default-server ssl crt {folder}/client.pem ca-file {folder}/ca.pem verify required\n server {local}\n \
             server {remote} 127.0.0.1:{there}\n{TABLES}frontend f\n mode http\n timeout client 5s\n bind 127.0.0.1:{web}\n"
        )
    };
    let haproxy_text = text(&other, "B", b, "A", a);
    let haproxy = Haproxy::start_with(&haproxy_text, &other.socket(), &["-L", "B"].map(OsStr::new));
    let baton = Proxy::start_with(&text(&one, "A", a, "B", b), &["-L", "A"]);
    until("a session", || one.is_connected() && other.is_connected());
    one.types(["set table mp/ip key 10.0.0.1 data.gpc0 1".into()]);
    other.types(["set table mp/ip key 10.0.0.2 data.gpc0 2".into()]);
    until("both have both", || one.table("mp/ip").len() == 2 && other.table("mp/ip").len() == 2);
    // Whoever speaks no TLS, or has no certificate, is not heard.
    let mut plain = TcpStream::connect(("127.0.0.1", a)).expect("it listens");
    plain.write_all(b"HAProxyS 2.1\nA\nB 1 1\n").expect("it reads");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"200"), "{said:?}");
    drop((haproxy, baton));
}

#[test]
fn hostile_peers_are_refused() {
    let ports = ports();
    let place = Place::of(ports);
    let baton = place.baton("A");
    let open = || {
        let stream = TcpStream::connect(("127.0.0.1", ports[0])).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        stream
    };
    let answer = |bytes: &[u8]| {
        let mut stream = open();
        stream.write_all(bytes).expect("it reads");
        let mut said = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut said);
        said
    };
    assert_eq!(answer(b"GET / HTTP/1.1\r\n\r\n"), b"501\n");
    assert_eq!(answer(b"HAProxyS 9.9\nA\nB 1 1\n"), b"502\n");
    assert_eq!(answer(b"HAProxyS 2.1\nX\nB 1 1\n"), b"503\n");
    assert_eq!(answer(b"HAProxyS 2.1\nA\nX 1 1\n"), b"504\n");
    assert_eq!(answer(&[b'x'; 2000]), b"501\n");
    let hello = b"HAProxyS 2.1\nA\nB 1 1\n";
    let broken = |frames: &[u8], error: &[u8]| {
        let said = answer(&[&hello[..], frames].concat());
        assert!(said.starts_with(b"200\n\x00\x04") && said.ends_with(error), "{frames:02x?}: {said:02x?}");
    };
    broken(&[255, 0], &[1, 0]);
    broken(&[10, 128, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[1, 0]);
    broken(&[10, 128, 0xf1, 0xf1, 0x07], &[1, 1]);
    broken(&[10, 130, 2, 1, 0], &[1, 0]);
    broken(&[10, 131, 0], &[1, 0]);
    // A definition, and an update that ends in the middle.
    let mut frames = vec![10, 130, 10, 9, 6];
    frames.extend_from_slice(b"/bytes");
    frames.extend_from_slice(&[7, 4]);
    let mut short = frames.clone();
    short[2] = 8;
    broken(&short, &[1, 0]);
    frames[2] = 11;
    frames.push(4);
    broken(&[&frames[..], &[10, 128, 6, 0, 0, 0, 1, 9, 9]].concat(), &[1, 0]);
    // Half messages, and silence.
    let mut half = open();
    half.write_all(b"HAProxyS 2.1\nA\n").expect("it reads");
    // It works still.
    let mut good = open();
    good.write_all(&[&hello[..], &frames[..], &[10, 128, 9, 0, 0, 0, 7, 1, 2, 3, 4, 5]].concat()).expect("it reads");
    let mut said = [0; 14];
    good.read_exact(&mut said).expect("it answers");
    assert_eq!(&said[..6], b"200\n\x00\x04");
    until("it is learned", || place.table("mp/bytes").get("01020304").is_some_and(|values| values == "gpc0=5"));
    let shown = place.peers();
    // Only this process itself has broken no rule.
    assert!(shown.contains("id=B(remote,active)") && shown.matches("proto_err=0").count() == 1, "{shown}");
    drop((half, good, baton));
}
