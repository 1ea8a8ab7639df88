//! Persistence by cookie (configuration manual, 4.2 `cookie`): reading it from the request, writing it to the response.

use baton_http::{Headers, Method, Name};
use baton_model::{Cookie, CookieMode};

use crate::balance::{Found, Slot};
use crate::place::Wish;
use crate::record::Entry;
use crate::work::Work;

/// Stands between the server's value and the application's in `prefix` mode.
const DELIMITER: u8 = b'~';

/// Takes the server's value out of the request's cookie, and the cookie out of the request where the server is not to see
/// it.
pub fn read(cookie: &Cookie, work: &mut Work, wish: &mut Wish, ignored: bool) {
    let buf = work.input.pinned();
    let headers = &mut work.request.headers;
    let mut value = None;
    let mut seen = false;
    let mut edits = Vec::new();
    for field in headers.all_known(buf, Name::Cookie) {
        let mut line = field.value.to_vec();
        let mut changed = false;
        let mut from = 0;
        while let Some((start, end, whole)) = find(&line, cookie.name.as_bytes(), from) {
            let first = !std::mem::replace(&mut seen, true);
            let found = &line[start..end];
            if cookie.mode == CookieMode::Prefix {
                let Some(at) = memchr::memchr(DELIMITER, found) else { break };
                if first {
                    value = Some(found[..at].to_vec());
                }
                line.drain(start..=start + at);
                changed = true;
                break;
            }
            if first {
                let end_of_id = memchr::memchr(b'|', found).unwrap_or(found.len());
                value = Some(found[..end_of_id].to_vec());
            }
            if !(cookie.indirect && cookie.mode == CookieMode::Insert) {
                break;
            }
            line = without(&line, whole);
            from = whole.0.min(line.len());
            changed = true;
        }
        if changed {
            edits.push((field.index, line));
        }
    }
    wish.cookie_seen = seen;
    for (index, kept) in edits {
        if kept.is_empty() {
            headers.remove_at(index);
        } else {
            headers.replace_value(index, &kept);
        }
    }
    if !ignored {
        wish.cookie = value.filter(|value| !value.is_empty());
    }
    wish.ignore_persist = ignored;
}

/// The letter of the log for what the client's cookie was.
pub fn note(entry: &mut Entry, wish: &Wish) {
    let uses_cookie = entry.backend.as_ref().is_some_and(|backend| backend.plan.proxy.cookie.is_some());
    if !uses_cookie {
        return;
    }
    let down = wish.found == Some(Found::Kept) && entry.server.as_ref().is_some_and(|server| !server.is_running());
    entry.by_cookie = wish.cookie.is_some() && wish.found == Some(Found::Kept) && wish.avoid.is_none();
    entry.persist_ignored = wish.ignore_persist;
    entry.cookie[0] = match wish.found {
        _ if !wish.cookie_seen => b'N',
        _ if wish.ignore_persist => b'U',
        _ if wish.cookie.is_none() => b'I',
        Some(Found::Kept) if down || wish.avoid.is_some() => b'D',
        Some(Found::Kept) => b'V',
        Some(Found::Down) => b'D',
        Some(Found::Unknown) => b'I',
        Some(Found::Nothing) | None => b'N',
    };
    entry.cookie[1] = b'N';
}

/// Rewrites, removes or adds the cookie in the response.
pub fn write(cookie: &Cookie, work: &mut Work, entry: &mut Entry, slot: &Slot) {
    let id = slot.server().cookie();
    if id.is_none() && cookie.mode != CookieMode::Insert {
        return;
    }
    let value = id.as_deref().unwrap_or_default().as_bytes();
    let buf: &[u8] = &work.received;
    let headers = &mut work.response.headers;
    let mut kept_by_server = false;
    let mut edits: Vec<(usize, Option<Vec<u8>>)> = Vec::new();
    for field in headers.all_known(buf, Name::SetCookie) {
        let Some((start, end)) = set_cookie_value(field.value, cookie.name.as_bytes()) else { continue };
        if cookie.preserve {
            kept_by_server = true;
            entry.cookie[1] = b'P';
            continue;
        }
        match cookie.mode {
            CookieMode::Passive => entry.cookie[1] = b'P',
            CookieMode::Insert => {
                edits.push((field.index, None));
                entry.cookie[1] = b'D';
            }
            CookieMode::Rewrite => {
                edits.push((field.index, Some(spliced(field.value, start, end, value))));
                entry.cookie[1] = b'R';
            }
            CookieMode::Prefix => {
                let mut value = value.to_vec();
                value.push(DELIMITER);
                value.extend_from_slice(&field.value[start..end]);
                edits.push((field.index, Some(spliced(field.value, start, end, &value))));
                entry.cookie[1] = b'R';
            }
        }
    }
    for (index, value) in edits {
        match value {
            Some(value) => headers.replace_value(index, &value),
            None => headers.remove_at(index),
        }
    }
    let post_only = cookie.postonly && work.request.method != Method::Post;
    if cookie.mode == CookieMode::Insert && !kept_by_server && !post_only && !entry.by_cookie && !entry.persist_ignored
    {
        insert(cookie, id.as_deref(), headers);
        entry.cookie[1] = b'I';
    }
    if cookie.nocache && matches!(entry.cookie[1], b'I' | b'R') && is_cacheable(headers, buf) {
        headers.add(b"cache-control", b"private");
    }
}

/// Adds the cookie; for a server without a value it takes the client's away.
fn insert(cookie: &Cookie, id: Option<&str>, headers: &mut Headers) {
    let mut value = match id {
        Some(id) => format!("{}={id}; path=/", cookie.name),
        None => format!("{}=; Expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/", cookie.name),
    };
    for domain in &cookie.domains {
        value.push_str("; domain=");
        value.push_str(domain);
    }
    for (set, word) in [(cookie.httponly, "; HttpOnly"), (cookie.secure, "; Secure")] {
        if set {
            value.push_str(word);
        }
    }
    for attribute in &cookie.attributes {
        value.push_str("; ");
        value.push_str(attribute);
    }
    headers.add(b"set-cookie", value.as_bytes());
}

/// Whether the response says that it may be kept: `nocache` is for these only, as in HAProxy 2.6.
fn is_cacheable(headers: &Headers, buf: &[u8]) -> bool {
    let mut says_so = false;
    for value in headers.values(buf, b"cache-control") {
        let name = value.split(|byte| *byte == b'=').next().unwrap_or_default();
        if [&b"no-store"[..], b"no-cache", b"private"].iter().any(|word| name.eq_ignore_ascii_case(word)) {
            return false;
        }
        says_so |= [&b"public"[..], b"max-age", b"s-maxage"].iter().any(|word| name.eq_ignore_ascii_case(word));
    }
    says_so || [&b"expires"[..], b"etag", b"last-modified"].iter().any(|name| headers.find(buf, name).is_some())
}

/// Where the value of the cookie `name` stands in a `Cookie` line from `from` on, and the whole pair.
fn find(line: &[u8], name: &[u8], from: usize) -> Option<(usize, usize, (usize, usize))> {
    let mut at = 0;
    for pair in line.split(|byte| *byte == b';') {
        let begin = at;
        at += pair.len() + 1;
        if begin < from {
            continue;
        }
        let blanks = pair.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let Some(equals) = memchr::memchr(b'=', pair) else { continue };
        if pair[blanks..equals].trim_ascii_end() == name {
            let value = &pair[equals + 1..];
            let lead = value.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let start = begin + equals + 1 + lead;
            let end = start + value[lead..].trim_ascii_end().len();
            return Some((start, end, (begin, begin + pair.len())));
        }
    }
    None
}

/// The line without the pair.
fn without(line: &[u8], (start, end): (usize, usize)) -> Vec<u8> {
    let mut kept = line[..start].to_vec();
    let rest = line.get(end + 1..).unwrap_or_default();
    if kept.is_empty() {
        return rest.trim_ascii_start().to_vec();
    }
    if rest.is_empty() {
        kept.truncate(kept.strip_suffix(b";").unwrap_or(&kept).len());
        return kept;
    }
    kept.push(b' ');
    kept.extend_from_slice(rest.trim_ascii_start());
    kept
}

/// Where the value stands in a `Set-Cookie` line for the cookie `name`.
fn set_cookie_value(line: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let end = memchr::memchr(b';', line).unwrap_or(line.len());
    let equals = memchr::memchr(b'=', &line[..end])?;
    (line[..equals].trim_ascii() == name).then(|| {
        let value = &line[equals + 1..end];
        let lead = value.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let start = equals + 1 + lead;
        (start, start + value[lead..].trim_ascii_end().len())
    })
}

fn spliced(line: &[u8], start: usize, end: usize, value: &[u8]) -> Vec<u8> {
    [&line[..start], value, &line[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, name: &str, value: Option<&str>, rest: &str) {
        let found = find(line.as_bytes(), name.as_bytes(), 0);
        assert_eq!(found.map(|(start, end, _)| &line[start..end]), value, "{line}");
        if let Some((_, _, whole)) = found {
            assert_eq!(String::from_utf8_lossy(&without(line.as_bytes(), whole)), rest, "{line}");
        }
    }

    #[test]
    fn a_cookie_is_found_and_taken_out() {
        check("SRV=a", "SRV", Some("a"), "");
        check("SRV=a; x=1", "SRV", Some("a"), "x=1");
        check("x=1; SRV=a", "SRV", Some("a"), "x=1");
        check("x=1; SRV=a; y=2", "SRV", Some("a"), "x=1; y=2");
        check("XSRV=a; SRV=b", "SRV", Some("b"), "XSRV=a");
        check("SRV = a ;y=2", "SRV", Some("a"), "y=2");
        check("srv=a", "SRV", None, "");
        check("SRV", "SRV", None, "");
        check("", "SRV", None, "");
    }

    #[test]
    fn the_value_of_a_set_cookie_line() {
        let show = |line: &'static str| set_cookie_value(line.as_bytes(), b"S").map(|(start, end)| &line[start..end]);
        assert_eq!(show("S=app1; path=/"), Some("app1"));
        assert_eq!(show("S=; path=/"), Some(""));
        assert_eq!(show("T=app1; path=/"), None);
        assert_eq!(show("path=/; S=x"), None);
    }
}
