//! Agent checks of a server (configuration manual, 5.2 `agent-check` and its companions).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// `agent-check` of one server: a process beside it says how it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentSettings {
    /// `agent-check`. Without it, the other settings wait for one that has it, as those of a `default-server`.
    pub is_configured: bool,
    /// An operator has not stopped it (`disable agent`).
    pub enabled: bool,
    /// `agent-inter`: between two checks, and the time for each of them.
    pub inter: Duration,
    /// `agent-addr`; `None`: where the server is checked.
    pub addr: Option<IpAddr>,
    /// `agent-port`.
    pub port: Option<u16>,
    /// `agent-send`: what the agent is sent; empty: nothing.
    pub send: Arc<str>,
}

impl Default for AgentSettings {
    fn default() -> AgentSettings {
        AgentSettings {
            is_configured: false,
            enabled: true,
            inter: Duration::from_millis(2000),
            addr: None,
            port: None,
            send: "".into(),
        }
    }
}
