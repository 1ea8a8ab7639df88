//! With Debian's haproxy and ab, in a network of the test's own, and a BPF file system that nobody else sees.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baton_kernel::netns;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
/// What ab asks for in all.
const REQUESTS: u32 = 60_000;

struct SkLookupFlip {
    folder: TempDir,
    servers: Vec<Child>,
    setting: Setting,
}

impl Drop for SkLookupFlip {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Runs `work` where nobody else is, with a flip of two instances that listen at loopback addresses of both families.
fn apart(work: impl FnOnce(&mut SkLookupFlip) + Send) {
    let outcome = netns::in_new(|| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("bpf"), FILE_SYSTEM, Some("bpf"), MsFlags::empty(), none)?;
        let targets = |port: u16| ["127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}").parse().unwrap()).to_vec();
        let setting =
            Setting::new("web".parse().unwrap(), ":80".parse().unwrap(), targets(8000), targets(8001)).unwrap();
        let mut scene = SkLookupFlip { folder: tempfile::tempdir()?, servers: Vec::new(), setting };
        work(&mut scene);
        std::io::Result::Ok(())
    });
    if let Ok(Err(error)) | Err(error) = outcome {
        eprintln!("SKIPPED: no right to a network namespace and a BPF file system ({error})");
    }
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl SkLookupFlip {
    /// A haproxy that says its colour, and which address was dialled; takes over from another one.
    #[track_caller]
    fn start(&mut self, colour: Colour, old: Option<usize>) {
        let port = self.setting.instance(colour)[0].port;
        let number = self.servers.len();
        let at = |ending: &str| self.folder.path().join(format!("{number}.{ending}"));
        let (config, stats) = (at("cfg"), at("sock"));
        let text = format!(
            "global\n nbthread 2\n stats socket {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 10m\n timeout \
             server 5s\nfrontend f\n bind 127.0.0.1:{port}\n bind [::1]:{port}\n http-request return status 200 content-type \
             text/plain lf-string \"{colour} %[dst]:%[dst_port].\"\n",
            stats.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&config);
        if let Some(old) = old {
            command.arg("-sf").arg(self.servers[old].id().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.servers.push(command.spawn().expect("haproxy is there, see scripts/setup"));
        until("haproxy listens", || UnixStream::connect(&stats).is_ok());
        if let Some(old) = old {
            until("the old one has ended", || self.servers[old].try_wait().unwrap().is_some());
        }
    }

    fn kill(&mut self, number: usize) {
        self.servers[number].kill().unwrap();
        self.servers[number].wait().unwrap();
    }

    #[track_caller]
    fn switch(&self, to: Colour) {
        SkLookup.switch(&self.setting, to).unwrap();
        assert_eq!(self.observe(), Observed::Active(to));
    }

    #[track_caller]
    fn observe(&self) -> Observed {
        SkLookup.observe(&self.setting).unwrap()
    }

    #[track_caller]
    fn remove(&self) {
        SkLookup.remove(&self.setting.name).unwrap();
        SkLookup.remove(&self.setting.name).unwrap();
        assert_eq!(self.observe(), Observed::Absent);
        assert!(!folder().exists(), "nothing is left");
        assert!(TcpStream::connect("127.0.0.1:80").is_err());
    }
}

/// One request over a connection that stays open; the body up to its dot.
fn ask(mut stream: &TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    let mut piece = [0; 1000];
    while !(answer.ends_with(b".") && answer.windows(4).any(|four| four == b"\r\n\r\n")) {
        match stream.read(&mut piece).expect("it answers") {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    String::from_utf8_lossy(&answer).rsplit("\r\n").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

fn web(address: &str) -> String {
    ask(&TcpStream::connect(address).expect("nobody is refused"))
}

/// ab, a connection each, while `work` goes on until it ends.
#[track_caller]
fn under_load(url: &str, mut work: impl FnMut()) {
    let mut command = Command::new("ab");
    command.args(["-r", "-q", "-l", "-c", "10", "-n", &REQUESTS.to_string(), url]);
    let mut ab = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("ab is there, see scripts/setup");
    let mut rounds = 0;
    while ab.try_wait().unwrap().is_none() {
        work();
        rounds += 1;
    }
    let said = String::from_utf8(ab.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.lines().any(|line| line.starts_with("Failed requests:") && line.ends_with(" 0")), "{said}");
    assert!(said.contains(&format!("Complete requests:      {REQUESTS}")), "{said}");
    assert!(rounds > 0, "{said}");
}

#[test]
fn flips_under_load_and_long_connections_stay() {
    apart(|scene| {
        scene.start(Colour::Blue, None);
        scene.start(Colour::Green, None);
        assert_eq!(scene.observe(), Observed::Absent);
        SkLookup.check(&scene.setting).unwrap();
        SkLookup.install(&scene.setting, Colour::Blue, false).unwrap();
        assert_eq!(scene.observe(), Observed::Active(Colour::Blue));
        assert_eq!(SkLookup.names().unwrap(), std::slice::from_ref(&scene.setting.name));
        for address in ["127.0.0.1:80", "127.0.0.7:80", "[::1]:80"] {
            assert_eq!(web(address), format!("blue {}", address.replace(['[', ']'], "")), "as it was dialled");
        }
        let long = ["127.0.0.1:80", "[::1]:80"].map(|address| TcpStream::connect(address).unwrap());
        long.iter().for_each(|stream| assert!(ask(stream).starts_with("blue")));
        let taken = |colour| SkLookup.taken(&scene.setting, colour);
        assert_eq!(
            [taken(Colour::Blue), taken(Colour::Green)],
            [Some(5), Some(0)],
            "three and the long ones, of both families"
        );
        for (url, address) in [("http://127.0.0.1/", "127.0.0.1:80"), ("http://[::1]/", "[::1]:80")] {
            under_load(url, || {
                for colour in [Colour::Green, Colour::Blue] {
                    scene.switch(colour);
                    assert!(web(address).starts_with(colour.word()));
                }
            });
        }
        scene.switch(Colour::Green);
        long.iter().for_each(|stream| assert!(ask(stream).starts_with("blue")));
        // Set up again: in place, and nobody is lost.
        under_load("http://127.0.0.1/", || SkLookup.install(&scene.setting, Colour::Green, false).unwrap());
        scene.remove();
        long.iter().for_each(|stream| assert!(ask(stream).starts_with("blue")));
    });
}

#[test]
fn a_reloaded_instance_is_put_in_again_by_the_switch() {
    apart(|scene| {
        scene.start(Colour::Blue, None);
        scene.start(Colour::Green, None);
        SkLookup.install(&scene.setting, Colour::Blue, false).unwrap();
        let mut current = [0, 1];
        let mut idle = Colour::Green;
        under_load("http://127.0.0.1/", || {
            let at = number(idle) as usize;
            scene.start(idle, Some(current[at]));
            current[at] = scene.servers.len() - 1;
            scene.switch(idle);
            idle = idle.other();
        });
        scene.remove();
    });
}

#[test]
fn an_instance_that_dies_is_told_and_mended() {
    apart(|scene| {
        let refused = SkLookup.install(&scene.setting, Colour::Blue, false).unwrap_err().to_string();
        assert!(refused.contains("blue") && refused.contains("start it first"), "{refused}");
        assert_eq!(scene.observe(), Observed::Absent);
        scene.start(Colour::Blue, None);
        SkLookup.install(&scene.setting, Colour::Blue, false).unwrap();
        let refused = SkLookup.switch(&scene.setting, Colour::Green).unwrap_err().to_string();
        assert!(refused.contains("green") && refused.contains("start it first"), "{refused}");
        assert!(web("127.0.0.1:80").starts_with("blue"), "as before");
        scene.start(Colour::Green, None);
        scene.kill(0);
        assert!(TcpStream::connect("127.0.0.1:80").is_err(), "as if nobody had chosen");
        assert!(matches!(scene.observe(), Observed::Broken(text) if text.contains("is closed")));
        SkLookup.install(&scene.setting, Colour::Green, false).unwrap();
        assert!(web("[::1]:80").starts_with("green"));
        // The active one is restarted: the same again puts it in.
        scene.kill(1);
        scene.start(Colour::Green, None);
        scene.switch(Colour::Green);
        assert!(web("127.0.0.1:80").starts_with("green"));
        scene.remove();
    });
}

#[test]
fn clients_of_another_machine_see_the_address_they_dialled() {
    apart(|scene| {
        let run = |words: &str| {
            let output = Command::new("sh").args(["-c", words]).output().unwrap();
            assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let client = Command::new("unshare").args(["-n", "sleep", "300"]).spawn().unwrap();
        let pid = client.id();
        scene.servers.push(client);
        let ours = fs::read_link("/proc/thread-self/ns/net").unwrap();
        until("it is apart", || fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|its| its != ours));
        run(&format!(
            "ip link add here type veth peer name there netns {pid} && ip addr add 10.9.0.1/24 dev here && ip -6 addr add \
             fd09::1/64 dev here nodad && ip link set here up && nsenter -t {pid} -n sh -c 'ip addr add 10.9.0.2/24 dev there \
             && ip -6 addr add fd09::2/64 dev there nodad && ip link set there up'"
        ));
        scene.start(Colour::Blue, None);
        scene.start(Colour::Green, None);
        SkLookup.install(&scene.setting, Colour::Blue, false).unwrap();
        let curl = |url: &str| run(&format!("nsenter -t {pid} -n curl -gsS --retry 9 --retry-all-errors '{url}'"));
        assert_eq!(curl("http://10.9.0.1/"), "blue 10.9.0.1:80.", "a socket of 127.0.0.1 has it");
        assert_eq!(curl("http://[fd09::1]/"), "blue fd09::1:80.");
        scene.switch(Colour::Green);
        assert_eq!(curl("http://10.9.0.1/"), "green 10.9.0.1:80.");
        scene.remove();
    });
}
