//! Certificates that change while Baton serves, and sessions that outlive it: whole processes, asked by `openssl s_client`.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use nix::sys::signal::Signal;
use support::{Proxy, free_address, program, until};
use tempfile::TempDir;

/// A process with a watched directory, `certs`, in which `0.pem` is the default.
struct World {
    authority: Authority,
    folder: TempDir,
    web: SocketAddr,
    proxy: Option<Proxy>,
    default: Issued,
}

impl World {
    fn start(words: &str) -> World {
        let mut world = World::new();
        let text = world.text(words);
        world.proxy = Some(Proxy::start(&text));
        world
    }

    /// Nothing runs yet.
    fn new() -> World {
        let authority = Authority::new("Test").expect("a key can be made");
        let folder = tempfile::tempdir().expect("a folder for the test");
        let default = authority.issue(&CertificateSpec::server(["default.example"])).expect("it can be made");
        fs::create_dir(folder.path().join("certs")).expect("the folder is ours");
        fs::write(folder.path().join("certs/0.pem"), default.bundle_pem()).expect("the folder is ours");
        World { authority, folder, web: free_address(), proxy: None, default }
    }

    fn text(&self, words: &str) -> String {
        let certs = self.at("certs");
        format!(
            "global\n nbthread 2\ndefaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 5s\n\
             frontend web\n bind {} ssl crt {} {words}\n",
            self.web,
            certs.display()
        )
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("it was started")
    }

    fn issue(&self, name: &str) -> Issued {
        self.authority.issue(&CertificateSpec::server([name])).expect("it can be made")
    }

    /// As a careful program does: beside it first, and then in its place.
    fn put(&self, name: &str, text: &str) {
        let (new, place) = (self.at(&format!("certs/.{name}")), self.at(&format!("certs/{name}")));
        fs::write(&new, text).and_then(|()| fs::rename(new, place)).expect("the folder is ours");
    }

    /// Looks until clients that ask for `name` get this certificate.
    #[track_caller]
    fn shows(&self, name: &str, issued: &Issued) {
        until(&format!("{name} gets its certificate"), || shown(self.web, name) == body(issued));
    }

    fn said(&self, text: &str) -> bool {
        self.proxy().said().contains(text)
    }

    /// `baton certs sync`: its exit code, and what it says.
    fn sync(&self) -> (Option<i32>, String) {
        let pid = self.proxy().pid().to_string();
        let output = Command::new(program()).args(["certs", "sync", "--pid", &pid]).output().expect("it was built");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    }
}

/// What a client prints that has nothing to say.
fn client(address: SocketAddr, words: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl is installed by scripts/setup test");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The certificate that a client is shown, without its first and last line.
fn shown(address: SocketAddr, name: &str) -> String {
    let text = client(address, &["-servername", name]);
    let body = text.split_once("-----BEGIN CERTIFICATE-----").and_then(|(_, rest)| rest.split_once("-----END"));
    body.map(|(body, _)| body.split_whitespace().collect()).unwrap_or_default()
}

fn body(issued: &Issued) -> String {
    issued.certificate_pem().lines().filter(|line| !line.starts_with("-----")).collect()
}

#[test]
fn files_that_come_change_and_go_are_followed() {
    let world = World::start("watch");
    let [one, two] = [(); 2].map(|()| world.issue("a.example"));
    world.put("a.pem", &one.bundle_pem());
    world.shows("a.example", &one);
    world.put("a.pem", &two.bundle_pem());
    world.shows("a.example", &two);
    // Written in place, in two parts.
    let text = one.bundle_pem();
    let mut file = fs::File::create(world.at("certs/a.pem")).unwrap();
    file.write_all(&text.as_bytes()[..200]).unwrap();
    assert_eq!(shown(world.web, "a.example"), body(&two), "it is half written");
    file.write_all(&text.as_bytes()[200..]).unwrap();
    drop(file);
    world.shows("a.example", &one);
    fs::remove_file(world.at("certs/a.pem")).unwrap();
    world.shows("a.example", &world.default);
    // The default serves on without its file.
    fs::remove_file(world.at("certs/0.pem")).unwrap();
    until("it is said", || world.said("0.pem"));
    assert_eq!(shown(world.web, "whoever"), body(&world.default));
}

#[test]
fn a_broken_file_is_refused_alone() {
    let world = World::start("watch");
    let [good, other, new] = ["a.example", "b.example", "a.example"].map(|name| world.issue(name));
    world.put("a.pem", &good.bundle_pem());
    world.shows("a.example", &good);
    world.put("a.pem", "-----BEGIN CERTIFICATE-----\nbroken\n");
    world.put("b.pem", &other.bundle_pem());
    world.shows("b.example", &other);
    until("it is said", || world.said("The certificate in use stays in use"));
    assert_eq!(shown(world.web, "a.example"), body(&good));
    let (code, said) = world.sync();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("refused") && said.contains("a.pem"), "{said}");
    world.put("a.pem", &new.bundle_pem());
    world.shows("a.example", &new);
    assert_eq!(world.sync().0, Some(0));
    // A key that comes before its certificate is waited for.
    let pair = world.authority.issue(&CertificateSpec::server(["a.example"])).unwrap();
    world.put("c.pem.key", pair.key_pem());
    world.put("c.pem", &pair.chain_pem());
    fs::remove_file(world.at("certs/a.pem")).unwrap();
    world.shows("a.example", &pair);
    assert!(!world.said("c.pem' "), "nothing was wrong with it");
}

#[test]
fn a_thousand_files_at_once_and_a_storm_of_renames_lose_nothing() {
    let world = World::start("watch");
    let all: Vec<Issued> = (0..1000).map(|number| world.issue(&format!("{number}.example"))).collect();
    for (number, issued) in all.iter().enumerate() {
        world.put(&format!("{number}.pem"), &issued.bundle_pem());
    }
    let check = |numbers: &[usize]| numbers.iter().for_each(|at| world.shows(&format!("{at}.example"), &all[*at]));
    check(&[999, 0, 500]);
    for round in 0..5 {
        let name = |number: usize, round: usize| world.at(&format!("certs/{number}{}.pem", "x".repeat(round)));
        (1..1000).for_each(|number| fs::rename(name(number, round), name(number, round + 1)).unwrap());
    }
    check(&[999, 1, 500, 0]);
    let (code, said) = world.sync();
    assert_eq!(code, Some(0), "{said}");
    check(&[998, 2]);
}

#[test]
fn events_that_the_kernel_lost_are_made_up_for() {
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    assert!(most <= 1 << 20, "too many files would have to be renamed: lower fs.inotify.max_queued_events");
    let world = World::start("watch");
    let [one, two] = ["a.example", "b.example"].map(|name| world.issue(name));
    world.put("a.pem", &one.bundle_pem());
    world.shows("a.example", &one);
    let stat = format!("/proc/{}/stat", world.proxy().pid());
    world.proxy().signal(Signal::SIGSTOP);
    until("it stands still", || fs::read_to_string(&stat).unwrap().contains(") T "));
    // Names that it does not look at; two events each.
    let names = [".one", ".two"].map(|name| world.at("certs").join(name));
    fs::write(&names[0], "").unwrap();
    (0..most / 2 + 1).for_each(|turn| fs::rename(&names[turn % 2], &names[(turn + 1) % 2]).unwrap());
    // Nothing tells of these.
    world.put("b.pem", &two.bundle_pem());
    fs::remove_file(world.at("certs/a.pem")).unwrap();
    world.proxy().signal(Signal::SIGCONT);
    world.shows("b.example", &two);
    world.shows("a.example", &world.default);
}

#[test]
fn where_the_kernel_tells_nothing_files_are_looked_at() {
    let may = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no right to a user namespace");
        return;
    }
    for limit in ["instances", "watches"] {
        let mut world = World::new();
        // The limits of a namespace are its own.
        let words = format!("echo 0 > /proc/sys/user/max_inotify_{limit} && exec \"$@\"");
        let wrapper = ["unshare", "--user", "--map-root-user", "sh", "-c", &words, "sh"];
        world.proxy = Some(Proxy::start_under(&wrapper, &world.text("watch"), &[]));
        until("it is said", || world.said("inotify is not available"));
        let [one, two] = [(); 2].map(|()| world.issue("a.example"));
        world.put("a.pem", &one.bundle_pem());
        world.shows("a.example", &one);
        world.put("a.pem", &two.bundle_pem());
        world.shows("a.example", &two);
        fs::remove_file(world.at("certs/a.pem")).unwrap();
        world.shows("a.example", &world.default);
    }
}

#[test]
fn a_directory_that_is_gone_takes_nothing_with_it() {
    let world = World::start("watch");
    let [one, two] = [(); 2].map(|()| world.issue("a.example"));
    world.put("a.pem", &one.bundle_pem());
    world.shows("a.example", &one);
    fs::rename(world.at("certs"), world.at("away")).unwrap();
    until("it is said", || world.said("cannot be opened"));
    assert_eq!(shown(world.web, "a.example"), body(&one));
    fs::create_dir(world.at("certs")).unwrap();
    world.put("0.pem", &world.default.bundle_pem());
    world.put("a.pem", &two.bundle_pem());
    world.shows("a.example", &two);
}

#[test]
fn links_are_followed_as_kubernetes_and_certbot_use_them() {
    let world = World::start("watch");
    let [one, two, three] = [(); 3].map(|()| world.issue("a.example"));
    let version = |number: u32, issued: &Issued| {
        fs::create_dir(world.at(&format!("certs/..{number}"))).unwrap();
        fs::write(world.at(&format!("certs/..{number}/a.pem")), issued.bundle_pem()).unwrap();
        symlink(format!("..{number}"), world.at("certs/..data_tmp")).unwrap();
        fs::rename(world.at("certs/..data_tmp"), world.at("certs/..data")).unwrap();
    };
    version(1, &one);
    symlink("..data/a.pem", world.at("certs/a.pem")).unwrap();
    world.shows("a.example", &one);
    version(2, &two);
    world.shows("a.example", &two);
    fs::write(world.at("three.pem"), three.bundle_pem()).unwrap();
    symlink("../three.pem", world.at("certs/.new")).unwrap();
    fs::rename(world.at("certs/.new"), world.at("certs/a.pem")).unwrap();
    world.shows("a.example", &three);
    // What the link leads to is another file.
    fs::write(world.at("new"), one.bundle_pem()).unwrap();
    fs::rename(world.at("new"), world.at("three.pem")).unwrap();
    world.shows("a.example", &one);
}

#[test]
fn what_is_not_watched_is_used_when_asked_for() {
    let world = World::start("");
    let new = world.issue("a.example");
    world.put("a.pem", &new.bundle_pem());
    let (code, said) = world.sync();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("added"), "{said}");
    assert_eq!(shown(world.web, "a.example"), body(&new), "it came back when it was in use");
}

/// Rounds in which a certificate comes and goes while files are read.
const ROUNDS: usize = 8;
/// Certificates that take some time to be read.
const OTHERS: usize = 400;

#[test]
fn what_is_in_use_stays_so_whatever_is_being_reloaded() {
    for words in ["", "watch"] {
        let world = World::new();
        let other = world.issue("other.example").bundle_pem();
        (0..OTHERS).for_each(|number| world.put(&format!("other{number}.pem"), &other));
        let world = World { proxy: Some(Proxy::start(&world.text(words))), ..world };
        let (is_over, reloads) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _end = End(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // One that finds a name whose file is gone when it is read is refused.
                    reloads.fetch_add(usize::from(world.proxy().reload().accepted), Ordering::Relaxed);
                }
            });
            let is_used = |what: &str, issued: &Issued| {
                if words.is_empty() {
                    let (code, said) = world.sync();
                    assert_eq!(code, Some(0), "{what}: {said}");
                } else {
                    world.shows("a.example", issued);
                }
                let before = reloads.load(Ordering::Relaxed);
                until("reloads go on", || {
                    assert_eq!(shown(world.web, "a.example"), body(issued), "{what} '{words}'");
                    reloads.load(Ordering::Relaxed) >= before + 3
                });
            };
            for round in 0..ROUNDS {
                let new = world.issue("a.example");
                world.put("a.pem", &new.bundle_pem());
                is_used(&format!("what came in round {round}"), &new);
                fs::remove_file(world.at("certs/a.pem")).unwrap();
                is_used(&format!("what was left in round {round}"), &world.default);
            }
        });
    }
}

/// Says that it is over, also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A session of a client, kept in a file; its protocol is the word.
fn begin(address: SocketAddr, word: &str, file: &Path) {
    // TLS 1.3 sends tickets after the handshake: something has to be read.
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-servername", "default.example", word, "-sess_out"])
        .arg(file)
        .args(["-connect", &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed by scripts/setup test");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut answer).expect("it ends");
    child.wait().expect("it is our child");
    assert!(answer.starts_with("HTTP/1.1"), "{answer}");
}

/// Whether that session is resumed.
fn is_resumed(address: SocketAddr, word: &str, file: &Path) -> bool {
    let file = file.display().to_string();
    client(address, &["-servername", "default.example", word, "-sess_in", &file]).contains("Reused, ")
}

#[test]
fn sessions_outlive_reloads_and_processes() {
    let world = World::start("watch");
    let sessions = [("-tls1_2", world.at("session12")), ("-tls1_3", world.at("session13"))];
    let check = |what: &str| {
        for (word, file) in &sessions {
            assert!(is_resumed(world.web, word, file), "{word} after {what}");
        }
    };
    sessions.iter().for_each(|(word, file)| begin(world.web, word, file));
    check("nothing");
    assert!(world.proxy().reload().accepted);
    check("a reload");
    let next = world.proxy().replace(&[]);
    check("-sf");
    let _third = next.replace(&[]);
    check("two of them");
}

#[test]
fn sessions_outlive_a_worker() {
    let world = World::new();
    let proxy = Proxy::start_with(&world.text(""), &["-W"]);
    let (word, file) = ("-tls1_3", world.at("session"));
    begin(world.web, word, &file);
    let master = proxy.pid();
    let worker = || {
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok())
    };
    let before = worker().expect("it has a worker");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(before), Signal::SIGKILL).unwrap();
    until("another worker serves", || worker().is_some_and(|now| now != before));
    assert!(is_resumed(world.web, word, &file), "the master kept the keys");
}

#[test]
fn machines_with_the_same_keys_resume_each_others_sessions() {
    let world = World::new();
    let keys: String = ["Qd5Q", "zJx8", "Lk3v"].map(|start| format!("{start}{}\n", "A".repeat(60))).concat();
    fs::write(world.at("keys"), keys).unwrap();
    let words = format!("tls-ticket-keys {}", world.at("keys").display());
    let text = world.text(&words);
    let (other, own) = (free_address(), free_address());
    let (one, two) = (world.web.to_string(), other.to_string());
    let _one = Proxy::start(&text);
    let _two = Proxy::start(&text.replace(&one, &two));
    let _own = Proxy::start(&world.text("").replace(&one, &own.to_string()));
    for word in ["-tls1_2", "-tls1_3"] {
        let file = world.at(word);
        begin(world.web, word, &file);
        assert!(is_resumed(other, word, &file), "{word}");
        assert!(!is_resumed(own, word, &file), "{word}: it has keys of its own");
    }
}
