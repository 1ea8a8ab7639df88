//! What rules set about a connection or a request besides its messages and variables: addresses, options of its socket, its place in
//! queues, timeouts, retries.

use std::net::SocketAddr;
use std::time::Duration;

/// What rules have set. Nothing costs nothing.
#[derive(Debug, Default)]
pub struct RuleSettings(Option<Box<SettingValues>>);

/// The values; what is `None` is as without rules.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SettingValues {
    /// The client's address (`set-src`).
    pub source: Option<SocketAddr>,
    /// The address that the client connected to (`set-dst`).
    pub destination: Option<SocketAddr>,
    /// What is to be done with the client's socket; taken out by whoever does it.
    pub socket: SocketChanges,
    /// The TOS byte of packets to the server (`set-bc-tos`).
    pub server_tos: Option<u8>,
    /// The mark of packets to the server (`set-bc-mark`).
    pub server_mark: Option<u32>,
    /// The order in queues.
    pub priority: QueuePriority,
    /// `set-timeout client`.
    pub client_timeout: Option<Duration>,
    /// `set-timeout server`.
    pub server_timeout: Option<Duration>,
    /// `set-timeout tunnel`.
    pub tunnel_timeout: Option<Duration>,
    /// `set-retries`.
    pub retries: Option<u32>,
    /// The connection begins with a PROXY header (`expect-proxy`).
    pub expects_proxy: bool,
    /// It begins with a client IP header of NetScaler (`expect-netscaler-cip`).
    pub expects_netscaler: bool,
}

/// Changes of a socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SocketChanges {
    /// The TOS byte of packets to the client.
    pub tos: Option<u8>,
    /// The mark of packets to the client.
    pub mark: Option<u32>,
}

/// The order in queues: by class, then by the time of arrival and the offset; lower ones are served first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueuePriority {
    /// `set-priority-class`, from -2047 to 2047.
    pub class: i16,
    /// `set-priority-offset`, from -524287 to 524287 milliseconds.
    pub offset_ms: i32,
}

impl SettingValues {
    /// Whether a connection to a server is not like others.
    pub fn is_about_server_socket(&self) -> bool {
        self.server_tos.is_some() || self.server_mark.is_some()
    }
}

impl RuleSettings {
    /// What was set; `None`: nothing.
    #[inline]
    pub fn values(&self) -> Option<&SettingValues> {
        self.0.as_deref()
    }

    /// Those of another process.
    pub fn resumed(values: Option<SettingValues>) -> RuleSettings {
        RuleSettings(values.map(Box::new))
    }

    /// To set something.
    pub fn change(&mut self) -> &mut SettingValues {
        self.0.get_or_insert_default()
    }

    /// Takes out what is to be done with the client's socket; `None`: nothing.
    #[inline]
    pub fn take_socket(&mut self) -> Option<SocketChanges> {
        let socket = std::mem::take(&mut self.0.as_mut()?.socket);
        (socket != SocketChanges::default()).then_some(socket)
    }
}
