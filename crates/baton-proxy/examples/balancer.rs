//! What a choice of the balancer costs, and how long a change makes choices wait: `bench/balancer`, `docs/performance.md`.
//!
//! A command and no test: it prints figures and judges nothing. For each algorithm it measures, with one thread and with as many
//! as there are, requests one after the other (a choice, and the slot given back) by nothing but the algorithm, by cookie and by
//! name; the same with one free server among full ones; and with all servers full. Then one thread goes on choosing while
//! another one changes something, again and again: each change meets requests, the longest of which waited for as long as the lock was
//! held. Quoted is the change that was disturbed least by what else the machine does.

#![allow(clippy::disallowed_methods, reason = "it measures time, outside of any event loop")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command, run by hand")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton_model::{Address, Algorithm, Proxy, Role, Server, UriHash};
use baton_proxy::balance::{BackendState, HealthState, PickCriteria, Picked, Slot, WantedServer};

/// How long each kind of choice is measured.
const WINDOW: Duration = Duration::from_millis(200);
/// How often each change is made.
const CHANGES: usize = 31;
/// What all changes of one kind may take together.
const PATIENCE: Duration = Duration::from_secs(1);

/// An algorithm, and whether its hash is consistent.
type Setup = (&'static str, fn() -> Algorithm, bool);

const ALGORITHMS: [Setup; 8] = [
    ("roundrobin", || Algorithm::RoundRobin, false),
    ("static-rr", || Algorithm::StaticRr, false),
    ("leastconn", || Algorithm::LeastConn, false),
    ("first", || Algorithm::First, false),
    ("source", || Algorithm::Source, false),
    ("uri consistent", || Algorithm::Uri(UriHash::default()), true),
    ("uri bounded", || Algorithm::Uri(UriHash::default()), true),
    ("random", || Algorithm::Random { draws: 2 }, false),
];

/// Servers of a backend.
#[derive(Clone, Copy)]
struct Farm {
    title: &'static str,
    servers: u32,
    weight: fn(u32) -> u32,
}

const FARMS: [Farm; 3] = [
    Farm { title: "1,000 servers of weight 1", servers: 1000, weight: |_| 1 },
    Farm { title: "100 servers of weight 100", servers: 100, weight: |_| 100 },
    Farm { title: "1,000 servers of weights 1 to 250", servers: 1000, weight: |id| 1 + id % 250 },
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wants = |what: &str| words.first().is_none_or(|word| word == what);
    let only = words.get(1).map_or("", String::as_str);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for farm in FARMS {
        let each = |line: &dyn Fn(&Proxy) -> String| {
            for (name, algorithm, consistent) in ALGORITHMS.iter().filter(|(name, ..)| name.contains(only)) {
                println!("{name:<15}{}", line(&proxy(name, algorithm(), *consistent, farm)));
            }
        };
        if wants("choices") {
            println!("\n{}: CPU nanoseconds of a request\n", farm.title);
            println!("{:15}{:-^27}  {:-^25}  {:-^16}", "", " 1 thread ", format!(" {threads} threads "), " 1 thread ");
            println!("{:15}   choice   cookie     name   choice   cookie     name   1 free     full", "");
            each(&|proxy| choices(proxy, threads));
        }
        if wants("changes") {
            println!("\n{}: microseconds\n", farm.title);
            println!("{:15}{:-^63}  {:-^28}", "", " longest request that met ... ", " the change itself ");
            println!(
                "{:15}  nothing    weight      down        up    reload   new server    weight      down    reload",
                ""
            );
            each(&changes);
        }
    }
}

fn proxy(name: &str, algorithm: Algorithm, consistent: bool, farm: Farm) -> Proxy {
    let mut proxy = Proxy::new("app", Role::Backend);
    proxy.balance.algorithm = algorithm;
    proxy.balance.hash.consistent = consistent;
    proxy.balance.factor = if name == "uri bounded" { 150 } else { 0 };
    proxy.servers = (1..=farm.servers).map(|id| Arc::new(server(id, (farm.weight)(id)))).collect();
    proxy
}

fn server(id: u32, weight: u32) -> Server {
    let mut server = Server::new(format!("server-{id}"), id, Address::Inet(([127, 0, 0, 1], 80).into()));
    server.weight = weight;
    server.cookie = Some(format!("cookie-{id}"));
    server
}

/// Nanoseconds of each kind of request.
fn choices(proxy: &Proxy, threads: usize) -> String {
    let count = proxy.servers.len();
    let words = |word: &str| -> Vec<String> { (1..=count).map(|id| format!("{word}-{id}")).collect() };
    let (cookies, names) = (words("cookie"), words("server"));
    let state = BackendState::new(&Arc::new(proxy.clone()), Instant::now());
    let mut line = String::new();
    for threads in [1, threads] {
        let plain = |_| None;
        let by_cookie = |number: u32| Some(WantedServer::Cookie(cookies[number as usize % count].as_bytes()));
        let by_name = |number: u32| Some(WantedServer::Name(&names[number as usize % count]));
        line += &format!(
            "{:>9.0}{:>9.0}{:>9.0}",
            requests(&state, threads, &plain),
            requests(&state, threads, &by_cookie),
            requests(&state, threads, &by_name)
        );
    }
    // Every server has one slot, and all but one of these are taken.
    let mut narrow = proxy.clone();
    narrow.servers.iter_mut().for_each(|server| Arc::make_mut(server).maxconn = 1);
    let state = BackendState::new(&Arc::new(narrow), Instant::now());
    let mut taken: Vec<Slot> = Vec::new();
    for name in &names {
        let ask = PickCriteria { wanted: Some(WantedServer::Name(name)), ..PickCriteria::new(Instant::now()) };
        if let Picked::Slot(slot) = state.pick(&ask) {
            taken.push(slot);
        }
    }
    // Algorithms that hash fall back to turns without a key; with one they would queue.
    let last = taken.swap_remove(count / 2);
    drop(last);
    let one_free = requests_without_key(&state);
    let ask = PickCriteria::new(Instant::now());
    let _last = state.pick(&ask);
    let full = requests_without_key(&state);
    format!("{line}{one_free:>9.0}{full:>9.0}")
}

/// Requests one after the other in each thread; how many nanoseconds of CPU time each of them takes.
fn requests<'a>(
    state: &Arc<BackendState>,
    threads: usize,
    wanted: &(dyn Fn(u32) -> Option<WantedServer<'a>> + Sync),
) -> f64 {
    let (stop, total, spent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let now = Instant::now();
    let work = |seed: u32| {
        let (mut random, mut done) = (seed, 0);
        let began = cpu_time();
        while done % 64 != 0 || !stop.load(Ordering::Relaxed) {
            random = next(random);
            let wanted = wanted(random);
            drop(black_box(state.pick(&PickCriteria { key: Some(random), random, wanted, ..PickCriteria::new(now) })));
            done += 1;
        }
        total.fetch_add(done, Ordering::Relaxed);
        spent.fetch_add(cpu_time() - began, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let work = &work;
        for seed in 1..=threads as u32 {
            scope.spawn(move || work(seed));
        }
        std::thread::sleep(WINDOW);
        stop.store(true, Ordering::Relaxed);
    });
    spent.load(Ordering::Relaxed) as f64 / total.load(Ordering::Relaxed) as f64
}

fn requests_without_key(state: &Arc<BackendState>) -> f64 {
    let now = Instant::now();
    let (began, spent, mut random, mut done) = (Instant::now(), cpu_time(), 1, 0);
    while done % 64 != 0 || began.elapsed() < WINDOW {
        random = next(random);
        drop(black_box(state.pick(&PickCriteria { random, ..PickCriteria::new(now) })));
        done += 1;
    }
    (cpu_time() - spent) as f64 / f64::from(done)
}

/// Nanoseconds that this thread was running: other programs on the machine do not count.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number that looks random (xorshift).
fn next(mut number: u32) -> u32 {
    number ^= number << 13;
    number ^= number >> 17;
    number ^ number << 5
}

/// The longest requests that changes met, in microseconds, and what the changes themselves took.
fn changes(proxy: &Proxy) -> String {
    let now = Instant::now();
    let one = Arc::new(proxy.clone());
    let state = BackendState::new(&one, now);
    let middle = proxy.servers.len() / 2;
    let mut other = proxy.clone();
    Arc::make_mut(&mut other.servers[middle]).weight += 1;
    let other = Arc::new(other);
    let mut more = proxy.clone();
    more.servers.push(Arc::new(server(proxy.servers.len() as u32 + 1, 1)));
    let more = Arc::new(more);
    let server = state.server(&proxy.servers[middle].name).expect("it is in the configuration");
    let weight = server.weight();
    let (longest, count, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1;
            let mut began = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                random = next(random);
                drop(black_box(state.pick(&PickCriteria { key: Some(random), random, ..PickCriteria::new(now) })));
                let ended = Instant::now();
                longest.fetch_max((ended - began).as_nanos() as u64, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
                began = ended;
            }
        });
        // The longest request that a change met, and what it took itself; it is undone before the next one.
        let measure = |change: &dyn Fn(), undo: &dyn Fn()| {
            let (mut met, mut took) = (Vec::new(), Vec::new());
            let since = Instant::now();
            while met.len() < CHANGES && since.elapsed() < PATIENCE {
                wait(Duration::from_micros(100));
                longest.store(0, Ordering::Relaxed);
                let began = Instant::now();
                change();
                took.push(began.elapsed().as_nanos() as u64);
                let seen = count.load(Ordering::Relaxed);
                while count.load(Ordering::Relaxed) < seen + 2 {
                    std::hint::spin_loop();
                }
                met.push(longest.load(Ordering::Relaxed));
                undo();
            }
            (least(met), least(took))
        };
        let weigh = |weight| server.set_weight(weight, now);
        let health = |health| _ = server.set_health(health, now);
        let nothing = measure(&|| wait(Duration::from_micros(5)), &|| {});
        let by_weight = measure(&|| weigh(if weight > 1 { weight / 2 } else { 2 }), &|| weigh(weight));
        let down = measure(&|| health(HealthState::Down), &|| health(HealthState::Up));
        health(HealthState::Down);
        let up = measure(&|| health(HealthState::Up), &|| health(HealthState::Down));
        health(HealthState::Up);
        let reload = measure(&|| state.reconfigure(&other, now), &|| state.reconfigure(&one, now));
        let new = measure(&|| state.reconfigure(&more, now), &|| state.reconfigure(&one, now));
        stop.store(true, Ordering::Relaxed);
        format!(
            "{:>9.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>13.1}{:>10.1}{:>10.1}{:>10.1}",
            nothing.0, by_weight.0, down.0, up.0, reload.0, new.0, by_weight.1, down.1, reload.1
        )
    })
}

/// Waits without leaving the processor, on which the other thread is not to be put.
fn wait(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// In microseconds.
fn least(nanoseconds: Vec<u64>) -> f64 {
    nanoseconds.into_iter().min().map_or(0.0, |least| least as f64 / 1000.0)
}
