//! The soft stop with `on-exit flush`: services that go get nothing new, and go when their last connection has ended.

use std::sync::Arc;

use baton_direct::{Figures, ServiceKey};
use baton_model::Model;

use super::keeper::Work;
use super::lower;

/// A soft stop under way.
#[derive(Debug, Default)]
pub struct Ending {
    /// The kernel gives them nothing new.
    is_quiet: bool,
    /// Established connections, as they were counted last since then.
    active: Option<usize>,
}

impl Ending {
    /// Work was done since it began. What cannot be made quiet is not waited for, since it might never end.
    pub fn is_quiet(&mut self, is_well: bool) {
        self.is_quiet = true;
        if !is_well {
            self.active = Some(0);
        }
    }

    /// The kernel counted this.
    pub fn count(&mut self, figures: &[Figures], model: &Model) {
        if self.is_quiet {
            let kept = lower::kept_at_exit(model);
            let going = figures.iter().filter(|service| !kept.contains(&service.key));
            let active = going.flat_map(|service| &service.destinations).map(|server| server.active as usize);
            self.active = Some(active.sum());
        }
    }

    /// What there is to wait for.
    pub fn left(&self) -> usize {
        self.active.unwrap_or(1)
    }
}

/// Makes services that go at the end get nothing new. Persistence would bring clients back to servers of weight 0; a service of all
/// ports cannot be without.
pub fn quiet(work: &mut Work, model: &Model) {
    let kept = lower::kept_at_exit(model);
    for service in work.services.iter_mut().filter(|service| !kept.contains(&service.key)) {
        let service = Arc::make_mut(service);
        service.destinations.iter_mut().for_each(|server| server.weight = 0);
        let is_every_port = matches!(service.key, ServiceKey::Address { address, .. } if address.port() == 0);
        if !is_every_port {
            service.persistence = None;
        }
    }
}
