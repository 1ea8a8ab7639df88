//! Answers of our own: error pages, redirects, the monitor's.

use std::rc::Rc;

use baton_http::{Method, ResponseView};

use crate::core::Core;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::pages;
use crate::rules::{self, OwnResponse};
use crate::sink;
use crate::transport::Transport;

/// The field of our pages that is not sent, and is counted.
const CLOSE_LEN: usize = "connection".len() + "close".len();

/// A response that went to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// The client's connection stays for another request.
    pub keep: bool,
    /// The client may still be sending the body of this one.
    pub unread: bool,
    /// How the log says it ended, when not as it should.
    pub ended: Option<Ended>,
    /// Both connections have left for another process, which counts and logs the exchange.
    pub left: bool,
}

impl Sent {
    /// Nothing follows, after this end.
    pub fn ended(ended: Option<Ended>) -> Sent {
        Sent { ended, ..Sent::default() }
    }
}

/// What became of the client's end of an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The response is whole, and so is the request: another one may follow.
    Kept,
    /// The response is whole, and nothing follows.
    Closed {
        /// The client may still be sending the body of its request.
        unread: bool,
    },
    /// Only the end tells the client that there is no response, or that it is not whole.
    Broken,
    /// The connection has left for another process, and the exchange with it.
    Left,
}

/// The end of an exchange: an early one becomes its answer. What became of the client's end, and how the log says it ended.
pub async fn finish(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    outcome: Result<Sent, Ended>,
) -> (Ending, Result<(), Ended>) {
    let ended = match outcome {
        Ok(Sent { keep: true, ended, .. }) => return (Ending::Kept, ended.map_or(Ok(()), Err)),
        Ok(Sent { keep: false, unread, ended, .. }) => {
            return (Ending::Closed { unread }, ended.map_or(Ok(()), Err));
        }
        Err(ended) => ended,
    };
    exchange.progress.ends_early(ended);
    if ended.phase == Phase::Headers
        && ended.cause == Cause::ServerAborted
        && !exchange.is_first
        && exchange.progress.is_reused()
        && exchange.client.connection().is_some()
    {
        // The server closed a kept connection under a request that must not be repeated by us. Closing without an answer
        // leaves that decision to the client, which knows what it asked for (RFC 9112 9.3.1). A stream has no such end: REFUSED_STREAM would
        // promise that nothing was done.
        exchange.facts.silence();
        return (Ending::Broken, Err(ended));
    }
    if exchange.facts.status != 0 {
        // The response was begun: only closing tells the client that it is not whole.
        return (Ending::Broken, Err(ended));
    }
    if ended.status == 0 {
        exchange.facts.responds(ended.logged);
        return (Ending::Broken, Err(ended));
    }
    let whole = exchange.messages.has_whole_body();
    let keep = whole && exchange.facts.has_request && sink::may_keep(core, exchange);
    let keep = match exchange.progress.take_replacement() {
        Some(page) => {
            exchange.messages.down.clear();
            forward_as(core, exchange, (&page, Some(ended.status)), keep)
        }
        None => compose(core, exchange, ended.status, keep),
    };
    let sent = exchange.send_last(core).await;
    if keep {
        exchange.messages.skip_body();
    }
    let ending = match (sent, keep) {
        (Err(_), _) => Ending::Broken,
        (Ok(()), true) => Ending::Kept,
        (Ok(()), false) => Ending::Closed { unread: !whole || !exchange.facts.has_request },
    };
    (ending, Err(ended))
}

/// Composes the answer with this status: the proxy's own page for it or the standard one. `keep`: the connection may stay. Returns
/// whether it stays.
fn compose(core: &Core, exchange: &mut Exchange<'_>, status: u16, keep: bool) -> bool {
    exchange.messages.down.clear();
    if !exchange.facts.has_request {
        exchange.facts.responds(status);
        // The connection layer has pages of its own; only an empty one is heeded: it says to close without an answer.
        if !rules::is_silent(exchange, status) {
            let page = pages::raw(status);
            sink::plain(exchange, &page);
            if matches!(exchange.client, Transport::Http2(_)) {
                // A stream has its response from the proxy, and HAProxy counts it.
                let Exchange { messages, facts, .. } = exchange;
                facts.sent_head(ResponseView::new(&messages.response, &page));
                facts.sent((CLOSE_LEN + messages.down.len()) as u64);
            }
        }
        return false;
    }
    let backend = exchange.progress.backend().cloned();
    let page = rules::error_page(core, exchange, backend.as_deref(), status);
    forward_as(core, exchange, (&page, Some(status)), keep)
}

/// As [`forward`], of a page that the log has another status of, if that is given.
fn forward_as(core: &Core, exchange: &mut Exchange<'_>, (page, logged): (&[u8], Option<u16>), keep: bool) -> bool {
    let Some(logged) = logged else { return forward(core, exchange, page, keep) };
    exchange.facts.responds(logged);
    let keep = forward(core, exchange, page, keep);
    if exchange.messages.response.status != 0 {
        exchange.facts.responds(logged);
    }
    keep
}

/// Composes a response given as bytes: its head is written as one from a server would be. Returns whether the connection
/// stays.
pub fn forward(core: &Core, exchange: &mut Exchange<'_>, page: &[u8], keep: bool) -> bool {
    let Some(len) = exchange.messages.read_page(page) else {
        // An empty errorfile closes without an answer; a malformed one was refused when it was read.
        return false;
    };
    let is_head = exchange.messages.request.method == Method::Head;
    if !rules::after(core, exchange, Some(page), None) {
        // Without the rules that cannot be followed, and without what they were meant for.
        exchange.messages.response.clear();
        let page = pages::raw(500);
        sink::plain(exchange, &page);
        exchange.facts.responds(500);
        exchange.facts.sent(page.len() as u64);
        return false;
    }
    exchange.facts.responds(exchange.messages.response.status);
    let says_close = exchange.messages.response.connection.close;
    // A page that says so itself has the field counted.
    let close = if says_close { (b"connection".len() + b"close".len()) as u64 } else { 0 };
    let body = if is_head { 0 } else { (page.len() - len) as u64 };
    exchange.facts.sent_head(ResponseView::new(&exchange.messages.response, page));
    exchange.facts.sent(close + body);
    let keep = keep && !says_close && !exchange.session.slot.is_removed();
    let keep = sink::head(exchange, Some(page), keep);
    if !is_head {
        exchange.messages.down.extend_from_slice(&page[len..]);
    }
    keep
}

/// Sends an answer of our own: a rule's, a redirect, the monitor's.
pub async fn answer(core: &Rc<Core>, exchange: &mut Exchange<'_>, answer: OwnResponse) -> Result<Sent, Ended> {
    let complete = exchange.messages.has_whole_body();
    let keep = complete && sink::may_keep(core, exchange);
    exchange.messages.down.clear();
    let keep = forward_as(core, exchange, (&answer.page, answer.logged), keep);
    exchange.send_last(core).await?;
    if keep {
        exchange.messages.skip_body();
    }
    Ok(Sent { keep, unread: !complete, ..Sent::ended(answer.ended) })
}
