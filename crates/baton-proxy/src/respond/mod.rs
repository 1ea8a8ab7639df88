//! Answers of our own: error pages, redirects, the monitor's.

mod pages;

use std::rc::Rc;

use baton_http::{ForClient, Limits, Method, Parsed, ResponseTo};
use baton_model::{ErrorPage, Proxy};

use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::Exchange;
use crate::rules::{self, Answer};
use crate::work::Work;

/// A response that went to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// The client's connection stays for another request.
    pub keep: bool,
    /// The client may still be sending the body of this one.
    pub unread: bool,
    /// How the log says it ended, when not as it should.
    pub ended: Option<Ended>,
}

/// Composes the answer with this status in `work.down`: the proxy's own page for it or the standard one. `keep`: the
/// connection may stay. Returns whether it stays.
pub fn compose(core: &Core, exchange: &mut Exchange<'_>, work: &mut Work, status: u16, keep: bool) -> bool {
    let proxies =
        [exchange.progress.backend().map(|backend| &backend.plan.proxy), Some(&exchange.progress.frontend.plan.proxy)];
    let custom = proxies.into_iter().flatten().find_map(|proxy| custom_page(proxy, status)).cloned();
    exchange.facts.responds(status);
    work.down.clear();
    if !exchange.facts.has_request {
        // The connection layer has pages of its own; only an empty one is heeded: it says to close without an answer.
        if !custom.is_some_and(|page| matches!(page, ErrorPage::File { content, .. } if content.is_empty())) {
            pages::raw(status, &mut work.down);
        }
        return false;
    }
    let mut page = Vec::new();
    match custom {
        Some(ErrorPage::File { content, .. }) => page.extend_from_slice(&content),
        Some(ErrorPage::Found(location)) => pages::redirect(302, &location, &mut page),
        Some(ErrorPage::SeeOther(location)) => pages::redirect(303, &location, &mut page),
        None => pages::standard(status, &mut page),
    }
    let keep = forward(core, exchange, work, &page, keep);
    if work.response.status != 0 {
        // A page may have another one in it.
        exchange.facts.responds(status);
    }
    keep
}

/// Composes a response given as bytes: its head is written as one from a server would be. Returns whether the connection
/// stays.
pub fn forward(core: &Core, exchange: &mut Exchange<'_>, work: &mut Work, page: &[u8], keep: bool) -> bool {
    work.response.clear();
    let limits = Limits { head_bytes: page.len().max(1), ..Limits::default() };
    let parsed = work.response.parse(page, ResponseTo::default(), &limits);
    let Ok(Parsed::Complete(len)) = parsed else {
        // An empty errorfile closes without an answer; a malformed one was refused when it was read.
        return false;
    };
    let is_head = work.request.method == Method::Head;
    if !rules::after(core, exchange, work, Some(page), None) {
        // Without the rules that cannot be followed, and without what they were meant for.
        work.response.clear();
        pages::raw(500, &mut work.down);
        exchange.facts.responds(500);
        exchange.facts.sent(work.down.len() as u64);
        return false;
    }
    exchange.facts.responds(work.response.status);
    let says_close = work.response.connection.close;
    // A page that says so itself has the field counted.
    let close = if says_close { (b"connection".len() + b"close".len()) as u64 } else { 0 };
    let body = if is_head { 0 } else { (page.len() - len) as u64 };
    exchange.facts.sent_head(&work.response, page);
    exchange.facts.sent(close + body);
    let keep = keep && !says_close && !exchange.session.slot.is_removed();
    let keep = work.response.for_client(page, ForClient { keep_alive: keep, version: work.request.version });
    work.response.write(page, &mut work.down);
    if !is_head {
        work.down.extend_from_slice(&page[len..]);
    }
    keep
}

/// Sends an answer of our own: a rule's, a redirect, the monitor's.
pub async fn answer(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    answer: Answer,
) -> Result<Sent, Ended> {
    let complete = work.has_whole_body();
    let keep = complete && may_keep(core, exchange, work);
    work.down.clear();
    let keep = forward(core, exchange, work, &answer.page, keep);
    exchange.send(core, work).await?;
    if keep {
        work.skip_body();
    }
    Ok(Sent { keep, unread: !complete, ended: answer.ended })
}

/// Whether the client's connection may stay after a request, as far as the request and we are concerned.
pub fn may_keep(core: &Core, exchange: &Exchange<'_>, work: &Work) -> bool {
    // What a refused CONNECT is followed by was meant for the tunnel: it is nobody's next request.
    work.request.method != Method::Connect && may_stay(core, exchange, work)
}

/// Whether the client's connection may stay after a response to CONNECT: only for the second step of an authentication that is
/// bound to the connection (NTLM), and when the client has waited for it.
pub fn may_authenticate(core: &Core, exchange: &Exchange<'_>, work: &Work) -> bool {
    let is_asked = work.request.method == Method::Connect && work.response.status == 407;
    is_asked && work.input.is_empty() && may_stay(core, exchange, work) && !exchange.connection.stream.is_stale()
}

fn may_stay(core: &Core, exchange: &Exchange<'_>, work: &Work) -> bool {
    use baton_model::ConnectionMode::Close;
    work.request.keep_alive()
        && !core.draining.get()
        && !exchange.session.slot.is_removed()
        && exchange.progress.frontend.plan.proxy.http.connection != Close
}

/// The standard answer with this status, as a server would send it.
pub fn page(status: u16) -> Vec<u8> {
    let mut page = Vec::new();
    pages::standard(status, &mut page);
    page
}

fn custom_page(proxy: &Proxy, status: u16) -> Option<&ErrorPage> {
    proxy.http.error_pages.iter().find(|(code, _)| *code == status).map(|(_, page)| page)
}
