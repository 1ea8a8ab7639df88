//! The standard answers, as HAProxy gives them (configuration manual, 1.3.1 "The response line", `errorfile`).

/// Reason phrase and text of a status.
struct Page {
    status: u16,
    reason: &'static str,
    text: &'static str,
    /// The answer ends the connection.
    closes: bool,
}

const fn page(status: u16, reason: &'static str, text: &'static str) -> Page {
    Page { status, reason, text, closes: matches!(status, 400 | 408) }
}

const PAGES: &[Page] = &[
    page(200, "OK", "Service ready."),
    page(400, "Bad request", "Your browser sent an invalid request."),
    page(401, "Unauthorized", "You need a valid user and password to access this content."),
    page(403, "Forbidden", "Request forbidden by administrative rules."),
    page(404, "Not Found", "The resource could not be found."),
    page(
        405,
        "Method Not Allowed",
        "A request was made of a resource using a request method not supported by that resource",
    ),
    page(407, "Unauthorized", "You need a valid user and password to access this content."),
    page(408, "Request Time-out", "Your browser didn't send a complete request in time."),
    page(410, "Gone", "The resource is no longer available and will not be available again."),
    page(413, "Payload Too Large", "The request entity exceeds the maximum allowed."),
    page(421, "Misdirected Request", "Request sent to a non-authoritative server."),
    page(422, "Unprocessable Content", "The server cannot process the contained instructions."),
    page(425, "Too Early", "Your browser sent early data."),
    page(429, "Too Many Requests", "You have sent too many requests in a given amount of time."),
    page(500, "Internal Server Error", "An internal server error occurred."),
    page(501, "Not Implemented", ".The server does not support the functionality required to fulfill the request."),
    page(502, "Bad Gateway", "The server returned an invalid or incomplete response."),
    page(503, "Service Unavailable", "No server is available to handle this request."),
    page(504, "Gateway Time-out", "The server didn't respond in time."),
];

/// The page of a status; the one of 500 for a status without a page.
fn find(status: u16) -> &'static Page {
    let at = PAGES.iter().position(|page| page.status == status);
    &PAGES[at.unwrap_or_else(|| PAGES.len() - 5)]
}

fn body(page: &Page) -> String {
    format!("<html><body><h1>{} {}</h1>\n{}\n</body></html>\n", page.status, page.reason, page.text)
}

/// Appends the answer to a request that was understood.
pub fn standard(status: u16, out: &mut Vec<u8>) {
    let page = find(status);
    let body = body(page);
    let close = if page.closes { "connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-length: {}\r\ncache-control: no-cache\r\ncontent-type: text/html\r\n{close}\r\n",
        page.status,
        page.reason,
        body.len()
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body.as_bytes());
}

/// Makes a response, unless it is empty, the question for a user and a password of this realm (RFC 7617).
pub fn ask_for_user(realm: &str, page: &mut Vec<u8>) {
    let Some(end) = head_end(page) else { return };
    let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
    let field = format!("www-authenticate: Basic realm=\"{realm}\"\r\n");
    page.splice(end..end, field.into_bytes());
}

/// Where the empty line begins that ends a head, whose lines may end without a carriage return.
fn head_end(page: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + memchr::memchr(b'\n', &page[at..])?;
        if matches!(&page[at..end], b"" | b"\r") {
            return Some(at);
        }
        at = end + 1;
    }
}

/// The answer to bytes that were no request. HAProxy spells it differently there, and so do we.
pub fn raw(status: u16) -> Vec<u8> {
    let page = find(status);
    let body = body(page);
    let close = if page.closes { "Connection: close\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-length: {}\r\nCache-Control: no-cache\r\n{close}Content-Type: text/html\r\n\r\n",
        page.status,
        page.reason,
        body.len()
    );
    (head + &body).into_bytes()
}

/// Appends what `errorloc302` and `errorloc303` answer.
pub fn redirect(status: u16, location: &str, out: &mut Vec<u8>) {
    let reason = if status == 303 { "See Other" } else { "Found" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncache-control: no-cache\r\ncontent-length: 0\r\nlocation: {location}\r\n\r\n"
    );
    out.extend_from_slice(head.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_for_a_user_is_the_last_header() {
        let check = |page: &str, expect: &str| {
            let mut page = page.as_bytes().to_vec();
            ask_for_user("a\"\\b", &mut page);
            assert_eq!(String::from_utf8(page).expect("it was text"), expect);
        };
        let field = "www-authenticate: Basic realm=\"a\\\"\\\\b\"\r\n";
        check("HTTP/1.1 401 X\r\na: b\r\n\r\nbody\n\n", &format!("HTTP/1.1 401 X\r\na: b\r\n{field}\r\nbody\n\n"));
        check("HTTP/1.1 401 X\na: b\n\nbody", &format!("HTTP/1.1 401 X\na: b\n{field}\nbody"));
        check("", "");
    }

    #[test]
    fn a_status_without_a_page_is_our_fault() {
        assert_eq!(find(599).status, 500);
        assert_eq!(find(503).reason, "Service Unavailable");
    }
}
