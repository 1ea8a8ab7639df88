//! A client, a director and real servers with the virtual addresses on `lo`, on one bridge, for the engine xdp; and connections
//! there. It uses the module `link` of the test program.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};

use crate::link::{Machine, alone, run, vips};

/// How long anything may take; nothing waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(10);
const SERVERS: [&str; 4] = ["one", "two", "three", "four"];

/// What is on the bridge.
pub struct Lab {
    pub client: Machine,
    pub director: Machine,
    pub servers: Vec<Machine>,
}

/// A client, a director that has the virtual addresses, and so many real servers, with a BPF file system of their own.
pub fn lab(servers: usize, test: impl FnOnce(&Lab) + Send) {
    alone(|| {
        mount::<str, str, str, str>(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), None).unwrap();
        let client = machine("client", 1);
        // Between veths checksums are left out, which nobody fills in for a packet that XDP has sent on.
        client.run("ethtool -K eth0 tx off");
        let director = new_director("director", 2);
        for vip in vips() {
            director.run(&format!("ip address add {}", on(vip, "eth0")));
        }
        let servers = (11..).zip(&SERVERS[..servers]).map(|(number, name)| new_server(name, number)).collect();
        test(&Lab { client, director, servers });
    });
}

/// IPv6 must not be preferred, or the kernel takes it for the source of the director's own connections to the servers.
pub fn on(vip: IpAddr, interface: &str) -> String {
    if vip.is_ipv4() {
        format!("{vip}/32 dev {interface}")
    } else {
        format!("{vip}/128 dev {interface} nodad preferred_lft 0")
    }
}

/// One whose address for asking neighbours is there at once.
pub fn machine(name: &'static str, number: u8) -> Machine {
    let machine = Machine::new(name, number);
    machine.run(&format!("ip address add fe80::{number}/64 dev eth0 nodad"));
    machine
}

pub fn new_director(name: &'static str, number: u8) -> Machine {
    let machine = machine(name, number);
    // The other end of a veth takes what XDP sends when it has a program itself.
    let folder = tempfile::tempdir().unwrap();
    run(&format!("ip link set dev {name} xdp object {} section xdp", pass(folder.path()).display()));
    machine
}

/// One that says its name to whoever asks at port 80.
pub fn new_server(name: &'static str, number: u8) -> Machine {
    let machine = machine(name, number);
    machine.run("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
    for vip in vips() {
        machine.run(&format!("ip address add {}", on(vip, "lo")));
    }
    let listener = machine.inside(|| TcpListener::bind("[::]:80").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream, name));
        }
    });
    machine
}

/// A second network, by which the director reaches servers: 198.51.100.1 for the director and .11, .12 … for the servers.
pub fn second_network(lab: &Lab) {
    run("ip link add br1 type bridge forward_delay 0");
    run("ip link set br1 up");
    let machines = [(&lab.director, 1)].into_iter().chain(lab.servers.iter().zip(11..));
    for (machine, number) in machines {
        let name = machine.name;
        run(&format!("ip link add {name}1 type veth peer name eth1 netns {name}"));
        run(&format!("ip link set {name}1 master br1 up"));
        machine.run("ip link set eth1 up");
        machine.run(&format!("ip address add 198.51.100.{number}/24 dev eth1"));
    }
}

/// HTTP with its name for an answer; or a line with its name for each line.
fn serve(mut stream: TcpStream, name: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line.starts_with("GET ") {
            let _ = write!(stream, "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {}
            return;
        }
        let _ = writeln!(stream, "{name}");
        line.clear();
    }
}

/// Who answers how often, asked by curl.
pub fn ask(client: &Machine, vip: IpAddr, times: usize) -> BTreeMap<String, usize> {
    let url = if vip.is_ipv4() { format!("http://{vip}/") } else { format!("http://[{vip}]/") };
    let mut answers = BTreeMap::new();
    for _ in 0..times {
        let output = client.try_run(&format!("curl -sS --noproxy * --max-time 5 {url}"));
        let answer = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
        *answers.entry(answer.into_owned()).or_default() += 1;
        if !output.status.success() {
            break; // which fails the test soon
        }
    }
    answers
}

/// A connection that stays open, with the server that has it.
pub struct Held {
    pub stream: BufReader<TcpStream>,
    pub server: String,
}

impl Held {
    pub fn new(client: &Machine, vip: IpAddr) -> Held {
        Held::of(client.inside(|| TcpStream::connect_timeout(&SocketAddr::new(vip, 80), PATIENCE)).unwrap())
    }

    /// One that somebody has dialled.
    pub fn of(stream: TcpStream) -> Held {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut held = Held { stream: BufReader::new(stream), server: String::new() };
        held.server = held.says().unwrap();
        held
    }

    pub fn says(&mut self) -> std::io::Result<String> {
        self.stream.get_mut().write_all(b"who\n")?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// Some of each family, on all servers.
pub fn hold(lab: &Lab, many: usize) -> Vec<Held> {
    let held: Vec<Held> = (0..many).flat_map(|_| vips()).map(|vip| Held::new(&lab.client, vip)).collect();
    for server in &lab.servers {
        assert!(held.iter().any(|held| held.server == server.name), "{many} connections are enough for all");
    }
    held
}

#[track_caller]
pub fn all_go_on(held: &mut [Held]) {
    for held in held {
        assert_eq!(held.says().unwrap(), held.server);
    }
}

/// A program that lets everything pass.
pub fn pass(folder: &Path) -> PathBuf {
    let [source, object] = ["pass.c", "pass.o"].map(|name| folder.join(name));
    let program = "__attribute__((section(\"xdp\"), used)) int pass(void *at) { (void)at; return 2; }";
    fs::write(&source, program).unwrap();
    run(&format!("clang -O2 -target bpf -c {} -o {}", source.display(), object.display()));
    object
}
