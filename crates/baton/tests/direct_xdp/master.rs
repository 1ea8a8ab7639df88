//! Under a master (`-W`), whose workers are nobody and in a jail.

use baton_control::ask::{Whom, ask as tell};
use baton_control::protocol::{Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// The worker's process; `None` while there is none.
fn worker(lab: &Lab, master: &Proxy) -> Option<u32> {
    match lab.director.inside(|| tell(Whom::Pid(master.pid()), Request::Status)) {
        Ok(Reply::Status(status)) => Some(status.pid),
        _ => None,
    }
}

#[test]
fn a_worker_that_dies_is_followed_by_one_that_directs_on() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let even = text(lab, folder.path(), &[1, 1], "flush");
        let proxy = lab.director.inside(|| Proxy::start_with(&even, &["-W"]));
        until("it directs", || answers(lab));
        let mut held = hold(lab, 12);
        for _ in 0..2 {
            let died = worker(lab, &proxy).expect("it serves");
            kill(Pid::from_raw(died as i32), Signal::SIGKILL).unwrap();
            all_go_on(&mut held);
            until("another worker serves", || worker(lab, &proxy).is_some_and(|worker| worker != died));
            all_go_on(&mut held);
            assert_eq!(ask(&lab.client, vips()[1], 5).values().sum::<usize>(), 5);
        }
        // It can change what is there.
        lab.director.inside(|| proxy.change(&text(lab, folder.path(), &[0, 1], "flush")));
        until("nothing new for a server that drains", || !ask(&lab.client, vips()[0], 12).contains_key("one"));
        all_go_on(&mut held);
        proxy.signal(Signal::SIGTERM);
        let (_, said) = proxy.wait();
        assert!(!is_pinned(lab), "{said}");
    });
}
