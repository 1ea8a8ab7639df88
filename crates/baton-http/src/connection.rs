//! The `Connection` field: what it says, which fields it takes out of a head, and how HAProxy 2.6 rewrites it when it forwards
//! one.

use crate::fields;
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
    /// How many other options there are.
    others: u32,
}

/// Most options besides the usual ones: each is looked for among all fields. No known client sends more than two.
const OTHERS_MAX: u32 = 32;

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
                2 if option.eq_ignore_ascii_case(b"te") => {}
                0 => {}
                _ => self.others += 1,
            }
        }
    }

    /// Whether there may be something for [`Connection::remove_named`] to do.
    #[inline]
    pub(crate) fn names_fields(&self, headers: &Headers) -> bool {
        self.others > 0 || (self.keep_alive && headers.may_have(Name::KeepAlive))
    }

    /// Takes out of the head what its `Connection` fields name (RFC 9110 7.6.1), before anything else looks at it: rules, logs
    /// and the next hop see one message, and what we add later stays. A field that is meant for all recipients stays too
    /// ([`fields::is_end_to_end`]). In both cases the option goes, so that the next hop does not remove the field. False: there are
    /// too many options.
    pub(crate) fn remove_named(&self, headers: &mut Headers, buf: &[u8]) -> bool {
        if self.keep_alive {
            headers.remove_known(Name::KeepAlive);
        }
        if self.others == 0 {
            return true;
        }
        if self.others > OTHERS_MAX {
            return false;
        }
        for index in 0..headers.slots() {
            let Some((Name::Connection, text)) = headers.slot(index) else {
                continue;
            };
            let named: Vec<Vec<u8>> = values(headers.text(buf, text))
                .filter(|option| !is_usual(option) && !fields::is_end_to_end(option))
                .map(<[u8]>::to_vec)
                .collect();
            for name in named {
                headers.remove(buf, &name);
            }
            retain(headers, buf, (index, text), is_usual);
        }
        true
    }
}

/// Takes `upgrade` out of the `Connection` fields, when what it is about is not passed on.
pub(crate) fn remove_upgrade(headers: &mut Headers, buf: &[u8]) {
    for index in 0..headers.slots() {
        if let Some((Name::Connection, text)) = headers.slot(index) {
            retain(headers, buf, (index, text), |option| !option.eq_ignore_ascii_case(b"upgrade"));
        }
    }
}

/// Whether the option is one of those that name no field for us to remove.
fn is_usual(option: &[u8]) -> bool {
    is_ours(option) || option.eq_ignore_ascii_case(b"upgrade") || option.eq_ignore_ascii_case(b"te")
}

/// Takes `close` and `keep-alive` out of the `Connection` fields: they are about the connection a head came by. Others
/// stay, as in HAProxy 2.6: `upgrade`, `te`, and those that rules have put in.
pub(crate) fn strip(headers: &mut Headers, buf: &[u8]) {
    if !headers.may_have(Name::Connection) {
        return;
    }
    for index in 0..headers.slots() {
        let Some((Name::Connection, text)) = headers.slot(index) else {
            continue;
        };
        if is_only_ours(headers.text(buf, text)) {
            headers.remove_at(index);
        } else {
            retain(headers, buf, (index, text), |option| !is_ours(option));
        }
    }
}

/// Says that the connection stays, which names `Keep-Alive`: one that came with the head was about another connection and goes.
pub(crate) fn add_keep_alive(headers: &mut Headers) {
    headers.remove_known(Name::KeepAlive);
    headers.add(b"connection", b"keep-alive");
}

/// Leaves the options of the field at `index` that are to be kept, joined by a comma as HAProxy 2.6 does; without any the field goes.
pub(crate) fn retain(headers: &mut Headers, buf: &[u8], (index, text): (usize, Text), keep: impl Fn(&[u8]) -> bool) {
    let line = headers.text(buf, text);
    if !values(line).any(&keep) {
        headers.remove_at(index);
    } else if !values(line).all(&keep) {
        let kept = keep_some(headers, buf, text, keep);
        headers.set_value(index, kept);
    }
}

/// Copies options of a list into the added area.
fn keep_some(headers: &mut Headers, buf: &[u8], text: Text, keep: impl Fn(&[u8]) -> bool) -> Text {
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
        if keep(option) {
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
