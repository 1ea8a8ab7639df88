//! `retries`, `option redispatch` and `retry-on`: whether a failed attempt is followed by another one, where, and when.

use std::time::Duration;

use baton_model::{Proxy, Redispatch};

use crate::balance::Slot;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Ended, Phase};
use crate::exchange::Exchange;
use crate::place::Wish;
use crate::record::Retry;
use crate::relay::transfer::NoResponse;

/// The pause before the same server is tried again, unless `timeout connect` is shorter: it may be restarting.
const TURN_AROUND: Duration = Duration::from_secs(1);

/// The attempts of one request.
#[derive(Debug)]
pub struct Attempts<'a> {
    proxy: &'a Proxy,
    used: u32,
    stale: bool,
}

impl Attempts<'_> {
    /// As many as the backend allows.
    pub fn new(proxy: &Proxy) -> Attempts<'_> {
        Attempts { proxy, used: 0, stale: false }
    }

    fn left(&self) -> u32 {
        self.proxy.retries - self.used
    }

    fn pause(&self) -> Duration {
        self.proxy.timeouts.connect.unwrap_or(TURN_AROUND).min(TURN_AROUND)
    }

    /// After a failed connection: waits where that is due and says where to try next. `Err`: no more attempts.
    pub async fn again(
        &mut self,
        core: &Core,
        exchange: &mut Exchange<'_>,
        wish: &mut Wish,
        slot: Slot,
        ended: Ended,
    ) -> Result<(), Ended> {
        if self.left() == 0 || !self.proxy.retry_on.conn_failure {
            return Err(ended);
        }
        let elsewhere = self.next(exchange, wish, &slot);
        drop(slot);
        if elsewhere || ended.cause == crate::ended::Cause::ServerTimeout {
            return Ok(());
        }
        exchange.deadline.set(Some(core.now() + self.pause()));
        let Exchange { connection, deadline, .. } = exchange;
        match until(core, connection.orders(), deadline, |_| std::task::Poll::<()>::Pending).await {
            Err(Interrupt::Abort) => Err(Ended::aborted(Phase::Connect)),
            Ok(()) | Err(Interrupt::Timeout) => Ok(()),
        }
    }

    /// After a failed response: the next attempt begins at once.
    pub fn again_at_once(&mut self, exchange: &mut Exchange<'_>, wish: &mut Wish, slot: Slot) {
        self.next(exchange, wish, &slot);
    }

    /// A kept connection turned out to be closed under the request: it is sent once more, over a new connection.
    pub fn met_stale(&mut self) {
        self.stale = true;
    }

    /// Whether the next attempt is to open a connection: others that were kept may be closed as well.
    pub fn wants_new(&self) -> bool {
        self.stale
    }

    /// Whether a request without a response may be sent again. `no_retry`: a rule forbids it.
    pub fn may_repeat(&self, failure: &NoResponse, no_retry: bool) -> bool {
        self.left() > 0
            && !no_retry
            && match failure {
                NoResponse::Empty => self.proxy.retry_on.empty_response,
                NoResponse::Truncated | NoResponse::Malformed => self.proxy.retry_on.junk_response,
                NoResponse::Late => self.proxy.retry_on.response_timeout,
                NoResponse::Ended(_) => false,
            }
    }

    /// Counts the attempt; true when the next one goes to another server.
    fn next(&mut self, exchange: &mut Exchange<'_>, wish: &mut Wish, slot: &Slot) -> bool {
        self.used += 1;
        let elsewhere = match self.proxy.tcp.redispatch {
            Redispatch::Off => false,
            Redispatch::Every(interval) => self.used.is_multiple_of(interval.max(1)),
            Redispatch::Last(before_end) => self.left() < before_end,
        };
        wish.avoid = elsewhere.then(|| slot.server().clone());
        wish.again = (!elsewhere).then(|| slot.server().clone());
        exchange.facts.retried(self.used, if elsewhere { Retry::Elsewhere } else { Retry::Again });
        elsewhere
    }
}
