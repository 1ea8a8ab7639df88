//! Everything around the changes: origins, addresses, the proxy, load through it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use baton_prove::load::{BodyCheck, Timeouts};
use baton_prove::origin::{OriginKind, pattern};
use baton_prove::sessions::SessionKind;
use baton_prove::{
    Load, LoadHandle, LoadOptions, Origin, OriginHandle, OriginOptions, Phase, Request, ServerEndpoint, SessionOptions,
    Sessions, SessionsHandle, Tls,
};
use tempfile::TempDir;

use super::certificates::Certificates;
use super::proxy::{NotStarted, Proxy};
use super::scene::{DemoAddresses, DemoState};

/// Keep-alive connections, and the most connections at once of the other load.
pub const CONNECTIONS: usize = 16;
/// WebSockets held open, and tunnels as well.
pub const SESSIONS: usize = 4;
/// The most connections a second of the load that makes one for each request: each blocks a client's port for a minute
/// (TIME_WAIT), and there are about 28,000.
const CONNECTIONS_A_SECOND_MAX: f64 = 300.0;
/// The most handshakes a second of the load over TLS.
const HANDSHAKES_A_SECOND_MAX: f64 = 100.0;
/// Ports that are tried for the proxy; four more follow each. All are below the ports that the system gives to clients.
const PORTS: [u16; 4] = [8080, 18080, 28080, 9080];
/// Hosts that are tried for each port, in a piece of the loopback network that is this process's own: two proxies that start
/// at the same moment would share an address (SO_REUSEPORT), and one demo's end would be the other's failure. Clients come
/// from 127.0.0.1, so that none of their ports can be in the way of an address that is added later.
const HOSTS: std::ops::RangeInclusive<u8> = 2..=9;

/// The origins, and a port that is taken.
#[derive(Debug)]
pub struct Origins {
    http: [OriginHandle; 2],
    echo: OriginHandle,
    taken: TcpListener,
}

impl Origins {
    /// Starts them.
    ///
    /// # Errors
    /// What the system says against a listening socket or a thread.
    pub fn start() -> io::Result<Origins> {
        let http = [Origin::start(quick("origin-one"))?, Origin::start(quick("origin-two"))?];
        let echo = Origin::start(OriginOptions { kind: OriginKind::TcpEcho, ..quick("echo") })?;
        Ok(Origins { http, echo, taken: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))? })
    }

    /// Where everything is, with the proxy at this address and the three ports after it.
    fn places(&self, web: SocketAddr, directory: &TempDir) -> io::Result<DemoAddresses> {
        let port = |after: u16| SocketAddr::new(web.ip(), web.port() + after);
        let [one, two] = &self.http;
        Ok(DemoAddresses {
            web,
            tunnel: port(1),
            second_bind: port(2),
            extra: port(3),
            secure: port(4),
            certificates: directory.path().join("certificates"),
            origins: [one.address(), two.address()],
            echo: self.echo.address(),
            taken: self.taken.local_addr()?,
            missing: directory.path().join("no-such.list"),
        })
    }

    /// Stops them; how they end makes no difference any more.
    pub async fn stop(self) {
        let [one, two] = self.http;
        let _ = tokio::join!(one.stop(), two.stop(), self.echo.stop());
    }
}

fn quick(name: &str) -> OriginOptions {
    OriginOptions { grace: Duration::from_secs(1), ..OriginOptions::new(name) }
}

/// Starts the proxy at the first addresses that are free, however many others look for theirs at the same time.
///
/// # Errors
/// A sentence: no address was free, or why the proxy did not start.
pub async fn start_proxy(
    origins: &Origins,
    certificates: &Certificates,
    directory: &TempDir,
) -> Result<(Proxy, DemoAddresses), String> {
    certificates.place(directory.path()).map_err(|error| error.to_string())?;
    for web in candidates(std::process::id()) {
        let places = origins.places(web, directory).map_err(|error| error.to_string())?;
        if !are_free(&[places.web, places.tunnel, places.second_bind, places.extra, places.secure]) {
            continue;
        }
        match Proxy::start(directory, &DemoState::default().to_cfg(&places)).await {
            Ok(proxy) => return Ok((proxy, places)),
            Err(NotStarted::InUse) => {}
            Err(NotStarted::Failed(text)) => return Err(text),
        }
    }
    Err(format!("no free addresses were found; ports tried: {PORTS:?}"))
}

fn candidates(pid: u32) -> impl Iterator<Item = SocketAddr> {
    let [.., high, low] = pid.to_be_bytes();
    // 127.0.0.0/16 is left alone: other programs listen there.
    let host = move |last| IpAddr::V4(Ipv4Addr::new(127, 1 + high % 254, low, last));
    PORTS.into_iter().flat_map(move |port| HOSTS.map(move |last| SocketAddr::new(host(last), port)))
}

/// Whether all could be listened on a moment ago. The first of them is the proxy's from its start on, so that who comes
/// second looks no further and is not in the way of the others.
fn are_free(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| TcpListener::bind(address).is_ok())
}

/// Everything that goes through the proxy.
#[derive(Debug)]
pub struct Traffic {
    /// Requests over connections that stay.
    pub keep_alive: LoadHandle,
    /// Requests with a connection each.
    pub per_request: LoadHandle,
    /// Requests over TLS, with a connection and a whole handshake each.
    pub secure: LoadHandle,
    /// WebSockets held open.
    pub websockets: SessionsHandle,
    /// TCP tunnels held open.
    pub tunnels: SessionsHandle,
}

impl Traffic {
    /// Opens the sessions, then begins to ask `rate` times a second: one fifth with a connection for each request; and
    /// besides a tenth as often over TLS.
    ///
    /// # Errors
    /// What making a thread says.
    pub async fn start(places: &DemoAddresses, tls: Tls, rate: u32, phase: &Phase) -> io::Result<Traffic> {
        let hold =
            |at: SocketAddr, kind| Sessions::start(SessionOptions { count: SESSIONS, ..SessionOptions::new(at, kind) });
        let websockets = hold(places.web, SessionKind::WebSocket { path: "/ws".into() })?;
        let tunnels = hold(places.tunnel, SessionKind::Tunnel)?;
        tokio::join!(websockets.ready(), tunnels.ready());
        let rate = f64::from(rate);
        let per_request = (rate / 5.0).min(CONNECTIONS_A_SECOND_MAX);
        let load = |server: ServerEndpoint, keep_alive, rate| {
            Load::start(LoadOptions {
                requests: requests(),
                keep_alive,
                concurrency: CONNECTIONS,
                rate: Some(rate),
                timeouts: TIMEOUTS,
                phase: phase.clone(),
                ..LoadOptions::new(server)
            })
        };
        Ok(Traffic {
            keep_alive: load(places.web.into(), true, rate - per_request)?,
            per_request: load(places.web.into(), false, per_request)?,
            secure: load(
                ServerEndpoint { tls: Some(tls), ..places.secure.into() },
                false,
                (rate / 10.0).clamp(1.0, HANDSHAKES_A_SECOND_MAX),
            )?,
            websockets,
            tunnels,
        })
    }
}

/// Long enough for a machine that has much else to do, short enough to end soon after Ctrl-C.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(5), first_byte: Duration::from_secs(10), whole: Duration::from_secs(10) };

/// What is asked in turn; every byte of the answers is known.
fn requests() -> Vec<Request> {
    let exactly = |bytes: Vec<u8>| BodyCheck::Exactly(Arc::from(bytes));
    vec![
        Request::get("/bytes/1000").expect(exactly(pattern(1000))),
        Request::get("/"),
        Request::get("/chunked/5000").expect(exactly(pattern(5000))),
        Request::post("/echo", "what is sent comes back").expect(exactly(b"what is sent comes back".to_vec())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_seen() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        assert!(!are_free(&[taken.local_addr().expect("it is bound")]));
        assert!(are_free(&[]));
    }

    #[test]
    fn every_candidate_has_room_for_its_other_ports() {
        assert!(candidates(77_777).all(|web| web.port() < 32_768 - 5 && web.ip().is_loopback()));
        assert_eq!(candidates(0x1_02_03).next().map(|web| web.to_string()).as_deref(), Some("127.3.3.2:8080"));
        assert_eq!(candidates(0xff_ff).next().map(|web| web.to_string()).as_deref(), Some("127.2.255.2:8080"));
    }
}
