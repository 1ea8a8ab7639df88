//! Servers behind another interface than clients.

use flows::{Held, second_network};

use super::*;

#[test]
fn what_comes_by_one_interface_leaves_by_another() {
    lab(2, |lab| {
        second_network(lab);
        let folder = tempfile::tempdir().unwrap();
        let text = text(lab, folder.path(), &[1, 1], "flush").replace(":80\n", ":80 interface eth0\n");
        let best = text.replace(" 192.0.2.1", " 198.51.100.1");
        let proxy = start(lab, &best);
        let info = |word: &str| {
            let info = tell(folder.path(), "show info");
            info.lines().find(|line| line.starts_with(word)).unwrap_or_default().to_owned()
        };
        until("show info says where it is", || info("Direct_setup").contains("on eth0 (generic: a veth driver"));
        for vip in vips() {
            let answers = ask(&lab.client, vip, 20);
            assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        }
        // An upload, of which many packets go through the kernel as one that is larger than any interface sends.
        let mut held = Held::new(&lab.client, vips()[0]);
        lab.client.run("ethtool -K eth0 tx on tso on gso on");
        held.stream.get_ref().set_write_timeout(Some(PATIENCE)).unwrap();
        held.stream.get_mut().write_all(&vec![b'z'; 5_000_000]).unwrap();
        assert_eq!(held.says().unwrap(), held.server);
        lab.client.run("ethtool -K eth0 tx off");
        // What no driver would send is refused, not dropped.
        let driver = best.replace("engine xdp", "engine xdp driver");
        let refused = lab.director.inside(|| proxy.change_refused(&driver));
        assert!(refused.contains("interface eth1: what its driver sends back would be dropped"), "{refused}");
        assert_eq!(held.says().unwrap(), held.server);
        link::run("ethtool -K director1 gro on");
        lab.director.inside(|| proxy.change(&driver));
        until("it is in both drivers", || {
            info("Direct_setup").contains("on eth0 (in its driver, as configured), eth1 (in its driver, as configured)")
        });
        assert_eq!(held.says().unwrap(), held.server);
        let answers = ask(&lab.client, vips()[0], 20);
        assert!(answers.values().sum::<usize>() == 20 && answers.len() == 2, "{answers:?}");
        assert_eq!(info("Direct_problems"), "");
    });
}
