//! Servers that fail, come back, or are not set up.

use super::*;

/// Every 100 ms, out after two, in after two.
const CHECKED: Text<'_> = Text {
    global: "",
    web: "default-server check inter 100 fall 2 rise 2",
    servers: "server s1 192.168.121.11\nserver s2 192.168.121.12\n",
};
const REFUSE: &str =
    "ip netns exec s2 iptables-legacy -A INPUT -p tcp --dport 80 --syn -j REJECT --reject-with tcp-reset";

/// Lets what a shut door refused in again.
fn admit() {
    said(&REFUSE.replace("-A INPUT", "-D INPUT"));
}

#[test]
fn a_server_that_fails_leaves_and_comes_back_slowly() {
    lab::inside(|| {
        begin();
        let director = Director::start(&Text {
            web: "default-server check inter 100 fall 2 rise 2 slowstart 3s weight 10",
            ..CHECKED
        });
        until("both are in", || director.stat("web", "s2", "status") == "UP" && weight(2) > Some(0));
        let [first, second] = downloads();
        said(REFUSE);
        until("it is out", || weight(2).unwrap_or(0) == 0);
        assert_eq!(director.stat("web", "s2", "status"), "DOWN");
        assert_eq!(shares(4), BTreeMap::from([(1, 4)]));
        first.goes_on(1);
        second.goes_on(2);
        let full = weight(1).unwrap();
        admit();
        let mut least = u32::MAX;
        until("it is back", || {
            let (now, other) = (weight(2).unwrap_or(0), weight(1).unwrap_or(0));
            if now > 0 && other > 0 {
                least = least.min(now * 1000 / other);
            }
            now == full && other == full
        });
        assert!(least < 1000, "it began with less than its share");
        first.end();
        second.end();
    });
}

#[test]
fn a_server_without_the_virtual_address_gets_nothing() {
    lab::inside(|| {
        begin();
        said("ip -n s2 address del 192.168.121.2/32 dev lo");
        let director = Director::start(&CHECKED);
        until("it is out", || weight(2).unwrap_or(0) == 0 && weight(1) > Some(0));
        assert_eq!(shares(4), BTreeMap::from([(1, 4)]));
        let said_of_it = director.tell("show stat");
        let why = "virtual address 192.168.121.2 is not set up on the server: nothing responds for it there";
        assert!(said_of_it.contains(why), "{said_of_it}");
        said("ip -n s2 address add 192.168.121.2/32 dev lo");
        until("it is in", || weight(2) > Some(0));
        assert_eq!(shares(4), BTreeMap::from([(1, 2), (2, 2)]));
    });
}

#[test]
fn a_real_server_that_answers_for_the_virtual_address_is_told() {
    lab::inside(|| {
        begin();
        said("ip netns exec s2 sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.eth0.arp_ignore=0");
        let mac = said("ip netns exec s2 cat /sys/class/net/eth0/address");
        let director = Director::start(&CHECKED);
        let complaint = format!("{} (192.168.121.12", mac.trim());
        until("it is told", || {
            let told = director.tell("show info");
            told.contains("also responds for the virtual address 192.168.121.2 on eth0") && told.contains(&complaint)
        });
    });
}
