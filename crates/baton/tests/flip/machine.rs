//! A machine with a firewall, in a network namespace of its own, and what runs on it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use baton_kernel::netns;
use tempfile::TempDir;

use super::support::{PATIENCE, program, until};

pub const BLUE: &str = "127.0.0.1:8000";
pub const GREEN: &str = "127.0.0.1:8001";
/// What clients dial.
pub const FRONT: &str = "127.0.0.1:80";
/// The switch that lets clients from elsewhere reach a loopback address.
pub const LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// The methods that come with every build.
pub const METHODS: [&str; 3] = ["nft", "ipset", "iptables"];

/// A machine with a firewall, in a network namespace of its own.
pub struct Machine {
    pub run: TempDir,
    before: String,
}

/// One of the two; ended when dropped.
pub struct Haproxy(Child);

impl Haproxy {
    /// At once.
    pub fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
pub fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().expect("every system has a shell");
    assert!(output.status.success(), "{line}: {}", words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All rules and sets, without what only counts.
pub fn rules() -> String {
    // A table of iptables would come into being by being looked at, had the firewall none.
    let all = shell("nft list ruleset; iptables-save; ip6tables-save; ipset list -o save");
    let is_kept = |line: &&str| !line.starts_with('#');
    let lines = all.lines().filter(is_kept).map(|line| line.split(" [").next().unwrap_or_default());
    lines.map(uncounted).collect::<Vec<_>>().join("\n")
}

/// A rule without the numbers of its counter.
fn uncounted(line: &str) -> String {
    let words = line.split(' ').collect::<Vec<_>>();
    let is_number = |at: usize| at > 0 && ["packets", "bytes"].contains(&words[at - 1]);
    let word = |(at, word): (usize, &&str)| if is_number(at) { "N".to_owned() } else { (*word).to_owned() };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

pub fn in_network(test: impl FnOnce(&Machine) + Send) {
    netns::in_new(|| {
        for program in ["iptables", "ip6tables"] {
            shell(&format!("{program} -A INPUT -p tcp --dport 22 -j ACCEPT"));
            shell(&format!("{program} -t raw -A PREROUTING -p udp --dport 53 -j ACCEPT"));
            shell(&format!("{program} -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 80"));
            shell(&format!("{program} -t nat -A OUTPUT -p tcp --dport 8080 -j REDIRECT --to-ports 80"));
        }
        shell("ipset create friends hash:ip; ipset add friends 192.0.2.1");
        shell("nft add table inet firewall");
        shell("nft 'add chain inet firewall input { type filter hook input priority 0; }'");
        shell("nft add rule inet firewall input tcp dport 23 drop");
        let machine = Machine { run: tempfile::tempdir().expect("a folder for the test"), before: rules() };
        test(&machine);
    })
    .expect("the right to make a network namespace");
}

/// What such a haproxy reads: it says its colour, in five letters.
pub fn config_of(colour: &str, binds: &str) -> String {
    format!(
        "defaults\n mode http\n timeout client 1m\n timeout server 1m\n timeout connect 5s\nfrontend web\n bind {binds}\n \
         http-request return status 404 if {{ path /none }}\n \
         http-request return status 200 content-type text/plain string {colour:.<5}\n"
    )
}

pub fn haproxy(colour: &str, binds: &str) -> Haproxy {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let config = folder.path().join("haproxy.cfg");
    fs::write(&config, config_of(colour, binds)).expect("the folder is ours");
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let haproxy = Haproxy(command.spawn().expect("haproxy is installed by scripts/setup test"));
    let address = binds.split(',').next().expect("an address").replace("*:", "127.0.0.1:").replace(":::", "[::1]:");
    until("haproxy listens", || TcpStream::connect(&address).is_ok());
    haproxy
}

/// Does something again and again while `ab` asks with ten connections at a time, a new one for each request, and none may fail;
/// gives the number of requests.
#[track_caller]
pub fn while_asked(mut work: impl FnMut()) -> usize {
    const REQUESTS: usize = 20_000;
    let mut load = Command::new("ab");
    load.args(["-q", "-r", "-c", "10", "-n", &REQUESTS.to_string(), "http://127.0.0.1/"]).stdout(Stdio::piped());
    let mut load = load.stderr(Stdio::piped()).spawn().expect("ab is installed by scripts/setup test");
    while load.try_wait().expect("it is ours").is_none() {
        work();
    }
    let said = words(&load.wait_with_output().expect("it has ended"));
    assert!(said.contains(&format!("Complete requests:      {REQUESTS}")), "{said}");
    assert!(said.contains("Failed requests:        0"), "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
    REQUESTS
}

/// Asks by a connection of its own, or by one that is kept.
pub fn ask(connection: &mut BufReader<TcpStream>) -> String {
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the connection is open");
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(connection.read_line(&mut line).expect("an answer") > 0, "the connection was closed");
    }
    let mut body = [0; 5];
    connection.read_exact(&mut body).expect("the body");
    String::from_utf8_lossy(&body).trim_end_matches('.').to_owned()
}

#[track_caller]
pub fn connect(address: &str) -> BufReader<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    BufReader::new(stream)
}

/// Which instance gets a new connection.
#[track_caller]
pub fn who(address: &str) -> String {
    ask(&mut connect(address))
}

impl Machine {
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        // What stands after `flip` is for the shell, so that words with spaces are quoted there.
        command.args(["-c", &format!("exec \"$0\" flip {line}"), program().to_str().expect("a path of ours")]);
        command.env("BATON_RUN_DIR", self.run.path()).stdin(Stdio::null());
        command
    }

    pub fn flip(&self, line: &str) -> Output {
        self.command(line).output().expect("it starts")
    }

    #[track_caller]
    pub fn does(&self, line: &str) -> String {
        let output = self.flip(line);
        assert!(output.status.success(), "flip {line}: {}", words(&output));
        words(&output)
    }

    #[track_caller]
    pub fn refuses(&self, line: &str) -> String {
        let output = self.flip(line);
        assert_eq!(output.status.code(), Some(1), "flip {line}: {}", words(&output));
        words(&output)
    }

    #[track_caller]
    pub fn init(&self, more: &str) -> String {
        self.does(&format!("init --listen :80 --blue {BLUE} --green {GREEN} {more}"))
    }

    /// What it says where it is refused, run by another program.
    #[track_caller]
    pub fn wrapped(&self, wrapper: &[&str], line: &str) -> String {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(program()).arg("flip").args(line.split(' '));
        let output = command.env("BATON_RUN_DIR", self.run.path()).stdin(Stdio::null()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{}", words(&output));
        words(&output)
    }

    #[track_caller]
    pub fn is_as_before(&self) {
        assert_eq!(rules(), self.before);
        assert_eq!(localnet(), "0");
    }
}

pub fn localnet() -> String {
    shell(&format!("cat {LOCALNET}")).trim().to_owned()
}

/// Another machine, 10.9.0.2, that reaches ours at 10.9.0.1.
pub struct Elsewhere(Child);

impl Elsewhere {
    pub fn new() -> Elsewhere {
        let mut there = Command::new("unshare");
        let there = there.args(["-n", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut there = Elsewhere(there.spawn().expect("unshare is there"));
        // When it answers, it is in its own namespace.
        there.0.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
        there.0.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it answers");
        shell("ip link add here type veth peer name there; ip address add 10.9.0.1/24 dev here; ip link set here up");
        shell(&format!("ip link set there netns {}", there.0.id()));
        there.run("ip address add 10.9.0.2/24 dev there");
        there.run("ip link set there up");
        there
    }

    /// A command on that machine.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", "sh", "-c", line]).stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        let output = self.command(line).output().expect("nsenter is there");
        assert!(output.status.success(), "{line}: {}", words(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
