//! What happens when something fails: `errorfile`, `errorloc…`, `retry-on` (configuration manual, 4.2).

use baton_model::{ErrorPage, RetryOn};

use crate::lower::{Call, Draft};

/// Statuses `errorfile` and `errorloc` can replace.
const ERROR_STATUSES: [u16; 19] =
    [200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504];

fn error_status(call: &mut Call<'_, '_>, what: &str) -> Option<u16> {
    if call.arg(0).is_empty() || call.arg(1).is_empty() {
        let message = format!("{} : expects <status_code> and <{what}> as arguments.", call.name);
        call.error(call.first + call.args().min(1), "missing-argument", message);
        return None;
    }
    match call.arg(0).parse::<u16>() {
        Ok(status) if ERROR_STATUSES.contains(&status) => Some(status),
        _ => {
            let message = format!("{} : status code '{}' not handled.", call.name, call.arg(0));
            call.wrong(0, message);
            None
        }
    }
}

fn set_error_page(draft: &mut Draft, status: u16, page: ErrorPage) {
    let pages = &mut draft.proxy.http.error_pages;
    match pages.binary_search_by_key(&status, |(status, _)| *status) {
        Ok(at) => pages[at].1 = page,
        Err(at) => pages.insert(at, (status, page)),
    }
}

pub(crate) fn errorfile(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let Some(status) = error_status(call, "file") else { return };
    let path = call.context.path(&call.line.file, call.arg(1));
    if !call.at_most(2) {
        return;
    }
    match call.context.env.read(&path) {
        Ok(content) => {
            if let Err(reason) = is_response(&content) {
                return call.wrong(1, format!("errorfile : '{}': {reason}", path.display()));
            }
            let page = ErrorPage::File { path, content: content.into() };
            set_error_page(draft, status, page);
        }
        Err(error) => {
            let message = format!("errorfile : error opening file '{}' ({error}).", path.display());
            call.error(call.first + 1, "cannot-open", message);
        }
    }
}

pub(crate) fn errorloc(draft: &mut Draft, call: &mut Call<'_, '_>, page: fn(String) -> ErrorPage) {
    if let Some(status) = error_status(call, "url")
        && call.at_most(2)
    {
        set_error_page(draft, status, page(call.arg(1).into()));
    }
}

/// What `retry-on` names besides statuses.
const EVENTS: [&str; 7] = [
    "none",
    "conn-failure",
    "empty-response",
    "junk-response",
    "response-timeout",
    "0rtt-rejected",
    "all-retryable-errors",
];

pub(crate) fn retry_on(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut retry = RetryOn { conn_failure: false, ..RetryOn::default() };
    if call.args() == 0 {
        return call.expects(0, "at least one event");
    }
    for index in 0..call.args() {
        match call.arg(index) {
            "none" if call.args() == 1 => {}
            "none" => return call.wrong(index, "'retry-on' 'none' keyword only usable alone".into()),
            "conn-failure" => retry.conn_failure = true,
            "empty-response" => retry.empty_response = true,
            "junk-response" => retry.junk_response = true,
            "response-timeout" => retry.response_timeout = true,
            // Nothing is sent to a server before the handshake is complete, so nothing of it is rejected.
            "0rtt-rejected" => {}
            "all-retryable-errors" => {
                retry.conn_failure = true;
                retry.empty_response = true;
                retry.junk_response = true;
                retry.response_timeout = true;
                for status in [500, 502, 503, 504] {
                    add_status(&mut retry, status);
                }
            }
            status @ ("401" | "403" | "404" | "408" | "425" | "500" | "501" | "502" | "503" | "504") => {
                add_status(&mut retry, status.parse().unwrap_or_default());
            }
            other => return call.not_one_of(index, format!("'retry-on': unknown keyword '{other}'"), EVENTS),
        }
    }
    draft.proxy.retry_on = retry;
}

fn add_status(retry: &mut RetryOn, status: u16) {
    if !retry.statuses.contains(&status) {
        retry.statuses.push(status);
    }
}

/// Whether an error file is nothing (the connection is then closed without an answer) or a whole HTTP/1 response, as HAProxy
/// demands: lines may end without a carriage return, and a `Content-Length` must be true.
fn is_response(content: &[u8]) -> Result<(), String> {
    if content.is_empty() {
        return Ok(());
    }
    let mut at = 0;
    let mut length = None;
    loop {
        let Some(end) = content[at..].iter().position(|&byte| byte == b'\n') else {
            return Err("the response head does not end with an empty line".into());
        };
        let line = &content[at..at + end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let first = at == 0;
        at += end + 1;
        if line.is_empty() && !first {
            break;
        }
        if first {
            let version = line.starts_with(b"HTTP/1.0 ") || line.starts_with(b"HTTP/1.1 ");
            let status = line.get(9..12).is_some_and(|status| status.iter().all(u8::is_ascii_digit));
            if !version || !status || line.get(12).is_some_and(|byte| *byte != b' ') {
                return Err("unable to parse headers: a status line such as 'HTTP/1.0 503 Down' is missing".into());
            }
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
        if colon == 0 || line[..colon].iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
            let shown = String::from_utf8_lossy(line).into_owned();
            return Err(format!("unable to parse headers: '{shown}' is not a header field"));
        }
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            let value =
                std::str::from_utf8(&line[colon + 1..]).ok().and_then(|value| value.trim().parse::<usize>().ok());
            length = Some(value.ok_or("unable to parse headers: Content-Length is not a number")?);
        }
    }
    let body = content.len() - at;
    match length {
        Some(length) if length != body => {
            Err(format!("payload size does not match the announced content-length ({body} != {length})"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expect: Option<&str>) {
        let fault = is_response(content.as_bytes()).err();
        match (fault, expect) {
            (None, None) => {}
            (Some(fault), Some(expect)) => assert!(fault.contains(expect), "{content}: {fault}"),
            (fault, expect) => panic!("{content}: {fault:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn error_files_are_responses() {
        check("", None);
        check("HTTP/1.0 503 X\r\nA: b\r\n\r\nbody", None);
        check("HTTP/1.0 503 X\nA: b\n\nbody", None);
        check("HTTP/1.1 503\r\n\r\n", None);
        check("HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbody", None);
        check("HTTP/1.1 503 X\r\nContent-Length: 3\r\n\r\nbody", Some("(4 != 3)"));
        check("HTTP/1.1 503 X\r\nContent-Length: x\r\n\r\nbody", Some("not a number"));
        check("HTTP/1.0 503 X\r\nA: b\r\n", Some("does not end"));
        check("HTTP/1.0 503 X\r\nA b\r\n\r\n", Some("not a header field"));
        check("<html>hi</html>\n", Some("status line"));
        check("<html>hi</html>", Some("does not end"));
        check("\r\n", Some("status line"));
    }
}
