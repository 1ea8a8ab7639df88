//! Attempts: a place at a server, a connection to it, and, where one failed, whether another attempt follows, where, and when
//! (`retries`, `option redispatch`, `retry-on`).

mod connect;
mod opening;
mod place;

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use baton_http::{Method, RequestView};
use baton_model::{Proxy, Redispatch};
use baton_rules::{Context, RuleSettings};

use crate::attempt::opening::ConnectFailed;
use crate::balance::{Observed, ServerState, Slot};
use crate::client::Input;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::facts::Retry;
use crate::messages::Messages;
use crate::preference::Preference;
use crate::relay::{Failure, NoResponse};
use crate::rules::{self, OwnResponse};
use crate::server_connection::ServerConnection;
use crate::server_exchange::ServerExchange;
use crate::stream::Stream;
use crate::view::BackendView;

/// The pause before the same server is tried again, unless `timeout connect` is shorter: it may be restarting.
const TURN_AROUND: Duration = Duration::from_secs(1);

/// The attempts of one exchange.
#[derive(Debug)]
pub struct Attempts<'a> {
    backend: &'a BackendView,
    preference: Preference,
    /// `retries`, or `set-retries`.
    retries: u32,
    used: u32,
    /// A kept connection turned out to be closed under the request: the next attempt opens one, for others that were kept may be
    /// closed as well.
    is_stale: bool,
    /// A server has said that it did not begin with the request, and that was not counted as an attempt.
    was_refused: bool,
}

/// What an exchange has for its server: a request, or the bytes of a client in `mode tcp`.
pub trait Load: Sized {
    /// What it is sent over.
    type Link;

    /// There is a place at a server. The answer, if the client is to ask the server itself.
    fn placed(
        exchange: &mut Exchange<'_, Self>,
        backend: &BackendView,
        preference: &Preference,
        slot: &Slot,
    ) -> Option<OwnResponse>;

    /// Evaluates with what there is of it.
    fn evaluate<T>(
        core: &Core,
        exchange: &mut Exchange<'_, Self>,
        backend: &BackendView,
        evaluate: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T;

    /// A connection to the slot's server, under this name; a `new` one, or one that was kept.
    async fn connect(
        core: &Rc<Core>,
        exchange: &mut Exchange<'_, Self>,
        backend: &BackendView,
        slot: &Slot,
        name: Option<Box<str>>,
        new: bool,
    ) -> Result<Self::Link, ConnectFailed>;

    /// The socket of a connection.
    fn socket(link: &Self::Link) -> &Stream;
}

impl Load for Box<Messages> {
    type Link = ServerExchange;

    fn placed(
        exchange: &mut Exchange<'_>,
        backend: &BackendView,
        preference: &Preference,
        slot: &Slot,
    ) -> Option<OwnResponse> {
        preference.note_cookie(exchange);
        if let Some(header) = &backend.plan.proxy.http.send_name_header {
            let cases = backend.plan.proxy.http.server_cases.as_deref();
            exchange.messages.name_server(header, &slot.config().name, cases);
        }
        redirect(slot, exchange.messages.request())
    }

    fn evaluate<T>(
        core: &Core,
        exchange: &mut Exchange<'_>,
        backend: &BackendView,
        evaluate: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        rules::with_request(core, exchange, Some(backend), evaluate)
    }

    async fn connect(
        core: &Rc<Core>,
        exchange: &mut Exchange<'_>,
        backend: &BackendView,
        slot: &Slot,
        name: Option<Box<str>>,
        new: bool,
    ) -> Result<ServerExchange, ConnectFailed> {
        connect::lend(core, exchange, backend, slot, name, new).await
    }

    fn socket(link: &ServerExchange) -> &Stream {
        link.socket()
    }
}

impl Load for Input {
    type Link = ServerConnection;

    fn placed(_: &mut Exchange<'_, Input>, _: &BackendView, _: &Preference, _: &Slot) -> Option<OwnResponse> {
        None
    }

    fn evaluate<T>(
        core: &Core,
        exchange: &mut Exchange<'_, Input>,
        backend: &BackendView,
        evaluate: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        rules::with_stream(core, exchange, Some(backend), true, evaluate)
    }

    async fn connect(
        core: &Rc<Core>,
        exchange: &mut Exchange<'_, Input>,
        backend: &BackendView,
        slot: &Slot,
        name: Option<Box<str>>,
        _: bool,
    ) -> Result<ServerConnection, ConnectFailed> {
        let has_data = exchange.messages.as_ref().is_some_and(|input| !input.is_empty());
        connect::open(core, exchange, backend, slot, name, has_data, None).await
    }

    fn socket(link: &ServerConnection) -> &Stream {
        &link.stream
    }
}

/// What came of an attempt.
pub enum Opened<L> {
    /// The place at a server, and a connection to it.
    Server(Slot, L),
    /// The client is to ask the server itself (`redir`).
    Answered(OwnResponse),
}

impl<'a> Attempts<'a> {
    /// As many as a rule, or else the backend allows.
    pub fn new(backend: &'a BackendView, preference: Preference, set: &RuleSettings) -> Attempts<'a> {
        let retries = set.values().and_then(|set| set.retries).unwrap_or(backend.plan.proxy.retries);
        Attempts { backend, preference, retries, used: 0, is_stale: false, was_refused: false }
    }

    /// Of an exchange that came to this server elsewhere, after so many retries.
    pub fn resumed(
        backend: &'a BackendView,
        server: Arc<ServerState>,
        retries: u32,
        set: &RuleSettings,
    ) -> Attempts<'a> {
        let preference = Preference { again: Some(server), ..Preference::default() };
        let attempts = Attempts::new(backend, preference, set);
        Attempts { used: retries.min(attempts.retries), ..attempts }
    }

    /// A place at a server of the backend, and a connection to it, as often as retries allow.
    pub async fn open<M: Load>(
        &mut self,
        core: &Rc<Core>,
        exchange: &mut Exchange<'_, M>,
    ) -> Result<Opened<M::Link>, Ended> {
        loop {
            let slot = place::take(core, exchange, self.backend, &mut self.preference).await?;
            connect::chosen(core, exchange, self.backend, &slot);
            if let Some(answer) = M::placed(exchange, self.backend, &self.preference, &slot) {
                return Ok(Opened::Answered(answer));
            }
            exchange.facts.tries(slot.config().address.inet());
            let name = server_name(core, exchange, self.backend, &slot);
            let ended = match M::connect(core, exchange, self.backend, &slot, name, self.is_stale).await {
                Ok(connection) => {
                    if exchange.progress.names_source_address() {
                        let local = M::socket(&connection).socket().local_addr().ok();
                        exchange.facts.connected_from(local.and_then(|local| local.as_socket()));
                    }
                    return Ok(Opened::Server(slot, connection));
                }
                Err(ConnectFailed::Final(ended)) => return Err(ended),
                Err(ConnectFailed::WrongName(ended)) => {
                    slot.server().report(Observed::ConnectFailed);
                    exchange.facts.given_up(self.retries);
                    return Err(ended);
                }
                Err(ConnectFailed::Retry(ended)) => ended,
            };
            slot.server().report(Observed::ConnectFailed);
            self.pause(core, exchange, slot, ended).await?;
        }
    }

    /// After a response that failed: the next attempt begins at once.
    ///
    /// # Errors
    /// There is none: how the exchange ended. It keeps its place at the server then.
    pub fn again(&mut self, exchange: &mut Exchange<'_>, slot: Slot, failure: Failure) -> Result<(), Ended> {
        let (mut is_stale, mut is_free) = (false, false);
        match failure {
            Failure::Ended(ended) => {
                exchange.progress.keep(slot);
                return Err(ended);
            }
            // Whatever it is, the server has not begun with it (RFC 9113 8.7): nobody is to notice. But a server that goes on refusing is
            // not asked for ever.
            Failure::NoResponse(NoResponse::Unprocessed)
                if exchange.messages.upload.replayable && (!self.was_refused || self.left() > 0) =>
            {
                is_free = !std::mem::replace(&mut self.was_refused, true);
            }
            Failure::NoResponse(failure) => {
                slot.server().report(Observed::AnswerFailed);
                let is_empty = matches!(failure, NoResponse::Empty);
                is_stale =
                    exchange.progress.is_reused() && is_empty && is_repeatable(exchange.messages.request().method());
                if !exchange.messages.upload.replayable || !(is_stale || self.may_repeat(&failure, exchange.no_retry)) {
                    exchange.progress.keep(slot);
                    return Err(failure.ended());
                }
            }
            Failure::Status => {}
        }
        exchange.messages.begin_again();
        if is_stale {
            self.is_stale = true;
        } else if !is_free {
            self.next(exchange, &slot);
        }
        Ok(())
    }

    fn proxy(&self) -> &'a Proxy {
        &self.backend.plan.proxy
    }

    fn left(&self) -> u32 {
        self.retries - self.used
    }

    /// After a failed connection: waits where that is due and says where to try next. `Err`: no more attempts.
    async fn pause<M>(
        &mut self,
        core: &Core,
        exchange: &mut Exchange<'_, M>,
        slot: Slot,
        ended: Ended,
    ) -> Result<(), Ended> {
        if self.left() == 0 || !self.proxy().retry_on.conn_failure {
            return Err(ended);
        }
        let elsewhere = self.next(exchange, &slot);
        drop(slot);
        if elsewhere || ended.cause == Cause::ServerTimeout {
            return Ok(());
        }
        let pause = self.proxy().timeouts.connect.unwrap_or(TURN_AROUND).min(TURN_AROUND);
        exchange.deadline.set(Some(core.now() + pause));
        let Exchange { orders, deadline, .. } = exchange;
        match until(core, orders, deadline, |_| Poll::<()>::Pending).await {
            Err(Interrupt::Abort) => Err(Ended::aborted(Phase::Connect)),
            Ok(()) | Err(Interrupt::Timeout) => Ok(()),
        }
    }

    /// Whether a request without a response may be sent again. `no_retry`: a rule forbids it.
    fn may_repeat(&self, failure: &NoResponse, no_retry: bool) -> bool {
        let on = &self.proxy().retry_on;
        self.left() > 0
            && !no_retry
            && match failure {
                NoResponse::Empty | NoResponse::Reset => on.empty_response,
                NoResponse::Truncated | NoResponse::Malformed { .. } => on.junk_response,
                NoResponse::Late => on.response_timeout,
                NoResponse::Unprocessed | NoResponse::Ended(_) => false,
            }
    }

    /// Counts the attempt; true when the next one goes to another server.
    fn next<M>(&mut self, exchange: &mut Exchange<'_, M>, slot: &Slot) -> bool {
        self.used += 1;
        let elsewhere = match self.proxy().tcp.redispatch {
            Redispatch::Off => false,
            Redispatch::Every(interval) => self.used.is_multiple_of(interval.max(1)),
            Redispatch::Last(before_end) => self.left() < before_end,
        };
        self.preference.avoid = elsewhere.then(|| slot.server().clone());
        self.preference.again = (!elsewhere).then(|| slot.server().clone());
        exchange.facts.retried(self.used, if elsewhere { Retry::Elsewhere } else { Retry::Again });
        elsewhere
    }
}

/// Repeating it does no harm (RFC 9110 9.2.2), so it may be sent again when a kept connection turns out to be closed.
fn is_repeatable(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace)
}

/// `redir`: the client is to ask the server itself.
fn redirect(slot: &Slot, request: RequestView<'_>) -> Option<OwnResponse> {
    let prefix = slot.config().redir.as_ref()?;
    if !matches!(request.method(), Method::Get | Method::Head) {
        return None;
    }
    let target = request.path_and_query();
    let mut page = b"HTTP/1.1 302 Found\r\ncache-control: no-cache\r\ncontent-length: 0\r\nlocation: ".to_vec();
    page.extend_from_slice(prefix.as_bytes());
    page.extend_from_slice(target);
    page.extend_from_slice(b"\r\nconnection: close\r\n\r\n");
    Some(OwnResponse { page, logged: None, ended: Some(Ended::refused(Cause::Local, Phase::Connect, 302)) })
}

/// What the slot's server is to be asked for (`sni`).
fn server_name<M: Load>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    backend: &BackendView,
    slot: &Slot,
) -> Option<Box<str>> {
    let encryption = slot.encryption().filter(|encryption| encryption.wants_name())?;
    M::evaluate(core, exchange, backend, |cx| encryption.name(cx))
}
