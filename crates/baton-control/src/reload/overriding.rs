//! Overrides on the change path: commands write them here and nowhere else, and here they become what is in force. What another process
//! has left is continued here too.

use std::sync::Arc;
use std::time::Instant;

use baton_health::text::DnsNews;
use baton_health::{AdminMove, Event};
use baton_model::{Author, EndedOverride, Object, Override, Overrides, Role, Server, Setting};
use baton_proxy::Workers;
use baton_proxy::balance::{Admin, HealthState, ServerState};

use super::{ChangeLine, Ready};
use crate::handover;
use crate::handover::memory::{ProcessMemory, TicketKey};
use crate::overrides::OverrideRecord;
use crate::tickets::{self, wall_seconds};

impl ChangeLine {
    /// An operator sets a field of a server: that is so from now on, over reloads and in processes after this one, until the file
    /// changes that field. What followed from another state is logged.
    pub(crate) fn override_server(&mut self, server: &Arc<ServerState>, value: Setting, by: Author, now: Instant) {
        let Some(backend) = server.backend() else { return };
        let config = server.config();
        let object = Object::server(backend.name(), server.name());
        let field = value.field();
        let file = Setting::of(field, Some(&config));
        let set = Override { value, file, by, at_s: wall_seconds() };
        let effective = self.registry.change_overrides(|overrides| {
            overrides.set(object.clone(), set);
            overrides.server(backend.name(), &config)
        });
        self.untold.push((object, field));
        server.set_weight(effective.weight, now);
        self.set_admin(server, server.admin_with(&config, effective), now);
    }

    /// A server has this administrative state from now on: logs that, and has those who track it follow.
    pub(super) fn set_admin(&self, server: &ServerState, admin: Admin, now: Instant) {
        self.checker.log(self.move_admin(server, admin, None, now));
    }

    /// As [`ChangeLine::set_admin`]; gives what is to be logged.
    pub(super) fn move_admin(
        &self,
        server: &ServerState,
        admin: Admin,
        dns: Option<DnsNews<'_>>,
        now: Instant,
    ) -> Vec<Event> {
        let before = server.admin();
        let (Some(left), Some(backend)) = (server.set_admin(admin, now), server.backend()) else { return Vec::new() };
        let moved = AdminMove { before, left: &left, is_listen: self.is_listen(backend.name()), dns };
        self.checker.admin_changed(server, moved, now)
    }

    /// An operator decides whether a server is up: logs that, and has those who track it follow.
    pub(super) fn force_health(&self, server: &ServerState, health: HealthState, is_held: bool) {
        if let (Some(left), Some(backend)) = (server.force_health(health, is_held, Instant::now()), server.backend()) {
            self.checker.health_forced(server, &left, self.is_listen(backend.name()));
        }
    }

    /// Whether a backend is a `listen` section.
    pub(crate) fn is_listen(&self, backend: &str) -> bool {
        self.model.backend(backend).is_some_and(|proxy| proxy.role == Role::Listen)
    }

    /// The agent of a server says how it is to be: as if an operator had set that, until the agent says otherwise.
    pub(super) async fn obey_agent(&mut self, server: &Arc<ServerState>, settings: Vec<Setting>, workers: &Workers) {
        for value in settings {
            if value.field().is_of_line() {
                // A server that is gone meanwhile is nobody's.
                let _ = self.set_of_line(server, value, Author::agent(), workers).await;
                continue;
            }
            self.override_server(server, value, Author::agent(), Instant::now());
        }
    }

    /// Overrides of another process, for the first configuration, before it is prepared: servers that were added are part of it.
    pub fn expect_overrides(&mut self, kept: &[OverrideRecord]) {
        self.expect_entries(kept);
        self.expect_discovered(kept);
        let mut others = Overrides::default();
        kept.iter().filter_map(OverrideRecord::read).for_each(|(object, set)| others.set(object, set));
        self.registry.change_overrides(|overrides| overrides.join(others));
    }

    /// Goes on from what files of server states say, for the first configuration, before its commit. Gives the overrides that are of another
    /// configuration.
    pub fn recall_saved(&mut self, ready: &Ready, saved: &ProcessMemory, now: Instant) -> Vec<EndedOverride> {
        let ended = self.recall_overrides(ready);
        handover::state::recall(saved, &ready.generation, &mut self.checker, now);
        ended
    }

    /// Goes on with the keys of session tickets of another process, before the first commit.
    pub fn recall_tickets(&self, keys: &[TicketKey]) {
        tickets::recall(&self.tickets, keys);
    }

    /// Goes on with the overrides of another process, for the first configuration, before its commit. Gives those that its file ends.
    pub fn recall_overrides(&self, ready: &Ready) -> Vec<EndedOverride> {
        let generation = &ready.generation;
        let ended = self.registry.change_overrides(|overrides| overrides.settle(&ready.configuration.asked));
        let overrides = self.registry.overrides();
        for backend in overrides.backends() {
            if let Some(plan) = generation.backends.get(backend) {
                plan.state.settle(&|server: &Server| overrides.server(backend, server));
            }
        }
        ended
    }
}
