//! Log lines of a whole process in the forms that Debian's haproxy does not have (encodings, `do-log`, `when`), and structured data: all
//! are read as a log collector would read them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use serde_json::{Value, json};

use crate::support::{PATIENCE, Proxy, free_address};

/// A log collector.
struct Collector(UdpSocket);

impl Collector {
    fn new() -> Collector {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Collector(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The next line, which is one datagram, without its end.
    fn line(&self) -> Vec<u8> {
        let mut buffer = vec![0; 8192];
        let length = self.0.recv(&mut buffer).expect("a line");
        assert_eq!(buffer[length - 1], b'\n');
        buffer.truncate(length - 1);
        buffer
    }

    fn text(&self) -> String {
        String::from_utf8(self.line()).expect("text")
    }
}

/// Sends a request and waits for the end of the response.
fn ask(web: SocketAddr, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(web).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// A server that responds to every request.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut piece = [0; 1024];
                match stream.read(&mut piece) {
                    Ok(length @ 1..) => request.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    });
    address
}

const DEFAULTS: &str = "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 5s\n";

/// One data item of CBOR (RFC 8949) at the start of `bytes`, and what follows.
fn cbor(bytes: &[u8]) -> (Value, &[u8]) {
    let (first, rest) = bytes.split_first().expect("an item");
    let (major, small) = (first >> 5, first & 31);
    let (number, rest) = match small {
        0..24 => (u64::from(small), rest),
        24..28 => {
            let length = 1 << (small - 24);
            (rest[..length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), &rest[length..])
        }
        _ => (0, rest),
    };
    let length = usize::try_from(number).unwrap();
    match (major, small) {
        (0, _) => (json!(number), rest),
        (1, _) => (json!(-1 - i64::try_from(number).unwrap()), rest),
        (2, _) => (json!(rest[..length]), &rest[length..]),
        (3, _) => (json!(std::str::from_utf8(&rest[..length]).unwrap()), &rest[length..]),
        (5, 31) => {
            let (mut map, mut rest) = (serde_json::Map::new(), rest);
            while rest[0] != 0xff {
                let (key, after) = cbor(rest);
                let (value, after) = cbor(after);
                map.insert(key.as_str().expect("a name").to_owned(), value);
                rest = after;
            }
            (Value::Object(map), &rest[1..])
        }
        (7, 20 | 21) => (json!(small == 21), rest),
        (7, 22) => (Value::Null, rest),
        _ => panic!("an item that Baton does not write: {first:02x}"),
    }
}

#[test]
fn lines_in_json_and_cbor_are_read_by_others() {
    let collectors: [Collector; 3] = std::array::from_fn(|_| Collector::new());
    let webs = [(); 3].map(|()| free_address());
    let items = "%(status)ST %(path)HP %(evil)[req.hdr(x)] %(captured)hr %(none)[var(txn.none)] %(secure:bool)[ssl_fc] %(bytes)B %(time)Tq";
    let mut config = DEFAULTS.to_owned();
    let flags = ["+json", "+cbor", "+bin,+cbor"];
    for (((collector, web), flags), name) in collectors.iter().zip(webs).zip(flags).zip(["j", "c", "b"]) {
        config += &format!(
            "frontend {name}\n bind {web}\n log {} format raw local0\n capture request header x len 50\n \
             log-format \"%{{{flags}}}o {}\"\n http-request return status 200 content-type text/plain string hello\n",
            collector.address(),
            items.replace("%(evil)[req.hdr(x)]", "%(evil)[capture.req.hdr(0)]"),
        );
    }
    let _proxy = Proxy::start(&config);
    webs.iter().for_each(|web| drop(ask(*web, "/p\"a\\th?q=1", "X: a\"b\\c\t%0A\u{e9}\r\n")));
    let [as_json, as_hex, as_bytes] = collectors.map(|collector| collector.line());
    let hex = String::from_utf8(as_hex).unwrap();
    let from_hex: Vec<u8> = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap()).collect();
    let objects = [serde_json::from_slice(&as_json).expect("JSON"), cbor(&from_hex).0, {
        let (object, rest) = cbor(&as_bytes);
        assert!(rest.is_empty(), "nothing follows");
        object
    }];
    for object in objects {
        let object: BTreeMap<String, Value> = serde_json::from_value(object).unwrap();
        let value = |name: &str| object.get(name).unwrap_or_else(|| panic!("no {name} in {object:?}"));
        assert_eq!((value("status"), value("none"), value("secure")), (&json!(200), &Value::Null, &json!(false)));
        assert_eq!((value("path"), value("evil")), (&json!("/p\"a\\th"), &json!("a\"b\\c\t%0A\u{e9}")));
        assert!(value("bytes").as_i64().is_some_and(|bytes| bytes > 50), "{object:?}");
        assert!(value("time").as_i64().is_some_and(|time| (0..30_000).contains(&time)), "{object:?}");
        assert!(value("captured").as_str().is_some_and(|text| text.starts_with('{')), "{object:?}");
    }
}

#[test]
fn lines_between_structured_data_and_samples_of_errors() {
    let (early, structured, errors) = (Collector::new(), Collector::new(), Collector::new());
    let [web, second, third, dead] = [(); 4].map(|()| free_address());
    let server = server();
    let config = format!(
        "{DEFAULTS}frontend early\n bind {web}\n log {} format raw local0\n log-format \"%ST %HP %[var(txn.at)]\"\n \
         http-request set-var(txn.at) str(request)\n http-request do-log if {{ path /a }}\n \
         http-response set-var(txn.at) str(response)\n http-response do-log\n \
         http-response set-var(txn.at) str(end)\n default_backend b\n\
         frontend structured\n bind {second}\n log {} format rfc5424 local0\n log {} format raw local0\n \
         log-tag web\n log-format \"%HM %HP\"\n \
         log-format-sd \"[request@32473 x=\\\"%{{+E}}[capture.req.hdr(0)]\\\" status=\\\"%ST\\\"]\"\n \
         capture request header x len 50\n default_backend b\n\
         frontend errors\n bind {third}\n log {} format raw local0\n \
         log-format \"%HP error=%[str(yes),when(error)] normal=%[str(yes),when(normal)] forwarded=%[str(yes),when(forwarded)] \
         processed=%[str(yes),when(processed)] applet=%[str(yes),when(toapplet)] running=%[str(yes),when(!stopping)]\"\n \
         use_backend d if {{ path /dead }}\n use_backend b if {{ path /b }}\n stats enable\n stats uri /stats\n \
         http-request return status 200 if {{ path /own }}\n\
         backend b\n server s {server}\nbackend d\n retries 0\n server s {dead}\n",
        early.address(),
        structured.address(),
        structured.address(),
        errors.address(),
    )
    .replace("frontend errors", "listen errors");
    let _proxy = Proxy::start(&config);

    ask(web, "/a", "");
    assert_eq!([early.text(), early.text(), early.text()], ["-1 /a request", "200 /a response", "200 /a end"]);
    ask(web, "/b", "");
    assert_eq!([early.text(), early.text()], ["200 /b response", "200 /b end"]);

    ask(second, "/s", "X: a\"]\\b\r\n");
    let line = structured.text();
    assert!(line.starts_with("<134>1 20") && line.contains(" web "), "{line}");
    assert!(line.ends_with(" - [request@32473 x=\"a\\\"\\]\\\\b\" status=\"200\"] GET /s"), "{line}");
    assert_eq!(structured.text(), "GET /s", "the other format has no room for the data");

    let course = |path: &str| {
        ask(third, path, "");
        let line = errors.text();
        let words = line.split(' ').skip(1).filter_map(|word| word.strip_suffix("=yes"));
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(course("/b"), "normal forwarded processed running");
    assert_eq!(course("/own"), "normal running");
    assert_eq!(course("/stats"), "normal processed applet running");
    assert_eq!(course("/dead"), "error forwarded processed running");
}
