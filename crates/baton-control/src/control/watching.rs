//! Certificates of the running process: when files are looked at, and what is said of them.

use std::time::Instant;

use super::Control;
use crate::certificates::{CertificateEvent, Found, InUse};
use crate::reload::{Change, Changed};
use crate::servant::duties::DutyEvent;

impl Control {
    /// A configuration has come into use.
    pub(crate) fn watch_certificates(&mut self) {
        let watched = self.line.take_watched();
        let said = self.certificates.watch(watched, &self.settings.outside, Instant::now());
        self.messages.tell(said);
    }

    /// Something happened to certificates: what a look has found comes into use, unless the look was given up.
    pub(crate) async fn step_certificates(&mut self, event: CertificateEvent) {
        let said = match event {
            CertificateEvent::Looked(Ok(found)) if self.certificates.is_looking() => {
                let Found { transaction, looked } = *found;
                match self.take(Change::Certificates(transaction)).await {
                    Changed::Certificates(report) => self.certificates.looked(&looked, &report, Instant::now()),
                    Changed::Reload(_)
                    | Changed::Done
                    | Changed::Discovered(_)
                    | Changed::Version(_)
                    | Changed::Refused(_) => Vec::new(),
                }
            }
            event => self.certificates.step(event, &self.settings.outside, Instant::now()),
        };
        self.messages.tell(said);
    }

    /// Looks at files when it is time for it. Nothing is looked at any more by who stops.
    pub(crate) fn look_at_certificates(&mut self) {
        if self.drain.is_some() {
            return;
        }
        let is_held = self.has_read();
        let in_use = InUse { model: self.line.model(), store: self.line.store(), outside: &self.settings.outside };
        let said = self.certificates.look(&in_use, is_held, Instant::now());
        self.messages.tell(said);
    }

    /// Has a new key seal session tickets if it is time for one.
    pub(crate) async fn rotate_tickets(&mut self) {
        if self.line.tickets().due().is_some_and(|due| due <= Instant::now()) {
            self.take(Change::TicketKeyExpired).await;
            self.serve_master(DutyEvent::Rotated).await;
        }
    }
}
