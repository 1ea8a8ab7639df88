//! Actions on the connection that a request came by and on its place among other requests: addresses, options of sockets, priorities,
//! timeouts, retries.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::wait::Delay;
use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::expr::Expr;
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleError};
use crate::sample::Type;

const ADDRESSES: u8 = sets::REQUEST | sets::CONNECTION | sets::SESSION | sets::CONTENT;
const SOCKET: u8 = ADDRESSES | sets::RESPONSE | sets::TCP_RESPONSE;
const STREAM: u8 = sets::REQUEST | sets::CONTENT;

/// The largest class and offset of a priority.
const CLASS_MAX: i64 = 0x7ff;
const OFFSET_MAX: i64 = 0x7_ffff;
/// `set-retries`: HAProxy 3.x takes no more.
const RETRIES_MAX: i64 = 100;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "set-src",
        sets: ADDRESSES,
        parse: |w| address(w, AddressPart::SourceIp),
        doc: "Changes the client's address.",
    },
    Row {
        name: "set-src-port",
        sets: ADDRESSES,
        parse: |w| address(w, AddressPart::SourcePort),
        doc: "Changes the client's port.",
    },
    Row {
        name: "set-dst",
        sets: ADDRESSES,
        parse: |w| address(w, AddressPart::DestinationIp),
        doc: "Changes the address that the client connected to.",
    },
    Row {
        name: "set-dst-port",
        sets: ADDRESSES,
        parse: |w| address(w, AddressPart::DestinationPort),
        doc: "Changes the port that the client connected to.",
    },
    Row { name: "set-tos", sets: SOCKET, parse: client_tos, doc: "Old name of `set-fc-tos`." },
    Row { name: "set-fc-tos", sets: SOCKET, parse: client_tos, doc: "Sets the TOS byte of packets to the client." },
    Row { name: "set-bc-tos", sets: STREAM, parse: server_tos, doc: "Sets the TOS byte of packets to the server." },
    Row { name: "set-mark", sets: SOCKET, parse: client_mark, doc: "Old name of `set-fc-mark`." },
    Row { name: "set-fc-mark", sets: SOCKET, parse: client_mark, doc: "Sets the mark of packets to the client." },
    Row { name: "set-bc-mark", sets: STREAM, parse: server_mark, doc: "Sets the mark of packets to the server." },
    Row {
        name: "set-nice",
        sets: STREAM | sets::RESPONSE | sets::TCP_RESPONSE,
        parse: nice,
        doc: "Accepted for compatibility: requests take turns and are not scheduled by weights.",
    },
    Row {
        name: "set-priority-class",
        sets: STREAM,
        parse: |w| whole_number(w, ConnectionEdit::PriorityClass),
        doc: "Sets the class of a request in queues: lower ones are served first.",
    },
    Row {
        name: "set-priority-offset",
        sets: STREAM,
        parse: |w| whole_number(w, ConnectionEdit::PriorityOffset),
        doc: "Moves a request in queues forwards or back by milliseconds.",
    },
    Row {
        name: "set-timeout",
        sets: sets::REQUEST | sets::RESPONSE,
        parse: timeout,
        doc: "Changes `timeout client`, `server` or `tunnel` for a request.",
    },
    Row { name: "set-retries", sets: STREAM, parse: retries, doc: "Changes `retries` for a request, to at most 100." },
    Row {
        name: "expect-proxy",
        sets: sets::CONNECTION,
        parse: |words| expect(words, ConnectionEdit::ExpectProxy),
        doc: "Expects a PROXY header, as `accept-proxy` of a `bind` does.",
    },
    Row {
        name: "expect-netscaler-cip",
        sets: sets::CONNECTION,
        parse: |words| expect(words, ConnectionEdit::ExpectNetscaler),
        doc: "Expects a client IP header of NetScaler with the number that `accept-netscaler-cip` of the `bind` has, or 0.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEdit {
    Address(AddressPart, Expr),
    ClientTos(Number),
    ServerTos(Number),
    ClientMark(Number),
    ServerMark(Number),
    PriorityClass(Expr),
    PriorityOffset(Expr),
    Timeout(TimeoutKind, Delay),
    Retries(Number),
    ExpectProxy,
    ExpectNetscaler,
}

/// What of an address is changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AddressPart {
    SourceIp,
    SourcePort,
    DestinationIp,
    DestinationPort,
}

/// Which timeout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TimeoutKind {
    Client,
    Server,
    Tunnel,
}

/// A number that is given, or computed.
#[derive(Clone, Debug)]
pub(crate) enum Number {
    Fixed(i64),
    Computed(Expr),
}

fn address(words: &mut RuleArguments<'_, '_>, part: AddressPart) -> Result<Action, LocatedError> {
    let kind = match part {
        AddressPart::SourceIp | AddressPart::DestinationIp => Type::Ip,
        AddressPart::SourcePort | AddressPart::DestinationPort => Type::Int,
    };
    let expr = words.expr_of("an expression", kind)?;
    Ok(Action::Connection(ConnectionEdit::Address(part, expr)))
}

fn client_tos(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    number(words, "a TOS byte", 0..=0xff).map(|tos| Action::Connection(ConnectionEdit::ClientTos(tos)))
}

fn server_tos(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    number(words, "a TOS byte", 0..=0xff).map(|tos| Action::Connection(ConnectionEdit::ServerTos(tos)))
}

fn client_mark(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    number(words, "a mark", 0..=0xffff_ffff).map(|mark| Action::Connection(ConnectionEdit::ClientMark(mark)))
}

fn server_mark(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    number(words, "a mark", 0..=0xffff_ffff).map(|mark| Action::Connection(ConnectionEdit::ServerMark(mark)))
}

fn retries(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    number(words, "a number of retries", 0..=RETRIES_MAX)
        .map(|count| Action::Connection(ConnectionEdit::Retries(count)))
}

fn nice(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let text = words.take("a nice value from -1024 to 1024")?;
    if !text.parse().is_ok_and(|nice: i64| (-1024..=1024).contains(&nice)) {
        return Err(words.blame(RuleError::new(format!("'{text}' is not a nice value from -1024 to 1024"))));
    }
    words.warn(RuleError::new("this has no effect: requests take turns and are not scheduled by weights"));
    Ok(Action::Nothing)
}

fn whole_number(words: &mut RuleArguments<'_, '_>, edit: fn(Expr) -> ConnectionEdit) -> Result<Action, LocatedError> {
    words.expr_of("an expression", Type::Int).map(|expr| Action::Connection(edit(expr)))
}

/// Takes a number, in decimal or with `0x` in hexadecimal digits, or an expression.
fn number(
    words: &mut RuleArguments<'_, '_>,
    what: &str,
    range: std::ops::RangeInclusive<i64>,
) -> Result<Number, LocatedError> {
    if !words.peek().is_some_and(|word| word.starts_with(|char: char| char.is_ascii_digit() || char == '-')) {
        return words.expr_of(what, Type::Int).map(Number::Computed);
    }
    let text = words.take(what)?;
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with(['+', '-']) => i64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    };
    match value.filter(|value| range.contains(value)) {
        Some(value) => Ok(Number::Fixed(value)),
        None => {
            let fault = format!("'{text}' is not {what} from {} to {}", range.start(), range.end());
            Err(words.blame(RuleError::new(fault)))
        }
    }
}

fn timeout(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let text = words.take("the name of a timeout")?;
    let kind = match text {
        "client" => TimeoutKind::Client,
        "server" => TimeoutKind::Server,
        "tunnel" => TimeoutKind::Tunnel,
        _ => {
            let known = ["client", "server", "tunnel"];
            return Err(words.blame(RuleError::unknown("timeout", text, &[], known.into_iter())));
        }
    };
    if kind != TimeoutKind::Client && words.around.place == RulePosition::FrontendRequest {
        let fault = RuleError::new(format!("a frontend has no 'timeout {text}' to be changed"));
        return Err(words.blame(fault.hint("write the rule in the backend")));
    }
    let delay = Delay::parse(words, "a time or an expression")?;
    if matches!(delay, Delay::Fixed(time) if time.is_zero()) {
        return Err(words.blame(RuleError::new("a timeout must be longer than 0")));
    }
    Ok(Action::Connection(ConnectionEdit::Timeout(kind, delay)))
}

fn expect(words: &mut RuleArguments<'_, '_>, edit: ConnectionEdit) -> Result<Action, LocatedError> {
    match words.take("'layer4'")? {
        "layer4" => Ok(Action::Connection(edit)),
        other => {
            let fault = RuleError::new(format!("expected 'layer4', found '{other}'"));
            Err(words.blame(fault.suggest(other, ["layer4"])))
        }
    }
}

impl Number {
    fn now(&self, cx: &Context<'_>) -> Option<i64> {
        match self {
            Number::Fixed(value) => Some(*value),
            Number::Computed(expr) => expr.eval(cx)?.into_int(),
        }
    }
}

impl ConnectionEdit {
    /// Does it. An expression without a value changes nothing.
    pub fn run(&self, cx: &mut Context<'_>) {
        match self {
            ConnectionEdit::Address(part, expr) => {
                if let Some(changed) = part.changed(expr, cx) {
                    part.set(changed, cx);
                }
            }
            ConnectionEdit::ClientTos(tos) => {
                if let Some(tos) = tos.now(cx) {
                    cx.settings.change().socket.tos = Some(tos as u8);
                }
            }
            ConnectionEdit::ServerTos(tos) => {
                if let Some(tos) = tos.now(cx) {
                    cx.settings.change().server_tos = Some(tos as u8);
                }
            }
            ConnectionEdit::ClientMark(mark) => {
                if let Some(mark) = mark.now(cx) {
                    cx.settings.change().socket.mark = Some(mark as u32);
                }
            }
            ConnectionEdit::ServerMark(mark) => {
                if let Some(mark) = mark.now(cx) {
                    cx.settings.change().server_mark = Some(mark as u32);
                }
            }
            ConnectionEdit::PriorityClass(expr) => {
                if let Some(class) = expr.eval(cx).and_then(|sample| sample.into_int()) {
                    cx.settings.change().priority.class = class.clamp(-CLASS_MAX, CLASS_MAX) as i16;
                }
            }
            ConnectionEdit::PriorityOffset(expr) => {
                if let Some(offset) = expr.eval(cx).and_then(|sample| sample.into_int()) {
                    cx.settings.change().priority.offset_ms = offset.clamp(-OFFSET_MAX, OFFSET_MAX) as i32;
                }
            }
            ConnectionEdit::Timeout(kind, delay) => {
                if let Some(time) = delay.now(cx).filter(|time| !time.is_zero()) {
                    let settings = cx.settings.change();
                    let timeout = match kind {
                        TimeoutKind::Client => &mut settings.client_timeout,
                        TimeoutKind::Server => &mut settings.server_timeout,
                        TimeoutKind::Tunnel => &mut settings.tunnel_timeout,
                    };
                    *timeout = Some(time);
                }
            }
            ConnectionEdit::Retries(count) => {
                if let Some(count) = count.now(cx).filter(|count| (0..=RETRIES_MAX).contains(count)) {
                    cx.settings.change().retries = Some(count as u32);
                }
            }
            ConnectionEdit::ExpectProxy => cx.settings.change().expects_proxy = true,
            ConnectionEdit::ExpectNetscaler => cx.settings.change().expects_netscaler = true,
        }
    }
}

impl AddressPart {
    /// The whole address with the new part; the other part stays as it is.
    fn changed(self, expr: &Expr, cx: &Context<'_>) -> Option<SocketAddr> {
        let sample = expr.eval(cx)?;
        let before = match self {
            AddressPart::SourceIp | AddressPart::SourcePort => cx.client,
            AddressPart::DestinationIp | AddressPart::DestinationPort => (cx.destination)(),
        };
        match self {
            AddressPart::SourceIp | AddressPart::DestinationIp => {
                Some(SocketAddr::new(sample.into_ip()?, before.map_or(0, |before| before.port())))
            }
            AddressPart::SourcePort | AddressPart::DestinationPort => {
                let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                // HAProxy takes the lower 16 bits.
                Some(SocketAddr::new(before.map_or(any, |before| before.ip()), sample.into_int()? as u16))
            }
        }
    }

    fn set(self, address: SocketAddr, cx: &mut Context<'_>) {
        match self {
            AddressPart::SourceIp | AddressPart::SourcePort => {
                cx.client = Some(address);
                cx.settings.change().source = Some(address);
            }
            AddressPart::DestinationIp | AddressPart::DestinationPort => {
                cx.changed_destination.set(Some(address));
                cx.settings.change().destination = Some(address);
            }
        }
    }
}
