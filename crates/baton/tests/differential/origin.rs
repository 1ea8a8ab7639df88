//! The origins: listening sockets whose connections follow the case's script, or answer each request in the default way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::case::{Case, Response, Then};
use crate::http::{self, Extent};
use crate::http2_origin::{self, Answer};
use crate::places::{Place, Places};
use crate::script::Step;
use crate::world::{Link, World};

/// The accepting threads of a run.
pub struct Origins {
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

/// What all connections of one origin share.
pub struct Origin {
    pub name: String,
    responses: Vec<Response>,
    /// It speaks HTTP/2 if it has any, or a script.
    pub answers: Vec<Answer>,
    scripts: Vec<Vec<Step>>,
    pub world: Arc<World>,
}

impl Origins {
    /// Starts to accept at every origin of `places`.
    pub fn start(case: &Case, places: &mut Places, world: &Arc<World>) -> Origins {
        let listeners: BTreeMap<String, Socket> = std::mem::take(&mut places.origins);
        let addresses = listeners
            .keys()
            .filter_map(|name| match places.by_name.get(name) {
                Some(Place::Inet(address)) => Some(*address),
                _ => None,
            })
            .collect();
        let threads = listeners
            .into_iter()
            .map(|(name, listener)| {
                let origin = Arc::new(Origin {
                    responses: case.responses.iter().filter_map(|one| own(&name, one)).collect(),
                    answers: case.http2_answers.iter().filter_map(|one| own(&name, one)).collect(),
                    scripts: case
                        .origins
                        .iter()
                        .filter(|(of, _)| *of == name)
                        .map(|(_, steps)| steps.clone())
                        .collect(),
                    name,
                    world: world.clone(),
                });
                thread::spawn(move || origin.accept_all(&listener))
            })
            .collect();
        Origins { threads, addresses }
    }

    /// Waits until everything that reached the origins has been read. Called when the program is gone: a connection of our own comes
    /// after all of its connections.
    pub fn finish(self, world: &World) {
        let mut last = Vec::new();
        for address in &self.addresses {
            // Bound first, so that the accepting side can know the port before it sees the connection.
            let made = || -> std::io::Result<Socket> {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0))))?;
                let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
                world.change(|state| state.last_ports.push(port));
                socket.connect(&SockAddr::from(*address))?;
                Ok(socket)
            };
            last.push(made());
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        drop(last);
    }
}

/// What is for the origin of this name.
fn own<T: Clone>(name: &str, (of, what): &(String, T)) -> Option<T> {
    (of == name).then(|| what.clone())
}

impl Origin {
    fn accept_all(self: Arc<Self>, listener: &Socket) {
        let mut connections = Vec::new();
        while let Ok((socket, peer)) = listener.accept() {
            let port = peer.as_socket().map_or(0, |address| address.port());
            if self.world.lock().last_ports.contains(&port) {
                break;
            }
            let number = self.world.lock().origins.get(&self.name).map_or(0, Vec::len);
            let link = self.world.adopt(socket, port, |state, index| {
                state.origins.entry(self.name.clone()).or_default().push(index);
            });
            let origin = self.clone();
            connections.push(thread::spawn(move || origin.serve(&link, number)));
        }
        for connection in connections {
            let _ = connection.join();
        }
    }

    fn serve(&self, link: &Link, number: usize) {
        link.hear();
        match self.scripts.get(number).or(self.scripts.last()) {
            Some(steps) => {
                for step in steps {
                    self.step(link, step);
                }
            }
            None if !self.answers.is_empty() => {
                http2_origin::greet(link);
                self.serve_http2(link);
            }
            None => while self.read(link) && self.reply(link) {},
        }
        // Keep the connection until the other side or the run ends.
        while link.world().wait(|state| state.links[link.index].end.map(|_| ())).is_none()
            && link.world().lock().over.is_none()
        {}
        link.close();
    }

    pub fn step(&self, link: &Link, step: &Step) {
        match step {
            Step::GreetHttp2 => http2_origin::greet(link),
            Step::TakeRequest { whole } => {
                if !self.take_http2(link, *whole) {
                    link.fault("for a request");
                }
            }
            Step::OnRequest(number) => link.world().change(|state| {
                let past = &mut state.links[link.index];
                past.current = past.requests.get(number - 1).copied().unwrap_or_default();
            }),
            Step::SendFrames(bytes) => http2_origin::send(link, bytes),
            Step::Serve => self.serve_http2(link),
            Step::Reply if self.world.lock().links[link.index].is_http2 => self.reply_http2(link),
            Step::Send(bytes) => link.send(bytes),
            Step::Read => _ = self.read(link),
            Step::ReadHead => {
                let read = link.wait("for a request's head", |past| {
                    let start = past.seen + if past.seen == 0 { http::proxy_header(&past.received)? } else { 0 };
                    let head = http::head(&past.received[start..])?;
                    past.seen = start + head;
                    Some(())
                });
                if read.is_some() {
                    self.count(link);
                }
            }
            Step::Reply => _ = self.reply(link),
            Step::Echo => echo(link),
            Step::Until(text) => {
                _ = link.wait("for a text", |past| {
                    let at = http::find(&past.received[past.seen..], text)?;
                    past.seen += at + text.len();
                    Some(())
                })
            }
            Step::WaitClose => _ = link.wait("for the end of the connection", |past| past.end),
            Step::Shutdown => link.shutdown(),
            Step::Close => link.close(),
            Step::Reset => link.reset(),
            Step::Connect { .. } | Step::Expect(_) | Step::Hear => link.fault("this step is for clients"),
            step => {
                if let Some(fault) = link.world().await_event(step) {
                    link.fault(&fault);
                }
            }
        }
    }

    /// Waits for one complete request; false at the end of the connection.
    fn read(&self, link: &Link) -> bool {
        loop {
            let read = link.world().wait(|state| {
                let past = &mut state.links[link.index];
                let start =
                    past.seen + if past.seen == 0 { http::proxy_header(&past.received).unwrap_or(0) } else { 0 };
                match http::request(&past.received[start..]) {
                    Extent::Complete(size) => {
                        past.seen = start + size;
                        Some(true)
                    }
                    _ => past.end.map(|_| false),
                }
            });
            match read {
                Some(true) => {
                    self.count(link);
                    return true;
                }
                Some(false) => return false,
                None if link.world().lock().over.is_some() => return false,
                None => {}
            }
        }
    }

    fn count(&self, link: &Link) {
        if !is_check(&self.latest(link)) {
            self.world.change(|state| *state.requests.entry(self.name.clone()).or_default() += 1);
        }
    }

    /// The bytes up to where we have read, from the latest request's first byte on.
    fn latest(&self, link: &Link) -> Vec<u8> {
        let state = self.world.lock();
        let past = &state.links[link.index];
        let mut start = http::proxy_header(&past.received).unwrap_or(0);
        while let Extent::Complete(size) = http::request(&past.received[start..past.seen.max(start)]) {
            if size == 0 || start + size >= past.seen {
                break;
            }
            start += size;
        }
        past.received[start..past.seen.max(start)].to_vec()
    }

    /// Answers the latest request; false when that ended the connection.
    fn reply(&self, link: &Link) -> bool {
        let request = self.latest(link);
        let number = self.world.lock().requests.get(&self.name).copied().unwrap_or(1).max(1);
        let scripted = self.responses.get(number - 1).or(self.responses.last());
        let then = match scripted {
            Some(response) if !is_check(&request) => {
                link.send(&response.bytes);
                response.then
            }
            _ => {
                link.send(&self.default_answer(&request));
                if http::asks_to_close(&request) { Then::Close } else { Then::Keep }
            }
        };
        match then {
            Then::Keep => return true,
            Then::Close => link.close(),
            Then::Reset => link.reset(),
        }
        false
    }

    fn default_answer(&self, request: &[u8]) -> Vec<u8> {
        let line =
            String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let body = format!("{} {method} {target}\n", self.name);
        let head = format!("HTTP/1.1 200 OK\r\nX-Origin: {}\r\nContent-Length: {}\r\n\r\n", self.name, body.len());
        if method == "HEAD" { head.into_bytes() } else { (head + &body).into_bytes() }
    }
}

/// Whether `request` is a health check that follows no script: it is not counted and gets the default answer.
fn is_check(request: &[u8]) -> bool {
    has_target(request, b" /check")
}

/// Whether `request` is a health check, scripted (`/health`) or not.
pub fn is_any_check(request: &[u8]) -> bool {
    has_target(request, b" /check") || has_target(request, b" /health")
}

fn has_target(request: &[u8], target: &[u8]) -> bool {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    http::find(line, target).is_some()
}

fn echo(link: &Link) {
    loop {
        let part = link.world().wait(|state| {
            let past = &mut state.links[link.index];
            let fresh = past.received[past.seen..].to_vec();
            past.seen = past.received.len();
            if fresh.is_empty() { past.end.map(|_| None) } else { Some(Some(fresh)) }
        });
        match part {
            Some(Some(fresh)) => link.send(&fresh),
            Some(None) => break,
            None if link.world().lock().over.is_some() => break,
            None => {}
        }
    }
    link.close();
}
