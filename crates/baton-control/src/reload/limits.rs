//! Limits of the process and of frontends that operators set, and frontends that they close and open. They hold until a reload has another
//! value for that very limit, and with the process; a frontend that was shut down is opened again by a reload.

use std::sync::Arc;
use std::time::Instant;

use baton_model::Model;
use baton_proxy::{Command, FrontendPlan, FrontendService, Limit, Registry, Workers};

use super::ChangeLine;

/// What is limited.
#[derive(Clone, Debug)]
pub(crate) enum LimitedObject {
    /// Connections of a frontend.
    Frontend(Arc<FrontendPlan>),
    /// Connections of the process.
    Connections,
    /// Connections of the process per second.
    ConnectionRate,
    /// Sessions of the process per second.
    SessionRate,
    /// TLS handshakes of the process with clients per second.
    TlsRate,
}

impl LimitedObject {
    /// Where what was set is, and what a configuration says.
    fn of<'a>(&'a self, registry: &'a Registry, model: &Model) -> (&'a Limit, Option<u32>) {
        let (limits, global) = (&registry.limits, &model.global);
        match self {
            LimitedObject::Frontend(plan) => (&plan.state.maxconn, plan.proxy.maxconn),
            LimitedObject::Connections => (&limits.connections, global.maxconn),
            LimitedObject::ConnectionRate => (&limits.connection_rate, global.maxconnrate),
            LimitedObject::SessionRate => (&limits.session_rate, None),
            LimitedObject::TlsRate => (&limits.tls_rate, global.maxsslrate),
        }
    }
}

impl ChangeLine {
    /// Sets a limit.
    pub(super) fn limit(&self, object: &LimitedObject, value: Option<u32>) {
        let (limit, file) = object.of(&self.registry, &self.model);
        limit.change(value, file);
        // Whoever waits for room looks again.
        for plan in self.generation.iter().flat_map(|generation| &generation.frontends) {
            plan.state.freed.notify_waiters();
        }
    }

    /// Has limits end that the configuration in use changed; frontends that were shut down are open again.
    pub(super) fn settle_limits(&self) {
        use LimitedObject::{ConnectionRate, Connections, SessionRate, TlsRate};
        for object in [Connections, ConnectionRate, SessionRate, TlsRate] {
            let (limit, file) = object.of(&self.registry, &self.model);
            limit.settle(file);
        }
        for plan in self.generation.iter().flat_map(|generation| &generation.frontends) {
            plan.state.maxconn.settle(plan.proxy.maxconn);
            if plan.state.service() == FrontendService::Stopped {
                plan.state.set_service(FrontendService::Open);
            }
        }
    }

    /// Closes a frontend to new clients, or opens it again.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn serve_frontend(
        &mut self,
        frontend: &FrontendPlan,
        wanted: FrontendService,
        workers: &Workers,
    ) -> Result<(), String> {
        use FrontendService::{Open, Paused, Stopped};
        let (proxy, now) = (&frontend.proxy, Instant::now());
        match (frontend.state.service(), wanted) {
            (Stopped, Open) => return Err("Frontend was previously shut down, cannot enable.".into()),
            (Stopped, Paused) => return Err("Frontend was previously shut down, cannot disable.".into()),
            (Stopped, Stopped) => return Err("Frontend was already shut down.".into()),
            (Open, Open) => return Err("All sockets are already enabled.".into()),
            (Paused, Paused) => return Err("All sockets are already disabled.".into()),
            (Open, Paused) if !self.listeners.disable(proxy, now) => {
                return Err("Failed to pause frontend, check logs for precise cause.".into());
            }
            (Open, Paused) => {}
            (Paused, Open) => {
                let (open, refused) = self.listeners.enable(proxy);
                for id in open {
                    workers.command(Command::Reopen(id)).await;
                }
                if let Some(generation) = self.generation.clone() {
                    workers.command(Command::Apply(generation)).await;
                }
                if !refused.is_empty() {
                    return Err(format!("Failed to resume frontend, another program listens: {}", refused.join(", ")));
                }
            }
            (Open | Paused, Stopped) => self.listeners.shut_down(proxy, now),
        }
        frontend.state.set_service(wanted);
        Ok(())
    }
}
