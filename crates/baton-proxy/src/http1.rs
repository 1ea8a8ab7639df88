//! HTTP/1 makes exchanges of a connection: one after the other, as long as it is kept.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use baton_http::{Framing, Method};

use crate::buffer::Buffer;
use crate::client::Client;
use crate::core::{Core, Interrupt, Order, poll_until};
use crate::exchange::Exchange;
use crate::http2::{self, StreamTasks};
use crate::messages::Messages;
use crate::moving::{MovedTunnel, StayReason};
use crate::relay::in_flight;
use crate::request;
use crate::respond::Ending;
use crate::runner::Runner;
use crate::spare::Spare;
use crate::supervise;

/// Places of finished requests that are kept for the next ones.
const RUNNERS_KEPT_MAX: usize = 4096;
/// How often half of the memory is freed that was not needed since.
const THIN: Duration = Duration::from_secs(1);

/// The request path of one core.
#[derive(Debug)]
pub struct Line {
    /// The core.
    pub core: Rc<Core>,
    /// Places for the futures of requests.
    runners: Spare<Runner<ClientWithRequest, ServedClient>>,
    /// Tasks for requests that came by HTTP/2.
    pub streams: Rc<StreamTasks>,
}

/// A client with a request.
type ClientWithRequest = (Rc<Core>, Box<Client>);
/// The client when it is served, and what follows.
type ServedClient = (Box<Client>, Next);

/// What follows a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// The next one.
    Request,
    /// Everything was read and said.
    Close,
    /// The client may still be sending.
    Linger,
    /// It was none: the connection goes on as HTTP/2.
    Http2,
}

/// What ended the wait for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Arrival {
    /// Bytes are there, or the client closed: reading tells.
    Ready,
    /// The wait took too long, or the connection was told to end.
    Over(Interrupt),
    /// The connection is to leave for another process.
    Move,
}

impl Line {
    /// The line of `core`. Frees the memory that a burst left behind, from now on.
    pub fn start(core: Rc<Core>) -> Rc<Line> {
        let line = Rc::new(Line { core, runners: Spare::new(RUNNERS_KEPT_MAX), streams: StreamTasks::new() });
        let weak = Rc::downgrade(&line);
        tokio::task::spawn_local(supervise::for_ever(move || {
            let line = weak.clone();
            async move {
                loop {
                    tokio::time::sleep(THIN).await;
                    let Some(line) = line.upgrade() else { return };
                    line.runners.thin();
                    line.streams.thin();
                    line.core.thin();
                }
            }
        }));
        line
    }
}

/// A connection that makes one exchange after the other, served to its end. Written out, because every idle connection holds it: an
/// `async fn` inside of another one would hold its line and its client twice.
///
/// ```text
/// Idle ──▶ Busy ──▶ Apart ──▶ Over
///   ◀───────┘└─────────────────▶
/// ```
pub struct Kept {
    line: Rc<Line>,
    state: KeptState,
}

enum KeptState {
    /// No request is in work.
    Idle(Box<Client>),
    /// One is, in memory that the core lends.
    Busy(Runner<ClientWithRequest, ServedClient>),
    /// The last response is sent and the client may still be sending, or it speaks HTTP/2.
    Apart(Pin<Box<dyn Future<Output = ()>>>),
    Over,
}

impl Kept {
    /// A client that was served elsewhere until now, with what is left of its wait.
    pub fn resume(line: Rc<Line>, client: Box<Client>) -> Kept {
        Kept { line, state: KeptState::Idle(client) }
    }

    /// A client whose first request comes.
    pub fn new(line: Rc<Line>, client: Box<Client>) -> Kept {
        let state = KeptState::await_request(&line, client);
        Kept { line, state }
    }
}

impl Future for Kept {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Kept { line, state } = &mut *self;
        loop {
            let is_over = match state {
                KeptState::Idle(client) if client.input.is_some() => false,
                KeptState::Idle(client) => match ready!(poll_arrival(&line.core, client, cx)) {
                    Arrival::Ready => false,
                    Arrival::Over(interrupt) => client.session.requests() > 0 || interrupt == Interrupt::Abort,
                    Arrival::Move => {
                        if let KeptState::Idle(client) = std::mem::replace(state, KeptState::Over)
                            && let Some(client) = depart(&line.core, client)
                        {
                            *state = KeptState::Idle(client);
                        }
                        continue;
                    }
                },
                KeptState::Busy(runner) => {
                    let (client, next) = ready!(runner.poll(cx));
                    if let KeptState::Busy(runner) = std::mem::replace(state, KeptState::Over) {
                        line.runners.give(runner);
                    }
                    match next {
                        Next::Request => *state = KeptState::await_request(line, client),
                        Next::Close => {}
                        Next::Linger => *state = KeptState::Apart(Box::pin(linger(line.core.clone(), client))),
                        Next::Http2 => *state = KeptState::Apart(Box::pin(http2::serve(line.streams.clone(), client))),
                    }
                    continue;
                }
                KeptState::Apart(rest) => {
                    ready!(rest.as_mut().poll(cx));
                    true
                }
                KeptState::Over => return Poll::Ready(()),
            };
            if let KeptState::Idle(client) = std::mem::replace(state, KeptState::Over)
                && !is_over
            {
                let mut runner = line.runners.take().unwrap_or_else(|| Runner::new(exchange));
                runner.begin((line.core.clone(), client));
                *state = KeptState::Busy(runner);
            }
        }
    }
}

impl KeptState {
    fn await_request(line: &Line, mut client: Box<Client>) -> KeptState {
        if client.input.is_none() {
            await_request(&line.core, &mut client);
        }
        KeptState::Idle(client)
    }
}

/// Sends a client off to the process that has taken over. It comes back when it has to stay.
#[cold]
fn depart(core: &Rc<Core>, client: Box<Client>) -> Option<Box<Client>> {
    let sent = match (client.reason_to_stay(), core.mover()) {
        (Some(reason), _) => Err(reason),
        (None, None) => Err(StayReason::NoReply),
        (None, Some(mover)) => match client.depart(core) {
            Ok(departure) => mover.send(departure).map_err(|refused| {
                client.session.put_state(core, refused.left);
                client.connection.stream.put_back(refused.tls.as_deref());
                StayReason::NoReply
            }),
            Err(_) => Err(StayReason::Descriptors),
        },
    };
    match sent {
        // Here it ends without a word: the socket is the other process's.
        Ok(()) => None,
        Err(reason) => {
            core.stays(&client.connection.membership.registered, reason);
            Some(client)
        }
    }
}

async fn linger(core: Rc<Core>, mut client: Box<Client>) {
    client.linger(&core).await;
}

/// Sets how long the client may take to send something.
fn await_request(core: &Core, client: &mut Client) {
    client.deadline.set(client.session.request_due(client.connection.accepted, core.now()));
}

/// Waits, without any memory, until the client sends something.
fn poll_arrival(core: &Core, client: &mut Client, cx: &mut Context<'_>) -> Poll<Arrival> {
    let Client { connection, deadline, .. } = client;
    let event = |cx: &mut Context<'_>| match connection.orders().order() {
        Order::CloseIdle => Poll::Ready(Arrival::Over(Interrupt::Abort)),
        Order::Move => Poll::Ready(Arrival::Move),
        Order::Run | Order::MoveLater | Order::Abort => connection.stream.poll_readable(cx).map(|()| Arrival::Ready),
    };
    poll_until(core, connection.orders(), deadline, cx, event).map(|arrival| arrival.unwrap_or_else(Arrival::Over))
}

/// Serves one request, with memory that the core lends.
async fn exchange((core, mut client): ClientWithRequest) -> ServedClient {
    let messages = core.messages(client.take_input().unwrap_or_else(|| core.buffers.take()));
    let mut exchange = Exchange::of_http(&core, client.origin().0, messages);
    exchange.take_handed_on();
    let ending = request::serve(&core, &mut exchange).await;
    let next = end(&core, &mut exchange, ending);
    core.rest(exchange.messages).into_iter().for_each(|input| client.keep_input(input));
    (client, next)
}

/// Goes on with a client whose request was in flight in another process.
pub async fn resume(line: Rc<Line>, mut client: Box<Client>, tunnel: MovedTunnel) {
    let core = line.core.clone();
    let Some((input, next)) = Box::pin(resume_exchange(&core, &mut client, tunnel)).await else { return };
    input.into_iter().for_each(|input| client.keep_input(input));
    match next {
        Next::Request => Kept::new(line, client).await,
        Next::Close | Next::Http2 => {}
        Next::Linger => client.linger(&core).await,
    }
}

/// The request to its end. `None`: it cannot be gone on with.
async fn resume_exchange(core: &Rc<Core>, client: &mut Client, tunnel: MovedTunnel) -> Option<(Option<Buffer>, Next)> {
    let MovedTunnel { state, socket, tls, slot } = tunnel;
    let messages = core.messages(core.buffers.take());
    let mut exchange = Exchange::of_http(core, client.origin().0, messages);
    exchange.take_handed_on();
    let backend = exchange.resume_at(core, (&state.backend, &slot), state.facts)?;
    let request = (*state.request?, state.active);
    let parked = in_flight::arrive(core, &mut exchange, &backend, &slot, request, (socket, tls))?;
    let ending = request::resume(core, &mut exchange, &backend, slot, parked).await;
    let next = end(core, &mut exchange, ending);
    Some((core.rest(exchange.messages), next))
}

/// The end of an exchange: how the connection goes on.
fn end(core: &Core, exchange: &mut Exchange<'_>, ending: Ending) -> Next {
    let next = next(&exchange.messages, ending);
    match next {
        Next::Request => {}
        Next::Http2 => exchange.session.uncount_request(),
        Next::Close | Next::Linger => {
            exchange.connection.membership.leave();
            exchange.session.untrack();
        }
    }
    exchange.connection.orders().notes.rests();
    exchange.session.rests(exchange.connection.accepted, core.now());
    exchange.end(core);
    next
}

/// How to go on after a response. A client that did not ask for the end may have sent its next request already: closing with bytes
/// unread would reset the connection, and what it has not read of the response would be lost.
fn next(messages: &Messages, ending: Ending) -> Next {
    let unread = match ending {
        Ending::Kept => return Next::Request,
        Ending::Broken if messages.is_http2 => return Next::Http2,
        Ending::Broken | Ending::Left => return Next::Close,
        Ending::Closed { unread } => unread,
    };
    let is_unasked = messages.request.keep_alive() || messages.request.method == Method::Connect;
    let may_send_more = is_unasked && messages.response.framing != Framing::Tunnel;
    if unread || may_send_more { Next::Linger } else { Next::Close }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use baton_model::{Address, Bind, BindOptions, Mode, Model, Proxy, Role, Rule, Ruleset, Server, Source};
    use baton_rules::{CompiledRules, Files, NoFiles};
    use baton_tls::Connectors;

    use super::*;
    use crate::clock::Clock;
    use crate::connection::{Connection, Membership};
    use crate::deadline::Deadline;
    use crate::generation::{Generation, OpenListener};
    use crate::moving::{Arrival, Departure};
    use crate::proxy_protocol::HeaderValues;
    use crate::state::{Counter, ListenerId, Registry};

    const RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

    /// An origin of so many requests, one on each connection. Their heads, in the end.
    fn origin(requests: usize) -> (SocketAddr, std::thread::JoinHandle<Vec<String>>) {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listening.local_addr().expect("bound");
        let serve = move || {
            let serve_one = |_| {
                let (mut stream, _) = listening.accept().expect("the proxy connects");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a whole head");
                    head.push(byte[0]);
                }
                stream.write_all(RESPONSE.as_bytes()).expect("the proxy reads");
                (String::from_utf8(head).expect("text"), stream)
            };
            let served: Vec<_> = (0..requests).map(serve_one).collect();
            served.into_iter().map(|(head, _)| head).collect()
        };
        (address, std::thread::spawn(serve))
    }

    fn generation(registry: &Registry, origin: SocketAddr) -> Arc<Generation> {
        let mut proxy = Proxy::new("web", Role::Listen);
        proxy.mode = Mode::Http;
        proxy.servers = vec![Arc::new(Server::new("s1", 1, Address::Inet(origin)))];
        let rule = |line: &str| {
            let words = line.split(' ').map(str::to_owned).collect();
            Rule { ruleset: Ruleset::HttpRequest, words, source: Source::default() }
        };
        let lines =
            ["set-var(sess.first) path if !{ var(sess.first) -m found }", "set-header x-first %[var(sess.first)]"];
        proxy.rules.insert(Ruleset::HttpRequest, lines.map(rule).into());
        let bind = Bind {
            address: Address::Inet(([127, 0, 0, 1], 0).into()),
            name: None,
            id: None,
            options: BindOptions::default(),
            source: Source::default(),
        };
        let (id, frontend, shards): (_, _, Arc<[OwnedFd]>) = (ListenerId(1), proxy.name.clone(), Arc::new([]));
        let listener = OpenListener { id, frontend, bind, shards, tls: None };
        let model = Arc::new(Model { proxies: vec![Arc::new(proxy)], ..Model::default() });
        let (files, now) = ((&NoFiles as &dyn Files, Connectors::default()), Instant::now());
        let prepared = Generation::prepare(None, (model, &CompiledRules::default()), 10, registry, files, now);
        let mut generation = prepared.expect("valid");
        generation.listen(vec![listener], registry);
        generation.commit(None, registry, now)
    }

    /// The cores of a process, and where its clients connect.
    struct Scene {
        registry: Arc<Registry>,
        generation: Arc<Generation>,
        runtime: tokio::runtime::LocalRuntime,
        listening: TcpListener,
    }

    impl Scene {
        fn new(cores: usize, origin: SocketAddr) -> Scene {
            let registry = Arc::new(Registry::new(cores, Instant::now()));
            let generation = generation(&registry, origin);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default())
                .expect("a runtime");
            let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
            Scene { registry, generation, runtime, listening }
        }

        /// A client's end of a connection, the other one, and the client's address.
        fn connect(&self) -> (TcpStream, TcpStream, SocketAddr) {
            let peer = TcpStream::connect(self.listening.local_addr().expect("bound")).expect("it listens");
            let (socket, from) = self.listening.accept().expect("a connection");
            socket.set_nonblocking(true).expect("a socket");
            (peer, socket, from)
        }

        fn line(&self, number: usize) -> Line {
            let clock = Rc::new(Clock::new());
            let core = Rc::new(Core::new(number, self.registry.clone(), clock, Arc::default(), 16384));
            core.apply(&self.generation);
            Line { core, runners: Spare::new(1), streams: StreamTasks::new() }
        }

        fn client(&self, line: &Line, socket: TcpStream, from: SocketAddr) -> Client {
            let slot = line.core.frontend("web").expect("applied");
            let membership = enter(&line.core, &self.generation);
            Client::new(socket.into(), &from.into(), membership, slot).expect("a client")
        }
    }

    /// A place on this core for a connection of the generation's listener.
    fn enter(core: &Rc<Core>, generation: &Generation) -> Membership {
        let listener = &generation.listeners[0];
        Membership::enter(core, listener, &listener.frontend.state)
    }

    #[test]
    fn a_kept_connection_is_taken_apart_and_put_together_on_another_core() {
        let (address, origin) = origin(2);
        let scene = Scene::new(2, address);
        let Scene { registry, generation, runtime, .. } = &scene;
        let (mut peer, socket, from) = scene.connect();
        // The second request is begun, and read, before the first one is answered.
        peer.write_all(b"GET /one HTTP/1.1\r\nHost: x\r\n\r\nGET /two HT").expect("room");
        let open = || {
            let frontend = &generation.frontends[0].state;
            [&registry.open, &frontend.open, &generation.listeners[0].state.open]
                .map(|open| open.load(Ordering::Relaxed))
        };
        let heads = runtime.block_on(async {
            let (first, second) = (scene.line(0), Rc::new(scene.line(1)));
            let client = Box::new(scene.client(&first, socket, from));
            let (client, next) = exchange((first.core.clone(), client)).await;
            assert_eq!((next, open()), (Next::Request, [1; 3]));

            let Client { connection, mut session, input, deadline: _ } = *client;
            let source = connection.source();
            assert_eq!(source, from.into());
            let Connection {
                stream,
                destination,
                has_proxy_header: _,
                proxy_values: _,
                accepted,
                is_http2,
                handshake_ms: _,
                membership,
            } = connection;
            assert!(!is_http2);
            let before = membership.registered.id();
            drop((membership, session.take_private()));
            assert_eq!((open(), session.requests()), ([0; 3], 1));
            assert_eq!(input.as_ref().map(|input| input.to_vec()), Some(b"GET /two HT".to_vec()));

            let membership = enter(&second.core, generation);
            let now = membership.registered.id();
            session.slot = second.core.frontend("web").expect("applied");
            let connection = Connection::assemble(stream, source, destination, accepted, membership);
            assert_eq!(connection.source(), source, "it is still the client's");
            let client = Box::new(Client { connection, session, input, deadline: Deadline::default() });
            let (answered, mut is_answered) = tokio::sync::oneshot::channel();
            let reader = std::thread::spawn(move || {
                let mut both = vec![0; 2 * RESPONSE.len()];
                peer.write_all(b"TP/1.1\r\nHost: x\r\n\r\n").expect("the proxy reads");
                peer.read_exact(&mut both).expect("two responses");
                answered.send(()).expect("the test waits");
                assert_eq!(peer.read(&mut [0]).expect("no reset"), 0, "the connection is closed");
                String::from_utf8(both).expect("text")
            });
            let mut kept = Kept::new(second.clone(), client);
            let answered = std::future::poll_fn(|cx| {
                assert!(Pin::new(&mut kept).poll(cx).is_pending(), "it is kept");
                Pin::new(&mut is_answered).poll(cx)
            });
            answered.await.expect("two responses");
            assert_eq!(open(), [1; 3]);
            let orders = [(&first, before), (&*second, before), (&*second, now)];
            let reached = orders.map(|(line, connection)| line.core.order(connection, Order::CloseIdle));
            assert_eq!(reached, [false, false, true], "only its core knows it, and not by what it was before");
            kept.await;
            assert_eq!(reader.join().expect("the client ends"), [RESPONSE; 2].concat());
            origin.join().expect("the origin ends")
        });
        assert_eq!(open(), [0; 3]);
        assert_eq!(generation.frontends[0].state.counters.total(Counter::Requests), 2);
        let expected = ["/one", "/two"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-first: /one\r\n\r\n"));
        assert_eq!(heads, expected, "the session's variable goes on");
    }

    #[test]
    fn a_client_arrives_as_it_departed() {
        let scene = Scene::new(2, origin(0).0);
        let (_peer, socket, from) = scene.connect();
        let open = || scene.generation.frontends[0].state.open.load(Ordering::Relaxed);
        scene.runtime.block_on(async {
            let (first, second) = (scene.line(0), scene.line(1));
            let mut client = scene.client(&first, socket, from);
            let later = |ms| client.connection.accepted + Duration::from_millis(ms);
            let (now, due) = (later(1234), later(9876));
            client.session.count_request();
            client.session.rests(client.connection.accepted, now);
            client.deadline.set(Some(due));
            client.connection.handshake_ms = 7;
            client.connection.has_proxy_header = true;
            client.connection.proxy_values = Some(HeaderValues::of_bytes(b"\x05\0\x01a".to_vec()));
            client.connection.destination = OnceCell::from("192.0.2.1:80".parse().ok());
            let departure = client.depart(&first.core).expect("a descriptor");
            drop(client);
            assert_eq!((open(), departure.core), (0, 0));
            let before = departure.client.clone();
            let slot = second.core.frontend("web").expect("applied");
            let arrival = Departure { core: 1, ..departure }.back(StayReason::Full);
            let client = Client::arrive(&second.core, Arrival { stays: None, ..arrival }, slot);
            assert_eq!((open(), client.deadline.due(), client.reason_to_stay()), (1, Some(due), None));
            assert_eq!(client.session.rested(client.connection.accepted), now);
            let again = client.depart(&second.core).expect("a descriptor").client;
            assert_eq!(format!("{again:?}"), format!("{before:?}"));
            assert_eq!((before.requests, before.handshake_ms, before.source), (1, 7, Some(from)));
        });
    }

    #[test]
    fn a_client_whose_socket_cannot_be_registered_is_closed_and_counted_out() {
        let scene = Scene::new(1, origin(0).0);
        let Scene { registry, generation, runtime, .. } = &scene;
        let open = || [&registry.open, &generation.frontends[0].state.open].map(|open| open.load(Ordering::Relaxed));
        runtime.block_on(async {
            let line = Rc::new(scene.line(0));
            let (mut peer, socket, from) = scene.connect();
            // epoll refuses a descriptor that it has already (EEXIST), as it does when the user's share of watches is used up (ENOSPC).
            #[expect(
                deprecated,
                reason = "its successor is unsafe; the number outlives this watch, which is what fails the other one"
            )]
            let other = tokio::io::unix::AsyncFd::new(socket.as_raw_fd()).expect("the first one can");
            let kept = Kept::new(line.clone(), Box::new(scene.client(&line, socket, from)));
            assert_eq!(open(), [1; 2]);
            tokio::time::timeout(Duration::from_secs(10), kept).await.expect("it ends at once");
            assert_eq!(open(), [0; 2]);
            drop(other);
            assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0, "closed, and nothing said");
            let counted = generation.frontends[0].state.counters.total(Counter::Requests);
            assert_eq!(counted, 1, "as of a client that closes before it sends anything");

            // The next one is waited for: the core goes on.
            let (_peer, socket, from) = scene.connect();
            let mut kept = Kept::new(line.clone(), Box::new(scene.client(&line, socket, from)));
            let is_waiting = tokio::time::timeout(Duration::from_millis(20), &mut kept).await.is_err();
            assert!(is_waiting && open() == [1; 2]);
        });
    }
}
