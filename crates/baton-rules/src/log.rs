//! What log formats know besides the connection and the messages: times, counters and the end of an exchange. The request path
//! supplies it, tag by tag, when a format asks.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::time::SystemTime;

use crate::context::Context;
use crate::format::{Format, Tag};

/// Supplies the facts of one exchange.
pub trait LogSource {
    /// The value of a tag. Those that follow from the rest of the [`Context`] are not asked for.
    fn fact(&self, tag: Tag) -> Fact;

    /// Appends a date.
    fn date(&self, time: SystemTime, spelling: DateSpelling, out: &mut Vec<u8>);

    /// Writes the exchange's log line now (`do-log`).
    fn write_line(&self, cx: &Context<'_>);

    /// How the exchange has gone until now (converter `when`).
    fn course(&self) -> ExchangeCourse;

    /// Writes a line of the converter `debug` to `stdout`, `stderr` or the ring of that name.
    fn debug_line(&self, sink: &str, line: &[u8]);
}

/// How an exchange has gone until now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExchangeCourse {
    /// Nothing happened that `option dontlog-normal` has a line for.
    pub is_normal: bool,
    /// A server got the request.
    pub is_forwarded: bool,
    /// A service got it, such as the statistics.
    pub has_service: bool,
}

impl Default for ExchangeCourse {
    fn default() -> ExchangeCourse {
        ExchangeCourse { is_normal: true, is_forwarded: false, has_service: false }
    }
}

/// A value of a tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fact {
    /// There is none.
    Absent,
    /// A number; -1 for a time that does not exist.
    Number(i64),
    /// A number that is not final yet (`option logasap`).
    Begun(i64),
    /// The letters of a termination state.
    Letters([u8; 4]),
    /// An address.
    Address(Option<SocketAddr>),
    /// A moment.
    Time(SystemTime),
}

/// How a date is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DateSpelling {
    /// `21/Nov/2026:03:42:51.123`, local time.
    Milliseconds,
    /// `21/Nov/2026:03:42:51 +0000`, universal time.
    Gmt,
    /// `21/Nov/2026:04:42:51 +0100`, local time.
    Local,
}

/// A source without any fact, for evaluations that have no exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl LogSource for NoLog {
    fn fact(&self, tag: Tag) -> Fact {
        if tag == Tag::Status { Fact::Number(-1) } else { Fact::Absent }
    }

    fn date(&self, _: SystemTime, _: DateSpelling, _: &mut Vec<u8>) {}

    fn write_line(&self, _: &Context<'_>) {}

    fn course(&self) -> ExchangeCourse {
        ExchangeCourse::default()
    }

    fn debug_line(&self, _: &str, _: &[u8]) {}
}

/// The unique ID of an exchange. It is made when it is asked for the first time, and stays the same from then on.
#[derive(Debug, Default)]
pub struct UniqueId {
    made: OnceCell<Box<[u8]>>,
    /// A format that asks for the ID that it makes gets none.
    is_in_work: Cell<bool>,
}

impl UniqueId {
    /// One that was made in another process; `None`: it was not.
    pub fn resumed(made: Option<Box<[u8]>>) -> UniqueId {
        UniqueId { made: made.map_or_else(OnceCell::new, OnceCell::from), is_in_work: Cell::new(false) }
    }

    /// Whether it was asked for.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// The ID, made by `format` unless it was made before.
    pub fn value(&self, format: &Format, cx: &Context<'_>) -> Option<&[u8]> {
        if let Some(made) = self.made.get() {
            return Some(made);
        }
        if self.is_in_work.replace(true) {
            return None;
        }
        let mut text = Vec::new();
        format.write(cx, &mut text);
        self.is_in_work.set(false);
        Some(self.made.get_or_init(|| text.into_boxed_slice()))
    }

    /// The ID, if it was made.
    pub fn made(&self) -> Option<&[u8]> {
        self.made.get().map(|made| &**made)
    }
}

impl Context<'_> {
    /// The unique ID of the exchange, if its frontend has a format for it.
    pub fn unique_id(&self) -> Option<&[u8]> {
        let (id, format) = self.unique_id?;
        id.value(format?, self)
    }
}
