//! What agents want of their servers, and what is said of servers that operators and agents put into another state: HAProxy's lines.

use std::time::Instant;

use baton_config::Severity;
use baton_health::AgentOrder;
use baton_health::text::no_server_line;
use baton_model::{Level, Role};
use baton_proxy::balance::{Admin, HealthState, ServerState, Transition};

use super::Control;
use crate::reload::{Change, Changed};

const ALERT: Level = Level(1);
const NOTICE: Level = Level(5);

impl Control {
    /// Does what agents want. While another process takes over, it begins with what it was given, and nothing changes here.
    pub(crate) async fn obey_agents(&mut self) {
        let mut is_any = false;
        while let Some(order) = self.line.checker().take_order() {
            if !self.succession.is_giving() {
                self.obey_agent(&order).await;
                is_any = true;
            }
            order.done();
        }
        if is_any && self.servant.is_some() {
            self.report_overrides().await;
        }
    }

    async fn obey_agent(&mut self, AgentOrder { server, settings, .. }: &AgentOrder) {
        let change = Change::Agent { server: server.clone(), settings: settings.clone() };
        if let Changed::Servers(moved) = self.take(change).await {
            moved.iter().for_each(|one| self.say_state(&one.server, one.before, &one.transition));
        }
    }

    /// Says in what state a server is by now.
    pub(crate) fn say_state(&self, server: &ServerState, before: Admin, left: &Transition) {
        let admin = server.admin();
        let Some(backend) = server.backend() else { return };
        let place = format!("Server {}/{}", backend.name(), server.name());
        let word = if server.health() == HealthState::Down { "DOWN" } else { "UP" };
        let is_draining = admin.is_draining();
        let (level, text) = match (before.in_maintenance(), admin.in_maintenance()) {
            (false, true) => {
                let level = if before.is_draining() { NOTICE } else { ALERT };
                (level, format!("{place} is going DOWN for maintenance. {}", servers_left(left)))
            }
            (true, false) if is_draining => (NOTICE, format!("{place} is {word}/DRAIN (leaving forced maintenance).")),
            (true, false) => (NOTICE, format!("{place} is {word}/READY (leaving forced maintenance).")),
            (true, true) => return,
            (false, false) if is_draining && word == "DOWN" => {
                (NOTICE, format!("{place} enters drain state. {}", servers_left(left)))
            }
            (false, false) if is_draining => (NOTICE, format!("{place} enters drain state. {}", servers_online(left))),
            (false, false) => (NOTICE, format!("{place} is {word} (leaving forced drain).")),
        };
        self.messages.event_for(backend.name(), Severity::Warning, level, &text);
        // As in HAProxy, the other changes are not mailed.
        if is_draining && !before.in_maintenance() && !admin.in_maintenance() {
            self.messages.mail().alert(backend.name(), level, &text);
        }
        if is_draining && before.in_maintenance() {
            let text = format!("{place} remains in forced drain mode.");
            self.messages.event_for(backend.name(), Severity::Warning, NOTICE, &text);
        }
        let was_usable = !before.in_maintenance() && !before.is_draining() && word != "DOWN";
        if was_usable && left.active + left.backups == 0 {
            self.say_no_server(backend.name());
        }
    }

    /// Says that an operator has decided whether a server is up.
    pub(crate) fn say_health(&self, server: &ServerState, left: &Transition) {
        let Some(backend) = server.backend() else { return };
        if server.admin().in_maintenance() {
            return;
        }
        let place = format!("Server {}/{}", backend.name(), server.name());
        let (level, text) = match server.health() {
            HealthState::Down => {
                let level = if server.admin().is_draining() { NOTICE } else { ALERT };
                (level, format!("{place} is DOWN, changed from CLI. {}", servers_left(left)))
            }
            HealthState::Up => (NOTICE, format!("{place} is UP, changed from CLI. {}", servers_online(left))),
            HealthState::Stopping => {
                (NOTICE, format!("{place} is stopping, changed from CLI. {}", servers_online(left)))
            }
        };
        self.messages.event_for(backend.name(), Severity::Warning, level, &text);
        self.messages.mail().alert(backend.name(), level, &text);
        if server.health() == HealthState::Down && left.active + left.backups == 0 {
            self.say_no_server(backend.name());
        }
    }

    /// Reports mails that were lost, when it is time.
    pub(crate) fn report_lost_mail(&self) {
        if let Some((count, reason)) = self.messages.mail().take_lost(Instant::now()) {
            self.messages.warning(&format!("{count} email alerts were not delivered: {reason}."));
        }
    }

    pub(super) fn say_no_server(&self, backend: &str) {
        let is_listen = self.line.model().backend(backend).is_some_and(|proxy| proxy.role == Role::Listen);
        self.messages.event_for(backend, Severity::Alert, Level(0), &no_server_line(backend, is_listen));
    }
}

/// What is left without the server.
fn servers_left(left: &Transition) -> String {
    let Transition { active, backups, sessions, requeued, remaining } = left;
    let by = running_on_backup(left);
    format!(
        "{active} active and {backups} backup servers left.{by} {sessions} sessions active, {requeued} requeued, \
         {remaining} remaining in queue."
    )
}

/// What there is with the server.
fn servers_online(left: &Transition) -> String {
    let Transition { active, backups, requeued, remaining, .. } = left;
    let by = running_on_backup(left);
    format!(
        "{active} active and {backups} backup servers online.{by} {requeued} sessions requeued, {remaining} total in queue."
    )
}

fn running_on_backup(left: &Transition) -> &'static str {
    if left.active == 0 && left.backups > 0 { " Running on backup." } else { "" }
}
