//! TLS with name servers (`nameserver … tcp@… ssl`): prepared with a configuration, where it may fail, and used from its commit on.

use std::io;
use std::sync::Arc;

use baton_model::{Model, NameServer, Server, constant_name};
use baton_proxy::{Refused, ServerTlsContext};
use baton_rules::Files;
use baton_tls::{Connectors, Target};

/// TLS with all name servers of a configuration that are asked by it.
#[derive(Debug, Default)]
pub(crate) struct SecureNameServers(Vec<Arc<SecureNameServer>>);

/// TLS with a name server.
#[derive(Debug)]
pub(super) struct SecureNameServer {
    server: Arc<Server>,
    context: Arc<ServerTlsContext>,
}

impl SecureNameServers {
    /// Those of a model. Sessions with name servers that are here already go on.
    ///
    /// # Errors
    /// All of which the words cannot work.
    pub(super) fn prepare(
        &self,
        model: &Model,
        connectors: Connectors<'_>,
        files: &dyn Files,
    ) -> Result<SecureNameServers, Vec<Refused>> {
        let (mut ready, mut refused) = (Vec::new(), Vec::new());
        let name_servers = model.resolvers.iter().flat_map(|section| &section.servers);
        for server in name_servers.filter_map(|server| server.tls.as_ref()) {
            let before = self.0.iter().find(|known| known.server.name == server.name);
            match ServerTlsContext::prepare(server, connectors, files, before.map(|before| &*before.context)) {
                Ok(Some(context)) => ready.push(Arc::new(SecureNameServer { server: Arc::clone(server), context })),
                Ok(None) => {}
                Err(reason) => refused.push(Refused {
                    object: format!("nameserver {}", server.name),
                    reason,
                    source: server.line.clone(),
                }),
            }
        }
        if refused.is_empty() { Ok(SecureNameServers(ready)) } else { Err(refused) }
    }

    /// That of a name server.
    pub(super) fn of(&self, server: &NameServer) -> Option<Arc<SecureNameServer>> {
        let line = server.tls.as_ref()?;
        self.0.iter().find(|known| known.server.name == line.name).cloned()
    }
}

impl SecureNameServer {
    /// What a handshake needs.
    ///
    /// # Errors
    /// No server could have the name.
    pub(super) fn target(&self) -> io::Result<Target> {
        let settings = self.server.any_tls();
        let name = settings.and_then(|settings| constant_name(settings.sni.as_deref()?));
        self.context.connector.target(name).map_err(io::Error::other)
    }
}
