//! What changes, and what does not feel it.

use nix::sys::signal::Signal;

use super::*;

/// With these servers.
fn with(servers: &str) -> Text<'_> {
    Text { servers, ..PLAIN }
}

#[test]
fn clients_are_shared_shown_and_explained() {
    lab::inside(|| {
        begin();
        let director = Director::start(&with("server s1 192.168.121.11\nserver s2 192.168.121.12 weight 2\n"));
        assert_eq!(shares(30), BTreeMap::from([(1, 10), (2, 20)]));
        until("the kernel's counters are in the statistics", || director.stat("web", "s2", "stot") == "20");
        assert_eq!(director.stat("web", "s1", "stot"), "10");
        assert_eq!(director.stat("web", "FRONTEND", "stot"), "30");
        assert_eq!(director.stat("web", "BACKEND", "stot"), "30");
        assert_eq!(director.stat("web", "FRONTEND", "mode"), "direct");
        let bytes: u64 = director.stat("web", "s2", "bin").parse().unwrap();
        assert!(bytes > 20 * 40, "{bytes}");
        let info = director.tell("show info");
        assert!(info.contains("ipvs") && info.contains("IPVS"), "{info}");
    });
}

#[test]
fn long_downloads_survive_every_change() {
    lab::inside(|| {
        begin();
        let mut director = Director::start(&PLAIN);
        let longs = downloads();
        let go_on = || {
            for (number, long) in [1, 2].into_iter().zip(&longs) {
                long.goes_on(number);
            }
        };
        // A reload of the same.
        director.change(&PLAIN);
        go_on();
        // Other weights, and one more server.
        director
            .change(&with("server s1 192.168.121.11 weight 3\nserver s2 192.168.121.12\nserver s3 192.168.121.13\n"));
        until("the weight is in the kernel", || weight(1) == Some(3) && weight(3) == Some(1));
        go_on();
        // One is drained, one is set by hand, one goes.
        director.tell("set server web/s1 state drain");
        director.tell("set server web/s2 weight 50%");
        until("it is drained in the kernel", || weight(1) == Some(0));
        assert!(!shares(6).contains_key(&1), "it gets nothing new");
        go_on();
        director.change(&with("server s1 192.168.121.11 weight 3\nserver s2 192.168.121.12\n"));
        until("the third one is gone", || weight(3).is_none());
        director.tell("set server web/s1 state ready");
        until("it is back", || weight(1).is_some_and(|weight| weight > 0));
        go_on();

        // Another process takes over.
        let next = director.proxy.replace(&[]);
        // The file is in the old one's folder.
        let old = std::mem::replace(&mut director.proxy, next);
        until("the old one ends", || old.has_ended());
        go_on();
        director.change(&with("server s1 192.168.121.11 weight 7\nserver s2 192.168.121.12\n"));
        until("the new one changes", || weight(1) == Some(7));
        assert_eq!(weight(2), Some(0), "what was set by hand stays, here half of one");
        director.tell("set server web/s2 weight 100%");
        until("it is as in the file again", || weight(2) == Some(1));
        go_on();

        // It is killed: the kernel goes on, and the next one touches nothing.
        let before = dump();
        director.proxy.signal(Signal::SIGKILL);
        until("it is killed", || director.proxy.has_ended());
        go_on();
        assert_eq!(dump(), before);
        assert_eq!(shares(8), BTreeMap::from([(1, 7), (2, 1)]));
        let text = with("server s1 192.168.121.11 weight 7\nserver s2 192.168.121.12\n");
        let next = Director::start(&text);
        go_on();
        next.change(&with("server s1 192.168.121.11 weight 7\nserver s2 192.168.121.12 weight 2\n"));
        until("it knows what is its own", || weight(2) == Some(2));
        go_on();
        longs.into_iter().for_each(Long::end);
    });
}

#[test]
fn a_change_that_the_engine_cannot_do_changes_nothing() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let before = dump();
        let refused = |text: &Text<'_>| director.proxy.change_refused(&text.at(&director.folder));
        let said = refused(&with("server s1 192.168.121.11:81\n"));
        assert!(said.contains("port"), "{said}");
        let said = refused(&with("server s1 [fd21::11]\n"));
        assert!(said.contains("IPv6"), "{said}");
        assert_eq!(dump(), before);
    });
}

#[test]
fn others_services_are_left_alone() {
    lab::inside(|| {
        begin();
        said("ipvsadm -A -t 192.168.121.9:80 -s rr && ipvsadm -a -t 192.168.121.9:80 -r 192.168.121.11 -g");
        said(&format!("ipvsadm -A -t {VIP} -s rr && ipvsadm -a -t {VIP} -r 192.168.121.13 -g"));
        let theirs = |line: &String| line.contains("192.168.121.9:80");
        let before: Vec<String> = dump().into_iter().filter(theirs).collect();
        let director = Director::start(&Text { web: "on-exit flush", ..PLAIN });
        until("the service is taken over", || weight(1).is_some() && weight(3).is_none());
        let said = director.proxy.said();
        assert!(said.contains(&format!("service tcp {VIP} existed in the kernel")), "{said}");
        director.proxy.signal(Signal::SIGTERM);
        director.proxy.wait();
        assert_eq!(dump(), before);
    });
}
