//! `option checkcache`: a response that caches on the way could keep is not to carry a cookie that is meant for one client.

use baton_http::{FieldsView, Method, Name};
use baton_model::Level;

use crate::balance::Slot;
use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::view::BackendView;

/// Statuses of responses that caches keep unless they are told otherwise, as HAProxy has them.
const KEPT_STATUSES: [u16; 11] = [200, 203, 204, 206, 300, 301, 404, 405, 410, 414, 501];

/// Refuses such a response, and logs which server it came from.
///
/// # Errors
/// It is refused.
pub fn check(core: &Core, exchange: &mut Exchange<'_>, backend: &BackendView, slot: &Slot) -> Result<(), Ended> {
    const ALERT: Level = Level(1);
    let (request, response) = (exchange.messages.request(), exchange.messages.response());
    let is_read = matches!(request.method(), Method::Get | Method::Head | Method::Options | Method::Trace);
    let is_usual = is_read && KEPT_STATUSES.contains(&response.status());
    if response.fields().known(Name::SetCookie).is_none() || !may_be_kept(is_usual, response.fields()) {
        return Ok(());
    }
    exchange.facts.denied();
    let (backend, server) = (&backend.plan.proxy, slot.server().name());
    let text = format!("Blocking cacheable cookie in response from instance {}, server {server}.", backend.name);
    core.log.trouble(&text);
    core.log.line(&core.log.sinks(&backend.logging), ALERT, |line| line.extend_from_slice(text.as_bytes()));
    Err(Ended::refused(Cause::Proxy, Phase::Headers, 502))
}

/// Whether caches keep a response of HAProxy's kind: one that has a lifetime or a validator, and that `is_usual`, unless it says otherwise, or says that
/// it may be kept. Of two directives that contradict each other the later one counts, as in HAProxy.
fn may_be_kept(is_usual: bool, fields: FieldsView<'_>) -> bool {
    let is = |value: &[u8], known: &[&str]| known.iter().any(|known| value.eq_ignore_ascii_case(known.as_bytes()));
    let begins = |value: &[u8], start: &str| {
        value.get(..start.len()).is_some_and(|begun| begun.eq_ignore_ascii_case(start.as_bytes()))
    };
    if fields.values(b"pragma").any(|value| is(value, &["no-cache"])) {
        return false;
    }
    let mut may = is_usual;
    let mut lasts = [Name::Etag, Name::LastModified, Name::Expires].iter().any(|name| fields.known(*name).is_some());
    for value in fields.values(b"cache-control") {
        if is(value, &["private", "no-cache", "no-store", "max-age=0", "s-maxage=0"])
            || begins(value, "no-cache=\"set-cookie\"")
            || begins(value, "no-cache=\"set-cookie,")
        {
            may = false;
        } else if is(value, &["public"]) {
            may = true;
        }
        lasts |= begins(value, "max-age=") || begins(value, "s-maxage=");
    }
    may && lasts
}

#[cfg(test)]
mod tests {
    use baton_http::{Limits, Parsed, ResponseHead, ResponseTo, ResponseView};

    use super::*;

    #[test]
    fn what_a_response_says_about_caches() {
        let check = |is_usual, fields: &str, expect| {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n");
            let mut head = ResponseHead::new();
            let to = ResponseTo { method: Method::Get, upgrade: false, websocket: false };
            let parsed = head.parse(text.as_bytes(), to, &Limits::default());
            assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{fields:?}");
            let fields = ResponseView::new(&head, text.as_bytes()).fields();
            assert_eq!(may_be_kept(is_usual, fields), expect, "{text:?}");
        };
        check(true, "", false);
        check(true, "etag: a\r\n", true);
        check(false, "etag: a\r\n", false);
        check(true, "cache-control: public\r\n", false);
        check(false, "cache-control: public, max-age=60\r\n", true);
        check(true, "cache-control: max-age=60, Private\r\n", false);
        check(true, "etag: a\r\ncache-control: no-cache=\"set-cookie\"\r\n", false);
        check(true, "etag: a\r\ncache-control: no-cache=\"Set-Cookie, x\"\r\n", false);
        check(true, "etag: a\r\ncache-control: no-cache=\"x\"\r\n", true);
        check(false, "expires: 0\r\ncache-control: public\r\ncache-control: no-store\r\n", false);
        check(false, "expires: 0\r\ncache-control: no-store, public\r\n", true);
        check(true, "etag: a\r\npragma: no-cache\r\n", false);
        check(true, "cache-control: max-age=00\r\n", true);
    }
}
