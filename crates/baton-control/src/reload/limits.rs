//! Limits of the process and of frontends that operators set, and frontends that they close and open: overrides like those of servers.
//! A frontend that was shut down is opened again by a reload.

use std::time::Instant;

use baton_model::{Author, Field, Object, Override, Setting};
use baton_proxy::{Command, FrontendPlan, FrontendService, Workers};

use super::ChangeLine;
use crate::tickets::wall_seconds;

impl ChangeLine {
    /// Sets a limit of the process or a frontend, or has the configuration's count again.
    pub(super) fn limit(&mut self, object: Object, field: Field, value: Option<Setting>, by: Author) {
        let file = match &object {
            Object::Process => Setting::of_process(field, &self.asked.global),
            Object::Frontend { frontend } => {
                self.asked.frontend(frontend).and_then(|proxy| Setting::of_frontend(field, proxy))
            }
            Object::Server { .. } => None,
        };
        self.registry.change_overrides(|overrides| match (value, file) {
            (Some(value), Some(file)) => {
                overrides.set(object.clone(), Override { value, file, by, at_s: wall_seconds() });
            }
            (None, _) | (_, None) => drop(overrides.clear(Some(&object), Some(field))),
        });
        self.untold.push((object, field));
        self.settle_limits();
    }

    /// Has limits as the configuration in use and the overrides say.
    pub(super) fn settle_limits(&self) {
        let (overrides, limits, global) = (self.registry.overrides(), &self.registry.limits, &self.asked.global);
        let of_process = |field| overrides.limit(&Object::Process, Setting::of_process(field, global));
        for (limit, field) in [
            (&limits.connections, Field::Maxconn),
            (&limits.connection_rate, Field::ConnectionRate),
            (&limits.session_rate, Field::SessionRate),
            (&limits.tls_rate, Field::TlsRate),
        ] {
            limit.change(of_process(field));
        }
        for plan in self.generation.iter().flat_map(|generation| &generation.frontends) {
            let maxconn = match overrides.is_empty() {
                true => None,
                false => overrides
                    .limit(&Object::frontend(&plan.proxy.name), Setting::of_frontend(Field::Maxconn, &plan.proxy)),
            };
            plan.state.maxconn.change(maxconn);
            // Whoever waits for room looks again.
            plan.state.freed.notify_waiters();
        }
    }

    /// Frontends that were shut down are open again by a reload; those that another process had disabled are so here too.
    pub(super) fn settle_frontends(&mut self) {
        let overrides = self.registry.overrides();
        let Some(generation) = self.generation.clone() else { return };
        for plan in &generation.frontends {
            if plan.state.service() == FrontendService::Stopped {
                plan.state.set_service(FrontendService::Open);
            }
            let is_disabled = !overrides.is_empty()
                && overrides.setting(&Object::frontend(&plan.proxy.name), &Setting::Service(true)).is_some();
            if is_disabled
                && plan.state.service() == FrontendService::Open
                && self.listeners.disable(&plan.proxy, Instant::now())
            {
                plan.state.set_service(FrontendService::Paused);
            }
        }
    }

    /// Opens frontends that are not kept closed any more.
    pub(super) async fn open_cleared(&mut self, cleared: &[(Object, Field)], workers: &Workers) {
        let is_service = |(object, field): &(Object, Field)| match object {
            Object::Frontend { frontend } if *field == Field::Service => Some(frontend.clone()),
            _ => None,
        };
        let Some(generation) = self.generation.clone() else { return };
        for plan in cleared.iter().filter_map(is_service).filter_map(|name| generation.frontend(&name)) {
            // A port that another program has by now stays closed, as the log says.
            let _ = self.serve_frontend(plan, FrontendService::Open, Author::default(), workers).await;
        }
    }

    /// Notes which frontends an operator keeps closed.
    fn note_service(&mut self, frontend: &FrontendPlan, service: FrontendService, by: Author) {
        let object = Object::frontend(&frontend.proxy.name);
        self.registry.change_overrides(|overrides| match service {
            FrontendService::Paused => {
                let (value, file) = (Setting::Service(false), Setting::Service(true));
                overrides.set(object.clone(), Override { value, file, by, at_s: wall_seconds() });
            }
            // What is shut down, a reload opens again.
            FrontendService::Open | FrontendService::Stopped => {
                drop(overrides.clear(Some(&object), Some(Field::Service)));
            }
        });
        self.untold.push((object, Field::Service));
    }

    /// Closes a frontend to new clients, or opens it again.
    ///
    /// # Errors
    /// HAProxy's sentence; nothing is changed.
    pub(super) async fn serve_frontend(
        &mut self,
        frontend: &FrontendPlan,
        wanted: FrontendService,
        by: Author,
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
        self.note_service(frontend, wanted, by);
        Ok(())
    }
}
