//! The old process is gone within seconds, whatever is open: so many of each kind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Proxy, free_address, until};
use crate::tunnels::{connect, echo, exchange};
use crate::upgrades::{open, upgrading};
use crate::{http2, in_flight};

/// Connections of each kind, unless BATON_GONE_EACH says how many.
const EACH: usize = 20;
/// The longest that it takes, with the two seconds that requests in flight have; machines of tests are slow.
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// Opened once.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut is_open = self.0.0.lock().expect("nobody panics with it");
        while !*is_open {
            is_open = self.0.1.wait(is_open).expect("nobody panics with it");
        }
    }
}

/// A server whose responses have a beginning, and their end behind the gate.
fn origin(gate: Gate) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let gate = gate.clone();
            std::thread::spawn(move || serve(stream, &gate));
        }
    });
    address
}

fn serve(mut stream: TcpStream, gate: &Gate) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = in_flight::read_head(&mut reader);
        let path = head.split(' ').nth(1)?;
        let (fields, begin, end) = match path {
            "/download" => ("content-length: 8", "half", "half"),
            "/events" => ("transfer-encoding: chunked", "4\r\nhalf\r\n", "4\r\nhalf\r\n0\r\n\r\n"),
            "/upload" => {
                reader.read_exact(&mut [0; 8]).ok()?;
                ("content-length: 8", "", "halfhalf")
            }
            "/bytes/1000" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").ok()?;
                stream.write_all(&[b'x'; 1000]).ok()?;
                continue;
            }
            _ => ("content-length: 8", "", "halfhalf"),
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{begin}").as_bytes()).ok()?;
        if !begin.is_empty() {
            gate.pass();
        }
        stream.write_all(end.as_bytes()).ok()?;
    }
}

/// A request that gets so far.
fn begun(front: SocketAddr, request: &str, so_far: &str) -> BufReader<TcpStream> {
    let mut stream = connect(front);
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut reader = BufReader::new(stream);
    let mut all = String::new();
    while !so_far.is_empty() && !all.contains(so_far) {
        assert!(reader.read_line(&mut all).expect("it goes on") > 0 || all.contains(so_far), "{all}");
        if all.ends_with("\r\n\r\n") {
            let mut rest = [0; 4];
            reader.read_exact(&mut rest).expect("it goes on");
            all.push_str(&String::from_utf8_lossy(&rest));
        }
    }
    reader
}

#[test]
fn the_old_process_is_gone_within_seconds_whatever_is_open() {
    let each = std::env::var("BATON_GONE_EACH").map_or(EACH, |text| text.parse().expect("a number"));
    let (gate, tcp, web, sockets) = (Gate::default(), free_address(), free_address(), free_address());
    let text = format!(
        "global\n nbthread 2\n maxconn 9000\ndefaults\n mode http\n timeout connect 5s\n timeout client 90s\n timeout server 90s\n\
         frontend web\n bind {web}\n http-request set-var(txn.mark) req.hdr(x-mark)\n\
         http-response set-header x-mark %[var(txn.mark)] if {{ var(txn.mark) -m found }}\n default_backend web\n\
         backend web\n server s0 {}\nlisten sockets\n bind {sockets}\n server s0 {}\n\
         listen tcp\n mode tcp\n bind {tcp}\n server s0 {}\n",
        origin(gate.clone()),
        upgrading(),
        echo()
    );
    let old = Proxy::start(&text);
    let many = |request: &'static str, so_far: &'static str| -> Vec<_> {
        (0..each).map(|_| begun(web, request, so_far)).collect()
    };
    let mut kept = many("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "\r\n\r\nhalf");
    kept.iter_mut().for_each(|kept| kept.read_exact(&mut [0; 4]).expect("its end"));
    let mut downloads = many("GET /download HTTP/1.1\r\nhost: x\r\n\r\n", "half");
    let mut events = many("GET /events HTTP/1.1\r\nhost: x\r\n\r\n", "4\r\nha");
    let mut uploads = many("PUT /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nhalf", "");
    let websocket = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let mut tunnels: Vec<_> = (0..each).map(|_| open(sockets, websocket)).collect();
    tunnels.extend((0..each).map(|_| connect(tcp)));
    tunnels.iter_mut().for_each(|stream| _ = exchange(stream, 1));
    let mut clients: Vec<_> = (0..each).map(|_| http2::Client::connect(web)).collect();
    for client in &mut clients {
        let stream = client.ask("1");
        client.answered(stream, "1");
    }
    until("all are there", || old.status().connections == 7 * each);
    let new = old.replace(&[]);
    let since = Instant::now();
    until("it is gone", || old.has_ended());
    let took = since.elapsed();
    assert!(took < GONE_WITHIN, "{took:?}");
    println!("gone after {took:?} with {each} of each kind");
    assert_eq!(new.status().connections_arrived, 7 * each as u64);
    gate.open();
    for stream in &mut kept {
        stream.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is open");
        assert!(in_flight::read_head(stream).starts_with("http/1.1 200 "));
    }
    downloads.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 4]).expect("its end"));
    for stream in &mut events {
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            stream.read_until(b'\n', &mut rest).expect("its end");
        }
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.contains("half\r\n"), "{rest}");
    }
    for stream in &mut uploads {
        stream.get_mut().write_all(b"half").expect("it is open");
        assert!(in_flight::read_head(stream).starts_with("http/1.1 200 "));
    }
    tunnels.iter_mut().for_each(|stream| _ = exchange(stream, 2));
    for client in &mut clients {
        let stream = client.ask("2");
        client.answered(stream, "2");
    }
}

#[test]
fn requests_leave_before_a_hard_stop() {
    let (gate, web) = (Gate::default(), free_address());
    let old = Proxy::start(&format!(
        "global\n nbthread 1\n hard-stop-after 3s\n tune.handover.patience 60s\ndefaults\n mode http\n timeout connect 5s\n \
         timeout client 90s\n timeout server 90s\nlisten web\n bind {web}\n server s0 {}\n",
        origin(gate.clone())
    ));
    let mut download = begun(web, "GET /download HTTP/1.1\r\nhost: x\r\n\r\n", "half");
    let new = old.replace(&[]);
    let (status, said) = old.wait();
    assert!(status.success(), "{said}");
    assert_eq!(new.status().connections_arrived, 1);
    gate.open();
    download.read_exact(&mut [0; 4]).expect("its end");
}
