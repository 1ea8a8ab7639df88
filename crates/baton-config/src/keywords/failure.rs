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
            "0rtt-rejected" => retry.early_rejected = true,
            "all-retryable-errors" => {
                retry.conn_failure = true;
                retry.empty_response = true;
                retry.junk_response = true;
                retry.response_timeout = true;
                retry.early_rejected = true;
                for status in [500, 502, 503, 504] {
                    add_status(&mut retry, status);
                }
            }
            status @ ("401" | "403" | "404" | "408" | "425" | "500" | "501" | "502" | "503" | "504") => {
                add_status(&mut retry, status.parse().unwrap_or_default());
            }
            other => return call.wrong(index, format!("'retry-on': unknown keyword '{other}'")),
        }
    }
    draft.proxy.retry_on = retry;
}

fn add_status(retry: &mut RetryOn, status: u16) {
    if !retry.statuses.contains(&status) {
        retry.statuses.push(status);
    }
}
