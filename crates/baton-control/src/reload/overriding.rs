//! Overrides on the change path: commands write them here and nowhere else, and here they become what is in force. What another process
//! has left is continued here too.

use std::sync::Arc;
use std::time::Instant;

use baton_model::{Author, EndedOverride, Field, Object, Override, Overrides, Server, Setting};
use baton_proxy::Workers;
use baton_proxy::balance::{ServerState, Transition};

use super::change::MovedServer;
use super::{ChangeLine, Changed, Ready};
use crate::handover;
use crate::handover::memory::{ProcessMemory, TicketKey};
use crate::overrides::OverrideRecord;
use crate::tickets::{self, wall_seconds};

impl ChangeLine {
    /// An operator sets a field of a server: that is so from now on, over reloads and in processes after this one, until the file
    /// changes that field. Gives what followed from another state.
    pub(crate) fn override_server(
        &mut self,
        server: &Arc<ServerState>,
        value: Setting,
        by: Author,
        now: Instant,
    ) -> Option<Transition> {
        let backend = server.backend()?;
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
        let transition = server.set_admin(server.admin_with(&config, effective), now);
        if transition.is_some() {
            self.checker.track_admin(server, now);
        }
        transition
    }

    /// The agent of a server says how it is to be: as if an operator had set that, until the agent says otherwise.
    pub(super) async fn obey_agent(
        &mut self,
        server: &Arc<ServerState>,
        settings: Vec<Setting>,
        workers: &Workers,
    ) -> Changed {
        let mut moved = Vec::new();
        for value in settings {
            if value.field().is_of_line() {
                // A server that is gone meanwhile is nobody's.
                let _ = self.set_of_line(server, value, Author::agent(), workers).await;
                continue;
            }
            let before = server.admin();
            let is_state = value.field() == Field::State;
            if let Some(transition) = self.override_server(server, value, Author::agent(), Instant::now())
                && is_state
            {
                moved.push(MovedServer { server: Arc::clone(server), before, transition });
            }
        }
        Changed::Servers(moved)
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
