//! How many connections with HTTP/2 stay open that no request needs, and for how long. The time is the tests' own.

use std::net::{TcpListener, TcpStream};

use baton_http2::Config;
use baton_model::{Address, Proxy, Role};
use socket2::Socket;

use super::*;
use crate::buffer::BufferPool;
use crate::http2_server::{ConnectionMemory, ServerStream};
use crate::spare::Spare;
use crate::state::{BackendFigures, Registry};
use crate::stream::Stream;

/// A core's connections to one server.
struct Bench {
    upstreams: Rc<Upstreams>,
    server: Arc<ServerState>,
    figures: Arc<BackendFigures>,
    memory: ConnectionMemory,
    listening: TcpListener,
    /// The server's ends.
    ends: Vec<TcpStream>,
    start: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Server)) -> Bench {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut server = Server::new("s1", 1, Address::Inet(listening.local_addr().expect("bound")));
        change(&mut server);
        let mut proxy = Proxy::new("app", Role::Backend);
        proxy.servers = vec![Arc::new(server)];
        let clock = Rc::new(Clock::new());
        let start = clock.now();
        let (backend, figures) = Registry::new(1, start).backend(&Arc::new(proxy), start);
        let server = backend.server("s1").expect("it has one");
        let upstreams = Rc::new(Upstreams::new(clock.clone(), 0, 1));
        upstreams.idle_max.set(1000);
        // Swept by hand.
        upstreams.sweeping.set(true);
        upstreams.counters(&server, start, || figures.server("s1"));
        let (buffers, outs, heads) = (BufferPool::new(1024), Spare::new(1), Spare::new(1));
        let memory =
            ConnectionMemory { core: 0, clock, buffers: Rc::new(buffers), outs: Rc::new(outs), heads: Rc::new(heads) };
        Bench { upstreams, server, figures, memory, listening, ends: Vec::new(), start }
    }

    /// A new connection, with a request.
    fn connect(&mut self, is_private: bool) -> ServerStream {
        let socket = TcpStream::connect(self.listening.local_addr().expect("bound")).expect("it listens");
        socket.set_nonblocking(true).expect("open");
        self.ends.push(self.listening.accept().expect("connected").0);
        let connection = ServerConnection {
            stream: Stream::accepted(Socket::from(socket)),
            server: self.server.clone(),
            config: self.server.config(),
            protocol: None,
            encryption: None,
            name: None,
            client: None,
            requests: 0,
            private: false,
            is_last: false,
            idle_since: self.start,
        };
        let terms = (is_private, None);
        let server = Http2Server::begin(connection, &Config::default(), &self.figures, terms, self.memory.clone());
        self.upstreams.add_http2(&server);
        server.lend()
    }

    /// A request has ended as it should.
    fn rest(&self, stream: ServerStream) {
        let server = stream.server().clone();
        drop(stream);
        self.upstreams.rests(&server);
    }

    /// The number of connections that are open, and of those that are idle, so long after the start.
    fn swept_after(&self, after: Duration) -> (usize, usize) {
        self.upstreams.sweep(self.start + after);
        self.open()
    }

    fn open(&self) -> (usize, usize) {
        let pools = self.upstreams.pools.borrow();
        let pool = &pools[&key(&self.server)];
        (pool.http2.len(), pool.idle_count())
    }
}

/// Runs a check in an event loop.
fn check(check: impl FnOnce()) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(tokio::runtime::LocalOptions::default());
    runtime.expect("a runtime").block_on(async { check() });
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn half_of_the_unneeded_are_closed_each_time_that_the_delay_is_over() {
    check(|| {
        let mut bench = Bench::new(|server| server.pool_purge_delay = 5 * SECOND);
        let streams: Vec<_> = (0..5).map(|_| bench.connect(false)).collect();
        let mut streams = streams.into_iter();
        let in_use = streams.next();
        streams.for_each(|stream| bench.rest(stream));
        let seen = [0, 4, 6, 9, 12, 18, 24].map(|second| bench.swept_after(second * SECOND));
        assert_eq!(seen, [(5, 4), (5, 4), (3, 2), (3, 2), (2, 1), (1, 0), (1, 0)]);
        drop(in_use);
        assert_eq!(bench.open(), (1, 1));
        assert_eq!(bench.swept_after(60 * SECOND), (0, 0));
    });
}

#[test]
fn no_more_are_idle_than_may_be() {
    check(|| {
        let mut bench = Bench::new(|server| server.pool_max_conn = 2);
        let mut streams: Vec<_> = (0..5).map(|_| bench.connect(false)).collect();
        let private = bench.connect(true);
        let gone = streams.pop();
        for expect in [(6, 1), (6, 2), (5, 2), (4, 2)] {
            bench.rest(streams.pop().expect("one is left"));
            assert_eq!(bench.open(), expect);
        }
        // That of one client is another matter.
        bench.rest(private);
        assert_eq!(bench.open(), (4, 2));
        // Its request has ended early.
        drop(gone);
        assert_eq!(bench.open(), (4, 3));
        assert_eq!(bench.swept_after(Duration::ZERO), (3, 2));
        // The process has fewer descriptors left.
        bench.upstreams.idle_max.set(1);
        assert_eq!(bench.swept_after(Duration::ZERO), (2, 1));
    });
}

#[test]
fn none_is_kept_where_the_configuration_says_so() {
    let changes: [fn(&mut Server); 2] =
        [|server| server.pool_max_conn = 0, |server| server.pool_purge_delay = Duration::ZERO];
    for change in changes {
        check(|| {
            let mut bench = Bench::new(change);
            let (one, other) = (bench.connect(false), bench.connect(false));
            bench.rest(one);
            assert_eq!(bench.open(), (1, 0));
            drop(other);
            assert_eq!(bench.swept_after(Duration::ZERO), (0, 0));
        });
    }
}

#[test]
fn a_connection_is_used_again_as_often_as_it_may_be() {
    check(|| {
        let mut bench = Bench::new(|server| server.max_reuse = Some(2));
        let first = bench.connect(false);
        let server = first.server().clone();
        let others: Vec<_> = std::iter::from_fn(|| server.has_room().then(|| server.lend())).take(9).collect();
        assert_eq!(others.len(), 2);
        bench.rest(first);
        assert_eq!(bench.open(), (1, 0));
        drop(others);
        assert!(!server.is_usable());
        assert_eq!(bench.swept_after(Duration::ZERO), (0, 0));
    });
}
