//! Asks an agent once: connects, sends what it is to be sent, reads one line.

use std::sync::Arc;
use std::time::Duration;

use baton_model::{Address, AgentSettings, Proxy, Server, ServerTarget};
use baton_proxy::dialer::Dialer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::response::{AgentResponse, first_line};
use crate::patience::{Exhausted, Patience};
use crate::{Report, Status, probe};

/// An agent that has said this much without an end of the line does not get to it.
const LINE_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 1024;

/// Everything that an agent check depends on: as long as this is equal, it goes on untouched by a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentPlan {
    /// Where to; `None` for a server without an address.
    address: Option<Address>,
    dialer: Dialer,
    /// Time to connect.
    connect: Duration,
    /// Time for the line after that.
    read: Duration,
    /// What it is sent.
    send: Arc<str>,
}

impl AgentPlan {
    pub(crate) fn new(proxy: &Proxy, server: &Server, agent: &AgentSettings) -> AgentPlan {
        let inter = agent.inter;
        let connect = match (proxy.timeouts.check, proxy.timeouts.connect) {
            (Some(_), Some(connect)) => connect.min(inter),
            (Some(_), None) | (None, _) => inter,
        };
        AgentPlan {
            address: address(server, agent),
            dialer: Dialer::new(server, proxy, None),
            connect,
            read: proxy.timeouts.check.unwrap_or(inter),
            send: Arc::clone(&agent.send),
        }
    }

    /// What came of it; the response of one that answered. `is_static`: weights stay what they are.
    pub(crate) async fn ask(&self, is_static: bool) -> (Report, Option<AgentResponse>) {
        let started = Instant::now();
        let (report, response) = match self.line().await {
            Ok(line) => {
                let response = AgentResponse::read(&line, is_static);
                let status = match response.is_up {
                    Some(true) => Status::L7Ok,
                    Some(false) => Status::L7Status,
                    None => Status::Checked,
                };
                let report = Report::new(status).info(response.info.as_str());
                let code = response.is_up.map(|_| 0);
                (Report { code, ..report }, Some(response))
            }
            Err(report) => (report, None),
        };
        (Report { duration: Some(started.elapsed()), ..report }, response)
    }

    async fn line(&self) -> Result<Vec<u8>, Report> {
        let failed = |status: Status| move |info: String| Report::new(status).info(info);
        let address = self.address.as_ref().ok_or_else(|| failed(Status::SocketError)("no address".into()))?;
        let opened = Patience::new(self.connect).wait(probe::open(&self.dialer, address, false)).await;
        let (mut stream, _) = match opened {
            Ok(opened) => opened.map_err(failed(Status::L4Connection))?,
            Err(Exhausted) => return Err(Report::new(Status::L4Timeout)),
        };
        let mut received = Vec::new();
        let exchange = async {
            stream.write_all(self.send.as_bytes()).await?;
            while first_line(&received).is_none() && received.len() < LINE_BYTES_MAX {
                received.reserve(READ_BYTES);
                if stream.read_buf(&mut received).await? == 0 {
                    break;
                }
            }
            Ok::<(), std::io::Error>(())
        };
        let done = Patience::new(self.read).wait(exchange).await;
        match (first_line(&received), done) {
            // What has come in time counts, however the connection ended.
            (Some(line), _) => Ok(line.to_vec()),
            (None, Ok(Ok(()))) if received.is_empty() => {
                Err(Report::new(Status::L7Response).info("TCPCHK got an empty response at step 2"))
            }
            (None, Ok(Err(error))) if received.is_empty() => Err(failed(Status::SocketError)(probe::words(&error))),
            (None, Err(Exhausted)) if received.is_empty() => Err(Report::new(Status::L7Timeout)),
            (None, _) => Err(Report::new(Status::L7Timeout).info("Ignoring incomplete line from agent")),
        }
    }
}

/// `agent-addr`, else where the server is checked, at `agent-port`.
fn address(server: &Server, agent: &AgentSettings) -> Option<Address> {
    let port = agent.port.unwrap_or(0);
    if let Some(ip) = agent.addr {
        return Some(Address::Inet((ip, port).into()));
    }
    let own = || match &server.address.target {
        ServerTarget::Fixed(address) => Some(address.clone()),
        ServerTarget::ClientDestination(address) => Some(Address::Inet(*address)),
        ServerTarget::Unresolved { .. } => None,
    };
    let mut address = server.check.addr.clone().or_else(own)?;
    if let Address::Inet(inet) = &mut address {
        inet.set_port(port);
    }
    Some(address)
}
