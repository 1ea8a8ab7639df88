//! What happens to connections when a server's address changes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::name_server::Scripted;
use super::{config, get, origin, servers};
use crate::peers::socat;
use crate::support::{PATIENCE, Proxy, free_address, until};

/// What happened at an origin.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    /// A request, with its path, on the connection of that number.
    Request(usize, String),
    /// The connection of that number was closed.
    Closed(usize),
}

/// An origin that reports what it sees. Requests of `/slow` have half of a response until the returned sender says so.
fn reporting_origin(address: SocketAddr) -> (Receiver<Seen>, Sender<()>) {
    let listener = TcpListener::bind(address).expect("an address of the loopback network");
    let ((seen, events), (release, released)) = (channel(), channel::<()>());
    thread::spawn(move || {
        let mut released = Some(released);
        for (number, stream) in (1..).zip(listener.incoming().map_while(Result::ok)) {
            let (seen, released) = (seen.clone(), released.take());
            thread::spawn(move || serve(number, stream, &seen, released.as_ref()));
        }
    });
    (events, release)
}

fn serve(number: usize, mut stream: TcpStream, seen: &Sender<Seen>, released: Option<&Receiver<()>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let _ = seen.send(Seen::Request(number, path.clone()));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        if path == "/slow" {
            let _ = released.expect("the first connection is the slow one").recv_timeout(PATIENCE);
        }
        let _ = stream.write_all(b"half");
    }
    let _ = seen.send(Seen::Closed(number));
}

#[test]
fn a_request_in_flight_is_not_touched_and_an_idle_connection_to_an_address_that_is_gone_is_closed() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.101"]);
    let port = free_address().port();
    let place = |host: &str| format!("{host}:{port}").parse().expect("an address");
    let (events, release) = reporting_origin(place("127.0.0.101"));
    origin(place("127.0.0.102"));
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = format!(
        "backend app\n http-reuse always\n server s1 app.test:{port} resolvers r init-addr none resolve-prefer ipv4\n"
    );
    let text = config(folder.path(), web, dns.address, &backend).replace("obsolete 300ms", "obsolete 0");
    let _proxy = Proxy::start(&text);
    let socket = folder.path().join("admin.sock");
    let has = |address: &str| servers(&socket)[0].starts_with(&format!("app s1 {address} 2"));
    until("it has its address", || has("127.0.0.101"));
    let mut slow = TcpStream::connect(web).expect("it listens");
    slow.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes a request");
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Seen::Request(1, "/slow".into())));
    let mut other = TcpStream::connect(web).expect("it listens");
    assert!(get(&mut other).expect("a response").ends_with("halfhalf"));
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Seen::Request(2, "/".into())));

    dns.addresses("app.test", &["127.0.0.102"]);
    until("it has another address", || has("127.0.0.102"));
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Seen::Closed(2)), "the idle connection, and no other");
    assert!(get(&mut other).expect("a response").ends_with("127.0.0.102"), "new requests go to the new address");
    assert!(events.try_recv().is_err(), "the slow one is untouched");
    release.send(()).expect("the origin waits");
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    while !response.ends_with(b"halfhalf") {
        let length = slow.read(&mut buffer).expect("the rest of the response");
        assert!(length > 0, "{}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&buffer[..length]);
    }
    // Nobody uses the connection again.
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Seen::Closed(1)));
}

#[test]
fn a_server_that_a_check_does_not_reach_is_looked_up_at_once() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.103"]);
    let port = free_address().port();
    origin(format!("127.0.0.104:{port}").parse().expect("an address"));
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = format!(
        "backend app\n server s1 app.test:{port} resolvers r init-addr none resolve-prefer ipv4 check inter 50ms fall 1 rise 1\n"
    );
    let text = config(folder.path(), web, dns.address, &backend);
    // Nothing but a check makes it look again.
    let text = text.replace("timeout resolve 100ms", "timeout resolve 1h\n hold valid 200ms");
    let proxy = Proxy::start(&text);
    let socket = folder.path().join("admin.sock");
    until("nobody is there", || proxy.said().contains("Server app/s1 is DOWN"));
    dns.addresses("app.test", &["127.0.0.104"]);
    until("it is found where it is", || servers(&socket)[0].starts_with("app s1 127.0.0.104 2"));
    let passed = || socat(&socket, "show stat app 4 -1\n").contains(",L4OK,");
    until("it is reached", passed);
}
