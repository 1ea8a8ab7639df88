//! Error files: whole HTTP responses in files (configuration manual 4.2 `errorfile`), and what HAProxy demands of them.

use std::sync::Arc;

use crate::outside::{BufferLimits, Files};
use crate::problem::RuleError;

/// Reads and checks one for a rule.
pub(crate) fn read(path: &str, files: &dyn Files) -> Result<Arc<[u8]>, RuleError> {
    let content = files.read(path).map_err(|error| RuleError::new(format!("error opening file '{path}' ({error})")))?;
    check_error_file(&content, files.buffer()).map_err(|reason| RuleError::new(format!("'{path}': {reason}")))?;
    Ok(content.into())
}

/// Whether an error file is nothing (the connection is then closed without a response) or a whole HTTP/1 response, as HAProxy
/// demands: lines may end without a carriage return, a `Content-Length` must be true, there are no chunks, and all of it fits into a buffer.
pub fn check_error_file(content: &[u8], buffer: BufferLimits) -> Result<(), String> {
    if content.is_empty() {
        return Ok(());
    }
    if content.len() >= buffer.bytes {
        return Err(format!("larger than {} bytes, the buffer size ('tune.bufsize')", buffer.bytes));
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
        if line[..colon].eq_ignore_ascii_case(b"transfer-encoding") {
            return Err("chunk-encoded payload not supported".into());
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

    #[track_caller]
    fn check(content: &str, expect: Option<&str>) {
        let fault = check_error_file(content.as_bytes(), BufferLimits { bytes: 100, reserve: 10 }).err();
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
        check("HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Some("chunk-encoded"));
        check("HTTP/1.0 503 X\r\nA: b\r\n", Some("does not end"));
        check("HTTP/1.0 503 X\r\nA b\r\n\r\n", Some("not a header field"));
        check("<html>hi</html>\n", Some("status line"));
        check("<html>hi</html>", Some("does not end"));
        check("\r\n", Some("status line"));
        check(&format!("HTTP/1.0 503 X\r\n\r\n{}", "a".repeat(81)), None);
        check(&format!("HTTP/1.0 503 X\r\n\r\n{}", "a".repeat(82)), Some("larger than 100 bytes"));
    }
}
