//! The method `plug` in a kernel that has the discipline: what it holds, what it leaves alone, and that nothing is left of it.

#[path = "../../baton/tests/support/lab/mod.rs"]
mod lab;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use baton_guard::KernelError;
use baton_guard::hold::{HoldCounts, HoldMethod, HoldOrder, Journal, MethodName, Target, Targets, method, plug};

/// Nothing here needs notes.
struct NoJournal;

impl Journal for NoJournal {
    fn note(&mut self, name: &str, word: &str) -> Result<(), KernelError> {
        panic!("{name}: {word}");
    }
}

fn order(targets: &[SocketAddr], limit: u32) -> HoldOrder {
    let targets = targets.iter().map(|local| Target { address: Some(local.ip()), port: local.port() }).collect();
    HoldOrder {
        run: std::process::id(),
        method: MethodName::Plug,
        targets: Targets::new(targets).unwrap(),
        max: Duration::from_secs(5),
        limit,
        interfaces: Vec::new(),
    }
}

/// A run that holds.
fn begun(order: &HoldOrder) -> Box<dyn HoldMethod> {
    let mut method = method::prepare(order).unwrap();
    method.begin(&mut NoJournal).unwrap();
    method
}

fn listen(at: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(at).unwrap();
    let local = listener.local_addr().unwrap();
    (listener, local)
}

fn dial(to: SocketAddr) -> JoinHandle<TcpStream> {
    std::thread::spawn(move || TcpStream::connect(to).unwrap())
}

fn said(words: &str) -> String {
    let mut words = words.split(' ');
    let done = Command::new(words.next().unwrap()).args(words.clone()).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// What belongs to the machine's owner: disciplines, filters and rules. Counters stand apart.
fn rules() -> Vec<String> {
    ["tc qdisc show", "tc filter show dev lo", "iptables-legacy-save", "ip6tables-legacy-save"]
        .map(|words| said(words).lines().filter(|line| !line.starts_with(['#', ':'])).collect::<Vec<_>>().join("\n"))
        .into()
}

fn wait_for(waiting: u32) {
    while plug::standing().unwrap()[0].waiting < waiting {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Nothing holds them.
fn flows(to: &[SocketAddr]) {
    to.iter().for_each(|to| drop(dial(*to).join().unwrap()));
}

#[test]
fn a_run_holds_its_targets_and_leaves_nothing() {
    lab::inside(|| {
        said("iptables-legacy -t mangle -A OUTPUT -p tcp --syn -j MARK --set-mark 1");
        let places = ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"].map(listen);
        let [four, six, other] = [0, 1, 2].map(|at: usize| places[at].1);
        let before = rules();
        let order = order(&[four, six], 100);
        let mut method = method::prepare(&order).unwrap();
        let plan = method.plan().to_string();
        assert!(
            ["prio ba71:", "plug ba7f:", &format!("SYNs to {six}")].iter().all(|text| plan.contains(text)),
            "{plan}"
        );
        assert_eq!(rules(), before, "a plan changes nothing");

        for _ in 0..2 {
            method.begin(&mut NoJournal).unwrap();
            let dialling = [dial(four), dial(six)];
            wait_for(2);
            flows(&[other]);
            assert!(dialling.iter().all(|dialling| !dialling.is_finished()));
            let held = method.end().unwrap();
            dialling.into_iter().for_each(|dialling| drop(dialling.join().unwrap()));
            assert_eq!((held.connections, held.over_limit), (2, 0), "{held:?}");
            assert!(held.delay.is_some() && held.remarks.iter().any(|remark| remark.contains("setup")), "{held:?}");
            assert_eq!(method.end().unwrap(), HoldCounts::default(), "a second end finds nothing to do");
            assert_eq!(rules(), before);
        }
        flows(&[four, six, other]);

        // A port of all addresses.
        let everywhere =
            HoldOrder { targets: Targets::new(vec![format!(":{}", four.port()).parse().unwrap()]).unwrap(), ..order };
        let mut method = begun(&everywhere);
        let dialling = dial(four);
        wait_for(1);
        assert_eq!(method.end().unwrap().connections, 1);
        drop(dialling.join().unwrap());
        assert_eq!(rules(), before);
    });
}

#[test]
fn a_lane_stands_through_runs_until_it_is_taken_down() {
    lab::inside(|| {
        let places = ["127.0.0.1:0", "127.0.0.1:0"].map(listen);
        let [one, two] = [0, 1].map(|at: usize| places[at].1);
        let before = rules();
        assert!(plug::setup(&order(&[one], 50)).unwrap()[0].contains("plug set up, open"));
        let standing = rules();
        assert!(plug::setup(&order(&[one], 50)).unwrap()[0].contains("0 of 1 filters are new"));
        assert_eq!(rules(), standing, "twice is once");
        flows(&[one, two]);

        let refused = method::prepare(&order(&[one, two], 50)).err().unwrap().to_string();
        assert!(refused.contains(&format!("is not set up for {two}")) && refused.contains("setup"), "{refused}");
        for _ in 0..3 {
            let order = order(&[one], 50);
            let mut method = begun(&order);
            let dialling = dial(one);
            wait_for(1);
            flows(&[two]);
            let held = method.end().unwrap();
            assert!(held.connections == 1 && held.remarks.is_empty(), "{held:?}");
            drop(dialling.join().unwrap());
            assert_eq!(rules(), standing);
        }

        // A run that was killed: its plug is opened, the lane stands.
        let of_run = order(&[one], 50);
        std::mem::forget(begun(&of_run));
        let dialling = dial(one);
        wait_for(1);
        method::undo(&of_run, &Default::default()).unwrap();
        drop(dialling.join().unwrap());
        assert_eq!(rules(), standing);

        assert!(plug::setup(&order(&[one, two], 50)).unwrap()[0].contains("1 of 2 filters are new"));
        assert!(plug::teardown(&[]).unwrap()[0].contains("the plug is removed"));
        assert!(plug::teardown(&[]).unwrap()[0].contains("no plug is set up"));
        assert_eq!(rules(), before);
        flows(&[one, two]);
    });
}

#[test]
fn what_a_killed_run_left_is_undone_and_found_by_the_next() {
    lab::inside(|| {
        let (_listener, place) = listen("127.0.0.1:0");
        let before = rules();
        let order = order(&[place], 2);
        std::mem::forget(begun(&order));
        let dialling = dial(place);
        wait_for(1);
        // The next run lets go what waits, and holds by itself.
        let mut method = begun(&order);
        drop(dialling.join().unwrap());
        let dialling: Vec<_> = (0..4).map(|_| dial(place)).collect();
        wait_for(2);
        let held = method.end().unwrap();
        dialling.into_iter().for_each(|dialling| drop(dialling.join().unwrap()));
        assert!(held.connections >= 2, "{held:?}");
        assert_eq!(rules(), before);

        std::mem::forget(begun(&order));
        let dialling = dial(place);
        wait_for(1);
        method::undo(&order, &Default::default()).unwrap();
        method::undo(&order, &Default::default()).unwrap();
        drop(dialling.join().unwrap());
        assert_eq!(rules(), before);
    });
}

#[test]
fn what_cannot_be_is_refused_with_nothing_changed() {
    lab::inside(|| {
        let (_listener, place) = listen("127.0.0.1:0");
        let order = order(&[place], 10);
        // The kernel without the module, and with it.
        std::fs::create_dir_all("/run/modprobe.d").unwrap();
        std::fs::write("/run/modprobe.d/none.conf", "install sch_plug /bin/false\n").unwrap();
        let before = rules();
        let refused = MethodName::Plug.usable(&order).unwrap_err().to_string();
        assert!(refused.contains("no module sch_plug"), "{refused}");
        let refused = method::prepare(&order).unwrap().begin(&mut NoJournal).unwrap_err().to_string();
        assert!(refused.contains("no module sch_plug"), "{refused}");
        assert_eq!(rules(), before);
        std::fs::remove_file("/run/modprobe.d/none.conf").unwrap();
        MethodName::Plug.usable(&order).unwrap();
        assert_eq!(rules(), before);

        // An interface that is not there.
        let nowhere = HoldOrder { interfaces: vec!["eth7".into()], ..order.clone() };
        assert!(method::prepare(&nowhere).err().unwrap().to_string().contains("no interface 'eth7'"));

        // Somebody's own discipline.
        said("tc qdisc add dev lo root handle 1: prio bands 4");
        said("tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dport 80 0xffff classid 1:4");
        let before = rules();
        for refused in [method::prepare(&order).err().unwrap(), plug::setup(&order).unwrap_err()] {
            let refused = refused.to_string();
            assert!(refused.contains("prio 1:") || refused.contains("File exists"), "{refused}");
        }
        assert!(plug::teardown(&[]).unwrap()[0].contains("no plug is set up"));
        method::undo(&order, &Default::default()).unwrap();
        assert_eq!(rules(), before);
        flows(&[place]);
    });
}
