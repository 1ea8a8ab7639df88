//! A worker that gave up root under a master that did not: addresses that need rights come and go by a reload in the living
//! worker, and nobody who reached one is lost.
//!
//! As root, in a network namespace of its own. Without, the tests say so.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use baton_kernel::netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{PATIENCE, Proxy, until};

/// A user without a name and without processes.
const USER: u32 = 61240;
/// How often an address is removed under load.
const REMOVALS: usize = 5;
/// Clients of that load.
const CLIENTS: usize = 4;

/// Runs a test where low ports are free, if there is the right to.
fn alone(test: impl FnOnce() + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to give it up");
        return;
    }
    if let Err(error) = netns::in_new(test) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

fn config(binds: &str) -> String {
    format!(
        "global\n nbthread 2\n uid {USER}\n gid {USER}\ndefaults\n mode http\n timeout client 5s\n timeout connect 5s\n \
         timeout server 5s\nfrontend web\n bind 127.0.0.1:8000\n{binds} http-request return status 200\n"
    )
}

/// A master and its worker, whose user may read the files.
fn start(arguments: &[&str]) -> Proxy {
    let proxy = Proxy::start_with(&config(""), arguments);
    support::readable(&proxy);
    assert_eq!(std::fs::metadata(format!("/proc/{}", proxy.status().pid)).unwrap().uid(), USER);
    proxy
}

fn answer(mut stream: TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn is_served(address: &str) -> bool {
    TcpStream::connect(address).and_then(answer).is_ok_and(|answer| answer.contains(" 200 "))
}

#[test]
fn addresses_that_need_rights_are_opened_by_a_reload() {
    alone(|| {
        let proxy = start(&["-W"]);
        let worker = proxy.status().pid;
        proxy.write(&config(
            " bind 127.0.0.1:80\n bind :::81 v6only\n bind 192.0.2.7:82 transparent\n bind :83 interface lo\n",
        ));
        proxy.signal(Signal::SIGUSR2);
        until("the new addresses are open", || is_served("127.0.0.1:80"));
        assert!(is_served("[::1]:81") && is_served("127.0.0.1:83"));
        assert_eq!(proxy.status().pid, worker, "the same process");
        for address in ["127.0.0.1:80", "192.0.2.7:82"] {
            let text = format!("Bound {address} for worker {worker}.");
            until("the master says so", || proxy.said().contains(&text));
        }
        // They outlive the worker like all others.
        kill(Pid::from_raw(worker as i32), Signal::SIGKILL).unwrap();
        assert!(is_served("127.0.0.1:80"));
    });
}

#[test]
fn what_the_master_cannot_have_is_refused_with_the_reason() {
    alone(|| {
        let proxy = start(&["-W"]);
        let taken = TcpListener::bind("127.0.0.1:84").unwrap();
        let both = config(" bind 127.0.0.1:80\n bind 127.0.0.1:84\n");
        let said = proxy.change_refused(&both);
        assert!(said.contains("test.cfg:13") && said.contains("already in use"), "{said}");
        assert!(TcpStream::connect("127.0.0.1:80").is_err(), "nothing half-applied");
        assert!(is_served("127.0.0.1:8000"));
        // The socket of the refused reload is not kept.
        proxy.change(&config(" bind 127.0.0.1:80\n"));
        assert!(is_served("127.0.0.1:80"));
        // Without its master the worker is where it was without one.
        let worker = proxy.status().pid;
        proxy.signal(Signal::SIGKILL);
        until("the master is gone", || proxy.has_ended());
        drop(taken);
        proxy.write(&both);
        let Ok(Reply::Reload(outcome)) = ask(Whom::Pid(worker), Request::Reload) else { panic!("it does not answer") };
        let said: String = outcome.messages.iter().map(|message| message.rendered.clone()).collect();
        assert!(said.contains("test.cfg:13") && said.contains("port 84 is privileged"), "{said}");
        kill(Pid::from_raw(worker as i32), Signal::SIGKILL).unwrap();
    });
}

#[test]
fn requests_for_addresses_take_turns() {
    alone(|| {
        let proxy = start(&["-W"]);
        let binds = |count: u16| -> String { (0..count).map(|at| format!(" bind 127.0.0.1:{}\n", 80 + at)).collect() };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Plans ask for the same addresses as the reloads, in between.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let outcome = proxy.plan();
                    if !outcome.accepted {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{:#?}", outcome.messages);
                    }
                }
            });
            for count in 1..=20 {
                proxy.write(&config(&binds(count)));
                let outcome = proxy.reload();
                if !outcome.accepted {
                    is_over.store(true, Ordering::Relaxed);
                }
                assert!(outcome.accepted, "{count}: {:#?}", outcome.messages);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(is_served("127.0.0.1:80") && is_served("127.0.0.1:99"));
    });
}

#[test]
fn a_removed_address_loses_nobody() {
    alone(|| {
        let proxy = start(&["-W"]);
        let web: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for round in 0..REMOVALS {
            proxy.change(&config(" bind 127.0.0.1:80\n"));
            let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            // Who is kept away comes again; who is let in is served.
                            let Ok(stream) = TcpStream::connect_timeout(&web, Duration::from_millis(100)) else {
                                continue;
                            };
                            let answer = answer(stream);
                            if !matches!(&answer, Ok(text) if text.contains(" 200 ")) {
                                is_over.store(true, Ordering::Relaxed);
                                panic!("{round}: {answer:?}");
                            }
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                until("the load runs", || served.load(Ordering::Relaxed) > 50 || is_over.load(Ordering::Relaxed));
                proxy.change(&config(""));
                // The filter drops their SYNs: neither let in nor refused.
                until("new clients are kept away", || {
                    TcpStream::connect_timeout(&web, Duration::from_millis(100))
                        .is_err_and(|error| error.kind() == ErrorKind::TimedOut)
                });
                until("the address is closed", || {
                    TcpStream::connect_timeout(&web, Duration::from_millis(100))
                        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
                });
                is_over.store(true, Ordering::Relaxed);
            });
        }
    });
}
