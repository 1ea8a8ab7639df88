//! How it begins and ends: what stays, the virtual address, and other users.

use nix::sys::signal::Signal;

use super::*;

#[test]
fn what_stays_is_what_was_asked_for() {
    lab::inside(|| {
        begin();
        for (on_exit, stays) in [("on-exit keep", true), ("", true), ("on-exit flush", false)] {
            for signal in [Signal::SIGTERM, Signal::SIGUSR1] {
                let director = Director::start(&Text { web: on_exit, ..PLAIN });
                director.proxy.signal(signal);
                let (_, said) = director.proxy.wait();
                assert_eq!(!dump().is_empty(), stays, "{on_exit} {signal}: {said}");
            }
        }
    });
}

#[test]
fn the_virtual_address_is_put_there_and_taken_away() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        let has_it = || said("ip -4 address show dev eth0").contains("192.168.121.2/32");
        let director = Director::start(&Text { web: "manage-vip interface eth0\non-exit flush", ..PLAIN });
        until("the address is there", has_it);
        assert_eq!(shares(4), BTreeMap::from([(1, 2), (2, 2)]));
        director.proxy.signal(Signal::SIGTERM);
        director.proxy.wait();
        assert!(!has_it() && dump().is_empty());
    });
}

#[test]
fn the_virtual_address_waits_for_its_service() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        let has = |address: &str| said("ip -4 address show dev eth0").contains(&format!("{address}/32"));
        // A scheduler that cannot be loaded now: one service is refused by the kernel, the other one is not.
        said("ipvsadm -A -t 192.0.2.1:9 -s wrr && ipvsadm -D -t 192.0.2.1:9");
        let loader = std::fs::read_to_string("/proc/sys/kernel/modprobe").unwrap();
        std::fs::write("/proc/sys/kernel/modprobe", "/bin/false").unwrap();
        let second = "server s1 192.168.121.11\nlisten other\nmode direct\nengine ipvs\nbind 192.168.121.3:80\nbalance mh\n\
                      manage-vip interface eth0\nserver s2 192.168.121.12\n";
        let director = Director::start(&Text { web: "manage-vip interface eth0", servers: second, ..PLAIN });
        until("the first address is there", || has("192.168.121.2"));
        until("the refusal is told", || director.tell("show info").contains("192.168.121.3:80"));
        assert!(!has("192.168.121.3"), "{}", director.proxy.said());
        assert_eq!(shares(2), BTreeMap::from([(1, 2)]));
        std::fs::write("/proc/sys/kernel/modprobe", loader.trim()).unwrap();
        until("it follows its service", || has("192.168.121.3"));
        assert!(dump().iter().any(|line| line.starts_with("-A -t 192.168.121.3:80 -s mh")));
    });
}

#[test]
fn another_user_in_a_jail_goes_on() {
    lab::inside(|| {
        begin();
        let jail = tempfile::tempdir().unwrap();
        let global = format!("user nobody\ngroup nogroup\nchroot {}\n", jail.path().display());
        let director = Director::start(&Text { global: &global, web: "on-exit flush", ..PLAIN });
        let [first, second] = downloads();
        let status = std::fs::read_to_string(format!("/proc/{}/status", director.proxy.pid())).unwrap();
        assert!(status.lines().any(|line| line.starts_with("Uid:\t65534\t65534")), "{status}");
        director.tell("set server web/s1 state drain");
        until("it is drained in the kernel", || weight(1) == Some(0));
        first.goes_on(1);
        second.goes_on(2);
        first.end();
        second.end();
        director.proxy.signal(Signal::SIGTERM);
        let (_, said) = director.proxy.wait();
        assert_eq!(dump(), [""; 0], "{said}");
    });
}

#[test]
fn one_at_a_time_directs() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let before = dump();
        // Another one that does not take over would undo what the first one does.
        let folder = tempfile::tempdir().unwrap();
        let other = Text { servers: "server s3 192.168.121.13\n", ..PLAIN };
        let (ended, said) = Proxy::begin(&[], &other.at(folder.path()), &[]).wait();
        assert!(!ended.success() && said.contains(&format!("process {}", director.proxy.pid())), "{said}");
        assert_eq!(dump(), before);
        // It may when the first one has gone, whatever that one left.
        director.proxy.signal(Signal::SIGKILL);
        director.proxy.wait();
        let _other = Director::start(&other);
        until("the service is the other one's", || weight(3).is_some() && weight(1).is_none());
    });
}

#[test]
fn the_same_engine_by_another_word_changes_nothing() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let [first, second] = downloads();
        let before = dump();
        let auto = PLAIN.at(&director.folder).replace(&format!("engine {ENGINE}"), "engine auto");
        director.proxy.change(&auto);
        assert_eq!(dump(), before);
        first.goes_on(1);
        second.goes_on(2);
        director.proxy.change(&auto.replace("192.168.121.12", "192.168.121.12 weight 4"));
        until("it directs on", || weight(2) == Some(4));
        first.goes_on(1);
        second.goes_on(2);
        first.end();
        second.end();
    });
}

#[test]
fn who_takes_over_without_sections_removes_them() {
    lab::inside(|| {
        begin();
        for global in ["", "user nobody\ngroup nogroup\n"] {
            let director = Director::start(&Text { global, ..PLAIN });
            let folder = director.folder.display();
            director.proxy.write(&format!(
                "global\nstats socket {folder}/admin.sock level admin\n{global}\nlisten other\nmode http\nbind 127.0.0.1:8080\n"
            ));
            let next = director.proxy.replace(&[]);
            director.proxy.wait();
            until("nothing is left", || dump().is_empty());
            drop(next);
        }
    });
}

#[test]
fn an_address_that_is_listened_on_stays_until_nothing_does() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        let has_it = || said("ip -4 address show dev eth0").contains("192.168.121.2/32");
        let director = Director::start(&Text { web: "manage-vip interface eth0", ..PLAIN });
        until("the address is there", has_it);
        let global = format!("global\nstats socket {}/admin.sock level admin\n", director.folder.display());
        let listens = |address: &str| format!("{global}listen web\nmode http\nbind {address}:80\n");
        director.proxy.write(&listens("127.0.0.1"));
        assert!(director.proxy.plan().plan.kernel.iter().any(|step| step.starts_with("remove virtual address")));
        director.proxy.write(&listens("192.168.121.2"));
        assert!(director.proxy.plan().plan.kernel.iter().any(|step| step.contains("something listens on it")));
        director.proxy.change(&listens("192.168.121.2"));
        assert!(has_it() && dump().is_empty());
        assert!(director.proxy.said().contains("is kept without `manage-vip`"), "{}", director.proxy.said());
        director.proxy.change(&listens("127.0.0.1"));
        assert!(!has_it());
        // Who takes over does not take it away from under itself either.
        director.change(&Text { web: "manage-vip interface eth0", ..PLAIN });
        until("the address is there again", has_it);
        director.proxy.write(&listens("192.168.121.2").replace(":80\n", ":8080\n"));
        let next = director.proxy.replace(&[]);
        director.proxy.wait();
        until("services are gone", || dump().is_empty());
        until("it is said", || next.said().contains("is kept without `manage-vip`"));
        assert!(has_it());
    });
}

#[test]
fn what_somebody_else_undid_is_put_right_and_said() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let before = dump();
        said("ipvsadm -C");
        until("it is put right", || dump() == before);
        until("it is said", || director.proxy.said().contains("another program changed Baton's kernel state"));
    });
}

/// The virtual address in `mode tcp`, with the first server.
fn relay(folder: &Path) -> String {
    let global = format!("global\nstats socket {}/admin.sock level admin\n", folder.display());
    format!("{global}listen web\nmode tcp\nbind {VIP}\nserver s1 192.168.121.11:80\n")
}

#[test]
fn a_section_changes_its_mode_and_back_at_once() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        let director = Director::start(&Text { web: "manage-vip interface eth0", ..PLAIN });
        let texts = [relay(&director.folder), director_text(&director.folder)];
        let expected = [BTreeMap::from([(1, 2)]), BTreeMap::from([(1, 1), (2, 1)])];
        let mut proxy = director.proxy;
        let mut processes = Vec::new();
        for (text, expected) in texts.iter().zip(&expected).cycle().take(4) {
            proxy.change(text);
            until("it serves", || shares(2) == *expected);
        }
        // Whoever takes over right after a change wants what was before it.
        for (now, before) in [(0, 1), (1, 0)] {
            proxy.change(&texts[now]);
            proxy.change(&texts[before]);
            proxy.change(&texts[now]);
            proxy.write(&texts[before]);
            let next = proxy.replace(&[]);
            until("it serves", || shares(2) == expected[before]);
            next.change(&texts[now]);
            until("it serves", || shares(2) == expected[now]);
            processes.push(std::mem::replace(&mut proxy, next));
        }
    });
}

fn director_text(folder: &Path) -> String {
    Text { web: "manage-vip interface eth0", ..PLAIN }.at(folder)
}

/// Whether a new client is let in.
fn lets_in() -> bool {
    let connect = || std::net::TcpStream::connect_timeout(&VIP.parse().unwrap(), network::PATIENCE).is_ok();
    within("client", connect).join().unwrap()
}

#[test]
fn a_soft_stop_waits_for_connections_that_would_go() {
    lab::inside(|| {
        begin();
        let director = Director::start(&Text { web: "on-exit flush", ..PLAIN });
        let [first, second] = downloads();
        director.proxy.signal(Signal::SIGUSR1);
        until("nothing new comes", || weight(1) == Some(0) && weight(2) == Some(0));
        assert!(!lets_in());
        first.goes_on(1);
        second.goes_on(2);
        first.end();
        second.goes_on(2);
        assert!(!director.proxy.has_ended());
        second.end();
        let (_, said) = director.proxy.wait();
        assert_eq!(dump(), [""; 0], "{said}");
        // Not for ever.
        let director = Director::start(&Text { global: "hard-stop-after 1s\n", web: "on-exit flush", ..PLAIN });
        let _held = within("client", || Download::begin(VIP)).join().unwrap();
        director.proxy.signal(Signal::SIGUSR1);
        let (_, said) = director.proxy.wait();
        assert_eq!(dump(), [""; 0], "{said}");
        assert!(said.contains("performing a hard-stop"), "{said}");
    });
}

#[test]
fn what_nobody_asks_for_after_a_restart_is_told() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let without = "global\nlisten other\nmode http\nbind 127.0.0.1:8080\n";
        // Beside one that directs there is nothing to tell.
        let beside = Proxy::start(without);
        director.proxy.signal(Signal::SIGTERM);
        director.proxy.wait();
        assert!(!beside.said().contains("has ended"), "{}", beside.said());
        drop(beside);
        let before = dump();
        let next = Proxy::start(without);
        until("it is told", || next.said().contains("engine ipvs: tcp 192.168.121.2:80): remove them manually"));
        assert_eq!(dump(), before);
    });
}
