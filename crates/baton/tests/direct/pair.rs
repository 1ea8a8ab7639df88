//! Two directors whose kernels tell each other of connections (`tune.ipvs.sync-master`, `sync-backup`): the other way than `balance mh`,
//! by which both would choose alike.

use std::path::Path;

use network::VIP6;

use super::*;

/// The page's lines, the same on both.
const SYNC: &str = "    tune.ipvs.sync-master eth0 id 7\n    tune.ipvs.sync-backup eth0 id 7\n";

/// Behind both directors.
const SERVERS: &str = "
server s1 192.168.121.11
server s2 192.168.121.12
server s3 192.168.121.13

listen six
mode direct
bind [fd21::2]:80
balance roundrobin
server s1 [fd21::11]
server s2 [fd21::12]
server s3 [fd21::13]
";

/// Of the second director.
const SECOND: &str = "
    ip netns add second
    ip link add v-second type veth peer name eth0 netns second
    ip link set v-second master br0 up
    ip -n second link set lo up
    ip netns exec second sysctl -qw net.ipv6.conf.eth0.accept_dad=0
    ip -n second link set eth0 up
    ip -n second address add fd21::5/64 dev eth0 nodad
    ip -n second address add 192.168.121.5/24 dev eth0";

/// Does something where the bridge is.
fn outside(words: &str) {
    said(&format!("nsenter --net=/proc/1/ns/net sh -ec '{words}'"));
}

/// Who has which connection of the client's: its port, and the server.
fn known(director: &str) -> BTreeMap<String, String> {
    let shown = said(&format!("ip netns exec {director} ipvsadm -Lcn"));
    let connections = shown.lines().filter(|line| line.contains("ESTABLISHED"));
    connections
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| (words[3].to_owned(), words[5].to_owned()))
        .collect()
}

/// Connections that have carried something, every second one over IPv6, with who has them.
fn downloads(many: usize) -> Vec<(u8, Download)> {
    let begin = move || -> Vec<(u8, Download)> {
        let vips = [VIP, VIP6].into_iter().cycle();
        let mut begun: Vec<Download> = vips.take(many).map(Download::begin).collect();
        // The kernel tells of a connection at its third packet (`sync_threshold`).
        begun.drain(..).map(|mut download| (download.next(PIECE).unwrap(), download)).collect()
    };
    within("client", begin).join().unwrap()
}

/// The addresses are on `to` alone, and the client asks anew where they are.
fn moves(from: &str, to: &str) {
    said(&format!(
        "ip -n {from} address del 192.168.121.2/32 dev eth0
         ip -n {from} address del fd21::2/128 dev eth0
         ip -n {to} address add 192.168.121.2/32 dev eth0
         ip -n {to} address add fd21::2/128 dev eth0 nodad preferred_lft 0
         ip -n client neighbour flush dev eth0"
    ));
}

#[test]
fn downloads_go_on_at_the_other_director_that_was_told_of_them() {
    lab::inside(|| {
        begin();
        outside(SECOND);
        let text = Text { global: SYNC, servers: SERVERS, ..PLAIN };
        let _first = Director::start(&text);
        let second = tempfile::tempdir().unwrap();
        let text = text.at(second.path());
        let _second = within("second", move || Proxy::start(&text)).join().unwrap();
        until("both serve", || {
            ["director", "second"]
                .iter()
                .all(|name| said(&format!("ip netns exec {name} ipvsadm -Sn")).lines().count() == 8)
        });
        for director in ["director", "second"] {
            let daemons = said(&format!("ip netns exec {director} ipvsadm -Ln --daemon"));
            assert!(daemons.contains("master sync daemon") && daemons.contains("backup sync daemon"), "{daemons}");
        }

        let mut held = downloads(6);
        until("the second one was told of all", || known("second").len() == 6);
        assert_eq!(known("second"), known("director"));
        outside("ip link set v-director down");
        moves("director", "second");
        held.iter_mut().for_each(|(by, download)| download.goes_on(*by));
        // And the other way round, as the first one is back and has the address again.
        outside("ip link set v-director up");
        held.extend(downloads(3));
        held.iter_mut().for_each(|(by, download)| download.goes_on(*by));
        until("the first one was told of the new ones", || known("director").len() == 9);
        moves("second", "director");
        held.iter_mut().for_each(|(by, download)| download.goes_on(*by));
    });
}

#[test]
fn the_lines_of_the_page_are_those_that_are_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/direct.md");
    let page = std::fs::read_to_string(page).expect("it is in the tree");
    assert!(page.contains(SYNC), "docs/direct.md has not:\n{SYNC}");
}
