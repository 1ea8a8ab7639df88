//! One core with one `listen` section, for tests.

#![allow(clippy::disallowed_methods, reason = "a test is outside of the event loop and has its own time")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_model::{Address, Bind, BindOptions, CpuMap, Mode, Model, Proxy, Role, Server, Source};
use baton_proxy::generation::OpenListener;
use baton_proxy::{Command, Generation, ListenerId, Registry, Workers};
use baton_rules::{CompiledRules, Files, NoFiles};
use baton_tls::{Acceptor, Connectors};

/// A core that serves one `listen` section.
pub struct Served {
    pub workers: Workers,
    pub registry: Arc<Registry>,
    pub address: SocketAddr,
    listening: OwnedFd,
    pub runtime: tokio::runtime::Runtime,
    generation: Option<Arc<Generation>>,
    /// The sockets, as the change path holds them while their address is in the configuration.
    shards: Option<Arc<[OwnedFd]>>,
    bufsize: usize,
    tls: Option<Arc<Acceptor>>,
    options: BindOptions,
    /// `maxsslconn`, from the next configuration on.
    #[allow(dead_code, reason = "not every test's setting")]
    pub maxsslconn: Option<u32>,
}

impl Served {
    /// With buffers of the usual size, and clients that speak plainly.
    #[allow(dead_code, reason = "not every test's setting")]
    pub fn new(proxy: Proxy) -> Served {
        Served::start(proxy, 16384, None, BindOptions::default())
    }

    /// With buffers of another size than the usual one.
    #[allow(dead_code, reason = "not every test's setting")]
    pub fn with_buffers(proxy: Proxy, bufsize: usize) -> Served {
        Served::start(proxy, bufsize, None, BindOptions::default())
    }

    /// With TLS for its clients, or without, and options of the `bind`.
    pub fn start(proxy: Proxy, bufsize: usize, tls: Option<Arc<Acceptor>>, options: BindOptions) -> Served {
        let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listening.set_nonblocking(true).expect("non-blocking");
        let address = listening.local_addr().expect("bound");
        let registry = Arc::new(Registry::new(1, Instant::now()));
        let workers = Workers::start(1, registry.clone(), bufsize, &CpuMap::new()).expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let listening = listening.into();
        let (generation, shards, maxsslconn) = (None, None, None);
        let mut served = Served {
            workers,
            registry,
            address,
            listening,
            runtime,
            generation,
            shards,
            bufsize,
            tls,
            options,
            maxsslconn,
        };
        served.apply(proxy);
        served
    }

    /// Another certificate, from the next configuration on.
    #[allow(dead_code, reason = "not every test's setting")]
    pub fn encrypt(&mut self, tls: Acceptor) {
        self.tls = Some(Arc::new(tls));
    }

    pub fn apply(&mut self, mut proxy: Proxy) {
        let name = proxy.name.clone();
        let bind = Bind {
            address: Address::Inet(self.address),
            name: None,
            id: None,
            options: self.options.clone(),
            source: Source::default(),
        };
        proxy.binds = vec![bind.clone()];
        let shards: Arc<[OwnedFd]> = vec![self.listening.try_clone().expect("a descriptor")].into();
        self.shards = Some(shards.clone());
        let listener = OpenListener { id: ListenerId(1), frontend: name, bind, shards, tls: self.tls.clone() };
        let mut model = Model { proxies: vec![Arc::new(proxy)], ..Model::default() };
        model.global.bufsize = self.bufsize;
        model.global.maxsslconn = self.maxsslconn;
        let model = Arc::new(model);
        let now = Instant::now();
        let before = self.generation.as_deref();
        let asked = (model, &CompiledRules::default());
        let files = (&NoFiles as &dyn Files, Connectors::default());
        let mut generation = Generation::prepare(before, asked, 1000, &self.registry, files, now).expect("valid");
        generation.listen(vec![listener], &self.registry);
        let generation = generation.commit(before, &self.registry, now);
        self.generation = Some(generation.clone());
        self.runtime.block_on(self.workers.command(Command::Apply(generation)));
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the proxy listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        stream
    }

    pub fn end(mut self) {
        self.runtime.block_on(self.workers.command(Command::Abort));
        self.workers.join();
    }
}

/// A server at an address.
pub fn server(name: &str, address: SocketAddr) -> Arc<Server> {
    Arc::new(Server::new(name, 1, Address::Inet(address)))
}

/// A `listen` section with one server.
pub fn listen(mode: Mode, origin: SocketAddr) -> Proxy {
    let mut proxy = Proxy::new("web", Role::Listen);
    proxy.mode = mode;
    proxy.servers = vec![server("s1", origin)];
    proxy.timeouts.connect = Some(Duration::from_secs(5));
    proxy
}

/// Waits for what comes by itself.
#[allow(dead_code, reason = "not every test waits")]
#[track_caller]
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
