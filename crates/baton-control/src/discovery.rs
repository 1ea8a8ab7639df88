//! Name servers that are asked at run time: the sockets and the time of [`baton_dns::Discovery`], on the thread of the change path, which never
//! waits for them. What follows for servers is a `Change` like any other.

mod exchange;
mod secure;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use baton_dns::{Ask, Discovery, Heard, NameServerCounters, ServerChange};
use baton_model::{Discovered, Model, NameServer, Resolvers};
use baton_proxy::Refused;
use baton_proxy::{NameRequest, Registry};
use baton_rules::Files;
use baton_tls::Connectors;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) use self::secure::SecureNameServers;

/// Responses that wait to be taken; further ones wait in their sockets.
const HEARD_MAX: usize = 1024;

/// What is asked of name servers.
pub struct NameResolver {
    discovery: Discovery,
    heard: mpsc::Receiver<Heard>,
    sender: mpsc::Sender<Heard>,
    /// Rules that ask for an address; `None` before there are any.
    requests: Option<mpsc::Receiver<NameRequest>>,
    /// Who waits for an address, by ticket.
    waiting: HashMap<u64, oneshot::Sender<Option<IpAddr>>>,
    ticket: u64,
    /// `maxconn` of name servers, and the places for connections.
    places: HashMap<SocketAddr, (usize, Arc<Semaphore>)>,
    secure: SecureNameServers,
}

/// Something happened to a name.
#[derive(Debug)]
pub enum NameEvent {
    /// A response, or the lack of one.
    Heard(Heard),
    /// A rule asks.
    Asked(NameRequest),
}

impl NameResolver {
    /// One without names.
    pub(crate) fn new(registry: &Registry) -> NameResolver {
        let (sender, heard) = mpsc::channel(HEARD_MAX);
        NameResolver {
            discovery: Discovery::default(),
            heard,
            sender,
            requests: registry.names.take_requests(),
            waiting: HashMap::new(),
            ticket: 0,
            places: HashMap::new(),
            secure: SecureNameServers::default(),
        }
    }

    /// Prepares TLS with the name servers of a configuration.
    ///
    /// # Errors
    /// All of which the words cannot work.
    pub(crate) fn prepare(
        &self,
        model: &Model,
        connectors: Connectors<'_>,
        files: &dyn Files,
    ) -> Result<SecureNameServers, Vec<Refused>> {
        self.secure.prepare(model, connectors, files)
    }

    /// Uses it from now on.
    pub(crate) fn secure(&mut self, prepared: SecureNameServers) {
        self.secure = prepared;
    }

    /// Takes up a configuration.
    pub(crate) fn apply(&mut self, model: &Model, discovered: &Discovered, now: Instant) {
        self.discovery.apply(model, discovered, now);
    }

    /// A check could not connect to a server: it may be elsewhere by now.
    pub(crate) fn unreached(&mut self, backend: &str, server: &str, now: Instant) {
        self.discovery.unreachable(backend, server, now);
    }

    /// The next thing that happens.
    pub(crate) async fn next(&mut self) -> NameEvent {
        let requests = &mut self.requests;
        let asked = async {
            match requests {
                Some(requests) => match requests.recv().await {
                    Some(request) => request,
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(heard) = self.heard.recv() => NameEvent::Heard(heard),
            request = asked => NameEvent::Asked(request),
        }
    }

    /// Takes what happened, and all that happened besides.
    pub(crate) fn take(&mut self, event: NameEvent, now: Instant) {
        match event {
            NameEvent::Heard(heard) => self.discovery.hear(heard, now),
            NameEvent::Asked(request) => self.ask(request, now),
        }
        while let Ok(heard) = self.heard.try_recv() {
            self.discovery.hear(heard, now);
        }
        while let Some(request) = self.requests.as_mut().and_then(|requests| requests.try_recv().ok()) {
            self.ask(request, now);
        }
    }

    fn ask(&mut self, request: NameRequest, now: Instant) {
        let NameRequest { resolvers, name, prefers_v6, reply } = request;
        self.ticket += 1;
        self.waiting.insert(self.ticket, reply);
        self.discovery.resolve(&resolvers, &name, prefers_v6, self.ticket, now);
    }

    /// Sends what is to be sent, and gives rules what was found for them. Has to be called within a runtime.
    pub(crate) fn step(&mut self, now: Instant) {
        let mut ids = exchange::Ids::default();
        for ask in self.discovery.step(now, &mut || ids.next()) {
            let means = exchange::Means { places: self.places(&ask), tls: self.secure.of(&ask.server) };
            tokio::spawn(exchange::run(ask, means, self.sender.clone()));
        }
        for found in self.discovery.found() {
            if let Some(reply) = self.waiting.remove(&found.ticket) {
                // A request that is gone does not want it any more.
                let _ = reply.send(found.address);
            }
        }
    }

    /// The places for connections to a name server that has `maxconn`.
    fn places(&mut self, ask: &Ask) -> Option<Arc<Semaphore>> {
        let NameServer { address, maxconn, is_stream, .. } = &ask.server;
        let count = usize::try_from(*maxconn).ok().filter(|count| *is_stream && *count > 0)?;
        let (limit, places) = self.places.entry(*address).or_insert_with(|| (0, Arc::new(Semaphore::new(0))));
        if *limit != count {
            (*limit, *places) = (count, Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))));
        }
        Some(Arc::clone(places))
    }

    /// Servers that have something else than before.
    pub(crate) fn changes(&mut self, now: Instant) -> Vec<ServerChange> {
        self.discovery.changes(now)
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.discovery.due()
    }

    /// The sections, with their name servers and what is counted of them.
    pub fn sections(&self) -> impl Iterator<Item = (&Resolvers, &[NameServerCounters])> {
        self.discovery.sections().map(|(settings, counters)| (&**settings, counters))
    }
}
