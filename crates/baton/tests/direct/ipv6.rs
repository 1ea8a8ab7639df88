//! Direct routing over IPv6: the virtual address, checks, connections and their end.

use network::{SERVERS6, VIP6};
use nix::sys::signal::Signal;

use super::*;

#[test]
fn clients_are_served_over_ipv6() {
    lab::inside(|| {
        begin();
        said("ip address del fd21::2/128 dev eth0");
        let has_it = || said("ip -6 address show dev eth0").contains("fd21::2/128");
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let mut text = format!(
            "global\nstats socket {} level admin\nlisten web\nmode direct\nengine {ENGINE}\nbind {VIP6}\nbalance roundrobin\n\
             manage-vip interface eth0\non-exit flush\ndefault-server check inter 100 fall 2 rise 2\n",
            socket.display()
        );
        for (name, server) in ["s1", "s2", "s3"].into_iter().zip(SERVERS6) {
            text += &format!("server {name} {}\n", server.trim_end_matches(":80"));
        }
        let director = Director { proxy: Proxy::start(&text), folder: folder.path().to_owned() };
        until("the address is there", has_it);
        let shares = |connections| within("client", move || share(VIP6, connections)).join().unwrap();
        assert_eq!(shares(6), BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
        let mut download = within("client", || Download::begin(VIP6)).join().unwrap();
        let by = download.next(PIECE).unwrap();
        // The director asks its servers under its own address, though it has the virtual one, and for the virtual one.
        until("servers are checked", || director.stat("web", "s1", "check_status") == "L4OK");
        said("ip -n s2 address del fd21::2/128 dev lo");
        until("one without the address is out", || director.stat("web", "s2", "status") == "DOWN");
        said("ip -n s2 address add fd21::2/128 dev lo nodad");
        until("it is in again", || director.stat("web", "s2", "status") == "UP");
        director.proxy.change(&text.replace("[fd21::11]", "[fd21::11] weight 2"));
        until("the weight is in the kernel", || dump().iter().any(|line| line.ends_with("-r [fd21::11]:80 -g -w 2")));
        assert_eq!(shares(8), BTreeMap::from([(1, 4), (2, 2), (3, 2)]));
        download.goes_on(by);
        director.proxy.signal(Signal::SIGTERM);
        director.proxy.wait();
        assert!(!has_it() && dump().is_empty());
    });
}
