//! Whether a request is for the statistics page of a proxy (`stats …`), and who may see it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_http::Method;
use baton_model::{Ruleset, StatsPage, StatsUser};
use baton_rules::passwords::is_equal;
use baton_rules::{ERRORS, ProxyRules, Verdict};

use super::Routed;
use crate::core::Core;
use crate::desk::ServiceKind;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::pages;
use crate::rules::{self, OwnResponse};
use crate::view::BackendView;

/// The scheme of `Authorization`, in any case.
const BASIC: &[u8] = b"basic ";

/// The status of the question for a user and a password.
const UNAUTHORIZED: u16 = 401;

/// `None`: the request is for something else.
pub fn admit(
    core: &Core,
    exchange: &mut Exchange<'_>,
    (page, rules): (&Arc<StatsPage>, &ProxyRules),
    backend: Option<&BackendView>,
) -> Result<Option<Routed>, Ended> {
    let request = exchange.messages.request();
    let is_meant = matches!(exchange.messages.request.method, Method::Get | Method::Head | Method::Post)
        && request.path_and_query().starts_with(page.uri.as_bytes());
    if !is_meant {
        return Ok(None);
    }
    let user = credentials(request.fields().lines(b"authorization").next());
    let name = user.as_ref().map(|(name, _)| name.clone());
    let verdict = match rules.has(Ruleset::StatsRequest) {
        true => rules::with_request(core, exchange, backend, |cx| rules.stats_request(cx)),
        false if page.users.is_empty() || user.is_some_and(|user| is_known(&page.users, &user)) => Verdict::Allow,
        false => Verdict::Auth(None),
    };
    match verdict {
        Verdict::Deny(denial) => {
            exchange.facts.denied();
            exchange.count(core, ERRORS, 1);
            refused(exchange);
            rules::deny(denial, Phase::Request).map(Routed::Answered).map(Some)
        }
        Verdict::Auth(realm) => {
            refused(exchange);
            let realm = realm.as_deref().or(page.realm.as_deref()).unwrap_or(StatsPage::REALM);
            Ok(Some(Routed::Answered(question(core, exchange, backend, realm))))
        }
        // No other action may stand in these rules.
        _ => {
            let is_admin = rules.has(Ruleset::StatsAdmin)
                && rules::with_request(core, exchange, backend, |cx| rules.stats_admin(cx));
            Ok(Some(Routed::Served(ServiceKind::Statistics { page: page.clone(), is_admin, user: name })))
        }
    }
}

/// The question for a user and a password.
pub fn question(core: &Core, exchange: &mut Exchange<'_>, backend: Option<&BackendView>, realm: &str) -> OwnResponse {
    let ended = Ended::refused(Cause::Local, Phase::Request, 0);
    exchange.count(core, ERRORS, 1);
    let mut page = rules::error_page(core, exchange, backend, UNAUTHORIZED);
    pages::ask_for_user(realm, &mut page);
    OwnResponse { page, logged: Some(UNAUTHORIZED), ended: Some(ended) }
}

/// The log names the page all the same.
fn refused(exchange: &mut Exchange<'_>) {
    exchange.facts.served_by("<STATS>");
}

/// User and password of `Authorization: Basic …` (RFC 7617). `None`: there are none.
fn credentials(value: Option<&[u8]>) -> Option<(String, Vec<u8>)> {
    let value = value?;
    let (scheme, rest) = value.split_at_checked(BASIC.len())?;
    if !scheme.eq_ignore_ascii_case(BASIC) {
        return None;
    }
    let text = STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(text[..colon].to_vec()).ok()?;
    Some((name, text[colon + 1..].to_vec()))
}

/// Whether it is one of these users. How long that takes says nothing about a password.
fn is_known(users: &[StatsUser], (name, password): &(String, Vec<u8>)) -> bool {
    users.iter().any(|user| user.name == *name && is_equal(user.password.as_bytes(), password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_of_the_basic_scheme() {
        let check = |value: &str, expect: Option<(&str, &str)>| {
            let found = credentials(Some(value.as_bytes()));
            let found = found.as_ref().map(|(name, word)| (&**name, std::str::from_utf8(word).unwrap()));
            assert_eq!(found, expect, "{value}");
        };
        check("Basic YTpi", Some(("a", "b")));
        check("bAsIc   YTpi ", Some(("a", "b")));
        check("Basic YTpiOmM=", Some(("a", "b:c")));
        check("Basic YTo=", Some(("a", "")));
        for value in ["", "Basic", "Basic ", "Basic YQ==", "Basic ?", "Bearer YTpi", "Basic /zo="] {
            check(value, None);
        }
    }

    #[test]
    fn a_user_is_known_by_name_and_password() {
        let users = [("a", "b"), ("c", "dd")];
        let users = users.map(|(name, password)| StatsUser { name: name.into(), password: password.into() });
        let check = |name: &str, password: &str, expect: bool| {
            assert_eq!(is_known(&users, &(name.into(), password.into())), expect, "{name} {password}");
        };
        check("a", "b", true);
        check("c", "dd", true);
        check("a", "dd", false);
        check("a", "", false);
        check("c", "ddd", false);
        check("A", "b", false);
    }
}
