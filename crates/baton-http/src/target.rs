//! The request target (RFC 9112 3.2): its form, its parts, and whether `Host` agrees with it.

use crate::host::is_host;
use crate::method::Method;

/// The form of a request target.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, of CONNECT only.
    Authority,
    /// `*`
    Asterisk,
}

/// The form of `target` in a request with `method`, if it has one. `relaxed` admits bytes beyond ASCII in the host.
pub(crate) fn form(method: Method, target: &[u8], relaxed: bool) -> Option<TargetForm> {
    if method == Method::Connect {
        let (host, port) = split_port(target);
        let has_both = !host.is_empty() && port.is_some_and(|port| !port.is_empty());
        return (has_both && is_host(target, relaxed)).then_some(TargetForm::Authority);
    }
    match target {
        [b'/', ..] => Some(TargetForm::Origin),
        b"*" => Some(TargetForm::Asterisk),
        _ => {
            let scheme = scheme(target);
            let authority = authority(TargetForm::Absolute, target);
            let host = host_of(authority);
            // A user part in front of the host is how `http://good@evil/` came about: RFC 9110 4.2.4 wants it taken for an error.
            let is_http = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
            let fits = !is_http || (!split_port(host).0.is_empty() && host.len() == authority.len());
            let is_one = !scheme.is_empty() && fits && !authority.contains(&b'\\') && is_host(host, relaxed);
            is_one.then_some(TargetForm::Absolute)
        }
    }
}

/// The scheme of an absolute target, without `://`; empty when there is none.
pub(crate) fn scheme(target: &[u8]) -> &[u8] {
    let len = target.iter().position(|&b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))).unwrap_or(0);
    if len > 0 && target[0].is_ascii_alphabetic() && target[len..].starts_with(b"://") { &target[..len] } else { &[] }
}

/// The authority, user part included; empty when the form has none. A slash or a question mark ends it (RFC 3986 3.2); HAProxy
/// 2.6 lets it run up to the slash.
pub(crate) fn authority(form: TargetForm, target: &[u8]) -> &[u8] {
    match form {
        TargetForm::Authority => target,
        TargetForm::Absolute => {
            let rest = &target[(scheme(target).len() + 3).min(target.len())..];
            &rest[..memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len())]
        }
        TargetForm::Origin | TargetForm::Asterisk => &[],
    }
}

/// Path and query, all that follows the authority.
pub(crate) fn path_and_query(form: TargetForm, target: &[u8]) -> &[u8] {
    match form {
        TargetForm::Origin => target,
        TargetForm::Absolute => {
            let start = scheme(target).len() + 3 + authority(form, target).len();
            target.get(start..).unwrap_or(&[])
        }
        TargetForm::Authority | TargetForm::Asterisk => &[],
    }
}

/// The path: up to the question mark.
pub(crate) fn path(form: TargetForm, target: &[u8]) -> &[u8] {
    let both = path_and_query(form, target);
    &both[..memchr::memchr(b'?', both).unwrap_or(both.len())]
}

/// The query: what follows the first question mark of the whole target.
pub(crate) fn query(target: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b'?', target).map(|mark| &target[mark + 1..])
}

/// Whether a `Host` value and an authority agree, and what to cut.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Agreement {
    Differ,
    Same,
    /// They are the same, and the authority names its default port (`:80`) or has an empty one. HAProxy 2.6 cuts that
    /// many bytes off the authority (not for CONNECT) and that many off `Host`.
    DefaultPort {
        authority: usize,
        host: usize,
    },
}

/// Compares the authority with `Host`, if there is one, as HAProxy 2.6 does: without case, without the user part, the scheme's default port being optional.
pub(crate) fn agree(form: TargetForm, target: &[u8], host: Option<&[u8]>) -> Agreement {
    let ours = host_of(authority(form, target));
    let (our_name, our_port) = split_port(ours);
    if matches!(form, TargetForm::Origin | TargetForm::Asterisk) {
        return Agreement::Same;
    }
    let default = standard_port(form, target, our_port);
    let is_default = |port: Option<&[u8]>| port.is_none_or(|port| port.is_empty() || port == default);
    if ours.is_empty() {
        return Agreement::Same;
    }
    let host = host.unwrap_or(ours);
    let (their_name, their_port) = split_port(host);
    let both_default = is_default(our_port) && is_default(their_port) && our_name.eq_ignore_ascii_case(their_name);
    if !both_default {
        return if ours.eq_ignore_ascii_case(host) { Agreement::Same } else { Agreement::Differ };
    }
    match our_port {
        None => Agreement::Same,
        Some(port) => {
            let cut_empty = form == TargetForm::Absolute;
            let host_cut = their_port.filter(|port| cut_empty || !port.is_empty()).map_or(0, |port| port.len() + 1);
            Agreement::DefaultPort { authority: port.len() + 1, host: host_cut }
        }
    }
}

/// The port that need not be said: that of the scheme; for CONNECT, either of two.
fn standard_port<'t>(form: TargetForm, target: &[u8], port: Option<&'t [u8]>) -> &'t [u8] {
    match (form, port) {
        (TargetForm::Authority, Some(port @ (b"80" | b"443"))) => port,
        (TargetForm::Absolute, _) if scheme(target).eq_ignore_ascii_case(b"http") => b"80",
        (TargetForm::Absolute, _) if scheme(target).eq_ignore_ascii_case(b"https") => b"443",
        _ => b"",
    }
}

/// How many bytes a port takes at the end of the authority, colon included, that `Host` need not say.
pub(crate) fn default_port(form: TargetForm, target: &[u8]) -> usize {
    match split_port(host_of(authority(form, target))).1 {
        Some(port) if port == standard_port(form, target, Some(port)) => port.len() + 1,
        _ => 0,
    }
}

/// An authority without its user part.
pub(crate) fn host_of(authority: &[u8]) -> &[u8] {
    memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..])
}

/// Splits `name:port`; the port is digits only, perhaps none. `None`: no port. `a:x` and `a::` are all name: only in
/// brackets does a name have colons.
fn split_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let digits = host.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, port) = host.split_at(host.len() - digits);
    match name {
        [name @ .., b':'] if !name.contains(&b':') || name.ends_with(b"]") => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a target may have that byte.
#[inline]
pub(crate) fn is_byte(byte: u8) -> bool {
    TARGET[byte as usize]
}

/// The bytes HAProxy 2.6 takes in a target: printable ASCII but for `#`.
static TARGET: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = byte != b'#' as usize;
        byte += 1;
    }
    table
};
