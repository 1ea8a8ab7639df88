//! On the machine's own kernel, in network namespaces of their own, every way to make rules that it has.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use baton_kernel::netns;
use baton_kernel::nfqueue::{QueueVerdict, open_queues};

use super::*;
use crate::hold::method::MethodName;
use crate::hold::target::Targets;

const PATIENCE: Duration = Duration::from_secs(20);

struct NoJournal;

impl Journal for NoJournal {
    fn note(&mut self, _name: &str, _word: &str) -> Result<(), KernelError> {
        Ok(())
    }
}

fn apart(work: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(work) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

fn order(run: u32, listener: &TcpListener, limit: u32) -> HoldOrder {
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let (method, targets) = (MethodName::Queue, Targets::new(vec![target]).unwrap());
    HoldOrder { run, method, targets, max: PATIENCE, limit, interfaces: Vec::new() }
}

fn holding(order: &HoldOrder, way: &RulesBackend) -> QueueMethod {
    QueueMethod { order: order.clone(), way: way.clone(), keeper: None, may_have_rules: false }
}

/// The ways that this kernel has: the machine's lacks the statement, or has it.
fn ways(order: &HoldOrder) -> [RulesBackend; 2] {
    [
        RulesBackend::find(order).expect("one of them"),
        RulesBackend::iptables(order).expect("scripts/setup test installs iptables"),
    ]
}

fn client(address: SocketAddr) -> JoinHandle<io::Result<TcpStream>> {
    thread::spawn(move || TcpStream::connect(address))
}

/// Packets waiting in all queues.
fn waiting() -> u32 {
    open_queues().unwrap().iter().map(|queue| queue.waiting).sum()
}

/// Segments of TCP that were sent again in this network namespace.
fn sent_again() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (rows.next().unwrap().split(' '), rows.next().unwrap().split(' '));
    names.zip(values).find(|(name, _)| *name == "RetransSegs").unwrap().1.parse().unwrap()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("scripts/setup test installs it");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // iptables-save says when it was run.
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Everything that programs show of rules.
fn rules_shown() -> [String; 4] {
    let nft = said("nft", &["list", "ruleset"]);
    [nft, said("iptables-save", &[]), said("ip6tables-save", &[]), said("iptables-legacy-save", &[])]
}

fn firewall() {
    let rules = "table inet mine {\n chain in {\n type filter hook input priority 0\n tcp dport 22 drop\n tcp dport 24 accept\n }\n }\n";
    assert!(Command::new("nft").arg(rules).status().unwrap().success());
    for program in ["iptables", "ip6tables"] {
        for table in ["filter", "mangle"] {
            let words = ["-t", table, "-A", "INPUT", "-p", "tcp", "--dport", "23", "-j", "DROP"];
            assert!(Command::new(program).args(words).status().unwrap().success());
        }
    }
}

#[test]
fn clients_wait_and_come_in_their_order() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        apart(|| {
            let listener = TcpListener::bind(address).unwrap();
            let local = listener.local_addr().unwrap();
            let order = order(7, &listener, 100);
            for way in ways(&order) {
                let mut holding = holding(&order, &way);
                holding.begin(&mut NoJournal).unwrap();
                // One after the other, so that their order is known.
                let clients: Vec<_> = (1..=5)
                    .map(|number| {
                        let client = client(local);
                        until("it waits", || waiting() == number);
                        client
                    })
                    .collect();
                listener.set_nonblocking(true).unwrap();
                assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
                listener.set_nonblocking(false).unwrap();
                let held = holding.end().unwrap();
                assert_eq!((held.connections, held.over_limit), (5, 0), "{held:?}");
                let came: Vec<_> = (0..5).map(|_| listener.accept().unwrap().1).collect();
                let went: Vec<_> =
                    clients.into_iter().map(|client| client.join().unwrap().unwrap().local_addr().unwrap()).collect();
                assert_eq!(came, went, "{way:?}");
                let delay = held.delay.unwrap();
                assert!(delay.median.unwrap() <= delay.longest && delay.longest < PATIENCE, "{delay:?}");
                assert_eq!(open_queues().unwrap(), []);
                // And nobody waits any more.
                client(local).join().unwrap().unwrap();
                listener.accept().unwrap();
            }
        });
    }
}

#[test]
fn established_connections_and_other_ports_are_not_touched() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = order(7, &listener, 100);
        let mut open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut accepted = listener.accept().unwrap().0;
        for way in ways(&order) {
            let mut holding = holding(&order, &way);
            holding.begin(&mut NoJournal).unwrap();
            io::Write::write_all(&mut open, b"held?").unwrap();
            io::Read::read_exact(&mut accepted, &mut [0; 5]).unwrap();
            client(other.local_addr().unwrap()).join().unwrap().unwrap();
            assert_eq!(holding.end().unwrap(), HoldCounts::default());
        }
    });
}

#[test]
fn above_the_limit_clients_pass() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mut holding = holding(&order(7, &listener, 2), &RulesBackend::find(&order(7, &listener, 2)).unwrap());
        holding.begin(&mut NoJournal).unwrap();
        let clients = [client(local), client(local)];
        until("two wait", || waiting() == 2);
        for _ in 0..3 {
            client(local).join().unwrap().unwrap();
        }
        let held = holding.end().unwrap();
        assert_eq!((held.connections, held.over_limit), (2, 3));
        assert!(clients.into_iter().all(|client| client.join().unwrap().is_ok()));
    });
}

#[test]
fn at_the_deadline_clients_pass_by_themselves() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let short = HoldOrder { max: Duration::from_millis(200), ..order(7, &listener, 100) };
        let mut holding = holding(&short, &RulesBackend::find(&short).unwrap());
        holding.begin(&mut NoJournal).unwrap();
        client(local).join().unwrap().unwrap();
        client(local).join().unwrap().unwrap();
        assert_eq!(holding.end().unwrap().connections, 1);
    });
}

#[test]
fn a_syn_that_is_sent_again_waits_once() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = order(7, &listener, 100);
        let mut holding = holding(&order, &RulesBackend::find(&order).unwrap());
        holding.begin(&mut NoJournal).unwrap();
        let client = client(listener.local_addr().unwrap());
        until("it waits", || waiting() == 1);
        until("it is sent again", || sent_again() == 1);
        until("the second one is dropped", || waiting() == 1);
        let held = holding.end().unwrap();
        assert_eq!(held.connections, 1);
        assert!(held.remarks.iter().any(|remark| remark.contains("were retransmitted")), "{held:?}");
        client.join().unwrap().unwrap();
    });
}

#[test]
fn rules_that_were_there_are_there_afterwards() {
    apart(|| {
        firewall();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = order(7, &listener, 100);
        let before = rules_shown();
        for way in ways(&order) {
            let mut ended = holding(&order, &way);
            ended.begin(&mut NoJournal).unwrap();
            assert_ne!(rules_shown(), before, "{way:?}");
            ended.end().unwrap();
            assert_eq!(rules_shown(), before, "{way:?}");
            // A process that was killed leaves nothing either.
            let mut killed = holding(&order, &way);
            killed.begin(&mut NoJournal).unwrap();
            drop(killed);
            client(listener.local_addr().unwrap()).join().unwrap().unwrap();
            let notes = UndoNotes::from([(WAY.to_owned(), way.word().to_owned())]);
            undo(&order, &notes).unwrap();
            assert_eq!(rules_shown(), before, "{way:?}");
            undo(&order, &notes).unwrap();
        }
        undo(&order, &UndoNotes::new()).unwrap();
        assert_eq!(rules_shown(), before);
    });
}

#[test]
fn what_waits_in_another_hold_stays_there() {
    apart(|| {
        let (one, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (first, second) = (order(7, &one, 100), order(8, &other, 100));
        let way = RulesBackend::find(&first).unwrap();
        let (mut first, mut second) = (holding(&first, &way), holding(&second, &way));
        first.begin(&mut NoJournal).unwrap();
        second.begin(&mut NoJournal).unwrap();
        let waits = client(one.local_addr().unwrap());
        until("it waits", || waiting() == 1);
        let held = second.end().unwrap();
        assert!(held.remarks.iter().any(|remark| remark.contains("is left for the next run")), "{held:?}");
        client(other.local_addr().unwrap()).join().unwrap().unwrap();
        assert_eq!(waiting(), 1);
        assert_eq!(first.end().unwrap().connections, 1);
        waits.join().unwrap().unwrap();
        // Its table went with the last one.
        assert_eq!(said("nft", &["list", "ruleset"]), "");
    });
}

#[test]
fn the_queue_of_another_program_is_left_alone() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = order(7, &listener, 100);
        let mut theirs = PacketQueue::open(16).unwrap();
        let number = theirs.number().to_string();
        let words = [
            "-t",
            "mangle",
            "-A",
            "INPUT",
            "-p",
            "tcp",
            "--dport",
            "9",
            "--syn",
            "-j",
            "NFQUEUE",
            "--queue-num",
            &number,
        ];
        assert!(Command::new("iptables").args(words).status().unwrap().success());
        let nine = TcpListener::bind("127.0.0.1:9").unwrap();
        let waits = client(nine.local_addr().unwrap());
        until("it waits", || waiting() == 1);
        for way in ways(&order) {
            let mut holding = holding(&order, &way);
            holding.begin(&mut NoJournal).unwrap();
            assert_eq!(open_queues().unwrap().len(), 2);
            holding.end().unwrap();
        }
        assert_eq!(waiting(), 1);
        for packet in theirs.packets().unwrap() {
            theirs.decide(packet.id, QueueVerdict::Accept).unwrap();
        }
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn by_iptables_far_targets_beside_near_ones_are_held_on_their_way() {
    apart(|| {
        firewall();
        let targets = [":80", "127.0.0.1:81", "10.9.0.9:82", "[2001:db8::9]:83"].map(|target| target.parse().unwrap());
        let (run, method) = (7, MethodName::Queue);
        let targets = Targets::new(targets.to_vec()).unwrap();
        let order = HoldOrder { run, method, targets, max: PATIENCE, limit: 1, interfaces: Vec::new() };
        let way = RulesBackend::iptables(&order).unwrap();
        // Chains of the host that iptables makes when it first needs them stay, empty.
        let saved = || [said("iptables-save", &[]), said("ip6tables-save", &[])];
        let before = saved();
        way.make(&order, 3, &mut false).unwrap();
        let check = |program: &str, far: &str, ports: [&str; 3]| {
            let saved = said(program, &["-S", "-t", "mangle"]);
            let saved = saved.lines().collect::<Vec<_>>();
            let rules_of = |chain: &str| {
                let rules: Vec<_> = saved.iter().filter(|line| line.starts_with(&format!("-A {chain} "))).collect();
                assert!(rules.iter().all(|rule| rule.contains("-j NFQUEUE --queue-num 3 --queue-bypass")), "{saved:?}");
                rules.iter().map(|rule| rule.split("--dport ").nth(1).unwrap()[..2].to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(rules_of("BATON-HOLD-7"), ports.into_iter().filter(|port| !port.is_empty()).collect::<Vec<_>>());
            assert_eq!(rules_of("BATON-HOLD-7-FAR"), [far]);
            for jump in [
                "INPUT -p tcp -j BATON-HOLD-7",
                "FORWARD -p tcp -j BATON-HOLD-7-FAR",
                "OUTPUT ! -o lo -p tcp -j BATON-HOLD-7-FAR",
            ] {
                assert!(saved.contains(&format!("-A {jump}").as_str()), "{jump}: {saved:?}");
            }
        };
        check("iptables", "82", ["80", "81", "82"]);
        check("ip6tables", "83", ["80", "83", ""]);
        rules::silence(&order, &way).unwrap();
        assert_eq!(saved(), before);
    });
}

#[test]
fn the_plan_says_what_will_be_done() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let order = order(7, &listener, 100);
        assert!(usable(&order).is_ok());
        for way in ways(&order) {
            let text = holding(&order, &way).plan().to_string();
            assert!(
                text.contains("NFQUEUE") && text.contains(&listener.local_addr().unwrap().port().to_string()),
                "{text}"
            );
        }
        assert_eq!(said("nft", &["list", "ruleset"]), "");
    });
}
