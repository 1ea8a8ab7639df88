//! Persistence by cookie (configuration manual, 4.2 `cookie`): reading it from the request, writing it to the response.

use baton_http::{FieldsMut, FieldsView, Method, Name, RequestMut};
use baton_model::{Cookie, CookieMode};

use crate::balance::Slot;
use crate::core::Core;
use crate::exchange::Exchange;
use crate::preference::Preference;
use crate::progress::CookieDates;
use crate::route::dates;

/// Stands between the server's value and the application's in `prefix` mode.
const DELIMITER: u8 = b'~';

/// Takes the server's value out of the request's cookie, and the cookie out of the request where the server is not to see
/// it. Of several cookies of the name, the first one counts whose server is `usable`, else the first.
pub fn read(
    core: &Core,
    cookie: &Cookie,
    mut request: RequestMut<'_>,
    (preference, ignored): (&mut Preference, bool),
    usable: &dyn Fn(&[u8]) -> bool,
) {
    let mut fields = request.fields();
    let (mut seen, mut value) = (false, None::<Vec<u8>>);
    // Whether the server of the value is usable, once there is another one to ask about.
    let mut settled = None;
    let mut takes = |chosen: &Option<Vec<u8>>, other: &[u8]| {
        let Some(chosen) = chosen else { return true };
        let better = !*settled.get_or_insert_with(|| usable(chosen)) && usable(other);
        settled = Some(better || settled == Some(true));
        better
    };
    let mut edits = Vec::new();
    for field in fields.view().all_known(Name::Cookie) {
        let mut line = field.value.to_vec();
        let mut changed = false;
        let mut from = 0;
        while let Some((start, end, whole)) = find(&line, cookie.name.as_bytes(), from) {
            seen = true;
            let found = &line[start..end];
            if cookie.mode == CookieMode::Prefix {
                // A value of the server alone, without an application's, is passed on as it is.
                let delimiter = memchr::memchr(DELIMITER, found);
                let server = &found[..delimiter.unwrap_or(found.len())];
                if takes(&value, server) {
                    value = Some(server.to_vec());
                }
                if let Some(at) = delimiter {
                    line.drain(start..=start + at);
                    changed = true;
                }
                break;
            }
            let mut parts = found.split(|byte| *byte == b'|');
            let server = parts.next().unwrap_or_default();
            if takes(&value, server) {
                value = Some(server.to_vec());
                if cookie.max_idle.is_some() || cookie.max_life.is_some() {
                    let mut date = || parts.next().and_then(dates::decode);
                    preference.cookie_dates = Some(CookieDates { last: date(), first: date() });
                }
            }
            if !(cookie.indirect && cookie.mode == CookieMode::Insert) {
                from = whole.1;
                continue;
            }
            line = without(&line, whole);
            from = whole.0.min(line.len());
            changed = true;
        }
        if changed {
            if only_attributes(&line) {
                line.clear();
            }
            edits.push((field.index, line));
        }
    }
    preference.cookie_seen |= seen;
    preference.cookie_expired = preference
        .cookie_dates
        .and_then(|dates| dates.expired(cookie.max_idle, cookie.max_life, dates::in_steps(core.wall())));
    for (index, kept) in edits {
        if kept.is_empty() {
            fields.remove_at(index);
        } else {
            fields.replace_value(index, &kept);
        }
    }
    if !ignored && preference.cookie_expired.is_none() {
        preference.cookie = value.filter(|value| !value.is_empty());
    }
    preference.ignore_persist = ignored;
}

/// Rewrites, removes or adds the cookie in the response.
pub fn write(core: &Core, cookie: &Cookie, exchange: &mut Exchange<'_>, slot: &Slot) {
    let Exchange { messages, progress, facts, .. } = exchange;
    let (request, mut response, _) = messages.both_mut(None);
    let method = request.view().method();
    let id = slot.server().cookie();
    if id.is_none() && cookie.mode != CookieMode::Insert {
        return;
    }
    let value = id.as_deref().unwrap_or_default().as_bytes();
    let status = response.view().status();
    let mut fields = response.fields();
    let mut kept_by_server = false;
    let mut done = None;
    let mut edits: Vec<(usize, Option<Vec<u8>>)> = Vec::new();
    for field in fields.view().all_known(Name::SetCookie) {
        let Some((start, end)) = set_cookie_value(field.value, cookie.name.as_bytes()) else { continue };
        if cookie.preserve {
            kept_by_server = true;
            done = Some(b'P');
            continue;
        }
        match cookie.mode {
            CookieMode::Passive => done = Some(b'P'),
            CookieMode::Insert => {
                edits.push((field.index, None));
                done = Some(b'D');
            }
            CookieMode::Rewrite => {
                edits.push((field.index, Some(spliced(field.value, start, end, value))));
                done = Some(b'R');
            }
            CookieMode::Prefix => {
                let mut value = value.to_vec();
                value.push(DELIMITER);
                value.extend_from_slice(&field.value[start..end]);
                edits.push((field.index, Some(spliced(field.value, start, end, &value))));
                done = Some(b'R');
            }
        }
    }
    for (index, value) in edits {
        match value {
            Some(value) => fields.replace_value(index, &value),
            None => fields.remove_at(index),
        }
    }
    let given = &progress.persistence;
    let post_only = cookie.postonly && method != Method::Post;
    if cookie.mode == CookieMode::Insert && !kept_by_server && !post_only && !given.is_ignored {
        let (idle, life) = (cookie.max_idle, cookie.max_life);
        let today = if idle.is_some() || life.is_some() { dates::in_steps(core.wall()) } else { 0 };
        let old = given.dates.filter(|dates| dates.is_due(idle, life, today));
        if !given.is_wanted || old.is_some() {
            insert(cookie, id.as_deref(), old, today, &mut fields);
            done = Some(if old.is_some() { b'U' } else { b'I' });
        }
    }
    let safe = matches!(method, Method::Get | Method::Head | Method::Options);
    if cookie.nocache && safe && matches!(done, Some(b'I' | b'R' | b'U')) && is_cacheable(status, fields.view()) {
        fields.add(b"cache-control", b"private");
    }
    done.into_iter().for_each(|letter| facts.response_cookie(letter));
}

/// Adds the cookie; for a server without a value it takes the client's away. `old`: the dates of the cookie that is
/// refreshed.
fn insert(cookie: &Cookie, id: Option<&str>, old: Option<CookieDates>, today: u32, fields: &mut FieldsMut<'_>) {
    let mut value = match id {
        Some(id) => format!("{}={id}", cookie.name),
        None => format!("{}=; Expires=Thu, 01-Jan-1970 00:00:01 GMT", cookie.name),
    };
    if id.is_some() && (cookie.max_idle.is_some() || cookie.max_life.is_some()) {
        value.push('|');
        dates::encode(today, &mut value);
        if cookie.max_life.is_some() {
            value.push('|');
            dates::encode(old.and_then(|dates| dates.first).unwrap_or(today), &mut value);
        }
    }
    value.push_str("; path=/");
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
    fields.add(b"set-cookie", value.as_bytes());
}

/// Whether a cache would keep the response: `nocache` is for these only, as in HAProxy 2.6.
fn is_cacheable(status: u16, fields: FieldsView<'_>) -> bool {
    if !matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 404 | 405 | 410 | 414 | 501)
        || fields.find(b"pragma").is_some_and(|field| field.value.eq_ignore_ascii_case(b"no-cache"))
    {
        return false;
    }
    let is_age = |value: &[u8]| {
        [&b"max-age"[..], b"s-maxage"]
            .iter()
            .any(|word| value.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
    };
    let mut says_so = false;
    for value in fields.values(b"cache-control") {
        if FORBID_CACHING.iter().any(|word| value.eq_ignore_ascii_case(word)) {
            return false;
        }
        says_so |= is_age(value);
    }
    says_so || [&b"expires"[..], b"etag", b"last-modified"].iter().any(|name| fields.find(name).is_some())
}

/// Values of `Cache-Control` that forbid it.
const FORBID_CACHING: [&[u8]; 5] = [b"no-store", b"no-cache", b"private", b"max-age=0", b"s-maxage=0"];

/// Where the value of the cookie `name` stands in a `Cookie` line from `from` on, and the whole pair.
fn find(line: &[u8], name: &[u8], from: usize) -> Option<(usize, usize, (usize, usize))> {
    let mut begin = from;
    while begin < line.len() {
        let pair = &line[begin..pair_end(line, begin)];
        let end_of_pair = begin + pair.len();
        if let Some(equals) = memchr::memchr(b'=', pair)
            && pair[..equals].trim_ascii() == name
        {
            let value = &pair[equals + 1..];
            let lead = value.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let start = begin + equals + 1 + lead;
            let end = start + value[lead..].trim_ascii_end().len();
            return Some((start, end, (begin, end_of_pair)));
        }
        begin = end_of_pair + 1;
    }
    None
}

/// Where the pair that begins at `from` ends: at a semicolon or comma outside of quotes.
fn pair_end(line: &[u8], from: usize) -> usize {
    let mut quoted = false;
    let mut at = from;
    while let Some(byte) = line.get(at) {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b';' | b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    line.len()
}

/// Whether no cookie is left, only attributes about them, such as `$Path` (RFC 2109 4.3.4).
fn only_attributes(line: &[u8]) -> bool {
    let mut begin = 0;
    while begin < line.len() {
        let end = pair_end(line, begin);
        if !matches!(line[begin..end].trim_ascii().first(), None | Some(b'$')) {
            return false;
        }
        begin = end + 1;
    }
    true
}

/// The line without the pair.
fn without(line: &[u8], (start, end): (usize, usize)) -> Vec<u8> {
    let mut kept = line[..start].to_vec();
    let rest = line.get(end + 1..).unwrap_or_default();
    if kept.is_empty() {
        return rest.trim_ascii_start().to_vec();
    }
    if rest.is_empty() {
        kept.truncate(kept.strip_suffix(b";").or_else(|| kept.strip_suffix(b",")).unwrap_or(&kept).len());
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
        check("SRV=a, x=1", "SRV", Some("a"), "x=1");
        check("x=\"1;SRV=a;\"; y=2", "SRV", None, "");
        check("x=\"\\\";SRV=b\"; SRV=a", "SRV", Some("a"), "x=\"\\\";SRV=b\"");
        check("x=\"open; SRV=a", "SRV", None, "");
        check("srv=a", "SRV", None, "");
        check("SRV", "SRV", None, "");
        check("", "SRV", None, "");
    }

    #[test]
    fn attributes_are_no_cookies() {
        let left = |line: &str| !only_attributes(line.as_bytes());
        assert_eq!([left("$Version=1; $Path=/"), left(""), left("$Version=1; a=b")], [false, false, true]);
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
