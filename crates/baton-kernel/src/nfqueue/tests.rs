use std::net::{TcpListener, TcpStream};
use std::process::Command;

use super::*;
use crate::netns;

fn apart(work: impl FnOnce() + Send) {
    if let Err(error) = netns::in_new(work) {
        eprintln!("SKIPPED: no right to a network namespace ({error})");
    }
}

/// Sends first packets to this port to the queue.
#[track_caller]
fn rule(queue: &PacketQueue, port: u16) {
    for program in ["iptables", "ip6tables"] {
        let words = format!(
            "-t mangle -A INPUT -p tcp --dport {port} --syn -j NFQUEUE --queue-num {} --queue-bypass",
            queue.number()
        );
        let status =
            Command::new(program).args(words.split(' ')).status().expect("scripts/setup test installs iptables");
        assert!(status.success(), "{program} {words}");
    }
}

/// Waits until so many packets have come.
#[track_caller]
fn packets(queue: &mut PacketQueue, count: usize) -> Vec<Packet> {
    let mut found = Vec::new();
    let end = Instant::now() + Duration::from_secs(20);
    while found.len() < count {
        assert!(Instant::now() < end, "only {} of {count} packets", found.len());
        queue.wait(None, Some(Duration::from_millis(100))).unwrap();
        found.extend(queue.packets().unwrap());
    }
    found
}

/// A listener, a queue in front of it, and a thread that connects to it.
fn client(listener: &TcpListener) -> std::thread::JoinHandle<io::Result<TcpStream>> {
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || TcpStream::connect(address))
}

#[test]
fn packets_wait_for_their_verdict() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        apart(|| {
            let listener = TcpListener::bind(address).unwrap();
            let mut queue = PacketQueue::open(16).unwrap();
            assert_eq!(open_queues().unwrap(), [Open { number: queue.number(), waiting: 0 }]);
            rule(&queue, listener.local_addr().unwrap().port());
            let client = client(&listener);
            let held = packets(&mut queue, 1);
            let syn = Syn::read(&held[0].bytes).unwrap();
            assert_eq!(syn.to, listener.local_addr().unwrap());
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            listener.set_nonblocking(false).unwrap();
            queue.decide(held[0].id, QueueVerdict::Accept).unwrap();
            assert_eq!(listener.accept().unwrap().1, syn.from);
            client.join().unwrap().unwrap();
        });
    }
}

#[test]
fn many_are_let_go_in_their_order() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut queue = PacketQueue::open(16).unwrap();
        rule(&queue, listener.local_addr().unwrap().port());
        let clients: Vec<_> = (0..8).map(|_| client(&listener)).collect();
        let held = packets(&mut queue, 8);
        queue.decide(held[2].id, QueueVerdict::Drop).unwrap();
        queue.decide_up_to(held[7].id, QueueVerdict::Accept).unwrap();
        let mut came: Vec<_> = (0..7).map(|_| listener.accept().unwrap().1).collect();
        let mut expect: Vec<_> = held.iter().map(|packet| Syn::read(&packet.bytes).unwrap().from).collect();
        let dropped = expect.remove(2);
        assert_eq!(came, expect);
        // Its client tries again, and is held again.
        let again = packets(&mut queue, 1);
        assert_eq!(Syn::read(&again[0].bytes).unwrap().from, dropped);
        queue.decide(again[0].id, QueueVerdict::Accept).unwrap();
        came.push(listener.accept().unwrap().1);
        assert!(clients.into_iter().all(|client| client.join().unwrap().is_ok()));
    });
}

#[test]
fn above_its_length_packets_pass() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut queue = PacketQueue::open(2).unwrap();
        rule(&queue, listener.local_addr().unwrap().port());
        let held: Vec<_> = (0..2).map(|_| client(&listener)).collect();
        let packets = packets(&mut queue, 2);
        let passes = client(&listener);
        let expect = listener.accept().unwrap().1;
        assert!(packets.iter().all(|packet| Syn::read(&packet.bytes).unwrap().from != expect));
        passes.join().unwrap().unwrap();
        assert_eq!(quiet(Duration::ZERO), [Open { number: queue.number(), waiting: 2 }]);
        queue.decide_up_to(packets[1].id, QueueVerdict::Accept).unwrap();
        assert_eq!(quiet(Duration::ZERO), []);
        assert!(held.into_iter().all(|client| client.join().unwrap().is_ok()));
    });
}

#[test]
fn without_a_queue_packets_pass() {
    apart(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = PacketQueue::open(16).unwrap();
        rule(&queue, listener.local_addr().unwrap().port());
        drop(queue);
        client(&listener).join().unwrap().unwrap();
    });
}

#[test]
fn two_queues_have_two_numbers() {
    apart(|| {
        let (one, other) = (PacketQueue::open(16).unwrap(), PacketQueue::open(16).unwrap());
        assert_ne!(one.number(), other.number());
        let mut used: Vec<_> = open_queues().unwrap().iter().map(|queue| queue.number).collect();
        used.sort_unstable();
        assert_eq!(used, [one.number(), other.number()]);
    });
}

#[test]
fn a_number_that_somebody_takes_at_the_same_time_is_passed_over() {
    apart(|| {
        let mut socket = Socket::open(Protocol::Netfilter).unwrap();
        socket.ask(&bind(*NUMBERS.start())).unwrap();
        let mut other = Socket::open(Protocol::Netfilter).unwrap();
        let fault = other.ask(&bind(*NUMBERS.start())).unwrap_err();
        assert!(fault.errno() == Some(Errno::EBUSY) || fault.is_no_right(), "{fault}");
        assert_ne!(PacketQueue::open(16).unwrap().number(), *NUMBERS.start());
    });
}
