//! Opening a connection to a server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use baton_kernel::Endpoint;
use baton_kernel::connect::Started;
use baton_model::{Address, Bind, Level, Proxy, ServerProtocol, ServerTarget};
use baton_rules::RuleSettings;
use baton_tls::{Facts, Failure, is_wrong_name, rustls};

use crate::balance::Slot;
use crate::connection::Connection;
use crate::core::{Core, Interrupt, Orders, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase};
use crate::proxy_protocol::{Addresses, Introduction, write_header};
use crate::server_connection::{ServerConnection, carried};
use crate::socks4::{SOCKS4_RESPONSE_BYTES, socks4_granted, socks4_request};
use crate::state::Counter;
use crate::stream::{Broken, Stream};
use crate::upstream::Agreed;
use crate::upstream::dialer::{self, Dialer};

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
    /// What the core tells the client's connection.
    pub orders: &'a Orders,
    /// The backend.
    pub backend: &'a Proxy,
    /// The client's connection.
    pub client: &'a Connection,
    /// What rules have set, which may be other addresses than the connection's.
    pub settings: &'a RuleSettings,
    /// The permission, with the server's settings.
    pub slot: &'a Slot,
    /// Bytes of the client are there, to be sent as soon as there is a connection.
    pub has_data: bool,
    /// The exchange's unique ID, if the server is to get it in a PROXY header.
    pub unique_id: Option<&'a [u8]>,
    /// What is to be spoken, if not what the server's settings say.
    pub protocol: Option<ServerProtocol>,
    /// Counts at the server and its backend.
    pub count: &'a dyn Fn(Counter),
}

impl Opening<'_> {
    /// Connects, sends a PROXY header if the server wants one, and agrees on TLS where that is spoken, asking for `name`: all
    /// within `timeout connect`.
    ///
    /// # Errors
    /// Says whether another attempt is worth it.
    pub async fn open(
        &self,
        deadline: &mut Deadline,
        name: Option<Box<str>>,
    ) -> Result<ServerConnection, ConnectFailed> {
        let mut stream = self.connect(deadline).await?;
        self.pass_socks(&mut stream, deadline).await?;
        self.introduce(&mut stream, deadline).await?;
        let encryption = self.encrypt(&mut stream, deadline, name.as_deref()).await?;
        let server = self.slot.server().clone();
        let (config, idle_since) = (self.slot.config().clone(), self.core.now());
        let client = carried(&config, self.backend, || self.addresses()).map(Box::new);
        Ok(ServerConnection {
            stream,
            server,
            config,
            protocol: self.protocol,
            encryption,
            name,
            client,
            requests: 0,
            private: false,
            is_last: false,
            idle_since,
        })
    }

    async fn connect(&self, deadline: &mut Deadline) -> Result<Stream, ConnectFailed> {
        let Opening { core, backend, .. } = self;
        let config = self.slot.config();
        let ours = || ConnectFailed::Final(Ended::new(Cause::Internal, Phase::Connect));
        // Without an address the server may have one for the next attempt, after a reload, or another server has.
        let peer = match config.socks4 {
            Some(proxy) => Endpoint::Inet(proxy),
            None => self.peer().ok_or_else(refused)?,
        };
        let mut dialer = Dialer::new(config, backend, self.source());
        dialer.options.fast_open = self.may_open_fast();
        if let Some(set) = self.settings.values() {
            (dialer.options.mark, dialer.options.tos) = (set.server_mark, set.server_tos);
        }
        let mut started = dialer.start(&peer, core.random());
        if dialer.options.mark.is_some() && started.as_ref().is_err_and(|failed| failed.is_without_right("mark")) {
            // As in HAProxy, a mark is not worth a request.
            dialer.options.mark = None;
            started = dialer.start(&peer, core.random());
        }
        let started = started.map_err(|failed| {
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
        match until(core, self.orders, deadline, |cx| stream.poll_connected(cx)).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(_)) => Err(refused()),
            Err(interrupt) => Err(interrupted(interrupt)),
        }
    }

    /// The client's address.
    fn source(&self) -> Option<SocketAddr> {
        let changed = self.settings.values().and_then(|set| set.source);
        changed.or_else(|| self.client.source())
    }

    /// The address that the client connected to.
    fn destination(&self) -> Option<SocketAddr> {
        let changed = self.settings.values().and_then(|set| set.destination);
        changed.or_else(|| self.client.destination())
    }

    fn addresses(&self) -> Addresses {
        Addresses { source: self.source(), destination: self.destination() }
    }

    /// Whether the server is to get our first bytes with the SYN (`tfo`). Who would wait for the server's bytes first would wait
    /// for ever: the SYN goes with ours.
    fn may_open_fast(&self) -> bool {
        let config = self.slot.config();
        let introduces = config.socks4.is_some() || config.send_proxy.is_on();
        let sends_first = self.has_data || introduces || self.slot.encryption().is_some();
        config.tfo && sends_first
    }

    /// Where to connect to. `None` when the server's address is not known, or is the client's destination where that is no
    /// address or our own.
    fn peer(&self) -> Option<Endpoint> {
        let address = &self.slot.config().address;
        let place = address.for_client(&|| self.destination())?;
        if let (ServerTarget::ClientDestination(_), Address::Inet(inet)) = (&address.target, &place)
            && comes_back(&self.client.listener().bind, *inet)
        {
            // Netfilter may have redirected a connection that was meant for another place.
            let (meant, dialled) = (self.client.stream.original_destination(), self.destination());
            let meant = meant.filter(|meant| Some(*meant) != dialled);
            let Some(place) = meant.and_then(|meant| address.for_client(&|| Some(meant))) else {
                self.say_it_would_come_back(*inet);
                return None;
            };
            return dialer::endpoint(&place);
        }
        dialer::endpoint(&place)
    }

    #[cold]
    fn say_it_would_come_back(&self, place: SocketAddr) {
        let (backend, server) = (&self.backend.name, self.slot.server());
        let reason = format!("the client's own destination {place} is an address of this process");
        if server.not_connected(&reason, self.core.now()) {
            self.core.log.trouble(&format!(
                "Server {backend}/{}: not connected: {reason}: give the server an address, or intercept connections (TPROXY and \
                 'bind … transparent', or a redirection).",
                server.name()
            ));
        }
    }

    /// Has a SOCKS4 proxy connect to the server.
    async fn pass_socks(&self, stream: &mut Stream, deadline: &mut Deadline) -> Result<(), ConnectFailed> {
        if self.slot.config().socks4.is_none() {
            return Ok(());
        }
        // The protocol has room for no other address.
        let Some(Endpoint::Inet(SocketAddr::V4(server))) = self.peer() else { return Err(refused()) };
        self.send(stream, deadline, &socks4_request(server)).await?;
        let mut response = [0; SOCKS4_RESPONSE_BYTES];
        let mut count = 0;
        while count < response.len() {
            let read = until(self.core, self.orders, deadline, |cx| stream.poll_read(cx, &mut response[count..])).await;
            match read {
                Ok(Ok(more @ 1..)) => count += more,
                Ok(Ok(0) | Err(_)) => return Err(refused()),
                Err(interrupt) => return Err(interrupted(interrupt)),
            }
        }
        if socks4_granted(response) { Ok(()) } else { Err(refused()) }
    }

    /// The PROXY header.
    async fn introduce(&self, stream: &mut Stream, deadline: &mut Deadline) -> Result<(), ConnectFailed> {
        let wanted = self.slot.config().send_proxy;
        if !wanted.is_on() {
            return Ok(());
        }
        let (addresses, client_tls) = (self.addresses(), self.client.tls());
        let mut header = Vec::new();
        write_header(wanted, &Introduction { addresses, client_tls, unique_id: self.unique_id }, &mut header);
        self.send(stream, deadline, &header).await
    }

    async fn send(&self, stream: &mut Stream, deadline: &mut Deadline, bytes: &[u8]) -> Result<(), ConnectFailed> {
        let mut sent = 0;
        while sent < bytes.len() {
            match until(self.core, self.orders, deadline, |cx| stream.poll_write(cx, &bytes[sent..])).await {
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
        let Opening { core, orders, backend, slot, count, .. } = *self;
        let Some(wanted) = slot.encryption() else { return Ok(None) };
        let failed = |failure: Failure| {
            count(Counter::TlsFailures);
            complain(core, slot, backend, &failure);
        };
        let unwilling = |error: rustls::Error, refusal| {
            failed(Failure::of(&error, refusal));
            unwilling(&error, asked)
        };
        let is_http1 = self.protocol == Some(ServerProtocol::H1);
        let begun =
            wanted.begin(stream, asked, core.records.clone(), is_http1).map_err(|error| unwilling(error, None))?;
        let agreed = Agreed::new(Arc::clone(wanted), &begun);
        match until(core, orders, deadline, |cx| stream.poll_handshake(cx)).await {
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

/// Whether a connection to `peer` would be accepted by the very address that the client connected to, and so come back to us
/// without end. Who intercepts connections (`bind … transparent`) has destinations that are not its own.
fn comes_back(bind: &Bind, peer: SocketAddr) -> bool {
    let Address::Inet(own) = bind.address else { return false };
    // What a PROXY header, or one of NetScaler, calls the destination may be another machine's.
    let is_introduced = bind.options.accept_proxy || bind.options.accept_netscaler.is_some();
    let any = own.ip().is_unspecified() && !is_introduced;
    !bind.options.transparent && own.port() == peer.port() && (own.ip() == peer.ip() || any)
}

#[cfg(test)]
mod tests {
    use baton_model::{BindOptions, Source};

    use super::*;

    #[test]
    fn connections_that_would_come_back() {
        let check = |own: &str, peer: &str, transparent: bool, accept_proxy: bool, expect: bool| {
            let address = Address::Inet(own.parse().expect("an address"));
            let options = BindOptions { transparent, accept_proxy, ..BindOptions::default() };
            let bind = Bind { address, name: None, id: None, options, source: Source::default() };
            assert_eq!(comes_back(&bind, peer.parse().expect("an address")), expect, "{own} {peer}");
        };
        check("192.0.2.1:80", "192.0.2.1:80", false, false, true);
        check("192.0.2.1:80", "192.0.2.1:81", false, false, false);
        check("192.0.2.1:80", "192.0.2.2:80", false, false, false);
        check("0.0.0.0:80", "192.0.2.1:80", false, false, true);
        check("[::]:80", "192.0.2.1:80", false, false, true);
        check("0.0.0.0:80", "192.0.2.1:80", true, false, false);
        check("0.0.0.0:80", "192.0.2.1:80", false, true, false);
        check("192.0.2.1:80", "192.0.2.1:80", false, true, true);
    }
}
