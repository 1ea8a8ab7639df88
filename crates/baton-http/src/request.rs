//! The head of a request: parsed, judged and forwarded the way HAProxy 2.6 does it (docs/http1.md lists the facts).

mod assemble;

pub use assemble::RequestParts;

use crate::connection::{self, Connection};
use crate::error::{HeadError, HeadErrorKind};
use crate::framing::{Framing, Lengths};
use crate::headers::Headers;
use crate::host::is_host;
use crate::method::{Method, Version};
use crate::name::Name;
use crate::scan::{Limits, Line, Parsed, Phase, Scan, is_blank, token_len};
use crate::span::{Span, Text};
use crate::target::{self, Agreement, TargetForm};
use crate::upgrade;
use crate::values::values;

/// A request head. Reuse one for all requests of a connection: it keeps its memory.
///
/// All methods that take `buf` want the buffer that was parsed, from the same first byte on.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The version the client speaks; also the one we forward with, except that it is 1.1 for HTTP/2.
    pub version: Version,
    /// The fields. Repeated equal `Host` and `Content-Length` are reduced to one at parsing.
    pub headers: Headers,
    /// How long the body is. For CONNECT there is none: what follows belongs to the tunnel, once a 2xx opens it.
    pub framing: Framing,
    /// What the client said in `Connection`.
    pub connection: Connection,
    /// The client must not be kept after this request whatever it asked for: it sent both `Content-Length` and
    /// `Transfer-Encoding`, or one of them with CONNECT.
    pub must_close: bool,
    /// `Expect: 100-continue` is there (with any version; RFC 9110 10.1.1 wants no 100 for HTTP/1.0).
    pub expect_continue: bool,
    /// The request asks for another protocol: HTTP/1.1, `Connection: upgrade`, an `Upgrade` field and no body.
    pub upgrade: bool,
    /// The upgrade asked for is a WebSocket.
    pub websocket: bool,
    pub(crate) method_text: Text,
    pub(crate) version_text: Text,
    pub(crate) target: Text,
    pub(crate) form: TargetForm,
    /// The absolute target was put together from the parts of another protocol: it is written in origin form.
    pub(crate) is_assembled: bool,
    /// The target has no scheme in it, and the other protocol's is `http`.
    pub(crate) is_clear: bool,
    blank: usize,
    pub(crate) scan: Scan,
}

/// What [`RequestHead::for_upstream`] needs to know.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ForUpstream {
    /// We want to use the server connection again after this request.
    pub keep_alive: bool,
}

/// What a response parser needs to know of the request: see [`RequestHead::response_to`].
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct ResponseTo {
    /// The method: responses to HEAD have no body, a 2xx to CONNECT opens a tunnel.
    pub method: Method,
    /// The request asked for an upgrade, so 101 is allowed.
    pub upgrade: bool,
    /// The upgrade asked for is a WebSocket, so 101 must carry `Sec-WebSocket-Accept`.
    pub websocket: bool,
}

impl RequestHead {
    /// An empty head.
    pub fn new() -> RequestHead {
        RequestHead::default()
    }

    /// Forgets the request, keeps the memory. `parse` does it automatically after a complete or refused head.
    pub fn clear(&mut self) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        *self = RequestHead { headers, ..RequestHead::default() };
    }

    /// Parses the head at the start of `buf`. After [`Parsed::Partial`] call again with the same bytes and more: the
    /// search goes on where it stood. Leading empty lines are skipped and count as part of the head.
    pub fn parse(&mut self, buf: &[u8], limits: &Limits) -> Result<Parsed, HeadError> {
        if self.scan.phase == Phase::Done {
            self.clear();
        }
        match self.scan_lines(buf, limits) {
            Ok(false) => Ok(Parsed::Partial),
            Ok(true) => self.judge(buf, limits).map(|()| Parsed::Complete(self.scan.line)),
            Err(error) => {
                self.scan.phase = Phase::Done;
                Err(error)
            }
        }
    }

    /// How many bytes of leading empty lines were skipped so far. A connection with no more than these is still idle.
    pub fn blank(&self) -> usize {
        self.blank
    }

    /// The method's text.
    pub fn method_text<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        self.headers.text(buf, self.method_text)
    }

    /// Changes the method. The framing stays; `method` must be a token.
    pub fn set_method(&mut self, method: &[u8]) {
        self.method = Method::of(method);
        self.method_text = self.headers.keep(method);
    }

    /// The whole target (HAProxy's `url`).
    pub fn target<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        self.headers.text(buf, self.target)
    }

    /// The version as it was received: any 1.x above 1.0 counts as [`Version::Http11`], the log tells them apart.
    pub fn version_text<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        self.headers.text(buf, self.version_text)
    }

    /// Whether the bytes that are there after [`Parsed::Partial`] can become no request whatever follows: there is no
    /// need to wait for the rest.
    pub fn is_hopeless(&self, buf: &[u8]) -> bool {
        if self.scan.phase != Phase::Start {
            return false;
        }
        let line = buf.get(self.scan.line..).unwrap_or(&[]);
        let method = token_len(line);
        line.get(method).is_some_and(|&byte| byte != b'\r' && (method == 0 || !is_blank(byte)))
    }

    /// The target's form.
    pub fn form(&self) -> TargetForm {
        self.form
    }

    /// Changes the target. False, and nothing changes, when it has none of the forms or a byte that is not allowed.
    pub fn set_target(&mut self, target: &[u8]) -> bool {
        let Some(form) = target::form(self.method, target, false) else {
            return false;
        };
        if !target.iter().all(|&byte| target::is_byte(byte)) {
            return false;
        }
        if self.is_assembled {
            // Its target is among what was added, so that the read buffer is not wanted.
            let (old, path) = (self.target(&[]), self.path_and_query(&[]).len());
            let origin = &old[..old.len() - path];
            self.is_assembled = target.strip_prefix(origin).is_some_and(|path| path.starts_with(b"/"));
        }
        self.form = form;
        self.target = self.headers.keep(target);
        // It is among what was added, so that the read buffer is not wanted.
        self.put_slash_before_query(&[]);
        true
    }

    /// Where the target is absolute, its authority becomes what `Host` says now: after a rule has changed `Host`, as HAProxy 2.6
    /// does. A server goes by the target (RFC 9112 3.2.2). False, and nothing changes, when that is no host.
    pub fn follow_host(&mut self, buf: &[u8]) -> bool {
        let Some(host) = self.headers.all_known(buf, Name::Host).last().map(|field| field.value) else {
            return true;
        };
        if self.form != TargetForm::Absolute || target::host_of(self.authority(buf)) == host {
            return true;
        }
        if !is_host(host, false) {
            return false;
        }
        let whole = self.target(buf);
        let scheme = target::scheme(whole).len() + 3;
        let target = [&whole[..scheme], host, self.path_and_query(buf)].concat();
        let is_assembled = self.is_assembled;
        let is_set = self.set_target(&target);
        self.is_assembled = is_assembled;
        is_set
    }

    /// The scheme of an absolute target, or of the protocol that the request came by; else empty.
    pub fn scheme<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        match self.form {
            TargetForm::Origin | TargetForm::Asterisk if self.is_clear => b"http",
            TargetForm::Absolute => target::scheme(self.target(buf)),
            TargetForm::Origin | TargetForm::Authority | TargetForm::Asterisk => &[],
        }
    }

    /// The authority of an absolute or CONNECT target, user part included; else empty.
    pub fn authority<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        target::authority(self.form, self.target(buf))
    }

    /// The path, from the first slash after the authority to the question mark; empty for `*`, CONNECT and
    /// `http://host` (HAProxy's `path`).
    pub fn path<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        target::path(self.form, self.target(buf))
    }

    /// Path, question mark and query (HAProxy's `pathq`).
    pub fn path_and_query<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        target::path_and_query(self.form, self.target(buf))
    }

    /// What follows the first question mark; `None` without one (HAProxy's `query`).
    pub fn query<'a>(&'a self, buf: &'a [u8]) -> Option<&'a [u8]> {
        target::query(self.target(buf))
    }

    /// The value of `Host`, if there is one.
    pub fn host<'a>(&'a self, buf: &'a [u8]) -> Option<&'a [u8]> {
        self.headers.known(buf, Name::Host).map(|field| field.value)
    }

    /// Whether the client's connection may be kept after this request, as far as the client is concerned.
    pub fn keep_alive(&self) -> bool {
        !self.must_close && !self.connection.close && (self.version >= Version::Http11 || self.connection.keep_alive)
    }

    /// What the parser of this request's responses needs.
    pub fn response_to(&self) -> ResponseTo {
        ResponseTo { method: self.method, upgrade: self.upgrade, websocket: self.websocket }
    }

    /// Makes the fields those HAProxy 2.6 forwards: `close` and `keep-alive` leave `Connection`, `TE` keeps only
    /// `trailers`, and at the end `connection: close` (1.1) or `connection: keep-alive` (1.0) says what we want, unless
    /// the request has `Connection: upgrade`. Call it once, after the rules.
    pub fn for_upstream(&mut self, buf: &[u8], options: ForUpstream) {
        connection::strip(&mut self.headers, buf);
        self.keep_trailers_only(buf);
        if self.connection.upgrade {
            return;
        }
        match (self.version.as_http1(), options.keep_alive) {
            (Version::Http11, false) => self.headers.add(b"connection", b"close"),
            (Version::Http10, true) => connection::add_keep_alive(&mut self.headers),
            (Version::Http11 | Version::Http2, _) | (Version::Http10, false) => {}
        }
    }

    /// Appends the head to `out`, as HTTP/1, its empty line included.
    pub fn write(&self, buf: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.method_text(buf));
        out.push(b' ');
        out.extend_from_slice(self.target_for_http1(buf));
        out.push(b' ');
        out.extend_from_slice(self.version.as_http1().text().as_bytes());
        out.extend_from_slice(b"\r\n");
        self.headers.write(buf, out);
        out.extend_from_slice(b"\r\n");
    }

    fn scan_lines(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, HeadError> {
        while self.scan.phase == Phase::Start {
            let Some(line) = self.scan.next_line(buf, limits)? else {
                return Ok(false);
            };
            if line.start == line.end {
                self.blank = self.scan.line;
            } else {
                self.request_line(buf, line, limits.relaxed)?;
                self.scan.phase = Phase::Fields;
            }
        }
        self.scan.fields(buf, &mut self.headers, limits)
    }

    /// `METHOD target VERSION`, with one or more blanks between as RFC 9112 3 allows.
    fn request_line(&mut self, buf: &[u8], line: Line, relaxed: bool) -> Result<(), HeadError> {
        let bytes = &buf[line.start..line.end];
        let blanks = |from: usize| bytes[from..].iter().take_while(|&&byte| is_blank(byte)).count();
        let method_end = token_len(bytes);
        let gap = blanks(method_end);
        if method_end == 0 || (gap == 0 && method_end < bytes.len()) {
            return HeadError::new(HeadErrorKind::Method, line.start + method_end);
        }
        let target_start = method_end + gap;
        let target_len =
            bytes[target_start..].iter().position(|&byte| !(target::is_byte(byte) || relaxed && byte > 0x7f));
        let target_end = target_len.map_or(bytes.len(), |len| target_start + len);
        let gap = blanks(target_end);
        if target_end == target_start || (gap == 0 && target_end < bytes.len()) {
            return HeadError::new(HeadErrorKind::Target, line.start + target_end);
        }
        let method = &bytes[..method_end];
        let target = &bytes[target_start..target_end];
        let version = &bytes[target_end + gap..];
        if method == b"PRI" {
            let preface = (target, version) == (b"*", b"HTTP/2.0");
            let kind = if preface { HeadErrorKind::Http2Preface } else { HeadErrorKind::Method };
            return HeadError::new(kind, line.start);
        }
        self.version_text = Text::Read(Span::new(line.start + target_end + gap, line.end));
        let Some(version) = Version::of(version) else {
            return HeadError::new(HeadErrorKind::Version, line.start + target_end + gap);
        };
        self.version = version;
        self.method = Method::of(method);
        self.form = match target::form(self.method, target, relaxed) {
            Some(form) => form,
            None => return HeadError::new(HeadErrorKind::Target, line.start + target_start),
        };
        self.method_text = Text::Read(Span::new(line.start, line.start + method_end));
        self.target = Text::Read(Span::new(line.start + target_start, line.start + target_end));
        Ok(())
    }

    /// What the fields mean together, once all are there.
    pub(crate) fn judge(&mut self, buf: &[u8], limits: &Limits) -> Result<(), HeadError> {
        if let Some(at) = memchr::memchr(0, &buf[..self.scan.line]) {
            return HeadError::new(HeadErrorKind::Nul, at);
        }
        let mut lengths = Lengths::default();
        let mut host = None;
        let mut websocket = false;
        for index in 0..self.headers.slots() {
            let Some((id, text)) = self.headers.slot(index) else {
                continue;
            };
            match id {
                Name::ContentLength => lengths.content_length(&mut self.headers, buf, index)?,
                Name::TransferEncoding => lengths.transfer_encoding(&mut self.headers, buf, index)?,
                Name::Host => match host {
                    None if !is_host(self.headers.text(buf, text), limits.relaxed) => {
                        return HeadError::new(HeadErrorKind::Host, self.headers.offset(index));
                    }
                    None => host = Some((index, text)),
                    Some((_, first)) => self.same_host(buf, index, first, text)?,
                },
                Name::Connection => self.connection.read(self.headers.text(buf, text)),
                Name::Upgrade => {
                    websocket |=
                        values(self.headers.text(buf, text)).any(|name| name.eq_ignore_ascii_case(b"websocket"))
                }
                Name::Expect => {
                    self.expect_continue |=
                        values(self.headers.text(buf, text)).any(|name| name.eq_ignore_ascii_case(b"100-continue"))
                }
                _ => {}
            }
        }
        self.settle_framing(lengths, limits.http10_payload)?;
        if !self.is_assembled && matches!(self.form, TargetForm::Absolute | TargetForm::Authority) {
            self.put_slash_before_query(buf);
            self.agree_on_host(buf, host)?;
        }
        if self.connection.names_fields(&self.headers) && !self.connection.remove_named(&mut self.headers, buf) {
            return HeadError::new(HeadErrorKind::Connection, self.scan.line);
        }
        if !self.headers.may_have(Name::Upgrade) {
            return Ok(());
        }
        self.settle_upgrade(buf, websocket)
    }

    /// `http://a?b` becomes `http://a/?b`, its normal form (RFC 9110 4.2.3): who looks for the slash to find the authority's end
    /// finds the right one.
    fn put_slash_before_query(&mut self, buf: &[u8]) {
        if self.form != TargetForm::Absolute || !self.path_and_query(buf).starts_with(b"?") {
            return;
        }
        let at = self.target(buf).len() - self.path_and_query(buf).len();
        let (target, start) = (self.target, self.headers.added().len());
        self.headers.append(buf, target.slice(0, at));
        self.headers.keep(b"/");
        self.headers.append(buf, target.slice(at, usize::MAX));
        self.target = self.headers.added_since(start);
    }

    /// A further `Host` must say the same, and is dropped.
    fn same_host(&mut self, buf: &[u8], index: usize, first: Text, text: Text) -> Result<(), HeadError> {
        if !self.headers.text(buf, first).eq_ignore_ascii_case(self.headers.text(buf, text)) {
            return HeadError::new(HeadErrorKind::Host, self.headers.offset(index));
        }
        self.headers.remove_at(index);
        Ok(())
    }

    fn settle_framing(&mut self, lengths: Lengths, http10_payload: bool) -> Result<(), HeadError> {
        let (framing, conflict) = lengths.finish(&mut self.headers)?;
        self.framing = framing.unwrap_or(Framing::None);
        self.must_close = conflict;
        if self.framing == Framing::Chunked && self.version == Version::Http10 {
            // Servers of HTTP/1.0 do not know it and would take the chunks for the next request: RFC 9112 6.1 calls the framing
            // faulty.
            return HeadError::new(HeadErrorKind::TransferEncoding, self.scan.line);
        }
        if self.method == Method::Connect {
            // There is no body (RFC 9110 9.3.6). Who sends one all the same must not have it taken for the next request.
            self.must_close |= framing.is_some();
            self.framing = Framing::None;
            self.headers.remove_known(Name::ContentLength);
            self.headers.remove_known(Name::TransferEncoding);
        } else if self.version == Version::Http10
            && !http10_payload
            && !self.framing.is_empty()
            && matches!(self.method, Method::Get | Method::Head | Method::Delete)
        {
            return HeadError::new(HeadErrorKind::BodyNotAllowed, self.scan.line);
        }
        Ok(())
    }

    /// The target's authority and `Host` must agree. Where the target names its default port, it loses it, and `Host`
    /// with it. Without `Host` the target says it (RFC 9112 3.2.2), or rules about the host would not see it.
    fn agree_on_host(&mut self, buf: &[u8], host: Option<(usize, Text)>) -> Result<(), HeadError> {
        let target = self.headers.text(buf, self.target);
        let path_at = target.len() - target::path_and_query(self.form, target).len();
        let value = host.map(|(_, text)| self.headers.text(buf, text));
        let value_len = value.map_or(0, <[u8]>::len);
        match (target::agree(self.form, target, value), host) {
            (Agreement::Same, _) => {}
            (Agreement::Differ, host) => {
                let at = host.map_or(0, |(index, _)| self.headers.offset(index));
                return HeadError::new(HeadErrorKind::Host, at);
            }
            (Agreement::DefaultPort { authority, host: host_cut }, host) => {
                if let Some((index, text)) = host {
                    self.headers.set_value(index, text.slice(0, value_len.saturating_sub(host_cut)));
                }
                if self.form == TargetForm::Absolute {
                    let (target, start) = (self.target, self.headers.added().len());
                    self.headers.append(buf, target.slice(0, path_at.saturating_sub(authority)));
                    self.headers.append(buf, target.slice(path_at, usize::MAX));
                    self.target = self.headers.added_since(start);
                }
            }
        }
        if host.is_none() {
            self.add_host(buf);
        }
        Ok(())
    }

    fn add_host(&mut self, buf: &[u8]) {
        let host = target::host_of(self.authority(buf)).len();
        if host == 0 {
            return;
        }
        let end = self.target(buf).len() - self.path_and_query(buf).len();
        let name = self.headers.keep(b"host");
        let start = self.headers.added().len();
        self.headers.append(buf, self.target.slice(end - host, end));
        let value = self.headers.added_since(start);
        let cut = target::default_port(self.form, self.target(buf)).min(value.len());
        self.headers.push(Name::Host, name, value.slice(0, value.len() - cut));
    }

    /// An upgrade needs HTTP/1.1, `Connection: upgrade`, `Upgrade` and no body, else `Upgrade` is dropped; so are protocols that
    /// would carry requests past our rules.
    fn settle_upgrade(&mut self, buf: &[u8], websocket: bool) -> Result<(), HeadError> {
        // RFC 9110 7.8: in HTTP/1.0 it must be ignored.
        let is_left = self.version == Version::Http11 && upgrade::remove_protocols(&mut self.headers, buf);
        if !is_left {
            self.headers.remove_known(Name::Upgrade);
            if std::mem::take(&mut self.connection.upgrade) {
                connection::remove_upgrade(&mut self.headers, buf);
            }
            return Ok(());
        }
        if !self.connection.upgrade {
            return Ok(());
        }
        if !self.framing.is_empty() {
            self.headers.remove_known(Name::Upgrade);
            return Ok(());
        }
        let key = self.headers.known(buf, Name::SecWebsocketKey).map_or(0, |field| field.value.len());
        if websocket && key != WEBSOCKET_KEY_LEN {
            return HeadError::new(HeadErrorKind::WebsocketKey, self.scan.line);
        }
        self.upgrade = true;
        self.websocket = websocket;
        Ok(())
    }

    /// Leaves `te: trailers` where a `TE` field has that value (RFC 9110 10.1.4), and removes other `TE` fields.
    fn keep_trailers_only(&mut self, buf: &[u8]) {
        if !self.headers.may_have(Name::Te) {
            return;
        }
        for index in 0..self.headers.slots() {
            let Some((Name::Te, text)) = self.headers.slot(index) else {
                continue;
            };
            if values(self.headers.text(buf, text)).any(|value| value == b"trailers") {
                self.headers.replace_value(index, b"trailers");
            } else {
                self.headers.remove_at(index);
            }
        }
    }
}

fn is_scheme_of_http(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")
}

/// The length of every `Sec-WebSocket-Key`: 16 bytes in base64 (RFC 6455 4.1).
const WEBSOCKET_KEY_LEN: usize = 24;
