//! `show stat` and `show info` after the same traffic through both programs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use baton_prove::certificates::{Authority, CertificateSpec as CertificateWanted};
use baton_prove::{Origin, OriginOptions};

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::table::{Table, cell, table};

/// Columns that differ between two programs and two moments: times, rates, and what only one of the two keeps.
const NOT_COMPARED: &[&str] = &[
    "lastchg",
    "lastsess",
    "downtime",
    "rate",
    "rate_max",
    "req_rate",
    "req_rate_max",
    "conn_rate",
    "conn_rate_max",
    "qtime",
    "ctime",
    "rtime",
    "ttime",
    "qtime_max",
    "ctime_max",
    "rtime_max",
    "ttime_max",
    "check_duration",
    // Which server a check fails on first, and how often until somebody looks.
    "chkfail",
    // Connections to servers: Baton's pools belong to cores, and are not counted; estimates are HAProxy's own.
    "srv_icur",
    "idle_conn_cur",
    "safe_conn_cur",
    "used_conn_cur",
    "need_conn_est",
    // Parts of a protocol stack that Baton does not have.
    "h1_open_connections",
    "h1_open_streams",
    "h1_total_connections",
    "h1_total_streams",
    "h1_bytes_in",
    "h1_bytes_out",
    // Their bytes: answers carry a version's own pages and date lines.
    "bin",
    "bout",
];

struct Places {
    web: SocketAddr,
    second: SocketAddr,
    tcp: SocketAddr,
    /// Where connections are rejected, sessions, and what a client says.
    rejects: [SocketAddr; 3],
    /// Where what a server says is rejected.
    unheard: SocketAddr,
    /// In `mode tcp`, with a backend in `mode http`.
    mixed: SocketAddr,
}

fn places() -> Places {
    Places {
        web: free_address(),
        second: free_address(),
        tcp: free_address(),
        rejects: std::array::from_fn(|_| free_address()),
        unheard: free_address(),
        mixed: free_address(),
    }
}

fn config(folder: &Path, places: &Places, origin: SocketAddr) -> String {
    let Places { web, second, tcp, rejects: [connections, sessions, contents], unheard, mixed } = places;
    format!(
        "global\n nbthread 1\n maxconn 200\n stats timeout 20s\n stats socket {}/admin.sock level admin\n \
         stats socket {}/user.sock level user\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n retries 1\n option socket-stats\n\
         frontend web\n id 17\n rate-limit sessions 900\n bind {web} name first\n bind {second} maxconn 50\n \
         monitor-uri /monitor\n http-request deny if {{ path /denied }}\n http-request reject if {{ path /rejected }}\n \
         http-request tarpit if {{ path /held }}\n timeout tarpit 10\n http-request redirect location / if {{ path /moved }}\n \
         http-request return status 200 if {{ path /here }}\n use_backend empty if {{ path /empty }}\n use_backend gone if {{ path /gone }}\n \
         default_backend app\n\
         backend app\n http-request deny if {{ path /behind }}\n http-request return status 200 if {{ path /there }}\n \
         http-request set-var(txn.late) bool(true) if {{ path /late }}\n http-response deny if {{ var(txn.late) -m bool }}\n \
         balance leastconn\n cookie SRV insert indirect nocache\n \
         server a {origin} check inter 50ms cookie one weight 10 maxconn 40 maxqueue 7\n \
         server dead 127.0.0.1:9 check inter 50ms rise 3 fall 2 backup\n server m {origin} disabled weight 0\n \
         server t {origin} track a slowstart 60s backup\n\
         backend gone\n server x 127.0.0.1:9 pool-max-conn 4\n\
         backend empty\n\
         listen through\n mode tcp\n bind {tcp}\n server s {origin} id 9\n\
         listen guarded\n mode tcp\n bind {connections}\n tcp-request connection reject\n server s {origin}\n\
         listen watched\n mode tcp\n bind {sessions}\n tcp-request session reject\n server s {origin}\n\
         listen judged\n mode tcp\n bind {contents}\n tcp-request content reject\n server s {origin}\n\
         listen unheard\n mode tcp\n bind {unheard}\n tcp-response content reject\n server s {origin}\n\
         frontend mixed\n mode tcp\n bind {mixed}\n default_backend served\n\
         backend served\n http-request deny if {{ path /denied }}\n server s {origin}\n\
         listen off\n disabled\n bind 127.0.0.1:9\n",
        folder.display(),
        folder.display(),
    )
}

/// One request over a connection of its own; the status of the answer.
#[track_caller]
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned()
}

fn traffic(places: &Places) {
    let requests = [
        ("/", "200", 7),
        ("/denied", "403", 2),
        ("/rejected", "", 1),
        ("/held", "500", 1),
        ("/moved", "302", 3),
        ("/here", "200", 1),
        ("/monitor", "200", 2),
        ("/behind", "403", 3),
        ("/there", "200", 1),
        ("/late", "502", 4),
        ("/empty", "503", 1),
        ("/gone", "503", 2),
    ];
    for (path, status, count) in requests {
        for _ in 0..count {
            assert_eq!(get(places.web, path), status, "{path}");
        }
    }
    assert_eq!(get(places.second, "/"), "200");
    assert_eq!(get(places.tcp, "/"), "200");
    for (address, count) in places.rejects.into_iter().zip(1..) {
        for _ in 0..count {
            let mut rejected = TcpStream::connect(address).unwrap();
            let _ = rejected.read_to_end(&mut Vec::new());
        }
    }
    let mut unheard = TcpStream::connect(places.unheard).unwrap();
    let _ = unheard.read_to_end(&mut Vec::new());
    for (path, status) in [("/", "200"), ("/", "200"), ("/denied", "403")] {
        assert_eq!(get(places.mixed, path), status, "{path}");
    }
    let mut junk = TcpStream::connect(places.web).unwrap();
    junk.write_all(b"this is no request\r\n\r\n").unwrap();
    let mut answer = String::new();
    junk.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.") && answer.contains(" 400 "), "{answer}");
}

/// Waits until what ended is counted and the checks have said what they will.
fn settled(socket: &Path) -> Table {
    let mut found = Table::new();
    until("checks and counters settle", || {
        found = table(&socat(socket, "show stat\n"));
        cell(&found, "app", "a", "check_status") == "L7OK" || cell(&found, "app", "a", "check_status") == "L4OK"
    });
    until("the server that is not there is down", || {
        found = table(&socat(socket, "show stat\n"));
        let is_quiet = |proxy| cell(&found, proxy, "FRONTEND", "scur") == "0";
        // HAProxy marks a check that is under way with an asterisk, before which there is less to see.
        let between_checks = |server| !cell(&found, "app", server, "check_status").starts_with('*');
        let is_still = ["web", "through", "unheard", "mixed"].into_iter().all(is_quiet)
            && between_checks("a")
            && between_checks("dead");
        cell(&found, "app", "dead", "status") == "DOWN" && is_still
    });
    found
}

#[test]
fn the_table_after_the_same_traffic_is_that_of_haproxy() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (ours, theirs) = (places(), places());
    let start = |folder: &Path, places: &Places| config(folder, places, origin.address());
    let both = Both::start_each(|folder| start(folder, &ours), |folder| start(folder, &theirs));
    let (baton, haproxy) = (both.baton("admin.sock"), both.haproxy("admin.sock"));
    for socket in [&baton, &haproxy] {
        settled(socket);
    }
    traffic(&ours);
    traffic(&theirs);
    let (found, expected) = (settled(&baton), settled(&haproxy));
    compare(&found, &expected);
    let header = |socket: &Path| socat(socket, "show stat\n").lines().next().map(str::to_owned);
    assert_eq!(header(&baton), header(&haproxy));
    // The rows of a filter, and their order.
    for filter in
        ["web 1 -1", "app 4 -1", "-1 4 -1 up", "-1 4 -1 no-maint", "17 8 2", "-1 -1 9", "app 2 5", "-1 2 -1 up"]
    {
        let rows = |socket: &Path| -> Vec<String> {
            let text = socat(socket, format!("show stat {filter}\n"));
            let row = |line: &str| line.splitn(3, ',').take(2).collect::<Vec<_>>().join("/");
            text.lines().map(|line| format!("{} {}", row(line), line.split(',').nth(17).unwrap_or_default())).collect()
        };
        assert_eq!(rows(&baton), rows(&haproxy), "{filter}");
    }
    // What a user does not see.
    let user = table(&socat(&both.baton("user.sock"), "show stat\n"));
    for (column, row) in [("addr", "a"), ("cookie", "a"), ("algo", "BACKEND")] {
        assert_eq!(cell(&user, "app", row, column), "", "{column}");
    }
}

fn compare(found: &Table, expected: &Table) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for (key, row) in expected {
        for (column, value) in row.iter().filter(|(column, _)| !NOT_COMPARED.contains(&column.as_str())) {
            let ours = &found[key][column];
            // Ports are each program's own.
            let is_same = ours == value || (column == "addr" && ours.split(':').next() == value.split(':').next());
            if !is_same {
                wrong.push(format!("{}/{} {column}: {ours:?}, HAProxy {value:?}", key.0, key.1));
            }
        }
        // A cell is empty in both or in none, whatever stands in it.
        let empty = |row: &std::collections::BTreeMap<String, String>| -> Vec<String> {
            row.iter().filter(|(_, cell)| cell.is_empty()).map(|(column, _)| column.clone()).collect()
        };
        if empty(row) != empty(&found[key]) {
            wrong.push(format!("{}/{}: empty {:?}, HAProxy {:?}", key.0, key.1, empty(&found[key]), empty(row)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value of `show info` that only Baton has, behind all others.
const OWN: &str = "Maxconn_reason";

/// Every line up to its value.
fn keys(text: &str, typed: bool) -> Vec<String> {
    let key = |line: &str| match typed {
        true => line.splitn(4, ':').take(3).collect::<Vec<_>>().join(":"),
        false => line.split(':').next().unwrap_or_default().to_owned(),
    };
    text.lines().filter(|line| !line.contains(OWN)).map(key).collect()
}

#[test]
fn typed_forms_have_the_names_places_and_types_of_haproxy() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (ours, theirs) = (places(), places());
    let start = |folder: &Path, places: &Places| config(folder, places, origin.address());
    let both = Both::start_each(|folder| start(folder, &ours), |folder| start(folder, &theirs));
    let (baton, haproxy) = (both.baton("admin.sock"), both.haproxy("admin.sock"));
    settled(&baton);
    settled(&haproxy);
    let ask = |socket: &Path, command: &str| socat(socket, format!("{command}\n"));
    for (command, typed) in [
        ("show info", false),
        ("show info float", false),
        ("show info typed", true),
        ("show info typed float", true),
        ("show stat typed", true),
    ] {
        let (found, expected) = (keys(&ask(&baton, command), typed), keys(&ask(&haproxy, command), typed));
        let first = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(first, None, "{command}");
        assert_eq!(found.len(), expected.len(), "{command}");
    }
    for command in ["show info json", "show stat json", "show info json float"] {
        let shape = |socket: &Path| {
            let text = ask(socket, command);
            let json: serde_json::Value =
                serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("{error}: {text}"));
            let mut shape = Vec::new();
            without_values(&json, &mut shape);
            shape
        };
        let (found, expected) = (shape(&baton), shape(&haproxy));
        let first = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!((first, found.len()), (None, expected.len()), "{command}");
    }
    let lines = |command| ask(&baton, command).lines().filter(|line| !line.is_empty()).all(|line| line.ends_with('"'));
    assert!(lines("show info desc") && lines("show stat typed desc"));
}

/// Every field's description, without its value.
fn without_values(json: &serde_json::Value, out: &mut Vec<String>) {
    match json {
        serde_json::Value::Array(list) => list.iter().for_each(|one| without_values(one, out)),
        one if one["field"]["name"] == OWN => {}
        one => out.push(format!("{} {} {} {}", one["objType"], one["field"], one["tags"], one["value"]["type"])),
    }
}

#[test]
fn rates_and_times_are_measured_and_counters_can_be_cleared() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let folder = tempfile::tempdir().unwrap();
    let places = places();
    let _proxy = Proxy::start(&config(folder.path(), &places, origin.address()));
    let socket = folder.path().join("admin.sock");
    settled(&socket);
    let begun = Instant::now();
    for _ in 0..20 {
        get(places.web, "/");
    }
    let seen = table(&socat(&socket, "show stat\n"));
    let number = |table: &Table, proxy, service, column| cell(table, proxy, service, column).parse::<u64>().unwrap();
    // A slow machine may have needed more than a second for it.
    if begun.elapsed().as_millis() < 900 {
        for (proxy, service, column) in [
            ("web", "FRONTEND", "rate"),
            ("web", "FRONTEND", "req_rate"),
            ("app", "BACKEND", "rate"),
            ("app", "a", "rate"),
        ] {
            assert!(number(&seen, proxy, service, column) > 0, "{proxy}/{service} {column}");
        }
        assert!(
            socat(&socket, "show info\n")
                .lines()
                .any(|line| line.strip_prefix("SessRate: ").is_some_and(|rate| rate != "0"))
        );
    }
    assert!(["0", "1", "2"].contains(&cell(&seen, "app", "a", "lastsess")), "{}", cell(&seen, "app", "a", "lastsess"));
    assert_eq!(cell(&seen, "empty", "BACKEND", "lastsess"), "-1");
    until("the most in a second is known", || {
        number(&table(&socat(&socket, "show stat\n")), "web", "FRONTEND", "rate_max") > 0
    });
    until("the last second is over", || number(&table(&socat(&socket, "show stat\n")), "web", "FRONTEND", "rate") == 0);

    let slow = Slow::start(30);
    let text = config(folder.path(), &places, slow.address);
    drop(_proxy);
    let _proxy = Proxy::start(&text);
    until("it is served", || get(places.tcp, "/") == "200" && get(places.web, "/") == "200");
    let seen = table(&socat(&socket, "show stat\n"));
    for (proxy, service, column) in [
        ("app", "BACKEND", "rtime"),
        ("app", "a", "rtime"),
        ("app", "a", "ttime"),
        ("app", "a", "rtime_max"),
        ("through", "s", "ttime"),
    ] {
        assert!(
            number(&seen, proxy, service, column) >= 20,
            "{proxy}/{service} {column}: {}",
            cell(&seen, proxy, service, column)
        );
    }
    assert_eq!(cell(&seen, "through", "s", "rtime"), "0", "there are no responses in mode tcp");

    assert_eq!(socat(&socket, "operator;clear counters all\n"), "\nPermission denied\n\n");
    assert_eq!(socat(&socket, "clear counters\n"), "\n");
    let seen = table(&socat(&socket, "show stat\n"));
    assert_eq!((cell(&seen, "app", "a", "rtime_max"), cell(&seen, "web", "FRONTEND", "smax")), ("0", "0"));
    assert!(number(&seen, "web", "FRONTEND", "stot") > 0, "only the maxima");
    assert_eq!(socat(&socket, "clear counters all\n"), "\n");
    let seen = table(&socat(&socket, "show stat\n"));
    for (key, row) in &seen {
        for column in ["stot", "bin", "bout", "hrsp_2xx", "req_tot", "lbtot", "econ", "dreq", "chkdown", "smax"] {
            assert!(["", "0"].contains(&row[column].as_str()), "{key:?} {column}: {}", row[column]);
        }
    }
    get(places.web, "/");
    until("what comes after is counted", || {
        number(&table(&socat(&socket, "show stat\n")), "web", "FRONTEND", "hrsp_2xx") == 1
    });
}

/// An origin that takes its time for every answer.
struct Slow {
    address: SocketAddr,
}

impl Slow {
    fn start(ms: u64) -> Slow {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut head = [0; 4096];
                    if stream.read(&mut head).is_ok_and(|length| length > 0) {
                        std::thread::sleep(std::time::Duration::from_millis(ms));
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    }
                });
            }
        });
        Slow { address }
    }
}

#[test]
fn what_the_process_does_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let crt = folder.path().join("crt.pem");
    let issued = Authority::new("Test").unwrap().issue(&CertificateWanted::server(["a.example"])).unwrap();
    std::fs::write(&crt, issued.bundle_pem()).unwrap();
    let (plain, encrypted, socket) = (free_address(), free_address(), folder.path().join("socket"));
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\n maxpipes 7\n stats socket {} level admin\ndefaults\n mode http\n timeout connect 5s\n \
         timeout client 30s\n timeout server 30s\n option splice-auto\nlisten front\n bind {plain}\n http-reuse never\n \
         server s {encrypted} ssl verify none no-ssl-reuse\nfrontend back\n bind {encrypted} ssl crt {}\n \
         http-request return status 200\n",
        socket.display(),
        crt.display()
    ));
    let figure = |name: &str| {
        let text = socat(&socket, "show info\n");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::parse::<u32>);
        value.unwrap_or_else(|| panic!("no {name} in\n{text}")).expect("a number")
    };
    assert_eq!((figure("Maxpipes"), figure("PipesUsed"), figure("SslBackendMaxKeyRate")), (7, 0, 0));
    until("handshakes with servers are counted, and the processor's time", || {
        (0..5).for_each(|_| assert_eq!(get(plain, "/"), "200"));
        figure("SslBackendMaxKeyRate") > 0 && figure("Idle_pct") < 100
    });
}
