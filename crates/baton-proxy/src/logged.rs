//! What log formats know of an exchange besides its connection and messages: times, counters, how it ended.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use baton_model::Mode;
use baton_rules::{Context, DateSpelling, ExchangeCourse, Fact, LogSource, Tag};

use crate::connection::Connection;
use crate::core::Core;
use crate::ended::{Cause, Ended};
use crate::facts::LogFacts;
use crate::log::INFO;
use crate::progress::Progress;
use crate::view::FrontendView;

/// The facts of an exchange, or of a connection that has none.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// The core.
    pub core: &'a Core,
    /// The connection.
    pub connection: &'a Connection,
    /// The frontend.
    pub frontend: &'a FrontendView,
    /// What is known of the exchange; `None` before there is one.
    pub exchange: Option<LoggedExchange<'a>>,
    /// How it ended; the default before it has.
    pub ended: Ended,
    /// Whether it has.
    pub is_over: bool,
}

/// What is known of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct LoggedExchange<'a> {
    /// What the stages of the request path noted.
    pub facts: &'a LogFacts,
    /// How far it has come.
    pub progress: &'a Progress,
    /// Its number among those of the process.
    pub number: u64,
}

impl LogSource for Logged<'_> {
    fn fact(&self, tag: Tag) -> Fact {
        match tag {
            Tag::Date | Tag::GmtDate | Tag::LocalDate | Tag::Milliseconds | Tag::Timestamp => {
                Fact::Time(self.wall(self.started() - self.handshake()))
            }
            Tag::RequestDate | Tag::GmtRequestDate | Tag::LocalRequestDate => Fact::Time(self.wall(self.began())),
            Tag::Pid => Fact::Number(self.core.log.pid().into()),
            Tag::HandshakeTime => Fact::Number(whole_ms(self.handshake())),
            Tag::IdleTime => Fact::Number(whole_ms(self.began().saturating_duration_since(self.started()))),
            Tag::TotalTime => self.growing(whole_ms(self.elapsed(self.started()) + self.handshake())),
            Tag::UserTime => self.growing(whole_ms(self.elapsed(self.began()) + self.handshake())),
            Tag::ActiveTime => self.growing(whole_ms(self.elapsed(self.began()))),
            Tag::LineCounter => Fact::Number(self.frontend.plan.state.lines.total().cast_signed()),
            Tag::ActiveConnections => Fact::Number(self.core.registry.open.load(Ordering::Relaxed)),
            Tag::FrontendConnections => Fact::Number(self.frontend.plan.state.open.load(Ordering::Relaxed)),
            Tag::TerminationState | Tag::TerminationStateCookie => Fact::Letters(self.letters()),
            _ => match &self.exchange {
                Some(exchange) => self.of_exchange(tag, exchange),
                None => Self::of_nothing(self.core, tag),
            },
        }
    }

    fn date(&self, time: SystemTime, spelling: DateSpelling, out: &mut Vec<u8>) {
        self.core.log.dates.write(time, spelling, out);
    }

    fn write_line(&self, cx: &Context<'_>) {
        if !self.frontend.sinks.is_empty() {
            self.core.log.traffic_line(&self.frontend.sinks, INFO, &self.frontend.plan.rules, cx);
            self.frontend.plan.state.lines.add(self.core.number);
        }
    }

    fn course(&self) -> ExchangeCourse {
        let Some(LoggedExchange { facts, progress, .. }) = self.exchange else {
            return ExchangeCourse { is_normal: self.ended.cause == Cause::None, ..ExchangeCourse::default() };
        };
        ExchangeCourse {
            is_normal: facts.is_normal(self.ended),
            is_forwarded: progress.server().is_some(),
            has_service: facts.service.is_some(),
        }
    }

    fn debug_line(&self, sink: &str, line: &[u8]) {
        self.core.log.debug_line(sink, line);
    }
}

impl Logged<'_> {
    /// When the connection was accepted, or its previous exchange ended; a handshake came before.
    fn started(&self) -> Instant {
        self.exchange.map_or(self.connection.accepted, |exchange| exchange.facts.started)
    }

    fn began(&self) -> Instant {
        self.exchange.map_or_else(|| self.core.now(), |exchange| exchange.facts.began)
    }

    /// The time of the handshakes; they are in the first exchange's times.
    fn handshake(&self) -> Duration {
        match self.exchange {
            Some(exchange) if !exchange.facts.is_first => Duration::ZERO,
            _ => Duration::from_millis(self.connection.handshake_ms.into()),
        }
    }

    fn elapsed(&self, since: Instant) -> Duration {
        self.core.now().saturating_duration_since(since)
    }

    fn wall(&self, at: Instant) -> SystemTime {
        self.core.clock.wall_at(at)
    }

    /// A number that is not final in a line that is written early (`option logasap`).
    fn growing(&self, value: i64) -> Fact {
        if self.frontend.plan.proxy.logging.asap { Fact::Begun(value) } else { Fact::Number(value) }
    }

    fn letters(&self) -> [u8; 4] {
        let cookie = self.exchange.map_or(*b"--", |exchange| exchange.facts.cookie);
        [self.ended.cause.letter(), self.ended.phase.letter(), cookie[0], cookie[1]]
    }

    fn of_exchange(&self, tag: Tag, exchange: &LoggedExchange<'_>) -> Fact {
        let LoggedExchange { facts, progress, number } = exchange;
        match tag {
            Tag::BytesRead => self.growing(facts.bytes_out.cast_signed()),
            // Counted from the passage to a server on, as in HAProxy.
            Tag::BytesUploaded if self.is_over || progress.server().is_some() => {
                Fact::Number(facts.bytes_in.cast_signed())
            }
            Tag::BytesUploaded => Fact::Number(0),
            Tag::Status => match facts.status {
                // A stream is reset for what is no request, and HAProxy logs this.
                0 if self.connection.is_http2 && !facts.has_request && self.ended.cause == Cause::Proxy => {
                    Fact::Number(0)
                }
                0 => Fact::Number(-1),
                status => Fact::Number(status.into()),
            },
            Tag::RequestTime => Fact::Number(ms(facts.request_time)),
            Tag::QueueTime => Fact::Number(ms(facts.queue_time)),
            Tag::ConnectTime => Fact::Number(ms(facts.connect_time)),
            Tag::ResponseTime => Fact::Number(ms(facts.response_time)),
            Tag::QueryTime => {
                let before = self.handshake() + facts.began.saturating_duration_since(facts.started);
                Fact::Number(ms(facts.request_time.map(|time| time + before)))
            }
            Tag::DataTime => Fact::Number(ms(self.data_time(facts))),
            Tag::Retries if facts.redispatched => Fact::Begun(facts.retries.into()),
            Tag::Retries => Fact::Number(facts.retries.into()),
            Tag::ServerQueue => Fact::Number(facts.server_queue as i64),
            Tag::BackendQueue => Fact::Number(facts.backend_queue as i64),
            // As in HAProxy, this one has left backend and server when its line is written, but not the frontend.
            Tag::BackendConnections => Fact::Number(match progress.backend() {
                Some(backend) => backend.plan.figures.open.load(Ordering::Relaxed),
                None => 0,
            }),
            Tag::ServerConnections => {
                let own = u32::from(progress.has_slot());
                Fact::Number(progress.server().map_or(0, |server| server.served().saturating_sub(own).into()))
            }
            Tag::BackendSourceIp | Tag::BackendSourcePort => Fact::Address(facts.source_address),
            Tag::ServerIp | Tag::ServerPort => Fact::Address(facts.server_address),
            Tag::RequestCounter => Fact::Number(number.cast_signed()),
            _ => Fact::Absent,
        }
    }

    /// Of a connection that ended before its first exchange.
    fn of_nothing(core: &Core, tag: Tag) -> Fact {
        match tag {
            Tag::RequestTime
            | Tag::QueueTime
            | Tag::ConnectTime
            | Tag::ResponseTime
            | Tag::QueryTime
            | Tag::DataTime => Fact::Number(-1),
            Tag::BackendSourceIp | Tag::BackendSourcePort | Tag::ServerIp | Tag::ServerPort => Fact::Absent,
            Tag::RequestCounter => Fact::Number(core.next_number().cast_signed()),
            _ => Fact::Number(0),
        }
    }

    /// From the response on; without HTTP from the connection to the server on.
    fn data_time(&self, facts: &LogFacts) -> Option<Duration> {
        let last = match self.frontend.plan.proxy.mode {
            Mode::Http => facts.response_time?,
            Mode::Tcp | Mode::Direct => Duration::ZERO,
        };
        let before = facts.request_time.unwrap_or_default() + facts.queue_time? + facts.connect_time? + last;
        Some(self.elapsed(facts.began).saturating_sub(before))
    }
}

fn ms(time: Option<Duration>) -> i64 {
    time.map_or(-1, whole_ms)
}

fn whole_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
