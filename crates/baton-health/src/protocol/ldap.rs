//! `option ldap-check`: an anonymous bind (RFC 4511, 4.2).

use crate::matching::Finding;
use crate::report::Status;

/// A message with number 1: a bind of version 3, no name, no password.
pub(super) const BIND: &[u8] = &[0x30, 12, 0x02, 1, 1, 0x60, 7, 0x02, 1, 3, 0x04, 0, 0x80, 0];

const SEQUENCE: u8 = 0x30;
const BIND_RESPONSE: u8 = 0x61;
const ENUMERATED: u8 = 0x0a;
/// The shortest response: its code, an empty name and an empty message.
const BYTES_MIN: usize = 14;

pub(super) fn judge(bytes: &[u8], is_over: bool) -> Finding {
    if bytes.len() < BYTES_MIN {
        return Finding::incomplete(is_over);
    }
    match result_code(bytes) {
        None => Finding::malformed("Not LDAPv3 protocol"),
        Some(0) => Finding::Passed("Success".into()),
        Some(code) => {
            let reference = "See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9";
            Finding::Failed(Status::L7Status, code.into(), reference.into())
        }
    }
}

fn result_code(bytes: &[u8]) -> Option<u8> {
    let rest = opened(bytes, SEQUENCE)?;
    let rest = rest.strip_prefix(&[0x02, 1, 1])?;
    let rest = opened(rest, BIND_RESPONSE)?;
    match rest {
        [ENUMERATED, 1, code, ..] => Some(*code),
        _ => None,
    }
}

/// What stands in an element of BER with that tag.
fn opened(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    match bytes {
        [first, length, rest @ ..] if *first == tag => match length {
            // So many bytes of length follow.
            0x80.. => rest.get(usize::from(length & 0x7f)..),
            _ => Some(rest),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_prefixes};
    use super::*;

    const FINE: &[u8] = &[0x30, 12, 2, 1, 1, 0x61, 7, 10, 1, 0, 4, 0, 4, 0];

    #[test]
    fn the_result_code_decides() {
        check(judge, FINE, ["ok Success", "ok Success"]);
        let long = [&[0x30, 0x84, 0, 0, 0, 16, 2, 1, 1, 0x61, 0x84, 0, 0, 0, 7][..], &FINE[7..]].concat();
        check(judge, &long, ["ok Success", "ok Success"]);
        let refused = [&FINE[..9], &[49], &FINE[10..]].concat();
        let told = "L7STS 49 See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9";
        check(judge, &refused, [told, told]);
        check(judge, b"hello world hello", ["L7RSP 0 Not LDAPv3 protocol", "L7RSP 0 Not LDAPv3 protocol"]);
        check(judge, b"0\x0c\x02", ["pending", "L7RSP 0 "]);
        check_prefixes(judge, FINE);
    }
}
