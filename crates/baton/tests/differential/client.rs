//! The clients: one script, step after step, over named connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::case::Case;
use crate::http::{self, Extent};
use crate::http2;
use crate::places::{Place, Places};
use crate::script::Step;
use crate::secure::{self, Secure};
use crate::world::{End, Link, Past, WAIT_MAX, World};

/// How long a connection that nothing announced the end of is watched for one.
const SETTLE: Duration = Duration::from_millis(40);

/// Plays the case's script and closes what is open in the end.
pub fn play(case: &Case, places: &Places, world: &Arc<World>) {
    let mut links: BTreeMap<String, Link> = BTreeMap::new();
    for (name, step) in &case.script {
        if let Step::Connect { to, from, on, deaf, tls } = step {
            let link = match tls {
                None => connect(world, places, name, to, from.as_deref(), on.as_deref()),
                Some(tls) => connect_secure(world, places, name, to, tls, &case.files),
            };
            if !deaf {
                link.hear();
            }
            links.insert(name.clone(), link);
            continue;
        }
        if name == "-" {
            if let Some(fault) = world.await_event(step) {
                world.change(|state| state.faults.push(fault));
            }
            continue;
        }
        let link = links.entry(name.clone()).or_insert_with(|| {
            let link = connect(world, places, name, "L1", None, None);
            link.hear();
            link
        });
        act(link, step);
    }
    for link in links.values() {
        let announced = {
            let state = world.lock();
            let past = &state.links[link.index];
            !past.is_http2 && http::closes(&past.received, &past.methods) && !past.closed_by_us
        };
        if announced {
            link.wait("for the announced end of the connection", |past| past.end);
        }
    }
    thread::sleep(SETTLE);
    for link in links.values() {
        link.close();
    }
}

fn connect(world: &Arc<World>, places: &Places, name: &str, to: &str, from: Option<&str>, on: Option<&str>) -> Link {
    let (socket, made) = match dial(places, to, from, on, &taken(world)) {
        Ok(pair) => pair,
        Err(error) => {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket that is never used can be had");
            (socket, Err(error))
        }
    };
    let port = socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port());
    let link = world.adopt(socket, port, |state, index| state.clients.entry(name.to_string()).or_default().push(index));
    if let Err(error) = made {
        // A connection that was made and reset before `connect` returned is told as a reset by the system, not as refused.
        let end = if error.kind() == std::io::ErrorKind::ConnectionReset { End::Rst } else { End::Refused };
        world.change(|state| state.links[link.index].end = Some(end));
        link.close();
    }
    link
}

/// Connects with TLS.
fn connect_secure(
    world: &Arc<World>,
    places: &Places,
    name: &str,
    to: &str,
    tls: &Secure,
    files: &[(String, Vec<u8>)],
) -> Link {
    let adopt = |socket: Socket, port| {
        world.adopt(socket, port, |state, index| state.clients.entry(name.to_string()).or_default().push(index))
    };
    let (ours, near) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair of sockets can be had");
    match dial(places, to, None, None, &taken(world)) {
        Ok((far, Ok(()))) => {
            let port =
                far.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port());
            let link = adopt(ours, port);
            secure::relay(&link, near.into(), far.into(), tls, files);
            link
        }
        _ => {
            let link = adopt(ours, 0);
            world.change(|state| state.links[link.index].end = Some(End::Refused));
            link.close();
            link
        }
    }
}

/// The ports of the clients so far.
fn taken(world: &Arc<World>) -> Vec<u16> {
    let mut taken = Vec::new();
    world.change(|state| taken.extend(state.links.iter().map(|link| link.port)));
    taken
}

fn dial(
    places: &Places,
    to: &str,
    from: Option<&str>,
    on: Option<&str>,
    taken: &[u16],
) -> std::io::Result<(Socket, std::io::Result<()>)> {
    let host = on.map(str::parse::<IpAddr>).transpose().map_err(std::io::Error::other)?;
    let (domain, address) = match places.by_name.get(to) {
        Some(Place::Inet(address)) => {
            let address = SocketAddr::new(host.unwrap_or(address.ip()), address.port());
            (Domain::for_address(address), SockAddr::from(address))
        }
        Some(Place::Unix(path)) => (Domain::UNIX, SockAddr::unix(path)?),
        None => return Err(std::io::Error::other(format!("no place {to}"))),
    };
    let socket =
        if domain == Domain::UNIX { Socket::new(domain, Type::STREAM, None)? } else { bound(domain, from, taken)? };
    if domain != Domain::UNIX {
        socket.set_tcp_nodelay(true)?;
    }
    let until = Instant::now() + WAIT_MAX;
    loop {
        let made = socket.connect(&address);
        // A unix socket exists in the file system a moment before it listens.
        if domain != Domain::UNIX || made.is_ok() || Instant::now() > until {
            return Ok((socket, made));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A socket at a port that no client of this run has had. Clients are told apart by their ports, and a connection that is not bound
/// before it is made may get the port of another one that goes to another address.
fn bound(domain: Domain, from: Option<&str>, taken: &[u16]) -> std::io::Result<Socket> {
    let any =
        if domain == Domain::IPV6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
    let from = from.map(str::parse::<IpAddr>).transpose().map_err(std::io::Error::other)?.unwrap_or(any);
    let mut passed_over = Vec::new();
    loop {
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
        if !taken.contains(&socket.local_addr()?.as_socket().map_or(0, |address| address.port())) {
            return Ok(socket);
        }
        // Kept until another is found, which thus gets another port.
        passed_over.push(socket);
    }
}

fn act(link: &Link, step: &Step) {
    match step {
        Step::Send(bytes) => {
            link.world().change(|state| {
                let past = &mut state.links[link.index];
                if !past.is_http2 {
                    past.methods.extend(http::methods(bytes));
                }
            });
            link.send(bytes);
        }
        Step::Expect(count) => {
            for _ in 0..*count {
                link.wait("for a response", response);
            }
        }
        Step::Until(text) => {
            link.wait("for a text", |past| {
                let at = http::find(&past.received[past.seen..], text)?;
                past.seen += at + text.len();
                Some(())
            });
        }
        Step::GreetHttp2 => {
            link.world().change(|state| state.links[link.index].is_http2 = true);
            link.send(&http2::greeting());
        }
        Step::StreamBegan(stream) => {
            http2_event(link, "for the head of a response", |bytes| http2::has_begun(bytes, *stream))
        }
        Step::StreamDone(stream) => {
            http2_event(link, "for the end of a stream", |bytes| http2::has_ended(bytes, *stream))
        }
        Step::Ponged => http2_event(link, "for PING", http2::has_ponged),
        Step::Hear => link.hear(),
        Step::WaitClose => _ = link.wait("for the end of the connection", |past| past.end),
        Step::Shutdown => link.shutdown(),
        Step::Close => link.close(),
        Step::Reset => link.reset(),
        Step::Connect { .. }
        | Step::Read
        | Step::ReadHead
        | Step::Reply
        | Step::Echo
        | Step::TakeRequest { .. }
        | Step::OnRequest(_)
        | Step::SendFrames(_)
        | Step::Serve => link.fault("this step is for origins"),
        step => {
            if let Some(fault) = link.world().await_event(step) {
                link.fault(&fault);
            }
        }
    }
}

/// Waits for something that came, or for the end of the connection.
fn http2_event(link: &Link, what: &str, happened: impl Fn(&[u8]) -> bool) {
    link.wait(what, |past| (past.end.is_some() || happened(&past.received)).then_some(()));
}

/// The next final response is complete, or nothing more can come.
fn response(past: &mut Past) -> Option<()> {
    loop {
        let method = past.methods.get(past.answered).map_or("GET", String::as_str);
        match http::response(&past.received[past.seen..], method) {
            (Extent::Complete(size), interim) => {
                past.seen += size;
                if !interim {
                    past.answered += 1;
                    return Some(());
                }
            }
            _ => {
                past.end?;
                past.seen = past.received.len();
                return Some(());
            }
        }
    }
}
