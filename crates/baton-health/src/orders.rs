//! What agents want of their servers, for who changes them.

use std::sync::Arc;

use baton_model::Setting;
use baton_proxy::balance::ServerState;
use tokio::sync::oneshot;

/// What an agent wants of its server, for the change path. It asks for nothing else before this is done, or dropped.
#[derive(Debug)]
pub struct AgentOrder {
    /// Which server.
    pub server: Arc<ServerState>,
    /// What is to be otherwise than it is.
    pub settings: Vec<Setting>,
    /// Goes on when this is dropped.
    pub(crate) done: oneshot::Sender<()>,
}

impl AgentOrder {
    /// It is done.
    pub fn done(self) {
        // Who does not wait any more has another configuration.
        let _ = self.done.send(());
    }
}
