//! The `timeout` family (configuration manual, 4.2). `None` is "no timeout", as in HAProxy.

use std::time::Duration;

/// A proxy's timeouts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Timeouts {
    /// `timeout client`: inactivity on the client's side.
    pub client: Option<Duration>,
    /// `timeout server`: inactivity on the server's side.
    pub server: Option<Duration>,
    /// `timeout connect`: one attempt to connect to a server; also the pause before a retry on the same server.
    pub connect: Option<Duration>,
    /// `timeout http-request`: from the first wait until the head is complete; unset: `client`.
    pub http_request: Option<Duration>,
    /// `timeout http-keep-alive`: wait for the next request; unset: `http_request`, else `client`.
    pub http_keep_alive: Option<Duration>,
    /// `timeout queue`: wait for a slot on a server; unset: `connect`.
    pub queue: Option<Duration>,
    /// `timeout tunnel`: inactivity of an upgraded or tcp connection, both sides; unset: `client` and `server`.
    pub tunnel: Option<Duration>,
    /// `timeout client-fin`: inactivity on the client's side when one direction is closed.
    pub client_fin: Option<Duration>,
    /// `timeout server-fin`: the same on the server's side.
    pub server_fin: Option<Duration>,
    /// `timeout check`: read part of a health check; unset: `inter`.
    pub check: Option<Duration>,
    /// `timeout tarpit`; unset: `connect`.
    pub tarpit: Option<Duration>,
}
