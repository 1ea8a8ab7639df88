//! Clients that belong to a server which leaves, by persistence or by `balance dh`: what is open goes on, and what they begin anew goes to
//! another server.

use super::*;

const STICKY: &str = "stick-table type ip size 1m expire 5m\nstick on src";
const SETTING: &str = "cat /proc/sys/net/ipv4/vs/expire_quiescent_template";

/// That the client's next connections go there.
#[track_caller]
fn goes_to(server: u8) {
    until("the client goes there", || shares(1) == BTreeMap::from([(server, 1)]));
    assert_eq!(shares(3), BTreeMap::from([(server, 3)]));
}

/// One server after the other leaves, by a director that has begun.
fn leave_and_come_back(director: &Director) {
    let (by, long) = Long::begin();
    let other = 3 - by;
    goes_to(by);
    director.tell(&format!("set server web/s{by} state maint"));
    goes_to(other);
    long.goes_on(by);
    director.tell(&format!("set server web/s{by} state ready"));
    goes_to(other);
    director.tell(&format!("set server web/s{other} state drain"));
    goes_to(by);
    director.tell(&format!("set server web/s{other} state ready"));
    long.goes_on(by);
    long.end();
}

#[test]
fn who_sticks_to_a_server_that_leaves_keeps_what_is_open() {
    lab::inside(|| {
        begin();
        let director = Director::start(&PLAIN);
        let sticky = Text { web: STICKY, ..PLAIN };
        director.proxy.write(&sticky.at(&director.folder));
        let plan = director.proxy.plan().plan.kernel.join("\n");
        assert!(plan.contains("set net.ipv4.vs.expire_quiescent_template = 1"), "{plan}");
        director.change(&sticky);
        assert_eq!(said(SETTING), "1\n");
        leave_and_come_back(&director);

        // As HAProxy does it: who drains keeps its clients, so that who is down has to go.
        director.change(&Text { global: "tune.ipvs.expire-quiescent-template off", ..sticky });
        until("it is off", || said(SETTING) == "0\n");
        let by = shares(1).into_keys().next().unwrap();
        director.tell(&format!("set server web/s{by} state drain"));
        until("it drains", || weight(by) == Some(0));
        goes_to(by);
        director.tell(&format!("set server web/s{by} state maint"));
        until("it is removed", || weight(by).is_none());
        goes_to(3 - by);
    });
}

#[cfg(feature = "bpf")]
#[test]
fn the_engine_xdp_does_the_same() {
    lab::inside(|| {
        begin();
        said("mount -t bpf bpf /sys/fs/bpf");
        let folder = tempfile::tempdir().expect("a folder for the test").keep();
        let text = Text { web: STICKY, ..PLAIN }.at(&folder).replace("engine ipvs", "engine xdp");
        let director = Director { proxy: Proxy::start(&text), folder };
        until("somebody serves", || {
            let connect = || std::net::TcpStream::connect(VIP).is_ok();
            within("client", connect).join().unwrap()
        });
        leave_and_come_back(&director);
    });
}

/// Who is found by the virtual address alone.
#[test]
fn dh_sends_nobody_to_a_server_that_gets_nothing() {
    lab::inside(|| {
        begin();
        // Ten backups: whichever the virtual address leads to, it is not there before its turn.
        let backups: String = (1..=10).map(|n| format!("server b{n} 192.168.121.{} backup\n", 20 + n)).collect();
        let servers = format!("server s1 192.168.121.11\nserver idle 192.168.121.12 weight 0\n{backups}");
        let director = Director::start(&Text { web: "balance dh", servers: &servers, ..PLAIN });
        assert_eq!(shares(3), BTreeMap::from([(1, 3)]));
        assert_eq!(dump().len(), 2, "{:?}", dump());
        director.change(&Text { web: "balance dh", ..PLAIN });
        until("both are there", || dump().len() == 3);
        let by = shares(1).into_keys().next().unwrap();
        let (serving, long) = Long::begin();
        assert_eq!(serving, by);
        director.tell(&format!("set server web/s{by} state drain"));
        until("it is told", || director.proxy.said().contains("`balance dh` refuses the clients that it maps to"));
        long.goes_on(by);
        long.end();
        director.tell(&format!("set server web/s{by} state maint"));
        // Until it is removed, clients are refused as before.
        until("it is removed", || weight(by).is_none());
        goes_to(3 - by);
    });
}
