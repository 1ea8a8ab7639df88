//! What `check` finds wrong, on the machine and from outside.

use std::io::ErrorKind;
use std::thread::sleep;

use baton_direct::real_server::check::{self, Answerer, Finding, Grade, Outside};
use baton_direct::vip::{Vip, Vips};
use baton_kernel::route::Routing;

use super::*;

/// Listens on an address that was closed just now. A program that another test starts at that moment has the old socket too, until it
/// has begun.
fn freed(address: &str) -> TcpListener {
    for _ in 0..500 {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => sleep(Duration::from_millis(10)),
            bound => return bound.unwrap(),
        }
    }
    panic!("{address} stays in use");
}

#[test]
fn an_address_on_lo_alone_is_found_wrong_and_put_right() {
    alone(|| {
        let [client, server] = [Machine::new("client", 1), Machine::new("server", 11)];
        let [vip, vip6] = vips();
        let look = || server.inside(|| check::here(&[vip, vip6], &[], &[80]).unwrap());
        let wrong = |findings: &[Finding]| -> Vec<String> {
            let wrong = findings.iter().filter(|finding| finding.grade == Grade::Wrong);
            wrong.map(|finding| format!("{} | {}", finding.what, finding.remedy)).collect()
        };
        let found = wrong(&look());
        assert!(found[0].starts_with(
            "192.0.2.7 is not on lo: packets for it are dropped here | baton real-server up --vip 192.0.2.7"
        ));
        assert!(found.iter().any(|found| found.contains("arp_ignore is 0 on eth0")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("arp_announce is 0 on eth0")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("nothing listens on port 80")), "{found:#?}");
        assert!(found.iter().any(|found| found.contains("2001:db8::77 is not on lo")), "{found:#?}");

        server.run("ip address add 192.0.2.7/24 dev lo");
        server.run("ip address add 2001:db8::77/64 dev eth0 nodad");
        let found = wrong(&look());
        assert!(
            found.iter().any(
                |found| found.contains("is on lo with /24") && found.contains("ip address del 192.0.2.7/24 dev lo")
            )
        );
        assert!(
            found.iter().any(|found| found.contains("2001:db8::77 is on eth0, and this machine responds")),
            "{found:#?}"
        );
        server.run("ip address del 192.0.2.7/24 dev lo");
        server.run("ip address del 2001:db8::77/64 dev eth0");
        let managed = Vip { address: vip, interface: "eth0".into(), prefix: 32 };
        server.inside(|| Vips::open("").unwrap().reconcile(&[managed]).unwrap());
        let found = wrong(&look());
        assert!(found[0].contains("put there by `manage-vip`") && !found[0].contains("address del"), "{found:#?}");
        server.inside(|| Vips::open("").unwrap().reconcile(&[]).unwrap());

        let own = server.inside(|| TcpListener::bind((server.ipv4(), 80)).unwrap());
        set_up(&server, &asked(&[vip, vip6], ArpMethod::Auto));
        let found = wrong(&look());
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(found[0].contains("nothing listens on 192.0.2.7 port 80, only on 192.0.2.11:80"), "{found:#?}");
        drop(own);
        let _all = server.inside(|| freed("[::]:80"));
        assert_eq!(wrong(&look()), [""; 0]);
        assert!(client.inside(|| who_has("eth0", vip, SHORT).unwrap()).is_empty());

        set_up(&server, &asked(&[vip], ArpMethod::Filter));
        assert_eq!(wrong(&look()), [""; 0]);
        // Without the right to see the filter it says so, and not that it is gone.
        let found = server.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            check::here(&[vip], &[], &[]).unwrap()
        });
        assert_eq!(wrong(&found), [""; 0]);
        let is_told = |found: &Finding| found.grade == Grade::Note && found.what.contains("cannot check");
        assert!(found.iter().any(is_told), "{found:#?}");
        server.run("nft flush ruleset");
        let found = wrong(&look());
        assert!(found[0].contains("table arp baton-real-server of nftables is missing"), "{found:#?}");
        let report = set_up(&server, &asked(&[vip], ArpMethod::Filter));
        assert_eq!(report.steps.len(), 1, "{report:?}");
        assert_eq!(wrong(&look()), [""; 0]);
    });
}

#[test]
fn from_outside_who_answers_is_named() {
    alone(|| {
        let [director, one, two] = [Machine::new("director", 1), Machine::new("one", 11), Machine::new("two", 12)];
        let [vip, _] = vips();
        director.run("ip address add 192.0.2.7/32 dev eth0");
        let look = |from: &Machine, director: Option<Answerer>, servers: Vec<IpAddr>, within| {
            let vips = vec![vip];
            let asked = Outside { vips, interface: "eth0".into(), director, servers, ports: vec![80], within };
            from.inside(|| check::outside(&asked).unwrap())
        };
        let told = |findings: &[Finding]| -> Vec<String> { findings.iter().map(ToString::to_string).collect() };
        assert_eq!(told(&look(&director, None, vec![], SHORT)), ["ok: no other machine responds for 192.0.2.7"]);
        let known = Some(Answerer::Address(director.ipv4()));
        assert_eq!(told(&look(&two, known, vec![], SHORT)), ["ok: only the director responds for 192.0.2.7"]);
        let found = told(&look(&two, None, vec![], SHORT));
        assert!(found[0].starts_with(&format!("note: only {} responds", director.mac())), "{found:?}");

        // A real server that nobody made quiet. That it is known by name takes a neighbour entry.
        one.run("ip address add 192.0.2.7/32 dev lo");
        director.inside(|| who_has("eth0", one.ipv4(), SHORT).unwrap());
        let eth0 = director.inside(|| Routing::open().unwrap().link("eth0").unwrap().index);
        director.inside(|| Routing::open().unwrap().resolve_neighbour(eth0, one.ipv4()).unwrap());
        let end = Instant::now() + PATIENCE;
        let is_known = || director.inside(|| Routing::open().unwrap().neighbour(eth0, one.ipv4()).unwrap());
        while is_known().and_then(|known| known.usable()).is_none() {
            assert!(Instant::now() < end);
        }
        let found = told(&look(&director, None, vec![one.ipv4(), two.ipv4()], SHORT));
        assert!(
            found[0].starts_with(&format!("WRONG: {} (192.0.2.11) responds for 192.0.2.7", one.mac())),
            "{found:#?}"
        );
        assert!(found[1].contains("nothing listens on its port"), "{found:#?}");
        assert!(
            found[2].contains("192.0.2.7 port 80 on 192.0.2.12: nothing there responds for the virtual address"),
            "{found:#?}"
        );
        // Where nobody else has the address, a real server that answers is not taken for the director.
        director.run("ip address del 192.0.2.7/32 dev eth0");
        let found = told(&look(&director, None, vec![one.ipv4(), two.ipv4()], SHORT));
        assert!(found[0].starts_with(&format!("WRONG: {} (192.0.2.11) responds for", one.mac())), "{found:#?}");
        let found = told(&look(&director, None, vec![IpAddr::from([198, 51, 100, 1])], SHORT));
        assert!(found.last().unwrap().ends_with("\n    it must be on a network of eth0"), "{found:#?}");
        director.run("ip address add 192.0.2.7/32 dev eth0");
        let found = told(&look(&two, Some(Answerer::Mac(director.mac())), vec![], SHORT));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&one.mac().to_string()), "{found:?}");
    });
}
