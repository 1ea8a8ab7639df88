//! The head of a response: parsed, judged and forwarded the way HAProxy 2.6 does it (docs/http1.md lists the facts).

use crate::connection::{self, Connection};
use crate::error::{HeadError, HeadErrorKind};
use crate::framing::{Framing, Lengths};
use crate::headers::Headers;
use crate::method::{Method, Version};
use crate::name::Name;
use crate::request::ResponseTo;
use crate::scan::{Limits, Line, Parsed, Phase, Scan, is_blank};
use crate::span::{Span, Text};
use crate::upgrade;
use crate::values::values;

/// A response head. Reuse one for many responses: it keeps its memory.
///
/// All methods that take `buf` want the buffer that was parsed, from the same first byte on.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The version the server answered with; HTTP/1 is also forwarded with it.
    pub version: Version,
    /// The fields. Repeated equal `Content-Length` is reduced to one at parsing.
    pub headers: Headers,
    /// How long the body is.
    pub framing: Framing,
    /// What the server said in `Connection`.
    pub connection: Connection,
    /// The server's connection must not be used again whatever it said: both length fields, or chunks in HTTP/1.0.
    pub must_close: bool,
    /// Bytes of names and values of fields that were taken out at parsing: length fields of a 1xx or 204, fields that `Connection`
    /// names.
    pub dropped: usize,
    reason: Text,
    pub(crate) scan: Scan,
}

/// What [`ResponseHead::for_client`] needs to know.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ForClient {
    /// We want to keep the client's connection: it may be ([`RequestHead::keep_alive`](crate::RequestHead::keep_alive))
    /// and the configuration agrees.
    pub keep_alive: bool,
    /// The version of the request.
    pub version: Version,
}

impl ResponseHead {
    /// How many bytes a whole head was received in: there the body begins.
    pub fn received_len(&self) -> usize {
        self.scan.line
    }

    /// An empty head.
    pub fn new() -> ResponseHead {
        ResponseHead::default()
    }

    /// Forgets the response, keeps the memory. `parse` does it automatically after a complete or refused head.
    pub fn clear(&mut self) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        *self = ResponseHead { headers, ..ResponseHead::default() };
    }

    /// Parses the head at the start of `buf`, an answer to the request `to`. After [`Parsed::Partial`] call again with
    /// the same bytes and more. Every error means 502 for the client. An interim response (1xx but 101) is complete
    /// like any other, with [`Framing::None`]: forward it and parse the next one.
    pub fn parse(&mut self, buf: &[u8], to: ResponseTo, limits: &Limits) -> Result<Parsed, HeadError> {
        if self.scan.phase == Phase::Done {
            self.clear();
        }
        match self.scan_lines(buf, limits) {
            Ok(false) => Ok(Parsed::Partial),
            Ok(true) => self.judge(buf, to).map(|()| Parsed::Complete(self.scan.line)),
            Err(error) => {
                self.scan.phase = Phase::Done;
                Err(error)
            }
        }
    }

    /// The reason phrase, perhaps empty.
    pub fn reason<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        self.headers.text(buf, self.reason)
    }

    /// Changes status and reason. The framing stays; `reason` must have no CR, LF or NUL.
    pub fn set_status(&mut self, status: u16, reason: &[u8]) {
        self.status = status;
        self.reason = self.headers.keep(reason);
    }

    /// What HTTP/2 says by a 2xx to extended CONNECT (RFC 8441 5), as HTTP/1 says it: `accept` answers the client's key (RFC 6455 4.2.2).
    pub fn switch_to_websocket(&mut self, accept: &[u8]) {
        self.set_status(101, b"Switching Protocols");
        self.headers.remove_known(Name::SecWebsocketAccept);
        self.headers.add(b"upgrade", b"websocket");
        self.headers.add(b"connection", b"upgrade");
        self.headers.add(b"sec-websocket-accept", accept);
    }

    /// Whether another response follows this one: 1xx but 101.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Whether the server's connection may be used again after this response, as far as the server is concerned.
    pub fn server_reusable(&self) -> bool {
        let kept = !self.connection.close && (self.version == Version::Http11 || self.connection.keep_alive);
        kept && !self.must_close && !matches!(self.framing, Framing::UntilClose | Framing::Tunnel)
    }

    /// Makes the fields those HAProxy 2.6 sends: `close` and `keep-alive` leave `Connection`, and at the end
    /// `connection: close` or `connection: keep-alive` says what happens, where the versions do not say it already.
    /// True: the client's connection stays; false: close it after the response (never for an interim response or a
    /// tunnel, where there is nothing to decide and true is returned). Call it once, after the rules.
    pub fn for_client(&mut self, buf: &[u8], options: ForClient) -> bool {
        connection::strip(&mut self.headers, buf);
        if self.is_interim() || self.framing == Framing::Tunnel {
            return true;
        }
        let chunked10 = self.version == Version::Http10 && self.framing == Framing::Chunked;
        let keep = options.keep_alive && self.framing != Framing::UntilClose && !chunked10;
        let version = self.version.as_http1();
        let both11 = (options.version, version) == (Version::Http11, Version::Http11);
        if keep && !both11 {
            connection::add_keep_alive(&mut self.headers);
        } else if !keep && version == Version::Http11 {
            self.headers.add(b"connection", b"close");
        }
        keep
    }

    /// Appends the head to `out`, as HTTP/1, its empty line included.
    pub fn write(&self, buf: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.version.as_http1().text().as_bytes());
        let status = self.status.min(999);
        let digit = |value: u16| b'0' + (value % 10) as u8;
        out.extend_from_slice(&[b' ', digit(status / 100), digit(status / 10), digit(status), b' ']);
        out.extend_from_slice(self.reason(buf));
        out.extend_from_slice(b"\r\n");
        self.headers.write(buf, out);
        out.extend_from_slice(b"\r\n");
    }

    fn scan_lines(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, HeadError> {
        while self.scan.phase == Phase::Start {
            let Some(line) = self.scan.next_line(buf, limits)? else {
                return Ok(false);
            };
            if line.start < line.end {
                self.status_line(buf, line)?;
                self.scan.phase = Phase::Fields;
            }
        }
        self.scan.fields(buf, &mut self.headers, limits)
    }

    /// `VERSION status reason`, with one or more blanks between; the reason may be missing with its blank.
    fn status_line(&mut self, buf: &[u8], line: Line) -> Result<(), HeadError> {
        let bytes = &buf[line.start..line.end];
        if let [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            b'1',
            b' ',
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            b' ',
            first,
            ..,
        ] = bytes
            && !is_blank(*first)
        {
            // As nearly all write it.
            self.status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
            self.reason = Text::Read(Span::new(line.start + 13, line.end));
            self.version = Version::Http11;
            return Ok(());
        }
        let blanks = |from: usize| bytes[from..].iter().take_while(|&&byte| is_blank(byte)).count();
        let version_end = bytes.iter().position(|&byte| is_blank(byte)).unwrap_or(bytes.len());
        let Some(version) = Version::of(&bytes[..version_end]) else {
            return HeadError::new(HeadErrorKind::Version, line.start);
        };
        let start = version_end + blanks(version_end);
        self.status = match bytes[start..] {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ref rest @ ..]
                if rest.first().is_none_or(|&byte| is_blank(byte)) =>
            {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return HeadError::new(HeadErrorKind::Status, line.start + start),
        };
        let reason = start + 3 + blanks(start + 3);
        self.reason = Text::Read(Span::new(line.start + reason, line.end));
        self.version = version;
        Ok(())
    }

    /// What the fields mean together, once all are there.
    pub(crate) fn judge(&mut self, buf: &[u8], to: ResponseTo) -> Result<(), HeadError> {
        if let Some(at) = memchr::memchr(0, &buf[..self.scan.line]) {
            return HeadError::new(HeadErrorKind::Nul, at);
        }
        let mut lengths = Lengths::default();
        let mut websocket = to.websocket;
        for index in 0..self.headers.slots() {
            let Some((id, text)) = self.headers.slot(index) else {
                continue;
            };
            match id {
                Name::ContentLength => lengths.content_length(&mut self.headers, buf, index)?,
                Name::TransferEncoding => lengths.transfer_encoding(&mut self.headers, buf, index)?,
                Name::Connection => self.connection.read(self.headers.text(buf, text)),
                Name::Upgrade if self.status == 101 => {
                    websocket |=
                        values(self.headers.text(buf, text)).any(|name| name.eq_ignore_ascii_case(b"websocket"))
                }
                _ => {}
            }
        }
        let (framing, conflict) = lengths.finish(&mut self.headers)?;
        let framing = framing.unwrap_or(Framing::UntilClose);
        self.must_close = conflict || (self.version == Version::Http10 && framing == Framing::Chunked);
        self.framing = match self.status {
            101 => self.tunnel(buf, to, websocket)?,
            200..300 if to.method == Method::Connect => {
                // RFC 9110 9.3.6: what follows belongs to the tunnel, whatever they say.
                self.drop_lengths(buf);
                Framing::Tunnel
            }
            100..200 | 204 => {
                self.drop_lengths(buf);
                Framing::None
            }
            304 => Framing::None,
            _ if to.method == Method::Head => Framing::None,
            _ => framing,
        };
        if self.connection.names_fields(&self.headers) {
            let before = self.headers.bytes();
            if !self.connection.remove_named(&mut self.headers, buf) {
                return HeadError::new(HeadErrorKind::Connection, self.scan.line);
            }
            self.dropped += before - self.headers.bytes();
        }
        if self.status != 101
            && self.headers.may_have(Name::Upgrade)
            && !upgrade::remove_protocols(&mut self.headers, buf)
        {
            connection::remove_upgrade(&mut self.headers, buf);
        }
        Ok(())
    }

    fn drop_lengths(&mut self, buf: &[u8]) {
        for name in [Name::ContentLength, Name::TransferEncoding] {
            let fields = self.headers.all_known(buf, name);
            self.dropped += fields.map(|field| field.name.len() + field.value.len()).sum::<usize>();
            self.headers.remove_known(name);
        }
    }

    /// 101 answers a request for an upgrade and says `Connection: upgrade`; a WebSocket's has its key confirmed. It is not about a
    /// protocol that was not asked for because it would carry requests.
    fn tunnel(&mut self, buf: &[u8], to: ResponseTo, websocket: bool) -> Result<Framing, HeadError> {
        let confirmed = !websocket || self.headers.may_have(Name::SecWebsocketAccept);
        if !to.upgrade || !self.connection.upgrade || !confirmed || upgrade::names_requests(&self.headers, buf) {
            return HeadError::new(HeadErrorKind::Upgrade, 0);
        }
        self.headers.remove_known(Name::ContentLength);
        self.headers.remove_known(Name::TransferEncoding);
        Ok(Framing::Tunnel)
    }
}
