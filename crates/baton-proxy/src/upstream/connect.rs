//! Opening a connection to a server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use baton_kernel::Endpoint;
use baton_kernel::connect::{self, ConnectOptions, Started};
use baton_model::{Address, Level, Proxy, ProxyProtocol, Server};
use baton_tls::{Facts, Failure, is_wrong_name, rustls};

use crate::accept::{Addresses, write_header};
use crate::balance::Slot;
use crate::core::{Core, Interrupt, Session, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase};
use crate::state::Counter;
use crate::stream::{Broken, Stream};
use crate::upstream::{Agreed, Connection};

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectFailed {
    /// Another attempt, perhaps on another server, may succeed.
    Retry(Ended),
    /// No attempt can: the process ends, or the fault is ours.
    Final(Ended),
    /// No attempt can: the server's certificate is not for the name that it was asked for.
    WrongName(Ended),
}

/// One attempt to get a new connection to the server of a slot.
pub struct Opening<'a> {
    /// Whose thread it is.
    pub core: &'a Core,
    /// The client's session, which may be cut.
    pub session: &'a Session,
    /// The backend.
    pub backend: &'a Proxy,
    /// Where the client came from and what it connected to.
    pub client: &'a Addresses,
    /// The permission, with the server's settings.
    pub slot: &'a Slot,
    /// Bytes of the client are there, to be sent as soon as there is a connection.
    pub has_data: bool,
    /// Counts at the server and its backend.
    pub count: &'a dyn Fn(Counter),
}

impl Opening<'_> {
    /// Connects, sends a PROXY header if the server wants one, and agrees on TLS where that is spoken, asking for `name`: all
    /// within `timeout connect`.
    ///
    /// # Errors
    /// Says whether another attempt is worth it.
    pub async fn open(&self, deadline: &mut Deadline, name: Option<Box<str>>) -> Result<Connection, ConnectFailed> {
        let mut stream = self.connect(deadline).await?;
        self.introduce(&mut stream, deadline).await?;
        let encryption = self.encrypt(&mut stream, deadline, name.as_deref()).await?;
        let server = self.slot.server().clone();
        let (config, idle_since) = (self.slot.config().clone(), self.core.now());
        Ok(Connection { stream, server, config, encryption, name, requests: 0, private: false, idle_since })
    }

    async fn connect(&self, deadline: &mut Deadline) -> Result<Stream, ConnectFailed> {
        let Opening { core, backend, client, .. } = self;
        let config = self.slot.config();
        let ours = || ConnectFailed::Final(Ended::new(Cause::Internal, Phase::Connect));
        let peer = endpoint(config, client).ok_or_else(ours)?;
        let options = ConnectOptions { fast_open: self.may_open_fast(), ..options(config, backend, client) };
        let started = connect::start(&peer, &options).map_err(|failed| {
            if failed.is_ours() {
                core.log.trouble(&format!("server {}/{}: {failed}", backend.name, config.name));
                ConnectFailed::Final(Ended::refused(Cause::Resource, Phase::Connect, 503))
            } else {
                refused()
            }
        })?;
        let established = matches!(started, Started::Connected(_));
        let stream = watch(started.into_fd()).map_err(|_| ours())?;
        if backend.tcp.no_linger {
            stream.reset_on_close();
        }
        deadline.set(backend.timeouts.connect.map(|limit| core.now() + limit));
        if established {
            return Ok(stream);
        }
        match until(core, self.session, deadline, |cx| stream.poll_connected(cx)).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(_)) => Err(refused()),
            Err(interrupt) => Err(interrupted(interrupt)),
        }
    }

    /// Whether the server is to get our first bytes with the SYN (`tfo`). Who would wait for the server's bytes first would wait
    /// for ever: the SYN goes with ours.
    fn may_open_fast(&self) -> bool {
        let config = self.slot.config();
        let sends_first = self.has_data || config.send_proxy != ProxyProtocol::Off || self.slot.encryption().is_some();
        config.tfo && sends_first
    }

    /// The PROXY header.
    async fn introduce(&self, stream: &mut Stream, deadline: &mut Deadline) -> Result<(), ConnectFailed> {
        let mut header = Vec::new();
        write_header(self.slot.config().send_proxy, self.client, &mut header);
        let mut sent = 0;
        while sent < header.len() {
            match until(self.core, self.session, deadline, |cx| stream.poll_write(cx, &header[sent..])).await {
                Ok(Ok(count)) => sent += count,
                Ok(Err(_)) => return Err(refused()),
                Err(interrupt) => return Err(interrupted(interrupt)),
            }
        }
        Ok(())
    }

    async fn encrypt(
        &self,
        stream: &mut Stream,
        deadline: &mut Deadline,
        asked: Option<&str>,
    ) -> Result<Option<Agreed>, ConnectFailed> {
        let Opening { core, session, backend, slot, count, .. } = *self;
        let Some(wanted) = slot.encryption() else { return Ok(None) };
        let failed = |failure: Failure| {
            count(Counter::TlsFailures);
            complain(core, slot, backend, &failure);
        };
        let unwilling = |error: rustls::Error, refusal| {
            failed(Failure::of(&error, refusal));
            unwilling(&error, asked)
        };
        let begun = wanted.begin(stream, asked, core.records.clone()).map_err(|error| unwilling(error, None))?;
        let agreed = Agreed::new(Arc::clone(wanted), &begun);
        match until(core, session, deadline, |cx| stream.poll_handshake(cx)).await {
            Ok(Ok(())) => stream.note_facts(|agreed| Facts::of(agreed, asked, begun.identity)),
            Ok(Err(broken)) => {
                let failure = match broken {
                    Broken::Protocol(error, refusal) => return Err(unwilling(error, refusal)),
                    Broken::Closed => Failure::closed(),
                    Broken::Socket(error) => Failure::broken(&error),
                };
                failed(failure);
                return Err(refused());
            }
            Err(Interrupt::Timeout) => {
                failed(Failure::late());
                return Err(interrupted(Interrupt::Timeout));
            }
            Err(Interrupt::Abort) => return Err(interrupted(Interrupt::Abort)),
        }
        if let Some(facts) = stream.facts() {
            count(Counter::TlsSessions);
            if facts.resumed {
                count(Counter::TlsResumed);
            }
            slot.server().handshake_done();
        }
        Ok(Some(agreed))
    }
}

/// Says why there is no handshake with a server, once for as long as it stays the reason: to standard error and to its backend's
/// log, as health checks do.
#[cold]
fn complain(core: &Core, slot: &Slot, backend: &Proxy, failure: &Failure) {
    const WARNING: Level = Level(4);
    let reason = failure.to_string();
    if !slot.server().handshake_failed(&reason, core.now()) {
        return;
    }
    let text = format!(
        "Server {}/{}: TLS handshake failed: {reason}: {}.",
        backend.name,
        slot.config().name,
        failure.remedy()
    );
    core.log.trouble(&text);
    core.log.line(&core.log.sinks(&backend.logging), WARNING, |line| line.extend_from_slice(text.as_bytes()));
}

/// There is no handshake. With the wrong name for what was asked there will never be one, as HAProxy sees it.
fn unwilling(error: &rustls::Error, asked: Option<&str>) -> ConnectFailed {
    match is_wrong_name(error) && asked.is_some() {
        true => ConnectFailed::WrongName(Ended::new(Cause::ServerAborted, Phase::Connect)),
        false => refused(),
    }
}

fn refused() -> ConnectFailed {
    ConnectFailed::Retry(Ended::new(Cause::ServerAborted, Phase::Connect))
}

fn interrupted(interrupt: Interrupt) -> ConnectFailed {
    match interrupt {
        Interrupt::Timeout => ConnectFailed::Retry(Ended::new(Cause::ServerTimeout, Phase::Connect)),
        Interrupt::Abort => ConnectFailed::Final(Ended::aborted(Phase::Connect)),
    }
}

fn watch(fd: OwnedFd) -> io::Result<Stream> {
    Stream::new(fd.into())
}

/// The address to connect to. A server without an address gets what the client connected to; one without a port the
/// client's destination port.
fn endpoint(config: &Arc<Server>, client: &Addresses) -> Option<Endpoint> {
    let port_of = |port: u16| match (config.address.port_offset, client.destination) {
        (Some(offset), Some(destination)) => {
            u16::try_from(i32::from(destination.port()) + offset).ok().filter(|port| *port > 0)
        }
        (None, Some(destination)) if port == 0 => Some(destination.port()),
        _ => Some(port),
    };
    match &config.address.address {
        Some(Address::Inet(address)) => Some(Endpoint::Inet(SocketAddr::new(address.ip(), port_of(address.port())?))),
        Some(Address::Unix(path)) => Some(Endpoint::Unix(path.clone())),
        Some(Address::Abstract(name)) => Some(Endpoint::Abstract(name.clone().into_bytes())),
        Some(Address::Fd(_)) => None,
        None => client.destination.map(Endpoint::Inet),
    }
}

fn options(config: &Server, backend: &Proxy, client: &Addresses) -> ConnectOptions {
    let mut options = ConnectOptions {
        nodelay: true,
        user_timeout: config.tcp_user_timeout_ms.map(|ms| Duration::from_millis(u64::from(ms))),
        keepalive: backend.tcp.server_keepalive.then(Default::default),
        ..ConnectOptions::default()
    };
    if let Some(source) = config.source_address.as_ref().or(backend.source_address.as_ref()) {
        options.interface = source.interface.clone();
        let own =
            (!source.ip.is_unspecified() || source.ports.0 != 0).then(|| SocketAddr::new(source.ip, source.ports.0));
        options.source = match (source.use_client, client.source) {
            (Some(with_port), Some(address)) => {
                Some(SocketAddr::new(address.ip(), if with_port { address.port() } else { 0 }))
            }
            _ => own,
        };
        options.transparent = source.use_client.is_some();
    }
    options
}
