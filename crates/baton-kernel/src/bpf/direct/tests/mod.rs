mod moves;
mod packets;

use std::net::SocketAddr;
use std::process::Command;

use super::*;
use crate::bpf::tests::apart;
use crate::route::Routing;
use packets::*;

const CLIENT: End = ("198.51.100.7", 40_000);
const VIP: End = ("192.0.2.1", 80);
const CLIENT6: End = ("2001:db8:7::7", 40_000);
const VIP6: End = ("2001:db8::1", 443);
const DNS: End = ("192.0.2.1", 53);
/// Every port.
const ANY: End = ("192.0.2.9", 0);

/// Slots of the servers: of the web by the interface a packet came in by, and by another one; of IPv6; and so on.
const NEAR: u32 = 0;
const FAR: u32 = 1;
const SIX: u32 = 2;
const UDPS: u32 = 3;
const WILD: u32 = 4;

/// Four services with servers, in a network namespace and a BPF file system of their own.
fn director(test: impl FnOnce(&mut Direct) + Send) {
    apart(|mounted| {
        let folder = mounted.join("baton-direct/1");
        let mut direct = Direct::make(&folder, 1000).unwrap();
        direct.set_macs(&[OwnMac { interface: 1, address: OURS, zero: 0 }]).unwrap();
        service(&mut direct, 0, TCP, VIP, HASH_PORT);
        service(&mut direct, 1, TCP, VIP6, HASH_PORT);
        service(&mut direct, 2, UDP, DNS, 0);
        service(&mut direct, 3, TCP, ANY, 0);
        for (slot, of, interface) in [(NEAR, 0, 1), (FAR, 0, 7), (SIX, 1, 1), (UDPS, 2, 1), (WILD, 3, 1)] {
            direct.set_server(slot, &server(slot, of, interface)).unwrap();
        }
        for (of, slot) in [(0, NEAR), (1, SIX), (2, UDPS), (3, WILD)] {
            direct.set_table(2 * of, &[slot as u16; TABLE]).unwrap();
        }
        test(&mut direct);
        direct.detach(1).unwrap();
        let direct = Direct::find(&folder).unwrap().unwrap();
        direct.remove().unwrap();
        assert!(!folder.exists());
    });
}

fn service(direct: &mut Direct, slot: u32, protocol: u8, end: End, flags: u32) {
    let place = VirtualAddressKey::new(protocol, address(end));
    let service = ServiceSlot { is_used: 1, table: 2 * slot, flags, timeout: 60, mask: [0xff; 16], place, settings: 0 };
    direct.set_service(slot, &service).unwrap();
    direct.set_place(&place, slot).unwrap();
    direct.set_place(&place.address_alone(), slot).unwrap();
}

fn address(end: End) -> SocketAddr {
    SocketAddr::new(end.0.parse().unwrap(), end.1)
}

fn mac(slot: u32) -> [u8; 6] {
    [2, 0, 0, 0, 1, slot as u8]
}

fn server(slot: u32, service: u32, interface: u32) -> ServerSlot {
    let from = [2, 0, 0, 0, 2, interface as u8];
    ServerSlot { generation: 1, service, interface, weight: 1, to: mac(slot), from, ..ServerSlot::default() }
}

/// The packet as it must leave for a server.
fn to_server(packet: &[u8], slot: u32, interface: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[..6].copy_from_slice(&mac(slot));
    packet[6..12].copy_from_slice(&[2, 0, 0, 0, 2, interface]);
    packet
}

#[track_caller]
fn sends(direct: &mut Direct, packet: &[u8], slot: u32) {
    assert_eq!(direct.run(packet).unwrap(), (XdpAction::Send, to_server(packet, slot, 1)));
}

/// Goes to the network stack as it came, and is counted.
#[track_caller]
fn passes(direct: &mut Direct, packet: &[u8], reason: Reason) {
    let before = direct.reason(reason).unwrap();
    assert_eq!(direct.run(packet).unwrap(), (XdpAction::Pass, packet.to_vec()));
    assert_eq!(direct.reason(reason).unwrap(), before + 1, "{reason:?}");
}

#[track_caller]
fn passes_silently(direct: &mut Direct, packet: &[u8]) {
    let before: Vec<u64> = Reason::ALL.iter().map(|reason| direct.reason(*reason).unwrap()).collect();
    assert_eq!(direct.run(packet).unwrap(), (XdpAction::Pass, packet.to_vec()));
    let after: Vec<u64> = Reason::ALL.iter().map(|reason| direct.reason(*reason).unwrap()).collect();
    assert_eq!(before, after);
}

fn flow(client: End, service: u32, port: u16) -> FlowKey {
    let (_, bytes) = bytes_of(client.0.parse().unwrap());
    FlowKey { client: bytes, service, from: client.1.to_be_bytes(), to: port.to_be_bytes() }
}

#[test]
fn nothing_is_padded() {
    assert_eq!(size_of::<VirtualAddressKey>(), 20);
    assert_eq!(size_of::<ServiceSlot>(), 4 * 4 + 16 + 20 + 4);
    assert_eq!(size_of::<ServerSlot>(), 5 * 4 + 12 + 4 + 4 + 4 + 4 + 4 + 16 + 4);
    assert_eq!(size_of::<FlowKey>(), 24);
    assert_eq!(size_of::<Flow>(), 16);
    assert_eq!(size_of::<OwnMac>(), 12);
    assert_eq!(size_of::<Layout>(), 16);
}

#[test]
fn reasons_have_the_numbers_of_the_program() {
    let source = include_str!("../maps.h");
    let (_, list) = source.split_once("enum reason {").unwrap();
    let (list, _) = list.split_once("REASONS,").unwrap();
    let names = list.lines().filter_map(|line| line.trim().split_once(',')).map(|(name, _)| name.replace('_', ""));
    let ours = Reason::ALL.iter().map(|reason| format!("{reason:?}").to_uppercase());
    assert_eq!(names.collect::<Vec<_>>(), ours.collect::<Vec<_>>());
    assert!(Reason::ALL.iter().enumerate().all(|(number, reason)| *reason as usize == number));
}

#[test]
fn a_service_gets_its_packets() {
    director(|direct| {
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, SYN)), NEAR);
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, ACK)), NEAR);
        sends(direct, &frame(&[], &tcp(CLIENT6, VIP6, SYN)), SIX);
        sends(direct, &frame(&[], &udp(CLIENT, DNS)), UDPS);
        for port in [1, 21, 65_535] {
            sends(direct, &frame(&[], &tcp(CLIENT, (ANY.0, port), SYN)), WILD);
        }
        // Ethernet fills up small frames.
        let mut padded = frame(&[], &udp(CLIENT, DNS));
        padded.resize(80, 0);
        sends(direct, &padded, UDPS);
        assert_eq!(direct.counted_of_service(0).unwrap(), SlotCounters { connections: 1, packets: 2, bytes: 90 });
        assert_eq!(direct.counted_of_server(NEAR).unwrap(), SlotCounters { connections: 1, packets: 2, bytes: 90 });
        assert_eq!(direct.counted_of_server(WILD).unwrap().connections, 3);
        direct.clear_server(WILD).unwrap();
        assert_eq!(direct.counted_of_server(WILD).unwrap(), SlotCounters::default());
    });
}

#[test]
fn what_is_for_nobody_passes() {
    director(|direct| {
        passes(direct, &frame(&[], &tcp(CLIENT, (VIP.0, 81), SYN)), Reason::NoService);
        passes(direct, &frame(&[], &tcp(CLIENT, DNS, SYN)), Reason::NoService);
        passes(direct, &frame(&[], &udp(CLIENT, VIP)), Reason::NoService);
        passes_silently(direct, &frame(&[], &tcp(CLIENT, ("192.0.2.2", 80), SYN)));
        passes_silently(direct, &frame(&[], &tcp(CLIENT6, ("2001:db8::2", 443), SYN)));
        // ARP; a frame that has a length instead of a protocol; and for another machine.
        passes_silently(direct, &with(frame(&[], &tcp(CLIENT, VIP, SYN)), 12, &[8, 6]));
        passes_silently(direct, &with(frame(&[], &tcp(CLIENT, VIP, SYN)), 12, &[0, 60]));
        passes(direct, &with(frame(&[], &tcp(CLIENT, VIP, SYN)), 0, &[0xff; 6]), Reason::NotOurs);
        passes(direct, &with(frame(&[], &tcp(CLIENT, VIP, SYN)), 0, &mac(NEAR)), Reason::NotOurs);
        // A ping, and a protocol of its own.
        passes(direct, &frame(&[], &ip(CLIENT.0, VIP.0, 1, &[8, 0, 0, 0, 0, 1, 0, 1])), Reason::Protocol);
        passes(direct, &frame(&[], &ip(CLIENT6.0, VIP6.0, 58, &[128, 0, 0, 0, 0, 1, 0, 1])), Reason::Protocol);
        passes(direct, &frame(&[], &ip(CLIENT.0, VIP.0, 132, &[0; 20])), Reason::Protocol);
        passes(direct, &frame(&[], &ip(CLIENT6.0, VIP6.0, 132, &[0; 20])), Reason::Protocol);
        passes_silently(direct, &frame(&[], &ip(CLIENT.0, "192.0.2.2", 132, &[0; 20])));
        assert_eq!(direct.counted_of_service(0).unwrap(), SlotCounters::default());
    });
}

#[test]
fn what_is_in_doubt_passes() {
    director(|direct| {
        let four = frame(&[], &tcp(CLIENT, VIP, SYN));
        let six = frame(&[], &tcp(CLIENT6, VIP6, SYN));
        // First, later and last fragments; do-not-fragment alone is none.
        for fragment in [[0x20, 0], [0x20, 100], [0, 100]] {
            passes(direct, &with(four.clone(), 20, &fragment), Reason::Fragment);
        }
        for (number, reason) in [
            (44, Reason::Fragment),
            (0, Reason::Options),
            (43, Reason::Options),
            (60, Reason::Options),
            (51, Reason::Options),
        ] {
            passes(direct, &with(six.clone(), 20, &[number]), reason);
        }
        let mut options = tcp(CLIENT, VIP, SYN);
        options.splice(20..20, [1, 1, 1, 0]);
        options[0] = 0x46;
        options[3] += 4;
        passes(direct, &frame(&[], &options), Reason::Options);
        let mut extension = tcp(CLIENT6, VIP6, SYN);
        extension.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
        extension[6] = 0;
        extension[5] += 8;
        passes(direct, &frame(&[], &extension), Reason::Options);
        for (at, bytes) in [
            (14, &[0x44][..]),     // a header of 16 bytes
            (14, &[0x65]),         // another version
            (16, &[0, 19]),        // shorter than its header
            (16, &[0xff, 0xff]),   // longer than the frame
            (16, &[0, 39]),        // half a TCP header
            (26, &[192, 0, 2, 1]), // to itself
            (34, &[0, 0]),         // from port 0
            (46, &[0x40]),         // a TCP header of 16 bytes
            (46, &[0xf0]),         // one that is longer than the packet
            (47, &[SYN | FIN]),
            (47, &[SYN | RST]),
        ] {
            passes(direct, &with(four.clone(), at, bytes), Reason::Malformed);
        }
        for (at, bytes) in [(14, &[0x40][..]), (18, &[0xff, 0xff]), (18, &[0, 0]), (18, &[0, 19])] {
            passes(direct, &with(six.clone(), at, bytes), Reason::Malformed);
        }
        let datagram = frame(&[], &udp(CLIENT, DNS));
        for length in [0, 7, 14, 0xffff_u16] {
            passes(direct, &with(datagram.clone(), 38, &length.to_be_bytes()), Reason::Malformed);
        }
        passes(direct, &with(frame(&[], &tcp(CLIENT, (ANY.0, 1), SYN)), 36, &[0, 0]), Reason::Malformed);
    });
}

#[test]
fn headers_cut_short_pass_at_every_length() {
    director(|direct| {
        let vlan = (0x8100, 5);
        for (tags, packet) in [
            (&[][..], tcp(CLIENT, VIP, SYN)),
            (&[], tcp(CLIENT6, VIP6, SYN)),
            (&[], udp(CLIENT, DNS)),
            (&[vlan], tcp(CLIENT, VIP, SYN)),
            (&[vlan, vlan], tcp(CLIENT6, VIP6, SYN)),
            (&[], error("198.51.100.1", VIP.0, (3, 4), &tcp(VIP, CLIENT, ACK)[..28])),
            (&[], error("2001:db8:9::1", VIP6.0, (2, 0), &tcp(VIP6, CLIENT6, ACK)[..48])),
        ] {
            let whole = frame(tags, &packet);
            let is_error = packet[9] == 1 || packet[6] == 58;
            for length in 14..whole.len() {
                let cut = &whole[..length];
                let (verdict, after) = direct.run(cut).unwrap();
                assert_eq!((verdict, &after[..]), (XdpAction::Pass, cut), "{length} of {} bytes", whole.len());
            }
            assert_eq!(direct.run(&whole).unwrap().0, XdpAction::Send, "{is_error} {tags:?}");
        }
    });
}

#[test]
fn tags_become_those_of_the_server() {
    let q = |number: u16| (0x8100_u16, number);
    director(|direct| {
        let packet = tcp(CLIENT, VIP, SYN);
        let incoming = [vec![], vec![q(10)], vec![(0x88a8, 20), q(30)]];
        let outgoing = [vec![], vec![q(40)], vec![(0x88a8, 50), q(60)]];
        for tags in &incoming {
            for out in &outgoing {
                let mut to = server(NEAR, 0, 1);
                to.tags = out.len() as u16;
                for (at, (protocol, number)) in out.iter().enumerate() {
                    to.protocols[at] = protocol.to_be_bytes();
                    to.numbers[at] = *number;
                }
                direct.set_server(NEAR, &to).unwrap();
                let after = direct.run(&frame(tags, &packet)).unwrap();
                assert_eq!(after, (XdpAction::Send, to_server(&frame(out, &packet), NEAR, 1)), "{tags:?} {out:?}");
            }
        }
        // The priority of the outer tag goes on.
        let mut to = server(NEAR, 0, 1);
        (to.tags, to.protocols[0], to.numbers[0]) = (1, [0x81, 0], 40);
        direct.set_server(NEAR, &to).unwrap();
        let after = direct.run(&frame(&[q(0xb00a)], &packet)).unwrap();
        assert_eq!(after, (XdpAction::Send, to_server(&frame(&[q(0xb028)], &packet), NEAR, 1)));
        passes(direct, &frame(&[q(1), q(2), q(3)], &packet), Reason::Tags);
        // Nothing of a tag is there, or nothing after it.
        passes(direct, &frame(&[q(1)], &packet)[..16], Reason::Malformed);
    });
}

#[test]
fn errors_go_to_the_server_of_the_connection() {
    director(|direct| {
        // The connection began when the table said otherwise.
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, SYN)), NEAR);
        sends(direct, &frame(&[], &tcp(CLIENT6, VIP6, SYN)), SIX);
        sends(direct, &frame(&[], &udp(CLIENT, DNS)), UDPS);
        direct.set_table(0, &[FAR as u16; TABLE]).unwrap();
        let before = direct.counted_of_server(NEAR).unwrap().connections;
        for kind in [(3, 4), (3, 1), (11, 0), (12, 0)] {
            sends(direct, &frame(&[], &error("198.51.100.1", VIP.0, kind, &tcp(VIP, CLIENT, ACK)[..28])), NEAR);
        }
        sends(direct, &frame(&[], &error("198.51.100.1", DNS.0, (3, 3), &udp(DNS, CLIENT)[..28])), UDPS);
        for kind in [(1, 0), (2, 0), (3, 0), (4, 1)] {
            sends(direct, &frame(&[], &error("2001:db8:9::1", VIP6.0, kind, &tcp(VIP6, CLIENT6, ACK))), SIX);
        }
        assert_eq!(direct.reason(Reason::Errors).unwrap(), 9);
        assert_eq!(direct.counted_of_server(NEAR).unwrap().connections, before, "an error begins no connection");
        // Of a connection that is not remembered, by the table; and it is not remembered afterwards.
        let other = (CLIENT.0, 50_000);
        let packet = frame(&[], &error("198.51.100.1", VIP.0, (3, 4), &tcp(VIP, other, ACK)));
        assert_eq!(direct.run(&packet).unwrap(), (XdpAction::Redirect, to_server(&packet, FAR, 7)));
        assert_eq!(direct.flow(&flow(other, 0, 80)).unwrap(), None);
        // Redirects and echoes; quoting what no server sent from this address; quoting a later fragment, or options.
        let quoted = tcp(VIP, CLIENT, ACK);
        let about = |kind, quoted: &[u8]| frame(&[], &error("198.51.100.1", VIP.0, kind, quoted));
        passes(direct, &about((5, 1), &quoted), Reason::Protocol);
        passes(direct, &about((0, 0), &quoted), Reason::Protocol);
        passes(direct, &about((3, 4), &tcp(("192.0.2.77", 80), CLIENT, ACK)), Reason::Protocol);
        passes(direct, &about((3, 4), &with(quoted.clone(), 6, &[0, 100])), Reason::Protocol);
        passes(direct, &about((3, 4), &with(quoted.clone(), 0, &[0x46])), Reason::Protocol);
        passes(direct, &about((3, 4), &with(quoted.clone(), 9, &[132])), Reason::Protocol);
        passes(direct, &about((3, 4), &tcp((VIP.0, 81), CLIENT, ACK)), Reason::NoService);
        let six = tcp(VIP6, CLIENT6, ACK);
        let about = |kind, quoted: &[u8]| frame(&[], &error("2001:db8:9::1", VIP6.0, kind, quoted));
        passes(direct, &about((5, 0), &six), Reason::Protocol);
        passes(direct, &about((135, 0), &six), Reason::Protocol);
        passes(direct, &about((2, 0), &with(six.clone(), 6, &[44])), Reason::Protocol);
        passes(direct, &about((2, 0), &tcp(("2001:db8::77", 443), CLIENT6, ACK)), Reason::Protocol);
    });
}

#[test]
fn a_connection_stays_where_it_is() {
    director(|direct| {
        let syn = frame(&[], &tcp(CLIENT, VIP, SYN));
        let ack = frame(&[], &tcp(CLIENT, VIP, ACK));
        sends(direct, &syn, NEAR);
        direct.set_table(0, &[FAR as u16; TABLE]).unwrap();
        sends(direct, &ack, NEAR);
        sends(direct, &syn, NEAR); // sent again
        let mut draining = server(NEAR, 0, 1);
        draining.weight = 0;
        direct.set_server(NEAR, &draining).unwrap();
        sends(direct, &ack, NEAR);
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, FIN | ACK)), NEAR);
        sends(direct, &ack, NEAR);
        // After its end, the same ports begin another one.
        assert_eq!(direct.run(&syn).unwrap(), (XdpAction::Redirect, to_server(&syn, FAR, 7)));
        assert_eq!(direct.run(&ack).unwrap().0, XdpAction::Redirect);
        assert_eq!(direct.flow(&flow(CLIENT, 0, 80)).unwrap().unwrap().server, FAR);
        // A stray RST is given on, and not remembered.
        let other = (CLIENT.0, 50_001);
        assert_eq!(direct.run(&frame(&[], &tcp(other, VIP, RST))).unwrap().0, XdpAction::Redirect);
        assert_eq!(direct.flow(&flow(other, 0, 80)).unwrap(), None);
        // One whose beginning was not seen is.
        assert_eq!(direct.run(&frame(&[], &tcp(other, VIP, ACK))).unwrap().0, XdpAction::Redirect);
        assert_eq!(direct.flow(&flow(other, 0, 80)).unwrap().unwrap().server, FAR);
    });
}

#[test]
fn connections_of_a_removed_server_are_given_to_another() {
    director(|direct| {
        let ack = frame(&[], &tcp(CLIENT, VIP, ACK));
        sends(direct, &ack, NEAR);
        direct.set_table(0, &[FAR as u16; TABLE]).unwrap();
        direct.set_server(NEAR, &ServerSlot::default()).unwrap();
        assert_eq!(direct.run(&ack).unwrap(), (XdpAction::Redirect, to_server(&ack, FAR, 7)));
        assert_eq!(direct.reason(Reason::Gone).unwrap(), 1);
        // The slot is used again: that is another server.
        direct.set_server(NEAR, &ServerSlot { generation: 2, ..server(NEAR, 0, 1) }).unwrap();
        assert_eq!(direct.run(&ack).unwrap().0, XdpAction::Redirect);
        // Nobody takes new ones; or the table is older than the slot.
        direct.set_table(0, &[NOBODY; TABLE]).unwrap();
        passes(direct, &frame(&[], &tcp((CLIENT.0, 1), VIP, SYN)), Reason::NoServer);
        direct.set_table(0, &[SIX as u16; TABLE]).unwrap();
        passes(direct, &frame(&[], &tcp((CLIENT.0, 1), VIP, SYN)), Reason::NoServer);
        direct.set_table(0, &[4095; TABLE]).unwrap();
        passes(direct, &frame(&[], &tcp((CLIENT.0, 1), VIP, SYN)), Reason::NoServer);
        assert_eq!(direct.run(&ack).unwrap().0, XdpAction::Redirect, "it is remembered");
    });
}

#[test]
fn a_server_without_a_way_gets_nothing() {
    director(|direct| {
        let ack = frame(&[], &tcp(CLIENT, VIP, ACK));
        direct.set_server(NEAR, &ServerSlot { interface: 0, ..server(NEAR, 0, 1) }).unwrap();
        assert_eq!(direct.run(&ack).unwrap(), (XdpAction::Drop, ack.clone()));
        assert_eq!(direct.reason(Reason::NoMac).unwrap(), 1);
        direct.set_server(NEAR, &ServerSlot { mtu: 44, ..server(NEAR, 0, 1) }).unwrap();
        assert_eq!(direct.run(&ack).unwrap(), (XdpAction::Drop, ack.clone()));
        assert_eq!(direct.reason(Reason::TooBig).unwrap(), 1);
        direct.set_server(NEAR, &ServerSlot { mtu: 45, ..server(NEAR, 0, 1) }).unwrap();
        sends(direct, &ack, NEAR);
    });
}

#[test]
fn a_client_sticks() {
    director(|direct| {
        let mut sticky = direct.service(0).unwrap();
        sticky.flags = STICK;
        sticky.mask = [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        direct.set_service(0, &sticky).unwrap();
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, SYN)), NEAR);
        direct.set_table(0, &[FAR as u16; TABLE]).unwrap();
        sends(direct, &frame(&[], &tcp(("198.51.100.200", 7), VIP, SYN)), NEAR); // the same network
        let other = frame(&[], &tcp(("198.51.101.7", 7), VIP, SYN));
        assert_eq!(direct.run(&other).unwrap().0, XdpAction::Redirect);
        // One that drains gets nothing new, also of clients that stick to it.
        direct.set_server(NEAR, &ServerSlot { weight: 0, ..server(NEAR, 0, 1) }).unwrap();
        assert_eq!(direct.run(&frame(&[], &tcp((CLIENT.0, 8), VIP, SYN))).unwrap().0, XdpAction::Redirect);
        sends(direct, &frame(&[], &tcp(CLIENT, VIP, ACK)), NEAR);
    });
}

/// As when another processor reads the clock and writes between the reading and the look-up of this one.
#[test]
fn what_was_used_after_the_clock_was_read_is_not_old() {
    let used_later = |direct: &mut Direct, key: FlowKey| {
        let entry = direct.flow(&key).unwrap().unwrap();
        // By more than the test takes.
        direct.flows.insert(key, Flow { seen: entry.seen + 3600, ..entry }, 0).unwrap();
    };
    director(|direct| {
        let (syn, datagram) = (frame(&[], &tcp(CLIENT, VIP, SYN)), frame(&[], &udp(CLIENT, DNS)));
        let sticky = ServiceSlot { flags: STICK, ..direct.service(0).unwrap() };
        direct.set_service(0, &sticky).unwrap();
        sends(direct, &syn, NEAR);
        sends(direct, &datagram, UDPS);
        direct.set_table(0, &[FAR as u16; TABLE]).unwrap();
        direct.set_table(4, &[NOBODY; TABLE]).unwrap();
        for key in [flow(CLIENT, 0, 80), flow(CLIENT, 2, 53), flow((CLIENT.0, 0), 0, 0)] {
            used_later(direct, key);
        }
        sends(direct, &syn, NEAR); // sent again
        sends(direct, &datagram, UDPS);
        used_later(direct, flow((CLIENT.0, 0), 0, 0));
        sends(direct, &frame(&[], &tcp((CLIENT.0, 8), VIP, SYN)), NEAR); // by stickiness
    });
}

#[test]
fn single_packets_are_not_remembered() {
    director(|direct| {
        let mut single = direct.service(2).unwrap();
        single.flags = ONE_PACKET;
        direct.set_service(2, &single).unwrap();
        sends(direct, &frame(&[], &udp(CLIENT, DNS)), UDPS);
        assert_eq!(direct.flow(&flow(CLIENT, 2, 53)).unwrap(), None);
        assert_eq!(direct.counted_of_server(UDPS).unwrap().connections, 1);
    });
}

#[test]
fn every_client_has_a_share_and_directors_agree() {
    let spread = |direct: &mut Direct| -> Vec<XdpAction> {
        let mut table = [NEAR as u16; TABLE];
        table.iter_mut().skip(1).step_by(2).for_each(|entry| *entry = FAR as u16);
        direct.set_table(0, &table).unwrap();
        let packet = |port| frame(&[], &tcp((CLIENT.0, port), VIP, SYN));
        (1000..3000).map(|port| direct.run(&packet(port)).unwrap().0).collect()
    };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    director(|direct| one = spread(direct));
    director(|direct| other = spread(direct));
    assert_eq!(one, other);
    let near = one.iter().filter(|verdict| **verdict == XdpAction::Send).count();
    assert!((850..1150).contains(&near) || one.is_empty(), "{near} of 2000");
}

/// Packets that nobody thought of: what leaves is what came with other MAC addresses, and what does not leave is as it came.
#[test]
fn no_packet_leaves_the_program_in_doubt() {
    let vlan = (0x8100, 5);
    let seeds = [
        frame(&[], &tcp(CLIENT, VIP, SYN)),
        frame(&[vlan], &tcp(CLIENT, VIP, ACK)),
        frame(&[vlan, vlan], &udp(CLIENT, DNS)),
        frame(&[], &tcp(CLIENT6, VIP6, SYN)),
        frame(&[], &error("198.51.100.1", VIP.0, (3, 4), &tcp(VIP, CLIENT, ACK))),
        frame(&[], &error("2001:db8:9::1", VIP6.0, (2, 0), &tcp(VIP6, CLIENT6, ACK))),
    ];
    const MUTATIONS: u64 = 30_000;
    let mut state: u64 = 0x5eed;
    let mut draw = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    director(|direct| {
        let mut left = 0;
        for number in 0..MUTATIONS {
            let mut packet = seeds[draw(seeds.len())].clone();
            for _ in 0..1 + draw(4) {
                let at = draw(packet.len());
                packet[at] = draw(256) as u8;
            }
            if draw(4) == 0 {
                packet.truncate(14 + draw(packet.len() - 13));
            }
            let (verdict, after) = direct.run(&packet).unwrap();
            match verdict {
                XdpAction::Pass | XdpAction::Drop => assert_eq!(after, packet, "{number}"),
                XdpAction::Send | XdpAction::Redirect => {
                    left += 1;
                    // The servers have no tags: those of the packet are gone.
                    let tags = (packet.len() - after.len()) / 4;
                    assert!(tags <= 2 && packet.len() - after.len() == 4 * tags, "{number}");
                    assert_eq!(after[12..], packet[12 + 4 * tags..], "{number}");
                    assert_eq!(packet[..6], OURS, "{number}");
                    assert!((0..5).any(|slot| after[..6] == mac(slot)), "{number}");
                }
                XdpAction::Wrong(_) => panic!("{number}: {verdict:?} for {packet:x?}"),
            }
        }
        assert!((1000..MUTATIONS - 1000).contains(&left), "{left}");
    });
}

#[test]
fn it_is_found_again_and_only_by_its_own_version_and_namespace() {
    apart(|mounted| {
        let folder = mounted.join("baton-direct/1");
        assert!(Direct::find(&folder).unwrap().is_none());
        let mut direct = Direct::make(&folder, 1000).unwrap();
        let either = [XdpMode::Native, XdpMode::Generic];
        assert_eq!(direct.attach(1, "lo", &either).unwrap(), XdpMode::Generic, "lo has nothing in its driver");
        assert_eq!(direct.attach(1, "lo", &either).unwrap(), XdpMode::Generic);
        service(&mut direct, 9, TCP, VIP, 0);
        drop(direct);
        let mut later = Direct::make(&folder, 5).unwrap();
        assert_eq!(later.attached().unwrap(), [(1, XdpMode::Generic)]);
        assert_eq!(later.service(9).unwrap().place.socket_address(), address(VIP));
        assert_eq!(later.places().unwrap().len(), 2);
        assert!(later.renew().unwrap().is_empty());
        // Somebody else's program.
        let made = Command::new("ip").args(["link", "add", "left", "type", "veth", "peer", "name", "right"]).status();
        assert!(made.expect("the package iproute2 is installed").success());
        let left = Routing::open().unwrap().link("left").unwrap().index;
        later.attach(left, "left", &[XdpMode::Native]).unwrap();
        let beside = mounted.join("baton-direct/2");
        let mut other = Direct::make(&beside, 10).unwrap();
        let error = other.attach(left, "left", &[XdpMode::Native]).unwrap_err().to_string();
        assert!(error.contains("another XDP program") && error.contains("ip link show dev left"), "{error}");
        other.remove().unwrap();
        // Another version.
        let write = |layout: Layout| {
            let map = Map::Array(MapData::from_pin(folder.join("layout")).unwrap());
            Array::<MapData, Layout>::try_from(map).unwrap().set(0, layout, 0).unwrap();
        };
        let own = Layout { version: VERSION, zero: 0, namespace: namespace() };
        write(Layout { version: 77, ..own });
        let error = Direct::find(&folder).unwrap_err().to_string();
        assert!(error.contains("version 77") && error.contains("on-exit flush"), "{error}");
        assert!(Direct::make(&folder, 5).is_err());
        // A network namespace that had the same number, and one that was never finished.
        write(Layout { namespace: own.namespace + 1, ..own });
        assert!(Direct::find(&folder).unwrap().is_none());
        write(Layout::default());
        assert!(Direct::find(&folder).unwrap().is_none());
        let fresh = Direct::make(&folder, 5).unwrap();
        assert_eq!((fresh.attached().unwrap(), fresh.places().unwrap()), (vec![], vec![]));
        fresh.remove().unwrap();
        assert!(!folder.exists());
    });
}

#[test]
fn without_a_bpf_file_system_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let error = Direct::make(&folder.path().join("baton-direct/1"), 10).unwrap_err().to_string();
    assert!(error.contains("mount -t bpf"), "{error}");
}
