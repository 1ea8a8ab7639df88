//! The value of one item of a format, as text or as a part of an encoded line.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use super::encode::{self, Charset, Encoding, Flags, Item};
use super::{Content, FormatItem, FormatUse, Tag};
use crate::capture::CaptureSide;
use crate::context::Context;
use crate::log::{DateSpelling, Fact};
use crate::sample::{Sample, Type, write_decimal, write_ipv4};

/// What stands for a request line that could not be read.
const BAD_REQUEST: &[u8] = b"<BADREQ>";

/// A value before it is written.
enum TagValue<'c> {
    /// Text, and what is appended to it.
    Text(&'c [u8], &'static [u8], Charset),
    /// Text that is `-` in no case.
    Bare(&'c [u8]),
    Number(i64),
    /// A number that is not final yet.
    Begun(i64),
    /// A number in four hexadecimal digits at least, where that is asked for.
    Counter(i64),
    Letters([u8; 4], usize),
    Ip(Option<IpAddr>),
    Unix,
    Date(SystemTime, DateSpelling),
    /// Milliseconds of a second, in three digits.
    Milliseconds(u32),
    Captures(CaptureSide),
    CaptureList(CaptureSide),
    Cookie(CaptureSide),
}

impl FormatItem {
    /// Whether it is as if it were not there where a proxy has no captures.
    pub fn may_vanish(&self) -> bool {
        use Tag::{RequestCaptureList, RequestCaptures, ResponseCaptureList, ResponseCaptures};
        let captures = [RequestCaptures, ResponseCaptures, RequestCaptureList, ResponseCaptureList];
        matches!(self.content, Content::Tag(tag) if captures.contains(&tag))
    }

    /// Appends the value as text.
    pub fn write(&self, use_: FormatUse, cx: &Context<'_>, out: &mut Vec<u8>) {
        if let Some(encoding) = self.flags.encoding {
            let start = out.len();
            match (self.value(cx), encoding) {
                (item, Encoding::Json) => item.json(out),
                (item, Encoding::Cbor) => {
                    item.cbor(out);
                    if !self.flags.binary {
                        encode::to_hex(out, start);
                    }
                }
            }
            return;
        }
        let writer = Writer { flags: self.flags, dash: matches!(use_, FormatUse::Line { .. }) };
        match &self.content {
            Content::Hostname(name) => writer.text(name.as_bytes(), b"", Charset::Plain, out),
            Content::Expr(expr) => match expr.eval(cx) {
                Some(Sample::Str(bytes) | Sample::Method(bytes)) => writer.sample(&bytes, use_, out),
                Some(Sample::Int(value)) if writer.dash => writer.quoted(out, |out| write_decimal(value, out)),
                Some(Sample::Int(value)) => write_decimal(value, out),
                Some(other) => writer.sample(&other.into_text(), use_, out),
                None => writer.sample(b"", use_, out),
            },
            Content::Tag(tag) => writer.tag(tag_value(*tag, writer.dash, cx), cx, out),
        }
    }

    /// The value as a part of an encoded line.
    pub fn value<'c>(&'c self, cx: &'c Context<'_>) -> Item<'c> {
        let value = match &self.content {
            Content::Hostname(name) => Item::Text(name.as_bytes().into()),
            Content::Expr(expr) => match (expr.eval(cx), self.as_type) {
                (None, _) => Item::Null,
                (Some(sample), Some(kind)) => sample.cast(kind).map_or(Item::Null, item),
                (Some(sample), None) => item(sample),
            },
            Content::Tag(tag) => self.tag_item(*tag, cx),
        };
        match (self.as_type, value) {
            (Some(Type::Str), Item::Int(value)) => Item::Text(value.to_string().into_bytes().into()),
            (Some(Type::Int), Item::Text(bytes)) => Sample::Str(bytes).into_int().map_or(Item::Null, Item::Int),
            (Some(Type::Bool), Item::Int(value)) => Item::Bool(value != 0),
            (Some(Type::Bool), Item::Text(bytes)) => Sample::Str(bytes).into_bool().map_or(Item::Null, Item::Bool),
            (_, value) => value,
        }
    }

    fn tag_item<'c>(&self, tag: Tag, cx: &'c Context<'_>) -> Item<'c> {
        let writer = Writer { flags: Flags { hex: self.flags.hex, ..Flags::default() }, dash: false };
        match tag_value(tag, true, cx) {
            TagValue::Number(value) | TagValue::Begun(value) => Item::Int(value),
            TagValue::Counter(value) if !self.flags.hex => Item::Int(value),
            TagValue::Milliseconds(value) => Item::Int(value.into()),
            TagValue::Text(text, b"", _) | TagValue::Bare(text) => text_item(text.into()),
            TagValue::Ip(None) => Item::Null,
            value => {
                let mut out = Vec::new();
                writer.tag(value, cx, &mut out);
                text_item(out.into())
            }
        }
    }
}

fn text_item(text: Cow<'_, [u8]>) -> Item<'_> {
    if text.is_empty() { Item::Null } else { Item::Text(text) }
}

fn item(sample: Sample<'_>) -> Item<'_> {
    match sample {
        Sample::Bool(value) => Item::Bool(value),
        Sample::Int(value) => Item::Int(value),
        Sample::Str(bytes) | Sample::Method(bytes) => Item::Text(bytes),
        Sample::Bin(bytes) => Item::Bytes(bytes),
        other => Item::Text(other.into_text()),
    }
}

/// Writes text values by their flags.
struct Writer {
    flags: Flags,
    /// What is empty is written as `-`, unless it stands in quotes.
    dash: bool,
}

impl Writer {
    fn quoted(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.flags.quote {
            out.push(b'"');
        }
        write(out);
        if self.flags.quote {
            out.push(b'"');
        }
    }

    fn text(&self, text: &[u8], suffix: &[u8], charset: Charset, out: &mut Vec<u8>) {
        if text.is_empty() && self.dash && !self.flags.quote {
            return out.push(b'-');
        }
        self.quoted(out, |out| {
            encode::text(text, charset, self.flags.escape, out);
            out.extend_from_slice(suffix);
        });
    }

    /// The text of an expression.
    fn sample(&self, text: &[u8], use_: FormatUse, out: &mut Vec<u8>) {
        match use_ {
            // Without quotes, as in HAProxy. Controls are encoded later, as a message wants it.
            FormatUse::Value | FormatUse::UniqueId if !self.flags.escape => out.extend_from_slice(text),
            FormatUse::Value | FormatUse::UniqueId => {
                for byte in text {
                    if matches!(byte, b'"' | b'\\' | b']') {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }
            }
            FormatUse::Line { .. } => self.text(text, b"", Charset::Plain, out),
        }
    }

    fn tag(&self, value: TagValue<'_>, cx: &Context<'_>, out: &mut Vec<u8>) {
        match value {
            TagValue::Text(text, suffix, charset) => self.text(text, suffix, charset, out),
            TagValue::Bare(text) => self.quoted(out, |out| encode::text(text, Charset::Line, self.flags.escape, out)),
            TagValue::Number(value) => write_decimal(value, out),
            TagValue::Begun(value) => {
                out.push(b'+');
                write_decimal(value, out);
            }
            TagValue::Counter(value) if self.flags.hex => _ = write!(out, "{value:04X}"),
            TagValue::Counter(value) => write_decimal(value, out),
            TagValue::Letters(letters, count) => out.extend_from_slice(&letters[..count]),
            TagValue::Ip(Some(ip)) => self.quoted(out, |out| write_ip(ip, self.flags.hex, out)),
            TagValue::Ip(None) => self.text(b"", b"", Charset::Plain, out),
            TagValue::Unix => self.quoted(out, |out| out.extend_from_slice(b"unix")),
            TagValue::Date(time, spelling) => cx.log.date(time, spelling, out),
            TagValue::Milliseconds(value) => _ = write!(out, "{value:03}"),
            TagValue::Captures(side) => self.captures(side, cx, out),
            TagValue::CaptureList(side) => self.capture_list(side, cx, out),
            TagValue::Cookie(side) => {
                let captures = cx.captures.map(std::cell::RefCell::borrow);
                let cookie = captures.as_ref().and_then(|captures| captures.cookie(side));
                self.text(cookie.unwrap_or_default(), b"", Charset::Plain, out);
            }
        }
    }

    /// `{a|b}`; nothing without slots.
    fn captures(&self, side: CaptureSide, cx: &Context<'_>, out: &mut Vec<u8>) {
        let Some(captures) = cx.captures.map(std::cell::RefCell::borrow) else { return };
        let all = captures.all(side);
        if all.len() == 0 {
            return;
        }
        self.quoted(out, |out| {
            out.push(b'{');
            for (at, value) in all.enumerate() {
                if at > 0 {
                    out.push(b'|');
                }
                encode::text(value.unwrap_or_default(), Charset::Capture, self.flags.escape, out);
            }
            out.push(b'}');
        });
    }

    /// `a b`; nothing without slots.
    fn capture_list(&self, side: CaptureSide, cx: &Context<'_>, out: &mut Vec<u8>) {
        let Some(captures) = cx.captures.map(std::cell::RefCell::borrow) else { return };
        for (at, value) in captures.all(side).enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            self.text(value.unwrap_or_default(), b"", Charset::Capture, out);
        }
    }
}

fn tag_value<'c>(tag: Tag, is_line: bool, cx: &'c Context<'_>) -> TagValue<'c> {
    let plain = |text: &'c [u8]| TagValue::Text(text, b"", Charset::Plain);
    let line = |text: Option<&'c [u8]>| TagValue::Text(text.unwrap_or(BAD_REQUEST), b"", Charset::Line);
    match tag {
        Tag::ClientIp => ip_or_unix(cx.client),
        // A unix socket has the number of its `bind` in the place of a port.
        Tag::ClientPort => match cx.client {
            Some(client) => TagValue::Counter(client.port().into()),
            None => TagValue::Number(i64::try_from(cx.listener.id).unwrap_or(0)),
        },
        Tag::FrontendIp => ip_or_unix((cx.destination)()),
        Tag::FrontendPort => match (cx.destination)() {
            Some(local) => TagValue::Counter(local.port().into()),
            None => TagValue::Number(i64::try_from(cx.listener.id).unwrap_or(0)),
        },
        Tag::Backend => plain(cx.backend.unwrap_or(cx.frontend).name.as_bytes()),
        Tag::Frontend => plain(cx.frontend.name.as_bytes()),
        Tag::FrontendTransport => {
            let suffix: &'static [u8] = if cx.client_tls.is_some() { b"~" } else { b"" };
            TagValue::Text(cx.frontend.name.as_bytes(), suffix, Charset::Plain)
        }
        Tag::Server => plain(cx.server.unwrap_or("<NOSRV>").as_bytes()),
        Tag::RequestLine => line(cx.received().map(|line| line.whole)),
        Tag::Method => line(cx.received().map(|line| line.method)),
        Tag::Uri => line(cx.received().map(|line| line.target)),
        Tag::UriWithoutQuery => line(cx.received().map(|line| before_query(line.target))),
        Tag::Path => line(cx.received().map(|line| path_of(line.target))),
        Tag::Query => match cx.received() {
            None => TagValue::Bare(BAD_REQUEST),
            Some(line) => TagValue::Bare(&line.target[before_query(line.target).len()..]),
        },
        Tag::Version => line(cx.received().map(|line| line.version)),
        // Nothing without TLS, as in HAProxy.
        Tag::TlsCipher => {
            let suite = cx.client_tls.and_then(|facts| facts.suite);
            let name = suite.and_then(|suite| baton_tls::names::cipher_name(suite.suite()));
            plain(name.unwrap_or_default().as_bytes())
        }
        Tag::TlsVersion => {
            let version = cx.client_tls.and_then(|facts| facts.version);
            plain(version.map_or("", baton_tls::names::version_name).as_bytes())
        }
        // Only a log line makes it; rules have it if it was made before, as in HAProxy.
        Tag::UniqueId if is_line => plain(cx.unique_id().unwrap_or_default()),
        Tag::UniqueId => plain(cx.unique_id.and_then(|(id, _)| id.made()).unwrap_or_default()),
        Tag::RequestCookie => TagValue::Cookie(CaptureSide::Request),
        Tag::ResponseCookie => TagValue::Cookie(CaptureSide::Response),
        Tag::RequestCaptures => TagValue::Captures(CaptureSide::Request),
        Tag::ResponseCaptures => TagValue::Captures(CaptureSide::Response),
        Tag::RequestCaptureList => TagValue::CaptureList(CaptureSide::Request),
        Tag::ResponseCaptureList => TagValue::CaptureList(CaptureSide::Response),
        Tag::Status => match &cx.response {
            Some(response) => TagValue::Number(response.head.view().status().into()),
            None => match cx.own_status {
                Some(status) => TagValue::Number(status.into()),
                None => of_fact(tag, cx),
            },
        },
        other => of_fact(other, cx),
    }
}

fn of_fact<'c>(tag: Tag, cx: &Context<'_>) -> TagValue<'c> {
    let absent = TagValue::Text(b"", b"", Charset::Plain);
    match cx.log.fact(tag) {
        Fact::Absent => absent,
        Fact::Number(value) => match tag {
            Tag::LineCounter | Tag::RequestCounter | Tag::Pid | Tag::BackendSourcePort | Tag::ServerPort => {
                TagValue::Counter(value)
            }
            _ => TagValue::Number(value),
        },
        Fact::Begun(value) => TagValue::Begun(value),
        Fact::Letters(letters) if tag == Tag::TerminationState => TagValue::Letters(letters, 2),
        Fact::Letters(letters) => TagValue::Letters(letters, 4),
        Fact::Address(address) => match tag {
            Tag::BackendSourcePort | Tag::ServerPort => match address {
                Some(address) => TagValue::Counter(address.port().into()),
                None => absent,
            },
            _ => TagValue::Ip(address.map(|address| address.ip())),
        },
        Fact::Time(time) => match tag {
            Tag::Date | Tag::RequestDate => TagValue::Date(time, DateSpelling::Milliseconds),
            Tag::GmtDate | Tag::GmtRequestDate => TagValue::Date(time, DateSpelling::Gmt),
            Tag::Milliseconds => TagValue::Milliseconds(since_1970(time).subsec_millis()),
            Tag::Timestamp => TagValue::Counter(i64::try_from(since_1970(time).as_secs()).unwrap_or(i64::MAX)),
            _ => TagValue::Date(time, DateSpelling::Local),
        },
    }
}

fn since_1970(time: SystemTime) -> std::time::Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn ip_or_unix<'c>(address: Option<SocketAddr>) -> TagValue<'c> {
    address.map_or(TagValue::Unix, |address| TagValue::Ip(Some(address.ip())))
}

fn before_query(target: &[u8]) -> &[u8] {
    &target[..memchr::memchr(b'?', target).unwrap_or(target.len())]
}

fn path_of(target: &[u8]) -> &[u8] {
    crate::context::path_and_query(before_query(target))
}

fn write_ip(ip: IpAddr, hex: bool, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) if hex => _ = write!(out, "{:08X}", u32::from(ip)),
        IpAddr::V4(ip) => write_ipv4(ip, out),
        IpAddr::V6(ip) if hex => ip.octets().iter().for_each(|octet| _ = write!(out, "{octet:02X}")),
        IpAddr::V6(ip) => _ = write!(out, "{ip}"),
    }
}
