//! A lane with a plug, in a kernel that has both: made, looked at with `tc`, switched, and removed.

#[path = "../../baton/tests/support/lab/mod.rs"]
mod lab;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use baton_kernel::qdisc::{Handle, Match, Plug, Qdisc, QdiscError, Traffic};
use nix::errno::Errno;

const PRIO: Handle = Handle::qdisc(0xba70);
const LANE: Handle = PRIO.lane(4);
const PLUG: Handle = Handle::qdisc(0xba7f);

fn tc(words: &str) -> String {
    let done = Command::new("tc").args(words.split(' ')).output().expect("iproute2 is installed by scripts/setup test");
    assert!(done.status.success(), "tc {words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn find(traffic: &mut Traffic, handle: Handle) -> Option<Qdisc> {
    traffic.qdiscs().unwrap().into_iter().find(|qdisc| qdisc.handle == handle)
}

#[test]
fn a_plug_holds_beginnings_of_connections_and_nothing_else() {
    lab::inside(|| {
        let before = tc("qdisc show");
        let listeners: Vec<_> =
            ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"].map(|any| TcpListener::bind(any).unwrap()).into();
        let places: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let mut early = TcpStream::connect(places[0]).unwrap();

        let mut traffic = Traffic::of("lo").unwrap();
        traffic.add_prio(PRIO, 4).unwrap();
        traffic.add_plug(LANE, PLUG, 10_000).unwrap();
        traffic.tell_plug(LANE, PLUG, Plug::ReleaseIndefinite).unwrap();
        let chosen = places[..2].iter().map(|place| Match { address: place.ip(), port: place.port() });
        let chosen: Vec<_> = chosen.collect();
        chosen.iter().for_each(|connections| traffic.lead(*connections, LANE).unwrap());
        let shown = tc("qdisc show dev lo");
        assert!(shown.contains("qdisc prio ba70: root") && shown.contains("plug ba7f: parent ba70:4"), "{shown}");
        let filters = traffic.filters(PRIO).unwrap();
        assert!(filters.iter().all(|filter| filter.kind == "u32" && filter.lane == Some(LANE)), "{filters:?}");
        assert_eq!(filters.iter().filter_map(|filter| filter.matches).collect::<Vec<_>>(), chosen);
        assert_eq!(traffic.add_prio(PRIO, 4).unwrap_err().errno(), Some(Errno::EEXIST));
        assert_eq!(traffic.add_plug(LANE, PLUG, 1).unwrap_err().errno(), Some(Errno::EEXIST));

        places.iter().for_each(|place| drop(TcpStream::connect(place).unwrap()));
        assert_eq!(find(&mut traffic, PLUG).unwrap().sent, 2, "beginnings to two of three places, let through");

        traffic.tell_plug(LANE, PLUG, Plug::Limit(5_000)).unwrap();
        traffic.tell_plug(LANE, PLUG, Plug::Buffer).unwrap();
        let dial = |place: std::net::SocketAddr| std::thread::spawn(move || TcpStream::connect(place));
        let waiting = [dial(places[0]), dial(places[1])];
        while find(&mut traffic, PLUG).unwrap().waiting < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        early.write_all(b"not held").unwrap();
        TcpStream::connect(places[2]).unwrap();
        assert!(waiting.iter().all(|dialling| !dialling.is_finished()));
        traffic.tell_plug(LANE, PLUG, Plug::ReleaseIndefinite).unwrap();
        waiting.into_iter().for_each(|dialling| drop(dialling.join().unwrap().unwrap()));
        assert_eq!(find(&mut traffic, PLUG).unwrap().waiting, 0);

        assert!(traffic.delete_root(PRIO).unwrap());
        assert!(!traffic.delete_root(PRIO).unwrap(), "a second time");
        assert_eq!(tc("qdisc show"), before);
        TcpStream::connect(places[0]).unwrap();
    });
}

#[test]
fn what_somebody_else_put_there_stays() {
    lab::inside(|| {
        tc("qdisc add dev lo root handle 1: prio bands 3");
        tc("filter add dev lo parent 1: protocol ip prio 9 u32 match ip dport 80 0xffff classid 1:1");
        let all = || [tc("qdisc show"), tc("filter show dev lo")];
        let before = all();
        let mut traffic = Traffic::of("lo").unwrap();
        assert!(!traffic.root().unwrap().unwrap().is_default());
        assert_eq!(traffic.add_prio(PRIO, 4).unwrap_err().errno(), Some(Errno::EEXIST));
        assert!(!traffic.delete_root(PRIO).unwrap());
        let filters = traffic.filters(Handle::qdisc(1)).unwrap();
        assert_eq!((filters.len(), filters[0].matches), (1, None), "{filters:?}");
        assert_eq!(all(), before);
    });
}

#[test]
fn what_the_kernel_lacks_is_named() {
    lab::inside(|| {
        std::fs::create_dir_all("/run/modprobe.d").unwrap();
        std::fs::write("/run/modprobe.d/none.conf", "install sch_plug /bin/false\n").unwrap();
        let mut traffic = Traffic::of("lo").unwrap();
        traffic.add_prio(PRIO, 4).unwrap();
        let fault = traffic.add_plug(LANE, PLUG, 10_000).unwrap_err();
        assert!(matches!(&fault, QdiscError::NoModule { module, .. } if module == "sch_plug"), "{fault}");
        assert!(traffic.delete_root(PRIO).unwrap());
    });
}
