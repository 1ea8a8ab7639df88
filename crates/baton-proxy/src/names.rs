//! Names whose addresses rules ask for, on their way from a core to the thread of the change path, which asks name servers.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

/// Requests that wait to be taken; beyond that a rule has no address.
const REQUESTS_MAX: usize = 1024;

/// Where cores leave names, and the change path's thread takes them.
#[derive(Debug)]
pub struct NameDesk {
    sender: mpsc::Sender<NameRequest>,
    requests: Mutex<Option<mpsc::Receiver<NameRequest>>>,
}

/// A name whose address a rule waits for.
#[derive(Debug)]
pub struct NameRequest {
    /// The section that is asked.
    pub resolvers: Arc<str>,
    /// The name, of whoever sends it.
    pub name: String,
    /// Whether IPv6 is asked for first.
    pub prefers_v6: bool,
    /// The way back; `None`: it has no address.
    pub reply: oneshot::Sender<Option<IpAddr>>,
}

impl Default for NameDesk {
    fn default() -> NameDesk {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        NameDesk { sender, requests: Mutex::new(Some(requests)) }
    }
}

impl NameDesk {
    /// The requests, for the one who answers them: once.
    pub fn take_requests(&self) -> Option<mpsc::Receiver<NameRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves a request; the receiver gets the address. `None`: too many wait already.
    pub fn ask(
        &self,
        resolvers: &Arc<str>,
        name: String,
        prefers_v6: bool,
    ) -> Option<oneshot::Receiver<Option<IpAddr>>> {
        let (reply, address) = oneshot::channel();
        let request = NameRequest { resolvers: Arc::clone(resolvers), name, prefers_v6, reply };
        self.sender.try_send(request).ok().map(|()| address)
    }
}
