//! The state of a backend as requests, reloads and health checks see it. Time is virtual, futures are polled by hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use baton_model::{
    Address, Algorithm, Cookie, CookieMode, MarkedDown, MarkedUp, Proxy, Role, Server, ServerAddress, UriHash,
};

use super::*;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server from words: `name weight=2 maxconn=1 backup cookie=x …`.
fn server(words: &str, id: u32) -> Arc<Server> {
    let mut words = words.split_whitespace();
    let name = words.next().expect("a test names its servers");
    let mut server = Server::new(name, id, Address::Inet(([127, 0, 0, 1], 24600).into()));
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, "0"));
        let number = || value.parse::<u32>().expect("a number");
        match key {
            "weight" => server.weight = number(),
            "maxconn" => server.maxconn = number(),
            "minconn" => server.minconn = number(),
            "maxqueue" => server.maxqueue = number(),
            "slowstart" => server.slowstart = Some(Duration::from_secs(number().into())),
            "cookie" => server.cookie = Some(value.into()),
            "backup" => server.backup = true,
            "disabled" => server.disabled = true,
            "unresolved" => server.address = ServerAddress::literal(None),
            "shutdown-sessions" => server.check.on_marked_down = MarkedDown::ShutdownSessions,
            "shutdown-backup-sessions" => server.check.on_marked_up = MarkedUp::ShutdownBackupSessions,
            other => panic!("{other}?"),
        }
    }
    Arc::new(server)
}

fn proxy(servers: &[&str]) -> Proxy {
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.servers = servers.iter().zip(1..).map(|(words, id)| server(words, id)).collect();
    proxy
}

struct Bench {
    state: Arc<BackendState>,
    now: Instant,
}

impl Bench {
    fn new(proxy: &Proxy) -> Bench {
        let now = Instant::now();
        Bench { state: BackendState::new(&Arc::new(proxy.clone()), now), now }
    }

    fn ask(&self) -> PickCriteria<'static> {
        PickCriteria::new(self.now)
    }

    fn slot(&self) -> Slot {
        match self.state.pick(&self.ask()) {
            Picked::Slot(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    fn waiting(&self) -> QueueWait {
        match self.state.pick(&self.ask()) {
            Picked::Queue(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    /// Servers of `count` requests, each ended before the next.
    fn turns(&self, count: usize) -> String {
        let turn = |_| match self.state.pick(&self.ask()) {
            Picked::Slot(slot) => slot.server().name().to_string(),
            Picked::Queue(_) => "queue".into(),
            Picked::Full => "full".into(),
            Picked::None => "none".into(),
        };
        (0..count).map(turn).collect::<Vec<_>>().join(" ")
    }

    fn server(&self, name: &str) -> Arc<ServerState> {
        self.state.server(name).expect("the server is there")
    }

    fn reload(&self, proxy: Proxy) {
        self.state.reconfigure(&Arc::new(proxy), self.now);
    }

    fn health(&self, name: &str, health: HealthState) -> Option<Transition> {
        self.server(name).set_health(health, self.now)
    }
}

fn poll(waiting: &mut QueueWait, waker: &Waker) -> Poll<Granted> {
    Pin::new(waiting).poll(&mut Context::from_waker(waker))
}

fn expect_slot(waiting: &mut QueueWait) -> Slot {
    match poll(waiting, Waker::noop()) {
        Poll::Ready(Granted::Slot(slot)) => slot,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_take_turns() {
    let bench = Bench::new(&proxy(&["a", "b weight=2", "c disabled"]));
    assert_eq!(bench.turns(6), "b b a b b a");
    assert_eq!((bench.state.active(), bench.state.backups()), (2, 0));
}

#[test]
fn backups_serve_when_nobody_else_does() {
    let bench = Bench::new(&proxy(&["a", "x backup", "y backup"]));
    assert_eq!(bench.turns(2), "a a");
    bench.health("a", HealthState::Down);
    assert_eq!(bench.turns(3), "x x x");
    bench.health("x", HealthState::Down);
    assert_eq!(bench.turns(2), "y y");
    bench.health("y", HealthState::Down);
    assert_eq!(bench.turns(1), "none");
    bench.health("a", HealthState::Up);
    assert_eq!(bench.turns(1), "a");
    let mut all = proxy(&["a disabled", "x backup", "y backup"]);
    all.tcp.all_backups = true;
    assert_eq!(Bench::new(&all).turns(4), "x y x y");
}

#[test]
fn who_waits_longest_gets_the_slot() {
    let bench = Bench::new(&proxy(&["a maxconn=1"]));
    let slot = bench.slot();
    let (mut first, mut second) = (bench.waiting(), bench.waiting());
    assert_eq!((first.position(), second.position(), bench.state.queued()), (0, 1, 2));
    let woken = Arc::new(Woken::default());
    assert!(poll(&mut first, &Arc::clone(&woken).into()).is_pending());
    assert!(poll(&mut second, Waker::noop()).is_pending());
    drop(slot);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let slot = expect_slot(&mut first);
    assert!(poll(&mut second, Waker::noop()).is_pending());
    assert_eq!((slot.server().served(), bench.state.queued()), (1, 1));
    drop(slot);
    drop(expect_slot(&mut second));
    assert_eq!((bench.server("a").served(), bench.server("a").served_max(), bench.server("a").total()), (0, 1, 3));
}

#[test]
fn who_gives_up_leaves_and_passes_a_granted_slot_on() {
    let bench = Bench::new(&proxy(&["a maxconn=1"]));
    let slot = bench.slot();
    let (first, second, mut third) = (bench.waiting(), bench.waiting(), bench.waiting());
    drop(first);
    assert_eq!(bench.state.waiting(), 2);
    drop(slot);
    // It was granted, but nobody looked: the next one has it.
    drop(second);
    drop(expect_slot(&mut third));
    assert_eq!((bench.server("a").served(), bench.state.queued()), (0, 0));
    assert_eq!(bench.state.waiting_max(), 3);
}

#[test]
fn a_full_queue_refuses() {
    let mut hashing = proxy(&["a maxconn=1 maxqueue=1", "b maxconn=1 maxqueue=1"]);
    hashing.balance.algorithm = Algorithm::Uri(UriHash::default());
    let bench = Bench::new(&hashing);
    let ask = PickCriteria { key: Some(0), ..bench.ask() };
    let _slot = bench.state.pick(&ask);
    let waiting = bench.state.pick(&ask);
    assert!(matches!(&waiting, Picked::Queue(waiting) if waiting.server().is_some_and(|a| &**a.name() == "a")));
    assert_eq!(bench.server("a").queued(), 1);
    assert!(matches!(bench.state.pick(&ask), Picked::Full));
}

#[test]
fn cookies_keep_to_their_server() {
    let mut sticky = proxy(&["a cookie=A", "b cookie=B maxconn=1 maxqueue=1"]);
    let pick = |bench: &Bench, wanted, force| match bench.state.pick(&PickCriteria {
        wanted: Some(wanted),
        force,
        ..bench.ask()
    }) {
        Picked::Slot(slot) => format!("{} {:?}", slot.server().name(), slot.affinity()),
        other => format!("{other:?}"),
    };
    let bench = Bench::new(&sticky);
    assert_eq!(pick(&bench, WantedServer::Cookie(b"B"), false), "b Kept");
    assert_eq!(pick(&bench, WantedServer::Name("b"), false), "b Kept");
    assert_eq!(pick(&bench, WantedServer::Cookie(b"X"), false), "a Unknown");
    bench.health("b", HealthState::Stopping);
    assert_eq!(pick(&bench, WantedServer::Cookie(b"B"), false), "b Kept");
    assert_eq!(bench.turns(2), "a a");
    bench.health("b", HealthState::Down);
    assert_eq!(pick(&bench, WantedServer::Cookie(b"B"), false), "a Down");
    assert_eq!(pick(&bench, WantedServer::Cookie(b"B"), true), "b Kept");
    sticky.tcp.persist = true;
    bench.reload(sticky);
    assert_eq!(pick(&bench, WantedServer::Cookie(b"B"), false), "b Kept");
}

#[test]
fn a_dynamic_cookie_is_haproxys() {
    let mut sticky = proxy(&["a"]);
    sticky.cookie = Some(Cookie {
        name: "SRV".into(),
        mode: CookieMode::Insert,
        indirect: false,
        nocache: false,
        postonly: false,
        preserve: false,
        httponly: false,
        secure: false,
        domains: Vec::new(),
        max_idle: None,
        max_life: None,
        dynamic_key: Some("secretkey".into()),
        attributes: Vec::new(),
    });
    assert_eq!(Bench::new(&sticky).server("a").cookie().as_deref(), Some("9ef53e4ae554c2a7"));
}

#[test]
fn a_redispatch_avoids_the_server_that_failed() {
    let bench = Bench::new(&proxy(&["a", "b"]));
    let failed = bench.server("a");
    for _ in 0..3 {
        match bench.state.pick(&PickCriteria { avoid: Some(&failed), ..bench.ask() }) {
            Picked::Slot(slot) => assert_eq!(&**slot.server().name(), "b"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn prefer_last_server_needs_the_option() {
    let mut settings = proxy(&["a", "b"]);
    let bench = Bench::new(&settings);
    let last = bench.server("b");
    let pick = || match bench.state.pick(&PickCriteria { last: Some(&last), ..bench.ask() }) {
        Picked::Slot(slot) => slot.server().name().to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!((pick(), pick()), ("a".into(), "b".into()));
    settings.tcp.prefer_last_server = true;
    bench.reload(settings);
    assert_eq!((pick(), pick()), ("b".into(), "b".into()));
}

#[test]
fn a_server_that_goes_down_sends_its_queue_elsewhere() {
    let mut hashing = proxy(&["a maxconn=1", "b"]);
    hashing.balance.algorithm = Algorithm::Source;
    let bench = Bench::new(&hashing);
    let ask = PickCriteria { key: Some(0), ..bench.ask() };
    let Picked::Slot(slot) = bench.state.pick(&ask) else { panic!("a is free") };
    let Picked::Queue(mut waiting) = bench.state.pick(&ask) else { panic!("a is full") };
    let transition = bench.health("a", HealthState::Down).expect("it changed");
    assert_eq!(transition, Transition { active: 1, backups: 0, sessions: 1, requeued: 1, remaining: 0 });
    assert!(matches!(poll(&mut waiting, Waker::noop()), Poll::Ready(Granted::Again)));
    let Picked::Slot(other) = bench.state.pick(&ask) else { panic!("b is free") };
    assert_eq!(&**other.server().name(), "b");
    assert_eq!(bench.health("a", HealthState::Down), None);
    drop(slot);
    assert_eq!(bench.server("a").served(), 0);
}

#[test]
fn those_who_wait_for_the_backend_go_to_a_server_that_comes_up() {
    let bench = Bench::new(&proxy(&["a maxconn=1", "b"]));
    bench.health("b", HealthState::Down);
    let _slot = bench.slot();
    let mut waiting = bench.waiting();
    bench.health("b", HealthState::Up);
    assert_eq!(&**expect_slot(&mut waiting).server().name(), "b");
}

#[test]
fn maintenance_and_drain() {
    let bench = Bench::new(&proxy(&["a cookie=A", "b"]));
    let set = |admin| bench.server("a").set_admin(admin, bench.now);
    let wanted = |bench: &Bench| match bench
        .state
        .pick(&PickCriteria { wanted: Some(WantedServer::Cookie(b"A")), ..bench.ask() })
    {
        Picked::Slot(slot) => slot.server().name().to_string(),
        other => format!("{other:?}"),
    };
    assert!(set(Admin { drain: true, ..Admin::default() }).is_some());
    assert_eq!((bench.turns(2), wanted(&bench)), ("b b".into(), "a".into()));
    set(Admin { maintenance: true, drain: true, ..Admin::default() });
    assert_eq!((bench.turns(2), wanted(&bench)), ("b b".into(), "b".into()));
    bench.health("a", HealthState::Down);
    // Who leaves maintenance starts as up.
    set(Admin::default());
    assert_eq!((bench.server("a").health(), wanted(&bench)), (HealthState::Up, "a".into()));
    assert!(set(Admin::default()).is_none());
    bench.server("a").set_weight(0, bench.now);
    assert_eq!((bench.turns(2), wanted(&bench)), ("b b".into(), "a".into()));
}

#[test]
fn a_reload_keeps_what_did_not_change() {
    let bench = Bench::new(&proxy(&["a maxconn=1", "b maxconn=1", "c maxconn=1"]));
    let (a, b) = (bench.slot(), bench.slot());
    bench.health("c", HealthState::Down);
    let mut waiting = bench.waiting();
    let old = bench.server("b");
    // a leaves, n comes in front, b moves.
    bench.reload(proxy(&["n maxconn=1 disabled", "c maxconn=1", "b maxconn=1"]));
    assert!(Arc::ptr_eq(&old, &bench.server("b")));
    assert_eq!(bench.server("c").health(), HealthState::Down);
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    assert!(a.server().is_removed() && a.server().served() == 1);
    drop(a);
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    drop(b);
    assert_eq!(&**expect_slot(&mut waiting).server().name(), "b");
    assert_eq!(bench.state.queued(), 0);
}

#[test]
fn a_reload_that_adds_room_lets_those_in_who_wait() {
    let bench = Bench::new(&proxy(&["a maxconn=1"]));
    let slot = bench.slot();
    let mut waiting = bench.waiting();
    bench.reload(proxy(&["a maxconn=2"]));
    assert_eq!(expect_slot(&mut waiting).config().maxconn, 2);
    assert_eq!(slot.config().maxconn, 1);
}

#[test]
fn another_process_goes_on_where_this_one_was() {
    let servers = ["a", "b", "c weight=2 slowstart=10", "x backup"];
    let bench = Bench::new(&proxy(&servers));
    bench.turns(5);
    bench.health("b", HealthState::Down);
    bench.health("c", HealthState::Down);
    bench.health("c", HealthState::Up);
    let later = bench.now + Duration::from_secs(4);
    let memory = bench.state.remember(later);
    // Its clock began later, its file has another order, and one server more.
    let proxy = Arc::new(proxy(&["d", "c weight=2 slowstart=10", "b", "a"]));
    let other = Bench { state: BackendState::new(&proxy, later), now: later };
    other.state.recall(memory, later);
    other.state.recall_quiet(["d", "nobody"].into_iter(), Duration::from_secs(7), later);
    assert_eq!(later.saturating_duration_since(other.server("d").changed()), Duration::from_secs(7));
    assert_eq!((other.server("b").health(), other.server("b").downs()), (HealthState::Down, 1));
    assert_eq!(other.server("b").down_time(later), Duration::from_secs(4));
    assert_eq!((other.server("a").total(), other.server("a").served_max()), (bench.server("a").total(), 1));
    assert_eq!(other.server("c").effective_weight(), bench.server("c").effective_weight());
    assert_eq!((other.state.active(), other.state.backups()), (3, 0));
    other.health("d", HealthState::Down);
    assert_eq!(other.turns(6), bench.turns(6));
}

#[test]
fn sessions_of_another_process_count_for_maxconn() {
    let bench = Bench::new(&proxy(&["a maxconn=2"]));
    let server = bench.server("a");
    server.set_elsewhere(1);
    let slot = bench.slot();
    let mut waiting = bench.waiting();
    server.set_elsewhere(2);
    drop(slot);
    assert!(poll(&mut waiting, Waker::noop()).is_pending(), "both slots are in use elsewhere");
    server.set_elsewhere(1);
    drop(expect_slot(&mut waiting));
    assert_eq!((server.served(), server.elsewhere()), (0, 1));
}

#[test]
fn the_queue_of_a_removed_server_moves() {
    let bench = Bench::new(&proxy(&["a maxconn=1 cookie=A", "b maxconn=1"]));
    let wanted = PickCriteria { wanted: Some(WantedServer::Cookie(b"A")), ..bench.ask() };
    let _held = bench.state.pick(&wanted);
    let Picked::Queue(mut waiting) = bench.state.pick(&wanted) else { panic!("a is full") };
    bench.reload(proxy(&["b maxconn=1"]));
    assert_eq!(&**expect_slot(&mut waiting).server().name(), "b");
}

#[test]
fn the_queue_of_a_server_that_a_reload_disables_moves_too() {
    let bench = Bench::new(&proxy(&["a maxconn=1 cookie=A", "b maxconn=1"]));
    let wanted = PickCriteria { wanted: Some(WantedServer::Cookie(b"A")), ..bench.ask() };
    let _held = bench.state.pick(&wanted);
    let Picked::Queue(mut waiting) = bench.state.pick(&wanted) else { panic!("a is full") };
    bench.reload(proxy(&["a maxconn=1 cookie=A disabled", "b maxconn=1"]));
    assert_eq!(&**expect_slot(&mut waiting).server().name(), "b");
    assert_eq!((bench.server("a").queued(), bench.state.queued()), (0, 0));
}

#[test]
fn slow_start_grows_weight_and_slots() {
    let mut bench = Bench::new(&proxy(&["a weight=16 maxconn=10 slowstart=20", "b weight=16"]));
    assert_eq!(bench.server("a").effective_weight(), 16);
    bench.health("a", HealthState::Down);
    bench.health("a", HealthState::Up);
    assert_eq!(bench.server("a").effective_weight(), 1);
    let share = |bench: &Bench| bench.turns(170).matches('a').count();
    assert!(share(&bench) <= 10);
    bench.now += Duration::from_secs(10);
    bench.turns(1);
    assert_eq!(bench.server("a").effective_weight(), 8);
    let now = share(&bench);
    assert!((50..65).contains(&now), "{now}");
    let taken: Vec<Slot> = (0..200).map(|_| bench.slot()).collect();
    assert_eq!(bench.server("a").served(), 5);
    drop(taken);
    bench.now += Duration::from_secs(10);
    bench.turns(1);
    assert_eq!(bench.server("a").effective_weight(), 16);
}

#[test]
fn minconn_rises_with_the_load() {
    let mut settings = proxy(&["a minconn=2 maxconn=10", "b minconn=2 maxconn=10"]);
    settings.fullconn = Some(20);
    let bench = Bench::new(&settings);
    let mut slots = Vec::new();
    while let Picked::Slot(slot) = bench.state.pick(&bench.ask()) {
        slots.push(slot);
    }
    // Four sessions are 4/20 of 10 slots: both ends agree, the next one waits.
    assert_eq!(slots.len(), 4);
}

#[test]
fn marked_down_cuts_sessions() {
    let bench = Bench::new(&proxy(&["a shutdown-sessions", "b"]));
    let (a, b) = (bench.slot(), bench.slot());
    assert!(a.may_be_cut() && !b.may_be_cut());
    let mut cut = Box::pin(a.cut());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(cut.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    bench.health("a", HealthState::Down);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(cut.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert!(a.is_cut() && !b.is_cut());
}

#[test]
fn marked_up_cuts_sessions_on_backups() {
    let bench = Bench::new(&proxy(&["a shutdown-backup-sessions", "x backup"]));
    bench.health("a", HealthState::Down);
    let slot = bench.slot();
    bench.health("a", HealthState::Up);
    assert!(slot.may_be_cut() && slot.is_cut() && &**slot.server().name() == "x");
}

#[test]
fn observed_errors_in_a_row_reach_the_limit() {
    let bench = Bench::new(&proxy(&["a"]));
    let server = bench.server("a");
    server.report(Observed::ConnectFailed);
    assert_eq!(server.observed(), (0, 0));
    server.observe(2, true);
    let reached = || {
        let mut limit = Box::pin(server.error_limit_reached());
        limit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    server.report(Observed::AnswerFailed);
    server.report(Observed::Answered);
    server.report(Observed::AnswerFailed);
    assert!(!reached());
    server.report(Observed::ConnectFailed);
    assert!(reached());
    assert_eq!(server.observed(), (1, 3));
}

#[test]
fn reasons_of_failing_handshakes_are_told_once() {
    let bench = Bench::new(&proxy(&["a"]));
    let (server, start) = (bench.server("a"), Instant::now());
    let fails = |reason, after: u64| server.handshake_failed(reason, start + Duration::from_secs(after));
    assert!(fails("expired", 0) && !fails("expired", 1) && !fails("expired", 1000));
    assert!(fails("revoked", 1000), "another reason");
    assert!(!fails("expired", 1005) && !fails("revoked", 1006), "by turns");
    assert!(fails("expired", 1010));
    server.handshake_done();
    assert!(!fails("expired", 1060), "one server of several behind an address");
    server.handshake_done();
    assert!(fails("expired", 1070) && !fails("expired", 1071), "it was gone, and is back");
}

#[test]
fn slots_of_many_threads_add_up() {
    let bench = Bench::new(&proxy(&["a maxconn=2", "b maxconn=2"]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    match bench.state.pick(&bench.ask()) {
                        Picked::Slot(slot) => drop(slot),
                        Picked::Queue(waiting) => drop(waiting),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let servers = bench.state.servers();
    assert!(servers.iter().all(|server| server.served() == 0 && server.served_max() <= 2));
    assert_eq!(bench.state.queued(), 0);
    assert_eq!(bench.turns(2).len(), 3);
}

#[test]
fn a_server_without_an_address_gets_nothing_until_a_reload_finds_one() {
    let bench = Bench::new(&proxy(&["a unresolved", "b"]));
    assert_eq!(bench.turns(2), "b b");
    let a = bench.server("a");
    // An operator has no address for it either.
    for maintenance in [true, false] {
        a.set_admin(Admin { maintenance, ..a.admin() }, bench.now);
        assert!(a.admin().unresolved && !a.is_running());
    }
    bench.reload(proxy(&["a", "b"]));
    assert!(a.is_usable());
    assert_eq!(bench.turns(4).matches('a').count(), 2);
    bench.reload(proxy(&["a unresolved", "b"]));
    assert_eq!(bench.turns(2), "b b");
}

#[test]
fn a_server_that_comes_or_leaves_unused_moves_no_other_one() {
    for algorithm in
        [Algorithm::RoundRobin, Algorithm::LeastConn, Algorithm::First, Algorithm::StaticRr, Algorithm::Source]
    {
        let now = Instant::now();
        let server = |id: u32, is_disabled: bool| {
            let mut server = Server::new(format!("s{id}"), id, Address::Inet(([127, 0, 0, 1], 80).into()));
            server.disabled = is_disabled;
            Arc::new(server)
        };
        let mut proxy = Proxy::new("app", Role::Backend);
        proxy.balance.algorithm = algorithm;
        proxy.servers = (1..=8).map(|id| server(id, false)).collect();
        let state = BackendState::new(&Arc::new(proxy.clone()), now);
        let names = || state.servers().iter().map(|server| server.name().to_string()).collect::<Vec<_>>();
        let places = || state.lock().entries.len();
        let take = || match state.pick(&PickCriteria { key: Some(7), ..PickCriteria::new(now) }) {
            Picked::Slot(slot) => slot.server().name().to_string(),
            other => panic!("{other:?}"),
        };
        let change = |proxy: &Proxy| lives::edit(&state, proxy, now);
        let remove = |proxy: &Proxy, server: &ServerState| lives::remove(&state, proxy, server, now);

        proxy.servers.push(server(9, true));
        lives::add(&state, &proxy, now);
        assert_eq!((places(), names().len(), state.active()), (9, 9, 8));
        let added = state.server("s9").unwrap();
        added.set_admin(Admin::default(), now);
        assert_eq!(state.active(), 9);
        assert!((0..200).any(
            |number| match state.pick(&PickCriteria { key: Some(number), ..PickCriteria::new(now) }) {
                Picked::Slot(slot) =>
                    slot.server().name() == added.name() || proxy.balance.algorithm == Algorithm::First,
                _ => false,
            }
        ));

        // Its place stays empty, and the next one comes behind all others.
        let third = state.server("s3").unwrap();
        third.set_admin(Admin { maintenance: true, ..Admin::default() }, now);
        proxy.servers.remove(2);
        remove(&proxy, &third);
        assert_eq!(
            (places(), names()),
            (9, ["s1", "s2", "s4", "s5", "s6", "s7", "s8", "s9"].map(String::from).to_vec())
        );
        assert!(third.is_removed() && state.server("s3").is_none());
        third.set_admin(Admin::default(), now);
        assert!((0..50).all(|_| take() != "s3"));
        proxy.servers.push(server(3, true));
        change(&proxy);
        assert_eq!((places(), names().last().map(String::as_str)), (10, Some("s3")));

        // One that somebody uses, or that is up, is taken out with all there is to do.
        let first = state.server(&proxy.servers[0].name).unwrap();
        proxy.servers.remove(0);
        remove(&proxy, &first);
        assert_eq!((places(), names().len(), state.active()), (8, 8, 7));

        // Never more empty places than servers.
        while proxy.servers.len() > 1 {
            let server = state.server(&proxy.servers[0].name).unwrap();
            server.set_admin(Admin { maintenance: true, ..Admin::default() }, now);
            let is_read = proxy.servers.len().is_multiple_of(3);
            let read = is_read.then(|| Arc::clone(&state.lock().directory));
            proxy.servers.remove(0);
            remove(&proxy, &server);
            assert!(read.is_none_or(|read| read.names.find(server.name().as_bytes()).next().is_some()));
            assert!(places() <= 2 * names().len(), "{} of {}", names().len(), places());
        }
        proxy.servers.clear();
        change(&proxy);
        assert_eq!((places(), state.active()), (0, 0));
    }
}

#[test]
fn a_server_more_is_entered_in_place_and_a_directory_that_somebody_reads_stays_as_it_is() {
    let now = Instant::now();
    let server = |id: u32| {
        let mut server = Server::new(format!("s{id}"), id, Address::Inet(([127, 0, 0, 1], 80).into()));
        server.disabled = true;
        server.cookie = Some(format!("c{}", id / 2));
        Arc::new(server)
    };
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.servers = (1..=100).map(server).collect();
    let state = BackendState::new(&Arc::new(proxy.clone()), now);
    let directory = || Arc::as_ptr(&state.lock().directory);
    let mut grown = 0;
    for id in 101..=500 {
        let before = directory();
        proxy.servers.push(server(id));
        // Most have a cookie of their own.
        Arc::make_mut(proxy.servers.last_mut().unwrap()).cookie =
            Some(format!("c{}", if id % 7 == 0 { 3 } else { id }));
        lives::add(&state, &proxy, now);
        grown += usize::from(directory() != before);
    }
    assert!((57..=57 + 8).contains(&grown), "a cookie that another one has, and room for as many again: {grown}");
    assert_eq!((state.servers().len(), state.lock().entries.len()), (500, 500));
    assert!((1..=500).all(|id| *state.server(&format!("s{id}")).unwrap().name() == format!("s{id}").into()));
    let held = Arc::clone(&state.lock().directory);
    proxy.servers.push(server(501));
    lives::add(&state, &proxy, now);
    assert_eq!((held.servers.len(), state.servers().len()), (500, 501));

    // One that takes part is more than an addition, and is added all the same.
    proxy.servers.push(server(502));
    Arc::make_mut(proxy.servers.last_mut().unwrap()).disabled = false;
    lives::add(&state, &proxy, now);
    assert_eq!((state.servers().len(), state.active()), (502, 1));
}
