//! Agent checks: the same agents are asked by Debian's haproxy and by Baton. What statistics, states and logs say of the servers must be
//! equal, whatever the agents say.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::peers::socat;
use crate::support::haproxy::Haproxy;
use crate::support::{PATIENCE, Proxy, until};
use crate::table::{Table, cell, table};

/// An agent that says what it is told to say. It ends with the test's process.
pub struct Agent {
    pub port: u16,
    says: Arc<Mutex<Vec<u8>>>,
    /// How often it was asked, and answered.
    asked: Arc<AtomicU32>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Agent {
    pub fn start(says: &[u8]) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let agent = Agent {
            port: listener.local_addr().expect("it is bound").port(),
            says: Arc::new(Mutex::new(says.to_vec())),
            asked: Arc::default(),
            received: Arc::default(),
        };
        let (says, asked, received) = (Arc::clone(&agent.says), Arc::clone(&agent.asked), Arc::clone(&agent.received));
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (says, asked, received) = (Arc::clone(&says), Arc::clone(&asked), Arc::clone(&received));
                thread::spawn(move || {
                    let answer = says.lock().unwrap().clone();
                    // Who has gone is not there to be answered.
                    let _ = stream.write_all(&answer);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    let mut sent = Vec::new();
                    let _ = stream.read_to_end(&mut sent);
                    if !sent.is_empty() {
                        *received.lock().unwrap() = sent;
                    }
                    asked.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        agent
    }

    /// From now on it says this, and has said it: twice, for what was said before may still have been on its way.
    pub fn says(&self, text: &[u8]) {
        *self.says.lock().unwrap() = text.to_vec();
        let before = self.asked.load(Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        while self.asked.load(Ordering::SeqCst) < before + 3 {
            assert!(Instant::now() < end, "nobody asks");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

const ANSWERS: &[&[u8]] = &[
    b"up\n",
    b"down\n",
    b"75%\n",
    b"0%\n",
    b"150%\n",
    b"-5%\n",
    b"75\n",
    b"%\n",
    b"75%%\n",
    b"7x5%\n",
    b"ready\n",
    b"drain\n",
    b"maint\n",
    b"fail\n",
    b"failed\n",
    b"stopped\n",
    b"stop\n",
    b"down#busy with things\n",
    b"down #busy\n",
    b"up #fine here\n",
    b"fail # a b c\r\n",
    b"stopped#x\t75%\n",
    b"up 50% maxconn:7 ready\n",
    b"maxconn:9\n",
    b"maxconn:x\n",
    b"maxconn:0\n",
    b"maxconn:7x\n",
    b"MAXCONN:4\n",
    b"UP\n",
    b"Down\n",
    b"drain 50%\n",
    b"up maint\n",
    b"maint up\n",
    b"up down\n",
    b"down up\n",
    b"garbage\n",
    b"up garbage\n",
    b"garbage other up\n",
    b"\n",
    b"",
    b"\r\nup\n",
    b"\tup\t\n",
    b"#only\n",
    b"# up\n",
    b"ready#note\n",
    b"50%#note\n",
    b"down 10% #why\n",
    b"ready drain\n",
    b"drain ready\n",
    b"10% 20%\n",
    b"up\nfail\n",
    b"99999999999%\n",
    b"up;down\n",
    b"down ##x\n",
    b"up garbage #why\n",
    b"up 75%% #x\n",
    b"garbage 75%%\n",
    b"75%% maxconn:x\n",
    b"50%up\n",
];

const COLUMNS: [&str; 15] = [
    "status",
    "weight",
    "slim",
    "act",
    "check_status",
    "last_chk",
    "agent_status",
    "agent_code",
    "agent_desc",
    "agent_rise",
    "agent_fall",
    "agent_health",
    "last_agt",
    "uweight",
    "chkdown",
];

/// A running program, and what it logs.
pub struct Observed {
    folder: tempfile::TempDir,
    log: UdpSocket,
    _program: Box<dyn std::any::Any>,
}

impl Observed {
    /// With backends, after `global` and `defaults` of this test.
    fn start(backends: &str, run: impl FnOnce(&str, &Path) -> Box<dyn std::any::Any>) -> Observed {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let log = UdpSocket::bind("127.0.0.1:0").expect("a port");
        log.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket takes it");
        let text = format!(
            "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\n log 127.0.0.1:{log} local0\n \
             max-spread-checks 20ms\ndefaults\n log global\n mode http\n timeout connect 3s\n timeout client 3s\n \
             timeout server 3s\nfrontend f\n bind {folder}/front.sock\n default_backend b0\n{backends}",
            folder = folder.path().display(),
            log = log.local_addr().expect("it is bound").port(),
        );
        let program = run(&text, folder.path());
        Observed { folder, log, _program: program }
    }

    pub fn haproxy(backends: &str) -> Observed {
        Observed::start(backends, |text, folder| Box::new(Haproxy::start(text, &folder.join("admin.sock"))))
    }

    pub fn baton(backends: &str) -> Observed {
        Observed::start(backends, |text, _| Box::new(Proxy::start(text)))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    pub fn command(&self, command: &str) -> String {
        socat(&self.socket(), format!("{command}\n"))
    }

    pub fn stats(&self) -> Table {
        table(&self.command("show stat"))
    }

    /// A server's columns, and its line of `show servers state` without times, address and port.
    pub fn server(&self, stats: &Table, backend: &str, server: &str) -> Vec<String> {
        // A check under way is marked by a star.
        let column = |name: &&str| cell(stats, backend, server, name).trim_start_matches("* ").to_owned();
        let mut seen: Vec<String> =
            COLUMNS.iter().map(|name| format!("{name}={}", column(name))).filter(|text| !text.ends_with('=')).collect();
        let states = self.command(&format!("show servers state {backend}"));
        let state = states.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let state = state.filter(|words| words.len() > 23 && words[3] == server).map(|words| {
            let agent = words[14].parse::<u8>().map_or(0, |state| state & !1);
            format!(
                "{} {agent} {} {}",
                [&words[5..9], &words[10..12], &words[13..14]].concat().join(" "),
                words[22],
                words[23]
            )
        });
        seen.extend(state);
        seen
    }

    /// What was logged of servers and backends until nothing comes any more, by backend, without durations.
    fn logged(&self) -> BTreeMap<String, Vec<String>> {
        let mut lines = self.lines();
        // HAProxy repeats this with every weight that an agent says.
        lines.values_mut().for_each(|lines| lines.retain(|line| !line.ends_with("remains in forced drain mode.")));
        lines
    }

    /// As [`Observed::logged`], with every line.
    pub fn lines(&self) -> BTreeMap<String, Vec<String>> {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut packet = [0; 4096];
        while let Ok(length) = self.log.recv(&mut packet) {
            let text = String::from_utf8_lossy(&packet[..length]).into_owned();
            let (priority, line) = (&text[..5], text.split_once(": ").map_or("", |(_, line)| line.trim_end()));
            let subject = ["Server ", "Backup Server ", "Agent check for server "].iter();
            let Some(name) = subject.filter_map(|text| line.strip_prefix(text)?.split('/').next()).next() else {
                continue;
            };
            let line = match line.split_once("check duration: ") {
                Some((before, after)) => format!("{before}{}", after.split_once("ms").map_or("", |(_, rest)| rest)),
                None => line.to_owned(),
            };
            lines.entry(name.to_owned()).or_default().push(format!("{priority} {line}"));
        }
        lines
    }
}

#[test]
fn every_answer_means_what_it_means_to_haproxy() {
    let agents: Vec<Agent> = ANSWERS.iter().map(|answer| Agent::start(answer)).collect();
    let backend = |(at, agent): (usize, &Agent)| {
        format!(
            "backend b{at}\n option log-health-checks\n server s 127.0.0.1:9 weight 10 maxconn 20 agent-check agent-port {} \
             agent-inter 60s\n server t 127.0.0.1:9\n",
            agent.port
        )
    };
    let backends: String = agents.iter().enumerate().map(backend).collect();
    let outcomes = |observed: Observed| {
        let end = Instant::now() + PATIENCE;
        let is_asked = |stats: &Table, at: usize| {
            let status = cell(stats, &format!("b{at}"), "s", "agent_status");
            status != "INI" && !status.starts_with('*')
        };
        let stats = loop {
            let stats = observed.stats();
            if (0..agents.len()).all(|at| is_asked(&stats, at)) {
                break stats;
            }
            assert!(Instant::now() < end, "{stats:?}");
            thread::sleep(Duration::from_millis(20));
        };
        let seen: Vec<Vec<String>> =
            (0..agents.len()).map(|at| observed.server(&stats, &format!("b{at}"), "s")).collect();
        (seen, observed.logged())
    };
    let (reference, reference_log) = outcomes(Observed::haproxy(&backends));
    let (ours, log) = outcomes(Observed::baton(&backends));
    let mut faults = Vec::new();
    for (at, answer) in ANSWERS.iter().enumerate() {
        let name = format!("b{at}");
        if (&ours[at], log.get(&name)) != (&reference[at], reference_log.get(&name)) {
            faults.push(format!(
                "{:?}\n  haproxy {:?}\n          {:?}\n  baton   {:?}\n          {:?}",
                String::from_utf8_lossy(answer),
                reference[at],
                reference_log.get(&name),
                ours[at],
                log.get(&name)
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Somebody says something.
enum Turn {
    Agent(&'static str),
    Operator(&'static str),
}

use Turn::{Agent as Says, Operator};

const TURNS: &[Turn] = &[
    Says("up"),
    Says("down #why"),
    Operator("set server b0/s health up"),
    Says("up"),
    Operator("set server b0/s agent down"),
    Says("50%"),
    Operator("set server b0/s agent up"),
    Says("drain"),
    Operator("set server b0/s state ready"),
    Says("maint"),
    Says("drain"),
    Says("ready"),
    Says("down maint"),
    Says("up ready"),
    Operator("set server b0/s state drain"),
    Says("up"),
    Operator("set server b0/s state ready"),
    Says("0%"),
    Says("100% maxconn:3"),
    Says("down"),
    Operator("disable agent b0/s"),
    Operator("set server b0/s agent up"),
    Operator("enable agent b0/s"),
    Says("up"),
    Operator("set server b0/s weight 4"),
    Says("up"),
    Says("200%"),
];

#[test]
fn agents_and_operators_have_the_last_word_in_turn() {
    let outcomes = |start: fn(&str) -> Observed| {
        let agent = Agent::start(b"up\n");
        let backends = format!(
            "backend b0\n server s 127.0.0.1:9 weight 10 maxconn 20 agent-check agent-port {} agent-inter 30ms \
             agent-send hello\\n\n timeout check 3s\n",
            agent.port
        );
        let observed = start(&backends);
        let mut says = String::from("up");
        let seen: Vec<String> = TURNS
            .iter()
            .map(|turn| {
                let what = match turn {
                    Says(text) => {
                        says = (*text).to_owned();
                        format!("agent {text}")
                    }
                    Operator(command) => format!("{command} -> {}", observed.command(command).trim_end()),
                };
                let is_asked = observed.command("show servers state b0").lines().any(|line| {
                    line.split(' ')
                        .nth(14)
                        .and_then(|state| state.parse::<u8>().ok())
                        .is_some_and(|state| state & 4 > 0)
                });
                if is_asked {
                    agent.says(format!("{says}\n").as_bytes());
                }
                let end = Instant::now() + PATIENCE;
                let stats = loop {
                    assert!(Instant::now() < end, "it is asked all the time");
                    let stats = observed.stats();
                    // While it is asked, what it said last is not there; and a busy machine may be too late for it.
                    let status = cell(&stats, "b0", "s", "agent_status");
                    if !status.starts_with('*') && !status.ends_with("TOUT") {
                        break stats;
                    }
                };
                format!("{what}: {}", observed.server(&stats, "b0", "s").join(" "))
            })
            .collect();
        assert_eq!(agent.received.lock().unwrap().as_slice(), b"hello\n");
        (seen, observed.logged())
    };
    let (reference, reference_log) = outcomes(Observed::haproxy);
    let (ours, log) = outcomes(Observed::baton);
    for (seen, expect) in ours.iter().zip(&reference) {
        assert_eq!(seen, expect);
    }
    for (backend, lines) in &reference_log {
        assert_eq!(log[backend].join("\n"), lines.join("\n"), "{backend}");
    }
}

#[test]
fn what_an_agent_said_and_what_an_operator_set_of_it_survive_a_reload() {
    let (agent, other) = (Agent::start(b"up\n"), Agent::start(b"down 30%\n"));
    let backends = |words: &str| {
        format!(
            "backend b0\n server s 127.0.0.1:9 weight 10 {words}\n server t 127.0.0.1:9 weight 10 agent-check agent-port {} \
             agent-inter 60s\n",
            other.port
        )
    };
    let words = format!("agent-check agent-port {} agent-inter 20ms", agent.port);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let text = |words: &str| {
        format!(
            "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\n max-spread-checks 20ms\ndefaults\n mode http\n \
             timeout connect 3s\n timeout client 3s\n timeout server 3s\nfrontend f\n bind {folder}/front.sock\n \
             default_backend b0\n{}",
            backends(words),
            folder = folder.path().display(),
        )
    };
    let proxy = Proxy::start(&text(&words));
    let command = |command: &str| socat(&folder.path().join("admin.sock"), format!("{command}\n"));
    let until = |what: &str, command_line: &str, is_so: &dyn Fn(&str) -> bool| {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = command(command_line);
            if is_so(&said) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {said}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    let status = |server: &str| {
        let stats = table(&command("show stat"));
        ["status", "weight"].map(|name| cell(&stats, "b0", server, name).to_owned())
    };
    until("the other agent's word", "show overrides", &|said| said.contains("server b0/t weight 3 (file: 10)"));
    assert_eq!(command("set server b0/s agent-send a\\nb"), "\n");
    assert_eq!(command(&format!("set server b0/s agent-port {}", other.port)), "\n");
    until("moved to the other agent", "show overrides", &|said| said.contains("server b0/s weight 3"));
    assert_eq!(command("disable agent b0/s"), "\n");
    let before = (status("s"), status("t"));
    assert_eq!(before.1, ["DOWN (agent)", "3"]);
    assert!(proxy.change(&text(&words).replace("timeout client 3s", "timeout client 4s")).accepted);
    assert_eq!((status("s"), status("t")), before);
    let said = command("show overrides");
    for expect in ["server b0/s agent disabled (file: enabled)", "server b0/s agent-port", "over agent-check"] {
        assert!(said.contains(expect), "{said}");
    }
    assert!(!command("save overrides").contains("b0/t"), "an agent says it again");
    // Without its agent, nobody keeps the server down, or at another weight.
    assert!(proxy.change(&text("").replace("agent-check agent-port", "agent-port")).accepted);
    assert_eq!(
        (status("s"), status("t")),
        (["no check", "10"].map(String::from), ["no check", "10"].map(String::from))
    );
}

#[test]
fn what_an_agent_said_outlives_takeovers_and_crashes() {
    let (busy, draining) = (Agent::start(b"down 30% maxconn:5 #busy\n"), Agent::start(b"drain\n"));
    let folder = tempfile::tempdir().expect("a folder for the test");
    let text = format!(
        "global\n nbthread 1\n stats socket {folder}/admin.sock level admin\n max-spread-checks 20ms\ndefaults\n mode http\n \
         timeout connect 3s\n timeout client 3s\n timeout server 3s\nfrontend f\n bind {folder}/front.sock\n \
         default_backend b0\nbackend b0\n server s 127.0.0.1:9 weight 10 maxconn 20 agent-check agent-port {} agent-inter 50ms\n \
         server t 127.0.0.1:9 weight 10 agent-check agent-port {} agent-inter 50ms\n server u 127.0.0.1:9 track b0/s\n",
        busy.port,
        draining.port,
        folder = folder.path().display(),
    );
    let command = |command: &str| socat(&folder.path().join("admin.sock"), format!("{command}\n"));
    let seen = || {
        let stats = table(&command("show stat"));
        let one = |server: &str| {
            ["status", "weight", "slim"].map(|name| cell(&stats, "b0", server, name).to_owned()).join(" ")
        };
        ["s", "t", "u"].map(one).join(", ")
    };
    let pid = || {
        let text = command("show info");
        let line = text.lines().find_map(|line| line.strip_prefix("Pid: "));
        line.and_then(|pid| pid.parse::<i32>().ok()).unwrap_or_default()
    };
    const SAID: &str = "DOWN (agent) 3 5, DRAIN (agent) 10 , DOWN (agent) 1 ";
    let mut master = Proxy::begin(&[], &text, &["-W"]);
    master.serves();
    until("the agents are obeyed", || seen() == SAID);
    // From now on they say nothing: what they said is what there is.
    let asked = [&busy, &draining].map(|agent| agent.asked.load(Ordering::SeqCst));
    [&busy, &draining].iter().for_each(|agent| *agent.says.lock().unwrap() = Vec::new());
    let is_asked = |agent: &Agent, before: u32| agent.asked.load(Ordering::SeqCst) > before + 2;
    until("they are asked again", || is_asked(&busy, asked[0]) && is_asked(&draining, asked[1]));
    assert_eq!(seen(), SAID);
    let overrides = command("show overrides");
    assert!(overrides.contains("b0/s maxconn 5 (file: 20)") && overrides.contains("b0/t state drain"), "{overrides}");
    let first = pid();
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("it runs");
    until("another worker serves", || ![0, first].contains(&pid()));
    until("as the agents said, after a crash", || seen() == SAID);
    assert_eq!(command("show overrides"), overrides);
    // An operator's word lasts as long.
    assert_eq!(command("set server b0/t agent-send hello"), "\n");
    let next = master.replace(&["-W"]);
    until("the former one leaves", || master.has_ended());
    until("as the agents said, in another process", || seen() == SAID);
    until("it is sent", || draining.received.lock().unwrap().as_slice() == b"hello");
    let second = pid();
    kill(Pid::from_raw(second), Signal::SIGKILL).expect("it runs");
    until("another worker serves again", || ![0, first, second].contains(&pid()));
    until("as the agents said, after both", || seen() == SAID);
    // They have the last word as before.
    *busy.says.lock().unwrap() = b"up 100% maxconn:20\n".to_vec();
    *draining.says.lock().unwrap() = b"ready\n".to_vec();
    until("they speak again", || seen() == "no check 10 20, no check 10 , no check 1 ");
    drop(next);
}
