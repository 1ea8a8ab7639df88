//! Checks against real sockets on ports of the system's choice. Nothing sleeps: a test waits for the line that the checker
//! logs, or for what a scripted server receives, and gives up after [`PATIENCE`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{
    Address, Check, CheckExpect, CheckSettings, CheckStep, CheckType, HttpCheckSend, InitState, Model, Observe,
    OnError, Proxy, Role, Server,
};
use baton_proxy::Registry;
use baton_proxy::balance::{Admin, BackendState, HealthState, Observed, ServerState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;

/// How long a test waits for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(10);

const FINE: &str = "HTTP/1.0 200 OK\r\n\r\nhello";
const BROKEN: &str = "HTTP/1.0 500 Oops\r\n\r\n";
const MISSING: &str = "HTTP/1.0 404 Not Found\r\n\r\n";

/// A server whose answer can be changed; empty: it says nothing and keeps the connection.
struct Scripted {
    address: SocketAddr,
    answer: Rc<RefCell<String>>,
    requests: mpsc::UnboundedReceiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Scripted {
    async fn new(answer: &str) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let answer = Rc::new(RefCell::new(answer.to_string()));
        let (send, requests) = mpsc::unbounded_channel();
        let say = Rc::clone(&answer);
        let task = tokio::task::spawn_local(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).await.unwrap_or(0);
                let _ = send.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
                let answer = say.borrow().clone();
                if answer.is_empty() {
                    held.push(stream);
                } else {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }
        });
        Scripted { address, answer, requests, task }
    }

    fn say(&self, answer: &str) {
        *self.answer.borrow_mut() = answer.into();
    }

    async fn request(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("a check comes").expect("the server runs")
    }

    /// Closes the listening socket: connections are refused from now on.
    async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A checker with its backends and its lines.
struct Bench {
    checker: Checker,
    backends: HashMap<String, Arc<BackendState>>,
    /// Backends that the change path says are what they were.
    same: HashSet<&'static str>,
    lines: mpsc::UnboundedReceiver<Event>,
}

impl Bench {
    fn new() -> Bench {
        let (send, lines) = mpsc::unbounded_channel();
        let checker = Checker::new(Arc::new(Registry::new(1, Instant::now())), move |event| {
            let _ = send.send(event);
        });
        Bench { checker, backends: HashMap::new(), same: HashSet::new(), lines }
    }

    fn apply(&mut self, proxies: Vec<Proxy>) {
        let now = Instant::now();
        let model = Model { proxies: proxies.into_iter().map(Arc::new).collect(), ..Model::default() };
        for proxy in &model.proxies {
            match self.backends.get(&*proxy.name) {
                Some(backend) => backend.reconfigure(proxy, now),
                None => {
                    self.backends.insert(proxy.name.to_string(), BackendState::new(proxy, now));
                }
            }
        }
        let changed = model
            .proxies
            .iter()
            .filter(|proxy| !self.same.contains(&*proxy.name))
            .map(|proxy| ChangedBackend { proxy: Arc::clone(proxy), state: Arc::clone(&self.backends[&*proxy.name]) });
        let before: Vec<Arc<str>> = self.backends.values().map(|backend| Arc::clone(backend.name())).collect();
        let gone = before.into_iter().filter(|name| model.backend(name).is_none());
        self.checker.apply(&model, |name| self.backends.get(name).cloned(), changed, gone);
    }

    fn server(&self, backend: &str, name: &str) -> Arc<ServerState> {
        self.backends[backend].server(name).expect("the server is there")
    }

    /// The next line, durations left out.
    async fn line(&mut self) -> String {
        let event = tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("a line comes").expect("it logs");
        let text = event.text;
        let Some(start) = text.find(", check duration: ") else { return text };
        let end = text[start..].find("ms").expect("a duration ends with its unit") + start + 2;
        format!("{}{}", &text[..start], &text[end..])
    }
}

fn server(name: &str, address: SocketAddr, check: CheckSettings) -> Arc<Server> {
    Arc::new(Server { check, ..Server::new(name, 1, Address::Inet(address)) })
}

/// `check inter 20ms`.
fn quick() -> CheckSettings {
    CheckSettings { enabled: true, inter: Duration::from_millis(20), ..CheckSettings::default() }
}

fn proxy(name: &str, kind: CheckType, servers: Vec<Arc<Server>>) -> Proxy {
    let mut proxy = Proxy::new(name, Role::Backend);
    proxy.check = Check { kind, ..Check::default() };
    proxy.timeouts.check = Some(Duration::from_secs(5));
    proxy.servers = servers;
    proxy
}

fn httpchk() -> CheckType {
    CheckType::Http(vec![CheckStep::Send(HttpCheckSend::default())])
}

/// Runs a test on a runtime like the control thread's.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_port_that_opens_is_up_and_one_that_refuses_is_down() {
    run(async {
        let mut peer = Scripted::new("").await;
        let mut bench = Bench::new();
        let mut app = proxy("app", CheckType::Connect, vec![server("s1", peer.address, quick())]);
        app.check.log = true;
        bench.apply(vec![app]);
        assert_eq!(
            bench.line().await,
            "Health check for server app/s1 succeeded, reason: Layer4 check passed, status: 3/3 UP."
        );
        // A connection that ends at once is not completed, so that servers do not log it.
        assert!(peer.requests.try_recv().is_err());
        peer.stop().await;
        assert_eq!(
            bench.line().await,
            "Health check for server app/s1 failed, reason: Layer4 connection problem, info: \"Connection refused\", \
             status: 2/3 UP."
        );
        assert!(bench.line().await.ends_with("status: 1/3 UP."));
        assert!(bench.line().await.ends_with("status: 0/2 DOWN."));
        // The line before has the reason.
        assert_eq!(
            bench.line().await,
            "Server app/s1 is DOWN. 0 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue."
        );
        assert_eq!(bench.line().await, "backend app has no server available!");
        assert_eq!(bench.server("app", "s1").health(), HealthState::Down);
    });
}

#[test]
fn the_reason_is_in_the_line_where_results_are_not_logged() {
    run(async {
        let peer = Scripted::new("").await;
        let address = peer.address;
        peer.stop().await;
        let mut bench = Bench::new();
        bench.apply(vec![proxy("app", CheckType::Connect, vec![server("s1", address, quick())])]);
        assert_eq!(
            bench.line().await,
            "Server app/s1 is DOWN, reason: Layer4 connection problem, info: \"Connection refused\". 0 active and 0 backup \
             servers left. 0 sessions active, 0 requeued, 0 remaining in queue."
        );
    });
}

/// Checks one after the other use one socket, also when the server closes first, resets, or is gone for a while.
#[test]
fn checks_pass_a_socket_on() {
    run(async {
        let mut peer = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        bench.apply(vec![proxy("app", httpchk(), vec![server("s1", peer.address, quick())])]);
        for _ in 0..5 {
            assert_eq!(peer.request().await, "OPTIONS / HTTP/1.0\r\n\r\n");
        }
        assert_eq!(bench.checker.open_sockets(), 1);
        assert_eq!(bench.server("app", "s1").check_report().status, "L7OK");
        peer.say(BROKEN);
        assert!(bench.line().await.contains("is DOWN, reason: Layer7 wrong status, code: 500"));
        bench.line().await;
        let address = peer.address;
        peer.stop().await;
        // Refused: such a socket is closed, and the next check opens another one.
        while bench.server("app", "s1").check_report().status != "L4CON" {
            tokio::task::yield_now().await;
        }
        let listener = tokio::net::TcpListener::bind(address).await.expect("the port is free again");
        tokio::task::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 100]).await;
                let _ = stream.write_all(FINE.as_bytes()).await;
            }
        });
        assert!(bench.line().await.contains("is UP, reason: Layer7 check passed, code: 200"));
        assert!(bench.checker.open_sockets() <= 2);
        bench.apply(Vec::new());
        assert_eq!(bench.checker.open_sockets(), 0);
    });
}

#[test]
fn statuses_decide_over_an_http_check() {
    run(async {
        let mut peer = Scripted::new(BROKEN).await;
        let mut bench = Bench::new();
        let mut settings = proxy("app", httpchk(), vec![server("s1", peer.address, quick())]);
        settings.check.disable_on_404 = true;
        bench.apply(vec![settings]);
        assert_eq!(peer.request().await, "OPTIONS / HTTP/1.0\r\n\r\n");
        assert!(
            bench
                .line()
                .await
                .starts_with("Server app/s1 is DOWN, reason: Layer7 wrong status, code: 500, info: \"Oops\". 0 active")
        );
        bench.line().await;
        peer.say(FINE);
        assert_eq!(
            bench.line().await,
            "Server app/s1 is UP, reason: Layer7 check passed, code: 200. 1 active and 0 backup servers online. 0 \
             sessions requeued, 0 total in queue."
        );
        peer.say(MISSING);
        let line = bench.line().await;
        assert!(line.starts_with("Server app/s1 is stopping, reason: Layer7 check conditionally passed, code: 404."));
        let state = bench.server("app", "s1");
        assert!(state.is_running() && !state.is_usable());
    });
}

#[test]
fn silence_and_junk_have_their_words() {
    run(async {
        let silent = Scripted::new("").await;
        let junk = Scripted::new("hello\r\n").await;
        let mut bench = Bench::new();
        let mut first = proxy("a", httpchk(), vec![server("s1", silent.address, quick())]);
        first.timeouts.check = Some(Duration::from_millis(50));
        bench.apply(vec![first]);
        assert!(bench.line().await.starts_with("Server a/s1 is DOWN, reason: Layer7 timeout. 0"));
        bench.line().await;
        bench.apply(vec![proxy("b", httpchk(), vec![server("s1", junk.address, quick())])]);
        junk.say("hello\r\n\r\n");
        let line = bench.line().await;
        assert!(line.starts_with("Server b/s1 is DOWN, reason: Layer7 "), "{line}");
    });
}

/// The server shares our thread, and keeps it for longer than a check may take between accepting a connection and reading it. So
/// the request can only be sent when the whole time is over by the clock, and the response cannot be there yet.
#[test]
fn a_check_does_not_fail_by_our_own_delay() {
    run(async {
        let settings = CheckSettings { inter: Duration::from_millis(100), ..quick() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let mut app = proxy("app", httpchk(), vec![server("s1", listener.local_addr().unwrap(), settings.clone())]);
        app.timeouts.check = None;
        app.check.log = true;
        tokio::task::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let begun = Instant::now();
                while begun.elapsed() < settings.inter * 2 {
                    std::hint::spin_loop();
                }
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(FINE.as_bytes()).await;
            }
        });
        let mut bench = Bench::new();
        bench.apply(vec![app]);
        let line = bench.line().await;
        assert!(line.starts_with("Health check for server app/s1 succeeded"), "{line}");
    });
}

#[test]
fn contents_are_judged_when_the_server_closed() {
    run(async {
        let peer = Scripted::new("HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody").await;
        let mut bench = Bench::new();
        let expect = CheckStep::Expect(CheckExpect {
            negated: true,
            kind: "string".into(),
            pattern: vec!["body".into()],
            ..CheckExpect::default()
        });
        let steps = vec![CheckStep::Send(HttpCheckSend::default()), expect];
        let mut settings = proxy("app", CheckType::Http(steps), vec![server("s1", peer.address, quick())]);
        settings.check.log = true;
        bench.apply(vec![settings]);
        assert_eq!(
            bench.line().await,
            "Health check for server app/s1 failed, reason: Layer7 invalid response, info: \"HTTP check matched unwanted \
             content\", status: 0/2 DOWN."
        );
        assert!(bench.line().await.starts_with("Server app/s1 is DOWN. 0 active"));
    });
}

#[test]
fn a_proxy_header_comes_first() {
    run(async {
        let mut peer = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let check = CheckSettings { send_proxy: true, ..quick() };
        bench.apply(vec![proxy("app", httpchk(), vec![server("s1", peer.address, check)])]);
        let request = peer.request().await;
        assert!(request.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{request}");
    });
}

#[test]
fn a_reload_leaves_unchanged_checks_alone_and_keeps_counters() {
    run(async {
        let mut peer = Scripted::new(BROKEN).await;
        let other = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let app =
            |check: CheckSettings, peer: &Scripted| proxy("app", httpchk(), vec![server("s1", peer.address, check)]);
        bench.apply(vec![app(quick(), &peer)]);
        assert!(bench.line().await.contains("is DOWN"));
        bench.line().await;
        // Another backend comes: the first one's state is not touched.
        bench.apply(vec![app(quick(), &peer), proxy("new", httpchk(), vec![server("s1", other.address, quick())])]);
        assert_eq!((bench.checker.len(), bench.server("app", "s1").health()), (2, HealthState::Down));
        // Other settings: it is checked again, and is still down until `rise` checks are good.
        let slower = CheckSettings { rise: 3, init_state: InitState::Up, ..quick() };
        bench.apply(vec![app(slower, &peer)]);
        assert_eq!((bench.checker.len(), bench.server("app", "s1").health()), (1, HealthState::Down));
        peer.say(FINE);
        assert!(bench.line().await.starts_with("Server app/s1 is UP"));
        // No check any more: nothing comes, and the server counts as up.
        bench.apply(vec![app(CheckSettings::default(), &peer)]);
        assert!(bench.checker.is_empty() && bench.server("app", "s1").is_usable());
        // One may be on its way; after it there is silence.
        while tokio::time::timeout(Duration::from_millis(200), peer.requests.recv()).await.is_ok() {}
        assert!(peer.requests.is_empty());
    });
}

#[test]
fn a_reload_does_not_disturb_the_rhythm() {
    run(async {
        let mut peer = Scripted::new(FINE).await;
        let mut marker = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let hourly = CheckSettings { inter: Duration::from_secs(3600), ..quick() };
        let app = || proxy("app", httpchk(), vec![server("s1", peer.address, hourly.clone())]);
        let (first, again) = (app(), app());
        let other = |inter| {
            let check = CheckSettings { inter: Duration::from_millis(inter), ..quick() };
            proxy("other", httpchk(), vec![server("s1", marker.address, check)])
        };
        let (before, after) = (other(20), other(21));
        bench.apply(vec![first, before]);
        peer.request().await;
        bench.apply(vec![again, after]);
        // A check that started again would have come before these.
        for _ in 0..5 {
            marker.request().await;
        }
        assert!(peer.requests.is_empty());
    });
}

#[test]
fn checks_of_a_backend_that_is_what_it_was_are_not_looked_at() {
    run(async {
        let peer = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let hourly = CheckSettings { inter: Duration::from_secs(3600), ..quick() };
        let app = |name, check: &CheckSettings| proxy(name, httpchk(), vec![server("s1", peer.address, check.clone())]);
        bench.apply(vec![app("same", &hourly), app("other", &hourly), app("gone", &hourly)]);
        // The settings differ, so that it would begin anew if it were looked at.
        let slower = CheckSettings { inter: Duration::from_secs(7200), ..quick() };
        let tasks = |bench: &Bench| ["same", "other"].map(|name| bench.checker.task_of(name, "s1"));
        let before = tasks(&bench);
        bench.same.insert("same");
        bench.apply(vec![app("same", &slower), app("other", &slower)]);
        let after = tasks(&bench);
        assert_eq!((before[0] == after[0], before[1] == after[1], bench.checker.len()), (true, false, 2));
    });
}

#[test]
fn a_new_server_can_start_down() {
    run(async {
        let peer = Scripted::new("").await;
        let mut bench = Bench::new();
        let check = CheckSettings { init_state: InitState::Down, ..quick() };
        bench.apply(vec![proxy("app", CheckType::Connect, vec![server("s1", peer.address, check)])]);
        assert_eq!(bench.server("app", "s1").health(), HealthState::Down);
        assert!(bench.line().await.starts_with("Server app/s1 is UP, reason: Layer4 check passed. 1 active"));
    });
}

#[test]
fn a_server_follows_the_one_it_tracks() {
    run(async {
        let peer = Scripted::new(BROKEN).await;
        let mut bench = Bench::new();
        let track = CheckSettings { track: Some("app/s1".into()), ..CheckSettings::default() };
        let follower = proxy("other", CheckType::Connect, vec![server("t1", peer.address, track)]);
        bench.apply(vec![proxy("app", httpchk(), vec![server("s1", peer.address, quick())]), follower]);
        bench.line().await;
        bench.line().await;
        assert_eq!(
            bench.line().await,
            "Server other/t1 is DOWN via app/s1. 0 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 \
             remaining in queue."
        );
        bench.line().await;
        peer.say(FINE);
        bench.line().await;
        assert!(bench.line().await.starts_with("Server other/t1 is UP via app/s1. 1 active"));
        let admin = Admin { maintenance: true, ..Admin::default() };
        let now = Instant::now();
        let moved = |admin| {
            let server = bench.server("app", "s1");
            let (before, left) = (server.admin(), server.set_admin(admin, now).expect("another state"));
            let moved = AdminMove { before, left: &left, is_listen: false, dns: None };
            let events = bench.checker.admin_changed(&server, moved, now);
            events.into_iter().map(|event| event.text).collect::<Vec<_>>()
        };
        let lines = moved(admin);
        assert!(lines[0].starts_with("Server app/s1 is going DOWN for maintenance. 0 active"), "{lines:?}");
        assert_eq!(lines[1], "backend app has no server available!");
        assert!(
            lines[2].starts_with("Server other/t1 is going DOWN for maintenance via app/s1. 0 active"),
            "{lines:?}"
        );
        assert!(bench.server("other", "t1").admin().maintenance_inherited);
        let lines = moved(Admin::default());
        assert_eq!(lines[1], "Server other/t1 is UP/READY (leaving maintenance).");
    });
}

#[test]
fn a_server_that_is_added_follows_too_and_leaves_running_checks_alone() {
    run(async {
        let mut peer = Scripted::new(BROKEN).await;
        let mut bench = Bench::new();
        let mut app = proxy("app", httpchk(), vec![server("s1", peer.address, quick())]);
        bench.apply(vec![app.clone()]);
        bench.line().await;
        bench.line().await;
        let task = bench.checker.task_of("app", "s1");
        let track = CheckSettings { track: Some("s1".into()), ..CheckSettings::default() };
        for (name, check) in [("t1", track), ("t2", CheckSettings::default())] {
            let mut added = Server::clone(&server(name, peer.address, check));
            added.disabled = true;
            app.servers.push(Arc::new(added));
            let (proxy, state) = (Arc::new(app.clone()), Arc::clone(&bench.backends["app"]));
            state.reconfigure(&proxy, Instant::now());
            let added = Arc::clone(&proxy.servers[proxy.servers.len() - 1]);
            bench.checker.add(ChangedBackend { proxy, state }, &added, |name| bench.backends.get(name).cloned());
        }
        assert_eq!(["t1", "t2"].map(|name| bench.server("app", name).health()), [HealthState::Down, HealthState::Up]);
        assert_eq!((bench.checker.task_of("app", "s1"), bench.checker.len()), (task, 1));
        peer.say(FINE);
        assert!(bench.line().await.starts_with("Server app/s1 is UP"));
        // The states of those who follow are changed before the next check.
        while !peer.requests.is_empty() {
            peer.request().await;
        }
        peer.request().await;
        assert_eq!(bench.server("app", "t1").health(), HealthState::Up);

        // The pace of all checks changes: they begin again, by the backend as it is now.
        let mut model = Model { proxies: vec![Arc::new(app)], ..Model::default() };
        model.global.spread_checks = 50;
        bench.checker.apply(&model, |name| bench.backends.get(name).cloned(), [], []);
        assert_ne!(bench.checker.task_of("app", "s1"), task);
        let (server, now) = (bench.server("app", "s1"), Instant::now());
        let left = server.set_admin(Admin { maintenance: true, ..Admin::default() }, now).expect("another state");
        let moved = AdminMove { before: Admin::default(), left: &left, is_listen: false, dns: None };
        bench.checker.admin_changed(&server, moved, now);
        assert!(bench.server("app", "t1").admin().maintenance_inherited, "it is followed still");
    });
}

#[test]
fn a_follower_in_a_backend_that_is_what_it_was_follows_a_reload() {
    run(async {
        let peer = Scripted::new(BROKEN).await;
        let mut bench = Bench::new();
        let track = CheckSettings { track: Some("app/s1".into()), ..CheckSettings::default() };
        let follower = || proxy("other", CheckType::Connect, vec![server("t1", peer.address, track.clone())]);
        bench.apply(vec![follower(), proxy("app", httpchk(), vec![server("s1", peer.address, quick())])]);
        for _ in 0..4 {
            bench.line().await;
        }
        assert_eq!(bench.server("other", "t1").health(), HealthState::Down);
        bench.same.insert("other");
        let unchecked = proxy("app", httpchk(), vec![server("s1", peer.address, CheckSettings::default())]);
        bench.apply(vec![follower(), unchecked]);
        assert_eq!(bench.server("other", "t1").health(), HealthState::Up);
    });
}

#[test]
fn errors_of_traffic_can_mark_a_server_down() {
    run(async {
        let mut peer = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let check = CheckSettings {
            observe: Observe::Layer4,
            error_limit: 2,
            on_error: OnError::MarkDown,
            inter: Duration::from_secs(3600),
            ..quick()
        };
        bench.apply(vec![proxy("app", httpchk(), vec![server("s1", peer.address, check)])]);
        peer.request().await;
        let state = bench.server("app", "s1");
        state.report(Observed::ConnectFailed);
        state.report(Observed::ConnectFailed);
        assert_eq!(
            bench.line().await,
            "Server app/s1 is DOWN, reason: Health analyze, info: \"Detected 2 consecutive errors, last one was: L4 \
             unsuccessful connection\". 0 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in \
             queue."
        );
    });
}

#[test]
fn a_server_in_maintenance_is_not_checked() {
    run(async {
        let mut peer = Scripted::new(FINE).await;
        let idle = Scripted::new(FINE).await;
        let mut bench = Bench::new();
        let mut off = (*server("s2", idle.address, quick())).clone();
        off.disabled = true;
        bench.apply(vec![proxy("app", httpchk(), vec![server("s1", peer.address, quick()), Arc::new(off)])]);
        for _ in 0..5 {
            peer.request().await;
        }
        assert!(idle.requests.is_empty());
    });
}

#[test]
fn a_check_starts_again_exactly_where_the_table_of_effects_says() {
    let changes: [fn(&mut Proxy, &mut Server); 14] = [
        |_, server| server.weight = 7,
        |_, server| server.disabled = true,
        |_, server| server.maxconn = 7,
        |_, server| server.cookie = Some("c".into()),
        |_, server| server.tfo = true,
        |_, server| server.address = baton_model::ServerAddress::literal(None),
        |_, server| server.send_proxy = baton_model::SendProxy::V1,
        |_, server| server.tcp_user_timeout_ms = Some(7),
        |_, server| server.check.rise = 7,
        |proxy, _| proxy.check.disable_on_404 = true,
        |proxy, _| proxy.timeouts.connect = Some(Duration::from_secs(7)),
        |proxy, _| proxy.timeouts.client = Some(Duration::from_secs(7)),
        |proxy, _| proxy.tcp.server_keepalive = true,
        |proxy, _| proxy.retries = 7,
    ];
    run(async {
        let mut bench = Bench::new();
        let address = Address::Inet(([127, 0, 0, 1], 1).into());
        let server = Server {
            check: CheckSettings { enabled: true, inter: Duration::from_secs(3600), ..CheckSettings::default() },
            ..Server::new("s", 1, Some(address))
        };
        let of = |proxy: Proxy| Model { proxies: vec![Arc::new(proxy)], ..Model::default() };
        let mut restarted = 0;
        for (number, change) in changes.into_iter().enumerate() {
            let mut before = Proxy::new("b", Role::Backend);
            before.servers = vec![Arc::new(server.clone())];
            let mut after = before.clone();
            change(&mut after, &mut server.clone());
            let mut changed = server.clone();
            change(&mut after.clone(), &mut changed);
            after.servers = vec![Arc::new(changed)];
            bench.apply(vec![before.clone()]);
            let task = bench.checker.task_of("b", "s");
            bench.apply(vec![after.clone()]);
            let is_other = bench.checker.task_of("b", "s") != task;
            let changes = baton_model::diff(&of(before), &of(after)).changes;
            let says = changes.iter().any(|change| change.effects().restarts_check);
            assert_eq!((changes.len(), is_other), (1, says), "change {number}");
            restarted += usize::from(is_other);
        }
        assert_eq!(restarted, 7);
    });
}
