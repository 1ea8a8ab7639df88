//! Heads and trailer sections: what HPACK decoded, and all that RFC 9113 8.2 and 8.3 ask of it.
//!
//! Names and values lie in one arena, and are known by their places there, as the heads of `baton-http` are: see
//! [`Head::arena`] and [`Head::fields`]. A violation is noted where it is found; the whole block is decoded all the same.

use baton_http::{Name, Span};

use crate::error::Violation;
use crate::hpack::{ENTRY_OVERHEAD, FieldSink};

/// What a field block is to be.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(crate) enum HeadKind {
    #[default]
    Request,
    Response,
    Trailers,
}

/// The limits and circumstances that a head is judged by.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Expect {
    pub kind: HeadKind,
    pub bytes_max: usize,
    pub fields_max: usize,
    /// We have allowed extended CONNECT (RFC 8441).
    pub allows_protocol: bool,
}

/// A field, by its places in [`Head::arena`].
#[derive(Copy, Clone, Debug)]
pub struct HeadField {
    /// The known name.
    pub id: Name,
    /// Its name, in lower case.
    pub name: Span,
    /// Its value.
    pub value: Span,
}

/// A decoded head, or trailer section. Its memory is used again for the next one.
#[derive(Clone, Default, Debug)]
pub struct Head {
    pub(crate) arena: Vec<u8>,
    pub(crate) list: FieldList,
}

/// All of a head but its bytes.
#[derive(Clone, Default, Debug)]
pub(crate) struct FieldList {
    expect: Expect,
    fields: Vec<HeadField>,
    pseudo: Pseudo,
    /// As SETTINGS_MAX_HEADER_LIST_SIZE counts.
    size: usize,
    violation: Option<Violation>,
    is_too_large: bool,
    content_length: Option<u64>,
    /// The first `host`.
    host: Option<Span>,
}

#[derive(Copy, Clone, Default, Debug)]
struct Pseudo {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    status: Option<u16>,
}

impl Head {
    /// The bytes of all names and values.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// The fields, without pseudo-header fields, in order.
    pub fn fields(&self) -> &[HeadField] {
        &self.list.fields
    }

    /// Names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.fields.iter().map(|field| (field.name.of(&self.arena), field.value.of(&self.arena)))
    }

    /// The first value of a known field.
    pub fn known(&self, id: Name) -> Option<&[u8]> {
        self.list.fields.iter().find(|field| field.id == id).map(|field| field.value.of(&self.arena))
    }

    /// `:method`
    pub fn method(&self) -> &[u8] {
        self.pseudo(self.list.pseudo.method)
    }

    /// `:scheme`; empty for CONNECT.
    pub fn scheme(&self) -> &[u8] {
        self.pseudo(self.list.pseudo.scheme)
    }

    /// `:authority`, or else `host`; perhaps empty.
    pub fn authority(&self) -> &[u8] {
        self.pseudo(self.list.pseudo.authority.or(self.list.host))
    }

    /// `:authority`; empty if there is none.
    pub fn own_authority(&self) -> &[u8] {
        self.pseudo(self.list.pseudo.authority)
    }

    /// `:path`; empty for CONNECT.
    pub fn path(&self) -> &[u8] {
        self.pseudo(self.list.pseudo.path)
    }

    /// `:protocol` of extended CONNECT (RFC 8441).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.list.pseudo.protocol.map(|span| span.of(&self.arena))
    }

    /// `:status`; 0 of a request.
    pub fn status(&self) -> u16 {
        self.list.pseudo.status.unwrap_or(0)
    }

    /// The length of the body that the head announces.
    pub fn content_length(&self) -> Option<u64> {
        self.list.content_length
    }

    /// Where [`method`](Self::method) is in the arena.
    pub fn method_span(&self) -> Span {
        self.list.pseudo.method.unwrap_or_default()
    }

    /// Bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts them: with 32 for each field.
    pub fn size(&self) -> usize {
        self.list.size
    }

    pub(crate) fn begin(&mut self, expect: Expect) {
        let mut fields = std::mem::take(&mut self.list.fields);
        fields.clear();
        self.list = FieldList { expect, fields, ..FieldList::default() };
        self.arena.clear();
    }

    /// What is wrong with the whole.
    pub(crate) fn judge(&self) -> Option<Violation> {
        if self.list.is_too_large {
            return None;
        }
        self.list.violation.or_else(|| match self.list.expect.kind {
            HeadKind::Request => self.judge_request(),
            HeadKind::Response if self.list.pseudo.status.is_none() => Some(Violation::PseudoMissing),
            HeadKind::Response | HeadKind::Trailers => None,
        })
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.list.is_too_large
    }

    /// Gives back memory that an idle connection has no use for.
    pub(crate) fn shrink(&mut self) {
        *self = Head::default();
    }

    fn judge_request(&self) -> Option<Violation> {
        let Pseudo { method, scheme, authority, path, protocol, .. } = self.list.pseudo;
        let (arena, host) = (&self.arena[..], self.list.host);
        let Some(method) = method else { return Some(Violation::PseudoMissing) };
        let is_connect = method.of(arena) == b"CONNECT";
        if protocol.is_some() && !is_connect {
            return Some(Violation::ProtocolField);
        }
        if is_connect && protocol.is_none() {
            let has_authority = authority.is_some_and(|authority| !authority.is_empty());
            if scheme.is_some() || path.is_some() || !has_authority {
                return Some(Violation::ConnectFields);
            }
        } else {
            let (Some(_), Some(path)) = (scheme, path) else { return Some(Violation::PseudoMissing) };
            let is_form = match path.of(arena) {
                [b'/', ..] => true,
                b"*" => method.of(arena) == b"OPTIONS",
                _ => false,
            };
            if !is_form {
                return Some(Violation::PseudoInvalid);
            }
            let has_host = authority.or(host).is_some_and(|authority| !authority.is_empty());
            if !has_host {
                return Some(Violation::PseudoMissing);
            }
        }
        match (authority, host) {
            (Some(authority), Some(host)) if !authority.of(arena).eq_ignore_ascii_case(host.of(arena)) => {
                Some(Violation::AuthorityHost)
            }
            _ => None,
        }
    }

    fn pseudo(&self, span: Option<Span>) -> &[u8] {
        span.map_or(&[], |span| span.of(&self.arena))
    }
}

impl FieldSink for FieldList {
    #[inline]
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool {
        self.size += name.len() + value.len() + ENTRY_OVERHEAD;
        if self.size > self.expect.bytes_max || self.fields.len() >= self.expect.fields_max {
            self.is_too_large = true;
            return false;
        }
        match self.take(arena, name, value) {
            Ok(()) => true,
            Err(violation) => {
                // The first one is told.
                self.violation = Some(violation);
                false
            }
        }
    }
}

impl FieldList {
    fn take(&mut self, arena: &[u8], name_at: Span, value_at: Span) -> Result<(), Violation> {
        let (name, value) = (name_at.of(arena), value_at.of(arena));
        if !is_value(value) {
            return Err(Violation::FieldValue);
        }
        if name.first() == Some(&b':') {
            return self.take_pseudo(name, value, value_at);
        }
        if name.is_empty() || !name.iter().all(|&byte| LOWER_TOKEN[usize::from(byte)]) {
            return Err(Violation::FieldName);
        }
        let id = Name::of(name);
        match id {
            Name::Connection | Name::KeepAlive | Name::ProxyConnection | Name::TransferEncoding | Name::Upgrade => {
                return Err(Violation::ConnectionField);
            }
            Name::Te if !value.eq_ignore_ascii_case(b"trailers") => return Err(Violation::ConnectionField),
            Name::ContentLength => {
                let length = number(value).filter(|_| self.expect.kind != HeadKind::Trailers);
                let length = length.ok_or(Violation::ContentLength)?;
                match self.content_length.replace(length) {
                    // Said twice, it is kept once.
                    Some(before) if before == length => return Ok(()),
                    Some(_) => return Err(Violation::ContentLength),
                    None => {}
                }
            }
            Name::Host if self.expect.kind == HeadKind::Request => match self.host {
                Some(before) if before.of(arena).eq_ignore_ascii_case(value) => return Ok(()),
                Some(_) => return Err(Violation::AuthorityHost),
                None => self.host = Some(value_at),
            },
            _ => {}
        }
        self.fields.push(HeadField { id, name: name_at, value: value_at });
        Ok(())
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8], at: Span) -> Result<(), Violation> {
        if self.expect.kind == HeadKind::Trailers {
            return Err(Violation::PseudoTrailer);
        }
        if !self.fields.is_empty() || self.host.is_some() || self.content_length.is_some() {
            return Err(Violation::PseudoOrder);
        }
        let is_request = self.expect.kind == HeadKind::Request;
        let graphic = |value: &[u8]| !value.is_empty() && value.iter().all(|&byte| byte > b' ' && byte != 0x7f);
        let pseudo = &mut self.pseudo;
        let (place, is_valid) = match name {
            b":method" if is_request => (&mut pseudo.method, is_token(value)),
            b":scheme" if is_request => (&mut pseudo.scheme, is_scheme(value)),
            // A user part is how `good@evil` came about (RFC 9113 8.3.1).
            b":authority" if is_request => (&mut pseudo.authority, graphic(value) && !value.contains(&b'@')),
            b":path" if is_request => (&mut pseudo.path, graphic(value) && !value.contains(&b'#')),
            b":protocol" if is_request && self.expect.allows_protocol => (&mut pseudo.protocol, is_token(value)),
            b":protocol" if is_request => return Err(Violation::ProtocolField),
            b":status" if !is_request => {
                let &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else {
                    return Err(Violation::PseudoInvalid);
                };
                let digit = |byte: u8| u16::from(byte - b'0');
                let status = digit(a) * 100 + digit(b) * 10 + digit(c);
                if status == 101 {
                    // There is no upgrade in HTTP/2 (RFC 9113 8.6).
                    return Err(Violation::PseudoInvalid);
                }
                let is_repeated = pseudo.status.replace(status).is_some();
                return if is_repeated { Err(Violation::PseudoRepeated) } else { Ok(()) };
            }
            _ => return Err(Violation::PseudoUnknown),
        };
        if !is_valid {
            return Err(Violation::PseudoInvalid);
        }
        let is_repeated = place.replace(at).is_some();
        if is_repeated { Err(Violation::PseudoRepeated) } else { Ok(()) }
    }
}

/// What may be forwarded as HTTP/1 and read as one value (RFC 9113 8.2.1): without CR, LF and NUL, without blanks at its ends.
#[inline]
fn is_value(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return true };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    // All bytes, without an early end: this is compiled to vector instructions.
    let is_clean = value.iter().fold(true, |clean, &byte| clean & (byte != b'\r') & (byte != b'\n') & (byte != 0));
    is_clean && !is_blank(first) && !is_blank(last)
}

fn is_token(value: &[u8]) -> bool {
    let is_byte = |byte: &u8| byte.is_ascii_uppercase() || LOWER_TOKEN[usize::from(*byte)];
    !value.is_empty() && value.iter().all(is_byte)
}

fn is_scheme(value: &[u8]) -> bool {
    let is_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    value.first().is_some_and(u8::is_ascii_alphabetic) && value.iter().all(is_byte)
}

/// A decimal number below 2^63, of digits only.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value =
        digits.iter().try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    value.filter(|value| *value <= i64::MAX as u64)
}

/// The bytes of a field name: those of a token but for capital letters.
static LOWER_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let (special, mut at) = (b"!#$%&'*+-.^_`|~", 0);
    while at < special.len() {
        table[special[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        if matches!(byte as u8, b'0'..=b'9' | b'a'..=b'z') {
            table[byte] = true;
        }
        byte += 1;
    }
    table
};
