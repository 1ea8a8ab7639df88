//! The request line: what happens to a request, in order. Each call is a folder of that name.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use baton_http::{Framing, Method};
use baton_model::Mode;

use crate::attempt::{Attempts, Load, Opened};
use crate::client::Client;
use crate::core::{Core, Interrupt};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::handshake;
use crate::parse::{self, Arrival};
use crate::record;
use crate::relay;
use crate::respond::{self, Sent};
use crate::route::{self, Routed};
use crate::runner::Runner;
use crate::spare::Spare;
use crate::state::Counter;
use crate::supervise;
use crate::work::Work;

/// Places of finished requests that are kept for the next ones.
const RUNNERS_KEPT_MAX: usize = 256;
/// How often half of the memory is freed that was not needed since.
const THIN: Duration = Duration::from_secs(1);

/// The request line of one core.
#[derive(Debug)]
pub struct Line {
    /// The core.
    pub core: Rc<Core>,
    /// Places for the futures of requests.
    runners: Spare<Runner<Arrived, Served>>,
}

/// A client with a request.
type Arrived = (Rc<Core>, Box<Client>);
/// The client when it is served, and what follows.
type Served = (Box<Client>, Next);

impl Line {
    /// The line of `core`. Frees the memory that a burst left behind, from now on.
    pub fn start(core: Rc<Core>) -> Rc<Line> {
        let line = Rc::new(Line { core, runners: Spare::new(RUNNERS_KEPT_MAX) });
        let weak = Rc::downgrade(&line);
        tokio::task::spawn_local(supervise::for_ever(move || {
            let line = weak.clone();
            async move {
                loop {
                    tokio::time::sleep(THIN).await;
                    let Some(line) = line.upgrade() else { return };
                    line.runners.thin();
                    line.core.thin();
                }
            }
        }));
        line
    }
}

/// Serves one accepted connection to its end. What happens once in its life has a future in a box of its own, and what
/// lasts is polled by reference: this future is held by every idle connection.
pub async fn connection(line: Rc<Line>, mut client: Box<Client>) {
    // They see who connects, not whom that one speaks for.
    if !route::admits_connection(&line.core, &client) {
        record::denied(&line.core, &client.connection, &client.session.view(), Counter::DeniedConnections);
        return client.connection.stream.reset_on_close();
    }
    if client.connection.listener().bind.options.accept_proxy
        && let Err(fault) = Box::pin(client.accept_proxy(&line.core)).await
    {
        return record::refused(&line.core, &client.connection, &client.session.view(), fault);
    }
    if let Some(acceptor) = client.connection.listener().tls.clone()
        && let Err(failed) = Box::pin(handshake::agree(&line.core, &mut client, &acceptor)).await
    {
        return record::disagreed(&line.core, &client.connection, &client.session.view(), failed);
    }
    match admit(&line.core, &client) {
        None => client.connection.stream.reset_on_close(),
        // Nobody listens for it, and a connection may have begun before its frontend changed its mode.
        Some(Mode::Direct) => client.connection.stream.reset_on_close(),
        Some(Mode::Tcp) => Box::pin(crate::tcp::serve(&line.core, &mut client)).await,
        Some(Mode::Http) => loop {
            if client.input.is_none() {
                parse::await_request(&line.core, &mut client);
                let arrival = poll_fn(|cx| parse::poll_arrival(&line.core, &mut client, cx)).await;
                if let Arrival::Over(interrupt) = arrival
                    && (client.session.requests() > 0 || interrupt == Interrupt::Abort)
                {
                    return;
                }
            }
            let mut runner = line.runners.take().unwrap_or_else(|| Runner::new(serve));
            runner.begin((line.core.clone(), client));
            let next;
            (client, next) = poll_fn(|cx| runner.poll(cx)).await;
            line.runners.give(runner);
            match next {
                Next::Request => {}
                Next::Close => return,
                Next::Linger => return Box::pin(client.linger(&line.core)).await,
            }
        },
    }
}

/// Rules about sessions, and the line of one. The frontend's mode if the connection is to be served.
fn admit(core: &Core, client: &Client) -> Option<Mode> {
    let view = client.session.view();
    if !route::admits_session(core, client, &view) {
        record::denied(core, &client.connection, &view, Counter::DeniedSessions);
        return None;
    }
    record::connected(core, &client.connection, &view);
    Some(view.plan.proxy.mode)
}

/// Serves one request, with memory that the core lends.
async fn serve((core, mut client): Arrived) -> Served {
    let mut work = core.work(client.take_input());
    let (mut exchange, _) = client.begin(&core);
    exchange.variables = std::mem::take(&mut work.variables);
    let next = request(&core, &mut exchange, &mut work).await;
    work.variables = std::mem::take(&mut exchange.variables);
    drop(exchange);
    if let Some(input) = core.rest(work) {
        client.keep_input(input);
    }
    (client, next)
}

/// What follows a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// The next one.
    Request,
    /// Everything was read and said.
    Close,
    /// The client may still be sending.
    Linger,
}

/// One request, from its first byte to its log line.
async fn request(core: &Rc<Core>, exchange: &mut Exchange<'_>, work: &mut Work) -> Next {
    let outcome = forward(core, exchange, work).await;
    let (next, outcome) = finish(core, exchange, work, outcome).await;
    exchange.progress.leave();
    record::write(core, exchange, outcome, &work.line);
    if !matches!(next, Next::Request) {
        exchange.connection.membership.leave();
    }
    next
}

/// The request's way to a server and back.
async fn forward(core: &Rc<Core>, exchange: &mut Exchange<'_>, work: &mut Work) -> Result<Sent, Ended> {
    parse::head(core, exchange, work).await?;
    let (backend, wish) = match route::choose(core, exchange, work).await? {
        Routed::Backend(backend, wish) => (backend, wish),
        Routed::Answered(answer) => return respond::answer(core, exchange, work, answer).await,
    };
    exchange.progress.enter(&backend);
    supervise::may_panic("request");
    relay::compose(core, exchange, work, &backend)?;
    let mut attempts = Attempts::new(&backend, wish);
    loop {
        let (slot, connection) = match attempts.open(core, exchange, Load::Request(work)).await? {
            Opened::Server(slot, connection) => (slot, connection),
            Opened::Answered(answer) => return respond::answer(core, exchange, work, answer).await,
        };
        match relay::run(core, exchange, work, &backend, &slot, connection).await {
            Ok(sent) => {
                exchange.progress.keep(slot);
                return Ok(sent);
            }
            Err(failure) => attempts.again(exchange, work, slot, failure)?,
        }
    }
}

/// An early end becomes its answer; decides what becomes of the connection.
async fn finish(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    outcome: Result<Sent, Ended>,
) -> (Next, Result<(), Ended>) {
    let ended = match outcome {
        Ok(Sent { keep: true, ended, .. }) => return (Next::Request, ended.map_or(Ok(()), Err)),
        Ok(Sent { keep: false, unread, ended }) => {
            return (last(work, unread), ended.map_or(Ok(()), Err));
        }
        Err(ended) => ended,
    };
    if ended.phase == Phase::Headers
        && ended.cause == Cause::ServerAborted
        && !exchange.is_first
        && exchange.progress.is_reused()
    {
        // The server closed a kept connection under a request that must not be repeated by us. Closing without an answer
        // leaves that decision to the client, which knows what it asked for (RFC 9112 9.3.1).
        exchange.facts.silence();
        return (Next::Close, Err(ended));
    }
    if exchange.facts.status != 0 {
        // The response was begun: only closing tells the client that it is not whole.
        return (Next::Close, Err(ended));
    }
    if ended.status == 0 {
        exchange.facts.responds(ended.logged);
        return (Next::Close, Err(ended));
    }
    let whole = work.has_whole_body();
    let keep = whole && exchange.facts.has_request && respond::may_keep(core, exchange, work);
    let keep = match exchange.progress.take_replacement() {
        Some(page) => {
            work.down.clear();
            respond::forward(core, exchange, work, &page, keep)
        }
        None => respond::compose(core, exchange, work, ended.status, keep),
    };
    let sent = exchange.send(core, work).await;
    if keep {
        work.skip_body();
    }
    match (sent, keep) {
        (Err(_), _) => (Next::Close, Err(ended)),
        (Ok(()), true) => (Next::Request, Err(ended)),
        (Ok(()), false) => (last(work, !whole || !exchange.facts.has_request), Err(ended)),
    }
}

/// How to close after a response. A client that did not ask for it may have sent its next request already: closing with bytes
/// unread would reset the connection, and what it has not read of the response would be lost.
fn last(work: &Work, unread: bool) -> Next {
    let is_unasked = work.request.keep_alive() || work.request.method == Method::Connect;
    let may_send_more = is_unasked && work.response.framing != Framing::Tunnel;
    if unread || may_send_more { Next::Linger } else { Next::Close }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of each of the two parts of an idle connection that are ours.
    const IDLE_MAX: usize = 256;
    /// What the runtime needs of a task, and the rounding of its size.
    const TASK: usize = 128;

    fn size<F>(_: impl FnOnce(Rc<Line>, Box<Client>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Client>() <= IDLE_MAX, "{}", size_of::<Client>());
        assert!(size(connection) <= IDLE_MAX - TASK, "{}", size(connection));
    }
}
