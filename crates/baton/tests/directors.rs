//! Two directors with Debian's keepalived for the virtual addresses (docs/direct.md, "Two directors"), in the lab: downloads over IPv4 and
//! IPv6 go on when the one that has the addresses is cut off, and when it comes back.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{lab, program, until};

/// The page's example, which is the one that is tested: the first director's file ...
const KEEPALIVED: &str = "\
vrrp_instance web {
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress {
        192.168.121.2/32 dev eth0
    }
}
";
/// ... what stands in it for IPv6 ...
const KEEPALIVED6: &str = "\
vrrp_instance web6 {
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress {
        2001:db8:121::2/128 dev eth0
    }
}
";
/// ... and what both directors serve ...
const HAPROXY: &str = "\
global
    tune.ipvs.sloppy-tcp on

listen web
    mode direct
    engine ipvs
    bind 192.168.121.2:80
    balance mh hash-port
    server app1 192.168.121.141 check inter 1s
    server app2 192.168.121.142 check inter 1s
    server app3 192.168.121.143 check inter 1s
";
/// ... over IPv6 too.
const HAPROXY6: &str = "\
listen web6
    mode direct
    engine ipvs
    bind [2001:db8:121::2]:80
    balance mh hash-port
    option httpchk GET /bytes/1
    server app1 [2001:db8:121::141] check inter 1s
    server app2 [2001:db8:121::142] check inter 1s
    server app3 [2001:db8:121::143] check inter 1s
";
/// What differs between the directors.
const PRIORITIES: [(&str, &str); 2] = [("one", "priority 150"), ("two", "priority 100")];

/// The virtual addresses as their clients write them, and as they are on an interface.
const VIPS: [(&str, &str); 2] = [("192.168.121.2", "192.168.121.2/32"), ("[2001:db8:121::2]", "2001:db8:121::2/128")];

/// Half of them over IPv6.
const DOWNLOADS: usize = 6;
const BYTES: u64 = 15_000_000;

/// A client, who is this test, two directors and three real servers with links of 10 Mbit/s, all on one Ethernet.
const NETWORK: &str = "
ip link add lan type bridge
ip address add 192.168.121.100/24 dev lan
ip address add 2001:db8:121::100/64 dev lan nodad
ip link set lan up
host() {
    ip netns add $1
    ip link add $1 type veth peer name eth0 netns $1
    ip link set $1 master lan up
    ip -n $1 link set lo up
    # Nobody waits whether somebody else has the addresses.
    ip netns exec $1 sh -c 'echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad'
    ip -n $1 link set eth0 up
    ip -n $1 address add 192.168.121.$2/24 dev eth0
    ip -n $1 address add 2001:db8:121::$2/64 dev eth0 nodad
}
host one 11
host two 12
for number in 1 2 3; do
    host app$number 14$number
    ip netns exec app$number sh -ec 'echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce'
    ip -n app$number address add 192.168.121.2/32 dev lo
    ip -n app$number address add 2001:db8:121::2/128 dev lo nodad preferred_lft 0
    tc -n app$number qdisc add dev eth0 root tbf rate 10mbit burst 32kb latency 200ms
done
";

#[track_caller]
fn sh(script: &str) -> String {
    let done = Command::new("sh").args(["-ec", script]).output().expect("every system has a shell");
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success(), "{script}: {said}");
    said
}

/// A process in the network of a host; killed when dropped.
struct In(Child);

impl In {
    fn host(host: &str, command: &mut [&str]) -> In {
        let log = fs::File::create(format!("/run/{host}-{}.log", command[0].rsplit('/').next().unwrap_or_default()));
        let log = log.expect("/run is ours");
        let mut child = Command::new("ip");
        child.args(["netns", "exec", host]).args(command).stdin(Stdio::null());
        child.stdout(log.try_clone().expect("a file")).stderr(log);
        In(child.spawn().expect("installed by scripts/setup test"))
    }
}

impl Drop for In {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether it has both virtual addresses, or none.
fn has_addresses(host: &str, both: bool) -> bool {
    let shown = sh(&format!("ip -n {host} address show dev eth0"));
    VIPS.iter().all(|(_, vip)| shown.contains(vip) == both)
}

/// The packets that came to each service at this director, since its start.
fn carried(director: &str) -> [u64; 2] {
    VIPS.map(|(vip, _)| {
        let stats = sh(&format!("ip netns exec {director} ipvsadm -Ln --stats --exact -t {vip}:80"));
        let line = stats.lines().find(|line| line.starts_with("TCP")).unwrap_or_else(|| panic!("no service: {stats}"));
        line.split_whitespace().nth(3).and_then(|packets| packets.parse().ok()).unwrap_or_else(|| panic!("{stats}"))
    })
}

fn file(number: usize) -> PathBuf {
    PathBuf::from(format!("/run/download{number}"))
}

/// Of each family.
fn loaded() -> [u64; 2] {
    let of = |number| fs::metadata(file(number)).map_or(0, |file| file.len());
    [0, 1].map(|family| (0..DOWNLOADS).filter(|number| number % 2 == family).map(of).sum())
}

/// Whether each of the one is more than its counterpart.
fn more(these: [u64; 2], those: [u64; 2]) -> bool {
    these.iter().zip(those).all(|(this, that)| *this > that)
}

#[test]
fn downloads_survive_the_failure_and_the_return_of_a_director() {
    lab::inside(|| {
        sh(NETWORK);
        let program = program().display().to_string();
        let mut running = Vec::new();
        for number in 1..=3 {
            let host = format!("app{number}");
            running.push(In::host(&host, &mut [&program, "origin", &format!("{host}=[::]:80")]));
        }
        fs::write("/run/haproxy.cfg", [HAPROXY, HAPROXY6].join("\n")).expect("/run is ours");
        for (director, priority) in PRIORITIES {
            let file = format!("/run/{director}.conf");
            fs::write(&file, [KEEPALIVED, KEEPALIVED6].concat().replace("priority 150", priority))
                .expect("/run is ours");
            let pids = [format!("/run/{director}.pid"), format!("/run/{director}-vrrp.pid")];
            running.push(In::host(director, &mut [&program, "-db", "-f", "/run/haproxy.cfg"]));
            let mut keepalived = ["keepalived", "-n", "-l", "-P", "-f", &file, "-p", &pids[0], "-r", &pids[1]];
            running.push(In::host(director, &mut keepalived));
        }
        until("the first director has the addresses", || has_addresses("one", true) && has_addresses("two", false));
        until("both directors serve", || {
            let table = |director| sh(&format!("ip netns exec {director} ipvsadm -Sn"));
            PRIORITIES.iter().all(|(director, _)| table(director).lines().count() == 8)
        });
        let mut downloads: Vec<Child> = (0..DOWNLOADS)
            .map(|number| {
                let mut curl = Command::new("curl");
                curl.args(["--silent", "--show-error", "--max-time", "120", "--output"]).arg(file(number));
                curl.arg("--globoff").arg(format!("http://{}/bytes/{BYTES}", VIPS[number % 2].0));
                curl.spawn().expect("installed by scripts/setup test")
            })
            .collect();
        assert!(!sh("ip netns exec one ipvsadm -Sn; ip netns exec two ipvsadm -Sn").contains("-w 0"), "all are well");
        let all = DOWNLOADS as u64 / 2 * BYTES;
        until("the downloads are under way", || more(loaded(), [all / 20; 2]));
        let (one, two) = (carried("one"), carried("two"));
        assert!(more(one, [0; 2]) && two == [0; 2], "{one:?} and {two:?} packets");

        sh("ip link set one down");
        until("the second director has the addresses", || has_addresses("two", true));
        let before = loaded();
        assert!(more([all; 2], before), "the downloads were over before the addresses moved");
        until("the downloads go on by the second director", || more(loaded(), before) && more(carried("two"), [0; 2]));

        sh("ip link set one up");
        until("the first director has them again", || has_addresses("one", true) && has_addresses("two", false));
        for (number, download) in downloads.iter_mut().enumerate() {
            let status = download.wait().expect("it was started");
            assert!(status.success(), "download {number}: {status}");
            assert_eq!(fs::metadata(file(number)).map(|file| file.len()).ok(), Some(BYTES), "download {number}");
        }
        assert!(more(carried("one"), one), "the first director carries again");
    });
}

#[test]
fn the_example_of_the_page_is_the_one_that_is_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/direct.md");
    let page = fs::read_to_string(page).expect("it is in the tree");
    for text in [KEEPALIVED, HAPROXY, KEEPALIVED6] {
        assert!(page.contains(&format!("\n{text}```\n")), "docs/direct.md has not:\n{text}");
    }
}
