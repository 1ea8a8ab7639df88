//! `bind … namespace`: the same address in two network namespaces, through reloads, handovers, HAProxy and a master.
//!
//! As root, with a namespace of `ip netns` for each test, and everything else in a namespace of its own. Without, the tests
//! say so.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use baton_kernel::{holders, namespace, netns};
use nix::sys::signal::Signal;
use support::haproxy::Haproxy;
use support::{PATIENCE, Proxy, program, until};

const WEB: &str = "127.0.0.1:80";
/// A user without a name and without processes.
const USER: u32 = 61241;

/// A namespace with a name, which goes with the test.
struct Named(String);

impl Named {
    fn new() -> Named {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("baton-test-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        let named = Named(name);
        ip(&["netns", "add", &named.0]);
        ip(&["-n", &named.0, "link", "set", "lo", "up"]);
        named
    }

    /// Who answers in there.
    fn answer(&self) -> Option<String> {
        namespace::inside(Some(&self.0), answer).expect("it is there")
    }

    /// The kernel's numbers of the sockets that listen in there.
    fn sockets(&self) -> BTreeSet<String> {
        let listening = || holders::listening_at_port(80).expect("a list");
        let all = namespace::inside(Some(&self.0), listening).expect("it is there");
        all.iter().map(|inode| format!("{inode:?}")).collect()
    }

    fn connect(&self) -> TcpStream {
        namespace::inside(Some(&self.0), || TcpStream::connect(WEB)).expect("it is there").expect("somebody listens")
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).status().expect("iproute2 is installed by scripts/setup test");
    assert!(done.success(), "ip {words:?}");
}

/// Runs a test where low ports are free, if there is the right to.
fn alone(test: impl FnOnce(&Named) + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: no right to a network namespace");
        return;
    }
    if let Err(error) = netns::in_new(|| test(&Named::new())) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

fn read(mut stream: TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.rsplit("\r\n").next().map(str::to_owned)
}

/// Who answers in the namespace of this thread.
fn answer() -> Option<String> {
    read(TcpStream::connect(WEB).ok()?)
}

/// A frontend at [`WEB`].
fn frontend(name: &str, options: &str) -> String {
    format!(
        "frontend {name}\n bind {WEB}{options}\n http-request return status 200 content-type text/plain string {name}\n"
    )
}

fn config(global: &str, frontends: &[String]) -> String {
    format!(
        "global\n nbthread 2\n{global}defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n{}",
        frontends.concat()
    )
}

/// One address, here and in the namespace.
fn both(global: &str, named: &Named) -> String {
    config(global, &[frontend("outside", ""), frontend("inside", &format!(" namespace {}", named.0))])
}

#[track_caller]
fn assert_apart(named: &Named) {
    assert_eq!((answer().as_deref(), named.answer().as_deref()), (Some("outside"), Some("inside")));
}

#[test]
fn an_address_of_each_namespace_comes_and_goes_by_a_reload() {
    alone(|named| {
        let (outside, with_inside) = (config("", &[frontend("outside", "")]), both("", named));
        let proxy = Proxy::start(&with_inside);
        assert_apart(named);
        let mut curl = Command::new("ip");
        let curl = curl.args(["netns", "exec", &named.0, "curl", "-s", "http://127.0.0.1/"]).output();
        assert_eq!(String::from_utf8_lossy(&curl.expect("curl is installed").stdout), "inside");

        let early = named.connect();
        proxy.change(&outside);
        assert_eq!(read(early).as_deref(), Some("inside"), "who came before is served");
        until("it is closed", || named.sockets().is_empty());
        assert_eq!(answer().as_deref(), Some("outside"));

        let outcome = proxy.change(&with_inside);
        let expect = format!("bind {WEB} namespace {}", named.0);
        assert!(format!("{outcome:?}").contains(&expect), "{outcome:?}");
        assert_apart(named);

        let second = Named::new();
        proxy.change(&both("", &second));
        assert_apart(&second);
        until("it is closed", || named.sockets().is_empty());
    });
}

#[test]
fn what_cannot_be_had_is_said_with_line_reason_and_remedy() {
    alone(|named| {
        let nowhere = config("", &[frontend("outside", ""), frontend("inside", " namespace nowhere-at-all")]);
        let expect = ["test.cfg:12", "there is no network namespace 'nowhere-at-all'", "`ip netns add`"];
        let (status, said) = Proxy::begin(&[], &nowhere, &[]).wait();
        assert!(!status.success() && expect.iter().all(|text| said.contains(text)), "{said}");

        let proxy = Proxy::start(&config("", &[frontend("outside", "")]));
        let both_wrong =
            nowhere.replace(WEB, "127.0.0.1:81").replacen("frontend", "frontend new\n bind :82\nfrontend", 1);
        let said = proxy.change_refused(&both_wrong);
        assert!(said.contains(expect[1]), "{said}");
        assert!(TcpStream::connect("127.0.0.1:82").is_err(), "nothing half-applied");
        assert_eq!(answer().as_deref(), Some("outside"));

        let said = proxy.change_refused(&config("", &[frontend("f", " namespace ../x")]));
        assert!(said.contains("'../x' is not a valid name of a network namespace"), "{said}");
        drop(proxy);

        let user = format!(" uid {USER}\n gid {USER}\n");
        let proxy = Proxy::start(&config(&user, &[frontend("outside", "")]));
        support::readable(&proxy);
        let said = proxy.change_refused(&both(&user, named));
        let reason = format!("entering the network namespace '{}' is not permitted", named.0);
        assert!(said.contains(&reason) && said.contains("CAP_SYS_ADMIN"), "{said}");
        assert_eq!(answer().as_deref(), Some("outside"));
    });
}

#[test]
fn a_master_opens_it_for_a_worker_that_gave_up_root() {
    alone(|named| {
        let user = format!(" uid {USER}\n gid {USER}\n");
        let proxy = Proxy::start_with(&config(&user, &[frontend("outside", "")]), &["-W"]);
        support::readable(&proxy);
        let worker = proxy.status().pid;
        proxy.change(&both(&user, named));
        assert_apart(named);
        assert_eq!(proxy.status().pid, worker, "the same process");
        let sockets = named.sockets();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker as i32), Signal::SIGKILL).unwrap();
        until("another worker serves", || named.answer().as_deref() == Some("inside"));
        assert_apart(named);
        assert_eq!(named.sockets(), sockets, "the master holds them");
    });
}

#[test]
fn a_successor_takes_each_to_its_place() {
    alone(|named| {
        let old = Proxy::start(&both("", named));
        let sockets = named.sockets();
        assert_eq!(sockets.len(), 2);
        let waiting = named.connect();
        let new = old.replace(&[]);
        assert_apart(named);
        assert_eq!(named.sockets(), sockets, "the same ones");
        assert_eq!(read(waiting).as_deref(), Some("inside"));
        until("the old process has ended", || old.has_ended());
        assert_apart(named);
        // One that may not enter the namespace knows them by the giver's word.
        let drop_right = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
        let pid = new.pid().to_string();
        let newest = Proxy::start_under(&drop_right, &both("", named), &["-sf", &pid]);
        until("the old process has ended", || new.has_ended());
        assert_apart(named);
        assert_eq!(named.sockets(), sockets, "still the same ones");
        drop(newest);
    });
}

#[test]
fn haproxy_and_baton_take_it_from_each_other() {
    alone(|named| {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let stats = folder.path().join("stats.sock");
        let global = format!(" stats socket {} expose-fd listeners level admin\n", stats.display());
        let text = both(&global, named).replacen(" nbthread 2\n", " nbthread 1\n", 1);
        let at = stats.display().to_string();

        let haproxy = Haproxy::start(&text, &stats);
        let sockets = named.sockets();
        assert_eq!(sockets.len(), 1);
        let baton = Proxy::start_with(&text, &["-x", &at]);
        haproxy.stop();
        assert_apart(named);
        assert_eq!(named.sockets(), sockets, "the same one");

        let pid = baton.pid().to_string();
        let _haproxy = Haproxy::start_with(&text, &stats, &["-x", &at, "-sf", &pid].map(OsStr::new));
        until("baton has ended", || baton.has_ended());
        assert_apart(named);
        assert_eq!(named.sockets(), sockets, "still the same one");
    });
}

#[test]
fn a_check_needs_no_namespace() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("a.cfg");
    fs::write(&file, config("", &[frontend("f", " namespace nowhere-at-all")])).expect("the folder is ours");
    let checked = Command::new(program()).arg("-c").arg("-f").arg(&file).output().expect("it was built");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// A counter of the kernel in this thread's namespace: of TCP beyond the standard.
fn counter(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").expect("the kernel counts");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: ")).map(|line| line.split(' '));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let value = names.zip(values).find(|(found, _)| *found == name).map(|(_, value)| value.parse());
    value.unwrap_or_else(|| panic!("no {name} in\n{text}")).expect("a number")
}

#[test]
fn first_bytes_go_with_the_syn_where_both_sides_have_tfo() {
    alone(|_| {
        // Both sides; where it is off nobody can.
        fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").expect("the namespace is ours");
        let greeter = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let greets = greeter.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            for mut stream in greeter.incoming().map_while(Result::ok) {
                let _ = stream.write_all(b"hello");
            }
        });
        let config = |options: &str| {
            let retry = "retry-on conn-failure empty-response response-timeout";
            config(
                "",
                &[
                    frontend("near", " tfo"),
                    format!("listen far\n bind 127.0.0.1:81\n http-reuse never\n {retry}\n server s {WEB} {options}\n"),
                    format!("listen greeting\n mode tcp\n bind 127.0.0.1:82\n {retry}\n server s {greets} {options}\n"),
                ],
            )
        };
        let proxy = Proxy::start(&config(""));
        let ask = || assert_eq!(read(TcpStream::connect("127.0.0.1:81").unwrap()).as_deref(), Some("near"));
        (0..3).for_each(|_| ask());
        assert_eq!((counter("TCPFastOpenActive"), counter("TCPFastOpenPassive")), (0, 0));
        // The first connection gets the cookie that the next ones show.
        proxy.change(&config("tfo"));
        (0..3).for_each(|_| ask());
        assert_eq!((counter("TCPFastOpenActive"), counter("TCPFastOpenPassive")), (2, 2));
        // Nobody says anything before the server: its SYN waits for nothing.
        let mut client = TcpStream::connect("127.0.0.1:82").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = [0; 5];
        client.read_exact(&mut greeting).expect("the server speaks first");
        assert_eq!(&greeting, b"hello");
        proxy.change(&config("tfo no-tfo"));
        (0..3).for_each(|_| ask());
        assert_eq!((counter("TCPFastOpenActive"), counter("TCPFastOpenPassive")), (2, 2));
    });
}

/// Two that are each the first process of a container, which share a network: each is asked by its own people.
#[test]
fn first_processes_of_two_containers_are_told_apart() {
    alone(|_| {
        let start = |port: u16| {
            let text = config("", &[frontend("f", "").replace(WEB, &format!("127.0.0.1:{port}"))]);
            let wrapper = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
            let proxy = Proxy::begin(&wrapper, &text, &[]);
            until("it serves", || TcpStream::connect(("127.0.0.1", port)).is_ok());
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", proxy.pid()));
            (children.expect("it runs").trim().to_owned(), proxy)
        };
        let (first, second) = (start(8081), start(8082));
        let ask = |pid: &str, words: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["-t", pid, "--pid", "--mount", "--"]).arg(program()).args(words);
            let output = command.output().expect("util-linux is installed");
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let status =
            |pid: &str| serde_json::from_str::<serde_json::Value>(&ask(pid, &["status", "--json"])).expect("JSON");
        ask(&second.0, &["reload"]);
        ask(&second.0, &["reload", "--pid", "1"]);
        let (one, other) = (status(&first.0), status(&second.0));
        assert_eq!([&one["generation"], &other["generation"]], [1, 3], "only the second one was asked to");
        assert_eq!([&one["pid"], &other["pid"]], [1, 1]);
        assert_ne!(one["id"], other["id"]);
    });
}

/// Connections that Netfilter redirects to us: `server s *` is where they were meant to go.
#[test]
fn a_redirected_connection_goes_where_it_was_meant_to_go() {
    alone(|_| {
        ip(&["addr", "add", "192.0.2.1/32", "dev", "lo"]);
        // Not what we send ourselves, which would come back.
        let rules = "add table ip baton; add chain ip baton out { type nat hook output priority -100; }; \
                     add rule ip baton out ip daddr 192.0.2.1 ip saddr != 127.0.0.9 tcp dport 80 redirect to :7000";
        if !Command::new("nft").arg(rules).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no address translation by nftables");
            return;
        }
        let meant = "http-request return status 200 content-type text/plain string meant";
        let proxy = Proxy::start(&config(
            "",
            &[
                "listen through\n bind 127.0.0.1:7000\n source 127.0.0.9\n retries 0\n server s *\n".to_owned(),
                format!("frontend meant\n bind 192.0.2.1:80\n {meant}\n"),
            ],
        ));
        let answer = read(TcpStream::connect("192.0.2.1:80").expect("it is redirected"));
        assert_eq!(answer.as_deref(), Some("meant"));
        until("it came by us", || support::frontend_counter(&proxy.status(), "through", "req_tot") == 1);
        let direct = read(TcpStream::connect("127.0.0.1:7000").expect("it listens"));
        assert!(direct.is_some_and(|answer| answer.contains("503 Service Unavailable")), "no other place was meant");
    });
}
