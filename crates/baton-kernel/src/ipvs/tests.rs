use super::*;
use crate::netlink::Request;

fn addresses() -> [SocketAddr; 2] {
    ["10.0.0.1:80", "[2001:db8::1]:443"].map(|text| text.parse().unwrap())
}

/// As the kernel answers: the same attributes come back, with what it counted.
fn reply(nested: u16, attributes: Attributes) -> Reply {
    Request::new(0x20, 0, &[0; 4], &Attributes::new().nest(nested, &attributes)).reply()
}

fn stats() -> Attributes {
    (1..=5).fold(Attributes::new(), |all, kind| all.raw(kind, &(u64::from(kind) << 40).to_ne_bytes()))
}

#[test]
fn services_and_destinations_come_back_as_they_were_sent() {
    let counted = Counters {
        connections: 1 << 40,
        packets_in: 2 << 40,
        packets_out: 3 << 40,
        bytes_in: 4 << 40,
        bytes_out: 5 << 40,
    };
    let keys = addresses().map(|address| ServiceKey::Address(6, address)).into_iter();
    for key in keys.chain([ServiceKey::Mark(7, false), ServiceKey::Mark(7, true)]) {
        let service = Service {
            key,
            scheduler: "mh".into(),
            flags: flag::PERSISTENT | flag::SCHEDULER_2,
            timeout: 60,
            prefix: 24,
            engine: None,
        };
        let answer = reply(attr::SERVICE, message::settings(&service).nest(12, &stats()));
        assert_eq!(message::service(&answer), Some((service, counted)));
    }
    let tunnel = Tunnel { kind: 1, port: 6080, flags: 1 };
    for forwarding in [Forwarding::Masquerade, Forwarding::Local, Forwarding::Direct, Forwarding::Tunnel(tunnel)] {
        for address in addresses() {
            let to = Destination { address, forwarding, weight: 65_535, upper: 10, lower: 5 };
            let settings = message::destination_settings(&to).u32(7, 1).u32(8, 2).u32(9, 3).nest(12, &stats());
            let connections = Connections { active: 1, inactive: 2, persistent: 3 };
            let answer = reply(attr::DESTINATION, settings);
            assert_eq!(message::destination(&answer, false), Some((to, connections, counted)));
        }
    }
    let daemon = Daemon { role: Role::Backup, interface: "eth0".into(), id: 255 };
    assert_eq!(message::daemon(&reply(attr::DAEMON, message::daemon_settings(&daemon))), Some(daemon));
}

#[test]
fn answers_that_are_cut_off_or_changed_are_errors_and_no_panics() {
    let service = Service {
        key: ServiceKey::Address(17, addresses()[1]),
        scheduler: "wrr".into(),
        flags: 0,
        timeout: 0,
        prefix: 128,
        engine: Some("sip".into()),
    };
    let whole = reply(attr::SERVICE, message::settings(&service).nest(12, &stats()));
    let to = Destination { address: addresses()[0], forwarding: Forwarding::Direct, weight: 1, upper: 0, lower: 0 };
    let settings = message::destination_settings(&to).u32(7, 1).u32(8, 2).u32(9, 3).nest(10, &stats());
    let other = reply(attr::DESTINATION, settings);
    let read = |reply: &Reply| {
        let _ = (message::daemon(reply), message::info(reply), message::timeouts(reply));
        message::service(reply).is_some() || message::destination(reply, true).is_some()
    };
    for reply in [whole, other] {
        assert!(read(&reply));
        for length in 0..reply.body.len() {
            let cut = Reply { kind: reply.kind, body: reply.body[..length].to_vec() };
            assert!(!read(&cut) && all(&[cut], "list", message::service).is_err(), "{length}");
            for value in [0, 1, 0xff] {
                let mut changed = reply.clone();
                changed.body[length] = value;
                read(&changed);
            }
        }
    }
}
