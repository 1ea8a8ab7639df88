//! `h1-case-adjust`: names of fields in the spelling that bogus peers insist on. Heads are composed as always and changed in place, so that
//! nothing of it costs where it is not configured.

use baton_model::HeaderCases;

/// Changes the names in a head that was composed for HTTP/1, and starts with its first line.
pub fn adjust(cases: &HeaderCases, head: &mut [u8]) {
    let mut at = line_len(head);
    while at < head.len() {
        let line = &mut head[at..];
        let len = line_len(line);
        let Some(end) = memchr::memchr(b':', &line[..len]) else { return };
        if let Some(spelling) = cases.spelling(&line[..end]) {
            line[..end].copy_from_slice(spelling);
        }
        at += len;
    }
}

/// The length of the first line, its end included.
fn line_len(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_spelling_and_nothing_else_changes() {
        let mut cases = HeaderCases::default();
        cases.add("host", "Host").expect("a spelling");
        cases.add("x-id", "X-ID").expect("a spelling");
        let check = |head: &str, expect: &str| {
            let mut bytes = head.as_bytes().to_vec();
            adjust(&cases, &mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), expect);
        };
        check(
            "GET /host:x-id HTTP/1.1\r\nhost: x-id:\r\nx-id: host\r\nx-idx: a\r\n\r\nhost: body\r\n",
            "GET /host:x-id HTTP/1.1\r\nHost: x-id:\r\nX-ID: host\r\nx-idx: a\r\n\r\nhost: body\r\n",
        );
        check("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n");
        check("host", "host");
        check("", "");
    }
}
