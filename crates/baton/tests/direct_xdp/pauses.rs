//! A process without root and in a jail, while nothing is asked for and when somebody removed what is pinned.

use std::fs;

use baton_kernel::bpf::direct;

use super::*;

#[test]
fn sections_go_and_come_back_by_reloads() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let with = text(lab, folder.path(), &[1, 1], "flush");
        let global = with.split("listen").next().unwrap();
        let without = format!("{global}listen other\nmode http\nbind 127.0.0.1:8080\n");
        let proxy = start(lab, &with);
        let pinned =
            || lab.director.inside(|| fs::read_dir(direct::folder().unwrap()).map_or(0, |files| files.count()));
        for _ in 0..3 {
            lab.director.inside(|| proxy.change(&without));
            until("nothing of it is left", || {
                pinned() == 0 && !lab.director.run("ip link show dev eth0").contains("xdp")
            });
            let refused = ask(&lab.client, vips()[0], 1);
            assert!(refused.keys().all(|answer| answer.contains("connect to server")), "{refused:?}");
            lab.director.inside(|| proxy.change(&with));
            for vip in vips() {
                assert_eq!(ask(&lab.client, vip, 10).values().sum::<usize>(), 10, "{}", proxy.said());
            }
        }
        // What is kept meanwhile is in nobody's way who takes over, and goes on if that one fails.
        let mut held = hold(lab, 8);
        lab.director.inside(|| proxy.change(&without));
        proxy.write(&with.replace("bind 192.0.2.7:80", "bind 192.0.2.7:80 interface nosuch"));
        let pid = proxy.pid().to_string();
        let (status, said) = lab.director.inside(|| proxy.spawn_beside(&["-sf", &pid]).wait());
        assert!(!status.success(), "{said}");
        lab.director.inside(|| proxy.change(&with));
        all_go_on(&mut held);
        lab.director.inside(|| proxy.change(&without));
        proxy.write(&with);
        let next = lab.director.inside(|| proxy.replace(&[]));
        all_go_on(&mut held);
        next.signal(Signal::SIGTERM);
        next.wait();
        assert_eq!(pinned(), 0);
    });
}

#[test]
fn what_somebody_removed_is_missed_and_made_anew_by_who_takes_over() {
    lab(3, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let text = text(lab, folder.path(), &[1, 1, 1], "flush");
        let proxy = start(lab, &text);
        let mut held = hold(lab, 12);
        lab.director.inside(|| fs::remove_dir_all(direct::folder().unwrap()).unwrap());
        let missed = "start a new process that takes over (baton -sf PID)";
        until("it is said", || proxy.said().contains(missed));
        // It is said once, whatever is asked for meanwhile.
        for weight in [2, 1] {
            lab.director.inside(|| proxy.change(&text.replace("weight 1", &format!("weight {weight}"))));
        }
        assert_eq!(proxy.said().matches(missed).count(), 1, "{}", proxy.said());
        let next = lab.director.inside(|| proxy.replace(&[]));
        proxy.wait();
        until("it serves", || answers(lab));
        all_go_on(&mut held);
        drop(next);
    });
}
