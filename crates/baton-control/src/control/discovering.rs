//! Name servers' responses, what they change of servers, and what is said of it, in HAProxy's words.

use std::sync::Arc;
use std::time::Instant;

use baton_config::Severity;
use baton_dns::{Cause, ServerChange};
use baton_model::Level;

use super::Control;
use crate::discovery::NameEvent;
use crate::overrides::discovered::key;
use crate::reload::{Change, Changed, DiscoveredChange, EntryNews};
use crate::servant::duties::DutyEvent;

impl Control {
    /// A name server responded, or a rule asks for an address.
    pub(crate) fn hear_of_name(&mut self, event: NameEvent) {
        self.line.names_mut().take(event, Instant::now());
    }

    /// Looks for servers that checks could not connect to.
    pub(crate) fn look_for_unreached(&mut self) {
        let unreached = self.line.checker().take_unreachable();
        let now = Instant::now();
        unreached.for_each(|(backend, server)| self.line.names_mut().unreached(&backend, &server, now));
    }

    /// When a name is due.
    pub(crate) fn names_due(&self) -> Option<Instant> {
        self.line.names().due()
    }

    /// Asks what is to be asked, gives rules their addresses, and changes servers by what was heard.
    pub(crate) async fn step_names(&mut self) {
        let now = Instant::now();
        self.line.names_mut().step(now);
        // While another process takes over, it begins with what it was given, and nothing changes here.
        if self.succession.is_giving() {
            return;
        }
        let changes = self.line.names_mut().changes(now);
        let mut untold = self.line.take_untold_discovered();
        if changes.is_empty() && untold.is_empty() {
            return;
        }
        if !changes.is_empty() {
            let Changed::Discovered(changed) = self.take(Change::Discovered(changes)).await else { return };
            changed.iter().for_each(|one| self.say_discovered(one));
            untold.extend(changed.iter().map(|one| (Arc::clone(&one.change.backend), Arc::clone(&one.change.server))));
        }
        // What was found outlives us, whenever we die.
        if self.servant.is_some() {
            let record = |(backend, server): &(Arc<str>, Arc<str>)| {
                (key(backend, server), self.line.discovered_record(backend, server))
            };
            let news = EntryNews::These(untold.iter().map(record).collect());
            self.serve_master(DutyEvent::EntriesChanged(news)).await;
        }
        // Hosts of services may have to be looked up.
        self.line.names_mut().step(now);
    }

    fn say_discovered(&self, one: &DiscoveredChange) {
        let notice = |text: String| self.messages.event_for(&one.change.backend, Severity::Warning, Level(5), &text);
        moved(&one.change).into_iter().for_each(notice);
        self.line.checker().log(one.events.clone());
        let DiscoveredChange { change, server, before, .. } = one;
        let is_back = before.unresolved && !server.admin().unresolved && !server.admin().in_maintenance();
        if is_back && change.cause != Cause::Additional {
            let ServerChange { backend, server, .. } = change;
            notice(format!("Server {backend}/{server} administratively READY thanks to valid DNS answer."));
        }
    }
}

/// What is said of another address and another host.
fn moved(change: &ServerChange) -> Vec<String> {
    let ServerChange { backend, server, resolvers, before, after, cause, .. } = change;
    let mut lines = Vec::new();
    if let Some(address) = after.address.filter(|_| before.address != after.address) {
        let from = before.address.map_or("(none)".to_owned(), |address| address.to_string());
        let by = match cause {
            Cause::Response(name_server) => format!("{resolvers}/{name_server}"),
            Cause::Cache | Cause::Lost(_) => "DNS cache".into(),
            Cause::Additional => "DNS additional record".into(),
        };
        lines.push(format!("{backend}/{server} changed its IP from {from} to {address} by {by}."));
    }
    let host = |known: &baton_dns::Known| known.service.as_ref().map(|service| service.host.clone());
    if let Some(to) = host(after).filter(|to| host(before).as_ref() != Some(to)) {
        let from = host(before).unwrap_or_else(|| "(null)".into());
        lines.push(format!("{backend}/{server} changed its FQDN from {from} to {to} by 'SRV record'"));
    }
    lines
}
