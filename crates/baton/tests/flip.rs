//! `baton flip` between two of Debian's haproxies, under load and against everything that may go wrong.
//!
//! Each test has a network namespace of its own, with a firewall's rules in it that must be the same afterwards.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use baton_kernel::netns;
use support::{PATIENCE, program, until};
use tempfile::TempDir;

const BLUE: &str = "127.0.0.1:8000";
const GREEN: &str = "127.0.0.1:8001";
/// What clients dial.
const FRONT: &str = "127.0.0.1:80";
/// The switch that lets clients from elsewhere reach a loopback address.
const LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// A machine with a firewall, in a network namespace of its own.
struct Machine {
    run: TempDir,
    before: String,
}

/// One of the two; ended when dropped.
struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().expect("every system has a shell");
    assert!(output.status.success(), "{line}: {}", words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All rules and sets, without what only counts.
fn rules() -> String {
    // A table of iptables would come into being by being looked at, had the firewall none.
    let all = shell("nft list ruleset; iptables-save; ip6tables-save; ipset list -o save");
    let is_kept = |line: &&str| !line.starts_with('#');
    let lines = all.lines().filter(is_kept).map(|line| line.split(" [").next().unwrap_or_default());
    let lines = lines.map(|line| line.split(" counter packets ").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn in_network(test: impl FnOnce(&Machine) + Send) {
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

fn haproxy(colour: &str, binds: &str) -> Haproxy {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let config = folder.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n mode http\n timeout client 1m\n timeout server 1m\n timeout connect 5s\nfrontend web\n bind {binds}\n \
         http-request return status 404 if {{ path /none }}\n \
         http-request return status 200 content-type text/plain string {colour:.<5}\n"
    );
    fs::write(&config, text).expect("the folder is ours");
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let haproxy = Haproxy(command.spawn().expect("haproxy is installed by scripts/setup test"));
    let address = binds.split(',').next().expect("an address").replace("*:", "127.0.0.1:").replace(":::", "[::1]:");
    until("haproxy listens", || TcpStream::connect(&address).is_ok());
    haproxy
}

/// Asks by a connection of its own, or by one that is kept.
fn ask(connection: &mut BufReader<TcpStream>) -> String {
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
fn connect(address: &str) -> BufReader<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    BufReader::new(stream)
}

/// Which instance gets a new connection.
#[track_caller]
fn who(address: &str) -> String {
    ask(&mut connect(address))
}

impl Machine {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        // What stands after `flip` is for the shell, so that words with spaces are quoted there.
        command.args(["-c", &format!("exec \"$0\" flip {line}"), program().to_str().expect("a path of ours")]);
        command.env("BATON_RUN_DIR", self.run.path()).stdin(Stdio::null());
        command
    }

    fn flip(&self, line: &str) -> Output {
        self.command(line).output().expect("it starts")
    }

    #[track_caller]
    fn does(&self, line: &str) -> String {
        let output = self.flip(line);
        assert!(output.status.success(), "flip {line}: {}", words(&output));
        words(&output)
    }

    #[track_caller]
    fn refuses(&self, line: &str) -> String {
        let output = self.flip(line);
        assert_eq!(output.status.code(), Some(1), "flip {line}: {}", words(&output));
        words(&output)
    }

    #[track_caller]
    fn init(&self, more: &str) -> String {
        self.does(&format!("init --listen :80 --blue {BLUE} --green {GREEN} {more}"))
    }

    #[track_caller]
    fn is_as_before(&self) {
        assert_eq!(rules(), self.before);
        assert_eq!(localnet(), "0");
    }
}

fn localnet() -> String {
    shell(&format!("cat {LOCALNET}")).trim().to_owned()
}

/// Flips under load at least; a busy machine makes few of them in the time of one load.
const FLIPS: usize = 10;

/// Flips again and again while `ab` asks with ten connections at a time.
fn under_load(method: &str) {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init(&format!("--method {method}"));
        let mut long = connect(FRONT);
        assert_eq!(ask(&mut long), "blue");
        let (mut flips, mut asked) = (0, 0);
        while flips < FLIPS {
            let mut load = Command::new("ab");
            load.args(["-q", "-r", "-c", "10", "-n", "20000", "http://127.0.0.1/"]).stdout(Stdio::piped());
            let mut load = load.stderr(Stdio::piped()).spawn().expect("ab is installed by scripts/setup test");
            while load.try_wait().expect("it is ours").is_none() {
                let to = if flips % 2 == 0 { "green" } else { "blue" };
                machine.does(&format!("to {to}"));
                assert_eq!(who(FRONT), to);
                assert_eq!(ask(&mut long), "blue", "a connection stays where it is");
                flips += 1;
            }
            let said = words(&load.wait_with_output().expect("it has ended"));
            assert!(said.contains("Complete requests:      20000"), "{said}");
            assert!(said.contains("Failed requests:        0"), "{flips} flips: {said}");
            assert!(!said.contains("Non-2xx"), "{said}");
            asked += 20000;
        }
        println!("{method}: {flips} flips, {asked} requests, none failed");
        drop(long);
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn nobody_fails_while_nft_flips() {
    under_load("nft");
}

#[test]
fn nobody_fails_while_ipset_flips() {
    under_load("ipset");
}

#[test]
fn nobody_fails_while_iptables_flips() {
    under_load("iptables");
}

/// The methods that come with every build.
const METHODS: [&str; 3] = ["nft", "ipset", "iptables"];

#[test]
fn both_families_and_every_address_are_flipped_at_once() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", "*:8000,:::8000 v6only"), haproxy("green", "*:8001,:::8001 v6only")];
            machine.does(&format!("init --listen :80 --blue :8000 --green :8001 --method {method}"));
            assert_eq!(localnet(), "0", "nothing listens at the loopback alone");
            for to in ["green", "blue"] {
                machine.does(&format!("to {to} --check /"));
                assert_eq!([who(FRONT), who("[::1]:80")], [to, to], "{method}");
            }
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn clients_from_elsewhere_are_flipped_too() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        let mut elsewhere = Command::new("unshare");
        let mut elsewhere =
            elsewhere.args(["-n", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
        // When it answers, it is in its own namespace.
        elsewhere.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
        elsewhere.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it answers");
        let there = format!("nsenter -t {} -n", elsewhere.id());
        shell("ip link add here type veth peer name there; ip address add 10.9.0.1/24 dev here; ip link set here up");
        shell(&format!("ip link set there netns {}", elsewhere.id()));
        shell(&format!("{there} sh -c 'ip address add 10.9.0.2/24 dev there; ip link set there up'"));
        let curl = format!("{there} curl -sS --retry 20 --retry-all-errors --retry-delay 0 -m 5");
        for method in METHODS {
            machine.init(&format!("--method {method}"));
            for to in ["green", "blue"] {
                machine.does(&format!("to {to}"));
                assert!(shell(&format!("{curl} http://10.9.0.1/")).starts_with(to), "{method}");
            }
            assert_eq!(localnet(), "1");
            machine.does("remove");
            machine.is_as_before();
        }
        drop(elsewhere.stdin.take());
        let _ = elsewhere.wait();
    });
}

#[test]
fn setting_up_again_changes_nothing_and_mends_what_a_firewall_flushed() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        machine.does("to green");
        let made = rules();
        assert!(machine.init("").contains("set up already, and green is active"));
        assert_eq!(rules(), made);
        machine.does("status");
        shell("nft delete table inet baton-flip-web");
        let said = machine.refuses("status");
        assert!(said.contains("nothing of it is in the kernel"), "{said}");
        machine.init("");
        assert_eq!(rules(), made, "green is active still");
        shell("nft flush map inet baton-flip-web active4");
        assert!(machine.refuses("status").contains("leads to neither"));
        assert!(machine.does("to blue").contains("set up anew"));
        assert_eq!(who(FRONT), "blue");
        // Another setting under the same name, and another method, which would hide the first.
        let moved = format!("init --listen 127.0.0.1:81 --blue {BLUE} --green {GREEN}");
        assert!(machine.refuses(&format!("{moved} --method ipset")).contains("set up by the method nft"));
        machine.does(&moved);
        assert_eq!(who("127.0.0.1:81"), "blue");
        assert!(TcpStream::connect(FRONT).is_err());
        // A file that was lost: the kernel is the truth, and can be cleaned.
        shell(&format!("find {} -name 'flip-*.json' -delete", machine.run.path().display()));
        assert!(machine.refuses("status").contains("no file says what it is for"));
        machine.does("remove");
        machine.is_as_before();
        machine.does("remove");
    });
}

#[test]
fn the_loopback_is_open_only_as_long_as_one_needs_it() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        for method in METHODS {
            // Other addresses, which need it no more.
            machine.init(&format!("--method {method}"));
            assert_eq!(localnet(), "1");
            machine.does(&format!("init --listen :80 --blue :8000 --green :8001 --method {method} --force"));
            assert_eq!(localnet(), "0", "{method}");
            machine.init("");
            assert_eq!(localnet(), "1");
            // Whichever of two goes last closes it.
            machine.does(&format!("init --name other --listen :81 --blue {BLUE} --green {GREEN} --method {method}"));
            machine.does("remove");
            assert_eq!(localnet(), "1", "{method}");
            machine.does("remove --name other");
            machine.is_as_before();
            // What the user has switched on stays so.
            shell(&format!("echo 1 > {LOCALNET}"));
            machine.init(&format!("--method {method}"));
            machine.does("remove");
            assert_eq!(localnet(), "1", "{method}");
            shell(&format!("echo 0 > {LOCALNET}"));
            machine.is_as_before();
        }
    });
}

#[test]
fn an_instance_that_does_not_answer_gets_nobody() {
    in_network(|machine| {
        let said = machine.refuses(&format!("init --listen :80 --blue {BLUE} --green {GREEN}"));
        assert!(said.contains("does not answer"), "{said}");
        machine.is_as_before();
        let _green = haproxy("green", GREEN);
        assert!(machine.init("").contains("go to green"), "it is the one that answers");
        let said = machine.refuses("to blue");
        assert!(said.contains("blue (127.0.0.1:8000) does not answer") && said.contains("--force"), "{said}");
        let _blue = haproxy("blue", BLUE);
        assert!(machine.refuses("to blue --check /none").contains("status 404"));
        assert!(machine.refuses("to blue --check 'exit 3'").contains("exit status: 3"));
        assert_eq!(who(FRONT), "green");
        machine.does("to blue --check 'test $BATON_FLIP_COLOUR-$BATON_FLIP_ADDRESS = blue-127.0.0.1:8000'");
        machine.does(&format!("to green --check http://{GREEN}/"));
        machine.does("to blue --check /none --force");
        assert_eq!(who(FRONT), "blue");
        machine.does("remove");
        machine.is_as_before();
    });
}

#[test]
fn killed_at_any_moment_it_leaves_one_or_the_other() {
    for method in METHODS {
        in_network(|machine| {
            let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
            machine.init(&format!("--method {method}"));
            for turn in 0..20 {
                let to = if turn % 2 == 0 { "green" } else { "blue" };
                let mut child = machine.command(&format!("to {to}")).stdout(Stdio::null()).spawn().expect("it starts");
                // Each time a little later, over all that it does.
                std::thread::sleep(Duration::from_millis(2 * turn));
                let _ = child.kill();
                let _ = child.wait();
                let at = who(FRONT);
                // The program of iptables that it had started may be at its end only now.
                until("what is told is true", || {
                    let told = machine.does("status");
                    told.contains(&format!("go to {}", who(FRONT)))
                });
                assert!(["blue", "green"].contains(&at.as_str()), "{at}");
            }
            machine.does("to green");
            assert_eq!(who(FRONT), "green");
            machine.does("remove");
            machine.is_as_before();
        });
    }
}

#[test]
fn the_whole_cycle_reloads_the_idle_one_and_stops_where_that_fails() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let run = |blue: &str, green: &str| {
            format!("run --reload-blue '{blue}' --reload-green '{green}' --wait 100ms --drain 0s")
        };
        let said = machine.does(&run("false", "echo $BATON_FLIP_COLOUR at $BATON_FLIP_ADDRESS"));
        assert!(said.contains("green at 127.0.0.1:8001\n") && said.contains("go to green"), "{said}");
        let said = machine.refuses(&run("exit 7", "false"));
        assert!(said.contains("'exit 7', ended with exit status: 7"), "{said}");
        let said = machine.refuses(&format!("{} --check /none", run("true", "false")));
        assert!(said.contains("status 404") && said.contains("green goes on"), "{said}");
        assert_eq!(who(FRONT), "green");
        let mut long = connect(FRONT);
        assert_eq!(ask(&mut long), "green");
        let said = machine.does(&run("true", "false"));
        assert!(said.contains("green goes on with 1 open connection"), "{said}");
        assert_eq!([who(FRONT), ask(&mut long)], ["blue", "green"]);
        drop(long);
        machine.does("remove");
    });
}

#[test]
fn two_at_once_exclude_each_other() {
    in_network(|machine| {
        let _both = [haproxy("blue", BLUE), haproxy("green", GREEN)];
        machine.init("");
        let gate = machine.run.path().join("gate");
        shell(&format!("mkfifo {}", gate.display()));
        let reload = format!("echo begun; read line < {}", gate.display());
        let mut child = machine.command(&format!("run --reload-blue true --reload-green '{reload}'"));
        let mut child = child.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "begun\n");
        assert!(machine.refuses("to green").contains("another `baton flip` is at work"));
        fs::write(&gate, "go\n").expect("somebody reads");
        let mut rest = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("it speaks");
        assert!(child.wait().expect("it ends").success(), "{rest}");
        machine.does("to blue");
        machine.does("remove");
    });
}

#[test]
fn what_is_refused_in_the_middle_leaves_nothing() {
    in_network(|machine| {
        let _blue = haproxy("blue", BLUE);
        for method in METHODS {
            let init = format!("init --listen :80 --blue {BLUE} --green {GREEN} --method {method}");
            let denied = machine.wrapped(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"], &init);
            assert!(denied.contains("CAP_NET_ADMIN") || denied.contains("root"), "{method}: {denied}");
            machine.is_as_before();
            // The rules are made, and then the kernel's switch cannot be.
            let read_only = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"";
            let denied = machine.wrapped(&["unshare", "-m", "sh", "-c", read_only, "sh"], &init);
            assert!(denied.contains("route_localnet"), "{method}: {denied}");
            machine.is_as_before();
        }
        assert!(machine.does("status").contains("There is no flip"));
    });
}

impl Machine {
    /// What it says where it is refused, run by another program.
    #[track_caller]
    fn wrapped(&self, wrapper: &[&str], line: &str) -> String {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(program()).arg("flip").args(line.split(' '));
        let output = command.env("BATON_RUN_DIR", self.run.path()).stdin(Stdio::null()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{}", words(&output));
        words(&output)
    }
}

#[test]
fn a_plan_is_printed_and_nothing_is_done() {
    in_network(|machine| {
        for (method, expected) in [
            ("nft", "nft add table inet baton-flip-web"),
            ("ipset", "ipset create baton-web-blue bitmap:port range 80-80"),
            ("iptables", "iptables -t nat -A BATON-FLIP-web -p tcp --syn"),
        ] {
            let plan =
                machine.does(&format!("init --listen :80 --blue {BLUE} --green {GREEN} --method {method} --dry-run"));
            assert!(plan.contains(expected), "{plan}");
        }
        machine.is_as_before();
        assert!(machine.does("status").contains("There is no flip"));
        let said = machine.refuses("to green --dry-run");
        assert!(said.contains("there is none of this name"), "{said}");
    });
}
