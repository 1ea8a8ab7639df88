//! Under a master (`-W`), whose workers are nobody: one dies, the next one goes on, and the end is the worker's.

use baton_control::ask::{Whom, ask};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// The worker's process; `None` while there is none.
fn worker(master: &Proxy) -> Option<u32> {
    match ask(Whom::Pid(master.pid()), Request::Status) {
        Ok(Reply::Status(status)) => Some(status.pid),
        _ => None,
    }
}

#[test]
fn a_worker_that_dies_is_followed_by_one_that_directs_on() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        let has_it = || said("ip -4 address show dev eth0").contains("192.168.121.2/32");
        let text = Text {
            global: "user nobody\ngroup nogroup\n",
            web: "manage-vip interface eth0\non-exit flush\ndefault-server check inter 100\n",
            ..PLAIN
        };
        let director = Director::start_with(&text, &["-W"]);
        until("the address is there", has_it);
        let mut held = within("client", || [(); 4].map(|()| Download::begin(VIP))).join().unwrap();
        let by = held.each_mut().map(|download| download.next(PIECE).unwrap());
        let before = dump();
        for round in 1..=2 {
            let died = worker(&director.proxy).expect("it serves");
            kill(Pid::from_raw(died as i32), Signal::SIGKILL).unwrap();
            held.iter_mut().zip(by).for_each(|(download, by)| download.goes_on(by));
            until("another worker serves", || worker(&director.proxy).is_some_and(|worker| worker != died));
            assert!(has_it() && dump() == before, "round {round}: {:?}", dump());
        }
        // It changes what is there, by a reload and by what its checks find.
        let servers = "server s1 192.168.121.11\nserver s2 192.168.121.12 weight 4\n";
        director.change(&Text { servers, ..text });
        until("the weight is in the kernel", || weight(2) == Some(4));
        said("ip -n s1 address del 192.168.121.2/32 dev lo");
        until("one without the address is out", || weight(1) == Some(0));
        said("ip -n s1 address add 192.168.121.2/32 dev lo");
        until("it is in", || weight(1) == Some(1));
        held.iter_mut().zip(by).for_each(|(download, by)| download.goes_on(by));
        director.proxy.signal(Signal::SIGTERM);
        let (_, said) = director.proxy.wait();
        assert!(!has_it() && dump().is_empty(), "{said}");
    });
}
