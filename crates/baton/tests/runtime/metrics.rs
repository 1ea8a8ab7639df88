//! `http-request use-service prometheus-exporter`: what it exports, compared with Debian's haproxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use baton_prove::certificates::{Authority, CertificateSpec};
use baton_prove::{Origin, OriginOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::agents::Agent;
use crate::peers::{Both, socat};
use crate::support::{Proxy, free_address, until};
use crate::table::{cell, table};

/// Every kind of object in many states. What each is for is in its name.
fn config(folder: &Path, [metrics, web, tcp]: [SocketAddr; 3], origin: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\n stats socket {}/admin.sock level admin\n stats timeout 20s\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend metrics\n bind {metrics}\n http-request use-service prometheus-exporter if {{ path /metrics }}\n \
         default_backend app\n\
         frontend web\n option socket-stats\n bind {web} name first\n default_backend app\n\
         frontend raw\n mode tcp\n bind {tcp}\n default_backend rawback\n\
         backend app\n balance roundrobin\n cookie SRV insert\n \
         server up {origin} check inter 50ms cookie one maxconn 40 maxqueue 7 pool-max-conn 5\n \
         server down 127.0.0.1:9 check inter 50ms fall 1 backup\n server maint {origin} disabled\n server unchecked {origin} weight 3\n\
         backend rawback\n mode tcp\n server s {origin}\n\
         backend agents\n server s {origin} agent-check agent-port {busy} agent-inter 50ms\n \
         server d {origin} agent-check agent-port {draining} agent-inter 50ms\n server t {origin} track agents/s\n\
         backend dead\n server x 127.0.0.1:9 check inter 50ms fall 1\n\
         backend empty\n stick-table type string len 10 size 77\n\
         listen through\n bind {}/through.sock\n stick-table type ip size 1k expire 1m\n server s {origin}\n\
         listen off\n disabled\n bind 127.0.0.1:9\n",
        folder.display(),
        folder.display(),
        busy = AGENTS[0].port,
        draining = AGENTS[1].port,
    )
}

/// What they say, they say to every program.
static AGENTS: LazyLock<[Agent; 2]> = LazyLock::new(|| [Agent::start(b"down 30% #busy\n"), Agent::start(b"drain\n")]);

/// Families that differ, each with its reason.
const DIFFERENT_TYPES: &[(&str, &str)] = &[
    ("haproxy_process_pipes_used_total", "HAProxy calls a gauge a counter"),
    ("haproxy_process_pipes_free_total", "HAProxy calls a gauge a counter"),
    ("haproxy_process_http_comp_bytes_in_total", "HAProxy calls a rate a counter"),
    ("haproxy_process_http_comp_bytes_out_total", "HAProxy calls a rate a counter"),
];

/// A response of the exporter, by a client that everybody has.
pub fn scrape(address: SocketAddr, query: &str) -> (String, String) {
    let url = format!("http://{address}/metrics{query}");
    let out = Command::new("curl").args(["-s", "-g", "-m", "60", "-w", "%{http_code}", &url]).output();
    let out = String::from_utf8(out.expect("curl is installed by scripts/setup test").stdout).unwrap();
    let (body, status) = out.split_at(out.len() - 3);
    (status.to_owned(), body.to_owned())
}

/// An exposition that was read.
#[derive(Debug, Default)]
struct Exposition {
    /// The type of each family.
    types: BTreeMap<String, String>,
    /// The value of each series, by its name with its labels.
    series: BTreeMap<String, String>,
}

impl Exposition {
    /// Reads it, and complains about everything that a reader of the format may complain about.
    #[track_caller]
    fn read(text: &str) -> Exposition {
        let mut read = Exposition::default();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                assert!(help.split_once(' ').is_some_and(|(_, text)| !text.is_empty()), "{line}");
            } else if let Some(head) = line.strip_prefix("# TYPE ") {
                let (name, kind) = head.split_once(' ').expect(line);
                name.clone_into(&mut family);
                let before = read.types.insert(name.into(), kind.into());
                assert_eq!(before, None, "{name} is in two places");
            } else {
                let (name, value) = line.rsplit_once(' ').expect(line);
                assert!(
                    name == family || name.strip_prefix(&family).is_some_and(|rest| rest.starts_with('{')),
                    "{line}"
                );
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let before = read.series.insert(name.into(), value.into());
                assert_eq!(before, None, "{name} is there twice");
            }
        }
        read
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let value = self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", self.series.keys()));
        value.parse().expect(value)
    }
}

fn origin() -> baton_prove::OriginHandle {
    Origin::start(OriginOptions::new("o1")).expect("loopback has a free port")
}

fn is_settled(socket: &Path) -> bool {
    let stat = table(&socat(socket, "show stat\n"));
    let status = |proxy, server| cell(&stat, proxy, server, "status");
    status("dead", "x") == "DOWN"
        && status("app", "down") == "DOWN"
        && status("agents", "t") == "DOWN (agent)"
        && status("agents", "d") == "DRAIN (agent)"
        && cell(&stat, "app", "up", "check_status") == "L4OK"
}

/// Both programs, and the addresses of haproxy and of Baton.
pub fn both() -> (Both, [[SocketAddr; 3]; 2], baton_prove::OriginHandle) {
    let origin = origin();
    let places = [(); 2].map(|()| [(); 3].map(|()| free_address()));
    let baton = |folder: &Path| config(folder, places[1], origin.address());
    let haproxy = |folder: &Path| config(folder, places[0], origin.address());
    let both = Both::start_each(baton, haproxy);
    for socket in [both.haproxy("admin.sock"), both.baton("admin.sock")] {
        until("the servers are checked", || is_settled(&socket));
    }
    (both, places, origin)
}

#[test]
fn families_and_series_are_haproxys() {
    let (both, places, _origin) = both();
    // Its last check counts all the same.
    for socket in [both.haproxy("admin.sock"), both.baton("admin.sock")] {
        assert_eq!(socat(&socket, "set server dead/x state maint\n"), "\n");
    }
    let read = places.map(|[metrics, web, _]| {
        for path in ["/", "/a"] {
            assert!(
                Command::new("curl").args(["-s", &format!("http://{web}{path}")]).output().unwrap().status.success()
            );
        }
        let (status, text) = scrape(metrics, "");
        assert_eq!(status, "200", "{text}");
        Exposition::read(&text)
    });
    let [haproxy, baton] = read;
    let is_haproxys = |name: &&String| name.starts_with("haproxy_");
    let is_different = |name: &str| DIFFERENT_TYPES.iter().any(|(different, _)| *different == name);
    for (name, kind) in &haproxy.types {
        match is_different(name) {
            true => assert_ne!(baton.types.get(name), Some(kind), "{name} is the same by now"),
            false => assert_eq!(baton.types.get(name), Some(kind), "{name}"),
        }
    }
    assert_eq!(
        baton.types.keys().filter(is_haproxys).collect::<Vec<_>>(),
        haproxy.types.keys().collect::<Vec<_>>(),
        "no family more"
    );
    let series = |read: &Exposition| -> BTreeSet<String> {
        let all = read.series.keys().filter(is_haproxys);
        // The label of a version has the version.
        all.filter(|name| !name.starts_with("haproxy_process_build_info")).cloned().collect()
    };
    let (own, others) = (series(&baton), series(&haproxy));
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!((only(&own, &others), only(&others, &own)), (vec![], vec![]));
    // States are HAProxy's, and so is what both count alike.
    let is_counted_alike = |name: &&String| name.starts_with("haproxy_sticktable_");
    assert_eq!(own.iter().filter(is_counted_alike).count(), 4);
    for name in own.iter().filter(is_counted_alike) {
        assert_eq!(baton.series[name], haproxy.series[name], "{name}");
    }
    for name in own.iter().filter(|name| name.contains("state=\"") || name.contains("code=\"")) {
        assert_eq!(baton.series[name], haproxy.series[name], "{name}");
    }
    for name in own.iter().filter(|name| haproxy.series[*name] == "NaN") {
        assert_eq!(baton.series[name], "NaN", "{name}");
    }
    for name in ["haproxy_server_limit_sessions", "haproxy_server_queue_limit", "haproxy_server_idle_connections_limit"]
    {
        let name = format!("{name}{{proxy=\"app\",server=\"up\"}}");
        assert_eq!(baton.series[&name], haproxy.series[&name], "{name}");
    }
    assert!(baton.types.keys().any(|name| name.starts_with("baton_")));
}

#[test]
fn queries_are_read_as_by_haproxy() {
    let (_both, [[haproxy, ..], [baton, ..]], _origin) = both();
    let queries = [
        "",
        "?",
        "?scope",
        "?scope=",
        "?scope=*",
        "?scope=global",
        "?scope=Global",
        "?scope=frontend&scope=server",
        "?scope=&scope=server",
        "?scope=server&scope=",
        "?scope=foo",
        "?no-maint",
        "?no-maint&scope=server",
        "?filter=x",
        "?extra-counters",
        "?scope=server;scope=frontend",
        "?scope=%73erver",
        "?scope=server%zz",
        "?x=%",
        "?scope=ser+ver",
    ];
    for query in queries {
        let families = |exporter: SocketAddr| {
            let (status, text) = scrape(exporter, query);
            if status != "200" {
                return (status, text, BTreeSet::new());
            }
            let read = Exposition::read(&text);
            let is_server = |name: &&String| name.starts_with("haproxy_server_status");
            let servers = read.series.keys().filter(is_server).cloned();
            let names = read.types.into_keys().filter(|name| name.starts_with("haproxy_")).chain(servers).collect();
            (status, String::new(), names)
        };
        assert_eq!(families(baton), families(haproxy), "{query}");
    }
    let own = Exposition::read(&scrape(baton, "?scope=baton").1);
    assert!(!own.types.is_empty() && own.types.keys().all(|name| name.starts_with("baton_")));
}

#[test]
fn metrics_are_the_columns_and_lines_of_the_runtime_api() {
    let origin = origin();
    let (folder, addresses) = (tempfile::tempdir().unwrap(), [(); 3].map(|()| free_address()));
    let _proxy = Proxy::start(&config(folder.path(), addresses, origin.address()));
    let socket = folder.path().join("admin.sock");
    until("the servers are checked", || is_settled(&socket));
    for _ in 0..3 {
        Command::new("curl").args(["-s", &format!("http://{}/x", addresses[1])]).output().unwrap();
    }
    let read = Exposition::read(&scrape(addresses[0], "").1);
    let stat = table(&socat(&socket, "show stat\n"));
    for (series, object, column) in [
        ("haproxy_frontend_http_requests_total{proxy=\"web\"}", ("web", "FRONTEND"), "req_tot"),
        ("haproxy_listener_bytes_in_total{proxy=\"web\",listener=\"first\"}", ("web", "first"), "bin"),
        ("haproxy_backend_bytes_out_total{proxy=\"app\"}", ("app", "BACKEND"), "bout"),
        ("haproxy_server_sessions_total{proxy=\"app\",server=\"unchecked\"}", ("app", "unchecked"), "stot"),
        ("haproxy_server_weight{proxy=\"app\",server=\"unchecked\"}", ("app", "unchecked"), "weight"),
        ("haproxy_server_check_up_down_total{proxy=\"app\",server=\"down\"}", ("app", "down"), "chkdown"),
    ] {
        let value: f64 = cell(&stat, object.0, object.1, column).parse().unwrap();
        assert!(value > 0.0, "{column}");
        assert_eq!(read.value(series), value, "{series}");
    }
    let info = socat(&socket, "show info\n");
    let line =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap().parse::<f64>();
    assert_eq!(read.value("haproxy_process_max_connections"), line("Maxconn").unwrap());
    assert_eq!(read.value("haproxy_process_listeners"), line("Listeners").unwrap());
}

#[test]
fn batons_own_metrics_follow_what_happens() {
    let (folder, metrics, secure) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    let missing = folder.path().join("log");
    let certificate = folder.path().join("site.pem");
    let authority = Authority::new("the authority").unwrap();
    let issued = authority.issue(&CertificateSpec::server(["site.example"])).unwrap();
    fs::write(&certificate, issued.bundle_pem()).unwrap();
    let text = |more: &str| {
        format!(
            "global\n nbthread 2\n log {} local0\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 5s\n\
             frontend metrics\n bind {metrics}\n http-request use-service prometheus-exporter if {{ path /metrics }}\n{more}\
             frontend secure\n bind {secure} ssl crt {}\n http-request return status 200\n",
            missing.display(),
            certificate.display()
        )
    };
    let proxy = Proxy::start(&text(""));
    let target = format!("Log target '{}': not available (No such file or directory)", missing.display());
    until("the alert of the start", || proxy.said().contains(&target));
    let own = || Exposition::read(&scrape(metrics, "?scope=baton").1);
    assert_eq!(own().value("baton_reloads_total{result=\"applied\"}"), 0.0);
    assert!(!own().types.contains_key("baton_last_reload_successful"), "there was none");
    proxy.change(&text(" option httplog\n log global\n"));
    proxy.change_refused("frontend nonsense\n bind here\n");
    let now = own();
    assert_eq!(now.value("baton_reloads_total{result=\"applied\"}"), 1.0);
    assert_eq!(now.value("baton_reloads_total{result=\"rejected\"}"), 1.0);
    assert_eq!(now.value("baton_last_reload_successful"), 0.0);
    assert_eq!(now.value("baton_configuration_generation"), 2.0);
    assert!(now.value("baton_reload_seconds_total") > 0.0);
    for thread in [1, 2] {
        assert!(now.value(&format!("baton_event_loop_latency_seconds{{thread=\"{thread}\"}}")) < 60.0);
    }
    let expiry =
        now.value(&format!("baton_certificate_expiry_timestamp_seconds{{file=\"{}\"}}", certificate.display()));
    assert!(expiry > now.value("baton_last_reload_timestamp_seconds"), "{expiry}");
    // Requests are logged since the reload, to a target that is not there.
    let lost = format!("baton_dropped_log_lines_total{{target=\"{}\"}}", missing.display());
    until("the lost lines are counted", || own().value(&lost) > 1.0);
    let collector = UnixDatagram::bind(&missing).unwrap();
    let before = own().value(&lost);
    let mut line = [0; 1024];
    let length = collector.recv(&mut line).unwrap();
    assert!(String::from_utf8_lossy(&line[..length]).contains("GET /metrics"), "what comes back is used at once");
    assert_eq!(own().value(&lost), before);
}

#[test]
fn thousands_of_servers_and_a_reader_that_does_not_read_delay_nobody() {
    const SERVERS: usize = 3000;
    let (folder, metrics) = (tempfile::tempdir().unwrap(), free_address());
    let text = format!(
        "global\n nbthread 1\n stats socket {}/admin.sock\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n \
         timeout server 5s\nfrontend metrics\n bind {metrics}\n \
         http-request use-service prometheus-exporter if {{ path /metrics }}\n http-request return status 200\n\
         backend app\n server-template s 1-{SERVERS} 127.0.0.1:9\n",
        folder.path().display()
    );
    let _proxy = Proxy::start(&text);
    let socket = folder.path().join("admin.sock");
    let mut slow = TcpStream::connect(metrics).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let scraping = thread::spawn(move || scrape(metrics, "?scope=server"));
    let mut answers = 0;
    while !scraping.is_finished() {
        assert!(socat(&socket, "show version\n").contains("baton"));
        answers += 1;
    }
    assert!(answers > 2, "the control thread answered {answers} times during a scrape");
    let (status, text) = scraping.join().unwrap();
    assert_eq!(status, "200");
    let read = Exposition::read(&text);
    assert_eq!(read.series.keys().filter(|name| name.starts_with("haproxy_server_uweight")).count(), SERVERS);
    // One that reads nothing still has its connection, and holds up nothing.
    assert_eq!(scrape(metrics, "?scope=global").0, "200");
    drop(slow);
}

/// What a scrape found, compared with what the one before did.
struct Scrapes {
    metrics: SocketAddr,
    before: Exposition,
}

impl Scrapes {
    /// No counter went back since the last scrape. Gives how many were compared.
    #[track_caller]
    fn step(&mut self, what: &str) -> usize {
        let now = Exposition::read(&scrape(self.metrics, "").1);
        let is_counter = |name: &str| now.types.get(name).is_some_and(|kind| kind == "counter");
        let before = std::mem::take(&mut self.before);
        let counters =
            before.series.iter().filter(|(series, _)| is_counter(series.split('{').next().unwrap_or_default()));
        let mut compared = 0;
        for (series, value) in counters.filter(|(series, _)| !series.contains("\"gone\"")) {
            let (old, new): (f64, f64) = (value.parse().unwrap(), now.value(series));
            assert!(new >= old || new.is_nan() && old.is_nan(), "{series} goes from {old} to {new} by {what}");
            compared += 1;
        }
        self.before = now;
        compared
    }
}

fn requests(address: SocketAddr) {
    for _ in 0..20 {
        Command::new("curl").args(["-s", &format!("http://{address}/x")]).output().unwrap();
    }
}

#[test]
fn counters_never_go_back() {
    let origin = origin();
    let (folder, addresses) = (tempfile::tempdir().unwrap(), [(); 3].map(|()| free_address()));
    let [metrics, web, _] = addresses;
    let missing = folder.path().join("log");
    let text = config(folder.path(), addresses, origin.address())
        .replace("global\n", &format!("global\n log {} local0\n", missing.display()))
        .replace("defaults\n", "defaults\n log global\n option httplog\n");
    let proxy = Proxy::start(&text);
    until("the servers are checked", || is_settled(&folder.path().join("admin.sock")));
    let mut scrapes = Scrapes { metrics, before: Exposition::default() };
    scrapes.step("nothing");
    let gone = free_address();
    let more = format!("{text}frontend gone\n bind {gone}\n http-request return status 200\n");
    proxy.change(&more);
    requests(web);
    requests(gone);
    assert!(scrapes.step("traffic") > 100);
    proxy.change(&text);
    assert!(scrapes.step("a frontend that a reload removes") > 100);
    let status = |proxy: &Proxy| match ask(Whom::Pid(proxy.pid()), Request::Status) {
        Ok(Reply::Status(status)) => Some(status.pid),
        _ => None,
    };
    let next = proxy.replace(&[]);
    until("the process before has ended", || status(&proxy).is_none());
    assert!(scrapes.step("a takeover") > 100);
    assert!(next.status().log_targets.iter().any(|target| target.target == missing.display().to_string()));
    // The next one has a master, whose workers are killed, with traffic before each time.
    let last = next.replace(&["-W"]);
    until("the process before has ended", || status(&next).is_none());
    assert!(scrapes.step("a takeover by a master") > 100);
    for what in ["the first crash", "the second crash"] {
        requests(web);
        assert!(scrapes.step("traffic") > 100);
        let pid = status(&last).expect("it serves");
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("the worker lives");
        until("another worker serves", || status(&last).is_some_and(|next| next != pid));
        assert!(scrapes.step(what) > 100);
        let downs = "haproxy_backend_check_up_down_total{proxy=\"dead\"}";
        assert_eq!(scrapes.before.value(downs), 1.0, "it went down once, before all of these processes");
    }
}
