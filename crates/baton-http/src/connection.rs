//! The `Connection` field: what it says, and how HAProxy 2.6 rewrites it when it forwards a head.

use crate::headers::Headers;
use crate::name::{Name, is_same};
use crate::scan::{is_blank, trim};
use crate::span::Text;
use crate::values::{next_comma, values};

/// The options of all `Connection` fields that matter to us (RFC 9110 7.6.1).
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct Connection {
    /// `close`
    pub close: bool,
    /// `keep-alive`
    pub keep_alive: bool,
    /// `upgrade`
    pub upgrade: bool,
}

impl Connection {
    /// Adds the options of one field's value.
    pub(crate) fn read(&mut self, value: &[u8]) {
        if is_keep_alive(value) {
            // Needs no list to be taken apart.
            self.keep_alive = true;
            return;
        }
        for option in values(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                _ => {}
            }
        }
    }
}

/// Takes `close` and `keep-alive` out of the `Connection` fields: they are about the connection a head came by. Other
/// options stay, as in HAProxy 2.6, which also forwards the fields they name.
pub(crate) fn strip(headers: &mut Headers, buf: &[u8]) {
    if !headers.may_have(Name::Connection) {
        return;
    }
    for index in 0..headers.slots() {
        let Some((Name::Connection, text)) = headers.slot(index) else {
            continue;
        };
        let line = headers.text(buf, text);
        if is_only_ours(line) {
            headers.remove_at(index);
        } else if values(line).any(is_ours) {
            let kept = keep_others(headers, buf, text);
            headers.set_value(index, kept);
        }
    }
}

/// Copies the options of `text` but ours into the added area, joined by a comma as HAProxy 2.6 does.
fn keep_others(headers: &mut Headers, buf: &[u8], text: Text) -> Text {
    let start = headers.added().len();
    let mut at = 0;
    loop {
        let line = headers.text(buf, text);
        if at > line.len() {
            return headers.added_since(start);
        }
        let end = next_comma(&line[at..]).map_or(line.len(), |comma| at + comma);
        let blanks = line[at..end].iter().take_while(|&&byte| is_blank(byte)).count();
        let option = trim(&line[at..end]);
        let (from, to) = (at + blanks, at + blanks + option.len());
        at = end + 1;
        if !is_ours(option) {
            if headers.added().len() > start {
                headers.keep(b",");
            }
            headers.append(buf, text.slice(from, to));
        }
    }
}

/// Whether a `Connection` line says nothing but `close` and `keep-alive`, which are about the connection it came by.
pub fn is_only_ours(line: &[u8]) -> bool {
    is_ours(line) || line.is_empty() || values(line).all(is_ours)
}

#[inline]
fn is_ours(option: &[u8]) -> bool {
    match option.len() {
        5 => option.eq_ignore_ascii_case(b"close"),
        10 => is_keep_alive(option),
        _ => false,
    }
}

/// Whether an option, of a line that has no CR, is `keep-alive`: what nearly all say.
#[inline]
fn is_keep_alive(option: &[u8]) -> bool {
    option.len() == 10 && is_same(b"keep-alive", option)
}
