//! What agents want of their servers, and what is said besides the lines of checks.

use std::time::Instant;

use baton_health::AgentOrder;

use super::Control;
use crate::reload::Change;

impl Control {
    /// Does what agents want. While another process takes over, it begins with what it was given, and nothing changes here.
    pub(crate) async fn obey_agents(&mut self) {
        let mut is_any = false;
        while let Some(order) = self.line.checker().take_order() {
            if !self.succession.is_giving() {
                let AgentOrder { server, settings, .. } = &order;
                self.take(Change::Agent { server: server.clone(), settings: settings.clone() }).await;
                is_any = true;
            }
            order.done();
        }
        if is_any && self.servant.is_some() {
            self.report_overrides().await;
        }
    }

    /// Reports mails that were lost, when it is time.
    pub(crate) fn report_lost_mail(&self) {
        if let Some((count, reason)) = self.messages.mail().take_lost(Instant::now()) {
            self.messages.warning(&format!("{count} email alerts were not delivered: {reason}."));
        }
    }
}
