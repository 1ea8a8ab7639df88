//! `mode direct` of a whole process by the engine xdp, on this machine: a client, a director where Baton runs, and real servers.
#![cfg(feature = "bpf")]

#[path = "../../../baton-direct/tests/flows/mod.rs"]
mod flows;
#[path = "../../../baton-direct/tests/link/mod.rs"]
mod link;
#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod busy;
mod foreign;
mod interfaces;
mod master;
mod pauses;
mod plans;
mod service;
mod traffic;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use baton_kernel::bpf::direct;
use flows::{Lab, PATIENCE, all_go_on, ask, hold, lab};
use link::vips;
use nix::sys::signal::Signal;
use support::{Proxy, until};

/// One section for both families, with these servers; a server's weight 0 drains it.
fn text(lab: &Lab, folder: &Path, weights: &[u32], on_exit: &str) -> String {
    let [four, six] = vips();
    let socket = folder.join("admin.sock");
    let mut text =
        format!("global\nstats socket {} level admin\nuser nobody\nchroot {}\n", socket.display(), folder.display());
    for (name, vip) in [("four", four), ("six", six)] {
        let bind = if vip.is_ipv4() { format!("{vip}:80") } else { format!("[{vip}]:80") };
        text += &format!(
            "listen {name}\nmode direct\nengine xdp\non-exit {on_exit}\nbind {bind}\nbalance roundrobin\ntimeout check 5s\n"
        );
        for (server, weight) in lab.servers.iter().zip(weights) {
            let address = server.address(vip);
            let address = if vip.is_ipv4() { address.to_string() } else { format!("[{address}]") };
            text += &format!("server {} {address} check inter 200ms weight {weight}\n", server.name);
        }
    }
    text
}

/// Starts it in the director's network, and waits until it has given the kernel what it is to have.
fn start(lab: &Lab, text: &str) -> Proxy {
    let proxy = lab.director.inside(|| Proxy::start(text));
    let end = Instant::now() + PATIENCE;
    while !answers(lab) {
        assert!(Instant::now() < end, "it does not serve: {}", proxy.said());
    }
    proxy
}

/// The runtime API's answer.
fn tell(folder: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(folder.join("admin.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(stream, "{command}").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

fn answers(lab: &Lab) -> bool {
    vips().iter().all(|vip| ask(&lab.client, *vip, 1).keys().all(|answer| !answer.contains("curl")))
}

#[test]
fn connections_live_on_whatever_becomes_of_the_process() {
    lab(3, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let even = text(lab, folder.path(), &[1, 1, 1], "keep");
        let proxy = start(lab, &even);
        let mut held = hold(lab, 12);
        // A reload with other weights; a server that drains.
        lab.director.inside(|| proxy.change(&text(lab, folder.path(), &[5, 1, 1], "keep")));
        all_go_on(&mut held);
        lab.director.inside(|| proxy.change(&text(lab, folder.path(), &[0, 1, 1], "keep")));
        until("nothing new for a server that drains", || !ask(&lab.client, vips()[0], 12).contains_key("one"));
        all_go_on(&mut held);
        // Another process takes over, and is killed; nobody is there; and another one begins.
        let mut next = lab.director.inside(|| proxy.replace(&[]));
        proxy.wait();
        all_go_on(&mut held);
        next.signal(Signal::SIGKILL);
        next.wait();
        all_go_on(&mut held);
        assert_eq!(ask(&lab.client, vips()[1], 10).values().sum::<usize>(), 10);
        next = start(lab, &text(lab, folder.path(), &[1, 1, 1], "flush"));
        all_go_on(&mut held);
        // The end for good.
        next.signal(Signal::SIGUSR1);
        let (status, said) = next.wait();
        assert!(status.success(), "{said}");
        let answers = ask(&lab.client, vips()[0], 1);
        assert!(answers.keys().all(|answer| answer.contains("connect to server")), "{answers:?}");
        assert!(!is_pinned(lab), "nothing of it is left");
    });
}

/// Whether the program is tied to an interface of the director.
fn is_pinned(lab: &Lab) -> bool {
    let names = lab.director.inside(|| fs::read_dir(direct::folder().unwrap()).map(|files| files.flatten().collect()));
    let names: Vec<fs::DirEntry> = names.unwrap_or_default();
    names.iter().any(|file| file.file_name().to_string_lossy().starts_with("link-"))
}

#[test]
fn what_it_cannot_do_is_said_before_anything_is_done() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let right = text(lab, folder.path(), &[1], "flush");
        let proxy = start(lab, &right);
        for (words, instead, because) in [
            ("balance roundrobin", "balance leastconn", "no scheduler 'wlc'"),
            ("weight 1", "weight 1 tunnel", "no tunnels"),
            ("weight 1", "weight 1 maxconn 10", "no limits"),
            ("bind 192.0.2.7:80", "bind fwmark@7", "before a firewall can mark them"),
        ] {
            let refused = lab.director.inside(|| proxy.change_refused(&right.replace(words, instead)));
            assert!(refused.contains(because), "{refused}");
        }
        assert_eq!(ask(&lab.client, vips()[0], 3).len(), 1, "it goes on");
        assert!(fs::exists("/sys/fs/bpf/baton-direct").unwrap());
    });
}

#[test]
fn a_reload_keeps_the_engine_and_changes_its_interfaces() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let named = text(lab, folder.path(), &[1, 1], "flush");
        let proxy = start(lab, &named);
        let program = || assert!(is_pinned(lab), "the program is there");
        let mut held = hold(lab, 8);
        let on_eth0 = named.replace(":80\n", ":80 interface eth0\n");
        let auto = named.replace("engine xdp", "engine auto");
        let unsaid = named.replace("engine xdp\n", "");
        // The engine by another word or by none, interfaces, and all of it anew: by a process that has neither root nor its root.
        for text in [&auto, &unsaid, &on_eth0, &named, &on_eth0.replace("engine xdp\n", "")] {
            lab.director.inside(|| proxy.change(text));
            program();
            all_go_on(&mut held);
            lab.director.inside(|| proxy.change(&text.replace("weight 1", "weight 3")));
            all_go_on(&mut held);
        }
        for (instead, because) in [
            (named.replace(":80\n", ":80 interface nosuch\n"), "there is no such interface"),
            (named.replace("engine xdp", "engine ipvs"), "start a new process that takes over"),
        ] {
            let refused = lab.director.inside(|| proxy.change_refused(&instead));
            assert!(refused.contains(because) && !refused.contains("CAP_NET_ADMIN"), "{refused}");
            program();
            all_go_on(&mut held);
        }
        assert_eq!(ask(&lab.client, vips()[0], 10).values().sum::<usize>(), 10);
        drop(proxy);
    });
}

#[test]
fn a_reload_moves_the_program_between_driver_and_stack() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let best = text(lab, folder.path(), &[1, 1], "flush");
        let proxy = start(lab, &best);
        let manner = || {
            let info = tell(folder.path(), "show info");
            info.lines().find(|line| line.starts_with("Direct_setup")).unwrap_or_else(|| panic!("{info}")).to_owned()
        };
        let mut held = hold(lab, 8);
        // By a process that has neither root nor its root.
        for (word, how) in [("driver", "in its driver, as configured"), ("stack", "generic, as configured")] {
            let text = best.replace("engine xdp", &format!("engine xdp {word}"));
            proxy.write(&text);
            let plan = format!("{:?}", lab.director.inside(|| proxy.plan()));
            assert!(plan.contains("move the program on interface eth0 from"), "{plan}");
            for _ in 0..2 {
                lab.director.inside(|| proxy.change(&text));
                all_go_on(&mut held);
            }
            until("show info says where it is", || manner().contains(how));
        }
        lab.director.inside(|| proxy.change(&best));
        until("show info says where it is", || {
            manner().contains("generic: a veth driver may drop what the program sends back")
        });
        // Nobody would take what the driver sends back.
        link::run("ip link set dev director xdp off");
        let driver = best.replace("engine xdp", "engine xdp driver");
        let refused = lab.director.inside(|| proxy.change_refused(&driver));
        assert!(refused.contains("interface eth0: what its driver sends back would be dropped"), "{refused}");
        all_go_on(&mut held);
        assert_eq!(ask(&lab.client, vips()[1], 10).values().sum::<usize>(), 10);
    });
}

#[test]
fn it_does_not_begin_where_it_cannot() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let named = text(lab, folder.path(), &[1], "flush").replace(":80\n", ":80 interface nosuch\n");
        let (status, said) = lab.director.inside(|| Proxy::begin(&[], &named, &[]).wait());
        assert!(!status.success() && said.contains("interface nosuch"), "{said}");
    });
}
