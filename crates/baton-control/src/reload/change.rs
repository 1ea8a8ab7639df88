//! The one door of the change path: whatever alters live state is a [`Change`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use baton_dns::ServerChange;
use baton_model::{Author, Field, Object, Setting};
use baton_proxy::balance::{HealthState, ServerState};
use baton_proxy::core::{ConnectionId, Order, ServerMark};
use baton_proxy::{Command, FrontendPlan, FrontendService, Workers};
use baton_rules::{PatternChange, Reference, VariableLine};
use baton_tls::OcspResponse;
use baton_tls::authorities::Authority;
use baton_tls::store::{Report, Transaction};
use baton_tls::tickets::TicketKey;

use super::cookies::DynamicCookie;
use super::{ChangeLine, DiscoveredChange, Read};
use crate::environment::Outside;
use crate::protocol::Outcome;
use crate::tickets;

/// Anything that alters live state.
pub(crate) enum Change {
    /// To what files say.
    Reload(Box<Read>),
    /// An operator sets a field of a server.
    Override {
        /// Whose.
        server: Arc<ServerState>,
        /// To what.
        value: Setting,
        /// Who.
        by: Author,
    },
    /// An operator drops what was set at run time: what the files say applies again.
    OverridesCleared {
        /// Of which object; `None`: of all.
        object: Option<Object>,
        /// Which field; `None`: all.
        field: Option<Field>,
    },
    /// An operator starts or stops the health checks of a server.
    Health {
        /// Whose.
        server: Arc<ServerState>,
        /// Whether it is checked from now on.
        is_checked: bool,
        /// Who.
        by: Author,
    },
    /// An operator adds a server.
    ServerAdded {
        /// To which backend.
        backend: Arc<str>,
        /// Its name.
        server: Arc<str>,
        /// What stands behind its name.
        line: String,
        /// Who.
        by: Author,
    },
    /// An operator deletes a server.
    ServerDeleted {
        /// Which.
        server: Arc<ServerState>,
        /// Who.
        by: Author,
    },
    /// Certificates were replaced, added to lists or taken out of them, by an operator or in their files.
    Certificates(Transaction),
    /// An operator replaces the content of a file of authorities or of revocations, or brings a new one; `None`: it is forgotten.
    Authority {
        /// Its name.
        path: PathBuf,
        /// What it holds from now on.
        content: Option<Authority>,
    },
    /// An operator brings a response of OCSP, for the certificates that it is about.
    OcspResponse {
        /// What it says.
        response: OcspResponse,
        /// It, in DER.
        der: Vec<u8>,
    },
    /// An operator brings a key of session tickets for a file of `tls-ticket-keys`.
    TicketKey {
        /// Of which file.
        file: PathBuf,
        /// The key.
        key: TicketKey,
    },
    /// It is time for another key of session tickets.
    TicketKeyExpired,
    /// An operator says what checks would have said of a server; the next check goes on from there.
    HealthForced(Arc<ServerState>, HealthState),
    /// An operator says what its agent would have said of a server; the agent's next word counts again.
    AgentForced {
        /// Which server.
        server: Arc<ServerState>,
        /// What of it.
        is_up: bool,
    },
    /// The agent of a server says how it is to be.
    Agent {
        /// Which server.
        server: Arc<ServerState>,
        /// What is to be otherwise.
        settings: Vec<Setting>,
    },
    /// An operator switches the dynamic cookie of a backend, or sets its key.
    DynamicCookie {
        /// Which.
        backend: Arc<str>,
        /// What.
        wanted: DynamicCookie,
    },
    /// An operator changes a map, or the patterns of an ACL.
    Patterns(Arc<Reference>, PatternChange),
    /// An operator sets a variable of the process.
    VariableSet {
        /// The name, and the expression.
        line: VariableLine,
        /// A graceful stop is in progress, which expressions can ask for.
        is_stopping: bool,
        /// Who sets it.
        by: Author,
    },
    /// DNS has other addresses for servers.
    Discovered(Vec<ServerChange>),
    /// An operator ends a session.
    SessionEnded(ConnectionId),
    /// An operator ends the sessions that are on a server.
    ServerSessionsEnded(Arc<ServerState>),
    /// An operator sets a limit in the place of the configuration's; `None`: the configuration's counts again.
    Limited {
        /// The process, or a frontend.
        object: Object,
        /// Which limit.
        field: Field,
        /// The limit.
        value: Option<Setting>,
        /// Who sets it.
        by: Author,
    },
    /// An operator closes a frontend to new clients, for a while or until the next reload, or opens it again.
    FrontendService(Arc<FrontendPlan>, FrontendService, Author),
    /// An operator has figures begin anew.
    CountersCleared {
        /// The counters too, and not the maxima alone.
        all: bool,
    },
}

/// What came of a change.
pub(crate) enum Changed {
    /// Of a reload.
    Reload(Box<Outcome>),
    /// Of certificates.
    Certificates(Report),
    /// It is done.
    Done,
    /// DNS has changed these servers.
    Discovered(Vec<DiscoveredChange>),
    /// A version of a map or of an ACL was begun.
    Version(u32),
    /// Nothing was changed, for this reason.
    Refused(String),
}

impl ChangeLine {
    /// Changes live state: everything that may fail is done first, and leaves no trace when it does.
    pub(crate) async fn take(&mut self, change: Change, outside: &Outside, workers: &Workers) -> Changed {
        let outcome = match change {
            Change::Reload(read) => return Changed::Reload(Box::new(self.change(*read, outside, workers).await)),
            Change::Override { server, value, by } if value.field().is_of_line() => {
                self.set_of_line(&server, value, by, workers).await
            }
            Change::Override { server, value, by } => {
                self.override_server(&server, value, by, Instant::now());
                Ok(())
            }
            Change::OverridesCleared { object, field } => {
                self.clear_overrides(object.as_ref(), field, outside, workers).await
            }
            Change::Health { server, is_checked, by } => {
                self.set_health_checks(&server, is_checked, by, outside, workers).await
            }
            Change::ServerAdded { backend, server, line, by } => {
                self.add_server((&backend, &server), &line, by, outside, workers).await
            }
            Change::ServerDeleted { server, by } => self.delete_server(&server, by, workers).await,
            // For the next handshakes, on all cores at once.
            Change::Certificates(transaction) => return Changed::Certificates(self.store.commit(transaction)),
            Change::Authority { path, content } => {
                let files = self.acceptors.authorities();
                match content {
                    Some(content) => drop(files.insert(&path, content)),
                    None => drop(files.remove(&path)),
                }
                Ok(())
            }
            Change::OcspResponse { response, der } => {
                self.store.staple(&response, &der);
                Ok(())
            }
            Change::TicketKey { file, key } => self.add_ticket_key(&file, key),
            Change::TicketKeyExpired => {
                tickets::rotate(&self.tickets);
                Ok(())
            }
            Change::HealthForced(server, health) => {
                self.force_health(&server, health, false);
                Ok(())
            }
            Change::AgentForced { server, is_up } => {
                server.set_agent_report(self.checker.forced_agent(&server, is_up));
                let health = if is_up { HealthState::Up } else { server.checked_health() };
                self.force_health(&server, health, !is_up);
                Ok(())
            }
            Change::Agent { server, settings } => {
                self.obey_agent(&server, settings, workers).await;
                Ok(())
            }
            Change::DynamicCookie { backend, wanted } => self.set_dynamic_cookie(&backend, wanted, workers).await,
            Change::Patterns(reference, change) => return self.change_patterns(&reference, change),
            Change::VariableSet { line, is_stopping, .. } => {
                self.set_variable(&line, is_stopping);
                Ok(())
            }
            Change::Discovered(changes) => return Changed::Discovered(self.discover(changes, workers).await),
            Change::SessionEnded(id) => match workers.sessions().one(id).await {
                Some(_) => {
                    workers.command(Command::Order(id, Order::Abort)).await;
                    Ok(())
                }
                None => Err("No such session (use 'show sess').".into()),
            },
            Change::ServerSessionsEnded(server) => {
                workers.command(Command::EndSessions(ServerMark::of(&server))).await;
                Ok(())
            }
            Change::Limited { object, field, value, by } => {
                self.limit(object, field, value, by);
                Ok(())
            }
            Change::FrontendService(frontend, service, by) => {
                self.serve_frontend(&frontend, service, by, workers).await
            }
            Change::CountersCleared { all } => {
                self.clear_counters(all);
                Ok(())
            }
        };
        outcome.map_or_else(Changed::Refused, |()| Changed::Done)
    }

    /// Seals session tickets by one more key of a file.
    fn add_ticket_key(&self, file: &Path, key: TicketKey) -> Result<(), String> {
        let keys = self.tickets.file(file);
        let keys = keys.ok_or("'set ssl tls-key' unable to locate referenced filename\n")?;
        keys.push(key).map_err(|_| "'set ssl tls-key' received a key of wrong size.\n".to_owned())
    }
}
