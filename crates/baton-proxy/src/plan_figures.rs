//! Figures of frontends, backends and servers that expressions ask for, from the plans of a generation: for rules, which know the plans of their
//! core, and for the control thread, which knows those of the process.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_rules::{BackendFigure, FrontendFigure, ServerFigure};

use crate::generation::{BackendPlan, FrontendPlan};
use crate::state::{Counter, MeasuredRate, Registry};

/// Where figures come from.
#[derive(Clone, Copy, Debug)]
pub struct PlanFigures<'a> {
    /// Knows since when rates are measured.
    pub registry: &'a Registry,
    /// The time.
    pub now: Instant,
}

impl PlanFigures<'_> {
    /// A figure of a frontend.
    pub fn of_frontend(&self, plan: &FrontendPlan, figure: FrontendFigure) -> i64 {
        let counters = &plan.state.counters;
        let rate = |rate, counter| integer(counters.rates.rate(rate, counters.grown(counter), self.now_ms()));
        match figure {
            FrontendFigure::Connections => plan.state.open.load(Ordering::Relaxed),
            FrontendFigure::RequestRate => rate(MeasuredRate::Requests, Counter::Requests),
            FrontendFigure::SessionRate => rate(MeasuredRate::Sessions, Counter::Connections),
            FrontendFigure::ClientTimeout => milliseconds(plan.proxy.timeouts.client),
        }
    }

    /// A figure of a backend, to which so many sessions are about to come.
    pub fn of_backend(&self, plan: &BackendPlan, figure: BackendFigure, coming: u32) -> i64 {
        match figure {
            BackendFigure::Connections => plan.figures.open.load(Ordering::Relaxed) + i64::from(coming),
            BackendFigure::ConnectionsFree => self.connections_free(plan),
            BackendFigure::Slots => self.slots(plan),
            BackendFigure::SessionRate => {
                let begun = plan.figures.begun() + u64::from(coming);
                integer(plan.figures.counters.rates.rate(MeasuredRate::Sessions, begun, self.now_ms()))
            }
            BackendFigure::Queued => plan.state.queued().into(),
            BackendFigure::UsableServers => usable_servers(plan).into(),
            BackendFigure::ServerTimeout => milliseconds(plan.proxy.timeouts.server),
            BackendFigure::TunnelTimeout => milliseconds(plan.proxy.timeouts.tunnel),
        }
    }

    /// A figure of a server; `None`: there is no such server.
    pub fn of_server(&self, plan: &BackendPlan, name: &str, figure: ServerFigure) -> Option<i64> {
        if figure == ServerFigure::ConnectionsFree {
            let (server, limit) = plan.state.limit_of(name, self.now)?;
            return Some(limit.map_or(-1, |limit| left(limit, server.served())));
        }
        let server = plan.state.server(name)?;
        Some(match figure {
            ServerFigure::Id => server.config().id.into(),
            ServerFigure::Connections => server.served().into(),
            ServerFigure::ConnectionsFree => return None,
            ServerFigure::IsUp => i64::from(server.is_running()),
            ServerFigure::Queued => server.queued().into(),
            ServerFigure::SessionRate => {
                let counters = &plan.servers.get(name)?.counters;
                integer(counters.rates.rate(MeasuredRate::Sessions, server.total(), self.now_ms()))
            }
            ServerFigure::Weight => server.effective_weight().into(),
            ServerFigure::InitialWeight => server.config().weight.into(),
            ServerFigure::UserWeight => server.weight().into(),
        })
    }

    fn now_ms(&self) -> u64 {
        self.registry.millisecond(self.now)
    }

    /// Of the servers that take requests now: backups only while there is no other.
    fn connections_free(&self, plan: &BackendPlan) -> i64 {
        let state = &plan.state;
        let backups_wait = state.active() > 0;
        let mut free = Some(0);
        state.look_at_servers(self.now, |server, config, limit| {
            if server.is_usable() && !(backups_wait && config.backup) {
                free = free.zip(limit).map(|(sum, limit)| sum + left(limit, server.served()));
            }
        });
        free.unwrap_or(-1)
    }

    /// Of all servers that are not in maintenance, whatever their state.
    fn slots(&self, plan: &BackendPlan) -> i64 {
        let mut free = Some(0);
        plan.state.look_at_servers(self.now, |server, config, _| {
            if server.admin().in_maintenance() {
                return;
            }
            let is_bounded = config.maxconn > 0 && config.maxqueue > 0;
            free = free.filter(|_| is_bounded).map(|sum: i64| {
                sum + (i64::from(config.maxconn) - i64::from(server.served()))
                    + (i64::from(config.maxqueue) - i64::from(server.queued()))
            });
        });
        free.unwrap_or(-1)
    }
}

/// Servers that requests may be sent to: the active ones, else the backups that take their place.
fn usable_servers(plan: &BackendPlan) -> u32 {
    match (plan.state.active(), plan.state.backups()) {
        (0, backups) if plan.proxy.tcp.all_backups => backups,
        (0, backups) => backups.min(1),
        (active, _) => active,
    }
}

fn left(limit: u32, used: u32) -> i64 {
    i64::from(limit.saturating_sub(used))
}

/// 0 stands for none, as in HAProxy.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> i64 {
    timeout.map_or(0, |timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX))
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
