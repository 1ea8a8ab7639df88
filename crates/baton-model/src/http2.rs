//! Settings of HTTP/2 of the `global` section.

/// `tune.h2.*`, for connections of clients, and those to servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Http2Tuning {
    /// `tune.h2.fe.glitches-threshold`: violations of a client after which its connection ends; 0 is no limit.
    pub glitches_max: u32,
    /// `tune.h2.header-table-size`: bytes of the dynamic table that clients may refer to.
    pub header_table_size: u32,
    /// `tune.h2.initial-window-size`: bytes of a body that a client may send before a server takes them.
    pub initial_window_size: u32,
    /// `tune.h2.max-concurrent-streams`: requests of a connection in flight; 0 is as many as the protocol allows.
    pub max_concurrent_streams: u32,
    /// `tune.h2.max-frame-size`: bytes of the longest frame that a client may send; `None` is the size of a buffer.
    pub max_frame_size: Option<u32>,
    /// `tune.h2.be.glitches-threshold`: oddities of a server; 0 is no limit.
    pub server_glitches_max: u32,
    /// `tune.h2.be.initial-window-size`: bytes of a body that a server may send before a client takes them; `None`: as clients.
    pub server_initial_window_size: Option<u32>,
    /// `tune.h2.be.max-concurrent-streams`: requests of a server's connection in flight; `None`: as clients.
    pub server_max_concurrent_streams: Option<u32>,
    /// `h2-workaround-bogus-websocket-clients`: WebSockets over HTTP/2 (RFC 8441) are not offered.
    pub no_websockets: bool,
}

impl Default for Http2Tuning {
    fn default() -> Http2Tuning {
        Http2Tuning {
            glitches_max: 0,
            header_table_size: 4096,
            initial_window_size: 65_535,
            max_concurrent_streams: 100,
            max_frame_size: None,
            server_glitches_max: 0,
            server_initial_window_size: None,
            server_max_concurrent_streams: None,
            no_websockets: false,
        }
    }
}
