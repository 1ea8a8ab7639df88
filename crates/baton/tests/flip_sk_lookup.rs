//! `baton flip` by the method `sk_lookup`: a BPF program chooses the listening socket. With Debian's haproxy, in namespaces of
//! their own, and a BPF file system that nobody else sees.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::program;

/// `baton flip WORDS`, with its state in a folder of the test's.
fn flip(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(program());
    command.arg("flip").args(words.split(' ')).env("BATON_RUN_DIR", folder);
    command.output().expect("it was built")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const INIT: &str = "init --method sk_lookup --listen :80 --blue 127.0.0.1:8000 --blue [::1]:8000 --green 127.0.0.1:8001 \
                    --green [::1]:8001";

#[cfg(not(feature = "bpf"))]
#[test]
fn a_program_without_it_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = flip(folder.path(), INIT);
    assert!(!output.status.success());
    assert!(said(&output).contains("cargo feature bpf"), "{}", said(&output));
    let output = flip(folder.path(), &format!("{INIT} --dry-run"));
    assert!(!output.status.success());
    assert!(said(&output).contains("cargo feature bpf"), "{}", said(&output));
}

#[cfg(feature = "bpf")]
mod with_it {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use baton_kernel::netns;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use tempfile::TempDir;

    use super::support::clients::{assert_clean, under_load, web};
    use super::support::until;
    use super::*;

    /// The article's time from one flip to the next.
    const EVERY: Duration = Duration::from_secs(1);
    const BPF: &str = "/sys/fs/bpf";

    /// A flip of two haproxies, whose processes end with it.
    struct Scene {
        folder: TempDir,
        servers: Vec<Child>,
    }

    /// Runs `work` in a network of its own.
    fn apart(work: impl FnOnce(&mut Scene) + Send) {
        let outcome = netns::in_new(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("bpf"), BPF, Some("bpf"), MsFlags::empty(), none)?;
            let mut scene = Scene { folder: tempfile::tempdir()?, servers: Vec::new() };
            work(&mut scene);
            std::io::Result::Ok(())
        });
        if let Ok(Err(error)) | Err(error) = outcome {
            eprintln!("SKIPPED: no right to a network namespace and a BPF file system ({error})");
        }
    }

    impl Scene {
        /// A haproxy that says its colour, and which address was dialled.
        #[track_caller]
        fn start(&mut self, colour: &str, more: &[&str]) {
            let port = if colour == "blue" { 8000 } else { 8001 };
            let number = self.servers.len();
            let (config, stats) =
                (self.folder.path().join(format!("{number}.cfg")), self.folder.path().join(format!("{number}.sock")));
            let text = format!(
                "global\n nbthread 2\n stats socket {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
                 timeout server 5s\nfrontend f\n bind 127.0.0.1:{port}\n bind [::1]:{port}\n http-request return status 200 \
                 content-type text/plain lf-string \"{colour} %[dst]:%[dst_port]\"\n",
                stats.display()
            );
            fs::write(&config, text).unwrap();
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(&config).args(more);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.servers.push(command.spawn().expect("haproxy is there, see scripts/setup"));
            until("haproxy listens", || UnixStream::connect(&stats).is_ok());
        }

        #[track_caller]
        fn flip(&self, words: &str) -> String {
            let output = flip(self.folder.path(), words);
            assert!(output.status.success(), "{words}: {}", said(&output));
            said(&output)
        }

        #[track_caller]
        fn flip_refused(&self, words: &str) -> String {
            let output = flip(self.folder.path(), words);
            assert!(!output.status.success(), "{words}: {}", said(&output));
            said(&output)
        }

        /// Nothing is left in the kernel, nor in files.
        #[track_caller]
        fn remove(&self) {
            self.flip("remove");
            assert!(!Path::new(BPF).join("baton").exists(), "all that was pinned is gone");
            assert!(TcpStream::connect("127.0.0.1:80").is_err());
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            for server in &mut self.servers {
                let _ = server.kill();
                let _ = server.wait();
            }
            if Path::new(BPF).join("baton").exists() {
                let _ = flip(self.folder.path(), "remove");
            }
        }
    }

    /// Asks on a connection that is kept.
    fn ask(mut stream: &TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        let mut answer = Vec::new();
        let mut piece = [0; 1000];
        while !answer.ends_with(b"80") {
            match stream.read(&mut piece).expect("it answers") {
                0 => break,
                length => answer.extend_from_slice(&piece[..length]),
            }
        }
        String::from_utf8_lossy(&answer).rsplit("\r\n").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn flips_under_load_and_long_connections_stay() {
        apart(|scene| {
            scene.start("blue", &[]);
            scene.start("green", &[]);
            scene.flip(INIT);
            assert!(scene.flip(INIT).contains("set up already"));
            assert_eq!(web("127.0.0.1:80"), "blue 127.0.0.1:80", "the address that was dialled");
            assert_eq!(web("127.0.0.7:80"), "blue 127.0.0.7:80");
            assert_eq!(web("[::1]:80"), "blue ::1:80");
            let long = [TcpStream::connect("127.0.0.1:80").unwrap(), TcpStream::connect("[::1]:80").unwrap()];
            assert!(ask(&long[0]).starts_with("blue") && ask(&long[1]).starts_with("blue"));
            for address in ["127.0.0.1:80", "[::1]:80"] {
                let result = under_load(address, || {
                    let mut due = Instant::now();
                    for colour in ["green", "blue", "green", "blue", "green"] {
                        scene.flip(&format!("to {colour}"));
                        assert!(web(address).starts_with(colour));
                        due += EVERY;
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                });
                assert_clean(&result, "");
            }
            assert!(scene.flip("status").contains("go to green"));
            let status: serde_json::Value = serde_json::from_str(&scene.flip("status --json")).unwrap();
            let taken = |at: usize| status[0]["instances"][at]["taken"].as_u64().unwrap();
            assert!(taken(0) > 100 && taken(1) > 100, "{status}");
            assert!(scene.flip("status").contains(" connections since it was set up"));
            assert!(ask(&long[0]).starts_with("blue") && ask(&long[1]).starts_with("blue"));
            scene.remove();
            assert!(ask(&long[0]).starts_with("blue"));
        });
    }

    #[test]
    fn a_reloaded_colour_is_put_in_again_by_the_switch() {
        apart(|scene| {
            scene.start("blue", &[]);
            scene.start("green", &[]);
            scene.flip(INIT);
            let result = under_load("127.0.0.1:80", || {
                for (at, colour) in [(1, "green"), (0, "blue"), (2, "green"), (3, "blue")] {
                    let old = scene.servers[at].id().to_string();
                    scene.start(colour, &["-sf", &old]);
                    until("the old one has ended", || scene.servers[at].try_wait().unwrap().is_some());
                    scene.flip(&format!("to {colour}"));
                }
            });
            assert_clean(&result, "");
            scene.remove();
        });
    }

    #[test]
    fn without_its_process_a_colour_is_told_and_mended() {
        apart(|scene| {
            scene.start("blue", &[]);
            assert!(scene.flip_refused(&INIT.replace("8000", "8002")).contains("respond"));
            scene.flip(INIT);
            assert!(scene.flip_refused("to green").contains("green"));
            assert!(scene.flip_refused("to green --force").contains("start it first"));
            assert!(web("127.0.0.1:80").starts_with("blue"), "as before");
            scene.start("green", &[]);
            scene.servers[0].kill().unwrap();
            scene.servers[0].wait().unwrap();
            // As if the program were not there: nothing listens on the address itself.
            assert!(TcpStream::connect("127.0.0.1:80").is_err());
            assert!(scene.flip_refused("status").contains("closed"));
            scene.flip("to green");
            assert!(web("127.0.0.1:80").starts_with("green"));
            scene.start("blue", &[]);
            scene.flip("to blue");
            assert!(web("[::1]:80").starts_with("blue"));
            scene.remove();
        });
    }

    #[test]
    fn clients_of_another_machine_see_the_address_they_dialled() {
        apart(|scene| {
            let run = |words: &str| {
                let status = Command::new("sh").args(["-c", words]).status().unwrap();
                assert!(status.success(), "{words}");
            };
            let mut client = Command::new("unshare").args(["-n", "sleep", "300"]).spawn().unwrap();
            let pid = client.id();
            let ours = fs::read_link("/proc/thread-self/ns/net").unwrap();
            until("it is apart", || fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|its| its != ours));
            run(&format!(
                "ip link add here type veth peer name there netns {pid} && ip addr add 10.9.0.1/24 dev here && ip -6 addr add \
                 fd09::1/64 dev here nodad && ip link set here up && nsenter -t {pid} -n sh -c 'ip addr add 10.9.0.2/24 dev there && \
                 ip -6 addr add fd09::2/64 dev there nodad && ip link set there up'"
            ));
            scene.start("blue", &[]);
            scene.start("green", &[]);
            scene.flip(INIT);
            let curl = |url: &str| {
                let mut command = Command::new("nsenter");
                command.args(["-t", &pid.to_string(), "-n", "curl", "-sS", "--retry-connrefused", "--retry", "3", url]);
                String::from_utf8(command.output().unwrap().stdout).unwrap()
            };
            assert_eq!(
                curl("http://10.9.0.1/"),
                "blue 10.9.0.1:80",
                "a socket of 127.0.0.1, chosen for another address"
            );
            assert_eq!(curl("http://[fd09::1]/"), "blue fd09::1:80");
            scene.flip("to green");
            assert_eq!(curl("http://10.9.0.1/"), "green 10.9.0.1:80");
            client.kill().unwrap();
            client.wait().unwrap();
            scene.remove();
        });
    }
}
