//! `option mysql-check`: the greeting of a MySQL or MariaDB server, and with a user a log-in without a password that is ended at once.

use super::text;
use crate::matching::Finding;
use crate::report::Status;

const HEADER_BYTES: usize = 4;
/// The first byte of a packet that reports an error.
const ERROR: u8 = 0xff;
/// COM_QUIT, in a packet of its own.
const QUIT: &[u8] = &[1, 0, 0, 0, 1];

/// The packets of a log-in: a handshake response of that form, and the end.
pub(super) fn log_in(user: &str, is_before_41: bool) -> Vec<u8> {
    const PROTOCOL_41: u32 = 1 << 9;
    const SECURE_CONNECTION: u32 = 1 << 15;
    const PACKET_MAX: u32 = 1 << 24;
    const UTF8: u8 = 33;
    let mut body = Vec::new();
    if is_before_41 {
        body.extend_from_slice(&(SECURE_CONNECTION as u16).to_le_bytes());
        body.extend_from_slice(&[0, 0, 1]);
    } else {
        body.extend_from_slice(&(PROTOCOL_41 | SECURE_CONNECTION).to_le_bytes());
        body.extend_from_slice(&(PACKET_MAX | SECURE_CONNECTION).to_le_bytes());
        body.push(UTF8);
        body.extend_from_slice(&[0; 23]);
    }
    body.extend_from_slice(user.as_bytes());
    // The end of the name, and an empty password.
    body.extend_from_slice(&[0, 0]);
    let length = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
    [&length[..3], &[1], &body, QUIT].concat()
}

/// The first packet.
pub(super) fn judge_greeting(bytes: &[u8], is_over: bool) -> Finding {
    match packet(bytes) {
        None => Finding::incomplete(is_over),
        Some((packet, _)) => match packet {
            [ERROR, ..] => failed(packet),
            // The version of the protocol, and that of the server.
            [_, version @ ..] => Finding::Passed(text(version)),
            [] => Finding::malformed(""),
        },
    }
}

/// The packet behind the greeting.
pub(super) fn judge_log_in(bytes: &[u8], is_over: bool) -> Finding {
    let Some((_, rest)) = packet(bytes) else { return Finding::incomplete(is_over) };
    match packet(rest) {
        None => Finding::incomplete(is_over),
        Some(([ERROR, ..], _)) => packet(rest).map_or(Finding::Pending, |(packet, _)| failed(packet)),
        Some(_) => judge_greeting(bytes, is_over),
    }
}

fn failed(packet: &[u8]) -> Finding {
    match packet {
        [_, low, high, message @ ..] => {
            Finding::Failed(Status::L7Status, u16::from_le_bytes([*low, *high]).into(), text(message))
        }
        _ => Finding::malformed(""),
    }
}

/// The first packet without its header, and what follows.
fn packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [low, middle, high, _, rest @ ..] = bytes else { return None };
    let length = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
    debug_assert!(bytes.len() >= HEADER_BYTES, "a header was there");
    (rest.len() >= length).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_prefixes};
    use super::*;

    const GREETING: &[u8] = b"\x0b\0\0\0\x0a8.0.1\0abcd";

    #[test]
    fn packets_are_judged() {
        check(judge_greeting, GREETING, ["ok 8.0.1", "ok 8.0.1"]);
        let busy = b"\x17\0\0\0\xff\x10\x04Too many connections";
        check(judge_greeting, busy, ["L7STS 1040 Too many connections", "L7STS 1040 Too many connections"]);
        let well = [GREETING, b"\x07\0\0\x02\0\0\0\x02\0\0\0"].concat();
        check(judge_log_in, &well, ["ok 8.0.1", "ok 8.0.1"]);
        let denied = [GREETING, b"\x09\0\0\x02\xff\x15\x04#28000"].concat();
        check(judge_log_in, &denied, ["L7STS 1045 #28000", "L7STS 1045 #28000"]);
        check(judge_log_in, GREETING, ["pending", "L7RSP 0 "]);
        check(judge_greeting, b"\0\0\0\0", ["L7RSP 0 ", "L7RSP 0 "]);
        check_prefixes(judge_greeting, GREETING);
        check_prefixes(judge_log_in, &well);
    }

    #[test]
    fn a_log_in_has_two_forms() {
        assert_eq!(log_in("bob", true), b"\x0a\0\0\x01\0\x80\0\0\x01bob\0\0\x01\0\0\0\x01");
        let newer = [b"%\0\0\x01\0\x82\0\0\0\x80\0\x01!", &[0; 23][..], b"bob\0\0\x01\0\0\0\x01"].concat();
        assert_eq!(log_in("bob", false), newer);
    }
}
