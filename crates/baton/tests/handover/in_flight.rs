//! Requests in flight go to the new process in the middle, and no byte is lost, doubled or out of order; the line at their end is the one that
//! it would have been without.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use baton_control::handover::kinds::MoveKinds;
use baton_control::handover::message::{Message, Staying, Take};
use baton_control::handover::record::FORMAT;
use nix::sys::signal::Signal;

use crate::peers::Taker;
use crate::support::{Proxy, free_address, frontend_counter, until};
use crate::tunnels::{connect, replaced};

/// Takeovers one after the other.
const TAKEOVERS: usize = 4;
/// Bytes of each body, half of which pass before the takeovers are over, a little at a time.
const TOTAL: u64 = 1 << 20;
/// Bytes of a body that is sent while nobody reads it: more than all buffers take.
const LARGE: u64 = 16 << 20;
/// Clients of each kind.
const CLIENTS: usize = 3;
/// What they ask for; `until-close` alone ends its connection.
const KINDS: [&str; 9] =
    ["length", "chunked", "until-close", "poll", "events", "put-length", "put-chunked", "put-and-get", "put-early"];

/// Bodies that came whole though the response had been sent before them.
static WHOLE: AtomicUsize = AtomicUsize::new(0);

/// Numbered bytes of a body.
pub fn numbered(from: u64, bytes: u64) -> Vec<u8> {
    (from / 8..(from + bytes) / 8).flat_map(u64::to_be_bytes).collect()
}

/// Sends all of a body: its first half a little at a time until it is over.
fn send(total: u64, is_over: &AtomicBool, mut write: impl FnMut(&[u8]) -> std::io::Result<()>) {
    let mut at = 0;
    while at < total {
        let is_slow = !is_over.load(Ordering::Relaxed);
        let next = if is_slow && at < total / 2 { 1024 } else { 32 * 1024 };
        if is_slow {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !is_slow || at < total / 2 {
            let bytes = next.min(total - at);
            if write(&numbered(at, bytes)).is_err() {
                return;
            }
            at += bytes;
        }
    }
}

fn chunk(stream: &mut impl Write, data: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat())
}

/// A whole head, lower case; empty at the end.
pub fn read_head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap_or(0) > 0 {}
    head.to_ascii_lowercase()
}

/// The body behind this head, piece by piece.
fn read_body(stream: &mut impl BufRead, head: &str, mut take: impl FnMut(&[u8])) {
    let mut some = vec![0; 65536];
    if head.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a chunk");
            let size = usize::from_str_radix(line.trim(), 16).expect("a size");
            let mut data = vec![0; size];
            stream.read_exact(&mut data).expect("the chunk");
            take(&data);
            line.clear();
            stream.read_line(&mut line).expect("its end");
            while size == 0 && line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).expect("a trailer");
            }
            if size == 0 {
                return;
            }
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut left = length.map_or(u64::MAX, |length| length.parse().expect("a number"));
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(some.len());
        match stream.read(&mut some[..most]).expect("it goes on") {
            0 if length.is_none() => return,
            0 => panic!("{left} bytes are missing"),
            count => {
                take(&some[..count]);
                left -= count as u64;
            }
        }
    }
}

/// Checks the numbers of a body; at the end it has to be whole.
#[derive(Default)]
struct Numbers(Vec<u8>, u64);

impl Numbers {
    fn take(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
        let whole = self.0.len() / 8 * 8;
        for number in self.0[..whole].chunks(8) {
            assert_eq!(number, (self.1 / 8).to_be_bytes(), "at byte {}", self.1);
            self.1 += 8;
        }
        self.0.drain(..whole);
    }

    #[track_caller]
    fn end(self, total: u64) {
        assert_eq!((self.1, self.0.len()), (total, 0));
    }
}

/// A server of all kinds; what lasts ends when it is over. It ends with the test.
pub fn origin(is_over: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                while respond(&mut reader, stream.try_clone().expect("a descriptor"), &is_over) {}
            });
        }
    });
    address
}

/// Serves a request; whether another one may follow.
fn respond(reader: &mut impl BufRead, mut stream: TcpStream, is_over: &AtomicBool) -> bool {
    let head = read_head(reader);
    let Some(path) = head.split(' ').nth(1) else { return false };
    let begin = |stream: &mut TcpStream, fields: &str| {
        stream.write_all(format!("HTTP/1.1 200 OK\r\nx-kind: {path}\r\n{fields}\r\n").as_bytes())
    };
    let begun = match path {
        "/length" => begin(&mut stream, &format!("content-length: {TOTAL}\r\n")),
        "/large" => begin(&mut stream, &format!("content-length: {LARGE}\r\n")),
        "/until-close" => begin(&mut stream, "connection: close\r\n"),
        "/chunked" | "/events" | "/put-and-get" => begin(&mut stream, "transfer-encoding: chunked\r\n"),
        _ => Ok(()),
    };
    if begun.is_err() {
        return false;
    }
    match path {
        "/length" => send(TOTAL, is_over, |data| stream.write_all(data)),
        "/large" => send(LARGE, &AtomicBool::new(true), |data| stream.write_all(data)),
        "/until-close" => {
            send(TOTAL, is_over, |data| stream.write_all(data));
            let _ = stream.shutdown(std::net::Shutdown::Write);
            return false;
        }
        "/chunked" | "/events" => {
            let total = if path == "/events" { TOTAL / 16 } else { TOTAL };
            send(total, is_over, |data| chunk(&mut stream, data));
            let _ = stream.write_all(b"0\r\nx-sum: 1\r\n\r\n");
        }
        "/put-and-get" => {
            read_body(reader, &head, |data| drop((!data.is_empty()).then(|| chunk(&mut stream, data))));
            let _ = stream.write_all(b"0\r\n\r\n");
        }
        "/put-early" => {
            let _ = begin(&mut stream, "content-length: 2\r\n");
            let _ = stream.write_all(b"ok");
            let mut numbers = Numbers::default();
            read_body(reader, &head, |data| numbers.take(data));
            WHOLE.fetch_add(usize::from(numbers.1 == TOTAL), Ordering::Relaxed);
        }
        "/put-length" | "/put-chunked" => {
            let mut numbers = Numbers::default();
            read_body(reader, &head, |data| numbers.take(data));
            let _ = begin(&mut stream, "content-length: 2\r\n");
            let _ = stream.write_all(if numbers.1 == TOTAL { b"ok" } else { b"no" });
        }
        _ => {
            while path == "/poll" && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = begin(&mut stream, "content-length: 2\r\n");
            let _ = stream.write_all(b"ok");
        }
    }
    true
}

/// Asks for something of this kind and checks what comes.
fn ask(kind: &str, stream: &TcpStream, is_over: &Arc<AtomicBool>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut writing = stream.try_clone().expect("a descriptor");
    let fields = match kind {
        "put-length" | "put-early" => format!("content-length: {TOTAL}\r\n"),
        "put-chunked" | "put-and-get" => "transfer-encoding: chunked\r\n".to_owned(),
        _ => String::new(),
    };
    let method = if fields.is_empty() { "GET" } else { "PUT" };
    writing.write_all(format!("{method} /{kind} HTTP/1.1\r\nhost: x\r\n{fields}\r\n").as_bytes()).expect("it is open");
    let sender = (!fields.is_empty()).then(|| {
        let (is_over, is_chunked) = (is_over.clone(), fields.starts_with('t'));
        std::thread::spawn(move || {
            send(TOTAL, &is_over, |data| match is_chunked {
                true => chunk(&mut writing, data),
                false => writing.write_all(data),
            });
            if is_chunked {
                writing.write_all(b"0\r\n\r\n").expect("it is open");
            }
        })
    });
    let head = read_head(&mut reader);
    assert!(head.starts_with("http/1.1 200 ") && head.contains(&format!("x-kind: /{kind}\r\n")), "{kind}: {head}");
    let (mut numbers, mut text) = (Numbers::default(), Vec::new());
    let is_numbered = matches!(kind, "length" | "chunked" | "until-close" | "events" | "put-and-get" | "large");
    read_body(&mut reader, &head, |data| match is_numbered {
        true => numbers.take(data),
        false => text.extend_from_slice(data),
    });
    match kind {
        "large" => numbers.end(LARGE),
        "events" => numbers.end(TOTAL / 16),
        _ if is_numbered => numbers.end(TOTAL),
        _ => assert_eq!(text, b"ok", "{kind}"),
    }
    sender.into_iter().for_each(|sender| sender.join().expect("all was sent"));
}

/// A client that asks once.
fn client_once(front: SocketAddr, kind: &'static str, is_over: &Arc<AtomicBool>) -> JoinHandle<TcpStream> {
    let is_over = is_over.clone();
    std::thread::spawn(move || {
        let stream = connect(front);
        ask(kind, &stream, &is_over);
        stream
    })
}

/// A client of this kind, which then uses its connection again.
fn client(front: SocketAddr, kind: &'static str, is_over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (is_over, first) = (is_over.clone(), client_once(front, kind, is_over));
    std::thread::spawn(move || {
        let stream = first.join().expect("it is served");
        if kind != "until-close" {
            ask("again", &stream, &is_over);
        }
    })
}

fn config(front: SocketAddr, server: SocketAddr) -> String {
    format!(
        "global\n nbthread 2\n maxconn 2000\n tune.handover.patience 0\n log stderr format raw local0\ndefaults\n mode http\n log global\n \
         log-format \"line %HM %HU %ST %U %B %tsc %s %rc %sq/%bq %hs\"\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         frontend front\n bind {front}\n default_backend back\nbackend back\n server s0 {server}\n"
    )
}

/// The lines of the log, in order of their text.
fn lines(said: &str) -> Vec<&str> {
    let mut lines: Vec<_> = said.lines().filter(|line| line.starts_with("line ")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn requests_in_flight_go_with_every_takeover_and_no_byte_is_lost() {
    let all = KINDS.len() * CLIENTS;
    let run = |takeovers: usize| {
        let is_over = Arc::new(AtomicBool::new(false));
        WHOLE.store(0, Ordering::Relaxed);
        let front = free_address();
        let mut now = Proxy::start(&config(front, origin(is_over.clone())));
        let clients = || KINDS.iter().map(|kind| client(front, kind, &is_over));
        let clients: Vec<_> = (0..CLIENTS).flat_map(|_| clients()).collect();
        until("all are at the server", || now.status().backends[0].servers[0].open == all as i64);
        let before = replaced(&mut now, takeovers);
        until("all are at the server", || now.status().backends[0].servers[0].open == all as i64);
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("nothing was lost"));
        assert_eq!(WHOLE.load(Ordering::Relaxed), CLIENTS);
        let requests = 2 * all - CLIENTS;
        until("all are logged", || lines(&now.said()).len() == requests);
        until("all are counted", || frontend_counter(&now.status(), "front", "req_tot") == requests as u64);
        let status = now.status();
        assert_eq!(frontend_counter(&status, "front", "conn_tot"), all as u64);
        let server = &status.backends[0].servers[0];
        assert_eq!((server.counters["lbtot"], server.open), (requests as u64, 0), "each went there once");
        for old in before {
            let (status, said) = old.wait();
            assert!(status.success(), "{said}");
            assert_eq!(lines(&said), Vec::<&str>::new(), "the last process has the lines");
        }
        let said = now.said();
        lines(&said).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(TAKEOVERS), run(0), "nothing shows that there were others");
}

#[test]
fn what_a_client_does_not_read_keeps_no_process() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(true)));
    let mut now = Proxy::start(
        &config(front, origin(is_over.clone())).replace(" mode http\n", " mode http\n option splice-auto\n"),
    );
    let mut streams = [connect(front), connect(front)];
    for stream in &mut streams {
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is open");
    }
    until("both are at the server", || now.status().backends[0].servers[0].open == 2);
    let before = replaced(&mut now, 2);
    for stream in streams {
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let (head, mut numbers) = (read_head(&mut reader), Numbers::default());
        read_body(&mut reader, &head, |data| numbers.take(data));
        numbers.end(LARGE);
        ask("again", &stream, &is_over);
    }
    before.into_iter().for_each(|old| assert!(old.wait().0.success()));
}

#[test]
fn a_response_is_judged_by_the_process_that_it_comes_to() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text = config(front, origin(is_over.clone())).replace(
        "backend back\n",
        "backend back\n cookie place insert\n http-request set-var(txn.path) path\n \
         http-response set-header x-path %[var(txn.path)]\n \
         http-response set-header x-seen %[res.hdr(x-kind)]\n",
    );
    let text = text.replace(" server s0 ", " http-response set-header x-by first\n server s0 ").trim_end().to_owned();
    let old = Proxy::start(&(text.clone() + " cookie here\n"));
    let mut stream = connect(front);
    stream.write_all(b"GET /poll HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n\r\n").expect("it is open");
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    old.write(&(text.replace("x-by first", "x-by second") + " cookie here\n"));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    is_over.store(true, Ordering::Relaxed);
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    let head = read_head(&mut reader);
    for field in [
        "connection: keep-alive\r\n",
        "x-by: second\r\n",
        "x-path: /poll\r\n",
        "x-seen: /poll\r\n",
        "set-cookie: place=here",
    ] {
        assert!(head.contains(field), "{field}: {head}");
    }
    read_body(&mut reader, &head, |_| {});
    ask("again", &stream, &is_over);
    until("both are logged", || lines(&new.said()).len() == 2);
}

#[test]
fn timeouts_are_those_of_the_whole_wait() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text =
        config(front, origin(is_over)).replace("timeout server 60s", "timeout server 3s").replace("%HM %HU", "%Tr %Ta");
    let old = Proxy::start(&text);
    let mut stream = connect(front);
    stream.write_all(b"GET /poll HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is open");
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    std::thread::sleep(Duration::from_millis(1500));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    let head = read_head(&mut BufReader::new(stream));
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    until("it is logged", || lines(&new.said()).len() == 1);
    let said = new.said();
    let words: Vec<_> = lines(&said)[0].split(' ').collect();
    let whole: u64 = words[2].parse().expect("a time");
    assert!(words[1] == "-1" && (2900..4400).contains(&whole) && words[3] == "504", "{words:?}");
}

#[test]
fn a_request_that_ends_in_time_ends_where_it_is() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text = config(front, origin(is_over.clone())).replace("tune.handover.patience 0", "tune.handover.patience 60s");
    let old = Proxy::start(&text);
    let request = client(front, "poll", &is_over);
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    let new = old.replace(&[]);
    until("it is known there", || new.status().sessions_elsewhere == 1);
    is_over.store(true, Ordering::Relaxed);
    request.join().expect("served");
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    let lines_here = lines(&said);
    assert!(lines_here.len() == 1 && lines_here[0].starts_with("line GET /poll 200 "), "{said}");
    until("the next one is logged", || lines(&new.said()).len() == 1);
}

#[test]
fn what_cannot_move_is_named_and_its_connection_goes_later() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text = config(front, origin(is_over.clone())).replace(
        " default_backend back\n",
        " http-request set-var(txn.a) int(1) if { path /poll }\n http-request wait-for-body time 60s if METH_PUT\n default_backend back\n",
    );
    let old = Proxy::start(&text);
    let polls = client(front, "poll", &is_over);
    let mut held = connect(front);
    held.write_all(b"PUT /again HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na").expect("it is open");
    until("both are there", || old.status().connections == 2 && old.status().backends[0].servers[0].open == 1);
    let new = old.replace(&[]);
    until("it is said", || new.status().connections_staying == [("in-flight".to_owned(), 1)].into());
    assert_eq!(new.status().connections_arrived, 1, "the one with a variable is not held");
    held.write_all(b"b").expect("it is open");
    is_over.store(true, Ordering::Relaxed);
    polls.join().expect("served");
    let mut reader = BufReader::new(held.try_clone().expect("a descriptor"));
    let head = read_head(&mut reader);
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("connection: close"), "{head}");
    read_body(&mut reader, &head, |_| {});
    assert!(old.wait().0.success());
    until("both have come", || new.status().connections_arrived == 2 && new.status().connections_staying.is_empty());
    ask("again", &held, &is_over);
}

#[test]
fn a_request_is_sent_again_where_it_would_have_been() {
    let front = free_address();
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let old = Proxy::start(&config(front, server.local_addr().expect("bound")));
    let mut stream = connect(front);
    let get = b"GET /a HTTP/1.1\r\nhost: x\r\nx-mark: 1\r\n\r\n";
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    stream.write_all(get).expect("it is open");
    let (accepted, _) = server.accept().expect("a request");
    let mut first = BufReader::new(accepted);
    assert!(read_head(&mut first).contains("x-mark: 1\r\n"));
    first.get_mut().write_all(response).expect("it is open");
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    let head = read_head(&mut reader);
    read_body(&mut reader, &head, |_| {});
    // The second one goes over the same connection, which ends without a response.
    stream.write_all(get).expect("it is open");
    assert!(read_head(&mut first).contains("x-mark: 1\r\n"));
    let new = old.replace(&[]);
    assert!(old.wait().0.success());
    drop(first);
    let (accepted, _) = server.accept().expect("it is tried again");
    let mut second = BufReader::new(accepted);
    assert!(read_head(&mut second).contains("x-mark: 1\r\n"));
    second.get_mut().write_all(response).expect("it is open");
    assert!(read_head(&mut reader).starts_with("http/1.1 200 "));
    until("it is logged", || lines(&new.said()).len() == 1);
}

/// An old process with a long poll, and a new one that takes requests in flight. It was offered the request.
fn offered(front: SocketAddr, is_over: &Arc<AtomicBool>) -> (Proxy, Taker, u32, JoinHandle<TcpStream>) {
    let old = Proxy::start(&config(front, origin(is_over.clone())));
    let poll = client_once(front, "poll", is_over);
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_with(FORMAT, MoveKinds::taken());
    let offer = taker.hear_offer();
    let tunnel = offer.connections[0].tunnel.as_ref().expect("it is at a server");
    assert!(tunnel.request.is_some() && offer.connections.len() == 1, "{offer:?}");
    (old, taker, offer.batch, poll)
}

#[test]
fn a_request_that_is_not_taken_goes_on_where_it_is() {
    for is_killed in [true, false] {
        let is_over = Arc::new(AtomicBool::new(false));
        let (old, mut taker, batch, poll) = offered(free_address(), &is_over);
        if is_killed {
            drop(taker);
            until("it has stayed", || !old.status().connections_staying.is_empty());
        } else {
            let staying = vec![Staying { at: 0, reason: "no-server".into() }];
            taker.say(Message::Take(Take { batch, staying }));
            until("it has stayed", || old.status().connections_staying == [("no-server".to_owned(), 1)].into());
        }
        is_over.store(true, Ordering::Relaxed);
        drop(poll.join().expect("served"));
        until("it is logged", || lines(&old.said()).len() == 1);
        assert!(old.wait().0.success());
    }
}

#[test]
fn a_request_that_was_given_is_lost_with_the_process_that_has_it() {
    let is_over = Arc::new(AtomicBool::new(false));
    let (old, mut taker, batch, poll) = offered(free_address(), &is_over);
    taker.say(Message::Take(Take { batch, staying: Vec::new() }));
    assert!(matches!(taker.hear_no_report(), Message::Give(give) if give.descriptors == 2));
    // It is nobody's but its own by now.
    let (status, said) = old.wait();
    assert!(status.success() && lines(&said).is_empty(), "{said}");
    drop(taker);
    assert!(poll.join().is_err(), "closed");
}

#[test]
fn a_request_that_has_come_does_not_need_the_process_before() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let text = config(front, origin(is_over.clone()))
        .replace(" default_backend", " http-request wait-for-body time 60s if METH_POST\n default_backend");
    let old = Proxy::start(&text);
    let requests: Vec<_> = KINDS.iter().map(|kind| client(front, kind, &is_over)).collect();
    // This one keeps the process.
    let mut held = connect(front);
    held.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na").expect("it is open");
    until("all are at the server", || old.status().backends[0].servers[0].open == KINDS.len() as i64);
    let new = old.replace(&[]);
    until("all have come", || new.status().connections_arrived == KINDS.len() as u64);
    old.signal(Signal::SIGKILL);
    until("it is gone", || old.has_ended());
    is_over.store(true, Ordering::Relaxed);
    requests.into_iter().for_each(|request| request.join().expect("nothing was lost"));
    until("all are logged", || lines(&new.said()).len() == 2 * KINDS.len() - 1);
}

#[test]
fn a_process_of_a_version_without_them_gets_their_connections_later() {
    let (front, is_over) = (free_address(), Arc::new(AtomicBool::new(false)));
    let old = Proxy::start(&config(front, origin(is_over.clone())));
    let poll = client_once(front, "poll", &is_over);
    until("it is at the server", || old.status().backends[0].servers[0].open == 1);
    let mut taker = Taker::ask(old.pid());
    taker.receive_all();
    taker.ready_for(FORMAT);
    is_over.store(true, Ordering::Relaxed);
    let stream = poll.join().expect("served");
    let offer = taker.hear_offer();
    assert!(offer.connections.len() == 1 && offer.connections[0].tunnel.is_none(), "{offer:?}");
    drop((stream, taker));
    assert!(old.wait().0.success());
}
