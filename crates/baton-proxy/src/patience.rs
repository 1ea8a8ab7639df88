//! How long the two sides of an exchange or of a tunnel may be silent.

use std::time::Duration;

use baton_model::Proxy;
use baton_rules::SettingValues;

/// The inactivity limits of a tunnel, and how its ends are told apart.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// On the client's side.
    pub client: Option<Duration>,
    /// On the server's side.
    pub server: Option<Duration>,
    /// For a client that was told the end of what the server sends.
    pub client_fin: Option<Duration>,
    /// For a server that was told the end of what the client sends.
    pub server_fin: Option<Duration>,
    /// Only what the client sends shows that it is alive, not what it is sent (`option independent-streams`).
    pub client_independent: bool,
    /// Only what the server sends shows that it is alive, not what it is sent (`option independent-streams`).
    pub server_independent: bool,
    /// The end of what the server sends is the end of both directions: HTTP's tunnels (RFC 9110 9.3.6). The client may still
    /// end its direction alone.
    pub ends_with_server: bool,
}

impl Patience {
    /// What the frontend and the backend say, unless rules have set something else. `timeout tunnel` replaces the timeouts of both sides
    /// when it is set.
    pub fn new(frontend: &Proxy, backend: &Proxy, set: Option<&SettingValues>) -> Patience {
        let tunnel = set.and_then(|set| set.tunnel_timeout).or(backend.timeouts.tunnel);
        Patience {
            client: tunnel.or(set.and_then(|set| set.client_timeout)).or(frontend.timeouts.client),
            server: tunnel.or(set.and_then(|set| set.server_timeout)).or(backend.timeouts.server),
            client_fin: frontend.timeouts.client_fin,
            server_fin: backend.timeouts.server_fin,
            client_independent: frontend.tcp.independent_streams,
            server_independent: backend.tcp.independent_streams,
            ends_with_server: false,
        }
    }
}
