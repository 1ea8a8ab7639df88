//! TCP sessions go to the new process in the middle, and no byte is lost, doubled or out of order.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use baton_control::handover::message::{Message, Staying, Take};
use baton_control::handover::record::FORMAT;

use crate::peers::Taker;
use crate::support::{PATIENCE, Proxy, free_address, frontend_counter, until};

/// Takeovers one after the other.
const TAKEOVERS: usize = 5;
/// Threads of clients, and sessions of each.
const THREADS: usize = 5;
const SESSIONS: usize = 20;
/// Bytes of a bulk stream that are numbered.
const BLOCK: usize = 8;

/// A server that sends back what it receives, to the end. It ends with the test.
pub fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut some = [0; 65536];
                while let Ok(count @ 1..) = stream.read(&mut some) {
                    if stream.write_all(&some[..count]).is_err() {
                        return;
                    }
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn config(front: SocketAddr, server: SocketAddr, more: &str) -> String {
    format!(
        "global\n nbthread 2\n maxconn 2000\n log stderr format raw local0\ndefaults\n mode tcp\n log global\n option tcplog\n \
         timeout connect 5s\n timeout client 60s\n timeout server 60s\n{more}frontend front\n bind {front}\n default_backend back\n\
         backend back\n server s0 {server}\n"
    )
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Sends a numbered message, and gets it back; how many bytes.
#[track_caller]
pub fn exchange(stream: &mut TcpStream, number: usize) -> u64 {
    let message = format!("message {number:09} {}\n", "x".repeat(number * 37 % 3000));
    stream.write_all(message.as_bytes()).expect("it is open");
    let mut reply = vec![0; message.len()];
    stream.read_exact(&mut reply).expect("the same comes back");
    assert!(reply == message.as_bytes(), "{}", String::from_utf8_lossy(&reply));
    message.len() as u64
}

/// Two numbered streams, one each way, as fast as they go; how many bytes.
pub fn bulk(stream: TcpStream, is_over: Arc<AtomicBool>) -> JoinHandle<u64> {
    let mut sending = stream.try_clone().expect("a descriptor");
    let sender = std::thread::spawn(move || {
        let mut number = 0_u64;
        while !is_over.load(Ordering::Relaxed) {
            let block: Vec<u8> = (0..4096).flat_map(|at| (number + at).to_be_bytes()).collect();
            sending.write_all(&block).expect("it is open");
            number += 4096;
        }
        sending.shutdown(Shutdown::Write).expect("it is open");
        number
    });
    std::thread::spawn(move || {
        let (mut stream, mut number, mut held) = (stream, 0_u64, Vec::new());
        let mut some = vec![0; 65536];
        loop {
            let count = stream.read(&mut some).expect("it goes on");
            if count == 0 {
                break;
            }
            held.extend_from_slice(&some[..count]);
            let whole = held.len() / BLOCK * BLOCK;
            for block in held[..whole].chunks(BLOCK) {
                assert_eq!(block, number.to_be_bytes(), "in order");
                number += 1;
            }
            held.drain(..whole);
        }
        assert_eq!((sender.join().expect("it could send"), held.len()), (number, 0), "all of it");
        number * BLOCK as u64
    })
}

/// Replaces the process by another one, so many times; the old ones, each of which ended as soon as its connections had moved.
pub fn replaced(now: &mut Proxy, times: usize) -> Vec<Proxy> {
    let replace = |_| {
        let next = now.replace(&[]);
        let old = std::mem::replace(now, next);
        until("the old process has ended", || old.has_ended());
        old
    };
    (0..times).map(replace).collect()
}

/// Waits until so many connections have come to their cores, and each has its place at the only server.
pub fn all_have_their_place(now: &Proxy, all: usize) {
    until("each has its place at the server", || {
        let status = now.status();
        let open = [status.connections as i64, status.backends[0].open, status.backends[0].servers[0].open];
        open == [all as i64; 3]
    });
}

#[test]
fn sessions_go_with_every_takeover_and_no_byte_is_lost() {
    let front = free_address();
    let text = config(front, echo(), "");
    let mut now = Proxy::start(&text);
    let mut idle = connect(front);
    let mut bytes = exchange(&mut idle, 1);
    let mut half_closed = connect(front);
    bytes += exchange(&mut half_closed, 2);
    let is_over = Arc::new(AtomicBool::new(false));
    let numbered = (0..THREADS).map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let mut streams: Vec<TcpStream> = (0..SESSIONS).map(|_| connect(front)).collect();
            let (mut bytes, mut number) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    number += 1;
                    bytes += exchange(stream, number);
                }
            }
            bytes
        })
    });
    let numbered: Vec<_> = numbered.collect();
    let bulks = [bulk(connect(front), is_over.clone()), bulk(connect(front), is_over.clone())];
    let all = THREADS * SESSIONS + 2 + bulks.len();
    until("all are there", || now.status().connections == all);
    let before = replaced(&mut now, TAKEOVERS);
    all_have_their_place(&now, all);
    is_over.store(true, Ordering::Relaxed);
    bytes += numbered.into_iter().map(|thread| thread.join().expect("no session was cut off")).sum::<u64>();
    bytes += bulks.into_iter().map(|thread| thread.join().expect("no session was cut off")).sum::<u64>();
    half_closed.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(half_closed.read(&mut [0; 10]).expect("the end"), 0);
    drop((half_closed, idle));
    until("all have ended", || now.status().connections == 0);
    let counted = |name: &str| frontend_counter(&now.status(), "front", name);
    assert_eq!(["bin", "bout", "stot", "conn_tot"].map(counted), [bytes, bytes, all as u64, all as u64]);
    let server = &now.status().backends[0].servers[0];
    assert_eq!((server.counters["lbtot"], server.open), (all as u64, 0), "each was chosen once");
    until("all are logged", || now.said().matches(" front back/s0 ").count() == all);
    for old in before {
        let (status, said) = old.wait();
        assert!(status.success(), "{said}");
        assert!(!said.contains(" front back/s0 "), "the last process has the lines: {said}");
    }
}

#[test]
fn a_half_closed_session_goes_on_and_its_line_is_of_the_whole() {
    let front = free_address();
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let text = config(front, server.local_addr().expect("bound"), " timeout client-fin 50s\n");
    let old = Proxy::start(&text);
    let mut client = connect(front);
    client.write_all(b"all of it").expect("it is open");
    client.shutdown(Shutdown::Write).expect("it is open");
    let (mut accepted, _) = server.accept().expect("a session");
    let mut received = String::new();
    accepted.read_to_string(&mut received).expect("it ends");
    accepted.write_all(b"first ").expect("it is open");
    client.read_exact(&mut [0; 6]).expect("it is passed on");
    let new = old.replace(&[]);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    accepted.write_all(b"second").expect("it is open");
    drop(accepted);
    let mut rest = String::new();
    client.read_to_string(&mut rest).expect("it ends in order");
    assert_eq!((&*received, &*rest), ("all of it", "second"));
    // Bytes to the client, and how it ended.
    until("it is logged", || {
        new.said().lines().any(|line| line.contains(" front back/s0 ") && line.contains(" 12 -- "))
    });
    assert_eq!(frontend_counter(&new.status(), "front", "bin"), 9);
}

#[test]
fn the_place_at_the_server_goes_too() {
    let front = free_address();
    let text = config(front, echo(), "").replace(" server s0 ", " server s1 127.0.0.1:1 weight 0\n server s0 ");
    let text = text.trim_end().to_owned() + " maxconn 2\n";
    let old = Proxy::start(&text);
    let mut streams = [connect(front), connect(front)];
    streams.iter_mut().for_each(|stream| _ = exchange(stream, 1));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    let mut third = connect(front);
    third.write_all(b"after them").expect("it is open");
    until("it waits", || new.status().backends[0].queued == 1);
    streams.iter_mut().for_each(|stream| _ = exchange(stream, 2));
    let [first, second] = streams;
    drop(first);
    third.read_exact(&mut [0; 10]).expect("its turn has come");
    assert_eq!(new.status().backends[0].servers.iter().map(|server| server.open_max).max(), Some(2));
    drop(second);
}

#[test]
fn what_the_new_process_does_not_take_goes_on_in_the_old_one() {
    let front = free_address();
    let old = Proxy::start(&config(front, echo(), "").replace(" nbthread 2\n", " nbthread 1\n"));
    let mut streams = [connect(front), connect(front)];
    streams.iter_mut().for_each(|stream| _ = exchange(stream, 1));
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    let offer = taker.hear_offer();
    let known: Vec<_> =
        offer.connections.iter().map(|record| record.tunnel.as_ref().map(|tunnel| &*tunnel.server)).collect();
    assert_eq!(known, [Some("s0"); 2]);
    // What comes meanwhile waits.
    streams[0].write_all(b"in between").expect("it is open");
    let staying = vec![Staying { at: 0, reason: "no-server".into() }];
    taker.say(Message::Take(Take { batch: offer.batch, staying }));
    streams[0].read_exact(&mut [0; 10]).expect("it is passed on");
    exchange(&mut streams[0], 2);
    assert!(
        matches!(taker.hear_no_report(), Message::Give(give) if give.descriptors == 2),
        "both sockets of the other one"
    );
    let status = old.status();
    assert_eq!((status.backends[0].servers[0].open, status.connections_departed), (1, 1));
    assert_eq!(status.connections_staying, [("no-server".to_owned(), 1)].into());
    drop(taker);
    let [mut kept, mut lost] = streams;
    assert_eq!(lost.read(&mut [0; 10]).expect("the end"), 0, "those that were given are lost with it");
    exchange(&mut kept, 3);
    drop(kept);
    assert!(old.wait().0.success());
}
