//! What a request wants from the balancer.

use std::sync::Arc;

use baton_model::Redispatch;

use crate::balance::{Affinity, BackendState, ServerState, WantedServer};
use crate::exchange::Exchange;
use crate::progress::{CookieDates, Persistence};

/// What a request wants from the balancer, kept over its attempts.
#[derive(Debug, Default)]
pub struct Preference {
    /// Hash of the balance key.
    pub key: Option<u32>,
    /// The value of the persistence cookie.
    pub cookie: Option<Vec<u8>>,
    /// `use-server`.
    pub server: Option<String>,
    /// `force-persist`, `option persist`.
    pub force: bool,
    /// `ignore-persist` applied.
    pub ignore_persist: bool,
    /// The persistence cookie was there, though it named nothing.
    pub cookie_seen: bool,
    /// The dates in the persistence cookie, where `maxidle` or `maxlife` wants them.
    pub cookie_dates: Option<CookieDates>,
    /// The log's letter when these dates say that the cookie is not to be followed.
    pub cookie_expired: Option<u8>,
    /// The server that just failed.
    pub avoid: Option<Arc<ServerState>>,
    /// The server that just failed, to be tried again: a retry without redispatch.
    pub again: Option<Arc<ServerState>>,
    /// The server of the session's previous request, for `option prefer-last-server`.
    pub last: Option<Arc<ServerState>>,
    /// The server that a stick table has for the request.
    pub stuck: Option<Arc<ServerState>>,
    /// What became of the cookie, or of whatever else names a server, at the first attempt.
    pub found: Option<Affinity>,
    /// What the balancer made of it then: a stick table may have a server where that of the cookie is down.
    pub picked: Option<Affinity>,
}

impl Preference {
    /// Whether a rule or the cookie names a server that the request may go to, so that stick tables are not to name one. What becomes of
    /// the cookie is noted.
    pub fn is_placed(&mut self, backend: &BackendState) -> bool {
        if self.server.is_some() {
            return true;
        }
        let Some(cookie) = &self.cookie else { return false };
        let judged = backend.judge(WantedServer::Cookie(cookie), self.force);
        self.found = Some(judged.err().unwrap_or(Affinity::Kept));
        judged.is_ok()
    }

    /// The letter of the log for what the client's cookie was.
    pub fn note_cookie(&self, exchange: &mut Exchange<'_>) {
        let Exchange { facts, progress, .. } = exchange;
        let Some(backend) = progress.backend().filter(|backend| backend.plan.proxy.cookie.is_some()) else { return };
        let redispatches = backend.plan.proxy.tcp.redispatch != Redispatch::Off;
        let down = self.found == Some(Affinity::Kept) && progress.server().is_some_and(|server| !server.is_running());
        let is_wanted = self.picked == Some(Affinity::Kept) && self.avoid.is_none();
        let by_cookie = self.cookie.is_some() && self.found == Some(Affinity::Kept);
        let dates = self.cookie_dates.filter(|_| is_wanted && by_cookie);
        progress.persistence = Persistence { is_wanted, is_ignored: self.ignore_persist, dates };
        if redispatches && self.found == Some(Affinity::Full) {
            facts.redispatched();
        }
        facts.client_cookie(self.cookie_letter(down));
    }

    /// What the log calls the client's cookie. `is_down`: its server has gone down since it was chosen.
    pub fn cookie_letter(&self, is_down: bool) -> u8 {
        match self.found {
            _ if !self.cookie_seen => b'N',
            // As of any cookie that is not what a server is chosen by.
            _ if self.ignore_persist || self.server.is_some() => b'U',
            _ if self.cookie_expired.is_some() => self.cookie_expired.unwrap_or(b'E'),
            _ if self.cookie.is_none() => b'I',
            Some(Affinity::Kept) if is_down || self.avoid.is_some() => b'D',
            Some(Affinity::Kept) => b'V',
            Some(Affinity::Down | Affinity::Full) => b'D',
            Some(Affinity::Unknown) => b'I',
            Some(Affinity::Nothing) | None => b'N',
        }
    }
}
