//! `option http-restrict-req-hdr-names`: header fields whose names a server may read as others, such as `X_Forwarded_For`.

use baton_model::{Proxy, RestrictedNames};

use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;

/// Whether a section restricts the names at all.
pub fn are_restricted(proxy: &Proxy) -> bool {
    proxy.http.restricted_names != RestrictedNames::Preserve
}

/// Removes the fields, or refuses the request.
pub fn restrict(exchange: &mut Exchange<'_>, proxy: &Proxy) -> Result<(), Ended> {
    if !are_restricted(proxy) {
        return Ok(());
    }
    let fields = exchange.messages.request().fields().iter();
    let special: Vec<usize> = fields.filter(|field| !is_plain(field.name)).map(|field| field.index).collect();
    if !special.is_empty() && proxy.http.restricted_names == RestrictedNames::Reject {
        exchange.facts.denied();
        return Err(Ended::refused(Cause::Proxy, Phase::Request, 403));
    }
    let mut request = exchange.messages.request_mut();
    special.into_iter().for_each(|index| request.fields().remove_at(index));
    Ok(())
}

fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}
