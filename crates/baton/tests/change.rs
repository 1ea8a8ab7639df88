//! The change path of a whole process: what is refused leaves no trace, the newest file wins, nobody in a queue is reset,
//! and a soft stop waits for the last one.

#[path = "change/dynamic_servers.rs"]
mod dynamic_servers;
#[path = "change/error_files.rs"]
mod error_files;
#[path = "change/files.rs"]
mod files;
#[path = "change/limits.rs"]
mod limits;
#[path = "change/overrides.rs"]
mod overrides;
#[path = "change/patterns.rs"]
mod patterns;
#[path = "change/plan.rs"]
mod plan;
#[path = "change/saved.rs"]
mod saved;
#[path = "change/server_tls.rs"]
mod server_tls;
#[path = "change/state_files.rs"]
mod state_files;
mod support;
#[path = "change/users.rs"]
mod users;
#[path = "change/variables.rs"]
mod variables;
#[path = "change/verdict.rs"]
mod verdict;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baton_prove::{Origin, OriginHandle, OriginOptions};
use nix::sys::signal::Signal;
use support::{PATIENCE, Proxy, free_address, frontend_counter, until};

fn origin() -> OriginHandle {
    Origin::start(OriginOptions::new("o1")).expect("loopback has a free port")
}

/// A frontend on each address, answered by one origin; `more` goes into the frontend.
fn config(binds: &[String], origin: SocketAddr, more: &str) -> String {
    let binds: String = binds.iter().map(|bind| format!(" bind {bind}\n")).collect();
    format!(
        "global\n nbthread 2\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n{binds}{more} default_backend app\nbackend app\n default-server pool-purge-delay 100ms\n server s1 {origin}\n"
    )
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
    stream
}

/// One request, and the answer's head and body so far as they come with one read after the head's end.
fn exchange(stream: &mut (impl Read + Write), target: &str, connection: &str) -> std::io::Result<String> {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: {connection}\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let text = |answer: &[u8]| String::from_utf8_lossy(answer).into_owned();
    loop {
        let length = stream.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..length]);
        let so_far = text(&answer);
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else {
            if length == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            continue;
        };
        let wanted = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
        });
        if length == 0 || wanted.is_some_and(|wanted| body.len() >= wanted) {
            return Ok(so_far);
        }
    }
}

#[track_caller]
fn assert_served(address: SocketAddr) {
    let answer = exchange(&mut connect(address), "/", "close").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_is_wrong_is_refused_whole_and_leaves_no_trace() {
    let origin = origin();
    let (web, other) = (free_address(), free_address());
    let good = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&good);
    let mut kept = connect(web);
    exchange(&mut kept, "/", "keep-alive").unwrap();
    let descriptors = proxy.status().descriptors;

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (address, taken)).unwrap();
    let both = |bind: String| config(&[web.to_string(), other.to_string(), bind], origin.address(), "");
    let check = |text: &str, expect: &str| {
        let reasons = proxy.change_refused(text);
        assert!(reasons.contains(expect), "{reasons}");
        assert_served(web);
        assert!(TcpStream::connect(other).is_err(), "the part that was right is not in use either");
    };
    check(&both(taken.0.to_string()), "address already in use");
    check(&both("203.0.113.77:80".into()), "no interface has this address");
    check(&both("/no/such/folder/x.sock".into()), "the directory does not exist");
    check(&both(format!("{other} backlog 7")), "is already used by frontend web");
    check(&both("127.0.0.1:99999".into()), "99999");
    check(&good.replace("nbthread 2", "user nobody-of-this-name"), "nobody-of-this-name");
    check(&good.replace(" default_backend", " errorfile 503 /no/such/page\n default_backend"), "/no/such/page");
    check(&good.replace("default_backend app", "default_backend ap"), "ap");
    check(&good.replace("frontend web", "frontend web extra words"), "test.cfg:8");
    check("", "No enabled listener found");
    std::fs::remove_file(&proxy.config).unwrap();
    assert!(!proxy.reload().accepted, "a missing file");

    assert!(exchange(&mut kept, "/", "keep-alive").unwrap().starts_with("HTTP/1.1 200"), "the old connection lives");
    until("no descriptor is left over", || proxy.status().descriptors <= descriptors);
    let status = proxy.status();
    assert_eq!((status.generation, status.refused), (1, 11));
    proxy.change(&good);
}

#[test]
fn however_fast_signals_come_the_newest_file_wins() {
    let origin = origin();
    let web = free_address();
    let text = |number: u32| {
        config(&[web.to_string()], origin.address(), &format!(" http-response set-header X-Number {number}\n"))
    };
    let proxy = Proxy::start(&text(0));
    let mut client = connect(web);
    for number in 1..=500 {
        if number % 7 == 0 {
            proxy.write("this is no configuration");
            proxy.signal(Signal::SIGUSR2);
        }
        proxy.write(&text(number));
        proxy.signal(Signal::SIGUSR2);
        if number % 50 == 0 {
            let answer = exchange(&mut client, "/", "keep-alive").unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    let newest = || {
        let answer = exchange(&mut connect(web), "/", "close").unwrap();
        answer.to_ascii_lowercase().contains("x-number: 500\r\n")
    };
    until("the newest file is in use", newest);
    let generation = proxy.status().generation;
    assert!((2..=501).contains(&generation), "{generation}");
}

#[test]
fn what_waits_at_a_removed_address_is_served() {
    let origin = origin();
    let (web, gone) = (free_address(), free_address());
    // One connection at a time: the others wait in the kernel's queues.
    let proxy =
        Proxy::start(&config(&[web.to_string(), gone.to_string()], origin.address(), " maxconn 1\n backlog 100\n"));
    let first = connect(gone);
    until("the first is accepted", || proxy.status().connections == 1);
    let mut waiting: Vec<_> = (0..20).map(|_| connect(gone)).collect();

    proxy.change(&config(&[web.to_string()], origin.address(), " maxconn 1\n backlog 100\n"));
    let after = TcpStream::connect_timeout(&gone, Duration::from_millis(200));
    assert!(after.is_err(), "nobody new gets in");
    drop(first);
    // In the order in which they came, to each of the two queues.
    let served = std::thread::scope(|scope| {
        let ask = |stream: &mut TcpStream| exchange(stream, "/", "close").is_ok_and(|answer| answer.contains(" 200 "));
        let asking: Vec<_> = waiting.iter_mut().map(|stream| scope.spawn(move || ask(stream))).collect();
        asking.into_iter().map(|asked| asked.join()).filter(|served| matches!(served, Ok(true))).count()
    });
    assert_eq!(served, 20, "none was reset");
    until("the address is free", || TcpListener::bind(gone).is_ok());
    assert_eq!(proxy.status().listeners_leaving, 0);
}

#[test]
fn an_address_that_goes_and_comes_back_at_once_loses_nobody() {
    let origin = origin();
    let (web, flapping) = (free_address(), free_address());
    let with = config(&[web.to_string(), flapping.to_string()], origin.address(), "");
    let without = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&with);
    for _ in 0..20 {
        let mut before = connect(flapping);
        proxy.change(&without);
        assert!(exchange(&mut before, "/", "close").unwrap().contains(" 200 "));
        proxy.change(&with);
        assert_served(flapping);
    }
    // A request is counted when its response has been sent.
    until("all requests are counted", || frontend_counter(&proxy.status(), "web", "req_tot") == 40);
}

#[test]
fn a_unix_socket_is_opened_moved_and_removed() {
    let origin = origin();
    let web = free_address();
    let plain = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&plain);
    let path = proxy.folder.path().join("web.sock");
    let with = |mode: &str| config(&[web.to_string(), format!("{} mode {mode}", path.display())], origin.address(), "");
    proxy.change(&with("600"));
    let mut kept = UnixStream::connect(&path).unwrap();
    assert!(exchange(&mut kept, "/", "keep-alive").unwrap().contains(" 200 "));
    proxy.change(&with("666"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    proxy.change(&with("666").replace("frontend web", "frontend other"));
    assert!(exchange(&mut UnixStream::connect(&path).unwrap(), "/", "close").unwrap().contains(" 200 "));
    proxy.change(&plain);
    assert!(!path.exists());
}

#[test]
fn a_soft_stop_ends_when_the_last_connection_does() {
    let origin = origin();
    let web = free_address();
    let proxy = Proxy::start(&config(&[web.to_string()], origin.address(), ""));
    let mut slow = connect(web);
    write!(slow, "GET /delay/1500 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    until("the request is under way", || origin.requests() == 1);
    proxy.signal(Signal::SIGUSR1);
    until("it stops", || proxy.status().stopping);
    assert!(TcpStream::connect_timeout(&web, Duration::from_millis(200)).is_err(), "nobody new gets in");
    let answer = {
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(answer.contains(" 200 ") && answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    let (status, said) = proxy.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("Proxy web stopped (cumulated conns: FE: 1, BE: 0)."), "{said}");
}

#[test]
fn a_soft_stop_takes_no_longer_than_it_may() {
    let origin = origin();
    let web = free_address();
    let text =
        config(&[web.to_string()], origin.address(), "").replace("nbthread 2", "nbthread 2\n hard-stop-after 300ms");
    let proxy = Proxy::start(&text);
    let mut stuck = connect(web);
    write!(stuck, "GET /delay/60000 HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    until("the request is under way", || origin.requests() == 1);
    proxy.signal(Signal::SIGUSR1);
    let (status, said) = proxy.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("performing a hard-stop"), "{said}");
}

#[test]
fn sigterm_ends_at_once() {
    use std::os::unix::process::ExitStatusExt;
    let origin = origin();
    let proxy = Proxy::start(&config(&[free_address().to_string()], origin.address(), ""));
    proxy.signal(Signal::SIGTERM);
    let (status, _) = proxy.wait();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "as HAProxy does");
}

#[test]
fn settings_of_the_process_wait_for_the_next_one() {
    let origin = origin();
    let text = config(&[free_address().to_string()], origin.address(), "");
    let proxy = Proxy::start(&text);
    let outcome = proxy.change(&text.replace("nbthread 2", "nbthread 1"));
    assert!(outcome.waits() && outcome.plan.changes.len() == 1, "{:?}", outcome.plan);
    assert_eq!(proxy.status().cores, 2);
}
