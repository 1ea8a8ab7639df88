//! What HAProxy 2.6 chose and computed, recorded, against our balancing: `recordings/choices.txt` holds a line for each
//! configuration with the server of each request, `recordings/avalanche.txt` values of its `sdbm(1)` converter. With
//! `BATON_RECORD=1` and a haproxy on this machine these are written anew. `recordings/bounded.txt` says itself how it came to be.

#![allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")]

#[path = "../../../tests/free_address.rs"]
mod free_address;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use baton_model::{Address, Algorithm, Avalanche, HashFunction, Proxy, Role, Server, UriHash};
use baton_proxy::balance::{BackendState, HealthState, PickCriteria, Picked, hash, keys};
use free_address::free_address;

const HAPROXY: &str = "/usr/sbin/haproxy";
/// Requests of a configuration.
const REQUESTS: usize = 240;
/// Configurations with `static-rr`.
const TABLES: usize = 160;
/// Values of `avalanche`.
const VALUES: usize = 1500;

/// Weights of the servers under `hash-type`, whose names are the digits from 1.
const HASHED: [&[u32]; 6] =
    [&[1, 1], &[1, 1, 1], &[1, 2, 3], &[7, 3, 5, 1], &[26, 3, 7, 3, 100], &[2, 2, 9, 1, 1, 4, 256]];

/// A configuration: words of `balance` and `hash-type`, and weights.
#[derive(Clone, Debug)]
struct Setup {
    algorithm: &'static str,
    hash: String,
    weights: Vec<u32>,
}

impl Setup {
    fn name(&self) -> String {
        let weights: Vec<_> = self.weights.iter().map(u32::to_string).collect();
        format!("{} {} {}", self.algorithm, self.hash, weights.join(",")).replace("  ", " ")
    }

    fn proxy(&self) -> Proxy {
        let mut proxy = Proxy::new("app", Role::Backend);
        let balance = &mut proxy.balance;
        let words: Vec<_> = self.hash.split(' ').collect();
        match words[..] {
            [""] => balance.algorithm = Algorithm::StaticRr,
            [method, function, ref rest @ ..] => {
                balance.algorithm = Algorithm::Uri(UriHash::default());
                balance.hash.consistent = method == "consistent";
                balance.hash.function = match function {
                    "djb2" => HashFunction::Djb2,
                    "crc32" => HashFunction::Crc32,
                    _ => HashFunction::Sdbm,
                };
                balance.hash.avalanche = if rest.is_empty() { Avalanche::Off } else { Avalanche::Full };
            }
            _ => unreachable!("a method has a function"),
        }
        let address = Address::Inet(([127, 0, 0, 1], 1).into());
        let server = |(weight, id): (&u32, u32)| {
            let mut server = Server::new(id.to_string(), id, address.clone());
            server.weight = *weight;
            Arc::new(server)
        };
        proxy.servers = self.weights.iter().zip(1..).map(server).collect();
        proxy
    }

    /// What we choose.
    fn choices(&self) -> String {
        let proxy = self.proxy();
        let now = Instant::now();
        let state = BackendState::new(&Arc::new(proxy.clone()), now);
        let choose = |number| {
            let key = match &proxy.balance.algorithm {
                Algorithm::Uri(what) => Some(keys::uri(&proxy.balance.hash, what, target(number).as_bytes())),
                _ => None,
            };
            match state.pick(&PickCriteria { key, ..PickCriteria::new(now) }) {
                Picked::Slot(slot) => slot.server().name().to_string(),
                other => panic!("{other:?}"),
            }
        };
        (0..REQUESTS).map(choose).collect()
    }
}

/// What the request of that number asks for.
fn target(number: usize) -> String {
    format!("/{}/k{number}", ["a", "images", "x.y.z"][number % 3])
}

/// A fixed series of numbers, so that both sides have the same configurations.
fn scatter(number: usize) -> u32 {
    let mut x = (number as u32).wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    x ^= x >> 15;
    x = x.wrapping_mul(0x2c1b_3c6d);
    x ^ (x >> 13)
}

fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for number in 0..TABLES {
        let most = [3, 12, 60, 256][number % 4];
        let servers = 2 + scatter(number) as usize % 7;
        let weights = (0..servers).map(|server| 1 + scatter(1000 + 10 * number + server) % most).collect();
        setups.push(Setup { algorithm: "static-rr", hash: String::new(), weights });
    }
    for method in ["map-based", "consistent"] {
        for function in ["sdbm", "djb2", "crc32"] {
            for modifier in ["", " avalanche"] {
                let hash = format!("{method} {function}{modifier}");
                let of = |weights: &&[u32]| Setup { algorithm: "uri", hash: hash.clone(), weights: weights.to_vec() };
                setups.extend(HASHED.iter().map(of));
            }
        }
    }
    setups
}

fn recording(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name)
}

fn recorded(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(recording(name)).expect("the recording is in the tree");
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn choices_are_haproxys() {
    let setups = setups();
    if is_recording() {
        record_choices(&setups);
    }
    let recorded = recorded("choices.txt");
    assert_eq!(recorded.len(), setups.len(), "a line for each configuration");
    for (setup, line) in setups.iter().zip(recorded) {
        assert_eq!(format!("{}: {}", setup.name(), setup.choices()), line);
    }
}

/// After a change the order is ours: who was changed keeps its running turn, which HAProxy begins anew in most cases. How often
/// each server is chosen differs by no more than this among the next 24 requests.
const TURNS_APART_MAX: usize = 2;

#[test]
fn turns_are_shared_out_as_haproxys_when_servers_change() {
    for line in recorded("changes.txt") {
        let mut words = line.split(' ');
        let weights: Vec<u32> =
            words.next().expect("weights").split(',').map(|one| one.parse().expect("a number")).collect();
        let mut setup = Setup { algorithm: "roundrobin", hash: String::new(), weights };
        let proxy = |setup: &Setup| {
            let mut proxy = setup.proxy();
            proxy.balance.algorithm = Algorithm::RoundRobin;
            Arc::new(proxy)
        };
        let now = Instant::now();
        let state = BackendState::new(&proxy(&setup), now);
        let mut ours = vec![line.split(' ').next().expect("weights").to_owned()];
        for word in words {
            if let Some((server, weight)) = word.split_once('=') {
                setup.weights[server.parse::<usize>().expect("a number") - 1] = weight.parse().expect("a number");
                state.reconfigure(&proxy(&setup), now);
                ours.push(word.to_owned());
            } else if let Some((server, health)) = word.split_once(':') {
                let health = if health == "up" { HealthState::Up } else { HealthState::Down };
                state.server(server).expect("it is there").set_health(health, now);
                ours.push(word.to_owned());
            } else {
                let one = |_| match state.pick(&PickCriteria::new(now)) {
                    Picked::Slot(slot) => slot.server().name().to_string(),
                    other => panic!("{other:?}"),
                };
                let turns: String = (0..word.trim_start_matches('-').len()).map(one).collect();
                ours.push(if turns.is_empty() { "-".to_owned() } else { turns });
            }
        }
        assert_eq!(ours[..2], line.split(' ').take(2).collect::<Vec<_>>(), "before anything changes");
        for (ours, theirs) in
            ours.iter().zip(line.split(' ')).filter(|(ours, _)| ours.len() > 1 && !ours.contains([':', '=']))
        {
            for server in '1'..='5' {
                let count = |turns: &str| turns.matches(server).count();
                let difference = count(ours).abs_diff(count(theirs));
                assert!(
                    difference <= TURNS_APART_MAX,
                    "{difference} turns of {server} between {ours} and {theirs} in {line}"
                );
            }
        }
    }
}

#[test]
fn bounded_loads_are_haproxys() {
    let recorded = recorded("bounded.txt");
    assert_eq!(recorded.len(), 120);
    for line in recorded {
        let words: Vec<_> = line.split(' ').collect();
        let [weights, factor, targets, expect] = words[..] else { panic!("{line}") };
        let weights = weights.split(',').map(|weight| weight.parse().expect("a number")).collect();
        let mut proxy = Setup { algorithm: "uri", hash: "consistent sdbm avalanche".into(), weights }.proxy();
        proxy.balance.factor = factor.parse().expect("a number");
        let now = Instant::now();
        let state = BackendState::new(&Arc::new(proxy.clone()), now);
        let targets: Vec<_> = targets.split(',').collect();
        let mut held = Vec::new();
        for number in 0..expect.len() {
            let target = targets[number % targets.len()].as_bytes();
            let key = Some(keys::uri(&proxy.balance.hash, &UriHash::default(), target));
            match state.pick(&PickCriteria { key, ..PickCriteria::new(now) }) {
                Picked::Slot(slot) => held.push(slot),
                other => panic!("{other:?}"),
            }
        }
        let servers: String = held.iter().map(|slot| slot.server().name().as_ref()).collect();
        assert_eq!(servers, expect, "{line}");
    }
}

#[test]
fn avalanche_is_haproxys() {
    if is_recording() {
        record_avalanche();
    }
    let recorded = recorded("avalanche.txt");
    assert_eq!(recorded.len(), VALUES);
    for (number, line) in recorded.iter().enumerate() {
        let value = hash::avalanche(hash::sdbm(target(number).as_bytes()));
        assert_eq!(&format!("{value:08x}"), line, "{}", target(number));
    }
}

fn is_recording() -> bool {
    std::env::var_os("BATON_RECORD").is_some()
}

/// Asks HAProxy, with one frontend for each configuration, all in one process.
fn record_choices(setups: &[Setup]) {
    let origin = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = origin.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in origin.incoming() {
            let mut client = client.expect("haproxy connects");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(client.try_clone().expect("a descriptor"));
                while head(&mut reader).is_some() {
                    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("haproxy reads");
                }
            });
        }
    });
    let places: Vec<SocketAddr> = setups.iter().map(|_| free_address()).collect();
    let mut config = String::from("global\n nbthread 1\n");
    config += "defaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n";
    for (number, (setup, place)) in setups.iter().zip(&places).enumerate() {
        let _ = writeln!(
            config,
            "listen l{number}\n bind {place}\n http-response set-header s %s\n balance {}",
            setup.algorithm
        );
        if !setup.hash.is_empty() {
            let _ = writeln!(config, " hash-type {}", setup.hash);
        }
        for (weight, id) in setup.weights.iter().zip(1..) {
            let _ = writeln!(config, " server {id} {address} id {id} weight {weight}");
        }
    }
    let _haproxy = Haproxy::start(&config, places[0]);
    let mut text =
        String::from("# The server of each request, by configuration. HAProxy 2.6.12 chose; see tests/choices.rs.\n");
    for (setup, place) in setups.iter().zip(places) {
        let servers: String = ask(place, REQUESTS, "s").concat();
        let _ = writeln!(text, "{}: {servers}", setup.name());
    }
    std::fs::write(recording("choices.txt"), text).expect("the folder is there");
}

fn record_avalanche() {
    let place = free_address();
    let config = format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 9s\nfrontend f\n bind {place}\n \
         http-request return status 200 hdr v %[path,sdbm(1),hex]\n"
    );
    let _haproxy = Haproxy::start(&config, place);
    let mut text = String::from("# sdbm(1) of each target. HAProxy 2.6.12 computed; see tests/choices.rs.\n");
    for value in ask(place, VALUES, "v") {
        // `hex` shows the eight bytes of an integer.
        let _ = writeln!(text, "{}", value[value.len() - 8..].to_lowercase());
    }
    std::fs::write(recording("avalanche.txt"), text).expect("the folder is there");
}

/// The header's values in the answers to so many requests on one connection.
fn ask(place: SocketAddr, count: usize, header: &str) -> Vec<String> {
    let mut client = TcpStream::connect(place).expect("haproxy listens");
    let mut reader = BufReader::new(client.try_clone().expect("a descriptor"));
    let one = |number| {
        let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", target(number));
        client.write_all(request.as_bytes()).expect("haproxy reads");
        let head = head(&mut reader).expect("an answer");
        let value = head.iter().find_map(|line| line.strip_prefix(&format!("{header}: ")));
        value.unwrap_or_else(|| panic!("{head:?}")).to_owned()
    };
    (0..count).map(one).collect()
}

/// The lines of a head; `None` at the end of the connection.
fn head(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

struct Haproxy(std::process::Child);

impl Haproxy {
    /// Starts it with this configuration and waits until it listens at `place`.
    fn start(config: &str, place: SocketAddr) -> Haproxy {
        let mut command = Command::new(HAPROXY);
        let mut child = command.args(["-db", "-f", "/dev/stdin"]).stdin(Stdio::piped()).spawn().expect("haproxy");
        child.stdin.take().expect("asked for").write_all(config.as_bytes()).expect("haproxy reads its configuration");
        let mut haproxy = Haproxy(child);
        while TcpStream::connect(place).is_err() {
            assert!(haproxy.0.try_wait().expect("our child").is_none(), "haproxy refuses:\n{config}");
            std::thread::yield_now();
        }
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
