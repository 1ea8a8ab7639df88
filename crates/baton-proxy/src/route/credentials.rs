//! Credentials that rules will ask for: their passwords are compared before the rules see the request.

use std::future::Future;
use std::pin::pin;

use baton_rules::ProxyRules;

use crate::core::{Core, Interrupt, until};
use crate::ended::{Ended, Phase};
use crate::exchange::Exchange;
use crate::passwords;
use crate::rules;

/// Compares the request's password with the hashes that these rules will ask for, while the core does something else.
pub async fn compare(core: &Core, exchange: &mut Exchange<'_>, rules: &ProxyRules) -> Result<(), Ended> {
    if !rules.asks_for_hashes() {
        return Ok(());
    }
    let pairs = rules::with_request(core, exchange, None, |cx| rules.hashes_to_compare(cx));
    for result in pairs.into_iter().filter_map(|(hash, password)| passwords::compare(hash, password)) {
        let Exchange { orders, deadline, .. } = &mut *exchange;
        let mut result = pin!(result);
        // However many are before this one, its turn comes.
        deadline.set(None);
        if let Err(Interrupt::Abort) = until(core, orders, deadline, |cx| result.as_mut().poll(cx)).await {
            return Err(Ended::aborted(Phase::Request));
        }
    }
    Ok(())
}
