//! Whatever a request ended with, the memory it used serves the next one as new memory does: another client's request, to
//! another server, over the same core.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baton_model::Mode;
use socket2::SockRef;

use super::support::{Served, listen};

/// What a client of [`healthy`] sends and gets, and what its server gets: chunks with trailers both ways.
const REQUEST: &str =
    "POST /healthy HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n";
const FORWARDED: &str =
    "POST /healthy HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\na: b\r\n\r\n";
const RESPONSE: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nc: d\r\n\r\n";

/// How a request ends.
struct Ending {
    name: &'static str,
    /// What the client sends.
    request: Vec<u8>,
    /// What the server answers before it closes; `None`: nothing, and it stays.
    answer: Option<Vec<u8>>,
    client: Client,
    /// What the client gets begins so.
    gets: &'static str,
}

/// What the client does once it has sent its request.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    /// Reads to the end.
    Reads,
    /// Ends its direction, then reads to the end.
    Ends,
    /// Resets the connection.
    Resets,
}

fn get(answer: impl Into<Vec<u8>>) -> (Vec<u8>, Option<Vec<u8>>) {
    (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(), Some(answer.into()))
}

fn chunked(body: impl AsRef<[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
    get([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", body.as_ref()].concat())
}

fn request(bytes: impl Into<Vec<u8>>) -> (Vec<u8>, Option<Vec<u8>>) {
    (bytes.into(), None)
}

fn chunked_request(body: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    request(format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{body}"))
}

fn endings() -> Vec<Ending> {
    use Client::{Ends, Reads, Resets};
    let trailers = "X: y\r\n".repeat(101);
    let zeros = "0".repeat(5000);
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n";
    let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nbytes".to_vec();
    let (bad, late, gone) = ("HTTP/1.1 502", "HTTP/1.1 504", "");
    [
        ("chunk size", chunked("x\r\n"), Reads, bad),
        ("second chunk size", chunked("5\r\nhello\r\nx\r\n"), Reads, bad),
        ("data too long", chunked("5\r\nhello!\r\n0\r\n\r\n"), Reads, bad),
        ("trailers", chunked(format!("5\r\nhello\r\n0\r\n{trailers}\r\n")), Reads, bad),
        ("one trailer", chunked("0\r\nX: y\r\n: z\r\n\r\n"), Reads, bad),
        ("zeros", chunked(&zeros), Reads, bad),
        ("chunks cut off", chunked("5\r\nhel"), Reads, "HTTP/1.1 200"),
        ("trailers cut off", chunked("0\r\nX: y\r\nY:"), Reads, "HTTP/1.1 200"),
        ("body cut off", get("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel"), Reads, "HTTP/1.1 200"),
        ("long body", get([b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), vec![b'x'; 1 << 20]].concat()), Reads, "HTTP/1.0 200"),
        ("no response", get(""), Reads, bad),
        ("no head", get("SSH-2.0\r\n\r\n"), Reads, bad),
        ("head cut off", get("HTTP/1.1 200 OK\r\nX:"), Reads, bad),
        ("head too long", get(format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(20_000))), Reads, bad),
        ("interim only", get("HTTP/1.1 100 Continue\r\n\r\n"), Reads, "HTTP/1.1 100"),
        ("interim, then nothing", get("HTTP/1.1 103 Hints\r\nX: y\r\n\r\nHTTP/1.1 2"), Reads, "HTTP/1.1 103"),
        ("silent server", request("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), Reads, late),
        ("tunnel", (upgrade.into(), Some(switched.clone())), Reads, "HTTP/1.1 101"),
        ("tunnel, reset", (upgrade.into(), Some(switched)), Resets, gone),
        ("client's chunk size", chunked_request("x\r\n"), Reads, "HTTP/1.1 400"),
        ("client's second chunk", chunked_request("5\r\nhello\r\n\r\n"), Reads, "HTTP/1.1 400"),
        ("client's trailers", chunked_request(&format!("0\r\n{trailers}\r\n")), Reads, "HTTP/1.1 400"),
        ("client's zeros", chunked_request(&zeros), Reads, "HTTP/1.1 400"),
        ("client's body cut off", chunked_request("5\r\nhel"), Ends, gone),
        ("client's body late", chunked_request("5\r\nhel"), Reads, gone),
        ("client's body, reset", chunked_request("5\r\nhel"), Resets, gone),
        ("no request", request("?\r\n\r\n"), Reads, "HTTP/1.1 400"),
        (
            "head of the request too long",
            request(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000))),
            Reads,
            "HTTP/1.1 400",
        ),
        ("head of the request cut off", request("GET / HTTP/1.1\r\nHost: x\r\nY: "), Ends, "HTTP/1.1 400"),
        ("head of the request late", request("GET / HTTP/1.1\r\nHost: x\r\nY: "), Reads, "HTTP/1.1 408"),
        ("head of the request, reset", request("GET / HTTP/1.1\r\nHost: x\r\nY: "), Resets, gone),
        ("nothing, reset", request(""), Resets, gone),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (name, (request, answer), client, gets))| {
        // The server knows by the target what to answer.
        let request =
            String::from_utf8(request).expect("text").replacen(" / ", &format!(" /{number} "), 1).into_bytes();
        Ending { name, request, answer, client, gets }
    })
    .collect()
}

/// A server that answers `/healthy` as it should, and `/N` as ending N has it.
fn origin(answers: Vec<Option<Vec<u8>>>) -> SocketAddr {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for stream in listening.incoming() {
            let (stream, answers) = (stream.expect("the proxy connects"), answers.clone());
            std::thread::spawn(move || answer(stream, &answers));
        }
    });
    address
}

fn answer(mut stream: TcpStream, answers: &[Option<Vec<u8>>]) {
    while let Some(head) = super::read_head(&mut stream) {
        if head.contains(" /healthy ") {
            let mut body = vec![0; FORWARDED.len() - head.len()];
            stream.read_exact(&mut body).expect("the rest of the request");
            assert_eq!(head + &String::from_utf8_lossy(&body), FORWARDED);
            stream.write_all(RESPONSE.as_bytes()).expect("the proxy reads");
            continue;
        }
        let number: usize = head.split(['/', ' ']).nth(2).and_then(|number| number.parse().ok()).expect("a number");
        if let Some(answer) = &answers[number] {
            // It may be refused before all of it was taken.
            let _ = stream.write_all(answer);
            return;
        }
    }
}

fn check_ending(served: &Served, ending: &Ending) {
    let mut client = served.connect();
    client.write_all(&ending.request).expect("sent");
    match ending.client {
        Client::Reads => {}
        Client::Ends => client.shutdown(Shutdown::Write).expect("open"),
        Client::Resets => return SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket"),
    }
    let mut got = Vec::new();
    if let Err(error) = client.read_to_end(&mut got) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{}", ending.name);
    }
    let got = String::from_utf8_lossy(&got);
    assert!(got.starts_with(ending.gets), "{}: {}", ending.name, &got[..got.len().min(200)]);
}

/// Two clients at a time, so that more than one piece of memory is looked at.
fn healthy(served: &Served, after: &str) {
    let clients = [0, 1].map(|_| {
        let mut client = served.connect();
        client.write_all(REQUEST.as_bytes()).expect("sent");
        client
    });
    for mut client in clients {
        let mut bytes = vec![0; RESPONSE.len()];
        let got = client.read_exact(&mut bytes);
        assert_eq!(String::from_utf8_lossy(&bytes), RESPONSE, "after {after}: {got:?}");
    }
}

#[test]
fn a_request_leaves_nothing_behind_however_it_ends() {
    // A core goes on after a panic of one connection, such as that of an assertion about pooled memory.
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(panic);
    }));
    let endings = endings();
    let patient = listen(Mode::Http, origin(endings.iter().map(|ending| ending.answer.clone()).collect()));
    let mut hasty = patient.clone();
    hasty.timeouts.http_request = Some(Duration::from_millis(50));
    hasty.timeouts.client = Some(Duration::from_millis(60));
    hasty.timeouts.server = Some(Duration::from_millis(70));
    let mut served = Served::new(patient.clone());
    for ending in &endings {
        let waits = ending.name.ends_with("late") || ending.name.starts_with("silent");
        if waits {
            served.apply(hasty.clone());
        }
        check_ending(&served, ending);
        if waits {
            served.apply(patient.clone());
        }
        healthy(&served, ending.name);
    }
    served.end();
    let panics = PANICS.load(Ordering::Relaxed);
    drop(std::panic::take_hook());
    assert_eq!(panics, 0, "see above");
}
